//! Recorded traces: which formats there are, and how their rows become requests.
//!
//! A reader turns the lines of one format into [`Row`]s. What all formats share happens after it, to
//! one row at a time: sorting within the window, the origin, the part of the trace that is replayed,
//! the speed, the output limit.
//!
//! A new format is a file with a [`RowReader`], an entry in [`TraceFormat`] and a line in
//! [`READERS`].
//!
//! Not here: rejecting requests that no engine could serve (empty prompts, zero outputs), which is
//! the front end's part, and following sessions.

mod apex;
mod azure;
mod burstgpt;
pub(crate) mod config;
mod error;
mod folder;
mod json_rows;
mod lines;
mod llmservingsim;
mod measured;
mod mooncake;
mod multi_turn;
mod order;
mod otlp;
pub(crate) mod own;
#[cfg(test)]
mod properties;
mod qwen_bailian;
mod ragpulse;
mod raw_json;
mod servegen_csv;
#[cfg(test)]
mod shared_traces;
mod splitwise;
mod stamp;
mod table;
#[cfg(test)]
mod testing;
mod turns;
pub(crate) mod validate;
mod vidur;
mod vllm_bench;
mod vllm_timed_trace;
mod weka;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub use error::TraceError;
pub(crate) use measured::{Measured, measured};

use self::config::{Origin, Ties, TraceConfig, TraceFormat, ns_of_s};
use self::folder::Opened;
use self::lines::Lines;
use self::order::SortWindow;
use self::turns::{CLASSES_MAX, Classes, Links, Turns};
use super::renumber::Renumbering;
use super::request::{Content, RecordedDrafts, RequestSpec, Segment};
use super::source::{RequestSource, SourceDescription, TraceCounts};
use crate::base::config::{ConfigError, short};
use crate::base::hint::nearest;
use crate::base::ids::RequestId;
use crate::base::time::SimTime;

/// One row of a trace, before its arrival is settled.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    /// Nanoseconds on the trace's own clock.
    stamp: i128,
    /// Its file, by the place in the folder; 0 without one.
    file: u32,
    /// Its line in the file, from 1.
    line: u64,
    /// Its place among the rows of the file, from 0; known to the source.
    number: u64,
    prompt_tokens: u32,
    output_tokens: u32,
    /// Smaller runs first under the priority policy.
    priority: i32,
    /// The limit it asks for, where the format records one; else its output.
    max_tokens: Option<u32>,
    /// Its prompt, in which others are named by their rows.
    content: Content,
    /// What it follows, where the configuration follows sessions and the row says any of it.
    turn: Option<Box<RowTurn>>,
    /// The class it names.
    class: Option<Box<str>>,
    /// What its drafts came to.
    drafts: Option<Box<RecordedDrafts>>,
    /// What was measured of it.
    measured: Option<Measured>,
}

/// What a row of a session, or of a graph of calls, says of what it follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RowTurn {
    session: Option<String>,
    /// What requests that wait for it call it.
    name: Option<String>,
    /// Those it waits for, in the place of the one before it in its session.
    wait_for: Option<Vec<String>>,
    /// Nanoseconds from the end of what it follows to its own start, where that is recorded.
    delay: Option<i128>,
    /// Nanoseconds for which the recorded service worked on it, where that is recorded.
    service: Option<i128>,
    /// Whether it has no stamp of its own: it is given that of the latest row.
    lacks_stamp: bool,
    /// Whether what it waits for may lie before the trace.
    may_dangle: bool,
    /// Whether the rows of its session follow each other by stamp, however they stand in the file.
    is_by_stamp: bool,
    /// Whether its prompt and lengths say only what it adds to the request before it in its session.
    continues: bool,
}

impl Row {
    /// A row of usual priority that shares nothing.
    const fn new(stamp: i128, line: u64, prompt_tokens: u32, output_tokens: u32) -> Self {
        Self {
            stamp,
            file: 0,
            line,
            number: 0,
            prompt_tokens,
            output_tokens,
            priority: 0,
            max_tokens: None,
            content: Content::Private,
            turn: None,
            class: None,
            drafts: None,
            measured: None,
        }
    }
}

/// Reads the rows of one format, in the order of the file.
trait RowReader: Send {
    /// The next row, or `None` at the end.
    fn next_row(&mut self) -> Result<Option<Row>, TraceError>;

    /// What is true of every trace of the format.
    fn facts(&self) -> FormatFacts;

    /// A stamp as the format writes it.
    fn show_stamp(&self, stamp: i128) -> String;

    /// Fields that rows have had so far and that are not used.
    fn ignored(&self) -> &IgnoredFields;

    /// How many things this reader has numbered that have numbers of their own in a whole folder. Asked at
    /// the end of a file.
    fn numbered(&self) -> u64 {
        0
    }

    /// Begins to number behind so many of earlier files.
    fn number_from(&mut self, _before: u64) {}

    /// The path of a row's file, where a trace has several.
    fn file(&self, _file: u32) -> Option<&Path> {
        None
    }
}

/// What is true of every trace of a format.
struct FormatFacts {
    /// The field or column of the stamp.
    stamp_field: Cow<'static, str>,
    time_unit: &'static str,
    /// Whether stamps are dates, for which zero means nothing.
    stamps_are_dates: bool,
    /// Prompt tokens that one hash id names.
    hash_block_tokens: Option<u32>,
    /// Whether the order of rows in the file is a part of what it says.
    is_ordered: bool,
    /// The field or column that says what requests are called.
    name_field: &'static str,
    /// Whether prompts may name other rows.
    refers_to_rows: bool,
    /// Whether rows may have stamps.
    has_stamps: bool,
}

impl FormatFacts {
    /// Stamps in `stamp_field` that count `time_unit`s from zero, and no ids.
    const fn new(stamp_field: &'static str, time_unit: &'static str) -> Self {
        Self {
            stamp_field: Cow::Borrowed(stamp_field),
            time_unit,
            stamps_are_dates: false,
            hash_block_tokens: None,
            is_ordered: false,
            name_field: "request_id",
            refers_to_rows: false,
            has_stamps: true,
        }
    }
}

/// How to tell a format and read it.
struct ReaderEntry {
    format: TraceFormat,
    /// How a trace of the format starts, for people.
    starts_with: &'static str,
    /// Whether a line can be the first of such a trace.
    recognises: fn(&str) -> bool,
    open: OpenReader,
}

/// Starts to read a trace of one format.
type OpenReader = fn(Lines, &TraceConfig) -> Result<Box<dyn RowReader>, TraceError>;

/// Every format there is, in the order of detection: any JSON object can be a row of Mooncake's, so
/// that the other formats of JSON stand before it.
const READERS: [ReaderEntry; 18] = [
    ReaderEntry {
        format: TraceFormat::Weka,
        starts_with: weka::STARTS_WITH,
        recognises: weka::recognises,
        open: |lines, config| Ok(Box::new(weka::Weka::new(lines, config)?)),
    },
    ReaderEntry {
        format: TraceFormat::VllmBench,
        starts_with: vllm_bench::STARTS_WITH,
        recognises: vllm_bench::recognises,
        open: |lines, _| Ok(Box::new(vllm_bench::VllmBench::new(lines)?)),
    },
    ReaderEntry {
        format: TraceFormat::QwenBailian,
        starts_with: qwen_bailian::STARTS_WITH,
        recognises: qwen_bailian::recognises,
        open: |lines, config| Ok(Box::new(qwen_bailian::open(lines, config))),
    },
    ReaderEntry {
        format: TraceFormat::RagPulse,
        starts_with: ragpulse::STARTS_WITH,
        recognises: ragpulse::recognises,
        open: |lines, config| Ok(Box::new(ragpulse::RagPulse::new(lines, config)?)),
    },
    ReaderEntry {
        format: TraceFormat::Apex,
        starts_with: apex::STARTS_WITH,
        recognises: apex::recognises,
        open: apex::open,
    },
    ReaderEntry {
        format: TraceFormat::LlmServingSim,
        starts_with: llmservingsim::STARTS_WITH,
        recognises: llmservingsim::recognises,
        open: |lines, config| Ok(Box::new(llmservingsim::LlmServingSim::new(lines, config)?)),
    },
    ReaderEntry {
        format: TraceFormat::Otlp,
        starts_with: otlp::STARTS_WITH,
        recognises: otlp::recognises,
        open: |lines, _| Ok(Box::new(otlp::Otlp::new(lines))),
    },
    ReaderEntry {
        format: TraceFormat::MultiTurn,
        starts_with: multi_turn::STARTS_WITH,
        recognises: multi_turn::recognises,
        open: |lines, config| Ok(Box::new(multi_turn::MultiTurn::open(lines, config)?)),
    },
    ReaderEntry {
        format: TraceFormat::Jsonl,
        starts_with: own::JSON_STARTS_WITH,
        recognises: own::recognises_json,
        open: |lines, config| Ok(Box::new(own::OwnJson::new(lines, config))),
    },
    ReaderEntry {
        format: TraceFormat::Mooncake,
        starts_with: mooncake::STARTS_WITH,
        recognises: mooncake::recognises,
        open: |lines, config| Ok(Box::new(mooncake::Mooncake::new(lines, config))),
    },
    ReaderEntry {
        format: TraceFormat::MooncakeDelta,
        starts_with: "",
        recognises: |_| false,
        open: |lines, config| Ok(Box::new(mooncake::Mooncake::of_additions(lines, config)?)),
    },
    ReaderEntry {
        format: TraceFormat::Csv,
        starts_with: own::CSV_STARTS_WITH,
        recognises: own::recognises_csv,
        open: |lines, config| Ok(Box::new(own::OwnCsv::new(lines, config)?)),
    },
    ReaderEntry {
        format: TraceFormat::Azure,
        starts_with: azure::STARTS_WITH,
        recognises: azure::recognises,
        open: |lines, config| Ok(Box::new(azure::Azure::new(lines, config)?)),
    },
    ReaderEntry {
        format: TraceFormat::BurstGpt,
        starts_with: burstgpt::STARTS_WITH,
        recognises: burstgpt::recognises,
        open: |lines, config| Ok(Box::new(burstgpt::open(lines, config)?)),
    },
    ReaderEntry {
        format: TraceFormat::Splitwise,
        starts_with: splitwise::STARTS_WITH,
        recognises: splitwise::recognises,
        open: |lines, config| Ok(Box::new(splitwise::open(lines, config)?)),
    },
    ReaderEntry {
        format: TraceFormat::Vidur,
        starts_with: vidur::STARTS_WITH,
        recognises: vidur::recognises,
        open: |lines, config| Ok(Box::new(vidur::open(lines, config)?)),
    },
    ReaderEntry {
        format: TraceFormat::ServegenCsv,
        starts_with: servegen_csv::STARTS_WITH,
        recognises: servegen_csv::recognises,
        open: |lines, config| Ok(Box::new(servegen_csv::open(lines, config)?)),
    },
    ReaderEntry {
        format: TraceFormat::VllmTimedTrace,
        starts_with: vllm_timed_trace::STARTS_WITH,
        recognises: vllm_timed_trace::recognises,
        open: |lines, config| Ok(Box::new(vllm_timed_trace::open(lines, config))),
    },
];

/// Fields that are left out, so that the report can say so: the first few names of the alphabet,
/// whatever the order of the rows.
#[derive(Debug, Default)]
struct IgnoredFields {
    names: BTreeSet<String>,
    /// Whether any of them ties a row to an earlier one.
    sessions: bool,
}

impl IgnoredFields {
    /// Names kept; rows may bring any number of them.
    const NAMES_MAX: usize = 32;
    /// Names under which public traces tie a row to an earlier one.
    const SESSION_FIELDS: [&str; 5] =
        ["session_id", "delay", "delay_ms", "parent_chat_id", "Session ID"];

    fn add(&mut self, name: &str) {
        if !self.names.contains(name) {
            self.sessions |= Self::SESSION_FIELDS.contains(&name);
            self.names.insert(name.to_owned());
            if self.names.len() > Self::NAMES_MAX {
                self.names.pop_last();
            }
        }
    }
}

/// Requests from a recorded trace.
pub(crate) struct TraceSource {
    rows: Box<dyn RowReader>,
    /// The name errors give to the trace.
    path: PathBuf,
    format: TraceFormat,
    gzip: bool,
    sorter: SortWindow,
    /// The rule in force.
    ties: Ties,
    config: TraceConfig,
    /// The stamp that is time 0; known from the first row on.
    origin: Option<i128>,
    /// Ids by rows, where prompts may name rows.
    ids: Option<Renumbering>,
    /// The part replayed, in nanoseconds after the origin.
    from: i128,
    to: Option<i128>,
    counts: TraceCounts,
    /// Who follows whom, where that is wanted.
    turns: Turns,
    links: Links,
    classes: Classes,
    /// Whether any row read names a class.
    has_classes: bool,
    /// The request that comes next, once it has been asked for.
    next: Option<RequestSpec>,
    /// Whether the last request has been read, or an error was met.
    spent: bool,
}

impl TraceSource {
    /// Opens the trace that `config` describes and tells its format.
    ///
    /// # Errors
    /// The configuration cannot be used, the file cannot be opened, or its first line fits no format.
    pub(crate) fn open(config: &TraceConfig) -> Result<Self, TraceError> {
        config.validate()?;
        Self::new(Opened::new(config)?, config)
    }

    fn new(opened: Opened, config: &TraceConfig) -> Result<Self, TraceError> {
        let Opened { format, path, gzip, rows } = opened;
        if config.window.is_some() && !rows.facts().has_stamps {
            let accepted = "none for a trace without stamps; `limit` cuts it";
            return Err(ConfigError::new("workload.trace.window", "set", accepted).into());
        }
        if config.origin == Origin::Zero && rows.facts().stamps_are_dates {
            return Err(TraceError::DatesFromZero { path });
        }
        let ties = if rows.facts().is_ordered { Ties::File } else { config.ties };
        let ids = rows.facts().refers_to_rows.then(|| Renumbering::new(1));
        // Rows without stamps are in order.
        let sort_window_s = if rows.facts().has_stamps { config.sort_window_s } else { 0.0 };
        // `validate` has seen these values, so that none falls back to its default here.
        let window = config.window.unwrap_or_default();
        Ok(Self {
            rows,
            path,
            format,
            gzip,
            sorter: SortWindow::new(ns_of_s(sort_window_s).unwrap_or(0), ties),
            ties,
            config: config.clone(),
            origin: None,
            ids,
            from: ns_of_s(window.from_s).unwrap_or(0),
            to: window.to_s.and_then(ns_of_s),
            counts: TraceCounts::default(),
            turns: Turns::default(),
            links: Links::default(),
            classes: Classes::default(),
            has_classes: false,
            next: None,
            spent: false,
        })
    }

    /// The next request, if there is one.
    #[cfg(test)]
    fn next_request(&mut self) -> Result<Option<RequestSpec>, TraceError> {
        Ok(self.next_arrival()?.map(|_| self.take()))
    }

    /// What has been read and left out so far; final once there is no next arrival.
    pub(crate) fn counts(&self) -> TraceCounts {
        self.counts
    }

    /// How the trace is being read, for the report; final at the same time as the counts.
    pub(crate) fn describe(&self) -> SourceDescription {
        let facts = self.rows.facts();
        let ignored = self.rows.ignored();
        SourceDescription {
            format: self.format,
            gzip: self.gzip,
            time_unit: facts.time_unit,
            origin: self.origin.map(|stamp| self.rows.show_stamp(stamp)),
            hash_block_tokens: facts.hash_block_tokens,
            content_identity: self.counts.requests_with_content > 0,
            ties: self.ties,
            ignored_fields: ignored.names.iter().cloned().collect(),
            sessions_ignored: ignored.sessions,
        }
    }

    /// The name errors give to a row's file.
    fn path_of(&self, file: u32) -> PathBuf {
        self.rows.file(file).unwrap_or(&self.path).to_owned()
    }

    /// The next row by arrival.
    fn next_row(&mut self) -> Result<Option<Row>, TraceError> {
        while !self.counts.read_to_end {
            if let Some(row) = self.sorter.pop_settled() {
                return Ok(Some(row));
            }
            let Some(mut row) = self.rows.next_row()? else {
                self.counts.read_to_end = true;
                self.links.finish(&self.path)?;
                self.check_classes()?;
                break;
            };
            self.has_classes |= row.class.is_some();
            row.number = self.counts.rows_read;
            self.counts.rows_read += 1;
            let (file, line) = (row.file, row.line);
            if row.turn.as_ref().is_some_and(|turn| turn.lacks_stamp) {
                row.stamp = self.sorter.latest().unwrap_or(0);
            }
            let added = self.links.add(&row);
            added.map_err(|misfit| misfit.into_error(&self.path_of(file), line, &*self.rows))?;
            self.sorter.push(row).map_err(|behind| TraceError::OutOfOrder {
                path: self.path_of(file),
                line,
                field: self.rows.facts().stamp_field.into_owned(),
                behind_s: behind as f64 / 1e9,
                window_s: self.config.sort_window_s,
            })?;
        }
        Ok(self.sorter.pop())
    }

    /// Refuses a field of classes that no row has.
    fn check_classes(&self) -> Result<(), TraceError> {
        let Some(field) = &self.config.class_field else { return Ok(()) };
        if self.counts.rows_read == 0 || self.has_classes {
            return Ok(());
        }
        let names = self.rows.ignored().names.iter().map(String::as_str);
        let hint =
            nearest(field, names).map_or(String::new(), |name| format!(", did you mean `{name}`?"));
        Err(TraceError::NoClass { path: self.path.clone(), field: field.clone(), hint })
    }

    /// The next row of the part that is replayed, as a request.
    fn select(&mut self) -> Result<Option<RequestSpec>, TraceError> {
        if self.config.limit.is_some_and(|limit| self.counts.requests >= limit) {
            self.counts.skipped_by_limit = self.sorter.len() as u64;
            return Ok(None);
        }
        while let Some(row) = self.next_row()? {
            let first = match self.config.origin {
                Origin::First => row.stamp,
                Origin::Zero => 0,
            };
            let since_origin = row.stamp - *self.origin.get_or_insert(first);
            let lacks_stamp = row.turn.as_ref().filter(|turn| turn.lacks_stamp);
            if self.config.window.is_some()
                && let Some(turn) = lacks_stamp
                && !self.turns.follows_known(turn)
            {
                // What it follows lies before the window, so it does.
                self.counts.skipped_by_window += 1;
            } else if since_origin < self.from {
                self.counts.skipped_by_window += 1;
            } else if self.to.is_some_and(|to| since_origin >= to) {
                // Everything after it is past the window as well.
                self.counts.skipped_by_window += 1 + self.sorter.len() as u64;
                return Ok(None);
            } else {
                return self.request(row, since_origin - self.from).map(Some);
            }
        }
        if self.counts.rows_read == 0 {
            return Err(TraceError::Empty { path: self.path.clone() });
        }
        Ok(None)
    }

    /// `row` as the next request, `since_start` nanoseconds of trace time after the replay's start.
    fn request(&mut self, row: Row, since_start: i128) -> Result<RequestSpec, TraceError> {
        let Some(arrival) = arrival(since_start, self.config.speedup) else {
            return Err(TraceError::Field {
                path: self.path_of(row.file),
                line: row.line,
                field: self.rows.facts().stamp_field.into_owned(),
                found: format!("{} s after the start of the replay", since_start as f64 / 1e9),
                accepted: "an arrival within 100 years".to_owned(),
                hint: format!(" (at `speedup` {})", short(self.config.speedup.to_string())),
            });
        };
        let Some(id) = u32::try_from(self.counts.requests).ok().filter(|&id| id < u32::MAX) else {
            return Err(TraceError::TooManyRequests {
                path: self.path_of(row.file),
                line: row.line,
            });
        };
        let class = match &row.class {
            Some(name) => self.classes.number(name).ok_or_else(|| TraceError::Field {
                path: self.path_of(row.file),
                line: row.line,
                field: "class".to_owned(),
                found: format!("{name:?}"),
                accepted: format!("at most {CLASSES_MAX} different classes"),
                hint: String::new(),
            })?,
            None => 0,
        };
        if self.config.needs_accepted_drafts && row.drafts.is_none() {
            return Err(TraceError::Field {
                path: self.path_of(row.file),
                line: row.line,
                field: "accepted_drafts".to_owned(),
                found: "absent".to_owned(),
                accepted: "a list of accepted drafts in servesim's own formats, or `speculation.acceptance` in \
                           the scenario (conditional_rates, position_rates or accepted_drafts_mean)"
                    .to_owned(),
                hint: String::new(),
            });
        }
        let turn = row.turn.map(|turn| Box::new(self.turns.turn(&turn, row.stamp)));
        self.counts.requests += 1;
        self.counts.requests_with_content += u64::from(row.content != Content::Private);
        let max_tokens = self.config.max_tokens.or(row.max_tokens).unwrap_or(row.output_tokens);
        let mut content = row.content;
        if let Some(ids) = &mut self.ids {
            // A row that no number fits cannot be named.
            if let Ok(number) = u32::try_from(row.number) {
                ids.push(number, RequestId(id));
            }
            content = ids.content(content);
        }
        Ok(RequestSpec {
            id: RequestId(id),
            arrival,
            prompt_tokens: row.prompt_tokens,
            output_tokens: row.output_tokens.min(max_tokens),
            max_tokens,
            priority: row.priority,
            class,
            content,
            output: Segment::Output(RequestId(id)),
            line: row.line,
            turn,
            drafts: row.drafts,
        })
    }
}

impl RequestSource for TraceSource {
    fn next_arrival(&mut self) -> Result<Option<SimTime>, TraceError> {
        if self.next.is_none() && !self.spent {
            // An error leaves the source spent.
            self.spent = true;
            self.next = self.select()?;
            self.spent = self.next.is_none();
        }
        Ok(self.next.as_ref().map(|request| request.arrival))
    }

    fn take(&mut self) -> RequestSpec {
        self.next.take().expect("the caller asks for the next arrival first")
    }

    fn class_names(&self) -> &[String] {
        self.classes.names()
    }
}

/// The entry of `format`, or of the format that the first line shows.
fn entry_for(lines: &mut Lines, format: TraceFormat) -> Result<&'static ReaderEntry, TraceError> {
    if let Some(entry) = READERS.iter().find(|entry| entry.format == format) {
        return Ok(entry);
    }
    let path = lines.path().to_owned();
    let Some(line) = lines.next_line()? else {
        return Err(TraceError::Empty { path });
    };
    let Some(entry) = READERS.iter().find(|entry| (entry.recognises)(line.text)) else {
        return Err(TraceError::UnknownFormat {
            path,
            line: line.number,
            found: line.text.chars().take(60).collect(),
            accepted: accepted_starts(),
        });
    };
    // A document over several lines does not say in the first which one it is.
    let is_open = line.text.starts_with('{') && !line.text.trim_end().ends_with('}');
    lines.hold();
    if is_open && weka::recognises(&lines.ahead()) {
        return entry_for(lines, TraceFormat::Weka);
    }
    Ok(entry)
}

/// How the formats that are told by their first line start, for people.
fn accepted_starts() -> String {
    let starts: Vec<_> =
        READERS.iter().map(|entry| entry.starts_with).filter(|start| !start.is_empty()).collect();
    starts.join(", or ")
}

/// The arrival of a row `since_start` nanoseconds of trace time after the replay's start: divided by
/// `speedup` and rounded to the nearest nanosecond, halves up. `None` beyond what a run may last.
///
/// At speed 1 it is exact. Otherwise the division is one of doubles, which keeps the order of rows.
fn arrival(since_start: i128, speedup: f64) -> Option<SimTime> {
    let ns = if speedup.total_cmp(&1.0).is_eq() {
        since_start
    } else {
        // A double that is too large saturates, and is then too late.
        (since_start as f64 / speedup).round() as i128
    };
    let time = SimTime::from_ns(u64::try_from(ns).ok()?);
    Some(time).filter(|&time| time <= SimTime::LATEST_INPUT)
}

#[cfg(test)]
mod tests;
