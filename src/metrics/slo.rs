//! Service level objectives: which requests met theirs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::passes::ratio;
use super::record::RequestRecord;
use super::samples::Summary;
use crate::base::config::ConfigError;

/// The name of the limit of gaps between tokens.
const ITL_P99: &str = "itl_ms_p99";

/// Limits that a request meets if it stays at or below all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SloLimits {
    /// The longest TTFT, in ms; absent: any.
    pub(crate) ttft_ms: Option<f64>,
    /// The longest TPOT, in ms; absent: any. A request of one token meets it.
    pub(crate) tpot_ms: Option<f64>,
    /// The highest 99th percentile of ITL, over all gaps between tokens, in ms; absent: any. No request of its own
    /// meets or misses it.
    pub(crate) itl_ms_p99: Option<f64>,
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
    /// The highest 99th percentile of ITL, over all gaps between tokens, in ms; absent: any. No request of its own
    /// meets or misses it.
    pub(crate) itl_ms_p99: Option<f64>,
    /// The longest E2E latency, in ms; absent: any.
    pub(crate) e2e_ms: Option<f64>,
    /// Limits of the classes of these names; what one leaves out is as above.
    pub(crate) classes: Option<BTreeMap<String, SloLimits>>,
}

impl SloLimits {
    fn check(&self) -> Result<(), ConfigError> {
        for (path, ms) in self.all() {
            if let Some(ms) = ms.filter(|ms| !(0.0..=1e12).contains(ms)) {
                let accepted = "a number from 0 to 1000000000000";
                return Err(ConfigError::new(path, ms, accepted));
            }
        }
        Ok(())
    }

    /// The limits under their names.
    const fn all(&self) -> [(&'static str, Option<f64>); 4] {
        [
            ("ttft_ms", self.ttft_ms),
            ("tpot_ms", self.tpot_ms),
            (ITL_P99, self.itl_ms_p99),
            ("e2e_ms", self.e2e_ms),
        ]
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
        let Self { ttft_ms, tpot_ms, itl_ms_p99, e2e_ms, .. } = *self;
        SloLimits { ttft_ms, tpot_ms, itl_ms_p99, e2e_ms }
    }

    /// Whether the gaps between tokens have to be told apart by class: it takes a look at every token.
    pub(crate) fn needs_gaps_by_class(&self) -> bool {
        self.classes.iter().flatten().any(|(_, limits)| limits.itl_ms_p99.is_some())
    }

    /// The limits of the class `name`.
    pub(crate) fn of_class(&self, name: &str) -> SloLimits {
        let all = self.of_all();
        let own = self.classes.as_ref().and_then(|classes| classes.get(name)).copied();
        let own = own.unwrap_or_default();
        SloLimits {
            ttft_ms: own.ttft_ms.or(all.ttft_ms),
            tpot_ms: own.tpot_ms.or(all.tpot_ms),
            itl_ms_p99: own.itl_ms_p99.or(all.itl_ms_p99),
            e2e_ms: own.e2e_ms.or(all.e2e_ms),
        }
    }
}

/// How many requests met their limits so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attained {
    completed: u64,
    met: u64,
    output_tokens: u64,
    missed_ttft: u64,
    missed_tpot: u64,
    missed_e2e: u64,
}

/// The distributions that objectives are about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Distributions<'a> {
    pub(super) ttft: &'a Summary,
    pub(super) tpot: &'a Summary,
    /// `None` where the gaps are not known by class.
    pub(super) itl: Option<&'a Summary>,
    pub(super) e2e: &'a Summary,
}

impl Attained {
    pub(super) fn finished(&mut self, record: &RequestRecord, limits: &SloLimits) {
        self.completed += 1;
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
    pub(super) fn summary(
        &self,
        limits: &SloLimits,
        requests: u64,
        span_s: Option<f64>,
        found: &Distributions<'_>,
    ) -> Goodput {
        let rate = |amount: u64| ratio(amount as f64, span_s?);
        let objective = |(metric, limit_ms): (&'static str, Option<f64>)| {
            let limit_ms = limit_ms?;
            let (summary, missed) = match metric {
                "ttft_ms" => (found.ttft, Some(self.missed_ttft)),
                "tpot_ms" => (found.tpot, Some(self.missed_tpot)),
                "e2e_ms" => (found.e2e, Some(self.missed_e2e)),
                _ => (found.itl?, None),
            };
            let met = missed.map(|missed| self.completed - missed);
            let left = |value: Option<f64>| value.map(|value| limit_ms - value);
            let of_all = |value: Option<f64>| left(value.filter(|_| missed.is_some()));
            Some(Objective {
                metric: metric.to_owned(),
                limit_ms,
                met_ratio: met.and_then(|met| ratio(met as f64, requests as f64)),
                slack_ms: Slack {
                    p50: of_all(summary.p50),
                    p90: of_all(summary.p90),
                    p95: of_all(summary.p95),
                    p99: left(summary.p99),
                    p99_9: of_all(summary.p99_9),
                    max: of_all(summary.max),
                },
            })
        };
        Goodput {
            met: self.met,
            met_ratio: ratio(self.met as f64, requests as f64),
            requests_per_s: rate(self.met),
            output_tokens_per_s: rate(self.output_tokens),
            missed_ttft: self.missed_ttft,
            missed_tpot: self.missed_tpot,
            missed_e2e: self.missed_e2e,
            objectives: limits.all().into_iter().filter_map(objective).collect(),
        }
    }
}

/// One limit, and how far what came out is from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Objective {
    /// Its name in `slo`.
    pub(crate) metric: String,
    /// The limit.
    pub(crate) limit_ms: f64,
    /// Completed requests that met it, by the limit of their class, of all that count; `None` where it is about
    /// gaps between tokens.
    pub(crate) met_ratio: Option<f64>,
    /// What is left to the limit.
    pub(crate) slack_ms: Slack,
}

impl Objective {
    /// Whether what the limit is about lies within it, which no single request says.
    pub(crate) fn is_met_as_a_whole(&self) -> Option<bool> {
        self.slack_ms.p99.filter(|_| self.metric == ITL_P99).map(|slack_ms| slack_ms >= 0.0)
    }
}

/// A limit less a percentile: what is left, and where negative, the excess. `None` without samples, and where the
/// limit is about another percentile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Slack {
    /// Of the median, like the others.
    pub(crate) p50: Option<f64>,
    pub(crate) p90: Option<f64>,
    pub(crate) p95: Option<f64>,
    pub(crate) p99: Option<f64>,
    #[serde(rename = "p99.9")]
    pub(crate) p99_9: Option<f64>,
    pub(crate) max: Option<f64>,
}

/// The requests that met their objectives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// The limits, one by one.
    pub(crate) objectives: Vec<Objective>,
}
