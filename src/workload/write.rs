//! Writes a workload to a file that gives the same requests when it is read back.
//!
//! servesim's own format holds every field. Mooncake's holds arrivals, lengths, priorities and prompts
//! made of whole blocks with at most one tail; what it cannot say is refused, never rounded.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::request::{Content, RequestSpec, Segment};
use super::trace::own;
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
        "{path}: request {request} (line {line}) has {what}, which {format} cannot hold exactly; \
         write servesim's own format (`--to servesim`)",
        path = .path.display()
    )]
    Inexact { path: PathBuf, request: u32, line: u64, what: &'static str, format: &'static str },
}

/// The format of a file to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteFormat {
    /// servesim's own, as CSV or JSON lines by the name of the file.
    Own,
    /// Mooncake JSON lines with ids of this many tokens, at least 1.
    Mooncake { block_tokens: u32 },
}

/// Writes requests, in the order of their arrival.
pub(crate) struct WorkloadSink {
    path: PathBuf,
    out: ResultFile,
    form: Form,
    text: String,
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
            (WriteFormat::Mooncake { block_tokens }, extension)
                if extension == Some("jsonl") || is_stdout =>
            {
                Form::Mooncake(Ids::new(block_tokens))
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
        let mut sink = Self { path: path.to_owned(), out, form, text: String::new() };
        if matches!(sink.form, Form::Csv) {
            sink.line(own::HEADER)?;
        }
        Ok(sink)
    }

    /// Writes the next request.
    ///
    /// # Errors
    /// The format cannot hold it exactly, or the file cannot be written.
    pub(crate) fn write(&mut self, request: &RequestSpec) -> Result<(), WriteError> {
        let line = if let Form::Mooncake(ids) = &mut self.form {
            ids.row(request).map_err(|what| (what, "Mooncake"))
        } else {
            self.text.clear();
            if own::write_pieces(request, &mut self.text) {
                Ok(own_row(request, &self.text, matches!(self.form, Form::Csv)))
            } else {
                Err(("a prompt that continues another request", "servesim's format"))
            }
        };
        let line = line.map_err(|(what, format)| WriteError::Inexact {
            path: self.path.clone(),
            request: request.id.0,
            line: request.line,
            what,
            format,
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

fn own_row(request: &RequestSpec, pieces: &str, is_csv: bool) -> String {
    let arrival = request.arrival.as_ns();
    let RequestSpec { prompt_tokens, output_tokens, max_tokens, priority, .. } = request;
    if is_csv {
        return format!(
            "{arrival},{prompt_tokens},{output_tokens},{max_tokens},{priority},{pieces}"
        );
    }
    let mut row = Map::new();
    row.insert("arrival_ns".to_owned(), arrival.into());
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
    Value::Object(row).to_string()
}

/// Numbers prefixes by first appearance: an id names a block and everything before it. Memory grows
/// with the number of different blocks.
struct Ids {
    block_tokens: u32,
    /// The id of a block by the id before it, the segment it lies in, and its place there.
    ids: LookupMap<(u64, Segment, u32), u64>,
    next: u64,
}

impl Ids {
    fn new(block_tokens: u32) -> Self {
        Self { block_tokens, ids: LookupMap::new(), next: 0 }
    }

    /// `request` as a row, or what it has that a row cannot hold.
    fn row(&mut self, request: &RequestSpec) -> Result<String, &'static str> {
        if request.max_tokens != request.output_tokens {
            return Err("a limit other than its output");
        }
        let ns = request.arrival.as_ns();
        let ms = ns as f64 / 1e6;
        // Read back as the reader does: whole milliseconds, and a fraction.
        if ms.trunc() as u64 * 1_000_000 + (ms.fract() * 1e6).round() as u64 != ns {
            return Err("an arrival to the nanosecond");
        }
        let mut row = Map::new();
        let stamp = if ns.is_multiple_of(1_000_000) { json!(ns / 1_000_000) } else { json!(ms) };
        row.insert("timestamp".to_owned(), stamp);
        row.insert("input_length".to_owned(), request.prompt_tokens.into());
        row.insert("output_length".to_owned(), request.output_tokens.into());
        if let Content::Pieces(pieces) = &request.content {
            let mut ids = Vec::new();
            let mut last = u64::MAX;
            for (at, piece) in pieces.iter().enumerate() {
                let is_last = at + 1 == pieces.len();
                let rest = piece.tokens % self.block_tokens;
                let is_tail =
                    matches!(piece.segment, Segment::Tail { tokens, .. } if tokens == piece.tokens);
                if rest > 0 && !(is_last && is_tail) {
                    return Err("prompt pieces that are no whole blocks of the chosen size");
                }
                for place in 0..piece.tokens.div_ceil(self.block_tokens) {
                    let key = (last, piece.segment, place);
                    last = if let Some(&id) = self.ids.get(&key) {
                        id
                    } else {
                        self.ids.insert(key, self.next);
                        self.next += 1;
                        self.next - 1
                    };
                    ids.push(last);
                }
            }
            row.insert("hash_ids".to_owned(), ids.into());
        }
        if request.priority != 0 {
            row.insert("priority".to_owned(), request.priority.into());
        }
        Ok(Value::Object(row).to_string())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::request::Piece;
    use super::super::source::RequestSource;
    use super::super::trace::TraceSource;
    use super::super::trace::config::{Ties, TraceConfig};
    use super::*;
    use crate::base::ids::RequestId;
    use crate::base::time::SimTime;

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
            class: 0,
        }
    }

    fn piece(name: u64, tokens: u32) -> Piece {
        Piece { segment: Segment::Named(name), tokens }
    }

    fn tail(name: u64, tokens: u32) -> Piece {
        Piece { segment: Segment::Tail { name, tokens }, tokens }
    }

    fn write(path: &Path, format: WriteFormat, requests: &[RequestSpec]) -> Result<(), WriteError> {
        let mut sink = WorkloadSink::create(path, format)?;
        requests.iter().try_for_each(|request| sink.write(request))?;
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

    /// Requests in order of arrival, from few names, so that prefixes and instants are shared.
    fn workloads() -> impl Strategy<Value = Vec<RequestSpec>> {
        let pieces = prop::collection::vec((0_u64..3, 1_u32..40, any::<bool>()), 0..4);
        let one = (0_u64..3_000_000, 0_u32..5, 1_u32..5, -2_i32..3, pieces);
        prop::collection::vec(one, 1..20).prop_map(|rows| {
            let mut ns = 0;
            let mut all = Vec::new();
            for (id, (gap, output, max, priority, pieces)) in (0..).zip(rows) {
                ns += gap / 2 * (gap % 3);
                let pieces = pieces.into_iter().map(|(name, tokens, is_tail)| {
                    if is_tail { tail(name, tokens) } else { piece(name, tokens) }
                });
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

    #[test]
    fn mooncake_rows_number_prefixes_by_first_appearance() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let requests = [
            request(0, 0, (1, 1), 0, vec![piece(9, 32), tail(5, 3)]),
            request(1, 1_500_000, (2, 2), -1, vec![piece(9, 16), piece(9, 16)]),
            request(2, 2_000_000, (3, 3), 0, vec![]),
        ];
        write(&path, WriteFormat::Mooncake { block_tokens: 16 }, &requests).unwrap();
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

    #[test]
    fn what_mooncake_cannot_hold_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let refused = |request: RequestSpec| {
            let error = write(&path, WriteFormat::Mooncake { block_tokens: 16 }, &[request]);
            assert!(!path.exists());
            error.unwrap_err().to_string()
        };
        assert!(
            refused(request(0, 0, (1, 2), 0, vec![])).contains("has a limit other than its output")
        );
        let error = refused(request(0, 0, (1, 1), 0, vec![piece(9, 20), piece(8, 12)]));
        assert!(error.contains("no whole blocks"), "{error}");
        // A partial piece of a segment is shared with longer ones; a tail is not.
        let error = refused(request(0, 0, (1, 1), 0, vec![piece(9, 20)]));
        assert!(error.contains("no whole blocks") && error.contains("--to servesim"), "{error}");
        // 50 years in milliseconds: a double holds it to a quarter of a microsecond.
        let error = refused(request(0, 50 * 365 * 86_400 * 1_000_000_000 + 1, (1, 1), 0, vec![]));
        assert!(error.contains("an arrival to the nanosecond"), "{error}");
    }
}
