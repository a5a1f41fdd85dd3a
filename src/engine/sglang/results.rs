//! Taking in what a pass produced (F1 to F5, V7, V8).

use super::Sglang;
use crate::base::ids::SlotId;
use crate::base::record::{Finish, Rejection};
use crate::base::time::SimTime;
use crate::engine::arena::Stage;
use crate::engine::outbox::Outbox;
use crate::engine::plan::{PassSpan, Row};

impl Sglang {
    /// Handles one row of a completed pass.
    pub(super) fn complete_row(&mut self, row: &mut Row, span: PassSpan, outbox: &mut Outbox) {
        let slot = row.slot;
        let coming = if row.is_decode { self.bursts.pop_front() } else { None };
        let request = &mut self.arena[slot];
        self.requests_touched += 1;
        request.flying_tokens -= 1;
        if request.stage == Stage::Finished {
            return;
        }
        if !row.is_decode {
            request.note_prefill(span.start, span.end, row.computed_before + row.tokens);
        }
        // A retraction has dropped the token in flight (F3).
        if request.stage == Stage::Waiting || row.is_chunk {
            return;
        }
        let visible = span.end + self.detokenize;
        let part = &mut self.parts[slot.index()];
        part.flying_samples -= 1;
        if let Some(tokens) = coming {
            part.coming_tokens -= tokens;
            request.computed_tokens += tokens;
        }
        // What a burst brings past the end is thrown away (V8).
        row.emitted_tokens = coming.unwrap_or(1).min(part.total_outputs() - part.outputs);
        part.outputs += row.emitted_tokens;
        request.note_burst(row.emitted_tokens, visible, self.detokenize, outbox);
        if let Some(tokens) = coming {
            let drafts = if row.is_padding { 0 } else { row.drafts };
            request.note_round(drafts, tokens - 1, row.emitted_tokens, outbox);
        }
        if part.outputs >= part.total_outputs() {
            row.finished = true;
            self.leave_as_ended(slot);
            self.finish(slot, span.end, outbox);
        } else if !row.is_decode {
            let part = &mut self.parts[slot.index()];
            let tokens = row.computed_before + row.tokens;
            self.memory.keep(part, tokens, self.arena[slot].priority);
        }
    }

    /// The request is over; what it computed goes into the cache, and the rest is free (F5).
    pub(super) fn finish(&mut self, slot: SlotId, now: SimTime, outbox: &mut Outbox) {
        if let Some(drafting) = &mut self.drafting {
            drafting.close(slot);
        }
        let allocated = self.allocated(slot);
        let request = &mut self.arena[slot];
        let part = &mut self.parts[slot.index()];
        let kept = request.computed_tokens.min(part.length(part.outputs));
        self.memory.end(part, allocated, kept, request.priority);
        self.rows_held -= 1;
        if part.is_refused {
            self.turn_away(slot, Rejection::PromptTooLong, now, outbox);
            return;
        }
        request.stage = Stage::Finished;
        request.known_tokens = request.prompt_tokens + part.outputs;
        // A limit that the engine has clipped is the longest sequence it serves.
        let finish = if part.outputs == part.stops_at {
            Finish::Stop
        } else if part.limit_tokens < request.max_tokens && part.outputs < request.output_tokens {
            Finish::ModelLength
        } else {
            Finish::Length
        };
        outbox.finished.push(request.record(finish));
        self.ended.push(slot);
    }
}
