//! A TensorRT-LLM engine: its KV pool and its longest sequence.

use super::{Deployed, EngineFacts, SpeculationFacts};
use crate::base::config::ConfigError;
use crate::engine::frontend::FrontEnd;
use crate::engine::trtllm::config::{TOKENS_MAX, TrtllmConfig};
use crate::engine::trtllm::speculative::Speculation;
use crate::model::accelerator::Accelerator;
use crate::model::memory::trtllm;
use crate::model::parallel::Parallel;
use crate::model::shape::ModelShape;
use crate::report::warning::EngineFields;

/// Forgets what follows from a model and an accelerator.
pub(super) fn uproot(config: &mut TrtllmConfig) {
    config.max_seq_len = None;
    config.kv_cache_config.max_tokens = None;
}

pub(super) fn facts(config: &TrtllmConfig) -> EngineFacts {
    let overlaps = !config.disable_overlap_scheduler;
    let sequence_tokens = config.max_seq_len.expect("a resolved engine has every value");
    let is_divided = config.enable_chunked_prefill;
    let prompt_tokens_max = if is_divided { u32::MAX } else { config.max_num_tokens };
    EngineFacts {
        name: if overlaps { "TensorRT-LLM (overlap)" } else { "TensorRT-LLM (no overlap)" },
        kv_tokens: u64::from(config.usable_blocks())
            * u64::from(config.kv_cache_config.tokens_per_block),
        block_tokens: config.kv_cache_config.tokens_per_block,
        sequence_tokens,
        prefix_caching: config.kv_cache_config.enable_block_reuse,
        asynchronous: overlaps,
        front_end: FrontEnd::Trtllm { sequence_tokens, prompt_tokens_max },
        captured_batches: config.captured_batches(),
        speculation: config.speculative_config.map(|speculative| {
            let speculation = Speculation::of(Some(&speculative));
            let Speculation { drafts, looks_up, .. } = speculation;
            SpeculationFacts {
                method: speculative.decoding_type.name(),
                drafts,
                verified_tokens: speculation.round_tokens(),
                draftless_tokens: 1,
                looks_up,
                field: "engine.trtllm.speculative_config",
            }
        }),
        fields: EngineFields {
            sequence: if prompt_tokens_max < sequence_tokens {
                "engine.trtllm.max_num_tokens"
            } else {
                "engine.trtllm.max_seq_len"
            },
            queue: None,
            pool: "engine.trtllm.kv_cache_config.max_tokens",
            keeper: "engine.trtllm.kv_cache_config.max_tokens",
            prefix_caching: "engine.trtllm.kv_cache_config.enable_block_reuse",
            speculation: "engine.trtllm.speculative_config",
        },
    }
}

/// Fills in what is absent.
pub(super) fn resolve(config: &mut TrtllmConfig, on: &Deployed<'_>) -> Result<(), ConfigError> {
    let within = |error: ConfigError| error.within("engine.trtllm");
    config.check_ranges().map_err(within)?;
    if let Some(model) = on.model {
        config.limit_sequence(model.max_position_embeddings).map_err(within)?;
    }
    if let (Some(model), Some(accelerator)) = (on.model, on.accelerator) {
        resolve_memory(config, model, accelerator, on.parallel)?;
    }
    *config = config.resolve().map_err(within)?;
    Ok(())
}

/// The pool that fits beside the weights: at most as large as is asked for (K1).
fn resolve_memory(
    config: &mut TrtllmConfig,
    model: &ModelShape,
    accelerator: &Accelerator,
    parallel: &Parallel,
) -> Result<(), ConfigError> {
    let kv = &config.kv_cache_config;
    if kv.max_tokens.is_some() && config.allow_overcommit {
        return Ok(());
    }
    let options = config.memory_options(model.max_position_embeddings);
    let blocks = trtllm::blocks(model, accelerator, parallel, &options).map_err(|error| {
        let accepted = format!(
            "a model that fits beside a pass of {} tokens, or max_tokens and allow_overcommit ({error})",
            options.max_num_tokens
        );
        ConfigError { path: "model".to_owned(), found: model.name.clone(), accepted }
    })?;
    let fitting = blocks.saturating_mul(kv.tokens_per_block.into()).min(TOKENS_MAX.into()) as u32;
    config.kv_cache_config.max_tokens = Some(kv.max_tokens.unwrap_or(TOKENS_MAX).min(fitting));
    Ok(())
}
