//! Passes that do not touch the requests that decode in step (see [`crate::engine::steady`]).
//!
//! Requests in the generation phase join the set, and the others are served around it with the same rules as ever.
//! That needs room for a token and a block of everybody who decodes, and no prompt that stands before a member; else
//! the set dissolves, and the pass is planned request by request. Both ways come to the same schedule.

use super::config::CapacitySchedulerPolicy;
use super::{Phase, Trtllm};
use crate::base::ids::SlotId;
use crate::base::time::SimTime;
use crate::engine::Advance;
use crate::engine::arena::{NOT_STEADY, Stage};
use crate::engine::outbox::Outbox;
use crate::engine::plan::{LeftRows, PassPlan, PassSpan, Row};
use crate::engine::steady::{Ending, Member};

/// What stands around the set.
#[derive(Clone, Debug)]
pub(super) struct Lockstep {
    /// Whether requests decode in step at all.
    is_on: bool,
    ending: Vec<Ending>,
    /// How many of those have left the set; they are active until their last token is here.
    pub(super) leaving: u32,
    /// Finished requests that the pass in flight computes in vain.
    in_vain: Vec<Member>,
    left_rows: Option<LeftRows>,
    /// When the tokens of the last completed pass became visible.
    pub(super) last_visible: SimTime,
    members: Vec<Member>,
}

impl Lockstep {
    pub(super) fn new(advance: Advance) -> Self {
        Self {
            is_on: advance == Advance::InStep,
            ending: Vec::new(),
            leaving: 0,
            in_vain: Vec::new(),
            left_rows: None,
            last_visible: SimTime::ZERO,
            members: Vec::new(),
        }
    }

    /// Active requests that have left the set.
    pub(super) fn leaving_slots(&self) -> impl Iterator<Item = SlotId> + '_ {
        let leaving = self.ending.iter().filter(|ending| !ending.is_member);
        leaving.map(|ending| ending.member.slot)
    }

    /// Whether requests decode in step at all.
    pub(super) const fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether nothing stands around the set.
    pub(super) fn has_only_members(&self) -> bool {
        self.is_on && self.ending.is_empty() && self.in_vain.is_empty() && self.left_rows.is_none()
    }
}

impl Trtllm {
    /// Brings the set up to date before pass `planned_passes` is planned.
    pub(super) fn prepare_steady(&mut self) {
        if !self.lockstep.is_on {
            return;
        }
        if self.planned_passes > self.completed_passes {
            while let Some(member) = self.steady.pop_end(self.planned_passes - 1, &self.arena) {
                let is_member = self.runs_in_vain(member.slot);
                if !is_member {
                    self.leave_steady(member.slot);
                    self.lockstep.leaving += 1;
                }
                self.lockstep.ending.push(Ending { member, is_member });
            }
        }
        self.join_steady();
        if self.steady.size + self.lockstep.leaving > 0 && !self.fits_around_steady() {
            self.dissolve_steady();
        }
    }

    /// Whether a request whose last token is in flight is in the next pass all the same: a stop token cannot be
    /// foreseen (O3).
    fn runs_in_vain(&self, slot: SlotId) -> bool {
        let request = &self.arena[slot];
        request.total_output_tokens(self.limits.sequence_tokens) < request.max_tokens
    }

    /// Lets everybody join who was in the pass before, is to get one token in this one, and has at least that one to
    /// come.
    fn join_steady(&mut self) {
        let pass = self.planned_passes;
        let in_flight = u32::from(self.limits.overlaps);
        let sequence_tokens = self.limits.sequence_tokens;
        let room = self.limits.pass_tokens;
        let Self { arena, steady, active, requests_touched, .. } = self;
        active.retain(|&slot| {
            let request = &mut arena[slot];
            let settled = request.stage == Stage::Running
                && !request.is_chunk
                && request.known_tokens + request.placeholder_tokens == request.computed_tokens + 1
                && request.last_pass.wrapping_add(1) == pass
                && request.stale_tokens == 0
                && request.placeholder_tokens == in_flight;
            if !settled || steady.size >= room {
                return true;
            }
            // With the passes before this one it has so many output tokens.
            let generated = request.computed_tokens + 1 - request.prompt_tokens;
            let total = request.total_output_tokens(sequence_tokens);
            if total <= generated {
                return true;
            }
            let end = pass + u64::from(total - generated) - 1;
            request.steady_since = pass;
            let member = Member { order: request.order, slot };
            steady.join(member, request.computed_tokens, request.counted, pass, end);
            *requests_touched += 1;
            false
        });
    }

    /// Whether everybody who decodes is sure to be in the next pass, and members come before all prompts.
    fn fits_around_steady(&self) -> bool {
        let mut tokens = self.steady.size;
        let mut blocks = self.steady.blocks_needed(self.planned_passes);
        let by_place = self.limits.capacity == CapacitySchedulerPolicy::MaxUtilization;
        for &slot in &self.active {
            match self.phase(slot) {
                Phase::Generation => {
                    tokens += 1;
                    blocks += self.blocks_for_a_round(slot);
                }
                Phase::ToComplete => {}
                _ if by_place && self.arena[slot].order < self.steady.last_order => return false,
                _ => {}
            }
        }
        tokens <= self.limits.pass_tokens && blocks <= self.kv.free_blocks()
    }

    /// Brings the counters of a member up to date and takes it out of the set. Nothing is reserved for it any more.
    fn leave_steady(&mut self, slot: SlotId) {
        self.settle(slot);
        let request = &self.arena[slot];
        let (computed, counted) = (request.computed_tokens, request.counted);
        self.steady.leave(computed, counted, self.planned_passes, &self.arena);
        self.reserved_blocks -= u64::from(self.blocks_remaining(slot));
        self.requests_touched += 1;
    }

    /// Brings the counters of a member up to date; it is a member no more.
    fn settle(&mut self, slot: SlotId) {
        let request = &mut self.arena[slot];
        let planned = self.planned_passes - request.steady_since;
        let completed = self.completed_passes.saturating_sub(request.steady_since);
        request.steady_since = NOT_STEADY;
        request.computed_tokens += planned as u32;
        request.known_tokens += completed as u32;
        request.flying_tokens += (planned - completed) as u32;
        if self.limits.overlaps {
            request.placeholder_tokens = request.computed_tokens + 1 - request.known_tokens;
        }
        if planned > 0 {
            request.last_pass = self.planned_passes - 1;
        }
        if completed > 0 {
            request.last_token = self.lockstep.last_visible;
        }
        self.kv.recount(slot, request.computed_tokens);
    }

    /// Gives those who decode, members or not, the blocks that they need, in order, and the others their rows.
    pub(super) fn serve_around_steady(&mut self, plan: &mut PassPlan) {
        let generations = std::mem::take(&mut self.scratch.generations);
        if self.kv.has_identity() {
            let mut members = std::mem::take(&mut self.lockstep.members);
            let new_slots = self.steady.new_slots();
            members.extend(self.steady.with_boundaries(plan.pass, new_slots, &self.arena));
            self.requests_touched += members.len() as u64;
            let mut next = members.iter().peekable();
            for &slot in &generations {
                let order = self.arena[slot].order;
                while let Some(&member) = next.next_if(|member| member.order < order) {
                    self.kv.grow(member.slot, 1);
                }
                self.serve_generation(slot, plan);
            }
            next.for_each(|member| self.kv.grow(member.slot, 1));
            self.reserved_blocks -= members.len() as u64;
            members.clear();
            self.lockstep.members = members;
        } else {
            generations.iter().for_each(|&slot| self.serve_generation(slot, plan));
            let needed = self.steady.blocks_needed(plan.pass);
            self.kv.take_counted(needed);
            self.reserved_blocks -= u64::from(needed);
        }
        self.scratch.generations = generations;
    }

    /// Makes everybody a request like any other again.
    fn dissolve_steady(&mut self) {
        let in_flight = self.planned_passes > self.completed_passes;
        let mut rows = Vec::new();
        let mut members = std::mem::take(&mut self.lockstep.members);
        self.steady.drain(&self.arena, &mut members);
        for &Member { slot, .. } in &members {
            // Whoever joins with this pass has a row of its own in the one before.
            let was_in_last_pass = self.arena[slot].steady_since < self.planned_passes;
            self.settle(slot);
            if in_flight && was_in_last_pass {
                rows.push(self.left_row(slot));
            }
        }
        for Ending { member, is_member } in std::mem::take(&mut self.lockstep.ending) {
            if !is_member {
                rows.push(self.left_row(member.slot));
                members.push(member);
            }
        }
        self.lockstep.leaving = 0;
        for member in std::mem::take(&mut self.lockstep.in_vain) {
            rows.push(self.left_row(member.slot));
        }
        self.requests_touched += members.len() as u64;
        self.active.extend(members.drain(..).map(|member| member.slot));
        self.lockstep.members = members;
        let arena = &self.arena;
        self.active.sort_unstable_by_key(|&slot| arena[slot].order);
        if !rows.is_empty() {
            self.lockstep.left_rows = Some(LeftRows { pass: self.planned_passes - 1, rows });
        }
    }

    /// The row that a request would have had in the pass in flight.
    fn left_row(&self, slot: SlotId) -> Row {
        let request = &self.arena[slot];
        Row::decode(slot, request.id, request.computed_tokens - 1)
    }

    /// Puts the rows that a dissolved set has left for this pass into its plan, behind the prompts.
    pub(super) fn restore_left_rows(&mut self, plan: &mut PassPlan) {
        if plan.take_left(&mut self.lockstep.left_rows) {
            let place = |row: &Row| if row.is_decode { self.arena[row.slot].order + 1 } else { 0 };
            plan.rows.sort_by_key(place);
        }
    }

    /// Takes in a pass that gave `plan.steady` members a token each.
    pub(super) fn complete_around_steady(
        &mut self,
        plan: &mut PassPlan,
        span: PassSpan,
        outbox: &mut Outbox,
    ) {
        let visible = span.end + self.detokenize;
        // A set that has dissolved since has left rows in its place.
        let mut counted = if plan.steady > 0 { plan.steady_counted } else { 0 };
        for member in std::mem::take(&mut self.lockstep.in_vain) {
            let request = &mut self.arena[member.slot];
            request.flying_tokens -= 1;
            counted -= u32::from(request.counted);
            self.retire(member.slot);
        }
        if counted > 0 {
            outbox.token_gap(visible.since(self.lockstep.last_visible), counted.into());
        }
        self.lockstep.last_visible = visible;

        let mut members = std::mem::take(&mut self.lockstep.members);
        members.extend(self.lockstep.ending.drain(..).map(|ending| ending.member));
        self.lockstep.leaving = 0;
        while let Some(member) = self.steady.pop_end(plan.pass, &self.arena) {
            members.push(member);
        }
        members.sort_unstable();
        let mut next = members.iter().peekable();
        for row in &mut plan.rows {
            let order = self.arena[row.slot].order;
            while let Some(&member) = next.next_if(|member| row.is_decode && member.order < order) {
                self.finish_steady(member, outbox);
            }
            self.complete_row(row, span, outbox);
        }
        next.for_each(|&member| self.finish_steady(member, outbox));
        members.clear();
        self.lockstep.members = members;
        self.clear_away(&plan.rows);
    }

    /// The pass that was just completed brought the last token of a request that was, or still is, in the set.
    fn finish_steady(&mut self, member: Member, outbox: &mut Outbox) {
        let slot = member.slot;
        if self.arena[slot].steady_since == NOT_STEADY {
            // It left when the next pass was planned.
            let request = &mut self.arena[slot];
            request.known_tokens += 1;
            request.flying_tokens -= 1;
            request.last_token = self.lockstep.last_visible;
        } else {
            self.leave_steady(slot);
        }
        let finish = self.arena[slot]
            .finish_reason(self.limits.sequence_tokens)
            .expect("the pass was chosen to bring the last token");
        self.end(slot, finish, outbox);
        if self.arena[slot].flying_tokens > 0 {
            self.lockstep.in_vain.push(member);
        } else {
            self.retire(slot);
        }
    }
}
