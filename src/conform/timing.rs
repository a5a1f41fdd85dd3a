//! The price of a pass in a recording: a sum that is linear in what the pass holds.

use crate::timing::error::TimingError;
use crate::timing::evidence::Evidence;
use crate::timing::work::{DecodeWork, PrefillWork};
use crate::timing::{MixedPrice, TimingProvider};

/// `pass_us + token_us * prefill tokens + decode_us * decoding requests`, in microseconds, for any pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinearTiming {
    pub(super) pass_us: u32,
    pub(super) token_us: u32,
    pub(super) decode_us: u32,
}

impl LinearTiming {
    fn ms(&self, passes: u32, prefill_tokens: u64, decodes: u32) -> f64 {
        let us = u128::from(passes) * u128::from(self.pass_us)
            + u128::from(self.token_us) * u128::from(prefill_tokens)
            + u128::from(self.decode_us) * u128::from(decodes);
        us as f64 / 1e3
    }
}

impl TimingProvider for LinearTiming {
    fn prefill(&self, work: &PrefillWork, _: &mut Evidence) -> Result<f64, TimingError> {
        Ok(self.ms(1, work.new_tokens, 0))
    }

    fn decode(&self, work: &DecodeWork, _: &mut Evidence) -> Result<f64, TimingError> {
        Ok(self.ms(1, 0, work.requests))
    }

    fn mixed(
        &self,
        prefill: &PrefillWork,
        decode: &DecodeWork,
        _: &mut Evidence,
    ) -> Result<Option<MixedPrice>, TimingError> {
        Ok(Some(MixedPrice {
            prefill_ms: self.ms(1, prefill.new_tokens, 0),
            decode_ms: self.ms(0, 0, decode.requests),
        }))
    }
}
