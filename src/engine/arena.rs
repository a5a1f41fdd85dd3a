//! The requests an engine knows: one recycled slot each, so memory follows the active requests.

use super::outbox::Outbox;
use crate::base::ids::{EngineId, RequestId, SlotId};
use crate::base::record::{Finish, RequestRecord, RequestRounds, TtftParts, Unserved};
use crate::base::time::{SimDuration, SimTime};
use crate::workload::request::RequestSpec;

/// A request as it enters an engine.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// What the workload says.
    pub(crate) spec: RequestSpec,
    /// Its output limit, from 1.
    pub(crate) max_tokens: u32,
    /// Whether it goes on to that limit whatever it generates, as far as the engine knows.
    pub(crate) ignore_eos: bool,
    /// When it entered the engine's queue.
    pub(crate) queued: SimTime,
    /// Whether its token gaps belong to the statistics.
    pub(crate) counted: bool,
}

impl Arrival {
    /// A request that may have `max_tokens` output tokens. Who has no end of its own before the limit that it
    /// asked for is taken to have been sent to go on to it.
    pub(crate) const fn new(
        spec: RequestSpec,
        max_tokens: u32,
        queued: SimTime,
        counted: bool,
    ) -> Self {
        let ignore_eos = spec.output_tokens >= spec.max_tokens;
        Self { spec, max_tokens, ignore_eos, queued, counted }
    }
}

/// No pass: the request is planned and completed by itself.
pub(crate) const NOT_STEADY: u64 = u64::MAX;

/// Where a request is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// In the queue.
    Waiting,
    /// In the running list.
    Running,
    /// Over; the slot waits for passes in flight that still mention it.
    Finished,
}

/// One active request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) id: RequestId,
    pub(crate) line: u64,
    pub(crate) stage: Stage,
    pub(crate) counted: bool,
    pub(crate) priority: i32,
    pub(crate) class: u16,
    pub(crate) arrival: SimTime,
    pub(crate) queued: SimTime,

    pub(crate) prompt_tokens: u32,
    /// Output tokens after which it ends by itself, with a stop token if that is before
    /// `max_tokens`.
    pub(crate) output_tokens: u32,
    /// Output tokens it may have.
    pub(crate) max_tokens: u32,

    /// Prompt plus all output tokens known to the scheduler (R1).
    pub(crate) known_tokens: u32,
    /// Tokens whose KV is, or with passes in flight will be, in the engine (R1).
    pub(crate) computed_tokens: u32,
    /// Output tokens scheduled but not yet known (R1); asynchronous only.
    pub(crate) placeholder_tokens: u32,
    /// Scheduled tokens of passes that are not completed (R1).
    pub(crate) flying_tokens: u32,
    /// The part of `flying_tokens` scheduled before the latest preemption (R1).
    pub(crate) stale_tokens: u32,
    /// Drafts that its next pass verifies, if it can (R1).
    pub(crate) draft_tokens: u32,
    /// Whether its latest pass was its admission, with drafts that are padding (R64).
    pub(crate) is_padded: bool,
    /// Whether its latest pass left prompt to compute, and so sampled nothing (R15).
    pub(crate) is_chunk: bool,

    /// Its number among all admissions; meaningful while it runs.
    pub(crate) order: u64,
    /// The last pass it was in, or will be.
    pub(crate) last_pass: u64,
    /// The first pass of its time among the requests that decode in step, or [`NOT_STEADY`].
    /// While it is there, what the passes since then change stands still in the counters above.
    pub(crate) steady_since: u64,

    pub(crate) preemptions: u32,
    /// Prefix-cache hit at its first admission.
    pub(crate) cached_tokens: u32,
    /// Tokens that a preemption made it compute again.
    pub(crate) recompute_tokens: u32,
    pub(crate) first_scheduled: Option<SimTime>,
    pub(crate) first_token: Option<SimTime>,
    pub(crate) last_token: SimTime,
    pub(crate) ttft: TtftParts,
    /// Its rounds, with speculation.
    pub(crate) rounds: RequestRounds,
}

impl Request {
    fn new(arrival: &Arrival) -> Self {
        let spec = &arrival.spec;
        Self {
            id: spec.id,
            line: spec.line,
            stage: Stage::Waiting,
            counted: arrival.counted,
            priority: spec.priority,
            class: spec.class,
            arrival: spec.arrival,
            queued: arrival.queued,
            prompt_tokens: spec.prompt_tokens,
            output_tokens: spec.output_tokens,
            max_tokens: arrival.max_tokens,
            known_tokens: spec.prompt_tokens,
            computed_tokens: 0,
            placeholder_tokens: 0,
            flying_tokens: 0,
            stale_tokens: 0,
            draft_tokens: 0,
            is_padded: false,
            is_chunk: false,
            order: 0,
            last_pass: u64::MAX,
            steady_since: NOT_STEADY,
            preemptions: 0,
            cached_tokens: 0,
            recompute_tokens: 0,
            first_scheduled: None,
            first_token: None,
            last_token: SimTime::ZERO,
            ttft: TtftParts::default(),
            rounds: RequestRounds::default(),
        }
    }

    /// Output tokens it has so far.
    pub(crate) const fn generated_tokens(&self) -> u32 {
        self.known_tokens - self.prompt_tokens
    }

    /// Output tokens it will have, unless the run ends first (R17).
    pub(crate) const fn total_output_tokens(&self, model_len_max: u32) -> u32 {
        let room = model_len_max.saturating_sub(self.prompt_tokens);
        let limit =
            if self.output_tokens < self.max_tokens { self.output_tokens } else { self.max_tokens };
        if limit < room { limit } else { room }
    }

    /// What is known of a request at its end. The engine that served it is filled in by its driver.
    pub(crate) fn record(&self, finish: Finish) -> RequestRecord {
        let seen = "a finished request was scheduled and has tokens";
        RequestRecord {
            id: self.id,
            line: self.line,
            engine: EngineId(0),
            arrival: self.arrival,
            first_scheduled: self.first_scheduled.expect(seen),
            first_token: self.first_token.expect(seen),
            last_token: self.last_token,
            prompt_tokens: self.prompt_tokens,
            output_tokens: self.generated_tokens(),
            cached_tokens: self.cached_tokens,
            preemptions: self.preemptions,
            ttft: self.ttft,
            finish,
            priority: self.priority,
            class: self.class,
            rounds: self.rounds,
        }
    }

    /// What is to be said of it if the run ends now.
    pub(crate) fn unserved(&self) -> Unserved {
        Unserved {
            id: self.id,
            line: self.line,
            engine: None,
            arrival: self.arrival,
            priority: self.priority,
            class: self.class,
            prompt_tokens: self.prompt_tokens,
        }
    }

    /// Whether the token it just got was its last, and why (R17).
    pub(crate) const fn finish_reason(&self, model_len_max: u32) -> Option<Finish> {
        let generated = self.generated_tokens();
        let model_length_reached = self.known_tokens >= model_len_max;
        if generated >= self.output_tokens && self.output_tokens < self.max_tokens {
            Some(Finish::Stop)
        } else if model_length_reached && generated < self.output_tokens {
            Some(Finish::ModelLength)
        } else if model_length_reached || generated >= self.max_tokens {
            Some(Finish::Length)
        } else {
            None
        }
    }

    /// A pass from `start` to `end` computed prefill work of it, up to `computed_after` tokens.
    pub(crate) fn note_prefill(&mut self, start: SimTime, end: SimTime, computed_after: u32) {
        if self.first_scheduled.is_none() {
            self.first_scheduled = Some(start);
        }
        if self.first_token.is_none() {
            // A pass counts as recomputation only if nothing in it was new.
            let part = if computed_after <= self.recompute_tokens {
                &mut self.ttft.recompute
            } else {
                &mut self.ttft.prefill
            };
            *part += end.since(start);
        }
    }

    /// A token of it became visible at `visible`, `detokenize` after its pass ended.
    pub(crate) fn note_token(
        &mut self,
        visible: SimTime,
        detokenize: SimDuration,
        outbox: &mut Outbox,
    ) {
        if self.first_token.is_none() {
            self.note_first_token(visible, detokenize);
        } else if self.counted {
            outbox.token_gap(visible.since(self.last_token), 1);
        }
        self.last_token = visible;
    }

    /// A pass that computed `tokens` tokens of it has ended. Says whether they belong to KV that it has lost since
    /// (R74).
    pub(crate) fn land(&mut self, tokens: u32) -> bool {
        self.flying_tokens -= tokens;
        let is_stale = self.stale_tokens > 0;
        if is_stale {
            self.stale_tokens -= tokens;
        }
        is_stale
    }

    /// The tokens that a burst with `accepted` drafts gives it: one more, but for those past its end.
    pub(crate) fn burst_tokens(&self, accepted: u32, model_len_max: u32) -> u32 {
        let left = self.total_output_tokens(model_len_max).saturating_sub(self.generated_tokens());
        // A sequence that is too long already ends with the token that shows it.
        (accepted + 1).min(left.max(1))
    }

    /// `tokens` tokens of it, from 1, became visible at once, as [`Request::note_token`] has it for one.
    pub(crate) fn note_burst(
        &mut self,
        tokens: u32,
        visible: SimTime,
        detokenize: SimDuration,
        outbox: &mut Outbox,
    ) {
        self.note_token(visible, detokenize, outbox);
        if self.counted {
            outbox.burst_tokens += u64::from(tokens - 1);
        }
    }

    /// A round of it verified `drafts` drafts, accepted `accepted` of them and gave `tokens` tokens.
    pub(crate) fn note_round(
        &mut self,
        drafts: u32,
        accepted: u32,
        tokens: u32,
        outbox: &mut Outbox,
    ) {
        self.rounds.add(1, drafts, accepted);
        if self.counted {
            outbox.rounds.add(1, drafts, accepted, tokens);
        }
    }

    /// Its first token became visible at `visible`, `detokenize` after its pass ended: the parts
    /// of its TTFT are complete now.
    fn note_first_token(&mut self, visible: SimTime, detokenize: SimDuration) {
        let first_scheduled = self.first_scheduled.expect("a token comes out of a pass");
        self.first_token = Some(visible);
        self.ttft.frontend = self.queued.since(self.arrival);
        self.ttft.queueing = first_scheduled.since(self.queued);
        self.ttft.detokenize = detokenize;
        let in_passes = self.ttft.prefill + self.ttft.recompute + detokenize;
        self.ttft.chunk_wait = visible.since(first_scheduled) - in_passes;
    }
}

/// The active requests of one engine under dense, recycled ids.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arena {
    slots: Vec<Request>,
    recycled: Vec<SlotId>,
}

impl Arena {
    /// Gives a request a slot.
    pub(crate) fn insert(&mut self, arrival: &Arrival) -> SlotId {
        let request = Request::new(arrival);
        if let Some(slot) = self.recycled.pop() {
            self.slots[slot.index()] = request;
            return slot;
        }
        self.slots.push(request);
        SlotId((self.slots.len() - 1) as u32)
    }

    /// What is to be said of the requests in `slots` if the run ends now, by id.
    pub(crate) fn unserved(&self, slots: impl Iterator<Item = SlotId>) -> Vec<Unserved> {
        let mut unserved: Vec<Unserved> = slots.map(|slot| self[slot].unserved()).collect();
        unserved.sort_unstable_by_key(|request| request.id);
        unserved
    }

    /// Takes a slot back; nothing refers to it any more.
    pub(crate) fn remove(&mut self, slot: SlotId) {
        debug_assert_eq!(self[slot].stage, Stage::Finished);
        self.recycled.push(slot);
    }
}

impl std::ops::Index<SlotId> for Arena {
    type Output = Request;
    fn index(&self, slot: SlotId) -> &Request {
        &self.slots[slot.index()]
    }
}

impl std::ops::IndexMut<SlotId> for Arena {
    fn index_mut(&mut self, slot: SlotId) -> &mut Request {
        &mut self.slots[slot.index()]
    }
}
