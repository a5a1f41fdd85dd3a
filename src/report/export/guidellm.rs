//! `GuideLLM`: distributions by what became of requests.
//!
//! A percentile is the nearest rank on the weighted distribution. `time_per_output_token_ms` is latency / n, the
//! first token included, and weighs n; `inter_token_latency_ms` is (last - first) / (n - 1) and weighs n - 1. Rates
//! and concurrency weigh the time for which they hold. `request_latency` is in seconds, as nothing else.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use crate::base::time::{SimDuration, SimTime};

use super::statistics::Sample;
use super::{Seen, Served, write_pretty};

/// The percentiles under their names, in thousandths.
const PERCENTILES: [(&str, u32); 11] = [
    ("p001", 1),
    ("p01", 10),
    ("p05", 50),
    ("p10", 100),
    ("p25", 250),
    ("p50", 500),
    ("p75", 750),
    ("p90", 900),
    ("p95", 950),
    ("p99", 990),
    ("p999", 999),
];

/// Writes the file.
pub(super) fn write(seen: &Seen, out: &mut dyn Write) -> io::Result<()> {
    write_pretty(&content(seen), out)
}

fn content(seen: &Seen) -> Value {
    let (first, last) = (seen.first_arrival(), seen.last_token());
    let duration = first.zip(last).map(|(first, last)| last.since(first));
    let completed = seen.served.len() as u64;
    let mut metrics = Map::new();
    let totals = json!({
        "successful": completed,
        "incomplete": seen.unfinished,
        "errored": seen.rejected,
        "total": completed + seen.unfinished + seen.rejected,
    });
    metrics.insert("request_totals".to_owned(), totals);
    for (name, sample) in samples(seen) {
        let none = summary(&Sample::default());
        let found = summary(&sample);
        // What did not complete has no figures: the total is that of the others.
        let by_status =
            json!({ "successful": found, "incomplete": none, "errored": none, "total": found });
        metrics.insert(name.to_owned(), by_status);
    }
    let benchmark = json!({
        "start_time": first.map(SimTime::as_s),
        "end_time": last.map(SimTime::as_s),
        "duration": duration.map(SimDuration::as_s),
        "metrics": metrics,
    });
    json!({ "benchmarks": [benchmark] })
}

/// What the tool says of a distribution; `None` where it is empty.
fn summary(sample: &Sample) -> Value {
    let percentiles = PERCENTILES
        .map(|(name, per_mille)| (name.to_owned(), json!(sample.nearest_rank(per_mille))));
    json!({
        "mean": sample.mean(),
        "median": sample.nearest_rank(500),
        "mode": sample.mode(),
        "variance": sample.variance(),
        "std_dev": sample.std(),
        "min": sample.min(),
        "max": sample.max(),
        "count": sample.count(),
        "total_sum": sample.sum(),
        "percentiles": Map::from_iter(percentiles),
    })
}

fn samples(seen: &Seen) -> [(&'static str, Sample); 15] {
    let all = || seen.served.iter();
    let each = |value: fn(&Served) -> f64| Sample::of(all().map(value));
    let weighted = |value: fn(&Served) -> Option<f64>, weight: fn(&Served) -> u64| {
        Sample::weighted(all().filter_map(|served| Some((value(served)?, weight(served)))))
    };
    let start = seen.first_arrival().unwrap_or(SimTime::ZERO);
    let ends = || all().map(|served| (served.record.last_token, 1.0));
    let prompts = || {
        let prompt = |served: &Served| f64::from(served.record.prompt_tokens);
        all().map(move |served| (served.record.first_token, prompt(served)))
    };
    let outputs = || all().flat_map(tokens_in_time);
    [
        ("requests_per_second", rates(start, ends())),
        ("request_concurrency", concurrency(seen)),
        ("request_latency", each(|served| served.record.e2e().as_s())),
        ("prompt_token_count", each(|served| f64::from(served.record.prompt_tokens))),
        ("output_token_count", each(|served| f64::from(served.tokens()))),
        (
            "total_token_count",
            each(|served| f64::from(served.record.prompt_tokens) + f64::from(served.tokens())),
        ),
        ("time_to_first_token_ms", each(Served::ttft_ms)),
        // Nothing is reasoning.
        ("time_to_first_output_token_ms", each(Served::ttft_ms)),
        (
            "time_per_output_token_ms",
            weighted(
                |served| Some(served.e2e_ms() / f64::from(served.tokens())),
                |served| served.tokens().into(),
            ),
        ),
        ("inter_token_latency_ms", weighted(Served::tpot_ms, Served::later_tokens)),
        ("prompt_tokens_per_second", rates(start, prompts())),
        ("output_tokens_per_second", rates(start, outputs())),
        ("tokens_per_second", rates(start, prompts().chain(outputs()))),
        (
            "output_tokens_per_iteration",
            weighted(
                |served| Some(f64::from(served.tokens()) / iterations(served) as f64),
                iterations,
            ),
        ),
        (
            "iter_tokens_per_iteration",
            weighted(
                |served| {
                    let later = iterations(served) - 1;
                    (later > 0).then(|| served.later_tokens() as f64 / later as f64)
                },
                |served| iterations(served) - 1,
            ),
        ),
    ]
}

/// In how many parts its tokens came: one with the prompt, and one a round, or a token where nothing speculates. The
/// one with the tokens computed again after a preemption is not told apart.
fn iterations(served: &Served) -> u64 {
    match served.record.rounds.rounds {
        0 => u64::from(served.tokens()),
        rounds => u64::from(rounds) + 1,
    }
}

/// When its tokens came, as the tool takes it: the first, then the others in even parts up to the last.
fn tokens_in_time(served: &Served) -> impl Iterator<Item = (SimTime, f64)> {
    let (first, last) = (served.record.first_token, served.record.last_token);
    let later = iterations(served) - 1;
    let step = last.since(first).as_ns() as f64 / later as f64;
    let part = served.later_tokens() as f64 / later as f64;
    let time = move |n: u64| SimTime::from_ns(first.as_ns() + (step * n as f64).round() as u64);
    std::iter::once((first, 1.0)).chain((1..=later).map(move |n| (time(n), part)))
}

/// Rates between one event and the next, by the time between them: what happens at an instant came since the one
/// before.
fn rates(start: SimTime, events: impl Iterator<Item = (SimTime, f64)>) -> Sample {
    let mut events: Vec<_> = events.collect();
    events.sort_by_key(|event| event.0);
    let mut before = start;
    let together = events.chunk_by(|one, other| one.0 == other.0);
    let rates: Vec<_> = together
        .map(|together| {
            let gap = together[0].0.since(before);
            before = together[0].0;
            (together.iter().map(|event| event.1).sum::<f64>() / gap.as_s(), gap.as_ns())
        })
        .collect();
    Sample::weighted(rates)
}

/// Requests under way, by time.
fn concurrency(seen: &Seen) -> Sample {
    let levels = seen.concurrency();
    let spans = levels.windows(2);
    Sample::weighted(spans.map(|pair| (pair[0].1 as f64, pair[1].0.since(pair[0].0).as_ns())))
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    fn metrics() -> Value {
        content(&sample::seen())["benchmarks"][0]["metrics"].clone()
    }

    #[track_caller]
    fn assert_near(value: &Value, expected: f64) {
        let found = value.as_f64().unwrap_or_else(|| panic!("{value}"));
        assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
    }

    /// See [`sample::seen`]: latencies over tokens are 350 / 3, 550 / 4 and 1,000 / 1 ms and weigh 3, 4 and 1: 1,900
    /// ms over 8. TPOT of 125 and 100 ms weigh 2 and 3: 550 over 5.
    #[test]
    fn times_per_token_weigh_tokens() {
        let metrics = metrics();
        let with_first = &metrics["time_per_output_token_ms"]["successful"];
        assert_near(&with_first["mean"], 237.5);
        assert_eq!(with_first["count"], 8);
        // Of 8 tokens 3 are at 116.67 ms, 4 at 137.5.
        assert_near(&with_first["percentiles"]["p25"], 350.0 / 3.0);
        assert_near(&with_first["median"], 137.5);
        assert_near(&with_first["percentiles"]["p90"], 1000.0);
        let without = &metrics["inter_token_latency_ms"]["successful"];
        assert_near(&without["mean"], 110.0);
        assert_near(&without["mode"], 100.0);
        assert_near(&metrics["request_latency"]["total"]["max"], 1.0);
    }

    /// Requests end at 350, 600 and 2,050 ms: 1 / 0.35 for 0.35 s, 1 / 0.25 for 0.25 s, 1 / 1.45 for 1.45 s. One is
    /// under way from 0 to 50 and 350 to 600 ms and from 1,050 on, two in between, none from 600 to 1,050 ms.
    #[test]
    fn rates_weigh_time() {
        let metrics = metrics();
        let rate = &metrics["requests_per_second"]["successful"];
        assert_near(&rate["mean"], 3.0 / 2.05);
        assert_near(&rate["max"], 4.0);
        assert_near(&rate["median"], 1.0 / 1.45);
        let level = &metrics["request_concurrency"]["successful"];
        assert_near(&level["mean"], (0.05 + 2.0 * 0.3 + 0.25 + 1.0) / 2.05);
        assert_near(&metrics["output_tokens_per_second"]["successful"]["mean"], 8.0 / 2.05);
    }

    #[test]
    fn what_did_not_complete_is_counted_and_has_no_figures() {
        let metrics = metrics();
        let totals = json!({ "successful": 3, "incomplete": 1, "errored": 1, "total": 5 });
        assert_eq!(metrics["request_totals"], totals);
        let errored = &metrics["time_to_first_token_ms"]["errored"];
        assert_eq!((&errored["count"], &errored["mean"]), (&json!(0), &Value::Null));
        let names: Vec<_> = errored["percentiles"].as_object().unwrap().keys().collect();
        assert_eq!(names, PERCENTILES.map(|(name, _)| name));
    }
}
