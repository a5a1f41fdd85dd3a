//! A comparison as tables and as CSV.

use std::io::{self, Write};

use comfy_table::Table;

use super::speculation::named;
use super::{Comparison, Figure, letter};
use crate::report::format::{count, figure, known, signed, signed_percent};
use crate::report::plain;
use crate::report::results::model::{Percent, Quantity, Statistic};
use crate::report::table::{Look, Piece, table, write_pieces};

impl Comparison {
    /// Writes it as tables for a terminal.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub(crate) fn write_table(&self, out: &mut dyn Write) -> io::Result<()> {
        write_pieces(self.pieces(), Look::default(), out)
    }

    /// Writes the same tables as Markdown.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub(crate) fn write_markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        plain::write_pieces(self.pieces(), out)
    }

    /// Writes a row for every figure of every file but the first, not rounded. What is unknown is an empty cell.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub(crate) fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut writer = csv::Writer::from_writer(out);
        writer.write_record([
            "file",
            "figure",
            "unit",
            "a",
            "value",
            "difference",
            "relative_error",
        ])?;
        let cell = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
        for row in &self.figures {
            for (at, file) in self.files.iter().enumerate().skip(1) {
                writer.write_record([
                    file.name.as_str(),
                    &row.name,
                    row.unit,
                    &cell(row.values[0]),
                    &cell(row.values[at]),
                    &cell(row.differences[at]),
                    &cell(row.relative_errors[at]),
                ])?;
            }
        }
        for apart in &self.distances {
            let file = self.files[apart.file].name.as_str();
            let ks = format!("{}_ks", apart.quantity.key());
            writer.write_record([file, &ks, "", "", &apart.ks.to_string(), "", ""])?;
            let (w1, ratio) = (format!("{}_w1", apart.quantity.key()), cell(apart.w1_ratio));
            writer.write_record([file, &w1, "ms", "", &apart.w1_ms.to_string(), "", &ratio])?;
        }
        writer.flush()
    }

    pub(super) fn pieces(&self) -> Vec<Vec<Piece>> {
        let mut head: Vec<Piece> = Vec::new();
        for (at, file) in self.files.iter().enumerate() {
            head.push(Piece::Line(format!("{}: {} | {}", letter(at), file.name, file.title)));
        }
        if !self.differing_fields.is_empty() {
            head.push(Piece::Line(format!(
                "Scenarios differ in {}",
                named(&self.differing_fields)
            )));
        }
        let mut groups = vec![head];
        if self.figures.is_empty() {
            groups.push(vec![Piece::Line("They have no figure in common".to_owned())]);
        } else {
            groups.push(vec![Piece::table(self.figures_table())]);
        }
        groups.extend(self.errors_table().map(|table| vec![Piece::table(table)]));
        groups.extend(self.distances_table().map(|table| vec![Piece::table(table)]));
        let refused = self.not_compared.iter().map(|refusal| {
            let b = letter(refusal.file);
            let (one, two) = (&refusal.a, &refusal.b);
            Piece::Line(format!(
                "Not compared: `{one}` of A and `{two}` of {b}: {}",
                refusal.reason
            ))
        });
        groups.push(refused.collect());
        let definitions = self.definitions.iter();
        groups.push(definitions.map(|text| Piece::Line(format!("Definitions, {text}"))).collect());
        groups.extend(
            self.speculation.as_ref().map(|speed_up| vec![Piece::Line(speed_up.sentence())]),
        );
        groups
    }

    /// Means, spreads and the foremost percentiles; those that are not among the usual as well.
    fn figures_table(&self) -> Table {
        let mut header = vec!["Figure".to_owned(), "A".to_owned()];
        for at in 1..self.files.len() {
            let letter = letter(at);
            header.extend([letter.clone(), format!("{letter} - A"), "error %".to_owned()]);
        }
        let rows = self.figures.iter().filter(|row| self.is_shown(row)).map(|row| {
            let is_count = row.quantity.is_count();
            let shown = |value: f64| if is_count { count(value as u64) } else { figure(value) };
            let difference = |value: f64| signed(value, shown);
            let unit = if row.unit == "ms" || row.unit == "s" {
                format!(" ({})", row.unit)
            } else {
                String::new()
            };
            let statistic = match row.statistic {
                Statistic::Value => String::new(),
                statistic => format!(" {statistic}"),
            };
            let mut cells = vec![format!("{}{statistic}{unit}", row.quantity.label())];
            cells.push(known(row.values[0], shown));
            for at in 1..self.files.len() {
                cells.push(known(row.values[at], shown));
                cells.push(known(row.differences[at], difference));
                cells.push(known(row.relative_errors[at], signed_percent));
            }
            cells
        });
        let rows = rows.collect();
        table(&header.iter().map(String::as_str).collect::<Vec<_>>(), rows)
    }

    fn is_shown(&self, row: &Figure) -> bool {
        let Statistic::Percentile(percent) = row.statistic else { return !self.repeats_itl(row) };
        let foremost = [50.0, 90.0, 99.0].map(Percent::of);
        let is_foremost = foremost.contains(&percent) || !Percent::USUAL.contains(&percent);
        is_foremost && !self.repeats_itl(row)
    }

    /// Whether it is of emissions and says the same as that of tokens: without speculation each token is one.
    pub(super) fn repeats_itl(&self, row: &Figure) -> bool {
        let is_itl =
            |other: &&Figure| (other.quantity, other.statistic) == (Quantity::Itl, row.statistic);
        row.quantity == Quantity::EmissionGap
            && self.figures.iter().find(is_itl).is_some_and(|itl| itl.values == row.values)
    }

    /// The relative error of each latency by its percentile.
    fn errors_table(&self) -> Option<Table> {
        let mut rows = Vec::new();
        for quantity in Quantity::ALL.into_iter().filter(|quantity| quantity.is_latency()) {
            for at in 1..self.files.len() {
                let error = |percent: Percent| {
                    let is_one = |row: &&Figure| {
                        row.quantity == quantity && row.statistic == Statistic::Percentile(percent)
                    };
                    let row = self.figures.iter().find(is_one).filter(|row| !self.repeats_itl(row));
                    row.and_then(|row| row.relative_errors[at])
                };
                let errors: Vec<_> = shown_percents().map(error).collect();
                if errors.iter().any(Option::is_some) {
                    let mut cells = vec![format!("{} {}", quantity.label(), letter(at))];
                    cells.extend(errors.into_iter().map(|error| known(error, signed_percent)));
                    rows.push(cells);
                }
            }
        }
        let mut header = vec!["Error (%)".to_owned()];
        header.extend(shown_percents().map(|percent| percent.to_string()));
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        (!rows.is_empty()).then(|| table(&header, rows))
    }

    fn distances_table(&self) -> Option<Table> {
        let mut emissions = self.figures.iter().filter(|row| row.quantity == Quantity::EmissionGap);
        let emissions_repeat = emissions.all(|row| self.repeats_itl(row));
        let rows: Vec<_> = self
            .distances
            .iter()
            .filter(|apart| apart.quantity != Quantity::EmissionGap || !emissions_repeat)
            .map(|apart| {
                vec![
                    format!("{} {}", apart.quantity.label(), letter(apart.file)),
                    figure(apart.ks),
                    figure(apart.w1_ms),
                    known(apart.w1_ratio.map(|ratio| ratio * 100.0), figure),
                ]
            })
            .collect();
        let header = ["Distance", "KS (0-1)", "W1 (ms)", "W1 / mean of A (%)"];
        (!rows.is_empty()).then(|| table(&header, rows))
    }
}

/// The usual percentiles but p5: a terminal has no room for more.
fn shown_percents() -> impl Iterator<Item = Percent> {
    Percent::USUAL.into_iter().filter(|&percent| percent != Percent::of(5.0))
}
