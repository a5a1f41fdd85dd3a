//! Passes that do not touch the requests that decode in step (see [`crate::engine::steady`]).
//!
//! Everybody in the running batch gets one token in every pass with decodes, and stands still in the
//! others, so what the batch does is a matter of counting such passes. Members of the set are looked
//! at when they come and when they go. Before somebody loses its KV the set dissolves, and the pass is
//! planned request by request; both ways come to the same schedule.
//!
//! A set that dissolves while a pass with it is in flight leaves that pass's rows behind, so that its
//! output can be taken in request by request too.

use std::collections::VecDeque;

use super::Sglang;
use crate::base::ids::SlotId;
use crate::base::time::SimTime;
use crate::engine::Advance;
use crate::engine::arena::{Arena, NOT_STEADY, Stage};
use crate::engine::outbox::Outbox;
use crate::engine::plan::{LeftRows, PassPlan, PassSpan, Row};
use crate::engine::steady::{Ending, Member};

/// The place in the batch of the first request; others come before it and behind it.
const FIRST_ORDER: u64 = 1 << 62;

/// What stands around the set.
#[derive(Clone, Debug)]
pub(super) struct Lockstep {
    /// Whether requests decode in step at all.
    is_on: bool,
    /// Places in the batch that were given, from the first to the one behind the last.
    orders: (u64, u64),
    /// Members without a completed decode as such, in the order in which they came.
    fresh: VecDeque<Member>,
    /// Members whose last token comes with the pass in flight.
    ending: Vec<Ending>,
    /// Requests that have ended and are in a decode in flight, by its number.
    in_vain: Vec<(u64, Member)>,
    left_rows: Option<LeftRows>,
    /// When the tokens of the last completed decode in step became visible.
    pub(super) last_visible: SimTime,
    members: Vec<Member>,
}

impl Lockstep {
    pub(super) fn new(advance: Advance) -> Self {
        Self {
            is_on: advance == Advance::InStep,
            orders: (FIRST_ORDER, FIRST_ORDER),
            fresh: VecDeque::new(),
            ending: Vec::new(),
            in_vain: Vec::new(),
            left_rows: None,
            last_visible: SimTime::ZERO,
            members: Vec::new(),
        }
    }

    /// Gives `slots` places behind everybody.
    pub(super) fn number_behind(&mut self, arena: &mut Arena, slots: &[SlotId]) {
        for &slot in slots {
            arena[slot].order = self.orders.1;
            self.orders.1 += 1;
        }
    }

    /// Gives `slots` places before everybody.
    pub(super) fn number_in_front(&mut self, arena: &mut Arena, slots: &[SlotId]) {
        self.orders.0 -= slots.len() as u64;
        for (order, &slot) in (self.orders.0..).zip(slots) {
            arena[slot].order = order;
        }
    }

    /// Members without a completed decode, and some who have left.
    pub(super) fn fresh(&self) -> impl Iterator<Item = Member> + '_ {
        self.fresh.iter().copied()
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

impl Sglang {
    /// Everybody in the running batch joins the set.
    pub(super) fn join_steady(&mut self) {
        if !self.lockstep.is_on {
            return;
        }
        let next = self.planned_decodes;
        for slot in self.running.drain(..) {
            let request = &mut self.arena[slot];
            let part = &mut self.parts[slot.index()];
            // Who has its last token in flight ends before the set knows.
            let coming = part.total_outputs().saturating_sub(part.outputs + part.flying_samples);
            let end = if coming == 0 { u64::MAX } else { next + u64::from(coming) - 1 };
            request.steady_since = next;
            let member = Member { order: request.order, slot };
            self.steady.join(member, request.computed_tokens, request.counted, next, end);
            self.reserved.join(member, part, next);
            self.lockstep.fresh.push_back(member);
            self.requests_touched += 1;
        }
    }

    /// Brings the counters of a member up to date; it is a member no more.
    fn settle(&mut self, slot: SlotId) {
        let request = &mut self.arena[slot];
        let part = &mut self.parts[slot.index()];
        let planned = (self.planned_decodes - request.steady_since) as u32;
        let completed = self.completed_decodes.saturating_sub(request.steady_since) as u32;
        request.steady_since = NOT_STEADY;
        request.computed_tokens += planned;
        request.flying_tokens += planned - completed;
        part.flying_samples += planned - completed;
        part.outputs += completed;
        if completed > 0 {
            request.last_token = self.lockstep.last_visible;
        }
    }

    fn leave_steady(&mut self, slot: SlotId) {
        self.settle(slot);
        self.reserved.leave(&self.parts[slot.index()]);
        let request = &self.arena[slot];
        let (computed, counted) = (request.computed_tokens, request.counted);
        self.steady.leave(computed, counted, self.planned_decodes, &self.arena);
        self.requests_touched += 1;
    }

    /// Whoever is sure to end with the pass in flight is not in the next decode; says how many (O4).
    pub(super) fn drop_ending(&mut self) -> u32 {
        let before = self.batch_len();
        let Self { running, parts, dropped, .. } = self;
        running.retain(|&slot| {
            let ends = ends_in_flight(&parts[slot.index()]);
            if ends {
                dropped.push(slot);
            }
            !ends
        });
        for place in 0..self.lockstep.fresh.len() {
            let Member { order, slot } = self.lockstep.fresh[place];
            let request = &self.arena[slot];
            let is_member = request.order == order && request.steady_since != NOT_STEADY;
            if is_member && ends_in_flight(&self.parts[slot.index()]) {
                self.leave_steady(slot);
                self.dropped.push(slot);
            }
        }
        if self.planned_decodes > self.completed_decodes {
            while let Some(member) = self.steady.pop_end(self.planned_decodes - 1, &self.arena) {
                // An end token cannot be foreseen (O3).
                let part = &self.parts[member.slot.index()];
                let is_member = part.total_outputs() < part.limit_tokens;
                if !is_member {
                    self.leave_steady(member.slot);
                    self.dropped.push(member.slot);
                }
                self.lockstep.ending.push(Ending { member, is_member });
            }
        }
        before - self.batch_len()
    }

    /// Makes everybody a request like any other again.
    pub(super) fn dissolve_steady(&mut self) {
        if self.steady.size == 0 {
            return;
        }
        let in_flight = self.planned_decodes > self.completed_decodes;
        let mut rows = Vec::new();
        let mut members = std::mem::take(&mut self.lockstep.members);
        self.steady.drain(&self.arena, &mut members);
        members.sort_unstable();
        for &member in &members {
            // Whoever joined for the next pass is not in the one in flight.
            let is_in_flight =
                in_flight && self.arena[member.slot].steady_since < self.planned_decodes;
            self.settle(member.slot);
            if is_in_flight {
                rows.push((member, self.left_row(member.slot)));
            }
        }
        for Ending { member, is_member } in std::mem::take(&mut self.lockstep.ending) {
            if !is_member {
                rows.push((member, self.left_row(member.slot)));
            }
        }
        for (_, member) in std::mem::take(&mut self.lockstep.in_vain) {
            rows.push((member, self.left_row(member.slot)));
        }
        rows.sort_unstable_by_key(|&(member, _)| member);
        self.lockstep.fresh.clear();
        self.reserved.clear();
        self.requests_touched += members.len() as u64;
        self.running.extend(members.drain(..).map(|member| member.slot));
        self.lockstep.members = members;
        if !rows.is_empty() {
            let rows = rows.into_iter().map(|(_, row)| row).collect();
            self.lockstep.left_rows = Some(LeftRows { pass: self.planned_passes - 1, rows });
        }
    }

    /// The row that a request would have had in the pass in flight.
    fn left_row(&self, slot: SlotId) -> Row {
        let request = &self.arena[slot];
        Row::decode(slot, request.id, request.computed_tokens.saturating_sub(1))
    }

    /// Puts the rows that a dissolved set has left for this pass into its plan.
    pub(super) fn restore_left_rows(&mut self, plan: &mut PassPlan) {
        plan.take_left(&mut self.lockstep.left_rows);
    }

    /// A request of the pass that was just completed has ended: it leaves the running batch, if it is in
    /// it, when the next call begins (S3).
    pub(super) fn leave_as_ended(&mut self, slot: SlotId) {
        if self.arena[slot].steady_since != NOT_STEADY {
            self.leave_steady(slot);
            self.ended_running += 1;
            if self.planned_decodes > self.completed_decodes {
                let member = Member { order: self.arena[slot].order, slot };
                self.lockstep.in_vain.push((self.planned_decodes - 1, member));
            }
        } else if self.running.contains(&slot) {
            self.ended_running += 1;
        }
    }

    /// The tokens of decode number `decode`, of `counted` counted members and those in vain, are visible.
    pub(super) fn note_steady_tokens(
        &mut self,
        decode: u64,
        mut counted: u32,
        visible: SimTime,
        outbox: &mut Outbox,
    ) {
        let arena = &mut self.arena;
        self.lockstep.in_vain.retain(|&(number, Member { slot, .. })| {
            let is_now = number == decode;
            if is_now {
                let request = &mut arena[slot];
                request.flying_tokens -= 1;
                counted -= u32::from(request.counted);
            }
            !is_now
        });
        // Whoever joined last has had its token at another time than the others.
        while let Some(&Member { order, slot }) = self.lockstep.fresh.front() {
            let request = &self.arena[slot];
            let is_here = request.order == order && request.stage == Stage::Running;
            if is_here && request.steady_since != NOT_STEADY && request.steady_since > decode {
                break;
            }
            self.lockstep.fresh.pop_front();
            let was_in_it = request.steady_since != NOT_STEADY || request.flying_tokens > 0;
            if is_here && was_in_it && request.counted {
                outbox.token_gap(visible.since(request.last_token), 1);
                counted -= 1;
            }
        }
        if counted > 0 {
            outbox.token_gap(visible.since(self.lockstep.last_visible), counted.into());
        }
        self.lockstep.last_visible = visible;
    }

    /// Takes in a pass in which `plan.steady` members got a token each.
    pub(super) fn complete_steady(&mut self, plan: &PassPlan, span: PassSpan, outbox: &mut Outbox) {
        let decode = self.completed_decodes - 1;
        let visible = span.end + self.detokenize;
        self.note_steady_tokens(decode, plan.steady_counted, visible, outbox);
        let mut members = std::mem::take(&mut self.lockstep.members);
        members.extend(self.lockstep.ending.drain(..).map(|ending| ending.member));
        while let Some(member) = self.steady.pop_end(decode, &self.arena) {
            members.push(member);
        }
        members.sort_unstable();
        for Member { slot, .. } in members.drain(..) {
            if self.arena[slot].steady_since == NOT_STEADY {
                // It left when the next pass was planned.
                let request = &mut self.arena[slot];
                let part = &mut self.parts[slot.index()];
                request.flying_tokens -= 1;
                part.flying_samples -= 1;
                part.outputs += 1;
                request.last_token = visible;
            } else {
                self.leave_as_ended(slot);
            }
            self.finish(slot, span.end, outbox);
        }
        self.lockstep.members = members;
    }
}

/// Whether the pass in flight is sure to bring the last token (O4).
fn ends_in_flight(part: &super::part::Part) -> bool {
    part.flying_samples > 0 && part.outputs + part.flying_samples >= part.limit_tokens
}
