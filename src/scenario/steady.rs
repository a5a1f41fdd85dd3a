//! A scenario under a steady batch: so many users, each of whom sends the next of many equal requests when the last has
//! ended.

use super::engine::SteadyLimits;
use super::{MetricsConfig, Scenario, WorkloadConfig};
use crate::workload::arrivals::config::{ArrivalsConfig, ClosedLoopConfig};
use crate::workload::lengths::config::LengthConfig;
use crate::workload::synthetic::config::{PrefixesConfig, SyntheticConfig};

/// A steady batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SteadyLoad {
    /// Requests that an engine runs at once.
    pub(crate) batch: u32,
    /// Tokens of a prompt that no other has.
    pub(crate) new_tokens: u32,
    /// Tokens before them that all prompts share.
    pub(crate) prefix_tokens: u32,
    /// Tokens of an output.
    pub(crate) output_tokens: u32,
    /// Tokens that a pass may compute.
    pub(crate) pass_tokens: u32,
    /// How often the requests of the batch follow each other.
    pub(crate) generations: u32,
}

impl Scenario {
    /// This deployment, not resolved yet, under a steady batch on each of its engines: with so many seats, so many tokens
    /// of a pass, and no objectives. `None` if there are more requests than a run can have.
    pub(crate) fn under_steady_load(&self, load: &SteadyLoad) -> Option<Self> {
        let mut scenario = self.clone();
        scenario.engine.keep_steady(SteadyLimits {
            requests: load.batch,
            pass_tokens: load.pass_tokens,
            shares_prefix: load.prefix_tokens > 0,
        });
        let engines = self.cluster.engines.unwrap_or(self.parallel.data_parallel_size);
        let users = load.batch.checked_mul(engines)?;
        let requests = users.checked_mul(load.generations).filter(|&n| n < u32::MAX)?;
        let prefixes = (load.prefix_tokens > 0).then(|| PrefixesConfig {
            groups: 1,
            prefix_tokens: LengthConfig::Fixed(load.prefix_tokens),
            ..PrefixesConfig::default()
        });
        scenario.workload = WorkloadConfig::Synthetic(Box::new(SyntheticConfig {
            requests,
            prompt_tokens: Some(LengthConfig::Fixed(load.new_tokens)),
            output_tokens: Some(LengthConfig::Fixed(load.output_tokens)),
            prefixes,
            arrivals: ArrivalsConfig::ClosedLoop(ClosedLoopConfig {
                concurrency: users,
                ..ClosedLoopConfig::default()
            }),
            ..SyntheticConfig::default()
        }));
        scenario.metrics = MetricsConfig::default();
        scenario.slo = None;
        Some(scenario)
    }
}
