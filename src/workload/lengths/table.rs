//! Distributions that are lists: values with weights, and the files they come from.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::config::{EmpiricalConfig, PairsConfig};
use crate::base::hint::nearest;
use crate::workload::sessions::config::{SessionsConfig, ThinkConfig};
use crate::workload::source::RequestSource;
use crate::workload::trace::config::TraceConfig;
use crate::workload::trace::{TraceError, TraceSource};

/// Values with weights.
#[derive(Clone, Debug)]
pub(crate) struct Weighted<T> {
    values: Vec<T>,
    /// The weight of each value and all before it.
    sums: Vec<f64>,
}

impl<T> Weighted<T> {
    /// Values with weights of at least 0, one of them above.
    pub(crate) fn new(values: impl Iterator<Item = (T, f64)>) -> Self {
        let mut sum = 0.0;
        let summed = values.map(|(value, weight)| {
            sum += weight;
            (value, sum)
        });
        let (values, sums): (Vec<_>, Vec<_>) = summed.unzip();
        assert!(sum > 0.0, "a distribution has a value");
        Self { values, sums }
    }

    /// All of them.
    #[cfg(test)]
    pub(crate) fn values(&self) -> &[T] {
        &self.values
    }

    /// The first value at which the share of the weights exceeds `share`, from 0 to 1; O(log n).
    pub(crate) fn at(&self, share: f64) -> &T {
        let weight = share * self.sums[self.sums.len() - 1];
        let place = self.sums.partition_point(|&sum| sum <= weight);
        // A share of 1 is the last value that has a weight.
        let last = || self.sums.partition_point(|&sum| sum < self.sums[self.sums.len() - 1]);
        &self.values[if place == self.values.len() { last() } else { place }]
    }
}

/// The values of a file's column.
///
/// # Errors
/// The file cannot be read, lacks a column, or holds what is no length or no weight.
pub(super) fn read(config: &EmpiricalConfig) -> Result<Weighted<u32>, TraceError> {
    let mut table = Table::open(&config.path)?;
    let column = table.column(&config.column)?;
    let weight = config.weight_column.as_deref().map(|name| table.column(name)).transpose()?;
    let mut values = Vec::new();
    while table.next_row()? {
        values.push((table.tokens(&column)?, table.weight(weight.as_ref())?));
    }
    table.weighted(values, config.weight_column.as_deref())
}

/// The pairs of prompt and output tokens of a file.
///
/// # Errors
/// The file cannot be read, lacks a column, or holds what is no length or no weight.
pub(super) fn read_pairs(config: &PairsConfig) -> Result<Weighted<(u32, u32)>, TraceError> {
    let file = match config {
        PairsConfig::Csv(file) => file,
        PairsConfig::Trace(file) => return read_trace(&file.path),
    };
    let mut table = Table::open(&file.path)?;
    let prompt = table.column(&file.prompt_column)?;
    let output = table.column(&file.output_column)?;
    let weight = file.weight_column.as_deref().map(|name| table.column(name)).transpose()?;
    let mut values = Vec::new();
    while table.next_row()? {
        let pair = (table.tokens(&prompt)?, table.tokens(&output)?);
        values.push((pair, table.weight(weight.as_ref())?));
    }
    table.weighted(values, file.weight_column.as_deref())
}

/// The pairs of the requests of a trace.
fn read_trace(path: &Path) -> Result<Weighted<(u32, u32)>, TraceError> {
    // Lengths are there whether or not anybody says when a session begins.
    let sessions = Some(SessionsConfig::Think(ThinkConfig::default()));
    let config = TraceConfig { path: path.to_owned(), sessions, ..TraceConfig::default() };
    let mut source = TraceSource::open(&config)?;
    let mut values = Vec::new();
    while source.next_arrival()?.is_some() {
        let request = source.take();
        values.push(((request.prompt_tokens, request.output_tokens), 1.0));
    }
    Ok(Weighted::new(values.into_iter()))
}

/// A column of a CSV file.
struct Column {
    name: String,
    place: usize,
}

/// A CSV file with a header, plain or gzip.
struct Table<'a> {
    path: &'a Path,
    reader: csv::Reader<Box<dyn Read>>,
    header: csv::StringRecord,
    row: csv::StringRecord,
}

impl<'a> Table<'a> {
    fn open(path: &'a Path) -> Result<Self, TraceError> {
        let unreadable = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => TraceError::NotFound { path: path.to_owned() },
            _ => TraceError::Unreadable { path: path.to_owned(), source },
        };
        let mut file = BufReader::new(File::open(path).map_err(unreadable)?);
        let is_gzip = file.fill_buf().map_err(unreadable)?.starts_with(&[0x1f, 0x8b]);
        let input: Box<dyn Read> =
            if is_gzip { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(input);
        let header = reader.headers().cloned().map_err(|error| malformed(path, error))?;
        if header.iter().all(str::is_empty) {
            return Err(TraceError::Empty { path: path.to_owned() });
        }
        Ok(Self { path, reader, header, row: csv::StringRecord::new() })
    }

    fn column(&self, name: &str) -> Result<Column, TraceError> {
        let cells = || self.header.iter().map(|cell| cell.trim_start_matches('\u{feff}'));
        if let Some(place) = cells().position(|cell| cell == name) {
            return Ok(Column { name: name.to_owned(), place });
        }
        let hint = nearest(name, cells())
            .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        let found: Vec<_> = cells().take(20).map(|cell| format!("`{cell}`")).collect();
        let what = format!("column `{name}` is missing, found {}{hint}", found.join(", "));
        Err(TraceError::Table { path: self.path.to_owned(), line: 1, what })
    }

    /// Goes on to the next row; `false` at the end.
    fn next_row(&mut self) -> Result<bool, TraceError> {
        self.reader.read_record(&mut self.row).map_err(|error| malformed(self.path, error))
    }

    fn tokens(&self, column: &Column) -> Result<u32, TraceError> {
        let cell = self.row.get(column.place).unwrap_or_default();
        cell.parse().map_err(|_| self.refuse(column, cell, "an integer from 0 to 4294967295"))
    }

    fn weight(&self, column: Option<&Column>) -> Result<f64, TraceError> {
        let Some(column) = column else { return Ok(1.0) };
        let cell = self.row.get(column.place).unwrap_or_default();
        let weight = cell.parse().ok().filter(|weight| (0.0..=1e15).contains(weight));
        weight.ok_or_else(|| self.refuse(column, cell, "a number from 0 to 1e15"))
    }

    fn refuse(&self, column: &Column, cell: &str, accepted: &str) -> TraceError {
        let shown: String = cell.chars().take(40).collect();
        let what = format!("`{}` is {shown:?}, expected {accepted}", column.name);
        let line = self.row.position().map_or(0, csv::Position::line);
        TraceError::Table { path: self.path.to_owned(), line, what }
    }

    fn weighted<T>(
        self,
        values: Vec<(T, f64)>,
        weight_column: Option<&str>,
    ) -> Result<Weighted<T>, TraceError> {
        let path = self.path.to_owned();
        if values.is_empty() {
            let what = "no rows behind the header, expected at least one".to_owned();
            return Err(TraceError::Table { path, line: 1, what });
        }
        if values.iter().all(|&(_, weight)| weight <= 0.0) {
            let column = weight_column.unwrap_or_default();
            let what = format!("`{column}` is 0 in every row, expected a weight above 0 in one");
            return Err(TraceError::Table { path, line: 1, what });
        }
        Ok(Weighted::new(values.into_iter()))
    }
}

fn malformed(path: &Path, error: csv::Error) -> TraceError {
    let line = error.position().map_or(0, csv::Position::line);
    match error.into_kind() {
        csv::ErrorKind::Io(source) => TraceError::Unreadable { path: path.to_owned(), source },
        kind => {
            let what = format!("malformed CSV: {}", kind_of(&kind));
            TraceError::Table { path: path.to_owned(), line, what }
        }
    }
}

fn kind_of(kind: &csv::ErrorKind) -> String {
    match kind {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("{len} cells, expected {expected_len}, as in the header")
        }
        csv::ErrorKind::Utf8 { .. } => "invalid UTF-8".to_owned(),
        other => format!("{other:?}"),
    }
}
