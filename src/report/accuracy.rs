//! Measured beside simulated: what was served, scored, and shown.

use std::io::{self, Write};

use serde::Serialize;

use super::format::{count, counted, figure, known};
use super::plain;
use super::table::{Look, Piece, table, write_pieces};
use crate::metrics::samples::percentile;

/// The name and number of the format.
const SCHEMA: &str = "servesim.accuracy/1";

/// A request in both worlds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Served {
    /// Tokens it generated.
    pub(crate) output_tokens: u32,
    /// When it arrived, from the first measured request.
    pub(crate) measured_arrival_ms: f64,
    /// Measured, where it was.
    pub(crate) measured_ttft_ms: Option<f64>,
    /// Measured, where it was.
    pub(crate) measured_e2e_ms: Option<f64>,
    /// When it arrived in the simulation.
    pub(crate) arrival_ms: f64,
    /// Simulated.
    pub(crate) ttft_ms: f64,
    /// Simulated.
    pub(crate) e2e_ms: f64,
}

/// The requests of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Parts {
    /// Those on which parameters are fitted.
    pub(crate) fitted: Vec<Served>,
    /// The others.
    pub(crate) held_out: Vec<Served>,
    /// Those that were measured and did not finish in the simulation.
    pub(crate) unfinished: usize,
}

/// A latency in both worlds, over the same requests.
#[derive(Clone, Debug, Default, PartialEq)]
struct Pairs {
    measured_ms: Vec<f64>,
    simulated_ms: Vec<f64>,
}

/// One figure in both worlds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ScoredFigure {
    /// As `--max-error` names it.
    pub(crate) name: String,
    measured: f64,
    simulated: f64,
    /// Simulated over measured, less 1; absent where 0 was measured.
    pub(crate) error_ratio: Option<f64>,
}

/// What a set of requests came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Score {
    /// Requests that finished in both worlds.
    pub(crate) requests: usize,
    /// Every figure that was measured.
    pub(crate) figures: Vec<ScoredFigure>,
    /// By how much single requests are off: the root of the mean square of the logarithm of simulated over measured,
    /// by latency.
    spread: Vec<(&'static str, f64)>,
}

/// The percentiles of a score.
const PERCENTILES: [(&str, f64); 3] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)];

/// Logarithms of ratios beyond this count as this.
const LOG_RATIO_MAX: f64 = 0.7;

impl Score {
    /// Scores requests.
    pub(crate) fn of(requests: &[Served]) -> Self {
        let mut ttft = Pairs::default();
        let mut tpot = Pairs::default();
        let mut e2e = Pairs::default();
        let mut gaps = 0.0;
        let mut decoding = [0.0; 2];
        let mut ends = [0.0_f64; 2];
        let mut starts = [f64::INFINITY; 2];
        let mut tokens = 0.0;
        for request in requests {
            let n = f64::from(request.output_tokens);
            if let Some(measured) = request.measured_ttft_ms {
                ttft.push(measured, request.ttft_ms);
            }
            let Some(measured) = request.measured_e2e_ms else { continue };
            e2e.push(measured, request.e2e_ms);
            tokens += n;
            let spans =
                [(request.measured_arrival_ms, measured), (request.arrival_ms, request.e2e_ms)];
            for (world, (arrival, e2e)) in spans.into_iter().enumerate() {
                starts[world] = starts[world].min(arrival);
                ends[world] = ends[world].max(arrival + e2e);
            }
            if let Some(first) = request.measured_ttft_ms
                && request.output_tokens > 1
            {
                let parts = [measured - first, request.e2e_ms - request.ttft_ms];
                tpot.push(parts[0] / (n - 1.0), parts[1] / (n - 1.0));
                gaps += n - 1.0;
                decoding[0] += parts[0];
                decoding[1] += parts[1];
            }
        }
        let mut figures = Vec::new();
        let mut spread = Vec::new();
        for (name, pairs) in [("ttft", &mut ttft), ("tpot", &mut tpot), ("e2e", &mut e2e)] {
            if pairs.measured_ms.is_empty() {
                continue;
            }
            spread.push((name, pairs.spread()));
            pairs.score(name, &mut figures);
            if name == "tpot" {
                // The gaps of a request add up to its decoding.
                figures.push(ScoredFigure::new("itl_mean", decoding[0] / gaps, decoding[1] / gaps));
            }
        }
        let spans_s = [0, 1].map(|world| (ends[world] - starts[world]) / 1e3);
        if spans_s.iter().all(|&span| span > 0.0) {
            let per_s = |amount: f64| spans_s.map(|span| amount / span);
            for (name, [measured, simulated]) in [
                ("requests_per_s", per_s(e2e.measured_ms.len() as f64)),
                ("output_tokens_per_s", per_s(tokens)),
            ] {
                figures.push(ScoredFigure::new(name, measured, simulated));
            }
        }
        Self { requests: requests.len(), figures, spread }
    }

    /// What fitting minimises: the mean square of the relative errors of mean, p50 and p90 of each latency, and a
    /// tenth of the mean square of the logarithms of the ratios of single TPOTs. Single TTFTs are left out: under
    /// load they are off by a pass either way.
    pub(crate) fn cost(&self) -> f64 {
        let wanted = |name: &str| {
            ["ttft", "tpot", "e2e"].iter().any(|metric| {
                name.strip_prefix(metric)
                    .is_some_and(|rest| ["_mean", "_p50", "_p90"].contains(&rest))
            })
        };
        let errors: Vec<f64> = self
            .figures
            .iter()
            .filter(|figure| wanted(&figure.name))
            .filter_map(|figure| figure.error_ratio)
            .collect();
        let squares: f64 = errors.iter().map(|error| error * error).sum();
        let single = self.spread.iter().find(|(name, _)| *name == "tpot");
        let single = single.map_or(0.0, |(_, spread)| spread * spread);
        squares / errors.len().max(1) as f64 + 0.1 * single
    }
}

impl Pairs {
    fn push(&mut self, measured: f64, simulated: f64) {
        self.measured_ms.push(measured);
        self.simulated_ms.push(simulated);
    }

    /// Before the values are sorted.
    fn spread(&self) -> f64 {
        let pairs = self.measured_ms.iter().zip(&self.simulated_ms);
        let squares = pairs
            .filter(|(measured, simulated)| **measured > 0.0 && **simulated > 0.0)
            .map(|(measured, simulated)| {
                libm::log(simulated / measured).clamp(-LOG_RATIO_MAX, LOG_RATIO_MAX)
            });
        let squares: f64 = squares.map(|log| log * log).sum();
        (squares / self.measured_ms.len() as f64).sqrt()
    }

    fn score(&mut self, name: &str, figures: &mut Vec<ScoredFigure>) {
        let worlds = [&mut self.measured_ms, &mut self.simulated_ms];
        let [measured, simulated] = worlds.map(|values| {
            values.sort_by(f64::total_cmp);
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let mut all = vec![("mean", mean)];
            all.extend(PERCENTILES.map(|(name, share)| (name, percentile(values, share))));
            all
        });
        for ((statistic, measured), (_, simulated)) in measured.into_iter().zip(simulated) {
            figures.push(ScoredFigure::new(&format!("{name}_{statistic}"), measured, simulated));
        }
    }
}

impl ScoredFigure {
    fn new(name: &str, measured: f64, simulated: f64) -> Self {
        let ratio = simulated / measured - 1.0;
        let error_ratio = ratio.is_finite().then_some(ratio);
        Self { name: name.to_owned(), measured, simulated, error_ratio }
    }
}

/// A value that was fitted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FittedValue {
    /// The field of the scenario.
    pub(crate) field: String,
    /// What it was at the start.
    pub(crate) start: f64,
    /// What it came to.
    pub(crate) value: f64,
    /// Whether it came to an end of its range, so that the best value may lie beyond.
    pub(crate) is_at_bound: bool,
}

/// The score of one run, or of a part of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct RunScore {
    /// The run.
    pub(crate) run: String,
    /// `all`, `fitted` or `held out`.
    pub(crate) part: &'static str,
    /// Requests that were measured and did not finish in the simulation.
    pub(crate) unfinished: usize,
    /// What it came to.
    #[serde(flatten)]
    pub(crate) score: Score,
}

/// The scores of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct CaseScore {
    /// Its name.
    pub(crate) case: String,
    /// Where the measurements come from.
    pub(crate) source: Option<String>,
    /// What was fitted; empty if nothing was.
    pub(crate) fitted: Vec<FittedValue>,
    /// Replays of all runs that fitting took.
    pub(crate) evaluations: usize,
    /// Its runs.
    pub(crate) runs: Vec<RunScore>,
    /// Errors of others, in percent.
    pub(crate) peers: Vec<(String, Vec<(String, f64)>)>,
}

/// How the errors of a figure lie over all runs that are not fitted.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Pooled {
    figure: String,
    runs: usize,
    /// The median of the errors' amounts.
    median_error_ratio: f64,
    /// The largest amount, with its sign, and where.
    worst_error_ratio: f64,
    worst: String,
}

/// The scores of all cases.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Accuracy {
    schema: &'static str,
    pub(crate) cases: Vec<CaseScore>,
    pooled: Vec<Pooled>,
}

impl Accuracy {
    /// Puts cases together.
    pub(crate) fn of(cases: Vec<CaseScore>) -> Self {
        let mut pooled: Vec<Pooled> = Vec::new();
        let mut errors: Vec<(String, Vec<(f64, String)>)> = Vec::new();
        for case in &cases {
            for run in case.runs.iter().filter(|run| run.part != FITTED) {
                let place = format!("{}, {}", case.case, run.run);
                for figure in &run.score.figures {
                    let Some(error) = figure.error_ratio else { continue };
                    match errors.iter_mut().find(|(name, _)| *name == figure.name) {
                        Some((_, list)) => list.push((error, place.clone())),
                        None => errors.push((figure.name.clone(), vec![(error, place.clone())])),
                    }
                }
            }
        }
        for (figure, list) in errors {
            let mut amounts: Vec<f64> = list.iter().map(|(error, _)| error.abs()).collect();
            amounts.sort_by(f64::total_cmp);
            let worst = list.iter().max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()));
            let Some((worst_error_ratio, worst)) = worst.cloned() else { continue };
            pooled.push(Pooled {
                figure,
                runs: amounts.len(),
                median_error_ratio: percentile(&amounts, 0.5),
                worst_error_ratio,
                worst,
            });
        }
        Self { schema: SCHEMA, cases, pooled }
    }

    /// Runs whose error is above what `limits` allow: by figure, as ratios. Fitted parts do not count.
    pub(crate) fn exceeded(&self, limits: &[(String, f64)]) -> Vec<String> {
        let mut sentences = Vec::new();
        for case in &self.cases {
            for run in case.runs.iter().filter(|run| run.part != FITTED) {
                for (name, most) in limits {
                    let figure = run.score.figures.iter().find(|figure| figure.name == *name);
                    let error = figure.and_then(|figure| figure.error_ratio);
                    if error.is_none_or(|error| error.abs() > *most) {
                        let found = known(error, signed);
                        sentences.push(format!(
                            "{}, {}, {}: {name} is off by {found} %, allowed are {} %",
                            case.case,
                            run.run,
                            run.part,
                            figure_of(*most)
                        ));
                    }
                }
            }
        }
        sentences
    }

    /// The names of all figures.
    pub(crate) fn names() -> Vec<String> {
        let mut names = Vec::new();
        for latency in ["ttft", "tpot", "e2e"] {
            names.push(format!("{latency}_mean"));
            names.extend(PERCENTILES.map(|(percent, _)| format!("{latency}_{percent}")));
        }
        names.extend(["itl_mean", "requests_per_s", "output_tokens_per_s"].map(str::to_owned));
        names
    }

    /// Writes tables for a terminal.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub(crate) fn write_table(&self, out: &mut dyn Write) -> io::Result<()> {
        write_pieces(self.pieces(), Look::default(), out)
    }

    /// Writes the same tables as Markdown.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub(crate) fn write_markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        plain::write_pieces(self.pieces(), out)
    }

    /// Writes everything as JSON.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub(crate) fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }

    /// Writes a row for every figure of every run, not rounded.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub(crate) fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut writer = csv::Writer::from_writer(out);
        let header =
            ["case", "run", "part", "requests", "figure", "measured", "simulated", "error_ratio"];
        writer.write_record(header)?;
        for case in &self.cases {
            for run in &case.runs {
                for figure in &run.score.figures {
                    let error = figure.error_ratio.map(|e| e.to_string()).unwrap_or_default();
                    writer.write_record([
                        case.case.as_str(),
                        &run.run,
                        run.part,
                        &run.score.requests.to_string(),
                        &figure.name,
                        &figure.measured.to_string(),
                        &figure.simulated.to_string(),
                        &error,
                    ])?;
                }
            }
        }
        writer.flush()
    }

    fn pieces(&self) -> Vec<Vec<Piece>> {
        let mut groups: Vec<Vec<Piece>> = self.cases.iter().map(CaseScore::pieces).collect();
        if self.cases.iter().map(|case| case.runs.len()).sum::<usize>() > 1 {
            let rows = self.pooled.iter().map(|pooled| {
                vec![
                    pooled.figure.clone(),
                    count(pooled.runs as u64),
                    figure_of(pooled.median_error_ratio),
                    signed(pooled.worst_error_ratio),
                    pooled.worst.clone(),
                ]
            });
            let header =
                ["over all runs", "runs", "median error (%)", "worst error (%)", "worst in"];
            groups.push(vec![
                Piece::Title("All runs and parts that were not fitted".to_owned()),
                Piece::table(table(&header, rows.collect())),
            ]);
        }
        groups
    }
}

/// The part of a run on which parameters were fitted.
pub(crate) const FITTED: &str = "fitted";

impl CaseScore {
    fn pieces(&self) -> Vec<Piece> {
        let mut pieces = vec![Piece::Title(self.case.clone())];
        pieces.extend(self.source.clone().map(Piece::Line));
        if !self.fitted.is_empty() {
            let rows = self.fitted.iter().map(|fitted| {
                let note = if fitted.is_at_bound { "at the end of its range" } else { "" };
                vec![
                    fitted.field.clone(),
                    figure(fitted.start),
                    figure(fitted.value),
                    note.to_owned(),
                ]
            });
            let header = ["fitted field", "start", "value", ""];
            pieces.push(Piece::table(table(&header, rows.collect())));
        }
        for run in &self.runs {
            let unfinished = match run.unfinished {
                0 => String::new(),
                n => format!(", {} did not finish", counted(n as u64, "other")),
            };
            let title = format!(
                "{}, {} ({}{unfinished})",
                run.run,
                run.part,
                counted(run.score.requests as u64, "request")
            );
            pieces.push(Piece::Line(title));
            pieces.push(Piece::table(run.score.table()));
        }
        for (peer, errors) in &self.peers {
            let errors: Vec<String> =
                errors.iter().map(|(name, percent)| format!("{name} {percent:+.1}")).collect();
            pieces.push(Piece::Line(format!(
                "{peer}, errors as published, in %: {}",
                errors.join(", ")
            )));
        }
        pieces
    }
}

impl Score {
    fn table(&self) -> comfy_table::Table {
        let statistics = ["mean", "p50", "p90", "p99"];
        let mut rows = Vec::new();
        for (metric, label) in
            [("ttft", "TTFT (ms)"), ("tpot", "TPOT (ms)"), ("itl", "ITL (ms)"), ("e2e", "E2E (ms)")]
        {
            let of = |statistic: &&str| {
                let name = format!("{metric}_{statistic}");
                self.figures.iter().find(|figure| figure.name == name)
            };
            if statistics.iter().all(|statistic| of(statistic).is_none()) {
                continue;
            }
            rows.extend(rows_of(label, &statistics.iter().map(of).collect::<Vec<_>>()));
        }
        for (name, label) in
            [("requests_per_s", "requests/s"), ("output_tokens_per_s", "output tokens/s")]
        {
            if let Some(figure) = self.figures.iter().find(|figure| figure.name == name) {
                rows.extend(rows_of(label, &[Some(figure), None, None, None]));
            }
        }
        table(&["", "", "mean", "p50", "p90", "p99"], rows)
    }
}

/// A figure in all statistics: measured, simulated, and by how much it is off.
fn rows_of(label: &str, figures: &[Option<&ScoredFigure>]) -> Vec<Vec<String>> {
    let row = |label: &str, kind: &str, of: &dyn Fn(&ScoredFigure) -> String| {
        let mut row = vec![label.to_owned(), kind.to_owned()];
        row.extend(figures.iter().map(|f| f.map_or_else(String::new, of)));
        row
    };
    vec![
        row(label, "measured", &|f| figure(f.measured)),
        row("", "simulated", &|f| figure(f.simulated)),
        row("", "error (%)", &|f| known(f.error_ratio, signed)),
    ]
}

/// A ratio in percent, with its sign.
fn signed(ratio: f64) -> String {
    format!("{:+.1}", ratio * 100.0)
}

/// A ratio in percent.
fn figure_of(ratio: f64) -> String {
    format!("{:.1}", ratio * 100.0)
}
