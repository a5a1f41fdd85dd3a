//! Who of those with a place in the pool is in the pass (B1 to B5).

use super::chunking::{Share, divide, first_chunk};
use super::waits::Offer;
use super::{Phase, Trtllm};
use crate::base::detail::Blocked;
use crate::base::ids::SlotId;

impl Trtllm {
    /// Chooses the prompts and the decodes of the pass.
    pub(super) fn choose_batch(&mut self) {
        self.scratch.contexts.clear();
        self.scratch.generations.clear();
        let round_tokens = self.limits.speculation.round_tokens();
        let mut tokens = self.steady.size;
        let mut wanted = 0;
        for i in 0..self.scratch.fitting.len() {
            let slot = self.scratch.fitting[i];
            let room = self.limits.pass_tokens - tokens;
            if self.phase(slot) == Phase::Generation {
                if room < round_tokens {
                    self.blocked = Some(Blocked::Budget);
                    break;
                }
                tokens += round_tokens;
                self.scratch.generations.push(slot);
                continue;
            }
            let share = self.whole_share(slot);
            if self.limits.chunking.is_some() {
                wanted += u64::from(share.wanted);
                self.scratch.contexts.push(share);
            } else if let Some(share) = self.undivided(share, room) {
                tokens += share.tokens;
                self.scratch.contexts.push(share);
            } else {
                self.blocked = Some(Blocked::Budget);
                break;
            }
        }
        self.divide_prompts(self.limits.pass_tokens - tokens, wanted);
        self.hold_back();
    }

    /// All that is left of a prompt, as long as it is not known what of it is in the cache.
    fn whole_share(&self, slot: SlotId) -> Share {
        let request = &self.arena[slot];
        let tokens = request.known_tokens - request.computed_tokens;
        Share { slot, wanted: tokens, tokens }
    }

    /// The share of a prompt that must not be divided, if it fits into `room`. One that no pass has room for was
    /// paused, and comes in chunks nevertheless (B4).
    fn undivided(&self, share: Share, room: u32) -> Option<Share> {
        let unit = self.limits.block_tokens;
        let is_too_long = self.arena[share.slot].known_tokens > self.limits.pass_tokens;
        let tokens = if is_too_long { first_chunk(share.wanted, room, unit) } else { share.wanted };
        (tokens > 0 && tokens <= room).then_some(Share { tokens, ..share })
    }

    /// Divides prompts that want more than the `room` that decodes leave; those that end come last (C4).
    fn divide_prompts(&mut self, room: u32, wanted: u64) {
        let Some(policy) = self.limits.chunking else { return };
        if wanted <= room.into() {
            return;
        }
        let contexts = &mut self.scratch.contexts;
        divide(policy, contexts, room, self.limits.block_tokens);
        let wanted = contexts.len();
        contexts.retain(|share| share.tokens > 0);
        if contexts.len() < wanted {
            self.blocked = Some(Blocked::Budget);
        }
        contexts.sort_by_key(|share| share.tokens == share.wanted);
    }

    /// Leaves the prompts out of the pass if they wait (W).
    fn hold_back(&mut self) {
        let contexts = &self.scratch.contexts;
        let prompt = |share: &Share| u64::from(self.arena[share.slot].known_tokens);
        let generations = self.scratch.generations.len() as u32;
        let round_tokens = self.limits.speculation.round_tokens();
        let offer = Offer {
            contexts: contexts.len() as u32,
            context_tokens: contexts.iter().map(prompt).sum(),
            generations: self.steady.size + generations,
            generation_tokens: self.steady.size + generations * round_tokens,
        };
        if !self.waits.let_through(&offer) {
            self.scratch.contexts.clear();
            self.blocked = Some(Blocked::Held);
        }
    }
}
