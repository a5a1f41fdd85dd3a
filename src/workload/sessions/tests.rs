use std::io::Write;

use super::*;
use crate::workload::reshape::ReshapedTrace;
use crate::workload::trace::config::TraceConfig;

/// A source of the rows, which are Mooncake's with blocks of 16, and the requests it hands out while
/// each takes `service_s`.
fn replay(rows: &str, sessions: &str, service_s: u64) -> Vec<RequestSpec> {
    try_replay(rows, sessions, service_s).unwrap()
}

fn try_replay(rows: &str, sessions: &str, service_s: u64) -> Result<Vec<RequestSpec>, TraceError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(rows.as_bytes()).unwrap();
    let sessions: SessionsConfig = serde_saphyr::from_str(sessions).unwrap();
    sessions.validate().unwrap();
    let config = TraceConfig {
        path: file.path().to_owned(),
        hash_block_tokens: Some(16),
        sessions: Some(sessions),
        ..TraceConfig::default()
    };
    let mut source = Sessions::open(&sessions, Path::new("t"), || ReshapedTrace::open(&config, 0))?;
    let (mut sent, mut under_way) = (Vec::new(), BinaryHeap::new());
    loop {
        let arrival = source.next_arrival()?;
        let end = under_way.peek().map(|Reverse((end, _))| *end);
        match (arrival, end) {
            (None, None) => break,
            // What ends at the instant of an arrival is told before it.
            (arrival, Some(end)) if arrival.is_none_or(|arrival| end <= arrival) => {
                let Reverse((_, id)) = under_way.pop().unwrap();
                source.ended(RequestId(id), end);
            }
            _ => {
                let request = source.take();
                assert_eq!(Some(request.arrival), arrival);
                assert_eq!(request.id.index(), sent.len(), "ids count arrivals");
                if source.follows_ends() {
                    let end = request.arrival + SimDuration::from_ns(service_s * 1_000_000_000);
                    under_way.push(Reverse((end, request.id.0)));
                }
                sent.push(request);
            }
        }
    }
    Ok(sent)
}

/// Arrivals in seconds, and lines.
fn arrivals(requests: &[RequestSpec]) -> Vec<(f64, u64)> {
    requests.iter().map(|request| (request.arrival.as_s(), request.line)).collect()
}

/// A row that arrives at `s` in the session `session`.
fn row(s: u64, session: &str, more: &str) -> String {
    format!(
        "{{\"timestamp\": {}, \"session_id\": \"{session}\", \"input_length\": 20, \
         \"output_length\": 5{more}}}\n",
        s * 1000
    )
}

/// Session a at 0, 10 and 30 s, session b at 4 and 9 s, in the order of time.
fn two_sessions() -> String {
    [row(0, "a", ""), row(4, "b", ""), row(9, "b", ""), row(10, "a", ""), row(30, "a", "")].concat()
}

#[test]
fn open_replays_the_stamps() {
    let sent = replay(&two_sessions(), "{open: {}}", 100);
    assert_eq!(arrivals(&sent), [(0.0, 1), (4.0, 2), (9.0, 3), (10.0, 4), (30.0, 5)]);
}

#[test]
fn a_turn_follows_the_end_of_the_one_before() {
    // a: 0, then 0 + 3 + 10, then 13 + 3 + 20; b: 4, then 4 + 3 + 5.
    let sent = replay(&two_sessions(), "{think: {}}", 3);
    assert_eq!(arrivals(&sent), [(0.0, 1), (4.0, 2), (12.0, 3), (13.0, 4), (36.0, 5)]);
    // Twice the pauses, but none above 12 s: a at 0 + 3 + 12, 15 + 3 + 12; b at 4 + 3 + 10.
    let sent = replay(&two_sessions(), "{think: {think_factor: 2, think_s_max: 12}}", 3);
    assert_eq!(arrivals(&sent), [(0.0, 1), (4.0, 2), (15.0, 4), (17.0, 3), (30.0, 5)]);
}

#[test]
fn a_recorded_delay_is_believed() {
    let rows = [
        row(0, "a", ""),
        row(10, "a", ", \"delay\": 2500"),
        row(60, "b", "").replace("\"timestamp\": 60000, ", ""),
    ];
    let rows = rows.concat().replace("\"b\"", "\"a\", \"delay_ms\": 500");
    // 0, 0 + 1 + 2.5, 3.5 + 1 + 0.5
    assert_eq!(arrivals(&replay(&rows, "{think: {}}", 1)), [(0.0, 1), (3.5, 2), (5.0, 3)]);
}

#[test]
fn a_session_needs_a_beginning() {
    let rows = row(0, "a", "").replace("\"timestamp\": 0, ", "");
    let error = try_replay(&rows, "{think: {}}", 1).unwrap_err().to_string();
    assert!(error.starts_with("t:1: a session begins without a stamp"), "{error}");
    assert_eq!(arrivals(&replay(&rows, "{closed: {users: 1}}", 1)), [(0.0, 1)]);
}

#[test]
fn users_take_one_session_after_the_other() {
    // One user: a at 0, 13, 36, to 39 with service of 3; then b at 39 and 39 + 3 + 5.
    let sent = replay(&two_sessions(), "{closed: {users: 1}}", 3);
    assert_eq!(arrivals(&sent), [(0.0, 1), (13.0, 4), (36.0, 5), (39.0, 2), (47.0, 3)]);
    // Two users, who begin at 0 and 1 s; nobody is left for them.
    let sent = replay(&two_sessions(), "{closed: {users: 2, ramp_up_s: 2}}", 3);
    assert_eq!(arrivals(&sent), [(0.0, 1), (1.0, 2), (9.0, 3), (13.0, 4), (36.0, 5)]);
}

#[test]
fn users_of_requests_serve_other_sessions_meanwhile() {
    // One request at a time: a1 0..3, then b begins, 3..6; nothing is due until b2 at 6 + 5 = 11, ..14;
    // a2, due at 3 + 10, at 14..17; a3 at 17 + 20.
    let sent = replay(&two_sessions(), "{closed: {users: 1, counts: requests}}", 3);
    assert_eq!(arrivals(&sent), [(0.0, 1), (3.0, 2), (11.0, 3), (14.0, 4), (37.0, 5)]);
}

/// A row called `name` that waits for `waits`.
fn call(s: u64, name: &str, waits: &str, more: &str) -> String {
    row(s, "g", &format!(", \"request_id\": \"{name}\", \"wait_for\": [{waits}]{more}"))
}

#[test]
fn a_call_waits_for_all_that_it_names() {
    let rows = [
        call(0, "x", "", ""),
        call(5, "y", "", ""),
        call(9, "z", "\"x\", \"y\"", ", \"delay\": 1000, \"tool_wait_ms\": 2000"),
    ];
    // The later end is 5 + 4; the pauses are 1 and 2.
    let sent = replay(&rows.concat(), "{think: {}}", 4);
    assert_eq!(arrivals(&sent), [(0.0, 1), (5.0, 2), (12.0, 3)]);
    // One user has the whole graph; y begins 5 s after x.
    let twice = format!("{}{}", rows.concat(), row(0, "h", "").replace(": 0", ": 9000"));
    let sent = replay(&twice, "{closed: {users: 1}}", 4);
    assert_eq!(arrivals(&sent), [(0.0, 1), (5.0, 2), (12.0, 3), (16.0, 4)]);
}

#[test]
fn a_call_may_wait_for_a_later_row() {
    let rows = [call(0, "z", "\"x\"", ", \"delay\": 0"), call(7, "x", "", "")].concat();
    assert_eq!(arrivals(&replay(&rows, "{think: {}}", 1)), [(7.0, 2), (8.0, 1)]);
    assert_eq!(arrivals(&replay(&rows, "{closed: {users: 3}}", 1)), [(0.0, 2), (1.0, 1)]);
}

#[test]
fn calls_that_cannot_begin_are_named() {
    let circle =
        [call(0, "a", "", ""), call(1, "x", "\"a\", \"y\"", ""), call(2, "y", "\"x\"", "")];
    let error = try_replay(&circle.concat(), "{think: {}}", 1).unwrap_err().to_string();
    assert_eq!(error, "t:2: the request waits for itself, by way of others");
    let nowhere = [call(0, "x", "", ""), call(2, "y", "\"w\"", "")].concat();
    let error = try_replay(&nowhere, "{think: {}}", 1).unwrap_err().to_string();
    assert!(error.contains(":2: `wait_for` is \"w\", expected what a request of"), "{error}");
    let twice = [call(0, "x", "", ""), call(2, "x", "", "")].concat();
    let error = try_replay(&twice, "{think: {}}", 1).unwrap_err().to_string();
    assert!(error.contains(":2: `request_id` is \"x\", expected a name that no other"), "{error}");
    let backwards = [row(9, "a", ""), row(8, "b", ""), row(7, "a", "")].concat();
    let error = try_replay(&backwards, "{think: {}}", 1).unwrap_err().to_string();
    assert!(error.contains(":3: `timestamp` is 2 s before that of the row before it"), "{error}");
}

#[test]
fn what_cannot_be_told_is_said() {
    let open = try_replay(&two_sessions().replace("\"timestamp\": 9000, ", ""), "{open: {}}", 1);
    let error = open.unwrap_err().to_string();
    assert!(error.starts_with("t:3: a row without a stamp, expected one in every row"), "{error}");
    let bad =
        row(0, "a", "") + &row(1, "a", ", \"delay\": -5").replace("\"timestamp\": 1000, ", "");
    let error = try_replay(&bad, "{think: {}}", 1).unwrap_err().to_string();
    assert!(error.contains(":2: `delay` is -5, expected a number of milliseconds"), "{error}");
}

fn named(name: u64, tokens: u32) -> Piece {
    Piece { segment: Segment::Named(name), tokens }
}

#[test]
fn a_prompt_continues_the_answer_before_it() {
    let ids = |ids: &str| format!(", \"hash_ids\": [{ids}]");
    // 20 tokens, 5 generated, then 40 = 2 blocks and 8 tokens.
    let rows = [
        row(0, "a", &ids("1, 2")),
        row(1, "a", &ids("1, 3, 4")).replace("\"input_length\": 20", "\"input_length\": 40"),
    ];
    for rule in ["{open: {}}", "{think: {}}", "{closed: {}}"] {
        let sent = replay(&rows.concat(), rule, 1);
        let tail = |name, tokens| Piece { segment: Segment::Tail { name, tokens }, tokens };
        let output = Piece { segment: sent[0].output, tokens: 5 };
        // Of the block that ends at 32, the 7 behind 25.
        let expected = vec![named(1, 16), tail(2, 4), output, named(3, 7), tail(4, 8)];
        assert_eq!(sent[1].content, Content::Pieces(expected), "{rule}");
    }
}

#[test]
fn names_stay_what_they_were_when_ids_change() {
    // The second row of the file is sent last: its prompt is still that of number 1.
    let rows = [row(0, "a", ""), row(1, "a", ""), row(2, "b", ""), row(3, "c", "")].concat();
    let sent = replay(&rows, "{think: {}}", 5);
    assert_eq!(sent.iter().map(|r| r.line).collect::<Vec<_>>(), [1, 3, 4, 2]);
    let own = |number| Piece { segment: Segment::Prompt(RequestId(number)), tokens: 20 };
    for (request, number) in sent.iter().zip([0, 2, 3, 1]) {
        assert_eq!(request.content, Content::Pieces(vec![own(number)]));
        assert_eq!(request.output, Segment::Output(RequestId(number)));
    }
}

#[test]
fn what_comes_of_it_is_counted() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(two_sessions().as_bytes()).unwrap();
    let sessions = SessionsConfig::Think(config::ThinkConfig::default());
    let config = TraceConfig {
        path: file.path().to_owned(),
        sessions: Some(sessions),
        ..TraceConfig::default()
    };
    let mut source =
        Sessions::open(&sessions, Path::new("t"), || ReshapedTrace::open(&config, 0)).unwrap();
    let expected = SessionCounts { sessions: 2, followers: 3, never_sent: 5, ..Default::default() };
    assert_eq!(source.counts(), Some(expected));
    for _ in 0..2 {
        source.next_arrival().unwrap().unwrap();
        source.take();
    }
    // Nothing else can begin before one of them has ended.
    assert_eq!(source.next_arrival().unwrap(), None);
    source.ended(RequestId(1), SimTime::from_ns(0));
    assert!(source.next_arrival().unwrap().is_some());
    // 20 and 5 tokens are more than the 20 of the next prompt.
    source.take();
    let counts = source.counts().unwrap();
    assert_eq!((counts.never_sent, counts.continued, counts.restarted), (2, 0, 1));
}
