//! Why a trace could not be read.

use std::io;
use std::path::PathBuf;

use crate::base::config::ConfigError;

/// Why a trace could not be read. Lines and columns count from 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The configuration of the reader cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),

    /// There is no such file.
    #[error("{path}: no such file", path = .path.display())]
    NotFound {
        /// The trace.
        path: PathBuf,
    },

    /// The file is there and its bytes cannot be had.
    #[error("{path}: cannot be read: {source}", path = .path.display())]
    Unreadable {
        /// The trace.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },

    /// The compressed bytes end early or are damaged.
    #[error("{path}: truncated or corrupt gzip after line {line}: {source}", path = .path.display())]
    Gzip {
        /// The trace.
        path: PathBuf,
        /// The last line that could be read whole.
        line: u64,
        /// What the decompressor says.
        source: io::Error,
    },

    /// A line is too long to be a row.
    #[error(
        "{path}:{line}: the line is longer than {limit} bytes, expected one request a line",
        path = .path.display()
    )]
    LongLine {
        /// The trace.
        path: PathBuf,
        /// The line.
        line: u64,
        /// The longest line accepted, in bytes.
        limit: usize,
    },

    /// A line is not text.
    #[error("{path}:{line}:{column}: invalid UTF-8", path = .path.display())]
    InvalidUtf8 {
        /// The trace.
        path: PathBuf,
        /// The line.
        line: u64,
        /// The first byte that is not text.
        column: usize,
    },

    /// A line of a JSON format is not a JSON object.
    #[error("{path}:{line}:{column}: malformed JSON: {reason}", path = .path.display())]
    Json {
        /// The trace.
        path: PathBuf,
        /// The line.
        line: u64,
        /// Where the parser stopped.
        column: usize,
        /// What it found there.
        reason: String,
    },

    /// A field is missing, of the wrong type or out of range.
    #[error("{path}:{line}: `{field}` is {found}, expected {accepted}{hint}", path = .path.display())]
    Field {
        /// The trace.
        path: PathBuf,
        /// The line.
        line: u64,
        /// The field or column.
        field: String,
        /// What it holds, as written, or `missing`.
        found: String,
        /// What it may hold.
        accepted: String,
        /// A fragment that points at the likely cause, or nothing.
        hint: String,
    },

    /// A row has one field under two names.
    #[error(
        "{path}:{line}: `{field}` and `{alias}` are both present, expected one of them",
        path = .path.display()
    )]
    BothSpellings {
        /// The trace.
        path: PathBuf,
        /// The line.
        line: u64,
        /// The usual name.
        field: &'static str,
        /// The other name.
        alias: &'static str,
    },

    /// The header of a CSV trace lacks a column.
    #[error(
        "{path}:{line}: column `{column}` is missing, found {found}{hint}",
        path = .path.display()
    )]
    MissingColumn {
        /// The trace.
        path: PathBuf,
        /// The header's line.
        line: u64,
        /// The column.
        column: &'static str,
        /// The header.
        found: String,
        /// A fragment with the nearest name in the header, or nothing.
        hint: String,
    },

    /// A record of a CSV trace has more cells than the header.
    #[error(
        "{path}:{line}: a row of {found} cells, expected {expected}, as in the header",
        path = .path.display()
    )]
    SurplusCells {
        /// The trace.
        path: PathBuf,
        /// The line.
        line: u64,
        /// Cells of the record.
        found: usize,
        /// Cells of the header.
        expected: usize,
    },

    /// The first line fits no format.
    #[error(
        "{path}:{line}: unknown trace format, the line starts with {found:?}, expected {accepted}",
        path = .path.display()
    )]
    UnknownFormat {
        /// The trace.
        path: PathBuf,
        /// The line.
        line: u64,
        /// How it starts.
        found: String,
        /// How the known formats start.
        accepted: String,
    },

    /// A row stands further behind a later one than rows are sorted over.
    #[error(
        "{path}:{line}: `{field}` is {behind_s} s before a stamp of an earlier line, expected at \
         most {window_s} s; sort the file, or raise `sort_window_s`",
        path = .path.display()
    )]
    OutOfOrder {
        /// The trace.
        path: PathBuf,
        /// The line.
        line: u64,
        /// The field or column of the stamp.
        field: String,
        /// Seconds between its stamp and the latest one before it in the file.
        behind_s: f64,
        /// Seconds over which rows are sorted.
        window_s: f64,
    },

    /// Stamps that are dates were asked to count from zero.
    #[error(
        "{path}: `origin` is zero, expected first: the stamps of this trace are dates",
        path = .path.display()
    )]
    DatesFromZero {
        /// The trace.
        path: PathBuf,
    },

    /// A file has lengths without arrivals.
    #[error(
        "{path}: no arrivals, expected a column `{column}`: this is a list of lengths; add the \
         column, or describe the arrivals in `workload.synthetic`",
        path = .path.display()
    )]
    NoArrivals {
        /// The file.
        path: PathBuf,
        /// The column that would have them.
        column: &'static str,
    },

    /// A format of several files was given as a stream.
    #[error(
        "{path}: a {format} trace is a folder of files, expected the path of {file}",
        path = .path.display()
    )]
    NeedsFolder {
        /// The trace.
        path: PathBuf,
        /// The format.
        format: &'static str,
        /// The file with the rows.
        file: &'static str,
    },

    /// No row has the field or column of the class.
    #[error(
        "{path}: no row has `{field}` (`class_field`), expected a field or column of the trace{hint}",
        path = .path.display()
    )]
    NoClass {
        /// The trace.
        path: PathBuf,
        /// The field.
        field: String,
        /// A fragment with the nearest name, or nothing.
        hint: String,
    },

    /// Rows are to come by their stamps, and one has none.
    #[error(
        "{path}:{line}: a row without a stamp, expected one in every row with `sessions.open`; `sessions.think` \
         lets it follow the end of the one before it",
        path = .path.display()
    )]
    NoStamp {
        /// The trace.
        path: PathBuf,
        /// The line.
        line: u64,
    },

    /// A session begins with a row that has no stamp.
    #[error(
        "{path}:{line}: a session begins without a stamp, expected one; say how many users begin sessions \
         (`sessions.closed`), or when sessions begin (`reshape.arrivals`)",
        path = .path.display()
    )]
    NoStart {
        /// The trace.
        path: PathBuf,
        /// The line.
        line: u64,
    },

    /// Requests wait for each other in a circle.
    #[error("{path}:{line}: the request waits for itself, by way of others", path = .path.display())]
    Circle {
        /// The trace.
        path: PathBuf,
        /// The line of one of them.
        line: u64,
    },

    /// A workload that is read twice was another one the second time.
    #[error("{path}: changed while it was read", path = .path.display())]
    Changed {
        /// The trace.
        path: PathBuf,
    },

    /// A pause ends after the latest instant there is.
    #[error(
        "{path}: a request follows another one at {s} s, expected arrivals within 100 years",
        path = .path.display()
    )]
    TooLate {
        /// The trace.
        path: PathBuf,
        /// Its arrival.
        s: f64,
    },

    /// A folder holds no file of a trace.
    #[error(
        "{path}: a folder without a trace, expected a file that is neither hidden nor `.md`",
        path = .path.display()
    )]
    EmptyFolder {
        /// The folder.
        path: PathBuf,
    },

    /// A file of a folder is of another format than the first.
    #[error(
        "{path}: a file of the format {found} in a folder of {expected}, expected one format in all",
        path = .path.display()
    )]
    MixedFormats {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: String,
        /// That of the first file.
        expected: String,
    },

    /// The trace holds no request.
    #[error("{path}: no rows, expected at least one request", path = .path.display())]
    Empty {
        /// The trace.
        path: PathBuf,
    },

    /// The trace holds more requests than a run can number.
    #[error(
        "{path}:{line}: more than 4294967295 requests; choose a part with `limit` or `window`",
        path = .path.display()
    )]
    TooManyRequests {
        /// The trace.
        path: PathBuf,
        /// The line of the first request too many.
        line: u64,
    },

    /// A pool of clients has no client.
    #[error(
        "{path}: no clients, expected a folder, or a tar archive of one, with `chunk-K-trace.csv` and \
         `chunk-K-dataset.json` for each client K",
        path = .path.display()
    )]
    NoClients {
        /// The pool.
        path: PathBuf,
    },

    /// Two files of a pool are of the same client and kind.
    #[error(
        "{path}: a second file of that name, after {other}, expected one pool",
        path = .path.display(),
        other = .other.display()
    )]
    TwoPools {
        /// The second file.
        path: PathBuf,
        /// The first one.
        other: PathBuf,
    },

    /// A client of a pool sends requests before there are lengths for them.
    #[error(
        "{path}: no lengths by {start_s} s, expected a part of the day with distributions by then: the \
         client sends requests",
        path = .path.display()
    )]
    NoLengths {
        /// The file of the lengths.
        path: PathBuf,
        /// Where the window of the requests begins.
        start_s: f64,
    },

    /// A table of lengths cannot be used.
    #[error("{path}:{line}: {what}", path = .path.display())]
    Table {
        /// The CSV file.
        path: PathBuf,
        /// The line.
        line: u64,
        /// What was found, and what is accepted.
        what: String,
    },
}

impl TraceError {
    /// Whether the lines after the one at fault can still be read.
    pub(crate) const fn is_of_one_line(&self) -> bool {
        matches!(
            self,
            Self::LongLine { .. }
                | Self::InvalidUtf8 { .. }
                | Self::Json { .. }
                | Self::Field { .. }
                | Self::BothSpellings { .. }
                | Self::SurplusCells { .. }
                | Self::OutOfOrder { .. }
        )
    }
}
