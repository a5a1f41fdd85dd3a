//! The `speculation` part of a scenario: what becomes of drafts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Acceptance;
use crate::base::config::ConfigError;
use crate::base::record::DRAFTS_MAX;

/// What becomes of the drafts of an engine that speculates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SpeculationConfig {
    /// How many drafts of a round are accepted, of requests that have no record of it; absent: all have one.
    pub(crate) acceptance: Option<AcceptanceConfig>,
    /// The chance that no draft is found for a round, where drafts are looked up.
    pub(crate) no_draft_ratio: f64,
}

/// How many drafts of a round are accepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum AcceptanceConfig {
    /// By position, the chance that a draft is accepted if those before it are.
    ConditionalRates(Vec<f64>),
    /// By position, the chance that a draft is accepted, as vLLM logs it; none above the one before.
    PositionRates(Vec<f64>),
    /// The mean; each round accepts one of the two integers next to it.
    AcceptedDraftsMean(f64),
}

impl AcceptanceConfig {
    /// # Errors
    /// A number that is out of range by itself, or a rate above the one before.
    fn check(&self) -> Result<(), ConfigError> {
        match self {
            Self::ConditionalRates(rates) => check_rates("conditional_rates", rates),
            Self::PositionRates(rates) => {
                check_rates("position_rates", rates)?;
                if let Some(place) = rates.windows(2).position(|pair| pair[1] > pair[0]) {
                    let accepted = format!("at most the rate before it ({})", rates[place]);
                    let path = format!("position_rates[{}]", place + 1);
                    return Err(ConfigError::new(&path, rates[place + 1], accepted));
                }
                Ok(())
            }
            &Self::AcceptedDraftsMean(mean) => {
                if (0.0..=f64::from(DRAFTS_MAX)).contains(&mean) {
                    return Ok(());
                }
                let accepted = format!("a number from 0 to {DRAFTS_MAX}");
                Err(ConfigError::new("accepted_drafts_mean", mean, accepted))
            }
        }
    }

    /// The chances that at least so many of `drafts` drafts are accepted, from 1 on.
    ///
    /// # Errors
    /// Too few rates, or a mean of more drafts than a round has.
    fn at_least(&self, drafts: u32) -> Result<Vec<f64>, ConfigError> {
        match self {
            Self::ConditionalRates(rates) => {
                check_number("conditional_rates", rates, drafts)?;
                let chances = rates.iter().scan(1.0, |chance, rate| {
                    *chance *= rate;
                    Some(*chance)
                });
                Ok(chances.collect())
            }
            Self::PositionRates(rates) => {
                check_number("position_rates", rates, drafts)?;
                Ok(rates.clone())
            }
            &Self::AcceptedDraftsMean(mean) => {
                if mean > f64::from(drafts) {
                    let accepted = format!("at most {drafts}, the drafts of a round");
                    return Err(ConfigError::new("accepted_drafts_mean", mean, accepted));
                }
                // A mean of 2.2 is at least two always, and three in a fifth of the rounds.
                Ok((0..drafts).map(|before| (mean - f64::from(before)).clamp(0.0, 1.0)).collect())
            }
        }
    }
}

/// # Errors
/// A rate that is none.
fn check_rates(path: &str, rates: &[f64]) -> Result<(), ConfigError> {
    if let Some(place) = rates.iter().position(|rate| !(0.0..=1.0).contains(rate)) {
        let path = format!("{path}[{place}]");
        return Err(ConfigError::new(&path, rates[place], "a rate from 0 to 1"));
    }
    Ok(())
}

/// # Errors
/// Fewer rates than a round has drafts.
fn check_number(path: &str, rates: &[f64], drafts: u32) -> Result<(), ConfigError> {
    if rates.len() < drafts as usize {
        let found = format!("a list of {}", rates.len());
        let accepted = format!("a rate for each of the {drafts} drafts of a round");
        return Err(ConfigError::new(path, found, accepted));
    }
    Ok(())
}

impl SpeculationConfig {
    /// # Errors
    /// A number that is out of range by itself.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if !(0.0..=1.0).contains(&self.no_draft_ratio) {
            let accepted = "a share from 0 to 1";
            return Err(ConfigError::new("no_draft_ratio", self.no_draft_ratio, accepted));
        }
        self.acceptance
            .as_ref()
            .map_or(Ok(()), |acceptance| acceptance.check().map_err(|e| e.within("acceptance")))
    }

    /// What becomes of drafts where a round accepts at most `drafts`. Without `acceptance` every request has a record
    /// of its own. `looks_up`: drafts are looked up, and may be missing.
    ///
    /// # Errors
    /// A number that is none, or makes no sense for the engine.
    pub(crate) fn acceptance(
        &self,
        drafts: u32,
        looks_up: bool,
    ) -> Result<Acceptance, ConfigError> {
        self.check()?;
        if self.no_draft_ratio > 0.0 && !looks_up {
            let accepted = "0, as the engine makes its drafts and does not look them up";
            return Err(ConfigError::new("no_draft_ratio", self.no_draft_ratio, accepted));
        }
        let at_least = match &self.acceptance {
            Some(acceptance) => acceptance.at_least(drafts).map_err(|e| e.within("acceptance"))?,
            None => Vec::new(),
        };
        Ok(Acceptance { at_least, none_found: self.no_draft_ratio })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_least(acceptance: AcceptanceConfig, drafts: u32) -> Result<Vec<f64>, String> {
        let config =
            SpeculationConfig { acceptance: Some(acceptance), ..SpeculationConfig::default() };
        let acceptance = config.acceptance(drafts, false).map_err(|error| error.to_string())?;
        Ok(acceptance.at_least.iter().map(|p| (p * 1e9).round() / 1e9).collect())
    }

    #[test]
    fn each_form_gives_the_chance_of_at_least_so_many() {
        let conditional = AcceptanceConfig::ConditionalRates(vec![0.8, 0.6, 0.4]);
        // 0.8, 0.8 * 0.6, 0.8 * 0.6 * 0.4; with the token of the round itself 2.472 on average.
        assert_eq!(at_least(conditional.clone(), 3).unwrap(), [0.8, 0.48, 0.192]);
        assert_eq!(at_least(conditional, 2).unwrap(), [0.8, 0.48, 0.192]);
        let positions = AcceptanceConfig::PositionRates(vec![0.8, 0.48]);
        assert_eq!(at_least(positions, 2).unwrap(), [0.8, 0.48]);
        for (mean, expected) in
            [(2.2, [1.0, 1.0, 0.2]), (0.0, [0.0; 3]), (3.0, [1.0; 3]), (0.5, [0.5, 0.0, 0.0])]
        {
            assert_eq!(at_least(AcceptanceConfig::AcceptedDraftsMean(mean), 3).unwrap(), expected);
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (acceptance, expected) in [
            (
                AcceptanceConfig::ConditionalRates(vec![0.5, 1.5]),
                "`acceptance.conditional_rates[1]` is 1.5",
            ),
            (
                AcceptanceConfig::ConditionalRates(vec![0.5]),
                "`acceptance.conditional_rates` is a list of 1",
            ),
            (
                AcceptanceConfig::PositionRates(vec![0.5, 0.6]),
                "`acceptance.position_rates[1]` is 0.6",
            ),
            (AcceptanceConfig::AcceptedDraftsMean(2.1), "`acceptance.accepted_drafts_mean` is 2.1"),
            (
                AcceptanceConfig::AcceptedDraftsMean(f64::NAN),
                "`acceptance.accepted_drafts_mean` is NaN",
            ),
        ] {
            let error = at_least(acceptance, 2).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let config = SpeculationConfig { no_draft_ratio: 0.5, ..SpeculationConfig::default() };
        assert!(config.acceptance(1, true).is_ok());
        let error = config.acceptance(1, false).unwrap_err().to_string();
        assert!(error.contains("`no_draft_ratio` is 0.5, expected 0"), "{error}");
    }
}
