//! What caches of all sizes would find, in one go.

use super::super::prompts::Step;
use crate::base::lookup::LookupMap;

/// Caches of all sizes at once: a cache of n blocks that forgets the one unused for longest holds a
/// block exactly if at most n different blocks, itself included, were used since its last use (Mattson
/// et al., 1970). Of one prompt, earlier blocks count as used later, so that a prefix outlives what
/// follows it.
pub(super) struct StackDistances {
    block_tokens: u32,
    /// Sizes that were asked for, in blocks, ascending, and the uses that the first of them finds the
    /// block at.
    sizes: Vec<(u64, u64)>,
    /// The same for the powers of two, from 1 on.
    powers: [u64; 33],
    /// A block by the node that it ends in and its end in the prompt.
    blocks: LookupMap<(u32, u32), u32>,
    /// When each block was used last: a place in `tree`.
    used: Vec<u32>,
    /// A Fenwick tree with a one for the last use of each block.
    tree: Vec<u32>,
    now: u32,
}

impl StackDistances {
    /// Caches of powers of two in blocks, and of these many tokens.
    pub(super) fn new(block_tokens: u32, cache_tokens: &[u64]) -> Self {
        let blocks = |tokens: &u64| tokens / u64::from(block_tokens);
        let mut sizes: Vec<_> = cache_tokens.iter().map(|tokens| (blocks(tokens), 0)).collect();
        sizes.sort_unstable();
        sizes.dedup();
        Self {
            block_tokens,
            sizes,
            powers: [0; 33],
            blocks: LookupMap::new(),
            used: Vec::new(),
            tree: vec![0; 1 << 12],
            now: 0,
        }
    }

    /// Tokens of a block.
    pub(super) const fn block_tokens(&self) -> u32 {
        self.block_tokens
    }

    /// Different blocks so far.
    pub(super) fn different_blocks(&self) -> u64 {
        self.used.len() as u64
    }

    /// Blocks found by a cache of `cache_tokens`, which was asked for.
    pub(super) fn hits(&self, cache_tokens: u64) -> u64 {
        let blocks = cache_tokens / u64::from(self.block_tokens);
        self.sizes.iter().take_while(|&&(size, _)| size <= blocks).map(|&(_, hits)| hits).sum()
    }

    /// Blocks found by caches of 1, 2, 4 and so on blocks, up to the first that holds them all; none
    /// where there are no blocks.
    pub(super) fn curve(&self) -> impl Iterator<Item = (u64, u64)> {
        let all = self.different_blocks();
        let mut found = 0;
        let mut was_enough = all == 0;
        let sums = self.powers.iter().enumerate().map(move |(power, &hits)| {
            found += hits;
            (1_u64 << power, found)
        });
        sums.take_while(move |&(size, _)| !std::mem::replace(&mut was_enough, size >= all))
    }

    /// Looks a prompt's blocks up and uses them; O(blocks x log blocks).
    pub(super) fn serve(&mut self, path: &[Step]) {
        let mut ids = Vec::new();
        let mut end = self.block_tokens;
        for &(node, node_end) in path {
            while end <= node_end {
                let next = self.used.len() as u32;
                let id = if let Some(&id) = self.blocks.get(&(node, end)) {
                    self.found(u64::from(self.uses_since(self.used[id as usize])));
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

    /// A block that caches of at least so many blocks find.
    fn found(&mut self, blocks: u64) {
        let first = self.sizes.partition_point(|&(size, _)| size < blocks);
        if let Some((_, hits)) = self.sizes.get_mut(first) {
            *hits += 1;
        }
        self.powers[blocks.next_power_of_two().ilog2() as usize] += 1;
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
