//! Profiles as `NumPy` archives, in the layout of NVIDIA Dynamo's profiler and mocker.
//!
//! Prefill is a curve over the prompt of one request, decode a grid over all KV tokens of the batch
//! and the context length of a request, so that the batch is the one over the other.

use std::io::{Cursor, Read};
use std::path::Path;

use npyz::{DType, NpyFile, Order, TypeChar};
use zip::ZipArchive;

use super::super::cells;
use super::super::error::{LONGEST_PASS_MS, ProfileError};
use super::grid::Query;
use crate::base::hint::nearest;

/// Measured points of an archive, ascending and different.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Profile {
    /// By requests (1), past tokens (0) and new tokens.
    pub(super) prefill: Vec<(Query, f64)>,
    /// By query width (1), context length and KV tokens.
    pub(super) decode: Vec<(Query, f64)>,
}

const PREFILL: [&str; 2] = ["prefill_isl", "prefill_ttft_ms"];
const DECODE: [&str; 3] = ["decode_active_kv_tokens", "decode_context_length", "decode_itl"];

/// The most numbers an array may have.
const NUMBERS_MAX: u64 = 1 << 24;

struct Archive<'a> {
    path: &'a Path,
    zip: ZipArchive<Cursor<Vec<u8>>>,
    names: Vec<String>,
}

/// An array: its numbers, the last axis changing fastest.
struct Array {
    name: &'static str,
    shape: Vec<u64>,
    numbers: Vec<f64>,
}

impl Profile {
    /// Reads an archive.
    ///
    /// # Errors
    /// It is no such archive, an array is missing, has another shape or holds what is no figure.
    pub(super) fn read(path: &Path) -> Result<Self, ProfileError> {
        let mut archive = Archive::open(path)?;
        let mut profile = Self::default();
        if archive.has_any(&PREFILL) {
            let [tokens, ms] = PREFILL.map(|name| archive.array(name));
            let (tokens, ms) = (tokens?, ms?);
            let tokens_at = ascending(path, &tokens)?;
            expect_shape(path, &ms, &[tokens_at.len()])?;
            for (&at, &ms) in tokens_at.iter().zip(&ms.numbers) {
                check_ms(path, PREFILL[1], at, ms)?;
                profile.prefill.push(([1.0, 0.0, at], ms));
            }
        }
        if archive.has_any(&DECODE) {
            let [kv, context, ms] = DECODE.map(|name| archive.array(name));
            let (kv, context, ms) = (kv?, context?, ms?);
            let (kv_at, context_at) = (ascending(path, &kv)?, ascending(path, &context)?);
            expect_shape(path, &ms, &[kv_at.len(), context_at.len()])?;
            for (column, &context) in context_at.iter().enumerate() {
                for (row, &kv) in kv_at.iter().enumerate() {
                    let ms = ms.numbers[row * context_at.len() + column];
                    check_ms(path, DECODE[2], kv, ms)?;
                    profile.decode.push(([1.0, context, kv], ms));
                }
            }
        }
        if profile == Self::default() {
            let hint = archive
                .names
                .iter()
                .find_map(|name| nearest(name, PREFILL.into_iter().chain(DECODE)))
                .map_or(String::new(), |name| format!(", did you mean `{name}`?"));
            let what = format!(
                "holds no arrays `{}` nor `{}`{hint}",
                PREFILL.join("`, `"),
                DECODE.join("`, `")
            );
            return Err(ProfileError::file(path, what));
        }
        Ok(profile)
    }
}

impl<'a> Archive<'a> {
    fn open(path: &'a Path) -> Result<Self, ProfileError> {
        let zip = ZipArchive::new(Cursor::new(cells::bytes(path)?))
            .map_err(|e| ProfileError::file(path, format!("cannot be read as NPZ: {e}")))?;
        let names = zip.file_names().filter_map(Result::ok);
        let names = names.filter_map(|name| name.strip_suffix(".npy").map(str::to_owned)).collect();
        Ok(Self { path, zip, names })
    }

    fn has_any(&self, names: &[&str]) -> bool {
        names.iter().any(|wanted| self.names.iter().any(|name| name == wanted))
    }

    fn array(&mut self, name: &'static str) -> Result<Array, ProfileError> {
        if !self.has_any(&[name]) {
            let names = self.names.iter().map(String::as_str);
            let hint = nearest(name, names).map(|near| format!(", did you mean `{near}`?"));
            let what = format!("has no array `{name}`{}", hint.unwrap_or_default());
            return Err(ProfileError::file(self.path, what));
        }
        let path = self.path;
        let failed = |e: &dyn std::fmt::Display| {
            ProfileError::file(path, format!("array `{name}` cannot be read: {e}"))
        };
        let member = self.zip.by_name(&format!("{name}.npy")).map_err(|e| failed(&e))?;
        let npy = NpyFile::new(member).map_err(|e| failed(&e))?;
        let shape = npy.shape().to_vec();
        let count = shape.iter().try_fold(1_u64, |product, &size| product.checked_mul(size));
        if count.is_none_or(|count| count > NUMBERS_MAX) {
            return Err(failed(&format!("more than {NUMBERS_MAX} numbers")));
        }
        let is_column_major = npy.order() == Order::Fortran;
        let mut numbers = numbers(npy).map_err(|e| failed(&e))?;
        if let (true, &[rows, columns]) = (is_column_major, shape.as_slice()) {
            let (rows, columns) = (rows as usize, columns as usize);
            numbers =
                (0..rows * columns).map(|at| numbers[at % columns * rows + at / columns]).collect();
        }
        Ok(Array { name, shape, numbers })
    }
}

/// The numbers of an array, of whatever type they are.
fn numbers<R: Read>(npy: NpyFile<R>) -> std::io::Result<Vec<f64>> {
    let plain = match npy.dtype() {
        DType::Plain(plain) => plain,
        other => return Err(std::io::Error::other(format!("expected numbers, not {other:?}"))),
    };
    match (plain.type_char(), plain.size_field()) {
        (TypeChar::Float, 8) => npy.into_vec::<f64>(),
        (TypeChar::Float, 4) => Ok(npy.into_vec::<f32>()?.into_iter().map(f64::from).collect()),
        (TypeChar::Int, 8) => Ok(npy.into_vec::<i64>()?.into_iter().map(|n| n as f64).collect()),
        (TypeChar::Int, 4) => Ok(npy.into_vec::<i32>()?.into_iter().map(f64::from).collect()),
        (TypeChar::Uint, 8) => Ok(npy.into_vec::<u64>()?.into_iter().map(|n| n as f64).collect()),
        (TypeChar::Uint, 4) => Ok(npy.into_vec::<u32>()?.into_iter().map(f64::from).collect()),
        _ => Err(std::io::Error::other(format!(
            "its type is {plain}, expected floats or integers of 32 or 64 bits"
        ))),
    }
}

/// The numbers of an axis: ascending, different, none negative, at least one.
fn ascending<'a>(path: &Path, axis: &'a Array) -> Result<&'a [f64], ProfileError> {
    const COUNT_MAX: f64 = 1e15;
    expect_shape(path, axis, &[axis.numbers.len().max(1)])?;
    let numbers = &axis.numbers;
    let is_axis = numbers.iter().all(|at| (0.0..=COUNT_MAX).contains(at))
        && numbers.windows(2).all(|pair| pair[0] < pair[1]);
    if is_axis {
        return Ok(numbers);
    }
    let what =
        format!("array `{}` must be ascending numbers from 0 to 1e15, all different", axis.name);
    Err(ProfileError::file(path, what))
}

fn expect_shape(path: &Path, array: &Array, expected: &[usize]) -> Result<(), ProfileError> {
    if array.shape.iter().eq(expected.iter().map(|&size| size as u64).collect::<Vec<_>>().iter()) {
        return Ok(());
    }
    let (name, shape) = (array.name, &array.shape);
    let what = format!("array `{name}` has the shape {shape:?}, expected {expected:?}");
    Err(ProfileError::file(path, what))
}

/// Whether a latency is one. No tokens may take no time.
fn check_ms(path: &Path, name: &str, tokens: f64, ms: f64) -> Result<(), ProfileError> {
    if ms <= LONGEST_PASS_MS && (ms > 0.0 || ms >= 0.0 && tokens < 1.0) {
        return Ok(());
    }
    let what =
        format!("array `{name}` holds {ms}, expected numbers above 0, at most 86400000 (a day)");
    Err(ProfileError::file(path, what))
}
