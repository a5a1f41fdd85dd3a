//! Speculation: what becomes of the drafts that a pass verifies.
//!
//! A request's round verifies `d` drafts in one pass of `1 + d` query tokens, of which the first `a`
//! are accepted; `a + 1` tokens come out. How many are accepted is drawn, one draw a round, from a
//! stream of the engine and the request: neither the order of engines nor that of requests in a pass
//! changes a draw. A request with a record of its rounds follows that instead.
//!
//! Not here: which drafts are scheduled, and what happens to the rejected ones (see the families).

pub(crate) mod config;

use std::sync::Arc;

use crate::base::ids::{EngineId, RequestId, SlotId};
use crate::base::rng::Stream;
use crate::workload::request::RecordedDrafts;

/// How likely drafts are accepted, and found; by default none is accepted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Acceptance {
    /// The chance that at least so many drafts are accepted, from 1 on; it never rises.
    pub(crate) at_least: Vec<f64>,
    /// The chance that no draft is found.
    pub(crate) none_found: f64,
}

impl Acceptance {
    /// The drafts that are accepted where `draw`, from 0 to below 1, comes out: the more the smaller it is.
    fn accepted(&self, draw: f64) -> u32 {
        self.at_least.iter().take_while(|&&chance| draw < chance).count() as u32
    }

    /// The drafts that are accepted in every round, if nothing is left to chance.
    pub(crate) fn certain(&self) -> Option<u32> {
        let is_certain = |&chance: &f64| chance <= 0.0 || chance >= 1.0;
        (self.at_least.iter().all(is_certain) && self.none_found <= 0.0).then(|| self.accepted(0.5))
    }
}

/// What becomes of the drafts of one engine's requests.
#[derive(Clone, Debug)]
pub(crate) struct Drafting {
    acceptance: Arc<Acceptance>,
    seed: u64,
    engine: EngineId,
    /// By slot.
    requests: Vec<Drafted>,
}

/// Where a request stands.
#[derive(Clone, Debug, Default)]
struct Drafted {
    id: RequestId,
    record: Option<Box<RecordedDrafts>>,
    /// Rounds that verified drafts.
    rounds: u32,
    /// Searches for drafts.
    searches: u32,
    accepting: Option<Box<Stream>>,
    finding: Option<Box<Stream>>,
}

impl Drafting {
    /// Draws for the requests of `engine` from streams of `seed`.
    pub(crate) fn new(acceptance: Arc<Acceptance>, seed: u64, engine: EngineId) -> Self {
        Self { acceptance, seed, engine, requests: Vec::new() }
    }

    /// The tokens that a round of `drafts` drafts gives, if nothing is left to chance.
    pub(crate) fn burst_tokens(&self, drafts: u32) -> Option<u32> {
        self.acceptance.certain().map(|accepted| accepted.min(drafts) + 1)
    }

    /// The request `id` takes `slot`, with a record of its rounds or without.
    pub(crate) fn open(
        &mut self,
        slot: SlotId,
        id: RequestId,
        record: Option<Box<RecordedDrafts>>,
    ) {
        if self.requests.len() <= slot.index() {
            self.requests.resize_with(slot.index() + 1, Drafted::default);
        }
        self.requests[slot.index()] = Drafted { id, record, ..Drafted::default() };
    }

    /// The request in `slot` is over.
    pub(crate) fn close(&mut self, slot: SlotId) {
        self.requests[slot.index()] = Drafted::default();
    }

    /// Whether nothing is left to chance in the rounds of the request in `slot`: each accepts
    /// [`Drafting::burst_tokens`] less one.
    pub(crate) fn is_certain(&self, slot: SlotId) -> bool {
        self.requests[slot.index()].record.is_none() && self.acceptance.certain().is_some()
    }

    /// How many of its `drafts` drafts, from 1, are accepted in the next round of the request in `slot`.
    pub(crate) fn accept(&mut self, slot: SlotId, drafts: u32) -> u32 {
        let Self { acceptance, seed, engine, requests } = self;
        let request = &mut requests[slot.index()];
        let accepted = if let Some(record) = &request.record {
            nth(&record.accepted, request.rounds)
        } else {
            let stream = request.accepting.get_or_insert_with(|| {
                Box::new(Stream::new(*seed, &format!("accepted drafts {engine}/{}", request.id)))
            });
            acceptance.accepted(stream.uniform())
        };
        request.rounds = request.rounds.wrapping_add(1);
        accepted.min(drafts)
    }

    /// How many drafts, at most `drafts`, are found for the next round of the request in `slot`.
    pub(crate) fn find(&mut self, slot: SlotId, drafts: u32) -> u32 {
        let request = &mut self.requests[slot.index()];
        if let Some(record) = request.record.as_ref().filter(|record| !record.found.is_empty()) {
            let found = nth(&record.found, request.searches);
            request.searches = request.searches.wrapping_add(1);
            return found.min(drafts);
        }
        if self.finds_none(slot) { 0 } else { drafts }
    }

    /// Whether no draft is found for the next round of the request in `slot`, as chance has it. With a record of its
    /// rounds there always is one.
    pub(crate) fn finds_none(&mut self, slot: SlotId) -> bool {
        let Self { acceptance, seed, engine, requests } = self;
        let request = &mut requests[slot.index()];
        if request.record.is_some() || acceptance.none_found <= 0.0 {
            return false;
        }
        let stream = request.finding.get_or_insert_with(|| {
            Box::new(Stream::new(*seed, &format!("found drafts {engine}/{}", request.id)))
        });
        stream.uniform() < acceptance.none_found
    }
}

/// The entry of place `at` in a list that starts over at its end; 0 in an empty one.
fn nth(list: &[u32], at: u32) -> u32 {
    let place = (at as usize).checked_rem(list.len());
    place.map_or(0, |place| list[place])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: SlotId = SlotId(0);

    fn drafting(at_least: &[f64], none_found: f64) -> Drafting {
        let acceptance = Acceptance { at_least: at_least.to_vec(), none_found };
        Drafting::new(Arc::new(acceptance), 7, EngineId(0))
    }

    fn accepted(drafting: &mut Drafting, id: u32, rounds: usize, drafts: u32) -> Vec<u32> {
        drafting.open(SLOT, RequestId(id), None);
        (0..rounds).map(|_| drafting.accept(SLOT, drafts)).collect()
    }

    #[test]
    fn rates_give_their_mean() {
        // Conditional rates 0.8, 0.6, 0.4: at least one with 0.8, two with 0.48, three with 0.192.
        // A round gives 1 + 0.8 + 0.48 + 0.192 = 2.472 tokens.
        let mut drafting = drafting(&[0.8, 0.48, 0.192], 0.0);
        let sample = accepted(&mut drafting, 3, 100_000, 3);
        let mean = 1.0 + f64::from(sample.iter().sum::<u32>()) / 1e5;
        // The variance of one round is below 1.2, so that of the mean is 1.2e-5: six deviations are 0.021.
        assert!((mean - 2.472).abs() < 0.021, "{mean}");
        // Fewer drafts are accepted as far as there are any.
        let cut = accepted(&mut drafting, 3, 100_000, 1);
        assert_eq!(cut, sample.iter().map(|&a| a.min(1)).collect::<Vec<_>>());
    }

    #[test]
    fn a_mean_between_two_numbers_gives_these_two() {
        let mut drafting = drafting(&[1.0, 1.0, 0.2], 0.0);
        let sample = accepted(&mut drafting, 0, 100_000, 5);
        assert!(sample.iter().all(|&a| a == 2 || a == 3));
        let threes = sample.iter().filter(|&&a| a == 3).count() as f64 / 1e5;
        // Six standard deviations of sqrt(0.2 * 0.8 / 1e5) = 0.00126.
        assert!((threes - 0.2).abs() < 0.0076, "{threes}");
    }

    #[test]
    fn a_draw_depends_on_the_engine_and_the_request_alone() {
        let mut both = drafting(&[0.5; 4], 0.0);
        let alone = accepted(&mut both, 1, 50, 4);
        assert_ne!(alone, accepted(&mut both, 2, 50, 4));
        assert_eq!(alone, accepted(&mut both, 1, 50, 4));
        let mut elsewhere = Drafting { engine: EngineId(1), ..both };
        assert_ne!(alone, accepted(&mut elsewhere, 1, 50, 4));
    }

    #[test]
    fn a_record_is_followed_and_starts_over() {
        let mut drafting = drafting(&[0.5; 4], 0.9);
        let record = RecordedDrafts { accepted: vec![2, 0, 4], found: vec![3, 0] };
        drafting.open(SLOT, RequestId(0), Some(Box::new(record)));
        let accepted: Vec<_> = [4, 4, 3, 1, 4].map(|drafts| drafting.accept(SLOT, drafts)).into();
        assert_eq!(accepted, [2, 0, 3, 1, 0]);
        assert_eq!([4, 4, 2].map(|drafts| drafting.find(SLOT, drafts)), [3, 0, 2]);
    }

    #[test]
    fn nothing_is_found_as_often_as_said() {
        let mut drafting = drafting(&[1.0], 0.25);
        drafting.open(SLOT, RequestId(0), None);
        let nothing = (0..100_000).filter(|_| drafting.find(SLOT, 3) == 0).count() as f64 / 1e5;
        // Six standard deviations of sqrt(0.25 * 0.75 / 1e5) = 0.00137.
        assert!((nothing - 0.25).abs() < 0.0083, "{nothing}");
    }

    #[test]
    fn only_what_is_sure_is_certain() {
        let certain = |at_least: &[f64], none_found| {
            Acceptance { at_least: at_least.to_vec(), none_found }.certain()
        };
        assert_eq!(certain(&[1.0, 1.0, 0.0], 0.0), Some(2));
        assert_eq!(certain(&[0.0], 0.0), Some(0));
        assert_eq!(certain(&[1.0, 0.5], 0.0), None);
        assert_eq!(certain(&[1.0], 0.1), None);
    }
}
