//! Preemption: a waiting request takes the place of running ones that are worth less (Q1 to Q3).

use super::Sglang;
use super::adder::Adder;
use super::part::clipped;
use crate::base::ids::SlotId;

impl Sglang {
    /// Makes room for `slot` at the cost of running requests, if there are enough that are worth less.
    pub(super) fn displace_for(&mut self, slot: SlotId, adder: &mut Adder) -> bool {
        let part = &self.parts[slot.index()];
        let (length, hit) = part.looked_up;
        let output_tokens = clipped(part.limit_tokens);
        let mut missing =
            f64::from(length - hit) + f64::from(output_tokens) - self.rem_total(adder);
        self.requests_touched += u64::from(self.steady.size);
        let mut running = self.batch();
        running.sort_by_key(|&other| {
            let entry = self.parts[other.index()].entry;
            (std::cmp::Reverse(self.priority_key(other)), std::cmp::Reverse(entry))
        });
        let own = self.priority_key(slot);
        let threshold = i64::from(self.limits.preemption_threshold);
        let mut victims = Vec::new();
        for other in running {
            if self.priority_key(other) - own <= threshold {
                break;
            }
            victims.push(other);
            missing -= self.reserved_by(other);
            if missing <= 0.0 {
                break;
            }
        }
        if victims.is_empty() || missing > 0.0 {
            return false;
        }
        self.dissolve_steady();
        let batch = std::mem::take(&mut self.running);
        let mut left = batch.len() as u32;
        for slot in batch {
            if victims.contains(&slot) {
                left -= 1;
                let reserved = self.reserved_by(slot);
                adder.release(reserved);
                self.lose_memory(slot, left);
                self.displaced.push(self.arena[slot].id);
                adder.displaced.push(slot);
            } else {
                self.running.push(slot);
            }
        }
        true
    }
}
