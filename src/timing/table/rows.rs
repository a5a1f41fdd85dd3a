//! Measured passes: the rows of a table, told apart, selected and checked.

use std::collections::BTreeSet;
use std::path::Path;

use super::super::cells::{CellRow, Cells};
use super::super::corrections::median;
use super::super::error::{LONGEST_PASS_MS, ProfileError};
use super::config::{Duplicates, TableConfig};
use super::grid::Query;
use crate::base::config::ConfigError;
use crate::base::hint::nearest;

/// One measured pass: totals over its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Measured {
    /// Where it stands in the file.
    pub(super) line: u64,
    /// Requests with prefill work.
    pub(super) prefill_requests: f64,
    /// Tokens they compute.
    pub(super) prefill_tokens: f64,
    /// Tokens whose KV they find.
    pub(super) prefill_past_tokens: f64,
    /// Requests that decode.
    pub(super) decode_requests: f64,
    /// Tokens whose KV they find.
    pub(super) decode_kv_tokens: f64,
    /// Tokens each of them computes.
    pub(super) query_width: f64,
    /// How long it took.
    pub(super) ms: f64,
    /// Runs that its length is the mean of.
    pub(super) samples: f64,
}

impl Measured {
    /// Its place among prefill passes.
    pub(super) fn prefill_at(&self) -> Query {
        [self.prefill_requests, self.prefill_past_tokens, self.prefill_tokens]
    }

    /// Its place among decode passes.
    pub(super) fn decode_at(&self) -> Query {
        [self.query_width, self.decode_requests, self.decode_kv_tokens]
    }

    fn coordinates(&self) -> [Query; 2] {
        [self.prefill_at(), self.decode_at()]
    }
}

/// Measured passes by kind, each in the order of their coordinates, which differ.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Passes {
    /// Prefill work only.
    pub(super) prefill: Vec<Measured>,
    /// Decode work only.
    pub(super) decode: Vec<Measured>,
    /// Both.
    pub(super) mixed: Vec<Measured>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Prefill,
    Decode,
    Mixed,
}

/// Columns of figures, in the order of [`Figures`].
const FIGURES: [&str; 8] = [
    "prefill_requests",
    "prefill_tokens",
    "prefill_past_tokens",
    "decode_requests",
    "decode_kv_tokens",
    "query_tokens_per_request",
    "samples",
    "latency_ms",
];

/// Columns of figures where a row has one batch, of either kind.
const WHOLE_FORWARD: [&str; 6] = [
    "batch_size",
    "total_prefill_tokens",
    "total_kv_read_tokens",
    "query_tokens_per_request",
    "samples",
    "latency_ms",
];

/// Columns that say what was measured: one value each, or the scenario selects one.
pub(super) const IDENTITY: [&str; 26] = [
    "model",
    "gpu",
    "hardware",
    "accelerator",
    "device",
    "system",
    "node",
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
    "expert_parallel",
    "tp",
    "pp",
    "dp",
    "ep",
    "engine",
    "engine_version",
    "framework",
    "backend",
    "version",
    "dtype",
    "weight_type",
    "activation_type",
    "kv_type",
    "quantization",
    "source",
];

/// Columns that say something about a row and tell nothing apart.
const REMARKS: [&str; 5] = ["notes", "note", "comment", "date", "run"];

/// How such columns of machine-made tables end.
const REMARK_ENDS: [&str; 4] = ["_sha256", "_digest", "_id", "_revision"];

/// Where the columns of a table are.
struct Layout {
    kind: usize,
    /// Each row has one batch, of the kind that it says.
    whole_forward: bool,
    /// Places of [`FIGURES`], or of [`WHOLE_FORWARD`].
    figures: Vec<Option<usize>>,
    identity: Vec<usize>,
}

impl Layout {
    fn of(path: &Path, cells: &Cells, config: &TableConfig) -> Result<Self, ProfileError> {
        let place = |name: &str| cells.columns.iter().position(|column| column == name);
        let (kind, whole_forward) = match (place("kind"), place("workload_kind")) {
            (Some(kind), _) => (kind, false),
            (None, Some(kind)) => (kind, true),
            (None, None) => {
                let names = cells.columns.iter().map(String::as_str);
                return Err(ProfileError::file(
                    path,
                    format!(
                        "has no column `kind` (prefill, decode or mixed){}",
                        hint(nearest("kind", names))
                    ),
                ));
            }
        };
        let names: &[&str] = if whole_forward { &WHOLE_FORWARD } else { &FIGURES };
        let figures: Vec<_> = names.iter().map(|name| place(name)).collect();
        let latency = names.len() - 1;
        if figures[latency].is_none() {
            let columns = cells.columns.iter().map(String::as_str);
            let hint = hint(nearest("latency_ms", columns));
            return Err(ProfileError::file(path, format!("has no column `latency_ms`{hint}")));
        }
        let mut identity = Vec::new();
        for (at, name) in cells.columns.iter().enumerate() {
            if at == kind || figures.contains(&Some(at)) {
                continue;
            }
            let is_remark = REMARKS.contains(&name.as_str())
                || whole_forward && REMARK_ENDS.iter().any(|end| name.ends_with(end));
            if config.select.contains_key(name)
                || IDENTITY.contains(&name.as_str())
                || whole_forward && !is_remark
            {
                identity.push(at);
            } else if !is_remark {
                let known = names.iter().chain(&IDENTITY).chain(&REMARKS).copied();
                let what = format!(
                    "unknown column `{name}`{}; a column of your own that tells rows apart must be \
                     named in `select`",
                    hint(nearest(name, known))
                );
                return Err(ProfileError::file(path, what));
            }
        }
        for name in config.select.keys() {
            if !identity.iter().any(|&at| cells.columns[at] == *name) {
                let columns = identity.iter().map(|&at| cells.columns[at].as_str());
                let all: Vec<_> = columns.collect();
                let accepted = match all.as_slice() {
                    [] => format!("nothing: {} has no such columns", path.display()),
                    all => format!("a column of {}: {}", path.display(), all.join(", ")),
                };
                return Err(select_error(
                    name,
                    format!(
                        "a column that is not there{}",
                        hint(nearest(name, all.iter().copied()))
                    ),
                    accepted,
                ));
            }
        }
        Ok(Self { kind, whole_forward, figures, identity })
    }
}

fn select_error(column: &str, found: String, accepted: String) -> ProfileError {
    ProfileError::Field(ConfigError {
        path: format!("timing.table.select.{column}"),
        found,
        accepted,
    })
}

fn hint(name: Option<&str>) -> String {
    name.map_or(String::new(), |name| format!(", did you mean `{name}`?"))
}

impl Passes {
    /// The selected rows of a table.
    ///
    /// # Errors
    /// A column that is missing or unknown, a selection that fits nothing or too much, a row that is
    /// no measured pass, rows with equal coordinates.
    pub(super) fn of(
        path: &Path,
        cells: &Cells,
        config: &TableConfig,
    ) -> Result<Self, ProfileError> {
        let layout = Layout::of(path, cells, config)?;
        let rows = selected(path, cells, &layout, config)?;
        let mut passes = Self::default();
        for row in rows {
            let (kind, measured) =
                read(row, &layout).map_err(|what| ProfileError::row(path, row.line, what))?;
            match kind {
                Kind::Prefill => passes.prefill.push(measured),
                Kind::Decode => passes.decode.push(measured),
                Kind::Mixed => passes.mixed.push(measured),
            }
        }
        for rows in [&mut passes.prefill, &mut passes.decode, &mut passes.mixed] {
            merge(path, rows, config.duplicates)?;
        }
        Ok(passes)
    }
}

/// The rows that the scenario selects.
fn selected<'a>(
    path: &Path,
    cells: &'a Cells,
    layout: &Layout,
    config: &TableConfig,
) -> Result<Vec<&'a CellRow>, ProfileError> {
    let values = |rows: &[&'a CellRow], at: usize| -> BTreeSet<&'a str> {
        rows.iter().map(|row| row.cell(at)).collect()
    };
    let list = |values: &BTreeSet<&str>| {
        const SHOWN_MAX: usize = 20;
        let mut text: Vec<_> = values.iter().take(SHOWN_MAX).map(|v| format!("{v:?}")).collect();
        if values.len() > SHOWN_MAX {
            text.push(format!("and {} more", values.len() - SHOWN_MAX));
        }
        text.join(", ")
    };
    let mut rows: Vec<&CellRow> = cells.rows.iter().collect();
    for &at in &layout.identity {
        let name = &cells.columns[at];
        let Some(wanted) = config.select.get(name) else { continue };
        let before = values(&rows, at);
        rows.retain(|row| wanted.matches(row.cell(at)));
        if rows.is_empty() && !before.is_empty() {
            let accepted = format!("one of {}", list(&before));
            return Err(select_error(name, wanted.to_string(), accepted));
        }
    }
    for &at in &layout.identity {
        let found = values(&rows, at);
        if found.len() > 1 && !config.select.contains_key(&cells.columns[at]) {
            let what = format!(
                "holds passes of several `{}`, expected one: add it to `select` with one of {}",
                cells.columns[at],
                list(&found)
            );
            return Err(ProfileError::file(path, what));
        }
    }
    Ok(rows)
}

/// A row as a measured pass, or what is wrong with it.
fn read(row: &CellRow, layout: &Layout) -> Result<(Kind, Measured), String> {
    let kind = match row.cell(layout.kind) {
        "prefill" => Kind::Prefill,
        "decode" => Kind::Decode,
        "mixed" if !layout.whole_forward => Kind::Mixed,
        other => {
            let (column, accepted) = if layout.whole_forward {
                ("workload_kind", "prefill or decode")
            } else {
                ("kind", "prefill, decode or mixed")
            };
            let hint = hint(nearest(other, ["prefill", "decode", "mixed"]));
            return Err(format!("`{column}` is {other:?}, expected {accepted}{hint}"));
        }
    };
    let names: &[&'static str] = if layout.whole_forward { &WHOLE_FORWARD } else { &FIGURES };
    let text = |name: &str| {
        let place = names.iter().position(|&known| known == name).and_then(|at| layout.figures[at]);
        place.map_or("", |at| row.cell(at))
    };
    let count = |name: &str| -> Result<f64, String> {
        // The largest number that the times of a simulation are exact for.
        const COUNT_MAX: f64 = 1e15;
        let text = text(name);
        let number = if text.is_empty() { Ok(0.0) } else { text.parse::<f64>() };
        match number {
            Ok(number) if (0.0..=COUNT_MAX).contains(&number) && number.fract() == 0.0 => {
                // Of -0 makes 0.
                Ok(number + 0.0)
            }
            _ => Err(format!("`{name}` is {text:?}, expected an integer from 0 to 1e15")),
        }
    };
    let or_one = |number: f64| if number == 0.0 { 1.0 } else { number };
    let mut measured = Measured {
        line: row.line,
        ms: latency(text("latency_ms"))?,
        samples: or_one(count("samples")?),
        query_width: query_width(text("query_tokens_per_request"))?,
        ..Measured::default()
    };
    if layout.whole_forward {
        let (requests, new) = (count("batch_size")?, count("total_prefill_tokens")?);
        let read = count("total_kv_read_tokens")?;
        if kind == Kind::Prefill {
            (measured.prefill_requests, measured.prefill_tokens) = (requests, new);
            measured.prefill_past_tokens = read;
        } else {
            (measured.decode_requests, measured.decode_kv_tokens) = (requests, read);
            measured.prefill_tokens = new;
        }
    } else {
        measured.prefill_requests = count("prefill_requests")?;
        measured.prefill_tokens = count("prefill_tokens")?;
        measured.prefill_past_tokens = count("prefill_past_tokens")?;
        measured.decode_requests = count("decode_requests")?;
        measured.decode_kv_tokens = count("decode_kv_tokens")?;
    }
    check(kind, &measured).map(|()| (kind, measured))
}

fn latency(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ms) if ms > 0.0 && ms <= LONGEST_PASS_MS => Ok(ms),
        _ => Err(format!(
            "`latency_ms` is {text:?}, expected a number above 0, at most 86400000 (a day)"
        )),
    }
}

fn query_width(text: &str) -> Result<f64, String> {
    const WIDTH_MAX: f64 = 1e6;
    match if text.is_empty() { Ok(1.0) } else { text.parse::<f64>() } {
        Ok(width) if (1.0..=WIDTH_MAX).contains(&width) => Ok(width),
        _ => {
            Err(format!("`query_tokens_per_request` is {text:?}, expected a number from 1 to 1e6"))
        }
    }
}

/// Whether the figures of a pass go together, and with its kind.
fn check(kind: Kind, pass: &Measured) -> Result<(), String> {
    let prefills = pass.prefill_requests + pass.prefill_tokens + pass.prefill_past_tokens > 0.0;
    let decodes = pass.decode_requests + pass.decode_kv_tokens > 0.0;
    match kind {
        Kind::Prefill if decodes => {
            return Err(
                "a prefill pass with decode work, expected none: such a pass is `mixed`".into()
            );
        }
        Kind::Decode if prefills => {
            return Err(
                "a decode pass with prefill work, expected none: such a pass is `mixed`".into()
            );
        }
        _ => {}
    }
    if kind != Kind::Decode {
        if pass.prefill_requests < 1.0 {
            return Err("a pass with prefill of 0 requests, expected at least 1".into());
        }
        if pass.prefill_tokens < pass.prefill_requests {
            return Err(format!(
                "prefill of {} requests with {} new tokens, expected at least one each",
                pass.prefill_requests, pass.prefill_tokens
            ));
        }
    }
    if kind != Kind::Prefill && pass.decode_requests < 1.0 {
        return Err("a pass with decode of 0 requests, expected at least 1".into());
    }
    if kind != Kind::Decode && pass.query_width > 1.0 {
        return Err(format!(
            "`query_tokens_per_request` is {}, expected 1 or nothing: only decode passes verify \
             drafts here",
            pass.query_width
        ));
    }
    Ok(())
}

/// Sorts passes by their coordinates and makes one of those that share them.
fn merge(path: &Path, rows: &mut Vec<Measured>, rule: Duplicates) -> Result<(), ProfileError> {
    // By line too, so that the first of two is named first.
    rows.sort_by(|a, b| {
        let (ours, theirs) = (a.coordinates(), b.coordinates());
        let keys = ours.as_flattened().iter().zip(theirs.as_flattened());
        let order = keys.map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne());
        order.unwrap_or(a.line.cmp(&b.line))
    });
    let mut merged = Vec::with_capacity(rows.len());
    for same in rows.chunk_by(|a, b| a.coordinates() == b.coordinates()) {
        let (first, rest) = same.split_first().expect("chunks are not empty");
        let mut one = *first;
        if let Some(second) = rest.first() {
            match rule {
                Duplicates::Refuse => {
                    let what = format!(
                        "the same pass as in line {}, expected one row each; `duplicates: median` or \
                         `mean` makes one of both",
                        first.line
                    );
                    return Err(ProfileError::row(path, second.line, what));
                }
                Duplicates::Median => {
                    let mut all: Vec<f64> = same.iter().map(|pass| pass.ms).collect();
                    one.ms = median(&mut all);
                }
                Duplicates::Mean => {
                    let sum: f64 = same.iter().map(|pass| pass.ms * pass.samples).sum();
                    one.ms = sum / same.iter().map(|pass| pass.samples).sum::<f64>();
                }
            }
        }
        merged.push(one);
    }
    *rows = merged;
    Ok(())
}
