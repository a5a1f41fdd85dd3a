//! How one engine is spread over devices.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
