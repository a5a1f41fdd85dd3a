//! When a client sends its requests within a window.
//!
//! The rate of a window is a count: so many requests came in its time. So the window has that many
//! requests, and the law says how they bunch. As ServeGen does, n gaps are drawn and scaled so that
//! they fill the window; the fitted scale, whose mean need not be that of the rate, drops out. Unlike ServeGen,
//! which begins every window of every client with a whole gap and loses the last request to its end,
//! the n gaps lie on a circle that is turned by a uniform draw: all n requests come, and at every
//! instant of the window as many on average. Otherwise the bursts of all clients would meet at the
//! windows' edges.
//!
//! Gaps are drawn up to three times from copies of the stream, so that a window takes time for each of
//! its requests and no memory.

use super::trace::{Law, Window};
use crate::base::rng::Stream;

impl Law {
    /// A gap in units of its own.
    fn draw(self, draws: &mut Stream) -> f64 {
        match self {
            Self::Gamma(shape) => draws.gamma(shape),
            Self::Weibull(shape) => draws.weibull(shape),
        }
    }
}

/// The arrivals of a window, in order.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    law: Law,
    /// The stream before the first gap.
    begin: Stream,
    /// The stream behind the gap whose end is the next arrival.
    draws: Stream,
    /// The end of that gap, on the circle of the gaps' own units.
    end: f64,
    /// Which gap that is, from 0.
    gap: u32,
    /// Gaps, and arrivals.
    number: u32,
    /// Arrivals not yet taken.
    left: u32,
    /// Where on the circle the window begins.
    turn: f64,
    /// Nanoseconds for a unit of the gaps.
    scale_ns: f64,
    /// All gaps together; not above 0 or not finite where one instant is all there is.
    sum: f64,
    start_ns: u64,
    length_ns: u64,
    /// Where that instant is, in shares of the window.
    instant: f64,
}

/// Requests that a window has on average.
pub(super) fn mean_number(window: &Window, factor: f64) -> f64 {
    window.requests_per_s * factor * ((window.end_ns - window.start_ns) as f64 / 1e9)
}

impl Arrivals {
    /// The arrivals of `window` with its rate times `factor`, from a stream of their own. Of less than
    /// 2^32 requests.
    pub(super) fn new(window: &Window, factor: f64, mut draws: Stream) -> Self {
        let mean = mean_number(window, factor);
        // What is left of whole requests is one more, so often that the mean is met.
        let number = mean.floor() as u32 + u32::from(draws.uniform() < mean.fract());
        let instant = draws.uniform();
        let begin = draws;
        let length_ns = window.end_ns - window.start_ns;
        let mut arrivals = Self {
            law: window.law,
            draws: begin.clone(),
            begin,
            end: 0.0,
            gap: 0,
            number,
            left: number,
            turn: 0.0,
            scale_ns: 0.0,
            sum: 0.0,
            start_ns: window.start_ns,
            length_ns,
            instant,
        };
        let mut draws = arrivals.begin.clone();
        arrivals.sum = (0..number).map(|_| arrivals.law.draw(&mut draws)).sum();
        if arrivals.has_gaps() {
            arrivals.turn = instant * arrivals.sum;
            arrivals.scale_ns = length_ns as f64 / arrivals.sum;
            arrivals.end = arrivals.law.draw(&mut arrivals.draws);
            while arrivals.end < arrivals.turn && arrivals.gap + 1 < number {
                arrivals.gap += 1;
                arrivals.end += arrivals.law.draw(&mut arrivals.draws);
            }
        }
        arrivals
    }

    /// Whether the gaps can be told apart; else all of them are next to nothing beside one.
    fn has_gaps(&self) -> bool {
        self.sum > 0.0 && self.sum.is_finite()
    }

    /// The next arrival, in nanoseconds of the day; `None` behind the last.
    pub(super) fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        let at_ns = if self.has_gaps() {
            let at_ns = (self.end - self.turn) * self.scale_ns;
            self.gap += 1;
            if self.gap == self.number {
                // Once around.
                self.gap = 0;
                self.draws = self.begin.clone();
                self.turn -= self.sum;
                self.end = 0.0;
            }
            self.end += self.law.draw(&mut self.draws);
            at_ns
        } else {
            self.instant * self.length_ns as f64
        };
        // Rounding may lead to the end, and to just before the start.
        Some(self.start_ns + (at_ns.round() as u64).min(self.length_ns - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::tests::{distance, distance_max, moments};

    const S: u64 = 1_000_000_000;

    fn window(requests_per_s: f64, law: Law) -> Window {
        let (start_ns, end_ns) = (600 * S, 1200 * S);
        Window { start_ns, end_ns, requests_per_s, cv: 1.0, law, lengths: 0 }
    }

    fn arrivals(window: &Window, factor: f64, name: &str) -> Vec<u64> {
        let mut arrivals = Arrivals::new(window, factor, Stream::new(5, name));
        std::iter::from_fn(|| arrivals.next()).collect()
    }

    /// Gaps in seconds.
    fn gaps(arrivals: &[u64]) -> Vec<f64> {
        arrivals.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e9).collect()
    }

    #[test]
    fn a_window_has_the_requests_of_its_rate_in_order() {
        for law in [Law::Gamma(0.012), Law::Gamma(3.0), Law::Weibull(0.3), Law::Weibull(20.0)] {
            for (rate, number) in [(1.0 / 600.0, 1), (0.105, 63), (2.0, 1200)] {
                let window = window(rate, law);
                let found = arrivals(&window, 1.0, "a");
                // 0.105 / s in 600 s are 63 to within the rounding of a double.
                assert_eq!(found.len(), number, "{law:?}");
                assert!(found.is_sorted());
                assert!(found.iter().all(|at| (600 * S..1200 * S).contains(at)));
                assert_eq!(arrivals(&window, 2.0, "a").len(), 2 * number);
            }
        }
    }

    #[test]
    fn a_share_of_a_request_comes_so_often() {
        // 0.25 requests each: binomial, four deviations of sqrt(2000 x 3 / 16).
        let window = window(0.25 / 600.0, Law::Gamma(1.0));
        let number: usize = (0..2000).map(|k| arrivals(&window, 1.0, &format!("{k}")).len()).sum();
        assert!(number.abs_diff(500) < 78, "{number}");
    }

    #[test]
    fn gaps_have_the_variation_of_their_law() {
        // Gamma of shape k: 1 / sqrt(k). Weibull of shape 1/2: Gamma(5) / Gamma(3)^2 - 1 = 5, the
        // square; of shape 2: 4 / pi - 1. Of 60,000 gaps the deviation is off by some per cent with
        // the tail of the Weibull of shape 1/2, whose kurtosis is 87.7: sqrt(86.7 / 4 / 60,000) = 2 %.
        // Filling the window takes off no more than 1 / 60,000 of it.
        let weibull_two = 4.0 / std::f64::consts::PI - 1.0;
        for (law, squared) in [
            (Law::Gamma(0.25), 4.0),
            (Law::Gamma(4.0), 0.25),
            (Law::Weibull(0.5), 5.0),
            (Law::Weibull(2.0), weibull_two),
        ] {
            let (mean, sd) = moments(&gaps(&arrivals(&window(100.0, law), 1.0, "b")));
            assert!((mean * 100.0 - 1.0).abs() < 0.001, "{law:?}: {mean}");
            let cv = sd / mean;
            assert!((cv / f64::sqrt(squared) - 1.0).abs() < 0.08, "{law:?}: {cv}");
        }
    }

    #[test]
    fn gamma_of_shape_one_is_poisson() {
        let found = gaps(&arrivals(&window(50.0, Law::Gamma(1.0)), 1.0, "c"));
        assert!(distance(&found, |x| 1.0 - (-50.0 * x).exp()) < distance_max(found.len()));
    }

    #[test]
    fn bursts_come_at_any_instant_of_the_window() {
        // One window in ten requests, each very close to the others: where, is uniform. Only the first
        // of each window, as they are not independent.
        let window = window(1.0 / 60.0, Law::Gamma(0.02));
        let first = |k| {
            let found = arrivals(&window, 1.0, &format!("{k}"));
            (found[k as usize % found.len()] - 600 * S) as f64 / (600 * S) as f64
        };
        let places: Vec<f64> = (0..4000_u32).map(first).collect();
        assert!(distance(&places, |x| x) < distance_max(places.len()));
    }

    #[test]
    fn gaps_too_unequal_for_numbers_are_one_burst() {
        // 1 / shape is the exponent of a draw: 36^1000 is no double, and 0.5^1000 of 1.07e-301 is.
        for law in [Law::Weibull(0.001), Law::Gamma(0.001)] {
            let found = arrivals(&window(0.05, law), 1.0, "d");
            assert_eq!(found.len(), 30);
            assert!(found.is_sorted());
        }
        let found = arrivals(&window(1.0, Law::Weibull(0.001)), 1.0, "d");
        assert!(found.iter().all(|at| *at == found[0]), "an infinite gap leaves one instant");
    }
}
