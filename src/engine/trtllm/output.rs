//! Taking in what a pass produced (O1 to O5, S5 to S7).

use super::Trtllm;
use crate::base::ids::SlotId;
use crate::base::record::Finish;
use crate::engine::arena::Stage;
use crate::engine::outbox::Outbox;
use crate::engine::plan::{PassSpan, Row};

impl Trtllm {
    /// Handles one row of a completed pass.
    pub(super) fn complete_row(&mut self, row: &mut Row, span: PassSpan, outbox: &mut Outbox) {
        let slot = row.slot;
        let request = &mut self.arena[slot];
        self.requests_touched += 1;
        let is_stale = request.land(row.tokens);
        // A stop token was seen while this pass ran: its share is ignored (O3).
        if request.stage == Stage::Finished {
            self.retire(slot);
            return;
        }
        if !row.is_decode {
            request.note_prefill(span.start, span.end, row.computed_before + row.tokens);
        }
        if row.is_chunk {
            return;
        }
        let prompt_tokens = request.known_tokens;
        let before = self.reservation(slot);
        let finish = self.take_burst(row, is_stale, span, outbox);
        let after = if finish.is_some() { 0 } else { self.reservation(slot) };
        self.reserved_blocks = self.reserved_blocks + after - before;
        if let Some(finish) = finish {
            row.finished = true;
            self.end(slot, finish, outbox);
            return;
        }
        if !row.is_decode && !is_stale {
            // The context phase is over: its whole blocks can be reused from now on (K5).
            self.kv.label(slot, prompt_tokens - 1);
        }
    }

    /// Takes requests that finished with these rows out of the active.
    pub(super) fn clear_away(&mut self, rows: &[Row]) {
        if rows.iter().any(|row| row.finished) {
            let arena = &self.arena;
            self.active.retain(|&slot| arena[slot].stage != Stage::Finished);
            for row in rows.iter().filter(|row| row.finished) {
                self.retire(row.slot);
            }
        }
    }

    /// The request got its next output token, and one for each draft that was accepted; those past its end are thrown
    /// away (S6).
    fn take_burst(
        &mut self,
        row: &mut Row,
        is_stale: bool,
        span: PassSpan,
        outbox: &mut Outbox,
    ) -> Option<Finish> {
        let visible = span.end + self.detokenize;
        let (accepted, drafts) = self.verify(row);
        let sequence_tokens = self.limits.sequence_tokens;
        let request = &mut self.arena[row.slot];
        // A pause has forgotten the placeholders of outputs that were in flight (O4).
        if self.limits.overlaps && !is_stale {
            request.placeholder_tokens -= 1 + row.drafts;
        }
        row.emitted_tokens = request.burst_tokens(accepted, sequence_tokens);
        request.known_tokens += row.emitted_tokens;
        request.note_burst(row.emitted_tokens, visible, self.detokenize, outbox);
        if self.drafting.is_some() && row.is_decode {
            request.note_round(drafts, accepted, row.emitted_tokens, outbox);
            if !is_stale {
                self.rewind(row.slot, row.drafts - accepted);
            }
        }
        self.arena[row.slot].finish_reason(sequence_tokens)
    }

    /// The request is over; its blocks are free at once (O5). The caller takes it out of the active, and has seen to
    /// what was reserved for it.
    pub(super) fn end(&mut self, slot: SlotId, finish: Finish, outbox: &mut Outbox) {
        // A token in flight can end a request that waits to be resumed.
        if self.arena[slot].stage == Stage::Running {
            self.started -= 1;
            self.keep_content(slot);
            self.kv.release(slot);
        }
        self.kv.close(slot);
        if let Some(drafting) = &mut self.drafting {
            drafting.close(slot);
        }
        let request = &mut self.arena[slot];
        request.stage = Stage::Finished;
        outbox.finished.push(request.record(finish));
    }

    /// Whole blocks of a request whose KV is about to go can be reused: those of all tokens but the last (K5).
    pub(super) fn keep_content(&mut self, slot: SlotId) {
        let request = &self.arena[slot];
        self.kv.label(slot, request.computed_tokens.min(request.known_tokens - 1));
    }

    /// Gives the slot of a finished request back once no pass in flight mentions it.
    pub(super) fn retire(&mut self, slot: SlotId) {
        if self.arena[slot].flying_tokens == 0 {
            self.arena.remove(slot);
        }
    }
}
