//! Requests that decode in step: as many tokens each in every pass, until one of them ends. That is one token, or
//! with speculation, if nothing is left to chance, a burst.
//!
//! What such requests do is a matter of counting, so a pass does not touch them. The set keeps
//! their number and their KV; which of them need a block, or fill one, in a given pass follows
//! from the pass's number modulo the block size; and whose last token a pass brings follows from
//! when they joined. A member's own counters stand still while it is in the set, and are brought
//! up to date when it leaves (`vllm::lockstep`).
//!
//! Passes are numbered from 0 in the order in which they are planned. An entry for a request that
//! has left stays where it is until somebody passes by: `order` tells it from a living one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::arena::{Arena, NOT_STEADY};
use super::plan::PassPlan;
use crate::base::ids::SlotId;
use crate::timing::work::DecodeWork;

/// A request by its place in the order of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Member {
    /// Its number among all admissions.
    pub(crate) order: u64,
    /// Its place in the arena.
    pub(crate) slot: SlotId,
}

impl Member {
    fn is_alive(self, arena: &Arena) -> bool {
        let request = &arena[self.slot];
        request.order == self.order && request.steady_since != NOT_STEADY
    }
}

/// The pass that brings a request's last token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct End {
    /// Number of that pass.
    pub(crate) pass: u64,
    /// Whose.
    pub(crate) member: Member,
}

/// A member whose last token comes with the pass in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    /// Who.
    pub(crate) member: Member,
    /// Whether it is still a member: it is in one pass more, in vain.
    pub(crate) is_member: bool,
}

/// A member by how far its KV is ahead of the tokens that all members have got since the first pass, which never
/// changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Lead {
    /// Tokens with KV before a pass, less the pass's number times the tokens of a pass.
    ahead: i64,
    member: Member,
    /// When it joined.
    since: u64,
}

impl Lead {
    /// Whether it says where its member stands now: who left may have come back.
    fn is_valid(self, arena: &Arena) -> bool {
        self.member.is_alive(arena) && arena[self.member.slot].steady_since == self.since
    }
}

/// What a pass does to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stride {
    /// Tokens that it computes.
    pub(crate) query_tokens: u32,
    /// Tokens that are left of these, and come out: its KV grows by as many.
    pub(crate) burst_tokens: u32,
    /// Slots that it needs beyond the tokens computed before.
    pub(crate) reach_tokens: u32,
}

impl Stride {
    /// A token a pass.
    pub(crate) const TOKEN: Self = Self { query_tokens: 1, burst_tokens: 1, reach_tokens: 1 };
}

/// Members that need a block in the same passes.
#[derive(Clone, Debug, Default)]
struct Bucket {
    alive: u32,
    /// In order of admission; some may have left.
    members: Vec<Member>,
}

/// The requests that decode in step.
#[derive(Clone, Debug)]
pub(crate) struct SteadySet {
    /// How many there are.
    pub(crate) size: u32,
    /// How many of them belong to the statistics.
    pub(crate) counted: u32,
    /// Tokens with KV before the next pass, over all of them.
    pub(crate) kv_tokens: u64,
    /// No member was admitted after this one.
    pub(crate) last_order: u64,
    block_tokens: i64,
    /// What a pass does to each of them.
    pub(crate) stride: Stride,
    /// By the remainder, modulo the block size, of a pass's number times the burst less the tokens before that pass.
    /// It never changes.
    buckets: Vec<Bucket>,
    ends: BinaryHeap<Reverse<End>>,
    leads: BinaryHeap<Lead>,
}

impl SteadySet {
    /// An empty set, for blocks of `block_tokens` tokens.
    pub(crate) fn new(block_tokens: u32, stride: Stride) -> Self {
        Self {
            block_tokens: block_tokens.into(),
            stride,
            size: 0,
            counted: 0,
            kv_tokens: 0,
            last_order: 0,
            buckets: vec![Bucket::default(); block_tokens as usize],
            ends: BinaryHeap::new(),
            leads: BinaryHeap::new(),
        }
    }

    /// Tokens that a member would have got from the first pass to before pass `pass`.
    fn since_first(&self, pass: u64) -> i64 {
        pass.cast_signed().wrapping_mul(self.stride.burst_tokens.into())
    }

    /// The bucket of the members for which, before pass `pass`, `offset` tokens more than are computed fill whole
    /// blocks.
    fn bucket_at(&self, pass: u64, offset: i64) -> usize {
        (self.since_first(pass) + offset).rem_euclid(self.block_tokens) as usize
    }

    /// The bucket of a request with `computed_tokens` tokens before pass `pass`.
    fn bucket_of(&self, computed_tokens: u32, pass: u64) -> usize {
        self.bucket_at(pass, -i64::from(computed_tokens))
    }

    /// A request with `computed_tokens` tokens joins at pass `pass`; `end` brings its last token.
    pub(crate) fn join(
        &mut self,
        member: Member,
        computed_tokens: u32,
        counted: bool,
        pass: u64,
        end: u64,
    ) {
        self.size += 1;
        self.counted += u32::from(counted);
        self.kv_tokens += u64::from(computed_tokens);
        self.last_order = self.last_order.max(member.order);
        let index = self.bucket_of(computed_tokens, pass);
        let bucket = &mut self.buckets[index];
        bucket.alive += 1;
        // Nearly always the newest: requests join soon after their admission.
        let place = match bucket.members.last() {
            Some(&last) if last > member => bucket.members.partition_point(|&m| m < member),
            _ => bucket.members.len(),
        };
        bucket.members.insert(place, member);
        self.ends.push(Reverse(End { pass: end, member }));
        let ahead = i64::from(computed_tokens) - self.since_first(pass);
        self.leads.push(Lead { ahead, member, since: pass });
    }

    /// A member leaves that has `computed_tokens` tokens before pass `pass`.
    pub(crate) fn leave(&mut self, computed_tokens: u32, counted: bool, pass: u64, arena: &Arena) {
        self.size -= 1;
        self.counted -= u32::from(counted);
        self.kv_tokens -= u64::from(computed_tokens);
        let index = self.bucket_of(computed_tokens, pass);
        let bucket = &mut self.buckets[index];
        bucket.alive -= 1;
        if bucket.members.len() > 2 * bucket.alive as usize + 32 {
            bucket.members.retain(|member| member.is_alive(arena));
        }
    }

    /// The decode work of pass `pass`, in which nobody but the members decodes.
    pub(crate) fn work(&mut self, pass: u64, arena: &Arena) -> DecodeWork {
        DecodeWork {
            requests: self.size,
            query_tokens: u64::from(self.size) * u64::from(self.stride.query_tokens),
            kv_tokens: self.kv_tokens,
            longest_kv_tokens: self.longest_kv_tokens(pass, arena),
        }
    }

    /// Gives every member its tokens in pass `pass`, which is that of `plan`.
    pub(crate) fn decode(&mut self, plan: &mut PassPlan, pass: u64, arena: &Arena) {
        let work = self.work(pass, arena);
        plan.steady = self.size;
        plan.steady_counted = self.counted;
        plan.decode.requests += work.requests;
        plan.decode.query_tokens += work.query_tokens;
        plan.decode.kv_tokens += work.kv_tokens;
        plan.decode.longest_kv_tokens = plan.decode.longest_kv_tokens.max(work.longest_kv_tokens);
        plan.has_new_work |= self.size > 0;
        self.advance();
    }

    /// Makes `plan` that of pass number `number`, in which `work` was done by all members and nobody else.
    pub(crate) fn restore(&self, plan: &mut PassPlan, number: u64, work: &DecodeWork) {
        plan.clear();
        plan.pass = number;
        plan.steady = self.size;
        plan.steady_counted = self.counted;
        plan.decode = *work;
        plan.has_new_work = true;
    }

    /// Every member has the tokens of a pass.
    pub(crate) fn advance(&mut self) {
        self.kv_tokens += u64::from(self.size) * u64::from(self.stride.burst_tokens);
    }

    /// The longest KV of a member before pass `pass`; 0 without members.
    pub(crate) fn longest_kv_tokens(&mut self, pass: u64, arena: &Arena) -> u32 {
        while let Some(&lead) = self.leads.peek() {
            if lead.is_valid(arena) {
                return (lead.ahead + self.since_first(pass)) as u32;
            }
            self.leads.pop();
        }
        0
    }

    /// Where, counted from the tokens computed before a pass, the slots begin and end that it is the first to need.
    pub(crate) fn new_slots(&self) -> std::ops::Range<i64> {
        let reach = i64::from(self.stride.reach_tokens);
        reach - i64::from(self.stride.burst_tokens)..reach
    }

    /// How many blocks members need in pass `pass`: one for each new slot with which a block begins.
    pub(crate) fn blocks_needed(&self, pass: u64) -> u32 {
        self.new_slots().map(|offset| self.buckets[self.bucket_at(pass, offset)].alive).sum()
    }

    /// The members for which a block begins, counted from their tokens before pass `pass`, at one of these offsets;
    /// as often as that is so.
    pub(crate) fn with_boundaries<'a>(
        &'a self,
        pass: u64,
        offsets: std::ops::Range<i64>,
        arena: &'a Arena,
    ) -> impl Iterator<Item = Member> + 'a {
        let buckets = offsets.map(move |offset| &self.buckets[self.bucket_at(pass, offset)]);
        let members = buckets.flat_map(|bucket| bucket.members.iter().copied());
        members.filter(|member| member.is_alive(arena))
    }

    /// The pass that brings the first last token of a member.
    pub(crate) fn first_end(&mut self, arena: &Arena) -> Option<u64> {
        while let Some(&Reverse(end)) = self.ends.peek() {
            if end.member.is_alive(arena) {
                return Some(end.pass);
            }
            self.ends.pop();
        }
        None
    }

    /// Takes out the next member whose last token comes with pass `pass`, in order of admission.
    pub(crate) fn pop_end(&mut self, pass: u64, arena: &Arena) -> Option<Member> {
        while let Some(&Reverse(end)) = self.ends.peek() {
            let is_alive = end.member.is_alive(arena);
            if is_alive && end.pass != pass {
                return None;
            }
            self.ends.pop();
            if is_alive {
                return Some(end.member);
            }
        }
        None
    }

    /// Everybody at once, in no particular order; the set is empty afterwards, whereas the members
    /// do not know it yet.
    pub(crate) fn drain(&mut self, arena: &Arena, members: &mut Vec<Member>) {
        for bucket in &mut self.buckets {
            members.extend(bucket.members.drain(..).filter(|member| member.is_alive(arena)));
            bucket.alive = 0;
        }
        self.ends.clear();
        self.leads.clear();
        self.size = 0;
        self.counted = 0;
        self.kv_tokens = 0;
        self.last_order = 0;
    }

    /// Everybody, in no particular order.
    pub(crate) fn members<'a>(&'a self, arena: &'a Arena) -> impl Iterator<Item = Member> + 'a {
        let all = self.buckets.iter().flat_map(|bucket| bucket.members.iter().copied());
        all.filter(|member| member.is_alive(arena))
    }
}
