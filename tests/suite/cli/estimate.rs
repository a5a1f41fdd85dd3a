//! `servesim estimate` from the command line.

use serde_json::Value;

use crate::support::{Folder, servesim};

/// What `estimate` prints, and its exit code.
fn estimate(args: &str) -> crate::support::Ran {
    servesim(["estimate"].into_iter().chain(args.split_whitespace()))
}

#[test]
fn mistakes_name_the_flag() {
    for (args, message) in [
        ("--batch 0 --isl 9 --osl 9", "--batch 0: expected an integer of at least 1"),
        ("--batch 9 --isl 0 --osl 9", "--isl 0: expected an integer of at least 1"),
        ("--batch 9 --isl 9 --osl 0", "--osl 0: expected an integer of at least 1"),
        (
            "--batch 9 --isl 9 --osl 9 --prefix 9",
            "prefix (9) must be smaller than the effective isl (9)",
        ),
        ("--batch 9 --isl 9 --osl 9 --ctx-tokens 0", "--ctx-tokens 0: expected integers of"),
        ("--batch 9 --isl 9 --osl 9 --ctx-tokens 9,,9", "--ctx-tokens 9,,9: expected integers"),
        ("--batch 9 --isl 200000 --osl 9", "--isl 200000: expected at most 131063: "),
        ("--batch 9 --isl 9 --osl 131072", "--osl 131072: expected less than 131072"),
        ("--batch 5000 --isl 9 --osl 9999", "--batch 5000: expected at most "),
        ("--batch 4294967295 --isl 9 --osl 9", "--batch 4294967295: expected at most 134217728"),
        (
            "--batch 4294967295 --isl 4294967295 --osl 4294967295",
            "--batch 4294967295: expected a batch whose tokens",
        ),
        ("--batch 4294967296 --isl 9 --osl 9", "'4294967296' for '--batch <N>'"),
        ("--batch 9 --isl -9 --osl 9", "unexpected argument '-9'"),
        ("--batch 9 --isl 9", "--osl <N>"),
        ("--batch 9 --isl 9 --osl 9 --model x --gpu h100-sxm", "`model"),
    ] {
        let ran = estimate(args);
        assert_eq!(ran.code, Some(2), "{args}: {}", ran.stdout);
        assert!(ran.stderr.contains(message), "{args}: {}", ran.stderr);
        assert_eq!(ran.stdout, "");
    }
}

#[test]
fn the_estimate_comes_in_every_format() {
    let args = "--batch 4 --isl 512 --osl 16 --prefix 64 --ctx-tokens 448,896 --check --format ";
    let json: Value = estimate(&format!("{args} json")).report();
    assert_eq!(json["schema"], "servesim.estimate/1");
    assert_eq!(json["batch"]["isl_new"], 448);
    let points = json["points"].as_array().unwrap();
    assert_eq!(points.len(), 2);
    for (point, passes) in points.iter().zip([4, 2]) {
        assert_eq!(point["mixed_passes"], passes);
        let schedule = point["schedule"].as_array().unwrap();
        let sum = |key: &str| -> u64 {
            let of = |p: &Value| p["passes"].as_u64().unwrap() * p[key].as_u64().unwrap();
            schedule.iter().map(of).sum()
        };
        assert_eq!((sum("prefill_tokens"), sum("decode_requests")), (4 * 448, 4 * 15));
    }
    let ran = estimate(&format!("{args} csv"));
    let tpot = points[1]["figures"]["tpot_ms"].to_string();
    assert!(ran.stdout.contains(&format!("points.1.figures.tpot_ms,{tpot}\n")), "{}", ran.stdout);
    let ran = estimate(&format!("{args} markdown"));
    assert!(ran.stdout.contains("| ctx\\_tokens | mixed | decode |"), "{}", ran.stdout);
    let ran = estimate(&format!("{args} table"));
    assert!(ran.stdout.lines().skip(1).all(|line| line.chars().count() <= 100), "{}", ran.stdout);
}

#[test]
fn a_scenario_says_what_is_deployed_and_flags_change_it() {
    let folder = Folder::new();
    let path = folder.write(
        "s.yaml",
        "workload: {trace: {path: none.jsonl}}\n\
         timing: {fixed: {prefill_ms: 10, decode_ms: 4}}\n\
         engine: {vllm: {async_scheduling: false}}\n\
         slo: {ttft_ms: 100}\n",
    );
    let load = "--batch 4 --isl 100 --osl 10 --format json";
    let json: Value = estimate(&format!("{path} {load}")).report();
    assert_eq!(json["points"][0]["figures"]["ttft_ms"], 14.0);
    let json: Value = estimate(&format!("{path} {load} --set timing.fixed.decode_ms=2")).report();
    assert_eq!(json["points"][0]["figures"]["ttft_ms"], 12.0);
    let json: Value = estimate(&format!("{path} {load} --engine sglang --check")).report();
    assert!(json["title"]["engine"].as_str().unwrap().starts_with("SGLang"), "{json}");
    let ran = estimate(&format!("{path} {load} --set engine.vllm.nothing=2"));
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("`engine.vllm.nothing`"), "{}", ran.stderr);
}
