//! What can go wrong on the command line, and the exit code it means.

use std::io;
use std::path::PathBuf;

use crate::accuracy::AccuracyError;
use crate::base::config::ConfigError;
use crate::base::output::OutputError;
use crate::conform::ConformError;
use crate::estimate::EstimateError;
use crate::explain::ExplainError;
use crate::kernel::error::RunError;
use crate::model::hugging_face::HuggingFaceError;
use crate::model::memory::MemoryError;
use crate::report::compare::limit::LimitError;
use crate::report::results::ResultsError;
use crate::scenario::ScenarioError;
use crate::timing::error::ProfileError;
use crate::workload::trace::TraceError;
use crate::workload::write::WriteError;

/// A command that came to no end.
#[derive(Debug, thiserror::Error)]
pub(super) enum CliError {
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    #[error("{}: {cause}", path.display())]
    Config { path: PathBuf, cause: ConfigError },
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error(transparent)]
    Conform(#[from] ConformError),
    #[error(transparent)]
    Results(#[from] ResultsError),
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error(transparent)]
    Estimate(EstimateError),
    #[error(transparent)]
    Explain(ExplainError),
    #[error(transparent)]
    Accuracy(AccuracyError),
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    Preset(#[from] ConfigError),
    #[error(transparent)]
    HuggingFace(#[from] HuggingFaceError),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Convert(#[from] WriteError),
    #[error("{flag} {found}: expected {accepted}")]
    Flag { flag: &'static str, found: String, accepted: &'static str },
    #[error("{flag} {}: that is the place of {other}, expected one of its own", path.display())]
    SameFile { flag: &'static str, path: PathBuf, other: &'static str },
    #[error("standard output: {0}")]
    Stdout(#[from] io::Error),
}

impl CliError {
    /// 1: it could not finish. 2: the input is at fault.
    pub(super) const fn exit_code(&self) -> u8 {
        match self {
            Self::Run(RunError::Engine(_) | RunError::Output(OutputError::Write { .. }))
            | Self::Output(OutputError::Write { .. })
            | Self::Convert(WriteError::Output(OutputError::Write { .. }))
            | Self::Estimate(
                EstimateError::Run(RunError::Engine(_))
                | EstimateError::Timing(_)
                | EstimateError::Unserved { .. },
            )
            | Self::Explain(ExplainError::NoLatency(..) | ExplainError::NoSamples(..))
            | Self::Accuracy(
                AccuracyError::NothingFinished { .. }
                | AccuracyError::Run { source: RunError::Engine(_), .. },
            )
            | Self::Stdout(_) => 1,
            _ => 2,
        }
    }

    /// Whether the reader of standard output has gone.
    pub(super) fn is_broken_pipe(&self) -> bool {
        let (Self::Stdout(source)
        | Self::Convert(WriteError::Output(OutputError::Write { source, .. }))
        | Self::Output(OutputError::Write { source, .. })
        | Self::Run(RunError::Output(OutputError::Write { source, .. }))) = self
        else {
            return false;
        };
        source.kind() == io::ErrorKind::BrokenPipe
    }
}

impl From<TraceError> for CliError {
    fn from(error: TraceError) -> Self {
        Self::Run(RunError::from(error))
    }
}

impl From<ExplainError> for CliError {
    fn from(error: ExplainError) -> Self {
        match error {
            ExplainError::Run(error) => Self::Run(error),
            error => Self::Explain(error),
        }
    }
}
