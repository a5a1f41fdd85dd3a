//! What vLLM's `benchmark_serving_multi_turn.py` measured of its requests: CSV, one request a row. It replays what was
//! measured: a client sends its requests one after the other, each as long after the end of the one before as it did.
//!
//! A prompt is the whole conversation so far, so that the prompts of a conversation are prefixes of each other.
//! Tokens are counted without the chat template, which may be added.

use super::config::{ChatTemplateConfig, TraceConfig};
use super::lines::Lines;
use super::stamp::MILLISECONDS;
use super::table::{Column, TOKENS, Table, cells, optional, required};
use super::{FormatFacts, IgnoredFields, Measured, Row, RowReader, RowTurn, TraceError};
use crate::base::lookup::LookupMap;
use crate::workload::request::{Content, Piece, Segment};

/// How a trace of this format starts, for people.
pub(super) const STARTS_WITH: &str =
    "`start_time_ms,...,input_num_tokens,output_num_tokens,...` (benchmark_serving_multi_turn CSV)";

const COLUMNS: [Column; 8] = [
    required("start_time_ms"),
    required("input_num_tokens"),
    required("output_num_tokens"),
    required("conversation_id"),
    required("client_id"),
    required("input_num_turns"),
    optional("ttft_ms"),
    optional("latency_ms"),
];
const STAMP: usize = 0;
const PROMPT: usize = 1;
const OUTPUT: usize = 2;
const CONVERSATION: usize = 3;
const CLIENT: usize = 4;
const MESSAGES: usize = 5;
const TTFT: usize = 6;
const LATENCY: usize = 7;

/// What the chat template puts before every conversation.
const FRONT: Segment = Segment::Named(0);

/// Whether `line` can be the first of a trace in this format.
pub(super) fn recognises(line: &str) -> bool {
    let cells = cells(line);
    ["start_time_ms", "input_num_tokens"].iter().all(|column| cells.contains(column))
}

/// Reads the requests of a benchmark.
pub(super) struct MultiTurn {
    table: Table,
    template: ChatTemplateConfig,
    follows: bool,
    /// Conversations by name, numbered from 1 by their first row, and how many there are.
    conversations: LookupMap<String, u64>,
    known: u64,
}

impl MultiTurn {
    /// Reads the header and stands before the first row.
    ///
    /// # Errors
    /// There is no header, or it lacks a column or has it twice.
    pub(super) fn open(lines: Lines, config: &TraceConfig) -> Result<Self, TraceError> {
        Ok(Self {
            table: Table::open(lines, &COLUMNS, config)?,
            template: config.chat_template.as_deref().copied().unwrap_or_default(),
            follows: config.sessions.is_some(),
            conversations: LookupMap::default(),
            known: 0,
        })
    }
}

impl RowReader for MultiTurn {
    fn next_row(&mut self) -> Result<Option<Row>, TraceError> {
        let Some(record) = self.table.next_record()? else { return Ok(None) };
        let time = |column| {
            record.parsed_if_any(column, MILLISECONDS.accepted, |cell| MILLISECONDS.of_text(cell))
        };
        let messages: u32 = record.parsed(MESSAGES, TOKENS, |cell| cell.parse().ok())?;
        let ChatTemplateConfig { front_tokens, message_tokens } = self.template;
        let bare = record.tokens(PROMPT)?;
        let added = message_tokens.checked_mul(messages).and_then(|sum| sum.checked_add(bare));
        let Some(own) = added.filter(|own| own.checked_add(front_tokens).is_some()) else {
            let accepted = "a prompt of at most 4294967295 tokens with its chat template";
            return Err(record.line.refuse("input_num_tokens", bare.to_string(), accepted));
        };
        let mut row = Row::new(
            record.stamp(STAMP, MILLISECONDS)?,
            record.line.number,
            own + front_tokens,
            record.tokens(OUTPUT)?,
        );
        let name = record.text(CONVERSATION).unwrap_or_default();
        let conversation = self.conversations.get(&name).copied().unwrap_or_else(|| {
            self.known += 1;
            self.conversations.insert(name, self.known);
            self.known
        });
        let pieces = [(FRONT, front_tokens), (Segment::Named(conversation), own)];
        let pieces = pieces.into_iter().filter(|&(_, tokens)| tokens > 0);
        row.content =
            Content::Pieces(pieces.map(|(segment, tokens)| Piece { segment, tokens }).collect());
        let service = time(LATENCY)?;
        row.turn = record.text(CLIENT).filter(|_| self.follows).map(|client| {
            let session = Some(client);
            Box::new(RowTurn { session, service, is_by_stamp: true, ..RowTurn::default() })
        });
        row.measured = Measured::new(time(TTFT)?, service);
        row.class = record.class();
        Ok(Some(row))
    }

    fn facts(&self) -> FormatFacts {
        FormatFacts::new(COLUMNS[STAMP].name, MILLISECONDS.name)
    }

    fn show_stamp(&self, stamp: i128) -> String {
        MILLISECONDS.show(stamp)
    }

    fn ignored(&self) -> &IgnoredFields {
        self.table.ignored()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ignored, read_with, refused, rows};
    use super::*;
    use crate::workload::sessions::config::{SessionsConfig, ThinkConfig};
    use crate::workload::trace::TraceFormat::{Auto, MultiTurn as FORMAT};

    const TEXT: &str = "start_time_ms,ttft_ms,tpot_ms,latency_ms,input_num_turns,input_num_tokens,\
                        output_num_tokens,conversation_id,client_id\n\
                        1000.5,150,17,2449.5,1,71,134,a,1\n\
                        3460,90,17,500,3,220,30,a,1\n\
                        1001,,,,1,9,5,b,0\n";

    fn named(number: u64, tokens: u32) -> Piece {
        Piece { segment: Segment::Named(number), tokens }
    }

    #[test]
    fn prompts_of_a_conversation_are_prefixes_of_each_other() {
        let rows = rows(Auto, TEXT);
        let contents: Vec<_> = rows.iter().map(|row| row.content.clone()).collect();
        let whole = |piece| Content::Pieces(vec![piece]);
        assert_eq!(contents, [whole(named(1, 71)), whole(named(1, 220)), whole(named(2, 9))]);
        // 1,000.5 ms, and the end 2,449.5 ms later.
        assert_eq!(rows[0].stamp, 1_000_500_000);
        assert_eq!(rows[0].measured, Measured::new(Some(150_000_000), Some(2_449_500_000)));
        assert_eq!(rows[2].measured, None);
        assert!(rows.iter().all(|row| row.turn.is_none()));
        assert_eq!(ignored(FORMAT, TEXT).0, ["tpot_ms"]);
    }

    #[test]
    fn the_chat_template_is_a_shared_front_and_something_a_message() {
        let template = ChatTemplateConfig { front_tokens: 36, message_tokens: 5 };
        let config = TraceConfig {
            path: "t".into(),
            chat_template: Some(Box::new(template)),
            sessions: Some(SessionsConfig::Think(ThinkConfig::default())),
            ..TraceConfig::default()
        };
        let rows = read_with(&config, TEXT).unwrap();
        // 220 + 3 * 5 behind 36.
        assert_eq!(rows[1].prompt_tokens, 271);
        assert_eq!(rows[1].content, Content::Pieces(vec![named(0, 36), named(1, 235)]));
        let turn = rows[1].turn.as_ref().unwrap();
        assert_eq!((turn.session.as_deref(), turn.service), (Some("1"), Some(500_000_000)));
    }

    #[test]
    fn what_cannot_be_read_names_its_column() {
        let error = refused(FORMAT, &TEXT.replace(",71,", ",x,"));
        assert!(error.starts_with("t:2: `input_num_tokens` is \"x\", expected"), "{error}");
        let error = refused(FORMAT, &TEXT.replace("client_id", "client"));
        assert!(error.contains("client_id"), "{error}");
    }
}
