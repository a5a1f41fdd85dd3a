//! Vidur: CSV with seconds, prefill tokens and decode tokens a row. Prompts have no identity.
//!
//! Files of lengths alone have the same columns but for the arrival. They are told apart, and refused:
//! they are a distribution and no trace.

use super::TraceError;
use super::config::TraceConfig;
use super::lines::Lines;
use super::stamp::SECONDS;
use super::table::{Column, PlainRows, STAMP, Table, cells, optional, required};

/// How a trace of this format starts, for people.
pub(super) const STARTS_WITH: &str =
    "`arrived_at,num_prefill_tokens,num_decode_tokens` (Vidur CSV)";

const COLUMNS: [Column; 3] =
    [optional("arrived_at"), required("num_prefill_tokens"), required("num_decode_tokens")];

/// Whether `line` can be the first of a trace in this format.
pub(super) fn recognises(line: &str) -> bool {
    cells(line).iter().any(|cell| ["num_prefill_tokens", "num_decode_tokens"].contains(cell))
}

/// Reads a Vidur trace, from the row behind its header on.
///
/// # Errors
/// There is no header, it lacks a column or has it twice, or there are no arrivals.
pub(super) fn open(lines: Lines, config: &TraceConfig) -> Result<PlainRows, TraceError> {
    let table = Table::open(lines, &COLUMNS, config)?;
    if !table.has(STAMP) {
        return Err(TraceError::NoArrivals {
            path: table.path().to_owned(),
            column: COLUMNS[STAMP].name,
        });
    }
    Ok(PlainRows::new(table, SECONDS))
}

#[cfg(test)]
mod tests {
    use super::super::Row;
    use super::super::testing::{ignored, refused, rows};
    use crate::workload::trace::TraceFormat::Vidur as FORMAT;

    #[test]
    fn rows_with_arrivals_are_read() {
        let text = "arrived_at,num_prefill_tokens,num_decode_tokens,pd_ratio\n\
                    0.0,374,44,8.5\n4.314579,396,109,3.6\n";
        assert_eq!(
            rows(FORMAT, text),
            [Row::new(0, 2, 374, 44), Row::new(4_314_579_000, 3, 396, 109)]
        );
        assert_eq!(ignored(FORMAT, text).0, ["pd_ratio"]);
    }

    #[test]
    fn lengths_alone_are_no_trace() {
        let text = "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n7,3,10,2.3\n";
        assert_eq!(
            refused(FORMAT, text),
            "t: no arrivals, expected a column `arrived_at`: this is a list of lengths; add the \
             column, or describe the arrivals in `workload.synthetic`"
        );
        let error = refused(FORMAT, "arrived_at,num_prefill_tokens\n");
        assert!(error.starts_with("t:1: column `num_decode_tokens` is missing"), "{error}");
    }
}
