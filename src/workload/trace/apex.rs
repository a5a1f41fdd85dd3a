//! APEX: JSON lines with nanoseconds, prompt tokens and output tokens. Prompts have no identity.

use super::config::TraceConfig;
use super::json_rows::{JsonRows, has_fields};
use super::lines::Lines;
use super::stamp::NANOSECONDS;
use super::{FormatFacts, IgnoredFields, Row, RowReader, TraceError};

/// How a trace of this format starts, for people.
pub(super) const STARTS_WITH: &str = "`{\"StartTimeOffset\": ...` (APEX JSON lines)";

const STAMP: &str = "StartTimeOffset";
const PROMPT: &str = "ContextTokens";
const OUTPUT: &str = "GeneratedTokens";

/// Whether `line` can be the first of a trace in this format.
pub(super) fn recognises(line: &str) -> bool {
    has_fields(line, &[STAMP])
}

/// Reads an APEX trace.
pub(super) struct Apex(JsonRows);

impl Apex {
    /// Reads `lines`.
    pub(super) fn new(lines: Lines, config: &TraceConfig) -> Self {
        Self(JsonRows::new(lines, &[STAMP, PROMPT, OUTPUT], config))
    }
}

impl RowReader for Apex {
    fn next_row(&mut self) -> Result<Option<Row>, TraceError> {
        let Some(row) = self.0.next_row()? else {
            return Ok(None);
        };
        Ok(Some(Row::new(
            row.stamp(STAMP, NANOSECONDS)?,
            row.line.number,
            row.tokens(PROMPT)?,
            row.tokens(OUTPUT)?,
        )))
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
    use crate::workload::trace::TraceFormat::Apex as FORMAT;

    #[test]
    fn rows_are_read() {
        let text = "{\"StartTimeOffset\": 52000001, \"ContextTokens\": 3180, \
                    \"GeneratedTokens\": 8, \"User\": 1}\n";
        assert_eq!(rows(FORMAT, text), [Row::new(52_000_001, 1, 3180, 8)]);
        assert_eq!(ignored(FORMAT, text).0, ["User"]);
    }

    #[test]
    fn fields_that_cannot_be_used_are_named() {
        let error = refused(FORMAT, r#"{"StartTimeOffset": -1, "ContextTokens": 1}"#);
        assert!(error.starts_with("t:1: `StartTimeOffset` is -1, expected a number of nano"));
        let error = refused(FORMAT, r#"{"StartTimeOffset": 1, "ContextToken": 1}"#);
        assert!(error.ends_with("did you mean `ContextToken`?"), "{error}");
    }
}
