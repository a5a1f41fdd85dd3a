//! Does a scenario work under every engine family, when nothing but the family changes?

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{
    Folder, Request, Run, lines_of, repository, request, rows_of, servesim, simulate, trace,
};

const FAMILIES: [&str; 6] = [
    "engine.vllm={}",
    "engine.sglang={}",
    "engine.sglang={disable_overlap_schedule: true, disable_radix_cache: true}",
    "engine.sglang={page_size: 16, enable_mixed_chunk: true, schedule_policy: lpm}",
    "engine.trtllm={max_num_tokens: 32768}",
    "engine.trtllm={enable_chunked_prefill: true, max_num_tokens: 1024, disable_overlap_scheduler: true, \
     scheduler_config: {capacity_scheduler_policy: MAX_UTILIZATION}}",
];

/// Six conversations of four turns, two of them with one beginning.
fn conversations() -> String {
    let mut rows = Vec::new();
    for session in 0..6_u64 {
        for turn in 0..4_u64 {
            let stamp = 500 * session + 2000 * turn;
            let prompt = 700 + 600 * turn;
            let own = (1..).map(|block| 100 * (session + 1) + block);
            let ids: Vec<u64> = std::iter::once(session / 2)
                .chain(own)
                .take(prompt.div_ceil(512) as usize)
                .collect();
            rows.push(json!({
                "timestamp": stamp, "input_length": prompt, "output_length": 20 + 5 * turn,
                "hash_ids": ids, "session_id": format!("s{session}"),
            }));
        }
    }
    lines_of(rows)
}

/// Workloads of every kind, each as settings; files are in `folder`.
fn workloads(folder: &Folder) -> Vec<Vec<String>> {
    let plain = |i: u32| {
        let prompt = 100 + 37 * i;
        request(30 * u64::from(i), prompt, 1 + i).ids((0..prompt.div_ceil(512)).map(u64::from))
    };
    let requests: Vec<Request> = (0..40).map(plain).collect();
    let plain = folder.write("plain.jsonl", trace(&requests));
    let turns = folder.write("turns.jsonl", conversations());
    let pool = repository("tests/servegen");
    let made = "workload.synthetic={requests: 60, prompt_tokens: {uniform: {min: 1, max: 3000}}, \
                output_tokens: {geometric: {mean: 30}}";
    let one = |text: String| vec![text];
    vec![
        one(format!("workload.trace.path={plain}")),
        vec![format!("workload.trace.path={plain}"), "workload.trace.max_tokens=64".to_owned()],
        vec![
            format!("workload.trace.path={turns}"),
            "workload.trace.sessions={open: {}}".to_owned(),
        ],
        vec![
            format!("workload.trace.path={turns}"),
            "workload.trace.sessions={think: {}}".to_owned(),
        ],
        vec![
            format!("workload.trace.path={turns}"),
            "workload.trace.sessions={closed: {users: 2}}".to_owned(),
        ],
        vec![
            format!("workload.trace.path={plain}"),
            "workload.trace.reshape={repeat: 2, max_concurrency: 3}".to_owned(),
        ],
        one(format!("{made}, arrivals: {{poisson: {{requests_per_s: 20}}}}}}")),
        one(format!("{made}, arrivals: {{closed_loop: {{concurrency: 8}}}}}}")),
        one(format!("{made}, sessions: {{turns: {{fixed: 3}}}}}}")),
        one(format!("workload.servegen={{path: {}, requests: 50}}", pool.display())),
    ]
}

/// Providers, each as settings; files are in `folder`.
fn providers(folder: &Folder) -> Vec<Vec<String>> {
    let rows = "kind,prefill_requests,prefill_tokens,prefill_past_tokens,decode_requests,decode_kv_tokens,latency_ms\n\
                prefill,1,10,0,0,0,5\nprefill,1,4000,0,0,0,60\ndecode,0,0,0,1,10,2\ndecode,0,0,0,64,90000,9\n";
    let table = folder.write("table.csv", rows);
    let one = |text: &str| vec![text.to_owned()];
    vec![
        one("timing.roofline={}"),
        one("timing.fixed={prefill_ms: 9, decode_ms: 4, mixed_ms: 10}"),
        one("timing.preset=mocker"),
        one(&format!("timing.table.path={table}")),
        vec![
            "timing.roofline={}".to_owned(),
            "pricing={cudagraph_padding: true, mixed: sum}".to_owned(),
            "host={per_pass_host_ms: 1, frontend_ms: 2, detokenize_ms: 0.5}".to_owned(),
        ],
    ]
}

/// The run of the command with these settings; its report is run again, and has to be the same.
fn run(folder: &Folder, settings: &[String]) -> Run {
    let rows = folder.text("rows.jsonl");
    let sets: Vec<&str> = settings.iter().flat_map(|text| ["--set", text]).collect();
    let scenario = folder.write("empty.yaml", "");
    let args = [&["run", &scenario, "--format", "json", "--requests", &rows], &sets[..]].concat();
    let report = servesim(args).report();
    let path = folder.write("report.json", report.to_string());
    let again = servesim(["run", &path, "--format", "json"]).report();
    assert_eq!(again["digest"], report["digest"], "{settings:?}");
    assert_eq!(again["scenario"], report["scenario"], "{settings:?}");
    Run { report, rows: rows_of(Path::new(&rows)) }
}

/// Prompts and outputs of a run, smallest first: they do not depend on the engine, but where arrivals follow ends their
/// numbers do.
fn lengths(run: &Run) -> Vec<[u64; 2]> {
    let of = |row: &Value, field: &str| row[field].as_u64().unwrap_or_else(|| panic!("{row}"));
    let row = |row: &Value| ["prompt_tokens", "output_tokens"].map(|field| of(row, field));
    let mut lengths: Vec<_> = run.rows.iter().map(row).collect();
    lengths.sort_unstable();
    lengths
}

fn assert_counts_add_up(run: &Run, what: &str) {
    let count = |pointer: &str| run.count(pointer);
    let input = count("/requests/input");
    assert!(input > 0, "{what}");
    assert_eq!(count("/requests/completed"), input, "{what}");
    assert_eq!(run.rows.len() as u64, input, "{what}");
    let sum = |place: usize| lengths(run).iter().map(|row| row[place]).sum::<u64>();
    assert_eq!((sum(0), sum(1)), (count("/tokens/prompt"), count("/tokens/output")), "{what}");
    let cached: u64 = run.rows.iter().map(|row| row["cached_tokens"].as_u64().unwrap()).sum();
    assert_eq!(cached, count("/tokens/cached"), "{what}");
    // Every token of a prompt is found or computed; a retracted request computes more than that.
    let prefilled: f64 = (["prefill_only", "mixed"].iter())
        .map(|kind| {
            let kind = format!("/passes/{kind}");
            let mean = run.report.pointer(&format!("{kind}/prefill_tokens_mean")).unwrap();
            mean.as_f64().unwrap_or(0.0) * count(&format!("{kind}/count")) as f64
        })
        .sum();
    let fresh = (sum(0) - cached) as f64;
    assert!(prefilled > fresh - 0.5, "{what}: {prefilled} of {fresh}");
    let retracted = count("/preemptions/total") > 0;
    assert!(retracted || prefilled < fresh + 0.5, "{what}: {prefilled} of {fresh}");
}

#[test]
fn every_workload_is_served_under_every_family() {
    let folder = Folder::new();
    for workload in workloads(&folder) {
        let runs = FAMILIES.map(|family| {
            let run = run(&folder, &[&workload[..], &[family.to_owned()]].concat());
            assert_counts_add_up(&run, &format!("{workload:?}, {family}"));
            run
        });
        for other in &runs[1..] {
            assert_eq!(lengths(other), lengths(&runs[0]), "{workload:?}");
        }
    }
}

#[test]
fn every_provider_prices_every_family() {
    let folder = Folder::new();
    let workload = &workloads(&folder)[0];
    for provider in providers(&folder) {
        for family in FAMILIES {
            let run = run(&folder, &[&workload[..], &provider[..], &[family.to_owned()]].concat());
            assert_counts_add_up(&run, &format!("{provider:?}, {family}"));
        }
    }
}

/// A prompt and four more tokens: 20 + 4 * 10 ms, and 3 ms of the host for each of the five passes unless they hide
/// behind the device.
#[test]
fn the_host_hides_behind_the_device_if_passes_overlap() {
    let settings = |family| {
        let host = "host.per_pass_host_ms=3";
        [family, host, "timing.fixed={prefill_ms: 20, decode_ms: 10}"]
    };
    for (family, ms) in [
        ("engine.vllm={}", 60),
        ("engine.vllm={async_scheduling: false}", 75),
        ("engine.sglang={}", 60),
        ("engine.sglang={disable_overlap_schedule: true}", 75),
        ("engine.trtllm={}", 60),
        ("engine.trtllm={disable_overlap_scheduler: true}", 75),
    ] {
        let run = simulate(&[request(0, 100, 5)], &settings(family));
        assert_eq!(run.us(0, "e2e_ms"), 1000 * ms, "{family}");
    }
}

fn warning<'a>(run: &'a Run, kind: &str) -> &'a Value {
    let warnings = run.report["warnings"].as_array().unwrap();
    warnings
        .iter()
        .find(|warning| warning["kind"] == kind)
        .unwrap_or_else(|| panic!("{warnings:?}"))
}

/// One may wait: of three that arrive at once, the first does, and the others are turned away (A5).
#[test]
fn a_full_queue_turns_requests_away_and_names_its_limit() {
    let requests = [request(0, 10, 5), request(0, 20, 5), request(0, 30, 5), request(900, 40, 5)];
    let run = simulate(&requests, &["engine.sglang.max_queued_requests=1", "timing.fixed={}"]);
    assert_eq!(run.count("/requests/completed"), 2);
    assert_eq!(run.report["requests"]["rejected"]["queue_full"], 2);
    let reasons: Vec<&Value> = run.rows.iter().map(|row| &row["reason"]).collect();
    assert_eq!(reasons, [&Value::Null, &json!("queue_full"), &json!("queue_full"), &Value::Null]);
    let warning = warning(&run, "rejected_requests");
    assert_eq!(warning["by_reason"], json!({"queue_full": 2}));
    assert_eq!(warning["field"], "engine.sglang.max_queued_requests");
}

/// The context is 100: 99 tokens leave it too little to answer (C3), and are refused by the engine, as is what is
/// longer than the pool; 100 by the front end.
#[test]
fn prompts_that_are_too_long_name_what_is_too_short() {
    for (settings, field) in [
        (["engine.sglang.context_length=100", "timing.fixed={}"], "engine.sglang.context_length"),
        (
            ["engine.sglang.max_total_tokens=100", "timing.preset=mocker"],
            "engine.sglang.max_total_tokens",
        ),
    ] {
        let requests = [100, 99, 94, 93].map(|prompt| request(0, prompt, 5));
        let run = simulate(&requests, &settings);
        // max_req_len is 99, so that the longest prompt has 93.
        assert_eq!(run.report["requests"]["rejected"]["prompt_too_long"], 3, "{settings:?}");
        assert_eq!(run.count("/requests/completed"), 1, "{settings:?}");
        let warning = warning(&run, "rejected_requests");
        assert_eq!(warning["field"], field, "{settings:?}");
    }
}

/// Without chunks a pass bounds a prompt (F2), with them the longest sequence does.
#[test]
fn a_prompt_that_no_pass_has_room_for_names_the_pass() {
    for (family, rejected, field) in [
        ("engine.trtllm={max_num_tokens: 64}", 2, "engine.trtllm.max_num_tokens"),
        (
            "engine.trtllm={max_num_tokens: 64, max_seq_len: 70, enable_chunked_prefill: true}",
            1,
            "engine.trtllm.max_seq_len",
        ),
    ] {
        let requests = [64, 65, 70].map(|prompt| request(0, prompt, 5));
        let run = simulate(&requests, &[family, "timing.fixed={}"]);
        assert_eq!(run.report["requests"]["rejected"]["prompt_too_long"], rejected, "{family}");
        assert_eq!(warning(&run, "rejected_requests")["field"], field, "{family}");
    }
}

#[test]
fn a_workload_without_prefixes_names_the_cache_of_the_family() {
    let requests = [request(0, 10, 5)];
    for (family, field) in [
        ("engine.vllm={}", "engine.vllm.enable_prefix_caching"),
        ("engine.sglang={}", "engine.sglang.disable_radix_cache"),
        ("engine.trtllm={}", "engine.trtllm.kv_cache_config.enable_block_reuse"),
    ] {
        let run = simulate(&requests, &[family, "timing.fixed={}"]);
        assert_eq!(warning(&run, "no_prefix_identity")["field"], field);
    }
    let off = ["engine.sglang.disable_radix_cache=true", "timing.fixed={}"];
    assert_eq!(simulate(&requests, &off).report["warnings"], json!([]));
}

/// 10 requests decode together: at 10 with a graph for each, at 12 with SGLang's graphs, at 16 with vLLM's.
#[test]
fn decodes_are_padded_to_the_graphs_of_the_family() {
    let requests: Vec<Request> = (0..10).map(|_| request(0, 10, 3)).collect();
    let decode_ms = |family: &str, padding: &str| {
        let timing = "timing.polynomial={prefill: {constant_ms: 1}, decode: {request_ms: 1}}";
        let run = simulate(&requests, &[family, padding, timing]);
        run.float("/passes/decode_only/busy_ms") / run.count("/passes/decode_only/count") as f64
    };
    let padded = "pricing.cudagraph_padding=true";
    for (family, padding, ms) in [
        ("engine.vllm={}", "pricing={}", 10.0),
        ("engine.sglang={}", "pricing={}", 10.0),
        ("engine.vllm={}", padded, 16.0),
        ("engine.sglang={}", padded, 12.0),
        ("engine.trtllm={}", padded, 10.0),
        ("engine.trtllm={cuda_graph_config: {enable_padding: true}}", padded, 16.0),
        ("engine.sglang={max_running_requests: 10}", padded, 10.0),
        ("engine.sglang={cuda_graph_max_bs_decode: 9}", padded, 10.0),
        ("engine.sglang={disable_cuda_graph: true}", padded, 10.0),
        (
            "engine.sglang={}",
            "pricing={cudagraph_padding: true, cudagraph_capture_sizes: [11]}",
            11.0,
        ),
    ] {
        let found = decode_ms(family, padding);
        assert!((found - ms).abs() < 1e-9, "{family}, {padding}: {found}");
    }
}
