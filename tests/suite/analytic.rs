//! Does the closed form agree?
//!
//! All passes have a fixed price: P = 7 ms with prefill work, D = 3 ms with decode work, P + D with
//! both. The formula of each test follows from that and from the settings; times are whole µs.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::support::{Request, Run, ns, request, simulate, simulate_synthetic};

/// Prefill pass, in µs.
const P: u64 = 7000;
/// Decode pass, in µs.
const D: u64 = 3000;

const BASE: [&str; 2] = ["timing.fixed.prefill_ms=7", "timing.fixed.decode_ms=3"];
const SYNC: &str = "engine.vllm.async_scheduling=false";
const ASYNC: &str = "engine.vllm.async_scheduling=true";

fn run(requests: &[Request], settings: &[&str]) -> Run {
    simulate(requests, &[&BASE, settings].concat())
}

/// TTFT, E2E and queue time of a request, in µs.
fn times(run: &Run, id: usize) -> [u64; 3] {
    ["ttft_ms", "e2e_ms", "queue_ms"].map(|field| run.us(id, field))
}

/// The parts of a TTFT, in µs: frontend, queueing, prefill, chunk wait, recompute, detokenize.
fn parts(run: &Run, id: usize) -> [u64; 6] {
    ["frontend", "queueing", "prefill", "chunk_wait", "recompute", "detokenize"]
        .map(|part| run.us(id, &format!("ttft_{part}_ms")))
}

fn assert_close(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 1e-12, "{found} is not {expected}");
}

/// A prompt of p tokens under a budget of b takes k = ceil(p / b) passes, and each of the n - 1
/// further tokens one decode: TTFT = k P, TPOT = D, E2E = k P + (n - 1) D. Planning a pass ahead
/// changes nothing for a request alone.
#[test]
fn one_request_alone() {
    for mode in [SYNC, ASYNC] {
        for (prompt, budget, chunks) in [
            (1, 1, 1),
            (999, 1000, 1),
            (1000, 1000, 1),
            (1001, 1000, 2),
            (2500, 1000, 3),
            (5, 1, 5),
        ] {
            for output in [1, 2, 11] {
                let budget = format!("engine.vllm.max_num_batched_tokens={budget}");
                let run = run(
                    &[request(0, prompt, output)],
                    &[mode, &budget, "engine.vllm.max_num_seqs=1"],
                );
                let decodes = u64::from(output - 1);
                assert_eq!(times(&run, 0), [chunks * P, chunks * P + decodes * D, 0]);
                assert_eq!(parts(&run, 0), [0, 0, chunks * P, 0, 0, 0]);
                if decodes > 0 {
                    assert_eq!(run.us(0, "tpot_ms"), D);
                } else {
                    assert!(run.rows[0]["tpot_ms"].is_null());
                }
                assert_eq!(run.count("/passes/prefill_only/count"), chunks);
                assert_eq!(run.count("/passes/decode_only/count"), decodes);
            }
        }
    }
}

/// A stop token is not foreseen: in asynchronous mode the next pass runs when it comes out (R73),
/// and its share is thrown away. The request itself ends as before.
#[test]
fn a_stop_token_costs_the_asynchronous_engine_one_pass() {
    for (mode, wasted) in [(SYNC, 0), (ASYNC, 1)] {
        let run = run(&[request(0, 10, 6)], &[mode, "workload.trace.max_tokens=100"]);
        assert_eq!(times(&run, 0), [P, P + 5 * D, 0]);
        assert_eq!(run.rows[0]["finish"], "stop");
        assert_eq!(run.count("/passes/decode_only/count"), 5 + wasted);
        assert_eq!(ns(&run.report["passes"]["span_ms"]), (P + (5 + wasted) * D) * 1000);
    }
}

/// One request decodes from 7 ms on, passes end at 7, 10, 13, ... ms. Another arrives at 8 ms, in
/// the pass that ends at 10. Synchronous: it is in the pass planned at 10, which has both kinds of
/// work: TTFT = 2 + P + D. Asynchronous: that pass was planned at 7 and runs to 13; it is in the
/// one after (R72): everything comes D later.
#[test]
fn planning_ahead_delays_a_newcomer_by_one_pass() {
    for (mode, delay) in [(SYNC, 0), (ASYNC, D)] {
        let run = run(&[request(0, 10, 50), request(8, 10, 1)], &[mode]);
        let queue = 2000 + delay;
        assert_eq!(times(&run, 1), [queue + P + D, queue + P + D, queue]);
        // The first request's next token waits for the newcomer's prefill.
        assert_eq!(times(&run, 0), [P, P + 49 * D + P, 0]);
    }
}

/// At one instant passes end, then requests arrive, then passes start: who arrives when a pass ends
/// (at 10 ms) is in the next one to be planned.
#[test]
fn an_arrival_at_the_end_of_a_pass_is_in_the_next() {
    for (mode, queue) in [(SYNC, 0), (ASYNC, D)] {
        let run = run(&[request(0, 10, 50), request(10, 10, 1)], &[mode]);
        assert_eq!(times(&run, 1)[2], queue);
    }
}

/// Mixed passes cost the sum of their parts, or what the scenario says they cost as one forward.
#[test]
fn mixed_passes_cost_the_sum_or_their_own_price() {
    let requests = [request(0, 10, 50), request(8, 10, 1)];
    let sum = run(&requests, &[SYNC]);
    assert_eq!(times(&sum, 1)[0], 2000 + P + D);
    assert_eq!(sum.report["timing"]["mixed_rule"], "sum of the two parts");
    let one = run(&requests, &[SYNC, "timing.fixed.mixed_ms=8"]);
    assert_eq!(times(&one, 1)[0], 2000 + 8000);
    assert_eq!(one.report["timing"]["mixed_rule"], "one forward");
    for run in [sum, one] {
        assert_eq!(run.count("/passes/mixed/count"), 1);
    }
}

/// The host's time per pass H: added to every pass when synchronous; asynchronous, the longer of
/// device and host counts.
#[test]
fn host_time_is_added_or_hidden() {
    for host_us in [1000, 5000, 9000] {
        let host = format!("host.per_pass_host_ms={}", host_us / 1000);
        let sync = run(&[request(0, 10, 4)], &[SYNC, &host]);
        assert_eq!(times(&sync, 0), [P + host_us, P + host_us + 3 * (D + host_us), 0]);
        let overlapped = run(&[request(0, 10, 4)], &[ASYNC, &host]);
        let (prefill, decode) = (P.max(host_us), D.max(host_us));
        assert_eq!(times(&overlapped, 0), [prefill, prefill + 3 * decode, 0]);
    }
}

/// Frontend time F comes before the queue, detokenising time G after each token: TTFT and E2E grow
/// by F + G, queue time by F, and the gaps between tokens stay.
#[test]
fn frontend_and_detokenising_shift_every_token() {
    for mode in [SYNC, ASYNC] {
        let requests = [request(0, 10, 4), request(100, 20, 4)];
        let plain = run(&requests, &[mode]);
        let shifted = run(&requests, &[mode, "host.frontend_ms=2.5", "host.detokenize_ms=0.75"]);
        for id in 0..2 {
            let [ttft, e2e, queue] = times(&plain, id);
            assert_eq!(times(&shifted, id), [ttft + 3250, e2e + 3250, queue + 2500]);
            assert_eq!(shifted.us(id, "tpot_ms"), plain.us(id, "tpot_ms"));
            assert_eq!(parts(&shifted, id), [2500, 0, P, 0, 0, 750]);
        }
        assert_eq!(shifted.report["latency"]["itl_ms"], plain.report["latency"]["itl_ms"]);
    }
}

/// Two prompts of four blocks arrive together. The first labels its blocks when it is scheduled
/// (R41), so the second hits them in the same call, up to its last token (R33): 3 blocks of a prompt
/// of 64 tokens, 4 of one of 65. The pass computes what is left, and the pool holds each shared block
/// once.
#[test]
fn equal_prompts_that_arrive_together_share_blocks() {
    for mode in [SYNC, ASYNC] {
        for (prompt, cached, blocks_held) in [(64, 48, 4 + 1), (65, 64, 5 + 1), (16, 0, 1 + 1)] {
            let both = request(0, prompt, 1).ids([7]);
            let run = run(&[both.clone(), both], &[mode]);
            assert_eq!([run.of(0, "cached_tokens"), run.of(1, "cached_tokens")], [0, cached]);
            let computed = u64::from(prompt) + u64::from(prompt) - cached;
            assert_close(run.float("/passes/prefill_only/prefill_tokens_mean"), computed as f64);
            assert_eq!(run.count("/engines/0/kv/used_blocks/max"), blocks_held);
            assert_eq!(run.count("/tokens/cached"), cached);
            assert_close(
                run.float("/prefix_cache/hit_ratio") + 1.0,
                1.0 + cached as f64 / f64::from(2 * prompt),
            );
        }
    }
}

/// Blocks outlive their request. A block of the engine that does not divide a hash block is hit as
/// far as whole blocks agree: of 1,024 common tokens, floor(1023 / 48) * 48; of 512, floor(512 / 48)
/// * 48.
#[test]
fn later_prompts_hit_whole_blocks_of_the_common_prefix() {
    let requests = [
        request(0, 1024, 3).ids([1, 2]),
        request(1000, 1024, 3).ids([1, 2]),
        request(2000, 1024, 3).ids([1, 3]),
        request(3000, 1000, 3).ids([1, 2]),
        request(4000, 1024, 3).ids([2, 1]),
    ];
    for mode in [SYNC, ASYNC] {
        let run = run(&requests, &[mode, "engine.vllm.block_size=48"]);
        let cached = [0, 1, 2, 3, 4].map(|id| run.of(id, "cached_tokens"));
        // The fourth's second id names 488 tokens only: nothing says what those share with 512.
        assert_eq!(cached, [0, 21 * 48, 10 * 48, 10 * 48, 0]);
        let off = ["engine.vllm.block_size=48", "engine.vllm.enable_prefix_caching=false"];
        assert_eq!(simulate(&requests, &off).count("/tokens/cached"), 0);
    }
}

/// The prompt of 2,000 gets what the budget of 512 leaves: 412, then 511 beside the other's decode.
/// It is complete in the fifth pass. TTFT = P + 4 (P + D); the first request's 9 tokens end with the
/// ninth pass.
#[test]
fn a_long_prompt_gets_what_decoding_leaves() {
    let run = run(
        &[request(0, 100, 9), request(0, 2000, 1)],
        &[SYNC, "engine.vllm.max_num_batched_tokens=512", "engine.vllm.max_num_seqs=512"],
    );
    assert_eq!(times(&run, 0), [P, P + 4 * (P + D) + 4 * D, 0]);
    assert_eq!(times(&run, 1), [P + 4 * (P + D), P + 4 * (P + D), 0]);
    assert_eq!(run.count("/passes/mixed/count"), 4);
    // 511, 511, 511 and the last 55.
    assert_close(run.float("/passes/mixed/prefill_tokens_mean"), (511.0 * 3.0 + 55.0) / 4.0);
}

/// A long-prefill threshold of 100 cuts a prompt of 1,000 into ten chunks, but only beside others
/// (R13): once the short request has gone, the rest is computed in one pass.
#[test]
fn the_long_prefill_threshold_holds_in_company_only() {
    let threshold = "engine.vllm.long_prefill_token_threshold=100";
    let alone = run(&[request(0, 1000, 1)], &[SYNC, threshold]);
    assert_eq!(times(&alone, 0)[0], P);
    let gone = run(&[request(0, 10, 1), request(0, 1000, 1)], &[SYNC, threshold]);
    assert_eq!(times(&gone, 1)[0], P + P);
    let there = run(&[request(0, 10, 50), request(0, 1000, 1)], &[SYNC, threshold]);
    assert_eq!(times(&there, 1)[0], P + 9 * (P + D));
}

/// The adaptive threshold is at least the fair share of the budget: two requests under 1,000 tokens
/// get 500 each.
#[test]
fn the_adaptive_threshold_rises_to_the_fair_share() {
    let run = run(
        &[request(0, 10, 50), request(0, 1000, 1)],
        &[
            SYNC,
            "engine.vllm.long_prefill_token_threshold=100",
            "engine.vllm.long_prefill_token_threshold_adaptive=true",
            "engine.vllm.max_num_batched_tokens=1000",
            "engine.vllm.max_num_seqs=10",
        ],
    );
    assert_eq!(times(&run, 1)[0], P + (P + D));
}

/// Prefill is held back until N passes separate it from the last one with prefill (R50): a request
/// that arrives during the first pass waits for N - 1 decodes.
#[test]
fn the_prefill_interval_spaces_prefills() {
    for interval in [1, 2, 4, 9] {
        let setting = format!("engine.vllm.prefill_schedule_interval={interval}");
        let run = run(&[request(0, 10, 50), request(1, 10, 1)], &[SYNC, &setting]);
        assert_eq!(times(&run, 1)[2], P + (interval - 1) * D - 1000);
    }
}

/// With one seat and no sharing the engine is a FIFO queue with known service times:
/// start(i) = max(arrival(i), end(i - 1)), end(i) = start(i) + ceil(p / b) P + (n - 1) D.
#[test]
fn one_seat_is_a_queue_with_known_service_times() {
    for seed in 0..6 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut draw = |max: u32| rng.next_u32() % max;
        let mut ms = 0;
        let requests: Vec<Request> = (0..60)
            .map(|_| {
                // Stamps differ, so that the order of arrival is that of the rows.
                ms += 1 + u64::from(draw(120));
                request(ms, 1 + draw(500), 1 + draw(20))
            })
            .collect();
        let first_ms = requests[0].ms;
        for mode in [SYNC, ASYNC] {
            let run = run(
                &requests,
                &[mode, "engine.vllm.max_num_seqs=1", "engine.vllm.max_num_batched_tokens=128"],
            );
            let mut end = 0;
            for (id, request) in requests.iter().enumerate() {
                let arrival = (request.ms - first_ms) * 1000;
                let start = end.max(arrival);
                let first_token = start + u64::from(request.prompt.div_ceil(128)) * P;
                end = first_token + u64::from(request.output - 1) * D;
                assert_eq!(
                    times(&run, id),
                    [first_token - arrival, end - arrival, start - arrival],
                    "seed {seed}, {mode}, request {id}"
                );
            }
        }
    }
}

/// A preemption before the first token. Blocks of 16, six usable, budget 17, no caching; A has 16
/// prompt tokens and 6 outputs, B 80 prompt tokens.
///
/// | pass | A | B | blocks A + B | cost |
/// |---|---|---|---|---|
/// | 1 | prompt | 0..1 | 1 + 1 | P |
/// | 2, 3, 4 | decode | 1..17, 17..33, 33..49 | 2 + 2, 3, 4 | 3 (P + D) |
/// | 5 | decode | finds no fifth block and preempts itself | 2 | D |
/// | 6 | last decode | its five blocks do not fit beside two | 2 | D |
/// | 7, 8 | | 0..17, 17..34: within the 49 it had | 2, 3 | 2 P |
/// | 9, 10, 11 | | 34..51, 51..68, 68..80 | 4, 5, 5 | 3 P |
#[test]
fn a_preempted_prompt_is_computed_again() {
    let run = run(
        &[request(0, 16, 6), request(0, 80, 1)],
        &[
            SYNC,
            "engine.vllm.num_gpu_blocks=7",
            "engine.vllm.max_num_batched_tokens=17",
            "engine.vllm.max_num_seqs=2",
            "engine.vllm.enable_prefix_caching=false",
        ],
    );
    assert_eq!(times(&run, 0), [P, P + 3 * (P + D) + 2 * D, 0]);
    assert_eq!(times(&run, 1), [9 * P + 5 * D, 9 * P + 5 * D, 0]);
    assert_eq!(parts(&run, 1), [0, 0, 7 * P + 3 * D, 2 * D, 2 * P, 0]);
    assert_eq!([run.of(0, "preemptions"), run.of(1, "preemptions")], [0, 1]);
    assert_eq!((run.count("/preemptions/total"), run.count("/preemptions/requests")), (1, 1));
    // Two and four blocks in pass 4, all of the six.
    assert_eq!(run.count("/engines/0/kv/used_blocks/max"), 6);
}

/// A pass is recomputation as long as nothing in it is new, to the token. Budget 8, three usable blocks
/// of 16, no gate; A has 4 prompt tokens and 6 outputs, B 40 prompt tokens. B gets 4 tokens, then 7 in
/// each of four passes, which makes 32 in two blocks; in the sixth it finds no third. A finishes there.
/// Alone B gets 8 a pass: 8, 16, 24 and 32 it had, 40 is new.
#[test]
fn recomputation_ends_with_what_was_there() {
    let run = run(
        &[request(0, 4, 6), request(0, 40, 1)],
        &[
            SYNC,
            "engine.vllm.num_gpu_blocks=4",
            "engine.vllm.max_num_batched_tokens=8",
            "engine.vllm.max_num_seqs=2",
            "engine.vllm.enable_prefix_caching=false",
            "engine.vllm.scheduler_reserve_full_isl=false",
        ],
    );
    assert_eq!(run.of(1, "preemptions"), 1);
    assert_eq!(parts(&run, 1), [0, 0, P + 4 * (P + D) + P, D, 4 * P, 0]);
    assert_eq!(times(&run, 1)[0], P + 4 * (P + D) + D + 5 * P);
}

/// The published curve: prefill 4.209989e-07 T^2 + 1.518344e-02 T + 16.50142 ms, for T = 1,000
/// 32.1058589 ms; decode -25.74 p^2 + 54.01 p + 5.74 ms, for 1,000 of 10,000 tokens 10.8836 ms.
#[test]
fn the_mocker_curve_prices_passes() {
    let run = simulate(
        &[request(0, 1000, 2)],
        &["timing.preset=mocker", "engine.vllm.num_gpu_blocks=1001", "engine.vllm.block_size=10"],
    );
    assert_eq!(ns(&run.rows[0]["ttft_ms"]), 32_105_859);
    assert_eq!(ns(&run.rows[0]["tpot_ms"]), 10_883_600);
}

/// A decode polynomial over batch and KV: 2 + 0.5 B + 0.001 K ms. Two requests with 100 and 300
/// prompt tokens decode together: K = 400, then 402, 404 ...
#[test]
fn a_decode_pass_is_priced_by_its_exact_kv() {
    let polynomial = "timing.polynomial={prefill: {constant_ms: 1}, decode: {constant_ms: 2, \
                      request_ms: 0.5, kv_token_ms: 0.001}}";
    let run = simulate(&[request(0, 100, 4), request(0, 300, 4)], &[SYNC, polynomial]);
    // 1 ms, then three decodes of 3 ms + 0.400, 0.402, 0.404.
    for id in 0..2 {
        assert_eq!(times(&run, id), [1000, 1000 + 9000 + 400 + 402 + 404, 0]);
    }
}

/// The levels of one request: a block during the prefill, two afterwards (its 17th token). Means weigh
/// by time.
#[test]
fn levels_are_weighed_by_time() {
    let run = run(
        &[request(0, 16, 3)],
        &[SYNC, "engine.vllm.num_gpu_blocks=11", "engine.vllm.enable_prefix_caching=false"],
    );
    let mean = (P as f64 + 2.0 * 2.0 * D as f64) / (P + 2 * D) as f64;
    assert_close(run.float("/engines/0/kv/used_blocks/mean"), mean);
    assert_close(run.float("/engines/0/kv/used_ratio/mean"), mean / 10.0);
    assert_close(run.float("/engines/0/kv/used_ratio/max"), 0.2);
    assert_close(run.float("/engines/0/running/mean"), 1.0);
    assert_eq!(run.count("/engines/0/kv/capacity_blocks"), 10);
}

/// Of two engines the first serves a short request, until P, and is blocked then by a prompt over its
/// issue budget: nothing runs, one request waits, as long as the second engine is busy, until P + 20 D.
#[test]
fn a_blocked_engine_has_levels_too() {
    let run = run(
        &[request(0, 10, 1), request(0, 10, 21), request(1, 50, 2)],
        &[
            SYNC,
            "cluster.engines=2",
            "engine.vllm.enable_chunked_prefill=false",
            "engine.vllm.max_num_scheduled_tokens=49",
        ],
    );
    let level = |engine: usize, of: &str| run.float(&format!("/engines/{engine}/{of}/mean"));
    let (busy, span) = (P as f64, (P + 20 * D) as f64);
    assert_close(level(0, "running"), busy / span);
    assert_close(level(0, "waiting"), (span - busy) / span);
    assert_close(level(1, "running"), 1.0);
    assert_close(level(1, "waiting") + 1.0, 1.0);
    assert_close(run.float("/passes/span_ms"), span / 1e3);
    assert_close(run.float("/passes/busy_ratio"), f64::midpoint(busy / span, 1.0));
}

/// Requests far apart: the span runs from the first arrival to the last token, and every rate is an
/// amount over it.
#[test]
fn throughput_is_amounts_over_the_span() {
    let run = run(&[request(500, 10, 3), request(1500, 20, 5), request(2500, 30, 0)], &[SYNC]);
    // The last token: 1 s after the first arrival, and P + 4 D. The third request is rejected.
    let span_s = 1.0 + (P + 4 * D) as f64 / 1e6;
    assert_close(run.float("/throughput/span_s"), span_s);
    assert_close(run.float("/throughput/requests_per_s"), 2.0 / span_s);
    assert_close(run.float("/throughput/input_tokens_per_s"), 30.0 / span_s);
    assert_close(run.float("/throughput/output_tokens_per_s"), 8.0 / span_s);
    assert_close(run.float("/throughput/total_tokens_per_s"), 38.0 / span_s);
    // Passes: two prefills and 2 + 4 decodes, in a span that starts with the first pass.
    assert_close(run.float("/passes/span_ms"), span_s * 1e3);
    assert_close(run.float("/passes/busy_ms"), (2 * P + 6 * D) as f64 / 1e3);
    assert_close(run.float("/passes/busy_ratio"), (2 * P + 6 * D) as f64 / 1e3 / (span_s * 1e3));
}

/// Percentiles are numpy's: of E2E 7, 10, 13, 16, 19 ms, p50 is 13 and p90 is 16 + 0.6 * 3.
#[test]
fn percentiles_interpolate_between_ranks() {
    let requests: Vec<Request> = (0..5).map(|i| request(1000 * i, 10, 1 + i as u32)).collect();
    let run = run(&requests, &[SYNC]);
    let e2e = |name: &str| run.report["latency"]["e2e_ms"][name].as_f64().unwrap();
    assert_close(e2e("mean"), 13.0);
    assert_close(e2e("p50"), 13.0);
    assert_close(e2e("p90"), 17.8);
    assert_close(e2e("p99"), 18.88);
    assert_close(e2e("p99.9"), 18.988);
    assert_close(e2e("std"), 18.0_f64.sqrt());
    assert_close(e2e("min"), 7.0);
    assert_close(e2e("max"), 19.0);
    assert_eq!(run.count("/latency/e2e_ms/count"), 5);
    // TPOT needs two tokens, and there is a gap for every token after the first.
    assert_eq!(run.count("/latency/tpot_ms/count"), 4);
    assert_eq!(run.count("/latency/itl_ms/count"), 1 + 2 + 3 + 4);
}

/// A token's gap counts from the moment it appears: a decode that shares its pass with a prefill has
/// a gap of P + D among gaps of D.
#[test]
fn token_gaps_are_those_of_the_passes() {
    let run = run(&[request(0, 10, 50), request(8, 10, 1)], &[SYNC]);
    assert_eq!(run.count("/latency/itl_ms/count"), 49);
    assert_close(run.float("/latency/itl_ms/min"), D as f64 / 1e3);
    assert_close(run.float("/latency/itl_ms/max"), (P + D) as f64 / 1e3);
    assert_close(run.float("/latency/itl_ms/mean"), (49 * D + P) as f64 / 49.0 / 1e3);
    // TPOT is that mean, to the nearest ns.
    assert_eq!(ns(&run.rows[0]["tpot_ms"]), ((49 * D + P) * 1000 + 24) / 49);
}

/// A closed loop of c users with seats for all: everybody's prompt is computed in one pass, decodes in
/// step and ends at once, and the next round begins at that instant. With n requests of o tokens,
/// ceil(n / c) rounds of P + (o - 1) D.
#[test]
fn a_closed_loop_goes_round() {
    for mode in [SYNC, ASYNC] {
        for (users, rounds) in [(1, 12), (4, 3), (5, 3), (12, 1), (40, 1)] {
            let load = format!(
                "workload.synthetic={{requests: 12, prompt_tokens: {{fixed: 50}}, output_tokens: \
                 {{fixed: 6}}, arrivals: {{closed_loop: {{concurrency: {users}}}}}}}"
            );
            let run = simulate_synthetic(&[BASE[0], BASE[1], mode, &load]);
            let round = P + 5 * D;
            for id in 0..12 {
                assert_eq!(times(&run, id), [P, round, 0], "{users} users, request {id}");
                assert_eq!(run.us(id, "arrival_ms"), (id as u64 / users) * round);
            }
            assert_eq!(ns(&run.report["passes"]["span_ms"]), rounds * round * 1000);
            assert_eq!(run.count("/engines/0/running/max"), users.min(12));
        }
    }
}

/// A constant rate: request i arrives at i / rate, and each of two engines gets every other one.
/// Service takes P + D = 10 ms; at 200 requests a second an engine's next request comes after 10 ms, so
/// nobody waits, and with one engine the i-th waits for i times 5 ms behind a single seat.
#[test]
fn a_constant_rate_is_shared_by_engines_in_turn() {
    let load = "workload.synthetic={requests: 20, prompt_tokens: {fixed: 50}, output_tokens: {fixed: 2}, \
                arrivals: {constant: {requests_per_s: 200}}}";
    for (engines, wait) in [(2, 0), (1, 5000)] {
        let count = format!("cluster.engines={engines}");
        let seat = "engine.vllm.max_num_seqs=1";
        let run = simulate_synthetic(&[BASE[0], BASE[1], SYNC, load, &count, seat]);
        for id in 0..20 {
            assert_eq!(run.us(id, "arrival_ms"), id as u64 * 5000);
            assert_eq!(run.of(id, "engine"), id as u64 % engines);
            assert_eq!(times(&run, id)[2], id as u64 * wait);
        }
    }
}

/// One request at a time takes P for its prompt and D for its second token. Arrivals come twice as fast, every
/// (P + D) / 2, so half of what arrives stays: the queue grows by 1 / (P + D) a second. At half the load nobody waits.
#[test]
fn a_queue_that_grows_is_told_with_its_slope() {
    let one = ["engine.vllm.max_num_seqs=1", SYNC];
    let load = |every_us: u64| -> Vec<Request> {
        let arrival_ms = |n: u64| n * every_us / 1000;
        (0..1000).map(|n| request(arrival_ms(n), 100, 2)).collect()
    };
    let trend = |run: &Run, field: &str| run.float(&format!("/queue_trend/{field}"));
    let growing = run(&load(u64::midpoint(P, D)), &one);
    let expected = 1e6 / (P + D) as f64;
    let slope = trend(&growing, "slope_per_s");
    assert!((slope / expected - 1.0).abs() < 0.01, "{slope} is not {expected}");
    assert!(trend(&growing, "slope_low_per_s") > 0.98 * expected);
    assert!(trend(&growing, "slope_high_per_s") < 1.02 * expected);
    assert_eq!(growing.report["warnings"][0]["kind"], "not_steady");
    let steady = run(&load(2 * (P + D)), &one);
    assert!(trend(&steady, "slope_per_s").abs() < 1e-9);
    assert_eq!(steady.report["warnings"].as_array().map(Vec::len), Some(1), "{}", steady.report);
}

/// Two classes, one at a time: gaps of "a" are D, and those of "b" too, but that it waits P for the prompt that comes
/// in between. Limits of a class count the gaps of the class alone.
#[test]
fn gaps_are_told_apart_by_class_where_a_class_has_a_limit() {
    let folder = crate::support::Folder::new();
    let rows = [
        r#"{"arrival_ms": 0, "prompt_tokens": 10, "output_tokens": 5, "class": "b"}"#,
        r#"{"arrival_ms": 8, "prompt_tokens": 10, "output_tokens": 1, "class": "a"}"#,
        r#"{"arrival_ms": 1000, "prompt_tokens": 10, "output_tokens": 5, "class": "a"}"#,
    ];
    folder.write("trace.jsonl", crate::support::lines_of(rows));
    let limits = ["slo.classes.a.itl_ms_p99=4", "slo.classes.b.itl_ms_p99=4", "slo.itl_ms_p99=20"];
    let settings = [&BASE[..], &[SYNC], &limits].concat();
    let run = crate::support::simulate_trace(&folder.path("trace.jsonl"), &settings);
    let slack = |class: &str| {
        let objective = &format!("{class}/goodput/objectives/0");
        let pointer = |field: &str| format!("{objective}/{field}");
        (run.float(&pointer("limit_ms")), run.float(&pointer("slack_ms/p99")))
    };
    // Class b: gaps 3, 10 (mixed pass), 3, 3: p99 at rank 2.97 of 3 3 3 10 is 3 + 0.97 * 7 = 9.79.
    let (limit, left) = slack("/classes/0");
    assert_close(limit, 4.0);
    assert!((left + 5.79).abs() < 1e-9, "{left}");
    // Class a: 3 3 3 3.
    assert_close(slack("/classes/1").1, 1.0);
    // All: seven times 3, once 10: rank 6.93, so 3 + 0.93 * 7 = 9.51 of 20.
    let (limit, left) = slack("");
    assert_close(limit, 20.0);
    assert!((left - 10.49).abs() < 1e-9, "{left}");
}
