//! One pass in full, for those who asked for it: who was in it, what it cost, and why no more came in.

use super::ids::{EngineId, RequestId};
use super::time::SimTime;

/// How a request came into a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Admitted from the queue for the first time.
    New,
    /// It was running.
    Running,
    /// Admitted again after a preemption.
    Resumed,
}

/// Why a pass took nobody else from the queue: what the one who would have been next was missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// Tokens of the pass: others have taken them, or too many for a prompt that must not be divided.
    Budget,
    /// A seat: as many requests run as may.
    Seats,
    /// KV blocks for its tokens, or for those that it and others are yet to have.
    KvBlocks,
    /// Nothing: a pass that takes KV away from running requests admits nobody.
    Preempting,
    /// Nothing: the engine holds prompts back so that passes with them are fewer or fuller.
    Held,
    /// Nothing: nobody joins a batch that decodes.
    StaticBatch,
    /// Content that a prompt under way is about to bring into the cache.
    Content,
    /// A place among the prompts of a pass, whose number is limited.
    Prompts,
}

/// One forward pass, or a call of the scheduler that only preempted: then nobody is in it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PassDetail {
    /// The engine that ran it.
    pub(crate) engine: EngineId,
    /// When it was planned: at its start, or one pass earlier with asynchronous scheduling.
    pub(crate) planned: SimTime,
    /// When the device began it.
    pub(crate) start: SimTime,
    /// When its output became known to the engine.
    pub(crate) end: SimTime,
    /// Requests with prefill work, recomputation included.
    pub(crate) prefill_requests: u32,
    /// Tokens of that work.
    pub(crate) prefill_tokens: u64,
    /// Tokens whose KV that work finds present.
    pub(crate) prefill_past_tokens: u64,
    /// Requests that decode.
    pub(crate) decode_requests: u32,
    /// Query tokens of that work, drafts included.
    pub(crate) decode_tokens: u64,
    /// Tokens whose KV that work finds present.
    pub(crate) decode_kv_tokens: u64,
    /// What it cost.
    pub(crate) price: PassPrice,
    /// KV blocks held by requests once it was planned.
    pub(crate) used_blocks: u32,
    /// KV blocks there are to hold.
    pub(crate) usable_blocks: u32,
    /// Requests in the running list once it was planned.
    pub(crate) running: u32,
    /// Requests in the queue once it was planned.
    pub(crate) waiting: u32,
    /// The requests in it, in scheduling order. Those that decode in step are left out: one token each.
    pub(crate) shares: Vec<PassShare>,
    /// Who was preempted while it was planned, in order.
    pub(crate) preempted: Vec<RequestId>,
    /// Why those who wait are not in it; absent if nobody waits. Not known of engines in which requests decode in
    /// step.
    pub(crate) blocked: Option<Blocked>,
}

impl PassDetail {
    /// Its work in a word.
    pub(crate) const fn kind(&self) -> &'static str {
        match (self.prefill_requests, self.decode_requests) {
            (0, 0) => "none",
            (_, 0) => "prefill",
            (0, _) => "decode",
            (_, _) => "mixed",
        }
    }
}

/// One request's share of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PassShare {
    /// Who.
    pub(crate) request: RequestId,
    /// Tokens to compute, drafts included.
    pub(crate) tokens: u32,
    /// Tokens whose KV was there before: for admitted requests those found in the cache.
    pub(crate) computed_before: u32,
    /// How it came in.
    pub(crate) entry: Entry,
    /// Whether prompt is left after the pass.
    pub(crate) is_chunk: bool,
    /// Whether it decodes.
    pub(crate) is_decode: bool,
    /// Output tokens it got.
    pub(crate) emitted_tokens: u32,
}

/// What the price of a pass consists of, before it is rounded to nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PassPrice {
    /// For its prefill work, corrected.
    pub(crate) prefill_ms: f64,
    /// For its decode work, corrected.
    pub(crate) decode_ms: f64,
    /// For making drafts before it.
    pub(crate) draft_ms: f64,
    /// What the host adds to that.
    pub(crate) host_ms: f64,
    /// What a pass of its decode work alone would cost, host included; known for mixed passes, if asked for.
    pub(crate) decode_only_ms: Option<f64>,
}
