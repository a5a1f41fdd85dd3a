//! Where the time of each request went, nanosecond by nanosecond, and what it waited for in the queue.
//!
//! From the end of one pass to that of the next, everything that happens to a request has one name. What comes before
//! its first token is kept apart from what comes behind it, so that the parts of every latency add up to it exactly.

use std::collections::BTreeMap;

use crate::base::detail::{Blocked, Entry, PassDetail, PassShare};
use crate::base::ids::RequestId;
use crate::base::lookup::LookupMap;
use crate::base::record::{Rejection, RequestRecord, Unserved};
use crate::base::time::{SimDuration, SimTime};

/// What the time of a request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Tokenising and HTTP before the engine's queue.
    Frontend,
    /// In the queue, until the scheduler was called; and from the plan of its first pass to the start of that.
    RunningPass,
    /// In the queue, for tokens of a pass.
    Budget,
    /// In the queue, for a seat.
    Seats,
    /// In the queue, for KV blocks.
    KvBlocks,
    /// In the queue, as passes that preempted admit nobody.
    Preempting,
    /// In the queue, as prompts are held back.
    Held,
    /// In the queue, until a static batch has ended.
    StaticBatch,
    /// In the queue, for content on its way into the cache.
    Content,
    /// In the queue, as a pass takes only so many prompts.
    Prompts,
    /// In the queue, for something else.
    Other,
    /// In passes that computed its prompt and nothing else.
    PrefillAlone,
    /// In passes that computed its prompt beside the work of others.
    PrefillShared,
    /// Between the chunks of its prompt, in passes without it.
    ChunkWait,
    /// Without its KV, after a preemption.
    Preempted,
    /// In passes that computed again what a preemption had dropped.
    Recompute,
    /// In passes that decoded it, as far as their decodes alone would have taken.
    Decode,
    /// What prefill beside it added to these.
    Slowed,
    /// Between its tokens, in passes without it.
    DecodeWait,
    /// Detokenising its first token.
    Detokenize,
}

impl Part {
    /// Every part, in the order of the enum, which is that of a request's life.
    pub(crate) const ALL: [Self; 20] = [
        Self::Frontend,
        Self::RunningPass,
        Self::Budget,
        Self::Seats,
        Self::KvBlocks,
        Self::Preempting,
        Self::Held,
        Self::StaticBatch,
        Self::Content,
        Self::Prompts,
        Self::Other,
        Self::PrefillAlone,
        Self::PrefillShared,
        Self::ChunkWait,
        Self::Preempted,
        Self::Recompute,
        Self::Decode,
        Self::Slowed,
        Self::DecodeWait,
        Self::Detokenize,
    ];

    /// What a request waits for that was not admitted for this reason.
    const fn waiting_for(blocked: Option<Blocked>) -> Self {
        match blocked {
            None => Self::Other,
            Some(Blocked::Budget) => Self::Budget,
            Some(Blocked::Seats) => Self::Seats,
            Some(Blocked::KvBlocks) => Self::KvBlocks,
            Some(Blocked::Preempting) => Self::Preempting,
            Some(Blocked::Held) => Self::Held,
            Some(Blocked::StaticBatch) => Self::StaticBatch,
            Some(Blocked::Content) => Self::Content,
            Some(Blocked::Prompts) => Self::Prompts,
        }
    }

    /// Its name in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Frontend => "frontend",
            Self::RunningPass => "queue_running_pass",
            Self::Budget => "queue_budget",
            Self::Seats => "queue_seats",
            Self::KvBlocks => "queue_kv_blocks",
            Self::Preempting => "queue_preempting",
            Self::Held => "queue_held",
            Self::StaticBatch => "queue_static_batch",
            Self::Content => "queue_content",
            Self::Prompts => "queue_prompts",
            Self::Other => "queue_other",
            Self::PrefillAlone => "prefill_alone",
            Self::PrefillShared => "prefill_shared",
            Self::ChunkWait => "chunk_wait",
            Self::Preempted => "preempted",
            Self::Recompute => "recompute",
            Self::Decode => "decode",
            Self::Slowed => "slowed_by_prefill",
            Self::DecodeWait => "decode_wait",
            Self::Detokenize => "detokenize",
        }
    }
}

/// Time by what it went to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent([SimDuration; Part::ALL.len()]);

impl Spent {
    /// The time that went to `part`.
    pub(crate) const fn on(&self, part: Part) -> SimDuration {
        self.0[part as usize]
    }

    /// All of it.
    #[cfg(test)]
    pub(crate) fn total(&self) -> SimDuration {
        self.0.iter().fold(SimDuration::ZERO, |sum, &time| sum + time)
    }

    fn add(&mut self, part: Part, time: SimDuration) {
        self.0[part as usize] += time;
    }

    /// Both together.
    #[must_use]
    pub(crate) fn and(mut self, other: &Self) -> Self {
        for (time, &more) in self.0.iter_mut().zip(&other.0) {
            *time += more;
        }
        self
    }

    /// What `earlier` does not have of it.
    fn since(mut self, earlier: &Self) -> Self {
        for (time, &before) in self.0.iter_mut().zip(&earlier.0) {
            *time = *time - before;
        }
        self
    }
}

/// A latency of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    /// Arrival to the first token.
    Ttft,
    /// Time per output token after the first.
    Tpot,
    /// Arrival to the last token.
    E2e,
    /// Arrival to the first pass.
    Queue,
}

impl RequestRecord {
    /// A latency in ms; `None` if it has none, as a single token has no TPOT.
    pub(crate) fn latency(&self, metric: Metric) -> Option<f64> {
        let value = match metric {
            Metric::Ttft => self.ttft(),
            Metric::Tpot => self.tpot()?,
            Metric::E2e => self.e2e(),
            Metric::Queue => self.queue(),
        };
        Some(value.as_ms())
    }
}

/// What became of the time of a request that finished.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    /// What is known of it otherwise.
    pub(crate) record: RequestRecord,
    /// Whether the statistics take it in.
    pub(crate) counted: bool,
    /// Passes that computed some of its prompt for the first time.
    pub(crate) chunks: u32,
    /// Tokens that were computed again.
    pub(crate) recomputed_tokens: u64,
    /// From its arrival to its first token.
    pub(crate) before: Spent,
    /// From there to its last token.
    pub(crate) after: Spent,
}

impl Account {
    /// A latency of it; `None` if it has none, as a single token has no TPOT.
    pub(crate) fn value_ms(&self, metric: Metric) -> Option<f64> {
        self.record.latency(metric)
    }

    /// The time of which a latency consists. That of a TPOT is divided by [`Account::gaps`].
    pub(crate) fn spent(&self, metric: Metric) -> Spent {
        match metric {
            Metric::Ttft => self.before,
            Metric::Tpot => self.after,
            Metric::E2e => self.before.and(&self.after),
            Metric::Queue => {
                let mut queue = Spent::default();
                for part in &Part::ALL[..=Part::Other as usize] {
                    queue.add(*part, self.before.on(*part));
                }
                queue
            }
        }
    }

    /// How many of its tokens share the time of a latency.
    pub(crate) fn gaps(&self, metric: Metric) -> u32 {
        if metric == Metric::Tpot { self.record.output_tokens - 1 } else { 1 }
    }
}

/// Why a request has no latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unexplained {
    /// It was turned away.
    Rejected(Rejection),
    /// The run ended before it did: it waited, or it ran.
    Unfinished {
        /// Whether it was ever in a pass.
        has_run: bool,
    },
}

/// A pass, or several decodes in a row, of the request that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Start of the first pass.
    pub(crate) start: SimTime,
    /// End of the last.
    pub(crate) end: SimTime,
    /// How many.
    pub(crate) passes: u32,
    /// Whether they decode.
    pub(crate) is_decode: bool,
    /// Tokens whose KV was there before.
    pub(crate) from: u32,
    /// Tokens whose KV is there behind them.
    pub(crate) to: u32,
    /// Prompts that others had computed, at most.
    pub(crate) other_prefills: u32,
    /// Others that decoded, at most.
    pub(crate) other_decodes: u32,
}

/// Who was served while a request waited.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ahead {
    /// How many.
    pub(crate) requests: u64,
    /// Their prompts.
    pub(crate) prompt_tokens: u64,
    /// Their outputs.
    pub(crate) output_tokens: u64,
    /// Those that held most, with the time for which they ran meanwhile: tokens times time.
    pub(crate) top: Vec<(RequestId, u64, u32, u32, SimDuration)>,
}

/// How many of those ahead are named.
const TOP: usize = 3;

/// Follows every request of a run.
#[derive(Debug, Default)]
pub(crate) struct Blame {
    engines: Vec<Plans>,
    live: LookupMap<RequestId, Following>,
    /// Those that finished, in the order in which they did.
    pub(crate) accounts: Vec<Account>,
    unexplained: BTreeMap<RequestId, Unexplained>,
    watched: Option<RequestId>,
    /// What the watched request did.
    pub(crate) steps: Vec<Step>,
}

/// A request that has begun.
#[derive(Clone, Copy, Debug)]
struct Following {
    /// When its first pass was planned.
    planned: SimTime,
    /// The end of its last pass.
    seen: SimTime,
    has_token: bool,
    has_lost_kv: bool,
    /// Tokens whose KV it has after its last pass.
    computed_tokens: u32,
    /// Tokens whose KV it had before it lost it.
    recompute_tokens: u32,
    chunks: u32,
    recomputed_tokens: u64,
    before: Spent,
    after: Spent,
    /// Since its last token. A pass that runs behind the last of all belongs to nothing.
    pending: Spent,
}

impl Following {
    fn new(pass: &PassDetail) -> Self {
        Self {
            planned: pass.planned,
            seen: pass.start,
            has_token: false,
            has_lost_kv: false,
            computed_tokens: 0,
            recompute_tokens: 0,
            chunks: 0,
            recomputed_tokens: 0,
            before: Spent::default(),
            after: Spent::default(),
            pending: Spent::default(),
        }
    }

    fn lose_kv(&mut self) {
        self.has_lost_kv = true;
        self.recompute_tokens = self.recompute_tokens.max(self.computed_tokens);
    }

    fn pass(&mut self, pass: &PassDetail, share: &PassShare) {
        let waited = match (self.has_lost_kv, self.has_token) {
            (true, _) => Part::Preempted,
            (false, false) => Part::ChunkWait,
            (false, true) => Part::DecodeWait,
        };
        self.pending.add(waited, pass.start.since(self.seen));
        self.has_lost_kv = false;
        self.seen = pass.end;
        self.computed_tokens = share.computed_before + share.tokens;
        let took = pass.end.since(pass.start);
        if share.is_decode {
            let alone = pass.price.decode_only_ms.and_then(SimDuration::from_ms);
            let alone = alone.unwrap_or(took).min(took);
            self.pending.add(Part::Decode, alone);
            self.pending.add(Part::Slowed, took - alone);
        } else {
            let is_new = !self.has_token && self.computed_tokens > self.recompute_tokens;
            let part = if !is_new {
                self.recomputed_tokens += u64::from(share.tokens);
                Part::Recompute
            } else if pass.prefill_requests + pass.decode_requests > 1 {
                Part::PrefillShared
            } else {
                Part::PrefillAlone
            };
            self.chunks += u32::from(is_new);
            self.pending.add(part, took);
        }
        if share.emitted_tokens > 0 {
            let so_far = if self.has_token { &mut self.after } else { &mut self.before };
            *so_far = so_far.and(&std::mem::take(&mut self.pending));
            self.has_token = true;
        }
    }
}

/// When an engine planned, and what ended each plan: a reason lasts until the next one.
#[derive(Clone, Debug, Default)]
struct Plans {
    times: Vec<SimTime>,
    /// Plans in a row with one reason: since when, and what went to each reason before.
    runs: Vec<(SimTime, Part, Spent)>,
}

impl Plans {
    fn add(&mut self, planned: SimTime, blocked: Option<Blocked>) {
        self.times.push(planned);
        let part = Part::waiting_for(blocked);
        if self.runs.last().is_none_or(|&(_, last, _)| last != part) {
            let before = self.until(planned);
            self.runs.push((planned, part, before));
        }
    }

    /// What went to each reason until `time`.
    fn until(&self, time: SimTime) -> Spent {
        let place = self.runs.partition_point(|&(since, ..)| since <= time);
        let Some((since, part, before)) = place.checked_sub(1).map(|last| self.runs[last]) else {
            return Spent::default();
        };
        let mut spent = before;
        spent.add(part, time.since(since));
        spent
    }

    /// The time in the queue of a request that came at `queued` and whose first pass, `planned` then, began at
    /// `start`.
    fn queueing(&self, queued: SimTime, planned: SimTime, start: SimTime) -> Spent {
        // A plan of the same instant has seen it.
        let place = self.times.partition_point(|&time| time < queued);
        let seen = self.times.get(place).map_or(planned, |&time| time.min(planned));
        let mut spent = self.until(planned).since(&self.until(seen));
        spent.add(Part::RunningPass, seen.since(queued) + start.since(planned));
        spent
    }
}

impl Blame {
    /// Notes every pass of this request too.
    pub(crate) fn watching(request: Option<RequestId>) -> Self {
        Self { watched: request, ..Self::default() }
    }

    /// There are so many engines.
    pub(crate) fn engines(&mut self, engines: usize) {
        self.engines = vec![Plans::default(); engines];
    }

    /// A pass, of which every share and the reason why it took no more is told.
    pub(crate) fn pass(&mut self, pass: &PassDetail) {
        self.engines[pass.engine.index()].add(pass.planned, pass.blocked);
        for id in &pass.preempted {
            if let Some(following) = self.live.get_mut(id) {
                following.lose_kv();
            }
        }
        for share in &pass.shares {
            if share.entry == Entry::New {
                self.live.insert(share.request, Following::new(pass));
            }
            // One that has ended may be in a pass that was planned before.
            let Some(following) = self.live.get_mut(&share.request) else { continue };
            following.pass(pass, share);
            if self.watched == Some(share.request) {
                self.note_step(pass, share);
            }
        }
    }

    fn note_step(&mut self, pass: &PassDetail, share: &PassShare) {
        let is_decode = share.is_decode;
        if is_decode && share.emitted_tokens == 0 {
            return;
        }
        let other_prefills = pass.prefill_requests - u32::from(!is_decode);
        let other_decodes = pass.decode_requests - u32::from(is_decode);
        let to = share.computed_before + share.tokens;
        if let Some(last) = self.steps.last_mut()
            && last.is_decode
            && is_decode
            && last.end == pass.start
            && (last.other_prefills > 0) == (other_prefills > 0)
        {
            *last = Step {
                start: last.start,
                end: pass.end,
                passes: last.passes + 1,
                is_decode,
                from: last.from,
                to,
                other_prefills: last.other_prefills.max(other_prefills),
                other_decodes: last.other_decodes.max(other_decodes),
            };
            return;
        }
        self.steps.push(Step {
            start: pass.start,
            end: pass.end,
            passes: 1,
            is_decode,
            from: share.computed_before,
            to,
            other_prefills,
            other_decodes,
        });
    }

    /// A request finished.
    pub(crate) fn finished(&mut self, record: &RequestRecord, counted: bool) {
        let following = self.live.remove(&record.id).expect("it was in a pass");
        let queued = record.arrival + record.ttft.frontend;
        let plans = &self.engines[record.engine.index()];
        let queueing = plans.queueing(queued, following.planned, record.first_scheduled);
        let mut before = following.before.and(&queueing);
        before.add(Part::Frontend, record.ttft.frontend);
        before.add(Part::Detokenize, record.ttft.detokenize);
        self.accounts.push(Account {
            record: record.clone(),
            counted,
            chunks: following.chunks,
            recomputed_tokens: following.recomputed_tokens,
            before,
            after: following.after,
        });
    }

    /// A request was turned away.
    pub(crate) fn rejected(&mut self, request: &Unserved, why: Rejection) {
        self.live.remove(&request.id);
        self.unexplained.insert(request.id, Unexplained::Rejected(why));
    }

    /// A request was left when the run ended.
    pub(crate) fn unfinished(&mut self, request: &Unserved) {
        let has_run = self.live.get(&request.id).is_some();
        self.unexplained.insert(request.id, Unexplained::Unfinished { has_run });
    }

    /// All requests of the run.
    pub(crate) fn requests(&self) -> usize {
        self.accounts.len() + self.unexplained.len()
    }

    /// Why this request has no latencies, if it has none.
    pub(crate) fn unexplained(&self, request: RequestId) -> Option<Unexplained> {
        self.unexplained.get(&request).copied()
    }

    /// Which of those that finished ran on the same engine while this one waited. Looks at everybody.
    pub(crate) fn ahead_of(&self, account: &Account) -> Ahead {
        let (from, to) =
            (account.record.arrival + account.record.ttft.frontend, account.record.first_scheduled);
        let mut ahead = Ahead::default();
        let mut held = Vec::new();
        for other in self.accounts.iter().map(|account| &account.record) {
            let (start, end) = (other.first_scheduled.max(from), other.last_token.min(to));
            if other.engine != account.record.engine || start >= end {
                continue;
            }
            let (prompt, output) = (other.prompt_tokens, other.output_tokens);
            ahead.requests += 1;
            ahead.prompt_tokens += u64::from(prompt);
            ahead.output_tokens += u64::from(output);
            let beside = end.since(start);
            let tokens = u64::from(prompt) + u64::from(output);
            let held_for = u128::from(tokens) * u128::from(beside.as_ns());
            held.push((held_for, (other.id, other.line, prompt, output, beside)));
        }
        held.sort_by_key(|&(held_for, (id, ..))| (std::cmp::Reverse(held_for), id));
        ahead.top = held.into_iter().take(TOP).map(|(_, who)| who).collect();
        ahead
    }
}
