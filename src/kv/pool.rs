//! Blocks with identity: reference counts, labels, and the queue in which free blocks are reused.
//!
//! Follows vLLM 0.33.0 (`BlockPool`, `FreeKVCacheBlockQueue`), rules R40 to R46: a block keeps its
//! label while it rests in the free queue and loses it only when it is reused, from the front.

use super::content::ContentTree;

/// No block. Block 0 is never usable (R40), so it doubles as the ends of the queue.
pub(crate) const NO_BLOCK: u32 = 0;

/// No node: the block has no label.
const NO_LABEL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Block {
    /// Neighbours in the free queue, meaningful while it rests there.
    next: u32,
    prev: u32,
    /// Requests that hold it; it rests in the queue when nobody does.
    holders: u32,
    /// Its label: the node its content ends in and the place there.
    node: u32,
    place: u32,
    /// The ring of blocks with the same label, in the order in which they were labelled.
    next_copy: u32,
    prev_copy: u32,
}

/// The blocks of one engine, when they have identity.
#[derive(Clone, Debug)]
pub(crate) struct BlockPool {
    blocks: Vec<Block>,
    free_blocks: u32,
    distinct_labels: u32,
}

impl BlockPool {
    /// `total_blocks` blocks, of which the first is never usable, all free in order of id (R44).
    pub(crate) fn new(total_blocks: u32) -> Self {
        let blocks = (0..total_blocks)
            .map(|id| Block {
                next: if id + 1 == total_blocks { 0 } else { id + 1 },
                prev: if id == 0 { total_blocks - 1 } else { id - 1 },
                holders: 0,
                node: NO_LABEL,
                place: 0,
                next_copy: NO_BLOCK,
                prev_copy: NO_BLOCK,
            })
            .collect();
        Self { blocks, free_blocks: total_blocks - 1, distinct_labels: 0 }
    }

    /// Blocks that rest in the queue, cached ones included.
    pub(crate) const fn free_blocks(&self) -> u32 {
        self.free_blocks
    }

    /// Different labels in the pool.
    pub(crate) const fn distinct_labels(&self) -> u32 {
        self.distinct_labels
    }

    /// Whether nobody holds `block`.
    pub(crate) fn is_resting(&self, block: u32) -> bool {
        self.blocks[block as usize].holders == 0
    }

    /// One more request holds `block`; a resting one leaves the queue (R38).
    pub(crate) fn hold(&mut self, block: u32) {
        if self.blocks[block as usize].holders == 0 {
            self.unlink(block);
        }
        self.blocks[block as usize].holders += 1;
    }

    /// Takes the block at the front of the queue; its label goes now (R44).
    ///
    /// # Panics
    /// If no block is free: the caller has to have counted.
    pub(crate) fn take(&mut self, tree: &mut ContentTree) -> u32 {
        assert!(self.free_blocks > 0, "the caller counts before it takes");
        let block = self.blocks[0].next;
        self.unlink(block);
        self.unlabel(block, tree);
        self.blocks[block as usize].holders = 1;
        block
    }

    /// One request less holds `block`. When nobody does any more it rests: labelled at the end of
    /// the queue, unlabelled at its front (R43).
    pub(crate) fn let_go(&mut self, block: u32) {
        let entry = &mut self.blocks[block as usize];
        entry.holders -= 1;
        if entry.holders > 0 {
            return;
        }
        let before = if entry.node == NO_LABEL { 0 } else { self.blocks[0].prev };
        let after = self.blocks[before as usize].next;
        let entry = &mut self.blocks[block as usize];
        entry.prev = before;
        entry.next = after;
        self.blocks[before as usize].next = block;
        self.blocks[after as usize].prev = block;
        self.free_blocks += 1;
    }

    /// Labels `block` with the content at `place` of `node`, behind older copies of it (R45).
    pub(crate) fn label(&mut self, block: u32, node: u32, place: u32, tree: &mut ContentTree) {
        debug_assert_eq!(self.blocks[block as usize].node, NO_LABEL);
        let first = tree.first_copy(node, place);
        let (prev, next) = if first == NO_BLOCK {
            tree.set_first_copy(node, place, block);
            self.distinct_labels += 1;
            (block, block)
        } else {
            (self.blocks[first as usize].prev_copy, first)
        };
        tree.retain(node);
        let entry = &mut self.blocks[block as usize];
        entry.node = node;
        entry.place = place;
        entry.prev_copy = prev;
        entry.next_copy = next;
        self.blocks[prev as usize].next_copy = block;
        self.blocks[next as usize].prev_copy = block;
    }

    fn unlabel(&mut self, block: u32, tree: &mut ContentTree) {
        let Block { node, place, next_copy, prev_copy, .. } = self.blocks[block as usize];
        if node == NO_LABEL {
            return;
        }
        self.blocks[block as usize].node = NO_LABEL;
        self.blocks[prev_copy as usize].next_copy = next_copy;
        self.blocks[next_copy as usize].prev_copy = prev_copy;
        if tree.first_copy(node, place) == block {
            let heir = if next_copy == block { NO_BLOCK } else { next_copy };
            tree.set_first_copy(node, place, heir);
            if heir == NO_BLOCK {
                self.distinct_labels -= 1;
            } else {
                tree.note_heir();
            }
        }
        tree.release(node);
    }

    fn unlink(&mut self, block: u32) {
        let Block { next, prev, .. } = self.blocks[block as usize];
        self.blocks[prev as usize].next = next;
        self.blocks[next as usize].prev = prev;
        self.free_blocks -= 1;
    }

    /// The free queue, front first.
    #[cfg(test)]
    pub(crate) fn queue(&self) -> Vec<u32> {
        let mut order = Vec::new();
        let mut block = self.blocks[0].next;
        while block != 0 {
            order.push(block);
            block = self.blocks[block as usize].next;
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::request::{Piece, Segment};

    fn tree_with_node() -> (ContentTree, u32) {
        let mut tree = ContentTree::new(16);
        let mut path = Vec::new();
        tree.extend(&mut path, Piece { segment: Segment::Named(7), tokens: 160 });
        (tree, path[0].node)
    }

    #[test]
    fn labelled_blocks_go_to_the_back_and_others_to_the_front() {
        let (mut tree, node) = tree_with_node();
        let mut pool = BlockPool::new(6);
        let (a, b) = (pool.take(&mut tree), pool.take(&mut tree));
        assert_eq!((a, b, pool.queue()), (1, 2, vec![3, 4, 5]));
        pool.label(a, node, 0, &mut tree);
        pool.let_go(a);
        pool.let_go(b);
        assert_eq!(pool.queue(), [2, 3, 4, 5, 1]);
    }

    #[test]
    fn a_label_outlives_its_first_copy() {
        let (mut tree, node) = tree_with_node();
        let mut pool = BlockPool::new(4);
        let (a, b) = (pool.take(&mut tree), pool.take(&mut tree));
        pool.label(a, node, 0, &mut tree);
        pool.label(b, node, 0, &mut tree);
        assert_eq!((tree.first_copy(node, 0), pool.distinct_labels()), (a, 1));
        // a rests behind block 3; taking both 3 and a strips a's label and b inherits.
        pool.let_go(a);
        assert_eq!((pool.take(&mut tree), pool.take(&mut tree)), (3, a));
        assert_eq!((tree.first_copy(node, 0), pool.distinct_labels()), (b, 1));
        pool.let_go(b);
        assert_eq!(pool.take(&mut tree), b);
        assert_eq!((tree.first_copy(node, 0), pool.distinct_labels()), (NO_BLOCK, 0));
    }
}
