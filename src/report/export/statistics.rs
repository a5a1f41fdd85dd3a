//! The figures that measuring tools make of a sample, each by the rule of the tool.

/// A sorted sample; each value counts as often as its weight says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sample {
    /// Ascending; weights are at least 1.
    pairs: Vec<(f64, u64)>,
    /// The sum of the weights.
    count: u64,
}

impl Sample {
    /// Each value counts once. O(n log n).
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        Self::weighted(values.into_iter().map(|value| (value, 1)))
    }

    /// Each value counts as often as the number beside it; 0 leaves it out. O(n log n).
    pub(super) fn weighted(pairs: impl IntoIterator<Item = (f64, u64)>) -> Self {
        let mut pairs: Vec<_> = pairs.into_iter().filter(|&(_, weight)| weight > 0).collect();
        pairs.sort_by(|one, other| one.0.total_cmp(&other.0));
        let count = pairs.iter().map(|pair| pair.1).sum();
        Self { pairs, count }
    }

    /// The sum of the weights.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn min(&self) -> Option<f64> {
        self.pairs.first().map(|pair| pair.0)
    }

    pub(super) fn max(&self) -> Option<f64> {
        self.pairs.last().map(|pair| pair.0)
    }

    /// The sum of the values, each times its weight.
    pub(super) fn sum(&self) -> f64 {
        self.pairs.iter().map(|&(value, weight)| value * weight as f64).sum()
    }

    pub(super) fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum() / self.count as f64)
    }

    /// Mean squared distance from the mean: of a population, not of a sample of one.
    pub(super) fn variance(&self) -> Option<f64> {
        let mean = self.mean()?;
        let squares =
            self.pairs.iter().map(|&(value, weight)| (value - mean).powi(2) * weight as f64);
        Some(squares.sum::<f64>() / self.count as f64)
    }

    /// The root of [`Self::variance`].
    pub(super) fn std(&self) -> Option<f64> {
        self.variance().map(f64::sqrt)
    }

    /// The value of the largest weight; of several the least.
    pub(super) fn mode(&self) -> Option<f64> {
        let mut best: Option<(f64, u64)> = None;
        for equal in self.pairs.chunk_by(|one, other| one.0.total_cmp(&other.0).is_eq()) {
            let weight = equal.iter().map(|pair| pair.1).sum();
            if best.is_none_or(|(_, most)| weight > most) {
                best = Some((equal[0].0, weight));
            }
        }
        best.map(|(value, _)| value)
    }

    /// The percentile as numpy has it by default: on the straight line between the values at the ranks around
    /// `(count - 1) * percent / 100`. O(n).
    pub(super) fn linear(&self, percent: f64) -> Option<f64> {
        let rank = self.count.checked_sub(1)? as f64 * percent / 100.0;
        let (below, above) = (self.at(rank.floor() as u64)?, self.at(rank.ceil() as u64)?);
        Some((above - below).mul_add(rank - rank.floor(), below))
    }

    /// The percentile as a nearest rank: the least value at which the cumulated weight reaches that many thousandths
    /// of all. O(n).
    pub(super) fn nearest_rank(&self, per_mille: u32) -> Option<f64> {
        let needed = (u128::from(self.count) * u128::from(per_mille)).div_ceil(1000);
        self.at(u64::try_from(needed).ok()?.saturating_sub(1))
    }

    /// The value at `rank`, counted from 0.
    fn at(&self, rank: u64) -> Option<f64> {
        let mut below = 0;
        let reaches = |&&(_, weight): &&(f64, u64)| {
            below += weight;
            rank < below
        };
        self.pairs.iter().find(reaches).map(|pair| pair.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_near(found: Option<f64>, expected: f64) {
        let found = found.unwrap();
        assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
    }

    /// The ranks of p50 and p90 of four values are 1.5 and 2.7: half of the way from 20 to 30, and 0.7 of that from
    /// 30 to 70.
    #[test]
    fn linear_lies_between_the_values_around_its_rank() {
        let sample = Sample::of([70.0, 10.0, 30.0, 20.0]);
        assert_near(sample.linear(50.0), 25.0);
        assert_near(sample.linear(90.0), 58.0);
        assert_near(sample.linear(0.0), 10.0);
        assert_near(sample.linear(100.0), 70.0);
    }

    /// 10 ten times and 30 thrice are 13 values; rank 0.9 * 12 = 10.8 lies among those of 30, rank 9.6 (p80) between
    /// the last 10 and the first 30: 10 + 0.6 * 20 = 22.
    #[test]
    fn a_weight_is_so_many_equal_values() {
        let sample = Sample::weighted([(30.0, 3), (10.0, 10), (99.0, 0)]);
        assert_eq!(sample.count(), 13);
        assert_near(sample.linear(90.0), 30.0);
        assert_near(sample.linear(80.0), 22.0);
        // 10/13 = 76.92 %: p76.9 is still within the tens.
        assert_near(sample.nearest_rank(769), 10.0);
        assert_near(sample.nearest_rank(770), 30.0);
        assert_near(sample.mode(), 10.0);
    }

    /// Of four values a nearest rank is 1, 2, 3 or 4: up to 25 %, 50 %, 75 %, 100 %.
    #[test]
    fn a_nearest_rank_is_one_of_the_values() {
        let sample = Sample::of([10.0, 20.0, 30.0, 70.0]);
        let expected = [(1, 10.0), (250, 10.0), (251, 20.0), (500, 20.0), (501, 30.0), (999, 70.0)];
        for (per_mille, value) in expected {
            assert_near(sample.nearest_rank(per_mille), value);
        }
    }

    /// The mean of 2, 4, 4, 4, 5, 5, 7, 9 is 5; the squares of their distances add up to 32, over 8 is 4.
    #[test]
    fn the_deviation_is_that_of_a_population() {
        let sample = Sample::of([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_near(sample.mean(), 5.0);
        assert_near(sample.std(), 2.0);
        assert_near(sample.mode(), 4.0);
        assert_near(Some(sample.sum()), 40.0);
    }

    #[test]
    fn nothing_has_no_figures() {
        let sample = Sample::of([]);
        let figures = [
            sample.mean(),
            sample.std(),
            sample.mode(),
            sample.linear(50.0),
            sample.nearest_rank(500),
        ];
        assert_eq!(figures, [None; 5]);
    }
}
