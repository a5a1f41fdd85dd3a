//! The running loop: who runs goes first, in the order of admission (R11).

use super::preempt::Preempted;
use super::{Call, Vllm};
use crate::base::ids::SlotId;
use crate::engine::arena::Request;
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
        let labelled_tokens = self.labelled_tokens(request, computed + tokens);
        call.carries_prefill |= request.is_chunk;
        call.runs_chunk |= request.is_chunk;
        call.runs_any = true;
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
        let wanted = request.known_tokens + request.draft_tokens + request.placeholder_tokens;
        (wanted - request.computed_tokens)
            .min(call.cap_tokens)
            .min(call.budget.tokens())
            .min(self.limits.model_len_max.saturating_sub(request.computed_tokens + 1))
    }

    /// Tokens of the first `tokens` ones whose blocks may be labelled: they are known, and so is what their hashes
    /// cover beyond them (R41, R62).
    pub(super) fn labelled_tokens(&self, request: &Request, tokens: u32) -> u32 {
        let lookahead_tokens = self.limits.speculation.hash_lookahead_tokens;
        let hashed = request.known_tokens.saturating_sub(lookahead_tokens);
        tokens.min(hashed)
    }

    /// Blocks that a running request lacks for another `tokens` tokens (R37, R39).
    pub(super) fn blocks_missing(&self, slot: SlotId, tokens: u32) -> u32 {
        let base = self.arena[slot].computed_tokens.min(self.limits.model_len_max);
        let lookahead_tokens = self.limits.speculation.lookahead_tokens;
        let slots = (base.saturating_add(tokens).saturating_add(lookahead_tokens))
            .min(self.limits.model_len_max);
        slots.div_ceil(self.limits.block_tokens).saturating_sub(self.kv.held_blocks(slot))
    }
}
