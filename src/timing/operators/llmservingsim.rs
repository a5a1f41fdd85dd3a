//! The layout of `LLMServingSim` 1.1: `meta.yaml`, and a folder `tpN` for each tensor-parallel size with
//! `dense.csv`, `per_sequence.csv` and `attention.csv`, times in microseconds, one layer.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::super::config::Deployment;
use super::super::error::ProfileError;
use super::config::OperatorsConfig;
use super::own::{by_operator, curve};
use super::{
    Attention, AttentionPoints, SeveralPrompts, Tables, collectives_over_links, layers, rows,
};
use crate::base::config::ConfigError;
use crate::model::presets;
use crate::model::shape::ModelShape;

/// The operators over tokens, and how often a layer, or the pass, runs each.
const DENSE: [(&str, f64, bool); 9] = [
    ("embedding", 1.0, false),
    ("layernorm", 2.0, true),
    ("qkv_proj", 1.0, true),
    ("rotary_emb", 1.0, true),
    ("o_proj", 1.0, true),
    ("gate_up_proj", 1.0, true),
    ("act_fn", 1.0, true),
    ("down_proj", 1.0, true),
    ("final_layernorm", 1.0, false),
];

/// The operators over requests, each once a pass.
const PER_REQUEST: [&str; 2] = ["lm_head", "sampler"];

/// The tensor-parallel sizes that `folder` holds, ascending.
///
/// # Errors
/// The folder cannot be read.
pub(super) fn sizes(folder: &Path) -> Result<Vec<u32>, ProfileError> {
    let unreadable = |e: std::io::Error| ProfileError::file(folder, e.to_string());
    let mut sizes = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name();
        let size = name.to_str().and_then(|name| name.strip_prefix("tp")).map(str::parse::<u32>);
        if let Some(Ok(size)) = size
            && entry.path().is_dir()
        {
            sizes.push(size);
        }
    }
    sizes.sort_unstable();
    Ok(sizes)
}

/// Reads the folder.
///
/// # Errors
/// A file that cannot be used, or no folder of the size that is deployed.
pub(super) fn load(
    config: &OperatorsConfig,
    deployment: &Deployment<'_>,
) -> Result<Tables, ProfileError> {
    let size = deployment.parallel.tensor_parallel_size;
    let there = sizes(&config.path)?;
    if !there.contains(&size) {
        let there: Vec<String> = there.iter().map(ToString::to_string).collect();
        let accepted =
            format!("a size measured in {}: {}", config.path.display(), there.join(", "));
        return Err(ConfigError::new("parallel.tensor_parallel_size", size, accepted).into());
    }
    let folder = config.path.join(format!("tp{size}"));
    let meta = Meta::read(&config.path)?;
    meta.check_model(deployment)?;
    let layers = layers(config, deployment, meta.layers()?)?;
    let outside = config.outside;

    let path = rows::needed(&folder, "dense")?;
    let names = DENSE.map(|(name, _, _)| name);
    let mut points = by_operator(&path, ["layer", "tokens", "time_us"], &names, 1000.0)?;
    let mut dense = Vec::new();
    for (name, count, is_per_layer) in DENSE {
        let curve = curve(&path, name, points.remove(name).unwrap_or_default(), outside)?;
        dense.push((curve, if is_per_layer { count * layers } else { count }));
    }

    let path = rows::needed(&folder, "per_sequence")?;
    let mut points = by_operator(&path, ["layer", "sequences", "time_us"], &PER_REQUEST, 1000.0)?;
    let mut per_request = Vec::new();
    for name in PER_REQUEST {
        let curve = curve(&path, name, points.remove(name).unwrap_or_default(), outside)?;
        per_request.push((curve, 1.0));
    }

    let path = rows::needed(&folder, "attention")?;
    let mut attention = AttentionPoints::default();
    let columns = ["prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us"];
    rows::read(&path, &columns, |row| {
        let at = [row.number(0)?, row.number(1)?, row.number(2)?, row.number(3)?];
        attention.add(at, row.number(4)? / 1000.0, row.line).map_err(|what| row.error(what))
    })?;
    Ok(Tables {
        dense,
        attention: Attention {
            several_prompts: SeveralPrompts::Together,
            ..attention.of_layers(&path, layers, outside)?
        },
        per_request,
        experts: None,
        collectives: collectives_over_links(deployment),
        uneven_kv: meta.uneven_kv(size),
    })
}

/// `meta.yaml`, of which little is needed.
struct Meta {
    path: std::path::PathBuf,
    /// Null if the file is not there.
    content: Value,
}

impl Meta {
    fn read(folder: &Path) -> Result<Self, ProfileError> {
        let path = folder.join("meta.yaml");
        if !path.is_file() {
            return Ok(Self { path, content: Value::Null });
        }
        let text =
            fs::read_to_string(&path).map_err(|e| ProfileError::file(&path, e.to_string()))?;
        let content =
            serde_saphyr::from_str(&text).map_err(|e| ProfileError::file(&path, e.to_string()))?;
        Ok(Self { path, content })
    }

    /// Layers of the model; those that were measured (`engine_effective`) are fewer.
    fn layers(&self) -> Result<Option<u32>, ProfileError> {
        let Some(found) = self.content.get("num_hidden_layers") else { return Ok(None) };
        let layers = found.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|&n| n > 0);
        layers.map(Some).ok_or_else(|| {
            let what = format!("`num_hidden_layers` is {found}, expected an integer of at least 1");
            ProfileError::file(&self.path, what)
        })
    }

    /// That the profile is of the scenario's model, as far as both are known: by the figures, since names differ.
    fn check_model(&self, deployment: &Deployment<'_>) -> Result<(), ProfileError> {
        let (Some(measured), Some(model)) =
            (self.content.get("model").and_then(Value::as_str), deployment.model)
        else {
            return Ok(());
        };
        let Ok(preset) = presets::model(measured) else { return Ok(()) };
        let figures = |shape: &ModelShape| {
            (
                shape.num_hidden_layers,
                shape.hidden_size,
                shape.num_attention_heads,
                shape.vocab_size,
            )
        };
        if figures(&preset.shape) == figures(model) {
            return Ok(());
        }
        let what = format!("`model` is {measured}, expected the scenario's {}", model.name);
        Err(ProfileError::file(&self.path, what))
    }

    /// The share that fits all measured uneven batches best. `skew_fit.csv` has one for each kind of batch, told
    /// apart also by the shortest KV of it, which the work of a pass does not hold.
    fn uneven_kv(&self, size: u32) -> Option<f64> {
        let of_size = self.content.get("skew_fit")?.get("per_tp")?.get(size.to_string())?;
        of_size.get("alpha_default")?.as_f64().filter(|share| (0.0..=1.0).contains(share))
    }
}
