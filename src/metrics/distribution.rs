//! A sample as a curve and as bars, with as many points as a picture can show.

use crate::base::time::SimDuration;

/// How many times the median the largest value is where an even axis would be empty for the most part.
const LONG_TAIL: u64 = 10;

/// Sorted values in nanoseconds, each with how often it occurred.
#[derive(Clone, Debug)]
pub(crate) struct Distribution {
    pairs: Vec<(u64, u64)>,
    count: u64,
}

/// How many values lie in each of a row of intervals.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Bars {
    /// Where the intervals begin, in ms, and where the last ends: one more than `counts`. All but
    /// the last interval leave their end out.
    pub(crate) edges_ms: Vec<f64>,
    pub(crate) counts: Vec<u64>,
}

impl Distribution {
    /// Of pairs sorted by value.
    pub(super) fn of(pairs: Vec<(u64, u64)>) -> Self {
        let count = pairs.iter().map(|pair| pair.1).sum();
        Self { pairs, count }
    }

    /// Whether the largest value lies so far from the median that an axis should go by powers. Where more than a
    /// twentieth of the values is 0, which no power is, it should not.
    pub(crate) fn is_wide(&self) -> bool {
        let median = self.value_at(self.count / 2).unwrap_or(0);
        let has_place = self.value_at(self.count / 20).is_some_and(|value| value > 0);
        has_place && self.pairs.last().is_some_and(|last| last.0 / LONG_TAIL > median)
    }

    /// The value of this rank, from 0.
    fn value_at(&self, rank: u64) -> Option<u64> {
        let mut up_to = 0;
        let pair = self.pairs.iter().find(|pair| {
            up_to += pair.1;
            up_to > rank
        });
        pair.map(|pair| pair.0)
    }

    /// The smallest value above 0, in ms.
    pub(crate) fn positive_min_ms(&self) -> Option<f64> {
        let least = self.pairs.iter().find(|pair| pair.0 > 0)?;
        Some(SimDuration::from_ns(least.0).as_ms())
    }

    /// Values in ms, rising, each with the part of all values that are at most it; at most
    /// `points_max` (at least 16) of them, the extremes among them. The points lie evenly over the
    /// ranks, and closer and closer from the last of these on, so that a tail keeps its shape.
    pub(crate) fn cumulative(&self, points_max: usize) -> Vec<(f64, f64)> {
        let even = (points_max * 3 / 4) as u64;
        let Some(last) = self.pairs.len().checked_sub(1) else { return Vec::new() };
        let mut next = 0;
        let mut up_to = 0;
        let mut points = Vec::new();
        for (at, &(value, count)) in self.pairs.iter().enumerate() {
            up_to += count;
            let is_due = up_to > next && points.len() + 1 < points_max;
            if !(is_due || at == last || self.pairs.len() <= points_max) {
                continue;
            }
            let part = up_to as f64 / self.count as f64;
            points.push((SimDuration::from_ns(value).as_ms(), part));
            let step = (self.count / even).max(1);
            next = up_to + step.min((self.count - up_to) / 4) - u64::from(step == 1);
        }
        points
    }

    /// `bars` (at least 1) intervals from the smallest to the largest value: of equal length, or of
    /// equal ratio where values [differ much](Self::is_wide); then 0 lies in the first of them.
    pub(crate) fn bars(&self, bars: usize) -> Bars {
        let (Some(first), Some(last)) = (self.pairs.first(), self.pairs.last()) else {
            return Bars::default();
        };
        let by_powers = self.is_wide();
        let positive = self.pairs.iter().find(|pair| pair.0 > 0).map_or(1, |pair| pair.0);
        let (from, to) = if by_powers { (positive, last.0) } else { (first.0, last.0) };
        // One value alone has an interval around it.
        let to = if to > from { to } else { from + (from / 50).max(1000) };
        let edge = |number: usize| {
            let part = number as f64 / bars as f64;
            if by_powers {
                from as f64 * libm::pow(to as f64 / from as f64, part)
            } else {
                (to - from) as f64 * part + from as f64
            }
        };
        let mut counts = vec![0; bars];
        let mut bar = 0;
        for &(value, count) in &self.pairs {
            while bar + 1 < bars && value as f64 >= edge(bar + 1) {
                bar += 1;
            }
            counts[bar] += count;
        }
        Bars { edges_ms: (0..=bars).map(|number| edge(number) / 1e6).collect(), counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn of(values_ms: &[(u64, u64)]) -> Distribution {
        Distribution::of(values_ms.iter().map(|&(value, count)| (value * MS, count)).collect())
    }

    #[test]
    fn few_values_are_all_there() {
        // 2 of 10 are at most 1 ms, 9 at most 3 ms.
        let points = of(&[(1, 2), (3, 7), (8, 1)]).cumulative(16);
        assert_eq!(points, [(1.0, 0.2), (3.0, 0.9), (8.0, 1.0)]);
        assert!(of(&[]).cumulative(16).is_empty());
    }

    #[test]
    fn many_values_keep_their_extremes_and_their_tail() {
        let pairs: Vec<_> = (1..=100_000).map(|value| (value, 1)).collect();
        let points = of(&pairs).cumulative(200);
        assert!(points.len() <= 200 && points.len() > 100, "{}", points.len());
        assert_eq!((points[0].0, points.last().unwrap()), (1.0, &(100_000.0, 1.0)));
        // Each says how many values are at most it, which here is the value.
        for &(value, part) in &points {
            assert!((part - value / 100_000.0).abs() < 1e-12);
        }
        assert!(points.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1));
        // A part of 1 / 150 between points, and less in the tail: p99.9 has points close by.
        assert!(points.windows(2).all(|two| two[1].1 - two[0].1 < 0.01));
        assert!(points.iter().filter(|point| point.1 > 0.999).count() > 10);
    }

    #[test]
    fn bars_hold_every_value_once() {
        // 0..100 in ten intervals of 10 ms: the last takes its end in.
        let pairs: Vec<_> = (0..=100).map(|value| (value, 2)).collect();
        let bars = of(&pairs[..]).bars(10);
        assert_eq!((bars.edges_ms[0], bars.edges_ms[10]), (0.0, 100.0));
        assert_eq!(bars.counts, [20, 20, 20, 20, 20, 20, 20, 20, 20, 22]);
    }

    #[test]
    fn wide_values_go_by_powers() {
        let wide = of(&[(0, 1), (1, 20), (10, 1), (100, 1), (1000, 2)]);
        assert!(wide.is_wide() && !of(&[(1, 1), (100, 2), (1000, 1)]).is_wide());
        // 1 to 1000 ms in three: 1 to 10, 10 to 100, 100 to 1000; zeros in the first.
        let bars = wide.bars(3);
        assert_eq!(bars.counts.iter().sum::<u64>(), 25);
        assert_eq!(bars.counts[0], 21);
        // Zeros that are many have to be seen.
        assert!(!of(&[(0, 2), (1, 10), (1000, 1)]).is_wide());
        assert_eq!(wide.positive_min_ms(), Some(1.0));
    }

    #[test]
    fn one_value_has_an_interval() {
        let bars = of(&[(5, 3)]).bars(4);
        assert_eq!(bars.counts, [3, 0, 0, 0]);
        assert!(bars.edges_ms[0] < bars.edges_ms[4]);
        assert_eq!(of(&[]).bars(4), Bars::default());
        assert_eq!(of(&[(0, 3)]).bars(2).counts, [3, 0]);
    }
}
