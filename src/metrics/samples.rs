//! Weighted durations and what a report says about them.
//!
//! A sample keeps every distinct value with its count, so that its percentiles are exact. Past a
//! limit of distinct values it turns into an HDR histogram of three significant digits and stays
//! one. Which of the two it is follows from the recorded values alone, never from the order or
//! the grouping in which they came.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::base::time::SimDuration;

use super::distribution::Distribution;

/// Distinct values a sample keeps before it turns into a histogram: a quarter of a million, 5 MiB.
pub(crate) const EXACT_LIMIT: usize = 1 << 18;

/// Significant decimal digits of the histogram: a bucket is at most 0.1 % wide.
const SIGNIFICANT_DIGITS: u8 = 3;

/// The percentiles of a [`Summary`], in thousandths: p1 to p99.9.
const PER_MILLE: [u64; 10] = [10, 50, 100, 250, 500, 750, 900, 950, 990, 999];

/// A value in nanoseconds and how often it occurred; the count is at least 1.
type Pair = (u64, u64);

/// A growing sample of weighted durations.
#[derive(Clone, Debug)]
pub(crate) struct Samples {
    /// Distinct values that may be kept exactly; at least 1.
    exact_limit: usize,
    /// Pairs at which the buffer is compacted; a quarter above the limit, so that compacting
    /// costs a few nanoseconds a record even if the sample lives at its limit.
    buffer_max: usize,
    store: Store,
}

#[derive(Clone, Debug)]
enum Store {
    /// Pairs in the order they came; a value may occur in several.
    Exact(Vec<Pair>),
    Hdr(Box<Hdr>),
}

impl Samples {
    /// An empty sample that keeps up to `exact_limit` distinct values (at least 1) exactly.
    pub(crate) fn new(exact_limit: usize) -> Self {
        let exact_limit = exact_limit.max(1);
        let buffer_max = exact_limit + (exact_limit / 4).max(1);
        Self { exact_limit, buffer_max, store: Store::Exact(Vec::new()) }
    }

    /// Takes in `count` occurrences of `value`: one push, or one histogram update.
    #[inline]
    pub(crate) fn record(&mut self, value: SimDuration, count: u64) {
        if count == 0 {
            return;
        }
        let value = value.as_ns();
        match &mut self.store {
            Store::Exact(pairs) => match pairs.last_mut() {
                Some(last) if last.0 == value => last.1 += count,
                _ => {
                    pairs.push((value, count));
                    if pairs.len() >= self.buffer_max {
                        self.compact();
                    }
                }
            },
            Store::Hdr(hdr) => hdr.record(value, count),
        }
    }

    /// Merges equal values; past the limit, turns the sample into a histogram.
    #[cold]
    fn compact(&mut self) {
        let Store::Exact(pairs) = &mut self.store else { return };
        // After an earlier compaction most of the buffer is one sorted run, and the gaps of a run
        // of decode passes rise: the stable sort finds such runs and keeps them.
        pairs.sort_by_key(|pair| pair.0);
        pairs.dedup_by(|next, kept| {
            if next.0 != kept.0 {
                return false;
            }
            kept.1 += next.1;
            true
        });
        if pairs.len() > self.exact_limit {
            self.store = Store::Hdr(Box::new(Hdr::of(pairs)));
        }
    }

    /// What a report says about the sample. Sorts it: O(n log n) in the pairs kept.
    pub(crate) fn summary(&mut self) -> Summary {
        self.summary_and_curve().0
    }

    /// The same, and the curve of its percentiles.
    pub(crate) fn summary_and_curve(&mut self) -> (Summary, Curve) {
        self.compact();
        match &self.store {
            Store::Exact(pairs) => {
                (Summary::new(&Moments::of(pairs), pairs, Method::Exact), Curve::of(pairs))
            }
            Store::Hdr(hdr) => {
                let pairs = hdr.pairs();
                let mut curve = Curve::of(&pairs);
                curve.take_extremes(&hdr.moments);
                (Summary::new(&hdr.moments, &pairs, Method::Hdr), curve)
            }
        }
    }

    /// The sample to draw, from its smallest to its largest value, both exact. Sorts it, as
    /// [`summary`](Self::summary) does.
    pub(crate) fn distribution(&mut self) -> Distribution {
        self.compact();
        match &self.store {
            Store::Exact(pairs) => Distribution::of(pairs.clone()),
            Store::Hdr(hdr) => {
                let mut pairs = hdr.pairs();
                // A histogram of one bucket has no room for both.
                if let [first, .., last] = &mut pairs[..] {
                    (first.0, last.0) = (hdr.moments.min, hdr.moments.max);
                }
                Distribution::of(pairs)
            }
        }
    }
}

/// A histogram beside the figures that stay exact.
#[derive(Clone, Debug)]
struct Hdr {
    moments: Moments,
    histogram: Histogram<u64>,
}

impl Hdr {
    fn of(pairs: &[Pair]) -> Self {
        let histogram = Histogram::new(SIGNIFICANT_DIGITS).expect("3 digits are supported");
        let mut hdr = Self { moments: Moments::default(), histogram };
        for &(value, count) in pairs {
            hdr.record(value, count);
        }
        hdr
    }

    fn record(&mut self, value: u64, count: u64) {
        self.moments.add(value, count);
        self.histogram.record_n(value, count).expect("a resizing histogram takes any value");
    }

    /// The middle of each bucket with its count, in order, held within the exact extremes.
    fn pairs(&self) -> Vec<Pair> {
        self.histogram
            .iter_recorded()
            .map(|bucket| {
                let middle = self.histogram.median_equivalent(bucket.value_iterated_to());
                (middle.clamp(self.moments.min, self.moments.max), bucket.count_at_value())
            })
            .collect()
    }
}

/// Count, sums and extremes, all in integers, so that they depend on the values alone.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    count: u64,
    /// Sum of the values in nanoseconds.
    sum: u128,
    /// Sum of the squared values.
    squares: u128,
    /// The sum of squares left the 128 bits: a billion values of a year each would do it.
    overflowed: bool,
    /// Meaningless while the count is 0.
    min: u64,
    /// Meaningless while the count is 0.
    max: u64,
}

impl Moments {
    fn of(pairs: &[Pair]) -> Self {
        let mut moments = Self::default();
        for &(value, count) in pairs {
            moments.add(value, count);
        }
        moments
    }

    #[inline]
    fn add(&mut self, value: u64, count: u64) {
        let first = self.count == 0;
        self.min = if first { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += count;
        self.sum += u128::from(value) * u128::from(count);
        let square = u128::from(value) * u128::from(value);
        let squares =
            square.checked_mul(u128::from(count)).and_then(|s| s.checked_add(self.squares));
        match squares {
            Some(squares) => self.squares = squares,
            None => self.overflowed = true,
        }
    }

    /// Sum over count, in milliseconds.
    fn mean_ms(&self) -> Option<f64> {
        let count = u128::from(self.count);
        let (whole, rest) = (self.sum.checked_div(count)?, self.sum.checked_rem(count)?);
        Some((whole as f64 + rest as f64 / count as f64) / 1e6)
    }

    /// The population's standard deviation, in milliseconds; `None` too if the squares
    /// overflowed.
    ///
    /// With n values, sum S = q n + r and sum of squares Q, n times the variance is
    /// Q - S^2 / n = Q - q^2 n - 2 q r - r^2 / n. All but the last fraction is computed in
    /// integers, so that a narrow distribution far from zero loses no digits.
    fn std_ms(&self) -> Option<f64> {
        let n = u128::from(self.count);
        let (q, r) = (self.sum.checked_div(n)?, self.sum.checked_rem(n)?);
        if self.overflowed {
            return None;
        }
        // Both products are at most S^2 / n, which is at most Q (Cauchy and Schwarz).
        let scaled = self.squares - q * q * n - 2 * q * r;
        let (whole, rest) = (r * r / n, r * r % n);
        let variance = ((scaled - whole) as f64 - rest as f64 / n as f64) / n as f64;
        // r^2 / n is at most `scaled`; a subtraction of nearly equal floats may still dip below.
        Some(variance.max(0.0).sqrt() / 1e6)
    }
}

/// How the percentiles of a summary were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Method {
    /// From every value.
    Exact,
    /// From a histogram of three significant digits; mean, std, min and max stay exact.
    Hdr,
}

/// A sample in figures: milliseconds, `None` where there is nothing to say.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// Values in the sample, each occurrence counted.
    pub(crate) count: u64,
    /// Sum over count.
    pub(crate) mean: Option<f64>,
    /// Standard deviation of the population (divisor n, as in `vllm bench serve`).
    pub(crate) std: Option<f64>,
    /// The smallest value.
    pub(crate) min: Option<f64>,
    /// Percentiles by numpy's default rule: the value at rank (n - 1) p / 100 from 0, linear
    /// between its neighbours.
    pub(crate) p1: Option<f64>,
    /// 5th percentile.
    pub(crate) p5: Option<f64>,
    /// 10th percentile.
    pub(crate) p10: Option<f64>,
    /// 25th percentile.
    pub(crate) p25: Option<f64>,
    /// 50th percentile.
    pub(crate) p50: Option<f64>,
    /// 75th percentile.
    pub(crate) p75: Option<f64>,
    /// 90th percentile.
    pub(crate) p90: Option<f64>,
    /// 95th percentile.
    pub(crate) p95: Option<f64>,
    /// 99th percentile.
    pub(crate) p99: Option<f64>,
    /// 99.9th percentile.
    #[serde(rename = "p99.9")]
    pub(crate) p99_9: Option<f64>,
    /// The largest value.
    pub(crate) max: Option<f64>,
    /// How the percentiles were found.
    pub(crate) method: Method,
}

impl Summary {
    /// The summary of `pairs`, sorted by value, with `moments` of the same count.
    fn new(moments: &Moments, pairs: &[Pair], method: Method) -> Self {
        let [p1, p5, p10, p25, p50, p75, p90, p95, p99, p99_9] = percentiles_ms(pairs);
        let known = moments.count > 0;
        Self {
            count: moments.count,
            mean: moments.mean_ms(),
            std: moments.std_ms(),
            min: known.then(|| SimDuration::from_ns(moments.min).as_ms()),
            p1,
            p5,
            p10,
            p25,
            p50,
            p75,
            p90,
            p95,
            p99,
            p99_9,
            max: known.then(|| SimDuration::from_ns(moments.max).as_ms()),
            method,
        }
    }
}

/// A percentile of sorted values, by the share below it: linear between ranks, as numpy has it by default. 0 of none.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let position = share.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
    (high - low).mul_add(position.fract(), low)
}

/// The percentiles [`PER_MILLE`] of sorted weighted values.
fn percentiles_ms(pairs: &[Pair]) -> [Option<f64>; PER_MILLE.len()] {
    PER_MILLE.map(quantiles_ms(pairs, 1000))
}

/// Gives quantiles of sorted weighted values, in parts of `whole`, which are asked for in rising order: as numpy's
/// linear rule gives them on the expanded sample. Computed in integers with one rounding each, in one walk over
/// `pairs`.
fn quantiles_ms(pairs: &[Pair], whole: u64) -> impl FnMut(u64) -> Option<f64> {
    let count: u64 = pairs.iter().map(|pair| pair.1).sum();
    let whole = u128::from(whole);
    let mut at = 0;
    // Values up to and including pair `at`.
    let mut up_to = pairs.first().map_or(0, |pair| pair.1);
    move |part| {
        let position = u128::from(count.checked_sub(1)?) * u128::from(part);
        // The rank is at most count - 1, so it fits again.
        let (rank, rest) = ((position / whole) as u64, position % whole);
        while up_to <= rank {
            at += 1;
            up_to += pairs[at].1;
        }
        let low = pairs[at].0;
        // The rank above lies in the same pair or is the first of the next one. It is not
        // needed, and may not exist, where the position is a whole rank.
        let high = if rank + 1 < up_to || rest == 0 { low } else { pairs[at + 1].0 };
        let value = u128::from(low) * whole + u128::from(high - low) * rest;
        Some(value as f64 / (whole as f64 * 1e6))
    }
}

/// A distribution as its percentiles in milliseconds, at [`Curve::percents`]; empty without samples.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct Curve(pub(crate) Vec<f64>);

impl Curve {
    /// Where curves have points, in hundredths of a percent: every half percent, and closer in the tail.
    fn points() -> impl Iterator<Item = u64> {
        let tail = (9_910..10_000).step_by(10).chain([9_995, 9_999, 10_000]);
        (0..=9_900).step_by(50).chain(tail)
    }

    /// Where curves have points, in percent: from 0, the smallest value, to 100, the largest.
    pub(crate) fn percents() -> Vec<f64> {
        Self::points().map(|point| point as f64 / 100.0).collect()
    }

    fn of(pairs: &[Pair]) -> Self {
        Self(Self::points().map_while(quantiles_ms(pairs, 10_000)).collect())
    }

    fn take_extremes(&mut self, moments: &Moments) {
        if let [first, .., last] = self.0.as_mut_slice() {
            *first = SimDuration::from_ns(moments.min).as_ms();
            *last = SimDuration::from_ns(moments.max).as_ms();
        }
    }
}

/// On one line, however much the rest is indented: hundreds of figures are no reading.
impl Serialize for Curve {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        on_one_line(&self.0, serializer)
    }
}

/// Serializes plain numbers as they stand on one line of JSON.
pub(crate) fn on_one_line<S: serde::Serializer>(
    numbers: &[f64],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let text = serde_json::to_string(numbers).map_err(serde::ser::Error::custom)?;
    RawValue::from_string(text).map_err(serde::ser::Error::custom)?.serialize(serializer)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(exact_limit: usize, pairs: &[(u64, u64)]) -> Samples {
        let mut samples = Samples::new(exact_limit);
        for &(ns, count) in pairs {
            samples.record(SimDuration::from_ns(ns), count);
        }
        samples
    }

    const MS: u64 = 1_000_000;

    fn near(found: Option<f64>, expected: f64) {
        let found = found.expect("a value");
        assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
    }

    #[test]
    fn an_empty_sample_knows_its_count_only() {
        let summary = Samples::new(8).summary();
        assert_eq!((summary.count, summary.mean, summary.std), (0, None, None));
        assert_eq!((summary.min, summary.p50, summary.max), (None, None, None));
        let json = serde_json::to_value(summary).unwrap();
        assert_eq!(json["count"], 0);
        assert!(json["p99.9"].is_null());
    }

    #[test]
    fn a_single_value_is_every_percentile() {
        let summary = sample(8, &[(3 * MS, 1)]).summary();
        for value in [summary.mean, summary.min, summary.p1, summary.p99_9, summary.max] {
            assert_eq!(value, Some(3.0));
        }
        assert_eq!(summary.std, Some(0.0));
    }

    #[test]
    fn percentiles_interpolate_as_numpy_does() {
        // Expanded: 1 2 2 2 6 10 ms, n = 6, so percentile p sits at rank 5 p / 100.
        //   p1   0.05 : 1 + 0.05 (2 - 1)    = 1.05      p75  3.75 : 2 + 0.75 (6 - 2)   = 5
        //   p5   0.25 : 1.25                             p90  4.5  : 6 + 0.5 (10 - 6)   = 8
        //   p10  0.5  : 1.5                              p95  4.75 : 6 + 0.75 * 4       = 9
        //   p25  1.25 : 2                                p99  4.95 : 6 + 0.95 * 4       = 9.8
        //   p50  2.5  : 2                                p99.9 4.995 : 6 + 0.995 * 4    = 9.98
        let summary = sample(8, &[(10 * MS, 1), (2 * MS, 3), (MS, 1), (6 * MS, 1)]).summary();
        assert_eq!((summary.count, summary.method), (6, Method::Exact));
        let found = [summary.p1, summary.p5, summary.p10, summary.p25, summary.p50];
        let expected = [1.05, 1.25, 1.5, 2.0, 2.0];
        found.into_iter().zip(expected).for_each(|(f, e)| near(f, e));
        let found = [summary.p75, summary.p90, summary.p95, summary.p99, summary.p99_9];
        let expected = [5.0, 8.0, 9.0, 9.8, 9.98];
        found.into_iter().zip(expected).for_each(|(f, e)| near(f, e));
        // Mean 23 / 6; squares 1 + 3 * 4 + 36 + 100 = 149; variance 149 / 6 - (23 / 6)^2 = 365 / 36.
        near(summary.mean, 23.0 / 6.0);
        near(summary.std, 365f64.sqrt() / 6.0);
        assert_eq!((summary.min, summary.max), (Some(1.0), Some(10.0)));
    }

    #[test]
    fn a_narrow_sample_far_from_zero_keeps_its_deviation() {
        // Two values 2 ns apart, a year from zero: the deviation is exactly 1 ns.
        let year = 365 * 86_400 * 1_000_000_000;
        let summary = sample(8, &[(year, 5), (year + 2, 5)]).summary();
        assert_eq!(summary.std, Some(1e-6));
    }

    #[test]
    fn squares_beyond_128_bits_leave_the_deviation_unknown() {
        let mut samples = sample(8, &[(1 << 62, 1 << 10), (1 << 61, 1)]);
        let summary = samples.summary();
        assert_eq!(summary.std, None);
        assert!(summary.mean.is_some());
    }

    #[test]
    fn the_limit_counts_distinct_values() {
        // Limit 4: a hundred records of 4 values stay exact, a fifth value turns the sample.
        let pairs: Vec<_> = (0..100).map(|i| (i % 4 * 1000 + 1_000_000, 1)).collect();
        let mut samples = sample(4, &pairs);
        assert_eq!(samples.summary().method, Method::Exact);
        samples.record(SimDuration::from_ns(5), 1);
        let summary = samples.summary();
        assert_eq!((summary.count, summary.method), (101, Method::Hdr));
        assert_eq!(summary.min, Some(5e-6));
    }

    #[test]
    fn a_curve_runs_from_the_smallest_to_the_largest() {
        // 0 to 100 ms, one each: percentile p is p ms.
        let values: Vec<_> = (0..=100).map(|ms| (ms * MS, 1)).collect();
        let (_, curve) = sample(200, &values).summary_and_curve();
        assert_eq!(curve.0, Curve::percents());
        assert_eq!(curve.0.len(), 199 + 9 + 3);
        assert_eq!((curve.0[0], curve.0[1], curve.0[210]), (0.0, 0.5, 100.0));
        // The extremes of a histogram are exact.
        let (summary, curve) = sample(4, &values).summary_and_curve();
        assert_eq!(summary.method, Method::Hdr);
        assert_eq!((curve.0[0], curve.0[210]), (0.0, 100.0));
        assert_eq!(Samples::new(1).summary_and_curve().1.0, [0.0; 0]);
        let text = serde_json::to_string_pretty(&Curve(vec![1.0, 2.5])).unwrap();
        assert_eq!(text, "[1.0,2.5]");
        assert_eq!(serde_json::from_str::<Curve>(&text).unwrap(), Curve(vec![1.0, 2.5]));
    }

    #[test]
    fn nothing_is_recorded_for_a_count_of_zero() {
        assert_eq!(sample(8, &[(7, 0)]).summary().count, 0);
    }

    /// Numpy's rule, written as numpy writes it, on an expanded and sorted sample.
    fn numpy_linear(sorted: &[u64], percent: f64) -> f64 {
        let position = (sorted.len() - 1) as f64 * percent / 100.0;
        let below = (0..sorted.len()).rfind(|&rank| rank as f64 <= position).unwrap();
        let above = (below + 1).min(sorted.len() - 1);
        let (a, b) = (sorted[below] as f64, sorted[above] as f64);
        (a + (b - a) * (position - below as f64)) / 1e6
    }

    fn figures(summary: &Summary) -> [(f64, Option<f64>); 10] {
        [
            (1.0, summary.p1),
            (5.0, summary.p5),
            (10.0, summary.p10),
            (25.0, summary.p25),
            (50.0, summary.p50),
            (75.0, summary.p75),
            (90.0, summary.p90),
            (95.0, summary.p95),
            (99.0, summary.p99),
            (99.9, summary.p99_9),
        ]
    }

    fn relative(found: f64, expected: f64) -> f64 {
        (found - expected).abs() / expected.max(1e-6)
    }

    proptest! {
        #[test]
        fn weights_mean_repetition(
            pairs in prop::collection::vec((0u64..50_000_000, 1u64..40), 1..60),
        ) {
            let weighted = sample(1 << 10, &pairs).summary();
            let mut expanded: Vec<u64> =
                pairs.iter().flat_map(|&(v, c)| (0..c).map(move |_| v)).collect();
            let singles: Vec<_> = expanded.iter().rev().map(|&v| (v, 1)).collect();
            prop_assert_eq!(weighted, sample(1 << 10, &singles).summary());

            expanded.sort_unstable();
            for (percent, found) in figures(&weighted) {
                let expected = numpy_linear(&expanded, percent);
                prop_assert!((found.unwrap() - expected).abs() < 1e-9);
            }
            let n = expanded.len() as f64;
            let mean = expanded.iter().map(|&v| v as f64).sum::<f64>() / n;
            let variance = expanded.iter().map(|&v| (v as f64 - mean).powi(2)).sum::<f64>() / n;
            prop_assert!(relative(weighted.mean.unwrap(), mean / 1e6) < 1e-12);
            prop_assert!((weighted.std.unwrap() - variance.sqrt() / 1e6).abs() < 1e-8);
        }

        #[test]
        fn a_histogram_stays_within_a_thousandth(
            pairs in prop::collection::vec((0u64..5_000_000_000, 1u64..40), 5..200),
        ) {
            let exact = sample(1 << 10, &pairs).summary();
            let hdr = sample(1, &pairs).summary();
            prop_assert_eq!((exact.mean, exact.std), (hdr.mean, hdr.std));
            prop_assert_eq!((exact.min, exact.max), (hdr.min, hdr.max));
            for ((percent, e), (_, h)) in figures(&exact).into_iter().zip(figures(&hdr)) {
                prop_assert!(relative(h.unwrap(), e.unwrap()) <= 1e-3, "p{percent}: {h:?} {e:?}");
            }
        }

        #[test]
        fn neither_order_nor_grouping_shows(
            pairs in prop::collection::vec((0u64..40, 1u64..9), 1..120),
            limit in 1usize..60,
        ) {
            let mut reversed: Vec<_> = pairs.iter().rev().copied().collect();
            reversed.extend(pairs.iter().map(|&(value, _)| (value, 1)));
            let mut doubled: Vec<_> = pairs.iter().map(|&(value, count)| (value, count + 1)).collect();
            prop_assert_eq!(sample(limit, &doubled).summary(), sample(limit, &reversed).summary());
            doubled.sort_unstable();
            prop_assert_eq!(sample(limit, &doubled).summary(), sample(limit, &reversed).summary());
        }
    }
}
