//! Decoding with drafts: what memory a round takes, and what comes out of it (V4 to V9).
//!
//! A request has memory for more than it may fill before the next call knows how far it got. What a
//! round rejects is written over by the next one, so nothing is given back before the end.

use super::Sglang;
use super::config::speculative::Speculation;
use crate::base::ids::SlotId;
use crate::engine::plan::{PassPlan, Row};

impl Sglang {
    /// Tokens that everybody who runs lacks for a round, in whole pages (V5).
    pub(super) fn tokens_missing(&self, speculation: Speculation) -> u64 {
        let missing = |&slot: &SlotId| u64::from(self.tokens_missing_for(slot, speculation));
        self.running.iter().map(missing).sum()
    }

    fn tokens_missing_for(&self, slot: SlotId, speculation: Speculation) -> u32 {
        let held = self.memory.ceil(self.allocated(slot));
        self.round_end(slot, speculation).saturating_sub(held)
    }

    /// Tokens that a request needs memory for in a round, in whole pages (V4).
    fn round_end(&self, slot: SlotId, speculation: Speculation) -> u32 {
        self.memory.ceil(self.arena[slot].computed_tokens + speculation.reserved_tokens)
    }

    /// Takes the memory for a round of everybody who runs (V5).
    pub(super) fn reserve_rounds(&mut self, speculation: Speculation) {
        let page_tokens = self.limits.page_tokens;
        let pages = if page_tokens > 1 { u64::from(page_tokens) } else { 0 };
        let mut room = 0_u64;
        for &slot in &self.running {
            let end = self.round_end(slot, speculation);
            room += u64::from(end.saturating_sub(self.allocated(slot)));
        }
        if room == 0 {
            return;
        }
        self.memory.make_room(room + pages * self.running.len() as u64);
        for place in 0..self.running.len() {
            let slot = self.running[place];
            let missing = self.tokens_missing_for(slot, speculation);
            self.memory.take(missing);
            let end = self.round_end(slot, speculation).max(self.allocated(slot));
            self.parts[slot.index()].reserved_tokens = end;
        }
    }

    /// Plans a round of everybody who runs (V6), or a token each beside prefill (V9).
    pub(super) fn plan_rounds(&mut self, speculation: Speculation, plan: &mut PassPlan) {
        let is_mixed = !plan.rows.is_empty();
        for place in 0..self.running.len() {
            let slot = self.running[place];
            let accepted = if is_mixed { None } else { self.accepted(slot, speculation) };
            let burst = 1 + accepted.unwrap_or(0);
            let request = &self.arena[slot];
            let part = &mut self.parts[slot.index()];
            // The device knows how far the pass in flight gets, unlike the scheduler.
            let computed_before = request.computed_tokens + part.coming_tokens;
            let mut row = Row::decode(slot, request.id, computed_before);
            if !is_mixed {
                row.tokens = speculation.verified_tokens;
                row.drafts = speculation.verified_tokens - 1;
                row.is_padding = accepted.is_none();
            }
            part.coming_tokens += burst;
            self.bursts.push_back(burst);
            plan.rows.push(row);
        }
    }

    /// How many drafts of its next round are accepted; `None` if there are none to accept.
    fn accepted(&mut self, slot: SlotId, speculation: Speculation) -> Option<u32> {
        let drafting = self.drafting.as_mut().expect("rounds come with speculation");
        let mut drafts = speculation.accepted_max;
        if speculation.looks_up {
            drafts = drafting.find(slot, drafts);
        }
        (drafts > 0).then(|| drafting.accept(slot, drafts))
    }
}

#[cfg(test)]
mod tests;
