//! The scheduler of TensorRT-LLM between releases 1.1 and 1.3 (`PyExecutor`, `CapacityScheduler`, `MicroBatchScheduler`). Rule numbers (A1 ...) are those of docs/engines/trtllm.md.
//!
//! A request is in its context phase until its prompt is computed, then in its generation phase. One call runs
//! through:
//!
//! 1. Requests from the queue become active, as long as there are seats (A1).
//! 2. [`capacity`]: whose KV has a place in the pool; who has lost it is paused.
//! 3. [`micro_batch`]: who of those is in the pass. Prompts share what is left of its tokens ([`chunking`]), or wait
//!    for more of them ([`waits`]).
//! 4. Blocks are handed out, prompts first, and what is scheduled counts as computed.
//!
//! Later [`output`] takes in what the pass produced.
//!
//! Not here: prices (see `timing`), when a pass runs (see `engine::driver`), and how many drafts are accepted (see
//! `engine::drafting`).

mod capacity;
mod chunking;
pub(crate) mod config;
mod decode_run;
mod lockstep;
mod micro_batch;
mod output;
pub(crate) mod speculative;
mod waits;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use crate::base::detail::Blocked;
use crate::base::ids::SlotId;
use crate::base::record::Unserved;
use crate::base::time::{SimDuration, SimTime};
use crate::kv::blocks::BlockKv;
use crate::timing::work::DecodeWork;
use crate::workload::request::{RequestSpec, Segment};

use super::arena::{Arena, Arrival, Request, Stage};
use super::decode_clock::DecodeClock;
use super::drafting::Drafting;
use super::error::EngineError;
use super::outbox::Outbox;
use super::plan::{Entry, PassPlan, PassSpan, Row};
use super::steady::{SteadySet, Stride};
use super::{Advance, Effort, Levels, Scheduler};
use chunking::Share;
use config::{Limits, TrtllmConfig};
use lockstep::Lockstep;
use waits::Waits;

/// One engine's scheduler, its requests and its KV.
#[derive(Clone, Debug)]
pub(crate) struct Trtllm {
    limits: Limits,
    detokenize: SimDuration,
    arena: Arena,
    kv: BlockKv,
    /// What becomes of drafts; absent without speculation.
    drafting: Option<Drafting>,
    /// Active requests, in the order in which they became it (A1), but for those that decode in step.
    active: Vec<SlotId>,
    queue: VecDeque<SlotId>,
    waits: Waits,
    /// Blocks that requests in the generation phase may still need (K4).
    reserved_blocks: u64,
    /// Requests that hold KV.
    started: u32,
    lockstep: Lockstep,
    steady: SteadySet,
    /// What prompts that have not begun are missing, as far as this call has come.
    blocked: Option<Blocked>,
    scratch: Scratch,
    planned_passes: u64,
    completed_passes: u64,
    /// Requests that became active so far.
    activations: u64,
    requests_touched: u64,
}

/// Buffers that keep their memory from pass to pass.
#[derive(Clone, Debug, Default)]
struct Scratch {
    /// Whose KV has a place, in order.
    fitting: Vec<SlotId>,
    /// Prompts in the pass.
    contexts: Vec<Share>,
    /// Who decodes in it.
    generations: Vec<SlotId>,
    /// Blocks of content that prompts are about to compute (K7).
    contributed: Vec<(u32, u32)>,
}

/// What a request is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Its prompt is to be computed, from the start.
    FirstContext,
    /// The next part of its prompt is.
    Context,
    /// It decodes.
    Generation,
    /// The pass in flight is sure to bring its last token (O2).
    ToComplete,
}

impl Trtllm {
    /// An idle scheduler. `config` has no absent values; a token becomes visible `detokenize` after its pass ends.
    /// `advance` chooses how passes are computed, not what comes out. `drafting` says what becomes of drafts, if there
    /// is speculation; then nobody decodes in step.
    pub(crate) fn new(
        config: &TrtllmConfig,
        drafting: Option<Drafting>,
        detokenize: SimDuration,
        advance: Advance,
    ) -> Self {
        let limits = Limits::of(config);
        assert_eq!(drafting.is_some(), limits.speculation.is_on());
        let advance = if drafting.is_some() { Advance::OneByOne } else { advance };
        Self {
            limits,
            detokenize,
            arena: Arena::default(),
            kv: BlockKv::new(limits.usable_blocks + 1, limits.block_tokens, limits.reuses_blocks),
            drafting,
            active: Vec::new(),
            queue: VecDeque::new(),
            waits: Waits::new(&limits),
            reserved_blocks: 0,
            started: 0,
            lockstep: Lockstep::new(advance),
            steady: SteadySet::new(limits.block_tokens, Stride::TOKEN),
            blocked: None,
            scratch: Scratch::default(),
            planned_passes: 0,
            completed_passes: 0,
            activations: 0,
            requests_touched: 0,
        }
    }

    /// Requests become active, first come, first served, as long as there are seats (A1).
    fn activate(&mut self) {
        while self.active_requests() < self.limits.active_max
            && let Some(slot) = self.queue.pop_front()
        {
            self.arena[slot].order = self.activations;
            self.activations += 1;
            self.active.push(slot);
            self.requests_touched += 1;
        }
    }

    /// Takes down why those who wait are not in the pass. In step that would cost a look at each pass of a run.
    fn note_blocked(&self, plan: &mut PassPlan) {
        if self.lockstep.is_on() {
            return;
        }
        let waits = |&slot: &SlotId| self.arena[slot].stage == Stage::Waiting;
        plan.blocked = if self.active.iter().any(waits) {
            self.blocked.or(Some(Blocked::Content))
        } else if self.queue.is_empty() {
            None
        } else {
            Some(Blocked::Seats)
        };
    }

    /// Requests with a seat.
    fn active_requests(&self) -> u32 {
        self.active.len() as u32 + self.steady.size + self.lockstep.leaving
    }

    fn phase(&self, slot: SlotId) -> Phase {
        let request = &self.arena[slot];
        match request.stage {
            Stage::Waiting => Phase::FirstContext,
            Stage::Running if request.is_chunk => Phase::Context,
            _ if self.is_sure_to_end(request) => Phase::ToComplete,
            _ => Phase::Generation,
        }
    }

    /// Whether passes in flight are sure to bring a request to its limit: each brings a token at least (O2, S6).
    fn is_sure_to_end(&self, request: &Request) -> bool {
        let passes = request.placeholder_tokens.div_ceil(self.limits.speculation.round_tokens());
        passes > 0 && request.generated_tokens() + passes >= request.max_tokens
    }

    /// Blocks that a request holds when its last token is there (K3).
    fn blocks_to_completion(&self, request: &Request) -> u32 {
        let tokens = request.prompt_tokens.saturating_add(request.max_tokens);
        tokens.min(self.limits.sequence_tokens).div_ceil(self.limits.block_tokens)
    }

    /// Blocks that a request holds with KV of its first `tokens` tokens: nobody holds any beyond its end (S3, S4).
    fn blocks_of(&self, request: &Request, tokens: u32) -> u32 {
        let tokens = tokens.saturating_add(self.limits.speculation.extra_tokens);
        tokens.div_ceil(self.limits.block_tokens).min(self.blocks_to_completion(request))
    }

    /// Blocks that a request may still need.
    fn blocks_remaining(&self, slot: SlotId) -> u32 {
        let all = self.blocks_to_completion(&self.arena[slot]);
        all.saturating_sub(self.kv.held_blocks(slot))
    }

    /// Free blocks that nobody who decodes may come to need (K4).
    fn unreserved_blocks(&self) -> u64 {
        u64::from(self.kv.free_blocks()) - self.reserved_blocks
    }

    /// Gives the prompts of the pass their blocks, and their rows.
    fn serve_contexts(&mut self, plan: &mut PassPlan) {
        let contexts = std::mem::take(&mut self.scratch.contexts);
        for share in &contexts {
            let Share { slot, mut tokens, .. } = *share;
            let first = self.phase(slot) == Phase::FirstContext;
            let mut entry = Entry::Running;
            if first {
                (tokens, entry) = self.start(slot, tokens);
            }
            let computed_before = self.arena[slot].computed_tokens;
            let request = self.arena[slot].id;
            let row = Row::decode(slot, request, computed_before);
            plan.rows.push(Row { tokens, entry, is_decode: false, ..row });
        }
        self.scratch.contexts = contexts;
    }

    /// A prompt is computed from the start on: it holds blocks for all of its tokens from now on (K5). Says how many
    /// of the `tokens` that it was given it computes behind what it finds in the cache, and how it came in.
    fn start(&mut self, slot: SlotId, tokens: u32) -> (u32, Entry) {
        let known_tokens = self.arena[slot].known_tokens;
        let block_tokens = self.limits.block_tokens;
        let hit = self.kv.look_up(slot, known_tokens, false);
        let hit_tokens = hit.blocks * block_tokens;
        let blocks = self.blocks_of(&self.arena[slot], known_tokens);
        self.kv.admit(slot, hit, blocks - hit.blocks);
        let request = &mut self.arena[slot];
        request.stage = Stage::Running;
        request.computed_tokens = hit_tokens;
        let entry = if request.preemptions > 0 {
            Entry::Resumed
        } else {
            request.cached_tokens = hit_tokens;
            Entry::New
        };
        self.started += 1;
        // A chunk moves on by the hit, and ends with a block unless it ends the prompt (C5).
        let left = known_tokens - hit_tokens;
        if tokens >= left {
            return (left, entry);
        }
        let end = hit_tokens + tokens;
        (end - end % block_tokens - hit_tokens, entry)
    }

    /// Gives somebody who decodes in the pass the blocks that it may need, and its row.
    fn serve_generation(&mut self, slot: SlotId, plan: &mut PassPlan) {
        let new_blocks = self.blocks_for_a_round(slot);
        self.kv.grow(slot, new_blocks);
        self.reserved_blocks -= u64::from(new_blocks);
        let drafts = self.find_drafts(slot);
        let request = &self.arena[slot];
        let row = Row::decode(slot, request.id, request.computed_tokens);
        plan.rows.push(Row { tokens: 1 + drafts, drafts, ..row });
    }

    /// Blocks that a request in the generation phase lacks for one more token and its drafts (S4).
    fn blocks_for_a_round(&self, slot: SlotId) -> u32 {
        let request = &self.arena[slot];
        let tokens = request.computed_tokens + self.limits.speculation.round_tokens();
        self.blocks_of(request, tokens).saturating_sub(self.kv.held_blocks(slot))
    }

    /// What is scheduled counts as computed from here on.
    fn commit(&mut self, plan: &mut PassPlan) {
        for i in 0..plan.rows.len() {
            let row = &mut plan.rows[i];
            let request = &mut self.arena[row.slot];
            request.computed_tokens += row.tokens;
            request.flying_tokens += row.tokens;
            request.last_pass = plan.pass;
            row.is_chunk =
                request.computed_tokens < request.known_tokens + request.placeholder_tokens;
            request.is_chunk = row.is_chunk;
            if self.limits.overlaps && !row.is_chunk {
                request.placeholder_tokens += 1 + row.drafts;
            }
            plan.has_new_work |= request.computed_tokens > request.recompute_tokens;
            let row = plan.rows[i];
            plan.add_work(&row);
            self.note_phase(&row);
        }
        self.requests_touched += plan.rows.len() as u64;
        self.steady.decode(plan, plan.pass, &self.arena);
        self.planned_passes += u64::from(!plan.is_empty());
    }

    /// A row of the pass was planned: its request may have gone on to the next phase, with which blocks are reserved
    /// for it, or no more (K4).
    fn note_phase(&mut self, row: &Row) {
        let blocks = u64::from(self.blocks_remaining(row.slot));
        match (row.is_decode, self.phase(row.slot)) {
            (false, Phase::Generation) => self.reserved_blocks += blocks,
            (true, Phase::ToComplete) => self.reserved_blocks -= blocks,
            _ => {}
        }
    }
}

impl Trtllm {
    /// Whether as many blocks are reserved as those who decode may need; of those in step nobody knows one by one.
    fn keeps_reservations(&self) -> bool {
        let reserved = self.active.iter().map(|&slot| self.reservation(slot));
        self.steady.size > 0 || reserved.sum::<u64>() == self.reserved_blocks
    }
}

impl Scheduler for Trtllm {
    fn enqueue(&mut self, arrival: Arrival) {
        let slot = self.arena.insert(&arrival);
        let RequestSpec { id, prompt_tokens, content, output, drafts, .. } = arrival.spec;
        if let Some(drafting) = &mut self.drafting {
            drafting.open(slot, id, drafts);
        }
        self.kv.open(slot, content, Segment::Prompt(id), prompt_tokens, output, None);
        self.queue.push_back(slot);
        self.requests_touched += 1;
    }

    fn schedule(&mut self, _now: SimTime, plan: &mut PassPlan, _outbox: &mut Outbox) {
        plan.clear();
        plan.pass = self.planned_passes;
        self.blocked = None;
        self.activate();
        self.prepare_steady();
        self.choose_fitting(plan);
        self.choose_batch();
        self.serve_contexts(plan);
        self.serve_around_steady(plan);
        self.commit(plan);
        self.note_blocked(plan);
        assert!(
            plan.prefill.new_tokens + plan.decode.query_tokens
                <= u64::from(self.limits.pass_tokens),
            "a pass keeps its token budget"
        );
        debug_assert!(self.keeps_reservations(), "what is reserved is what is needed");
    }

    fn complete(&mut self, plan: &mut PassPlan, span: PassSpan, outbox: &mut Outbox) {
        self.completed_passes = plan.pass + 1;
        self.restore_left_rows(plan);
        self.complete_around_steady(plan, span, outbox);
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
            running: self.started,
            waiting: self.active_requests() - self.started + self.queue.len() as u32,
            free_blocks: self.kv.free_blocks(),
            usable_blocks: self.kv.usable_blocks(),
            cached_contents: self.kv.cached_contents(),
        }
    }

    fn unfinished(&self) -> Vec<Unserved> {
        let steady = self.steady.members(&self.arena).map(|member| member.slot);
        let others = self.active.iter().chain(&self.queue).copied();
        self.arena.unserved(others.chain(self.lockstep.leaving_slots()).chain(steady))
    }

    #[cfg(test)]
    fn kv_state(&self) -> String {
        self.kv.state()
    }

    fn effort(&self) -> Effort {
        Effort { requests_touched: self.requests_touched, blocks_touched: self.kv.touched_blocks() }
    }
}
