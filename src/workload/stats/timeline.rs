//! Sums by time, where nobody knows how long it will take.

use serde::Serialize;

use crate::base::time::SimTime;

/// Bins that there are at most; there are more than a fifth of them once one was not enough.
const BINS_MAX: usize = 200;

/// What arrived when, in bins of equal width from the first arrival on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Timeline {
    /// Start of the first bin.
    pub(crate) from_s: f64,
    /// Width of a bin: 1, 2, 10, 20, 100 nanoseconds and so on.
    pub(crate) bin_s: f64,
    /// Requests that arrive in each bin.
    pub(crate) arrivals: Vec<u64>,
    /// Different prompt tokens up to the end of each bin.
    pub(crate) working_set_tokens: Vec<u64>,
}

/// Gathers a timeline; memory does not grow.
#[derive(Clone, Debug)]
pub(super) struct TimelineCollector {
    first: Option<SimTime>,
    width_ns: u64,
    /// Requests and new prompt tokens by bin.
    bins: Vec<(u64, u64)>,
}

impl TimelineCollector {
    pub(super) const fn new() -> Self {
        Self { first: None, width_ns: 1, bins: Vec::new() }
    }

    /// A request arrives at `arrival`, not before those that were added, and brings so many tokens that
    /// nobody brought before.
    pub(super) fn add(&mut self, arrival: SimTime, new_tokens: u64) {
        let after_ns = arrival.since(*self.first.get_or_insert(arrival)).as_ns();
        while after_ns / self.width_ns >= BINS_MAX as u64 {
            self.widen();
        }
        let bin = (after_ns / self.width_ns) as usize;
        if self.bins.len() <= bin {
            self.bins.resize(bin + 1, (0, 0));
        }
        self.bins[bin].0 += 1;
        self.bins[bin].1 += new_tokens;
    }

    /// The next width is twice this one or five times, so that figures stay round.
    fn widen(&mut self) {
        let leading = self.width_ns / 10_u64.pow(self.width_ns.ilog10());
        let factor = if leading == 1 { 2 } else { 5 };
        self.width_ns *= factor;
        let sum = |bins: &[(u64, u64)]| {
            bins.iter().fold((0, 0), |sum, bin| (sum.0 + bin.0, sum.1 + bin.1))
        };
        self.bins = self.bins.chunks(factor as usize).map(sum).collect();
    }

    pub(super) fn finish(&self) -> Timeline {
        let mut working_set = 0;
        let so_far = |&(_, new): &(u64, u64)| {
            working_set += new;
            working_set
        };
        Timeline {
            from_s: self.first.map_or(0.0, SimTime::as_s),
            bin_s: self.width_ns as f64 / 1e9,
            arrivals: self.bins.iter().map(|&(arrivals, _)| arrivals).collect(),
            working_set_tokens: self.bins.iter().map(so_far).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_widen_with_the_time_and_lose_nothing() {
        let mut timeline = TimelineCollector::new();
        // Every second from 5 s on, for 1000 s; each of the first ten brings a token.
        for s in 0..1000_u64 {
            timeline.add(SimTime::from_ns((5 + s) * 1_000_000_000), u64::from(s < 10));
        }
        let timeline = timeline.finish();
        // 200 bins of 2 s are 400 s; the next width is 10 s.
        assert_eq!((timeline.from_s, timeline.bin_s), (5.0, 10.0));
        assert_eq!(timeline.arrivals, [10; 100]);
        assert_eq!(timeline.working_set_tokens, [10; 100]);
    }

    #[test]
    fn one_instant_is_one_bin_and_silence_is_empty_bins() {
        let mut timeline = TimelineCollector::new();
        timeline.add(SimTime::from_ns(7), 3);
        timeline.add(SimTime::from_ns(7), 4);
        assert_eq!((timeline.finish().arrivals, timeline.finish().bin_s), (vec![2], 1e-9));
        // A hundred years later: bins of 2 x 10^16 ns, of which it fills the last of 158.
        timeline.add(SimTime::LATEST_INPUT, 5);
        let timeline = timeline.finish();
        assert_eq!((timeline.bin_s, timeline.arrivals.len()), (2e7, 158));
        assert_eq!((timeline.arrivals[0], timeline.arrivals[1], timeline.arrivals[157]), (2, 0, 1));
        assert_eq!((timeline.working_set_tokens[156], timeline.working_set_tokens[157]), (7, 12));
        assert!(TimelineCollector::new().finish().arrivals.is_empty());
    }
}
