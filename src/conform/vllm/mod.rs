//! Recordings of vLLM's scheduler: a file for the case, and a file for what happened.

mod case;
mod lines;
mod replay;
mod transcript;
mod verdict;

pub(super) use verdict::check;

use std::path::{Path, PathBuf};

use case::Case;
use lines::Line;

use super::error::ConformError;
use super::files::{Numbered, parse_lines, read};

const CASE_ENDINGS: [&str; 2] = [".case.json.gz", ".case.json"];
const EXPECTATION_ENDINGS: [&str; 2] = [".expect.jsonl.gz", ".expect.jsonl"];

/// Whether a file is a case, by its name.
pub(super) fn is_recording(path: &Path) -> bool {
    stem(path).is_some()
}

/// Whether a file is what was recorded of a case, by its name.
pub(super) fn is_expectation(path: &Path) -> bool {
    path.to_str().is_some_and(|path| EXPECTATION_ENDINGS.iter().any(|end| path.ends_with(end)))
}

/// The path of a case file without its ending.
fn stem(path: &Path) -> Option<&str> {
    let text = path.to_str()?;
    CASE_ENDINGS.iter().find_map(|ending| text.strip_suffix(ending))
}

/// Reads a case.
///
/// # Errors
/// An unreadable file, or content that is no case.
fn read_case(path: &Path) -> Result<Case, ConformError> {
    Case::from_json(&read(path)?).map_err(|found| ConformError::malformed(path, 1, found))
}

/// Reads the recording that belongs to the case at `path`.
///
/// # Errors
/// An unreadable file, or a line that is none of a recording.
fn read_recording(path: &Path) -> Result<Vec<Numbered<Line>>, ConformError> {
    let stem = stem(path).ok_or_else(|| ConformError::NoCase { path: path.to_owned() })?;
    let [gzipped, plain] = EXPECTATION_ENDINGS.map(|end| PathBuf::from(format!("{stem}{end}")));
    let path = if gzipped.exists() { gzipped } else { plain };
    let line = |text: &[u8]| serde_json::from_slice(text).map_err(|e| e.to_string());
    parse_lines(&path, &read(&path)?, 1, line)
}
