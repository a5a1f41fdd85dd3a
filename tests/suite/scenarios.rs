//! Does everything we ship run, and every trace we know of to its end?

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::PathBuf;

use flate2::read::MultiGzDecoder;
use serde_json::Value;

use crate::support::{Folder, lines_of, repository, servesim, shared, simulate_trace};

#[test]
fn every_shipped_scenario_runs_from_any_folder() {
    let mut scenarios = 0;
    for entry in fs::read_dir(repository("scenarios")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            // Cases of measured deployments, whose requests lie elsewhere.
            continue;
        }
        // Relative paths in a scenario count from its own folder.
        let folder = Folder::new();
        let out = folder.text("out");
        let args = ["run", path.to_str().unwrap(), "--quiet", "--out", &out];
        let ran = servesim(args);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", path.display());
        let report: Value = serde_json::from_str(&folder.read("out/report.json")).unwrap();
        let requests = &report["requests"];
        assert!(requests["input"].as_u64() > Some(0), "{}", path.display());
        assert_eq!(requests["completed"], requests["input"], "{}", path.display());
        assert_eq!(report["warnings"], serde_json::json!([]), "{}", path.display());
        scenarios += 1;
    }
    assert!(scenarios > 0);
}

#[test]
fn the_quick_start_serves_every_row_of_its_trace() {
    let path = repository("scenarios/quickstart.yaml");
    let ran = servesim(["run", path.to_str().unwrap(), "--format", "json"]);
    let rows = fs::read_to_string(repository("traces/quickstart.jsonl")).unwrap().lines().count();
    assert_eq!(ran.report()["requests"]["completed"], rows);
}

/// Replays a real trace with defaults: every row of the file is a row of the requests, by its line.
fn replays_whole(name: &str, requests: usize, lines_before: u64) {
    let Some(path) = shared(&format!("traces/{name}")) else { return };
    // Some prompts of the synthetic trace are longer than what the default model can.
    let run = simulate_trace(&path, &["timing.preset=mocker"]);
    let mut lines: Vec<u64> = run.rows.iter().map(|row| row["line"].as_u64().unwrap()).collect();
    lines.sort_unstable();
    let expected: Vec<u64> = (1..=requests as u64).map(|row| lines_before + row).collect();
    assert_eq!(lines, expected);
    let count = |what: &str| run.count(&format!("/requests/{what}"));
    assert_eq!(count("input"), requests as u64);
    assert_eq!(count("completed") + count("rejected/total") + count("unfinished"), count("input"));
    // The longest prompt of any of them fits the default pool, so that nobody is turned away.
    assert_eq!(count("completed"), requests as u64);
    assert_eq!(run.count("/workload/rows/rows_read"), requests as u64);
    // No prompt is lost on the way either.
    let prompts: u64 = run.rows.iter().map(|row| row["prompt_tokens"].as_u64().unwrap()).sum();
    let outputs: u64 = run.rows.iter().map(|row| row["output_tokens"].as_u64().unwrap()).sum();
    assert_eq!((prompts, outputs), (run.count("/tokens/prompt"), run.count("/tokens/output")));
}

#[test]
fn the_mooncake_conversation_trace_replays_whole() {
    replays_whole("mooncake-fast25/conversation_trace.jsonl.gz", 12_031, 0);
}

#[test]
fn the_mooncake_synthetic_trace_replays_whole() {
    replays_whole("mooncake-fast25/synthetic_trace.jsonl", 3_993, 0);
}

#[test]
fn the_azure_code_trace_replays_whole() {
    replays_whole("azure-llm-2023/AzureLLMInferenceTrace_code.csv", 8_819, 1);
}

#[test]
fn the_azure_conversation_trace_replays_whole() {
    replays_whole("azure-llm-2023/AzureLLMInferenceTrace_conv.csv", 19_366, 1);
}

/// Prompt tokens that an unlimited cache finds: requests in the order of their rows, each hitting the
/// longest run of 16-token blocks that any earlier prompt had, up to its last token.
///
/// An id names 512 tokens and all before them, so 32 blocks; the last one may be shorter, and only one
/// of the same length is known to be the same. Prompts are paths in a tree of (id, tokens).
fn tokens_hit_without_eviction(trace: &str) -> (u64, u64) {
    let mut tree: BTreeMap<(u64, u64, u64), u64> = BTreeMap::new();
    let [mut hit, mut all] = [0, 0];
    for line in trace.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let prompt = row["input_length"].as_u64().unwrap();
        let ids: Vec<u64> = serde_json::from_value(row["hash_ids"].clone()).unwrap();
        let [mut node, mut blocks, mut left] = [0, 0, prompt];
        let mut known = true;
        for id in ids {
            let tokens = left.min(512);
            left -= tokens;
            let next = tree.len() as u64 + 1;
            let child = *tree.entry((node, id, tokens)).or_insert(next);
            known &= child != next;
            blocks += if known { tokens / 16 } else { 0 };
            node = child;
        }
        hit += 16 * blocks.min((prompt - 1) / 16);
        all += prompt;
    }
    (hit, all)
}

#[test]
fn the_expected_hits_follow_from_the_rule() {
    let row =
        |tokens: u64, ids: &str| format!("{{\"input_length\": {tokens}, \"hash_ids\": {ids}}}\n");
    let hits = |rows: &[String]| tokens_hit_without_eviction(&rows.concat());
    assert_eq!(hits(&[row(512, "[1]"), row(512, "[1]")]), (496, 1024));
    assert_eq!(hits(&[row(513, "[1, 2]"), row(513, "[1, 2]")]), (512, 1026));
    assert_eq!(hits(&[row(600, "[1, 2]"), row(700, "[1, 2]")]), (512, 1300));
    assert_eq!(hits(&[row(1024, "[1, 2]"), row(1024, "[3, 2]")]), (0, 2048));
}

/// The conversation trace, if it is at hand: its path and its text.
fn conversation() -> Option<(PathBuf, String)> {
    let path = shared("traces/mooncake-fast25/conversation_trace.jsonl.gz")?;
    let mut text = String::new();
    MultiGzDecoder::new(fs::File::open(&path).unwrap()).read_to_string(&mut text).unwrap();
    Some((path, text))
}

/// The published figure: an unlimited cache finds 37.4 % of the conversation trace's prompt tokens.
///
/// With a pool in which nothing is ever evicted or preempted, our hits are exactly those of the prefix
/// set, at any load. A block can be hit from the call that schedules its tokens (R41), and requests are
/// first admitted in order of arrival. If a prompt is only begun, the budget of that call is spent, and
/// later calls serve it before anybody waits (R11, R12): so whoever is admitted finds all prompts before
/// it scheduled to their end. Outputs are never part of a later prompt, since no id names them.
#[test]
fn an_unlimited_cache_finds_the_published_share() {
    let Some((path, text)) = conversation() else { return };
    let (hit, all) = tokens_hit_without_eviction(&text);
    // Without any sharing it is 9.06 million blocks of prompts, of which hits need none, and 0.26
    // million of outputs, each with a partial one: seven million hold them all.
    let pool = [
        "engine.vllm.num_gpu_blocks=7000000",
        "timing.preset=mocker",
        "engine.vllm.max_model_len=200000",
    ];
    let run = simulate_trace(&path, &[&pool[..], &["workload.trace.ties=file"]].concat());
    assert_eq!(run.count("/tokens/prompt"), all);
    assert_eq!(run.count("/preemptions/total"), 0);
    assert_eq!(run.count("/tokens/cached"), hit);
    let ratio = run.float("/prefix_cache/hit_ratio");
    assert!((ratio - 0.374).abs() < 0.0005, "{ratio}");
    assert!((ratio - hit as f64 / all as f64).abs() < 1e-12, "{ratio}");
}

/// A pool of 20,000 blocks holds 0.3 million tokens of the 25 million of the first 2,000 prompts: it
/// finds something, and less than an unlimited one.
#[test]
fn a_limited_cache_finds_less() {
    let Some((path, text)) = conversation() else { return };
    let first = lines_of(text.lines().take(2000));
    let (hit, all) = tokens_hit_without_eviction(&first);
    let run = simulate_trace(
        &path,
        &[
            "timing.preset=mocker",
            "engine.vllm.num_gpu_blocks=20000",
            "engine.vllm.max_model_len=200000",
            "workload.trace.limit=2000",
            "workload.trace.ties=file",
        ],
    );
    assert_eq!(run.count("/tokens/prompt"), all);
    let found = run.count("/tokens/cached");
    assert!(0 < found && found < hit, "{found} of {hit}");
}
