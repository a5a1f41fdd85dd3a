//! The paged KV memory of one engine, as its scheduler sees it: what would hit, how many blocks
//! are free, and who holds how many.

use super::content::{ContentTree, Step};
use super::pool::{BlockPool, NO_BLOCK};
use crate::base::ids::SlotId;
use crate::workload::request::{Content, Piece, Segment};

/// A stop token: like no token of a prompt, whose tails are never empty.
const STOP: Segment = Segment::Tail { name: 0, tokens: 0 };

/// What a look into the prefix cache found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hit {
    /// Blocks from the first one on.
    pub(crate) blocks: u32,
    /// Those of them that rest in the free queue: holding them costs free blocks.
    pub(crate) resting: u32,
}

/// KV blocks of one engine.
#[derive(Clone, Debug)]
pub(crate) struct BlockKv {
    block_tokens: u32,
    usable_blocks: u32,
    /// Without identity: free blocks, counted.
    counted_free: u32,
    /// By slot: blocks held.
    held: Vec<u32>,
    /// With prefix caching: the blocks themselves and their content.
    named: Option<Box<NamedBlocks>>,
}

#[derive(Clone, Debug)]
struct NamedBlocks {
    pool: BlockPool,
    tree: ContentTree,
    /// By slot.
    sequences: Vec<Sequence>,
    touched: u64,
}

/// What a request's blocks contain.
#[derive(Clone, Debug)]
struct Sequence {
    /// Its blocks, in order of their tokens.
    table: Vec<u32>,
    /// Its prompt's pieces, as long as nobody has asked for them.
    unnamed_prompt: Option<Vec<Piece>>,
    /// Its prompt's pieces by name, and its output once that matters.
    path: Vec<Step>,
    prompt_tokens: u32,
    /// Blocks at the start of `table` whose content has been announced (hit, or labelled).
    labelled: u32,
    output: Segment,
    /// Tokens before its stop token, if it comes to one.
    stop_after: Option<u32>,
    has_output_step: bool,
}

impl BlockKv {
    /// Memory of `total_blocks` blocks, one of which is never usable (R40), with block identity
    /// if `prefix_caching`.
    pub(crate) fn new(total_blocks: u32, block_tokens: u32, prefix_caching: bool) -> Self {
        let usable_blocks = total_blocks - 1;
        let named = prefix_caching.then(|| {
            Box::new(NamedBlocks {
                pool: BlockPool::new(total_blocks),
                tree: ContentTree::new(block_tokens),
                sequences: Vec::new(),
                touched: 0,
            })
        });
        Self { block_tokens, usable_blocks, counted_free: usable_blocks, held: Vec::new(), named }
    }

    /// The same memory, in which a block's content covers `tokens` tokens behind it too (R62).
    #[must_use]
    pub(crate) fn with_lookahead(mut self, tokens: u32) -> Self {
        if let Some(named) = &mut self.named {
            named.tree.look_ahead(tokens);
        }
        self
    }

    /// A request takes `slot`; from now on its content can be looked up. It is named when it first
    /// is: those that only wait take no room in the tree. A stop token comes after the first `stop_after` tokens of its
    /// `output`.
    pub(crate) fn open(
        &mut self,
        slot: SlotId,
        prompt: Content,
        private: Segment,
        prompt_tokens: u32,
        output: Segment,
        stop_after: Option<u32>,
    ) {
        if self.held.len() <= slot.index() {
            self.held.resize(slot.index() + 1, 0);
        }
        debug_assert_eq!(self.held[slot.index()], 0);
        let Some(named) = &mut self.named else { return };
        if named.sequences.len() <= slot.index() {
            named.sequences.resize_with(slot.index() + 1, || Sequence {
                table: Vec::new(),
                unnamed_prompt: None,
                path: Vec::new(),
                prompt_tokens: 0,
                labelled: 0,
                output,
                stop_after,
                has_output_step: false,
            });
        }
        let sequence = &mut named.sequences[slot.index()];
        debug_assert!(sequence.table.is_empty() && sequence.path.is_empty());
        sequence.prompt_tokens = prompt_tokens;
        sequence.output = output;
        sequence.stop_after = stop_after;
        sequence.has_output_step = false;
        sequence.unnamed_prompt = Some(match prompt {
            Content::Private => vec![Piece { segment: private, tokens: prompt_tokens }],
            Content::Pieces(pieces) => pieces,
        });
    }

    /// The request in `slot` is gone for good; its blocks were released before.
    pub(crate) fn close(&mut self, slot: SlotId) {
        debug_assert_eq!(self.held[slot.index()], 0);
        let Some(named) = &mut self.named else { return };
        let sequence = &mut named.sequences[slot.index()];
        if let Some(end) = sequence.path.last() {
            named.tree.release(end.node);
        }
        sequence.path.clear();
        sequence.unnamed_prompt = None;
    }

    /// The longest run of cached blocks from the first one on that holds at most
    /// `known_tokens - 1` tokens (R33, R34), without the last of them if `drops_last` (R62).
    pub(crate) fn look_up(&mut self, slot: SlotId, known_tokens: u32, drops_last: bool) -> Hit {
        let Some(named) = &mut self.named else { return Hit::default() };
        let blocks_max = known_tokens.saturating_sub(1) / self.block_tokens;
        let NamedBlocks { pool, tree, sequences, .. } = &mut **named;
        let sequence = &mut sequences[slot.index()];
        sequence.know_prompt(tree);
        if known_tokens > sequence.prompt_tokens {
            sequence.know_output(tree);
        }
        let mut hit = Hit::default();
        let mut last_rests = false;
        let mut missing = None;
        for step in &sequence.path {
            let blocks_end = tree.blocks_named_by(step.end_tokens).min(blocks_max);
            if hit.blocks == blocks_end {
                continue;
            }
            let copies = tree.first_copies(step.node);
            let place = tree.place_in(step.node, hit.blocks) as usize;
            let wanted = (blocks_end - hit.blocks) as usize;
            for &block in copies.iter().skip(place).take(wanted) {
                if block == NO_BLOCK {
                    break;
                }
                last_rests = pool.is_resting(block);
                hit.blocks += 1;
                hit.resting += u32::from(last_rests);
            }
            if hit.blocks < blocks_end {
                missing = Some((step.node, tree.place_in(step.node, hit.blocks)));
                break;
            }
        }
        tree.await_copy(missing);
        if drops_last && hit.blocks > 0 {
            hit.blocks -= 1;
            hit.resting -= u32::from(last_rests);
        }
        hit
    }

    /// Whether the latest [`BlockKv::look_up`] might find more now, or find it at other blocks.
    /// Blocks that are reused can only make it find less.
    pub(crate) fn has_news(&self) -> bool {
        self.named.as_ref().is_some_and(|named| named.tree.has_news())
    }

    /// The block that the latest [`BlockKv::look_up`] missed, by its content; none if it found all it asked for.
    pub(crate) fn missing_content(&self) -> Option<(u32, u32)> {
        self.named.as_ref().and_then(|named| named.tree.awaited())
    }

    /// Gives `slot` the blocks of `hit`, found just now, and `new_blocks` more (R38).
    pub(crate) fn admit(&mut self, slot: SlotId, hit: Hit, new_blocks: u32) {
        if let Some(named) = &mut self.named {
            let NamedBlocks { pool, tree, sequences, touched } = &mut **named;
            let sequence = &mut sequences[slot.index()];
            debug_assert!(sequence.table.is_empty());
            sequence.know_prompt(tree);
            // From here on it may label what others wait for (`expects_news`).
            sequence.know_output(tree);
            for step in &sequence.path {
                let blocks_end = tree.blocks_named_by(step.end_tokens).min(hit.blocks);
                let from = sequence.table.len() as u32;
                if from == blocks_end {
                    continue;
                }
                let place = tree.place_in(step.node, from) as usize;
                let copies = &tree.first_copies(step.node)[place..][..(blocks_end - from) as usize];
                for &block in copies {
                    pool.hold(block);
                    sequence.table.push(block);
                }
            }
            *touched += u64::from(hit.blocks);
            sequence.labelled = hit.blocks;
            self.held[slot.index()] = hit.blocks;
        }
        self.grow(slot, new_blocks);
    }

    /// Gives `slot` another `new_blocks` blocks; the caller has counted that they are free.
    pub(crate) fn grow(&mut self, slot: SlotId, new_blocks: u32) {
        self.held[slot.index()] += new_blocks;
        let Some(named) = &mut self.named else {
            self.counted_free -= new_blocks;
            return;
        };
        let NamedBlocks { pool, tree, sequences, touched } = &mut **named;
        let table = &mut sequences[slot.index()].table;
        for _ in 0..new_blocks {
            table.push(pool.take(tree));
        }
        *touched += u64::from(new_blocks);
    }

    /// Takes `blocks` blocks without identity for requests that decode in step; whose they are is
    /// said by [`BlockKv::recount`].
    pub(crate) fn take_counted(&mut self, blocks: u32) {
        debug_assert!(self.named.is_none());
        self.counted_free -= blocks;
    }

    /// `slot` holds the blocks for its first `tokens` tokens, however they came to it.
    pub(crate) fn recount(&mut self, slot: SlotId, tokens: u32) {
        let blocks = tokens.div_ceil(self.block_tokens);
        if self.named.is_some() {
            debug_assert_eq!(self.held[slot.index()], blocks);
        } else {
            self.held[slot.index()] = blocks;
        }
    }

    /// Whether blocks have identity: prefix caching is on.
    pub(crate) const fn has_identity(&self) -> bool {
        self.named.is_some()
    }

    /// Whether requests that run could bring such news by what they generate.
    pub(crate) fn expects_news(&self) -> bool {
        self.named.as_ref().is_some_and(|named| named.tree.expects_news())
    }

    /// Labels the full blocks of `slot` within its first `tokens` tokens, from where it can be
    /// hit (R41).
    pub(crate) fn label(&mut self, slot: SlotId, tokens: u32) {
        let Some(named) = &mut self.named else { return };
        let NamedBlocks { pool, tree, sequences, touched } = &mut **named;
        let sequence = &mut sequences[slot.index()];
        // Past the model length a sequence has tokens without blocks (R37).
        let full_blocks = (tokens / self.block_tokens).min(sequence.table.len() as u32);
        if full_blocks <= sequence.labelled {
            return;
        }
        if tree.reach(tokens) > sequence.prompt_tokens {
            sequence.know_output(tree);
        }
        let first_end = tree.reach((sequence.labelled + 1) * self.block_tokens);
        let first_step = sequence.path.partition_point(|step| step.end_tokens < first_end);
        for step in &sequence.path[first_step..] {
            let blocks_end = tree.blocks_named_by(step.end_tokens).min(full_blocks);
            if blocks_end <= sequence.labelled {
                continue;
            }
            let blocks = &sequence.table[sequence.labelled as usize..blocks_end as usize];
            for (place, &block) in (tree.place_in(step.node, sequence.labelled)..).zip(blocks) {
                pool.label(block, step.node, place, tree);
            }
            *touched += u64::from(blocks_end - sequence.labelled);
            sequence.labelled = blocks_end;
            if blocks_end == full_blocks {
                break;
            }
        }
    }

    /// Frees the last blocks of `slot`, from the last one on, so that it holds `blocks` at most. They have no content
    /// that was labelled.
    pub(crate) fn shrink(&mut self, slot: SlotId, blocks: u32) {
        let freed = self.held[slot.index()].saturating_sub(blocks);
        self.held[slot.index()] -= freed;
        let Some(named) = &mut self.named else {
            self.counted_free += freed;
            return;
        };
        let sequence = &mut named.sequences[slot.index()];
        debug_assert!(freed == 0 || sequence.labelled <= blocks);
        for _ in 0..freed {
            named.pool.let_go(sequence.table.pop().expect("it holds them"));
        }
        named.touched += u64::from(freed);
    }

    /// Frees every block of `slot`, from the last to the first (R43).
    pub(crate) fn release(&mut self, slot: SlotId) {
        let held = std::mem::take(&mut self.held[slot.index()]);
        let Some(named) = &mut self.named else {
            self.counted_free += held;
            return;
        };
        let sequence = &mut named.sequences[slot.index()];
        for &block in sequence.table.iter().rev() {
            named.pool.let_go(block);
        }
        named.touched += u64::from(held);
        sequence.table.clear();
        sequence.labelled = 0;
    }

    /// Blocks `slot` holds.
    pub(crate) fn held_blocks(&self, slot: SlotId) -> u32 {
        self.held[slot.index()]
    }

    /// Blocks nobody holds, cached ones included.
    pub(crate) fn free_blocks(&self) -> u32 {
        self.named.as_ref().map_or(self.counted_free, |named| named.pool.free_blocks())
    }

    /// Blocks that requests can use at all.
    pub(crate) const fn usable_blocks(&self) -> u32 {
        self.usable_blocks
    }

    /// Different block contents in the prefix cache.
    pub(crate) fn cached_contents(&self) -> u32 {
        self.named.as_ref().map_or(0, |named| named.pool.distinct_labels())
    }

    /// The blocks, their labels and their order in the free queue, as text.
    #[cfg(test)]
    pub(crate) fn state(&self) -> String {
        match &self.named {
            Some(named) => format!("{:?}", named.pool),
            None => format!("{} free", self.counted_free),
        }
    }

    /// Blocks that were taken, held, labelled or freed one by one so far.
    pub(crate) fn touched_blocks(&self) -> u64 {
        self.named.as_ref().map_or(0, |named| named.touched)
    }
}

impl Sequence {
    /// Names the prompt.
    fn know_prompt(&mut self, tree: &mut ContentTree) {
        for piece in self.unnamed_prompt.take().into_iter().flatten() {
            if piece.tokens > 0 {
                tree.extend(&mut self.path, piece);
            }
        }
    }

    /// Appends the output to the path, as long as it may become.
    fn know_output(&mut self, tree: &mut ContentTree) {
        if !self.has_output_step {
            self.has_output_step = true;
            // A stop token has no KV: it only matters where a block's content covers the token behind it.
            let stop_after = self.stop_after.filter(|_| tree.looks_ahead());
            let tokens = stop_after.unwrap_or(u32::MAX - self.prompt_tokens);
            if tokens > 0 {
                tree.extend(&mut self.path, Piece { segment: self.output, tokens });
            }
            if stop_after.is_some() {
                let tokens = u32::MAX - self.prompt_tokens.saturating_add(tokens);
                tree.extend(&mut self.path, Piece { segment: STOP, tokens });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::RequestId;

    const SLOTS: [SlotId; 3] = [SlotId(0), SlotId(1), SlotId(2)];

    fn prompt(pieces: &[(u64, u32)]) -> Content {
        let piece = |&(name, tokens)| Piece { segment: Segment::Named(name), tokens };
        Content::Pieces(pieces.iter().map(piece).collect())
    }

    fn open(kv: &mut BlockKv, slot: SlotId, pieces: &[(u64, u32)]) {
        let id = RequestId(slot.0);
        let tokens = pieces.iter().map(|p| p.1).sum();
        kv.open(slot, prompt(pieces), Segment::Prompt(id), tokens, Segment::Output(id), None);
    }

    #[test]
    fn a_prompt_of_full_cached_blocks_recomputes_the_last_one() {
        let mut kv = BlockKv::new(100, 16, true);
        open(&mut kv, SLOTS[0], &[(1, 64)]);
        kv.admit(SLOTS[0], Hit::default(), 4);
        kv.label(SLOTS[0], 64);
        open(&mut kv, SLOTS[1], &[(1, 64)]);
        // 64 tokens are 4 blocks of 16; (64 - 1) / 16 = 3 may hit, none of them at rest.
        assert_eq!(kv.look_up(SLOTS[1], 64, false), Hit { blocks: 3, resting: 0 });
        kv.release(SLOTS[0]);
        assert_eq!(kv.look_up(SLOTS[1], 64, false), Hit { blocks: 3, resting: 3 });
        assert_eq!(kv.free_blocks(), 99);
    }

    #[test]
    fn block_sizes_that_do_not_divide_the_segment_hit_up_to_the_last_common_block() {
        // Blocks of 48 over segments of 512: 10 blocks end within the first segment (480), the
        // 11th ends at 528, inside the second.
        for (second, hit_blocks) in [(2, 21), (3, 10)] {
            let mut kv = BlockKv::new(100, 48, true);
            open(&mut kv, SLOTS[0], &[(1, 512), (2, 512)]);
            kv.admit(SLOTS[0], Hit::default(), 22);
            kv.label(SLOTS[0], 1024);
            open(&mut kv, SLOTS[1], &[(1, 512), (second, 512)]);
            // 1,024 tokens hold 21 full blocks of 48 (1,008).
            assert_eq!(kv.look_up(SLOTS[1], 1024, false).blocks, hit_blocks);
        }
    }

    #[test]
    fn a_later_prompt_continues_an_output() {
        let mut kv = BlockKv::new(100, 16, true);
        open(&mut kv, SLOTS[0], &[(1, 40)]);
        kv.admit(SLOTS[0], Hit::default(), 5);
        kv.label(SLOTS[0], 70); // 40 prompt tokens and 30 of output: 4 full blocks
        let id = RequestId(0);
        let continued = Content::Pieces(vec![
            Piece { segment: Segment::Named(1), tokens: 40 },
            Piece { segment: Segment::Output(id), tokens: 30 },
            Piece { segment: Segment::Named(5), tokens: 30 },
        ]);
        kv.open(SLOTS[1], continued, Segment::Prompt(id), 100, Segment::Output(RequestId(1)), None);
        assert_eq!(kv.look_up(SLOTS[1], 100, false).blocks, 4);
    }

    #[test]
    fn tokens_without_blocks_label_nothing() {
        let mut kv = BlockKv::new(100, 32, true);
        open(&mut kv, SLOTS[0], &[(1, 97)]);
        kv.admit(SLOTS[0], Hit::default(), 1);
        kv.label(SLOTS[0], 97);
        assert_eq!(kv.cached_contents(), 1);
    }

    #[test]
    fn without_prefix_caching_blocks_are_only_counted() {
        let mut kv = BlockKv::new(100, 16, false);
        open(&mut kv, SLOTS[0], &[(1, 64)]);
        kv.admit(SLOTS[0], Hit::default(), 4);
        kv.label(SLOTS[0], 64);
        open(&mut kv, SLOTS[1], &[(1, 64)]);
        assert_eq!(kv.look_up(SLOTS[1], 64, false), Hit::default());
        assert_eq!((kv.free_blocks(), kv.cached_contents()), (95, 0));
        kv.release(SLOTS[0]);
        assert_eq!(kv.free_blocks(), 99);
    }

    #[test]
    fn nothing_stays_behind_when_all_is_released_and_reused() {
        let mut kv = BlockKv::new(10, 16, true);
        for round in 0..20 {
            let slot = SLOTS[round % 3];
            open(&mut kv, slot, &[(round as u64, 144)]);
            kv.admit(slot, Hit::default(), 9);
            kv.label(slot, 144);
            kv.release(slot);
            kv.close(slot);
            let named = kv.named.as_ref().unwrap();
            assert_eq!((kv.free_blocks(), kv.cached_contents()), (9, 9));
            assert_eq!(named.tree.len(), 1, "content without blocks is forgotten");
        }
    }
}
