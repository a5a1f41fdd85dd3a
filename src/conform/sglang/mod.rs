//! Recordings of SGLang's scheduler: one file holds many cases, each a block of lines.

mod case;
mod lines;
mod replay;
mod transcript;
mod verdict;

pub(super) use verdict::check;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use case::Case;
use lines::Line;

use super::error::ConformError;
use super::files::{self, Numbered, parse_lines, read, read_up_to};

const ENDINGS: [&str; 2] = [".jsonl.gz", ".jsonl"];

/// Bytes in which the key of the first line stands, with room for spaces.
const HEAD_BYTES: u64 = 64;

/// Whether a file holds cases: by its name, and by the line that it begins with.
///
/// # Errors
/// It cannot be read.
pub(super) fn is_recording(path: &Path) -> Result<bool, ConformError> {
    let is_named_so = path.to_str().is_some_and(|path| ENDINGS.iter().any(|e| path.ends_with(e)));
    Ok(is_named_so && is_input(&read_up_to(path, HEAD_BYTES)?))
}

/// Whether a line describes a case, and so begins a block.
fn is_input(line: &[u8]) -> bool {
    lines::first_key(line) == Some("input")
}

/// A case, and where in its file the lines of its recording stand.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// The line of the case.
    line: usize,
    case: Arc<Case>,
    file: Arc<[u8]>,
    recorded: Range<usize>,
}

/// The cases in the file at `path`.
///
/// # Errors
/// An unreadable file, or an input line that is none.
pub(super) fn blocks(path: &Path) -> Result<Vec<Block>, ConformError> {
    let file: Arc<[u8]> = read(path)?.into();
    let mut blocks: Vec<Block> = Vec::new();
    let start = file.as_ptr().addr();
    for Numbered { number, line } in files::lines(&file, 1) {
        let end = line.as_ptr().addr() - start + line.len();
        if is_input(line) {
            let case = Case::from_json(line)
                .map_err(|found| ConformError::malformed(path, number, found))?;
            let (case, file) = (Arc::new(case), Arc::clone(&file));
            blocks.push(Block { line: number, case, file, recorded: end..end });
        } else if let Some(block) = blocks.last_mut() {
            block.recorded.end = end;
        } else {
            let found = "a recording begins with an `input` line".to_owned();
            return Err(ConformError::malformed(path, number, found));
        }
    }
    Ok(blocks)
}

impl Block {
    /// The name of the case.
    pub(super) fn name(&self) -> &str {
        &self.case.name
    }

    /// What was recorded.
    ///
    /// # Errors
    /// A line that is none of a recording; `path` is the file.
    fn lines(&self, path: &Path) -> Result<Vec<Numbered<Line>>, ConformError> {
        // The text begins with the end of the input line.
        parse_lines(path, &self.file[self.recorded.clone()], self.line, Line::from_json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::testing::shared;
    use crate::conform::verdict::Verdict;

    /// A prompt of four tokens and two outputs, 1000 + 10 per token and 5 per decode. The pool of 64 holds
    /// the prompt, then an output. The last output has no KV, so five tokens are left in the cache. One
    /// decode lowers the ratio once: 0.7 - (0.7 - 0.098) / 600.
    const TINY: [&str; 6] = [
        r#"{"input":{"name":"tiny","config":{"max_total_tokens":64,"timing_us":{"base":1000,"per_extend_token":10,"per_decode_seq":5}},"requests":[{"id":"a","arrival_us":0,"prompt":[[1,0,4]],"out_stream":2,"max_new_tokens":2,"eos_at":null,"ignore_eos":false}]}}"#,
        r#"{"case":"tiny","sglang":"0.5.23","tree_core":"any","max_total_tokens":64,"max_running_requests":32,"max_req_len":63,"policy":"fcfs","mixed":false,"ratio":[0.7,0.098,0.0010033333333333333]}"#,
        r#"{"f":0,"kind":"extend","sched":0,"start":0,"end":1040,"ids":["a"],"ext":[4],"pre":[0],"at":{"avail":60,"evict":0,"prot":0,"wait":0,"run":0,"full":0,"ratio":0.7},"queue":[],"finished":[],"done":1040,"after":[60,0,4]}"#,
        r#"{"f":1,"kind":"decode","sched":1040,"start":1040,"end":2045,"ids":["a"],"ctx":5,"at":{"avail":59,"evict":0,"prot":4,"wait":0,"run":1,"full":0,"ratio":0.6989966666666666},"queue":[],"finished":["a"],"done":2045,"after":[59,5,0]}"#,
        r#"{"req":"a","first":1040,"finish":2045,"cached":0,"out":2,"max_new":2,"retractions":0,"reason":"length"}"#,
        r#"{"end":true,"forwards":2,"clock":2045,"stuck":[],"late_aborts":[],"final":{"avail":59,"evict":5,"prot":0,"wait":0,"run":0,"full":0,"ratio":0.7}}"#,
    ];

    /// A file that holds `text`.
    fn written(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::with_suffix(".jsonl").unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    /// What became of the cases in `text`.
    fn checked(text: &str) -> Result<Vec<Verdict>, ConformError> {
        let file = written(text);
        assert!(is_recording(file.path()).unwrap());
        blocks(file.path())?.iter().map(|block| check(block, file.path())).collect()
    }

    #[test]
    fn a_recording_derived_by_hand_is_the_same() {
        assert_eq!(checked(&TINY.join("\n")).unwrap(), [Verdict::Same { lines: 5 }]);
    }

    #[test]
    fn cases_follow_one_another_and_lines_have_the_numbers_of_the_file() {
        let tiny = TINY.join("\n\n");
        let late = tiny.replace("\"done\":2045", "\"done\":2046");
        let verdicts = checked(&format!("\n{tiny}\n{late}\n\n{tiny}\n")).unwrap();
        let same = Verdict::Same { lines: 5 };
        assert_eq!((&verdicts[0], &verdicts[2]), (&same, &same));
        let Verdict::Different { line, keys, .. } = &verdicts[1] else { panic!("{verdicts:?}") };
        // The first case has the lines 2, 4 ... 12, the second 13, 15 ...; its fourth is at 19.
        assert_eq!((*line, keys.as_slice()), (19, &["done".to_owned()][..]));
        assert_eq!(verdicts.len(), 3);
    }

    #[test]
    fn what_is_no_block_is_told_by_its_line() {
        let refused = |text: &str, expected: &str| {
            let error = checked(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        let tiny = TINY.join("\n");
        let without = |line: usize| tiny.replace(&format!("{}\n", TINY[line]), "");
        refused(TINY[0], ":1: no `case` line follows the `input` line");
        refused(&without(1), ":1: no `case` line follows the `input` line");
        refused(&tiny.replace("\"eos_at\"", "\"eos\""), ":1: unknown field `eos`");
        refused(
            &tiny.replace("[1,0,4]", "[1,3,4]"),
            ":1: request a: a piece of its prompt starts at 3",
        );
        refused(&tiny.replace("\"ctx\"", "\"kv\""), ":4: unknown field `kv`");
        refused(
            &tiny.replace("\"max_total_tokens\":64,\"t", "\"max_total_tokens\":0,\"t"),
            ":1: `",
        );
        let file = written(&format!("{}\n{tiny}", TINY[2]));
        assert!(!is_recording(file.path()).unwrap());
        let error = blocks(file.path()).unwrap_err().to_string();
        assert!(error.ends_with(":1: a recording begins with an `input` line"), "{error}");
    }

    #[test]
    fn what_was_recorded_is_read_whole() {
        let Some(folder) = shared("conformance/sglang") else { return };
        let mut cases = 0;
        for path in files::files_below(&folder).unwrap() {
            if !is_recording(&path).unwrap() {
                continue;
            }
            for block in blocks(&path).unwrap() {
                let lines = block.lines(&path).unwrap();
                let texts = files::lines(&block.file[block.recorded.clone()], block.line);
                for (read, text) in lines.iter().zip(texts) {
                    assert_eq!(read.number, text.number);
                    let again = serde_json::to_value(&read.line).unwrap();
                    let text: serde_json::Value = serde_json::from_slice(text.line).unwrap();
                    assert_eq!(again, text, "{}:{}", path.display(), read.number);
                }
                assert_eq!(block.case.arrivals().unwrap().len(), block.case.requests());
                cases += 1;
            }
        }
        assert_eq!(cases, 294);
    }
}
