//! An SGLang engine: its KV pool, its context, and the defaults that follow from the device's memory.

use std::path::Path;

use super::{Deployed, EngineFacts, SpeculationFacts, bad_log, logged_tokens};
use crate::base::config::ConfigError;
use crate::engine::frontend::FrontEnd;
use crate::engine::sglang::config::defaults::Device;
use crate::engine::sglang::config::speculative::SpeculativeAlgorithm;
use crate::engine::sglang::config::{CONTEXT_MIN, Limits, SglangConfig, TOKENS_MAX};
use crate::model::accelerator::Accelerator;
use crate::model::memory::sglang::StaticMemory;
use crate::model::parallel::Parallel;
use crate::model::shape::ModelShape;
use crate::report::warning::EngineFields;

/// Forgets what follows from a model and an accelerator.
pub(super) fn uproot(config: &mut SglangConfig) {
    config.context_length = None;
    config.max_total_tokens = None;
    config.kv_cache_log = None;
}

pub(super) fn facts(config: &SglangConfig) -> EngineFacts {
    let seen = "a resolved engine has every value";
    let overlaps = !config.disable_overlap_schedule;
    let (pool, context) =
        (config.max_total_tokens.expect(seen), config.context_length.expect(seen));
    let front_end = FrontEnd::Sglang { context_tokens: config.context_tokens_served() };
    EngineFacts {
        name: if overlaps { "SGLang 0.5.23 (overlap)" } else { "SGLang 0.5.23 (no overlap)" },
        kv_tokens: pool.into(),
        block_tokens: config.page_size,
        // Limits of outputs are two tokens short of it (A2).
        sequence_tokens: context.min(pool).saturating_sub(2),
        prefix_caching: !config.disable_radix_cache,
        asynchronous: overlaps,
        front_end,
        captured_batches: config.captured_batches(),
        speculation: Limits::of(config).speculation.map(|speculation| SpeculationFacts {
            method: config.speculative_algorithm.map_or("", SpeculativeAlgorithm::name),
            drafts: speculation.accepted_max,
            verified_tokens: speculation.verified_tokens,
            draftless_tokens: speculation.verified_tokens,
            looks_up: speculation.looks_up,
            field: "engine.sglang.speculative_algorithm",
        }),
        fields: EngineFields {
            sequence: if pool <= context {
                "engine.sglang.max_total_tokens"
            } else {
                "engine.sglang.context_length"
            },
            queue: Some("engine.sglang.max_queued_requests"),
            pool: "engine.sglang.max_total_tokens",
            // Who cannot be admitted to an empty engine is short of KV (E4, X3).
            keeper: "engine.sglang.max_total_tokens",
            prefix_caching: "engine.sglang.disable_radix_cache",
            speculation: "engine.sglang.speculative_algorithm",
        },
    }
}

/// Fills in what is absent.
pub(super) fn resolve(
    config: &mut SglangConfig,
    on: &Deployed<'_>,
    directory: &Path,
) -> Result<(), ConfigError> {
    let within = |error: ConfigError| error.within("engine.sglang");
    config.check_ranges().map_err(within)?;
    resolve_pool(config, directory).map_err(within)?;
    if let Some(accelerator) = on.accelerator {
        config.choose_by(&Device::of(accelerator, on.model, on.parallel));
    }
    if let (Some(model), Some(accelerator)) = (on.model, on.accelerator) {
        resolve_memory(config, model, accelerator, on.parallel)?;
    }
    if let Some(model) = on.model {
        config.limit_context(model.max_position_embeddings).map_err(within)?;
    }
    *config = config.resolve().map_err(within)?;
    Ok(())
}

/// The pool of an engine that states it in its log.
fn resolve_pool(config: &mut SglangConfig, directory: &Path) -> Result<(), ConfigError> {
    let Some(path) = config.kv_cache_log.take() else { return Ok(()) };
    if config.max_total_tokens.is_some() {
        let found = "given beside max_total_tokens";
        return Err(ConfigError::new("kv_cache_log", found, "one of the two"));
    }
    let path = directory.join(path);
    let tokens = logged_tokens(&path, config.page_size)?;
    let known = u32::try_from(tokens).ok();
    let known = known.filter(|tokens| (CONTEXT_MIN..=TOKENS_MAX).contains(tokens));
    config.max_total_tokens =
        Some(known.ok_or_else(|| bad_log(&path, &format!("it states {tokens} tokens")))?);
    Ok(())
}

/// The pool that fits beside the weights, or whether the given one does.
fn resolve_memory(
    config: &mut SglangConfig,
    model: &ModelShape,
    accelerator: &Accelerator,
    parallel: &Parallel,
) -> Result<(), ConfigError> {
    if config.max_total_tokens.is_some() && config.allow_overcommit {
        return Ok(());
    }
    let Some(share) = config.mem_fraction_static else {
        let accepted =
            "a share: passes and graphs of the size that is asked for leave none of the memory";
        return Err(ConfigError::new("engine.sglang.mem_fraction_static", "absent", accepted));
    };
    let memory = StaticMemory::derive(model, accelerator, parallel, share, config.page_size);
    let Some(tokens) = config.max_total_tokens else {
        let memory = memory.map_err(|error| ConfigError {
            path: "model".to_owned(),
            found: model.name.clone(),
            accepted: format!(
                "a model that fits with a mem_fraction_static of {share}, or max_total_tokens and allow_overcommit ({error})"
            ),
        })?;
        config.max_total_tokens = Some(memory.tokens.min(TOKENS_MAX.into()) as u32);
        return Ok(());
    };
    memory.and_then(|memory| memory.check_tokens(tokens.into())).map_err(|error| {
        let accepted = format!("at most what fits, or allow_overcommit ({error})");
        ConfigError::new("engine.sglang.max_total_tokens", tokens, accepted)
    })
}
