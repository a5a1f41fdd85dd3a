//! Requests that decode in step: one token each in every pass, until one of them ends.
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

/// A member by how far its KV is ahead of the number of the pass, which never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Lead {
    /// Tokens with KV before a pass, less the pass's number.
    ahead: i64,
    member: Member,
}

impl Lead {
    fn of(computed_tokens: u32, pass: u64, member: Member) -> Self {
        Self { ahead: i64::from(computed_tokens) - pass.cast_signed(), member }
    }

    /// Whether it says where its member stands now: who left may have come back.
    fn is_valid(self, arena: &Arena) -> bool {
        let request = &arena[self.member.slot];
        self.member.is_alive(arena)
            && self == Self::of(request.computed_tokens, request.steady_since, self.member)
    }
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
    /// By the numbers, modulo the block size, of the passes in which members need a block.
    buckets: Vec<Bucket>,
    ends: BinaryHeap<Reverse<End>>,
    leads: BinaryHeap<Lead>,
}

impl SteadySet {
    /// An empty set, for blocks of `block_tokens` tokens.
    pub(crate) fn new(block_tokens: u32) -> Self {
        Self {
            size: 0,
            counted: 0,
            kv_tokens: 0,
            last_order: 0,
            buckets: vec![Bucket::default(); block_tokens as usize],
            ends: BinaryHeap::new(),
            leads: BinaryHeap::new(),
        }
    }

    /// The bucket of a request with `computed_tokens` tokens before pass `pass`: it needs a block
    /// in those passes before which its tokens fill whole blocks.
    fn bucket_of(&self, computed_tokens: u32, pass: u64) -> usize {
        let block_tokens = self.buckets.len() as u64;
        ((pass + block_tokens - u64::from(computed_tokens) % block_tokens) % block_tokens) as usize
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
        self.leads.push(Lead::of(computed_tokens, pass, member));
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
            query_tokens: self.size.into(),
            kv_tokens: self.kv_tokens,
            longest_kv_tokens: self.longest_kv_tokens(pass, arena),
        }
    }

    /// Gives every member its token in pass `pass`, which is that of `plan`.
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

    /// Every member computes a token.
    pub(crate) fn advance(&mut self) {
        self.kv_tokens += u64::from(self.size);
    }

    /// The longest KV of a member before pass `pass`; 0 without members.
    pub(crate) fn longest_kv_tokens(&mut self, pass: u64, arena: &Arena) -> u32 {
        while let Some(&lead) = self.leads.peek() {
            if lead.is_valid(arena) {
                return (lead.ahead + pass.cast_signed()) as u32;
            }
            self.leads.pop();
        }
        0
    }

    /// How many members need a block in pass `pass`.
    pub(crate) fn blocks_needed(&self, pass: u64) -> u32 {
        self.buckets[(pass % self.buckets.len() as u64) as usize].alive
    }

    /// The members that need a block in pass `pass`, in order of admission: those that have filled
    /// their blocks with the pass before.
    pub(crate) fn needing_blocks<'a>(
        &'a self,
        pass: u64,
        arena: &'a Arena,
    ) -> impl Iterator<Item = Member> + 'a {
        let bucket = &self.buckets[(pass % self.buckets.len() as u64) as usize];
        bucket.members.iter().copied().filter(|member| member.is_alive(arena))
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
