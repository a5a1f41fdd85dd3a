//! `servesim compare`.

use std::io;

use super::Outcome;
use super::args::{CompareArgs, Format};
use super::error::CliError;
use crate::report::compare::{Comparison, load};

/// Shows reports side by side.
pub(super) fn compare(args: &CompareArgs) -> Result<Outcome, CliError> {
    let reports = args.reports.iter().map(|path| Ok((path.display().to_string(), load(path)?)));
    let comparison = Comparison::of(&reports.collect::<Result<Vec<_>, CliError>>()?);
    let mut out = io::stdout().lock();
    match args.format {
        Format::Table => comparison.write_table(&mut out)?,
        Format::Json => comparison.write_json(&mut out)?,
    }
    Ok(Outcome::Done)
}
