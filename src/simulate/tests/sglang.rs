//! SGLang's scheduler in both ways: all its settings are drawn, under loads that fill its pool.

use super::*;
use crate::engine::drafting::{Acceptance, Drafting};
use crate::engine::sglang::Sglang;
use crate::engine::sglang::config::speculative::SpeculativeAlgorithm;
use crate::engine::sglang::config::{
    EvictionPolicy, Limits, RetractionPolicy, SchedulePolicy, SglangConfig,
};
use crate::workload::request::RecordedDrafts;

/// Cases that the test runs.
const CASES: u64 = 1500;

/// A deployment.
#[derive(Clone, Debug)]
struct Deployment {
    config: SglangConfig,
    /// Whether passes take whole milliseconds, and arrivals come with their ends.
    on_grid: bool,
}

const SCHEDULE_POLICIES: [SchedulePolicy; 8] = [
    SchedulePolicy::Fcfs,
    SchedulePolicy::Fcfs,
    SchedulePolicy::Fcfs,
    SchedulePolicy::Lpm,
    SchedulePolicy::DfsWeight,
    SchedulePolicy::Lof,
    SchedulePolicy::Hrrn,
    SchedulePolicy::ShortestPrefillFirst,
];

const EVICTION_POLICIES: [EvictionPolicy; 8] = [
    EvictionPolicy::Lru,
    EvictionPolicy::Lru,
    EvictionPolicy::Lfu,
    EvictionPolicy::Slru,
    EvictionPolicy::Fifo,
    EvictionPolicy::Mru,
    EvictionPolicy::Filo,
    EvictionPolicy::Priority,
];

fn case(seed: u64) -> Case<Deployment> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let rng = &mut rng;
    let page_size = pick(rng, &[1, 1, 1, 2, 4, 7, 16, 64]);
    let longest = rng.random_range(20..200_u32) + page_size * rng.random_range(0..4);
    // Limits above what is expected of anybody (E3) need a pool that is larger still.
    let is_wide = one_in(rng, 25);
    let sequences_max = pick(rng, &[1, 2, 7]);
    let pool = if is_wide {
        rng.random_range(9000..30_000)
    } else {
        // From less than one sequence to roomy.
        longest * rng.random_range(1..=sequences_max) / pick(rng, &[1, 1, 2])
            + page_size * rng.random_range(0..5)
    };
    let config = config(rng, page_size, pool.max(16).max(2 * page_size));
    let mut config = SglangConfig { context_length: (!is_wide).then_some(longest), ..config };
    let number = match (is_wide, one_in(rng, 40)) {
        (true, _) => rng.random_range(1..8),
        // More than some policies look at (P3).
        (false, true) => rng.random_range(140..220),
        (false, false) => rng.random_range(1..45),
    };
    let bypassed = one_in(rng, 3);
    let on_grid = one_in(rng, 3);
    let mut requests = requests(rng, number, longest, bypassed);
    restate(rng, &mut requests, is_wide);
    rearrange(rng, &mut requests, on_grid);
    let users = one_in(rng, 4).then(|| rng.random_range(1..=number));
    let detokenize = SimDuration::from_ns(if one_in(rng, 3) { 700_000 } else { 0 });
    let warmup = if one_in(rng, 2) { rng.random_range(0..10) } else { 0 };
    if one_in(rng, 4) {
        speculate(rng, &mut config, &mut requests);
    }
    let config = config.resolve().expect("drawn within the ranges");
    let config = Deployment { config, on_grid };
    let acceptance = Acceptance::default();
    Case { config, acceptance, requests, users, bypassed, detokenize, warmup }
}

/// Drafts of every kind, of which some requests say themselves how many are accepted and found.
fn speculate(rng: &mut ChaCha8Rng, config: &mut SglangConfig, requests: &mut [RequestSpec]) {
    use SpeculativeAlgorithm::{Eagle, Eagle3, Nextn, Ngram, Standalone};
    let algorithm = pick(rng, &[Eagle, Eagle3, Nextn, Standalone, Ngram]);
    config.speculative_algorithm = Some(algorithm);
    if algorithm == Ngram {
        config.speculative_ngram_max_bfs_breadth = pick(rng, &[1, 3, 10]);
        config.speculative_num_draft_tokens = one_in(rng, 2).then(|| rng.random_range(2..16));
    } else if !one_in(rng, 3) {
        // A tree has a root, and a node for each step at least.
        let (steps, branches) = (rng.random_range(1..8), pick(rng, &[1, 1, 2, 4]));
        config.speculative_num_steps = Some(steps);
        config.speculative_eagle_topk = Some(branches);
        config.speculative_num_draft_tokens = Some(rng.random_range(2..=1 + steps));
    }
    for request in requests {
        if one_in(rng, 3) {
            continue;
        }
        let rounds = rng.random_range(1..6);
        let accepted = (0..rounds).map(|_| rng.random_range(0..6)).collect();
        let searches = rng.random_range(0..4);
        let found = (0..searches).map(|_| rng.random_range(0..12)).collect();
        request.drafts = Some(Box::new(RecordedDrafts { accepted, found }));
    }
}

/// Settings for a pool of `pool` tokens.
fn config(rng: &mut ChaCha8Rng, page_size: u32, pool: u32) -> SglangConfig {
    let schedule_policy = pick(rng, &SCHEDULE_POLICIES);
    let by_arrival = matches!(schedule_policy, SchedulePolicy::Fcfs | SchedulePolicy::Lof);
    let by_priority = by_arrival && one_in(rng, 2);
    let pages_max = pick(rng, &[3, 20, 200]);
    let chunk = page_size * rng.random_range(1..=(pages_max / page_size).max(3));
    SglangConfig {
        max_total_tokens: Some(pool),
        max_running_requests: Some(pick(rng, &[1, 2, 3, 5, 8, 12, 300])),
        max_queued_requests: one_in(rng, 5).then(|| rng.random_range(1..12)),
        max_prefill_tokens: if one_in(rng, 3) { rng.random_range(1..150) } else { 16_384 },
        prefill_max_requests: one_in(rng, 5).then(|| rng.random_range(1..4)),
        chunked_prefill_size: Some(if one_in(rng, 4) { -1 } else { chunk.cast_signed() }),
        page_size,
        schedule_policy,
        // The less is kept back for outputs, the more have to be retracted.
        schedule_conservativeness: match rng.random_range(0..6) {
            0..3 => 0.0,
            3 => 1.0,
            _ => rng.random_range(0.0..2.0),
        },
        enable_mixed_chunk: one_in(rng, 3),
        disable_radix_cache: one_in(rng, 4),
        radix_eviction_policy: pick(rng, &EVICTION_POLICIES),
        disable_overlap_schedule: one_in(rng, 2),
        enable_priority_scheduling: by_priority,
        schedule_low_priority_values_first: one_in(rng, 2),
        priority_scheduling_preemption_threshold: rng.random_range(0..15),
        disable_priority_preemption: one_in(rng, 4),
        retraction_policy: if by_priority && one_in(rng, 2) {
            RetractionPolicy::Priority
        } else {
            RetractionPolicy::Length
        },
        ..SglangConfig::default()
    }
}

/// Limits far above the outputs, and below them; outputs of one token; priorities that differ by more
/// than thresholds.
fn restate(rng: &mut ChaCha8Rng, requests: &mut [RequestSpec], is_wide: bool) {
    for request in requests {
        if one_in(rng, 8) {
            request.output_tokens = 1;
        }
        if one_in(rng, 4) {
            request.output_tokens += rng.random_range(0..80);
            request.max_tokens = request.max_tokens.max(request.output_tokens + 1);
        }
        if one_in(rng, 3) {
            let over_max = if is_wide { 9000 } else { pick(rng, &[5, 60, 500]) };
            request.max_tokens = request.output_tokens + rng.random_range(0..over_max);
        } else if one_in(rng, 8) {
            request.max_tokens = request.output_tokens.div_ceil(2);
        }
        if is_wide && one_in(rng, 6) {
            request.output_tokens = rng.random_range(4080..4200);
            request.max_tokens = request.output_tokens + rng.random_range(0..2);
        }
        request.priority = rng.random_range(-20..20);
    }
}

/// Bursts, arrivals at the ends of passes, and times without anybody.
fn rearrange(rng: &mut ChaCha8Rng, requests: &mut [RequestSpec], on_grid: bool) {
    let shrink = pick(rng, &[1, 1, 4, u64::MAX]);
    let pause = if one_in(rng, 3) { 4_000_000_000 } else { 0 };
    let late_from = rng.random_range(0..requests.len());
    for (place, request) in requests.iter_mut().enumerate() {
        let mut ns = request.arrival.as_ns() / shrink;
        if place >= late_from {
            ns += pause;
        }
        if on_grid {
            ns = (ns / 1_000_000 + 1) * 1_000_000 - FRONTEND_DELAY.as_ns();
        }
        request.arrival = SimTime::from_ns(ns);
    }
}

fn run(case: &Case<Deployment>, advance: Advance) -> Run {
    let Deployment { config, on_grid } = &case.config;
    let drafting = config.speculative_algorithm.map(|_| {
        let at_least = vec![0.8, 0.6, 0.5, 0.2];
        Drafting::new(Arc::new(Acceptance { at_least, none_found: 0.3 }), 1, EngineId(0))
    });
    let scheduler = Sglang::new(config, drafting, case.detokenize, advance);
    let server = FrontEnd::Sglang { context_tokens: config.context_length.unwrap() };
    if *on_grid {
        let provider = Fixed { prefill_ms: 9.0, decode_ms: 3.0, mixed_ms: Some(11.0) };
        serve(case, scheduler, provider, server)
    } else {
        serve(case, scheduler, polynomial(), server)
    }
}

/// Nobody holds anything once everybody has gone; until then the pool is at least what is free and
/// cached. What the front end and the engine say adds up, and who has finished got all its output tokens.
fn check_end(case: &Case<Deployment>, run: &Run) {
    let Run { ending, seen, engine } = run;
    let pool = case.config.config.max_total_tokens.unwrap();
    let standing = engine.radix_standing().expect("SGLang has a cache");
    let unheld = standing.available_tokens + standing.evictable_tokens;
    if ending.unfinished.is_empty() {
        assert_eq!((unheld, standing.protected_tokens, standing.running), (pool, 0, 0));
        assert_eq!((standing.queue.as_slice(), engine.is_done()), (&[][..], true));
    } else {
        assert!(unheld + standing.protected_tokens <= pool);
    }
    seen.finished.iter().for_each(RequestRecord::check);
    let limits = Limits::of(&case.config.config);
    for record in &seen.finished {
        let spec = &case.requests[record.id.0 as usize];
        let limit = limits.clipped_output(spec.prompt_tokens, spec.max_tokens).max(1);
        let stops = spec.output_tokens < spec.max_tokens;
        let total = if stops { limit.min(spec.output_tokens) } else { limit };
        assert_eq!(record.output_tokens, total, "{record:?}");
    }
    if ending.unfinished.is_empty() {
        assert_eq!(seen.finished.len() + seen.rejected.len(), case.requests.len());
        let all_finished = seen.rejected.is_empty() && case.warmup == 0;
        let gaps: u64 = seen.token_gaps.values().sum();
        let outputs = seen.finished.iter().map(|record| u64::from(record.output_tokens - 1));
        assert!(!all_finished || gaps == outputs.sum::<u64>());
    }
    let told = (seen.finished.len() as u64, seen.rejected.len() as u64);
    assert_eq!((ending.completed, ending.rejected), told);
    let passes: u64 = seen.passes.iter().map(|pass| pass.passes).sum();
    assert_eq!(passes, engine.passes());
}

#[test]
fn passes_in_step_are_those_request_by_request() {
    let (mut retracted, mut preempted, mut cached, mut unfinished) = (0, 0, 0, 0);
    let (mut too_long, mut turned_away, mut mixed, mut long) = (0, 0, 0, 0);
    let (mut touched, mut touched_in_step) = (0, 0);
    let (mut speculating, mut lost_speculating, mut verified) = (0, 0, 0);
    for seed in 0..CASES {
        let case = case(seed);
        let runs = run_both_ways(seed, &case, run);
        check_end(&case, &runs[0]);
        let [stepwise, in_step] = runs;
        let speculates = case.config.config.speculative_algorithm.is_some();
        if !speculates {
            touched += stepwise.engine.effort().requests_touched;
            touched_in_step += in_step.engine.effort().requests_touched;
        }
        let Run { ending, seen, .. } = stepwise;
        let lost = seen.finished.iter().filter(|record| record.preemptions > 0).count();
        if speculates {
            speculating += seen.finished.len();
            lost_speculating += lost;
            let rounds = |pass: &&PassRecord| pass.decode_tokens > pass.decode_requests;
            verified += seen.passes.iter().filter(rounds).count();
        } else if case.config.config.enable_priority_scheduling {
            preempted += lost;
        } else {
            retracted += lost;
        }
        cached += seen.finished.iter().filter(|record| record.cached_tokens > 0).count();
        unfinished += ending.unfinished.len();
        for (_, why, _) in &seen.rejected {
            match why {
                Rejection::QueueFull => turned_away += 1,
                _ => too_long += 1,
            }
        }
        let is_mixed = |pass: &&PassRecord| pass.prefill_requests > 0 && pass.decode_requests > 0;
        mixed += seen.passes.iter().filter(is_mixed).count();
        long += seen.finished.iter().filter(|record| record.output_tokens > 4096).count();
    }
    assert_often(&[
        ("retracted", retracted),
        ("preempted or retracted", preempted),
        ("cached", cached),
        ("unfinished", unfinished),
        ("too long", too_long),
        ("turned away", turned_away),
        ("prefilled while others decoded", mixed),
        ("finished with drafts", speculating),
        ("retracted or preempted with drafts", lost_speculating),
        ("passes with drafts", verified),
    ]);
    assert!(long > 10, "{long} requests were longer than is expected of anybody");
    // Under so much pressure sets dissolve often; still these are two ways.
    assert!(touched_in_step < touched / 3 * 2, "{touched_in_step} of {touched}");
}

#[test]
fn ten_times_the_output_touches_no_request_more() {
    for (page_size, disable_overlap_schedule, users) in
        [(1, false, None), (1, true, Some(64)), (16, true, None), (16, false, Some(64))]
    {
        let config = SglangConfig {
            page_size,
            disable_overlap_schedule,
            max_total_tokens: Some(400_000),
            max_running_requests: Some(64),
            ..SglangConfig::default()
        };
        let config = config.resolve().unwrap();
        let touched = |outputs| {
            let scheduler = Sglang::new(&config, None, SimDuration::ZERO, Advance::InStep);
            requests_touched(scheduler, users, outputs)
        };
        let ((short, passes), (long, passes_long)) = (touched(60), touched(600));
        // 256 requests in 64 seats are 4 rounds.
        assert!(passes_long > 4 * 590 && passes < 4 * 70, "{passes} and {passes_long} passes");
        assert_eq!(short, long, "{page_size}, {disable_overlap_schedule}, {users:?}");
    }
}

/// 1 + 10 * w outputs are 10 rounds that accept everything.
#[test]
fn longer_bursts_touch_no_request_more() {
    for disable_overlap_schedule in [false, true] {
        let touched = |steps: u32| {
            let config = SglangConfig {
                disable_overlap_schedule,
                max_total_tokens: Some(400_000),
                max_running_requests: Some(64),
                speculative_algorithm: Some(SpeculativeAlgorithm::Eagle),
                speculative_num_steps: Some(steps),
                speculative_eagle_topk: Some(1),
                ..SglangConfig::default()
            };
            let config = config.resolve().unwrap();
            let acceptance = Acceptance { at_least: vec![1.0; steps as usize], none_found: 0.0 };
            let drafting = Drafting::new(Arc::new(acceptance), 0, EngineId(0));
            let scheduler =
                Sglang::new(&config, Some(drafting), SimDuration::ZERO, Advance::InStep);
            requests_touched(scheduler, Some(64), 1 + 10 * (steps + 1))
        };
        assert_eq!(touched(1), touched(15), "{disable_overlap_schedule}");
    }
}
