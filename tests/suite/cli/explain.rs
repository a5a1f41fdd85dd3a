//! `servesim explain`, and the trace of a run, from the command line.

use serde_json::Value;

use crate::support::{Folder, request, servesim, trace};

/// Twelve requests at once for an engine with two seats.
fn crowd() -> String {
    let requests: Vec<_> = (0..12).map(|i| request(0, 40, 10 + i)).collect();
    trace(&requests)
}

const SEATS: &str = "engine={vllm: {max_num_seqs: 2, max_num_batched_tokens: 256}}";

#[test]
fn a_report_is_explained_by_running_it_again() {
    let folder = Folder::new();
    let path = folder.write("t.jsonl", crowd());
    let results = folder.text("results");
    let ran = servesim(["replay", &path, "--set", SEATS, "--out", &results]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let ran = servesim(["explain", &results, "--format", "json"]);
    let json: Value = ran.report();
    let report = std::fs::read_to_string(folder.path("results/report.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(json["digest"], report["digest"]);
    assert_eq!(json["other_digest"], Value::Null);
    let close = |a: &Value, b: &Value| (a.as_f64().unwrap() - b.as_f64().unwrap()).abs() < 1e-9;
    assert!(close(&json["value_ms"], &report["latency"]["ttft_ms"]["p99"]));
    let parts = json["groups"][0]["parts"].as_array().unwrap();
    let seats = parts.iter().find(|part| part["part"] == "queue_seats").unwrap();
    assert!(seats["share_ratio"].as_f64().unwrap() > 0.5, "{json}");
    // Another engine would halve the crowd, as twice the seats do.
    let what_if = &json["what_if"]["lifted"];
    let best: Vec<&Value> =
        what_if.as_array().unwrap().iter().take(2).map(|lifted| &lifted["set"][0]).collect();
    assert!(best.contains(&&Value::from("engine.vllm.max_num_seqs=4")), "{json}");

    // The trace is another one now.
    folder.write("t.jsonl", trace(&[request(0, 40, 9), request(0, 40, 9)]));
    let ran = servesim(["explain", &results, "--no-what-if"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(ran.stderr.contains("the run cannot be repeated"), "{}", ran.stderr);
    assert!(ran.stdout.contains("The run cannot be repeated"), "{}", ran.stdout);
    let ran = servesim(["explain", &results, "--no-what-if", "--set", "seed=1"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

#[test]
fn what_cannot_be_explained_is_refused() {
    let folder = Folder::new();
    let path = folder.write("t.jsonl", crowd());
    let scenario = folder.write("s.yaml", format!("workload: {{trace: {{path: {path}}}}}\n"));
    for (args, code, message) in [
        (["--quantile", "1"], 2, "--quantile 1: expected a number above 0 and below 1"),
        (["--quantile", "NaN"], 2, "--quantile NaN: expected a number above 0 and below 1"),
        (["--request", "12"], 2, "--request 12: expected a request of the run, from 0 to 11"),
        (["--set", "metrics.warmup.requests=12"], 1, "no request of the run has a TTFT"),
    ] {
        let ran = servesim(["explain", &scenario, "--no-what-if", args[0], args[1]]);
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(message), "{args:?}: {}", ran.stderr);
    }
    let ran = servesim(["explain", &scenario, "--set", "workload.trace.path=-"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
}

#[test]
fn a_trace_of_the_run_is_written_as_asked() {
    let folder = Folder::new();
    let path = folder.write("t.jsonl", crowd());
    let drawn = |args: &[&str]| {
        let out = folder.text("trace.json");
        let ran = servesim([&["replay", &path, "--perfetto", &out], args].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let text = std::fs::read_to_string(&out).unwrap();
        let trace: Value = serde_json::from_str(&text).unwrap();
        trace["traceEvents"].as_array().unwrap().len()
    };
    let whole = drawn(&[]);
    assert!(drawn(&["--perfetto-sample", "4"]) < whole);
    assert!(drawn(&["--perfetto-window", ":0.02"]) < whole);
    for window in ["3", "2:1", "-1:2"] {
        let out = folder.text("trace.json");
        let flag = format!("--perfetto-window={window}");
        let ran = servesim(["replay", &path, "--perfetto", &out, &flag]);
        assert_eq!(ran.code, Some(2), "{window}");
        assert!(ran.stderr.contains("--perfetto-window"), "{}", ran.stderr);
    }
}
