//! The work of a pass, as exact totals: two prompts of 100 and 8,000 tokens are not two of 4,050.

use serde::Serialize;

/// The prefill part of a pass. Tokens recomputed after a preemption are prefill work too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct PrefillWork {
    /// Requests with prefill work.
    pub(crate) requests: u32,
    /// Tokens to compute, over all of them.
    pub(crate) new_tokens: u64,
    /// Tokens whose KV is present already, over all of them.
    pub(crate) past_tokens: u64,
    /// Sum over requests of `new * past`: attention of the new tokens to the old.
    pub(crate) new_by_past: u64,
    /// Sum over requests of `new * (new + 1) / 2`: causal attention among the new tokens.
    pub(crate) new_triangle: u64,
    /// The largest number of new tokens of one request.
    pub(crate) longest_tokens: u32,
}

impl PrefillWork {
    /// Adds a request that computes `new` tokens behind `past` ones.
    pub(crate) fn add(&mut self, new: u32, past: u32) {
        let (new_wide, past_wide) = (u64::from(new), u64::from(past));
        self.requests += 1;
        self.new_tokens += new_wide;
        self.past_tokens += past_wide;
        self.new_by_past += new_wide * past_wide;
        self.new_triangle += new_wide * (new_wide + 1) / 2;
        self.longest_tokens = self.longest_tokens.max(new);
    }

    /// Whether there is nothing to prefill.
    pub(crate) const fn is_empty(&self) -> bool {
        self.requests == 0
    }
}

/// The decode part of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct DecodeWork {
    /// Requests that decode.
    pub(crate) requests: u32,
    /// Tokens they compute: one each, and their drafts.
    pub(crate) query_tokens: u64,
    /// Tokens whose KV is present when the pass starts, over all of them.
    pub(crate) kv_tokens: u64,
    /// The largest number of such tokens of one request.
    pub(crate) longest_kv_tokens: u32,
}

impl DecodeWork {
    /// Adds a request that computes `query` tokens behind `kv` ones.
    pub(crate) fn add(&mut self, query: u32, kv: u32) {
        self.requests += 1;
        self.query_tokens += u64::from(query);
        self.kv_tokens += u64::from(kv);
        self.longest_kv_tokens = self.longest_kv_tokens.max(kv);
    }

    /// Whether there is nothing to decode.
    pub(crate) const fn is_empty(&self) -> bool {
        self.requests == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_keep_what_means_would_lose() {
        let mut uneven = PrefillWork::default();
        uneven.add(100, 0);
        uneven.add(8000, 50);
        // 100*101/2 + 8000*8001/2 = 5,050 + 32,004,000; 8000*50 = 400,000.
        assert_eq!(uneven.new_triangle, 32_009_050);
        assert_eq!(uneven.new_by_past, 400_000);
        assert_eq!((uneven.requests, uneven.new_tokens, uneven.past_tokens), (2, 8100, 50));
        assert_eq!(uneven.longest_tokens, 8000);
    }
}
