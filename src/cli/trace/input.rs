//! Which requests a command on traces is about.

use std::path::Path;

use super::super::args::{SeedArg, TraceInput, TracePart};
use super::super::error::CliError;
use super::super::run::window_value;
use crate::base::config::ConfigError;
use crate::scenario::{Assignment, Scenario, WorkloadConfig};
use crate::workload::reshape::ReshapedTrace;
use crate::workload::sessions::config::{SessionsConfig, ThinkConfig};
use crate::workload::source::RequestSource;
use crate::workload::trace::config::TraceConfig;

/// How the trace is to be read, and the seed.
pub(super) fn trace(
    input: &TraceInput,
    part: &TracePart,
    seed: SeedArg,
) -> Result<(TraceConfig, u64), CliError> {
    let accepted = "`seed` or a field of `workload.trace`: nothing else changes what is read";
    let mut all = assignments(&input.set, &["workload.trace", "seed"], accepted)?;
    let mut by_flag = |flag: &str, text: &str, field: &str, value: serde_json::Value| {
        let path = format!("workload.trace.{field}");
        all.push(Assignment::by_flag(format!("{flag} {text}"), &path, value));
    };
    if let Some(limit) = part.limit {
        by_flag("--limit", &limit.to_string(), "limit", limit.into());
    }
    if let Some(window) = &part.trace_window {
        by_flag("--trace-window", window, "window", window_value("--trace-window", window)?);
    }
    if let Some(format) = &input.trace_format {
        by_flag("--trace-format", format, "format", format.as_str().into());
    }
    let replay = Scenario::replay(&input.trace);
    let scenario = resolved(&replay, &all, seed, &input.trace, Path::new(""))?;
    match scenario.workload {
        WorkloadConfig::Trace(config) => Ok((config, scenario.seed)),
        _ => unreachable!("no assignment made it another workload"),
    }
}

/// The requests of a trace, with its changes, and how it is read.
pub(super) fn open(
    input: &TraceInput,
    part: &TracePart,
    seed: SeedArg,
) -> Result<(TraceConfig, ReshapedTrace), CliError> {
    let (config, seed) = trace(input, part, seed)?;
    let workload = WorkloadConfig::Trace(config);
    refuse_following(&workload, &input.trace)?;
    let WorkloadConfig::Trace(mut config) = workload else { unreachable!("it was made one") };
    // What ties rows to each other is told, unless other arrivals are asked for, which are for all rows.
    let has_arrivals = config.reshape.as_ref().is_some_and(|reshape| reshape.arrivals.is_some());
    if !has_arrivals {
        config.sessions.get_or_insert(SessionsConfig::Think(ThinkConfig::default()));
    }
    let source = ReshapedTrace::open(&config, seed)?;
    refuse_follower(&source, &input.trace)?;
    Ok((config, source))
}

/// The assignments of `--set`, all of them to one of the `allowed` fields or below it.
pub(super) fn assignments(
    set: &[String],
    allowed: &[&str],
    accepted: &'static str,
) -> Result<Vec<Assignment>, CliError> {
    let mut all = Vec::new();
    for text in set {
        let assignment = Assignment::parse(text)?;
        if !allowed.iter().any(|field| assignment.is_within(field)) {
            return Err(CliError::Flag { flag: "--set", found: text.clone(), accepted });
        }
        all.push(assignment);
    }
    Ok(all)
}

/// `scenario` with `assignments` and every absent value filled in. Errors name `path`; the scenario's own
/// paths count from `directory`.
pub(super) fn resolved(
    scenario: &Scenario,
    assignments: &[Assignment],
    seed: SeedArg,
    path: &Path,
    directory: &Path,
) -> Result<Scenario, CliError> {
    let scenario = scenario.with(assignments)?;
    let seed = seed.seed.unwrap_or(scenario.seed);
    let scenario = scenario.with_seed(seed).resolve(directory);
    scenario.map_err(|cause| CliError::Config { path: path.to_owned(), cause })
}

/// Refuses changes to a trace whose file is looked at as it is.
pub(super) fn refuse_changes(input: &TraceInput, config: &TraceConfig) -> Result<(), CliError> {
    if config.reshape.is_none() {
        return Ok(());
    }
    let makes_one = |text: &&String| {
        Assignment::parse(text).is_ok_and(|made| made.is_within("workload.trace.reshape"))
    };
    Err(CliError::Flag {
        flag: "--set",
        found: input
            .set
            .iter()
            .find(makes_one)
            .map_or("workload.trace.reshape", |text| text)
            .to_owned(),
        accepted: "no field of `workload.trace.reshape`: what is checked is the file itself",
    })
}

/// What is said of arrivals that nobody knows without a run.
const IN_A_RUN: &str = "none: arrivals that follow the ends of requests are known in a run alone, or with \
                        answers that take a known time (`synth --answer-ms`)";

/// Refuses a workload whose arrivals follow from the ends of its requests, by its field.
pub(super) fn refuse_following(workload: &WorkloadConfig, path: &Path) -> Result<(), CliError> {
    let following = match workload {
        WorkloadConfig::Trace(config) => {
            let reshape = config.reshape.as_ref().and_then(|reshape| reshape.following_ends());
            reshape.map(|(field, found)| (format!("workload.trace.reshape.{field}"), found))
        }
        WorkloadConfig::Synthetic(config) => config
            .following_ends()
            .map(|(field, found)| (format!("workload.synthetic.{field}"), found)),
        WorkloadConfig::ServeGen(config) => config.max_concurrency.map(|concurrency| {
            ("workload.servegen.max_concurrency".to_owned(), concurrency.to_string())
        }),
    };
    let Some((field, found)) = following else { return Ok(()) };
    let cause = ConfigError::new(&field, found, IN_A_RUN);
    Err(CliError::Config { path: path.to_owned(), cause })
}

/// The same, of whatever makes the arrivals follow.
pub(super) fn refuse_follower(source: &dyn RequestSource, path: &Path) -> Result<(), CliError> {
    if !source.follows_ends() {
        return Ok(());
    }
    let cause = ConfigError::new("workload", "one that follows ends", IN_A_RUN);
    Err(CliError::Config { path: path.to_owned(), cause })
}
