//! How one engine is spread over devices.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shape::ModelShape;
use crate::base::config::ConfigError;

/// Devices of an engine, by vLLM's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Parallel {
    /// Devices that share every layer; from 1 to 1024.
    pub(crate) tensor_parallel_size: u32,
    /// Stages of consecutive layers; from 1 to 1024. A pass goes through all of them; the overlap of
    /// several passes in different stages is not modelled.
    pub(crate) pipeline_parallel_size: u32,
    /// Engines that share the experts of a mixture, each with its own requests and attention; from 1 to 1024.
    pub(crate) data_parallel_size: u32,
    /// Whether whole experts are spread over the tensor- and data-parallel devices, instead of a slice of each
    /// expert over the tensor-parallel ones.
    pub(crate) enable_expert_parallel: bool,
}

impl Default for Parallel {
    fn default() -> Self {
        Self {
            tensor_parallel_size: 1,
            pipeline_parallel_size: 1,
            data_parallel_size: 1,
            enable_expert_parallel: false,
        }
    }
}

/// The largest number of devices along one axis.
const SIZE_MAX: u32 = 1024;

impl Parallel {
    /// # Errors
    /// A size that is out of range.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        for (path, size) in [
            ("tensor_parallel_size", self.tensor_parallel_size),
            ("pipeline_parallel_size", self.pipeline_parallel_size),
            ("data_parallel_size", self.data_parallel_size),
        ] {
            if !(1..=SIZE_MAX).contains(&size) {
                let accepted = format!("an integer from 1 to {SIZE_MAX}");
                return Err(ConfigError::new(path, size, accepted));
            }
        }
        Ok(())
    }

    /// What vLLM refuses at start: heads that cannot be spread evenly, and stages without a layer.
    ///
    /// # Errors
    /// The size that does not go with the model.
    pub(crate) fn check_for(&self, model: &ModelShape) -> Result<(), ConfigError> {
        let size = self.tensor_parallel_size;
        let (heads, kv_heads) = (model.num_attention_heads, model.num_key_value_heads);
        let spreads = |heads: u32| heads.is_multiple_of(size);
        // Each of fewer key and value heads than devices is held by several, as many each.
        let kv_fits = model.mla.is_some() || spreads(kv_heads) || size.is_multiple_of(kv_heads);
        if !spreads(heads) || !kv_fits {
            let accepted = format!(
                "a size that divides the {heads} attention heads of {} and goes with its {kv_heads} key and value \
                 heads, as vLLM requires",
                model.name
            );
            return Err(ConfigError::new("tensor_parallel_size", size, accepted));
        }
        if self.enable_expert_parallel && model.experts.is_none() {
            let accepted = format!("false: {} has no experts", model.name);
            return Err(ConfigError::new("enable_expert_parallel", true, accepted));
        }
        if self.pipeline_parallel_size > model.num_hidden_layers {
            let accepted =
                format!("at most the {} layers of {}", model.num_hidden_layers, model.name);
            let found = self.pipeline_parallel_size;
            return Err(ConfigError::new("pipeline_parallel_size", found, accepted));
        }
        Ok(())
    }

    /// Devices of one engine.
    pub(crate) const fn devices(&self) -> u32 {
        self.tensor_parallel_size * self.pipeline_parallel_size
    }

    /// Devices over which the experts of a layer are spread.
    pub(crate) const fn expert_devices(&self) -> u32 {
        if self.enable_expert_parallel {
            self.tensor_parallel_size * self.data_parallel_size
        } else {
            self.tensor_parallel_size
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::shape::tests::llama_8b;
    use super::*;

    #[test]
    fn heads_are_spread_evenly_and_stages_have_layers() {
        let refused = |tensor_parallel_size, pipeline_parallel_size| {
            let sizes =
                Parallel { tensor_parallel_size, pipeline_parallel_size, ..Parallel::default() };
            sizes.check_for(&llama_8b()).err().map(|error| error.path)
        };
        // 32 heads and 8 of keys and values: 16 devices hold each of these twice.
        for size in [1, 2, 4, 8, 16, 32] {
            assert_eq!(refused(size, 1), None);
        }
        for size in [3, 6, 64] {
            assert_eq!(refused(size, 1).as_deref(), Some("tensor_parallel_size"));
        }
        assert_eq!(refused(1, 32), None);
        assert_eq!(refused(1, 33).as_deref(), Some("pipeline_parallel_size"));
    }
}
