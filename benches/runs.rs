//! What a run costs: per pass and per request, for loads that stress one thing each.
//!
//! `cargo bench` prints a table: the median of several runs, their spread, and the median divided
//! by passes and by requests. `cargo bench -- WORDS` runs the cases whose names hold one of the
//! words. Without `--bench`, as under `cargo test --benches`, every case runs once and small.
//!
//! Times are of the simulation in this process, with the trace parsed where there is one.

#![expect(clippy::print_stdout, reason = "a bench prints its table")]
#![expect(clippy::disallowed_types, reason = "a bench measures on the wall")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use servesim::{Assignment, Extras, Scenario, simulate};

/// Runs of a case; the first is not counted.
const RUNS: usize = 7;

/// A run to be measured.
struct Case {
    group: &'static str,
    name: String,
    scenario: Scenario,
    stepwise: bool,
}

/// A scenario from defaults and assignments. Passes are priced by polynomials unless these say otherwise.
fn scenario(base: &Scenario, assignments: &[&str]) -> Scenario {
    let assignments: Vec<_> = ["timing.preset=mocker"]
        .iter()
        .chain(assignments)
        .map(|text| Assignment::parse(text).expect("written here"))
        .collect();
    base.with(&assignments).and_then(|s| Ok(s.resolve(Path::new(""))?)).expect("written here")
}

/// Requests of `prompt` and `output` tokens in a closed loop, on an engine with room for all.
fn closed_loop(requests: u64, prompt: u64, output: u64, users: u64, more: &[&str]) -> Scenario {
    let load = format!(
        "workload={{synthetic: {{requests: {requests}, prompt_tokens: {{fixed: {prompt}}}, \
         output_tokens: {{fixed: {output}}}, arrivals: {{closed_loop: {{concurrency: {users}}}}}}}}}"
    );
    let mut assignments = vec![
        load.as_str(),
        "engine.vllm.num_gpu_blocks=4000000",
        "engine.vllm.max_model_len=140000",
        "engine.vllm.enable_prefix_caching=false",
    ];
    assignments.extend(more);
    scenario(&Scenario::default(), &assignments)
}

fn cases(small: bool, trace: &Path) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |group, name: String, scenario, stepwise| {
        cases.push(Case { group, name, scenario, stepwise });
    };
    let scale = |number: u64| if small { number.div_ceil(50) } else { number };
    let closed = "closed loop, prompt/output @ users";
    for (requests, prompt, output, users) in [
        (10, 1024, 1024, 1),
        (640, 8192, 1024, 64),
        (2560, 1024, 1024, 256),
        (4096, 1024, 1024, 1024),
    ] {
        let load = closed_loop(scale(requests), prompt, output, users, &[]);
        add(closed, format!("{prompt}/{output} @ {users}"), load, false);
    }
    let reference = closed_loop(scale(2560), 1024, 1024, 256, &[]);
    add(closed, "1024/1024 @ 256, request by request".to_owned(), reference, true);
    let caching = [
        "engine.vllm.enable_prefix_caching=true",
        "engine.vllm.num_gpu_blocks=100000",
        "engine.vllm.max_model_len=8192",
    ];
    let cached = closed_loop(scale(2560), 1024, 1024, 256, &caching);
    add(closed, "1024/1024 @ 256, prefix caching".to_owned(), cached, false);

    // One round of users, so that nearly all passes only decode.
    for users in [32, 256, 1024] {
        let room = ["engine.vllm.num_gpu_blocks=36000000", "engine.vllm.max_model_len=600000"];
        let load = closed_loop(users, 16, scale(524_288), users, &room);
        add("decode-only passes, batch", format!("{users}"), load, false);
    }

    // The same load under other timing.
    let room = ["engine.vllm.num_gpu_blocks=36000000", "engine.vllm.max_model_len=600000"];
    for (name, timing) in [
        ("polynomial", "timing.preset=mocker"),
        ("fixed", "timing.fixed.decode_ms=8"),
        ("roofline", "timing.roofline={}"),
    ] {
        let deployment = [
            timing,
            "model=llama-3.1-8b",
            "accelerator=h100-sxm",
            "engine.vllm.allow_overcommit=true",
            "engine.vllm.allow_long_max_model_len=true",
        ];
        let all = [&room[..], &deployment].concat();
        let load = closed_loop(256, 16, scale(524_288), 256, &all);
        add("decode-only passes @ 256, timing by", name.to_owned(), load, false);
    }

    for (name, more) in speculation() {
        let load = closed_loop(scale(2560), 1024, 1024, 256, &more);
        add("rounds, 1024/1024 @ 256", name.to_owned(), load, false);
    }

    let growing = [1000, 10_000, 100_000, 1_000_000];
    for requests in growing {
        let load = closed_loop(scale(requests), 1024, 256, 256, &[]);
        add("growth, 1024/256 @ 256", format!("{requests} requests"), load, false);
    }
    let long = closed_loop(scale(100_000), 1024, 4096, 256, &[]);
    add("growth, 1024/256 @ 256", "100000 requests, output 4096".to_owned(), long, false);

    let long_prompts = closed_loop(scale(200), 100_000, 64, 8, &[]);
    add("other", "long prefill, 100000/64 @ 8".to_owned(), long_prompts, false);
    // 256 requests of up to 2,048 tokens want 32,768 blocks of 16.
    let tight = [
        "engine.vllm.num_gpu_blocks=20000",
        "engine.vllm.max_model_len=8192",
        "engine.vllm.scheduler_reserve_full_isl=true",
    ];
    let pressure = closed_loop(scale(2560), 1024, 1024, 256, &tight);
    add("other", "KV pressure, 1024/1024 @ 256".to_owned(), pressure, false);
    for engines in [1, 512] {
        let many = format!("cluster.engines={engines}");
        let rate = format!(
            "workload={{synthetic: {{requests: {}, prompt_tokens: {{fixed: 256}}, output_tokens: \
             {{fixed: 64}}, arrivals: {{constant: {{requests_per_s: {}}}}}}}}}",
            scale(102_400),
            engines * 4
        );
        let assignments = [rate.as_str(), &many, "engine.vllm.enable_prefix_caching=false"];
        let load = scenario(&Scenario::default(), &assignments);
        add("other", format!("{engines} engines, 4 requests/s each"), load, false);
    }
    for (name, scenario) in both_families(small, trace) {
        add("vLLM beside SGLang", name, scenario, false);
    }
    for (block_size, blocks) in [(16, 32_768), (64, 8192), (512, 1024)] {
        let assignments = [
            format!("engine.vllm.block_size={block_size}"),
            format!("engine.vllm.num_gpu_blocks={blocks}"),
        ];
        let assignments: Vec<_> = assignments.iter().map(String::as_str).collect();
        let load = scenario(&Scenario::replay(trace), &assignments);
        add(
            "shared prefixes, 12000 prompts of 12000 tokens",
            format!("blocks of {block_size}"),
            load,
            false,
        );
    }
    cases
}

/// No speculation, rounds that always accept two drafts of four, and rounds that do so on average.
fn speculation() -> [(&'static str, Vec<&'static str>); 3] {
    let drafts = "engine.vllm.speculative_config={method: eagle, num_speculative_tokens: 4}";
    let chance = "speculation.acceptance={conditional_rates: [0.8, 0.7, 0.6, 0.6]}";
    [
        ("no speculation", Vec::new()),
        ("2 of 4 drafts", vec![drafts, "speculation.acceptance={accepted_drafts_mean: 2}"]),
        ("4 drafts, by chance", vec![drafts, chance]),
    ]
}

/// The same loads under both families, in pools that hold them.
fn both_families(small: bool, trace: &Path) -> Vec<(String, Scenario)> {
    let scale = |number: u64| if small { number.div_ceil(50) } else { number };
    let mut all = Vec::new();
    for (name, engine) in [
        ("vLLM, blocks of 16", "{vllm: {num_gpu_blocks: 2500000, max_model_len: 600000}}"),
        (
            "SGLang, pages of 16",
            "{sglang: {page_size: 16, max_total_tokens: 40000000, context_length: 600000}}",
        ),
        ("SGLang, pages of 1", "{sglang: {max_total_tokens: 40000000, context_length: 600000}}"),
    ] {
        let engine = format!("engine={engine}");
        for (what, requests, prompt, output) in [
            ("1024/256 @ 256", scale(20_000), 1024, 256),
            ("decode-only @ 256", 256, 16, scale(131_072)),
        ] {
            let load = format!(
                "workload={{synthetic: {{requests: {requests}, prompt_tokens: {{fixed: {prompt}}}, \
                 output_tokens: {{fixed: {output}}}, arrivals: {{closed_loop: {{concurrency: 256}}}}}}}}"
            );
            let load = scenario(&Scenario::default(), &[load.as_str(), &engine]);
            all.push((format!("{what}, {name}"), load));
        }
        let prompts = scenario(&Scenario::replay(trace), &[&engine]);
        all.push((format!("shared prefixes, {name}"), prompts));
    }
    all
}

/// A trace like a public one of a chat service: 12,000 requests in an hour, 24 blocks of 512
/// tokens each on average, which continue one of a few hundred openings.
fn write_trace(path: &Path, requests: u64) {
    let mut text = String::new();
    let mut state = 1_u64;
    let mut draw = |below: u64| {
        // A linear congruential generator is random enough for a load.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut next_id = 100_000;
    for request in 0..requests {
        let shared = draw(2) * (1 + draw(24));
        let opening = draw(300) * 24;
        let own = 1 + draw(26);
        let ids = (opening..opening + shared).chain(next_id..next_id + own);
        next_id += own;
        let ids: Vec<_> = ids.map(|id| id.to_string()).collect();
        let tokens = ids.len() as u64 * 512 - draw(512);
        let _ = writeln!(
            text,
            "{{\"timestamp\": {}, \"input_length\": {tokens}, \"output_length\": {}, \"hash_ids\": [{}]}}",
            request * 300,
            1 + draw(700),
            ids.join(", ")
        );
    }
    std::fs::write(path, text).expect("the temporary folder can be written to");
}

/// One run: how long it took, and how many passes and requests it had.
fn measure(case: &Case) -> (Duration, f64, f64) {
    let extras = Extras { stepwise: case.stepwise, ..Extras::default() };
    let started = Instant::now();
    let report = simulate(&case.scenario, &extras, &mut ()).expect("the load can be simulated");
    let took = started.elapsed();
    let mut json = Vec::new();
    report.report.write_json(&mut json).expect("memory can be written to");
    let json: Value = serde_json::from_slice(&json).expect("a report is JSON");
    let number = |path: &str| json.pointer(path).and_then(Value::as_f64).expect("it is there");
    (took, number("/host/passes"), number("/requests/input"))
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let benching = arguments.iter().any(|argument| argument == "--bench");
    let words: Vec<_> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let folder = tempfile::tempdir().expect("there is a temporary folder");
    let trace: PathBuf = folder.path().join("trace.jsonl");
    write_trace(&trace, if benching { 12_000 } else { 100 });

    let mut group = "";
    for case in cases(!benching, &trace) {
        let title = format!("{} {}", case.group, case.name);
        if !words.is_empty() && !words.iter().any(|word| title.contains(word.as_str())) {
            continue;
        }
        if case.group != group {
            group = case.group;
            println!("\n{group}");
            println!(
                "{:40} {:>10} {:>12} {:>9} {:>19} {:>8} {:>10}",
                "", "requests", "passes", "median", "min..max (ms)", "ns/pass", "us/request"
            );
        }
        let runs = if benching { RUNS } else { 1 };
        let mut times = Vec::new();
        let (mut passes, mut requests) = (0.0, 0.0);
        for _ in 0..runs {
            let (took, p, r) = measure(&case);
            times.push(took.as_secs_f64() * 1e3);
            (passes, requests) = (p, r);
        }
        // The first run warms up.
        let mut counted = if benching { times.split_off(1) } else { times };
        counted.sort_by(f64::total_cmp);
        let median = counted[counted.len() / 2];
        println!(
            "{:40} {requests:>10} {passes:>12} {median:>9.2} {:>9.2}..{:<8.2} {:>8.1} {:>10.3}",
            case.name,
            counted[0],
            counted[counted.len() - 1],
            median * 1e6 / passes,
            median * 1e3 / requests,
        );
    }
}
