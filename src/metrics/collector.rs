//! Takes in what happens in a run and gives it back in figures.
//!
//! A warm-up or window leaves requests out of every statistic of requests without leaving them
//! out of the simulation. Passes and levels are those of the whole run.
//!
//! Not here: rows for single requests (see `requests`), and the digest of the run's decisions.

use serde::{Deserialize, Serialize};

use crate::base::detail::PassDetail;
use crate::base::ids::{EngineId, RequestId};
use crate::base::time::{SimDuration, SimTime};

use super::class_gaps::ClassGaps;
use super::classes::ClassMetrics;
use super::passes::{Passes, ratio};
use super::record::{Finish, PassRecord, Rejection, RequestRecord, Rounds, TtftParts};
use super::rounds::RoundStatistics;
use super::samples::{Curve, EXACT_LIMIT, Samples, Summary};
use super::slo::{Attained, Distributions, SloConfig};
use super::summary::{
    Curves, Latency, Measured, Preemptions, PrefixCache, Reasons, RequestsSummary, RunSummary,
    Throughput, TokensSummary, TtftBreakdown, TtftPart,
};
use super::trend::{Arrivals, QueueLevel};

/// What to count and how exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MetricsOptions {
    /// Requests to leave out at the start.
    pub(crate) warmup: Option<Warmup>,
    /// Requests to keep by their arrival.
    pub(crate) window: Option<Window>,
    /// Distinct values that a sample keeps before it turns into a histogram.
    pub(crate) exact_limit: usize,
}

impl Default for MetricsOptions {
    fn default() -> Self {
        Self { warmup: None, window: None, exact_limit: EXACT_LIMIT }
    }
}

/// Requests to leave out at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Warmup {
    /// The first so many of the workload.
    Requests(u32),
    /// Those that arrive earlier than this after the start.
    Time(SimDuration),
}

/// The requests to keep: those that arrive at `from` or later, and before `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// The first instant inside.
    pub(crate) from: SimTime,
    /// The first instant outside again; `None` is the end of the run.
    pub(crate) to: Option<SimTime>,
}

/// What became of all requests, left out of the statistics or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outcomes {
    /// Requests that finished.
    pub(crate) completed: u64,
    /// Requests that never entered an engine.
    pub(crate) rejected: u64,
    /// Requests that were still waiting or running at the end.
    pub(crate) unfinished: u64,
}

impl Outcomes {
    /// All of them.
    pub(crate) const fn total(self) -> u64 {
        self.completed + self.rejected + self.unfinished
    }
}

/// The running statistics of one run.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    options: MetricsOptions,
    outcomes: Outcomes,
    excluded: u64,
    completed: u64,
    unfinished: u64,
    rejected: [u64; Rejection::ALL.len()],
    finishes: [u64; Finish::ALL.len()],
    tokens: TokensSummary,
    preemptions: Preemptions,
    /// Of counted requests.
    arrivals: Arrivals,
    /// Latest token of a counted request.
    last_token: Option<SimTime>,
    ttft: Samples,
    tpot: Samples,
    itl: Samples,
    /// Gaps between rounds, and what rounds came to; kept with speculation.
    rounds: Option<(Samples, RoundStatistics)>,
    e2e: Samples,
    queue: Samples,
    ttft_parts: PartSamples,
    passes: Passes,
    classes: Vec<ClassMetrics>,
    slo: Option<SloConfig>,
    attained: Attained,
    queue_level: QueueLevel,
    class_gaps: Option<ClassGaps>,
}

/// A sample for each part of the TTFT.
#[derive(Clone, Debug)]
struct PartSamples {
    frontend: Samples,
    queueing: Samples,
    prefill: Samples,
    chunk_wait: Samples,
    recompute: Samples,
    detokenize: Samples,
}

impl Metrics {
    /// Statistics of a run of which nothing has happened yet.
    pub(crate) fn new(options: MetricsOptions) -> Self {
        let samples = || Samples::new(options.exact_limit);
        Self {
            options,
            outcomes: Outcomes::default(),
            excluded: 0,
            completed: 0,
            unfinished: 0,
            rejected: [0; Rejection::ALL.len()],
            finishes: [0; Finish::ALL.len()],
            tokens: TokensSummary { prompt: 0, cached: 0, output: 0 },
            preemptions: Preemptions { total: 0, requests: 0 },
            arrivals: Arrivals::default(),
            last_token: None,
            ttft: samples(),
            tpot: samples(),
            itl: samples(),
            rounds: None,
            e2e: samples(),
            queue: samples(),
            ttft_parts: PartSamples {
                frontend: samples(),
                queueing: samples(),
                prefill: samples(),
                chunk_wait: samples(),
                recompute: samples(),
                detokenize: samples(),
            },
            passes: Passes::default(),
            classes: Vec::new(),
            slo: None,
            attained: Attained::default(),
            queue_level: QueueLevel::default(),
            class_gaps: None,
        }
    }

    /// The same statistics, and how many requests meet these objectives.
    #[must_use]
    pub(crate) fn with_slo(self, slo: Option<SloConfig>) -> Self {
        let needs_gaps = slo.as_ref().is_some_and(SloConfig::needs_gaps_by_class);
        let class_gaps = needs_gaps.then(|| ClassGaps::new(self.options.exact_limit));
        Self { slo, class_gaps, ..self }
    }

    /// The same statistics, and those of rounds that verify up to `drafts` drafts; `None`: without speculation.
    #[must_use]
    pub(crate) fn with_rounds(self, drafts: Option<u32>) -> Self {
        let limit = self.options.exact_limit;
        let rounds = drafts.map(|drafts| (Samples::new(limit), RoundStatistics::new(drafts)));
        Self { rounds, ..self }
    }

    /// Keeps statistics of each of these classes too, by number; those known before come first.
    pub(crate) fn add_classes(&mut self, names: &[String]) {
        let limit = self.options.exact_limit;
        let new = names.iter().skip(self.classes.len());
        let slo = |name: &str| self.slo.as_ref().map(|slo| slo.of_class(name));
        self.classes.extend(new.map(|name| ClassMetrics::new(name, limit, slo(name))));
    }

    /// Whether the statistics take this request in.
    pub(crate) fn is_counted(&self, id: RequestId, arrival: SimTime) -> bool {
        let warm = match self.options.warmup {
            None => true,
            Some(Warmup::Requests(requests)) => id.0 >= requests,
            Some(Warmup::Time(duration)) => arrival >= SimTime::ZERO + duration,
        };
        warm && self
            .options
            .window
            .is_none_or(|window| arrival >= window.from && window.to.is_none_or(|to| arrival < to))
    }

    /// A request finished.
    ///
    /// # Panics
    ///
    /// If the record contradicts itself, as when the parts of its TTFT do not add up to it.
    pub(crate) fn finished(&mut self, record: &RequestRecord) {
        record.check();
        self.outcomes.completed += 1;
        self.queue_level.waited(record.arrival, Some(record.first_scheduled));
        let counted = self.counts(record.id, record.arrival);
        if let Some(gaps) = &mut self.class_gaps {
            gaps.ended(record.id, record.class, counted);
        }
        if !counted {
            return;
        }
        self.completed += 1;
        self.finishes[record.finish as usize] += 1;
        self.last_token = self.last_token.max(Some(record.last_token));
        self.tokens.prompt += u64::from(record.prompt_tokens);
        self.tokens.cached += u64::from(record.cached_tokens);
        self.tokens.output += u64::from(record.output_tokens);
        self.preemptions.total += u64::from(record.preemptions);
        self.preemptions.requests += u64::from(record.preemptions > 0);
        self.ttft.record(record.ttft(), 1);
        if let Some(tpot) = record.tpot() {
            self.tpot.record(tpot, 1);
        }
        self.e2e.record(record.e2e(), 1);
        self.queue.record(record.queue(), 1);
        self.ttft_parts.record(&record.ttft);
        let class = self.classes.get_mut(usize::from(record.class));
        if let Some(slo) = &self.slo {
            let limits = class.as_ref().and_then(|class| class.limits());
            self.attained.finished(record, &limits.unwrap_or(slo.of_all()));
        }
        if let Some(class) = class {
            class.finished(record);
        }
    }

    /// A request was turned away.
    pub(crate) fn rejected(
        &mut self,
        id: RequestId,
        class: u16,
        arrival: SimTime,
        reason: Rejection,
    ) {
        self.outcomes.rejected += 1;
        if self.counts(id, arrival) {
            self.rejected[reason as usize] += 1;
            if let Some(class) = self.classes.get_mut(usize::from(class)) {
                class.rejected += 1;
            }
        }
    }

    /// A request was still waiting or running when the run ended.
    pub(crate) fn unfinished(&mut self, id: RequestId, class: u16, arrival: SimTime) {
        self.outcomes.unfinished += 1;
        self.queue_level.waited(arrival, None);
        let counted = self.counts(id, arrival);
        if let Some(gaps) = &mut self.class_gaps {
            gaps.ended(id, class, counted);
        }
        if counted {
            self.unfinished += 1;
            if let Some(class) = self.classes.get_mut(usize::from(class)) {
                class.unfinished += 1;
            }
        }
    }

    /// `count` tokens of counted requests became visible `gap` after their predecessors; with speculation each is
    /// the first of its round.
    #[inline]
    pub(crate) fn token_gap(&mut self, gap: SimDuration, count: u64) {
        self.itl.record(gap, count);
        if let Some((gaps, _)) = &mut self.rounds {
            gaps.record(gap, count);
        }
    }

    /// What more rounds of counted requests came to; so many of their tokens became visible together with the one
    /// before.
    pub(crate) fn rounds(&mut self, rounds: &Rounds, burst_tokens: u64) {
        if burst_tokens > 0 {
            self.itl.record(SimDuration::ZERO, burst_tokens);
        }
        if let Some((_, all)) = &mut self.rounds {
            all.add(rounds);
        }
    }

    /// A pass ran, in full; wanted where [`SloConfig::needs_gaps_by_class`] says so, before who finished with it.
    pub(crate) fn detail(&mut self, pass: &PassDetail) {
        if let Some(gaps) = &mut self.class_gaps {
            gaps.detail(pass);
        }
    }

    /// A pass ran. The passes of one engine come in order of their start.
    #[inline]
    pub(crate) fn pass(&mut self, pass: &PassRecord) {
        self.passes.add(pass);
    }

    /// From `since` to its next pass, `engine` runs no request and holds no block for one; so many
    /// wait.
    pub(crate) fn idle(&mut self, engine: EngineId, since: SimTime, waiting: u32) {
        self.passes.idle(engine, since, waiting);
    }

    /// The KV pool of `engine` has `blocks` blocks to give.
    pub(crate) fn kv_capacity(&mut self, engine: EngineId, blocks: u32) {
        self.passes.set_capacity(engine, blocks);
    }

    /// What became of all requests so far, for whoever checks that none was lost.
    pub(crate) const fn outcomes(&self) -> Outcomes {
        self.outcomes
    }

    /// Notes the end of a request and says whether it counts.
    fn counts(&mut self, id: RequestId, arrival: SimTime) -> bool {
        let counted = self.is_counted(id, arrival);
        if counted {
            self.arrivals.note(arrival);
        } else {
            self.excluded += 1;
        }
        counted
    }

    /// The run in figures.
    pub(crate) fn finish(mut self) -> RunSummary {
        let requests = self.requests();
        let throughput = self.throughput();
        let (ttft_ms, ttft_curve) = self.ttft.summary_and_curve();
        let (tpot_ms, tpot_curve) = self.tpot.summary_and_curve();
        let (itl_ms, itl_curve) = self.itl.summary_and_curve();
        let (e2e_ms, e2e_curve) = self.e2e.summary_and_curve();
        let (queue_ms, queue_curve) = self.queue.summary_and_curve();
        let (passes, engines) = self.passes.finish();
        let counted = requests.completed + requests.rejected.total + requests.unfinished;
        let ((emission_gap_ms, emission_curve), speculation) = match self.rounds {
            Some((mut gaps, rounds)) => (gaps.summary_and_curve(), Some(rounds.summary())),
            None => ((itl_ms, itl_curve.clone()), None),
        };
        let found =
            Distributions { ttft: &ttft_ms, tpot: &tpot_ms, itl: Some(&itl_ms), e2e: &e2e_ms };
        let goodput = self
            .slo
            .as_ref()
            .map(|slo| self.attained.summary(&slo.of_all(), counted, throughput.span_s, &found));
        let mut gaps = self.class_gaps;
        let classes = self.classes.into_iter().enumerate().map(|(number, class)| {
            let itl = gaps.as_mut().and_then(|gaps| gaps.of_class(number)).map(Samples::summary);
            class.finish(throughput.span_s, itl.as_ref())
        });
        RunSummary {
            measured: self.options.into(),
            requests,
            tokens: self.tokens,
            throughput,
            goodput,
            latency: Latency { ttft_ms, tpot_ms, itl_ms, emission_gap_ms, e2e_ms, queue_ms },
            curves: Curves {
                percents: Curve::percents(),
                ttft_ms: ttft_curve,
                tpot_ms: tpot_curve,
                itl_ms: itl_curve,
                emission_gap_ms: emission_curve,
                e2e_ms: e2e_curve,
                queue_ms: queue_curve,
            },
            ttft_breakdown_ms: self.ttft_parts.summary(&ttft_ms),
            queue_trend: self.arrivals.trend(&self.queue_level),
            prefix_cache: PrefixCache {
                hit_ratio: ratio(self.tokens.cached as f64, self.tokens.prompt as f64),
            },
            preemptions: self.preemptions,
            speculation,
            passes,
            engines,
            classes: classes.collect(),
        }
    }

    fn requests(&self) -> RequestsSummary {
        let rejected = Rejection::ALL.map(|reason| reason.name().to_owned()).into_iter();
        let finish = Finish::ALL.map(|reason| reason.name().to_owned()).into_iter();
        RequestsSummary {
            input: self.outcomes.total(),
            all: self.outcomes,
            completed: self.completed,
            rejected: Reasons {
                total: self.rejected.iter().sum(),
                by_reason: rejected.zip(self.rejected).collect(),
            },
            unfinished: self.unfinished,
            excluded: self.excluded,
            finish: finish.zip(self.finishes).collect(),
        }
    }

    fn throughput(&self) -> Throughput {
        let span = self
            .arrivals
            .first()
            .zip(self.last_token)
            .map(|(first, last)| last.since(first).as_s());
        let rate = |amount: u64| ratio(amount as f64, span?);
        Throughput {
            span_s: span,
            requests_per_s: rate(self.completed),
            input_tokens_per_s: rate(self.tokens.prompt),
            output_tokens_per_s: rate(self.tokens.output),
            total_tokens_per_s: rate(self.tokens.prompt + self.tokens.output),
        }
    }
}

impl PartSamples {
    fn record(&mut self, parts: &TtftParts) {
        self.frontend.record(parts.frontend, 1);
        self.queueing.record(parts.queueing, 1);
        self.prefill.record(parts.prefill, 1);
        self.chunk_wait.record(parts.chunk_wait, 1);
        self.recompute.record(parts.recompute, 1);
        self.detokenize.record(parts.detokenize, 1);
    }

    fn summary(&mut self, ttft: &Summary) -> TtftBreakdown {
        let part = |samples: &mut Samples| {
            let summary = samples.summary();
            let share = summary.mean.zip(ttft.mean).and_then(|(part, ttft)| ratio(part, ttft));
            TtftPart { share_ratio: share, summary }
        };
        TtftBreakdown {
            frontend: part(&mut self.frontend),
            queueing: part(&mut self.queueing),
            prefill: part(&mut self.prefill),
            chunk_wait: part(&mut self.chunk_wait),
            recompute: part(&mut self.recompute),
            detokenize: part(&mut self.detokenize),
        }
    }
}

impl From<MetricsOptions> for Measured {
    fn from(options: MetricsOptions) -> Self {
        let (warmup_requests, warmup_ms) = match options.warmup {
            None => (None, None),
            Some(Warmup::Requests(requests)) => (Some(requests), None),
            Some(Warmup::Time(duration)) => (None, Some(duration.as_ms())),
        };
        Self {
            warmup_requests,
            warmup_ms,
            window_from_ms: options.window.map(|window| window.from.as_ms()),
            window_to_ms: options.window.and_then(|window| window.to).map(SimTime::as_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::slo::{Goodput, Objective};

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> SimTime {
        SimTime::from_ns(ms * MS)
    }

    fn lasting(ms: u64) -> SimDuration {
        SimDuration::from_ns(ms * MS)
    }

    /// Arrives at `arrival`, is scheduled 10 ms later, shows 5 tokens from 30 ms later on, one
    /// every 20 ms.
    fn record(id: u32, arrival: u64) -> RequestRecord {
        RequestRecord {
            id: RequestId(id),
            line: 0,
            engine: EngineId(0),
            arrival: at(arrival),
            first_scheduled: at(arrival + 10),
            first_token: at(arrival + 30),
            last_token: at(arrival + 110),
            prompt_tokens: 100,
            output_tokens: 5,
            cached_tokens: 25,
            preemptions: 0,
            ttft: TtftParts {
                frontend: lasting(2),
                queueing: lasting(8),
                prefill: lasting(15),
                chunk_wait: lasting(4),
                recompute: SimDuration::ZERO,
                detokenize: lasting(1),
            },
            finish: Finish::Stop,
            priority: 0,
            class: 0,
            rounds: crate::base::record::RequestRounds::default(),
        }
    }

    #[test]
    fn one_request_in_figures() {
        let mut metrics = Metrics::new(MetricsOptions::default());
        metrics.finished(&record(0, 1000));
        metrics.token_gap(lasting(20), 4);
        let run = metrics.finish();
        let latency = run.latency;
        assert_eq!(latency.ttft_ms.mean, Some(30.0));
        assert_eq!(latency.tpot_ms.mean, Some(20.0)); // (110 - 30) / 4
        assert_eq!((latency.itl_ms.count, latency.itl_ms.p99), (4, Some(20.0)));
        assert_eq!(latency.e2e_ms.max, Some(110.0));
        assert_eq!(latency.queue_ms.p50, Some(10.0));
        assert_eq!(run.prefix_cache.hit_ratio, Some(0.25));
        // 0.11 s from the arrival to the last token.
        assert_eq!(run.throughput.span_s, Some(0.11));
        assert_eq!(run.throughput.requests_per_s, Some(1.0 / 0.11));
        assert_eq!(run.throughput.total_tokens_per_s, Some(105.0 / 0.11));
        assert_eq!(run.requests.finish["stop"], 1);
        assert_eq!(run.requests.finish["length"], 0);
    }

    #[test]
    fn a_single_token_has_no_tpot_and_thirds_round_to_the_nanosecond() {
        let mut metrics = Metrics::new(MetricsOptions::default());
        metrics.finished(&RequestRecord { output_tokens: 1, last_token: at(30), ..record(0, 0) });
        assert_eq!(metrics.clone().finish().latency.tpot_ms.count, 0);
        // 80 ms over 3 gaps: 26,666,666.67 ns.
        metrics.finished(&RequestRecord { output_tokens: 4, ..record(0, 0) });
        assert_eq!(metrics.finish().latency.tpot_ms.mean, Some(26.666_667));
    }

    #[test]
    fn the_means_of_the_parts_add_up_to_the_mean_ttft() {
        let mut metrics = Metrics::new(MetricsOptions::default());
        for id in 0..7 {
            // The wait grows by a third of a millisecond a request.
            let mut record = record(id, 5000);
            let late = SimDuration::from_ns(u64::from(id) * MS / 3);
            record.ttft.queueing += late;
            record.first_scheduled = record.first_scheduled + late;
            record.first_token = record.first_token + late;
            metrics.finished(&record);
        }
        let run = metrics.finish();
        let parts = run.ttft_breakdown_ms;
        let parts = [
            parts.frontend,
            parts.queueing,
            parts.prefill,
            parts.chunk_wait,
            parts.recompute,
            parts.detokenize,
        ];
        let mean: f64 = parts.iter().map(|part| part.summary.mean.unwrap()).sum();
        assert!((mean - run.latency.ttft_ms.mean.unwrap()).abs() < 1e-9);
        let share: f64 = parts.iter().map(|part| part.share_ratio.unwrap()).sum();
        assert!((share - 1.0).abs() < 1e-12);
        assert_eq!(parts[4].share_ratio, Some(0.0));
    }

    #[test]
    #[should_panic(expected = "TTFT is not the sum of its parts")]
    fn parts_that_do_not_add_up_are_a_bug() {
        let mut record = record(0, 0);
        record.ttft.prefill += SimDuration::from_ns(1);
        Metrics::new(MetricsOptions::default()).finished(&record);
    }

    #[test]
    fn the_span_runs_from_the_first_arrival_to_the_last_token() {
        let mut metrics = Metrics::new(MetricsOptions::default());
        metrics.finished(&record(1, 2000));
        metrics.finished(&record(0, 1900));
        metrics.unfinished(RequestId(2), 0, at(2500));
        metrics.rejected(RequestId(3), 0, at(1500), Rejection::ZeroOutput);
        // From the rejected arrival at 1500 to 2000 + 110.
        assert_eq!(metrics.finish().throughput.span_s, Some(0.61));
    }

    #[test]
    fn nothing_completed_means_no_rates() {
        let mut metrics = Metrics::new(MetricsOptions::default());
        metrics.rejected(RequestId(0), 0, at(5), Rejection::EmptyPrompt);
        let run = metrics.finish();
        assert_eq!((run.throughput.span_s, run.throughput.requests_per_s), (None, None));
        assert_eq!(run.prefix_cache.hit_ratio, None);
        assert_eq!(run.ttft_breakdown_ms.prefill.share_ratio, None);
        assert_eq!(run.requests.rejected.total, 1);
        assert_eq!(run.requests.rejected.by_reason["empty_prompt"], 1);
        assert_eq!(run.requests.rejected.by_reason["prompt_too_long"], 0);
    }

    #[test]
    fn what_is_left_out_is_still_an_outcome() {
        let window = Some(Window { from: at(1000), to: Some(at(2000)) });
        let mut metrics = Metrics::new(MetricsOptions { window, ..MetricsOptions::default() });
        for (id, arrival) in [999, 1000, 1999, 2000].into_iter().enumerate() {
            metrics.finished(&record(id as u32, arrival));
        }
        metrics.rejected(RequestId(4), 0, at(2000), Rejection::ZeroOutput);
        metrics.unfinished(RequestId(5), 0, at(3000));
        let outcomes = metrics.outcomes();
        assert_eq!(outcomes, Outcomes { completed: 4, rejected: 1, unfinished: 1 });
        let run = metrics.finish();
        let requests = run.requests;
        assert_eq!((requests.input, requests.completed, requests.excluded), (6, 2, 4));
        assert_eq!((requests.rejected.total, requests.unfinished), (0, 0));
        assert_eq!(run.latency.ttft_ms.count, 2);
        assert_eq!(run.tokens, TokensSummary { prompt: 200, cached: 50, output: 10 });
        assert_eq!(run.measured.window_to_ms, Some(2000.0));
    }

    #[test]
    fn a_warm_up_is_a_number_of_requests_or_a_time() {
        let counted = |warmup, id, arrival| {
            Metrics::new(MetricsOptions { warmup: Some(warmup), ..MetricsOptions::default() })
                .is_counted(RequestId(id), at(arrival))
        };
        assert!(!counted(Warmup::Requests(3), 2, 9000));
        assert!(counted(Warmup::Requests(3), 3, 0));
        assert!(!counted(Warmup::Time(lasting(50)), 9, 49));
        assert!(counted(Warmup::Time(lasting(50)), 9, 50));
    }

    #[test]
    fn preemptions_are_counted_by_event_and_by_request() {
        let mut metrics = Metrics::new(MetricsOptions::default());
        for (id, preemptions) in [0, 3, 1].into_iter().enumerate() {
            metrics.finished(&RequestRecord { preemptions, ..record(id as u32, 0) });
        }
        assert_eq!(metrics.finish().preemptions, Preemptions { total: 4, requests: 2 });
    }

    #[test]
    fn who_meets_all_limits_is_good() {
        // TTFT 30, TPOT 20, E2E 110 ms. A limit is met at itself; class b has another limit of the TPOT.
        let yaml = "{ttft_ms: 30, tpot_ms: 19, classes: {b: {tpot_ms: 20}}}";
        let slo: SloConfig = serde_saphyr::from_str(yaml).unwrap();
        let mut metrics = Metrics::new(MetricsOptions::default()).with_slo(Some(slo));
        metrics.add_classes(&["a".to_owned(), "b".to_owned()]);
        metrics.finished(&record(0, 0));
        metrics.finished(&RequestRecord { class: 1, ..record(1, 0) });
        metrics.rejected(RequestId(2), 1, at(0), Rejection::ZeroOutput);
        let run = metrics.finish();
        let goodput = run.goodput.unwrap();
        assert_eq!((goodput.met, goodput.missed_ttft, goodput.missed_tpot), (1, 0, 1));
        // Of three; the one that was good has 5 tokens, in the 110 ms that the run took.
        assert_eq!(goodput.met_ratio, Some(1.0 / 3.0));
        assert_eq!(goodput.output_tokens_per_s, Some(5.0 / 0.11));
        let of = |class: usize| run.classes[class].goodput.clone().unwrap();
        assert_eq!((of(0).met, of(1).met, of(1).met_ratio), (0, 1, Some(0.5)));
        // Both have 30 and 20 ms; of three requests both met the TTFT and one the TPOT of its class.
        let objectives = |goodput: &Goodput| -> Vec<_> {
            let figures = |objective: &Objective| {
                (objective.metric.clone(), objective.met_ratio, objective.slack_ms.p99)
            };
            goodput.objectives.iter().map(figures).collect()
        };
        let expected = [("ttft_ms", 2.0 / 3.0, 0.0), ("tpot_ms", 1.0 / 3.0, -1.0)];
        let expected =
            expected.map(|(metric, met, left)| (metric.to_owned(), Some(met), Some(left)));
        assert_eq!(objectives(&goodput), expected);
        let of_b = [
            ("ttft_ms".to_owned(), Some(0.5), Some(0.0)),
            ("tpot_ms".to_owned(), Some(0.5), Some(0.0)),
        ];
        assert_eq!(objectives(&of(1)), of_b);
    }

    #[test]
    fn a_limit_of_the_tail_is_met_by_all_gaps_together() {
        let slo: SloConfig = serde_saphyr::from_str("{itl_ms_p99: 25, ttft_ms: 1}").unwrap();
        assert!(!slo.needs_gaps_by_class());
        let mut metrics = Metrics::new(MetricsOptions::default()).with_slo(Some(slo));
        // p99 of 0 to 100 ms, one each, is 99 ms: 74 too many.
        (0..=100).for_each(|ms| metrics.token_gap(lasting(ms), 1));
        let goodput = metrics.finish().goodput.unwrap();
        let itl = &goodput.objectives[1];
        assert_eq!((itl.metric.as_str(), itl.met_ratio), ("itl_ms_p99", None));
        assert_eq!((itl.slack_ms.p50, itl.slack_ms.p99), (None, Some(-74.0)));
        assert_eq!(itl.is_met_as_a_whole(), Some(false));
        assert_eq!(goodput.objectives[0].is_met_as_a_whole(), None);
    }

    #[test]
    fn classes_are_counted_apart() {
        let names = ["chat".to_owned(), "batch".to_owned()];
        let mut metrics = Metrics::new(MetricsOptions::default());
        metrics.add_classes(&names[..1]);
        metrics.add_classes(&names);
        metrics.finished(&record(0, 0));
        metrics.finished(&RequestRecord { class: 1, prompt_tokens: 300, ..record(1, 0) });
        metrics.rejected(RequestId(2), 1, at(0), Rejection::ZeroOutput);
        metrics.unfinished(RequestId(3), 0, at(0));
        let [chat, batch] = &metrics.finish().classes[..] else { panic!("there are two") };
        assert_eq!((chat.class.as_str(), chat.completed), ("chat", 1));
        assert_eq!(
            (chat.rejected, chat.unfinished, batch.rejected, batch.unfinished),
            (0, 1, 1, 0)
        );
        assert_eq!(batch.tokens, TokensSummary { prompt: 300, cached: 25, output: 5 });
        assert_eq!((batch.ttft_ms.mean, batch.tpot_ms.mean), (Some(30.0), Some(20.0)));
        assert_eq!((batch.e2e_ms.max, batch.queue_ms.p50), (Some(110.0), Some(10.0)));
    }
}
