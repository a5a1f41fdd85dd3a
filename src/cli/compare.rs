//! `servesim compare`.

use std::io::{self, Write};

use super::Outcome;
use super::args::{CompareArgs, ReportFormat};
use super::error::CliError;
use crate::report::compare::Comparison;
use crate::report::compare::limit::Limit;
use crate::report::results::load;

/// Shows results side by side, and fails if a figure is too far from the first one's.
pub(super) fn compare(args: &CompareArgs) -> Result<Outcome, CliError> {
    let limits = args.fail_above.iter().map(|flag| Limit::parse(flag));
    let limits = limits.collect::<Result<Vec<_>, _>>()?;
    let results = args.results.iter().map(|path| load(path)).collect::<Result<Vec<_>, _>>()?;
    let mut exceeded = Vec::new();
    for limit in &limits {
        exceeded.extend(limit.exceeded(&results)?);
    }
    let comparison = Comparison::of(&results);
    let mut out = io::stdout().lock();
    match args.format {
        ReportFormat::Table => comparison.write_table(&mut out)?,
        ReportFormat::Json => comparison.write_json(&mut out)?,
        ReportFormat::Markdown => comparison.write_markdown(&mut out)?,
        ReportFormat::Csv => comparison.write_csv(&mut out)?,
    }
    for sentence in &exceeded {
        writeln!(io::stderr(), "servesim: {sentence}")?;
    }
    Ok(if exceeded.is_empty() { Outcome::Done } else { Outcome::Failed })
}
