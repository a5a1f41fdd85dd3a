//! Comparing what was recorded with what our engine does.

use std::path::Path;

use super::Block;
use super::lines::{HeadLine, Line, Reason};
use super::replay::replay;
use crate::conform::error::ConformError;
use crate::conform::files::Numbered;
use crate::conform::verdict::{Verdict, compare};
use crate::engine::Advance;
use crate::engine::sglang::config::{Limits, SglangConfig};

/// Replays the case of `block`, request by request, and compares every line with its recording; then
/// in step, and compares what became of each request, and the end. `path` is the file.
///
/// # Errors
/// The case or its recording cannot be used.
pub(in crate::conform) fn check(block: &Block, path: &Path) -> Result<Verdict, ConformError> {
    let expected = block.lines(path)?;
    let config = block
        .case
        .engine_config()
        .resolve()
        .map_err(|cause| ConformError::config(path, block.line, cause))?;
    let Some((Numbered { number, line: Line::Head(recorded) }, rest)) = expected.split_first()
    else {
        let found = "no `case` line follows the `input` line".to_owned();
        return Err(ConformError::malformed(path, block.line, found));
    };
    let head = head(block, recorded, &config);
    if head != *recorded {
        return Ok(Verdict::different(*number, Some(recorded), Some(&head)));
    }
    match compare(rest, replay(block, &config, Advance::OneByOne, path)?) {
        Verdict::Same { .. } => {}
        different => return Ok(different),
    }
    let in_step = replay(block, &config, Advance::InStep, path)?;
    let summary: Vec<_> = rest.iter().filter_map(summary_of_numbered).collect();
    Ok(match compare(&summary, in_step.iter().filter_map(summary_of)) {
        Verdict::Same { .. } => Verdict::Same { lines: expected.len() },
        different => different.in_step(),
    })
}

/// Our head line: the recorded one with our derived settings in it.
fn head(block: &Block, recorded: &HeadLine, config: &SglangConfig) -> HeadLine {
    let limits = Limits::of(config);
    HeadLine {
        case: block.name().to_owned(),
        sglang: recorded.sglang.clone(),
        tree_core: recorded.tree_core.clone(),
        max_total_tokens: limits.pool_tokens,
        max_running_requests: limits.running_max,
        max_req_len: limits.request_tokens_max,
        policy: limits.policy,
        mixed: limits.mixes,
        ratio: limits.ratio,
    }
}

fn summary_of_numbered(line: &Numbered<Line>) -> Option<Numbered<Line>> {
    Some(Numbered { number: line.number, line: summary_of(&line.line)? })
}

/// What of a line is the same in step: all but forwards, and but the output of requests that did not
/// finish, which is counted when a request ends.
fn summary_of(line: &Line) -> Option<Line> {
    match line {
        Line::Forward(_) => None,
        Line::Request(request) if matches!(request.reason, Reason::Abort | Reason::None) => {
            let mut request = request.clone();
            request.out = 0;
            Some(Line::Request(request))
        }
        line => Some(line.clone()),
    }
}
