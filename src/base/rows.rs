//! Result files with a row for each thing: CSV, JSON lines or Parquet, by the name of the file.
//!
//! What is unknown is an empty cell or `null`. Figures have the shortest form that reads back the same.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::output::{OutputError, ResultFile, named_format};

#[cfg(feature = "parquet")]
mod parquet;

/// A column of a row file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// Its name, which is that of the field of a row.
    pub(crate) name: &'static str,
    /// What its cells are, where they are known.
    pub(crate) kind: Kind,
}

/// What the cells of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Integer,
    Float,
    Boolean,
    Text,
}

impl Column {
    pub(crate) const fn integer(name: &'static str) -> Self {
        Self { name, kind: Kind::Integer }
    }

    pub(crate) const fn float(name: &'static str) -> Self {
        Self { name, kind: Kind::Float }
    }

    pub(crate) const fn boolean(name: &'static str) -> Self {
        Self { name, kind: Kind::Boolean }
    }

    pub(crate) const fn text(name: &'static str) -> Self {
        Self { name, kind: Kind::Text }
    }
}

/// A file of rows on its way into its place.
#[derive(Debug)]
pub(crate) struct RowFile {
    path: PathBuf,
    rows: Rows,
}

#[derive(Debug)]
enum Rows {
    Csv(Box<csv::Writer<ResultFile>>),
    JsonLines(ResultFile),
    #[cfg(feature = "parquet")]
    Parquet(Box<parquet::ParquetRows>),
}

/// The names of files of rows.
const ACCEPTED: &str = if cfg!(feature = "parquet") {
    ".csv or .jsonl, optionally with .gz, or .parquet, or `-` for JSON lines"
} else {
    ".csv or .jsonl, optionally with .gz, or `-` for JSON lines"
};

/// The same, for who asks for what this build does not have.
const NO_PARQUET: &str =
    ".csv or .jsonl, or a build with the feature `parquet` (cargo build --features parquet)";

impl RowFile {
    /// Opens `path` for rows of these columns. The name says the format: `.csv` or `.jsonl`, each with `.gz` or
    /// without, or `.parquet`, if servesim was built with that feature; `-` is JSON lines on standard output.
    ///
    /// # Errors
    /// The name says no format, or no file can be made there.
    pub(crate) fn create(path: &Path, columns: &'static [Column]) -> Result<Self, OutputError> {
        let (extension, gzip) = named_format(path);
        let open = || ResultFile::create(path, gzip);
        let rows = match extension.as_deref() {
            Some("csv") => Rows::csv(open()?, columns),
            Some("jsonl") => Ok(Rows::JsonLines(open()?)),
            _ if path == Path::new("-") => Ok(Rows::JsonLines(open()?)),
            #[cfg(feature = "parquet")]
            Some("parquet") if !gzip => parquet::ParquetRows::new(open()?, columns)
                .map(|rows| Rows::Parquet(Box::new(rows))),
            found => {
                return Err(OutputError::Extension {
                    path: path.to_owned(),
                    found: found.map_or_else(String::new, |extension| format!(".{extension}")),
                    accepted: if found == Some("parquet") { NO_PARQUET } else { ACCEPTED },
                });
            }
        };
        let rows = rows.map_err(|error| OutputError::write(path, error))?;
        Ok(Self { path: path.to_owned(), rows })
    }

    /// Writes a row, whose fields are the columns in their order.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write(&mut self, row: &impl Serialize) -> Result<(), OutputError> {
        self.rows.write(row).map_err(|error| OutputError::write(&self.path, error))
    }

    /// The complete file, not in its place yet.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn into_file(self) -> Result<ResultFile, OutputError> {
        let file = match self.rows {
            Rows::Csv(writer) => writer.into_inner().map_err(csv::IntoInnerError::into_error),
            Rows::JsonLines(file) => Ok(file),
            #[cfg(feature = "parquet")]
            Rows::Parquet(rows) => rows.into_file(),
        };
        file.map_err(|error| OutputError::write(&self.path, error))
    }
}

impl Rows {
    fn csv(file: ResultFile, columns: &[Column]) -> io::Result<Self> {
        // The header is written here, so that a file without rows has it too.
        let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(file);
        writer.write_record(columns.iter().map(|column| column.name))?;
        Ok(Self::Csv(Box::new(writer)))
    }

    fn write(&mut self, row: &impl Serialize) -> io::Result<()> {
        match self {
            Self::Csv(writer) => Ok(writer.serialize(row)?),
            Self::JsonLines(file) => {
                serde_json::to_writer(&mut *file, row)?;
                file.write_all(b"\n")
            }
            #[cfg(feature = "parquet")]
            Self::Parquet(rows) => rows.write(row),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [
        Column::integer("id"),
        Column::float("ms"),
        Column::boolean("counted"),
        Column::text("class"),
    ];

    #[derive(Serialize)]
    struct Row {
        id: u32,
        ms: Option<f64>,
        counted: bool,
        class: Option<&'static str>,
    }

    const ROWS: [Row; 2] = [
        Row { id: 1, ms: Some(0.1), counted: true, class: None },
        Row { id: 2, ms: None, counted: false, class: Some("chat, b") },
    ];

    /// The bytes that the rows leave in a file called `name`.
    fn written(name: &str, rows: &[Row]) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        let mut file = RowFile::create(&path, &COLUMNS).unwrap();
        rows.iter().for_each(|row| file.write(row).unwrap());
        file.into_file().unwrap().close().unwrap();
        std::fs::read(&path).unwrap()
    }

    #[test]
    fn the_name_says_the_format() {
        let text = |name| String::from_utf8(written(name, &ROWS)).unwrap();
        assert_eq!(text("a.csv"), "id,ms,counted,class\n1,0.1,true,\n2,,false,\"chat, b\"\n");
        let lines = "{\"id\":1,\"ms\":0.1,\"counted\":true,\"class\":null}\n\
                     {\"id\":2,\"ms\":null,\"counted\":false,\"class\":\"chat, b\"}\n";
        assert_eq!(text("a.jsonl"), lines);
        assert_eq!(written("a.csv", &[]), b"id,ms,counted,class\n");
    }

    #[test]
    fn gzip_unpacks_to_the_plain_file_and_repeats_itself() {
        let packed = written("a.csv.gz", &ROWS);
        assert_eq!(packed, written("a.csv.gz", &ROWS));
        let mut plain = Vec::new();
        io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&packed[..]), &mut plain).unwrap();
        assert_eq!(plain, written("a.csv", &ROWS));
    }

    #[test]
    fn a_name_without_a_known_extension_is_refused() {
        for (name, found) in [("a.txt", "\".txt\""), ("a.gz", "\"\""), ("a", "\"\"")] {
            let error = RowFile::create(Path::new(name), &COLUMNS).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{name}: the name ends in {found}")), "{error}");
        }
    }

    #[cfg(not(feature = "parquet"))]
    #[test]
    fn a_format_that_was_left_out_says_how_to_have_it() {
        let error = RowFile::create(Path::new("a.parquet"), &COLUMNS).unwrap_err().to_string();
        assert!(error.contains("--features parquet"), "{error}");
    }

    #[cfg(feature = "parquet")]
    #[test]
    fn parquet_reads_back_the_same() {
        use ::parquet::file::reader::{FileReader, SerializedFileReader};
        use ::parquet::record::Field;

        // Three groups of rows, the last not full.
        let many: Vec<Row> = (0..150_000)
            .map(|id| Row {
                id,
                ms: (id % 3 > 0).then(|| f64::from(id) / 7.0),
                counted: id % 2 == 0,
                class: (id % 5 == 0).then_some("chat"),
            })
            .collect();
        let bytes = written("a.parquet", &many);
        assert_eq!(bytes, written("a.parquet", &many));
        let mut on_disk = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut on_disk, &bytes).unwrap();
        let file = SerializedFileReader::new(on_disk).unwrap();
        assert_eq!(file.num_row_groups(), 3);
        let value = |(name, field): (&String, &Field)| {
            let value = match field {
                Field::Null => serde_json::Value::Null,
                Field::Bool(value) => (*value).into(),
                Field::Long(value) => (*value).into(),
                Field::ULong(value) => (*value).into(),
                Field::Double(value) => (*value).into(),
                Field::Str(value) => value.as_str().into(),
                other => panic!("{other:?} is not what the columns hold"),
            };
            (name.clone(), value)
        };
        let mut read = 0;
        for (row, expected) in file.get_row_iter(None).unwrap().zip(&many) {
            let row = row.unwrap().get_column_iter().map(value).collect::<serde_json::Map<_, _>>();
            assert_eq!(serde_json::Value::from(row), serde_json::to_value(expected).unwrap());
            read += 1;
        }
        assert_eq!(read, many.len());
    }
}
