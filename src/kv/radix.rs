//! The radix cache of one SGLang engine: which sequences have KV, who holds it, and what goes first.
//!
//! Follows SGLang 0.5.23 (`RadixCache`, rules R1 to R9 of docs/engines/sglang.md). The edges of the tree
//! are runs of whole segments, not tokens, so a look-up costs what the sequence has pieces, whatever the
//! page size. Time is a counter: only the order of uses matters.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::lookup::LookupMap;
use crate::workload::request::{Piece, Segment};

/// The node that every sequence starts from.
pub(crate) const ROOT: u32 = 0;

/// The order in which cached KV goes (R9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EvictionPolicy {
    /// Least recently used first.
    Lru,
    /// Least often used first.
    Lfu,
    /// What was used once first, then least recently used.
    Slru,
    /// Oldest first.
    Fifo,
    /// Most recently used first.
    Mru,
    /// Newest first.
    Filo,
    /// Lowest priority first.
    Priority,
}

/// Consecutive tokens of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Run {
    segment: Segment,
    start: u32,
    tokens: u32,
}

/// A place in a sequence.
#[derive(Clone, Copy)]
struct Cursor<'a> {
    pieces: &'a [Piece],
    offset: u32,
}

impl Cursor<'_> {
    /// What is left of the piece here.
    fn rest(&self) -> Option<Run> {
        let piece = self.pieces.first()?;
        let tokens = piece.tokens - self.offset;
        Some(Run { segment: piece.segment, start: self.offset, tokens })
    }

    /// Goes on by `tokens`, which are not more than is left of the piece.
    fn skip(&mut self, tokens: u32) {
        self.offset += tokens;
        if self.offset == self.pieces[0].tokens {
            self.pieces = &self.pieces[1..];
            self.offset = 0;
        }
    }

    /// Goes on by `tokens`, and says what they were.
    fn take(&mut self, tokens: u32) -> Vec<Run> {
        let mut runs = Vec::new();
        self.pass(tokens, |run| runs.push(run));
        runs
    }

    fn pass(&mut self, mut tokens: u32, mut see: impl FnMut(Run)) {
        while tokens > 0 {
            let rest = self.rest().expect("the caller stays within the sequence");
            let run = Run { tokens: rest.tokens.min(tokens), ..rest };
            see(run);
            self.skip(run.tokens);
            tokens -= run.tokens;
        }
    }
}

/// Where a node hangs: below which node, by which first page (R1).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Edge {
    parent: u32,
    segment: Segment,
    start: u32,
    /// The rest of the page, if it spreads over several runs.
    more: Option<Box<[Run]>>,
}

#[derive(Clone, Debug)]
struct Node {
    parent: u32,
    key: Vec<Run>,
    tokens: u32,
    /// Requests that hold it, or something below it (R2).
    holders: u32,
    children: u32,
    /// When it was used last.
    stamp: u64,
    created: u64,
    hits: u32,
    priority: i64,
    /// Its place among its siblings (R6).
    place: u64,
}

/// What a walk found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The node where it ends.
    pub(crate) node: u32,
    /// Tokens that were there.
    pub(crate) tokens: u32,
}

/// A sequence that is put into the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PutIn<'a> {
    /// What it consists of; may go on beyond `tokens`.
    pub(crate) pieces: &'a [Piece],
    /// How many of its tokens have KV.
    pub(crate) tokens: u32,
    /// Its request's priority.
    pub(crate) priority: i64,
    /// How much of it the request put in before: that is no new use of a node.
    pub(crate) known_tokens: u32,
}

/// The tree.
#[derive(Clone, Debug)]
pub(crate) struct RadixCache {
    page_tokens: u32,
    policy: EvictionPolicy,
    nodes: Vec<Node>,
    recycled: Vec<u32>,
    children: LookupMap<Edge, u32>,
    /// Leaves that nobody holds, in the order in which they go.
    idle_leaves: BTreeSet<((u64, u64), u32)>,
    evictable_tokens: u32,
    protected_tokens: u32,
    clock: u64,
    touched: u64,
}

impl RadixCache {
    /// An empty cache of pages of `page_tokens` tokens.
    pub(crate) fn new(page_tokens: u32, policy: EvictionPolicy) -> Self {
        let root = Node {
            parent: ROOT,
            key: Vec::new(),
            tokens: 0,
            holders: 1,
            children: 0,
            stamp: 0,
            created: 0,
            hits: 0,
            priority: i64::MIN,
            place: 0,
        };
        Self {
            page_tokens,
            policy,
            nodes: vec![root],
            recycled: Vec::new(),
            children: LookupMap::new(),
            idle_leaves: BTreeSet::new(),
            evictable_tokens: 0,
            protected_tokens: 0,
            clock: 0,
            touched: 0,
        }
    }

    /// Cached tokens that nobody holds.
    pub(crate) const fn evictable_tokens(&self) -> u32 {
        self.evictable_tokens
    }

    /// Cached tokens that somebody holds.
    pub(crate) const fn protected_tokens(&self) -> u32 {
        self.protected_tokens
    }

    /// Nodes walked over, each time.
    pub(crate) const fn touched_nodes(&self) -> u64 {
        self.touched
    }

    /// The node above `node`.
    pub(crate) fn parent(&self, node: u32) -> u32 {
        self.nodes[node as usize].parent
    }

    /// The place of `node` among its siblings: smaller is earlier (R6).
    pub(crate) fn place(&self, node: u32) -> u64 {
        self.nodes[node as usize].place
    }

    /// How much of the first `tokens` tokens of a sequence is cached, in whole pages (R5). It counts as a
    /// use of what is found.
    pub(crate) fn look_up(&mut self, pieces: &[Piece], tokens: u32) -> Found {
        let wanted = tokens - tokens % self.page_tokens;
        let mut found = Found { node: ROOT, tokens: 0 };
        if wanted == 0 {
            return found;
        }
        let mut cursor = Cursor { pieces, offset: 0 };
        let mut depth = 1;
        while let Some(child) = self.child(found.node, &cursor, wanted - found.tokens) {
            let common = self.common(child, cursor, wanted - found.tokens);
            depth += 1;
            found.tokens += common;
            if common < self.nodes[child as usize].tokens {
                found.node = self.split(child, common);
                break;
            }
            found.node = child;
            cursor.pass(common, |_| {});
        }
        // The end is the newest, the root the oldest.
        let mut stamp = self.clock + depth;
        self.clock = stamp;
        let mut node = found.node;
        loop {
            self.stamp(node, stamp);
            if node == ROOT {
                return found;
            }
            stamp -= 1;
            node = self.nodes[node as usize].parent;
        }
    }

    /// Puts the whole pages of a sequence in, and says where they end and how many of their tokens were
    /// there before (R7).
    pub(crate) fn put_in(&mut self, sequence: PutIn<'_>) -> Found {
        let PutIn { pieces, tokens, priority, known_tokens } = sequence;
        let wanted = tokens - tokens % self.page_tokens;
        let mut cursor = Cursor { pieces, offset: 0 };
        let mut found = Found { node: ROOT, tokens: 0 };
        self.tick(ROOT);
        let mut is_whole = true;
        while is_whole && let Some(child) = self.child(found.node, &cursor, wanted - found.tokens) {
            self.tick(child);
            let common = self.common(child, cursor, wanted - found.tokens);
            is_whole = common == self.nodes[child as usize].tokens;
            found.node = if is_whole { child } else { self.split(child, common) };
            found.tokens += common;
            cursor.pass(common, |_| {});
            self.note_use(found.node, priority, found.tokens > known_tokens);
        }
        let left = wanted - found.tokens;
        if left > 0 {
            let key = cursor.take(left);
            let leaf = self.add(found.node, key, left);
            self.nodes[leaf as usize].priority = priority;
            self.note_use(leaf, priority, wanted > known_tokens);
            self.evictable_tokens += left;
            self.set_idle(leaf);
            found.node = leaf;
        }
        found
    }

    /// One more request holds `node`, and with it the path to the root (R2).
    pub(crate) fn hold(&mut self, node: u32) {
        self.change_holders(node, |holders| *holders += 1);
    }

    /// One request less holds `node`.
    pub(crate) fn let_go(&mut self, node: u32) {
        self.change_holders(node, |holders| *holders -= 1);
    }

    fn change_holders(&mut self, mut node: u32, change: impl Fn(&mut u32)) {
        while node != ROOT {
            let entry = &mut self.nodes[node as usize];
            let before = entry.holders;
            change(&mut entry.holders);
            let (after, tokens) = (entry.holders, entry.tokens);
            let (parent, is_leaf) = (entry.parent, entry.children == 0);
            if before == 0 {
                self.evictable_tokens -= tokens;
                self.protected_tokens += tokens;
                if is_leaf {
                    self.idle_leaves.remove(&self.rank(node));
                }
            } else if after == 0 {
                self.evictable_tokens += tokens;
                self.protected_tokens -= tokens;
                self.set_idle(node);
            }
            self.touched += 1;
            node = parent;
        }
    }

    /// Evicts whole nodes until `tokens` tokens are free or nothing is left, and says how many are (R8).
    pub(crate) fn evict(&mut self, tokens: u32) -> u32 {
        let mut freed = 0;
        while freed < tokens
            && let Some((_, node)) = self.idle_leaves.pop_first()
        {
            let entry = &mut self.nodes[node as usize];
            freed += entry.tokens;
            self.evictable_tokens -= entry.tokens;
            let parent = entry.parent;
            let key = std::mem::take(&mut entry.key);
            let edge = self.edge(parent, &mut key.iter().copied());
            self.children.remove(&edge);
            self.recycled.push(node);
            self.nodes[parent as usize].children -= 1;
            self.set_idle(parent);
            self.touched += 1;
        }
        freed
    }

    /// The child of `node` that begins with the page at `cursor`; `left` tokens of the sequence do.
    fn child(&self, node: u32, cursor: &Cursor<'_>, left: u32) -> Option<u32> {
        if left == 0 || self.nodes[node as usize].children == 0 {
            return None;
        }
        let head = cursor.rest()?;
        let edge = if head.tokens >= self.page_tokens {
            Edge { parent: node, segment: head.segment, start: head.start, more: None }
        } else {
            let mut cursor = *cursor;
            let page = cursor.take(self.page_tokens);
            self.edge(node, &mut page.into_iter())
        };
        self.children.get(&edge).copied()
    }

    /// The edge to a child of `parent` whose key is `runs`.
    fn edge(&self, parent: u32, runs: &mut dyn Iterator<Item = Run>) -> Edge {
        let head = runs.next().expect("a node below the root has tokens");
        let mut left = self.page_tokens.saturating_sub(head.tokens);
        let mut more = Vec::new();
        while left > 0 {
            let run = runs.next().expect("a node has whole pages");
            let tokens = run.tokens.min(left);
            more.push(Run { tokens, ..run });
            left -= tokens;
        }
        let more = (!more.is_empty()).then(|| more.into_boxed_slice());
        Edge { parent, segment: head.segment, start: head.start, more }
    }

    /// Tokens, in whole pages, that the key of `node` and the next `left` tokens at `cursor` have in
    /// common.
    fn common(&mut self, node: u32, mut cursor: Cursor<'_>, left: u32) -> u32 {
        self.touched += 1;
        let mut common = 0;
        'all: for run in &self.nodes[node as usize].key {
            let mut done = 0;
            while done < run.tokens {
                let Some(rest) = cursor.rest().filter(|_| common < left) else { break 'all };
                if rest.segment != run.segment || rest.start != run.start + done {
                    break 'all;
                }
                let tokens = rest.tokens.min(run.tokens - done).min(left - common);
                common += tokens;
                done += tokens;
                cursor.skip(tokens);
            }
        }
        common - common % self.page_tokens
    }

    /// Splits `node` after `tokens` tokens and returns the new upper part (R6).
    fn split(&mut self, node: u32, tokens: u32) -> u32 {
        let entry = &mut self.nodes[node as usize];
        let parent = entry.parent;
        let mut upper_key = Vec::new();
        let mut lower_key = Vec::new();
        let mut left = tokens;
        for &run in &entry.key {
            let above = run.tokens.min(left);
            left -= above;
            if above > 0 {
                upper_key.push(Run { tokens: above, ..run });
            }
            if above < run.tokens {
                let start = run.start + above;
                lower_key.push(Run { start, tokens: run.tokens - above, ..run });
            }
        }
        entry.key = lower_key;
        let upper = Node { key: upper_key, tokens, children: 1, ..entry.clone() };
        entry.tokens -= tokens;
        let id = self.insert(upper);
        let edge = self.edge(parent, &mut self.nodes[id as usize].key.iter().copied());
        self.children.insert(edge, id);
        let edge = self.edge(id, &mut self.nodes[node as usize].key.iter().copied());
        self.children.insert(edge, node);
        self.nodes[node as usize].parent = id;
        self.tick(id);
        self.tick(node);
        id
    }

    fn add(&mut self, parent: u32, key: Vec<Run>, tokens: u32) -> u32 {
        self.clock += 1;
        let now = self.clock;
        let id = self.insert(Node {
            parent,
            key,
            tokens,
            holders: 0,
            children: 0,
            stamp: now,
            created: now,
            hits: 0,
            priority: i64::MIN,
            place: now,
        });
        let edge = self.edge(parent, &mut self.nodes[id as usize].key.iter().copied());
        self.children.insert(edge, id);
        if self.nodes[parent as usize].children == 0 && parent != ROOT {
            self.idle_leaves.remove(&self.rank(parent));
        }
        self.nodes[parent as usize].children += 1;
        id
    }

    fn insert(&mut self, node: Node) -> u32 {
        if let Some(id) = self.recycled.pop() {
            self.nodes[id as usize] = node;
            return id;
        }
        self.nodes.push(node);
        (self.nodes.len() - 1) as u32
    }

    /// The place of a leaf in the order of eviction (R9).
    fn rank(&self, node: u32) -> ((u64, u64), u32) {
        let &Node { stamp, created, hits, priority, .. } = &self.nodes[node as usize];
        let rank = match self.policy {
            EvictionPolicy::Lru => (0, stamp),
            EvictionPolicy::Lfu => (hits.into(), stamp),
            EvictionPolicy::Slru => ((hits >= 2).into(), stamp),
            EvictionPolicy::Fifo => (0, created),
            EvictionPolicy::Mru => (0, u64::MAX - stamp),
            EvictionPolicy::Filo => (0, u64::MAX - created),
            EvictionPolicy::Priority => (priority.abs_diff(i64::MIN), stamp),
        };
        (rank, node)
    }

    /// Lets `node` go when its turn comes, if it is a leaf that nobody holds (R4).
    fn set_idle(&mut self, node: u32) {
        let entry = &self.nodes[node as usize];
        if entry.holders == 0 && entry.children == 0 {
            self.idle_leaves.insert(self.rank(node));
        }
    }

    /// Changes what the rank of `node` depends on.
    fn change(&mut self, node: u32, change: impl Fn(&mut Node)) {
        let entry = &self.nodes[node as usize];
        let is_idle = entry.holders == 0 && entry.children == 0;
        if is_idle {
            self.idle_leaves.remove(&self.rank(node));
        }
        change(&mut self.nodes[node as usize]);
        if is_idle {
            self.idle_leaves.insert(self.rank(node));
        }
    }

    fn stamp(&mut self, node: u32, stamp: u64) {
        self.change(node, |entry| entry.stamp = stamp);
    }

    fn tick(&mut self, node: u32) {
        self.clock += 1;
        self.stamp(node, self.clock);
    }

    fn note_use(&mut self, node: u32, priority: i64, counts: bool) {
        self.change(node, |entry| {
            entry.priority = entry.priority.max(priority);
            entry.hits += u32::from(counts);
        });
    }
}

#[cfg(test)]
mod tests;
