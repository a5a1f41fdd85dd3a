//! The data sheet of an accelerator.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shape::DataType;
use crate::base::config::ConfigError;

/// What a data sheet says, per device. Peaks are those of dense matrices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Accelerator {
    /// What it is called.
    pub(crate) name: String,
    /// Memory, in GB of 10^9 bytes.
    pub(crate) memory_gb: f64,
    /// Memory bandwidth, in GB of 10^9 bytes per second.
    pub(crate) memory_gb_per_s: f64,
    /// Peak rates of dense matrix products.
    pub(crate) tflops: Peaks,
    /// Bandwidth of the links to the other devices of a node, per device and direction, in GB of 10^9 bytes per
    /// second.
    pub(crate) link_gb_per_s: f64,
    /// Devices that such links connect.
    #[serde(default = "eight")]
    pub(crate) devices_per_node: u32,
    /// Streaming multiprocessors, or compute units.
    #[serde(default)]
    pub(crate) multiprocessors: Option<u32>,
}

const fn eight() -> u32 {
    8
}

/// Peak rates of dense matrix products, in 10^12 operations per second, by the type of the operands. A type
/// that is absent is computed as the next wider one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Peaks {
    /// 16-bit floats.
    pub(crate) bf16: f64,
    /// 8-bit floats.
    #[serde(default)]
    pub(crate) fp8: Option<f64>,
    /// 8-bit integers.
    #[serde(default)]
    pub(crate) int8: Option<f64>,
    /// 4-bit floats.
    #[serde(default)]
    pub(crate) fp4: Option<f64>,
}

impl Accelerator {
    /// Operations per second on operands of a type.
    pub(crate) fn flops_per_s(&self, operands: DataType) -> f64 {
        let Peaks { bf16, fp8, int8, fp4 } = self.tflops;
        let tflops = match operands {
            // Half the rate of 16-bit floats, as TF32 has it.
            DataType::Fp32 => bf16 / 2.0,
            DataType::Bf16 | DataType::Fp16 => bf16,
            DataType::Fp8 => fp8.unwrap_or(bf16),
            DataType::Int8 => int8.or(fp8).unwrap_or(bf16),
            // Integers of 4 bits are widened before they are multiplied.
            DataType::Int4 => bf16,
            DataType::Nvfp4 | DataType::Mxfp4 => fp4.or(fp8).unwrap_or(bf16),
        };
        tflops * 1e12
    }

    /// # Errors
    /// A figure that no device has.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let Peaks { bf16, fp8, int8, fp4 } = self.tflops;
        for (path, figure) in [
            ("memory_gb", Some(self.memory_gb)),
            ("memory_gb_per_s", Some(self.memory_gb_per_s)),
            ("tflops.bf16", Some(bf16)),
            ("tflops.fp8", fp8),
            ("tflops.int8", int8),
            ("tflops.fp4", fp4),
            ("link_gb_per_s", Some(self.link_gb_per_s)),
        ] {
            if let Some(figure) = figure
                && !(figure > 0.0 && figure <= 1e9)
            {
                return Err(ConfigError::new(path, figure, "a number above 0, at most 1e9"));
            }
        }
        if self.devices_per_node == 0 {
            return Err(ConfigError::new("devices_per_node", 0, "an integer of at least 1"));
        }
        if self.multiprocessors == Some(0) {
            return Err(ConfigError::new(
                "multiprocessors",
                0,
                "an integer of at least 1, or none",
            ));
        }
        Ok(())
    }
}
