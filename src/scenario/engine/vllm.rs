//! A vLLM engine: its device class, its KV pool, its longest sequence.

use std::path::Path;

use super::{Deployed, EngineFacts, SpeculationFacts, bad_log, logged_tokens};
use crate::base::config::ConfigError;
use crate::engine::frontend::FrontEnd;
use crate::engine::vllm::config::{Device, Limits, TOKENS_MAX, VllmConfig};
use crate::engine::vllm::speculative::Speculation;
use crate::model::accelerator::Accelerator;
use crate::model::memory::{KvMemory, MemoryOptions};
use crate::model::parallel::Parallel;
use crate::model::shape::ModelShape;
use crate::report::warning::EngineFields;

/// Forgets what follows from a model and an accelerator.
pub(super) fn uproot(config: &mut VllmConfig) {
    config.device = None;
    config.num_gpu_blocks = None;
    config.kv_cache_tokens = None;
    config.kv_cache_log = None;
    config.max_model_len = None;
}

pub(super) fn facts(config: &VllmConfig) -> EngineFacts {
    let seen = "a resolved engine has every value";
    // A pool that is too small for a request is refused at the start, so that only a prompt that may not be split
    // can block the queue (R14, R92).
    let keeper = if config.enable_chunked_prefill {
        "engine.vllm.num_gpu_blocks"
    } else {
        "engine.vllm.max_num_scheduled_tokens"
    };
    EngineFacts {
        name: if config.async_scheduling { "vLLM 0.33.0 (async)" } else { "vLLM 0.33.0 (sync)" },
        kv_tokens: u64::from(config.usable_blocks()) * u64::from(config.block_size),
        block_tokens: config.block_size,
        sequence_tokens: config.max_model_len.expect(seen),
        prefix_caching: config.enable_prefix_caching,
        asynchronous: config.async_scheduling,
        front_end: FrontEnd::Vllm { model_len_max: config.max_model_len.expect(seen) },
        captured_batches: config.captured_batches(),
        speculation: config.speculative_config.map(|speculative| {
            let Speculation { drafts, looks_up, .. } = Limits::of(config).speculation;
            SpeculationFacts {
                method: speculative.method.name(),
                drafts,
                verified_tokens: 1 + drafts,
                // Planned before it is known that there are none, they are there.
                draftless_tokens: if config.async_scheduling { 1 + drafts } else { 1 },
                looks_up,
                field: "engine.vllm.speculative_config",
            }
        }),
        fields: EngineFields {
            sequence: "engine.vllm.max_model_len",
            queue: None,
            pool: "engine.vllm.num_gpu_blocks",
            keeper,
            prefix_caching: "engine.vllm.enable_prefix_caching",
            speculation: "engine.vllm.speculative_config",
        },
    }
}

/// Fills in what is absent.
pub(super) fn resolve(
    config: &mut VllmConfig,
    on: &Deployed<'_>,
    directory: &Path,
) -> Result<(), ConfigError> {
    let within = |error: ConfigError| error.within("engine.vllm");
    config.check_ranges().map_err(within)?;
    resolve_pool(config, directory).map_err(within)?;
    if let Some(accelerator) = on.accelerator {
        config.device = Some(config.device.unwrap_or(Device::of(accelerator)));
    }
    if let (Some(model), Some(accelerator)) = (on.model, on.accelerator) {
        resolve_memory(config, model, accelerator, on.parallel)?;
    }
    if let Some(model) = on.model {
        config.limit_model_len(model.max_position_embeddings).map_err(within)?;
    }
    *config = config.resolve().map_err(within)?;
    Ok(())
}

/// The pool of an engine that states it in tokens, or in its log.
fn resolve_pool(vllm: &mut VllmConfig, directory: &Path) -> Result<(), ConfigError> {
    let given = [
        ("num_gpu_blocks", vllm.num_gpu_blocks.is_some()),
        ("kv_cache_tokens", vllm.kv_cache_tokens.is_some()),
        ("kv_cache_log", vllm.kv_cache_log.is_some()),
    ];
    let mut given = given.iter().filter(|(_, is_given)| *is_given);
    if let (Some((first, _)), Some((second, _))) = (given.next(), given.next()) {
        let found = format!("given beside {first}");
        return Err(ConfigError::new(second, found, "one of the two"));
    }
    if let Some(tokens) = vllm.kv_cache_tokens.take() {
        let blocks = tokens / u64::from(vllm.block_size);
        vllm.num_gpu_blocks = Some(checked_blocks(blocks).ok_or_else(|| {
            let accepted = format!("tokens of 2 to {TOKENS_MAX} blocks");
            ConfigError::new("kv_cache_tokens", tokens, accepted)
        })?);
    }
    if let Some(path) = vllm.kv_cache_log.take() {
        let path = directory.join(path);
        let blocks = logged_tokens(&path, vllm.block_size)? / u64::from(vllm.block_size);
        vllm.num_gpu_blocks = Some(
            checked_blocks(blocks)
                .ok_or_else(|| bad_log(&path, &format!("it states {blocks} blocks")))?,
        );
    }
    Ok(())
}

fn checked_blocks(blocks: u64) -> Option<u32> {
    u32::try_from(blocks).ok().filter(|blocks| (2..=TOKENS_MAX).contains(blocks))
}

/// The pool that fits beside the weights, or whether the given one does.
fn resolve_memory(
    vllm: &mut VllmConfig,
    shape: &ModelShape,
    data_sheet: &Accelerator,
    parallel: &Parallel,
) -> Result<(), ConfigError> {
    let (batched, seqs) = vllm.budget_and_seats();
    let options = MemoryOptions {
        gpu_memory_utilization: vllm.gpu_memory_utilization,
        block_size: vllm.block_size,
        max_model_len: vllm.max_model_len.unwrap_or(shape.max_position_embeddings),
        max_num_batched_tokens: batched,
        max_num_seqs: seqs,
        cuda_graphs: !vllm.enforce_eager,
    };
    let derive = match vllm.max_model_len {
        Some(_) => KvMemory::derive,
        None => KvMemory::derive_fitting,
    };
    let memory = derive(shape, data_sheet, parallel, &options);
    match vllm.num_gpu_blocks {
        Some(_) if vllm.allow_overcommit => {}
        Some(blocks) => {
            let fits = match &memory {
                Ok(memory) => memory.check_blocks(blocks.into()),
                Err(error) => Err(error.clone()),
            };
            fits.map_err(|error| {
                let accepted = format!("at most what fits, or allow_overcommit ({error})");
                ConfigError::new("engine.vllm.num_gpu_blocks", blocks, accepted)
            })?;
        }
        None => {
            let memory = memory.map_err(|error| ConfigError {
                path: "model".to_owned(),
                found: shape.name.clone(),
                accepted: format!("a model that fits beside a pass of {batched} tokens and {seqs} requests, or num_gpu_blocks and allow_overcommit ({error})"),
            })?;
            vllm.num_gpu_blocks = Some(memory.blocks.min(TOKENS_MAX.into()) as u32);
        }
    }
    Ok(())
}
