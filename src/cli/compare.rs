//! `servesim compare`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::Outcome;
use super::args::{CompareArgs, ReportFormat};
use super::error::CliError;
use crate::base::output::ResultFile;
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
    if let Some(path) = &args.html {
        let is_input = |input: &PathBuf| {
            fs::canonicalize(path)
                .is_ok_and(|path| fs::canonicalize(input).is_ok_and(|i| i == path))
        };
        if args.results.iter().any(is_input) {
            let (flag, other) = ("--html", "an input");
            return Err(CliError::SameFile { flag, path: path.clone(), other });
        }
        ResultFile::create(path, false)?.put(|out| comparison.write_html(&results, out))?;
    }
    if args.html.as_deref() == Some(Path::new("-")) {
        print(&comparison, args.format, &mut io::stderr().lock())?;
    } else {
        print(&comparison, args.format, &mut io::stdout().lock())?;
    }
    for sentence in &exceeded {
        writeln!(io::stderr(), "servesim: {sentence}")?;
    }
    Ok(if exceeded.is_empty() { Outcome::Done } else { Outcome::Failed })
}

fn print(comparison: &Comparison, format: ReportFormat, out: &mut dyn Write) -> io::Result<()> {
    match format {
        ReportFormat::Table => comparison.write_table(out),
        ReportFormat::Json => comparison.write_json(out),
        ReportFormat::Markdown => comparison.write_markdown(out),
        ReportFormat::Csv => comparison.write_csv(out),
    }
}
