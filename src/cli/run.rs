//! `servesim run` and `servesim replay`.

#![expect(clippy::disallowed_types, reason = "the command measures its own wall time")]

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::json;

use super::Outcome;
use super::args::{CommonArgs, Format, ReplayArgs, RunArgs};
use super::error::CliError;
use super::progress::ProgressLine;
use crate::base::output::OutputError;
use crate::report::Report;
use crate::scenario::{Assignment, Scenario};
use crate::simulate::{Extras, simulate};

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
    let scenario = scenario.with(&assignments(args)?)?;
    let scenario = scenario
        .resolve(directory)
        .map_err(|cause| CliError::Config { path: input.to_owned(), cause })?;
    let report_path = args.out.as_deref().map(prepare_folder).transpose()?;

    let started = Instant::now();
    let mut line = ProgressLine::new(args.limit, args.quiet);
    let extras = Extras { requests: args.requests.clone(), stepwise: args.stepwise };
    let outcome = simulate(&scenario, &extras, &mut line);
    line.clear();
    let mut report = outcome?;
    report.set_wall_time(started.elapsed());

    if let Some(path) = report_path {
        report.save(&path)?;
    }
    if args.requests.as_deref() == Some(Path::new("-")) {
        print(&report, args.format, &mut io::stderr().lock())?;
    } else {
        print(&report, args.format, &mut io::stdout().lock())?;
    }
    if report.unfinished() > 0 {
        let unfinished = report.unfinished();
        writeln!(io::stderr(), "servesim: {unfinished} requests could not finish")?;
        return Ok(Outcome::Failed);
    }
    Ok(Outcome::Done)
}

/// Makes the folder of the results and says where the report goes.
fn prepare_folder(folder: &Path) -> Result<PathBuf, OutputError> {
    fs::create_dir_all(folder).map_err(|source| OutputError::write(folder, source))?;
    Ok(folder.join("report.json"))
}

fn print(report: &Report, format: Format, out: &mut dyn Write) -> io::Result<()> {
    match format {
        Format::Table => report.write_table(out),
        Format::Json => report.write_json(out),
    }
}

/// The fields that flags override; flags of their own come after `--set`.
fn assignments(args: &CommonArgs) -> Result<Vec<Assignment>, CliError> {
    let mut all = Vec::new();
    for text in &args.set {
        all.push(Assignment::parse(text)?);
    }
    if let Some(seed) = args.seed {
        all.push(Assignment::of("seed", seed));
    }
    if let Some(warmup) = &args.warmup {
        all.push(warmup_assignment(warmup)?);
    }
    if let Some(window) = &args.window {
        let (from_s, to_s) = seconds_range("--window", window)?;
        all.push(Assignment::of("metrics.window", json!({ "from_s": from_s, "to_s": to_s })));
    }
    if let Some(speedup) = args.speedup {
        all.push(Assignment::of("workload.trace.speedup", speedup));
    }
    if let Some(limit) = args.limit {
        all.push(Assignment::of("workload.trace.limit", limit));
    }
    if let Some(window) = &args.trace_window {
        let (from_s, to_s) = seconds_range("--trace-window", window)?;
        all.push(Assignment::of(
            "workload.trace.window",
            json!({ "from_s": from_s, "to_s": to_s }),
        ));
    }
    if let Some(format) = &args.trace_format {
        all.push(Assignment::of("workload.trace.format", format.as_str()));
    }
    Ok(all)
}

/// `100` requests or `30s`.
fn warmup_assignment(text: &str) -> Result<Assignment, CliError> {
    let refused = || CliError::Flag {
        flag: "--warmup",
        found: text.to_owned(),
        accepted: "a number of requests (100) or of seconds (30s)",
    };
    let warmup = if let Some(seconds) = text.strip_suffix('s') {
        json!({ "seconds": seconds.trim().parse::<f64>().map_err(|_| refused())? })
    } else {
        json!({ "requests": text.parse::<u64>().map_err(|_| refused())? })
    };
    Ok(Assignment::of("metrics.warmup", warmup))
}

/// `60:600`, `60:` or `:600`, in seconds; an `s` behind a number is accepted.
fn seconds_range(flag: &'static str, text: &str) -> Result<(f64, Option<f64>), CliError> {
    let refused = || CliError::Flag {
        flag,
        found: text.to_owned(),
        accepted: "FROM:TO in seconds, either of which may be left out (60:600, 60:, :600)",
    };
    let (from, to) = text.split_once(':').ok_or_else(refused)?;
    let number = |text: &str| -> Result<Option<f64>, CliError> {
        let text = text.trim().trim_end_matches('s');
        if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(|_| refused()) }
    };
    Ok((number(from)?.unwrap_or(0.0), number(to)?))
}
