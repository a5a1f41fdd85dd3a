//! A run in figures: plain data, in the order and under the names of the report.
//!
//! Unless a field says otherwise, requests that a warm-up or window leaves out count nowhere but
//! in `requests.excluded`, and passes and levels cover the whole run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use super::collector::Outcomes;
use super::rounds::SpeculationSummary;
use super::samples::{Curve, Summary, on_one_line};
use super::slo::Goodput;
use super::trend::QueueTrend;

/// Everything the metrics know at the end of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunSummary {
    /// Which requests count.
    pub(crate) measured: Measured,
    /// What became of the requests.
    pub(crate) requests: RequestsSummary,
    /// Tokens of the completed requests.
    pub(crate) tokens: TokensSummary,
    /// Rates over the span of the counted requests.
    pub(crate) throughput: Throughput,
    /// Requests that met their objectives; `None` where there are none.
    pub(crate) goodput: Option<Goodput>,
    /// Distributions, in milliseconds.
    pub(crate) latency: Latency,
    /// The same distributions as curves.
    pub(crate) curves: Curves,
    /// What the TTFT is made of, in milliseconds.
    pub(crate) ttft_breakdown_ms: TtftBreakdown,
    /// Whether the queue grew while requests arrived; `None` where they arrived within too short a time to say.
    pub(crate) queue_trend: Option<QueueTrend>,
    /// What the prefix cache saved.
    pub(crate) prefix_cache: PrefixCache,
    /// What preemption cost.
    pub(crate) preemptions: Preemptions,
    /// What speculation came to; `None` without it.
    pub(crate) speculation: Option<SpeculationSummary>,
    /// Passes by kind, over all engines.
    pub(crate) passes: PassesSummary,
    /// One entry an engine, in order of its id.
    pub(crate) engines: Vec<EngineSummary>,
    /// One entry a class of clients, in the order of the workload; empty where there are none.
    pub(crate) classes: Vec<ClassSummary>,
}

/// The counted requests of one class of clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClassSummary {
    /// Its name.
    pub(crate) class: String,
    /// Requests that finished.
    pub(crate) completed: u64,
    /// Requests that never entered an engine.
    pub(crate) rejected: u64,
    /// Requests that were still waiting or running when the run ended.
    pub(crate) unfinished: u64,
    /// Tokens of the completed requests.
    pub(crate) tokens: TokensSummary,
    /// Requests that met their objectives, of all of this class; `None` where there are none.
    pub(crate) goodput: Option<Goodput>,
    /// As in [`Latency`], of this class.
    pub(crate) ttft_ms: Summary,
    /// As in [`Latency`], of this class.
    pub(crate) tpot_ms: Summary,
    /// As in [`Latency`], of this class.
    pub(crate) e2e_ms: Summary,
    /// As in [`Latency`], of this class.
    pub(crate) queue_ms: Summary,
}

/// The rule by which requests count; all `None` counts every request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// The first so many requests of the workload are left out.
    pub(crate) warmup_requests: Option<u32>,
    /// Requests that arrive before this time are left out.
    pub(crate) warmup_ms: Option<f64>,
    /// Requests that arrive before this time are left out.
    pub(crate) window_from_ms: Option<f64>,
    /// Requests that arrive at this time or later are left out.
    pub(crate) window_to_ms: Option<f64>,
}

/// What became of the requests: input = completed + rejected + unfinished + excluded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestsSummary {
    /// Requests of the workload.
    pub(crate) input: u64,
    /// What became of all of them, left out of the statistics or not.
    pub(crate) all: Outcomes,
    /// Counted requests that finished.
    pub(crate) completed: u64,
    /// Counted requests that never entered an engine.
    pub(crate) rejected: Reasons,
    /// Counted requests that were still waiting or running when the run ended.
    pub(crate) unfinished: u64,
    /// Requests that a warm-up or window left out, whatever became of them.
    pub(crate) excluded: u64,
    /// What ended the completed requests.
    pub(crate) finish: BTreeMap<String, u64>,
}

/// A count by reason; every reason is named, also those of count 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reasons {
    /// The sum over the reasons.
    pub(crate) total: u64,
    /// Count by reason.
    #[serde(flatten)]
    pub(crate) by_reason: BTreeMap<String, u64>,
}

/// Tokens of the completed requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TokensSummary {
    /// Prompt tokens, found in the cache or not.
    pub(crate) prompt: u64,
    /// Prompt tokens found in the cache at the first admission.
    pub(crate) cached: u64,
    /// Generated tokens.
    pub(crate) output: u64,
}

/// Completed requests and their tokens over the span; `None` where the span is 0.
#[expect(clippy::struct_field_names, reason = "the unit ends a name")]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Throughput {
    /// From the first arrival of a counted request to the last token of one; `None` where none
    /// completed.
    pub(crate) span_s: Option<f64>,
    /// Completed requests per second.
    pub(crate) requests_per_s: Option<f64>,
    /// Prompt tokens per second, cached ones included.
    pub(crate) input_tokens_per_s: Option<f64>,
    /// Generated tokens per second.
    pub(crate) output_tokens_per_s: Option<f64>,
    /// Both kinds of tokens per second.
    pub(crate) total_tokens_per_s: Option<f64>,
}

/// The distributions of the completed requests.
#[expect(clippy::struct_field_names, reason = "the unit ends a name")]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// First token - arrival.
    pub(crate) ttft_ms: Summary,
    /// (Last token - first token) / (n - 1) of requests with n >= 2 tokens, each a sample.
    pub(crate) tpot_ms: Summary,
    /// Gaps between consecutive visible tokens, each a sample.
    pub(crate) itl_ms: Summary,
    /// Gaps between consecutive emissions of a request, each a sample: what a client sees of chunks. Without
    /// speculation each token is an emission.
    pub(crate) emission_gap_ms: Summary,
    /// Last token - arrival.
    pub(crate) e2e_ms: Summary,
    /// Start of the first pass that scheduled the request - arrival.
    pub(crate) queue_ms: Summary,
}

/// The distributions of [`Latency`] as percentiles in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Curves {
    /// Which percentiles.
    #[serde(serialize_with = "percents_on_one_line")]
    pub(crate) percents: Vec<f64>,
    /// As in [`Latency`], like the others.
    pub(crate) ttft_ms: Curve,
    pub(crate) tpot_ms: Curve,
    pub(crate) itl_ms: Curve,
    pub(crate) emission_gap_ms: Curve,
    pub(crate) e2e_ms: Curve,
    pub(crate) queue_ms: Curve,
}

fn percents_on_one_line<S: Serializer>(percents: &[f64], to: S) -> Result<S::Ok, S::Error> {
    on_one_line(percents, to)
}

/// The parts of the TTFT; their means add up to its mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TtftBreakdown {
    /// Tokenising and HTTP before the engine's queue.
    pub(crate) frontend: TtftPart,
    /// In the engine's queue.
    pub(crate) queueing: TtftPart,
    /// Passes that computed new tokens of the prompt.
    pub(crate) prefill: TtftPart,
    /// Between passes that carry the request.
    pub(crate) chunk_wait: TtftPart,
    /// Passes that computed again what a preemption had dropped.
    pub(crate) recompute: TtftPart,
    /// Detokenising the first token.
    pub(crate) detokenize: TtftPart,
}

/// One part of the TTFT.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TtftPart {
    /// Its mean over the mean TTFT.
    pub(crate) share_ratio: Option<f64>,
    /// Its distribution over the completed requests, zeros included.
    #[serde(flatten)]
    pub(crate) summary: Summary,
}

/// What the prefix cache saved the completed requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PrefixCache {
    /// Cached over prompt tokens.
    pub(crate) hit_ratio: Option<f64>,
}

/// How often completed requests lost their KV.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Preemptions {
    /// Preemptions of completed requests.
    pub(crate) total: u64,
    /// Completed requests that were preempted at least once.
    pub(crate) requests: u64,
}

/// All passes of the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PassesSummary {
    /// Passes of all kinds.
    pub(crate) total: u64,
    /// From the start of the first pass to the end of the last.
    pub(crate) span_ms: f64,
    /// Sum of the passes' durations.
    pub(crate) busy_ms: f64,
    /// Busy time over span times engines.
    pub(crate) busy_ratio: Option<f64>,
    /// Passes with prefill work only.
    pub(crate) prefill_only: PassKindSummary,
    /// Passes with decode work only.
    pub(crate) decode_only: PassKindSummary,
    /// Passes with both.
    pub(crate) mixed: PassKindSummary,
}

/// The passes of one kind; means are per pass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PassKindSummary {
    /// Passes.
    pub(crate) count: u64,
    /// Sum of their durations.
    pub(crate) busy_ms: f64,
    /// Mean duration.
    pub(crate) pass_ms_mean: Option<f64>,
    /// Mean prefill tokens.
    pub(crate) prefill_tokens_mean: Option<f64>,
    /// Mean decode query tokens.
    pub(crate) decode_tokens_mean: Option<f64>,
    /// Mean decoding requests.
    pub(crate) decode_requests_mean: Option<f64>,
}

/// One engine over the span of the passes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct EngineSummary {
    /// Its id.
    pub(crate) engine: u32,
    /// Its passes.
    pub(crate) passes: u64,
    /// Sum of their durations.
    pub(crate) busy_ms: f64,
    /// Busy time over the span.
    pub(crate) busy_ratio: Option<f64>,
    /// Its KV pool.
    pub(crate) kv: KvSummary,
    /// Requests in its running list.
    pub(crate) running: Level<u32>,
    /// Requests in its queue.
    pub(crate) waiting: Level<u32>,
}

/// The KV that requests held in one engine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct KvSummary {
    /// Blocks of the pool.
    pub(crate) capacity_blocks: Option<u32>,
    /// Blocks held by requests.
    pub(crate) used_blocks: Level<u32>,
    /// The same over the capacity.
    pub(crate) used_ratio: Level<f64>,
}

/// A level over time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Level<T> {
    /// Time-weighted mean.
    pub(crate) mean: Option<f64>,
    /// The highest level.
    pub(crate) max: Option<T>,
}
