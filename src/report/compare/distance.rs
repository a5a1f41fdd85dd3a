//! How far two distributions are apart.

use serde::Serialize;

use crate::report::results::distribution::{Distribution, Knot};

/// Distances of two distributions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Distance {
    /// Kolmogorov and Smirnov's: the most by which the shares of what does not exceed a value differ; 0 to 1.
    pub(crate) ks: f64,
    /// Wasserstein's of order 1: by how much values must be shifted on average to turn one into the other.
    pub(crate) w1_ms: f64,
}

/// The distances of two distributions: O(n log n) in their values.
///
/// Both distribution functions are linear between the values at which either bends or jumps, so that their largest
/// difference is a limit at one of these values, and the area between them a sum over the stretches between.
pub(crate) fn distance(a: &Distribution, b: &Distribution) -> Distance {
    let (a, b) = (a.knots(), b.knots());
    let mut values: Vec<f64> = a.iter().chain(&b).map(|knot| knot.value).collect();
    values.sort_by(f64::total_cmp);
    values.dedup_by(|next, kept| next.total_cmp(kept).is_eq());
    let (mut walk_a, mut walk_b) = (Walk::new(&a), Walk::new(&b));
    let (mut ks, mut area) = (0.0_f64, 0.0);
    let mut before: Option<(f64, f64)> = None;
    for value in values {
        let (a, b) = (walk_a.to(value), walk_b.to(value));
        let (left, right) = (a.0 - b.0, a.1 - b.1);
        if let Some((at, difference)) = before {
            area += (value - at) * mean_magnitude(difference, left);
        }
        ks = ks.max(left.abs()).max(right.abs());
        before = Some((value, right));
    }
    Distance { ks, w1_ms: area }
}

/// The mean of |x| where x goes evenly from one value to the other.
fn mean_magnitude(from: f64, to: f64) -> f64 {
    if from * to >= 0.0 {
        return f64::midpoint(from, to).abs();
    }
    // Two triangles, as wide as they are high.
    (from * from + to * to) / (2.0 * (from.abs() + to.abs()))
}

/// Goes along a distribution function.
struct Walk<'a> {
    knots: &'a [Knot],
    /// Knots that lie behind.
    passed: usize,
}

impl<'a> Walk<'a> {
    const fn new(knots: &'a [Knot]) -> Self {
        Self { knots, passed: 0 }
    }

    /// Shares of what is less than `value`, and of what is no more; values are asked for in rising order.
    fn to(&mut self, value: f64) -> (f64, f64) {
        let next = self.knots.get(self.passed);
        if let Some(knot) = next.filter(|knot| knot.value.total_cmp(&value).is_le()) {
            self.passed += 1;
            return (knot.less, knot.no_more);
        }
        let last = self.passed.checked_sub(1).map(|at| self.knots[at]);
        let share = match (last, next) {
            (None, _) => 0.0,
            (Some(_), None) => 1.0,
            (Some(last), Some(next)) => {
                let part = (value - last.value) / (next.value - last.value);
                last.no_more + (next.less - last.no_more) * part
            }
        };
        (share, share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Distribution {
        Distribution::samples(values.iter().map(|&value| (value, 1)).collect()).unwrap()
    }

    #[track_caller]
    fn assert_distance(a: &Distribution, b: &Distribution, ks: f64, w1_ms: f64) {
        for (a, b) in [(a, b), (b, a)] {
            let found = distance(a, b);
            assert!((found.ks - ks).abs() < 1e-12, "{found:?}");
            assert!((found.w1_ms - w1_ms).abs() < 1e-12, "{found:?}");
        }
    }

    #[test]
    fn samples_of_unlike_size() {
        // F_A: 1/2 from 1, 1 from 3. F_B: 1/4 from 1, 1/2 from 2, 1 from 4.
        // Differences: 1/4 on [1, 2), 0 on [2, 3), 1/2 on [3, 4).
        assert_distance(&samples(&[1.0, 3.0]), &samples(&[1.0, 2.0, 4.0, 4.0]), 0.5, 0.75);
    }

    #[test]
    fn a_shift_moves_every_value() {
        let a = [1.0, 5.0, 7.0];
        assert_distance(&samples(&a), &samples(&a.map(|value| value + 0.5)), 1.0 / 3.0, 0.5);
        assert_distance(&samples(&a), &samples(&a.map(|value| value + 10.0)), 1.0, 10.0);
        assert_distance(&samples(&a), &samples(&a), 0.0, 0.0);
    }

    #[test]
    fn lines_may_cross_between_their_points() {
        // Even on [0, 4] and on [1, 3]: F_A = x/4, F_B = (x-1)/2. They differ by 1/4 at 1 and at 3, cross at 2; the area
        // is four triangles, each 1 wide and 1/4 high.
        let even = |from, to| Distribution::points(vec![(0.0, from), (1.0, to)]).unwrap();
        assert_distance(&even(0.0, 4.0), &even(1.0, 3.0), 0.25, 0.5);
        // Even on [0, 2] against always 1: they differ by 1/2 on either side of 1; two triangles, 1 wide, 1/2 high.
        assert_distance(&even(0.0, 2.0), &samples(&[1.0]), 0.5, 0.5);
    }
}
