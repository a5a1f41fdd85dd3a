//! Results side by side: what a comparison says, and when it fails.

use serde_json::json;

use crate::support::{Folder, request, servesim, trace};

/// A report, the rows of its requests, and a result of GuideLLM.
fn results() -> (Folder, [String; 3]) {
    let folder = Folder::new();
    let trace = folder.write("t.jsonl", trace(&[request(0, 20, 3), request(500, 30, 5)]));
    let [out, rows] = ["out", "rows.csv"].map(|name| folder.text(name));
    let ran = servesim(["replay", &trace, "--out", &out, "--requests", &rows]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let summary = |mean: f64| json!({"successful": {"mean": mean, "count": 100}});
    let metrics = json!({
        "time_to_first_token_ms": summary(500.0),
        "time_per_output_token_ms": summary(14.9),
        "request_latency": summary(1.49),
    });
    let guidellm =
        folder.write("g.json", json!({"benchmarks": [{"metrics": metrics}]}).to_string());
    (folder, [out, rows, guidellm])
}

/// A report and its own requests agree, whichever of the two is measured by the other.
#[test]
fn a_report_agrees_with_its_rows() {
    let (_folder, [out, rows, _]) = results();
    for (a, b) in [(&out, &rows), (&rows, &out)] {
        let limits =
            ["ttft_p90=0.001%", "tpot_mean=0.001%", "e2e_p99=0.001ms", "requests_per_s=0.001%"];
        let limits = limits.iter().flat_map(|limit| ["--fail-above", limit]);
        let args = ["compare", a.as_str(), b.as_str()].into_iter().chain(limits);
        let ran = servesim(args.collect::<Vec<_>>());
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", ran.stdout);
        assert!(ran.stdout.lines().all(|line| line.chars().count() <= 100), "{}", ran.stdout);
    }
}

#[test]
fn a_difference_above_its_limit_fails() {
    let (_folder, [out, _, guidellm]) = results();
    let args = ["compare", &guidellm, &out, "--fail-above", "ttft_mean=1%", "--format", "json"];
    let ran = servesim(args);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.starts_with("servesim: ttft_mean of B is "), "{}", ran.stderr);
    assert!(ran.stderr.ends_with(" below A, more than 1.000%\n"), "{}", ran.stderr);
    let comparison: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(comparison["schema"], "servesim.comparison/2");
}

#[test]
fn what_means_something_else_is_refused() {
    let (_folder, [out, _, guidellm]) = results();
    let ran = servesim(["compare", &out, &guidellm]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let words: Vec<_> = ran.stdout.split_whitespace().collect();
    let expected = "Not compared: `latency.tpot_ms` of A and `time_per_output_token_ms` of B:";
    assert!(words.join(" ").contains(expected), "{}", ran.stdout);
    for (limit, expected) in [
        ("tpot_mean=10%", "has no such figure (`latency.tpot_ms` and `time_per_output_token_ms`"),
        ("tpt_mean=10%", "did you mean `tpot_mean`?"),
        ("tpot_mean=10", "the limit is `10`"),
    ] {
        let refused = servesim(["compare", &out, &guidellm, "--fail-above", limit]);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{limit}");
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    }
}
