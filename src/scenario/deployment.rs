//! From a model and an accelerator to an engine: its device class, its KV pool, its longest sequence.

use std::path::Path;

use super::Scenario;
use crate::base::config::ConfigError;
use crate::base::path::absolute;
use crate::engine::vllm::config::{Device, TOKENS_MAX, VllmConfig};
use crate::model::accelerator::Accelerator;
use crate::model::config::{AcceleratorConfig, ModelConfig};
use crate::model::engine_log;
use crate::model::memory::{KvMemory, MemoryOptions};
use crate::model::parallel::Parallel;
use crate::model::presets;
use crate::model::shape::ModelShape;
use crate::timing::config::TimingConfig;

/// The deployment of a scenario that names none.
const MODEL: &str = "llama-3.1-8b";
const ACCELERATOR: &str = "h100-sxm";

impl Scenario {
    /// The same scenario with the engine set up from a model and an accelerator, as far as they are given:
    /// what the scenario says of its timing, its KV pool and its device class no longer counts.
    ///
    /// `model` is a preset's name, or the path of a `config.json`; `devices` share every layer.
    #[must_use]
    pub fn set_up(
        mut self,
        model: Option<&str>,
        accelerator: Option<&str>,
        devices: Option<u32>,
    ) -> Self {
        if let Some(name) = model {
            let is_path = Path::new(name).exists() && presets::model(name).is_err();
            self.model = Some(if is_path {
                let path = absolute(Path::new(""), Path::new(name));
                ModelConfig { config: Some(path), ..ModelConfig::default() }
            } else {
                ModelConfig::named(name)
            });
        }
        if let Some(name) = accelerator {
            self.accelerator = Some(AcceleratorConfig::named(name));
        }
        if let Some(devices) = devices {
            self.parallel.tensor_parallel_size = devices;
        }
        let is_named = model.is_some() || accelerator.is_some();
        if is_named && !self.timing.as_ref().is_some_and(TimingConfig::follows_the_model) {
            self.timing = None;
        }
        let follows = self.model.is_some() && self.accelerator.is_some();
        if is_named || (devices.is_some() && follows) {
            let super::EngineConfig::Vllm(vllm) = &mut self.engine;
            *vllm = VllmConfig {
                device: None,
                num_gpu_blocks: None,
                kv_cache_tokens: None,
                kv_cache_log: None,
                max_model_len: None,
                ..vllm.clone()
            };
        }
        self
    }

    /// Fills in `model`, `accelerator`, `timing` and what follows from them.
    pub(super) fn resolve_deployment(&mut self, directory: &Path) -> Result<(), ConfigError> {
        let timing = self.timing.clone().unwrap_or_default();
        let timing = timing.resolve(directory).map_err(|e| e.within("timing"))?;
        if self.model.is_none() && self.accelerator.is_none() && timing.follows_the_model() {
            self.model = Some(ModelConfig::named(MODEL));
            self.accelerator = Some(AcceleratorConfig::named(ACCELERATOR));
        }
        let mut shape = None;
        if let Some(model) = &mut self.model {
            let resolved = model.resolve(directory).map_err(|e| e.within("model"))?;
            (*model, shape) = (resolved.0, Some(resolved.1));
        }
        let mut data_sheet = None;
        if let Some(accelerator) = &mut self.accelerator {
            let resolved = accelerator.resolve().map_err(|e| e.within("accelerator"))?;
            (*accelerator, data_sheet) = (resolved.0, Some(resolved.1));
        }
        self.parallel.check().map_err(|e| e.within("parallel"))?;
        if let Some(shape) = &shape {
            self.parallel.check_for(shape).map_err(|e| e.within("parallel"))?;
        }
        if timing.follows_the_model() {
            for (field, is_missing) in
                [("model", shape.is_none()), ("accelerator", data_sheet.is_none())]
            {
                if is_missing {
                    let accepted = format!(
                        "one of `servesim presets`: prices of {} follow from it",
                        timing.provider_name()
                    );
                    return Err(ConfigError::new(field, "absent", accepted));
                }
            }
        }
        self.timing = Some(timing);
        let parallel = self.parallel;
        let super::EngineConfig::Vllm(vllm) = &mut self.engine;
        vllm.check_ranges().map_err(|e| e.within("engine.vllm"))?;
        resolve_pool(vllm, directory)?;
        if let Some(data_sheet) = &data_sheet {
            vllm.device = Some(vllm.device.unwrap_or(Device::of(data_sheet)));
        }
        if let (Some(shape), Some(data_sheet)) = (&shape, &data_sheet) {
            resolve_memory(vllm, shape, data_sheet, &parallel)?;
        } else if let Some(shape) = &shape {
            vllm.limit_model_len(shape.max_position_embeddings)
                .map_err(|e| e.within("engine.vllm"))?;
        }
        Ok(())
    }
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
        return Err(ConfigError::new(second, found, "one of the two").within("engine.vllm"));
    }
    if let Some(tokens) = vllm.kv_cache_tokens.take() {
        let blocks = tokens / u64::from(vllm.block_size);
        vllm.num_gpu_blocks = Some(checked_blocks(blocks).ok_or_else(|| {
            let accepted = format!("tokens of 2 to {TOKENS_MAX} blocks");
            ConfigError::new("engine.vllm.kv_cache_tokens", tokens, accepted)
        })?);
    }
    if let Some(path) = vllm.kv_cache_log.take() {
        let path = directory.join(path);
        let refused = |what: String| ConfigError {
            path: "engine.vllm.kv_cache_log".to_owned(),
            found: path.display().to_string(),
            accepted: format!("the start-up log of an engine ({what})"),
        };
        let logged = engine_log::read(&path).map_err(|error| refused(error.to_string()))?;
        let block_size = u64::from(vllm.block_size);
        let blocks = match (logged.tokens, logged.blocks) {
            (Some(tokens), _) => tokens / block_size,
            (None, Some(blocks)) => {
                blocks.saturating_mul(logged.block_size.map_or(block_size, u64::from)) / block_size
            }
            (None, None) => return Err(refused("it states no KV cache".to_owned())),
        };
        vllm.num_gpu_blocks = Some(
            checked_blocks(blocks).ok_or_else(|| refused(format!("it states {blocks} blocks")))?,
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
    vllm.limit_model_len(shape.max_position_embeddings).map_err(|e| e.within("engine.vllm"))
}
