//! The layout of our own: `operators.yaml` and CSV files beside it, times in microseconds.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::super::config::Deployment;
use super::super::error::ProfileError;
use super::config::{OperatorsConfig, Outside};
use super::grid::{Curve, Grid, Point};
use super::{AttentionPoints, Collectives, Tables, layers, rows};
use crate::base::config::ConfigError;
use crate::base::hint;

/// `operators.yaml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Folder {
    /// What it is called.
    #[serde(rename = "name")]
    _name: String,
    /// The model that was measured.
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    num_hidden_layers: Option<u32>,
    #[serde(default = "one")]
    tensor_parallel_size: u32,
    /// The operators of `dense.csv` and `per_request.csv`.
    operators: Vec<Operator>,
    /// How `experts.csv` is meant.
    #[serde(default)]
    experts: Option<Runs>,
    /// How `collectives.csv` is meant.
    #[serde(default)]
    collectives: Option<Messages>,
    /// Attention of decodes with uneven KV is that at mean + share * (longest - mean).
    #[serde(default)]
    uneven_kv: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Operator {
    name: String,
    part: OperatorPart,
    per: Per,
    #[serde(default = "one")]
    count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OperatorPart {
    Dense,
    PerRequest,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Per {
    Layer,
    Pass,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Runs {
    per: Per,
    #[serde(default = "one")]
    count: u32,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Messages {
    per: Per,
    #[serde(default = "one")]
    count: u32,
    /// Bytes that one token of the pass puts into a message.
    bytes_per_token: f64,
}

const fn one() -> u32 {
    1
}

impl Per {
    /// How often in a pass, if `count` times here.
    fn runs(self, count: u32, layers: f64) -> f64 {
        match self {
            Self::Layer => layers * f64::from(count),
            Self::Pass => f64::from(count),
        }
    }
}

/// Reads the folder.
///
/// # Errors
/// A file that cannot be used, or one that says something else than the scenario.
pub(super) fn load(
    config: &OperatorsConfig,
    deployment: &Deployment<'_>,
) -> Result<Tables, ProfileError> {
    let folder = &config.path;
    let path = folder.join("operators.yaml");
    let text = fs::read_to_string(&path).map_err(|e| ProfileError::file(&path, e.to_string()))?;
    let own: Folder =
        serde_saphyr::from_str(&text).map_err(|e| ProfileError::file(&path, e.to_string()))?;
    own.check(&path, deployment)?;
    let layers = layers(config, deployment, own.num_hidden_layers)?;
    let outside = config.outside;

    let attention_path = rows::needed(folder, "attention")?;
    let mut attention = AttentionPoints::default();
    let columns = [
        "prefill_tokens",
        "prefill_past_tokens",
        "decode_requests",
        "decode_kv_tokens_mean",
        "time_us",
    ];
    rows::read(&attention_path, &columns, |row| {
        let at = [row.number(0)?, row.number(1)?, row.number(2)?, row.number(3)?];
        attention.add(at, row.number(4)? / 1000.0, row.line).map_err(|what| row.error(what))
    })?;

    let experts = own.experts.map(|runs| {
        let curve = single(folder, "experts", "tokens", outside, 1.0)?;
        Ok::<_, ProfileError>(curve.times(runs.per.runs(runs.count, layers)))
    });
    let collectives = own.collectives.map(|messages| {
        let curve = single(folder, "collectives", "bytes", outside, messages.bytes_per_token)?;
        let runs = messages.per.runs(messages.count, layers);
        Ok::<_, ProfileError>(Collectives::Curve(curve.times(runs)))
    });
    Ok(Tables {
        dense: own.curves(folder, OperatorPart::Dense, layers, outside)?,
        attention: attention.of_layers(&attention_path, layers, outside)?,
        per_request: own.curves(folder, OperatorPart::PerRequest, layers, outside)?,
        experts: experts.transpose()?,
        collectives: collectives.transpose()?,
        uneven_kv: own.uneven_kv,
    })
}

impl Folder {
    fn check(&self, path: &Path, deployment: &Deployment<'_>) -> Result<(), ProfileError> {
        let wrong = |what: String| Err(ProfileError::file(path, what));
        if let (Some(measured), Some(model)) = (&self.model, deployment.model)
            && *measured != model.name
        {
            return wrong(format!(
                "`model` is {measured:?}, expected the scenario's {:?}",
                model.name
            ));
        }
        let size = deployment.parallel.tensor_parallel_size;
        if self.tensor_parallel_size != size {
            let accepted =
                format!("{}, as measured in {}", self.tensor_parallel_size, path.display());
            return Err(ConfigError::new("parallel.tensor_parallel_size", size, accepted).into());
        }
        if self.num_hidden_layers == Some(0) {
            return wrong("`num_hidden_layers` is 0, expected an integer of at least 1".to_owned());
        }
        if let Some(share) = self.uneven_kv
            && !(0.0..=1.0).contains(&share)
        {
            return wrong(format!("`uneven_kv` is {share}, expected a number from 0 to 1"));
        }
        if let Some(messages) = self.collectives
            && !(messages.bytes_per_token > 0.0 && messages.bytes_per_token.is_finite())
        {
            let found = messages.bytes_per_token;
            return wrong(format!(
                "`collectives.bytes_per_token` is {found}, expected a finite number above 0"
            ));
        }
        for (place, operator) in self.operators.iter().enumerate() {
            if self.operators[..place].iter().any(|other| other.name == operator.name) {
                return wrong(format!("`operators` names {:?} twice", operator.name));
            }
        }
        Ok(())
    }

    /// The curves of a part, and how often each is run.
    fn curves(
        &self,
        folder: &Path,
        part: OperatorPart,
        layers: f64,
        outside: Outside,
    ) -> Result<Vec<(Curve, f64)>, ProfileError> {
        let operators: Vec<&Operator> =
            self.operators.iter().filter(|operator| operator.part == part).collect();
        if operators.is_empty() {
            return Ok(Vec::new());
        }
        let (stem, coordinate) = match part {
            OperatorPart::Dense => ("dense", "tokens"),
            OperatorPart::PerRequest => ("per_request", "requests"),
        };
        let path = rows::needed(folder, stem)?;
        let names: Vec<&str> = operators.iter().map(|operator| operator.name.as_str()).collect();
        let mut points = by_operator(&path, ["operator", coordinate, "time_us"], &names, 1000.0)?;
        operators
            .into_iter()
            .map(|operator| {
                let points = points.remove(&operator.name).unwrap_or_default();
                let curve = curve(&path, &operator.name, points, outside)?;
                Ok((curve, operator.per.runs(operator.count, layers)))
            })
            .collect()
    }
}

/// The points of a file with the columns (operator, coordinate, time), by operator; a row of an operator that is
/// none of `names` is an error. `unit` is the times of one ms.
pub(super) fn by_operator(
    path: &Path,
    columns: [&str; 3],
    names: &[&str],
    unit: f64,
) -> Result<BTreeMap<String, Vec<Point<1>>>, ProfileError> {
    let mut points: BTreeMap<String, Vec<Point<1>>> = BTreeMap::new();
    rows::read(path, &columns, |row| {
        let name = row.text(0);
        if !names.contains(&name) {
            return Err(row.error(unknown(columns[0], name, names)));
        }
        let point = Point { at: [row.number(1)?], ms: row.number(2)? / unit, line: row.line };
        match points.get_mut(name) {
            Some(points) => points.push(point),
            None => drop(points.insert(name.to_owned(), vec![point])),
        }
        Ok(())
    })?;
    Ok(points)
}

/// A name that is not known.
pub(super) fn unknown(column: &str, name: &str, names: &[&str]) -> String {
    let hint = hint::nearest(name, names.iter().copied())
        .map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
    format!("`{column}` is {name:?}{hint}, expected one of {}", names.join(", "))
}

/// The curve of the operator `name`.
pub(super) fn curve(
    path: &Path,
    name: &str,
    points: Vec<Point<1>>,
    outside: Outside,
) -> Result<Curve, ProfileError> {
    if points.is_empty() {
        return Err(ProfileError::file(path, format!("holds no measurement of `{name}`")));
    }
    Grid::new(path, points, outside)
}

/// The curve of a file without operators; a coordinate is divided by `per`.
fn single(
    folder: &Path,
    stem: &str,
    coordinate: &str,
    outside: Outside,
    per: f64,
) -> Result<Curve, ProfileError> {
    let path = rows::needed(folder, stem)?;
    let mut points = Vec::new();
    rows::read(&path, &[coordinate, "time_us"], |row| {
        let (x, ms) = (row.number(0)? / per, row.number(1)? / 1000.0);
        points.push(Point { at: [x], ms, line: row.line });
        Ok(())
    })?;
    Grid::new(&path, points, outside)
}
