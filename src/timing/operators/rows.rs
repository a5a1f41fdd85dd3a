//! CSV files with a header, plain or gzipped.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::super::error::ProfileError;
use crate::base::hint;

/// A row of a file whose columns were asked for by name.
pub(super) struct Row<'a> {
    path: &'a Path,
    columns: &'a [&'a str],
    /// Where in the record each column stands.
    order: &'a [usize],
    record: &'a csv::StringRecord,
    /// From 1, the header included.
    pub(super) line: u64,
}

impl Row<'_> {
    /// The text of the `column`-th column that was asked for.
    pub(super) fn text(&self, column: usize) -> &str {
        self.record[self.order[column]].trim()
    }

    /// The number there.
    ///
    /// # Errors
    /// It is none, not finite, or negative.
    pub(super) fn number(&self, column: usize) -> Result<f64, ProfileError> {
        let text = self.text(column);
        match text.parse::<f64>() {
            // Adding 0 makes -0 a 0.
            Ok(number) if number.is_finite() && number >= 0.0 => Ok(number + 0.0),
            _ => Err(self.error(format!(
                "`{}` is {text:?}, expected a finite number of at least 0",
                self.columns[column]
            ))),
        }
    }

    /// This row cannot be used.
    pub(super) fn error(&self, what: impl Into<String>) -> ProfileError {
        ProfileError::row(self.path, self.line, what)
    }
}

/// `folder/stem.csv` or `folder/stem.csv.gz`, whichever is there.
pub(super) fn find(folder: &Path, stem: &str) -> Option<PathBuf> {
    [format!("{stem}.csv"), format!("{stem}.csv.gz")]
        .into_iter()
        .map(|name| folder.join(name))
        .find(|path| path.is_file())
}

/// The same, which has to be there.
///
/// # Errors
/// It is not.
pub(super) fn needed(folder: &Path, stem: &str) -> Result<PathBuf, ProfileError> {
    find(folder, stem).ok_or_else(|| {
        let what = format!("is not there, nor {stem}.csv.gz; expected one of them");
        ProfileError::file(&folder.join(format!("{stem}.csv")), what)
    })
}

/// Hands each row of the file at `path` to `take`. The file has just these columns, in any order.
///
/// # Errors
/// The file cannot be read, a column is missing or unknown, a row has another length, or `take` says so.
pub(super) fn read(
    path: &Path,
    columns: &[&str],
    mut take: impl FnMut(&Row<'_>) -> Result<(), ProfileError>,
) -> Result<(), ProfileError> {
    let file = File::open(path).map_err(|e| ProfileError::file(path, e.to_string()))?;
    let input: Box<dyn Read> = if path.extension().is_some_and(|extension| extension == "gz") {
        Box::new(MultiGzDecoder::new(BufReader::new(file)))
    } else {
        Box::new(file)
    };
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(input);
    let mut record = csv::StringRecord::new();
    let mut next = |record: &mut csv::StringRecord| {
        reader.read_record(record).map_err(|error| {
            let line = error.position().map_or(0, csv::Position::line);
            ProfileError::row(path, line, error.to_string())
        })
    };
    if !next(&mut record)? {
        return Err(ProfileError::file(
            path,
            format!("is empty, expected the columns {}", columns.join(", ")),
        ));
    }
    let header: Vec<String> =
        record.iter().map(|name| name.trim_start_matches('\u{feff}').trim().to_owned()).collect();
    let accepted = columns.join(", ");
    for (place, name) in header.iter().enumerate() {
        if !columns.contains(&name.as_str()) {
            let hint = hint::nearest(name, columns.iter().copied())
                .map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
            let what = format!("unknown column {name:?}{hint}, expected {accepted}");
            return Err(ProfileError::row(path, 1, what));
        }
        if header[..place].contains(name) {
            return Err(ProfileError::row(path, 1, format!("column `{name}` stands there twice")));
        }
    }
    let mut order = Vec::with_capacity(columns.len());
    for column in columns {
        let Some(place) = header.iter().position(|name| name == column) else {
            let what = format!("column `{column}` is missing, expected {accepted}");
            return Err(ProfileError::row(path, 1, what));
        };
        order.push(place);
    }
    while next(&mut record)? {
        let line = record.position().map_or(0, csv::Position::line);
        take(&Row { path, columns, order: &order, record: &record, line })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn outcome(text: &str) -> Result<Vec<(String, f64)>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.csv");
        fs::write(&path, text).unwrap();
        let mut rows = Vec::new();
        let read = read(&path, &["operator", "tokens"], |row| {
            rows.push((row.text(0).to_owned(), row.number(1)?));
            Ok(())
        });
        read.map(|()| rows).map_err(|e| e.to_string().rsplit_once("some.csv").unwrap().1.to_owned())
    }

    #[test]
    fn columns_come_in_any_order() {
        let rows = outcome("tokens,operator\n3,qkv\n");
        assert_eq!(rows, Ok(vec![("qkv".to_owned(), 3.0)]));
    }

    #[test]
    fn errors_name_the_line_and_what_is_accepted() {
        let error = |text: &str| outcome(text).unwrap_err();
        assert_eq!(
            error("operator,token\nqkv,1\n"),
            ":1: unknown column \"token\" (did you mean `tokens`?), expected operator, tokens"
        );
        assert_eq!(
            error("operator\nqkv\n"),
            ":1: column `tokens` is missing, expected operator, tokens"
        );
        for number in ["-1", "nan", "inf", "x", ""] {
            assert_eq!(
                error(&format!("operator,tokens\nqkv,1\nqkv,{number}\n")),
                format!(":3: `tokens` is {number:?}, expected a finite number of at least 0")
            );
        }
        assert!(error("operator,tokens\nqkv\n").starts_with(":2: "));
        assert!(error("").contains("is empty"));
    }
}
