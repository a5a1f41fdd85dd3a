//! One row per request, in the order in which requests end.
//!
//! What is unknown is an empty cell or `null`. Times are milliseconds with every nanosecond
//! kept, in the shortest form that reads back the same.

use std::path::Path;

use serde::Serialize;

use crate::base::time::SimDuration;

use super::record::{Rejection, RequestRecord, Unserved};
use crate::base::output::{OutputError, ResultFile};
use crate::base::rows::{Column, RowFile};

/// The columns, in order; the fields of [`Row`].
const COLUMNS: [Column; 30] = [
    Column::integer("id"),
    Column::integer("line"),
    Column::integer("engine"),
    Column::text("status"),
    Column::text("reason"),
    Column::boolean("counted"),
    Column::integer("priority"),
    Column::text("class"),
    Column::float("arrival_ms"),
    Column::integer("prompt_tokens"),
    Column::integer("cached_tokens"),
    Column::integer("output_tokens"),
    Column::float("first_scheduled_ms"),
    Column::float("first_token_ms"),
    Column::float("finished_ms"),
    Column::float("queue_ms"),
    Column::float("ttft_ms"),
    Column::float("tpot_ms"),
    Column::float("e2e_ms"),
    Column::integer("preemptions"),
    Column::integer("rounds"),
    Column::integer("drafts"),
    Column::integer("accepted_drafts"),
    Column::text("finish"),
    Column::float("ttft_frontend_ms"),
    Column::float("ttft_queueing_ms"),
    Column::float("ttft_prefill_ms"),
    Column::float("ttft_chunk_wait_ms"),
    Column::float("ttft_recompute_ms"),
    Column::float("ttft_detokenize_ms"),
];

/// One request.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Row<'a> {
    id: u32,
    /// `None` where there is no trace.
    line: Option<u64>,
    engine: Option<u32>,
    status: &'static str,
    reason: Option<&'static str>,
    counted: bool,
    priority: i32,
    /// `None` where there are no classes.
    class: Option<&'a str>,
    arrival_ms: f64,
    prompt_tokens: u32,
    cached_tokens: Option<u32>,
    output_tokens: Option<u32>,
    first_scheduled_ms: Option<f64>,
    first_token_ms: Option<f64>,
    finished_ms: Option<f64>,
    queue_ms: Option<f64>,
    ttft_ms: Option<f64>,
    tpot_ms: Option<f64>,
    e2e_ms: Option<f64>,
    preemptions: Option<u32>,
    /// `None` without speculation.
    rounds: Option<u32>,
    drafts: Option<u32>,
    accepted_drafts: Option<u32>,
    finish: Option<&'static str>,
    ttft_frontend_ms: Option<f64>,
    ttft_queueing_ms: Option<f64>,
    ttft_prefill_ms: Option<f64>,
    ttft_chunk_wait_ms: Option<f64>,
    ttft_recompute_ms: Option<f64>,
    ttft_detokenize_ms: Option<f64>,
}

impl Row<'_> {
    fn finished(record: &RequestRecord, counted: bool, speculates: bool) -> Self {
        let ms = |duration: SimDuration| Some(duration.as_ms());
        let parts = &record.ttft;
        Self {
            id: record.id.0,
            line: trace_line(record.line),
            engine: Some(record.engine.0),
            status: "completed",
            reason: None,
            counted,
            priority: record.priority,
            class: None,
            arrival_ms: record.arrival.as_ms(),
            prompt_tokens: record.prompt_tokens,
            cached_tokens: Some(record.cached_tokens),
            output_tokens: Some(record.output_tokens),
            first_scheduled_ms: Some(record.first_scheduled.as_ms()),
            first_token_ms: Some(record.first_token.as_ms()),
            finished_ms: Some(record.last_token.as_ms()),
            queue_ms: ms(record.queue()),
            ttft_ms: ms(record.ttft()),
            tpot_ms: record.tpot().and_then(ms),
            e2e_ms: ms(record.e2e()),
            preemptions: Some(record.preemptions),
            rounds: speculates.then_some(record.rounds.rounds),
            drafts: speculates.then_some(record.rounds.drafts),
            accepted_drafts: speculates.then_some(record.rounds.accepted),
            finish: Some(record.finish.name()),
            ttft_frontend_ms: ms(parts.frontend),
            ttft_queueing_ms: ms(parts.queueing),
            ttft_prefill_ms: ms(parts.prefill),
            ttft_chunk_wait_ms: ms(parts.chunk_wait),
            ttft_recompute_ms: ms(parts.recompute),
            ttft_detokenize_ms: ms(parts.detokenize),
        }
    }

    fn unserved(request: &Unserved, status: &'static str, counted: bool) -> Self {
        Self {
            id: request.id.0,
            line: trace_line(request.line),
            engine: request.engine.map(|engine| engine.0),
            status,
            counted,
            priority: request.priority,
            arrival_ms: request.arrival.as_ms(),
            prompt_tokens: request.prompt_tokens,
            ..Self::default()
        }
    }
}

fn trace_line(line: u64) -> Option<u64> {
    (line > 0).then_some(line)
}

/// Writes a row per request.
#[derive(Debug)]
pub(crate) struct RequestSink {
    /// What classes are called, by number.
    classes: Vec<String>,
    /// Whether rows have rounds to tell of.
    speculates: bool,
    rows: RowFile,
}

impl RequestSink {
    /// Opens `path`, whose name says the format.
    ///
    /// # Errors
    /// The name says no format, or no file can be made there.
    pub(crate) fn create(path: &Path) -> Result<Self, OutputError> {
        let rows = RowFile::create(path, &COLUMNS)?;
        Ok(Self { classes: Vec::new(), speculates: false, rows })
    }

    /// The same sink, whose rows tell of rounds if the engines speculate.
    #[must_use]
    pub(crate) fn with_rounds(self, speculates: bool) -> Self {
        Self { speculates, ..self }
    }

    /// Calls classes by these names from now on, by number.
    pub(crate) fn name_classes(&mut self, names: &[String]) {
        names.clone_into(&mut self.classes);
    }

    /// A request finished.
    pub(crate) fn finished(
        &mut self,
        record: &RequestRecord,
        counted: bool,
    ) -> Result<(), OutputError> {
        self.write(record.class, &Row::finished(record, counted, self.speculates))
    }

    /// A request was turned away.
    pub(crate) fn rejected(
        &mut self,
        request: &Unserved,
        reason: Rejection,
        counted: bool,
    ) -> Result<(), OutputError> {
        let row = Row::unserved(request, "rejected", counted);
        self.write(request.class, &Row { reason: Some(reason.name()), ..row })
    }

    /// A request was still waiting or running when the run ended.
    pub(crate) fn unfinished(
        &mut self,
        request: &Unserved,
        counted: bool,
    ) -> Result<(), OutputError> {
        self.write(request.class, &Row::unserved(request, "unfinished", counted))
    }

    /// The complete file, not in its place yet.
    pub(crate) fn into_file(self) -> Result<ResultFile, OutputError> {
        self.rows.into_file()
    }

    fn write(&mut self, class: u16, row: &Row<'_>) -> Result<(), OutputError> {
        let class = self.classes.get(usize::from(class)).map(String::as_str);
        self.rows.write(&Row { class, ..*row })
    }
}

#[cfg(test)]
mod tests {
    use crate::base::ids::{EngineId, RequestId};
    use crate::base::time::SimTime;

    use super::*;
    use crate::metrics::record::{Finish, TtftParts};

    fn ns(ns: u64) -> SimDuration {
        SimDuration::from_ns(ns)
    }

    fn record() -> RequestRecord {
        RequestRecord {
            id: RequestId(7),
            line: 8,
            engine: EngineId(1),
            arrival: SimTime::from_ns(1_000_000_001),
            first_scheduled: SimTime::from_ns(1_010_000_001),
            first_token: SimTime::from_ns(1_030_500_001),
            last_token: SimTime::from_ns(1_060_500_001),
            prompt_tokens: 100,
            output_tokens: 4,
            cached_tokens: 16,
            preemptions: 2,
            ttft: TtftParts {
                queueing: ns(10_000_000),
                prefill: ns(20_000_000),
                recompute: ns(500_000),
                ..TtftParts::default()
            },
            finish: Finish::Length,
            priority: -1,
            class: 0,
            rounds: crate::base::record::RequestRounds::default(),
        }
    }

    /// Of a class without a name.
    const REFUSED: Unserved = Unserved {
        id: RequestId(3),
        line: 0,
        engine: None,
        arrival: SimTime::from_ns(2_500_000),
        priority: 0,
        class: 1,
        prompt_tokens: 9000,
    };

    /// The bytes that one request of each status leaves in a file called `name`.
    fn written(name: &str) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        let mut sink = RequestSink::create(&path).unwrap();
        sink.name_classes(&["chat".to_owned()]);
        sink.finished(&record(), true).unwrap();
        sink.rejected(&REFUSED, Rejection::PromptTooLong, false).unwrap();
        sink.unfinished(&Unserved { engine: Some(EngineId(0)), ..REFUSED }, true).unwrap();
        sink.into_file().unwrap().close().unwrap();
        std::fs::read(&path).unwrap()
    }

    #[test]
    fn csv_leaves_the_unknown_empty() {
        let text = String::from_utf8(written("requests.csv")).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], COLUMNS.map(|column| column.name).join(","));
        // TPOT 30 ms / 3.
        assert_eq!(
            lines[1],
            "7,8,1,completed,,true,-1,chat,1000.000001,100,16,4,1010.000001,1030.500001,1060.500001,\
             10.0,30.5,10.0,60.5,2,,,,length,0.0,10.0,20.0,0.0,0.5,0.0"
        );
        let nothing = ",".repeat(20);
        assert_eq!(lines[2], format!("3,,,rejected,prompt_too_long,false,0,,2.5,9000{nothing}"));
        assert_eq!(lines[3], format!("3,,0,unfinished,,true,0,,2.5,9000{nothing}"));
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn json_lines_have_the_same_columns() {
        let text = String::from_utf8(written("requests.jsonl")).unwrap();
        let rows: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let keys: Vec<_> = rows[0].as_object().unwrap().keys().collect();
        assert_eq!(keys, COLUMNS.map(|column| column.name).each_ref());
        assert_eq!(rows[0]["arrival_ms"], 1_000.000_001);
        assert_eq!(rows[0]["ttft_recompute_ms"], 0.5);
        assert_eq!(rows[1]["reason"], "prompt_too_long");
        assert!(rows[1]["ttft_ms"].is_null() && rows[1]["line"].is_null());
        assert_eq!(rows[2]["engine"], 0);
    }
}
