//! The trace of a run keeps the rules of its format, and says what the report says.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

use crate::scenario::{Assignment, Scenario};
use crate::simulate::{Extras, RunTrace, simulate};

/// Thirty requests in bursts, whose outputs do not fit into a pool of 40 blocks of 16 tokens.
fn trace(folder: &Path) -> Scenario {
    let mut rows = String::new();
    for i in 0..30 {
        let (at, prompt, output) = (i / 6 * 40 + i % 6, 20 + i * 37 % 150, 1 + i * 29 % 90);
        writeln!(
            rows,
            "{{\"timestamp\": {at}, \"input_length\": {prompt}, \"output_length\": {output}}}"
        )
        .unwrap();
    }
    std::fs::write(folder.join("t.jsonl"), rows).unwrap();
    Scenario::replay(&folder.join("t.jsonl"))
}

const COMMON: [&str; 3] = ["host.frontend_ms=0.3", "host.detokenize_ms=0.7", "cluster.engines=2"];
const TIMING: &str = "timing={fixed: {prefill_ms: 10.25, decode_ms: 4, mixed_ms: 14.5}}";

const FAMILIES: [&[&str]; 4] = [
    &[
        "engine={vllm: {num_gpu_blocks: 40, max_model_len: 300, max_num_batched_tokens: 128, max_num_seqs: 8}}",
    ],
    &[
        "engine={vllm: {num_gpu_blocks: 25, max_model_len: 300, max_num_batched_tokens: 64, max_num_seqs: 8, async_scheduling: false}}",
    ],
    &[
        "engine={sglang: {max_total_tokens: 400, context_length: 300, chunked_prefill_size: 64, schedule_conservativeness: 0.3}}",
    ],
    &[
        "engine={trtllm: {max_num_tokens: 128, enable_chunked_prefill: true, max_batch_size: 8, max_seq_len: 300, kv_cache_config: {max_tokens: 640}, \
       scheduler_config: {capacity_scheduler_policy: MAX_UTILIZATION}}}",
    ],
];

/// Runs `scenario` and gives the report, its rows, and the events of its trace.
fn drawn(
    scenario: &Scenario,
    sets: &[&str],
    window_s: (f64, Option<f64>),
    every: u32,
) -> (Value, Vec<Value>, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    let sets: Vec<Assignment> = sets.iter().map(|text| Assignment::parse(text).unwrap()).collect();
    let scenario = scenario.with(&sets).unwrap().resolve(Path::new("")).unwrap();
    let [rows, path] = ["rows.jsonl", "trace.json"].map(|name| folder.path().join(name));
    let perfetto = Some(RunTrace { path: path.clone(), window_s, every });
    let extras = Extras { requests: Some(rows.clone()), perfetto, ..Extras::default() };
    let report = simulate(&scenario, &extras, &mut ()).unwrap().put().unwrap();
    let rows = std::fs::read_to_string(rows).unwrap();
    let rows = rows.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap().clone();
    (serde_json::to_value(&report).unwrap(), rows, events)
}

/// A time of the trace, or of a row in ms, in ns.
fn ns(value: &Value, unit_ns: f64) -> u64 {
    (value.as_f64().unwrap() * unit_ns).round() as u64
}

/// The slices of each thread in ns, with their names: whole ones that nest. Counters go forward.
fn checked(events: &[Value]) -> BTreeMap<u64, Vec<(u64, u64, String)>> {
    let mut slices: BTreeMap<u64, Vec<(u64, u64, String)>> = BTreeMap::new();
    let mut counters: BTreeMap<(u64, &str), (u64, u64)> = BTreeMap::new();
    let mut named = Vec::new();
    for event in events {
        let (pid, tid) = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        assert!(pid > 0 && tid > 0, "{event}");
        let at = ns(&event["ts"], 1e3);
        let name = event["name"].as_str().unwrap();
        match event["ph"].as_str().unwrap() {
            "X" => {
                let slice = (at, at + ns(&event["dur"], 1e3), name.to_owned());
                slices.entry(tid).or_default().push(slice);
            }
            "C" => {
                let value = event["args"]["value"].as_u64().unwrap();
                if let Some((last, level)) = counters.insert((pid, name), (at, value)) {
                    assert!(last <= at && level != value, "{event}");
                }
            }
            "M" => {
                assert!(event["args"]["name"].is_string(), "{event}");
                if name == "thread_name" {
                    named.push(tid);
                }
            }
            "i" => assert_eq!(event["s"], "t"),
            other => panic!("no phase {other} is expected"),
        }
    }
    for (tid, slices) in &mut slices {
        assert!(named.contains(tid), "thread {tid} has no name");
        // Longer ones first, so that what lies inside comes behind.
        slices.sort_by_key(|&(start, end, _)| (start, std::cmp::Reverse(end)));
        let mut open: Vec<u64> = Vec::new();
        for (start, end, name) in slices {
            open.retain(|&outer| outer > *start);
            assert!(open.iter().all(|&outer| outer >= *end), "{name} overlaps on {tid}");
            open.push(*end);
        }
    }
    slices
}

/// The first thread of a request, with two engines.
const REQUESTS: u64 = 4;

#[test]
fn slices_of_a_request_last_as_long_as_it_does() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = trace(folder.path());
    let mut seen = BTreeMap::<String, u32>::new();
    for family in FAMILIES {
        let sets = [&COMMON[..], family, &[TIMING]].concat();
        let (report, rows, events) = drawn(&scenario, &sets, (0.0, None), 1);
        let slices = checked(&events);
        let mut finished = 0;
        for row in rows.iter().filter(|row| row["status"] == "completed") {
            let slices = &slices[&(REQUESTS + row["id"].as_u64().unwrap())];
            let parts = slices.iter().filter(|(_, _, name)| name != "chunk");
            let total: u64 = parts.map(|(start, end, _)| end - start).sum();
            assert_eq!(total, ns(&row["e2e_ms"], 1e6), "{row}");
            assert_eq!(slices[0].0, ns(&row["arrival_ms"], 1e6), "{row}");
            if row["preemptions"] == 0 {
                let is_before = |name: &str| matches!(name, "queued" | "prefill");
                let before = slices.iter().filter(|(_, _, name)| is_before(name));
                let ttft: u64 = before.map(|(start, end, _)| end - start).sum();
                assert_eq!(ttft, ns(&row["ttft_ms"], 1e6), "{row}");
            }
            finished += 1;
            for (_, _, name) in slices {
                *seen.entry(name.clone()).or_default() += 1;
            }
        }
        assert_eq!(finished, 30, "{family:?}");
        let busy: u64 = [1, 2].iter().flat_map(|tid| &slices[tid]).map(|s| s.1 - s.0).sum();
        let engines = report["engines"].as_array().unwrap();
        let told: f64 = engines.iter().map(|engine| engine["busy_ms"].as_f64().unwrap()).sum();
        assert!((busy as f64 / 1e6 - told).abs() < 1e-6, "{busy} {told}");
    }
    for name in ["queued", "prefill", "chunk", "decode", "preempted", "recompute"] {
        assert!(seen.get(name).is_some_and(|&times| times > 5), "{name}: {seen:?}");
    }
}

#[test]
fn a_window_and_a_sample_draw_less_of_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = trace(folder.path());
    let sets = [&COMMON[..], FAMILIES[0], &[TIMING]].concat();
    let (_, _, events) = drawn(&scenario, &sets, (0.0, None), 1);
    let whole = checked(&events);
    let (_, _, events) = drawn(&scenario, &sets, (0.1, Some(0.2)), 7);
    let part = checked(&events);
    let requests: Vec<u64> = part.keys().filter(|&&tid| tid >= REQUESTS).copied().collect();
    assert!(requests.iter().all(|tid| (tid - REQUESTS).is_multiple_of(7)), "{requests:?}");
    assert!(requests.len() >= 2, "{requests:?}");
    let (from, to) = (100_000_000, 200_000_000);
    for (tid, slices) in &part {
        // What the window holds of the slices of the whole trace.
        let mut expected: Vec<_> = (whole[tid].iter())
            .map(|(start, end, name)| ((*start).max(from), (*end).min(to), name.clone()))
            .filter(|(start, end, _)| start < end)
            .collect();
        expected.sort_by_key(|&(start, end, _)| (start, std::cmp::Reverse(end)));
        assert_eq!(slices, &expected, "{tid}");
    }
    let counters: Vec<&Value> = events.iter().filter(|event| event["ph"] == "C").collect();
    assert!(counters.iter().all(|event| (100e3..200e3).contains(&event["ts"].as_f64().unwrap())));
    // What holds when it begins is shown there.
    assert!(counters.iter().filter(|event| event["ts"] == 100e3).count() >= 3);
}

#[test]
fn what_has_no_end_is_closed_at_that_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let row = |prompt| {
        format!("{{\"timestamp\": 0, \"input_length\": {prompt}, \"output_length\": 2}}\n")
    };
    let rows = [row(10), row(90), row(400)].concat();
    std::fs::write(folder.path().join("t.jsonl"), rows).unwrap();
    let scenario = Scenario::replay(&folder.path().join("t.jsonl"));
    // A prompt of 90 tokens that may not be divided never gets into a pass of 64; 400 are too many for the model.
    let engine = "engine={vllm: {num_gpu_blocks: 40, max_model_len: 100, max_num_batched_tokens: 100, \
                  max_num_scheduled_tokens: 64, enable_chunked_prefill: false, async_scheduling: false}}";
    let (_, rows, events) = drawn(&scenario, &[engine, TIMING], (0.0, None), 1);
    assert_eq!(rows.iter().filter(|row| row["status"] == "unfinished").count(), 1, "{rows:?}");
    let slices = checked(&events);
    // One engine: requests are from thread 3 on. 10.25 ms of prefill and 4 ms of decode.
    let waits = (0, 14_250_000, "queued (unfinished)".to_owned());
    assert_eq!(slices[&4], [waits]);
    assert!(!slices.contains_key(&5));
    let instant = events.iter().find(|event| event["ph"] == "i").unwrap();
    assert_eq!(instant["name"], "rejected: prompt_too_long");
    let name = events.iter().find(|event| event["tid"] == 5 && event["ph"] == "M").unwrap();
    assert_eq!(name["args"]["name"], "request 2 (line 3, 400 tokens, rejected)");
}
