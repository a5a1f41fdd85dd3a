//! What the benchmark of `LLMServingSim` measured of a real vLLM: JSON lines, one request a line, with stamps of the engine's
//! clock. A request arrives when the engine queued it, so that nothing before the engine is part of it.
//!
//! Rows do not say what prompts consist of. The file of the workload does; without it, prompts have no identity.

use serde::Deserialize;

use super::config::TraceConfig;
use super::json_rows::{JsonRow, JsonRows, has_fields};
use super::lines::Lines;
use super::mooncake::content;
use super::stamp::SECONDS;
use super::{FormatFacts, IgnoredFields, Measured, Row, RowReader, TraceError};
use crate::base::lookup::LookupMap;
use crate::workload::request::Content;

/// How a trace of this format starts, for people.
pub(super) const STARTS_WITH: &str = "`{\"request_id\": ..., \"input_toks\": ..., \"queued_ts\": ...` (LLMServingSim's \
                                      requests that vLLM served)";

const STAMP: &str = "queued_ts";
const PROMPT: &str = "input_toks";
const OUTPUT: &str = "output_toks";
const FIRST: &str = "first_token_ts";
const LAST: &str = "last_token_ts";

/// Whether `line` can be the first of a trace in this format.
pub(super) fn recognises(line: &str) -> bool {
    has_fields(line, &[PROMPT, STAMP])
}

/// The field of what requests are called: `bench-` and their place in the workload, from 0.
const NAME: &str = "request_id";

/// Prompt tokens that are told from others as one block.
const BLOCK_TOKENS: u32 = 16;

/// Reads measured requests.
pub(super) struct LlmServingSim {
    rows: JsonRows,
    prompts: Option<Prompts>,
}

impl LlmServingSim {
    /// Reads `lines`, and the prompts where `config` names them.
    ///
    /// # Errors
    /// The prompts cannot be read.
    pub(super) fn new(lines: Lines, config: &TraceConfig) -> Result<Self, TraceError> {
        let rows = JsonRows::new(lines, &[STAMP, PROMPT, OUTPUT, FIRST, LAST, NAME], config);
        let prompts = config.prompts.as_deref().map(|path| Prompts::read(Lines::open(path)?));
        Ok(Self { rows, prompts: prompts.transpose()? })
    }
}

/// What prompts consist of: ids of blocks, each naming its tokens and all before them.
#[derive(Default)]
struct Prompts(Vec<Vec<u64>>);

#[derive(Deserialize)]
struct PromptRow {
    input_tok_ids: Vec<u32>,
}

impl Prompts {
    fn read(mut lines: Lines) -> Result<Self, TraceError> {
        let mut prompts = Self::default();
        let mut names: LookupMap<(u64, Vec<u32>), u64> = LookupMap::new();
        let mut known = 0;
        while let Some(line) = lines.next_line()? {
            let row: PromptRow = serde_json::from_str(line.text).map_err(|error| {
                line.refuse("input_tok_ids", error.to_string(), "an array of token ids")
            })?;
            let mut before = 0;
            let mut ids = Vec::new();
            for block in row.input_tok_ids.chunks(BLOCK_TOKENS as usize) {
                let key = (before, block.to_vec());
                before = names.get(&key).copied().unwrap_or_else(|| {
                    known += 1;
                    names.insert(key, known);
                    known
                });
                ids.push(before);
            }
            prompts.0.push(ids);
        }
        Ok(prompts)
    }

    /// The prompt of a row.
    fn of(&self, row: &JsonRow<'_>, prompt_tokens: u32) -> Result<Content, TraceError> {
        let name = row.text(NAME).unwrap_or_default();
        let place = name.rsplit_once('-').and_then(|(_, place)| place.parse::<usize>().ok());
        let ids = place.and_then(|place| self.0.get(place)).ok_or_else(|| {
            let accepted = format!("`bench-` and a line of `prompts`, up to {}", self.0.len());
            row.line.refuse(NAME, format!("{name:?}"), accepted)
        })?;
        content(&row.line, ids, prompt_tokens, BLOCK_TOKENS)
    }
}

impl RowReader for LlmServingSim {
    fn next_row(&mut self) -> Result<Option<Row>, TraceError> {
        let Some(row) = self.rows.next_row()? else { return Ok(None) };
        let queued = row.stamp(STAMP, SECONDS)?;
        let since = |field| {
            row.optional(field, "a number of seconds, not before `queued_ts`", |value| {
                SECONDS.of_value(value).map(|ns| ns - queued).filter(|&ns| ns >= 0)
            })
        };
        let prompt_tokens = row.tokens(PROMPT)?;
        let content = self.prompts.as_ref().map(|prompts| prompts.of(&row, prompt_tokens));
        Ok(Some(Row {
            class: row.class(),
            content: content.transpose()?.unwrap_or(Content::Private),
            measured: Measured::new(since(FIRST)?, since(LAST)?),
            ..Row::new(queued, row.line.number, prompt_tokens, row.tokens(OUTPUT)?)
        }))
    }

    fn facts(&self) -> FormatFacts {
        FormatFacts::new(STAMP, SECONDS.name)
    }

    fn show_stamp(&self, stamp: i128) -> String {
        SECONDS.show(stamp)
    }

    fn ignored(&self) -> &IgnoredFields {
        self.rows.ignored()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ignored, refused, rows};
    use super::*;
    use crate::workload::trace::TraceFormat::{Auto, LlmServingSim as FORMAT};

    const ROW: &str = r#"{"request_id": "bench-0", "input_toks": 2358, "output_toks": 531,
        "arrival_time": 1777142838.3, "queued_ts": 100.5, "first_token_ts": 100.75, "last_token_ts": 116.5}"#;

    #[test]
    fn a_request_arrives_when_it_is_queued() {
        let text = ROW.replace('\n', " ");
        // First token after 0.25 s, last after 16 s.
        let measured = Measured::new(Some(250_000_000), Some(16_000_000_000));
        assert_eq!(
            rows(Auto, &text),
            [Row { measured, ..Row::new(100_500_000_000, 1, 2358, 531) }]
        );
        assert_eq!(ignored(FORMAT, &text).0, ["arrival_time"]);
    }

    #[test]
    fn tokens_before_the_queue_are_refused() {
        let error = refused(FORMAT, &ROW.replace('\n', " ").replace("100.75", "100.25"));
        assert!(error.starts_with("t:1: `first_token_ts` is 100.25, expected a number"), "{error}");
    }
}
