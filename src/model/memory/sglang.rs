//! What SGLang's static share of one device leaves for KV, and how many tokens that makes.
//!
//! ```text
//! KV = free before loading * mem_fraction_static - weights
//! ```
//!
//! SGLang measures what is free before and after it loads the weights, and leaves `1 - mem_fraction_static` of the
//! former to activations and CUDA graphs, whatever these take (release 0.5.23).
//!
//! Not here: what is not in [`super`] either, and the pool of its own that layers with a window have: they count with
//! the share that SGLang gives them by default.

use std::fmt;

use super::super::accelerator::Accelerator;
use super::super::parallel::Parallel;
use super::super::shape::ModelShape;
use super::{GIB, MemoryError, Stage, check, embedding_bytes, gib, wider_hint};

/// What CUDA and its libraries hold of a device before anything is loaded. Logs have 78.43 and 78.48 GiB free of
/// 79.18 on an H100.
pub(super) const CONTEXT_GIB: f64 = 0.7;

/// What communication between devices adds to that. Logs have 77.33 and 77.43 GiB free of 79.18 on eight H100, 137.3
/// of 139.8 on eight H200.
const COMMUNICATION_GIB: f64 = 1.3;

/// KV of a layer with a window per token of the pool, in that of a layer without (`swa_full_tokens_ratio`).
const WINDOW_SHARE: f64 = 0.8;

/// Where the memory of the fullest device goes. Bytes are rounded up, tokens down.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StaticMemory {
    /// Name of the model.
    pub(crate) model: String,
    /// Name of the device.
    pub(crate) accelerator: String,
    /// How the engine is spread.
    pub(crate) parallel: Parallel,
    /// Share of the free memory for weights and KV, above 0, below 1.
    pub(crate) mem_fraction_static: f64,
    /// Tokens of a page.
    pub(crate) page_size: u32,
    /// Memory of the device.
    pub(crate) memory_bytes: u64,
    /// What is free of it before weights are loaded.
    pub(crate) free_bytes: u64,
    /// The static share of that.
    pub(crate) static_bytes: u64,
    /// Layers of the fullest pipeline stage.
    pub(crate) layers: u32,
    /// Weights of these layers, their experts included.
    pub(crate) layer_weight_bytes: u64,
    /// Embedding and LM head.
    pub(crate) embedding_weight_bytes: u64,
    /// What is left for KV.
    pub(crate) available_bytes: u64,
    /// KV of a token on the device.
    pub(crate) token_bytes: f64,
    /// Tokens that fit, in whole pages.
    pub(crate) tokens: u64,
}

impl StaticMemory {
    /// What is left for KV on the fullest device, in pages of `page_size` tokens. The share and the page are in
    /// range.
    ///
    /// # Errors
    /// A figure of the model, the device or the parallelism out of range, or not even two pages are left.
    pub(crate) fn derive(
        model: &ModelShape,
        accelerator: &Accelerator,
        parallel: &Parallel,
        mem_fraction_static: f64,
        page_size: u32,
    ) -> Result<Self, MemoryError> {
        check(model, accelerator, parallel)?;
        let terms = |parallel: &Parallel| {
            Self::terms(model, accelerator, parallel, mem_fraction_static, page_size)
        };
        let memory = terms(parallel);
        if memory.fits() {
            return Ok(memory);
        }
        let needed = memory.weight_bytes().saturating_add(memory.two_pages_bytes());
        Err(MemoryError::DoesNotFit {
            needed: gib(needed),
            weights: gib(memory.weight_bytes()),
            short: gib(needed.saturating_sub(memory.static_bytes)),
            budget: gib(memory.static_bytes),
            hint: wider_hint(model, parallel, |parallel| terms(parallel).fits()),
            model: memory.model,
            accelerator: memory.accelerator,
        })
    }

    fn terms(
        model: &ModelShape,
        accelerator: &Accelerator,
        parallel: &Parallel,
        mem_fraction_static: f64,
        page_size: u32,
    ) -> Self {
        let memory_bytes = (accelerator.memory_gb * 1e9) as u64;
        let communication = if parallel.devices() > 1 { COMMUNICATION_GIB } else { 0.0 };
        let context = (CONTEXT_GIB + communication) * GIB;
        let free_bytes = memory_bytes.saturating_sub(context as u64);
        let stage = Stage::fullest(model, parallel);
        let (layer_weights, experts) = stage.weights(model, parallel);
        let full_layers = f64::from(stage.layers - stage.sliding_layers);
        let layers = full_layers + WINDOW_SHARE * f64::from(stage.sliding_layers);
        let width = model.kv_width(parallel.tensor_parallel_size) as f64;
        let mut memory = Self {
            model: model.name.clone(),
            accelerator: accelerator.name.clone(),
            parallel: *parallel,
            mem_fraction_static,
            page_size,
            memory_bytes,
            free_bytes,
            static_bytes: (free_bytes as f64 * mem_fraction_static) as u64,
            layers: stage.layers,
            layer_weight_bytes: (layer_weights + experts).ceil() as u64,
            embedding_weight_bytes: embedding_bytes(model, parallel).ceil() as u64,
            available_bytes: 0,
            token_bytes: layers * width * model.kv_type.bytes(),
            tokens: 0,
        };
        memory.available_bytes = memory.static_bytes.saturating_sub(memory.weight_bytes());
        memory.tokens = memory.tokens_in(memory.available_bytes);
        memory
    }

    /// Less than two pages is nothing to schedule with.
    fn fits(&self) -> bool {
        self.tokens >= 2 * u64::from(self.page_size)
    }

    fn two_pages_bytes(&self) -> u64 {
        (2.0 * f64::from(self.page_size) * self.token_bytes).ceil() as u64
    }

    /// All weights of the device.
    pub(crate) fn weight_bytes(&self) -> u64 {
        self.layer_weight_bytes.saturating_add(self.embedding_weight_bytes)
    }

    /// Tokens in so many bytes, in whole pages.
    fn tokens_in(&self, bytes: u64) -> u64 {
        let tokens = (bytes as f64 / self.token_bytes) as u64;
        tokens - tokens % u64::from(self.page_size)
    }

    /// Whether so many tokens, given by hand, fit beside the weights in the whole memory of the device.
    ///
    /// # Errors
    /// They do not.
    pub(crate) fn check_tokens(&self, tokens: u64) -> Result<(), MemoryError> {
        let left = self.memory_bytes.saturating_sub(self.weight_bytes());
        let most = self.tokens_in(left);
        if tokens <= most {
            return Ok(());
        }
        Err(MemoryError::TooManyTokens {
            tokens,
            needed: tokens as f64 * self.token_bytes / GIB,
            weights: gib(self.weight_bytes()),
            left: gib(left),
            memory: gib(self.memory_bytes),
            most,
        })
    }
}

impl fmt::Display for StaticMemory {
    /// The derivation, a line for each term.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = &self.parallel;
        writeln!(
            f,
            "{} on {}, tensor_parallel_size {}, pipeline_parallel_size {}; GiB per device",
            self.model, self.accelerator, p.tensor_parallel_size, p.pipeline_parallel_size
        )?;
        let mut line =
            |sign: char, bytes: u64, what: &str| writeln!(f, "{sign} {:>9.3}  {what}", gib(bytes));
        line(' ', self.memory_bytes, "memory")?;
        line(' ', self.free_bytes, "free before weights are loaded")?;
        let share = format!("of which mem_fraction_static {}", self.mem_fraction_static);
        line(' ', self.static_bytes, &share)?;
        line('-', self.layer_weight_bytes, &format!("weights of {} layers", self.layers))?;
        line('-', self.embedding_weight_bytes, "embedding and LM head")?;
        line('=', self.available_bytes, "for KV")?;
        writeln!(f, "/ {:>9.3}  KiB for a token", self.token_bytes / 1024.0)?;
        writeln!(f, "= {:>9}  tokens, in pages of {}", self.tokens, self.page_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::presets;
    use crate::model::shape::tests::llama_8b;
    use crate::model::shape::{DataType, Sliding};

    fn spread(tensor_parallel_size: u32) -> Parallel {
        Parallel { tensor_parallel_size, ..Parallel::default() }
    }

    fn derived(model: &ModelShape, gpu: &str, size: u32, share: f64) -> StaticMemory {
        let sheet = &presets::accelerator(gpu).unwrap().sheet;
        StaticMemory::derive(model, sheet, &spread(size), share, 1).unwrap()
    }

    /// A log of SGLang (January 2025) with Llama 3.1 8B on an H100 at 0.88: 78.81 GiB free, 27.13 GiB of keys and as
    /// much of values. It had 78.81 GiB free before loading where later releases have 78.45.
    #[test]
    fn llama_3_1_8b_on_an_h100_has_the_kv_that_sglang_logged() {
        let memory = derived(&llama_8b(), "h100", 1, 0.88);
        // 16,060,522,496 bytes of weights; 32 layers * 2 * 8 heads * 128 * 2 bytes.
        assert_eq!(memory.weight_bytes(), 16_060_522_496);
        assert_eq!(memory.token_bytes.to_bits(), 131_072.0_f64.to_bits());
        let logged = 54.26 - 0.88 * (78.81 - gib(memory.free_bytes));
        assert!((gib(memory.available_bytes) / logged - 1.0).abs() < 0.01, "{memory}");
        assert_eq!(memory.tokens, memory.available_bytes / 131_072);
    }

    #[test]
    fn what_is_free_before_loading_is_what_sglang_logs() {
        for (gpu, size, logged) in [("h100", 1, 78.45), ("h100", 8, 77.4), ("h200", 8, 137.3)] {
            let free = gib(derived(&llama_8b(), gpu, size, 0.8).free_bytes);
            assert!((free / logged - 1.0).abs() < 0.01, "{gpu} * {size}: {free}");
        }
    }

    #[test]
    fn pages_are_whole_and_devices_share() {
        let sheet = &presets::accelerator("h100").unwrap().sheet;
        let paged = |page| StaticMemory::derive(&llama_8b(), sheet, &spread(1), 0.8, page).unwrap();
        let single = paged(1).tokens;
        assert_eq!(paged(64).tokens, single / 64 * 64);
        // Two devices hold half of each token's heads.
        assert_eq!(
            derived(&llama_8b(), "h100", 2, 0.8).token_bytes.to_bits(),
            65_536.0_f64.to_bits()
        );
        let mut narrow = llama_8b();
        narrow.kv_type = DataType::Fp8;
        assert!(derived(&narrow, "h100", 1, 0.8).tokens.abs_diff(2 * single) <= 1);
    }

    #[test]
    fn layers_with_a_window_count_four_fifths() {
        let mut model = llama_8b();
        model.sliding = Some(Sliding { window_tokens: 128, layers: 16 });
        // (16 + 0.8 * 16) layers * 2048 * 2 bytes.
        let bytes = derived(&model, "h100", 1, 0.8).token_bytes;
        assert!((bytes - 28.8 * 4096.0).abs() < 1e-6, "{bytes}");
    }

    #[test]
    fn what_does_not_fit_says_by_how_much_and_what_would() {
        let sheet = &presets::accelerator("h100").unwrap().sheet;
        let model = &presets::model("llama-3.1-70b").unwrap().shape;
        let error = StaticMemory::derive(model, sheet, &spread(1), 0.83, 1).unwrap_err();
        assert!(error.to_string().contains("it fits from tensor_parallel_size 4 on"), "{error}");
        let memory = derived(&llama_8b(), "h100", 1, 0.83);
        let most = (memory.memory_bytes - memory.weight_bytes()) / 131_072;
        assert_eq!(memory.check_tokens(most), Ok(()));
        let error = memory.check_tokens(most + 1).unwrap_err().to_string();
        assert!(error.ends_with(&format!("at most {most} tokens")), "{error}");
    }
}
