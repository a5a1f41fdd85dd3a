//! Conformance: recorded schedules of real engines, replayed through the engine code of a run and
//! compared line by line.
//!
//! [`recording`] finds files of recorded cases and names the cases in them. A family of engines is a
//! folder of the same shape, [`vllm`] and [`sglang`]: `case` reads what was asked, `lines` what was
//! recorded; `replay` runs the case and `transcript` writes down the same kind of lines; `verdict`
//! compares them. The formats are described in docs/conformance.md.

mod error;
mod files;
mod recording;
mod sglang;
mod timing;
mod verdict;
mod vllm;

pub use error::ConformError;
pub use recording::{RecordedCase, Recording, find_recordings};
pub use verdict::Verdict;
