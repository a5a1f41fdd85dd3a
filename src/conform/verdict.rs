//! Comparing what was recorded with what our engine does.

use std::path::Path;

use super::case::Case;
use super::error::ConformError;
use super::files::{read_case, read_recording};
use super::lines::{Head, Line, Resolved};
use super::replay::replay;
use crate::engine::Advance;
use crate::engine::vllm::config::Limits;

/// What came of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Every line is the same.
    Same {
        /// How many lines were compared.
        lines: usize,
    },
    /// The case uses what the engine does not model yet; it was not replayed.
    NotCovered {
        /// What that is.
        what: &'static str,
    },
    /// A line differs.
    Different {
        /// The line of the recording, from 1.
        line: usize,
        /// What was recorded there; nothing if we go on where the recording has ended.
        expected: Option<String>,
        /// What our engine does; nothing if it has ended where the recording goes on.
        found: Option<String>,
    },
}

/// Replays the case at `path`, request by request, and compares every line with its recording; then
/// in step, and compares what became of each request.
///
/// # Errors
/// The case or its recording cannot be used.
pub fn check(path: &Path) -> Result<Verdict, ConformError> {
    let case = read_case(path)?;
    if case.is_speculative() {
        return Ok(Verdict::NotCovered { what: "speculative decoding" });
    }
    let expected = read_recording(path)?;
    let replayed = replay(&case, Advance::OneByOne, path)?;
    let found = std::iter::once(head(&case, expected.first(), path)?).chain(replayed);
    match compare(&expected, found) {
        Verdict::Same { lines } => {
            let in_step = replay(&case, Advance::InStep, path)?;
            Ok(compare_ends(&expected, &in_step).unwrap_or(Verdict::Same { lines }))
        }
        different => Ok(different),
    }
}

/// How the last lines differ. Output of requests that did not finish is not compared: in step, it
/// is counted when a request ends.
fn compare_ends(expected: &[Line], found: &[Line]) -> Option<Verdict> {
    let ends = [expected.last(), found.last()].map(|line| {
        let mut line = line.cloned();
        if let Some(Line::End(end)) = &mut line {
            let unfinished = end.requests.iter_mut().filter(|request| request.fin.is_none());
            unfinished.for_each(|request| request.out = 0);
        }
        line
    });
    let [expected_end, found_end] = &ends;
    (expected_end != found_end).then(|| Verdict::Different {
        line: expected.len(),
        expected: expected_end.as_ref().map(json),
        found: found_end.as_ref().map(|line| format!("{} (in step)", json(line))),
    })
}

/// Our head line: the recorded one with our derived settings in it.
fn head(case: &Case, recorded: Option<&Line>, path: &Path) -> Result<Line, ConformError> {
    let Some(Line::Head(head)) = recorded else {
        let found = format!("{} does not begin with a head line", case.name);
        return Err(ConformError::Malformed { path: path.to_owned(), line: 1, found });
    };
    let config = case
        .engine_config()
        .with_defaults()
        .map_err(|cause| ConformError::Config { path: path.to_owned(), cause })?;
    let limits = Limits::of(&config);
    let resolved = Resolved {
        max_num_scheduled_tokens: limits.scheduled_tokens,
        max_num_active_seqs: limits.active_max,
        watermark_blocks: limits.watermark_blocks,
        usable_blocks: config.usable_blocks(),
        max_concurrent_batches: if limits.asynchronous { 2 } else { 1 },
    };
    Ok(Line::Head(Head { resolved, ..head.clone() }))
}

fn compare(expected: &[Line], found: impl IntoIterator<Item = Line>) -> Verdict {
    let mut found = found.into_iter();
    for (index, line) in expected.iter().enumerate() {
        let ours = found.next();
        if ours.as_ref() != Some(line) {
            return Verdict::Different {
                line: index + 1,
                expected: Some(json(line)),
                found: ours.as_ref().map(json),
            };
        }
    }
    match found.next() {
        Some(ours) => Verdict::Different {
            line: expected.len() + 1,
            expected: None,
            found: Some(json(&ours)),
        },
        None => Verdict::Same { lines: expected.len() },
    }
}

fn json(line: &Line) -> String {
    serde_json::to_string(line).expect("a line is plain data")
}
