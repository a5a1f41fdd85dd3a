//! `AIPerf`: one metric per tag, as JSON and CSV, and one line per request.
//!
//! What others call TPOT is its `inter_token_latency`, and what they call ITL its `inter_chunk_latency`. Percentiles
//! are numpy's. A request without a metric meets no limit of it.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::base::time::{SimDuration, SimTime};

use super::statistics::Sample;
use super::{Seen, Served, per, write_pretty};

/// The files: metrics as JSON and CSV, and the requests.
pub(super) const FILES: [&str; 3] =
    ["profile_export_aiperf.json", "profile_export_aiperf.csv", "profile_export.jsonl"];

const PERCENTILES: [u32; 9] = [1, 5, 10, 25, 50, 75, 90, 95, 99];

/// A metric that requests have: its tag, its title in tables, its unit, and its values of one request.
struct Tag {
    tag: &'static str,
    title: &'static str,
    unit: &'static str,
    values: fn(&Served) -> Values,
}

/// What one request has of a metric.
enum Values {
    /// Nothing: the metric is not defined for it.
    None,
    One(f64),
    /// A number of tokens.
    Count(u64),
    Several(Vec<f64>),
}

impl From<Option<f64>> for Values {
    fn from(value: Option<f64>) -> Self {
        value.map_or(Self::None, Self::One)
    }
}

impl Values {
    fn to_json(&self) -> Option<Value> {
        match self {
            Self::None => None,
            Self::One(value) => Some(json!(value)),
            Self::Count(count) => Some(json!(count)),
            Self::Several(values) => Some(json!(values)),
        }
    }

    fn into_vec(self) -> Vec<f64> {
        match self {
            Self::None => Vec::new(),
            Self::One(value) => vec![value],
            Self::Count(count) => vec![count as f64],
            Self::Several(values) => values,
        }
    }
}

/// `amount` over milliseconds, per second.
fn rate(amount: f64, ms: f64) -> Option<f64> {
    (ms > 0.0).then(|| amount / ms * 1e3)
}

const TAGS: [Tag; 13] = [
    Tag {
        tag: "time_to_first_token",
        title: "Time to First Token",
        unit: "ms",
        values: |served| Values::One(served.ttft_ms()),
    },
    Tag {
        tag: "time_to_second_token",
        title: "Time to Second Token",
        unit: "ms",
        // From the first chunk to the second.
        values: |served| served.gaps().next().map(SimDuration::as_ms).into(),
    },
    Tag {
        tag: "time_to_first_output_token",
        title: "Time to First Output Token",
        unit: "ms",
        // Nothing is reasoning.
        values: |served| Values::One(served.ttft_ms()),
    },
    Tag {
        tag: "request_latency",
        title: "Request Latency",
        unit: "ms",
        values: |served| Values::One(served.e2e_ms()),
    },
    Tag {
        tag: "inter_token_latency",
        title: "Inter Token Latency",
        unit: "ms",
        values: |served| served.tpot_ms().into(),
    },
    Tag {
        tag: "inter_chunk_latency",
        title: "Inter Chunk Latency",
        unit: "ms",
        values: |served| match served.gaps().map(SimDuration::as_ms).collect::<Vec<_>>() {
            none if none.is_empty() => Values::None,
            gaps => Values::Several(gaps),
        },
    },
    Tag {
        tag: "decode_duration",
        title: "Decode Duration",
        unit: "ms",
        values: |served| {
            let decoding = served.record.last_token.since(served.record.first_token);
            (served.later_tokens() > 0).then(|| decoding.as_ms()).into()
        },
    },
    Tag {
        tag: "output_token_throughput_per_user",
        title: "Output Token Throughput Per User",
        unit: "tokens/sec/user",
        values: |served| served.tpot_ms().and_then(|ms| rate(1.0, ms)).into(),
    },
    Tag {
        tag: "prefill_throughput_per_user",
        title: "Prefill Throughput Per User",
        unit: "tokens/sec/user",
        values: |served| rate(f64::from(served.record.prompt_tokens), served.ttft_ms()).into(),
    },
    Tag {
        tag: "e2e_output_token_throughput",
        title: "E2E Output Token Throughput",
        unit: "tokens/sec/user",
        values: |served| rate(f64::from(served.tokens()), served.e2e_ms()).into(),
    },
    Tag {
        tag: "input_sequence_length",
        title: "Input Sequence Length",
        unit: "tokens",
        values: |served| Values::Count(served.record.prompt_tokens.into()),
    },
    Tag {
        tag: "output_sequence_length",
        title: "Output Sequence Length",
        unit: "tokens",
        values: |served| Values::Count(served.tokens().into()),
    },
    Tag {
        tag: "output_token_count",
        title: "Output Token Count",
        unit: "tokens",
        values: |served| Values::Count(served.tokens().into()),
    },
];

/// A metric of all requests together.
struct Total {
    tag: &'static str,
    title: &'static str,
    unit: &'static str,
    value: Value,
}

/// Every metric of a run.
pub(super) struct Metrics {
    distributions: Vec<(&'static Tag, Sample)>,
    totals: Vec<Total>,
}

impl Metrics {
    pub(super) fn of(seen: &Seen) -> Self {
        let sample = |tag: &Tag| {
            Sample::of(seen.served.iter().flat_map(|served| (tag.values)(served).into_vec()))
        };
        let distributions = TAGS.iter().map(|tag| (tag, sample(tag))).collect();
        Self { distributions, totals: totals(seen) }
    }

    /// Writes `profile_export_aiperf.json`. Metrics that no request has are left out.
    pub(super) fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        write_pretty(&self.to_json(), out)
    }

    fn to_json(&self) -> Map<String, Value> {
        let mut all = Map::new();
        for (tag, sample) in self.known() {
            let mut metric = Map::new();
            metric.insert("unit".to_owned(), json!(tag.unit));
            for (name, value) in figures(sample) {
                metric.insert(name, json!(value));
            }
            metric.insert("count".to_owned(), json!(sample.count()));
            all.insert(tag.tag.to_owned(), metric.into());
        }
        for total in &self.totals {
            all.insert(total.tag.to_owned(), json!({ "unit": total.unit, "avg": total.value }));
        }
        all
    }

    /// Writes `profile_export_aiperf.csv`: the distributions, an empty line, and the others.
    pub(super) fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let names = figures(&Sample::default()).into_iter().map(|(name, _)| name);
        let header: Vec<_> = std::iter::once("Metric".to_owned()).chain(names).collect();
        writeln!(out, "{}", header.join(","))?;
        for (tag, sample) in self.known() {
            write!(out, "{} ({})", tag.title, tag.unit)?;
            for (_, value) in figures(sample) {
                write!(out, ",{}", json!(value))?;
            }
            writeln!(out)?;
        }
        writeln!(out, "\nMetric,Value")?;
        for total in &self.totals {
            writeln!(out, "{} ({}),{}", total.title, total.unit, total.value)?;
        }
        Ok(())
    }

    fn known(&self) -> impl Iterator<Item = &(&'static Tag, Sample)> {
        self.distributions.iter().filter(|(_, sample)| sample.count() > 0)
    }
}

/// The figures of a distribution under their names, in order.
fn figures(sample: &Sample) -> Vec<(String, Option<f64>)> {
    let percentiles =
        PERCENTILES.map(|percent| (format!("p{percent}"), sample.linear(f64::from(percent))));
    let mut all = vec![("avg".to_owned(), sample.mean())];
    all.extend(percentiles);
    all.push(("min".to_owned(), sample.min()));
    all.push(("max".to_owned(), sample.max()));
    all.push(("std".to_owned(), sample.std()));
    all
}

/// The metrics of all requests together; those that are not known are left out.
fn totals(seen: &Seen) -> Vec<Total> {
    let count = seen.served.len() as u64;
    let (first, last) = (seen.first_arrival(), seen.last_token());
    let duration = first.zip(last).map(|(first, last)| last.since(first));
    let duration_s = duration.map(SimDuration::as_s);
    // A request of one token has no TPOT and so meets no limit of it.
    let good = seen.good(false);
    let (input, output) = (seen.prompt_tokens(), seen.output_tokens());
    let ns = |time: Option<SimTime>| json!(time.map(SimTime::as_ns));
    let all = [
        (
            "output_token_throughput",
            "Output Token Throughput",
            "tokens/sec",
            json!(per(output, duration_s)),
        ),
        (
            "total_token_throughput",
            "Total Token Throughput",
            "tokens/sec",
            json!(per(input + output, duration_s)),
        ),
        ("request_throughput", "Request Throughput", "requests/sec", json!(per(count, duration_s))),
        ("request_count", "Request Count", "requests", json!(count)),
        (
            "error_request_count",
            "Error Request Count",
            "requests",
            json!(seen.rejected + seen.unfinished),
        ),
        ("good_request_count", "Good Request Count", "requests", json!(good)),
        ("goodput", "Goodput", "requests/sec", json!(good.and_then(|good| per(good, duration_s)))),
        ("benchmark_duration", "Benchmark Duration", "sec", json!(duration_s)),
        ("min_request_timestamp", "Minimum Request Timestamp", "ns", ns(first)),
        ("max_response_timestamp", "Maximum Response Timestamp", "ns", ns(last)),
    ];
    let all = all.into_iter().map(|(tag, title, unit, value)| Total { tag, title, unit, value });
    all.filter(|total| !total.value.is_null()).collect()
}

/// One line of `profile_export.jsonl`.
#[derive(Debug, Serialize)]
struct Record {
    metadata: Metadata,
    metrics: Map<String, Value>,
    /// `None`: it completed.
    error: Option<Value>,
}

/// Where and when; nanoseconds from the start of the run.
#[derive(Debug, Serialize)]
struct Metadata {
    session_num: u32,
    x_request_id: String,
    x_correlation_id: Option<String>,
    conversation_id: Option<String>,
    turn_index: Option<u32>,
    request_start_ns: u64,
    request_ack_ns: Option<u64>,
    request_end_ns: u64,
    worker_id: String,
    benchmark_phase: &'static str,
    was_cancelled: bool,
}

/// Writes `profile_export.jsonl`: a line per request that completed, in the order of the workload.
pub(super) fn write_records(seen: &Seen, out: &mut dyn Write) -> io::Result<()> {
    for served in &seen.served {
        serde_json::to_writer(&mut *out, &record_of(served))?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

fn record_of(served: &Served) -> Record {
    let metric = |tag: &Tag| {
        let value = (tag.values)(served).to_json()?;
        Some((tag.tag.to_owned(), json!({ "value": value, "unit": tag.unit })))
    };
    Record {
        metadata: Metadata {
            session_num: served.record.id.0,
            x_request_id: served.record.id.to_string(),
            x_correlation_id: None,
            conversation_id: None,
            turn_index: None,
            request_start_ns: served.record.arrival.as_ns(),
            request_ack_ns: None,
            request_end_ns: served.record.last_token.as_ns(),
            worker_id: format!("engine_{}", served.record.engine),
            benchmark_phase: "profiling",
            was_cancelled: false,
        },
        metrics: TAGS.iter().filter_map(metric).collect(),
        error: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[track_caller]
    fn assert_near(value: &Value, expected: f64) {
        let found = value.as_f64().unwrap();
        assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
    }

    /// See [`sample::seen`] for the requests.
    #[test]
    fn metrics_are_by_the_definitions_of_the_tool() {
        let json = Metrics::of(&sample::seen()).to_json();
        assert_near(&json["time_to_first_token"]["avg"], 450.0);
        // TPOT 125 and 100 ms; what a user gets is 8 and 10 tokens a second.
        assert_near(&json["inter_token_latency"]["p50"], 112.5);
        assert_near(&json["output_token_throughput_per_user"]["avg"], 9.0);
        // Gaps between chunks of 200, 50, 150 and 150 ms; the first ones are 200 and 150.
        assert_near(&json["inter_chunk_latency"]["avg"], 137.5);
        assert_near(&json["time_to_second_token"]["avg"], 175.0);
        assert_eq!(json["inter_chunk_latency"]["count"], 4);
        // 10,000 tokens/s, 12,000 and 100.
        assert_near(&json["prefill_throughput_per_user"]["max"], 12000.0);
        // From 0 to 2.05 s. Good is the second alone: the third has no TPOT, and its TTFT is too long.
        assert_near(&json["benchmark_duration"]["avg"], 2.05);
        assert_near(&json["goodput"]["avg"], 1.0 / 2.05);
        assert_eq!(json["error_request_count"], json!({ "unit": "requests", "avg": 2 }));
        assert_eq!(json["max_response_timestamp"]["avg"], 2_050_000_000_u64);
        let keys: Vec<_> = json["request_latency"].as_object().unwrap().keys().collect();
        let expected = "unit avg p1 p5 p10 p25 p50 p75 p90 p95 p99 min max std count";
        assert_eq!(keys, expected.split(' ').collect::<Vec<_>>());
    }

    /// With 2 s for the first token the third is held back by the limit of TPOT alone.
    #[test]
    fn a_request_of_one_token_meets_no_limit_of_tpot() {
        let mut seen = sample::seen();
        let slo = seen.deployed.slo.as_mut().unwrap();
        slo.ttft_ms = Some(2000.0);
        assert_eq!((seen.good(true), seen.good(false)), (Some(2), Some(1)));
    }

    #[test]
    fn the_table_has_distributions_and_single_figures() {
        let mut text = Vec::new();
        Metrics::of(&sample::seen()).write_csv(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "Metric,avg,p1,p5,p10,p25,p50,p75,p90,p95,p99,min,max,std");
        assert!(lines[1].starts_with("Time to First Token (ms),450.0,"), "{}", lines[1]);
        assert!(
            text.contains("\n\nMetric,Value\n") && text.contains("\nRequest Count (requests),3\n")
        );
    }

    #[test]
    fn a_line_is_a_request() {
        let mut text = Vec::new();
        write_records(&sample::seen(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[1]["metadata"]["request_start_ns"], 50_000_000);
        assert_eq!(lines[1]["metadata"]["request_end_ns"], 600_000_000);
        let gaps = json!({ "value": [150.0, 150.0], "unit": "ms" });
        assert_eq!(lines[1]["metrics"]["inter_chunk_latency"], gaps);
        assert!(lines[2]["metrics"].get("inter_token_latency").is_none());
        assert!(lines[2]["error"].is_null());
    }
}
