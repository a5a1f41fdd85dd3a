//! What AIPerf and genai-perf export: figures by tag as JSON or CSV, and records of requests as JSON lines.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::distribution::Distribution;
use super::each::{Names, Request, measures};
use super::fields::{Node, ResultsError};
use super::model::{Measure, Percent, Quantity, Results, Rule, Statistic};

/// Its tags of distributions, in milliseconds.
const LATENCIES: [(&str, Quantity); 4] = [
    ("time_to_first_token", Quantity::Ttft),
    ("inter_token_latency", Quantity::Tpot),
    ("inter_chunk_latency", Quantity::EmissionGap),
    ("request_latency", Quantity::E2e),
];

/// Its tags of single figures, whose `avg` they are.
const VALUES: [(&str, Quantity); 9] = [
    ("request_throughput", Quantity::RequestsPerSecond),
    ("output_token_throughput", Quantity::OutputTokensPerSecond),
    ("total_token_throughput", Quantity::TotalTokensPerSecond),
    ("benchmark_duration", Quantity::Span),
    ("goodput", Quantity::MetPerSecond),
    ("request_count", Quantity::Completed),
    ("error_request_count", Quantity::Failed),
    ("total_isl", Quantity::InputTokens),
    ("total_osl", Quantity::OutputTokens),
];

/// What a unit may be.
const UNIT: &str = "ns, us, ms, s or sec";

/// Whether a document is one of figures by tag.
pub(super) fn is_summary(value: &Value) -> bool {
    let tags = LATENCIES.iter().chain(&VALUES);
    tags.map(|(tag, _)| value.get(tag)).any(|entry| entry.is_some_and(Value::is_object))
}

/// Whether a document is a record of a request.
pub(super) fn is_record(value: &Value) -> bool {
    value.get("metrics").is_some_and(Value::is_object) && value.get("metadata").is_some()
}

/// Reads figures by tag.
pub(super) fn read_summary(name: String, node: Node<'_>) -> Result<Results, ResultsError> {
    if node.get("request_count").is_some() {
        node.some_requests("request_count.avg")?;
    }
    let mut found = Vec::new();
    for (tag, quantity) in LATENCIES {
        let Some(fields) = node.get(tag).and_then(Value::as_object) else { continue };
        let factor = milliseconds(tag, node)?;
        let mut figures = Vec::new();
        for field in fields.keys() {
            let statistic = match field.as_str() {
                "avg" => Statistic::Mean,
                "std" => Statistic::Std,
                "min" => Statistic::Percentile(Percent::of(0.0)),
                "max" => Statistic::Percentile(Percent::of(100.0)),
                other => {
                    let percent = other.strip_prefix('p').and_then(Percent::parse);
                    let Some(percent) = percent else { continue };
                    Statistic::Percentile(percent)
                }
            };
            let value = node.figure(&format!("{tag}.{field}"))?;
            figures.extend(value.map(|value| (statistic, value * factor)));
        }
        if figures.is_empty() {
            return Err(node.error(tag, "without figures", "`avg` or percentiles"));
        }
        let (field, rule) = (tag.to_owned(), Rule::Linear);
        found.push(Measure { quantity, field, rule, figures, distribution: None });
    }
    if found.is_empty() {
        return Err(node.error(
            "request_latency",
            "missing",
            "the figures of one latency at least",
        ));
    }
    for (tag, quantity) in VALUES {
        if node.get(tag).is_none() {
            continue;
        }
        let factor = if quantity == Quantity::Span { milliseconds(tag, node)? / 1e3 } else { 1.0 };
        let value = node.needed(&format!("{tag}.avg"))? * factor;
        found.push(Measure::value(quantity, tag, value));
    }
    Ok(results(name, "AIPerf or genai-perf", found))
}

fn results(name: String, title: &str, measures: Vec<Measure>) -> Results {
    Results {
        name,
        title: title.to_owned(),
        counted: "those that succeeded, without warm-up",
        clock: "a request's clock starts when it is sent; rates are from the first request to the last response",
        measures,
        report: None,
    }
}

/// What makes milliseconds of the unit of a tag.
fn milliseconds(tag: &str, node: Node<'_>) -> Result<f64, ResultsError> {
    let field = format!("{tag}.unit");
    let unit = node.get(&field).and_then(Value::as_str).unwrap_or("missing");
    match unit {
        "ns" => Ok(1e-6),
        "us" => Ok(1e-3),
        "ms" => Ok(1.0),
        "s" | "sec" | "seconds" => Ok(1e3),
        other => Err(node.error(&field, other, UNIT)),
    }
}

/// Reads the CSV, whose first column is `Metric`, as if it were the JSON. It has parts with a header each.
pub(super) fn read_csv(name: String, path: &Path, text: &[u8]) -> Result<Results, ResultsError> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text);
    let mut tags = Map::new();
    let mut header: Vec<String> = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| malformed(path, &error))?;
        let cells: Vec<&str> = record.iter().collect();
        if cells[0] == "Metric" {
            header = cells.iter().map(|&cell| cell.to_owned()).collect();
            continue;
        }
        // `Time to First Token (ms)` is `time_to_first_token` in `ms`.
        let (label, unit) = cells[0].split_once(" (").unwrap_or((cells[0], ""));
        let mut entry = Map::new();
        entry.insert("unit".to_owned(), json!(unit.trim_end_matches(')')));
        for (column, cell) in header.iter().zip(&cells).skip(1) {
            // What is no number stays text and is refused where it is used.
            let cell = cell.replace(',', "");
            let number = cell.parse::<f64>().ok().and_then(serde_json::Number::from_f64);
            let value = match number {
                _ if cell.is_empty() || cell == "N/A" => Value::Null,
                Some(number) => Value::Number(number),
                None => Value::String(cell),
            };
            let column = if column == "Value" { "avg" } else { column };
            entry.insert(column.to_owned(), value);
        }
        let tag = label.to_lowercase().replace(' ', "_");
        tags.entry(tag).or_insert(Value::Object(entry));
    }
    read_summary(name, Node::file(path, &Value::Object(tags)))
}

/// That a CSV cannot be read.
pub(super) fn malformed(path: &Path, error: &csv::Error) -> ResultsError {
    ResultsError::Unknown {
        path: path.to_owned(),
        found: format!("malformed CSV ({error})"),
        accepted: "rows under a header",
    }
}

/// Reads records of requests, each with its line. Those that failed, were cancelled, or warmed up do not count.
pub(super) fn read_records(
    name: String,
    path: &Path,
    records: &[(u64, Value)],
) -> Result<Results, ResultsError> {
    let (mut requests, mut gaps) = (Vec::new(), Vec::new());
    let mut failed = 0_u64;
    for (line, value) in records {
        let node = Node { path, line: Some(*line), value };
        if node.get("metadata.benchmark_phase").is_some_and(|phase| phase == "warmup") {
            continue;
        }
        let cancelled = node.get("metadata.was_cancelled").and_then(Value::as_bool);
        if node.get("error").is_some() || cancelled == Some(true) {
            failed += 1;
            continue;
        }
        let ms = |tag: &str| -> Result<Option<f64>, ResultsError> {
            let Some(value) = node.figure(&format!("metrics.{tag}.value"))? else {
                return Ok(None);
            };
            Ok(Some(value * milliseconds(&format!("metrics.{tag}"), node)?))
        };
        requests.push(Request {
            ttft: ms("time_to_first_token")?,
            tpot: ms("inter_token_latency")?,
            e2e: ms("request_latency")?,
            queue: None,
            output_tokens: node
                .figure("metrics.output_sequence_length.value")?
                .map(|tokens| tokens as u64),
        });
        let tag = "metrics.inter_chunk_latency";
        let field = format!("{tag}.value");
        if let Some(list) = node.list(&field)? {
            let factor = milliseconds(tag, node)?;
            gaps.extend(node.figures(&field, list)?.iter().map(|gap| (gap * factor, 1)));
        }
    }
    if requests.is_empty() {
        return Err(ResultsError::Unknown {
            path: path.to_owned(),
            found: "no request that succeeded".to_owned(),
            accepted: "one at least",
        });
    }
    let names = Names {
        ttft: "time_to_first_token",
        tpot: "inter_token_latency",
        e2e: "request_latency",
        queue: "",
    };
    let mut found = measures(&requests, names);
    found.extend(
        Distribution::samples(gaps).map(|gaps| {
            Measure::of(Quantity::EmissionGap, "inter_chunk_latency", Rule::Linear, gaps)
        }),
    );
    if found.is_empty() {
        let node = Node { path, line: Some(records[0].0), value: &records[0].1 };
        return Err(node.error("metrics.request_latency", "missing", "one latency at least"));
    }
    found.push(Measure::value(Quantity::Completed, "records", requests.len() as f64));
    found.push(Measure::value(Quantity::Failed, "error", failed as f64));
    Ok(results(name, "AIPerf, requests", found))
}
