//! The order of events: by time, then by phase, then by source.
//!
//! It depends on nothing else, above all not on the order in which events were announced.

use super::time::SimTime;

/// What happens first among the events of one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    /// Passes end and their tokens become known.
    Completion,
    /// Requests arrive, in order of the workload.
    Arrival,
    /// Idle engines start passes, in order of id.
    Start,
}

/// The place of an event in the order of all events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Moment {
    /// When.
    pub(crate) time: SimTime,
    /// Where in that instant.
    pub(crate) phase: Phase,
    /// Whose, among events of the same phase and instant.
    pub(crate) source: u32,
}

impl Moment {
    /// After everything that can happen.
    pub(crate) const NEVER: Self =
        Self { time: SimTime::MAX, phase: Phase::Start, source: u32::MAX };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_end_before_arrivals_and_start_after_them() {
        let at = |ns, phase, source| Moment { time: SimTime::from_ns(ns), phase, source };
        let expected = [
            at(4, Phase::Start, 9),
            at(5, Phase::Completion, 1),
            at(5, Phase::Completion, 2),
            at(5, Phase::Arrival, 0),
            at(5, Phase::Start, 1),
            at(6, Phase::Completion, 0),
        ];
        let mut shuffled = [3, 1, 5, 0, 4, 2].map(|i: usize| expected[i]);
        shuffled.sort();
        assert_eq!(shuffled, expected);
    }
}
