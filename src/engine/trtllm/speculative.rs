//! Speculative decoding as TensorRT-LLM is told of it, and what that means for the scheduler (S1 to S9).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Phase, Trtllm};
use crate::base::config::ConfigError;
use crate::base::ids::SlotId;
use crate::base::record::DRAFTS_MAX;
use crate::engine::plan::Row;

/// TensorRT-LLM's `speculative_config`, as far as it changes the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SpeculativeConfig {
    /// Where drafts come from.
    pub(crate) decoding_type: DecodingType,
    /// Drafts a round verifies, from 1 to 16.
    #[serde(default)]
    pub(crate) max_draft_len: Option<u32>,
    /// The same with MTP, where it takes the place of `max_draft_len`; 1 without either.
    #[serde(default)]
    pub(crate) num_nextn_predict_layers: Option<u32>,
    /// With EAGLE-3: whether the draft heads are part of the model's own pass.
    #[serde(default = "yes")]
    pub(crate) eagle3_one_model: bool,
}

const fn yes() -> bool {
    true
}

/// Where drafts come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum DecodingType {
    /// EAGLE-3 heads, as releases to 1.1 call them.
    Eagle,
    /// EAGLE-3 heads.
    Eagle3,
    /// Multi-token prediction layers of the model itself.
    #[serde(rename = "MTP")]
    Mtp,
    /// N-grams looked up in the prompt and the output.
    NGram,
    /// A smaller model.
    #[serde(rename = "Draft_Target")]
    DraftTarget,
}

impl DecodingType {
    /// Its name in a scenario.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Eagle => "Eagle",
            Self::Eagle3 => "Eagle3",
            Self::Mtp => "MTP",
            Self::NGram => "NGram",
            Self::DraftTarget => "Draft_Target",
        }
    }

    /// Whether a pass can be planned while the one before it runs (S8).
    pub(crate) const fn overlaps(self) -> bool {
        !matches!(self, Self::NGram)
    }
}

impl SpeculativeConfig {
    /// The field that says how many drafts a round verifies, and what it says.
    fn given_drafts(&self) -> (&'static str, Option<u32>) {
        let layers = self.num_nextn_predict_layers;
        if self.decoding_type == DecodingType::Mtp && (layers.or(self.max_draft_len)).is_none() {
            return ("num_nextn_predict_layers", Some(1));
        }
        match (self.decoding_type, layers) {
            (DecodingType::Mtp, Some(_)) => ("num_nextn_predict_layers", layers),
            _ => ("max_draft_len", self.max_draft_len),
        }
    }

    /// Drafts that a round verifies. Only for a configuration that was checked.
    pub(crate) fn drafts(&self) -> u32 {
        self.given_drafts().1.expect("a checked configuration says so")
    }

    /// # Errors
    /// A number that is out of range, missing, or for other drafts.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let (field, drafts) = self.given_drafts();
        let path = format!("speculative_config.{field}");
        let accepted = format!("an integer from 1 to {DRAFTS_MAX}");
        let Some(drafts) = drafts else {
            return Err(ConfigError { path, found: "nothing".to_owned(), accepted });
        };
        if !(1..=DRAFTS_MAX).contains(&drafts) {
            return Err(ConfigError { path, found: drafts.to_string(), accepted });
        }
        if self.decoding_type != DecodingType::Mtp
            && let Some(layers) = self.num_nextn_predict_layers
        {
            let path = "speculative_config.num_nextn_predict_layers";
            return Err(ConfigError::new(path, layers, "nothing, unless decoding_type is MTP"));
        }
        Ok(())
    }
}

/// What speculation means for the scheduler; the default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Speculation {
    /// Drafts of a round; 0 without speculation.
    pub(crate) drafts: u32,
    /// Tokens that KV is held for beyond those of a request (S3).
    pub(crate) extra_tokens: u32,
    /// Whether drafts may be missing: they are looked up, not made (S7).
    pub(crate) looks_up: bool,
}

impl Speculation {
    /// What `config`, which was checked, means.
    pub(crate) fn of(config: Option<&SpeculativeConfig>) -> Self {
        let Some(config) = config else { return Self::default() };
        let drafts = config.drafts();
        let is_one_model = match config.decoding_type {
            DecodingType::Eagle | DecodingType::Eagle3 => config.eagle3_one_model,
            DecodingType::Mtp => true,
            DecodingType::NGram | DecodingType::DraftTarget => false,
        };
        Self {
            drafts,
            extra_tokens: if is_one_model { drafts - 1 } else { 0 },
            looks_up: config.decoding_type == DecodingType::NGram,
        }
    }

    /// Whether there is any.
    pub(crate) const fn is_on(self) -> bool {
        self.drafts > 0
    }

    /// Tokens that a decode is taken to compute when it is planned (S1).
    pub(crate) const fn round_tokens(self) -> u32 {
        1 + self.drafts
    }
}

impl Trtllm {
    /// The drafts that the next round of a request verifies (S1). Those that are looked up come to a full round or to
    /// none; it is remembered how many of them are more than padding (S7).
    pub(super) fn find_drafts(&mut self, slot: SlotId) -> u32 {
        let Some(drafting) = &mut self.drafting else { return 0 };
        let drafts = self.limits.speculation.drafts;
        let found =
            if self.limits.speculation.looks_up { drafting.find(slot, drafts) } else { drafts };
        self.arena[slot].draft_tokens = found;
        if found > 0 { drafts } else { 0 }
    }

    /// How many of the drafts in a row are accepted, and how many it had that are no padding.
    pub(super) fn verify(&mut self, row: &Row) -> (u32, u32) {
        if row.drafts == 0 {
            return (0, 0);
        }
        let drafting = self.drafting.as_mut().expect("drafts come with speculation");
        let found = self.arena[row.slot].draft_tokens;
        (drafting.accept(row.slot, found), found)
    }

    /// Takes `rejected` tokens of a request back, and gives the blocks back that it needs no more (S5). What it may
    /// still need stays reserved.
    pub(super) fn rewind(&mut self, slot: SlotId, rejected: u32) {
        let request = &mut self.arena[slot];
        request.computed_tokens -= rejected;
        let blocks = self.blocks_of(&self.arena[slot], self.arena[slot].computed_tokens);
        self.kv.shrink(slot, blocks);
    }

    /// Blocks that are reserved for a request (K4).
    pub(super) fn reservation(&self, slot: SlotId) -> u64 {
        if self.phase(slot) == Phase::Generation { self.blocks_remaining(slot).into() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> SpeculativeConfig {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn drafts_are_said_as_in_each_method() {
        let of = |text: &str| {
            let config = config(text);
            config.check().unwrap();
            let Speculation { drafts, extra_tokens, looks_up } = Speculation::of(Some(&config));
            (drafts, extra_tokens, looks_up)
        };
        assert_eq!(of(r#"{"decoding_type": "Eagle3", "max_draft_len": 4}"#), (4, 3, false));
        assert_eq!(
            of(r#"{"decoding_type": "Eagle", "max_draft_len": 4, "eagle3_one_model": false}"#),
            (4, 0, false)
        );
        assert_eq!(of(r#"{"decoding_type": "MTP"}"#), (1, 0, false));
        assert_eq!(of(r#"{"decoding_type": "MTP", "max_draft_len": 3}"#), (3, 2, false));
        assert_eq!(
            of(r#"{"decoding_type": "MTP", "max_draft_len": 3, "num_nextn_predict_layers": 2}"#),
            (2, 1, false)
        );
        assert_eq!(of(r#"{"decoding_type": "NGram", "max_draft_len": 16}"#), (16, 0, true));
        assert_eq!(of(r#"{"decoding_type": "Draft_Target", "max_draft_len": 1}"#), (1, 0, false));
        assert!(!Speculation::of(None).is_on());
    }

    #[test]
    fn what_no_method_can_do_is_refused() {
        for (text, path, found) in [
            (r#"{"decoding_type": "Eagle3"}"#, "max_draft_len", "nothing"),
            (r#"{"decoding_type": "NGram", "max_draft_len": 0}"#, "max_draft_len", "0"),
            (r#"{"decoding_type": "Eagle", "max_draft_len": 17}"#, "max_draft_len", "17"),
            (
                r#"{"decoding_type": "MTP", "num_nextn_predict_layers": 17}"#,
                "num_nextn_predict_layers",
                "17",
            ),
            (
                r#"{"decoding_type": "NGram", "max_draft_len": 2, "num_nextn_predict_layers": 2}"#,
                "num_nextn_predict_layers",
                "2",
            ),
        ] {
            let error = config(text).check().unwrap_err();
            assert_eq!(error.path, format!("speculative_config.{path}"));
            assert_eq!(error.found, found);
        }
    }
}
