//! Result files: complete under their name, or not there at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::NamedTempFile;

/// Why a result could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// The file system said no.
    #[error("{path}: cannot be written: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The name does not say in which format to write.
    #[error("{path}: the name ends in {found:?}, expected {accepted}")]
    Extension {
        /// The file.
        path: PathBuf,
        /// Its extension.
        found: String,
        /// Extensions that name a format.
        accepted: &'static str,
    },
}

impl OutputError {
    pub(crate) fn write(path: &Path, source: io::Error) -> Self {
        // What stands beside the target for the time being is nobody's business.
        let source = source.raw_os_error().map_or(source, io::Error::from_raw_os_error);
        Self::Write { path: path.to_owned(), source }
    }
}

/// A result on its way into its place.
#[derive(Debug)]
pub(crate) enum OutFile {
    /// Standard output, which the name `-` stands for.
    Stdout(io::Stdout),
    /// A file beside the target that takes its place when it is complete, and vanishes if it
    /// never is.
    Temporary { file: NamedTempFile, target: PathBuf },
    /// A device or a pipe, which nothing may take the place of.
    Special(File),
}

impl OutFile {
    /// Opens the way to `path`; nothing stands there until [`OutFile::commit`].
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stdout(io::stdout()));
        }
        // A link stays a link: what it points to is replaced.
        let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        match std::fs::metadata(&target) {
            Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(found) if !found.is_file() => {
                return Ok(Self::Special(File::options().write(true).open(target)?));
            }
            _ => {}
        }
        let folder = match target.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        if !folder.is_dir() {
            let what = format!("there is no folder {}", folder.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, what));
        }
        // What the system says, without the name of a file that nobody asked for.
        let file = temporary_in(folder).map_err(|error| io::Error::from(error.kind()))?;
        Ok(Self::Temporary { file, target })
    }

    /// Puts the complete result in its place.
    pub(crate) fn commit(mut self) -> io::Result<()> {
        self.flush()?;
        if let Self::Temporary { file, target } = self {
            file.persist(target).map_err(|error| error.error)?;
        }
        Ok(())
    }
}

/// A temporary file that others may read as far as the user's umask allows, as any result.
fn temporary_in(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".servesim-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}

impl Write for OutFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(stdout) => stdout.write(bytes),
            Self::Temporary { file, .. } => file.write(bytes),
            Self::Special(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(stdout) => stdout.flush(),
            Self::Temporary { file, .. } => file.flush(),
            Self::Special(file) => file.flush(),
        }
    }
}

/// A result that is written through a buffer, compressed or not.
#[derive(Debug)]
pub(crate) struct ResultFile {
    path: PathBuf,
    stream: Stream,
}

#[derive(Debug)]
enum Stream {
    Plain(BufWriter<OutFile>),
    Gzip(Box<GzEncoder<BufWriter<OutFile>>>),
}

impl ResultFile {
    /// Opens the way to `path` (`-` is standard output); nothing stands there until it is closed.
    ///
    /// # Errors
    /// No file can be made there.
    pub(crate) fn create(path: &Path, gzip: bool) -> Result<Self, OutputError> {
        let file = OutFile::create(path).map_err(|error| OutputError::write(path, error))?;
        let file = BufWriter::new(file);
        let stream = if gzip {
            // The header of the archive carries no time: same content, same bytes.
            Stream::Gzip(Box::new(GzEncoder::new(file, Compression::default())))
        } else {
            Stream::Plain(file)
        };
        Ok(Self { path: path.to_owned(), stream })
    }

    /// Writes the whole result and puts it in its place.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn put(
        mut self,
        content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), OutputError> {
        self.fill(content)?;
        self.close()
    }

    /// Writes the whole result, or more of it; it stays where it is.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn fill(
        &mut self,
        content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), OutputError> {
        content(self).map_err(|error| OutputError::write(&self.path, error))
    }

    /// Puts the complete result in its place.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn close(self) -> Result<(), OutputError> {
        let Self { path, stream } = self;
        let close = || {
            let file = match stream {
                Stream::Plain(file) => file,
                Stream::Gzip(encoder) => encoder.finish()?,
            };
            file.into_inner().map_err(io::IntoInnerError::into_error)?.commit()
        };
        close().map_err(|error| OutputError::write(&path, error))
    }
}

impl Write for ResultFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.stream {
            Stream::Plain(file) => file.write(bytes),
            Stream::Gzip(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.stream {
            Stream::Plain(file) => file.flush(),
            Stream::Gzip(encoder) => encoder.flush(),
        }
    }
}

/// Folders made for results, innermost first. Those that are left empty go again when this does.
#[derive(Debug)]
pub(crate) struct MadeFolders(Vec<PathBuf>);

impl MadeFolders {
    /// Makes `folder` and what is missing above it.
    ///
    /// # Errors
    /// It cannot be made, or something else has its name.
    pub(crate) fn make(folder: &Path) -> Result<Self, OutputError> {
        let make = || {
            if folder.exists() && !folder.is_dir() {
                return Err(io::ErrorKind::NotADirectory.into());
            }
            let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
            let made = folder.ancestors().take_while(is_missing).map(Path::to_owned).collect();
            let made = Self(made);
            std::fs::create_dir_all(folder)?;
            Ok(made)
        };
        make().map_err(|error| OutputError::write(folder, error))
    }
}

impl Drop for MadeFolders {
    fn drop(&mut self) {
        for folder in &self.0 {
            // Not empty: then it holds a result.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// What the name of a file says of its format: the extension in lower case, without a `.gz` behind it, and whether
/// there is one.
pub(crate) fn named_format(path: &Path) -> (Option<String>, bool) {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let (stem, gzip) = match name.strip_suffix(".gz") {
        Some(stem) => (stem, true),
        None => (name.as_str(), false),
    };
    (stem.rsplit_once('.').map(|(_, extension)| extension.to_owned()), gzip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_appears_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        std::fs::write(&path, "old").unwrap();
        let mut file = OutFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        file.commit().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_result_that_is_never_complete_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = OutFile::create(&folder.path().join("report.json")).unwrap();
        file.write_all(b"half").unwrap();
        drop(file);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error_before_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing/report.json");
        assert_eq!(OutFile::create(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(OutFile::create(folder.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_stay_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut out = OutFile::create(&link).unwrap();
        out.write_all(b"new").unwrap();
        out.commit().unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        assert!(link.is_symlink());
        assert!(matches!(OutFile::create(Path::new("/dev/null")), Ok(OutFile::Special(_))));
    }
}
