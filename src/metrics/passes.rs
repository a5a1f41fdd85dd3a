//! What the passes add up to: time by kind of pass, and the levels each engine held.
//!
//! A level (blocks held, requests running, requests waiting) is known when a pass is planned. It
//! holds from that pass's start to the start of the engine's next pass; an engine with nothing to
//! do may say so, and holds nothing from then on. Means are over the time of the run's device:
//! from the first pass of any engine to the end of the last, before its own first pass an engine
//! holds nothing.

use crate::base::ids::EngineId;
use crate::base::time::{SimDuration, SimTime};

use super::record::PassRecord;
use super::summary::{EngineSummary, KvSummary, Level, PassKindSummary, PassesSummary};

/// Running totals over all passes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Passes {
    /// By [`kind`].
    kinds: [KindTotals; 3],
    engines: Vec<EngineTotals>,
}

/// Totals of one kind of pass.
#[derive(Clone, Copy, Debug, Default)]
struct KindTotals {
    count: u64,
    /// Sum of end - start.
    busy: SimDuration,
    prefill_tokens: u64,
    decode_tokens: u64,
    decode_requests: u64,
}

/// Totals of one engine.
#[derive(Clone, Debug, Default)]
struct EngineTotals {
    passes: u64,
    busy: SimDuration,
    first_start: Option<SimTime>,
    last_end: SimTime,
    /// Up to when the levels are summed.
    summed_to: SimTime,
    used_blocks: Gauge,
    running: Gauge,
    waiting: Gauge,
    capacity_blocks: Option<u32>,
}

/// A level over time.
#[derive(Clone, Copy, Debug, Default)]
struct Gauge {
    level: u32,
    max: u32,
    /// Level times nanoseconds.
    area: u128,
}

impl Gauge {
    /// Holds the level for `duration`.
    fn hold(&mut self, duration: SimDuration) {
        self.area += u128::from(self.level) * u128::from(duration.as_ns());
    }

    fn set(&mut self, level: u32) {
        self.level = level;
        self.max = self.max.max(level);
    }

    /// The level over `span`; unknown where the run had no pass.
    fn summary(&self, span: SimDuration) -> Level<u32> {
        let span = span.as_ns();
        let mean = (span > 0).then(|| self.area as f64 / span as f64);
        Level { mean, max: mean.map(|_| self.max) }
    }
}

/// Index of a pass's kind: prefill only, decode only, or both.
pub(crate) fn kind(pass: &PassRecord) -> usize {
    match (pass.prefill_requests > 0, pass.decode_requests > 0) {
        (_, false) => 0,
        (false, true) => 1,
        (true, true) => 2,
    }
}

impl Passes {
    /// Takes in one pass, or several alike. Those of one engine come in order of their start.
    #[inline]
    pub(crate) fn add(&mut self, pass: &PassRecord) {
        let busy = pass.end.since(pass.start);
        self.kinds[kind(pass)].add(pass, busy);
        let engine = self.engine(pass.engine);
        engine.hold_to(pass.start);
        engine.first_start.get_or_insert(pass.start);
        engine.last_end = engine.last_end.max(pass.end);
        engine.passes += pass.passes;
        engine.busy += busy;
        engine.running.set(pass.running);
        engine.waiting.set(pass.waiting);
        // Of several passes, only the KV level changes from one to the next.
        engine.used_blocks.set(0);
        engine.hold_to(pass.last_start);
        engine.used_blocks.area += pass.used_block_ns;
        engine.used_blocks.set(pass.used_blocks_max);
        engine.used_blocks.set(pass.used_blocks);
    }

    /// From `since` to its next pass, `engine` holds nothing and runs nobody; so many wait.
    pub(crate) fn idle(&mut self, engine: EngineId, since: SimTime, waiting: u32) {
        let engine = self.engine(engine);
        // Means are over the span of the passes, which may not have begun.
        if engine.first_start.is_none() {
            return;
        }
        engine.hold_to(since);
        engine.used_blocks.set(0);
        engine.running.set(0);
        engine.waiting.set(waiting);
    }

    /// The pool of `engine` has `blocks` blocks to give.
    pub(crate) fn set_capacity(&mut self, engine: EngineId, blocks: u32) {
        self.engine(engine).capacity_blocks = Some(blocks);
    }

    #[inline]
    fn engine(&mut self, id: EngineId) -> &mut EngineTotals {
        if id.index() >= self.engines.len() {
            self.engines.resize_with(id.index() + 1, EngineTotals::default);
        }
        &mut self.engines[id.index()]
    }

    /// The run's figures.
    pub(crate) fn finish(mut self) -> (PassesSummary, Vec<EngineSummary>) {
        let first = self.engines.iter().filter_map(|engine| engine.first_start).min();
        let end = self.engines.iter().map(|engine| engine.last_end).max().unwrap_or_default();
        let span = first.map_or(SimDuration::ZERO, |first| end.since(first));
        let engines: Vec<_> = self
            .engines
            .iter_mut()
            .enumerate()
            .map(|(id, engine)| engine.summary(id as u32, end, span))
            .collect();
        let [prefill_only, decode_only, mixed] = self.kinds.map(KindTotals::summary);
        let busy = self.kinds.iter().fold(SimDuration::ZERO, |sum, kind| sum + kind.busy);
        let passes = PassesSummary {
            total: self.kinds.iter().map(|kind| kind.count).sum(),
            span_ms: span.as_ms(),
            busy_ms: busy.as_ms(),
            busy_ratio: ratio(busy.as_ms(), span.as_ms() * engines.len() as f64),
            prefill_only,
            decode_only,
            mixed,
        };
        (passes, engines)
    }
}

impl KindTotals {
    #[inline]
    fn add(&mut self, pass: &PassRecord, busy: SimDuration) {
        self.count += pass.passes;
        self.busy += busy;
        self.prefill_tokens += u64::from(pass.prefill_tokens) * pass.passes;
        self.decode_tokens += u64::from(pass.decode_tokens) * pass.passes;
        self.decode_requests += u64::from(pass.decode_requests) * pass.passes;
    }

    fn summary(self) -> PassKindSummary {
        let per_pass = |total: u64| ratio(total as f64, self.count as f64);
        PassKindSummary {
            count: self.count,
            busy_ms: self.busy.as_ms(),
            pass_ms_mean: ratio(self.busy.as_ms(), self.count as f64),
            prefill_tokens_mean: per_pass(self.prefill_tokens),
            decode_tokens_mean: per_pass(self.decode_tokens),
            decode_requests_mean: per_pass(self.decode_requests),
        }
    }
}

impl EngineTotals {
    fn gauges(&mut self) -> [&mut Gauge; 3] {
        [&mut self.used_blocks, &mut self.running, &mut self.waiting]
    }

    /// Sums the levels up to `now`.
    #[inline]
    fn hold_to(&mut self, now: SimTime) {
        assert!(now >= self.summed_to, "an engine's passes come in order: {now} is in the past");
        let duration = now.since(self.summed_to);
        self.summed_to = now;
        for gauge in self.gauges() {
            gauge.hold(duration);
        }
    }

    fn summary(&mut self, id: u32, end: SimTime, span: SimDuration) -> EngineSummary {
        // An engine may have gone idle after the last pass of the run.
        self.hold_to(end.max(self.summed_to));
        let used_blocks = self.used_blocks.summary(span);
        let capacity = self.capacity_blocks.map_or(0.0, f64::from);
        EngineSummary {
            engine: id,
            passes: self.passes,
            busy_ms: self.busy.as_ms(),
            busy_ratio: ratio(self.busy.as_ms(), span.as_ms()),
            kv: KvSummary {
                capacity_blocks: self.capacity_blocks,
                used_blocks,
                used_ratio: Level {
                    mean: used_blocks.mean.and_then(|mean| ratio(mean, capacity)),
                    max: used_blocks.max.and_then(|max| ratio(f64::from(max), capacity)),
                },
            },
            running: self.running.summary(span),
            waiting: self.waiting.summary(span),
        }
    }
}

/// `part / whole`; unknown where the whole is 0.
pub(crate) fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn pass(engine: u32, start_ms: u64, end_ms: u64, levels: [u32; 3]) -> PassRecord {
        PassRecord {
            engine: EngineId(engine),
            passes: 1,
            start: SimTime::from_ns(start_ms * MS),
            last_start: SimTime::from_ns(start_ms * MS),
            end: SimTime::from_ns(end_ms * MS),
            prefill_requests: 0,
            prefill_tokens: 0,
            decode_requests: levels[1],
            decode_tokens: levels[1],
            used_blocks: levels[0],
            used_blocks_max: levels[0],
            used_block_ns: 0,
            running: levels[1],
            waiting: levels[2],
        }
    }

    #[test]
    fn a_level_holds_until_the_next_pass_starts() {
        let mut passes = Passes::default();
        passes.set_capacity(EngineId(0), 20);
        passes.add(&pass(0, 10, 14, [8, 2, 1]));
        passes.add(&pass(0, 20, 30, [16, 4, 0]));
        let (total, engines) = passes.finish();
        // 10 ms at 8 blocks (6 of them idle), then 10 ms at 16: mean 12 of 20.
        let kv = engines[0].kv;
        assert_eq!(kv.used_blocks, Level { mean: Some(12.0), max: Some(16) });
        assert_eq!(kv.used_ratio, Level { mean: Some(0.6), max: Some(0.8) });
        assert_eq!(engines[0].running, Level { mean: Some(3.0), max: Some(4) });
        assert_eq!(engines[0].waiting, Level { mean: Some(0.5), max: Some(1) });
        // Busy 4 + 10 of the 20 ms from the first start to the last end.
        assert_eq!((total.span_ms, total.busy_ms, total.busy_ratio), (20.0, 14.0, Some(0.7)));
    }

    #[test]
    fn passes_in_a_row_count_as_they_would_one_by_one() {
        let [mut one_by_one, mut in_a_row] = [Passes::default(), Passes::default()];
        let alone = [(0, 4, 8), (4, 9, 11), (9, 20, 10)];
        for (start, end, used) in alone {
            one_by_one.add(&pass(0, start, end, [used, 2, 1]));
        }
        let mut record = pass(0, 0, 4, [8, 2, 1]);
        record.extend(SimTime::from_ns(9 * MS), 11);
        record.extend(SimTime::from_ns(20 * MS), 10);
        in_a_row.add(&record);
        assert_eq!(one_by_one.finish(), in_a_row.finish());
    }

    #[test]
    fn an_idle_engine_holds_nothing() {
        let mut passes = Passes::default();
        passes.add(&pass(0, 0, 4, [8, 2, 0]));
        passes.idle(EngineId(0), SimTime::from_ns(4 * MS), 0);
        passes.add(&pass(0, 12, 16, [8, 2, 0]));
        let (_, engines) = passes.finish();
        // 8 blocks for 4 + 4 of 16 ms.
        assert_eq!(engines[0].kv.used_blocks.mean, Some(4.0));
        assert_eq!(engines[0].kv.used_ratio, Level { mean: None, max: None });
    }

    #[test]
    fn engines_share_the_span_of_the_run() {
        let mut passes = Passes::default();
        passes.set_capacity(EngineId(2), 100);
        passes.add(&pass(0, 0, 10, [10, 1, 0]));
        passes.idle(EngineId(0), SimTime::from_ns(10 * MS), 0);
        passes.add(&pass(1, 5, 20, [10, 1, 0]));
        let (total, engines) = passes.finish();
        let means: Vec<_> = engines.iter().map(|engine| engine.kv.used_blocks.mean).collect();
        // 10 blocks for 10 of 20 ms, for 15 of 20 ms, and never.
        assert_eq!(means, [Some(5.0), Some(7.5), Some(0.0)]);
        let busy: Vec<_> = engines.iter().map(|engine| engine.busy_ratio).collect();
        assert_eq!(busy, [Some(0.5), Some(0.75), Some(0.0)]);
        // 25 ms of 3 engines times 20 ms.
        assert_eq!(total.busy_ratio, Some(25.0 / 60.0));
    }

    #[test]
    fn passes_are_told_apart_by_their_work() {
        let mut passes = Passes::default();
        let prefill = |pass| PassRecord { prefill_requests: 1, prefill_tokens: 100, ..pass };
        passes.add(&prefill(pass(0, 0, 10, [1, 0, 0])));
        passes.add(&prefill(pass(0, 10, 16, [1, 3, 0])));
        passes.add(&pass(0, 16, 18, [1, 4, 0]));
        passes.add(&pass(0, 18, 24, [1, 2, 0]));
        let (total, _) = passes.finish();
        let counts = [total.prefill_only, total.decode_only, total.mixed];
        assert_eq!(counts.map(|kind| kind.count), [1, 2, 1]);
        assert_eq!(total.total, 4);
        assert_eq!(total.decode_only.pass_ms_mean, Some(4.0));
        assert_eq!(total.decode_only.decode_requests_mean, Some(3.0));
        assert_eq!(total.mixed.prefill_tokens_mean, Some(100.0));
        assert_eq!(total.mixed.decode_tokens_mean, Some(3.0));
    }

    #[test]
    fn a_run_without_passes_knows_no_levels() {
        let mut passes = Passes::default();
        passes.set_capacity(EngineId(0), 20);
        let (total, engines) = passes.finish();
        assert_eq!((total.total, total.busy_ratio), (0, None));
        assert_eq!(total.mixed.pass_ms_mean, None);
        assert_eq!(engines[0].running, Level { mean: None, max: None });
    }
}
