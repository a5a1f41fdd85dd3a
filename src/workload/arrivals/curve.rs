//! Poisson arrivals whose rate changes over time.
//!
//! The time change of a unit Poisson process (Çinlar, Introduction to Stochastic Processes, 1975, 4.7):
//! where the integral of the rate reaches the sum of k exponential draws of mean 1, the k-th request
//! comes; that is a Poisson process of the rate. So the curve decides where requests come, and the
//! draws are the same for every curve.

use super::config::{OnOffConfig, PiecewiseConfig, SegmentConfig, Spread};
use crate::base::rng::Stream;

/// The stretches of a rate curve, in order.
#[derive(Clone, Debug)]
pub(super) enum Curve {
    /// A list of lines.
    Lines {
        segments: Vec<SegmentConfig>,
        /// The next of them.
        next: usize,
        repeat: bool,
    },
    /// Two rates that take turns.
    OnOff {
        config: OnOffConfig,
        /// Draws the periods.
        periods: Box<Stream>,
        /// Whether the next stretch is on.
        on: bool,
    },
}

impl Curve {
    pub(super) fn of_lines(config: &PiecewiseConfig) -> Self {
        Self::Lines { segments: config.segments().to_vec(), next: 0, repeat: config.repeat }
    }

    pub(super) fn on_off(config: OnOffConfig, periods: Stream) -> Self {
        Self::OnOff { config, periods: Box::new(periods), on: true }
    }

    /// The next stretch; `None` behind the last.
    fn next(&mut self) -> Option<SegmentConfig> {
        match self {
            Self::Lines { segments, next, repeat } => {
                if *next == segments.len() && *repeat {
                    *next = 0;
                }
                let segment = segments.get(*next).copied()?;
                *next += 1;
                Some(segment)
            }
            Self::OnOff { config, periods, on } => {
                let (rate, mean_s) = if *on {
                    (config.on_requests_per_s, config.on_s)
                } else {
                    (config.off_requests_per_s, config.off_s)
                };
                *on = !*on;
                let duration_s = match config.periods {
                    Spread::Fixed => mean_s,
                    Spread::Exponential => mean_s * periods.exponential(),
                };
                Some(SegmentConfig { duration_s, from_per_s: rate, to_per_s: None })
            }
        }
    }
}

/// A Poisson process along a curve.
#[derive(Clone, Debug)]
pub(super) struct AlongCurve {
    curve: Curve,
    draws: Stream,
    /// The stretch of the latest arrival, and when it began.
    segment: Option<(f64, SegmentConfig)>,
    /// Mean requests of the stretch up to the latest arrival.
    spent: f64,
}

impl AlongCurve {
    pub(super) fn new(mut curve: Curve, draws: Stream) -> Self {
        let segment = curve.next().map(|segment| (0.0, segment));
        Self { curve, draws, segment, spent: 0.0 }
    }

    /// The next arrival in seconds; `None` behind the curve.
    pub(super) fn next(&mut self) -> Option<f64> {
        self.spent += self.draws.exponential();
        loop {
            let (start_s, segment) = self.segment?;
            let (from, to) = (segment.from_per_s, segment.end_per_s());
            let requests = segment.duration_s * f64::midpoint(from, to);
            if self.spent < requests {
                // Where the integral from + slope t reaches `spent`: the root that stays exact for
                // level lines.
                let slope = (to - from) / segment.duration_s;
                let root = (from * from + 2.0 * slope * self.spent).max(0.0).sqrt();
                let within_s = 2.0 * self.spent / (from + root);
                return Some(start_s + within_s.min(segment.duration_s));
            }
            self.spent -= requests;
            let end_s = start_s + segment.duration_s;
            self.segment = self.curve.next().map(|segment| (end_s, segment));
            // Time may run out before the next request of a faint curve comes.
            if end_s > super::LATEST_S {
                return Some(end_s);
            }
        }
    }
}
