//! How long prompts and outputs are: distributions as functions of one normal draw each.
//!
//! A length is the quantile of its distribution at the share below a standard normal draw. So each
//! request takes the same number of draws whatever the distributions are, and correlating two
//! lengths means correlating their draws (a Gaussian copula): the distribution of each stays what it
//! is.

pub(crate) mod config;
mod table;

use crate::base::rng::{Stream, normal_cdf};
use crate::workload::trace::TraceError;

use config::{LengthConfig, PairsConfig};
pub(crate) use table::Weighted;

/// The distribution of a number of tokens.
#[derive(Clone, Debug)]
pub(crate) struct Length {
    shape: Shape,
    min: u32,
    max: u32,
}

#[derive(Clone, Debug)]
enum Shape {
    Fixed(u32),
    /// Any of the range.
    Uniform,
    Normal {
        mean: f64,
        std: f64,
    },
    /// Mean and deviation of the logarithm.
    Lognormal {
        mu: f64,
        sigma: f64,
    },
    /// The logarithm of the probability of one more.
    Geometric {
        log_more: f64,
    },
    /// Values by weight.
    Weighted(Weighted<u32>),
}

impl Length {
    /// The distribution that a resolved configuration describes.
    ///
    /// # Errors
    /// Its file cannot be used.
    pub(crate) fn new(config: &LengthConfig) -> Result<Self, TraceError> {
        let (shape, min, max) = match config {
            LengthConfig::Fixed(tokens) => (Shape::Fixed(*tokens), 0, u32::MAX),
            LengthConfig::Uniform(range) => (Shape::Uniform, range.min, range.max),
            LengthConfig::Normal(normal) => {
                let shape = Shape::Normal { mean: normal.mean, std: normal.std };
                (shape, normal.min, normal.max)
            }
            LengthConfig::Lognormal(config) => {
                // With v = (std / mean)^2: sigma^2 = ln(1 + v), mu = ln(mean) - sigma^2 / 2.
                let ratio = config.std / config.mean;
                let variance = libm::log1p(ratio * ratio);
                let mu = libm::log(config.mean) - variance / 2.0;
                (Shape::Lognormal { mu, sigma: variance.sqrt() }, config.min, config.max)
            }
            LengthConfig::Zipf(zipf) => {
                let values = (zipf.min..=zipf.max)
                    .map(|n| (n, libm::pow(f64::from(n) / f64::from(zipf.min), -zipf.exponent)));
                (Shape::Weighted(Weighted::new(values)), zipf.min, zipf.max)
            }
            LengthConfig::Geometric(config) => {
                // The number behind the shortest has the mean q / (1 - q), with q the probability of one more.
                let more = config.mean - f64::from(config.min);
                let shape = Shape::Geometric { log_more: libm::log(more / (more + 1.0)) };
                (shape, config.min, config.max)
            }
            LengthConfig::Empirical(file) => {
                let values = table::read(file)?;
                (Shape::Weighted(values), file.min, file.max)
            }
        };
        Ok(Self { shape, min, max })
    }

    /// The length at a standard normal draw.
    pub(crate) fn at(&self, z: f64) -> u32 {
        let tokens = match &self.shape {
            Shape::Fixed(tokens) => return *tokens,
            Shape::Uniform => {
                let values = f64::from(self.max) - f64::from(self.min) + 1.0;
                f64::from(self.min) + (normal_cdf(z) * values).floor()
            }
            Shape::Normal { mean, std } => (mean + std * z).round(),
            Shape::Lognormal { mu, sigma } => libm::exp(mu + sigma * z).round(),
            Shape::Geometric { log_more } => {
                // More than k with probability q^(k + 1); without any more, the quotient is 0.
                let more = libm::log(normal_cdf(-z)) / log_more;
                f64::from(self.min) + more.max(0.0).floor()
            }
            Shape::Weighted(values) => {
                return (*values.at(normal_cdf(z))).clamp(self.min, self.max);
            }
        };
        // The conversion saturates at both ends.
        (tokens as u32).clamp(self.min, self.max)
    }
}

/// The distribution of prompt and output together.
#[derive(Clone, Debug)]
pub(crate) struct Lengths {
    joint: Joint,
    draws: Stream,
}

#[derive(Clone, Debug)]
enum Joint {
    /// Each by itself, with correlated draws.
    Copula { prompt: Length, output: Length, correlation: f64 },
    /// Pairs that occurred, by weight.
    Pairs(Weighted<(u32, u32)>),
}

impl Lengths {
    /// Prompt and output with draws that correlate so much.
    ///
    /// # Errors
    /// A file cannot be used.
    pub(crate) fn new(
        prompt: &LengthConfig,
        output: &LengthConfig,
        correlation: f64,
        draws: Stream,
    ) -> Result<Self, TraceError> {
        let (prompt, output) = (Length::new(prompt)?, Length::new(output)?);
        Ok(Self { joint: Joint::Copula { prompt, output, correlation }, draws })
    }

    /// Pairs that occurred.
    ///
    /// # Errors
    /// The file cannot be used.
    pub(crate) fn of_pairs(config: &PairsConfig, draws: Stream) -> Result<Self, TraceError> {
        Ok(Self { joint: Joint::Pairs(table::read_pairs(config)?), draws })
    }

    /// Prompt and output tokens of the next request.
    pub(crate) fn next(&mut self) -> (u32, u32) {
        let (a, b) = (self.draws.normal(), self.draws.normal());
        match &self.joint {
            Joint::Copula { prompt, output, correlation } => {
                // Standard normal again, and correlated by so much with the first.
                let b = correlation * a + (1.0 - correlation * correlation).sqrt() * b;
                (prompt.at(a), output.at(b))
            }
            Joint::Pairs(pairs) => *pairs.at(normal_cdf(a)),
        }
    }
}

#[cfg(test)]
mod tests;
