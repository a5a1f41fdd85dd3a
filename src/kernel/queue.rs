//! The event queue: at most one pending event per source, in an order that depends on the events
//! alone.

use std::cmp::Reverse;

use priority_queue::PriorityQueue;
use rustc_hash::FxBuildHasher;

use crate::base::ids::EngineId;
use crate::base::moment::Moment;

/// Who an event belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// The stream of arriving requests.
    Arrivals,
    /// An engine.
    Engine(EngineId),
}

/// Pending events, earliest first.
#[derive(Default)]
pub(crate) struct EventQueue(PriorityQueue<Source, Reverse<Moment>, FxBuildHasher>);

impl EventQueue {
    /// The next event of `source` is at `moment`, whatever was said before.
    pub(crate) fn set(&mut self, source: Source, moment: Moment) {
        self.0.push(source, Reverse(moment));
    }

    /// `source` has no event.
    pub(crate) fn remove(&mut self, source: Source) {
        self.0.remove(&source);
    }

    /// Takes the earliest event out.
    pub(crate) fn pop(&mut self) -> Option<(Source, Moment)> {
        self.0.pop().map(|(source, Reverse(moment))| (source, moment))
    }

    /// When the earliest event is; [`Moment::NEVER`] if there is none.
    pub(crate) fn next_moment(&self) -> Moment {
        self.0.peek().map_or(Moment::NEVER, |(_, &Reverse(moment))| moment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::moment::Phase;
    use crate::base::time::SimTime;

    fn at(ns: u64, phase: Phase, source: u32) -> Moment {
        Moment { time: SimTime::from_ns(ns), phase, source }
    }

    #[test]
    fn a_source_has_one_event_and_it_can_move() {
        let mut queue = EventQueue::default();
        let engine = Source::Engine(EngineId(3));
        queue.set(engine, at(10, Phase::Completion, 3));
        queue.set(Source::Arrivals, at(7, Phase::Arrival, 0));
        queue.set(engine, at(5, Phase::Completion, 3));
        assert_eq!(queue.next_moment(), at(5, Phase::Completion, 3));
        assert_eq!(queue.pop(), Some((engine, at(5, Phase::Completion, 3))));
        assert_eq!(queue.pop(), Some((Source::Arrivals, at(7, Phase::Arrival, 0))));
        assert_eq!((queue.pop(), queue.next_moment()), (None, Moment::NEVER));
    }
}
