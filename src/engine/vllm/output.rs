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
        let is_stale = request.land(row.tokens);
        // A stop token was seen while this pass ran: its share is ignored (R73).
        if request.stage == Stage::Finished {
            self.retire(slot);
            return;
        }
        let accepted = self.verify(row, is_stale);
        let request = &mut self.arena[slot];
        if !row.is_decode {
            let computed_after = row.computed_before + row.tokens;
            request.note_prefill(span.start, span.end, computed_after);
        }
        let finish = if row.is_chunk {
            None
        } else {
            self.take_burst(row, accepted, is_stale, span, outbox)
        };
        if (self.limits.asynchronous || self.limits.speculation.is_on()) && !is_stale {
            let request = &self.arena[slot];
            // The last token has no KV, nor has what a burst brought past the end (R19).
            let valid_tokens =
                (request.computed_tokens - request.flying_tokens).min(request.known_tokens - 1);
            self.kv.label(slot, self.labelled_tokens(request, valid_tokens));
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

    /// How many of the drafts in a row were accepted; the others are taken back (R16).
    fn verify(&mut self, row: &Row, is_stale: bool) -> u32 {
        if row.drafts == 0 {
            return 0;
        }
        let drafting = self.drafting.as_mut().expect("drafts come with speculation");
        let mut accepted = if row.is_padding { 0 } else { drafting.accept(row.slot, row.drafts) };
        // Asynchronously the drafts of a pass are planned before it is known whether any are found.
        if self.limits.asynchronous
            && self.limits.speculation.looks_up
            && !row.is_padding
            && drafting.finds_none(row.slot)
        {
            accepted = 0;
        }
        if !is_stale {
            let rejected = row.drafts - accepted;
            let request = &mut self.arena[row.slot];
            request.computed_tokens -= rejected;
            if self.limits.asynchronous {
                request.placeholder_tokens -= rejected;
            }
        }
        accepted
    }

    /// The request got an output token, and one for each of its `accepted` drafts; those past its end are thrown away
    /// (R17).
    fn take_burst(
        &mut self,
        row: &mut Row,
        accepted: u32,
        is_stale: bool,
        span: PassSpan,
        outbox: &mut Outbox,
    ) -> Option<Finish> {
        let visible = span.end + self.detokenize;
        let request = &mut self.arena[row.slot];
        // A preemption has forgotten the placeholders of outputs that were in flight (R74).
        if self.limits.asynchronous && !is_stale {
            request.placeholder_tokens -= 1 + accepted;
        }
        let model_len_max = self.limits.model_len_max;
        row.emitted_tokens = request.burst_tokens(accepted, model_len_max);
        request.known_tokens += row.emitted_tokens;
        request.note_burst(row.emitted_tokens, visible, self.detokenize, outbox);
        if self.drafting.is_some() && row.is_decode {
            let drafts = if row.is_padding { 0 } else { row.drafts };
            request.note_round(drafts, accepted, row.emitted_tokens, outbox);
        }
        let finish = request.finish_reason(model_len_max);
        if finish.is_none()
            && !self.limits.asynchronous
            && let Some(drafting) = &mut self.drafting
        {
            let drafts = self.limits.speculation.drafts;
            request.draft_tokens = if self.limits.speculation.looks_up {
                drafting.find(row.slot, drafts)
            } else {
                drafts
            };
        }
        finish
    }

    /// The request is over; its blocks are free at once (R18). The caller takes it out of the
    /// running list.
    pub(super) fn finish(&mut self, slot: SlotId, finish: Finish, outbox: &mut Outbox) {
        self.kv.release(slot);
        self.kv.close(slot);
        if let Some(drafting) = &mut self.drafting {
            drafting.close(slot);
        }
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
