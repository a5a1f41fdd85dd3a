//! servesim's own format, with every field a request has: CSV with a header, or JSON lines.
//!
//! A prompt is a list of pieces, as text: `7:512 8:512 9~100` is 512 tokens of segment 7, 512 of
//! segment 8, and a tail of 100 tokens that nothing but a tail of the same name and length matches. A
//! prompt without pieces shares nothing.
//!
//! Rows of one instant are in the order of the file: the format says everything, so also that.

use std::fmt::Write;

use serde_json::Value;

use super::json_rows::{JsonRows, as_u32, has_fields};
use super::lines::{Line, Lines};
use super::stamp::{MILLISECONDS, NANOSECONDS, Unit};
use super::table::{Column, TOKENS, Table, cells, optional, required};
use super::{FormatFacts, IgnoredFields, Row, RowReader, TraceError};
use crate::workload::request::{Content, Piece, RequestSpec, Segment};

/// How a trace in CSV starts, for people.
pub(super) const CSV_STARTS_WITH: &str =
    "`arrival_ns,prompt_tokens,output_tokens,...` or `arrival_ms,...` (servesim CSV)";

/// How a trace in JSON lines starts, for people.
pub(super) const JSON_STARTS_WITH: &str =
    "`{\"arrival_ns\": ..., \"prompt_tokens\": ...` (servesim JSON lines)";

/// The columns, and the fields of a JSON object.
const COLUMNS: [Column; 7] = [
    optional(ARRIVAL_NS),
    optional(ARRIVAL_MS),
    required(PROMPT),
    required(OUTPUT),
    optional(MAX),
    optional(PRIORITY),
    optional(CONTENT),
];
const FIELDS: [&str; 7] = [ARRIVAL_NS, ARRIVAL_MS, PROMPT, OUTPUT, MAX, PRIORITY, CONTENT];
const ARRIVAL_NS: &str = "arrival_ns";
const ARRIVAL_MS: &str = "arrival_ms";
const PROMPT: &str = "prompt_tokens";
const OUTPUT: &str = "output_tokens";
const MAX: &str = "max_tokens";
const PRIORITY: &str = "priority";
const CONTENT: &str = "content";

const PRIORITIES: &str = "an integer from -2147483648 to 2147483647";
const PIECES: &str = "pieces such as `7:512 8:512 9~100`";

/// The header that the writer puts before its rows.
pub(crate) const HEADER: &str =
    "arrival_ns,prompt_tokens,output_tokens,max_tokens,priority,content";

/// Whether `line` can be the first of a trace in CSV.
pub(super) fn recognises_csv(line: &str) -> bool {
    let cells = cells(line);
    cells.contains(&PROMPT) && (cells.contains(&ARRIVAL_NS) || cells.contains(&ARRIVAL_MS))
}

/// Whether `line` can be the first of a trace in JSON lines.
pub(super) fn recognises_json(line: &str) -> bool {
    has_fields(line, &[ARRIVAL_NS, PROMPT]) || has_fields(line, &[ARRIVAL_MS, PROMPT])
}

/// Reads a trace in CSV.
pub(super) struct OwnCsv {
    table: Table,
    stamp_column: usize,
}

impl OwnCsv {
    /// Reads the header and stands before the first row.
    ///
    /// # Errors
    /// There is no header, or it lacks a column or has it twice.
    pub(super) fn new(lines: Lines) -> Result<Self, TraceError> {
        let table = Table::open(lines, &COLUMNS)?;
        if !table.has(0) && !table.has(1) {
            let path = table.path().to_owned();
            return Err(TraceError::NoArrivals { path, column: ARRIVAL_NS });
        }
        if table.has(0) && table.has(1) {
            return Err(TraceError::BothSpellings {
                path: table.path().to_owned(),
                line: table.header_line(),
                field: ARRIVAL_NS,
                alias: ARRIVAL_MS,
            });
        }
        let stamp_column = usize::from(!table.has(0));
        Ok(Self { table, stamp_column })
    }

    fn unit(&self) -> Unit {
        [NANOSECONDS, MILLISECONDS][self.stamp_column]
    }
}

impl RowReader for OwnCsv {
    fn next_row(&mut self) -> Result<Option<Row>, TraceError> {
        let unit = self.unit();
        let Some(record) = self.table.next_record()? else {
            return Ok(None);
        };
        let mut row = Row::new(
            record.stamp(self.stamp_column, unit)?,
            record.line.number,
            record.tokens(2)?,
            record.tokens(3)?,
        );
        row.max_tokens = record.parsed_if_any(4, TOKENS, |cell| cell.parse().ok())?;
        row.priority =
            record.parsed_if_any(5, PRIORITIES, |cell| cell.parse().ok())?.unwrap_or_default();
        if let Some(pieces) = record.parsed_if_any(6, PIECES, parse_pieces)? {
            row.content = content(&record.line, pieces, row.prompt_tokens)?;
        }
        Ok(Some(row))
    }

    fn facts(&self) -> FormatFacts {
        let unit = self.unit();
        FormatFacts {
            is_ordered: true,
            ..FormatFacts::new(COLUMNS[self.stamp_column].name, unit.name)
        }
    }

    fn show_stamp(&self, stamp: i128) -> String {
        self.unit().show(stamp)
    }

    fn ignored(&self) -> &IgnoredFields {
        self.table.ignored()
    }
}

/// Reads a trace in JSON lines.
pub(super) struct OwnJson {
    rows: JsonRows,
    /// The field that the last row had its stamp in.
    stamp_field: &'static str,
}

impl OwnJson {
    /// Reads `lines`.
    pub(super) fn new(lines: Lines) -> Self {
        Self { rows: JsonRows::new(lines, &FIELDS), stamp_field: ARRIVAL_NS }
    }
}

impl RowReader for OwnJson {
    fn next_row(&mut self) -> Result<Option<Row>, TraceError> {
        let Some(row) = self.rows.next_row()? else {
            return Ok(None);
        };
        let has = |field| row.fields.contains_key(field);
        let (field, unit) = match (has(ARRIVAL_NS), has(ARRIVAL_MS)) {
            (true, true) => {
                return Err(TraceError::BothSpellings {
                    path: row.line.path.to_owned(),
                    line: row.line.number,
                    field: ARRIVAL_NS,
                    alias: ARRIVAL_MS,
                });
            }
            (false, true) => (ARRIVAL_MS, MILLISECONDS),
            _ => (ARRIVAL_NS, NANOSECONDS),
        };
        self.stamp_field = field;
        let mut read = Row::new(
            row.stamp(field, unit)?,
            row.line.number,
            row.tokens(PROMPT)?,
            row.tokens(OUTPUT)?,
        );
        read.max_tokens = row.optional(MAX, TOKENS, as_u32)?;
        let priority = |value: &Value| value.as_i64()?.try_into().ok();
        read.priority = row.optional(PRIORITY, PRIORITIES, priority)?.unwrap_or_default();
        let pieces = |value: &Value| parse_pieces(value.as_str()?);
        if let Some(pieces) = row.optional(CONTENT, PIECES, pieces)? {
            read.content = content(&row.line, pieces, read.prompt_tokens)?;
        }
        Ok(Some(read))
    }

    fn facts(&self) -> FormatFacts {
        let unit = if self.stamp_field == ARRIVAL_MS { MILLISECONDS } else { NANOSECONDS };
        FormatFacts { is_ordered: true, ..FormatFacts::new(self.stamp_field, unit.name) }
    }

    fn show_stamp(&self, stamp: i128) -> String {
        if self.stamp_field == ARRIVAL_MS {
            MILLISECONDS.show(stamp)
        } else {
            // Every nanosecond, which a double would not keep.
            format!("{stamp} ns")
        }
    }

    fn ignored(&self) -> &IgnoredFields {
        self.rows.ignored()
    }
}

/// Pieces as text; `None` if they are not.
fn parse_pieces(text: &str) -> Option<Vec<Piece>> {
    text.split_ascii_whitespace()
        .map(|piece| {
            let at = piece.find([':', '~'])?;
            let (name, tokens) = (piece[..at].parse().ok()?, piece[at + 1..].parse().ok()?);
            let segment = match piece.as_bytes()[at] {
                b':' => Segment::Named(name),
                _ => Segment::Tail { name, tokens },
            };
            (tokens > 0).then_some(Piece { segment, tokens })
        })
        .collect()
}

/// The prompt that `pieces` make.
fn content(line: &Line<'_>, pieces: Vec<Piece>, prompt_tokens: u32) -> Result<Content, TraceError> {
    let sum: u64 = pieces.iter().map(|piece| u64::from(piece.tokens)).sum();
    if pieces.is_empty() {
        Ok(Content::Private)
    } else if sum == u64::from(prompt_tokens) {
        Ok(Content::Pieces(pieces))
    } else {
        let accepted = format!("pieces of {prompt_tokens} tokens, as in `{PROMPT}`");
        Err(line.refuse(CONTENT, format!("pieces of {sum} tokens"), accepted))
    }
}

/// Writes the pieces of `request` as text into `text`; nothing for a prompt that shares nothing. Answers
/// whether the format has words for it.
pub(crate) fn write_pieces(request: &RequestSpec, text: &mut String) -> bool {
    let Content::Pieces(pieces) = &request.content else { return true };
    for (at, piece) in pieces.iter().enumerate() {
        let blank = if at == 0 { "" } else { " " };
        let written = match piece.segment {
            Segment::Named(name) => write!(text, "{blank}{name}:{}", piece.tokens),
            // A part of a tail would match what the tail does not.
            Segment::Tail { name, tokens } if tokens == piece.tokens => {
                write!(text, "{blank}{name}~{tokens}")
            }
            _ => return false,
        };
        written.expect("a string takes all");
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ignored, refused, rows};
    use super::*;
    use crate::workload::trace::TraceFormat::{Auto, Csv, Jsonl};

    fn whole_row() -> Row {
        let pieces = vec![
            Piece { segment: Segment::Named(7), tokens: 512 },
            Piece { segment: Segment::Tail { name: 9, tokens: 100 }, tokens: 100 },
        ];
        Row {
            priority: -2,
            max_tokens: Some(64),
            content: Content::Pieces(pieces),
            ..Row::new(1_000_000_007, 2, 612, 44)
        }
    }

    #[test]
    fn every_field_is_read() {
        let csv = format!("{HEADER}\n1000000007,612,44,64,-2,7:512 9~100\n0,1,2,,,\n");
        assert_eq!(rows(Csv, &csv), [whole_row(), Row::new(0, 3, 1, 2)]);
        assert_eq!(rows(Auto, &csv), rows(Csv, &csv));
        let json = "\n{\"arrival_ns\": 1000000007, \"prompt_tokens\": 612, \"output_tokens\": 44, \
                    \"max_tokens\": 64, \"priority\": -2, \"content\": \"7:512 9~100\"}\n";
        assert_eq!(rows(Jsonl, json), [whole_row()]);
        assert_eq!(rows(Auto, json), [whole_row()]);
    }

    #[test]
    fn milliseconds_are_read_as_well() {
        let csv = "class,output_tokens,arrival_ms,prompt_tokens\nchat,2,1.5,3\n";
        assert_eq!(rows(Auto, csv), [Row::new(1_500_000, 2, 3, 2)]);
        assert_eq!(ignored(Csv, csv).0, ["class"]);
        let json = "{\"arrival_ms\": 1.5, \"prompt_tokens\": 3, \"output_tokens\": 2}";
        assert_eq!(rows(Auto, json), [Row::new(1_500_000, 1, 3, 2)]);
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let csv = |row: &str| refused(Csv, &format!("{HEADER}\n{row}\n"));
        for (row, expected) in [
            ("x,1,2,,,", "`arrival_ns` is \"x\", expected a number of nanoseconds"),
            ("0,1,2,-1,,", "`max_tokens` is \"-1\", expected an integer"),
            ("0,1,2,,1.5,", "`priority` is \"1.5\", expected an integer from -2147483648"),
            ("0,1,2,,,7", "`content` is \"7\", expected pieces such as `7:512"),
            ("0,1,2,,,7:0", "`content` is \"7:0\", expected pieces"),
            ("0,1,2,,,-7:1", "`content` is \"-7:1\", expected pieces"),
            ("0,3,2,,,7:1 8:1", "`content` is pieces of 2 tokens, expected pieces of 3 tokens"),
        ] {
            let error = csv(row);
            assert!(error.starts_with(&format!("t:2: {expected}")), "{error}");
        }
        let error = refused(Csv, "prompt_tokens,output_tokens\n1,2\n");
        assert!(error.starts_with("t: no arrivals, expected a column `arrival_ns`"), "{error}");
        assert_eq!(
            refused(Csv, "\narrival_ns,arrival_ms,prompt_tokens,output_tokens\n1,1,1,2\n"),
            "t:2: `arrival_ns` and `arrival_ms` are both present, expected one of them"
        );
        let row = r#"{"arrival_ns": 1, "arrival_ms": 1, "prompt_tokens": 3, "output_tokens": 2}"#;
        let error = refused(Jsonl, row);
        assert!(error.contains("`arrival_ns` and `arrival_ms` are both present"), "{error}");
        let error = refused(Jsonl, &row.replace(", \"arrival_ms\": 1", ", \"content\": [7]"));
        assert!(error.starts_with("t:1: `content` is [7], expected pieces"), "{error}");
    }
}
