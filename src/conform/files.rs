//! Reading files, plain or compressed, and the lines in them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::error::ConformError;

/// A line of a file, with its number from 1.
#[derive(Clone, Debug)]
pub(super) struct Numbered<L> {
    pub(super) number: usize,
    pub(super) line: L,
}

/// The bytes of a file, unpacked if they are packed; that is told by the first two.
///
/// # Errors
/// It cannot be read.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, ConformError> {
    read_up_to(path, u64::MAX)
}

/// The first `bytes` of that.
///
/// # Errors
/// It cannot be read.
pub(super) fn read_up_to(path: &Path, bytes: u64) -> Result<Vec<u8>, ConformError> {
    let failed = |source: io::Error| ConformError::Io { path: path.to_owned(), source };
    let mut file = BufReader::new(File::open(path).map_err(failed)?);
    let is_packed = file.fill_buf().map_err(failed)?.starts_with(&[0x1f, 0x8b]);
    let mut unpacked: Box<dyn Read> =
        if is_packed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    let mut read = Vec::new();
    unpacked.by_ref().take(bytes).read_to_end(&mut read).map_err(failed)?;
    Ok(read)
}

/// The lines of `text`, whose first has the number `first`; empty ones are left out.
pub(super) fn lines(text: &[u8], first: usize) -> impl Iterator<Item = Numbered<&[u8]>> {
    let lines = text.split(|&byte| byte == b'\n').zip(first..);
    let lines = lines.filter(|(line, _)| !line.trim_ascii().is_empty());
    lines.map(|(line, number)| Numbered { number, line })
}

/// The lines of `text` as `parse` reads them; `path` is where they stand.
///
/// # Errors
/// What `parse` says of a line.
pub(super) fn parse_lines<L>(
    path: &Path,
    text: &[u8],
    first: usize,
    parse: impl Fn(&[u8]) -> Result<L, String>,
) -> Result<Vec<Numbered<L>>, ConformError> {
    lines(text, first)
        .map(|Numbered { number, line }| match parse(line) {
            Ok(line) => Ok(Numbered { number, line }),
            Err(found) => Err(ConformError::malformed(path, number, found)),
        })
        .collect()
}

/// All files at or below `path`, in order of name.
///
/// # Errors
/// A folder that cannot be read, or nothing there.
pub(super) fn files_below(path: &Path) -> Result<Vec<PathBuf>, ConformError> {
    let mut files = Vec::new();
    collect(path, &mut files)?;
    files.sort();
    Ok(files)
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), ConformError> {
    let failed = |source| ConformError::Io { path: path.to_owned(), source };
    if !std::fs::metadata(path).map_err(failed)?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in std::fs::read_dir(path).map_err(failed)? {
        collect(&entry.map_err(failed)?.path(), files)?;
    }
    Ok(())
}
