//! A measured deployment: what ran, what was asked of it, and what came out.

use std::fs;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::config::ConfigError;
use crate::scenario::{Assignment, Scenario, ScenarioError, WorkloadConfig};

/// The name and number of the format.
pub(crate) const SCHEMA: &str = "servesim.case/1";

/// The file of a case in its folder.
const FILE: &str = "case.yaml";

/// A measured deployment, as its file describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CaseConfig {
    /// `servesim.case/1`.
    schema: String,
    /// What it is called.
    pub(crate) name: String,
    /// Where the measurements come from.
    #[serde(default)]
    pub(crate) source: Option<String>,
    /// The folder of the measurements, relative to this file, or to `--data`. Paths of the scenario and of the runs
    /// are relative to it.
    #[serde(default)]
    folder: PathBuf,
    /// The deployment, a scenario; relative to this file. Its workload is a trace, whose path each run sets.
    scenario: PathBuf,
    /// What was measured.
    pub(crate) runs: Vec<RunConfig>,
    /// Fields that may be fitted.
    #[serde(default)]
    pub(crate) fit: Vec<Parameter>,
    /// Errors that other simulators publish for the same measurements.
    #[serde(default)]
    pub(crate) peers: Vec<Peer>,
}

/// Requests that were served, and what was measured of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunConfig {
    /// What it is called.
    pub(crate) name: String,
    /// A trace of a format that says what was measured.
    requests: PathBuf,
    /// Fields of the scenario in this run, as `--set` takes them.
    #[serde(default)]
    set: Vec<String>,
    /// The share of its requests, the first to arrive, on which parameters are fitted; the others are held out.
    /// From 0 to 1.
    #[serde(default)]
    pub(crate) fit_share: f64,
    /// Requests, the first to arrive, that are served and not scored.
    #[serde(default)]
    pub(crate) leave_out_first: u64,
}

/// A field that may be fitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Parameter {
    /// A number of the scenario, such as `pricing.pass_overhead_ms`.
    pub(crate) field: String,
    /// The least it may be.
    pub(crate) from: f64,
    /// The most it may be.
    pub(crate) to: f64,
    /// Where the search begins.
    pub(crate) start: f64,
}

/// What another simulator comes to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Peer {
    /// What it is called.
    pub(crate) name: String,
    /// Its errors in percent, by figure, such as `ttft_mean`.
    pub(crate) errors_percent: std::collections::BTreeMap<String, f64>,
}

/// A case that was read.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Its file.
    pub(crate) path: PathBuf,
    /// What it says.
    pub(crate) config: CaseConfig,
    /// The scenario, without the requests.
    pub(crate) scenario: Scenario,
    /// What paths are relative to.
    pub(crate) folder: PathBuf,
}

/// Why a case cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CaseError {
    /// A file or folder cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no case.
    #[error("{}: {what}", path.display())]
    Text {
        /// Which file.
        path: PathBuf,
        /// What is wrong, and where.
        what: String,
    },
    /// A field cannot be used.
    #[error("{}: {cause}", path.display())]
    Field {
        /// Which file.
        path: PathBuf,
        /// Which field, and what is wrong with it.
        cause: ConfigError,
    },
    /// The scenario cannot be used.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// There are none.
    #[error("{}: no case, expected a folder with a {FILE}, or with folders that have one", path.display())]
    None {
        /// Where they were looked for.
        path: PathBuf,
    },
}

impl Case {
    /// Reads the case at `path`, a file or its folder. `data` takes the place of the folder that `folder` is relative
    /// to.
    ///
    /// # Errors
    /// It cannot be read, or says what no case may say.
    pub(crate) fn read(path: &Path, data: Option<&Path>) -> Result<Self, CaseError> {
        let path = if path.is_dir() { path.join(FILE) } else { path.to_owned() };
        let text = fs::read_to_string(&path)
            .map_err(|source| CaseError::Io { path: path.clone(), source })?;
        let config: CaseConfig = serde_saphyr::from_str(&text).map_err(|error| {
            let what = error.to_string();
            CaseError::Text { path: path.clone(), what: what.trim_end().to_owned() }
        })?;
        let own = path.parent().unwrap_or(Path::new(""));
        config.check().map_err(|cause| CaseError::Field { path: path.clone(), cause })?;
        let scenario = Scenario::load(&own.join(&config.scenario))?;
        let folder = data.unwrap_or(own).join(&config.folder);
        // Nothing is the folder one is in.
        if !Path::new(".").join(&folder).is_dir() {
            let found = format!("{} (no such folder)", folder.display());
            let accepted = "the folder of the measurements, relative to the case or to --data";
            let cause = ConfigError::new("folder", found, accepted);
            return Err(CaseError::Field { path, cause });
        }
        if !matches!(scenario.workload, WorkloadConfig::Trace(_)) {
            let cause = ConfigError::new("scenario", "a made-up workload", "one of a trace");
            return Err(CaseError::Field { path, cause });
        }
        Ok(Self { path, config, scenario, folder })
    }

    /// The scenario of a run, with these values of the parameters.
    ///
    /// # Errors
    /// A field that it sets does not exist or cannot be what it is to be.
    pub(crate) fn scenario_of(
        &self,
        run: &RunConfig,
        values: &[f64],
    ) -> Result<Scenario, CaseError> {
        let mut sets = vec![Assignment::by_flag(
            "requests".to_owned(),
            "workload.trace.path",
            run.requests.to_string_lossy().into_owned(),
        )];
        for text in &run.set {
            sets.push(Assignment::parse(text)?);
        }
        for (parameter, value) in self.config.fit.iter().zip(values) {
            let flag = format!("fit: {}", parameter.field);
            sets.push(Assignment::by_flag(flag, &parameter.field, *value));
        }
        let scenario = self.scenario.with(&sets)?.resolve(&self.folder);
        scenario.map_err(|cause| CaseError::Field { path: self.path.clone(), cause })
    }
}

impl CaseConfig {
    fn check(&self) -> Result<(), ConfigError> {
        if self.schema != SCHEMA {
            return Err(ConfigError::new("schema", format!("{:?}", self.schema), SCHEMA));
        }
        if self.runs.is_empty() {
            return Err(ConfigError::new("runs", "empty", "one at least"));
        }
        for (at, run) in self.runs.iter().enumerate() {
            if !(0.0..=1.0).contains(&run.fit_share) {
                let field = format!("runs[{at}].fit_share");
                return Err(ConfigError::new(&field, run.fit_share, "a number from 0 to 1"));
            }
        }
        for (at, parameter) in self.fit.iter().enumerate() {
            let Parameter { from, to, start, .. } = *parameter;
            if !(from.is_finite() && to.is_finite() && from < to) {
                let field = format!("fit[{at}].to");
                return Err(ConfigError::new(&field, to, format!("a number above {from}")));
            }
            if !(from..=to).contains(&start) {
                let field = format!("fit[{at}].start");
                let accepted = format!("a number from {from} to {to}");
                return Err(ConfigError::new(&field, start, accepted));
            }
        }
        if !self.fit.is_empty() && self.runs.iter().all(|run| run.fit_share <= 0.0) {
            let accepted = "a share above 0 for one run at least, since there is `fit`";
            return Err(ConfigError::new("runs[0].fit_share", 0, accepted));
        }
        Ok(())
    }
}

/// The files of the cases at `path`: a case, its folder, or a folder of folders; by name.
///
/// # Errors
/// A folder cannot be read, or there is no case.
pub(crate) fn find_cases(path: &Path) -> Result<Vec<PathBuf>, CaseError> {
    if !path.is_dir() || path.join(FILE).is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let io = |source| CaseError::Io { path: path.to_owned(), source };
    let mut cases = Vec::new();
    for entry in fs::read_dir(path).map_err(io)? {
        let inner = entry.map_err(io)?.path();
        if inner.join(FILE).is_file() {
            cases.push(inner);
        }
    }
    cases.sort();
    if cases.is_empty() {
        return Err(CaseError::None { path: path.to_owned() });
    }
    Ok(cases)
}
