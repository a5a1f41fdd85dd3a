//! `servesim explain`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Outcome;
use super::args::{ExplainArgs, Format, MetricArg};
use super::error::CliError;
use super::progress::ProgressLine;
use crate::base::ids::RequestId;
use crate::explain::{Subject, explain as explain_run};
use crate::metrics::blame::Metric;
use crate::scenario::{Assignment, Scenario, WorkloadConfig};

/// Says where the time of requests went.
pub(super) fn explain(args: &ExplainArgs) -> Result<Outcome, CliError> {
    let subject = match (args.request, args.quantile) {
        (Some(id), _) => Subject::Request(RequestId(id)),
        (None, quantile) if quantile > 0.0 && quantile < 1.0 => Subject::Quantile(quantile),
        (None, quantile) => {
            return Err(CliError::Flag {
                flag: "--quantile",
                found: quantile.to_string(),
                accepted: "a number above 0 and below 1",
            });
        }
    };
    // All of a request that is asked for; of many, what is asked for most.
    let metric = args.metric.map_or(
        if args.request.is_some() { Metric::E2e } else { Metric::Ttft },
        |metric| match metric {
            MetricArg::Ttft => Metric::Ttft,
            MetricArg::Tpot => Metric::Tpot,
            MetricArg::E2e => Metric::E2e,
            MetricArg::Queue => Metric::Queue,
        },
    );
    let path: PathBuf =
        if args.input.is_dir() { args.input.join("report.json") } else { args.input.clone() };
    let scenario = Scenario::load(&path)?;
    let sets: Result<Vec<_>, _> = args.set.iter().map(|text| Assignment::parse(text)).collect();
    let scenario = scenario
        .with(&sets?)?
        .resolve(path.parent().unwrap_or(Path::new("")))
        .map_err(|cause| CliError::Config { path: path.clone(), cause })?;
    let is_stdin =
        matches!(&scenario.workload, WorkloadConfig::Trace(trace) if trace.path.as_os_str() == "-");
    if is_stdin && !args.no_what_if {
        return Err(CliError::Flag {
            flag: "workload.trace.path",
            found: "-".to_owned(),
            accepted: "a file: limits are lifted by reading the trace again (or --no-what-if)",
        });
    }
    // With other settings it is another run.
    let digest = if args.set.is_empty() { digest_of(&path) } else { None };
    let mut line = ProgressLine::new(None, args.quiet);
    let outcome =
        explain_run(&scenario, (metric, subject), digest.as_deref(), !args.no_what_if, &mut line);
    line.clear();
    let explanation = outcome?;
    let mut out = io::stdout().lock();
    match args.format {
        Format::Table => explanation.write_table(&mut out)?,
        Format::Json => explanation.write_json(&mut out)?,
    }
    if explanation.other_digest.is_some() {
        let path = path.display();
        writeln!(
            io::stderr(),
            "servesim: {path}: the run cannot be repeated: its digest is another one, as that of a changed trace or of another version"
        )?;
        return Ok(Outcome::Failed);
    }
    Ok(Outcome::Done)
}

/// The digest of the run that a report is about, if the file at `path` is one.
fn digest_of(path: &Path) -> Option<String> {
    let report: Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    report.get("schema")?;
    Some(report.get("digest")?.as_str()?.to_owned())
}
