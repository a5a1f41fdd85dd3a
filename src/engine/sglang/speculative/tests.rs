//! Pass by pass, by hand: no recordings of rounds exist.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use super::super::config::SglangConfig;
use super::super::config::speculative::SpeculativeAlgorithm::{self, Eagle, Ngram};
use super::Sglang;
use crate::base::ids::{EngineId, RequestId};
use crate::base::record::Finish;
use crate::base::time::{SimDuration, SimTime};
use crate::engine::arena::Arrival;
use crate::engine::drafting::{Acceptance, Drafting};
use crate::engine::outbox::Outbox;
use crate::engine::plan::{PassPlan, PassSpan, Row};
use crate::engine::{Advance, Scheduler};
use crate::workload::request::{Content, RecordedDrafts, RequestSpec, Segment};

/// A scheduler under test, with passes of a millisecond.
struct Dut {
    scheduler: Sglang,
    flights: VecDeque<PassPlan>,
    outbox: Outbox,
    passes: u64,
    requests: u32,
}

/// An engine with `numbers` steps, branches and verified tokens and a pool of 100 tokens, synchronous.
fn dut(
    algorithm: SpeculativeAlgorithm,
    numbers: [u32; 3],
    change: impl FnOnce(&mut SglangConfig),
) -> Dut {
    let [steps, branches, tokens] = numbers.map(Some);
    let mut config = SglangConfig {
        max_total_tokens: Some(100),
        chunked_prefill_size: Some(-1),
        disable_overlap_schedule: true,
        schedule_conservativeness: 0.0,
        speculative_algorithm: Some(algorithm),
        speculative_num_steps: steps,
        speculative_eagle_topk: branches,
        speculative_num_draft_tokens: tokens,
        ..SglangConfig::default()
    };
    change(&mut config);
    let config = config.resolve().unwrap();
    let acceptance = Arc::new(Acceptance::default());
    let drafting = config.speculative_algorithm.map(|_| Drafting::new(acceptance, 0, EngineId(0)));
    Dut {
        scheduler: Sglang::new(&config, drafting, SimDuration::ZERO, Advance::OneByOne),
        flights: VecDeque::new(),
        outbox: Outbox::default(),
        passes: 0,
        requests: 0,
    }
}

impl Dut {
    /// A request arrives, of whose drafts so many are accepted, round by round.
    fn arrive(&mut self, prompt: u32, output: u32, max_tokens: u32, accepted: &[u32]) {
        self.arrive_with(prompt, output, max_tokens, accepted, &[]);
    }

    fn arrive_with(
        &mut self,
        prompt_tokens: u32,
        output_tokens: u32,
        max_tokens: u32,
        accepted: &[u32],
        found: &[u32],
    ) {
        let id = RequestId(self.requests);
        self.requests += 1;
        let drafts = RecordedDrafts { accepted: accepted.to_vec(), found: found.to_vec() };
        let spec = RequestSpec {
            id,
            arrival: SimTime::ZERO,
            prompt_tokens,
            output_tokens,
            max_tokens,
            priority: 0,
            class: 0,
            content: Content::Private,
            output: Segment::Output(id),
            line: 0,
            turn: None,
            drafts: Some(Box::new(drafts)),
        };
        self.scheduler.enqueue(Arrival::new(spec, max_tokens, SimTime::ZERO, true));
    }

    /// Plans as many passes as may be in flight, and takes in the oldest: what it was, and the tokens that are
    /// free at its end.
    fn pass(&mut self) -> (String, u32) {
        while self.flights.len() < self.scheduler.depth() {
            let mut plan = PassPlan::default();
            self.scheduler.schedule(SimTime::ZERO, &mut plan, &mut self.outbox);
            if plan.is_empty() {
                break;
            }
            self.flights.push_back(plan);
        }
        let Some(mut plan) = self.flights.pop_front() else { return (String::new(), 0) };
        self.passes += 1;
        let at = |ms: u64| SimTime::from_ns(ms * 1_000_000);
        let span = PassSpan { start: at(self.passes - 1), end: at(self.passes) };
        self.scheduler.complete(&mut plan, span, &mut self.outbox);
        (shown(&plan), self.scheduler.radix_standing().unwrap().available_tokens)
    }

    /// The passes that come next are these, and none comes after the last of them.
    fn passes_to_the_end(&mut self, expected: &[(&str, u32)]) {
        for &(pass, free) in expected {
            assert_eq!(self.pass(), (pass.to_owned(), free));
        }
        assert_eq!(self.pass(), (String::new(), 0));
        let standing = self.scheduler.radix_standing().unwrap();
        assert_eq!(standing.protected_tokens, 0);
        assert!(self.scheduler.bursts.is_empty());
    }
}

/// Each row with its tokens behind those computed, and the output tokens that came out: `0[10..14]>2`. Then who
/// was preempted.
fn shown(plan: &PassPlan) -> String {
    let mut text = String::new();
    for row in &plan.rows {
        let Row { request, computed_before, tokens, emitted_tokens, .. } = row;
        let space = if text.is_empty() { "" } else { " " };
        let end = computed_before + tokens;
        write!(text, "{space}{request}[{computed_before}..{end}]>{emitted_tokens}").unwrap();
    }
    for request in &plan.preempted {
        write!(text, " x{request}").unwrap();
    }
    text
}

/// 10 prompt tokens have memory, then 8 more than are computed: 18 before the first round, 19 before the second. In
/// the end 13 of 14 tokens have KV, in the cache.
#[test]
fn rounds_that_accept_nothing_are_plain_decodes_of_more_tokens() {
    let mut dut = dut(Eagle, [3, 1, 4], |_| ());
    dut.arrive(10, 4, 4, &[0]);
    dut.passes_to_the_end(&[
        ("0[0..10]>1", 90),
        ("0[10..14]>1", 82),
        ("0[11..15]>1", 81),
        ("0[12..16]>1", 87),
    ]);
    let mut plain = self::dut(Eagle, [3, 1, 4], |c| c.speculative_algorithm = None);
    plain.arrive(10, 4, 4, &[0]);
    plain.passes_to_the_end(&[
        ("0[0..10]>1", 90),
        ("0[10..11]>1", 89),
        ("0[11..12]>1", 88),
        ("0[12..13]>1", 87),
    ]);
}

/// 1 + 3 * 4 outputs. A burst that goes beyond the end brings the last token's KV with it (V8): 10 + 12 = 22 tokens
/// stay in the cache with 12 outputs as with 13, 21 with 11.
#[test]
fn full_bursts_divide_the_rounds_and_the_last_is_cut() {
    for (output, last, free) in [(13, 4, 78), (12, 3, 78), (11, 2, 79), (10, 1, 80)] {
        let last = format!("0[18..22]>{last}");
        for max_tokens in [output, output + 5] {
            let mut dut = dut(Eagle, [3, 1, 4], |_| ());
            dut.arrive(10, output, max_tokens, &[3]);
            dut.passes_to_the_end(&[
                ("0[0..10]>1", 90),
                ("0[10..14]>4", 82),
                ("0[14..18]>4", 78),
                (&last, free),
            ]);
            let [record] = &dut.outbox.finished[..] else { panic!("one has finished") };
            assert_eq!(record.output_tokens, output);
            let finish = if output < max_tokens { Finish::Stop } else { Finish::Length };
            assert_eq!(record.finish, finish);
            // A burst is seen at once, and its first token a pass after the burst before.
            let gaps = dut.outbox.token_gaps.iter().map(|&(gap, count)| (gap.as_ns(), count));
            let total: u64 = gaps.clone().map(|(_, count)| count).sum();
            assert_eq!(total + dut.outbox.burst_tokens, u64::from(output) - 1);
            let apart: u64 = gaps.filter(|&(ns, _)| ns == 1_000_000).map(|(_, count)| count).sum();
            assert_eq!(apart, 3);
        }
    }
}

/// Whole pages: 10 + 8 tokens are two of 16, and 26 + 8 are three. 96 tokens are six pages.
#[test]
fn the_reserve_grows_by_pages() {
    let mut dut = dut(Eagle, [3, 1, 4], |c| c.page_size = 16);
    dut.arrive(10, 25, 25, &[3]);
    dut.passes_to_the_end(&[
        ("0[0..10]>1", 80),
        ("0[10..14]>4", 64),
        ("0[14..18]>4", 64),
        ("0[18..22]>4", 64),
        ("0[22..26]>4", 64),
        ("0[26..30]>4", 48),
        // 34 of 35 tokens have KV, two pages of them are kept.
        ("0[30..34]>4", 64),
    ]);
}

/// A context of 16 tokens lets a prompt of 6 have 16 - 1 - 6 - 1 = 8 outputs (A2).
#[test]
fn a_burst_ends_with_the_context() {
    let mut dut = dut(Eagle, [3, 1, 4], |c| c.context_length = Some(16));
    dut.arrive(6, 50, 60, &[3]);
    // Of 8 tokens computed in rounds, 6 + 8 have KV.
    dut.passes_to_the_end(&[("0[0..6]>1", 94), ("0[6..10]>4", 86), ("0[10..14]>3", 86)]);
    assert_eq!(dut.outbox.finished[0].finish, Finish::ModelLength);
}

/// Eight tokens of a tree are verified, of which a path of five can be accepted; twice 5 * 4 tokens are reserved.
#[test]
fn a_tree_accepts_a_path() {
    let mut dut = dut(Eagle, [5, 4, 8], |_| ());
    dut.arrive(10, 13, 13, &[7, 2, 7]);
    dut.passes_to_the_end(&[
        ("0[0..10]>1", 90),
        ("0[10..18]>6", 50),
        ("0[16..24]>3", 44),
        // 10 + 13 tokens, all of them with KV.
        ("0[19..27]>3", 77),
    ]);
}

/// N-grams that match nothing are verified in vain: their round does not count for the record.
#[test]
fn a_search_that_finds_nothing_costs_a_whole_round() {
    let mut dut = dut(Ngram, [1, 1, 12], |_| ());
    dut.arrive_with(10, 20, 20, &[11, 4], &[0, 11, 3]);
    dut.passes_to_the_end(&[
        ("0[0..10]>1", 90),
        // 12 tokens, twice.
        ("0[10..22]>1", 66),
        ("0[11..23]>12", 65),
        // Three found, so four tokens.
        ("0[23..35]>4", 53),
        ("0[27..39]>1", 49),
        // The lists start over: 11 accepted, of which the end leaves none, so all 30 tokens have KV.
        ("0[28..40]>1", 70),
    ]);
}

/// What the call knows is one pass old, what the pass computes is not: the third pass is behind the 4 tokens of the
/// second, with memory for 8 tokens behind the 10 that are known. Reaching 6 is sure with one token from the pass in
/// flight, so nobody decodes in vain.
#[test]
fn a_pass_planned_ahead_is_behind_the_burst_in_flight() {
    let mut dut = dut(Eagle, [3, 1, 4], |c| c.disable_overlap_schedule = false);
    dut.arrive(10, 6, 6, &[3]);
    dut.passes_to_the_end(&[
        // The first round is planned already.
        ("0[0..10]>1", 82),
        ("0[10..14]>4", 82),
        ("0[14..18]>1", 84),
    ]);
}

/// With 9 outputs, or with an end token, the call before the end cannot know it, and plans a round more. Its memory
/// is free when the end is taken in: 10 + 9 - 1 tokens stay.
#[test]
fn an_end_within_a_burst_is_found_one_pass_late() {
    for max_tokens in [9, 20] {
        let mut dut = dut(Eagle, [3, 1, 4], |c| c.disable_overlap_schedule = false);
        dut.arrive(10, 9, max_tokens, &[3]);
        dut.passes_to_the_end(&[
            ("0[0..10]>1", 82),
            ("0[10..14]>4", 82),
            // The round more reserves 14 + 8 tokens.
            ("0[14..18]>4", 82),
            ("0[18..22]>0", 82),
        ]);
        assert_eq!(dut.outbox.finished[0].output_tokens, 9);
    }
}

/// A pool of 40. Two requests with 10 + 8 tokens each leave 4, and both need 4 more after a full burst. The later one
/// loses its 8; 20 tokens are to be free for the one that stays, so its prompt is evicted too: 4 + 8 + 10 are free, of
/// which the round takes 4. The ratio is 1 then, and 15 + 8 + 1 tokens for the other are more than 18 less 4.
/// When the first has ended, with 22 tokens in the cache, it computes its 10 + 5 tokens again, in one pass that brings
/// the sixth output; 12 outputs are two rounds more.
#[test]
fn retraction_loses_no_token() {
    let mut dut = dut(Eagle, [3, 1, 4], |c| c.max_total_tokens = Some(40));
    dut.arrive(10, 12, 13, &[3]);
    assert_eq!(dut.pass(), ("0[0..10]>1".to_owned(), 30));
    dut.arrive(10, 12, 13, &[3]);
    dut.passes_to_the_end(&[
        ("1[0..10]>1", 20),
        ("0[10..14]>4 1[10..14]>4", 4),
        ("0[14..18]>4 x1", 18),
        ("0[18..22]>3", 18),
        ("1[0..15]>1", 3),
        // For 8 tokens the first request's 12 outputs are evicted; its prompt stays.
        ("1[15..19]>4", 7),
        // 4 more for the round; then 22 of 27 tokens are kept.
        ("1[19..23]>2", 8),
    ]);
    let outputs: Vec<_> = dut.outbox.finished.iter().map(|r| (r.id.0, r.output_tokens)).collect();
    assert_eq!(outputs, [(0, 12), (1, 12)]);
    assert_eq!(dut.outbox.finished[1].preemptions, 1);
}

/// A pool of 20 lets 4 prompt tokens have 20 - 4 - 1 - 1 outputs (A2), but no round with 13 tokens computed.
#[test]
fn who_cannot_reserve_alone_is_turned_away() {
    let mut dut = dut(Eagle, [3, 1, 4], |c| c.max_total_tokens = Some(20));
    dut.arrive(4, 14, 20, &[2]);
    for (pass, free) in [("0[0..4]>1", 16), ("0[4..8]>3", 8), ("0[7..11]>3", 5), ("0[10..14]>3", 2)]
    {
        assert_eq!(dut.pass(), (pass.to_owned(), free));
    }
    assert_eq!(dut.pass().0, "");
    assert_eq!((dut.outbox.finished.len(), dut.outbox.turned_away.len()), (0, 1));
}

/// In a pass with prefill a running request computes one token, and reserves as for a round (V9). It takes one token
/// of the chunk's 16; those who were prefilled are in front afterwards.
#[test]
fn beside_prefill_there_are_no_drafts() {
    let mut dut = dut(Eagle, [3, 1, 4], |c| {
        (c.chunked_prefill_size, c.enable_mixed_chunk) = (Some(16), true);
    });
    dut.arrive(10, 7, 7, &[3]);
    assert_eq!(dut.pass(), ("0[0..10]>1".to_owned(), 90));
    dut.arrive(20, 5, 5, &[3]);
    dut.passes_to_the_end(&[
        ("1[0..15]>0 0[10..11]>1", 67),
        ("1[15..20]>1 0[11..12]>1", 61),
        // Both end: 20 + 4 and 10 + 6 tokens have KV.
        ("1[20..24]>4 0[12..16]>4", 60),
    ]);
}
