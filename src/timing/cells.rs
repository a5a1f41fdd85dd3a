//! The cells of a file of rows, as text: CSV, JSON lines and Parquet.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use serde_json::{Map, Value};

use super::error::ProfileError;

/// The most bytes a table may have, unpacked.
const BYTES_MAX: u64 = 1 << 30;

/// The most columns a table may have.
const COLUMNS_MAX: usize = 1000;

/// The first bytes of every gzip member.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// How the cells of a file are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Csv,
    JsonLines,
    Parquet,
    Npz,
}

/// A table before anybody looks at its cells.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cells {
    /// Names, in the order of the file.
    pub(crate) columns: Vec<String>,
    /// Rows, in the order of the file.
    pub(crate) rows: Vec<CellRow>,
}

/// One row. An empty text is a cell without value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CellRow {
    /// Its line in the file, or its number where there are no lines; from 1.
    pub(crate) line: u64,
    /// One for each column; cells that are missing at the end are empty.
    pub(crate) cells: Vec<String>,
}

impl CellRow {
    /// The text of a cell.
    pub(crate) fn cell(&self, column: usize) -> &str {
        self.cells.get(column).map_or("", String::as_str)
    }
}

impl Format {
    /// The format of a file, by its name.
    ///
    /// # Errors
    /// The name says none that is known.
    pub(crate) fn of(path: &Path) -> Result<Self, ProfileError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let (name, packed) = match name.strip_suffix(".gz") {
            Some(rest) => (rest, true),
            None => (name.as_str(), false),
        };
        match (name.rsplit_once('.').map(|(_, extension)| extension), packed) {
            (Some("csv"), _) => Ok(Self::Csv),
            (Some("jsonl" | "ndjson"), _) => Ok(Self::JsonLines),
            (Some("parquet"), false) => Ok(Self::Parquet),
            (Some("npz"), false) => Ok(Self::Npz),
            _ => Err(ProfileError::file(
                path,
                "unknown kind of file, expected a name that ends in .csv, .csv.gz, .jsonl, \
                 .jsonl.gz, .npz or .parquet",
            )),
        }
    }
}

/// The bytes of a file, unpacked if they are gzip.
///
/// # Errors
/// It cannot be read or unpacked, or is too large.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>, ProfileError> {
    let failed = |e: io::Error| ProfileError::file(path, format!("cannot be read: {e}"));
    let mut all = Vec::new();
    File::open(path)
        .and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut all))
        .map_err(failed)?;
    if all.starts_with(&GZIP_MAGIC) {
        let packed = std::mem::take(&mut all);
        MultiGzDecoder::new(packed.as_slice())
            .take(BYTES_MAX + 1)
            .read_to_end(&mut all)
            .map_err(|e| ProfileError::file(path, format!("truncated or corrupt gzip: {e}")))?;
    }
    if all.len() as u64 > BYTES_MAX {
        let what = format!("has more than {BYTES_MAX} bytes, expected a table of measurements");
        return Err(ProfileError::file(path, what));
    }
    Ok(all)
}

/// The text of a file, unpacked, without byte order mark.
///
/// # Errors
/// As [`bytes`], and bytes that are no text.
pub(crate) fn text(path: &Path) -> Result<String, ProfileError> {
    let text = String::from_utf8(bytes(path)?).map_err(|e| {
        let before = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = before.split(|&b| b == b'\n').count() as u64;
        ProfileError::row(path, line, "invalid UTF-8")
    })?;
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

impl Cells {
    /// Reads a file of rows.
    ///
    /// # Errors
    /// It cannot be read, or is not laid out as its name says.
    pub(crate) fn read(path: &Path, format: Format) -> Result<Self, ProfileError> {
        let cells = match format {
            Format::Csv => Self::from_csv(path, &text(path)?)?,
            Format::JsonLines => Self::from_json_lines(path, &text(path)?)?,
            Format::Parquet => parquet_cells(path)?,
            Format::Npz => unreachable!("arrays are no rows"),
        };
        if cells.columns.len() > COLUMNS_MAX {
            let what = format!("{} columns, expected at most {COLUMNS_MAX}", cells.columns.len());
            return Err(ProfileError::file(path, what));
        }
        for (place, name) in cells.columns.iter().enumerate() {
            if cells.columns[..place].contains(name) {
                return Err(ProfileError::file(path, format!("has two columns `{name}`")));
            }
        }
        Ok(cells)
    }

    fn from_csv(path: &Path, text: &str) -> Result<Self, ProfileError> {
        let mut reader = csv::ReaderBuilder::new()
            .trim(csv::Trim::All)
            .comment(Some(b'#'))
            .from_reader(text.as_bytes());
        let failed = |e: &csv::Error| {
            let line = e.position().map_or(1, |position| line_of(text, position));
            let what = match e.kind() {
                csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                    format!("has {len} cells, expected {expected_len} as in the first line")
                }
                _ => format!("malformed CSV: {e}"),
            };
            ProfileError::row(path, line, what)
        };
        let columns = reader.headers().map_err(|e| failed(&e))?.iter().map(str::to_owned).collect();
        let mut rows = Vec::new();
        for record in reader.records() {
            let record = record.map_err(|e| failed(&e))?;
            rows.push(CellRow {
                line: record.position().map_or(1, |position| line_of(text, position)),
                cells: record.iter().map(str::to_owned).collect(),
            });
        }
        Ok(Self { columns, rows })
    }

    fn from_json_lines(path: &Path, text: &str) -> Result<Self, ProfileError> {
        let mut all = Self::default();
        for (line, text) in (1..).zip(text.lines()) {
            if text.trim().is_empty() {
                continue;
            }
            let object: Map<String, Value> = serde_json::from_str(text)
                .map_err(|e| ProfileError::row(path, line, format!("malformed JSON: {e}")))?;
            let mut cells = vec![String::new(); all.columns.len()];
            for (name, value) in object {
                let cell = match value {
                    Value::Null => String::new(),
                    Value::String(text) => text.trim().to_owned(),
                    Value::Bool(_) | Value::Number(_) => value.to_string(),
                    Value::Array(_) | Value::Object(_) => {
                        let what = format!("`{name}` is {value}, expected a number or a text");
                        return Err(ProfileError::row(path, line, what));
                    }
                };
                if let Some(place) = all.columns.iter().position(|known| *known == name) {
                    cells[place] = cell;
                } else {
                    if all.columns.len() == COLUMNS_MAX {
                        let what = format!(
                            "`{name}` is one column too many, expected at most {COLUMNS_MAX}"
                        );
                        return Err(ProfileError::row(path, line, what));
                    }
                    all.columns.push(name);
                    cells.push(cell);
                }
            }
            all.rows.push(CellRow { line, cells });
        }
        Ok(all)
    }
}

/// The line of a record that begins at a position, or behind the blank lines and remarks there.
fn line_of(text: &str, position: &csv::Position) -> u64 {
    let mut rest = text.get(position.byte() as usize..).unwrap_or_default();
    let mut line = position.line();
    while let Some((first, behind)) = rest.split_once('\n') {
        if !first.starts_with('#') && !first.trim_end_matches('\r').is_empty() {
            break;
        }
        (rest, line) = (behind, line + 1);
    }
    line
}

#[cfg(not(feature = "parquet"))]
fn parquet_cells(path: &Path) -> Result<Cells, ProfileError> {
    Err(ProfileError::file(
        path,
        "Parquet is read by a servesim that was built with the feature `parquet` (cargo build \
         --features parquet), which this one was not; CSV and JSON lines are always read",
    ))
}

#[cfg(feature = "parquet")]
fn parquet_cells(path: &Path) -> Result<Cells, ProfileError> {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    let failed = |e: &dyn std::fmt::Display| {
        ProfileError::file(path, format!("cannot be read as Parquet: {e}"))
    };
    let file =
        File::open(path).map_err(|e| ProfileError::file(path, format!("cannot be read: {e}")))?;
    let reader = SerializedFileReader::new(file).map_err(|e| failed(&e))?;
    let fields = reader.metadata().file_metadata().schema_descr().root_schema().get_fields();
    let columns: Vec<String> = fields.iter().map(|field| field.name().to_owned()).collect();
    let mut rows = Vec::new();
    for (line, row) in (1..).zip(reader.get_row_iter(None).map_err(|e| failed(&e))?) {
        let row = row.map_err(|e| failed(&e))?;
        let mut cells = Vec::with_capacity(columns.len());
        for (name, field) in row.get_column_iter() {
            cells.push(match field {
                Field::Null => String::new(),
                Field::Str(text) => text.trim().to_owned(),
                // As the shortest decimal that is this number.
                Field::Float(number) => number.to_string(),
                Field::Double(number) => number.to_string(),
                Field::Group(_) | Field::ListInternal(_) | Field::MapInternal(_) => {
                    let what = format!("`{name}` is {field}, expected a number or a text");
                    return Err(ProfileError::row(path, line, what));
                }
                plain => plain.to_string(),
            });
        }
        rows.push(CellRow { line, cells });
    }
    Ok(Cells { columns, rows })
}
