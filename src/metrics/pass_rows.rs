//! One row per pass, in the order in which each engine runs them.

use std::path::Path;

use serde::Serialize;

use crate::base::detail::PassDetail;
use crate::base::output::{OutputError, ResultFile};
use crate::base::rows::{Column, RowFile};

/// The columns, in order; the fields of [`Row`].
const COLUMNS: [Column; 22] = [
    Column::integer("engine"),
    Column::text("kind"),
    Column::float("planned_ms"),
    Column::float("start_ms"),
    Column::float("end_ms"),
    Column::float("pass_ms"),
    Column::integer("prefill_requests"),
    Column::integer("prefill_tokens"),
    Column::integer("prefill_past_tokens"),
    Column::integer("decode_requests"),
    Column::integer("decode_tokens"),
    Column::integer("decode_kv_tokens"),
    Column::float("prefill_ms"),
    Column::float("decode_ms"),
    Column::float("draft_ms"),
    Column::float("host_ms"),
    Column::float("decode_only_ms"),
    Column::integer("used_blocks"),
    Column::integer("usable_blocks"),
    Column::integer("running"),
    Column::integer("waiting"),
    Column::integer("preempted"),
];

/// One pass.
#[derive(Clone, Copy, Debug, Serialize)]
struct Row {
    engine: u32,
    kind: &'static str,
    planned_ms: f64,
    start_ms: f64,
    end_ms: f64,
    pass_ms: f64,
    prefill_requests: u32,
    prefill_tokens: u64,
    prefill_past_tokens: u64,
    decode_requests: u32,
    decode_tokens: u64,
    decode_kv_tokens: u64,
    prefill_ms: f64,
    decode_ms: f64,
    draft_ms: f64,
    host_ms: f64,
    /// `None` unless it is mixed.
    decode_only_ms: Option<f64>,
    used_blocks: u32,
    usable_blocks: u32,
    running: u32,
    waiting: u32,
    preempted: usize,
}

impl From<&PassDetail> for Row {
    fn from(pass: &PassDetail) -> Self {
        Self {
            engine: pass.engine.0,
            kind: pass.kind(),
            planned_ms: pass.planned.as_ms(),
            start_ms: pass.start.as_ms(),
            end_ms: pass.end.as_ms(),
            pass_ms: pass.end.since(pass.start).as_ms(),
            prefill_requests: pass.prefill_requests,
            prefill_tokens: pass.prefill_tokens,
            prefill_past_tokens: pass.prefill_past_tokens,
            decode_requests: pass.decode_requests,
            decode_tokens: pass.decode_tokens,
            decode_kv_tokens: pass.decode_kv_tokens,
            prefill_ms: pass.price.prefill_ms,
            decode_ms: pass.price.decode_ms,
            draft_ms: pass.price.draft_ms,
            host_ms: pass.price.host_ms,
            decode_only_ms: pass.price.decode_only_ms,
            used_blocks: pass.used_blocks,
            usable_blocks: pass.usable_blocks,
            running: pass.running,
            waiting: pass.waiting,
            preempted: pass.preempted.len(),
        }
    }
}

/// Writes a row per pass.
#[derive(Debug)]
pub(crate) struct PassRows(RowFile);

impl PassRows {
    /// Opens `path`, whose name says the format.
    ///
    /// # Errors
    /// The name says no format, or no file can be made there.
    pub(crate) fn create(path: &Path) -> Result<Self, OutputError> {
        Ok(Self(RowFile::create(path, &COLUMNS)?))
    }

    /// A pass ran.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write(&mut self, pass: &PassDetail) -> Result<(), OutputError> {
        self.0.write(&Row::from(pass))
    }

    /// The complete file, not in its place yet.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn into_file(self) -> Result<ResultFile, OutputError> {
        self.0.into_file()
    }
}
