//! A model's name and an accelerator's set up the whole engine.

use serde_json::{Value, json};

use super::warning;
use crate::support::{Folder, Request, request, servesim, trace, without_host};

fn requests() -> Vec<Request> {
    (0..6).map(|i| request(i * 40, 200 + 100 * i as u32, 8)).collect()
}

/// The report of a replay with these arguments.
fn replayed(folder: &Folder, args: &[&str]) -> Value {
    let path = folder.write("t.jsonl", trace(&requests()));
    servesim([&["replay", &path, "--format", "json"], args].concat()).report()
}

fn refusal(folder: &Folder, args: &[&str]) -> String {
    let path = folder.write("t.jsonl", trace(&requests()));
    let ran = servesim(["replay", path.as_str()].iter().chain(args).copied().collect::<Vec<_>>());
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
    ran.stderr
}

#[test]
fn names_set_up_timing_memory_and_defaults() {
    let folder = Folder::new();
    let report = replayed(&folder, &["--model", "llama-3.1-8b", "--gpu", "h100-sxm"]);
    let scenario = &report["scenario"];
    assert_eq!(report["timing"]["provider"], "roofline");
    assert_eq!(scenario["model"]["shape"]["num_hidden_layers"], 32);
    assert_eq!(scenario["accelerator"]["data_sheet"]["name"], "h100-sxm");
    // As vLLM has it for a server on a GPU of 70 to 160 GiB.
    assert_eq!(scenario["engine"]["vllm"]["device"], "gpu_70gib");
    assert_eq!(scenario["engine"]["vllm"]["max_num_batched_tokens"], 8192);
    assert_eq!(scenario["engine"]["vllm"]["max_model_len"], 131_072);
    // 80 GB * 0.92 less 16 GB of weights leave 50 to 58 GB, and a block takes 16 * 131,072 bytes.
    let blocks = scenario["engine"]["vllm"]["num_gpu_blocks"].as_u64().unwrap();
    assert!((24_000..28_000).contains(&blocks), "{blocks}");
    // It is what a run without any names gets.
    assert_eq!(without_host(&report), without_host(&replayed(&folder, &[])));
}

#[test]
fn names_go_before_what_the_scenario_says_and_settings_after() {
    let folder = Folder::new();
    folder.write("t.jsonl", trace(&requests()));
    let scenario = "workload: {trace: {path: t.jsonl}}\ntiming: {fixed: {}}\n\
                    engine: {vllm: {num_gpu_blocks: 100, max_num_seqs: 7}}\n";
    let path = folder.write("s.yaml", scenario);
    let run =
        |args: &[&str]| servesim([&["run", &path, "--format", "json"], args].concat()).report();
    let vllm = |report: &Value, field: &str| report["scenario"]["engine"]["vllm"][field].clone();
    let as_written = run(&[]);
    assert_eq!(as_written["timing"]["provider"], "fixed");
    assert_eq!(vllm(&as_written, "num_gpu_blocks"), 100);
    let named = run(&["--model", "qwen3-8b", "--gpu", "l40s"]);
    assert_eq!(named["timing"]["provider"], "roofline");
    assert_eq!(vllm(&named, "max_num_seqs"), 7);
    assert_eq!(vllm(&named, "device"), "gpu_other");
    assert!(vllm(&named, "num_gpu_blocks").as_u64().unwrap() > 1000);
    let set =
        run(&["--model", "qwen3-8b", "--gpu", "l40s", "--set", "engine.vllm.num_gpu_blocks=200"]);
    assert_eq!(vllm(&set, "num_gpu_blocks"), 200);
}

#[test]
fn a_resolved_deployment_resolves_to_itself() {
    let folder = Folder::new();
    let report = replayed(&folder, &["--model", "mixtral-8x7b", "--gpu", "h100-sxm", "--tp", "2"]);
    let path = folder.write("report.json", report.to_string());
    let again = servesim(["run", &path, "--format", "json"]).report();
    assert_eq!(without_host(&again), without_host(&report));
}

#[test]
fn two_devices_hold_more_and_are_faster() {
    let folder = Folder::new();
    let args = ["--model", "llama-3.1-8b", "--gpu", "h100-sxm"];
    let one = replayed(&folder, &args);
    let two = replayed(&folder, &[&args[..], &["--tp", "2"]].concat());
    let blocks = |report: &Value| report["scenario"]["engine"]["vllm"]["num_gpu_blocks"].as_u64();
    assert!(blocks(&two) > blocks(&one).map(|blocks| 2 * blocks));
    let e2e_ms = |report: &Value| report["latency"]["e2e_ms"]["mean"].as_f64();
    assert!(e2e_ms(&two) < e2e_ms(&one));
}

#[test]
fn every_rank_of_data_parallelism_is_an_engine() {
    let folder = Folder::new();
    let ranks = "parallel.data_parallel_size=3";
    let report = replayed(&folder, &["--set", ranks]);
    assert_eq!(report["engines"].as_array().unwrap().len(), 3);
    let error = refusal(&folder, &["--set", ranks, "--set", "cluster.engines=4"]);
    assert!(error.contains("`cluster.engines` is 4, expected a multiple of"), "{error}");
}

#[test]
fn what_does_not_fit_is_refused_unless_it_is_wanted() {
    let folder = Folder::new();
    let error = refusal(&folder, &["--model", "llama-3.1-70b", "--gpu", "h100-sxm"]);
    assert!(error.contains("`model` is llama-3.1-70b, expected a model that fits"), "{error}");
    let blocks = "engine.vllm.num_gpu_blocks=40000";
    let error = refusal(&folder, &["--set", blocks]);
    assert!(error.contains("`engine.vllm.num_gpu_blocks` is 40000, expected at most"), "{error}");
    let report =
        replayed(&folder, &["--set", blocks, "--set", "engine.vllm.allow_overcommit=true"]);
    assert_eq!(report["engines"][0]["kv"]["capacity_blocks"], 39_999);
}

#[test]
fn the_pool_may_be_given_in_tokens_or_by_a_log() {
    let folder = Folder::new();
    let log = "INFO 01-21 10:49:49 [kv_cache_utils.py:1087] GPU KV cache size: 119,008 tokens\n";
    let log = folder.write("server.log", log);
    for pool in ["engine.vllm.kv_cache_tokens=119008", &format!("engine.vllm.kv_cache_log={log}")] {
        let report = replayed(&folder, &["--set", pool]);
        // 119,008 / 16 blocks, one of which is never usable.
        assert_eq!(report["engines"][0]["kv"]["capacity_blocks"], 7437, "{pool}");
        let error = refusal(&folder, &["--set", pool, "--set", "engine.vllm.num_gpu_blocks=9"]);
        assert!(error.contains("given beside num_gpu_blocks, expected one of the two"), "{error}");
    }
    let empty = folder.write("empty.log", "INFO: nothing\n");
    let error = refusal(&folder, &["--set", &format!("engine.vllm.kv_cache_log={empty}")]);
    assert!(
        error.contains("`engine.vllm.kv_cache_log` is") && error.contains("empty.log"),
        "{error}"
    );
}

#[test]
fn names_that_nobody_has_come_with_the_nearest() {
    let folder = Folder::new();
    for (args, expected) in [
        (["--model", "lama-3.1-8b", "--gpu", "h100-sxm"], "llama-3.1-8b"),
        (["--model", "llama-3.1-8b", "--gpu", "h100-smx"], "h100-sxm"),
    ] {
        let error = refusal(&folder, &args);
        assert!(error.contains(&format!("did you mean `{expected}`?")), "{error}");
    }
    // One name is not enough for a price.
    let error = refusal(&folder, &["--model", "llama-3.1-8b"]);
    assert!(
        error.contains("`accelerator` is absent, expected one of `servesim presets`"),
        "{error}"
    );
}

#[test]
fn evidence_has_a_file_with_what_was_asked_furthest_outside() {
    let folder = Folder::new();
    let rows = "kind,prefill_requests,prefill_tokens,prefill_past_tokens,decode_requests,decode_kv_tokens,latency_ms\n\
                prefill,1,10,0,0,0,5\nprefill,1,20,0,0,0,6\ndecode,0,0,0,1,10,2\ndecode,0,0,0,1,20,3\n";
    let table = folder.write("table.csv", rows);
    let path = folder.text("evidence.json");
    let report =
        replayed(&folder, &["--set", &format!("timing.table.path={table}"), "--evidence", &path]);
    let warning = warning(&report, "mostly_extrapolated");
    assert!(warning["percent"].as_u64().unwrap() > 50);
    let evidence: Value = serde_json::from_str(&folder.read("evidence.json")).unwrap();
    assert_eq!(evidence["schema"], "servesim.evidence/1");
    assert_eq!(evidence["evidence"], report["timing"]["evidence"]);
    let outliers = evidence["outliers"].as_array().unwrap();
    let stretches: Vec<f64> = outliers.iter().map(|o| o["stretch"].as_f64().unwrap()).collect();
    assert!(stretches.len() > 2 && stretches.is_sorted_by(|a, b| a >= b), "{stretches:?}");
    assert_eq!(outliers[0]["origin"], json!("extrapolated"));
}

#[test]
fn evidence_counts_every_answer() {
    let folder = Folder::new();
    let report = replayed(&folder, &["--set", "timing.fixed={prefill_ms: 7, decode_ms: 3}"]);
    let evidence = &report["timing"]["evidence"];
    let passes = |kind: &str| report["passes"][kind]["count"].as_u64().unwrap();
    let answers = |kind: &str, part: &str| &evidence[kind][part]["analytic"];
    let count = |kind, part| answers(kind, part)["count"].as_u64().unwrap_or(0);
    assert_eq!(count("prefill_only", "prefill"), passes("prefill_only"));
    assert_eq!(count("decode_only", "decode"), passes("decode_only"));
    assert_eq!(count("mixed", "prefill"), passes("mixed"));
    let decode_ms = answers("decode_only", "decode")["ms"].as_f64();
    assert_eq!(decode_ms, Some(3.0 * passes("decode_only") as f64));
    assert_eq!(evidence["shares"]["analytic"], 1.0);
    assert_eq!(report["timing"]["mixed_passes"]["two_passes"], passes("mixed"));
}
