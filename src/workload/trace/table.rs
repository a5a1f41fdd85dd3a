//! CSV traces: a header, and a record a line.
//!
//! Columns are found by name, in any order. A line is a record: no format has quoted line ends, so that
//! no record outgrows a line.

use super::config::TraceConfig;
use super::lines::{Line, Lines};
use super::stamp::Unit;
use super::{FormatFacts, IgnoredFields, Row, RowReader, RowTurn, TraceError};
use crate::base::hint::nearest;

/// What a count of tokens may be, for people.
pub(super) const TOKENS: &str = "an integer from 0 to 4294967295";

/// A column that a reader uses.
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) is_required: bool,
    /// Whether it ties rows to each other, so that it is read only where that is wanted.
    pub(super) is_tie: bool,
}

/// A column that a trace must have.
pub(super) const fn required(name: &'static str) -> Column {
    Column { name, is_required: true, is_tie: false }
}

/// A column that a trace may have.
pub(super) const fn optional(name: &'static str) -> Column {
    Column { name, is_required: false, is_tie: false }
}

/// A column that a trace may have, and that ties its rows to each other.
pub(super) const fn tie(name: &'static str) -> Column {
    Column { name, is_required: false, is_tie: true }
}

/// A CSV trace behind its header.
pub(super) struct Table {
    lines: Lines,
    columns: &'static [Column],
    /// Where each of the columns stands.
    places: Vec<Option<usize>>,
    /// Where the class stands.
    class: Option<usize>,
    /// Cells of the header.
    width: usize,
    header_line: u64,
    ignored: IgnoredFields,
}

impl Table {
    /// Reads the header and stands before the first record.
    ///
    /// # Errors
    /// There is no header, or it lacks a required column or has one twice.
    pub(super) fn open(
        mut lines: Lines,
        columns: &'static [Column],
        config: &TraceConfig,
    ) -> Result<Self, TraceError> {
        let path = lines.path().to_owned();
        let Some(line) = lines.next_line()? else {
            return Err(TraceError::Empty { path });
        };
        let header = cells(line.text);
        let mut places = Vec::with_capacity(columns.len());
        for column in columns {
            let mut named = header.iter().enumerate().filter(|&(_, &cell)| cell == column.name);
            let is_used = config.sessions.is_some() || !column.is_tie;
            places.push(match (named.next(), named.next()) {
                _ if !is_used => None,
                (Some((place, _)), None) => Some(place),
                (None, _) if !column.is_required => None,
                (None, _) => return Err(missing(&line, column.name, columns)),
                (Some(_), Some(_)) => {
                    return Err(line.refuse(column.name, "there twice", "one column of that name"));
                }
            });
        }
        let mut ignored = IgnoredFields::default();
        let class_field = config.class_field.as_deref();
        let class = header.iter().position(|&cell| Some(cell) == class_field);
        let is_known = |cell: &str| {
            let uses = |column: &Column| config.sessions.is_some() || !column.is_tie;
            Some(cell) == class_field || columns.iter().any(|c| c.name == cell && uses(c))
        };
        header.iter().filter(|cell| !is_known(cell)).for_each(|cell| ignored.add(cell));
        let (width, header_line) = (header.len(), line.number);
        Ok(Self { lines, columns, places, class, width, header_line, ignored })
    }

    /// The next record, or `None` at the end.
    ///
    /// # Errors
    /// The line cannot be read, or has more cells than the header: then no cell is sure to stand in its
    /// column. A record that is too short lacks the cells of the columns at the end.
    pub(super) fn next_record(&mut self) -> Result<Option<Record<'_>>, TraceError> {
        let Some(line) = self.lines.next_line()? else {
            return Ok(None);
        };
        let cells = cells(line.text);
        if cells.len() > self.width {
            return Err(TraceError::SurplusCells {
                path: line.path.to_owned(),
                line: line.number,
                found: cells.len(),
                expected: self.width,
            });
        }
        let (columns, places, class) = (self.columns, &self.places[..], self.class);
        Ok(Some(Record { line, cells, columns, places, class }))
    }

    /// The line of the header.
    pub(super) fn header_line(&self) -> u64 {
        self.header_line
    }

    /// Whether the trace has the column at `column` of those that were asked for.
    pub(super) fn has(&self, column: usize) -> bool {
        self.places[column].is_some()
    }

    /// The columns that are not used.
    pub(super) fn ignored(&self) -> &IgnoredFields {
        &self.ignored
    }

    /// The name errors give to the trace.
    pub(super) fn path(&self) -> &std::path::Path {
        self.lines.path()
    }
}

/// One record of a table.
pub(super) struct Record<'a> {
    pub(super) line: Line<'a>,
    cells: Vec<&'a str>,
    columns: &'static [Column],
    places: &'a [Option<usize>],
    class: Option<usize>,
}

impl Record<'_> {
    /// The cell in the given column; `None` if the trace lacks the column, or the record its cell.
    pub(super) fn cell(&self, column: usize) -> Option<&str> {
        self.cells.get(self.places[column]?).copied()
    }

    /// What the class of the record is called; nothing where its cell is empty.
    pub(super) fn class(&self) -> Option<Box<str>> {
        let cell = self.cells.get(self.class?).copied()?;
        (!cell.is_empty()).then(|| cell.into())
    }

    /// The cell in a column of text; nothing where it is empty.
    pub(super) fn text(&self, column: usize) -> Option<String> {
        self.cell(column).filter(|cell| !cell.is_empty()).map(str::to_owned)
    }

    /// The cell in a column of tokens.
    ///
    /// # Errors
    /// There is none, or it is no count.
    pub(super) fn tokens(&self, column: usize) -> Result<u32, TraceError> {
        self.parsed(column, TOKENS, |cell| cell.parse().ok())
    }

    /// The cell in a column of stamps, in nanoseconds.
    ///
    /// # Errors
    /// There is none, or it is no stamp.
    pub(super) fn stamp(&self, column: usize, unit: Unit) -> Result<i128, TraceError> {
        self.parsed(column, unit.accepted, |cell| unit.of_text(cell))
    }

    /// The cell in the given column, as `parse` understands it.
    ///
    /// # Errors
    /// There is none, or `parse` makes nothing of it.
    pub(super) fn parsed<T>(
        &self,
        column: usize,
        accepted: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, TraceError> {
        let cell = self.cell(column);
        cell.and_then(parse)
            .ok_or_else(|| self.line.refuse(self.columns[column].name, show(cell), accepted))
    }

    /// As [`Record::parsed`], but `None` where the cell is empty or absent.
    pub(super) fn parsed_if_any<T>(
        &self,
        column: usize,
        accepted: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, TraceError> {
        match self.cell(column) {
            None | Some("") => Ok(None),
            Some(_) => self.parsed(column, accepted, parse).map(Some),
        }
    }
}

/// The cells of a line, without blanks and quotes around them. A comma between quotes is no end.
pub(super) fn cells(line: &str) -> Vec<&str> {
    let mut is_quoted = false;
    line.split(|c| {
        is_quoted ^= c == '"';
        c == ',' && !is_quoted
    })
    .map(|cell| cell.trim().trim_matches('"'))
    .collect()
}

/// A cell as written, cut to what fits a message.
fn show(cell: Option<&str>) -> String {
    cell.map_or("missing".to_owned(), |cell| {
        format!("{:?}", cell.chars().take(40).collect::<String>())
    })
}

fn missing(header: &Line<'_>, column: &'static str, columns: &[Column]) -> TraceError {
    let cells = cells(header.text);
    let is_known = |cell: &str| columns.iter().any(|column| column.name == cell);
    let strangers = cells.into_iter().filter(|cell| !is_known(cell));
    TraceError::MissingColumn {
        path: header.path.to_owned(),
        line: header.number,
        column,
        found: show(Some(header.text)),
        hint: nearest(column, strangers)
            .map_or(String::new(), |name| format!(", did you mean `{name}`?")),
    }
}

/// The places of the columns that every row is made of, among those that are asked for.
pub(super) const STAMP: usize = 0;
pub(super) const PROMPT: usize = 1;
pub(super) const OUTPUT: usize = 2;

/// Rows of a stamp, prompt tokens and output tokens, which are the first three of the columns. Prompts have no identity.
pub(super) struct PlainRows {
    table: Table,
    unit: Unit,
    check: Check,
    turn: Turn,
}

/// What a record says of what it follows.
type Turn = fn(&Record<'_>) -> Result<Option<RowTurn>, TraceError>;

/// What else a record has to be.
type Check = fn(&Record<'_>) -> Result<(), TraceError>;

impl PlainRows {
    /// The rows behind the header of `table`, with stamps in `unit`.
    pub(super) fn new(table: Table, unit: Unit) -> Self {
        Self { table, unit, check: |_| Ok(()), turn: |_| Ok(None) }
    }

    /// The same rows, each of them checked.
    #[must_use]
    pub(super) fn checked(self, check: Check) -> Self {
        Self { check, ..self }
    }

    /// The same rows, which may follow each other.
    #[must_use]
    pub(super) fn with_turns(self, turn: Turn) -> Self {
        Self { turn, ..self }
    }
}

impl RowReader for PlainRows {
    fn next_row(&mut self) -> Result<Option<Row>, TraceError> {
        let Some(record) = self.table.next_record()? else {
            return Ok(None);
        };
        (self.check)(&record)?;
        let stamp = record.stamp(STAMP, self.unit)?;
        let (prompt, output) = (record.tokens(PROMPT)?, record.tokens(OUTPUT)?);
        Ok(Some(Row {
            turn: (self.turn)(&record)?.map(Box::new),
            class: record.class(),
            ..Row::new(stamp, record.line.number, prompt, output)
        }))
    }

    fn facts(&self) -> FormatFacts {
        FormatFacts::new(self.table.columns[STAMP].name, self.unit.name)
    }

    fn show_stamp(&self, stamp: i128) -> String {
        self.unit.show(stamp)
    }

    fn ignored(&self) -> &IgnoredFields {
        self.table.ignored()
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::TraceFormat::Vidur;
    use super::super::testing::refused;
    use super::*;

    #[test]
    fn commas_between_quotes_are_no_ends() {
        assert_eq!(cells(r#"a, "b,c" ,,"d""#), ["a", "b,c", "", "d"]);
        assert_eq!(cells(""), [""]);
    }

    #[test]
    fn records_with_more_cells_than_the_header_are_refused() {
        // Three columns; what is too short is judged by the columns that are needed.
        let rows =
            |record: &str| format!("arrived_at,num_prefill_tokens,num_decode_tokens\n{record}\n");
        assert_eq!(
            refused(Vidur, &rows("0,1,2\n1,2,3,4,5")),
            "t:3: a row of 5 cells, expected 3, as in the header"
        );
        assert_eq!(
            refused(Vidur, &rows("1,2,3,")),
            "t:2: a row of 4 cells, expected 3, as in the header"
        );
        assert!(refused(Vidur, &rows("1,2")).starts_with("t:2: `num_decode_tokens` is missing"));
        // A header that ends in a comma has a column without a name.
        let text = "arrived_at,num_prefill_tokens,num_decode_tokens,\n1,2,3,\n2,2,3\n";
        assert_eq!(super::super::testing::rows(Vidur, text).len(), 2);
    }
}
