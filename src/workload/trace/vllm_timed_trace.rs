//! What `vllm bench serve --dataset-name timed_trace` replays, read as it does by default: JSON lines
//! with the fields of Mooncake, stamps in seconds, and ids of 16 tokens.
//!
//! Nothing in a row tells it from Mooncake's, so that the format has to be named.

use super::config::TraceConfig;
use super::json_rows::HashedRows;
use super::lines::Lines;

/// It is not told by its start.
pub(super) const STARTS_WITH: &str = "";

/// Prompt tokens that one id names by default.
const BLOCK_TOKENS: u32 = 16;

/// No line tells this format from Mooncake's.
pub(super) fn recognises(_line: &str) -> bool {
    false
}

/// Reads a timed trace.
pub(super) fn open(lines: Lines, config: &TraceConfig) -> HashedRows {
    HashedRows::new(lines, BLOCK_TOKENS, config)
}

#[cfg(test)]
mod tests {
    use super::super::Row;
    use super::super::testing::{refused, rows};
    use crate::workload::request::{Content, Piece, Segment};
    use crate::workload::trace::TraceFormat::VllmTimedTrace as FORMAT;

    #[test]
    fn stamps_are_seconds_and_blocks_sixteen_tokens() {
        let text =
            r#"{"timestamp": 1.5, "input_length": 32, "output_length": 2, "hash_ids": [4, 4]}"#;
        let piece = Piece { segment: Segment::Named(4), tokens: 16 };
        let content = Content::Pieces(vec![piece, piece]);
        assert_eq!(rows(FORMAT, text), [Row { content, ..Row::new(1_500_000_000, 1, 32, 2) }]);
    }

    #[test]
    fn fields_that_are_missing_are_named() {
        let error = refused(FORMAT, r#"{"timestamp": 1.5, "output_length": 2}"#);
        assert_eq!(
            error,
            "t:1: `input_length` is missing, expected an integer from 0 to 4294967295"
        );
    }
}
