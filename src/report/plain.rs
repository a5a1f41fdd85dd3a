//! The report in formats to pipe: Markdown, with the tables of the terminal, and CSV, with every figure.

use std::io::{self, Write};

use comfy_table::Table;
use serde_json::Value;

use super::Report;
use super::table::{Piece, pieces};

/// Writes the report as Markdown with tables.
pub(super) fn write_markdown(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    write_pieces(pieces(report), out)
}

/// Writes groups of pieces as Markdown.
pub(super) fn write_pieces(groups: Vec<Vec<Piece>>, out: &mut dyn Write) -> io::Result<()> {
    for group in groups {
        for piece in group {
            match piece {
                Piece::Title(text) => writeln!(out, "# {}\n", escaped(&text))?,
                Piece::Table(table) => write_table(&table, out)?,
                Piece::Line(text) => writeln!(out, "{}\n", escaped(&text))?,
                Piece::Warning(text) => writeln!(out, "> **Warning:** {}\n", escaped(&text))?,
                Piece::Picture(_) => {}
            }
        }
    }
    Ok(())
}

/// Writes a table as Markdown, and an empty line behind it.
pub(super) fn write_table(table: &Table, out: &mut dyn Write) -> io::Result<()> {
    let line = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
    let cells = |row: &comfy_table::Row| -> Vec<String> {
        row.cell_iter().map(|cell| escaped(&cell.content())).collect()
    };
    let Some(header) = table.header() else { return Ok(()) };
    let columns = header.cell_iter().count();
    writeln!(out, "{}", line(cells(header)))?;
    let rules = (0..columns).map(|column| if column == 0 { ":--" } else { "--:" }.to_owned());
    writeln!(out, "{}", line(rules.collect()))?;
    for row in table.row_iter() {
        let mut cells = cells(row);
        cells.resize(columns, String::new());
        writeln!(out, "{}", line(cells))?;
    }
    writeln!(out)
}

/// Text that Markdown shows as it is.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '|' | '*' | '_' | '<' | '\\') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

/// Parts of a report that are no figures of the run, or too many.
const NO_FIGURES: [&str; 6] = ["scenario", "workload", "curves", "warnings", "host", "title"];

/// Writes `name,value` for each figure and text, named as in the JSON: `latency.ttft_ms.p99`. What is unknown has an
/// empty value.
pub(super) fn write_csv(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    write_fields(&serde_json::to_value(report)?, &NO_FIGURES, out)
}

/// Writes `name,value` for each figure and text below the fields of `report`, those `without` left out.
pub(super) fn write_fields(
    report: &Value,
    without: &[&str],
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(["name", "value"])?;
    for (name, value) in report.as_object().into_iter().flatten() {
        if !without.contains(&name.as_str()) {
            write_leaves(name, value, &mut writer)?;
        }
    }
    writer.flush()
}

fn write_leaves<W: Write>(name: &str, value: &Value, out: &mut csv::Writer<W>) -> io::Result<()> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .try_for_each(|(inner, value)| write_leaves(&format!("{name}.{inner}"), value, out)),
        Value::Array(values) => values
            .iter()
            .enumerate()
            .try_for_each(|(place, value)| write_leaves(&format!("{name}.{place}"), value, out)),
        Value::Null => Ok(out.write_record([name, ""])?),
        Value::String(text) => Ok(out.write_record([name, text])?),
        Value::Bool(_) | Value::Number(_) => Ok(out.write_record([name, &value.to_string()])?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn written(write: impl Fn(&Report, &mut dyn Write) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&sample::report(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn markdown_has_tables_of_equal_rows() {
        let text = written(write_markdown);
        assert!(text.starts_with("# servesim 1.2.3 \\| two prompts \\| vLLM 0.33.0, 1 engine"));
        assert!(text.contains("| Latency (ms) | mean | std | p50 |"));
        assert!(text.contains("\n| TTFT | 175.00 | 75.00 | 175.00 | 235.00 |"));
        assert!(text.contains("\n| throughput") || text.contains("| Throughput |"));
        assert!(text.contains("\n> **Warning:** 1 request rejected (1 prompt\\_too\\_long)"));
        for table in text.split("\n\n").filter(|part| part.starts_with('|')) {
            let columns: Vec<_> =
                table.lines().map(|line| line.replace("\\|", "").matches('|').count()).collect();
            assert!(columns.len() > 2 && columns.windows(2).all(|pair| pair[0] == pair[1]));
        }
    }

    #[test]
    fn csv_names_every_figure_as_the_json_does() {
        let text = written(write_csv);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "name,value");
        for expected in [
            "latency.ttft_ms.p99,248.5",
            "latency.ttft_ms.p99.9,249.85",
            "requests.rejected.prompt_too_long,1",
            "engines.0.kv.used_ratio.max,0.251",
            "measured.warmup_ms,",
            "digest,000000000000feed",
        ] {
            assert!(lines.contains(&expected), "{expected} is not in {text}");
        }
        assert!(!text.contains("curves") && !text.contains("scenario"));
    }
}
