//! What `vllm bench serve --dataset-name timed_trace` replays: JSON lines with the fields of Mooncake,
//! stamps in seconds, and ids of 16 tokens, unless the labels say otherwise.
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
    let labels = config.labels.as_deref().cloned().unwrap_or_default();
    HashedRows::labelled(lines, BLOCK_TOKENS, labels, config)
}

#[cfg(test)]
mod tests {
    use super::super::Row;
    use super::super::testing::{read_with, refused, rows};
    use crate::workload::request::{Content, Piece, Segment};
    use crate::workload::trace::TraceFormat::VllmTimedTrace as FORMAT;
    use crate::workload::trace::config::{LabelsConfig, TraceConfig};

    /// Reads `text` by labels of another kind, with stamps in so many seconds.
    fn labelled(text: &str, seconds_per_unit: f64) -> Result<Vec<Row>, String> {
        let labels = LabelsConfig {
            timestamp: "t".to_owned(),
            input_length: "in".to_owned(),
            output_length: "out".to_owned(),
            hash_ids: "blocks".to_owned(),
            seconds_per_unit,
        };
        let config =
            TraceConfig { format: FORMAT, labels: Some(labels.into()), ..TraceConfig::default() };
        read_with(&config, text).map_err(|error| error.to_string())
    }

    #[test]
    fn stamps_are_seconds_and_blocks_sixteen_tokens() {
        let text =
            r#"{"timestamp": 1.5, "input_length": 32, "output_length": 2, "hash_ids": [4, 4]}"#;
        let piece = Piece { segment: Segment::Named(4), tokens: 16 };
        let content = Content::Pieces(vec![piece, piece]);
        assert_eq!(rows(FORMAT, text), [Row { content, ..Row::new(1_500_000_000, 1, 32, 2) }]);
    }

    #[test]
    fn labels_name_the_fields_and_their_unit() {
        let text = r#"{"t": 1500, "in": 16, "out": 2, "blocks": [4], "timestamp": 9}"#;
        let content = Content::Pieces(vec![Piece { segment: Segment::Named(4), tokens: 16 }]);
        let row = |stamp| [Row { content: content.clone(), ..Row::new(stamp, 1, 16, 2) }];
        assert_eq!(labelled(text, 0.001).unwrap(), row(1_500_000_000));
        assert_eq!(labelled(text, 1e-6).unwrap(), row(1_500_000));
        assert_eq!(labelled(text, 60.0).unwrap(), row(90_000_000_000_000));
        let error = labelled(&text.replace("1500", "-1"), 60.0).unwrap_err();
        assert_eq!(
            error,
            "t:1: `t` is -1, expected a number of `seconds_per_unit` within 100 years"
        );
    }

    #[test]
    fn fields_that_are_missing_are_named() {
        let error = refused(FORMAT, r#"{"timestamp": 1.5, "output_length": 2}"#);
        assert_eq!(
            error,
            "t:1: `input_length` is missing, expected an integer from 0 to 4294967295"
        );
        let text = r#"{"t": 1, "in": 33, "out": 2, "blocks": [4]}"#;
        let error = labelled(text, 1.0).unwrap_err();
        assert!(error.starts_with("t:1: `in` is 33, expected at most 16"), "{error}");
        let error = labelled(&text.replace("33", "1").replace("[4]", "[4, 5]"), 1.0).unwrap_err();
        assert!(error.starts_with("t:1: `blocks` is 2 ids, expected 1"), "{error}");
        let error = labelled(&text.replace("\"in\"", "\"inn\""), 1.0).unwrap_err();
        assert!(error.starts_with("t:1: `in` is missing"), "{error}");
    }
}
