//! Is the command line what we promise: exit codes, messages, files, flags?

mod compare;
mod deployment;
mod estimate;
mod explain;
mod presets;
mod refusals;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Stdio;

use flate2::read::MultiGzDecoder;
use serde_json::{Value, json};

use crate::support::{
    Folder, Ran, Request, command, gzip, ns, repository, request, rows_of, servesim, servesim_with,
    trace, without_host,
};

/// A good row of a trace.
const GOOD: &str = "{\"timestamp\": 0, \"input_length\": 10, \"output_length\": 5}\n";

/// The warning of a kind in a report.
fn warning<'a>(report: &'a Value, kind: &str) -> &'a Value {
    let warnings = report["warnings"].as_array().unwrap();
    warnings
        .iter()
        .find(|warning| warning["kind"] == kind)
        .unwrap_or_else(|| panic!("{warnings:?}"))
}

/// Ten requests, one of them rejected for want of a prompt.
fn ten_requests() -> Vec<Request> {
    let mut requests: Vec<Request> =
        (0..8).map(|i| request(i * 40, 20 + 10 * i as u32, 1 + i as u32)).collect();
    requests.push(request(500, 0, 4));
    requests.push(request(1000, 30, 5000));
    requests
}

#[test]
fn the_report_goes_where_it_is_asked_to() {
    let folder = Folder::new();
    let path = folder.write("t.jsonl", trace(&ten_requests()));
    let out = folder.text("a/b/out");
    let ran = servesim(["replay", &path, "--format", "json", "--out", &out]);
    let printed = ran.report();
    assert_eq!(ran.stderr, "");
    assert_eq!(folder.read("a/b/out/report.json"), ran.stdout);
    assert_eq!(printed["schema"], "servesim.report/2");
    // The table has the same figures, rounded.
    let table = servesim(["replay", &path]);
    assert_eq!((table.code, table.stderr.as_str()), (Some(0), ""));
    let counts = "10 requests: 9 completed, 1 rejected (1 empty_prompt), 0 unfinished, 0 excluded";
    assert!(table.stdout.contains(counts), "{}", table.stdout);
}

#[test]
fn rows_of_requests_are_the_same_in_every_format() {
    let folder = Folder::new();
    let path = folder.write("t.jsonl", trace(&ten_requests()));
    let unpacked = |name: &str| {
        let mut text = String::new();
        let file = fs::File::open(folder.path(name)).unwrap();
        match name.strip_suffix(".gz") {
            Some(_) => MultiGzDecoder::new(file).read_to_string(&mut text).unwrap(),
            None => BufReader::new(file).read_to_string(&mut text).unwrap(),
        };
        text
    };
    for name in ["rows.csv", "rows.csv.gz", "rows.jsonl", "rows.jsonl.gz"] {
        let ran = servesim(["replay", &path, "--requests", &folder.text(name)]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }
    assert_eq!(unpacked("rows.csv"), unpacked("rows.csv.gz"));
    assert_eq!(unpacked("rows.jsonl"), unpacked("rows.jsonl.gz"));
    // On standard output; then the report makes way.
    let ran = servesim(["replay", &path, "--requests", "-"]);
    assert_eq!(ran.stdout, unpacked("rows.jsonl"));
    assert!(ran.stderr.contains("9 completed"), "{}", ran.stderr);

    // CSV and JSON lines agree cell by cell; `null` is an empty cell.
    let csv = unpacked("rows.csv");
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let json = unpacked("rows.jsonl");
    let mut rows = 0;
    for (line, row) in lines.by_ref().zip(json.lines()) {
        let row: Value = serde_json::from_str(row).unwrap();
        let row = row.as_object().unwrap();
        assert_eq!(row.keys().collect::<Vec<_>>(), names);
        for (cell, (name, value)) in line.split(',').zip(row) {
            let same = match value {
                Value::Null => cell.is_empty(),
                Value::String(text) => cell == text,
                Value::Number(number) => {
                    cell.parse::<f64>().unwrap().total_cmp(&number.as_f64().unwrap()).is_eq()
                }
                Value::Bool(yes) => cell == if *yes { "true" } else { "false" },
                other => panic!("{name} is {other}"),
            };
            assert!(same, "{name}: {cell} and {value}");
        }
        rows += 1;
    }
    assert_eq!((rows, lines.count()), (10, 0));
}

#[test]
fn the_trace_may_come_from_standard_input() {
    let folder = Folder::new();
    let text = trace(&ten_requests());
    let file = folder.write("t.jsonl", &text);
    let from_file = servesim(["replay", &file, "--format", "json"]).report();
    for input in [text.clone().into_bytes(), gzip(&text)] {
        let ran = servesim_with(["replay", "-", "--format", "json"], &input);
        assert_eq!(ran.report()["digest"], from_file["digest"]);
        assert_eq!(ran.report()["title"]["workload"], "standard input");
    }
    let scenario = folder.write("s.yaml", "workload: {trace: {path: '-'}}");
    let ran = servesim_with(["run", &scenario, "--format", "json"], text.as_bytes());
    assert_eq!(ran.report()["digest"], from_file["digest"]);
    // Mistakes in it have a place, too.
    let ran = servesim_with(["replay", "-"], format!("{GOOD}{{}}\n").as_bytes());
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr.starts_with("servesim: <stdin>:2: `timestamp` is missing"),
        "{}",
        ran.stderr
    );
}

/// `command | head -1`: reads a line and goes.
fn first_line_of(args: &[&str]) -> (String, Option<i32>, String) {
    let mut child = command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::with_capacity(64, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    (line, child.wait().unwrap().code(), stderr)
}

#[test]
fn a_reader_who_has_seen_enough_is_no_failure() {
    let folder = Folder::new();
    // Far more output than a pipe holds.
    let requests: Vec<Request> = (0..2000).map(|i| request(i, 10, 2)).collect();
    let path = folder.write("t.jsonl", trace(&requests));
    let selection = repository("tests/conformance/vllm");
    for args in [
        &["replay", &path, "--quiet", "--requests", "-"][..],
        &["replay", &path, "--quiet", "--format", "json"],
        &["replay", &path, "--quiet"],
        &["schema"],
        &["conform", selection.to_str().unwrap()],
    ] {
        let (line, code, stderr) = first_line_of(args);
        assert!(!line.is_empty());
        assert_eq!(code, Some(0), "{args:?}: {stderr}");
        assert!(!stderr.contains("servesim: "), "{args:?}: {stderr}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_a_run_that_could_not_finish() {
    let folder = Folder::new();
    let path = folder.write("t.jsonl", trace(&ten_requests()));
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    for args in [&["replay", &path][..], &["replay", &path, "--format", "json"], &["schema"]] {
        let output = command(args).stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.starts_with("servesim: standard output: "), "{stderr}");
    }
    // The rows of requests, too; a device is written to as it is.
    std::os::unix::fs::symlink("/dev/full", folder.path("full.csv")).unwrap();
    let ran = servesim(["replay", &path, "--requests", &folder.text("full.csv")]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(ran.stderr.contains("full.csv: cannot be written: "), "{}", ran.stderr);
}

#[cfg(unix)]
#[test]
fn a_trace_may_be_a_pipe() {
    let folder = Folder::new();
    let made = std::process::Command::new("mkfifo").arg(folder.path("pipe")).status().unwrap();
    assert!(made.success());
    let (text, pipe) = (trace(&ten_requests()), folder.path("pipe"));
    let writer = std::thread::spawn(move || fs::write(pipe, text).unwrap());
    let ran = servesim(["replay", &folder.text("pipe"), "--format", "json"]);
    assert_eq!(ran.report()["requests"]["completed"], 9);
    writer.join().unwrap();
}

#[test]
fn a_report_can_be_run_again() {
    let folder = Folder::new();
    folder.write("t.jsonl", trace(&ten_requests()));
    let scenario = folder.write(
        "s.yaml",
        "name: again\n\
         workload: {trace: {path: t.jsonl, speedup: 1.7, window: {from_s: 0.03}}}\n\
         engine: {vllm: {num_gpu_blocks: 40, watermark: 0.07, usage: offline}}\n\
         timing: {preset: mocker}\n\
         host: {per_pass_host_ms: 0.1, frontend_ms: 0.3, detokenize_ms: 0.7}\n\
         metrics: {warmup: {seconds: 0.05}}\n",
    );
    let first = servesim([
        "run",
        &scenario,
        "--seed",
        "7",
        "--format",
        "json",
        "--out",
        &folder.text("out"),
    ]);
    // From another folder: paths in the report are absolute. Once more from that report.
    let elsewhere = Folder::new();
    let mut report = folder.text("out/report.json");
    for name in ["second", "third"] {
        let out = elsewhere.text(name);
        let again = servesim(["run", &report, "--format", "json", "--out", &out]);
        assert_eq!(without_host(&again.report()), without_host(&first.report()));
        report = elsewhere.text(&format!("{name}/report.json"));
    }
    // Its scenario alone is one, and can be changed like any.
    let alone = elsewhere.write("alone.json", first.report()["scenario"].to_string());
    let again = servesim(["run", &alone, "--format", "json"]);
    assert_eq!(without_host(&again.report()), without_host(&first.report()));
    let other =
        servesim(["run", &report, "--set", "engine.vllm.block_size=32", "--format", "json"]);
    assert_eq!(other.report()["scenario"]["engine"]["vllm"]["block_size"], 32);
    assert_ne!(other.report()["digest"], first.report()["digest"]);
}

#[test]
fn set_reaches_every_kind_of_field() {
    let folder = Folder::new();
    let path = folder.write("t.jsonl", trace(&ten_requests()));
    for (assignment, pointer, expected) in [
        ("seed=18446744073709551615", "/seed", json!(u64::MAX)),
        ("name=two words", "/name", json!("two words")),
        ("engine.vllm.block_size=32", "/engine/vllm/block_size", json!(32)),
        ("engine.vllm.block_size= 32 # blocks", "/engine/vllm/block_size", json!(32)),
        ("engine.vllm.async_scheduling=false", "/engine/vllm/async_scheduling", json!(false)),
        ("engine.vllm.watermark=0.25", "/engine/vllm/watermark", json!(0.25)),
        (
            "engine.vllm.scheduling_policy=priority",
            "/engine/vllm/scheduling_policy",
            json!("priority"),
        ),
        ("engine.vllm.device=cpu", "/engine/vllm/max_num_seqs", json!(128)),
        ("timing.fixed.decode_ms=2.5", "/timing/fixed/decode_ms", json!(2.5)),
        ("timing.fixed={prefill_ms: 9}", "/timing/fixed/prefill_ms", json!(9.0)),
        ("timing.polynomial.decode.min_ms=1", "/timing/polynomial/decode/min_ms", json!(1.0)),
        ("host.frontend_ms=1e1", "/host/frontend_ms", json!(10.0)),
        ("metrics.warmup.seconds=2", "/metrics/warmup/seconds", json!(2.0)),
        ("metrics.warmup={requests: 2}", "/metrics/warmup/requests", json!(2)),
        ("metrics.window.to_s=9", "/metrics/window", json!({"from_s": 0.0, "to_s": 9.0})),
        ("workload.trace.limit=3", "/workload/trace/limit", json!(3)),
        ("workload.trace.window={from_s: 0.1}", "/workload/trace/window/from_s", json!(0.1)),
        ("workload.trace.origin=zero", "/workload/trace/origin", json!("zero")),
    ] {
        let report = servesim(["replay", &path, "--set", assignment, "--format", "json"]).report();
        assert_eq!(report["scenario"].pointer(pointer), Some(&expected), "{assignment}");
    }
    // The last one counts, and flags of their own come after all of them.
    let args = ["--set", "seed=1", "--set", "seed=2", "--set", "workload.trace.limit=7"];
    let report = |more: &[&str]| {
        servesim([&["replay", &path, "--format", "json"], &args[..], more].concat()).report()
    };
    let scenario = report(&[])["scenario"].clone();
    assert_eq!(
        (&scenario["seed"], &scenario["workload"]["trace"]["limit"]),
        (&json!(2), &json!(7))
    );
    let scenario = report(&["--seed", "3", "--limit", "4"])["scenario"].clone();
    assert_eq!(
        (&scenario["seed"], &scenario["workload"]["trace"]["limit"]),
        (&json!(3), &json!(4))
    );
    // Back to the default.
    let scenario =
        report(&["--set", "workload.trace.limit=null", "--set", "seed="])["scenario"].clone();
    assert_eq!(
        (&scenario["seed"], &scenario["workload"]["trace"]["limit"]),
        (&json!(0), &Value::Null)
    );
}

#[test]
fn the_schema_describes_what_a_resolved_scenario_holds() {
    let ran = servesim(["schema"]);
    let schema = ran.report();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["additionalProperties"], false);
    let folder = Folder::new();
    let path = folder.write("t.jsonl", GOOD);
    let scenario = servesim(["replay", &path, "--format", "json"]).report()["scenario"].clone();
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let mut described = names(&schema["properties"]);
    described.sort();
    let mut held = names(&scenario);
    held.sort();
    assert_eq!(held, described);
    let sglang = servesim(["replay", &path, "--format", "json", "--engine", "sglang"]).report();
    let sglang = &sglang["scenario"]["engine"]["sglang"];
    for (family, config) in [("VllmConfig", &scenario["engine"]["vllm"]), ("SglangConfig", sglang)]
    {
        let mut described = names(&schema["$defs"][family]["properties"]);
        described.sort();
        let mut held = names(config);
        held.sort();
        assert_eq!(held, described);
    }
}

/// Twelve requests, one every second, the i-th with i + 1 output tokens.
fn one_a_second() -> Vec<Request> {
    (0..12).map(|i| request(1000 * i, 10, 1 + i as u32)).collect()
}

/// Ids of the requests that count.
fn counted(rows: &[Value]) -> Vec<u64> {
    let counted = rows.iter().filter(|row| row["counted"] == true);
    counted.map(|row| row["id"].as_u64().unwrap()).collect()
}

#[test]
fn warm_up_and_window_choose_who_counts() {
    let folder = Folder::new();
    let path = folder.write("t.jsonl", trace(&one_a_second()));
    let rows = folder.text("rows.jsonl");
    let run = |flags: &[&str]| {
        let args = [&["replay", &path, "--format", "json", "--requests", &rows], flags].concat();
        (servesim(args).report(), rows_of(Path::new(&rows)))
    };
    let (all, _) = run(&[]);
    assert_eq!(all["latency"]["itl_ms"]["count"], 66); // 0 + 1 + ... + 11
    for (flags, ids) in [
        (&["--warmup", "3"][..], 3..12),
        (&["--warmup", "12"], 0..0),
        (&["--warmup", "3s"], 3..12),
        (&["--warmup", "2.5s"], 3..12),
        (&["--warmup", "0"], 0..12),
        (&["--window", "2:5"], 2..5),
        (&["--window", "2.001:5.001"], 3..6),
        (&["--window", ":5"], 0..5),
        (&["--window", "9:"], 9..12),
        (&["--window", "2s:5s"], 2..5),
        (&["--warmup", "4", "--window", "2:6"], 4..6),
    ] {
        let (report, rows) = run(flags);
        assert_eq!(counted(&rows), ids.clone().collect::<Vec<u64>>(), "{flags:?}");
        assert_eq!(report["digest"], all["digest"], "{flags:?}");
        assert_eq!(report["passes"], all["passes"], "{flags:?}");
        assert_eq!(report["requests"]["input"], 12);
        assert_eq!(report["requests"]["completed"], ids.clone().count());
        assert_eq!(report["requests"]["excluded"], 12 - ids.clone().count());
        assert_eq!(report["tokens"]["prompt"], 10 * ids.clone().count());
        // The i-th has i + 1 tokens, and a gap less.
        assert_eq!(report["tokens"]["output"], ids.clone().map(|id| id + 1).sum::<u64>());
        assert_eq!(report["latency"]["itl_ms"]["count"], ids.sum::<u64>());
    }
    let (none, _) = run(&["--warmup", "12"]);
    assert_eq!(warning(&none, "nothing_counted")["input"], 12);
    assert_eq!(none["latency"]["ttft_ms"]["mean"], Value::Null);
    assert_eq!(none["throughput"]["requests_per_s"], Value::Null);
}

#[test]
fn limit_speed_and_part_of_the_trace_choose_what_is_replayed() {
    let folder = Folder::new();
    let path = folder.write("t.jsonl", trace(&one_a_second()));
    let rows = folder.text("rows.jsonl");
    // Lines that are replayed, and when they arrive.
    let run = |flags: &[&str]| {
        let args = [&["replay", &path, "--format", "json", "--requests", &rows], flags].concat();
        let ran: Ran = servesim(args);
        let rows = rows_of(Path::new(&rows));
        assert_eq!(ran.report()["requests"]["input"], rows.len());
        let of = |row: &Value| (row["line"].as_u64().unwrap(), ns(&row["arrival_ms"]) / 1_000_000);
        rows.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(run(&["--limit", "2"]), [(1, 0), (2, 1000)]);
    assert_eq!(run(&["--limit", "18446744073709551615"]).len(), 12);
    assert_eq!(run(&["--speedup", "4", "--limit", "3"]), [(1, 0), (2, 250), (3, 500)]);
    assert_eq!(run(&["--speedup", "0.5", "--limit", "2"]), [(1, 0), (2, 2000)]);
    assert_eq!(run(&["--trace-window", "3:6"]), [(4, 0), (5, 1000), (6, 2000)]);
    assert_eq!(run(&["--trace-window", "9.5:"]), [(11, 500), (12, 1500)]);
    assert_eq!(run(&["--trace-window", ":1"]), [(1, 0)]);
    let all = ["--trace-window", "3:", "--speedup", "2", "--limit", "2"];
    assert_eq!(run(&all), [(4, 0), (5, 500)]);
}

/// The log shows passes in pass notation, one line each, on standard error; the report stays alone on
/// standard output.
#[test]
fn the_log_of_passes_is_in_pass_notation() {
    let folder = Folder::new();
    let path = folder.write("t.jsonl", trace(&[request(0, 100, 6), request(0, 2000, 1)]));
    let mut args = vec!["replay", path.as_str(), "--log", "pass", "--format", "json"];
    for setting in [
        "engine.vllm.async_scheduling=false",
        "engine.vllm.max_num_batched_tokens=512",
        "engine.vllm.max_num_seqs=512",
    ] {
        args.extend(["--set", setting]);
    }
    let ran = servesim(args);
    let passes: Vec<&str> = ran
        .stderr
        .lines()
        .map(|line| {
            let line = line.strip_prefix("servesim::pass: ").unwrap();
            line.split(" engine=").next().unwrap()
        })
        .collect();
    // The long prompt gets what the decode leaves of 512 tokens.
    let expected = [
        "P 0[0..100] 1[0..412]",
        "D 0 | P 1[412..923]",
        "D 0 | P 1[923..1434]",
        "D 0 | P 1[1434..1945]",
        "D 0 | P 1[1945..2000]",
        "D 0",
    ];
    assert_eq!(passes, expected);
    assert_eq!(ran.report()["passes"]["total"], 6);
}
