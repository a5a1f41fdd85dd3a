//! Rounds, pass by pass (S1 to S9).

use super::*;
use crate::base::record::Finish;
use crate::engine::trtllm::speculative::{DecodingType, SpeculativeConfig};

const fn drafts(decoding_type: DecodingType, drafts: u32) -> SpeculativeConfig {
    SpeculativeConfig {
        decoding_type,
        max_draft_len: Some(drafts),
        num_nextn_predict_layers: None,
        eagle3_one_model: true,
    }
}

/// Of the drafts of each round so many are accepted.
fn accepted(drafts: usize) -> Acceptance {
    Acceptance { at_least: vec![1.0; drafts], none_found: 0.0 }
}

impl Dut {
    /// Tokens that decode in the pass that was planned last.
    fn query_tokens(&self) -> u64 {
        self.in_flight.back().map_or(0, |plan| plan.decode.query_tokens)
    }

    /// Blocks nobody holds, and those of them that are reserved.
    fn free_and_reserved(&self) -> (u32, u64) {
        (self.trtllm.kv.free_blocks(), self.trtllm.reserved_blocks)
    }
}

#[test]
fn rejected_drafts_leave_the_schedule_as_it_is() {
    for decoding_type in [DecodingType::DraftTarget, DecodingType::Mtp, DecodingType::NGram] {
        let dut = |speculative_config| {
            let mut dut = Dut::accepting(accepted(0), |c| {
                (c.max_batch_size, c.speculative_config) = (2, speculative_config);
            });
            [(5, 4), (20, 7), (9, 1), (3, 3)]
                .iter()
                .zip(0..)
                .for_each(|(&(prompt, output), id)| dut.arrive(id, prompt, output));
            dut
        };
        let (mut plain, mut rounds) = (dut(None), dut(Some(drafts(decoding_type, 3))));
        loop {
            let pass = plain.pass();
            assert_eq!(rounds.pass(), pass);
            // A token and 3 drafts each (S1).
            assert_eq!(rounds.query_tokens(), 4 * plain.query_tokens());
            if pass.is_empty() {
                break;
            }
        }
        rounds.run_out();
        let of_1 = rounds.outbox.finished.iter().find(|r| r.id == RequestId(1)).unwrap();
        // The first of its 7 tokens comes with the prompt.
        assert_eq!((of_1.rounds.rounds, of_1.rounds.drafts, of_1.rounds.accepted), (6, 18, 0));
    }
}

#[test]
fn accepted_drafts_divide_the_rounds() {
    for (overlaps, passes) in [
        // A token with the prompt, and three rounds of 4.
        (false, &["P 0[0..5]", "D 0", "D 0", "D 0", ""][..]),
        // A fourth is planned while the third is in flight, which is only sure to bring one token (S6).
        (true, &["P 0[0..5]", "D 0", "D 0", "D 0", "D 0", ""][..]),
    ] {
        let mut dut = Dut::accepting(accepted(3), |c| {
            c.disable_overlap_scheduler = !overlaps;
            c.speculative_config = Some(drafts(DecodingType::Eagle3, 3));
        });
        dut.arrive(0, 5, 13);
        dut.expect(passes);
        dut.run_out();
        let record = &dut.outbox.finished[0];
        assert_eq!((record.output_tokens, record.finish), (13, Finish::Length));
        assert_eq!((record.rounds.rounds, record.rounds.drafts, record.rounds.accepted), (3, 9, 9));
    }
}

#[test]
fn a_burst_ends_with_its_request() {
    // 1 + 4 + 4 tokens, of which 7, or with a stop token 6, or of a sequence of 10 tokens 5 count.
    for (sequence, output, limit, tokens, finish) in [
        (100, 7, 7, 7, Finish::Length),
        (100, 6, 9, 6, Finish::Stop),
        (10, 9, 9, 5, Finish::ModelLength),
    ] {
        let mut dut = Dut::accepting(accepted(3), |c| {
            c.max_seq_len = Some(sequence);
            c.speculative_config = Some(drafts(DecodingType::DraftTarget, 3));
        });
        dut.arrive_as(0, Content::Private, 5, output, limit);
        dut.run_out();
        let record = &dut.outbox.finished[0];
        assert_eq!((record.output_tokens, record.finish), (tokens, finish));
        assert_eq!(record.rounds.rounds, (tokens - 1).div_ceil(4));
    }
}

#[test]
fn a_round_takes_its_drafts_from_the_pass() {
    // Rounds of 4 tokens: three fit into 12 (S1), be there drafts or not (S7). Without drafts they compute one each.
    for (decoding_type, none_found, query_tokens) in
        [(DecodingType::Eagle, 0.0, 4), (DecodingType::NGram, 1.0, 1)]
    {
        let acceptance = Acceptance { at_least: Vec::new(), none_found };
        let mut dut = Dut::accepting(acceptance, |c| {
            c.max_num_tokens = 12;
            c.speculative_config = Some(drafts(decoding_type, 3));
        });
        (0..4).for_each(|id| dut.arrive(id, 3, 3));
        dut.expect(&["P 0[0..3] 1[0..3] 2[0..3] 3[0..3]", "D 0 1 2"]);
        assert_eq!(dut.query_tokens(), 3 * query_tokens);
        dut.expect(&["D 0 1 2", "D 3", "D 3", ""]);
        dut.run_out();
    }
}

#[test]
fn rejected_drafts_give_their_blocks_back() {
    let mut dut = Dut::accepting(accepted(0), |c| {
        c.kv_cache_config.max_tokens = Some(24);
        c.speculative_config = Some(drafts(DecodingType::DraftTarget, 7));
    });
    dut.arrive(0, 7, 10);
    // 17 tokens are 3 blocks: it holds one, the others are reserved (K4).
    dut.expect(&["P 0[0..7]"]);
    assert_eq!(dut.free_and_reserved(), (2, 2));
    // 7 + 8 tokens are 2 blocks; 8 are left, in one (S4, S5).
    dut.expect(&["D 0"]);
    assert_eq!(dut.free_and_reserved(), (1, 1));
    dut.complete();
    assert_eq!(dut.free_and_reserved(), (2, 2));
    // 8 + 8, then 9 + 8 tokens.
    dut.expect(&["D 0"]);
    assert_eq!(dut.free_and_reserved(), (1, 1));
    dut.expect(&["D 0"]);
    assert_eq!(dut.free_and_reserved(), (0, 0));
    dut.run_out();
}

#[test]
fn heads_in_the_model_hold_kv_for_their_drafts() {
    for (decoding_type, free) in [(DecodingType::Eagle3, 1), (DecodingType::DraftTarget, 2)] {
        let mut dut = Dut::accepting(accepted(7), |c| {
            c.kv_cache_config.max_tokens = Some(24);
            c.speculative_config = Some(drafts(decoding_type, 7));
        });
        dut.arrive(0, 7, 10);
        // 7 + 6 tokens are 2 blocks (S3).
        dut.expect(&["P 0[0..7]"]);
        assert_eq!(dut.free_and_reserved(), (free, free.into()));
        // 1 + 8 + 8 tokens; past the end nobody holds blocks (S4).
        dut.expect(&["D 0", "D 0", ""]);
        dut.run_out();
    }
}

#[test]
fn rounds_are_guaranteed_to_go_on() {
    // As without drafts: 8 + 9 tokens are 3 blocks of 4; there is one for 3 + 5 tokens, none for 3 + 6 (K4).
    for (tokens, second) in [(5, "P 0[0..8] 1[0..3]"), (6, "P 0[0..8]")] {
        for accepts in [0, 3, 7] {
            for overlaps in [false, true] {
                let mut dut = Dut::accepting(accepted(accepts), |c| {
                    c.disable_overlap_scheduler = !overlaps;
                    c.kv_cache_config.max_tokens = Some(32);
                    c.speculative_config = Some(drafts(DecodingType::Eagle, 7));
                });
                dut.arrive(0, 8, 9);
                dut.arrive(1, 3, tokens);
                dut.expect(&[second]);
                dut.run_out();
                assert_eq!(dut.outbox.finished.len(), 2);
                assert!(dut.outbox.finished.iter().all(|record| record.preemptions == 0));
            }
        }
    }
}

#[test]
fn who_finds_no_blocks_for_its_drafts_takes_those_of_the_last() {
    let mut dut = Dut::accepting(accepted(7), |c| {
        c.kv_cache_config.max_tokens = Some(32);
        c.scheduler_config = capacity(CapacitySchedulerPolicy::MaxUtilization);
        c.speculative_config = Some(drafts(DecodingType::DraftTarget, 7));
    });
    dut.arrive(0, 12, 8);
    dut.arrive(1, 12, 8);
    // Two blocks each; 12 + 8 tokens are 3 (S4). The round ends 0 with 1 + 7 tokens, and 1 comes back with one.
    dut.expect(&["P 0[0..12] 1[0..12]", "D 0 | x 1", "P 1*[0..13]", "D 1", ""]);
    dut.run_out();
}

#[test]
fn a_burst_in_flight_survives_a_pause() {
    let mut dut = Dut::accepting(accepted(3), |c| {
        c.disable_overlap_scheduler = false;
        c.kv_cache_config.max_tokens = Some(32);
        c.scheduler_config = capacity(CapacitySchedulerPolicy::MaxUtilization);
        c.speculative_config = Some(drafts(DecodingType::DraftTarget, 3));
    });
    dut.arrive(0, 12, 12);
    dut.arrive(1, 12, 12);
    // 16 tokens fill 2 blocks each, and 20 are 3: 1 is paused. The pass in flight brings it 4 more tokens (O4): it
    // comes back with 12 + 1 + 4, which are 3 blocks, when 0 has ended with 1 + 4 + 4 + 4, and been in a pass in vain.
    dut.expect(&["P 0[0..12] 1[0..12]", "D 0 1", "D 0 | x 1", "D 0", "D 0", "P 1*[0..17]"]);
    // Its 6 tokens become 10, 12.
    dut.expect(&["D 1", "D 1", "D 1", ""]);
    dut.run_out();
}

#[test]
fn a_static_batch_is_closed_to_rounds_too() {
    let mut dut = Dut::accepting(accepted(1), |c| {
        c.scheduler_config = capacity(CapacitySchedulerPolicy::StaticBatch);
        c.speculative_config = Some(drafts(DecodingType::Eagle, 2));
    });
    dut.arrive(0, 5, 5);
    dut.arrive(1, 5, 2);
    dut.expect(&["P 0[0..5] 1[0..5]"]);
    dut.arrive(2, 5, 2);
    // 1 + 2 + 2 tokens (K8).
    dut.expect(&["D 0 1", "D 0", "P 2[0..5]", "D 2", ""]);
}

#[test]
fn kv_of_rounds_can_be_reused() {
    let mut dut = Dut::accepting(accepted(2), |c| {
        c.kv_cache_config.enable_block_reuse = true;
        c.speculative_config = Some(drafts(DecodingType::Eagle, 3));
    });
    dut.arrive_with(0, &[(1, 20)], 5);
    dut.expect(&["P 0[0..20]", "D 0", "D 0", ""]);
    let output = Piece { segment: Segment::Output(RequestId(0)), tokens: 5 };
    let prompt = Piece { segment: Segment::Named(1), tokens: 20 };
    // 24 tokens of 25 have KV: 3 whole blocks (K5).
    dut.arrive_as(1, Content::Pieces(vec![prompt, output]), 25, 1, 1);
    dut.expect(&["P 1[24..25]"]);
    dut.run_out();
}

#[test]
fn looked_up_drafts_go_without_overlap() {
    for (decoding_type, depth) in [(DecodingType::NGram, 1), (DecodingType::Mtp, 2)] {
        let dut = Dut::accepting(accepted(0), |c| {
            c.disable_overlap_scheduler = false;
            c.speculative_config = Some(drafts(decoding_type, 3));
        });
        assert_eq!(dut.trtllm.depth(), depth);
    }
}
