//! Distributions as histograms of one line.

use crate::metrics::samples::Curve;

/// Bars of a histogram.
const BARS: usize = 40;

/// From a little to all.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A distribution between its 1st and 99th percentile.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Histogram {
    /// A character for each part of the range; the parts are equal on a logarithmic scale.
    pub(super) bars: String,
    pub(super) from_ms: f64,
    pub(super) to_ms: f64,
}

impl Histogram {
    /// `None` where there is no range to divide.
    pub(super) fn of(curve: &Curve, percents: &[f64]) -> Option<Self> {
        let points: Vec<(f64, f64)> =
            percents.iter().zip(&curve.0).map(|(&percent, &ms)| (percent, ms)).collect();
        let inner: Vec<_> =
            points.iter().filter(|(percent, _)| (1.0..=99.0).contains(percent)).collect();
        let (&&(_, from_ms), &&(_, to_ms)) = (inner.first()?, inner.last()?);
        // Below a microsecond nothing is told apart.
        let log = |ms: f64| ms.max(1e-3).ln();
        let width = (log(to_ms) - log(from_ms)) / BARS as f64;
        if width <= 0.0 {
            return None;
        }
        let mut shares = [0.0; BARS];
        // Between two points of the curve lies what is between their percentiles, evenly.
        for pair in inner.windows(2) {
            let [(low_percent, low_ms), (high_percent, high_ms)] = [*pair[0], *pair[1]];
            let [low, high] = [low_ms, high_ms].map(|ms| (log(ms) - log(from_ms)) / width);
            let share = high_percent - low_percent;
            for (bar, sum) in shares.iter_mut().enumerate() {
                let (left, right) = (bar as f64, bar as f64 + 1.0);
                if high > low {
                    let common = (high.min(right) - low.max(left)).max(0.0);
                    *sum += share * common / (high - low);
                } else if (left..right).contains(&low) || (bar + 1 == BARS && low >= right) {
                    *sum += share;
                }
            }
        }
        let most = shares.iter().copied().fold(0.0, f64::max);
        let bar = |share: f64| match share / most * LEVELS.len() as f64 {
            // Less than a twentieth of a step is as good as nothing.
            eighths if eighths < 0.05 => ' ',
            eighths => LEVELS[(eighths.ceil() as usize).clamp(1, LEVELS.len()) - 1],
        };
        Some(Self { bars: shares.map(bar).iter().collect(), from_ms, to_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 0.1 to 10 ms at these percentiles.
    fn histogram(ms: impl Fn(f64) -> f64) -> Histogram {
        let percents = Curve::percents();
        let curve = Curve(percents.iter().map(|&percent| ms(percent)).collect());
        Histogram::of(&curve, &percents).unwrap()
    }

    #[test]
    fn an_even_distribution_is_flat() {
        // Evenly from p1 to p99 on the logarithmic scale.
        let all = histogram(|percent| 0.1 * 100_f64.powf((percent - 1.0) / 98.0));
        assert_eq!(all.bars, "█".repeat(BARS));
        assert!((all.from_ms - 0.1).abs() < 1e-12 && (all.to_ms - 10.0).abs() < 1e-9);
    }

    #[test]
    fn two_values_are_two_bars() {
        // Three quarters have 1 ms, the others 100 ms, and nobody is between them but half a percent.
        let bars = histogram(|percent| if percent < 75.0 { 1.0 } else { 100.0 }).bars;
        assert!(bars.starts_with('█'), "{bars}");
        // 24 of 74 percent: three eighths.
        assert!(bars.ends_with('▃'), "{bars}");
        assert_eq!(bars.chars().count(), BARS);
    }

    #[test]
    fn one_value_has_no_range() {
        let percents = Curve::percents();
        assert_eq!(Histogram::of(&Curve(vec![5.0; percents.len()]), &percents), None);
        assert_eq!(Histogram::of(&Curve::default(), &percents), None);
    }
}
