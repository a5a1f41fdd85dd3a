//! `RAGPulse`: JSON lines with seconds as text, and the prompt as ids by part. How long the text of an id
//! is stands in a file per part beside the trace.
//!
//! An id names content wherever it stands; a prompt shares a piece only behind a shared prefix. The
//! pieces add up to `input_length` or fall short of it by a template whose place is not told: what is
//! missing is put at the end, and shared with nobody. Where pieces are longer, they are cut. Lengths
//! are held in memory: 16 bytes an id.

use std::path::Path;

use serde_json::Value;

use super::config::TraceConfig;
use super::json_rows::{JsonRows, as_ids, has_fields};
use super::lines::Lines;
use super::mooncake::show;
use super::stamp::SECONDS;
use super::{FormatFacts, IgnoredFields, Row, RowReader, RowTurn, TraceError};
use crate::base::lookup::LookupMap;
use crate::workload::request::{Content, Piece, Segment};

/// How a trace of this format starts, for people.
pub(super) const STARTS_WITH: &str =
    "`{\"timestamp\": \"...\", ..., \"hash_ids\": {` (RAGPulse JSON lines)";

/// A part of a prompt.
struct Part {
    /// Its field in `hash_ids`.
    field: &'static str,
    /// The file with the lengths of its ids.
    file: &'static str,
    /// The field of the id there.
    id: &'static str,
}

/// The parts, in the order in which a prompt has them.
const PARTS: [Part; 5] = [
    Part { field: "sys_prompt", file: "1_sys_prompt.jsonl", id: "sys_prompt_id" },
    Part { field: "passages_ids", file: "2_passages.jsonl", id: "passage_id" },
    Part { field: "history", file: "3_history.jsonl", id: "history_id" },
    Part { field: "web_search", file: "5_web_search.jsonl", id: "web_search_id" },
    Part { field: "user_input", file: "4_user_input.jsonl", id: "user_input_id" },
];

/// The file with the rows.
pub(super) const ROWS: &str = "0_trace.jsonl";

/// Whether `folder` has the files of lengths.
pub(super) fn has_lengths(folder: &Path) -> bool {
    PARTS.iter().all(|part| folder.join(part.file).is_file())
}

/// Ids of a part leave room for its number above them.
const ID_BITS: u32 = 56;

const IDS: &str = "an array of integers from 0 to 72057594037927935 for each part of the prompt";

/// Whether `line` can be the first of a trace in this format.
pub(super) fn recognises(line: &str) -> bool {
    line.contains("\"sys_prompt\"") && has_fields(line, &["timestamp", "hash_ids"])
}

/// Reads a `RAGPulse` trace.
pub(super) struct RagPulse {
    rows: JsonRows,
    /// Tokens by the name of a segment.
    lengths: LookupMap<u64, u32>,
}

impl RagPulse {
    /// Reads the lengths that stand beside the trace.
    ///
    /// # Errors
    /// The trace is a stream, or a file beside it cannot be read.
    pub(super) fn new(lines: Lines, config: &TraceConfig) -> Result<Self, TraceError> {
        if config.path == Path::new("-") {
            return Err(TraceError::NeedsFolder {
                path: lines.path().to_owned(),
                format: "RAGPulse",
                file: ROWS,
            });
        }
        let folder = config.path.parent().unwrap_or(Path::new(""));
        let mut lengths = LookupMap::new();
        for (at, part) in PARTS.iter().enumerate() {
            read_lengths(&folder.join(part.file), at, part.id, &mut lengths)?;
        }
        Ok(Self::with_lengths(lines, lengths, config))
    }

    fn with_lengths(lines: Lines, lengths: LookupMap<u64, u32>, config: &TraceConfig) -> Self {
        let known = &["timestamp", "input_length", "output_length", "hash_ids"];
        let rows = JsonRows::new(lines, known, config).tied(&["session_id"], config);
        Self { rows, lengths }
    }
}

/// Reads the lengths of one part.
fn read_lengths(
    path: &Path,
    part: usize,
    id: &'static str,
    lengths: &mut LookupMap<u64, u32>,
) -> Result<(), TraceError> {
    let mut rows = JsonRows::new(Lines::open(path)?, &[], &TraceConfig::default());
    while let Some(row) = rows.next_row()? {
        let accepted = "an integer from 0 to 72057594037927935";
        let name = row.required(id, accepted, |value| name(part, value.as_u64()?))?;
        lengths.insert(name, row.tokens("token_length")?);
    }
    Ok(())
}

/// The name of the segment of an id of a part; `None` if the id is too large.
fn name(part: usize, id: u64) -> Option<u64> {
    (id < 1 << ID_BITS).then_some((part as u64) << ID_BITS | id)
}

impl RowReader for RagPulse {
    fn next_row(&mut self) -> Result<Option<Row>, TraceError> {
        let Some(row) = self.rows.next_row()? else {
            return Ok(None);
        };
        let accepted = "seconds as text, such as \"82\"";
        let stamp = row.required("timestamp", accepted, |value| match value {
            Value::String(text) => SECONDS.of_text(text),
            number => SECONDS.of_value(number),
        })?;
        let prompt_tokens = row.tokens("input_length")?;
        let output_tokens = row.tokens("output_length")?;
        let parts = row.required("hash_ids", IDS, |value| value.as_object().cloned())?;
        let refuse = |found: String| row.line.refuse("hash_ids", found, IDS);
        if let Some(stranger) = parts.keys().find(|key| PARTS.iter().all(|p| p.field != *key)) {
            return Err(refuse(format!("with the unknown part `{stranger}`")));
        }
        let mut pieces = Vec::new();
        let mut left = prompt_tokens;
        for (at, part) in PARTS.iter().enumerate() {
            let Some(value) = parts.get(part.field) else { continue };
            let ids = as_ids(value)
                .ok_or_else(|| refuse(format!("{} in `{}`", show(value), part.field)))?;
            for id in ids {
                let length = name(at, id).and_then(|name| Some((name, *self.lengths.get(&name)?)));
                let Some((name, length)) = length else {
                    let accepted = format!("ids with a length in {}", part.file);
                    let found = format!("{id} in `{}`", part.field);
                    return Err(row.line.refuse("hash_ids", found, accepted));
                };
                let tokens = length.min(left);
                if tokens > 0 {
                    pieces.push(Piece { segment: Segment::Named(name), tokens });
                    left -= tokens;
                }
            }
        }
        if left > 0 {
            // Nobody else has a segment named by this line.
            let name = (PARTS.len() as u64) << ID_BITS | row.line.number;
            pieces.push(Piece { segment: Segment::Named(name), tokens: left });
        }
        let content = Content::Pieces(pieces);
        let session = row.text("session_id").filter(|_| row.follows);
        // The published file starts its week again halfway, in the midst of sessions.
        let turn =
            |session| RowTurn { session: Some(session), is_by_stamp: true, ..RowTurn::default() };
        let turn = session.map(|session| Box::new(turn(session)));
        let class = row.class();
        Ok(Some(Row {
            content,
            turn,
            class,
            ..Row::new(stamp, row.line.number, prompt_tokens, output_tokens)
        }))
    }

    fn facts(&self) -> FormatFacts {
        FormatFacts::new("timestamp", SECONDS.name)
    }

    fn show_stamp(&self, stamp: i128) -> String {
        SECONDS.show(stamp)
    }

    fn ignored(&self) -> &IgnoredFields {
        self.rows.ignored()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    const ROW: &str = r#"{"timestamp": "82", "input_length": 100, "output_length": 5, "hash_ids": {"sys_prompt": [1, 2], "passages_ids": [1], "history": [], "web_search": [], "user_input": [9]}, "session_id": "a"}"#;

    /// Lengths: system prompts 1 and 2 have 40 and 0 tokens, passage 1 has 30, input 9 has 20.
    fn read(text: &str) -> Result<Vec<Row>, TraceError> {
        let mut lengths = LookupMap::new();
        for (part, id, tokens) in [(0, 1, 40), (0, 2, 0), (1, 1, 30), (4, 9, 20)] {
            lengths.insert(name(part, id).unwrap(), tokens);
        }
        let lines = Lines::new(Box::new(Cursor::new(text.to_owned())), "t".into(), 1 << 20)?;
        let mut reader = RagPulse::with_lengths(lines, lengths, &TraceConfig::default());
        std::iter::from_fn(|| reader.next_row().transpose()).collect()
    }

    fn refused(text: &str) -> String {
        read(text).expect_err("must be refused").to_string()
    }

    fn piece(part: u64, id: u64, tokens: u32) -> Piece {
        Piece { segment: Segment::Named(part << ID_BITS | id), tokens }
    }

    #[test]
    fn pieces_have_the_lengths_of_their_ids_and_the_rest_is_private() {
        // 40 + 0 + 30 + 20 = 90 of 100; ids of several parts are several segments.
        let pieces = vec![piece(0, 1, 40), piece(1, 1, 30), piece(4, 9, 20), piece(5, 1, 10)];
        let expected =
            Row { content: Content::Pieces(pieces), ..Row::new(82_000_000_000, 1, 100, 5) };
        assert_eq!(read(ROW).unwrap(), [expected]);
        let two = read(&format!("{ROW}\n{ROW}\n")).unwrap();
        assert_ne!(two[0].content, two[1].content);
    }

    #[test]
    fn the_length_of_the_prompt_is_believed() {
        let rows = read(&ROW.replace("100", "55")).unwrap();
        assert_eq!(rows[0].content, Content::Pieces(vec![piece(0, 1, 40), piece(1, 1, 15)]));
    }

    #[test]
    fn ids_without_a_length_are_refused() {
        assert_eq!(
            refused(&ROW.replace("[9]", "[8]")),
            "t:1: `hash_ids` is 8 in `user_input`, expected ids with a length in 4_user_input.jsonl"
        );
        let error = refused(&ROW.replace("[9]", "9"));
        assert!(error.starts_with("t:1: `hash_ids` is 9 in `user_input`, expected"), "{error}");
        let error = refused(&ROW.replace("history", "histori"));
        assert!(error.contains("with the unknown part `histori`"), "{error}");
        let error = refused(&ROW.replace("\"82\"", "\"noon\""));
        assert!(error.starts_with("t:1: `timestamp` is \"noon\", expected seconds as text"));
    }

    #[test]
    fn a_file_of_lengths_that_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0_trace.jsonl");
        std::fs::write(&path, ROW).unwrap();
        let config = TraceConfig { path, ..TraceConfig::default() };
        let lines = Lines::open(&config.path).unwrap();
        let error = RagPulse::new(lines, &config).err().unwrap().to_string();
        assert!(error.ends_with("1_sys_prompt.jsonl: no such file"), "{error}");
        let config = TraceConfig { path: "-".into(), ..TraceConfig::default() };
        let lines = Lines::new(Box::new(Cursor::new(ROW)), "<stdin>".into(), 1 << 20).unwrap();
        let error = RagPulse::new(lines, &config).err().unwrap().to_string();
        assert_eq!(
            error,
            "<stdin>: a RAGPulse trace is a folder of files, expected the path of 0_trace.jsonl"
        );
    }
}
