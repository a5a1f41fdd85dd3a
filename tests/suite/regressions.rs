//! Does a fixed bug stay fixed? As small as it can be.

use crate::support::{
    Folder, Ran, command, request, servesim, simulate, simulate_synthetic, trace,
};

/// A good row of a trace.
const ROW: &str = "{\"timestamp\": 0, \"input_length\": 10, \"output_length\": 5}\n";

/// Replays that row under these flags.
fn replay(flags: &[&str]) -> Ran {
    let folder = Folder::new();
    let path = folder.write("t.jsonl", ROW);
    servesim([&["replay", &path, "--quiet"], flags].concat())
}

/// Replays that row under these flags, which are refused with this message.
fn refused(flags: &[&str], message: &str) {
    let ran = replay(flags);
    let found = (ran.code, ran.stdout.as_str(), ran.stderr.as_str());
    assert_eq!(found, (Some(2), "", format!("servesim: {message}\n").as_str()));
}

/// The run panicked when it wrote its report.
#[cfg(unix)]
#[test]
fn a_path_that_is_no_text_is_refused() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let folder = Folder::new();
    let odd = folder.path("").join(OsStr::from_bytes(b"odd\xff"));
    std::fs::create_dir(&odd).unwrap();
    std::fs::write(odd.join("t.jsonl"), ROW).unwrap();
    std::fs::write(odd.join("s.yaml"), "workload: {trace: {path: t.jsonl}}").unwrap();
    for (name, more) in [("t.jsonl", &[][..]), ("t.jsonl", &["--seed", "1"]), ("s.yaml", &[])] {
        let word = if name == "s.yaml" { "run" } else { "replay" };
        let mut command = command([word]);
        let output = command.arg(odd.join(name)).args(more).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("`workload.trace.path` is /"), "{stderr}");
        assert!(stderr.contains("odd\u{fffd}/t.jsonl, expected a path in UTF-8"), "{stderr}");
    }
}

/// `--log pass 2>&1 | head -1` panicked.
#[test]
fn a_reader_of_the_log_may_go() {
    let folder = Folder::new();
    let path = folder.write("t.jsonl", trace(&[request(0, 10, 5000)]));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = command(["replay", &path, "--log", "pass", "--format", "json"]);
    let output = command.stderr(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stdout.starts_with(b"{"));
}

/// It was the same as no flag.
#[test]
fn a_speedup_that_is_no_number_is_refused() {
    refused(&["--speedup=nan"], "--speedup NaN: expected a number above 0");
    refused(&["--speedup=inf"], "--speedup inf: expected a number above 0");
}

/// Nothing was set, and nobody told.
#[test]
fn a_field_that_is_not_there_cannot_be_unset() {
    for text in ["block_size=", "engine.vllm.blok_size=null", "engine.sglan=", "host.x.y=~"] {
        let ran = replay(&["--set", text]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{text}");
        assert!(ran.stderr.contains("`: unknown "), "{}", ran.stderr);
    }
    let text = "engine.vllm.block_size.x=";
    let message = "`engine.vllm.block_size` is a value, it has no `x`";
    refused(&["--set", text], &format!("--set {text}: `engine.vllm.block_size.x`: {message}"));
}

/// An engine or a warm-up of no kind was left behind, which was refused.
#[test]
fn a_choice_can_be_unset() {
    let scenario = |settings: &[&str]| {
        let flags: Vec<&str> = settings.iter().flat_map(|&text| ["--set", text]).collect();
        replay(&[&flags, &["--format", "json"][..]].concat()).report()["scenario"].clone()
    };
    let default = scenario(&[]);
    for [set, unset] in [
        ["engine.vllm.block_size=32", "engine.vllm="],
        ["timing.fixed.prefill_ms=3", "timing.fixed=null"],
        ["metrics.warmup.requests=2", "metrics.warmup.requests=null"],
        // Not what is there: then it stays.
        ["seed=0", "metrics.warmup.requests="],
        ["seed=0", "timing.polynomial="],
        ["seed=0", "metrics.window.to_s="],
    ] {
        assert_eq!(scenario(&[set, unset])["engine"], default["engine"], "{unset}");
        assert_eq!(scenario(&[set, unset])["timing"], default["timing"], "{unset}");
        assert_eq!(scenario(&[set, unset])["metrics"], default["metrics"], "{unset}");
    }
}

/// A name that looks like a number was refused.
#[test]
fn a_name_may_look_like_a_number() {
    for (text, name) in [("name=2024", "2024"), ("name=true", "true"), ("name='7'", "7")] {
        let ran = replay(&["--set", text, "--format", "json"]);
        assert_eq!(ran.report()["scenario"]["name"], name);
    }
    refused(
        &["--set", "engine.vllm.block_size=true"],
        "--set engine.vllm.block_size=true: `engine.vllm.block_size`: invalid type: boolean \
         `true`, expected an integer from 0 to 4294967295",
    );
}

/// `0ss` and `s` were numbers of seconds.
#[test]
fn one_unit_is_enough() {
    let accepted = "FROM:TO in seconds, either of which may be left out (60:600, 60:, :600)";
    for window in ["0ss:5", "s:s", "1 s s:"] {
        refused(&["--window", window], &format!("--window {window}: expected {accepted}"));
    }
    assert_eq!(replay(&["--window", "0s: 5 s"]).code, Some(0));
}

/// Messages gave advice on how to call the YAML parser, or named the parts of its own types.
#[test]
fn mistakes_in_yaml_are_told_in_the_words_of_a_scenario() {
    for (text, message) in [
        ("seed: 1\nseed: 2\n", ":2:1: `seed` is there twice"),
        ("seed: 1\n---\nseed: 2\n", ":3:1: expected one YAML document, found `seed: 2`"),
        ("host:\n", ":1:5: expected fields, or `{}` for the defaults"),
        ("host: text\n", ":1:7: expected fields, or `{}` for the defaults, found `text`"),
        ("engine:\n  vllm:\n", ":2:7: expected fields, or `{}` for the defaults"),
        ("workload: []\n", ":1:11: expected a choice and its fields"),
        (
            "timing:\n  fixed: {}\n  preset: mocker\n",
            ":3:3: expected one choice, and there are two, found `preset: mocker`",
        ),
        ("host: &a\n  x: *a\n", ":2:3: unknown field `x` (accepted: `per_pass_host_ms`, "),
        ("host: &a\n  frontend_ms: *a\n", ":2:16: an alias cannot stand inside what it repeats"),
        (
            "workload: &a {trace: {path: t}}\nengine: *a\n",
            ":2:9: unknown choice `trace` (accepted: `vllm`, `sglang`, `trtllm`)",
        ),
    ] {
        let folder = Folder::new();
        let path = folder.write("s.yaml", text);
        let ran = servesim(["run", &path]);
        assert_eq!(ran.code, Some(2));
        let expected = format!("servesim: {path}{message}");
        assert!(ran.stderr.starts_with(&expected), "{text}: {}", ran.stderr);
    }
    refused(
        &["--set", "timing.fixed.prefill_ms=.nan"],
        "--set timing.fixed.prefill_ms=.nan: `timing.fixed.prefill_ms`: value `.nan` is not a \
         finite number",
    );
}

/// A message of three hundred zeros.
#[test]
fn extreme_numbers_are_short() {
    let flag = |text: &str, message: &str| {
        let ran = replay(&["--set", text]);
        assert!(ran.stderr.contains(message), "{}", ran.stderr);
    };
    flag("host.frontend_ms=1e308", "`host.frontend_ms` is 1e308, expected");
    flag("engine.vllm.watermark=-1e-300", "`engine.vllm.watermark` is -1e-300, expected");
    flag("timing.polynomial.prefill.token_ms=1e300", "answered 1e301 ms for prefill of 1 request ");
    let folder = Folder::new();
    let path = folder.write("t.jsonl", trace(&[request(0, 10, 1), request(5, 10, 1)]));
    let ran = servesim(["replay", &path, "--speedup", "1e-300"]);
    assert!(ran.stderr.ends_with(" within 100 years (at `speedup` 1e-300)\n"), "{}", ran.stderr);
}

/// `1 requests could not finish`.
#[test]
fn one_request_is_no_plural() {
    let folder = Folder::new();
    let path = folder.write("t.jsonl", trace(&[request(0, 10, 1)]));
    let chunking = "engine.vllm.enable_chunked_prefill=false";
    let budget = "engine.vllm.max_num_scheduled_tokens=9";
    let ran = servesim(["replay", &path, "--quiet", "--set", chunking, "--set", budget]);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (Some(1), "servesim: 1 request could not finish\n")
    );
}

/// Warnings went past the 100 columns that the table promises.
#[test]
fn no_line_of_the_table_is_too_long() {
    let ran = replay(&[]);
    assert!(ran.stdout.contains("Warning: "), "{}", ran.stdout);
    let longest = ran.stdout.lines().map(|line| line.chars().count()).max();
    assert!(longest <= Some(100), "{}", ran.stdout);
}

/// Its scenario was called an unknown field.
#[test]
fn a_report_of_another_format_is_told_by_its_number() {
    let folder = Folder::new();
    let text = "{\"schema\": \"servesim.report/3\", \"scenario\": {}}";
    let path = folder.write("r.json", text);
    let ran = servesim(["run", &path]);
    let message = "`schema`: found `servesim.report/3`, expected `servesim.report/2`";
    let expected = format!("servesim: {path}: {message}\n");
    assert_eq!((ran.code, ran.stderr), (Some(2), expected));
}

/// Requests that ended within the time of the front end were replaced all at once, at the last end.
#[test]
fn a_closed_loop_replaces_each_request_at_its_end() {
    let settings = [
        "workload.synthetic={requests: 6, prompt_tokens: {fixed: 10}, output_tokens: {fixed: 1}, \
         arrivals: {closed_loop: {concurrency: 3}}}",
        "engine.vllm.max_num_seqs=1",
        "timing.fixed.prefill_ms=1",
        "host.frontend_ms=10",
    ];
    let run = simulate_synthetic(&settings);
    // One seat: from 10 ms on, one ends every millisecond.
    let arrivals: Vec<u64> = (0..6).map(|id| run.us(id, "arrival_ms")).collect();
    assert_eq!(arrivals, [0, 0, 0, 11_000, 12_000, 13_000]);
}

/// The synthetic workload gave way to a trace without a path.
#[test]
fn a_flag_of_traces_does_not_turn_another_workload_into_one() {
    let folder = Folder::new();
    let path = folder.write("s.yaml", "workload: {synthetic: {requests: 1}}\n");
    for (flag, value, field) in [
        ("--speedup", "2", "speedup"),
        ("--limit", "3", "limit"),
        ("--trace-window", "0:1", "window"),
        ("--trace-format", "azure", "format"),
    ] {
        let ran = servesim(["run", &path, flag, value]);
        let why = "`workload` is `synthetic`, not `trace`";
        let expected = format!("servesim: {flag} {value}: `workload.trace.{field}`: {why}\n");
        assert_eq!((ran.code, ran.stderr), (Some(2), expected));
    }
}

/// A mean of 1.05 waiting requests, of which there was one: it waited before the first pass of the run.
#[test]
fn levels_count_from_the_first_pass() {
    let run = simulate(
        &[request(0, 50, 2), request(1, 10, 5)],
        &[
            "cluster.engines=2",
            "engine.vllm.enable_chunked_prefill=false",
            "engine.vllm.max_num_scheduled_tokens=49",
        ],
    );
    assert_eq!(run.count("/requests/unfinished"), 1);
    // An engine without a pass holds nothing.
    assert!(run.float("/engines/0/waiting/mean").abs() < 1e-12);
}
