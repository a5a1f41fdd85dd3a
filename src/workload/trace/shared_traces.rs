//! Real traces, where they are at hand: `$SERVESIM_SHARED`, else `../shared` beside the crate.
//! Elsewhere these tests say that they were skipped. The expected figures are those that the traces'
//! publishers and descriptions state.

use std::path::PathBuf;

use super::config::Ties;
use super::*;
use crate::base::testing;
use crate::workload::sessions::config::{SessionsConfig, ThinkConfig};
use crate::workload::stats::StatsCollector;

/// A real trace, if it is at hand.
fn shared(name: &str) -> Option<PathBuf> {
    testing::shared(&format!("traces/{name}"))
}

/// All requests of a trace, with what the reader says about it.
fn read(
    path: PathBuf,
    change: impl FnOnce(&mut TraceConfig),
) -> (Vec<RequestSpec>, TraceCounts, SourceDescription) {
    let mut config = TraceConfig { path, ..TraceConfig::default() };
    change(&mut config);
    let mut source = TraceSource::open(&config).unwrap();
    let requests: Vec<_> =
        std::iter::from_fn(|| source.next_request().transpose()).map(Result::unwrap).collect();
    (requests, source.counts(), source.describe())
}

/// What a description states of a trace; means rounded to whole tokens, the span to whole seconds.
#[derive(Debug, PartialEq, Eq)]
struct Figures {
    rows: usize,
    span_s: u64,
    prompt_mean: u64,
    prompt_max: u32,
    output_mean: u64,
}

fn figures(requests: &[RequestSpec]) -> Figures {
    let mean = |tokens: fn(&RequestSpec) -> u32| {
        let sum: u64 = requests.iter().map(|r| u64::from(tokens(r))).sum();
        let count = requests.len() as u64;
        (sum + count / 2) / count
    };
    Figures {
        rows: requests.len(),
        span_s: (requests.last().unwrap().arrival.as_ns() + 500_000_000) / 1_000_000_000,
        prompt_mean: mean(|r| r.prompt_tokens),
        prompt_max: requests.iter().map(|r| r.prompt_tokens).max().unwrap(),
        output_mean: mean(|r| r.output_tokens),
    }
}

#[test]
fn the_mooncake_conversation_trace_is_read_whole() {
    let Some(path) = shared("mooncake-fast25/conversation_trace.jsonl.gz") else { return };
    let (requests, counts, described) = read(path, |_| ());
    assert_eq!(
        figures(&requests),
        Figures {
            rows: 12_031,
            span_s: 3537,
            prompt_mean: 12_035,
            prompt_max: 126_195,
            output_mean: 343
        }
    );
    assert_eq!((counts.rows_read, counts.requests_with_content), (12_031, 12_031));
    assert!(counts.read_to_end && described.gzip && described.content_identity);
    assert_eq!(described.origin.as_deref(), Some("0 ms"));
    assert!(described.ignored_fields.is_empty());
    for request in &requests {
        let Content::Pieces(pieces) = &request.content else { panic!("{request:?}") };
        assert_eq!(pieces.iter().map(|p| p.tokens).sum::<u32>(), request.prompt_tokens);
    }
}

#[test]
fn ties_by_content_give_back_the_order_of_nearly_every_instant() {
    let Some(path) = shared("mooncake-fast25/conversation_trace.jsonl.gz") else { return };
    let (by_content, ..) = read(path.clone(), |_| ());
    let (by_file, ..) = read(path, |c| c.ties = Ties::File);
    assert!(by_file.is_sorted_by_key(|r| r.line));
    // Requests of one instant as they would be told apart without their lines.
    let instants = |requests: Vec<RequestSpec>| {
        requests
            .chunk_by(|a, b| a.arrival == b.arrival)
            .map(|instant| {
                let unnamed = |r: &RequestSpec| RequestSpec { line: 0, ..r.clone() };
                instant.iter().map(unnamed).collect::<Vec<_>>()
            })
            .collect::<Vec<_>>()
    };
    let (by_content, by_file) = (instants(by_content), instants(by_file));
    assert_eq!(by_content.len(), 1180);
    assert_eq!(by_content.iter().zip(&by_file).filter(|(a, b)| a == b).count(), 1072);
}

#[test]
fn the_mooncake_synthetic_trace_is_read_whole() {
    let Some(path) = shared("mooncake-fast25/synthetic_trace.jsonl") else { return };
    let (requests, ..) = read(path, |c| c.sort_window_s = 0.0);
    assert_eq!(
        figures(&requests),
        Figures {
            rows: 3993,
            span_s: 1022,
            prompt_mean: 15_325,
            prompt_max: 191_378,
            output_mean: 149
        }
    );
}

#[test]
fn the_azure_traces_are_read_whole() {
    let Some(path) = shared("azure-llm-2023/AzureLLMInferenceTrace_code.csv") else { return };
    let (requests, _, described) = read(path, |_| ());
    assert_eq!(
        figures(&requests),
        Figures { rows: 8819, span_s: 3436, prompt_mean: 2048, prompt_max: 7437, output_mean: 28 }
    );
    assert_eq!(described.format, TraceFormat::Azure);
    assert_eq!(described.origin.as_deref(), Some("2023-11-16T18:17:03.97996Z"));
    // 19:14:19.9280160 - 18:17:03.9799600, to the last digit.
    assert_eq!(requests.last().unwrap().arrival.as_ns(), 3_435_948_056_000);

    let Some(path) = shared("azure-llm-2023/AzureLLMInferenceTrace_conv.csv") else { return };
    let (requests, ..) = read(path, |_| ());
    assert_eq!(
        figures(&requests),
        Figures {
            rows: 19_366,
            span_s: 3502,
            prompt_mean: 1155,
            prompt_max: 14_050,
            output_mean: 211
        }
    );
}

#[test]
fn the_ragpulse_trace_is_read_whole() {
    let Some(path) = shared("ragpulse/0_trace.jsonl") else { return };
    // Line 3801 starts the week again.
    let (requests, counts, described) = read(path, |c| c.sort_window_s = 604_800.0);
    let figures = figures(&requests);
    assert_eq!((figures.rows, figures.span_s), (7106, 604_603));
    assert_eq!((figures.prompt_mean, figures.output_mean), (2944, 283));
    assert_eq!(counts.requests_with_content, 7106);
    assert_eq!(described.format, TraceFormat::RagPulse);
    assert!(described.sessions_ignored);
}

#[test]
fn other_traces_say_what_they_lack() {
    let error = |name, format| {
        let path = shared(name)?;
        let config = TraceConfig { path, format, ..TraceConfig::default() };
        let answer = TraceSource::open(&config).and_then(|mut source| source.next_request());
        Some(answer.expect_err("must be refused").to_string())
    };
    let lengths =
        "arxiv-summarization-lengths/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv";
    if let Some(error) = error(lengths, TraceFormat::Auto) {
        assert!(error.contains("no arrivals, expected a column `arrived_at`"), "{error}");
    }
    if let Some(error) = error(CONVERSATIONS, TraceFormat::Auto) {
        assert!(error.starts_with("`workload.trace.sessions` is absent, expected"), "{error}");
    }
}

const CONVERSATIONS: &str = "agentic-kv-cache-tester/traces_subset.jsonl.gz";

/// Who follows whom is read.
fn with_sessions(config: &mut TraceConfig) {
    config.sessions = Some(SessionsConfig::Think(ThinkConfig::default()));
}

#[test]
fn the_conversations_are_read_whole() {
    let Some(path) = shared(CONVERSATIONS) else { return };
    let mut config = TraceConfig { path, ..TraceConfig::default() };
    with_sessions(&mut config);
    let mut source = TraceSource::open(&config).unwrap();
    let mut collector = StatsCollector::new(64, &[]);
    let mut begun = 0;
    while let Some(request) = source.next_request().unwrap() {
        begun += u64::from(request.turn.as_ref().unwrap().is_start);
        collector.add(&request);
    }
    let (stats, described) = (collector.finish(), source.describe());
    // Requests of subagents included.
    assert_eq!(stats.requests, 11_113);
    let mean = stats.prompt_tokens.unwrap().mean;
    assert!((mean / 1000.0 - 104.0).abs() <= 0.5, "{mean}");
    // Ids of one session are no other's, so that this is what each finds in itself.
    let reuse = stats.prefix.ideal_hit_ratio.unwrap() * 100.0;
    assert!((reuse - 95.7).abs() <= 0.05, "{reuse}");
    let sessions = stats.sessions.unwrap();
    assert_eq!((sessions.sessions, begun), (203, 203));
    assert_eq!(sessions.followers, 11_113 - 203);
    assert_eq!((described.format, described.gzip), (TraceFormat::Weka, true));
    assert_eq!(described.hash_block_tokens, Some(64));
}

#[test]
fn the_ragpulse_sessions_are_read_whole() {
    let Some(path) = shared("ragpulse/0_trace.jsonl") else { return };
    let (requests, ..) = read(path, |config| {
        with_sessions(config);
        config.sort_window_s = 604_800.0;
    });
    let mut collector = StatsCollector::new(16, &[]);
    requests.iter().for_each(|request| collector.add(request));
    let sessions = collector.finish().sessions.unwrap();
    assert_eq!((sessions.sessions, sessions.turns.total), (3990, 7106));
}

/// What a description states of a trace, each to its last digit; what it does not state is `None`.
struct Stated {
    name: &'static str,
    requests_per_s: Option<(f64, f64)>,
    /// What a cache that forgets nothing finds, in percent.
    reuse: Option<(f64, f64)>,
    interarrival_cv: Option<(f64, f64)>,
}

#[test]
fn statistics_are_those_of_the_descriptions() {
    let of = |name, requests_per_s, reuse, interarrival_cv| Stated {
        name,
        requests_per_s,
        reuse,
        interarrival_cv,
    };
    for stated in [
        of("mooncake-fast25/conversation_trace.jsonl.gz", None, Some((37.4, 0.05)), None),
        of("mooncake-fast25/synthetic_trace.jsonl", None, Some((65.1, 0.05)), None),
        of("ragpulse/0_trace.jsonl", Some((0.012, 0.0005)), Some((31.4, 0.05)), None),
        of(
            "azure-llm-2023/AzureLLMInferenceTrace_code.csv",
            Some((2.57, 0.005)),
            None,
            Some((13.2, 0.05)),
        ),
        of(
            "azure-llm-2023/AzureLLMInferenceTrace_conv.csv",
            Some((5.53, 0.005)),
            None,
            Some((1.09, 0.005)),
        ),
    ] {
        let Some(path) = shared(stated.name) else { continue };
        let mut collector = StatsCollector::new(512, &[]);
        read(path, |c| c.sort_window_s = 604_800.0).0.iter().for_each(|r| collector.add(r));
        let stats = collector.finish();
        let reuse = stats.prefix.ideal_hit_ratio.map(|ratio| ratio * 100.0);
        assert_eq!(reuse.is_some(), stated.reuse.is_some(), "{}", stated.name);
        for (found, stated_value) in [
            (stats.requests_per_s, stated.requests_per_s),
            (reuse, stated.reuse),
            (stats.interarrival_cv, stated.interarrival_cv),
        ] {
            let is_near = found
                .zip(stated_value)
                .is_none_or(|(found, (value, digit))| (found - value).abs() <= digit);
            assert!(is_near, "{}: {found:?}, stated {stated_value:?}", stated.name);
        }
    }
}
