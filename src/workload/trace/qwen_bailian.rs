//! Qwen-Bailian: JSON lines with seconds, and the prompt as hash ids of 16 tokens.
//!
//! An id names what a block holds, whatever stands before it. So does a piece of a prompt, which is
//! shared only behind a shared prefix: the ids need no chaining to be read right. Turns of a chat are
//! rows of their own; what `parent_chat_id` ties together also shows in the ids.

use serde_json::Value;

use super::RowTurn;
use super::config::TraceConfig;
use super::json_rows::{HashedRows, has_fields};
use super::lines::Lines;

/// How a trace of this format starts, for people.
pub(super) const STARTS_WITH: &str = "`{\"chat_id\": ...` (Qwen-Bailian JSON lines)";

/// Prompt tokens that one id names in the published traces.
const BLOCK_TOKENS: u32 = 16;

/// Whether `line` can be the first of a trace in this format.
pub(super) fn recognises(line: &str) -> bool {
    has_fields(line, &["chat_id", "timestamp", "input_length"])
}

/// Reads a Qwen-Bailian trace.
pub(super) fn open(lines: Lines, config: &TraceConfig) -> HashedRows {
    HashedRows::new(lines, BLOCK_TOKENS, config).with_turns(
        &["chat_id", "parent_chat_id", "turn"],
        |row| {
            let id = |value: &Value| value.as_i64().filter(|&id| id >= -1);
            let parent = row.optional("parent_chat_id", "an integer from -1 on", id)?;
            let parent = parent.filter(|&id| id >= 0).map(|id| id.to_string());
            Ok(Some(RowTurn {
                name: row.text("chat_id"),
                wait_for: Some(parent.into_iter().collect()),
                // The first turns of chats that were under way lie before the trace.
                may_dangle: true,
                ..RowTurn::default()
            }))
        },
        config,
    )
}

#[cfg(test)]
mod tests {
    use super::super::Row;
    use super::super::testing::{ignored, refused, rows};
    use crate::workload::request::{Content, Piece, Segment};
    use crate::workload::trace::TraceFormat::QwenBailian as FORMAT;

    const ROW: &str = r#"{"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.114, "input_length": 35, "output_length": 457, "type": "text", "turn": 1, "hash_ids": [1089, 1090, 7]}"#;

    #[test]
    fn a_row_is_blocks_of_sixteen_and_a_tail() {
        let named = |name| Piece { segment: Segment::Named(name), tokens: 16 };
        // 35 = 16 + 16 + 3
        let tail = Piece { segment: Segment::Tail { name: 7, tokens: 3 }, tokens: 3 };
        let content = Content::Pieces(vec![named(1089), named(1090), tail]);
        assert_eq!(rows(FORMAT, ROW), [Row { content, ..Row::new(61_114_000_000, 1, 35, 457) }]);
    }

    #[test]
    fn turns_are_not_followed() {
        let (names, sessions) = ignored(FORMAT, ROW);
        assert_eq!(names, ["chat_id", "parent_chat_id", "turn", "type"]);
        assert!(sessions);
    }

    #[test]
    fn lengths_and_ids_must_agree() {
        let error = refused(FORMAT, &ROW.replace("35", "49"));
        assert_eq!(
            error,
            "t:1: `input_length` is 49, expected at most 48: 3 hash ids of 16 tokens \
             (`hash_block_tokens`)"
        );
        let error = refused(FORMAT, &ROW.replace("61.114", "\"now\""));
        assert!(error.starts_with("t:1: `timestamp` is \"now\", expected a number of seconds"));
        let error = refused(FORMAT, &ROW.replace("1090", "-3"));
        assert!(
            error.starts_with("t:1: `hash_ids` is -3 at index 1, expected an array"),
            "{error}"
        );
    }
}
