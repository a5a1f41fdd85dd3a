//! Why an engine could not go on.

use crate::base::time::SimTime;
use crate::timing::error::TimingError;

/// An engine that had to stop in the middle of a run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A pass has no price.
    #[error("at {at_s} s of simulated time: {cause}")]
    Timing {
        /// When the pass was to start, in s.
        at_s: f64,
        /// What the pricer said.
        cause: TimingError,
    },
    /// The clock ran out of numbers.
    #[error("at {at_s} s of simulated time: the clock cannot go further")]
    ClockOverflow {
        /// When the last pass started, in s.
        at_s: f64,
    },
}

impl EngineError {
    pub(crate) fn timing(at: SimTime, cause: TimingError) -> Self {
        Self::Timing { at_s: at.as_s(), cause }
    }

    pub(crate) fn clock(at: SimTime) -> Self {
        Self::ClockOverflow { at_s: at.as_s() }
    }
}
