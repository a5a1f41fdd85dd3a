//! The `synthetic` part of a scenario's workload.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::config::ConfigError;
use crate::base::time::SimTime;

/// Made-up load. Its prompts share nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SyntheticConfig {
    /// How many requests there are; at least 1.
    pub(crate) requests: u32,
    /// Tokens of a prompt.
    pub(crate) prompt_tokens: LengthConfig,
    /// Tokens of an output.
    pub(crate) output_tokens: LengthConfig,
    /// When requests come.
    pub(crate) arrivals: ArrivalsConfig,
}

/// A number of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum LengthConfig {
    /// Always the same.
    Fixed(u32),
}

/// When requests come.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum ArrivalsConfig {
    /// At a constant rate, from time 0 on.
    Constant(ConstantConfig),
    /// So many at time 0, then one whenever one has ended.
    ClosedLoop(ClosedLoopConfig),
}

/// A constant rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ConstantConfig {
    /// Requests per second, from 0.001 on.
    pub(crate) requests_per_s: f64,
}

/// A fixed number of requests under way.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ClosedLoopConfig {
    /// Requests under way at any time; at least 1.
    pub(crate) concurrency: u32,
}

impl Default for SyntheticConfig {
    fn default() -> Self {
        Self {
            requests: 1000,
            prompt_tokens: LengthConfig::Fixed(1024),
            output_tokens: LengthConfig::Fixed(256),
            arrivals: ArrivalsConfig::Constant(ConstantConfig::default()),
        }
    }
}

impl Default for ConstantConfig {
    fn default() -> Self {
        Self { requests_per_s: 1.0 }
    }
}

impl Default for ClosedLoopConfig {
    fn default() -> Self {
        Self { concurrency: 64 }
    }
}

impl SyntheticConfig {
    /// Checks what the types leave open.
    ///
    /// # Errors
    /// The first field that cannot be used.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        if self.requests == 0 || self.requests == u32::MAX {
            let accepted = "an integer from 1 to 4294967294";
            return Err(ConfigError::new("requests", self.requests, accepted));
        }
        match self.arrivals {
            ArrivalsConfig::Constant(rate) => {
                let path = "arrivals.constant.requests_per_s";
                if !(1e-3..=1e9).contains(&rate.requests_per_s) {
                    let accepted = "a number from 0.001 to 1000000000";
                    return Err(ConfigError::new(path, rate.requests_per_s, accepted));
                }
                // What a run adds to the last arrival still fits the clock.
                let last_s = f64::from(self.requests) / rate.requests_per_s;
                if last_s > SimTime::LATEST_INPUT.as_s() {
                    let accepted = "a rate at which the last request arrives within 100 years";
                    return Err(ConfigError::new(path, rate.requests_per_s, accepted));
                }
            }
            ArrivalsConfig::ClosedLoop(users) => {
                if users.concurrency == 0 {
                    let path = "arrivals.closed_loop.concurrency";
                    return Err(ConfigError::new(path, 0, "an integer of at least 1"));
                }
            }
        }
        Ok(())
    }
}
