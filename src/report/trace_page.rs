//! A page about a trace: pictures and figures, in one file that needs nothing else.

use std::io::{self, Write};

use super::page::chart::{Axis, Chart, Form, Series};
use super::page::{Block, FigureTable, Page, Section};

/// What the page is about, as plain numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct TracePage {
    /// What the trace is called.
    pub(crate) name: String,
    /// The figures that matter most, with what they are.
    pub(crate) headline: Vec<(String, String)>,
    /// Start of the first bin of time, and the width of each.
    pub(crate) from_s: f64,
    pub(crate) bin_s: f64,
    /// Requests that arrive in each bin.
    pub(crate) arrivals: Vec<u64>,
    /// Different prompt tokens up to the end of each bin.
    pub(crate) working_set_tokens: Vec<u64>,
    /// How many prompts have at least so many tokens, and less than so many.
    pub(crate) prompt_lengths: Vec<Bin>,
    /// The same of outputs.
    pub(crate) output_lengths: Vec<Bin>,
    /// Cache sizes in tokens, with the part of all prompt tokens that a cache of that size finds.
    pub(crate) hit_ratios: Vec<(u64, f64)>,
    /// What a cache that forgets nothing finds.
    pub(crate) ideal_hit_ratio: Option<f64>,
    pub(crate) tables: Vec<FigureTable>,
}

/// How many lengths are at least `from` and below `to`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bin {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) requests: u64,
}

impl TracePage {
    /// Writes the page as HTML.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let charts = self.charts().into_iter().map(Block::chart).collect();
        let tables = self.tables.iter().cloned().map(Block::Table).collect();
        let section = |title: &str, blocks: Vec<Block>| Section { title: title.to_owned(), blocks };
        let page = Page {
            title: format!("{}: trace statistics", self.name),
            heading: self.name.clone(),
            about: format!("What a trace asks for, by servesim {}", env!("CARGO_PKG_VERSION")),
            headline: self.headline.clone(),
            sections: vec![section("Pictures", charts), section("Figures", tables)],
            ..Page::default()
        };
        page.write(out)
    }

    fn charts(&self) -> Vec<Chart> {
        let mut charts = vec![self.arrivals()];
        charts.extend(self.hits());
        charts.extend(lengths("Prompt lengths", "prompt tokens", &self.prompt_lengths));
        charts.extend(lengths("Output lengths", "output tokens", &self.output_lengths));
        charts.push(self.working_set());
        charts
    }

    /// What is true of each bin of time.
    fn over_time(&self, title: &str, label: &str, name: &str, values: &[u64]) -> Chart {
        let starts = 0..=values.len();
        let held = values.iter().chain(values.last()).map(|&value| value as f64);
        Chart {
            title: title.to_owned(),
            x: Axis::of("time (s)", "s"),
            y: Axis::of(label, ""),
            xs: Some(starts.map(|number| self.from_s + self.bin_s * number as f64).collect()),
            series: vec![Series::of(name, Form::Area, 1, held)],
            sync: Some("time"),
            ..Chart::default()
        }
    }

    fn arrivals(&self) -> Chart {
        let label = format!("requests per {} s", self.bin_s);
        self.over_time("Arrivals", &label, "arrivals", &self.arrivals)
    }

    fn working_set(&self) -> Chart {
        let label = "different prompt tokens";
        self.over_time("Working set", label, "working set so far", &self.working_set_tokens)
    }

    /// `None` where nothing is known of what prompts share.
    fn hits(&self) -> Option<Chart> {
        self.hit_ratios.first()?;
        let ratios = self.hit_ratios.iter().map(|&(_, ratio)| ratio * 100.0);
        let mut series = vec![Series::of("a cache of this size", Form::Line, 1, ratios)];
        if let Some(ideal) = self.ideal_hit_ratio {
            let ideal = self.hit_ratios.iter().map(|_| ideal * 100.0);
            series.push(Series::of("one that forgets nothing", Form::Line, 2, ideal));
        }
        Some(Chart {
            title: "Prefix hits by cache size".to_owned(),
            x: Axis { log: true, ..Axis::of("cache size (tokens)", "tokens") },
            y: Axis::of("hits (% of prompt tokens)", "%"),
            xs: Some(self.hit_ratios.iter().map(|&(tokens, _)| tokens as f64).collect()),
            series,
            ..Chart::default()
        })
    }
}

/// `None` where there are none.
fn lengths(title: &str, what: &str, bins: &[Bin]) -> Option<Chart> {
    let (mut xs, mut counts) = (Vec::new(), Vec::new());
    let mut end = bins.first()?.from;
    for bin in bins {
        if bin.from > end {
            xs.push(end as f64);
            counts.push(0.0);
        }
        // 0 lies half a step before 1.
        xs.push((bin.from as f64).max(0.5));
        counts.push(bin.requests as f64);
        end = bin.to;
    }
    xs.push(end as f64);
    counts.push(0.0);
    Some(Chart {
        title: title.to_owned(),
        x: Axis { log: true, ..Axis::of(&format!("{what} (in powers of two)"), "tokens") },
        y: Axis::of("requests", ""),
        xs: Some(xs),
        series: vec![Series::of("requests from here to the double", Form::Area, 2, counts)],
        ..Chart::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::page::text_of_well_formed;
    use super::*;

    fn page() -> TracePage {
        let text = str::to_owned;
        TracePage {
            name: text("<odd> & \"named\".jsonl"),
            headline: vec![(text("requests"), text("1,234"))],
            from_s: 0.0,
            bin_s: 10.0,
            arrivals: vec![800, 434],
            working_set_tokens: vec![70_001, 123_457],
            prompt_lengths: vec![Bin { from: 512, to: 1024, requests: 1234 }],
            output_lengths: vec![
                Bin { from: 0, to: 1, requests: 4 },
                Bin { from: 1, to: 2, requests: 1230 },
            ],
            hit_ratios: vec![(512, 0.0123), (1024, 0.25)],
            ideal_hit_ratio: Some(0.3),
            tables: vec![FigureTable {
                title: text("Lengths"),
                header: vec![text("tokens"), text("mean")],
                rows: vec![vec![text("prompt"), text("a < b")]],
            }],
        }
    }

    fn written(page: &TracePage) -> String {
        let mut html = Vec::new();
        page.write(&mut html).unwrap();
        String::from_utf8(html).unwrap()
    }

    #[test]
    fn the_page_is_well_formed_and_has_the_numbers() {
        let html = written(&page());
        let text = text_of_well_formed(&html);
        for expected in ["&lt;odd&gt; &amp; &quot;named&quot;.jsonl", "1,234", "a &lt; b"] {
            assert!(text.contains(expected), "{expected} is not in {text}");
        }
        for expected in [
            "\"requests per 10 s\"",
            // Two bins, and the end of the second.
            "\"xs\":[0.0,10.0,20.0],\"series\":[{\"name\":\"arrivals\",\"form\":\"area\",\"colour\":1,\
             \"y\":[800.0,434.0,434.0]}]",
            "\"y\":[70001.0,123457.0,123457.0]",
            "\"xs\":[512.0,1024.0]",
            "\"y\":[1234.0,0.0]",
            // Of 0, and of 1.
            "\"xs\":[0.5,1.0,2.0]",
            "\"y\":[4.0,1230.0,0.0]",
            "\"y\":[1.23,25.0]",
            "\"y\":[30.0,30.0]",
        ] {
            assert!(html.contains(expected), "{expected} is not there");
        }
        assert!(!html.contains("<odd>"));
    }

    #[test]
    fn without_content_there_is_no_picture_of_hits() {
        let page = TracePage { hit_ratios: Vec::new(), ..page() };
        let html = written(&page);
        text_of_well_formed(&html);
        assert!(!html.contains("Prefix hits") && html.contains("Working set"));
        text_of_well_formed(&written(&TracePage::default()));
    }

    #[test]
    fn lengths_that_nobody_has_are_none() {
        let bin = |from, to, requests| Bin { from, to, requests };
        let chart = lengths("", "", &[bin(1, 2, 5), bin(4, 8, 6)]).unwrap();
        assert_eq!(chart.xs, Some(vec![1.0, 2.0, 4.0, 8.0]));
        assert_eq!(chart.series[0].y, [5.0, 0.0, 6.0, 0.0].map(Some));
    }
}
