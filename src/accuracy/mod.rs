//! How close simulated deployments come to measured ones, and fitting what no data sheet says.
//!
//! A case replays the requests that were measured, in full: what is fitted, and what is held out, are parts of the same
//! replay.

mod case;
mod fit;

use std::collections::BTreeMap;

use crate::base::output::{OutputError, ResultFile};
use crate::base::record::RequestRecord;
use crate::base::time::SimDuration;
use crate::kernel::error::RunError;
use crate::report::Report;
use crate::report::accuracy::{Parts, Served};
use crate::report::sink::Sink;
use crate::scenario::{Scenario, WorkloadConfig};
use crate::simulate::observe;
use crate::workload::trace::{Measured, measured};

pub(crate) use case::{Case, CaseError, Parameter, RunConfig, find_cases};
pub(crate) use fit::{Fitted, fit};

/// Why there is no score.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AccuracyError {
    /// The case cannot be used.
    #[error(transparent)]
    Case(#[from] CaseError),
    /// A run of it could not be simulated.
    #[error("run `{run}`: {source}")]
    Run {
        /// Which.
        run: String,
        /// Why.
        source: RunError,
    },
    /// Its requests say nothing of what was measured.
    #[error(
        "run `{run}`: nothing of its requests was measured, expected a format with TTFT and E2E: servesim's own with \
         `ttft_ms` and `e2e_ms`, or one of `llmservingsim`, `multi_turn`, `otlp`, `vllm_bench`"
    )]
    NotMeasured {
        /// Which.
        run: String,
    },
    /// A part of it has no request that finished in both worlds.
    #[error("run `{run}`: none of its {requests} {part} requests finished in the simulation")]
    NothingFinished {
        /// Which.
        run: String,
        /// Which part.
        part: &'static str,
        /// How many there are.
        requests: usize,
    },
}

/// What became of requests, by the line of the trace.
#[derive(Default)]
struct Outcomes(BTreeMap<u64, Simulated>);

#[derive(Clone, Copy)]
struct Simulated {
    arrival_ms: f64,
    ttft_ms: f64,
    e2e_ms: f64,
}

impl Sink for Outcomes {
    fn finished(&mut self, record: &RequestRecord, _counted: bool) -> Result<(), OutputError> {
        let simulated = Simulated {
            arrival_ms: record.arrival.as_ms(),
            ttft_ms: record.ttft().as_ms(),
            e2e_ms: record.e2e().as_ms(),
        };
        self.0.insert(record.line, simulated);
        Ok(())
    }

    fn finish(self: Box<Self>, _report: &Report) -> Result<Vec<ResultFile>, OutputError> {
        Ok(Vec::new())
    }
}

/// Replays the requests of a run and puts what was measured beside what was simulated: of the part on which
/// parameters are fitted, and of the rest.
///
/// # Errors
/// It cannot be simulated, or nothing of it was measured.
pub(crate) fn replay(case: &Case, run: &RunConfig, values: &[f64]) -> Result<Parts, AccuracyError> {
    let scenario = case.scenario_of(run, values)?;
    let failed = |source| AccuracyError::Run { run: run.name.clone(), source };
    let WorkloadConfig::Trace(trace) = &scenario.workload else {
        unreachable!("a case is of a trace");
    };
    let rows = measured(trace).map_err(|error| failed(error.into()))?;
    if rows.is_empty() {
        return Err(AccuracyError::NotMeasured { run: run.name.clone() });
    }
    let outcomes = simulated(&scenario).map_err(failed)?;
    let first_ns = rows.first().map_or(0, |row| row.stamp_ns);
    let fitted = (rows.len() as f64 * run.fit_share).round() as usize;
    let mut parts = Parts::default();
    let mut missing = [0_usize; 2];
    for (at, row) in rows.iter().enumerate() {
        if (at as u64) < run.leave_out_first {
            continue;
        }
        let is_fitted = at < fitted;
        let Measured { ttft, e2e } = row.measured;
        let Some(simulated) = outcomes.0.get(&row.line) else {
            missing[usize::from(is_fitted)] += 1;
            continue;
        };
        let served = Served {
            output_tokens: row.output_tokens,
            measured_arrival_ms: (row.stamp_ns - first_ns) as f64 / 1e6,
            measured_ttft_ms: ttft.map(SimDuration::as_ms),
            measured_e2e_ms: e2e.map(SimDuration::as_ms),
            arrival_ms: simulated.arrival_ms,
            ttft_ms: simulated.ttft_ms,
            e2e_ms: simulated.e2e_ms,
        };
        let part = if is_fitted { &mut parts.fitted } else { &mut parts.held_out };
        part.push(served);
    }
    for (part, name, requests) in
        [(&parts.fitted, "fitted", missing[1]), (&parts.held_out, "held-out", missing[0])]
    {
        if part.is_empty() && requests > 0 {
            let run = run.name.clone();
            return Err(AccuracyError::NothingFinished { run, part: name, requests });
        }
    }
    parts.unfinished = missing[0] + missing[1];
    Ok(parts)
}

fn simulated(scenario: &Scenario) -> Result<Outcomes, RunError> {
    let mut outcomes = Outcomes::default();
    observe(scenario, &mut outcomes, &mut ())?;
    Ok(outcomes)
}
