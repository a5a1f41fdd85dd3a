//! Why a recorded case could not be used.

use std::io;
use std::path::PathBuf;

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
    /// A path names neither a case nor a folder with cases.
    #[error("{}: no recorded case here, expected NAME.case.json.gz beside NAME.expect.jsonl.gz", path.display())]
    NoCase {
        /// Which path.
        path: PathBuf,
    },
    /// The case describes an engine that cannot be built.
    #[error("{}: {cause}", path.display())]
    Config {
        /// Which file.
        path: PathBuf,
        /// Why.
        cause: crate::base::config::ConfigError,
    },
    /// The replay stopped.
    #[error("{}: {cause}", path.display())]
    Run {
        /// Which file.
        path: PathBuf,
        /// Why.
        cause: RunError,
    },
}

impl ConformError {
    pub(crate) fn run(path: &std::path::Path, cause: impl Into<RunError>) -> Self {
        Self::Run { path: path.to_owned(), cause: cause.into() }
    }
}
