//! Forward passes put together from measured operators.
//!
//! Over a pass with T tokens (new ones of prompts and those of decodes), of which requests sample S:
//!
//! ```text
//! pass = dense(T) + attention + per_request(S) + experts(T) + collectives(T) + overhead
//! ```
//!
//! Dense work is looked up once, over all tokens: a mixed pass is one forward by construction. Attention of a
//! mixed pass is looked up where it was measured so, and else that of its prompts and its decodes are added.
//!
//! Layouts of folders: [`own`], [`llmservingsim`], [`llmservingsim_v0`] and, with the feature `parquet`,
//! `aiconfigurator`. Each makes
//! [`Tables`], per pass and in ms.

#[cfg(feature = "parquet")]
mod aiconfigurator;
pub(crate) mod config;
mod grid;
mod llmservingsim;
mod llmservingsim_v0;
mod own;
mod rows;

use std::path::Path;

use super::config::Deployment;
use super::error::{ProfileError, TimingError};
use super::evidence::{Evidence, Origin, Part};
use super::work::{DecodeWork, PrefillWork};
use super::{MixedPrice, TimingProvider};
use crate::base::config::ConfigError;
use config::{OperatorsConfig, OperatorsFormat, Outside};
use grid::{Curve, Found, Grid, Point};

/// What a folder says, per pass (all layers together) and in ms.
struct Tables {
    /// Each curve over the tokens of the pass, and how often it is run.
    dense: Vec<(Curve, f64)>,
    attention: Attention,
    /// Each curve over the tokens that are sampled, and how often it is run.
    per_request: Vec<(Curve, f64)>,
    /// Over the tokens of the pass.
    experts: Option<Curve>,
    /// Over the tokens of the pass.
    collectives: Option<Collectives>,
    /// How far decodes of uneven lengths are from their mean towards their longest.
    uneven_kv: Option<f64>,
}

/// Communication between the devices of an engine.
enum Collectives {
    /// Measured.
    Curve(Curve),
    /// From the bandwidth of the links.
    PerToken {
        /// ms for each token of the pass.
        ms: f64,
    },
}

/// Attention of all layers.
struct Attention {
    /// Over new tokens and past tokens.
    prefill: Grid<2>,
    /// Over requests and their mean KV tokens.
    decode: Grid<2>,
    /// Over both.
    mixed: Option<Grid<4>>,
    /// What several prompts are looked up at.
    several_prompts: SeveralPrompts,
}

/// What several prompts of a pass are looked up at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SeveralPrompts {
    /// The one prompt that is as much work.
    AsMuchWork,
    /// Their new tokens and their past tokens, added up: the measurements mean all requests together.
    Together,
}

/// Measurements of attention, by what was in the pass.
#[derive(Default)]
struct AttentionPoints {
    prefill: Vec<Point<2>>,
    decode: Vec<Point<2>>,
    mixed: Vec<Point<4>>,
}

impl AttentionPoints {
    /// Adds a measurement over (new tokens, past tokens, requests, mean KV tokens), where 0 new tokens or 0
    /// requests say that this part was absent.
    ///
    /// # Errors
    /// Nothing was in the pass, or something of a part that was absent; says what.
    fn add(&mut self, at: [f64; 4], ms: f64, line: u64) -> Result<(), &'static str> {
        let [new, past, requests, kv] = at;
        match (new > 0.0, requests > 0.0) {
            (true, true) => self.mixed.push(Point { at, ms, line }),
            (true, false) if kv > 0.0 => return Err("there is decode KV, but no decoding request"),
            (true, false) => self.prefill.push(Point { at: [new, past], ms, line }),
            (false, true) if past > 0.0 => return Err("there is past KV, but no new token"),
            (false, true) => self.decode.push(Point { at: [requests, kv], ms, line }),
            (false, false) => return Err("there is neither a new token nor a decoding request"),
        }
        Ok(())
    }

    /// The attention of `layers` layers, measured one by one.
    fn of_layers(
        self,
        path: &Path,
        layers: f64,
        outside: Outside,
    ) -> Result<Attention, ProfileError> {
        for (points, part) in [
            (&self.prefill, "no measurement of prefill alone"),
            (&self.decode, "no measurement of decode alone"),
        ] {
            if points.is_empty() {
                return Err(ProfileError::file(path, part));
            }
        }
        let mixed = if self.mixed.is_empty() {
            None
        } else {
            Some(Grid::new(path, self.mixed, outside)?.times(layers))
        };
        Ok(Attention {
            prefill: Grid::new(path, self.prefill, outside)?.times(layers),
            decode: Grid::new(path, self.decode, outside)?.times(layers),
            mixed,
            several_prompts: SeveralPrompts::AsMuchWork,
        })
    }
}

/// The provider.
pub(crate) struct Operators {
    dense: Option<Curve>,
    attention: Attention,
    per_request: Option<Curve>,
    experts: Option<Curve>,
    collectives: Option<Collectives>,
    /// 0: decodes are taken at their mean KV.
    uneven_kv: f64,
    outside: Outside,
    overhead_ms: f64,
}

impl Operators {
    /// The provider that `config` describes, for the model and the devices of `deployment`.
    ///
    /// # Errors
    /// A file that cannot be used, or something that neither it nor the scenario says.
    pub(crate) fn new(
        config: &OperatorsConfig,
        deployment: &Deployment<'_>,
    ) -> Result<Self, ProfileError> {
        let tables = match config.format.map_or_else(|| detected(&config.path), Ok)? {
            OperatorsFormat::Own => own::load(config, deployment)?,
            OperatorsFormat::Llmservingsim => llmservingsim::load(config, deployment)?,
            OperatorsFormat::LlmservingsimV0 => llmservingsim_v0::load(config, deployment)?,
            #[cfg(feature = "parquet")]
            OperatorsFormat::Aiconfigurator => aiconfigurator::load(config, deployment)?,
            #[cfg(not(feature = "parquet"))]
            OperatorsFormat::Aiconfigurator => {
                let what = "holds Parquet files, which are read by a servesim that was built with the feature \
                            `parquet` (cargo build --features parquet)";
                return Err(ProfileError::file(&config.path, what));
            }
        };
        let uneven_kv = match (config.uneven_kv, tables.uneven_kv) {
            (false, _) => 0.0,
            (true, Some(share)) => share,
            (true, None) => {
                let accepted = format!(
                    "false: {} does not say how uneven KV lengths matter",
                    config.path.display()
                );
                return Err(field("uneven_kv", true, accepted));
            }
        };
        let scale = config.scale;
        let Attention { prefill, decode, mixed, several_prompts } = tables.attention;
        Ok(Self {
            dense: Curve::sum(&tables.dense).map(|curve| curve.times(scale)),
            attention: Attention {
                prefill: prefill.times(scale),
                decode: decode.times(scale),
                mixed: mixed.map(|grid| grid.times(scale)),
                several_prompts,
            },
            per_request: Curve::sum(&tables.per_request).map(|curve| curve.times(scale)),
            experts: tables.experts.map(|curve| curve.times(scale)),
            collectives: tables.collectives.map(|collectives| match collectives {
                Collectives::Curve(curve) => Collectives::Curve(curve.times(scale)),
                Collectives::PerToken { ms } => Collectives::PerToken { ms: ms * scale },
            }),
            uneven_kv,
            outside: config.outside,
            overhead_ms: config.pass_overhead_ms,
        })
    }

    /// A pass with this work, as one forward.
    fn forward(
        &self,
        prefill: &PrefillWork,
        decode: &DecodeWork,
        pass: &mut Pass<'_>,
    ) -> Result<(), TimingError> {
        let tokens = (prefill.new_tokens + decode.query_tokens) as f64;
        pass.curve(Part::Dense, self.dense.as_ref(), "tokens", tokens)?;
        self.attention(prefill, decode, pass)?;
        let sampled = (u64::from(prefill.requests) + decode.query_tokens) as f64;
        pass.curve(Part::PerRequest, self.per_request.as_ref(), "sampled", sampled)?;
        pass.curve(Part::Experts, self.experts.as_ref(), "tokens", tokens)?;
        match &self.collectives {
            Some(Collectives::Curve(curve)) => {
                pass.curve(Part::Collectives, Some(curve), "tokens", tokens)?;
            }
            Some(Collectives::PerToken { ms }) => {
                pass.computed(Part::Collectives, ms * tokens);
            }
            None => {}
        }
        if self.overhead_ms > 0.0 {
            pass.computed(Part::Overhead, self.overhead_ms);
        }
        Ok(())
    }

    fn attention(
        &self,
        prefill: &PrefillWork,
        decode: &DecodeWork,
        pass: &mut Pass<'_>,
    ) -> Result<(), TimingError> {
        let [new, behind] = match self.attention.several_prompts {
            SeveralPrompts::AsMuchWork => as_one_request(prefill),
            SeveralPrompts::Together => [prefill.new_tokens as f64, prefill.past_tokens as f64],
        };
        let [requests, kv] = self.as_even(decode);
        if new > 0.0
            && requests > 0.0
            && let Some(mixed) = &self.attention.mixed
        {
            let found = mixed.at([new, behind, requests, kv]);
            return pass.found(Part::MixedAttention, found, || {
                format!("new={new:.0} past={behind:.0} requests={requests} kv_mean={kv:.0}")
            });
        }
        if new > 0.0 {
            let found = self.attention.prefill.at([new, behind]);
            pass.found(Part::PrefillAttention, found, || format!("new={new:.0} past={behind:.0}"))?;
        }
        if requests > 0.0 {
            let found = self.attention.decode.at([requests, kv]);
            pass.found(Part::DecodeAttention, found, || {
                format!("requests={requests} kv_mean={kv:.0}")
            })?;
        }
        Ok(())
    }

    /// Requests and the KV tokens of each, if all had as many.
    fn as_even(&self, decode: &DecodeWork) -> [f64; 2] {
        let requests = f64::from(decode.requests);
        if decode.requests == 0 {
            return [0.0, 0.0];
        }
        let mean = decode.kv_tokens as f64 / requests;
        let longest = f64::from(decode.longest_kv_tokens).max(mean);
        [requests, mean + self.uneven_kv * (longest - mean)]
    }
}

/// The new and past tokens of the one request whose attention is as much work as that of all these: with `t` the
/// sum of new * (new + 1) / 2 and `c` that of new * past, T = (sqrt(8t + 1) - 1) / 2 new tokens behind
/// c / T ones. The causal triangle and the rectangle over the past are both kept; one request stays as it
/// is. Two fresh prompts of 512 tokens attend as one of 724, not as one of 1,024.
fn as_one_request(work: &PrefillWork) -> [f64; 2] {
    match work.requests {
        0 => [0.0, 0.0],
        1 => [work.new_tokens as f64, work.past_tokens as f64],
        _ if work.new_tokens == 0 => [0.0, 0.0],
        _ => {
            let new = ((8.0 * work.new_triangle as f64 + 1.0).sqrt() - 1.0) / 2.0;
            [new, work.new_by_past as f64 / new]
        }
    }
}

/// The price of a pass as it is put together.
struct Pass<'a> {
    /// `None`: nobody is to know, and nothing is refused.
    evidence: Option<&'a mut Evidence>,
    outside: Outside,
    ms: f64,
}

impl<'a> Pass<'a> {
    fn new(outside: Outside, evidence: Option<&'a mut Evidence>) -> Self {
        Self { evidence, outside, ms: 0.0 }
    }

    fn curve(
        &mut self,
        part: Part,
        curve: Option<&Curve>,
        coordinate: &str,
        x: f64,
    ) -> Result<(), TimingError> {
        match curve {
            Some(curve) => self.found(part, curve.at([x]), || format!("{coordinate}={x}")),
            None => Ok(()),
        }
    }

    fn found(
        &mut self,
        part: Part,
        found: Found,
        at: impl Fn() -> String,
    ) -> Result<(), TimingError> {
        self.ms += found.ms;
        let Some(evidence) = &mut self.evidence else { return Ok(()) };
        if !found.is_outside() {
            evidence.note(part, found.origin, found.ms);
        } else if self.outside == Outside::Refuse {
            return Err(TimingError::Refused {
                part: part.name(),
                at: at(),
                field: "timing.operators.outside",
            });
        } else {
            evidence.note_outside(part, found.origin, found.ms, found.stretch, at);
        }
        Ok(())
    }

    fn computed(&mut self, part: Part, ms: f64) {
        self.ms += ms;
        if let Some(evidence) = &mut self.evidence {
            evidence.note(part, Origin::Analytic, ms);
        }
    }
}

impl TimingProvider for Operators {
    fn prefill(&self, work: &PrefillWork, evidence: &mut Evidence) -> Result<f64, TimingError> {
        let mut pass = Pass::new(self.outside, Some(evidence));
        self.forward(work, &DecodeWork::default(), &mut pass)?;
        Ok(pass.ms)
    }

    fn decode(&self, work: &DecodeWork, evidence: &mut Evidence) -> Result<f64, TimingError> {
        let mut pass = Pass::new(self.outside, Some(evidence));
        self.forward(&PrefillWork::default(), work, &mut pass)?;
        Ok(pass.ms)
    }

    fn mixed(
        &self,
        prefill: &PrefillWork,
        decode: &DecodeWork,
        evidence: &mut Evidence,
    ) -> Result<Option<MixedPrice>, TimingError> {
        let mut whole = Pass::new(self.outside, Some(evidence));
        self.forward(prefill, decode, &mut whole)?;
        let mut alone = Pass::new(self.outside, None);
        self.forward(prefill, &DecodeWork::default(), &mut alone)?;
        // Measured curves have dents; the sum is the one forward all the same.
        let prefill_ms = alone.ms.min(whole.ms);
        Ok(Some(MixedPrice { prefill_ms, decode_ms: whole.ms - prefill_ms }))
    }
}

/// The layout of `folder`, by the files in it.
fn detected(folder: &Path) -> Result<OperatorsFormat, ProfileError> {
    if !folder.is_dir() {
        return Err(ProfileError::file(folder, "is no folder that can be read"));
    }
    if folder.join("operators.yaml").is_file() {
        return Ok(OperatorsFormat::Own);
    }
    if folder.join("gemm_perf.parquet").is_file() {
        return Ok(OperatorsFormat::Aiconfigurator);
    }
    if rows::find(folder, "layers").is_some() {
        return Ok(OperatorsFormat::LlmservingsimV0);
    }
    if !llmservingsim::sizes(folder)?.is_empty() {
        return Ok(OperatorsFormat::Llmservingsim);
    }
    let what = "holds no measured operators; expected operators.yaml (own), folders tp1, tp2, ... (llmservingsim), \
                layers.csv (llmservingsim_v0) or gemm_perf.parquet (aiconfigurator)";
    Err(ProfileError::file(folder, what))
}

/// How many layers there are: as the field says, or the scenario's model, or the folder.
fn layers(
    config: &OperatorsConfig,
    deployment: &Deployment<'_>,
    folder_says: Option<u32>,
) -> Result<f64, ProfileError> {
    let model = deployment.model.map(|model| model.num_hidden_layers);
    let layers = config.num_hidden_layers.or(model).or(folder_says).ok_or_else(|| {
        let accepted = format!(
            "the number of layers: neither the scenario's model nor {} says it",
            config.path.display()
        );
        field("num_hidden_layers", "absent", accepted)
    })?;
    Ok(f64::from(layers))
}

/// Two all-reduces a layer over the links, as a ring does them: each device sends 2 (N - 1) / N of the
/// message. `None` for one device, or if the scenario names no model or no accelerator.
fn collectives_over_links(deployment: &Deployment<'_>) -> Option<Collectives> {
    let devices = f64::from(deployment.parallel.tensor_parallel_size);
    let (model, accelerator) = (deployment.model?, deployment.accelerator?);
    (devices > 1.0).then(|| {
        let message_bytes = f64::from(model.hidden_size) * model.activation_type.bytes();
        let sent_bytes = 2.0 * (devices - 1.0) / devices * message_bytes;
        let all_reduces = 2.0 * f64::from(model.num_hidden_layers);
        Collectives::PerToken { ms: all_reduces * sent_bytes / (accelerator.link_gb_per_s * 1e6) }
    })
}

/// A field of this provider.
fn field(name: &str, found: impl std::fmt::Display, accepted: impl Into<String>) -> ProfileError {
    ConfigError::new(name, found, accepted).within("timing.operators").into()
}

#[cfg(test)]
mod tests;
