//! What speculation came to: rounds, and the drafts in them.

use serde::{Deserialize, Serialize};

use super::passes::ratio;
use super::record::{DRAFTS_MAX, Rounds};

/// The rounds of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundStatistics {
    /// Most drafts of a round.
    drafts_max: u32,
    rounds: Rounds,
}

/// What speculation came to, over the rounds of the counted requests. A round is one decode of one request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SpeculationSummary {
    /// Rounds.
    pub(crate) rounds: u64,
    /// Rounds that verified drafts.
    pub(crate) verifying_rounds: u64,
    /// Drafts verified.
    pub(crate) drafts: u64,
    /// Drafts accepted, those past the end of their request included.
    pub(crate) accepted_drafts: u64,
    /// Drafts that gave no visible token: rejected, or past the end.
    pub(crate) wasted_drafts: u64,
    /// Tokens that the rounds gave.
    pub(crate) tokens: u64,
    /// Drafts accepted over drafts verified.
    pub(crate) acceptance_ratio: Option<f64>,
    /// 1 and the mean number of drafts accepted in a round that verified any, as vLLM logs it.
    pub(crate) acceptance_length_mean: Option<f64>,
    /// Visible tokens over rounds.
    pub(crate) tokens_per_round_mean: Option<f64>,
    /// By position, the rounds in which at least so many drafts were accepted over those that verified any.
    pub(crate) position_acceptance_ratio: Vec<Option<f64>>,
}

impl RoundStatistics {
    /// Of rounds that verify up to `drafts_max` drafts, none of which has come.
    pub(crate) fn new(drafts_max: u32) -> Self {
        Self { drafts_max: drafts_max.min(DRAFTS_MAX), rounds: Rounds::default() }
    }

    /// More rounds.
    pub(crate) fn add(&mut self, rounds: &Rounds) {
        self.rounds.merge(rounds);
    }

    /// All of them in figures.
    pub(crate) fn summary(&self) -> SpeculationSummary {
        let Rounds { rounds, verifying, drafts, accepted, tokens, accepted_at } = self.rounds;
        let over = |amount: u64, whole: u64| ratio(amount as f64, whole as f64);
        let positions = &accepted_at[..self.drafts_max as usize];
        SpeculationSummary {
            rounds,
            verifying_rounds: verifying,
            drafts,
            accepted_drafts: accepted,
            // A round gives a token of its own and those of the drafts that count.
            wasted_drafts: drafts - (tokens - rounds),
            tokens,
            acceptance_ratio: over(accepted, drafts),
            acceptance_length_mean: over(verifying + accepted, verifying),
            tokens_per_round_mean: over(tokens, rounds),
            position_acceptance_ratio: positions.iter().map(|&at| over(at, verifying)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_draft_is_visible_or_wasted() {
        let mut rounds = Rounds::default();
        // Three rounds of 4 drafts: 2 accepted; 4 accepted, of which 1 lies past the end; none. One without drafts.
        rounds.add(1, 4, 2, 3);
        rounds.add(1, 4, 4, 4);
        rounds.add(1, 4, 0, 1);
        rounds.add(1, 0, 0, 1);
        let mut all = RoundStatistics::new(5);
        all.add(&rounds);
        let summary = all.summary();
        assert_eq!((summary.rounds, summary.verifying_rounds), (4, 3));
        assert_eq!((summary.drafts, summary.accepted_drafts, summary.tokens), (12, 6, 9));
        // 9 tokens of 4 rounds: 5 of them were drafts, 7 drafts are wasted.
        assert_eq!(summary.wasted_drafts, 7);
        assert_eq!(summary.acceptance_ratio, Some(0.5));
        assert_eq!(summary.acceptance_length_mean, Some(3.0));
        assert_eq!(summary.tokens_per_round_mean, Some(2.25));
        let third = Some(1.0 / 3.0);
        let two = Some(2.0 / 3.0);
        assert_eq!(summary.position_acceptance_ratio, [two, two, third, third, Some(0.0)]);
    }

    #[test]
    fn without_rounds_nothing_is_known() {
        let summary = RoundStatistics::new(1).summary();
        assert_eq!((summary.rounds, summary.wasted_drafts), (0, 0));
        assert_eq!(summary.acceptance_ratio, None);
        assert_eq!(summary.tokens_per_round_mean, None);
        assert_eq!(summary.position_acceptance_ratio, [None]);
    }
}
