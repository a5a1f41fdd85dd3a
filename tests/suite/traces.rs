//! Does `servesim trace` say what is in a trace, and write what reads back the same?

use crate::support::{Folder, repository, servesim, shared};

/// A good row of a trace.
const GOOD: &str = "{\"timestamp\": 0, \"input_length\": 10, \"output_length\": 5}\n";

#[test]
fn a_trace_that_is_written_runs_as_the_one_that_was_read() {
    let folder = Folder::new();
    let path = repository("traces/quickstart.jsonl").display().to_string();
    let digest = |path: &str, set: &str| {
        let args = ["replay", path, "--format", "json", "--set", set];
        servesim(args).report()["digest"].clone()
    };
    let expected = digest(&path, "workload.trace.ties=content");
    assert!(!expected.is_null());
    for (name, to, set) in [
        ("t.csv", "servesim", "workload.trace.ties=content"),
        ("t.jsonl.gz", "servesim", "workload.trace.ties=content"),
        ("m.jsonl", "mooncake", "workload.trace.ties=file"),
    ] {
        let out = folder.text(name);
        let ran = servesim(["trace", "convert", &path, &out, "--to", to]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(ran.stderr.starts_with("servesim: 2081 requests written"), "{}", ran.stderr);
        assert_eq!(digest(&out, set), expected, "{name}");
    }
    // Ids of 512 tokens are ids of 16 tokens as well, 32 times as many.
    let out = folder.text("small.jsonl");
    let ran =
        servesim(["trace", "convert", &path, &out, "--to", "mooncake", "--block-tokens", "16"]);
    assert!(ran.stderr.ends_with("ties=file --set workload.trace.hash_block_tokens=16\n"));
    let args = ["replay", &out, "--format", "json", "--set", "workload.trace.ties=file"];
    let args = args.into_iter().chain(["--set", "workload.trace.hash_block_tokens=16"]);
    assert_eq!(servesim(args).report()["digest"], expected);
}

#[test]
fn validation_tells_every_problem_and_exits_with_two() {
    let folder = Folder::new();
    let path = folder.write("t.jsonl", format!("{GOOD}[]\n{GOOD}{{}}\n"));
    let ran = servesim(["trace", "validate", &path]);
    assert_eq!(ran.code, Some(2));
    let lines: Vec<_> = ran.stdout.lines().collect();
    assert!(lines[0].ends_with("t.jsonl:2:1: malformed JSON: expected an object"), "{lines:?}");
    assert!(lines[1].contains("t.jsonl:4: `timestamp` is missing"), "{lines:?}");
    assert_eq!(lines[2..], ["2 rows, 2 problems"]);
    let ran = servesim(["trace", "validate", &path, "--limit", "1"]);
    assert!(ran.stdout.ends_with("1 row, 1 problem; not read to the end\n"), "{}", ran.stdout);
    let path = folder.write("good.jsonl", GOOD);
    let ran = servesim(["trace", "validate", &path]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "1 row, 0 problems\n"));
}

#[test]
fn statistics_are_there_for_people_and_programs() {
    let folder = Folder::new();
    let row = |ms: u32| {
        format!(
            "{{\"timestamp\": {ms}, \"input_length\": 8, \"output_length\": 2, \"hash_ids\": [1]}}\n"
        )
    };
    let path = folder.write("t.jsonl", row(0) + &row(1000) + &row(2000));
    let args = ["trace", "stats", &path, "--format", "json", "--cache-tokens", "8"];
    let args = args.into_iter().chain(["--set", "workload.trace.hash_block_tokens=8"]);
    let report = servesim(args).report();
    assert_eq!(report["schema"], "servesim.trace_stats/1");
    let stats = &report["stats"];
    assert_eq!((&stats["requests"], &stats["span_s"]), (&3.into(), &2.0.into()));
    assert_eq!(stats["requests_per_s"], 1.0);
    assert_eq!(stats["interarrival_cv"], 0.0);
    // Two of three prompts of eight tokens were there before.
    assert_eq!(stats["prefix"]["ideal_hit_ratio"], 16.0 / 24.0);
    assert_eq!(stats["prefix"]["caches"][0]["hit_ratio"], 16.0 / 24.0);
    let table = servesim(["trace", "stats", &path, "--trace-format", "mooncake"]).stdout;
    assert!(table.contains("requests                3\n"), "{table}");
    let head = servesim(["trace", "head", &path, "-n", "2"]).stdout;
    assert_eq!(head.lines().count(), 3);
    assert!(head.lines().last().unwrap().ends_with("1~8"), "{head}");
}

/// A document of one session of two turns and a subagent between them.
const SESSION: &str = r#"{
  "id": "a", "block_size": 64, "hash_id_scope": "local",
  "requests": [
    {"t": 0, "type": "n", "in": 130, "out": 5, "hash_ids": [1, 2], "api_time": 1},
    {"t": 2, "type": "subagent", "requests": [
      {"t": 0, "type": "n", "in": 70, "out": 5, "hash_ids": [9], "api_time": 1}
    ]},
    {"t": 9, "type": "s", "in": 200, "out": 5, "hash_ids": [1, 2, 3], "think_time": 8}
  ]
}"#;

#[test]
fn conversations_say_what_a_replay_of_them_needs() {
    let folder = Folder::new();
    let path = folder.write("trace_0001.json", SESSION);
    let ran = servesim(["replay", &path]);
    assert_eq!(ran.code, Some(2));
    let expected = "`workload.trace.sessions` is absent, expected `closed` (`--sessions closed:8`)";
    assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    let ran = servesim(["replay", &path, "--sessions", "think"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("trace_0001.json:4: a session begins without"), "{}", ran.stderr);
    let ran = servesim(["trace", "validate", &path]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "3 rows, 0 problems\n"));
    for further in [
        &["--sessions", "closed:1"][..],
        &[
            "--sessions",
            "think",
            "--set",
            "workload.trace.reshape.arrivals={poisson: {requests_per_s: 1}}",
        ],
    ] {
        let args = ["replay", &path, "--format", "json"];
        let args = args.iter().chain(further);
        let report = servesim(args).report();
        assert_eq!(report["requests"]["completed"], 3, "{report:#}");
    }
    let report = servesim(["trace", "stats", &path, "--format", "json"]).report();
    let sessions = &report["stats"]["sessions"];
    assert_eq!((&sessions["sessions"], &sessions["followers"]), (&1.into(), &2.into()));
    // The subagent begins 1 s after the first answer; the last waits for both, 6 s after its end.
    assert_eq!(
        (&sessions["pause_s"]["min"], &sessions["pause_s"]["max"]),
        (&1.0.into(), &6.0.into())
    );
    let table = servesim(["trace", "stats", &path]).stdout;
    assert!(table.contains("\nsessions                1\n"), "{table}");
}

#[test]
fn the_shared_conversations_replay_to_the_end() {
    let Some(path) = shared("traces/agentic-kv-cache-tester/traces_subset.jsonl.gz") else {
        return;
    };
    let path = path.display().to_string();
    let mut args = vec!["replay", &path, "--format", "json", "--sessions", "closed:8"];
    args.extend(["--limit", "400"]);
    args.extend(["--set", "engine.vllm.kv_cache_tokens=16777216"]);
    args.extend(["--set", "engine.vllm.max_model_len=1048576"]);
    // Room for the longest prompts, more than the accelerator and the model have.
    args.extend(["--set", "engine.vllm.allow_overcommit=true"]);
    args.extend(["--set", "engine.vllm.allow_long_max_model_len=true"]);
    let report = servesim(args).report();
    assert_eq!(report["requests"]["completed"], 400, "{report:#}");
}
