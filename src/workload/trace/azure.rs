//! Azure LLM inference traces: CSV with a date, prompt tokens and output tokens a row.
//!
//! The 2023 traces have dates without a zone and seven fractional digits, some of 2024 have an
//! offset; both are read to the nanosecond, without an offset as UTC. Prompts have no identity.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

use super::config::TraceConfig;
use super::lines::Lines;
use super::table::{Column, Table, cells, required};
use super::{FormatFacts, IgnoredFields, Row, RowReader, TraceError};

/// How a trace of this format starts, for people.
pub(super) const STARTS_WITH: &str = "`TIMESTAMP,ContextTokens,GeneratedTokens` (Azure CSV)";

/// The columns that are used.
const COLUMNS: [Column; 3] =
    [required("TIMESTAMP"), required("ContextTokens"), required("GeneratedTokens")];
const TIMESTAMP: usize = 0;
const PROMPT: usize = 1;
const OUTPUT: usize = 2;

/// Whether `line` can be the first of a trace in this format: a header with any of its columns.
pub(super) fn recognises(line: &str) -> bool {
    cells(line).iter().any(|&cell| COLUMNS.iter().any(|column| column.name == cell))
}

/// Reads an Azure trace.
pub(super) struct Azure(Table);

impl Azure {
    /// Reads the header and stands before the first row.
    ///
    /// # Errors
    /// There is no header, or it lacks a column or has it twice.
    pub(super) fn new(lines: Lines, config: &TraceConfig) -> Result<Self, TraceError> {
        Table::open(lines, &COLUMNS, config).map(Self)
    }
}

impl RowReader for Azure {
    fn next_row(&mut self) -> Result<Option<Row>, TraceError> {
        let Some(record) = self.0.next_record()? else {
            return Ok(None);
        };
        let date = "a date such as 2023-11-16 18:17:03.9799600";
        Ok(Some(Row::new(
            record.parsed(TIMESTAMP, date, stamp)?,
            record.line.number,
            record.tokens(PROMPT)?,
            record.tokens(OUTPUT)?,
        )))
    }

    fn facts(&self) -> FormatFacts {
        FormatFacts { stamps_are_dates: true, ..FormatFacts::new(COLUMNS[TIMESTAMP].name, "date") }
    }

    fn show_stamp(&self, stamp: i128) -> String {
        Timestamp::from_nanosecond(stamp).map_or_else(|_| stamp.to_string(), |t| t.to_string())
    }

    fn ignored(&self) -> &IgnoredFields {
        self.0.ignored()
    }
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

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::workload::request::Content;

    const HEADER: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n";

    fn open(text: &str) -> Result<Azure, TraceError> {
        let lines = Lines::new(Box::new(Cursor::new(text.to_owned())), "t".into(), 1 << 20)?;
        Azure::new(lines, &TraceConfig::default())
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
        assert_eq!(reader.ignored().names.iter().collect::<Vec<_>>(), ["NumImages"]);
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
