//! Passes that do not touch the requests that decode in step (see [`crate::engine::steady`]).
//!
//! Before a pass is planned, requests that have settled into decoding join the set. If the pass
//! can give every member its token, and a block where it needs one, the others are served around
//! the set with the same rules as ever; what the pass does to the members is a sum. If it cannot,
//! because budget or blocks are short, the set dissolves and the pass is planned request by
//! request. Both ways come to the same schedule, token for token and block for block.
//!
//! A set that dissolves while a pass with it is in flight leaves that pass's rows behind, so that
//! its output can be taken in request by request too.

use super::{Call, Vllm};
use crate::base::ids::SlotId;
use crate::engine::arena::NOT_STEADY;
use crate::engine::outbox::Outbox;
use crate::engine::plan::{LeftRows, PassPlan, PassSpan, Row};
use crate::engine::steady::Member;

/// A member whose last token comes with the pass in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    pub(super) member: Member,
    /// Whether it is still a member: it is in one pass more, in vain (R73).
    pub(super) is_member: bool,
}

/// What a request around the set gets in a pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    slot: SlotId,
    tokens: u32,
    new_blocks: u32,
}

/// What planning a pass does to a single member, in order of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Event {
    pub(super) member: Member,
    deed: Deed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Deed {
    TakeBlock,
    LabelBlock,
}

/// Buffers that keep their memory from pass to pass.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    grants: Vec<Grant>,
    pub(super) events: Vec<Event>,
    members: Vec<Member>,
}

impl Vllm {
    /// Brings the set up to date before pass `planned_passes` is planned.
    pub(super) fn prepare_steady(&mut self) {
        // In asynchronous mode the pass in flight may bring last tokens: whoever is sure to end
        // with it is not planned again (R71).
        if self.planned_passes > self.completed_passes {
            while let Some(member) = self.steady.pop_end(self.planned_passes - 1, &self.arena) {
                let is_member = self.runs_in_vain(member.slot);
                if !is_member {
                    self.leave_steady(member.slot);
                    self.leaving += 1;
                }
                self.ending.push(Ending { member, is_member });
            }
        }
        self.join_steady();
    }

    /// Whether a request whose last token is in flight is in the next pass all the same: a stop
    /// token cannot be foreseen (R73).
    fn runs_in_vain(&self, slot: SlotId) -> bool {
        let request = &self.arena[slot];
        let total = request.total_output_tokens(self.limits.model_len_max);
        total < request.max_tokens && request.prompt_tokens + total < self.limits.model_len_max
    }

    /// Lets everybody join who was in the pass before, is to get one token in this one, and has at
    /// least that one to come.
    fn join_steady(&mut self) {
        let pass = self.planned_passes;
        let model_len_max = self.limits.model_len_max;
        let Self { arena, steady, running, requests_touched, .. } = self;
        // With two passes, the one before is in flight and brings a token.
        let in_flight = u32::from(self.limits.asynchronous);
        // A set that the budget cannot serve would only dissolve again.
        let room = self.limits.scheduled_tokens.min(self.limits.batched_tokens);
        running.retain(|&slot| {
            let request = &mut arena[slot];
            let known = request.known_tokens + request.placeholder_tokens;
            let settled = request.computed_tokens >= request.prompt_tokens
                && known == request.computed_tokens + 1
                && request.last_pass.wrapping_add(1) == pass
                && request.stale_tokens == 0
                && !request.is_chunk
                && request.placeholder_tokens == in_flight;
            if !settled || steady.size >= room {
                return true;
            }
            // With the passes before this one it has so many output tokens.
            let generated = request.computed_tokens + 1 - request.prompt_tokens;
            let total = request.total_output_tokens(model_len_max);
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

    /// Brings the counters of a member up to date and takes it out of the set.
    fn leave_steady(&mut self, slot: SlotId) {
        self.settle(slot);
        let request = &self.arena[slot];
        let (computed, counted) = (request.computed_tokens, request.counted);
        self.steady.leave(computed, counted, self.planned_passes, &self.arena);
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
        if self.limits.asynchronous {
            request.placeholder_tokens = request.computed_tokens + 1 - request.known_tokens;
        }
        if planned > 0 {
            request.last_pass = self.planned_passes - 1;
        }
        if completed > 0 {
            request.last_token = self.last_visible;
        }
        self.kv.recount(slot, request.computed_tokens);
    }

    /// Plans the running requests around the set, and says whether that was possible. If not,
    /// nothing has changed.
    pub(super) fn schedule_around_steady(&mut self, call: &mut Call<'_>) -> bool {
        let pass = self.planned_passes;
        let needed = self.steady.blocks_needed(pass);
        if !self.grant_around_steady(call, needed) {
            return false;
        }
        if self.kv.has_identity() {
            self.note_block_events(pass);
        } else {
            self.scratch.events.clear();
            self.kv.take_counted(needed);
        }
        call.budget.spend(self.steady.size);
        let events = std::mem::take(&mut self.scratch.events);
        let mut next = events.iter().peekable();
        let grants = std::mem::take(&mut self.scratch.grants);
        for grant in &grants {
            let order = self.arena[grant.slot].order;
            while let Some(&event) = next.next_if(|event| event.member.order < order) {
                self.do_when_planning(event);
            }
            self.serve(grant.slot, grant.tokens, grant.new_blocks, call);
        }
        next.for_each(|&event| self.do_when_planning(event));
        self.scratch.events = events;
        self.scratch.grants = grants;
        true
    }

    /// Works out what the requests around the set get, if every member gets its token and
    /// `members_blocks` blocks go to members.
    fn grant_around_steady(&mut self, call: &Call<'_>, members_blocks: u32) -> bool {
        self.scratch.grants.clear();
        let Some(mut room) = call.budget.tokens().checked_sub(self.steady.size) else {
            return false;
        };
        let mut blocks = u64::from(members_blocks);
        for i in 0..self.running.len() {
            let slot = self.running[i];
            let mut tokens = self.wanted_by_running(slot, call);
            if tokens > room {
                // It would take what members behind it need.
                if self.arena[slot].order < self.steady.last_order {
                    return false;
                }
                tokens = room;
            }
            if tokens == 0 {
                continue;
            }
            room -= tokens;
            let new_blocks = self.blocks_missing(slot, tokens);
            blocks += u64::from(new_blocks);
            self.scratch.grants.push(Grant { slot, tokens, new_blocks });
        }
        blocks <= u64::from(self.kv.free_blocks())
    }

    /// Notes which members take a block, and which have one labelled, when pass `pass` is planned.
    ///
    /// A block is labelled in the call that plans a token of its request while the tokens that fill
    /// it are known and scheduled (R41). Synchronously, that is the call that schedules the last of
    /// them; asynchronously the next, which is the one that takes the next block.
    pub(super) fn note_block_events(&mut self, pass: u64) {
        let Self { steady, arena, scratch, .. } = self;
        scratch.events.clear();
        let labelling_pass = if self.limits.asynchronous { pass } else { pass + 1 };
        for (pass, deed) in [(pass, Deed::TakeBlock), (labelling_pass, Deed::LabelBlock)] {
            let members = steady.needing_blocks(pass, arena);
            scratch.events.extend(members.map(|member| Event { member, deed }));
        }
        scratch.events.sort_unstable();
        self.requests_touched += scratch.events.len() as u64;
    }

    pub(super) fn do_when_planning(&mut self, Event { member, deed }: Event) {
        match deed {
            Deed::TakeBlock => self.kv.grow(member.slot, 1),
            Deed::LabelBlock => {
                let request = &self.arena[member.slot];
                let planned = (self.planned_passes - request.steady_since) as u32;
                let scheduled_now = u32::from(!self.limits.asynchronous);
                let tokens = request.computed_tokens + planned + scheduled_now;
                self.kv.label(member.slot, tokens);
            }
        }
    }

    /// Makes everybody a request like any other again.
    pub(super) fn dissolve_steady(&mut self) {
        let in_flight = self.planned_passes > self.completed_passes;
        let mut rows = Vec::new();
        let mut members = std::mem::take(&mut self.scratch.members);
        self.steady.drain(&self.arena, &mut members);
        for &Member { slot, .. } in &members {
            // Whoever joins with this pass has a row of its own in the one before.
            let was_in_last_pass = self.arena[slot].steady_since < self.planned_passes;
            self.settle(slot);
            if in_flight && was_in_last_pass {
                rows.push(self.left_row(slot));
            }
        }
        // Those who left the set with this pass are in the one in flight, too.
        for Ending { member, is_member } in std::mem::take(&mut self.ending) {
            if !is_member {
                rows.push(self.left_row(member.slot));
                members.push(member);
            }
        }
        self.leaving = 0;
        for member in std::mem::take(&mut self.in_vain) {
            rows.push(self.left_row(member.slot));
        }
        self.requests_touched += members.len() as u64;
        self.running.extend(members.drain(..).map(|member| member.slot));
        self.scratch.members = members;
        let arena = &self.arena;
        self.running.sort_unstable_by_key(|&slot| arena[slot].order);
        if !rows.is_empty() {
            self.left_rows = Some(LeftRows { pass: self.planned_passes - 1, rows });
        }
    }

    /// The row that a request would have had in the pass in flight.
    fn left_row(&self, slot: SlotId) -> Row {
        let request = &self.arena[slot];
        Row::decode(slot, request.id, request.computed_tokens - 1)
    }

    /// Puts the rows that a dissolved set has left for this pass into its plan.
    pub(super) fn restore_left_rows(&mut self, plan: &mut PassPlan) {
        if plan.take_left(&mut self.left_rows) {
            let arena = &self.arena;
            plan.rows.sort_unstable_by_key(|row| arena[row.slot].order);
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
        let mut counted = plan.steady_counted;
        for member in std::mem::take(&mut self.in_vain) {
            let request = &mut self.arena[member.slot];
            request.flying_tokens -= 1;
            counted -= u32::from(request.counted);
            self.retire(member.slot);
        }
        if counted > 0 {
            outbox.token_gap(visible.since(self.last_visible), counted.into());
        }
        self.last_visible = visible;

        let mut members = std::mem::take(&mut self.scratch.members);
        members.extend(self.ending.drain(..).map(|ending| ending.member));
        self.leaving = 0;
        while let Some(member) = self.steady.pop_end(plan.pass, &self.arena) {
            members.push(member);
        }
        members.sort_unstable();
        let mut next = members.iter().peekable();
        for index in 0..plan.rows.len() {
            let order = self.arena[plan.rows[index].slot].order;
            while let Some(&member) = next.next_if(|member| member.order < order) {
                self.finish_steady(member, outbox);
            }
            self.complete_row(&mut plan.rows[index], span, outbox);
        }
        next.for_each(|&member| self.finish_steady(member, outbox));
        members.clear();
        self.scratch.members = members;
        self.clear_away(&plan.rows);
    }

    /// The pass that was just completed brought the last token of a request that was, or still
    /// is, in the set.
    fn finish_steady(&mut self, member: Member, outbox: &mut Outbox) {
        let slot = member.slot;
        if self.arena[slot].steady_since == NOT_STEADY {
            // It left when the next pass was planned.
            let request = &mut self.arena[slot];
            request.known_tokens += 1;
            request.flying_tokens -= 1;
            request.last_token = self.last_visible;
        } else {
            self.leave_steady(slot);
        }
        let request = &self.arena[slot];
        let finish = request
            .finish_reason(self.limits.model_len_max)
            .expect("the pass was chosen to bring the last token");
        if self.limits.asynchronous {
            self.kv.label(slot, request.computed_tokens - request.flying_tokens);
        }
        self.finish(slot, finish, outbox);
        if self.arena[slot].flying_tokens > 0 {
            self.in_vain.push(member);
        } else {
            self.retire(slot);
        }
    }
}
