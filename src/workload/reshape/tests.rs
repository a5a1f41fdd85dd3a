use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use super::*;

/// Rows of a Mooncake trace: stamp in ms, prompt, output, ids of 512 tokens.
fn trace(rows: &[(u64, u32, u32, &[u64])]) -> tempfile::NamedTempFile {
    let mut text = String::new();
    for (stamp, prompt, output, ids) in rows {
        writeln!(
            text,
            "{{\"timestamp\": {stamp}, \"input_length\": {prompt}, \"output_length\": {output}, \
             \"hash_ids\": {ids:?}}}"
        )
        .unwrap();
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn open(file: &Path, fields: &str, seed: u64) -> Result<ReshapedTrace, String> {
    let mut config: TraceConfig = serde_saphyr::from_str(fields).unwrap();
    config.path = file.to_owned();
    if let Some(reshape) = &mut config.reshape {
        reshape.resolve(file, Path::new("/")).map_err(|e| e.to_string())?;
    }
    ReshapedTrace::open(&config, seed).map_err(|e| e.to_string())
}

fn requests(file: &Path, fields: &str, seed: u64) -> Vec<RequestSpec> {
    let mut source = open(file, fields, seed).unwrap();
    let mut requests = Vec::new();
    while let Some(arrival) = source.next_arrival().unwrap() {
        let request = source.take();
        assert_eq!((request.arrival, request.id.index()), (arrival, requests.len()));
        requests.push(request);
    }
    assert_eq!(source.next_arrival().unwrap(), None);
    requests
}

fn arrivals_ms(requests: &[RequestSpec]) -> Vec<f64> {
    requests.iter().map(|request| request.arrival.as_ms()).collect()
}

/// Names and tokens of the pieces of a prompt.
fn pieces(request: &RequestSpec) -> Vec<(Segment, u32)> {
    let Content::Pieces(pieces) = &request.content else { return Vec::new() };
    pieces.iter().map(|piece| (piece.segment, piece.tokens)).collect()
}

#[test]
fn without_changes_it_is_the_trace() {
    let file = trace(&[(0, 600, 5, &[1, 2]), (10, 512, 6, &[1])]);
    let plain = requests(file.path(), "{}", 0);
    assert_eq!(plain, requests(file.path(), "{reshape: {}}", 1));
    assert_eq!(arrivals_ms(&plain), [0.0, 10.0]);
    assert!(open(file.path(), "{}", 0).unwrap().changes().is_none());
}

#[test]
fn ties_are_spread_over_their_quantum() {
    let file = trace(&[
        (0, 1, 1, &[1]),
        (0, 1, 1, &[2]),
        (0, 1, 1, &[3]),
        (3000, 1, 1, &[4]),
        (4000, 1, 1, &[5]),
        (4000, 1, 1, &[6]),
    ]);
    let all = requests(file.path(), "{reshape: {spread_ties_ms: 3000}}", 0);
    // Thirds of 3 s; the last stamp has its whole quantum, in halves.
    assert_eq!(arrivals_ms(&all), [0.0, 1000.0, 2000.0, 3000.0, 4000.0, 5500.0]);
    let lines: Vec<_> = all.iter().map(|request| request.line).collect();
    assert_eq!(lines, [1, 2, 3, 4, 5, 6]);
    // The quantum is one of trace time; a stamp never reaches into the next.
    let fast = requests(file.path(), "{speedup: 2, reshape: {spread_ties_ms: 9000}}", 0);
    assert_eq!(arrivals_ms(&fast), [0.0, 500.0, 1000.0, 1500.0, 2000.0, 4250.0]);
}

#[test]
fn a_sample_keeps_a_share_whatever_else_changes() {
    let rows: Vec<_> = (0..10_000).map(|at| (at, 1, 1, &[7][..])).collect();
    let file = trace(&rows);
    let lines = |fields: &str, seed| {
        requests(file.path(), fields, seed).iter().map(|r| r.line).collect::<Vec<_>>()
    };
    let kept = lines("{reshape: {sample_ratio: 0.3}}", 1);
    // Binomial: 3000, deviation sqrt(2100).
    assert!((kept.len() as f64 - 3000.0).abs() < 4.0 * 2100.0_f64.sqrt(), "{}", kept.len());
    assert_eq!(kept, lines("{reshape: {sample_ratio: 0.3, output_tokens: {uniform: {}}}}", 1));
    assert_ne!(kept, lines("{reshape: {sample_ratio: 0.3}}", 2));
    // A larger share keeps all of a smaller one.
    let more = lines("{reshape: {sample_ratio: 0.5}}", 1);
    assert!(kept.iter().all(|line| more.contains(line)) && more.len() > kept.len());
    let mut source = open(file.path(), "{reshape: {sample_ratio: 0.3}}", 1).unwrap();
    while source.next_arrival().unwrap().is_some() {
        source.take();
    }
    let counts = source.changes().unwrap();
    assert_eq!((counts.requests, counts.left_out), (kept.len() as u64, 10_000 - kept.len() as u64));
}

#[test]
fn copies_follow_each_other_and_share_nothing() {
    let file = trace(&[(5, 512, 1, &[1]), (15, 1000, 1, &[1, 2]), (25, 3, 1, &[3])]);
    let all = requests(file.path(), "{origin: zero, reshape: {repeat: 3}}", 0);
    // Copies are the span of 20 ms and the mean gap of 10 ms apart.
    assert_eq!(arrivals_ms(&all), [5.0, 15.0, 25.0, 35.0, 45.0, 55.0, 65.0, 75.0, 85.0]);
    assert_eq!(&all[..3], requests(file.path(), "{origin: zero}", 0));
    let first_segment = |at: usize| pieces(&all[at])[0].0;
    assert_eq!(first_segment(3), first_segment(4), "a copy shares within itself");
    let distinct = [0, 3, 6, 2, 5, 8].map(first_segment);
    assert!((1..6).all(|at| !distinct[..at].contains(&distinct[at])), "{distinct:?}");
    assert_eq!(all[7].output, Segment::Output(RequestId(7)));
}

#[test]
fn a_rate_keeps_the_pattern() {
    let file = trace(&[(0, 1, 1, &[1]), (100, 1, 1, &[1]), (400, 1, 1, &[1])]);
    // Two gaps in 0.4 s are 5 a second; at 10 all times are halved.
    let all = requests(file.path(), "{reshape: {requests_per_s: 10}}", 0);
    assert_eq!(arrivals_ms(&all), [0.0, 50.0, 200.0]);
    let twice = requests(file.path(), "{speedup: 8, reshape: {requests_per_s: 10}}", 0);
    assert_eq!(arrivals_ms(&twice), [0.0, 50.0, 200.0], "a rate is a rate");
    let one = trace(&[(7, 1, 1, &[1])]);
    let error = open(one.path(), "{reshape: {requests_per_s: 10}}", 0).err().unwrap();
    assert!(
        error.contains("`workload.trace.reshape.requests_per_s` is 10, expected none"),
        "{error}"
    );
}

#[test]
fn arrivals_can_be_those_of_a_process() {
    let file = trace(&[(0, 1, 4, &[1]), (100, 2, 5, &[1]), (400, 3, 6, &[1])]);
    let fields = "{reshape: {arrivals: {constant: {requests_per_s: 4}}}}";
    let all = requests(file.path(), fields, 0);
    assert_eq!(arrivals_ms(&all), [0.0, 250.0, 500.0]);
    assert_eq!(all.iter().map(|r| r.output_tokens).collect::<Vec<_>>(), [4, 5, 6]);
    // N / rate: the number of requests is found first.
    let fields = "{reshape: {arrivals: {vllm_bench: {request_rate: 2}}}}";
    assert!((requests(file.path(), fields, 0)[2].arrival.as_ms() - 1500.0).abs() < 1e-5);
    let mut users =
        open(file.path(), "{reshape: {arrivals: {closed_loop: {concurrency: 1}}}}", 0).unwrap();
    assert!(users.follows_ends());
    assert_eq!(users.next_arrival().unwrap(), Some(SimTime::ZERO));
    users.take();
    assert_eq!(users.next_arrival().unwrap(), None);
    users.ended(RequestId(0), SimTime::from_ns(9));
    assert_eq!(users.next_arrival().unwrap(), Some(SimTime::from_ns(9)));
    assert_eq!(users.take().prompt_tokens, 2);
}

#[test]
fn factors_scale_what_prompts_share() {
    let file = trace(&[(0, 1000, 5, &[1, 2]), (1, 1024, 0, &[1, 3])]);
    let all = requests(file.path(), "{reshape: {prompt_factor: 0.5, output_factor: 3}}", 0);
    let named = Segment::Named(1);
    // 1000 / 2 with an end at 512 / 2; 1024 / 2.
    assert_eq!((pieces(&all[0])[0], pieces(&all[0])[1].1), ((named, 256), 244));
    assert_eq!((pieces(&all[1])[0], pieces(&all[1])[1].1), ((named, 256), 256));
    assert_eq!([all[0].prompt_tokens, all[1].prompt_tokens], [500, 512]);
    assert_eq!([all[0].output_tokens, all[1].output_tokens], [15, 0]);
    // Some of something stays something.
    let least = requests(file.path(), "{reshape: {prompt_factor: 0.001, output_factor: 0.001}}", 0);
    assert_eq!((least[0].prompt_tokens, least[0].output_tokens), (1, 1));
    assert_eq!(pieces(&least[0]).iter().map(|piece| piece.1).sum::<u32>(), 1);
}

#[test]
fn lengths_can_be_drawn_and_are_capped_at_the_end() {
    let file = trace(&[(0, 1000, 5, &[1, 2]), (1, 600, 6, &[1, 3])]);
    let fields = "{max_tokens: 30, reshape: {prompt_tokens: {fixed: 700}, output_tokens: {fixed: 20}, \
                  output_factor: 2}}";
    let all = requests(file.path(), fields, 0);
    // The first is cut, the second goes on with tokens of its own.
    assert_eq!(pieces(&all[0]).len(), 2);
    assert_eq!(pieces(&all[1])[2], (Segment::Prompt(RequestId(1)), 100));
    for request in &all {
        assert_eq!(pieces(request)[0], (Segment::Named(1), 512));
        assert_eq!(pieces(request).iter().map(|piece| piece.1).sum::<u32>(), 700);
        // 20 x 2, cut at 30.
        assert_eq!((request.output_tokens, request.max_tokens), (30, 30));
    }
    let all = requests(file.path(), "{max_tokens: 30, reshape: {output_factor: 2}}", 0);
    assert_eq!((all[0].output_tokens, all[0].max_tokens), (10, 30), "it stops by itself");
}

#[test]
fn what_cannot_be_is_refused() {
    let file = trace(&[(0, 1, 1, &[1]), (3_000_000_000_000, 1, 1, &[1])]);
    // 95 years, and then again.
    let mut source = open(file.path(), "{reshape: {repeat: 2}}", 0).unwrap();
    source.next_arrival().unwrap();
    source.take();
    source.next_arrival().unwrap();
    source.take();
    let error = source.next_arrival().unwrap_err().to_string();
    assert!(
        error.starts_with("`workload.trace.reshape` is such that a request arrives"),
        "{error}"
    );

    for (fields, expected) in [
        ("spread_ties_ms: -1", "`spread_ties_ms` is -1"),
        ("sample_ratio: 0", "`sample_ratio` is 0, expected a number above 0, at most 1"),
        ("sample_ratio: .nan", "`sample_ratio` is NaN"),
        ("repeat: 0", "`repeat` is 0"),
        ("requests_per_s: 0", "`requests_per_s` is 0"),
        (
            "requests_per_s: 1, arrivals: {poisson: {}}",
            "`requests_per_s` is 1, expected none beside",
        ),
        ("arrivals: {poisson: {requests_per_s: 0}}", "`arrivals.poisson.requests_per_s` is 0"),
        ("prompt_tokens: {zipf: {min: 0}}", "`prompt_tokens.zipf.min` is 0"),
        ("prompt_factor: 0", "`prompt_factor` is 0"),
        ("output_factor: .inf", "`output_factor` is inf"),
        ("max_concurrency: 0", "`max_concurrency` is 0"),
    ] {
        let error = open(file.path(), &format!("{{reshape: {{{fields}}}}}"), 0).err().unwrap();
        assert!(error.starts_with(expected), "{error}");
    }
    for (fields, field) in [
        ("repeat: 2", "repeat"),
        ("requests_per_s: 1", "requests_per_s"),
        ("arrivals: {vllm_bench: {}}", "arrivals.vllm_bench"),
    ] {
        let fields = format!("{{reshape: {{{fields}}}}}");
        let error = open(Path::new("-"), &fields, 0).err().unwrap();
        assert!(
            error.starts_with(&format!("`{field}` is set, expected none for the standard")),
            "{error}"
        );
    }
}

/// A trace in servesim's own format.
fn own_trace(rows: &[&str]) -> tempfile::NamedTempFile {
    let header = "arrival_ms,prompt_tokens,output_tokens,max_tokens,priority,content";
    let text: String = std::iter::once(&header).chain(rows).flat_map(|row| [row, "\n"]).collect();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[test]
fn limits_of_rows_stay_where_outputs_do() {
    let file = own_trace(&["0,9,50,80,,", "1,9,50,,,"]);
    let limits = |fields: &str| {
        let all = requests(file.path(), fields, 0);
        all.iter().map(|r| (r.output_tokens, r.max_tokens)).collect::<Vec<_>>()
    };
    assert_eq!(limits("{}"), [(50, 80), (50, 50)]);
    assert_eq!(limits("{reshape: {requests_per_s: 5, prompt_factor: 2}}"), [(50, 80), (50, 50)]);
    assert_eq!(limits("{max_tokens: 60}"), [(50, 60), (50, 60)]);
    assert_eq!(limits("{max_tokens: 40, reshape: {repeat: 1}}"), [(40, 40), (40, 40)]);
    // An output of its own has a limit of its own.
    assert_eq!(limits("{reshape: {output_factor: 2}}"), [(100, 100), (100, 100)]);
    assert_eq!(limits("{reshape: {output_tokens: {fixed: 7}}}"), [(7, 7), (7, 7)]);
}

#[test]
fn prompts_go_on_from_the_same_requests_whatever_was_left_out() {
    // The k-th goes on from the one before; those of the first ten are out of the window.
    let rows: Vec<String> = (0..200_u32)
        .map(|at| match at {
            0 => "0,9,4,,,".to_owned(),
            _ => format!("{at},9,4,,,p{}:4 o{}:2 p{at}:3", at - 1, at - 1),
        })
        .collect();
    let file = own_trace(&rows.iter().map(String::as_str).collect::<Vec<_>>());
    let fields = "{window: {from_s: 0.01}, reshape: {sample_ratio: 0.6, repeat: 2}}";
    let all = requests(file.path(), fields, 3);
    // Line 2 has row 0.
    let row = |request: &RequestSpec| request.line - 2;
    let (mut continued, mut alone) = (0, Vec::new());
    for (at, request) in all.iter().enumerate() {
        let of = |id: usize| RequestId(id as u32);
        let expected = |piece: Segment, segment| assert_eq!(piece, segment, "{request:?}");
        let [(prompt, 4), (output, 2), (own, 3)] = pieces(request)[..] else {
            panic!("{request:?}")
        };
        expected(own, Segment::Prompt(of(at)));
        expected(request.output, Segment::Output(of(at)));
        if at > 0 && row(&all[at - 1]) + 1 == row(request) {
            expected(prompt, Segment::Prompt(of(at - 1)));
            expected(output, Segment::Output(of(at - 1)));
            continued += 1;
        } else {
            // Of what is not there nobody else has anything.
            assert!([prompt, output].iter().all(|name| matches!(name, Segment::Named(_))));
            alone.extend([prompt, output]);
        }
    }
    assert!(continued > 80 && alone.len() > 80, "{continued} and {}", alone.len());
    alone.sort_unstable();
    assert!(alone.windows(2).all(|pair| pair[0] != pair[1]));
}
