//! Real pools, where they are at hand: `$SERVESIM_SHARED`, else `../shared` beside the crate. Elsewhere
//! these tests say that they were skipped. The expected figures are those of their description.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::*;
use crate::base::testing::shared;

/// What the description states of a pool: clients, windows, requests per second (mean, least and most of
/// a window), rate-weighted variation; rounded as there.
fn figures(path: &Path) -> (usize, u64, [f64; 3], f64) {
    let pool = Pool::read(path).unwrap();
    let mut rates: BTreeMap<u64, f64> = BTreeMap::new();
    for window in pool.clients.iter().flat_map(|client| &client.windows) {
        *rates.entry(window.start_ns).or_default() += window.requests_per_s;
    }
    assert_eq!(rates.len() as u64, pool.windows);
    let tenth = |x: f64| (x * 10.0).round() / 10.0;
    let mean = rates.values().sum::<f64>() / pool.windows as f64;
    let least = rates.values().copied().fold(f64::MAX, f64::min);
    let most = rates.values().copied().fold(0.0, f64::max);
    let cv = weighted_cv(&pool.clients, pool.span_ns);
    let rates = [mean, least, most].map(tenth);
    (pool.clients.len(), pool.windows, rates, (cv * 100.0).round() / 100.0)
}

/// Mean and variance of a distribution; a reading of its own, so that a mistake of the reader shows.
fn moments(part: &Value, field: &str) -> (f64, f64) {
    let text = part[field].as_str().unwrap().trim_matches(['{', '}']);
    let entries = text.split(", ").map(|entry| {
        let (value, weight) = entry.split_once(": ").unwrap();
        (value.parse::<f64>().unwrap(), weight.parse::<f64>().unwrap())
    });
    let (mut sum, mut square) = (0.0, 0.0);
    for (value, weight) in entries {
        sum += weight * value;
        square += weight * value * value;
    }
    (sum, square - sum * sum)
}

/// Mean and variance of the prompts of a part of the day. Of N images, each with mean m and variance v:
/// E(N) m and E(N) v + Var(N) m^2.
fn prompt_moments(part: &Value) -> (f64, f64) {
    if part.get("input_tokens").is_some() {
        return moments(part, "input_tokens");
    }
    let (mut mean, mut variance) = moments(part, "text_tokens");
    for kind in ["image", "audio", "video"] {
        let (number, spread) = moments(part, &format!("{kind}_count"));
        let (tokens, own) = moments(part, &format!("{kind}_tokens"));
        mean += number * tokens;
        variance += number * own + spread * tokens * tokens;
    }
    (mean, variance)
}

/// What the files of a pool let expect.
#[derive(Default)]
struct Expected {
    /// Requests by window.
    requests: BTreeMap<u64, f64>,
    /// Sum of the means and of the variances of all requests.
    prompt: (f64, f64),
    output: (f64, f64),
}

fn expected(path: &Path) -> Expected {
    let (mut traces, mut datasets) = (BTreeMap::new(), BTreeMap::new());
    files::each(path, &mut |file| {
        let text = String::from_utf8(file.bytes).unwrap();
        match file.kind {
            files::Kind::Trace => traces.insert(file.client, text),
            files::Kind::Dataset => datasets.insert(file.client, text),
        };
        Ok(())
    })
    .unwrap();
    let mut expected = Expected::default();
    for (client, trace) in traces {
        let dataset: Value = serde_json::from_str(&datasets[&client]).unwrap();
        let mut known = BTreeMap::new();
        for line in trace.lines() {
            let cells: Vec<_> = line.split(',').collect();
            let (start, rate): (u64, f64) = (cells[0].parse().unwrap(), cells[1].parse().unwrap());
            let requests = rate * 600.0;
            *expected.requests.entry(start).or_default() += requests;
            if rate <= 0.0 {
                continue;
            }
            let key = start / 21_600 * 21_600;
            let (prompt, output) = known.entry(key).or_insert_with(|| {
                let part = &dataset[key.to_string()];
                (prompt_moments(part), moments(part, "output_tokens"))
            });
            for (sums, of) in [(&mut expected.prompt, prompt), (&mut expected.output, output)] {
                sums.0 += requests * of.0;
                sums.1 += requests * of.1;
            }
        }
    }
    expected
}

/// The sum of all lengths lies within four deviations of what the files let expect: the draws are
/// independent, so their variances add up.
fn assert_sum(found: f64, (mean, variance): (f64, f64)) {
    assert!((found - mean).abs() < 4.0 * variance.sqrt(), "{found} {mean} {}", variance.sqrt());
}

/// Generates the whole day and compares it with the files.
fn assert_day(path: &Path) {
    let expected = expected(path);
    let config = ServeGenConfig { path: path.to_owned(), ..ServeGenConfig::default() };
    let mut source = ServeGenSource::open(&config, 11).unwrap();
    let mut requests: BTreeMap<u64, f64> = expected.requests.keys().map(|&at| (at, 0.0)).collect();
    let (mut prompt, mut output) = (0.0, 0.0);
    while source.next_arrival().unwrap().is_some() {
        let request = source.take();
        let window = request.arrival.as_ns() / 600_000_000_000 * 600;
        *requests.get_mut(&window).unwrap() += 1.0;
        prompt += f64::from(request.prompt_tokens);
        output += f64::from(request.output_tokens);
    }
    // Rates of whole requests in 600 s: every window has exactly those, but for a double's last digits.
    for (window, requests) in requests {
        let expected = expected.requests[&window];
        assert!((requests - expected).abs() < 1e-6, "{window}: {requests} {expected}");
    }
    assert_sum(prompt, expected.prompt);
    assert_sum(output, expected.output);
}

#[test]
fn the_reasoning_pool_is_generated_as_its_files_say() {
    let Some(path) = shared("traces/servegen/deepseek-r1.tar.gz") else { return };
    assert_eq!(figures(&path), (73, 144, [16.0, 4.3, 42.5], 2.28));
    assert_day(&path);
}

#[test]
fn the_image_pool_is_generated_as_its_files_say() {
    let Some(path) = shared("traces/servegen/mm-image.tar.gz") else { return };
    assert_eq!(figures(&path), (35, 144, [9.5, 4.9, 13.3], 2.21));
    assert_day(&path);
}

#[test]
fn bursts_do_not_meet_at_the_edges_of_windows() {
    let Some(path) = shared("traces/servegen/deepseek-r1.tar.gz") else { return };
    let config = ServeGenConfig { path, ..ServeGenConfig::default() };
    let mut source = ServeGenSource::open(&config, 3).unwrap();
    let mut tenths = [0_u64; 10];
    while source.next_arrival().unwrap().is_some() {
        let within = source.take().arrival.as_ns() % 600_000_000_000;
        tenths[(within / 60_000_000_000) as usize] += 1;
    }
    // 1,383,669 requests, of which each tenth of the windows has one in ten. They come in bursts: the
    // variance of a count is that of a Poisson process times the square of the gaps' variation, 6.35 on
    // average by the laws of the pool. So the deviation of a share is below
    // sqrt(0.1 x 6.35 / 1,383,669) = 0.07 %; four of them.
    let all: u64 = tenths.iter().sum();
    for tenth in tenths {
        assert!((tenth as f64 / all as f64 - 0.1).abs() < 0.003, "{tenths:?}");
    }
}
