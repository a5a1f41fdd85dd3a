//! What passes cost: each as a point, and the sums by kind.

use crate::metrics::cloud::{Cloud, Point, Steps};
use crate::metrics::passes::kind;
use crate::metrics::record::PassRecord;
use crate::report::Report;
use crate::report::page::chart::{Axis, Chart, Form, Series};
use crate::report::page::{Block, FigureTable};
use crate::report::table;

/// Points of the chart.
const POINTS_MAX: usize = 4000;

/// Passes as points: their tokens, and how long they take.
pub(super) struct PassCloud(Cloud);

impl Default for PassCloud {
    fn default() -> Self {
        Self(Cloud::new(Steps::Octaves))
    }
}

impl PassCloud {
    /// One pass, or several alike, which are a point at their mean time.
    pub(super) fn add(&mut self, pass: &PassRecord) {
        let tokens = u64::from(pass.prefill_tokens) + u64::from(pass.decode_tokens);
        let ns = pass.end.since(pass.start).as_ns() / pass.passes.max(1);
        self.0.add(Point { group: kind(pass) as u16, x: tokens, y: ns });
    }

    pub(super) fn blocks(self, report: &Report) -> Vec<Block> {
        let points = self.0.into_points(POINTS_MAX);
        let mut blocks = Vec::new();
        if !points.is_empty() {
            let chart = scatter(&points, &["prefill only", "decode only", "mixed"]);
            let label = "tokens of the pass";
            blocks.push(Block::chart(Chart {
                title: "What passes take".to_owned(),
                note:
                    "a point stands for passes of nearly the same size and time; the extremes of \
                       each kind are there"
                        .to_owned(),
                wide: true,
                x: Axis { label: label.to_owned(), ..chart.x },
                y: Axis { label: "time of a pass (ms)".to_owned(), unit: "ms", ..chart.y },
                ..chart
            }));
        }
        blocks.push(Block::Table(FigureTable::of(&table::passes(&report.run))));
        blocks
    }
}

/// Points with their y from ns to ms, coloured by group; an axis goes by powers if its values differ much.
pub(super) fn scatter(points: &[Point], groups: &[&str]) -> Chart {
    let is_wide = |values: &dyn Fn(&Point) -> u64| {
        let least = points.iter().map(values).min().unwrap_or(0);
        let most = points.iter().map(values).max().unwrap_or(0);
        least > 0 && most / 30 > least
    };
    let series = groups.iter().enumerate().filter_map(|(group, name)| {
        let own = |point: &Point| (usize::from(point.group) == group).then(|| point.y as f64 / 1e6);
        let y: Vec<_> = points.iter().map(own).collect();
        let some = y.iter().any(Option::is_some);
        some.then(|| Series {
            name: (*name).to_owned(),
            form: Form::Points,
            colour: group + 1,
            y,
            ..Series::default()
        })
    });
    Chart {
        series: series.collect(),
        xs: Some(points.iter().map(|point| point.x as f64).collect()),
        x: Axis { log: is_wide(&|point| point.x), ..Axis::default() },
        y: Axis { log: is_wide(&|point| point.y), ..Axis::default() },
        ..Chart::default()
    }
}
