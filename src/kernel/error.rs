//! Why a run stopped before its end.

use crate::base::output::OutputError;
use crate::engine::error::EngineError;
use crate::timing::error::ProfileError;
use crate::workload::trace::TraceError;

/// A run that could not go on. It has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The workload could not be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The timing provider could not be made.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// An engine could not go on.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A result could not be written.
    #[error(transparent)]
    Output(#[from] OutputError),
}
