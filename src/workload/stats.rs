//! What a workload is like: rate, burstiness, lengths, and how much of its prompts is shared.
//!
//! Memory grows with the number of different lengths and of different pieces, as sharing needs.

mod sessions;

use std::collections::BTreeMap;

use serde::Serialize;

use self::sessions::TieCollector;
pub(crate) use self::sessions::{Pauses, SessionStats};
use super::request::{Content, RequestSpec, Segment};
use crate::base::lookup::LookupMap;
use crate::base::time::SimTime;

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
    pub(crate) prompt_tokens: Option<Lengths>,
    pub(crate) output_tokens: Option<Lengths>,
    pub(crate) prefix: PrefixReuse,
    /// Absent where no request says that it is tied to another.
    pub(crate) sessions: Option<SessionStats>,
}

/// A distribution of lengths. Percentiles interpolate between the two nearest ranks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Lengths {
    pub(crate) total: u64,
    pub(crate) mean: f64,
    pub(crate) min: u32,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) max: u32,
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
    /// Mean and sum of squared deviations of the intervals (Welford).
    gap_mean: f64,
    gap_squares: f64,
    prompts: BTreeMap<u32, u64>,
    outputs: BTreeMap<u32, u64>,
    prefixes: Prefixes,
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
            gap_mean: 0.0,
            gap_squares: 0.0,
            prompts: BTreeMap::new(),
            outputs: BTreeMap::new(),
            prefixes: Prefixes::default(),
            caches: StackDistances::new(block_tokens, cache_tokens),
            ties: TieCollector::default(),
        }
    }

    /// Takes the next request in.
    pub(crate) fn add(&mut self, request: &RequestSpec) {
        if let Some(last) = self.last {
            let gap = request.arrival.since(last).as_s();
            let delta = gap - self.gap_mean;
            self.gap_mean += delta / self.requests as f64;
            self.gap_squares += delta * (gap - self.gap_mean);
        }
        self.first.get_or_insert(request.arrival);
        self.last = Some(request.arrival);
        self.requests += 1;
        *self.prompts.entry(request.prompt_tokens).or_default() += 1;
        *self.outputs.entry(request.output_tokens).or_default() += 1;
        let (path, hits) = self.prefixes.walk(request);
        self.prefixes.shared_tokens += hits;
        self.prefixes.tokens += u64::from(request.prompt_tokens);
        self.caches.serve(&path);
        self.ties.add(request);
    }

    /// The statistics of all requests so far.
    pub(crate) fn finish(&self) -> WorkloadStats {
        let gaps = self.requests.saturating_sub(1) as f64;
        let span_s = match (self.first, self.last) {
            (Some(first), Some(last)) => last.since(first).as_s(),
            _ => 0.0,
        };
        let is_spread = gaps > 0.0 && span_s > 0.0;
        let tokens = self.prefixes.tokens;
        let is_known = self.prefixes.has_content && tokens > 0;
        let ratio = |hits: u64| is_known.then(|| hits as f64 / tokens as f64);
        let caches =
            self.caches.sizes.iter().zip(&self.caches.hits).map(|(&cache_tokens, &hits)| {
                CacheHits {
                    cache_tokens,
                    hit_ratio: ratio(hits * u64::from(self.caches.block_tokens)),
                }
            });
        WorkloadStats {
            requests: self.requests,
            span_s,
            requests_per_s: is_spread.then(|| gaps / span_s),
            interarrival_cv: is_spread.then(|| (self.gap_squares / gaps).sqrt() / self.gap_mean),
            prompt_tokens: lengths(&self.prompts, self.requests),
            output_tokens: lengths(&self.outputs, self.requests),
            prefix: PrefixReuse {
                shared_tokens: self.prefixes.shared_tokens,
                ideal_hit_ratio: ratio(self.prefixes.shared_tokens),
                working_set_tokens: tokens - self.prefixes.shared_tokens,
                block_tokens: self.caches.block_tokens,
                caches: caches.collect(),
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

/// All prompts so far, as a tree of pieces that forgets nothing.
#[derive(Default)]
struct Prefixes {
    /// A node by the node before it, the tokens of that node before it, and its segment.
    nodes: LookupMap<(u32, u32, Segment), u32>,
    /// Tokens that some prompt has of each node.
    seen: Vec<u32>,
    /// Whether any prompt says what it consists of.
    has_content: bool,
    tokens: u64,
    shared_tokens: u64,
}

/// A step of a prompt: the node, and where its tokens end in the prompt.
type Step = (u32, u32);

impl Prefixes {
    /// The path of a prompt, with how many of its first tokens were there before.
    fn walk(&mut self, request: &RequestSpec) -> (Vec<Step>, u64) {
        let Content::Pieces(pieces) = &request.content else { return (Vec::new(), 0) };
        self.has_content = true;
        let (mut parent, mut at, mut end, mut hits, mut is_shared) = (u32::MAX, 0, 0_u32, 0, true);
        let mut path = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let key = (parent, at, piece.segment);
            let node = if let Some(&node) = self.nodes.get(&key) {
                node
            } else {
                let node = self.seen.len() as u32;
                self.nodes.insert(key, node);
                self.seen.push(0);
                node
            };
            let seen = &mut self.seen[node as usize];
            if is_shared {
                hits += u64::from(piece.tokens.min(*seen));
                is_shared = piece.tokens <= *seen;
            }
            *seen = piece.tokens.max(*seen);
            (parent, at) = (node, piece.tokens);
            end = end.saturating_add(piece.tokens);
            path.push((node, end));
        }
        (path, hits)
    }
}

/// Caches of all sizes at once: a cache of n blocks that forgets the one unused for longest holds a
/// block exactly if at most n different blocks, itself included, were used since its last use (Mattson
/// et al., 1970). Of one prompt, earlier blocks count as used later, so that a prefix outlives what
/// follows it.
struct StackDistances {
    block_tokens: u32,
    sizes: Vec<u64>,
    /// Blocks found, by size.
    hits: Vec<u64>,
    /// A block by the node that it ends in and its end in the prompt.
    blocks: LookupMap<(u32, u32), u32>,
    /// When each block was used last: a place in `tree`.
    used: Vec<u32>,
    /// A Fenwick tree with a one for the last use of each block.
    tree: Vec<u32>,
    now: u32,
}

impl StackDistances {
    fn new(block_tokens: u32, sizes: &[u64]) -> Self {
        Self {
            block_tokens,
            sizes: sizes.to_vec(),
            hits: vec![0; sizes.len()],
            blocks: LookupMap::new(),
            used: Vec::new(),
            tree: vec![0; 1 << 12],
            now: 0,
        }
    }

    /// Looks a prompt's blocks up and uses them; O(blocks x log blocks).
    fn serve(&mut self, path: &[Step]) {
        if self.sizes.is_empty() {
            return;
        }
        let mut ids = Vec::new();
        let mut end = self.block_tokens;
        for &(node, node_end) in path {
            while end <= node_end {
                let next = self.used.len() as u32;
                let id = if let Some(&id) = self.blocks.get(&(node, end)) {
                    let blocks = u64::from(self.uses_since(self.used[id as usize]));
                    for (size, hits) in self.sizes.iter().zip(&mut self.hits) {
                        *hits += u64::from(blocks <= size / u64::from(self.block_tokens));
                    }
                    id
                } else {
                    self.blocks.insert((node, end), next);
                    self.used.push(0);
                    next
                };
                ids.push(id);
                let Some(next_end) = end.checked_add(self.block_tokens) else { break };
                end = next_end;
            }
        }
        for &id in ids.iter().rev() {
            self.touch(id);
        }
    }

    /// Blocks whose last use is not before `place`.
    fn uses_since(&self, place: u32) -> u32 {
        self.sum(self.now) - self.sum(place - 1)
    }

    fn touch(&mut self, id: u32) {
        if self.now as usize + 1 == self.tree.len() {
            self.compact();
        }
        let place = std::mem::replace(&mut self.used[id as usize], 0);
        if place > 0 {
            self.add(place, false);
        }
        self.now += 1;
        self.used[id as usize] = self.now;
        self.add(self.now, true);
    }

    /// Numbers the last uses from 1 on.
    fn compact(&mut self) {
        let mut live: Vec<u32> =
            (0..self.used.len() as u32).filter(|&id| self.used[id as usize] > 0).collect();
        live.sort_unstable_by_key(|&id| self.used[id as usize]);
        self.tree = vec![0; (live.len() * 2).max(1 << 12)];
        self.now = 0;
        for id in live {
            self.now += 1;
            self.used[id as usize] = self.now;
            self.add(self.now, true);
        }
    }

    fn add(&mut self, place: u32, is_used: bool) {
        let mut at = place as usize;
        while at < self.tree.len() {
            self.tree[at] = if is_used { self.tree[at] + 1 } else { self.tree[at] - 1 };
            at += at & at.wrapping_neg();
        }
    }

    fn sum(&self, place: u32) -> u32 {
        let (mut at, mut sum) = (place as usize, 0);
        while at > 0 {
            sum += self.tree[at];
            at &= at - 1;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::Piece;
    use super::*;
    use crate::base::ids::RequestId;

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
}
