//! `servesim accuracy`, and the fitting part of `servesim calibrate`.

use std::io::{self, Write};
use std::path::Path;

use super::Outcome;
use super::args::{AccuracyArgs, CalibrateArgs, ReportFormat};
use super::error::CliError;
use crate::accuracy::{AccuracyError, Case, CaseError, Fitted, Parameter, find_cases, fit, replay};
use crate::base::hint::nearest;
use crate::base::output::ResultFile;
use crate::report::accuracy::{Accuracy, CaseScore, FITTED, FittedValue, RunScore, Score};

/// Scores simulated deployments by measured ones.
pub(super) fn accuracy(args: &AccuracyArgs) -> Result<Outcome, CliError> {
    let limits = limits(&args.max_error)?;
    let mut scores = Vec::new();
    for path in &args.cases {
        for case in find_cases(path)? {
            let case = Case::read(&case, args.data.as_deref())?;
            let fitted = if args.no_fit { None } else { searched(&case, args.quiet)? };
            scores.push(scored(&case, fitted.as_ref())?);
        }
    }
    show(&Accuracy::of(scores), args.format, &limits)
}

/// Fits the parameters of a case, and writes the scenario that has them.
pub(super) fn calibrate(args: &CalibrateArgs) -> Result<Outcome, CliError> {
    let limits = limits(&args.max_error)?;
    let case = Case::read(&args.observations, args.data.as_deref())?;
    let Some(fitted) = searched(&case, args.quiet)? else {
        let found = "no `fit`".to_owned();
        let accepted = "a case with fields to be fitted";
        return Err(CliError::Flag { flag: "calibrate", found, accepted });
    };
    let score = scored(&case, Some(&fitted))?;
    if let Some(path) = &args.out {
        let text = fitted_scenario(&case, &fitted)?;
        ResultFile::create(path, false)?.put(|out| out.write_all(text.as_bytes()))?;
    }
    show(&Accuracy::of(vec![score]), args.format, &limits)
}

/// The scenario with the fitted values, and where they come from.
fn fitted_scenario(case: &Case, fitted: &Fitted) -> Result<String, CliError> {
    let run = &case.config.runs[0];
    let scenario = case.scenario_of(run, &fitted.values)?;
    let name = &case.config.name;
    let mut text = format!("# {name}: fitted to measured requests by `servesim calibrate`.\n");
    let mut note = |line: String| {
        text.push_str("# ");
        text.push_str(&line);
        text.push('\n');
    };
    for (parameter, value) in case.config.fit.iter().zip(&fitted.values) {
        let Parameter { field, from, to, .. } = parameter;
        note(format!("{field} = {value}, from {from} to {to}"));
    }
    for run in case.config.runs.iter().filter(|run| run.fit_share > 0.0) {
        note(format!("on the first {} of the requests of `{}`", run.fit_share, run.name));
    }
    let ([from, to], replays) = (fitted.cost, fitted.evaluations);
    note(format!("{replays} replays; cost {from:.6} before, {to:.6} after"));
    text.push_str(&serde_json::to_string_pretty(&scenario).map_err(io::Error::from)?);
    text.push('\n');
    Ok(text)
}

fn searched(case: &Case, quiet: bool) -> Result<Option<Fitted>, CliError> {
    if case.config.fit.is_empty() {
        return Ok(None);
    }
    let is_shown = !quiet && io::IsTerminal::is_terminal(&io::stderr());
    let mut heard = |evaluations: usize, best: f64| {
        if is_shown {
            // Progress may be lost.
            let _ = write!(
                io::stderr(),
                "\r{}: {evaluations} replays, root mean square error {:.2} %  ",
                case.config.name,
                best.sqrt() * 100.0
            );
        }
    };
    let fitted = fit(case, &mut heard)?;
    if is_shown {
        let _ = writeln!(io::stderr());
    }
    Ok(Some(fitted))
}

fn scored(case: &Case, fitted: Option<&Fitted>) -> Result<CaseScore, AccuracyError> {
    let mut runs = Vec::new();
    let values = fitted.map_or(&[][..], |fitted| &fitted.values);
    for run in &case.config.runs {
        let mut parts = replay(case, run, values)?;
        let unfinished = parts.unfinished;
        let mut push = |part: &'static str, served: &[_]| {
            let (run, score) = (run.name.clone(), Score::of(served));
            runs.push(RunScore { run, part, unfinished, score });
        };
        if fitted.is_none() {
            parts.fitted.append(&mut parts.held_out);
            push("all", &parts.fitted);
            continue;
        }
        if !parts.fitted.is_empty() {
            push(FITTED, &parts.fitted);
        }
        if !parts.held_out.is_empty() {
            push("held out", &parts.held_out);
        }
    }
    let values = case.config.fit.iter().zip(values).map(|(parameter, &value)| {
        let margin = (parameter.to - parameter.from) * 1e-3;
        FittedValue {
            field: parameter.field.clone(),
            start: parameter.start,
            value,
            is_at_bound: value - parameter.from <= margin || parameter.to - value <= margin,
        }
    });
    let peers = case
        .config
        .peers
        .iter()
        .map(|peer| (peer.name.clone(), peer.errors_percent.clone().into_iter().collect()));
    Ok(CaseScore {
        case: case.config.name.clone(),
        source: case.config.source.clone(),
        fitted: values.collect(),
        evaluations: fitted.map_or(0, |fitted| fitted.evaluations),
        runs,
        peers: peers.collect(),
    })
}

/// Limits such as `ttft_p90=10%`, as ratios.
fn limits(flags: &[String]) -> Result<Vec<(String, f64)>, CliError> {
    let names = Accuracy::names();
    flags
        .iter()
        .map(|flag| {
            let refuse = |accepted| CliError::Flag { flag: "--max-error", found: flag.clone(), accepted };
            let (name, most) =
                flag.split_once('=').ok_or_else(|| refuse("FIGURE=PERCENT, such as ttft_p90=10%"))?;
            if !names.iter().any(|known| known == name) {
                let hint = nearest(name, names.iter().map(String::as_str));
                let hint = hint.map(|hint| format!(" (did you mean `{hint}`?)")).unwrap_or_default();
                let found = format!("{flag}{hint}");
                let accepted = "a figure such as ttft_mean, tpot_p90, e2e_p99, itl_mean or output_tokens_per_s";
                return Err(CliError::Flag { flag: "--max-error", found, accepted });
            }
            let percent = most.strip_suffix('%').and_then(|text| text.trim().parse::<f64>().ok());
            let percent = percent.filter(|percent| percent.is_finite() && *percent >= 0.0);
            let percent = percent.ok_or_else(|| refuse("a percentage of 0 or more, such as ttft_p90=10%"))?;
            Ok((name.to_owned(), percent / 100.0))
        })
        .collect()
}

fn show(
    accuracy: &Accuracy,
    format: ReportFormat,
    limits: &[(String, f64)],
) -> Result<Outcome, CliError> {
    let mut out = io::stdout().lock();
    match format {
        ReportFormat::Table => accuracy.write_table(&mut out)?,
        ReportFormat::Json => accuracy.write_json(&mut out)?,
        ReportFormat::Markdown => accuracy.write_markdown(&mut out)?,
        ReportFormat::Csv => accuracy.write_csv(&mut out)?,
    }
    let exceeded = accuracy.exceeded(limits);
    for sentence in &exceeded {
        writeln!(io::stderr(), "servesim: {sentence}")?;
    }
    Ok(if exceeded.is_empty() { Outcome::Done } else { Outcome::Failed })
}

/// Whether a file is a case, by its name.
pub(super) fn is_case(path: &Path) -> bool {
    path.is_dir()
        || path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

impl From<CaseError> for CliError {
    fn from(error: CaseError) -> Self {
        match error {
            CaseError::Scenario(error) => Self::Scenario(error),
            error => Self::Accuracy(AccuracyError::Case(error)),
        }
    }
}

impl From<AccuracyError> for CliError {
    fn from(error: AccuracyError) -> Self {
        match error {
            AccuracyError::Case(error) => error.into(),
            error => Self::Accuracy(error),
        }
    }
}
