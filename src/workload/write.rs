//! Writes a workload to a file that gives the same requests when it is read back.
//!
//! servesim's own format holds every field. Mooncake's holds arrivals, lengths, priorities and prompts
//! made of whole blocks with at most one tail; what it cannot say is refused, never rounded, unless
//! sharing within blocks is given up.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::prompts::PromptTree;
use super::request::{Content, Name, Piece, RequestSpec, Segment, Turn};
use super::trace::own;
use crate::base::ids::RequestId;
use crate::base::lookup::LookupMap;
use crate::base::output::{OutputError, ResultFile, named_format};

/// Why a workload could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum WriteError {
    /// The file cannot be written, or its name says no format.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A request does not fit the format.
    #[error(
        "{path}: request {request}{line} has {what}, which {advice}",
        path = .path.display(),
        line = of_line(*.line),
        advice = .what.advice()
    )]
    Inexact { path: PathBuf, request: u32, line: u64, what: Inexact },
}

/// What a request has that Mooncake cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Inexact {
    #[error("a limit other than its output")]
    Limit,
    #[error("an arrival to the nanosecond")]
    Arrival,
    #[error("prompt pieces that are no whole blocks of the chosen size")]
    Blocks,
    #[error("tokens in its prompt that an earlier request generated")]
    Output,
    #[error("tokens of an earlier prompt that was written without ids")]
    Unnamed,
    #[error("a class other than none")]
    Classed,
    #[error("a record of accepted drafts")]
    Drafts,
    #[error("a pause to the nanosecond")]
    Pause,
    #[error("a class whose name has a quote or a line end in it")]
    Class,
    #[error("only what it adds to the request before it in its session")]
    Additions,
}

impl Inexact {
    /// What else may be done.
    const fn advice(self) -> &'static str {
        match self {
            Self::Class | Self::Additions => "no format holds",
            Self::Blocks | Self::Output => {
                "Mooncake cannot hold exactly; write servesim's own format (`--to servesim`), or give \
                 up sharing within blocks (`--whole-blocks`)"
            }
            _ => "Mooncake cannot hold exactly; write servesim's own format (`--to servesim`)",
        }
    }
}

/// ` (line 7)`, where there is one.
fn of_line(line: u64) -> String {
    if line == 0 { String::new() } else { format!(" (line {line})") }
}

/// The format of a file to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteFormat {
    /// servesim's own, as CSV or JSON lines by the name of the file.
    Own,
    /// Mooncake JSON lines with ids of this many tokens, at least 1.
    Mooncake {
        block_tokens: u32,
        /// Whether prompts that differ within a block may lose what they share of it.
        whole_blocks: bool,
    },
}

/// Writes requests, in the order of their arrival.
pub(crate) struct WorkloadSink {
    path: PathBuf,
    out: ResultFile,
    form: Form,
    text: String,
    written: u32,
}

enum Form {
    Csv,
    Jsonl,
    Mooncake(Ids),
}

impl WorkloadSink {
    /// Opens `path`: `.csv` (servesim's own alone) or `.jsonl`, each with `.gz` or without; `-` is
    /// JSON lines on the standard output. The file appears when it is complete.
    ///
    /// # Errors
    /// The name says no format, or no file can be made there.
    pub(crate) fn create(path: &Path, format: WriteFormat) -> Result<Self, OutputError> {
        let (extension, gzip) = named_format(path);
        let is_stdout = path == Path::new("-");
        let form = match (format, extension.as_deref()) {
            (WriteFormat::Own, Some("csv")) => Form::Csv,
            (WriteFormat::Own, Some("jsonl")) => Form::Jsonl,
            (WriteFormat::Own, _) if is_stdout => Form::Jsonl,
            (WriteFormat::Mooncake { block_tokens, whole_blocks }, extension)
                if extension == Some("jsonl") || is_stdout =>
            {
                Form::Mooncake(Ids::new(block_tokens, whole_blocks))
            }
            (format, extension) => {
                return Err(OutputError::Extension {
                    path: path.to_owned(),
                    found: extension.unwrap_or_default().to_owned(),
                    accepted: if format == WriteFormat::Own {
                        ".csv or .jsonl, optionally with .gz, or `-` for JSON lines"
                    } else {
                        ".jsonl, optionally with .gz, or `-`"
                    },
                });
            }
        };
        let out = ResultFile::create(path, gzip)?;
        let mut sink = Self { path: path.to_owned(), out, form, text: String::new(), written: 0 };
        if matches!(sink.form, Form::Csv) {
            sink.line(own::HEADER)?;
        }
        Ok(sink)
    }

    /// Writes the next request; all of a workload, in order of their ids from 0. `classes` are the names of
    /// those that there have been so far.
    ///
    /// # Errors
    /// The format cannot hold it exactly, or the file cannot be written.
    pub(crate) fn write(
        &mut self,
        request: &RequestSpec,
        classes: &[String],
    ) -> Result<(), WriteError> {
        debug_assert_eq!(request.id.0, self.written, "rows are called by ids");
        self.written += 1;
        let class = classes.get(usize::from(request.class)).map_or("", String::as_str);
        let line = if request.turn.as_ref().is_some_and(|turn| turn.continues) {
            Err(Inexact::Additions)
        } else if let Form::Mooncake(ids) = &mut self.form {
            ids.row(request, class)
        } else if class.contains(['"', '\n', '\r']) {
            Err(Inexact::Class)
        } else {
            self.text.clear();
            own::write_pieces(request, &mut self.text);
            Ok(own_row(request, &self.text, class, matches!(self.form, Form::Csv)))
        };
        let line = line.map_err(|what| WriteError::Inexact {
            path: self.path.clone(),
            request: request.id.0,
            line: request.line,
            what,
        })?;
        Ok(self.line(&line)?)
    }

    fn line(&mut self, line: &str) -> Result<(), OutputError> {
        writeln!(self.out, "{line}").map_err(|e| OutputError::write(&self.path, e))
    }

    /// Puts the complete file in its place.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn close(self) -> Result<(), OutputError> {
        self.out.close()
    }
}

fn own_row(request: &RequestSpec, pieces: &str, class: &str, is_csv: bool) -> String {
    let turn = request.turn.as_deref();
    let arrival = turn.is_none_or(|turn| !turn.lacks_arrival).then(|| request.arrival.as_ns());
    let text = |name: &Name| name.0.to_string();
    let session = turn.and_then(|turn| turn.session.as_ref()).map(text);
    let name = turn.and_then(|turn| turn.name.as_ref()).map(text);
    let waits = turn.and_then(|turn| turn.wait_for.as_ref());
    // Waiting for nobody is something else than following a session.
    let wait_for = waits.map(|all| match all.as_slice() {
        [] => own::NOBODY.to_owned(),
        all => all.iter().map(text).collect::<Vec<_>>().join(" "),
    });
    let delay = turn.filter(|turn| !turn.is_start).map(|turn| turn.delay.as_ns());
    let RequestSpec { prompt_tokens, output_tokens, max_tokens, priority, .. } = request;
    let accepted = request.drafts.as_ref().map(|drafts| drafts.accepted.as_slice());
    if is_csv {
        let accepted: Vec<_> = accepted.unwrap_or_default().iter().map(u32::to_string).collect();
        let quote = if class.contains(',') || class.trim() != class { "\"" } else { "" };
        let number = |number: Option<u64>| number.map_or(String::new(), |n| n.to_string());
        return format!(
            "{},{prompt_tokens},{output_tokens},{max_tokens},{priority},{pieces},{quote}{class}{quote},\
             {},{},{},{},{}",
            number(arrival),
            session.unwrap_or_default(),
            name.unwrap_or_default(),
            wait_for.unwrap_or_default(),
            number(delay),
            accepted.join(" ")
        );
    }
    let mut row = Map::new();
    if let Some(arrival) = arrival {
        row.insert("arrival_ns".to_owned(), arrival.into());
    }
    let texts = [
        ("class", (!class.is_empty()).then(|| class.to_owned())),
        ("session", session),
        ("request", name),
        ("wait_for", wait_for),
    ];
    for (field, text) in texts {
        if let Some(text) = text {
            row.insert(field.to_owned(), text.into());
        }
    }
    if let Some(delay) = delay {
        row.insert("delay_ns".to_owned(), delay.into());
    }
    row.insert("prompt_tokens".to_owned(), (*prompt_tokens).into());
    row.insert("output_tokens".to_owned(), (*output_tokens).into());
    if max_tokens != output_tokens {
        row.insert("max_tokens".to_owned(), (*max_tokens).into());
    }
    if *priority != 0 {
        row.insert("priority".to_owned(), (*priority).into());
    }
    if !pieces.is_empty() {
        row.insert("content".to_owned(), pieces.into());
    }
    if let Some(accepted) = accepted {
        row.insert("accepted_drafts".to_owned(), accepted.into());
    }
    Value::Object(row).to_string()
}

/// Numbers prefixes by first appearance: an id names a block and everything before it. Memory grows
/// with the number of different blocks.
struct Ids {
    block_tokens: u32,
    whole_blocks: bool,
    tree: PromptTree,
    /// The id of a block by the node it ends in and its end in the prompt.
    ids: LookupMap<(u32, u32), u64>,
    /// Tokens of whole blocks that each request brought alone and that have ids.
    owned: LookupMap<RequestId, u32>,
    next: u64,
}

impl Ids {
    fn new(block_tokens: u32, whole_blocks: bool) -> Self {
        Self {
            block_tokens,
            whole_blocks,
            tree: PromptTree::default(),
            ids: LookupMap::new(),
            owned: LookupMap::new(),
            next: 0,
        }
    }

    /// `request` as a row, or what it has that a row cannot hold.
    fn row(&mut self, request: &RequestSpec, class: &str) -> Result<String, Inexact> {
        if request.max_tokens != request.output_tokens {
            return Err(Inexact::Limit);
        }
        if !class.is_empty() {
            return Err(Inexact::Classed);
        }
        if request.drafts.is_some() {
            return Err(Inexact::Drafts);
        }
        let mut row = Map::new();
        let turn = request.turn.as_deref();
        if turn.is_none_or(|turn| !turn.lacks_arrival) {
            let stamp = milliseconds(request.arrival.as_ns()).ok_or(Inexact::Arrival)?;
            row.insert("timestamp".to_owned(), stamp);
        }
        row.insert("input_length".to_owned(), request.prompt_tokens.into());
        row.insert("output_length".to_owned(), request.output_tokens.into());
        // A later turn may go on with a prompt that nobody else has.
        let own = [Piece { segment: Segment::Prompt(request.id), tokens: request.prompt_tokens }];
        let pieces = match &request.content {
            Content::Pieces(pieces) => Some(pieces.as_slice()),
            Content::Private => turn.filter(|_| request.prompt_tokens > 0).map(|_| own.as_slice()),
        };
        if let Some(pieces) = pieces {
            self.check(request.id, pieces)?;
            row.insert("hash_ids".to_owned(), self.of_prompt(pieces).into());
        }
        if let Some(turn) = turn {
            write_turn(turn, &mut row)?;
        }
        if request.priority != 0 {
            row.insert("priority".to_owned(), request.priority.into());
        }
        Ok(Value::Object(row).to_string())
    }

    /// Whether ids can say what the prompt of request `id` shares with others.
    fn check(&mut self, id: RequestId, pieces: &[Piece]) -> Result<(), Inexact> {
        let is_exact = !self.whole_blocks;
        for (at, piece) in pieces.iter().enumerate() {
            let rest = piece.tokens % self.block_tokens;
            // A partial last block is shared with nobody but its like, which is what an id of it says.
            let mut may_be_partial = false;
            match piece.segment {
                Segment::Named(_) => {}
                Segment::Tail { tokens, .. } => {
                    may_be_partial = tokens == piece.tokens;
                    if is_exact && tokens < piece.tokens {
                        return Err(Inexact::Blocks);
                    }
                }
                Segment::Prompt(owner) if owner == id => {
                    may_be_partial = true;
                    self.owned.insert(id, piece.tokens - rest);
                }
                Segment::Prompt(owner) => {
                    let whole_tokens = *self.owned.get(&owner).ok_or(Inexact::Unnamed)?;
                    if is_exact && whole_tokens < piece.tokens {
                        return Err(Inexact::Blocks);
                    }
                }
                Segment::Output(_) if is_exact => return Err(Inexact::Output),
                Segment::Output(_) => {}
            }
            let is_last = at + 1 == pieces.len();
            if is_exact && rest > 0 && !(is_last && may_be_partial) {
                return Err(Inexact::Blocks);
            }
        }
        Ok(())
    }

    fn of_prompt(&mut self, pieces: &[Piece]) -> Vec<u64> {
        let (path, _) = self.tree.walk(pieces);
        let block_tokens = u64::from(self.block_tokens);
        let mut named = Vec::new();
        let mut start = 0;
        for &(node, node_end) in &path {
            while start + block_tokens <= u64::from(node_end) {
                start += block_tokens;
                named.push(self.id(node, start as u32));
            }
        }
        // The partial last block.
        named.extend(
            path.last()
                .filter(|&&(_, end)| start < u64::from(end))
                .map(|&(node, end)| self.id(node, end)),
        );
        named
    }

    fn id(&mut self, node: u32, end: u32) -> u64 {
        if let Some(&id) = self.ids.get(&(node, end)) {
            return id;
        }
        self.ids.insert((node, end), self.next);
        self.next += 1;
        self.next - 1
    }
}

/// What a request follows, in the fields of Mooncake's.
fn write_turn(turn: &Turn, row: &mut Map<String, Value>) -> Result<(), Inexact> {
    let text = |name: &Name| Value::from(name.0.to_string());
    let names = [("session_id", &turn.session), ("request_id", &turn.name)];
    for (field, name) in names {
        if let Some(name) = name {
            row.insert(field.to_owned(), text(name));
        }
    }
    if let Some(all) = &turn.wait_for {
        row.insert("wait_for".to_owned(), all.iter().map(text).collect());
    }
    if !turn.is_start {
        let delay = milliseconds(turn.delay.as_ns()).ok_or(Inexact::Pause)?;
        row.insert("delay".to_owned(), delay);
    }
    Ok(())
}

/// A time as milliseconds; `None` where it does not come back as it is.
fn milliseconds(ns: u64) -> Option<Value> {
    if ns.is_multiple_of(1_000_000) {
        return Some(json!(ns / 1_000_000));
    }
    let ms = ns as f64 / 1e6;
    // Read back as the reader does: whole milliseconds, and a fraction.
    let back = ms.trunc() as u64 * 1_000_000 + (ms.fract() * 1e6).round() as u64;
    (back == ns).then(|| json!(ms))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::sessions::config::{SessionsConfig, ThinkConfig};
    use super::super::source::RequestSource;
    use super::super::trace::TraceSource;
    use super::super::trace::config::{Ties, TraceConfig};
    use super::*;
    use crate::base::ids::RequestId;
    use crate::base::time::{SimDuration, SimTime};

    fn request(
        id: u32,
        ns: u64,
        output: (u32, u32),
        priority: i32,
        pieces: Vec<Piece>,
    ) -> RequestSpec {
        let tokens = pieces.iter().map(|piece| piece.tokens).sum::<u32>();
        RequestSpec {
            id: RequestId(id),
            arrival: SimTime::from_ns(ns),
            prompt_tokens: if tokens == 0 { 7 } else { tokens },
            output_tokens: output.0.min(output.1),
            max_tokens: output.1,
            priority,
            content: if tokens == 0 { Content::Private } else { Content::Pieces(pieces) },
            output: Segment::Output(RequestId(id)),
            line: 0,
            turn: None,
            drafts: None,
            class: 0,
        }
    }

    fn piece(name: u64, tokens: u32) -> Piece {
        Piece { segment: Segment::Named(name), tokens }
    }

    fn tail(name: u64, tokens: u32) -> Piece {
        Piece { segment: Segment::Tail { name, tokens }, tokens }
    }

    /// Exact, in blocks of 16 tokens.
    const MOONCAKE: WriteFormat = WriteFormat::Mooncake { block_tokens: 16, whole_blocks: false };

    fn write(path: &Path, format: WriteFormat, requests: &[RequestSpec]) -> Result<(), WriteError> {
        let mut sink = WorkloadSink::create(path, format)?;
        requests.iter().try_for_each(|request| sink.write(request, &[]))?;
        Ok(sink.close()?)
    }

    fn read(path: &Path, block_tokens: Option<u32>) -> Vec<RequestSpec> {
        let config = TraceConfig {
            path: path.to_owned(),
            hash_block_tokens: block_tokens,
            ties: Ties::File,
            origin: super::super::trace::config::Origin::Zero,
            ..TraceConfig::default()
        };
        let mut source = TraceSource::open(&config).unwrap();
        let mut all = Vec::new();
        while source.next_arrival().unwrap().is_some() {
            all.push(RequestSpec { line: 0, ..source.take() });
        }
        all
    }

    /// A piece of the prompt of request `id`, of any kind there is.
    fn any_piece(id: u32, kind: u8, name: u64, tokens: u32) -> Piece {
        let before = (name as u32).min(id.saturating_sub(1));
        let segment = match kind {
            0 => Segment::Tail { name, tokens },
            1 => Segment::Tail { name, tokens: tokens + 5 },
            2 => Segment::Prompt(RequestId(id)),
            3 if id > 0 => Segment::Prompt(RequestId(before)),
            4 if id > 0 => Segment::Output(RequestId(before)),
            _ => Segment::Named(name),
        };
        Piece { segment, tokens }
    }

    /// Requests in order of arrival, from few names, so that prefixes and instants are shared.
    fn workloads() -> impl Strategy<Value = Vec<RequestSpec>> {
        let pieces = prop::collection::vec((0_u8..6, 0_u64..3, 1_u32..40), 0..4);
        let one = (0_u64..3_000_000, 0_u32..5, 1_u32..5, -2_i32..3, pieces);
        prop::collection::vec(one, 1..20).prop_map(|rows| {
            let mut ns = 0;
            let mut all = Vec::new();
            for (id, (gap, output, max, priority, pieces)) in (0..).zip(rows) {
                ns += gap / 2 * (gap % 3);
                let pieces = pieces
                    .into_iter()
                    .map(|(kind, name, tokens)| any_piece(id, kind, name, tokens));
                all.push(request(id, ns, (output, max), priority, pieces.collect()));
            }
            all
        })
    }

    proptest! {
        #[test]
        fn our_own_formats_give_back_every_request(
            requests in workloads(),
            name in prop::sample::select(vec!["t.csv", "t.jsonl", "t.csv.gz", "t.jsonl.gz"]),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(name);
            write(&path, WriteFormat::Own, &requests).unwrap();
            prop_assert_eq!(read(&path, None), requests);
        }
    }

    /// Requests of two sessions and a graph of calls, of two classes.
    fn tied() -> Vec<RequestSpec> {
        let turn = |session, is_start, delay| {
            let delay = SimDuration::from_ns(delay);
            Turn { session: Some(Name(session)), is_start, delay, ..Turn::default() }
        };
        let call = |name, wait_for: &[u64], delay| Turn {
            name: Some(Name(name)),
            wait_for: Some(wait_for.iter().map(|&name| Name(name)).collect()),
            ..turn(2, wait_for.is_empty(), delay)
        };
        let turns = [
            turn(0, true, 0),
            turn(1, true, 0),
            turn(0, false, 7_500_000),
            Turn { lacks_arrival: true, ..turn(1, false, 2_000_000) },
            call(0, &[], 0),
            call(1, &[], 0),
            call(2, &[0, 1], 1_000_000),
        ];
        let requests = (0..).zip(turns).map(|(id, turn)| RequestSpec {
            turn: Some(Box::new(turn)),
            class: (id % 2) as u16,
            ..request(
                id,
                u64::from(id.min(3)) * 1_000_000,
                (1, 1),
                0,
                vec![piece(u64::from(id), 16)],
            )
        });
        let mut requests: Vec<_> = requests.collect();
        // A row without an arrival is given the latest one.
        requests[3].arrival = requests[2].arrival;
        requests
    }

    #[test]
    fn what_requests_follow_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let classes = ["chat, slow".to_owned(), "code".to_owned()];
        for name in ["t.csv", "t.jsonl", "m.jsonl"] {
            let is_own = name != "m.jsonl";
            let path = folder.path().join(name);
            let format = if is_own {
                WriteFormat::Own
            } else {
                WriteFormat::Mooncake { block_tokens: 16, whole_blocks: false }
            };
            let mut requests = tied();
            if !is_own {
                requests.iter_mut().for_each(|request| request.class = 0);
            }
            let mut sink = WorkloadSink::create(&path, format).unwrap();
            for request in &requests {
                sink.write(request, if is_own { &classes } else { &[] }).unwrap();
            }
            sink.close().unwrap();
            let config = TraceConfig {
                path,
                hash_block_tokens: (!is_own).then_some(16),
                ties: Ties::File,
                origin: super::super::trace::config::Origin::Zero,
                sessions: Some(SessionsConfig::Think(ThinkConfig::default())),
                ..TraceConfig::default()
            };
            let mut source = TraceSource::open(&config).unwrap();
            let mut back = Vec::new();
            while source.next_arrival().unwrap().is_some() {
                back.push(RequestSpec { line: 0, ..source.take() });
            }
            assert_eq!(back, requests, "{name}");
            assert_eq!(source.class_names(), if is_own { &classes[..] } else { &[] });
        }
    }

    #[test]
    fn mooncake_rows_number_prefixes_by_first_appearance() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let requests = [
            request(0, 0, (1, 1), 0, vec![piece(9, 32), tail(5, 3)]),
            request(1, 1_500_000, (2, 2), -1, vec![piece(9, 16), piece(9, 16)]),
            request(2, 2_000_000, (3, 3), 0, vec![]),
        ];
        write(&path, MOONCAKE, &requests).unwrap();
        // The second prompt shares one block: behind it, segment 9 starts anew.
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "{\"timestamp\":0,\"input_length\":35,\"output_length\":1,\"hash_ids\":[0,1,2]}\n\
             {\"timestamp\":1.5,\"input_length\":32,\"output_length\":2,\"hash_ids\":[0,3],\"priority\":-1}\n\
             {\"timestamp\":2,\"input_length\":7,\"output_length\":3}\n"
        );
        let back = read(&path, Some(16));
        assert_eq!(back[0].content, Content::Pieces(vec![piece(0, 16), piece(1, 16), tail(2, 3)]));
        assert_eq!(back[1].arrival, requests[1].arrival);
        assert_eq!(back[2], requests[2]);
    }

    fn own(id: u32, tokens: u32) -> Piece {
        Piece { segment: Segment::Prompt(RequestId(id)), tokens }
    }

    /// The ids of each row.
    fn ids(format: WriteFormat, requests: &[RequestSpec]) -> Vec<Value> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        write(&path, format, requests).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        rows.map(|row| row["hash_ids"].clone()).collect()
    }

    #[test]
    fn what_a_prompt_has_alone_may_end_in_a_partial_block() {
        let requests = [
            request(0, 0, (1, 1), 0, vec![piece(9, 32), own(0, 20)]),
            request(1, 0, (1, 1), 0, vec![piece(9, 32), own(1, 20)]),
            // The whole block that request 0 brought, and not the part of one.
            request(2, 0, (1, 1), 0, vec![piece(9, 32), own(0, 16), tail(1, 3)]),
        ];
        assert_eq!(
            ids(MOONCAKE, &requests),
            [json!([0, 1, 2, 3]), json!([0, 1, 4, 5]), json!([0, 1, 2, 6])]
        );
    }

    #[test]
    fn whole_blocks_lose_what_prompts_share_of_a_block() {
        let requests = [
            request(0, 0, (1, 1), 0, vec![piece(9, 20), own(0, 20)]),
            request(1, 0, (1, 1), 0, vec![piece(9, 20), own(1, 20)]),
            request(2, 0, (1, 1), 0, vec![piece(9, 20)]),
            request(3, 0, (1, 1), 0, vec![piece(9, 20)]),
        ];
        let whole = WriteFormat::Mooncake { block_tokens: 16, whole_blocks: true };
        // Of the twenty tokens of 9, sixteen are a block; the next holds four of 9 and twelve of its own.
        assert_eq!(
            ids(whole, &requests),
            [json!([0, 1, 2]), json!([0, 3, 4]), json!([0, 5]), json!([0, 5])]
        );
    }

    #[test]
    fn what_mooncake_cannot_hold_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let refused = |request: RequestSpec| {
            let error = write(&path, MOONCAKE, &[request]);
            assert!(!path.exists());
            error.unwrap_err().to_string()
        };
        assert!(
            refused(request(0, 0, (1, 2), 0, vec![])).contains("has a limit other than its output")
        );
        let error = refused(request(0, 0, (1, 1), 0, vec![piece(9, 20), piece(8, 12)]));
        assert!(error.contains("no whole blocks") && error.contains("--whole-blocks"), "{error}");
        let output = Piece { segment: Segment::Output(RequestId(0)), tokens: 16 };
        let error = refused(request(0, 0, (1, 1), 0, vec![piece(9, 16), output]));
        assert!(error.contains("request 0 has tokens in its prompt that an earlier"), "{error}");
        let error = refused(request(0, 0, (1, 1), 0, vec![own(7, 16)]));
        assert!(
            error.contains("written without ids") && !error.contains("whole-blocks"),
            "{error}"
        );
        // A partial piece of a segment is shared with longer ones; a tail is not.
        let error = refused(request(0, 0, (1, 1), 0, vec![piece(9, 20)]));
        assert!(error.contains("no whole blocks") && error.contains("--to servesim"), "{error}");
        // 50 years in milliseconds: a double holds it to a quarter of a microsecond.
        let error = refused(request(0, 50 * 365 * 86_400 * 1_000_000_000 + 1, (1, 1), 0, vec![]));
        assert!(error.contains("an arrival to the nanosecond"), "{error}");
    }
}
