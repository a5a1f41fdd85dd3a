//! What a workload is like: rate, burstiness, lengths, and how much of its prompts is shared.
//!
//! Memory grows with the number of different lengths, and of different blocks of prompts that share
//! some, as sharing needs; as long as no prompt says what it consists of, with 8 bytes a request.

mod intervals;
mod stack;
mod timeline;

mod sessions;

use std::collections::BTreeMap;

use serde::Serialize;

use self::sessions::TieCollector;
pub(crate) use self::sessions::{Pauses, SessionStats};
use super::prompts::PromptTree;
use super::request::{Content, Piece, RequestSpec, Segment};
use crate::base::ids::RequestId;
use crate::base::time::SimTime;
use intervals::Intervals;
use stack::StackDistances;
pub(crate) use timeline::Timeline;
use timeline::TimelineCollector;

/// The statistics of a workload. What cannot be known of so few requests is absent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct WorkloadStats {
    pub(crate) requests: u64,
    /// First to last arrival.
    pub(crate) span_s: f64,
    /// Intervals between arrivals divided by the span.
    pub(crate) requests_per_s: Option<f64>,
    /// Standard deviation of the intervals divided by their mean; 1 for Poisson arrivals.
    pub(crate) interarrival_cv: Option<f64>,
    /// Correlation of each interval with the next; 0 for independent ones.
    pub(crate) interarrival_lag1: Option<f64>,
    pub(crate) timeline: Timeline,
    pub(crate) prompt_tokens: Option<Lengths>,
    pub(crate) output_tokens: Option<Lengths>,
    pub(crate) prefix: PrefixReuse,
    /// Absent where no request says that it is tied to another.
    pub(crate) sessions: Option<SessionStats>,
}

/// A distribution of lengths. Percentiles interpolate between the two nearest ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Lengths {
    pub(crate) total: u64,
    pub(crate) mean: f64,
    pub(crate) min: u32,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) max: u32,
    /// How many there are of each magnitude, without gaps.
    pub(crate) histogram: Vec<LengthBin>,
}

/// How many lengths are at least `from` and below `to`: none, or from a power of two to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LengthBin {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) requests: u64,
}

/// How much of the prompts has been there before.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PrefixReuse {
    /// Prompt tokens at the start of a prompt that an earlier one starts with.
    pub(crate) shared_tokens: u64,
    /// Of all prompt tokens: what a cache that forgets nothing would find, token by token. Absent where
    /// no prompt says what it consists of.
    pub(crate) ideal_hit_ratio: Option<f64>,
    /// Different prompt tokens: what such a cache would hold.
    pub(crate) working_set_tokens: u64,
    /// Tokens of a block of the caches below.
    pub(crate) block_tokens: u32,
    /// Caches that forget the block unused for longest, each request served at once.
    pub(crate) caches: Vec<CacheHits>,
    /// The same for powers of two in blocks, up to the first that holds all blocks.
    pub(crate) curve: Vec<CacheHits>,
}

/// What a cache of some size would find.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct CacheHits {
    pub(crate) cache_tokens: u64,
    /// Tokens in whole blocks that are found, of all prompt tokens.
    pub(crate) hit_ratio: Option<f64>,
}

/// Gathers the statistics, request by request, in order of arrival.
pub(crate) struct StatsCollector {
    first: Option<SimTime>,
    last: Option<SimTime>,
    requests: u64,
    intervals: Intervals,
    timeline: TimelineCollector,
    prompts: BTreeMap<u32, u64>,
    outputs: BTreeMap<u32, u64>,
    tree: PromptTree,
    /// Prompts that share nothing, as long as no other prompt has come that could name them.
    unnamed: Vec<(RequestId, u32)>,
    /// Whether any prompt says what it consists of.
    has_content: bool,
    prompt_tokens: u64,
    shared_tokens: u64,
    cache_tokens: Vec<u64>,
    caches: StackDistances,
    ties: TieCollector,
}

impl StatsCollector {
    /// Statistics with caches of these sizes in tokens, in blocks of `block_tokens`, at least 1.
    pub(crate) fn new(block_tokens: u32, cache_tokens: &[u64]) -> Self {
        Self {
            first: None,
            last: None,
            requests: 0,
            intervals: Intervals::default(),
            timeline: TimelineCollector::new(),
            prompts: BTreeMap::new(),
            outputs: BTreeMap::new(),
            tree: PromptTree::default(),
            unnamed: Vec::new(),
            has_content: false,
            prompt_tokens: 0,
            shared_tokens: 0,
            cache_tokens: cache_tokens.to_vec(),
            caches: StackDistances::new(block_tokens, cache_tokens),
            ties: TieCollector::default(),
        }
    }

    /// Takes the next request in.
    pub(crate) fn add(&mut self, request: &RequestSpec) {
        self.intervals.add(request.arrival);
        self.first.get_or_insert(request.arrival);
        self.last = Some(request.arrival);
        self.requests += 1;
        *self.prompts.entry(request.prompt_tokens).or_default() += 1;
        *self.outputs.entry(request.output_tokens).or_default() += 1;
        let shared_tokens = match &request.content {
            Content::Pieces(pieces) => {
                self.has_content = true;
                for (id, tokens) in std::mem::take(&mut self.unnamed) {
                    self.serve_private(id, tokens);
                }
                self.serve(pieces)
            }
            Content::Private if self.has_content => {
                self.serve_private(request.id, request.prompt_tokens)
            }
            Content::Private => {
                self.unnamed.push((request.id, request.prompt_tokens));
                0
            }
        };
        let prompt_tokens = u64::from(request.prompt_tokens);
        self.prompt_tokens += prompt_tokens;
        self.shared_tokens += shared_tokens;
        self.ties.add(request);
        self.timeline.add(request.arrival, prompt_tokens.saturating_sub(shared_tokens));
    }

    /// Looks a prompt up and keeps it; its first tokens that were there.
    fn serve(&mut self, pieces: &[Piece]) -> u64 {
        let (path, shared_tokens) = self.tree.walk(pieces);
        self.caches.serve(&path);
        shared_tokens
    }

    /// The same for one that shares nothing, which is one piece of its own.
    fn serve_private(&mut self, id: RequestId, tokens: u32) -> u64 {
        self.serve(&[Piece { segment: Segment::Prompt(id), tokens }])
    }

    /// The statistics of all requests so far.
    pub(crate) fn finish(&self) -> WorkloadStats {
        let gaps = self.requests.saturating_sub(1) as f64;
        let span_s = match (self.first, self.last) {
            (Some(first), Some(last)) => last.since(first).as_s(),
            _ => 0.0,
        };
        let is_known = self.has_content && self.prompt_tokens > 0;
        let ratio = |hits: u64| is_known.then(|| hits as f64 / self.prompt_tokens as f64);
        let block_tokens = u64::from(self.caches.block_tokens());
        let found = |cache_tokens: u64, blocks: u64| CacheHits {
            cache_tokens,
            hit_ratio: ratio(blocks * block_tokens),
        };
        let caches = self.cache_tokens.iter().map(|&size| found(size, self.caches.hits(size)));
        let curve = self.caches.curve().map(|(size, blocks)| found(size * block_tokens, blocks));
        WorkloadStats {
            requests: self.requests,
            span_s,
            requests_per_s: (span_s > 0.0).then(|| gaps / span_s),
            interarrival_cv: self.intervals.cv(),
            interarrival_lag1: self.intervals.lag1(),
            timeline: self.timeline.finish(),
            prompt_tokens: lengths(&self.prompts, self.requests),
            output_tokens: lengths(&self.outputs, self.requests),
            prefix: PrefixReuse {
                shared_tokens: self.shared_tokens,
                ideal_hit_ratio: ratio(self.shared_tokens),
                working_set_tokens: self.prompt_tokens - self.shared_tokens,
                block_tokens: self.caches.block_tokens(),
                caches: caches.collect(),
                curve: curve.collect(),
            },
            sessions: self.ties.finish(),
        }
    }
}

fn lengths(counts: &BTreeMap<u32, u64>, n: u64) -> Option<Lengths> {
    let (&min, &max) = (counts.keys().next()?, counts.keys().next_back()?);
    let total: u64 = counts.iter().map(|(&length, &count)| u64::from(length) * count).sum();
    let percentile = |share: f64| percentile(counts, n, share, f64::from);
    Some(Lengths {
        total,
        mean: total as f64 / n as f64,
        min,
        p50: percentile(0.5),
        p90: percentile(0.9),
        p95: percentile(0.95),
        p99: percentile(0.99),
        max,
        histogram: histogram(counts),
    })
}

/// The value below which a share of `n` values lies, of which `counts` says how often each occurs.
fn percentile<T: Copy>(
    counts: &BTreeMap<T, u64>,
    n: u64,
    share: f64,
    number: impl Fn(T) -> f64,
) -> f64 {
    let at_rank = |rank: u64| {
        let mut below = 0;
        let found = counts.iter().find(|&(_, &count)| {
            below += count;
            below > rank
        });
        found.or(counts.iter().next_back()).map_or(0.0, |(&value, _)| number(value))
    };
    let rank = share * (n - 1) as f64;
    let (low, high) = (at_rank(rank.floor() as u64), at_rank(rank.ceil() as u64));
    low + (high - low) * rank.fract()
}

/// How many of each magnitude, from that of the shortest to that of the longest.
fn histogram(counts: &BTreeMap<u32, u64>) -> Vec<LengthBin> {
    // Lengths of 2^(n-1) and more have n digits.
    let digits = |length: u32| (u32::BITS - length.leading_zeros()) as usize;
    let (Some((&min, _)), Some((&max, _))) = (counts.first_key_value(), counts.last_key_value())
    else {
        return Vec::new();
    };
    let bin = |digits: usize| {
        let to = 1_u64 << digits;
        LengthBin { from: if digits == 0 { 0 } else { to / 2 }, to, requests: 0 }
    };
    let mut bins: Vec<_> = (digits(min)..=digits(max)).map(bin).collect();
    for (&length, &count) in counts {
        bins[digits(length) - digits(min)].requests += count;
    }
    bins
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(ms: u64, output: u32, pieces: &[(u64, u32)]) -> RequestSpec {
        let named = |&(name, tokens)| Piece { segment: Segment::Named(name), tokens };
        RequestSpec {
            id: RequestId(0),
            arrival: SimTime::from_ns(ms * 1_000_000),
            prompt_tokens: pieces.iter().map(|&(_, tokens)| tokens).sum(),
            output_tokens: output,
            max_tokens: output,
            priority: 0,
            content: Content::Pieces(pieces.iter().map(named).collect()),
            output: Segment::Output(RequestId(0)),
            line: 0,
            turn: None,
            drafts: None,
            class: 0,
        }
    }

    fn stats(block: u32, sizes: &[u64], requests: &[RequestSpec]) -> WorkloadStats {
        let mut collector = StatsCollector::new(block, sizes);
        requests.iter().for_each(|request| collector.add(request));
        collector.finish()
    }

    #[test]
    fn rates_and_lengths_are_those_of_the_formulas() {
        let at = |ms, output| request(ms, output, &[(1, 4)]);
        // Intervals 1, 3, 2 s: mean 2, variance (1 + 1 + 0) / 3.
        let stats = stats(16, &[], &[at(0, 1), at(1000, 2), at(4000, 3), at(6000, 10)]);
        assert_eq!((stats.requests, stats.span_s), (4, 6.0));
        assert_eq!(stats.requests_per_s, Some(0.5));
        let cv = stats.interarrival_cv.unwrap();
        assert!((cv - (2.0_f64 / 3.0).sqrt() / 2.0).abs() < 1e-12);
        let output = stats.output_tokens.unwrap();
        assert_eq!((output.total, output.min, output.max), (16, 1, 10));
        // Rank 1.5 of 0..3 lies between 2 and 3; rank 2.7 between 3 and 10.
        assert!((output.p50 - 2.5).abs() < 1e-12 && (output.p90 - 7.9).abs() < 1e-12);
    }

    #[test]
    fn a_prefix_is_shared_as_far_as_pieces_agree() {
        let stats = stats(
            16,
            &[],
            &[
                request(0, 1, &[(1, 10), (2, 10)]),
                // Ten of 1; 2 behind it as far as 4.
                request(0, 1, &[(1, 10), (2, 4), (3, 5)]),
                // 2 at the start is something else.
                request(0, 1, &[(2, 10)]),
                // Ten of the twelve; what follows is elsewhere.
                request(0, 1, &[(1, 12), (2, 10)]),
            ],
        );
        assert_eq!(stats.prefix.shared_tokens, 14 + 10);
        // 20 + 19 + 10 + 22 = 71 tokens.
        assert_eq!(stats.prefix.ideal_hit_ratio, Some(24.0 / 71.0));
        assert_eq!(stats.prefix.working_set_tokens, 47);
    }

    #[test]
    fn a_cache_forgets_what_was_unused_for_longest() {
        let one = |name| request(0, 1, &[(name, 4)]);
        // Blocks a b a c b a: a again after 2 different ones, b after 3 (b a c), a after 3 (a c b).
        let order = [one(1), one(2), one(1), one(3), one(2), one(1)];
        let stats = stats(4, &[4, 8, 11, 12], &order);
        let hits: Vec<_> = stats.prefix.caches.iter().map(|c| c.hit_ratio.unwrap() * 6.0).collect();
        // 11 tokens are two blocks.
        for (hits, expected) in hits.iter().zip([0.0, 1.0, 1.0, 3.0]) {
            assert!((hits - expected).abs() < 1e-12, "{hits}");
        }
    }

    #[test]
    fn many_uses_are_renumbered() {
        let two = [request(0, 1, &[(1, 4)]), request(0, 1, &[(2, 4)])];
        let order: Vec<_> = two.iter().cycle().take(10_000).cloned().collect();
        let stats = stats(4, &[4, 8], &order);
        assert_eq!(stats.prefix.caches[0].hit_ratio, Some(0.0));
        assert_eq!(stats.prefix.caches[1].hit_ratio, Some(9_998.0 / 10_000.0));
    }

    fn private(id: u32, tokens: u32) -> RequestSpec {
        let named = request(0, 1, &[(1, tokens)]);
        RequestSpec { id: RequestId(id), content: Content::Private, ..named }
    }

    /// A prompt that begins with the first tokens of request 0's and goes on elsewhere.
    fn continued(tokens: u32, more: u32) -> RequestSpec {
        let pieces = vec![
            Piece { segment: Segment::Prompt(RequestId(0)), tokens },
            Piece { segment: Segment::Named(1), tokens: more },
        ];
        let named = request(0, 1, &[(1, tokens + more)]);
        RequestSpec { id: RequestId(9), content: Content::Pieces(pieces), ..named }
    }

    #[test]
    fn a_prompt_that_shares_nothing_may_be_continued_later() {
        let order = [private(0, 20), private(1, 20), continued(12, 4), continued(30, 2)];
        let stats = stats(4, &[], &order);
        // Twelve of the twenty tokens, and then all of them.
        assert_eq!(stats.prefix.shared_tokens, 12 + 20);
        assert_eq!(stats.prefix.working_set_tokens, 20 + 20 + 16 + 32 - 32);
        // Blocks: 5 + 5; 3 found + 1; 3 and then 2 found + 3. Different ones: 14.
        let curve: Vec<_> = stats.prefix.curve.iter().map(|cache| cache.cache_tokens).collect();
        assert_eq!(curve, [4, 8, 16, 32, 64]);
        assert_eq!(stats.prefix.curve[4].hit_ratio, Some(8.0 * 4.0 / 88.0));
    }

    #[test]
    fn prompts_without_content_have_no_ratio() {
        let stats = stats(4, &[8], &[private(0, 20), private(1, 10)]);
        assert_eq!((stats.prefix.ideal_hit_ratio, stats.prefix.caches[0].hit_ratio), (None, None));
        assert_eq!((stats.prefix.working_set_tokens, stats.prefix.curve.len()), (30, 0));
        assert_eq!(stats.timeline.working_set_tokens, [30]);
    }

    #[test]
    fn the_curve_is_that_of_single_caches() {
        // Of 40 different blocks, the later ones are used more rarely.
        let order: Vec<_> = (0..2000_u64)
            .map(|at| request(at, 1, &[((at * at + at / 3) % 41 % (at % 40 + 1), 4)]))
            .collect();
        let sizes = [4, 8, 16, 32, 64, 128, 256];
        let stats = stats(4, &sizes, &order);
        assert_eq!(stats.prefix.caches, stats.prefix.curve);
        let ratios: Vec<_> = stats.prefix.curve.iter().map(|cache| cache.hit_ratio).collect();
        assert!(ratios.is_sorted() && ratios[0] < ratios[5], "{ratios:?}");
        assert_eq!(ratios[6], stats.prefix.ideal_hit_ratio);
    }

    #[test]
    fn lengths_are_counted_by_magnitude() {
        let order: Vec<_> = [0, 1, 4, 5, 7, 8].map(|output| request(0, output, &[(1, 3)])).into();
        let output = stats(4, &[], &order).output_tokens.unwrap();
        let bins: Vec<_> = output.histogram.iter().map(|b| (b.from, b.to, b.requests)).collect();
        assert_eq!(bins, [(0, 1, 1), (1, 2, 1), (2, 4, 0), (4, 8, 3), (8, 16, 1)]);
        let most = request(0, u32::MAX, &[(1, 3)]);
        let bin = stats(4, &[], &[most]).output_tokens.unwrap().histogram[0];
        assert_eq!((bin.from, bin.to), (1 << 31, 1 << 32));
    }
}
