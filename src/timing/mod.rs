//! What a forward pass costs.
//!
//! A [`TimingProvider`] answers for the prefill part, the decode part, or both at once; the
//! [`pricer::PassPricer`] of an engine composes the answers, adds the host's share, validates, and
//! does the single rounding to nanoseconds. A provider knows nothing of engines.

pub(crate) mod config;
pub(crate) mod error;
pub(crate) mod fixed;
pub(crate) mod polynomial;
pub(crate) mod pricer;
pub(crate) mod work;

use error::TimingError;
use work::{DecodeWork, PrefillWork};

/// Milliseconds and how they were found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Price {
    /// Device time; finite and not negative, or the pricer refuses it.
    pub(crate) ms: f64,
    /// Where the figure comes from.
    pub(crate) origin: Origin,
}

/// How a price was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Computed from a formula, not from a measurement.
    Analytic,
}

impl Price {
    /// A price that a formula gave.
    pub(crate) const fn analytic(ms: f64) -> Self {
        Self { ms, origin: Origin::Analytic }
    }
}

/// Both parts of a pass that was priced as one forward; the pass costs their sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MixedPrice {
    /// The prefill part.
    pub(crate) prefill: Price,
    /// What the decodes beside it add.
    pub(crate) decode: Price,
}

/// Prices forward passes. Immutable, and shared by every engine and sweep point.
pub(crate) trait TimingProvider: Send + Sync {
    /// The price of a pass that holds only prefill work.
    fn prefill(&self, work: &PrefillWork) -> Result<Price, TimingError>;

    /// The price of a pass that holds only decode work.
    fn decode(&self, work: &DecodeWork) -> Result<Price, TimingError>;

    /// The price of a pass that holds both, as one forward. `None`: this provider prices the two
    /// parts separately and the pass costs their sum.
    fn mixed(
        &self,
        _prefill: &PrefillWork,
        _decode: &DecodeWork,
    ) -> Result<Option<MixedPrice>, TimingError> {
        Ok(None)
    }
}
