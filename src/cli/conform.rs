//! `servesim conform`.

use std::io::{self, Write};

use super::Outcome;
use super::args::ConformArgs;
use super::error::CliError;
use crate::conform::{Verdict, find_recordings};

/// Replays every recorded case and compares it with its recording.
pub(super) fn conform(args: &ConformArgs) -> Result<Outcome, CliError> {
    let mut recordings = Vec::new();
    for path in &args.paths {
        recordings.extend(find_recordings(path)?);
    }
    let mut out = io::stdout().lock();
    let (mut same, mut different) = (0, 0);
    for recording in recordings {
        for case in recording.cases()? {
            match case.check()? {
                Verdict::Same { lines } => {
                    same += 1;
                    if !args.quiet {
                        writeln!(out, "same         {case} ({lines} lines)")?;
                    }
                }
                Verdict::Different { line, expected, found, keys } => {
                    different += 1;
                    let ended = "(it has ended)";
                    writeln!(out, "different    {case}, line {line} of the recording")?;
                    writeln!(out, "    expected {}", expected.as_deref().unwrap_or(ended))?;
                    writeln!(out, "    found    {}", found.as_deref().unwrap_or(ended))?;
                    if !keys.is_empty() {
                        writeln!(out, "    in       {}", keys.join(", "))?;
                    }
                }
            }
        }
    }
    writeln!(out, "{same} same, {different} different")?;
    Ok(if different > 0 { Outcome::Failed } else { Outcome::Done })
}
