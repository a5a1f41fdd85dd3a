use proptest::prelude::*;

use super::*;

/// Rounds without drafts.
fn plain(batch: &SteadyBatch) -> Rounds {
    Rounds::plain(batch.osl - 1)
}

fn batch(requests: u32, isl: u32, osl: u32, prefix: u32) -> SteadyBatch {
    let batch = SteadyBatch { requests, isl, osl, prefix };
    batch.check().unwrap();
    batch
}

/// Passes as count, prompts, new tokens and decodes.
fn rows(schedule: &Schedule) -> Vec<(u64, u32, u64, u32)> {
    let row = |p: &Passes| (p.count, p.prefill.requests, p.prefill.new_tokens, p.decode.requests);
    schedule.passes.iter().map(row).collect()
}

fn rows_of(batch: &SteadyBatch, ctx_tokens: u64) -> Vec<(u64, u32, u64, u32)> {
    rows(&batch.schedule(ctx_tokens, &plain(batch)))
}

/// Pairs of a new token and one that it attends to, in all passes.
fn attended(schedule: &Schedule) -> u64 {
    let of = |p: &Passes| p.count * (p.prefill.new_by_past + p.prefill.new_triangle);
    schedule.passes.iter().map(of).sum()
}

#[test]
fn cached_tokens_take_no_passes() {
    // ceil(16 * (32768 - prefix) / 16384); the last is 16 * 3277 / 16384 = 3.2.
    for (prefix, passes) in [(0, 32), (8_192, 24), (16_384, 16), (24_576, 8), (29_491, 4)] {
        let batch = batch(16, 32_768, 1_000, prefix);
        assert_eq!(batch.schedule(16_384, &plain(&batch)).prompt_passes, passes, "{prefix}");
    }
    let batch = batch(16, 32_768, 1_000, 16_384);
    assert_eq!(batch.schedule(32_768, &plain(&batch)).prompt_passes, 8);
}

#[test]
fn a_prompt_is_spread_over_chunks() {
    // 900 new tokens by 300.
    let batch = batch(4, 1_000, 10, 100);
    let schedule = batch.schedule(300, &plain(&batch));
    assert_eq!((schedule.chunks, schedule.prompt_passes), (3, 12));
    // By 400 it takes 3 passes too, and 4 prompts take 3600 / 400.
    let schedule = batch.schedule(400, &plain(&batch));
    assert_eq!((schedule.chunks, schedule.prompt_passes), (3, 9));
}

#[test]
fn a_pass_packs_whole_prompts_and_a_part() {
    let batch = batch(16, 4_096, 100, 256);
    let schedule = batch.schedule(4_096, &plain(&batch));
    let prefill = schedule.passes[0].prefill;
    // 3840 + 256 new tokens, and the part is 256 / 3840 = 1/15 of a prompt.
    assert_eq!((prefill.requests, prefill.new_tokens, prefill.longest_tokens), (2, 4_096, 3_840));
    // A whole prompt attends to 3840 * 256 + 3840 * 3841 / 2 = 8,357,760, and the part to a 15th: 557,184.
    assert_eq!(prefill.new_by_past + prefill.new_triangle, 8_357_760 + 557_184);
    // The part lies in the middle of its prompt: 256 + (3840 - 256) / 2 tokens before it.
    assert_eq!(prefill.past_tokens, 256 + 2_048);
    assert_eq!(schedule.passes[0].decode.requests, 14);
}

#[test]
fn the_last_pass_has_its_own_tokens_and_decodes() {
    // 2 * 1920 = 2048 + 1792: in the first pass both have a share, in the second one.
    let batch = batch(2, 1_920, 101, 0);
    assert_eq!(
        rows_of(&batch, 2_048),
        // 200 decodes: 1 beside the second prompt, and 199 by 2.
        [(1, 2, 2_048, 0), (1, 1, 1_792, 1), (99, 0, 0, 2), (1, 0, 0, 1)]
    );
}

#[test]
fn decodes_fill_the_seats_beside_prompts() {
    // 16 * 511 decodes: 16 * 15 beside prompts, and 496 * 16.
    assert_eq!(rows_of(&batch(16, 4_096, 512, 0), 4_096), [(16, 1, 4_096, 15), (496, 0, 0, 16)]);
    // Alone it has nobody to decode beside.
    assert_eq!(rows_of(&batch(1, 100, 5, 0), 60), [(1, 1, 60, 0), (1, 1, 40, 0), (4, 0, 0, 1)]);
    // All prompts at once.
    assert_eq!(rows_of(&batch(8, 100, 5, 0), u64::MAX), [(1, 8, 800, 0), (4, 0, 0, 8)]);
}

#[test]
fn few_decodes_are_spread_over_the_prompts() {
    // 16 * 3 decodes over 16 passes.
    assert_eq!(rows_of(&batch(16, 100, 4, 0), 100), [(16, 1, 100, 3)]);
    assert_eq!(rows_of(&batch(16, 100, 1, 0), 100), [(16, 1, 100, 0)]);
    // 4 * 2 over 3 full passes and one of 10: 2 each.
    assert_eq!(rows_of(&batch(4, 10, 3, 0), 13), [(3, 2, 13, 2), (1, 1, 1, 2)]);
    // 4 rounds of 2.5: 10 over 8 passes.
    let rounds = Rounds { per_request: 2.5, query_tokens: 3.0 };
    let schedule = batch(4, 10, 6, 0).schedule(5, &rounds);
    assert_eq!(rows(&schedule), [(2, 1, 5, 2), (6, 1, 5, 1)]);
    assert_eq!(schedule.passes[0].decode.query_tokens, 6);
}

#[test]
fn decodes_find_the_mean_of_their_kv() {
    // The 4 decodes of an output of 5 find 100, 101, 102, 103 tokens: 101.5 on average.
    let batch = batch(2, 100, 5, 0);
    let decode = batch.decode(2, &plain(&batch));
    assert_eq!((decode.kv_tokens, decode.query_tokens, decode.longest_kv_tokens), (203, 2, 103));
    // 2 rounds of 2 tokens find 100 and 102.
    let rounds = Rounds { per_request: 2.0, query_tokens: 4.0 };
    assert_eq!(batch.decode(2, &rounds).kv_tokens, 202);
    assert_eq!(batch.decode(2, &rounds).query_tokens, 8);
}

#[test]
fn what_cannot_be_counted_is_refused() {
    let error = |requests, isl, osl, prefix| {
        SteadyBatch { requests, isl, osl, prefix }.check().unwrap_err().to_string()
    };
    assert!(error(0, 1, 1, 0).starts_with("--batch 0: "));
    assert!(error(1, 0, 1, 0).starts_with("--isl 0: "));
    assert!(error(1, 1, 0, 0).starts_with("--osl 0: "));
    assert_eq!(
        error(1, 9, 1, 9),
        "--prefix 9: prefix (9) must be smaller than the effective isl (9)"
    );
    assert!(error(u32::MAX, u32::MAX, u32::MAX, 0).starts_with("--batch 4294967295: "));
}

prop_compose! {
    fn any_batch()(
        requests in 1_u32..80,
        isl in 1_u32..3_000,
        osl in 1_u32..400,
        cached in 0_u32..3_000,
        ctx_tokens in prop_oneof![1_u64..5_000, 1_u64..300_000],
    ) -> (SteadyBatch, u64) {
        (batch(requests, isl, osl, cached % isl), ctx_tokens)
    }
}

proptest! {
    #[test]
    fn nothing_is_lost((batch, ctx_tokens) in any_batch(), tokens_a_round in 1_u32..5) {
        let later = f64::from(batch.osl - 1);
        let rounds =
            Rounds { per_request: later / f64::from(tokens_a_round), query_tokens: 4.0 };
        let schedule = batch.schedule(ctx_tokens, &rounds);
        let sum = |of: fn(&Passes) -> u64| -> u64 {
            schedule.passes.iter().map(|p| p.count * of(p)).sum()
        };
        let (requests, new) = (u64::from(batch.requests), u64::from(batch.new_tokens()));
        prop_assert_eq!(sum(|p| p.prefill.new_tokens), requests * new);
        let decodes = (f64::from(batch.requests) * rounds.per_request).ceil() as u64;
        prop_assert_eq!(sum(|p| p.decode.requests.into()), decodes);
        prop_assert_eq!(sum(|p| u64::from(p.prefill.requests > 0)), schedule.prompt_passes);
        for passes in &schedule.passes {
            prop_assert!(passes.count > 0);
            prop_assert!(passes.prefill.new_tokens <= schedule.budget);
            prop_assert!(passes.decode.requests <= batch.requests - passes.prefill.requests);
            prop_assert!(passes.prefill.requests + passes.decode.requests > 0);
        }
        // Half a pair is lost where a part has no middle.
        let whole = requests * (new * u64::from(batch.prefix) + new * (new + 1) / 2);
        prop_assert!(attended(&schedule) <= whole);
        prop_assert!(whole - attended(&schedule) <= schedule.prompt_passes);
    }

    /// The first token of a prompt attends to itself alone, and so is one pair less.
    #[test]
    fn a_cached_token_is_one_token_less((batch, ctx_tokens) in any_batch()) {
        prop_assume!(batch.isl > 1);
        let [none, one] = [0, 1].map(|prefix| {
            let batch = SteadyBatch { prefix, ..batch };
            batch.schedule(ctx_tokens, &plain(&batch))
        });
        let requests = u64::from(batch.requests);
        let lost = none.prompt_passes + one.prompt_passes;
        prop_assert!(attended(&none).abs_diff(attended(&one) + requests) <= lost);
        // As many passes, or as many fewer as the tokens make up.
        prop_assert!(none.prompt_passes >= one.prompt_passes);
        prop_assert!(none.prompt_passes - one.prompt_passes <= requests.div_ceil(one.budget));
        if none.prompt_passes == one.prompt_passes && none.budget == one.budget {
            let kinds = |schedule: &Schedule| schedule.passes[0].prefill.new_tokens;
            prop_assert_eq!(kinds(&none), kinds(&one));
        }
    }

    #[test]
    fn longer_outputs_take_more_passes((batch, ctx_tokens) in any_batch(), more in 1_u32..50) {
        let longer = SteadyBatch { osl: batch.osl + more, ..batch };
        let passes = |batch: &SteadyBatch| -> u64 {
            batch.schedule(ctx_tokens, &plain(batch)).passes.iter().map(|p| p.count).sum()
        };
        prop_assert!(passes(&batch) <= passes(&longer));
    }
}
