//! Runs of decodes in which nobody comes, ends or loses its KV: nothing is planned, only counted.

use super::Sglang;
use crate::engine::decode_clock::{DecodeClock, Standing};
use crate::engine::error::EngineError;

impl Sglang {
    /// Runs decodes of the whole batch, from the next one on.
    pub(super) fn run_steady(&mut self, clock: &mut DecodeClock<'_>) -> Result<(), EngineError> {
        let Some(last_decode) = self.last_steady_decode() else { return Ok(()) };
        let usable_pages = self.limits.pool_tokens / self.limits.page_tokens;
        let standing =
            Standing { used_blocks: 0, running: self.rows_held, waiting: self.queue.len() as u32 };
        let size = self.steady.size;
        let mut work = self.steady.work(self.planned_decodes, &self.arena);
        while self.planned_decodes <= last_decode && clock.may_plan() {
            if !self.decode_fits() {
                break;
            }
            self.decay_ratio();
            self.take_pages();
            let used_blocks = usable_pages - self.memory.idle_tokens() / self.limits.page_tokens;
            clock.plan(&work, Standing { used_blocks, ..standing })?;
            self.planned_passes += 1;
            self.planned_decodes += 1;
            self.processed_tokens += self.stale_extend_tokens;
            self.steady.advance();
            if std::mem::take(&mut self.has_launched) {
                self.retracted.clear();
                self.displaced.clear();
            }
            self.has_launched = true;
            work.kv_tokens += u64::from(size);
            work.longest_kv_tokens += 1;
            let Some(end) = clock.complete() else { break };
            self.completed_passes += 1;
            self.completed_decodes += 1;
            let decode = self.completed_decodes - 1;
            let visible = end + self.detokenize;
            self.note_steady_tokens(decode, self.steady.counted, visible, clock.outbox);
        }
        Ok(())
    }

    /// The last decode that the whole batch, and nobody else, is sure to be in; `None` if not even the
    /// next one.
    fn last_steady_decode(&mut self) -> Option<u64> {
        let nobody_enters = self.inbox.is_empty()
            && self.chunked.is_none()
            && self.last.is_none()
            && (self.queue.is_empty() || (self.is_full && !self.limits.preempts));
        let only_set = self.lockstep.has_only_members()
            && self.running.is_empty()
            && self.ended_running == 0
            && self.steady.size > 0;
        if !nobody_enters || !only_set {
            return None;
        }
        // The pass with a last token is completed by itself. With two passes, the one behind it is
        // planned before that, and by itself too.
        let first_end = self.steady.first_end(&self.arena)?;
        let last = if self.limits.overlaps { first_end } else { first_end.checked_sub(1)? };
        (last >= self.planned_decodes).then_some(last)
    }
}
