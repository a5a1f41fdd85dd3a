//! placeholder
pub(crate) mod error;
