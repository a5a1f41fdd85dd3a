//! What a reader should know before trusting the figures.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::metrics::samples::Method;
use crate::metrics::summary::RunSummary;
use crate::metrics::trend::QueueTrend;

use super::format::{count, counted, figure};

/// Something odd about a run, with its evidence and the field of the scenario to change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub(crate) enum Warning {
    /// There was nothing to simulate: a window or limit of the workload lets no request through.
    NoRequests {
        /// The field to change.
        field: String,
    },
    /// The warm-up or window left every request out.
    NothingCounted {
        /// Requests of the workload.
        input: u64,
        /// The field to change.
        field: String,
    },
    /// Requests were turned away: the engine as configured cannot serve them.
    RejectedRequests {
        /// How many.
        rejected: u64,
        /// How many by reason, without those of count 0.
        by_reason: BTreeMap<String, u64>,
        /// The field to change.
        field: String,
    },
    /// Requests were still waiting or running when the run ended; no latency includes them.
    Unfinished {
        /// How many.
        unfinished: u64,
        /// The field to change.
        field: String,
    },
    /// An engine's requests preempted each other for ever, so the engine was stopped.
    RanInCircles {
        /// The field to change.
        field: String,
    },
    /// The queue still grew while the last requests arrived: percentiles depend on how long that went on.
    NotSteady {
        /// How many more waited each second.
        slope_per_s: f64,
        /// Lower end of the 95 % confidence interval of that.
        slope_low_per_s: f64,
        /// Upper end of it.
        slope_high_per_s: f64,
        /// For so long.
        span_s: f64,
        /// The field to change.
        field: String,
    },
    /// Some percentiles come from histograms of three significant digits.
    HdrPercentiles {
        /// Their names in the report.
        metrics: Vec<String>,
        /// The field to change.
        field: String,
    },
    /// Most of the simulated time was priced outside of what was measured.
    MostlyExtrapolated {
        /// Share of the priced time that was.
        percent: u64,
        /// The field to change.
        field: String,
    },
    /// It is said what becomes of drafts, but the engine makes none.
    NoSpeculation {
        /// The field to change.
        field: String,
    },
    /// The engine makes drafts with a model, and they cost nothing.
    FreeDrafting {
        /// The field to change.
        field: String,
    },
    /// Prefix caching is on, but the workload does not say which prompts share what.
    NoPrefixIdentity {
        /// Requests of the workload.
        input: u64,
        /// The field to change.
        field: String,
    },
}

/// The fields of an engine's configuration that warnings name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EngineFields {
    /// The longest sequence.
    pub(crate) sequence: &'static str,
    /// The requests that may wait, if there is such a limit.
    pub(crate) queue: Option<&'static str>,
    /// The KV pool.
    pub(crate) pool: &'static str,
    /// What keeps a request from ever being admitted.
    pub(crate) keeper: &'static str,
    /// Whether KV is kept and found again.
    pub(crate) prefix_caching: &'static str,
    /// Whether it speculates.
    pub(crate) speculation: &'static str,
}

impl Warning {
    /// Requests that never finished, if there are any; `field` is what keeps them.
    pub(crate) fn of_unfinished(run: &RunSummary, field: &str) -> Option<Self> {
        let unfinished = run.requests.all.unfinished;
        (unfinished > 0).then(|| Self::Unfinished { unfinished, field: field.to_owned() })
    }

    /// Prices that rest on no measurement although there are some; `shares` are those of the priced time
    /// by origin.
    pub(crate) fn of_prices(shares: &[(&'static str, f64)]) -> Option<Self> {
        let outside = shares.iter().filter(|(name, _)| ["clamped", "extrapolated"].contains(name));
        let share: f64 = outside.map(|(_, share)| share).sum();
        let percent = (share * 100.0).round() as u64;
        (share > 0.5).then(|| Self::MostlyExtrapolated { percent, field: "timing".to_owned() })
    }

    /// The warnings that the figures of a run give rise to; `engine` names what to change.
    pub(crate) fn of(run: &RunSummary, engine: &EngineFields) -> Vec<Self> {
        let requests = &run.requests;
        let mut warnings = Vec::new();
        if requests.input == 0 {
            warnings.push(Self::NoRequests { field: "workload".to_owned() });
        } else if requests.excluded == requests.input {
            let warmup = run.measured.warmup_requests.is_some() || run.measured.warmup_ms.is_some();
            warnings.push(Self::NothingCounted {
                input: requests.input,
                field: if warmup { "metrics.warmup" } else { "metrics.window" }.to_owned(),
            });
        }
        if requests.rejected.total > 0 {
            let mut by_reason = requests.rejected.by_reason.clone();
            by_reason.retain(|_, &mut rejected| rejected > 0);
            let limits = [("prompt_too_long", Some(engine.sequence)), ("queue_full", engine.queue)];
            let limit = limits.into_iter().find(|(reason, _)| by_reason.contains_key(*reason));
            let field = limit.and_then(|(_, field)| field).unwrap_or("workload").to_owned();
            warnings.push(Self::RejectedRequests {
                rejected: requests.rejected.total,
                by_reason,
                field,
            });
        }
        if let Some(trend) = run.queue_trend.filter(QueueTrend::is_growing) {
            warnings.push(Self::NotSteady {
                slope_per_s: trend.slope_per_s,
                slope_low_per_s: trend.slope_low_per_s,
                slope_high_per_s: trend.slope_high_per_s,
                span_s: trend.span(),
                field: "workload".to_owned(),
            });
        }
        let metrics = hdr_metrics(run);
        if !metrics.is_empty() {
            warnings.push(Self::HdrPercentiles {
                metrics,
                field: "metrics.exact_samples_max".to_owned(),
            });
        }
        warnings
    }

    /// The field of the scenario to change.
    pub(crate) fn field(&self) -> &str {
        match self {
            Self::NoRequests { field }
            | Self::NothingCounted { field, .. }
            | Self::RejectedRequests { field, .. }
            | Self::Unfinished { field, .. }
            | Self::HdrPercentiles { field, .. }
            | Self::NotSteady { field, .. }
            | Self::RanInCircles { field }
            | Self::MostlyExtrapolated { field, .. }
            | Self::NoSpeculation { field }
            | Self::FreeDrafting { field }
            | Self::NoPrefixIdentity { field, .. } => field,
        }
    }
}

/// The latencies whose percentiles come from a histogram.
fn hdr_metrics(run: &RunSummary) -> Vec<String> {
    let latency = &run.latency;
    [
        ("ttft_ms", &latency.ttft_ms),
        ("tpot_ms", &latency.tpot_ms),
        ("itl_ms", &latency.itl_ms),
        ("emission_gap_ms", &latency.emission_gap_ms),
        ("e2e_ms", &latency.e2e_ms),
        ("queue_ms", &latency.queue_ms),
    ]
    .into_iter()
    // Without speculation these are the gaps between tokens.
    .filter(|(name, _)| *name != "emission_gap_ms" || run.speculation.is_some())
    .filter(|(_, summary)| summary.method == Method::Hdr)
    .map(|(name, _)| name.to_owned())
    .collect()
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRequests { .. } => f.write_str("the workload holds no request"),
            Self::NothingCounted { input, .. } => {
                write!(
                    f,
                    "all of the {} were left out of the statistics",
                    counted(*input, "request")
                )
            }
            Self::RejectedRequests { rejected, by_reason, .. } => {
                let reasons: Vec<_> = by_reason
                    .iter()
                    .map(|(reason, rejected)| format!("{} {reason}", count(*rejected)))
                    .collect();
                write!(f, "{} rejected ({})", counted(*rejected, "request"), reasons.join(", "))
            }
            Self::Unfinished { unfinished, .. } => {
                let requests = counted(*unfinished, "request");
                write!(f, "no latency includes the {requests} that never finished")
            }
            Self::FreeDrafting { .. } => f.write_str(
                "making drafts costs nothing here: neither pricing.draft_ms nor pricing.draft_table is given",
            ),
            Self::NoSpeculation { .. } => {
                f.write_str("the scenario says what becomes of drafts, but the engine makes none")
            }
            Self::RanInCircles { .. } => f.write_str(
                "requests preempted each other for ever, computing nothing new; the run was stopped",
            ),
            Self::NotSteady { slope_per_s, slope_low_per_s, slope_high_per_s, span_s, .. } => write!(
                f,
                "not in steady state: the queue grew by {} requests/s (95 %: {} to {}) for {} s; percentiles \
                 depend on the length of the run",
                figure(*slope_per_s),
                figure(*slope_low_per_s),
                figure(*slope_high_per_s),
                figure(*span_s)
            ),
            Self::HdrPercentiles { metrics, .. } => write!(
                f,
                "too many values to keep: percentiles of {} are within 0.1 %",
                metrics.join(", "),
            ),
            Self::MostlyExtrapolated { percent, .. } => write!(
                f,
                "{percent} % of the time was priced outside of what was measured; --evidence FILE says where"
            ),
            Self::NoPrefixIdentity { .. } => {
                f.write_str("prefix caching is on, but the workload names no shared prefixes")
            }
        }?;
        write!(f, "; see `{}`", self.field())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_quiet_run_gives_no_warning() {
        let mut run = sample::run();
        run.requests.rejected.total = 0;
        assert_eq!(Warning::of(&run, &sample::FIELDS), []);
    }

    #[test]
    fn each_warning_names_its_evidence_and_its_field() {
        let mut run = sample::run();
        run.requests.excluded = run.requests.input;
        run.measured.warmup_requests = Some(4);
        run.latency.itl_ms.method = Method::Hdr;
        run.latency.e2e_ms.method = Method::Hdr;
        let mut warnings = Warning::of(&run, &sample::FIELDS);
        warnings.extend(Warning::of_unfinished(&run, "engine.vllm.num_gpu_blocks"));
        let texts: Vec<_> = warnings.iter().map(Warning::to_string).collect();
        assert_eq!(
            texts,
            [
                "all of the 4 requests were left out of the statistics; see `metrics.warmup`",
                "1 request rejected (1 prompt_too_long); see `engine.vllm.max_model_len`",
                "too many values to keep: percentiles of itl_ms, e2e_ms are within 0.1 %; see \
                 `metrics.exact_samples_max`",
                "no latency includes the 1 request that never finished; see `engine.vllm.num_gpu_blocks`",
            ]
        );
    }

    #[test]
    fn a_full_queue_names_its_limit() {
        let mut run = sample::run();
        run.requests.rejected.by_reason = [("queue_full".to_owned(), 1)].into();
        let field = |queue| {
            let engine = EngineFields { queue, ..sample::FIELDS };
            Warning::of(&run, &engine)[0].field().to_owned()
        };
        assert_eq!(field(Some("engine.queue")), "engine.queue");
        assert_eq!(field(None), "workload");
    }

    #[test]
    fn a_warning_in_json_is_its_kind_with_the_evidence() {
        let json = serde_json::to_string(&Warning::of(&sample::run(), &sample::FIELDS)[0]).unwrap();
        assert_eq!(
            json,
            r#"{"kind":"rejected_requests","rejected":1,"by_reason":{"prompt_too_long":1},"#
                .to_owned()
                + r#""field":"engine.vllm.max_model_len"}"#
        );
    }
}
