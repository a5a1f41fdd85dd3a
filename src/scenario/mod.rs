//! The configuration of a run: what may be said, what it means, and what is wrong with it.
//!
//! A scenario is YAML or JSON. It is read ([`load`]), changed by `--set` ([`set`]), and resolved:
//! every absent value is filled in and every range checked. The resolved scenario has the same
//! form, so the one in a report can be run again.

mod deployment;
mod engine;
mod error;
mod lift;
mod load;
mod requests;
mod schema;
mod set;
mod steady;

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::config::ConfigError;
use crate::base::hint::nearest;
use crate::base::path::absolute;
use crate::base::time::SimDuration;
use crate::engine::drafting::config::SpeculationConfig;
use crate::metrics::samples::EXACT_LIMIT;
use crate::metrics::slo::SloConfig;
use crate::model::config::{AcceleratorConfig, ModelConfig};
use crate::model::parallel::Parallel;
use crate::timing::config::TimingConfig;
use crate::timing::pricing::PricingConfig;
use crate::workload::servegen::config::ServeGenConfig;
use crate::workload::synthetic::config::SyntheticConfig;
use crate::workload::trace::config::TraceConfig;

pub(crate) use engine::{EngineConfig, EngineFacts, Lift, SpeculationFacts};
pub use error::ScenarioError;
pub use schema::json_schema;
pub use set::Assignment;
pub(crate) use steady::SteadyLoad;

/// The name and number of the scenario format.
pub(crate) const SCENARIO_FORMAT: &str = "servesim.scenario/1";

/// A deployment and the load it is to carry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "servesim scenario")]
pub struct Scenario {
    /// The name and number of this format, `servesim.scenario/1`.
    pub(crate) schema: String,
    /// What the scenario is called in reports.
    pub(crate) name: Option<String>,
    /// The seed of every random stream.
    pub(crate) seed: u64,
    /// The requests.
    pub(crate) workload: WorkloadConfig,
    /// The model that is served. Without `model` and `accelerator`, and with no timing but `roofline`: `llama-3.1-8b`.
    pub(crate) model: Option<ModelConfig>,
    /// What it is served on. Without `model` and `accelerator`, and with no timing but `roofline`: `h100-sxm`.
    pub(crate) accelerator: Option<AcceleratorConfig>,
    /// How one engine is spread over several accelerators.
    pub(crate) parallel: Parallel,
    /// How many engines serve them.
    pub(crate) cluster: ClusterConfig,
    /// What each of these engines is.
    pub(crate) engine: EngineConfig,
    /// What becomes of drafts, if the engine speculates.
    pub(crate) speculation: SpeculationConfig,
    /// What its forward passes cost; absent: `roofline`.
    pub(crate) timing: Option<TimingConfig>,
    /// How these answers become the price of a pass.
    pub(crate) pricing: PricingConfig,
    /// What the host adds to them.
    pub(crate) host: HostConfig,
    /// What is measured.
    pub(crate) metrics: MetricsConfig,
    /// What latencies are to be met; absent: none.
    pub(crate) slo: Option<SloConfig>,
}

/// The requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum WorkloadConfig {
    /// Replayed from a recorded trace.
    Trace(TraceConfig),
    /// Made up.
    Synthetic(Box<SyntheticConfig>),
    /// Drawn from a pool of clients.
    #[serde(rename = "servegen")]
    ServeGen(ServeGenConfig),
}

/// The engines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ClusterConfig {
    /// Engines that share the requests, each in its turn; from 1 to 4096. Absent: `data_parallel_size`, of which it
    /// is a multiple.
    pub(crate) engines: Option<u32>,
}

/// Engines that can be simulated at once.
const ENGINES_MAX: u32 = 4096;

/// What the host adds, in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HostConfig {
    /// Scheduling, sampling and detokenising, per pass, in ms. Synchronous scheduling adds it to
    /// the pass; asynchronous scheduling hides it behind the device, so the longer counts.
    pub(crate) per_pass_host_ms: f64,
    /// Tokenising and HTTP, from arrival to the engine's queue, in ms.
    pub(crate) frontend_ms: f64,
    /// From the end of a pass to the visible token, in ms.
    pub(crate) detokenize_ms: f64,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MetricsConfig {
    /// Requests at the start that are simulated but not counted.
    pub(crate) warmup: Option<WarmupConfig>,
    /// Only requests that arrive within this part of the run are counted.
    pub(crate) window: Option<WindowConfig>,
    /// Distinct values of a metric that are kept; a metric with more is summarised by a histogram of
    /// three significant digits.
    pub(crate) exact_samples_max: u32,
}

/// Requests at the start that are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum WarmupConfig {
    /// The first so many requests.
    Requests(u64),
    /// Requests that arrive within the first so many seconds.
    Seconds(f64),
    /// The first so many requests, whose passes take no time besides: they leave the cache as they found it
    /// when the trace was recorded.
    WarmCache(u64),
}

/// A part of a run, in seconds since its start: from `from_s` on, before `to_s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WindowConfig {
    /// Where it begins.
    pub(crate) from_s: f64,
    /// Where it ends; absent: with the run.
    pub(crate) to_s: Option<f64>,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            schema: SCENARIO_FORMAT.to_owned(),
            name: None,
            seed: 0,
            workload: WorkloadConfig::default(),
            model: None,
            accelerator: None,
            parallel: Parallel::default(),
            cluster: ClusterConfig::default(),
            engine: EngineConfig::default(),
            speculation: SpeculationConfig::default(),
            timing: None,
            pricing: PricingConfig::default(),
            host: HostConfig::default(),
            metrics: MetricsConfig::default(),
            slo: None,
        }
    }
}

impl Default for WorkloadConfig {
    fn default() -> Self {
        Self::Trace(TraceConfig::default())
    }
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self { warmup: None, window: None, exact_samples_max: EXACT_LIMIT as u32 }
    }
}

impl Scenario {
    /// Replays `trace` with defaults for everything else.
    #[must_use]
    pub fn replay(trace: &Path) -> Self {
        let trace = TraceConfig { path: trace.to_owned(), ..TraceConfig::default() };
        let name = Some("replay".to_owned());
        Self { name, workload: WorkloadConfig::Trace(trace), ..Self::default() }
    }

    /// Checks that the path of a trace or a pool is text: it is repeated in the report.
    fn check_path(&self) -> Result<(), ConfigError> {
        let (field, path) = match &self.workload {
            WorkloadConfig::Trace(trace) => ("workload.trace.path", &trace.path),
            WorkloadConfig::ServeGen(pool) => ("workload.servegen.path", &pool.path),
            WorkloadConfig::Synthetic(_) => return Ok(()),
        };
        if path.to_str().is_none() {
            return Err(ConfigError::new(field, path.display(), "a path in UTF-8"));
        }
        Ok(())
    }

    /// The same scenario with every absent value filled in. Relative paths are made absolute:
    /// from `directory`, where the scenario was read.
    ///
    /// # Errors
    /// A value that is out of range, or that the engine would refuse.
    pub fn resolve(&self, directory: &Path) -> Result<Self, ConfigError> {
        let mut resolved = self.clone();
        if resolved.schema != SCENARIO_FORMAT {
            return Err(ConfigError::new("schema", &self.schema, SCENARIO_FORMAT));
        }
        match &mut resolved.workload {
            WorkloadConfig::Trace(trace) => {
                trace.validate().map_err(|e| e.within("workload.trace"))?;
                if let Some(reshape) = &mut trace.reshape {
                    let resolved = reshape.resolve(&trace.path, directory);
                    resolved.map_err(|e| e.within("workload.trace.reshape"))?;
                }
                trace.check_sessions().map_err(|e| e.within("workload.trace"))?;
                if trace.path.as_os_str() != "-" {
                    trace.path = absolute(directory, &trace.path);
                }
                if let Some(prompts) = &mut trace.prompts {
                    *prompts = absolute(directory, prompts);
                }
            }
            WorkloadConfig::Synthetic(synthetic) => {
                synthetic.resolve(directory).map_err(|e| e.within("workload.synthetic"))?;
            }
            WorkloadConfig::ServeGen(pool) => {
                pool.resolve(directory).map_err(|e| e.within("workload.servegen"))?;
            }
        }
        resolved.check_path()?;
        resolved.resolve_deployment(directory)?;
        let ranks = resolved.parallel.data_parallel_size;
        let engines = resolved.cluster.engines.unwrap_or(ranks);
        if !(1..=ENGINES_MAX).contains(&engines) {
            let accepted = format!("an integer from 1 to {ENGINES_MAX}");
            return Err(ConfigError::new("cluster.engines", engines, accepted));
        }
        if !engines.is_multiple_of(ranks) {
            let accepted = format!("a multiple of parallel.data_parallel_size ({ranks})");
            return Err(ConfigError::new("cluster.engines", engines, accepted));
        }
        resolved.cluster.engines = Some(engines);
        resolved.resolve_speculation()?;
        let captured = resolved.engine.facts().captured_batches;
        let pricing = resolved.pricing.resolve(captured, directory);
        resolved.pricing = pricing.map_err(|e| e.within("pricing"))?;
        resolved.host.check().map_err(|e| e.within("host"))?;
        resolved.metrics.check().map_err(|e| e.within("metrics"))?;
        if let Some(slo) = &resolved.slo {
            slo.check().map_err(|e| e.within("slo"))?;
            resolved.check_class_names(slo)?;
        }
        Ok(resolved)
    }

    /// Checks what becomes of drafts, as the engine makes them.
    fn resolve_speculation(&mut self) -> Result<(), ConfigError> {
        self.speculation.check().map_err(|e| e.within("speculation"))?;
        let is_given = self.speculation.acceptance.is_some();
        let Some(speculates) = self.engine.facts().speculation else { return Ok(()) };
        let acceptance = self.speculation.acceptance(speculates.drafts, speculates.looks_up);
        acceptance.map_err(|e| e.within("speculation"))?;
        match &mut self.workload {
            WorkloadConfig::Trace(trace) => trace.needs_accepted_drafts = !is_given,
            _ if is_given => {}
            _ => {
                let accepted = format!(
                    "conditional_rates, position_rates or accepted_drafts_mean, as there is {}",
                    speculates.field
                );
                return Err(ConfigError::new("speculation.acceptance", "absent", accepted));
            }
        }
        Ok(())
    }

    /// Refuses objectives of a class that made-up load does not have. What classes a trace names is not known
    /// before it is read.
    fn check_class_names(&self, slo: &SloConfig) -> Result<(), ConfigError> {
        let WorkloadConfig::Synthetic(load) = &self.workload else { return Ok(()) };
        let known: Vec<&str> = load.classes.iter().flatten().map(|c| c.name.as_str()).collect();
        for name in slo.classes.iter().flat_map(|classes| classes.keys()) {
            if !known.contains(&name.as_str()) {
                let near = nearest(name, known.iter().copied());
                let hint = near.map_or(String::new(), |name| format!(", did you mean `{name}`?"));
                let accepted = format!("the name of a class of the workload{hint}");
                return Err(ConfigError::new("slo.classes", format!("{name:?}"), accepted));
            }
        }
        Ok(())
    }

    /// The family of its engine, `vllm`, `sglang` or `trtllm`.
    pub(crate) const fn engine_family(&self) -> &'static str {
        self.engine.family()
    }

    /// The same scenario under another seed.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
}

/// The longest overhead that makes sense: a minute.
const OVERHEAD_MS_MAX: f64 = 60_000.0;

impl HostConfig {
    fn check(&self) -> Result<(), ConfigError> {
        for (path, ms) in [
            ("per_pass_host_ms", self.per_pass_host_ms),
            ("frontend_ms", self.frontend_ms),
            ("detokenize_ms", self.detokenize_ms),
        ] {
            if !(0.0..=OVERHEAD_MS_MAX).contains(&ms) {
                return Err(ConfigError::new(path, ms, "a number from 0 to 60000"));
            }
        }
        Ok(())
    }

    /// From arrival to the engine's queue.
    pub(crate) fn frontend(&self) -> SimDuration {
        SimDuration::from_ms(self.frontend_ms).expect("checked when resolved")
    }

    /// From the end of a pass to the visible token.
    pub(crate) fn detokenize(&self) -> SimDuration {
        SimDuration::from_ms(self.detokenize_ms).expect("checked when resolved")
    }
}

/// The longest part of a run that can be named: a hundred years.
const SECONDS_MAX: f64 = 3_153_600_000.0;

impl MetricsConfig {
    fn check(&self) -> Result<(), ConfigError> {
        let seconds = |path: &str, s: f64| {
            let accepted = "a number of seconds from 0 to 3153600000";
            if (0.0..=SECONDS_MAX).contains(&s) {
                Ok(())
            } else {
                Err(ConfigError::new(path, s, accepted))
            }
        };
        if let Some(WarmupConfig::Seconds(s)) = self.warmup {
            seconds("warmup.seconds", s)?;
        }
        if let Some(window) = self.window {
            seconds("window.from_s", window.from_s)?;
            if let Some(to_s) = window.to_s {
                seconds("window.to_s", to_s)?;
                if to_s <= window.from_s {
                    let accepted = format!("more than window.from_s ({})", window.from_s);
                    return Err(ConfigError::new("window.to_s", to_s, accepted));
                }
            }
        }
        if self.exact_samples_max == 0 {
            return Err(ConfigError::new("exact_samples_max", 0, "an integer of at least 1"));
        }
        Ok(())
    }
}
