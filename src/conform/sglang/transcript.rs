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
            if displaced.contains(&request) {
                self.preempted.push(request);
            } else {
                self.retracted.push(request);
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{EngineId, SlotId};
    use crate::engine::Levels;
    use crate::engine::plan::Entry;
    use serde_json::{Value, json};

    /// Ten requests, `a` to `j`, with prompts of 12 tokens and limits of 6.
    fn case() -> Case {
        let request = |id: char| {
            json!({"id": id, "arrival_us": 0, "prompt": [[1, 0, 12]], "out_stream": 2,
                "max_new_tokens": 6, "eos_at": null, "ignore_eos": true})
        };
        let requests: Vec<Value> = ('a'..='j').map(request).collect();
        let config = json!({"max_total_tokens": 64});
        let input = json!({"name": "x", "config": config, "requests": requests});
        Case::from_json(json!({ "input": input }).to_string().as_bytes()).unwrap()
    }

    fn at(us: u64) -> SimTime {
        SimTime::from_ns(us * 1000)
    }

    fn ids<const N: usize>(requests: [u32; N]) -> Vec<RequestId> {
        requests.map(RequestId).into()
    }

    fn row(request: u32, tokens: u32, computed_before: u32, is_decode: bool) -> Row {
        Row {
            slot: SlotId(0),
            request: RequestId(request),
            tokens,
            computed_before,
            entry: Entry::New,
            is_chunk: false,
            is_decode,
            drafts: 0,
            is_padding: false,
            emitted_tokens: 0,
            finished: false,
        }
    }

    fn standing(queue: Vec<RequestId>, displaced: Vec<RequestId>) -> RadixStanding {
        RadixStanding {
            available_tokens: 40,
            evictable_tokens: 10,
            protected_tokens: 5,
            running: 2,
            queue,
            is_full: true,
            new_token_ratio: 0.5,
            displaced,
        }
    }

    fn planned(us: u64, rows: &[Row], lost: Vec<RequestId>, standing: RadixStanding) -> Decision {
        Decision::Planned {
            engine: EngineId(0),
            now: at(us),
            span: PassSpan { start: at(us + 1), end: at(us + 5) },
            rows: rows.to_vec(),
            preempted: lost,
            levels: Levels::default(),
            radix: Some(Box::new(standing)),
        }
    }

    fn completed(us: u64, rows: &[Row], finished: Vec<(RequestId, u32)>) -> Decision {
        Decision::Completed {
            engine: EngineId(0),
            now: at(us),
            has_work: !rows.is_empty(),
            rows: rows.to_vec(),
            finished,
            levels: Levels::default(),
            radix: Some(Box::new(standing(Vec::new(), Vec::new()))),
        }
    }

    fn turned_away(us: u64, request: u32, why: Rejection) -> Decision {
        Decision::TurnedAway { request: RequestId(request), why, now: at(us) }
    }

    /// The lines for these decisions, with nobody left in the queue but `waiting`.
    fn lines(decisions: Vec<Decision>, waiting: Vec<RequestId>) -> Vec<Value> {
        let case = case();
        let config = case.engine_config().resolve().unwrap();
        let mut transcript = Transcript::new(&case, &Limits::of(&config));
        let outbox = Outbox { log: Some(decisions), ..Outbox::default() };
        transcript.take_in(&outbox);
        let lines = transcript.end(&standing(waiting, Vec::new()));
        lines.iter().map(|line| serde_json::to_value(line).unwrap()).collect()
    }

    #[test]
    fn a_forward_tells_what_happened_since_the_one_before() {
        let chunk = Row { is_chunk: true, ..row(0, 5, 3, false) };
        let decode = row(1, 1, 14, true);
        let ended = Row { emitted_tokens: 1, finished: true, ..decode };
        let rest = Row { emitted_tokens: 1, ..row(0, 4, 8, false) };
        let lines = lines(
            vec![
                Decision::HandedOver(RequestId(0)),
                // A call that gave no forward, and one that did not even say so.
                planned(1, &[], ids([2]), standing(Vec::new(), Vec::new())),
                completed(1, &[], Vec::new()),
                turned_away(2, 3, Rejection::QueueFull),
                planned(
                    3,
                    &[chunk, decode],
                    ids([5, 4]),
                    standing(ids([9, 8, 7, 6, 5, 4, 2, 1, 0]), ids([4])),
                ),
                // The next is planned before this one is completed.
                planned(4, &[rest], Vec::new(), standing(Vec::new(), Vec::new())),
                completed(8, &[chunk, ended], vec![(RequestId(1), 3)]),
                completed(13, &[rest], Vec::new()),
                turned_away(14, 6, Rejection::QueueFull),
            ],
            ids([7]),
        );
        let at = json!({"avail": 40, "evict": 10, "prot": 5, "wait": 9, "run": 2, "full": 1,
            "ratio": 0.5});
        assert_eq!(
            lines[0],
            json!({"f": 0, "kind": "mixed", "sched": 3, "start": 4, "end": 8, "ids": ["a", "b"],
                "ext": [5, 1], "pre": [3, 14], "ndec": 1, "chunked": "a", "retracted": ["c", "f"],
                "preempted": ["e"], "aborted": ["d"], "at": at,
                "queue": ["j", "i", "h", "g", "f", "e", "c", "b"], "finished": ["b"], "done": 8,
                "after": [40, 10, 5]})
        );
        let mut at = at;
        at["wait"] = json!(0);
        assert_eq!(
            lines[1],
            json!({"f": 1, "kind": "extend", "sched": 4, "start": 5, "end": 9, "ids": ["a"],
                "ext": [4], "pre": [8], "at": at, "queue": [], "finished": [], "done": 13,
                "after": [40, 10, 5]})
        );
        assert_eq!(lines.len(), 2 + 10 + 1);
        at["wait"] = json!(1);
        assert_eq!(
            lines[12],
            json!({"end": true, "forwards": 2, "clock": 0, "stuck": ["h"], "late_aborts": ["g"],
                "final": at})
        );
    }

    #[test]
    fn a_decode_counts_the_tokens_of_its_sequences() {
        let rows = [row(0, 1, 14, true), row(1, 1, 20, true)];
        let lines = lines(
            vec![planned(0, &rows, Vec::new(), standing(Vec::new(), Vec::new()))],
            Vec::new(),
        );
        assert_eq!((&lines[0]["kind"], &lines[0]["ctx"]), (&json!("decode"), &json!(15 + 21)));
        assert_eq!(lines[0].get("ext").or(lines[0].get("pre")).or(lines[0].get("ndec")), None);
    }

    #[test]
    fn requests_that_were_not_served_are_told_by_the_log() {
        let none = || standing(Vec::new(), Vec::new());
        let refused = Row { emitted_tokens: 1, finished: true, ..row(0, 1, 0, false) };
        let first = Row { emitted_tokens: 1, ..row(1, 9, 3, false) };
        let lines = lines(
            vec![
                planned(0, &[refused, first], Vec::new(), none()),
                turned_away(5, 0, Rejection::PromptTooLong),
                completed(5, &[refused, first], Vec::new()),
                // It loses its memory, finds more of it when it comes back, and ends in a full queue.
                planned(5, &[row(1, 2, 11, false)], ids([1]), none()),
                completed(9, &[], Vec::new()),
                turned_away(9, 1, Rejection::QueueFull),
            ],
            Vec::new(),
        );
        let line = |req, first, finish, cached, out, retractions, reason| {
            json!({"req": req, "first": first, "finish": finish, "cached": cached, "out": out,
                "max_new": 6, "retractions": retractions, "reason": reason})
        };
        assert_eq!(lines[2], line("a", json!(5), json!(5), 0, 1, 0, "abort"));
        assert_eq!(lines[3], line("b", json!(5), json!(9), 3, 1, 1, "abort"));
        assert_eq!(lines[4], line("c", Value::Null, Value::Null, 0, 0, 0, "none"));
    }

    #[test]
    fn passes_that_decode_in_step_are_counted() {
        let rows = [row(0, 4, 0, false)];
        let lines = lines(
            vec![
                planned(0, &rows, Vec::new(), standing(Vec::new(), Vec::new())),
                Decision::PlannedInStep,
                completed(5, &rows, Vec::new()),
                Decision::PlannedInStep,
                Decision::CompletedInStep,
                // Completed with the end of a request that has no row.
                Decision::Completed {
                    engine: EngineId(0),
                    now: at(9),
                    has_work: true,
                    rows: Vec::new(),
                    finished: vec![(RequestId(0), 3)],
                    levels: Levels::default(),
                    radix: Some(Box::new(standing(Vec::new(), Vec::new()))),
                },
            ],
            Vec::new(),
        );
        assert_eq!(lines.last().unwrap()["forwards"], json!(3));
        assert_eq!(lines[0]["done"], json!(5));
        assert_eq!(lines[1]["req"], json!("a"));
    }
}
