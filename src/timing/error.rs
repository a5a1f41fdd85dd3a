//! Why a pass could not be priced, or a provider not be made.

use std::path::{Path, PathBuf};

use super::work::{DecodeWork, PrefillWork};
use crate::base::config::{ConfigError, short};

/// A pass without a usable price. The run cannot go on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TimingError {
    /// A provider answered with something that is no duration.
    #[error(
        "the timing provider answered {} ms for {query}, expected a finite number from 0 to {LONGEST_PASS_MS:e} ms",
        short(ms.to_string())
    )]
    Unusable {
        /// The answer.
        ms: f64,
        /// The question.
        query: String,
    },
    /// A program that prices passes did not.
    #[error("the program of `timing.external.command` {what}{}", quoted(told))]
    External {
        /// What it did instead.
        what: String,
        /// The end of what it wrote to its standard error.
        told: String,
    },
    /// A timing table that may not be left was left.
    #[error(
        "{}: no pass was measured near {query}, expected {domain}; add such rows or set \
         `timing.table.outside` to clamp or extrapolate",
        path.display()
    )]
    Outside {
        /// The table.
        path: PathBuf,
        /// The question.
        query: String,
        /// What was measured.
        domain: String,
    },
    /// A timing table has no pass of a kind.
    #[error("{}: no {kind} pass was measured, and the run needs one; add {kind} rows", path.display())]
    Unmeasured {
        /// The table.
        path: PathBuf,
        /// The kind of pass.
        kind: &'static str,
    },
    /// A question outside of what was measured, which the scenario refuses.
    #[error(
        "{part} at {at} is outside of what was measured, and `{field}` is `refuse`; expected a pass within, or `clamp` or `extrapolate`"
    )]
    Refused {
        /// The part of the pass.
        part: &'static str,
        /// Where, as `name=value` pairs.
        at: String,
        /// The field that decides.
        field: &'static str,
    },
}

fn quoted(told: &str) -> String {
    if told.is_empty() { String::new() } else { format!("; it wrote: {told}") }
}

/// A provider that cannot be made of what the scenario names. Nothing was simulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// A field of the scenario.
    #[error(transparent)]
    Field(#[from] ConfigError),
    /// A file that cannot be used.
    #[error("{}: {what}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong, and what is accepted.
        what: String,
    },
    /// A row of a file.
    #[error("{}:{line}: {what}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The line, from 1; of a file without lines the row, from 1.
        line: u64,
        /// What is wrong, and what is accepted.
        what: String,
    },
}

impl ProfileError {
    /// `path` cannot be used.
    pub(crate) fn file(path: &Path, what: impl Into<String>) -> Self {
        Self::File { path: path.to_owned(), what: what.into() }
    }

    /// Line `line` of `path` cannot be used.
    pub(crate) fn row(path: &Path, line: u64, what: impl Into<String>) -> Self {
        Self::Row { path: path.to_owned(), line, what: what.into() }
    }
}

/// The longest pass that makes sense: a day.
pub(crate) const LONGEST_PASS_MS: f64 = 86_400_000.0;

impl TimingError {
    /// `ms` is no answer to the question how long these parts take.
    pub(crate) fn unusable(ms: f64, prefill: &PrefillWork, decode: &DecodeWork) -> Self {
        let mut parts = Vec::new();
        if !prefill.is_empty() {
            parts.push(format!(
                "prefill of {} with {} new and {} past tokens",
                requests(prefill.requests),
                prefill.new_tokens,
                prefill.past_tokens
            ));
        }
        if !decode.is_empty() {
            parts.push(format!(
                "decode of {} with {} KV tokens",
                requests(decode.requests),
                decode.kv_tokens
            ));
        }
        Self::Unusable { ms, query: parts.join(" and ") }
    }
}

fn requests(count: u32) -> String {
    format!("{count} {}", if count == 1 { "request" } else { "requests" })
}
