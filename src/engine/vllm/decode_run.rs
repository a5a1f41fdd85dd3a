//! Runs of passes in which every running request is in the set: nothing is planned, only counted.
//!
//! A run lasts until a member's last token comes, a block is missing, or the clock's horizon,
//! before which somebody may arrive. Requests that wait do not end it if they cannot be admitted
//! in it.

use super::Vllm;
use super::waiting::Offer;
use crate::base::time::SimTime;
use crate::engine::decode_clock::{DecodeClock, Standing};
use crate::engine::error::EngineError;

impl Vllm {
    /// Runs passes of the whole set, from the next one on.
    pub(super) fn run_steady(&mut self, clock: &mut DecodeClock<'_>) -> Result<(), EngineError> {
        let Some(last_pass) = self.last_steady_pass() else { return Ok(()) };
        let usable_blocks = self.kv.usable_blocks();
        let standing = Standing {
            used_blocks: 0,
            running: self.running_requests(),
            waiting: self.waiting.len() as u32,
        };
        let size = self.steady.size;
        let burst_tokens = self.steady.stride.burst_tokens;
        let mut work = self.steady.work(self.planned_passes, &self.arena);
        while self.planned_passes <= last_pass && clock.may_plan() {
            // A block of the stuck head's hit was reused and stands elsewhere now.
            if standing.waiting > 0 && self.kv.has_news() {
                break;
            }
            if !self.take_blocks_in_step() {
                break;
            }
            let used_blocks = usable_blocks - self.kv.free_blocks();
            clock.plan(&work, Standing { used_blocks, ..standing })?;
            self.planned_passes += 1;
            self.interval.note_pass(false);
            self.steady.advance();
            work.kv_tokens += u64::from(size) * u64::from(burst_tokens);
            work.longest_kv_tokens += burst_tokens;
            let Some(end) = clock.complete() else { break };
            self.complete_in_step(clock, end + self.detokenize);
        }
        Ok(())
    }

    /// The last pass that the whole set, and nobody else, is sure to be in; `None` if not even
    /// the next one.
    fn last_steady_pass(&mut self) -> Option<u64> {
        let only_set = self.lockstep
            && self.running.is_empty()
            && self.ending.is_empty()
            && self.in_vain.is_empty()
            && self.left_rows.is_none()
            && self.steady.size > 0;
        if !only_set {
            return None;
        }
        let mut budget = self.whole_budget();
        if !budget.spend_on(self.steady.size, self.steady.stride.query_tokens) {
            return None;
        }
        let waiting = self.waiting.len() as u32;
        let budget_tokens = if budget.is_spent() { 0 } else { budget.tokens() };
        let nobody_enters = budget_tokens == 0
            || self.steady.size >= self.limits.active_max
            || self.waiting.head().is_none_or(|head| {
                let cap_tokens = self.long_prefill_cap();
                // What is labelled in a pass of the run is not looked at before the next.
                !self.kv.expects_news()
                    && self.is_stuck(head, Offer::in_step(budget_tokens, cap_tokens))
            });
        if !nobody_enters || !self.interval.only_counts(waiting) {
            return None;
        }
        // The pass with a last token is completed by itself. With two passes, the one behind it
        // is planned before that, and by itself too.
        let first_end = self.steady.first_end(&self.arena)?;
        let last_pass =
            if self.limits.asynchronous { first_end } else { first_end.checked_sub(1)? };
        (last_pass >= self.planned_passes).then_some(last_pass)
    }

    /// Gives members the blocks they need in the next pass, or says that there are too few.
    fn take_blocks_in_step(&mut self) -> bool {
        let pass = self.planned_passes;
        let needed = self.steady.blocks_needed(pass);
        if needed > self.kv.free_blocks() {
            return false;
        }
        if !self.kv.has_identity() {
            self.kv.take_counted(needed);
            return true;
        }
        self.note_block_events(pass);
        let events = std::mem::take(&mut self.scratch.events);
        events.iter().for_each(|&event| self.do_when_planning(event));
        self.scratch.events = events;
        true
    }

    /// A pass of the run has ended; its tokens are `visible`.
    fn complete_in_step(&mut self, clock: &mut DecodeClock<'_>, visible: SimTime) {
        let pass = self.completed_passes;
        self.completed_passes += 1;
        self.note_bursts(self.steady.counted, visible, clock.outbox);
        self.note_labels_at_end(pass);
        for place in 0..self.scratch.events.len() {
            self.label_at_end(self.scratch.events[place].member.slot);
        }
    }
}
