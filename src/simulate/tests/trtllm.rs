//! TensorRT-LLM's scheduler in both ways: all its settings are drawn, under loads that fill its pool; and what its
//! capacity policies promise.

use super::*;
use crate::engine::drafting::Acceptance;
use crate::engine::trtllm::Trtllm;
use crate::engine::trtllm::config::{
    AttentionDpConfig, CapacitySchedulerPolicy, ContextChunkingPolicy, KvCacheConfig,
    SchedulerConfig, TrtllmConfig,
};

/// Cases that the test runs.
const CASES: u64 = 1500;

const POLICIES: [CapacitySchedulerPolicy; 5] = [
    CapacitySchedulerPolicy::GuaranteedNoEvict,
    CapacitySchedulerPolicy::GuaranteedNoEvict,
    CapacitySchedulerPolicy::MaxUtilization,
    CapacitySchedulerPolicy::MaxUtilization,
    CapacitySchedulerPolicy::StaticBatch,
];

fn case(seed: u64) -> Case<TrtllmConfig> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let rng = &mut rng;
    let tokens_per_block = pick(rng, &[1, 2, 4, 8, 8, 16, 32]);
    let longest = rng.random_range(20..200_u32);
    // From a sequence that has to be cut to what the pool holds to roomy.
    let sequences_max = pick(rng, &[1, 2, 7]);
    let sequences = rng.random_range(1..=sequences_max);
    let spare_blocks = rng.random_range(0..4);
    let blocks = longest.div_ceil(tokens_per_block) * sequences + spare_blocks;
    let more = pick(rng, &[4, 30, 300]);
    let policy = pick(
        rng,
        &[ContextChunkingPolicy::FirstComeFirstServed, ContextChunkingPolicy::EqualProgress],
    );
    let waits = one_in(rng, 4);
    let config = TrtllmConfig {
        max_batch_size: rng.random_range(1..=12),
        max_num_tokens: tokens_per_block + rng.random_range(0..more),
        max_seq_len: Some(longest),
        enable_chunked_prefill: !one_in(rng, 3),
        disable_overlap_scheduler: one_in(rng, 3),
        kv_cache_config: KvCacheConfig {
            tokens_per_block,
            max_tokens: Some(blocks * tokens_per_block),
            enable_block_reuse: !one_in(rng, 4),
            ..KvCacheConfig::default()
        },
        scheduler_config: SchedulerConfig {
            capacity_scheduler_policy: pick(rng, &POLICIES),
            context_chunking_policy: policy,
        },
        batch_wait_timeout_iters: if waits { rng.random_range(0..12) } else { 0 },
        batch_wait_max_tokens_ratio: if waits { rng.random_range(0.0..1.0) } else { 0.0 },
        enable_attention_dp: one_in(rng, 5),
        attention_dp_config: AttentionDpConfig {
            enable_balance: one_in(rng, 2),
            timeout_iters: rng.random_range(0..8),
            batching_wait_iters: rng.random_range(0..8),
        },
        ..TrtllmConfig::default()
    };
    let number = rng.random_range(1..45);
    Case {
        acceptance: Acceptance { at_least: Vec::new(), none_found: 0.0 },
        config: config.resolve().expect("drawn within the ranges"),
        requests: requests(rng, number, longest, false),
        users: one_in(rng, 4).then(|| rng.random_range(1..=number)),
        bypassed: false,
        detokenize: SimDuration::from_ns(if one_in(rng, 3) { 700_000 } else { 0 }),
        warmup: if one_in(rng, 2) { rng.random_range(0..10) } else { 0 },
    }
}

fn run(case: &Case<TrtllmConfig>, advance: Advance) -> Run {
    let config = &case.config;
    let is_divided = config.enable_chunked_prefill;
    let server = FrontEnd::Trtllm {
        sequence_tokens: config.max_seq_len.unwrap(),
        prompt_tokens_max: if is_divided { u32::MAX } else { config.max_num_tokens },
    };
    serve(case, Trtllm::new(config, case.detokenize, advance), polynomial(), server)
}

/// Nobody holds anything once everybody has gone, and nobody is lost.
fn check_end(case: &Case<TrtllmConfig>, run: &Run) {
    let Run { ending, seen, engine } = run;
    let levels = engine.levels();
    if ending.unfinished.is_empty() {
        assert_eq!((levels.running, levels.waiting), (0, 0));
        assert_eq!(levels.free_blocks, levels.usable_blocks);
    }
    seen.finished.iter().for_each(RequestRecord::check);
    let told = seen.finished.len() + seen.rejected.len() + ending.unfinished.len();
    if case.users.is_none() {
        assert_eq!(told, case.requests.len());
    }
    assert_eq!(
        (ending.completed, ending.rejected),
        (seen.finished.len() as u64, seen.rejected.len() as u64)
    );
    let passes: u64 = seen.passes.iter().map(|pass| pass.passes).sum();
    assert_eq!(passes, engine.passes());
}

#[test]
fn passes_in_step_are_those_request_by_request() {
    let (mut paused, mut cached, mut refused, mut mixed) = (0, 0, 0, 0);
    let (mut touched, mut touched_in_step, mut stuck) = (0, 0, 0);
    for seed in 0..CASES {
        let case = case(seed);
        let runs = run_both_ways(seed, &case, run);
        check_end(&case, &runs[0]);
        let [stepwise, in_step] = runs;
        touched += stepwise.engine.effort().requests_touched;
        touched_in_step += in_step.engine.effort().requests_touched;
        let Run { ending, seen, .. } = stepwise;
        stuck += usize::from(!ending.unfinished.is_empty());
        let policy = case.config.scheduler_config.capacity_scheduler_policy;
        let lost = seen.finished.iter().filter(|record| record.preemptions > 0).count();
        assert!(lost == 0 || policy == CapacitySchedulerPolicy::MaxUtilization, "seed {seed}");
        paused += lost;
        cached += seen.finished.iter().filter(|record| record.cached_tokens > 0).count();
        refused += seen.rejected.len();
        let is_mixed = |pass: &&PassRecord| pass.prefill_requests > 0 && pass.decode_requests > 0;
        mixed += seen.passes.iter().filter(is_mixed).count();
    }
    assert_often(&[
        ("paused", paused),
        ("cached", cached),
        ("refused", refused),
        ("prefilled while others decoded", mixed),
    ]);
    assert!(touched_in_step < touched / 4 * 3, "{touched_in_step} of {touched}");
    // Prompts that are divided can keep each other from their ends (K9).
    assert!(stuck <= 2, "{stuck} cases did not end");
}

/// A burst of requests with private prompts that end before their limit, and sooner than it.
fn burst(seed: u64) -> Case<TrtllmConfig> {
    let mut case = case(seed);
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let longest = case.config.max_seq_len.unwrap();
    let prompt_tokens = rng.random_range(1..=longest / 4);
    let outputs_max = rng.random_range(1..=longest / 4);
    let are_equal = one_in(rng, 2);
    for request in &mut case.requests {
        request.arrival = SimTime::ZERO;
        request.content = Content::Private;
        request.prompt_tokens = prompt_tokens;
        request.output_tokens =
            if are_equal { outputs_max } else { rng.random_range(1..=outputs_max) };
        request.max_tokens = longest;
    }
    case.config.enable_chunked_prefill = true;
    case.config.batch_wait_timeout_iters = 0;
    case.config.enable_attention_dp = false;
    Case { users: None, warmup: 0, detokenize: SimDuration::ZERO, ..case }
}

/// Passes that a burst takes under a policy, and how often somebody is paused in it.
fn passes_under(case: &Case<TrtllmConfig>, policy: CapacitySchedulerPolicy) -> (u64, u32) {
    let mut case = case.clone();
    case.config.scheduler_config.capacity_scheduler_policy = policy;
    let run = run(&case, Advance::InStep);
    check_end(&case, &run);
    assert_eq!(run.seen.finished.len(), case.requests.len());
    (run.engine.passes(), run.seen.finished.iter().map(|record| record.preemptions).sum())
}

#[test]
fn utilization_takes_no_more_passes_where_outputs_end_before_their_limits() {
    let (mut fewer, mut paused) = (0, 0);
    for seed in 0..CASES {
        let case = burst(seed);
        let (guaranteed, no_pause) =
            passes_under(&case, CapacitySchedulerPolicy::GuaranteedNoEvict);
        let (utilized, often) = passes_under(&case, CapacitySchedulerPolicy::MaxUtilization);
        assert_eq!(no_pause, 0, "seed {seed}");
        assert!(utilized <= guaranteed, "seed {seed}: {utilized} and {guaranteed} passes");
        fewer += usize::from(utilized < guaranteed);
        paused += usize::from(often > 0);
    }
    assert_often(&[("served in fewer passes", fewer), ("paused on the way", paused)]);
}

#[test]
fn ten_times_the_output_touches_no_request_more() {
    for (capacity_scheduler_policy, disable_overlap_scheduler) in [
        (CapacitySchedulerPolicy::GuaranteedNoEvict, false),
        (CapacitySchedulerPolicy::GuaranteedNoEvict, true),
        (CapacitySchedulerPolicy::MaxUtilization, false),
        (CapacitySchedulerPolicy::StaticBatch, true),
    ] {
        let mut config = TrtllmConfig {
            max_batch_size: 64,
            disable_overlap_scheduler,
            scheduler_config: SchedulerConfig {
                capacity_scheduler_policy,
                ..SchedulerConfig::default()
            },
            ..TrtllmConfig::default()
        };
        config.kv_cache_config.enable_block_reuse = false;
        let config = config.resolve().unwrap();
        let touched = |outputs| {
            let scheduler = Trtllm::new(&config, SimDuration::ZERO, Advance::InStep);
            requests_touched(scheduler, None, outputs)
        };
        let ((short, passes), (long, passes_long)) = (touched(60), touched(600));
        // 256 requests in 64 seats are 4 rounds.
        assert!(passes_long > 4 * 590 && passes < 4 * 70, "{passes} and {passes_long} passes");
        assert_eq!(short, long, "{capacity_scheduler_policy:?}, {disable_overlap_scheduler}");
    }
}
