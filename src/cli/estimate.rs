//! `servesim estimate`.

use std::io::{self, Write};
use std::path::Path;

use super::Outcome;
use super::args::{EstimateArgs, ReportFormat};
use super::error::CliError;
use super::progress::ProgressLine;
use crate::estimate::{Budgets, EstimateError, SteadyBatch, estimate as estimate_batch};
use crate::report::estimate::Estimate;
use crate::scenario::Scenario;

/// Says what a steady batch comes to.
pub(super) fn estimate(args: &EstimateArgs) -> Result<Outcome, CliError> {
    let budgets = args.ctx_tokens.as_deref().map_or(Ok(Budgets::Prompt), budgets)?;
    let scenario = match &args.scenario {
        Some(path) => Scenario::load(path)?,
        None => Scenario { name: Some("a steady batch".to_owned()), ..Scenario::default() },
    };
    let scenario = args.deployment.set_up(&scenario, Vec::new())?;
    let directory = args.scenario.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
    let batch =
        SteadyBatch { requests: args.batch, isl: args.isl, osl: args.osl, prefix: args.prefix };
    let mut line = ProgressLine::new(None, args.quiet);
    let outcome = estimate_batch(&scenario, directory, (&batch, &budgets), args.check, &mut line);
    line.clear();
    let estimate = outcome.map_err(|error| match (error, &args.scenario) {
        (EstimateError::Config(cause), Some(path)) => {
            CliError::Config { path: path.clone(), cause }
        }
        (error, _) => CliError::Estimate(error),
    })?;
    print(&estimate, args.format, &mut io::stdout().lock())?;
    Ok(Outcome::Done)
}

/// `1024`, `1024,2048` or `sweep`.
fn budgets(text: &str) -> Result<Budgets, CliError> {
    if text == "sweep" {
        return Ok(Budgets::Multiples);
    }
    let numbers = text.split(',').map(|number| number.trim().parse().ok().filter(|&n: &u64| n > 0));
    let numbers: Option<Vec<u64>> = numbers.collect();
    numbers.map(Budgets::Given).ok_or_else(|| CliError::Flag {
        flag: "--ctx-tokens",
        found: text.to_owned(),
        accepted: "integers of at least 1, with commas between them, or sweep",
    })
}

fn print(estimate: &Estimate, format: ReportFormat, out: &mut dyn Write) -> io::Result<()> {
    match format {
        ReportFormat::Table => estimate.write_table(out),
        ReportFormat::Json => estimate.write_json(out),
        ReportFormat::Markdown => estimate.write_markdown(out),
        ReportFormat::Csv => estimate.write_csv(out),
    }
}
