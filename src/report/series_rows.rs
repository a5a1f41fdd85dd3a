//! The run over time as rows: those of all engines together, then those of each.

use std::path::Path;

use serde::Serialize;

use crate::base::ids::EngineId;
use crate::base::output::{OutputError, ResultFile};
use crate::base::rows::{Column, RowFile};
use crate::base::time::SimTime;
use crate::metrics::record::{PassRecord, Rejection, RequestRecord, Unserved};
use crate::metrics::series::{Row, TimeSeries};

use super::Report;
use super::sink::Sink;

/// Intervals of a file, at most.
const ROWS_MAX: usize = 1024;

/// The columns, in order; the fields of [`Cells`].
const COLUMNS: [Column; 20] = [
    Column::integer("engine"),
    Column::float("from_ms"),
    Column::float("to_ms"),
    Column::integer("arrivals"),
    Column::integer("completions"),
    Column::float("running_mean"),
    Column::float("running_max"),
    Column::float("waiting_mean"),
    Column::float("waiting_max"),
    Column::float("kv_used_ratio_mean"),
    Column::float("kv_used_ratio_max"),
    Column::integer("prefill_tokens"),
    Column::integer("decode_tokens"),
    Column::integer("output_tokens"),
    Column::integer("prefill_passes"),
    Column::integer("decode_passes"),
    Column::integer("mixed_passes"),
    Column::float("prefill_busy_ms"),
    Column::float("decode_busy_ms"),
    Column::float("mixed_busy_ms"),
];

/// One interval.
#[derive(Clone, Copy, Debug, Serialize)]
struct Cells {
    /// `None`: all of them together.
    engine: Option<usize>,
    from_ms: f64,
    to_ms: f64,
    arrivals: u64,
    completions: u64,
    running_mean: f64,
    running_max: f64,
    waiting_mean: f64,
    waiting_max: f64,
    kv_used_ratio_mean: Option<f64>,
    kv_used_ratio_max: Option<f64>,
    prefill_tokens: u64,
    decode_tokens: u64,
    output_tokens: u64,
    prefill_passes: u64,
    decode_passes: u64,
    mixed_passes: u64,
    prefill_busy_ms: f64,
    decode_busy_ms: f64,
    mixed_busy_ms: f64,
}

impl Cells {
    fn of(engine: Option<usize>, row: &Row) -> Self {
        let [prefill_passes, decode_passes, mixed_passes] = row.passes;
        let [prefill_busy_ms, decode_busy_ms, mixed_busy_ms] = row.busy_s.map(|s| s * 1e3);
        Self {
            engine,
            from_ms: row.from_s * 1e3,
            to_ms: (row.from_s + row.width_s) * 1e3,
            arrivals: row.arrivals,
            completions: row.completions,
            running_mean: row.running.mean,
            running_max: row.running.max,
            waiting_mean: row.waiting.mean,
            waiting_max: row.waiting.max,
            kv_used_ratio_mean: row.kv_used_ratio.map(|ratio| ratio.mean),
            kv_used_ratio_max: row.kv_used_ratio.map(|ratio| ratio.max),
            prefill_tokens: row.prefill_tokens,
            decode_tokens: row.decode_tokens,
            output_tokens: row.output_tokens,
            prefill_passes,
            decode_passes,
            mixed_passes,
            prefill_busy_ms,
            decode_busy_ms,
            mixed_busy_ms,
        }
    }
}

/// `--series`.
pub(crate) struct SeriesSink {
    rows: RowFile,
    series: TimeSeries,
}

impl SeriesSink {
    /// Opens `path`, whose name says the format.
    ///
    /// # Errors
    /// The name says no format, or no file can be made there.
    pub(crate) fn create(path: &Path) -> Result<Self, OutputError> {
        Ok(Self { rows: RowFile::create(path, &COLUMNS)?, series: TimeSeries::default() })
    }
}

impl Sink for SeriesSink {
    fn engines(&mut self, usable_blocks: &[u32]) {
        self.series.engines(usable_blocks);
    }

    fn pass(&mut self, pass: &PassRecord) {
        self.series.pass(pass);
    }

    fn idle(&mut self, engine: EngineId, since: SimTime, waiting: u32) {
        self.series.idle(engine, since, waiting);
    }

    fn finished(&mut self, record: &RequestRecord, _counted: bool) -> Result<(), OutputError> {
        self.series.finished(record);
        Ok(())
    }

    fn rejected(
        &mut self,
        request: &Unserved,
        _why: Rejection,
        _counted: bool,
    ) -> Result<(), OutputError> {
        self.series.unserved(request);
        Ok(())
    }

    fn unfinished(&mut self, request: &Unserved, _counted: bool) -> Result<(), OutputError> {
        self.series.unserved(request);
        Ok(())
    }

    fn finish(self: Box<Self>, _report: &Report) -> Result<Vec<ResultFile>, OutputError> {
        let Self { mut rows, series } = *self;
        let series = series.finish(ROWS_MAX);
        series.total.iter().try_for_each(|row| rows.write(&Cells::of(None, row)))?;
        for (engine, of) in series.engines.iter().enumerate() {
            of.iter().try_for_each(|row| rows.write(&Cells::of(Some(engine), row)))?;
        }
        Ok(vec![rows.into_file()?])
    }
}
