//! The `engine.sglang` part of a scenario: SGLang's own server arguments, with the defaults of release
//! 0.5.23.

pub(crate) mod defaults;
pub(crate) mod speculative;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::config::ConfigError;
pub(crate) use crate::kv::radix::EvictionPolicy;

use self::defaults::Device;
use self::speculative::{Speculation, SpeculativeAlgorithm};

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
    /// The start-up log of an engine that states its pool.
    pub(crate) kv_cache_log: Option<PathBuf>,
    /// Share of the accelerator's free memory for weights and KV, above 0, below 1. Absent: SGLang's own choice. It
    /// only counts where the pool follows from the memory.
    pub(crate) mem_fraction_static: Option<f64>,
    /// Whether weights and KV may be more than the accelerator's memory holds.
    pub(crate) allow_overcommit: bool,
    /// Whether `context_length` may be more than the model's own (SGLang's
    /// `SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN`).
    pub(crate) allow_overwrite_longer_context_len: bool,
    /// Largest decode batch that a CUDA graph is captured for; a larger one runs without. Absent: by the
    /// accelerator's memory, at most `max_running_requests` if that is given.
    pub(crate) cuda_graph_max_bs_decode: Option<u32>,
    /// Whether passes run without CUDA graphs, whose memory then is KV.
    pub(crate) disable_cuda_graph: bool,
    /// Requests that may run at once, at most one for two tokens of the pool. Absent: from 2048 to 4096, by how often
    /// the pool holds the longest sequence; 48 with speculation.
    pub(crate) max_running_requests: Option<u32>,
    /// Requests that may wait; more are turned away. Absent: no limit.
    pub(crate) max_queued_requests: Option<u32>,
    /// Tokens of prefill from which on a pass admits nobody else.
    pub(crate) max_prefill_tokens: u32,
    /// Requests in a prefill pass. Absent: no limit.
    pub(crate) prefill_max_requests: Option<u32>,
    /// Most tokens of a prefill pass, beyond which a prompt is split; -1: prompts are not split. A multiple of
    /// `page_size`. Absent: by the accelerator's memory.
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
    /// Speculative decoding: where drafts come from. Absent: none, and what follows means nothing.
    pub(crate) speculative_algorithm: Option<SpeculativeAlgorithm>,
    /// Drafts one behind the other. Absent: by the algorithm, as the next two.
    pub(crate) speculative_num_steps: Option<u32>,
    /// Branches of every draft: 1 is a chain. With n-grams it follows from `speculative_ngram_max_bfs_breadth`.
    pub(crate) speculative_eagle_topk: Option<u32>,
    /// Tokens that a round verifies for a request, the one before the drafts included.
    pub(crate) speculative_num_draft_tokens: Option<u32>,
    /// Most branches of n-grams.
    pub(crate) speculative_ngram_max_bfs_breadth: u32,
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
            kv_cache_log: None,
            mem_fraction_static: None,
            allow_overcommit: false,
            allow_overwrite_longer_context_len: false,
            cuda_graph_max_bs_decode: None,
            disable_cuda_graph: false,
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
            speculative_algorithm: None,
            speculative_num_steps: None,
            speculative_eagle_topk: None,
            speculative_num_draft_tokens: None,
            speculative_ngram_max_bfs_breadth: 10,
        }
    }
}

/// The pool of an engine whose model and accelerator nobody names: as much as vLLM's there.
const POOL_TOKENS_WITHOUT_MODEL: u32 = 524_288;

/// The largest number of tokens or requests any limit may name; sums of them fit 32 bits.
pub(crate) const TOKENS_MAX: u32 = 1 << 27;

/// The shortest context: the longest prompt that is served is 7 tokens shorter (C3).
pub(crate) const CONTEXT_MIN: u32 = 8;

/// The largest decode batch that a graph may be captured for.
const GRAPH_BATCH_MAX: u32 = 1 << 16;

/// The largest factor that makes sense: from 1.43 on, all of every limit is expected to be needed (N1).
const CONSERVATIVENESS_MAX: f64 = 1000.0;

impl SglangConfig {
    /// The same configuration with every absent value that the scheduler needs filled in.
    ///
    /// # Errors
    /// What the engine refuses at start, and numbers out of range.
    pub(crate) fn resolve(&self) -> Result<Self, ConfigError> {
        self.check_ranges()?;
        let mut resolved = self.clone();
        resolved.fill_speculative()?;
        resolved.fill_chunk_and_graphs(None);
        let pool = self.max_total_tokens.unwrap_or(POOL_TOKENS_WITHOUT_MODEL);
        let pool = pool - pool % self.page_size;
        if pool < 2 * self.page_size || pool < CONTEXT_MIN {
            let accepted = format!(
                "at most {}, so that the pool holds two pages and {CONTEXT_MIN} tokens",
                self.max_total_tokens.unwrap_or(POOL_TOKENS_WITHOUT_MODEL) / 2
            );
            return Err(ConfigError::new("page_size", self.page_size, accepted));
        }
        resolved.max_total_tokens = Some(pool);
        let context = self.context_length.unwrap_or(pool);
        resolved.context_length = Some(context);
        // C2, V2.
        let by_pool = (f64::from(pool) / f64::from(context) * 512.0) as u32;
        let by_default = match self.speculative_algorithm {
            Some(_) => speculative::RUNNING_MAX,
            None => by_pool.clamp(2048, 4096),
        };
        let running_max = self.max_running_requests.unwrap_or(by_default);
        resolved.max_running_requests = Some(running_max.min(pool / 2));
        resolved.check_engine_start()?;
        Ok(resolved)
    }

    /// Chooses what is absent by the device; no share of the memory where chunk and graphs leave none.
    pub(crate) fn choose_by(&mut self, device: &Device) {
        self.fill_chunk_and_graphs(Some(device));
        let chunk = self.chunked_prefill_size.expect("it was just filled in");
        let graphs = self.cuda_graph_max_bs_decode.filter(|_| !self.disable_cuda_graph);
        let share = device.mem_fraction_static(chunk, self.max_prefill_tokens, graphs);
        self.mem_fraction_static = self.mem_fraction_static.or((share > 0.0).then_some(share));
    }

    fn fill_chunk_and_graphs(&mut self, device: Option<&Device>) {
        let (chunk, graphs) = device.map_or(defaults::UNKNOWN, Device::chunk_and_graph_batch);
        self.chunked_prefill_size.get_or_insert(chunk);
        // Larger batches than can run need no graph.
        let graphs = graphs.min(self.max_running_requests.unwrap_or(u32::MAX));
        self.cuda_graph_max_bs_decode.get_or_insert(graphs);
    }

    /// The context unless it is given: what the model can.
    ///
    /// # Errors
    /// It is given, and more than the model can.
    pub(crate) fn limit_context(&mut self, model_tokens: u32) -> Result<(), ConfigError> {
        if let Some(tokens) = self.context_length
            && tokens > model_tokens
            && !self.allow_overwrite_longer_context_len
        {
            let accepted = format!(
                "at most {model_tokens}, as the model has it, unless allow_overwrite_longer_context_len is set"
            );
            return Err(ConfigError::new("context_length", tokens, accepted));
        }
        self.context_length.get_or_insert(model_tokens.min(TOKENS_MAX));
        Ok(())
    }

    /// The decode batches that CUDA graphs are captured for, ascending. Only for a resolved configuration.
    pub(crate) fn captured_batches(&self) -> Vec<u32> {
        if self.disable_cuda_graph {
            return Vec::new();
        }
        let seen = "a resolved configuration has every value";
        let largest = self.cuda_graph_max_bs_decode.expect(seen);
        let speculates = self.speculative_algorithm.is_some();
        let running_max = self.max_running_requests.expect(seen);
        defaults::captured_decode_batches(largest, running_max, speculates)
    }

    /// # Errors
    /// A number that is out of range by itself.
    pub(crate) fn check_ranges(&self) -> Result<(), ConfigError> {
        for (path, value, least, most) in [
            ("context_length", self.context_length, CONTEXT_MIN, TOKENS_MAX),
            ("max_total_tokens", self.max_total_tokens, CONTEXT_MIN, TOKENS_MAX),
            ("max_running_requests", self.max_running_requests, 1, TOKENS_MAX),
            ("max_queued_requests", self.max_queued_requests, 1, TOKENS_MAX),
            ("max_prefill_tokens", Some(self.max_prefill_tokens), 1, TOKENS_MAX),
            ("prefill_max_requests", self.prefill_max_requests, 1, TOKENS_MAX),
            ("page_size", Some(self.page_size), 1, TOKENS_MAX),
            ("cuda_graph_max_bs_decode", self.cuda_graph_max_bs_decode, 1, GRAPH_BATCH_MAX),
        ] {
            if let Some(value) = value
                && !(least..=most).contains(&value)
            {
                let accepted = format!("an integer from {least} to {most}");
                return Err(ConfigError::new(path, value, accepted));
            }
        }
        if let Some(chunk) = self.chunked_prefill_size
            && !(-1..=i64::from(TOKENS_MAX)).contains(&chunk.into())
        {
            let accepted = format!("an integer from 1 to {TOKENS_MAX}, or -1 to split no prompt");
            return Err(ConfigError::new("chunked_prefill_size", chunk, accepted));
        }
        if let Some(share) = self.mem_fraction_static
            && !(share > 0.0 && share < 1.0)
        {
            let accepted = "a share above 0, below 1";
            return Err(ConfigError::new("mem_fraction_static", share, accepted));
        }
        let factor = self.schedule_conservativeness;
        if !(0.0..=CONSERVATIVENESS_MAX).contains(&factor) {
            let accepted = "a number from 0 to 1000";
            return Err(ConfigError::new("schedule_conservativeness", factor, accepted));
        }
        let threshold = self.priority_scheduling_preemption_threshold;
        if threshold < 0 {
            let accepted = "an integer of at least 0";
            let path = "priority_scheduling_preemption_threshold";
            return Err(ConfigError::new(path, threshold, accepted));
        }
        self.check_speculative_ranges()
    }

    /// What SGLang refuses at start. Only for a configuration without absent values.
    fn check_engine_start(&self) -> Result<(), ConfigError> {
        let chunk = self.chunked_prefill_size.expect("every value is filled in");
        if chunk > 0 && !chunk.unsigned_abs().is_multiple_of(self.page_size) {
            let accepted = format!("a multiple of page_size ({})", self.page_size);
            return Err(ConfigError::new("chunked_prefill_size", chunk, accepted));
        }
        let by_arrival = matches!(self.schedule_policy, SchedulePolicy::Fcfs | SchedulePolicy::Lof);
        if self.enable_priority_scheduling && !by_arrival {
            let found = "true";
            let accepted = "false, or the schedule_policy fcfs or lof";
            return Err(ConfigError::new("enable_priority_scheduling", found, accepted));
        }
        if self.retraction_policy == RetractionPolicy::Priority && !self.enable_priority_scheduling
        {
            let accepted = "length, or enable_priority_scheduling";
            return Err(ConfigError::new("retraction_policy", "priority", accepted));
        }
        Ok(())
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
    /// Speculative decoding, if there is any.
    pub(crate) speculation: Option<Speculation>,
}

impl Limits {
    /// The output limit of a request with a prompt of `prompt_tokens` that asks for `max_tokens` (A2).
    pub(crate) fn clipped_output(&self, prompt_tokens: u32, max_tokens: u32) -> u32 {
        let of_sequence = self.request_tokens_max.saturating_sub(prompt_tokens).saturating_sub(1);
        let page_tokens = u64::from(self.page_tokens);
        let in_pages = u64::from(prompt_tokens).next_multiple_of(page_tokens) + page_tokens + 1;
        let of_pool = u64::from(self.pool_tokens).saturating_sub(in_pages);
        max_tokens.min(of_sequence).min(of_pool as u32)
    }

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
            speculation: Speculation::of(config),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(change: impl FnOnce(&mut SglangConfig)) -> Result<SglangConfig, ConfigError> {
        let mut config = SglangConfig::default();
        change(&mut config);
        config.resolve()
    }

    const H100: Device = Device {
        memory_mib: 81_559.0,
        tensor_parallel_size: 1,
        pipeline_parallel_size: 1,
        mla: false,
    };

    #[test]
    fn without_a_device_the_defaults_are_those_of_an_unknown_one() {
        let c = resolved(|_| ()).unwrap();
        assert_eq!((c.chunked_prefill_size, c.cuda_graph_max_bs_decode), (Some(4096), Some(160)));
        assert_eq!((c.max_total_tokens, c.context_length), (Some(524_288), Some(524_288)));
        // The pool holds one sequence: 512, raised to 2048.
        assert_eq!(c.max_running_requests, Some(2048));
        assert_eq!(c.mem_fraction_static, None);
    }

    #[test]
    fn a_device_chooses_what_is_absent() {
        let mut c = SglangConfig::default();
        c.choose_by(&H100);
        assert_eq!((c.chunked_prefill_size, c.cuda_graph_max_bs_decode), (Some(8192), Some(256)));
        assert_eq!(c.mem_fraction_static, Some(0.83));
        // Fewer requests need fewer graphs: (81,559 - 13,424) / 81,559.
        let mut c = SglangConfig { max_running_requests: Some(16), ..SglangConfig::default() };
        c.choose_by(&H100);
        assert_eq!((c.cuda_graph_max_bs_decode, c.mem_fraction_static), (Some(16), Some(0.835)));
        let mut given = SglangConfig {
            chunked_prefill_size: Some(-1),
            cuda_graph_max_bs_decode: Some(64),
            mem_fraction_static: Some(0.5),
            max_running_requests: Some(16),
            ..SglangConfig::default()
        };
        let before = given.clone();
        given.choose_by(&H100);
        assert_eq!(given, before);
        let mut all = SglangConfig { max_prefill_tokens: 100_000, ..before };
        all.mem_fraction_static = None;
        all.choose_by(&H100);
        assert_eq!(all.mem_fraction_static, None);
    }

    #[test]
    fn seats_follow_from_pool_and_context() {
        let seats = |pool, context, given| {
            let c = resolved(|c| {
                (c.max_total_tokens, c.context_length) = (Some(pool), Some(context));
                c.max_running_requests = given;
            });
            c.unwrap().max_running_requests.unwrap()
        };
        // 600,000 / 100,000 * 512 = 3072.
        assert_eq!(seats(600_000, 100_000, None), 3072);
        assert_eq!(seats(600_000, 8192, None), 4096);
        assert_eq!(seats(600_000, 600_000, None), 2048);
        // Two tokens each.
        assert_eq!(seats(1001, 1001, None), 500);
        assert_eq!(seats(1001, 1001, Some(9000)), 500);
        assert_eq!(seats(1001, 1001, Some(1)), 1);
    }

    #[test]
    fn a_resolved_configuration_resolves_to_itself() {
        for page_size in [1, 16, 64] {
            let once = resolved(|c| {
                (c.page_size, c.max_total_tokens) = (page_size, Some(1000));
                c.choose_by(&H100);
            });
            let once = once.unwrap();
            assert_eq!(once.max_total_tokens, Some(1000 / page_size * page_size));
            assert_eq!(once.resolve().unwrap(), once);
            let mut again = once.clone();
            again.choose_by(&H100);
            assert_eq!(again, once);
        }
    }

    #[test]
    fn what_the_engine_refuses_at_start_is_refused() {
        type Change = fn(&mut SglangConfig);
        let cases: [(Change, &str); 12] = [
            (|c| c.page_size = 0, "`page_size` is 0, expected an integer from 1"),
            (
                |c| (c.page_size, c.chunked_prefill_size) = (64, Some(100)),
                "`chunked_prefill_size` is 100, expected a multiple of page_size (64)",
            ),
            (
                |c| (c.page_size, c.max_total_tokens) = (64, Some(127)),
                "`page_size` is 64, expected at most 63",
            ),
            (|c| c.context_length = Some(7), "`context_length` is 7"),
            (|c| c.max_total_tokens = Some(7), "`max_total_tokens` is 7"),
            (|c| c.chunked_prefill_size = Some(-2), "`chunked_prefill_size` is -2"),
            (|c| c.schedule_conservativeness = f64::NAN, "`schedule_conservativeness` is NaN"),
            (|c| c.schedule_conservativeness = -0.1, "`schedule_conservativeness` is -0.1"),
            (|c| c.mem_fraction_static = Some(1.0), "`mem_fraction_static` is 1"),
            (
                |c| {
                    c.enable_priority_scheduling = true;
                    c.schedule_policy = SchedulePolicy::Lpm;
                },
                "`enable_priority_scheduling` is true, expected false, or the schedule_policy fcfs",
            ),
            (
                |c| c.retraction_policy = RetractionPolicy::Priority,
                "`retraction_policy` is priority, expected length",
            ),
            (
                |c| c.priority_scheduling_preemption_threshold = -1,
                "`priority_scheduling_preemption_threshold` is -1",
            ),
        ];
        for (change, expected) in cases {
            let error = resolved(change).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(resolved(|c| (c.page_size, c.max_total_tokens) = (64, Some(128))).is_ok());
        // Without chunks there is nothing to divide, and nothing to mix with.
        let unchunked = resolved(|c| {
            (c.page_size, c.chunked_prefill_size) = (64, Some(-1));
            c.enable_mixed_chunk = true;
        });
        let limits = Limits::of(&unchunked.unwrap());
        assert_eq!((limits.chunk_tokens, limits.mixes), (None, false));
    }

    #[test]
    fn the_context_is_the_models_unless_it_is_overwritten() {
        let mut c = SglangConfig::default();
        c.limit_context(8192).unwrap();
        assert_eq!(c.context_length, Some(8192));
        c.context_length = Some(8193);
        assert_eq!(c.limit_context(8192).unwrap_err().path, "context_length");
        c.allow_overwrite_longer_context_len = true;
        assert_eq!(c.limit_context(8192), Ok(()));
    }

    #[test]
    fn graphs_are_captured_unless_they_are_off() {
        let c = resolved(|c| c.max_running_requests = Some(10)).unwrap();
        assert_eq!(c.captured_batches(), [1, 2, 4, 8, 10]);
        assert!(resolved(|c| c.disable_cuda_graph = true).unwrap().captured_batches().is_empty());
    }

    #[test]
    fn names_are_spelt_as_sglang_spells_them() {
        let text = "{schedule_policy: shortest-prefill-first, radix_eviction_policy: slru, retraction_policy: length}";
        let c: SglangConfig = serde_saphyr::from_str(text).unwrap();
        assert_eq!(c.schedule_policy, SchedulePolicy::ShortestPrefillFirst);
        let c: SglangConfig = serde_saphyr::from_str("{schedule_policy: dfs-weight}").unwrap();
        assert_eq!(c.schedule_policy, SchedulePolicy::DfsWeight);
    }
}
