//! What the memory of one device leaves for KV, and how many blocks that makes: as vLLM has it here, as SGLang and
//! TensorRT-LLM have it in [`sglang`] and [`trtllm`].
//!
//! ```text
//! KV = memory * gpu_memory_utilization - weights - activations - reserve
//! ```
//!
//! vLLM measures each term at start (`determine_available_memory`): it loads the weights, runs one pass of
//! `max_num_batched_tokens` tokens with a sampler for `max_num_seqs` requests, and takes the peak. Here each
//! follows from the model's shape; what cannot be derived is a constant with its reason beside it. Every term is that
//! of the fullest device.
//!
//! Not here: the memory of host and swap, LoRA adapters, drafts, the encoder of a multimodal model, padding of
//! weights for a kernel other than that of MXFP4 experts.

pub(crate) mod sglang;
pub(crate) mod trtllm;

use std::fmt;

use super::accelerator::Accelerator;
use super::parallel::Parallel;
use super::shape::{DataType, ModelShape};
use crate::base::config::ConfigError;

/// Bytes of a GiB.
const GIB: f64 = 1_073_741_824.0;

/// Peak bytes of the sampler per request and entry of the vocabulary. Logs of vLLM on an H100 with 1024
/// requests give 37.9 to 38.5 for vocabularies of 128,256, 151,936 and 201,088 and any number of devices: logits
/// in two precisions, their sorted copy with 64-bit indices, probabilities, their sums and the noise.
const SAMPLER_BYTES: f64 = 38.0;

/// What the CUDA libraries of a device take outside the framework while a pass is measured: 0.13 GiB in the same
/// logs.
const LIBRARIES_GIB: f64 = 0.13;

/// What communication between the devices of an engine adds to that: logs have 0.42 GiB on two H100, and leave
/// room for 0.8 to 1.2 GiB on two to eight B200.
const COMMUNICATION_GIB: f64 = 0.7;

/// CUDA graphs, whose estimate vLLM subtracts from release 0.21.0 on: 0.2 to 0.8 GiB in logs of dense models.
const CUDA_GRAPHS_GIB: f64 = 0.5;

/// What the width of an expert of this type is padded to for its kernel. Logs of gpt-oss on an H100 have 13.47 and
/// 64.38 GiB of weights; a width of 3072 for 2880 gives 13.43 and 64.48, 2880 itself 12.80 and 60.69.
const MXFP4_WIDTH: f64 = 256.0;

/// The largest number of devices that a layer is spread over in a hint.
const HINT_SIZE_MAX: u32 = 1024;

/// Tokens, requests and blocks beyond which no limit may lie.
const COUNT_MAX: u32 = 1 << 27;

/// What decides over the memory besides the model and the device; vLLM's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MemoryOptions {
    /// Share of the device's memory that the engine may use, above 0, at most 1.
    pub(crate) gpu_memory_utilization: f64,
    /// Tokens of a KV block.
    pub(crate) block_size: u32,
    /// Longest sequence, in tokens.
    pub(crate) max_model_len: u32,
    /// Tokens of the pass whose peak is measured.
    pub(crate) max_num_batched_tokens: u32,
    /// Requests that are sampled at once in it.
    pub(crate) max_num_seqs: u32,
    /// Whether CUDA graphs are subtracted, as from vLLM 0.21.0 on.
    pub(crate) cuda_graphs: bool,
}

impl Default for MemoryOptions {
    /// The defaults of vLLM 0.33.0 behind its server, on a device of 70 to 160 GiB.
    fn default() -> Self {
        Self {
            gpu_memory_utilization: 0.92,
            block_size: 16,
            max_model_len: 8192,
            max_num_batched_tokens: 8192,
            max_num_seqs: 1024,
            cuda_graphs: true,
        }
    }
}

impl MemoryOptions {
    fn check(&self) -> Result<(), ConfigError> {
        let share = self.gpu_memory_utilization;
        if !(share > 0.0 && share <= 1.0) {
            let accepted = "a share above 0, at most 1";
            return Err(ConfigError::new("gpu_memory_utilization", share, accepted));
        }
        for (path, count) in [
            ("block_size", self.block_size),
            ("max_model_len", self.max_model_len),
            ("max_num_batched_tokens", self.max_num_batched_tokens),
            ("max_num_seqs", self.max_num_seqs),
        ] {
            if !(1..=COUNT_MAX).contains(&count) {
                let accepted = format!("an integer from 1 to {COUNT_MAX}");
                return Err(ConfigError::new(path, count, accepted));
            }
        }
        Ok(())
    }
}

/// Why a deployment has no KV blocks, or not as many.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum MemoryError {
    /// A figure that cannot be used.
    #[error(transparent)]
    Field(#[from] ConfigError),
    /// Nothing is left for KV.
    #[error(
        "{model} does not fit on {accelerator}: {needed:.2} GiB per device ({weights:.2} GiB of weights), {short:.2} GiB more than the {budget:.2} GiB that the engine may use; {hint}"
    )]
    DoesNotFit {
        /// Name of the model.
        model: String,
        /// Name of the device.
        accelerator: String,
        /// Weights, activations, reserve and two blocks, in GiB.
        needed: f64,
        /// Weights, in GiB.
        weights: f64,
        /// What is missing, in GiB.
        short: f64,
        /// What may be used, in GiB.
        budget: f64,
        /// What to change.
        hint: String,
    },
    /// Tokens given by hand that the device cannot hold.
    #[error(
        "{tokens} tokens take {needed:.2} GiB per device, but {weights:.2} GiB of weights leave {left:.2} GiB of {memory:.2} GiB: at most {most} tokens"
    )]
    TooManyTokens {
        /// How many were asked for.
        tokens: u64,
        /// What they take, in GiB.
        needed: f64,
        /// Weights, in GiB.
        weights: f64,
        /// What those leave, in GiB.
        left: f64,
        /// Memory of the device, in GiB.
        memory: f64,
        /// How many fit.
        most: u64,
    },
    /// Blocks given by hand that the device cannot hold.
    #[error(
        "{blocks} KV blocks take {needed:.2} GiB per device, but {weights:.2} GiB of weights leave {left:.2} GiB of {memory:.2} GiB: at most {most} blocks"
    )]
    TooManyBlocks {
        /// How many were asked for.
        blocks: u64,
        /// What they take, in GiB.
        needed: f64,
        /// Weights, in GiB.
        weights: f64,
        /// What those leave, in GiB.
        left: f64,
        /// Memory of the device, in GiB.
        memory: f64,
        /// How many fit.
        most: u64,
    },
}

/// Where the memory of the fullest device goes. Bytes are rounded up, blocks down.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KvMemory {
    /// Name of the model.
    pub(crate) model: String,
    /// Name of the device.
    pub(crate) accelerator: String,
    /// How the engine is spread.
    pub(crate) parallel: Parallel,
    /// What was asked for.
    pub(crate) options: MemoryOptions,
    /// Memory of the device.
    pub(crate) memory_bytes: u64,
    /// The share of it that the engine may use.
    pub(crate) budget_bytes: u64,
    /// Layers of the fullest pipeline stage.
    pub(crate) layers: u32,
    /// Weights of these layers that are no experts.
    pub(crate) layer_weight_bytes: u64,
    /// Experts of these layers.
    pub(crate) expert_weight_bytes: u64,
    /// Embedding and LM head.
    pub(crate) embedding_weight_bytes: u64,
    /// Peak of the activations.
    pub(crate) activation_bytes: u64,
    /// Libraries, communication and CUDA graphs.
    pub(crate) reserve_bytes: u64,
    /// What is left for KV.
    pub(crate) available_bytes: u64,
    /// KV of a sequence of `max_model_len` tokens, in whole blocks.
    pub(crate) sequence_bytes: u64,
    /// Blocks that such a sequence holds.
    pub(crate) sequence_blocks: u64,
    /// Blocks in all, the one that is never usable included, as vLLM's `num_gpu_blocks`.
    pub(crate) blocks: u64,
    /// Tokens in these blocks.
    pub(crate) tokens: u64,
}

impl KvMemory {
    /// What is left for KV on the fullest device.
    ///
    /// # Errors
    /// A figure out of range, or nothing is left.
    pub(crate) fn derive(
        model: &ModelShape,
        accelerator: &Accelerator,
        parallel: &Parallel,
        options: &MemoryOptions,
    ) -> Result<Self, MemoryError> {
        check(model, accelerator, parallel)?;
        options.check()?;
        let memory = Self::terms(model, accelerator, parallel, options);
        if memory.fits() {
            return Ok(memory);
        }
        let hint = wider_hint(model, parallel, |parallel| {
            Self::terms(model, accelerator, parallel, options).fits()
        });
        let needed = memory.needed_bytes();
        Err(MemoryError::DoesNotFit {
            model: memory.model.clone(),
            accelerator: memory.accelerator.clone(),
            needed: gib(needed),
            weights: gib(memory.weight_bytes()),
            short: gib(needed.saturating_sub(memory.budget_bytes)),
            budget: gib(memory.budget_bytes),
            hint,
        })
    }

    fn terms(
        model: &ModelShape,
        accelerator: &Accelerator,
        parallel: &Parallel,
        options: &MemoryOptions,
    ) -> Self {
        let memory_bytes = (accelerator.memory_gb * 1e9) as u64;
        let budget_bytes = (memory_bytes as f64 * options.gpu_memory_utilization) as u64;
        let stage = Stage::fullest(model, parallel);
        let (layer_weights, experts) = stage.weights(model, parallel);
        let embedding = embedding_bytes(model, parallel);
        let mut memory = Self {
            model: model.name.clone(),
            accelerator: accelerator.name.clone(),
            parallel: *parallel,
            options: *options,
            memory_bytes,
            budget_bytes,
            layers: stage.layers,
            layer_weight_bytes: layer_weights.ceil() as u64,
            expert_weight_bytes: experts.ceil() as u64,
            embedding_weight_bytes: embedding.ceil() as u64,
            activation_bytes: activation_bytes(model, parallel, options).ceil() as u64,
            reserve_bytes: reserve_bytes(parallel, options).ceil() as u64,
            available_bytes: 0,
            sequence_bytes: stage.sequence_bytes(model, parallel, options).ceil() as u64,
            sequence_blocks: u64::from(options.max_model_len.div_ceil(options.block_size)),
            blocks: 0,
            tokens: 0,
        };
        memory.available_bytes = budget_bytes.saturating_sub(memory.taken_bytes());
        memory.blocks = memory.blocks_in(memory.available_bytes);
        memory.tokens = memory.blocks.saturating_mul(options.block_size.into());
        memory
    }

    /// Two blocks: one of them is never usable.
    fn fits(&self) -> bool {
        self.blocks >= 2
    }

    /// Everything but KV.
    fn taken_bytes(&self) -> u64 {
        let terms = [self.weight_bytes(), self.activation_bytes, self.reserve_bytes];
        terms.into_iter().fold(0, u64::saturating_add)
    }

    /// Everything but KV, and two blocks.
    fn needed_bytes(&self) -> u64 {
        self.taken_bytes().saturating_add((2.0 * self.block_bytes()).ceil() as u64)
    }

    /// All weights of the device.
    pub(crate) fn weight_bytes(&self) -> u64 {
        let terms =
            [self.layer_weight_bytes, self.expert_weight_bytes, self.embedding_weight_bytes];
        terms.into_iter().fold(0, u64::saturating_add)
    }

    /// KV of a block on the device; that of a sequence of `max_model_len` over its blocks.
    pub(crate) fn block_bytes(&self) -> f64 {
        self.sequence_bytes as f64 / self.sequence_blocks as f64
    }

    /// Sequences of `max_model_len` that fit at once, as vLLM states its maximum concurrency.
    pub(crate) fn concurrency(&self) -> f64 {
        self.blocks as f64 / self.sequence_blocks as f64
    }

    /// Tokens in the blocks that can be used: one of them never is.
    pub(crate) fn usable_tokens(&self) -> u64 {
        (self.blocks - 1).saturating_mul(self.options.block_size.into())
    }

    /// The same derivation for the longest sequence that fits, at most `options.max_model_len`.
    ///
    /// # Errors
    /// Nothing fits.
    pub(crate) fn derive_fitting(
        model: &ModelShape,
        accelerator: &Accelerator,
        parallel: &Parallel,
        options: &MemoryOptions,
    ) -> Result<Self, MemoryError> {
        let mut memory = Self::derive(model, accelerator, parallel, options)?;
        // A window weighs more in a shorter sequence, so the first answer need not be the last.
        while memory.usable_tokens() < u64::from(memory.options.max_model_len) {
            let max_model_len = memory.usable_tokens() as u32;
            let options = MemoryOptions { max_model_len, ..memory.options };
            memory = Self::derive(model, accelerator, parallel, &options)?;
        }
        Ok(memory)
    }

    fn blocks_in(&self, bytes: u64) -> u64 {
        let blocks =
            u128::from(bytes) * u128::from(self.sequence_blocks) / u128::from(self.sequence_bytes);
        // A sequence behind a window has more blocks than bytes of KV in them.
        u64::try_from(blocks).unwrap_or(u64::MAX)
    }

    /// Whether blocks given by hand fit beside the weights in the whole memory of the device.
    ///
    /// # Errors
    /// They do not.
    pub(crate) fn check_blocks(&self, num_blocks: u64) -> Result<(), MemoryError> {
        let left = self.memory_bytes.saturating_sub(self.weight_bytes());
        let most = self.blocks_in(left);
        if num_blocks <= most {
            return Ok(());
        }
        Err(MemoryError::TooManyBlocks {
            blocks: num_blocks,
            needed: num_blocks as f64 * self.block_bytes() / GIB,
            weights: gib(self.weight_bytes()),
            left: gib(left),
            memory: gib(self.memory_bytes),
            most,
        })
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / GIB
}

/// # Errors
/// A figure of the model, the device or the parallelism out of range.
fn check(
    model: &ModelShape,
    accelerator: &Accelerator,
    parallel: &Parallel,
) -> Result<(), ConfigError> {
    model.check().map_err(|e| e.within("model"))?;
    accelerator.check().map_err(|e| e.within("accelerator"))?;
    parallel.check().map_err(|e| e.within("parallel"))
}

/// The smallest larger number of devices for a layer with which a model `fits`.
fn wider_hint(model: &ModelShape, parallel: &Parallel, fits: impl Fn(&Parallel) -> bool) -> String {
    let wider = std::iter::successors(Some(1_u32), |size| size.checked_mul(2))
        .take_while(|&size| size <= HINT_SIZE_MAX)
        .filter(|&size| size > parallel.tensor_parallel_size)
        // Engines spread whole query heads.
        .filter(|&size| model.num_attention_heads.is_multiple_of(size))
        .find(|&size| fits(&Parallel { tensor_parallel_size: size, ..*parallel }));
    match wider {
        Some(size) => format!("it fits from tensor_parallel_size {size} on"),
        None => "no larger tensor_parallel_size makes it fit".to_owned(),
    }
}

/// The pipeline stage that holds most.
#[derive(Clone, Copy, Debug)]
struct Stage {
    /// Layers of it.
    layers: u32,
    /// Those with experts, as many as there can be: they are the heavier ones.
    expert_layers: u32,
    /// Those that attend to a window, as few as there can be.
    sliding_layers: u32,
}

impl Stage {
    fn fullest(model: &ModelShape, parallel: &Parallel) -> Self {
        let layers = model.num_hidden_layers.div_ceil(parallel.pipeline_parallel_size);
        let sliding = model.sliding.map_or(0, |sliding| sliding.layers);
        // Windows alternate through the layers, so a stage has its share of them.
        let share = u64::from(sliding) * u64::from(layers) / u64::from(model.num_hidden_layers);
        Self {
            layers,
            expert_layers: model.expert_layers().min(layers),
            sliding_layers: share as u32,
        }
    }

    /// Bytes of the weights on one device: those of layers without their experts, and the experts.
    fn weights(&self, model: &ModelShape, parallel: &Parallel) -> (f64, f64) {
        let size = f64::from(parallel.tensor_parallel_size);
        let (weight, activation) = (model.weight_type.bytes(), model.activation_type.bytes());
        let hidden = f64::from(model.hidden_size);
        let dense_layers = f64::from(self.layers - self.expert_layers);
        let attention = attention_parameters(model, parallel.tensor_parallel_size);
        let mut layers = f64::from(self.layers) * (attention * weight + 2.0 * hidden * activation)
            + hidden * activation
            + dense_layers * model.dense_mlp_parameters() as f64 / size * weight;
        let Some(experts) = model.experts else { return (layers, 0.0) };
        let expert_layers = f64::from(self.expert_layers);
        let shared = 3.0 * hidden * f64::from(experts.shared_intermediate_size) / size;
        let router = hidden * f64::from(experts.num_experts);
        layers += expert_layers * (shared * weight + router * activation);
        let devices = parallel.expert_devices();
        let mut width = f64::from(experts.moe_intermediate_size);
        let mut held = experts.num_experts;
        if parallel.enable_expert_parallel {
            held = held.div_ceil(devices);
        } else {
            width /= f64::from(devices);
        }
        if model.expert_type() == DataType::Mxfp4 {
            width = (width / MXFP4_WIDTH).ceil() * MXFP4_WIDTH;
        }
        let expert = 3.0 * hidden * width * model.expert_type().bytes();
        (layers, expert_layers * f64::from(held) * expert)
    }

    /// KV of the longest sequence on one device. A layer with a window keeps the blocks that the window
    /// touches: those it fills and one more, since it starts anywhere.
    fn sequence_bytes(
        &self,
        model: &ModelShape,
        parallel: &Parallel,
        options: &MemoryOptions,
    ) -> f64 {
        let blocks = options.max_model_len.div_ceil(options.block_size);
        let windowed = model.sliding.map_or(0, |sliding| {
            blocks.min(sliding.window_tokens.div_ceil(options.block_size).saturating_add(1))
        });
        let full_layers = u64::from(self.layers - self.sliding_layers);
        let layer_blocks =
            full_layers * u64::from(blocks) + u64::from(self.sliding_layers) * u64::from(windowed);
        let width = model.kv_width(parallel.tensor_parallel_size) as f64;
        layer_blocks as f64 * f64::from(options.block_size) * width * model.kv_type.bytes()
    }
}

/// Weights of the attention of one layer on one device. Query heads and the projection out of them are split, key
/// and value heads as far as there are any; what compresses queries, keys and values is on every device.
fn attention_parameters(model: &ModelShape, tensor_parallel_size: u32) -> f64 {
    let hidden = f64::from(model.hidden_size);
    let heads = f64::from(model.num_attention_heads.div_ceil(tensor_parallel_size));
    if let Some(mla) = model.mla {
        let query = heads * f64::from(mla.qk_nope_head_dim + mla.qk_rope_head_dim);
        let compressed = f64::from(mla.q_lora_rank);
        let queries = if mla.q_lora_rank == 0 {
            hidden * query
        } else {
            hidden * compressed + compressed * query
        };
        let latent = f64::from(mla.kv_lora_rank);
        let down = hidden * (latent + f64::from(mla.qk_rope_head_dim));
        let up = latent * heads * f64::from(mla.qk_nope_head_dim + mla.v_head_dim);
        return queries + down + up + heads * f64::from(mla.v_head_dim) * hidden;
    }
    let kv_width = model.kv_width(tensor_parallel_size) as f64;
    2.0 * hidden * heads * f64::from(model.head_dim) + hidden * kv_width
}

/// Embedding and LM head, whose vocabulary is split. Of a pipeline, the first stage holds the one and the last the
/// other.
fn embedding_bytes(model: &ModelShape, parallel: &Parallel) -> f64 {
    let alone = parallel.pipeline_parallel_size == 1;
    let matrices = if alone && !model.tie_word_embeddings { 2.0 } else { 1.0 };
    let vocabulary = f64::from(model.vocab_size.div_ceil(parallel.tensor_parallel_size));
    matrices * vocabulary * f64::from(model.hidden_size) * model.activation_type.bytes()
}

/// The larger of two peaks: that of a layer, and that of the sampler, which has the logits of the whole vocabulary
/// whatever the devices. The residual stream is there twice in both.
fn activation_bytes(model: &ModelShape, parallel: &Parallel, options: &MemoryOptions) -> f64 {
    let size = f64::from(parallel.tensor_parallel_size);
    let hidden = f64::from(model.hidden_size);
    let heads = f64::from(model.num_attention_heads.div_ceil(parallel.tensor_parallel_size));
    // Gate and up, and their product.
    let dense = 3.0 * f64::from(model.intermediate_size) / size;
    let experts = model.experts.map_or(0.0, |experts| {
        let split = if parallel.enable_expert_parallel { 1.0 } else { size };
        // The same for each expert that is chosen, and what comes out of it.
        let expert = 3.0 * f64::from(experts.moe_intermediate_size) / split + hidden;
        f64::from(experts.num_experts_per_tok) * expert
            + 3.0 * f64::from(experts.shared_intermediate_size) / size
    });
    let attention = if let Some(mla) = model.mla {
        let query = f64::from(mla.qk_nope_head_dim + mla.qk_rope_head_dim);
        heads * (2.0 * query + 2.0 * f64::from(mla.v_head_dim))
    } else {
        let kv_width = model.kv_width(parallel.tensor_parallel_size) as f64;
        2.0 * heads * f64::from(model.head_dim) + kv_width
    };
    let layer = dense.max(experts).max(attention);
    let tokens = f64::from(options.max_num_batched_tokens) * model.activation_type.bytes();
    let sampled = f64::from(options.max_num_seqs.min(options.max_num_batched_tokens));
    let logits = sampled * f64::from(model.vocab_size) * SAMPLER_BYTES;
    tokens * 2.0 * hidden + logits.max(tokens * layer)
}

fn reserve_bytes(parallel: &Parallel, options: &MemoryOptions) -> f64 {
    let communication = if parallel.devices() > 1 { COMMUNICATION_GIB } else { 0.0 };
    let graphs = if options.cuda_graphs { CUDA_GRAPHS_GIB } else { 0.0 };
    (LIBRARIES_GIB + communication + graphs) * GIB
}

impl fmt::Display for KvMemory {
    /// The derivation, a line for each term.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let o = &self.options;
        let p = &self.parallel;
        writeln!(
            f,
            "{} on {}, tensor_parallel_size {}, pipeline_parallel_size {}; GiB per device",
            self.model, self.accelerator, p.tensor_parallel_size, p.pipeline_parallel_size
        )?;
        let mut line =
            |sign: char, bytes: u64, what: &str| writeln!(f, "{sign} {:>9.3}  {what}", gib(bytes));
        line(' ', self.memory_bytes, "memory")?;
        let share = format!("of which gpu_memory_utilization {}", o.gpu_memory_utilization);
        line(' ', self.budget_bytes, &share)?;
        let layers = format!("weights of {} layers", self.layers);
        line('-', self.layer_weight_bytes, &layers)?;
        if self.expert_weight_bytes > 0 {
            line('-', self.expert_weight_bytes, "weights of their experts")?;
        }
        line('-', self.embedding_weight_bytes, "embedding and LM head")?;
        let activations = format!(
            "activations of {} tokens, {} of them sampled",
            o.max_num_batched_tokens,
            o.max_num_seqs.min(o.max_num_batched_tokens)
        );
        line('-', self.activation_bytes, &activations)?;
        let reserve = if o.cuda_graphs { "libraries and CUDA graphs" } else { "libraries" };
        line('-', self.reserve_bytes, reserve)?;
        line('=', self.available_bytes, "for KV")?;
        writeln!(
            f,
            "/ {:>9.3}  MiB for a block of {} tokens (a sequence of {} tokens: {:.3} GiB in {} blocks)",
            self.block_bytes() / (1024.0 * 1024.0),
            o.block_size,
            o.max_model_len,
            gib(self.sequence_bytes),
            self.sequence_blocks
        )?;
        writeln!(
            f,
            "= {:>9}  blocks, {} tokens, {:.2} such sequences",
            self.blocks,
            self.tokens,
            self.concurrency()
        )
    }
}

#[cfg(test)]
mod tests;
