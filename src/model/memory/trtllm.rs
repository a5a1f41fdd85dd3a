//! What the memory of one device leaves for KV, as TensorRT-LLM has it.
//!
//! ```text
//! KV = (memory - context - weights - activations) * free_gpu_memory_fraction
//! ```
//!
//! It runs a pass of `max_num_tokens` tokens before there is a pool to speak of, takes the peak of the memory that
//! is in use then, and gives the share of the rest to KV (`KvCacheCreator`). Weights and activations are those of
//! [`super`]; CUDA graphs are captured later, in what the share leaves.

use super::super::accelerator::Accelerator;
use super::super::parallel::Parallel;
use super::super::shape::ModelShape;
use super::sglang::CONTEXT_GIB;
use super::{GIB, KvMemory, MemoryError, MemoryOptions, gib, wider_hint};

/// What decides over the memory besides the model and the device; TensorRT-LLM's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FreeOptions {
    /// Share of the free memory that is KV, above 0, at most 1.
    pub(crate) free_gpu_memory_fraction: f64,
    /// Tokens of a KV block.
    pub(crate) tokens_per_block: u32,
    /// Longest sequence, in tokens.
    pub(crate) max_seq_len: u32,
    /// Tokens of the pass whose peak is measured.
    pub(crate) max_num_tokens: u32,
    /// Requests that are sampled at once in it.
    pub(crate) max_batch_size: u32,
}

/// The blocks that fit on the fullest device, all of which can be used.
///
/// # Errors
/// A figure out of range, or not even one block is left.
pub(crate) fn blocks(
    model: &ModelShape,
    accelerator: &Accelerator,
    parallel: &Parallel,
    options: &FreeOptions,
) -> Result<u64, MemoryError> {
    super::check(model, accelerator, parallel)?;
    let whole = MemoryOptions {
        gpu_memory_utilization: 1.0,
        block_size: options.tokens_per_block,
        max_model_len: options.max_seq_len,
        max_num_batched_tokens: options.max_num_tokens,
        max_num_seqs: options.max_batch_size,
        cuda_graphs: false,
    };
    whole.check()?;
    let terms = |parallel: &Parallel| KvMemory::terms(model, accelerator, parallel, &whole);
    let share = options.free_gpu_memory_fraction;
    let memory = terms(parallel);
    let found = blocks_in(&memory, share);
    if found > 0 {
        return Ok(found);
    }
    let block = (memory.block_bytes() / share).ceil() as u64;
    let needed = memory.taken_bytes().saturating_add(context_bytes()).saturating_add(block);
    Err(MemoryError::DoesNotFit {
        needed: gib(needed),
        weights: gib(memory.weight_bytes()),
        short: gib(needed.saturating_sub(memory.memory_bytes)),
        budget: gib(memory.memory_bytes),
        hint: wider_hint(model, parallel, |parallel| blocks_in(&terms(parallel), share) > 0),
        model: memory.model,
        accelerator: memory.accelerator,
    })
}

const fn context_bytes() -> u64 {
    (CONTEXT_GIB * GIB) as u64
}

fn blocks_in(memory: &KvMemory, share: f64) -> u64 {
    let free = memory.available_bytes.saturating_sub(context_bytes());
    memory.blocks_in((free as f64 * share) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::presets;
    use crate::model::shape::tests::llama_8b;

    fn options(share: f64) -> FreeOptions {
        FreeOptions {
            free_gpu_memory_fraction: share,
            tokens_per_block: 32,
            max_seq_len: 131_072,
            max_num_tokens: 8192,
            max_batch_size: 2048,
        }
    }

    #[test]
    fn the_share_is_of_what_weights_and_passes_leave() {
        let sheet = &presets::accelerator("h100").unwrap().sheet;
        let parallel = Parallel::default();
        let blocks = |share| blocks(&llama_8b(), sheet, &parallel, &options(share)).unwrap();
        // Of 79.2 GiB 15.0 are weights and 0.8 the context and libraries. Sampling 2048 requests takes
        // 2048 * 128,256 * 38 bytes, 9.3 GiB, which is the peak of the activations. A block has 32 * 131,072 bytes,
        // 4 MiB: 256 blocks a GiB. 79.2 - 15.0 - 0.8 - 9.3 = 54.1.
        let all = blocks(1.0);
        assert!((53 * 256..55 * 256).contains(&all), "{all} blocks");
        assert!((all as f64 / 2.0 - blocks(0.5) as f64).abs() <= 1.0);
    }

    #[test]
    fn what_does_not_fit_says_what_would() {
        let sheet = &presets::accelerator("h100").unwrap().sheet;
        let model = &presets::model("llama-3.1-70b").unwrap().shape;
        let error = blocks(model, sheet, &Parallel::default(), &options(0.9)).unwrap_err();
        assert!(error.to_string().contains("it fits from tensor_parallel_size"), "{error}");
    }
}
