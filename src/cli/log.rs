//! `--log`: what the program says about itself, on standard error.

use std::io;

use tracing_subscriber::EnvFilter;

use super::error::CliError;

/// The log of passes in pass notation.
const PASSES: &str = "servesim::pass=trace";

/// Starts logging as `filter` says; without one nothing is logged.
pub(super) fn init(filter: Option<&str>) -> Result<(), CliError> {
    let Some(filter) = filter else { return Ok(()) };
    let directives = if filter == "pass" { PASSES } else { filter };
    let filter = EnvFilter::try_new(directives).map_err(|_| CliError::Flag {
        flag: "--log",
        found: filter.to_owned(),
        accepted: "a level (error, warn, info, debug, trace), `pass`, or a filter such as servesim::pass=trace",
    })?;
    // Simulated time is in the lines; the time on the wall would only make them differ.
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .without_time()
        .with_level(false)
        .with_ansi(false)
        // A reader of standard error who has gone is no reason to stop.
        .log_internal_errors(false)
        .init();
    Ok(())
}
