//! The `timing.table` part of a scenario.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(super) use super::super::config::Outside;
use super::super::error::LONGEST_PASS_MS;
use crate::base::config::ConfigError;
use crate::base::path::absolute;

/// Measured forward passes, from a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TableConfig {
    /// The file: `.csv` or `.jsonl`, both also with `.gz`, `.npz`, or `.parquet`. A relative path
    /// starts at the scenario's folder.
    pub(crate) path: PathBuf,
    /// Rows to use: a value for each of these columns. A column that identifies what was measured
    /// and holds several values must be named here.
    pub(crate) select: BTreeMap<String, Selected>,
    /// What a pass outside of the measurements costs.
    pub(crate) outside: Outside,
    /// What becomes of rows with equal coordinates.
    pub(crate) duplicates: Duplicates,
    /// What a mixed pass costs above its parts, in ms; absent: fitted to the measured mixed passes,
    /// and 0 if there are none.
    pub(crate) mixed_overhead_ms: Option<f64>,
}

/// A value of a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Selected {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number; equal to every spelling of it.
    Number(f64),
    /// A text.
    Text(String),
}

/// What becomes of rows with equal coordinates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Duplicates {
    /// They are an error.
    #[default]
    Refuse,
    /// Their median; each row counts once.
    Median,
    /// Their mean; each row counts as often as `samples` says.
    Mean,
}

impl TableConfig {
    /// # Errors
    /// No path, or a duration that is none.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.path.as_os_str().is_empty() {
            return Err(ConfigError::new("path", "empty", "the path of a timing table"));
        }
        match self.mixed_overhead_ms {
            Some(ms) if !(0.0..=LONGEST_PASS_MS).contains(&ms) => Err(ConfigError::new(
                "mixed_overhead_ms",
                ms,
                "a number from 0 to 86400000 (a day)",
            )),
            _ => Ok(()),
        }
    }

    /// Makes a relative path start at `directory`.
    pub(crate) fn absolutise(&mut self, directory: &Path) {
        self.path = absolute(directory, &self.path);
    }
}

impl Selected {
    /// Whether a cell of a table holds this value.
    pub(super) fn matches(&self, cell: &str) -> bool {
        let number = match self {
            Self::Bool(value) => return cell.eq_ignore_ascii_case(&value.to_string()),
            Self::Text(text) => return cell == text,
            Self::Integer(number) => *number as f64,
            Self::Number(number) => *number,
        };
        // A value equals its own spelling, however many digits there are.
        cell.parse::<f64>().is_ok_and(|cell| cell.total_cmp(&number).is_eq())
    }
}

impl fmt::Display for Selected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Integer(value) => value.fmt(f),
            Self::Number(value) => value.fmt(f),
            Self::Text(value) => write!(f, "{value:?}"),
        }
    }
}
