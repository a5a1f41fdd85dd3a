//! Random numbers: named streams of the one seed.
//!
//! What a stream draws depends on the seed and its name alone, so that a new consumer, with a name of
//! its own, never shifts the draws of another.
//!
//! Logarithms and their like come from `libm`, not from the platform, which may round them another
//! way: the same seed gives the same bytes everywhere. That is also why the distributions are here
//! rather than from `rand_distr`, whose functions change with the features of other crates.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::digest::Digest;

/// One stream of draws.
#[derive(Clone, Debug)]
pub(crate) struct Stream(ChaCha8Rng);

impl Stream {
    /// The stream called `name` of `seed`: `ChaCha8` under a key of the seed (8 bytes) and three
    /// digests of the name, each begun by another number.
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        for (number, part) in (1_u64..).zip(key[8..].chunks_exact_mut(8)) {
            let mut digest = Digest::new();
            digest.add(number);
            name.bytes().for_each(|byte| digest.add(byte.into()));
            digest.add(name.len() as u64);
            part.copy_from_slice(&digest.finish().to_le_bytes());
        }
        Self(ChaCha8Rng::from_seed(key))
    }

    /// Uniform from 0 to below 1, a multiple of 2^-53; one draw.
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform from above 0 to 1; one draw.
    fn above_zero(&mut self) -> f64 {
        1.0 - self.uniform()
    }

    /// Exponential of mean 1, by inversion; one draw.
    pub(crate) fn exponential(&mut self) -> f64 {
        -libm::log(self.above_zero())
    }

    /// Standard normal, by the method of Box and Muller; two draws.
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * libm::cos(std::f64::consts::TAU * self.uniform())
    }

    /// Weibull of scale 1, by inversion; one draw.
    pub(crate) fn weibull(&mut self, shape: f64) -> f64 {
        libm::pow(self.exponential(), 1.0 / shape)
    }

    /// Gamma of scale 1 (mean `shape`). Marsaglia and Tsang, A simple method for generating gamma
    /// variables, 2000, with their boost for shapes below 1; a few draws.
    pub(crate) fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            let boost = libm::pow(self.above_zero(), 1.0 / shape);
            return self.gamma(shape + 1.0) * boost;
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let root = 1.0 + c * x;
            if root <= 0.0 {
                continue;
            }
            let v = root * root * root;
            if libm::log(self.above_zero()) < x * x / 2.0 + d * (1.0 - v + libm::log(v)) {
                return d * v;
            }
        }
    }
}

/// The share of a standard normal below `z`.
pub(crate) fn normal_cdf(z: f64) -> f64 {
    0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Mean and standard deviation of a sample.
    pub(crate) fn moments(sample: &[f64]) -> (f64, f64) {
        let n = sample.len() as f64;
        let mean = sample.iter().sum::<f64>() / n;
        let square = sample.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>();
        (mean, (square / n).sqrt())
    }

    /// The largest distance between the distribution of a sample and a continuous one.
    pub(crate) fn distance(sample: &[f64], cdf: impl Fn(f64) -> f64) -> f64 {
        let mut sorted = sample.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len() as f64;
        let gaps = sorted.iter().enumerate().map(|(at, &x)| {
            let share = cdf(x);
            (share - at as f64 / n).max((at + 1) as f64 / n - share)
        });
        gaps.fold(0.0, f64::max)
    }

    /// The distance (Kolmogorov, Smirnov) that a sample of `n` stays below in all but 1 of 1000
    /// samples of the distribution itself: sqrt(ln(2 / 0.001) / 2 / n).
    pub(crate) fn distance_max(n: usize) -> f64 {
        (f64::ln(2.0 / 0.001) / 2.0 / n as f64).sqrt()
    }

    const N: usize = 40_000;

    fn sample(name: &str, draw: impl Fn(&mut Stream) -> f64) -> Vec<f64> {
        let mut stream = Stream::new(7, name);
        (0..N).map(|_| draw(&mut stream)).collect()
    }

    /// The mean lies within four standard errors, `sd / sqrt(N)`; the deviation within 3 %, which is
    /// four of its own for every kurtosis up to 9 (exponential): sd * sqrt((9 - 1) / 4 / N) = 0.7 %.
    fn assert_moments(sample: &[f64], mean: f64, sd: f64) {
        let (found_mean, found_sd) = moments(sample);
        assert!((found_mean - mean).abs() < 4.0 * sd / (N as f64).sqrt(), "{found_mean} {mean}");
        assert!((found_sd / sd - 1.0).abs() < 0.03, "{found_sd} {sd}");
    }

    #[test]
    fn a_stream_depends_on_seed_and_name_alone() {
        let draws = |seed, name| {
            let mut stream = Stream::new(seed, name);
            [(); 4].map(|()| stream.uniform().to_bits())
        };
        assert_eq!(draws(1, "a"), draws(1, "a"));
        for other in [draws(2, "a"), draws(1, "b"), draws(1, "aa"), draws(1, "")] {
            assert_ne!(draws(1, "a"), other);
        }
    }

    /// A changed figure changes every random workload there is.
    #[test]
    fn the_first_draws_are_these() {
        let mut stream = Stream::new(0, "workload.arrivals");
        let first = [(); 3].map(|()| (stream.uniform() * 1e6) as u32);
        assert_eq!(first, [197_939, 130_595, 678_864]);
    }

    #[test]
    fn distributions_are_what_they_are_called() {
        let uniform = sample("uniform", Stream::uniform);
        assert!(uniform.iter().all(|x| (0.0..1.0).contains(x)));
        assert_moments(&uniform, 0.5, (1.0_f64 / 12.0).sqrt());
        assert!(distance(&uniform, |x| x) < distance_max(N));

        let exponential = sample("exponential", Stream::exponential);
        assert_moments(&exponential, 1.0, 1.0);
        assert!(distance(&exponential, |x| 1.0 - (-x).exp()) < distance_max(N));

        let normal = sample("normal", Stream::normal);
        assert_moments(&normal, 0.0, 1.0);
        assert!(distance(&normal, normal_cdf) < distance_max(N));

        // Weibull of shape 2: 1 - exp(-x^2), mean Gamma(1.5) = sqrt(pi) / 2, variance 1 - pi / 4.
        let weibull = sample("weibull", |s| s.weibull(2.0));
        let pi = std::f64::consts::PI;
        assert_moments(&weibull, pi.sqrt() / 2.0, (1.0 - pi / 4.0).sqrt());
        assert!(distance(&weibull, |x| 1.0 - (-x * x).exp()) < distance_max(N));
    }

    #[test]
    fn gamma_has_its_shape() {
        // Mean k and variance k. Shape 1 is the exponential; shape 2 has 1 - (1 + x) exp(-x); shape
        // 1/2 is half the square of a standard normal: P(X < x) = 2 Phi(sqrt(2 x)) - 1.
        let one = sample("gamma 1", |s| s.gamma(1.0));
        assert_moments(&one, 1.0, 1.0);
        assert!(distance(&one, |x| 1.0 - (-x).exp()) < distance_max(N));
        let two = sample("gamma 2", |s| s.gamma(2.0));
        assert_moments(&two, 2.0, 2.0_f64.sqrt());
        assert!(distance(&two, |x| 1.0 - (1.0 + x) * (-x).exp()) < distance_max(N));
        let half = sample("gamma 0.5", |s| s.gamma(0.5));
        assert_moments(&half, 0.5, 0.5_f64.sqrt());
        assert!(distance(&half, |x| 2.0 * normal_cdf((2.0 * x).sqrt()) - 1.0) < distance_max(N));
    }

    #[test]
    fn the_normal_share_is_that_of_the_tables() {
        // Phi(0) = 1/2; Phi(1.959964) = 0.975.
        assert!((normal_cdf(0.0) - 0.5).abs() < 1e-15);
        assert!((normal_cdf(1.959_964) - 0.975).abs() < 1e-7);
        assert!(normal_cdf(-9.0) > 0.0);
    }
}
