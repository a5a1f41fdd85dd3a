//! What the scheduler knows of a request beside what every family does.

use crate::kv::radix::ROOT;
use crate::workload::request::Piece;

/// Tokens of output that a request is expected to need, at most (E3, E4).
pub(super) const CLIP_TOKENS: u32 = 4096;

/// What its output may still become, as far as the budgets look (E3, E4).
pub(super) const fn clipped(tokens: u32) -> u32 {
    if tokens < CLIP_TOKENS { tokens } else { CLIP_TOKENS }
}

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Its prompt, and behind it its output, as long as it may become.
    pub(super) pieces: Vec<Piece>,
    /// Tokens of its prompt, or 1 if that was refused (A3).
    pub(super) prompt_tokens: u32,
    /// Whether its prompt was refused.
    pub(super) is_refused: bool,
    /// Its clipped output limit (A2).
    pub(super) limit_tokens: u32,
    /// The output number that is its end token; never: `u32::MAX`.
    pub(super) stops_at: u32,
    /// Whether its limit is its length.
    pub(super) ignores_eos: bool,
    /// When it entered the queue (A4).
    pub(super) entry: u64,
    /// What had been processed by then (P7).
    pub(super) processed_before: u64,
    /// Output tokens known; while it decodes in step, those known when that began.
    pub(super) outputs: u32,
    /// Passes in flight that bring it a token, but for those in which it decodes in step.
    pub(super) flying_samples: u32,
    /// Tokens of output KV that passes in flight bring, with speculation: the device knows them already.
    pub(super) coming_tokens: u32,
    /// With speculation, tokens that it has had memory for since its first round, in whole pages (V4).
    pub(super) reserved_tokens: u32,
    /// The node of the cache that it holds (R3).
    pub(super) node: u32,
    /// Tokens of its sequence whose KV is the cache's.
    pub(super) cached_tokens: u32,
    /// Tokens that it has put into the cache itself since its admission (R9).
    pub(super) put_tokens: u32,
    /// While it decodes in step: the decode at which it would reach its limit, and whether that is beyond
    /// the clip (E3).
    pub(super) limit_decode: u64,
    pub(super) is_long: bool,
    /// The length and the hit of its latest look-up (Q3).
    pub(super) looked_up: (u32, u32),
    /// What the policy found when it sorted: hit, node, whether an earlier one is like it (P4).
    pub(super) rank: PolicyRank,
}

/// What a policy that looks at the cache found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PolicyRank {
    pub(super) hit_tokens: u32,
    pub(super) node: u32,
    pub(super) is_late: bool,
}

impl Part {
    /// Output tokens that it will have in the end.
    pub(super) fn total_outputs(&self) -> u32 {
        self.stops_at.min(self.limit_tokens.max(1))
    }

    /// Whether it holds the cache: somebody has to let go.
    pub(super) const fn holds(&self) -> bool {
        self.node != ROOT
    }

    /// Output tokens that it may still need with `outputs` outputs, as far as the budgets look (E3, E4).
    pub(super) const fn expected_outputs(&self, outputs: u32) -> u32 {
        clipped(self.limit_tokens.saturating_sub(outputs))
    }

    /// Number of its tokens with `outputs` outputs.
    pub(super) const fn length(&self, outputs: u32) -> u32 {
        self.prompt_tokens + outputs
    }
}
