//! Writing down what our engine does, in the lines of a recording.

use std::collections::VecDeque;

use super::lines::{
    EndLine, EndReason, EntryLetter, FinishWord, Line, RequestLine, ScheduledLine, UpdatedLine,
};
use crate::base::record::Finish;
use crate::base::time::SimTime;
use crate::engine::outbox::{Decision, Outbox};
use crate::engine::plan::Entry;

/// The lines written so far.
pub(crate) struct Transcript {
    pub(crate) lines: Vec<Line>,
    /// The number of the next call.
    pub(crate) next_call: u64,
    /// Calls whose output is still to come.
    pending_calls: VecDeque<u64>,
    arrived: Vec<u32>,
    requests: Vec<RequestLine>,
}

const fn us(time: SimTime) -> u64 {
    time.as_ns() / 1000
}

impl Transcript {
    /// An empty transcript of a case with `requests` requests.
    pub(crate) fn new(requests: usize) -> Self {
        let requests = (0..requests as u32).map(|i| RequestLine { i, ..RequestLine::default() });
        Self {
            lines: Vec::new(),
            next_call: 0,
            pending_calls: VecDeque::new(),
            arrived: Vec::new(),
            requests: requests.collect(),
        }
    }

    /// Takes in what an engine told.
    pub(crate) fn take_in(&mut self, outbox: &Outbox) {
        for record in &outbox.finished {
            self.requests[record.id.index()].reason = Some(match record.finish {
                Finish::Stop => FinishWord::Stop,
                Finish::Length | Finish::ModelLength => FinishWord::Length,
            });
        }
        for decision in outbox.log.iter().flatten() {
            self.write(decision);
        }
    }

    fn write(&mut self, decision: &Decision) {
        match decision {
            Decision::HandedOver(request) => self.arrived.push(request.0),
            Decision::Planned { now, rows, preempted, levels, .. } => {
                let call = self.next_call;
                self.next_call += 1;
                self.pending_calls.push_back(call);
                for row in rows.iter().filter(|row| row.entry == Entry::New) {
                    self.requests[row.request.index()].cached = row.computed_before;
                }
                for request in preempted {
                    self.requests[request.index()].preempted += 1;
                }
                let letter = |entry| match entry {
                    Entry::New => EntryLetter::N,
                    Entry::Running => EntryLetter::R,
                    Entry::Resumed => EntryLetter::P,
                };
                self.lines.push(Line::Scheduled(ScheduledLine {
                    s: call,
                    t: us(*now),
                    arr: std::mem::take(&mut self.arrived),
                    sched: rows
                        .iter()
                        .map(|r| {
                            (r.request.0, r.tokens, r.computed_before, letter(r.entry), r.drafts)
                        })
                        .collect(),
                    pre: preempted.iter().map(|request| request.0).collect(),
                    free: levels.free_blocks,
                    cached: levels.cached_contents,
                    run: levels.running,
                    wait: levels.waiting,
                }));
            }
            Decision::TurnedAway { .. } => unreachable!("vLLM's engine turns nobody away"),
            Decision::PlannedInStep => {
                self.pending_calls.push_back(self.next_call);
                self.next_call += 1;
            }
            Decision::CompletedInStep => {
                self.pending_calls.pop_front();
            }
            Decision::Completed { now, has_work, rows, finished, levels, .. } => {
                let call = self.pending_calls.pop_front().expect("a pass is planned first");
                // A call that only preempted has no output.
                if !has_work {
                    return;
                }
                let t = us(*now);
                let emitting = || rows.iter().filter(|row| row.emitted_tokens > 0);
                for row in emitting() {
                    let request = &mut self.requests[row.request.index()];
                    request.first.get_or_insert((call, t));
                    request.out += row.emitted_tokens;
                }
                for (id, output_tokens) in finished {
                    let request = &mut self.requests[id.index()];
                    request.fin = Some((call, t));
                    request.out = *output_tokens;
                }
                self.lines.push(Line::Updated(UpdatedLine {
                    s: call,
                    t,
                    out: emitting().map(|row| (row.request.0, row.emitted_tokens)).collect(),
                    fin: finished.iter().map(|(id, _)| id.0).collect(),
                    free: levels.free_blocks,
                    cached: levels.cached_contents,
                }));
            }
        }
    }

    /// Writes the last line.
    pub(crate) fn end(&mut self, reason: EndReason, clock: SimTime, free_blocks: u32) {
        // The hit counts once a token has come out.
        for request in self.requests.iter_mut().filter(|request| request.first.is_none()) {
            request.cached = 0;
        }
        self.lines.push(Line::End(EndLine {
            reason,
            steps: self.next_call,
            t: us(clock),
            free: free_blocks,
            requests: std::mem::take(&mut self.requests),
        }));
    }
}
