//! What a path leads to: a file, the standard input, or a folder whose files are one trace.
//!
//! The files of a folder are read in the order of their names, as one stream of rows: each is opened
//! by its format's own reader when the one before it has ended, so that one of them is open at a time.

use std::fs;
use std::path::{Path, PathBuf};

use super::config::{TraceConfig, TraceFormat};
use super::lines::Lines;
use super::{
    FormatFacts, IgnoredFields, ReaderEntry, Row, RowReader, TraceError, entry_for, ragpulse,
};

/// A trace of a known format before its first row.
pub(super) struct Opened {
    pub(super) format: TraceFormat,
    /// The name errors give to the trace as a whole.
    pub(super) path: PathBuf,
    /// Whether its first file is compressed.
    pub(super) gzip: bool,
    pub(super) rows: Box<dyn RowReader>,
}

impl Opened {
    /// Opens what `config` leads to.
    ///
    /// # Errors
    /// There is no such file, it cannot be read, or its first line fits no format.
    pub(super) fn new(config: &TraceConfig) -> Result<Self, TraceError> {
        let path = &config.path;
        if path == Path::new("-") || !path.is_dir() {
            return Self::of_lines(Lines::open(path)?, config);
        }
        let rows = path.join(ragpulse::ROWS);
        let may_be_ragpulse = match config.format {
            TraceFormat::RagPulse => true,
            TraceFormat::Auto => rows.is_file() && ragpulse::has_lengths(path),
            _ => false,
        };
        if may_be_ragpulse {
            let config = TraceConfig { path: rows, ..config.clone() };
            return Self::of_lines(Lines::open(&config.path)?, &config);
        }
        Self::of_files(files(path)?, config)
    }

    /// The trace in `lines`.
    ///
    /// # Errors
    /// The first line fits no format, or what the format asks of it.
    pub(super) fn of_lines(mut lines: Lines, config: &TraceConfig) -> Result<Self, TraceError> {
        let entry = entry_for(&mut lines, config.format)?;
        let path = lines.path().to_owned();
        let gzip = lines.is_gzip();
        Ok(Self { format: entry.format, path, gzip, rows: (entry.open)(lines, config)? })
    }

    fn of_files(files: Vec<PathBuf>, config: &TraceConfig) -> Result<Self, TraceError> {
        let path = config.path.clone();
        let (mut at, mut first) = (0, None);
        while first.is_none() {
            let Some(file) = files.get(at) else {
                return Err(TraceError::Empty { path });
            };
            first = with_a_line(file)?;
            at += 1;
        }
        let mut lines = first.expect("a file has a line");
        let entry = entry_for(&mut lines, config.format)?;
        let gzip = lines.is_gzip();
        let current = (entry.open)(lines, config)?;
        let mut rows = Folder {
            files,
            at: at - 1,
            entry,
            current,
            ignored: IgnoredFields::default(),
            seen: (0, false),
            config: config.clone(),
        };
        rows.note_ignored();
        Ok(Self { format: entry.format, path, gzip, rows: Box::new(rows) })
    }
}

/// The files of a folder that hold a trace, in the order of their names: those that are neither hidden
/// nor a description. Folders within are left alone.
fn files(folder: &Path) -> Result<Vec<PathBuf>, TraceError> {
    let unreadable = |source| TraceError::Unreadable { path: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let is_hidden =
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let is_page =
            path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("md"));
        if !is_hidden && !is_page && path.is_file() {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(TraceError::EmptyFolder { path: folder.to_owned() });
    }
    files.sort();
    Ok(files)
}

/// The lines of a file, or `None` if it has none.
fn with_a_line(path: &Path) -> Result<Option<Lines>, TraceError> {
    let mut lines = Lines::open(path)?;
    if lines.next_line()?.is_none() {
        return Ok(None);
    }
    lines.hold();
    Ok(Some(lines))
}

/// The rows of several files, one after the other.
struct Folder {
    files: Vec<PathBuf>,
    /// The place of the current file.
    at: usize,
    entry: &'static ReaderEntry,
    current: Box<dyn RowReader>,
    /// Of all files so far.
    ignored: IgnoredFields,
    /// How much the current reader had ignored when it was last asked.
    seen: (usize, bool),
    config: TraceConfig,
}

impl Folder {
    /// Opens the next file that has a line; `false` behind the last.
    fn open_next(&mut self) -> Result<bool, TraceError> {
        while self.at + 1 < self.files.len() {
            self.at += 1;
            let file = &self.files[self.at];
            let Some(mut lines) = with_a_line(file)? else { continue };
            let entry = entry_for(&mut lines, self.config.format)?;
            if entry.format != self.entry.format {
                return Err(TraceError::MixedFormats {
                    path: file.clone(),
                    found: name(entry.format),
                    expected: name(self.entry.format),
                });
            }
            let before = self.current.numbered();
            self.current = (entry.open)(lines, &self.config)?;
            self.current.number_from(before);
            self.seen = (0, false);
            self.note_ignored();
            return Ok(true);
        }
        Ok(false)
    }

    /// Keeps what the current reader has ignored.
    fn note_ignored(&mut self) {
        let ignored = self.current.ignored();
        let seen = (ignored.names.len(), ignored.sessions);
        // Names are only added, until there are too many of them.
        if seen != self.seen || seen.0 >= IgnoredFields::NAMES_MAX {
            ignored.names.iter().for_each(|name| self.ignored.add(name));
            self.ignored.sessions |= ignored.sessions;
            self.seen = seen;
        }
    }
}

/// A format as a scenario calls it.
fn name(format: TraceFormat) -> String {
    let name = serde_json::to_value(format).expect("a choice is plain data");
    name.as_str().unwrap_or_default().to_owned()
}

impl RowReader for Folder {
    fn next_row(&mut self) -> Result<Option<Row>, TraceError> {
        loop {
            let row = self.current.next_row();
            self.note_ignored();
            if let Some(row) = row? {
                let file = u32::try_from(self.at).unwrap_or(u32::MAX);
                return Ok(Some(Row { file, ..row }));
            }
            if !self.open_next()? {
                return Ok(None);
            }
        }
    }

    fn facts(&self) -> FormatFacts {
        self.current.facts()
    }

    fn show_stamp(&self, stamp: i128) -> String {
        self.current.show_stamp(stamp)
    }

    fn ignored(&self) -> &IgnoredFields {
        &self.ignored
    }

    fn file(&self, file: u32) -> Option<&Path> {
        self.files.get(file as usize).map(PathBuf::as_path)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::TraceSource;
    use super::*;
    use crate::base::ids::RequestId;
    use crate::workload::request::{Content, RequestSpec, Segment};
    use crate::workload::sessions::config::{SessionsConfig, ThinkConfig};
    use crate::workload::source::RequestSource;

    const HEADER: &str = "arrived_at,num_prefill_tokens,num_decode_tokens";

    /// Arrivals in seconds, prompt tokens and lines.
    type Seen = Vec<(f64, u32, u64)>;

    /// A folder with these files.
    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = fs::File::create(folder.path().join(name)).unwrap();
            let mut out: Box<dyn Write> =
                if Path::new(name).extension().is_some_and(|end| end == "gz") {
                    Box::new(flate2::write::GzEncoder::new(file, flate2::Compression::fast()))
                } else {
                    Box::new(file)
                };
            out.write_all(text.as_bytes()).unwrap();
        }
        folder
    }

    fn config(folder: &tempfile::TempDir) -> TraceConfig {
        TraceConfig { path: folder.path().to_owned(), ..TraceConfig::default() }
    }

    /// Arrivals in seconds, prompt tokens and lines of the requests.
    fn read(config: &TraceConfig) -> Result<(Seen, TraceSource), TraceError> {
        let mut source = TraceSource::open(config)?;
        let mut all = Vec::new();
        while let Some(arrival) = source.next_arrival()? {
            let request = source.take();
            all.push((arrival.as_s(), request.prompt_tokens, request.line));
        }
        Ok((all, source))
    }

    /// What is said of a folder that cannot be read, without its own path.
    fn refused(folder: &tempfile::TempDir, config: &TraceConfig) -> String {
        let error = read(config).err().expect("must be refused").to_string();
        let (path, what) = error.split_at(folder.path().as_os_str().len());
        assert_eq!(path, folder.path().display().to_string());
        what.to_owned()
    }

    #[test]
    fn files_are_one_stream_in_the_order_of_their_names() {
        let folder = folder(&[
            ("b.csv.gz", &format!("{HEADER},extra\n3,13,1,x\n2.5,14,1,x\n")),
            ("a.csv", &format!("{HEADER}\n1,11,1\n\n2.75,12,1\n")),
            ("c.csv", ""),
            ("d.csv", &format!("{HEADER}\n4,15,1\n")),
            (".hidden", "no trace"),
            ("SOURCE.md", "no trace"),
        ]);
        fs::create_dir(folder.path().join("e")).unwrap();
        let (requests, source) = read(&config(&folder)).unwrap();
        // 2.5 s stands in a later file than 2.75 s: the rows of all are sorted together.
        let expected = [(0.0, 11, 2), (1.5, 14, 3), (1.75, 12, 4), (2.0, 13, 2), (3.0, 15, 2)];
        assert_eq!(requests, expected);
        assert_eq!(source.describe().format, TraceFormat::Vidur);
        assert_eq!(source.describe().ignored_fields, ["extra"]);
        assert_eq!(source.counts().rows_read, 5);
    }

    #[test]
    fn rows_of_one_instant_go_by_file_and_then_by_line() {
        let row = |tokens| {
            format!("{{\"arrival_ns\": 5, \"prompt_tokens\": {tokens}, \"output_tokens\": 1}}\n")
        };
        let folder = folder(&[
            ("1.jsonl", &format!("\n\n{}", row(9))),
            ("2.jsonl", &format!("{}{}", row(8), row(7))),
        ]);
        let (requests, _) = read(&config(&folder)).unwrap();
        assert_eq!(requests, [(0.0, 9, 3), (0.0, 8, 1), (0.0, 7, 2)]);
    }

    #[test]
    fn what_counts_within_a_file_goes_on_in_the_next() {
        // Row 1 of the second file is row 2 of all, and goes on where its first row ended.
        let header = "arrival_ns,prompt_tokens,output_tokens,content\n";
        let text = format!("{header}0,10,5,\n1,16,1,p0:10 o0:5 p1:1\n");
        let at = folder(&[("a.csv", &text), ("b.csv", &text)]);
        let mut source = TraceSource::open(&config(&at)).unwrap();
        let mut all = Vec::new();
        while source.next_arrival().unwrap().is_some() {
            all.push(source.take());
        }
        // In order of arrival: the first rows of both files, then the second ones.
        let names = |request: &RequestSpec| match &request.content {
            Content::Pieces(pieces) => pieces.iter().map(|piece| piece.segment).collect(),
            Content::Private => Vec::new(),
        };
        let expected = |first: u32, own: u32| {
            let (first, own) = (RequestId(first), RequestId(own));
            vec![Segment::Prompt(first), Segment::Output(first), Segment::Prompt(own)]
        };
        assert_eq!(names(&all[2]), expected(0, 2));
        assert_eq!(names(&all[3]), expected(1, 3));

        // Ids of a conversation mean something in it alone.
        let session = "{\"id\": \"x\", \"block_size\": 64, \"hash_id_scope\": \"local\", \"requests\": \
                       [{\"t\": 0, \"type\": \"n\", \"in\": 64, \"out\": 1, \"hash_ids\": [7]}]}\n";
        let at = folder(&[("a.json", session), ("b.json", session)]);
        let sessions = Some(SessionsConfig::Think(ThinkConfig::default()));
        let mut source = TraceSource::open(&TraceConfig { sessions, ..config(&at) }).unwrap();
        let mut all = Vec::new();
        while source.next_arrival().unwrap().is_some() {
            all.push(source.take());
        }
        assert_ne!(names(&all[0]), names(&all[1]));
        let session = |request: &RequestSpec| request.turn.as_ref().unwrap().session;
        assert_ne!(session(&all[0]), session(&all[1]));
    }

    #[test]
    fn errors_name_the_file_within() {
        let a = ("a.csv", format!("{HEADER}\n1,11,1\n100,12,1\n"));
        let with = |text: &str| folder(&[(a.0, &a.1), ("b.csv", text)]);
        let at = with(&format!("{HEADER}\n101,x,1\n"));
        assert!(refused(&at, &config(&at)).starts_with("/b.csv:2: `num_prefill_tokens` is \"x\""));
        let at = with(&format!("{HEADER}\n2,1,1\n"));
        assert!(refused(&at, &config(&at)).starts_with("/b.csv:2: `arrived_at` is 98 s before"));
        let at = with("arrived_at,num_prefill_tokens\n101,1\n");
        assert!(refused(&at, &config(&at)).starts_with("/b.csv:1: column `num_decode_tokens`"));
        let at = with("{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1}\n");
        assert_eq!(
            refused(&at, &config(&at)),
            "/b.csv: a file of the format mooncake in a folder of vidur, expected one format in all"
        );
        // At the end: the file that the late row came from.
        let at = with(&format!("{HEADER}\n101,1,1\n"));
        let slow = TraceConfig { speedup: 1e-8, ..config(&at) };
        assert!(refused(&at, &slow).starts_with("/a.csv:3: `arrived_at` is 99 s after the start"));
    }

    #[test]
    fn a_folder_without_a_trace_is_refused() {
        let at = folder(&[("README.md", "x"), (".x", "x")]);
        assert_eq!(
            refused(&at, &config(&at)),
            ": a folder without a trace, expected a file that is neither hidden nor `.md`"
        );
        let at = folder(&[("a.csv", ""), ("b.csv", "\n")]);
        assert_eq!(refused(&at, &config(&at)), ": no rows, expected at least one request");
    }

    #[test]
    fn ragpulse_is_a_folder_of_its_own_kind() {
        let row = "{\"timestamp\": \"82\", \"input_length\": 10, \"output_length\": 5, \
                   \"hash_ids\": {\"sys_prompt\": [1]}}\n";
        let lengths = "{\"sys_prompt_id\": 1, \"token_length\": 4}\n";
        let mut files = vec![("0_trace.jsonl", row), ("1_sys_prompt.jsonl", lengths)];
        files.extend(["2_passages", "3_history", "4_user_input", "5_web_search"].map(|n| (n, "")));
        let named: Vec<_> = files
            .iter()
            .map(|&(name, text)| {
                (
                    if Path::new(name).extension().is_some_and(|end| end == "jsonl") {
                        name.to_owned()
                    } else {
                        format!("{name}.jsonl")
                    },
                    text,
                )
            })
            .collect();
        let files: Vec<_> = named.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        let at = folder(&files);
        let (requests, source) = read(&config(&at)).unwrap();
        assert_eq!(requests, [(0.0, 10, 1)]);
        assert_eq!(source.describe().format, TraceFormat::RagPulse);
        fs::remove_file(at.path().join("0_trace.jsonl")).unwrap();
        let named = TraceConfig { format: TraceFormat::RagPulse, ..config(&at) };
        assert_eq!(refused(&at, &named), "/0_trace.jsonl: no such file");
    }
}
