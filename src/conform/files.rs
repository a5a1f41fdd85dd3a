//! Finding and reading recorded cases.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::case::Case;
use super::error::ConformError;
use super::lines::Line;

const CASE_ENDINGS: [&str; 2] = [".case.json.gz", ".case.json"];

/// The case files that `path` names: itself, or all below it, in order of name.
///
/// # Errors
/// A folder that cannot be read, or no case.
pub fn find_cases(path: &Path) -> Result<Vec<PathBuf>, ConformError> {
    let mut cases = Vec::new();
    collect(path, &mut cases)?;
    if cases.is_empty() {
        return Err(ConformError::NoCase { path: path.to_owned() });
    }
    cases.sort();
    Ok(cases)
}

fn collect(path: &Path, cases: &mut Vec<PathBuf>) -> Result<(), ConformError> {
    let failed = |source| ConformError::Io { path: path.to_owned(), source };
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        if stem(path).is_some() {
            cases.push(path.to_owned());
        }
        return Ok(());
    }
    for entry in fs::read_dir(path).map_err(failed)? {
        collect(&entry.map_err(failed)?.path(), cases)?;
    }
    Ok(())
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
pub(crate) fn read_case(path: &Path) -> Result<Case, ConformError> {
    let bytes = read(path)?;
    Case::from_json(&bytes).map_err(|found| ConformError::Malformed {
        path: path.to_owned(),
        line: 1,
        found,
    })
}

/// Reads the recording that belongs to the case at `path`.
///
/// # Errors
/// An unreadable file, or a line that is none of a recording.
pub(crate) fn read_recording(path: &Path) -> Result<Vec<Line>, ConformError> {
    let stem = stem(path).ok_or_else(|| ConformError::NoCase { path: path.to_owned() })?;
    let gzipped = PathBuf::from(format!("{stem}.expect.jsonl.gz"));
    let path = if gzipped.exists() { gzipped } else { format!("{stem}.expect.jsonl").into() };
    let bytes = read(&path)?;
    let mut lines = Vec::new();
    for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        lines.push(serde_json::from_slice(line).map_err(|e| ConformError::Malformed {
            path: path.clone(),
            line: index + 1,
            found: e.to_string(),
        })?);
    }
    Ok(lines)
}

fn read(path: &Path) -> Result<Vec<u8>, ConformError> {
    let failed = |source: io::Error| ConformError::Io { path: path.to_owned(), source };
    let raw = fs::read(path).map_err(failed)?;
    if !raw.starts_with(&[0x1f, 0x8b]) {
        return Ok(raw);
    }
    let mut bytes = Vec::new();
    MultiGzDecoder::new(raw.as_slice()).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}
