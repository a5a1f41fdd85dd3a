//! Do rounds give and cost what the closed form says?
//!
//! All passes have a fixed price: 7 ms with prefill work, 3 ms with decode work, the sum with both, and 1 ms for
//! drafting where drafts are verified: a round takes R = 4 ms. Times are whole µs.

use std::fmt::Write as _;

use serde_json::Value;

use crate::support::{
    Folder, Request, Run, request, servesim, simulate, simulate_stepwise, simulate_synthetic,
    simulate_trace,
};

/// Prefill pass, in µs.
const P: u64 = 7000;
/// Decode pass that verifies drafts, in µs.
const R: u64 = 4000;
/// Decode pass that does not, in µs.
const D: u64 = 3000;

const PRICES: [&str; 3] =
    ["timing.fixed.prefill_ms=7", "timing.fixed.decode_ms=3", "pricing.draft_ms=1"];
const FOUR: &str = "engine.vllm.speculative_config={method: eagle, num_speculative_tokens: 4}";
const MODES: [&str; 2] =
    ["engine.vllm.async_scheduling=false", "engine.vllm.async_scheduling=true"];

fn settings<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&PRICES, more].concat()
}

/// A request of n tokens whose rounds all accept a drafts takes ceil((n - 1) / (a + 1)) of them behind its prefill;
/// the last burst is cut. So many drafts are wasted: 4 a round, less the tokens that are not the round's own.
#[test]
fn sure_drafts_divide_the_rounds() {
    for mode in MODES {
        for (accepted, output) in [(0, 61), (1, 61), (2, 60), (4, 61), (4, 62), (4, 1)] {
            let mean = format!("speculation.acceptance.accepted_drafts_mean={accepted}");
            let set = settings(&[mode, FOUR, &mean]);
            let run = simulate(&[request(0, 100, output)], &set);
            let rounds = u64::from((output - 1).div_ceil(accepted + 1));
            let tokens = u64::from(output - 1);
            assert_eq!(run.us(0, "ttft_ms"), P, "the first token pays no round");
            assert_eq!(run.us(0, "e2e_ms"), P + rounds * R, "{mode}, {accepted}, {output}");
            assert_eq!(run.of(0, "rounds"), rounds);
            assert_eq!(run.of(0, "drafts"), 4 * rounds);
            assert_eq!(run.of(0, "accepted_drafts"), u64::from(accepted) * rounds);
            assert_eq!(run.count("/speculation/tokens"), tokens);
            assert_eq!(run.count("/speculation/wasted_drafts"), 4 * rounds - (tokens - rounds));
            // Bursts are 0 ms apart inside, and a round between.
            assert_eq!(run.count("/latency/itl_ms/count"), tokens);
            assert_eq!(run.count("/latency/emission_gap_ms/count"), rounds);
            if rounds > 0 {
                assert_eq!(run.float("/latency/emission_gap_ms/max").to_bits(), 4.0_f64.to_bits());
                let mean = run.float("/latency/itl_ms/mean") * tokens as f64;
                assert!((mean - 4.0 * rounds as f64).abs() < 1e-9, "{mean}");
            }
            assert_eq!(simulate_stepwise(&[request(0, 100, output)], &set).rows, run.rows);
        }
    }
}

fn load() -> Vec<Request> {
    (0..40).map(|id| request(u64::from(id) * 9, 50 + 7 * id, 1 + (id * 13) % 40)).collect()
}

/// Rounds that accept nothing are plain decodes at the price of a verification.
#[test]
fn no_accepted_draft_is_plain_decoding_at_the_price_of_a_round() {
    for mode in MODES {
        let rounds = settings(&[mode, FOUR, "speculation.acceptance.accepted_drafts_mean=0"]);
        let with = simulate(&load(), &rounds);
        let plain = ["timing.fixed.prefill_ms=7", "timing.fixed.decode_ms=4", mode];
        let without = simulate(&load(), &plain);
        let times = |run: &Run| -> Vec<_> {
            let fields = ["ttft_ms", "tpot_ms", "e2e_ms", "queue_ms"];
            run.rows.iter().map(|row| fields.map(|field| row[field].clone())).collect()
        };
        assert_eq!(times(&with), times(&without), "{mode}");
        assert_eq!(with.report["latency"]["itl_ms"], without.report["latency"]["itl_ms"]);
        assert_eq!(with.report["latency"]["emission_gap_ms"], with.report["latency"]["itl_ms"]);
        assert_eq!(
            without.report["latency"]["emission_gap_ms"],
            without.report["latency"]["itl_ms"]
        );
        assert_eq!(without.report["speculation"], Value::Null);
    }
}

/// Conditional rates of 0.8, 0.6, 0.4 give 1 + 0.8 + 0.48 + 0.192 = 2.472 tokens a round; positions accept 0.8, 0.48,
/// 0.192. Ends cut a burst in about 500 rounds of 20 requests of 10,000 tokens: less than 0.001 of the mean.
#[test]
fn rates_come_out_as_they_went_in() {
    let run = simulate_synthetic(&settings(&[
        "workload={synthetic: {requests: 20, prompt_tokens: {fixed: 10}, output_tokens: {fixed: 10000}, \
         arrivals: {constant: {requests_per_s: 10}}}}",
        "engine.vllm.speculative_config={method: mtp, num_speculative_tokens: 3}",
        "speculation.acceptance.conditional_rates=[0.8, 0.6, 0.4]",
    ]));
    assert!((run.float("/speculation/tokens_per_round_mean") - 2.472).abs() < 0.03);
    assert!((run.float("/speculation/acceptance_length_mean") - 2.472).abs() < 0.03);
    assert!((run.float("/speculation/acceptance_ratio") - 1.472 / 3.0).abs() < 0.01);
    for (position, expected) in [0.8, 0.48, 0.192].into_iter().enumerate() {
        let found = run.float(&format!("/speculation/position_acceptance_ratio/{position}"));
        // 80,000 rounds: six standard deviations are 6 * sqrt(0.25 / 80000) = 0.011.
        assert!((found - expected).abs() < 0.011, "{found} at {position}");
    }
}

/// Whether others are there, and on which of several engines it is the first, changes no draw of a request.
#[test]
fn what_a_request_accepts_is_its_own() {
    let chance = "speculation.acceptance.conditional_rates=[0.7, 0.7, 0.7, 0.7]";
    let accepted = |run: &Run| run.of(0, "accepted_drafts");
    let alone = simulate(&[request(0, 64, 200)], &settings(&[FOUR, chance]));
    let mut all = load();
    all[0] = request(0, 64, 200);
    let among = simulate(&all, &settings(&[FOUR, chance]));
    assert_eq!(accepted(&alone), accepted(&among));
    let engines = simulate(&all, &settings(&[FOUR, chance, "cluster.engines=3"]));
    assert_eq!(accepted(&alone), accepted(&engines));
    let seed = simulate(&[request(0, 64, 200)], &settings(&[FOUR, chance, "seed=1"]));
    assert_ne!(accepted(&alone), accepted(&seed));
}

/// A list of a trace is followed round by round and starts over: 2, 0, 4, 2 ... give bursts of 3, 1, 5, 3, 1 ...
#[test]
fn a_recorded_list_is_replayed() {
    let folder = Folder::new();
    // 1 token of the prefill, then 3 + 1 + 5 + 3 of the next 12.
    let json = "{\"arrival_ms\": 0, \"prompt_tokens\": 40, \"output_tokens\": 13, \"accepted_drafts\": [2, 0, 4]}\n";
    let csv = "arrival_ms,prompt_tokens,output_tokens,accepted_drafts\n0,40,13,2 0 4\n";
    for (name, text) in [("t.jsonl", json), ("t.csv", csv)] {
        let path = folder.write(name, text);
        for mode in MODES {
            let run = simulate_trace(path.as_ref(), &settings(&[mode, FOUR]));
            assert_eq!(run.of(0, "rounds"), 4, "{name}");
            assert_eq!(run.of(0, "accepted_drafts"), 2 + 4 + 2);
            assert_eq!(run.us(0, "e2e_ms"), P + 4 * R);
        }
        // Written again it says the same.
        let again = folder.text("again.jsonl");
        let ran = servesim(["trace", "convert", &path, &again]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let run = simulate_trace(again.as_ref(), &settings(&[FOUR]));
        assert_eq!(run.of(0, "accepted_drafts"), 2 + 4 + 2, "{}", folder.read("again.jsonl"));
    }
}

#[test]
fn a_request_without_a_record_needs_acceptance() {
    let folder = Folder::new();
    let mut text =
        String::from("arrival_ms,prompt_tokens,output_tokens,accepted_drafts\n0,40,13,2\n");
    writeln!(text, "5,40,13,").unwrap();
    let path = folder.write("t.csv", text);
    let refused = servesim(["replay", &path, "--set", FOUR]);
    assert_eq!(refused.code, Some(2));
    let expected = "t.csv:3: `accepted_drafts` is absent, expected a list of accepted drafts";
    assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    let mean = "speculation.acceptance.accepted_drafts_mean=1";
    let ran = servesim(["replay", &path, "--set", FOUR, "--set", mean]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for bad in ["x", "1 -2", "1.5"] {
        let path = folder.write(
            "bad.csv",
            format!("arrival_ms,prompt_tokens,output_tokens,accepted_drafts\n0,4,3,{bad}\n"),
        );
        let refused = servesim(["replay", &path, "--set", FOUR]);
        assert_eq!(refused.code, Some(2));
        assert!(refused.stderr.contains("`accepted_drafts` is"), "{}", refused.stderr);
    }
}

/// N-grams that are never found: synchronously rounds are plain decodes; asynchronously their drafts are planned all
/// the same, and rejected.
#[test]
fn drafts_that_are_not_found_cost_as_they_are_planned() {
    let ngram = "engine.vllm.speculative_config={method: ngram, num_speculative_tokens: 4}";
    let all = "speculation={acceptance: {accepted_drafts_mean: 4}, no_draft_ratio: 1}";
    for (mode, round, drafts) in [(MODES[0], D, 0), (MODES[1], R, 4)] {
        let run = simulate(&[request(0, 40, 11)], &settings(&[mode, ngram, all]));
        assert_eq!(run.us(0, "e2e_ms"), P + 10 * round);
        assert_eq!(run.count("/speculation/drafts"), 10 * drafts);
        assert_eq!(run.count("/speculation/accepted_drafts"), 0);
    }
}

#[test]
fn acceptance_without_drafts_is_warned_of() {
    let mean = "speculation.acceptance.accepted_drafts_mean=1";
    let kinds = |run: &Run| -> Vec<String> {
        let warnings = run.report["warnings"].as_array().unwrap().iter();
        warnings.map(|warning| warning["kind"].as_str().unwrap().to_owned()).collect()
    };
    let load = [request(0, 40, 11)];
    let warned = kinds(&simulate(&load, &settings(&[mean])));
    assert!(warned.contains(&"no_speculation".to_owned()), "{warned:?}");
    for quiet in [settings(&[mean, FOUR]), settings(&[])] {
        let warned = kinds(&simulate(&load, &quiet));
        assert!(!warned.contains(&"no_speculation".to_owned()), "{warned:?}");
    }
}

/// One request, 40 rounds of 5 tokens against 200 decodes: (P + 200 D) / (P + 40 R) is how much faster it ends.
#[test]
fn compare_gives_the_speed_up() {
    let folder = Folder::new();
    let trace = folder.write("t.jsonl", crate::support::trace(&[request(0, 40, 201)]));
    let run = |out: &str, more: &[&str]| {
        let mut args =
            vec!["replay".to_owned(), trace.clone(), "--out".to_owned(), folder.text(out)];
        for set in settings(more) {
            args.extend(["--set".to_owned(), set.to_owned()]);
        }
        assert_eq!(servesim(args).code, Some(0));
    };
    run("without", &[]);
    run("with", &[FOUR, "speculation.acceptance.accepted_drafts_mean=4"]);
    let paths = [folder.text("without"), folder.text("with")];
    let ran = servesim(["compare", &paths[0], &paths[1], "--format", "json"]);
    let comparison = ran.report();
    let e2e = (P + 200 * D) as f64 / (P + 40 * R) as f64;
    let found = |pointer: &str| comparison.pointer(pointer).unwrap().as_f64().unwrap();
    assert!((found("/speculation/e2e_mean") / e2e - 1.0).abs() < 1e-9);
    assert!((found("/speculation/tpot_mean") - 200.0 * D as f64 / (40.0 * R as f64)).abs() < 1e-9);
    assert_eq!(comparison["speculation"]["other_differing_fields"], serde_json::json!([]));
    let table = servesim(["compare", &paths[0], &paths[1]]);
    assert!(
        table.stdout.contains("With speculation tokens come 3.750 times as fast"),
        "{}",
        table.stdout
    );
    // One report alone is nothing to compare, and a trace is no report.
    assert_eq!(servesim(["compare", &paths[0]]).code, Some(2));
    let refused = servesim(["compare", &paths[0], &trace]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("t.jsonl: JSON of no known kind"), "{}", refused.stderr);
}

#[test]
fn a_run_that_speculates_repeats_itself() {
    let chance = "speculation.acceptance.position_rates=[0.8, 0.6, 0.5, 0.2]";
    let set = settings(&[FOUR, chance]);
    let runs = [(); 2].map(|()| simulate(&load(), &set));
    let [a, b, stepwise] = [&runs[0], &runs[1], &simulate_stepwise(&load(), &set)]
        .map(|run| (run.digest().to_owned(), run.rows.clone(), run.report["speculation"].clone()));
    assert_eq!(a, b);
    assert_eq!(a, stepwise);
}
