//! A constant per kind of pass: for tests, and for questions in which time does not matter.

use super::error::TimingError;
use super::work::{DecodeWork, PrefillWork};
use super::{MixedPrice, Price, TimingProvider};

/// The same price for every pass of a kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fixed {
    /// A pass that only prefills.
    pub(crate) prefill_ms: f64,
    /// A pass that only decodes.
    pub(crate) decode_ms: f64,
    /// A pass that does both, as one forward; `None`: the sum of the two.
    pub(crate) mixed_ms: Option<f64>,
}

impl TimingProvider for Fixed {
    fn prefill(&self, _work: &PrefillWork) -> Result<Price, TimingError> {
        Ok(Price::analytic(self.prefill_ms))
    }

    fn decode(&self, _work: &DecodeWork) -> Result<Price, TimingError> {
        Ok(Price::analytic(self.decode_ms))
    }

    fn mixed(
        &self,
        _prefill: &PrefillWork,
        _decode: &DecodeWork,
    ) -> Result<Option<MixedPrice>, TimingError> {
        Ok(self.mixed_ms.map(|ms| {
            // The decodes' share is what the pass costs above its prefill.
            let prefill_ms = self.prefill_ms.min(ms);
            MixedPrice {
                prefill: Price::analytic(prefill_ms),
                decode: Price::analytic(ms - prefill_ms),
            }
        }))
    }
}
