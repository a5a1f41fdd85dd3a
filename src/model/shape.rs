//! The shape of a model: what its weights, its KV and its arithmetic follow from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::config::ConfigError;

/// How numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DataType {
    /// 32-bit floats.
    Fp32,
    /// 16-bit brain floats.
    Bf16,
    /// 16-bit floats.
    Fp16,
    /// 8-bit floats.
    Fp8,
    /// 8-bit integers.
    Int8,
    /// 4-bit integers with a 16-bit scale and a 4-bit zero for each 128.
    Int4,
    /// 4-bit floats with an 8-bit scale for each 16.
    Nvfp4,
    /// 4-bit floats with an 8-bit scale for each 32.
    Mxfp4,
}

impl DataType {
    /// Bytes per number, scales included.
    pub(crate) const fn bytes(self) -> f64 {
        match self {
            Self::Fp32 => 4.0,
            Self::Bf16 | Self::Fp16 => 2.0,
            Self::Fp8 | Self::Int8 => 1.0,
            Self::Int4 => (4.0 + 20.0 / 128.0) / 8.0,
            Self::Nvfp4 => (4.0 + 8.0 / 16.0) / 8.0,
            Self::Mxfp4 => (4.0 + 8.0 / 32.0) / 8.0,
        }
    }
}

/// A decoder-only transformer. Names follow a model's `config.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelShape {
    /// What it is called.
    pub(crate) name: String,
    /// Layers.
    pub(crate) num_hidden_layers: u32,
    /// Width of the residual stream.
    pub(crate) hidden_size: u32,
    /// Query heads.
    pub(crate) num_attention_heads: u32,
    /// Key and value heads.
    pub(crate) num_key_value_heads: u32,
    /// Width of a head.
    pub(crate) head_dim: u32,
    /// Width of the gated feed-forward part of a layer without experts; 0 if there is no such layer.
    pub(crate) intermediate_size: u32,
    /// Tokens that are told apart.
    pub(crate) vocab_size: u32,
    /// Whether the first and the last matrix are one.
    #[serde(default)]
    pub(crate) tie_word_embeddings: bool,
    /// The longest sequence.
    pub(crate) max_position_embeddings: u32,
    /// Mixture of experts.
    #[serde(default)]
    pub(crate) experts: Option<Experts>,
    /// Multi-head latent attention.
    #[serde(default)]
    pub(crate) mla: Option<Mla>,
    /// Layers that attend to a window.
    #[serde(default)]
    pub(crate) sliding: Option<Sliding>,
    /// How weights are stored.
    pub(crate) weight_type: DataType,
    /// How the weights of experts are stored; absent: as the others.
    #[serde(default)]
    pub(crate) expert_weight_type: Option<DataType>,
    /// How activations are stored, embeddings and the LM head too.
    pub(crate) activation_type: DataType,
    /// How keys and values are stored.
    pub(crate) kv_type: DataType,
}

/// Mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Experts {
    /// Experts of a layer that a router chooses from.
    pub(crate) num_experts: u32,
    /// How many it chooses for a token.
    pub(crate) num_experts_per_tok: u32,
    /// Width of one expert.
    pub(crate) moe_intermediate_size: u32,
    /// Width of the experts that every token goes through, together; 0 if there are none.
    #[serde(default)]
    pub(crate) shared_intermediate_size: u32,
    /// Layers without experts.
    #[serde(default)]
    pub(crate) dense_layers: u32,
}

/// Multi-head latent attention (DeepSeek V2, section 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mla {
    /// Width of the compressed query; 0: queries are not compressed.
    pub(crate) q_lora_rank: u32,
    /// Width of the compressed key and value, which is what the cache holds.
    pub(crate) kv_lora_rank: u32,
    /// Width of a head's key without rotation.
    pub(crate) qk_nope_head_dim: u32,
    /// Width of the rotated key that all heads share; cached too.
    pub(crate) qk_rope_head_dim: u32,
    /// Width of a head's value.
    pub(crate) v_head_dim: u32,
}

/// Layers that attend to a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sliding {
    /// Tokens of the window.
    pub(crate) window_tokens: u32,
    /// How many layers have it.
    pub(crate) layers: u32,
}

impl ModelShape {
    /// Weights of the attention of one layer: projections to queries, keys and values, and out of them.
    pub(crate) fn attention_parameters(&self) -> u64 {
        let hidden = u64::from(self.hidden_size);
        let heads = u64::from(self.num_attention_heads);
        if let Some(mla) = self.mla {
            let query_width = heads * u64::from(mla.qk_nope_head_dim + mla.qk_rope_head_dim);
            let compressed = u64::from(mla.q_lora_rank);
            let query = match compressed {
                0 => hidden * query_width,
                _ => hidden * compressed + compressed * query_width,
            };
            let latent = u64::from(mla.kv_lora_rank);
            let down = hidden * (latent + u64::from(mla.qk_rope_head_dim));
            let up = latent * heads * u64::from(mla.qk_nope_head_dim + mla.v_head_dim);
            return query + down + up + heads * u64::from(mla.v_head_dim) * hidden;
        }
        let (width, kv_heads) = (u64::from(self.head_dim), u64::from(self.num_key_value_heads));
        2 * hidden * heads * width + 2 * hidden * kv_heads * width
    }

    /// Weights of the gated feed-forward part of one layer without experts: gate, up and down.
    pub(crate) fn dense_mlp_parameters(&self) -> u64 {
        3 * u64::from(self.hidden_size) * u64::from(self.intermediate_size)
    }

    /// Layers without experts.
    pub(crate) fn dense_layers(&self) -> u32 {
        self.experts.map_or(self.num_hidden_layers, |experts| experts.dense_layers)
    }

    /// Layers with experts.
    pub(crate) fn expert_layers(&self) -> u32 {
        self.num_hidden_layers - self.dense_layers()
    }

    /// Weights of one expert of one layer; 0 without experts.
    pub(crate) fn expert_parameters(&self) -> u64 {
        self.experts.map_or(0, |experts| {
            3 * u64::from(self.hidden_size) * u64::from(experts.moe_intermediate_size)
        })
    }

    /// Weights of a layer with experts that every token goes through: its router and its shared experts.
    pub(crate) fn shared_expert_parameters(&self) -> u64 {
        self.experts.map_or(0, |experts| {
            let width =
                u64::from(experts.num_experts) + 3 * u64::from(experts.shared_intermediate_size);
            u64::from(self.hidden_size) * width
        })
    }

    /// Weights of one of the two matrices between tokens and the residual stream.
    pub(crate) fn embedding_parameters(&self) -> u64 {
        u64::from(self.vocab_size) * u64::from(self.hidden_size)
    }

    /// Weights of all layers that are no experts, normalisation included, without embeddings.
    pub(crate) fn layer_parameters(&self) -> u64 {
        let layers = u64::from(self.num_hidden_layers);
        let norms = (2 * layers + 1) * u64::from(self.hidden_size);
        layers * self.attention_parameters()
            + u64::from(self.dense_layers()) * self.dense_mlp_parameters()
            + u64::from(self.expert_layers()) * self.shared_expert_parameters()
            + norms
    }

    /// Weights of all experts.
    pub(crate) fn all_expert_parameters(&self) -> u64 {
        let experts = self.experts.map_or(0, |experts| u64::from(experts.num_experts));
        u64::from(self.expert_layers()) * experts * self.expert_parameters()
    }

    /// All weights.
    pub(crate) fn parameters(&self) -> u64 {
        let matrices = if self.tie_word_embeddings { 1 } else { 2 };
        self.layer_parameters()
            + self.all_expert_parameters()
            + matrices * self.embedding_parameters()
    }

    /// How the weights of experts are stored.
    pub(crate) fn expert_type(&self) -> DataType {
        self.expert_weight_type.unwrap_or(self.weight_type)
    }

    /// Numbers that one layer caches for a token on one of `tensor_parallel_size` devices: keys and values of its
    /// share of the heads, each at least once; or the compressed ones, which every device holds whole.
    pub(crate) fn kv_width(&self, tensor_parallel_size: u32) -> u64 {
        if let Some(mla) = self.mla {
            return u64::from(mla.kv_lora_rank + mla.qk_rope_head_dim);
        }
        let heads = self.num_key_value_heads.div_ceil(tensor_parallel_size);
        2 * u64::from(heads) * u64::from(self.head_dim)
    }

    /// # Errors
    /// A figure that no model has, or two that do not go together.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        const WIDTH_MAX: u32 = 1 << 24;
        const WEIGHTS_MAX: f64 = (1_u64 << 53) as f64;
        for (path, size, least) in [
            ("num_hidden_layers", self.num_hidden_layers, 1),
            ("hidden_size", self.hidden_size, 1),
            ("num_attention_heads", self.num_attention_heads, 1),
            ("num_key_value_heads", self.num_key_value_heads, 1),
            ("head_dim", self.head_dim, 1),
            ("intermediate_size", self.intermediate_size, u32::from(self.experts.is_none())),
            ("vocab_size", self.vocab_size, 1),
            ("max_position_embeddings", self.max_position_embeddings, 1),
        ] {
            if !(least..=WIDTH_MAX).contains(&size) {
                let accepted = format!("an integer from {least} to {WIDTH_MAX}");
                return Err(ConfigError::new(path, size, accepted));
            }
        }
        if self.num_key_value_heads > self.num_attention_heads {
            let accepted = format!("at most num_attention_heads ({})", self.num_attention_heads);
            return Err(ConfigError::new(
                "num_key_value_heads",
                self.num_key_value_heads,
                accepted,
            ));
        }
        if let Some(experts) = self.experts {
            for (path, size, most) in [
                ("experts.num_experts", experts.num_experts, WIDTH_MAX),
                ("experts.num_experts_per_tok", experts.num_experts_per_tok, experts.num_experts),
                ("experts.moe_intermediate_size", experts.moe_intermediate_size, WIDTH_MAX),
            ] {
                if !(1..=most).contains(&size) {
                    let accepted = format!("an integer from 1 to {most}");
                    return Err(ConfigError::new(path, size, accepted));
                }
            }
            for (path, size, most) in [
                ("experts.dense_layers", experts.dense_layers, self.num_hidden_layers - 1),
                ("experts.shared_intermediate_size", experts.shared_intermediate_size, WIDTH_MAX),
            ] {
                if size > most {
                    return Err(ConfigError::new(
                        path,
                        size,
                        format!("an integer from 0 to {most}"),
                    ));
                }
            }
        }
        if let Some(mla) = self.mla {
            for (path, size, least) in [
                ("mla.q_lora_rank", mla.q_lora_rank, 0),
                ("mla.kv_lora_rank", mla.kv_lora_rank, 1),
                ("mla.qk_nope_head_dim", mla.qk_nope_head_dim, 1),
                ("mla.qk_rope_head_dim", mla.qk_rope_head_dim, 1),
                ("mla.v_head_dim", mla.v_head_dim, 1),
            ] {
                if !(least..=WIDTH_MAX).contains(&size) {
                    let accepted = format!("an integer from {least} to {WIDTH_MAX}");
                    return Err(ConfigError::new(path, size, accepted));
                }
            }
        }
        if let Some(sliding) = self.sliding {
            if sliding.window_tokens == 0 {
                return Err(ConfigError::new(
                    "sliding.window_tokens",
                    0,
                    "an integer of at least 1",
                ));
            }
            if !(1..=self.num_hidden_layers).contains(&sliding.layers) {
                let accepted = format!("an integer from 1 to {}", self.num_hidden_layers);
                return Err(ConfigError::new("sliding.layers", sliding.layers, accepted));
            }
        }
        // So far each figure by itself; with this, sums and products of weights fit 64 bits.
        if self.parameters_at_most() > WEIGHTS_MAX {
            let layers = self.num_hidden_layers;
            let accepted = "a model of at most 2^53 weights";
            return Err(ConfigError::new("num_hidden_layers", layers, accepted));
        }
        Ok(())
    }

    /// No less than all weights, for figures of any size.
    fn parameters_at_most(&self) -> f64 {
        let hidden = f64::from(self.hidden_size);
        let heads = f64::from(self.num_attention_heads);
        let mut layer = hidden
            * (4.0 * heads * f64::from(self.head_dim)
                + 3.0 * f64::from(self.intermediate_size)
                + 3.0);
        if let Some(experts) = self.experts {
            let each = 1.0 + 3.0 * f64::from(experts.moe_intermediate_size);
            let shared = 3.0 * f64::from(experts.shared_intermediate_size);
            layer += hidden * (f64::from(experts.num_experts) * each + shared);
        }
        if let Some(mla) = self.mla {
            let [query, latent, nope, rope, value] = [
                mla.q_lora_rank,
                mla.kv_lora_rank,
                mla.qk_nope_head_dim,
                mla.qk_rope_head_dim,
                mla.v_head_dim,
            ]
            .map(f64::from);
            layer += (hidden + query + latent) * heads * (nope + rope + value);
            layer += hidden * (query + latent + rope);
        }
        f64::from(self.num_hidden_layers) * layer + 2.0 * hidden * f64::from(self.vocab_size)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Llama 3.1 8B (its `config.json`).
    pub(crate) fn llama_8b() -> ModelShape {
        ModelShape {
            name: "llama-3.1-8b".to_owned(),
            num_hidden_layers: 32,
            hidden_size: 4096,
            num_attention_heads: 32,
            num_key_value_heads: 8,
            head_dim: 128,
            intermediate_size: 14336,
            vocab_size: 128_256,
            tie_word_embeddings: false,
            max_position_embeddings: 131_072,
            experts: None,
            mla: None,
            sliding: None,
            weight_type: DataType::Bf16,
            expert_weight_type: None,
            activation_type: DataType::Bf16,
            kv_type: DataType::Bf16,
        }
    }

    #[test]
    fn llama_has_its_published_number_of_weights() {
        let model = llama_8b();
        // 2 * 4096 * 4096 + 2 * 4096 * 1024.
        assert_eq!(model.attention_parameters(), 41_943_040);
        // As the model card's safetensors index says.
        assert_eq!(model.parameters(), 8_030_261_248);
        // 8 heads * 128 * 2; with 16 devices a head is held twice.
        assert_eq!((model.kv_width(1), model.kv_width(2), model.kv_width(16)), (2048, 1024, 256));
        assert_eq!(model.check(), Ok(()));
    }

    #[test]
    fn a_shape_that_cannot_be_is_refused() {
        let refused = |change: fn(&mut ModelShape)| {
            let mut model = llama_8b();
            change(&mut model);
            model.check().unwrap_err().path
        };
        assert_eq!(refused(|m| m.hidden_size = 0), "hidden_size");
        assert_eq!(refused(|m| m.num_key_value_heads = 33), "num_key_value_heads");
        assert_eq!(
            refused(|m| m.sliding = Some(Sliding { window_tokens: 128, layers: 33 })),
            "sliding.layers"
        );
    }
}
