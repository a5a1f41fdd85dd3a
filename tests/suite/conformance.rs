//! Are our decisions those of the recorded engine, step by step? And would we see it if not?

mod sglang;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use serde_json::{Value, json};
use servesim::conform::{Verdict, find_recordings};

use crate::support::{Folder, lines_of, repository, servesim, shared};

const SELECTION: &str = "tests/conformance/vllm";

/// `01-single-001` of a case's path.
fn name(path: &Path) -> String {
    let name = path.file_name().unwrap().to_str().unwrap();
    name.strip_suffix(".case.json.gz").unwrap().to_owned()
}

/// The vLLM cases in a folder of the repository or at a path.
fn find_cases(path: &Path) -> Vec<PathBuf> {
    let recordings = find_recordings(path).unwrap();
    recordings.iter().map(|recording| recording.path().to_owned()).collect()
}

/// What the one case of a file came to.
fn check(path: &Path) -> Verdict {
    let recordings = find_recordings(path).unwrap();
    let [recording] = recordings.as_slice() else { panic!("{recordings:?}") };
    let cases = recording.cases().unwrap();
    let [case] = cases.as_slice() else { panic!("{cases:?}") };
    case.check().unwrap()
}

fn text(path: &Path) -> String {
    let mut text = String::new();
    MultiGzDecoder::new(fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text
}

/// Whether the case asks for speculation, read without servesim.
fn speculates(case: &Path) -> bool {
    let case: Value = serde_json::from_str(&text(case)).unwrap();
    !case["config"]["spec"].is_null()
}

/// Lines of the recording that belongs to a case.
fn recorded_lines(case: &Path) -> usize {
    let recording = case.with_file_name(format!("{}.expect.jsonl.gz", name(case)));
    text(&recording).lines().count()
}

/// Every case is the same in all its lines. Says how many there are, and how many of them speculate.
fn assert_conform(cases: &[PathBuf]) -> (usize, usize) {
    for case in cases {
        let expected = Verdict::Same { lines: recorded_lines(case) };
        assert_eq!(check(case), expected, "{}", case.display());
    }
    (cases.len(), cases.iter().filter(|case| speculates(case)).count())
}

#[test]
fn the_selection_conforms() {
    let cases = find_cases(&repository(SELECTION));
    assert_eq!(assert_conform(&cases), (92, 35));
}

#[test]
fn the_selection_has_every_group_and_every_edge() {
    let names: Vec<String> =
        find_cases(&repository(SELECTION)).iter().map(|case| name(case)).collect();
    for group in 1..=17 {
        assert!(names.iter().any(|name| name.starts_with(&format!("{group:02}-"))), "{group}");
    }
    // 33 situations, each synchronous and asynchronous.
    for mode in ["-sync", "-async"] {
        let is_edge = |name: &&String| name.starts_with("16-edge-") && name.ends_with(mode);
        assert_eq!(names.iter().filter(is_edge).count(), 33, "{mode}");
    }
}

#[test]
fn everything_that_was_recorded_conforms() {
    let Some(folder) = shared("conformance/vllm") else { return };
    let (all, speculative) = assert_conform(&find_cases(&folder));
    // The index has a line per case, and a header.
    let index = fs::read_to_string(folder.join("INDEX.tsv")).unwrap();
    assert_eq!(all, index.lines().count() - 1);
    let methods = ["ngram:", "eagle:", "draft_model:"];
    let speculating = index.lines().filter(|line| methods.iter().any(|m| line.contains(m)));
    assert_eq!(speculative, speculating.count());
}

#[test]
fn the_command_counts_and_prints_a_line_per_case() {
    let ran = servesim(["conform", repository(SELECTION).to_str().unwrap()]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines.len(), 92 + 1);
    assert_eq!(lines.iter().filter(|line| line.starts_with("same  ")).count(), 92);
    assert_eq!(lines[92], "92 same, 0 different");

    let ran = servesim(["conform", "--quiet", repository(SELECTION).to_str().unwrap()]);
    assert_eq!(ran.stdout, "92 same, 0 different\n");
}

/// A copy of a recorded case that can be changed.
struct Doctored {
    folder: Folder,
    lines: Vec<Value>,
}

impl Doctored {
    fn of(name: &str) -> Self {
        let source = |ending| repository(SELECTION).join(format!("{name}.{ending}.gz"));
        let folder = Folder::new();
        folder.write("x.case.json", text(&source("case.json")));
        let lines = text(&source("expect.jsonl"));
        let lines = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Self { folder, lines }
    }

    /// Writes `lines` as the recording and compares.
    fn check(&self, lines: &[Value]) -> Verdict {
        let text = lines_of(lines);
        self.folder.write("x.expect.jsonl", text);
        check(&self.folder.path("x.case.json"))
    }

    /// The line (from 1) that differs once the value at `pointer` of line `at` (from 0) is `value`.
    fn differing_line(&self, at: usize, pointer: &str, value: Value) -> Option<usize> {
        let mut lines = self.lines.clone();
        *lines[at].pointer_mut(pointer).unwrap() = value;
        match self.check(&lines) {
            Verdict::Different { line, .. } => Some(line),
            _ => None,
        }
    }

    /// The first line of a kind.
    fn first(&self, kind: &str) -> usize {
        self.lines.iter().position(|line| line["k"] == kind).unwrap()
    }
}

/// Pointers to every integer in `value`.
fn integers(value: &Value, pointer: &str, found: &mut Vec<(String, u64)>) {
    match value {
        Value::Number(number) => found.push((pointer.to_owned(), number.as_u64().unwrap())),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                integers(item, &format!("{pointer}/{at}"), found);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                integers(field, &format!("{pointer}/{name}"), found);
            }
        }
        _ => {}
    }
}

/// Whether a line is more than one more decode: the first, the last, and those in which a request is
/// admitted, preempted or finished.
fn is_eventful(line: &Value) -> bool {
    let is_empty = |field: &str| line[field].as_array().is_none_or(Vec::is_empty);
    let admits = |row: &Value| row[3] != "R";
    line["k"] == "head"
        || line["k"] == "end"
        || !is_empty("pre")
        || !is_empty("fin")
        || line["sched"].as_array().is_some_and(|rows| rows.iter().any(admits))
}

#[test]
fn every_single_number_of_a_recording_matters() {
    for name in [
        "16-edge-two-grow-one-preempted-sync",
        "16-edge-preempted-resumes-from-cache-async",
        "16-edge-spec-eagle-one-token-left-padding-async",
    ] {
        let doctored = Doctored::of(name);
        let mut compared = 0;
        for (at, line) in doctored.lines.iter().enumerate().filter(|(_, line)| is_eventful(line)) {
            let mut found = Vec::new();
            integers(line, "", &mut found);
            for (pointer, number) in found {
                // What the head line says of the recording itself.
                if at == 0 && pointer == "/format" {
                    continue;
                }
                let line = doctored.differing_line(at, &pointer, json!(number + 1));
                assert_eq!(line, Some(at + 1), "{name}, line {}, {pointer}", at + 1);
                compared += 1;
            }
        }
        // Eight settings, two preemptions, at least two admissions and finishes, and the summary.
        assert!(compared > 80, "{name} has {compared} numbers");
    }
}

#[test]
fn every_word_of_a_recording_matters() {
    let doctored = Doctored::of("16-edge-stop-first-token-sync");
    let (call, end) = (doctored.first("s"), doctored.lines.len() - 1);
    assert_eq!(doctored.lines[call]["sched"][0][3], "N");
    for letter in ["R", "P"] {
        assert_eq!(doctored.differing_line(call, "/sched/0/3", json!(letter)), Some(call + 1));
    }
    assert_eq!(doctored.lines[end]["reason"], "done");
    for reason in ["stalled", "max_steps"] {
        assert_eq!(doctored.differing_line(end, "/reason", json!(reason)), Some(end + 1));
    }
    assert_eq!(doctored.lines[end]["requests"][0]["reason"], "stop");
    for reason in [json!("length"), Value::Null] {
        let line = doctored.differing_line(end, "/requests/0/reason", reason);
        assert_eq!(line, Some(end + 1));
    }
    for field in ["first", "fin"] {
        let line = doctored.differing_line(end, &format!("/requests/0/{field}"), Value::Null);
        assert_eq!(line, Some(end + 1));
    }
}

#[test]
fn a_line_too_many_or_too_few_is_found_where_it_is() {
    let doctored = Doctored::of("16-edge-two-grow-one-preempted-sync");
    let all = &doctored.lines;
    assert_eq!(doctored.check(all), Verdict::Same { lines: all.len() });
    let line_of = |lines: &[Value]| match doctored.check(lines) {
        Verdict::Different { line, expected, found, .. } => {
            (line, expected.is_some(), found.is_some())
        }
        verdict => panic!("{verdict:?}"),
    };
    // The recording ends, we go on; and the other way round.
    assert_eq!(line_of(&all[..all.len() - 1]), (all.len(), false, true));
    let longer: Vec<Value> = all.iter().chain(all.last()).cloned().collect();
    assert_eq!(line_of(&longer), (all.len() + 1, true, false));
    for at in 1..all.len() - 1 {
        let mut lines = all.clone();
        lines.remove(at);
        // The line after a removed one may be equal to it only if they do not differ at all.
        assert_ne!(all[at], all[at + 1]);
        assert_eq!(line_of(&lines), (at + 1, true, true));
        let mut lines = all.clone();
        lines.swap(at, at + 1);
        assert_eq!(line_of(&lines).0, at + 1);
    }
}

#[test]
fn the_command_fails_on_a_difference_and_shows_the_line() {
    let doctored = Doctored::of("16-edge-two-grow-one-preempted-sync");
    for (kind, field) in [("head", "/resolved/usable_blocks"), ("s", "/free"), ("u", "/free")] {
        let at = doctored.first(kind);
        let mut lines = doctored.lines.clone();
        let value = lines[at].pointer_mut(field).unwrap();
        let was = value.as_u64().unwrap();
        *value = json!(was + 1);
        doctored.check(&lines);
        let path = doctored.folder.text("x.case.json");
        let ran = servesim(["conform", path.as_str()]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), ""), "{kind}");
        let shown: Vec<&str> = ran.stdout.lines().collect();
        assert_eq!(shown[0], format!("different    {path}, line {} of the recording", at + 1));
        let name = field.rsplit('/').next().unwrap();
        assert!(shown[1].starts_with("    expected {\"k\":"), "{}", shown[1]);
        assert!(shown[1].contains(&format!("\"{name}\":{}", was + 1)), "{}", shown[1]);
        assert!(shown[2].starts_with("    found    {\"k\":"), "{}", shown[2]);
        assert!(shown[2].contains(&format!("\"{name}\":{was}")), "{}", shown[2]);
        let path = field[1..].replace('/', ".");
        assert_eq!(shown[3], format!("    in       {path}"));
        assert_eq!(shown[4..], ["0 same, 1 different"]);
    }
}

#[test]
fn what_is_no_recording_is_bad_input() {
    let doctored = Doctored::of("16-edge-output-one-sync");
    let folder = &doctored.folder;
    let case = folder.text("x.case.json");
    let refused = |path: &str, expected: &str| {
        let ran = servesim(["conform", path]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{path}");
        assert!(ran.stderr.starts_with(&format!("servesim: {path}")), "{}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    };
    refused(&folder.text("missing"), "No such file");
    refused(&folder.write("notes.txt", "x"), "no recorded case here");
    // The recording is missing, cut, or begins in the middle.
    let ran = servesim(["conform", case.as_str()]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("x.expect.jsonl: No such file"), "{}", ran.stderr);
    folder.write("x.expect.jsonl", "{\"k\":\"head\"");
    let ran = servesim(["conform", case.as_str()]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("x.expect.jsonl:1: "), "{}", ran.stderr);
    folder.write("x.expect.jsonl", format!("{}\n", doctored.lines[1]));
    refused(&case, "does not begin with a head line");
    // A case of a later format, or with a field that we would ignore.
    let plain: Value = serde_json::from_str(&folder.read("x.case.json")).unwrap();
    for (field, value, expected) in
        [("format", 2, "format is 2, expected 1"), ("lora", 1, "unknown field `lora`")]
    {
        let mut changed = plain.clone();
        changed[field] = json!(value);
        folder.write("x.case.json", changed.to_string());
        refused(&case, expected);
    }
}
