//! What a results file says, whichever tool wrote it: figures by what they mean.

use std::fmt;

use super::distribution::Distribution;
use crate::report::Report;

/// What a figure measures. Two figures are compared if and only if they are of the same quantity.
///
/// With n tokens of a request, its start s, first token f and last token l.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Quantity {
    /// f - s.
    Ttft,
    /// (l - f) / (n - 1) of requests with n >= 2, each a sample.
    Tpot,
    /// The same, each request as heavy as its n - 1.
    TpotWeighted,
    /// (l - s) / n, each request as heavy as its n.
    TpotWithFirst,
    /// Gaps between consecutive tokens, each a sample.
    Itl,
    /// Gaps between consecutive emissions, which may be of several tokens, each a sample.
    EmissionGap,
    /// l - s.
    E2e,
    /// From the arrival until the engine first computes something of the request.
    Queue,
    /// Over which rates are taken.
    Span,
    RequestsPerSecond,
    InputTokensPerSecond,
    OutputTokensPerSecond,
    TotalTokensPerSecond,
    /// Requests that met every objective over the completed.
    MetRatio,
    /// Requests that met every objective, per second.
    MetPerSecond,
    HitRatio,
    TokensPerRound,
    Completed,
    Failed,
    InputTokens,
    OutputTokens,
    Preemptions,
}

/// Quantities that are easily taken for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Time for each token after the first, in one sense or another.
    TokenTime,
    /// One of a kind.
    Alone,
}

impl Quantity {
    /// All of them, in the order of a comparison.
    pub(crate) const ALL: [Self; 22] = [
        Self::Ttft,
        Self::Tpot,
        Self::TpotWeighted,
        Self::TpotWithFirst,
        Self::Itl,
        Self::EmissionGap,
        Self::E2e,
        Self::Queue,
        Self::RequestsPerSecond,
        Self::InputTokensPerSecond,
        Self::OutputTokensPerSecond,
        Self::TotalTokensPerSecond,
        Self::Span,
        Self::MetRatio,
        Self::MetPerSecond,
        Self::HitRatio,
        Self::TokensPerRound,
        Self::Completed,
        Self::Failed,
        Self::InputTokens,
        Self::OutputTokens,
        Self::Preemptions,
    ];

    /// How it is called in flags and in JSON.
    pub(crate) const fn key(self) -> &'static str {
        self.texts().0
    }

    /// How it is called in a table.
    pub(crate) const fn label(self) -> &'static str {
        self.texts().1
    }

    /// Its unit; empty where it has none.
    pub(crate) const fn unit(self) -> &'static str {
        self.texts().2
    }

    const fn texts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Ttft => ("ttft", "TTFT", "ms"),
            Self::Tpot => ("tpot", "TPOT", "ms"),
            Self::TpotWeighted => ("tpot_weighted", "TPOT by tokens", "ms"),
            Self::TpotWithFirst => ("tpot_with_first", "TPOT with first", "ms"),
            Self::Itl => ("itl", "ITL", "ms"),
            Self::EmissionGap => ("emission_gap", "emission gap", "ms"),
            Self::E2e => ("e2e", "E2E", "ms"),
            Self::Queue => ("queue", "queue time", "ms"),
            Self::Span => ("span", "span", "s"),
            Self::RequestsPerSecond => ("requests_per_s", "requests/s", "1/s"),
            Self::InputTokensPerSecond => ("input_tokens_per_s", "input tokens/s", "1/s"),
            Self::OutputTokensPerSecond => ("output_tokens_per_s", "output tokens/s", "1/s"),
            Self::TotalTokensPerSecond => ("total_tokens_per_s", "all tokens/s", "1/s"),
            Self::MetRatio => ("met_ratio", "met all SLOs (ratio)", ""),
            Self::MetPerSecond => ("met_per_s", "met all SLOs/s", "1/s"),
            Self::HitRatio => ("hit_ratio", "cache hits (ratio)", ""),
            Self::TokensPerRound => ("tokens_per_round", "tokens per round", ""),
            Self::Completed => ("completed", "completed", ""),
            Self::Failed => ("failed", "failed", ""),
            Self::InputTokens => ("input_tokens", "input tokens", ""),
            Self::OutputTokens => ("output_tokens", "output tokens", ""),
            Self::Preemptions => ("preemptions", "preemptions", ""),
        }
    }

    /// Whether it is a distribution of milliseconds, with a mean and percentiles, and no single figure.
    pub(crate) const fn is_latency(self) -> bool {
        matches!(
            self,
            Self::Ttft
                | Self::Tpot
                | Self::TpotWeighted
                | Self::TpotWithFirst
                | Self::Itl
                | Self::EmissionGap
                | Self::E2e
                | Self::Queue
        )
    }

    /// Whether it is a whole number of something.
    pub(crate) const fn is_count(self) -> bool {
        matches!(
            self,
            Self::Completed
                | Self::Failed
                | Self::InputTokens
                | Self::OutputTokens
                | Self::Preemptions
        )
    }

    /// What it is easily taken for.
    pub(crate) const fn family(self) -> Family {
        match self {
            Self::Tpot
            | Self::TpotWeighted
            | Self::TpotWithFirst
            | Self::Itl
            | Self::EmissionGap => Family::TokenTime,
            _ => Family::Alone,
        }
    }

    /// What it is, where others of its family are something else.
    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::Tpot => "each request's time after its first token over its other tokens",
            Self::TpotWeighted => "the TPOT of requests, each weighing as much as it has tokens",
            Self::TpotWithFirst => {
                "each request's whole time over all of its tokens, the first and its wait included"
            }
            Self::Itl => "gaps between tokens, each a sample",
            Self::EmissionGap => {
                "gaps between chunks, of which one may carry several tokens, each a sample"
            }
            _ => self.label(),
        }
    }
}

/// Which figure of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Statistic {
    Mean,
    Std,
    Percentile(Percent),
    /// The figure itself: the quantity is no distribution.
    Value,
}

/// A percentile, in thousandths of a percent, from 0 to 100,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Percent(u32);

impl Percent {
    /// The usual ones: those of servesim's report.
    pub(crate) const USUAL: [Self; 10] = [
        Self(1_000),
        Self(5_000),
        Self(10_000),
        Self(25_000),
        Self(50_000),
        Self(75_000),
        Self(90_000),
        Self(95_000),
        Self(99_000),
        Self(99_900),
    ];

    /// The median.
    pub(crate) const MEDIAN: Self = Self(50_000);

    /// From `p99.9` or `99.9`; `None` if it is not between 0 and 100, or has more than three decimals.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('p').unwrap_or(text);
        if !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return None;
        }
        let thousandths = text.parse::<f64>().ok().filter(|&value| value <= 100.0)? * 1e3;
        let is_whole = (thousandths - thousandths.round()).abs() < 1e-6;
        is_whole.then(|| Self(thousandths.round() as u32))
    }

    /// Nearest, of a number of percent that lies between 0 and 100.
    pub(crate) fn of(percent: f64) -> Self {
        Self((percent.clamp(0.0, 100.0) * 1e3).round() as u32)
    }

    /// From 0 to 1.
    pub(crate) fn share(self) -> f64 {
        f64::from(self.0) / 1e5
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => to.write_str("min"),
            100_000 => to.write_str("max"),
            part => write!(to, "p{}", f64::from(part) / 1e3),
        }
    }
}

impl fmt::Display for Statistic {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mean => to.write_str("mean"),
            Self::Std => to.write_str("std"),
            Self::Percentile(percent) => percent.fmt(to),
            Self::Value => Ok(()),
        }
    }
}

/// How the percentiles of a file were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Between the neighbours of the rank (n - 1) p / 100, as numpy does by default.
    Linear,
    /// The least value that so much of the weight does not exceed.
    NearestRank,
    /// From a histogram whose buckets are 0.1 % wide.
    Histogram,
}

impl Rule {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Linear => "linear between ranks",
            Self::NearestRank => "the nearest rank",
            Self::Histogram => "a histogram of three digits",
        }
    }
}

/// A quantity in one file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measure {
    pub(crate) quantity: Quantity,
    /// What the file calls it.
    pub(crate) field: String,
    pub(crate) rule: Rule,
    /// Each statistic at most once.
    pub(crate) figures: Vec<(Statistic, f64)>,
    /// Where the file knows it.
    pub(crate) distribution: Option<Distribution>,
}

impl Measure {
    /// A quantity that is one figure.
    pub(crate) fn value(quantity: Quantity, field: &str, value: f64) -> Self {
        Self {
            quantity,
            field: field.to_owned(),
            rule: Rule::Linear,
            figures: vec![(Statistic::Value, value)],
            distribution: None,
        }
    }

    /// A distribution in all of its figures.
    pub(crate) fn of(
        quantity: Quantity,
        field: &str,
        rule: Rule,
        distribution: Distribution,
    ) -> Self {
        Self {
            quantity,
            field: field.to_owned(),
            rule,
            figures: Vec::new(),
            distribution: Some(distribution),
        }
    }

    /// A figure: as the file has it, or else as the distribution has it.
    pub(crate) fn figure(&self, statistic: Statistic) -> Option<f64> {
        let listed = self.figures.iter().find(|(known, _)| *known == statistic);
        listed
            .map(|&(_, value)| value)
            .or_else(|| self.distribution.as_ref()?.figure(statistic, self.rule))
    }
}

/// A results file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Results {
    /// Its path, as it was given.
    pub(crate) name: String,
    /// What wrote it, and what about.
    pub(crate) title: String,
    /// Which requests count.
    pub(crate) counted: &'static str,
    /// When the clock of a request starts, and over what rates are taken.
    pub(crate) clock: &'static str,
    /// At most one of each quantity.
    pub(crate) measures: Vec<Measure>,
    /// The report, where it is one of servesim.
    pub(crate) report: Option<Box<Report>>,
}

impl Results {
    pub(crate) fn measure(&self, quantity: Quantity) -> Option<&Measure> {
        self.measures.iter().find(|measure| measure.quantity == quantity)
    }

    /// A figure, if the file has it.
    pub(crate) fn figure(&self, quantity: Quantity, statistic: Statistic) -> Option<f64> {
        self.measure(quantity)?.figure(statistic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_have_up_to_three_decimals() {
        let texts = ["p99", "99.9", "p50.0", "p0", "p100"].map(Percent::parse);
        let expected = [99_000, 99_900, 50_000, 0, 100_000].map(|part| Some(Percent(part)));
        assert_eq!(texts, expected);
        for bad in ["p", "p-1", "p101", "p99.9999", "pinf", "p1e1", "", "x"] {
            assert_eq!(Percent::parse(bad), None, "{bad}");
        }
        assert_eq!(
            [99_900, 99_000, 0].map(|part| Percent(part).to_string()),
            ["p99.9", "p99", "min"]
        );
    }

    #[test]
    fn every_quantity_has_a_key_of_its_own() {
        let mut keys = Quantity::ALL.map(Quantity::key);
        keys.sort_unstable();
        assert!(keys.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
