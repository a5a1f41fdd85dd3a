//! How many rounds an output takes where drafts are accepted by chance.

use super::schedule::Rounds;
use crate::engine::drafting::Acceptance;
use crate::scenario::SpeculationFacts;

/// Tokens up to which the mean is computed round by round; from there on it grows evenly.
const EXACT_TOKENS: u32 = 1 << 14;

impl Rounds {
    /// Those that decode `tokens` tokens one by one.
    pub(super) fn plain(tokens: u32) -> Self {
        Self { per_request: tokens.into(), query_tokens: 1.0 }
    }

    /// Those that decode `tokens` tokens with drafts.
    pub(super) fn speculative(
        tokens: u32,
        speculates: &SpeculationFacts,
        acceptance: &Acceptance,
    ) -> Self {
        let none = if speculates.looks_up { acceptance.none_found } else { 0.0 };
        let at_least: Vec<f64> = (acceptance.at_least.iter())
            .take(speculates.drafts as usize)
            .map(|chance| chance * (1.0 - none))
            .collect();
        let [verified, draftless] =
            [speculates.verified_tokens, speculates.draftless_tokens].map(f64::from);
        Self {
            per_request: rounds_mean(tokens, &at_least),
            query_tokens: verified + none * (draftless - verified),
        }
    }
}

/// Tokens that a round brings on average: its own, and the drafts it accepts.
pub(super) fn tokens_mean(at_least: &[f64]) -> f64 {
    1.0 + at_least.iter().sum::<f64>()
}

/// The mean number of rounds until there are `tokens` tokens, where a round accepts at least 1, 2, ... drafts with the
/// chances `at_least`. The first round brings some tokens, and what is left takes as long as if it were all there is.
fn rounds_mean(tokens: u32, at_least: &[f64]) -> f64 {
    let exact = tokens.min(EXACT_TOKENS);
    let mut means = vec![0.0];
    for left in 1..=exact as usize {
        let mut mean = 1.0;
        for (accepted, chance) in (0..).zip(std::iter::once(&1.0).chain(at_least)) {
            let chance_of_more = at_least.get(accepted).copied().unwrap_or(0.0);
            // What is past the end is thrown away.
            let rest = left.saturating_sub(1 + accepted);
            mean += (chance - chance_of_more) * means[rest];
        }
        means.push(mean);
    }
    means[exact as usize] + f64::from(tokens - exact) / tokens_mean(at_least)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9, "{a} is not {b}");
    }

    #[test]
    fn certain_bursts_take_whole_rounds() {
        assert_eq!(Rounds::plain(7), Rounds { per_request: 7.0, query_tokens: 1.0 });
        // 10 tokens by 3 a round: 3, 3, 3, 1.
        close(rounds_mean(10, &[1.0, 1.0, 0.0]), 4.0);
        close(rounds_mean(9, &[1.0, 1.0]), 3.0);
        close(rounds_mean(5, &[]), 5.0);
        close(rounds_mean(0, &[0.5]), 0.0);
        // Far out by the mean: 2^14 tokens take 5462 rounds of 3, each further one a third.
        close(rounds_mean((1 << 14) + 30, &[1.0, 1.0]), 5462.0 + 10.0);
    }

    #[test]
    fn chances_give_the_mean_over_all_courses() {
        // One draft with a chance of 1/2. 1 token: a round. 2: 1 + 1/2 * 1. 3: 1 + 1/2 * 1.5 + 1/2 * 1 = 2.25.
        close(rounds_mean(1, &[0.5]), 1.0);
        close(rounds_mean(2, &[0.5]), 1.5);
        close(rounds_mean(3, &[0.5]), 2.25);
        // 0.8, 0.48, 0.192 bring 2.472 tokens a round; over many of them that decides.
        let at_least = [0.8, 0.48, 0.192];
        close(tokens_mean(&at_least), 2.472);
        let many = rounds_mean(10_000, &at_least);
        assert!((many / (10_000.0 / 2.472) - 1.0).abs() < 2e-4, "{many}");
    }

    #[test]
    fn missing_drafts_make_rounds_more_and_shorter() {
        let speculates = SpeculationFacts {
            method: "ngram",
            drafts: 2,
            verified_tokens: 3,
            draftless_tokens: 1,
            looks_up: true,
            field: "",
        };
        let acceptance = Acceptance { at_least: vec![1.0, 1.0, 1.0], none_found: 0.25 };
        let rounds = Rounds::speculative(4, &speculates, &acceptance);
        // 3 tokens with a chance of 3/4, else 1. 1, 2, 3 tokens: 1, 1 + 1/4 * 1, 1 + 1/4 * 1.25 = 1.3125;
        // 4 tokens: 1 + 3/4 * 1 + 1/4 * 1.3125 = 2.078125. Tokens computed: 3/4 * 3 + 1/4 * 1.
        close(rounds.per_request, 2.078_125);
        close(rounds.query_tokens, 2.5);
    }
}
