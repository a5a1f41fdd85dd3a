//! An engine on the clock: passes in flight, and how far it can go by itself.
//!
//! Synchronous scheduling plans a pass when the one before has ended. Asynchronous scheduling
//! keeps two passes: the plan of pass i + 1 is formed when pass i starts, so a request that
//! arrives during pass i joins pass i + 2 at the earliest (R72, R80).

use std::collections::VecDeque;

use super::arena::Arrival;
use super::decode_clock::{DecodeClock, Planned, Standing};
use super::error::EngineError;
use super::notation::Notation;
use super::outbox::{Decision, Outbox};
use super::plan::{PassPlan, PassSpan, Row};
use super::{Effort, Levels, RadixStanding, Scheduler};
use crate::base::detail::{PassDetail, PassPrice};
use crate::base::digest::Digest;
use crate::base::ids::EngineId;
use crate::base::moment::{Moment, Phase};
use crate::base::record::{PassRecord, RequestRecord, Unserved};
use crate::base::time::SimTime;
use crate::timing::evidence::Evidence;
use crate::timing::pricer::{MixedPasses, PassPricer};
use crate::timing::work::{DecodeWork, PrefillWork};

/// Consecutive passes without a token that was never computed before, after which an engine is
/// taken to run in circles: requests that preempt each other for ever.
const FRUITLESS_PASSES_MAX: u64 = 1_000_000;

/// A pass between planning and completion.
struct Flight {
    plan: Box<PassPlan>,
    planned: SimTime,
    span: PassSpan,
    levels: Levels,
    /// Default unless the outbox keeps details.
    price: PassPrice,
}

impl Flight {
    fn standing(&self) -> Standing {
        let Levels { usable_blocks, free_blocks, running, waiting, .. } = self.levels;
        Standing { used_blocks: usable_blocks - free_blocks, running, waiting }
    }
}

/// What a call to the scheduler came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// A pass was planned, or somebody preempted.
    Planned,
    /// Nothing can run now.
    Nothing,
}

/// One engine.
pub(crate) struct Engine {
    id: EngineId,
    scheduler: Box<dyn Scheduler>,
    pricer: PassPricer,
    /// Passes planned and not completed, oldest first.
    in_flight: VecDeque<Flight>,
    #[expect(clippy::vec_box, reason = "plans move between here and a flight as pointers")]
    spare_plans: Vec<Box<PassPlan>>,
    /// When the last planned pass ends.
    device_free: SimTime,
    /// When the scheduler is to be called next; absent while a completion comes first, and when
    /// there is nothing to do.
    start: Option<SimTime>,
    fruitless_passes: u64,
    passes: u64,
    digest: Digest,
    /// Requests that only warm the cache: those with smaller ids. Passes without others take no time.
    warm: u32,
    /// Others that are here.
    others: u64,
}

impl Engine {
    /// An idle engine.
    pub(crate) fn new(id: EngineId, scheduler: Box<dyn Scheduler>, pricer: PassPricer) -> Self {
        Self {
            id,
            scheduler,
            pricer,
            in_flight: VecDeque::new(),
            spare_plans: Vec::new(),
            device_free: SimTime::ZERO,
            start: None,
            fruitless_passes: 0,
            passes: 0,
            digest: Digest::new(),
            warm: 0,
            others: 0,
        }
    }

    /// The same engine, in which the first `requests` of the workload take no time.
    #[must_use]
    pub(crate) fn warmed_by(mut self, requests: u32) -> Self {
        self.pricer.set_free(requests > 0);
        Self { warm: requests, ..self }
    }

    /// Hands a request over at `now`. An idle engine will start a pass at that instant.
    pub(crate) fn enqueue(&mut self, arrival: Arrival, now: SimTime, outbox: &mut Outbox) {
        if let Some(log) = &mut outbox.log {
            log.push(Decision::HandedOver(arrival.spec.id));
        }
        if arrival.spec.id.0 >= self.warm {
            self.others += 1;
            self.pricer.set_free(false);
        }
        self.scheduler.enqueue(arrival);
        // While a pass is in flight the engine waits for its end, whoever arrives.
        if self.in_flight.is_empty() && self.start.is_none() {
            self.start = Some(now);
        }
    }

    /// When this engine has something to do next; `None`: not before a request arrives.
    pub(crate) fn next_moment(&self) -> Option<Moment> {
        let (time, phase) = match (self.start, self.in_flight.front()) {
            (Some(start), _) => (start, Phase::Start),
            (None, Some(oldest)) => (oldest.span.end, Phase::Completion),
            (None, None) => return None,
        };
        Some(Moment { time, phase, source: self.id.0 })
    }

    /// Does everything that comes before `until`, or as much of it as the outbox should hold at
    /// once: then [`Engine::next_moment`] still lies before `until`.
    ///
    /// # Errors
    /// A pass without a price, or a clock at its end.
    pub(crate) fn advance(
        &mut self,
        until: Moment,
        outbox: &mut Outbox,
    ) -> Result<(), EngineError> {
        while let Some(moment) = self.next_moment().filter(|&moment| moment < until) {
            if outbox.is_full() {
                return Ok(());
            }
            if moment.phase == Phase::Completion {
                self.complete_oldest(outbox);
                self.start = Some(moment.time);
            } else if !self.run_decodes(moment.time, until, outbox)? {
                self.start_passes(moment.time, outbox)?;
            }
        }
        Ok(())
    }

    /// Runs passes in which everybody decodes and nothing else can happen, as far as that goes,
    /// and says whether there were any.
    fn run_decodes(
        &mut self,
        now: SimTime,
        until: Moment,
        outbox: &mut Outbox,
    ) -> Result<bool, EngineError> {
        // The pass in flight, if the engine keeps two, has to be of the same kind.
        let in_flight = match (self.in_flight.front(), self.scheduler.depth()) {
            (None, 1) => None,
            (Some(flight), 2) if flight.plan.is_all_steady() => Some(Planned {
                planned: flight.planned,
                span: flight.span,
                work: flight.plan.decode,
                standing: flight.standing(),
                price: flight.price,
            }),
            _ => return Ok(false),
        };
        let mut clock = DecodeClock {
            engine: self.id,
            until,
            now,
            device_free: self.device_free,
            in_flight: [in_flight, None],
            may_plan: true,
            passes: 0,
            extends: false,
            own_is_next: in_flight.is_none(),
            pricer: &mut self.pricer,
            digest: &mut self.digest,
            usable_blocks: self.scheduler.levels().usable_blocks,
            outbox,
        };
        let finished_before = clock.outbox.finished.len();
        self.scheduler.run_decodes(&mut clock)?;
        let DecodeClock { now, device_free, in_flight, passes, outbox, .. } = clock;
        let finished = outbox.finished[finished_before..].iter().map(|record| record.id);
        self.others -= finished.filter(|id| id.0 >= self.warm).count() as u64;
        if passes == 0 {
            return Ok(false);
        }
        self.device_free = device_free;
        self.passes += passes;
        self.fruitless_passes = 0;
        self.spare_plans.extend(self.in_flight.drain(..).map(|flight| flight.plan));
        let levels = self.scheduler.levels();
        let left = in_flight.iter().flatten().count();
        // The run has ended before a pass could be planned, or before one could be completed.
        self.start = (left < self.scheduler.depth()).then_some(now);
        for (back, planned) in (0..left as u64).rev().zip(in_flight.into_iter().flatten()) {
            let mut plan = self.spare_plans.pop().unwrap_or_default();
            self.scheduler.restore_plan(&mut plan, back, &planned.work);
            let Standing { used_blocks, running, waiting } = planned.standing;
            let free_blocks = levels.usable_blocks - used_blocks;
            let levels = Levels { running, waiting, free_blocks, ..levels };
            let Planned { planned, span, price, .. } = planned;
            self.in_flight.push_back(Flight { plan, planned, span, levels, price });
        }
        Ok(true)
    }

    /// Plans passes until the pipeline is full or nothing more can run.
    fn start_passes(&mut self, now: SimTime, outbox: &mut Outbox) -> Result<(), EngineError> {
        self.start = None;
        while self.has_room() && !self.runs_in_circles() {
            if self.call(now, outbox)? == Call::Nothing {
                break;
            }
        }
        if self.in_flight.is_empty() {
            let Levels { running, waiting, .. } = self.scheduler.levels();
            if running == 0 {
                outbox.idle.push((self.id, now, waiting));
            }
        }
        Ok(())
    }

    /// Whether another pass may be planned before the oldest is completed.
    pub(crate) fn has_room(&self) -> bool {
        self.in_flight.len() < self.scheduler.depth()
    }

    /// Whether passes are in flight.
    pub(crate) fn has_passes(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Whether the engine has given up: its passes only compute again what preemptions drop.
    pub(crate) fn runs_in_circles(&self) -> bool {
        self.fruitless_passes >= FRUITLESS_PASSES_MAX
    }

    /// Calls the scheduler at `now` and, if that gave a pass, queues it. A call that only
    /// preempted is a pass of no length.
    ///
    /// # Errors
    /// A pass without a price, or a clock at its end.
    pub(crate) fn call(&mut self, now: SimTime, outbox: &mut Outbox) -> Result<Call, EngineError> {
        let mut plan = self.spare_plans.pop().unwrap_or_default();
        let turned_away = outbox.turned_away.len();
        self.scheduler.schedule(now, &mut plan, outbox);
        self.note_turned_away(turned_away, outbox);
        if plan.is_empty() {
            self.spare_plans.push(plan);
            return Ok(Call::Nothing);
        }
        let start = now.max(self.device_free);
        let duration = self
            .pricer
            .price(&plan.prefill, &plan.decode)
            .map_err(|cause| EngineError::timing(start, cause))?;
        let end = start.checked_add(duration).ok_or_else(|| EngineError::clock(start))?;
        let price = match &outbox.details {
            Some(_) => self.pricer.last_in_full(&plan.prefill, &plan.decode),
            None => Ok(PassPrice::default()),
        };
        let price = price.map_err(|cause| EngineError::timing(start, cause))?;
        self.device_free = end;
        self.passes += u64::from(!plan.has_no_work());
        self.fruitless_passes = if plan.has_new_work { 0 } else { self.fruitless_passes + 1 };
        let levels = self.scheduler.levels();
        tracing::trace!(
            target: "servesim::pass",
            engine = self.id.0,
            start_ms = start.as_ms(),
            ms = duration.as_ms(),
            running = levels.running,
            waiting = levels.waiting,
            free_blocks = levels.free_blocks,
            "{}",
            Notation { rows: &plan.rows, preempted: &plan.preempted }
        );
        if let Some(log) = &mut outbox.log {
            log.push(Decision::Planned {
                engine: self.id,
                now,
                span: PassSpan { start, end },
                rows: plan.rows.clone(),
                preempted: plan.preempted.clone(),
                levels,
                radix: self.scheduler.radix_standing().map(Box::new),
            });
        }
        let span = PassSpan { start, end };
        self.in_flight.push_back(Flight { plan, planned: now, span, levels, price });
        Ok(Call::Planned)
    }

    /// Takes in whom the scheduler turned away since there were `before` of them.
    fn note_turned_away(&mut self, before: usize, outbox: &mut Outbox) {
        for (request, why, now) in &mut outbox.turned_away[before..] {
            if let Some(log) = &mut outbox.log {
                log.push(Decision::TurnedAway { request: request.id, why: *why, now: *now });
            }
            request.engine = Some(self.id);
            self.others -= u64::from(request.id.0 >= self.warm);
        }
    }

    /// Completes the oldest pass in flight and says when that was.
    ///
    /// # Panics
    /// If no pass is in flight.
    pub(crate) fn complete_oldest(&mut self, outbox: &mut Outbox) -> SimTime {
        let flight = self.in_flight.pop_front().expect("the caller checks that one is in flight");
        let Standing { used_blocks, running, waiting } = flight.standing();
        let Flight { mut plan, planned, span, levels, price } = flight;
        let finished_before = outbox.finished.len();
        let turned_away = outbox.turned_away.len();
        self.scheduler.complete(&mut plan, span, outbox);
        self.note_turned_away(turned_away, outbox);
        for record in &mut outbox.finished[finished_before..] {
            record.engine = self.id;
            note_request(&mut self.digest, record);
            self.others -= u64::from(record.id.0 >= self.warm);
        }
        self.pricer.set_free(self.warm > 0 && self.others == 0);
        if plan.prefill.requests + plan.decode.requests > 0 {
            note_pass(&mut self.digest, span.end, &plan.prefill, &plan.decode, used_blocks);
            outbox.pass(PassRecord {
                engine: self.id,
                passes: 1,
                start: span.start,
                last_start: span.start,
                end: span.end,
                prefill_requests: plan.prefill.requests,
                prefill_tokens: plan.prefill.new_tokens as u32,
                decode_requests: plan.decode.requests,
                decode_tokens: plan.decode.query_tokens as u32,
                used_blocks,
                used_blocks_max: used_blocks,
                used_block_ns: 0,
                running,
                waiting,
            });
        }
        if let Some(details) = &mut outbox.details {
            details.push(PassDetail {
                engine: self.id,
                planned,
                start: span.start,
                end: span.end,
                prefill_requests: plan.prefill.requests,
                prefill_tokens: plan.prefill.new_tokens,
                prefill_past_tokens: plan.prefill.past_tokens,
                decode_requests: plan.decode.requests,
                decode_tokens: plan.decode.query_tokens,
                decode_kv_tokens: plan.decode.kv_tokens,
                price,
                used_blocks,
                usable_blocks: levels.usable_blocks,
                running,
                waiting,
                shares: plan.rows.iter().map(Row::share).collect(),
                preempted: plan.preempted.clone(),
                blocked: plan.blocked,
            });
        }
        if let Some(log) = &mut outbox.log {
            log.push(Decision::Completed {
                engine: self.id,
                now: span.end,
                has_work: !plan.has_no_work(),
                rows: plan.rows.clone(),
                finished: outbox.finished[finished_before..]
                    .iter()
                    .map(|record| (record.id, record.output_tokens))
                    .collect(),
                levels: self.scheduler.levels(),
                radix: self.scheduler.radix_standing().map(Box::new),
            });
        }
        self.spare_plans.push(plan);
        span.end
    }

    /// Requests handed over that have not finished, by id.
    pub(crate) fn unfinished(&self) -> Vec<Unserved> {
        let mut unserved = self.scheduler.unfinished();
        for request in &mut unserved {
            request.engine = Some(self.id);
        }
        unserved
    }

    /// Whether every request handed over has finished.
    pub(crate) fn is_done(&self) -> bool {
        let Levels { running, waiting, .. } = self.scheduler.levels();
        running + waiting == 0
    }

    /// Where the engine stands.
    pub(crate) fn levels(&self) -> Levels {
        self.scheduler.levels()
    }

    /// Where an engine with a radix cache stands.
    pub(crate) fn radix_standing(&self) -> Option<RadixStanding> {
        self.scheduler.radix_standing()
    }

    /// The blocks, their labels and their order in the free queue, as text.
    #[cfg(test)]
    pub(crate) fn kv_state(&self) -> String {
        self.scheduler.kv_state()
    }

    /// What was looked at one by one so far.
    pub(crate) fn effort(&self) -> Effort {
        self.scheduler.effort()
    }

    /// Passes run so far.
    pub(crate) const fn passes(&self) -> u64 {
        self.passes
    }

    /// Digest of the passes and of what became of the requests so far.
    pub(crate) const fn digest(&self) -> u64 {
        self.digest.finish()
    }

    /// Questions asked of the timing provider so far.
    pub(crate) const fn price_lookups(&self) -> u64 {
        self.pricer.lookups()
    }

    /// How mixed passes were priced so far.
    pub(crate) const fn mixed_passes(&self) -> MixedPasses {
        self.pricer.mixed_passes()
    }

    /// What the prices so far rest on.
    pub(crate) const fn evidence(&self) -> &Evidence {
        self.pricer.evidence()
    }
}

/// Takes a completed pass into a digest.
pub(super) fn note_pass(
    digest: &mut Digest,
    end: SimTime,
    prefill: &PrefillWork,
    decode: &DecodeWork,
    used_blocks: u32,
) {
    digest.add(end.as_ns());
    // Mixed apart from the digest, whose steps wait for one another.
    let requests = u64::from(prefill.requests) << 32 | u64::from(decode.requests);
    let tokens = prefill.new_tokens << 32 ^ decode.query_tokens;
    let kv = prefill.past_tokens ^ decode.kv_tokens;
    digest.add(Digest::mix(requests, tokens) ^ Digest::mix(kv, used_blocks.into()).rotate_left(17));
}

/// Takes what became of a request into a digest.
fn note_request(digest: &mut Digest, record: &RequestRecord) {
    digest.add(u64::from(record.id.0) << 32 | u64::from(record.output_tokens));
    digest.add(u64::from(record.cached_tokens) << 32 | u64::from(record.preemptions));
    for time in [record.first_scheduled, record.first_token, record.last_token] {
        digest.add(time.as_ns());
    }
}
