use serde_json::json;

use super::*;
use crate::model::presets;

fn parsed(config: &Value) -> Result<ModelShape, String> {
    shape(config.as_object().unwrap(), "model".to_owned()).map_err(|error| error.to_string())
}

/// Whether a file gives the shape of a preset, but for its name.
fn assert_same(config: &Value, preset: &str) {
    let mut expected = presets::model(preset).unwrap().shape.clone();
    "model".clone_into(&mut expected.name);
    assert_eq!(parsed(config), Ok(expected), "{preset}");
}

fn llama() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
        "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128_256, "max_position_embeddings": 131_072,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16"
    })
}

/// Llama with other fields on top; `null` takes one away.
fn with(fields: &Value) -> Value {
    let mut config = llama();
    for (name, value) in fields.as_object().unwrap() {
        config[name] = value.clone();
    }
    config
}

#[test]
fn published_files_give_the_presets() {
    assert_same(&llama(), "llama-3.1-8b");
    let qwen = json!({
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 2048,
        "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 48,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128,
        "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "sliding_window": null, "use_sliding_window": false, "max_window_layers": 48,
        "max_position_embeddings": 40960, "vocab_size": 151_936, "tie_word_embeddings": false,
        "torch_dtype": "bfloat16"
    });
    assert_same(&qwen, "qwen3-30b-a3b");
    let deepseek = json!({
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
        "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
        "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
        "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
        "first_k_dense_replace": 3, "moe_layer_freq": 1, "num_nextn_predict_layers": 1,
        "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "max_position_embeddings": 163_840, "vocab_size": 129_280,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
    });
    assert_same(&deepseek, "deepseek-v3");
    let alternating: Vec<_> =
        (0..24).map(|i| ["sliding_attention", "full_attention"][i % 2]).collect();
    let gpt_oss = json!({
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 2880,
        "intermediate_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 64, "num_local_experts": 32,
        "num_experts_per_tok": 4, "experts_per_token": 4, "sliding_window": 128,
        "layer_types": alternating, "max_position_embeddings": 131_072, "vocab_size": 201_088,
        "tie_word_embeddings": false,
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.embed_tokens"]}
    });
    assert_same(&gpt_oss, "gpt-oss-20b");
}

#[test]
fn what_is_absent_has_the_default_of_its_family() {
    let shape = parsed(&with(&json!({"num_key_value_heads": null, "torch_dtype": null}))).unwrap();
    assert_eq!((shape.num_key_value_heads, shape.head_dim), (32, 128));
    assert_eq!(shape.activation_type, DataType::Bf16);
    let gemma =
        with(&json!({"model_type": "gemma2", "tie_word_embeddings": null, "head_dim": 256}));
    let shape = parsed(&gemma).unwrap();
    assert!(shape.tie_word_embeddings);
    assert_eq!(shape.head_dim, 256);
    let wrapped =
        json!({"architectures": ["SomeForConditionalGeneration"], "text_config": llama()});
    assert_eq!(parsed(&wrapped), parsed(&llama()));
    // A name nobody knows, with Llama's fields.
    let stranger = with(&json!({"architectures": ["NovelForCausalLM"], "model_type": "novel"}));
    assert_eq!(parsed(&stranger), parsed(&llama()));
}

#[test]
fn windows_follow_the_rules_of_their_family() {
    let sliding = |fields: Value| {
        parsed(&with(&fields)).unwrap().sliding.map(|s| (s.window_tokens, s.layers))
    };
    assert_eq!(sliding(json!({"model_type": "mistral", "sliding_window": 4096})), Some((4096, 32)));
    assert_eq!(sliding(json!({"model_type": "mistral", "sliding_window": null})), None);
    let qwen = json!({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": true, "max_window_layers": 28});
    assert_eq!(sliding(qwen), Some((4096, 4)));
    let off = json!({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": false, "max_window_layers": 28});
    assert_eq!(sliding(off), None);
    assert_eq!(sliding(json!({"model_type": "gemma2", "sliding_window": 4096})), Some((4096, 16)));
    // 32 layers: the 6th, 12th, 18th, 24th and 30th see everything.
    assert_eq!(
        sliding(json!({"model_type": "gemma3_text", "sliding_window": 512})),
        Some((512, 27))
    );
    // As long as the longest sequence.
    assert_eq!(sliding(json!({"model_type": "phi3", "sliding_window": 262_144})), None);
    assert_eq!(sliding(json!({"model_type": "phi3", "sliding_window": 2047})), Some((2047, 32)));
}

#[test]
fn experts_stand_where_their_family_puts_them() {
    let dense = |fields: Value| {
        let mut fields = fields;
        fields["num_experts"] = json!(64);
        fields["num_experts_per_tok"] = json!(4);
        fields["moe_intermediate_size"] = json!(1024);
        let experts = parsed(&with(&fields)).unwrap().experts.unwrap();
        (experts.dense_layers, experts.shared_intermediate_size)
    };
    assert_eq!(dense(json!({})), (0, 0));
    assert_eq!(dense(json!({"decoder_sparse_step": 2, "mlp_only_layers": [1, 2]})), (17, 0));
    assert_eq!(dense(json!({"shared_expert_intermediate_size": 5632})), (0, 5632));
    assert_eq!(dense(json!({"first_k_dense_replace": 1, "n_shared_experts": 2})), (1, 2048));
    // Of layers 0 to 31 the even ones; the first is dense.
    assert_eq!(dense(json!({"first_k_dense_replace": 1, "moe_layer_freq": 2})), (17, 0));
}

#[test]
fn quantised_weights_have_their_type() {
    let weights = |config: Value| {
        parsed(&with(&json!({"quantization_config": config}))).map(|shape| shape.weight_type)
    };
    for (config, expected) in [
        (json!({"quant_method": "awq", "bits": 4}), DataType::Int4),
        (json!({"quant_method": "gptq", "bits": 8}), DataType::Int8),
        (json!({"quant_method": "modelopt", "quant_algo": "NVFP4"}), DataType::Nvfp4),
        (json!({"quant_method": "modelopt", "quant_algo": "FP8"}), DataType::Fp8),
        (
            json!({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}}),
            DataType::Fp8,
        ),
        (
            json!({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}}}),
            DataType::Nvfp4,
        ),
        (
            json!({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}}}),
            DataType::Int4,
        ),
    ] {
        assert_eq!(weights(config.clone()), Ok(expected), "{config}");
    }
    assert_eq!(
        weights(json!({"quant_method": "gptq", "bits": 3})).unwrap_err(),
        "`quantization_config.bits` is 3, expected 4 or 8"
    );
    assert_eq!(
        weights(json!({"quant_method": "hqq"})).unwrap_err(),
        "`quantization_config.quant_method` is hqq, expected fp8, mxfp4, awq, gptq, compressed-tensors or modelopt"
    );
}

#[test]
fn odd_fields_are_named() {
    for (fields, expected) in [
        (json!({"hidden_size": null}), "`hidden_size` is missing, expected an integer"),
        (json!({"vocab_size": -1}), "`vocab_size` is -1, expected an integer from 0 to 4294967295"),
        (
            json!({"num_hidden_layers": 0}),
            "`num_hidden_layers` is 0, expected an integer from 1 to 16777216",
        ),
        (
            json!({"num_attention_heads": 30}),
            "`num_attention_heads` is 30, expected a divisor of hidden_size (4096), as there is no head_dim",
        ),
        (
            json!({"torch_dtype": "int8"}),
            "`torch_dtype` is \"int8\", expected bfloat16, float16 or float32",
        ),
        (
            json!({"layer_types": ["full_attention"]}),
            "`layer_types` is 1 layers, expected an array of num_hidden_layers (32) types",
        ),
        (
            json!({"num_hidden_layers": 1, "layer_types": ["linear_attention"]}),
            "`layer_types` is \"linear_attention\", expected full_attention or sliding_attention",
        ),
        (json!({"num_experts": 8}), "`num_experts_per_tok` is missing, expected an integer"),
    ] {
        assert_eq!(parsed(&with(&fields)).unwrap_err(), expected);
    }
    let wrapped = json!({"text_config": with(&json!({"vocab_size": null}))});
    assert_eq!(
        parsed(&wrapped).unwrap_err(),
        "`text_config.vocab_size` is missing, expected an integer"
    );
}

#[test]
fn files_and_folders_are_read_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("My-Model");
    fs::create_dir(&model).unwrap();
    let config = model.join("config.json");
    let missing = read(&model).unwrap_err().to_string();
    assert!(missing.starts_with(&format!("{}: ", config.display())), "{missing}");
    fs::write(&config, llama().to_string()).unwrap();
    assert_eq!(read(&model).unwrap().name, "My-Model");
    assert_eq!(read(&config).unwrap(), read(&model).unwrap());
    fs::write(&config, "[1]").unwrap();
    let error = read(&config).unwrap_err().to_string();
    assert!(error.contains("config.json: not a JSON object"), "{error}");
    fs::write(&config, "{}").unwrap();
    let error = read(&config).unwrap_err().to_string();
    assert!(error.ends_with("config.json: `num_hidden_layers` is missing, expected an integer"));
}
