//! Names for the content of KV blocks.
//!
//! A block's content is everything from the start of the sequence to the block's end: that is
//! what a chained block hash says. Sequences are paths in a tree whose edges are segments, so two
//! sequences agree exactly as far as their paths do, and *(node, end of the block within the
//! node)* names a block's content without hashing a token. It works for any block size, because
//! the segment in which a block ends fixes everything before it.
//!
//! A node lives while something needs it: a sequence that ends in it, a labelled block, or a
//! child. So the tree grows with the active requests and the cache, not with the trace.

use crate::base::lookup::LookupMap;
use crate::kv::pool::NO_BLOCK;
use crate::workload::request::{Piece, Segment};

/// The parent of the first node of a sequence.
pub(crate) const ROOT: u32 = u32::MAX;

/// One step of a sequence's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The node.
    pub(crate) node: u32,
    /// Tokens of the sequence up to the end of this step.
    pub(crate) end_tokens: u32,
}

/// Where a node hangs: below which node, after how many of that node's tokens, by which segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Edge {
    parent: u32,
    at_tokens: u32,
    segment: Segment,
}

#[derive(Clone, Debug)]
struct Node {
    edge: Edge,
    /// Tokens of a sequence before this node.
    start_tokens: u32,
    /// Sequences that end here, labelled blocks that end here, and children.
    uses: u32,
    /// By the block's place in the node: the block labelled first with that content.
    first_copies: Vec<u32>,
}

/// The tree of all content that is active or cached in one engine.
#[derive(Clone, Debug)]
pub(crate) struct ContentTree {
    block_tokens: u32,
    /// Tokens behind a block that its content covers too.
    lookahead_tokens: u32,
    nodes: Vec<Node>,
    edges: LookupMap<Edge, u32>,
    recycled: Vec<u32>,
    /// The node and place at which the last look-up met its first miss.
    awaited: (u32, u32),
    /// Whether that look-up might find more now.
    has_news: bool,
}

impl ContentTree {
    /// An empty tree for blocks of `block_tokens` tokens.
    pub(crate) fn new(block_tokens: u32) -> Self {
        Self {
            block_tokens,
            lookahead_tokens: 0,
            nodes: Vec::new(),
            edges: LookupMap::new(),
            recycled: Vec::new(),
            awaited: (ROOT, 0),
            has_news: false,
        }
    }

    /// From now on the content of a block covers the `tokens` tokens behind it, too: it is named by the node in which
    /// the last of them lies.
    pub(crate) fn look_ahead(&mut self, tokens: u32) {
        debug_assert!(self.nodes.is_empty());
        self.lookahead_tokens = tokens;
    }

    /// Whether the content of a block covers tokens behind it.
    pub(crate) const fn looks_ahead(&self) -> bool {
        self.lookahead_tokens > 0
    }

    /// The tokens that have to be known so that blocks of the first `tokens` tokens have a name.
    pub(crate) const fn reach(&self, tokens: u32) -> u32 {
        tokens.saturating_add(self.lookahead_tokens)
    }

    /// Whole blocks, from the start of a sequence, that its first `tokens` tokens name.
    pub(crate) const fn blocks_named_by(&self, tokens: u32) -> u32 {
        tokens.saturating_sub(self.lookahead_tokens) / self.block_tokens
    }

    /// Extends `path` by a piece. The new end of the path is used once more, the old end once
    /// less.
    pub(crate) fn extend(&mut self, path: &mut Vec<Step>, piece: Piece) {
        let last = path.last().copied();
        let (parent, start_tokens) = last.map_or((ROOT, 0), |s| (s.node, s.end_tokens));
        let at_tokens = last.map_or(0, |s| s.end_tokens - self.nodes[s.node as usize].start_tokens);
        let edge = Edge { parent, at_tokens, segment: piece.segment };
        let node = match self.edges.get(&edge) {
            Some(&node) => node,
            None => self.add(edge, start_tokens),
        };
        self.nodes[node as usize].uses += 1;
        if parent != ROOT {
            self.release(parent);
        }
        path.push(Step { node, end_tokens: start_tokens.saturating_add(piece.tokens) });
    }

    fn add(&mut self, edge: Edge, start_tokens: u32) -> u32 {
        let node = if let Some(node) = self.recycled.pop() {
            let slot = &mut self.nodes[node as usize];
            slot.edge = edge;
            slot.start_tokens = start_tokens;
            node
        } else {
            self.nodes.push(Node { edge, start_tokens, uses: 0, first_copies: Vec::new() });
            (self.nodes.len() - 1) as u32
        };
        if edge.parent != ROOT {
            self.nodes[edge.parent as usize].uses += 1;
        }
        self.edges.insert(edge, node);
        node
    }

    /// One use of `node` ends; what nobody needs any more is forgotten.
    pub(crate) fn release(&mut self, node: u32) {
        let mut node = node;
        while node != ROOT {
            let entry = &mut self.nodes[node as usize];
            entry.uses -= 1;
            if entry.uses > 0 {
                return;
            }
            debug_assert!(entry.first_copies.iter().all(|&block| block == NO_BLOCK));
            entry.first_copies.clear();
            let edge = entry.edge;
            self.edges.remove(&edge);
            self.recycled.push(node);
            node = edge.parent;
        }
    }

    /// A labelled block begins to use `node`.
    pub(crate) fn retain(&mut self, node: u32) {
        self.nodes[node as usize].uses += 1;
    }

    /// The place of block `block_index` of a sequence within the node it ends in.
    pub(crate) fn place_in(&self, node: u32, block_index: u32) -> u32 {
        block_index - self.blocks_named_by(self.nodes[node as usize].start_tokens)
    }

    /// The block labelled first with the content at `place` of `node`, or [`NO_BLOCK`].
    pub(crate) fn first_copy(&self, node: u32, place: u32) -> u32 {
        self.nodes[node as usize].first_copies.get(place as usize).copied().unwrap_or(NO_BLOCK)
    }

    /// The first copies of `node`, from its first block on.
    pub(crate) fn first_copies(&self, node: u32) -> &[u32] {
        &self.nodes[node as usize].first_copies
    }

    /// A look-up ended at `place` of `node` for want of a copy, or because it had all it could use
    /// (`None`): from now on [`ContentTree::has_news`] says whether that may have changed.
    pub(crate) fn await_copy(&mut self, missing: Option<(u32, u32)>) {
        self.awaited = missing.unwrap_or((ROOT, 0));
        self.has_news = false;
    }

    /// What the last look-up ended at for want of a copy.
    pub(crate) fn awaited(&self) -> Option<(u32, u32)> {
        (self.awaited.0 != ROOT).then_some(self.awaited)
    }

    /// Whether somebody else's tokens could be what the last look-up missed: its sequence is not the
    /// only one that needs the node.
    pub(crate) fn expects_news(&self) -> bool {
        let (node, _) = self.awaited;
        node != ROOT && self.nodes[node as usize].uses > 1
    }

    /// Whether the look-up that was announced last might find more, or find it elsewhere.
    pub(crate) const fn has_news(&self) -> bool {
        self.has_news
    }

    /// The first copy of some content has gone and another has taken its place.
    pub(crate) fn note_heir(&mut self) {
        self.has_news = true;
    }

    /// Sets the block labelled first with the content at `place` of `node`.
    pub(crate) fn set_first_copy(&mut self, node: u32, place: u32, block: u32) {
        let copies = &mut self.nodes[node as usize].first_copies;
        if copies.len() <= place as usize {
            copies.resize(place as usize + 1, NO_BLOCK);
        }
        copies[place as usize] = block;
        self.has_news |= self.awaited == (node, place);
    }

    /// Nodes alive.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.edges.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(name: u64, tokens: u32) -> Piece {
        Piece { segment: Segment::Named(name), tokens }
    }

    fn path(tree: &mut ContentTree, pieces: &[Piece]) -> Vec<Step> {
        let mut path = Vec::new();
        pieces.iter().for_each(|&p| tree.extend(&mut path, p));
        path
    }

    #[test]
    fn equal_prefixes_are_the_same_nodes() {
        let mut tree = ContentTree::new(16);
        let a = path(&mut tree, &[piece(1, 512), piece(2, 512)]);
        let b = path(&mut tree, &[piece(1, 512), piece(3, 512)]);
        assert_eq!(a[0], b[0]);
        assert_ne!(a[1].node, b[1].node);
    }

    #[test]
    fn the_same_segment_elsewhere_is_other_content() {
        let mut tree = ContentTree::new(16);
        let a = path(&mut tree, &[piece(1, 512), piece(2, 512)]);
        let behind_another = path(&mut tree, &[piece(9, 512), piece(2, 512)]);
        let earlier = path(&mut tree, &[piece(1, 256), piece(2, 512)]);
        assert_ne!(a[1].node, behind_another[1].node);
        assert_ne!(a[1].node, earlier[1].node);
        // A shorter piece of the same segment is a prefix of the longer one.
        assert_eq!(a[0].node, earlier[0].node);
    }

    #[test]
    fn nodes_go_when_nobody_needs_them() {
        let mut tree = ContentTree::new(16);
        let a = path(&mut tree, &[piece(1, 512), piece(2, 512)]);
        let b = path(&mut tree, &[piece(1, 512)]);
        tree.release(a[1].node);
        assert_eq!(tree.len(), 1, "the shared first node is still used by b");
        tree.release(b[0].node);
        assert_eq!(tree.len(), 0);
    }
}
