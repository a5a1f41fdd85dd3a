//! Why a recorded case could not be used.

use std::io;
use std::path::{Path, PathBuf};

use crate::base::config::ConfigError;
use crate::kernel::error::RunError;

/// A recording that cannot be read or replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConformError {
    /// A file or folder cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something stands in a file that is no recording.
    #[error("{}:{line}: {found}", path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        found: String,
    },
    /// A path names neither a recording nor a folder with recordings.
    #[error(
        "{}: no recorded case here, expected NAME.case.json.gz beside NAME.expect.jsonl.gz (vLLM), \
         or NAME.jsonl.gz that begins with an `input` line (SGLang)",
        path.display()
    )]
    NoCase {
        /// Which path.
        path: PathBuf,
    },
    /// The case describes an engine that cannot be built.
    #[error("{}:{line}: {cause}", path.display())]
    Config {
        /// Which file.
        path: PathBuf,
        /// The line of the case in it, from 1.
        line: usize,
        /// Why.
        cause: ConfigError,
    },
    /// The replay stopped.
    #[error("{}:{line}: {cause}", path.display())]
    Run {
        /// Which file.
        path: PathBuf,
        /// The line of the case in it, from 1.
        line: usize,
        /// Why.
        cause: RunError,
    },
}

impl ConformError {
    pub(super) fn malformed(path: &Path, line: usize, found: String) -> Self {
        Self::Malformed { path: path.to_owned(), line, found }
    }

    pub(super) fn config(path: &Path, line: usize, cause: ConfigError) -> Self {
        Self::Config { path: path.to_owned(), line, cause }
    }

    pub(super) fn run(path: &Path, line: usize, cause: impl Into<RunError>) -> Self {
        Self::Run { path: path.to_owned(), line, cause: cause.into() }
    }
}
