//! Preemption: a running request loses its KV so that another can go on (R20 to R25).

use super::{Call, Vllm};
use crate::base::ids::SlotId;
use crate::engine::arena::Stage;

/// Who made room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preempted {
    /// Others, or nobody had to.
    Others,
    /// The request that needed the room.
    Itself,
}

impl Vllm {
    /// Preempts until the blocks for `tokens` more tokens of `slot`, which stands at `index` of
    /// the running list, are free, or `slot` itself is the victim. `index` follows `slot`, or
    /// what comes behind it, when the list gets shorter.
    pub(super) fn make_room(
        &mut self,
        slot: SlotId,
        index: &mut usize,
        tokens: u32,
        call: &mut Call<'_>,
    ) -> Preempted {
        while self.blocks_missing(slot, tokens) > self.kv.free_blocks() {
            let place = self.victim();
            let victim = self.running.remove(place);
            self.preempt(victim, call);
            if victim == slot {
                return Preempted::Itself;
            }
            if place < *index {
                *index -= 1;
            }
        }
        Preempted::Others
    }

    /// The place of the next victim in the running list (R21): FCFS takes the last. The priority
    /// policy takes the largest (priority, arrival), of equals the one nearest the front.
    fn victim(&self) -> usize {
        debug_assert_eq!(self.running_requests() as usize, self.running.len());
        if !self.limits.by_priority {
            return self.running.len() - 1;
        }
        let key = |place: usize| {
            let request = &self.arena[self.running[place]];
            (request.priority, request.arrival)
        };
        (1..self.running.len())
            .fold(0, |top, place| if key(place) > key(top) { place } else { top })
    }

    /// Takes the KV of `victim` away and puts it back into the queue (R22). A share it already
    /// has in this pass is undone.
    fn preempt(&mut self, victim: SlotId, call: &mut Call<'_>) {
        if let Some(place) = call.plan.rows.iter().position(|row| row.slot == victim) {
            let row = call.plan.rows.remove(place);
            call.budget.give_back(row.tokens);
        }
        self.kv.release(victim);
        let request = &mut self.arena[victim];
        request.recompute_tokens = request.recompute_tokens.max(request.computed_tokens);
        request.computed_tokens = 0;
        request.placeholder_tokens = 0;
        request.draft_tokens = 0;
        request.is_padded = false;
        // Outputs still in flight are delivered, but belong to KV that is gone (R74).
        request.stale_tokens = request.flying_tokens;
        request.is_chunk = false;
        request.preemptions += 1;
        request.stage = Stage::Waiting;
        call.plan.preempted.push(request.id);
        self.waiting.push_preempted(victim, &self.arena[victim]);
        self.requests_touched += 1;
    }
}
