//! Writing down what our engine does, in the lines of a recording.

use std::collections::VecDeque;

use super::case::Case;
use super::lines::{EndLine, ForwardLine, Kind, Line, Reason, RequestLine, StandingLine};
use crate::base::ids::RequestId;
use crate::base::record::{Finish, Rejection, RequestRecord};
use crate::base::time::SimTime;
use crate::engine::RadixStanding;
use crate::engine::outbox::{Decision, Outbox};
use crate::engine::plan::{PassSpan, Row};
use crate::engine::sglang::config::Limits;

/// Waiting requests that a forward's line names.
const QUEUE_SHOWN: usize = 8;

/// What is written so far.
pub(super) struct Transcript<'a> {
    case: &'a Case,
    forwards: Vec<ForwardLine>,
    /// Passes that were planned and not completed: where their lines are, if they have any.
    in_flight: VecDeque<Option<usize>>,
    /// Passes that were completed.
    completed: u64,
    /// Who lost their memory, and whom the queue did not take, since the last line.
    retracted: Vec<RequestId>,
    preempted: Vec<RequestId>,
    aborted: Vec<RequestId>,
    requests: Vec<RequestLine>,
    /// How far the prompt of each request is computed, as long as it lost nothing.
    extended_to: Vec<u32>,
    records: Vec<RequestRecord>,
    clock: SimTime,
}

const fn us(time: SimTime) -> u64 {
    time.as_ns() / 1000
}

const SEEN: &str = "SGLang's engine says where it stands";

impl<'a> Transcript<'a> {
    /// An empty transcript of `case` on an engine with `limits`.
    pub(super) fn new(case: &'a Case, limits: &Limits) -> Self {
        let named = case.output_limits(limits).enumerate().map(|(index, max_new)| {
            let req = case.name_of(RequestId(index as u32));
            RequestLine { req, max_new, ..RequestLine::default() }
        });
        Self {
            case,
            forwards: Vec::new(),
            in_flight: VecDeque::new(),
            completed: 0,
            retracted: Vec::new(),
            preempted: Vec::new(),
            aborted: Vec::new(),
            requests: named.collect(),
            extended_to: vec![0; case.requests()],
            records: Vec::new(),
            clock: SimTime::ZERO,
        }
    }

    fn names<'b>(&self, requests: impl IntoIterator<Item = &'b RequestId>) -> Vec<String> {
        requests.into_iter().map(|&request| self.case.name_of(request)).collect()
    }

    /// A request arrives at `now`.
    pub(super) fn arrived(&mut self, now: SimTime) {
        self.clock = self.clock.max(now);
    }

    /// Takes in what an engine told.
    pub(super) fn take_in(&mut self, outbox: &Outbox) {
        self.records.extend(outbox.finished.iter().cloned());
        if let Some(last) = outbox.passes.last() {
            self.clock = self.clock.max(last.end);
        }
        for decision in outbox.log.iter().flatten() {
            self.note(decision);
        }
    }

    fn note(&mut self, decision: &Decision) {
        match decision {
            Decision::HandedOver(_) => {}
            &Decision::TurnedAway { request, why, now } => {
                let line = &mut self.requests[request.index()];
                line.reason = Reason::Abort;
                line.finish = Some(us(now));
                if why == Rejection::QueueFull {
                    self.aborted.push(request);
                }
            }
            Decision::Planned { now, span, rows, preempted, radix, .. } => {
                let standing = radix.as_ref().expect(SEEN);
                self.note_lost(preempted, &standing.displaced);
                if rows.is_empty() {
                    self.in_flight.push_back(None);
                    return;
                }
                self.note_cached(rows);
                self.in_flight.push_back(Some(self.forwards.len()));
                let line = self.forward(*now, *span, rows, standing);
                self.forwards.push(line);
            }
            Decision::Completed { now, has_work, rows, finished, radix, .. } => {
                let line = self.in_flight.pop_front().expect("a pass is planned first");
                self.completed += u64::from(*has_work);
                self.note_outputs(*now, rows);
                let Some(line) = line else { return };
                let standing = radix.as_ref().expect(SEEN);
                let in_rows = rows.iter().filter(|row| row.finished).map(|row| row.request);
                let mut ended: Vec<RequestId> = in_rows.collect();
                // Those that decode in step have no rows.
                let others = finished.iter().map(|&(request, _)| request);
                let others = others.filter(|request| rows.iter().all(|r| r.request != *request));
                ended.extend(others);
                let ended = self.names(&ended);
                let line = &mut self.forwards[line];
                line.finished = ended;
                line.done = us(*now);
                line.after = [
                    standing.available_tokens,
                    standing.evictable_tokens,
                    standing.protected_tokens,
                ];
            }
            Decision::PlannedInStep => self.in_flight.push_back(None),
            Decision::CompletedInStep => {
                self.in_flight.pop_front();
                self.completed += 1;
            }
        }
    }

    /// Takes in who lost their memory.
    fn note_lost(&mut self, lost: &[RequestId], displaced: &[RequestId]) {
        for &request in lost {
            self.requests[request.index()].retractions += 1;
            let list = if displaced.contains(&request) {
                &mut self.preempted
            } else {
                &mut self.retracted
            };
            list.push(request);
        }
    }

    /// Takes in what was found in the cache: of each extend what lies beyond the one before, until the
    /// request loses its memory (F6).
    fn note_cached(&mut self, rows: &[Row]) {
        for row in rows.iter().filter(|row| !row.is_decode) {
            let line = &mut self.requests[row.request.index()];
            let extended_to = &mut self.extended_to[row.request.index()];
            if line.retractions == 0 {
                line.cached += row.computed_before.saturating_sub(*extended_to);
                *extended_to = row.computed_before + row.tokens;
            }
        }
    }

    fn note_outputs(&mut self, now: SimTime, rows: &[Row]) {
        for row in rows.iter().filter(|row| row.emitted_tokens > 0) {
            let line = &mut self.requests[row.request.index()];
            line.first.get_or_insert(us(now));
            line.out += row.emitted_tokens;
        }
    }

    /// The line of a forward whose result is still to come.
    fn forward(
        &mut self,
        now: SimTime,
        span: PassSpan,
        rows: &[Row],
        standing: &RadixStanding,
    ) -> ForwardLine {
        let decodes = rows.iter().filter(|row| row.is_decode).count();
        let kind = match decodes {
            0 => Kind::Extend,
            _ if decodes == rows.len() => Kind::Decode,
            _ => Kind::Mixed,
        };
        let extends = kind != Kind::Decode;
        let of_rows = |value: fn(&Row) -> u32| extends.then(|| rows.iter().map(value).collect());
        let sequence = |row: &Row| u64::from(row.computed_before) + 1;
        let chunk = rows.iter().find(|row| row.is_chunk);
        let [retracted, preempted, aborted] =
            [&mut self.retracted, &mut self.preempted, &mut self.aborted].map(std::mem::take);
        ForwardLine {
            f: self.forwards.len() as u64,
            kind,
            sched: us(now),
            start: us(span.start),
            end: us(span.end),
            ids: self.names(rows.iter().map(|row| &row.request)),
            ext: of_rows(|row| row.tokens),
            pre: of_rows(|row| row.computed_before),
            ndec: (kind == Kind::Mixed).then_some(decodes),
            chunked: chunk.map(|row| self.case.name_of(row.request)),
            ctx: (!extends).then(|| rows.iter().map(sequence).sum()),
            retracted: self.names(&retracted),
            preempted: self.names(&preempted),
            aborted: self.names(&aborted),
            at: standing.into(),
            queue: self.names(standing.queue.iter().take(QUEUE_SHOWN)),
            ..ForwardLine::default()
        }
    }

    /// All lines but the first, with the engine where `standing` says.
    pub(super) fn end(mut self, standing: &RadixStanding) -> Vec<Line> {
        for record in &self.records {
            let line = &mut self.requests[record.id.index()];
            line.first = Some(us(record.first_token));
            line.finish = Some(us(record.last_token));
            line.cached = record.cached_tokens;
            line.out = record.output_tokens;
            line.retractions = record.preemptions;
            line.reason = match record.finish {
                Finish::Stop => Reason::Stop,
                Finish::Length | Finish::ModelLength => Reason::Length,
            };
        }
        let end = EndLine {
            end: true,
            forwards: self.completed,
            clock: us(self.clock),
            stuck: self.names(&standing.queue),
            late_aborts: self.names(&self.aborted),
            standing: StandingLine::from(standing),
        };
        let forwards = self.forwards.into_iter().map(|line| Line::Forward(Box::new(line)));
        forwards
            .chain(self.requests.into_iter().map(Line::Request))
            .chain(std::iter::once(Line::End(end)))
            .collect()
    }
}
