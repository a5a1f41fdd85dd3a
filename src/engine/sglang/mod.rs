//! The scheduler of SGLang, release 0.5.23 (`Scheduler.get_next_batch_to_run`, `PrefillAdder`,
//! `ScheduleBatch`, `SchedulePolicy`). Rule numbers (A1 ...) are those of docs/engines/sglang.md.
//!
//! A pass is either a prefill of requests that are admitted from the queue, or a decode of everybody
//! who runs; prefill goes first. One call runs through:
//!
//! 1. [`arrival`]: who has arrived enters the queue.
//! 2. [`batch`]: the prefill of the call before joins the running batch, who has ended leaves it.
//! 3. [`adder`]: requests are admitted in the order of [`policy`], as long as the budgets last; whoever
//!    is worth more may take the place of others ([`displace`]).
//! 4. [`decode`]: nobody was admitted, so everybody decodes; if the pool is full, some lose their KV.
//!
//! Later [`results`] takes in what the pass produced. [`memory`] is the pool and its radix cache;
//! [`speculative`] is what a decode is with drafts.
//!
//! Not here: prices (see `timing`), when a pass runs (see `engine::driver`), and how many drafts are accepted
//! (see `engine::drafting`).

mod adder;
mod arrival;
mod batch;
pub(crate) mod config;
mod decode;
mod decode_run;
mod displace;
mod fixed_length;
mod lockstep;
mod memory;
mod part;
mod policy;
mod reserved;
mod results;
mod speculative;

use std::collections::VecDeque;

use crate::base::detail::Blocked;
use crate::base::ids::{RequestId, SlotId};
use crate::base::record::Unserved;
use crate::base::time::{SimDuration, SimTime};
use crate::timing::work::DecodeWork;

use super::arena::{Arena, Arrival};
use super::decode_clock::DecodeClock;
use super::drafting::Drafting;
use super::error::EngineError;
use super::outbox::Outbox;
use super::plan::{PassPlan, PassSpan};
use super::steady::{SteadySet, Stride};
use super::{Advance, Effort, Levels, RadixStanding, Scheduler};
use batch::LastPrefill;
use config::{Limits, SglangConfig};
use lockstep::Lockstep;
use memory::Memory;
use part::Part;
use reserved::Reserved;

/// One engine's scheduler, its requests and its KV.
#[derive(Clone, Debug)]
pub(crate) struct Sglang {
    limits: Limits,
    detokenize: SimDuration,
    arena: Arena,
    /// By slot.
    parts: Vec<Part>,
    memory: Memory,
    /// What becomes of drafts; absent without speculation.
    drafting: Option<Drafting>,
    /// With speculation, tokens that the decodes of passes in flight bring, in the order of their rows.
    bursts: VecDeque<u32>,
    /// Requests that have arrived since the last call.
    inbox: Vec<SlotId>,
    queue: VecDeque<SlotId>,
    /// Entries into the queue so far (A4).
    entries: u64,
    /// Whether the queue is in the order of a policy that looks at nothing but the requests.
    is_sorted: bool,
    /// How often the queue was sorted while somebody was in it (P9).
    sorts: u64,
    /// Running requests in the order of the batch, but for those that decode in step.
    running: Vec<SlotId>,
    lockstep: Lockstep,
    steady: SteadySet,
    reserved: Reserved,
    /// The latch that stops admission (S4).
    is_full: bool,
    /// What was missing when the latch was set.
    full_for: Option<Blocked>,
    /// What those in the queue are missing, as far as this call has come.
    blocked: Option<Blocked>,
    /// The request whose prompt is computed in chunks (K1).
    chunked: Option<SlotId>,
    /// What the last call launched, if it was prefill.
    last: Option<LastPrefill>,
    /// Requests of the running batch that have ended since the last call.
    ended_running: u32,
    /// Requests that were left out of a decode because they are sure to end (O4).
    dropped: Vec<SlotId>,
    /// Requests that have ended and whose slots are still mentioned somewhere.
    ended: Vec<SlotId>,
    new_token_ratio: f64,
    /// Rows held: requests that are admitted and have not ended (E2).
    rows_held: u32,
    /// Tokens counted by the policy that looks at response ratios (P7).
    processed_tokens: u64,
    /// What the running batch, as the object it is in SGLang, says of its prefill (P7).
    stale_extend_tokens: u64,
    /// Who lost its KV since the last launch, in order.
    retracted: Vec<RequestId>,
    displaced: Vec<RequestId>,
    /// Whether the last call launched something.
    has_launched: bool,
    planned_passes: u64,
    completed_passes: u64,
    /// Passes with decodes among those.
    planned_decodes: u64,
    completed_decodes: u64,
    requests_touched: u64,
}

impl Sglang {
    /// An idle scheduler. `config` has no absent values; a token becomes visible `detokenize`
    /// after its pass ends. `advance` chooses how passes are computed, not what comes out. `drafting` says what
    /// becomes of drafts, if there is speculation.
    pub(crate) fn new(
        config: &SglangConfig,
        drafting: Option<Drafting>,
        detokenize: SimDuration,
        advance: Advance,
    ) -> Self {
        let limits = Limits::of(config);
        assert_eq!(drafting.is_some(), limits.speculation.is_some());
        // Rounds bring different numbers of tokens: nobody decodes in step.
        let advance = if drafting.is_some() { Advance::OneByOne } else { advance };
        Self {
            limits,
            detokenize,
            arena: Arena::default(),
            parts: Vec::new(),
            memory: Memory::new(&limits),
            drafting,
            bursts: VecDeque::new(),
            inbox: Vec::new(),
            queue: VecDeque::new(),
            entries: 0,
            is_sorted: true,
            sorts: 0,
            running: Vec::new(),
            lockstep: Lockstep::new(advance),
            steady: SteadySet::new(limits.page_tokens, Stride::TOKEN),
            reserved: Reserved::default(),
            is_full: false,
            full_for: None,
            blocked: None,
            chunked: None,
            last: None,
            ended_running: 0,
            dropped: Vec::new(),
            ended: Vec::new(),
            new_token_ratio: limits.ratio[0],
            rows_held: 0,
            processed_tokens: 0,
            stale_extend_tokens: 0,
            retracted: Vec::new(),
            displaced: Vec::new(),
            has_launched: false,
            planned_passes: 0,
            completed_passes: 0,
            planned_decodes: 0,
            completed_decodes: 0,
            requests_touched: 0,
        }
    }

    /// Takes down what was launched.
    fn commit(&mut self, plan: &mut PassPlan) {
        for row in &plan.rows {
            let request = &mut self.arena[row.slot];
            request.flying_tokens += 1;
            request.last_pass = plan.pass;
            plan.has_new_work |= row.computed_before + row.tokens > request.recompute_tokens;
            self.parts[row.slot.index()].flying_samples += u32::from(!row.is_chunk);
        }
        for i in 0..plan.rows.len() {
            let row = plan.rows[i];
            plan.add_work(&row);
        }
        self.requests_touched += plan.rows.len() as u64;
        plan.preempted.extend(self.retracted.iter().chain(&self.displaced));
        self.planned_decodes += u64::from(plan.decode.requests > 0);
        self.planned_passes += 1;
        self.processed_tokens += if plan.prefill.requests > 0 {
            plan.prefill.new_tokens + plan.decode.query_tokens
        } else {
            self.stale_extend_tokens
        };
    }

    /// Takes down why those in the queue are not in the pass. In step that would cost a look at each call of a run.
    fn note_blocked(&self, plan: &mut PassPlan) {
        if !self.lockstep.is_on() && !self.queue.is_empty() {
            let preempting = (!plan.preempted.is_empty()).then_some(Blocked::Preempting);
            plan.blocked = self.blocked.or(preempting);
        }
    }

    /// Whether nothing is under way (N4).
    fn is_idle(&self) -> bool {
        self.rows_held == 0 && self.queue.is_empty() && self.planned_passes == self.completed_passes
    }
}

impl Scheduler for Sglang {
    fn enqueue(&mut self, arrival: Arrival) {
        self.arrive(&arrival);
    }

    fn schedule(&mut self, now: SimTime, plan: &mut PassPlan, outbox: &mut Outbox) {
        plan.clear();
        plan.pass = self.planned_passes;
        if std::mem::take(&mut self.has_launched) {
            self.retracted.clear();
            self.displaced.clear();
        }
        self.blocked = None;
        self.take_in(now, outbox);
        self.keep_chunk();
        self.merge_last();
        self.drop_ended();
        self.join_steady();
        // Prefill always goes before decode.
        self.has_launched =
            self.schedule_prefill(now, plan, outbox) || self.schedule_decode(now, plan, outbox);
        if self.has_launched {
            self.commit(plan);
            self.note_blocked(plan);
        } else if self.is_idle() {
            self.new_token_ratio = self.limits.ratio[0];
        }
        debug_assert!(self.memory.is_whole(self.pages_held()));
    }

    fn complete(&mut self, plan: &mut PassPlan, span: PassSpan, outbox: &mut Outbox) {
        self.completed_passes = plan.pass + 1;
        self.completed_decodes += u64::from(plan.decode.requests > 0);
        self.restore_left_rows(plan);
        for row in &mut plan.rows {
            self.complete_row(row, span, outbox);
        }
        if plan.steady > 0 {
            self.complete_steady(plan, span, outbox);
        }
    }

    fn run_decodes(&mut self, clock: &mut DecodeClock<'_>) -> Result<(), EngineError> {
        self.run_steady(clock)
    }

    fn restore_plan(&self, plan: &mut PassPlan, back: u64, work: &DecodeWork) {
        self.steady.restore(plan, self.planned_passes - 1 - back, work);
    }

    fn depth(&self) -> usize {
        if self.limits.overlaps { 2 } else { 1 }
    }

    fn levels(&self) -> Levels {
        Levels {
            running: self.rows_held,
            waiting: (self.queue.len() + self.inbox.len()) as u32,
            free_blocks: self.memory.idle_tokens() / self.limits.page_tokens,
            usable_blocks: self.limits.pool_tokens / self.limits.page_tokens,
            cached_contents: self.memory.cached_tokens() / self.limits.page_tokens,
        }
    }

    fn radix_standing(&self) -> Option<RadixStanding> {
        Some(RadixStanding {
            available_tokens: self.memory.available_tokens(),
            evictable_tokens: self.memory.evictable_tokens(),
            protected_tokens: self.memory.protected_tokens(),
            running: self.running_requests(),
            queue: self.queue.iter().map(|&slot| self.arena[slot].id).collect(),
            is_full: self.is_full,
            new_token_ratio: self.new_token_ratio,
            displaced: self.displaced.clone(),
        })
    }

    fn unfinished(&self) -> Vec<Unserved> {
        let slots = (self.active_slots().into_iter())
            .chain(self.queue.iter().copied())
            .chain(self.inbox.iter().copied());
        self.arena.unserved(slots)
    }

    #[cfg(test)]
    fn kv_state(&self) -> String {
        self.memory.state()
    }

    fn effort(&self) -> Effort {
        Effort {
            requests_touched: self.requests_touched,
            blocks_touched: self.memory.touched_nodes(),
        }
    }
}
