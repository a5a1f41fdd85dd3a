//! Do the seeds of the fuzzers run through what the fuzzers call?

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use servesim::fuzzing::{read_scenario, read_trace, validate_trace};

/// Runs `entry` with every file of the corpus of `target`; it panics where a fuzzer would.
fn run(target: &str, entry: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no seeds", folder.display());
    for file in files {
        let bytes = fs::read(&file).unwrap();
        assert!(catch_unwind(|| entry(&bytes)).is_ok(), "{}", file.display());
    }
}

#[test]
fn seeds_of_traces_are_read() {
    run("trace", read_trace);
}

#[test]
fn seeds_of_traces_are_validated() {
    run("validate", validate_trace);
}

#[test]
fn seeds_of_scenarios_are_read() {
    run("scenario", read_scenario);
}
