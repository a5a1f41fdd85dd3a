//! Figures out of JSON and cells, each with a name that errors give.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Why a file cannot be compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ResultsError {
    /// It cannot be read.
    #[error("{}: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// It is none of the known kinds.
    #[error("{}: {found}, expected {accepted}", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: String,
        /// What can be compared.
        accepted: &'static str,
    },
    /// A field is missing, or out of range.
    #[error("{place}: `{field}` is {found}, expected {accepted}")]
    Field {
        /// The file, and the line where it has rows.
        place: String,
        /// Which.
        field: String,
        /// What it is.
        found: String,
        /// What it may be.
        accepted: &'static str,
    },
}

/// What a figure may be.
pub(super) const FIGURE: &str = "a finite number of 0 or more";

/// A part of a JSON document, with its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<'a> {
    /// The file.
    pub(super) path: &'a Path,
    /// The line, where each line is a document.
    pub(super) line: Option<u64>,
    pub(super) value: &'a Value,
}

impl<'a> Node<'a> {
    /// A whole document.
    pub(super) const fn file(path: &'a Path, value: &'a Value) -> Self {
        Self { path, line: None, value }
    }

    /// The value of a field, named by its way from here with dots; `None` where it is missing or `null`.
    pub(super) fn get(&self, field: &str) -> Option<&'a Value> {
        find(self.value, field).filter(|value| !value.is_null())
    }

    /// A figure; `None` where it is missing or `null`.
    pub(super) fn figure(&self, field: &str) -> Result<Option<f64>, ResultsError> {
        self.get(field).map(|value| self.read(field, value)).transpose()
    }

    /// A figure that has to be there.
    pub(super) fn needed(&self, field: &str) -> Result<f64, ResultsError> {
        self.figure(field)?.ok_or_else(|| self.error(field, "missing", FIGURE))
    }

    /// How many requests a field counts: one at least.
    pub(super) fn some_requests(&self, field: &str) -> Result<f64, ResultsError> {
        let count = self.needed(field)?;
        if count >= 1.0 {
            return Ok(count);
        }
        Err(self.error(field, &count.to_string(), "at least one completed request"))
    }

    /// A list; `None` where it is missing or `null`.
    pub(super) fn list(&self, field: &str) -> Result<Option<&'a [Value]>, ResultsError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let list = value.as_array().map(Vec::as_slice);
        list.map(Some).ok_or_else(|| self.error(field, &short(value), "a list"))
    }

    /// The figures of a list.
    pub(super) fn figures(&self, field: &str, values: &[Value]) -> Result<Vec<f64>, ResultsError> {
        let figures = values.iter().enumerate();
        figures.map(|(at, value)| self.read(&format!("{field}.{at}"), value)).collect()
    }

    fn read(&self, field: &str, value: &Value) -> Result<f64, ResultsError> {
        let figure = value.as_f64().filter(|figure| is_figure(*figure));
        figure.ok_or_else(|| self.error(field, &short(value), FIGURE))
    }

    /// That a field is not what it should be.
    pub(super) fn error(&self, field: &str, found: &str, accepted: &'static str) -> ResultsError {
        let line = self.line.map(|line| format!(":{line}")).unwrap_or_default();
        ResultsError::Field {
            place: format!("{}{line}", self.path.display()),
            field: field.to_owned(),
            found: found.to_owned(),
            accepted,
        }
    }
}

/// The value at the end of a way with dots, which names may have too: `p99.9`.
fn find<'a>(value: &'a Value, field: &str) -> Option<&'a Value> {
    let inner = |name: &str| match value {
        Value::Array(values) => values.get(name.parse::<usize>().ok()?),
        _ => value.get(name),
    };
    inner(field).or_else(|| {
        let (name, rest) = field.split_once('.')?;
        find(inner(name)?, rest)
    })
}

/// Whether it is one that is compared.
pub(super) fn is_figure(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

/// JSON for a message.
fn short(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) => format!("{text:?}"),
        _ => value.to_string(),
    }
}
