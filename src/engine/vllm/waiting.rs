//! The waiting loop: newcomers, head of the queue first, until one does not fit (R12).

use super::{Call, Vllm};
use crate::base::ids::SlotId;
use crate::engine::arena::Stage;
use crate::engine::plan::Entry;
use crate::kv::blocks::Hit;

/// An admission that fits.
struct Admission {
    hit: Hit,
    tokens: u32,
    new_blocks: u32,
}

impl Vllm {
    /// Admits from the head of the queue while budget, seats and blocks last. The first head that
    /// does not fit ends the loop: nobody behind it is tried.
    pub(super) fn schedule_waiting(&mut self, call: &mut Call<'_>) {
        while !call.budget.is_spent() && self.running_requests() < self.limits.active_max {
            let Some(slot) = self.waiting.head() else { break };
            self.requests_touched += 1;
            let Some(admission) = self.fit(slot, call) else { break };
            self.waiting.pop();
            self.admit(slot, &admission, call);
        }
    }

    /// How the request in `slot` would be admitted now, if it can be (R14, R32 to R37).
    fn fit(&mut self, slot: SlotId, call: &Call<'_>) -> Option<Admission> {
        let request = &self.arena[slot];
        debug_assert_eq!(request.stale_tokens, 0, "out of reach with two passes (R74)");
        let known_tokens = request.known_tokens;
        let hit = self.kv.look_up(slot, known_tokens);
        let hit_tokens = hit.blocks * self.limits.block_tokens;
        // One token left is not prefill in the sense of the interval (R50).
        if call.holds_prefill && hit_tokens + 1 < known_tokens {
            return None;
        }
        let wanted = (known_tokens - hit_tokens).min(call.cap_tokens);
        // Without chunking a prompt is computed whole or not at all.
        if !self.limits.chunked_prefill && wanted > call.budget.tokens() {
            return None;
        }
        let tokens = wanted.min(call.budget.tokens());
        let spare_blocks = self.spare_blocks();
        // The gate looks at the whole known sequence, the allocation only at this chunk.
        if self.limits.reserve_full_isl
            && u64::from(self.new_blocks(known_tokens, hit)) + u64::from(hit.resting) > spare_blocks
        {
            return None;
        }
        let new_blocks = self.new_blocks(hit_tokens.saturating_add(tokens), hit);
        if u64::from(new_blocks) + u64::from(hit.resting) > spare_blocks {
            return None;
        }
        Some(Admission { hit, tokens, new_blocks })
    }

    /// Blocks that an admission may use: the watermark stays free while something runs (R36).
    fn spare_blocks(&self) -> u64 {
        let watermark = if self.running_requests() == 0 { 0 } else { self.limits.watermark_blocks };
        self.kv.free_blocks().saturating_sub(watermark).into()
    }

    /// Blocks for the first `tokens` tokens of a sequence beyond those that hit.
    fn new_blocks(&self, tokens: u32, hit: Hit) -> u32 {
        let slots = tokens.min(self.limits.model_len_max);
        slots.div_ceil(self.limits.block_tokens).saturating_sub(hit.blocks)
    }

    fn admit(&mut self, slot: SlotId, admission: &Admission, call: &mut Call<'_>) {
        let &Admission { hit, tokens, new_blocks } = admission;
        let hit_tokens = hit.blocks * self.limits.block_tokens;
        self.kv.admit(slot, hit, new_blocks);
        let request = &mut self.arena[slot];
        let known_tokens = request.known_tokens;
        let entry = if request.preemptions > 0 {
            Entry::Resumed
        } else {
            request.cached_tokens = hit_tokens;
            Entry::New
        };
        request.stage = Stage::Running;
        request.order = self.admissions;
        self.admissions += 1;
        request.computed_tokens = hit_tokens;
        // Full blocks can be hit from now on, by newcomers of this very call too (R41).
        self.kv.label(slot, (hit_tokens + tokens).min(known_tokens));
        self.running.push(slot);
        call.carries_prefill |= hit_tokens + 1 < known_tokens;
        self.add_row(call, slot, tokens, hit_tokens, entry);
    }
}
