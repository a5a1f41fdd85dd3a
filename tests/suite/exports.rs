//! Do the files for other tools say what the report says, where both mean the same?

use serde_json::Value;

use crate::support::{Folder, request, servesim, trace};

/// Replays these requests (arrival in ms, prompt, output) with `flags`, and gives the folder, with the results in
/// `out`.
fn exported(requests: &[(u64, u32, u32)], flags: &[&str]) -> Folder {
    let folder = Folder::new();
    let requests: Vec<_> =
        requests.iter().map(|&(at, prompt, output)| request(at, prompt, output)).collect();
    let path = folder.write("t.jsonl", trace(&requests));
    let out = folder.text("out");
    let ran = servesim([&["replay", &path, "--quiet", "--out", &out][..], flags].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    folder
}

/// Forty requests of one to forty tokens.
fn several() -> Vec<(u64, u32, u32)> {
    (0..40).map(|n| (n * 7, 300 + 40 * (n % 5) as u32, 1 + n as u32)).collect()
}

fn json(folder: &Folder, name: &str) -> Value {
    serde_json::from_str(&folder.read(name)).unwrap()
}

#[track_caller]
fn assert_near(found: &Value, expected: f64, what: &str) {
    let found = found.as_f64().unwrap_or_else(|| panic!("{what} is {found}"));
    let near = (found - expected).abs() <= 1e-9 * expected.abs().max(1.0);
    assert!(near, "{what}: {found} is not {expected}");
}

/// Chunks of several tokens, which take a while to become text.
const SPECULATING: [&str; 6] = [
    "--set",
    "speculation.acceptance.conditional_rates=[0.8, 0.6, 0.4]",
    "--set",
    "engine.vllm.speculative_config={method: eagle, num_speculative_tokens: 3}",
    "--set",
    "host.detokenize_ms=0.5",
];

/// TTFT, TPOT and E2E are defined alike, and its ITL is the gap between emissions. TPOT of the report is rounded to
/// a nanosecond, so half of one, in ms, may lie between.
#[test]
fn equal_definitions_give_equal_figures() {
    for more in [&[][..], &SPECULATING] {
        let flags = [&["--export", "vllm-bench", "--export-detailed"][..], more].concat();
        let folder = exported(&several(), &flags);
        let (bench, report) =
            (json(&folder, "out/vllm-bench.json"), json(&folder, "out/report.json"));
        for (theirs, ours) in [
            ("ttft", "ttft_ms"),
            ("tpot", "tpot_ms"),
            ("itl", "emission_gap_ms"),
            ("e2el", "e2e_ms"),
        ] {
            let latency = &report["latency"][ours];
            for (statistic, figure) in [
                ("mean", "mean"),
                ("median", "p50"),
                ("std", "std"),
                ("p90", "p90"),
                ("p99", "p99"),
            ] {
                let key = format!("{statistic}_{theirs}_ms");
                let expected = latency[figure].as_f64().unwrap();
                let found = bench[&key].as_f64().unwrap();
                assert!((found - expected).abs() < 1e-6, "{key}: {found} is not {expected}");
            }
        }
        let throughput = &report["throughput"];
        let expected = throughput["output_tokens_per_s"].as_f64().unwrap();
        assert_near(&bench["output_throughput"], expected, "output_throughput");
        // The lists are of the same gaps, and each request's add up to its decoding.
        let lists = bench["itls"].as_array().unwrap();
        let seconds = |gap: &Value| gap.as_f64().unwrap();
        let gaps: Vec<f64> =
            lists.iter().flat_map(|list| list.as_array().unwrap()).map(seconds).collect();
        let count = report["latency"]["emission_gap_ms"]["count"].as_u64().unwrap();
        assert_eq!(gaps.len() as u64, count);
        let mean_ms = gaps.iter().sum::<f64>() / gaps.len() as f64 * 1e3;
        assert!((mean_ms - seconds(&bench["mean_itl_ms"])).abs() < 1e-6, "{mean_ms}");
        assert_eq!(bench.get("spec_decode_num_drafts").is_some(), !more.is_empty());
    }
}

/// One request of 100 tokens: 500 ms to the first, then 10 ms each, so that it lasts 500 + 99 * 10 = 1,490 ms. Per
/// token, the first included, that is 14.9 ms for `GuideLLM`; without it 10 ms for all others.
#[test]
fn a_time_per_token_is_what_the_tool_takes_it_for() {
    let flags = [
        "--set",
        "timing={fixed: {prefill_ms: 500, decode_ms: 10}}",
        "--set",
        "host={per_pass_host_ms: 0, frontend_ms: 0, detokenize_ms: 0}",
        "--export",
        "guidellm",
        "--export",
        "aiperf",
        "--export",
        "inferencex",
        "--export",
        "vllm-bench",
    ];
    let folder = exported(&[(0, 100, 100)], &flags);
    let guidellm = json(&folder, "out/benchmarks.json");
    let metrics = &guidellm["benchmarks"][0]["metrics"];
    let mean = |name: &str| &metrics[name]["successful"]["mean"];
    assert_near(mean("time_per_output_token_ms"), 14.9, "time_per_output_token_ms");
    assert_near(mean("inter_token_latency_ms"), 10.0, "inter_token_latency_ms");
    assert_near(mean("request_latency"), 1.49, "request_latency");
    let aiperf = json(&folder, "out/profile_export_aiperf.json");
    assert_near(&aiperf["inter_token_latency"]["avg"], 10.0, "inter_token_latency");
    assert_eq!(aiperf["inter_chunk_latency"]["count"], 99);
    assert_near(&json(&folder, "out/inferencex.json")["mean_intvty"], 100.0, "mean_intvty");
    let bench = json(&folder, "out/vllm-bench.json");
    assert_near(&bench["mean_tpot_ms"], 10.0, "mean_tpot_ms");
    // Chunks from 500 ms on: 50 of them before the end of the first second, 50 after it.
    assert_near(&bench["max_output_tokens_per_s"], 50.0, "max_output_tokens_per_s");
    assert_eq!(folder.read("out/profile_export.jsonl").lines().count(), 1);
    assert!(folder.read("out/profile_export_aiperf.csv").starts_with("Metric,avg,"));
}

/// Looking at every token changes nothing else, and requests of a warm-up are in no file.
#[test]
fn exports_leave_the_report_as_it_is() {
    let with = exported(&several(), &["--warmup", "10", "--export", "aiperf"]);
    let without = exported(&several(), &["--warmup", "10"]);
    let digest = |folder: &Folder| json(folder, "out/report.json")["latency"].clone();
    assert_eq!(digest(&with), digest(&without));
    assert_eq!(with.read("out/profile_export.jsonl").lines().count(), 30);
    assert!(!without.path("out/profile_export.jsonl").exists());
}

#[test]
fn exports_need_a_folder_and_a_tool() {
    let folder = Folder::new();
    let path = folder.write("t.jsonl", trace(&[request(0, 100, 3)]));
    let out = folder.text("out");
    for (flags, expected) in [
        (&["--export", "aiperf"][..], "--out <DIR>"),
        (
            &["--out", &out, "--export", "vllm"],
            "[possible values: vllm-bench, aiperf, guidellm, inferencex]",
        ),
        (&["--out", &out, "--export-detailed"], "--export <TOOL>"),
        (
            &["--out", &out, "--export", "aiperf", "--export-detailed"],
            "--export-detailed without `--export vllm-bench`: expected that export",
        ),
        (
            &[
                "--out",
                &out,
                "--export",
                "aiperf",
                "--requests",
                &folder.text("out/profile_export.jsonl"),
            ],
            "that is the place of --export",
        ),
    ] {
        let ran = servesim([&["replay", &path][..], flags].concat());
        assert_eq!(ran.code, Some(2), "{flags:?}");
        assert!(ran.stderr.contains(expected), "{flags:?}: {}", ran.stderr);
        assert!(!folder.path("out").exists());
    }
}
