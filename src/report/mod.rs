//! What a person or a program reads of a run: the report, as JSON and as a table.

pub(crate) mod accuracy;
mod bars;
pub(crate) mod compare;
pub(crate) mod estimate;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod format;
pub(crate) mod json;
pub(crate) mod openmetrics;
pub(crate) mod page;
pub(crate) mod perfetto;
mod plain;
pub(crate) mod results;
pub(crate) mod run_page;
#[cfg(test)]
mod sample;
pub(crate) mod series_rows;
pub(crate) mod sink;
pub(crate) mod table;
pub(crate) mod trace_page;
pub(crate) mod warning;

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::output::OutputError;
use crate::metrics::summary::RunSummary;

use self::warning::{EngineFields, Warning};

pub use self::export::Export;
pub use self::table::Look;

/// Name and number of the report's format.
pub(crate) const SCHEMA: &str = "servesim.report/2";

/// What the formats of reports are called, whatever their number.
const SCHEMA_NAME: &str = "servesim.report/";

/// One run, complete: what was simulated, what came out, and how far to trust it.
///
/// Equal scenarios give equal reports but for `host`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub(crate) schema: String,
    /// The version of servesim that made it.
    pub(crate) servesim_version: String,
    /// What was simulated, in words.
    pub(crate) title: Title,
    /// The resolved scenario; it can be run again as it is.
    pub(crate) scenario: Value,
    /// What the requests were: their source, and what its reader has to say about it.
    pub(crate) workload: Value,
    /// What came out.
    #[serde(flatten)]
    pub(crate) run: RunSummary,
    /// How the passes were priced.
    pub(crate) timing: Timing,
    /// What to know before trusting the figures.
    pub(crate) warnings: Vec<Warning>,
    /// Digest of every pass and of what became of every request, in 16 hexadecimal digits.
    pub(crate) digest: String,
    /// The facts of this execution.
    pub(crate) host: Host,
}

/// What was simulated, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Title {
    /// The scenario's name.
    pub(crate) scenario: String,
    /// The engines: family, release, number.
    pub(crate) engine: String,
    /// The trace or generator.
    pub(crate) workload: String,
}

/// How the passes were priced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Timing {
    /// The provider that was asked.
    pub(crate) provider: String,
    /// The rule that composed the price of a pass with prefill and decode work.
    pub(crate) mixed_rule: String,
    /// Mixed passes that were priced as one forward, and as two passes.
    pub(crate) mixed_passes: Value,
    /// What the answers rest on, by kind of pass.
    pub(crate) evidence: Value,
}

/// The facts of one execution: the only part in which equal runs may differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Host {
    /// Wall time of the simulation.
    pub(crate) wall_ms: f64,
    /// Simulated seconds per second of wall time.
    pub(crate) simulated_s_per_wall_s: Option<f64>,
    /// Passes simulated.
    pub(crate) passes: u64,
    /// Questions to the timing provider.
    pub(crate) price_lookups: u64,
    /// Requests looked at, each time counted.
    pub(crate) requests_touched: u64,
    /// Blocks looked at, each time counted.
    pub(crate) blocks_touched: u64,
    /// Events taken from the queue.
    pub(crate) events: u64,
}

/// What a report is about.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    /// What was simulated, in words.
    pub(crate) title: Title,
    /// The resolved scenario.
    pub(crate) scenario: Value,
    /// What the requests were.
    pub(crate) workload: Value,
    /// What warnings name of its engine.
    pub(crate) engine: EngineFields,
}

impl Report {
    /// The report of a run. To the `warnings` it adds those the figures give rise to.
    pub(crate) fn new(
        subject: Subject,
        run: RunSummary,
        timing: Timing,
        warnings: Vec<Warning>,
        digest: u64,
        host: Host,
    ) -> Self {
        let warnings = Warning::of(&run, &subject.engine).into_iter().chain(warnings).collect();
        Self {
            schema: SCHEMA.to_owned(),
            servesim_version: env!("CARGO_PKG_VERSION").to_owned(),
            title: subject.title,
            scenario: subject.scenario,
            workload: subject.workload,
            run,
            timing,
            warnings,
            digest: format!("{digest:016x}"),
            host,
        }
    }
}

impl Report {
    /// Writes the report as indented JSON and a final line break.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        json::write(self, out)
    }

    /// Writes the report as tables for a terminal that can show so much.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub fn write_table(&self, look: Look, out: &mut dyn Write) -> io::Result<()> {
        table::write(self, look, out)
    }

    /// Writes the same tables as Markdown.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub fn write_markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        plain::write_markdown(self, out)
    }

    /// Writes every figure of the run as CSV: its place in the JSON, and its value, not rounded.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        plain::write_csv(self, out)
    }

    /// Writes the report as JSON to `path` (`-`: standard output), complete or not at all.
    ///
    /// # Errors
    /// No file can be made there, or it cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), OutputError> {
        json::write_file(self, path)
    }

    /// Notes how long the run took on the wall.
    pub fn set_wall_time(&mut self, wall: Duration) {
        let wall_s = wall.as_secs_f64();
        self.host.wall_ms = wall_s * 1e3;
        let simulated_s = self.run.passes.span_ms / 1e3;
        self.host.simulated_s_per_wall_s = (wall_s > 0.0).then(|| simulated_s / wall_s);
    }

    /// Requests that entered an engine and did not finish, counted in the statistics or not.
    #[must_use]
    pub const fn unfinished(&self) -> u64 {
        self.run.requests.all.unfinished
    }
}

/// The resolved scenario inside a report's JSON; `None` if `text` is no report. A report of another
/// format is an error: its name and number.
pub(crate) fn scenario_of_report(text: &str) -> Option<Result<Value, String>> {
    #[derive(Deserialize)]
    struct Envelope {
        schema: String,
        #[serde(default)]
        scenario: Value,
    }
    // Most texts that are asked are none, and this is cheap to see.
    if !text.contains(SCHEMA_NAME) {
        return None;
    }
    let envelope: Envelope = serde_json::from_str(text).ok()?;
    if envelope.schema == SCHEMA {
        return Some(Ok(envelope.scenario));
    }
    envelope.schema.starts_with(SCHEMA_NAME).then_some(Err(envelope.schema))
}
