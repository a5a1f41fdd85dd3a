//! The `engine` part of a scenario: which family of scheduler, and what everybody else has to know of it.
//!
//! Families are told apart here and nowhere else: a run asks for [`EngineFacts`] and for a scheduler.

mod limits;
mod sglang;
mod steady;
mod trtllm;
mod vllm;

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::config::ConfigError;
use crate::base::time::SimDuration;
use crate::engine::drafting::Drafting;
use crate::engine::frontend::FrontEnd;
use crate::engine::sglang::Sglang;
use crate::engine::sglang::config::SglangConfig;
use crate::engine::trtllm::Trtllm;
use crate::engine::trtllm::config::TrtllmConfig;
use crate::engine::vllm::Vllm;
use crate::engine::vllm::config::VllmConfig;
use crate::engine::{Advance, Scheduler};
use crate::model::accelerator::Accelerator;
use crate::model::engine_log;
use crate::model::parallel::Parallel;
use crate::model::shape::ModelShape;
use crate::report::warning::EngineFields;

pub(crate) use limits::Lift;
pub(super) use steady::SteadyLimits;

/// The engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum EngineConfig {
    /// vLLM V1, as release 0.33.0 schedules.
    Vllm(VllmConfig),
    /// SGLang, as release 0.5.23 schedules.
    Sglang(SglangConfig),
    /// TensorRT-LLM, as its `PyExecutor` schedules.
    Trtllm(TrtllmConfig),
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self::Vllm(VllmConfig::default())
    }
}

/// What an engine is set up on, as far as it is known.
pub(super) struct Deployed<'a> {
    pub(super) model: Option<&'a ModelShape>,
    pub(super) accelerator: Option<&'a Accelerator>,
    pub(super) parallel: &'a Parallel,
}

/// What a run has to know of a resolved engine, whatever its family.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EngineFacts {
    /// Family, release and mode: `vLLM 0.33.0 (async)`.
    pub(crate) name: &'static str,
    /// Tokens of KV that its requests can hold.
    pub(crate) kv_tokens: u64,
    /// Tokens that KV is held and found again by.
    pub(crate) block_tokens: u32,
    /// The longest prompt and output, together, that nobody cuts; in tokens.
    pub(crate) sequence_tokens: u32,
    /// Whether KV is kept and found again by its content.
    pub(crate) prefix_caching: bool,
    /// Whether the host works while the device does.
    pub(crate) asynchronous: bool,
    /// The server before it.
    pub(crate) front_end: FrontEnd,
    /// Batch sizes of decode passes that it captures CUDA graphs for, ascending.
    pub(crate) captured_batches: Vec<u32>,
    /// How it speculates; absent: it does not.
    pub(crate) speculation: Option<SpeculationFacts>,
    /// The fields of its configuration that warnings name.
    pub(crate) fields: EngineFields,
}

/// How an engine speculates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpeculationFacts {
    /// Where drafts come from, in the engine's words.
    pub(crate) method: &'static str,
    /// Most drafts that a round accepts.
    pub(crate) drafts: u32,
    /// Tokens that a round computes for a request: its drafts, and the token before them.
    pub(crate) verified_tokens: u32,
    /// The same of a round for which no draft is found.
    pub(crate) draftless_tokens: u32,
    /// Whether drafts are looked up, and may be missing.
    pub(crate) looks_up: bool,
    /// The field that says so.
    pub(crate) field: &'static str,
}

impl EngineConfig {
    /// What the family is called in a scenario.
    pub(super) const fn family(&self) -> &'static str {
        match self {
            Self::Vllm(_) => "vllm",
            Self::Sglang(_) => "sglang",
            Self::Trtllm(_) => "trtllm",
        }
    }

    /// Fills in what is absent, from what the engine is set up on and as the engine itself would. A relative path
    /// counts from `directory`.
    ///
    /// # Errors
    /// A value that is out of range, that the engine refuses at start, or that does not fit.
    pub(super) fn resolve(
        &mut self,
        on: &Deployed<'_>,
        directory: &Path,
    ) -> Result<(), ConfigError> {
        match self {
            Self::Vllm(config) => vllm::resolve(config, on, directory),
            Self::Sglang(config) => sglang::resolve(config, on, directory),
            Self::Trtllm(config) => trtllm::resolve(config, on),
        }
    }

    /// Forgets what follows from a model and an accelerator: there are others now.
    pub(super) fn uproot(&mut self) {
        match self {
            Self::Vllm(config) => vllm::uproot(config),
            Self::Sglang(config) => sglang::uproot(config),
            Self::Trtllm(config) => trtllm::uproot(config),
        }
    }

    /// What a run has to know of it. Only for a resolved engine.
    pub(crate) fn facts(&self) -> EngineFacts {
        match self {
            Self::Vllm(config) => vllm::facts(config),
            Self::Sglang(config) => sglang::facts(config),
            Self::Trtllm(config) => trtllm::facts(config),
        }
    }

    /// A scheduler without requests. `drafting` says what becomes of drafts, if the engine speculates. A token becomes
    /// visible `detokenize` after its pass ends; `advance` chooses how passes are computed. Only for a resolved engine.
    pub(crate) fn scheduler(
        &self,
        drafting: Option<Drafting>,
        detokenize: SimDuration,
        advance: Advance,
    ) -> Box<dyn Scheduler> {
        match self {
            Self::Vllm(config) => Box::new(Vllm::new(config, drafting, detokenize, advance)),
            Self::Sglang(config) => Box::new(Sglang::new(config, drafting, detokenize, advance)),
            Self::Trtllm(config) => Box::new(Trtllm::new(config, drafting, detokenize, advance)),
        }
    }
}

/// The pool that a start-up log states, in tokens; a block of it has `block_size` tokens where the log does not say.
fn logged_tokens(path: &Path, block_size: u32) -> Result<u64, ConfigError> {
    let logged = engine_log::read(path).map_err(|error| bad_log(path, &error.to_string()))?;
    let block_size = u64::from(logged.block_size.unwrap_or(block_size));
    let in_blocks = logged.blocks.map(|blocks| blocks.saturating_mul(block_size));
    let tokens = logged.tokens.or(in_blocks);
    tokens.ok_or_else(|| bad_log(path, "it states no KV cache"))
}

fn bad_log(path: &Path, what: &str) -> ConfigError {
    ConfigError {
        path: "kv_cache_log".to_owned(),
        found: path.display().to_string(),
        accepted: format!("the start-up log of an engine ({what})"),
    }
}
