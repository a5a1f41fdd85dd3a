//! `vllm bench serve --save-result`.
//!
//! Percentiles are numpy's. ITL is the gap between chunks, not tokens; TPOT is (latency - TTFT) / (n - 1) of requests
//! with several tokens.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::base::time::SimDuration;
use crate::report::Report;

use super::statistics::Sample;
use super::{Seen, per};

/// The percentiles that are written.
const PERCENTILES: [u32; 5] = [50, 75, 90, 95, 99];

/// The whole file.
#[derive(Debug, Serialize)]
struct File {
    #[serde(flatten)]
    totals: Map<String, Value>,
    #[serde(flatten)]
    lists: Option<Lists>,
}

/// One entry a request, in the order of the workload.
#[derive(Debug, Serialize)]
struct Lists {
    input_lens: Vec<u32>,
    output_lens: Vec<u32>,
    /// Seconds from the start of the run.
    start_times: Vec<f64>,
    /// Seconds.
    ttfts: Vec<f64>,
    /// Seconds, of each request.
    itls: Vec<Vec<f64>>,
    generated_texts: Vec<&'static str>,
    errors: Vec<&'static str>,
}

impl Lists {
    fn of(seen: &Seen) -> Self {
        let records = || seen.served.iter().map(|served| &served.record);
        Self {
            input_lens: records().map(|record| record.prompt_tokens).collect(),
            output_lens: records().map(|record| record.output_tokens).collect(),
            start_times: records().map(|record| record.arrival.as_s()).collect(),
            ttfts: records().map(|record| record.ttft().as_s()).collect(),
            itls: seen
                .served
                .iter()
                .map(|served| served.gaps().map(SimDuration::as_s).collect())
                .collect(),
            generated_texts: vec![""; seen.served.len()],
            errors: vec![""; seen.served.len()],
        }
    }
}

/// Writes the file, on one line as the tool does.
pub(super) fn write(
    seen: &Seen,
    report: &Report,
    detailed: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let lists = detailed.then(|| Lists::of(seen));
    serde_json::to_writer(&mut *out, &File { totals: totals(seen, report), lists })?;
    out.write_all(b"\n")
}

/// All but the lists.
pub(super) fn totals(seen: &Seen, report: &Report) -> Map<String, Value> {
    let completed = seen.served.len() as u64;
    let failed = seen.rejected + seen.unfinished;
    // The clock starts with the first request that counts, whatever becomes of it.
    let duration_s = report.run.throughput.span_s;
    let input = seen.prompt_tokens();
    let output = seen.output_tokens();
    let load = Load::of(report);
    let mut all = Map::new();
    let mut put = |key: &str, value: Value| {
        all.insert(key.to_owned(), value);
    };
    put("date", Value::Null);
    put("endpoint_type", json!(seen.deployed.engine));
    put("backend", json!(seen.deployed.engine));
    put("label", json!(report.title.scenario));
    put("model_id", json!(seen.deployed.model));
    put("tokenizer_id", json!(seen.deployed.model));
    put("num_prompts", json!(completed + failed));
    put("request_rate", load.request_rate);
    put("burstiness", load.burstiness);
    put("max_concurrency", load.max_concurrency);
    for (key, value) in load.ramp_up {
        put(key, value);
    }
    put("duration", json!(duration_s));
    put("completed", json!(completed));
    put("failed", json!(failed));
    put("total_input_tokens", json!(input));
    put("total_output_tokens", json!(output));
    put("request_throughput", json!(per(completed, duration_s)));
    // It takes a request of one token to have a TPOT of 0.
    put("request_goodput", json!(seen.good(true).and_then(|good| per(good, duration_s))));
    put("output_throughput", json!(per(output, duration_s)));
    put("total_token_throughput", json!(per(input + output, duration_s)));
    put("max_output_tokens_per_s", json!(chunks_per_s_max(seen)));
    put("max_concurrent_requests", json!(seen.concurrency_max()));
    // Seconds of audio per second: there is none.
    put("rtfx", json!(0.0));
    for (name, sample) in latencies(seen) {
        put(&format!("mean_{name}_ms"), json!(sample.mean()));
        put(&format!("median_{name}_ms"), json!(sample.linear(50.0)));
        put(&format!("std_{name}_ms"), json!(sample.std()));
        for percent in PERCENTILES {
            put(&format!("p{percent}_{name}_ms"), json!(sample.linear(f64::from(percent))));
        }
    }
    if let Some(speculation) = &report.run.speculation {
        let percent = speculation.acceptance_ratio.map(|ratio| ratio * 100.0);
        put("spec_decode_acceptance_rate", json!(percent));
        put("spec_decode_acceptance_length", json!(speculation.acceptance_length_mean));
        put("spec_decode_num_drafts", json!(speculation.verifying_rounds));
        put("spec_decode_draft_tokens", json!(speculation.drafts));
        put("spec_decode_accepted_tokens", json!(speculation.accepted_drafts));
        put(
            "spec_decode_per_position_acceptance_rates",
            json!(speculation.position_acceptance_ratio),
        );
    }
    all
}

/// The samples of which the tool writes statistics, in milliseconds.
fn latencies(seen: &Seen) -> [(&'static str, Sample); 4] {
    [
        ("ttft", seen.ttft_ms()),
        ("tpot", seen.tpot_ms()),
        ("itl", seen.gap_ms()),
        ("e2el", seen.e2e_ms()),
    ]
}

/// The most chunks in a second, counted from the first arrival; the tool calls them tokens. `None` where single
/// emissions are not known.
fn chunks_per_s_max(seen: &Seen) -> Option<f64> {
    let start = seen.first_arrival()?;
    let emissions = seen.served.iter().flat_map(|served| &served.emissions);
    let mut seconds: Vec<u64> =
        emissions.map(|emission| emission.at.since(start).as_ns() / 1_000_000_000).collect();
    seconds.sort_unstable();
    let most = seconds.chunk_by(|one, other| one == other).map(<[u64]>::len).max()?;
    Some(most as f64)
}

/// How requests were sent, as far as the tool has a word for it.
#[derive(Debug, Default)]
struct Load {
    request_rate: Value,
    burstiness: Value,
    max_concurrency: Value,
    ramp_up: Vec<(&'static str, Value)>,
}

impl Load {
    fn of(report: &Report) -> Self {
        let workload = &report.scenario["workload"];
        let first = |paths: &[&str]| {
            let mut found = paths.iter().filter_map(|path| workload.pointer(path));
            found.find(|value| !value.is_null()).cloned().unwrap_or_default()
        };
        let max_concurrency = first(&[
            "/synthetic/max_concurrency",
            "/servegen/max_concurrency",
            "/trace/reshape/max_concurrency",
            "/synthetic/arrivals/closed_loop/concurrency",
        ]);
        let arrivals = &workload["synthetic"]["arrivals"];
        let none = Self { max_concurrency, ..Self::default() };
        if let Some(bench) = arrivals.get("vllm_bench") {
            let rate = &bench["request_rate"];
            let ramp_up = ["ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps"];
            let ramp_up = ramp_up.map(|key| (key, bench[key].clone()));
            return Self {
                request_rate: if rate.is_null() { json!("inf") } else { rate.clone() },
                burstiness: bench["burstiness"].clone(),
                ramp_up: ramp_up.into_iter().filter(|(_, value)| !value.is_null()).collect(),
                ..none
            };
        }
        if arrivals.get("all_at_once").is_some() || arrivals.get("closed_loop").is_some() {
            return Self { request_rate: json!("inf"), ..none };
        }
        if let Some(poisson) = arrivals.get("poisson") {
            let request_rate = poisson["requests_per_s"].clone();
            return Self { request_rate, burstiness: json!(1.0), ..none };
        }
        if let Some(gamma) = arrivals.get("gamma") {
            let request_rate = gamma["requests_per_s"].clone();
            return Self { request_rate, burstiness: gamma["burstiness"].clone(), ..none };
        }
        none
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    fn file(detailed: bool) -> Value {
        let mut text = Vec::new();
        write(&sample::seen(), &sample::report(), detailed, &mut text).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    #[track_caller]
    fn assert_near(file: &Value, key: &str, expected: f64) {
        let found = file[key].as_f64().unwrap_or_else(|| panic!("{key} is {}", file[key]));
        assert!((found - expected).abs() < 1e-9, "{key}: {found} is not {expected}");
    }

    /// See [`sample::seen`] for the requests: TTFT 100, 250 and 1,000 ms; TPOT 125 (250 ms over 2) and 100 ms (300
    /// over 3); E2E 350, 550 and 1,000 ms; gaps 200, 50, 150 and 150 ms.
    #[test]
    fn latencies_are_by_the_definitions_of_the_tool() {
        let file = file(false);
        assert_near(&file, "mean_ttft_ms", 450.0);
        assert_near(&file, "median_ttft_ms", 250.0);
        // Rank 0.9 * 2 = 1.8: 250 + 0.8 * 750.
        assert_near(&file, "p90_ttft_ms", 850.0);
        assert_near(&file, "mean_tpot_ms", 112.5);
        assert_near(&file, "std_tpot_ms", 12.5);
        assert_near(&file, "mean_itl_ms", 137.5);
        assert_near(&file, "median_itl_ms", 150.0);
        assert_near(&file, "median_e2el_ms", 550.0);
        assert!(file["date"].is_null() && file.get("itls").is_none());
    }

    /// From 0 to 2.05 s 3 of 5 requests complete: 4,100 prompt and 8 output tokens. Chunks at 100, 300, 350, 300, 450
    /// and 600 ms lie in the first second, the one at 2.05 s alone. The first two requests overlap.
    #[test]
    fn totals_are_over_the_span_of_the_run() {
        let file = file(false);
        for (key, expected) in [
            ("num_prompts", 5.0),
            ("completed", 3.0),
            ("failed", 2.0),
            ("duration", 2.05),
            ("total_input_tokens", 4100.0),
            ("total_output_tokens", 8.0),
            ("request_throughput", 3.0 / 2.05),
            ("total_token_throughput", 4108.0 / 2.05),
            ("max_output_tokens_per_s", 6.0),
            ("max_concurrent_requests", 2.0),
            // TTFT at most 300 ms: the first two. TPOT at most 110 ms: the second and, of one token, the third.
            ("request_goodput", 1.0 / 2.05),
        ] {
            assert_near(&file, key, expected);
        }
    }

    #[test]
    fn details_are_lists_of_requests_in_seconds() {
        let file = file(true);
        assert_eq!(file["input_lens"], json!([1000, 3000, 100]));
        assert_eq!(file["output_lens"], json!([3, 4, 1]));
        assert_eq!(file["start_times"], json!([0.0, 0.05, 1.05]));
        assert_eq!(file["ttfts"], json!([0.1, 0.25, 1.0]));
        assert_eq!(file["itls"], json!([[0.2, 0.05], [0.15, 0.15], []]));
        assert_eq!(file["errors"], json!(["", "", ""]));
    }
}
