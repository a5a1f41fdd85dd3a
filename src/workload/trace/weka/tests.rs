use std::io::Cursor;

use super::*;
use crate::workload::sessions::config::{SessionsConfig, ThinkConfig};
use crate::workload::source::RequestSource;
use crate::workload::trace::config::TraceFormat;
use crate::workload::trace::folder::Opened;
use crate::workload::trace::{TraceSource, entry_for};

fn config() -> TraceConfig {
    let sessions = Some(SessionsConfig::Think(ThinkConfig::default()));
    TraceConfig { path: "t".into(), sessions, ..TraceConfig::default() }
}

fn lines(text: &str) -> Lines {
    Lines::new(Box::new(Cursor::new(text.to_owned())), "t".into(), 1 << 20).unwrap()
}

fn read_with(config: &TraceConfig, text: &str) -> Result<Vec<Row>, TraceError> {
    let mut lines = lines(text);
    let entry = entry_for(&mut lines, config.format)?;
    assert_eq!(entry.format, TraceFormat::Weka);
    let mut reader = (entry.open)(lines, config)?;
    std::iter::from_fn(|| reader.next_row().transpose()).collect()
}

fn rows(text: &str) -> Vec<Row> {
    read_with(&config(), text).unwrap()
}

fn refused(text: &str) -> String {
    read_with(&config(), text).expect_err("must be refused").to_string()
}

/// A session `s` of these requests.
fn session(requests: &str) -> String {
    format!(
        r#"{{"id": "s", "block_size": 64, "hash_id_scope": "local", "requests": [{requests}]}}"#
    )
}

/// A request at `t` that took `api` seconds.
fn request(t: f64, api: f64) -> String {
    format!(r#"{{"t": {t}, "type": "n", "in": 10, "out": 2, "api_time": {api}}}"#)
}

fn subagent(t: f64, duration_ms: &str, requests: &[String]) -> String {
    format!(
        r#"{{"t": {t}, "type": "subagent", "duration_ms": {duration_ms}, "requests": [{}]}}"#,
        requests.join(", ")
    )
}

/// What each row waits for, by the places of the rows, and its pause in milliseconds.
fn ties(requests: &[String]) -> Vec<(Vec<usize>, Option<i128>)> {
    let rows = rows(&session(&requests.join(", ")));
    let turns: Vec<_> = rows.iter().map(|row| row.turn.as_ref().unwrap()).collect();
    let place = |name: &String| turns.iter().position(|turn| turn.name.as_ref() == Some(name));
    let waits =
        |turn: &RowTurn| turn.wait_for.iter().flatten().map(|name| place(name).unwrap()).collect();
    turns.iter().map(|turn| (waits(turn), turn.delay.map(|ns| ns / 1_000_000))).collect()
}

fn named(session: u64, id: u64) -> Piece {
    Piece { segment: Segment::Named(session << 32 | id), tokens: 64 }
}

const PLAIN: &str = r#"{"id": "a", "models": ["m"], "block_size": 64, "hash_id_scope": "local", "requests": [{"t": 0.0, "type": "n", "model": "m", "in": 130, "out": 5, "hash_ids": [1, 2], "api_time": 2.5, "think_time": 0.0}, {"t": 10.0, "type": "s", "model": "k", "in": 192, "out": 0, "hash_ids": [1, 2, 5000000000], "ttft": 0.5, "think_time": 7.0}, {"t": 14.5, "type": "n", "model": null, "in": 0, "out": 1, "hash_ids": []}], "totals": {}}
{"id": "a", "requests": [{"t": 3, "type": "n", "in": 128, "out": 5, "hash_ids": [2, 5000000000]}]}"#;

#[test]
fn the_turns_of_a_session_follow_each_other() {
    let all = rows(PLAIN);
    let seen: Vec<_> =
        all.iter().map(|r| (r.line, r.prompt_tokens, r.output_tokens, r.stamp)).collect();
    assert_eq!(seen, [(1, 130, 5, 0), (1, 192, 0, 0), (1, 0, 1, 0), (2, 128, 5, 0)]);
    let turns: Vec<_> = all.iter().map(|row| row.turn.as_deref().unwrap()).collect();
    assert!(turns.iter().all(|turn| turn.lacks_stamp && turn.wait_for.is_none()));
    // The second session has the same id, and is another one.
    let sessions: Vec<_> = turns.iter().map(|turn| turn.session.as_deref().unwrap()).collect();
    assert_eq!(sessions, ["1", "1", "1", "2"]);
    // As recorded; where it is not, from the end of the one before: 14.5 - 10, which took no time.
    let pauses: Vec<_> = turns.iter().map(|turn| turn.delay).collect();
    assert_eq!(pauses, [None, Some(7_000_000_000), Some(4_500_000_000), None]);
}

#[test]
fn ids_are_those_of_their_session_and_the_rest_is_private() {
    let all = rows(PLAIN);
    let rest = Segment::Tail { name: 1 << 32 | 1 << 31, tokens: 2 };
    let rest = Piece { segment: rest, tokens: 2 };
    assert_eq!(all[0].content, Content::Pieces(vec![named(1, 1), named(1, 2), rest]));
    // The first large id of each session.
    let large = 1 << 30;
    assert_eq!(all[1].content, Content::Pieces(vec![named(1, 1), named(1, 2), named(1, large)]));
    assert_eq!(all[2].content, Content::Private);
    assert_eq!(all[3].content, Content::Pieces(vec![named(2, 2), named(2, large)]));

    let global = rows(&PLAIN.replace("local", "global"));
    let five = Piece { segment: Segment::Named(5_000_000_000), tokens: 64 };
    let Content::Pieces(pieces) = &global[1].content else { panic!("{global:?}") };
    assert_eq!(pieces[2], five);
}

#[test]
fn a_last_partial_block_may_have_an_id() {
    let row = r#"{"t": 0, "type": "n", "in": 70, "out": 2, "hash_ids": [7, 8]}"#;
    let tail = Segment::Tail { name: 1 << 32 | 8, tokens: 6 };
    let pieces = vec![named(1, 7), Piece { segment: tail, tokens: 6 }];
    assert_eq!(rows(&session(row))[0].content, Content::Pieces(pieces));
    // One id of 128 tokens, as the document says; two of 35, as the configuration does.
    let other = session(&row.replace(", 8", "")).replace(": 64", ": 128");
    let Content::Pieces(pieces) = &rows(&other)[0].content else { panic!() };
    assert_eq!(pieces[0].tokens, 70);
    let config = TraceConfig { hash_block_tokens: Some(35), ..config() };
    let row = read_with(&config, &session(row)).unwrap().remove(0);
    let Content::Pieces(pieces) = &row.content else { panic!() };
    assert_eq!(pieces.iter().map(|piece| piece.tokens).collect::<Vec<_>>(), [35, 35]);
}

#[test]
fn a_subagent_goes_on_beside_and_is_waited_for_when_it_had_ended() {
    let inner = [request(0.0, 1.0), request(4.0, 2.0)];
    let found = ties(&[
        request(0.0, 3.0),
        subagent(10.0, "9000", &inner),
        request(12.0, 1.0),
        request(19.0, 1.0),
        request(30.0, 1.0),
    ]);
    assert_eq!(
        found,
        [
            (vec![], None),
            // 10 less 3; then 14 less 11.
            (vec![0], Some(7000)),
            (vec![1], Some(3000)),
            // Before the subagent ends at 19: 12 less 3.
            (vec![0], Some(9000)),
            // 19 less the later of 13 and 16, when its last answer was there.
            (vec![3, 2], Some(3000)),
            (vec![4], Some(10_000)),
        ]
    );
}

#[test]
fn times_in_a_subagent_count_from_it_or_from_the_session() {
    let of = |first, second| {
        let inner = [request(first, 1.0), request(second, 2.0)];
        ties(&[request(0.0, 3.0), subagent(10.3, "null", &inner), request(17.0, 1.0)])
    };
    let relative = of(0.0, 4.0);
    assert_eq!(relative[1..3], [(vec![0], Some(7300)), (vec![1], Some(3000))]);
    // It ends at 16.3, before the next request.
    assert_eq!(relative[3], (vec![0, 2], Some(700)));
    // Whole seconds may be a little before the subagent.
    let absolute = of(10.0, 14.0);
    assert_eq!(absolute[1..3], [(vec![0], Some(7000)), (vec![1], Some(3000))]);
    assert_eq!(absolute[3], (vec![0, 2], Some(1000)));
}

#[test]
fn subagents_may_be_empty_come_first_or_have_their_own() {
    let nested = subagent(2.0, "1000", &[request(0.0, 1.0)]);
    let found = ties(&[
        subagent(0.0, "0", &[]),
        subagent(10.0, "5000", &[request(0.0, 1.0), nested, request(4.0, 1.0)]),
        request(20.0, 1.0),
    ]);
    assert_eq!(
        found,
        [
            (vec![], None),
            // At 12, in the one that began at 10 and answered at 11.
            (vec![0], Some(1000)),
            // At 14, when the inner one had ended at 13.
            (vec![0, 1], Some(1000)),
            // The subagent's last answer was there at 15.
            (vec![2], Some(5000)),
        ]
    );
}

#[test]
fn documents_over_several_lines_are_told_and_read() {
    let text = PLAIN.lines().next().unwrap();
    let laid_out = text.replace("[{", "[\n{").replace("}, {", "},\n\n  {");
    for laid_out in [laid_out.replacen('{', "{\n", 1), laid_out] {
        let mut expected = rows(text);
        let first = u64::from(laid_out.starts_with("{\n")) + 2;
        for (row, line) in expected.iter_mut().zip([first, first + 2, first + 4]) {
            row.line = line;
        }
        assert_eq!(rows(&laid_out), expected);
    }
    let error = refused(&session(&request(-1.0, 0.0)).replace('[', "[\n\n"));
    assert!(error.starts_with("t:3: `t` is -1, expected a number of seconds"), "{error}");
}

#[test]
fn the_class_may_be_any_field_of_a_request() {
    let config = TraceConfig { class_field: Some("model".into()), ..config() };
    let classes: Vec<_> =
        read_with(&config, PLAIN).unwrap().into_iter().map(|row| row.class).collect();
    assert_eq!(classes, [Some("m".into()), Some("k".into()), None, None]);
}

#[test]
fn what_is_not_used_is_named() {
    let mut reader = Weka::new(lines(PLAIN), &config()).unwrap();
    while reader.next_row().unwrap().is_some() {}
    let names: Vec<_> = reader.ignored().names.iter().map(String::as_str).collect();
    assert_eq!(names, ["model", "models", "totals", "ttft"]);
}

#[test]
fn what_cannot_be_used_is_named_with_its_place() {
    let row = r#"{"t": 0, "type": "n", "in": 70, "out": 2, "hash_ids": [7]}"#;
    for (from, to, expected) in [
        ("\"t\": 0", "\"t\": \"0\"", "`t` is \"0\", expected a number of seconds from 0"),
        ("\"t\": 0, ", "", "`t` is missing, expected a number of seconds"),
        ("\"n\"", "\"x\"", "`type` is \"x\", expected `n`, `s` or `subagent`"),
        ("\"n\"", "\"subagent\"", "`requests` is missing, expected an array of requests"),
        ("70", "-70", "`in` is -70, expected an integer from 0 to 4294967295"),
        ("70", "1.5", "`in` is 1.5, expected"),
        ("\"in\"", "\"inn\"", "`in` is missing, expected an integer from 0 to 4294967295, did you"),
        ("2", "4294967296", "`out` is 4294967296, expected"),
        ("[7]", "[7, -1]", "`hash_ids` is -1 at index 1, expected an array of integers"),
        ("[7]", "7", "`hash_ids` is 7, expected an array of integers"),
        ("[7]", "[7, 8, 9]", "`hash_ids` is 3 ids, expected at most 2: a prompt of 70 tokens in"),
        ("\"in\"", "\"think_time\": -1, \"in\"", "`think_time` is -1, expected a number of sec"),
    ] {
        let error = refused(&session(&row.replace(from, to)));
        assert!(error.starts_with(&format!("t:1: {expected}")), "{error}");
        assert!(error.ends_with(" (in requests[0] of \"s\")"), "{error}");
    }
    let inner = subagent(1.0, "null", &[request(0.0, 0.0), request(9.0, -1.0)]);
    let error = refused(&session(&format!("{}, {inner}", request(0.0, 0.0))));
    assert!(error.starts_with("t:1: `api_time` is -1, expected"), "{error}");
    assert!(error.ends_with(" (in requests[1].requests[1] of \"s\")"), "{error}");
    let error = refused(&session(&format!("{}, {}", request(5.0, 0.0), request(4.0, 0.0))));
    assert!(error.starts_with("t:1: `t` is 4 s, expected at least that before it, 5 s"), "{error}");

    for (from, to, expected) in [
        (": 64", ": 0", "`block_size` is 0, expected an integer from 1 to 4294967295"),
        ("local", "locla", "`hash_id_scope` is \"locla\", expected `local` or `global`, did you m"),
        ("\"requests\": [", "\"requests\": [7", "t:1:"),
    ] {
        let error = refused(&session("").replace(from, to));
        assert!(error.contains(expected), "{error}");
    }
    let deep = (0..10).fold(request(0.0, 0.0), |inner, _| subagent(0.0, "null", &[inner]));
    assert!(
        refused(&session(&deep)).contains("`requests` is deeper, expected subagents at most 8")
    );
}

#[test]
fn without_sessions_it_says_what_is_needed() {
    let without = TraceConfig { sessions: None, ..config() };
    let error = read_with(&without, PLAIN).expect_err("must be refused").to_string();
    assert_eq!(
        error,
        "`workload.trace.sessions` is absent, expected `closed` (`--sessions closed:8`), or `think` with \
         `reshape.arrivals`: conversations do not say when they begin"
    );
}

#[test]
fn rows_are_handed_on_as_they_are_read() {
    // Rows of one instant would be held to the end of the file, if they were to be sorted.
    let text = format!("{}\nnothing that can be read", PLAIN.lines().next().unwrap());
    let mut source =
        TraceSource::new(Opened::of_lines(lines(&text), &config()).unwrap(), &config()).unwrap();
    for _ in 0..3 {
        assert!(source.next_arrival().unwrap().is_some());
        let turn = source.take().turn.unwrap();
        assert!(turn.lacks_arrival);
    }
    assert!(source.next_arrival().is_err());
}
