//! Why a pass could not be priced.

use super::work::{DecodeWork, PrefillWork};
use crate::base::config::short;

/// A pass without a usable price. The run cannot go on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TimingError {
    /// A provider answered with something that is no duration.
    #[error(
        "the timing provider answered {} ms for {query}, expected a finite number from 0 to {LONGEST_PASS_MS:e} ms",
        short(ms.to_string())
    )]
    Unusable {
        /// The answer.
        ms: f64,
        /// The question.
        query: String,
    },
}

/// The longest pass that makes sense: a day.
pub(crate) const LONGEST_PASS_MS: f64 = 86_400_000.0;

impl TimingError {
    /// `ms` is no answer to the question how long these parts take.
    pub(crate) fn unusable(ms: f64, prefill: &PrefillWork, decode: &DecodeWork) -> Self {
        let mut parts = Vec::new();
        if !prefill.is_empty() {
            parts.push(format!(
                "prefill of {} requests with {} new and {} past tokens",
                prefill.requests, prefill.new_tokens, prefill.past_tokens
            ));
        }
        if !decode.is_empty() {
            parts.push(format!(
                "decode of {} requests with {} KV tokens",
                decode.requests, decode.kv_tokens
            ));
        }
        Self::Unusable { ms, query: parts.join(" and ") }
    }
}
