//! Limits to how far the others may be from the first.

use crate::base::hint::nearest;
use crate::report::format::figure;
use crate::report::results::model::{Percent, Quantity, Results, Statistic};

use super::{align, letter, name_of, relative};

/// How far a figure may be from the first file's, in either direction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limit {
    quantity: Quantity,
    statistic: Statistic,
    most: Most,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Most {
    /// Of the first file's.
    Ratio(f64),
    Milliseconds(f64),
}

/// Why a limit cannot be checked.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("--fail-above {flag}: {found}, expected {accepted}")]
pub(crate) struct LimitError {
    flag: String,
    found: String,
    accepted: String,
}

impl Limit {
    /// From `ttft_p90=10%` or `ttft_p90=5ms`.
    ///
    /// # Errors
    /// There is no such figure, or the limit is none.
    pub(crate) fn parse(flag: &str) -> Result<Self, LimitError> {
        let error =
            |found: String, accepted: String| LimitError { flag: flag.to_owned(), found, accepted };
        let Some((name, most)) = flag.split_once('=') else {
            let accepted = "FIGURE=LIMIT, such as ttft_p90=10% or e2e_mean=5ms";
            return Err(error("no `=`".to_owned(), accepted.to_owned()));
        };
        let Some((quantity, statistic)) = figure_of(name) else {
            let names = names();
            let hint = nearest(name, names.iter().map(String::as_str));
            let hint = hint.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
            let accepted =
                format!("a figure such as ttft_p90, e2e_mean or output_tokens_per_s{hint}");
            return Err(error(format!("there is no figure `{name}`"), accepted));
        };
        let number = |text: &str| {
            text.trim().parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0)
        };
        let percent = most.strip_suffix('%').and_then(number);
        let ms = most.strip_suffix("ms").and_then(number).filter(|_| quantity.is_latency());
        let most =
            percent.map(|percent| Most::Ratio(percent / 100.0)).or(ms.map(Most::Milliseconds));
        let Some(most) = most else {
            let ms = if quantity.is_latency() { " or milliseconds, such as 5ms" } else { "" };
            let found =
                format!("the limit is `{}`", flag.split_once('=').map_or("", |pair| pair.1));
            return Err(error(found, format!("a percentage of 0 or more, such as 10%{ms}")));
        };
        Ok(Self { quantity, statistic, most })
    }

    /// A sentence for each file that is further from the first.
    ///
    /// # Errors
    /// A file does not have the figure, or the first one's is 0 and the limit a percentage.
    pub(crate) fn exceeded(&self, results: &[Results]) -> Result<Vec<String>, LimitError> {
        let name = name_of(self.quantity, self.statistic);
        let error = |found: String, accepted: &str| LimitError {
            flag: name.clone(),
            found,
            accepted: accepted.to_owned(),
        };
        let mut values = Vec::new();
        for (at, file) in results.iter().enumerate() {
            let Some(value) = file.figure(self.quantity, self.statistic) else {
                let refused = align::refusals(results).into_iter().find(|refusal| {
                    let of =
                        |results: &Results| results.measure(self.quantity).map(|m| m.field.clone());
                    (at == 0 || at == refusal.file)
                        && (of(&results[0]).as_deref() == Some(&refusal.a)
                            || of(&results[refusal.file]).as_deref() == Some(&refusal.b))
                });
                let reason = refused.map_or_else(String::new, |refusal| {
                    format!(" (`{}` and `{}`: {})", refusal.a, refusal.b, refusal.reason)
                });
                let found = format!("{} has no such figure{reason}", file.name);
                return Err(error(found, "one that every file has"));
            };
            values.push(value);
        }
        let unit = self.quantity.unit();
        let mut sentences = Vec::new();
        for (at, value) in values.iter().enumerate().skip(1) {
            let difference = value - values[0];
            let ratio = relative(difference, values[0]);
            let is_exceeded = match (self.most, ratio) {
                (Most::Milliseconds(most), _) => difference.abs() > most,
                (Most::Ratio(most), Some(ratio)) => ratio.abs() > most,
                (Most::Ratio(_), None) => {
                    return Err(error(format!("it is 0 in {}", results[0].name), "a limit in ms"));
                }
            };
            if !is_exceeded {
                continue;
            }
            let (letter, side) = (letter(at), if difference > 0.0 { "above" } else { "below" });
            let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
            let most = match self.most {
                Most::Ratio(most) => format!("{}%", figure(most * 100.0)),
                Most::Milliseconds(most) => format!("{} ms", figure(most)),
            };
            let percent = ratio.map(|ratio| format!(" ({}%)", figure(ratio.abs() * 100.0)));
            sentences.push(format!(
                "{name} of {letter} is {}{unit}{} {side} A, more than {most}",
                figure(difference.abs()),
                percent.unwrap_or_default()
            ));
        }
        Ok(sentences)
    }
}

/// The figure of a name.
fn figure_of(name: &str) -> Option<(Quantity, Statistic)> {
    Quantity::ALL.into_iter().find_map(|quantity| {
        if !quantity.is_latency() {
            return (quantity.key() == name).then_some((quantity, Statistic::Value));
        }
        let statistic = match name.strip_prefix(quantity.key())?.strip_prefix('_')? {
            "mean" => Statistic::Mean,
            "std" => Statistic::Std,
            "min" => Statistic::Percentile(Percent::of(0.0)),
            "max" => Statistic::Percentile(Percent::of(100.0)),
            other => {
                let percent = other.strip_prefix('p').and_then(Percent::parse)?;
                Statistic::Percentile(percent)
            }
        };
        Some((quantity, statistic))
    })
}

/// Names of figures, for a hint.
fn names() -> Vec<String> {
    let mut names = Vec::new();
    for quantity in Quantity::ALL {
        if !quantity.is_latency() {
            names.push(name_of(quantity, Statistic::Value));
            continue;
        }
        let statistics = [Statistic::Mean, Statistic::Std].into_iter();
        let statistics = statistics.chain(Percent::USUAL.map(Statistic::Percentile));
        names.extend(statistics.map(|statistic| name_of(quantity, statistic)));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_percentages_or_milliseconds() {
        let limit = Limit::parse("ttft_p90=10%").unwrap();
        assert_eq!(limit.quantity, Quantity::Ttft);
        assert_eq!(limit.statistic, Statistic::Percentile(Percent::of(90.0)));
        assert_eq!(limit.most, Most::Ratio(0.1));
        assert_eq!(Limit::parse("tpot_weighted_mean=5ms").unwrap().most, Most::Milliseconds(5.0));
        assert_eq!(
            Limit::parse("requests_per_s=0%").unwrap().quantity,
            Quantity::RequestsPerSecond
        );
    }

    #[test]
    fn what_is_no_limit_is_refused() {
        for (flag, expected) in [
            ("ttft_p90", "no `=`"),
            ("ttf_p90=1%", "did you mean `ttft_p90`"),
            ("ttft=1%", "there is no figure `ttft`"),
            ("ttft_p101=1%", "there is no figure"),
            ("ttft_p90=-1%", "the limit is `-1%`"),
            ("ttft_p90=NaN%", "the limit is `NaN%`"),
            ("ttft_p90=10", "such as 10% or milliseconds"),
            ("requests_per_s=5ms", "a percentage of 0 or more, such as 10%"),
        ] {
            let error = Limit::parse(flag).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
