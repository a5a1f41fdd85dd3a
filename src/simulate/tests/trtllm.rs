//! TensorRT-LLM's scheduler in both ways: all its settings are drawn, under loads that fill its pool; and what its
//! capacity policies promise.

use super::*;
use crate::engine::drafting::Acceptance;
use crate::engine::trtllm::Trtllm;
use crate::engine::trtllm::config::{
    AttentionDpConfig, CapacitySchedulerPolicy, ContextChunkingPolicy, KvCacheConfig,
    SchedulerConfig, TrtllmConfig,
};
use crate::engine::trtllm::speculative::{DecodingType, SpeculativeConfig};

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
        acceptance: Acceptance::default(),
        config: config.resolve().expect("drawn within the ranges"),
        requests: requests(rng, number, longest, false),
        users: one_in(rng, 4).then(|| rng.random_range(1..=number)),
        bypassed: false,
        detokenize: SimDuration::from_ns(if one_in(rng, 3) { 700_000 } else { 0 }),
        warmup: if one_in(rng, 2) { rng.random_range(0..10) } else { 0 },
    }
}

/// The same with speculation; some requests have a record of their rounds.
fn speculative_case(seed: u64) -> Case<TrtllmConfig> {
    let mut case = case(seed);
    let rng = &mut ChaCha8Rng::seed_from_u64(!seed);
    let drafts = rng.random_range(1..=6);
    case.config.speculative_config = Some(SpeculativeConfig {
        decoding_type: pick(
            rng,
            &[
                DecodingType::Eagle3,
                DecodingType::Mtp,
                DecodingType::NGram,
                DecodingType::DraftTarget,
            ],
        ),
        max_draft_len: Some(drafts),
        num_nextn_predict_layers: None,
        eagle3_one_model: one_in(rng, 2),
    });
    let factor = pick(rng, &[1, 1, 8]);
    case.config.max_num_tokens = (case.config.max_num_tokens * factor).max(drafts + 1);
    case.config = case.config.resolve().expect("a pass has room for a round");
    let some = rng.random_range(0.0..f64::from(drafts));
    let mean = pick(rng, &[0.0, some, f64::from(drafts)]);
    case.acceptance = Acceptance {
        at_least: (0..drafts).map(|n| (mean - f64::from(n)).clamp(0.0, 1.0)).collect(),
        none_found: if one_in(rng, 4) { 0.3 } else { 0.0 },
    };
    for request in &mut case.requests {
        if one_in(rng, 4) {
            let mut list = || -> Vec<u32> {
                (0..rng.random_range(1..4)).map(|_| rng.random_range(0..=drafts)).collect()
            };
            let record = RecordedDrafts { accepted: list(), found: list() };
            request.drafts = Some(Box::new(record));
        }
    }
    case
}

fn run(case: &Case<TrtllmConfig>, advance: Advance) -> Run {
    let config = &case.config;
    let is_divided = config.enable_chunked_prefill;
    let server = FrontEnd::Trtllm {
        sequence_tokens: config.max_seq_len.unwrap(),
        prompt_tokens_max: if is_divided { u32::MAX } else { config.max_num_tokens },
    };
    let drafting = config
        .speculative_config
        .map(|_| Drafting::new(Arc::new(case.acceptance.clone()), 11, EngineId(0)));
    serve(case, Trtllm::new(config, drafting, case.detokenize, advance), polynomial(), server)
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

#[test]
fn rounds_keep_the_promises_of_every_policy() {
    let (mut paused, mut cached, mut past_end, mut reserved, mut stuck) = (0, 0, 0, 0, 0);
    for seed in 0..CASES {
        let case = speculative_case(seed);
        let runs = run_both_ways(seed, &case, run);
        check_end(&case, &runs[0]);
        let [Run { ending, seen, .. }, _] = runs;
        let policy = case.config.scheduler_config.capacity_scheduler_policy;
        let may_pause = policy == CapacitySchedulerPolicy::MaxUtilization;
        let speculation = case.config.speculative_config.unwrap();
        let drafts = speculation.drafts();
        let mut round_tokens = 0;
        for record in &seen.finished {
            let rounds = record.rounds;
            assert!(may_pause || record.preemptions == 0, "seed {seed}");
            assert!(rounds.accepted <= rounds.drafts && rounds.drafts <= drafts * rounds.rounds);
            // A token with the prompt, and one each time that it is computed again.
            let computed = rounds.rounds + rounds.accepted + 1;
            assert!(record.output_tokens <= computed + record.preemptions, "seed {seed}");
            let last_burst = if rounds.rounds > 0 { drafts } else { 0 };
            assert!(computed <= record.output_tokens + last_burst, "seed {seed}");
            past_end += usize::from(computed > record.output_tokens);
            round_tokens += u64::from(rounds.rounds + rounds.drafts);
        }
        // One pass at a time computes nothing in vain; what was looked up may be padding.
        let is_exact = case.config.disable_overlap_scheduler
            && speculation.decoding_type != DecodingType::NGram
            && ending.unfinished.is_empty();
        if is_exact {
            let decoded = |pass: &PassRecord| u64::from(pass.decode_tokens) * pass.passes;
            let decoded: u64 = seen.passes.iter().map(decoded).sum();
            assert_eq!(decoded, round_tokens, "seed {seed}");
        }
        paused += seen.finished.iter().filter(|record| record.preemptions > 0).count();
        cached += seen.finished.iter().filter(|record| record.cached_tokens > 0).count();
        reserved += if may_pause { 0 } else { seen.finished.len() };
        stuck += usize::from(!ending.unfinished.is_empty());
    }
    assert_often(&[
        ("paused", paused),
        ("cached", cached),
        ("given more tokens than they took", past_end),
        ("served with a reservation", reserved),
    ]);
    // Prompts that are divided can keep each other from their ends (K9).
    assert!(stuck <= 10, "{stuck} cases did not end");
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
            let scheduler = Trtllm::new(&config, None, SimDuration::ZERO, Advance::InStep);
            requests_touched(scheduler, None, outputs)
        };
        let ((short, passes), (long, passes_long)) = (touched(60), touched(600));
        // 256 requests in 64 seats are 4 rounds.
        assert!(passes_long > 4 * 590 && passes < 4 * 70, "{passes} and {passes_long} passes");
        assert_eq!(short, long, "{capacity_scheduler_policy:?}, {disable_overlap_scheduler}");
    }
}
