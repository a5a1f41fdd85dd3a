//! `servesim presets`.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use super::Outcome;
use super::args::{Format, MemoryArgs, PresetsArgs};
use super::error::CliError;
use crate::base::config::ConfigError;
use crate::base::hint::nearest;
use crate::engine::sglang::config::SglangConfig;
use crate::engine::sglang::config::defaults;
use crate::engine::trtllm::config::TrtllmConfig;
use crate::engine::vllm::config::{Device, VllmConfig};
use crate::model::accelerator::Accelerator;
use crate::model::hugging_face;
use crate::model::memory::sglang::StaticMemory;
use crate::model::memory::trtllm;
use crate::model::memory::{KvMemory, MemoryError, MemoryOptions};
use crate::model::parallel::Parallel;
use crate::model::presets::{self, AcceleratorPreset, ModelPreset, Source};
use crate::model::shape::{DataType, ModelShape};
use crate::report::format::{UNKNOWN, count, figure, known, wrapped};
use crate::report::table::{table, write_table};

/// Name and number of the format of the JSON.
const SCHEMA: &str = "servesim.presets/1";

/// Columns of a terminal.
const WIDTH_MAX: usize = 100;

/// Lists presets, describes one, or derives the memory of a deployment.
pub(super) fn presets(args: &PresetsArgs) -> Result<Outcome, CliError> {
    let mut out = io::stdout().lock();
    if let Some([model, gpu]) = args.memory.as_deref() {
        return memory(model, gpu, &args.derivation, &mut out);
    }
    let (models, accelerators) = match &args.name {
        Some(name) => described(name)?,
        None => (presets::models().iter().collect(), presets::accelerators().iter().collect()),
    };
    match (args.format, &args.name) {
        (Format::Json, _) => {
            let presets = json!({
                "schema": SCHEMA,
                "models": models.iter().map(|model| model_json(model)).collect::<Vec<_>>(),
                "accelerators": accelerators,
            });
            let text = serde_json::to_string_pretty(&presets).expect("presets are plain data");
            writeln!(out, "{text}")?;
        }
        (Format::Table, None) => list(&models, &accelerators, &mut out)?,
        (Format::Table, Some(_)) => {
            for model in models {
                let shape = &model.shape;
                detail(shape, &model.aliases, &model.sources, &mut out)?;
                writeln!(out, "weights: {}", count(shape.parameters()))?;
            }
            for accelerator in accelerators {
                detail(&accelerator.sheet, &accelerator.aliases, &accelerator.sources, &mut out)?;
            }
        }
    }
    Ok(Outcome::Done)
}

type Found = (Vec<&'static ModelPreset>, Vec<&'static AcceleratorPreset>);

/// The preset of a name, of either kind.
fn described(name: &str) -> Result<Found, ConfigError> {
    if let Ok(model) = presets::model(name) {
        return Ok((vec![model], Vec::new()));
    }
    if let Ok(accelerator) = presets::accelerator(name) {
        return Ok((Vec::new(), vec![accelerator]));
    }
    let models = presets::models().iter().map(|preset| preset.shape.name.as_str());
    let sheets = presets::accelerators().iter().map(|preset| preset.sheet.name.as_str());
    let hint = nearest(name, models.chain(sheets))
        .map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
    let accepted = format!("a name that `servesim presets` lists{hint}");
    Err(ConfigError::new("NAME", format!("{name:?}"), accepted))
}

/// A model with the number of weights that its shape gives.
fn model_json(model: &ModelPreset) -> Value {
    let mut value = serde_json::to_value(model).expect("a preset is plain data");
    value["parameters"] = model.shape.parameters().into();
    value
}

fn list(
    models: &[&ModelPreset],
    accelerators: &[&AcceleratorPreset],
    out: &mut dyn Write,
) -> io::Result<()> {
    let rows = models.iter().map(|model| model_row(&model.shape)).collect();
    let header = [
        "Model",
        "10^9 weights",
        "layers",
        "hidden",
        "heads",
        "KV",
        "experts",
        "weights",
        "KV B/token",
    ];
    write_table(&table(&header, rows), out)?;
    writeln!(out)?;
    let rows = accelerators.iter().map(|preset| accelerator_row(&preset.sheet)).collect();
    let header =
        ["Accelerator", "GB", "GB/s", "bf16 TFLOPS", "fp8", "int8", "fp4", "link GB/s", "per node"];
    write_table(&table(&header, rows), out)?;
    writeln!(out)?;
    writeln!(out, "Peaks are dense; `servesim presets NAME` has the sources.")
}

fn model_row(shape: &ModelShape) -> Vec<String> {
    let experts = shape.experts.map(|e| format!("{} of {}", e.num_experts_per_tok, e.num_experts));
    let weights = match shape.expert_weight_type {
        Some(experts) => format!("{}/{}", name_of(shape.weight_type), name_of(experts)),
        None => name_of(shape.weight_type),
    };
    let kv = f64::from(shape.num_hidden_layers) * shape.kv_width(1) as f64 * shape.kv_type.bytes();
    vec![
        shape.name.clone(),
        figure(shape.parameters() as f64 / 1e9),
        shape.num_hidden_layers.to_string(),
        shape.hidden_size.to_string(),
        shape.num_attention_heads.to_string(),
        shape.mla.map_or_else(|| shape.num_key_value_heads.to_string(), |_| "MLA".to_owned()),
        experts.unwrap_or_else(|| UNKNOWN.to_owned()),
        weights,
        count(kv as u64),
    ]
}

fn accelerator_row(sheet: &Accelerator) -> Vec<String> {
    let peak = |tflops: Option<f64>| known(tflops, |tflops| format!("{tflops}"));
    vec![
        sheet.name.clone(),
        figure(sheet.memory_gb),
        sheet.memory_gb_per_s.to_string(),
        peak(Some(sheet.tflops.bf16)),
        peak(sheet.tflops.fp8),
        peak(sheet.tflops.int8),
        peak(sheet.tflops.fp4),
        sheet.link_gb_per_s.to_string(),
        sheet.devices_per_node.to_string(),
    ]
}

/// Every field as a scenario has it, then aliases and sources.
fn detail(
    fields: &impl Serialize,
    aliases: &[String],
    sources: &[Source],
    out: &mut dyn Write,
) -> io::Result<()> {
    let fields = serde_json::to_value(fields).expect("a preset is plain data");
    for (name, value) in fields.as_object().into_iter().flatten() {
        match value {
            Value::Null => {}
            Value::String(text) => writeln!(out, "{name}: {text}")?,
            Value::Object(inner) => {
                let there = inner.iter().filter(|(_, value)| !value.is_null());
                let inner: Vec<_> = there.map(|(name, value)| format!("{name}: {value}")).collect();
                writeln!(
                    out,
                    "{}",
                    wrapped(&format!("{name}: {{ {} }}", inner.join(", ")), WIDTH_MAX)
                )?;
            }
            other => writeln!(out, "{name}: {other}")?,
        }
    }
    if !aliases.is_empty() {
        writeln!(out, "{}", wrapped(&format!("aliases: {}", aliases.join(", ")), WIDTH_MAX))?;
    }
    sources.iter().try_for_each(|source| {
        let text = format!("source of {}: {}", source.figures, source.document);
        writeln!(out, "{}", wrapped(&text, WIDTH_MAX))
    })
}

/// How a scenario writes a type.
fn name_of(data_type: DataType) -> String {
    let name = serde_json::to_value(data_type).expect("a name");
    name.as_str().unwrap_or_default().to_owned()
}

fn data_type(flag: &'static str, text: Option<&String>) -> Result<Option<DataType>, CliError> {
    text.map(|text| {
        serde_json::from_value(json!(text.to_lowercase())).map_err(|_| CliError::Flag {
            flag,
            found: text.clone(),
            accepted: "fp32, bf16, fp16, fp8, int8, int4, nvfp4 or mxfp4",
        })
    })
    .transpose()
}

/// A preset, or the shape in a file where no preset has that name.
fn model_of(name: &str) -> Result<ModelShape, CliError> {
    match presets::model(name) {
        Ok(preset) => Ok(preset.shape.clone()),
        Err(_) if Path::new(name).exists() => Ok(hugging_face::read(Path::new(name))?),
        Err(error) => Err(error.into()),
    }
}

fn memory(
    model: &str,
    gpu: &str,
    args: &MemoryArgs,
    out: &mut dyn Write,
) -> Result<Outcome, CliError> {
    let mut model = model_of(model)?;
    let accelerator = &presets::accelerator(gpu)?.sheet;
    if let Some(weight_type) = data_type("--weight-type", args.weight_type.as_ref())? {
        (model.weight_type, model.expert_weight_type) = (weight_type, None);
    }
    if let Some(kv_type) = data_type("--kv-type", args.kv_type.as_ref())? {
        model.kv_type = kv_type;
    }
    let parallel = Parallel {
        tensor_parallel_size: args.tp,
        pipeline_parallel_size: args.pp,
        ..Parallel::default()
    };
    let checked = parallel.check().and_then(|()| parallel.check_for(&model));
    checked.map_err(|error| error.within("parallel"))?;
    let longest = model.max_position_embeddings;
    let options = options(accelerator, args, args.max_model_len.unwrap_or(longest))?;
    let derive = match args.max_model_len {
        Some(_) => KvMemory::derive,
        None => KvMemory::derive_fitting,
    };
    let memory = derive(&model, accelerator, &parallel, &options)?;
    let model_len = memory.options.max_model_len;
    let sglang = static_memory(&model, accelerator, &parallel, args)?;
    let trtllm = free_memory(&model, accelerator, &parallel, args)?;
    write!(out, "{memory}")?;
    if model_len < longest && args.max_model_len.is_none() {
        writeln!(out, "max_model_len is what fits: the model's own is {longest} tokens.")?;
    }
    write!(out, "\nSGLang 0.5.23:\n{sglang}")?;
    write!(out, "\nTensorRT-LLM:\n{trtllm}")?;
    if memory.usable_tokens() < u64::from(model_len) {
        writeln!(
            io::stderr(),
            "servesim: --max-model-len {model_len} does not fit, and vLLM refuses to start; at most {}",
            memory.usable_tokens()
        )?;
        return Ok(Outcome::Failed);
    }
    Ok(Outcome::Done)
}

/// What is said of SGLang, with its own defaults for the rest.
fn static_memory(
    model: &ModelShape,
    accelerator: &Accelerator,
    parallel: &Parallel,
    args: &MemoryArgs,
) -> Result<String, CliError> {
    let mut engine = SglangConfig {
        mem_fraction_static: args.mem_fraction_static,
        disable_cuda_graph: args.enforce_eager,
        ..SglangConfig::default()
    };
    engine.check_ranges()?;
    engine.choose_by(&defaults::Device::of(accelerator, Some(model), parallel));
    let Some(share) = engine.mem_fraction_static else {
        return Ok("passes and graphs leave none of the memory\n".to_owned());
    };
    match StaticMemory::derive(model, accelerator, parallel, share, engine.page_size) {
        Ok(memory) => Ok(memory.to_string()),
        // It may fit the one and not the other.
        Err(error @ MemoryError::DoesNotFit { .. }) => {
            Ok(wrapped(&error.to_string(), WIDTH_MAX) + "\n")
        }
        Err(error) => Err(error.into()),
    }
}

/// What is said of TensorRT-LLM, with its own defaults for what is not given.
fn free_memory(
    model: &ModelShape,
    accelerator: &Accelerator,
    parallel: &Parallel,
    args: &MemoryArgs,
) -> Result<String, CliError> {
    let own = TrtllmConfig::default();
    let engine = TrtllmConfig {
        max_seq_len: args.max_model_len,
        max_num_tokens: args.max_num_batched_tokens.unwrap_or(own.max_num_tokens),
        max_batch_size: args.max_num_seqs.unwrap_or(own.max_batch_size),
        ..own
    };
    let options = engine.memory_options(model.max_position_embeddings);
    let said = match trtllm::blocks(model, accelerator, parallel, &options) {
        Ok(blocks) => format!(
            "{} tokens of KV, in blocks of {}: {} of what weights and a pass of {} tokens of {} requests leave",
            count(blocks.saturating_mul(options.tokens_per_block.into())),
            options.tokens_per_block,
            options.free_gpu_memory_fraction,
            count(options.max_num_tokens.into()),
            count(options.max_batch_size.into()),
        ),
        // It may fit the others and not this one.
        Err(error @ MemoryError::DoesNotFit { .. }) => error.to_string(),
        Err(error) => return Err(error.into()),
    };
    Ok(wrapped(&said, WIDTH_MAX) + "\n")
}

/// Absent limits as the engine's own defaults.
fn options(
    accelerator: &Accelerator,
    args: &MemoryArgs,
    model_len: u32,
) -> Result<MemoryOptions, ConfigError> {
    let engine = VllmConfig {
        device: Some(Device::of(accelerator)),
        block_size: args.block_size,
        max_model_len: Some(model_len),
        max_num_batched_tokens: args.max_num_batched_tokens,
        max_num_seqs: args.max_num_seqs,
        ..VllmConfig::default()
    };
    let engine = engine.with_defaults()?;
    let filled = |limit: Option<u32>| limit.expect("with_defaults fills every absent value");
    Ok(MemoryOptions {
        gpu_memory_utilization: args.gpu_memory_utilization,
        block_size: args.block_size,
        max_model_len: model_len,
        max_num_batched_tokens: filled(engine.max_num_batched_tokens),
        max_num_seqs: filled(engine.max_num_seqs),
        cuda_graphs: !args.enforce_eager,
    })
}
