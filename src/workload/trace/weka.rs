//! Conversations of coding agents as JSON: one session a document, with the requests in it one after the
//! other, and those of subagents inside. The traces of kv-cache-tester and the corpora of `AgentX` have this
//! shape.
//!
//! Times count from the start of a session, and nothing says when sessions begin: rows have no stamps. A
//! request follows the one before it. The requests of a subagent are a chain of their own, which begins
//! behind the latest request before it; what comes after goes on beside it, until a request that was sent
//! when the subagent had ended: that waits for both.
//!
//! One session is in memory at a time.

use std::collections::VecDeque;

use serde_json::value::RawValue;

use super::config::TraceConfig;
use super::lines::Lines;
use super::raw_json::{Documents, Object};
use super::stamp::{MILLISECONDS, SECONDS};
use super::table::TOKENS;
use super::{FormatFacts, IgnoredFields, Row, RowReader, RowTurn, TraceError};
use crate::base::config::ConfigError;
use crate::base::hint::nearest;
use crate::base::lookup::LookupMap;
use crate::workload::request::{Content, Piece, Segment};

/// How a trace of this format starts, for people.
pub(super) const STARTS_WITH: &str =
    "`{\"id\": ..., \"block_size\": ..., \"requests\": [...` (conversations of Weka and AgentX)";

/// The fields that are used: of a session, of a request, and of a subagent.
const SESSION: [&str; 4] = ["id", "block_size", "hash_id_scope", "requests"];
const REQUEST: [&str; 7] = ["t", "type", "in", "out", "hash_ids", "api_time", "think_time"];
const SUBAGENT: [&str; 4] = ["t", "type", "duration_ms", "requests"];

/// Prompt tokens that one id names, where a session does not say.
const BLOCK_TOKENS: u32 = 64;

/// By how much the stamps of requests, which are whole seconds, may be before that of their subagent.
const ROUNDING_NS: i128 = 1_000_000_000;

/// Subagents of subagents.
const DEPTH_MAX: usize = 8;

/// Whether `start` can be the start of such a trace: its first line, or as much of a document as is known.
pub(super) fn recognises(start: &str) -> bool {
    let has = |name: &str| start.contains(&format!("\"{name}\""));
    start.trim_start().starts_with('{')
        && has("requests")
        && (has("block_size") || has("hash_id_scope") || has("hash_ids"))
}

/// Reads conversations.
pub(super) struct Weka {
    documents: Documents,
    block_tokens: Option<u32>,
    class: Option<String>,
    /// Sessions read.
    sessions: u32,
    /// The rows of the session that is being handed out.
    rows: VecDeque<Row>,
    ignored: IgnoredFields,
}

impl Weka {
    /// Reads `lines`.
    ///
    /// # Errors
    /// Sessions are not to be followed.
    pub(super) fn new(lines: Lines, config: &TraceConfig) -> Result<Self, TraceError> {
        if config.sessions.is_none() {
            let accepted = "`closed` (`--sessions closed:8`), or `think` with `reshape.arrivals`: \
                            conversations do not say when they begin";
            return Err(ConfigError::new("workload.trace.sessions", "absent", accepted).into());
        }
        Ok(Self {
            documents: Documents::new(lines),
            block_tokens: config.hash_block_tokens,
            class: config.class_field.clone(),
            sessions: 0,
            rows: VecDeque::new(),
            ignored: IgnoredFields::default(),
        })
    }
}

impl RowReader for Weka {
    fn numbered(&self) -> u64 {
        self.sessions.into()
    }

    fn number_from(&mut self, before: u64) {
        self.sessions = before as u32;
    }

    fn next_row(&mut self) -> Result<Option<Row>, TraceError> {
        while self.rows.is_empty() {
            let Some(document) = self.documents.next()? else { return Ok(None) };
            let session = document.object()?;
            // A trace has fewer requests than this can count.
            self.sessions += 1;
            let mut reading = Reading {
                block_tokens: BLOCK_TOKENS,
                names: BlockNames::new(self.sessions),
                class: self.class.as_deref(),
                has_subagents: false,
                place: Vec::new(),
                rows: VecDeque::new(),
                ignored: &mut self.ignored,
            };
            let id = session.text("id");
            let read = reading.session(&session, self.block_tokens);
            read.map_err(|error| reading.placed(error, id.as_deref()))?;
            self.rows = reading.finish();
        }
        Ok(self.rows.pop_front())
    }

    fn facts(&self) -> FormatFacts {
        FormatFacts {
            hash_block_tokens: Some(self.block_tokens.unwrap_or(BLOCK_TOKENS)),
            is_ordered: true,
            has_stamps: false,
            ..FormatFacts::new("t", SECONDS.name)
        }
    }

    fn show_stamp(&self, stamp: i128) -> String {
        SECONDS.show(stamp)
    }

    fn ignored(&self) -> &IgnoredFields {
        &self.ignored
    }
}

/// A session while it is read.
struct Reading<'r> {
    block_tokens: u32,
    names: BlockNames,
    class: Option<&'r str>,
    has_subagents: bool,
    /// Where in the arrays of requests the reading is, for errors.
    place: Vec<usize>,
    rows: VecDeque<Row>,
    ignored: &'r mut IgnoredFields,
}

/// A request that others may wait for.
#[derive(Clone)]
struct Sent {
    name: String,
    /// When its answer was there, in nanoseconds after the start of the session.
    end: i128,
}

impl Reading<'_> {
    fn session(&mut self, session: &Object<'_>, given: Option<u32>) -> Result<(), TraceError> {
        self.ignore(session, &SESSION);
        let block = "an integer from 1 to 4294967295";
        let stated = session.optional("block_size", block)?;
        if stated == Some(0) {
            return Err(session.refuse("block_size", "0", block));
        }
        self.block_tokens = given.or(stated).unwrap_or(BLOCK_TOKENS);
        let scopes = "`local` or `global`";
        match session.optional::<String>("hash_id_scope", scopes)?.as_deref() {
            None | Some("local") => {}
            Some("global") => self.names.are_global = true,
            Some(other) => {
                let mut refused = session.refuse("hash_id_scope", format!("{other:?}"), scopes);
                if let TraceError::Field { hint, .. } = &mut refused
                    && let Some(near) = nearest(other, ["local", "global"])
                {
                    *hint = format!(", did you mean `{near}`?");
                }
                return Err(refused);
            }
        }
        let requests: Vec<&RawValue> = session.required("requests", REQUESTS, &SESSION)?;
        self.chain(session, &requests, 0, None).map(drop)
    }

    /// Reads requests that follow each other, the first of them `start`; their times count from `origin`.
    /// Answers the last.
    fn chain(
        &mut self,
        parent: &Object<'_>,
        requests: &[&RawValue],
        origin: i128,
        start: Option<&Sent>,
    ) -> Result<Option<Sent>, TraceError> {
        let (mut before, mut last): (_, Option<Sent>) = (start.cloned(), None);
        let mut latest = 0;
        // The last request of each subagent that nothing waits for yet, and when the subagent ended.
        let mut beside: Vec<(Sent, i128)> = Vec::new();
        for (place, request) in requests.iter().enumerate() {
            self.place.push(place);
            let request = parent.part(request)?;
            let time = request.time("t", SECONDS)?;
            let t = time.ok_or_else(|| request.missing("t", SECONDS.accepted, &REQUEST))?;
            let kinds = "`n`, `s` or `subagent`";
            match request.required::<String>("type", kinds, &REQUEST)?.as_str() {
                "n" | "s" => {
                    if t < latest {
                        let accepted = format!("at least that before it, {}", SECONDS.show(latest));
                        return Err(request.refuse("t", SECONDS.show(t), accepted));
                    }
                    latest = t;
                    let ended = |&(_, end): &(Sent, i128)| end <= origin + t;
                    let joined: Vec<Sent> =
                        beside.extract_if(.., |sub| ended(sub)).map(|(sent, _)| sent).collect();
                    let is_next = last.is_some() && joined.is_empty();
                    let waits: Vec<Sent> = before.take().into_iter().chain(joined).collect();
                    let sent = self.request(&request, origin + t, &waits, is_next)?;
                    last = Some(sent.clone());
                    before = Some(sent);
                }
                "subagent" => {
                    self.ignore(&request, &SUBAGENT);
                    self.has_subagents = true;
                    let ended = self.subagent(&request, origin + t, before.as_ref())?;
                    beside.extend(ended);
                }
                other => return Err(request.refuse("type", format!("{other:?}"), kinds)),
            }
            self.place.pop();
        }
        Ok(last)
    }

    /// Reads the requests of a subagent that began at `t`. Answers the last, and when the subagent ended;
    /// nothing if it has none.
    fn subagent(
        &mut self,
        subagent: &Object<'_>,
        t: i128,
        before: Option<&Sent>,
    ) -> Result<Option<(Sent, i128)>, TraceError> {
        let requests: Vec<&RawValue> = subagent.required("requests", REQUESTS, &SUBAGENT)?;
        if self.place.len() > DEPTH_MAX {
            let accepted = format!("subagents at most {DEPTH_MAX} deep");
            return Err(subagent.refuse("requests", "deeper", accepted));
        }
        let duration = subagent.time("duration_ms", MILLISECONDS)?;
        let Some(&first) = requests.first() else { return Ok(None) };
        // Its requests count from its start or from that of the session. None can be before its start.
        let first_t = subagent.part(first)?.time("t", SECONDS)?;
        let is_relative = first_t.is_some_and(|first| first + ROUNDING_NS < t);
        let origin = if is_relative { t } else { 0 };
        let last = self.chain(subagent, &requests, origin, before)?;
        Ok(last.map(|last| {
            let end = duration.map_or(last.end, |duration| t + duration);
            (last, end)
        }))
    }

    /// Reads the request that was sent at `t` and waits for `waits`; `is_next`: for nothing but the one
    /// before it in its chain.
    fn request(
        &mut self,
        request: &Object<'_>,
        t: i128,
        waits: &[Sent],
        is_next: bool,
    ) -> Result<Sent, TraceError> {
        self.ignore(request, &REQUEST);
        let prompt_tokens = request.required("in", TOKENS, &REQUEST)?;
        let output_tokens = request.required("out", TOKENS, &REQUEST)?;
        let served = request.time("api_time", SECONDS)?.unwrap_or(0);
        let thought = request.time("think_time", SECONDS)?;
        let ended = waits.iter().map(|sent| sent.end).max();
        let gap = ended.map(|ended| (t - ended).max(0));
        let number = self.rows.len() as u32;
        let name = format!("{}/{number}", self.names.session);
        let turn = RowTurn {
            session: Some(self.names.session.to_string()),
            name: Some(name.clone()),
            wait_for: Some(waits.iter().map(|sent| sent.name.clone()).collect()),
            delay: thought.filter(|_| is_next).or(gap),
            lacks_stamp: true,
            ..RowTurn::default()
        };
        let class = self.class.and_then(|class| request.text(class));
        let content = self.content(request, prompt_tokens, number)?;
        self.rows.push_back(Row {
            content,
            turn: Some(Box::new(turn)),
            class: class.map(String::into_boxed_str),
            ..Row::new(0, request.line, prompt_tokens, output_tokens)
        });
        Ok(Sent { name, end: t + served })
    }

    /// The prompt of a request: blocks with ids, and a rest that has none, which is its own.
    fn content(
        &mut self,
        request: &Object<'_>,
        prompt_tokens: u32,
        number: u32,
    ) -> Result<Content, TraceError> {
        let Some(ids) = request.ids("hash_ids")? else { return Ok(Content::Private) };
        let block_tokens = self.block_tokens;
        let blocks = prompt_tokens.div_ceil(block_tokens) as usize;
        if ids.len() > blocks {
            let accepted = format!(
                "at most {blocks}: a prompt of {prompt_tokens} tokens in blocks of {block_tokens} \
                 (`block_size`)"
            );
            return Err(request.refuse("hash_ids", format!("{} ids", ids.len()), accepted));
        }
        let mut left = prompt_tokens;
        let mut pieces = Vec::with_capacity(ids.len() + 1);
        for id in ids {
            let name = self.names.name(id);
            let tokens = left.min(block_tokens);
            left -= tokens;
            let segment = if tokens == block_tokens {
                Segment::Named(name)
            } else {
                Segment::Tail { name, tokens }
            };
            pieces.push(Piece { segment, tokens });
        }
        if pieces.is_empty() {
            return Ok(Content::Private);
        }
        if left > 0 {
            let name = self.names.own(number);
            pieces.push(Piece { segment: Segment::Tail { name, tokens: left }, tokens: left });
        }
        Ok(Content::Pieces(pieces))
    }

    fn ignore(&mut self, object: &Object<'_>, known: &[&str]) {
        let is_used = |name: &str| known.contains(&name) || self.class == Some(name);
        object.names().filter(|name| !is_used(name)).for_each(|name| self.ignored.add(name));
    }

    /// The rows. Without subagents the order of the session says what each waits for.
    fn finish(mut self) -> VecDeque<Row> {
        if !self.has_subagents {
            for turn in self.rows.iter_mut().filter_map(|row| row.turn.as_mut()) {
                (turn.name, turn.wait_for) = (None, None);
            }
        }
        self.rows
    }

    /// `error` with the place in the session that it is about.
    fn placed(&self, mut error: TraceError, id: Option<&str>) -> TraceError {
        if let TraceError::Field { hint, .. } = &mut error {
            let places: Vec<_> =
                self.place.iter().map(|place| format!("requests[{place}]")).collect();
            let id = id.map(|id| format!("{:?}", id.chars().take(40).collect::<String>()));
            let place = match (places.join("."), id) {
                (places, Some(id)) if places.is_empty() => id,
                (places, Some(id)) => format!("{places} of {id}"),
                (places, None) => places,
            };
            if !place.is_empty() {
                *hint = format!("{hint} (in {place})");
            }
        }
        error
    }
}

const REQUESTS: &str = "an array of requests";

/// Names of blocks that no other session has: the session in the upper 32 bits, the id in the lower.
struct BlockNames {
    /// Which session it is, from 1.
    session: u32,
    /// Whether ids mean the same in all sessions, so that they are their own names.
    are_global: bool,
    /// The names of ids that are too large, numbered by first appearance.
    large: LookupMap<u64, u64>,
    large_met: u64,
}

/// Where names of large ids begin. There are fewer of them in a document than bytes.
const LARGE: u64 = 1 << 30;

/// Where names of what a request has for itself begin.
const OWN: u64 = 1 << 31;

impl BlockNames {
    fn new(session: u32) -> Self {
        Self { session, are_global: false, large: LookupMap::new(), large_met: 0 }
    }

    fn name(&mut self, id: u64) -> u64 {
        if self.are_global {
            return id;
        }
        let low = match self.large.get(&id) {
            _ if id < LARGE => id,
            Some(&low) => low,
            None => {
                let low = LARGE + self.large_met;
                self.large_met += 1;
                self.large.insert(id, low);
                low
            }
        };
        u64::from(self.session) << 32 | low
    }

    /// Names what only the request `number` has.
    fn own(&self, number: u32) -> u64 {
        u64::from(self.session) << 32 | OWN | u64::from(number)
    }
}

#[cfg(test)]
mod tests;
