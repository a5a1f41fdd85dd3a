//! What prompts have in common, whatever came between them.

use super::request::{Piece, Segment};
use crate::base::lookup::LookupMap;

/// All prompts so far, as a tree of pieces that forgets nothing. Memory grows with the number of
/// different pieces.
#[derive(Debug, Default)]
pub(crate) struct PromptTree {
    /// A node by the node before it, the tokens of that node before it, and its segment.
    nodes: LookupMap<(u32, u32, Segment), u32>,
    /// Tokens that some prompt has of each node.
    seen: Vec<u32>,
}

/// A step of a prompt: the node, and where its tokens end in the prompt. A node and an end stand for
/// everything up to there.
pub(crate) type Step = (u32, u32);

impl PromptTree {
    /// The path of a prompt, with how many of its first tokens were there before; O(pieces).
    pub(crate) fn walk(&mut self, pieces: &[Piece]) -> (Vec<Step>, u64) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(name: u64, tokens: u32) -> Piece {
        Piece { segment: Segment::Named(name), tokens }
    }

    #[test]
    fn paths_agree_as_far_as_prompts_do() {
        let mut tree = PromptTree::default();
        let (a, hits) = tree.walk(&[piece(1, 10), piece(2, 10)]);
        assert_eq!((a[0].1, a[1].1, hits), (10, 20, 0));
        // Ten of 1; 2 behind it as far as 4.
        let (b, hits) = tree.walk(&[piece(1, 10), piece(2, 4), piece(3, 5)]);
        assert_eq!((b[0], b[1].0, hits), (a[0], a[1].0, 14));
        // Behind more of 1, what follows is elsewhere.
        let (c, hits) = tree.walk(&[piece(1, 12), piece(2, 10)]);
        assert!(c[0].0 == a[0].0 && c[1].0 != a[1].0);
        assert_eq!(hits, 10);
    }
}
