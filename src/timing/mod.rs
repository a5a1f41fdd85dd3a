//! What a forward pass costs.
//!
//! A [`TimingProvider`] answers for the prefill part, the decode part, or both at once; the
//! [`pricer::PassPricer`] of an engine composes the answers, corrects them, adds the host's share,
//! validates, and does the single rounding to nanoseconds. What an answer rests on is noted in the
//! [`evidence::Evidence`] that the pricer lends. A provider knows nothing of engines.

pub(crate) mod cells;
pub(crate) mod config;
pub(crate) mod corrections;
pub(crate) mod error;
pub(crate) mod evidence;
pub(crate) mod external;
pub(crate) mod fixed;
pub(crate) mod operators;
pub(crate) mod polynomial;
pub(crate) mod pricer;
pub(crate) mod pricing;
pub(crate) mod roofline;
pub(crate) mod table;
pub(crate) mod work;

use error::TimingError;
use evidence::{Evidence, Part};
use work::{DecodeWork, PrefillWork};

/// Both parts of a pass that was priced as one forward, in ms; the pass costs their sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MixedPrice {
    /// The prefill part.
    pub(crate) prefill_ms: f64,
    /// What the decodes beside it add, and the overhead of having both.
    pub(crate) decode_ms: f64,
}

/// Prices forward passes, in milliseconds of device time. Immutable, and shared by every engine
/// and sweep point. Every answer, also one of 0 ms, is noted in the evidence.
pub(crate) trait TimingProvider: Send + Sync {
    /// A pass that holds only prefill work.
    fn prefill(&self, work: &PrefillWork, evidence: &mut Evidence) -> Result<f64, TimingError>;

    /// A pass that holds only decode work.
    fn decode(&self, work: &DecodeWork, evidence: &mut Evidence) -> Result<f64, TimingError>;

    /// What of a decode pass is there anyway in a pass with prefill (reading the weights,
    /// launching): the same requests with hardly any KV. `None`: this provider knows no such
    /// share. Noted as [`Part::DecodeBaseline`].
    fn decode_baseline(
        &self,
        work: &DecodeWork,
        evidence: &mut Evidence,
    ) -> Result<Option<f64>, TimingError> {
        let least = DecodeWork { kv_tokens: 0, longest_kv_tokens: 0, ..*work };
        evidence.noting_as(Part::DecodeBaseline, |evidence| self.decode(&least, evidence)).map(Some)
    }

    /// A pass that holds both, as one forward. `None`: this provider prices the two parts
    /// separately and the pass costs their sum; then nothing was noted.
    fn mixed(
        &self,
        _prefill: &PrefillWork,
        _decode: &DecodeWork,
        _evidence: &mut Evidence,
    ) -> Result<Option<MixedPrice>, TimingError> {
        Ok(None)
    }
}
