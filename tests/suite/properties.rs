//! Do the invariants hold on generated cases?
//!
//! A case is a small random trace under random settings, made from a seed. A failure prints the seed
//! and the settings; `SERVESIM_SEED=n cargo test --test suite properties` runs that case alone,
//! `SERVESIM_CASES=n` so many cases.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::LazyLock;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::Value;

use crate::support::{Request, Run, ns, request, simulate, simulate_stepwise, without_host};

/// Cases run by `cargo test`.
const CASES_MAX: u64 = 600;

/// Random numbers of one case.
struct Draws(ChaCha8Rng);

impl Draws {
    fn of(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// From `min` to `max`, both possible.
    fn between(&mut self, min: u64, max: u64) -> u64 {
        min + self.0.next_u64() % (max - min + 1)
    }

    fn one_of<T: Copy>(&mut self, options: &[T]) -> T {
        options[self.between(0, options.len() as u64 - 1) as usize]
    }

    /// True in `percent` of 100 cases.
    fn chance(&mut self, percent: u64) -> bool {
        self.between(1, 100) <= percent
    }
}

/// What the invariants need to know of a case's settings.
#[derive(Clone, Debug)]
struct Case {
    requests: Vec<Request>,
    engines: u64,
    settings: Vec<String>,
    block_size: u64,
    usable_blocks: u64,
    hash_block: u32,
    max_model_len: u64,
    max_tokens: Option<u64>,
    budget: u64,
    max_num_seqs: u64,
    chunked: bool,
    caching: bool,
    fcfs: bool,
    /// Whether the admission gate looks at the whole prompt.
    gated: bool,
    frontend_ns: u64,
    prefill_ns: u64,
    decode_ns: u64,
}

impl Case {
    fn of(seed: u64) -> Self {
        let mut draws = Draws::of(seed);
        let d = &mut draws;
        let hash_block = d.one_of(&[1, 3, 8, 16, 17, 64]);
        let requests = Self::draw_requests(d, hash_block);
        let engines = d.one_of(&[1, 1, 1, 2, 3]);
        let block_size = d.one_of(&[1, 2, 4, 7, 16, 16, 33]);
        // Tight pools are the interesting ones: a few sequences' worth of blocks.
        let usable_blocks = d.one_of(&[1, 2, 3, 5, 9, 20, 60, 200]);
        let pool_tokens = block_size * usable_blocks;
        let max_model_len =
            if d.chance(40) { d.between(1, pool_tokens) } else { pool_tokens.min(1 << 27) };
        let max_num_seqs = d.one_of(&[1, 2, 3, 8, 64]);
        let chunked = d.chance(80);
        let min = if chunked { max_num_seqs } else { max_num_seqs.max(max_model_len) };
        let batched = min + d.one_of(&[0, 1, 7, 30, 300, 5000]);
        let scheduled =
            if d.chance(if chunked { 20 } else { 60 }) { d.between(1, batched) } else { batched };
        let prefill_us = d.one_of(&[0, 1, 333, 5000]);
        let decode_us = d.one_of(&[0, 1, 250, 3000]);
        let frontend_us = d.one_of(&[0, 0, 0, 1500]);
        let max_tokens = d.chance(20).then(|| d.one_of(&[1, 4, 50]));
        let [caching, fcfs, gated] = [70, 60, 60].map(|percent| d.chance(percent));
        let ms = |us: u64| us as f64 / 1e3;
        let mut settings = vec![
            format!("workload.trace.hash_block_tokens={hash_block}"),
            format!("workload.trace.ties={}", d.one_of(&["file", "content"])),
            format!("cluster.engines={engines}"),
            format!("engine.vllm.block_size={block_size}"),
            format!("engine.vllm.num_gpu_blocks={}", usable_blocks + 1),
            format!("engine.vllm.max_model_len={max_model_len}"),
            format!("engine.vllm.max_num_seqs={max_num_seqs}"),
            format!("engine.vllm.max_num_batched_tokens={batched}"),
            format!("engine.vllm.max_num_scheduled_tokens={scheduled}"),
            format!("engine.vllm.max_num_active_seqs={}", d.between(1, max_num_seqs)),
            format!("engine.vllm.enable_chunked_prefill={chunked}"),
            format!("engine.vllm.enable_prefix_caching={caching}"),
            format!("engine.vllm.async_scheduling={}", d.chance(50)),
            format!("engine.vllm.scheduling_policy={}", if fcfs { "fcfs" } else { "priority" }),
            format!("engine.vllm.scheduler_reserve_full_isl={gated}"),
            format!("engine.vllm.watermark={}", d.one_of(&[0.0, 0.0, 0.01, 0.2, 0.99])),
            format!("engine.vllm.prefill_schedule_interval={}", d.one_of(&[1, 1, 2, 5, 100])),
            format!("timing.fixed.prefill_ms={}", ms(prefill_us)),
            format!("timing.fixed.decode_ms={}", ms(decode_us)),
            format!("host.frontend_ms={}", ms(frontend_us)),
            format!("host.detokenize_ms={}", d.one_of(&[0.0, 0.0, 0.75])),
            format!("host.per_pass_host_ms={}", d.one_of(&[0.0, 0.0, 2.0])),
        ];
        if d.chance(30) {
            let threshold = d.between(1, max_model_len.min(40));
            settings.push(format!("engine.vllm.long_prefill_token_threshold={threshold}"));
            let adaptive = d.chance(50);
            settings.push(format!("engine.vllm.long_prefill_token_threshold_adaptive={adaptive}"));
        }
        settings.extend(max_tokens.map(|tokens| format!("workload.trace.max_tokens={tokens}")));
        Self {
            requests,
            engines,
            settings,
            block_size,
            usable_blocks,
            hash_block,
            max_model_len,
            max_tokens,
            budget: batched.min(scheduled),
            max_num_seqs,
            chunked,
            caching,
            fcfs,
            gated,
            frontend_ns: frontend_us * 1000,
            prefill_ns: prefill_us * 1000,
            decode_ns: decode_us * 1000,
        }
    }

    fn draw_requests(d: &mut Draws, hash_block: u32) -> Vec<Request> {
        let mut ms = 0;
        let count = d.one_of(&[1, 2, 6, 25, 60]);
        let longest = d.one_of(&[20, 200, 2000]);
        (0..count)
            .map(|_| {
                ms += d.one_of(&[0, 0, 0, 1, 9, 400]);
                let prompt = d.between(0, longest) as u32;
                let output = match d.between(1, 20) {
                    1 => 0,
                    2 => u32::MAX,
                    3..=8 => 1,
                    _ => d.between(1, 60) as u32,
                };
                let mut request = request(ms, prompt, output).priority(d.one_of(&[0, 0, 1, -3]));
                if d.chance(75) {
                    // Two families of prompts, which part somewhere for good.
                    let family = d.between(0, 1) << 20;
                    let blocks = u64::from(prompt.div_ceil(hash_block));
                    let parts = d.between(0, blocks);
                    let own = d.between(2, 1 << 40) << 20;
                    request = request
                        .ids((0..blocks).map(|at| if at < parts { family + at } else { own + at }));
                }
                request
            })
            .collect()
    }

    fn settings(&self) -> Vec<&str> {
        self.settings.iter().map(String::as_str).collect()
    }

    fn run(&self) -> Run {
        simulate(&self.requests, &self.settings())
    }

    /// The request behind a row.
    fn request(&self, row: &Value) -> &Request {
        &self.requests[row["line"].as_u64().unwrap() as usize - 1]
    }

    /// Tokens that two prompts have in common at their start. The last id of a prompt names its
    /// partial block; it agrees only with one of the same length.
    fn common_tokens(&self, a: &Request, b: &Request) -> u64 {
        let (Some(a_ids), Some(b_ids)) = (&a.ids, &b.ids) else { return 0 };
        let piece =
            |r: &Request, at: usize| self.hash_block.min(r.prompt - at as u32 * self.hash_block);
        (a_ids.iter().zip(b_ids).enumerate())
            .take_while(|&(at, (a_id, b_id))| a_id == b_id && piece(a, at) == piece(b, at))
            .map(|(at, _)| u64::from(piece(a, at)))
            .sum()
    }
}

/// The cases to run, by seed.
static CASES: LazyLock<Vec<(u64, Case)>> = LazyLock::new(|| {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match (number("SERVESIM_SEED"), number("SERVESIM_CASES")) {
        (Some(seed), _) => seed..seed + 1,
        (None, cases) => 0..cases.unwrap_or(CASES_MAX),
    };
    seeds.map(|seed| (seed, Case::of(seed))).collect()
});

/// What they come to.
static RUNS: LazyLock<Vec<Run>> =
    LazyLock::new(|| CASES.iter().map(|(seed, case)| named(*seed, case, || case.run())).collect());

/// Does something with a case; should that panic, it is said which case it was.
fn named<T>(seed: u64, case: &Case, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        #[expect(clippy::print_stderr, reason = "the seed is what reproduces a failure")]
        {
            eprintln!("SERVESIM_SEED={seed}: {:#?}", case.settings);
        }
        resume_unwind(panic)
    })
}

/// Checks every case, or every `step`-th, and its run.
fn for_each(step: usize, check: impl Fn(&Case, &Run)) {
    for ((seed, case), run) in CASES.iter().zip(RUNS.iter()).step_by(step) {
        named(*seed, case, || check(case, run));
    }
}

/// The invariants would hold of cases in which nothing happens, too.
#[test]
fn the_cases_are_not_trivial() {
    let with = |has: &dyn Fn(&Case, &Run) -> bool| {
        CASES.iter().zip(RUNS.iter()).filter(|((_, case), run)| has(case, run)).count()
    };
    if CASES.len() as u64 != CASES_MAX {
        return;
    }
    let has = |pointer: &'static str| with(&move |_: &Case, run: &Run| run.count(pointer) > 0);
    for (what, cases) in [
        ("preemptions", has("/preemptions/total")),
        ("hits", has("/tokens/cached")),
        ("mixed passes", has("/passes/mixed/count")),
        ("outputs cut by the longest sequence", has("/requests/finish/model_length")),
        ("stop tokens", has("/requests/finish/stop")),
        ("rejections", has("/requests/rejected/total")),
        ("blocked queues", has("/requests/unfinished")),
        ("several engines", with(&|case, _| case.engines > 1)),
        (
            "recomputation before the first token",
            with(&|_, run| {
                run.report["ttft_breakdown_ms"]["recompute"]["max"].as_f64() > Some(0.0)
            }),
        ),
        ("full pools", with(&|_, run| run.report["engines"][0]["kv"]["used_ratio"]["max"] == 1.0)),
        (
            "tight pools without preemption",
            with(&|case, run| case.usable_blocks < 10 && run.count("/preemptions/total") == 0),
        ),
    ] {
        assert!(cases >= 5, "{what} in {cases} of {CASES_MAX} cases");
    }
}

#[test]
fn every_request_ends_as_it_should() {
    for_each(1, |case, run| {
        let count = |what: &str| run.count(&format!("/requests/{what}"));
        let input = case.requests.len() as u64;
        assert_eq!(count("input"), input);
        assert_eq!(count("completed") + count("rejected/total") + count("unfinished"), input);
        assert_eq!(count("excluded"), 0);

        // One row a request, one request a line.
        let lines: BTreeSet<u64> =
            run.rows.iter().map(|row| row["line"].as_u64().unwrap()).collect();
        assert_eq!(lines, (1..=input).collect());
        assert_eq!(run.rows.len() as u64, input);

        for row in &run.rows {
            let request = case.request(row);
            let [prompt, output] = [request.prompt, request.output].map(u64::from);
            let rejected = if prompt == 0 {
                Some("empty_prompt")
            } else if output == 0 {
                Some("zero_output")
            } else if prompt >= case.max_model_len {
                Some("prompt_too_long")
            } else {
                None
            };
            assert_eq!(row["reason"].as_str(), rejected, "{row}");
            assert_eq!(row["status"] == "rejected", rejected.is_some(), "{row}");
            if row["status"] == "completed" {
                let limit = case.max_tokens.unwrap_or(u64::MAX);
                let room = case.max_model_len - prompt;
                assert_eq!(row["output_tokens"], output.min(limit).min(room), "{row}");
                let finish = if output.min(limit) > room {
                    "model_length"
                } else if output < limit.min(room) && case.max_tokens.is_some() {
                    "stop"
                } else {
                    "length"
                };
                assert_eq!(row["finish"], finish, "{row}");
            }
        }
        // What blocks a queue for ever is a prompt (or what is to be computed again) that may not be
        // cut and does not fit the budget.
        let blocked = !case.chunked
            && case.requests.iter().any(|r| {
                let longest = (u64::from(r.prompt) + u64::from(r.output)).min(case.max_model_len);
                longest > case.budget
            });
        // Requests of equal priority and arrival take each other's blocks in turn (R21), for ever if
        // none of them can be computed whole before it is the next victim's turn.
        let warnings = run.report["warnings"].as_array().unwrap();
        let in_circles = warnings.iter().any(|warning| warning["kind"] == "ran_in_circles");
        assert!(!in_circles || !case.fcfs && !case.gated);
        assert!(count("unfinished") == 0 || blocked || in_circles);
    });
}

#[test]
fn times_are_in_order_and_add_up() {
    for_each(1, |case, run| {
        let [mut gaps, mut output, mut counted] = [0, 0, 0];
        for row in run.rows.iter().filter(|row| row["status"] == "completed") {
            let at = |field: &str| ns(&row[field]);
            let arrival = at("arrival_ms");
            let (scheduled, first, last) =
                (at("first_scheduled_ms"), at("first_token_ms"), at("finished_ms"));
            assert!(arrival + case.frontend_ns <= scheduled, "{row}");
            assert!(scheduled <= first && first <= last, "{row}");
            assert_eq!(at("queue_ms"), scheduled - arrival, "{row}");
            assert_eq!(at("ttft_ms"), first - arrival, "{row}");
            assert_eq!(at("e2e_ms"), last - arrival, "{row}");
            let parts =
                ["frontend", "queueing", "prefill", "chunk_wait", "recompute", "detokenize"];
            let sum: u64 = parts.iter().map(|part| at(&format!("ttft_{part}_ms"))).sum();
            assert_eq!(sum, at("ttft_ms"), "{row}");
            assert_eq!(at("ttft_frontend_ms"), case.frontend_ns, "{row}");

            let tokens = row["output_tokens"].as_u64().unwrap();
            let decoding = last - first;
            if tokens == 1 {
                assert!(row["tpot_ms"].is_null() && decoding == 0, "{row}");
            } else {
                let gaps = tokens - 1;
                assert_eq!(at("tpot_ms"), (decoding + gaps / 2) / gaps, "{row}");
                // A token takes at least the cheaper pass.
                let cheapest = case.decode_ns.min(case.prefill_ns);
                assert!(decoding >= gaps * cheapest, "{row}");
            }
            // A prompt takes at least as many passes as the budget cuts it into.
            let left =
                row["prompt_tokens"].as_u64().unwrap() - row["cached_tokens"].as_u64().unwrap();
            assert!(first - scheduled >= left.div_ceil(case.budget) * case.prefill_ns, "{row}");
            gaps += tokens - 1;
            output += tokens;
            counted += 1;
        }
        assert_eq!(run.count("/tokens/output"), output);
        for (metric, count) in
            [("ttft_ms", counted), ("e2e_ms", counted), ("queue_ms", counted), ("itl_ms", gaps)]
        {
            let found = run.count(&format!("/latency/{metric}/count"));
            // A request that never finishes may have had tokens, and with them gaps.
            let may_be_more = metric == "itl_ms" && run.count("/requests/unfinished") > 0;
            assert!(found == count || may_be_more && found > count, "{metric}: {found}, {count}");
        }
    });
}

#[test]
fn hits_are_whole_blocks_that_another_prompt_shares() {
    for_each(1, |case, run| {
        for (id, row) in run.rows.iter().enumerate() {
            let Some(cached) = row["cached_tokens"].as_u64() else { continue };
            let request = case.request(row);
            assert!(cached < u64::from(request.prompt), "{row}");
            assert_eq!(cached % case.block_size, 0, "{row}");
            // Whoever was handed over to the same engine before. Under the priority policy somebody
            // who came later may have been served earlier.
            let is_before = |other| if case.fcfs { other < id } else { other != id };
            let others = run.rows.iter().enumerate();
            let common = others
                .filter(|&(other, r)| is_before(other) && r["engine"] == row["engine"])
                .map(|(_, other)| case.common_tokens(request, case.request(other)))
                .max()
                .unwrap_or(0);
            assert!(cached <= common, "{row} shares {common} tokens");
            assert!(case.caching || cached == 0, "{row}");
        }
    });
}

#[test]
fn limits_are_kept_and_work_is_conserved() {
    for_each(1, |case, run| {
        let float = |pointer: &str| run.report.pointer(pointer).and_then(Value::as_f64);
        let passes = run.count("/passes/total");
        if passes == 0 {
            assert_eq!(run.count("/requests/completed"), 0);
            return;
        }
        let engines = run.report["engines"].as_array().unwrap();
        assert_eq!(engines.len() as u64, case.engines);
        for engine in engines {
            assert_eq!(engine["kv"]["capacity_blocks"], case.usable_blocks);
            // Unknown where all passes of the run took no time.
            let max = |level: &Value| level["max"].as_u64().unwrap_or(0);
            assert!(max(&engine["kv"]["used_blocks"]) <= case.usable_blocks);
            assert!(max(&engine["running"]) <= case.max_num_seqs);
        }
        // Served requests go to the engines in turn.
        let served = run.rows.iter().filter_map(|row| row["engine"].as_u64());
        assert!(served.zip((0..case.engines).cycle()).all(|(engine, turn)| engine == turn));
        if let Some(busy) = float("/passes/busy_ratio") {
            assert!(busy <= 1.0 + 1e-9, "{busy}");
        }

        // Tokens computed are those that had to be: prompts less hits, and every output but the
        // last. Preemptions add to them, and so may a pass after an unforeseen stop. Who comes back
        // from a preemption may find more in the cache than it would have had to compute.
        let total = |what: &str| -> f64 {
            ["prefill_only", "decode_only", "mixed"]
                .iter()
                .map(|kind| {
                    let mean = float(&format!("/passes/{kind}/{what}_tokens_mean")).unwrap_or(0.0);
                    mean * run.count(&format!("/passes/{kind}/count")) as f64
                })
                .sum()
        };
        let computed = (total("prefill") + total("decode")).round() as u64;
        let [mut needed, mut stops] = [0, 0];
        for row in run.rows.iter().filter(|row| row["status"] == "completed") {
            let of = |field: &str| row[field].as_u64().unwrap();
            needed += of("prompt_tokens") - of("cached_tokens") + of("output_tokens") - 1;
            stops += u64::from(row["finish"] == "stop");
        }
        let preempted = run.count("/preemptions/total") > 0;
        assert!(computed >= needed || case.caching && preempted, "{computed} of {needed}");
        if !preempted && run.count("/requests/unfinished") == 0 {
            assert!(computed <= needed + stops, "{computed} of {needed} and {stops}");
        }
        assert!(computed <= passes * case.budget);
        // One request alone is never preempted, however tight the pool.
        if case.requests.len() == 1 {
            assert_eq!(run.count("/preemptions/total"), 0);
        }
    });
}

#[test]
fn first_admissions_are_in_order_of_arrival_under_fcfs() {
    for_each(1, |case, run| {
        if !case.fcfs {
            return;
        }
        for engine in 0..case.engines {
            let completed = run.rows.iter().filter(|row| row["status"] == "completed");
            let here = completed.filter(|row| row["engine"] == engine);
            let scheduled: Vec<u64> = here.map(|row| ns(&row["first_scheduled_ms"])).collect();
            assert!(scheduled.is_sorted(), "{scheduled:?}");
        }
    });
}

/// Two runs are the same but for the facts of their execution and the place of their trace. If not,
/// the first difference is shown and not everything.
fn assert_same(a: &Run, b: &Run) {
    for (a, b) in a.rows.iter().zip(&b.rows) {
        assert_eq!(a, b);
    }
    let report = |run: &Run| {
        let mut report = without_host(&run.report);
        report["scenario"]["workload"]["trace"]["path"].take();
        report["workload"]["trace"].take();
        report
    };
    let (a, b) = (report(a), report(b));
    for (name, value) in a.as_object().unwrap() {
        assert_eq!(value, &b[name], "{name}");
    }
    assert_eq!(a, b);
}

#[test]
fn equal_cases_give_equal_reports() {
    for_each(4, |case, first| assert_same(first, &case.run()));
}

/// Whatever a run of decode passes skips comes to the same as looking at every request in every pass.
#[test]
fn the_fast_path_is_equal_to_the_stepwise_one() {
    for_each(1, |case, fast| {
        let stepwise = simulate_stepwise(&case.requests, &case.settings());
        assert_same(fast, &stepwise);
    });
}

/// What is left out of the statistics is still simulated: every row but its `counted` stays.
#[test]
fn warm_up_and_window_change_no_decision() {
    for_each(4, |case, all| {
        for extra in ["metrics.warmup.requests=3", "metrics.window={from_s: 0.005, to_s: 0.02}"] {
            let mut settings = case.settings();
            settings.push(extra);
            let part = simulate(&case.requests, &settings);
            assert_eq!(part.digest(), all.digest(), "{extra}");
            assert_eq!(part.report["passes"], all.report["passes"], "{extra}");
            assert_eq!(part.report["engines"], all.report["engines"], "{extra}");
            let mut counted = 0;
            for (part, all) in part.rows.iter().zip(&all.rows) {
                let arrival = ns(&all["arrival_ms"]);
                let is_counted = if extra.contains("warmup") {
                    all["id"].as_u64().unwrap() >= 3
                } else {
                    (5_000_000..20_000_000).contains(&arrival)
                };
                assert_eq!(part["counted"], is_counted, "{extra}: {part}");
                counted += u64::from(is_counted);
                let mut part = part.clone();
                part["counted"] = all["counted"].clone();
                assert_eq!(&part, all, "{extra}");
            }
            let count = |what: &str| part.count(&format!("/requests/{what}"));
            assert_eq!(count("input"), case.requests.len() as u64);
            assert_eq!(count("excluded"), count("input") - counted, "{extra}");
            assert_eq!(count("completed") + count("rejected/total") + count("unfinished"), counted);
        }
    });
}

/// Halving every time, prices included, halves every latency.
#[test]
fn time_has_no_scale_of_its_own() {
    for_each(8, |case, _| {
        let run = |speedup: u32, prices: [&str; 5]| {
            let speedup = format!("workload.trace.speedup={speedup}");
            let mut settings: Vec<&str> =
                case.settings().into_iter().filter(|s| !s.starts_with("host.")).collect();
            settings.extend(prices);
            settings.push(&speedup);
            simulate(&case.requests, &settings)
        };
        let slow = [
            "timing.fixed={prefill_ms: 8, decode_ms: 2}",
            "host.frontend_ms=4",
            "host.detokenize_ms=6",
            "host.per_pass_host_ms=1",
            "seed=0",
        ];
        let fast = [
            "timing.fixed={prefill_ms: 4, decode_ms: 1}",
            "host.frontend_ms=2",
            "host.detokenize_ms=3",
            "host.per_pass_host_ms=0.5",
            "seed=0",
        ];
        let (slow, fast) = (run(1, slow), run(2, fast));
        for (slow, fast) in slow.rows.iter().zip(&fast.rows) {
            for field in ["arrival_ms", "queue_ms", "ttft_ms", "e2e_ms"] {
                if !slow[field].is_null() {
                    assert_eq!(ns(&slow[field]), 2 * ns(&fast[field]), "{field}: {slow} {fast}");
                }
            }
            for field in ["status", "cached_tokens", "output_tokens", "preemptions", "finish"] {
                assert_eq!(slow[field], fast[field], "{field}");
            }
        }
    });
}

/// A part of a trace is replayed as a trace of only those rows would be.
#[test]
fn a_window_of_the_trace_is_a_trace_of_its_own() {
    for_each(8, |case, _| {
        let (from, to) = (9, 410);
        let origin = case.requests[0].ms;
        let part: Vec<Request> = case
            .requests
            .iter()
            .map(|r| Request { ms: r.ms - origin, ..r.clone() })
            .filter(|r| (from..to).contains(&r.ms))
            .map(|r| Request { ms: r.ms - from, ..r })
            .collect();
        if part.is_empty() {
            return;
        }
        let with = |requests: &[Request], extra| {
            let mut run = simulate(requests, &[&case.settings()[..], &[extra]].concat());
            run.rows.iter_mut().for_each(|row| _ = row["line"].take());
            run
        };
        let window = with(&case.requests, "workload.trace.window={from_s: 0.009, to_s: 0.41}");
        let alone = with(&part, "workload.trace.origin=zero");
        assert_eq!(window.rows, alone.rows);
        assert_eq!(window.digest(), alone.digest());
    });
}
