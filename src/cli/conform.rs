//! `servesim conform`.

use std::io::{self, Write};

use super::Outcome;
use super::args::ConformArgs;
use super::error::CliError;
use crate::conform::{Verdict, check, find_cases};

/// Replays every recorded case and compares it with its recording.
pub(super) fn conform(args: &ConformArgs) -> Result<Outcome, CliError> {
    let mut cases = Vec::new();
    for path in &args.paths {
        cases.extend(find_cases(path)?);
    }
    let mut out = io::stdout().lock();
    let (mut same, mut different, mut not_covered) = (0, 0, 0);
    for case in cases {
        let shown = case.display();
        match check(&case)? {
            Verdict::Same { lines } => {
                same += 1;
                if !args.quiet {
                    writeln!(out, "same         {shown} ({lines} lines)")?;
                }
            }
            Verdict::NotCovered { what } => {
                not_covered += 1;
                if !args.quiet {
                    writeln!(out, "not covered  {shown} ({what})")?;
                }
            }
            Verdict::Different { line, expected, found } => {
                different += 1;
                writeln!(out, "different    {shown}, line {line} of the recording")?;
                let ended = "(it has ended)";
                writeln!(out, "    expected {}", expected.as_deref().unwrap_or(ended))?;
                writeln!(out, "    found    {}", found.as_deref().unwrap_or(ended))?;
            }
        }
    }
    writeln!(out, "{same} same, {different} different, {not_covered} not yet covered")?;
    Ok(if different > 0 { Outcome::Failed } else { Outcome::Done })
}
