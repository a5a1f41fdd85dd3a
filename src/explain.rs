//! Where the time of requests went, and which limit, if lifted, would change that.
//!
//! The scenario runs once request by request, with everything told, and once more for each limit that can be lifted.

use std::path::Path;

use serde_json::Value;

use crate::base::detail::PassDetail;
use crate::base::ids::RequestId;
use crate::base::output::{OutputError, ResultFile};
use crate::kernel::error::RunError;
use crate::metrics::blame::{Account, Ahead, Blame, Metric, Unexplained};
use crate::metrics::record::{Rejection, RequestRecord, Unserved};
use crate::report::Report;
use crate::report::explain::{Example, Explanation, Group, Lifted, Refused, WhatIf};
use crate::report::sink::{Sink, Wants};
use crate::scenario::{Assignment, Lift, Scenario};
use crate::simulate::{Progress, observe};

/// What is to be explained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Subject {
    /// The requests around a quantile, which lies between 0 and 1.
    Quantile(f64),
    /// One request.
    Request(RequestId),
}

/// Why there is nothing to explain.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExplainError {
    /// The run has no such request.
    #[error("--request {id}: expected {}", range(*requests))]
    NoRequest {
        /// Which was asked for.
        id: RequestId,
        /// How many there are.
        requests: usize,
    },
    /// The request never finished.
    #[error("request {0} has no latencies: {1}")]
    NoLatency(RequestId, String),
    /// No request has the latency.
    #[error("no request of the run has a {0}: {1} finished, and what is counted has none")]
    NoSamples(&'static str, usize),
    /// The scenario could not be run.
    #[error(transparent)]
    Run(#[from] RunError),
}

fn range(requests: usize) -> String {
    match requests {
        0 => "none: the run has no requests".to_owned(),
        1 => "0, the only request of the run".to_owned(),
        _ => format!("a request of the run, from 0 to {}", requests - 1),
    }
}

/// A run whose requests are followed.
struct Watching(Blame);

impl Sink for Watching {
    fn wants(&self) -> Wants {
        Wants { details: true, every_share: true }
    }

    fn engines(&mut self, usable_blocks: &[u32]) {
        self.0.engines(usable_blocks.len());
    }

    fn detail(&mut self, pass: &PassDetail) -> Result<(), OutputError> {
        self.0.pass(pass);
        Ok(())
    }

    fn finished(&mut self, record: &RequestRecord, counted: bool) -> Result<(), OutputError> {
        self.0.finished(record, counted);
        Ok(())
    }

    fn rejected(
        &mut self,
        request: &Unserved,
        why: Rejection,
        _counted: bool,
    ) -> Result<(), OutputError> {
        self.0.rejected(request, why);
        Ok(())
    }

    fn unfinished(&mut self, request: &Unserved, _counted: bool) -> Result<(), OutputError> {
        self.0.unfinished(request);
        Ok(())
    }

    fn finish(self: Box<Self>, _report: &Report) -> Result<Vec<ResultFile>, OutputError> {
        Ok(Vec::new())
    }
}

/// A run of which one latency is of interest.
struct Sampling {
    metric: Metric,
    subject: Subject,
    values_ms: Vec<f64>,
    completed: u64,
}

impl Sink for Sampling {
    fn finished(&mut self, record: &RequestRecord, counted: bool) -> Result<(), OutputError> {
        self.completed += 1;
        let is_wanted = match self.subject {
            Subject::Quantile(_) => counted,
            Subject::Request(id) => record.id == id,
        };
        self.values_ms.extend(record.latency(self.metric).filter(|_| is_wanted));
        Ok(())
    }

    fn finish(self: Box<Self>, _report: &Report) -> Result<Vec<ResultFile>, OutputError> {
        Ok(Vec::new())
    }
}

impl Subject {
    /// Its value among the latencies of a run.
    fn value_ms(self, mut values_ms: Vec<f64>) -> Option<f64> {
        values_ms.sort_by(f64::total_cmp);
        match self {
            Self::Quantile(quantile) => quantile_of(&values_ms, quantile),
            Self::Request(_) => values_ms.first().copied(),
        }
    }

    /// `p99`, `request 17`.
    fn words(self) -> String {
        match self {
            // The product is not quite a whole number where the quantile is.
            Self::Quantile(quantile) => format!("p{}", (quantile * 1e11).round() / 1e9),
            Self::Request(id) => format!("request {id}"),
        }
    }
}

/// A quantile of sorted values, with the rule that reports have: linear between ranks.
fn quantile_of(sorted: &[f64], quantile: f64) -> Option<f64> {
    let position = quantile * sorted.len().checked_sub(1)? as f64;
    let low = sorted[position.floor() as usize];
    let high = sorted[position.ceil() as usize];
    Some((high - low).mul_add(position.fract(), low))
}

/// The ranks around a quantile of `number` values, and the one that is nearest: a hundredth of them, 10 at least, but
/// no more than a quarter.
fn around(number: usize, quantile: f64) -> (std::ops::Range<usize>, usize) {
    let nearest = (quantile * (number - 1) as f64).round() as usize;
    let wanted = number.div_ceil(100).max(10).min(number.div_ceil(4));
    let from = nearest.saturating_sub(wanted / 2).min(number - wanted);
    (from..from + wanted, nearest)
}

/// Runs a resolved scenario and says where the time of `subject` went. `digest` is what the run is expected to come
/// to, if that is known.
///
/// # Errors
/// It cannot be run, or there is nothing to explain.
pub(crate) fn explain(
    scenario: &Scenario,
    (metric, subject): (Metric, Subject),
    digest: Option<&str>,
    tries_limits: bool,
    progress: &mut dyn Progress,
) -> Result<Explanation, ExplainError> {
    let watched = match subject {
        Subject::Request(id) => Some(id),
        Subject::Quantile(_) => None,
    };
    let mut watching = Watching(Blame::watching(watched));
    let report = observe(scenario, &mut watching, progress)?;
    let Watching(blame) = watching;
    let mut explanation = account_for(&blame, (metric, subject), &report)?;
    explanation.digest.clone_from(&report.digest);
    explanation.other_digest = digest.filter(|&digest| digest != report.digest).map(str::to_owned);
    explanation.load_follows = scenario.has_closed_loop();
    if tries_limits {
        let now_ms = explanation.value_ms;
        explanation.what_if = Some(lift_limits(scenario, (metric, subject), now_ms));
    }
    Ok(explanation)
}

/// Says where the time went in a run that is over.
fn account_for(
    blame: &Blame,
    (metric, subject): (Metric, Subject),
    report: &Report,
) -> Result<Explanation, ExplainError> {
    let counted = blame.accounts.iter().filter(|account| account.counted);
    let mut sample: Vec<(f64, &Account)> =
        counted.filter_map(|account| Some((account.value_ms(metric)?, account))).collect();
    sample.sort_by(|(a, x), (b, y)| a.total_cmp(b).then(x.record.id.cmp(&y.record.id)));
    let accounts = |ranks: std::ops::Range<usize>| -> Vec<&Account> {
        sample[ranks].iter().map(|&(_, account)| account).collect()
    };
    let no_samples = || ExplainError::NoSamples(metric.words(), blame.accounts.len());
    let (value_ms, own, account) = match subject {
        Subject::Quantile(quantile) => {
            let values: Vec<f64> = sample.iter().map(|&(value, _)| value).collect();
            let value_ms = quantile_of(&values, quantile).ok_or_else(no_samples)?;
            let (ranks, nearest) = around(sample.len(), quantile);
            (value_ms, accounts(ranks), sample[nearest].1)
        }
        Subject::Request(id) => {
            let account = find(blame, id)?;
            let no_value = || {
                let why = format!("a single token has no {}", metric.words());
                ExplainError::NoLatency(id, why)
            };
            (account.value_ms(metric).ok_or_else(no_value)?, vec![account], account)
        }
    };
    let mut groups = vec![Group::of(subject.words(), &own, metric)];
    if !sample.is_empty() && subject != Subject::Quantile(0.5) {
        let (ranks, _) = around(sample.len(), 0.5);
        groups.push(Group::of("median".to_owned(), &accounts(ranks), metric));
    }
    let ahead: Ahead = blame.ahead_of(account);
    let end = account.record.last_token;
    let steps: Vec<_> = blame.steps.iter().copied().filter(|step| step.end <= end).collect();
    let example = Example::of(account, metric, &ahead, &steps);
    let what = (subject.words(), value_ms, sample.len() as u64);
    Ok(Explanation::new(report.title.clone(), metric, what, groups, example))
}

/// The account of a request.
fn find(blame: &Blame, id: RequestId) -> Result<&Account, ExplainError> {
    if let Some(account) = blame.accounts.iter().find(|account| account.record.id == id) {
        return Ok(account);
    }
    Err(match blame.unexplained(id) {
        None => ExplainError::NoRequest { id, requests: blame.requests() },
        Some(Unexplained::Rejected(why)) => {
            ExplainError::NoLatency(id, format!("it was rejected ({})", why.name()))
        }
        Some(Unexplained::Unfinished { has_run }) => {
            let stood = if has_run { "it had begun" } else { "it was never admitted" };
            ExplainError::NoLatency(id, format!("the run ended before it did, and {stood}"))
        }
    })
}

/// Runs the scenario again, each time with one limit lifted.
fn lift_limits(scenario: &Scenario, (metric, subject): (Metric, Subject), now_ms: f64) -> WhatIf {
    let mut what_if = WhatIf { lifted: Vec::new(), refused: Vec::new() };
    for Lift { what, set } in scenario.lifts() {
        let texts = set.iter().map(|(path, value)| format!("{path}={value}")).collect();
        match run_with(scenario, &set, (metric, subject)) {
            Ok(Sampling { values_ms, completed, .. }) => {
                let value_ms = subject.value_ms(values_ms);
                let change_ratio =
                    value_ms.filter(|_| now_ms > 0.0).map(|value_ms| value_ms / now_ms - 1.0);
                what_if.lifted.push(Lifted { what, set: texts, value_ms, change_ratio, completed });
            }
            Err(why) => what_if.refused.push(Refused { what, set: texts, why }),
        }
    }
    // What nobody knows comes last.
    let key = |lifted: &Lifted| lifted.change_ratio.unwrap_or(f64::INFINITY);
    what_if.lifted.sort_by(|a, b| key(a).total_cmp(&key(b)));
    what_if
}

fn run_with(
    scenario: &Scenario,
    set: &[(String, Value)],
    (metric, subject): (Metric, Subject),
) -> Result<Sampling, String> {
    let assignments: Vec<Assignment> = (set.iter())
        .map(|(path, value)| Assignment::by_flag(format!("{path}={value}"), path, value.clone()))
        .collect();
    let lifted = scenario.with(&assignments).map_err(|error| error.to_string())?;
    let lifted = lifted.resolve(Path::new("")).map_err(|error| error.to_string())?;
    let mut sampling = Sampling { metric, subject, values_ms: Vec::new(), completed: 0 };
    observe(&lifted, &mut sampling, &mut ()).map_err(|error| error.to_string())?;
    Ok(sampling)
}

#[cfg(test)]
mod tests;
