//! The run over time: what happened in each of a row of intervals, by engine and in total.
//!
//! All intervals are equally long. Their length doubles whenever the run outgrows their number, so
//! that memory does not grow with the run; what they say does not depend on when that happened. What a record says of a
//! stretch of time is spread over it evenly, in whole units whose sum stays the same.

use crate::base::ids::EngineId;
use crate::base::time::SimTime;

use super::passes::{kind, ratio};
use super::record::{PassRecord, RequestRecord, Unserved};

/// Intervals that are kept at most; at least half as many are, of a run that is long enough.
const BINS_MAX: usize = 1024;

/// The length of intervals at first: a millisecond.
const BIN_NS: u64 = 1_000_000;

/// Kinds of passes: prefill only, decode only, mixed.
pub(crate) const KINDS: usize = 3;

/// The run over time, as it goes on.
#[derive(Clone, Debug)]
pub(crate) struct TimeSeries {
    bin_ns: u64,
    /// The latest instant that anything is known of.
    end: SimTime,
    /// Arrivals of requests that reached no engine.
    homeless: Vec<u64>,
    engines: Vec<EngineSeries>,
}

/// One interval of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Row {
    /// When it begins, in seconds from the start of the run.
    pub(crate) from_s: f64,
    /// How long it is; the last ends with the run.
    pub(crate) width_s: f64,
    /// Requests that arrived, those that were turned away or never finished included.
    pub(crate) arrivals: u64,
    /// Requests whose last token became visible.
    pub(crate) completions: u64,
    /// Requests in the running list.
    pub(crate) running: Reached,
    /// Requests in the queue.
    pub(crate) waiting: Reached,
    /// KV blocks held by requests over those there are; `None` where that number is unknown.
    pub(crate) kv_used_ratio: Option<Reached>,
    /// Prefill tokens computed, recomputation included.
    pub(crate) prefill_tokens: u64,
    /// Query tokens of decodes, drafts included.
    pub(crate) decode_tokens: u64,
    /// Output tokens of the requests that finished: the first where it became visible, the others evenly up to the
    /// last.
    pub(crate) output_tokens: u64,
    /// Passes by kind: prefill only, decode only, mixed.
    pub(crate) passes: [u64; KINDS],
    /// Time of passes by kind, in seconds.
    pub(crate) busy_s: [f64; KINDS],
}

/// What a level was in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Reached {
    /// Over time.
    pub(crate) mean: f64,
    /// The highest. Of several engines: the sum of what each reached, at whatever instants; of ratios the fullest
    /// engine's.
    pub(crate) max: f64,
}

#[derive(Clone, Debug, Default)]
struct EngineSeries {
    bins: Vec<Bin>,
    capacity_blocks: Option<u32>,
    /// Up to when levels are summed.
    held_to: SimTime,
    /// By [`LEVELS`]: what holds from there on.
    levels: [u32; LEVELS],
}

/// Running, waiting, used blocks.
const LEVELS: usize = 3;
const RUNNING: usize = 0;
const WAITING: usize = 1;
const BLOCKS: usize = 2;

/// What one engine did in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bin {
    arrivals: u64,
    completions: u64,
    prefill_tokens: u64,
    decode_tokens: u64,
    output_tokens: u64,
    passes: [u64; KINDS],
    busy_ns: [u64; KINDS],
    /// Level times nanoseconds.
    areas: [u128; LEVELS],
    maxima: [u32; LEVELS],
}

impl Default for TimeSeries {
    fn default() -> Self {
        Self { bin_ns: BIN_NS, end: SimTime::ZERO, homeless: Vec::new(), engines: Vec::new() }
    }
}

impl TimeSeries {
    /// Engine `id` has so many blocks to give.
    pub(crate) fn engines(&mut self, usable_blocks: &[u32]) {
        for (id, &blocks) in usable_blocks.iter().enumerate() {
            self.engine(EngineId(id as u32)).capacity_blocks = Some(blocks);
        }
    }

    /// A pass, or several alike. Those of one engine come in order of their start.
    pub(crate) fn pass(&mut self, pass: &PassRecord) {
        self.reach(pass.end);
        let (bin_ns, engine) = self.bins_of(pass.engine);
        engine.hold_to(pass.start, bin_ns);
        let kind = kind(pass);
        let busy = pass.end.since(pass.start).as_ns();
        let tokens = |tokens: u32| u128::from(tokens) * u128::from(pass.passes);
        let (prefill, decode) = (tokens(pass.prefill_tokens), tokens(pass.decode_tokens));
        let (passes, busy) = (u128::from(pass.passes), u128::from(busy));
        let amounts = [prefill, decode, passes, busy];
        engine.spread(pass.start, pass.end, bin_ns, amounts, |bin, parts| {
            let [prefill, decode, passes, busy] = parts.map(|part| part as u64);
            bin.prefill_tokens += prefill;
            bin.decode_tokens += decode;
            bin.passes[kind] += passes;
            bin.busy_ns[kind] += busy;
        });
        engine.levels = [pass.running, pass.waiting, 0];
        engine.hold_to(pass.last_start, bin_ns);
        let held = [pass.used_block_ns];
        engine.spread(pass.start, pass.last_start, bin_ns, held, |bin, [area]| {
            bin.areas[BLOCKS] += area;
        });
        engine.levels[BLOCKS] = pass.used_blocks;
        // What is held grows from one of these passes to the next.
        let last = engine.bin(pass.last_start, bin_ns);
        last.maxima[BLOCKS] = last.maxima[BLOCKS].max(pass.used_blocks_max);
    }

    /// From `since` to its next pass, `engine` runs no request; so many wait.
    pub(crate) fn idle(&mut self, engine: EngineId, since: SimTime, waiting: u32) {
        self.reach(since);
        let (bin_ns, engine) = self.bins_of(engine);
        engine.hold_to(since.max(engine.held_to), bin_ns);
        engine.levels = [0, waiting, 0];
    }

    /// A request finished.
    pub(crate) fn finished(&mut self, record: &RequestRecord) {
        self.reach(record.last_token);
        let (bin_ns, engine) = self.bins_of(record.engine);
        engine.bin(record.arrival, bin_ns).arrivals += 1;
        engine.bin(record.last_token, bin_ns).completions += 1;
        engine.bin(record.first_token, bin_ns).output_tokens += 1;
        let others = [u128::from(record.output_tokens - 1)];
        let (first, last) = (record.first_token, record.last_token);
        engine.spread(first, last, bin_ns, others, |bin, [tokens]| {
            bin.output_tokens += tokens as u64;
        });
    }

    /// A request did not finish, or was turned away.
    pub(crate) fn unserved(&mut self, request: &Unserved) {
        self.reach(request.arrival);
        if let Some(id) = request.engine {
            let (bin_ns, engine) = self.bins_of(id);
            engine.bin(request.arrival, bin_ns).arrivals += 1;
            return;
        }
        let at = (request.arrival.as_ns() / self.bin_ns) as usize;
        if at >= self.homeless.len() {
            self.homeless.resize(at + 1, 0);
        }
        self.homeless[at] += 1;
    }

    /// The intervals of the run, each engine's and those of all. There are at most `rows_max`
    /// of them.
    pub(crate) fn finish(mut self, rows_max: usize) -> Rows {
        let end = self.end;
        let bin_ns = self.bin_ns;
        self.engines.iter_mut().for_each(|engine| engine.hold_to(end.max(engine.held_to), bin_ns));
        while self.len() > rows_max.max(1) {
            self.double();
        }
        let rows: Vec<Vec<Row>> = self.engines.iter().map(|engine| self.rows_of(engine)).collect();
        Rows { total: self.total(&rows), engines: rows }
    }

    /// How many intervals there are.
    fn len(&self) -> usize {
        (self.end.as_ns() / self.bin_ns) as usize + 1
    }

    fn rows_of(&self, engine: &EngineSeries) -> Vec<Row> {
        let capacity = engine.capacity_blocks.filter(|&blocks| blocks > 0).map(f64::from);
        let row = |number: usize| {
            let bin = engine.bins.get(number).copied().unwrap_or_default();
            let from = number as u64 * self.bin_ns;
            let width = self.bin_ns.min(self.end.as_ns() - from);
            let reached = |level: usize| Reached {
                mean: ratio(bin.areas[level] as f64, width as f64).unwrap_or(0.0),
                max: bin.maxima[level].into(),
            };
            let blocks = reached(BLOCKS);
            Row {
                from_s: from as f64 / 1e9,
                width_s: width as f64 / 1e9,
                arrivals: bin.arrivals,
                completions: bin.completions,
                running: reached(RUNNING),
                waiting: reached(WAITING),
                kv_used_ratio: capacity.map(|capacity| Reached {
                    mean: blocks.mean / capacity,
                    max: blocks.max / capacity,
                }),
                prefill_tokens: bin.prefill_tokens,
                decode_tokens: bin.decode_tokens,
                output_tokens: bin.output_tokens,
                passes: bin.passes,
                busy_s: bin.busy_ns.map(|ns| ns as f64 / 1e9),
            }
        };
        (0..self.len()).map(row).collect()
    }

    fn total(&self, engines: &[Vec<Row>]) -> Vec<Row> {
        let capacities = self.engines.iter().map(|engine| engine.capacity_blocks.unwrap_or(0));
        let capacities: Vec<f64> = capacities.map(f64::from).collect();
        let capacity: f64 = capacities.iter().sum();
        let nobody = EngineSeries::default();
        let mut total = self.rows_of(&nobody);
        for (number, row) in total.iter_mut().enumerate() {
            row.arrivals = self.homeless.get(number).copied().unwrap_or(0);
            for (rows, own) in engines.iter().zip(&capacities) {
                row.add(&rows[number], own / capacity);
            }
        }
        total
    }

    /// Nothing later than `instant` is asked for before this is called again.
    fn reach(&mut self, instant: SimTime) {
        self.end = self.end.max(instant);
        while self.len() > BINS_MAX {
            self.double();
        }
    }

    fn double(&mut self) {
        self.bin_ns *= 2;
        self.homeless = self.homeless.chunks(2).map(|two| two.iter().sum()).collect();
        for engine in &mut self.engines {
            let merged = engine.bins.chunks(2).map(|two| match two {
                [first, second] => first.and(second),
                _ => two[0],
            });
            engine.bins = merged.collect();
        }
    }

    fn engine(&mut self, id: EngineId) -> &mut EngineSeries {
        if id.index() >= self.engines.len() {
            self.engines.resize_with(id.index() + 1, EngineSeries::default);
        }
        &mut self.engines[id.index()]
    }

    fn bins_of(&mut self, id: EngineId) -> (u64, &mut EngineSeries) {
        (self.bin_ns, self.engine(id))
    }
}

/// A run in rows, all of the same intervals.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    /// Of all engines.
    pub(crate) total: Vec<Row>,
    /// Of each engine, by id.
    pub(crate) engines: Vec<Vec<Row>>,
}

impl Row {
    /// Takes in what an engine with this share of the KV did in the same interval.
    fn add(&mut self, engine: &Self, kv_share: f64) {
        self.arrivals += engine.arrivals;
        self.completions += engine.completions;
        self.prefill_tokens += engine.prefill_tokens;
        self.decode_tokens += engine.decode_tokens;
        self.output_tokens += engine.output_tokens;
        for kind in 0..KINDS {
            self.passes[kind] += engine.passes[kind];
            self.busy_s[kind] += engine.busy_s[kind];
        }
        for (all, own) in [(&mut self.running, engine.running), (&mut self.waiting, engine.waiting)]
        {
            all.mean += own.mean;
            all.max += own.max;
        }
        if let Some(own) = engine.kv_used_ratio {
            let all = self.kv_used_ratio.get_or_insert_default();
            all.mean += own.mean * kv_share;
            all.max = all.max.max(own.max);
        }
    }
}

impl EngineSeries {
    fn bin(&mut self, at: SimTime, bin_ns: u64) -> &mut Bin {
        let at = (at.as_ns() / bin_ns) as usize;
        if at >= self.bins.len() {
            self.bins.resize_with(at + 1, Bin::default);
        }
        &mut self.bins[at]
    }

    /// The levels hold up to `now`.
    fn hold_to(&mut self, now: SimTime, bin_ns: u64) {
        let (from, levels) = (self.held_to, self.levels);
        self.held_to = now;
        if levels == [0; LEVELS] {
            return;
        }
        let held = u128::from(now.since(from).as_ns());
        let areas = levels.map(|level| u128::from(level) * held);
        self.spread(from, now, bin_ns, areas, |bin, parts| {
            for level in 0..LEVELS {
                bin.areas[level] += parts[level];
                bin.maxima[level] = bin.maxima[level].max(levels[level]);
            }
        });
    }

    /// Gives each interval its part of `amounts`, which belong to the time from `from` to `to`; all of them to one
    /// where that is an instant.
    fn spread<const N: usize>(
        &mut self,
        from: SimTime,
        to: SimTime,
        bin_ns: u64,
        amounts: [u128; N],
        mut give: impl FnMut(&mut Bin, [u128; N]),
    ) {
        let (from, to) = (from.as_ns(), to.as_ns());
        let (first, last) = (from / bin_ns, to.saturating_sub(1).max(from) / bin_ns);
        if first == last {
            give(self.bin(SimTime::from_ns(from), bin_ns), amounts);
            return;
        }
        // Room for all of them at once.
        self.bin(SimTime::from_ns(last * bin_ns), bin_ns);
        let whole = u128::from(to - from);
        let mut given = [0; N];
        for number in first..=last {
            let past = u128::from(((number + 1) * bin_ns).min(to) - from);
            let up_to = amounts.map(|amount| share(amount, past, whole));
            let parts = std::array::from_fn(|at| up_to[at] - given[at]);
            give(&mut self.bins[number as usize], parts);
            given = up_to;
        }
    }
}

/// `amount * past / whole`, rounded down, where `past` is at most `whole`.
fn share(amount: u128, past: u128, whole: u128) -> u128 {
    // The second product is below whole^2, and a run is shorter than 2^64 nanoseconds.
    amount / whole * past + amount % whole * past / whole
}

impl Bin {
    /// Both in one.
    fn and(&self, next: &Self) -> Self {
        fn sum<T: Copy + std::ops::Add<Output = T>, const N: usize>(
            a: [T; N],
            b: [T; N],
        ) -> [T; N] {
            std::array::from_fn(|at| a[at] + b[at])
        }
        Self {
            arrivals: self.arrivals + next.arrivals,
            completions: self.completions + next.completions,
            prefill_tokens: self.prefill_tokens + next.prefill_tokens,
            decode_tokens: self.decode_tokens + next.decode_tokens,
            output_tokens: self.output_tokens + next.output_tokens,
            passes: sum(self.passes, next.passes),
            busy_ns: sum(self.busy_ns, next.busy_ns),
            areas: sum(self.areas, next.areas),
            maxima: std::array::from_fn(|at| self.maxima[at].max(next.maxima[at])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::RequestId;
    use crate::base::record::{Finish, RequestRounds, TtftParts};

    const US: u64 = 1000;

    fn at_us(us: u64) -> SimTime {
        SimTime::from_ns(us * US)
    }

    /// Four prefills in a row, each of 8 tokens, with 3 running, 1 waiting and 10 blocks.
    fn passes(engine: u32, start_us: u64, end_us: u64) -> PassRecord {
        let last_start_us = end_us - (end_us - start_us) / 4;
        PassRecord {
            engine: EngineId(engine),
            passes: 4,
            start: at_us(start_us),
            last_start: at_us(last_start_us),
            end: at_us(end_us),
            prefill_requests: 1,
            prefill_tokens: 8,
            decode_requests: 0,
            decode_tokens: 0,
            used_blocks: 10,
            used_blocks_max: 10,
            used_block_ns: 10 * u128::from((last_start_us - start_us) * US),
            running: 3,
            waiting: 1,
        }
    }

    fn request(engine: u32, arrival_us: u64, first_us: u64, last_us: u64) -> RequestRecord {
        RequestRecord {
            id: RequestId(0),
            line: 0,
            engine: EngineId(engine),
            arrival: at_us(arrival_us),
            first_scheduled: at_us(arrival_us),
            first_token: at_us(first_us),
            last_token: at_us(last_us),
            prompt_tokens: 10,
            output_tokens: 9,
            cached_tokens: 0,
            preemptions: 0,
            ttft: TtftParts::default(),
            finish: Finish::Stop,
            priority: 0,
            class: 0,
            rounds: RequestRounds::default(),
        }
    }

    fn unserved(engine: Option<u32>, arrival_us: u64) -> Unserved {
        Unserved {
            id: RequestId(1),
            line: 0,
            engine: engine.map(EngineId),
            arrival: at_us(arrival_us),
            priority: 0,
            class: 0,
            prompt_tokens: 1,
        }
    }

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
    }

    #[test]
    fn passes_are_spread_over_their_time() {
        let mut series = TimeSeries::default();
        series.engines(&[20]);
        series.pass(&passes(0, 500, 2500));
        let rows = series.finish(100).total;
        // Of 2 ms, half a millisecond lies in the first interval, all of the second, and the first half of the third.
        assert_eq!(rows.iter().map(|row| row.prefill_tokens).collect::<Vec<_>>(), [8, 16, 8]);
        assert_eq!(rows.iter().map(|row| row.passes[0]).collect::<Vec<_>>(), [1, 2, 1]);
        near(rows[0].busy_s[0], 0.0005);
        // The run ends after half of the third.
        near(rows[2].width_s, 0.0005);
        near(rows[0].running.mean, 1.5);
        near(rows[1].running.mean, 3.0);
        near(rows[2].running.mean, 3.0);
        near(rows[1].waiting.max, 1.0);
        // 10 of 20 blocks, held for half of the first interval.
        near(rows[0].kv_used_ratio.unwrap().mean, 0.25);
        near(rows[2].kv_used_ratio.unwrap().mean, 0.5);
        near(rows[2].kv_used_ratio.unwrap().max, 0.5);
    }

    #[test]
    fn an_idle_engine_holds_nothing() {
        let mut series = TimeSeries::default();
        series.engines(&[10]);
        series.pass(&passes(0, 0, 1000));
        series.idle(EngineId(0), at_us(1000), 2);
        series.pass(&passes(0, 3000, 4000));
        let rows = series.finish(100).total;
        near(rows[1].running.mean, 0.0);
        near(rows[1].waiting.mean, 2.0);
        near(rows[1].kv_used_ratio.unwrap().max, 0.0);
        near(rows[3].running.mean, 3.0);
    }

    #[test]
    fn requests_arrive_complete_and_give_tokens() {
        let mut series = TimeSeries::default();
        // 1 token at 1.5 ms, 8 from there to 3.5 ms: 2, 4 and 2.
        series.finished(&request(0, 100, 1500, 3500));
        series.unserved(&unserved(None, 200));
        series.unserved(&unserved(Some(0), 1100));
        let rows = series.finish(100);
        let of = |value: fn(&Row) -> u64| rows.total.iter().map(value).collect::<Vec<_>>();
        assert_eq!(of(|row| row.arrivals), [2, 1, 0, 0]);
        assert_eq!(of(|row| row.completions), [0, 0, 0, 1]);
        assert_eq!(of(|row| row.output_tokens), [0, 3, 4, 2]);
        assert_eq!(rows.engines[0].iter().map(|row| row.arrivals).sum::<u64>(), 2);
        assert_eq!(rows.total[0].kv_used_ratio, None);
    }

    #[test]
    fn engines_add_up() {
        let mut series = TimeSeries::default();
        series.engines(&[10, 40]);
        series.pass(&passes(0, 0, 1000));
        series.pass(&passes(1, 0, 1000));
        let row = series.finish(100).total[0];
        assert_eq!((row.prefill_tokens, row.passes[0]), (64, 8));
        near(row.running.mean, 6.0);
        near(row.busy_s[0], 0.002);
        // 20 of 50 blocks; the first engine is full.
        near(row.kv_used_ratio.unwrap().mean, 0.4);
        near(row.kv_used_ratio.unwrap().max, 1.0);
    }

    #[test]
    fn it_does_not_matter_when_intervals_become_longer() {
        let records: Vec<_> = (0..40).map(|n| passes(0, n * 70_001, n * 70_001 + 60_007)).collect();
        let late = passes(1, 8_000_000, 8_000_013);
        let (mut before, mut after) = (TimeSeries::default(), TimeSeries::default());
        before.pass(&late);
        records.iter().for_each(|pass| before.pass(pass));
        records.iter().for_each(|pass| after.pass(pass));
        after.pass(&late);
        let (before, after) = (before.finish(BINS_MAX), after.finish(BINS_MAX));
        assert_eq!(before.engines, after.engines);
        assert!(before.total.len() <= BINS_MAX && before.total.len() > BINS_MAX / 2);
        let sum = |rows: &[Row]| rows.iter().map(|row| row.prefill_tokens).sum::<u64>();
        assert_eq!((sum(&before.total), before.total.len()), (41 * 32, after.total.len()));
    }

    #[test]
    fn a_run_of_a_century_fits() {
        let mut series = TimeSeries::default();
        series.unserved(&unserved(None, 0));
        series.unserved(&Unserved { arrival: SimTime::LATEST_INPUT, ..unserved(None, 0) });
        let rows = series.finish(256).total;
        assert!(rows.len() <= 256 && rows.len() > 100);
        assert_eq!((rows[0].arrivals, rows[rows.len() - 1].arrivals), (1, 1));
        assert_eq!(TimeSeries::default().finish(10).total.len(), 1);
    }
}
