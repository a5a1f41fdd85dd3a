//! Is the command line what we promise: exit codes, messages, files, flags?

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

/// Flags of every result file a command can write.
const RESULTS: [&str; 4] = ["--out", "{}/deep/out", "--requests", "{}/rows.csv"];

/// Replays `t.jsonl` of `folder`, which may write results into it, and fails: with this code and
/// message, nothing on standard output, and no file or folder that was not there before.
fn refused(folder: &Folder, code: i32, message: &str, args: &[&str]) {
    let before = folder.names();
    let here = folder.text("");
    let here = here.trim_end_matches('/');
    let results = RESULTS.map(|arg| arg.replace("{}", here));
    let args = args.iter().map(|arg| arg.replace("{}", here)).chain(results);
    let ran = servesim(args.collect::<Vec<_>>());
    let expected = format!("servesim: {}\n", message.replace("{}", here));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{}", ran.stderr);
    assert_eq!(ran.stderr, expected);
    assert_eq!(folder.names(), before, "{message}");
}

/// A good row, the bad one is what follows it.
const GOOD: &str = "{\"timestamp\": 0, \"input_length\": 10, \"output_length\": 5}\n";

#[test]
fn a_bad_trace_is_refused_with_its_place() {
    let row = |fields: &str| format!("{GOOD}{{\"timestamp\": 1, {fields}}}\n");
    let compressed = gzip(GOOD.repeat(500));
    let tokens = "an integer from 0 to 4294967295";
    let cases: Vec<(Vec<u8>, String)> = vec![
        (b"".to_vec(), ": no rows, expected at least one request".into()),
        (b" \n\n".to_vec(), ": no rows, expected at least one request".into()),
        (format!("{GOOD}{{\"timestamp\": 1, \n").into(), ":2:17: malformed JSON: EOF while parsing a value".into()),
        (format!("{GOOD}\n[1]\n").into(), ":3:1: malformed JSON: expected an object".into()),
        (format!("{GOOD}{GOOD}, \n").into(), ":3:1: malformed JSON: expected value".into()),
        (row("\"input_length\": 3").into(), format!(":2: `output_length` is missing, expected {tokens}")),
        (row("\"output_length\": 3").into(), format!(":2: `input_length` is missing, expected {tokens}")),
        (row("\"input_length\": -3, \"output_length\": 1").into(), format!(":2: `input_length` is -3, expected {tokens}")),
        (row("\"input_length\": 3, \"output_length\": -1").into(), format!(":2: `output_length` is -1, expected {tokens}")),
        (row("\"input_length\": 4294967296, \"output_length\": 1").into(), format!(":2: `input_length` is 4294967296, expected {tokens}")),
        (row("\"input_length\": 3.0, \"output_length\": 1").into(), format!(":2: `input_length` is 3.0, expected {tokens}")),
        (row("\"input_length\": \"3\", \"output_length\": 1").into(), format!(":2: `input_length` is \"3\", expected {tokens}")),
        (
            row("\"input_length\": 512, \"output_length\": 1, \"hash_ids\": [1, 2]").into(),
            ":2: `hash_ids` is 2 ids, expected 1: a prompt of 512 tokens in blocks of 512 \
             (`hash_block_tokens`)"
                .into(),
        ),
        (
            row("\"input_length\": 513, \"output_length\": 1, \"hash_ids\": [1]").into(),
            ":2: `input_length` is 513, expected at most 512: 1 hash ids of 512 tokens (`hash_block_tokens`)".into(),
        ),
        (
            row("\"input_length\": 3, \"output_length\": 1, \"hash_ids\": [-1]").into(),
            ":2: `hash_ids` is -1 at index 0, expected an array of integers from 0 to 18446744073709551615".into(),
        ),
        (
            row("\"input_length\": 3, \"output_length\": 1, \"priority\": 2147483648").into(),
            ":2: `priority` is 2147483648, expected an integer from -2147483648 to 2147483647".into(),
        ),
        (
            b"{\"timestamp\": -1, \"input_length\": 1, \"output_length\": 1}\n".to_vec(),
            ":1: `timestamp` is -1, expected a number of milliseconds from 0 to 3153600000000".into(),
        ),
        (
            b"{\"timestamp\": 1000000000000000000, \"input_length\": 1, \"output_length\": 1}\n".to_vec(),
            ":1: `timestamp` is 1000000000000000000, expected a number of milliseconds from 0 to 3153600000000".into(),
        ),
        ([GOOD.as_bytes(), b"{\"\xff\"}\n"].concat(), ":2:3: invalid UTF-8".into()),
        (
            b"prompt,output\n1,2\n".to_vec(),
            ":1: unknown trace format, the line starts with \"prompt,output\", expected `{` (Mooncake JSON lines), or \
             `TIMESTAMP,ContextTokens,GeneratedTokens` (Azure CSV)".into(),
        ),
        (
            b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,-4,2\n".to_vec(),
            format!(":2: `ContextTokens` is \"-4\", expected {tokens}"),
        ),
        // Cut in its header, and within the checksum at its end.
        (compressed[..5].to_vec(), ": truncated or corrupt gzip after line 0: unexpected end of file".into()),
        (
            compressed[..compressed.len() - 4].to_vec(),
            ": truncated or corrupt gzip after line 500: unexpected end of file".into(),
        ),
    ];
    for (bytes, message) in cases {
        let folder = Folder::new();
        folder.write("t.jsonl", bytes);
        refused(&folder, 2, &format!("{{}}/t.jsonl{message}"), &["replay", "{}/t.jsonl"]);
    }
}

#[test]
fn stamps_may_go_back_within_the_window_and_not_beyond() {
    let folder = Folder::new();
    let path = folder.write("t.jsonl", trace(&[request(60_000, 10, 1), request(0, 20, 1)]));
    let ran =
        servesim(["replay", &path, "--format", "json", "--requests", &folder.text("r.jsonl")]);
    assert_eq!(ran.report()["requests"]["completed"], 2);
    // Sorted: the second row comes first, a minute before the other.
    let rows = rows_of(&folder.path("r.jsonl"));
    assert_eq!([&rows[0]["line"], &rows[0]["arrival_ms"]], [&json!(2), &json!(0.0)]);
    assert_eq!([&rows[1]["line"], &rows[1]["arrival_ms"]], [&json!(1), &json!(60_000.0)]);

    let folder = Folder::new();
    folder.write("t.jsonl", trace(&[request(60_001, 10, 1), request(0, 20, 1)]));
    let message = "{}/t.jsonl:2: `timestamp` is 60.001 s before a stamp of an earlier line, expected at most 60 s; \
                   sort the file, or raise `sort_window_s`";
    refused(&folder, 2, message, &["replay", "{}/t.jsonl"]);
    // The hint helps.
    let path = folder.text("t.jsonl");
    let ran = servesim(["replay", &path, "--set", "workload.trace.sort_window_s=61"]);
    assert_eq!(ran.code, Some(0));
}

#[test]
fn what_is_not_there_is_bad_input() {
    let folder = Folder::new();
    let system = std::io::Error::from_raw_os_error(21);
    refused(&folder, 2, "{}/none.jsonl: no such file", &["replay", "{}/none.jsonl"]);
    refused(&folder, 2, &format!("{{}}: cannot be read: {system}"), &["replay", "{}"]);
    let system = std::io::Error::from_raw_os_error(2);
    refused(&folder, 2, &format!("{{}}/none.yaml: {system}"), &["run", "{}/none.yaml"]);
    // The scenario is there, its trace is not; its path counts from the scenario's folder.
    folder.write("s.yaml", "workload: {trace: {path: none.jsonl}}");
    refused(&folder, 2, "{}/none.jsonl: no such file", &["run", "{}/s.yaml"]);
}

/// The warning of a kind in a report.
fn warning<'a>(report: &'a Value, kind: &str) -> &'a Value {
    let warnings = report["warnings"].as_array().unwrap();
    warnings
        .iter()
        .find(|warning| warning["kind"] == kind)
        .unwrap_or_else(|| panic!("{warnings:?}"))
}

/// Requests that an engine refuses are counted and do not end the run, as in the engine itself.
#[test]
fn requests_that_cannot_be_served_are_counted_by_reason() {
    let folder = Folder::new();
    let requests = [
        request(0, 10, 0),
        request(1, 0, 5),
        request(2, 0, 0),
        request(3, 101, 1),
        request(4, 10, 5),
    ];
    let path = folder.write("t.jsonl", trace(&requests));
    let limit = "engine.vllm.max_model_len=101";
    let ran = servesim(["replay", &path, "--set", limit, "--format", "json"]);
    let report = ran.report();
    let expected = json!({"total": 4, "empty_prompt": 2, "prompt_too_long": 1, "zero_output": 1});
    assert_eq!(report["requests"]["rejected"], expected);
    assert_eq!(report["requests"]["completed"], 1);
    assert_eq!(warning(&report, "rejected_requests")["rejected"], 4);
    let table = servesim(["replay", &path, "--set", limit]);
    assert!(table.stdout.contains("1 completed, 4 rejected ("), "{}", table.stdout);
}

#[test]
fn an_unfinished_request_is_a_run_that_could_not_finish() {
    let folder = Folder::new();
    let path = folder.write("t.jsonl", trace(&[request(0, 50, 2), request(1, 10, 2)]));
    let chunking = "engine.vllm.enable_chunked_prefill=false";
    let budget = "engine.vllm.max_num_scheduled_tokens=49";
    let out = folder.text("out");
    let args = ["replay", &path, "--set", chunking, "--set", budget, "--quiet", "--out", &out];
    let ran = servesim(args);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("2 requests could not finish"), "{}", ran.stderr);
    // The report is there all the same, and says so too.
    assert!(ran.stdout.contains("0 completed, 0 rejected, 2 unfinished"), "{}", ran.stdout);
    let report: Value = serde_json::from_str(&folder.read("out/report.json")).unwrap();
    assert_eq!(report["requests"]["unfinished"], 2);
}

#[test]
fn a_price_that_is_none_ends_the_run() {
    let folder = Folder::new();
    folder.write("t.jsonl", trace(&[request(0, 10, 2)]));
    let message = "at 0 s of simulated time: the timing provider answered -10 ms for prefill of 1 requests with 10 \
                   new and 0 past tokens, expected a finite number from 0 to 8.64e7 ms";
    let price = "timing.polynomial.prefill.token_ms=-1";
    refused(&folder, 1, message, &["replay", "{}/t.jsonl", "--set", price]);
    // 250,000 days of decoding do not fit 64 bits of nanoseconds.
    folder.write("t.jsonl", trace(&[request(0, 10, 250_000)]));
    let ran =
        servesim(["replay", &folder.text("t.jsonl"), "--set", "timing.fixed.decode_ms=86400000"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(ran.stderr.ends_with("the clock cannot go further\n"), "{}", ran.stderr);
}

/// What a scenario may not say, with the place and the message.
#[test]
fn a_bad_scenario_is_refused_with_its_place() {
    let pool = "`engine.vllm.max_model_len` is 161, expected at most 160 tokens, what the 10 usable blocks of 16 \
                tokens hold (raise num_gpu_blocks to 12 or lower max_model_len)";
    for (text, message) in [
        (
            "workload: {trace: {path: t.jsonl}}\nengin: {}\n",
            ":2:1: unknown field `engin`; did you mean `engine`? ",
        ),
        (
            "engine:\n  vllm:\n    max_num_seq: 3\n",
            ":3:5: unknown field `max_num_seq`; did you mean `max_num_seqs`? ",
        ),
        ("engine: {sglang: {}}\n", ":1:10: unknown choice `sglang` (accepted: `vllm`)"),
        ("timing: {preset: moker}\n", ":1:18: unknown choice `moker`; did you mean `mocker`? "),
        ("engine: {vllm: {block_size: -1}}\n", ":1:29: "),
        ("engine: {vllm: {block_size: 4294967296}}\n", ":1:29: "),
        ("engine: {vllm: {async_scheduling: perhaps}}\n", ":1:35: "),
        ("engine: {vllm: {block_size: [1]}}\n", ":1:29: "),
        ("engine: {vllm: \n", ":1:"),
        ("name: *nobody\n", ":1:7: "),
        ("workload:\n\ttrace: {}\n", ":2:2: "),
        ("- list\n", ":1:1: "),
        ("text\n", ":1:1: "),
        ("{}", ": `workload.trace.path` is empty, expected a file, or `-` for the standard input"),
        ("", ": `workload.trace.path` is empty, expected a file, or `-` for the standard input"),
        (
            "schema: servesim.scenario/2\n",
            ": `schema` is servesim.scenario/2, expected servesim.scenario/1",
        ),
        (
            "workload: {trace: {path: t.jsonl}}\nengine: {vllm: {num_gpu_blocks: 11, max_model_len: 161}}\n",
            &format!(": {pool}"),
        ),
        (
            "workload: {trace: {path: t.jsonl}}\nengine: {vllm: {max_num_seqs: 65, max_num_batched_tokens: 64}}\n",
            ": `engine.vllm.max_num_batched_tokens` is 64, expected at least max_num_seqs (65), as vLLM requires",
        ),
        (
            "workload: {trace: {path: t.jsonl}}\nengine: {vllm: {watermark: 1}}\n",
            ": `engine.vllm.watermark` is 1, expected a share from 0 to below 1",
        ),
        (
            "workload: {trace: {path: t.jsonl}}\ntiming: {fixed: {prefill_ms: .nan}}\n",
            ": `timing.fixed.prefill_ms` is NaN, expected a number from 0 to 86400000 (a day)",
        ),
        (
            "workload: {trace: {path: t.jsonl, speedup: .inf}}\n",
            ": `workload.trace.speedup` is inf, expected a number above 0",
        ),
    ] {
        let folder = Folder::new();
        folder.write("t.jsonl", GOOD);
        let path = folder.write("s.yaml", text);
        let out = folder.text("out");
        let ran = servesim(["run", &path, "--out", &out]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{text}");
        let expected = format!("servesim: {path}{message}");
        assert!(ran.stderr.starts_with(&expected), "{text}: {}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
        assert_eq!(folder.names(), ["s.yaml", "t.jsonl"]);
    }
}

#[test]
fn bad_flags_are_refused_with_what_is_accepted() {
    let assignment = "expected PATH=VALUE, for example engine.vllm.max_num_seqs=64";
    let warmup = "expected a number of requests (100) or of seconds (30s)";
    let range = "expected FROM:TO in seconds, either of which may be left out (60:600, 60:, :600)";
    let folder = Folder::new();
    folder.write("t.jsonl", GOOD);
    for (flag, value, message) in [
        ("--set", "seed", format!("--set seed: {assignment}")),
        ("--set", "=3", format!("--set =3: {assignment}")),
        ("--set", "engine..x=3", format!("--set engine..x=3: {assignment}")),
        ("--set", "seed=[", "--set seed=[: `seed`: unclosed bracket '['".into()),
        (
            "--set",
            "engine.sglang.x=1",
            "--set engine.sglang.x=1: `engine`: unknown choice `sglang` (accepted: `vllm`)".into(),
        ),
        (
            "--set",
            "engine.vllm.block_size.x=1",
            "--set engine.vllm.block_size.x=1: `engine.vllm.block_size.x`: `engine.vllm.block_size` is a value, it \
             has no `x`".into(),
        ),
        ("--warmup", "many", format!("--warmup many: {warmup}")),
        ("--warmup", "1.5", format!("--warmup 1.5: {warmup}")),
        ("--window", "5", format!("--window 5: {range}")),
        ("--window", "a:b", format!("--window a:b: {range}")),
        ("--trace-window", "1:2:3", format!("--trace-window 1:2:3: {range}")),
        ("--window", "5:3", "{}/t.jsonl: `metrics.window.to_s` is 3, expected more than window.from_s (5)".into()),
        (
            "--trace-window",
            "0:0",
            "{}/t.jsonl: `workload.trace.window.to_s` is 0, expected a number above `from_s`, which is 0".into(),
        ),
        ("--speedup", "0", "{}/t.jsonl: `workload.trace.speedup` is 0, expected a number above 0".into()),
        (
            "--limit",
            "0",
            "{}/t.jsonl: `workload.trace.limit` is 0, expected an integer of at least 1, or no limit".into(),
        ),
        (
            "--trace-format",
            "csv",
            "--trace-format csv: `workload.trace.format`: unknown choice `csv` (accepted: `auto`, \
             `mooncake`, `azure`)".into(),
        ),
        (
            "--log",
            "a=b=c",
            "--log a=b=c: expected a level (error, warn, info, debug, trace), `pass`, or a filter such as \
             servesim::pass=trace".into(),
        ),
    ] {
        refused(&folder, 2, &message, &["replay", "{}/t.jsonl", &format!("{flag}={value}")]);
    }
    // An unknown field has the nearest name, and the list of all.
    let path = folder.text("t.jsonl");
    let ran = servesim(["replay", &path, "--set", "engine.vllm.block_siz=3"]);
    let expected = "servesim: --set engine.vllm.block_siz=3: `engine.vllm.block_siz`: unknown field `block_siz`; did \
                    you mean `block_size`? (accepted: `device`, ";
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.starts_with(expected), "{}", ran.stderr);
    // What the parser of arguments refuses is bad input as well.
    for args in [
        &["replay", &path, "--warmpu", "3"][..],
        &["replay", &path, "--seed", "-1"],
        &["replay", &path, "--seed", "18446744073709551616"],
        &["replay", &path, "--limit", "many"],
        &["replay", &path, "--format", "yaml"],
        &["replay", &path, &path],
        &["replay"],
        &["rehearse"],
        &[],
    ] {
        let ran = servesim(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}");
        assert!(ran.stderr.contains("Usage: ") || ran.stderr.contains("--help"), "{}", ran.stderr);
    }
    for flag in ["--help", "--version"] {
        let ran = servesim([flag]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{flag}");
        assert!(ran.stdout.contains("servesim"), "{flag}");
    }
}

#[test]
fn results_that_cannot_be_written_end_the_command_before_the_run() {
    let folder = Folder::new();
    let path = folder.write("t.jsonl", GOOD);
    let file = folder.write("file", "mine");
    fs::create_dir_all(folder.path("taken/report.json")).unwrap();
    let rows = folder.text("rows.csv");
    let fails = |code: i32, message: &str, args: &[&str]| {
        let before = folder.names();
        let ran = servesim([&["replay", &path, "--quiet"], args].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{args:?}");
        let expected = format!("servesim: {}\n", message.replace("{}", &folder.text("")));
        assert_eq!(ran.stderr, expected);
        assert_eq!(folder.names(), before, "{args:?}");
    };
    let no_folder = folder.text("none/rows.csv");
    fails(
        1,
        "{}none/rows.csv: cannot be written: there is no folder {}none",
        &["--requests", &no_folder, "--out", &folder.text("new")],
    );
    fails(1, "{}file: cannot be written: not a directory", &["--out", &file, "--requests", &rows]);
    let taken = folder.text("taken");
    let message = "{}taken/report.json: cannot be written: is a directory";
    fails(1, message, &["--out", &taken, "--requests", &rows]);
    let accepted = "expected .csv or .jsonl, optionally with .gz, or `-` for JSON lines";
    for (name, found) in
        [("rows", ""), ("rows.json", ".json"), ("rows.gz", ""), ("r.csv.gz.gz", ".gz")]
    {
        let target = folder.text(name);
        let message = format!("{{}}{name}: the name ends in {found:?}, {accepted}");
        fails(2, &message, &["--requests", &target]);
    }
    assert_eq!(folder.read("file"), "mine");
}

#[test]
fn a_failed_run_leaves_earlier_results_alone() {
    let folder = Folder::new();
    let path = folder.write("t.jsonl", format!("{GOOD}no row\n"));
    fs::create_dir(folder.path("out")).unwrap();
    folder.write("out/report.json", "old report");
    let rows = folder.write("rows.csv", "old rows");
    let ran = servesim(["replay", &path, "--out", &folder.text("out"), "--requests", &rows]);
    assert_eq!(ran.code, Some(2));
    assert_eq!(
        (folder.read("out/report.json"), folder.read("rows.csv")),
        ("old report".into(), "old rows".into())
    );
    assert_eq!(folder.names(), ["out", "rows.csv", "t.jsonl"]);
    assert_eq!(fs::read_dir(folder.path("out")).unwrap().count(), 1);
    // A good one takes their place.
    folder.write("t.jsonl", GOOD);
    let ran = servesim(["replay", &path, "--out", &folder.text("out"), "--requests", &rows]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(folder.read("out/report.json").starts_with("{\n  \"schema\": \"servesim.report/1\""));
    assert!(folder.read("rows.csv").starts_with("id,line,"));
}

/// Ten requests, one of them rejected, of which one is cut by the longest sequence.
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
    assert_eq!(printed["schema"], "servesim.report/1");
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
    let mut vllm = names(&schema["$defs"]["VllmConfig"]["properties"]);
    vllm.sort();
    let mut held = names(&scenario["engine"]["vllm"]);
    held.sort();
    assert_eq!(held, vllm);
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
