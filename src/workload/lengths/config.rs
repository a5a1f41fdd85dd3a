//! How long prompts and outputs are.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::config::ConfigError;
use crate::base::path::absolute;

/// A number of tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum LengthConfig {
    /// Always the same.
    Fixed(u32),
    /// Any of a range, all alike.
    Uniform(UniformConfig),
    /// Normal, rounded.
    Normal(NormalConfig),
    /// Lognormal, rounded: a long tail upwards.
    Lognormal(LognormalConfig),
    /// n with a probability in proportion to n^-exponent: a very long tail.
    Zipf(ZipfConfig),
    /// Geometric: one more with the same probability each time.
    Geometric(GeometricConfig),
    /// As the column of a CSV file says.
    Empirical(EmpiricalConfig),
}

/// Any of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UniformConfig {
    /// The shortest.
    pub(crate) min: u32,
    /// The longest.
    pub(crate) max: u32,
}

/// Normal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NormalConfig {
    /// Mean, before clamping.
    pub(crate) mean: f64,
    /// Standard deviation, before clamping.
    pub(crate) std: f64,
    /// What is shorter becomes so long.
    pub(crate) min: u32,
    /// What is longer becomes so long.
    pub(crate) max: u32,
}

/// Lognormal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LognormalConfig {
    /// Mean of the tokens themselves, before clamping.
    pub(crate) mean: f64,
    /// Standard deviation of the tokens themselves, before clamping.
    pub(crate) std: f64,
    /// What is shorter becomes so long.
    pub(crate) min: u32,
    /// What is longer becomes so long.
    pub(crate) max: u32,
}

/// Zipf.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ZipfConfig {
    /// The exponent; 0 is uniform.
    pub(crate) exponent: f64,
    /// The shortest; at least 1.
    pub(crate) min: u32,
    /// The longest; at most 1048575 more.
    pub(crate) max: u32,
}

/// Geometric.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct GeometricConfig {
    /// Mean, before clamping; at least `min`.
    pub(crate) mean: f64,
    /// The shortest.
    pub(crate) min: u32,
    /// What is longer becomes so long.
    pub(crate) max: u32,
}

/// Empirical.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EmpiricalConfig {
    /// A CSV file with a header, plain or gzip.
    pub(crate) path: PathBuf,
    /// The column of the tokens.
    pub(crate) column: String,
    /// The column of the weights; absent: all rows alike.
    pub(crate) weight_column: Option<String>,
    /// What is shorter becomes so long.
    pub(crate) min: u32,
    /// What is longer becomes so long.
    pub(crate) max: u32,
}

/// Prompt and output drawn together, as pairs that occurred.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum PairsConfig {
    /// Rows of a CSV file.
    Csv(CsvPairsConfig),
    /// Requests of a trace in any format that can be replayed.
    Trace(TracePairsConfig),
}

/// Pairs from two columns of a CSV file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CsvPairsConfig {
    /// A CSV file with a header, plain or gzip.
    pub(crate) path: PathBuf,
    /// The column of the prompt tokens.
    pub(crate) prompt_column: String,
    /// The column of the output tokens.
    pub(crate) output_column: String,
    /// The column of the weights; absent: all rows alike.
    pub(crate) weight_column: Option<String>,
}

/// Pairs from a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TracePairsConfig {
    /// The file.
    pub(crate) path: PathBuf,
}

impl Default for UniformConfig {
    fn default() -> Self {
        Self { min: 1, max: 1024 }
    }
}

impl Default for NormalConfig {
    fn default() -> Self {
        Self { mean: 1024.0, std: 256.0, min: 1, max: u32::MAX }
    }
}

impl Default for LognormalConfig {
    fn default() -> Self {
        Self { mean: 1024.0, std: 1024.0, min: 1, max: u32::MAX }
    }
}

impl Default for ZipfConfig {
    fn default() -> Self {
        Self { exponent: 1.0, min: 1, max: 4096 }
    }
}

impl Default for GeometricConfig {
    fn default() -> Self {
        Self { mean: 1024.0, min: 1, max: u32::MAX }
    }
}

impl Default for EmpiricalConfig {
    fn default() -> Self {
        let (path, column) = (PathBuf::new(), "tokens".to_owned());
        Self { path, column, weight_column: None, min: 1, max: u32::MAX }
    }
}

impl Default for CsvPairsConfig {
    fn default() -> Self {
        Self {
            path: PathBuf::new(),
            prompt_column: "num_prefill_tokens".to_owned(),
            output_column: "num_decode_tokens".to_owned(),
            weight_column: None,
        }
    }
}

/// The values that a Zipf distribution may have: its table is kept.
const ZIPF_VALUES_MAX: u32 = 1 << 20;

/// Refuses `value` at `path` outside `from..=to`.
fn check(path: &str, value: f64, from: f64, to: f64) -> Result<(), ConfigError> {
    if (from..=to).contains(&value) {
        return Ok(());
    }
    Err(ConfigError::new(path, value, format!("a number from {from} to {to}")))
}

fn check_range(min: u32, max: u32) -> Result<(), ConfigError> {
    if min <= max {
        return Ok(());
    }
    Err(ConfigError::new("min", min, format!("at most `max` ({max})")))
}

fn check_moments(mean: f64, std: f64, mean_min: f64) -> Result<(), ConfigError> {
    check("mean", mean, mean_min, f64::from(u32::MAX))?;
    check("std", std, 0.0, f64::from(u32::MAX))
}

/// `path` seen from `directory`; a file that is to be read has a name, in UTF-8.
fn resolve_path(path: &mut PathBuf, directory: &Path) -> Result<(), ConfigError> {
    if path.as_os_str().is_empty() {
        return Err(ConfigError::new("path", "empty", "a file"));
    }
    if path.to_str().is_none() {
        return Err(ConfigError::new("path", path.display(), "a path in UTF-8"));
    }
    if path.as_os_str() == "-" {
        return Err(ConfigError::new("path", "-", "a file: the standard input is for traces"));
    }
    *path = absolute(directory, path);
    Ok(())
}

impl LengthConfig {
    /// Checks what the types leave open, and makes paths absolute.
    ///
    /// # Errors
    /// The first field that cannot be used.
    pub(crate) fn resolve(&mut self, directory: &Path) -> Result<(), ConfigError> {
        match self {
            Self::Fixed(_) => Ok(()),
            Self::Uniform(u) => check_range(u.min, u.max).map_err(|e| e.within("uniform")),
            Self::Normal(n) => check_moments(n.mean, n.std, 0.0)
                .and_then(|()| check_range(n.min, n.max))
                .map_err(|e| e.within("normal")),
            Self::Lognormal(n) => check_moments(n.mean, n.std, 1e-3)
                .and_then(|()| check_range(n.min, n.max))
                .map_err(|e| e.within("lognormal")),
            Self::Zipf(zipf) => zipf.validate().map_err(|e| e.within("zipf")),
            Self::Geometric(g) => check("mean", g.mean, f64::from(g.min), f64::from(u32::MAX))
                .and_then(|()| check_range(g.min, g.max))
                .map_err(|e| e.within("geometric")),
            Self::Empirical(file) => resolve_path(&mut file.path, directory)
                .and_then(|()| check_range(file.min, file.max))
                .map_err(|e| e.within("empirical")),
        }
    }
}

impl ZipfConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        check("exponent", self.exponent, 0.0, 100.0)?;
        for (path, tokens) in [("min", self.min), ("max", self.max)] {
            if tokens == 0 {
                return Err(ConfigError::new(path, 0, "an integer of at least 1"));
            }
        }
        check_range(self.min, self.max)?;
        if self.max - self.min >= ZIPF_VALUES_MAX {
            let accepted = format!("at most min + {}", ZIPF_VALUES_MAX - 1);
            return Err(ConfigError::new("max", self.max, accepted));
        }
        Ok(())
    }
}

impl PairsConfig {
    /// Makes paths absolute.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn resolve(&mut self, directory: &Path) -> Result<(), ConfigError> {
        match self {
            Self::Csv(file) => resolve_path(&mut file.path, directory).map_err(|e| e.within("csv")),
            Self::Trace(file) => {
                resolve_path(&mut file.path, directory).map_err(|e| e.within("trace"))
            }
        }
    }
}
