//! Spans that vLLM sent to an OpenTelemetry collector: JSON lines, each a batch of spans, one span a request. It replays
//! what was measured: each request arrives when its span starts.
//!
//! Other spans are left out. The "line" of a request is its place among the requests of the file. Prompts have no
//! identity.

use std::collections::VecDeque;

use serde_json::Value;

use super::json_rows::{as_u32, has_fields, object};
use super::lines::{Line, Lines};
use super::stamp::{NANOSECONDS, SECONDS};
use super::table::TOKENS;
use super::{FormatFacts, IgnoredFields, Measured, Row, RowReader, TraceError};

/// How a trace of this format starts, for people.
pub(super) const STARTS_WITH: &str = "`{\"resourceSpans\": ...` (OpenTelemetry spans of vLLM)";

const STAMP: &str = "startTimeUnixNano";
const PROMPT: &str = "gen_ai.usage.prompt_tokens";
const OUTPUT: &str = "gen_ai.usage.completion_tokens";
const TTFT: &str = "gen_ai.latency.time_to_first_token";
const E2E: &str = "gen_ai.latency.e2e";

/// Whether `line` can be the first of a trace in this format.
pub(super) fn recognises(line: &str) -> bool {
    has_fields(line, &["resourceSpans"])
}

/// Reads the spans of requests.
pub(super) struct Otlp {
    lines: Lines,
    /// Those of the line that was read last.
    rows: VecDeque<Row>,
    /// Requests read.
    read: u64,
    ignored: IgnoredFields,
}

impl Otlp {
    /// Reads `lines`.
    pub(super) fn new(lines: Lines) -> Self {
        Self { lines, rows: VecDeque::new(), read: 0, ignored: IgnoredFields::default() }
    }
}

impl RowReader for Otlp {
    fn next_row(&mut self) -> Result<Option<Row>, TraceError> {
        while self.rows.is_empty() {
            let Some(line) = self.lines.next_line()? else { return Ok(None) };
            let batch = Value::Object(object(&line)?);
            for span in spans(&batch) {
                let span = Span { line: &line, span };
                if span.attribute(PROMPT).is_some() {
                    self.read += 1;
                    self.rows.push_back(span.row(self.read)?);
                }
            }
        }
        Ok(self.rows.pop_front())
    }

    fn facts(&self) -> FormatFacts {
        FormatFacts::new(STAMP, NANOSECONDS.name)
    }

    fn show_stamp(&self, stamp: i128) -> String {
        NANOSECONDS.show(stamp)
    }

    fn ignored(&self) -> &IgnoredFields {
        &self.ignored
    }
}

/// The spans of a batch, in its order.
fn spans(batch: &Value) -> impl Iterator<Item = &Value> {
    list_of(batch, "resourceSpans")
        .iter()
        .flat_map(|resource| list_of(resource, "scopeSpans"))
        .flat_map(|scope| list_of(scope, "spans"))
}

fn list_of<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// One span.
struct Span<'a> {
    line: &'a Line<'a>,
    span: &'a Value,
}

impl Span<'_> {
    /// The value of an attribute.
    fn attribute(&self, key: &str) -> Option<&Value> {
        let named = |attribute: &&Value| attribute.get("key").is_some_and(|name| name == key);
        let attribute = list_of(self.span, "attributes").iter().find(named)?;
        attribute.get("value")?.as_object()?.values().next()
    }

    fn row(&self, place: u64) -> Result<Row, TraceError> {
        let refuse = |field, found: Option<&Value>, accepted| {
            let found = found.map_or_else(|| "missing".to_owned(), Value::to_string);
            self.line.refuse(field, found, accepted)
        };
        let tokens = |field| {
            let found = self.attribute(field);
            let number = found.and_then(|value| match value {
                Value::String(text) => text.parse().ok(),
                value => as_u32(value),
            });
            number.ok_or_else(|| refuse(field, found, TOKENS))
        };
        let time = |field| {
            self.attribute(field).map_or(Ok(None), |value| {
                let ns = SECONDS.of_value(value);
                ns.map(Some).ok_or_else(|| refuse(field, Some(value), SECONDS.accepted))
            })
        };
        let stamp = self.span.get(STAMP);
        let start = stamp.and_then(|value| match value {
            Value::String(text) => NANOSECONDS.of_text(text),
            value => NANOSECONDS.of_value(value),
        });
        let start = start.ok_or_else(|| refuse(STAMP, stamp, NANOSECONDS.accepted))?;
        Ok(Row {
            measured: Measured::new(time(TTFT)?, time(E2E)?),
            ..Row::new(start, place, tokens(PROMPT)?, tokens(OUTPUT)?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{refused, rows};
    use super::*;
    use crate::workload::trace::TraceFormat::{Auto, Otlp as FORMAT};

    fn span(prompt: &str, rest: &str) -> String {
        format!(
            "{{\"name\":\"llm_request\",\"startTimeUnixNano\":\"1769021450278127360\",\"attributes\":[\
             {{\"key\":\"gen_ai.usage.prompt_tokens\",\"value\":{{\"intValue\":{prompt}}}}},\
             {{\"key\":\"gen_ai.usage.completion_tokens\",\"value\":{{\"intValue\":\"500\"}}}}{rest}]}}"
        )
    }

    fn batch(spans: &[String]) -> String {
        let spans = spans.join(",");
        format!("{{\"resourceSpans\":[{{\"scopeSpans\":[{{\"spans\":[{spans}]}}]}}]}}\n")
    }

    #[test]
    fn a_line_may_hold_several_requests_and_other_spans() {
        let latencies = ",{\"key\":\"gen_ai.latency.time_to_first_token\",\"value\":{\"doubleValue\":0.25}},\
                         {\"key\":\"gen_ai.latency.e2e\",\"value\":{\"doubleValue\":3.5}}";
        let other = "{\"name\":\"other\",\"attributes\":[]}".to_owned();
        let text = batch(&[span("\"1527\"", latencies), other, span("3", "")])
            + &batch(&[span("\"9\"", "")]);
        let stamp = 1_769_021_450_278_127_360;
        let measured = Measured::new(Some(250_000_000), Some(3_500_000_000));
        assert_eq!(
            rows(Auto, &text),
            [
                Row { measured, ..Row::new(stamp, 1, 1527, 500) },
                Row::new(stamp, 2, 3, 500),
                Row::new(stamp, 3, 9, 500),
            ]
        );
    }

    #[test]
    fn what_cannot_be_read_names_its_attribute() {
        let error = refused(FORMAT, &batch(&[span("\"x\"", "")]));
        assert!(
            error.starts_with("t:1: `gen_ai.usage.prompt_tokens` is \"x\", expected"),
            "{error}"
        );
    }
}
