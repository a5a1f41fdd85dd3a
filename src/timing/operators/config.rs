//! The `operators` part of a scenario's timing.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(super) use super::super::config::Outside;
use super::super::error::LONGEST_PASS_MS;
use crate::base::config::ConfigError;
use crate::base::path::absolute;

/// Measured operators, put together to forward passes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OperatorsConfig {
    /// The folder with the measurements, relative to the scenario's file.
    pub(crate) path: PathBuf,
    /// How the folder is laid out; absent: as its files tell.
    pub(crate) format: Option<OperatorsFormat>,
    /// Layers of the model; absent: as the scenario's model says, or the folder. From 1 to 16777216.
    pub(crate) num_hidden_layers: Option<u32>,
    /// What a pass outside of the measurements costs.
    pub(crate) outside: Outside,
    /// Whether the attention of decodes is taken at a KV length between their mean and their longest, as far
    /// from the mean as the folder says.
    pub(crate) uneven_kv: bool,
    /// A factor on all measured times; above 0, at most 1000.
    pub(crate) scale: f64,
    /// Added to each pass, in ms; not scaled.
    pub(crate) pass_overhead_ms: f64,
}

/// Layouts of a folder of measured operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OperatorsFormat {
    /// `operators.yaml` and CSV files beside it.
    Own,
    /// `LLMServingSim` 1.1: a folder `tpN` for each size.
    Llmservingsim,
    /// `LLMServingSim` before 1.0: `layers.csv` and predictions of attention.
    LlmservingsimV0,
    /// `aiconfigurator`: Parquet files of kernels, of any model.
    Aiconfigurator,
}

impl Default for OperatorsConfig {
    fn default() -> Self {
        Self {
            path: PathBuf::new(),
            format: None,
            num_hidden_layers: None,
            outside: Outside::default(),
            uneven_kv: false,
            scale: 1.0,
            pass_overhead_ms: 0.0,
        }
    }
}

impl OperatorsConfig {
    /// # Errors
    /// No folder, or a number that is out of range.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        const LAYERS_MAX: u32 = 1 << 24;
        if self.path.as_os_str().is_empty() {
            return Err(ConfigError::new("path", "\"\"", "a folder with measured operators"));
        }
        if let Some(layers) = self.num_hidden_layers
            && !(1..=LAYERS_MAX).contains(&layers)
        {
            let accepted = format!("an integer from 1 to {LAYERS_MAX}");
            return Err(ConfigError::new("num_hidden_layers", layers, accepted));
        }
        if !(self.scale > 0.0 && self.scale <= 1000.0) {
            return Err(ConfigError::new("scale", self.scale, "a number above 0, at most 1000"));
        }
        if !(0.0..=LONGEST_PASS_MS).contains(&self.pass_overhead_ms) {
            let accepted = "a number from 0 to 86400000 (a day)";
            return Err(ConfigError::new("pass_overhead_ms", self.pass_overhead_ms, accepted));
        }
        Ok(())
    }

    /// Takes a relative folder as one of `directory`.
    pub(crate) fn absolutise(&mut self, directory: &Path) {
        self.path = absolute(directory, &self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused_by_field() {
        let good = OperatorsConfig { path: "profile".into(), ..OperatorsConfig::default() };
        assert_eq!(good.check(), Ok(()));
        let refused = |change: fn(&mut OperatorsConfig)| {
            let mut config = good.clone();
            change(&mut config);
            config.check().unwrap_err().path
        };
        assert_eq!(refused(|c| c.path = PathBuf::new()), "path");
        assert_eq!(refused(|c| c.num_hidden_layers = Some(0)), "num_hidden_layers");
        assert_eq!(refused(|c| c.scale = 0.0), "scale");
        assert_eq!(refused(|c| c.scale = f64::NAN), "scale");
        assert_eq!(refused(|c| c.pass_overhead_ms = -1.0), "pass_overhead_ms");
    }

    #[test]
    fn relative_folders_belong_to_the_scenario() {
        let mut config = OperatorsConfig { path: "profile".into(), ..OperatorsConfig::default() };
        config.absolutise(Path::new("/there"));
        assert_eq!(config.path, Path::new("/there/profile"));
        config.absolutise(Path::new("/elsewhere"));
        assert_eq!(config.path, Path::new("/there/profile"));
    }
}
