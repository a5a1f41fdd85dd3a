//! From the bytes of a trace to its requests.

use std::fmt::Write;
use std::io::Cursor;

use proptest::prelude::*;

use super::config::{Ties, TraceWindow};
use super::*;
use crate::workload::request::{Piece, Segment};

fn open(text: &str, config: &TraceConfig) -> Result<TraceSource, TraceError> {
    let lines = Lines::new(Box::new(Cursor::new(text.to_owned())), "t".into(), 1 << 20)?;
    TraceSource::new(Opened::of_lines(lines, config)?, config)
}

fn drain(source: &mut TraceSource) -> Result<Vec<RequestSpec>, TraceError> {
    std::iter::from_fn(|| source.next_request().transpose()).collect()
}

/// All requests, and what became of the rows.
fn replay(
    text: &str,
    change: impl FnOnce(&mut TraceConfig),
) -> Result<(Vec<RequestSpec>, TraceCounts), TraceError> {
    let mut config = TraceConfig { path: "t".into(), ..TraceConfig::default() };
    change(&mut config);
    let mut source = open(text, &config)?;
    let requests = drain(&mut source)?;
    let counts = source.counts();
    assert_eq!(counts.requests, requests.len() as u64);
    assert_eq!(
        counts.rows_read,
        counts.requests + counts.skipped_by_window + counts.skipped_by_limit
    );
    assert!(requests.is_sorted_by_key(|r| r.arrival));
    assert!(requests.iter().enumerate().all(|(at, r)| r.id.index() == at));
    Ok((requests, counts))
}

fn refused(text: &str, change: impl FnOnce(&mut TraceConfig)) -> String {
    replay(text, change).expect_err("must be refused").to_string()
}

/// A Mooncake row without ids.
fn row(ms: u64, input: u32, output: u32) -> String {
    format!("{{\"timestamp\": {ms}, \"input_length\": {input}, \"output_length\": {output}}}\n")
}

/// Rows at these stamps, with prompt lengths 1, 2, ...
fn rows(stamps: &[u64]) -> String {
    stamps.iter().zip(1..).map(|(&ms, input)| row(ms, input, 1)).collect()
}

/// Arrivals in milliseconds with the prompt lengths.
fn arrivals(requests: &[RequestSpec]) -> Vec<(f64, u32)> {
    requests.iter().map(|r| (r.arrival.as_ms(), r.prompt_tokens)).collect()
}

#[test]
fn the_first_stamp_is_time_zero_unless_stamps_are_kept() {
    let text = rows(&[5000, 7000]);
    let (requests, counts) = replay(&text, |_| ()).unwrap();
    assert_eq!(arrivals(&requests), [(0.0, 1), (2000.0, 2)]);
    assert_eq!(
        counts,
        TraceCounts { rows_read: 2, requests: 2, read_to_end: true, ..TraceCounts::default() }
    );
    let (requests, _) = replay(&text, |c| c.origin = Origin::Zero).unwrap();
    assert_eq!(arrivals(&requests), [(5000.0, 1), (7000.0, 2)]);
}

#[test]
fn the_origin_is_the_earliest_stamp_and_not_the_first_line() {
    let (requests, _) = replay(&rows(&[6000, 5000]), |_| ()).unwrap();
    assert_eq!(arrivals(&requests), [(0.0, 2), (1000.0, 1)]);
}

#[test]
fn speedup_divides_and_rounds_to_the_nearest_nanosecond() {
    let (requests, _) = replay(&rows(&[1000, 2000, 5000]), |c| c.speedup = 2.0).unwrap();
    assert_eq!(arrivals(&requests), [(0.0, 1), (500.0, 2), (2000.0, 3)]);
    // 1 ms / 3 = 333,333.33 ns; 2 ms / 3 = 666,666.67 ns; 5 ns / 2 = 2.5 ns.
    let (requests, _) = replay(&rows(&[0, 1, 2]), |c| c.speedup = 3.0).unwrap();
    let ns: Vec<_> = requests.iter().map(|r| r.arrival.as_ns()).collect();
    assert_eq!(ns, [0, 333_333, 666_667]);
    assert_eq!(arrival(5, 2.0), Some(SimTime::from_ns(3)));
}

#[test]
fn a_window_is_half_open_and_starts_the_clock() {
    let text = rows(&[1000, 1999, 2000, 2500, 2999, 3000, 9000]);
    let window =
        |from_s, to_s| move |c: &mut TraceConfig| c.window = Some(TraceWindow { from_s, to_s });
    let (requests, counts) = replay(&text, window(1.0, Some(2.0))).unwrap();
    assert_eq!(arrivals(&requests), [(0.0, 3), (500.0, 4), (999.0, 5)]);
    assert_eq!((counts.rows_read, counts.skipped_by_window), (7, 4));
    let (requests, _) = replay(&text, window(1.5, None)).unwrap();
    assert_eq!(arrivals(&requests), [(0.0, 4), (499.0, 5), (500.0, 6), (6500.0, 7)]);
    let (requests, _) = replay(&text, |c| {
        window(2.0, Some(2.5))(c);
        c.origin = Origin::Zero;
    })
    .unwrap();
    assert_eq!(arrivals(&requests), [(0.0, 3)]);
    let (requests, counts) = replay(&text, window(60.0, None)).unwrap();
    assert_eq!((requests.len(), counts.skipped_by_window), (0, 7));
}

#[test]
fn rows_after_the_window_are_not_read() {
    let text = rows(&[0, 1000, 2000, 3000]) + "no row at all\n";
    let (requests, counts) = replay(&text, |c| {
        c.window = Some(TraceWindow { from_s: 0.0, to_s: Some(1.0) });
        c.sort_window_s = 0.0;
    })
    .unwrap();
    assert_eq!(arrivals(&requests), [(0.0, 1)]);
    assert_eq!((counts.rows_read, counts.read_to_end), (3, false));
}

#[test]
fn a_limit_takes_the_first_requests_by_arrival() {
    let text = rows(&[0, 3000, 2000, 1000]);
    let (requests, counts) = replay(&text, |c| c.limit = Some(2)).unwrap();
    assert_eq!(arrivals(&requests), [(0.0, 1), (1000.0, 4)]);
    assert_eq!((counts.skipped_by_limit, counts.read_to_end), (2, true));
    // Of the window, where there is one.
    let (requests, _) = replay(&text, |c| {
        c.limit = Some(1);
        c.window = Some(TraceWindow { from_s: 1.5, to_s: None });
    })
    .unwrap();
    assert_eq!(arrivals(&requests), [(500.0, 3)]);
    let (requests, counts) = replay(&text, |c| c.limit = Some(4)).unwrap();
    assert_eq!((requests.len(), counts.skipped_by_limit), (4, 0));
}

#[test]
fn an_output_limit_cuts_or_leaves_a_stop_token() {
    let text = row(0, 1, 10) + &row(1, 1, 20) + &row(2, 1, 0);
    let outputs = |limit| {
        let (requests, _) = replay(&text, |c| c.max_tokens = limit).unwrap();
        requests.iter().map(|r| (r.output_tokens, r.max_tokens)).collect::<Vec<_>>()
    };
    assert_eq!(outputs(None), [(10, 10), (20, 20), (0, 0)]);
    assert_eq!(outputs(Some(15)), [(10, 15), (15, 15), (0, 15)]);
}

#[test]
fn zero_lengths_pass_through() {
    let (requests, _) = replay(&(row(0, 0, 5) + &row(0, 5, 0)), |_| ()).unwrap();
    assert_eq!(requests.len(), 2);
}

#[test]
fn the_format_is_told_by_the_first_line() {
    let azure = "ContextTokens,TIMESTAMP,GeneratedTokens\n3,2023-11-16 18:00:00,4\n";
    let config = TraceConfig { path: "t".into(), ..TraceConfig::default() };
    let mut source = open(azure, &config).unwrap();
    assert_eq!(source.describe().origin, None);
    assert_eq!(drain(&mut source).unwrap().len(), 1);
    let described = source.describe();
    assert_eq!(described.format, TraceFormat::Azure);
    assert_eq!(described.origin.as_deref(), Some("2023-11-16T18:00:00Z"));
    assert_eq!((described.hash_block_tokens, described.content_identity), (None, false));

    let mooncake = "\n{\"timestamp\": 1.5, \"input_length\": 3, \"output_length\": 4, \
                    \"hash_ids\": [7], \"session_id\": \"a\"}\n";
    let mut source = open(mooncake, &config).unwrap();
    let requests = drain(&mut source).unwrap();
    let tail = Piece { segment: Segment::Tail { name: 7, tokens: 3 }, tokens: 3 };
    assert_eq!(requests[0].content, Content::Pieces(vec![tail]));
    assert_eq!(requests[0].line, 2);
    assert_eq!(
        source.describe(),
        SourceDescription {
            format: TraceFormat::Mooncake,
            gzip: false,
            time_unit: "ms",
            origin: Some("1.5 ms".to_owned()),
            hash_block_tokens: Some(512),
            content_identity: true,
            ties: Ties::Content,
            ignored_fields: vec!["session_id".to_owned()],
            sessions_ignored: true,
        }
    );
    assert_eq!(source.counts().requests_with_content, 1);
}

#[test]
fn what_fits_no_format_is_shown_with_what_would() {
    assert_eq!(
        refused("prompt_len,output_len\n1,2\n", |_| ()),
        format!(
            "t:1: unknown trace format, the line starts with \"prompt_len,output_len\", expected {}",
            accepted_starts()
        )
    );
    assert!(accepted_starts().contains("`{` (Mooncake JSON lines), or `arrival_ns"));
    // A format that is given is believed, and then the line is what is wrong.
    let error = refused("prompt_len,output_len\n1,2\n", |c| c.format = TraceFormat::Mooncake);
    assert!(error.starts_with("t:1:1: malformed JSON: "), "{error}");
    let error = refused("{}\n", |c| c.format = TraceFormat::Azure);
    assert!(error.starts_with("t:1: column `TIMESTAMP` is missing"), "{error}");
}

#[test]
fn a_trace_without_rows_is_refused() {
    let header = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
    for (text, format) in [
        ("", TraceFormat::Auto),
        ("\n \n", TraceFormat::Auto),
        ("", TraceFormat::Mooncake),
        (header, TraceFormat::Auto),
    ] {
        let error = refused(text, |c| c.format = format);
        assert_eq!(error, "t: no rows, expected at least one request");
    }
}

#[test]
fn rows_too_late_for_the_sort_window_are_refused_with_a_hint() {
    let text = rows(&[0, 61_000, 1000]);
    assert_eq!(replay(&text, |_| ()).unwrap().0.len(), 3);
    assert_eq!(
        refused(&rows(&[0, 61_500, 1000]), |_| ()),
        "t:3: `timestamp` is 60.5 s before a stamp of an earlier line, expected at most 60 s; sort \
         the file, or raise `sort_window_s`"
    );
    assert!(refused(&text, |c| c.sort_window_s = 59.999).starts_with("t:3: `timestamp` is 60 s"));
    assert_eq!(replay(&rows(&[0, 1, 1, 2]), |c| c.sort_window_s = 0.0).unwrap().0.len(), 4);
}

#[test]
fn dates_cannot_count_from_zero() {
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00,3,4\n";
    assert!(
        refused(text, |c| c.origin = Origin::Zero).starts_with("t: `origin` is zero, expected")
    );
}

#[test]
fn arrivals_end_after_a_hundred_years() {
    let latest = SimTime::LATEST_INPUT.as_ns();
    assert_eq!(arrival(i128::from(latest), 1.0), Some(SimTime::LATEST_INPUT));
    assert_eq!(arrival(i128::from(latest) + 1, 1.0), None);
    assert_eq!(arrival(-1, 1.0), None);
    assert_eq!(arrival(i128::MAX, 1.0), None);
    assert_eq!(arrival(1, 1e-300), None);
    assert_eq!(arrival(i128::from(latest), 1e300), Some(SimTime::ZERO));
    assert_eq!(
        refused(&rows(&[0, 3_153_600_000]), |c| c.speedup = 0.0005),
        "t:2: `timestamp` is 3153600 s after the start of the replay, expected an arrival within \
         100 years (at `speedup` 0.0005)"
    );
    let dates = "TIMESTAMP,ContextTokens,GeneratedTokens\n1900-01-01 00:00:00,3,4\n\
                 2023-11-16 18:00:00,3,4\n";
    assert!(refused(dates, |_| ()).starts_with("t:3: `TIMESTAMP` is 3909146400 s after"));
}

#[test]
fn requests_that_cannot_be_numbered_are_refused() {
    let config = TraceConfig { path: "t".into(), ..TraceConfig::default() };
    let mut source = open(&rows(&[0, 1]), &config).unwrap();
    source.counts.requests = u64::from(u32::MAX) - 1;
    assert_eq!(source.next_request().unwrap().unwrap().id.index(), u32::MAX as usize - 1);
    let error = source.next_request().unwrap_err();
    assert!(matches!(error, TraceError::TooManyRequests { line: 2, .. }));
    assert!(error.to_string().starts_with("t:2: more than 4294967295 requests"));
    // An error is the last thing a source says.
    assert_eq!(source.next_request().unwrap(), None);
}

#[test]
fn files_are_opened_by_their_configuration() {
    let config = TraceConfig { speedup: -1.0, path: "t".into(), ..TraceConfig::default() };
    let error = TraceSource::open(&config).err().unwrap().to_string();
    assert!(error.starts_with("`speedup` is -1"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.jsonl");
    let config = TraceConfig { path: path.clone(), ..TraceConfig::default() };
    let error = TraceSource::open(&config).err().unwrap().to_string();
    assert_eq!(error, format!("{}: no such file", path.display()));
    std::fs::write(&path, rows(&[3, 4])).unwrap();
    assert_eq!(drain(&mut TraceSource::open(&config).unwrap()).unwrap().len(), 2);
}

#[test]
fn the_shipped_trace_is_read_whole() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("traces/quickstart.jsonl");
    let mut source = TraceSource::open(&TraceConfig { path, ..TraceConfig::default() }).unwrap();
    let requests = drain(&mut source).unwrap();
    // Its ids are numbered by first appearance and no two rows are alike, so ties keep the order.
    assert!(requests.is_sorted_by_key(|r| r.line));
    assert_eq!(requests.len() as u64, source.counts().requests_with_content);
    // What ties rows to each other is not asked for.
    assert_eq!(source.describe().ignored_fields, ["delay", "session_id"]);
}

#[test]
fn ignored_fields_are_few_and_independent_of_order() {
    let mut forward = IgnoredFields::default();
    let mut backward = IgnoredFields::default();
    for n in 0..40 {
        forward.add(&format!("f{n:02}"));
        backward.add(&format!("f{:02}", 39 - n));
    }
    assert_eq!(forward.names, backward.names);
    assert_eq!(forward.names.last().unwrap(), "f31");
}

/// Rows of a Mooncake trace as text, each with its stamp in ms. Few distinct values, so that ties
/// and equal rows are common.
fn mooncake_rows() -> impl Strategy<Value = Vec<(u64, String)>> {
    let row = (0_u64..6, 1_u32..4, 0_u32..3, 0_u64..3, -1_i32..2, any::<bool>());
    prop::collection::vec(row, 1..40).prop_map(|rows| {
        let line =
            |(ms, blocks, output, id, priority, has_ids): (u64, u32, u32, u64, i32, bool)| {
                let mut text = format!(
                    "{{\"timestamp\": {ms}, \"input_length\": {}, \"output_length\": {output}, \
                 \"priority\": {priority}",
                    blocks * 512 - output
                );
                if has_ids {
                    let ids: Vec<u64> = (0..u64::from(blocks)).map(|at| id * at).collect();
                    write!(text, ", \"hash_ids\": {ids:?}").unwrap();
                }
                (ms, text + "}\n")
            };
        rows.into_iter().map(line).collect()
    })
}

fn text_of(rows: &[(u64, String)]) -> String {
    rows.iter().map(|(_, text)| text.as_str()).collect()
}

/// What a run sees of requests: everything but the line they stood in.
fn without_lines(requests: Vec<RequestSpec>) -> Vec<RequestSpec> {
    requests.into_iter().map(|r| RequestSpec { line: 0, ..r }).collect()
}

proptest! {
    #[test]
    fn shuffled_lines_of_an_instant_change_nothing(
        (rows, shuffled) in mooncake_rows()
            .prop_flat_map(|rows| (Just(rows.clone()), Just(rows).prop_shuffle())),
    ) {
        let sorted = |mut rows: Vec<(u64, String)>| {
            // Stable, so that the lines of an instant keep their shuffled order.
            rows.sort_by_key(|&(ms, _)| ms);
            text_of(&rows)
        };
        let (a, counts_a) = replay(&sorted(rows), |c| c.sort_window_s = 0.0).unwrap();
        let (b, counts_b) = replay(&sorted(shuffled), |c| c.sort_window_s = 0.0).unwrap();
        prop_assert_eq!(without_lines(a), without_lines(b));
        prop_assert_eq!(counts_a, counts_b);
    }

    #[test]
    fn rows_out_of_order_within_the_window_give_the_same_requests(
        (rows, shuffled) in mooncake_rows()
            .prop_flat_map(|rows| (Just(rows.clone()), Just(rows).prop_shuffle())),
        limit in prop::option::of(1_u64..50),
    ) {
        let limited = |c: &mut TraceConfig| c.limit = limit;
        let (a, _) = replay(&text_of(&rows), limited).unwrap();
        let (b, _) = replay(&text_of(&shuffled), limited).unwrap();
        prop_assert_eq!(without_lines(a), without_lines(b));
    }

    #[test]
    fn file_order_breaks_ties_by_line(rows in mooncake_rows()) {
        let (requests, _) = replay(&text_of(&rows), |c| c.ties = Ties::File).unwrap();
        prop_assert!(requests.is_sorted_by_key(|r| (r.arrival, r.line)));
        prop_assert_eq!(requests.len(), rows.len());
    }

    #[test]
    fn windows_part_a_trace_without_loss(rows in mooncake_rows(), cut_ms in 1_u32..6) {
        let cut_s = f64::from(cut_ms) / 1000.0;
        let part = |from_s, to_s| {
            replay(&text_of(&rows), |c| c.window = Some(TraceWindow { from_s, to_s })).unwrap().0.len()
        };
        prop_assert_eq!(part(0.0, Some(cut_s)) + part(cut_s, None), rows.len());
    }

    #[test]
    fn speed_keeps_the_order_and_the_rows(rows in mooncake_rows(), speedup in 0.001_f64..1000.0) {
        let plain = replay(&text_of(&rows), |_| ()).unwrap().0;
        let fast = replay(&text_of(&rows), |c| c.speedup = speedup).unwrap().0;
        for (plain, fast) in plain.iter().zip(&fast) {
            prop_assert_eq!(plain.line, fast.line);
            let exact = plain.arrival.as_ns() as f64 / speedup;
            prop_assert!((fast.arrival.as_ns() as f64 - exact).abs() <= 0.5);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), head in 0..10) {
        let head: &[u8] = match head {
            0 => b"",
            1 => b"{\"timestamp\": 0, \"input_length\": 1, \"output_length\": ",
            2 => b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 00:00:00,",
            3 => b"arrival_ns,prompt_tokens,output_tokens,content\n0,1,1,",
            4 => b"Timestamp,Request tokens,Response tokens\n1.",
            5 => b"arrived_at,num_prefill_tokens,num_decode_tokens\n",
            6 => b"{\"start_times\": [1], \"input_lens\": [1], \"output_lens\": [",
            7 => b"{\"chat_id\": 1, \"timestamp\": 1, \"input_length\": 1}\n{\"hash_ids\": [",
            8 => b"{\"arrival_ms\": 0, \"prompt_tokens\": 1}\n{\"content\": \"",
            _ => &[0x1f, 0x8b],
        };
        let config = TraceConfig { path: "t".into(), ..TraceConfig::default() };
        let input = Cursor::new([head, &bytes].concat());
        let opened = Lines::new(Box::new(input), "t".into(), 64)
            .and_then(|lines| TraceSource::new(Opened::of_lines(lines, &config)?, &config));
        if let Ok(mut source) = opened {
            let _ = drain(&mut source);
        }
    }
}
