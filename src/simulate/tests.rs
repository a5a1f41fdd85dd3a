//! Passes in step and passes request by request are the same run.
//!
//! Every case is a small deployment under a small load, both drawn from a seed. It runs twice, and
//! everything that can be seen must be equal: what became of each request and when, every record
//! and sample, the digest, and the blocks, their labels and their order in the free queue.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::base::ids::{EngineId, RequestId};
use crate::base::record::{Rejection, RequestRecord};
use crate::base::time::{SimDuration, SimTime};
use crate::engine::Advance;
use crate::engine::driver::Engine;
use crate::engine::outbox::Outbox;
use crate::engine::vllm::Vllm;
use crate::engine::vllm::config::{SchedulingPolicy, VllmConfig};
use crate::kernel::error::RunError;
use crate::kernel::{Ending, FrontEnd, Kernel, Observer};
use crate::metrics::collector::{Metrics, MetricsOptions, Warmup};
use crate::timing::config::{DecodePolynomial, PrefillPolynomial};
use crate::timing::polynomial::Polynomial;
use crate::timing::pricer::{HostTime, PassPricer};
use crate::workload::request::{Content, Piece, RequestSpec, Segment};
use crate::workload::source::RequestSource;
use crate::workload::trace::TraceError;

/// Cases that the test runs.
const CASES: u64 = 1500;

#[derive(Clone, Debug)]
struct Case {
    config: VllmConfig,
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

fn case(seed: u64) -> Case {
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
        ..VllmConfig::default()
    };
    let number = rng.random_range(1..45);
    let requests = requests(rng, number, longest, bypassed);
    Case {
        config: config.with_defaults().expect("drawn within the ranges"),
        requests,
        users: one_in(rng, 4).then(|| rng.random_range(1..=number)),
        bypassed,
        detokenize: SimDuration::from_ns(if one_in(rng, 3) { 700_000 } else { 0 }),
        warmup: if one_in(rng, 2) { rng.random_range(0..10) } else { 0 },
    }
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
    rejected: Vec<(RequestId, Rejection)>,
}

impl Observer for Seen {
    fn is_counted(&self, request: &RequestSpec) -> bool {
        self.metrics.is_counted(request.id, request.arrival)
    }

    fn rejected(&mut self, request: &RequestSpec, why: Rejection) -> Result<(), RunError> {
        self.rejected.push((request.id, why));
        Ok(())
    }

    fn told(&mut self, outbox: &Outbox) -> Result<(), RunError> {
        self.finished.extend(outbox.finished.iter().cloned());
        super::take_down(&mut self.metrics, outbox);
        Ok(())
    }
}

fn run(case: &Case, advance: Advance) -> (Ending, Seen, String) {
    let config = &case.config;
    let mut source =
        Requests { left: case.requests.clone().into_iter(), users: case.users, now: SimTime::ZERO };
    let scheduler = Vllm::new(config, case.detokenize, advance);
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
    let provider = Arc::new(Polynomial::new(prefill, decode, 1));
    let pricer = PassPricer::new(provider, HostTime::Added(0.0));
    // Some runs are warmed by requests that take no time.
    let warm = if case.warmup % 2 == 1 { case.warmup } else { 0 };
    let mut engines = [Engine::new(EngineId(0), Box::new(scheduler), pricer).warmed_by(warm)];
    let warmup = (case.warmup > 0).then_some(Warmup::Requests(case.warmup));
    let mut seen = Seen {
        metrics: Metrics::new(MetricsOptions { warmup, ..MetricsOptions::default() }),
        finished: Vec::new(),
        rejected: Vec::new(),
    };
    let front_end = if case.bypassed {
        FrontEnd::Bypassed
    } else {
        FrontEnd::Vllm { model_len_max: config.max_model_len.unwrap() }
    };
    let frontend_delay = SimDuration::from_ns(300_000);
    let kernel = Kernel::new(&mut source, &mut engines, front_end, frontend_delay);
    let ending = kernel.run(&mut seen).expect("polynomials price everything");
    (ending, seen, engines[0].kv_state())
}

#[test]
fn passes_in_step_are_those_request_by_request() {
    let (mut preempted, mut cached, mut unfinished, mut refused) = (0, 0, 0, 0);
    for seed in 0..CASES {
        let case = case(seed);
        let (stepwise_end, stepwise, stepwise_kv) = run(&case, Advance::OneByOne);
        let (in_step_end, in_step, in_step_kv) = run(&case, Advance::InStep);
        let what = || format!("seed {seed}: {case:#?}");
        assert_eq!(stepwise.finished, in_step.finished, "{}", what());
        assert_eq!(stepwise.rejected, in_step.rejected, "{}", what());
        assert_eq!(stepwise_kv, in_step_kv, "{}", what());
        let events = stepwise_end.events;
        assert_eq!(stepwise_end, Ending { events, ..in_step_end }, "{}", what());
        preempted += stepwise.finished.iter().filter(|r| r.preemptions > 0).count();
        cached += stepwise.finished.iter().filter(|r| r.cached_tokens > 0).count();
        unfinished += stepwise_end.unfinished.len();
        refused += stepwise.rejected.len();
        let [stepwise, in_step] = [stepwise, in_step]
            .map(|seen| serde_json::to_string(&seen.metrics.finish()).expect("plain data"));
        assert_eq!(stepwise, in_step, "{}", what());
    }
    // The cases would prove little if these did not happen.
    for (what, often) in [
        ("preempted", preempted),
        ("cached", cached),
        ("unfinished", unfinished),
        ("refused", refused),
    ] {
        assert!(often > 100, "{often} requests were {what}");
    }
}

/// A run takes `outputs` tokens for each of 64 users; how often was a request looked at?
fn requests_touched(config: &VllmConfig, outputs: u32) -> (u64, u64) {
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
    });
    let case = Case {
        config: config.clone(),
        requests: requests.collect(),
        users: Some(64),
        bypassed: true,
        detokenize: SimDuration::ZERO,
        warmup: 0,
    };
    let mut source =
        Requests { left: case.requests.clone().into_iter(), users: case.users, now: SimTime::ZERO };
    let scheduler = Vllm::new(config, case.detokenize, Advance::InStep);
    let provider = crate::timing::fixed::Fixed { prefill_ms: 9.0, decode_ms: 3.0, mixed_ms: None };
    let pricer = PassPricer::new(Arc::new(provider), HostTime::Added(0.0));
    let mut engines = [Engine::new(EngineId(0), Box::new(scheduler), pricer)];
    let mut seen = Seen {
        metrics: Metrics::new(MetricsOptions::default()),
        finished: Vec::new(),
        rejected: Vec::new(),
    };
    let kernel = Kernel::new(&mut source, &mut engines, FrontEnd::Bypassed, SimDuration::ZERO);
    kernel.run(&mut seen).expect("constants price everything");
    assert_eq!(seen.finished.len(), 256);
    (engines[0].effort().requests_touched, engines[0].passes())
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
        let (touched, passes) = requests_touched(&config, 60);
        let (touched_long, passes_long) = requests_touched(&config, 600);
        // 256 requests of 64 users are 4 rounds.
        assert!(passes_long > 4 * 590 && passes < 4 * 70, "{passes} and {passes_long} passes");
        assert_eq!(touched, touched_long);
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
    let report = simulate(&scenario, &extras, &mut ()).unwrap();
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
