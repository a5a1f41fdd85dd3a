//! Splitwise: CSV with seconds, prompt tokens and output tokens a row. Prompts have no identity.

use super::lines::Lines;
use super::stamp::SECONDS;
use super::table::{Column, Table, cells, optional, required};
use super::{FormatFacts, IgnoredFields, Row, RowReader, TraceError};

/// How a trace of this format starts, for people.
pub(super) const STARTS_WITH: &str =
    "`request_id,...,arrival_timestamp,batch_size,prompt_size,token_size` (Splitwise CSV)";

const COLUMNS: [Column; 4] = [
    required("arrival_timestamp"),
    required("prompt_size"),
    required("token_size"),
    optional("batch_size"),
];
const STAMP: usize = 0;
const PROMPT: usize = 1;
const OUTPUT: usize = 2;
const BATCH: usize = 3;

/// Whether `line` can be the first of a trace in this format.
pub(super) fn recognises(line: &str) -> bool {
    cells(line).iter().any(|cell| ["arrival_timestamp", "prompt_size", "token_size"].contains(cell))
}

/// Reads a Splitwise trace.
pub(super) struct Splitwise(Table);

impl Splitwise {
    /// Reads the header and stands before the first row.
    ///
    /// # Errors
    /// There is no header, or it lacks a column or has it twice.
    pub(super) fn new(lines: Lines) -> Result<Self, TraceError> {
        Table::open(lines, &COLUMNS).map(Self)
    }
}

impl RowReader for Splitwise {
    fn next_row(&mut self) -> Result<Option<Row>, TraceError> {
        let Some(record) = self.0.next_record()? else {
            return Ok(None);
        };
        // A row of several requests would be served as one.
        record.parsed_if_any(BATCH, "1: one request a row", |cell| (cell == "1").then_some(()))?;
        Ok(Some(Row::new(
            record.stamp(STAMP, SECONDS)?,
            record.line.number,
            record.tokens(PROMPT)?,
            record.tokens(OUTPUT)?,
        )))
    }

    fn facts(&self) -> FormatFacts {
        FormatFacts::new(COLUMNS[STAMP].name, SECONDS.name)
    }

    fn show_stamp(&self, stamp: i128) -> String {
        SECONDS.show(stamp)
    }

    fn ignored(&self) -> &IgnoredFields {
        self.0.ignored()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ignored, refused, rows};
    use super::*;
    use crate::workload::trace::TraceFormat::Splitwise as FORMAT;

    const HEADER: &str = "request_id,request_type,application_id,arrival_timestamp,batch_size,\
                          prompt_size,token_size\n";

    #[test]
    fn a_row_is_read_to_the_nanosecond() {
        let text = format!("{HEADER}0,2,0,0.0,1,4808,10\n1,2,0,0.0519999,1,3180,8\n");
        assert_eq!(
            rows(FORMAT, &text),
            [Row::new(0, 2, 4808, 10), Row::new(51_999_900, 3, 3180, 8)]
        );
        assert_eq!(ignored(FORMAT, &text).0, ["application_id", "request_id", "request_type"]);
    }

    #[test]
    fn rows_that_are_several_requests_are_refused() {
        assert_eq!(
            refused(FORMAT, &format!("{HEADER}0,2,0,0,4,4808,10\n")),
            "t:2: `batch_size` is \"4\", expected 1: one request a row"
        );
        let error = refused(FORMAT, &format!("{HEADER}0,2,0,0,1,4808\n"));
        assert!(error.starts_with("t:2: `token_size` is missing, expected"), "{error}");
    }
}
