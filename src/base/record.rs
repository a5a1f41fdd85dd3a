//! The facts that engines state and metrics read: one record a finished request, one a pass.

use super::ids::{EngineId, RequestId};
use super::time::{SimDuration, SimTime};

/// Everything known about a request that finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestRecord {
    /// Its place in the workload.
    pub(crate) id: RequestId,
    /// The line of the trace it came from; 0 where there is no trace.
    pub(crate) line: u64,
    /// The engine that served it.
    pub(crate) engine: EngineId,
    /// When it reached the deployment.
    pub(crate) arrival: SimTime,
    /// Start of the first pass that scheduled it.
    pub(crate) first_scheduled: SimTime,
    /// When its first output token became visible.
    pub(crate) first_token: SimTime,
    /// When its last output token became visible.
    pub(crate) last_token: SimTime,
    /// Tokens of its prompt.
    pub(crate) prompt_tokens: u32,
    /// Tokens it generated.
    pub(crate) output_tokens: u32,
    /// Prompt tokens found in the prefix cache at its first admission.
    pub(crate) cached_tokens: u32,
    /// How often it lost its KV and had to recompute.
    pub(crate) preemptions: u32,
    /// What its TTFT is made of; the parts add up to it exactly.
    pub(crate) ttft: TtftParts,
    /// What ended it.
    pub(crate) finish: Finish,
    /// Its priority.
    pub(crate) priority: i32,
    /// The class of its client.
    pub(crate) class: u16,
    /// Its rounds, with speculation.
    pub(crate) rounds: RequestRounds,
}

impl RequestRecord {
    /// Time to first token: arrival to the first visible token.
    pub(crate) const fn ttft(&self) -> SimDuration {
        self.first_token.since(self.arrival)
    }

    /// Arrival to the last visible token.
    pub(crate) const fn e2e(&self) -> SimDuration {
        self.last_token.since(self.arrival)
    }

    /// Arrival to the start of the first pass that scheduled it, frontend time included.
    pub(crate) const fn queue(&self) -> SimDuration {
        self.first_scheduled.since(self.arrival)
    }

    /// Time per output token after the first: (last - first) / (n - 1), rounded to the nearest
    /// nanosecond; `None` for a single token.
    pub(crate) fn tpot(&self) -> Option<SimDuration> {
        let gaps = u64::from(self.output_tokens.checked_sub(1)?);
        let decoding = self.last_token.since(self.first_token).as_ns();
        Some(SimDuration::from_ns((decoding + gaps / 2).checked_div(gaps)?))
    }

    /// Panics if the record contradicts itself: that is a bug of whoever made it.
    pub(crate) fn check(&self) {
        let id = self.id;
        assert!(self.output_tokens > 0, "request {id} finished without output");
        assert!(self.cached_tokens <= self.prompt_tokens, "request {id}: more cached than asked");
        let in_order = self.arrival <= self.first_scheduled
            && self.first_scheduled <= self.first_token
            && self.first_token <= self.last_token;
        assert!(in_order, "request {id} goes back in time: {self:?}");
        assert_eq!(
            self.ttft.total(),
            self.ttft(),
            "request {id}: TTFT is not the sum of its parts"
        );
    }
}

/// What is known about a request that did not finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unserved {
    /// Its place in the workload.
    pub(crate) id: RequestId,
    /// The line of the trace it came from; 0 where there is no trace.
    pub(crate) line: u64,
    /// The engine that holds it, if it reached one.
    pub(crate) engine: Option<EngineId>,
    /// When it reached the deployment.
    pub(crate) arrival: SimTime,
    /// Its priority.
    pub(crate) priority: i32,
    /// The class of its client.
    pub(crate) class: u16,
    /// Tokens of its prompt.
    pub(crate) prompt_tokens: u32,
}

/// The parts of a TTFT, in nanoseconds; their sum is `first_token - arrival`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TtftParts {
    /// Tokenising and HTTP before the engine's queue.
    pub(crate) frontend: SimDuration,
    /// In the engine's queue, until the start of the first pass that schedules it.
    pub(crate) queueing: SimDuration,
    /// Passes that computed new tokens of its prompt.
    pub(crate) prefill: SimDuration,
    /// After its first pass, outside any pass that carries it.
    pub(crate) chunk_wait: SimDuration,
    /// Passes that computed again what a preemption had dropped.
    pub(crate) recompute: SimDuration,
    /// Detokenising the first token.
    pub(crate) detokenize: SimDuration,
}

impl TtftParts {
    /// The sum of the parts.
    pub(crate) fn total(&self) -> SimDuration {
        self.frontend
            + self.queueing
            + self.prefill
            + self.chunk_wait
            + self.recompute
            + self.detokenize
    }
}

/// What ended a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// A stop token.
    Stop,
    /// Its own output limit.
    Length,
    /// The longest sequence the engine serves.
    ModelLength,
}

impl Finish {
    /// Every reason, in the order of the enum.
    pub(crate) const ALL: [Self; 3] = [Self::Stop, Self::Length, Self::ModelLength];

    /// Its name in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ModelLength => "model_length",
        }
    }
}

/// Why a request was not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rejection {
    /// No prompt tokens.
    EmptyPrompt,
    /// No output tokens asked for.
    ZeroOutput,
    /// The prompt leaves no room for an output token within the model length.
    PromptTooLong,
    /// The engine's queue was full.
    QueueFull,
}

impl Rejection {
    /// Every reason, in the order of the enum.
    pub(crate) const ALL: [Self; 4] =
        [Self::EmptyPrompt, Self::ZeroOutput, Self::PromptTooLong, Self::QueueFull];

    /// Its name in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::EmptyPrompt => "empty_prompt",
            Self::ZeroOutput => "zero_output",
            Self::PromptTooLong => "prompt_too_long",
            Self::QueueFull => "queue_full",
        }
    }
}

/// One forward pass, as the metrics see it; or several in a row without a break that are alike but
/// for their length and their KV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PassRecord {
    /// The engine that ran it.
    pub(crate) engine: EngineId,
    /// How many passes these are; at least 1.
    pub(crate) passes: u64,
    /// When the device began the first.
    pub(crate) start: SimTime,
    /// When the device began the last.
    pub(crate) last_start: SimTime,
    /// When the tokens of the last became known to the engine.
    pub(crate) end: SimTime,
    /// Requests with prefill work (recomputation included), in each.
    pub(crate) prefill_requests: u32,
    /// Tokens of that work, in each.
    pub(crate) prefill_tokens: u32,
    /// Requests with decode work, in each.
    pub(crate) decode_requests: u32,
    /// Query tokens of that work, in each.
    pub(crate) decode_tokens: u32,
    /// KV blocks held by requests once the last was planned.
    pub(crate) used_blocks: u32,
    /// The most that were held in any of them.
    pub(crate) used_blocks_max: u32,
    /// Blocks held times nanoseconds, from the start of the first to that of the last.
    pub(crate) used_block_ns: u128,
    /// Requests in the running list once each was planned.
    pub(crate) running: u32,
    /// Requests in the queue once each was planned.
    pub(crate) waiting: u32,
}

impl PassRecord {
    /// The next pass, alike to these, was begun when the last of them ended.
    pub(crate) fn extend(&mut self, end: SimTime, used_blocks: u32) {
        let held = self.end.since(self.last_start);
        self.used_block_ns += u128::from(self.used_blocks) * u128::from(held.as_ns());
        self.passes += 1;
        self.last_start = self.end;
        self.end = end;
        self.used_blocks = used_blocks;
        self.used_blocks_max = self.used_blocks_max.max(used_blocks);
    }
}

/// Drafts of a round that are told apart.
pub(crate) const DRAFTS_MAX: u32 = 16;

/// What the rounds of requests that speculate came to: in each, a request decodes once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rounds {
    /// All rounds.
    pub(crate) rounds: u64,
    /// Those that verified drafts.
    pub(crate) verifying: u64,
    /// Drafts verified.
    pub(crate) drafts: u64,
    /// Drafts accepted, those past the end of a request included.
    pub(crate) accepted: u64,
    /// Tokens that came out.
    pub(crate) tokens: u64,
    /// Rounds that accepted at least so many drafts, from 1 to [`DRAFTS_MAX`].
    pub(crate) accepted_at: [u64; DRAFTS_MAX as usize],
}

impl Rounds {
    /// `rounds` more, each of which verified `drafts` drafts, accepted `accepted` of them and gave `tokens` tokens.
    pub(crate) fn add(&mut self, rounds: u64, drafts: u32, accepted: u32, tokens: u32) {
        self.rounds += rounds;
        self.verifying += if drafts > 0 { rounds } else { 0 };
        self.drafts += rounds * u64::from(drafts);
        self.accepted += rounds * u64::from(accepted);
        self.tokens += rounds * u64::from(tokens);
        for at_least in self.accepted_at.iter_mut().take(accepted as usize) {
            *at_least += rounds;
        }
    }

    /// Those of `other` too.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.rounds += other.rounds;
        self.verifying += other.verifying;
        self.drafts += other.drafts;
        self.accepted += other.accepted;
        self.tokens += other.tokens;
        for (at_least, more) in self.accepted_at.iter_mut().zip(other.accepted_at) {
            *at_least += more;
        }
    }
}

/// What the rounds of one request came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestRounds {
    /// All rounds.
    pub(crate) rounds: u32,
    /// Drafts verified.
    pub(crate) drafts: u32,
    /// Drafts accepted, those past its end included.
    pub(crate) accepted: u32,
}

impl RequestRounds {
    /// `rounds` more, each of which verified `drafts` drafts and accepted `accepted` of them.
    pub(crate) const fn add(&mut self, rounds: u32, drafts: u32, accepted: u32) {
        self.rounds += rounds;
        self.drafts += rounds * drafts;
        self.accepted += rounds * accepted;
    }
}
