//! The `servegen` part of a scenario's workload.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::config::ConfigError;
use crate::base::path::absolute;
use crate::base::time::SimTime;

/// Load that is drawn from the client pool of a production day, as ServeGen publishes them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServeGenConfig {
    /// A folder with `chunk-K-trace.csv` and `chunk-K-dataset.json` for each client K, or a tar
    /// archive of one, plain or gzip (told by its first bytes, not its name).
    pub(crate) path: PathBuf,
    /// How many requests there are at most; at least 1. Absent: as many as the window holds.
    #[schemars(range(min = 1))]
    pub(crate) requests: Option<u32>,
    /// The part of the day that is generated; absent: all of it. The run starts where it begins.
    pub(crate) window: Option<DayWindow>,
    /// Mean requests per second of the window, to which the rates of all clients are scaled by one
    /// factor; absent: as in the pool.
    pub(crate) requests_per_s: Option<f64>,
    /// Multiplies the rates of all clients; not beside `requests_per_s`.
    pub(crate) rate_factor: Option<f64>,
    /// Only so many clients, those that send the most requests in the window; absent: all.
    #[schemars(range(min = 1))]
    pub(crate) clients: Option<u32>,
    /// How far long prompts have long outputs: the correlation of the normal draws behind the
    /// lengths of a request, from -1 to 1. ServeGen has 1, one draw for all lengths of a request.
    pub(crate) length_correlation: f64,
    /// Longer prompts are cut to so many tokens; at least 1.
    #[schemars(range(min = 1))]
    pub(crate) prompt_tokens_max: Option<u32>,
    /// Output tokens that every request asks for (`max_tokens` of the API); at least 1. A request
    /// whose drawn output is shorter ends by a stop token, a longer one is cut. Absent: each request
    /// asks for exactly its drawn output.
    #[schemars(range(min = 1))]
    pub(crate) max_tokens: Option<u32>,
    /// Requests that the clients have under way at most, all together; the others wait on their side.
    #[schemars(range(min = 1))]
    pub(crate) max_concurrency: Option<u32>,
}

/// A part of the day: arrivals from `from_s` on, before `to_s`, in the seconds of the pool's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DayWindow {
    /// Where it begins; at least 0.
    #[schemars(range(min = 0.0))]
    pub(crate) from_s: f64,
    /// Where it ends; above `from_s`. Absent: with the day.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub(crate) to_s: Option<f64>,
}

impl Default for ServeGenConfig {
    fn default() -> Self {
        Self {
            path: PathBuf::new(),
            requests: None,
            window: None,
            requests_per_s: None,
            rate_factor: None,
            clients: None,
            length_correlation: 0.0,
            prompt_tokens_max: None,
            max_tokens: None,
            max_concurrency: None,
        }
    }
}

/// Requests per second that there may be.
pub(super) const RATE_MAX: f64 = 1e6;

impl ServeGenConfig {
    /// Checks what the types leave open, and makes the path absolute, from `directory`.
    ///
    /// # Errors
    /// The first field that cannot be used.
    pub(crate) fn resolve(&mut self, directory: &Path) -> Result<(), ConfigError> {
        if self.path.as_os_str().is_empty() {
            return Err(ConfigError::new("path", "empty", "a folder, or a tar archive of one"));
        }
        if self.requests.is_some_and(|requests| requests == 0 || requests == u32::MAX) {
            let found = self.requests.unwrap_or_default();
            return Err(ConfigError::new("requests", found, "an integer from 1 to 4294967294"));
        }
        if let Some(window) = self.window {
            window.check().map_err(|e| e.within("window"))?;
        }
        let check = |path, value: Option<f64>, to: f64| match value {
            Some(found) if !(1e-6..=to).contains(&found) => {
                Err(ConfigError::new(path, found, format!("a number from 0.000001 to {to}")))
            }
            _ => Ok(()),
        };
        check("requests_per_s", self.requests_per_s, RATE_MAX)?;
        check("rate_factor", self.rate_factor, 1e6)?;
        if self.requests_per_s.is_some()
            && let Some(factor) = self.rate_factor
        {
            return Err(ConfigError::new("rate_factor", factor, "none beside `requests_per_s`"));
        }
        if !(-1.0..=1.0).contains(&self.length_correlation) {
            let found = self.length_correlation;
            return Err(ConfigError::new("length_correlation", found, "a number from -1 to 1"));
        }
        for (path, value) in [
            ("clients", self.clients),
            ("prompt_tokens_max", self.prompt_tokens_max),
            ("max_tokens", self.max_tokens),
            ("max_concurrency", self.max_concurrency),
        ] {
            if value == Some(0) {
                let accepted = "an integer from 1 to 4294967295, or none";
                return Err(ConfigError::new(path, 0, accepted));
            }
        }
        self.path = absolute(directory, &self.path);
        Ok(())
    }
}

impl DayWindow {
    fn check(self) -> Result<(), ConfigError> {
        let accepted = "a number from 0 to 3153600000 (100 years)";
        let Some(from) = ns_of_s(self.from_s) else {
            return Err(ConfigError::new("from_s", self.from_s, accepted));
        };
        let Some(to_s) = self.to_s else { return Ok(()) };
        match ns_of_s(to_s) {
            None => Err(ConfigError::new("to_s", to_s, accepted)),
            Some(to) if to <= from => {
                let accepted = format!("a number above `from_s`, which is {}", self.from_s);
                Err(ConfigError::new("to_s", to_s, accepted))
            }
            Some(_) => Ok(()),
        }
    }
}

/// `s` seconds in nanoseconds, rounded to the nearest; `None` outside 0 to 100 years.
pub(super) fn ns_of_s(s: f64) -> Option<u64> {
    let ns = (s * 1e9).round();
    (0.0..=SimTime::LATEST_INPUT.as_ns() as f64).contains(&ns).then_some(ns as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unusable_value_names_its_field() {
        for (fields, expected) in [
            ("{}", "`path` is empty"),
            ("{path: p, requests: 0}", "`requests` is 0"),
            ("{path: p, requests: 4294967295}", "`requests` is 4294967295"),
            ("{path: p, window: {from_s: -1}}", "`window.from_s` is -1"),
            ("{path: p, window: {from_s: 1, to_s: 4e9}}", "`window.to_s` is 4000000000"),
            (
                "{path: p, window: {from_s: 5, to_s: 5}}",
                "`window.to_s` is 5, expected a number above `from_s`, which is 5",
            ),
            ("{path: p, window: {from_s: .nan}}", "`window.from_s` is NaN"),
            ("{path: p, requests_per_s: 0}", "`requests_per_s` is 0, expected a number from"),
            ("{path: p, requests_per_s: 2e6}", "`requests_per_s` is 2000000"),
            ("{path: p, rate_factor: -1}", "`rate_factor` is -1"),
            (
                "{path: p, rate_factor: 2, requests_per_s: 1}",
                "`rate_factor` is 2, expected none beside `requests_per_s`",
            ),
            ("{path: p, length_correlation: 1.5}", "`length_correlation` is 1.5"),
            ("{path: p, clients: 0}", "`clients` is 0"),
            ("{path: p, max_tokens: 0}", "`max_tokens` is 0"),
            ("{path: p, prompt_tokens_max: 0}", "`prompt_tokens_max` is 0"),
            ("{path: p, max_concurrency: 0}", "`max_concurrency` is 0"),
        ] {
            let mut config: ServeGenConfig = serde_saphyr::from_str(fields).unwrap();
            let error = config.resolve(Path::new("/")).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{fields}: {error}");
        }
    }

    #[test]
    fn the_path_is_seen_from_the_scenario() {
        let mut config: ServeGenConfig = serde_saphyr::from_str("{path: pool}").unwrap();
        config.resolve(Path::new("/days")).unwrap();
        assert_eq!(config.path, Path::new("/days/pool"));
    }
}
