//! A constant per kind of pass: for tests, and for questions in which time does not matter.

use super::error::TimingError;
use super::evidence::{Evidence, Origin, Part};
use super::work::{DecodeWork, PrefillWork};
use super::{MixedPrice, TimingProvider};

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
    fn prefill(&self, _work: &PrefillWork, evidence: &mut Evidence) -> Result<f64, TimingError> {
        evidence.note(Part::Prefill, Origin::Analytic, self.prefill_ms);
        Ok(self.prefill_ms)
    }

    fn decode(&self, _work: &DecodeWork, evidence: &mut Evidence) -> Result<f64, TimingError> {
        evidence.note(Part::Decode, Origin::Analytic, self.decode_ms);
        Ok(self.decode_ms)
    }

    fn mixed(
        &self,
        _prefill: &PrefillWork,
        _decode: &DecodeWork,
        evidence: &mut Evidence,
    ) -> Result<Option<MixedPrice>, TimingError> {
        Ok(self.mixed_ms.map(|ms| {
            // The decodes' share is what the pass costs above its prefill.
            let prefill_ms = self.prefill_ms.min(ms);
            let decode_ms = ms - prefill_ms;
            evidence.note(Part::Prefill, Origin::Analytic, prefill_ms);
            evidence.note(Part::Decode, Origin::Analytic, decode_ms);
            MixedPrice { prefill_ms, decode_ms }
        }))
    }
}
