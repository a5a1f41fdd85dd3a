//! Operators of a pass on one device, each a handful of constants in ms.
//!
//! An operator has to do arithmetic and to move bytes. On a device that does both at once it takes at least the
//! longer of the two times; real kernels overlap them imperfectly where they are alike, so the two are added in
//! quadrature: exact where one of them vanishes, 1.41 times the longer one where they are equal.

use super::config::RooflineConfig;
use crate::model::accelerator::Accelerator;
use crate::model::parallel::Parallel;
use crate::model::shape::{DataType, Experts, ModelShape};

/// Both sides of the roof, put together.
#[inline]
pub(super) fn blend(compute_ms: f64, memory_ms: f64) -> f64 {
    (compute_ms * compute_ms + memory_ms * memory_ms).sqrt()
}

/// Rates that a device reaches, as ms per unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates<'a> {
    accelerator: &'a Accelerator,
    pub(super) config: &'a RooflineConfig,
    /// One byte of weights or activations.
    pub(super) byte_ms: f64,
    /// One byte of KV.
    pub(super) kv_byte_ms: f64,
    /// Devices that share a layer.
    pub(super) devices: f64,
    /// Bytes of a number of the residual stream.
    pub(super) activation_bytes: f64,
    activation_type: DataType,
}

impl<'a> Rates<'a> {
    pub(super) fn new(
        model: &ModelShape,
        accelerator: &'a Accelerator,
        parallel: Parallel,
        config: &'a RooflineConfig,
    ) -> Self {
        let bytes_per_ms = accelerator.memory_gb_per_s * 1e6;
        Self {
            accelerator,
            config,
            byte_ms: 1.0 / (bytes_per_ms * config.memory_efficiency),
            kv_byte_ms: 1.0 / (bytes_per_ms * config.attention_memory_efficiency),
            devices: f64::from(parallel.tensor_parallel_size),
            activation_bytes: model.activation_type.bytes(),
            activation_type: model.activation_type,
        }
    }

    /// One operation of a product with weights of a type. Activations are quantised to it where the accelerator has
    /// a rate for it; 4-bit integers are widened instead (`Accelerator::flops_per_s`).
    fn flop_ms(&self, weights: DataType) -> f64 {
        let wide = self.accelerator.flops_per_s(DataType::Bf16);
        let peak = self.accelerator.flops_per_s(weights);
        let efficiency = if peak > wide {
            self.config.narrow_compute_efficiency
        } else {
            self.config.compute_efficiency
        };
        1e3 / (peak * efficiency)
    }

    /// Multiprocessors of a device, where its data sheet says so.
    pub(super) fn multiprocessors(&self) -> Option<u32> {
        self.accelerator.multiprocessors
    }

    /// One operation of attention.
    pub(super) fn attention_flop_ms(&self) -> f64 {
        let peak = self.accelerator.flops_per_s(self.activation_type);
        1e3 / (peak * self.config.attention_compute_efficiency)
    }

    /// A product of rows of `input` numbers with `layers` matrices of `input` by `output` weights.
    pub(super) fn product(
        &self,
        layers: u32,
        input: f64,
        output: f64,
        weights: DataType,
    ) -> Product {
        let layers = f64::from(layers);
        Product {
            row_compute_ms: layers * 2.0 * input * output * self.flop_ms(weights),
            weights_ms: layers * input * output * weights.bytes() * self.byte_ms,
            row_ms: layers * (input + output) * self.activation_bytes * self.byte_ms,
        }
    }
}

/// A product with weights, which are read once a pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Product {
    /// Arithmetic of a row.
    row_compute_ms: f64,
    /// Reading the weights.
    weights_ms: f64,
    /// Reading and writing the activations of a row.
    row_ms: f64,
}

impl Product {
    #[inline]
    pub(super) fn ms(&self, rows: f64) -> f64 {
        blend(self.row_compute_ms * rows, self.weights_ms + self.row_ms * rows)
    }
}

/// Products that every token goes through, in the order of a layer. Attention first: queries, keys and values, output;
/// then the gated feed-forward part, or the router and the shared experts.
pub(super) fn dense(model: &ModelShape, parallel: Parallel, rates: &Rates<'_>) -> Vec<Product> {
    let layers = model.num_hidden_layers;
    let (hidden, heads) = (f64::from(model.hidden_size), f64::from(model.num_attention_heads));
    let (devices, weights) = (rates.devices, model.weight_type);
    let mut products = Vec::new();
    if let Some(mla) = model.mla {
        let query = heads * f64::from(mla.qk_nope_head_dim + mla.qk_rope_head_dim) / devices;
        let latent = f64::from(mla.kv_lora_rank + mla.qk_rope_head_dim);
        let compressed = f64::from(mla.q_lora_rank);
        // What compresses is held by every device whole.
        products.push(rates.product(layers, hidden, compressed + latent, weights));
        let query_input = if mla.q_lora_rank == 0 { hidden } else { compressed };
        products.push(rates.product(layers, query_input, query, weights));
        let value = heads * f64::from(mla.v_head_dim) / devices;
        products.push(rates.product(layers, value, hidden, weights));
    } else {
        let query = heads * f64::from(model.head_dim) / devices;
        let kv = model.kv_width(parallel.tensor_parallel_size) as f64;
        products.push(rates.product(layers, hidden, query + kv, weights));
        products.push(rates.product(layers, query, hidden, weights));
    }
    let mut feed_forward = |layers, width: u32| {
        if layers > 0 && width > 0 {
            let width = f64::from(width) / devices;
            products.push(rates.product(layers, hidden, 2.0 * width, weights));
            products.push(rates.product(layers, width, hidden, weights));
        }
    };
    feed_forward(model.dense_layers(), model.intermediate_size);
    if let Some(experts) = model.experts {
        feed_forward(model.expert_layers(), experts.shared_intermediate_size);
        // The router is not quantised, and every device has it whole.
        let outputs = f64::from(experts.num_experts);
        products.push(rates.product(model.expert_layers(), hidden, outputs, model.activation_type));
    }
    products
}

/// The keys and values of all heads from the compressed ones (MLA).
pub(super) fn kv_up(model: &ModelShape, rates: &Rates<'_>) -> Option<Product> {
    model.mla.map(|mla| {
        let heads = f64::from(model.num_attention_heads) / rates.devices;
        let outputs = heads * f64::from(mla.qk_nope_head_dim + mla.v_head_dim);
        let (layers, latent) = (model.num_hidden_layers, f64::from(mla.kv_lora_rank));
        rates.product(layers, latent, outputs, model.weight_type)
    })
}

/// What a token moves in operators that hardly compute, in ms: two normalisations with their residuals (4 widths
/// of the residual stream each), rotation (queries and keys, read and written) and the gate (2 widths read, 1
/// written).
pub(super) fn pointwise_ms(model: &ModelShape, parallel: Parallel, rates: &Rates<'_>) -> f64 {
    let hidden = f64::from(model.hidden_size);
    let heads = f64::from(model.num_attention_heads) / rates.devices;
    let rotated = if let Some(mla) = model.mla {
        (heads + 1.0) * f64::from(mla.qk_rope_head_dim)
    } else {
        let keys = model.kv_width(parallel.tensor_parallel_size) as f64 / 2.0;
        heads * f64::from(model.head_dim) + keys
    };
    let gates =
        |layers: u32, width: u32| 3.0 * f64::from(layers) * f64::from(width) / rates.devices;
    let shared = model.experts.map_or(0, |experts| experts.shared_intermediate_size);
    let numbers = f64::from(model.num_hidden_layers) * (8.0 * hidden + 2.0 * rotated)
        + gates(model.dense_layers(), model.intermediate_size)
        + gates(model.expert_layers(), shared);
    numbers * rates.activation_bytes * rates.byte_ms
}

/// The experts that a router chooses, every one as likely as any other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RoutedExperts {
    /// Per token of this engine: arithmetic, and activations moved.
    token: Product,
    /// Reading the weights of all experts of a device.
    weights_ms: f64,
    /// Logarithm of the share of experts that one token does not choose.
    missed_ln: f64,
    /// Engines whose tokens go to the same experts.
    engines: f64,
}

impl RoutedExperts {
    pub(super) fn new(
        model: &ModelShape,
        experts: Experts,
        parallel: Parallel,
        rates: &Rates<'_>,
    ) -> Self {
        let (layers, held_by) =
            (f64::from(model.expert_layers()), f64::from(parallel.expert_devices()));
        let (count, chosen) =
            (f64::from(experts.num_experts), f64::from(experts.num_experts_per_tok));
        let engines = f64::from(if parallel.enable_expert_parallel {
            parallel.data_parallel_size
        } else {
            1
        });
        let (hidden, width) =
            (f64::from(model.hidden_size), f64::from(experts.moe_intermediate_size));
        let parameters = model.expert_parameters() as f64;
        let weights = model.expert_type();
        // Devices hold whole experts or slices of all; their shares of the arithmetic are the same:
        // `engines * tokens * chosen / held_by` experts' worth. Slices see every row, but are narrow.
        let rows = engines * chosen / held_by;
        let moved = if parallel.enable_expert_parallel {
            rows * (2.0 * hidden + 6.0 * width)
        } else {
            chosen * (2.0 * hidden + 6.0 * width / held_by)
        };
        Self {
            token: Product {
                row_compute_ms: layers * rows * 2.0 * parameters * rates.flop_ms(weights),
                weights_ms: 0.0,
                row_ms: layers * moved * rates.activation_bytes * rates.byte_ms,
            },
            weights_ms: layers * count * parameters * weights.bytes() * rates.byte_ms / held_by,
            // Finite, so that no tokens miss all of them even if one token would miss none.
            missed_ln: (-chosen / count).ln_1p().max(f64::MIN),
            engines,
        }
    }

    /// `tokens` of this engine, and as many of every other.
    #[inline]
    pub(super) fn ms(&self, tokens: f64) -> f64 {
        let hit = -(self.missed_ln * tokens * self.engines).exp_m1();
        blend(
            self.token.row_compute_ms * tokens,
            self.weights_ms * hit + self.token.row_ms * tokens,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_and_bytes_add_in_quadrature() {
        let product = Product { row_compute_ms: 3.0, weights_ms: 3.0, row_ms: 1.0 };
        // 3 and 3 + 1; 9 and 3 + 3, of which the squares add up to 117.
        assert!((product.ms(1.0) - 5.0).abs() < 1e-12);
        assert!((product.ms(3.0).powi(2) - 117.0).abs() < 1e-12);
    }
}
