//! Running a recorded case on our engine.

use std::path::Path;
use std::sync::Arc;

use super::Block;
use super::lines::Line;
use super::transcript::Transcript;
use crate::base::ids::EngineId;
use crate::base::moment::{Moment, Phase};
use crate::base::time::SimDuration;
use crate::conform::error::ConformError;
use crate::engine::Advance;
use crate::engine::arena::Arrival;
use crate::engine::driver::Engine;
use crate::engine::error::EngineError;
use crate::engine::outbox::Outbox;
use crate::engine::sglang::Sglang;
use crate::engine::sglang::config::{Limits, SglangConfig};
use crate::timing::pricer::{HostTime, PassPricer};

/// What our engine, with the resolved `config`, does with the case of `block`, line by line but for the
/// head line; `path` is where the case came from. In step, the lines leave requests out that nobody
/// touched; those of requests and of the end are complete.
///
/// # Errors
/// The case is malformed, or the engine stops.
pub(super) fn replay(
    block: &Block,
    config: &SglangConfig,
    advance: Advance,
    path: &Path,
) -> Result<Vec<Line>, ConformError> {
    let case = &block.case;
    let arrivals =
        case.arrivals().map_err(|found| ConformError::malformed(path, block.line, found))?;
    let scheduler = Sglang::new(config, None, SimDuration::ZERO, advance);
    let pricer = PassPricer::new(Arc::new(case.timing()), HostTime::Added(0.0));
    let engine = Engine::new(EngineId(0), Box::new(scheduler), pricer);
    let transcript = Transcript::new(case, &Limits::of(config));
    run(engine, arrivals, transcript).map_err(|cause| ConformError::run(path, block.line, cause))
}

/// Hands the requests over when they arrive, and lets the engine do what comes between.
fn run(
    mut engine: Engine,
    arrivals: Vec<Arrival>,
    mut transcript: Transcript<'_>,
) -> Result<Vec<Line>, EngineError> {
    let mut outbox = Outbox::with_log();
    for arrival in arrivals {
        let now = arrival.queued;
        let moment = Moment { time: now, phase: Phase::Arrival, source: 0 };
        advance(&mut engine, moment, &mut outbox, &mut transcript)?;
        transcript.arrived(now);
        engine.enqueue(arrival, now, &mut outbox);
    }
    advance(&mut engine, Moment::NEVER, &mut outbox, &mut transcript)?;
    let standing = engine.radix_standing().expect("SGLang's engine has a standing");
    Ok(transcript.end(&standing))
}

fn advance(
    engine: &mut Engine,
    until: Moment,
    outbox: &mut Outbox,
    transcript: &mut Transcript<'_>,
) -> Result<(), EngineError> {
    while engine.next_moment().is_some_and(|moment| moment < until) {
        engine.advance(until, outbox)?;
        transcript.take_in(outbox);
        outbox.clear();
    }
    Ok(())
}
