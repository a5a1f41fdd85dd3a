//! A page about a run: what came out, over time, by percentile, by engine and class, and the requests that took
//! longest.

mod facts;
mod latency;
mod passes;
mod requests;
mod timeline;

use std::path::Path;

use serde_json::Value;

use crate::base::ids::EngineId;
use crate::base::output::{OutputError, ResultFile};
use crate::base::time::{SimDuration, SimTime};
use crate::metrics::record::{PassRecord, Rejection, RequestRecord, Unserved};
use crate::metrics::series::TimeSeries;
use crate::metrics::slo::SloConfig;

use super::Report;
use super::page::FigureTable;
use super::page::{Block, Page, Section};
use super::sink::Sink;
use super::table;

/// Classes and engines that charts tell apart.
const SERIES_MAX: usize = super::page::chart::COLOURS;

/// Intervals of the time lines of a page.
const ROWS_MAX: usize = 256;

/// Takes down what the page of a run shows.
pub(crate) struct HtmlSink {
    file: ResultFile,
    classes: Vec<String>,
    latencies: latency::Latencies,
    series: TimeSeries,
    passes: passes::PassCloud,
    requests: requests::Requests,
}

impl HtmlSink {
    /// Opens `path`. `slo` are the objectives of the scenario; a sample keeps `exact_limit` distinct values.
    ///
    /// # Errors
    /// No file can be made there.
    pub(crate) fn create(
        path: &Path,
        slo: Option<SloConfig>,
        exact_limit: usize,
    ) -> Result<Self, OutputError> {
        Ok(Self {
            file: ResultFile::create(path, false)?,
            classes: Vec::new(),
            latencies: latency::Latencies::new(slo, exact_limit),
            series: TimeSeries::default(),
            passes: passes::PassCloud::default(),
            requests: requests::Requests::default(),
        })
    }
}

impl Sink for HtmlSink {
    fn engines(&mut self, usable_blocks: &[u32]) {
        self.series.engines(usable_blocks);
    }

    fn classes(&mut self, names: &[String]) {
        names.clone_into(&mut self.classes);
    }

    fn pass(&mut self, pass: &PassRecord) {
        self.series.pass(pass);
        self.passes.add(pass);
    }

    fn idle(&mut self, engine: EngineId, since: SimTime, waiting: u32) {
        self.series.idle(engine, since, waiting);
    }

    fn emission_gap(&mut self, gap: SimDuration, count: u64) {
        self.latencies.emission_gap(gap, count);
    }

    fn burst_tokens(&mut self, count: u64) {
        self.latencies.burst_tokens(count);
    }

    fn finished(&mut self, record: &RequestRecord, counted: bool) -> Result<(), OutputError> {
        self.series.finished(record);
        if counted {
            self.latencies.finished(record);
            self.requests.finished(record);
        }
        Ok(())
    }

    fn rejected(
        &mut self,
        request: &Unserved,
        _why: Rejection,
        _counted: bool,
    ) -> Result<(), OutputError> {
        self.series.unserved(request);
        Ok(())
    }

    fn unfinished(&mut self, request: &Unserved, _counted: bool) -> Result<(), OutputError> {
        self.series.unserved(request);
        Ok(())
    }

    fn finish(self: Box<Self>, report: &Report) -> Result<Vec<ResultFile>, OutputError> {
        let mut this = *self;
        let mut file = this.file;
        let classes = std::mem::take(&mut this.classes);
        let title = &report.title;
        let terminal = |table| Block::Table(FigureTable::of(&table));
        let mut latency = vec![terminal(table::latency(&report.run))];
        latency.extend(this.latencies.blocks(&classes));
        let mut sections = vec![section("Latency", latency)];
        sections.push(section("Over time", timeline::blocks(&this.series.finish(ROWS_MAX))));
        sections.extend(this.requests.sections(&classes, terminal(table::breakdown(&report.run))));
        sections.push(section("Passes", this.passes.blocks(report)));
        sections.push(section("Engines and classes", groups(report)));
        sections.push(section("What was run", facts::blocks(report)));
        let page = Page {
            title: format!("{}: servesim report", title.scenario),
            heading: title.scenario.clone(),
            about: format!(
                "{} | {} | servesim {}",
                title.engine, title.workload, report.servesim_version
            ),
            headline: facts::headline(report),
            notices: report.warnings.iter().map(ToString::to_string).collect(),
            sections,
            footer: format!(
                "Digest {} | charts by uPlot (MIT) | drag to zoom, double-click to zoom out, \
                 click a name to hide it",
                report.digest
            ),
        };
        file.fill(|out| page.write(out))?;
        Ok(vec![file])
    }
}

fn section(title: &str, blocks: Vec<Block>) -> Section {
    Section { title: title.to_owned(), blocks }
}

/// One line an engine, and one a class.
fn groups(report: &Report) -> Vec<Block> {
    let run = &report.run;
    let mut tables = vec![table::engines(run, usize::MAX)];
    if !run.classes.is_empty() {
        tables.push(table::classes(run, usize::MAX));
    }
    tables.iter().map(|table| Block::Table(FigureTable::of(table))).collect()
}

/// A value of a scenario or report as indented text.
fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("plain data")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::Value;

    use super::*;
    use crate::report::page::text_of_well_formed;
    use crate::report::sample;

    /// The page of `report` on the requests and passes of the sample.
    fn page(report: &Report, feed: bool) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.html");
        let slo = SloConfig { ttft_ms: Some(200.0), ..SloConfig::default() };
        let mut sink = HtmlSink::create(&path, Some(slo), 1000).unwrap();
        sink.engines(&[sample::BLOCKS]);
        sink.classes(&["chat </script>".to_owned(), "code".to_owned()]);
        if feed {
            sample::passes().iter().for_each(|pass| sink.pass(pass));
            let [first, second] = sample::requests();
            sink.finished(&first, true).unwrap();
            sink.finished(&RequestRecord { class: 1, ..second }, true).unwrap();
            sink.emission_gap(SimDuration::from_ns(50_000_000), 4);
        }
        for file in Box::new(sink).finish(report).unwrap() {
            file.close().unwrap();
        }
        fs::read_to_string(&path).unwrap()
    }

    /// Its charts by title.
    fn charts(html: &str) -> Vec<(String, Value)> {
        let parts = html.split("<div class=\"chart\" role=\"img\" aria-label=\"").skip(1);
        let chart = |part: &str| {
            let (title, rest) = part.split_once('"').unwrap();
            let (_, json) = rest.split_once("application/json\">").unwrap();
            let (json, _) = json.split_once("</script>").unwrap();
            (title.to_owned(), serde_json::from_str(json).unwrap())
        };
        parts.map(chart).collect()
    }

    #[test]
    fn the_page_has_the_numbers_of_the_run() {
        let html = page(&sample::report(), true);
        let text = text_of_well_formed(&html);
        for expected in [
            "two prompts",
            "TTFT p5",
            "1 request rejected (1 prompt_too_long)",
            "000000000000feed",
            "How passes were priced",
            "prefill only",
        ] {
            assert!(text.contains(expected), "{expected}");
        }
        let charts = charts(&html);
        let of = |name: &str| {
            let chart = charts.iter().find(|(title, _)| title == name);
            &chart.unwrap_or_else(|| panic!("there is no {name}")).1
        };
        // TTFT of 100 and 250 ms: half are at most 100. The curve begins before, and goes on behind.
        let ttft = of("TTFT: cumulative");
        assert_eq!(ttft["series"][0]["x"], serde_json::json!([97.0, 100.0, 250.0, 253.0]));
        assert_eq!(ttft["series"][0]["y"], serde_json::json!([0.0, 50.0, 100.0, 100.0]));
        let marks = ttft["marks"].as_array().unwrap();
        let labels: Vec<_> = marks.iter().map(|mark| mark["label"].as_str().unwrap()).collect();
        assert_eq!(labels, ["p50 175 ms", "p90 235 ms", "p95 243 ms", "p99 249 ms", "SLO 200 ms"]);
        // Passes of 1000, 2001, 2 and 1 tokens, by kind.
        let passes = of("What passes take");
        assert_eq!(passes["xs"], serde_json::json!([1.0, 2.0, 1000.0, 2001.0]));
        assert_eq!(passes["series"][2]["y"], serde_json::json!([null, null, null, 200.0]));
        let by_class = of("TTFT by class");
        assert_eq!(by_class["series"][0]["name"], "chat </script>");
        // The slower request queued for 50 ms of 250.
        let slow = of("TTFT by percentile");
        assert_eq!(slow["series"][0]["name"], "queueing");
        assert_eq!(slow["series"][0]["y"][5], 50.0);
    }

    #[test]
    fn a_run_of_nothing_is_a_page_without_charts() {
        let html = page(&sample::report(), false);
        text_of_well_formed(&html);
        assert!(charts(&html).is_empty());
        assert!(html.contains("two prompts"));
    }
}
