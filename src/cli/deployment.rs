//! What flags say of the deployment.

use serde_json::json;

use super::args::DeploymentArgs;
use super::error::CliError;
use crate::scenario::{Assignment, Scenario};

impl DeploymentArgs {
    /// `scenario` with what the flags say, and then with `others`: the family of the engine comes before `--set`, other
    /// flags after it.
    ///
    /// # Errors
    /// A flag that names no field, gives it a value it cannot have, or contradicts another.
    pub(super) fn set_up(
        &self,
        scenario: &Scenario,
        others: Vec<Assignment>,
    ) -> Result<Scenario, CliError> {
        let mut all = Vec::new();
        if let Some(family) = &self.engine {
            let value = json!({ family.as_str(): {} });
            all.push(Assignment::by_flag(format!("--engine {family}"), "engine", value).merging());
        }
        for text in &self.set {
            all.push(Assignment::parse(text)?);
        }
        all.extend(others);
        let scenario = scenario.clone().set_up(self.model.as_deref(), self.gpu.as_deref(), self.tp);
        let scenario = scenario.with(&all)?;
        if let Some(family) = self.engine.as_ref().filter(|name| *name != scenario.engine_family())
        {
            return Err(CliError::Flag {
                flag: "--engine",
                found: family.clone(),
                accepted: "no --set that chooses another engine",
            });
        }
        Ok(scenario)
    }
}
