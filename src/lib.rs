//! servesim rehearses an LLM deployment before anyone rents the GPUs.
//!
//! ```text
//! trace ─► workload ─► kernel ─► engine ⇄ timing ─► metrics ─► report
//! ```
//!
//! A [`Scenario`] says what is deployed and what is asked of it. [`simulate`] runs it and gives a
//! [`Report`]. [`conform`] replays recorded schedules of real engines through the same engine code.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::path::Path;
//!
//! use servesim::{Assignment, Extras, Look, Scenario, simulate};
//!
//! let scenario = Scenario::replay(Path::new("trace.jsonl.gz"))
//!     .with(&[Assignment::parse("engine.vllm.max_num_seqs=64")?])?
//!     .resolve(Path::new(""))?;
//! let report = simulate(&scenario, &Extras::default(), &mut ())?.put()?;
//! report.write_table(Look::default(), &mut std::io::stdout())?;
//! # Ok(())
//! # }
//! ```
//!
//! The reading order of the code is in docs/architecture.md.

#[cfg(feature = "cli")]
mod accuracy;
mod base;
#[cfg(feature = "cli")]
pub mod cli;
pub mod conform;
mod engine;
#[cfg(feature = "cli")]
mod estimate;
#[cfg(feature = "cli")]
mod explain;
#[doc(hidden)]
pub mod fuzzing;
mod kernel;
mod kv;
mod metrics;
mod model;
mod report;
mod scenario;
mod simulate;
mod timing;
mod workload;

pub use base::config::ConfigError;
pub use base::output::OutputError;
pub use engine::error::EngineError;
pub use kernel::error::RunError;
pub use report::{Export, Look, Report};
pub use scenario::{Assignment, Scenario, ScenarioError, json_schema};
pub use simulate::{Extras, Progress, RunTrace, Simulated, simulate};
pub use timing::error::{ProfileError, TimingError};
pub use workload::trace::TraceError;
