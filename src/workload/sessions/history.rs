//! What a prompt repeats of an earlier request: its prompt and its output.
//!
//! Hash ids say which prompts start alike, but not which of their tokens were generated: a prompt that
//! goes on where an earlier one and its output end is given the pieces of both, so that it finds the
//! generated tokens in the cache as an engine does.

use crate::workload::request::{Content, Piece, Segment};

/// A request that later ones may continue.
#[derive(Clone, Debug)]
pub(super) struct Told {
    /// Its prompt as recorded, and as it was sent.
    pub(super) recorded: Content,
    pub(super) sent: Vec<Piece>,
    pub(super) prompt_tokens: u32,
    pub(super) output: Segment,
    pub(super) output_tokens: u32,
}

impl Told {
    /// Its prompt and output.
    pub(super) fn tokens(&self) -> u64 {
        u64::from(self.prompt_tokens) + u64::from(self.output_tokens)
    }

    /// The pieces of its prompt and output.
    fn pieces(&self) -> Vec<Piece> {
        let output = Piece { segment: self.output, tokens: self.output_tokens };
        let mut pieces = self.sent.clone();
        pieces.push(output);
        pieces.retain(|piece| piece.tokens > 0);
        pieces
    }

    /// A prompt of so many tokens that is recorded as `content`, as the continuation of this one; `None`
    /// if it is not: it is too short, or its ids are others. `own` names what is nobody else's.
    pub(super) fn continued(
        &self,
        content: &Content,
        prompt_tokens: u32,
        own: Segment,
    ) -> Option<Vec<Piece>> {
        let shared = self.tokens();
        if shared > u64::from(prompt_tokens) {
            return None;
        }
        let rest = prompt_tokens - shared as u32;
        let mut pieces = self.pieces();
        match (&self.recorded, content) {
            (Content::Private, Content::Private) => {
                pieces.push(Piece { segment: own, tokens: rest });
            }
            (Content::Pieces(before), Content::Pieces(now)) => {
                if !starts_with(now, before) {
                    return None;
                }
                pieces.extend(behind(now, shared));
            }
            _ => return None,
        }
        pieces.retain(|piece| piece.tokens > 0);
        Some(pieces)
    }

    /// A prompt that adds `added` to this one and its output, and its length; `None` beyond what a
    /// prompt may have.
    pub(super) fn with(&self, added: Vec<Piece>) -> Option<(Vec<Piece>, u32)> {
        let more: u64 = added.iter().map(|piece| u64::from(piece.tokens)).sum();
        let tokens = u32::try_from(self.tokens() + more).ok()?;
        let mut pieces = self.pieces();
        pieces.extend(added);
        Some((pieces, tokens))
    }
}

/// Whether `now` starts with the pieces of `before`, but for a partial block at its end.
fn starts_with(now: &[Piece], before: &[Piece]) -> bool {
    let whole = match before.last() {
        Some(Piece { segment: Segment::Tail { .. }, .. }) => &before[..before.len() - 1],
        _ => before,
    };
    now.starts_with(whole)
}

/// What of `pieces` lies behind the first `tokens`.
fn behind(pieces: &[Piece], tokens: u64) -> impl Iterator<Item = Piece> {
    let mut end = 0_u64;
    pieces.iter().filter_map(move |piece| {
        end += u64::from(piece.tokens);
        let left = end.saturating_sub(tokens).min(u64::from(piece.tokens)) as u32;
        let segment = match piece.segment {
            // What is left of a partial block is one of another length.
            Segment::Tail { name, .. } => Segment::Tail { name, tokens: left },
            segment => segment,
        };
        (left > 0).then_some(Piece { segment, tokens: left })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::RequestId;

    const OUTPUT: Segment = Segment::Output(RequestId(4));
    const OWN: Segment = Segment::Prompt(RequestId(5));

    fn named(name: u64, tokens: u32) -> Piece {
        Piece { segment: Segment::Named(name), tokens }
    }

    fn tail(name: u64, tokens: u32) -> Piece {
        Piece { segment: Segment::Tail { name, tokens }, tokens }
    }

    fn told(pieces: Vec<Piece>, output_tokens: u32) -> Told {
        Told {
            prompt_tokens: pieces.iter().map(|piece| piece.tokens).sum(),
            recorded: Content::Pieces(pieces.clone()),
            sent: pieces,
            output: OUTPUT,
            output_tokens,
        }
    }

    fn output(tokens: u32) -> Piece {
        Piece { segment: OUTPUT, tokens }
    }

    #[test]
    fn a_prompt_goes_on_behind_the_output() {
        // 20 tokens in blocks of 16, then 30 generated ones: 50. The next prompt has 70 = 4 blocks and 6.
        let before = told(vec![named(1, 16), tail(2, 4)], 30);
        let now = vec![named(1, 16), named(3, 16), named(5, 16), named(6, 16), tail(7, 6)];
        let pieces = before.continued(&Content::Pieces(now), 70, OWN).unwrap();
        // Behind 50: of the block that ends at 64 the last 14, and the tail.
        let expected = [named(1, 16), tail(2, 4), output(30), named(6, 14), tail(7, 6)];
        assert_eq!(pieces, expected);
        assert_eq!(pieces.iter().map(|piece| piece.tokens).sum::<u32>(), 70);
    }

    #[test]
    fn a_cut_tail_is_another_tail() {
        let before = told(vec![named(1, 16)], 20);
        let now = vec![named(1, 16), named(2, 16), tail(3, 9)];
        let pieces = before.continued(&Content::Pieces(now), 41, OWN).unwrap();
        // 36 of 41 are known; of the tail of 9, 5 are left.
        assert_eq!(pieces, [named(1, 16), output(20), tail(3, 5)]);
    }

    #[test]
    fn other_ids_and_shorter_prompts_go_their_own_way() {
        let before = told(vec![named(1, 16), named(2, 16)], 10);
        let other = vec![named(1, 16), named(9, 16), named(8, 16)];
        assert_eq!(before.continued(&Content::Pieces(other), 48, OWN), None);
        let short = vec![named(1, 16), named(2, 16), tail(3, 9)];
        assert_eq!(
            before.continued(&Content::Pieces(short.clone()), 41, OWN),
            None,
            "42 were told"
        );
        assert_eq!(before.continued(&Content::Private, 99, OWN), None);
        let longer = told(vec![named(1, 16), named(2, 16)], 9);
        assert_eq!(
            longer.continued(&Content::Pieces(short), 41, OWN),
            Some(vec![named(1, 16), named(2, 16), output(9)])
        );
    }

    #[test]
    fn without_ids_the_length_decides() {
        let sent = vec![Piece { segment: Segment::Prompt(RequestId(4)), tokens: 10 }];
        let before = Told { recorded: Content::Private, ..told(sent.clone(), 5) };
        let own = Piece { segment: OWN, tokens: 3 };
        assert_eq!(
            before.continued(&Content::Private, 18, OWN),
            Some(vec![sent[0], output(5), own])
        );
        assert_eq!(before.continued(&Content::Private, 14, OWN), None);
    }

    #[test]
    fn what_is_added_comes_behind() {
        let before = told(vec![named(1, 16)], 4);
        assert_eq!(
            before.with(vec![named(7, 30)]),
            Some((vec![named(1, 16), output(4), named(7, 30)], 50))
        );
        assert_eq!(before.with(vec![named(7, u32::MAX)]), None);
    }
}
