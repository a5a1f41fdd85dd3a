//! Fitting fields of a scenario to what was measured, by replaying it.
//!
//! The search is Powell's COBYLA over the unit cube: bounded, without derivatives, and without chance. What it minimises
//! is [`Score::cost`](crate::report::accuracy::Score::cost), the mean over the runs that have a part to be fitted.

use cobyla::{RhoBeg, StopTols, minimize};

use super::{AccuracyError, Case, replay};
use crate::report::accuracy::{Parts, Score};

/// Replays of all runs that a search may take, for each parameter.
const EVALUATIONS: usize = 40;

/// How far from the start the search looks at first, as a share of each range.
const FIRST_STEP: f64 = 0.15;

/// What a search came to.
#[derive(Clone, Debug)]
pub(crate) struct Fitted {
    /// The parameters, in the order of the case.
    pub(crate) values: Vec<f64>,
    /// What was minimised, at the start and at the end.
    pub(crate) cost: [f64; 2],
    /// Replays of all runs.
    pub(crate) evaluations: usize,
}

/// Finds the values of the parameters with which the fitted parts come closest to what was measured.
///
/// # Errors
/// A run cannot be simulated with the values at the start.
pub(crate) fn fit(case: &Case, heard: &mut dyn FnMut(usize, f64)) -> Result<Fitted, AccuracyError> {
    let parameters = &case.config.fit;
    let value_of = |unit: &[f64]| -> Vec<f64> {
        let scaled = unit.iter().zip(parameters);
        scaled.map(|(&share, p)| (p.to - p.from).mul_add(share.clamp(0.0, 1.0), p.from)).collect()
    };
    let start: Vec<f64> = parameters.iter().map(|p| (p.start - p.from) / (p.to - p.from)).collect();
    let first = cost(case, &value_of(&start))?;
    let search = std::cell::RefCell::new((0_usize, first, start.clone(), heard));
    let objective = |unit: &[f64], (): &mut ()| {
        // What cannot be simulated is worse than anything that can.
        let found = cost(case, &value_of(unit)).unwrap_or(f64::MAX.sqrt());
        let (evaluations, best, at, heard) = &mut *search.borrow_mut();
        *evaluations += 1;
        if found < *best {
            *best = found;
            *at = unit.to_vec();
        }
        heard(*evaluations, *best);
        found
    };
    let bounds = vec![(0.0, 1.0); start.len()];
    let constraints: [fn(&[f64], &mut ()) -> f64; 0] = [];
    let tolerances = StopTols { ftol_rel: 1e-4, xtol_rel: 1e-3, ..StopTols::default() };
    // The best that was met counts, however the search ends.
    let _ = minimize(
        objective,
        &start,
        &bounds,
        &constraints,
        (),
        EVALUATIONS * start.len().max(1),
        RhoBeg::All(FIRST_STEP),
        Some(tolerances),
    );
    let (evaluations, best, at, _) = search.into_inner();
    Ok(Fitted { values: value_of(&at), cost: [first, best], evaluations: evaluations + 1 })
}

/// How far the fitted parts are from what was measured: the mean over runs. Runs are replayed side by side.
fn cost(case: &Case, values: &[f64]) -> Result<f64, AccuracyError> {
    let runs: Vec<_> = case.config.runs.iter().filter(|run| run.fit_share > 0.0).collect();
    let replayed: Vec<Result<Parts, AccuracyError>> = std::thread::scope(|scope| {
        let started: Vec<_> =
            runs.iter().map(|run| scope.spawn(move || replay(case, run, values))).collect();
        started
            .into_iter()
            .map(|run| run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let mut total = 0.0;
    for parts in replayed {
        total += Score::of(&parts?.fitted).cost();
    }
    Ok(total / runs.len().max(1) as f64)
}
