//! The `engine.vllm` part of a scenario: vLLM's own flags, with the defaults of release 0.33.0.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::speculative::{Speculation, SpeculativeConfig};
use crate::base::config::ConfigError;
use crate::engine::drafting::Drafting;
use crate::engine::steady::Stride;
use crate::model::accelerator::Accelerator;

/// One vLLM V1 engine. The names are vLLM's; what is absent follows from the model, the accelerator and
/// `usage` as in release 0.33.0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct VllmConfig {
    /// What the defaults of `max_num_batched_tokens` and `max_num_seqs` are chosen for; absent: what the
    /// accelerator is, or `gpu_70gib` without one.
    pub(crate) device: Option<Device>,
    /// How the engine is used, which the same defaults depend on.
    pub(crate) usage: Usage,
    /// `throughput` doubles the defaults of `max_num_batched_tokens` and `max_num_seqs`.
    pub(crate) performance_mode: PerformanceMode,
    /// Tokens in a KV block.
    pub(crate) block_size: u32,
    /// KV blocks in the pool, from 2; one of them is never usable. Absent: as many as
    /// `kv_cache_tokens`, `kv_cache_log` or the accelerator's memory gives, or 32,768 without any of them.
    pub(crate) num_gpu_blocks: Option<u32>,
    /// The pool in tokens, as vLLM logs it: `num_gpu_blocks` times `block_size`.
    pub(crate) kv_cache_tokens: Option<u64>,
    /// The start-up log of an engine that states its pool.
    pub(crate) kv_cache_log: Option<PathBuf>,
    /// Share of the accelerator's memory that the engine may use, above 0, at most 1. It only counts
    /// where the pool follows from the memory.
    pub(crate) gpu_memory_utilization: f64,
    /// Whether passes run without CUDA graphs, whose memory then is KV. It changes no price.
    pub(crate) enforce_eager: bool,
    /// Whether weights and KV may be more than the accelerator's memory holds.
    pub(crate) allow_overcommit: bool,
    /// Longest sequence, prompt and output, in tokens. Absent: as much as the model can and the pool holds.
    pub(crate) max_model_len: Option<u32>,
    /// Whether `max_model_len` may be more than the model's own (vLLM's `VLLM_ALLOW_LONG_MAX_MODEL_LEN`).
    pub(crate) allow_long_max_model_len: bool,
    /// Tokens that one pass may compute.
    pub(crate) max_num_batched_tokens: Option<u32>,
    /// Tokens that one pass may be issued; absent: `max_num_batched_tokens`.
    pub(crate) max_num_scheduled_tokens: Option<u32>,
    /// Requests in the running list.
    pub(crate) max_num_seqs: Option<u32>,
    /// Running requests above which nobody is admitted; absent: `max_num_seqs`.
    pub(crate) max_num_active_seqs: Option<u32>,
    /// Whether a prompt may be spread over several passes.
    pub(crate) enable_chunked_prefill: bool,
    /// Most tokens of one request in one pass; 0: no such limit.
    pub(crate) long_prefill_token_threshold: u32,
    /// Raises the threshold to the fair share of the budget where that is larger.
    pub(crate) long_prefill_token_threshold_adaptive: bool,
    /// Whether a request is admitted only when blocks for all its known tokens are free.
    pub(crate) scheduler_reserve_full_isl: bool,
    /// Passes with prefill work are at least this many passes apart; 1: no such limit.
    pub(crate) prefill_schedule_interval: u32,
    /// Share of the blocks that an admission leaves free, from 0 to below 1.
    pub(crate) watermark: f64,
    /// Whether blocks are kept and found again by their content.
    pub(crate) enable_prefix_caching: bool,
    /// Who is admitted first and preempted last.
    pub(crate) scheduling_policy: SchedulingPolicy,
    /// Whether the next pass is planned while one is running.
    pub(crate) async_scheduling: bool,
    /// Speculative decoding; absent: none.
    pub(crate) speculative_config: Option<SpeculativeConfig>,
}

/// Classes of device with defaults of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Device {
    /// A GPU with 160 GiB or more: B200, B300, MI300X.
    #[serde(rename = "gpu_160gib")]
    Gpu160Gib,
    /// A GPU with 70 to 160 GiB that is no A100 and no GB10: H100, H200, RTX PRO 6000.
    #[serde(rename = "gpu_70gib")]
    Gpu70Gib,
    /// Any other GPU: A100, L40S, L4, GB10.
    GpuOther,
    /// A CPU; for one rank.
    Cpu,
    /// TPU v6e.
    TpuV6e,
    /// TPU v5e.
    TpuV5e,
    /// TPU v5p.
    TpuV5p,
}

impl Device {
    /// The class of a GPU, by its memory and name.
    pub(crate) fn of(accelerator: &Accelerator) -> Self {
        const GIB: f64 = 1_073_741_824.0;
        let name = accelerator.name.to_lowercase();
        match accelerator.memory_gb * 1e9 / GIB {
            160.0.. => Self::Gpu160Gib,
            70.0.. if !name.contains("a100") && !name.contains("gb10") => Self::Gpu70Gib,
            _ => Self::GpuOther,
        }
    }
}

/// How an engine is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Usage {
    /// Behind the OpenAI-style server (`vllm serve`).
    Server,
    /// The offline class (`LLM`).
    Offline,
    /// The engine used directly, or the batch runner.
    Engine,
}

/// What vLLM's defaults aim at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PerformanceMode {
    /// The plain defaults.
    Balanced,
    /// Twice the plain defaults.
    Throughput,
}

/// The order of the queue and of preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SchedulingPolicy {
    /// First come, first served.
    Fcfs,
    /// Smaller priority first, then earlier arrival.
    Priority,
}

impl Default for VllmConfig {
    fn default() -> Self {
        Self {
            device: None,
            usage: Usage::Server,
            performance_mode: PerformanceMode::Balanced,
            block_size: 16,
            num_gpu_blocks: None,
            kv_cache_tokens: None,
            kv_cache_log: None,
            gpu_memory_utilization: 0.92,
            enforce_eager: false,
            allow_overcommit: false,
            max_model_len: None,
            allow_long_max_model_len: false,
            max_num_batched_tokens: None,
            max_num_scheduled_tokens: None,
            max_num_seqs: None,
            max_num_active_seqs: None,
            enable_chunked_prefill: true,
            long_prefill_token_threshold: 0,
            long_prefill_token_threshold_adaptive: false,
            scheduler_reserve_full_isl: true,
            prefill_schedule_interval: 1,
            watermark: 0.0,
            enable_prefix_caching: true,
            scheduling_policy: SchedulingPolicy::Fcfs,
            async_scheduling: true,
            speculative_config: None,
        }
    }
}

/// The pool of an engine whose model and accelerator nobody names.
const BLOCKS_WITHOUT_MODEL: u32 = 32_768;

/// The largest number of tokens any limit may name; sums and products of it fit 64 bits.
pub(crate) const TOKENS_MAX: u32 = 1 << 27;

/// Default budget and seats, by device and use (release 0.33.0, its own default function).
const fn device_defaults(device: Device, usage: Usage) -> (u32, u32) {
    match (device, usage) {
        (_, Usage::Engine) => (2048, 128),
        (Device::Gpu160Gib, _) | (Device::Gpu70Gib, Usage::Offline) => (16_384, 1024),
        (Device::Gpu70Gib, Usage::Server) => (8192, 1024),
        (Device::GpuOther, Usage::Offline) => (8192, 256),
        (Device::GpuOther, Usage::Server) => (2048, 256),
        (Device::Cpu, Usage::Offline) => (4096, 256),
        (Device::Cpu, Usage::Server) => (2048, 128),
        (Device::TpuV6e, Usage::Offline) => (2048, 256),
        (Device::TpuV6e, Usage::Server) | (Device::TpuV5e, Usage::Offline) => (1024, 256),
        (Device::TpuV5e, Usage::Server) | (Device::TpuV5p, Usage::Offline) => (512, 256),
        (Device::TpuV5p, Usage::Server) => (256, 256),
    }
}

impl VllmConfig {
    /// The same configuration with every absent value filled in, as the engine itself would.
    ///
    /// # Errors
    /// What the engine refuses at start (rules R92 and R93), and numbers out of range.
    pub(crate) fn resolve(&self) -> Result<Self, ConfigError> {
        let resolved = self.with_defaults()?;
        resolved.check_engine_start()?;
        Ok(resolved)
    }

    /// Fills in what is absent and checks ranges, but not what only a real engine's start refuses.
    pub(crate) fn with_defaults(&self) -> Result<Self, ConfigError> {
        self.check_ranges()?;
        let mut resolved = self.clone();
        let blocks = self.num_gpu_blocks.unwrap_or(BLOCKS_WITHOUT_MODEL);
        let pool_tokens = u64::from(blocks - 1).saturating_mul(u64::from(self.block_size));
        let max_model_len =
            self.max_model_len.unwrap_or(pool_tokens.min(u64::from(TOKENS_MAX)) as u32);
        let (mut batched, seqs) = self.default_budget_and_seats();
        if !self.enable_chunked_prefill {
            batched = batched.max(max_model_len);
        }
        let seqs_known = u64::from(self.max_num_seqs.unwrap_or(seqs));
        let longest_pass = seqs_known.saturating_mul(u64::from(max_model_len));
        batched = u64::from(batched).min(longest_pass) as u32;
        let batched = self.max_num_batched_tokens.unwrap_or(batched);
        let seqs = self.max_num_seqs.unwrap_or(seqs.min(batched));
        resolved.device = Some(self.device_class());
        resolved.num_gpu_blocks = Some(blocks);
        resolved.max_model_len = Some(max_model_len);
        resolved.max_num_batched_tokens = Some(batched);
        resolved.max_num_scheduled_tokens = Some(self.max_num_scheduled_tokens.unwrap_or(batched));
        resolved.max_num_seqs = Some(seqs);
        resolved.max_num_active_seqs = Some(self.max_num_active_seqs.unwrap_or(seqs));
        Ok(resolved)
    }

    /// The longest sequence unless it is given: what the model can, if the pool holds as much.
    ///
    /// # Errors
    /// It is given, and more than the model can.
    pub(crate) fn limit_model_len(&mut self, model_tokens: u32) -> Result<(), ConfigError> {
        if let Some(tokens) = self.max_model_len
            && tokens > model_tokens
            && !self.allow_long_max_model_len
        {
            let accepted = format!(
                "at most {model_tokens}, as the model has it, unless allow_long_max_model_len is set"
            );
            return Err(ConfigError::new("max_model_len", tokens, accepted));
        }
        let pool_tokens = self.num_gpu_blocks.map_or(u64::MAX, |blocks| {
            u64::from(blocks.saturating_sub(1)) * u64::from(self.block_size)
        });
        let tokens = pool_tokens.min(u64::from(model_tokens)) as u32;
        self.max_model_len = Some(self.max_model_len.unwrap_or(tokens));
        Ok(())
    }

    fn device_class(&self) -> Device {
        self.device.unwrap_or(Device::Gpu70Gib)
    }

    /// The budget and the seats that the engine's device, use and mode have by default.
    fn default_budget_and_seats(&self) -> (u32, u32) {
        let (batched, seqs) = device_defaults(self.device_class(), self.usage);
        match self.performance_mode {
            PerformanceMode::Balanced => (batched, seqs),
            PerformanceMode::Throughput => (2 * batched, 2 * seqs),
        }
    }

    /// The budget and the seats, given or by default, before the longest sequence is known.
    pub(crate) fn budget_and_seats(&self) -> (u32, u32) {
        let (batched, seqs) = self.default_budget_and_seats();
        (self.max_num_batched_tokens.unwrap_or(batched), self.max_num_seqs.unwrap_or(seqs))
    }

    /// Batch sizes that CUDA graphs are captured for: 1, 2, 4, every eighth up to 256 and every sixteenth from there,
    /// up to twice the seats, at most 512 (release 0.33.0, `cudagraph_capture_sizes`). Only for a configuration
    /// without absent values.
    pub(crate) fn captured_batches(&self) -> Vec<u32> {
        let seats = self.max_num_seqs.expect("with_defaults fills every absent value");
        let max = seats.saturating_mul(2).min(512);
        let sizes = [1, 2, 4].into_iter().chain((8..256).step_by(8));
        sizes.chain((256..=512).step_by(16)).filter(|&size| size <= max).collect()
    }

    /// Blocks that requests can hold. Only for a configuration without absent values.
    pub(crate) fn usable_blocks(&self) -> u32 {
        self.num_gpu_blocks.expect("with_defaults fills every absent value") - 1
    }

    /// # Errors
    /// A number that is out of range by itself.
    pub(crate) fn check_ranges(&self) -> Result<(), ConfigError> {
        let tokens = format!("an integer from 1 to {TOKENS_MAX}");
        for (path, value) in [
            ("block_size", Some(self.block_size)),
            ("max_model_len", self.max_model_len),
            ("max_num_batched_tokens", self.max_num_batched_tokens),
            ("max_num_scheduled_tokens", self.max_num_scheduled_tokens),
            ("max_num_seqs", self.max_num_seqs),
            ("max_num_active_seqs", self.max_num_active_seqs),
            ("prefill_schedule_interval", Some(self.prefill_schedule_interval)),
        ] {
            if let Some(value) = value
                && !(1..=TOKENS_MAX).contains(&value)
            {
                return Err(ConfigError::new(path, value, tokens));
            }
        }
        if let Some(blocks) = self.num_gpu_blocks
            && !(2..=TOKENS_MAX).contains(&blocks)
        {
            let accepted = format!("an integer from 2 to {TOKENS_MAX}");
            return Err(ConfigError::new("num_gpu_blocks", blocks, accepted));
        }
        if !(self.gpu_memory_utilization > 0.0 && self.gpu_memory_utilization <= 1.0) {
            let accepted = "a share above 0, at most 1";
            return Err(ConfigError::new(
                "gpu_memory_utilization",
                self.gpu_memory_utilization,
                accepted,
            ));
        }
        if !(0.0..1.0).contains(&self.watermark) {
            let accepted = "a share from 0 to below 1";
            return Err(ConfigError::new("watermark", self.watermark, accepted));
        }
        self.speculative_config.map_or(Ok(()), SpeculativeConfig::check)
    }

    /// What vLLM refuses at start. Only for a configuration without absent values.
    fn check_engine_start(&self) -> Result<(), ConfigError> {
        let limits = Limits::of(self);
        if limits.batched_tokens < limits.running_max {
            let accepted =
                format!("at least max_num_seqs ({}), as vLLM requires", limits.running_max);
            return Err(ConfigError::new(
                "max_num_batched_tokens",
                limits.batched_tokens,
                accepted,
            ));
        }
        if !limits.chunked_prefill && limits.batched_tokens < limits.model_len_max {
            let accepted = format!(
                "at least max_model_len ({}) with enable_chunked_prefill off",
                limits.model_len_max
            );
            return Err(ConfigError::new(
                "max_num_batched_tokens",
                limits.batched_tokens,
                accepted,
            ));
        }
        if limits.active_max > limits.running_max {
            let accepted = format!("at most max_num_seqs ({})", limits.running_max);
            return Err(ConfigError::new("max_num_active_seqs", limits.active_max, accepted));
        }
        if limits.long_prefill_tokens > limits.model_len_max {
            let accepted = format!("at most max_model_len ({})", limits.model_len_max);
            return Err(ConfigError::new(
                "long_prefill_token_threshold",
                limits.long_prefill_tokens,
                accepted,
            ));
        }
        let lookahead_tokens = limits.speculation.lookahead_tokens;
        if limits.batched_tokens <= lookahead_tokens {
            let accepted =
                format!("more than speculative_config.num_speculative_tokens ({lookahead_tokens})");
            return Err(ConfigError::new(
                "max_num_batched_tokens",
                limits.batched_tokens,
                accepted,
            ));
        }
        let blocks_needed = limits.model_len_max.div_ceil(self.block_size);
        let usable_blocks = self.usable_blocks();
        if blocks_needed > usable_blocks {
            let accepted = format!(
                "at most {} tokens, what the {} usable blocks of {} tokens hold (raise num_gpu_blocks to {} or lower max_model_len)",
                u64::from(usable_blocks) * u64::from(self.block_size),
                usable_blocks,
                self.block_size,
                blocks_needed + 1,
            );
            return Err(ConfigError::new("max_model_len", limits.model_len_max, accepted));
        }
        Ok(())
    }
}

/// The limits a scheduler works with: a resolved configuration as plain numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Issue budget of a pass (R10).
    pub(crate) scheduled_tokens: u32,
    /// Input budget of a pass (R10).
    pub(crate) batched_tokens: u32,
    /// Seats in the running list.
    pub(crate) running_max: u32,
    /// Running requests from which on nobody is admitted (R12).
    pub(crate) active_max: u32,
    /// Longest sequence.
    pub(crate) model_len_max: u32,
    /// Tokens in a block.
    pub(crate) block_tokens: u32,
    /// Blocks an admission leaves free while something runs (R36).
    pub(crate) watermark_blocks: u32,
    /// Long-prefill cap, 0 for none (R13).
    pub(crate) long_prefill_tokens: u32,
    /// Whether the cap grows to the fair share (R13).
    pub(crate) long_prefill_adaptive: bool,
    /// Whether prompts may be split (R14).
    pub(crate) chunked_prefill: bool,
    /// The admission gate over all known tokens (R35).
    pub(crate) reserve_full_isl: bool,
    /// Non-empty passes from one with prefill work to the next (R50).
    pub(crate) prefill_interval: u32,
    /// Priority policy instead of FCFS.
    pub(crate) by_priority: bool,
    /// One pass planned ahead.
    pub(crate) asynchronous: bool,
    /// Drafts and what they need.
    pub(crate) speculation: Speculation,
}

impl Limits {
    /// Tokens that count as computed before they are, when a pass of decodes is planned: asynchronously those of the
    /// pass before.
    pub(crate) const fn computed_ahead(&self) -> u32 {
        if self.asynchronous { 1 + self.speculation.drafts } else { 0 }
    }

    /// What a pass does to requests that decode in step: none do if drafts are left to chance, or cut.
    pub(crate) fn stride(&self, drafting: Option<&Drafting>) -> Option<Stride> {
        let Some(drafting) = drafting else { return Some(Stride::TOKEN) };
        let Speculation { drafts, lookahead_tokens, .. } = self.speculation;
        let query_tokens = 1 + drafts;
        let is_cut = (1..query_tokens).contains(&self.long_prefill_tokens);
        let burst_tokens = drafting.burst_tokens(drafts).filter(|_| !is_cut)?;
        Some(Stride { query_tokens, burst_tokens, reach_tokens: query_tokens + lookahead_tokens })
    }

    /// The limits of a configuration that [`VllmConfig::with_defaults`] gave.
    pub(crate) fn of(config: &VllmConfig) -> Self {
        let filled = |value: Option<u32>| value.expect("with_defaults fills every absent value");
        Self {
            scheduled_tokens: filled(config.max_num_scheduled_tokens),
            batched_tokens: filled(config.max_num_batched_tokens),
            running_max: filled(config.max_num_seqs),
            active_max: filled(config.max_num_active_seqs),
            model_len_max: filled(config.max_model_len),
            block_tokens: config.block_size,
            // R36: int(fraction * num_gpu_blocks), of all blocks.
            watermark_blocks: (config.watermark * f64::from(config.usable_blocks() + 1)) as u32,
            long_prefill_tokens: config.long_prefill_token_threshold,
            long_prefill_adaptive: config.long_prefill_token_threshold_adaptive,
            chunked_prefill: config.enable_chunked_prefill,
            reserve_full_isl: config.scheduler_reserve_full_isl,
            prefill_interval: config.prefill_schedule_interval,
            by_priority: config.scheduling_policy == SchedulingPolicy::Priority,
            asynchronous: config.async_scheduling,
            speculation: Speculation::of(
                config.speculative_config.as_ref(),
                config.enable_prefix_caching,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::presets;

    fn resolved(change: impl FnOnce(&mut VllmConfig)) -> Result<VllmConfig, ConfigError> {
        let mut config = VllmConfig::default();
        change(&mut config);
        config.resolve()
    }

    #[test]
    fn defaults_follow_the_device_and_the_use() {
        for (device, usage, tokens, seqs) in [
            (Device::Gpu160Gib, Usage::Server, 16_384, 1024),
            (Device::Gpu70Gib, Usage::Server, 8192, 1024),
            (Device::Gpu70Gib, Usage::Offline, 16_384, 1024),
            (Device::GpuOther, Usage::Server, 2048, 256),
            (Device::Cpu, Usage::Server, 2048, 128),
            (Device::Gpu160Gib, Usage::Engine, 2048, 128),
        ] {
            let c = resolved(|c| (c.device, c.usage) = (Some(device), usage)).unwrap();
            assert_eq!((c.max_num_batched_tokens, c.max_num_seqs), (Some(tokens), Some(seqs)));
        }
    }

    #[test]
    fn the_class_of_a_device_follows_from_its_memory_and_name() {
        let class = |name| Device::of(&presets::accelerator(name).unwrap().sheet);
        for name in ["b200", "gb200", "mi300x"] {
            assert_eq!(class(name), Device::Gpu160Gib, "{name}");
        }
        for name in ["h100", "h200", "rtx-pro-6000"] {
            assert_eq!(class(name), Device::Gpu70Gib, "{name}");
        }
        for name in ["a100-80gb", "a100-40gb", "l40s", "l4", "rtx-4090"] {
            assert_eq!(class(name), Device::GpuOther, "{name}");
        }
    }

    #[test]
    fn unset_limits_bound_one_another() {
        // Off: the budget rises to the model length. Then at most seqs * model length.
        let c = resolved(|c| {
            c.enable_chunked_prefill = false;
            c.max_model_len = Some(100_000);
        });
        assert_eq!(c.unwrap().max_num_batched_tokens, Some(100_000));
        let c = resolved(|c| (c.max_num_seqs, c.max_model_len) = (Some(4), Some(1000))).unwrap();
        assert_eq!(c.max_num_batched_tokens, Some(4000));
        let c = resolved(|c| c.max_num_batched_tokens = Some(512)).unwrap();
        assert_eq!((c.max_num_seqs, c.max_num_active_seqs), (Some(512), Some(512)));
    }

    #[test]
    fn graphs_are_those_that_vllm_captures() {
        let sizes = |seats| resolved(|c| c.max_num_seqs = Some(seats)).unwrap().captured_batches();
        assert_eq!(sizes(8), [1, 2, 4, 8, 16]);
        // 3, then 8 to 248 by 8, then 256 to 512 by 16.
        assert_eq!(sizes(1024).len(), 3 + 31 + 17);
        assert_eq!(sizes(1024)[33..36], [248, 256, 272]);
    }

    #[test]
    fn what_the_engine_refuses_at_start_is_refused() {
        type Change = fn(&mut VllmConfig);
        let cases: [(Change, &str); 7] = [
            (
                |c| (c.max_num_seqs, c.max_num_batched_tokens) = (Some(65), Some(64)),
                "`max_num_batched_tokens` is 64",
            ),
            (
                |c| {
                    c.enable_chunked_prefill = false;
                    (c.max_model_len, c.max_num_batched_tokens) = (Some(4096), Some(4095));
                },
                "`max_num_batched_tokens` is 4095",
            ),
            (
                |c| (c.max_num_seqs, c.max_num_active_seqs) = (Some(8), Some(9)),
                "`max_num_active_seqs` is 9",
            ),
            (
                |c| (c.max_model_len, c.long_prefill_token_threshold) = (Some(100), 101),
                "`long_prefill_token_threshold` is 101",
            ),
            (
                |c| (c.num_gpu_blocks, c.max_model_len) = (Some(11), Some(161)),
                "`max_model_len` is 161, expected at most 160",
            ),
            (|c| c.watermark = 1.0, "`watermark` is 1"),
            (|c| c.block_size = 0, "`block_size` is 0"),
        ];
        for (change, expected) in cases {
            let error = resolved(change).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(resolved(|c| (c.num_gpu_blocks, c.max_model_len) = (Some(11), Some(160))).is_ok());
    }
}
