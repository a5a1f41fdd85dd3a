//! Speculative decoding as vLLM is told of it, and what that means for the scheduler (R60 to R62).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::config::ConfigError;
use crate::base::record::DRAFTS_MAX;

/// vLLM's `--speculative-config`, as far as it changes the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SpeculativeConfig {
    /// Where drafts come from.
    pub(crate) method: SpeculativeMethod,
    /// Drafts a round verifies, from 1 to 16.
    pub(crate) num_speculative_tokens: u32,
    /// With EAGLE and MTP: whether prefix hits are as long as without them.
    #[serde(default)]
    pub(crate) disable_eagle_block_drop: bool,
    /// With EAGLE and MTP: whether the last block of a prefix hit is dropped, in the place of block hashes that
    /// cover a token more.
    #[serde(default)]
    pub(crate) disable_lookahead_block_hashes: bool,
}

/// Where drafts come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SpeculativeMethod {
    /// N-grams looked up in the prompt and the output.
    Ngram,
    /// EAGLE heads.
    Eagle,
    /// EAGLE-3 heads.
    Eagle3,
    /// Multi-token prediction layers of the model itself.
    Mtp,
    /// A smaller model.
    DraftModel,
}

impl SpeculativeMethod {
    /// Its name in a scenario.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ngram => "ngram",
            Self::Eagle => "eagle",
            Self::Eagle3 => "eagle3",
            Self::Mtp => "mtp",
            Self::DraftModel => "draft_model",
        }
    }
}

impl SpeculativeConfig {
    /// # Errors
    /// A number out of range.
    pub(crate) fn check(self) -> Result<(), ConfigError> {
        if (1..=DRAFTS_MAX).contains(&self.num_speculative_tokens) {
            return Ok(());
        }
        let accepted = format!("an integer from 1 to {DRAFTS_MAX}");
        let path = "speculative_config.num_speculative_tokens";
        Err(ConfigError::new(path, self.num_speculative_tokens, accepted))
    }
}

/// What speculation means for the scheduler; the default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Speculation {
    /// Drafts of a round; 0 without speculation.
    pub(crate) drafts: u32,
    /// Slots that every allocation reserves past the scheduled tokens (R60).
    pub(crate) lookahead_tokens: u32,
    /// What a scheduled request takes from the input budget besides its tokens (R61).
    pub(crate) draft_slots: u32,
    /// Tokens behind a block that its hash covers (R62).
    pub(crate) hash_lookahead_tokens: u32,
    /// Whether the last block of a hit is dropped (R62).
    pub(crate) drops_last_hit: bool,
    /// Whether drafts may be missing: they are looked up, not made.
    pub(crate) looks_up: bool,
}

impl Speculation {
    /// What `config` means with prefix caching or without.
    pub(crate) fn of(config: Option<&SpeculativeConfig>, prefix_caching: bool) -> Self {
        let Some(config) = config else { return Self::default() };
        let drafts = config.num_speculative_tokens;
        let (lookahead_tokens, draft_slots, is_eagle) = match config.method {
            SpeculativeMethod::Ngram => (0, 0, false),
            SpeculativeMethod::DraftModel => (drafts, 1, false),
            SpeculativeMethod::Eagle | SpeculativeMethod::Eagle3 | SpeculativeMethod::Mtp => {
                (drafts, 0, true)
            }
        };
        let needs_next_token = is_eagle && !config.disable_eagle_block_drop;
        let hashes_next_token =
            needs_next_token && prefix_caching && !config.disable_lookahead_block_hashes;
        Self {
            drafts,
            lookahead_tokens,
            draft_slots,
            hash_lookahead_tokens: u32::from(hashes_next_token),
            drops_last_hit: needs_next_token && !hashes_next_token,
            looks_up: config.method == SpeculativeMethod::Ngram,
        }
    }

    /// Whether there is any.
    pub(crate) const fn is_on(self) -> bool {
        self.drafts > 0
    }
}
