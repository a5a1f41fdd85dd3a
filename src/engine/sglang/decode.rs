//! Decoding, and who loses its KV when the pool is full (D1 to D7, N2, N3).

use std::cmp::Reverse;

use super::Sglang;
use crate::base::ids::SlotId;
use crate::base::record::Rejection;
use crate::base::time::SimTime;
use crate::engine::arena::Stage;
use crate::engine::outbox::Outbox;
use crate::engine::plan::{PassPlan, Row};

/// Decodes that the survivors of a retraction are to have room for (D6, N3).
const RETRACTION_STEPS: u32 = 20;

impl Sglang {
    /// Plans a decode of the running batch (S5, D).
    pub(super) fn schedule_decode(
        &mut self,
        now: SimTime,
        plan: &mut PassPlan,
        outbox: &mut Outbox,
    ) -> bool {
        if self.batch_len() == 0 || (self.drafting.is_none() && self.has_only_prefills()) {
            return false;
        }
        let before = self.batch_len();
        let dropped = self.drop_ending();
        if self.batch_len() == 0 {
            self.is_full = false;
            return false;
        }
        if self.decode_fits() {
            self.decay_ratio();
        } else if dropped > 0 {
            // What the dropped hold comes back with the result in flight (D3).
            self.is_full = false;
            return false;
        } else {
            self.retract(now, outbox);
        }
        if self.batch_len() < before {
            self.is_full = false;
        }
        if self.batch_len() == 0 {
            return false;
        }
        self.decode_all(plan);
        true
    }

    /// Whether everybody's limit is 0: they have their only token already.
    fn has_only_prefills(&self) -> bool {
        let has_none = |slot: SlotId| self.parts[slot.index()].limit_tokens == 0;
        self.steady.size == self.reserved.zero_limits
            && self.running.iter().all(|&slot| has_none(slot))
    }

    /// One decode brings the ratio closer to its minimum (N2).
    pub(super) fn decay_ratio(&mut self) {
        let [_, minimum, decay] = self.limits.ratio;
        self.new_token_ratio = (self.new_token_ratio - decay).max(minimum);
    }

    /// Whether the running batch has room for a token each, or a round (D2, V5). Evicts for it.
    pub(super) fn decode_fits(&mut self) -> bool {
        let needed = match self.limits.speculation {
            Some(speculation) => self.tokens_missing(speculation),
            None => u64::from(self.pages_needed()) * u64::from(self.limits.page_tokens),
        };
        self.memory.make_room(needed);
        u64::from(self.memory.available_tokens()) >= needed
    }

    /// Running requests whose pages are full.
    fn pages_needed(&self) -> u32 {
        if self.steady.size > 0 {
            return self.steady.blocks_needed(self.planned_decodes);
        }
        let is_full =
            |slot: SlotId| self.arena[slot].computed_tokens.is_multiple_of(self.limits.page_tokens);
        self.running.iter().filter(|&&slot| is_full(slot)).count() as u32
    }

    /// Gives everybody who runs a token, or a round; there is room for it (M4, V5).
    pub(super) fn decode_all(&mut self, plan: &mut PassPlan) {
        if let Some(speculation) = self.limits.speculation {
            self.reserve_rounds(speculation);
            self.plan_rounds(speculation, plan);
            return;
        }
        self.take_pages();
        if self.steady.size > 0 {
            self.steady.decode(plan, self.planned_decodes, &self.arena);
            return;
        }
        for &slot in &self.running {
            let request = &mut self.arena[slot];
            plan.rows.push(Row::decode(slot, request.id, request.computed_tokens));
            request.computed_tokens += 1;
        }
    }

    /// Takes the pages for a token of everybody; room is made as if each needed a page (M4).
    pub(super) fn take_pages(&mut self) {
        let page_tokens = self.limits.page_tokens;
        let needed = self.pages_needed();
        self.memory.make_room(u64::from(page_tokens) * u64::from(self.batch_len()));
        self.memory.take(needed * page_tokens);
    }

    /// Takes the KV of running requests away until the others can go on (D4 to D7).
    fn retract(&mut self, now: SimTime, outbox: &mut Outbox) {
        self.dissolve_steady();
        let mut batch = std::mem::take(&mut self.running);
        batch.sort_by_key(|&slot| {
            let part = &self.parts[slot.index()];
            let by_priority = self.limits.retracts_by_priority;
            let priority = if by_priority { self.priority_key(slot) } else { 0 };
            (priority, Reverse(part.outputs), part.prompt_tokens)
        });
        // The order of the survivors from now on (D5).
        self.lockstep.number_behind(&mut self.arena, &batch);
        self.running = batch;
        let mut retracted = Vec::new();
        while self.running.len() > 1
            && let Some(slot) = self.running.pop()
        {
            self.lose_memory(slot, self.running.len() as u32);
            retracted.push(slot);
            if self.decode_fits() {
                break;
            }
        }
        if !self.decode_fits()
            && let Some(slot) = self.running.pop()
        {
            // The clipped limits leave a request alone enough (A2), unless somebody else holds memory or it needs
            // more for its drafts (V5).
            self.lose_memory(slot, 0);
            self.turn_away(slot, Rejection::PromptTooLong, now, outbox);
        }
        let survivors = self.running.len() as u32;
        let (mut outputs, mut limits) = (0_u64, 0_u64);
        for &slot in &self.running {
            let part = &self.parts[slot.index()];
            outputs += u64::from(part.outputs);
            limits += u64::from(part.limit_tokens);
        }
        let expected = outputs + u64::from(RETRACTION_STEPS * survivors);
        self.new_token_ratio = (expected as f64 / (limits + 1) as f64).min(1.0);
        for slot in retracted {
            self.retracted.push(self.arena[slot].id);
            self.enter_queue(slot, now, outbox);
        }
    }

    /// A request loses its KV, of which nothing is kept; room is made for those `left` in the batch (D6).
    pub(super) fn lose_memory(&mut self, slot: SlotId, left: u32) {
        let allocated = self.allocated(slot);
        let request = &mut self.arena[slot];
        let part = &mut self.parts[slot.index()];
        self.memory.drop_all(part, allocated);
        self.memory.make_room(u64::from(RETRACTION_STEPS * left));
        part.reserved_tokens = 0;
        // What is in flight is lost (O5).
        part.coming_tokens = 0;
        request.recompute_tokens =
            request.recompute_tokens.max(part.length(part.outputs).min(request.computed_tokens));
        request.computed_tokens = 0;
        request.preemptions += 1;
        request.stage = Stage::Waiting;
        part.flying_samples = 0;
        self.rows_held -= 1;
        self.requests_touched += 1;
    }
}
