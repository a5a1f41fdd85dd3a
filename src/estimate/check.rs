//! A run of the same steady batch: so many users in a closed loop, measured once it has settled.

use super::schedule::Schedule;
use super::{Deployed, EstimateError};
use crate::base::detail::PassDetail;
use crate::base::ids::EngineId;
use crate::base::output::{OutputError, ResultFile};
use crate::base::record::RequestRecord;
use crate::base::time::{SimDuration, SimTime};
use crate::report::Report;
use crate::report::estimate::{Check, Checked, Figures};
use crate::report::sink::{Sink, Wants};
use crate::simulate::{Progress, engines_of, observe};

/// Generations before the measured ones: the first fills the cache, and neither has its requests where they stay.
const WARM: u32 = 2;

/// Generations that are measured.
const MEASURED: u32 = 2;

/// Generations of a run. The last one keeps the batch whole.
pub(super) const GENERATIONS: u32 = WARM + MEASURED + 1;

/// What a run tells.
#[derive(Default)]
struct Watching {
    /// Of engine 0: when a pass began, and whether it had prompts.
    passes: Vec<(SimTime, bool)>,
    requests: Vec<Seen>,
}

/// A request that finished.
struct Seen {
    id: u32,
    arrival: SimTime,
    queue: SimDuration,
    ttft: SimDuration,
    tpot: Option<SimDuration>,
    was_preempted: bool,
}

impl Sink for Watching {
    fn wants(&self) -> Wants {
        Wants { details: true, every_share: false }
    }

    fn detail(&mut self, pass: &PassDetail) -> Result<(), OutputError> {
        if pass.engine == EngineId(0) && pass.kind() != "none" {
            self.passes.push((pass.start, pass.prefill_requests > 0));
        }
        Ok(())
    }

    fn finished(&mut self, record: &RequestRecord, _counted: bool) -> Result<(), OutputError> {
        self.requests.push(Seen {
            id: record.id.0,
            arrival: record.arrival,
            queue: record.ttft.queueing,
            ttft: record.ttft(),
            tpot: record.tpot(),
            was_preempted: record.preemptions > 0,
        });
        Ok(())
    }

    fn finish(self: Box<Self>, _report: &Report) -> Result<Vec<ResultFile>, OutputError> {
        Ok(Vec::new())
    }
}

/// Runs the batch and holds the estimate against it.
///
/// # Errors
/// It cannot be run, or its requests are not served.
pub(super) fn check(
    deployed: &Deployed<'_>,
    figures: &Figures,
    schedule: &Schedule,
    progress: &mut dyn Progress,
) -> Result<Check, EstimateError> {
    let mut watching = Watching::default();
    observe(&deployed.scenario, &mut watching, progress)?;
    let Watching { passes, mut requests } = watching;
    let users = u64::from(deployed.batch.requests) * u64::from(engines_of(&deployed.scenario));
    let expected = users * u64::from(GENERATIONS);
    if requests.len() as u64 != expected {
        return Err(EstimateError::Unserved { served: requests.len() as u64, requests: expected });
    }
    // Requests are numbered as they arrive, each when one before it has ended.
    requests.sort_unstable_by_key(|seen| seen.id);
    let [from, to] =
        [WARM, WARM + MEASURED].map(|generation| (users * u64::from(generation)) as usize);
    let span = [from, to].map(|place| requests[place].arrival);
    let measured = &requests[from..to];

    let within = || passes.iter().filter(|(start, _)| span[0] <= *start && *start < span[1]);
    let a_generation = |passes: usize| Some(passes as f64 / f64::from(MEASURED));
    let mean = |value: fn(&Seen) -> Option<SimDuration>| {
        let values: Vec<f64> = measured.iter().filter_map(value).map(SimDuration::as_ms).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let queue_ms = mean(|seen| Some(seen.queue));
    let whole_ttft_ms = mean(|seen| Some(seen.ttft));
    let ttft_ms = whole_ttft_ms.zip(queue_ms).map(|(whole, queue)| whole - queue);
    let span_ms = span[1].since(span[0]).as_ms();
    let per_s = |tokens: u32| {
        let all = measured.len() as f64 * f64::from(tokens);
        (span_ms > 0.0).then(|| all * 1e3 / span_ms)
    };
    let prompt_passes = schedule.prompt_passes as f64;
    let with_prompts = within().filter(|(_, has_prompts)| *has_prompts).count();
    Ok(Check {
        requests: measured.len() as u64,
        generations: MEASURED,
        preempted: measured.iter().filter(|seen| seen.was_preempted).count() as u64,
        figures: vec![
            Checked::of(
                ("passes", "Passes"),
                Some(figures.passes as f64),
                a_generation(within().count()),
            ),
            Checked::of(
                ("mixed_passes", "  with prompts"),
                Some(prompt_passes),
                a_generation(with_prompts),
            ),
            Checked::of(("ttft_ms", "TTFT (ms)"), Some(figures.ttft_ms), ttft_ms),
            Checked::of(("queue_ms", "Queue (ms)"), Some(figures.queue_ms), queue_ms),
            Checked::of(
                ("ttft_with_queue_ms", "TTFT + queue (ms)"),
                Some(figures.ttft_ms + figures.queue_ms),
                whole_ttft_ms,
            ),
            Checked::of(("tpot_ms", "TPOT (ms)"), figures.tpot_ms, mean(|seen| seen.tpot)),
            Checked::of(("requests_per_s", "Requests/s"), figures.requests_per_s, per_s(1)),
            Checked::of(
                ("output_tokens_per_s", "Output tokens/s"),
                figures.output_tokens_per_s,
                per_s(deployed.batch.osl),
            ),
        ],
    })
}
