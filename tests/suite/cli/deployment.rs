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
fn names_set_up_sglang_too() {
    let folder = Folder::new();
    let names = ["--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--engine", "sglang"];
    let report = replayed(&folder, &names);
    let sglang = &report["scenario"]["engine"]["sglang"];
    // 79.18 GiB: a chunk of 8192, graphs up to 256; 512 + 1.5 * 8192 + 128 + 2 * 256 + 8 * 58 = 13,904 MiB of 81,081
    // are left to everything else.
    assert_eq!(sglang["chunked_prefill_size"], 8192);
    assert_eq!(sglang["cuda_graph_max_bs_decode"], 256);
    assert_eq!(sglang["mem_fraction_static"], 0.829);
    assert_eq!(sglang["context_length"], 131_072);
    // 78.48 GiB * 0.829 less 14.957 GiB of weights are 50.10 GiB, of 8192 tokens each.
    let tokens = sglang["max_total_tokens"].as_u64().unwrap();
    assert!((410_000..411_000).contains(&tokens), "{tokens}");
    // It holds three sequences of 131,072 tokens: 1603, raised to 2048.
    assert_eq!(sglang["max_running_requests"], 2048);
    assert_eq!(report["engines"][0]["kv"]["capacity_blocks"], tokens);
    let engine = report["title"]["engine"].as_str().unwrap();
    assert_eq!(engine, "llama-3.1-8b on h100-sxm, SGLang 0.5.23 (overlap), 1 engine");
    // It is what a run without names gets, and what its report gives again.
    assert_eq!(without_host(&report), without_host(&replayed(&folder, &names[4..])));
    let path = folder.write("report.json", report.to_string());
    let again = servesim(["run", &path, "--format", "json"]).report();
    assert_eq!(without_host(&again), without_host(&report));
    // Another accelerator, and there is another pool.
    let larger = servesim(["run", &path, "--gpu", "h200-sxm", "--format", "json"]).report();
    let larger = &larger["scenario"]["engine"]["sglang"];
    assert!(larger["max_total_tokens"].as_u64() > Some(2 * tokens), "{larger}");
}

#[test]
fn the_pool_of_sglang_may_be_given_and_has_to_fit() {
    let folder = Folder::new();
    let log = "server_args=ServerArgs(page_size=16)\nmax_total_num_tokens=119010, chunked_prefill_size=8192\n";
    let log = folder.write("server.log", log);
    let log = format!("engine.sglang.kv_cache_log={log}");
    for pool in ["engine.sglang.max_total_tokens=119010", &log] {
        let report = replayed(&folder, &["--set", pool, "--set", "engine.sglang.page_size=64"]);
        // In whole pages of 64: 1859.
        assert_eq!(report["engines"][0]["kv"]["capacity_blocks"], 1859, "{pool}");
        assert_eq!(report["scenario"]["engine"]["sglang"]["max_total_tokens"], 118_976);
    }
    let given = "engine.sglang.max_total_tokens=9000";
    let error = refusal(&folder, &["--set", &log, "--set", given]);
    assert!(
        error.contains("`engine.sglang.kv_cache_log` is given beside max_total_tokens"),
        "{error}"
    );
    let pool = "engine.sglang.max_total_tokens=600000";
    let error = refusal(&folder, &["--set", pool]);
    assert!(
        error.contains("`engine.sglang.max_total_tokens` is 600000, expected at most what fits"),
        "{error}"
    );
    let wanted = ["--set", pool, "--set", "engine.sglang.allow_overcommit=true"];
    assert_eq!(replayed(&folder, &wanted)["engines"][0]["kv"]["capacity_blocks"], 600_000);
    let error =
        refusal(&folder, &["--model", "llama-3.1-70b", "--gpu", "h100-sxm", "--engine", "sglang"]);
    assert!(
        error.contains("`model` is llama-3.1-70b, expected a model that fits with a"),
        "{error}"
    );
    for (setting, message) in [
        (
            "context_length=131073",
            "`engine.sglang.context_length` is 131073, expected at most 131072",
        ),
        (
            "page_size=48",
            "`engine.sglang.chunked_prefill_size` is 8192, expected a multiple of page_size",
        ),
        ("mem_fraction_static=0.1", "`model` is llama-3.1-8b, expected a model that fits with a"),
    ] {
        let error = refusal(&folder, &["--set", &format!("engine.sglang.{setting}")]);
        assert!(error.contains(message), "{setting}: {error}");
    }
}

/// A setting of another family switches with all of its defaults; a flag does, too, and is not contradicted.
#[test]
fn the_family_is_chosen_by_a_setting_or_a_flag() {
    let folder = Folder::new();
    folder.write("t.jsonl", trace(&requests()));
    let vllm = "workload: {trace: {path: t.jsonl}}\ntiming: {fixed: {}}\nengine: {vllm: {max_num_seqs: 7}}\n";
    let sglang = vllm.replace("vllm: {max_num_seqs: 7}", "sglang: {page_size: 16}");
    let (vllm, sglang) = (folder.write("v.yaml", vllm), folder.write("s.yaml", sglang));
    let engine = |path: &str, args: &[&str]| {
        let run = servesim([&["run", path, "--format", "json"], args].concat());
        run.report()["scenario"]["engine"].clone()
    };
    let default = engine(&vllm, &["--engine", "sglang"]);
    assert_eq!(default["sglang"]["page_size"], 1);
    assert!(default.get("vllm").is_none(), "{default}");
    assert_eq!(engine(&vllm, &["--set", "engine.sglang={}"]), default);
    // The flag is no news to a scenario of that family, and a setting goes on from it.
    assert_eq!(engine(&sglang, &["--engine", "sglang"])["sglang"]["page_size"], 16);
    assert_eq!(engine(&vllm, &["--engine", "vllm"]), engine(&vllm, &[]));
    let set = ["--engine", "sglang", "--set", "engine.sglang.schedule_policy=lpm"];
    assert_eq!(engine(&vllm, &set), engine(&vllm, &set[2..]));
    assert_eq!(engine(&vllm, &set)["sglang"]["schedule_policy"], "lpm");
    for contradiction in ["engine.vllm.block_size=32", "engine={vllm: {}}", "engine.sglang="] {
        let error = refusal(&folder, &["--engine", "sglang", "--set", contradiction]);
        let expected = "servesim: --engine sglang: expected no --set that chooses another engine\n";
        assert_eq!(error, expected, "{contradiction}");
    }
    let error = refusal(&folder, &["--engine", "sglan"]);
    assert!(
        error.contains("--engine sglan: `engine`: unknown choice `sglan`; did you mean `sglang`?"),
        "{error}"
    );
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
