//! Requests under new numbers: where some were left out or came in another order, what a prompt says of
//! others has to follow.

use std::collections::BTreeMap;

use super::request::{Content, Segment};
use crate::base::digest::Digest;
use crate::base::ids::RequestId;

/// New numbers by old ones. Numbers that follow each other on both sides are one entry, so that memory
/// grows with the gaps and not with the requests.
#[derive(Clone, Debug)]
pub(crate) struct Renumbering {
    /// By the first old number of a run: its new number, and the length of the run.
    runs: BTreeMap<u32, (u32, u32)>,
    /// Tells the names made here from those of other renumberings of one workload.
    salt: u64,
}

impl Renumbering {
    /// No numbers yet. Renumberings that follow each other have different salts, none of them 0.
    pub(crate) const fn new(salt: u64) -> Self {
        Self { runs: BTreeMap::new(), salt }
    }

    /// The request that was `old` is `new`; O(log runs).
    pub(crate) fn push(&mut self, old: u32, new: RequestId) {
        if let Some((&start, (first, length))) = self.runs.range_mut(..=old).next_back()
            && old - start == *length
            && first.checked_add(*length) == Some(new.0)
        {
            *length += 1;
        } else {
            self.runs.insert(old, (new.0, 1));
        }
    }

    /// Forgets all numbers.
    pub(crate) fn clear(&mut self) {
        self.runs.clear();
    }

    /// What a segment is called under the new numbers. What belongs to a request without one keeps a
    /// name of its own: a hash, which meets another name as rarely as any two hashes do.
    pub(crate) fn segment(&self, segment: Segment) -> Segment {
        let renamed = |kind: u64, old: RequestId, of: fn(RequestId) -> Segment| {
            self.get(old.0).map_or_else(|| Segment::Named(self.name(kind, old)), of)
        };
        match segment {
            Segment::Prompt(old) => renamed(0, old, Segment::Prompt),
            Segment::Output(old) => renamed(1, old, Segment::Output),
            Segment::Named(_) | Segment::Tail { .. } => segment,
        }
    }

    /// A prompt under the new numbers.
    pub(crate) fn content(&self, mut content: Content) -> Content {
        if let Content::Pieces(pieces) = &mut content {
            pieces.iter_mut().for_each(|piece| piece.segment = self.segment(piece.segment));
        }
        content
    }

    fn get(&self, old: u32) -> Option<RequestId> {
        let (start, (first, length)) = self.runs.range(..=old).next_back()?;
        (old - start < *length).then(|| RequestId(first + (old - start)))
    }

    fn name(&self, kind: u64, old: RequestId) -> u64 {
        let mut name = Digest::new();
        [self.salt, kind, old.0.into()].into_iter().for_each(|part| name.add(part));
        name.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_follow_each_other_are_one_run() {
        let mut numbers = Renumbering::new(1);
        // 10, 11, 12 become 0, 1, 2; 14 becomes 3; 13, which came late, 4.
        for (old, new) in [(10, 0), (11, 1), (12, 2), (14, 3), (13, 4)] {
            numbers.push(old, RequestId(new));
        }
        let new = [9, 10, 12, 13, 14, 15].map(|old| numbers.get(old).map(|id| id.0));
        assert_eq!(new, [None, Some(0), Some(2), Some(4), Some(3), None]);
        assert_eq!(numbers.runs.len(), 3);
    }

    #[test]
    fn what_was_left_out_keeps_names_of_its_own() {
        let (mut first, second) = (Renumbering::new(1), Renumbering::new(2));
        first.push(7, RequestId(0));
        let old = RequestId(7);
        assert_eq!(first.segment(Segment::Output(old)), Segment::Output(RequestId(0)));
        let gone = RequestId(8);
        let names = [
            first.segment(Segment::Prompt(gone)),
            first.segment(Segment::Output(gone)),
            first.segment(Segment::Prompt(RequestId(9))),
            second.segment(Segment::Prompt(gone)),
            second.segment(Segment::Output(gone)),
        ];
        for (at, name) in names.iter().enumerate() {
            assert!(matches!(name, Segment::Named(_)) && !names[..at].contains(name), "{names:?}");
        }
        assert_eq!(first.segment(Segment::Named(8)), Segment::Named(8));
    }
}
