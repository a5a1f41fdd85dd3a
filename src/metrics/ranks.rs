//! What the requests around a percentile of the TTFT are made of, and which requests took longest.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::record::{RequestRecord, TtftParts};
use crate::base::time::SimDuration;

/// Requests whose parts are kept; of more, every second, fourth, ... is.
const KEPT_MAX: usize = 1_000_000;

/// Percentiles that are explained, with their names: parts of a thousand.
pub(crate) const EXPLAINED: [(u64, &str); 6] =
    [(500, "p50"), (750, "p75"), (900, "p90"), (950, "p95"), (990, "p99"), (999, "p99.9")];

/// Names of the parts, in the order of their times.
pub(crate) const PARTS: [&str; 6] =
    ["frontend", "queueing", "prefill", "chunk wait", "recompute", "detokenize"];

/// The parts of a TTFT in the order of [`PARTS`], in nanoseconds.
pub(crate) fn parts_of(ttft: &TtftParts) -> [u64; PARTS.len()] {
    let parts = [
        ttft.frontend,
        ttft.queueing,
        ttft.prefill,
        ttft.chunk_wait,
        ttft.recompute,
        ttft.detokenize,
    ];
    parts.map(SimDuration::as_ns)
}

/// The mean parts of the requests around a percentile.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Explained {
    /// `p99`.
    pub(crate) name: &'static str,
    /// Requests that the means are over.
    pub(crate) requests: usize,
    /// By [`PARTS`], in ms.
    pub(crate) parts_ms: [f64; PARTS.len()],
}

/// The parts of every TTFT, or of so many that they say as much.
#[derive(Clone, Debug)]
pub(crate) struct Breakdowns {
    /// Every so many-th request is kept.
    stride: u64,
    seen: u64,
    kept: Vec<[u64; PARTS.len()]>,
    kept_max: usize,
}

impl Default for Breakdowns {
    fn default() -> Self {
        Self { stride: 1, seen: 0, kept: Vec::new(), kept_max: KEPT_MAX }
    }
}

impl Breakdowns {
    /// One more request.
    pub(crate) fn add(&mut self, record: &RequestRecord) {
        if self.seen.is_multiple_of(self.stride) {
            if self.kept.len() == self.kept_max {
                let mut number = 0;
                self.kept.retain(|_| {
                    number += 1;
                    number % 2 == 1
                });
                self.stride *= 2;
            }
            if self.seen.is_multiple_of(self.stride) {
                self.kept.push(parts_of(&record.ttft));
            }
        }
        self.seen += 1;
    }

    /// What each of [`EXPLAINED`] is made of: the means over a hundredth of the requests, half of them on either
    /// side of its rank, but not more than there are above it; at least one. Empty where there are none.
    pub(crate) fn explain(mut self) -> Vec<Explained> {
        let Some(last) = self.kept.len().checked_sub(1) else { return Vec::new() };
        self.kept.sort_unstable_by_key(|parts| (parts.iter().sum::<u64>(), *parts));
        let explain = |(per_mille, name): (u64, &'static str)| {
            let rank = (last as u128 * u128::from(per_mille) + 500) / 1000;
            let rank = rank as usize;
            let reach = (self.kept.len() / 200).min(last - rank).min(rank);
            let around = &self.kept[rank - reach..=rank + reach];
            let mean = |part: usize| {
                let sum: u128 = around.iter().map(|parts| u128::from(parts[part])).sum();
                sum as f64 / around.len() as f64 / 1e6
            };
            Explained { name, requests: around.len(), parts_ms: std::array::from_fn(mean) }
        };
        EXPLAINED.map(explain).to_vec()
    }
}

/// The requests that took longest, the longest first; equal ones by their place in the workload.
#[derive(Clone, Debug)]
pub(crate) struct Slowest {
    most: usize,
    requests: BTreeMap<(Reverse<SimDuration>, u32), RequestRecord>,
}

impl Slowest {
    /// The `most` slowest.
    pub(crate) const fn new(most: usize) -> Self {
        Self { most, requests: BTreeMap::new() }
    }

    /// One more request, which took `time`.
    pub(crate) fn add(&mut self, time: SimDuration, record: &RequestRecord) {
        let key = (Reverse(time), record.id.0);
        let is_faster = |last: &(Reverse<SimDuration>, u32)| *last < key;
        if self.requests.len() == self.most
            && self.requests.last_key_value().is_none_or(|(last, _)| is_faster(last))
        {
            return;
        }
        self.requests.insert(key, record.clone());
        if self.requests.len() > self.most {
            self.requests.pop_last();
        }
    }

    /// Them, in order.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &RequestRecord> {
        self.requests.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{EngineId, RequestId};
    use crate::base::record::RequestRounds;
    use crate::base::time::SimTime;
    use crate::metrics::record::Finish;

    const MS: u64 = 1_000_000;

    /// Queues so long, and computes for 5 ms.
    fn record(id: u32, queue_ms: u64) -> RequestRecord {
        let at = |ms: u64| SimTime::from_ns(ms * MS);
        let lasting = |ms: u64| SimDuration::from_ns(ms * MS);
        RequestRecord {
            id: RequestId(id),
            line: 0,
            engine: EngineId(0),
            arrival: at(0),
            first_scheduled: at(queue_ms),
            first_token: at(queue_ms + 5),
            last_token: at(queue_ms + 5),
            prompt_tokens: 10,
            output_tokens: 1,
            cached_tokens: 0,
            preemptions: 0,
            ttft: TtftParts {
                queueing: lasting(queue_ms),
                prefill: lasting(5),
                ..TtftParts::default()
            },
            finish: Finish::Stop,
            priority: 0,
            class: 0,
            rounds: RequestRounds::default(),
        }
    }

    #[test]
    fn a_percentile_is_explained_by_its_neighbours() {
        let mut all = Breakdowns::default();
        // Queueing of 0 to 1000 ms, one of each.
        (0..=1000).rev().for_each(|n| all.add(&record(n, u64::from(n))));
        let explained = all.explain();
        // Five to either side of rank 500: the mean is its own. One above rank 999.
        let [p50, .., p999] = &explained[..] else { panic!("there are six") };
        assert_eq!((p50.name, p50.requests, p50.parts_ms[1]), ("p50", 11, 500.0));
        assert_eq!((p999.name, p999.requests, p999.parts_ms[1]), ("p99.9", 3, 999.0));
        assert!(explained.iter().all(|e| (e.parts_ms[2] - 5.0).abs() < 1e-12));
        assert!(Breakdowns::default().explain().is_empty());
    }

    #[test]
    fn of_too_many_every_second_is_kept() {
        let mut all = Breakdowns { kept_max: 4, ..Breakdowns::default() };
        (0..9).for_each(|n| all.add(&record(n, u64::from(n))));
        // After 4: 0 and 2, from then on 4 and 6; after these 0 and 4, then 8.
        let queueing: Vec<_> = all.kept.iter().map(|parts| parts[1] / MS).collect();
        assert_eq!(queueing, [0, 4, 8]);
    }

    #[test]
    fn the_slowest_come_first() {
        let mut slowest = Slowest::new(3);
        for (id, queue_ms) in [(0, 5), (1, 50), (2, 5), (3, 7), (4, 70)] {
            let record = record(id, queue_ms);
            slowest.add(record.ttft(), &record);
        }
        assert_eq!(slowest.requests().map(|r| r.id.0).collect::<Vec<_>>(), [4, 1, 3]);
        let equal = record(2, 7);
        slowest.add(equal.ttft(), &equal);
        assert_eq!(slowest.requests().map(|r| r.id.0).collect::<Vec<_>>(), [4, 1, 2]);
    }
}
