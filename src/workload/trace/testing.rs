//! What the tests of readers have in common.

use std::io::Cursor;

use super::config::{TraceConfig, TraceFormat};
use super::lines::Lines;
use super::{Opened, Row, RowReader, TraceError};

fn open(config: &TraceConfig, text: &str) -> Result<Box<dyn RowReader>, TraceError> {
    let lines = Lines::new(Box::new(Cursor::new(text.to_owned())), "t".into(), 1 << 20)?;
    Opened::of_lines(lines, config).map(|opened| opened.rows)
}

/// All rows of a trace, read by a configuration.
pub(super) fn read_with(config: &TraceConfig, text: &str) -> Result<Vec<Row>, TraceError> {
    let mut reader = open(config, text)?;
    std::iter::from_fn(|| reader.next_row().transpose()).collect()
}

fn read(format: TraceFormat, text: &str) -> Result<(Vec<Row>, Box<dyn RowReader>), TraceError> {
    let config = TraceConfig { path: "t".into(), format, ..TraceConfig::default() };
    let mut reader = open(&config, text)?;
    let rows = std::iter::from_fn(|| reader.next_row().transpose()).collect::<Result<_, _>>()?;
    Ok((rows, reader))
}

/// All rows of a trace.
pub(super) fn rows(format: TraceFormat, text: &str) -> Vec<Row> {
    read(format, text).unwrap().0
}

/// What is said of a trace that cannot be read.
pub(super) fn refused(format: TraceFormat, text: &str) -> String {
    read(format, text).err().expect("must be refused").to_string()
}

/// The fields that were not used, and whether any of them ties a row to another.
pub(super) fn ignored(format: TraceFormat, text: &str) -> (Vec<String>, bool) {
    let reader = read(format, text).unwrap().1;
    let ignored = reader.ignored();
    (ignored.names.iter().cloned().collect(), ignored.sessions)
}
