//! Is each limit tight: allowed at n, refused at n + 1?
//!
//! Prices are P = 7 ms for a pass with prefill work and D = 3 ms for one with decode work, as in
//! `analytic`.

use crate::support::{Request, Run, request, simulate};

const P: u64 = 7000;
const D: u64 = 3000;

const BASE: [&str; 2] = ["timing.fixed.prefill_ms=7", "timing.fixed.decode_ms=3"];
const SYNC: &str = "engine.vllm.async_scheduling=false";
const ASYNC: &str = "engine.vllm.async_scheduling=true";
/// Requests of one instant keep the order in which a test writes them.
const IN_FILE_ORDER: &str = "workload.trace.ties=file";
const NO_CACHE: &str = "engine.vllm.enable_prefix_caching=false";

fn run(requests: &[Request], settings: &[&str]) -> Run {
    simulate(requests, &[&BASE, settings].concat())
}

fn queue(run: &Run, id: usize) -> u64 {
    run.us(id, "queue_ms")
}

/// Two requests of 16 prompt tokens, blocks of 16, four usable. The last output token is never
/// computed (R19): with 17 outputs each needs 32 slots, two blocks, and both fit. With 18 each needs
/// a third, and the later one loses its blocks (R20, R21). Its 33 known tokens are computed again
/// once the first has finished, which brings its last token.
#[test]
fn a_pool_one_block_short_preempts() {
    for mode in [SYNC, ASYNC] {
        let both = |output| {
            let requests = [request(0, 16, output), request(0, 16, output)];
            run(&requests, &[mode, NO_CACHE, "engine.vllm.num_gpu_blocks=5"])
        };
        let fits = both(17);
        assert_eq!(fits.count("/preemptions/total"), 0);
        assert_eq!([fits.us(0, "e2e_ms"), fits.us(1, "e2e_ms")], [P + 16 * D, P + 16 * D]);
        let short = both(18);
        assert_eq!([short.of(0, "preemptions"), short.of(1, "preemptions")], [0, 1]);
        assert_eq!([short.us(0, "e2e_ms"), short.us(1, "e2e_ms")], [P + 17 * D, 2 * P + 17 * D]);
        // With two blocks more everything fits again.
        let requests = [request(0, 16, 18), request(0, 16, 18)];
        let roomy = run(&requests, &[mode, NO_CACHE, "engine.vllm.num_gpu_blocks=7"]);
        assert_eq!(roomy.count("/preemptions/total"), 0);
    }
}

/// The same with the second request 1 ms later: FCFS takes the blocks of who came last, the priority
/// policy those of who has the largest number, though it came first.
#[test]
fn the_lowest_priority_is_preempted_first() {
    let requests = [request(0, 16, 18).priority(1), request(1, 16, 18).priority(0)];
    for (policy, preempted) in [("fcfs", [0, 1]), ("priority", [1, 0])] {
        let policy = format!("engine.vllm.scheduling_policy={policy}");
        let run = run(&requests, &[SYNC, NO_CACHE, "engine.vllm.num_gpu_blocks=5", &policy]);
        assert_eq!([run.of(0, "preemptions"), run.of(1, "preemptions")], preempted, "{policy}");
    }
}

/// Three requests of 5 tokens. With three seats all start at once; with two, the third starts when
/// the others finish, after P + 4 D. Seats for admission alone do the same.
#[test]
fn seats_are_counted() {
    let requests = [request(0, 10, 5), request(0, 10, 5), request(0, 10, 5)];
    for mode in [SYNC, ASYNC] {
        for (seats, waits) in [
            ("engine.vllm.max_num_seqs=3", 0),
            ("engine.vllm.max_num_seqs=2", P + 4 * D),
            ("engine.vllm.max_num_active_seqs=3", 0),
            ("engine.vllm.max_num_active_seqs=2", P + 4 * D),
        ] {
            let run = run(&requests, &[mode, seats]);
            assert_eq!([queue(&run, 0), queue(&run, 1)], [0, 0], "{seats}");
            assert_eq!(queue(&run, 2), waits, "{seats}");
            let running = if waits == 0 { 3 } else { 2 };
            assert_eq!(run.count("/engines/0/running/max"), running, "{seats}");
        }
    }
}

/// Waiting requests are served by priority, smaller first, whatever their order of arrival.
#[test]
fn a_seat_goes_to_the_most_urgent() {
    let requests = [
        request(0, 10, 5),
        request(1, 10, 5).priority(2),
        request(2, 10, 5).priority(1),
        request(3, 10, 5).priority(-1),
    ];
    let settings = |policy| [SYNC, "engine.vllm.max_num_seqs=1", policy];
    let service = P + 4 * D;
    let fcfs = run(&requests, &settings("engine.vllm.scheduling_policy=fcfs"));
    let by_priority = run(&requests, &settings("engine.vllm.scheduling_policy=priority"));
    for (id, fcfs_turn, priority_turn) in [(0, 0, 0), (1, 1, 3), (2, 2, 2), (3, 3, 1)] {
        let arrival = id as u64 * 1000;
        assert_eq!(queue(&fcfs, id) + arrival, fcfs_turn * service);
        assert_eq!(queue(&by_priority, id) + arrival, priority_turn * service);
    }
}

/// A prompt that leaves one token of the longest sequence is served, one that leaves none is
/// rejected; outputs are cut to what is left (R90, R91).
#[test]
fn the_longest_sequence_is_tight() {
    for mode in [SYNC, ASYNC] {
        for (prompt, output, served, finish) in [
            (60, 39, 39, "length"),
            (60, 40, 40, "length"),
            (60, 41, 40, "model_length"),
            (99, 1, 1, "length"),
            (99, 2, 1, "model_length"),
            (1, u32::MAX, 99, "model_length"),
        ] {
            let requests = [request(0, prompt, output)];
            let run = run(&requests, &[mode, "engine.vllm.max_model_len=100"]);
            assert_eq!(run.of(0, "output_tokens"), served, "{prompt} and {output}");
            assert_eq!(run.rows[0]["finish"], finish, "{prompt} and {output}");
            assert_eq!(run.us(0, "e2e_ms"), P + (served - 1) * D);
        }
        let refused = run(&[request(0, 100, 1)], &[mode, "engine.vllm.max_model_len=100"]);
        assert_eq!(refused.count("/requests/rejected/prompt_too_long"), 1);
        assert_eq!(refused.rows[0]["reason"], "prompt_too_long");
    }
}

/// Ten usable blocks of eleven. A holds 4, and B, which arrives with it, may have what is left but
/// for the watermark of int(share * 11) blocks (R36). Refused, it starts when A has finished, after
/// P + 2 D, on an idle engine that has no watermark.
#[test]
fn the_watermark_is_a_whole_number_of_blocks_of_all() {
    const REFUSED: u64 = P + 2 * D;
    for (share, prompt, waits) in [
        // Six blocks of the six that are left.
        ("0", 96, 0),
        ("0.09", 96, 0),      // int(0.99) = 0
        ("0.1", 96, REFUSED), // int(1.1) = 1
        // Five.
        ("0.18", 80, 0),       // int(1.98) = 1
        ("0.19", 80, REFUSED), // int(2.09) = 2
        // Four, and one.
        ("0.19", 64, 0),
        ("0.46", 16, 0),       // int(5.06) = 5
        ("0.55", 16, REFUSED), // int(6.05) = 6
        ("0.99", 16, REFUSED), // int(10.89) = 10
    ] {
        let watermark = format!("engine.vllm.watermark={share}");
        let run = run(
            &[request(0, 64, 3), request(0, prompt, 1)],
            &[SYNC, NO_CACHE, IN_FILE_ORDER, &watermark, "engine.vllm.num_gpu_blocks=11"],
        );
        assert_eq!([queue(&run, 0), queue(&run, 1)], [0, waits], "{share} and {prompt}");
    }
}

/// The gate over the whole prompt (R35): five blocks are needed, four are free, and the first chunk
/// needs only one. With the gate B waits for A to finish; without, it starts at once.
#[test]
fn the_admission_gate_looks_at_the_whole_prompt() {
    let requests = [request(0, 16, 3), request(1, 80, 1)];
    let settings = |gate| {
        [
            SYNC,
            NO_CACHE,
            "engine.vllm.num_gpu_blocks=7",
            "engine.vllm.max_num_batched_tokens=17",
            "engine.vllm.max_num_seqs=2",
            gate,
        ]
    };
    // A holds two blocks of six from its first decode on, and finishes at P + 2 D.
    let gated = run(&requests, &settings("engine.vllm.scheduler_reserve_full_isl=true"));
    assert_eq!(queue(&gated, 1), P + 2 * D - 1000);
    let open = run(&requests, &settings("engine.vllm.scheduler_reserve_full_isl=false"));
    assert_eq!(queue(&open, 1), P - 1000);
}

/// With chunking off a prompt is computed whole or not at all (R14): 400 tokens fit beside 600 under
/// a budget of 1,000, 401 do not. With chunking on they are cut.
#[test]
fn without_chunking_a_prompt_waits_for_room() {
    for (prompt, passes) in [(400, 1), (401, 2)] {
        let requests = [request(0, 600, 1), request(0, prompt, 1)];
        let settings = |chunking| {
            [
                SYNC,
                IN_FILE_ORDER,
                "engine.vllm.max_num_batched_tokens=1000",
                "engine.vllm.max_model_len=1000",
                chunking,
            ]
        };
        let whole = run(&requests, &settings("engine.vllm.enable_chunked_prefill=false"));
        assert_eq!([queue(&whole, 0), queue(&whole, 1)], [0, (passes - 1) * P]);
        let chunked = run(&requests, &settings("engine.vllm.enable_chunked_prefill=true"));
        assert_eq!([queue(&chunked, 0), queue(&chunked, 1)], [0, 0]);
        for run in [whole, chunked] {
            assert_eq!(run.us(1, "ttft_ms"), passes * P);
        }
    }
}

/// With chunking off and an issue budget below a prompt, the prompt blocks the queue for ever (R14):
/// it is unfinished, and so is whoever is behind it.
#[test]
fn a_prompt_over_the_issue_budget_blocks_the_queue() {
    let settings = |tokens| {
        [SYNC, "engine.vllm.enable_chunked_prefill=false", tokens, "engine.vllm.max_num_seqs=4"]
    };
    let requests = [request(0, 10, 2), request(1, 50, 2), request(2, 10, 2)];
    let fits = run(&requests, &settings("engine.vllm.max_num_scheduled_tokens=50"));
    assert_eq!(fits.count("/requests/completed"), 3);
    let stuck = run(&requests, &settings("engine.vllm.max_num_scheduled_tokens=49"));
    assert_eq!((stuck.count("/requests/completed"), stuck.count("/requests/unfinished")), (1, 2));
    let status: Vec<&str> = stuck.rows.iter().map(|r| r["status"].as_str().unwrap()).collect();
    assert_eq!(status, ["completed", "unfinished", "unfinished"]);
    // Cut into chunks it is served.
    let chunked = ["engine.vllm.max_num_scheduled_tokens=49", SYNC];
    assert_eq!(run(&requests, &chunked).count("/requests/completed"), 3);
}

/// The smaller of the two budgets cuts a prompt: 100 tokens in passes of 10.
#[test]
fn both_budgets_bind() {
    for settings in [
        ["engine.vllm.max_num_batched_tokens=10", "engine.vllm.max_num_scheduled_tokens=100"],
        ["engine.vllm.max_num_batched_tokens=100", "engine.vllm.max_num_scheduled_tokens=10"],
    ] {
        let [a, b] = settings;
        let run = run(&[request(0, 100, 1)], &[SYNC, a, b, "engine.vllm.max_num_seqs=2"]);
        assert_eq!(run.count("/passes/prefill_only/count"), 10);
    }
}

/// A block in the pool is reused only when nothing unlabelled is left, and then the one released
/// longest ago goes first, from the end of its request (R43, R44). Eight usable blocks; A and B have
/// four each, of which their 64 prompt tokens fill all. C, of one block, takes A's last. A's repeat
/// hits three blocks of A at best by the last-token rule, and those are all there; with D in between,
/// another of them has gone.
#[test]
fn the_block_released_longest_ago_goes_first() {
    let a = |ms| request(ms, 64, 1).ids([1]);
    let settings = [SYNC, "engine.vllm.num_gpu_blocks=9"];
    let b = request(1000, 64, 1).ids([2]);
    let small = |ms, id| request(ms, 16, 1).ids([id]);
    let once = run(&[a(0), b.clone(), small(2000, 3), a(9000)], &settings);
    assert_eq!(once.of(3, "cached_tokens"), 48);
    let twice = run(&[a(0), b.clone(), small(2000, 3), small(3000, 4), a(9000)], &settings);
    assert_eq!(twice.of(4, "cached_tokens"), 32);
    let b_later = request(9000, 64, 1).ids([2]);
    let other = run(&[a(0), b, small(2000, 3), small(3000, 4), b_later], &settings);
    assert_eq!(other.of(4, "cached_tokens"), 48);
}
