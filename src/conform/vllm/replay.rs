//! Running a recorded case on our engine.
//!
//! Cases timed by the clock run through the kernel, as any trace does. Cases timed by the number
//! of the call have no clock that arrivals could be read from, so the loop around the scheduler is
//! here; the engine is the same.

use std::iter::Peekable;
use std::path::Path;
use std::sync::Arc;

use super::case::{Case, Entrants};
use super::lines::{EndReason, Line};
use super::transcript::Transcript;
use crate::base::ids::EngineId;
use crate::base::record::Rejection;
use crate::base::time::{SimDuration, SimTime};
use crate::conform::error::ConformError;
use crate::engine::Advance;
use crate::engine::arena::Arrival;
use crate::engine::drafting::{Acceptance, Drafting};
use crate::engine::driver::{Call, Engine};
use crate::engine::error::EngineError;
use crate::engine::outbox::Outbox;
use crate::engine::vllm::Vllm;
use crate::engine::vllm::config::VllmConfig;
use crate::kernel::error::RunError;
use crate::kernel::{FrontEnd, Kernel, Observer};
use crate::timing::pricer::{HostTime, PassPricer};
use crate::workload::request::RequestSpec;
use crate::workload::source::RequestSource;
use crate::workload::trace::TraceError;

/// What our engine does with `case`, line by line; `path` is where the case came from. In step, the
/// lines leave requests out that nobody touched; the last line is complete.
///
/// # Errors
/// The case is malformed, or the engine stops.
pub(crate) fn replay(
    case: &Case,
    advance: Advance,
    path: &Path,
) -> Result<Vec<Line>, ConformError> {
    let config = case
        .engine_config()
        .with_defaults()
        .map_err(|cause| ConformError::config(path, 1, cause))?;
    let engine = engine_for(case, &config, advance);
    let entrants = case.entrants().map_err(|found| ConformError::malformed(path, 1, found))?;
    let transcript = Transcript::new(case.requests());
    match entrants {
        Entrants::ByCall(entrants) => by_call(case, engine, &entrants, transcript)
            .map_err(|cause| ConformError::run(path, 1, cause)),
        Entrants::ByTime(entrants) => by_time(engine, entrants, transcript, path),
    }
}

fn engine_for(case: &Case, config: &VllmConfig, advance: Advance) -> Engine {
    // The requests of a case say themselves what becomes of their drafts.
    let acceptance = Arc::new(Acceptance::default());
    let drafting = config.speculative_config.map(|_| Drafting::new(acceptance, 0, EngineId(0)));
    let scheduler = Vllm::new(config, drafting, SimDuration::ZERO, advance);
    let pricer = PassPricer::new(Arc::new(case.timing.linear()), HostTime::Added(0.0));
    Engine::new(EngineId(0), Box::new(scheduler), pricer)
}

/// The loop of the recording, with arrivals by call number.
fn by_call(
    case: &Case,
    mut engine: Engine,
    entrants: &[RequestSpec],
    mut transcript: Transcript,
) -> Result<Vec<Line>, EngineError> {
    let mut outbox = Outbox::with_log();
    let mut clock = SimTime::ZERO;
    let mut coming = entrants.iter().peekable();
    let calls_max = case.max_steps.unwrap_or(u64::MAX);
    let reason = loop {
        let call_number = transcript.next_call;
        if call_number >= calls_max {
            break EndReason::MaxSteps;
        }
        while let Some(spec) = coming.next_if(|spec| spec.arrival.as_ns() <= call_number) {
            let max_tokens = spec.max_tokens;
            let arrival = Arrival::new(spec.clone(), max_tokens, spec.arrival, true);
            engine.enqueue(arrival, clock, &mut outbox);
        }
        let called = if engine.has_room() && !engine.is_done() {
            engine.call(clock, &mut outbox)?
        } else {
            Call::Nothing
        };
        if called == Call::Nothing || !engine.has_room() {
            if engine.has_passes() {
                clock = engine.complete_oldest(&mut outbox);
            } else if let Some(next) = coming.peek() {
                // Nothing can happen before the next arrival.
                transcript.take_in(&outbox);
                outbox.clear();
                transcript.next_call = next.arrival.as_ns();
            } else if engine.is_done() {
                break EndReason::Done;
            } else {
                break EndReason::Stalled;
            }
        }
        transcript.take_in(&outbox);
        outbox.clear();
    };
    transcript.end(reason, clock, engine.levels().free_blocks);
    Ok(transcript.lines)
}

/// Through the kernel, with arrivals by the clock.
fn by_time(
    engine: Engine,
    entrants: Vec<RequestSpec>,
    transcript: Transcript,
    path: &Path,
) -> Result<Vec<Line>, ConformError> {
    let mut source = Entering(entrants.into_iter().peekable());
    let mut scribe = Scribe { transcript };
    let mut engines = [engine];
    let kernel =
        Kernel::new(&mut source, &mut engines, FrontEnd::Bypassed, SimDuration::ZERO).with_log();
    let ending = kernel.run(&mut scribe).map_err(|cause| ConformError::run(path, 1, cause))?;
    let reason = if ending.unfinished.is_empty() { EndReason::Done } else { EndReason::Stalled };
    let mut transcript = scribe.transcript;
    transcript.end(reason, ending.end, engines[0].levels().free_blocks);
    Ok(transcript.lines)
}

/// The requests of a case as a source.
struct Entering(Peekable<std::vec::IntoIter<RequestSpec>>);

impl RequestSource for Entering {
    fn next_arrival(&mut self) -> Result<Option<SimTime>, TraceError> {
        Ok(self.0.peek().map(|request| request.arrival))
    }

    fn take(&mut self) -> RequestSpec {
        self.0.next().expect("the caller asks for the next arrival first")
    }
}

/// Writes down what the kernel's engine tells.
struct Scribe {
    transcript: Transcript,
}

impl Observer for Scribe {
    fn is_counted(&self, _request: &RequestSpec) -> bool {
        true
    }

    fn rejected(&mut self, _request: &RequestSpec, _why: Rejection) -> Result<(), RunError> {
        unreachable!("a bypassed front end lets everything through")
    }

    fn told(&mut self, outbox: &Outbox) -> Result<(), RunError> {
        self.transcript.take_in(outbox);
        Ok(())
    }
}
