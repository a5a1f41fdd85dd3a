//! The files of a pool, from a folder or from an archive of one.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use crate::workload::trace::TraceError;

/// The first bytes of every gzip member.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The longest file of a pool, in bytes: distributions of a day are a few MiB.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// What a file of a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Arrivals: `chunk-K-trace.csv`.
    Trace,
    /// Lengths: `chunk-K-dataset.json`.
    Dataset,
}

/// A file of a pool.
pub(super) struct PoolFile {
    /// Whose: K of its name.
    pub(super) client: u32,
    pub(super) kind: Kind,
    /// Where it is, for errors; in an archive, behind the archive's path.
    pub(super) path: PathBuf,
    pub(super) bytes: Vec<u8>,
}

/// The client and the kind of a file of this name; `None` for what is no part of a pool.
fn part_of(name: &str) -> Option<(u32, Kind)> {
    let rest = name.strip_prefix("chunk-")?;
    let (number, kind) = if let Some(number) = rest.strip_suffix("-trace.csv") {
        (number, Kind::Trace)
    } else {
        (rest.strip_suffix("-dataset.json")?, Kind::Dataset)
    };
    // Digits alone, so that a client has one name.
    let client: u32 = number.parse().ok()?;
    (client.to_string() == number).then_some((client, kind))
}

/// The name by which a pool calls a file.
pub(super) fn name_of(client: u32, kind: Kind) -> String {
    match kind {
        Kind::Trace => format!("chunk-{client}-trace.csv"),
        Kind::Dataset => format!("chunk-{client}-dataset.json"),
    }
}

/// Hands every file of the pool at `path` to `take`, one at a time.
///
/// # Errors
/// There is nothing at `path`, it cannot be read, it is no folder and no tar archive, or what `take`
/// says.
pub(super) fn each(
    path: &Path,
    take: &mut dyn FnMut(PoolFile) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    let is_folder = fs::metadata(path).map_err(|e| unreadable(path, e))?.is_dir();
    if is_folder { each_of_folder(path, take) } else { each_of_archive(path, take) }
}

fn each_of_folder(
    path: &Path,
    take: &mut dyn FnMut(PoolFile) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(|e| unreadable(path, e))? {
        let name = entry.map_err(|e| unreadable(path, e))?.file_name();
        names.extend(name.into_string());
    }
    // The order of a folder is the file system's, and so would be which error is first.
    names.sort();
    for name in names {
        let Some((client, kind)) = part_of(&name) else { continue };
        let path = path.join(name);
        let file = File::open(&path).map_err(|e| unreadable(&path, e))?;
        let bytes = read(file, &path)?;
        take(PoolFile { client, kind, path, bytes })?;
    }
    Ok(())
}

fn each_of_archive(
    path: &Path,
    take: &mut dyn FnMut(PoolFile) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    let mut file = BufReader::new(File::open(path).map_err(|e| unreadable(path, e))?);
    let is_gzip = file.fill_buf().map_err(|e| unreadable(path, e))?.starts_with(&GZIP_MAGIC);
    let input: Box<dyn Read> =
        if is_gzip { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    let damaged = |source: io::Error| {
        let what = format!("expected a folder, or a tar archive, plain or gzip: {source}");
        unreadable(path, io::Error::new(source.kind(), what))
    };
    let mut archive = tar::Archive::new(input);
    for entry in archive.entries().map_err(damaged)? {
        let entry = entry.map_err(damaged)?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let inner = entry.path().map_err(damaged)?.into_owned();
        let name = inner.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some((client, kind)) = part_of(name) else { continue };
        let path = path.join(&inner);
        let bytes = read(entry, &path)?;
        take(PoolFile { client, kind, path, bytes })?;
    }
    Ok(())
}

fn read(input: impl Read, path: &Path) -> Result<Vec<u8>, TraceError> {
    let mut bytes = Vec::new();
    let taken = input.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    taken.map_err(|e| unreadable(path, e))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let what = format!("longer than {FILE_BYTES_MAX} bytes, expected one client's file");
        return Err(unreadable(path, io::Error::new(io::ErrorKind::InvalidData, what)));
    }
    Ok(bytes)
}

fn unreadable(path: &Path, source: io::Error) -> TraceError {
    match source.kind() {
        io::ErrorKind::NotFound => TraceError::NotFound { path: path.to_owned() },
        _ => TraceError::Unreadable { path: path.to_owned(), source },
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn all(path: &Path) -> Result<Vec<(u32, Kind, Vec<u8>)>, TraceError> {
        let mut all = Vec::new();
        each(path, &mut |file| {
            all.push((file.client, file.kind, file.bytes));
            Ok(())
        })?;
        Ok(all)
    }

    fn archive(names: &[&str]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for name in names {
            let mut header = tar::Header::new_gnu();
            header.set_size(name.len() as u64);
            header.set_mode(0o644);
            header.set_cksum();
            builder.append_data(&mut header, name, name.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn names_say_whose_a_file_is() {
        assert_eq!(part_of("chunk-7-trace.csv"), Some((7, Kind::Trace)));
        assert_eq!(part_of("chunk-10-dataset.json"), Some((10, Kind::Dataset)));
        for name in
            ["chunk--trace.csv", "chunk-+1-trace.csv", "chunk-01-trace.csv", "._chunk-1-trace.csv"]
        {
            assert_eq!(part_of(name), None, "{name}");
        }
        assert_eq!(part_of("chunk-4294967296-trace.csv"), None);
        for kind in [Kind::Trace, Kind::Dataset] {
            assert_eq!(part_of(&name_of(3, kind)), Some((3, kind)));
        }
    }

    #[test]
    fn folders_and_archives_give_the_same_files() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["chunk-0-dataset.json", "chunk-0-trace.csv", "chunk-10-trace.csv", "notes.md"];
        for name in names {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let expected = all(folder.path()).unwrap();
        assert_eq!(expected.len(), 3);
        assert_eq!(expected[2], (10, Kind::Trace, b"chunk-10-trace.csv".to_vec()));

        let packed = archive(&names);
        let path = folder.path().join("pool.tar");
        fs::write(&path, &packed).unwrap();
        assert_eq!(all(&path).unwrap(), expected);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&packed).unwrap();
        // What the file is called does not matter.
        fs::write(&path, gzip.finish().unwrap()).unwrap();
        assert_eq!(all(&path).unwrap(), expected);
    }

    #[test]
    fn a_folder_inside_an_archive_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pool.tar");
        fs::write(&path, archive(&["reason/r1/chunk-4-trace.csv"])).unwrap();
        let found = all(&path).unwrap();
        assert_eq!(found, [(4, Kind::Trace, b"reason/r1/chunk-4-trace.csv".to_vec())]);
    }

    #[test]
    fn what_is_no_pool_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let missing = all(&folder.path().join("none")).unwrap_err().to_string();
        assert!(missing.ends_with("none: no such file"), "{missing}");
        let path = folder.path().join("text");
        fs::write(&path, "0,1,1,Gamma,1,1\n".repeat(100)).unwrap();
        let error = all(&path).unwrap_err().to_string();
        assert!(error.contains("expected a folder, or a tar archive"), "{error}");
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&archive(&["chunk-4-trace.csv"])).unwrap();
        let bytes = gzip.finish().unwrap();
        fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        assert!(all(&path).is_err(), "the archive is cut");
    }
}
