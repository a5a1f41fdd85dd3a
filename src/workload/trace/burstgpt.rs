//! `BurstGPT`: CSV with seconds, request tokens and response tokens a row.
//!
//! Failed requests have no response tokens. They are rows like all others; the front end rejects and
//! counts them. Older files lack the columns of sessions and of the time elapsed. Prompts have no
//! identity.

use super::config::TraceConfig;
use super::lines::Lines;
use super::stamp::SECONDS;
use super::table::{Column, PlainRows, Table, cells, required, tie};
use super::{RowTurn, TraceError};

/// How a trace of this format starts, for people.
pub(super) const STARTS_WITH: &str =
    "`Timestamp,...,Request tokens,Response tokens` (BurstGPT CSV)";

const COLUMNS: [Column; 5] = [
    required("Timestamp"),
    required("Request tokens"),
    required("Response tokens"),
    tie("Session ID"),
    tie("Elapsed time"),
];
const SESSION: usize = 3;
const ELAPSED: usize = 4;

/// Whether `line` can be the first of a trace in this format.
pub(super) fn recognises(line: &str) -> bool {
    cells(line).iter().any(|cell| ["Request tokens", "Response tokens"].contains(cell))
}

/// Reads a `BurstGPT` trace, from the row behind its header on.
///
/// # Errors
/// There is no header, or it lacks a column or has it twice.
pub(super) fn open(lines: Lines, config: &TraceConfig) -> Result<PlainRows, TraceError> {
    let rows = PlainRows::new(Table::open(lines, &COLUMNS, config)?, SECONDS);
    Ok(rows.with_turns(|record| {
        let elapsed = |cell: &str| SECONDS.of_text(cell);
        let service = record.parsed_if_any(ELAPSED, SECONDS.accepted, elapsed)?;
        let session = record.text(SESSION);
        Ok(session.map(|s| RowTurn { session: Some(s), service, ..RowTurn::default() }))
    }))
}

#[cfg(test)]
mod tests {
    use super::super::Row;
    use super::super::testing::{ignored, refused, rows};
    use crate::workload::trace::TraceFormat::BurstGpt as FORMAT;

    const HEADER: &str = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,\
                          Total tokens,Log Type\n";

    #[test]
    fn rows_of_new_and_old_files_are_read() {
        let text = format!(
            "{HEADER}5,s1,12.5,ChatGPT,472,18,490,Conversation log\n\
             45.25,s1,0,GPT-4,1087,0,1087,API log\n"
        );
        let expected =
            vec![Row::new(5_000_000_000, 2, 472, 18), Row::new(45_250_000_000, 3, 1087, 0)];
        assert_eq!(rows(FORMAT, &text), expected);
        let old = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n\
                   5,ChatGPT,472,18,490,Conversation log\n45.25,GPT-4,1087,0,1087,API log\n";
        assert_eq!(rows(FORMAT, old), expected);
    }

    #[test]
    fn columns_that_are_not_used_are_named() {
        let text = format!("{HEADER}5,s1,12.5,ChatGPT,472,18,490,Conversation log\n");
        let (names, sessions) = ignored(FORMAT, &text);
        assert_eq!(names, ["Elapsed time", "Log Type", "Model", "Session ID", "Total tokens"]);
        assert!(sessions);
    }

    #[test]
    fn cells_that_cannot_be_read_name_their_column() {
        let error = refused(FORMAT, &format!("{HEADER}x,s,0,m,1,2,3,l\n"));
        assert!(error.starts_with("t:2: `Timestamp` is \"x\", expected a number of seconds"));
        let error = refused(FORMAT, &format!("{HEADER}1,s,0,m,-1,2,3,l\n"));
        assert!(error.starts_with("t:2: `Request tokens` is \"-1\", expected an integer"));
        let error = refused(FORMAT, "Timestamp,Request tokens,Response token\n");
        assert!(error.ends_with("did you mean `Response token`?"), "{error}");
    }
}
