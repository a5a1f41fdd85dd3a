//! The running loop: who runs goes first, in the order of admission (R11).

use super::preempt::Preempted;
use super::{Call, Vllm};
use crate::base::ids::SlotId;
use crate::engine::plan::Entry;

impl Vllm {
    /// Gives running requests their tokens, front to back, and preempts where blocks run out.
    pub(super) fn schedule_running(&mut self, call: &mut Call<'_>) {
        let mut index = 0;
        while index < self.running.len() && !call.budget.is_spent() {
            let slot = self.running[index];
            let tokens = self.wanted_by_running(slot, call);
            // Passed over, not the end: later requests may run in a pass without this one.
            if tokens == 0 {
                index += 1;
                continue;
            }
            match self.make_room(slot, &mut index, tokens, call) {
                Preempted::Others => {}
                // FCFS: whoever preempts itself was the last of the list.
                Preempted::Itself if self.limits.by_priority => continue,
                Preempted::Itself => break,
            }
            let new_blocks = self.blocks_missing(slot, tokens);
            self.serve(slot, tokens, new_blocks, call);
            index += 1;
        }
    }

    /// Gives a running request `tokens` tokens and the blocks for them, which are free.
    pub(super) fn serve(
        &mut self,
        slot: SlotId,
        tokens: u32,
        new_blocks: u32,
        call: &mut Call<'_>,
    ) {
        let request = &self.arena[slot];
        let computed = request.computed_tokens;
        let labelled_tokens = (computed + tokens).min(request.known_tokens);
        call.carries_prefill |= request.is_chunk;
        self.kv.grow(slot, new_blocks);
        self.kv.label(slot, labelled_tokens);
        self.add_row(call, slot, tokens, computed, Entry::Running);
    }

    /// Tokens a running request gets if blocks allow: 0 if it sits this pass out (R11).
    pub(super) fn wanted_by_running(&self, slot: SlotId, call: &Call<'_>) -> u32 {
        let request = &self.arena[slot];
        // The output in flight is sure to reach its limit (R71).
        if request.placeholder_tokens > 0
            && request.computed_tokens + 2 - request.placeholder_tokens
                >= request.prompt_tokens.saturating_add(request.max_tokens)
        {
            return 0;
        }
        if call.holds_prefill && request.is_chunk {
            return 0;
        }
        (request.known_tokens + request.placeholder_tokens - request.computed_tokens)
            .min(call.cap_tokens)
            .min(call.budget.tokens())
            .min(self.limits.model_len_max.saturating_sub(request.computed_tokens + 1))
    }

    /// Blocks that a running request lacks for another `tokens` tokens (R37, R39).
    pub(super) fn blocks_missing(&self, slot: SlotId, tokens: u32) -> u32 {
        let base = self.arena[slot].computed_tokens.min(self.limits.model_len_max);
        let slots = base.saturating_add(tokens).min(self.limits.model_len_max);
        slots.div_ceil(self.limits.block_tokens).saturating_sub(self.kv.held_blocks(slot))
    }
}
