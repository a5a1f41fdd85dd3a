//! The passes of one generation of a steady batch, in closed form.
//!
//! A generation prefills every request of the batch once and decodes each to its end. Prompts take `budget` new tokens
//! of a pass until all are there, which makes the passes with prompts; decodes fill the seats beside them, and what is
//! left of the decodes has passes of its own.
//!
//! Not here: what a pass costs, and how many rounds an output takes with drafts.

use super::EstimateError;
use crate::timing::work::{DecodeWork, PrefillWork};

/// Requests that are all alike, and of which so many run at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SteadyBatch {
    /// Requests that run; at least 1.
    pub(crate) requests: u32,
    /// Tokens of a prompt, those of the prefix included.
    pub(crate) isl: u32,
    /// Tokens of an output; at least 1.
    pub(crate) osl: u32,
    /// Tokens of a prompt that are found in the cache; fewer than there are.
    pub(crate) prefix: u32,
}

/// The rounds that decode an output: without drafts one a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rounds {
    /// Of a request, for the tokens behind its first; a mean.
    pub(crate) per_request: f64,
    /// Tokens that a round computes; a mean, at least 1.
    pub(crate) query_tokens: f64,
}

/// Passes that are all alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passes {
    /// How many; at least 1.
    pub(crate) count: u64,
    /// The prompts in each.
    pub(crate) prefill: PrefillWork,
    /// The decodes in each.
    pub(crate) decode: DecodeWork,
}

/// One generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// New tokens of a pass, at most.
    pub(crate) budget: u64,
    /// Passes that a prompt is spread over.
    pub(crate) chunks: u64,
    /// Passes with prompts.
    pub(crate) prompt_passes: u64,
    /// Passes with prompts, full ones first; then those that only decode.
    pub(crate) passes: Vec<Passes>,
}

impl SteadyBatch {
    /// # Errors
    /// A number that no batch has, or of which no schedule can be counted in 64 bits.
    pub(crate) fn check(&self) -> Result<(), EstimateError> {
        let positive = [("--batch", self.requests), ("--isl", self.isl), ("--osl", self.osl)];
        if let Some((flag, _)) = positive.into_iter().find(|&(_, value)| value == 0) {
            return Err(EstimateError::flag(flag, 0, "an integer of at least 1"));
        }
        if self.prefix >= self.isl {
            return Err(EstimateError::Prefix { prefix: self.prefix, isl: self.isl });
        }
        // What is linear in the lengths stays an exact number as a float, too.
        let (requests, isl) = (u64::from(self.requests), u64::from(self.isl));
        let tokens = requests.checked_mul(isl + u64::from(self.osl));
        let attended = requests.checked_mul(isl).and_then(|tokens| tokens.checked_mul(isl));
        if tokens.is_none_or(|tokens| tokens > COUNT_MAX) || attended.is_none() {
            let accepted = "a batch whose tokens, and what they attend to, can be counted";
            return Err(EstimateError::flag("--batch", self.requests, accepted));
        }
        Ok(())
    }

    /// Tokens of a prompt that are not in the cache.
    pub(crate) const fn new_tokens(&self) -> u32 {
        self.isl - self.prefix
    }

    /// New tokens of the whole batch.
    fn all_new_tokens(&self) -> u64 {
        u64::from(self.requests) * u64::from(self.new_tokens())
    }

    /// Requests that have a share in `tokens` new tokens.
    fn prefilling(&self, tokens: u64) -> u32 {
        tokens.div_ceil(self.new_tokens().into()).min(self.requests.into()) as u32
    }

    /// Requests that may decode beside `tokens` new tokens.
    pub(crate) fn decoding(&self, tokens: u64) -> u32 {
        self.requests - self.prefilling(tokens)
    }

    /// A pass with `tokens` new tokens: as many whole prompts as there are in them, and a part of one more whose
    /// attention is that of a whole prompt times its fill, which is that of a chunk from the middle.
    fn prefill(&self, tokens: u64) -> PrefillWork {
        let (prompt, prefix) = (u64::from(self.new_tokens()), u64::from(self.prefix));
        let (whole, part) = (tokens / prompt, tokens % prompt);
        let before = (prompt - part) / 2;
        let triangle = |new: u64| new * (new + 1) / 2;
        PrefillWork {
            requests: self.prefilling(tokens),
            new_tokens: tokens,
            past_tokens: whole * prefix + if part > 0 { prefix + before } else { 0 },
            new_by_past: tokens * prefix + part * (prompt - part) / 2,
            new_triangle: whole * triangle(prompt) + triangle(part),
            longest_tokens: if whole > 0 { prompt } else { part } as u32,
        }
    }

    /// A pass with so many decodes, whose KV is as long as that of a request on average.
    fn decode(&self, requests: u32, rounds: &Rounds) -> DecodeWork {
        if requests == 0 {
            return DecodeWork::default();
        }
        let (isl, later) = (f64::from(self.isl), f64::from(self.osl - 1));
        // The first round finds the prompt, the last all tokens but those that it brings itself and the one before.
        let kv = isl + (later - later / rounds.per_request) / 2.0;
        let all = f64::from(requests);
        DecodeWork {
            requests,
            query_tokens: (all * rounds.query_tokens).round() as u64,
            kv_tokens: (all * kv).round() as u64,
            longest_kv_tokens: self.isl + (self.osl - 1).saturating_sub(1),
        }
    }

    /// New tokens of a pass where `ctx_tokens`, at least 1, may be in it.
    pub(crate) fn budget(&self, ctx_tokens: u64) -> u64 {
        ctx_tokens.min(self.all_new_tokens())
    }

    /// One generation with `ctx_tokens` new tokens of a pass at most, at least 1. Only for a batch that was checked.
    pub(crate) fn schedule(&self, ctx_tokens: u64, rounds: &Rounds) -> Schedule {
        let all = self.all_new_tokens();
        let budget = self.budget(ctx_tokens);
        let prompt_passes = all.div_ceil(budget);
        // The last pass has what the others leave, of tokens as of decodes.
        let last = all - (prompt_passes - 1) * budget;
        let mut decodes = (f64::from(self.requests) * rounds.per_request).ceil() as u64;
        let mut passes = Vec::new();
        for (count, tokens, requests) in
            self.beside_prompts(budget, prompt_passes - 1, last, decodes)
        {
            decodes -= count * u64::from(requests);
            if count > 0 {
                let (prefill, decode) = (self.prefill(tokens), self.decode(requests, rounds));
                passes.push(Passes { count, prefill, decode });
            }
        }
        let batch = u64::from(self.requests);
        for (count, requests) in [(decodes / batch, self.requests), (1, (decodes % batch) as u32)] {
            if count > 0 && requests > 0 {
                let (prefill, decode) = (PrefillWork::default(), self.decode(requests, rounds));
                passes.push(Passes { count, prefill, decode });
            }
        }
        let chunks = u64::from(self.new_tokens()).div_ceil(budget);
        Schedule { budget, chunks, prompt_passes, passes }
    }

    /// Passes with prompts as count, new tokens and decodes: `full` with the whole budget, and one with `last` tokens.
    /// As many of `decodes` as have seats beside the prompts, spread evenly if there are fewer.
    fn beside_prompts(
        &self,
        budget: u64,
        full: u64,
        last: u64,
        decodes: u64,
    ) -> [(u64, u64, u32); 3] {
        let (seats, seats_last) = (self.decoding(budget), self.decoding(last));
        let level = decodes / (full + 1);
        if level >= seats.into() {
            // The last pass has no more prompts than the others, and so no fewer seats.
            let left = decodes - full * u64::from(seats);
            let in_last = left.min(seats_last.into()) as u32;
            let is_alike = last == budget && in_last == seats;
            let full = full + u64::from(is_alike);
            return [(full, budget, seats), (0, budget, 0), (u64::from(!is_alike), last, in_last)];
        }
        // Fewer than the seats of any pass, and so few enough to be counted so.
        let (more, level) = (decodes % (full + 1), level as u32);
        let is_alike = last == budget;
        let rest = full - more + u64::from(is_alike);
        [(more, budget, level + 1), (rest, budget, level), (u64::from(!is_alike), last, level)]
    }
}

/// Numbers up to this one are exact as floats.
const COUNT_MAX: u64 = 1 << 53;

#[cfg(test)]
mod tests;
