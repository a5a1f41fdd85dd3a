//! A distribution that a file knows: every value, or points of the quantile function.

use super::model::{Rule, Statistic};

/// Values that are no less than 0 and finite.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Distribution {
    /// Values with their weights, at least 1 each, in rising order; at least one.
    Samples(Vec<(f64, u64)>),
    /// Shares with the value that they do not exceed, both in rising order, from 0 to 1; at least two. Linear between.
    Points(Vec<(f64, f64)>),
}

/// A value at which the distribution function bends or jumps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Knot {
    pub(crate) value: f64,
    /// Share of what is less.
    pub(crate) less: f64,
    /// Share of what is no more.
    pub(crate) no_more: f64,
}

impl Distribution {
    /// Of values with weights, of which those without a weight are left out. `None` if none is left.
    pub(crate) fn samples(mut values: Vec<(f64, u64)>) -> Option<Self> {
        values.retain(|&(_, weight)| weight > 0);
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        (!values.is_empty()).then_some(Self::Samples(values))
    }

    /// Of a quantile function. `None` unless there are two points at least and both rise.
    pub(crate) fn points(points: Vec<(f64, f64)>) -> Option<Self> {
        let rises = points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        (points.len() > 1 && rises).then_some(Self::Points(points))
    }

    /// A statistic; what points do not tell is `None`.
    pub(crate) fn figure(&self, statistic: Statistic, rule: Rule) -> Option<f64> {
        match (self, statistic) {
            (_, Statistic::Value) => None,
            (Self::Samples(values), Statistic::Mean) => Some(mean(values)),
            (Self::Samples(values), Statistic::Std) => {
                let mean = mean(values);
                let total = weight(values) as f64;
                let squares = values.iter().map(|&(v, w)| (v - mean).powi(2) * w as f64);
                Some((squares.sum::<f64>() / total).sqrt())
            }
            (Self::Samples(values), Statistic::Percentile(percent)) => Some(match rule {
                Rule::NearestRank => nearest_rank(values, percent.share()),
                Rule::Linear | Rule::Histogram => linear(values, percent.share()),
            }),
            (Self::Points(points), Statistic::Percentile(percent)) => {
                let point = points.iter().find(|(share, _)| (share - percent.share()).abs() < 1e-9);
                point.map(|&(_, value)| value)
            }
            (Self::Points(_), Statistic::Mean | Statistic::Std) => None,
        }
    }

    /// The distribution function: where it bends or jumps, in rising order, and linear between.
    pub(crate) fn knots(&self) -> Vec<Knot> {
        let mut knots: Vec<Knot> = Vec::new();
        let mut add = |value: f64, less: f64, no_more: f64| match knots.last_mut() {
            Some(last) if last.value.total_cmp(&value).is_eq() => last.no_more = no_more,
            _ => knots.push(Knot { value, less, no_more }),
        };
        match self {
            Self::Samples(values) => {
                let total = weight(values) as f64;
                let mut before = 0;
                for &(value, weight) in values {
                    add(value, before as f64 / total, (before + weight) as f64 / total);
                    before += weight;
                }
            }
            Self::Points(points) => {
                points.iter().for_each(|&(share, value)| add(value, share, share));
            }
        }
        knots
    }
}

fn weight(values: &[(f64, u64)]) -> u64 {
    values.iter().map(|pair| pair.1).sum()
}

fn mean(values: &[(f64, u64)]) -> f64 {
    values.iter().map(|&(value, weight)| value * weight as f64).sum::<f64>() / weight(values) as f64
}

/// The value of the rank, from 0, if each value stood there as often as it weighs.
fn at_rank(values: &[(f64, u64)], rank: u64) -> f64 {
    let mut up_to = 0;
    let found = values.iter().find(|&&(_, weight)| {
        up_to += weight;
        up_to > rank
    });
    found.or(values.last()).map_or(0.0, |pair| pair.0)
}

/// Numpy's default percentile.
fn linear(values: &[(f64, u64)], share: f64) -> f64 {
    let last = weight(values) - 1;
    let position = last as f64 * share;
    let rank = position.floor() as u64;
    let low = at_rank(values, rank);
    let high = at_rank(values, (rank + 1).min(last));
    low + (high - low) * (position - position.floor())
}

/// The least value of which, with all that is less, the weight reaches the share.
fn nearest_rank(values: &[(f64, u64)], share: f64) -> f64 {
    let rank = (weight(values) as f64 * share).ceil() as u64;
    at_rank(values, rank.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::results::model::Percent;

    fn percentile(values: &[(f64, u64)], percent: f64, rule: Rule) -> f64 {
        let distribution = Distribution::samples(values.to_vec()).unwrap();
        distribution.figure(Statistic::Percentile(Percent::of(percent)), rule).unwrap()
    }

    #[track_caller]
    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
    }

    #[test]
    fn percentiles_follow_their_rule() {
        // 1 2 2 2 6 10. Linear: p90 is at rank 4.5, 6 + 0.5 * 4. Nearest: 0.9 * 6 = 5.4, the sixth; p50 is the third.
        let values = [(10.0, 1), (2.0, 3), (6.0, 1), (1.0, 1)];
        near(percentile(&values, 90.0, Rule::Linear), 8.0);
        near(percentile(&values, 90.0, Rule::NearestRank), 10.0);
        near(percentile(&values, 50.0, Rule::NearestRank), 2.0);
        near(percentile(&values, 0.0, Rule::NearestRank), 1.0);
        near(percentile(&values, 100.0, Rule::Linear), 10.0);
    }

    #[test]
    fn weights_count_in_mean_and_std() {
        // 2 2 2 6: mean 3, squares 1 1 1 9, variance 3.
        let distribution = Distribution::samples(vec![(2.0, 3), (6.0, 1), (99.0, 0)]).unwrap();
        near(distribution.figure(Statistic::Mean, Rule::Linear).unwrap(), 3.0);
        near(distribution.figure(Statistic::Std, Rule::Linear).unwrap(), 3.0_f64.sqrt());
    }

    #[test]
    fn knots_join_equal_values() {
        let knot = |value, less, no_more| Knot { value, less, no_more };
        let samples = Distribution::samples(vec![(2.0, 1), (1.0, 1), (2.0, 2)]).unwrap();
        assert_eq!(samples.knots(), [knot(1.0, 0.0, 0.25), knot(2.0, 0.25, 1.0)]);
        let points = Distribution::points(vec![(0.0, 1.0), (0.5, 1.0), (1.0, 3.0)]).unwrap();
        assert_eq!(points.knots(), [knot(1.0, 0.0, 0.5), knot(3.0, 1.0, 1.0)]);
        assert_eq!(Distribution::points(vec![(0.0, 1.0), (1.0, 0.5)]), None);
        assert_eq!(Distribution::samples(Vec::new()), None);
    }

    #[test]
    fn points_tell_their_own_percentiles_only() {
        let points = Distribution::points(vec![(0.0, 1.0), (0.9, 7.0), (1.0, 9.0)]).unwrap();
        let of = |percent| points.figure(Statistic::Percentile(Percent::of(percent)), Rule::Linear);
        assert_eq!((of(90.0), of(50.0)), (Some(7.0), None));
        assert_eq!(points.figure(Statistic::Mean, Rule::Linear), None);
    }
}
