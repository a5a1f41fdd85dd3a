//! What is wrong with a configured value, before it is known where the value was written.

/// A value that cannot be used. `path` is relative to the struct that checked it; whoever holds
/// that struct puts its own name before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{path}` is {found}, expected {accepted}")]
pub struct ConfigError {
    /// The field, as `outer.inner`.
    pub path: String,
    /// What stood there.
    pub found: String,
    /// What may stand there.
    pub accepted: String,
}

impl ConfigError {
    /// `path` holds `found`, where `accepted` is expected.
    pub(crate) fn new(
        path: &str,
        found: impl std::fmt::Display,
        accepted: impl Into<String>,
    ) -> Self {
        Self { path: path.to_owned(), found: short(found.to_string()), accepted: accepted.into() }
    }

    /// The same error, seen from one level further out.
    pub(crate) fn within(mut self, outer: &str) -> Self {
        self.path = format!("{outer}.{}", self.path);
        self
    }
}

/// A number as people write it: `1e308` and not three hundred digits. Other texts stay as they are.
pub(crate) fn short(text: String) -> String {
    match text.parse::<f64>() {
        Ok(number) if text.len() > 24 => format!("{number:e}"),
        _ => text,
    }
}
