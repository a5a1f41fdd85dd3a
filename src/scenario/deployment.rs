//! From a model and an accelerator to an engine and its timing.

use std::path::Path;

use super::Scenario;
use super::engine::Deployed;
use crate::base::config::ConfigError;
use crate::base::path::absolute;
use crate::model::config::{AcceleratorConfig, ModelConfig};
use crate::model::presets;
use crate::timing::config::TimingConfig;

/// The deployment of a scenario that names none.
const MODEL: &str = "llama-3.1-8b";
const ACCELERATOR: &str = "h100-sxm";

impl Scenario {
    /// The same scenario with the engine set up from a model and an accelerator, as far as they are given:
    /// what the scenario says of its timing, its KV pool, its longest sequence and its device class no longer counts.
    ///
    /// `model` is a preset's name, or the path of a `config.json`; `devices` share every layer.
    #[must_use]
    pub fn set_up(
        mut self,
        model: Option<&str>,
        accelerator: Option<&str>,
        devices: Option<u32>,
    ) -> Self {
        if let Some(name) = model {
            let is_path = Path::new(name).exists() && presets::model(name).is_err();
            self.model = Some(if is_path {
                let path = absolute(Path::new(""), Path::new(name));
                ModelConfig { config: Some(path), ..ModelConfig::default() }
            } else {
                ModelConfig::named(name)
            });
        }
        if let Some(name) = accelerator {
            self.accelerator = Some(AcceleratorConfig::named(name));
        }
        if let Some(devices) = devices {
            self.parallel.tensor_parallel_size = devices;
        }
        let is_named = model.is_some() || accelerator.is_some();
        if is_named && !self.timing.as_ref().is_some_and(TimingConfig::follows_the_model) {
            self.timing = None;
        }
        let follows = self.model.is_some() && self.accelerator.is_some();
        if is_named || (devices.is_some() && follows) {
            self.engine.uproot();
        }
        self
    }

    /// Fills in `model`, `accelerator`, `timing`, and the engine that follows from them.
    pub(super) fn resolve_deployment(&mut self, directory: &Path) -> Result<(), ConfigError> {
        let timing = self.timing.clone().unwrap_or_default();
        let timing = timing.resolve(directory).map_err(|e| e.within("timing"))?;
        if self.model.is_none() && self.accelerator.is_none() && timing.follows_the_model() {
            self.model = Some(ModelConfig::named(MODEL));
            self.accelerator = Some(AcceleratorConfig::named(ACCELERATOR));
        }
        let mut shape = None;
        if let Some(model) = &mut self.model {
            let resolved = model.resolve(directory).map_err(|e| e.within("model"))?;
            (*model, shape) = (resolved.0, Some(resolved.1));
        }
        let mut data_sheet = None;
        if let Some(accelerator) = &mut self.accelerator {
            let resolved = accelerator.resolve().map_err(|e| e.within("accelerator"))?;
            (*accelerator, data_sheet) = (resolved.0, Some(resolved.1));
        }
        self.parallel.check().map_err(|e| e.within("parallel"))?;
        if let Some(shape) = &shape {
            self.parallel.check_for(shape).map_err(|e| e.within("parallel"))?;
        }
        if timing.follows_the_model() {
            for (field, is_missing) in
                [("model", shape.is_none()), ("accelerator", data_sheet.is_none())]
            {
                if is_missing {
                    let accepted = format!(
                        "one of `servesim presets`: prices of {} follow from it",
                        timing.provider_name()
                    );
                    return Err(ConfigError::new(field, "absent", accepted));
                }
            }
        }
        self.timing = Some(timing);
        let on = Deployed {
            model: shape.as_ref(),
            accelerator: data_sheet.as_ref(),
            parallel: &self.parallel,
        };
        self.engine.resolve(&on, directory)
    }
}
