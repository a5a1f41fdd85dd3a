//! What a prompt repeats of an earlier request: its prompt and its output.
//!
//! Hash ids say which prompts start alike, but not which of their tokens were generated: a prompt that
//! goes on where an earlier one and its output end is given the pieces of both, so that it finds the
//! generated tokens in the cache as an engine does. A prompt that starts like an earlier one and then
//! goes another way has the pieces of that one as far as the ids agree.

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
    fn tokens(&self) -> u64 {
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

    /// A prompt of so many tokens that is recorded as `content`, with what it repeats of this one; `None` if
    /// that is nothing. `own` names what is nobody else's.
    pub(super) fn repeated(
        &self,
        content: &Content,
        prompt_tokens: u32,
        own: Segment,
    ) -> Option<Repeated> {
        let whole = self.tokens();
        let fits = whole <= u64::from(prompt_tokens);
        let (tokens, mut pieces) = match (&self.recorded, content) {
            (Content::Private, Content::Private) if fits => {
                let rest = prompt_tokens - whole as u32;
                (whole, [self.pieces(), vec![Piece { segment: own, tokens: rest }]].concat())
            }
            // A later row may name the prompt of a row that names nothing itself.
            (Content::Private, Content::Pieces(now)) => self.shared(now, &self.sent, fits),
            (Content::Pieces(before), Content::Pieces(now)) => self.shared(now, before, fits),
            _ => return None,
        };
        pieces.retain(|piece| piece.tokens > 0);
        (tokens > 0).then_some(Repeated { pieces, tokens, goes_on: tokens == whole })
    }

    /// What `now` has in common with `before`, which is this prompt in its terms, and all of `now` with that.
    fn shared(&self, now: &[Piece], before: &[Piece], fits: bool) -> (u64, Vec<Piece>) {
        let (whole, common) = (self.tokens(), common_tokens(now, before));
        if fits && common >= whole_blocks(before) {
            (whole, self.pieces().into_iter().chain(behind(now, whole)).collect())
        } else {
            (common, up_to(&self.sent, common).chain(behind(now, common)).collect())
        }
    }

    /// A prompt that adds `added` to this one and its output, and its length; `None` beyond what a
    /// prompt may have.
    pub(super) fn with(&self, added: Vec<Piece>) -> Option<(Vec<Piece>, u32)> {
        let tokens = u32::try_from(self.tokens() + sum(&added)).ok()?;
        let mut pieces = self.pieces();
        pieces.extend(added);
        Some((pieces, tokens))
    }
}

/// A prompt with what it repeats of an earlier request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Repeated {
    pub(super) pieces: Vec<Piece>,
    /// How much that is.
    pub(super) tokens: u64,
    /// Whether it is all of the earlier prompt and its output.
    pub(super) goes_on: bool,
}

fn sum(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| u64::from(piece.tokens)).sum()
}

/// The tokens of the pieces that both start with.
fn common_tokens(now: &[Piece], before: &[Piece]) -> u64 {
    let common = now.iter().zip(before).take_while(|(a, b)| a == b);
    common.map(|(piece, _)| u64::from(piece.tokens)).sum()
}

/// Tokens of `pieces` without a partial block at its end, of which ids do not tell what follows it.
fn whole_blocks(pieces: &[Piece]) -> u64 {
    match pieces {
        [whole @ .., Piece { segment: Segment::Tail { .. }, .. }] => sum(whole),
        whole => sum(whole),
    }
}

/// The first `tokens` of `pieces`.
fn up_to(pieces: &[Piece], tokens: u64) -> impl Iterator<Item = Piece> {
    let mut left = tokens;
    pieces.iter().map(move |piece| {
        let kept = left.min(u64::from(piece.tokens));
        left -= kept;
        Piece { tokens: kept as u32, ..*piece }
    })
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

    /// What a prompt with these pieces is, how much of it is repeated, and whether it goes on.
    fn repeated(before: &Told, pieces: Vec<Piece>) -> Option<(Vec<Piece>, u64, bool)> {
        let tokens = sum(&pieces) as u32;
        let Repeated { pieces, tokens, goes_on } =
            before.repeated(&Content::Pieces(pieces), tokens, OWN)?;
        Some((pieces, tokens, goes_on))
    }

    #[test]
    fn a_prompt_goes_on_behind_the_output() {
        // 20 tokens in blocks of 16, then 30 generated ones: 50. The next prompt has 70 = 4 blocks and 6.
        let before = told(vec![named(1, 16), tail(2, 4)], 30);
        let now = vec![named(1, 16), named(3, 16), named(5, 16), named(6, 16), tail(7, 6)];
        // Behind 50: of the block that ends at 64 the last 14, and the tail.
        let expected = vec![named(1, 16), tail(2, 4), output(30), named(6, 14), tail(7, 6)];
        assert_eq!(repeated(&before, now), Some((expected, 50, true)));
    }

    #[test]
    fn a_cut_tail_is_another_tail() {
        let before = told(vec![named(1, 16)], 20);
        let now = vec![named(1, 16), named(2, 16), tail(3, 9)];
        // 36 of 41 are known; of the tail of 9, 5 are left.
        let expected = vec![named(1, 16), output(20), tail(3, 5)];
        assert_eq!(repeated(&before, now), Some((expected, 36, true)));
    }

    #[test]
    fn another_way_begins_where_ids_differ() {
        // The third request of a session: its first 20 tokens and 30 generated ones came before, as above.
        let sent = vec![named(1, 16), tail(2, 4), output(30), named(6, 14), tail(7, 6)];
        let recorded = vec![named(1, 16), named(3, 16), named(5, 16), named(6, 16), tail(7, 6)];
        let recorded = Content::Pieces(recorded);
        let before = Told { recorded, sent, prompt_tokens: 70, output: OWN, output_tokens: 9 };
        // It agrees as far as 32, which is 12 tokens into what was generated.
        let now = vec![named(1, 16), named(3, 16), named(8, 16), tail(9, 1)];
        let expected = vec![named(1, 16), tail(2, 4), output(12), named(8, 16), tail(9, 1)];
        assert_eq!(repeated(&before, now), Some((expected, 32, false)));
    }

    #[test]
    fn other_ids_and_shorter_prompts_go_their_own_way() {
        let before = told(vec![named(1, 16), named(2, 16)], 10);
        let other = vec![named(1, 16), named(9, 16), named(8, 16)];
        assert_eq!(repeated(&before, other.clone()), Some((other, 16, false)));
        assert_eq!(repeated(&before, vec![named(9, 16), named(2, 16), named(8, 16)]), None);
        // 42 were told.
        let short = vec![named(1, 16), named(2, 16), tail(3, 9)];
        assert_eq!(repeated(&before, short.clone()), Some((short.clone(), 32, false)));
        assert_eq!(before.repeated(&Content::Private, 99, OWN), None);
        let shorter = told(vec![named(1, 16), named(2, 16)], 9);
        let expected = vec![named(1, 16), named(2, 16), output(9)];
        assert_eq!(repeated(&shorter, short), Some((expected, 41, true)));
    }

    #[test]
    fn without_ids_the_length_decides() {
        let sent = vec![Piece { segment: Segment::Prompt(RequestId(4)), tokens: 10 }];
        let before = Told { recorded: Content::Private, ..told(sent.clone(), 5) };
        let pieces = vec![sent[0], output(5), Piece { segment: OWN, tokens: 3 }];
        assert_eq!(
            before.repeated(&Content::Private, 18, OWN),
            Some(Repeated { pieces, tokens: 15, goes_on: true })
        );
        assert_eq!(before.repeated(&Content::Private, 14, OWN), None);
    }

    #[test]
    fn a_prompt_without_pieces_may_be_named_later() {
        let own = Piece { segment: Segment::Prompt(RequestId(4)), tokens: 10 };
        let before = Told { recorded: Content::Private, ..told(vec![own], 5) };
        let now = vec![own, output(5), named(1, 3)];
        assert_eq!(repeated(&before, now.clone()), Some((now, 15, true)));
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
