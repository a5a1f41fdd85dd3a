//! The `timing` part of a scenario.

use std::path::Path;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TimingProvider;
use super::error::{LONGEST_PASS_MS, ProfileError};
use super::external::{External, ExternalConfig};
use super::fixed::Fixed;
use super::operators::Operators;
use super::operators::config::OperatorsConfig;
use super::polynomial::Polynomial;
use super::roofline::Roofline;
use super::roofline::config::RooflineConfig;
use super::table::Table;
use super::table::config::TableConfig;
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
    /// Computed from the model's shape and the accelerator's data sheet.
    Roofline(RooflineConfig),
    /// A program of your own.
    External(ExternalConfig),
    /// Measured operators, put together to forward passes.
    Operators(OperatorsConfig),
    /// A named set of coefficients.
    Preset(TimingPreset),
    /// Measured forward passes, from a file.
    Table(TableConfig),
}

/// What a pass outside of the measurements costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outside {
    /// Nothing: the run ends with an error.
    Refuse,
    /// As much as the nearest pass inside.
    Clamp,
    /// The trend of the nearest measurements, continued.
    #[default]
    Extrapolate,
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

/// `token_squared_ms * T^2 + token_ms * T + attended_pair_ms * A + constant_ms` over the new tokens `T` of a pass
/// and the pairs `A` of a new token and one that it attends to, in its own request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PrefillPolynomial {
    /// ms per squared new token.
    pub(crate) token_squared_ms: f64,
    /// ms per new token.
    pub(crate) token_ms: f64,
    /// ms per pair of a new token and a token that it attends to: `new * past + new * (new + 1) / 2`, summed over
    /// requests.
    pub(crate) attended_pair_ms: f64,
    /// ms per pass.
    pub(crate) constant_ms: f64,
}

/// `constant_ms + request_ms * B + kv_token_ms * K + longest_kv_token_ms * L + occupancy_ms * p +
/// occupancy_squared_ms * p^2`, at least `min_ms`, over the batch `B`, the active KV tokens `K`, those `L` of the
/// request that has most of them, and the occupancy `p`, which is
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
    /// ms per active KV token of the request that has most of them.
    pub(crate) longest_kv_token_ms: f64,
    /// ms at full occupancy, linear term.
    pub(crate) occupancy_ms: f64,
    /// ms at full occupancy, quadratic term.
    pub(crate) occupancy_squared_ms: f64,
    /// The least a decode pass costs, in ms.
    pub(crate) min_ms: f64,
}

impl PrefillPolynomial {
    /// The commonly published mock-up curve.
    pub(crate) const MOCKER: Self = Self {
        token_squared_ms: 4.209_989e-07,
        token_ms: 1.518_344e-02,
        attended_pair_ms: 0.0,
        constant_ms: 16.50142,
    };
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
        longest_kv_token_ms: 0.0,
        occupancy_ms: 54.01,
        occupancy_squared_ms: -25.74,
        min_ms: 1.0,
    };
}

impl Default for TimingConfig {
    fn default() -> Self {
        Self::Roofline(RooflineConfig::default())
    }
}

impl TimingConfig {
    /// The same timing with presets replaced by their figures. Relative paths count from `directory`.
    ///
    /// # Errors
    /// A coefficient that is not finite, a constant that is negative, or a share or rate that is out of range.
    pub(crate) fn resolve(&self, directory: &Path) -> Result<Self, ConfigError> {
        let mut resolved = match self {
            Self::Preset(TimingPreset::Mocker) => Self::Polynomial(PolynomialConfig::MOCKER),
            other => other.clone(),
        };
        match &mut resolved {
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
                    ("polynomial.prefill.attended_pair_ms", prefill.attended_pair_ms),
                    ("polynomial.prefill.constant_ms", prefill.constant_ms),
                    ("polynomial.decode.constant_ms", decode.constant_ms),
                    ("polynomial.decode.request_ms", decode.request_ms),
                    ("polynomial.decode.kv_token_ms", decode.kv_token_ms),
                    ("polynomial.decode.longest_kv_token_ms", decode.longest_kv_token_ms),
                    ("polynomial.decode.occupancy_ms", decode.occupancy_ms),
                    ("polynomial.decode.occupancy_squared_ms", decode.occupancy_squared_ms),
                ] {
                    if !value.is_finite() {
                        return Err(ConfigError::new(path, value, "a finite number"));
                    }
                }
                check_pass_ms("polynomial.decode.min_ms", decode.min_ms)?;
            }
            Self::Roofline(roofline) => {
                roofline.check().map_err(|error| error.within("roofline"))?;
            }
            Self::Operators(operators) => {
                operators.check().map_err(|error| error.within("operators"))?;
                operators.absolutise(directory);
            }
            Self::External(external) => {
                external.check().map_err(|e| e.within("external"))?;
                external.absolutise(directory);
            }
            Self::Table(table) => {
                table.check().map_err(|e| e.within("table"))?;
                table.absolutise(directory);
            }
            Self::Preset(_) => unreachable!("presets were replaced above"),
        }
        Ok(resolved)
    }

    /// Whether prices follow from the model and the accelerator of the scenario.
    pub(crate) fn follows_the_model(&self) -> bool {
        matches!(self, Self::Roofline(_))
    }

    /// What the provider is called in reports.
    pub(crate) fn provider_name(&self) -> &'static str {
        match self {
            Self::Fixed(_) => "fixed",
            Self::Polynomial(c) if *c == PolynomialConfig::MOCKER => "polynomial (mocker)",
            Self::Polynomial(_) => "polynomial",
            Self::Roofline(_) => "roofline",
            Self::External(_) => "external",
            Self::Operators(_) => "operators",
            Self::Preset(TimingPreset::Mocker) => "polynomial (mocker)",
            Self::Table(_) => "table",
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
            Self::Roofline(c) => Arc::new(Roofline::new(c, deployment)?),
            Self::External(c) => External::start(c, deployment)?,
            Self::Operators(c) => Arc::new(Operators::new(c, deployment)?),
            Self::Preset(TimingPreset::Mocker) => Arc::new(Polynomial::new(
                PrefillPolynomial::MOCKER,
                DecodePolynomial::MOCKER,
                kv_capacity_tokens,
            )),
            Self::Table(c) => Arc::new(Table::open(c)?),
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
