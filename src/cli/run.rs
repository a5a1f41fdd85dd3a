//! `servesim run` and `servesim replay`.

#![expect(clippy::disallowed_types, reason = "the command measures its own wall time")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Value, json};

use super::Outcome;
use super::args::{CommonArgs, ReplayArgs, ReportFormat, RunArgs};
use super::error::CliError;
use super::progress::ProgressLine;
use crate::report::{Export, Look, Report};
use crate::scenario::{Assignment, Scenario};
use crate::simulate::{Extras, RunTrace, simulate};

/// Runs a scenario file.
pub(super) fn run(args: &RunArgs) -> Result<Outcome, CliError> {
    let scenario = Scenario::load(&args.scenario)?;
    let directory = args.scenario.parent().unwrap_or(Path::new(""));
    execute(&scenario, directory, &args.scenario, &args.common)
}

/// Replays a trace without a scenario file.
pub(super) fn replay(args: &ReplayArgs) -> Result<Outcome, CliError> {
    execute(&Scenario::replay(&args.trace), Path::new(""), &args.trace, &args.common)
}

/// Runs `scenario`, whose relative paths count from `directory`; `input` is what errors name.
fn execute(
    scenario: &Scenario,
    directory: &Path,
    input: &Path,
    args: &CommonArgs,
) -> Result<Outcome, CliError> {
    let scenario = args
        .deployment
        .set_up(scenario, assignments(args)?)?
        .resolve(directory)
        .map_err(|cause| CliError::Config { path: input.to_owned(), cause })?;

    if args.export_detailed && !args.export.contains(&Export::VllmBench) {
        return Err(CliError::Flag {
            flag: "--export-detailed",
            found: "without `--export vllm-bench`".to_owned(),
            accepted: "that export, whose file has such lists",
        });
    }
    let takes_stdout = check_results(args, input)?;

    let started = Instant::now();
    let mut line = ProgressLine::new(scenario.requests_expected(), args.quiet);
    let extras = Extras {
        out: args.out.clone(),
        exports: args.export.clone(),
        exports_detailed: args.export_detailed,
        requests: args.requests.clone(),
        passes: args.passes.clone(),
        series: args.series.clone(),
        openmetrics: args.openmetrics.clone(),
        evidence: args.evidence.clone(),
        perfetto: run_trace(args)?,
        html: args.html.clone(),
        stepwise: args.stepwise,
    };
    let outcome = simulate(&scenario, &extras, &mut line);
    line.clear();
    let mut simulated = outcome?;
    simulated.report.set_wall_time(started.elapsed());
    let report = simulated.put()?;
    if takes_stdout {
        let look = look(io::stderr().is_terminal());
        print(&report, args.format, look, &mut io::stderr().lock())?;
    } else {
        let look = look(io::stdout().is_terminal());
        print(&report, args.format, look, &mut io::stdout().lock())?;
    }
    if report.unfinished() > 0 {
        let unfinished = report.unfinished();
        let noun = if unfinished == 1 { "request" } else { "requests" };
        writeln!(io::stderr(), "servesim: {unfinished} {noun} could not finish")?;
        return Ok(Outcome::Failed);
    }
    Ok(Outcome::Done)
}

/// The trace of the run that is asked for.
fn run_trace(args: &CommonArgs) -> Result<Option<RunTrace>, CliError> {
    let Some(path) = &args.perfetto else { return Ok(None) };
    let mut window_s = (0.0, None);
    if let Some(text) = &args.perfetto_window {
        let window = window_value("--perfetto-window", text)?;
        let (from_s, to_s) = (window["from_s"].as_f64().unwrap_or(0.0), window["to_s"].as_f64());
        if from_s < 0.0 || to_s.is_some_and(|to_s| to_s <= from_s) {
            return Err(CliError::Flag {
                flag: "--perfetto-window",
                found: text.clone(),
                accepted: "FROM:TO in seconds from 0 on, FROM before TO",
            });
        }
        window_s = (from_s, to_s);
    }
    Ok(Some(RunTrace { path: path.clone(), window_s, every: args.perfetto_sample.unwrap_or(1) }))
}

/// The files that a run is to leave behind, with their flags.
fn results(args: &CommonArgs) -> Vec<(&'static str, PathBuf)> {
    let results = [
        ("--html", &args.html),
        ("--requests", &args.requests),
        ("--passes", &args.passes),
        ("--series", &args.series),
        ("--openmetrics", &args.openmetrics),
        ("--perfetto", &args.perfetto),
        ("--evidence", &args.evidence),
    ];
    let exports = args.export.iter().collect::<BTreeSet<_>>();
    let exported = exports.into_iter().flat_map(|export| export.files());
    let folder = args.out.as_deref().unwrap_or(Path::new(""));
    let mut all: Vec<_> = exported.map(|name| ("--export", folder.join(name))).collect();
    all.extend(results.into_iter().filter_map(|(flag, path)| Some((flag, path.clone()?))));
    all
}

/// Checks that no result takes the place of another or of the `input`, and says whether one goes to standard output.
fn check_results(args: &CommonArgs, input: &Path) -> Result<bool, CliError> {
    let stdout = Path::new("-");
    let place = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut taken: Vec<(&'static str, PathBuf)> = Vec::new();
    for (flag, path) in results(args) {
        let place = place(&path);
        if let Some(&(other, _)) = taken.iter().find(|(_, taken)| *taken == place) {
            return Err(CliError::SameFile { flag, path, other });
        }
        let is_file = fs::metadata(&place).is_ok_and(|found| found.is_file());
        if path != stdout && is_file && fs::canonicalize(input).is_ok_and(|input| input == place) {
            return Err(CliError::SameFile { flag, path, other: "the input" });
        }
        // A device takes everything.
        if path == stdout || is_file || !place.exists() {
            taken.push((flag, place));
        }
    }
    Ok(taken.iter().any(|(_, path)| path == stdout))
}

fn print(report: &Report, format: ReportFormat, look: Look, out: &mut dyn Write) -> io::Result<()> {
    match format {
        ReportFormat::Table => report.write_table(look, out),
        ReportFormat::Json => report.write_json(out),
        ReportFormat::Markdown => report.write_markdown(out),
        ReportFormat::Csv => report.write_csv(out),
    }
}

/// What may be shown: beside plain text only what a terminal shows, and only if its user has not said otherwise.
fn look(is_terminal: bool) -> Look {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let is_dumb = variable("TERM") == "dumb";
    // The first that is set decides, as POSIX has it.
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].map(variable);
    let locale = locale.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
    let is_utf8 = ["utf-8", "utf8"].iter().any(|name| locale.to_lowercase().ends_with(name));
    Look {
        colours: is_terminal && !is_dumb && variable("NO_COLOR").is_empty(),
        pictures: is_terminal && !is_dumb && is_utf8,
    }
}

/// The fields that flags override, those of the deployment excepted.
fn assignments(args: &CommonArgs) -> Result<Vec<Assignment>, CliError> {
    let mut all = Vec::new();
    let mut by_flag = |flag: &str, text: &str, path: &str, value: Value| {
        all.push(Assignment::by_flag(format!("{flag} {text}"), path, value));
    };
    if let Some(seed) = args.seed {
        by_flag("--seed", &seed.to_string(), "seed", seed.into());
    }
    if let Some(warmup) = &args.warmup {
        by_flag("--warmup", warmup, "metrics.warmup", warmup_value(warmup)?);
    }
    if let Some(requests) = args.warm_cache {
        let value = json!({ "warm_cache": requests });
        by_flag("--warm-cache", &requests.to_string(), "metrics.warmup", value);
    }
    if let Some(window) = &args.window {
        by_flag("--window", window, "metrics.window", window_value("--window", window)?);
    }
    if let Some(speedup) = args.speedup {
        // JSON has no such number: it would set nothing.
        if !speedup.is_finite() {
            let found = speedup.to_string();
            return Err(CliError::Flag { flag: "--speedup", found, accepted: "a number above 0" });
        }
        by_flag("--speedup", &speedup.to_string(), "workload.trace.speedup", speedup.into());
    }
    if let Some(limit) = args.limit {
        by_flag("--limit", &limit.to_string(), "workload.trace.limit", limit.into());
    }
    if let Some(window) = &args.trace_window {
        let value = window_value("--trace-window", window)?;
        by_flag("--trace-window", window, "workload.trace.window", value);
    }
    if let Some(format) = &args.trace_format {
        by_flag("--trace-format", format, "workload.trace.format", format.as_str().into());
    }
    if let Some(rule) = &args.sessions {
        let value = sessions_value(rule)?;
        let made =
            Assignment::by_flag(format!("--sessions {rule}"), "workload.trace.sessions", value);
        all.push(made.merging());
    }
    Ok(all)
}

/// `open`, `think`, or `closed:8`.
fn sessions_value(text: &str) -> Result<Value, CliError> {
    let users = text.strip_prefix("closed:").map(str::parse::<u32>);
    match (text, users) {
        ("open" | "think", _) => Ok(json!({ text: {} })),
        (_, Some(Ok(users))) => Ok(json!({ "closed": { "users": users } })),
        _ => Err(CliError::Flag {
            flag: "--sessions",
            found: text.to_owned(),
            accepted: "open, think, or closed:N with a number of users",
        }),
    }
}

/// `100` requests or `30s`.
fn warmup_value(text: &str) -> Result<Value, CliError> {
    let refused = || CliError::Flag {
        flag: "--warmup",
        found: text.to_owned(),
        accepted: "a number of requests (100) or of seconds (30s)",
    };
    Ok(if let Some(seconds) = text.strip_suffix('s') {
        json!({ "seconds": seconds_of(seconds).ok_or_else(refused)? })
    } else {
        json!({ "requests": text.parse::<u64>().map_err(|_| refused())? })
    })
}

/// `60:600`, `60:` or `:600`, in seconds; an `s` behind a number is accepted.
pub(super) fn window_value(flag: &'static str, text: &str) -> Result<Value, CliError> {
    let refused = || CliError::Flag {
        flag,
        found: text.to_owned(),
        accepted: "FROM:TO in seconds, either of which may be left out (60:600, 60:, :600)",
    };
    let (from, to) = text.split_once(':').ok_or_else(refused)?;
    let bound = |text: &str| {
        let text = text.trim();
        if text.is_empty() {
            return Ok(None);
        }
        seconds_of(text.strip_suffix('s').unwrap_or(text)).map(Some).ok_or_else(refused)
    };
    Ok(json!({ "from_s": bound(from)?.unwrap_or(0.0), "to_s": bound(to)? }))
}

/// A finite number.
fn seconds_of(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|seconds: &f64| seconds.is_finite())
}
