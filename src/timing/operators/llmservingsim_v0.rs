//! The layout of `LLMServingSim` before 1.0: `layers.csv` with unfused kernels of one layer, and predictions of
//! attention. Nanoseconds.
//!
//! The predictions come from a regression on trees: far from its measurements (above 1,024 new tokens, and
//! above 256 requests) they are constant. They are taken as they are. The raw timings
//! (`attention.csv`) are about a third of them and of another origin, and not used.

use super::super::config::Deployment;
use super::super::error::ProfileError;
use super::config::OperatorsConfig;
use super::grid::{Grid, Point};
use super::own::{curve, unknown};
use super::{Attention, SeveralPrompts, Tables, collectives_over_links, layers, rows};
use crate::base::config::ConfigError;

/// Whose time a row of `layers.csv` is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    DensePerLayer,
    DensePerPass,
    PerRequest,
    /// Attention, for which there are predictions.
    None,
}

const LAYERS: [(&str, Use); 15] = [
    ("embedding", Use::DensePerPass),
    ("input_layernorm", Use::DensePerLayer),
    ("q_proj", Use::DensePerLayer),
    ("k_proj", Use::DensePerLayer),
    ("v_proj", Use::DensePerLayer),
    ("rope", Use::DensePerLayer),
    ("attn", Use::None),
    ("o_proj", Use::DensePerLayer),
    ("post_layernorm", Use::DensePerLayer),
    ("gate_proj", Use::DensePerLayer),
    ("up_proj", Use::DensePerLayer),
    ("act_fn", Use::DensePerLayer),
    ("down_proj", Use::DensePerLayer),
    ("final_layernorm", Use::DensePerPass),
    ("lm_head", Use::PerRequest),
];

const NS_PER_MS: f64 = 1e6;

/// Reads the folder.
///
/// # Errors
/// A file that cannot be used, or another size than the one that is deployed.
pub(super) fn load(
    config: &OperatorsConfig,
    deployment: &Deployment<'_>,
) -> Result<Tables, ProfileError> {
    let folder = &config.path;
    let layers = layers(config, deployment, None)?;
    let outside = config.outside;
    let size = deployment.parallel.tensor_parallel_size;
    let path = rows::needed(folder, "layers")?;
    let names = LAYERS.map(|(name, _)| name);
    let mut points: [Vec<Point<1>>; LAYERS.len()] = std::array::from_fn(|_| Vec::new());
    let mut other_size = None;
    let columns = ["layer_name", "input", "kv_cache", "tp_size", "latency(ns)"];
    rows::read(&path, &columns, |row| {
        let name = row.text(0);
        let Some(place) = names.iter().position(|&other| other == name) else {
            return Err(row.error(unknown(columns[0], name, &names)));
        };
        let measured_size = row.number(3)?;
        if (measured_size - f64::from(size)).abs() > 0.0 {
            other_size = Some(measured_size);
            return Ok(());
        }
        let ms = row.number(4)? / NS_PER_MS;
        points[place].push(Point { at: [row.number(1)?], ms, line: row.line });
        Ok(())
    })?;
    if points.iter().all(Vec::is_empty)
        && let Some(other) = other_size
    {
        let accepted = format!("a size measured in {}: {other}", path.display());
        return Err(ConfigError::new("parallel.tensor_parallel_size", size, accepted).into());
    }
    let (mut dense, mut per_request) = (Vec::new(), Vec::new());
    for ((name, kind), points) in LAYERS.into_iter().zip(points) {
        if kind == Use::None {
            continue;
        }
        let curve = curve(&path, name, points, outside)?;
        match kind {
            Use::DensePerLayer => dense.push((curve, layers)),
            Use::DensePerPass => dense.push((curve, 1.0)),
            Use::PerRequest | Use::None => per_request.push((curve, 1.0)),
        }
    }
    let prefill =
        predictions(config, "attn_prefill_predictions", ["prefill_chunk_size", "kv_cache_size"])?;
    let decode = predictions(config, "attn_decode_predictions", ["batch_size", "kv_cache_size"])?;
    Ok(Tables {
        dense,
        attention: Attention {
            prefill: prefill.times(layers),
            decode: decode.times(layers),
            mixed: None,
            several_prompts: SeveralPrompts::AsMuchWork,
        },
        per_request,
        experts: None,
        collectives: collectives_over_links(deployment),
        uneven_kv: None,
    })
}

/// The predictions of one layer over two coordinates. Nothing of them was measured.
fn predictions(
    config: &OperatorsConfig,
    stem: &str,
    coordinates: [&str; 2],
) -> Result<Grid<2>, ProfileError> {
    let path = rows::needed(&config.path, stem)?;
    let mut points = Vec::new();
    rows::read(&path, &[coordinates[0], coordinates[1], "prediction"], |row| {
        let ms = row.number(2)? / NS_PER_MS;
        points.push(Point { at: [row.number(0)?, row.number(1)?], ms, line: row.line });
        Ok(())
    })?;
    Ok(Grid::new(&path, points, config.outside)?.derived())
}
