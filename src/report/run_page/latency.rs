//! Distributions: a curve and bars of each latency, and curves by class.

use crate::base::time::SimDuration;
use crate::metrics::distribution::Distribution;
use crate::metrics::record::RequestRecord;
use crate::metrics::samples::{Samples, Summary};
use crate::metrics::slo::{SloConfig, SloLimits};
use crate::report::format::count;
use crate::report::page::Block;
use crate::report::page::chart::{Axis, Chart, Form, Mark, Series};

use super::SERIES_MAX;

/// Points of a curve.
const POINTS_MAX: usize = 320;

/// Points of a curve of one class.
const CLASS_POINTS_MAX: usize = 200;

/// Bars of a histogram.
const BARS: usize = 48;

/// The latencies of one group of requests, each with its samples.
struct Group {
    ttft: Samples,
    tpot: Samples,
    e2e: Samples,
    queue: Samples,
}

/// What is drawn of the latencies.
pub(super) struct Latencies {
    slo: Option<SloConfig>,
    exact_limit: usize,
    all: Group,
    classes: Vec<Group>,
    /// Gaps between tokens, those of 0 within a burst included.
    itl: Samples,
    /// Gaps between emissions.
    gaps: Samples,
    bursts: bool,
}

impl Group {
    fn new(exact_limit: usize) -> Self {
        let samples = || Samples::new(exact_limit);
        Self { ttft: samples(), tpot: samples(), e2e: samples(), queue: samples() }
    }

    fn finished(&mut self, record: &RequestRecord) {
        self.ttft.record(record.ttft(), 1);
        if let Some(tpot) = record.tpot() {
            self.tpot.record(tpot, 1);
        }
        self.e2e.record(record.e2e(), 1);
        self.queue.record(record.queue(), 1);
    }
}

impl Latencies {
    pub(super) fn new(slo: Option<SloConfig>, exact_limit: usize) -> Self {
        let samples = || Samples::new(exact_limit);
        let all = Group::new(exact_limit);
        let (itl, gaps) = (samples(), samples());
        Self { slo, exact_limit, all, classes: Vec::new(), itl, gaps, bursts: false }
    }

    pub(super) fn finished(&mut self, record: &RequestRecord) {
        self.all.finished(record);
        let class = usize::from(record.class);
        if class < SERIES_MAX {
            while self.classes.len() <= class {
                self.classes.push(Group::new(self.exact_limit));
            }
            self.classes[class].finished(record);
        }
    }

    pub(super) fn emission_gap(&mut self, gap: SimDuration, count: u64) {
        self.itl.record(gap, count);
        self.gaps.record(gap, count);
    }

    pub(super) fn burst_tokens(&mut self, count: u64) {
        self.bursts |= count > 0;
        self.itl.record(SimDuration::ZERO, count);
    }

    /// Curves and bars, side by side, of what there are samples of; then the curves by class, of classes with these
    /// names.
    pub(super) fn blocks(mut self, classes: &[String]) -> Vec<Block> {
        let limits = self.slo.as_ref().map_or_else(SloLimits::default, SloConfig::of_all);
        let all = &mut self.all;
        let mut kinds = vec![
            ("TTFT", "arrival to first token", &mut all.ttft, limits.ttft_ms),
            (
                "TPOT",
                "time per output token after the first, a sample per request",
                &mut all.tpot,
                limits.tpot_ms,
            ),
            (
                "ITL",
                "gap between visible tokens, a sample per token",
                &mut self.itl,
                limits.itl_ms_p99,
            ),
            ("E2E", "arrival to last token", &mut all.e2e, limits.e2e_ms),
            ("Queue time", "arrival to first pass", &mut all.queue, None),
        ];
        if self.bursts {
            let what = "gap between visible emissions, each of one token or more";
            kinds.insert(3, ("Emission gap", what, &mut self.gaps, None));
        }
        let mut blocks = Vec::new();
        for (name, what, samples, limit_ms) in kinds {
            let summary = samples.summary();
            if summary.count == 0 {
                continue;
            }
            let distribution = samples.distribution();
            let note = format!("{what}; {} samples", count(summary.count));
            let marks = marks(&summary, limit_ms);
            blocks.push(Block::chart(Chart {
                title: format!("{name}: cumulative"),
                note,
                marks: marks.clone(),
                ..curves(name, &[(name, &distribution)], POINTS_MAX)
            }));
            blocks.push(Block::chart(Chart { marks, ..bars(name, &distribution) }));
        }
        if classes.len() > 1 && self.classes.len() > 1 {
            blocks.extend(self.by_class(classes));
        }
        blocks
    }

    fn by_class(&mut self, classes: &[String]) -> Vec<Block> {
        type Pick = fn(&mut Group) -> &mut Samples;
        type Limit = fn(&SloLimits) -> Option<f64>;
        let kinds: [(&str, Pick, Limit); 4] = [
            ("TTFT", |group| &mut group.ttft, |limits| limits.ttft_ms),
            ("TPOT", |group| &mut group.tpot, |limits| limits.tpot_ms),
            ("E2E", |group| &mut group.e2e, |limits| limits.e2e_ms),
            ("Queue time", |group| &mut group.queue, |_| None),
        ];
        let mut blocks = Vec::new();
        for (name, pick, limit) in kinds {
            let of_classes = self.classes.iter_mut().map(|group| pick(group).distribution());
            let of_classes: Vec<_> = of_classes.collect();
            let named: Vec<_> = classes.iter().map(String::as_str).zip(&of_classes).collect();
            let limits = classes.iter().take(SERIES_MAX).filter_map(|class| {
                Some((class.as_str(), limit(&self.slo.as_ref()?.of_class(class))?))
            });
            let marks = limits_of(limits);
            let chart = curves(name, &named, CLASS_POINTS_MAX);
            if !chart.series.is_empty() {
                let title = format!("{name} by class");
                blocks.push(Block::chart(Chart { title, marks, ..chart }));
            }
        }
        blocks
    }
}

fn marks(summary: &Summary, limit_ms: Option<f64>) -> Vec<Mark> {
    let percentiles =
        [("p50", summary.p50), ("p90", summary.p90), ("p95", summary.p95), ("p99", summary.p99)];
    let percentiles = percentiles.into_iter().filter_map(|(name, ms)| {
        Some(Mark { at: ms?, label: format!("{name} {}", rounded(ms?)), limit: false })
    });
    let limit = limit_ms.map(|at| Mark { at, label: format!("SLO {}", rounded(at)), limit: true });
    percentiles.chain(limit).collect()
}

/// A mark for each limit, with the classes that have it.
fn limits_of<'a>(limits: impl Iterator<Item = (&'a str, f64)>) -> Vec<Mark> {
    let mut marks: Vec<Mark> = Vec::new();
    for (class, at) in limits {
        match marks.iter_mut().find(|mark| mark.at.total_cmp(&at).is_eq()) {
            Some(mark) => mark.label.extend([", ", class]),
            None => marks.push(Mark { at, label: format!("SLO {class}"), limit: true }),
        }
    }
    marks
}

/// A time as short as a mark has room for.
fn rounded(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.2} ms"),
        ms if ms < 100.0 => format!("{ms:.1} ms"),
        ms if ms < 10_000.0 => format!("{} ms", count(ms.round() as u64)),
        ms if ms < 100_000.0 => format!("{:.1} s", ms / 1e3),
        ms => format!("{} s", count((ms / 1e3).round() as u64)),
    }
}

/// The part of the samples at or below each value: one curve a distribution that has any.
pub(crate) fn curves(what: &str, of: &[(&str, &Distribution)], points_max: usize) -> Chart {
    let floor = of.iter().filter_map(|(_, distribution)| distribution.positive_min_ms());
    let floor = floor.fold(f64::INFINITY, f64::min);
    let log = floor.is_finite() && of.iter().any(|(_, distribution)| distribution.is_wide());
    let mut series = Vec::new();
    for (colour, (name, distribution)) in (1..).zip(of) {
        let points = distribution.cumulative(points_max);
        let (Some(first), Some(last)) = (points.first(), points.last()) else { continue };
        // A curve rises from 0, and goes on for a bit at 1.
        let span = (last.0 - first.0).max(first.0 * 0.02).max(1e-3);
        let place = |ms: f64| if log { ms.max(floor / 2.0) } else { ms };
        let before = if log { place(first.0) / 1.02 } else { (first.0 - span * 0.02).max(0.0) };
        let after = if log { last.0 * 1.02 } else { last.0 + span * 0.02 };
        let mut x = Vec::with_capacity(points.len() + 2);
        let mut y = Vec::with_capacity(points.len() + 2);
        if before < place(first.0) {
            x.push(before);
            y.push(Some(0.0));
        }
        for &(ms, part) in points.iter().chain([&(after, 1.0)]) {
            x.push(place(ms));
            y.push(Some(part * 100.0));
        }
        let form = Form::Step;
        series.push(Series { name: (*name).to_owned(), form, colour, soft: false, x, y });
    }
    Chart {
        x: Axis { log, ..Axis::of(&format!("{what} (ms)"), "ms") },
        y: Axis { max: Some(100.0), ..Axis::of("samples at or below (%)", "%") },
        series,
        ..Chart::default()
    }
}

fn bars(name: &str, distribution: &Distribution) -> Chart {
    let bars = distribution.bars(BARS);
    let log = distribution.is_wide();
    let counts = bars.counts.iter().copied().chain([0]).map(|count| count as f64);
    Chart {
        title: format!("{name}: histogram"),
        note: if log {
            "each bar is wider than the last by the same factor"
        } else {
            "bars of equal width"
        }
        .to_owned(),
        x: Axis { log, ..Axis::of(&format!("{name} (ms)"), "ms") },
        y: Axis::of("samples", ""),
        series: vec![Series::of("samples from here", Form::Area, 2, counts)],
        xs: Some(bars.edges_ms),
        ..Chart::default()
    }
}
