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

    #[test]
    fn the_limits_of_what_was_recorded_are_ours() {
        let Some(folder) = shared("conformance/sglang") else { return };
        for path in files::files_below(&folder).unwrap() {
            if !is_recording(&path).unwrap() {
                continue;
            }
            for block in blocks(&path).unwrap() {
                let lines = block.lines(&path).unwrap();
                let config = block.case.engine_config().resolve().unwrap();
                verdict::tests_head(&block, &lines, &config);
            }
        }
    }
}
