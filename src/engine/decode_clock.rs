//! The clock of a run of decode passes: passes in which everybody decodes and nothing else can
//! happen, so that a pass is a price, an end, and a sample.
//!
//! The scheduler knows how long that lasts and what each pass does to its blocks; the driver knows
//! prices and horizons. They meet here, once a pass, without plans and rows.

use super::driver::note_pass;
use super::error::EngineError;
use super::outbox::{Decision, Outbox};
use super::plan::PassSpan;
use crate::base::detail::{PassDetail, PassPrice};
use crate::base::digest::Digest;
use crate::base::ids::EngineId;
use crate::base::moment::{Moment, Phase};
use crate::base::record::PassRecord;
use crate::base::time::SimTime;
use crate::timing::pricer::PassPricer;
use crate::timing::work::{DecodeWork, PrefillWork};

/// A pass of the run that is planned and not completed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    /// When.
    pub(super) planned: SimTime,
    pub(super) span: PassSpan,
    pub(super) work: DecodeWork,
    pub(super) standing: Standing,
    /// Default unless the outbox keeps details.
    pub(super) price: PassPrice,
}

/// Where an engine stands once a pass is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// KV blocks held by requests.
    pub(crate) used_blocks: u32,
    /// Requests in the running list.
    pub(crate) running: u32,
    /// Requests in the queue.
    pub(crate) waiting: u32,
}

/// The clock of a run of decode passes.
pub(crate) struct DecodeClock<'a> {
    pub(super) engine: EngineId,
    /// Nothing at or after this may be done.
    pub(super) until: Moment,
    /// Where the clock stands: at the end of the last completed pass.
    pub(super) now: SimTime,
    /// When the last planned pass ends.
    pub(super) device_free: SimTime,
    /// The pass in flight, oldest first; two while one is about to be completed.
    pub(super) in_flight: [Option<Planned>; 2],
    /// Whether the scheduler may be called at `now`.
    pub(super) may_plan: bool,
    /// Passes planned by this clock.
    pub(super) passes: u64,
    /// Whether the last record of the outbox is of this run, and can be extended.
    pub(super) extends: bool,
    /// Whether the next pass to be completed was planned by this clock.
    pub(super) own_is_next: bool,
    /// KV blocks of the engine.
    pub(super) usable_blocks: u32,
    pub(super) pricer: &'a mut PassPricer,
    pub(super) digest: &'a mut Digest,
    /// Where the scheduler puts the gaps between tokens.
    pub(crate) outbox: &'a mut Outbox,
}

impl DecodeClock<'_> {
    /// Plans the next pass now. The passes of one clock differ in their KV alone.
    ///
    /// # Errors
    /// It has no price, or the clock is at its end.
    pub(crate) fn plan(
        &mut self,
        work: &DecodeWork,
        standing: Standing,
    ) -> Result<(), EngineError> {
        let start = self.now.max(self.device_free);
        let duration = self
            .pricer
            .price(&PrefillWork::default(), work)
            .map_err(|cause| EngineError::timing(start, cause))?;
        let end = start.checked_add(duration).ok_or_else(|| EngineError::clock(start))?;
        self.device_free = end;
        self.passes += 1;
        self.may_plan = false;
        let price = match &self.outbox.details {
            Some(_) => self.pricer.last_in_full(&PrefillWork::default(), work),
            None => Ok(PassPrice::default()),
        };
        let price = price.map_err(|cause| EngineError::timing(start, cause))?;
        let span = PassSpan { start, end };
        let planned = Planned { planned: self.now, span, work: *work, standing, price };
        if let Some(log) = &mut self.outbox.log {
            log.push(Decision::PlannedInStep);
        }
        let place = usize::from(self.in_flight[0].is_some());
        self.in_flight[place] = Some(planned);
        Ok(())
    }

    /// Completes the oldest pass, if that comes before the horizon, and says when it ended.
    pub(crate) fn complete(&mut self) -> Option<SimTime> {
        let [Some(oldest), next] = self.in_flight else { return None };
        let end = oldest.span.end;
        let moment = |phase| Moment { time: end, phase, source: self.engine.0 };
        if moment(Phase::Completion) >= self.until {
            return None;
        }
        self.in_flight = [next, None];
        self.now = end;
        self.may_plan = moment(Phase::Start) < self.until && !self.outbox.is_full();
        self.record(&oldest);
        if let Some(log) = &mut self.outbox.log {
            log.push(Decision::CompletedInStep);
        }
        Some(end)
    }

    /// Whether the next pass may be planned now.
    pub(crate) const fn may_plan(&self) -> bool {
        self.may_plan
    }

    fn record(&mut self, pass: &Planned) {
        let Planned { planned, span, work, standing, price } = *pass;
        let Standing { used_blocks, running, waiting } = standing;
        note_pass(self.digest, span.end, &PrefillWork::default(), &work, used_blocks);
        if let Some(details) = &mut self.outbox.details {
            details.push(PassDetail {
                engine: self.engine,
                planned,
                start: span.start,
                end: span.end,
                prefill_requests: 0,
                prefill_tokens: 0,
                prefill_past_tokens: 0,
                decode_requests: work.requests,
                decode_tokens: work.query_tokens,
                decode_kv_tokens: work.kv_tokens,
                price,
                used_blocks,
                usable_blocks: self.usable_blocks,
                running,
                waiting,
                shares: Vec::new(),
                preempted: Vec::new(),
                blocked: None,
            });
        }
        if self.extends
            && let Some(last) = self.outbox.passes.last_mut()
        {
            last.extend(span.end, used_blocks);
            return;
        }
        self.outbox.pass(PassRecord {
            engine: self.engine,
            passes: 1,
            start: span.start,
            last_start: span.start,
            end: span.end,
            prefill_requests: 0,
            prefill_tokens: 0,
            decode_requests: work.requests,
            decode_tokens: work.query_tokens as u32,
            used_blocks,
            used_blocks_max: used_blocks,
            used_block_ns: 0,
            running,
            waiting,
        });
        // The pass that was in flight before the run began may be unlike those of the run.
        self.extends = self.own_is_next;
        self.own_is_next = true;
    }
}
