//! Splitwise: CSV with seconds, prompt tokens and output tokens a row. Prompts have no identity.

use super::TraceError;
use super::config::TraceConfig;
use super::lines::Lines;
use super::stamp::SECONDS;
use super::table::{Column, PlainRows, Table, cells, optional, required};

/// How a trace of this format starts, for people.
pub(super) const STARTS_WITH: &str =
    "`request_id,...,arrival_timestamp,batch_size,prompt_size,token_size` (Splitwise CSV)";

const COLUMNS: [Column; 4] = [
    required("arrival_timestamp"),
    required("prompt_size"),
    required("token_size"),
    optional("batch_size"),
];
const BATCH: usize = 3;

/// Whether `line` can be the first of a trace in this format.
pub(super) fn recognises(line: &str) -> bool {
    cells(line).iter().any(|cell| ["arrival_timestamp", "prompt_size", "token_size"].contains(cell))
}

/// Reads a Splitwise trace, from the row behind its header on.
///
/// # Errors
/// There is no header, or it lacks a column or has it twice.
pub(super) fn open(lines: Lines, config: &TraceConfig) -> Result<PlainRows, TraceError> {
    let rows = PlainRows::new(Table::open(lines, &COLUMNS, config)?, SECONDS);
    Ok(rows.checked(|record| {
        // A row of several requests would be served as one.
        let one = |cell: &str| (cell == "1").then_some(());
        record.parsed_if_any(BATCH, "1: one request a row", one).map(drop)
    }))
}

#[cfg(test)]
mod tests {
    use super::super::Row;
    use super::super::testing::{ignored, refused, rows};
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
