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
    blocks: Option<Blocks>,
}

/// Thread blocks that read KV, each that of one KV head of one request, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Blocks {
    /// How many run at the same time, over the KV heads of a device.
    per_head: f64,
    /// One of them, for each token.
    token_ms: f64,
}

impl Blocks {
    /// Blocks that a multiprocessor holds at a time: the occupancy of decode kernels with heads of 128.
    const PER_MULTIPROCESSOR: f64 = 2.0;

    /// Tokens of the busiest block, with `longest` tokens of one request and on average `mean` of `requests`.
    ///
    /// As long as there are more blocks than requests, KV is cut into equal pieces of the least length for which
    /// the pieces of all requests are no more than the blocks. With lengths that are exponentially distributed, a
    /// request has `1 / (1 - exp(-piece / mean))` pieces on average. With more requests than blocks nothing is
    /// cut: blocks do several requests each, of which the longest comes last.
    fn busiest_tokens(&self, requests: f64, mean: f64, longest: f64) -> f64 {
        let share = requests / self.per_head;
        if share >= 1.0 {
            return mean.mul_add(share, longest - mean);
        }
        (-mean * libm::log1p(-share)).min(longest)
    }
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
        let multiprocessors = rates.multiprocessors();
        Self {
            window,
            prefill_pair_ms: 2.0 * prefill_width * flop_ms,
            decode_pair_ms: 2.0 * decode_width * flop_ms,
            kv_token_ms: layers * kv_bytes * rates.kv_byte_ms,
            prefill_query_ms: prefill_width * query_ms,
            decode_query_ms: decode_width * query_ms,
            extra: rates.config.attention_extra_tokens,
            blocks: rates.config.kv_block_gb_per_s.zip(multiprocessors).map(
                |(bandwidth, count)| {
                    let heads = if model.mla.is_some() {
                        1.0
                    } else {
                        f64::from(model.num_key_value_heads.div_ceil(parallel.tensor_parallel_size))
                    };
                    Blocks {
                        per_head: Blocks::PER_MULTIPROCESSOR * f64::from(count) / heads,
                        token_ms: layers * kv_bytes / heads / (bandwidth * 1e6),
                    }
                },
            ),
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
        let ms = blend(pairs * self.decode_pair_ms, moved_ms);
        let Some(blocks) = self.blocks.filter(|_| work.requests > 0) else { return ms };
        let longest = f64::from(work.longest_kv_tokens).min(self.window);
        let mean = (seen / requests).min(longest);
        ms.max(blocks.busiest_tokens(requests, mean, longest) * blocks.token_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::Blocks;

    #[test]
    fn the_busiest_block_reads_a_piece_or_the_longest_request() {
        let blocks = Blocks { per_head: 40.0, token_ms: 1.0 };
        // 20 of 40: pieces of m ln 2, of which an exponential length of mean m has 1 / (1 - 1/2) = 2.
        let piece = blocks.busiest_tokens(20.0, 1000.0, 9000.0);
        assert!((piece - 693.147).abs() < 1e-3, "{piece}");
        // No piece is longer than the longest request.
        assert!((blocks.busiest_tokens(20.0, 1000.0, 500.0) - 500.0).abs() < 1e-9);
        // 80 on 40: two of the mean, and by how much the longest is longer.
        assert!((blocks.busiest_tokens(80.0, 1000.0, 9000.0) - 10_000.0).abs() < 1e-9);
        // Where requests just fill the blocks, both say the longest.
        for requests in [39.999_999, 40.0] {
            assert!((blocks.busiest_tokens(requests, 1000.0, 9000.0) - 9000.0).abs() < 1e-3);
        }
    }
}
