//! What running requests may still use of the pool (E3), without looking at each of them.
//!
//! Members of the set come one token closer to their limits in every decode, so their sum is a matter of
//! counting too. It says all that a budget needs unless it comes down to how the doubles round: then the
//! sum is formed one by one, as the engine does.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Sglang;
use super::part::{CLIP_TOKENS, Part};
use crate::base::ids::SlotId;
use crate::engine::arena::{Arena, NOT_STEADY};
use crate::engine::steady::Member;

/// The sums over the members of the set, with and without `ignore_eos`.
#[derive(Clone, Debug, Default)]
pub(super) struct Reserved {
    groups: [Group; 2],
    /// Members whose limit is 0; they are in no group.
    pub(super) zero_limits: u32,
}

/// Members whose amounts have the same factor.
#[derive(Clone, Debug, Default)]
struct Group {
    /// Members that are less than the clip from their limits.
    short: u32,
    /// The decodes at which they would reach them, summed up.
    limit_decodes: u64,
    /// The others, which count with the clip.
    long: u32,
    /// When those become short.
    crossings: BinaryHeap<Reverse<(u64, Member)>>,
}

impl Reserved {
    /// The request of `part` becomes a member before decode number `decode`.
    pub(super) fn join(&mut self, member: Member, part: &mut Part, decode: u64) {
        if part.limit_tokens == 0 {
            self.zero_limits += 1;
            return;
        }
        let left = part.limit_tokens.saturating_sub(part.outputs + part.flying_samples);
        part.limit_decode = decode + u64::from(left);
        part.is_long = left >= CLIP_TOKENS;
        let group = &mut self.groups[usize::from(part.ignores_eos)];
        if part.is_long {
            group.long += 1;
            let crossing = part.limit_decode - u64::from(CLIP_TOKENS - 1);
            group.crossings.push(Reverse((crossing, member)));
        } else {
            group.short += 1;
            group.limit_decodes += part.limit_decode;
        }
    }

    /// The request of `part` is a member no more.
    pub(super) fn leave(&mut self, part: &Part) {
        let group = &mut self.groups[usize::from(part.ignores_eos)];
        if part.limit_tokens == 0 {
            self.zero_limits -= 1;
        } else if part.is_long {
            group.long -= 1;
        } else {
            group.short -= 1;
            group.limit_decodes -= part.limit_decode;
        }
    }

    /// Nobody is a member any more.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Brings it up to decode number `decode`.
    fn advance(&mut self, decode: u64, arena: &Arena, parts: &mut [Part]) {
        for group in &mut self.groups {
            while let Some(&Reverse((crossing, Member { order, slot }))) = group.crossings.peek()
                && crossing <= decode
            {
                group.crossings.pop();
                let (request, part) = (&arena[slot], &mut parts[slot.index()]);
                let is_here = request.order == order && request.steady_since != NOT_STEADY;
                if is_here && part.is_long {
                    part.is_long = false;
                    group.long -= 1;
                    group.short += 1;
                    group.limit_decodes += part.limit_decode;
                }
            }
        }
    }
}

impl Sglang {
    /// What running requests may still use (E3), but for how the doubles round.
    pub(super) fn reserved_in_step(&mut self) -> f64 {
        let planned = self.planned_decodes;
        self.reserved.advance(planned, &self.arena, &mut self.parts);
        let mut unknown = self.reserved.groups.each_ref().map(|group| i64::from(group.short));
        // Outputs in flight are not known yet.
        if planned == self.completed_decodes {
            unknown = [0, 0];
        }
        for member in self.lockstep.fresh() {
            let (request, part) = (&self.arena[member.slot], &self.parts[member.slot.index()]);
            let is_here = request.order == member.order && request.steady_since != NOT_STEADY;
            if !is_here || part.is_long || part.limit_tokens == 0 {
                continue;
            }
            let unknown = &mut unknown[usize::from(part.ignores_eos)];
            *unknown += i64::from(part.flying_samples);
            *unknown -=
                i64::from(request.steady_since == planned && planned > self.completed_decodes);
        }
        let amount = |index: usize| {
            let group = &self.reserved.groups[index];
            let short = group.limit_decodes - u64::from(group.short) * planned;
            let long = u64::from(group.long) * u64::from(CLIP_TOKENS);
            (short + long) as f64 + unknown[index] as f64
        };
        amount(0) * self.new_token_ratio + amount(1)
    }

    /// What running requests may still use (E3): a sum as Python forms it, which carries what rounding
    /// loses.
    pub(super) fn reserved_one_by_one(&self) -> f64 {
        let mut sum = 0.0_f64;
        let mut lost = 0.0;
        for slot in self.batch() {
            let tokens = self.reserved_by(slot);
            let total = sum + tokens;
            lost += if sum.abs() >= tokens.abs() {
                (sum - total) + tokens
            } else {
                (tokens - total) + sum
            };
            sum = total;
        }
        sum + lost
    }

    /// What one running request may still use (E3).
    pub(super) fn reserved_by(&self, slot: SlotId) -> f64 {
        let part = &self.parts[slot.index()];
        let ratio = if part.ignores_eos { 1.0 } else { self.new_token_ratio };
        f64::from(part.expected_outputs(self.outputs(slot))) * ratio
    }
}
