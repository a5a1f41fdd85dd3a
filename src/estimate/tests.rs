use serde_json::Value;

use super::*;
use crate::scenario::Assignment;

fn scenario(sets: &[&str]) -> Scenario {
    let sets: Vec<_> = sets.iter().map(|text| Assignment::parse(text).unwrap()).collect();
    Scenario::default().with(&sets).unwrap()
}

fn estimated(
    sets: &[&str],
    [requests, isl, osl, prefix]: [u32; 4],
    budgets: &Budgets,
    checks: bool,
) -> Result<Value, String> {
    let batch = SteadyBatch { requests, isl, osl, prefix };
    let estimate = estimate(&scenario(sets), Path::new(""), (&batch, budgets), checks, &mut ());
    estimate.map(|e| serde_json::to_value(e).unwrap()).map_err(|error| error.to_string())
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn close(value: &Value, expected: f64) {
    let value = number(value);
    assert!((value - expected).abs() <= 1e-9 * expected.abs(), "{value} is not {expected}");
}

const SYNCHRONOUS: &str = "engine.vllm.async_scheduling=false";

#[test]
fn figures_follow_from_the_passes() {
    let fixed = ["timing={fixed: {prefill_ms: 10, decode_ms: 4}}", SYNCHRONOUS];
    let found = estimated(&fixed, [4, 100, 10, 0], &Budgets::Prompt, false).unwrap();
    let point = &found["points"][0];
    // 4 passes with a prompt and 3 decodes, 14 ms each; of 4 * 9 decodes 24 are left: 6 passes of 4 ms.
    let figures = &point["figures"];
    assert_eq!(figures["passes"], 10);
    close(&figures["generation_ms"], 4.0 * 14.0 + 6.0 * 4.0);
    close(&figures["ttft_ms"], 14.0);
    // 12 decodes wait 14 ms, 24 wait 4.
    close(&figures["tpot_ms"], (12.0 * 14.0 + 24.0 * 4.0) / 36.0);
    // 14 ms and 9 TPOT are the whole generation: nobody waits.
    assert!(number(&figures["queue_ms"]).abs() < 1e-9);
    close(&figures["requests_per_s"], 4.0 / 0.080);
    close(&figures["output_tokens_per_s"], 500.0);
    close(&figures["input_tokens_per_s"], 5_000.0);
    assert_eq!(point["schedule"][0]["prefill_ms"], 10.0);
    assert_eq!(point["schedule"][0]["decode_ms"], 4.0);
    // Blocks of 16: 109 tokens with KV of each request in 7 of them.
    assert_eq!(point["memory"]["batch_kv_tokens_max"], 4 * 7 * 16);
}

#[test]
fn what_prompts_leave_no_time_for_is_queueing() {
    let fixed = ["timing={fixed: {prefill_ms: 10, decode_ms: 4}}", SYNCHRONOUS];
    let found = estimated(&fixed, [4, 100, 2, 0], &Budgets::Prompt, false).unwrap();
    // 4 passes of a prompt and a decode: a request has one of its own and one of a decode, and waits for two.
    let figures = &found["points"][0]["figures"];
    close(&figures["queue_ms"], 28.0);
    close(&figures["tpot_ms"], 14.0);
    // Planned a pass ahead, it waits for at least one; here it does anyway.
    let found = estimated(&fixed[..1], [4, 100, 2, 0], &Budgets::Prompt, false).unwrap();
    close(&found["points"][0]["figures"]["queue_ms"], 28.0);
    // With 10 tokens it would not: one pass with a prompt for three of four, and one of decodes.
    let found = estimated(&fixed[..1], [4, 100, 10, 0], &Budgets::Prompt, false).unwrap();
    close(&found["points"][0]["figures"]["queue_ms"], (3.0 * 14.0 + 4.0) / 4.0);
}

/// Without planning ahead, an engine whose prompts fit does what the formulas say.
#[test]
fn a_synchronous_run_is_the_estimate() {
    for sets in [
        &[SYNCHRONOUS][..],
        &["engine.sglang.disable_overlap_schedule=true"],
        &["engine.trtllm.disable_overlap_scheduler=true"],
    ] {
        let found = estimated(sets, [8, 2_048, 64, 512], &Budgets::Prompt, true).unwrap();
        let check = &found["points"][0]["check"];
        assert_eq!(check["preempted"], 0);
        for row in check["figures"].as_array().unwrap() {
            let (estimate, replay) = (number(&row["estimate"]), number(&row["replay"]));
            let apart = (estimate - replay).abs();
            assert!(apart <= 2e-3 * replay + 1e-3, "{sets:?}: {row}");
        }
    }
}

#[test]
fn drafts_make_rounds_of_several_tokens() {
    let sets = [
        "engine.vllm.speculative_config={method: eagle, num_speculative_tokens: 2}",
        "speculation.acceptance.position_rates=[1, 1]",
        "pricing.draft_ms=1.5",
        "timing={fixed: {prefill_ms: 10, decode_ms: 4}}",
        SYNCHRONOUS,
    ];
    let found = estimated(&sets, [4, 100, 31, 0], &Budgets::Prompt, true).unwrap();
    let point = &found["points"][0];
    // 30 tokens in 10 rounds of 3: 40 decodes, 12 of them beside prompts.
    close(&point["rounds_per_request"], 10.0);
    let [mixed, decode] = [0, 1].map(|at| &point["schedule"][at]);
    assert_eq!((&mixed["passes"], &mixed["decode_tokens"]), (&Value::from(4), &Value::from(9)));
    assert_eq!((&decode["passes"], &decode["decode_tokens"]), (&Value::from(7), &Value::from(12)));
    assert_eq!(decode["draft_ms"], 1.5);
    close(&point["figures"]["generation_ms"], 4.0 * 15.5 + 7.0 * 5.5);
    let check = point["check"]["figures"].as_array().unwrap();
    for row in check.iter().filter(|row| row["figure"] != "queue_ms") {
        assert!(number(&row["difference_ratio"]).abs() < 0.02, "{row}");
    }
}

#[test]
fn the_first_cached_token_changes_next_to_nothing() {
    for (batch, isl, osl) in [(1, 1_000, 100), (16, 4_096, 512), (8, 20_000, 10)] {
        // Where the budget is just a prompt, a cached token makes room for one of the next prompt and takes it a seat.
        let others = vec![u64::from(isl) / 2 + 100, 2 * u64::from(isl) + 700];
        for budgets in [Budgets::Prompt, Budgets::Multiples, Budgets::Given(others)] {
            let [none, one] = [0, 1]
                .map(|prefix| estimated(&[], [batch, isl, osl, prefix], &budgets, false).unwrap());
            let points = |found: &Value| found["points"].as_array().unwrap().clone();
            for (none, one) in points(&none).iter().zip(&points(&one)) {
                for name in ["ttft_ms", "tpot_ms", "generation_ms"] {
                    let [none, one] = [none, one].map(|point| number(&point["figures"][name]));
                    assert!((none / one - 1.0).abs() < 0.01, "{batch} {isl} {name}: {none} {one}");
                }
            }
        }
    }
}

#[test]
fn longer_outputs_take_longer() {
    let mut before = 0.0;
    for osl in [1, 2, 3, 8, 20, 21, 100, 400, 401, 3_000] {
        let found = estimated(&[], [16, 2_000, osl, 0], &Budgets::Prompt, false).unwrap();
        let generation_ms = number(&found["points"][0]["figures"]["generation_ms"]);
        assert!(generation_ms > before, "{osl}");
        before = generation_ms;
    }
}

#[test]
fn a_sweep_is_over_whole_prompts() {
    let of = |requests, prefix| {
        Budgets::Multiples.of(&SteadyBatch { requests, isl: 1_000, osl: 1, prefix })
    };
    assert_eq!(of(6, 0), [1_000, 2_000, 4_000, 6_000]);
    assert_eq!(of(1, 900), [100]);
    assert_eq!(of(2, 999), [1, 2]);
    let found = estimated(&[], [6, 1_000, 10, 0], &Budgets::Multiples, false).unwrap();
    let points = found["points"].as_array().unwrap();
    let passes: Vec<_> = points.iter().map(|point| point["mixed_passes"].as_u64()).collect();
    assert_eq!(passes, [6, 3, 2, 1].map(Some));
}

#[test]
fn a_batch_that_does_not_fit_is_refused_with_what_does() {
    // 64 blocks of 16 usable; 100 + 29 tokens with KV are 9 blocks: 7 requests.
    let sets = ["engine.vllm.num_gpu_blocks=65", "timing={fixed: {}}"];
    assert!(estimated(&sets, [7, 100, 30, 0], &Budgets::Prompt, false).is_ok());
    let error = estimated(&sets, [8, 100, 30, 0], &Budgets::Prompt, false).unwrap_err();
    assert!(error.starts_with("--batch 8: expected at most 7: "), "{error}");
    // A shared prefix of 5 blocks is there once: 59 blocks for 4 of each request.
    assert!(estimated(&sets, [14, 100, 30, 80], &Budgets::Prompt, false).is_ok());
    let error = estimated(&sets, [15, 100, 30, 80], &Budgets::Prompt, false).unwrap_err();
    assert!(error.starts_with("--batch 15: expected at most 14: "), "{error}");
    // Of several budgets, those that can be had are.
    let tokens = vec![100, 1 << 28];
    let sets = ["engine.vllm.num_gpu_blocks=100000000", "timing={fixed: {}}"];
    let wide = [4_000_000, 100, 2, 0];
    let found = estimated(&sets, wide, &Budgets::Given(tokens), false).unwrap();
    assert_eq!(found["points"].as_array().unwrap().len(), 1);
    assert_eq!(found["refused"][0]["ctx_tokens"], 1 << 28);
}

#[test]
fn a_sequence_that_is_not_served_is_refused() {
    let sets = ["engine.vllm.max_model_len=200"];
    let of = |isl, osl| estimated(&sets, [2, isl, osl, 0], &Budgets::Prompt, false);
    assert!(of(150, 50).is_ok());
    assert!(of(151, 50).unwrap_err().starts_with("--isl 151: expected at most 150: "));
    assert!(of(1, 200).unwrap_err().starts_with("--osl 200: expected less than 200"));
}
