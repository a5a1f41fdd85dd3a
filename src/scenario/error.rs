//! Why a scenario cannot be used.

use std::io;
use std::path::PathBuf;

use crate::base::config::ConfigError;

/// A scenario that cannot be used. Nothing was simulated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The text is not what a scenario may say.
    #[error("{}:{line}:{column}: {what}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// Column, from 1.
        column: u64,
        /// What is wrong, what is accepted, and perhaps what was meant.
        what: String,
    },
    /// A report holds a scenario that is not what a scenario may say.
    #[error("{}: `{field}`: {what}", path.display())]
    InReport {
        /// The report.
        path: PathBuf,
        /// The field.
        field: String,
        /// What is wrong.
        what: String,
    },
    /// An assignment has no `=`.
    #[error("--set {text}: expected PATH=VALUE, for example engine.vllm.max_num_seqs=64")]
    NoAssignment {
        /// What stood there.
        text: String,
    },
    /// An assignment names no field, or gives it a value it cannot have.
    #[error("{text}: `{field}`: {what}")]
    Assignment {
        /// The assignment, with its flag.
        text: String,
        /// The field that cannot be set, as far as the path made sense.
        field: String,
        /// What is wrong, what is accepted, and perhaps what was meant.
        what: String,
    },
    /// A value that cannot be used.
    #[error(transparent)]
    Value(#[from] ConfigError),
}
