//! The statistics of one class of clients.

use super::record::RequestRecord;
use super::samples::Samples;
use super::summary::{ClassSummary, TokensSummary};

/// What the counted requests of one class came to so far.
#[derive(Clone, Debug)]
pub(super) struct ClassMetrics {
    name: String,
    completed: u64,
    pub(super) rejected: u64,
    pub(super) unfinished: u64,
    tokens: TokensSummary,
    ttft: Samples,
    tpot: Samples,
    e2e: Samples,
    queue: Samples,
}

impl ClassMetrics {
    pub(super) fn new(name: &str, exact_limit: usize) -> Self {
        let samples = || Samples::new(exact_limit);
        Self {
            name: name.to_owned(),
            completed: 0,
            rejected: 0,
            unfinished: 0,
            tokens: TokensSummary { prompt: 0, cached: 0, output: 0 },
            ttft: samples(),
            tpot: samples(),
            e2e: samples(),
            queue: samples(),
        }
    }

    pub(super) fn finished(&mut self, record: &RequestRecord) {
        self.completed += 1;
        self.tokens.prompt += u64::from(record.prompt_tokens);
        self.tokens.cached += u64::from(record.cached_tokens);
        self.tokens.output += u64::from(record.output_tokens);
        self.ttft.record(record.ttft(), 1);
        if let Some(tpot) = record.tpot() {
            self.tpot.record(tpot, 1);
        }
        self.e2e.record(record.e2e(), 1);
        self.queue.record(record.queue(), 1);
    }

    pub(super) fn finish(mut self) -> ClassSummary {
        ClassSummary {
            class: self.name,
            completed: self.completed,
            rejected: self.rejected,
            unfinished: self.unfinished,
            tokens: self.tokens,
            ttft_ms: self.ttft.summary(),
            tpot_ms: self.tpot.summary(),
            e2e_ms: self.e2e.summary(),
            queue_ms: self.queue.summary(),
        }
    }
}
