//! Does a fixed bug stay fixed? As small as it can be.

use crate::support::{Folder, Ran, command, request, servesim, trace};

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
