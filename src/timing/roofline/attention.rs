//! Attention, from the totals of a pass.

use super::operators::{Rates, blend};
use crate::model::parallel::Parallel;
use crate::model::shape::ModelShape;
use crate::timing::work::{DecodeWork, PrefillWork};

/// Attention of the layers that see equally far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Attention {
    /// Tokens of the window; the largest number if there is none.
    window: f64,
    /// Arithmetic of a new token that attends to one token, prefilling.
    prefill_pair_ms: f64,
    /// The same, decoding.
    decode_pair_ms: f64,
    /// Reading or writing the KV of a token.
    kv_token_ms: f64,
    /// Reading the query of a token and writing what comes out, prefilling.
    prefill_query_ms: f64,
    /// The same, decoding.
    decode_query_ms: f64,
    /// Tokens to which a new token attends in time only.
    extra: f64,
}

/// Attention of layers that see everything, and of those that see a window, as far as there are such.
pub(super) fn attention(
    model: &ModelShape,
    parallel: Parallel,
    rates: &Rates<'_>,
) -> Vec<Attention> {
    let sliding_layers = model.sliding.map_or(0, |sliding| sliding.layers);
    let full_layers = model.num_hidden_layers.saturating_sub(sliding_layers);
    let mut kinds = Vec::new();
    if full_layers > 0 {
        kinds.push(Attention::new(model, parallel, rates, full_layers, f64::MAX));
    }
    if let Some(sliding) = model.sliding {
        let window = f64::from(sliding.window_tokens);
        kinds.push(Attention::new(model, parallel, rates, sliding.layers, window));
    }
    kinds
}

impl Attention {
    fn new(
        model: &ModelShape,
        parallel: Parallel,
        rates: &Rates<'_>,
        layers: u32,
        window: f64,
    ) -> Self {
        let layers = f64::from(layers);
        let heads = f64::from(model.num_attention_heads) / rates.devices;
        // Numbers of a key and of a value that a head multiplies, and what it reads and writes for a token.
        let (prefill_width, decode_width) = match model.mla {
            // Decoding, a head works on the compressed key and value, which are the same numbers.
            Some(mla) => (
                f64::from(mla.qk_nope_head_dim + mla.qk_rope_head_dim + mla.v_head_dim),
                f64::from(2 * mla.kv_lora_rank + mla.qk_rope_head_dim),
            ),
            None => (2.0 * f64::from(model.head_dim), 2.0 * f64::from(model.head_dim)),
        };
        let flop_ms = layers * heads * rates.attention_flop_ms();
        let query_ms = layers * heads * rates.activation_bytes * rates.kv_byte_ms;
        let kv_bytes = model.kv_width(parallel.tensor_parallel_size) as f64 * model.kv_type.bytes();
        Self {
            window,
            prefill_pair_ms: 2.0 * prefill_width * flop_ms,
            decode_pair_ms: 2.0 * decode_width * flop_ms,
            kv_token_ms: layers * kv_bytes * rates.kv_byte_ms,
            prefill_query_ms: prefill_width * query_ms,
            decode_query_ms: decode_width * query_ms,
            extra: rates.config.attention_extra_tokens,
        }
    }

    /// Every new token attends to what is before it and to itself; no further than the window, on average.
    #[inline]
    pub(super) fn prefill_ms(&self, work: &PrefillWork) -> f64 {
        let new = work.new_tokens as f64;
        let pairs = work.new_by_past as f64 + work.new_triangle as f64;
        let pairs = pairs.min(new * self.window) + new * self.extra;
        let past = (work.past_tokens as f64).min(f64::from(work.requests) * self.window);
        let moved_ms = (past + new) * self.kv_token_ms + new * self.prefill_query_ms;
        blend(pairs * self.prefill_pair_ms, moved_ms)
    }

    /// Every request reads its KV once, whatever the number of its tokens.
    #[inline]
    pub(super) fn decode_ms(&self, work: &DecodeWork) -> f64 {
        let (requests, queries) = (f64::from(work.requests), work.query_tokens as f64);
        let seen = (work.kv_tokens as f64).min(requests * self.window) + queries;
        let pairs = seen * (queries / requests.max(1.0));
        let moved_ms = seen * self.kv_token_ms + queries * self.decode_query_ms;
        blend(pairs * self.decode_pair_ms, moved_ms)
    }
}
