//! A comparison as a page: distributions over each other, errors by percentile, and the tables.

use std::io::{self, Write};

use super::{Comparison, letter};
use crate::report::page::chart::{Axis, COLOURS, Chart, Form, Mark, Series};
use crate::report::page::{Block, FigureTable, Page, Section};
use crate::report::results::distribution::{Distribution, Knot};
use crate::report::results::model::{Percent, Quantity, Results, Statistic};
use crate::report::table::Piece;

/// Points of a curve.
const POINTS_MAX: usize = 320;

/// How many times the median the largest value is where an even axis would be empty for the most part.
const LONG_TAIL: f64 = 10.0;

impl Comparison {
    /// Writes it as a page, with the distributions of the `results` it is of.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub(crate) fn write_html(&self, results: &[Results], out: &mut dyn Write) -> io::Result<()> {
        let names: Vec<String> = self.files.iter().map(|file| file.name.clone()).collect();
        let section = |title: &str, blocks| Section { title: title.to_owned(), blocks };
        let latencies: Vec<Quantity> = Quantity::ALL
            .into_iter()
            .filter(|&quantity| quantity.is_latency() && !self.repeats(quantity))
            .collect();
        let distributions = latencies.iter().filter_map(|&q| overlaid(q, results));
        let errors = latencies.iter().filter_map(|&q| self.errors(q));
        let mut tables = Vec::new();
        let mut remarks = Vec::new();
        for piece in self.pieces().into_iter().flatten() {
            match piece {
                Piece::Table(table) => tables.push(Block::Table(FigureTable::of(&table))),
                Piece::Line(text) | Piece::Warning(text) => remarks.push(vec![text]),
                Piece::Title(_) | Piece::Picture(_) => {}
            }
        }
        let remarks =
            FigureTable { title: "What is compared".to_owned(), header: Vec::new(), rows: remarks };
        let page = Page {
            title: format!("{}: comparison", names.join(", ")),
            heading: names.join(" against "),
            about: "The first is what the others are measured by.".to_owned(),
            headline: Vec::new(),
            notices: Vec::new(),
            sections: vec![
                section("Files", vec![Block::Table(remarks)]),
                section("Distributions", distributions.map(Block::chart).collect()),
                section("Errors by percentile", errors.map(Block::chart).collect()),
                section("Figures", tables),
            ],
            footer: format!("servesim {}", env!("CARGO_PKG_VERSION")),
        };
        page.write(out)
    }

    /// Whether all that is known of a latency is known of another one.
    fn repeats(&self, quantity: Quantity) -> bool {
        let mut rows = self.figures.iter().filter(|row| row.quantity == quantity).peekable();
        rows.peek().is_some() && rows.all(|row| self.repeats_itl(row))
    }

    /// How far each percentile is from the first file's, in percent of that; `None` where no other knows it.
    fn errors(&self, quantity: Quantity) -> Option<Chart> {
        let of = |at: usize, percent: Percent| {
            let is_one = |row: &&super::Figure| {
                row.quantity == quantity && row.statistic == Statistic::Percentile(percent)
            };
            let row = self.figures.iter().find(is_one)?;
            row.relative_errors[at].map(|error| error * 100.0)
        };
        let known = |&percent: &Percent| (1..self.files.len()).any(|at| of(at, percent).is_some());
        let percents: Vec<Percent> = Percent::USUAL.into_iter().filter(known).collect();
        if percents.is_empty() {
            return None;
        }
        let series = (1..self.files.len()).map(|at| Series {
            name: letter(at),
            form: Form::Line,
            colour: at % COLOURS + 1,
            y: percents.iter().map(|&percent| of(at, percent)).collect(),
            ..Series::default()
        });
        Some(Chart {
            title: format!("{}: error", quantity.label()),
            note: "difference from A in percent of A".to_owned(),
            x: Axis {
                categories: Some(percents.iter().map(Percent::to_string).collect()),
                ..Axis::of("percentile", "")
            },
            y: Axis::of("error (%)", "%"),
            xs: Some((0..percents.len()).map(|place| place as f64).collect()),
            series: series.collect(),
            ..Chart::default()
        })
    }
}

/// The distributions of a latency over each other; `None` unless two files know theirs.
fn overlaid(quantity: Quantity, results: &[Results]) -> Option<Chart> {
    let known: Vec<(usize, &Distribution)> = results
        .iter()
        .enumerate()
        .filter_map(|(at, results)| Some((at, results.measure(quantity)?.distribution.as_ref()?)))
        .collect();
    if known.len() < 2 {
        return None;
    }
    let all: Vec<(usize, Vec<Knot>)> = known.iter().map(|&(at, of)| (at, of.knots())).collect();
    let knots = || all.iter().flat_map(|(_, knots)| knots);
    let largest = knots().map(|knot| knot.value).fold(0.0, f64::max);
    let floor = knots().map(|knot| knot.value).filter(|&value| value > 0.0);
    let floor = floor.fold(f64::INFINITY, f64::min);
    // Where more than a twentieth is 0, which no power is, an axis should not go by powers.
    let is_wide = |knots: &Vec<Knot>| {
        let at =
            |share: f64| knots.iter().find(|knot| knot.no_more >= share).map(|knot| knot.value);
        at(0.05) > Some(0.0) && at(0.5).is_some_and(|median| largest > LONG_TAIL * median)
    };
    let log = all.iter().any(|(_, knots)| is_wide(knots));
    let curve = |(at, knots): &(usize, Vec<Knot>)| {
        let points = thinned(knots);
        let place = |value: f64| if log { value.max(floor / 2.0) } else { value };
        Series {
            name: letter(*at),
            form: Form::Line,
            colour: at % COLOURS + 1,
            x: points.iter().map(|&(value, _)| place(value)).collect(),
            y: points.iter().map(|&(_, share)| Some(share * 100.0)).collect(),
            ..Series::default()
        }
    };
    let what = quantity.label();
    Some(Chart {
        title: format!("{what}: cumulative"),
        note: quantity.meaning().to_owned(),
        x: Axis { log, ..Axis::of(&format!("{what} (ms)"), "ms") },
        y: Axis { max: Some(100.0), ..Axis::of("samples at or below (%)", "%") },
        series: all.iter().map(curve).collect(),
        marks: medians(&all),
        ..Chart::default()
    })
}

/// The median of each.
fn medians(all: &[(usize, Vec<Knot>)]) -> Vec<Mark> {
    let median = |(at, knots): &(usize, Vec<Knot>)| {
        let knot = knots.iter().find(|knot| knot.no_more >= 0.5)?;
        Some(Mark { at: knot.value, label: format!("p50 {}", letter(*at)), limit: false })
    };
    all.iter().filter_map(median).collect()
}

/// At most [`POINTS_MAX`] points of a distribution function, evenly over the shares, and the extremes.
fn thinned(knots: &[Knot]) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    let step = 1.0 / (POINTS_MAX - 2) as f64;
    let mut next = 0.0;
    for (at, knot) in knots.iter().enumerate() {
        let is_end = at == 0 || at + 1 == knots.len();
        if is_end || knots.len() <= POINTS_MAX || knot.no_more >= next {
            points.push((knot.value, knot.no_more));
            next = knot.no_more + step;
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_values_become_a_curve_with_its_ends() {
        let values = (1..=10_000).map(|value| (f64::from(value), 1)).collect();
        let points = thinned(&Distribution::samples(values).unwrap().knots());
        assert!(points.len() <= POINTS_MAX && points.len() > POINTS_MAX / 2, "{}", points.len());
        assert_eq!((points[0], *points.last().unwrap()), ((1.0, 1e-4), (10_000.0, 1.0)));
    }
}
