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
use crate::base::time::SimTime;
use crate::engine::arena::{NOT_STEADY, Request};
use crate::engine::outbox::Outbox;
use crate::engine::plan::{LeftRows, PassPlan, PassSpan, Row};
use crate::engine::steady::{Ending, Member, Stride};

/// What a request around the set gets in a pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    slot: SlotId,
    tokens: u32,
    new_blocks: u32,
}

/// What planning a pass, or its end, does to a single member, in order of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Event {
    pub(super) member: Member,
    deed: Deed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Deed {
    TakeBlock,
    LabelBlock,
    Finish,
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
        // Even a token more than is known would not reach its limit.
        let known_outputs = self.known_tokens(slot) - request.prompt_tokens;
        known_outputs + 1 < request.max_tokens
            && request.prompt_tokens + total < self.limits.model_len_max
    }

    /// Tokens of a member that are known by now.
    fn known_tokens(&self, slot: SlotId) -> u32 {
        let request = &self.arena[slot];
        let completed = self.completed_passes.saturating_sub(request.steady_since) as u32;
        request.known_tokens + completed * self.steady.stride.burst_tokens
    }

    /// The tokens that a member will have in the end.
    fn last_known_tokens(&self, slot: SlotId) -> u32 {
        let request = &self.arena[slot];
        request.prompt_tokens + request.total_output_tokens(self.limits.model_len_max)
    }

    /// Lets everybody join who was in the pass before, is to get the tokens of the others in this one, and has at
    /// least one more to come.
    fn join_steady(&mut self) {
        let pass = self.planned_passes;
        let model_len_max = self.limits.model_len_max;
        let Self { arena, steady, running, requests_touched, kv, drafting, limits, .. } = self;
        let drafting = drafting.as_ref();
        let Stride { query_tokens, burst_tokens, reach_tokens } = steady.stride;
        // With two passes, the one before is in flight and brings a burst.
        let in_flight = u32::from(limits.asynchronous);
        // A set that the budget cannot serve would only dissolve again.
        let room = (limits.scheduled_tokens / query_tokens)
            .min(limits.batched_tokens / (query_tokens + limits.speculation.draft_slots));
        // Bursts of others are not cut, and blocks are those of the same burst before.
        let is_regular = |slot: SlotId, request: &Request, total: u32| {
            let Some(drafting) = drafting else { return true };
            let slots = request.computed_tokens + reach_tokens - burst_tokens;
            let reach = total.saturating_add(3 * reach_tokens);
            drafting.is_certain(slot)
                && !(request.is_padded && in_flight > 0)
                && request.draft_tokens == limits.speculation.drafts
                && kv.held_blocks(slot) == slots.div_ceil(limits.block_tokens)
                && request.prompt_tokens.saturating_add(reach) <= model_len_max
        };
        running.retain(|&slot| {
            let request = &mut arena[slot];
            let known = request.known_tokens + request.placeholder_tokens;
            let settled = request.computed_tokens >= request.prompt_tokens
                && known == request.computed_tokens + 1
                && request.last_pass.wrapping_add(1) == pass
                && request.stale_tokens == 0
                && !request.is_chunk
                && request.placeholder_tokens == in_flight * query_tokens;
            if !settled || steady.size >= room {
                return true;
            }
            // With the passes before this one it has so many output tokens.
            let generated = request.generated_tokens() + in_flight * burst_tokens;
            let total = request.total_output_tokens(model_len_max);
            if total <= generated || !is_regular(slot, request, total) {
                return true;
            }
            let end = pass + u64::from((total - generated).div_ceil(burst_tokens)) - 1;
            request.steady_since = pass;
            let member = Member { order: request.order, slot };
            steady.join(member, request.computed_tokens, request.counted, pass, end);
            *requests_touched += 1;
            false
        });
    }

    /// Brings the counters of a member up to date and takes it out of the set. Says how many tokens of its last burst
    /// lie past its end.
    fn leave_steady(&mut self, slot: SlotId) -> u64 {
        let past_end = self.settle(slot);
        let request = &self.arena[slot];
        let (computed, counted) = (request.computed_tokens, request.counted);
        self.steady.leave(computed, counted, self.planned_passes, &self.arena);
        self.requests_touched += 1;
        past_end
    }

    /// Brings the counters of a member up to date; it is a member no more. Says how many tokens of its last burst lie
    /// past its end.
    fn settle(&mut self, slot: SlotId) -> u64 {
        let Stride { query_tokens, burst_tokens, reach_tokens } = self.steady.stride;
        let request = &mut self.arena[slot];
        let planned = (self.planned_passes - request.steady_since) as u32;
        let completed = self.completed_passes.saturating_sub(request.steady_since) as u32;
        request.steady_since = NOT_STEADY;
        request.computed_tokens += planned * query_tokens;
        request.flying_tokens += planned * query_tokens;
        request.draft_tokens = self.limits.speculation.drafts;
        if planned > 0 {
            request.last_pass = self.planned_passes - 1;
        }
        let past_end = self.land_bursts(slot, completed);
        let request = &mut self.arena[slot];
        if self.limits.asynchronous {
            request.placeholder_tokens = request.computed_tokens + 1 - request.known_tokens;
        }
        self.kv.recount(slot, request.computed_tokens + reach_tokens - burst_tokens);
        past_end
    }

    /// So many passes of a request have ended that gave it a burst each, which its counters do not have yet. Says how
    /// many tokens of the last one lie past its end: they are thrown away.
    fn land_bursts(&mut self, slot: SlotId, passes: u32) -> u64 {
        let Stride { query_tokens, burst_tokens, .. } = self.steady.stride;
        let last_known_tokens = self.last_known_tokens(slot);
        let request = &mut self.arena[slot];
        request.computed_tokens -= passes * (query_tokens - burst_tokens);
        request.flying_tokens -= passes * query_tokens;
        if self.limits.speculation.is_on() {
            request.rounds.add(passes, query_tokens - 1, burst_tokens - 1);
        }
        if passes > 0 {
            request.last_token = self.last_visible;
        }
        let known_tokens = request.known_tokens + passes * burst_tokens;
        request.known_tokens = known_tokens.min(last_known_tokens);
        (known_tokens - request.known_tokens).into()
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
        call.budget.spend_on(self.steady.size, self.steady.stride.query_tokens);
        call.runs_any |= self.steady.size > 0;
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
        let mut budget = call.budget;
        if !budget.spend_on(self.steady.size, self.steady.stride.query_tokens) {
            return false;
        }
        let mut blocks = u64::from(members_blocks);
        for i in 0..self.running.len() {
            let slot = self.running[i];
            let mut tokens = self.wanted_by_running(slot, call);
            let room = if budget.is_spent() { 0 } else { budget.tokens() };
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
            budget.spend(tokens);
            let new_blocks = self.blocks_missing(slot, tokens);
            blocks += u64::from(new_blocks);
            self.scratch.grants.push(Grant { slot, tokens, new_blocks });
        }
        blocks <= u64::from(self.kv.free_blocks())
    }

    /// Notes which members take a block, and which have one labelled, when pass `pass` is planned.
    ///
    /// A block is labelled in the call that plans tokens of its request while those that fill it are known and
    /// scheduled (R41), and so is what its hash covers beyond them (R62): then the last known token is the last of it.
    pub(super) fn note_block_events(&mut self, pass: u64) {
        let Self { steady, arena, scratch, .. } = self;
        scratch.events.clear();
        // The last known token has no KV yet.
        let next = 1 - i64::from(self.limits.computed_ahead());
        let labels =
            if self.limits.speculation.hash_lookahead_tokens > 0 { 0..0 } else { next..next + 1 };
        for (offsets, deed) in [(steady.new_slots(), Deed::TakeBlock), (labels, Deed::LabelBlock)] {
            let members = steady.with_boundaries(pass, offsets, arena);
            scratch.events.extend(members.map(|member| Event { member, deed }));
        }
        scratch.events.sort_unstable();
        self.requests_touched += scratch.events.len() as u64;
    }

    /// Notes which members have a block labelled when pass `pass` is completed: those that the burst fills, but for
    /// those that were labelled when it was planned (R41).
    pub(super) fn note_labels_at_end(&mut self, pass: u64) {
        let Self { steady, arena, scratch, limits, .. } = self;
        scratch.events.clear();
        if !limits.speculation.is_on() || !self.kv.has_identity() {
            return;
        }
        let burst_tokens = i64::from(steady.stride.burst_tokens);
        // Asynchronously, the burst of the pass before came in between.
        let valid = match limits.computed_ahead() {
            0 => 0,
            ahead => burst_tokens - i64::from(ahead),
        };
        let first = valid + 2 - i64::from(limits.speculation.hash_lookahead_tokens);
        let filled = first..valid + burst_tokens + 1;
        let members = steady.with_boundaries(pass, filled, arena);
        // Who joined later has a row of its own in this pass.
        let members = members.filter(|member| arena[member.slot].steady_since <= pass);
        let deed = Deed::LabelBlock;
        scratch.events.extend(members.map(|member| Event { member, deed }));
        scratch.events.sort_unstable();
        self.requests_touched += scratch.events.len() as u64;
    }

    /// A pass of a member has ended: labels what its burst filled.
    pub(super) fn label_at_end(&mut self, slot: SlotId) {
        let known = self.known_tokens(slot).min(self.last_known_tokens(slot));
        self.kv.label(slot, known - 1);
    }

    pub(super) fn do_when_planning(&mut self, Event { member, deed }: Event) {
        match deed {
            Deed::TakeBlock => self.kv.grow(member.slot, 1),
            Deed::LabelBlock => self.kv.label(member.slot, self.known_tokens(member.slot)),
            Deed::Finish => unreachable!("nobody ends when a pass is planned"),
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
        let tokens = self.steady.stride.query_tokens;
        let row = Row::decode(slot, request.id, request.computed_tokens - tokens);
        Row { tokens, drafts: self.limits.speculation.drafts, ..row }
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
            request.flying_tokens -= self.steady.stride.query_tokens;
            counted -= u32::from(request.counted);
            self.retire(member.slot);
        }
        self.note_bursts(counted, visible, outbox);

        self.note_labels_at_end(plan.pass);
        let mut events = std::mem::take(&mut self.scratch.events);
        let deed = Deed::Finish;
        events.extend(self.ending.drain(..).map(|ending| Event { member: ending.member, deed }));
        self.leaving = 0;
        while let Some(member) = self.steady.pop_end(plan.pass, &self.arena) {
            events.push(Event { member, deed });
        }
        events.sort_unstable();
        let mut next = events.iter().peekable();
        for index in 0..plan.rows.len() {
            let order = self.arena[plan.rows[index].slot].order;
            while let Some(&event) = next.next_if(|event| event.member.order < order) {
                self.do_at_end(event, outbox);
            }
            self.complete_row(&mut plan.rows[index], span, outbox);
        }
        next.for_each(|&event| self.do_at_end(event, outbox));
        self.scratch.events = events;
        self.clear_away(&plan.rows);
    }

    /// The tokens of a pass with `counted` counted members are `visible`.
    pub(super) fn note_bursts(&mut self, counted: u32, visible: SimTime, outbox: &mut Outbox) {
        if counted > 0 {
            outbox.token_gap(visible.since(self.last_visible), counted.into());
            let Stride { query_tokens, burst_tokens, .. } = self.steady.stride;
            outbox.burst_tokens += u64::from(counted) * u64::from(burst_tokens - 1);
            if self.limits.speculation.is_on() {
                let (drafts, accepted) = (query_tokens - 1, burst_tokens - 1);
                outbox.rounds.add(counted.into(), drafts, accepted, burst_tokens);
            }
        }
        self.last_visible = visible;
    }

    fn do_at_end(&mut self, Event { member, deed }: Event, outbox: &mut Outbox) {
        match deed {
            Deed::TakeBlock => unreachable!("blocks are taken when a pass is planned"),
            Deed::LabelBlock => self.label_at_end(member.slot),
            Deed::Finish => self.finish_steady(member, outbox),
        }
    }

    /// The pass that was just completed brought the last token of a request that was, or still
    /// is, in the set.
    fn finish_steady(&mut self, member: Member, outbox: &mut Outbox) {
        let slot = member.slot;
        let past_end = if self.arena[slot].steady_since == NOT_STEADY {
            // It left when the next pass was planned.
            self.land_bursts(slot, 1)
        } else {
            self.leave_steady(slot)
        };
        let request = &self.arena[slot];
        if request.counted {
            // The burst was counted whole.
            outbox.burst_tokens -= past_end;
            outbox.rounds.tokens -= past_end;
        }
        let finish = request
            .finish_reason(self.limits.model_len_max)
            .expect("the pass was chosen to bring the last token");
        if self.limits.asynchronous || self.limits.speculation.is_on() {
            let valid_tokens = request.computed_tokens - request.flying_tokens;
            self.kv.label(slot, valid_tokens.min(request.known_tokens - 1));
        }
        self.finish(slot, finish, outbox);
        if self.arena[slot].flying_tokens > 0 {
            self.in_vain.push(member);
        } else {
            self.retire(slot);
        }
    }
}
