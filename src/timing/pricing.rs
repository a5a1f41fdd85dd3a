//! The `pricing` part of a scenario: how a provider's answers become the price of a pass.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TimingProvider;
use super::corrections::Corrections;
use super::error::{LONGEST_PASS_MS, ProfileError};
use super::pricer::{MixedRule, Overhead, Pricing};
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
    /// These batch sizes, ascending; absent: the engine's own.
    pub(crate) cudagraph_capture_sizes: Option<Vec<u32>>,
    /// A file of corrections: factors on the provider's answers by kind of pass.
    pub(crate) corrections: Option<PathBuf>,
    /// Added to every pass, in ms: what the provider knows nothing of.
    pub(crate) pass_overhead_ms: f64,
    /// Added to every pass with prefill work, in ms.
    pub(crate) prefill_overhead_ms: f64,
    /// Launching the kernels of a pass with prefill work, in ms, where no CUDA graph replays them. The device works
    /// meanwhile, so that such a pass takes this at least.
    pub(crate) prefill_launch_ms: f64,
    /// Added to every pass for each request in it, in ms: sampling, and what the host does by request.
    pub(crate) request_overhead_ms: f64,
}

impl PricingConfig {
    /// The same with every absent value filled in, for an engine that captures graphs for decodes of these batch
    /// sizes.
    ///
    /// # Errors
    /// A figure that is out of range.
    pub(crate) fn resolve(
        &self,
        captured: Vec<u32>,
        directory: &Path,
    ) -> Result<Self, ConfigError> {
        let mut resolved = self.clone();
        for (field, ms) in [
            ("draft_ms", self.draft_ms),
            ("pass_overhead_ms", self.pass_overhead_ms),
            ("prefill_overhead_ms", self.prefill_overhead_ms),
            ("prefill_launch_ms", self.prefill_launch_ms),
            ("request_overhead_ms", self.request_overhead_ms),
        ] {
            if !(0.0..=LONGEST_PASS_MS).contains(&ms) {
                let accepted = "a number from 0 to 86400000 (a day)";
                return Err(ConfigError::new(field, ms, accepted));
            }
        }
        if let Some(sizes) = &self.cudagraph_capture_sizes {
            let ascends = sizes.windows(2).all(|pair| pair[0] < pair[1]);
            if !ascends || sizes.first().is_none_or(|&size| size == 0) {
                let found = format!("{sizes:?}");
                let accepted = "integers of at least 1, ascending";
                return Err(ConfigError::new("cudagraph_capture_sizes", found, accepted));
            }
        } else if self.cudagraph_padding && !captured.is_empty() {
            resolved.cudagraph_capture_sizes = Some(captured);
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
            overhead: Overhead {
                pass_ms: self.pass_overhead_ms,
                prefill_ms: self.prefill_overhead_ms,
                prefill_launch_ms: self.prefill_launch_ms,
                request_ms: self.request_overhead_ms,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_ascend_and_count_only_with_padding() {
        let given = |sizes: &[u32]| PricingConfig {
            cudagraph_capture_sizes: Some(sizes.to_vec()),
            ..PricingConfig::default()
        };
        assert!(given(&[4, 2]).resolve(vec![1, 8], Path::new("")).is_err());
        assert!(given(&[0, 2]).resolve(vec![1, 8], Path::new("")).is_err());
        assert!(given(&[]).resolve(vec![1, 8], Path::new("")).is_err());
        let config = given(&[2, 4]).resolve(vec![1, 8], Path::new("")).unwrap();
        assert!(config.pricing().unwrap().graph_sizes.is_empty());
        let padding = PricingConfig { cudagraph_padding: true, ..config };
        assert_eq!(padding.pricing().unwrap().graph_sizes, [2, 4]);
        let engines = PricingConfig { cudagraph_padding: true, ..PricingConfig::default() };
        let config = engines.resolve(vec![1, 8], Path::new("")).unwrap();
        assert_eq!(config.pricing().unwrap().graph_sizes, [1, 8]);
        // An engine without graphs pads nothing.
        let config = engines.resolve(Vec::new(), Path::new("")).unwrap();
        assert_eq!(config.cudagraph_capture_sizes, None);
        assert!(config.pricing().unwrap().graph_sizes.is_empty());
    }
}
