use std::fs;
use std::path::{Path, PathBuf};

use super::*;

/// The made-up pool of two clients.
fn pool() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servegen")
}

fn open(path: &Path, fields: &str, seed: u64) -> Result<ServeGenSource, TraceError> {
    let yaml = format!("{{path: {:?}{fields}}}", path.display().to_string());
    let mut config: ServeGenConfig = serde_saphyr::from_str(&yaml).unwrap();
    config.resolve(Path::new("/")).map_err(TraceError::from)?;
    ServeGenSource::open(&config, seed)
}

fn requests_of(source: &mut ServeGenSource) -> Vec<RequestSpec> {
    let mut requests = Vec::new();
    while let Some(arrival) = source.next_arrival().unwrap() {
        let request = source.take();
        assert_eq!((request.arrival, request.id.index()), (arrival, requests.len()));
        requests.push(request);
    }
    assert!(requests.is_sorted_by_key(|request| request.arrival));
    requests
}

/// The requests of the made-up pool under further fields.
fn requests(fields: &str, seed: u64) -> Vec<RequestSpec> {
    requests_of(&mut open(&pool(), fields, seed).unwrap())
}

/// What is left of a request without its place among all, its arrival in nanoseconds of the day.
fn own(request: &RequestSpec, from_s: u64) -> (u64, u32, u32) {
    (request.arrival.as_ns() + from_s * 1_000_000_000, request.prompt_tokens, request.output_tokens)
}

/// Prompts of client 3 begin with 1000 tokens of text; those of client 0 are shorter.
fn is_of_three(request: &RequestSpec) -> bool {
    request.prompt_tokens >= 1000
}

/// Requests of both clients in each of the three windows.
fn counts(requests: &[RequestSpec]) -> [[usize; 3]; 2] {
    let mut counts = [[0; 3]; 2];
    for request in requests {
        let window = request.arrival.as_ns() / 600_000_000_000;
        counts[usize::from(is_of_three(request))][window as usize] += 1;
    }
    counts
}

#[test]
fn each_window_of_each_client_has_the_requests_of_its_rate() {
    // 2, 0 and 1 a second, and 0.5, 1.5 and 0, for 600 s each.
    let mut source = open(&pool(), "", 1).unwrap();
    assert_eq!(counts(&requests_of(&mut source)), [[1200, 0, 600], [300, 900, 0]]);
    let described = source.describe();
    assert_eq!((described.pool_clients, described.clients, described.pool_windows), (2, 2, 3));
    assert_eq!((described.from_s, described.to_s, described.rate_factor), (0.0, 1800.0, 1.0));
    assert!((described.requests_per_s - 3000.0 / 1800.0).abs() < 1e-12);
    // (1200 x 2 + 600 x 0.5227 + 300 x 1 + 900 x 2.2361) / 3000.
    assert!((described.interarrival_cv - 1.675_37).abs() < 1e-5, "{}", described.interarrival_cv);
    assert_eq!(described.ignored_fields, ["reason_ratio"]);
}

#[test]
fn all_rates_are_scaled_by_one_factor() {
    // 3000 requests in 1800 s; 5 a second are three times as many.
    for fields in [", requests_per_s: 5", ", rate_factor: 3"] {
        assert_eq!(counts(&requests(fields, 1)), [[3600, 0, 1800], [900, 2700, 0]], "{fields}");
    }
    // The mean of the window counts: 2.5 a second there, so this is a factor of 1 / 2.
    let half = requests(", requests_per_s: 1.25, window: {to_s: 600}", 1);
    assert_eq!(counts(&half), [[600, 0, 0], [150, 0, 0]]);
}

/// The share of `sample` that is `value` lies within four deviations of its probability.
fn assert_share(sample: &[u32], value: u32, probability: f64) {
    let n = sample.len() as f64;
    let found = sample.iter().filter(|&&other| other == value).count() as f64;
    let sd = (n * probability * (1.0 - probability)).sqrt();
    assert!((found - n * probability).abs() <= 4.0 * sd, "{value}: {found} of {n}");
}

#[test]
fn lengths_come_from_the_part_of_the_day() {
    let all = requests(", rate_factor: 10", 2);
    let late = |r: &RequestSpec| r.arrival.as_ns() >= 1_200_000_000_000;
    let of = |keep: &dyn Fn(&RequestSpec) -> bool, tokens: fn(&RequestSpec) -> u32| {
        all.iter().filter(|r| keep(r)).map(tokens).collect::<Vec<_>>()
    };
    let (prompt, output) = (|r: &RequestSpec| r.prompt_tokens, |r: &RequestSpec| r.output_tokens);
    let early = of(&|r| !is_of_three(r) && !late(r), prompt);
    for (tokens, probability) in [(100, 0.5), (200, 0.25), (400, 0.25)] {
        assert_share(&early, tokens, probability);
    }
    assert_share(&of(&|r| !is_of_three(r) && !late(r), output), 10, 0.75);
    // The probabilities of 0.4 each add up to 0.8.
    assert_share(&of(&|r| !is_of_three(r) && late(r), prompt), 150, 0.5);
    assert!(of(&|r| !is_of_three(r) && late(r), output).iter().all(|&tokens| tokens == 20));
    // 1000 of text, and none (1/4), one (1/2) or three images of 256 or 512 each: 1256 is one small
    // image; 2024 three, of which one is large (3/8), as is 1768 + 512.
    let images = of(&is_of_three, prompt);
    for (tokens, probability) in [
        (1000, 0.25),
        (1256, 0.25),
        (1512, 0.25),
        (1768, 1.0 / 32.0),
        (2024, 3.0 / 32.0),
        (2536, 1.0 / 32.0),
    ] {
        assert_share(&images, tokens, probability);
    }
}

#[test]
fn lengths_are_correlated_on_request_only() {
    // Of client 0 until 600 s: the shortest half of the prompts, and the shorter 3/4 of the outputs.
    let both = |fields: &str| {
        let all =
            requests(&format!(", clients: 1, window: {{to_s: 600}}, rate_factor: 10{fields}"), 3);
        let long = all.iter().filter(|r| r.output_tokens == 50);
        let (long, of_those): (usize, usize) =
            long.fold((0, 0), |(n, k), r| (n + 1, k + usize::from(r.prompt_tokens == 400)));
        of_those as f64 / long as f64
    };
    // A quarter of the prompts has 400 tokens, and a quarter of the outputs is long. Independent: a
    // quarter of 3000, four deviations of 0.8 %. One draw for both: the same quarter.
    assert!((both("") - 0.25).abs() < 0.032);
    assert!((both(", length_correlation: 1") - 1.0).abs() < 1e-9);
}

#[test]
fn the_seed_decides_the_draws() {
    assert_eq!(requests("", 1), requests("", 1));
    assert_ne!(requests("", 1), requests("", 2));
}

#[test]
fn leaving_out_a_client_shifts_no_draw() {
    let all = requests("", 4);
    let expected: Vec<_> = all.iter().filter(|r| !is_of_three(r)).map(|r| own(r, 0)).collect();
    // Client 0 sends 1800 requests, client 3 sends 1200; between 600 and 1200 s it is the other way.
    let busiest: Vec<_> = requests(", clients: 1", 4).iter().map(|r| own(r, 0)).collect();
    assert_eq!(busiest, expected);
    let busiest = requests(", clients: 1, window: {from_s: 300, to_s: 1250}", 4);
    assert!(busiest.iter().all(is_of_three));
    assert_eq!(requests(", clients: 9", 4), all, "no more than there are");
}

#[test]
fn a_part_of_the_day_is_what_the_day_has_there() {
    let all = requests("", 5);
    let part = requests(", window: {from_s: 300, to_s: 1250}", 5);
    let inside = |&(at, ..): &(u64, u32, u32)| (300_000_000_000..1_250_000_000_000).contains(&at);
    let expected: Vec<_> = all.iter().map(|r| own(r, 0)).filter(inside).collect();
    assert_eq!(part.iter().map(|r| own(r, 300)).collect::<Vec<_>>(), expected);
    let first = requests(", requests: 70", 5);
    assert_eq!(first, all[..70]);
}

#[test]
fn lengths_are_capped() {
    let capped = requests(", prompt_tokens_max: 1200, max_tokens: 8", 6);
    for (capped, whole) in capped.iter().zip(requests("", 6)) {
        assert_eq!(capped.prompt_tokens, whole.prompt_tokens.min(1200));
        assert_eq!((capped.output_tokens, capped.max_tokens), (whole.output_tokens.min(8), 8));
        assert_eq!(whole.max_tokens, whole.output_tokens);
    }
}

#[test]
fn what_cannot_be_generated_names_its_field() {
    for (fields, expected) in [
        (
            ", window: {from_s: 1800}",
            "`workload.servegen.window.from_s` is 1800, expected a part of the pool's 0 to 1800 s",
        ),
        (", window: {to_s: 1801}", "`workload.servegen.window.to_s` is 1801"),
        (", rate_factor: 1000000", "`workload.servegen.rate_factor` is such that there are 16"),
    ] {
        let error = open(&pool(), fields, 0).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

/// A folder with the files of a pool, by name.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

const TRACE: &str = "0,1,1,Gamma,1,1\n600,0,0,,0,0\n";
const DATASET: &str = r#"{"0": {"input_tokens": "{4: 1}", "output_tokens": "{2: 1}"}}"#;
const LATE: &str = r#"{"0": {"input_tokens": "{}", "output_tokens": "{2: 1}"},
    "600": {"input_tokens": "{4: 1}", "output_tokens": "{2: 1}"}}"#;

#[test]
fn each_unusable_pool_says_what_is_wrong() {
    for (files, expected) in [
        (
            &[("notes.md", "")][..],
            ": no clients, expected a folder, or a tar archive of one, with `chunk-K",
        ),
        (&[("chunk-7-trace.csv", TRACE)], "/chunk-7-dataset.json: no such file"),
        (&[("chunk-7-dataset.json", DATASET)], "/chunk-7-trace.csv: no such file"),
        (
            &[("chunk-7-trace.csv", TRACE), ("chunk-7-dataset.json", LATE)],
            "/chunk-7-dataset.json: no lengths by 0 s, expected",
        ),
        (
            &[("chunk-7-trace.csv", "0,1,1,Gamma,1\n"), ("chunk-7-dataset.json", DATASET)],
            "/chunk-7-trace.csv:1: 5 cells, expected 6",
        ),
        (
            &[("chunk-7-trace.csv", "0,0,0,,0,0\n"), ("chunk-7-dataset.json", DATASET)],
            "`workload.servegen.window` is 0 to 600 s, expected a part of the day in which a client sends",
        ),
    ] {
        let folder = folder(files);
        let error = open(folder.path(), "", 0).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let mut archive = tar::Builder::new(Vec::new());
    for name in ["a/chunk-0-trace.csv", "b/chunk-0-trace.csv"] {
        let mut header = tar::Header::new_gnu();
        header.set_size(TRACE.len() as u64);
        archive.append_data(&mut header, name, TRACE.as_bytes()).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pools.tar");
    fs::write(&path, archive.into_inner().unwrap()).unwrap();
    let error = open(&path, "", 0).unwrap_err().to_string();
    assert!(error.contains("b/chunk-0-trace.csv: a second file of that name, after"), "{error}");
}

#[test]
fn more_requests_than_numbers_are_refused_unless_limited() {
    // A year at 900 a second are 28,401,696,000.
    let trace = "0,900,1,Gamma,1,1\n31557600,0,0,,0,0\n";
    let folder = folder(&[("chunk-0-trace.csv", trace), ("chunk-0-dataset.json", DATASET)]);
    let error = open(folder.path(), "", 0).unwrap_err().to_string();
    assert!(error.contains("at most 4294967294 requests of a client in a window"), "{error}");
    let hours: Vec<_> = (0..2000).map(|hour| format!("{},900,1,Gamma,1,1", hour * 3600)).collect();
    fs::write(folder.path().join("chunk-0-trace.csv"), hours.join("\n")).unwrap();
    let error = open(folder.path(), "", 0).unwrap_err().to_string();
    let expected =
        "`workload.servegen.requests` is absent, and the window holds 6480000000, expected";
    assert!(error.starts_with(expected), "{error}");
    assert_eq!(requests_of(&mut open(folder.path(), ", requests: 3", 0).unwrap()).len(), 3);
}
