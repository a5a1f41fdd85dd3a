//! Shapes from the `config.json` of a model on Hugging Face.
//!
//! Read are the fields of Llama and what its kin add: mixtures of experts (Mixtral, Qwen, DeepSeek, gpt-oss), compressed
//! KV (DeepSeek), windows (Mistral, Qwen, Gemma, Phi-3, gpt-oss), quantised weights. A multimodal model is read as its
//! `text_config`. An architecture of another name that has Llama's fields is read as one; layers that do not
//! attend are refused where `layer_types` names them.
//!
//! Keys and values are taken to be stored as activations are, whatever the checkpoint recommends.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::shape::{DataType, Experts, Mla, ModelShape, Sliding};
use crate::base::config::ConfigError;

/// Why a `config.json` gives no shape.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum HuggingFaceError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// It is no JSON object.
    #[error("{}: {what}", path.display())]
    Json { path: PathBuf, what: String },
    /// A field is missing, or holds what a model cannot have.
    #[error("{}: {cause}", path.display())]
    Field { path: PathBuf, cause: ConfigError },
}

/// Reads a shape from a `config.json`, or from a folder that holds one. It is called by the folder.
///
/// # Errors
/// The file cannot be read, or a field is missing or odd.
pub(crate) fn read(path: &Path) -> Result<ModelShape, HuggingFaceError> {
    let path = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(source) => return Err(HuggingFaceError::Read { path, source }),
    };
    let root: Map<String, Value> = match serde_json::from_str(&text) {
        Ok(root) => root,
        Err(error) => {
            let what = format!("not a JSON object: {error}");
            return Err(HuggingFaceError::Json { path, what });
        }
    };
    let cause = match shape(&root, name_of(&path)) {
        Ok(shape) => return Ok(shape),
        Err(cause) => cause,
    };
    Err(HuggingFaceError::Field { path, cause })
}

/// The folder of a `config.json`, or the file's own name without its extension.
fn name_of(path: &Path) -> String {
    let name = match path.file_name() {
        Some(file) if file == "config.json" => path.parent().and_then(Path::file_name),
        _ => path.file_stem(),
    };
    name.map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The fields of the part that describes the text model, and how errors name them.
struct Fields<'a> {
    /// The whole file.
    root: &'a Map<String, Value>,
    /// The part.
    text: &'a Map<String, Value>,
    /// What stands before a field's name.
    prefix: &'static str,
}

impl<'a> Fields<'a> {
    fn of(root: &'a Map<String, Value>) -> Self {
        match root.get("text_config") {
            Some(Value::Object(text)) => Self { root, text, prefix: "text_config." },
            _ => Self { root, text: root, prefix: "" },
        }
    }

    /// A value that is there; `null` is not. What the part lacks the whole may have.
    fn get(&self, name: &str) -> Option<&'a Value> {
        let there = |map: &'a Map<String, Value>| map.get(name).filter(|value| !value.is_null());
        there(self.text).or_else(|| there(self.root))
    }

    fn error(&self, name: &str, found: impl std::fmt::Display, accepted: &str) -> ConfigError {
        ConfigError::new(&format!("{}{name}", self.prefix), found, accepted)
    }

    fn integer(&self, name: &str) -> Result<Option<u32>, ConfigError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let integer = value.as_u64().and_then(|integer| u32::try_from(integer).ok());
        match integer {
            Some(integer) => Ok(Some(integer)),
            None => Err(self.error(name, value, "an integer from 0 to 4294967295")),
        }
    }

    fn required(&self, name: &str) -> Result<u32, ConfigError> {
        self.integer(name)?.ok_or_else(|| self.error(name, "missing", "an integer"))
    }

    /// The first of several names that is there.
    fn any(&self, names: &[&str]) -> Result<Option<u32>, ConfigError> {
        for name in names {
            if let Some(integer) = self.integer(name)? {
                return Ok(Some(integer));
            }
        }
        Ok(None)
    }

    fn flag(&self, name: &str) -> Result<Option<bool>, ConfigError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.error(name, other, "true or false")),
        }
    }

    fn text(&self, name: &str) -> &'a str {
        self.get(name).and_then(Value::as_str).unwrap_or_default()
    }
}

fn shape(root: &Map<String, Value>, name: String) -> Result<ModelShape, ConfigError> {
    let fields = Fields::of(root);
    let num_hidden_layers = fields.required("num_hidden_layers")?;
    let hidden_size = fields.required("hidden_size")?;
    let num_attention_heads = fields.required("num_attention_heads")?;
    let experts = experts(&fields, num_hidden_layers)?;
    let dense_layers = experts.map_or(num_hidden_layers, |experts| experts.dense_layers);
    let mla = mla(&fields)?;
    let activation_type = activation_type(&fields)?;
    let (weight_type, expert_weight_type) = weight_types(&fields, activation_type)?;
    let shape = ModelShape {
        name,
        num_hidden_layers,
        hidden_size,
        num_attention_heads,
        num_key_value_heads: fields.integer("num_key_value_heads")?.unwrap_or(num_attention_heads),
        head_dim: head_dim(&fields, mla, hidden_size, num_attention_heads)?,
        intermediate_size: match dense_layers {
            0 => 0,
            _ => fields.required("intermediate_size")?,
        },
        vocab_size: fields.required("vocab_size")?,
        // Gemma ties them unless told otherwise.
        tie_word_embeddings: fields
            .flag("tie_word_embeddings")?
            .unwrap_or_else(|| fields.text("model_type").starts_with("gemma")),
        max_position_embeddings: fields.required("max_position_embeddings")?,
        experts,
        mla,
        sliding: sliding(&fields, num_hidden_layers)?,
        weight_type,
        expert_weight_type: expert_weight_type.filter(|_| experts.is_some()),
        activation_type,
        kv_type: activation_type,
    };
    shape.check().map_err(|error| match fields.prefix {
        "" => error,
        _ => error.within("text_config"),
    })?;
    Ok(shape)
}

fn head_dim(
    fields: &Fields<'_>,
    mla: Option<Mla>,
    hidden_size: u32,
    heads: u32,
) -> Result<u32, ConfigError> {
    if let Some(mla) = mla {
        return Ok(mla.qk_nope_head_dim.saturating_add(mla.qk_rope_head_dim));
    }
    if let Some(head_dim) = fields.integer("head_dim")? {
        return Ok(head_dim);
    }
    if heads == 0 || !hidden_size.is_multiple_of(heads) {
        let accepted = format!("a divisor of hidden_size ({hidden_size}), as there is no head_dim");
        return Err(fields.error("num_attention_heads", heads, &accepted));
    }
    Ok(hidden_size / heads)
}

fn mla(fields: &Fields<'_>) -> Result<Option<Mla>, ConfigError> {
    let Some(kv_lora_rank) = fields.integer("kv_lora_rank")? else { return Ok(None) };
    Ok(Some(Mla {
        q_lora_rank: fields.integer("q_lora_rank")?.unwrap_or(0),
        kv_lora_rank,
        qk_nope_head_dim: fields.required("qk_nope_head_dim")?,
        qk_rope_head_dim: fields.required("qk_rope_head_dim")?,
        v_head_dim: fields.required("v_head_dim")?,
    }))
}

fn experts(fields: &Fields<'_>, layers: u32) -> Result<Option<Experts>, ConfigError> {
    let names = ["num_local_experts", "num_experts", "n_routed_experts"];
    // Dense members of a family of mixtures say 0 or 1.
    let Some(num_experts @ 2..) = fields.any(&names)? else { return Ok(None) };
    let num_experts_per_tok = fields
        .any(&["num_experts_per_tok", "experts_per_token", "top_k_experts"])?
        .ok_or_else(|| fields.error("num_experts_per_tok", "missing", "an integer"))?;
    let moe_intermediate_size = match fields.integer("moe_intermediate_size")? {
        Some(width) => width,
        None => fields.required("intermediate_size")?,
    };
    let shared_intermediate_size = match fields.integer("shared_expert_intermediate_size")? {
        Some(width) => width,
        None => {
            fields.integer("n_shared_experts")?.unwrap_or(0).saturating_mul(moe_intermediate_size)
        }
    };
    Ok(Some(Experts {
        num_experts,
        num_experts_per_tok,
        moe_intermediate_size,
        shared_intermediate_size,
        dense_layers: dense_layers(fields, layers)?,
    }))
}

/// Layers of a mixture that have no experts: the first few (DeepSeek), those that are listed, and those between every
/// so many (Qwen).
fn dense_layers(fields: &Fields<'_>, layers: u32) -> Result<u32, ConfigError> {
    let first = fields.integer("first_k_dense_replace")?.unwrap_or(0);
    let mut listed = Vec::new();
    if let Some(value) = fields.get("mlp_only_layers") {
        let accepted = "an array of layers";
        let refused = || fields.error("mlp_only_layers", value, accepted);
        for layer in value.as_array().ok_or_else(refused)? {
            listed.push(layer.as_u64().ok_or_else(refused)?);
        }
    }
    let (name, step) = match fields.integer("moe_layer_freq")? {
        Some(step) => ("moe_layer_freq", step),
        None => ("decoder_sparse_step", fields.integer("decoder_sparse_step")?.unwrap_or(1)),
    };
    if step == 0 {
        return Err(fields.error(name, step, "an integer of at least 1"));
    }
    // DeepSeek counts layers from 0, Qwen from 1.
    let offset = u32::from(name == "decoder_sparse_step");
    let dense = (0..layers.min(1 << 24)).filter(|&layer| {
        layer < first
            || !(layer + offset).is_multiple_of(step)
            || listed.contains(&u64::from(layer))
    });
    Ok(dense.count() as u32)
}

/// Layers that attend to a window.
fn sliding(fields: &Fields<'_>, layers: u32) -> Result<Option<Sliding>, ConfigError> {
    let sliding_layers = match fields.get("layer_types") {
        Some(types) => windowed_in_list(fields, types, layers)?,
        None => windowed_by_rule(fields, layers)?,
    };
    let Some(window_tokens) = fields.integer("sliding_window")? else {
        if sliding_layers > 0 && fields.get("layer_types").is_some() {
            return Err(fields.error("sliding_window", "missing", "an integer"));
        }
        return Ok(None);
    };
    let longest = fields.integer("max_position_embeddings")?.unwrap_or(u32::MAX);
    // A window that holds everything is none.
    if sliding_layers == 0 || window_tokens == 0 || window_tokens >= longest {
        return Ok(None);
    }
    Ok(Some(Sliding { window_tokens, layers: sliding_layers }))
}

fn windowed_in_list(fields: &Fields<'_>, types: &Value, layers: u32) -> Result<u32, ConfigError> {
    let types = types.as_array().map_or(&[][..], Vec::as_slice);
    if types.len() != layers as usize {
        let found = format!("{} layers", types.len());
        let accepted = format!("an array of num_hidden_layers ({layers}) types");
        return Err(fields.error("layer_types", found, &accepted));
    }
    let mut windowed = 0;
    for kind in types {
        match kind.as_str() {
            Some("full_attention") => {}
            Some("sliding_attention") => windowed += 1,
            _ => {
                let accepted = "full_attention or sliding_attention";
                return Err(fields.error("layer_types", kind, accepted));
            }
        }
    }
    Ok(windowed)
}

/// What the families did before they listed the types of their layers.
fn windowed_by_rule(fields: &Fields<'_>, layers: u32) -> Result<u32, ConfigError> {
    let model_type = fields.text("model_type");
    if fields.flag("use_sliding_window")? == Some(false) {
        return Ok(0);
    }
    if model_type.starts_with("gemma3") {
        // Every sixth layer attends to everything.
        let pattern = fields.integer("sliding_window_pattern")?.unwrap_or(6);
        if pattern == 0 {
            return Err(fields.error("sliding_window_pattern", 0, "an integer of at least 1"));
        }
        return Ok(layers - layers / pattern);
    }
    if model_type.starts_with("gemma2") || model_type.starts_with("gpt_oss") {
        // The first layer and every second one.
        return Ok(layers.div_ceil(2));
    }
    if model_type.starts_with("qwen") {
        // A window only where it is switched on, from a layer on.
        if fields.flag("use_sliding_window")? != Some(true) {
            return Ok(0);
        }
        let full = fields.integer("max_window_layers")?.unwrap_or(layers);
        return Ok(layers.saturating_sub(full));
    }
    Ok(layers)
}

/// How activations are stored. A file that does not say, or says 32 bits, is run with 16.
fn activation_type(fields: &Fields<'_>) -> Result<DataType, ConfigError> {
    let name = if fields.get("dtype").is_some() { "dtype" } else { "torch_dtype" };
    let Some(value) = fields.get(name) else { return Ok(DataType::Bf16) };
    match value.as_str().map(|dtype| dtype.trim_start_matches("torch.")) {
        Some("bfloat16" | "auto") => Ok(DataType::Bf16),
        Some("float16" | "float32" | "half" | "float") => Ok(DataType::Fp16),
        _ => Err(fields.error(name, value, "bfloat16, float16 or float32")),
    }
}

/// How weights are stored, and those of experts where that differs.
fn weight_types(
    fields: &Fields<'_>,
    activation: DataType,
) -> Result<(DataType, Option<DataType>), ConfigError> {
    let name = "quantization_config";
    let Some(value) = fields.get(name) else { return Ok((activation, None)) };
    let Some(config) = value.as_object() else {
        return Err(fields.error(name, value, "an object"));
    };
    let text = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default();
    let method = text("quant_method").to_lowercase();
    let weight = match method.as_str() {
        "fp8" | "fbgemm_fp8" => DataType::Fp8,
        // gpt-oss: the rest is not converted.
        "mxfp4" => return Ok((activation, Some(DataType::Mxfp4))),
        "awq" | "gptq" | "awq_marlin" | "gptq_marlin" | "auto-round" => {
            let bits = ["bits", "w_bit"].iter().find_map(|key| config.get(*key));
            match bits.and_then(Value::as_u64) {
                Some(4) => DataType::Int4,
                Some(8) => DataType::Int8,
                _ => {
                    let found = bits.map_or_else(|| "missing".to_owned(), Value::to_string);
                    return Err(fields.error("quantization_config.bits", found, "4 or 8"));
                }
            }
        }
        "compressed-tensors" => compressed_tensors(fields, config)?,
        "modelopt" | "modelopt_fp4" => {
            let nested = config.get("quantization").and_then(|value| value.get("quant_algo"));
            let algorithm = nested.or_else(|| config.get("quant_algo"));
            match algorithm.and_then(Value::as_str).map(str::to_uppercase).as_deref() {
                Some("FP8" | "FP8_PER_CHANNEL_PER_TOKEN" | "FP8_PB_WO") => DataType::Fp8,
                Some("NVFP4" | "FP4" | "NVFP4_AWQ") => DataType::Nvfp4,
                _ => {
                    let found = algorithm.map_or_else(|| "missing".to_owned(), Value::to_string);
                    let path = "quantization_config.quant_algo";
                    return Err(fields.error(path, found, "FP8 or NVFP4"));
                }
            }
        }
        _ => {
            let accepted = "fp8, mxfp4, awq, gptq, compressed-tensors or modelopt";
            return Err(fields.error("quantization_config.quant_method", &method, accepted));
        }
    };
    Ok((weight, None))
}

/// The weights of the first group that has any.
fn compressed_tensors(
    fields: &Fields<'_>,
    config: &Map<String, Value>,
) -> Result<DataType, ConfigError> {
    let groups = config.get("config_groups").and_then(Value::as_object);
    let mut weights =
        groups.into_iter().flat_map(|groups| groups.values()).filter_map(|g| g.get("weights"));
    let path = "quantization_config.config_groups.*.weights";
    let Some(weights) = weights.find(|weights| weights.is_object()) else {
        return Err(fields.error(path, "missing", "an object"));
    };
    let number = |key: &str| weights.get(key).and_then(Value::as_u64);
    let kind = weights.get("type").and_then(Value::as_str).unwrap_or("int");
    match (number("num_bits"), kind) {
        (Some(8), "float") => Ok(DataType::Fp8),
        (Some(8), "int") => Ok(DataType::Int8),
        (Some(4), "int") => Ok(DataType::Int4),
        (Some(4), "float") if number("group_size") == Some(32) => Ok(DataType::Mxfp4),
        (Some(4), "float") => Ok(DataType::Nvfp4),
        (bits, kind) => {
            let bits = bits.map_or_else(|| "?".to_owned(), |bits| bits.to_string());
            let found = format!("{bits} bits, {kind}");
            Err(fields.error(path, found, "4 or 8 bits, int or float"))
        }
    }
}

#[cfg(test)]
mod tests;
