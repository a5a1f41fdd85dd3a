//! How requests of a workload hang together: sessions, their turns, and the pauses in them.
//!
//! Memory grows with the number of requests, by some twenty bytes each and by what they are called.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Lengths, lengths, percentile};
use crate::base::time::SimDuration;
use crate::workload::request::RequestSpec;
use crate::workload::sessions::graph::Reading;

/// The sessions of a workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct SessionStats {
    /// Requests tied to each other are one; so is a request tied to none.
    pub(crate) sessions: u64,
    /// Requests that wait for others.
    pub(crate) followers: u64,
    /// Sessions of one request, of all.
    pub(crate) one_turn_ratio: f64,
    /// Requests of a session.
    pub(crate) turns: Lengths,
    /// From the end of what a request waits for to its arrival, in seconds.
    pub(crate) pause_s: Option<Pauses>,
}

/// A distribution of pauses in seconds. Percentiles interpolate between the two nearest ranks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Pauses {
    pub(crate) mean: f64,
    pub(crate) min: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

/// Gathers what ties requests to each other.
#[derive(Default)]
pub(super) struct TieCollector {
    reading: Reading,
    has_ties: bool,
    followers: u64,
    /// How often each pause occurred, in nanoseconds.
    pauses: BTreeMap<u64, u64>,
}

impl TieCollector {
    /// Takes the next request in.
    pub(super) fn add(&mut self, request: &RequestSpec) {
        self.reading.add(request);
        let Some(turn) = &request.turn else { return };
        self.has_ties |= turn.session.is_some() || turn.name.is_some() || turn.wait_for.is_some();
        if !turn.is_start {
            self.followers += 1;
            *self.pauses.entry(turn.delay.as_ns()).or_default() += 1;
        }
    }

    /// The statistics; `None` where no request says that it is tied to another.
    pub(super) fn finish(&self) -> Option<SessionStats> {
        if !self.has_ties {
            return None;
        }
        let mut turns = BTreeMap::new();
        for size in self.reading.clone().sizes() {
            *turns.entry(size).or_insert(0) += 1;
        }
        let sessions = turns.values().sum();
        Some(SessionStats {
            sessions,
            followers: self.followers,
            one_turn_ratio: turns.get(&1).copied().unwrap_or(0) as f64 / sessions as f64,
            turns: lengths(&turns, sessions)?,
            pause_s: self.pauses(),
        })
    }

    fn pauses(&self) -> Option<Pauses> {
        let (&min, &max) = (self.pauses.keys().next()?, self.pauses.keys().next_back()?);
        let seconds = |ns: u64| SimDuration::from_ns(ns).as_s();
        let total: f64 = self.pauses.iter().map(|(&ns, &n)| seconds(ns) * n as f64).sum();
        let at = |share| percentile(&self.pauses, self.followers, share, seconds);
        Some(Pauses {
            mean: total / self.followers as f64,
            min: seconds(min),
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            max: seconds(max),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::RequestId;
    use crate::base::time::SimTime;
    use crate::workload::request::{Content, Name, Segment, Turn};

    fn request(turn: Option<Turn>) -> RequestSpec {
        RequestSpec {
            id: RequestId(0),
            arrival: SimTime::ZERO,
            prompt_tokens: 1,
            output_tokens: 1,
            max_tokens: 1,
            priority: 0,
            class: 0,
            content: Content::Private,
            output: Segment::Output(RequestId(0)),
            line: 0,
            turn: turn.map(Box::new),
            drafts: None,
        }
    }

    /// The statistics of requests; `None` is one that is tied to nothing.
    fn of<T: Into<Option<Turn>>>(turns: impl IntoIterator<Item = T>) -> Option<SessionStats> {
        let mut ties = TieCollector::default();
        turns.into_iter().for_each(|turn| ties.add(&request(turn.into())));
        ties.finish()
    }

    fn start(session: u64) -> Turn {
        Turn { session: Some(Name(session)), is_start: true, ..Turn::default() }
    }

    fn next(session: u64, s: u64) -> Turn {
        let delay = SimDuration::from_ns(s * 1_000_000_000);
        Turn { session: Some(Name(session)), delay, ..Turn::default() }
    }

    fn call(name: u64, waits: &[u64]) -> Turn {
        let wait_for = Some(waits.iter().map(|&name| Name(name)).collect());
        let is_start = waits.is_empty();
        Turn { name: Some(Name(name)), wait_for, is_start, ..Turn::default() }
    }

    #[test]
    fn turns_and_pauses_are_counted() {
        let stats = of([
            Some(start(0)),
            Some(start(1)),
            Some(next(0, 2)),
            Some(next(0, 4)),
            Some(start(2)),
            None,
            Some(next(1, 9)),
        ]);
        let stats = stats.unwrap();
        // Sessions 0, 1 and 2 of 3, 2 and 1 turns, and a request alone.
        assert_eq!((stats.sessions, stats.followers), (4, 3));
        assert!((stats.one_turn_ratio - 0.5).abs() < 1e-12);
        assert_eq!((stats.turns.total, stats.turns.min, stats.turns.max), (7, 1, 3));
        assert!((stats.turns.mean - 1.75).abs() < 1e-12);
        // Turns 1, 1, 2, 3: rank 1.5 of 0..3.
        assert!((stats.turns.p50 - 1.5).abs() < 1e-12);
        let pauses = stats.pause_s.unwrap();
        // 2, 4 and 9 s: rank 1.8 of 0..2 lies between 4 and 9.
        for (found, expected) in [
            (pauses.mean, 5.0),
            (pauses.min, 2.0),
            (pauses.p50, 4.0),
            (pauses.p90, 8.0),
            (pauses.max, 9.0),
        ] {
            assert!((found - expected).abs() < 1e-12, "{pauses:?}");
        }
    }

    #[test]
    fn calls_that_wait_for_each_other_are_one_session() {
        // 1 waits for 3, which comes later; 2 and 4 wait for 9, which never comes.
        let turns = [call(1, &[3]), call(2, &[9]), call(3, &[]), call(4, &[9])];
        let stats = of(turns).unwrap();
        assert_eq!((stats.sessions, stats.followers), (3, 3));
        assert_eq!(stats.turns.max, 2);
    }

    #[test]
    fn without_ties_there_are_no_sessions() {
        assert_eq!(of([None, None]), None);
        let only_starts = of([start(0)]).unwrap();
        assert_eq!((only_starts.sessions, only_starts.pause_s), (1, None));
    }
}
