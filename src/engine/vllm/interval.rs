//! Holding prefill back so that passes with it are some passes apart (R50).

use super::Vllm;

/// How long ago prefill ran, in passes that were not empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrefillInterval {
    /// Passes from one with prefill to the next; 1: no holding back.
    passes: u64,
    executed: u64,
    last_with_prefill: u64,
    /// Whether the last waiting loop that was not held left requests in the queue: then nothing
    /// is held back.
    has_backlog: bool,
}

impl PrefillInterval {
    pub(crate) fn new(passes: u32) -> Self {
        Self { passes: passes.into(), executed: 0, last_with_prefill: 0, has_backlog: false }
    }

    /// Whether a pass with prefill would come too early now.
    fn is_early(&self) -> bool {
        !self.has_backlog && self.executed + 1 - self.last_with_prefill < self.passes
    }

    /// Whether passes without prefill do nothing but count, while `waiting` requests wait.
    pub(crate) const fn only_counts(&self, waiting: u32) -> bool {
        self.passes == 1 || waiting == 0 && !self.has_backlog
    }

    /// The waiting loop ran without being held, and left requests in the queue or not.
    pub(crate) fn note_backlog(&mut self, has_backlog: bool) {
        self.has_backlog = has_backlog;
    }

    /// A pass that is not empty was planned.
    pub(crate) fn note_pass(&mut self, carries_prefill: bool) {
        self.executed += 1;
        if carries_prefill {
            self.last_with_prefill = self.executed;
        }
    }
}

impl Vllm {
    /// Whether this call holds prefill back: it would come early, and somebody else can run.
    pub(super) fn holds_prefill(&self) -> bool {
        let decodes = self.steady.size + self.leaving > 0
            || self.running.iter().any(|&slot| !self.arena[slot].is_chunk);
        self.interval.is_early() && decodes
    }
}
