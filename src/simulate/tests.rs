//! Passes in step and passes request by request are the same run.
//!
//! Every case is a small deployment under a small load, both drawn from a seed. It runs twice, and
//! everything that can be seen must be equal: what became of each request and when, every record
//! and sample, the digest, and the blocks, their labels and their order in the free queue.

mod perfetto;
mod sglang;
mod trtllm;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::base::detail::{PassDetail, PassPrice};
use crate::base::ids::{EngineId, RequestId};
use crate::base::record::{PassRecord, Rejection, RequestRecord};
use crate::base::time::{SimDuration, SimTime};
use crate::engine::drafting::{Acceptance, Drafting};
use crate::engine::driver::Engine;
use crate::engine::outbox::Outbox;
use crate::engine::vllm::Vllm;
use crate::engine::vllm::config::{SchedulingPolicy, VllmConfig};
use crate::engine::vllm::speculative::{SpeculativeConfig, SpeculativeMethod};
use crate::engine::{Advance, Scheduler};
use crate::kernel::error::RunError;
use crate::kernel::{Ending, FrontEnd, Kernel, Observer};
use crate::metrics::collector::{Metrics, MetricsOptions, Warmup};
use crate::timing::TimingProvider;
use crate::timing::config::{DecodePolynomial, PrefillPolynomial};
use crate::timing::fixed::Fixed;
use crate::timing::polynomial::Polynomial;
use crate::timing::pricer::{HostTime, PassPricer};
use crate::workload::request::{Content, Piece, RecordedDrafts, RequestSpec, Segment};
use crate::workload::source::RequestSource;
use crate::workload::trace::TraceError;

/// Cases that the test runs.
const CASES: u64 = 1500;

#[derive(Clone, Debug)]
struct Case<C> {
    config: C,
    /// What becomes of drafts, if the engine speculates.
    acceptance: Acceptance,
    requests: Vec<RequestSpec>,
    /// Requests under way at once; `None`: they come by their arrivals.
    users: Option<usize>,
    bypassed: bool,
    detokenize: SimDuration,
    warmup: u32,
}

/// True in one of `n` cases.
fn one_in(rng: &mut ChaCha8Rng, n: u32) -> bool {
    rng.random_range(0..n) == 0
}

fn pick<T: Copy>(rng: &mut ChaCha8Rng, from: &[T]) -> T {
    from[rng.random_range(0..from.len())]
}

fn case(seed: u64) -> Case<VllmConfig> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let rng = &mut rng;
    let block_size = pick(rng, &[1, 2, 4, 8, 8, 16, 48]);
    let longest = rng.random_range(20..200_u32);
    let seats = rng.random_range(1..=12);
    let bypassed = one_in(rng, 4);
    // From barely enough for one sequence to roomy.
    let sequences_max = if one_in(rng, 4) { 1 } else { 7 };
    let sequences = rng.random_range(1..=sequences_max);
    let spare_blocks = rng.random_range(0..4);
    let enough = longest.div_ceil(block_size) * sequences + spare_blocks + 1;
    let blocks = if bypassed && one_in(rng, 2) { (enough / 2).max(2) } else { enough };
    let chunked = !one_in(rng, 6);
    let batched = if chunked {
        let more = pick(rng, &[4, 30, 300]);
        seats + rng.random_range(0..more)
    } else {
        longest.max(seats) + rng.random_range(0..100)
    };
    let config = VllmConfig {
        block_size,
        num_gpu_blocks: Some(blocks),
        max_model_len: Some(longest),
        max_num_batched_tokens: Some(batched),
        max_num_scheduled_tokens: one_in(rng, 5).then(|| rng.random_range(1..=batched)),
        max_num_seqs: Some(seats),
        max_num_active_seqs: one_in(rng, 5).then(|| rng.random_range(1..=seats)),
        enable_chunked_prefill: chunked,
        long_prefill_token_threshold: if one_in(rng, 3) {
            rng.random_range(1..=longest)
        } else {
            0
        },
        long_prefill_token_threshold_adaptive: one_in(rng, 3),
        scheduler_reserve_full_isl: !one_in(rng, 3),
        prefill_schedule_interval: if one_in(rng, 4) { rng.random_range(2..6) } else { 1 },
        watermark: if one_in(rng, 4) { rng.random_range(0.0..0.3) } else { 0.0 },
        enable_prefix_caching: !one_in(rng, 4),
        scheduling_policy: pick(rng, &[SchedulingPolicy::Fcfs, SchedulingPolicy::Priority]),
        async_scheduling: !one_in(rng, 3),
        speculative_config: None,
        ..VllmConfig::default()
    };
    let number = rng.random_range(1..45);
    let requests = requests(rng, number, longest, bypassed);
    Case {
        acceptance: Acceptance::default(),
        config: config.with_defaults().expect("drawn within the ranges"),
        requests,
        users: one_in(rng, 4).then(|| rng.random_range(1..=number)),
        bypassed,
        detokenize: SimDuration::from_ns(if one_in(rng, 3) { 700_000 } else { 0 }),
        warmup: if one_in(rng, 2) { rng.random_range(0..10) } else { 0 },
    }
}

/// The same with speculation: half of the time nothing is left to chance, but for some requests that have a record of
/// their rounds.
fn speculative_case(seed: u64) -> Case<VllmConfig> {
    let mut case = case(seed);
    let mut rng = ChaCha8Rng::seed_from_u64(!seed);
    let rng = &mut rng;
    let drafts = rng.random_range(1..=6);
    let longest = case.config.max_model_len.unwrap();
    case.config.speculative_config = Some(SpeculativeConfig {
        method: pick(
            rng,
            &[
                SpeculativeMethod::Ngram,
                SpeculativeMethod::Eagle,
                SpeculativeMethod::DraftModel,
                SpeculativeMethod::Mtp,
            ],
        ),
        num_speculative_tokens: drafts,
        disable_eagle_block_drop: one_in(rng, 4),
        disable_lookahead_block_hashes: one_in(rng, 4),
    });
    // Sequences end where the requests do, not where the model does: otherwise drafts are cut.
    if !one_in(rng, 4) {
        case.config.max_model_len = Some(longest + 40);
        let blocks = (longest + 40).div_ceil(case.config.block_size) + 1;
        case.config.num_gpu_blocks = case.config.num_gpu_blocks.map(|n| n.max(blocks));
    }
    let batched = case.config.max_num_batched_tokens.unwrap();
    let factor = pick(rng, &[1, 1, 8]);
    case.config.max_num_batched_tokens = Some((batched * factor).max(drafts + 2));
    let certain = f64::from(rng.random_range(0..=drafts));
    let mean = if one_in(rng, 2) { certain } else { rng.random_range(0.0..f64::from(drafts)) };
    case.acceptance = Acceptance {
        at_least: (0..drafts).map(|n| (mean - f64::from(n)).clamp(0.0, 1.0)).collect(),
        none_found: if one_in(rng, 4) { 0.3 } else { 0.0 },
    };
    for request in &mut case.requests {
        if one_in(rng, 8) {
            let accepted = (0..rng.random_range(1..4)).map(|_| rng.random_range(0..=drafts));
            let accepted = accepted.collect();
            request.drafts = Some(Box::new(RecordedDrafts { accepted, found: Vec::new() }));
        }
    }
    case
}

/// Requests that share openings, repeat prompts and continue outputs.
fn requests(rng: &mut ChaCha8Rng, number: usize, longest: u32, bypassed: bool) -> Vec<RequestSpec> {
    let mut requests: Vec<RequestSpec> = Vec::new();
    let mut arrival = 0;
    for id in 0..number as u32 {
        if !one_in(rng, 3) {
            arrival += rng.random_range(0..60_000_000);
        }
        let mut pieces = match requests.len() {
            earlier if earlier > 0 && one_in(rng, 2) => {
                // Starts as an earlier prompt, perhaps goes on as its output.
                let earlier = requests[rng.random_range(0..earlier)].clone();
                let Content::Pieces(mut pieces) = earlier.content else { unreachable!() };
                if one_in(rng, 2) {
                    let tokens = rng.random_range(1..=earlier.output_tokens.max(1));
                    pieces.push(Piece { segment: earlier.output, tokens });
                } else {
                    pieces.truncate(rng.random_range(1..=pieces.len()));
                }
                pieces
            }
            _ => Vec::new(),
        };
        if pieces.is_empty() || one_in(rng, 2) {
            let segment = Segment::Named(rng.random_range(0..6));
            pieces.push(Piece { segment, tokens: rng.random_range(1..=longest / 2) });
        }
        // Past the front end only what a scheduler can take: a prompt within the model length.
        let limit = if bypassed { longest } else { longest + longest / 8 };
        let mut left = limit;
        pieces.retain_mut(|piece| {
            piece.tokens = piece.tokens.min(left);
            left -= piece.tokens;
            piece.tokens > 0
        });
        let output_max = pick(rng, &[2, 10, 60, longest]);
        let output_tokens = rng.random_range(1..=output_max);
        let stops = one_in(rng, 3);
        requests.push(RequestSpec {
            id: RequestId(id),
            arrival: SimTime::from_ns(arrival),
            prompt_tokens: limit - left,
            output_tokens,
            max_tokens: output_tokens + u32::from(stops) * rng.random_range(1..20),
            priority: rng.random_range(0..3),
            class: 0,
            content: Content::Pieces(pieces),
            output: if one_in(rng, 10) {
                Segment::Named(rng.random_range(0..6))
            } else {
                Segment::Output(RequestId(id))
            },
            line: 0,
            turn: None,
            drafts: None,
        });
    }
    requests
}

/// The requests of a case, by arrival or as others end.
struct Requests {
    left: std::vec::IntoIter<RequestSpec>,
    users: Option<usize>,
    now: SimTime,
}

impl RequestSource for Requests {
    fn next_arrival(&mut self) -> Result<Option<SimTime>, TraceError> {
        let next = self.left.as_slice().first();
        Ok(next.and_then(|request| match self.users {
            None => Some(request.arrival),
            Some(0) => None,
            Some(_) => Some(self.now),
        }))
    }

    fn take(&mut self) -> RequestSpec {
        let request = self.left.next().expect("asked for first");
        match &mut self.users {
            Some(users) => {
                *users -= 1;
                RequestSpec { arrival: self.now, ..request }
            }
            None => request,
        }
    }

    fn follows_ends(&self) -> bool {
        self.users.is_some()
    }

    fn ended(&mut self, _id: RequestId, at: SimTime) {
        self.users = self.users.map(|users| users + 1);
        self.now = at;
    }
}

/// Everything that can be seen of a run.
struct Seen {
    metrics: Metrics,
    finished: Vec<RequestRecord>,
    /// Whom the front end or the engine turned away, why, and when.
    rejected: Vec<(RequestId, Rejection, SimTime)>,
    passes: Vec<PassRecord>,
    /// Every pass in full, but for the shares of those who only decode.
    details: Vec<PassDetail>,
    /// Gaps between tokens, with how many there were.
    token_gaps: BTreeMap<SimDuration, u64>,
}

impl Observer for Seen {
    fn is_counted(&self, request: &RequestSpec) -> bool {
        self.metrics.is_counted(request.id, request.arrival)
    }

    fn rejected(&mut self, request: &RequestSpec, why: Rejection) -> Result<(), RunError> {
        self.rejected.push((request.id, why, request.arrival));
        Ok(())
    }

    fn told(&mut self, outbox: &Outbox) -> Result<(), RunError> {
        self.finished.extend(outbox.finished.iter().cloned());
        let turned_away = outbox.turned_away.iter();
        self.rejected.extend(turned_away.map(|&(request, why, at)| (request.id, why, at)));
        outbox.passes.iter().for_each(|&pass| self.note_pass(pass));
        for detail in outbox.details.iter().flatten() {
            let mut detail = detail.clone();
            detail.shares.retain(|share| !share.is_decode);
            self.details.push(detail);
        }
        for &(gap, count) in &outbox.token_gaps {
            *self.token_gaps.entry(gap).or_default() += count;
        }
        if outbox.burst_tokens > 0 {
            *self.token_gaps.entry(SimDuration::ZERO).or_default() += outbox.burst_tokens;
        }
        super::take_down(&mut self.metrics, outbox);
        Ok(())
    }
}

impl Seen {
    /// Takes a record down, as one with the last if nothing but KV and time tells them apart: how many
    /// passes were told as one depends on when the outbox was read.
    fn note_pass(&mut self, pass: PassRecord) {
        if let Some(last) = self.passes.last_mut()
            && last.end == pass.start
            && last.prefill_requests + pass.prefill_requests == 0
            && (last.decode_requests, last.decode_tokens)
                == (pass.decode_requests, pass.decode_tokens)
            && (last.running, last.waiting) == (pass.running, pass.waiting)
        {
            let between = last.end.since(last.last_start).as_ns();
            *last = PassRecord {
                start: last.start,
                passes: last.passes + pass.passes,
                used_blocks_max: last.used_blocks_max.max(pass.used_blocks_max),
                used_block_ns: last.used_block_ns
                    + u128::from(last.used_blocks) * u128::from(between)
                    + pass.used_block_ns,
                ..pass
            };
        } else {
            self.passes.push(pass);
        }
    }
}

/// A run that is over.
struct Run {
    ending: Ending,
    seen: Seen,
    engine: Engine,
}

/// A price for every pass that hardly any other has.
fn polynomial() -> Polynomial {
    let prefill = PrefillPolynomial {
        token_ms: 0.03,
        constant_ms: 4.0,
        attended_pair_ms: 0.0001,
        ..PrefillPolynomial::default()
    };
    let decode = DecodePolynomial {
        constant_ms: 2.0,
        request_ms: 0.1,
        kv_token_ms: 0.0013,
        longest_kv_token_ms: 0.0007,
        ..DecodePolynomial::default()
    };
    Polynomial::new(prefill, decode, 1)
}

/// Time between a request's arrival and the engine's queue.
const FRONTEND_DELAY: SimDuration = SimDuration::from_ns(300_000);

/// Runs a case on an engine with this scheduler.
fn serve<C>(
    case: &Case<C>,
    scheduler: impl Scheduler + 'static,
    provider: impl TimingProvider + 'static,
    server: FrontEnd,
) -> Run {
    let mut source =
        Requests { left: case.requests.clone().into_iter(), users: case.users, now: SimTime::ZERO };
    let pricer = PassPricer::new(Arc::new(provider), HostTime::Added(0.0));
    // Some runs are warmed by requests that take no time.
    let warm = if case.warmup % 2 == 1 { case.warmup } else { 0 };
    let engine = Engine::new(EngineId(0), Box::new(scheduler), pricer).warmed_by(warm);
    let mut engines = [engine];
    let warmup = (case.warmup > 0).then_some(Warmup::Requests(case.warmup));
    let mut seen = Seen {
        metrics: Metrics::new(MetricsOptions { warmup, ..MetricsOptions::default() })
            .with_rounds(Some(16)),
        finished: Vec::new(),
        rejected: Vec::new(),
        passes: Vec::new(),
        details: Vec::new(),
        token_gaps: BTreeMap::new(),
    };
    let front_end = if case.bypassed { FrontEnd::Bypassed } else { server };
    let kernel = Kernel::new(&mut source, &mut engines, front_end, FRONTEND_DELAY);
    // Half of the cases; asking for details must change nothing.
    let kernel = if case.requests.len().is_multiple_of(2) { kernel.with_details() } else { kernel };
    let ending = kernel.run(&mut seen).expect("everything has a price");
    let [engine] = engines;
    Run { ending, seen, engine }
}

/// Runs a case in both ways, which must look the same. Those that came out are the one request by
/// request and the one in step.
fn run_both_ways<C: Debug>(
    seed: u64,
    case: &Case<C>,
    run: impl Fn(&Case<C>, Advance) -> Run,
) -> [Run; 2] {
    let stepwise = run(case, Advance::OneByOne);
    let in_step = run(case, Advance::InStep);
    let what = || format!("seed {seed}: {case:#?}");
    let (a, b) = (&stepwise.seen, &in_step.seen);
    assert_eq!(a.finished, b.finished, "{}", what());
    assert_eq!(a.rejected, b.rejected, "{}", what());
    assert_eq!(a.passes, b.passes, "{}", what());
    assert_eq!(without_reasons(a), without_reasons(b), "{}", what());
    for (a, b) in a.details.iter().zip(&b.details) {
        // Known request by request alone.
        assert!(b.blocked.is_none() || a.blocked == b.blocked, "{}", what());
        assert_eq!(a.blocked.is_some(), a.waiting > 0, "{a:?}: {}", what());
    }
    b.details.iter().for_each(assert_parts_add_up);
    assert_eq!(a.token_gaps, b.token_gaps, "{}", what());
    assert_eq!(stepwise.engine.kv_state(), in_step.engine.kv_state(), "{}", what());
    let events = stepwise.ending.events;
    assert_eq!(stepwise.ending, Ending { events, ..in_step.ending.clone() }, "{}", what());
    let [a, b] = [a, b].map(|seen| {
        serde_json::to_string(&seen.metrics.clone().finish()).expect("it is plain data")
    });
    assert_eq!(a, b, "{}", what());
    [stepwise, in_step]
}

fn without_reasons(seen: &Seen) -> Vec<PassDetail> {
    let details = seen.details.iter().cloned();
    details.map(|detail| PassDetail { blocked: None, ..detail }).collect()
}

/// The parts of its price are what the pass took.
fn assert_parts_add_up(pass: &PassDetail) {
    let PassPrice { prefill_ms, decode_ms, draft_ms, host_ms, decode_only_ms } = pass.price;
    let parts_ms = prefill_ms + decode_ms + draft_ms + host_ms;
    let took_ms = pass.end.since(pass.start).as_ms();
    assert!((parts_ms - took_ms).abs() < 1e-6, "{pass:?}");
    assert!(decode_only_ms.is_none_or(|alone_ms| alone_ms <= took_ms + 1e-6), "{pass:?}");
}

fn run(case: &Case<VllmConfig>, advance: Advance) -> Run {
    let config = &case.config;
    let server = FrontEnd::Vllm { model_len_max: config.max_model_len.unwrap() };
    let drafting = config
        .speculative_config
        .map(|_| Drafting::new(Arc::new(case.acceptance.clone()), 11, EngineId(0)));
    serve(case, Vllm::new(config, drafting, case.detokenize, advance), polynomial(), server)
}

/// Cases prove little if these things did not happen to more than 100 requests.
fn assert_often(counts: &[(&str, usize)]) {
    for (what, often) in counts {
        assert!(*often > 100, "{often} requests were {what}");
    }
}

#[test]
fn passes_in_step_are_those_request_by_request() {
    let (mut preempted, mut cached, mut unfinished, mut refused) = (0, 0, 0, 0);
    for seed in 0..CASES {
        let [Run { ending, seen, .. }, _] = run_both_ways(seed, &case(seed), run);
        preempted += seen.finished.iter().filter(|r| r.preemptions > 0).count();
        cached += seen.finished.iter().filter(|r| r.cached_tokens > 0).count();
        unfinished += ending.unfinished.len();
        refused += seen.rejected.len();
    }
    assert_often(&[
        ("preempted", preempted),
        ("cached", cached),
        ("unfinished", unfinished),
        ("refused", refused),
    ]);
}

#[test]
fn rounds_in_step_are_those_request_by_request() {
    let (mut preempted, mut cached, mut past_end, mut in_step) = (0, 0, 0, 0);
    for seed in 0..CASES {
        let case = speculative_case(seed);
        let [stepwise, run] = run_both_ways(seed, &case, run);
        preempted += run.seen.finished.iter().filter(|r| r.preemptions > 0).count();
        cached += run.seen.finished.iter().filter(|r| r.cached_tokens > 0).count();
        let outputs = |r: &RequestRecord| r.rounds.rounds + r.rounds.accepted + 1;
        past_end += run.seen.finished.iter().filter(|r| outputs(r) > r.output_tokens).count();
        in_step += usize::from(
            run.engine.effort().requests_touched < stepwise.engine.effort().requests_touched,
        );
    }
    assert_often(&[
        ("preempted", preempted),
        ("cached", cached),
        ("given more tokens than they took", past_end),
        ("in step at some time", in_step),
    ]);
}

/// A run takes `outputs` tokens for each of 256 requests, of which so many `users` are under way, or
/// all; how often was a request looked at, in how many passes?
fn requests_touched(
    scheduler: impl Scheduler + 'static,
    users: Option<usize>,
    outputs: u32,
) -> (u64, u64) {
    let requests = (0..256).map(|id| RequestSpec {
        id: RequestId(id),
        arrival: SimTime::ZERO,
        prompt_tokens: 100,
        output_tokens: outputs,
        max_tokens: outputs,
        priority: 0,
        class: 0,
        content: Content::Private,
        output: Segment::Output(RequestId(id)),
        line: 0,
        turn: None,
        drafts: None,
    });
    let case = Case {
        acceptance: Acceptance::default(),
        config: (),
        requests: requests.collect(),
        users,
        bypassed: true,
        detokenize: SimDuration::ZERO,
        warmup: 0,
    };
    let provider = Fixed { prefill_ms: 9.0, decode_ms: 3.0, mixed_ms: None };
    let Run { seen, engine, .. } = serve(&case, scheduler, provider, FrontEnd::Bypassed);
    assert_eq!(seen.finished.len(), 256);
    (engine.effort().requests_touched, engine.passes())
}

#[test]
fn ten_times_the_output_touches_no_request_more() {
    for async_scheduling in [false, true] {
        let config = VllmConfig {
            async_scheduling,
            enable_prefix_caching: false,
            num_gpu_blocks: Some(100_000),
            max_model_len: Some(10_000),
            ..VllmConfig::default()
        };
        let config = config.with_defaults().unwrap();
        let touched = |outputs| {
            let scheduler = Vllm::new(&config, None, SimDuration::ZERO, Advance::InStep);
            requests_touched(scheduler, Some(64), outputs)
        };
        let ((short, passes), (long, passes_long)) = (touched(60), touched(600));
        // 256 requests of 64 users are 4 rounds.
        assert!(passes_long > 4 * 590 && passes < 4 * 70, "{passes} and {passes_long} passes");
        assert_eq!(short, long);

        // The same with bursts of three tokens.
        let config = VllmConfig {
            speculative_config: Some(SpeculativeConfig {
                method: SpeculativeMethod::Eagle,
                num_speculative_tokens: 4,
                disable_eagle_block_drop: false,
                disable_lookahead_block_hashes: false,
            }),
            ..config
        };
        let acceptance =
            Arc::new(Acceptance { at_least: vec![1.0, 1.0, 0.0, 0.0], none_found: 0.0 });
        let touched = |outputs| {
            let drafting = Drafting::new(Arc::clone(&acceptance), 0, EngineId(0));
            let scheduler = Vllm::new(&config, Some(drafting), SimDuration::ZERO, Advance::InStep);
            requests_touched(scheduler, Some(64), outputs)
        };
        let ((short, passes), (long, passes_long)) = (touched(61), touched(601));
        // A token of the prefill and 20 or 200 bursts, four times.
        assert!(passes_long > 4 * 200 && passes < 4 * 26, "{passes} and {passes_long} passes");
        assert_eq!(short, long);
    }
}

#[test]
fn a_cache_is_warmed_in_no_time() {
    use super::{Extras, Scenario, Value, simulate};

    let folder = tempfile::tempdir().unwrap();
    let (trace, rows) = (folder.path().join("t.jsonl"), folder.path().join("rows.jsonl"));
    let row = |ms| {
        format!(
            "{{\"timestamp\": {ms}, \"input_length\": 2048, \"output_length\": 9, \
             \"hash_ids\": [1, 2, 3, 4]}}\n"
        )
    };
    std::fs::write(&trace, row(0) + &row(5000)).unwrap();
    let scenario = Scenario::replay(&trace);
    let warm = crate::scenario::Assignment::parse("metrics.warmup.warm_cache=1").unwrap();
    let scenario = scenario.with(&[warm]).unwrap().resolve(folder.path()).unwrap();
    let extras = Extras { requests: Some(rows.clone()), ..Extras::default() };
    let report = simulate(&scenario, &extras, &mut ()).unwrap().put().unwrap();
    let mut json = Vec::new();
    report.write_json(&mut json).unwrap();
    let report: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(report["requests"]["excluded"], 1);
    // All blocks of the second prompt but the last one, whose last token is computed again.
    assert_eq!(report["tokens"]["cached"], 2048 - 16);
    let rows = std::fs::read_to_string(rows).unwrap();
    let rows: Vec<Value> = rows.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    assert_eq!(rows[0]["e2e_ms"], 0.0);
    assert!(rows[1]["e2e_ms"].as_f64().unwrap() > 1.0);
}
