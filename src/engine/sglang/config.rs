//! The `engine.sglang` part of a scenario: SGLang's own server arguments, with the defaults of release
//! 0.5.23.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::config::ConfigError;
pub(crate) use crate::kv::radix::EvictionPolicy;

/// One SGLang engine. The names are those of SGLang's server arguments; what is absent follows from the
/// model and the accelerator as in release 0.5.23.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "SGLang's switches, by their own names")]
pub(crate) struct SglangConfig {
    /// Longest sequence, prompt and output, in tokens. Absent: the model's.
    pub(crate) context_length: Option<u32>,
    /// Tokens in the KV pool, rounded down to whole pages. Absent: what fits in the accelerator's memory,
    /// or 524,288 without a model and an accelerator.
    pub(crate) max_total_tokens: Option<u32>,
    /// Share of the accelerator's memory for weights and KV, above 0, below 1. Absent: SGLang's own choice.
    pub(crate) mem_fraction_static: Option<f64>,
    /// Requests that may run at once.
    pub(crate) max_running_requests: Option<u32>,
    /// Requests that may wait; more are turned away. Absent: no limit.
    pub(crate) max_queued_requests: Option<u32>,
    /// Tokens of prefill from which on a pass admits nobody else.
    pub(crate) max_prefill_tokens: u32,
    /// Requests in a prefill pass. Absent: no limit.
    pub(crate) prefill_max_requests: Option<u32>,
    /// Most tokens of a prefill pass, beyond which a prompt is split; -1: prompts are not split.
    pub(crate) chunked_prefill_size: Option<i32>,
    /// Tokens in a page of the KV pool.
    pub(crate) page_size: u32,
    /// Who is admitted first.
    pub(crate) schedule_policy: SchedulePolicy,
    /// How much of their output limit running requests are expected to need: a factor on 0.7.
    pub(crate) schedule_conservativeness: f64,
    /// Whether running requests decode in prefill passes.
    pub(crate) enable_mixed_chunk: bool,
    /// Whether KV is forgotten when its request ends.
    pub(crate) disable_radix_cache: bool,
    /// Which cached KV goes first.
    pub(crate) radix_eviction_policy: EvictionPolicy,
    /// Whether a pass is planned only when the one before has ended.
    pub(crate) disable_overlap_schedule: bool,
    /// Whether priorities count.
    pub(crate) enable_priority_scheduling: bool,
    /// Whether smaller priorities go first; otherwise larger ones do.
    pub(crate) schedule_low_priority_values_first: bool,
    /// By how much a priority has to be better than another's to take its place.
    pub(crate) priority_scheduling_preemption_threshold: i32,
    /// Whether waiting requests never take the place of running ones.
    pub(crate) disable_priority_preemption: bool,
    /// Who loses its KV first when the pool is full.
    pub(crate) retraction_policy: RetractionPolicy,
}

/// The order of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SchedulePolicy {
    /// First come, first served.
    Fcfs,
    /// Longest cached prefix first.
    Lpm,
    /// The subtree of the cache with the most waiting requests first.
    DfsWeight,
    /// Longest output limit first.
    Lof,
    /// Highest ratio of waiting to uncached prompt first.
    Hrrn,
    /// Shortest uncached prompt first.
    ShortestPrefillFirst,
}

/// The order in which running requests lose their KV.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RetractionPolicy {
    /// Fewest outputs first, of those the longest prompt.
    Length,
    /// Worst priority first.
    Priority,
}

impl Default for SglangConfig {
    fn default() -> Self {
        Self {
            context_length: None,
            max_total_tokens: None,
            mem_fraction_static: None,
            max_running_requests: None,
            max_queued_requests: None,
            max_prefill_tokens: 16_384,
            prefill_max_requests: None,
            chunked_prefill_size: None,
            page_size: 1,
            schedule_policy: SchedulePolicy::Fcfs,
            schedule_conservativeness: 1.0,
            enable_mixed_chunk: false,
            disable_radix_cache: false,
            radix_eviction_policy: EvictionPolicy::Lru,
            disable_overlap_schedule: false,
            enable_priority_scheduling: false,
            schedule_low_priority_values_first: false,
            priority_scheduling_preemption_threshold: 10,
            disable_priority_preemption: false,
            retraction_policy: RetractionPolicy::Length,
        }
    }
}

/// The pool of an engine whose model and accelerator nobody names: as much as vLLM's there.
const POOL_TOKENS_WITHOUT_MODEL: u32 = 524_288;

/// The size of a chunk when the accelerator is not known (Z).
const CHUNK_WITHOUT_ACCELERATOR: i32 = 4096;

impl SglangConfig {
    /// The same configuration with every absent value that the scheduler needs filled in.
    ///
    /// # Errors
    /// Numbers that are out of range.
    pub(crate) fn resolve(&self) -> Result<Self, ConfigError> {
        let mut resolved = self.clone();
        let pool = self.max_total_tokens.unwrap_or(POOL_TOKENS_WITHOUT_MODEL);
        let pool = pool / self.page_size * self.page_size;
        let context = self.context_length.unwrap_or(pool);
        resolved.max_total_tokens = Some(pool);
        resolved.context_length = Some(context);
        resolved.chunked_prefill_size =
            Some(self.chunked_prefill_size.unwrap_or(CHUNK_WITHOUT_ACCELERATOR));
        let by_default = (f64::from(pool) / f64::from(context) * 512.0) as u32;
        let running_max = self.max_running_requests.unwrap_or(by_default.clamp(2048, 4096));
        resolved.max_running_requests = Some(running_max.max(1).min(pool / 2));
        Ok(resolved)
    }
}

/// The limits a scheduler works with: a resolved configuration as plain numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "switches of the engine")]
pub(crate) struct Limits {
    /// The pool, in whole pages (C1).
    pub(crate) pool_tokens: u32,
    /// Tokens in a page.
    pub(crate) page_tokens: u32,
    /// Longest sequence, less one (C3).
    pub(crate) request_tokens_max: u32,
    /// Request slots (C2).
    pub(crate) running_max: u32,
    /// Requests that may wait.
    pub(crate) queued_max: u32,
    /// `max_prefill_tokens`.
    pub(crate) prefill_tokens: u32,
    /// Requests in a prefill pass.
    pub(crate) prefill_requests_max: u32,
    /// Chunk size; `None` without chunking (C4).
    pub(crate) chunk_tokens: Option<u32>,
    /// Whether running requests decode in prefill passes.
    pub(crate) mixes: bool,
    /// The policy in force (P2).
    pub(crate) policy: SchedulePolicy,
    /// Initial new-token ratio, its minimum, and its decay (N1).
    pub(crate) ratio: [f64; 3],
    /// Whether KV is kept in a radix cache.
    pub(crate) radix_cache: bool,
    /// Its order of eviction.
    pub(crate) eviction: EvictionPolicy,
    /// One pass planned ahead.
    pub(crate) overlaps: bool,
    /// Whether priorities count.
    pub(crate) by_priority: bool,
    /// Whether smaller priorities go first.
    pub(crate) low_first: bool,
    /// Whether waiting requests may take the place of running ones (Q1).
    pub(crate) preempts: bool,
    /// By how much their priority has to be better.
    pub(crate) preemption_threshold: i32,
    /// Whether retraction looks at priorities.
    pub(crate) retracts_by_priority: bool,
}

impl Limits {
    /// The limits of a configuration that [`SglangConfig::resolve`] gave.
    pub(crate) fn of(config: &SglangConfig) -> Self {
        let seen = "a resolved configuration has every value";
        let pool_tokens = config.max_total_tokens.expect(seen);
        let chunk = config.chunked_prefill_size.expect(seen);
        let chunk_tokens = u32::try_from(chunk).ok().filter(|&tokens| tokens > 0);
        let policy = match config.schedule_policy {
            SchedulePolicy::Lof => SchedulePolicy::Lof,
            policy if !config.disable_radix_cache => policy,
            _ => SchedulePolicy::Fcfs,
        };
        let initial = (0.7 * config.schedule_conservativeness).min(1.0);
        let minimum = initial * 0.14;
        Self {
            pool_tokens,
            page_tokens: config.page_size,
            request_tokens_max: config.context_length.expect(seen).min(pool_tokens) - 1,
            running_max: config.max_running_requests.expect(seen),
            queued_max: config.max_queued_requests.unwrap_or(u32::MAX),
            prefill_tokens: config.max_prefill_tokens,
            prefill_requests_max: config.prefill_max_requests.unwrap_or(u32::MAX),
            chunk_tokens,
            mixes: config.enable_mixed_chunk && chunk_tokens.is_some(),
            policy,
            ratio: [initial, minimum, (initial - minimum) / 600.0],
            radix_cache: !config.disable_radix_cache,
            eviction: config.radix_eviction_policy,
            overlaps: !config.disable_overlap_schedule,
            by_priority: config.enable_priority_scheduling,
            low_first: config.schedule_low_priority_values_first,
            preempts: config.enable_priority_scheduling
                && !config.disable_priority_preemption
                && matches!(policy, SchedulePolicy::Fcfs | SchedulePolicy::Lof),
            preemption_threshold: config.priority_scheduling_preemption_threshold,
            retracts_by_priority: config.retraction_policy == RetractionPolicy::Priority,
        }
    }
}
