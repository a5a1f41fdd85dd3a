//! The `timing` part of a scenario.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TimingProvider;
use super::error::{LONGEST_PASS_MS, ProfileError};
use super::fixed::Fixed;
use super::operators::Operators;
use super::operators::config::OperatorsConfig;
use super::polynomial::Polynomial;
use crate::base::config::ConfigError;
use crate::model::accelerator::Accelerator;
use crate::model::parallel::Parallel;
use crate::model::shape::ModelShape;

/// What a provider may know of the engine whose passes it prices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deployment<'a> {
    /// The model, if the scenario names one.
    pub(crate) model: Option<&'a ModelShape>,
    /// The accelerator, if the scenario names one.
    pub(crate) accelerator: Option<&'a Accelerator>,
    /// How the engine is spread over several.
    pub(crate) parallel: Parallel,
    /// Tokens the KV pool holds.
    pub(crate) kv_capacity_tokens: u64,
}

/// How forward passes are priced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum TimingConfig {
    /// A constant per kind of pass.
    Fixed(FixedConfig),
    /// Polynomials over tokens, batch and KV.
    Polynomial(PolynomialConfig),
    /// Measured operators, put together to forward passes.
    Operators(OperatorsConfig),
    /// A named set of coefficients.
    Preset(TimingPreset),
}

/// Named timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TimingPreset {
    /// The curve commonly published with engine mock-ups: prefill
    /// `4.209989e-07 T^2 + 1.518344e-02 T + 16.50142` ms over new tokens T, decode
    /// `max(1, -25.74 p^2 + 54.01 p + 5.74)` ms over KV pool occupancy p. It belongs to no
    /// particular model or accelerator.
    Mocker,
}

/// A constant per kind of pass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FixedConfig {
    /// A pass that only prefills, in ms.
    pub(crate) prefill_ms: f64,
    /// A pass that only decodes, in ms.
    pub(crate) decode_ms: f64,
    /// A pass that does both, as one forward, in ms; absent: the sum of the two.
    pub(crate) mixed_ms: Option<f64>,
}

impl Default for FixedConfig {
    fn default() -> Self {
        Self { prefill_ms: 20.0, decode_ms: 10.0, mixed_ms: None }
    }
}

/// Polynomials for both kinds of work; a pass with both costs the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PolynomialConfig {
    /// Prefill, over the new tokens of the pass.
    pub(crate) prefill: PrefillPolynomial,
    /// Decode, over active KV, batch and pool occupancy.
    pub(crate) decode: DecodePolynomial,
}

/// `token_squared_ms * T^2 + token_ms * T + constant_ms` over the new tokens `T` of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PrefillPolynomial {
    /// ms per squared new token.
    pub(crate) token_squared_ms: f64,
    /// ms per new token.
    pub(crate) token_ms: f64,
    /// ms per pass.
    pub(crate) constant_ms: f64,
}

/// `constant_ms + request_ms * B + kv_token_ms * K + occupancy_ms * p + occupancy_squared_ms * p^2`,
/// at least `min_ms`, over the batch `B`, the active KV tokens `K` and the occupancy `p`, which is
/// `K` over the tokens that the pool holds, at most 1: requests that share blocks each count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DecodePolynomial {
    /// ms per pass.
    pub(crate) constant_ms: f64,
    /// ms per decoding request.
    pub(crate) request_ms: f64,
    /// ms per active KV token.
    pub(crate) kv_token_ms: f64,
    /// ms at full occupancy, linear term.
    pub(crate) occupancy_ms: f64,
    /// ms at full occupancy, quadratic term.
    pub(crate) occupancy_squared_ms: f64,
    /// The least a decode pass costs, in ms.
    pub(crate) min_ms: f64,
}

impl PrefillPolynomial {
    /// The commonly published mock-up curve.
    pub(crate) const MOCKER: Self =
        Self { token_squared_ms: 4.209_989e-07, token_ms: 1.518_344e-02, constant_ms: 16.50142 };
}

impl PolynomialConfig {
    /// The commonly published mock-up curves.
    const MOCKER: Self =
        Self { prefill: PrefillPolynomial::MOCKER, decode: DecodePolynomial::MOCKER };
}

impl DecodePolynomial {
    /// The commonly published mock-up curve.
    pub(crate) const MOCKER: Self = Self {
        constant_ms: 5.74,
        request_ms: 0.0,
        kv_token_ms: 0.0,
        occupancy_ms: 54.01,
        occupancy_squared_ms: -25.74,
        min_ms: 1.0,
    };
}

impl Default for TimingConfig {
    fn default() -> Self {
        Self::Preset(TimingPreset::Mocker)
    }
}

impl TimingConfig {
    /// The same timing with presets replaced by their figures.
    ///
    /// # Errors
    /// A coefficient that is not finite, or a constant that is negative.
    pub(crate) fn resolve(&self) -> Result<Self, ConfigError> {
        let resolved = match self {
            Self::Preset(TimingPreset::Mocker) => Self::Polynomial(PolynomialConfig::MOCKER),
            other => other.clone(),
        };
        match &resolved {
            Self::Fixed(fixed) => {
                check_pass_ms("fixed.prefill_ms", fixed.prefill_ms)?;
                check_pass_ms("fixed.decode_ms", fixed.decode_ms)?;
                if let Some(mixed_ms) = fixed.mixed_ms {
                    check_pass_ms("fixed.mixed_ms", mixed_ms)?;
                }
            }
            Self::Polynomial(PolynomialConfig { prefill, decode }) => {
                for (path, value) in [
                    ("polynomial.prefill.token_squared_ms", prefill.token_squared_ms),
                    ("polynomial.prefill.token_ms", prefill.token_ms),
                    ("polynomial.prefill.constant_ms", prefill.constant_ms),
                    ("polynomial.decode.constant_ms", decode.constant_ms),
                    ("polynomial.decode.request_ms", decode.request_ms),
                    ("polynomial.decode.kv_token_ms", decode.kv_token_ms),
                    ("polynomial.decode.occupancy_ms", decode.occupancy_ms),
                    ("polynomial.decode.occupancy_squared_ms", decode.occupancy_squared_ms),
                ] {
                    if !value.is_finite() {
                        return Err(ConfigError::new(path, value, "a finite number"));
                    }
                }
                check_pass_ms("polynomial.decode.min_ms", decode.min_ms)?;
            }
            Self::Operators(operators) => {
                operators.check().map_err(|error| error.within("operators"))?;
            }
            Self::Preset(_) => unreachable!("presets were replaced above"),
        }
        Ok(resolved)
    }

    /// What the provider is called in reports.
    pub(crate) fn provider_name(&self) -> &'static str {
        match self {
            Self::Fixed(_) => "fixed",
            Self::Polynomial(c) if *c == PolynomialConfig::MOCKER => "polynomial (mocker)",
            Self::Polynomial(_) => "polynomial",
            Self::Operators(_) => "operators",
            Self::Preset(TimingPreset::Mocker) => "polynomial (mocker)",
        }
    }

    /// The provider this configuration describes, once resolved.
    ///
    /// # Errors
    /// It needs what the deployment does not say, or a file that cannot be used.
    pub(crate) fn provider(
        &self,
        deployment: &Deployment<'_>,
    ) -> Result<Arc<dyn TimingProvider>, ProfileError> {
        let kv_capacity_tokens = deployment.kv_capacity_tokens;
        Ok(match self {
            Self::Fixed(c) => Arc::new(Fixed {
                prefill_ms: c.prefill_ms,
                decode_ms: c.decode_ms,
                mixed_ms: c.mixed_ms,
            }),
            Self::Polynomial(c) => {
                Arc::new(Polynomial::new(c.prefill, c.decode, kv_capacity_tokens))
            }
            Self::Operators(c) => Arc::new(Operators::new(c, deployment)?),
            Self::Preset(TimingPreset::Mocker) => Arc::new(Polynomial::new(
                PrefillPolynomial::MOCKER,
                DecodePolynomial::MOCKER,
                kv_capacity_tokens,
            )),
        })
    }
}

fn check_pass_ms(path: &str, value: f64) -> Result<(), ConfigError> {
    if (0.0..=LONGEST_PASS_MS).contains(&value) {
        Ok(())
    } else {
        Err(ConfigError::new(path, value, "a number from 0 to 86400000 (a day)"))
    }
}
