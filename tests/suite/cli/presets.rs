//! `servesim presets`: the lists, the details, the derivation of KV memory.

use serde_json::{Value, json};

use crate::support::{Folder, servesim};

/// The command, which succeeds without a word on standard error.
fn printed(args: &[&str]) -> String {
    let ran = servesim(["presets"].iter().chain(args));
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{args:?}");
    ran.stdout
}

/// The message of a command that is refused.
fn refused(args: &[&str]) -> String {
    let ran = servesim(["presets"].iter().chain(args));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}");
    ran.stderr
}

#[test]
fn the_list_has_a_line_for_each_and_fits_a_terminal() {
    let text = printed(&[]);
    for name in ["llama-3.1-8b", "qwen3-235b-a22b", "gpt-oss-120b", "h100-sxm", "mi300x", "l4"] {
        let lines = text.lines().filter(|line| line.starts_with(&format!("{name} ")));
        assert_eq!(lines.count(), 1, "{name}");
    }
    // 32 layers * 2 * 8 heads * 128 * 2 bytes; 8.03e9 weights.
    let llama = text.lines().find(|line| line.starts_with("llama-3.1-8b ")).unwrap();
    let cells: Vec<_> = llama.split_whitespace().collect();
    assert_eq!(cells, ["llama-3.1-8b", "8.030", "32", "4096", "32", "8", "-", "bf16", "131,072"]);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn programs_get_every_figure_and_its_source() {
    let list: Value = serde_json::from_str(&printed(&["--format", "json"])).unwrap();
    assert_eq!(list["schema"], "servesim.presets/1");
    for preset in ["models", "accelerators"].iter().flat_map(|kind| list[kind].as_array().unwrap())
    {
        assert!(preset["sources"][0]["document"].is_string(), "{preset}");
    }
    let one: Value =
        serde_json::from_str(&printed(&["meta-llama/Llama-3.1-8B", "--format", "json"])).unwrap();
    assert_eq!(one["accelerators"], json!([]));
    assert_eq!(one["models"][0]["parameters"], 8_030_261_248_u64);
    assert_eq!(one["models"][0]["shape"]["hidden_size"], 4096);
}

#[test]
fn one_preset_is_described_with_its_sources() {
    let text = printed(&["H200"]);
    assert!(text.starts_with("name: h200-sxm\n"), "{text}");
    assert!(text.contains("tflops: { bf16: 989.5, fp8: 1979.0, int8: 1979.0 }"), "{text}");
    assert!(text.contains("\nsource of memory: "), "{text}");
    let text = printed(&["deepseek-r1"]);
    assert!(text.starts_with("name: deepseek-v3\n"), "{text}");
    assert!(text.contains("\nsource of shape: https://huggingface.co/deepseek-ai/"), "{text}");
}

#[test]
fn memory_is_derived_line_by_line() {
    // 13.476831232e9 bytes of weights, of which 2 * 32,000 * 4096 * 2 are embedding and LM head.
    let args = ["--memory", "llama-2-7b", "h100", "--gpu-memory-utilization", "0.9"];
    let limits = ["--max-num-batched-tokens", "4096", "--max-num-seqs", "256"];
    let text = printed(&[&args[..], &limits[..]].concat());
    assert!(text.contains("-    12.063  weights of 32 layers\n"), "{text}");
    assert!(text.contains("-     0.488  embedding and LM head\n"), "{text}");
    assert!(text.contains("activations of 4096 tokens, 256 of them sampled"), "{text}");
    // 32 layers * 16 tokens * 2 * 4096 * 2 bytes.
    assert!(text.contains("8.000  MiB for a block of 16 tokens"), "{text}");
    // Half of it with 8 bits, or on two devices; more on a GPU with more.
    let blocks = |more: &[&str]| -> u64 {
        let text = printed(&[&args[..3], more].concat());
        let line = text.lines().find(|line| line.contains("  blocks, ")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    assert!(blocks(&["--kv-type", "fp8"]).abs_diff(2 * blocks(&[])) <= 1);
    assert!(blocks(&["--tp", "2"]) > 2 * blocks(&[]));
    assert!(blocks(&["--weight-type", "int4"]) > blocks(&[]));
    assert!(blocks(&["--block-size", "32"]).abs_diff(blocks(&[]) / 2) <= 1);
}

#[test]
fn every_engine_has_a_derivation() {
    let text = printed(&["--memory", "llama-3.1-8b", "h100"]);
    let (vllm, others) = text.split_once("\nSGLang 0.5.23:\n").unwrap();
    let (sglang, trtllm) = others.split_once("\nTensorRT-LLM:\n").unwrap();
    // 79.2 GiB less 15.0 of weights, 0.8 of context and 9.3 of a pass leave 54.1; nine tenths of it hold 8192 tokens a
    // GiB.
    let (tokens, rest) = trtllm.split_once(" tokens of KV, in blocks of 32: 0.9 of").unwrap();
    let tokens: f64 = tokens.replace(',', "").parse().unwrap();
    assert!((tokens / (54.1 * 0.9 * 8192.0) - 1.0).abs() < 0.02, "{tokens} tokens{rest}");
    assert!(vllm.contains("gpu_memory_utilization 0.92") && vllm.contains(" blocks, "), "{vllm}");
    // 32 layers * 2 * 8 heads * 128 * 2 bytes; 16.06e9 bytes of weights.
    assert!(sglang.contains("128.000  KiB for a token\n"), "{sglang}");
    assert!(sglang.contains("-    13.000  weights of 32 layers\n"), "{sglang}");
    let tokens = |args: &[&str]| -> u64 {
        let text = printed(&[&["--memory", "llama-3.1-8b", "h100"], args].concat());
        let line = text.lines().find(|line| line.contains("  tokens, in pages of 1")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    // A tenth of the 78.48 GiB that are free, at 8192 tokens a GiB.
    let step =
        tokens(&["--mem-fraction-static", "0.8"]) - tokens(&["--mem-fraction-static", "0.7"]);
    assert!(step.abs_diff(64_293) < 10, "{step}");
    assert!(tokens(&["--kv-type", "fp8"]).abs_diff(2 * tokens(&[])) <= 1);
    assert!(tokens(&["--enforce-eager"]) > tokens(&[]));
    let text = refused(&["--memory", "llama-3.1-8b", "h100", "--mem-fraction-static", "1"]);
    assert!(text.contains("`mem_fraction_static` is 1, expected a share above 0"), "{text}");
}

#[test]
fn a_sequence_that_does_not_fit_is_shortened_or_refused() {
    let args = ["--memory", "llama-3.1-70b", "h100", "--tp", "2"];
    let text = printed(&args);
    let note = "max_model_len is what fits: the model's own is 131072 tokens.\n";
    assert!(text.contains(note), "{text}");
    // 65.7 GiB of weights are more than SGLang's share of what is free.
    assert!(text.contains("it fits from tensor_parallel_size 4 on"), "{text}");
    let longer = [&args[..], &["--max-model-len", "131072"]].concat();
    let ran = servesim(["presets"].iter().chain(&longer));
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.starts_with("servesim: --max-model-len 131072 does not fit"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_model_may_be_a_file() {
    let folder = Folder::new();
    let config = json!({
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008,
        "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 32000,
        "max_position_embeddings": 4096, "torch_dtype": "float16"
    });
    let path = folder.write("llama-2-7b.json", config.to_string());
    assert_eq!(printed(&["--memory", &path, "h100"]), printed(&["--memory", "llama-2-7b", "h100"]));
    let path = folder.write("config.json", "{}");
    let message = "`num_hidden_layers` is missing, expected an integer";
    assert_eq!(refused(&["--memory", &path, "h100"]), format!("servesim: {path}: {message}\n"));
}

#[test]
fn what_is_unknown_or_odd_is_refused_with_a_hint() {
    let listed = "expected a name that `servesim presets` lists";
    assert_eq!(
        refused(&["lama-3.1-8b"]),
        format!("servesim: `NAME` is \"lama-3.1-8b\", {listed}; did you mean `llama-3.1-8b`?\n")
    );
    assert_eq!(
        refused(&["--memory", "llama-3.1-8b", "h10"]),
        format!("servesim: `accelerator` is \"h10\", {listed}; did you mean `h100`?\n")
    );
    assert_eq!(
        refused(&["--memory", "zebra", "h100"]),
        format!("servesim: `model` is \"zebra\", {listed}\n")
    );
    let text = refused(&["--memory", "llama-3.1-8b", "h100", "--kv-type", "fp9"]);
    assert!(text.starts_with("servesim: --kv-type fp9: expected fp32, bf16, "), "{text}");
    let text = refused(&["--memory", "llama-3.1-8b", "h100", "--gpu-memory-utilization", "2"]);
    assert!(text.contains("`gpu_memory_utilization` is 2, expected a share"), "{text}");
    let text = refused(&["--memory", "llama-3.1-70b", "h100"]);
    assert!(text.contains("131.42 GiB of weights"), "{text}");
    assert!(text.contains("it fits from tensor_parallel_size 2 on"), "{text}");
    let text = refused(&["--memory", "llama-3.1-8b", "h100", "--tp", "0"]);
    assert!(text.contains("`parallel.tensor_parallel_size` is 0"), "{text}");
    // Flags of the derivation need it.
    assert!(refused(&["--tp", "2"]).contains("--memory"));
}
