//! Small schedules, pass by pass, derived by hand from the rules of docs/engines/trtllm.md.
//!
//! Blocks hold 8 tokens. Prompts come first in a pass.

mod speculation;

use std::collections::VecDeque;
use std::sync::Arc;

use super::config::{CapacitySchedulerPolicy, ContextChunkingPolicy, SchedulerConfig};
use super::*;
use crate::base::ids::{EngineId, RequestId};
use crate::engine::drafting::Acceptance;
use crate::engine::notation::Notation;
use crate::workload::request::{Content, Piece};

/// A scheduler whose passes take a millisecond.
struct Dut {
    trtllm: Trtllm,
    in_flight: VecDeque<PassPlan>,
    now: SimTime,
    outbox: Outbox,
}

impl Dut {
    /// 32 seats, passes of 64 tokens, 1,000 blocks of 8; one pass at a time, no reuse.
    fn new(change: impl FnOnce(&mut TrtllmConfig)) -> Self {
        Self::accepting(Acceptance::default(), change)
    }

    /// The same, with so many drafts accepted and found.
    fn accepting(acceptance: Acceptance, change: impl FnOnce(&mut TrtllmConfig)) -> Self {
        let mut config = TrtllmConfig {
            max_batch_size: 32,
            max_num_tokens: 64,
            disable_overlap_scheduler: true,
            ..TrtllmConfig::default()
        };
        config.kv_cache_config.tokens_per_block = 8;
        config.kv_cache_config.enable_block_reuse = false;
        config.kv_cache_config.max_tokens = Some(8000);
        change(&mut config);
        let config = config.resolve().unwrap();
        let drafting =
            config.speculative_config.map(|_| Drafting::new(Arc::new(acceptance), 0, EngineId(0)));
        Self {
            trtllm: Trtllm::new(&config, drafting, SimDuration::ZERO, Advance::OneByOne),
            in_flight: VecDeque::new(),
            now: SimTime::ZERO,
            outbox: Outbox::default(),
        }
    }

    /// A request arrives that generates all of its `max_tokens` tokens.
    fn arrive(&mut self, id: u32, prompt_tokens: u32, max_tokens: u32) {
        self.arrive_as(id, Content::Private, prompt_tokens, max_tokens, max_tokens);
    }

    /// A request arrives whose prompt consists of named pieces.
    fn arrive_with(&mut self, id: u32, pieces: &[(u64, u32)], max_tokens: u32) {
        let piece = |&(name, tokens)| Piece { segment: Segment::Named(name), tokens };
        let prompt_tokens = pieces.iter().map(|piece| piece.1).sum();
        let content = Content::Pieces(pieces.iter().map(piece).collect());
        self.arrive_as(id, content, prompt_tokens, max_tokens, max_tokens);
    }

    fn arrive_as(
        &mut self,
        id: u32,
        content: Content,
        prompt_tokens: u32,
        output_tokens: u32,
        max_tokens: u32,
    ) {
        let id = RequestId(id);
        let spec = RequestSpec {
            id,
            arrival: self.now,
            prompt_tokens,
            output_tokens,
            max_tokens,
            priority: 0,
            class: 0,
            content,
            output: Segment::Output(id),
            line: 0,
            turn: None,
            drafts: None,
        };
        self.trtllm.enqueue(Arrival::new(spec, max_tokens, self.now, true));
    }

    /// Plans the next pass, after completing what has to be completed before.
    fn pass(&mut self) -> String {
        if self.in_flight.len() == self.trtllm.depth() {
            self.complete();
        }
        let mut plan = PassPlan::default();
        self.trtllm.schedule(self.now, &mut plan, &mut self.outbox);
        let text = Notation { rows: &plan.rows, preempted: &plan.preempted }.to_string();
        if plan.is_empty() {
            if !self.in_flight.is_empty() {
                self.complete();
            }
        } else {
            self.in_flight.push_back(plan);
        }
        text
    }

    fn complete(&mut self) {
        let mut plan = self.in_flight.pop_front().unwrap();
        let start = self.now;
        self.now = SimTime::from_ns(start.as_ns() + 1_000_000);
        let span = PassSpan { start, end: self.now };
        self.trtllm.complete(&mut plan, span, &mut self.outbox);
    }

    #[track_caller]
    fn expect(&mut self, passes: &[&str]) {
        for (number, &expected) in passes.iter().enumerate() {
            assert_eq!(self.pass(), expected, "pass {number}");
        }
    }

    /// Runs until everybody has ended.
    fn run_out(&mut self) {
        // What ends with the last pass may let somebody in.
        loop {
            let is_idle = self.in_flight.is_empty();
            if self.pass().is_empty() && is_idle {
                break;
            }
        }
        let levels = self.trtllm.levels();
        assert_eq!((levels.running, levels.waiting), (0, 0));
        assert_eq!(levels.free_blocks, levels.usable_blocks);
        assert_eq!(self.trtllm.reserved_blocks, 0);
    }
}

const fn capacity(policy: CapacitySchedulerPolicy) -> SchedulerConfig {
    SchedulerConfig {
        capacity_scheduler_policy: policy,
        context_chunking_policy: ContextChunkingPolicy::FirstComeFirstServed,
    }
}

#[test]
fn seats_and_tokens_are_those_of_the_documentation() {
    // The example of "Paged Attention, IFB, and Request Scheduling": 4 seats, 12 tokens; two prompts of 5 leave 2
    // tokens, the next two come with the first decodes, and the fifth when the first request has ended.
    let mut dut = Dut::new(|c| (c.max_batch_size, c.max_num_tokens) = (4, 12));
    dut.arrive(0, 5, 2);
    (1..5).for_each(|id| dut.arrive(id, 5, 9));
    dut.expect(&["P 0[0..5] 1[0..5]", "P 2[0..5] 3[0..5] | D 0 1", "P 4[0..5] | D 1 2 3"]);
    dut.run_out();
}

#[test]
fn prompts_in_a_pass_leave_no_gap_for_smaller_ones_behind() {
    // B2: 5 + 60 > 64 ends the pass, although 4 more would fit.
    let mut dut = Dut::new(|_| {});
    [5, 60, 4].iter().zip(0..).for_each(|(&tokens, id)| dut.arrive(id, tokens, 1));
    dut.expect(&["P 0[0..5]", "P 1[0..60] 2[0..4]", ""]);
}

#[test]
fn the_pass_in_flight_is_foreseen_but_for_stop_tokens() {
    let overlap = |c: &mut TrtllmConfig| c.disable_overlap_scheduler = false;
    let mut dut = Dut::new(overlap);
    dut.arrive(0, 5, 3);
    // Three tokens by three passes: the last two are planned with the token before in flight (O2).
    dut.expect(&["P 0[0..5]", "D 0", "D 0", ""]);
    dut.run_out();
    // It stops with its second token, which is in flight when the third pass is planned (O3).
    let mut dut = Dut::new(overlap);
    dut.arrive_as(0, Content::Private, 5, 2, 9);
    dut.expect(&["P 0[0..5]", "D 0", "D 0", ""]);
    assert_eq!(dut.outbox.finished[0].output_tokens, 2);
    dut.run_out();
    // A single token needs no decode at all.
    let mut dut = Dut::new(overlap);
    dut.arrive(0, 5, 1);
    dut.expect(&["P 0[0..5]", ""]);
    dut.run_out();
}

#[test]
fn nobody_starts_without_blocks_to_its_end() {
    // 8 + 9 tokens are 3 blocks of 8, of 4: there is one for 3 + 5 tokens, none for 3 + 6 (K4).
    for (tokens, second) in [(5, "P 0[0..8] 1[0..3]"), (6, "P 0[0..8]")] {
        let mut dut = Dut::new(|c| c.kv_cache_config.max_tokens = Some(32));
        dut.arrive(0, 8, 9);
        dut.arrive(1, 3, tokens);
        dut.expect(&[second]);
        dut.run_out();
        assert!(dut.outbox.finished.iter().all(|record| record.preemptions == 0));
    }
}

#[test]
fn a_reservation_ends_with_the_last_pass() {
    // 8 + 9 tokens reserve 3 blocks, of which the 9th output token, which has no KV, never needs the third. When the
    // last pass is planned the reservation ends: of 3 blocks it holds 2, and one is free for 1 + 1 tokens (K4).
    let mut dut = Dut::new(|c| {
        c.disable_overlap_scheduler = false;
        c.kv_cache_config.max_tokens = Some(24);
    });
    dut.arrive(0, 8, 9);
    dut.arrive(1, 1, 1);
    let decodes = ["D 0"; 8];
    dut.expect(&["P 0[0..8]"]);
    dut.expect(&decodes);
    dut.expect(&["P 1[0..1]"]);
    dut.run_out();
}

#[test]
fn who_finds_no_block_takes_that_of_the_last() {
    // Two prompts fill all 4 blocks. The next token of 0 finds none, so 1 is paused (K6); it comes back when 17
    // tokens, which are 3 blocks, find room.
    let mut dut = Dut::new(|c| {
        c.kv_cache_config.max_tokens = Some(32);
        c.scheduler_config = capacity(CapacitySchedulerPolicy::MaxUtilization);
    });
    dut.arrive(0, 16, 8);
    dut.arrive(1, 16, 8);
    dut.expect(&["P 0[0..16] 1[0..16]", "D 0 | x 1", "D 0", "D 0", "D 0", "D 0", "D 0", "D 0"]);
    dut.expect(&["P 1*[0..17]", "D 1"]);
    dut.run_out();
    let preemptions = |id: usize| dut.outbox.finished[id].preemptions;
    assert_eq!((preemptions(0), preemptions(1)), (0, 1));
}

#[test]
fn who_was_paused_finds_its_blocks_again() {
    let mut dut = Dut::new(|c| {
        c.kv_cache_config.max_tokens = Some(32);
        c.kv_cache_config.enable_block_reuse = true;
        c.scheduler_config = capacity(CapacitySchedulerPolicy::MaxUtilization);
    });
    dut.arrive(0, 16, 8);
    dut.arrive(1, 16, 8);
    dut.expect(&["P 0[0..16] 1[0..16]", "D 0 | x 1"]);
    dut.expect(&["D 0"; 6]);
    // 0 has taken the last block of 1, which is free first; the first one is still there (K5).
    dut.expect(&["P 1*[8..17]"]);
    dut.run_out();
}

#[test]
fn a_token_in_flight_survives_a_pause() {
    let mut dut = Dut::new(|c| {
        c.disable_overlap_scheduler = false;
        c.kv_cache_config.max_tokens = Some(32);
        c.scheduler_config = capacity(CapacitySchedulerPolicy::MaxUtilization);
    });
    dut.arrive(0, 15, 3);
    dut.arrive(1, 15, 6);
    // 16 tokens fill 2 blocks each; the 17th of 0 takes one of 1. The pass in flight brings the second token of 1,
    // so it comes back with 15 + 2 tokens (O4).
    dut.expect(&["P 0[0..15] 1[0..15]", "D 0 1", "D 0 | x 1", "", "P 1*[0..17]", "D 1"]);
    dut.run_out();
    assert_eq!(dut.outbox.finished.iter().map(|r| r.output_tokens).sum::<u32>(), 9);
}

#[test]
fn an_earlier_request_comes_back_before_later_ones_go_on() {
    // 5 blocks: 1 is paused for 0. 2 has started meanwhile, with one block; when 1 wants to come back it is 2 that
    // has to go, because it stands behind it (K6).
    let mut dut = Dut::new(|c| {
        c.kv_cache_config.max_tokens = Some(40);
        c.scheduler_config = capacity(CapacitySchedulerPolicy::MaxUtilization);
    });
    dut.arrive(0, 16, 3);
    dut.arrive(1, 23, 9);
    dut.expect(&["P 0[0..16] 1[0..23]", "D 0 | x 1"]);
    dut.arrive(2, 3, 9);
    // 1 needs 3 of 2 free blocks, and stands before 2.
    dut.expect(&["D 0", "P 1*[0..24] 2[0..3]", "D 1 2"]);
    dut.run_out();
}

#[test]
fn a_static_batch_is_closed() {
    let mut dut = Dut::new(|c| c.scheduler_config = capacity(CapacitySchedulerPolicy::StaticBatch));
    dut.arrive(0, 5, 3);
    dut.arrive(1, 5, 2);
    dut.expect(&["P 0[0..5] 1[0..5]"]);
    dut.arrive(2, 5, 2);
    // The two have to end first (K8).
    dut.expect(&["D 0 1", "D 0", "P 2[0..5]", "D 2", ""]);
}

#[test]
fn chunks_are_served_first_come_first_served() {
    let mut dut = Dut::new(|c| (c.enable_chunked_prefill, c.max_num_tokens) = (true, 32));
    dut.arrive(0, 100, 9);
    dut.arrive(1, 40, 9);
    // The rest of 0 leaves 28: three units of 8. Whose prompt ends comes last (C4). Then 40 - 24 = 16 are left.
    dut.expect(&["P 0[0..32]", "P 0[32..64]", "P 0[64..96]", "P 1[0..24] 0[96..100]"]);
    dut.expect(&["P 1[24..40] | D 0", "D 0 1"]);
    dut.run_out();
}

#[test]
fn chunks_make_equal_progress() {
    let mut dut = Dut::new(|c| {
        (c.enable_chunked_prefill, c.max_num_tokens) = (true, 32);
        c.scheduler_config.context_chunking_policy = ContextChunkingPolicy::EqualProgress;
    });
    dut.arrive(0, 100, 9);
    dut.arrive(1, 20, 9);
    // 16 each; then the last 4 of 1 and 24 of 0, as 4 of the 32 are no unit.
    dut.expect(&["P 0[0..16] 1[0..16]", "P 0[16..40] 1[16..20]", "P 0[40..64] | D 1"]);
    dut.run_out();
}

#[test]
fn a_chunk_moves_on_by_what_is_in_the_cache() {
    let mut dut = Dut::new(|c| {
        (c.enable_chunked_prefill, c.max_num_tokens) = (true, 32);
        c.kv_cache_config.enable_block_reuse = true;
    });
    dut.arrive_with(0, &[(1, 32)], 1);
    dut.expect(&["P 0[0..32]"]);
    dut.arrive_with(1, &[(1, 32), (2, 68)], 1);
    // The chunk of 32 was cut before the cache was looked at, and then moves on by the 4 blocks found (C5).
    dut.expect(&["P 1[32..64]", "P 1[64..96]", "P 1[96..100]"]);
    dut.arrive_with(2, &[(1, 32), (2, 68), (3, 7)], 1);
    // 12 blocks, which are 96 tokens: the chunk is longer than the 11 that are left.
    dut.expect(&["P 2[96..107]"]);
    dut.run_out();
}

#[test]
fn who_lacks_what_another_computes_waits_for_it() {
    let config = |overlaps: bool| {
        move |c: &mut TrtllmConfig| {
            c.disable_overlap_scheduler = !overlaps;
            c.kv_cache_config.enable_block_reuse = true;
        }
    };
    let mut dut = Dut::new(config(false));
    dut.arrive_with(0, &[(1, 20)], 5);
    dut.arrive_with(1, &[(1, 20)], 5);
    // Two whole blocks of 8 (K7).
    dut.expect(&["P 0[0..20]", "P 1[16..20] | D 0"]);
    dut.run_out();
    // With a pass in flight the blocks are not yet there when the next one is planned, and 0 is in its context
    // phase no more.
    let mut dut = Dut::new(config(true));
    dut.arrive_with(0, &[(1, 20)], 5);
    dut.arrive_with(1, &[(1, 20)], 5);
    dut.expect(&["P 0[0..20]", "P 1[0..20] | D 0"]);
    dut.run_out();
}

#[test]
fn a_prompt_waits_for_company_as_long_as_it_may() {
    let mut dut = Dut::new(|c| {
        (c.batch_wait_timeout_iters, c.batch_wait_max_tokens_ratio) = (3, 0.5);
    });
    dut.arrive(0, 5, 30);
    dut.expect(&["P 0[0..5]"]);
    dut.arrive(1, 5, 30);
    // Three passes, then the prompt (W1).
    dut.expect(&["D 0", "D 0", "D 0", "P 1[0..5] | D 0", "D 0 1"]);
    // 30 prompt tokens and two that decode are half of 64.
    dut.arrive(2, 30, 9);
    dut.expect(&["P 2[0..30] | D 0 1"]);
    dut.arrive(3, 28, 9);
    dut.expect(&["D 0 1 2"]);
    dut.run_out();
}

#[test]
fn a_balanced_device_waits_for_prompts_to_batch() {
    let mut dut = Dut::new(|c| {
        c.enable_attention_dp = true;
        c.attention_dp_config.enable_balance = true;
        c.attention_dp_config.batching_wait_iters = 2;
    });
    dut.arrive(0, 5, 30);
    dut.expect(&["P 0[0..5]"]);
    dut.arrive(1, 5, 30);
    dut.expect(&["D 0", "D 0", "P 1[0..5] | D 0"]);
    dut.run_out();
}

#[test]
fn a_paused_request_that_is_too_long_for_a_pass_comes_in_chunks() {
    // 16 tokens a pass. 1 is paused with 16 + 1 tokens, more than a pass has, and chunks are off (B4).
    let mut dut = Dut::new(|c| {
        c.max_num_tokens = 16;
        c.kv_cache_config.max_tokens = Some(32);
        c.scheduler_config = capacity(CapacitySchedulerPolicy::MaxUtilization);
    });
    dut.arrive(0, 8, 10);
    dut.arrive(1, 8, 17);
    // KV of 16 tokens each in passes 0 to 8; then 0 has 9 outputs and needs a third block.
    dut.expect(&["P 0[0..8] 1[0..8]"]);
    dut.expect(&["D 0 1"; 8]);
    dut.expect(&["D 0 | x 1", "P 1*[0..16]", "P 1[16..17]", "D 1"]);
    dut.run_out();
}
