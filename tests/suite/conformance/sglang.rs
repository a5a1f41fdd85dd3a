//! The same of SGLang's scheduler, whose files hold many cases.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use servesim::conform::{Recording, Verdict, find_recordings};

use super::text;
use crate::support::{Folder, lines_of, repository, servesim, shared};

const SELECTION: &str = "tests/conformance/sglang";

/// A case as its lines, the first of which describes it.
struct Block {
    /// The number of that line in the file.
    number: usize,
    lines: Vec<Value>,
}

impl Block {
    fn name(&self) -> &str {
        self.lines[0]["input"]["name"].as_str().unwrap()
    }

    /// What was recorded, without what was asked.
    fn recorded(&self) -> &[Value] {
        &self.lines[1..]
    }
}

/// The cases of a file, read without servesim.
fn blocks(path: &Path) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for (line, number) in text(path).lines().zip(1..) {
        let line: Value = serde_json::from_str(line).unwrap();
        match blocks.last_mut() {
            Some(block) if line.get("input").is_none() => block.lines.push(line),
            _ => blocks.push(Block { number, lines: vec![line] }),
        }
    }
    blocks
}

/// The files of a folder, one per family, by the family's name.
fn files(folder: &Path) -> BTreeMap<String, PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let family = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        Some(name.strip_suffix(".jsonl.gz")?.to_owned())
    };
    paths.filter_map(|path| Some((family(&path)?, path))).collect()
}

/// Every case of every file is the same in all its lines. Gives the number of cases by family.
fn assert_conform(folder: &Path) -> BTreeMap<String, usize> {
    let files = files(folder);
    let recordings = find_recordings(folder).unwrap();
    let found: Vec<&Path> = recordings.iter().map(Recording::path).collect();
    assert!(found.iter().eq(files.values()), "{found:?}");
    for recording in &recordings {
        let blocks = blocks(recording.path());
        let cases = recording.cases().unwrap();
        assert_eq!(cases.len(), blocks.len());
        for (case, block) in cases.iter().zip(blocks) {
            assert_eq!(case.name(), Some(block.name()));
            let lines = block.recorded().len();
            assert_eq!(case.check().unwrap(), Verdict::Same { lines }, "{case}");
        }
    }
    files.into_iter().map(|(family, path)| (family, blocks(&path).len())).collect()
}

#[test]
fn the_selection_conforms() {
    assert_eq!(assert_conform(&repository(SELECTION)).values().sum::<usize>(), 44);
}

#[test]
fn everything_that_was_recorded_conforms() {
    let Some(folder) = shared("conformance/sglang") else { return };
    let index: Value =
        serde_json::from_str(&fs::read_to_string(folder.join("index.json")).unwrap()).unwrap();
    let families = index.as_object().unwrap().iter();
    let recorded: BTreeMap<String, usize> = families
        .map(|(family, counts)| (family.clone(), counts["cases"].as_u64().unwrap() as usize))
        .collect();
    assert_eq!(assert_conform(&folder), recorded);
}

#[test]
fn the_selection_has_every_family_and_every_edge() {
    let files = files(&repository(SELECTION));
    let families: Vec<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(
        families,
        [
            "batch",
            "chunked",
            "conserv",
            "edge",
            "evict",
            "evictpolicy",
            "fuzz",
            "maxrun",
            "mixed",
            "noradix",
            "page",
            "policyx",
            "pressure",
            "priority",
            "radix",
            "single"
        ]
    );
    // The edges are numbered from 14000, and come round after fourteen.
    let edges = blocks(&files["edge"]);
    let number =
        |block: &Block| block.name().strip_prefix("edge-").unwrap().parse::<usize>().unwrap();
    let kinds: BTreeSet<usize> = edges.iter().map(|block| number(block) % 14).collect();
    assert_eq!((kinds.len(), edges.len()), (14, 14));
}

#[test]
fn the_selection_has_every_policy_and_everything_that_can_happen() {
    let mut settings = BTreeSet::new();
    let mut happened = BTreeSet::new();
    for path in files(&repository(SELECTION)).values() {
        for block in blocks(path) {
            let config = &block.lines[0]["input"]["config"];
            for key in ["schedule_policy", "radix_eviction_policy", "retraction_policy", "overlap"]
            {
                settings.insert(config[key].to_string());
            }
            for line in block.recorded() {
                happened.insert(line["kind"].to_string());
                happened.insert(line["reason"].to_string());
                let lists = ["retracted", "preempted", "aborted", "stuck"];
                let lists = lists
                    .iter()
                    .filter(|&&key| line[key].as_array().is_some_and(|list| !list.is_empty()));
                happened.extend(lists.map(|key| (*key).to_owned()));
            }
        }
    }
    for name in [
        "fcfs",
        "lpm",
        "dfs-weight",
        "lof",
        "hrrn",
        "shortest-prefill-first",
        "lfu",
        "slru",
        "fifo",
        "mru",
        "filo",
        "priority",
        "length",
    ] {
        assert!(settings.contains(&format!("\"{name}\"")), "{name}");
    }
    assert!(settings.contains("true") && settings.contains("false"));
    for name in ["extend", "decode", "mixed", "length", "stop", "abort", "none"] {
        assert!(happened.contains(&format!("\"{name}\"")), "{name}");
    }
    for list in ["retracted", "preempted", "aborted", "stuck"] {
        assert!(happened.contains(list), "{list}");
    }
}

/// A recorded case that can be changed, with others around it in its file.
struct Doctored {
    folder: Folder,
    lines: Vec<Value>,
}

impl Doctored {
    fn of(name: &str) -> Self {
        let (family, _) = name.split_once('-').unwrap();
        let blocks = blocks(&files(&repository(SELECTION))[family]);
        let block = blocks.into_iter().find(|block| block.name() == name).unwrap();
        Self { folder: Folder::new(), lines: block.lines }
    }

    fn check(&self, lines: &[Value]) -> Verdict {
        self.folder.write("x.jsonl", lines_of(lines));
        let recordings = find_recordings(&self.folder.path("x.jsonl")).unwrap();
        let cases = recordings[0].cases().unwrap();
        let [case] = cases.as_slice() else { panic!("{cases:?}") };
        case.check().unwrap()
    }

    /// The line (from 1) that differs, and the keys, once line `at` (from 0) holds `value` at `pointer`.
    fn difference(&self, at: usize, pointer: &str, value: Value) -> Option<(usize, Vec<String>)> {
        let mut lines = self.lines.clone();
        *lines[at].pointer_mut(pointer).unwrap() = value;
        match self.check(&lines) {
            Verdict::Different { line, keys, .. } => Some((line, keys)),
            _ => None,
        }
    }

    /// Lines that are unlike those before them: by their keys, and by what of it is nothing.
    fn kinds_of_lines(&self) -> Vec<usize> {
        let mut seen = BTreeSet::new();
        let shape = |line: &Value| {
            let fields = line.as_object().unwrap().iter();
            let is_nothing =
                |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
            let fields: Vec<_> =
                fields.map(|(key, value)| (key.clone(), is_nothing(value))).collect();
            (fields, line["kind"].to_string(), line["reason"].to_string())
        };
        let recorded = self.lines.iter().enumerate().skip(1);
        recorded.filter(|(_, line)| seen.insert(shape(line))).map(|(at, _)| at).collect()
    }
}

/// Something else that could stand in the place of a value.
fn another(pointer: &str, value: &Value) -> Value {
    let other = |choices: [&str; 2]| json!(choices[usize::from(value == choices[0])]);
    match value {
        Value::String(_) if pointer == "/kind" => other(["extend", "decode"]),
        Value::String(_) if pointer == "/reason" => other(["length", "stop"]),
        Value::String(_) if pointer == "/policy" => other(["fcfs", "lpm"]),
        Value::String(text) => json!(format!("{text}x")),
        Value::Bool(is) => json!(!is),
        Value::Null => json!(1),
        Value::Number(number) => match number.as_u64() {
            Some(count) => json!(count + 1),
            // The next number that there is.
            None => json!(f64::from_bits(number.as_f64().unwrap().to_bits() + 1)),
        },
        Value::Array(_) | Value::Object(_) => panic!("{value} holds others"),
    }
}

/// Pointers to all values in `value` that hold no others.
fn leaves(value: &Value, pointer: &str, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                leaves(item, &format!("{pointer}/{at}"), found);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                leaves(field, &format!("{pointer}/{name}"), found);
            }
        }
        leaf => found.push((pointer.to_owned(), leaf.clone())),
    }
}

#[test]
fn every_single_value_of_a_recording_matters() {
    // Refused, stuck and turned away; mixed; retracted; displaced.
    for name in
        ["edge-14000", "edge-14024", "edge-14013", "page-9001", "fuzz-16032", "priority-13007"]
    {
        let doctored = Doctored::of(name);
        let mut compared = 0;
        for at in doctored.kinds_of_lines() {
            let mut found = Vec::new();
            leaves(&doctored.lines[at], "", &mut found);
            for (pointer, value) in found {
                // What the recording says of the recorded engine.
                if ["/sglang", "/tree_core"].contains(&pointer.as_str()) {
                    continue;
                }
                let changed = doctored.difference(at, &pointer, another(&pointer, &value));
                let (line, keys) = changed.unwrap_or_else(|| panic!("{name}, {pointer} of {at}"));
                assert_eq!(line, at + 1, "{name}, {pointer}");
                assert!(
                    pointer[1..].replace('/', ".").starts_with(&keys[0]),
                    "{pointer}: {keys:?}"
                );
                compared += 1;
            }
        }
        // A head with 10 values, two forwards with 20 or more, a request with 8, an end with 10.
        assert!(compared > 60, "{name} has {compared} values");
    }
}

#[test]
fn a_line_too_many_or_too_few_is_found_where_it_is() {
    let doctored = Doctored::of("edge-14024");
    let all = &doctored.lines;
    assert_eq!(doctored.check(all), Verdict::Same { lines: all.len() - 1 });
    let line_of = |lines: &[Value]| match doctored.check(lines) {
        Verdict::Different { line, expected, found, .. } => {
            (line, expected.is_some(), found.is_some())
        }
        verdict => panic!("{verdict:?}"),
    };
    assert_eq!(line_of(&all[..all.len() - 1]), (all.len(), false, true));
    let longer: Vec<Value> = all.iter().chain(all.last()).cloned().collect();
    assert_eq!(line_of(&longer), (all.len() + 1, true, false));
    // The first two lines describe the case, and what its configuration came to.
    for at in 2..all.len() - 1 {
        let mut lines = all.clone();
        lines.remove(at);
        assert_eq!(line_of(&lines), (at + 1, true, true));
        let mut lines = all.clone();
        lines.swap(at, at + 1);
        assert_eq!(line_of(&lines), (at + 1, true, true));
    }
}

#[test]
fn the_command_counts_cases_and_shows_the_line_of_the_file() {
    let file = files(&repository(SELECTION)).remove("radix").unwrap();
    let shown = file.display();
    let blocks = blocks(&file);
    let same = |block: &Block| {
        format!("same         {shown}, {} ({} lines)", block.name(), block.recorded().len())
    };
    let ran = servesim(["conform", file.to_str().unwrap()]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let mut expected: Vec<String> = blocks.iter().map(same).collect();
    assert_eq!(expected.len(), 3);
    expected.push("3 same, 0 different".to_owned());
    assert_eq!(ran.stdout.lines().collect::<Vec<_>>(), expected);

    // One more cached token in the second forward of the second case.
    let mut lines: Vec<Value> = blocks.iter().flat_map(|block| block.lines.clone()).collect();
    let number = blocks[1].number + 3;
    let was = lines[number - 1].clone();
    let evictable = &mut lines[number - 1]["at"]["evict"];
    *evictable = json!(evictable.as_u64().unwrap() + 1);
    let folder = Folder::new();
    let path = folder.write("x.jsonl", lines_of(&lines));
    let ran = servesim(["conform", "--quiet", &path]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), ""));
    assert_eq!(
        ran.stdout.lines().collect::<Vec<_>>(),
        [
            &format!("different    {path}, {}, line {number} of the recording", blocks[1].name()),
            &format!("    expected {}", lines[number - 1]),
            &format!("    found    {was}"),
            "    in       at.evict",
            "2 same, 1 different",
        ]
    );
}

#[test]
fn what_is_no_recording_is_bad_input() {
    let lines = Doctored::of("edge-14024").lines;
    let folder = Folder::new();
    let refused = |change: &dyn Fn(&mut Vec<Value>), expected: &str| {
        let mut lines = lines.clone();
        change(&mut lines);
        let path = folder.write("x.jsonl", lines_of(&lines));
        let ran = servesim(["conform", &path]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{expected}");
        assert!(ran.stderr.starts_with(&format!("servesim: {path}")), "{}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    };
    refused(&|lines| drop(lines.remove(0)), "no recorded case here");
    refused(&|lines| drop(lines.remove(1)), ":1: no `case` line");
    refused(&|lines| lines[3]["lora"] = json!(1), ":4: unknown field `lora`");
    refused(&|lines| lines[4] = json!({"ends": true}), ":5: the line begins with `ends`");
    refused(&|lines| lines[0]["input"]["config"]["page_size"] = json!(0), ":1: `page_size` is 0");
    refused(
        &|lines| lines[0]["input"]["requests"][1]["prompt"] = json!([[1, 16, 4]]),
        ":1: request r1: a piece of its prompt starts at 16, expected 0",
    );
}
