//! Admission: whom a prefill pass takes from the queue (E0 to E8, K1 to K3, W1, W2).

use std::cmp::Ordering;

use super::Sglang;
use super::batch::LastPrefill;
use super::config::SchedulePolicy;
use super::fixed_length::Reservation;
use super::part::clipped;
use crate::base::detail::Blocked;
use crate::base::ids::SlotId;
use crate::base::time::SimTime;
use crate::engine::arena::Stage;
use crate::engine::outbox::Outbox;
use crate::engine::plan::{Entry, PassPlan, Row};
use crate::kv::radix::Found;

/// What one prefill pass may still take, and whom it has taken.
#[derive(Clone, Debug)]
pub(super) struct Adder {
    /// Tokens until `max_prefill_tokens`.
    pub(super) input_tokens: i64,
    /// Tokens until the chunk size, if there is one.
    pub(super) chunk_tokens: Option<i64>,
    /// Tokens of the pool that are spoken for, running outputs to come included.
    pub(super) total_offset: Offset,
    /// Tokens of the pool that this pass takes.
    pub(super) now_offset: i64,
    /// Who was admitted, with the tokens to compute.
    admitted: Vec<(SlotId, u32)>,
    /// Whether the first of them went on with its prompt.
    continues: bool,
    new_chunked: Option<SlotId>,
    /// What requests of a fixed length reserve, from the first such candidate on (X2).
    pub(super) reservations: Option<Vec<Reservation>>,
    /// Who lost its place to somebody better (Q3).
    pub(super) displaced: Vec<SlotId>,
}

/// Tokens of the pool that are spoken for: a double that the engine forms in a certain order, so that a
/// budget that ends on a whole token can depend on how it rounds.
#[derive(Clone, Debug)]
pub(super) struct Offset {
    /// Its value, or close to it.
    near: f64,
    /// What was charged so far, in order, as long as the value is not exact.
    charged: Option<Vec<f64>>,
}

impl Offset {
    /// How much rounding may have moved it.
    fn slack(&self) -> f64 {
        if self.charged.is_none() { 0.0 } else { 1e-9 * (1.0 + self.near.abs()) }
    }

    fn charge(&mut self, tokens: f64) {
        self.near += tokens;
        if let Some(charged) = &mut self.charged {
            charged.push(tokens);
        }
    }
}

/// What came of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Candidate {
    /// It is in, and there is room for another.
    Admitted,
    /// It is in, or not, and nobody else will be.
    Stop,
    /// The same, for want of memory.
    NoMemory,
}

impl Adder {
    /// Tokens of the pool that are left now.
    pub(super) fn rem_now(&self, idle_tokens: u32) -> i64 {
        i64::from(idle_tokens) - self.now_offset
    }

    /// Takes a request with `tokens` tokens to compute. It is charged for them in whole pages, and for
    /// `output_tokens` tokens of output to come (E7).
    fn take(&mut self, slot: SlotId, tokens: u32, page_tokens: u32, output_tokens: u32) {
        self.admitted.push((slot, tokens));
        let charged = i64::from(tokens.next_multiple_of(page_tokens));
        self.input_tokens -= charged;
        if let Some(chunk_tokens) = &mut self.chunk_tokens {
            *chunk_tokens -= charged;
        }
        let taken = charged + i64::from(page_tokens);
        self.now_offset += taken;
        self.total_offset.charge((taken + i64::from(output_tokens)) as f64);
    }

    /// What a running request may still use is free: it loses its place.
    pub(super) fn release(&mut self, tokens: f64) {
        self.total_offset.charge(-tokens);
    }

    /// Who was admitted so far.
    pub(super) fn admitted(&self) -> impl Iterator<Item = SlotId> + '_ {
        self.admitted.iter().map(|&(slot, _)| slot)
    }
}

impl Sglang {
    /// Plans a prefill pass, if anybody can be admitted (S4).
    pub(super) fn schedule_prefill(
        &mut self,
        now: SimTime,
        plan: &mut PassPlan,
        outbox: &mut Outbox,
    ) -> bool {
        if self.batch_len() == 0 || self.limits.preempts {
            self.is_full = false;
        }
        if self.chunked.is_none() {
            if self.is_full || self.queue.is_empty() {
                self.blocked = self.full_for;
                return false;
            }
            if !self.limits.preempts && self.free_slots(false) <= 0 {
                self.is_full = true;
                self.full_for = Some(Blocked::Seats);
                self.blocked = self.full_for;
                return false;
            }
        }
        self.sort_queue();
        let mut adder = self.adder();
        if let Some(slot) = self.chunked {
            self.continue_chunk(slot, &mut adder);
        }
        // Nobody overtakes a chunked request for which there is no room.
        if self.chunked.is_none() || adder.continues {
            self.admit_waiting(&mut adder);
        } else {
            self.blocked = Some(Blocked::KvBlocks);
        }
        for slot in std::mem::take(&mut adder.displaced) {
            self.enter_queue(slot, now, outbox);
        }
        if adder.admitted.is_empty() {
            return false;
        }
        self.launch_prefill(adder, plan);
        true
    }

    /// Fresh budgets (E, E3, W1).
    fn adder(&mut self) -> Adder {
        let mixed = self.mixed_tokens();
        let (reserved, charged) = if self.steady.size > 0 {
            let reserved = self.reserved_in_step();
            debug_assert!(
                (reserved - self.reserved_one_by_one()).abs() <= reserved.mul_add(1e-12, 1e-6)
            );
            (reserved, Some(Vec::new()))
        } else {
            (self.reserved_one_by_one(), None)
        };
        let mixed_tokens = i64::from(mixed);
        Adder {
            input_tokens: i64::from(self.limits.prefill_tokens) - mixed_tokens,
            chunk_tokens: self.limits.chunk_tokens.map(|tokens| i64::from(tokens) - mixed_tokens),
            total_offset: Offset { near: f64::from(mixed) + reserved, charged },
            now_offset: mixed_tokens,
            admitted: Vec::new(),
            continues: false,
            new_chunked: None,
            reservations: None,
            displaced: Vec::new(),
        }
    }

    /// Tokens that running requests take of a prefill pass (W1).
    fn mixed_tokens(&self) -> u32 {
        if self.limits.mixes { self.batch_len() } else { 0 }
    }

    /// How `tokens` compare with the tokens of the pool that are left over for good (`rem_total`).
    pub(super) fn compare_with_rem_total(&mut self, tokens: f64, adder: &mut Adder) -> Ordering {
        let near = f64::from(self.memory.idle_tokens()) - adder.total_offset.near;
        if (tokens - near).abs() > adder.total_offset.slack() {
            return tokens.total_cmp(&near);
        }
        let exact = self.rem_total(adder);
        tokens.partial_cmp(&exact).expect("budgets are finite")
    }

    /// The tokens of the pool that are left over for good, as the engine rounds them.
    pub(super) fn rem_total(&mut self, adder: &mut Adder) -> f64 {
        if let Some(charged) = adder.total_offset.charged.take() {
            self.requests_touched += u64::from(self.steady.size);
            let reserved = f64::from(self.mixed_tokens()) + self.reserved_one_by_one();
            adder.total_offset.near =
                charged.into_iter().fold(reserved, |sum, tokens| sum + tokens);
        }
        f64::from(self.memory.idle_tokens()) - adder.total_offset.near
    }

    /// Whether another candidate may be looked at (E0, E8).
    fn state(&mut self, adder: &mut Adder) -> Candidate {
        let rem_now = adder.rem_now(self.memory.idle_tokens());
        if rem_now <= 0 || self.compare_with_rem_total(0.0, adder).is_ge() {
            Candidate::NoMemory
        } else if adder.input_tokens <= 0 || adder.chunk_tokens.is_some_and(|tokens| tokens <= 0) {
            Candidate::Stop
        } else {
            Candidate::Admitted
        }
    }

    /// Seats that are left (E2), if somebody who is admitted holds a row already or not.
    fn free_slots(&self, continues: bool) -> i64 {
        let seats = i64::from(self.limits.running_max);
        let by_running = seats - i64::from(self.batch_len());
        let by_rows = seats - i64::from(self.rows_held) + i64::from(continues);
        by_running.min(by_rows)
    }

    /// The next chunk of the prompt that is being computed (K3).
    fn continue_chunk(&mut self, slot: SlotId, adder: &mut Adder) {
        let part = &self.parts[slot.index()];
        let rest = part.length(part.outputs) - self.arena[slot].computed_tokens;
        let limit_tokens = part.limit_tokens;
        let mut budget = adder.chunk_tokens.expect("only chunking makes a chunked request");
        if self.limits.policy == SchedulePolicy::ShortestPrefillFirst {
            budget -= self.kept_free_of_chunk(rest, budget);
        }
        let bound = if self.compare_with_rem_total(budget as f64, adder).is_ge() {
            self.rem_total(adder).floor() as i64
        } else {
            budget
        };
        let bound = if bound <= 0 { budget } else { bound };
        // The engine itself would fail here for want of memory; it can compute what there is room for.
        let room = i64::from(self.memory.idle_tokens());
        let tokens = i64::from(rest).min(bound).min(room).max(0) as u32;
        // Nothing for now: running requests decode, and give back memory when they end.
        if tokens == 0 {
            return;
        }
        let is_last = tokens == rest;
        let output_tokens = if is_last { clipped(limit_tokens) } else { 0 };
        adder.take(slot, tokens, self.limits.page_tokens, output_tokens);
        adder.continues = true;
        if is_last {
            self.chunked = None;
        }
    }

    /// What the shortest waiting prompts need of a chunk's budget (P8).
    fn kept_free_of_chunk(&self, rest: u32, budget: i64) -> i64 {
        let mut kept = 0;
        for &slot in &self.queue {
            let tokens = self.uncached(slot).max(1);
            let more = i64::from(self.memory.ceil(tokens));
            if tokens >= rest || kept + more + i64::from(self.limits.page_tokens) > budget {
                break;
            }
            kept += more;
        }
        kept
    }

    /// Takes requests from the head of the queue until one does not fit.
    fn admit_waiting(&mut self, adder: &mut Adder) {
        while let Some(&slot) = self.queue.front() {
            // A shortage of memory alone does not stop here: the candidate finds it (E4).
            if self.state(adder) == Candidate::Stop {
                self.blocked = Some(Blocked::Budget);
                break;
            }
            if i64::from(adder.admitted.len() as u32) >= self.free_slots(adder.continues) {
                self.is_full = true;
                self.full_for = Some(Blocked::Seats);
            }
            if self.is_full && !(self.limits.preempts && self.displace_for(slot, adder)) {
                self.blocked = self.full_for;
                break;
            }
            match self.try_admit(slot, adder) {
                Candidate::Admitted => {}
                Candidate::Stop => {
                    let prompts_max = self.limits.prefill_requests_max as usize;
                    let has_place = adder.admitted.len() < prompts_max;
                    let missing = if has_place { Blocked::Budget } else { Blocked::Prompts };
                    self.blocked = Some(missing);
                    break;
                }
                Candidate::NoMemory => {
                    self.is_full = !adder.admitted.is_empty() || self.batch_len() > 0;
                    self.full_for = Some(Blocked::KvBlocks);
                    self.blocked = self.full_for;
                    break;
                }
            }
        }
    }

    /// Admits the head of the queue if it fits (E1, E4 to E8).
    fn try_admit(&mut self, slot: SlotId, adder: &mut Adder) -> Candidate {
        self.requests_touched += 1;
        let part = &mut self.parts[slot.index()];
        let length = part.length(part.outputs);
        let found = self.memory.look_up(&part.pieces, length - 1);
        part.looked_up = (length, found.tokens);
        if adder.admitted.len() >= self.limits.prefill_requests_max as usize {
            return Candidate::Stop;
        }
        let uncached = length - found.tokens;
        let fits = if !self.limits.radix_cache && part.ignores_eos {
            self.fit_fixed_length(slot, uncached, adder)
        } else {
            self.fit(slot, found, uncached, adder)
        };
        match fits {
            Ok(tokens) => {
                self.admit(slot, found, tokens, adder);
                self.state(adder)
            }
            Err(why) => why,
        }
    }

    /// How many tokens of a candidate are computed now, or why it is not admitted. Holds its prefix.
    fn fit(
        &mut self,
        slot: SlotId,
        found: Found,
        uncached: u32,
        adder: &mut Adder,
    ) -> Result<u32, Candidate> {
        let part = &mut self.parts[slot.index()];
        let output_tokens = part.expected_outputs(part.outputs);
        let need =
            i64::from(uncached) + i64::from(output_tokens) + i64::from(self.limits.page_tokens);
        let need = need as f64;
        // What is held is no longer evictable, so it has to fit once more.
        self.memory.hold(part, found);
        let charged = i64::from(self.memory.ceil(uncached));
        let tokens = if self.compare_with_rem_total(need, adder).is_ge() {
            Err(Candidate::NoMemory)
        } else if let Some(chunk_tokens) = adder.chunk_tokens {
            if charged <= chunk_tokens {
                Ok(uncached)
            } else {
                let page_tokens = i64::from(self.limits.page_tokens);
                let tokens = chunk_tokens / page_tokens * page_tokens;
                let has_chunked = self.chunked.is_some();
                if tokens <= 0 || has_chunked { Err(Candidate::Stop) } else { Ok(tokens as u32) }
            }
        } else if !adder.admitted.is_empty() && charged >= adder.input_tokens {
            Err(Candidate::Stop)
        } else {
            Ok(uncached)
        };
        if tokens.is_err() {
            self.memory.let_go(&mut self.parts[slot.index()]);
        }
        tokens
    }

    /// The head of the queue is in, with `tokens` tokens to compute behind its prefix.
    fn admit(&mut self, slot: SlotId, found: Found, tokens: u32, adder: &mut Adder) {
        self.queue.pop_front();
        let part = &mut self.parts[slot.index()];
        let is_whole = found.tokens + tokens == part.length(part.outputs);
        let output_tokens = if is_whole { clipped(part.limit_tokens) } else { 0 };
        let request = &mut self.arena[slot];
        request.stage = Stage::Running;
        request.computed_tokens = found.tokens;
        if request.preemptions == 0 && request.first_scheduled.is_none() {
            request.cached_tokens = found.tokens;
        }
        adder.take(slot, tokens, self.limits.page_tokens, output_tokens);
        if !is_whole {
            adder.new_chunked = Some(slot);
        }
    }

    /// Takes memory for the admitted and puts them into the pass (M3); running requests may decode in
    /// it (W2).
    fn launch_prefill(&mut self, adder: Adder, plan: &mut PassPlan) {
        let Adder { admitted, continues, new_chunked, .. } = adder;
        if new_chunked.is_some() {
            self.chunked = new_chunked;
        }
        let page_tokens = self.limits.page_tokens;
        let spare = if page_tokens > 1 { page_tokens } else { 0 };
        let room = admitted.iter().map(|&(_, tokens)| u64::from(tokens) + u64::from(spare)).sum();
        self.memory.make_room(room);
        for (index, &(slot, tokens)) in admitted.iter().enumerate() {
            let request = &mut self.arena[slot];
            let before = request.computed_tokens;
            request.computed_tokens += tokens;
            let taken = self.memory.ceil(before + tokens) - self.memory.ceil(before);
            self.memory.take(taken);
            let is_chunk = Some(slot) == self.chunked;
            let entry = if continues && index == 0 {
                Entry::Running
            } else if request.preemptions > 0 {
                Entry::Resumed
            } else {
                Entry::New
            };
            plan.rows.push(Row {
                slot,
                request: request.id,
                tokens,
                computed_before: before,
                entry,
                is_chunk,
                is_decode: false,
                drafts: 0,
                is_padding: false,
                emitted_tokens: 0,
                finished: false,
            });
        }
        self.rows_held += admitted.len() as u32 - u32::from(continues);
        let extend_tokens = admitted.iter().map(|&(_, tokens)| u64::from(tokens)).sum::<u64>();
        let decodes = if self.limits.mixes { self.mix_in(plan) } else { 0 };
        self.last = Some(LastPrefill {
            rows: admitted.into_iter().map(|(slot, _)| slot).collect(),
            chunked: self.chunked,
            is_mixed: decodes > 0,
            extend_tokens: extend_tokens + u64::from(decodes),
        });
    }

    /// Lets running requests decode in a prefill pass, if there is room, and says how many do (W2).
    fn mix_in(&mut self, plan: &mut PassPlan) -> u32 {
        if self.batch_len() == 0 {
            return 0;
        }
        if self.drop_ending() > 0 {
            self.is_full = false;
        }
        if self.batch_len() == 0 || !self.decode_fits() {
            return 0;
        }
        self.decode_all(plan);
        self.batch_len()
    }
}
