//! Is the shipped quick-start trace what the command on its page writes, and what the page says?
//!
//! Logarithms and their like come from a library of their own, so that it is the same bytes on every
//! platform. `SERVESIM_BLESS=1 cargo test --test suite quickstart` writes the trace again.

use std::collections::{BTreeMap, BTreeSet};

use super::support::{Folder, repository, servesim};

/// Prompt tokens that one hash id names.
const BLOCK_TOKENS: u32 = 512;
const OUTPUT_TOKENS_MAX: u32 = 2_000;

/// A file beside the trace.
fn beside(name: &str) -> String {
    std::fs::read_to_string(repository("traces").join(name)).unwrap()
}

/// What the command on the page writes.
fn made() -> String {
    let page = beside("README.md");
    let command = page.lines().find_map(|line| line.strip_prefix("servesim trace synth ")).unwrap();
    let folder = Folder::new();
    let scenario = repository("traces/quickstart.yaml").display().to_string();
    let args = command.split(' ').map(|arg| match arg {
        "traces/quickstart.yaml" => scenario.clone(),
        "traces/quickstart.jsonl" => folder.text("quickstart.jsonl"),
        arg => arg.to_owned(),
    });
    let args: Vec<_> = ["trace", "synth"].map(str::to_owned).into_iter().chain(args).collect();
    let ran = servesim(&args);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    folder.read("quickstart.jsonl")
}

/// One row of the trace, read without servesim.
struct Row {
    timestamp: u64,
    input_length: u64,
    output_length: u64,
    hash_ids: Vec<u64>,
}

fn rows(text: &str) -> Vec<Row> {
    let row = |line| {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let number = |name| row[name].as_u64().unwrap();
        Row {
            timestamp: number("timestamp"),
            input_length: number("input_length"),
            output_length: number("output_length"),
            hash_ids: serde_json::from_value(row["hash_ids"].clone()).unwrap(),
        }
    };
    text.lines().map(row).collect()
}

/// The table of `traces/README.md`.
fn figures(rows: &[Row]) -> String {
    let spread = |mut values: Vec<u64>| {
        values.sort_unstable();
        let count = values.len();
        let mean = values.iter().sum::<u64>() as f64 / count as f64;
        format!("{mean:.0} / {} / {}", values[count / 2], values[count - 1])
    };
    let mut seen = BTreeSet::new();
    let (mut tokens, mut shared) = (0, 0);
    for row in rows {
        tokens += row.input_length;
        for (at, &id) in (0..).zip(&row.hash_ids) {
            let end = row.input_length.min((at + 1) * u64::from(BLOCK_TOKENS));
            shared += if seen.insert(id) { 0 } else { end - at * u64::from(BLOCK_TOKENS) };
        }
    }
    let gaps: Vec<f64> = rows
        .windows(2)
        .map(|pair| (pair[1].timestamp - pair[0].timestamp) as f64 / 1000.0)
        .collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean) * (gap - mean)).sum::<f64>();
    let cv = (variance / gaps.len() as f64).sqrt() / mean;
    let span_s = rows.last().unwrap().timestamp as f64 / 1000.0;
    format!(
        "| requests | {} |\n\
         | span | {span_s:.1} s |\n\
         | mean rate | {:.2} requests/s |\n\
         | coefficient of variation of the time between arrivals | {cv:.2} |\n\
         | prompt tokens, mean / median / max | {} |\n\
         | output tokens, mean / median / max | {} |\n\
         | distinct hash ids | {} |\n\
         | prompt tokens whose block an earlier request had | {:.1} % |\n",
        rows.len(),
        rows.len() as f64 / span_s,
        spread(rows.iter().map(|r| r.input_length).collect()),
        spread(rows.iter().map(|r| r.output_length).collect()),
        seen.len(),
        100.0 * f64::from(u32::try_from(shared).unwrap()) / tokens as f64,
    )
}

#[test]
fn the_shipped_trace_is_what_its_command_writes() {
    let made = made();
    if std::env::var_os("SERVESIM_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(repository("traces/quickstart.jsonl"), &made).unwrap();
    }
    // Compared as a whole, shown as the first line that differs.
    let shipped = beside("quickstart.jsonl");
    for (line, (shipped, made)) in (1..).zip(shipped.lines().zip(made.lines())) {
        assert_eq!(shipped, made, "line {line}");
    }
    assert!(shipped == made, "one of them goes on after the other's last line");
    assert!(made.len() < 1_000_000, "{} bytes", made.len());
}

#[test]
fn equal_ids_mean_equal_prefixes() {
    let rows = rows(&beside("quickstart.jsonl"));
    let mut places = BTreeMap::new();
    let mut next = 0;
    for row in &rows {
        assert_eq!(row.hash_ids.len() as u64, row.input_length.div_ceil(u64::from(BLOCK_TOKENS)));
        assert!((1..=u64::from(OUTPUT_TOKENS_MAX)).contains(&row.output_length));
        let mut before = None;
        for (at, &id) in row.hash_ids.iter().enumerate() {
            // New ids are the next number, old ones follow what they always follow.
            if id == next {
                next += 1;
            }
            assert!(id < next);
            let tail = (at + 1 == row.hash_ids.len())
                .then_some(row.input_length % u64::from(BLOCK_TOKENS))
                .filter(|&tokens| tokens > 0);
            assert_eq!(*places.entry(id).or_insert((at, before, tail)), (at, before, tail));
            before = Some(id);
        }
    }
    assert!(rows.is_sorted_by_key(|row| row.timestamp));
}

#[test]
fn the_page_states_the_figures_of_the_trace() {
    let figures = figures(&rows(&beside("quickstart.jsonl")));
    assert!(
        beside("README.md").contains(&figures),
        "traces/README.md should have the lines\n{figures}"
    );
}
