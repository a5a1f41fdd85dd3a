//! Is the shipped quick-start trace what its generator makes, and what its page says?
//!
//! `SERVESIM_BLESS=1 cargo test --test suite quickstart` writes the trace again.
//!
//! The generator uses integers and the four basic operations on doubles only, which every platform
//! rounds alike, so that it makes the same bytes everywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Prompt tokens that one hash id names.
const BLOCK_TOKENS: u32 = 512;
/// The last stamp is before this one.
const HORIZON_S: f64 = 600.0;
/// Sessions end before a longer prompt.
const PROMPT_TOKENS_MAX: u32 = 16_000;
const OUTPUT_TOKENS_MAX: u32 = 2_000;
/// Applications, each with a system prompt of its own; the n-th is used 1/n as often as the first.
const APPLICATIONS: u32 = 24;

/// Where a block's tokens come from. Equal owners, places and lengths mean equal whole prefixes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// The system prompt of an application.
    System(u32),
    /// What was said in a session.
    Session(u32),
}

/// One request before it is numbered.
struct Request {
    ms: u64,
    session: u32,
    turn: u32,
    application: u32,
    system_tokens: u32,
    prompt_tokens: u32,
    output_tokens: u32,
}

/// Random numbers of one stream.
struct Draws(ChaCha8Rng);

impl Draws {
    fn new(stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        rng.set_stream(stream);
        Self(rng)
    }

    /// Above 0, at most 1.
    fn unit(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * ln(self.unit())
    }

    /// A log-normal number of tokens. The normal is a sum of twelve uniforms, which ends at 6 sigma.
    fn tokens(&mut self, median: f64, sigma: f64, min: u32, max: u32) -> u32 {
        let normal = (0..12).map(|_| self.unit()).sum::<f64>() - 6.0;
        (median * exp(sigma * normal)).clamp(f64::from(min), f64::from(max)) as u32
    }
}

/// The exponential function for moderate `x`: a short series, squared ten times.
fn exp(x: f64) -> f64 {
    let y = x / 1024.0;
    let mut power = 1.0 + y * (1.0 + y / 2.0 * (1.0 + y / 3.0 * (1.0 + y / 4.0)));
    for _ in 0..10 {
        power *= power;
    }
    power
}

/// The natural logarithm of a number above 0 and at most 1.
fn ln(x: f64) -> f64 {
    let mut y = 0.0;
    // Halley's rule: up to two units a step while it is far away, then three times the digits.
    for _ in 0..40 {
        let power = exp(y);
        y += 2.0 * (x - power) / (x + power);
    }
    y
}

/// All requests in order of arrival.
fn requests() -> Vec<Request> {
    let mut draws = Draws::new(0);
    let system_tokens: Vec<u32> =
        (0..APPLICATIONS).map(|_| draws.tokens(900.0, 0.7, 120, 4_000)).collect();
    let weights: f64 = (1..=APPLICATIONS).map(|rank| 1.0 / f64::from(rank)).sum();

    let mut requests = Vec::new();
    let mut start_s = 0.0;
    let mut session = 0;
    while start_s < HORIZON_S {
        let mut draws = Draws::new(u64::from(session) + 1);
        let mut left = draws.unit() * weights;
        let application = (0..APPLICATIONS - 1)
            .find(|&at| {
                left -= 1.0 / f64::from(at + 1);
                left <= 0.0
            })
            .unwrap_or(APPLICATIONS - 1);
        let system = system_tokens[application as usize];
        converse(&mut draws, start_s, &mut requests, |ms, turn, prompt_tokens, output_tokens| {
            Request {
                ms,
                session,
                turn,
                application,
                system_tokens: system,
                prompt_tokens: system + prompt_tokens,
                output_tokens,
            }
        });
        // Sessions come in bursts: nine gaps of ten are short.
        start_s +=
            if draws.unit() < 0.9 { draws.exponential(0.05) } else { draws.exponential(6.8) };
        session += 1;
    }
    requests.sort_by_key(|r| (r.ms, r.session, r.turn));
    requests
}

/// The turns of one session. `request` takes stamp, turn, prompt tokens after the system prompt and
/// output tokens.
fn converse(
    draws: &mut Draws,
    start_s: f64,
    requests: &mut Vec<Request>,
    request: impl Fn(u64, u32, u32, u32) -> Request,
) {
    let mut now_s = start_s;
    let mut said = draws.tokens(220.0, 1.5, 8, 14_000);
    for turn in 0.. {
        let output_tokens = draws.tokens(125.0, 1.0, 1, OUTPUT_TOKENS_MAX);
        let next = request((now_s * 1000.0) as u64, turn, said, output_tokens);
        if next.prompt_tokens > PROMPT_TOKENS_MAX || now_s >= HORIZON_S {
            return;
        }
        requests.push(next);
        // About 50 tokens a second are read, then comes the next question; or the same once more,
        // for another answer; or nothing.
        now_s += f64::from(output_tokens) / 50.0 + draws.exponential(10.0);
        let fate = draws.unit();
        if fate < 0.57 {
            said += output_tokens + draws.tokens(90.0, 1.3, 4, 8_000);
        } else if fate > 0.6 {
            return;
        }
    }
}

/// The trace as text: ids are numbered by first appearance, the first stamp is 0.
fn trace() -> String {
    let requests = requests();
    let first_ms = requests[0].ms;
    let mut ids = BTreeMap::new();
    let mut text = String::new();
    for request in &requests {
        let mut named = Vec::new();
        for at in 0..request.prompt_tokens.div_ceil(BLOCK_TOKENS) {
            let end = request.prompt_tokens.min((at + 1) * BLOCK_TOKENS);
            let owner = if end <= request.system_tokens {
                Owner::System(request.application)
            } else {
                Owner::Session(request.session)
            };
            let next = ids.len();
            named.push(*ids.entry((owner, at, end)).or_insert(next));
        }
        writeln!(
            text,
            "{{\"timestamp\": {}, \"input_length\": {}, \"output_length\": {}, \"hash_ids\": {named:?}}}",
            request.ms - first_ms,
            request.prompt_tokens,
            request.output_tokens,
        )
        .unwrap();
    }
    text
}

fn traces() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("traces")
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
fn the_shipped_trace_is_what_the_generator_makes() {
    let path = traces().join("quickstart.jsonl");
    let made = trace();
    if std::env::var_os("SERVESIM_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, &made).unwrap();
    }
    // Compared as a whole, shown as the first line that differs.
    let shipped = std::fs::read_to_string(&path).unwrap();
    for (line, (shipped, made)) in (1..).zip(shipped.lines().zip(made.lines())) {
        assert_eq!(shipped, made, "line {line}");
    }
    assert!(shipped == made, "one of them goes on after the other's last line");
    assert!(made.len() < 1_000_000, "{} bytes", made.len());
}

#[test]
fn equal_ids_mean_equal_prefixes() {
    let text = trace();
    let rows = rows(&text);
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
    let page = std::fs::read_to_string(traces().join("README.md")).unwrap();
    let figures = figures(&rows(&trace()));
    assert!(page.contains(&figures), "traces/README.md should have the lines\n{figures}");
}

#[test]
fn exponentials_and_logarithms_are_near_the_true_ones() {
    for x in [-9.0, -1.0, 0.0, 0.5, 6.0, 9.0] {
        assert!((exp(x) / f64::exp(x) - 1.0).abs() < 1e-9, "{x}");
    }
    for x in [1e-16, 1e-3, 0.5, 1.0] {
        assert!((ln(x) - f64::ln(x)).abs() < 1e-6, "{x}");
    }
}
