//! servesim's own format, with every field a request has: CSV with a header, or JSON lines.
//!
//! A prompt is a list of pieces, as text:
//!
//! | piece | tokens |
//! |---|---|
//! | `7:512` | the first 512 of segment 7 |
//! | `9~100` | a tail of 100, which nothing but a tail of the same name and length matches |
//! | `9~100:40` | the first 40 of that tail |
//! | `p3:100` | the first 100 that row 3 alone brought: of its prompt, or of what its prompt calls `p3` itself |
//! | `o3:50` | the first 50 of what row 3 generates |
//!
//! A prompt without pieces is one piece of its own, as long as it is. Rows count from 0; they name
//! themselves (`p` only) or rows before them, and then arrive after all of those.
//!
//! Rows of one instant are in the order of the file: the format says everything, so also that.

use std::fmt::{self, Write};

use serde_json::Value;

use super::config::TraceConfig;
use super::json_rows::{JsonRow, JsonRows, as_u32, has_fields};
use super::lines::{Line, Lines};
use super::stamp::{MILLISECONDS, NANOSECONDS, Unit};
use super::table::{Column, TOKENS, Table, cells, optional, required, tie};
use super::{FormatFacts, IgnoredFields, Measured, Row, RowReader, RowTurn, TraceError};
use crate::base::ids::RequestId;
use crate::workload::request::{Content, Piece, RecordedDrafts, RequestSpec, Segment};

/// How a trace in CSV starts, for people.
pub(super) const CSV_STARTS_WITH: &str =
    "`arrival_ns,prompt_tokens,output_tokens,...` or `arrival_ms,...` (servesim CSV)";

/// How a trace in JSON lines starts, for people.
pub(super) const JSON_STARTS_WITH: &str =
    "`{\"arrival_ns\": ..., \"prompt_tokens\": ...` (servesim JSON lines)";

/// The columns, and the fields of a JSON object.
const COLUMNS: [Column; 15] = [
    optional(ARRIVAL_NS),
    optional(ARRIVAL_MS),
    required(PROMPT),
    required(OUTPUT),
    optional(MAX),
    optional(PRIORITY),
    optional(CONTENT),
    tie(SESSION),
    tie(REQUEST),
    tie(WAIT_FOR),
    tie(DELAY_NS),
    tie(DELAY_MS),
    optional(ACCEPTED),
    optional(TTFT_MS),
    optional(E2E_MS),
];
const FIELDS: [&str; 10] =
    [ARRIVAL_NS, ARRIVAL_MS, PROMPT, OUTPUT, MAX, PRIORITY, CONTENT, ACCEPTED, TTFT_MS, E2E_MS];
const TIES: [&str; 5] = [SESSION, REQUEST, WAIT_FOR, DELAY_NS, DELAY_MS];
const ARRIVAL_NS: &str = "arrival_ns";
const ARRIVAL_MS: &str = "arrival_ms";
const PROMPT: &str = "prompt_tokens";
const OUTPUT: &str = "output_tokens";
const MAX: &str = "max_tokens";
const PRIORITY: &str = "priority";
const CONTENT: &str = "content";
const SESSION: &str = "session";
const REQUEST: &str = "request";
const WAIT_FOR: &str = "wait_for";
const DELAY_NS: &str = "delay_ns";
const DELAY_MS: &str = "delay_ms";
const ACCEPTED: &str = "accepted_drafts";
/// What was measured of a request.
const TTFT_MS: &str = "ttft_ms";
const E2E_MS: &str = "e2e_ms";
/// The field of the class, unless another one is named.
const CLASS: &str = "class";

const PRIORITIES: &str = "an integer from -2147483648 to 2147483647";
const DRAFTS: &str = "integers from 0 to 4294967295, at least one, with blanks between them";
const DRAFT_LIST: &str = "a list of integers from 0 to 4294967295, at least one";
const PIECES: &str = "pieces such as `7:512 p3:100 o3:50 9~100`";

/// The header that the writer puts before its rows.
pub(crate) const HEADER: &str = "arrival_ns,prompt_tokens,output_tokens,max_tokens,priority,content,class,session,request,\
     wait_for,delay_ns,accepted_drafts";

/// Whether `line` can be the first of a trace in CSV.
pub(super) fn recognises_csv(line: &str) -> bool {
    let cells = cells(line);
    cells.contains(&PROMPT) && (cells.contains(&ARRIVAL_NS) || cells.contains(&ARRIVAL_MS))
}

/// Whether `line` can be the first of a trace in JSON lines.
pub(super) fn recognises_json(line: &str) -> bool {
    // A row of a session may lack its arrival.
    [ARRIVAL_NS, ARRIVAL_MS, SESSION, REQUEST].iter().any(|name| has_fields(line, &[name, PROMPT]))
}

/// Reads a trace in CSV.
pub(super) struct OwnCsv {
    table: Table,
    stamp_column: usize,
    before: RowsBefore,
}

impl OwnCsv {
    /// Reads the header and stands before the first row.
    ///
    /// # Errors
    /// There is no header, or it lacks a column or has it twice.
    pub(super) fn new(lines: Lines, config: &TraceConfig) -> Result<Self, TraceError> {
        let table = Table::open(lines, &COLUMNS, &with_class(config))?;
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
        Ok(Self { table, stamp_column, before: RowsBefore::default() })
    }

    fn unit(&self) -> Unit {
        [NANOSECONDS, MILLISECONDS][self.stamp_column]
    }
}

impl RowReader for OwnCsv {
    fn numbered(&self) -> u64 {
        self.before.rows()
    }

    fn number_from(&mut self, before: u64) {
        self.before.earlier = before as u32;
    }

    fn next_row(&mut self) -> Result<Option<Row>, TraceError> {
        let unit = self.unit();
        let record = self.table.next_record();
        let number = self.before.begin();
        let Some(record) = record? else {
            return Ok(None);
        };
        let delay = match record
            .parsed_if_any(10, NANOSECONDS.accepted, |c| NANOSECONDS.of_text(c))?
        {
            Some(ns) => Some(ns),
            None => record.parsed_if_any(11, MILLISECONDS.accepted, |c| MILLISECONDS.of_text(c))?,
        };
        let turn = turn(record.text(7), record.text(8), record.text(9), delay);
        let lacks_stamp = turn.is_some() && record.text(self.stamp_column).is_none();
        let stamp = if lacks_stamp { 0 } else { record.stamp(self.stamp_column, unit)? };
        let mut row = Row::new(stamp, record.line.number, record.tokens(2)?, record.tokens(3)?);
        row.turn = turn.map(|turn| Box::new(RowTurn { lacks_stamp, ..turn }));
        row.max_tokens = record.parsed_if_any(4, TOKENS, |cell| cell.parse().ok())?;
        row.priority =
            record.parsed_if_any(5, PRIORITIES, |cell| cell.parse().ok())?.unwrap_or_default();
        row.drafts = record.parsed_if_any(12, DRAFTS, |cell| {
            accepted_drafts(cell.split_ascii_whitespace().map(|number| number.parse().ok()))
        })?;
        if let Some(pieces) = record.parsed_if_any(6, PIECES, parse_pieces)? {
            row.content = content(&record.line, pieces, row.prompt_tokens)?;
        }
        row.class = record.class();
        let time = |column| {
            record.parsed_if_any(column, MILLISECONDS.accepted, |c| MILLISECONDS.of_text(c))
        };
        row.measured = Measured::new(time(13)?, time(14)?);
        self.before.check(&record.line, number, &mut row)?;
        Ok(Some(row))
    }

    fn facts(&self) -> FormatFacts {
        let unit = self.unit();
        FormatFacts {
            is_ordered: true,
            name_field: REQUEST,
            refers_to_rows: true,
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
    before: RowsBefore,
}

impl OwnJson {
    /// Reads `lines`.
    pub(super) fn new(lines: Lines, config: &TraceConfig) -> Self {
        let rows = JsonRows::new(lines, &FIELDS, &with_class(config)).tied(&TIES, config);
        Self { rows, stamp_field: ARRIVAL_NS, before: RowsBefore::default() }
    }
}

impl RowReader for OwnJson {
    fn numbered(&self) -> u64 {
        self.before.rows()
    }

    fn number_from(&mut self, before: u64) {
        self.before.earlier = before as u32;
    }

    fn next_row(&mut self) -> Result<Option<Row>, TraceError> {
        let row = self.rows.next_row();
        let number = self.before.begin();
        let Some(row) = row? else {
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
        let turn = json_turn(&row)?;
        let lacks_stamp = turn.is_some() && !row.fields.contains_key(field);
        let stamp = if lacks_stamp { 0 } else { row.stamp(field, unit)? };
        let mut read = Row::new(stamp, row.line.number, row.tokens(PROMPT)?, row.tokens(OUTPUT)?);
        read.turn = turn.map(|turn| Box::new(RowTurn { lacks_stamp, ..turn }));
        read.max_tokens = row.optional(MAX, TOKENS, as_u32)?;
        let priority = |value: &Value| value.as_i64()?.try_into().ok();
        read.priority = row.optional(PRIORITY, PRIORITIES, priority)?.unwrap_or_default();
        read.drafts = row.optional(ACCEPTED, DRAFT_LIST, |value| {
            accepted_drafts(value.as_array()?.iter().map(as_u32))
        })?;
        let pieces = |value: &Value| parse_pieces(value.as_str()?);
        if let Some(pieces) = row.optional(CONTENT, PIECES, pieces)? {
            read.content = content(&row.line, pieces, read.prompt_tokens)?;
        }
        read.class = row.class();
        let time = |field| {
            row.optional(field, MILLISECONDS.accepted, |value| MILLISECONDS.of_value(value))
        };
        read.measured = Measured::new(time(TTFT_MS)?, time(E2E_MS)?);
        self.before.check(&row.line, number, &mut read)?;
        Ok(Some(read))
    }

    fn facts(&self) -> FormatFacts {
        let unit = if self.stamp_field == ARRIVAL_MS { MILLISECONDS } else { NANOSECONDS };
        FormatFacts {
            is_ordered: true,
            name_field: REQUEST,
            refers_to_rows: true,
            ..FormatFacts::new(self.stamp_field, unit.name)
        }
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

/// A record of accepted drafts, if these are numbers and there are any.
fn accepted_drafts(numbers: impl Iterator<Item = Option<u32>>) -> Option<Box<RecordedDrafts>> {
    let accepted: Vec<u32> = numbers.collect::<Option<_>>()?;
    let record = RecordedDrafts { accepted, found: Vec::new() };
    (!record.accepted.is_empty()).then(|| Box::new(record))
}

/// `config`, with the class where these formats have it.
fn with_class(config: &TraceConfig) -> TraceConfig {
    let class_field = config.class_field.clone().or_else(|| Some(CLASS.to_owned()));
    TraceConfig { class_field, ..config.clone() }
}

/// What a row of JSON follows.
fn json_turn(row: &JsonRow<'_>) -> Result<Option<RowTurn>, TraceError> {
    if !row.follows {
        return Ok(None);
    }
    let time = |field, unit: Unit| row.optional(field, unit.accepted, |v| unit.of_value(v));
    let delay = match time(DELAY_NS, NANOSECONDS)? {
        Some(ns) => Some(ns),
        None => time(DELAY_MS, MILLISECONDS)?,
    };
    let [session, name, wait_for] = [SESSION, REQUEST, WAIT_FOR].map(|field| row.text(field));
    Ok(turn(session, name, wait_for, delay))
}

/// The `wait_for` of a request that waits for nobody, although its session has earlier ones.
pub(crate) const NOBODY: &str = "-";

/// What a row follows; `wait_for` are names with blanks between them.
fn turn(
    session: Option<String>,
    name: Option<String>,
    wait_for: Option<String>,
    delay: Option<i128>,
) -> Option<RowTurn> {
    let names = |text: String| match text.as_str() {
        NOBODY => Vec::new(),
        names => names.split_ascii_whitespace().map(str::to_owned).collect(),
    };
    let wait_for = wait_for.map(names);
    let is_tied = session.is_some() || name.is_some() || wait_for.is_some();
    is_tied.then_some(RowTurn { session, name, wait_for, delay, ..RowTurn::default() })
}

/// The rows before the one that is read, which it may name.
#[derive(Debug, Default)]
struct RowsBefore {
    /// Rows begun, those that cannot be used included.
    begun: u64,
    /// The latest stamp of those that can.
    latest: Option<i128>,
    /// Rows of earlier files.
    earlier: u32,
}

impl RowsBefore {
    /// Rows of all files, at the end of this one.
    fn rows(&self) -> u64 {
        u64::from(self.earlier) + self.begun.saturating_sub(1)
    }

    /// The number of the row that is read next.
    fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.begun - 1
    }

    /// Whether the rows that `row`, the `number`-th, names arrive before it.
    fn check(&mut self, line: &Line<'_>, number: u64, row: &mut Row) -> Result<(), TraceError> {
        let is_late = self.latest.is_some_and(|latest| row.stamp < latest);
        self.latest = self.latest.max(Some(row.stamp));
        let Content::Pieces(pieces) = &mut row.content else { return Ok(()) };
        for piece in pieces.iter() {
            let (other, may_be_itself) = match piece.segment {
                Segment::Prompt(other) => (u64::from(other.0), true),
                Segment::Output(other) => (u64::from(other.0), false),
                Segment::Named(_) | Segment::Tail { .. } => continue,
            };
            if may_be_itself && other == number {
                continue;
            }
            if other >= number {
                let accepted = format!("a row before this one, which is row {number}, from 0 on");
                return Err(line.refuse(CONTENT, format!("`{}`", Text(piece)), accepted));
            }
            if is_late {
                let found =
                    format!("`{}` in a row that arrives before an earlier one", Text(piece));
                return Err(line.refuse(CONTENT, found, "other rows named in order of arrival"));
            }
        }
        for piece in pieces {
            match &mut piece.segment {
                Segment::Prompt(other) | Segment::Output(other) => {
                    other.0 = other.0.saturating_add(self.earlier);
                }
                Segment::Named(_) | Segment::Tail { .. } => {}
            }
        }
        Ok(())
    }
}

/// Pieces as text; `None` if they are not.
fn parse_pieces(text: &str) -> Option<Vec<Piece>> {
    text.split_ascii_whitespace().map(parse_piece).collect()
}

fn parse_piece(text: &str) -> Option<Piece> {
    let row = |text: &str| text.parse().ok().map(RequestId);
    let (segment, tokens) = if let Some((name, length)) = text.split_once('~') {
        let (length, tokens) = length.split_once(':').unwrap_or((length, length));
        let (name, length) = (name.parse().ok()?, length.parse().ok()?);
        (Segment::Tail { name, tokens: length }, tokens)
    } else {
        let (name, tokens) = text.split_once(':')?;
        let segment = if let Some(number) = name.strip_prefix('p') {
            Segment::Prompt(row(number)?)
        } else if let Some(number) = name.strip_prefix('o') {
            Segment::Output(row(number)?)
        } else {
            Segment::Named(name.parse().ok()?)
        };
        (segment, tokens)
    };
    let tokens = tokens.parse().ok()?;
    let is_empty = tokens == 0 || matches!(segment, Segment::Tail { tokens: 0, .. });
    (!is_empty).then_some(Piece { segment, tokens })
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

/// Writes the pieces of `request` as text into `text`; nothing for a prompt that shares nothing. Requests
/// are named by their ids, which are their rows where all are written in order.
pub(crate) fn write_pieces(request: &RequestSpec, text: &mut String) {
    let Content::Pieces(pieces) = &request.content else { return };
    for (at, piece) in pieces.iter().enumerate() {
        let blank = if at == 0 { "" } else { " " };
        write!(text, "{blank}{}", Text(piece)).expect("a string takes all");
    }
}

/// A piece as text.
struct Text<'a>(&'a Piece);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens = self.0.tokens;
        match self.0.segment {
            Segment::Named(name) => write!(f, "{name}:{tokens}"),
            Segment::Tail { name, tokens: length } if length == tokens => {
                write!(f, "{name}~{length}")
            }
            Segment::Tail { name, tokens: length } => write!(f, "{name}~{length}:{tokens}"),
            Segment::Prompt(row) => write!(f, "p{row}:{tokens}"),
            Segment::Output(row) => write!(f, "o{row}:{tokens}"),
        }
    }
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
    fn pieces_may_be_of_other_rows() {
        let of = |row| RequestId(row);
        let pieces = vec![
            Piece { segment: Segment::Prompt(of(0)), tokens: 3 },
            Piece { segment: Segment::Output(of(0)), tokens: 2 },
            Piece { segment: Segment::Tail { name: 9, tokens: 100 }, tokens: 40 },
            Piece { segment: Segment::Prompt(of(1)), tokens: 5 },
        ];
        let csv = format!("{HEADER}\n0,3,2,,,\n0,50,1,,,p0:3 o0:2 9~100:40 p1:5\n");
        let read = rows(Csv, &csv);
        assert_eq!(read[1].content, Content::Pieces(pieces));
    }

    #[test]
    fn rows_name_only_rows_before_them() {
        let csv = |row: &str| refused(Csv, &format!("{HEADER}\n\n5,1,2,,,\n{row}\n"));
        let own = "expected a row before this one, which is row 1, from 0 on";
        assert_eq!(csv("5,1,2,,,o1:1"), format!("t:4: `content` is `o1:1`, {own}"));
        assert_eq!(csv("5,1,2,,,p2:1"), format!("t:4: `content` is `p2:1`, {own}"));
        // Sorted in, it would arrive before the row that it names.
        let error = csv("4,1,2,,,p0:1");
        assert_eq!(
            error,
            "t:4: `content` is `p0:1` in a row that arrives before an earlier one, expected other \
             rows named in order of arrival"
        );
        let json =
            r#"{"arrival_ns": 1, "prompt_tokens": 1, "output_tokens": 2, "content": "p1:1"}"#;
        let error = refused(Jsonl, json);
        assert!(error.ends_with("which is row 0, from 0 on"), "{error}");
    }

    #[test]
    fn milliseconds_are_read_as_well() {
        let csv = "class,output_tokens,arrival_ms,prompt_tokens\nchat,2,1.5,3\n";
        let row = Row { class: Some("chat".into()), ..Row::new(1_500_000, 2, 3, 2) };
        assert_eq!(rows(Auto, csv), [row]);
        assert_eq!(ignored(Csv, &csv.replace("class", "kind")).0, ["kind"]);
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
            ("0,1,2,,,9~0:1", "`content` is \"9~0:1\", expected pieces"),
            ("0,1,2,,,9~4:0", "`content` is \"9~4:0\", expected pieces"),
            ("0,1,2,,,q0:1", "`content` is \"q0:1\", expected pieces"),
            ("0,1,2,,,p:1", "`content` is \"p:1\", expected pieces"),
            ("0,1,2,,,p4294967296:1", "`content` is \"p4294967296:1\", expected pieces"),
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
