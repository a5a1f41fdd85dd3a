//! The lines of a recording: what happened, call by call.

use serde::{Deserialize, Serialize};

/// `[request, tokens, computed before, kind, drafts]`.
pub(crate) type ScheduledRow = (u32, u32, u32, EntryLetter, u32);

/// How a request came into a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum EntryLetter {
    /// Admitted for the first time.
    N,
    /// Running.
    R,
    /// Resumed after a preemption.
    P,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "k")]
pub(crate) enum Line {
    /// What the configuration came to.
    #[serde(rename = "head")]
    Head(Head),
    /// A call of the scheduler.
    #[serde(rename = "s")]
    Scheduled(ScheduledLine),
    /// A pass's output taken in.
    #[serde(rename = "u")]
    Updated(UpdatedLine),
    /// The end, and a summary per request.
    #[serde(rename = "end")]
    End(EndLine),
}

/// The head line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) format: u32,
    pub(crate) case: String,
    /// The release that was recorded.
    pub(crate) vllm: String,
    /// Derived settings.
    pub(crate) resolved: Resolved,
}

/// Derived settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Resolved {
    pub(crate) max_num_scheduled_tokens: u32,
    pub(crate) max_num_active_seqs: u32,
    pub(crate) num_lookahead_tokens: u32,
    pub(crate) draft_slots: u32,
    pub(crate) hash_lookahead_tokens: u32,
    pub(crate) eagle_block_drop: bool,
    pub(crate) watermark_blocks: u32,
    pub(crate) usable_blocks: u32,
    pub(crate) max_concurrent_batches: usize,
}

/// A call that scheduled or preempted somebody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScheduledLine {
    /// Number of the call.
    pub(crate) s: u64,
    /// Clock, in microseconds.
    pub(crate) t: u64,
    pub(crate) arr: Vec<u32>,
    pub(crate) sched: Vec<ScheduledRow>,
    pub(crate) pre: Vec<u32>,
    pub(crate) free: u32,
    pub(crate) cached: u32,
    pub(crate) run: u32,
    pub(crate) wait: u32,
}

/// A pass's output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpdatedLine {
    /// Number of the call whose output this is.
    pub(crate) s: u64,
    /// Clock, in microseconds.
    pub(crate) t: u64,
    pub(crate) out: Vec<(u32, u32)>,
    pub(crate) fin: Vec<u32>,
    pub(crate) free: u32,
    pub(crate) cached: u32,
}

/// How a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EndReason {
    /// All requests finished.
    Done,
    /// Requests are left and none can ever run.
    Stalled,
    /// It was cut off.
    MaxSteps,
}

/// The last line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndLine {
    pub(crate) reason: EndReason,
    /// The number the next call would have had.
    pub(crate) steps: u64,
    /// Clock, in microseconds.
    pub(crate) t: u64,
    pub(crate) free: u32,
    pub(crate) requests: Vec<RequestLine>,
}

/// What became of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestLine {
    pub(crate) i: u32,
    /// Call and clock at which the output with its first token was taken in.
    pub(crate) first: Option<(u64, u64)>,
    /// The same for its end.
    pub(crate) fin: Option<(u64, u64)>,
    pub(crate) cached: u32,
    pub(crate) preempted: u32,
    pub(crate) out: u32,
    pub(crate) reason: Option<FinishWord>,
}

/// Why a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FinishWord {
    /// A limit of length.
    Length,
    /// A stop token.
    Stop,
}
