//! The run as a trace for <https://ui.perfetto.dev>, in the JSON trace event format.
//!
//! An engine is a process: one thread holds its passes, each request has one of its own, and counters say how many
//! run and wait and what they hold. Timestamps are microseconds with three decimals: every nanosecond is there.
//!
//! Of a request that decodes, nothing is drawn but that it does: which passes carry it stands on the thread above.

use std::fmt::{self, Arguments, Display};
use std::path::Path;

use crate::base::detail::{Entry, PassDetail, PassPrice, PassShare};
use crate::base::ids::{EngineId, RequestId};
use crate::base::lookup::LookupMap;
use crate::base::output::{OutputError, ResultFile, named_format};
use crate::base::time::SimTime;
use crate::metrics::record::{Rejection, RequestRecord, Unserved};

use super::Report;
use super::sink::{Sink, Wants};

/// The counters of an engine, as they are called.
const COUNTERS: [&str; 3] = ["running", "waiting", "KV blocks used"];

/// Writes the trace while the run goes on. Holds what is to be drawn of requests that have not ended.
#[derive(Debug)]
pub(crate) struct PerfettoSink {
    file: ResultFile,
    events: u64,
    /// What is drawn lies between these.
    from: SimTime,
    to: Option<SimTime>,
    /// Requests whose id is a multiple of this are drawn; at least 1.
    every: u32,
    engines: Vec<Counters>,
    lives: LookupMap<RequestId, Vec<Turn>>,
    /// The end of the last pass so far.
    end: SimTime,
}

/// The counters of an engine.
#[derive(Clone, Debug, Default)]
struct Counters {
    shown: [Option<u32>; 3],
    /// Levels of the facts that were told last, not yet in order.
    told: Vec<(SimTime, [u32; 3])>,
    /// What holds when the window begins.
    before: Option<[u32; 3]>,
}

/// A request from an admission to the loss of its KV, or its end.
#[derive(Clone, Debug)]
struct Turn {
    start: SimTime,
    /// Passes that computed its prompt, or again what it had lost.
    chunks: Vec<Chunk>,
    /// When nothing of that was left.
    computed: Option<SimTime>,
    lost: Option<SimTime>,
}

#[derive(Clone, Copy, Debug)]
struct Chunk {
    start: SimTime,
    end: SimTime,
    tokens: u32,
    computed_before: u32,
}

/// Where something is drawn.
#[derive(Clone, Copy, Debug)]
struct Track {
    process: u64,
    thread: u64,
}

/// A time as the format has it.
struct Micros(u64);

impl Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

impl PerfettoSink {
    /// Opens `path`, compressed if it ends with `.gz`, for everything between `from` and `to` and every so many
    /// requests.
    ///
    /// # Errors
    /// No file can be made there.
    pub(crate) fn create(
        path: &Path,
        (from, to): (SimTime, Option<SimTime>),
        every: u32,
    ) -> Result<Self, OutputError> {
        let (_, gzip) = named_format(path);
        let mut file = ResultFile::create(path, gzip)?;
        file.fill(|out| out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":["))?;
        Ok(Self {
            file,
            events: 0,
            from,
            to,
            every: every.max(1),
            engines: Vec::new(),
            lives: LookupMap::new(),
            end: SimTime::ZERO,
        })
    }

    fn is_drawn(&self, id: RequestId) -> bool {
        id.0.is_multiple_of(self.every)
    }

    /// The passes of an engine. No id is 0, which means the idle process to readers of the format.
    fn passes(engine: EngineId) -> Track {
        let process = u64::from(engine.0) + 1;
        Track { process, thread: process }
    }

    /// A request; those that reached no engine belong to a process behind the engines.
    fn request(&self, id: RequestId, engine: Option<EngineId>) -> Track {
        let engines = self.engines.len() as u64;
        let process = engine.map_or(engines + 1, |engine| u64::from(engine.0) + 1);
        Track { process, thread: engines + 2 + u64::from(id.0) }
    }

    /// Writes one event; `rest` is what comes behind the fields that all have.
    fn event(
        &mut self,
        phase: char,
        name: &str,
        track: Track,
        at: SimTime,
        rest: Arguments<'_>,
    ) -> Result<(), OutputError> {
        let comma = if self.events == 0 { "" } else { "," };
        self.events += 1;
        let Track { process, thread } = track;
        let at = Micros(at.as_ns());
        self.file.fill(|out| {
            write!(
                out,
                "{comma}\n{{\"ph\":\"{phase}\",\"name\":\"{name}\",\"pid\":{process},\"tid\":{thread},\"ts\":{at}{rest}}}"
            )
        })
    }

    /// Draws what of `start` to `end` lies in the window; nothing if that is no time at all.
    fn slice(
        &mut self,
        name: &str,
        track: Track,
        (start, end): (SimTime, SimTime),
        args: Arguments<'_>,
    ) -> Result<(), OutputError> {
        let start = start.max(self.from);
        let end = self.to.map_or(end, |to| end.min(to));
        if start >= end {
            return Ok(());
        }
        let dur = Micros(end.since(start).as_ns());
        self.event('X', name, track, start, format_args!(",\"dur\":{dur},\"args\":{{{args}}}"))
    }

    fn instant(&mut self, name: &str, track: Track, at: SimTime) -> Result<(), OutputError> {
        if at < self.from || self.to.is_some_and(|to| at >= to) {
            return Ok(());
        }
        self.event('i', name, track, at, format_args!(",\"s\":\"t\""))
    }

    /// Says what a process or a thread is called.
    fn name(&mut self, what: &str, track: Track, name: &str) -> Result<(), OutputError> {
        let args = format_args!(",\"args\":{{\"name\":\"{name}\"}}");
        self.event('M', what, track, SimTime::ZERO, args)
    }

    /// Draws a pass, or a call of the scheduler that only preempted.
    fn pass_slice(&mut self, pass: &PassDetail) -> Result<(), OutputError> {
        let name = match (pass.prefill_requests > 0, pass.decode_requests > 0) {
            (true, true) => "mixed",
            (true, false) => "prefill",
            (false, true) => "decode",
            (false, false) => {
                return self.instant("preempting call", Self::passes(pass.engine), pass.start);
            }
        };
        let PassPrice { prefill_ms, decode_ms, draft_ms, host_ms, decode_only_ms } = pass.price;
        let decode_only = decode_only_ms.map_or_else(String::new, |ms| {
            format!(",\"decode_only_ms\":{ms},\"slowed_by_prefill_ms\":{}", {
                (pass.end.since(pass.start).as_ms() - ms).max(0.0)
            })
        });
        let planned_ms = pass.start.since(pass.planned).as_ms();
        let args = format_args!(
            "\"prefill_requests\":{},\"prefill_tokens\":{},\"prefill_past_tokens\":{},\
             \"decode_requests\":{},\"decode_tokens\":{},\"decode_kv_tokens\":{},\
             \"prefill_ms\":{prefill_ms},\"decode_ms\":{decode_ms},\"draft_ms\":{draft_ms},\
             \"host_ms\":{host_ms}{decode_only},\"planned_ms_before_start\":{planned_ms},\"preempted\":{}",
            pass.prefill_requests,
            pass.prefill_tokens,
            pass.prefill_past_tokens,
            pass.decode_requests,
            pass.decode_tokens,
            pass.decode_kv_tokens,
            pass.preempted.len(),
        );
        self.slice(name, Self::passes(pass.engine), (pass.start, pass.end), args)
    }

    fn note_share(&mut self, pass: &PassDetail, share: &PassShare) {
        if !self.is_drawn(share.request) {
            return;
        }
        let turn = Turn { start: pass.start, chunks: Vec::new(), computed: None, lost: None };
        if share.entry == Entry::New {
            self.lives.insert(share.request, Vec::new());
        }
        // One that has ended may be in a pass that was planned before.
        let Some(turns) = self.lives.get_mut(&share.request) else { return };
        if share.entry != Entry::Running {
            turns.push(turn);
        }
        let Some(turn) = turns.last_mut() else { return };
        if share.is_decode {
            turn.computed = turn.computed.or(Some(pass.start));
            return;
        }
        let PassShare { tokens, computed_before, .. } = *share;
        turn.chunks.push(Chunk { start: pass.start, end: pass.end, tokens, computed_before });
        if !share.is_chunk {
            turn.computed = Some(pass.end);
        }
    }

    /// Draws a request from its arrival to `last`; `left` says what was left open then.
    fn life(
        &mut self,
        track: Track,
        (arrival, first_token, last): (SimTime, SimTime, SimTime),
        turns: &[Turn],
        left: &str,
    ) -> Result<(), OutputError> {
        let none = format_args!("");
        let begun = turns.first().map_or(last, |turn| turn.start);
        let open = |is_last: bool| if is_last { left } else { "" };
        self.slice(&format!("queued{}", open(turns.is_empty())), track, (arrival, begun), none)?;
        for (place, turn) in turns.iter().enumerate() {
            let is_last = place + 1 == turns.len();
            let stop = turn.lost.map_or(last, |lost| lost.min(last));
            let is_prefill = first_token > turn.start;
            let computed = if is_prefill { Some(first_token) } else { turn.computed };
            let computed = computed.unwrap_or(stop).clamp(turn.start, stop);
            let name = if is_prefill { "prefill" } else { "recompute" };
            let lasts = is_last && turn.lost.is_none();
            let name = format!("{name}{}", open(lasts && computed == last));
            self.slice(&name, track, (turn.start, computed), none)?;
            for chunk in &turn.chunks {
                let Chunk { start, end, tokens, computed_before } = *chunk;
                let args = format_args!("\"tokens\":{tokens},\"past_tokens\":{computed_before}");
                self.slice("chunk", track, (start, end.min(computed)), args)?;
            }
            self.slice(&format!("decode{}", open(lasts)), track, (computed, stop), none)?;
            let resumed = turns.get(place + 1).map_or(last, |next| next.start);
            self.slice(&format!("preempted{}", open(is_last)), track, (stop, resumed), none)?;
        }
        Ok(())
    }

    /// Gives a request its name, if anything is drawn of it.
    fn name_request(
        &mut self,
        (id, line): (RequestId, u64),
        track: Track,
        (arrival, last): (SimTime, SimTime),
        tokens: Arguments<'_>,
    ) -> Result<(), OutputError> {
        if last < self.from || self.to.is_some_and(|to| arrival >= to) {
            return Ok(());
        }
        let line = if line > 0 { format!("line {line}, ") } else { String::new() };
        self.name("thread_name", track, &format!("request {id} ({line}{tokens})"))
    }

    /// Shows the levels that were told up to now, in order.
    fn settle(&mut self) -> Result<(), OutputError> {
        for engine in 0..self.engines.len() {
            let mut told = std::mem::take(&mut self.engines[engine].told);
            told.sort_by_key(|&(at, _)| at);
            for &(at, levels) in &told {
                if at < self.from {
                    self.engines[engine].before = Some(levels);
                } else if self.to.is_none_or(|to| at < to) {
                    if let Some(before) = self.engines[engine].before.take() {
                        self.show(EngineId(engine as u32), self.from, before)?;
                    }
                    self.show(EngineId(engine as u32), at, levels)?;
                }
            }
            told.clear();
            self.engines[engine].told = told;
        }
        Ok(())
    }

    fn show(&mut self, engine: EngineId, at: SimTime, levels: [u32; 3]) -> Result<(), OutputError> {
        for (counter, level) in levels.into_iter().enumerate() {
            let shown = self.engines[engine.index()].shown[counter].replace(level);
            if shown != Some(level) {
                let args = format_args!(",\"args\":{{\"value\":{level}}}");
                self.event('C', COUNTERS[counter], Self::passes(engine), at, args)?;
            }
        }
        Ok(())
    }

    fn tell(&mut self, engine: EngineId, at: SimTime, levels: [u32; 3]) {
        if let Some(counters) = self.engines.get_mut(engine.index()) {
            counters.told.push((at, levels));
        }
    }

    /// Draws somebody who was not served to the end.
    fn unserved(
        &mut self,
        request: &Unserved,
        why: &str,
        at: SimTime,
        left: &str,
    ) -> Result<(), OutputError> {
        let turns = self.lives.remove(&request.id).unwrap_or_default();
        let track = self.request(request.id, request.engine);
        let computed = turns.iter().find_map(|turn| turn.computed).unwrap_or(at);
        let span = (request.arrival, at);
        let tokens = request.prompt_tokens;
        let whose = (request.id, request.line);
        self.name_request(whose, track, span, format_args!("{tokens} tokens, {why}"))?;
        self.life(track, (request.arrival, computed, at), &turns, left)
    }
}

impl Sink for PerfettoSink {
    fn wants(&self) -> Wants {
        Wants { details: true, every_share: false }
    }

    fn engines(&mut self, usable_blocks: &[u32]) {
        self.engines = vec![Counters::default(); usable_blocks.len()];
    }

    fn detail(&mut self, pass: &PassDetail) -> Result<(), OutputError> {
        self.end = self.end.max(pass.end);
        self.pass_slice(pass)?;
        for id in &pass.preempted {
            if let Some(turn) = self.lives.get_mut(id).and_then(|turns| turns.last_mut()) {
                turn.lost = turn.lost.or(Some(pass.start));
            }
        }
        pass.shares.iter().for_each(|share| self.note_share(pass, share));
        self.tell(pass.engine, pass.start, [pass.running, pass.waiting, pass.used_blocks]);
        Ok(())
    }

    fn idle(&mut self, engine: EngineId, since: SimTime, waiting: u32) {
        self.tell(engine, since, [0, waiting, 0]);
    }

    fn told(&mut self) -> Result<(), OutputError> {
        self.settle()
    }

    fn finished(&mut self, record: &RequestRecord, _counted: bool) -> Result<(), OutputError> {
        if !self.is_drawn(record.id) {
            return Ok(());
        }
        let turns = self.lives.remove(&record.id).unwrap_or_default();
        let track = self.request(record.id, Some(record.engine));
        let RequestRecord { arrival, first_token, last_token, .. } = *record;
        let (prompt, output) = (record.prompt_tokens, record.output_tokens);
        let whose = (record.id, record.line);
        let tokens = format_args!("{prompt}+{output} tokens");
        self.name_request(whose, track, (arrival, last_token), tokens)?;
        self.life(track, (arrival, first_token, last_token), &turns, "")
    }

    fn rejected(
        &mut self,
        request: &Unserved,
        why: Rejection,
        _counted: bool,
    ) -> Result<(), OutputError> {
        if !self.is_drawn(request.id) {
            return Ok(());
        }
        // One that an engine turns away may have run before.
        let lost = self.lives.get(&request.id).and_then(|turns| turns.last()?.lost);
        let at = lost.unwrap_or(request.arrival).max(request.arrival);
        self.unserved(request, "rejected", at, "")?;
        let track = self.request(request.id, request.engine);
        self.instant(&format!("rejected: {}", why.name()), track, at)
    }

    fn unfinished(&mut self, request: &Unserved, _counted: bool) -> Result<(), OutputError> {
        if !self.is_drawn(request.id) {
            return Ok(());
        }
        let at = self.end.max(request.arrival);
        self.unserved(request, "unfinished", at, " (unfinished)")
    }

    fn finish(mut self: Box<Self>, report: &Report) -> Result<Vec<ResultFile>, OutputError> {
        self.settle()?;
        for engine in (0..self.engines.len() as u32).map(EngineId) {
            let track = Self::passes(engine);
            self.name("process_name", track, &format!("engine {engine}"))?;
            self.name("thread_name", track, "passes")?;
        }
        let front_end = self.engines.len() as u64 + 1;
        let track = Track { process: front_end, thread: front_end };
        self.name("process_name", track, "front end")?;
        let digest = &report.digest;
        self.file.fill(|out| {
            writeln!(
                out,
                "\n],\"otherData\":{{\"producer\":\"servesim\",\"digest\":\"{digest}\"}}}}"
            )
        })?;
        Ok(vec![self.file])
    }
}
