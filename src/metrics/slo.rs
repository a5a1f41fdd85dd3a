//! Service level objectives: which requests met theirs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::passes::ratio;
use super::record::RequestRecord;
use crate::base::config::ConfigError;

/// Limits that a request meets if it stays at or below all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SloLimits {
    /// The longest TTFT, in ms; absent: any.
    pub(crate) ttft_ms: Option<f64>,
    /// The longest TPOT, in ms; absent: any. A request of one token meets it.
    pub(crate) tpot_ms: Option<f64>,
    /// The longest E2E latency, in ms; absent: any.
    pub(crate) e2e_ms: Option<f64>,
}

/// The limits of all requests, and those of single classes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SloConfig {
    /// The longest TTFT, in ms; absent: any.
    pub(crate) ttft_ms: Option<f64>,
    /// The longest TPOT, in ms; absent: any. A request of one token meets it.
    pub(crate) tpot_ms: Option<f64>,
    /// The longest E2E latency, in ms; absent: any.
    pub(crate) e2e_ms: Option<f64>,
    /// Limits of the classes of these names; what one leaves out is as above.
    pub(crate) classes: Option<BTreeMap<String, SloLimits>>,
}

impl SloLimits {
    fn check(&self) -> Result<(), ConfigError> {
        let all = [("ttft_ms", self.ttft_ms), ("tpot_ms", self.tpot_ms), ("e2e_ms", self.e2e_ms)];
        for (path, ms) in all {
            if let Some(ms) = ms.filter(|ms| !(0.0..=1e12).contains(ms)) {
                let accepted = "a number from 0 to 1000000000000";
                return Err(ConfigError::new(path, ms, accepted));
            }
        }
        Ok(())
    }

    /// Which of them a request misses.
    fn missed(&self, record: &RequestRecord) -> Missed {
        let above = |limit: Option<f64>, ms: f64| limit.is_some_and(|limit| ms > limit);
        Missed {
            ttft: above(self.ttft_ms, record.ttft().as_ms()),
            tpot: record.tpot().is_some_and(|tpot| above(self.tpot_ms, tpot.as_ms())),
            e2e: above(self.e2e_ms, record.e2e().as_ms()),
        }
    }
}

/// The limits that a request missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Missed {
    ttft: bool,
    tpot: bool,
    e2e: bool,
}

impl SloConfig {
    /// Checks what the types leave open.
    ///
    /// # Errors
    /// The first limit that cannot be used.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.of_all().check()?;
        for (name, limits) in self.classes.iter().flatten() {
            limits.check().map_err(|e| e.within(&format!("classes.{name}")))?;
        }
        Ok(())
    }

    /// The limits where no class has its own.
    pub(crate) const fn of_all(&self) -> SloLimits {
        SloLimits { ttft_ms: self.ttft_ms, tpot_ms: self.tpot_ms, e2e_ms: self.e2e_ms }
    }

    /// The limits of the class `name`.
    pub(crate) fn of_class(&self, name: &str) -> SloLimits {
        let all = self.of_all();
        let own = self.classes.as_ref().and_then(|classes| classes.get(name)).copied();
        let own = own.unwrap_or_default();
        SloLimits {
            ttft_ms: own.ttft_ms.or(all.ttft_ms),
            tpot_ms: own.tpot_ms.or(all.tpot_ms),
            e2e_ms: own.e2e_ms.or(all.e2e_ms),
        }
    }
}

/// How many requests met their limits so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attained {
    met: u64,
    output_tokens: u64,
    missed_ttft: u64,
    missed_tpot: u64,
    missed_e2e: u64,
}

impl Attained {
    pub(super) fn finished(&mut self, record: &RequestRecord, limits: &SloLimits) {
        let missed = limits.missed(record);
        if missed == (Missed { ttft: false, tpot: false, e2e: false }) {
            self.met += 1;
            self.output_tokens += u64::from(record.output_tokens);
        }
        self.missed_ttft += u64::from(missed.ttft);
        self.missed_tpot += u64::from(missed.tpot);
        self.missed_e2e += u64::from(missed.e2e);
    }

    /// In figures, of so many requests in a span of so many seconds.
    pub(super) fn summary(&self, requests: u64, span_s: Option<f64>) -> Goodput {
        let rate = |amount: u64| ratio(amount as f64, span_s?);
        Goodput {
            met: self.met,
            met_ratio: ratio(self.met as f64, requests as f64),
            requests_per_s: rate(self.met),
            output_tokens_per_s: rate(self.output_tokens),
            missed_ttft: self.missed_ttft,
            missed_tpot: self.missed_tpot,
            missed_e2e: self.missed_e2e,
        }
    }
}

/// The requests that met their objectives.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Goodput {
    /// Completed requests that met all limits.
    pub(crate) met: u64,
    /// Of all that count: completed, rejected and unfinished.
    pub(crate) met_ratio: Option<f64>,
    /// Per second of the span of `throughput`.
    pub(crate) requests_per_s: Option<f64>,
    /// Their output tokens, likewise.
    pub(crate) output_tokens_per_s: Option<f64>,
    /// Completed requests that missed each limit; one may miss several.
    pub(crate) missed_ttft: u64,
    /// As for the TTFT.
    pub(crate) missed_tpot: u64,
    /// As for the TTFT.
    pub(crate) missed_e2e: u64,
}
