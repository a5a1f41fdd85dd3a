//! The running batch: who joins it, who leaves it, and the chunked request beside it (S1 to S3).

use super::Sglang;
use crate::base::ids::SlotId;
use crate::engine::arena::{NOT_STEADY, Stage};

/// A prefill pass that the last call launched.
#[derive(Clone, Debug)]
pub(super) struct LastPrefill {
    /// Its requests, in order; those that decode in it stay in the running batch.
    pub(super) rows: Vec<SlotId>,
    /// Whose prompt it did not finish.
    pub(super) chunked: Option<SlotId>,
    /// Whether running requests decode in it.
    pub(super) is_mixed: bool,
    /// Tokens of the pass (P7).
    pub(super) extend_tokens: u64,
}

impl Sglang {
    /// The last chunk goes into the cache (S1). Its pass may still be running.
    pub(super) fn keep_chunk(&mut self) {
        if let Some(slot) = self.chunked {
            let request = &self.arena[slot];
            let part = &mut self.parts[slot.index()];
            self.memory.keep(part, request.computed_tokens, request.priority);
        }
    }

    /// Who was prefilled by the call before joins the running batch (S2).
    pub(super) fn merge_last(&mut self) {
        let Some(last) = self.last.take() else { return };
        let mut rows = last.rows;
        let before = rows.len();
        let now_chunked = self.chunked;
        rows.retain(|&slot| {
            self.arena[slot].stage != Stage::Finished
                && Some(slot) != now_chunked
                && Some(slot) != last.chunked
        });
        let mut is_smaller = rows.len() < before;
        // The mixed pass takes the place of the running batch.
        if last.is_mixed {
            is_smaller |= self.ended_running > 0;
            self.running.retain(|&slot| self.arena[slot].stage != Stage::Finished);
            self.ended_running = 0;
        }
        if is_smaller {
            self.is_full = false;
        }
        let is_left = !rows.is_empty() || (last.is_mixed && self.batch_len() > 0);
        // Who has ended is still there, though not in the set any more.
        let is_empty = self.batch_len() == 0 && self.ended_running == 0;
        if is_left && (last.is_mixed || is_empty) {
            self.is_full = false;
            self.stale_extend_tokens = last.extend_tokens;
        }
        if last.is_mixed {
            self.lockstep.number_in_front(&mut self.arena, &rows);
            self.running.splice(..0, rows);
        } else {
            self.lockstep.number_behind(&mut self.arena, &rows);
            self.running.extend(rows);
        }
    }

    /// Who has ended leaves the running batch (S3).
    pub(super) fn drop_ended(&mut self) {
        if self.ended_running > 0 {
            self.ended_running = 0;
            self.is_full = false;
            self.running.retain(|&slot| self.arena[slot].stage != Stage::Finished);
        }
        let arena = &mut self.arena;
        self.dropped.retain(|&slot| arena[slot].stage == Stage::Running);
        self.ended.retain(|&slot| {
            let is_flying = arena[slot].flying_tokens > 0;
            if !is_flying {
                arena.remove(slot);
            }
            is_flying
        });
    }

    /// Requests of the running batch, whether a mixed pass has taken them over or not.
    pub(super) fn batch_len(&self) -> u32 {
        self.running.len() as u32 + self.steady.size
    }

    /// Requests of the running batch between two calls: none while a mixed pass has them.
    pub(super) fn running_requests(&self) -> u32 {
        match &self.last {
            Some(last) if last.is_mixed => 0,
            _ => self.batch_len(),
        }
    }

    /// The running batch, in order.
    pub(super) fn batch(&self) -> Vec<SlotId> {
        if self.steady.size == 0 {
            return self.running.clone();
        }
        let mut members: Vec<_> = self.steady.members(&self.arena).collect();
        members.sort_unstable();
        members.into_iter().map(|member| member.slot).collect()
    }

    /// Requests that are admitted and have not ended.
    pub(super) fn active_slots(&self) -> Vec<SlotId> {
        let mut slots: Vec<SlotId> = self.running.clone();
        slots.extend(self.steady.members(&self.arena).map(|member| member.slot));
        slots.extend(self.chunked);
        slots.extend(self.last.iter().flat_map(|last| last.rows.iter().copied()));
        slots.extend(&self.dropped);
        slots.sort_unstable();
        slots.dedup();
        slots.retain(|&slot| self.arena[slot].stage == Stage::Running);
        slots
    }

    /// Tokens that a request has memory for: those with KV, passes in flight included, or its reserve (V4).
    pub(super) fn allocated(&self, slot: SlotId) -> u32 {
        let request = &self.arena[slot];
        let in_step = self.decodes_since(request.steady_since, self.planned_decodes);
        (request.computed_tokens + in_step).max(self.parts[slot.index()].reserved_tokens)
    }

    /// Output tokens of a request that are known.
    pub(super) fn outputs(&self, slot: SlotId) -> u32 {
        let since = self.arena[slot].steady_since;
        self.parts[slot.index()].outputs + self.decodes_since(since, self.completed_decodes)
    }

    #[expect(clippy::unused_self, reason = "reads like the counters beside it")]
    fn decodes_since(&self, since: u64, decodes: u64) -> u32 {
        if since == NOT_STEADY { 0 } else { decodes.saturating_sub(since) as u32 }
    }

    /// Tokens that requests hold outside of the cache.
    pub(super) fn pages_held(&self) -> u32 {
        let held = |slot: SlotId| {
            let own = self.memory.ceil(self.allocated(slot));
            own - self.parts[slot.index()].cached_tokens
        };
        self.active_slots().into_iter().map(held).sum()
    }
}
