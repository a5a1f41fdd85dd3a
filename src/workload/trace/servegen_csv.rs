//! What `ServeGen` writes of a workload that it has made (`save_requests_to_csv`): CSV with seconds,
//! input tokens and output tokens a row. Prompts have no identity.

use super::TraceError;
use super::config::TraceConfig;
use super::lines::Lines;
use super::stamp::SECONDS;
use super::table::{Column, PlainRows, Table, cells, required};

/// How a trace of this format starts, for people.
pub(super) const STARTS_WITH: &str =
    "`request_id,timestamp,input_tokens,output_tokens` (ServeGen CSV)";

const COLUMNS: [Column; 3] =
    [required("timestamp"), required("input_tokens"), required("output_tokens")];

/// Whether `line` can be the first of a trace in this format.
pub(super) fn recognises(line: &str) -> bool {
    let cells = cells(line);
    ["timestamp", "input_tokens"].iter().all(|name| cells.contains(name))
}

/// Reads a workload of `ServeGen`, from the row behind its header on.
///
/// # Errors
/// There is no header, or it lacks a column or has it twice.
pub(super) fn open(lines: Lines, config: &TraceConfig) -> Result<PlainRows, TraceError> {
    Ok(PlainRows::new(Table::open(lines, &COLUMNS, config)?, SECONDS))
}

#[cfg(test)]
mod tests {
    use super::super::Row;
    use super::super::testing::{ignored, refused, rows};
    use crate::workload::trace::TraceFormat::{Auto, ServegenCsv as FORMAT};

    #[test]
    fn rows_of_seconds_are_read() {
        let text = "request_id,timestamp,input_tokens,output_tokens,reason_ratio\n\
                    0,0.5,10,20,0.7\n1,1.25,15,25,0.2\n";
        let expected = [Row::new(500_000_000, 2, 10, 20), Row::new(1_250_000_000, 3, 15, 25)];
        assert_eq!(rows(FORMAT, text), expected);
        assert_eq!(rows(Auto, text), expected);
        assert_eq!(ignored(FORMAT, text).0, ["reason_ratio", "request_id"]);
    }

    #[test]
    fn columns_that_are_missing_are_named() {
        let error = refused(FORMAT, "request_id,timestamp,text_tokens,output_tokens\n0,1,2,3\n");
        assert!(error.starts_with("t:1: column `input_tokens` is missing"), "{error}");
        let error = refused(FORMAT, "timestamp,input_tokens,output_tokens\nnoon,1,2\n");
        assert!(error.starts_with("t:2: `timestamp` is \"noon\", expected a number of seconds"));
    }
}
