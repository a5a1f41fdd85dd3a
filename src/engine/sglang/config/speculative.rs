//! Speculative decoding in SGLang's own terms, and what that means for the scheduler (V1 to V4).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{SglangConfig, TOKENS_MAX};
use crate::base::config::ConfigError;

/// Where drafts come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum SpeculativeAlgorithm {
    /// EAGLE-2 heads.
    Eagle,
    /// EAGLE-3 heads.
    Eagle3,
    /// Multi-token prediction layers of the model itself; another name for EAGLE.
    Nextn,
    /// A smaller model.
    Standalone,
    /// N-grams looked up in what was generated before.
    Ngram,
}

impl SpeculativeAlgorithm {
    /// Its name in a scenario.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Eagle => "EAGLE",
            Self::Eagle3 => "EAGLE3",
            Self::Nextn => "NEXTN",
            Self::Standalone => "STANDALONE",
            Self::Ngram => "NGRAM",
        }
    }

    /// Whether running requests may take part in prefill passes (V2).
    const fn can_mix(self) -> bool {
        matches!(self, Self::Eagle | Self::Eagle3 | Self::Nextn)
    }

    /// Whether the server keeps slots of the context for drafts (V3).
    const fn reserves_context(self) -> bool {
        self.can_mix()
    }
}

/// Requests that may run at once where nothing is said (V2).
pub(super) const RUNNING_MAX: u32 = 48;

/// The most steps, branches or verified tokens that a configuration may ask for.
const SPECULATIVE_MAX: u32 = 1024;

/// Steps, branches and verified tokens where nothing is said (V1).
const BY_DEFAULT: [u32; 3] = [3, 1, 4];

/// Verified tokens of n-grams where nothing is said (V1).
const NGRAM_TOKENS: u32 = 12;

impl SglangConfig {
    /// # Errors
    /// A number of speculative decoding that is out of range by itself.
    pub(super) fn check_speculative_ranges(&self) -> Result<(), ConfigError> {
        let ngram = self.speculative_algorithm == Some(SpeculativeAlgorithm::Ngram);
        // N-grams have less than one step for each branch where these are many (V1).
        let least_steps = u32::from(!ngram);
        for (path, value, least) in [
            ("speculative_num_steps", self.speculative_num_steps, least_steps),
            ("speculative_eagle_topk", self.speculative_eagle_topk, 1),
            ("speculative_num_draft_tokens", self.speculative_num_draft_tokens, 2),
            ("speculative_ngram_max_bfs_breadth", Some(self.speculative_ngram_max_bfs_breadth), 1),
        ] {
            if let Some(value) = value
                && !(least..=SPECULATIVE_MAX).contains(&value)
            {
                let accepted = format!("an integer from {least} to {SPECULATIVE_MAX}");
                return Err(ConfigError::new(path, value, accepted));
            }
        }
        Ok(())
    }

    /// Fills in what speculation leaves open, and turns off what does not go with it (V1, V2).
    ///
    /// # Errors
    /// Numbers that do not go together.
    pub(super) fn fill_speculative(&mut self) -> Result<(), ConfigError> {
        let Some(algorithm) = self.speculative_algorithm else { return Ok(()) };
        self.enable_mixed_chunk &= algorithm.can_mix();
        if algorithm == SpeculativeAlgorithm::Ngram {
            let breadth = self.speculative_ngram_max_bfs_breadth;
            self.speculative_eagle_topk = Some(breadth);
            let tokens = *self.speculative_num_draft_tokens.get_or_insert(NGRAM_TOKENS);
            self.speculative_num_steps.get_or_insert(tokens / breadth);
            return Ok(());
        }
        let Some(steps) = self.speculative_num_steps else {
            for (path, value) in [
                ("speculative_eagle_topk", self.speculative_eagle_topk),
                ("speculative_num_draft_tokens", self.speculative_num_draft_tokens),
            ] {
                if let Some(value) = value {
                    let accepted = "none without speculative_num_steps";
                    return Err(ConfigError::new(path, value, accepted));
                }
            }
            let [steps, branches, tokens] = BY_DEFAULT.map(Some);
            self.speculative_num_steps = steps;
            self.speculative_eagle_topk = branches;
            self.speculative_num_draft_tokens = tokens;
            return Ok(());
        };
        let absent = |path| {
            let accepted =
                format!("an integer up to {SPECULATIVE_MAX} beside speculative_num_steps");
            ConfigError::new(path, "absent", accepted)
        };
        let branches =
            self.speculative_eagle_topk.ok_or_else(|| absent("speculative_eagle_topk"))?;
        if branches == 1 {
            self.speculative_num_draft_tokens = Some(steps + 1);
            return Ok(());
        }
        let path = "speculative_num_draft_tokens";
        let tokens = self.speculative_num_draft_tokens.ok_or_else(|| absent(path))?;
        let (steps, branches) = (u64::from(steps), u64::from(branches));
        let nodes = 1 + branches + (steps - 1) * branches * branches;
        if u64::from(tokens) > nodes {
            let accepted = format!("at most the {nodes} nodes of the tree of drafts");
            return Err(ConfigError::new(path, tokens, accepted));
        }
        Ok(())
    }

    /// Tokens of the context that the server before the engine lets prompts have, and one more (V3). Only for a
    /// resolved configuration.
    pub(crate) fn context_tokens_served(&self) -> u32 {
        let context_tokens = self.context_length.expect("a resolved configuration has every value");
        let algorithm = self.speculative_algorithm;
        if !algorithm.is_some_and(SpeculativeAlgorithm::reserves_context) {
            return context_tokens;
        }
        let [steps, branches, tokens] = self.speculative_numbers();
        context_tokens.saturating_sub((steps * branches).max(tokens))
    }

    /// Steps, branches and verified tokens. Only for a resolved configuration with speculation.
    fn speculative_numbers(&self) -> [u32; 3] {
        let numbers = [
            self.speculative_num_steps,
            self.speculative_eagle_topk,
            self.speculative_num_draft_tokens,
        ];
        numbers.map(|number| number.expect("a resolved configuration has every value"))
    }
}

/// What speculation means for the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Speculation {
    /// Tokens that a round computes for a request: the drafts, and the token before them (V6).
    pub(crate) verified_tokens: u32,
    /// Drafts that a round may accept, at most one less than it verifies (V6).
    pub(crate) accepted_max: u32,
    /// Tokens behind the computed ones that a request has memory for in a round (V4).
    pub(crate) reserved_tokens: u32,
    /// Whether drafts are looked up, and may be missing.
    pub(crate) looks_up: bool,
}

impl Speculation {
    /// What a resolved `config` means.
    pub(super) fn of(config: &SglangConfig) -> Option<Self> {
        let looks_up = config.speculative_algorithm? == SpeculativeAlgorithm::Ngram;
        let [steps, _, verified_tokens] = config.speculative_numbers();
        let drafts = verified_tokens - 1;
        Some(Self {
            verified_tokens,
            accepted_max: if looks_up { drafts } else { drafts.min(steps) },
            reserved_tokens: 2 * round_tokens(config.page_size, config, looks_up),
            looks_up,
        })
    }
}

/// Tokens that one round may write KV for, at most `TOKENS_MAX`: half the reserve (V4).
fn round_tokens(page_tokens: u32, config: &SglangConfig, looks_up: bool) -> u32 {
    let [steps, branches, verified_tokens] = config.speculative_numbers();
    let [page, steps, branches] = [page_tokens, steps.max(1), branches].map(u64::from);
    let drafted = if page == 1 || branches == 1 || looks_up {
        steps * branches
    } else {
        // Every branch has pages of its own, which begin within one that it copies.
        branches * (page - 1 + steps).next_multiple_of(page)
    };
    drafted.max(verified_tokens.into()).min(TOKENS_MAX.into()) as u32
}

#[cfg(test)]
mod tests {
    use super::super::Limits;
    use super::*;

    fn resolved(change: impl FnOnce(&mut SglangConfig)) -> Result<SglangConfig, ConfigError> {
        let mut config = SglangConfig {
            speculative_algorithm: Some(SpeculativeAlgorithm::Eagle3),
            ..SglangConfig::default()
        };
        change(&mut config);
        config.resolve()
    }

    /// Steps, branches and verified tokens.
    fn numbers(change: impl FnOnce(&mut SglangConfig)) -> [u32; 3] {
        resolved(change).unwrap().speculative_numbers()
    }

    fn set(config: &mut SglangConfig, numbers: [u32; 3]) {
        let [steps, branches, tokens] = numbers.map(Some);
        config.speculative_num_steps = steps;
        config.speculative_eagle_topk = branches;
        config.speculative_num_draft_tokens = tokens;
    }

    #[test]
    fn what_is_absent_is_chosen_together() {
        assert_eq!(numbers(|_| ()), [3, 1, 4]);
        // In a chain, what is verified follows from the steps.
        assert_eq!(numbers(|c| set(c, [5, 1, 9])), [5, 1, 6]);
        assert_eq!(numbers(|c| set(c, [5, 4, 8])), [5, 4, 8]);
        let ngram = |c: &mut SglangConfig| {
            c.speculative_algorithm = Some(SpeculativeAlgorithm::Ngram);
        };
        assert_eq!(numbers(ngram), [1, 10, 12]);
        // 8 / 10 steps.
        let few = |c: &mut SglangConfig| {
            ngram(c);
            c.speculative_num_draft_tokens = Some(8);
        };
        assert_eq!(numbers(few), [0, 10, 8]);
        let once = resolved(few).unwrap();
        assert_eq!(once.resolve().unwrap(), once);
    }

    #[test]
    fn other_defaults_change_with_it() {
        use SpeculativeAlgorithm::{Eagle, Eagle3, Nextn, Ngram, Standalone};
        for (algorithm, mixes) in
            [(Eagle, true), (Eagle3, true), (Nextn, true), (Standalone, false), (Ngram, false)]
        {
            let c = resolved(|c| {
                c.speculative_algorithm = Some(algorithm);
                c.enable_mixed_chunk = true;
            });
            let c = c.unwrap();
            assert_eq!((c.max_running_requests, c.enable_mixed_chunk), (Some(48), mixes));
            // The three that mix keep max(3 * 1, 4) tokens of the context.
            assert_eq!(c.context_tokens_served(), 524_288 - if mixes { 4 } else { 0 });
        }
        assert_eq!(
            resolved(|c| c.max_total_tokens = Some(10)).unwrap().max_running_requests,
            Some(5)
        );
        let given = resolved(|c| c.max_running_requests = Some(100)).unwrap();
        assert_eq!(given.max_running_requests, Some(100));
    }

    #[test]
    fn numbers_that_do_not_go_together_are_refused() {
        type Change = fn(&mut SglangConfig);
        let cases: [(Change, &str); 8] = [
            (
                |c| c.speculative_eagle_topk = Some(4),
                "`speculative_eagle_topk` is 4, expected none without speculative_num_steps",
            ),
            (
                |c| c.speculative_num_draft_tokens = Some(4),
                "`speculative_num_draft_tokens` is 4, expected none without",
            ),
            (|c| c.speculative_num_steps = Some(3), "`speculative_eagle_topk` is absent"),
            (
                |c| {
                    c.speculative_num_steps = Some(3);
                    c.speculative_eagle_topk = Some(2);
                },
                "`speculative_num_draft_tokens` is absent",
            ),
            // 1 + 2 + 2 * 4 nodes.
            (
                |c| set(c, [3, 2, 12]),
                "`speculative_num_draft_tokens` is 12, expected at most the 11 nodes",
            ),
            (
                |c| set(c, [0, 1, 2]),
                "`speculative_num_steps` is 0, expected an integer from 1 to 1024",
            ),
            (|c| set(c, [3, 2, 1]), "`speculative_num_draft_tokens` is 1"),
            (
                |c| c.speculative_ngram_max_bfs_breadth = 0,
                "`speculative_ngram_max_bfs_breadth` is 0",
            ),
        ];
        for (change, expected) in cases {
            let error = resolved(change).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(numbers(|c| set(c, [3, 2, 11])), [3, 2, 11]);
    }

    #[test]
    fn a_round_reserves_twice_what_it_may_write() {
        use SpeculativeAlgorithm::{Eagle, Ngram};
        let speculation = |numbers, page_size, algorithm| {
            let c = resolved(|c| {
                set(c, numbers);
                (c.page_size, c.chunked_prefill_size) = (page_size, Some(-1));
                c.speculative_algorithm = Some(algorithm);
                if algorithm == SpeculativeAlgorithm::Ngram {
                    c.speculative_ngram_max_bfs_breadth = numbers[1];
                }
            });
            Limits::of(&c.unwrap()).speculation.unwrap()
        };
        let reserved = |numbers, page_size, algorithm| {
            speculation(numbers, page_size, algorithm).reserved_tokens
        };
        assert_eq!(reserved([3, 1, 4], 1, Eagle), 2 * 4);
        assert_eq!(reserved([3, 1, 4], 16, Eagle), 2 * 4);
        // 5 * 4 drafts are more than 8 verified tokens.
        assert_eq!(reserved([5, 4, 8], 1, Eagle), 2 * 20);
        // 15 + 5 tokens are two pages of 16, for each of 4 branches.
        assert_eq!(reserved([5, 4, 8], 16, Eagle), 2 * 128);
        assert_eq!(reserved([5, 4, 8], 16, Ngram), 2 * 20);
        // No step counts as one.
        assert_eq!(reserved([0, 10, 8], 1, Ngram), 2 * 10);
        let largest = reserved([1024, 1024, 1024], 1 << 18, Eagle);
        assert_eq!(largest, 2 * TOKENS_MAX);

        let accepted = |numbers, algorithm| speculation(numbers, 1, algorithm).accepted_max;
        // A path of the tree has as many nodes as there are steps; with n-grams all of them may be one path.
        assert_eq!(accepted([5, 4, 8], Eagle), 5);
        assert_eq!(accepted([5, 4, 4], Eagle), 3);
        assert_eq!(accepted([1, 10, 12], Ngram), 11);
    }

    #[test]
    fn algorithms_are_spelt_as_sglang_spells_them() {
        let text =
            "{speculative_algorithm: EAGLE3, speculative_num_steps: 5, speculative_eagle_topk: 1}";
        let c: SglangConfig = serde_saphyr::from_str(text).unwrap();
        assert_eq!(c.speculative_algorithm, Some(SpeculativeAlgorithm::Eagle3));
        for name in ["EAGLE", "NEXTN", "STANDALONE", "NGRAM"] {
            let text = format!("{{speculative_algorithm: {name}}}");
            assert!(serde_saphyr::from_str::<SglangConfig>(&text).is_ok());
        }
    }
}
