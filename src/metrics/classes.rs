//! The statistics of one class of clients.

use super::record::RequestRecord;
use super::samples::{Samples, Summary};
use super::slo::{Attained, Distributions, SloLimits};
use super::summary::{ClassSummary, TokensSummary};

/// What the counted requests of one class came to so far.
#[derive(Clone, Debug)]
pub(super) struct ClassMetrics {
    name: String,
    completed: u64,
    pub(super) rejected: u64,
    pub(super) unfinished: u64,
    tokens: TokensSummary,
    slo: Option<(SloLimits, Attained)>,
    ttft: Samples,
    tpot: Samples,
    e2e: Samples,
    queue: Samples,
}

impl ClassMetrics {
    pub(super) fn new(name: &str, exact_limit: usize, slo: Option<SloLimits>) -> Self {
        let samples = || Samples::new(exact_limit);
        Self {
            name: name.to_owned(),
            completed: 0,
            rejected: 0,
            unfinished: 0,
            tokens: TokensSummary { prompt: 0, cached: 0, output: 0 },
            slo: slo.map(|limits| (limits, Attained::default())),
            ttft: samples(),
            tpot: samples(),
            e2e: samples(),
            queue: samples(),
        }
    }

    /// The objectives of its requests.
    pub(super) fn limits(&self) -> Option<SloLimits> {
        self.slo.map(|(limits, _)| limits)
    }

    pub(super) fn finished(&mut self, record: &RequestRecord) {
        self.completed += 1;
        if let Some((limits, attained)) = &mut self.slo {
            attained.finished(record, limits);
        }
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

    /// In figures, over a span of so many seconds; `itl` are its gaps between tokens, if they are known.
    pub(super) fn finish(mut self, span_s: Option<f64>, itl: Option<&Summary>) -> ClassSummary {
        let requests = self.completed + self.rejected + self.unfinished;
        let (ttft_ms, tpot_ms, e2e_ms) =
            (self.ttft.summary(), self.tpot.summary(), self.e2e.summary());
        let found = Distributions { ttft: &ttft_ms, tpot: &tpot_ms, itl, e2e: &e2e_ms };
        ClassSummary {
            goodput: self
                .slo
                .map(|(limits, attained)| attained.summary(&limits, requests, span_s, &found)),
            class: self.name,
            completed: self.completed,
            rejected: self.rejected,
            unfinished: self.unfinished,
            tokens: self.tokens,
            ttft_ms,
            tpot_ms,
            e2e_ms,
            queue_ms: self.queue.summary(),
        }
    }
}
