//! The `pricing` part of a scenario: how a provider's answers become the price of a pass.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TimingProvider;
use super::corrections::Corrections;
use super::error::{LONGEST_PASS_MS, ProfileError};
use super::pricer::{MixedRule, Pricing};
use super::table::Table;
use super::table::config::TableConfig;
use crate::base::config::ConfigError;
use crate::base::path::absolute;

/// How a provider's answers become the price of a pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PricingConfig {
    /// How the price of a pass with prefill and decode work is put together.
    pub(crate) mixed: MixedRule,
    /// Drafting, in each pass that verifies drafts, in ms.
    pub(crate) draft_ms: f64,
    /// A timing table whose decode rows are draft passes: added to `draft_ms` for the requests that decode and their
    /// KV.
    pub(crate) draft_table: Option<PathBuf>,
    /// Whether a pass that only decodes runs at the next batch size that a CUDA graph was captured for. Figures
    /// measured on an engine contain that already.
    pub(crate) cudagraph_padding: bool,
    /// These batch sizes, ascending; absent: vLLM's own.
    pub(crate) cudagraph_capture_sizes: Option<Vec<u32>>,
    /// A file of corrections: factors on the provider's answers by kind of pass.
    pub(crate) corrections: Option<PathBuf>,
}

/// Batch sizes that vLLM captures graphs for unless it is told: 1, 2, 4, every eighth up to 256 and every
/// sixteenth from there, up to twice the seats, at most 512 (release 0.33.0, `cudagraph_capture_sizes`).
fn vllm_sizes(running_max: u32) -> Vec<u32> {
    let max = running_max.saturating_mul(2).min(512);
    let sizes = [1, 2, 4].into_iter().chain((8..256).step_by(8)).chain((256..=512).step_by(16));
    sizes.filter(|&size| size <= max).collect()
}

impl PricingConfig {
    /// The same with every absent value filled in, for an engine with `running_max` seats.
    ///
    /// # Errors
    /// A figure that is out of range.
    pub(crate) fn resolve(&self, running_max: u32, directory: &Path) -> Result<Self, ConfigError> {
        let mut resolved = self.clone();
        if !(0.0..=LONGEST_PASS_MS).contains(&self.draft_ms) {
            let accepted = "a number from 0 to 86400000 (a day)";
            return Err(ConfigError::new("draft_ms", self.draft_ms, accepted));
        }
        if let Some(sizes) = &self.cudagraph_capture_sizes {
            let ascends = sizes.windows(2).all(|pair| pair[0] < pair[1]);
            if !ascends || sizes.first().is_none_or(|&size| size == 0) {
                let found = format!("{sizes:?}");
                let accepted = "integers of at least 1, ascending";
                return Err(ConfigError::new("cudagraph_capture_sizes", found, accepted));
            }
        } else if self.cudagraph_padding {
            resolved.cudagraph_capture_sizes = Some(vllm_sizes(running_max));
        }
        for path in [&mut resolved.corrections, &mut resolved.draft_table].into_iter().flatten() {
            *path = absolute(directory, path);
        }
        Ok(resolved)
    }

    /// What a pricer needs of a resolved configuration.
    ///
    /// # Errors
    /// The file of corrections cannot be used.
    pub(crate) fn pricing(&self) -> Result<Pricing, ProfileError> {
        let sizes = self.cudagraph_capture_sizes.clone().filter(|_| self.cudagraph_padding);
        let corrections = self.corrections.as_deref().map(Corrections::restore).transpose()?;
        let draft = self.draft_table.clone().map(|path| {
            let table = Table::open(&TableConfig { path, ..TableConfig::default() })?;
            Ok::<Arc<dyn TimingProvider>, ProfileError>(Arc::new(table))
        });
        Ok(Pricing {
            mixed: self.mixed,
            graph_sizes: sizes.unwrap_or_default(),
            draft_ms: self.draft_ms,
            draft: draft.transpose()?,
            corrections: corrections.map(Arc::new),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_that_vllm_captures() {
        assert_eq!(vllm_sizes(8), [1, 2, 4, 8, 16]);
        let sizes = vllm_sizes(1024);
        // 3, then 8 to 248 by 8, then 256 to 512 by 16.
        assert_eq!(sizes.len(), 3 + 31 + 17);
        assert_eq!(sizes[33..36], [248, 256, 272]);
    }

    #[test]
    fn sizes_ascend_and_count_only_with_padding() {
        let given = |sizes: &[u32]| PricingConfig {
            cudagraph_capture_sizes: Some(sizes.to_vec()),
            ..PricingConfig::default()
        };
        assert!(given(&[4, 2]).resolve(8, Path::new("")).is_err());
        assert!(given(&[0, 2]).resolve(8, Path::new("")).is_err());
        assert!(given(&[]).resolve(8, Path::new("")).is_err());
        let config = given(&[2, 4]).resolve(8, Path::new("")).unwrap();
        assert!(config.pricing().unwrap().graph_sizes.is_empty());
        let padding = PricingConfig { cudagraph_padding: true, ..config };
        assert_eq!(padding.pricing().unwrap().graph_sizes, [2, 4]);
    }
}
