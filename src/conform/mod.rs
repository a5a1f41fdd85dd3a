//! Conformance: recorded schedules of real engines, replayed through the engine code of a run and
//! compared line by line.
//!
//! [`case`] reads what was asked, [`lines`] what was recorded; [`replay`] runs the case and writes
//! down the same kind of lines; [`verdict`] compares them. The formats are described in
//! docs/conformance.md.

mod case;
mod error;
mod files;
mod lines;
mod replay;
mod transcript;
mod verdict;

pub use error::ConformError;
pub use files::find_cases;
pub use verdict::{Verdict, check};
