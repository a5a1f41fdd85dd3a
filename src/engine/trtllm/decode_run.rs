//! Runs of passes in which everybody who holds KV is in the set: nothing is planned, only counted.
//!
//! A run lasts until a member's last token comes, a block is missing, or the clock's horizon, before which somebody
//! may arrive. Prompts that wait do not end it if they cannot be computed in it.

use super::Trtllm;
use super::config::CapacitySchedulerPolicy;
use super::waits::Offer;
use crate::engine::decode_clock::{DecodeClock, Standing};
use crate::engine::error::EngineError;

impl Trtllm {
    /// Runs passes of the whole set, from the next one on.
    pub(super) fn run_steady(&mut self, clock: &mut DecodeClock<'_>) -> Result<(), EngineError> {
        let Some(last_pass) = self.last_steady_pass() else { return Ok(()) };
        let usable_blocks = self.kv.usable_blocks();
        let size = self.steady.size;
        let waiting = (self.active.len() + self.queue.len()) as u32;
        let standing = Standing { used_blocks: 0, running: size, waiting };
        let offer =
            Offer { contexts: 0, context_tokens: 0, generations: size, generation_tokens: size };
        let mut work = self.steady.work(self.planned_passes, &self.arena);
        while self.planned_passes <= last_pass && clock.may_plan() {
            if !self.is_run_pass() {
                break;
            }
            self.take_blocks_in_step();
            self.waits.let_through(&offer);
            let used_blocks = usable_blocks - self.kv.free_blocks();
            clock.plan(&work, Standing { used_blocks, ..standing })?;
            self.planned_passes += 1;
            self.steady.advance();
            work.kv_tokens += u64::from(size);
            work.longest_kv_tokens += 1;
            let Some(end) = clock.complete() else { break };
            let visible = end + self.detokenize;
            self.completed_passes += 1;
            if self.steady.counted > 0 {
                let gap = visible.since(self.lockstep.last_visible);
                clock.outbox.token_gap(gap, self.steady.counted.into());
            }
            self.lockstep.last_visible = visible;
        }
        Ok(())
    }

    /// The last pass that the whole set, and no other request, is sure to be in as far as tokens and seats go; `None`
    /// if not even the next one.
    fn last_steady_pass(&mut self) -> Option<u64> {
        let size = self.steady.size;
        let seats_are_full = self.active_requests() >= self.limits.active_max;
        let only_set = self.lockstep.has_only_members()
            && size > 0
            && self.started == size
            && size <= self.limits.pass_tokens
            && (self.queue.is_empty() || seats_are_full);
        if !only_set || !self.has_blocked_head() {
            return None;
        }
        // The pass with a last token is completed by itself. With two passes, the one behind it is planned before
        // that, and by itself too.
        let first_end = self.steady.first_end(&self.arena)?;
        let last_pass = if self.limits.overlaps { first_end } else { first_end.checked_sub(1)? };
        (last_pass >= self.planned_passes).then_some(last_pass)
    }

    /// Whether there is nobody who could start while the set decodes, or he would have to be looked at in each pass.
    fn has_blocked_head(&self) -> bool {
        let Some(&head) = self.active.first() else { return true };
        match self.limits.capacity {
            CapacitySchedulerPolicy::StaticBatch => true,
            // Members take what is reserved for them, so that the room stays what it is.
            CapacitySchedulerPolicy::GuaranteedNoEvict => {
                u64::from(self.blocks_remaining(head)) > self.unreserved_blocks()
            }
            CapacitySchedulerPolicy::MaxUtilization => {
                self.arena[head].order > self.steady.last_order
            }
        }
    }

    /// Whether members find the blocks for the next pass, and the head of those who wait does not.
    fn is_run_pass(&self) -> bool {
        let free = self.kv.free_blocks();
        let needed = self.steady.blocks_needed(self.planned_passes);
        if needed > free {
            return false;
        }
        let by_place = self.limits.capacity == CapacitySchedulerPolicy::MaxUtilization;
        !by_place
            || self
                .active
                .first()
                .is_none_or(|&head| self.blocks_for_next_pass(head) > free - needed)
    }

    /// Gives members the blocks they need in the next pass.
    fn take_blocks_in_step(&mut self) {
        let pass = self.planned_passes;
        let needed = self.steady.blocks_needed(pass);
        self.reserved_blocks -= u64::from(needed);
        if !self.kv.has_identity() {
            self.kv.take_counted(needed);
            return;
        }
        let Self { steady, arena, kv, .. } = self;
        let members = steady.with_boundaries(pass, steady.new_slots(), arena);
        members.for_each(|member| kv.grow(member.slot, 1));
        self.requests_touched += u64::from(needed);
    }
}
