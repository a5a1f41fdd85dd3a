//! What is refused: bad traces, scenarios, flags and places for results.

use std::fs;

use serde_json::{Value, json};

use super::{GOOD, warning};
use crate::support::{Folder, gzip, request, rows_of, servesim, trace};

/// Flags of every result file a command can write.
const RESULTS: [&str; 12] = [
    "--out",
    "{}/deep/out",
    "--export",
    "aiperf",
    "--export",
    "inferencex",
    "--requests",
    "{}/rows.csv",
    "--passes",
    "{}/passes.csv",
    "--openmetrics",
    "{}/end.txt",
];

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
            ":1: unknown trace format, the line starts with \"prompt,output\", expected \
             `{\"id\": ..., \"block_size\": ..., \"requests\": [...` (conversations of Weka and AgentX), \
             or a JSON document with `input_lens` (`vllm bench serve --save-detailed`), \
             or `{\"chat_id\": ...` (Qwen-Bailian JSON lines), \
             or `{\"timestamp\": \"...\", ..., \"hash_ids\": {` (RAGPulse JSON lines), \
             or `{\"StartTimeOffset\": ...` or `StartTimeOffset,ContextTokens,GeneratedTokens` (APEX), \
             or `{\"request_id\": ..., \"input_toks\": ..., \"queued_ts\": ...` (LLMServingSim's requests that vLLM served), \
             or `{\"resourceSpans\": ...` (OpenTelemetry spans of vLLM), \
             or `start_time_ms,...,input_num_tokens,output_num_tokens,...` (benchmark_serving_multi_turn CSV), \
             or `{\"arrival_ns\": ..., \"prompt_tokens\": ...` (servesim JSON lines), \
             or `{` (Mooncake JSON lines), \
             or `arrival_ns,prompt_tokens,output_tokens,...` or `arrival_ms,...` (servesim CSV), \
             or `TIMESTAMP,ContextTokens,GeneratedTokens` (Azure CSV), \
             or `Timestamp,...,Request tokens,Response tokens` (BurstGPT CSV), \
             or `request_id,...,arrival_timestamp,batch_size,prompt_size,token_size` (Splitwise CSV), \
             or `arrived_at,num_prefill_tokens,num_decode_tokens` (Vidur CSV), or `request_id,timestamp,input_tokens,output_tokens` (ServeGen CSV)".into(),
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
    refused(&folder, 2, "{}/none.jsonl: no such file", &["replay", "{}/none.jsonl"]);
    let empty = "{}: a folder without a trace, expected a file that is neither hidden nor `.md`";
    refused(&folder, 2, empty, &["replay", "{}"]);
    let system = std::io::Error::from_raw_os_error(2);
    refused(&folder, 2, &format!("{{}}/none.yaml: {system}"), &["run", "{}/none.yaml"]);
    // The scenario is there, its trace is not; its path counts from the scenario's folder.
    folder.write("s.yaml", "workload: {trace: {path: none.jsonl}}");
    refused(&folder, 2, "{}/none.jsonl: no such file", &["run", "{}/s.yaml"]);
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
    let expected = json!({"total": 4, "empty_prompt": 2, "prompt_too_long": 1, "queue_full": 0, "zero_output": 1});
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
    let message = "at 0 s of simulated time: the timing provider answered -10 ms for prefill of 1 request with 10 \
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
        ("engine: {sglan: {}}\n", ":1:10: unknown choice `sglan`; did you mean `sglang`? "),
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
            "engine.trt.x=1",
            "--set engine.trt.x=1: `engine`: unknown choice `trt`; did you mean `trtllm`? (accepted: `vllm`, `sglang`, `trtllm`)".into(),
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
            "tsv",
            "--trace-format tsv: `workload.trace.format`: unknown choice `tsv` (accepted: `auto`, \
             `mooncake`, `mooncake_delta`, `azure`, `burstgpt`, `qwen_bailian`, `splitwise`, `servegen_csv`, `vidur`, `vllm_timed_trace`, `vllm_bench`, `apex`, `ragpulse`, `weka`, `llmservingsim`, `otlp`, `multi_turn`, `csv`, `jsonl`)".into(),
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
    assert!(folder.read("out/report.json").starts_with("{\n  \"schema\": \"servesim.report/2\""));
    assert!(folder.read("rows.csv").starts_with("id,line,"));
}
