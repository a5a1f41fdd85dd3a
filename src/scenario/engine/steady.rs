//! An engine that keeps a batch of given size, and prefills so many tokens beside its decodes.

use super::EngineConfig;

/// What limits the passes of a steady batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scenario) struct SteadyLimits {
    /// Requests that run at once.
    pub(in crate::scenario) requests: u32,
    /// Tokens of a pass, of prefill and decodes.
    pub(in crate::scenario) pass_tokens: u32,
    /// Whether prompts begin with what is in the cache.
    pub(in crate::scenario) shares_prefix: bool,
}

impl EngineConfig {
    /// Sets the seats and the tokens of a pass, lets prompts be divided and share passes with decodes, and lifts what
    /// else would hold them back.
    pub(in crate::scenario) fn keep_steady(&mut self, limits: SteadyLimits) {
        let SteadyLimits { requests, pass_tokens, shares_prefix } = limits;
        match self {
            Self::Vllm(config) => {
                config.max_num_seqs = Some(requests);
                config.max_num_active_seqs = None;
                config.max_num_scheduled_tokens = Some(pass_tokens);
                // Drafts take slots of this one besides (R61).
                let slots = if config.speculative_config.is_some() { requests } else { 0 };
                config.max_num_batched_tokens = Some(pass_tokens.saturating_add(slots));
                config.enable_chunked_prefill = true;
                config.long_prefill_token_threshold = 0;
                config.prefill_schedule_interval = 1;
                config.enable_prefix_caching |= shares_prefix;
            }
            Self::Sglang(config) => {
                config.max_running_requests = Some(requests);
                config.max_prefill_tokens = pass_tokens;
                config.prefill_max_requests = None;
                let chunk = pass_tokens.checked_next_multiple_of(config.page_size.max(1));
                config.chunked_prefill_size =
                    chunk.and_then(|tokens| i32::try_from(tokens).ok()).or(Some(i32::MAX));
                config.enable_mixed_chunk = true;
                config.disable_radix_cache &= !shares_prefix;
            }
            Self::Trtllm(config) => {
                config.max_batch_size = requests;
                config.max_num_tokens = pass_tokens;
                config.enable_chunked_prefill = true;
                config.batch_wait_timeout_iters = 0;
                config.batch_wait_max_tokens_ratio = 0.0;
                config.kv_cache_config.enable_block_reuse |= shares_prefix;
            }
        }
    }
}
