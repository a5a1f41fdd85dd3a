//! Results of runs, simulated or measured, by whichever tool: told apart by what is in the file.
//!
//! A reader is a file here; it says what the tool's names mean ([`model::Quantity`]) and is asked by [`load`].

mod aiperf;
pub(crate) mod distribution;
mod each;
mod fields;
mod guidellm;
pub(crate) mod model;
mod requests;
mod servesim;
#[cfg(test)]
mod tests;
mod vllm_bench;

use std::fs;
use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use serde_json::Value;

use super::{SCHEMA, SCHEMA_NAME};
use fields::Node;
use model::Results;

pub(crate) use fields::ResultsError;

/// What can be compared.
const KINDS: &str = "a report of servesim (servesim.report/2), a result of vllm bench serve, AIPerf, genai-perf or \
                     GuideLLM, or rows of requests with one of ttft_ms, tpot_ms, e2e_ms and queue_ms";

/// Reads the results at `path`: a file, plain or gzip, or a folder with a `report.json`. Of several benchmarks in a
/// file, `FILE#2` is the second.
///
/// # Errors
/// It cannot be read, is of no known kind, has a figure that is none, or is about no request.
pub(crate) fn load(path: &Path) -> Result<Results, ResultsError> {
    let name = path.display().to_string();
    let (file, number) = numbered(path);
    let file = if file.is_dir() { file.join("report.json") } else { file.to_owned() };
    let io = |cause| ResultsError::Io { path: file.clone(), cause };
    let mut bytes = fs::read(&file).map_err(io)?;
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut plain = Vec::new();
        MultiGzDecoder::new(bytes.as_slice()).read_to_end(&mut plain).map_err(io)?;
        bytes = plain;
    }
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let results = read(name, &file, number, text)?;
    if number.is_some() && !results.title.starts_with("GuideLLM") {
        return Err(unknown(&file, "a file of one result", "its path without #"));
    }
    Ok(results)
}

/// The file and the number behind it, unless there is a file of that very name.
fn numbered(path: &Path) -> (&Path, Option<usize>) {
    let split = path.to_str().and_then(|text| text.rsplit_once('#'));
    let numbered = split.and_then(|(file, number)| Some((Path::new(file), number.parse().ok()?)));
    match numbered {
        Some((file, number)) if !path.exists() => (file, Some(number)),
        _ => (path, None),
    }
}

fn unknown(path: &Path, found: impl Into<String>, accepted: &'static str) -> ResultsError {
    ResultsError::Unknown { path: path.to_owned(), found: found.into(), accepted }
}

fn read(
    name: String,
    path: &Path,
    number: Option<usize>,
    text: &[u8],
) -> Result<Results, ResultsError> {
    match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => Err(unknown(path, "empty", KINDS)),
        Some(b'{' | b'[') => read_json(name, path, number, text),
        Some(_) => read_csv(name, path, text),
    }
}

fn read_csv(name: String, path: &Path, text: &[u8]) -> Result<Results, ResultsError> {
    let first = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let first = String::from_utf8_lossy(first);
    let mut columns = first.split(',').map(|column| column.trim().trim_matches('"'));
    if first.starts_with("Metric,") {
        return aiperf::read_csv(name, path, text);
    }
    if requests::has_columns(&mut columns) {
        return requests::read(name, path, &requests::rows_of_csv(path, text)?);
    }
    Err(unknown(path, "neither JSON nor a CSV of known columns", KINDS))
}

fn read_json(
    name: String,
    path: &Path,
    number: Option<usize>,
    text: &[u8],
) -> Result<Results, ResultsError> {
    let value: Value = match serde_json::from_slice(text) {
        Ok(value) => value,
        Err(error) => {
            return match lines(path, text)? {
                Some(rows) => read_rows(name, path, &rows),
                None => Err(malformed(path, text, 0, &error)),
            };
        }
    };
    let node = Node::file(path, &value);
    if let Some(schema) = value.get("schema") {
        return match schema.as_str() {
            Some(SCHEMA) => servesim::read(name, node),
            Some(other) if other.starts_with(SCHEMA_NAME) => {
                Err(node.error("schema", &format!("{other:?}"), SCHEMA))
            }
            _ => Err(node.error("schema", &schema.to_string(), KINDS)),
        };
    }
    if guidellm::is_one(&value) {
        guidellm::read(name, node, number)
    } else if aiperf::is_summary(&value) {
        aiperf::read_summary(name, node)
    } else if vllm_bench::is_one(&value) {
        vllm_bench::read(name, node)
    } else {
        read_rows(name, path, &[(1, value)])
    }
}

/// The lines of a file whose first one is an object, each with its number; `None` where it is not.
fn lines(path: &Path, text: &[u8]) -> Result<Option<Vec<(u64, Value)>>, ResultsError> {
    let mut rows = Vec::new();
    for (line, text) in (1..).zip(text.split(|&byte| byte == b'\n')) {
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match serde_json::from_slice::<Value>(text) {
            Ok(value @ Value::Object(_)) => rows.push((line, value)),
            _ if rows.is_empty() => return Ok(None),
            Ok(_) => return Err(unknown(path, format!("line {line} is no object"), KINDS)),
            Err(error) => return Err(malformed(path, text, line - 1, &error)),
        }
    }
    Ok(Some(rows))
}

fn read_rows(name: String, path: &Path, rows: &[(u64, Value)]) -> Result<Results, ResultsError> {
    let is_known = |row: &Value| {
        row.as_object().is_some_and(|row| requests::has_columns(row.keys().map(String::as_str)))
    };
    if rows.iter().any(|(_, row)| aiperf::is_record(row)) {
        aiperf::read_records(name, path, rows)
    } else if rows.iter().any(|(_, row)| is_known(row)) {
        requests::read(name, path, rows)
    } else {
        Err(unknown(path, "JSON of no known kind", KINDS))
    }
}

/// That it is no JSON. Python writes `NaN` and `Infinity`, which are no numbers: then the field is named.
fn malformed(path: &Path, text: &[u8], lines: u64, error: &serde_json::Error) -> ResultsError {
    let skipped = text.split_inclusive(|&byte| byte == b'\n').take(error.line().saturating_sub(1));
    let offset = skipped.map(<[u8]>::len).sum::<usize>() + error.column().saturating_sub(1);
    let (before, after) = text.split_at(offset.min(text.len()));
    let is_no_number =
        ["NaN", "aN", "Infinity", "nfinity"].iter().any(|no| after.starts_with(no.as_bytes()));
    if is_no_number {
        let before = String::from_utf8_lossy(before);
        let field = before.rsplit('"').nth(1).unwrap_or_default().to_owned();
        return ResultsError::Field {
            place: format!("{}:{}", path.display(), lines + error.line() as u64),
            field,
            found: "no number (NaN or Infinity)".to_owned(),
            accepted: fields::FIGURE,
        };
    }
    unknown(path, format!("malformed JSON ({error}, from line {})", lines + 1), KINDS)
}
