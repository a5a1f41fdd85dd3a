//! What an engine has to tell: facts for the metrics, and for those who ask, every decision.

use super::plan::{PassSpan, Row};
use super::{Levels, RadixStanding};
use crate::base::detail::PassDetail;
use crate::base::ids::{EngineId, RequestId};
use crate::base::record::{PassRecord, Rejection, RequestRecord, Rounds, Unserved};
use crate::base::time::{SimDuration, SimTime};

/// Entries of a kind that an outbox holds before its engine asks for it to be read.
const ENTRIES_MAX: usize = 4096;

/// Facts of the passes since it was last emptied. The engine's caller owns it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox {
    /// Passes that were completed, alike ones in a row together.
    pub(crate) passes: Vec<PassRecord>,
    /// Gaps between consecutive visible tokens of counted requests, with how many there were.
    pub(crate) token_gaps: Vec<(SimDuration, u64)>,
    /// Tokens of counted requests that became visible together with the one before.
    pub(crate) burst_tokens: u64,
    /// What rounds of counted requests came to, with speculation.
    pub(crate) rounds: Rounds,
    /// Requests that finished.
    pub(crate) finished: Vec<RequestRecord>,
    /// Requests that an engine turned away, why, and when.
    pub(crate) turned_away: Vec<(Unserved, Rejection, SimTime)>,
    /// Engines that run no request from some instant on, until their next pass, with the number of
    /// those that wait.
    pub(crate) idle: Vec<(EngineId, SimTime, u32)>,
    /// Whether the engine is to return as soon as a request has finished: somebody waits for it.
    pub(crate) returns_ends: bool,
    /// Every pass in full, if somebody asked for them.
    pub(crate) details: Option<Vec<PassDetail>>,
    /// Every decision, if somebody asked for them.
    pub(crate) log: Option<Vec<Decision>>,
}

/// One entry of the log of decisions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    /// A request was handed over.
    HandedOver(RequestId),
    /// A request was turned away: before the pass that is planned next, or with the one that is completed
    /// next.
    TurnedAway {
        /// Which.
        request: RequestId,
        /// Why.
        why: Rejection,
        /// When.
        now: SimTime,
    },
    /// A pass was planned, or somebody was preempted while planning.
    Planned {
        /// Whose pass.
        engine: EngineId,
        /// When it was planned.
        now: SimTime,
        /// When it runs.
        span: PassSpan,
        /// The pass.
        rows: Vec<Row>,
        /// Who was preempted.
        preempted: Vec<RequestId>,
        /// Where things stood after planning.
        levels: Levels,
        /// More of that, from families that have more.
        radix: Option<Box<RadixStanding>>,
    },
    /// A pass of a run of decodes was planned.
    PlannedInStep,
    /// A pass of a run of decodes was completed.
    CompletedInStep,
    /// A pass was completed.
    Completed {
        /// Whose pass.
        engine: EngineId,
        /// When.
        now: SimTime,
        /// Whether it was more than a call that preempted.
        has_work: bool,
        /// The pass, with what its rows emitted.
        rows: Vec<Row>,
        /// Who finished with it, and with how many output tokens.
        finished: Vec<(RequestId, u32)>,
        /// Where things stood afterwards.
        levels: Levels,
        /// More of that, from families that have more.
        radix: Option<Box<RadixStanding>>,
    },
}

impl Outbox {
    /// An outbox whose log is kept.
    pub(crate) fn with_log() -> Self {
        Self { log: Some(Vec::new()), ..Self::default() }
    }

    /// Whether it should be read before more is told.
    pub(crate) fn is_full(&self) -> bool {
        let details = self.details.as_ref().map_or(0, Vec::len);
        self.passes.len().max(self.token_gaps.len()).max(details) >= ENTRIES_MAX
            || (self.returns_ends && !(self.finished.is_empty() && self.turned_away.is_empty()))
    }

    /// A pass was completed.
    pub(crate) fn pass(&mut self, pass: PassRecord) {
        if let Some(last) = self.passes.last_mut()
            && last.end == pass.start
            && pass.prefill_requests + last.prefill_requests == 0
            && (last.engine, last.decode_requests, last.decode_tokens)
                == (pass.engine, pass.decode_requests, pass.decode_tokens)
            && (last.running, last.waiting) == (pass.running, pass.waiting)
        {
            last.extend(pass.end, pass.used_blocks);
        } else {
            self.passes.push(pass);
        }
    }

    /// `count` counted requests got a token `gap` after their previous one.
    pub(crate) fn token_gap(&mut self, gap: SimDuration, count: u64) {
        match self.token_gaps.last_mut() {
            Some((last, total)) if *last == gap => *total += count,
            _ => self.token_gaps.push((gap, count)),
        }
    }

    /// Forgets everything that was told, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.passes.clear();
        self.token_gaps.clear();
        self.burst_tokens = 0;
        self.rounds = Rounds::default();
        self.finished.clear();
        self.turned_away.clear();
        self.idle.clear();
        if let Some(details) = &mut self.details {
            details.clear();
        }
        if let Some(log) = &mut self.log {
            log.clear();
        }
    }
}
