//! The `engine.trtllm` part of a scenario: TensorRT-LLM's own options, with the defaults of its `LlmArgs`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::speculative::{Speculation, SpeculativeConfig};
use crate::base::config::ConfigError;
use crate::model::memory::trtllm::FreeOptions;

/// One TensorRT-LLM engine, run by its `PyExecutor`. The names, and how they nest, are those of its YAML file of options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TrtllmConfig {
    /// Requests that are active at once, at most.
    pub(crate) max_batch_size: u32,
    /// Tokens that one pass may compute.
    pub(crate) max_num_tokens: u32,
    /// Longest sequence, prompt and output, in tokens; lowered to what the pool holds. Absent: as much as the model
    /// can.
    pub(crate) max_seq_len: Option<u32>,
    /// Whether a prompt may be spread over several passes.
    pub(crate) enable_chunked_prefill: bool,
    /// Whether the next pass is planned only when the one before has ended.
    pub(crate) disable_overlap_scheduler: bool,
    /// Whether weights and KV may be more than the accelerator's memory holds.
    pub(crate) allow_overcommit: bool,
    /// The KV pool.
    pub(crate) kv_cache_config: KvCacheConfig,
    /// Who is served.
    pub(crate) scheduler_config: SchedulerConfig,
    /// Passes that prompts wait for others to be batched with, beside requests that decode; 0: they do not wait.
    pub(crate) batch_wait_timeout_iters: u32,
    /// Share of `max_num_tokens` from which on a pass is full enough not to wait, from 0 to 1; 0: prompts do not
    /// wait.
    pub(crate) batch_wait_max_tokens_ratio: f64,
    /// Whether every device has requests, KV and attention of its own.
    pub(crate) enable_attention_dp: bool,
    /// How such devices wait for each other.
    pub(crate) attention_dp_config: AttentionDpConfig,
    /// CUDA graphs for passes that only decode.
    pub(crate) cuda_graph_config: CudaGraphConfig,
    /// Speculative decoding. Absent: none.
    pub(crate) speculative_config: Option<SpeculativeConfig>,
}

/// The KV pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct KvCacheConfig {
    /// Tokens in a KV block: a power of two.
    pub(crate) tokens_per_block: u32,
    /// Share of the memory that weights and passes leave which is KV, above 0, at most 1. It only counts where the
    /// pool follows from the memory.
    pub(crate) free_gpu_memory_fraction: f64,
    /// Tokens of the pool, at most. Absent: as many as the accelerator's memory gives, or 524,288 without one.
    pub(crate) max_tokens: Option<u32>,
    /// Whether blocks are kept and found again by their content.
    pub(crate) enable_block_reuse: bool,
    /// Whether a block that agrees in part is reused, too: not modelled, so only `false`.
    pub(crate) enable_partial_reuse: bool,
}

/// Who is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SchedulerConfig {
    /// Whose KV has a place in the pool.
    pub(crate) capacity_scheduler_policy: CapacitySchedulerPolicy,
    /// How prompts share the tokens of a pass, with `enable_chunked_prefill`.
    pub(crate) context_chunking_policy: ContextChunkingPolicy,
}

/// Whose KV has a place in the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum CapacitySchedulerPolicy {
    /// Who can be served to the end beside those that run.
    #[default]
    GuaranteedNoEvict,
    /// Who has room for its next pass; if there is none, those that started last are paused.
    MaxUtilization,
    /// As `GUARANTEED_NO_EVICT`, but nobody joins before all that run have ended.
    StaticBatch,
}

/// How prompts share the tokens of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum ContextChunkingPolicy {
    /// The first gets as much as it can use, then the next.
    #[default]
    FirstComeFirstServed,
    /// Everybody gets a block's worth of tokens, again and again.
    EqualProgress,
}

/// How devices with requests of their own wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AttentionDpConfig {
    /// Whether they do.
    pub(crate) enable_balance: bool,
    /// Passes that prompts wait for every device to have some.
    pub(crate) timeout_iters: u32,
    /// Passes that prompts wait for more prompts, once every device has some.
    pub(crate) batching_wait_iters: u32,
}

/// CUDA graphs for passes that only decode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CudaGraphConfig {
    /// Batch sizes that graphs are captured for. Absent: those that follow from `max_batch_size`.
    pub(crate) batch_sizes: Option<Vec<u32>>,
    /// The largest of them; 0: 128.
    pub(crate) max_batch_size: u32,
    /// Whether a batch runs with the next larger graph. Without, other batches run without a graph.
    pub(crate) enable_padding: bool,
}

impl Default for TrtllmConfig {
    fn default() -> Self {
        Self {
            max_batch_size: 2048,
            max_num_tokens: 8192,
            max_seq_len: None,
            enable_chunked_prefill: false,
            disable_overlap_scheduler: false,
            allow_overcommit: false,
            kv_cache_config: KvCacheConfig::default(),
            scheduler_config: SchedulerConfig::default(),
            batch_wait_timeout_iters: 0,
            batch_wait_max_tokens_ratio: 0.0,
            enable_attention_dp: false,
            attention_dp_config: AttentionDpConfig::default(),
            cuda_graph_config: CudaGraphConfig::default(),
            speculative_config: None,
        }
    }
}

impl Default for KvCacheConfig {
    fn default() -> Self {
        Self {
            tokens_per_block: 32,
            free_gpu_memory_fraction: 0.9,
            max_tokens: None,
            enable_block_reuse: true,
            enable_partial_reuse: false,
        }
    }
}

impl Default for AttentionDpConfig {
    fn default() -> Self {
        Self { enable_balance: false, timeout_iters: 50, batching_wait_iters: 10 }
    }
}

/// The pool of an engine whose model and accelerator nobody names, in tokens.
const TOKENS_WITHOUT_MODEL: u32 = 524_288;

/// The largest number of tokens any limit may name; sums and products of it fit 64 bits.
pub(crate) const TOKENS_MAX: u32 = 1 << 27;

/// The largest graph unless it is given.
const GRAPH_SIZE: u32 = 128;

impl TrtllmConfig {
    /// Fills in what is absent, and checks.
    ///
    /// # Errors
    /// Numbers out of range, what is not modelled, and what the engine cannot be set up with.
    pub(crate) fn resolve(&self) -> Result<Self, ConfigError> {
        self.check_ranges()?;
        let mut resolved = self.clone();
        let kv = &mut resolved.kv_cache_config;
        let tokens = kv.max_tokens.unwrap_or(TOKENS_WITHOUT_MODEL.max(kv.tokens_per_block));
        let pool = tokens - tokens % kv.tokens_per_block;
        if pool == 0 {
            let accepted = format!("at least tokens_per_block ({})", kv.tokens_per_block);
            return Err(ConfigError::new("kv_cache_config.max_tokens", tokens, accepted));
        }
        kv.max_tokens = Some(pool);
        resolved.check_passes()?;
        if let Some(config) = &self.speculative_config {
            resolved.disable_overlap_scheduler |= !config.decoding_type.overlaps();
        }
        // What the pool cannot hold cannot be served (K2).
        resolved.max_seq_len = Some(self.max_seq_len.unwrap_or(pool).min(pool));
        Ok(resolved)
    }

    /// A pass that has no room for a block would never compute the prompts that have to be divided, and one that has
    /// none for a round would never decode.
    fn check_passes(&self) -> Result<(), ConfigError> {
        let block = self.kv_cache_config.tokens_per_block;
        let policy = self.scheduler_config.capacity_scheduler_policy;
        let divides =
            self.enable_chunked_prefill || policy == CapacitySchedulerPolicy::MaxUtilization;
        if divides && self.max_num_tokens < block {
            let accepted = format!("at least kv_cache_config.tokens_per_block ({block})");
            return Err(ConfigError::new("max_num_tokens", self.max_num_tokens, accepted));
        }
        let round_tokens = Speculation::of(self.speculative_config.as_ref()).round_tokens();
        if self.max_num_tokens < round_tokens {
            let accepted = format!("at least {round_tokens}, for a token and its drafts");
            return Err(ConfigError::new("max_num_tokens", self.max_num_tokens, accepted));
        }
        Ok(())
    }

    /// The longest sequence unless it is given: what the model can.
    ///
    /// # Errors
    /// It is given, and more than the model can.
    pub(crate) fn limit_sequence(&mut self, model_tokens: u32) -> Result<(), ConfigError> {
        let tokens = self.max_seq_len.unwrap_or(model_tokens);
        if tokens > model_tokens {
            let accepted = format!("at most {model_tokens}, as the model has it");
            return Err(ConfigError::new("max_seq_len", tokens, accepted));
        }
        self.max_seq_len = Some(tokens);
        Ok(())
    }

    /// What decides over the pool that fits, with a model that can `model_tokens` tokens.
    pub(crate) fn memory_options(&self, model_tokens: u32) -> FreeOptions {
        FreeOptions {
            free_gpu_memory_fraction: self.kv_cache_config.free_gpu_memory_fraction,
            tokens_per_block: self.kv_cache_config.tokens_per_block,
            max_seq_len: self.max_seq_len.unwrap_or(model_tokens),
            max_num_tokens: self.max_num_tokens,
            max_batch_size: self.max_batch_size,
        }
    }

    /// Batch sizes at which passes that only decode run: those of CUDA graphs, if batches are padded to them (B6).
    pub(crate) fn captured_batches(&self) -> Vec<u32> {
        let CudaGraphConfig { batch_sizes, max_batch_size, enable_padding } =
            &self.cuda_graph_config;
        if !enable_padding {
            return Vec::new();
        }
        if let Some(sizes) = batch_sizes {
            let mut sizes: Vec<u32> =
                sizes.iter().copied().filter(|&size| size <= self.max_batch_size).collect();
            sizes.sort_unstable();
            sizes.dedup();
            return sizes;
        }
        let largest = if *max_batch_size == 0 { GRAPH_SIZE } else { *max_batch_size };
        let powers = (8..27).map(|exponent| 1 << exponent).filter(|&size| size < largest);
        let sizes = [1, 2, 4].into_iter().chain((8..=128).step_by(8)).chain(powers);
        let mut sizes: Vec<u32> = sizes.filter(|&size| size < largest).collect();
        sizes.push(largest);
        sizes.retain(|&size| size <= self.max_batch_size);
        sizes
    }

    /// Blocks of the pool. Only for a configuration without absent values.
    pub(crate) fn usable_blocks(&self) -> u32 {
        let tokens = self.kv_cache_config.max_tokens.expect("resolve fills every absent value");
        tokens / self.kv_cache_config.tokens_per_block
    }

    /// # Errors
    /// A number that is out of range by itself, or what is not modelled.
    pub(crate) fn check_ranges(&self) -> Result<(), ConfigError> {
        let kv = &self.kv_cache_config;
        let accepted = format!("an integer from 1 to {TOKENS_MAX}");
        for (path, value) in [
            ("max_batch_size", Some(self.max_batch_size)),
            ("max_num_tokens", Some(self.max_num_tokens)),
            ("max_seq_len", self.max_seq_len),
            ("kv_cache_config.max_tokens", kv.max_tokens),
        ] {
            if let Some(value) = value
                && !(1..=TOKENS_MAX).contains(&value)
            {
                return Err(ConfigError::new(path, value, accepted));
            }
        }
        let AttentionDpConfig { timeout_iters, batching_wait_iters, .. } = self.attention_dp_config;
        for (path, passes) in [
            ("batch_wait_timeout_iters", self.batch_wait_timeout_iters),
            ("attention_dp_config.timeout_iters", timeout_iters),
            ("attention_dp_config.batching_wait_iters", batching_wait_iters),
            ("cuda_graph_config.max_batch_size", self.cuda_graph_config.max_batch_size),
        ] {
            if passes > TOKENS_MAX {
                let accepted = format!("an integer from 0 to {TOKENS_MAX}");
                return Err(ConfigError::new(path, passes, accepted));
            }
        }
        for &size in self.cuda_graph_config.batch_sizes.iter().flatten() {
            if !(1..=TOKENS_MAX).contains(&size) {
                return Err(ConfigError::new("cuda_graph_config.batch_sizes", size, accepted));
            }
        }
        if !kv.tokens_per_block.is_power_of_two() || kv.tokens_per_block > TOKENS_MAX {
            let accepted = format!("a power of two from 1 to {TOKENS_MAX}");
            let path = "kv_cache_config.tokens_per_block";
            return Err(ConfigError::new(path, kv.tokens_per_block, accepted));
        }
        let share = kv.free_gpu_memory_fraction;
        if !(share > 0.0 && share <= 1.0) {
            let path = "kv_cache_config.free_gpu_memory_fraction";
            return Err(ConfigError::new(path, share, "a share above 0, at most 1"));
        }
        let ratio = self.batch_wait_max_tokens_ratio;
        if !(0.0..=1.0).contains(&ratio) {
            let accepted = "a share from 0 to 1";
            return Err(ConfigError::new("batch_wait_max_tokens_ratio", ratio, accepted));
        }
        if kv.enable_partial_reuse {
            let accepted = "false: reuse of parts of blocks is not modelled";
            return Err(ConfigError::new("kv_cache_config.enable_partial_reuse", true, accepted));
        }
        self.speculative_config.as_ref().map_or(Ok(()), SpeculativeConfig::check)
    }
}

/// The limits a scheduler works with: a resolved configuration as plain numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limits {
    /// Active requests, at most (A1).
    pub(crate) active_max: u32,
    /// Tokens of a pass (B2).
    pub(crate) pass_tokens: u32,
    /// Longest sequence.
    pub(crate) sequence_tokens: u32,
    /// Tokens in a block.
    pub(crate) block_tokens: u32,
    /// Blocks of the pool.
    pub(crate) usable_blocks: u32,
    /// Whether blocks are found again by content.
    pub(crate) reuses_blocks: bool,
    /// Whose KV has a place.
    pub(crate) capacity: CapacitySchedulerPolicy,
    /// How prompts are split; `None`: they are not.
    pub(crate) chunking: Option<ContextChunkingPolicy>,
    /// One pass planned ahead.
    pub(crate) overlaps: bool,
    /// Passes that prompts wait to be batched (W1).
    pub(crate) batch_wait_passes: u32,
    /// Tokens from which on they do not.
    pub(crate) batch_wait_tokens: f64,
    /// Whether devices have requests of their own.
    pub(crate) attention_dp: bool,
    /// Their waits, if they wait (W3).
    pub(crate) balance: Option<(u32, u32)>,
    /// What speculation means for the schedule.
    pub(crate) speculation: Speculation,
}

impl Limits {
    /// The limits of a configuration that [`TrtllmConfig::resolve`] gave.
    pub(crate) fn of(config: &TrtllmConfig) -> Self {
        let AttentionDpConfig { enable_balance, timeout_iters, batching_wait_iters } =
            config.attention_dp_config;
        let balances = config.enable_attention_dp && enable_balance;
        Self {
            active_max: config.max_batch_size,
            pass_tokens: config.max_num_tokens,
            sequence_tokens: config.max_seq_len.expect("resolve fills every absent value"),
            block_tokens: config.kv_cache_config.tokens_per_block,
            usable_blocks: config.usable_blocks(),
            reuses_blocks: config.kv_cache_config.enable_block_reuse,
            capacity: config.scheduler_config.capacity_scheduler_policy,
            chunking: config
                .enable_chunked_prefill
                .then_some(config.scheduler_config.context_chunking_policy),
            overlaps: !config.disable_overlap_scheduler,
            batch_wait_passes: config.batch_wait_timeout_iters,
            batch_wait_tokens: config.batch_wait_max_tokens_ratio
                * f64::from(config.max_num_tokens),
            attention_dp: config.enable_attention_dp,
            balance: balances.then_some((timeout_iters, batching_wait_iters)),
            speculation: Speculation::of(config.speculative_config.as_ref()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(change: impl FnOnce(&mut TrtllmConfig)) -> Result<TrtllmConfig, ConfigError> {
        let mut config = TrtllmConfig::default();
        change(&mut config);
        config.resolve()
    }

    #[test]
    fn a_sequence_is_at_most_the_pool() {
        let c = resolved(|c| c.kv_cache_config.max_tokens = Some(1000)).unwrap();
        // 31 whole blocks of 32.
        assert_eq!((c.usable_blocks(), c.max_seq_len), (31, Some(992)));
        let c = resolved(|c| {
            (c.kv_cache_config.max_tokens, c.max_seq_len) = (Some(1000), Some(993));
        });
        assert_eq!(c.unwrap().max_seq_len, Some(992));
        let c = resolved(|c| {
            (c.kv_cache_config.max_tokens, c.max_seq_len) = (Some(1000), Some(991));
        });
        assert_eq!(c.unwrap().max_seq_len, Some(991));
    }

    #[test]
    fn graphs_are_those_that_trtllm_captures() {
        let sizes = |largest, seats| {
            let c = resolved(|c| {
                (c.cuda_graph_config.enable_padding, c.max_batch_size) = (true, seats);
                c.cuda_graph_config.max_batch_size = largest;
            });
            c.unwrap().captured_batches()
        };
        // 1, 2, 4 and 16 multiples of 8.
        assert_eq!(sizes(0, 2048).len(), 19);
        assert_eq!(sizes(0, 2048).last(), Some(&128));
        // Powers of two below the largest, and that one itself.
        assert_eq!(sizes(600, 2048)[18..], [128, 256, 512, 600]);
        assert_eq!(sizes(6, 2048), [1, 2, 4, 6]);
        assert_eq!(sizes(0, 20), [1, 2, 4, 8, 16]);
        assert!(TrtllmConfig::default().captured_batches().is_empty());
    }

    #[test]
    fn speculation_changes_what_fits_and_overlaps() {
        let speculating = |tokens: u32| {
            resolved(|c| {
                c.max_num_tokens = tokens;
                c.speculative_config =
                    serde_json::from_str(r#"{"decoding_type": "NGram", "max_draft_len": 3}"#)
                        .unwrap();
            })
        };
        // A token and its 3 drafts.
        assert!(speculating(4).unwrap().disable_overlap_scheduler);
        let error = speculating(3).unwrap_err();
        assert_eq!((error.path.as_str(), error.found.as_str()), ("max_num_tokens", "3"));
        let missing = resolved(|c| {
            c.speculative_config = serde_json::from_str(r#"{"decoding_type": "Eagle"}"#).unwrap();
        });
        assert_eq!(missing.unwrap_err().path, "speculative_config.max_draft_len");
    }

    #[test]
    fn what_is_out_of_range_or_not_modelled_is_refused() {
        type Change = fn(&mut TrtllmConfig);
        let cases: [(Change, &str); 7] = [
            (
                |c| (c.max_num_tokens, c.enable_chunked_prefill) = (31, true),
                "`max_num_tokens` is 31",
            ),
            (
                |c| c.kv_cache_config.enable_partial_reuse = true,
                "`kv_cache_config.enable_partial_reuse` is true",
            ),
            (
                |c| c.kv_cache_config.tokens_per_block = 48,
                "`kv_cache_config.tokens_per_block` is 48",
            ),
            (|c| c.kv_cache_config.max_tokens = Some(31), "`kv_cache_config.max_tokens` is 31"),
            (
                |c| c.kv_cache_config.free_gpu_memory_fraction = 0.0,
                "`kv_cache_config.free_gpu_memory_fraction` is 0",
            ),
            (|c| c.batch_wait_max_tokens_ratio = 1.5, "`batch_wait_max_tokens_ratio` is 1.5"),
            (|c| c.max_batch_size = 0, "`max_batch_size` is 0"),
        ];
        for (change, expected) in cases {
            let error = resolved(change).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(resolved(|c| c.kv_cache_config.max_tokens = Some(32)).is_ok());
    }
}
