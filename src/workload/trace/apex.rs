//! APEX: nanoseconds, prompt tokens and output tokens, as JSON lines or as CSV. Prompts have no
//! identity.

use super::config::TraceConfig;
use super::json_rows::{JsonRows, has_fields};
use super::lines::Lines;
use super::stamp::NANOSECONDS;
use super::table::{Column, PlainRows, Table, cells, required};
use super::{FormatFacts, IgnoredFields, Row, RowReader, TraceError};

/// How a trace of this format starts, for people.
pub(super) const STARTS_WITH: &str =
    "`{\"StartTimeOffset\": ...` or `StartTimeOffset,ContextTokens,GeneratedTokens` (APEX)";

const STAMP: &str = "StartTimeOffset";
const PROMPT: &str = "ContextTokens";
const OUTPUT: &str = "GeneratedTokens";
const COLUMNS: [Column; 3] = [required(STAMP), required(PROMPT), required(OUTPUT)];

/// Whether `line` can be the first of a trace in this format.
pub(super) fn recognises(line: &str) -> bool {
    has_fields(line, &[STAMP]) || (!is_json(line) && cells(line).contains(&STAMP))
}

fn is_json(line: &str) -> bool {
    line.trim_start().starts_with('{')
}

/// Reads an APEX trace, as JSON lines if that is what its first line is.
///
/// # Errors
/// It is CSV, and its header lacks a column or has it twice.
pub(super) fn open(
    mut lines: Lines,
    config: &TraceConfig,
) -> Result<Box<dyn RowReader>, TraceError> {
    let json = lines.next_line()?.map(|line| is_json(line.text));
    if json.is_some() {
        lines.hold();
    }
    Ok(if json == Some(false) {
        Box::new(PlainRows::new(Table::open(lines, &COLUMNS, config)?, NANOSECONDS))
    } else {
        Box::new(ApexJson(JsonRows::new(lines, &[STAMP, PROMPT, OUTPUT], config)))
    })
}

/// Reads JSON lines.
struct ApexJson(JsonRows);

impl RowReader for ApexJson {
    fn next_row(&mut self) -> Result<Option<Row>, TraceError> {
        let Some(row) = self.0.next_row()? else {
            return Ok(None);
        };
        Ok(Some(Row {
            class: row.class(),
            ..Row::new(
                row.stamp(STAMP, NANOSECONDS)?,
                row.line.number,
                row.tokens(PROMPT)?,
                row.tokens(OUTPUT)?,
            )
        }))
    }

    fn facts(&self) -> FormatFacts {
        FormatFacts::new(STAMP, NANOSECONDS.name)
    }

    fn show_stamp(&self, stamp: i128) -> String {
        NANOSECONDS.show(stamp)
    }

    fn ignored(&self) -> &IgnoredFields {
        self.0.ignored()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ignored, refused, rows};
    use super::*;
    use crate::workload::trace::TraceFormat::{Apex as FORMAT, Auto};

    #[test]
    fn rows_are_read() {
        let text = "{\"StartTimeOffset\": 52000001, \"ContextTokens\": 3180, \
                    \"GeneratedTokens\": 8, \"User\": 1}\n";
        assert_eq!(rows(FORMAT, text), [Row::new(52_000_001, 1, 3180, 8)]);
        assert_eq!(ignored(FORMAT, text).0, ["User"]);
    }

    #[test]
    fn rows_are_read_from_csv_as_well() {
        let text = "\nGeneratedTokens,StartTimeOffset,ContextTokens,User\n8,52000001,3180,1\n";
        assert_eq!(rows(Auto, text), [Row::new(52_000_001, 3, 3180, 8)]);
        assert_eq!(rows(FORMAT, text), rows(Auto, text));
        assert_eq!(ignored(FORMAT, text).0, ["User"]);
        let error = refused(FORMAT, "StartTimeOffset,ContextToken,GeneratedTokens\n1,2,3\n");
        assert!(error.ends_with("did you mean `ContextToken`?"), "{error}");
        assert!(rows(FORMAT, "\n \n").is_empty());
    }

    #[test]
    fn fields_that_cannot_be_used_are_named() {
        let error = refused(FORMAT, r#"{"StartTimeOffset": -1, "ContextTokens": 1}"#);
        assert!(error.starts_with("t:1: `StartTimeOffset` is -1, expected a number of nano"));
        let error = refused(FORMAT, r#"{"StartTimeOffset": 1, "ContextToken": 1}"#);
        assert!(error.ends_with("did you mean `ContextToken`?"), "{error}");
    }
}
