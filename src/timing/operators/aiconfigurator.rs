//! The layout of `aiconfigurator`: kernels of any dense model, in Parquet files, latencies in ms.
//!
//! A pass is put together from the shape of the scenario's model: the four matrix products of a layer, its
//! attention, two all-reduces, and the LM head. That is what the kernels take and a lower bound of what
//! a pass takes: normalisation, rotation, activation, sampling, gaps between kernels and the host
//! are not in these files.
//!
//! A matrix product of a shape that was not measured is taken from the nearest shape (the smallest sum of the
//! logarithms of both ratios) times the ratio of the operations. Prompts behind past KV were not
//! measured: the attention of T new tokens behind P is f(T + P) - f(P), at least f(T), with f that
//! of whole prompts; beyond the longest of them f grows with the square. Both count as interpolated.

use std::path::Path;

use super::super::config::Deployment;
use super::super::error::ProfileError;
use super::config::{OperatorsConfig, Outside};
use super::grid::{Curve, Grid, Point};
use super::{Attention, Collectives, SeveralPrompts, Tables};
use crate::base::config::ConfigError;
use crate::model::shape::{DataType, ModelShape};

/// Reads the folder.
///
/// # Errors
/// A file that cannot be used, or a model that the files do not cover.
pub(super) fn load(
    config: &OperatorsConfig,
    deployment: &Deployment<'_>,
) -> Result<Tables, ProfileError> {
    let model = deployment.model.ok_or_else(|| {
        let accepted = format!("a model: {} holds kernels, not a model", config.path.display());
        ProfileError::from(ConfigError::new("model", "absent", accepted))
    })?;
    let size = deployment.parallel.tensor_parallel_size;
    check(model, size, config)?;
    let folder = &config.path;
    let path = folder.join("gemm_perf.parquet");
    let gemm = Gemm::read(&path, model, config.outside)?;
    let layers = f64::from(model.num_hidden_layers);
    let mut dense = Vec::new();
    for [n, k] in layer_shapes(model, size) {
        dense.push((gemm.curve(gemm.weight_type, n, k)?, layers));
    }
    let head = [model.vocab_size.div_ceil(size), model.hidden_size];
    let per_request = vec![(gemm.curve("bfloat16", head[0], head[1])?, 1.0)];
    let attention = Attention {
        prefill: context(
            &folder.join("context_attention_perf.parquet"),
            model,
            size,
            config.outside,
        )?
        .times(layers),
        decode: generation(
            &folder.join("generation_attention_perf.parquet"),
            model,
            size,
            config.outside,
        )?
        .times(layers),
        mixed: None,
        several_prompts: SeveralPrompts::AsMuchWork,
    };
    let collectives = if size == 1 {
        None
    } else {
        let path = folder.join("custom_allreduce_perf.parquet");
        let curve = all_reduce(&path, model, size, config.outside)?;
        Some(Collectives::Curve(curve.times(2.0 * layers)))
    };
    Ok(Tables { dense, attention, per_request, experts: None, collectives, uneven_kv: None })
}

/// # Errors
/// The model has parts that are not in these files, or does not divide.
fn check(model: &ModelShape, size: u32, config: &OperatorsConfig) -> Result<(), ProfileError> {
    let absent = [
        ("model.experts", model.experts.is_some()),
        ("model.mla", model.mla.is_some()),
        ("model.sliding", model.sliding.is_some()),
    ];
    if let Some((path, _)) = absent.into_iter().find(|&(_, has)| has) {
        let accepted = format!(
            "a dense model with full attention, which is all that is read of {}",
            config.path.display()
        );
        return Err(ConfigError::new(path, "given", accepted).into());
    }
    if !model.num_attention_heads.is_multiple_of(size) {
        let accepted = format!("a divisor of the {} query heads", model.num_attention_heads);
        return Err(ConfigError::new("parallel.tensor_parallel_size", size, accepted).into());
    }
    Ok(())
}

/// The matrices of a layer on one of `size` devices, as (columns out, columns in): queries, keys and values; out of
/// attention; gate and up; down.
fn layer_shapes(model: &ModelShape, size: u32) -> [[u32; 2]; 4] {
    let heads = model.num_attention_heads.div_ceil(size);
    let kv_heads = model.num_key_value_heads.div_ceil(size);
    let width = model.intermediate_size.div_ceil(size);
    let (hidden, head_dim) = (model.hidden_size, model.head_dim);
    [
        [(heads + 2 * kv_heads).saturating_mul(head_dim), hidden],
        [hidden, heads.saturating_mul(head_dim)],
        [width.saturating_mul(2), hidden],
        [hidden, width],
    ]
}

/// The name of a type in these files.
fn type_name(stored: DataType) -> &'static str {
    match stored {
        DataType::Fp32 => "float32",
        DataType::Bf16 | DataType::Fp16 => "bfloat16",
        DataType::Fp8 => "fp8",
        DataType::Int8 => "int8_wo",
        DataType::Int4 => "int4_wo",
        DataType::Nvfp4 => "nvfp4",
        DataType::Mxfp4 => "mxfp4",
    }
}

/// How far apart two sizes are, as the logarithm of their ratio.
fn distance(a: f64, b: f64) -> f64 {
    (a.max(1.0) / b.max(1.0)).ln().abs()
}

/// The nearest of `candidates`; of equally near ones the first.
fn nearest<const N: usize>(candidates: &[[f64; N]], to: [f64; N]) -> Option<[f64; N]> {
    let far = |candidate: &[f64; N]| -> f64 {
        candidate.iter().zip(to).map(|(&a, b)| distance(a, b)).sum()
    };
    candidates.iter().copied().min_by(|a, b| far(a).total_cmp(&far(b)))
}

/// A measured matrix product.
struct Product {
    dtype: String,
    m: f64,
    n: f64,
    k: f64,
    ms: f64,
    row: u64,
}

/// Measured matrix products.
struct Gemm<'a> {
    path: &'a Path,
    products: Vec<Product>,
    weight_type: &'static str,
    outside: Outside,
}

impl<'a> Gemm<'a> {
    fn read(path: &'a Path, model: &ModelShape, outside: Outside) -> Result<Self, ProfileError> {
        let mut products = Vec::new();
        parquet::read(path, &["gemm_dtype"], &["m", "n", "k", "latency"], |row| {
            let [m, n, k, ms] = [row.numbers[0], row.numbers[1], row.numbers[2], row.numbers[3]];
            products.push(Product { dtype: row.texts[0].clone(), m, n, k, ms, row: row.row });
        })?;
        Ok(Self { path, products, weight_type: type_name(model.weight_type), outside })
    }
}

impl Gemm<'_> {
    /// Times of the product of m tokens with an `n` by `k` matrix of `dtype`, over m.
    fn curve(&self, dtype: &str, n: u32, k: u32) -> Result<Curve, ProfileError> {
        let wanted = [f64::from(n), f64::from(k)];
        let mut shapes: Vec<[f64; 2]> = (self.products.iter())
            .filter(|product| product.dtype == dtype)
            .map(|product| [product.n, product.k])
            .collect();
        shapes.sort_by(|a, b| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])));
        shapes.dedup();
        let Some([near_n, near_k]) = nearest(&shapes, wanted) else {
            let mut types: Vec<&str> =
                self.products.iter().map(|product| product.dtype.as_str()).collect();
            types.sort_unstable();
            types.dedup();
            let what = format!("holds no products of `{dtype}`, but of {}", types.join(", "));
            return Err(ProfileError::file(self.path, what));
        };
        let is_near = |x: f64, near: f64| (x - near).abs() < 0.5;
        let points: Vec<Point<1>> = (self.products.iter())
            .filter(|p| p.dtype == dtype && is_near(p.n, near_n) && is_near(p.k, near_k))
            .map(|p| Point { at: [p.m], ms: p.ms, line: p.row })
            .collect();
        let curve = Grid::new(self.path, points, self.outside)?;
        let operations = wanted[0] * wanted[1] / (near_n * near_k);
        if is_near(wanted[0], near_n) && is_near(wanted[1], near_k) {
            Ok(curve)
        } else {
            Ok(curve.times(operations).derived())
        }
    }
}

/// A measured attention kernel.
struct Kernel {
    /// Query heads, KV heads, head width.
    heads: [f64; 3],
    requests: f64,
    tokens: f64,
    ms: f64,
    row: u64,
}

/// Attention kernels of one kind of heads. Heads are the query heads, the KV heads and the head width.
struct Kernels {
    all: Vec<Kernel>,
    /// What was measured.
    near: [f64; 3],
    /// What one device has of the model.
    own: [f64; 3],
}

/// The kernels over the model's KV type without a window, of the heads nearest to those on one of `size` devices.
fn kernels(path: &Path, model: &ModelShape, size: u32) -> Result<Kernels, ProfileError> {
    let kv_type = type_name(model.kv_type);
    let mut kernels = Vec::new();
    let numbers = [
        "num_heads",
        "num_key_value_heads",
        "head_dim",
        "window_size",
        "batch_size",
        "isl",
        "step",
        "latency",
    ];
    parquet::read(path, &["attn_dtype", "kv_cache_dtype"], &numbers, |row| {
        let x = row.numbers;
        if row.texts[0] == "bfloat16" && row.texts[1] == kv_type && x[3] == 0.0 {
            kernels.push(Kernel {
                heads: [x[0], x[1], x[2]],
                requests: x[4],
                tokens: x[5] + x[6],
                ms: x[7],
                row: row.row,
            });
        }
    })?;
    let own = [
        model.num_attention_heads.div_ceil(size),
        model.num_key_value_heads.div_ceil(size),
        model.head_dim,
    ]
    .map(f64::from);
    let mut heads: Vec<[f64; 3]> = kernels.iter().map(|kernel| kernel.heads).collect();
    heads.dedup();
    let Some(near) = nearest(&heads, own) else {
        let what = format!("holds no attention over KV of `{kv_type}` without a window");
        return Err(ProfileError::file(path, what));
    };
    kernels.retain(|kernel| kernel.heads.iter().zip(near).all(|(a, b)| (a - b).abs() < 0.5));
    Ok(Kernels { all: kernels, near, own })
}

/// Attention of prompts in one layer. Other heads than the model's count by query heads times head width.
fn context(
    path: &Path,
    model: &ModelShape,
    size: u32,
    outside: Outside,
) -> Result<Grid<2>, ProfileError> {
    let Kernels { all: kernels, near, own } = kernels(path, model, size)?;
    let points: Vec<Point<1>> = (kernels.iter())
        .filter(|kernel| (kernel.requests - 1.0).abs() < 0.5)
        .map(|kernel| Point { at: [kernel.tokens], ms: kernel.ms, line: kernel.row })
        .collect();
    let whole = Grid::new(path, points.clone(), outside)?;
    let grid = behind_past(path, &whole, &points, outside)?;
    let factor = own[0] * own[2] / (near[0] * near[2]);
    Ok(if heads_are(near, own) { grid } else { grid.times(factor).derived() })
}

/// Attention of T new tokens behind P from that of whole prompts; both over the lengths of `points`.
fn behind_past(
    path: &Path,
    whole: &Curve,
    points: &[Point<1>],
    outside: Outside,
) -> Result<Grid<2>, ProfileError> {
    let longest = points.iter().map(|point| point.at[0]).fold(1.0, f64::max);
    let time = |tokens: f64| {
        let beyond = (tokens / longest).max(1.0);
        whole.at([tokens.min(longest)]).ms * beyond * beyond
    };
    let mut rows = Vec::with_capacity(points.len() * (points.len() + 1));
    for new in points {
        let [tokens] = new.at;
        rows.push(Point { at: [tokens, 0.0], ms: new.ms, line: new.line });
        for past in points {
            let [past] = past.at;
            let ms = (time(tokens + past) - time(past)).max(new.ms);
            rows.push(Point { at: [tokens, past], ms, line: new.line });
        }
    }
    Ok(Grid::new(path, rows, outside)?.derived_where(|[_, past]| past > 0.0))
}

/// Attention of decodes in one layer. Other heads than the model's count by KV heads times head width: a
/// kernel over so many KV bytes.
fn generation(
    path: &Path,
    model: &ModelShape,
    size: u32,
    outside: Outside,
) -> Result<Grid<2>, ProfileError> {
    let Kernels { all: kernels, near, own } = kernels(path, model, size)?;
    let factor = near[1] * near[2] / (own[1] * own[2]);
    let points = (kernels.iter())
        .map(|k| Point { at: [k.requests, k.tokens * factor], ms: k.ms, line: k.row })
        .collect();
    let grid = Grid::new(path, points, outside)?;
    Ok(if heads_are(near, own) { grid } else { grid.derived() })
}

fn heads_are(near: [f64; 3], own: [f64; 3]) -> bool {
    near.iter().zip(own).all(|(a, b)| (a - b).abs() < 0.5)
}

/// One all-reduce of the residual stream as a captured graph runs it, over tokens.
fn all_reduce(
    path: &Path,
    model: &ModelShape,
    size: u32,
    outside: Outside,
) -> Result<Curve, ProfileError> {
    let mut points = Vec::new();
    let mut sizes = Vec::new();
    parquet::read(path, &["backend"], &["num_gpus", "message_size", "latency"], |row| {
        let [devices, elements, ms] = [row.numbers[0], row.numbers[1], row.numbers[2]];
        sizes.push(devices);
        if row.texts[0] == "vllm_graph" && (devices - f64::from(size)).abs() < 0.5 {
            let tokens = elements / f64::from(model.hidden_size);
            points.push(Point { at: [tokens], ms, line: row.row });
        }
    })?;
    if points.is_empty() {
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        let there: Vec<String> = sizes.iter().map(ToString::to_string).collect();
        let accepted = format!("1, or a size measured in {}: {}", path.display(), there.join(", "));
        return Err(ConfigError::new("parallel.tensor_parallel_size", size, accepted).into());
    }
    Grid::new(path, points, outside)
}

mod parquet {
    //! Columns of a Parquet file.

    use std::fs::File;
    use std::path::Path;

    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    use ::parquet::record::Field;

    use super::super::super::error::ProfileError;
    use crate::base::hint;

    /// A row.
    pub(super) struct Row<'a> {
        /// From 1.
        pub(super) row: u64,
        pub(super) texts: &'a [String],
        pub(super) numbers: &'a [f64],
    }

    /// Hands the columns that are asked for to `take`, row by row.
    ///
    /// # Errors
    /// The file cannot be read, a column is missing or of another type, or a number is not finite or negative.
    pub(super) fn read(
        path: &Path,
        texts: &[&str],
        numbers: &[&str],
        mut take: impl FnMut(&Row<'_>),
    ) -> Result<(), ProfileError> {
        let wrong = |what: String| ProfileError::file(path, what);
        let file = File::open(path).map_err(|e| wrong(e.to_string()))?;
        let reader = SerializedFileReader::new(file).map_err(|e| wrong(e.to_string()))?;
        let schema = reader.metadata().file_metadata().schema();
        let names: Vec<String> =
            schema.get_fields().iter().map(|field| field.name().to_owned()).collect();
        let place = |column: &&str| {
            names.iter().position(|name| name == column).ok_or_else(|| {
                let hint = hint::nearest(column, names.iter().map(String::as_str))
                    .map_or_else(String::new, |near| format!(" (is it `{near}`?)"));
                wrong(format!("column `{column}` is missing{hint}; there are {}", names.join(", ")))
            })
        };
        let text_places = texts.iter().map(place).collect::<Result<Vec<_>, _>>()?;
        let number_places = numbers.iter().map(place).collect::<Result<Vec<_>, _>>()?;
        let mut text_row = vec![String::new(); texts.len()];
        let mut number_row = vec![0.0; numbers.len()];
        let rows = reader.get_row_iter(None).map_err(|e| wrong(e.to_string()))?;
        for (record, row) in rows.zip(1..) {
            let record = record.map_err(|e| ProfileError::row(path, row, e.to_string()))?;
            let fields: Vec<&Field> = record.get_column_iter().map(|(_, field)| field).collect();
            for (text, (&place, name)) in text_row.iter_mut().zip(text_places.iter().zip(texts)) {
                let Field::Str(found) = fields[place] else {
                    let what = format!("`{name}` is {}, expected a text", fields[place]);
                    return Err(ProfileError::row(path, row, what));
                };
                text.clone_from(found);
            }
            for (slot, (&place, name)) in
                number_row.iter_mut().zip(number_places.iter().zip(numbers))
            {
                let found = match fields[place] {
                    Field::Int(x) => f64::from(*x),
                    Field::Long(x) => *x as f64,
                    Field::Float(x) => f64::from(*x),
                    Field::Double(x) => *x,
                    _ => f64::NAN,
                };
                if !(found.is_finite() && found >= 0.0) {
                    let what = format!(
                        "`{name}` is {}, expected a finite number of at least 0",
                        fields[place]
                    );
                    return Err(ProfileError::row(path, row, what));
                }
                *slot = found;
            }
            take(&Row { row, texts: &text_row, numbers: &number_row });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::evidence::Origin;
    use super::*;
    use crate::model::shape::tests::llama_8b;

    #[test]
    fn a_layer_has_these_matrices() {
        // 32 query and 8 KV heads of 128: (32 + 2 * 8) * 128 = 6,144; twice 14,336 for gate and up.
        let whole = [[6144, 4096], [4096, 4096], [28672, 4096], [4096, 14336]];
        assert_eq!(layer_shapes(&llama_8b(), 1), whole);
        let of_two = [[3072, 4096], [4096, 2048], [14336, 4096], [4096, 7168]];
        assert_eq!(layer_shapes(&llama_8b(), 2), of_two);
    }

    #[test]
    fn a_shape_nobody_measured_goes_by_operations() {
        let product =
            |n, m: f64, row| Product { dtype: "fp8".to_owned(), m, n, k: 100.0, ms: n * m, row };
        let products = vec![product(100.0, 1.0, 1), product(100.0, 3.0, 2), product(900.0, 1.0, 3)];
        let path = Path::new("gemm");
        let gemm = Gemm { path, products, weight_type: "fp8", outside: Outside::Extrapolate };
        let exact = gemm.curve("fp8", 100, 100).unwrap().at([3.0]);
        assert_eq!((exact.ms, exact.origin), (300.0, Origin::Exact));
        // 200 by 50 is nearest to 100 by 100, with as many operations.
        let near = gemm.curve("fp8", 200, 50).unwrap().at([3.0]);
        assert_eq!((near.ms, near.origin), (300.0, Origin::Interpolated));
        let error = gemm.curve("bfloat16", 1, 1).unwrap_err().to_string();
        assert!(error.contains("holds no products of `bfloat16`, but of fp8"), "{error}");
    }

    #[test]
    fn prompts_behind_past_kv_are_what_longer_prompts_cost_above_shorter_ones() {
        // t^2 of whole prompts.
        let points: Vec<Point<1>> = [1.0, 2.0, 4.0]
            .into_iter()
            .zip(1..)
            .map(|(t, line)| Point { at: [t], ms: t * t, line })
            .collect();
        let path = Path::new("attention");
        let whole = Grid::new(path, points.clone(), Outside::Extrapolate).unwrap();
        let grid = behind_past(path, &whole, &points, Outside::Extrapolate).unwrap();
        let fresh = grid.at([2.0, 0.0]);
        assert_eq!((fresh.ms, fresh.origin), (4.0, Origin::Exact));
        // 4^2 - 2^2 within, (2 + 4)^2 - 4^2 beyond the longest.
        let behind = grid.at([2.0, 2.0]);
        assert_eq!((behind.ms, behind.origin), (12.0, Origin::Interpolated));
        assert!((grid.at([2.0, 4.0]).ms - 20.0).abs() < 1e-12);
    }
}
