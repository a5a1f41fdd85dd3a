//! Results side by side: what they have in common, by definition, and how far the others are from the first.

mod align;
mod distance;
pub(crate) mod limit;
mod page;
mod show;
mod speculation;
#[cfg(test)]
mod tests;

use std::io::{self, Write};

use serde::{Serialize, Serializer};

use crate::metrics::summary::RunSummary;

use super::results::model::{Percent, Quantity, Results, Statistic};
use align::Refusal;
use speculation::{SpeedUp, differences};

/// The name and number of the comparison's format.
const SCHEMA: &str = "servesim.comparison/2";

/// Results side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Comparison {
    schema: &'static str,
    /// The first is what the others are measured by.
    files: Vec<File>,
    /// What the first and at least one other know.
    figures: Vec<Figure>,
    /// Of every latency whose distribution the first and another know.
    distances: Vec<Apart>,
    /// What looks alike and means something else.
    not_compared: Vec<Refusal>,
    /// What is compared although it is not defined quite the same, and what it is called where.
    definitions: Vec<String>,
    /// Fields of the scenario in which any report differs from the first report.
    differing_fields: Vec<String>,
    /// How much faster it goes with speculation than without; absent unless exactly one of two reports speculates.
    speculation: Option<SpeedUp>,
}

/// A file that is compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct File {
    name: String,
    /// What wrote it, and what about.
    title: String,
}

/// A figure of each file.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Figure {
    /// As `--fail-above` names it.
    name: String,
    #[serde(skip)]
    quantity: Quantity,
    #[serde(skip)]
    statistic: Statistic,
    unit: &'static str,
    values: Vec<Option<f64>>,
    /// Each less the first.
    differences: Vec<Option<f64>>,
    /// Each difference over the first.
    relative_errors: Vec<Option<f64>>,
}

/// How far a distribution is from the first file's.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Apart {
    #[serde(serialize_with = "key_of")]
    quantity: Quantity,
    /// Which file, from 0.
    file: usize,
    /// Kolmogorov and Smirnov's distance.
    ks: f64,
    /// Wasserstein's distance of order 1.
    w1_ms: f64,
    /// The same over the first file's mean.
    w1_ratio: Option<f64>,
}

impl Comparison {
    /// Compares results, of which there are two at least.
    #[must_use]
    pub(crate) fn of(results: &[Results]) -> Self {
        let reports: Vec<_> =
            results.iter().filter_map(|results| results.report.as_deref()).collect();
        let mut differing_fields = Vec::new();
        for report in reports.iter().skip(1) {
            differences(&reports[0].scenario, &report.scenario, "", &mut differing_fields);
        }
        differing_fields.sort();
        differing_fields.dedup();
        let runs: Vec<&RunSummary> = reports.iter().map(|report| &report.run).collect();
        let are_all = reports.len() == results.len();
        let file =
            |results: &Results| File { name: results.name.clone(), title: results.title.clone() };
        Self {
            schema: SCHEMA,
            files: results.iter().map(file).collect(),
            figures: figures(results),
            distances: distances(results),
            not_compared: align::refusals(results),
            definitions: align::definitions(results),
            speculation: SpeedUp::of(&runs, &differing_fields).filter(|_| are_all),
            differing_fields,
        }
    }

    /// Writes it as indented JSON and a final line break.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub(crate) fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        out.write_all(b"\n")
    }
}

/// How a file is called for short: A, B, ... Z, then numbers.
fn letter(at: usize) -> String {
    let letter = u8::try_from(at).ok().filter(|&at| at < 26).map(|at| char::from(b'A' + at));
    letter.map_or_else(|| (at + 1).to_string(), String::from)
}

/// How `--fail-above` and the JSON call a figure.
fn name_of(quantity: Quantity, statistic: Statistic) -> String {
    match statistic {
        Statistic::Value => quantity.key().to_owned(),
        _ => format!("{}_{statistic}", quantity.key()),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn key_of<S: Serializer>(quantity: &Quantity, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(quantity.key())
}

/// Every figure that the first and another know.
fn figures(results: &[Results]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for quantity in Quantity::ALL {
        for statistic in statistics(quantity, results) {
            let values: Vec<_> =
                results.iter().map(|results| results.figure(quantity, statistic)).collect();
            let Some(first) = values[0] else { continue };
            if values.iter().skip(1).all(Option::is_none) {
                continue;
            }
            let differences: Vec<_> =
                values.iter().map(|value| value.map(|value| value - first)).collect();
            let relative_errors =
                differences.iter().map(|&difference| relative(difference?, first)).collect();
            figures.push(Figure {
                name: name_of(quantity, statistic),
                quantity,
                statistic,
                unit: quantity.unit(),
                values,
                differences,
                relative_errors,
            });
        }
    }
    figures
}

/// A difference over what it is measured by; `None` where that is nothing, and so no measure.
fn relative(difference: f64, first: f64) -> Option<f64> {
    (first > 0.0).then(|| difference / first)
}

/// The statistics that any file names, and the usual ones where any has the values themselves; in order.
fn statistics(quantity: Quantity, results: &[Results]) -> Vec<Statistic> {
    let measures = results.iter().filter_map(|results| results.measure(quantity));
    let mut statistics: Vec<Statistic> = measures
        .flat_map(|measure| {
            let named = measure.figures.iter().map(|&(statistic, _)| statistic);
            let usual = [Statistic::Mean, Statistic::Std].into_iter();
            let usual = usual.chain(Percent::USUAL.map(Statistic::Percentile));
            let has_values = measure.distribution.is_some();
            named.chain(usual.filter(move |_| has_values)).collect::<Vec<_>>()
        })
        .collect();
    statistics.sort_unstable();
    statistics.dedup();
    statistics
}

fn distances(results: &[Results]) -> Vec<Apart> {
    let mut found = Vec::new();
    for quantity in Quantity::ALL {
        let Some(first) = results[0].measure(quantity) else { continue };
        for (file, other) in results.iter().enumerate().skip(1) {
            let other = other.measure(quantity).and_then(|other| other.distribution.as_ref());
            let Some((a, b)) = first.distribution.as_ref().zip(other) else { continue };
            let apart = distance::distance(a, b);
            let mean = first.figure(Statistic::Mean);
            found.push(Apart {
                quantity,
                file,
                ks: apart.ks,
                w1_ms: apart.w1_ms,
                w1_ratio: mean.and_then(|mean| relative(apart.w1_ms, mean)),
            });
        }
    }
    found
}
