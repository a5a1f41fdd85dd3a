//! Comparing what was recorded with what our engine does.

use std::path::Path;

use super::case::Case;
use super::lines::{Head, Line, Resolved};
use super::replay::replay;
use super::{read_case, read_recording};
use crate::conform::error::ConformError;
use crate::conform::files::Numbered;
use crate::conform::verdict::{Verdict, compare};
use crate::engine::Advance;
use crate::engine::vllm::config::Limits;

/// Replays the case at `path`, request by request, and compares every line with its recording; then
/// in step, and compares what became of each request.
///
/// # Errors
/// The case or its recording cannot be used.
pub(in crate::conform) fn check(path: &Path) -> Result<Verdict, ConformError> {
    let case = read_case(path)?;
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
fn compare_ends(expected: &[Numbered<Line>], found: &[Line]) -> Option<Verdict> {
    let last = expected.last()?;
    let ends = [Some(&last.line), found.last()].map(|line| {
        let mut line = line.cloned();
        if let Some(Line::End(end)) = &mut line {
            let unfinished = end.requests.iter_mut().filter(|request| request.fin.is_none());
            unfinished.for_each(|request| request.out = 0);
        }
        line
    });
    let [expected_end, found_end] = &ends;
    (expected_end != found_end).then(|| {
        Verdict::different(last.number, expected_end.as_ref(), found_end.as_ref()).in_step()
    })
}

/// Our head line: the recorded one with our derived settings in it.
fn head(case: &Case, recorded: Option<&Numbered<Line>>, path: &Path) -> Result<Line, ConformError> {
    let Some(Line::Head(head)) = recorded.map(|recorded| &recorded.line) else {
        let found = format!("{} does not begin with a head line", case.name);
        return Err(ConformError::malformed(path, 1, found));
    };
    let config = case
        .engine_config()
        .with_defaults()
        .map_err(|cause| ConformError::config(path, 1, cause))?;
    let limits = Limits::of(&config);
    let resolved = Resolved {
        max_num_scheduled_tokens: limits.scheduled_tokens,
        max_num_active_seqs: limits.active_max,
        num_lookahead_tokens: limits.speculation.lookahead_tokens,
        draft_slots: limits.speculation.draft_slots,
        hash_lookahead_tokens: limits.speculation.hash_lookahead_tokens,
        eagle_block_drop: limits.speculation.drops_last_hit,
        watermark_blocks: limits.watermark_blocks,
        usable_blocks: config.usable_blocks(),
        max_concurrent_batches: if limits.asynchronous { 2 } else { 1 },
    };
    Ok(Line::Head(Head { resolved, ..head.clone() }))
}
