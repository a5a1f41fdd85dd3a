//! The lines of a trace: plain or gzip, from a file or the standard input, each within a bound.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use super::error::TraceError;

/// The longest line accepted. A row of a million prompt tokens has some 2,000 hash ids: 20 kB.
const LINE_BYTES_MAX: usize = 64 << 20;

/// Bytes asked of the file at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// Bytes looked at ahead.
const AHEAD_BYTES_MAX: usize = 64 << 10;

/// The first bytes of every gzip member.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// What some editors put before a text.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// A trace, line by line. One line is in memory at a time.
pub(super) struct Lines {
    input: Box<dyn BufRead + Send>,
    /// The name errors give to the trace.
    path: PathBuf,
    gzip: bool,
    /// The current line, without its end.
    buffer: Vec<u8>,
    /// The number of the current line, from 1; 0 before the first.
    line: u64,
    /// Whether the current line is to be read once more.
    held: bool,
    /// Whether the rest of a line that was too long is still to come.
    is_inside: bool,
    bytes_max: usize,
}

/// One line of a trace, without its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    pub(super) text: &'a str,
    /// Its place in the file, from 1.
    pub(super) number: u64,
    /// The name errors give to the trace.
    pub(super) path: &'a Path,
}

impl Line<'_> {
    /// The error that `field` holds `found`, where `accepted` is expected.
    pub(super) fn refuse(
        &self,
        field: &str,
        found: impl Into<String>,
        accepted: impl Into<String>,
    ) -> TraceError {
        TraceError::Field {
            path: self.path.to_owned(),
            line: self.number,
            field: field.to_owned(),
            found: found.into(),
            accepted: accepted.into(),
            hint: String::new(),
        }
    }
}

impl Lines {
    /// Opens the file at `path`; `-` is the standard input.
    ///
    /// # Errors
    /// There is no such file, or it cannot be opened or read.
    pub(super) fn open(path: &Path) -> Result<Self, TraceError> {
        if path == Path::new("-") {
            return Self::new(Box::new(io::stdin()), "<stdin>".into(), LINE_BYTES_MAX);
        }
        match File::open(path) {
            Ok(file) => Self::new(Box::new(file), path.to_owned(), LINE_BYTES_MAX),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(TraceError::NotFound { path: path.to_owned() })
            }
            Err(source) => Err(TraceError::Unreadable { path: path.to_owned(), source }),
        }
    }

    /// The lines of `input`, called `path` in errors, none longer than `bytes_max`.
    pub(super) fn new(
        mut input: Box<dyn Read + Send>,
        path: PathBuf,
        bytes_max: usize,
    ) -> Result<Self, TraceError> {
        let mut head = Vec::new();
        if let Err(source) = input.by_ref().take(2).read_to_end(&mut head) {
            return Err(TraceError::Unreadable { path, source });
        }
        let gzip = head == GZIP_MAGIC;
        let whole = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(head).chain(input));
        let input: Box<dyn BufRead + Send> = if gzip {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(whole)))
        } else {
            Box::new(whole)
        };
        Ok(Self {
            input,
            path,
            gzip,
            buffer: Vec::new(),
            line: 0,
            held: false,
            is_inside: false,
            bytes_max,
        })
    }

    /// The next line that is not blank, or `None` at the end.
    ///
    /// # Errors
    /// The bytes cannot be read or decompressed, are not UTF-8, or the line is too long. After the
    /// last two, the next call answers the line after it.
    pub(super) fn next_line(&mut self) -> Result<Option<Line<'_>>, TraceError> {
        self.leave_long_line()?;
        while !self.held {
            self.buffer.clear();
            // One byte more than a line of the greatest length and its end, to see that it is more.
            let bound = self.bytes_max as u64 + 2;
            let read = self.input.by_ref().take(bound).read_until(b'\n', &mut self.buffer);
            if read.map_err(|e| self.failed(e))? == 0 {
                return Ok(None);
            }
            self.line += 1;
            let is_whole = self.buffer.last() == Some(&b'\n');
            if is_whole {
                self.buffer.pop();
            }
            if self.buffer.len() > self.bytes_max {
                self.is_inside = !is_whole;
                return Err(TraceError::LongLine {
                    path: self.path.clone(),
                    line: self.line,
                    limit: self.bytes_max,
                });
            }
            self.held = !self.buffer.trim_ascii().is_empty();
        }
        self.held = false;
        let text = str::from_utf8(&self.buffer).map_err(|e| TraceError::InvalidUtf8 {
            path: self.path.clone(),
            line: self.line,
            column: e.valid_up_to() + 1,
        })?;
        let text = if self.line == 1 { text.trim_start_matches(BYTE_ORDER_MARK) } else { text };
        Ok(Some(Line { text: text.trim_end_matches('\r'), number: self.line, path: &self.path }))
    }

    /// Skips what is left of a line that was too long; it is never held in memory.
    fn leave_long_line(&mut self) -> Result<(), TraceError> {
        while self.is_inside {
            let (read, is_end) = match self.input.fill_buf() {
                Ok(bytes) => match bytes.iter().position(|&byte| byte == b'\n') {
                    Some(at) => (at + 1, true),
                    None => (bytes.len(), bytes.is_empty()),
                },
                Err(error) => return Err(self.failed(error)),
            };
            self.input.consume(read);
            self.is_inside = !is_end;
        }
        Ok(())
    }

    /// Everything from the next line on as one stream, for a format whose file is one document, and
    /// the number of lines before it.
    pub(super) fn into_document(self) -> (Box<dyn Read + Send>, u64) {
        if self.held {
            let line = Cursor::new(self.buffer).chain(Cursor::new(b"\n"));
            (Box::new(line.chain(self.input)), self.line - 1)
        } else {
            (Box::new(self.input), self.line)
        }
    }

    /// Makes `next_line` answer the current line once more.
    pub(super) fn hold(&mut self) {
        self.held = self.line > 0;
    }

    /// The current line, and as much of what follows as is at hand: the start of a document that goes over
    /// several lines. What cannot be read is left to the next line.
    pub(super) fn ahead(&mut self) -> String {
        let mut bytes = self.buffer.clone();
        bytes.push(b'\n');
        let more = self.input.fill_buf().unwrap_or_default();
        bytes.extend(&more[..more.len().min(AHEAD_BYTES_MAX)]);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The name errors give to the trace.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the bytes are compressed.
    pub(super) fn is_gzip(&self) -> bool {
        self.gzip
    }

    /// What a failed read means: the operating system's errors have a code, the decompressor's none.
    fn failed(&self, source: io::Error) -> TraceError {
        let path = self.path.clone();
        if self.gzip && source.raw_os_error().is_none() {
            TraceError::Gzip { path, line: self.line, source }
        } else {
            TraceError::Unreadable { path, source }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn lines_of(bytes: &[u8], bytes_max: usize) -> Lines {
        Lines::new(Box::new(Cursor::new(bytes.to_vec())), "t".into(), bytes_max).unwrap()
    }

    /// All lines as `number:text`, then the error that ended them, if any.
    fn read(bytes: &[u8], bytes_max: usize) -> Vec<String> {
        let mut lines = lines_of(bytes, bytes_max);
        let mut all = Vec::new();
        loop {
            match lines.next_line() {
                Ok(Some(line)) => all.push(format!("{}:{}", line.number, line.text)),
                Ok(None) => return all,
                Err(error) => {
                    all.push(error.to_string());
                    return all;
                }
            }
        }
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn blank_lines_are_skipped_and_counted() {
        assert_eq!(read(b"\xef\xbb\xbfa\r\n\r\n \t\nb\n\nc", 9), ["1:a", "4:b", "6:c"]);
        assert!(read(b"", 9).is_empty());
        assert!(read(b"\n", 9).is_empty());
    }

    #[test]
    fn a_held_line_comes_again() {
        let mut lines = lines_of(b"a\nb\n", 9);
        let mut next = |hold| {
            if hold {
                lines.hold();
            }
            lines.next_line().unwrap().map(|line| (line.text.to_owned(), line.number))
        };
        assert_eq!(next(true), Some(("a".into(), 1)));
        assert_eq!(next(true), Some(("a".into(), 1)));
        assert_eq!(next(false), Some(("b".into(), 2)));
        assert_eq!(next(false), None);
    }

    #[test]
    fn the_line_bound_is_tight() {
        assert_eq!(read(b"12345\n12345", 5), ["1:12345", "2:12345"]);
        let long = "t:2: the line is longer than 5 bytes, expected one request a line";
        assert_eq!(read(b"12345\n123456\n", 5), ["1:12345", long]);
        assert_eq!(read(b"12345\n123456", 5), ["1:12345", long]);
    }

    #[test]
    fn a_line_without_end_stops_at_the_bound() {
        let mut lines = Lines::new(Box::new(io::repeat(b'x')), "t".into(), 1000).unwrap();
        assert!(matches!(lines.next_line(), Err(TraceError::LongLine { line: 1, .. })));
        assert!(lines.buffer.len() <= 1002);
    }

    #[test]
    fn the_line_after_a_long_one_is_read() {
        let mut lines = lines_of(b"12345678901234567890\nabc\n", 5);
        assert!(matches!(lines.next_line(), Err(TraceError::LongLine { line: 1, .. })));
        assert_eq!(
            lines.next_line().unwrap().map(|line| (line.text, line.number)),
            Some(("abc", 2))
        );
        assert!(lines.next_line().unwrap().is_none());
        // Six bytes with their end, and six without.
        let mut lines = lines_of(b"123456\nab\n123456", 5);
        assert!(lines.next_line().is_err());
        assert_eq!(lines.next_line().unwrap().map(|line| line.text), Some("ab"));
        assert!(lines.next_line().is_err());
        assert!(lines.next_line().unwrap().is_none());
    }

    #[test]
    fn a_document_starts_at_the_held_line() {
        let text = |lines: Lines| {
            let mut text = String::new();
            let (mut document, before) = lines.into_document();
            document.read_to_string(&mut text).unwrap();
            (text, before)
        };
        assert_eq!(text(lines_of(b"{\n1}\n", 9)), ("{\n1}\n".to_owned(), 0));
        let mut lines = lines_of(b"\n{\n1}\n", 9);
        lines.next_line().unwrap();
        lines.hold();
        assert_eq!(text(lines), ("{\n1}\n".to_owned(), 1));
    }

    #[test]
    fn bytes_that_are_not_text_have_a_place() {
        assert_eq!(read(b"ok\nab\xff\n", 9), ["1:ok", "t:2:3: invalid UTF-8"]);
    }

    #[test]
    fn gzip_members_follow_each_other() {
        let bytes = [gzip(b"a\nb"), gzip(b"c\nd\n")].concat();
        assert!(lines_of(&bytes, 9).is_gzip());
        assert_eq!(read(&bytes, 9), ["1:a", "2:bc", "3:d"]);
    }

    #[test]
    fn truncated_gzip_names_the_last_whole_line() {
        // Stored uncompressed, so that the cut falls inside the third line.
        let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
        encoder.write_all(b"first\nsecond\nthird\n").unwrap();
        let bytes = encoder.finish().unwrap();
        let cut = bytes.windows(3).position(|w| w == b"thi").unwrap() + 3;
        let found = read(&bytes[..cut], 99);
        assert_eq!(found[..2], ["1:first", "2:second"]);
        assert!(found[2].starts_with("t: truncated or corrupt gzip after line 2: "), "{found:?}");
    }

    #[test]
    fn corrupt_gzip_is_refused() {
        let mut bytes = gzip(b"first\n");
        let checksum = bytes.len() - 8;
        bytes[checksum] ^= 1;
        let found = read(&bytes, 99);
        assert!(
            found.last().unwrap().starts_with("t: truncated or corrupt gzip after"),
            "{found:?}"
        );
    }

    #[test]
    fn files_that_cannot_be_had_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("none.jsonl");
        assert!(matches!(Lines::open(&missing), Err(TraceError::NotFound { .. })));
        assert!(matches!(Lines::open(folder.path()), Err(TraceError::Unreadable { .. })));
    }
}
