use proptest::prelude::*;

use super::*;
use crate::model::accelerator::{Accelerator, Peaks};
use crate::model::parallel::Parallel;
use crate::model::shape::tests::llama_8b;
use crate::model::shape::{DataType, Experts, Mla, ModelShape, Sliding};

/// Everything a data sheet promises, and nothing beside.
pub(super) fn ideal() -> RooflineConfig {
    RooflineConfig {
        compute_efficiency: 1.0,
        narrow_compute_efficiency: 1.0,
        memory_efficiency: 1.0,
        attention_compute_efficiency: 1.0,
        attention_memory_efficiency: 1.0,
        attention_extra_tokens: 0.0,
        link_efficiency: 1.0,
        link_latency_us: 0.0,
        inter_node_gb_per_s: 50.0,
        kv_block_gb_per_s: None,
        layer_overhead_us: 0.0,
        pass_overhead_ms: 0.0,
    }
}

/// H100 SXM, as its data sheet has it.
pub(super) fn h100() -> Accelerator {
    Accelerator {
        name: "h100-sxm".to_owned(),
        memory_gb: 80.0,
        memory_gb_per_s: 3350.0,
        tflops: Peaks { bf16: 989.4, fp8: Some(1978.9), int8: Some(1978.9), fp4: None },
        link_gb_per_s: 450.0,
        devices_per_node: 8,
        multiprocessors: Some(132),
    }
}

/// RTX PRO 6000 Blackwell, server edition: 4,000 "AI TOPS" are sparse 4-bit floats, of which dense 16-bit ones are an
/// eighth. Its only link is PCI Express 5.0.
fn rtx_pro_6000() -> Accelerator {
    Accelerator {
        name: "rtx-pro-6000-server".to_owned(),
        memory_gb: 96.0,
        memory_gb_per_s: 1597.0,
        tflops: Peaks { bf16: 500.0, fp8: Some(1000.0), int8: Some(1000.0), fp4: Some(2000.0) },
        link_gb_per_s: 64.0,
        devices_per_node: 8,
        multiprocessors: Some(188),
    }
}

/// One operation a millisecond, and bytes for nothing.
fn calculator() -> Accelerator {
    let tflops = Peaks { bf16: 1e-9, fp8: None, int8: None, fp4: None };
    Accelerator { memory_gb_per_s: f64::INFINITY, tflops, ..h100() }
}

/// One byte a millisecond, and arithmetic for nothing.
fn mover() -> Accelerator {
    let tflops = Peaks { bf16: f64::INFINITY, fp8: None, int8: None, fp4: None };
    Accelerator { memory_gb_per_s: 1e-6, tflops, ..h100() }
}

/// One layer: 128 weights to queries, keys and values, 64 to the output, 256 + 128 in the feed-forward part; an
/// LM head of 256.
fn tiny() -> ModelShape {
    ModelShape {
        num_hidden_layers: 1,
        hidden_size: 8,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: 4,
        intermediate_size: 16,
        vocab_size: 32,
        ..llama_8b()
    }
}

/// Four layers, three of them with 8 experts, of which a token sees 2.
pub(super) fn mixture() -> ModelShape {
    let experts = Experts {
        num_experts: 8,
        num_experts_per_tok: 2,
        moe_intermediate_size: 32,
        shared_intermediate_size: 0,
        dense_layers: 1,
    };
    ModelShape {
        num_hidden_layers: 4,
        hidden_size: 64,
        experts: Some(experts),
        num_attention_heads: 4,
        num_key_value_heads: 4,
        ..tiny()
    }
}

fn roofline_of(
    config: &RooflineConfig,
    model: &ModelShape,
    accelerator: &Accelerator,
    parallel: Parallel,
) -> Roofline {
    let (model, accelerator) = (Some(model), Some(accelerator));
    let deployment = Deployment { model, accelerator, parallel, kv_capacity_tokens: 1000 };
    Roofline::new(config, &deployment).unwrap()
}

fn alone(model: &ModelShape, accelerator: &Accelerator) -> Roofline {
    roofline_of(&ideal(), model, accelerator, Parallel::default())
}

fn tensor_parallel(tensor_parallel_size: u32) -> Parallel {
    Parallel { tensor_parallel_size, ..Parallel::default() }
}

fn prefill_of(requests: &[(u32, u32)]) -> PrefillWork {
    let mut work = PrefillWork::default();
    requests.iter().for_each(|&(new, past)| work.add(new, past));
    work
}

fn decode_of(requests: &[(u32, u32)]) -> DecodeWork {
    let mut work = DecodeWork::default();
    requests.iter().for_each(|&(query, kv)| work.add(query, kv));
    work
}

fn prefill_ms(roofline: &Roofline, requests: &[(u32, u32)]) -> f64 {
    roofline.prefill(&prefill_of(requests), &mut Evidence::default()).unwrap()
}

fn decode_ms(roofline: &Roofline, requests: &[(u32, u32)]) -> f64 {
    roofline.decode(&decode_of(requests), &mut Evidence::default()).unwrap()
}

#[track_caller]
fn is(actual: f64, expected: f64) {
    assert!((actual - expected).abs() <= 1e-9 * expected, "{actual} is not {expected}");
}

#[test]
fn with_free_bytes_a_pass_takes_its_arithmetic() {
    let roofline = alone(&tiny(), &calculator());
    // 3 rows of 576 weights: 3456; 3 * 5 + 3 * 4 / 2 = 21 pairs of 4 * 2 * 4: 672; one row of the head: 512.
    is(prefill_ms(&roofline, &[(3, 5)]), 3456.0 + 672.0 + 512.0);
    // 2 rows: 2304; 5 + 7 + 2 tokens seen: 14 * 32 = 448; two rows of the head: 1024.
    is(decode_ms(&roofline, &[(1, 5), (1, 7)]), 2304.0 + 448.0 + 1024.0);
    // 3 tokens that see 5 + 3 each: 3456 + 3 * 8 * 32 + 3 * 512.
    is(decode_ms(&roofline, &[(3, 5)]), 3456.0 + 768.0 + 1536.0);
}

#[test]
fn with_free_arithmetic_a_pass_takes_its_bytes() {
    let roofline = alone(&tiny(), &mover());
    // 1152 of weights; a row: 2 * (24 + 16 + 40 + 24) = 208 in products, 2 * (64 + 24 + 48) = 272 between them.
    // Attention of prefill: 8 tokens of KV at 16, 3 queries and outputs at 32. Head: 512 and 80 a row.
    is(prefill_ms(&roofline, &[(3, 5)]), 1152.0 + 3.0 * 480.0 + 128.0 + 96.0 + 592.0);
    is(decode_ms(&roofline, &[(1, 5), (1, 7)]), 1152.0 + 2.0 * 480.0 + 14.0 * 16.0 + 64.0 + 672.0);
}

#[test]
fn latent_attention_decodes_compressed_and_prefills_expanded() {
    let mla = Mla {
        q_lora_rank: 0,
        kv_lora_rank: 4,
        qk_nope_head_dim: 3,
        qk_rope_head_dim: 2,
        v_head_dim: 6,
    };
    let roofline = alone(&ModelShape { mla: Some(mla), ..tiny() }, &calculator());
    // To latent 8 * 6, queries 8 * 10, output 12 * 8, feed-forward 384: 608. Up: 4 * 18 = 72.
    // Decoding: 2 heads * 2 * (4 + 2 + 4) = 40 a token seen. Head: 512.
    is(decode_ms(&roofline, &[(1, 9)]), 2.0 * (608.0 + 72.0) + 10.0 * 40.0 + 512.0);
    // Prefilling: 2 heads * 2 * (3 + 2 + 6) = 44 a pair; what is cached is expanded again.
    let expected = 3.0 * 2.0 * 608.0 + (3.0 + 5.0) * 2.0 * 72.0 + 21.0 * 44.0 + 512.0;
    is(prefill_ms(&roofline, &[(3, 5)]), expected);
}

#[test]
fn a_window_bounds_what_is_seen() {
    let sliding = Some(Sliding { window_tokens: 4, layers: 1 });
    let roofline = alone(&ModelShape { sliding, ..tiny() }, &calculator());
    // 2 * 4 + 2 of 14 tokens: 10 * 32.
    is(decode_ms(&roofline, &[(1, 5), (1, 7)]), 2304.0 + 320.0 + 1024.0);
    // 3 * 4 of 21 pairs: 12 * 32.
    is(prefill_ms(&roofline, &[(3, 5)]), 3456.0 + 384.0 + 512.0);
    // One of two layers: 3456 * 2 + 672 + 384 + 512.
    let two = ModelShape { sliding, num_hidden_layers: 2, ..tiny() };
    is(prefill_ms(&alone(&two, &calculator()), &[(3, 5)]), 6912.0 + 672.0 + 384.0 + 512.0);
}

#[test]
fn one_token_reads_the_experts_it_goes_to_and_many_read_all() {
    let experts = |parallel, tokens: u32| {
        let roofline = roofline_of(&ideal(), &mixture(), &mover(), parallel);
        roofline.parts(&prefill_of(&[(tokens, 0)]), &DecodeWork::default()).experts_ms
    };
    // 3 layers, 2 experts of 6144 weights of 2 bytes; 2 rows of 2 * 64 + 6 * 32 numbers.
    let one = 3.0 * (2.0 * 12_288.0 + 1280.0);
    is(experts(Parallel::default(), 1), one);
    // All eight, to 1e-9: 0.75^100 is 3e-13.
    is(experts(Parallel::default(), 100), 3.0 * (8.0 * 12_288.0 + 128_000.0));
    // Whole experts on four devices, each with a quarter of the rows.
    let spread = Parallel { enable_expert_parallel: true, ..tensor_parallel(4) };
    is(experts(spread, 1), one / 4.0);
    // Four engines of one device: as many rows a device, of all engines 8 * (1 - 0.75^4) = 5.46875 experts are hit,
    // of which a device has a quarter.
    let engines =
        Parallel { data_parallel_size: 4, enable_expert_parallel: true, ..Parallel::default() };
    is(experts(engines, 1), 3.0 * (5.46875 / 4.0 * 12_288.0 + 1280.0));
}

#[test]
fn half_the_precision_reads_half_the_weights() {
    let read =
        |weight_type| decode_ms(&alone(&ModelShape { weight_type, ..tiny() }, &mover()), &[(1, 5)]);
    // 576 weights of a layer; the head keeps the type of activations.
    is(read(DataType::Bf16) - read(DataType::Fp8), 576.0);
    is(read(DataType::Fp32) - read(DataType::Bf16), 2.0 * 576.0);
}

#[test]
fn devices_share_dense_work() {
    let (work, none) = (prefill_of(&[(100, 0)]), DecodeWork::default());
    let dense = |devices| {
        let parallel = tensor_parallel(devices);
        roofline_of(&ideal(), &llama_8b(), &calculator(), parallel).parts(&work, &none)
    };
    let one = dense(1);
    for devices in [2, 4, 8] {
        let (n, parts) = (f64::from(devices), dense(devices));
        is(parts.dense_ms, one.dense_ms / n);
        is(parts.prefill_attention_ms, one.prefill_attention_ms / n);
        is(parts.head_ms, one.head_ms / n);
    }
}

#[test]
fn stages_follow_one_another() {
    let stages = Parallel { pipeline_parallel_size: 4, ..Parallel::default() };
    let (one, four) =
        (alone(&llama_8b(), &h100()), roofline_of(&ideal(), &llama_8b(), &h100(), stages));
    let (work, none) = (prefill_of(&[(100, 0)]), DecodeWork::default());
    is(four.parts(&work, &none).dense_ms, one.parts(&work, &none).dense_ms);
    assert!(four.parts(&work, &none).collectives_ms > 0.0);
}

#[test]
fn one_token_reads_every_weight() {
    let ms = decode_ms(&alone(&llama_8b(), &h100()), &[(1, 100)]);
    // All but the embedding and normalisation: 32 * 218,103,808 + 525,336,576 weights of 2 bytes at 3350 GB/s.
    let least_ms = (32.0 * 218_103_808.0 + 525_336_576.0) * 2.0 / 3350e6;
    assert!(ms >= least_ms && ms < 1.01 * least_ms, "{ms} against {least_ms}");
}

#[test]
fn operands_are_as_wide_as_the_device_multiplies_them() {
    let dense = |weight_type| {
        let accelerator = Accelerator { memory_gb_per_s: f64::INFINITY, ..h100() };
        let model = ModelShape { weight_type, ..llama_8b() };
        let config =
            RooflineConfig { compute_efficiency: 0.8, narrow_compute_efficiency: 0.5, ..ideal() };
        let roofline = roofline_of(&config, &model, &accelerator, Parallel::default());
        roofline.parts(&prefill_of(&[(100, 0)]), &DecodeWork::default()).dense_ms
    };
    let wide = dense(DataType::Bf16);
    // 4-bit integers are widened; 4-bit floats run as 8-bit ones, which H100 has.
    is(dense(DataType::Int4), wide);
    is(dense(DataType::Fp8), wide * (989.4 * 0.8) / (1978.9 * 0.5));
    is(dense(DataType::Nvfp4), dense(DataType::Fp8));
}

#[test]
fn only_what_is_there_is_noted() {
    let noted = |parallel, model: &ModelShape| {
        let roofline = roofline_of(&RooflineConfig::default(), model, &h100(), parallel);
        let mut evidence = Evidence::default();
        evidence.begin(super::super::evidence::PassKind::Mixed);
        let (prefill, decode) = (prefill_of(&[(64, 0)]), decode_of(&[(1, 9)]));
        let price = roofline.mixed(&prefill, &decode, &mut evidence).unwrap().unwrap();
        let total = evidence.total(Origin::Analytic);
        is(total.ms, price.prefill_ms + price.decode_ms);
        let json = evidence.to_json();
        json["mixed"].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    let dense = ["dense", "prefill_attention", "decode_attention", "per_request", "overhead"];
    assert_eq!(noted(Parallel::default(), &llama_8b()), dense);
    let all = [
        "dense",
        "prefill_attention",
        "decode_attention",
        "per_request",
        "experts",
        "collectives",
        "overhead",
    ];
    assert_eq!(noted(tensor_parallel(2), &mixture()), all);

    let roofline = alone(&llama_8b(), &h100());
    let mut evidence = Evidence::default();
    let base = roofline.decode_baseline(&decode_of(&[(1, 9000)]), &mut evidence).unwrap();
    is(base.unwrap(), decode_ms(&roofline, &[(1, 0)]));
}

#[test]
fn a_deployment_without_model_or_accelerator_is_refused() {
    let (model, accelerator) = (llama_8b(), h100());
    let refused = |model, accelerator| {
        let parallel = Parallel::default();
        let deployment = Deployment { model, accelerator, parallel, kv_capacity_tokens: 1000 };
        match Roofline::new(&RooflineConfig::default(), &deployment) {
            Err(ProfileError::Field(error)) => error.path,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(None, Some(&accelerator)), "model");
    assert_eq!(refused(Some(&model), None), "accelerator");
}

/// Whole passes of served models against the defaults.
#[test]
fn defaults_come_close_to_measured_passes() {
    let roofline = |model: &ModelShape, accelerator: &Accelerator| {
        roofline_of(&RooflineConfig::default(), model, accelerator, Parallel::default())
    };
    let mut pairs = Vec::new();
    // Llama-2-7B, vLLM 0.11, H100: 5.05 + 0.0195 n + 5.19e-7 n^2 ms and 6.32 + 1.66e-4 KV ms, fitted to requests
    // that were alone.
    let llama_2 = ModelShape {
        num_key_value_heads: 32,
        intermediate_size: 11_008,
        vocab_size: 32_000,
        ..llama_8b()
    };
    let h100 = roofline(&llama_2, &h100());
    for tokens in [128_u32, 512, 1024, 2048, 3500] {
        let n = f64::from(tokens);
        let measured = 5.05 + 0.0195 * n + 5.19e-7 * n * n;
        pairs.push((format!("h100 P {tokens}"), prefill_ms(&h100, &[(tokens, 0)]), measured));
    }
    for (requests, kv) in [(1_u32, 100), (1, 2000), (8, 2000), (32, 2000)] {
        let measured = 6.32 + 1.66e-4 * f64::from(requests * kv);
        let work = vec![(1, kv); requests as usize];
        pairs.push((format!("h100 D {requests} x {kv}"), decode_ms(&h100, &work), measured));
    }
    // Llama-3.1-8B, vLLM 0.19, RTX PRO 6000: sums of measured layers and 1.3 ms a pass.
    let rtx = roofline(&llama_8b(), &rtx_pro_6000());
    for (tokens, past, measured) in
        [(128, 0, 13.90), (512, 0, 25.04), (1024, 0, 43.73), (2048, 0, 84.25), (2048, 4096, 100.01)]
    {
        let predicted = prefill_ms(&rtx, &[(tokens, past)]);
        pairs.push((format!("rtx P {tokens} after {past}"), predicted, measured));
    }
    for (requests, kv, measured) in [
        (1, 16, 12.45),
        (1, 1024, 12.65),
        (16, 1024, 14.06),
        (64, 512, 17.11),
        (128, 1024, 26.64),
        (128, 4096, 60.44),
    ] {
        let predicted = decode_ms(&rtx, &vec![(1, kv); requests]);
        pairs.push((format!("rtx D {requests} x {kv}"), predicted, measured));
    }
    for (pass, predicted, measured) in pairs {
        let error = predicted / measured - 1.0;
        assert!(error.abs() < 0.15, "{pass}: {predicted} against {measured}");
    }
}

fn shapes() -> impl Strategy<Value = ModelShape> {
    let experts =
        (1_u32..64, 0.0..1.0, 1_u32..512, 0_u32..512).prop_map(|(count, share, width, shared)| {
            let chosen = 1 + (share * f64::from(count - 1)) as u32;
            Experts {
                num_experts: count,
                num_experts_per_tok: chosen,
                moe_intermediate_size: width,
                shared_intermediate_size: shared,
                dense_layers: 0,
            }
        });
    let mla = (0_u32..64, 1_u32..64, 1_u32..64, 1_u32..64, 1_u32..64).prop_map(|widths| Mla {
        q_lora_rank: widths.0,
        kv_lora_rank: widths.1,
        qk_nope_head_dim: widths.2,
        qk_rope_head_dim: widths.3,
        v_head_dim: widths.4,
    });
    let sliding = (1_u32..2000, 1_u32..=4)
        .prop_map(|(window_tokens, layers)| Sliding { window_tokens, layers });
    let sizes = (4_u32..40, 1_u32..512, 1_u32..32, 1_u32..2048, 1_u32..1000);
    let types = prop::sample::select(vec![
        DataType::Bf16,
        DataType::Fp8,
        DataType::Int4,
        DataType::Nvfp4,
        DataType::Fp32,
    ]);
    (sizes, prop::option::of(experts), prop::option::of(mla), prop::option::of(sliding), types)
        .prop_map(|((layers, hidden, heads, width, vocabulary), experts, mla, sliding, types)| {
            ModelShape {
                num_hidden_layers: layers,
                hidden_size: 16 * hidden,
                num_attention_heads: heads,
                num_key_value_heads: 1 + heads / 3,
                head_dim: 64,
                intermediate_size: width,
                vocab_size: 100 * vocabulary,
                experts,
                mla,
                sliding,
                weight_type: types,
                ..llama_8b()
            }
        })
}

fn parallels() -> impl Strategy<Value = Parallel> {
    (0_u32..5, 1_u32..5, 1_u32..5, any::<bool>()).prop_map(|(tensor, pipeline, data, experts)| {
        Parallel {
            tensor_parallel_size: 1 << tensor,
            pipeline_parallel_size: pipeline,
            data_parallel_size: data,
            enable_expert_parallel: experts,
        }
    })
}

proptest! {
    #[test]
    fn more_work_never_takes_less_time(
        model in shapes(),
        parallel in parallels(),
        new in prop::collection::vec((1_u32..5000, 0_u32..50_000), 1..20),
        old in prop::collection::vec((1_u32..6, 0_u32..50_000), 1..100),
    ) {
        prop_assert_eq!(model.check(), Ok(()));
        let roofline = roofline_of(&RooflineConfig::default(), &model, &h100(), parallel);
        let once = prefill_ms(&roofline, &new);
        prop_assert!(once.is_finite() && once > 0.0);
        prop_assert!(prefill_ms(&roofline, &[new.as_slice(), &new].concat()) >= once);
        let once = decode_ms(&roofline, &old);
        prop_assert!(once.is_finite() && once > 0.0);
        prop_assert!(decode_ms(&roofline, &[old.as_slice(), &old].concat()) >= once);
    }

    #[test]
    fn one_forward_is_between_its_longer_part_and_the_sum(
        model in shapes(),
        parallel in parallels(),
        new in prop::collection::vec((1_u32..5000, 0_u32..50_000), 1..20),
        old in prop::collection::vec((1_u32..6, 0_u32..50_000), 1..100),
    ) {
        let roofline = roofline_of(&RooflineConfig::default(), &model, &h100(), parallel);
        let (prefill, decode) = (prefill_ms(&roofline, &new), decode_ms(&roofline, &old));
        let price = roofline
            .mixed(&prefill_of(&new), &decode_of(&old), &mut Evidence::default())
            .unwrap()
            .unwrap();
        prop_assert_eq!(price.prefill_ms.to_bits(), prefill.to_bits());
        prop_assert!(price.decode_ms > 0.0);
        let mixed = price.prefill_ms + price.decode_ms;
        let rounding = 1.0 + 1e-12;
        prop_assert!(mixed * rounding >= prefill.max(decode), "{mixed} {prefill} {decode}");
        prop_assert!(mixed <= (prefill + decode) * rounding, "{mixed} {prefill} {decode}");
    }
}
