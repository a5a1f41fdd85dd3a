//! Single requests: what those around a percentile are made of, all of them by arrival, and the slowest.

use crate::base::time::SimTime;
use crate::metrics::cloud::{Cloud, Point, Steps};
use crate::metrics::ranks::{Breakdowns, PARTS, Slowest, parts_of};
use crate::metrics::record::RequestRecord;
use crate::report::format::{UNKNOWN, count, figure, known};
use crate::report::page::chart::{Axis, Chart, Form, Series};
use crate::report::page::{Block, FigureTable, Section};

use super::passes::scatter;
use super::{SERIES_MAX, section};

/// Requests of a table.
const SLOWEST: usize = 20;

/// Points of the chart over arrivals.
const POINTS_MAX: usize = 3000;

/// Arrivals that lie no further apart (in ns) are told apart at first.
const ARRIVAL_STEP_NS: u64 = 1_000_000;

/// What is kept of single requests.
pub(super) struct Requests {
    breakdowns: Breakdowns,
    by_arrival: Cloud,
    by_ttft: Slowest,
    by_e2e: Slowest,
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            breakdowns: Breakdowns::default(),
            by_arrival: Cloud::new(Steps::Even(ARRIVAL_STEP_NS)),
            by_ttft: Slowest::new(SLOWEST),
            by_e2e: Slowest::new(SLOWEST),
        }
    }
}

impl Requests {
    pub(super) fn finished(&mut self, record: &RequestRecord) {
        self.breakdowns.add(record);
        // Classes without a colour of their own share the last.
        let group = record.class.min(SERIES_MAX as u16 - 1);
        let (x, y) = (record.arrival.since(SimTime::ZERO).as_ns(), record.ttft().as_ns());
        self.by_arrival.add(Point { group, x, y });
        self.by_ttft.add(record.ttft(), record);
        self.by_e2e.add(record.e2e(), record);
    }

    /// `mean` is the table of the parts over all requests.
    pub(super) fn sections(self, classes: &[String], mean: Block) -> Vec<Section> {
        if self.by_ttft.requests().next().is_none() {
            return Vec::new();
        }
        let mut why = explained(self.breakdowns);
        why.insert(1, Block::chart(by_arrival(self.by_arrival, classes)));
        why.push(mean);
        let slowest = vec![
            Block::Table(slowest("The slowest by TTFT", &self.by_ttft, classes)),
            Block::Table(slowest("The slowest by E2E", &self.by_e2e, classes)),
        ];
        vec![section("What the TTFT is made of", why), section("The slowest requests", slowest)]
    }
}

/// A chart, and a table with its numbers.
fn explained(breakdowns: Breakdowns) -> Vec<Block> {
    let explained = breakdowns.explain();
    let series = PARTS.iter().enumerate().map(|(part, name)| {
        let times = explained.iter().map(|percentile| percentile.parts_ms[part]);
        Series::of(name, Form::Bars, part + 1, times)
    });
    // A part that nobody has is no more than a name.
    let series = series.filter(|series| series.y.iter().flatten().any(|&ms| ms > 0.0));
    let names = explained.iter().map(|percentile| percentile.name.to_owned());
    let chart = Chart {
        title: "TTFT by percentile".to_owned(),
        note: "mean parts of the requests around each percentile".to_owned(),
        x: Axis { categories: Some(names.collect()), ..Axis::of("percentile of the TTFT", "") },
        y: Axis::of("TTFT (ms)", "ms"),
        xs: Some((0..explained.len()).map(|number| number as f64).collect()),
        series: series.collect(),
        stacked: true,
        ..Chart::default()
    };
    let header = ["", "requests"].into_iter().chain(PARTS).chain(["TTFT"]);
    let row = |percentile: &crate::metrics::ranks::Explained| {
        let parts = &percentile.parts_ms;
        [percentile.name.to_owned(), count(percentile.requests as u64)]
            .into_iter()
            .chain(parts.iter().copied().map(figure))
            .chain([figure(parts.iter().sum())])
            .collect()
    };
    let table = FigureTable {
        title: "TTFT by percentile (ms)".to_owned(),
        header: header.map(str::to_owned).collect(),
        rows: explained.iter().map(row).collect(),
    };
    vec![Block::chart(chart), Block::Table(table)]
}

fn by_arrival(cloud: Cloud, classes: &[String]) -> Chart {
    let points = cloud.into_points(POINTS_MAX);
    let mut names: Vec<&str> = classes.iter().take(SERIES_MAX).map(String::as_str).collect();
    match names.last_mut() {
        None => names.push("requests"),
        Some(last) if classes.len() > SERIES_MAX => *last = "other classes",
        Some(_) => {}
    }
    let mut chart = scatter(&points, &names);
    for x in chart.xs.iter_mut().flatten() {
        *x /= 1e9;
    }
    Chart {
        title: "TTFT by arrival".to_owned(),
        note: "a point stands for requests that arrived and waited nearly alike; the extremes are there"
            .to_owned(),
        x: Axis::of("arrival (s)", "s"),
        y: Axis { log: chart.y.log, ..Axis::of("TTFT (ms)", "ms") },
        sync: Some("time"),
        ..chart
    }
}

fn slowest(title: &str, slowest: &Slowest, classes: &[String]) -> FigureTable {
    let mut header = vec!["request", "line", "engine", "class", "arrival (s)"];
    header.extend(["prompt", "cached", "output", "preemptions"]);
    header.extend(PARTS);
    header.extend(["TTFT", "TPOT", "E2E"]);
    let row = |record: &RequestRecord| {
        let class = classes.get(usize::from(record.class)).cloned();
        let line = (record.line > 0).then_some(record.line);
        let ms = |ns: u64| figure(ns as f64 / 1e6);
        let mut row = vec![
            count(record.id.0.into()),
            known(line, count),
            record.engine.0.to_string(),
            class.unwrap_or_else(|| UNKNOWN.to_owned()),
            figure(record.arrival.as_s()),
            count(record.prompt_tokens.into()),
            count(record.cached_tokens.into()),
            count(record.output_tokens.into()),
            count(record.preemptions.into()),
        ];
        row.extend(parts_of(&record.ttft).map(ms));
        row.push(figure(record.ttft().as_ms()));
        row.push(known(record.tpot(), |tpot| figure(tpot.as_ms())));
        row.push(figure(record.e2e().as_ms()));
        row
    };
    let title = format!("{title} (times in ms, lengths in tokens)");
    let mut table = FigureTable {
        title,
        header: header.into_iter().map(str::to_owned).collect(),
        rows: slowest.requests().map(row).collect(),
    };
    // What no request has is not worth a column.
    for column in (1..table.header.len()).rev() {
        if table.rows.iter().all(|row| row[column] == UNKNOWN)
            || PARTS.iter().chain(&["preemptions"]).any(|name| table.header[column] == *name)
                && table.rows.iter().all(|row| row[column] == "0")
        {
            table.header.remove(column);
            table.rows.iter_mut().for_each(|row| drop(row.remove(column)));
        }
    }
    table
}
