//! The limits of a deployment that can be lifted one at a time, to see what that is worth.

use serde_json::{Value, json};

use super::EngineConfig;
use crate::engine::sglang::config::SglangConfig;
use crate::engine::trtllm::config::TrtllmConfig;
use crate::engine::vllm::config::VllmConfig;

/// A limit, and what lifts it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lift {
    /// In words.
    pub(crate) what: &'static str,
    /// The fields of a resolved scenario that are set, the one that it is about first.
    pub(crate) set: Vec<(String, Value)>,
}

impl Lift {
    pub(in crate::scenario) fn of(what: &'static str, set: &[(&str, Value)]) -> Self {
        let set = set.iter().map(|(path, value)| ((*path).to_owned(), value.clone()));
        Self { what, set: set.collect() }
    }
}

fn doubled(value: u32) -> Value {
    (2 * u64::from(value)).into()
}

impl EngineConfig {
    /// Its limits. Only for a resolved engine.
    pub(in crate::scenario) fn lifts(&self) -> Vec<Lift> {
        match self {
            Self::Vllm(config) => vllm(config),
            Self::Sglang(config) => sglang(config),
            Self::Trtllm(config) => trtllm(config),
        }
    }
}

const BUDGET: &str = "twice the tokens of a pass";
const SEATS: &str = "twice the seats";
const POOL: &str = "twice the KV pool";
const CACHE: &str = "prefix caching";

fn vllm(config: &VllmConfig) -> Vec<Lift> {
    let mut lifts = Vec::new();
    if let Some(tokens) = config.max_num_batched_tokens {
        let mut set = vec![("engine.vllm.max_num_batched_tokens", doubled(tokens))];
        if let Some(tokens) = config.max_num_scheduled_tokens {
            set.push(("engine.vllm.max_num_scheduled_tokens", doubled(tokens)));
        }
        lifts.push(Lift::of(BUDGET, &set));
    }
    if let Some(seats) = config.max_num_seqs {
        let mut set = vec![("engine.vllm.max_num_seqs", doubled(seats))];
        if let Some(seats) = config.max_num_active_seqs {
            set.push(("engine.vllm.max_num_active_seqs", doubled(seats)));
        }
        lifts.push(Lift::of(SEATS, &set));
    }
    if let Some(blocks) = config.num_gpu_blocks {
        // One of them is never usable.
        let blocks = json!(2 * u64::from(blocks) - 1);
        let memory = ("engine.vllm.allow_overcommit", json!(true));
        lifts.push(Lift::of(POOL, &[("engine.vllm.num_gpu_blocks", blocks), memory]));
    }
    if !config.enable_prefix_caching {
        lifts.push(Lift::of(CACHE, &[("engine.vllm.enable_prefix_caching", json!(true))]));
    }
    if config.long_prefill_token_threshold > 0 {
        let set = [("engine.vllm.long_prefill_token_threshold", json!(0))];
        lifts.push(Lift::of("no cap on the tokens of one request", &set));
    }
    if config.prefill_schedule_interval > 1 {
        let set = [("engine.vllm.prefill_schedule_interval", json!(1))];
        lifts.push(Lift::of("no passes between those with prefill", &set));
    }
    if config.watermark > 0.0 {
        lifts.push(Lift::of("no blocks kept free", &[("engine.vllm.watermark", json!(0.0))]));
    }
    lifts
}

fn sglang(config: &SglangConfig) -> Vec<Lift> {
    let set = [("engine.sglang.max_prefill_tokens", doubled(config.max_prefill_tokens))];
    let mut lifts = vec![Lift::of("twice the prompt tokens of a pass", &set)];
    if let Some(tokens) = config.chunked_prefill_size.and_then(|size| u32::try_from(size).ok())
        && tokens > 0
    {
        let set = [("engine.sglang.chunked_prefill_size", doubled(tokens))];
        lifts.push(Lift::of("chunks twice as long", &set));
    }
    if let Some(seats) = config.max_running_requests {
        let set = [("engine.sglang.max_running_requests", doubled(seats))];
        lifts.push(Lift::of(SEATS, &set));
    }
    if let Some(tokens) = config.max_total_tokens {
        let memory = ("engine.sglang.allow_overcommit", json!(true));
        let set = [("engine.sglang.max_total_tokens", doubled(tokens)), memory];
        lifts.push(Lift::of(POOL, &set));
    }
    if let Some(prompts) = config.prefill_max_requests {
        let set = [("engine.sglang.prefill_max_requests", doubled(prompts))];
        lifts.push(Lift::of("twice the prompts of a pass", &set));
    }
    if config.disable_radix_cache {
        lifts.push(Lift::of(CACHE, &[("engine.sglang.disable_radix_cache", json!(false))]));
    }
    lifts
}

fn trtllm(config: &TrtllmConfig) -> Vec<Lift> {
    let mut lifts = vec![
        Lift::of(BUDGET, &[("engine.trtllm.max_num_tokens", doubled(config.max_num_tokens))]),
        Lift::of(SEATS, &[("engine.trtllm.max_batch_size", doubled(config.max_batch_size))]),
    ];
    if let Some(tokens) = config.kv_cache_config.max_tokens {
        let memory = ("engine.trtllm.allow_overcommit", json!(true));
        let set = [("engine.trtllm.kv_cache_config.max_tokens", doubled(tokens)), memory];
        lifts.push(Lift::of(POOL, &set));
    }
    if !config.kv_cache_config.enable_block_reuse {
        let set = [("engine.trtllm.kv_cache_config.enable_block_reuse", json!(true))];
        lifts.push(Lift::of(CACHE, &set));
    }
    if config.batch_wait_timeout_iters > 0 || config.batch_wait_max_tokens_ratio > 0.0 {
        let set = [
            ("engine.trtllm.batch_wait_timeout_iters", json!(0)),
            ("engine.trtllm.batch_wait_max_tokens_ratio", json!(0.0)),
        ];
        lifts.push(Lift::of("no prompts held back", &set));
    }
    lifts
}
