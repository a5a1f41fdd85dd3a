//! A page about a trace: pictures and figures, in one file that needs nothing else.

use std::io::{self, Write};

use super::format::{count, figure};
use super::svg::{Axis, Chart, Form, Mark, STYLE, Scale, Series, escape};

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

/// A table of the page; the first cell of a row says what the others are about.
#[derive(Clone, Debug)]
pub(crate) struct FigureTable {
    pub(crate) title: String,
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// The look of the page, beside that of charts.
const PAGE_STYLE: &str = "\
:root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--text:#1f2328;--edge:#d8dde3}
@media (prefers-color-scheme:dark){:root{--page:#0f1317;--card:#171c22;--text:#e4e8ec;--edge:#2c333b}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:15px/1.5 system-ui,sans-serif}
main{max-width:1240px;margin:0 auto;padding:28px 20px 48px}
h1{font-size:24px;margin:0 0 2px;overflow-wrap:anywhere}
h2{font-size:15px;margin:0 0 6px}
p{margin:0 0 18px;color:var(--soft)}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:0 0 16px}
.facts div,section{background:var(--card);border:1px solid var(--edge);border-radius:10px}
.facts div{padding:10px 14px}
.facts dt{color:var(--soft);font-size:12px}
.facts dd{margin:0;font-size:20px;font-weight:600;font-variant-numeric:tabular-nums}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));gap:16px}
section{padding:14px 16px;min-width:0;overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:13px;font-variant-numeric:tabular-nums}
th,td{padding:4px 10px 4px 0;text-align:right;border-bottom:1px solid var(--edge)}
th{color:var(--soft);font-weight:500}
th:first-child,td:first-child{text-align:left}
";

impl TracePage {
    /// Writes the page as HTML that is also well-formed XML.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let name = escape(&self.name);
        write!(
            out,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
             <title>{name}: trace statistics</title>\n<style>\n{PAGE_STYLE}{STYLE}</style>\n</head>\n\
             <body>\n<main>\n<h1>{name}</h1>\n<p>What a trace asks for, by servesim {}. Point at a mark for \
             its exact numbers.</p>\n",
            env!("CARGO_PKG_VERSION")
        )?;
        writeln!(out, "<dl class=\"facts\">")?;
        for (what, value) in &self.headline {
            writeln!(out, "<div><dt>{}</dt><dd>{}</dd></div>", escape(what), escape(value))?;
        }
        writeln!(out, "</dl>\n<div class=\"grid\">")?;
        for chart in self.charts() {
            let title = escape(&chart.title);
            writeln!(out, "<section>\n<h2>{title}</h2>\n{}</section>", chart.to_svg())?;
        }
        self.tables.iter().try_for_each(|table| table.write(out))?;
        writeln!(out, "</div>\n</main>\n</body>\n</html>")
    }

    fn charts(&self) -> Vec<Chart> {
        let mut charts = vec![self.arrivals()];
        charts.extend(self.hits());
        charts.push(lengths("Prompt lengths", "prompt tokens", &self.prompt_lengths));
        charts.push(lengths("Output lengths", "output tokens", &self.output_lengths));
        charts.push(self.working_set());
        charts
    }

    /// From when to when the bin of this number is.
    fn bin(&self, number: usize) -> (f64, f64) {
        let from = |number: usize| self.from_s + self.bin_s * number as f64;
        (from(number), from(number + 1))
    }

    fn over_time(&self, values: &[u64], note: impl Fn(u64) -> String) -> Vec<Mark> {
        let marks = values.iter().enumerate().map(|(number, &value)| {
            let (from, to) = self.bin(number);
            let note = format!("{} to {} s: {}", figure(from), figure(to), note(value));
            Mark { from, to, y: value as f64, note }
        });
        marks.collect()
    }

    fn arrivals(&self) -> Chart {
        let marks =
            self.over_time(&self.arrivals, |requests| format!("{} requests", count(requests)));
        Chart {
            title: "Arrivals".to_owned(),
            x: axis("time (s)"),
            y: axis(&format!("requests per {} s", plain(self.bin_s))),
            series: vec![series("arrivals", Form::Bars, marks)],
        }
    }

    fn working_set(&self) -> Chart {
        let note = |tokens| format!("{} different prompt tokens so far", count(tokens));
        let marks = self.over_time(&self.working_set_tokens, note);
        Chart {
            title: "Working set".to_owned(),
            x: axis("time (s)"),
            y: axis("different prompt tokens"),
            series: vec![series("working set", Form::Step, marks)],
        }
    }

    /// `None` where nothing is known of what prompts share.
    fn hits(&self) -> Option<Chart> {
        let (first, last) = (self.hit_ratios.first()?, self.hit_ratios.last()?);
        let point = |tokens: u64, ratio: f64, note: String| Mark {
            from: tokens as f64,
            to: tokens as f64,
            y: ratio * 100.0,
            note,
        };
        let curve = self.hit_ratios.iter().map(|&(tokens, ratio)| {
            let note = format!("{:.2} % with {} tokens", ratio * 100.0, count(tokens));
            point(tokens, ratio, note)
        });
        let mut all = vec![series("a cache of this size", Form::Line, curve.collect())];
        if let Some(ideal) = self.ideal_hit_ratio {
            let note = || format!("{:.2} % with a cache that forgets nothing", ideal * 100.0);
            let marks = vec![point(first.0, ideal, note()), point(last.0, ideal, note())];
            all.push(series("one that forgets nothing", Form::Line, marks));
        }
        Some(Chart {
            title: "Prefix hits by cache size".to_owned(),
            x: Axis { scale: Scale::Log2, ..axis("cache size (tokens)") },
            y: axis("hits (% of prompt tokens)"),
            series: all,
        })
    }
}

impl FigureTable {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "<section>\n<h2>{}</h2>\n<table>", escape(&self.title))?;
        let row = |tag: &str, cells: &[String]| {
            let cells = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell)));
            format!("<tr>{}</tr>", cells.collect::<String>())
        };
        if !self.header.is_empty() {
            writeln!(out, "<thead>{}</thead>", row("th", &self.header))?;
        }
        writeln!(out, "<tbody>")?;
        self.rows.iter().try_for_each(|cells| writeln!(out, "{}", row("td", cells)))?;
        writeln!(out, "</tbody>\n</table>\n</section>")
    }
}

fn axis(label: &str) -> Axis {
    Axis { label: label.to_owned(), scale: Scale::Linear }
}

fn series(name: &str, form: Form, marks: Vec<Mark>) -> Series {
    Series { name: name.to_owned(), form, marks }
}

fn lengths(title: &str, what: &str, bins: &[Bin]) -> Chart {
    let marks = bins.iter().map(|bin| {
        let last = bin.to - 1;
        let tokens = if last > bin.from {
            format!("{} to {}", count(bin.from), count(last))
        } else {
            count(bin.from)
        };
        Mark {
            from: bin.from as f64,
            to: bin.to as f64,
            y: bin.requests as f64,
            note: format!("{} requests of {tokens} {what}", count(bin.requests)),
        }
    });
    Chart {
        title: title.to_owned(),
        x: Axis { scale: Scale::Log2, ..axis(&format!("{what} (in powers of two)")) },
        y: axis("requests"),
        series: vec![series(what, Form::Bars, marks.collect())],
    }
}

/// A number without zeros behind it.
fn plain(value: f64) -> String {
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::super::svg::text_of_well_formed;
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
        for expected in [
            "&lt;odd&gt; &amp; &quot;named&quot;.jsonl",
            "1,234",
            "0 to 10.00 s: 800 requests",
            "10.00 to 20.00 s: 434 requests",
            "70,001 different prompt tokens so far",
            "123,457 different",
            "1,234 requests of 512 to 1,023 prompt tokens",
            "4 requests of 0 output tokens",
            "1,230 requests of 1 output tokens",
            "1.23 % with 512 tokens",
            "25.00 % with 1,024 tokens",
            "30.00 % with a cache that forgets nothing",
            "requests per 10 s",
            "a &lt; b",
        ] {
            assert!(text.contains(expected), "{expected} is not in {text}");
        }
        // Nothing is fetched and nothing runs.
        assert!(!html.contains("<script") && !html.contains("http") && !html.contains("<odd>"));
    }

    #[test]
    fn without_content_there_is_no_picture_of_hits() {
        let page = TracePage { hit_ratios: Vec::new(), ..page() };
        let html = written(&page);
        text_of_well_formed(&html);
        assert!(!html.contains("Prefix hits") && html.contains("Working set"));
        text_of_well_formed(&written(&TracePage::default()));
    }
}
