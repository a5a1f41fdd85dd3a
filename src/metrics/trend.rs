//! Whether the queue still grows while requests arrive: then percentiles depend on the length of the run.
//!
//! The level is the number of requests that have arrived and that no pass has scheduled yet. Of each
//! bin of time only the number of requests that joined and left is kept, and the sum of these instants:
//! that gives the exact area under the level at every edge of a bin, whatever the order of the news.

use serde::{Deserialize, Serialize};

use crate::base::time::{SimDuration, SimTime};

/// Bins that are kept; their width doubles when the run outgrows them.
const BINS: usize = 1024;

/// Width of the bins at first: about a millisecond, in nanoseconds.
const FIRST_WIDTH_NS: u64 = 1 << 20;

/// Parts of the window whose mean levels the line is laid through.
const BATCHES: usize = 20;

/// Batches over which deviations from the line are taken to hang together.
const LAGS: usize = 2;

/// The 97.5th percentile of Student's t with `BATCHES - 2` degrees of freedom.
const T_QUANTILE: f64 = 2.101;

/// Who joined and left in a bin of time.
#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    /// Requests that joined, less those that left.
    joined: i64,
    /// The sum of the instants at which they did, likewise, in nanoseconds.
    instants: i128,
}

/// The queue of a run over time.
#[derive(Clone, Debug)]
pub(super) struct QueueLevel {
    bins: Vec<Bin>,
    width_ns: u64,
}

impl Default for QueueLevel {
    fn default() -> Self {
        Self { bins: vec![Bin::default(); BINS], width_ns: FIRST_WIDTH_NS }
    }
}

impl QueueLevel {
    /// A request joined the queue and left it again; without `left` it never did.
    pub(super) fn waited(&mut self, joined: SimTime, left: Option<SimTime>) {
        self.note(joined, 1);
        if let Some(left) = left {
            self.note(left, -1);
        }
    }

    fn note(&mut self, at: SimTime, joined: i64) {
        let at = at.as_ns();
        while at / self.width_ns >= BINS as u64 {
            self.halve();
        }
        // The quotient is below `BINS`.
        let bin = &mut self.bins[(at / self.width_ns) as usize];
        bin.joined += joined;
        bin.instants += i128::from(joined) * i128::from(at);
    }

    /// Makes one bin of two.
    fn halve(&mut self) {
        for at in 0..BINS / 2 {
            let [a, b] = [self.bins[2 * at], self.bins[2 * at + 1]];
            self.bins[at] = Bin { joined: a.joined + b.joined, instants: a.instants + b.instants };
        }
        self.bins[BINS / 2..].fill(Bin::default());
        self.width_ns *= 2;
    }

    /// The trend over a window of time; `None` if the window is too short for one.
    ///
    /// A least-squares line through the mean levels of [`BATCHES`] parts of the window. The deviations of
    /// neighbouring parts hang together, so the variance of the slope is that of Newey and West (1987) with
    /// Bartlett weights over [`LAGS`] neighbours.
    pub(super) fn trend(&self, from: SimTime, to: SimTime) -> Option<QueueTrend> {
        let first = from.as_ns().div_ceil(self.width_ns) as usize;
        let end = ((to.as_ns() / self.width_ns) as usize).min(BINS);
        let bins = end.checked_sub(first).filter(|&bins| bins >= BATCHES)?;
        let edges = self.areas();
        let edge = |batch: usize| first + bins * batch / BATCHES;
        let seconds = |edge: usize| edge as f64 * self.width_ns as f64 / 1e9;
        let levels: Vec<(f64, f64)> = (0..BATCHES)
            .map(|batch| {
                let (a, b) = (edge(batch), edge(batch + 1));
                let area = (edges[b] - edges[a]) as f64 / 1e9;
                (f64::midpoint(seconds(a), seconds(b)), area / (seconds(b) - seconds(a)))
            })
            .collect();
        let [middle_s, waiting_mean] = [0, 1].map(|part| {
            let values = levels.iter().map(|&(s, level)| if part == 0 { s } else { level });
            values.sum::<f64>() / BATCHES as f64
        });
        let spread: f64 = levels.iter().map(|(s, _)| (s - middle_s).powi(2)).sum();
        let slope = levels.iter().map(|(s, level)| (s - middle_s) * (level - waiting_mean));
        let slope_per_s = slope.sum::<f64>() / spread;
        let pulls: Vec<f64> = levels
            .iter()
            .map(|(s, level)| {
                let line = waiting_mean + slope_per_s * (s - middle_s);
                (s - middle_s) * (level - line)
            })
            .collect();
        let at_lag =
            |lag: usize| -> f64 { pulls.iter().zip(&pulls[lag..]).map(|(a, b)| a * b).sum() };
        let weighted = (1..=LAGS).map(|lag| {
            let weight = 1.0 - lag as f64 / (LAGS + 1) as f64;
            2.0 * weight * at_lag(lag)
        });
        let variance = (at_lag(0) + weighted.sum::<f64>()).max(0.0) / spread.powi(2);
        // Two degrees of freedom went into the line.
        let correction = BATCHES as f64 / (BATCHES - 2) as f64;
        let margin = T_QUANTILE * (variance * correction).sqrt();
        let span_s = seconds(end) - seconds(first);
        Some(QueueTrend {
            from_ms: seconds(first) * 1e3,
            to_ms: seconds(end) * 1e3,
            waiting_mean,
            slope_per_s,
            slope_low_per_s: slope_per_s - margin,
            slope_high_per_s: slope_per_s + margin,
            growth: slope_per_s * span_s,
        })
    }

    /// Requests times nanoseconds from the start to each edge of a bin: with N requests in the queue at an edge
    /// t, and S the sum of the instants at which they joined, N t - S.
    fn areas(&self) -> Vec<i128> {
        let (mut joined, mut instants) = (0_i128, 0_i128);
        let mut areas = vec![0];
        for (edge, bin) in (1..).zip(&self.bins) {
            joined += i128::from(bin.joined);
            instants += bin.instants;
            areas.push(joined * edge * i128::from(self.width_ns) - instants);
        }
        areas
    }
}

/// How the number of requests that wait for their first pass changed while counted requests arrived.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct QueueTrend {
    /// Start of the window: the first arrival of a counted request, or soon after.
    pub(crate) from_ms: f64,
    /// Its end: the last of these arrivals, or shortly before.
    pub(crate) to_ms: f64,
    /// Requests that waited, on average over the window.
    pub(crate) waiting_mean: f64,
    /// How many more, each second.
    pub(crate) slope_per_s: f64,
    /// Lower end of its 95 % confidence interval.
    pub(crate) slope_low_per_s: f64,
    /// Upper end of it.
    pub(crate) slope_high_per_s: f64,
    /// How many more over the window.
    pub(crate) growth: f64,
}

impl QueueTrend {
    /// Whether the queue grew without doubt, and by enough to matter: by a request or more, and by at least half
    /// of what waited on average. (A queue that grows evenly from nothing grows by twice its average.)
    pub(crate) fn is_growing(&self) -> bool {
        let least = self.growth * self.slope_low_per_s / self.slope_per_s.max(f64::MIN_POSITIVE);
        self.slope_low_per_s > 0.0 && least >= (0.5 * self.waiting_mean).max(1.0)
    }

    /// How long the window is.
    pub(crate) const fn span(&self) -> f64 {
        (self.to_ms - self.from_ms) / 1e3
    }
}

/// Of arrivals that are counted, the first and the last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrivals(Option<(SimTime, SimTime)>);

impl Arrivals {
    pub(super) fn note(&mut self, arrival: SimTime) {
        let (first, last) = self.0.unwrap_or((arrival, arrival));
        self.0 = Some((first.min(arrival), last.max(arrival)));
    }

    pub(super) fn first(self) -> Option<SimTime> {
        self.0.map(|(first, _)| first)
    }

    /// The trend between them.
    pub(super) fn trend(self, queue: &QueueLevel) -> Option<QueueTrend> {
        let (first, last) = self.0?;
        queue.trend(first, last).filter(|_| last.since(first) > SimDuration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> SimTime {
        SimTime::from_ns(ms * 1_000_000)
    }

    /// Arrivals every 100 ms for 100 s, each of which waits for `wait_ms` of its number.
    fn queue(wait_ms: impl Fn(u64) -> u64) -> QueueTrend {
        let mut queue = QueueLevel::default();
        let mut arrivals = Arrivals::default();
        for n in 0..1000 {
            arrivals.note(ms(n * 100));
            queue.waited(ms(n * 100), Some(ms(n * 100 + wait_ms(n))));
        }
        arrivals.trend(&queue).unwrap()
    }

    #[test]
    fn a_queue_served_at_half_the_rate_grows_by_half_of_what_arrives() {
        // One leaves every 200 ms: request n waits n * 100 ms, so at t half of the 10 t that came are gone.
        let trend = queue(|n| n * 100);
        assert!((trend.slope_per_s - 5.0).abs() < 0.01, "{trend:?}");
        assert!(trend.slope_low_per_s > 4.9 && trend.slope_high_per_s < 5.1, "{trend:?}");
        // From nothing to 500, 250 on average.
        assert!((trend.growth - 500.0).abs() < 5.0 && (trend.waiting_mean - 250.0).abs() < 2.0);
        assert!(trend.is_growing());
    }

    #[test]
    fn a_queue_that_holds_its_length_does_not_grow() {
        // Everybody waits 2 s: 20 requests, from the third second on.
        let trend = queue(|_| 2000);
        assert!((trend.waiting_mean - 19.8).abs() < 0.3, "{trend:?}");
        assert!(!trend.is_growing(), "{trend:?}");
        // Bursts: of each 50 requests the first wait longest.
        assert!(!queue(|n| (50 - n % 50) * 100).is_growing());
        // Nobody waits at all.
        assert!(!queue(|_| 0).is_growing());
    }

    #[test]
    fn areas_are_exact_after_the_bins_have_grown() {
        let mut queue = QueueLevel::default();
        queue.waited(ms(1), Some(ms(3)));
        queue.waited(ms(5_000_000), None);
        let width = queue.width_ns;
        assert!(width > FIRST_WIDTH_NS);
        let areas = queue.areas();
        // 2 ms of one request, in the first bin.
        assert_eq!(areas[1], 2_000_000);
        let last = i128::from(width) * BINS as i128 - 5_000_000_000_000;
        assert_eq!(areas[BINS], 2_000_000 + last);
    }

    #[test]
    fn a_burst_has_no_trend() {
        let mut queue = QueueLevel::default();
        queue.waited(ms(7), Some(ms(70_000)));
        assert_eq!(queue.trend(ms(7), ms(7)), None);
        assert_eq!(Arrivals::default().trend(&queue).map(|trend| trend.growth), None);
    }
}
