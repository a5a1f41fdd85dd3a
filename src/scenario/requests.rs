//! How many requests a run will have, as far as that can be told before it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::workload::trace::config::TraceConfig;

use super::{Scenario, WorkloadConfig};

/// Bytes of a trace that are looked at.
const SAMPLE_BYTES: u64 = 1 << 20;

impl Scenario {
    /// About how many requests this resolved scenario has: exactly where it says so, by the size of its file and
    /// of the first rows for a trace in plain lines, and unknown otherwise.
    pub(crate) fn requests_expected(&self) -> Option<u64> {
        match &self.workload {
            WorkloadConfig::Synthetic(config) => Some(config.requests.into()),
            WorkloadConfig::ServeGen(config) => config.requests.map(u64::from),
            WorkloadConfig::Trace(config) => {
                let rows = rows(config);
                match (rows, config.limit) {
                    (Some(rows), Some(limit)) => Some(rows.min(limit)),
                    (rows, limit) => rows.or(limit),
                }
            }
        }
    }
}

/// `None` where rows are not requests one by one.
fn rows(config: &TraceConfig) -> Option<u64> {
    let is_plain = config.window.is_none() && config.reshape.is_none();
    if is_plain { rows_of_file(&config.path) } else { None }
}

/// The size of a file of lines over the mean length of its first ones.
fn rows_of_file(path: &Path) -> Option<u64> {
    // A pipe is left alone: opened and closed, it has lost its writer.
    let found = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let mut file = File::open(path).ok()?;
    let mut sample = Vec::new();
    file.by_ref().take(SAMPLE_BYTES).read_to_end(&mut sample).ok()?;
    let text =
        std::str::from_utf8(&sample).map_or_else(|e| &sample[..e.valid_up_to()], str::as_bytes);
    // Bytes that are no text are an archive.
    if text.len() + 4 < sample.len() {
        return None;
    }
    let last = text.iter().rposition(|&byte| byte == b'\n')? + 1;
    let lines = text[..last - 1].split(|&byte| byte == b'\n').count() as u64;
    if last as u64 == found.len() {
        Some(lines)
    } else {
        lines.checked_mul(found.len()).map(|n| n / last as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_file_is_counted_and_a_long_one_estimated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        std::fs::write(&path, "abcd\n".repeat(7)).unwrap();
        assert_eq!(rows_of_file(&path), Some(7));
        // 5 bytes a line, also beyond what is looked at.
        std::fs::write(&path, "abcd\n".repeat(1_000_000)).unwrap();
        assert_eq!(rows_of_file(&path), Some(1_000_000));
        std::fs::write(&path, [0x1f, 0x8b, 8, 0, 0xff, 0xff, 0xff, 0xff, b'\n', 0xff]).unwrap();
        assert_eq!(rows_of_file(&path), None);
        assert_eq!(rows_of_file(folder.path()), None);
        assert_eq!(rows_of_file(&folder.path().join("none")), None);
    }

    #[test]
    fn a_limit_is_the_most_there_can_be() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        std::fs::write(&path, "abcd\n".repeat(7)).unwrap();
        let expected = |set: &[&str]| {
            let set: Vec<_> =
                set.iter().map(|text| super::super::Assignment::parse(text).unwrap()).collect();
            Scenario::replay(&path).with(&set).unwrap().requests_expected()
        };
        assert_eq!(expected(&[]), Some(7));
        assert_eq!(expected(&["workload.trace.limit=3"]), Some(3));
        assert_eq!(expected(&["workload.trace.limit=30"]), Some(7));
        assert_eq!(expected(&["workload.trace.window.to_s=3"]), None);
    }
}
