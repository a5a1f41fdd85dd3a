//! Whose KV has a place in the pool (K3 to K8).

use super::config::CapacitySchedulerPolicy;
use super::{Phase, Trtllm};
use crate::base::detail::Blocked;
use crate::base::ids::SlotId;
use crate::engine::arena::Stage;
use crate::engine::plan::PassPlan;

impl Trtllm {
    /// Chooses whose KV has a place in this pass, in the order in which they are served.
    pub(super) fn choose_fitting(&mut self, plan: &mut PassPlan) {
        self.scratch.fitting.clear();
        self.note_contributions();
        match self.limits.capacity {
            CapacitySchedulerPolicy::MaxUtilization => self.fit_next_pass(plan),
            CapacitySchedulerPolicy::GuaranteedNoEvict => {
                self.fit_generations();
                self.fit_to_completion();
            }
            CapacitySchedulerPolicy::StaticBatch => {
                // Nobody joins those who decode (K8).
                if self.fit_generations() {
                    self.blocked = Some(Blocked::StaticBatch);
                } else {
                    self.fit_to_completion();
                }
            }
        }
    }

    /// Who decodes has a place to its end. Says whether there is anybody.
    fn fit_generations(&mut self) -> bool {
        for i in 0..self.active.len() {
            let slot = self.active[i];
            if self.phase(slot) == Phase::Generation {
                self.scratch.fitting.push(slot);
            }
        }
        self.steady.size > 0 || !self.scratch.fitting.is_empty()
    }

    /// Prompts, first come, first served, that can be served to the end beside all who are: until one cannot (K4).
    fn fit_to_completion(&mut self) {
        let mut room = self.unreserved_blocks();
        for i in 0..self.active.len() {
            let slot = self.active[i];
            if !matches!(self.phase(slot), Phase::FirstContext | Phase::Context)
                || self.waits_for_content(slot)
            {
                continue;
            }
            self.requests_touched += 1;
            let Some(left) = room.checked_sub(self.blocks_remaining(slot).into()) else {
                self.blocked = Some(Blocked::KvBlocks);
                break;
            };
            room = left;
            self.scratch.fitting.push(slot);
        }
    }

    /// Everybody, first come, first served, who finds the blocks for its next pass. Who does not takes the KV of the
    /// last that has some, of those behind it and itself; nobody behind that one is served (K6).
    fn fit_next_pass(&mut self, plan: &mut PassPlan) {
        // Those who decode in step come before all others, or there are none.
        let mut blocks = u64::from(self.steady.blocks_needed(plan.pass));
        let (mut place, mut end) = (0, self.active.len());
        while place < end {
            let slot = self.active[place];
            if self.phase(slot) == Phase::ToComplete || self.waits_for_content(slot) {
                place += 1;
                continue;
            }
            self.requests_touched += 1;
            let needed = blocks + u64::from(self.blocks_for_next_pass(slot));
            if needed <= u64::from(self.kv.free_blocks()) {
                blocks = needed;
                self.scratch.fitting.push(slot);
                place += 1;
                continue;
            }
            let is_started =
                |&slot: &SlotId| matches!(self.phase(slot), Phase::Context | Phase::Generation);
            let Some(behind) = self.active[place..end].iter().rposition(is_started) else {
                self.blocked = self.blocked.or(Some(Blocked::KvBlocks));
                break;
            };
            end = place + behind;
            self.pause(self.active[end], plan);
            self.blocked = Some(Blocked::Preempting);
        }
    }

    /// Blocks that a request takes with its next pass: a prompt all of its own at once (K5).
    pub(super) fn blocks_for_next_pass(&self, slot: SlotId) -> u32 {
        match self.phase(slot) {
            Phase::FirstContext => {
                let request = &self.arena[slot];
                self.blocks_of(request, request.known_tokens)
            }
            Phase::Generation => self.blocks_for_a_round(slot),
            Phase::Context | Phase::ToComplete => 0,
        }
    }

    /// Takes the KV of a request away; it keeps its place among the active, and computes prompt and output again
    /// (K6).
    fn pause(&mut self, slot: SlotId, plan: &mut PassPlan) {
        self.reserved_blocks -= self.reservation(slot);
        self.keep_content(slot);
        self.kv.release(slot);
        let request = &mut self.arena[slot];
        request.recompute_tokens = request.recompute_tokens.max(request.computed_tokens);
        request.computed_tokens = 0;
        request.placeholder_tokens = 0;
        // Outputs still in flight are delivered, but belong to KV that is gone (O4).
        request.stale_tokens = request.flying_tokens;
        request.is_chunk = false;
        request.preemptions += 1;
        request.stage = Stage::Waiting;
        self.started -= 1;
        plan.preempted.push(request.id);
    }

    /// Notes what prompts that are under way are about to bring into the cache (K7).
    fn note_contributions(&mut self) {
        self.scratch.contributed.clear();
        if !self.kv.has_identity() || self.limits.capacity == CapacitySchedulerPolicy::StaticBatch {
            return;
        }
        for i in 0..self.active.len() {
            let slot = self.active[i];
            if self.phase(slot) == Phase::Context
                && let Some(content) = self.first_missing(slot)
            {
                self.scratch.contributed.push(content);
            }
        }
    }

    /// Whether a prompt waits because what it lacks first is about to come into the cache. If it does not, it is the
    /// one that brings what it lacks (K7).
    fn waits_for_content(&mut self, slot: SlotId) -> bool {
        if !self.kv.has_identity()
            || self.limits.capacity == CapacitySchedulerPolicy::StaticBatch
            || self.phase(slot) != Phase::FirstContext
        {
            return false;
        }
        self.requests_touched += 1;
        let Some(content) = self.first_missing(slot) else { return false };
        let waits = self.scratch.contributed.contains(&content);
        if !waits {
            self.scratch.contributed.push(content);
        }
        waits
    }

    /// The first whole block of a prompt that is not in the cache, by its content.
    fn first_missing(&mut self, slot: SlotId) -> Option<(u32, u32)> {
        // One token more than there is, so that the last whole block counts.
        self.kv.look_up(slot, self.arena[slot].known_tokens + 1, false);
        self.kv.missing_content()
    }
}
