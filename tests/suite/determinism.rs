//! The same bytes again?

use std::fs;
use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::Value;

use crate::support::{
    Folder, Request, Run, lines_of, repository, request, servesim, shared, simulate_synthetic,
    simulate_trace, trace, without_host,
};

/// Lines of one stamp in another order; lines of different stamps keep theirs.
fn shuffled(text: &str, seed: u64) -> String {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let stamp = |line: &str| serde_json::from_str::<Value>(line).unwrap()["timestamp"].as_u64();
    let mut lines: Vec<(Option<u64>, &str)> =
        text.lines().map(|line| (stamp(line), line)).collect();
    for instant in lines.chunk_by_mut(|a, b| a.0 == b.0) {
        for at in (1..instant.len()).rev() {
            instant.swap(at, rng.next_u32() as usize % (at + 1));
        }
    }
    lines_of(lines.into_iter().map(|(_, line)| line))
}

/// The whole report but `host`, and the rows but for the lines they came from.
fn comparable(run: Run) -> (Value, Vec<Value>) {
    let mut rows = run.rows;
    rows.iter_mut().for_each(|row| _ = row["line"].take());
    (without_host(&run.report), rows)
}

/// Replays `text`, and it again in other orders of its ties, always under the same name.
fn assert_order_of_ties_does_not_matter(
    text: &str,
    seeds: std::ops::Range<u64>,
    settings: &[&str],
) {
    let folder = Folder::new();
    let replay = |text: &str| {
        let path = folder.write("trace.jsonl", text);
        comparable(simulate_trace(Path::new(&path), settings))
    };
    let original = replay(text);
    for seed in seeds {
        let text = shuffled(text, seed);
        assert_eq!(replay(&text), original, "seed {seed}");
    }
}

/// 240 requests at 12 instants, some of them alike in everything but one field.
fn trace_with_ties() -> Vec<Request> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut draw = |max: u32| rng.next_u32() % max;
    (0..240_u64)
        .map(|at| {
            let prompt = 1 + draw(60);
            let request =
                request(at / 20 * 50, prompt, 1 + draw(12)).priority(draw(3).cast_signed());
            let family = u64::from(draw(3)) << 32;
            let parts = u64::from(draw(5));
            let ids = (0..u64::from(prompt.div_ceil(16))).map(|block| {
                if block < parts { family + block } else { family + (at << 16) + block }
            });
            if draw(4) == 0 { request } else { request.ids(ids) }
        })
        .collect()
}

const SMALL_BLOCKS: &str = "workload.trace.hash_block_tokens=16";

#[test]
fn lines_of_one_instant_may_stand_in_any_order() {
    let text = trace(&trace_with_ties());
    assert_ne!(shuffled(&text, 0), text);
    for mode in ["true", "false"] {
        for policy in ["fcfs", "priority"] {
            let mode = format!("engine.vllm.async_scheduling={mode}");
            let policy = format!("engine.vllm.scheduling_policy={policy}");
            // A tight pool, so that every decision depends on the ones before.
            let settings =
                [SMALL_BLOCKS, "engine.vllm.num_gpu_blocks=20", mode.as_str(), policy.as_str()];
            assert_order_of_ties_does_not_matter(&text, 0..5, &settings);
        }
    }
}

/// The test above could pass for want of ties: in the order of the file, order does matter.
#[test]
fn the_order_of_the_file_matters_where_it_is_asked_for() {
    let text = trace(&trace_with_ties());
    let folder = Folder::new();
    let mut digests: Vec<String> = (0..3)
        .map(|seed| {
            let path = folder.write("trace.jsonl", shuffled(&text, seed));
            let settings =
                [SMALL_BLOCKS, "engine.vllm.num_gpu_blocks=20", "workload.trace.ties=file"];
            simulate_trace(Path::new(&path), &settings).digest().to_owned()
        })
        .collect();
    digests.dedup();
    assert_eq!(digests.len(), 3);
}

#[test]
fn a_limit_or_window_between_ties_does_not_see_their_order() {
    let text = trace(&trace_with_ties());
    // The tenth request of an instant of twenty; the window ends with an instant.
    for part in [
        "workload.trace.limit=50",
        "workload.trace.window={from_s: 0.05, to_s: 0.3}",
        "workload.trace.sort_window_s=0",
    ] {
        assert_order_of_ties_does_not_matter(&text, 0..3, &[SMALL_BLOCKS, part]);
    }
}

#[test]
fn the_conversation_trace_may_be_shuffled_within_its_instants() {
    let Some(path) = shared("traces/mooncake-fast25/conversation_trace.jsonl.gz") else { return };
    let mut text = String::new();
    MultiGzDecoder::new(fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    assert_ne!(shuffled(&text, 7), text);
    assert_order_of_ties_does_not_matter(&text, 7..8, &[]);
}

/// The report as a file, without the object `host` at its end.
fn text_without_host(text: &str) -> &str {
    let at = text.find("\n  \"host\": {").expect("the report ends with the facts of its execution");
    assert_eq!(text[at..].matches("\n  \"").count(), 1, "nothing comes after them");
    &text[..at]
}

#[test]
fn two_runs_write_the_same_bytes() {
    let scenario = repository("scenarios/quickstart.yaml");
    let folder = Folder::new();
    let mut files = Vec::new();
    for name in ["a", "b"] {
        let (out, rows) = (folder.text(name), folder.text(&format!("{name}.csv.gz")));
        let scenario = scenario.to_str().unwrap();
        let ran = servesim(["run", scenario, "--quiet", "--out", &out, "--requests", &rows]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let report = folder.read(&format!("{name}/report.json"));
        files.push((text_without_host(&report).to_owned(), fs::read(rows).unwrap(), ran.stdout));
    }
    assert!(files[0] == files[1]);
}

/// Where and how a trace is stored is no part of the run: only its path and compression are named.
#[test]
fn compression_changes_no_decision() {
    let folder = Folder::new();
    let text = trace(&trace_with_ties());
    let plain = folder.write("plain.jsonl", &text);
    let packed = folder.write("packed.jsonl.gz", crate::support::gzip(&text));
    let run = |path: &str| simulate_trace(Path::new(path), &[SMALL_BLOCKS]);
    let (plain, packed) = (run(&plain), run(&packed));
    assert_eq!(plain.digest(), packed.digest());
    assert_eq!(plain.rows, packed.rows);
}

/// A load in which everything is drawn that can be.
const DRAWN: &str = "workload.synthetic={requests: 120, arrivals: {on_off: {on_requests_per_s: 9, periods: \
                     exponential}}, prompt_tokens: {lognormal: {mean: 60, std: 60, max: 400}}, \
                     output_tokens: {zipf: {max: 30}}, length_correlation: 0.5, prefixes: {groups: 3, share: 0.5, \
                     prefix_tokens: {uniform: {min: 16, max: 64}}}, max_concurrency: 6, classes: [{name: a}, \
                     {name: b, arrivals: {closed_loop: {concurrency: 2, think_s: 1, think: exponential}}}]}";

#[test]
fn the_seed_decides_what_is_drawn_and_nothing_else_does() {
    let run = |seed: &str| simulate_synthetic(&[DRAWN, seed]);
    let (first, again, other) = (run("seed=5"), run("seed=5"), run("seed=6"));
    assert_eq!(without_host(&first.report), without_host(&again.report));
    assert_eq!(first.rows, again.rows);
    assert_ne!(first.report["digest"], other.report["digest"]);
    // Where nothing is drawn the seed changes nothing.
    let plain = |seed: &str| {
        let load = "workload.synthetic={requests: 50, prompt_tokens: {fixed: 60}, output_tokens: {fixed: 5}}";
        simulate_synthetic(&[load, seed]).report["digest"].clone()
    };
    assert_eq!(plain("seed=5"), plain("seed=6"));
}
