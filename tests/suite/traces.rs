//! Does `servesim trace` say what is in a trace, and write what reads back the same?

use std::io::Read;
use std::process::Stdio;

use crate::support::{Folder, command, repository, servesim, shared};

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
        assert!(ran.stderr.starts_with("servesim: 2000 requests written"), "{}", ran.stderr);
        assert_eq!(digest(&out, set), expected, "{name}");
    }
    // Ids of 512 tokens are ids of 16 tokens as well, 32 times as many.
    let out = folder.text("small.jsonl");
    let ran =
        servesim(["trace", "convert", &path, &out, "--to", "mooncake", "--block-tokens", "16"]);
    assert!(
        ran.stderr.contains("ties=file --set workload.trace.hash_block_tokens=16; some follow")
    );
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

/// The digest of a run of the scenario at `path` under more `--set`.
fn run_digest(path: &str, sets: &[&str]) -> String {
    let args = ["run", path, "--format", "json"].into_iter();
    let args = args.chain(sets.iter().flat_map(|set| ["--set", *set]));
    servesim(args).report()["digest"].as_str().unwrap().to_owned()
}

#[test]
fn limits_of_rows_survive_a_conversion() {
    let folder = Folder::new();
    let path = repository("traces/quickstart.jsonl").display().to_string();
    let set = "workload.trace.max_tokens=500";
    let out = folder.text("t.csv");
    let ran = servesim(["trace", "convert", &path, &out, "--set", set, "--limit", "300"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let report =
        |args: &[&str]| servesim([&["replay"], args, &["--format", "json"]].concat()).report();
    let (first, again) = (report(&[&path, "--set", set, "--limit", "300"]), report(&[&out]));
    assert_eq!(first["digest"], again["digest"]);
    // Outputs below the limit stop by themselves.
    assert_eq!(first["requests"]["finish"], again["requests"]["finish"]);
    assert!(again["requests"]["finish"]["stop"].as_u64().unwrap() > 200, "{again:#}");
    // And they do so if other things change.
    let changed = ["--set", "workload.trace.reshape.requests_per_s=9"];
    let changed = report(&[&[out.as_str()], &changed[..]].concat());
    assert_eq!(changed["requests"]["finish"], first["requests"]["finish"]);
}

/// A deployment that orders by priority, and has too little memory to keep all prefixes.
const DEPLOYMENT: &str = "engine: {vllm: {num_gpu_blocks: 600, scheduling_policy: priority}}\n\
                          timing: {preset: mocker}\n";

#[test]
fn a_workload_that_is_written_runs_as_the_scenario_does() {
    let folder = Folder::new();
    let lengths = "prompt_tokens: {lognormal: {mean: 300, std: 200, max: 2000}}, \
                   output_tokens: {uniform: {min: 1, max: 40}}";
    let quickstart = repository("traces/quickstart.jsonl").display().to_string();
    for (name, workload) in [
        (
            "poisson",
            format!(
                "synthetic: {{requests: 150, {lengths}, arrivals: {{poisson: {{requests_per_s: 20}}}}}}"
            ),
        ),
        (
            "prefixes",
            format!(
                "synthetic: {{requests: 200, {lengths}, length_correlation: 0.5, arrivals: {{gamma: \
                 {{requests_per_s: 30, burstiness: 0.4}}}}, prefixes: {{groups: 5, prefix_tokens: \
                 {{uniform: {{min: 10, max: 700}}}}, share: 0.8}}}}"
            ),
        ),
        (
            "classes",
            format!(
                "synthetic: {{requests: 200, {lengths}, arrivals: {{on_off: {{on_requests_per_s: 60, on_s: 1, \
                 off_s: 2}}}}, classes: [{{name: a, prefixes: {{groups: 2}}}}, {{name: b, priority: -3, \
                 prefixes: {{groups: 2}}}}, {{name: c, priority: 5, requests: 20, arrivals: {{all_at_once: \
                 {{at_s: 1.5}}}}}}]}}"
            ),
        ),
        (
            "bench",
            format!(
                "synthetic: {{requests: 100, {lengths}, arrivals: {{vllm_bench: {{request_rate: 40}}}}}}"
            ),
        ),
        (
            "reshaped",
            format!(
                "trace: {{path: {quickstart}, limit: 300, max_tokens: 60, reshape: {{sample_ratio: 0.4, repeat: 2, \
                 spread_ties_ms: 10, prompt_factor: 0.3, arrivals: {{weibull: {{requests_per_s: 9, shape: 0.7}}}}}}}}"
            ),
        ),
    ] {
        let scenario =
            folder.write("s.yaml", format!("seed: 3\nworkload: {{{workload}}}\n{DEPLOYMENT}"));
        let expected = run_digest(&scenario, &[]);
        for file in ["t.csv", "t.jsonl.gz"] {
            let out = folder.text(file);
            let ran = servesim(["trace", "synth", &scenario, &out]);
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            let path = format!("workload.trace.path={out}");
            let sets = [path.as_str(), "workload.trace.reshape=null", "workload.trace.limit=null"];
            let sets =
                [&sets[..], &["workload.trace.max_tokens=null", "workload.trace.origin=zero"]]
                    .concat();
            assert_eq!(run_digest(&scenario, &sets), expected, "{name} as {file}");
        }
        // Another seed is another workload.
        let other = folder.text("other.csv");
        servesim(["trace", "synth", &scenario, &other, "--seed", "4"]);
        servesim(["trace", "synth", &scenario, &folder.text("t.csv")]);
        assert_ne!(folder.read("other.csv"), folder.read("t.csv"));
    }
}

#[test]
fn sessions_that_are_written_run_as_the_scenario_does() {
    let folder = Folder::new();
    // The arrivals end before the requests do, so that every session is whole.
    let scenario = folder.write(
        "s.yaml",
        format!(
            "workload: {{synthetic: {{requests: 5000, prompt_tokens: {{lognormal: {{mean: 300, std: 200}}}}, \
             output_tokens: {{uniform: {{min: 1, max: 60}}}}, arrivals: {{piecewise: {{segments: \
             [{{duration_s: 20, from_per_s: 3}}]}}}}, sessions: {{turns: {{geometric: {{mean: 3}}}}, \
             added_tokens: {{uniform: {{min: 0, max: 90}}}}, think_s: 4}}, prefixes: {{groups: 3}}}}}}\n{DEPLOYMENT}"
        ),
    );
    let expected = run_digest(&scenario, &[]);
    let refused = servesim(["trace", "synth", &scenario, &folder.text("no.csv")]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("`workload.synthetic.sessions` is set"), "{}", refused.stderr);
    for (file, answers) in [("t.csv", "0:0"), ("t.jsonl", "900:30")] {
        let out = folder.text(file);
        let ran = servesim(["trace", "synth", &scenario, &out, "--answer-ms", answers]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let path = format!("workload.trace.path={out}");
        let sets = [&path, "workload.trace.origin=zero", "workload.trace.sessions.think={}"];
        assert_eq!(run_digest(&scenario, &sets), expected, "{file}");
    }
}

#[test]
fn prefixes_of_whole_blocks_can_be_mooncake_rows() {
    let folder = Folder::new();
    let scenario = |prefix: u32| {
        let text = format!(
            "workload: {{synthetic: {{requests: 60, prompt_tokens: {{uniform: {{min: 1, max: 900}}}}, \
             output_tokens: {{fixed: 9}}, arrivals: {{poisson: {{requests_per_s: 20}}}}, prefixes: {{groups: 3, \
             prefix_tokens: {{fixed: {prefix}}}}}}}}}\n{DEPLOYMENT}"
        );
        folder.write("s.yaml", text)
    };
    let out = folder.text("m.jsonl");
    let path = format!("workload.trace.path={out}");
    let sets = [path.as_str(), "workload.trace.origin=zero", "workload.trace.ties=file"];
    let yaml = scenario(1024);
    let ran = servesim(["trace", "synth", &yaml, &out, "--to", "mooncake"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(run_digest(&yaml, &sets), run_digest(&yaml, &[]));

    // 1000 tokens end within a block: their 488 last ones cannot be shared.
    let yaml = scenario(1000);
    let ran = servesim(["trace", "synth", &yaml, &out, "--to", "mooncake"]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr.contains("no whole blocks") && ran.stderr.contains("`--whole-blocks`"),
        "{}",
        ran.stderr
    );
    let ran = servesim(["trace", "synth", &yaml, &out, "--to", "mooncake", "--whole-blocks"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let hits = |path: &str, more: &[&str]| {
        let args = [&["trace", "stats", path, "--format", "json"], more].concat();
        servesim(args).report()["stats"]["prefix"]["shared_tokens"].as_u64().unwrap()
    };
    let exact = folder.text("exact.csv");
    servesim(["trace", "synth", &yaml, &exact]);
    // All but the first request of each group: 57 times 1000 tokens, or 512.
    assert_eq!((hits(&exact, &[]), hits(&out, &[])), (57 * 1000, 57 * 512));
    let ran = servesim(["trace", "synth", &yaml, &exact, "--whole-blocks"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("--whole-blocks with `--to servesim`: expected"), "{}", ran.stderr);
}

#[test]
fn changes_are_seen_by_every_command_that_reads_requests() {
    let folder = Folder::new();
    let path = repository("traces/quickstart.jsonl").display().to_string();
    let set = ["--set", "workload.trace.reshape.sample_ratio=0.5"];
    let requests = |seed: &str| {
        let args =
            [&["trace", "stats", &path, "--format", "json", "--seed", seed], &set[..]].concat();
        servesim(args).report()["stats"]["requests"].as_u64().unwrap()
    };
    assert!((900..1150).contains(&requests("1")) && requests("1") != requests("2"));
    let out = folder.text("t.csv");
    let args = [&["trace", "convert", &path, &out, "--set", "seed=1"], &set[..]].concat();
    servesim(args);
    assert_eq!(folder.read("t.csv").lines().count() as u64, requests("1") + 1);
    let ids = |more: &[&str]| {
        let ran = servesim([&["trace", "head", &path, "-n", "4"], more].concat());
        let lines: Vec<_> = ran.stdout.lines().skip(1).map(str::to_owned).collect();
        lines
            .iter()
            .map(|line| line.split_whitespace().nth(1).unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&[]), ["1", "2", "3", "4"]);
    let sampled = ids(&[&set[..], &["--seed", "1"]].concat());
    assert!(sampled.len() == 4 && sampled != ["1", "2", "3", "4"], "{sampled:?}");
}

#[test]
fn what_cannot_be_looked_at_is_refused_by_its_field() {
    let folder = Folder::new();
    let path = folder.write("t.jsonl", GOOD);
    let out = folder.text("out.csv");
    let follows =
        "expected none: arrivals that follow the ends of requests are known in a run alone";
    for (set, expected) in [
        (
            "workload.trace.reshape.max_concurrency=4",
            format!("`workload.trace.reshape.max_concurrency` is 4, {follows}"),
        ),
        (
            "workload.trace.reshape.arrivals.closed_loop.concurrency=4",
            format!("`workload.trace.reshape.arrivals` is closed_loop, {follows}"),
        ),
        (
            "engine.vllm.block_size=32",
            "--set engine.vllm.block_size=32: expected `seed` or a field of `workload.trace`"
                .to_owned(),
        ),
        (
            "workload.synthetic.requests=3",
            "--set workload.synthetic.requests=3: expected `seed` or".to_owned(),
        ),
    ] {
        for args in [&["stats", &path][..], &["head", &path], &["convert", &path, &out]] {
            let ran = servesim([&["trace"], args, &["--set", set]].concat());
            assert_eq!(ran.code, Some(2), "{args:?}");
            assert!(ran.stderr.contains(&expected), "{args:?}: {}", ran.stderr);
        }
    }
    let ran = servesim(["trace", "validate", &path, "--set", "workload.trace.reshape.repeat=2"]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr.contains(
            "--set workload.trace.reshape.repeat=2: expected no field of `workload.trace.reshape`"
        ),
        "{}",
        ran.stderr
    );
    for (load, field) in [
        (
            "{arrivals: {closed_loop: {concurrency: 2}}}",
            "workload.synthetic.arrivals` is closed_loop",
        ),
        ("{max_concurrency: 7}", "workload.synthetic.max_concurrency` is 7"),
        (
            "{classes: [{name: a, arrivals: {poisson: {}}}, {name: b, arrivals: {closed_loop: {}}}]}",
            "workload.synthetic.classes[1].arrivals` is closed_loop",
        ),
    ] {
        let scenario = folder.write("s.yaml", format!("workload: {{synthetic: {load}}}\n"));
        let ran = servesim(["trace", "synth", &scenario, &out]);
        assert_eq!(ran.code, Some(2), "{load}");
        assert!(ran.stderr.contains(&format!("`{field}, {follows}")), "{}", ran.stderr);
    }
    let scenario = folder.write("s.yaml", "workload: {synthetic: {}}\n");
    let ran = servesim(["trace", "synth", &scenario, &out, "--set", "host.frontend_ms=1"]);
    assert!(
        ran.stderr.contains("--set host.frontend_ms=1: expected `seed` or a field of `workload`")
    );
    assert!(!folder.path("out.csv").exists());
}

#[test]
fn a_prompt_may_go_on_from_another_row() {
    let folder = Folder::new();
    // Row 1 repeats the 160 tokens of row 0 and the 32 that it generates, and asks for more.
    let header = "arrival_ns,prompt_tokens,output_tokens,max_tokens,priority,content\n";
    let rows = "0,160,33,,,\n60000000000,200,2,,,p0:160 o0:32 p1:8\n";
    let path = folder.write("t.csv", format!("{header}{rows}"));
    let cached = |path: &str, more: &[&str]| {
        let rows = folder.text("rows.jsonl");
        let args = [&["replay", path, "--quiet", "--requests", &rows], more].concat();
        assert_eq!(servesim(args).code, Some(0));
        let last = folder.read("rows.jsonl").lines().last().unwrap().to_owned();
        let row: serde_json::Value = serde_json::from_str(&last).unwrap();
        row["cached_tokens"].as_u64().unwrap()
    };
    // Twelve blocks of 16 tokens.
    assert_eq!(cached(&path, &[]), 192);
    // Written and read again, and behind a row that is left out.
    let out = folder.text("again.jsonl");
    assert_eq!(servesim(["trace", "convert", &path, &out]).code, Some(0));
    assert_eq!(cached(&out, &[]), 192);
    let late = "0,5,1,,,\n1000000000,160,33,,,\n60000000000,200,2,,,p1:160 o1:32 p2:8\n";
    let late = folder.write("late.csv", format!("{header}{late}"));
    assert_eq!(cached(&late, &["--trace-window", "1:"]), 192);
    // Without the row that it goes on from there is nothing to find.
    assert_eq!(cached(&late, &["--trace-window", "2:"]), 0);
    let bad = folder.write("bad.csv", format!("{header}0,160,33,,,\n1,2,2,,,o1:2\n"));
    let ran = servesim(["trace", "validate", &bad]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stdout.contains("bad.csv:3: `content` is `o1:2`, expected a row before"),
        "{}",
        ran.stdout
    );
}

#[test]
fn a_reader_who_has_seen_enough_does_not_make_a_bad_trace_good() {
    let folder = Folder::new();
    let bad = folder.write("bad.jsonl", format!("{GOOD}{}", "[]\n".repeat(5000)));
    let good = folder.write("good.jsonl", GOOD);
    // More than a pipe holds, and less than a buffer does.
    for (path, code) in [(&bad, Some(2)), (&good, Some(0))] {
        let mut child = command(["trace", "validate", path, "--limit", "5000"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (code, ""));
    }
}

#[test]
fn a_page_of_pictures_goes_beside_the_figures() {
    let folder = Folder::new();
    let path = repository("traces/quickstart.jsonl").display().to_string();
    let page = folder.text("page.html");
    let ran = servesim(["trace", "stats", &path, "--format", "json", "--html", &page]);
    let stats = ran.report()["stats"].clone();
    let html = folder.read("page.html");
    assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>\n"));
    assert_eq!(html.matches("<div class=\"chart\"").count(), 5);
    let timeline = &stats["timeline"];
    let arrivals: u64 =
        timeline["arrivals"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!((arrivals, &timeline["bin_s"]), (2000, &10.0.into()));
    let working_set = timeline["working_set_tokens"].as_array().unwrap();
    assert_eq!(working_set.last(), Some(&stats["prefix"]["working_set_tokens"]));
    let curve = stats["prefix"]["curve"].as_array().unwrap();
    let tokens: Vec<_> =
        curve.iter().map(|cache| cache["cache_tokens"].as_u64().unwrap()).collect();
    assert!(tokens[0] == 512 && tokens.windows(2).all(|pair| pair[1] == 2 * pair[0]));
    let best = curve.last().unwrap()["hit_ratio"].as_f64().unwrap();
    // Six digits of it, in percent.
    let best: f64 = format!("{:.5e}", best * 100.0).parse().unwrap();
    assert!(html.contains(&format!(",{best}]")), "{best}");
    // On standard output it stands alone.
    let ran = servesim(["trace", "stats", &path, "--html", "-"]);
    assert_eq!(ran.stdout, html);
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
