//! Prices from measured forward passes.
//!
//! A table holds prefill passes by requests, tokens and past tokens, decode passes by the tokens
//! each request computes, requests and KV tokens, and mixed passes. Between measurements prices are
//! interpolated (see [`grid`]), a mixed pass is put together as one forward:
//!
//! ```text
//! prefill(P) + max(0, decode(D) - decode_baseline(D)) + overhead
//! ```
//!
//! where the baseline is what the same measured batches cost with the least KV that they were
//! measured with. Passes that verify drafts are measured as a whole, so they have no baseline.

pub(crate) mod config;
mod grid;
mod npz;
mod overhead;
mod rows;

use std::path::{Path, PathBuf};

use config::{Outside, TableConfig};
use grid::{AXES, Grid, Query, Sample, Surface};
use npz::Profile;
use overhead::{Overhead, Residual};
use rows::{Measured, Passes};

use super::cells::{Cells, Format};
use super::error::{ProfileError, TimingError};
use super::evidence::{Evidence, Origin, Part};
use super::work::{DecodeWork, PrefillWork};
use super::{MixedPrice, TimingProvider};
use crate::base::config::ConfigError;

/// Prices from measured forward passes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    path: PathBuf,
    outside: Outside,
    /// By requests, past tokens and new tokens.
    prefill: Option<Grid>,
    /// By query width, batch and KV tokens.
    decode: Option<Grid>,
    batch: BatchAxis,
    overhead: Overhead,
}

/// What tells the decode curves of one query width apart.
#[derive(Clone, Copy, Debug, PartialEq)]
enum BatchAxis {
    /// How many requests decode.
    Requests,
    /// Their mean context length: KV tokens over requests. The shortest that was measured.
    Context { shortest: f64 },
}

const PREFILL_AXES: [&str; AXES] = ["prefill_requests", "prefill_past_tokens", "prefill_tokens"];
const DECODE_AXES: [&str; AXES] =
    ["query_tokens_per_request", "decode_requests", "decode_kv_tokens"];
const CONTEXT_AXES: [&str; AXES] =
    ["query_tokens_per_request", "decode_context_length", "decode_kv_tokens"];

impl Table {
    /// The provider of what a configuration names.
    ///
    /// # Errors
    /// The file cannot be read, is no timing table, or lacks what the configuration selects.
    pub(crate) fn open(config: &TableConfig) -> Result<Self, ProfileError> {
        match Format::of(&config.path)? {
            Format::Npz => {
                if let Some(name) = config.select.keys().next() {
                    return Err(ProfileError::Field(ConfigError::new(
                        &format!("timing.table.select.{name}"),
                        "there",
                        "nothing: an NPZ profile has no such columns",
                    )));
                }
                let profile = Profile::read(&config.path)?;
                let decode = Grid::new(&profile.decode);
                let shortest = decode.as_ref().map_or(0.0, |grid| grid.extent(1).0);
                Ok(Self {
                    path: config.path.clone(),
                    outside: config.outside,
                    prefill: Grid::new(&profile.prefill),
                    decode,
                    batch: BatchAxis::Context { shortest },
                    overhead: constant(config.mixed_overhead_ms.unwrap_or(0.0)),
                })
            }
            format => Self::of(&config.path, &Cells::read(&config.path, format)?, config),
        }
    }

    fn of(path: &Path, cells: &Cells, config: &TableConfig) -> Result<Self, ProfileError> {
        let passes = Passes::of(path, cells, config)?;
        let points = |rows: &[Measured], at: fn(&Measured) -> Query| -> Vec<(Query, f64)> {
            rows.iter().map(|pass| (at(pass), pass.ms)).collect()
        };
        let mut table = Self {
            path: path.to_owned(),
            outside: config.outside,
            prefill: Grid::new(&points(&passes.prefill, Measured::prefill_at)),
            decode: Grid::new(&points(&passes.decode, Measured::decode_at)),
            batch: BatchAxis::Requests,
            overhead: constant(config.mixed_overhead_ms.unwrap_or(0.0)),
        };
        if table.prefill.is_none() && table.decode.is_none() && passes.mixed.is_empty() {
            let what = "has no rows, expected measured passes of the kinds prefill and decode";
            return Err(ProfileError::file(path, what));
        }
        if let Some(pass) = passes.mixed.first() {
            let (Some(prefill), Some(decode)) = (&table.prefill, &table.decode) else {
                let missing = if table.prefill.is_none() { "prefill" } else { "decode" };
                let what = format!(
                    "a mixed pass in a table without {missing} rows, expected rows of that kind too: \
                     mixed rows only say what such a pass costs above its parts"
                );
                return Err(ProfileError::row(path, pass.line, what));
            };
            if config.mixed_overhead_ms.is_none() {
                let residuals: Vec<_> =
                    passes.mixed.iter().map(|pass| residual(pass, prefill, decode)).collect();
                table.overhead = Overhead::fit(&residuals);
            }
        }
        Ok(table)
    }

    #[inline]
    fn prefill_price(
        &self,
        work: &PrefillWork,
        evidence: &mut Evidence,
    ) -> Result<f64, TimingError> {
        let Some(grid) = &self.prefill else { return Err(self.unmeasured("prefill")) };
        let at = [f64::from(work.requests), work.past_tokens as f64, work.new_tokens as f64];
        let found = self.find(grid, at, &PREFILL_AXES)?;
        found.note(Part::Prefill, &PREFILL_AXES, evidence);
        Ok(found.sample.ms)
    }

    #[inline]
    fn find_decode(&self, work: &DecodeWork) -> Result<Found, TimingError> {
        let Some(grid) = &self.decode else { return Err(self.unmeasured("decode")) };
        let (requests, kv) = (f64::from(work.requests), work.kv_tokens as f64);
        let width = work.query_tokens as f64 / requests;
        match self.batch {
            BatchAxis::Requests => self.find(grid, [width, requests, kv], &DECODE_AXES),
            BatchAxis::Context { .. } => self.find(grid, [width, kv / requests, kv], &CONTEXT_AXES),
        }
    }

    fn decode_axes(&self) -> &'static [&'static str; AXES] {
        match self.batch {
            BatchAxis::Requests => &DECODE_AXES,
            BatchAxis::Context { .. } => &CONTEXT_AXES,
        }
    }

    /// What the batch of a decode pass costs with the least KV that it was measured with.
    #[inline]
    fn baseline(&self, work: &DecodeWork, found: &Found, evidence: &mut Evidence) -> f64 {
        let (ms, origin) = match (self.batch, &self.decode) {
            (BatchAxis::Context { shortest }, Some(grid)) => {
                // The same requests, at the shortest context; within the KV measured with it.
                let wanted = shortest * f64::from(work.requests);
                let (low, high) = grid.sample(&[1.0, shortest, wanted]).ends[AXES - 1];
                let kv = wanted.max(low).min(high);
                let sample = grid.sample(&[1.0, shortest, kv]);
                let origin = match (sample.is_exact(), kv.total_cmp(&wanted).is_eq()) {
                    (_, false) => Origin::Clamped,
                    (true, _) => Origin::Exact,
                    (false, _) => Origin::Interpolated,
                };
                (sample.ms, origin)
            }
            _ => (found.sample.floor_ms, found.floor_origin(self.outside)),
        };
        evidence.note(Part::DecodeBaseline, origin, ms);
        ms
    }

    /// The price at a place, as the configuration wants it outside of the measurements.
    #[inline]
    fn find(&self, grid: &Grid, at: Query, axes: &[&str; AXES]) -> Result<Found, TimingError> {
        let sample = grid.sample(&at);
        let is_inside = (0..AXES).all(|axis| sample.stretch(&at, axis) <= 1.0);
        if is_inside {
            let origin = if sample.is_exact() { Origin::Exact } else { Origin::Interpolated };
            return Ok(Found { sample, at, origin, stretch: 1.0, outside: [false; AXES] });
        }
        self.find_outside(grid, at, sample, axes)
    }

    #[cold]
    fn find_outside(
        &self,
        grid: &Grid,
        at: Query,
        sample: Sample,
        axes: &[&str; AXES],
    ) -> Result<Found, TimingError> {
        let stretches: [f64; AXES] = std::array::from_fn(|axis| sample.stretch(&at, axis));
        let outside = stretches.map(|stretch| stretch > 1.0);
        let stretch = stretches.into_iter().fold(1.0, f64::max);
        let found = |sample, origin| Found { sample, at, origin, stretch, outside };
        match self.outside {
            Outside::Refuse => {
                let ranges = (0..AXES).map(|axis| {
                    let (low, high) = sample.ends[axis];
                    format!("{} {low} to {high}", axes[axis])
                });
                Err(TimingError::Outside {
                    path: self.path.clone(),
                    query: place(&at, axes),
                    domain: ranges.collect::<Vec<_>>().join(", "),
                })
            }
            Outside::Clamp => {
                // Outer axes first: the ends of an inner one depend on them.
                let mut nearest = at;
                let mut sample = sample;
                for axis in 0..AXES {
                    let (low, high) = sample.ends[axis];
                    nearest[axis] = nearest[axis].max(low).min(high);
                    sample = grid.sample(&nearest);
                }
                Ok(found(sample, Origin::Clamped))
            }
            Outside::Extrapolate => {
                // An axis with one value has no trend: there the nearest is all there is.
                let has_trend = (0..AXES)
                    .any(|axis| outside[axis] && sample.ends[axis].0 < sample.ends[axis].1);
                let origin = if has_trend { Origin::Extrapolated } else { Origin::Clamped };
                Ok(found(sample, origin))
            }
        }
    }

    #[cold]
    fn unmeasured(&self, kind: &'static str) -> TimingError {
        TimingError::Unmeasured { path: self.path.clone(), kind }
    }
}

/// A price and how it was found.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Found {
    sample: Sample,
    /// What was asked.
    at: Query,
    origin: Origin,
    /// How far outside, as a factor; 1 inside.
    stretch: f64,
    /// Along which axes.
    outside: [bool; AXES],
}

impl Found {
    #[inline]
    fn note(&self, part: Part, axes: &[&str; AXES], evidence: &mut Evidence) {
        if self.stretch > 1.0 {
            let at = || place(&self.at.map(rough), axes);
            evidence.note_outside(part, self.origin, self.sample.ms, self.stretch, at);
        } else {
            evidence.note(part, self.origin, self.sample.ms);
        }
    }

    /// How the price with the least KV was found: it rests on the outer axes alone.
    fn floor_origin(&self, outside: Outside) -> Origin {
        match (self.outside[0] || self.outside[1], outside) {
            (true, Outside::Extrapolate) => self.origin,
            (true, _) => Origin::Clamped,
            (false, _) if self.sample.on_curve => Origin::Exact,
            (false, _) => Origin::Interpolated,
        }
    }
}

/// A place as `name=value` pairs.
fn place(at: &Query, axes: &[&str; AXES]) -> String {
    let pairs = axes.iter().zip(at).map(|(name, value)| format!("{name}={value}"));
    pairs.collect::<Vec<_>>().join(" ")
}

/// A number by its first two digits, so that neighbours are one place.
fn rough(number: f64) -> f64 {
    if number < 100.0 {
        return number;
    }
    let unit = 10_f64.powi(number.log10().floor() as i32 - 1);
    (number / unit).round() * unit
}

const fn constant(constant_ms: f64) -> Overhead {
    Overhead { constant_ms, decode_request_ms: 0.0, prefill_token_ms: 0.0 }
}

/// What a measured mixed pass took above its parts.
fn residual(pass: &Measured, prefill: &Grid, decode: &Grid) -> Residual {
    let decode = decode.sample(&pass.decode_at());
    let parts_ms = prefill.sample(&pass.prefill_at()).ms + (decode.ms - decode.floor_ms).max(0.0);
    Residual {
        decode_requests: pass.decode_requests,
        prefill_tokens: pass.prefill_tokens,
        ms: pass.ms - parts_ms,
    }
}

/// Whether requests of a pass compute more than a token each.
fn verifies_drafts(work: &DecodeWork) -> bool {
    work.query_tokens != u64::from(work.requests)
}

impl TimingProvider for Table {
    fn prefill(&self, work: &PrefillWork, evidence: &mut Evidence) -> Result<f64, TimingError> {
        self.prefill_price(work, evidence)
    }

    fn decode(&self, work: &DecodeWork, evidence: &mut Evidence) -> Result<f64, TimingError> {
        let found = self.find_decode(work)?;
        found.note(Part::Decode, self.decode_axes(), evidence);
        Ok(found.sample.ms)
    }

    fn decode_baseline(
        &self,
        work: &DecodeWork,
        evidence: &mut Evidence,
    ) -> Result<Option<f64>, TimingError> {
        if verifies_drafts(work) {
            return Ok(None);
        }
        let found = self.find_decode(work)?;
        Ok(Some(self.baseline(work, &found, evidence)))
    }

    fn mixed(
        &self,
        prefill: &PrefillWork,
        decode: &DecodeWork,
        evidence: &mut Evidence,
    ) -> Result<Option<MixedPrice>, TimingError> {
        if verifies_drafts(decode) {
            return Ok(None);
        }
        let prefill_ms = self.prefill_price(prefill, evidence)?;
        let found = self.find_decode(decode)?;
        found.note(Part::Decode, self.decode_axes(), evidence);
        let baseline_ms = self.baseline(decode, &found, evidence);
        let share_ms = (found.sample.ms - baseline_ms).max(0.0);
        let overhead_ms = self.overhead.ms(f64::from(decode.requests), prefill.new_tokens as f64);
        evidence.note(Part::MixedOverhead, Origin::Analytic, overhead_ms);
        Ok(Some(MixedPrice { prefill_ms, decode_ms: share_ms + overhead_ms }))
    }
}

#[cfg(test)]
mod tests;
