//! The scheduler of vLLM V1, release 0.33.0 (`Scheduler.schedule`, `Scheduler.update_from_output`,
//! `AsyncScheduler`). Rule numbers (R1 ...) are those of docs/engines/vllm.md.
//!
//! A request has known tokens and computed tokens; a pass lets computed catch up with known,
//! within one token budget. Chunked prefill, prefix hits and recomputation all follow from that.
//! One call runs through:
//!
//! 1. [`running`]: who runs goes first, in the order of admission; whoever finds no block preempts
//!    ([`preempt`]).
//! 2. [`waiting`]: then newcomers, head of the queue first, until one does not fit. A call that
//!    preempted has no room for newcomers.
//! 3. Commit: what is scheduled counts as computed from here on.
//!
//! Later [`output`] takes in what the pass produced.
//!
//! Not here: prices (see `timing`), when a pass runs (see `engine::driver`), and how many drafts are accepted
//! (see `engine::drafting`).

pub(crate) mod config;
mod decode_run;
mod interval;
mod lockstep;
mod output;
mod preempt;
mod queue;
mod running;
pub(crate) mod speculative;
mod waiting;

use crate::base::detail::Blocked;
use crate::base::ids::SlotId;
use crate::base::record::Unserved;
use crate::base::time::{SimDuration, SimTime};
use crate::kv::blocks::BlockKv;
use crate::timing::work::DecodeWork;
use crate::workload::request::{RequestSpec, Segment};

use super::arena::{Arena, Arrival};
use super::decode_clock::DecodeClock;
use super::drafting::Drafting;
use super::error::EngineError;
use super::outbox::Outbox;
use super::plan::{Entry, LeftRows, PassPlan, PassSpan, Row};
use super::steady::{Ending, Member, SteadySet, Stride};
use super::{Advance, Effort, Levels, Scheduler};
use config::{Limits, VllmConfig};
use interval::PrefillInterval;
use lockstep::Scratch;
use queue::WaitingQueue;
use waiting::StuckHead;

/// One engine's scheduler, its requests and its KV.
#[derive(Clone, Debug)]
pub(crate) struct Vllm {
    limits: Limits,
    detokenize: SimDuration,
    arena: Arena,
    kv: BlockKv,
    /// What becomes of drafts; absent without speculation.
    drafting: Option<Drafting>,
    /// Running requests, in order of admission (R3), but for those in the set.
    running: Vec<SlotId>,
    waiting: WaitingQueue,
    interval: PrefillInterval,
    /// Whether requests that decode in step are kept in a set, and not touched one by one.
    lockstep: bool,
    steady: SteadySet,
    /// Requests of the set whose last token comes with the pass in flight.
    ending: Vec<Ending>,
    /// How many of them have left the set; they run until that token is here.
    leaving: u32,
    /// Finished requests that the pass in flight computes in vain.
    in_vain: Vec<Member>,
    left_rows: Option<LeftRows>,
    stuck_head: Option<StuckHead>,
    scratch: Scratch,
    planned_passes: u64,
    completed_passes: u64,
    /// When the tokens of the last completed pass became visible.
    last_visible: SimTime,
    admissions: u64,
    requests_touched: u64,
}

/// What one call may still hand out (R10).
#[derive(Clone, Copy, Debug)]
struct Budget {
    issue_tokens: u32,
    input_tokens: u32,
    /// What a request takes from the input besides its tokens (R61).
    draft_slots: u32,
}

impl Budget {
    const fn is_spent(self) -> bool {
        self.issue_tokens == 0 || self.input_tokens <= self.draft_slots
    }

    const fn tokens(self) -> u32 {
        let input_tokens = self.input_tokens.saturating_sub(self.draft_slots);
        if self.issue_tokens < input_tokens { self.issue_tokens } else { input_tokens }
    }

    const fn spend(&mut self, tokens: u32) {
        self.issue_tokens -= tokens;
        self.input_tokens -= tokens + self.draft_slots;
    }

    /// Takes what `requests` requests with `tokens` tokens each take, if it is there.
    fn spend_on(&mut self, requests: u32, tokens: u32) -> bool {
        let of_all = |tokens: u32| u64::from(requests) * u64::from(tokens);
        let input_tokens = of_all(tokens + self.draft_slots);
        if of_all(tokens) > self.issue_tokens.into() || input_tokens > self.input_tokens.into() {
            return false;
        }
        self.issue_tokens -= of_all(tokens) as u32;
        self.input_tokens -= input_tokens as u32;
        true
    }

    const fn give_back(&mut self, tokens: u32) {
        self.issue_tokens += tokens;
        self.input_tokens += tokens + self.draft_slots;
    }
}

/// One call's state.
struct Call<'a> {
    plan: &'a mut PassPlan,
    budget: Budget,
    /// Most tokens of one request (R13).
    cap_tokens: u32,
    /// Whether prefill is held back (R50).
    holds_prefill: bool,
    /// Whether the pass carries prefill in the sense of R50.
    carries_prefill: bool,
    /// Whether a request that has prompt left was in the running loop (R64).
    runs_chunk: bool,
    /// Whether the running loop gave tokens to anybody (R64).
    runs_any: bool,
}

impl Vllm {
    /// An idle scheduler. `config` has no absent values; a token becomes visible `detokenize`
    /// after its pass ends. `advance` chooses how passes are computed, not what comes out. `drafting` says what
    /// becomes of drafts, if there is speculation.
    pub(crate) fn new(
        config: &VllmConfig,
        drafting: Option<Drafting>,
        detokenize: SimDuration,
        advance: Advance,
    ) -> Self {
        let limits = Limits::of(config);
        assert_eq!(drafting.is_some(), limits.speculation.is_on());
        let stride = limits.stride(drafting.as_ref());
        let lockstep = advance == Advance::InStep && stride.is_some();
        Self {
            limits,
            detokenize,
            arena: Arena::default(),
            kv: BlockKv::new(
                config.usable_blocks() + 1,
                config.block_size,
                config.enable_prefix_caching,
            )
            .with_lookahead(limits.speculation.hash_lookahead_tokens),
            drafting,
            running: Vec::new(),
            waiting: WaitingQueue::new(limits.by_priority),
            interval: PrefillInterval::new(limits.prefill_interval),
            lockstep,
            steady: SteadySet::new(config.block_size, stride.unwrap_or(Stride::TOKEN)),
            ending: Vec::new(),
            leaving: 0,
            in_vain: Vec::new(),
            left_rows: None,
            stuck_head: None,
            scratch: Scratch::default(),
            planned_passes: 0,
            completed_passes: 0,
            last_visible: SimTime::ZERO,
            admissions: 0,
            requests_touched: 0,
        }
    }

    /// Most tokens of one request in this call (R13): none alone, else the threshold, or the fair
    /// share of the budget where that is larger.
    fn long_prefill_cap(&self) -> u32 {
        let Limits { long_prefill_tokens, long_prefill_adaptive, batched_tokens, .. } = self.limits;
        let requests = self.running_requests() + self.waiting.len() as u32;
        if long_prefill_tokens == 0 || requests <= 1 {
            u32::MAX
        } else if long_prefill_adaptive {
            long_prefill_tokens.max(batched_tokens / requests)
        } else {
            long_prefill_tokens
        }
    }

    /// What a call may hand out.
    const fn whole_budget(&self) -> Budget {
        Budget {
            issue_tokens: self.limits.scheduled_tokens,
            input_tokens: self.limits.batched_tokens,
            draft_slots: self.limits.speculation.draft_slots,
        }
    }

    /// Puts a request with `tokens` tokens into the pass.
    fn add_row(
        &mut self,
        call: &mut Call<'_>,
        slot: SlotId,
        tokens: u32,
        computed_before: u32,
        entry: Entry,
    ) {
        let request = &mut self.arena[slot];
        // What reaches beyond the known tokens is drafts; those that do not fit are dropped (R63).
        let known_tokens = request.known_tokens + request.placeholder_tokens;
        let drafts =
            (computed_before + tokens).saturating_sub(known_tokens).min(request.draft_tokens);
        request.draft_tokens = 0;
        request.is_padded &= entry != Entry::Running;
        call.budget.spend(tokens);
        call.plan.rows.push(Row {
            slot,
            request: request.id,
            tokens,
            drafts,
            is_padding: request.is_padded,
            computed_before,
            entry,
            is_chunk: false,
            is_decode: computed_before >= request.prompt_tokens && tokens - drafts == 1,
            emitted_tokens: 0,
            finished: false,
        });
    }

    /// Requests that run.
    fn running_requests(&self) -> u32 {
        self.running.len() as u32 + self.steady.size + self.leaving
    }

    /// What is scheduled counts as computed from here on (R15, R70).
    fn commit(&mut self, plan: &mut PassPlan) {
        for i in 0..plan.rows.len() {
            let row = &mut plan.rows[i];
            let request = &mut self.arena[row.slot];
            request.computed_tokens += row.tokens;
            request.flying_tokens += row.tokens;
            row.is_chunk =
                request.computed_tokens < request.known_tokens + request.placeholder_tokens;
            request.is_chunk = row.is_chunk;
            request.last_pass = plan.pass;
            if self.limits.asynchronous && !row.is_chunk {
                request.placeholder_tokens += 1 + row.drafts;
                request.draft_tokens = self.limits.speculation.drafts;
            }
            plan.has_new_work |= request.computed_tokens > request.recompute_tokens;
            let row = plan.rows[i];
            plan.add_work(&row);
        }
        self.requests_touched += plan.rows.len() as u64;
        self.steady.decode(plan, plan.pass, &self.arena);
        self.planned_passes += u64::from(!plan.is_empty());
    }
}

impl Scheduler for Vllm {
    fn enqueue(&mut self, arrival: Arrival) {
        let slot = self.arena.insert(&arrival);
        let RequestSpec { id, prompt_tokens, content, output, drafts, .. } = arrival.spec;
        let request = &self.arena[slot];
        let stops = request.output_tokens < request.max_tokens;
        let stop_after = stops.then(|| request.output_tokens.saturating_sub(1));
        if let Some(drafting) = &mut self.drafting {
            drafting.open(slot, id, drafts);
        }
        self.kv.open(slot, content, Segment::Prompt(id), prompt_tokens, output, stop_after);
        self.waiting.push(slot, &self.arena[slot]);
        self.requests_touched += 1;
    }

    fn schedule(&mut self, _now: SimTime, plan: &mut PassPlan, _outbox: &mut Outbox) {
        plan.clear();
        plan.pass = self.planned_passes;
        if self.lockstep {
            self.prepare_steady();
        }
        let mut call = Call {
            budget: self.whole_budget(),
            cap_tokens: self.long_prefill_cap(),
            holds_prefill: self.holds_prefill(),
            carries_prefill: false,
            runs_chunk: false,
            runs_any: false,
            plan,
        };
        if self.steady.size + self.leaving == 0 {
            self.schedule_running(&mut call);
        } else if !self.schedule_around_steady(&mut call) {
            self.dissolve_steady();
            self.schedule_running(&mut call);
        }
        // A call that had to preempt admits nobody (R23).
        if call.plan.preempted.is_empty() {
            self.schedule_waiting(&mut call);
            if !call.holds_prefill {
                self.interval.note_backlog(self.waiting.len() > 0);
            }
        } else {
            call.plan.blocked = Some(Blocked::Preempting);
        }
        let Call { plan, carries_prefill, .. } = call;
        if self.lockstep {
            // A head that is stuck is not looked at again, so the reason would be an old one.
            plan.blocked = None;
        }
        self.commit(plan);
        if !plan.has_no_work() {
            self.interval.note_pass(carries_prefill);
        }
        assert!(
            plan.prefill.new_tokens + plan.decode.query_tokens
                <= u64::from(self.limits.scheduled_tokens.min(self.limits.batched_tokens)),
            "a pass keeps its token budget"
        );
        assert!(self.running_requests() <= self.limits.running_max, "seats are kept");
    }

    fn complete(&mut self, plan: &mut PassPlan, span: PassSpan, outbox: &mut Outbox) {
        self.completed_passes = plan.pass + 1;
        self.restore_left_rows(plan);
        if plan.steady == 0 {
            self.complete_rows(&mut plan.rows, span, outbox);
            self.last_visible = span.end + self.detokenize;
        } else {
            self.complete_around_steady(plan, span, outbox);
        }
    }

    fn run_decodes(&mut self, clock: &mut DecodeClock<'_>) -> Result<(), EngineError> {
        self.run_steady(clock)
    }

    fn restore_plan(&self, plan: &mut PassPlan, back: u64, work: &DecodeWork) {
        self.steady.restore(plan, self.planned_passes - 1 - back, work);
    }

    fn depth(&self) -> usize {
        if self.limits.asynchronous { 2 } else { 1 }
    }

    fn levels(&self) -> Levels {
        Levels {
            running: self.running_requests(),
            waiting: self.waiting.len() as u32,
            free_blocks: self.kv.free_blocks(),
            usable_blocks: self.kv.usable_blocks(),
            cached_contents: self.kv.cached_contents(),
        }
    }

    fn unfinished(&self) -> Vec<Unserved> {
        let steady = self.steady.members(&self.arena).map(|member| member.slot);
        let leaving = self.ending.iter().filter(|ending| !ending.is_member);
        let slots = (self.running.iter().copied())
            .chain(steady)
            .chain(leaving.map(|ending| ending.member.slot))
            .chain(self.waiting.slots());
        self.arena.unserved(slots)
    }

    #[cfg(test)]
    fn kv_state(&self) -> String {
        self.kv.state()
    }

    fn effort(&self) -> Effort {
        Effort { requests_touched: self.requests_touched, blocks_touched: self.kv.touched_blocks() }
    }
}
