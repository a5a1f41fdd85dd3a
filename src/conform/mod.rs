//! Conformance: recorded schedules of real engines, replayed through the engine code of a run and
//! compared line by line.
//!
//! [`case`] reads what was asked, [`lines`] what was recorded; [`replay`] runs the case and writes
//! down the same kind of lines; [`verdict`] compares them. The formats are described in
//! docs/conformance.md.

pub(crate) mod case;
pub(crate) mod error;
pub(crate) mod files;
pub(crate) mod lines;
pub(crate) mod replay;
pub(crate) mod transcript;
pub(crate) mod verdict;
