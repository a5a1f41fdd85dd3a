//! Taking in what a pass produced (R16 to R19, R72 to R76).

use super::Vllm;
use crate::base::ids::SlotId;
use crate::base::record::Finish;
use crate::engine::arena::Stage;
use crate::engine::outbox::Outbox;
use crate::engine::plan::{PassSpan, Row};

impl Vllm {
    /// Handles the rows of a completed pass in the order in which they were scheduled.
    pub(super) fn complete_rows(&mut self, rows: &mut [Row], span: PassSpan, outbox: &mut Outbox) {
        for row in rows.iter_mut() {
            self.complete_row(row, span, outbox);
        }
        self.clear_away(rows);
    }

    /// Handles one row of a completed pass.
    pub(super) fn complete_row(&mut self, row: &mut Row, span: PassSpan, outbox: &mut Outbox) {
        let slot = row.slot;
        let request = &mut self.arena[slot];
        self.requests_touched += 1;
        request.flying_tokens -= row.tokens;
        let is_stale = request.stale_tokens > 0;
        if is_stale {
            request.stale_tokens -= row.tokens;
        }
        // A stop token was seen while this pass ran: its share is ignored (R73).
        if request.stage == Stage::Finished {
            self.retire(slot);
            return;
        }
        if !row.is_decode {
            let computed_after = row.computed_before + row.tokens;
            request.note_prefill(span.start, span.end, computed_after);
        }
        let finish = if row.is_chunk {
            None
        } else {
            row.emitted_tokens = 1;
            self.take_token(slot, is_stale, span, outbox)
        };
        if self.limits.asynchronous && !is_stale {
            let request = &self.arena[slot];
            self.kv.label(slot, request.computed_tokens - request.flying_tokens);
        }
        if let Some(finish) = finish {
            row.finished = true;
            self.finish(slot, finish, outbox);
        }
    }

    /// Takes requests that finished with these rows out of the running list.
    pub(super) fn clear_away(&mut self, rows: &[Row]) {
        if rows.iter().any(|row| row.finished) {
            let arena = &self.arena;
            self.running.retain(|&slot| arena[slot].stage == Stage::Running);
            for row in rows.iter().filter(|row| row.finished) {
                self.retire(row.slot);
            }
        }
    }

    /// The request got its next output token.
    fn take_token(
        &mut self,
        slot: SlotId,
        is_stale: bool,
        span: PassSpan,
        outbox: &mut Outbox,
    ) -> Option<Finish> {
        let visible = span.end + self.detokenize;
        let request = &mut self.arena[slot];
        request.known_tokens += 1;
        // A preemption has forgotten the placeholders of outputs that were in flight (R74).
        if self.limits.asynchronous && !is_stale {
            request.placeholder_tokens -= 1;
        }
        request.note_token(visible, self.detokenize, outbox);
        request.finish_reason(self.limits.model_len_max)
    }

    /// The request is over; its blocks are free at once (R18). The caller takes it out of the
    /// running list.
    pub(super) fn finish(&mut self, slot: SlotId, finish: Finish, outbox: &mut Outbox) {
        self.kv.release(slot);
        self.kv.close(slot);
        let request = &mut self.arena[slot];
        if request.stage == Stage::Waiting {
            // A stale output can end a request that waits to be resumed (R75).
            self.waiting.remove(slot, request);
        }
        request.stage = Stage::Finished;
        outbox.finished.push(request.record(finish));
    }

    /// Gives the slot of a finished request back once no pass in flight mentions it.
    pub(super) fn retire(&mut self, slot: SlotId) {
        if self.arena[slot].flying_tokens == 0 {
            self.arena.remove(slot);
        }
    }
}
