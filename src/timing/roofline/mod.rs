//! Passes computed from the shape of the model and the data sheet of the accelerator.
//!
//! A pass is one forward, whatever it holds: products with weights see all its tokens together and read the weights once,
//! attention sees prefill and decode apart, the LM head sees the rows that are sampled. Every operator takes
//! the time of its arithmetic or of its bytes ([`operators`]); operators follow one another, through all
//! layers of all pipeline stages.
//!
//! Not here: what requests do to each other beyond their totals (uneven lengths, tiles that are not full), the
//! embedding, sampling, and the overlap of communication or pipeline stages with anything.

mod attention;
mod collectives;
pub(crate) mod config;
mod operators;
#[cfg(test)]
mod tests;

use attention::Attention;
use collectives::Collectives;
use config::RooflineConfig;
use operators::{Product, Rates, RoutedExperts};

use super::config::Deployment;
use super::error::{ProfileError, TimingError};
use super::evidence::{Evidence, Origin, Part};
use super::work::{DecodeWork, PrefillWork};
use super::{MixedPrice, TimingProvider};
use crate::base::config::ConfigError;

/// A model on devices, as constants of its operators.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Roofline {
    /// Products that every token goes through.
    dense: Vec<Product>,
    /// Operators between them, per token.
    pointwise_ms: f64,
    /// Keys and values from compressed ones; of prefill also for what the cache holds.
    kv_up: Option<Product>,
    experts: Option<RoutedExperts>,
    attention: Vec<Attention>,
    /// The LM head.
    head: Product,
    collectives: Option<Collectives>,
    /// Launching.
    overhead_ms: f64,
}

/// What the parts of a pass take.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Parts {
    dense_ms: f64,
    experts_ms: f64,
    prefill_attention_ms: f64,
    decode_attention_ms: f64,
    head_ms: f64,
    collectives_ms: f64,
    overhead_ms: f64,
}

impl Parts {
    fn total_ms(&self) -> f64 {
        self.dense_ms
            + self.experts_ms
            + self.prefill_attention_ms
            + self.decode_attention_ms
            + self.head_ms
            + self.collectives_ms
            + self.overhead_ms
    }
}

impl Roofline {
    /// # Errors
    /// The deployment names no model or no accelerator.
    pub(crate) fn new(
        config: &RooflineConfig,
        deployment: &Deployment<'_>,
    ) -> Result<Self, ProfileError> {
        let missing = |field, accepted: &str| {
            ConfigError::new(
                field,
                "absent",
                format!("{accepted}: `timing.roofline` computes from it"),
            )
        };
        let model = deployment.model.ok_or_else(|| missing("model", "a model"))?;
        let accelerator =
            deployment.accelerator.ok_or_else(|| missing("accelerator", "an accelerator"))?;
        let parallel = deployment.parallel;
        if config.kv_block_gb_per_s.is_some() && accelerator.multiprocessors.is_none() {
            let field = "accelerator.data_sheet.multiprocessors";
            let accepted = "an integer: `timing.roofline.kv_block_gb_per_s` is of one thread block";
            return Err(ConfigError::new(field, "absent", accepted).into());
        }
        let rates = Rates::new(model, accelerator, parallel, config);
        let layers = f64::from(model.num_hidden_layers);
        let vocabulary = f64::from(model.vocab_size) / rates.devices;
        let hidden = f64::from(model.hidden_size);
        Ok(Self {
            dense: operators::dense(model, parallel, &rates),
            pointwise_ms: operators::pointwise_ms(model, parallel, &rates),
            kv_up: operators::kv_up(model, &rates),
            experts: model
                .experts
                .map(|experts| RoutedExperts::new(model, experts, parallel, &rates)),
            attention: attention::attention(model, parallel, &rates),
            head: rates.product(1, hidden, vocabulary, model.activation_type),
            collectives: Collectives::new(model, accelerator, parallel, config),
            overhead_ms: config.pass_overhead_ms + layers * config.layer_overhead_us / 1e3,
        })
    }

    /// One forward over all of this work.
    fn parts(&self, prefill: &PrefillWork, decode: &DecodeWork) -> Parts {
        let tokens = prefill.new_tokens as f64 + decode.query_tokens as f64;
        let products: f64 = self.dense.iter().map(|product| product.ms(tokens)).sum();
        let kv_up = self.kv_up.map_or(0.0, |up| up.ms(tokens + prefill.past_tokens as f64));
        // A chunk that does not end its prompt samples nothing, but the totals do not tell.
        let sampled = f64::from(prefill.requests) + decode.query_tokens as f64;
        Parts {
            dense_ms: products + kv_up + self.pointwise_ms * tokens,
            experts_ms: self.experts.map_or(0.0, |experts| experts.ms(tokens)),
            prefill_attention_ms: self.attention.iter().map(|kind| kind.prefill_ms(prefill)).sum(),
            decode_attention_ms: self.attention.iter().map(|kind| kind.decode_ms(decode)).sum(),
            head_ms: self.head.ms(sampled),
            collectives_ms: self.collectives.map_or(0.0, |all| all.ms(tokens)),
            overhead_ms: self.overhead_ms,
        }
    }

    fn price(&self, prefill: &PrefillWork, decode: &DecodeWork, evidence: &mut Evidence) -> f64 {
        let parts = self.parts(prefill, decode);
        for (there, part, ms) in [
            (true, Part::Dense, parts.dense_ms),
            (self.experts.is_some(), Part::Experts, parts.experts_ms),
            (!prefill.is_empty(), Part::PrefillAttention, parts.prefill_attention_ms),
            (!decode.is_empty(), Part::DecodeAttention, parts.decode_attention_ms),
            (true, Part::PerRequest, parts.head_ms),
            (self.collectives.is_some(), Part::Collectives, parts.collectives_ms),
            (true, Part::Overhead, parts.overhead_ms),
        ] {
            if there {
                evidence.note(part, Origin::Analytic, ms);
            }
        }
        parts.total_ms()
    }
}

impl TimingProvider for Roofline {
    fn prefill(&self, work: &PrefillWork, evidence: &mut Evidence) -> Result<f64, TimingError> {
        Ok(self.price(work, &DecodeWork::default(), evidence))
    }

    fn decode(&self, work: &DecodeWork, evidence: &mut Evidence) -> Result<f64, TimingError> {
        Ok(self.price(&PrefillWork::default(), work, evidence))
    }

    fn mixed(
        &self,
        prefill: &PrefillWork,
        decode: &DecodeWork,
        evidence: &mut Evidence,
    ) -> Result<Option<MixedPrice>, TimingError> {
        let total_ms = self.price(prefill, decode, evidence);
        // The decodes' share is what the pass costs above its prefill alone.
        let prefill_ms = self.parts(prefill, &DecodeWork::default()).total_ms();
        Ok(Some(MixedPrice { prefill_ms, decode_ms: (total_ms - prefill_ms).max(0.0) }))
    }
}
