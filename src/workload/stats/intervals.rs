//! The time between arrivals: how much it varies, and whether one interval tells of the next.

use crate::base::time::SimTime;

/// Moments of the intervals, gathered without cancellation (Welford, 1962).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Intervals {
    last: Option<SimTime>,
    last_gap: Option<f64>,
    gaps: Moments,
    /// Of all intervals but the last, and of all but the first.
    before: Moments,
    after: Moments,
    /// Sum of the products of their deviations.
    products: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    n: f64,
    mean: f64,
    /// Sum of squared deviations.
    squares: f64,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.n += 1.0;
        let delta = value - self.mean;
        self.mean += delta / self.n;
        self.squares += delta * (value - self.mean);
    }
}

impl Intervals {
    /// Takes the next arrival in.
    pub(super) fn add(&mut self, arrival: SimTime) {
        let Some(last) = self.last.replace(arrival) else { return };
        let gap = arrival.since(last).as_s();
        self.gaps.add(gap);
        if let Some(last_gap) = self.last_gap.replace(gap) {
            self.before.add(last_gap);
            // By the new mean of the one and the old mean of the other.
            self.products += (last_gap - self.before.mean) * (gap - self.after.mean);
            self.after.add(gap);
        }
    }

    /// Standard deviation over mean; `None` where all requests come at one instant.
    pub(super) fn cv(&self) -> Option<f64> {
        let Moments { n, mean, squares } = self.gaps;
        (mean > 0.0).then(|| (squares / n).sqrt() / mean)
    }

    /// Correlation of each interval with the next; `None` where there are fewer than two pairs or they
    /// do not vary.
    pub(super) fn lag1(&self) -> Option<f64> {
        let scale = (self.before.squares * self.after.squares).sqrt();
        (scale > 0.0).then(|| (self.products / scale).clamp(-1.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intervals(gaps_s: &[u64]) -> Intervals {
        let mut intervals = Intervals::default();
        let mut at = 0;
        intervals.add(SimTime::ZERO);
        for gap in gaps_s {
            at += gap * 1_000_000_000;
            intervals.add(SimTime::from_ns(at));
        }
        intervals
    }

    #[test]
    fn intervals_that_take_turns_are_correlated_by_minus_one() {
        assert_eq!(intervals(&[1, 3, 1, 3, 1]).lag1(), Some(-1.0));
        // Pairs (1, 2), (2, 3), (3, 4) lie on a line.
        assert!((intervals(&[1, 2, 3, 4]).lag1().unwrap() - 1.0).abs() < 1e-12);
        // Pairs (1, 1), (1, 3), (3, 3), (3, 1): deviations -1 -1, -1 1, 1 1, 1 -1; products add up to 0.
        assert!(intervals(&[1, 1, 3, 3, 1]).lag1().unwrap().abs() < 1e-12);
    }

    #[test]
    fn what_does_not_vary_has_no_correlation() {
        assert_eq!(intervals(&[2, 2, 2, 2]).lag1(), None);
        assert_eq!(intervals(&[2, 2, 2, 2]).cv(), Some(0.0));
        assert_eq!(intervals(&[1, 2]).lag1(), None);
        assert_eq!((intervals(&[0, 0]).cv(), intervals(&[]).cv()), (None, None));
    }
}
