use super::*;
use crate::model::presets;
use crate::model::shape::tests::llama_8b;
use crate::model::shape::{DataType, Sliding};

/// vLLM before 0.21.0.
fn old(batched: u32, seqs: u32, model_len: u32) -> MemoryOptions {
    MemoryOptions {
        gpu_memory_utilization: 0.9,
        block_size: 16,
        max_model_len: model_len,
        max_num_batched_tokens: batched,
        max_num_seqs: seqs,
        cuda_graphs: false,
    }
}

fn spread(tensor_parallel_size: u32) -> Parallel {
    Parallel { tensor_parallel_size, ..Parallel::default() }
}

fn shape(name: &str) -> ModelShape {
    presets::model(name).unwrap().shape.clone()
}

fn derived(
    model: &ModelShape,
    gpu: &str,
    parallel: &Parallel,
    options: &MemoryOptions,
) -> Result<KvMemory, MemoryError> {
    KvMemory::derive(model, &presets::accelerator(gpu).unwrap().sheet, parallel, options)
}

/// The difference to what an engine logged, in percent.
fn off_by(derived: f64, logged: f64) -> f64 {
    (derived / logged - 1.0) * 100.0
}

#[test]
fn llama_2_7b_on_an_h100_has_the_blocks_that_vllm_0_11_logged() {
    let memory = derived(&shape("llama-2-7b"), "h100", &spread(1), &old(4096, 256, 4096)).unwrap();
    // "Available KV cache memory: 58.12 GiB", 7438 blocks.
    assert!(off_by(gib(memory.available_bytes), 58.12).abs() < 1.0, "{memory}");
    assert!(off_by(memory.blocks as f64, 7438.0).abs() < 1.0, "{memory}");
    assert_eq!(memory.tokens, memory.blocks * 16);
    // 2 bytes * 6,738,415,616 weights.
    assert_eq!(memory.weight_bytes(), 13_476_831_232);
}

#[test]
fn llama_3_3_70b_on_b200_has_the_tokens_that_vllm_0_15_logged() {
    let mut model = shape("llama-3.3-70b");
    (model.weight_type, model.kv_type) = (DataType::Nvfp4, DataType::Fp8);
    let logged = [(1, 782_160.0), (2, 1_819_408.0), (4, 3_900_512.0), (8, 8_066_320.0)];
    for (size, tokens) in logged {
        let memory = derived(&model, "b200", &spread(size), &old(8192, 16, 131_072)).unwrap();
        assert!(off_by(memory.tokens as f64, tokens).abs() < 1.0, "{size}: {memory}");
    }
}

/// vLLM 0.31.0 with its defaults on an A100 80GB: 460,496 tokens of KV in 56.21 GiB (public start-up log of October
/// 2026).
#[test]
fn llama_3_1_8b_on_an_a100_has_the_tokens_that_vllm_0_31_logged() {
    let options = MemoryOptions {
        max_num_batched_tokens: 2048,
        max_num_seqs: 256,
        max_model_len: 131_072,
        ..MemoryOptions::default()
    };
    let memory = derived(&llama_8b(), "a100-80gb", &spread(1), &options).unwrap();
    assert!(off_by(memory.tokens as f64, 460_496.0).abs() < 1.0, "{memory}");
}

/// vLLM (a release that the table does not state) on H100 as logged by llm-d (its config_explorer/empirical-vllm-memory-results.md), in GiB.
#[test]
fn h100_logs_of_other_models_are_met() {
    let options = old(8192, 1024, 16_000);
    let mut llama_70b_fp8 = shape("llama-3.3-70b");
    llama_70b_fp8.weight_type = DataType::Fp8;
    for (model, size, share, weights, activations, kv) in [
        (shape("llama-3.1-8b"), 1, 0.9, 14.99, 4.76, 51.38),
        (llama_70b_fp8, 2, 0.9, 33.88, 4.84, 32.0),
        (shape("qwen3-32b"), 1, 0.9, 61.03, 5.64, 4.45),
        (shape("gpt-oss-20b"), 1, 0.9, 13.47, 7.38, 50.28),
        // Its log does not state the share; weights, activations, 0.13 GiB and KV add up to 0.95 of the memory.
        (shape("gpt-oss-120b"), 1, 0.95, 64.38, 7.38, 3.33),
    ] {
        let options = MemoryOptions { gpu_memory_utilization: share, ..options };
        let memory = derived(&model, "h100", &spread(size), &options).unwrap();
        assert!(off_by(gib(memory.weight_bytes()), weights).abs() < 1.0, "{memory}");
        assert!(off_by(gib(memory.activation_bytes), activations).abs() < 2.0, "{memory}");
        assert!(off_by(gib(memory.available_bytes), kv).abs() < 3.0, "{memory}");
    }
}

#[test]
fn terms_follow_from_the_shape() {
    let memory = derived(&llama_8b(), "h100", &spread(1), &MemoryOptions::default()).unwrap();
    // 128,256 * 4096 * 2 bytes, twice; the rest of 8,030,261,248 weights.
    assert_eq!(memory.embedding_weight_bytes, 2_101_346_304);
    assert_eq!(memory.layer_weight_bytes, 16_060_522_496 - 2_101_346_304);
    // 8192 * 2 * 4096 * 2 bytes, and 1024 * 128,256 * 38 bytes: more than 8192 * 3 * 14,336 * 2 = 704,643,072.
    assert_eq!(memory.activation_bytes, 134_217_728 + 4_990_697_472);
    // 32 layers * 16 tokens * 2048 numbers * 2 bytes.
    assert_eq!(memory.block_bytes() as u64, 2_097_152);
    assert_eq!(memory.blocks, memory.available_bytes / 2_097_152);
    let spent = memory.weight_bytes() + memory.activation_bytes + memory.reserve_bytes;
    assert_eq!(memory.available_bytes, memory.budget_bytes - spent);
}

#[test]
fn half_the_precision_is_half_the_bytes() {
    let mut model = llama_8b();
    let whole = derived(&model, "h100", &spread(1), &MemoryOptions::default()).unwrap();
    (model.weight_type, model.kv_type) = (DataType::Fp8, DataType::Fp8);
    let half = derived(&model, "h100", &spread(1), &MemoryOptions::default()).unwrap();
    // Norms, 65 * 4096, stay at 16 bits.
    let norms = 65 * 4096 * 2;
    assert_eq!(2 * (half.layer_weight_bytes - norms), whole.layer_weight_bytes - norms);
    assert_eq!(half.embedding_weight_bytes, whole.embedding_weight_bytes);
    assert_eq!(2 * half.sequence_bytes, whole.sequence_bytes);
}

#[test]
fn heads_beyond_the_devices_are_replicated() {
    let options = MemoryOptions::default();
    let bytes = |size| {
        let memory = derived(&llama_8b(), "h100", &spread(size), &options).unwrap();
        (memory.layer_weight_bytes, memory.sequence_bytes)
    };
    let (at_8, at_16) = (bytes(8), bytes(16));
    // Every device holds one of the 8 heads, with 8 devices as with 16.
    assert_eq!(at_8.1, at_16.1);
    // Keys and values of a layer stay 2 * 4096 * 128 weights; queries and output halve, and so does the MLP.
    let at_16_devices = 2 * 4096 * 4096 / 16 + 3 * 4096 * 14_336 / 16;
    assert_eq!(at_8.0 - at_16.0, 32 * at_16_devices * 2);
}

#[test]
fn windows_bound_the_kv_of_their_layers() {
    let mut model = llama_8b();
    model.sliding = Some(Sliding { window_tokens: 100, layers: 24 });
    let options = MemoryOptions { max_model_len: 1600, ..MemoryOptions::default() };
    let memory = derived(&model, "h100", &spread(1), &options).unwrap();
    // 8 layers of 100 blocks, 24 of 7 + 1; 16 * 2048 * 2 bytes a block and layer.
    assert_eq!(memory.sequence_bytes, (8 * 100 + 24 * 8) * 65_536);
    assert_eq!(memory.blocks, memory.available_bytes * 100 / memory.sequence_bytes);
    // A sequence that is shorter than the window is held whole.
    let options = MemoryOptions { max_model_len: 64, ..options };
    let memory = derived(&model, "h100", &spread(1), &options).unwrap();
    assert_eq!(memory.sequence_bytes, 32 * 4 * 65_536);
}

#[test]
fn compressed_kv_and_experts_are_spread_as_vllm_does() {
    let model = shape("deepseek-v3");
    let bytes = |parallel: &Parallel| {
        KvMemory::terms(
            &model,
            &presets::accelerator("h200").unwrap().sheet,
            parallel,
            &MemoryOptions::default(),
        )
    };
    let at_8 = bytes(&spread(8));
    // 58 layers * 256 experts * 3 * 7168 * 2048 weights of one byte, over 8 devices.
    assert_eq!(at_8.expert_weight_bytes, 58 * 32 * 3 * 7168 * 2048);
    // 61 layers * 576 numbers * 2 bytes for each token, on every device.
    assert_eq!(at_8.block_bytes() as u64, 61 * 576 * 2 * 16);
    let spread_wide = Parallel { data_parallel_size: 6, enable_expert_parallel: true, ..spread(8) };
    // 256 experts over 48 devices: somebody has 6.
    assert_eq!(bytes(&spread_wide).expert_weight_bytes, 58 * 6 * 3 * 7168 * 2048);
    // The stage of 16 layers without a dense one.
    let staged = Parallel { pipeline_parallel_size: 4, ..spread(8) };
    assert_eq!(bytes(&staged).layers, 16);
    assert_eq!(bytes(&staged).expert_weight_bytes, 16 * 32 * 3 * 7168 * 2048);
    assert_eq!(2 * bytes(&staged).embedding_weight_bytes, at_8.embedding_weight_bytes);
}

#[test]
fn a_model_that_does_not_fit_names_the_size_that_does() {
    let error = derived(&shape("llama-3.1-70b"), "h100", &spread(1), &MemoryOptions::default())
        .unwrap_err();
    let MemoryError::DoesNotFit { needed, short, budget, .. } = &error else {
        panic!("{error}");
    };
    assert!((needed - budget - short).abs() < 1e-9);
    let text = error.to_string();
    // 131.42 GiB of weights; 65.71 GiB and 4.9 + 1.5 GiB more are less than 72.85 GiB.
    assert!(text.starts_with("llama-3.1-70b does not fit on h100-sxm: "), "{text}");
    assert!(text.contains("131.42 GiB of weights"), "{text}");
    assert!(text.ends_with("it fits from tensor_parallel_size 2 on"), "{text}");
    let error = derived(&shape("deepseek-v3"), "l4", &spread(1), &MemoryOptions::default());
    let text = error.unwrap_err().to_string();
    assert!(text.contains("tensor_parallel_size"), "{text}");
}

#[test]
fn blocks_given_by_hand_have_the_whole_memory_beside_the_weights() {
    let memory = derived(&llama_8b(), "h100", &spread(1), &MemoryOptions::default()).unwrap();
    let most = (memory.memory_bytes - memory.weight_bytes()) / 2_097_152;
    assert!(most > memory.blocks);
    assert_eq!(memory.check_blocks(most), Ok(()));
    let error = memory.check_blocks(most + 1).unwrap_err();
    assert!(error.to_string().ends_with(&format!("at most {most} blocks")), "{error}");
    assert!(memory.check_blocks(u64::MAX).is_err());
}

#[test]
fn figures_out_of_range_are_named() {
    let refused = |change: fn(&mut MemoryOptions)| {
        let mut options = MemoryOptions::default();
        change(&mut options);
        derived(&llama_8b(), "h100", &spread(1), &options).unwrap_err().to_string()
    };
    let text = refused(|o| o.gpu_memory_utilization = 1.1);
    assert_eq!(text, "`gpu_memory_utilization` is 1.1, expected a share above 0, at most 1");
    assert!(refused(|o| o.gpu_memory_utilization = f64::NAN).contains("is NaN"));
    assert!(refused(|o| o.block_size = 0).starts_with("`block_size` is 0"));
}

#[test]
fn the_derivation_has_a_line_for_each_term() {
    let memory = derived(&llama_8b(), "h100", &spread(1), &MemoryOptions::default()).unwrap();
    let text = memory.to_string();
    assert_eq!(text.lines().count(), 10, "{text}");
    assert!(
        text.contains("-     4.773  activations of 8192 tokens, 1024 of them sampled"),
        "{text}"
    );
}

#[test]
fn extreme_figures_are_refused_and_nothing_overflows() {
    let mut model = llama_8b();
    (model.hidden_size, model.num_attention_heads, model.head_dim) = (1 << 24, 1 << 24, 1 << 24);
    let refused = model.check().unwrap_err();
    assert!(refused.to_string().ends_with("expected a model of at most 2^53 weights"), "{refused}");
    let most = 1 << 27;
    let options = MemoryOptions {
        block_size: most,
        max_model_len: most,
        max_num_batched_tokens: most,
        max_num_seqs: most,
        ..MemoryOptions::default()
    };
    let error = derived(&llama_8b(), "h100", &spread(1), &options).unwrap_err();
    assert!(matches!(error, MemoryError::DoesNotFit { .. }), "{error}");
}
