//! Small trees derived by hand, and the tree against one of single tokens.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

fn piece(name: u64, tokens: u32) -> Piece {
    Piece { segment: Segment::Named(name), tokens }
}

fn put(cache: &mut RadixCache, pieces: &[Piece], tokens: u32) -> Found {
    cache.put_in(PutIn { pieces, tokens, priority: 0, known_tokens: 0 })
}

#[test]
fn a_node_is_split_at_the_last_common_page() {
    // 30 common tokens are 7 pages of 4.
    let mut cache = RadixCache::new(4, EvictionPolicy::Lru);
    let first = put(&mut cache, &[piece(1, 30), piece(2, 20)], 50);
    assert_eq!((first.tokens, cache.evictable_tokens()), (0, 48));
    let found = cache.look_up(&[piece(1, 30), piece(3, 20)], 50);
    assert_eq!(found.tokens, 28);
    assert_ne!(found.node, first.node, "the upper part is new");
    assert_eq!(cache.parent(first.node), found.node);
    assert_eq!(cache.evictable_tokens(), 48, "a split frees nothing");
}

#[test]
fn a_page_over_several_runs_is_found_by_all_of_them() {
    let mut cache = RadixCache::new(8, EvictionPolicy::Lru);
    put(&mut cache, &[piece(1, 3), piece(2, 3), piece(3, 10)], 16);
    assert_eq!(cache.look_up(&[piece(1, 3), piece(2, 3), piece(3, 9)], 15).tokens, 8);
    // The first page differs in its last two tokens.
    assert_eq!(cache.look_up(&[piece(1, 3), piece(2, 3), piece(4, 10)], 16).tokens, 0);
}

#[test]
fn a_hold_keeps_the_path_and_a_parent_goes_after_its_children() {
    let mut cache = RadixCache::new(1, EvictionPolicy::Lru);
    put(&mut cache, &[piece(1, 10), piece(2, 5)], 15);
    let other = put(&mut cache, &[piece(1, 10), piece(3, 7)], 17);
    assert_eq!((other.tokens, cache.evictable_tokens()), (10, 22));
    cache.hold(other.node);
    assert_eq!((cache.evictable_tokens(), cache.protected_tokens()), (5, 17));
    // Only the 5 tokens of the first are nobody's.
    assert_eq!(cache.evict(1), 5);
    assert_eq!(cache.evict(1), 0);
    cache.let_go(other.node);
    // The leaf of 7 first; then the 10 above it are a leaf.
    assert_eq!(cache.evict(1), 7);
    assert_eq!(cache.evict(1), 10);
    assert_eq!((cache.evictable_tokens(), cache.evict(1)), (0, 0));
}

#[test]
fn each_policy_has_its_own_first_victim() {
    // Leaves of 1, 2 and 3 tokens in this order; then 1 is used twice more, 2 once, in this order.
    for (policy, victim) in [
        (EvictionPolicy::Lru, 3),
        (EvictionPolicy::Lfu, 3),
        (EvictionPolicy::Slru, 3),
        (EvictionPolicy::Fifo, 1),
        (EvictionPolicy::Filo, 3),
        (EvictionPolicy::Mru, 2),
        (EvictionPolicy::Priority, 2),
    ] {
        let mut cache = RadixCache::new(1, policy);
        for (tokens, priority) in [(1, 5), (2, -1), (3, 7), (1, 0), (1, 0), (2, -1)] {
            let pieces = [piece(u64::from(tokens), tokens)];
            cache.put_in(PutIn { pieces: &pieces, tokens, priority, known_tokens: 0 });
        }
        assert_eq!(cache.evict(1), victim, "{policy:?}");
    }
}

#[test]
fn what_a_request_put_in_before_is_no_new_use() {
    let mut cache = RadixCache::new(1, EvictionPolicy::Lfu);
    let chunks = [piece(1, 20)];
    // Two chunks of one request: the node of the first has one hit. Another request of two hits.
    cache.put_in(PutIn { pieces: &chunks, tokens: 10, priority: 0, known_tokens: 0 });
    cache.put_in(PutIn { pieces: &chunks, tokens: 20, priority: 0, known_tokens: 10 });
    for _ in 0..2 {
        put(&mut cache, &[piece(2, 3)], 3);
    }
    // 10 and 10 tokens with a hit each go before 3 with two.
    assert_eq!([cache.evict(1), cache.evict(1), cache.evict(1)], [10, 10, 3]);
}

/// A tree of single pages, one node each, in which nothing is clever: what is cached is a set of
/// prefixes, and each says who uses it.
#[derive(Default)]
struct Naive {
    /// By the tokens up to the end of the page: how many hold it.
    pages: BTreeMap<Vec<(u64, u32)>, u32>,
}

impl Naive {
    fn tokens(pieces: &[Piece], tokens: u32) -> Vec<(u64, u32)> {
        let name = |segment| match segment {
            Segment::Named(name) => name,
            _ => unreachable!("only names here"),
        };
        let all = pieces.iter().flat_map(|p| (0..p.tokens).map(move |i| (name(p.segment), i)));
        all.take(tokens as usize).collect()
    }

    fn hit(&self, tokens: &[(u64, u32)], page: usize) -> usize {
        (1..=tokens.len() / page)
            .take_while(|pages| self.pages.contains_key(&tokens[..pages * page]))
            .count()
            * page
    }

    fn change(&mut self, tokens: &[(u64, u32)], page: usize, change: impl Fn(&mut u32)) {
        for pages in 1..=tokens.len() / page {
            change(self.pages.entry(tokens[..pages * page].to_vec()).or_default());
        }
    }

    fn sums(&self, page: usize) -> (u32, u32) {
        let held = self.pages.values().filter(|&&holders| holders > 0).count();
        (((self.pages.len() - held) * page) as u32, (held * page) as u32)
    }
}

#[test]
fn runs_say_what_single_tokens_say() {
    for seed in 0..300 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let page = [1_u32, 4, 16][seed as usize % 3];
        let mut cache = RadixCache::new(page, EvictionPolicy::Lru);
        let mut naive = Naive::default();
        let mut held: Vec<(u32, Vec<(u64, u32)>)> = Vec::new();
        for _ in 0..60 {
            let pieces: Vec<Piece> = (0..rng.random_range(1..4))
                .map(|_| piece(rng.random_range(0..3), rng.random_range(1..40)))
                .collect();
            let length: u32 = pieces.iter().map(|p| p.tokens).sum();
            let tokens = rng.random_range(1..=length);
            let sequence = Naive::tokens(&pieces, tokens - tokens % page);
            let hit = naive.hit(&sequence, page as usize);
            match rng.random_range(0..4) {
                0 => {
                    let found = cache.look_up(&pieces, tokens);
                    assert_eq!(found.tokens as usize, hit, "seed {seed}");
                    cache.hold(found.node);
                    naive.change(&sequence[..hit], page as usize, |holders| *holders += 1);
                    held.push((found.node, sequence[..hit].to_vec()));
                }
                1 if !held.is_empty() => {
                    let (node, sequence) = held.swap_remove(rng.random_range(0..held.len()));
                    cache.let_go(node);
                    naive.change(&sequence, page as usize, |holders| *holders -= 1);
                }
                2 if rng.random_range(0..3) == 0 => {
                    // All that nobody holds.
                    let (evictable, _) = naive.sums(page as usize);
                    assert_eq!(cache.evict(u32::MAX), evictable, "seed {seed}");
                    naive.pages.retain(|_, holders| *holders > 0);
                }
                _ => {
                    let found = put(&mut cache, &pieces, tokens);
                    assert_eq!(found.tokens as usize, hit, "seed {seed}");
                    naive.change(&sequence, page as usize, |_| {});
                }
            }
            let sums = (cache.evictable_tokens(), cache.protected_tokens());
            assert_eq!(sums, naive.sums(page as usize), "seed {seed}");
        }
    }
}
