//! Blocks with identity: reference counts, labels, and the queue in which free blocks are reused.
//!
//! Follows vLLM 0.33.0 (`BlockPool`, `FreeKVCacheBlockQueue`), rules R40 to R46: a block keeps its
//! label while it rests in the free queue and loses it only when it is reused, from the front.

use super::content::ContentTree;

/// No block. Block 0 is never usable (R40), so it doubles as both ends of the queue.
pub(crate) const NO_BLOCK: u32 = 0;

/// No node: the block has no label.
const NO_LABEL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Block {
    /// Neighbours in the queue of labelled blocks, meaningful while it rests there.
    next: u32,
    prev: u32,
    /// Requests that hold it; it rests when nobody does.
    holders: u32,
    /// Its label: the node its content ends in and the place there.
    node: u32,
    place: u32,
    /// The ring of blocks with the same label, in the order in which they were labelled.
    next_copy: u32,
    prev_copy: u32,
}

const UNUSED: Block = Block {
    next: NO_BLOCK,
    prev: NO_BLOCK,
    holders: 0,
    node: NO_LABEL,
    place: 0,
    next_copy: NO_BLOCK,
    prev_copy: NO_BLOCK,
};

/// The blocks of one engine, when they have identity.
///
/// The free queue has three parts, front first. Unlabelled blocks come back to the front, so they
/// are a stack. Then come the blocks that were never used, in order of id (R44); they are a number.
/// Labelled blocks come back to the end, and leave from anywhere when they are hit: a list. So
/// memory follows the blocks that were used.
#[derive(Clone, Debug)]
pub(crate) struct BlockPool {
    /// By id, as far as blocks were used; the first ties the list of labelled blocks together.
    blocks: Vec<Block>,
    /// Free blocks without a label; the last goes first.
    unlabelled: Vec<u32>,
    /// Blocks that were never used.
    unused_blocks: u32,
    free_blocks: u32,
    distinct_labels: u32,
}

impl BlockPool {
    /// `total_blocks` blocks, of which the first is never usable, all free.
    pub(crate) fn new(total_blocks: u32) -> Self {
        Self {
            blocks: vec![UNUSED],
            unlabelled: Vec::new(),
            unused_blocks: total_blocks - 1,
            free_blocks: total_blocks - 1,
            distinct_labels: 0,
        }
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

    /// One more request holds the labelled `block`; a resting one leaves the queue (R38).
    pub(crate) fn hold(&mut self, block: u32) {
        if self.blocks[block as usize].holders == 0 {
            self.unlink(block);
            self.free_blocks -= 1;
        }
        self.blocks[block as usize].holders += 1;
    }

    /// Takes the block at the front of the queue; its label goes now (R44).
    ///
    /// # Panics
    /// If no block is free: the caller has to have counted.
    pub(crate) fn take(&mut self, tree: &mut ContentTree) -> u32 {
        assert!(self.free_blocks > 0, "the caller counts before it takes");
        self.free_blocks -= 1;
        let block = if let Some(block) = self.unlabelled.pop() {
            block
        } else if self.unused_blocks > 0 {
            self.unused_blocks -= 1;
            self.blocks.push(UNUSED);
            (self.blocks.len() - 1) as u32
        } else {
            let block = self.blocks[NO_BLOCK as usize].next;
            self.unlink(block);
            self.unlabel(block, tree);
            block
        };
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
        self.free_blocks += 1;
        if entry.node == NO_LABEL {
            self.unlabelled.push(block);
            return;
        }
        let last = self.blocks[NO_BLOCK as usize].prev;
        let entry = &mut self.blocks[block as usize];
        entry.prev = last;
        entry.next = NO_BLOCK;
        self.blocks[last as usize].next = block;
        self.blocks[NO_BLOCK as usize].prev = block;
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
    }

    /// The free queue, front first.
    #[cfg(test)]
    pub(crate) fn queue(&self) -> Vec<u32> {
        let mut order: Vec<u32> = self.unlabelled.iter().rev().copied().collect();
        order.extend((self.blocks.len() as u32..).take(self.unused_blocks as usize));
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
