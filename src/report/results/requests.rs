//! Rows of requests, as `--requests` writes them, or anybody's with some of the same columns.

use std::path::Path;

use serde_json::{Map, Value};

use super::aiperf::malformed;
use super::each::{Names, Request, measures};
use super::fields::{Node, ResultsError};
use super::model::{Measure, Quantity, Results};

/// Columns of latencies; a file has one at least.
const LATENCIES: [&str; 4] = ["ttft_ms", "tpot_ms", "e2e_ms", "queue_ms"];

/// Whether it has columns of such rows.
pub(super) fn has_columns<'a>(names: impl IntoIterator<Item = &'a str>) -> bool {
    names.into_iter().any(|name| LATENCIES.contains(&name.trim()))
}

/// The rows of a CSV, each with its line, as objects; empty cells are `null`.
pub(super) fn rows_of_csv(path: &Path, text: &[u8]) -> Result<Vec<(u64, Value)>, ResultsError> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text);
    let header = reader.headers().map_err(|error| malformed(path, &error))?.clone();
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| malformed(path, &error))?;
        let line = record.position().map_or(0, csv::Position::line);
        let cells = header.iter().zip(&record).map(|(name, cell)| {
            let number = cell.parse::<f64>().ok().and_then(serde_json::Number::from_f64);
            let value = match cell {
                "" => Value::Null,
                "true" | "True" => Value::Bool(true),
                "false" | "False" => Value::Bool(false),
                text => number.map_or_else(|| Value::String(text.to_owned()), Value::Number),
            };
            (name.to_owned(), value)
        });
        rows.push((line, Value::Object(cells.collect::<Map<_, _>>())));
    }
    Ok(rows)
}

/// Reads rows. Those whose `status` is another than `completed`, or that are not `counted`, are left out.
pub(super) fn read(
    name: String,
    path: &Path,
    rows: &[(u64, Value)],
) -> Result<Results, ResultsError> {
    let mut requests = Vec::new();
    let (mut first, mut last) = (f64::INFINITY, 0.0_f64);
    let (mut failed, mut input, mut output) = (0_u64, Some(0.0), Some(0.0));
    for (line, value) in rows {
        let node = Node { path, line: Some(*line), value };
        if node.get("counted").is_some_and(|counted| counted == false) {
            continue;
        }
        let arrival = node.figure("arrival_ms")?;
        first = first.min(arrival.unwrap_or(f64::INFINITY));
        if node.get("status").is_some_and(|status| status != "completed") {
            failed += 1;
            continue;
        }
        let tokens = node.figure("output_tokens")?;
        let request = Request {
            ttft: node.figure("ttft_ms")?,
            tpot: node.figure("tpot_ms")?,
            e2e: node.figure("e2e_ms")?,
            queue: node.figure("queue_ms")?,
            output_tokens: tokens.map(|tokens| tokens as u64),
        };
        if request == (Request { output_tokens: request.output_tokens, ..Request::default() }) {
            return Err(node.error(
                "e2e_ms",
                "missing",
                "one latency of a completed request at least",
            ));
        }
        let end = arrival.zip(request.e2e).map(|(arrival, e2e)| arrival + e2e);
        last = last.max(node.figure("finished_ms")?.or(end).unwrap_or(0.0));
        input = sum(input, node.figure("prompt_tokens")?);
        output = sum(output, tokens);
        requests.push(request);
    }
    if requests.is_empty() {
        return Err(ResultsError::Unknown {
            path: path.to_owned(),
            found: "no completed request".to_owned(),
            accepted: "one at least",
        });
    }
    let names = Names { ttft: "ttft_ms", tpot: "tpot_ms", e2e: "e2e_ms", queue: "queue_ms" };
    let mut found = measures(&requests, names);
    let completed = requests.len() as f64;
    found.push(Measure::value(Quantity::Completed, "rows", completed));
    if rows.iter().any(|(_, row)| row.get("status").is_some()) {
        found.push(Measure::value(Quantity::Failed, "status", failed as f64));
    }
    let mut value = |quantity, field, value: Option<f64>| {
        found.extend(value.map(|value| Measure::value(quantity, field, value)));
    };
    value(Quantity::InputTokens, "prompt_tokens", input);
    value(Quantity::OutputTokens, "output_tokens", output);
    let span_s = (last - first) / 1e3;
    if span_s.is_finite() && span_s > 0.0 {
        let per_s = |amount: Option<f64>| amount.map(|amount| amount / span_s);
        let total = sum(input, output);
        value(Quantity::Span, "arrival_ms, finished_ms", Some(span_s));
        value(Quantity::RequestsPerSecond, "rows", per_s(Some(completed)));
        value(Quantity::InputTokensPerSecond, "prompt_tokens", per_s(input));
        value(Quantity::OutputTokensPerSecond, "output_tokens", per_s(output));
        value(Quantity::TotalTokensPerSecond, "prompt_tokens, output_tokens", per_s(total));
    }
    Ok(Results {
        name,
        title: "rows of requests".to_owned(),
        counted: "those completed and counted",
        clock: "a request's clock starts when it arrives; rates are from the first arrival to the last token",
        measures: found,
        report: None,
    })
}

/// A sum of which every part is known.
fn sum(so_far: Option<f64>, next: Option<f64>) -> Option<f64> {
    so_far.zip(next).map(|(so_far, next)| so_far + next)
}
