//! What of a roofline no data sheet says: how much of a peak is reached, and what launching costs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::config::ConfigError;
use crate::timing::error::LONGEST_PASS_MS;

/// Passes computed from the model's shape and the accelerator's data sheet. Defaults follow from public timings
/// of kernels and passes on H100, B200 and RTX PRO 6000; measured passes are the better source where there are
/// any.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RooflineConfig {
    /// Share of the 16-bit peak that large matrix products reach; above 0, at most 1. Kernels alone reach 0.80
    /// (H100) and 0.70 (B200); whole prefill passes on H100 0.67, other operators included.
    pub(crate) compute_efficiency: f64,
    /// The same where 8-bit or 4-bit operands are multiplied faster than 16-bit ones; above 0, at most 1.
    /// Kernels reach 0.45 to 0.50 on H100 and B200.
    pub(crate) narrow_compute_efficiency: f64,
    /// Share of the memory bandwidth that reading weights reaches; above 0, at most 1. Kernels of 16-bit
    /// weights reach 0.85 (H100, B200) to 0.92 (RTX PRO 6000), of narrower ones about 0.75.
    pub(crate) memory_efficiency: f64,
    /// Share of the peak that attention reaches; above 0, at most 1. Kernels reach 0.70 (H100), 0.53 (B200) and
    /// 0.56 (RTX PRO 6000) with the default `attention_extra_tokens`.
    pub(crate) attention_compute_efficiency: f64,
    /// Share of the memory bandwidth that reading KV reaches; above 0, at most 1. Kernels reach 0.85 to 0.91
    /// with 64 requests of 4,096 tokens on H100, B200 and RTX PRO 6000, and less with less KV.
    pub(crate) attention_memory_efficiency: f64,
    /// Bandwidth at which one thread block reads KV, in GB of 10^9 bytes per second; above 0, at most 1e9. Decode
    /// attention then takes at least as long as its busiest block. Absent: KV is always spread over all blocks.
    pub(crate) kv_block_gb_per_s: Option<f64>,
    /// Tokens to which a new token of prefill attends beyond those it has to, in time: why short prompts
    /// reach less of the peak. From 0 to 1e6.
    pub(crate) attention_extra_tokens: f64,
    /// Share of the links' bandwidth that collectives reach; above 0, at most 1. All-reduces of 8 to 64 MB in
    /// a CUDA graph reach 0.42 to 0.76 on H100 and 0.18 to 0.60 on B200, more the larger they are.
    pub(crate) link_efficiency: f64,
    /// A collective without data, in us; from 0 to 1e6. All-reduces in a CUDA graph take 4.2 to 8.2 us,
    /// hardly more over eight devices than over two; launched one by one, 20 to 40.
    pub(crate) link_latency_us: f64,
    /// Bandwidth between nodes, per device and direction, in GB of 10^9 bytes per second; above 0, at most 1e9.
    /// 50 is one link of 400 Gbit/s a device.
    pub(crate) inter_node_gb_per_s: f64,
    /// What a layer costs beyond its work, in us; from 0 to 1e6. The shortest kernels of a layer
    /// (normalisation, rotation, gate, attention to nothing) take 19 us together on RTX PRO 6000; attention to
    /// nothing takes 12 on H100.
    pub(crate) layer_overhead_us: f64,
    /// What a pass costs beyond its layers, in ms; from 0 to a day. A replay of a served Llama-3.1-8B fits best
    /// with 1.3 ms a pass beside its kernels.
    pub(crate) pass_overhead_ms: f64,
}

impl Default for RooflineConfig {
    fn default() -> Self {
        Self {
            compute_efficiency: 0.75,
            narrow_compute_efficiency: 0.5,
            memory_efficiency: 0.85,
            attention_compute_efficiency: 0.55,
            attention_memory_efficiency: 0.9,
            kv_block_gb_per_s: None,
            attention_extra_tokens: 500.0,
            link_efficiency: 0.6,
            link_latency_us: 5.0,
            inter_node_gb_per_s: 50.0,
            layer_overhead_us: 15.0,
            pass_overhead_ms: 1.0,
        }
    }
}

impl RooflineConfig {
    /// # Errors
    /// A field that is out of range.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        for (path, share) in [
            ("compute_efficiency", self.compute_efficiency),
            ("narrow_compute_efficiency", self.narrow_compute_efficiency),
            ("memory_efficiency", self.memory_efficiency),
            ("attention_compute_efficiency", self.attention_compute_efficiency),
            ("attention_memory_efficiency", self.attention_memory_efficiency),
            ("link_efficiency", self.link_efficiency),
        ] {
            if !(share > 0.0 && share <= 1.0) {
                return Err(ConfigError::new(path, share, "a number above 0, at most 1"));
            }
        }
        for (path, bandwidth) in [
            ("inter_node_gb_per_s", Some(self.inter_node_gb_per_s)),
            ("kv_block_gb_per_s", self.kv_block_gb_per_s),
        ] {
            if let Some(bandwidth) = bandwidth
                && !(bandwidth > 0.0 && bandwidth <= 1e9)
            {
                return Err(ConfigError::new(path, bandwidth, "a number above 0, at most 1e9"));
            }
        }
        for (path, value) in [
            ("attention_extra_tokens", self.attention_extra_tokens),
            ("link_latency_us", self.link_latency_us),
            ("layer_overhead_us", self.layer_overhead_us),
        ] {
            if !(0.0..=1e6).contains(&value) {
                return Err(ConfigError::new(path, value, "a number from 0 to 1e6"));
            }
        }
        if !(0.0..=LONGEST_PASS_MS).contains(&self.pass_overhead_ms) {
            let accepted = "a number from 0 to 86400000 (a day)";
            return Err(ConfigError::new("pass_overhead_ms", self.pass_overhead_ms, accepted));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::config::TimingConfig;

    #[test]
    fn a_share_is_above_0_and_at_most_1() {
        let refused = |change: fn(&mut RooflineConfig)| {
            let mut config = RooflineConfig::default();
            change(&mut config);
            config.check().map_err(|error| error.path)
        };
        assert_eq!(refused(|_| ()), Ok(()));
        assert_eq!(refused(|c| c.compute_efficiency = 1.0), Ok(()));
        assert_eq!(refused(|c| c.compute_efficiency = 1.01), Err("compute_efficiency".to_owned()));
        assert_eq!(refused(|c| c.link_efficiency = 0.0), Err("link_efficiency".to_owned()));
        assert_eq!(
            refused(|c| c.memory_efficiency = f64::NAN),
            Err("memory_efficiency".to_owned())
        );
        assert_eq!(refused(|c| c.inter_node_gb_per_s = 0.0), Err("inter_node_gb_per_s".to_owned()));
        assert_eq!(refused(|c| c.layer_overhead_us = -1.0), Err("layer_overhead_us".to_owned()));
        assert_eq!(refused(|c| c.pass_overhead_ms = 1e9), Err("pass_overhead_ms".to_owned()));
    }

    #[test]
    fn a_scenario_may_say_nothing_and_errors_name_their_place() {
        let of = |json: &str| serde_json::from_str::<TimingConfig>(json);
        let plain = of(r#"{"roofline": {}}"#).unwrap();
        assert_eq!(plain, TimingConfig::Roofline(RooflineConfig::default()));
        assert_eq!(plain.resolve(std::path::Path::new("")), Ok(plain.clone()));
        let error = of(r#"{"roofline": {"memory_efficiency": 1.2}}"#)
            .unwrap()
            .resolve(std::path::Path::new(""))
            .unwrap_err();
        let expected = "`roofline.memory_efficiency` is 1.2, expected a number above 0, at most 1";
        assert_eq!(error.to_string(), expected);
        assert!(of(r#"{"roofline": {"efficiency": 0.5}}"#).is_err());
    }
}
