//! What is changed about a trace before it is replayed.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::config::ConfigError;
use crate::workload::arrivals::config::ArrivalsConfig;
use crate::workload::lengths::config::LengthConfig;

/// Changes to a trace, made in the order of the fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ReshapeConfig {
    /// The quantum of the trace's stamps, in milliseconds of trace time: requests of one stamp are
    /// spread evenly over it.
    pub(crate) spread_ties_ms: Option<f64>,
    /// Share of the requests that is kept, each by a draw of its own; above 0, at most 1.
    pub(crate) sample_ratio: f64,
    /// How often the trace is replayed, one copy after the other; at least 1.
    pub(crate) repeat: u32,
    /// Mean requests per second: the time between arrivals is scaled to it.
    pub(crate) requests_per_s: Option<f64>,
    /// Arrivals in the place of the recorded ones.
    pub(crate) arrivals: Option<ArrivalsConfig>,
    /// Prompt tokens in the place of the recorded ones.
    pub(crate) prompt_tokens: Option<LengthConfig>,
    /// Output tokens in the place of the recorded ones.
    pub(crate) output_tokens: Option<LengthConfig>,
    /// Multiplies prompt tokens.
    pub(crate) prompt_factor: f64,
    /// Multiplies output tokens.
    pub(crate) output_factor: f64,
    /// Requests that the client has under way at most; the others wait on its side.
    pub(crate) max_concurrency: Option<u32>,
}

impl Default for ReshapeConfig {
    fn default() -> Self {
        Self {
            spread_ties_ms: None,
            sample_ratio: 1.0,
            repeat: 1,
            requests_per_s: None,
            arrivals: None,
            prompt_tokens: None,
            output_tokens: None,
            prompt_factor: 1.0,
            output_factor: 1.0,
            max_concurrency: None,
        }
    }
}

/// Copies of a trace that may follow each other.
const REPEAT_MAX: u32 = 1_000_000;

impl ReshapeConfig {
    /// Whether the trace has to be read more than once.
    pub(crate) fn reads_again(&self) -> bool {
        self.repeat > 1 || self.counts_first()
    }

    /// Whether something has to be known about all requests before the first.
    pub(crate) fn counts_first(&self) -> bool {
        self.requests_per_s.is_some() || matches!(self.arrivals, Some(ArrivalsConfig::VllmBench(_)))
    }

    /// Whether outputs are replaced or scaled.
    pub(crate) fn changes_outputs(&self) -> bool {
        self.output_tokens.is_some() || self.output_factor.total_cmp(&1.0).is_ne()
    }

    /// The field by which arrivals follow the ends of requests, and what it is; `None` where none does.
    pub(crate) fn following_ends(&self) -> Option<(&'static str, String)> {
        if let Some(concurrency) = self.max_concurrency {
            return Some(("max_concurrency", concurrency.to_string()));
        }
        let field = self.arrivals.as_ref()?.following_ends()?;
        Some(("arrivals", field.to_owned()))
    }

    /// Checks what the types leave open, and makes paths absolute, from `directory`.
    ///
    /// # Errors
    /// The first field that cannot be used.
    pub(crate) fn resolve(&mut self, trace: &Path, directory: &Path) -> Result<(), ConfigError> {
        let refuse =
            |path: &str, found: f64, accepted: &str| Err(ConfigError::new(path, found, accepted));
        if let Some(ms) = self.spread_ties_ms.filter(|ms| !(0.0..=86_400_000.0).contains(ms)) {
            return refuse("spread_ties_ms", ms, "a number from 0 to 86400000");
        }
        if !(self.sample_ratio > 0.0 && self.sample_ratio <= 1.0) {
            return refuse("sample_ratio", self.sample_ratio, "a number above 0, at most 1");
        }
        if !(1..=REPEAT_MAX).contains(&self.repeat) {
            return refuse("repeat", self.repeat.into(), "an integer from 1 to 1000000");
        }
        if let Some(rate) = self.requests_per_s {
            if !(1e-3..=1e9).contains(&rate) {
                return refuse("requests_per_s", rate, "a number from 0.001 to 1000000000");
            }
            if self.arrivals.is_some() {
                let accepted = "none beside `arrivals`, which have a rate";
                return refuse("requests_per_s", rate, accepted);
            }
        }
        if let Some(arrivals) = &self.arrivals {
            // How many requests there are is not known; late arrivals are refused as they come.
            arrivals.validate(0).map_err(|e| e.within("arrivals"))?;
        }
        if let Some(tokens) = &mut self.prompt_tokens {
            tokens.resolve(directory).map_err(|e| e.within("prompt_tokens"))?;
        }
        if let Some(tokens) = &mut self.output_tokens {
            tokens.resolve(directory).map_err(|e| e.within("output_tokens"))?;
        }
        for (path, factor) in
            [("prompt_factor", self.prompt_factor), ("output_factor", self.output_factor)]
        {
            if !(1e-3..=1e3).contains(&factor) {
                return refuse(path, factor, "a number from 0.001 to 1000");
            }
        }
        if self.max_concurrency == Some(0) {
            return refuse("max_concurrency", 0.0, "an integer of at least 1");
        }
        if trace == Path::new("-") && self.reads_again() {
            let field = match (self.repeat, self.requests_per_s) {
                (2.., _) => "repeat",
                (_, Some(_)) => "requests_per_s",
                _ => "arrivals.vllm_bench",
            };
            let accepted = "none for the standard input, which can be read only once";
            return Err(ConfigError::new(field, "set", accepted));
        }
        Ok(())
    }
}
