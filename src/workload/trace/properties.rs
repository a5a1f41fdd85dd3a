//! Rows that were meant are the rows that are read; what nobody meant does no harm; and what is written
//! for Mooncake's readers shares as much as before.

use std::fmt::Write;
use std::io::Cursor;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use tempfile::TempDir;

use super::config::{LabelsConfig, Ties};
use super::testing::read_with;
use super::*;
use crate::base::time::SimDuration;
use crate::workload::request::{Name, Piece, Turn};
use crate::workload::sessions::config::{ClosedConfig, OpenConfig, SessionsConfig, ThinkConfig};
use crate::workload::write::{WorkloadSink, WriteFormat};

const NS_PER_S: i128 = 1_000_000_000;

/// What a row is meant to say, as far as a format can say it.
#[derive(Clone, Debug)]
struct Meant {
    /// Nanoseconds, below 40 days: a double of seconds holds them to half a nanosecond.
    ns: i128,
    output: u32,
    ids: Vec<u64>,
    /// Tokens of the last block, as a part of it; without ids, the whole prompt.
    fill: Index,
    /// Empty for none.
    session: &'static str,
    service: Option<i128>,
    /// Empty for none.
    class: &'static str,
}

impl Meant {
    /// The tokens of a prompt whose ids are of `block` tokens.
    fn tokens(&self, block: u32) -> u32 {
        let blocks = self.ids.len() as u32;
        blocks.saturating_sub(1) * block + 1 + self.fill.index(block as usize) as u32
    }

    /// The content of such a prompt: blocks, the last of them a tail where it is not whole.
    fn content(&self, block: u32) -> Content {
        let Some((&last, whole)) = self.ids.split_last() else { return Content::Private };
        let piece = |&name: &u64| Piece { segment: Segment::Named(name), tokens: block };
        let tokens = 1 + self.fill.index(block as usize) as u32;
        let segment = if tokens == block {
            Segment::Named(last)
        } else {
            Segment::Tail { name: last, tokens }
        };
        Content::Pieces(whole.iter().map(piece).chain([Piece { segment, tokens }]).collect())
    }

    /// The row in `line` without content.
    fn row(&self, line: u64) -> Row {
        let class = (!self.class.is_empty()).then(|| self.class.into());
        Row { class, ..Row::new(self.ns, line, self.tokens(1000), self.output) }
    }
}

fn meant() -> impl Strategy<Value = Vec<Meant>> {
    let one = (
        0..40 * 86_400 * NS_PER_S,
        any::<u32>(),
        prop::collection::vec(0_u64..1 << 30, 0..5),
        any::<Index>(),
        select(vec!["", "s1", "17", "a b"]),
        prop::option::of(0..10_000 * NS_PER_S),
        select(vec!["", "chat", "code 2"]),
    )
        .prop_map(|(ns, output, ids, fill, session, service, class)| Meant {
            ns,
            output,
            ids,
            fill,
            session,
            service,
            class,
        });
    prop::collection::vec(one, 1..8)
}

/// Seconds as a decimal.
fn seconds(ns: i128) -> String {
    format!("{}.{:09}", ns / NS_PER_S, ns % NS_PER_S)
}

/// CSV with these columns, which stand `turn` places further on in the file, and a column that nobody
/// reads.
fn csv(columns: &[&str], rows: &[Vec<String>], turn: usize) -> String {
    let mut text = String::new();
    let header: Vec<_> = columns.iter().map(|&name| name.to_owned()).chain(["x".into()]).collect();
    let extra = rows.iter().map(|row| row.iter().cloned().chain(["?".to_owned()]).collect());
    for mut cells in std::iter::once(header).chain(extra) {
        let places = cells.len();
        cells.rotate_right(turn % places);
        writeln!(text, "{}", cells.join(",")).unwrap();
    }
    text
}

/// Reads rows by `format`, with sessions and a column of classes.
fn read(format: TraceFormat, text: &str) -> Vec<Row> {
    read_with(&config(format), text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn config(format: TraceFormat) -> TraceConfig {
    TraceConfig {
        path: "t".into(),
        format,
        sessions: Some(SessionsConfig::Think(ThinkConfig::default())),
        class_field: Some("kind".to_owned()),
        ..TraceConfig::default()
    }
}

/// The formats of a table of seconds, prompt and output, under their names.
const PLAIN: [(TraceFormat, [&str; 3]); 4] = [
    (TraceFormat::Splitwise, ["arrival_timestamp", "prompt_size", "token_size"]),
    (TraceFormat::Vidur, ["arrived_at", "num_prefill_tokens", "num_decode_tokens"]),
    (TraceFormat::ServegenCsv, ["timestamp", "input_tokens", "output_tokens"]),
    (TraceFormat::Apex, ["StartTimeOffset", "ContextTokens", "GeneratedTokens"]),
];

/// Rows of a table, whose header is line 1.
fn numbered(rows: &[Meant], first: u64) -> Vec<Row> {
    (first..).zip(rows).map(|(line, row)| row.row(line)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn tables_of_lengths_are_read(rows in meant(), turn in 0_usize..6) {
        for (format, [stamp, prompt, output]) in PLAIN {
            let cells = rows.iter().map(|row| {
                let is_ns = format == TraceFormat::Apex;
                let stamp = if is_ns { row.ns.to_string() } else { seconds(row.ns) };
                vec![stamp, row.tokens(1000).to_string(), row.output.to_string(), row.class.into()]
            });
            let text = csv(&[stamp, prompt, output, "kind"], &cells.collect::<Vec<_>>(), turn);
            prop_assert_eq!(read(format, &text), numbered(&rows, 2), "{:?}", format);
            prop_assert_eq!(read(TraceFormat::Auto, &text), numbered(&rows, 2), "{:?}", format);
        }
    }

    #[test]
    fn dates_of_azure_are_read(rows in meant(), turn in 0_usize..6, zone in -14_i128..15) {
        // 2023-12-01 00:00 UTC is 19,692 days after 1970: 53 years with 13 leap days, and 334 days.
        const START: i128 = (53 * 365 + 13 + 334) * 86_400;
        let expected = numbered(&rows, 2).into_iter().zip(&rows).map(|(row, meant)| {
            // 31 days of December, less an hour or more of them for the zone.
            let ns = meant.ns % (30 * 86_400 * NS_PER_S);
            Row { stamp: START * NS_PER_S + ns - zone * 3600 * NS_PER_S, ..row }
        });
        let cells = rows.iter().map(|row| {
            let ns = row.ns % (30 * 86_400 * NS_PER_S);
            let s = ns / NS_PER_S;
            let (day, hour, minute) = (1 + s / 86_400, s / 3600 % 24, s / 60 % 60);
            let sign = if zone < 0 { '-' } else { '+' };
            let date = format!(
                "2023-12-{day:02} {hour:02}:{minute:02}:{:02}.{:09}{sign}{:02}:00",
                s % 60,
                ns % NS_PER_S,
                zone.abs()
            );
            vec![date, row.tokens(1000).to_string(), row.output.to_string(), row.class.into()]
        });
        let columns = ["TIMESTAMP", "ContextTokens", "GeneratedTokens", "kind"];
        let text = csv(&columns, &cells.collect::<Vec<_>>(), turn);
        prop_assert_eq!(read(TraceFormat::Azure, &text), expected.collect::<Vec<_>>());
    }

    #[test]
    fn sessions_of_burstgpt_are_read(rows in meant(), turn in 0_usize..8) {
        let expected = numbered(&rows, 2).into_iter().zip(&rows).map(|(row, meant)| {
            let turn = (!meant.session.is_empty()).then(|| RowTurn {
                session: Some(meant.session.to_owned()),
                service: meant.service,
                ..RowTurn::default()
            });
            Row { turn: turn.map(Box::new), ..row }
        });
        let expected: Vec<_> = expected.collect();
        let cells = rows.iter().map(|row| {
            vec![
                seconds(row.ns),
                row.session.to_owned(),
                row.service.map_or(String::new(), seconds),
                row.class.to_owned(),
                row.tokens(1000).to_string(),
                row.output.to_string(),
            ]
        });
        let columns =
            ["Timestamp", "Session ID", "Elapsed time", "kind", "Request tokens", "Response tokens"];
        let text = csv(&columns, &cells.collect::<Vec<_>>(), turn);
        prop_assert_eq!(read(TraceFormat::BurstGpt, &text), expected.clone());
        let alone = TraceConfig { sessions: None, ..config(TraceFormat::BurstGpt) };
        let expected: Vec<_> = expected.into_iter().map(|row| Row { turn: None, ..row }).collect();
        prop_assert_eq!(read_with(&alone, &text).unwrap(), expected);
    }

    #[test]
    fn chats_of_qwen_bailian_are_read(
        rows in meant(),
        parents in prop::collection::vec(-1_i64..20, 8),
    ) {
        let mut text = String::new();
        let mut expected = Vec::new();
        for ((line, meant), parent) in (1..).zip(&rows).zip(parents) {
            let chat = 100 + line;
            writeln!(
                text,
                "{{\"chat_id\": {chat}, \"parent_chat_id\": {parent}, \"timestamp\": {}, \
                 \"input_length\": {}, \"output_length\": {}, \"turn\": 1{}{}}}",
                seconds(meant.ns),
                meant.tokens(16),
                meant.output,
                ids(meant),
                class(meant)
            )
            .unwrap();
            let turn = RowTurn {
                name: Some(chat.to_string()),
                wait_for: Some((parent >= 0).then(|| parent.to_string()).into_iter().collect()),
                may_dangle: true,
                ..RowTurn::default()
            };
            expected.push(Row {
                content: meant.content(16),
                prompt_tokens: meant.tokens(16),
                turn: Some(Box::new(turn)),
                ..meant.row(line)
            });
        }
        prop_assert_eq!(read(TraceFormat::QwenBailian, &text), expected.clone());
        prop_assert_eq!(read(TraceFormat::Auto, &text), expected);
    }

    #[test]
    fn labels_of_timed_traces_are_followed(
        rows in meant(),
        (seconds_per_unit, unit_ns) in
            select(vec![(1.0, NS_PER_S), (0.001, 1_000_000), (1e-6, 1000), (60.0, 60 * NS_PER_S)]),
        block in select(vec![1_u32, 16, 512]),
    ) {
        let mut text = String::new();
        let mut expected = Vec::new();
        for (line, meant) in (1..).zip(&rows) {
            let units = meant.ns / unit_ns;
            writeln!(
                text,
                "{{\"when\": {units}, \"in\": {}, \"out\": {}{}{}, \"timestamp\": 1}}",
                meant.tokens(block),
                meant.output,
                ids(meant).replace("hash_ids", "blocks"),
                class(meant)
            )
            .unwrap();
            expected.push(Row {
                stamp: units * unit_ns,
                prompt_tokens: meant.tokens(block),
                content: meant.content(block),
                ..meant.row(line)
            });
        }
        let labels = LabelsConfig {
            timestamp: "when".to_owned(),
            input_length: "in".to_owned(),
            output_length: "out".to_owned(),
            hash_ids: "blocks".to_owned(),
            seconds_per_unit,
        };
        let config = TraceConfig {
            labels: Some(Box::new(labels)),
            hash_block_tokens: Some(block),
            ..config(TraceFormat::VllmTimedTrace)
        };
        prop_assert_eq!(read_with(&config, &text).unwrap(), expected);
    }

    #[test]
    fn results_of_vllm_bench_are_read(rows in meant(), is_laid_out in any::<bool>()) {
        let list = |cell: &dyn Fn(&Meant) -> String| {
            rows.iter().map(cell).collect::<Vec<_>>().join(", ")
        };
        let between = if is_laid_out { ",\n" } else { ", " };
        let text = [
            "{\"date\": \"20260101-000000\"".to_owned(),
            format!("\"output_lens\": [{}]", list(&|row| row.output.to_string())),
            format!("\"start_times\": [{}]", list(&|row| seconds(row.ns))),
            "\"itls\": [[0.5], []]".to_owned(),
            format!("\"input_lens\": [{}]}}", list(&|row| row.tokens(1000).to_string())),
        ]
        .join(between);
        // A request is called by its place, and has no class.
        let expected: Vec<_> =
            numbered(&rows, 1).into_iter().map(|row| Row { class: None, ..row }).collect();
        prop_assert_eq!(read(TraceFormat::VllmBench, &text), expected.clone());
        prop_assert_eq!(read(TraceFormat::Auto, &text), expected);
    }

    #[test]
    fn apex_as_json_is_read(rows in meant()) {
        let mut text = String::new();
        for row in &rows {
            writeln!(
                text,
                "{{\"StartTimeOffset\": {}, \"ContextTokens\": {}, \"GeneratedTokens\": {}{}}}",
                row.ns,
                row.tokens(1000),
                row.output,
                class(row)
            )
            .unwrap();
        }
        prop_assert_eq!(read(TraceFormat::Apex, &text), numbered(&rows, 1));
        prop_assert_eq!(read(TraceFormat::Auto, &text), numbered(&rows, 1));
    }

    #[test]
    fn conversations_of_weka_are_read(
        sessions in prop::collection::vec(meant(), 1..4),
        block in select(vec![1_u32, 16, 64]),
        rest in 0_u32..200,
    ) {
        let mut text = String::new();
        let mut expected = Vec::new();
        for (number, mut rows) in (1_u64..).zip(sessions) {
            rows.sort_by_key(|row| row.ns);
            write!(text, "{{\"id\": \"s{number}\", \"block_size\": {block}, \"requests\": [").unwrap();
            let mut end: Option<i128> = None;
            for (place, meant) in rows.iter().enumerate() {
                // Behind the blocks with ids there may be tokens without; then the blocks are whole.
                let is_whole = meant.tokens(block).is_multiple_of(block);
                let rest = if is_whole && !meant.ids.is_empty() { rest } else { 0 };
                let prompt_tokens = meant.tokens(block) + rest;
                let thought = meant.fill.index(2) == 1;
                let api_time =
                    meant.service.map(|ns| format!(", \"api_time\": {}", seconds(ns)));
                let think_time = if thought { ", \"think_time\": 2.5" } else { "" };
                write!(
                    text,
                    "{}{{\"t\": {}, \"type\": \"n\", \"in\": {prompt_tokens}, \"out\": {}{}{}{}{}}}",
                    if place > 0 { ", " } else { "" },
                    seconds(meant.ns),
                    meant.output,
                    ids(meant),
                    class(meant),
                    api_time.unwrap_or_default(),
                    think_time
                )
                .unwrap();
                let mut content = meant.content(block);
                if let Content::Pieces(pieces) = &mut content {
                    // Ids of a session are its own.
                    for piece in &mut *pieces {
                        let (Segment::Named(name) | Segment::Tail { name, .. }) = &mut piece.segment
                        else {
                            unreachable!("the content has blocks only");
                        };
                        *name |= number << 32;
                    }
                    if rest > 0 {
                        let name = number << 32 | 1 << 31 | place as u64;
                        let segment = Segment::Tail { name, tokens: rest };
                        pieces.push(Piece { segment, tokens: rest });
                    }
                }
                let pause = end.map(|end| (meant.ns - end).max(0));
                let turn = RowTurn {
                    session: Some(number.to_string()),
                    delay: pause.map(|pause| if thought { 2_500_000_000 } else { pause }),
                    lacks_stamp: true,
                    ..RowTurn::default()
                };
                expected.push(Row {
                    stamp: 0,
                    prompt_tokens,
                    content,
                    turn: Some(Box::new(turn)),
                    ..meant.row(number)
                });
                end = Some(meant.ns + meant.service.unwrap_or(0));
            }
            writeln!(text, "]}}").unwrap();
        }
        prop_assert_eq!(read(TraceFormat::Weka, &text), expected.clone());
        prop_assert_eq!(read(TraceFormat::Auto, &text), expected);
    }
}

/// The ids of a row in JSON, as a further field; none where it has none.
fn ids(row: &Meant) -> String {
    if row.ids.is_empty() { String::new() } else { format!(", \"hash_ids\": {:?}", row.ids) }
}

/// The class of a row in JSON, as a further field.
fn class(row: &Meant) -> String {
    if row.class.is_empty() { String::new() } else { format!(", \"kind\": \"{}\"", row.class) }
}

/// The parts of a prompt of `RAGPulse`: the file of their lengths, the field of the id in it, and the
/// field of the ids in a row.
const PARTS: [(&str, &str, &str); 5] = [
    ("1_sys_prompt.jsonl", "sys_prompt_id", "sys_prompt"),
    ("2_passages.jsonl", "passage_id", "passages_ids"),
    ("3_history.jsonl", "history_id", "history"),
    ("5_web_search.jsonl", "web_search_id", "web_search"),
    ("4_user_input.jsonl", "user_input_id", "user_input"),
];

/// A folder where id `n` of the parts has `10 n` tokens.
fn lengths() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (file, id, _) in PARTS {
        let row = |n: u32| format!("{{\"{id}\": {n}, \"token_length\": {}}}\n", 10 * n);
        std::fs::write(folder.path().join(file), (1..=4).map(row).collect::<String>()).unwrap();
    }
    folder
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn parts_of_ragpulse_are_read(
        rows in meant(),
        parts in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(1_u64..5, 0..4), 5),
            8,
        ),
        rest in 0_u32..20,
    ) {
        let folder = lengths();
        let mut text = String::new();
        let mut expected = Vec::new();
        for ((line, meant), parts) in (1_u64..).zip(&rows).zip(parts) {
            let named = (0_u64..).zip(&parts).flat_map(|(part, ids)| {
                ids.iter().map(move |&id| Piece {
                    segment: Segment::Named(part << 56 | id),
                    tokens: 10 * id as u32,
                })
            });
            let own = Piece { segment: Segment::Named(5 << 56 | line), tokens: rest };
            let pieces: Vec<_> = named.chain((rest > 0).then_some(own)).collect();
            let prompt_tokens = pieces.iter().map(|piece| piece.tokens).sum();
            let ids = PARTS.iter().zip(&parts).map(|((.., field), ids)| format!("\"{field}\": {ids:?}"));
            let session = if meant.session.is_empty() {
                String::new()
            } else {
                format!(", \"session_id\": \"{}\"", meant.session)
            };
            writeln!(
                text,
                "{{\"timestamp\": \"{}\", \"input_length\": {prompt_tokens}, \"output_length\": {}, \
                 \"hash_ids\": {{{}}}{session}{}}}",
                seconds(meant.ns),
                meant.output,
                ids.collect::<Vec<_>>().join(", "),
                class(meant)
            )
            .unwrap();
            let turn = (!meant.session.is_empty()).then(|| RowTurn {
                session: Some(meant.session.to_owned()),
                is_by_stamp: true,
                ..RowTurn::default()
            });
            expected.push(Row {
                prompt_tokens,
                content: Content::Pieces(pieces),
                turn: turn.map(Box::new),
                ..meant.row(line)
            });
        }
        let path = folder.path().join("0_trace.jsonl");
        let config = TraceConfig { path, ..config(TraceFormat::RagPulse) };
        prop_assert_eq!(read_with(&config, &text).unwrap(), expected);
    }
}

/// A valid text of every format.
const TEXTS: [(TraceFormat, &str); 16] = [
    (
        TraceFormat::Mooncake,
        r#"{"timestamp": 0, "input_length": 20, "output_length": 2, "hash_ids": [1], "session_id": "a", "priority": -1}
{"timestamp": 5.5, "input_length": 540, "output_length": 3, "hash_ids": [1, 2], "session_id": "a", "delay": 2}
{"timestamp": 6, "input_length": 8, "output_length": 1, "request_id": "x", "kind": "chat"}
{"timestamp": 7, "input_length": 8, "output_length": 1, "request_id": "y", "wait_for": ["x"]}
"#,
    ),
    (
        TraceFormat::MooncakeDelta,
        r#"{"session_id": "a", "timestamp": 0, "input_length": 20, "output_length": 2}
{"session_id": "a", "delay": 9, "input_length": 5, "output_length": 2}
"#,
    ),
    (
        TraceFormat::Azure,
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n\
         2023-11-16 18:15:50+00:00,1,2\n",
    ),
    (
        TraceFormat::BurstGpt,
        "Timestamp,Session ID,Elapsed time,Request tokens,Response tokens\n5,s1,12.5,472,18\n\
         45.25,s1,0,1087,0\n",
    ),
    (
        TraceFormat::QwenBailian,
        r#"{"chat_id": 9, "parent_chat_id": -1, "timestamp": 61.114, "input_length": 35, "output_length": 4, "hash_ids": [1089, 1090, 7]}
{"chat_id": 10, "parent_chat_id": 9, "timestamp": 70, "input_length": 16, "output_length": 4, "hash_ids": [1089]}
"#,
    ),
    (
        TraceFormat::Splitwise,
        "request_id,arrival_timestamp,batch_size,prompt_size,token_size\n0,0.5,1,10,20\n1,0.7,1,3,4\n",
    ),
    (
        TraceFormat::ServegenCsv,
        "request_id,timestamp,input_tokens,output_tokens\n0,0.5,10,20\n1,1.25,15,25\n",
    ),
    (
        TraceFormat::Vidur,
        "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,10,20\n0.125,30,4\n",
    ),
    (
        TraceFormat::VllmTimedTrace,
        "{\"timestamp\": 1.5, \"input_length\": 32, \"output_length\": 2, \"hash_ids\": [4, 4]}\n",
    ),
    (
        TraceFormat::VllmBench,
        "{\"date\": \"x\", \"input_lens\": [10, 20], \"output_lens\": [5, 0],\n\
         \"start_times\": [3.725848632, 4.5]}",
    ),
    (
        TraceFormat::Apex,
        "{\"StartTimeOffset\": 52000001, \"ContextTokens\": 3180, \"GeneratedTokens\": 8}\n",
    ),
    (TraceFormat::Apex, "StartTimeOffset,ContextTokens,GeneratedTokens\n0,10,2\n52000001,3,8\n"),
    (
        TraceFormat::RagPulse,
        r#"{"timestamp": "82", "input_length": 100, "output_length": 5, "hash_ids": {"sys_prompt": [1, 2], "user_input": [4]}, "session_id": "a"}
"#,
    ),
    (
        TraceFormat::Weka,
        r#"{"id": "s", "block_size": 16, "hash_id_scope": "local", "requests": [
 {"t": 0.0, "type": "n", "in": 40, "out": 5, "hash_ids": [1, 2], "api_time": 1.5},
 {"t": 2.0, "type": "subagent", "duration_ms": 4000, "requests": [
  {"t": 0.5, "type": "s", "in": 20, "out": 2, "hash_ids": [7], "api_time": 1.0}]},
 {"t": 7.0, "type": "n", "in": 60, "out": 5, "hash_ids": [1, 2, 3], "think_time": 2.5}]}
"#,
    ),
    (
        TraceFormat::Csv,
        "arrival_ns,prompt_tokens,output_tokens,max_tokens,priority,content,class,session,request,wait_for,delay_ns\n\
         0,30,2,2,0,7:16 p0:14,chat,s,a,-,\n1000,50,2,3,-1,7:16 p0:14 o0:2 9~18,chat,s,b,a,500\n",
    ),
    (
        TraceFormat::Jsonl,
        r#"{"arrival_ns": 0, "prompt_tokens": 30, "output_tokens": 2, "content": "7:16 p0:14", "session": "s"}
{"session": "s", "delay_ns": 500, "prompt_tokens": 48, "output_tokens": 2, "content": "7:16 p0:14 o0:2 p1:16", "class": "chat"}
"#,
    ),
];

/// Reads `bytes` to the end or to the first error.
fn replay(config: &TraceConfig, bytes: &[u8]) -> Result<u64, TraceError> {
    let lines = Lines::new(Box::new(Cursor::new(bytes.to_vec())), "t".into(), 1 << 20)?;
    let mut source = TraceSource::new(Opened::of_lines(lines, config)?, config)?;
    while source.next_request()?.is_some() {}
    Ok(source.counts().requests)
}

/// All ways to follow sessions.
fn all_sessions() -> [Option<SessionsConfig>; 4] {
    [
        None,
        Some(SessionsConfig::Open(OpenConfig {})),
        Some(SessionsConfig::Think(ThinkConfig::default())),
        Some(SessionsConfig::Closed(ClosedConfig::default())),
    ]
}

/// Reads `bytes` by `format` and by what they look like, with and without sessions. An error has words.
fn replay_in_every_way(format: TraceFormat, folder: &Path, bytes: &[u8]) {
    for sessions in all_sessions() {
        for format in [format, TraceFormat::Auto] {
            let path = folder.join("0_trace.jsonl");
            let config = TraceConfig { path, sessions, ..config(format) };
            if let Err(error) = replay(&config, bytes) {
                assert!(!error.to_string().is_empty());
            }
        }
    }
}

/// A change of a text.
#[derive(Clone, Debug)]
enum Mutation {
    Flip(Index, u8),
    Cut(Index, Index),
    Double(Index),
    Insert(Index, &'static str),
}

impl Mutation {
    fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        match self {
            Self::Flip(at, with) => {
                let at = at.index(bytes.len());
                bytes[at] ^= with;
            }
            Self::Cut(from, to) => {
                let (a, b) = (from.index(bytes.len()), to.index(bytes.len()));
                bytes.drain(a.min(b)..a.max(b));
            }
            Self::Double(line) => {
                let lines: Vec<_> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
                let at = line.index(lines.len());
                *bytes = [&lines[..=at], &lines[at..]].concat().concat();
            }
            Self::Insert(at, text) => {
                let at = at.index(bytes.len());
                bytes.splice(at..at, text.bytes());
            }
        }
    }
}

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let hard = vec![
        "0",
        "-",
        ".",
        "9999999999",
        "18446744073709551615",
        "1e308",
        "\"",
        "null",
        "[",
        "{}",
        ",",
        "é",
        "\n",
        ":",
        "~",
        " p0:1",
        "\u{feff}",
    ];
    let one = prop_oneof![
        (any::<Index>(), 1_u8..).prop_map(|(at, with)| Mutation::Flip(at, with)),
        (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Mutation::Cut(from, to)),
        any::<Index>().prop_map(Mutation::Double),
        (any::<Index>(), select(hard)).prop_map(|(at, text)| Mutation::Insert(at, text)),
    ];
    prop::collection::vec(one, 1..4)
}

#[test]
fn the_texts_that_are_mutated_are_valid() {
    let folder = lengths();
    let path = folder.path().join("0_trace.jsonl");
    for (format, text) in TEXTS {
        // Most of them have no class.
        let config = TraceConfig { path: path.clone(), class_field: None, ..config(format) };
        let read = replay(&config, text.as_bytes());
        assert!(read.is_ok_and(|requests| requests > 0), "{format:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let folder = lengths();
        for (format, _) in TEXTS {
            replay_in_every_way(format, folder.path(), &bytes);
        }
    }

    #[test]
    fn no_mutation_makes_a_reader_panic(mutations in mutations()) {
        let folder = lengths();
        for (format, text) in TEXTS {
            let mut bytes = text.as_bytes().to_vec();
            mutations.iter().for_each(|mutation| mutation.apply(&mut bytes));
            replay_in_every_way(format, folder.path(), &bytes);
        }
    }
}

/// What a request is made from: whole blocks of few names; a tail or tokens of its own; the session.
type Plan = (u64, (u32, i32), Vec<(u64, u32)>, (bool, u64, Index), u64, u64);

/// Requests in blocks of `block` tokens by `plans`.
fn workload(block: u32, plans: Vec<Plan>) -> Vec<RequestSpec> {
    let (mut ms, mut all, mut numbers) = (0, Vec::new(), [None; 4]);
    let mut begun = 0;
    for (id, (gap, (output, priority), blocks, (is_own, tail, fill), session, pause)) in
        (0..).zip(plans)
    {
        ms += gap;
        let mut pieces: Vec<_> = blocks
            .into_iter()
            .map(|(name, blocks)| Piece { segment: Segment::Named(name), tokens: blocks * block })
            .collect();
        let rest = fill.index(block as usize) as u32;
        if is_own {
            let tokens = rest + 1;
            pieces.push(Piece { segment: Segment::Prompt(RequestId(id)), tokens });
        } else if rest > 0 {
            let segment = Segment::Tail { name: tail, tokens: rest };
            pieces.push(Piece { segment, tokens: rest });
        }
        let prompt_tokens = pieces.iter().map(|piece| piece.tokens).sum::<u32>();
        // The last of the sessions is none. Others are numbered by first appearance.
        let turn = numbers.get_mut(session as usize).map(|number: &mut Option<u64>| {
            let is_start = number.is_none();
            let name = *number.get_or_insert_with(|| {
                begun += 1;
                begun - 1
            });
            let delay = SimDuration::from_ns(if is_start { 0 } else { pause * 250_000 });
            Box::new(Turn { session: Some(Name(name)), is_start, delay, ..Turn::default() })
        });
        all.push(RequestSpec {
            id: RequestId(id),
            arrival: SimTime::from_ns(ms * 1_000_000),
            prompt_tokens: if pieces.is_empty() { 5 } else { prompt_tokens },
            output_tokens: output,
            max_tokens: output,
            priority,
            class: 0,
            content: if pieces.is_empty() { Content::Private } else { Content::Pieces(pieces) },
            output: Segment::Output(RequestId(id)),
            line: 0,
            turn,
            drafts: None,
        });
    }
    all
}

/// Tokens at the start of two prompts that are the same: as far as their pieces agree.
fn common(one: &RequestSpec, other: &RequestSpec) -> u32 {
    let (Content::Pieces(one), Content::Pieces(other)) = (&one.content, &other.content) else {
        return 0;
    };
    let mut tokens = 0;
    for (a, b) in one.iter().zip(other) {
        if a.segment != b.segment {
            break;
        }
        tokens += a.tokens.min(b.tokens);
        if a.tokens != b.tokens {
            break;
        }
    }
    tokens
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn what_is_written_for_mooncake_shares_what_it_shared(
        block in select(vec![1_u32, 16, 64, 512]),
        plans in prop::collection::vec(
            (
                0_u64..3000,
                (1_u32..500, -3_i32..3),
                prop::collection::vec((0_u64..3, 1_u32..4), 0..4),
                (any::<bool>(), 0_u64..3, any::<Index>()),
                0_u64..5,
                0_u64..40_000,
            ),
            1..16,
        ),
    ) {
        let requests = workload(block, plans);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let format = WriteFormat::Mooncake { block_tokens: block, whole_blocks: false };
        let mut sink = WorkloadSink::create(&path, format).unwrap();
        for request in &requests {
            sink.write(request, &[]).unwrap();
        }
        sink.close().unwrap();
        let config = TraceConfig {
            path,
            hash_block_tokens: Some(block),
            ties: Ties::File,
            origin: Origin::Zero,
            class_field: None,
            ..config(TraceFormat::Mooncake)
        };
        let mut source = TraceSource::open(&config).unwrap();
        let mut back = Vec::new();
        while let Some(request) = source.next_request().unwrap() {
            back.push(request);
        }
        let facts = |request: &RequestSpec| {
            let RequestSpec { id, arrival, prompt_tokens, output_tokens, .. } = *request;
            let (priority, max) = (request.priority, request.max_tokens);
            (id, arrival, prompt_tokens, output_tokens, max, priority, request.turn.clone())
        };
        prop_assert_eq!(
            back.iter().map(facts).collect::<Vec<_>>(),
            requests.iter().map(facts).collect::<Vec<_>>()
        );
        for (at, one) in requests.iter().enumerate() {
            for other in 0..at {
                prop_assert_eq!(
                    common(&back[at], &back[other]),
                    common(one, &requests[other]),
                    "{} and {}", other, at
                );
            }
        }
    }
}
