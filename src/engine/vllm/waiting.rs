//! The waiting loop: newcomers, head of the queue first, until one does not fit (R12).

use super::{Call, Vllm};
use crate::base::detail::Blocked;
use crate::base::ids::SlotId;
use crate::engine::arena::Stage;
use crate::engine::plan::Entry;
use crate::kv::blocks::Hit;

/// An admission that fits.
struct Admission {
    hit: Hit,
    tokens: u32,
    /// How many of them are padding (R64).
    padding: u32,
    new_blocks: u32,
}

/// Why the head of the queue could not be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obstacle {
    /// Prefill is held back (R50).
    PrefillHeld,
    /// Without chunking its tokens do not fit into what is left of the budget.
    Budget,
    /// All its known tokens need so many blocks, at rest or free.
    WholeSequence { blocks: u64 },
    /// So many tokens of it need so many blocks, at rest or free.
    Chunk { blocks: u64, tokens: u32 },
}

impl Obstacle {
    /// What the head of the queue is missing.
    const fn missing(self) -> Blocked {
        match self {
            Self::PrefillHeld => Blocked::Held,
            Self::Budget => Blocked::Budget,
            Self::WholeSequence { .. } | Self::Chunk { .. } => Blocked::KvBlocks,
        }
    }
}

/// A head of the queue that could not be admitted.
#[derive(Clone, Copy, Debug)]
pub(super) struct StuckHead {
    slot: SlotId,
    known_tokens: u32,
    /// What its hit leaves to compute.
    missing_tokens: u32,
    obstacle: Obstacle,
}

/// What a call offers to the head of the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    /// Tokens left in the budget.
    pub(super) budget_tokens: u32,
    /// Most tokens of one request.
    pub(super) cap_tokens: u32,
    /// Whether prefill is held back.
    pub(super) holds_prefill: bool,
    /// Whether nobody with prompt left runs in this call (R64).
    pub(super) runs_no_chunk: bool,
    /// Whether anybody runs in this call (R64).
    pub(super) runs_any: bool,
}

impl Offer {
    /// What a call offers in which nobody is touched but those who decode in step.
    pub(super) const fn in_step(budget_tokens: u32, cap_tokens: u32) -> Self {
        Self {
            budget_tokens,
            cap_tokens,
            holds_prefill: false,
            runs_no_chunk: true,
            runs_any: true,
        }
    }
}

impl Vllm {
    /// Admits from the head of the queue while budget, seats and blocks last. The first head that
    /// does not fit ends the loop: nobody behind it is tried.
    pub(super) fn schedule_waiting(&mut self, call: &mut Call<'_>) {
        while let Some(slot) = self.waiting.head() {
            if call.budget.is_spent() {
                call.plan.blocked = Some(Blocked::Budget);
                break;
            }
            if self.running_requests() >= self.limits.active_max {
                call.plan.blocked = Some(Blocked::Seats);
                break;
            }
            let offer = Offer {
                budget_tokens: call.budget.tokens(),
                cap_tokens: call.cap_tokens,
                holds_prefill: call.holds_prefill,
                runs_no_chunk: !call.runs_chunk,
                runs_any: call.runs_any,
            };
            if self.lockstep && self.is_stuck(slot, offer) {
                break;
            }
            self.requests_touched += 1;
            match self.fit(slot, offer) {
                Ok(admission) => {
                    self.stuck_head = None;
                    self.waiting.pop();
                    self.admit(slot, &admission, call);
                }
                Err(stuck) => {
                    call.plan.blocked = Some(stuck.obstacle.missing());
                    self.stuck_head = Some(stuck);
                    break;
                }
            }
        }
    }

    /// Whether the request in `slot`, at the head of the queue, is sure to be refused for the
    /// reason of the last time, so that there is no need to look at it again.
    ///
    /// Since then nobody was admitted, so its hit can only have shrunk, unless the cache has news
    /// of it. With the gate over the whole sequence that leaves the need as it was: a block less
    /// hits, one less is woken. A block of the hit that comes to rest adds to the need.
    pub(super) fn is_stuck(&self, slot: SlotId, offer: Offer) -> bool {
        let Some(stuck) = self.stuck_head else { return false };
        if stuck.slot != slot
            || stuck.known_tokens != self.arena[slot].known_tokens
            || self.kv.has_news()
        {
            return false;
        }
        let wanted = stuck.missing_tokens.min(offer.cap_tokens);
        match stuck.obstacle {
            Obstacle::PrefillHeld => offer.holds_prefill,
            Obstacle::Budget => wanted > offer.budget_tokens,
            Obstacle::WholeSequence { blocks } => self.spare_blocks() < blocks,
            Obstacle::Chunk { blocks, tokens } => {
                let needs_as_many =
                    !self.kv.has_identity() && wanted.min(offer.budget_tokens) >= tokens;
                needs_as_many && self.spare_blocks() < blocks
            }
        }
    }

    /// How the request in `slot` would be admitted now, or why it cannot be (R14, R32 to R37).
    fn fit(&mut self, slot: SlotId, offer: Offer) -> Result<Admission, StuckHead> {
        let request = &self.arena[slot];
        debug_assert_eq!(request.stale_tokens, 0, "out of reach with two passes (R74)");
        let known_tokens = request.known_tokens;
        let hit = self.kv.look_up(slot, known_tokens, self.limits.speculation.drops_last_hit);
        let hit_tokens = hit.blocks * self.limits.block_tokens;
        let missing_tokens = known_tokens - hit_tokens;
        let stuck = |obstacle| StuckHead { slot, known_tokens, missing_tokens, obstacle };
        // One token left is not prefill in the sense of the interval (R50).
        if offer.holds_prefill && missing_tokens > 1 {
            return Err(stuck(Obstacle::PrefillHeld));
        }
        let padding = self.padding(missing_tokens, hit_tokens, offer);
        let wanted = (missing_tokens + padding).min(offer.cap_tokens);
        // Without chunking a prompt is computed whole or not at all; nor is padding split.
        if (!self.limits.chunked_prefill || padding > 0) && wanted > offer.budget_tokens {
            return Err(stuck(Obstacle::Budget));
        }
        let tokens = wanted.min(offer.budget_tokens);
        let spare_blocks = self.spare_blocks();
        let needed = |new_blocks: u32| u64::from(new_blocks) + u64::from(hit.resting);
        // The gate looks at the whole known sequence, the allocation only at this chunk.
        let blocks = needed(self.new_blocks(known_tokens, hit));
        if self.limits.reserve_full_isl && blocks > spare_blocks {
            return Err(stuck(Obstacle::WholeSequence { blocks }));
        }
        let lookahead_tokens = self.limits.speculation.lookahead_tokens;
        let slots = hit_tokens.saturating_add(tokens).saturating_add(lookahead_tokens);
        let new_blocks = self.new_blocks(slots, hit);
        let blocks = needed(new_blocks);
        if blocks > spare_blocks {
            return Err(stuck(Obstacle::Chunk { blocks, tokens }));
        }
        Ok(Admission { hit, tokens, padding, new_blocks })
    }

    /// Empty drafts that make a request with one token left look like one that decodes, among such (R64).
    fn padding(&self, missing_tokens: u32, hit_tokens: u32, offer: Offer) -> u32 {
        let drafts = self.limits.speculation.drafts;
        let widens = missing_tokens == 1
            && offer.runs_no_chunk
            && (offer.runs_any || hit_tokens > 0)
            && hit_tokens.saturating_add(drafts + 2) <= self.limits.model_len_max;
        if widens { drafts } else { 0 }
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
        let &Admission { hit, tokens, padding, new_blocks } = admission;
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
        request.draft_tokens = padding;
        request.is_padded = padding > 0;
        // Full blocks can be hit from now on, by newcomers of this very call too (R41).
        let labelled_tokens = self.labelled_tokens(&self.arena[slot], hit_tokens + tokens);
        self.kv.label(slot, labelled_tokens);
        self.running.push(slot);
        call.carries_prefill |= hit_tokens + 1 < known_tokens;
        self.add_row(call, slot, tokens, hit_tokens, entry);
    }
}
