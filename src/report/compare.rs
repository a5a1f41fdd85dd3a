//! Reports side by side: each figure, and its ratio to that of the first.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use super::Report;
use super::format::{count, figure, known, wrapped};
use super::table::{WIDTH_MAX, table, write_table};
use crate::metrics::samples::Summary;
use crate::metrics::summary::RunSummary;

/// The name and number of the comparison's format.
const SCHEMA: &str = "servesim.comparison/1";

/// Fields that a sentence names before it only counts them.
const NAMED_MAX: usize = 4;

/// Why a report cannot be compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CompareError {
    /// The file cannot be read.
    #[error("{}: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The file is no report of this format.
    #[error("{}: {found}, expected a report of servesim ({})", path.display(), super::SCHEMA)]
    NoReport {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: String,
    },
}

/// Reads the report at `path`: a file, or a folder with a `report.json`.
///
/// # Errors
/// It cannot be read, or is no report of this format.
pub(crate) fn load(path: &Path) -> Result<Report, CompareError> {
    let path = if path.is_dir() { path.join("report.json") } else { path.to_owned() };
    let bytes = fs::read(&path).map_err(|cause| CompareError::Io { path: path.clone(), cause })?;
    let no_report = |found: String| CompareError::NoReport { path: path.clone(), found };
    let value: Value =
        serde_json::from_slice(&bytes).map_err(|error| no_report(format!("no JSON ({error})")))?;
    match value.get("schema").and_then(Value::as_str) {
        Some(super::SCHEMA) => {}
        Some(other) => return Err(no_report(format!("`schema` is {other:?}"))),
        None => return Err(no_report("there is no `schema`".to_owned())),
    }
    serde_json::from_value(value).map_err(|error| no_report(error.to_string()))
}

/// Reports side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Comparison {
    schema: &'static str,
    /// What each report is called.
    reports: Vec<String>,
    /// What was simulated, for each.
    engines: Vec<String>,
    figures: Vec<Figure>,
    /// Fields of the scenario in which any report differs from the first.
    differing_fields: Vec<String>,
    /// How much faster it goes with speculation than without; absent unless exactly one of two reports speculates.
    speculation: Option<SpeedUp>,
}

/// A figure of each report.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Figure {
    /// Where it is in a report.
    name: String,
    #[serde(skip)]
    label: String,
    #[serde(skip)]
    is_count: bool,
    values: Vec<Option<f64>>,
    /// Each over the first.
    ratios: Vec<Option<f64>>,
}

/// How much faster it goes with speculation: the figure without over that with, or the other way round for rates.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct SpeedUp {
    tpot_mean: Option<f64>,
    e2e_mean: Option<f64>,
    output_tokens_per_s: Option<f64>,
    tokens_per_round_mean: Option<f64>,
    /// Fields besides those of speculation in which the two differ.
    other_differing_fields: Vec<String>,
}

impl Comparison {
    /// Compares reports, which have names. The first is what the others are measured by.
    #[must_use]
    pub(crate) fn of(reports: &[(String, Report)]) -> Self {
        let runs: Vec<&RunSummary> = reports.iter().map(|(_, report)| &report.run).collect();
        let mut differing_fields = Vec::new();
        for (_, report) in reports.iter().skip(1) {
            differences(&reports[0].1.scenario, &report.scenario, "", &mut differing_fields);
        }
        differing_fields.sort();
        differing_fields.dedup();
        let speculation = SpeedUp::of(&runs, &differing_fields);
        Self {
            schema: SCHEMA,
            reports: reports.iter().map(|(name, _)| name.clone()).collect(),
            engines: reports.iter().map(|(_, report)| report.title.engine.clone()).collect(),
            figures: figures(&runs),
            differing_fields,
            speculation,
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

    /// Writes it as a table for a terminal.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub(crate) fn write_table(&self, out: &mut dyn Write) -> io::Result<()> {
        let letters: Vec<String> = (0..self.reports.len()).map(letter).collect();
        for ((letter, name), engine) in letters.iter().zip(&self.reports).zip(&self.engines) {
            writeln!(out, "{}", wrapped(&format!("{letter}: {name} | {engine}"), WIDTH_MAX))?;
        }
        if !self.differing_fields.is_empty() {
            let fields = named(&self.differing_fields);
            writeln!(out, "{}", wrapped(&format!("Scenarios differ in {fields}"), WIDTH_MAX))?;
        }
        writeln!(out)?;
        let mut header = vec!["Figure".to_owned()];
        header.extend(letters.iter().cloned());
        header.extend(letters.iter().skip(1).map(|letter| format!("{letter} / A")));
        let rows = self.figures.iter().filter(|row| row.values.iter().any(Option::is_some));
        let rows = rows.map(|row| {
            let mut cells = vec![row.label.clone()];
            let shown = if row.is_count { |value| count(value as u64) } else { figure };
            cells.extend(row.values.iter().map(|&value| known(value, shown)));
            cells.extend(row.ratios.iter().skip(1).map(|&ratio| known(ratio, figure)));
            cells
        });
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        write_table(&table(&header, rows.collect()), out)?;
        let Some(speed_up) = &self.speculation else { return Ok(()) };
        writeln!(out)?;
        writeln!(out, "{}", wrapped(&speed_up.sentence(), WIDTH_MAX))
    }
}

/// A, B, ... Z, then numbers.
fn letter(at: usize) -> String {
    let letter = u8::try_from(at).ok().filter(|&at| at < 26).map(|at| char::from(b'A' + at));
    letter.map_or_else(|| (at + 1).to_string(), String::from)
}

/// `a, b and 3 more`.
fn named(fields: &[String]) -> String {
    let shown = fields.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match fields.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// The figures that are compared, in order.
fn figures(runs: &[&RunSummary]) -> Vec<Figure> {
    type Metric = (&'static str, &'static str, fn(&RunSummary) -> Option<&Summary>);
    const METRICS: [Metric; 6] = [
        ("ttft_ms", "TTFT", |run| Some(&run.latency.ttft_ms)),
        ("tpot_ms", "TPOT", |run| Some(&run.latency.tpot_ms)),
        ("itl_ms", "ITL", |run| Some(&run.latency.itl_ms)),
        // Without speculation every token is a round of its own.
        ("emission_gap_ms", "emission gap", |run| Some(&run.latency.emission_gap_ms)),
        ("e2e_ms", "E2E", |run| Some(&run.latency.e2e_ms)),
        ("queue_ms", "queue time", |run| Some(&run.latency.queue_ms)),
    ];
    type Part = (&'static str, fn(&Summary) -> Option<f64>);
    const PARTS: [Part; 4] =
        [("mean", |s| s.mean), ("p50", |s| s.p50), ("p90", |s| s.p90), ("p99", |s| s.p99)];
    type Other = (&'static str, &'static str, fn(&RunSummary) -> Option<f64>);
    const OTHERS: [Other; 9] = [
        ("throughput.requests_per_s", "requests/s", |run| run.throughput.requests_per_s),
        ("throughput.input_tokens_per_s", "input tokens/s", |run| {
            run.throughput.input_tokens_per_s
        }),
        ("throughput.output_tokens_per_s", "output tokens/s", |run| {
            run.throughput.output_tokens_per_s
        }),
        ("throughput.span_s", "span (s)", |run| run.throughput.span_s),
        ("goodput.met_ratio", "met all SLOs (ratio)", |run| run.goodput.as_ref()?.met_ratio),
        ("prefix_cache.hit_ratio", "cache hits (ratio)", |run| run.prefix_cache.hit_ratio),
        ("speculation.tokens_per_round_mean", "tokens per round", |run| {
            run.speculation.as_ref()?.tokens_per_round_mean
        }),
        ("requests.completed", "completed", |run| Some(run.requests.completed as f64)),
        ("preemptions.total", "preemptions", |run| Some(run.preemptions.total as f64)),
    ];
    let mut figures = Vec::new();
    let speculates = runs.iter().any(|run| run.speculation.is_some());
    for (name, label, summary) in METRICS {
        if name == "emission_gap_ms" && !speculates {
            continue;
        }
        for (part, value) in PARTS {
            let of = |run: &RunSummary| summary(run).and_then(value);
            let (name, label) = (format!("latency.{name}.{part}"), format!("{label} {part} (ms)"));
            figures.push(Figure::of(name, label, runs, of));
        }
    }
    for (name, label, value) in OTHERS {
        figures.push(Figure::of(name.to_owned(), label.to_owned(), runs, value));
    }
    figures
}

impl Figure {
    fn of(
        name: String,
        label: String,
        runs: &[&RunSummary],
        value: impl Fn(&RunSummary) -> Option<f64>,
    ) -> Self {
        let values: Vec<_> = runs.iter().map(|run| value(run)).collect();
        let ratios = values.iter().map(|&value| over(value, values[0])).collect();
        let is_count = ["requests.", "preemptions."].iter().any(|part| name.starts_with(part));
        Self { name, label, is_count, values, ratios }
    }
}

/// `part` over `whole`, if both are known and that is a number.
fn over(part: Option<f64>, whole: Option<f64>) -> Option<f64> {
    part.zip(whole.filter(|&whole| whole != 0.0)).map(|(part, whole)| part / whole)
}

impl SpeedUp {
    /// The speed-up between two runs of which exactly one speculates.
    fn of(runs: &[&RunSummary], differing_fields: &[String]) -> Option<Self> {
        let &[a, b] = runs else { return None };
        let (with, without) = match (a.speculation.is_some(), b.speculation.is_some()) {
            (true, false) => (a, b),
            (false, true) => (b, a),
            _ => return None,
        };
        let is_other = |field: &&String| {
            !(field.as_str() == "name"
                || field.starts_with("speculation")
                || field.starts_with("pricing.draft")
                || field.split('.').any(|part| part.starts_with("speculative")))
        };
        Some(Self {
            tpot_mean: over(without.latency.tpot_ms.mean, with.latency.tpot_ms.mean),
            e2e_mean: over(without.latency.e2e_ms.mean, with.latency.e2e_ms.mean),
            output_tokens_per_s: over(
                with.throughput.output_tokens_per_s,
                without.throughput.output_tokens_per_s,
            ),
            tokens_per_round_mean: with.speculation.as_ref()?.tokens_per_round_mean,
            other_differing_fields: differing_fields.iter().filter(is_other).cloned().collect(),
        })
    }

    fn sentence(&self) -> String {
        let times = |ratio: Option<f64>| known(ratio, |ratio| format!("{} times", figure(ratio)));
        let others = match self.other_differing_fields.as_slice() {
            [] => String::new(),
            fields => format!("; besides speculation they differ in {}", named(fields)),
        };
        format!(
            "With speculation tokens come {} as fast (TPOT), requests end {} as fast (E2E), output throughput is {}; \
             {} tokens a round{others}",
            times(self.tpot_mean),
            times(self.e2e_mean),
            times(self.output_tokens_per_s),
            known(self.tokens_per_round_mean, figure)
        )
    }
}

/// The fields in which two values differ, as `outer.inner`. What only one has, or has as `null`, is named whole.
fn differences(a: &Value, b: &Value, path: &str, fields: &mut Vec<String>) {
    let (Value::Object(a), Value::Object(b)) = (a, b) else {
        if a != b {
            fields.push(path.to_owned());
        }
        return;
    };
    let mut names: Vec<&String> = a.keys().chain(b.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let of = |object: &serde_json::Map<String, Value>| {
            object.get(name).cloned().unwrap_or(Value::Null)
        };
        differences(&of(a), &of(b), &inner, fields);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::sample;

    /// The sample, and the same with every latency halved, and as if it had speculated.
    fn pair() -> [(String, Report); 2] {
        let plain = sample::report();
        let mut fast = plain.clone();
        for summary in [&mut fast.run.latency.tpot_ms, &mut fast.run.latency.e2e_ms] {
            summary.mean = summary.mean.map(|mean| mean / 2.0);
        }
        let mut rounds = crate::metrics::rounds::RoundStatistics::new(3);
        let mut some = crate::base::record::Rounds::default();
        some.add(2, 3, 1, 2);
        rounds.add(&some);
        fast.run.speculation = Some(rounds.summary());
        fast.scenario = json!({"name": "fast", "seed": 1, "engine": {"vllm": {"speculative_config": {"k": 3}}}});
        [("plain".to_owned(), plain), ("fast".to_owned(), fast)]
    }

    #[test]
    fn each_figure_has_its_ratio_to_the_first() {
        let comparison = Comparison::of(&pair());
        let of = |name: &str| {
            let figure = comparison.figures.iter().find(|figure| figure.name == name).unwrap();
            (figure.values.clone(), figure.ratios.clone())
        };
        // The sample's TPOT is 87.5 on average.
        let expected = (vec![Some(87.5), Some(43.75)], vec![Some(1.0), Some(0.5)]);
        assert_eq!(of("latency.tpot_ms.mean"), expected);
        let unknown = (vec![None, Some(2.0)], vec![None, None]);
        assert_eq!(of("speculation.tokens_per_round_mean"), unknown);
        assert_eq!(comparison.differing_fields, ["engine", "name"]);
    }

    #[test]
    fn speculation_is_measured_by_the_run_without_it() {
        let [plain, fast] = pair();
        for (a, b) in [(&plain, &fast), (&fast, &plain)] {
            let speed_up = Comparison::of(&[a.clone(), b.clone()]).speculation.unwrap();
            assert_eq!((speed_up.tpot_mean, speed_up.e2e_mean), (Some(2.0), Some(2.0)));
            assert_eq!(speed_up.output_tokens_per_s, Some(1.0));
            // The sample has no engine at all.
            assert_eq!(speed_up.other_differing_fields, ["engine"]);
        }
        assert_eq!(Comparison::of(&[plain.clone(), plain]).speculation, None);
        assert_eq!(Comparison::of(&[fast.clone(), fast]).speculation, None);
    }

    #[test]
    fn without_speculation_each_token_is_a_round() {
        let [plain, fast] = pair();
        let names = |comparison: &Comparison| -> Vec<String> {
            comparison.figures.iter().map(|figure| figure.name.clone()).collect()
        };
        let rounds = "latency.emission_gap_ms.mean".to_owned();
        assert!(!names(&Comparison::of(&[plain.clone(), plain.clone()])).contains(&rounds));
        let comparison = Comparison::of(&[plain, fast]);
        let row = comparison.figures.iter().find(|figure| figure.name == rounds).unwrap();
        // The sample's ITL is 87.5 on average.
        assert_eq!(row.values[0], Some(87.5));
    }

    #[test]
    fn differences_are_named_by_field() {
        let mut fields = Vec::new();
        let a = json!({"x": {"y": 1, "z": [1]}, "same": 1, "gone": 2});
        let b = json!({"x": {"y": 2, "z": [1, 2]}, "same": 1, "null": null});
        differences(&a, &b, "", &mut fields);
        assert_eq!(fields, ["gone", "x.y", "x.z"]);
    }

    #[test]
    fn what_is_no_report_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        for (text, expected) in [
            ("{", "no JSON"),
            ("{}", "there is no `schema`"),
            (r#"{"schema": "servesim.report/9"}"#, "`schema` is \"servesim.report/9\""),
            (r#"{"schema": "servesim.report/2"}"#, "missing field"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = load(folder.path()).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("servesim.report/2"), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(load(folder.path()), Err(CompareError::Io { .. })));
    }
}
