//! Factors between what passes took and what they were priced at, learnt from observations.
//!
//! Each kind of pass has factors of its own, by the size of the pass: the new tokens of a pass that
//! only prefills, the decoding requests of one that only decodes, the tokens of a mixed one. Sizes
//! fall into bins from one power of two to the next, and a factor is the median of
//! `observed / predicted` in its bin.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::cells::{self, Cells, Format};
use super::error::{LONGEST_PASS_MS, ProfileError};
use super::evidence::PassKind;
use crate::base::config::ConfigError;
use crate::base::hint::nearest;

/// Name and number of the file format.
const SCHEMA: &str = "servesim.corrections/1";

/// Bins of sizes: bin `i` holds sizes from `2^i` up to, not including, `2^(i+1)`; the last holds all
/// that are larger, and the first size 0 too.
const BINS: usize = 32;

/// What is asked of observations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CorrectionOptions {
    /// Observations that make a factor; with fewer of them, a bin takes the factor of its kind, and a
    /// kind has none.
    pub(crate) observations_min: u64,
    /// The smallest factor.
    pub(crate) factor_min: f64,
    /// The largest factor.
    pub(crate) factor_max: f64,
}

impl Default for CorrectionOptions {
    fn default() -> Self {
        Self { observations_min: 8, factor_min: 0.5, factor_max: 2.0 }
    }
}

/// How long one pass took, and what it was priced at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Observation {
    /// The kind of pass.
    pub(crate) kind: PassKind,
    /// New tokens of a pass that only prefills, requests of one that only decodes, all tokens of a
    /// mixed one.
    pub(crate) size: u64,
    /// How long it took, in ms.
    pub(crate) observed_ms: f64,
    /// Its uncorrected price, in ms.
    pub(crate) predicted_ms: f64,
}

/// Factors by kind and size of a pass.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Corrections {
    saved: Saved,
    /// What applies, by kind and bin.
    factors: [[f64; BINS]; PassKind::ALL.len()],
}

/// The file format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    schema: String,
    options: CorrectionOptions,
    prefill_only: SavedKind,
    decode_only: SavedKind,
    mixed: SavedKind,
}

/// What was learnt of a kind of pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedKind {
    /// How many passes were observed.
    observations: u64,
    /// Where no bin has a factor; absent: 1.
    factor: Option<f64>,
    /// Bins with a factor, ascending.
    bins: Vec<SavedBin>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedBin {
    /// The smallest size: a power of two. The bin ends before the next.
    from: u64,
    observations: u64,
    factor: f64,
}

/// The bin of a size.
#[inline]
const fn bin(size: u64) -> usize {
    let bin = (u64::BITS - 1 - (size | 1).leading_zeros()) as usize;
    if bin < BINS { bin } else { BINS - 1 }
}

/// The middle of some numbers, of which there is at least one; the mean of the two middle ones of
/// an even number of them.
pub(super) fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    if numbers.len() % 2 == 1 {
        numbers[middle]
    } else {
        f64::midpoint(numbers[middle - 1], numbers[middle])
    }
}

impl CorrectionOptions {
    /// # Errors
    /// A minimum of no observations, or factors that are none.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        const FACTOR_MAX: f64 = 1000.0;
        if self.observations_min == 0 {
            return Err(ConfigError::new("observations_min", 0, "an integer of at least 1"));
        }
        if !(self.factor_min > 0.0 && self.factor_min <= 1.0) {
            let accepted = "a number above 0, at most 1";
            return Err(ConfigError::new("factor_min", self.factor_min, accepted));
        }
        if !(1.0..=FACTOR_MAX).contains(&self.factor_max) {
            return Err(ConfigError::new("factor_max", self.factor_max, "a number from 1 to 1000"));
        }
        Ok(())
    }
}

impl Corrections {
    /// Factors that fit observed passes. Their order does not matter.
    ///
    /// # Errors
    /// Options out of range, or an observation without two durations above 0.
    pub(crate) fn learn(
        observations: impl Iterator<Item = Observation>,
        options: CorrectionOptions,
    ) -> Result<Self, ConfigError> {
        options.check()?;
        let mut ratios: [Vec<Vec<f64>>; PassKind::ALL.len()] =
            std::array::from_fn(|_| vec![Vec::new(); BINS]);
        for (at, seen) in observations.enumerate() {
            for (field, ms) in
                [("observed_ms", seen.observed_ms), ("predicted_ms", seen.predicted_ms)]
            {
                if !is_duration(ms) {
                    let path = format!("observations[{at}].{field}");
                    return Err(ConfigError::new(&path, ms, DURATION));
                }
            }
            let ratio = seen.observed_ms / seen.predicted_ms;
            ratios[seen.kind as usize][bin(seen.size)].push(ratio);
        }
        let [prefill_only, decode_only, mixed] =
            ratios.map(|bins| SavedKind::learn(bins, &options));
        let schema = SCHEMA.to_owned();
        Ok(Self::of(Saved { schema, options, prefill_only, decode_only, mixed }))
    }

    fn of(saved: Saved) -> Self {
        let kinds = [&saved.prefill_only, &saved.decode_only, &saved.mixed];
        let factors = kinds.map(|kind| {
            let mut factors = [kind.factor.unwrap_or(1.0); BINS];
            for saved in &kind.bins {
                factors[bin(saved.from)] = saved.factor;
            }
            factors
        });
        Self { saved, factors }
    }

    /// What the price of a pass is multiplied by. The size is counted as [`Observation::size`].
    #[inline]
    pub(crate) fn factor(&self, kind: PassKind, size: u64) -> f64 {
        self.factors[kind as usize][bin(size)]
    }

    /// Whether any kind of pass has a factor.
    pub(crate) fn has_factors(&self) -> bool {
        let Saved { prefill_only, decode_only, mixed, .. } = &self.saved;
        [prefill_only, decode_only, mixed].iter().any(|kind| kind.factor.is_some())
    }

    /// The text of a file that [`Self::restore`] reads.
    pub(crate) fn save(&self) -> String {
        let mut text = serde_json::to_string_pretty(&self.saved).expect("plain numbers");
        text.push('\n');
        text
    }

    /// Reads a file of corrections.
    ///
    /// # Errors
    /// It cannot be read, has another layout, or holds factors that are none.
    pub(crate) fn restore(path: &Path) -> Result<Self, ProfileError> {
        let text = cells::text(path)?;
        let mut json = serde_json::Deserializer::from_str(&text);
        let saved: Saved = serde_path_to_error::deserialize(&mut json).map_err(|e| {
            let (place, inner) = (e.path().to_string(), e.inner());
            let line = inner.line().max(1) as u64;
            let what = match place.as_str() {
                "." => format!("malformed corrections: {inner}"),
                place => format!("`{place}`: {inner}"),
            };
            ProfileError::row(path, line, what)
        })?;
        json.end().map_err(|e| ProfileError::file(path, format!("malformed corrections: {e}")))?;
        saved.check().map_err(|e| ProfileError::file(path, e.to_string()))?;
        Ok(Self::of(saved))
    }
}

impl SavedKind {
    fn learn(bins: Vec<Vec<f64>>, options: &CorrectionOptions) -> Self {
        let factor = |ratios: &mut [f64]| {
            (ratios.len() as u64 >= options.observations_min)
                .then(|| median(ratios).clamp(options.factor_min, options.factor_max))
        };
        let mut all = bins.concat();
        let mut kind =
            Self { observations: all.len() as u64, factor: factor(&mut all), bins: Vec::new() };
        for (place, mut ratios) in bins.into_iter().enumerate() {
            if let Some(factor) = factor(&mut ratios) {
                let observations = ratios.len() as u64;
                kind.bins.push(SavedBin { from: 1 << place, observations, factor });
            }
        }
        kind
    }

    fn check(&self, options: &CorrectionOptions) -> Result<(), ConfigError> {
        let accepted = || format!("a number from {} to {}", options.factor_min, options.factor_max);
        let range = options.factor_min..=options.factor_max;
        if let Some(factor) = self.factor
            && !range.contains(&factor)
        {
            return Err(ConfigError::new("factor", factor, accepted()));
        }
        let mut before = 0;
        for (at, saved) in self.bins.iter().enumerate() {
            let path = |field: &str| format!("bins[{at}].{field}");
            if !saved.from.is_power_of_two() || saved.from <= before || saved.from >> BINS != 0 {
                let accepted = format!("ascending powers of two from 1 to 2^{}", BINS - 1);
                return Err(ConfigError::new(&path("from"), saved.from, accepted));
            }
            if !range.contains(&saved.factor) {
                return Err(ConfigError::new(&path("factor"), saved.factor, accepted()));
            }
            before = saved.from;
        }
        Ok(())
    }
}

impl Saved {
    fn check(&self) -> Result<(), ConfigError> {
        if self.schema != SCHEMA {
            let found = format!("{:?}", self.schema);
            return Err(ConfigError::new("schema", found, format!("{SCHEMA:?}")));
        }
        self.options.check().map_err(|e| e.within("options"))?;
        for (kind, saved) in
            PassKind::ALL.into_iter().zip([&self.prefill_only, &self.decode_only, &self.mixed])
        {
            saved.check(&self.options).map_err(|e| e.within(kind.name()))?;
        }
        Ok(())
    }
}

const DURATION: &str = "a number above 0, at most 86400000 (a day)";

fn is_duration(ms: f64) -> bool {
    ms > 0.0 && ms <= LONGEST_PASS_MS
}

/// Columns of a file of observations.
const COLUMNS: [&str; 5] = ["kind", "tokens", "requests", "observed_ms", "predicted_ms"];

impl Observation {
    /// Reads observations from CSV or JSON lines: `kind` (`prefill_only`, `decode_only`, `mixed`),
    /// `tokens` computed by the pass (not needed of one that only decodes), `requests` that decode
    /// (needed of one that only decodes), `observed_ms` and `predicted_ms`. Other columns are an error.
    ///
    /// # Errors
    /// The file cannot be read, or a row is no observation.
    pub(crate) fn read(path: &Path) -> Result<Vec<Self>, ProfileError> {
        let format = Format::of(path)?;
        if format == Format::Npz {
            return Err(ProfileError::file(path, "observations are rows, expected .csv or .jsonl"));
        }
        let cells = Cells::read(path, format)?;
        for name in &cells.columns {
            if !COLUMNS.contains(&name.as_str()) {
                let hint = nearest(name, COLUMNS).map(|near| format!(", did you mean `{near}`?"));
                let what = format!("unknown column `{name}`{}", hint.unwrap_or_default());
                return Err(ProfileError::file(path, what));
            }
        }
        let places = COLUMNS.map(|name| cells.columns.iter().position(|column| column == name));
        let rows = cells.rows.iter().map(|row| {
            let texts = places.map(|place| place.map_or("", |at| row.cell(at)));
            Self::of(texts).map_err(|what| ProfileError::row(path, row.line, what))
        });
        rows.collect()
    }

    fn of([kind, tokens, requests, observed, predicted]: [&str; 5]) -> Result<Self, String> {
        let Some(kind) = PassKind::ALL.into_iter().find(|known| known.name() == kind) else {
            let names = PassKind::ALL.map(PassKind::name);
            let hint = nearest(kind, names).map(|near| format!(", did you mean `{near}`?"));
            return Err(format!(
                "`kind` is {kind:?}, expected prefill_only, decode_only or mixed{}",
                hint.unwrap_or_default()
            ));
        };
        let (field, text) = match kind {
            PassKind::Decode => ("requests", requests),
            PassKind::Prefill | PassKind::Mixed => ("tokens", tokens),
        };
        let size = match text.parse::<u64>() {
            Ok(size) if size > 0 => size,
            _ => return Err(format!("`{field}` is {text:?}, expected an integer of at least 1")),
        };
        let duration = |field: &str, text: &str| match text.parse::<f64>() {
            Ok(ms) if is_duration(ms) => Ok(ms),
            _ => Err(format!("`{field}` is {text:?}, expected {DURATION}")),
        };
        Ok(Self {
            kind,
            size,
            observed_ms: duration("observed_ms", observed)?,
            predicted_ms: duration("predicted_ms", predicted)?,
        })
    }
}

#[cfg(test)]
impl Corrections {
    /// The same factor for passes of a kind, whatever their size.
    pub(crate) fn constant(prefill_only: f64, decode_only: f64, mixed: f64) -> Self {
        let kind = |factor| SavedKind { factor: Some(factor), ..SavedKind::default() };
        Self::of(Saved {
            schema: SCHEMA.to_owned(),
            options: CorrectionOptions::default(),
            prefill_only: kind(prefill_only),
            decode_only: kind(decode_only),
            mixed: kind(mixed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(kind: PassKind, size: u64, ratio: f64) -> Observation {
        Observation { kind, size, observed_ms: 8.0 * ratio, predicted_ms: 8.0 }
    }

    fn options(observations_min: u64) -> CorrectionOptions {
        CorrectionOptions { observations_min, ..CorrectionOptions::default() }
    }

    fn assert_factor(corrections: &Corrections, kind: PassKind, size: u64, expected: f64) {
        let found = corrections.factor(kind, size);
        assert!((found - expected).abs() < 1e-12, "{kind:?} of {size}: {found}, not {expected}");
    }

    /// Prefill of 4 to 7 tokens: 1.25 and 1.75, median 1.5. Of 8 to 15: only one, so the kind's
    /// median of 1, 1.25 and 1.75. Decode: one observation in all, so none. Mixed: 4, clamped to 2.
    fn learnt() -> Corrections {
        use PassKind::{Decode, Mixed, Prefill};
        let observations = [
            seen(Prefill, 7, 1.75),
            seen(Mixed, 100, 4.0),
            seen(Prefill, 8, 1.0),
            seen(Decode, 1, 1.5),
            seen(Prefill, 4, 1.25),
            seen(Mixed, 64, 4.0),
        ];
        let corrections = Corrections::learn(observations.into_iter(), options(2)).unwrap();
        let reversed = Corrections::learn(observations.into_iter().rev(), options(2)).unwrap();
        assert_eq!(corrections, reversed);
        corrections
    }

    #[test]
    fn a_factor_is_the_median_of_its_bin() {
        let corrections = learnt();
        for size in [4, 5, 7] {
            assert_factor(&corrections, PassKind::Prefill, size, 1.5);
        }
        for size in [0, 1, 3, 8, 1 << 20, u64::MAX] {
            assert_factor(&corrections, PassKind::Prefill, size, 1.25);
        }
        assert_factor(&corrections, PassKind::Decode, 1, 1.0);
        assert_factor(&corrections, PassKind::Mixed, 127, 2.0);
    }

    #[test]
    fn what_is_saved_is_restored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("corrections.json");
        let corrections = learnt();
        std::fs::write(&path, corrections.save()).unwrap();
        assert_eq!(Corrections::restore(&path).unwrap(), corrections);
        assert!(corrections.save().contains("\"servesim.corrections/1\""));
        assert_eq!(corrections.save(), Corrections::restore(&path).unwrap().save());
    }

    #[test]
    fn a_file_that_is_none_is_refused_by_field() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.json");
        let good = learnt().save();
        let refused = |from: &str, to: &str| {
            assert!(good.contains(from), "{good}");
            std::fs::write(&path, good.replacen(from, to, 1)).unwrap();
            Corrections::restore(&path).unwrap_err().to_string()
        };
        for (from, to, expected) in [
            ("corrections/1", "corrections/2", "`schema` is \"servesim.corrections/2\", expected"),
            ("\"from\": 4", "\"from\": 5", "`prefill_only.bins[0].from` is 5, expected ascending"),
            ("1.5", "-1.5", "`prefill_only.bins[0].factor` is -1.5, expected a number from 0.5 to"),
            ("1.25", "3.0", "`prefill_only.factor` is 3, expected a number from 0.5 to 2"),
            ("\"factor_min\": 0.5", "\"factor_min\": 0", "`options.factor_min` is 0, expected"),
            ("\"factor_min\"", "\"factor\"", "`options.factor`: unknown field `factor`"),
            ("\"mixed\"", "\"mix\"", "`mix`: unknown field `mix`, expected one of"),
        ] {
            let error = refused(from, to);
            assert!(error.contains("c.json:") && error.contains(expected), "{error}");
        }
        std::fs::write(&path, good.clone() + "{}").unwrap();
        let error = Corrections::restore(&path).unwrap_err().to_string();
        assert!(error.contains("trailing"), "{error}");
    }

    #[test]
    fn observations_come_from_csv_and_json_lines() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            Observation::read(&path)
        };
        let csv = "kind,tokens,requests,observed_ms,predicted_ms\n\
                   prefill_only,7,,14,8\ndecode_only,,3,12,8\nmixed,64,2,32,8\n";
        let json = "{\"kind\": \"prefill_only\", \"tokens\": 7, \"observed_ms\": 14.0, \"predicted_ms\": 8}\n\
                    {\"kind\": \"decode_only\", \"requests\": 3, \"observed_ms\": 12, \"predicted_ms\": 8}\n\
                    {\"kind\": \"mixed\", \"tokens\": 64, \"observed_ms\": 32, \"predicted_ms\": 8}\n";
        let expected = vec![
            seen(PassKind::Prefill, 7, 1.75),
            seen(PassKind::Decode, 3, 1.5),
            seen(PassKind::Mixed, 64, 4.0),
        ];
        assert_eq!(write("o.csv", csv).unwrap(), expected);
        assert_eq!(write("o.jsonl", json).unwrap(), expected);
        for (from, to, expected) in [
            ("kind,tokens", "kind,token", "o.csv: unknown column `token`, did you mean `tokens`?"),
            (
                "prefill_only",
                "prefil_only",
                "o.csv:2: `kind` is \"prefil_only\", expected prefill_only",
            ),
            (",,3,", ",,0,", "o.csv:3: `requests` is \"0\", expected an integer of at least 1"),
            (",64,2", ",,2", "o.csv:4: `tokens` is \"\", expected an integer"),
            ("12,8", "12,0", "o.csv:3: `predicted_ms` is \"0\", expected a number above 0"),
            ("14,8", "nan,8", "o.csv:2: `observed_ms` is \"nan\", expected a number above 0"),
        ] {
            let error = write("o.csv", &csv.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_learnt_from_is_refused() {
        let learn = |seen, options| Corrections::learn(std::iter::once(seen), options);
        let bad = Observation { predicted_ms: 0.0, ..seen(PassKind::Mixed, 1, 1.0) };
        assert_eq!(learn(bad, options(1)).unwrap_err().path, "observations[0].predicted_ms");
        let good = seen(PassKind::Mixed, 1, 1.0);
        assert_eq!(learn(good, options(0)).unwrap_err().path, "observations_min");
        let narrow = CorrectionOptions { factor_max: 0.9, ..CorrectionOptions::default() };
        assert_eq!(learn(good, narrow).unwrap_err().path, "factor_max");
    }
}
