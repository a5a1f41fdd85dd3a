use serde_json::json;

use super::model::{Percent, Quantity, Results, Rule, Statistic};
use super::*;

const MEAN: Statistic = Statistic::Mean;

/// Reads a file of this content.
fn loaded(content: &str) -> Result<Results, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, content).unwrap();
    let place = format!("{}/", folder.path().display());
    load(&path).map_err(|error| error.to_string().replace(&place, ""))
}

fn json_loaded(content: &Value) -> Result<Results, String> {
    loaded(&content.to_string())
}

fn percentile(percent: f64) -> Statistic {
    Statistic::Percentile(Percent::of(percent))
}

#[track_caller]
fn assert_figures(results: &Results, expected: &[(Quantity, Statistic, f64)]) {
    for &(quantity, statistic, expected) in expected {
        let found = results.figure(quantity, statistic);
        let is_near = found.is_some_and(|found| (found - expected).abs() < 1e-9);
        assert!(is_near, "{quantity:?} {statistic:?} is {found:?}, not {expected}");
    }
}

fn vllm() -> Value {
    json!({
        "model_id": "m", "duration": 4.0, "completed": 2, "failed": 1, "request_throughput": 0.5,
        "mean_ttft_ms": 300.0, "median_ttft_ms": 290.0, "std_ttft_ms": 5.0, "p99.9_ttft_ms": 400.0,
        "mean_itl_ms": 20.0, "p99_itl_ms": 30.0, "request_goodput": null,
    })
}

#[test]
fn vllm_names_chunks_itl() {
    let results = json_loaded(&vllm()).unwrap();
    assert_figures(
        &results,
        &[
            (Quantity::Ttft, MEAN, 300.0),
            (Quantity::Ttft, percentile(50.0), 290.0),
            (Quantity::Ttft, percentile(99.9), 400.0),
            (Quantity::EmissionGap, percentile(99.0), 30.0),
            (Quantity::Span, Statistic::Value, 4.0),
            (Quantity::Failed, Statistic::Value, 1.0),
        ],
    );
    assert!(results.measure(Quantity::Itl).is_none() && results.measure(Quantity::E2e).is_none());
    assert!(results.measure(Quantity::MetPerSecond).is_none());
    assert_eq!(results.title, "vllm bench serve | m");
}

/// The first: 3 tokens in chunks at 100, 110 and 130 ms. The second: 4 tokens, of which the last three come in one
/// chunk, at 200 and 260 ms. The third failed.
#[test]
fn samples_of_vllm_tell_what_its_summary_does_not() {
    let mut file = vllm();
    let more = json!({
        "ttfts": [0.1, 0.2, 0.0], "itls": [[0.01, 0.02], [0.06], []], "output_lens": [3, 4, 0],
        "errors": ["", "", "refused"],
    });
    file.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let results = json_loaded(&file).unwrap();
    assert_figures(
        &results,
        &[
            // What the summary says stays.
            (Quantity::Ttft, MEAN, 300.0),
            (Quantity::Ttft, percentile(100.0), 200.0),
            // (130 + 260) / 2.
            (Quantity::E2e, MEAN, 195.0),
            // 30 / 2 and 60 / 3.
            (Quantity::Tpot, MEAN, 17.5),
            (Quantity::TpotWithFirst, MEAN, (130.0 + 260.0) / 7.0),
            (Quantity::EmissionGap, percentile(50.0), 20.0),
        ],
    );
    file["output_lens"] = json!([3, 4]);
    let error = json_loaded(&file).unwrap_err();
    assert_eq!(error, "file: `output_lens` is a list of 2, expected a list as long as `ttfts`");
}

#[test]
fn aiperf_names_tpot_inter_token_latency() {
    let file = json!({
        "input_config": {},
        "request_count": {"unit": "requests", "avg": 7.0},
        "time_to_first_token": {"unit": "s", "avg": 0.25, "p99": 0.5, "p99.9": 0.75, "p99.9": 0.75, "min": 0.1, "std": null},
        "inter_token_latency": {"unit": "ms", "avg": 12.0, "p50": 11.0},
        "inter_chunk_latency": {"unit": "us", "avg": 24000.0},
        "benchmark_duration": {"unit": "sec", "avg": 9.0},
        "output_token_throughput": {"unit": "tokens/sec", "avg": 800.0},
    });
    let expected = [
        (Quantity::Ttft, MEAN, 250.0),
        (Quantity::Ttft, percentile(99.0), 500.0),
        (Quantity::Ttft, percentile(0.0), 100.0),
        (Quantity::Tpot, percentile(50.0), 11.0),
        (Quantity::EmissionGap, MEAN, 24.0),
        (Quantity::Span, Statistic::Value, 9.0),
        (Quantity::Completed, Statistic::Value, 7.0),
        (Quantity::OutputTokensPerSecond, Statistic::Value, 800.0),
    ];
    let results = json_loaded(&file).unwrap();
    assert_figures(&results, &expected);
    assert_eq!(results.figure(Quantity::Ttft, Statistic::Std), None);
    let csv = "Metric,avg,min,p50,p99\n\
               Time to First Token (ms),250,100,,500\n\
               Inter Token Latency (ms),12,,11,\n\
               Inter Chunk Latency (us),\"24,000\",,,\n\n\
               Metric,Value\n\
               Request Count (requests),7\n\
               Benchmark Duration (sec),9\n\
               Output Token Throughput (tokens/sec),800\n";
    assert_figures(&loaded(csv).unwrap(), &expected);
    let error = loaded(&csv.replace("Token (ms)", "Token (h)")).unwrap_err();
    assert_eq!(error, "file: `time_to_first_token.unit` is h, expected ns, us, ms, s or sec");
}

#[test]
fn records_of_aiperf_count_if_they_succeeded() {
    let record = |ttft: f64, e2e: f64, more: Value| {
        let mut record = json!({
            "metadata": {"benchmark_phase": "profiling"},
            "metrics": {
                "time_to_first_token": {"value": ttft, "unit": "ms"},
                "request_latency": {"value": e2e, "unit": "ms"},
                "output_sequence_length": {"value": 11, "unit": "tokens"},
                "inter_chunk_latency": {"value": [4.0, 6.0], "unit": "ms"},
            },
            "error": null,
        });
        record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        format!("{record}\n")
    };
    let text = [
        record(10.0, 110.0, json!({})),
        record(30.0, 230.0, json!({})),
        record(999.0, 999.0, json!({"metadata": {"benchmark_phase": "warmup"}})),
        record(999.0, 999.0, json!({"error": {"code": 500}})),
        record(999.0, 999.0, json!({"metadata": {"was_cancelled": true}})),
    ];
    let results = loaded(&text.concat()).unwrap();
    assert_figures(
        &results,
        &[
            (Quantity::Ttft, MEAN, 20.0),
            // 100 / 10 and 200 / 10.
            (Quantity::Tpot, percentile(100.0), 20.0),
            (Quantity::EmissionGap, MEAN, 5.0),
            (Quantity::Completed, Statistic::Value, 2.0),
            (Quantity::Failed, Statistic::Value, 2.0),
        ],
    );
    assert_eq!(
        loaded(&text[3]).unwrap_err(),
        "file: no request that succeeded, expected one at least"
    );
}

fn guidellm() -> Value {
    let summary = |mean: f64, p99: f64| {
        json!({"successful": {"mean": mean, "std_dev": 1.0, "count": 100, "total_sum": 9.0, "percentiles": {"p99": p99, "p001": 0.5}},
               "errored": {"count": 3}})
    };
    json!({"benchmarks": [{"metrics": {
        "time_to_first_token_ms": summary(500.0, 600.0),
        "inter_token_latency_ms": summary(10.0, 12.0),
        "time_per_output_token_ms": summary(14.9, 15.0),
        "request_latency": summary(1.49, 2.0),
        "output_tokens_per_second": summary(70.0, 80.0),
    }}]})
}

#[test]
fn guidellm_has_its_own_tpot() {
    let results = json_loaded(&guidellm()).unwrap();
    assert_figures(
        &results,
        &[
            (Quantity::Ttft, percentile(0.1), 0.5),
            (Quantity::TpotWeighted, percentile(99.0), 12.0),
            (Quantity::Itl, MEAN, 10.0),
            (Quantity::TpotWithFirst, MEAN, 14.9),
            (Quantity::E2e, MEAN, 1490.0),
            (Quantity::OutputTokensPerSecond, Statistic::Value, 70.0),
            (Quantity::Completed, Statistic::Value, 100.0),
            (Quantity::Failed, Statistic::Value, 3.0),
        ],
    );
    assert!(results.measure(Quantity::Tpot).is_none());
    assert_eq!(results.figure(Quantity::Itl, percentile(99.0)), None);
    assert_eq!(results.measure(Quantity::Ttft).unwrap().rule, Rule::NearestRank);
}

#[test]
fn one_of_several_benchmarks_is_chosen_by_its_number() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = guidellm();
    let mut second = file["benchmarks"][0].clone();
    second["metrics"]["request_latency"]["successful"]["mean"] = json!(3.0);
    file["benchmarks"].as_array_mut().unwrap().push(second);
    let path = folder.path().join("g.json");
    fs::write(&path, file.to_string()).unwrap();
    let numbered = |number: &str| load(&folder.path().join(format!("g.json{number}")));
    assert_figures(&numbered("#1").unwrap(), &[(Quantity::E2e, MEAN, 1490.0)]);
    assert_figures(&numbered("#2").unwrap(), &[(Quantity::E2e, MEAN, 3000.0)]);
    for bad in ["", "#0", "#3"] {
        let error = numbered(bad).unwrap_err().to_string();
        assert!(error.contains("`benchmarks` is a list of 2"), "{error}");
    }
    fs::write(&path, vllm().to_string()).unwrap();
    assert!(numbered("#1").unwrap_err().to_string().contains("a file of one result"));
}

#[test]
fn rows_count_if_completed_and_counted() {
    let csv = "status,counted,arrival_ms,prompt_tokens,output_tokens,ttft_ms,tpot_ms,e2e_ms,queue_ms\n\
               completed,true,1000,50,11,100,,300,5\n\
               completed,true,2000,70,1,50,,50,7\n\
               completed,false,0,50,11,9999,,9999,9999\n\
               rejected,true,1500,50,,,,,\n";
    let results = loaded(csv).unwrap();
    let expected = [
        (Quantity::Ttft, MEAN, 75.0),
        // (300 - 100) / 10; the other has one token.
        (Quantity::Tpot, MEAN, 20.0),
        (Quantity::Queue, percentile(50.0), 6.0),
        (Quantity::Completed, Statistic::Value, 2.0),
        (Quantity::Failed, Statistic::Value, 1.0),
        // From 1,000 to 2,050 ms.
        (Quantity::Span, Statistic::Value, 1.05),
        (Quantity::InputTokensPerSecond, Statistic::Value, 120.0 / 1.05),
        (Quantity::OutputTokens, Statistic::Value, 12.0),
    ];
    assert_figures(&results, &expected);
    let row = |arrival: u32, output: u32, ttft: u32, e2e: u32, queue: u32, input: u32| {
        json!({"status": "completed", "arrival_ms": arrival, "prompt_tokens": input, "output_tokens": output,
               "ttft_ms": ttft, "e2e_ms": e2e, "queue_ms": queue})
    };
    let rejected = json!({"status": "rejected", "arrival_ms": 1500});
    let lines = [row(1000, 11, 100, 300, 5, 50), row(2000, 1, 50, 50, 7, 70), rejected];
    assert_figures(&loaded(&lines.map(|line| format!("{line}\n")).concat()).unwrap(), &expected);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, csv.as_bytes()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv.gz");
    fs::write(&path, packed.finish().unwrap()).unwrap();
    assert_figures(&load(&path).unwrap(), &expected);
}

#[test]
fn a_report_has_its_curves() {
    let report = crate::report::sample::report();
    let json = serde_json::to_string(&report).unwrap();
    let results = loaded(&json).unwrap();
    // TTFTs of 100 and 250 ms.
    assert_figures(
        &results,
        &[
            (Quantity::Ttft, MEAN, 175.0),
            (Quantity::Ttft, percentile(50.0), 175.0),
            (Quantity::Ttft, percentile(99.5), 249.25),
            (Quantity::Completed, Statistic::Value, 2.0),
        ],
    );
    assert_eq!(results.report.as_deref(), Some(&report));
}

#[test]
fn what_is_no_result_is_refused_with_its_place() {
    let report = serde_json::to_value(crate::report::sample::report()).unwrap();
    let with = |mut value: Value, pointer: &str, new: Value| {
        *value.pointer_mut(pointer).unwrap() = new;
        value.to_string()
    };
    let header = "ttft_ms,e2e_ms\n";
    for (text, expected) in [
        (String::new(), "file: empty, expected a report of servesim"),
        ("{".to_owned(), "file: malformed JSON (EOF while parsing an object at line 1 column 1"),
        ("{}".to_owned(), "file: JSON of no known kind"),
        ("a,b\n1,2\n".to_owned(), "file: neither JSON nor a CSV of known columns"),
        (
            with(report.clone(), "/schema", json!("servesim.report/9")),
            "file: `schema` is \"servesim.report/9\", expected servesim.report/2",
        ),
        (with(report.clone(), "/latency/ttft_ms/count", json!("x")), "file: `latency.ttft_ms"),
        (
            with(report, "/requests/completed", json!(0)),
            "file: `requests.completed` is 0, expected at least one completed request",
        ),
        (
            with(vllm(), "/completed", json!(0)),
            "file: `completed` is 0, expected at least one completed",
        ),
        (with(vllm(), "/duration", json!(null)), "file: `duration` is missing, expected a finite"),
        (with(vllm(), "/mean_ttft_ms", json!(-1)), "file: `mean_ttft_ms` is -1, expected a finite"),
        (
            vllm().to_string().replace("300.0", "NaN"),
            "file:1: `mean_ttft_ms` is no number (NaN or Infinity)",
        ),
        (
            with(guidellm(), "/benchmarks/0/metrics/request_latency/successful/mean", json!("x")),
            "file: `benchmarks.0.metrics.request_latency.successful.mean` is \"x\"",
        ),
        (r#"{"benchmarks": []}"#.to_owned(), "file: `benchmarks` is a list of 0, expected one"),
        (
            format!("{header}1,2\n1,-2\n"),
            "file:3: `e2e_ms` is -2.0, expected a finite number of 0 or more",
        ),
        (format!("{header}1,2\nNaN,2\n"), "file:3: `ttft_ms` is \"NaN\""),
        (format!("{header}1,2\n,\n"), "file:3: `e2e_ms` is missing, expected one latency"),
        (format!("{header}1\n"), "file: malformed CSV"),
        (header.to_owned(), "file: no completed request, expected one at least"),
        ("{\"ttft_ms\": 1}\n{\"ttft_ms\": NaN}\n".to_owned(), "file:2: `ttft_ms` is no number"),
        ("{\"ttft_ms\": 1}\n[]\n".to_owned(), "file: line 2 is no object"),
    ] {
        let error = loaded(&text).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
    assert!(matches!(load(Path::new("/no/such/file")), Err(ResultsError::Io { .. })));
}
