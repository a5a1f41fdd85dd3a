//! One pass: who is in it, with how many tokens, and what that adds up to.

use crate::base::detail::{Blocked, PassShare};
use crate::base::ids::{RequestId, SlotId};
use crate::base::time::SimTime;
use crate::timing::work::{DecodeWork, PrefillWork};

pub(crate) use crate::base::detail::Entry;

/// One request's share of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Where it is in the arena.
    pub(crate) slot: SlotId,
    /// Who it is.
    pub(crate) request: RequestId,
    /// Tokens to compute, drafts included.
    pub(crate) tokens: u32,
    /// Drafts among them that the pass verifies.
    pub(crate) drafts: u32,
    /// Whether these drafts are padding, which is never accepted (R64).
    pub(crate) is_padding: bool,
    /// Tokens whose KV is there before the pass: for admitted requests the prefix-cache hit.
    pub(crate) computed_before: u32,
    /// How it came in.
    pub(crate) entry: Entry,
    /// Whether prompt is left after the pass, which then samples nothing for it (R15).
    pub(crate) is_chunk: bool,
    /// Whether it decodes: all its prompt is computed, and one token besides drafts is to be.
    pub(crate) is_decode: bool,
    /// After completion: output tokens it got.
    pub(crate) emitted_tokens: u32,
    /// After completion: whether it finished with this pass.
    pub(crate) finished: bool,
}

impl Row {
    /// What others may know of it.
    pub(crate) const fn share(&self) -> PassShare {
        PassShare {
            request: self.request,
            tokens: self.tokens,
            computed_before: self.computed_before,
            entry: self.entry,
            is_chunk: self.is_chunk,
            is_decode: self.is_decode,
            emitted_tokens: self.emitted_tokens,
        }
    }

    /// The row of a running request that computes one token behind `computed_before`.
    pub(crate) const fn decode(slot: SlotId, request: RequestId, computed_before: u32) -> Self {
        Self {
            slot,
            request,
            tokens: 1,
            drafts: 0,
            is_padding: false,
            computed_before,
            entry: Entry::Running,
            is_chunk: false,
            is_decode: true,
            emitted_tokens: 0,
            finished: false,
        }
    }
}

/// The rows of a pass in flight whose requests decoded in step until it was planned, and do no more.
#[derive(Clone, Debug)]
pub(crate) struct LeftRows {
    /// Number of that pass.
    pub(crate) pass: u64,
    /// Its rows, in scheduling order.
    pub(crate) rows: Vec<Row>,
}

/// A pass from planning to completion.
#[derive(Clone, Debug, Default)]
pub(crate) struct PassPlan {
    /// The requests in it, in scheduling order.
    pub(crate) rows: Vec<Row>,
    /// Requests that decode in step and have no row: one token each.
    pub(crate) steady: u32,
    /// How many of them belong to the statistics.
    pub(crate) steady_counted: u32,
    /// Number of the pass, from 0.
    pub(crate) pass: u64,
    /// Who was preempted while it was planned, in order.
    pub(crate) preempted: Vec<RequestId>,
    /// Why those who wait are not in it, where every request is planned by itself.
    pub(crate) blocked: Option<Blocked>,
    /// The prefill work in it.
    pub(crate) prefill: PrefillWork,
    /// The decode work in it.
    pub(crate) decode: DecodeWork,
    /// Whether some row computes tokens that were never computed before.
    pub(crate) has_new_work: bool,
}

impl PassPlan {
    /// Empties the plan and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.preempted.clear();
        self.blocked = None;
        self.prefill = PrefillWork::default();
        self.decode = DecodeWork::default();
        self.steady = 0;
        self.steady_counted = 0;
        self.has_new_work = false;
    }

    /// Whether planning changed nothing: no request in the pass, none preempted.
    pub(crate) fn is_empty(&self) -> bool {
        self.has_no_work() && self.preempted.is_empty()
    }

    /// Whether nobody is in the pass.
    pub(crate) fn has_no_work(&self) -> bool {
        self.rows.is_empty() && self.steady == 0
    }

    /// Whether it holds requests that decode in step, and nobody else.
    pub(crate) fn is_all_steady(&self) -> bool {
        self.steady > 0 && self.rows.is_empty() && self.preempted.is_empty()
    }

    /// Takes the rows that were left for this pass, in the place of requests in step; says whether there were any.
    pub(crate) fn take_left(&mut self, left: &mut Option<LeftRows>) -> bool {
        let Some(left) = left.take_if(|left| left.pass == self.pass) else { return false };
        self.steady = 0;
        self.rows.extend(left.rows);
        true
    }

    /// Adds the work of a row.
    pub(crate) fn add_work(&mut self, row: &Row) {
        if row.is_decode {
            self.decode.add(row.tokens, row.computed_before);
        } else {
            self.prefill.add(row.tokens, row.computed_before);
        }
    }
}

/// When a pass ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PassSpan {
    /// When the device began it.
    pub(crate) start: SimTime,
    /// When its output became known to the engine.
    pub(crate) end: SimTime,
}
