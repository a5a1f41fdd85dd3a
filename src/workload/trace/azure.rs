//! Azure LLM inference traces: CSV with a date, prompt tokens and output tokens a row.
//!
//! The 2023 traces have dates without a zone and seven fractional digits, some of 2024 have an
//! offset; both are read to the nanosecond, without an offset as UTC. Prompts have no identity.
//!
//! A line is a record: the format has no quoted line ends, so that no record outgrows a line.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

use super::lines::{Line, Lines};
use super::{FormatFacts, IgnoredFields, Row, RowReader, TraceError};
use crate::base::hint::nearest;
use crate::workload::request::Content;

/// How a trace of this format starts, for people.
pub(super) const STARTS_WITH: &str = "`TIMESTAMP,ContextTokens,GeneratedTokens` (Azure CSV)";

/// The columns that are used.
const COLUMNS: [&str; 3] = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"];

const TOKENS: &str = "an integer from 0 to 4294967295";

/// Whether `line` can be the first of a trace in this format: a header with any of its columns.
pub(super) fn recognises(line: &str) -> bool {
    cells(line).any(|cell| COLUMNS.contains(&cell))
}

/// Reads an Azure trace.
pub(super) struct Azure {
    lines: Lines,
    /// Where each of `COLUMNS` stands.
    places: [usize; 3],
    ignored: IgnoredFields,
}

impl Azure {
    /// Reads the header and stands before the first row.
    ///
    /// # Errors
    /// There is no header, or it lacks a column or has it twice.
    pub(super) fn new(mut lines: Lines) -> Result<Self, TraceError> {
        let path = lines.path().to_owned();
        let Some(line) = lines.next_line()? else {
            return Err(TraceError::Empty { path });
        };
        let mut places = [0; 3];
        for (place, column) in places.iter_mut().zip(COLUMNS) {
            let mut named = cells(line.text).enumerate().filter(|&(_, cell)| cell == column);
            *place = match (named.next(), named.next()) {
                (Some((place, _)), None) => place,
                (Some(_), Some(_)) => {
                    return Err(line.refuse(column, "there twice", "one column of that name"));
                }
                (None, _) => return Err(missing(&line, column)),
            };
        }
        let mut ignored = IgnoredFields::default();
        cells(line.text).filter(|cell| !COLUMNS.contains(cell)).for_each(|cell| ignored.add(cell));
        Ok(Self { lines, places, ignored })
    }
}

impl RowReader for Azure {
    fn next_row(&mut self) -> Result<Option<Row>, TraceError> {
        let Some(line) = self.lines.next_line()? else {
            return Ok(None);
        };
        let mut row = [None; 3];
        for (at, cell) in cells(line.text).enumerate() {
            if let Some(column) = self.places.iter().position(|&place| place == at) {
                row[column] = Some(cell);
            }
        }
        let [date, prompt, output] = row;
        let tokens = |cell: Option<&str>, column| {
            cell.and_then(|cell| cell.parse().ok())
                .ok_or_else(|| line.refuse(column, show(cell), TOKENS))
        };
        Ok(Some(Row {
            stamp: date.and_then(stamp).ok_or_else(|| {
                line.refuse(COLUMNS[0], show(date), "a date such as 2023-11-16 18:17:03.9799600")
            })?,
            line: line.number,
            prompt_tokens: tokens(prompt, COLUMNS[1])?,
            output_tokens: tokens(output, COLUMNS[2])?,
            priority: 0,
            content: Content::Private,
        }))
    }

    fn facts(&self) -> FormatFacts {
        FormatFacts {
            stamp_field: COLUMNS[0],
            time_unit: "date",
            stamps_are_dates: true,
            hash_block_tokens: None,
        }
    }

    fn show_stamp(&self, stamp: i128) -> String {
        Timestamp::from_nanosecond(stamp).map_or_else(|_| stamp.to_string(), |t| t.to_string())
    }

    fn ignored(&self) -> &IgnoredFields {
        &self.ignored
    }
}

/// The cells of a line, without blanks and quotes around them.
fn cells(line: &str) -> impl Iterator<Item = &str> {
    line.split(',').map(|cell| cell.trim().trim_matches('"'))
}

/// A cell as written, cut to what fits a message.
fn show(cell: Option<&str>) -> String {
    cell.map_or("missing".to_owned(), |cell| {
        format!("{:?}", cell.chars().take(40).collect::<String>())
    })
}

/// The instant of a date, in nanoseconds since 1970.
fn stamp(date: &str) -> Option<i128> {
    // After the ten characters of the day, a sign or a letter can only be an offset.
    let has_offset = date.get(10..)?.contains(['+', '-', 'Z', 'z']);
    let instant: Timestamp = if has_offset {
        date.parse().ok()?
    } else {
        Offset::UTC.to_timestamp(date.parse::<DateTime>().ok()?).ok()?
    };
    Some(instant.as_nanosecond())
}

fn missing(header: &Line<'_>, column: &'static str) -> TraceError {
    let strangers = cells(header.text).filter(|cell| !COLUMNS.contains(cell));
    TraceError::MissingColumn {
        path: header.path.to_owned(),
        line: header.number,
        column,
        found: show(Some(header.text)),
        hint: nearest(column, strangers)
            .map_or(String::new(), |name| format!(", did you mean `{name}`?")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    const HEADER: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n";

    fn open(text: &str) -> Result<Azure, TraceError> {
        Azure::new(Lines::new(Box::new(Cursor::new(text.to_owned())), "t".into(), 1 << 20)?)
    }

    fn read(text: &str) -> Result<Vec<Row>, TraceError> {
        let mut reader = open(text)?;
        std::iter::from_fn(|| reader.next_row().transpose()).collect()
    }

    fn refused(text: &str) -> String {
        read(text).expect_err("must be refused").to_string()
    }

    #[test]
    fn rows_are_exact_to_the_hundred_nanoseconds() {
        let rows = read(&format!(
            "{HEADER}2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:50.9951690,396,109\r\n"
        ))
        .unwrap();
        assert_eq!(rows[1].stamp - rows[0].stamp, 4_314_579_000);
        assert_eq!(
            (rows[1].line, rows[1].prompt_tokens, rows[1].output_tokens, &rows[1].content),
            (3, 396, 109, &Content::Private)
        );
    }

    #[test]
    fn offsets_are_taken_off() {
        let utc = stamp("2024-05-10 00:00:00.009930").unwrap();
        // 2024-05-10 is day 19,853 of 1970.
        assert_eq!(utc, 19_853 * 86_400 * 1_000_000_000 + 9_930_000);
        assert_eq!(stamp("2024-05-10 00:00:00.009930+00:00"), Some(utc));
        assert_eq!(stamp("2024-05-10T02:00:00.009930+02:00"), Some(utc));
        assert_eq!(stamp("2024-05-10T00:00:00.009930Z"), Some(utc));
    }

    #[test]
    fn columns_are_found_by_name() {
        let rows = read(
            "NumImages,GeneratedTokens,\"TIMESTAMP\", ContextTokens\n\
             1,2,\"2023-11-16 00:00:00\", 3\n",
        )
        .unwrap();
        assert_eq!((rows[0].prompt_tokens, rows[0].output_tokens), (3, 2));
        let reader = open("NumImages,GeneratedTokens,TIMESTAMP,ContextTokens\n").unwrap();
        assert_eq!(reader.ignored.names.iter().collect::<Vec<_>>(), ["NumImages"]);
    }

    #[test]
    fn a_missing_column_is_named_with_the_nearest() {
        assert_eq!(
            refused("TIMESTAMP,ContextToken,GeneratedTokens\n"),
            "t:1: column `ContextTokens` is missing, found \
             \"TIMESTAMP,ContextToken,GeneratedTokens\", did you mean `ContextToken`?"
        );
        assert!(
            refused("TIMESTAMP,ContextTokens\n").ends_with("found \"TIMESTAMP,ContextTokens\"")
        );
        assert_eq!(
            refused("TIMESTAMP,ContextTokens,TIMESTAMP,GeneratedTokens\n"),
            "t:1: `TIMESTAMP` is there twice, expected one column of that name"
        );
        assert!(matches!(open("\n"), Err(TraceError::Empty { .. })));
    }

    #[test]
    fn cells_that_cannot_be_read_name_their_column() {
        let date = "2023-11-16 18:15:46.6805900";
        for (row, expected) in [
            ("1,2,3", r#"`TIMESTAMP` is "1", expected a date such as 2023-11-16"#),
            ("2023-13-16 18:15:46,2,3", "`TIMESTAMP` is \"2023-13-16 18:15:46\", expected"),
            ("2023-11-16é,2,3", "`TIMESTAMP` is \"2023-11-16é\", expected"),
            (&format!("{date},-2,3"), "`ContextTokens` is \"-2\", expected an integer from 0 to"),
            (&format!("{date},2,x"), "`GeneratedTokens` is \"x\", expected"),
            (&format!("{date},2,4294967296"), "`GeneratedTokens` is \"4294967296\", expected"),
            (&format!("{date},2"), "`GeneratedTokens` is missing, expected"),
        ] {
            let error = refused(&format!("{HEADER}{row}\n"));
            assert!(error.starts_with(&format!("t:2: {expected}")), "{error}");
        }
    }
}
