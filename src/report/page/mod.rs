//! A page for people in one file that needs nothing else: figures, charts, tables, listings.
//!
//! Charts are described as JSON in the page and drawn by [uPlot](https://github.com/leeoniya/uPlot), whose script
//! is part of it, as are the style and the script in `assets`. Nothing is fetched.

pub(crate) mod chart;

use std::io::{self, Write};

use self::chart::Chart;

const UPLOT_JS: &str = include_str!("../assets/uplot/uPlot.iife.min.js");
const UPLOT_CSS: &str = include_str!("../assets/uplot/uPlot.min.css");
const PAGE_JS: &str = include_str!("../assets/page.js");
const PAGE_CSS: &str = include_str!("../assets/page.css");

/// Columns of a table that needs half of the width.
const NARROW: usize = 3;

/// A page, from top to bottom.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    /// What a browser calls it.
    pub(crate) title: String,
    pub(crate) heading: String,
    /// A line below the heading.
    pub(crate) about: String,
    /// The figures that matter most, with what they are.
    pub(crate) headline: Vec<(String, String)>,
    /// What to know before trusting them.
    pub(crate) notices: Vec<String>,
    pub(crate) sections: Vec<Section>,
    /// The last line.
    pub(crate) footer: String,
}

/// What belongs together.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) blocks: Vec<Block>,
}

/// A part of a section.
#[derive(Clone, Debug)]
pub(crate) enum Block {
    /// Beside another if there is room; made by [`Block::chart`].
    Chart(Box<Chart>),
    /// Over the whole width, or beside another if it has few columns.
    Table(FigureTable),
    /// Text that is shown on request.
    Listing { title: String, text: String },
}

/// A table; the first cell of a row says what the others are about.
#[derive(Clone, Debug)]
pub(crate) struct FigureTable {
    pub(crate) title: String,
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Block {
    /// A chart, with long times in seconds.
    pub(crate) fn chart(chart: Chart) -> Self {
        Self::Chart(Box::new(chart.in_readable_units()))
    }
}

impl FigureTable {
    /// A table of the terminal, whose header begins with its title.
    pub(crate) fn of(table: &comfy_table::Table) -> Self {
        let texts =
            |row: &comfy_table::Row| row.cell_iter().map(comfy_table::Cell::content).collect();
        let mut header: Vec<String> = table.header().map(texts).unwrap_or_default();
        let title = header.first_mut().map(std::mem::take).unwrap_or_default();
        Self { title, header, rows: table.row_iter().map(texts).collect() }
    }
}

impl Page {
    /// Writes the page.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        write!(
            out,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
             <title>{}</title>\n<style>\n{UPLOT_CSS}\n{PAGE_CSS}</style>\n</head>\n<body>\n<main>\n\
             <h1>{}</h1>\n<p>{}</p>\n<pre id=\"errors\"></pre>\n",
            escape(&self.title),
            escape(&self.heading),
            escape(&self.about),
        )?;
        if !self.headline.is_empty() {
            writeln!(out, "<dl class=\"tiles\">")?;
            for (what, value) in &self.headline {
                writeln!(out, "<div><dt>{}</dt><dd>{}</dd></div>", escape(what), escape(value))?;
            }
            writeln!(out, "</dl>")?;
        }
        if !self.notices.is_empty() {
            writeln!(out, "<ul class=\"notices\">")?;
            self.notices
                .iter()
                .try_for_each(|notice| writeln!(out, "<li>{}</li>", escape(notice)))?;
            writeln!(out, "</ul>")?;
        }
        self.sections.iter().try_for_each(|section| section.write(out))?;
        write!(
            out,
            "<footer>{}</footer>\n</main>\n<script>\n{UPLOT_JS}\n</script>\n<script>\n{PAGE_JS}</script>\n\
             </body>\n</html>\n",
            escape(&self.footer)
        )
    }
}

impl Section {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.blocks.is_empty() {
            return Ok(());
        }
        writeln!(out, "<h2>{}</h2>\n<div class=\"grid\">", escape(&self.title))?;
        for block in &self.blocks {
            match block {
                Block::Chart(chart) => chart.write(out)?,
                Block::Table(table) => table.write(out)?,
                Block::Listing { title, text } => writeln!(
                    out,
                    "<details class=\"card wide\"><summary>{}</summary>\n<pre>{}</pre></details>",
                    escape(title),
                    escape(text)
                )?,
            }
        }
        writeln!(out, "</div>")
    }
}

impl FigureTable {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let columns = self.header.len().max(self.rows.first().map_or(0, Vec::len));
        writeln!(
            out,
            "<section class=\"card{}\">\n<h3>{}</h3>\n<div class=\"scroll\"><table class=\"figures{}\">",
            if columns > NARROW { " wide" } else { "" },
            escape(&self.title),
            if self.header.is_empty() { " pairs" } else { "" }
        )?;
        let row = |tag: &str, cells: &[String]| {
            let cells = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell)));
            format!("<tr>{}</tr>", cells.collect::<String>())
        };
        if !self.header.is_empty() {
            writeln!(out, "<thead>{}</thead>", row("th", &self.header))?;
        }
        writeln!(out, "<tbody>")?;
        self.rows.iter().try_for_each(|cells| writeln!(out, "{}", row("td", cells)))?;
        writeln!(out, "</tbody>\n</table></div>\n</section>")
    }
}

/// Text as it may stand in HTML and between double quotes in it.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // What no document may hold.
            c if c.is_control() && !c.is_whitespace() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Checks that every tag of a document is closed, and gives its text outside of tags, scripts and styles.
#[cfg(test)]
pub(crate) fn text_of_well_formed(document: &str) -> String {
    let mut open: Vec<&str> = Vec::new();
    let mut text = String::new();
    let mut rest = document;
    while let Some(at) = rest.find('<') {
        text.push_str(&rest[..at]);
        let end = at + rest[at..].find('>').expect("a tag ends");
        let tag = &rest[at + 1..end];
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        rest = &rest[end + 1..];
        let name = tag.split([' ', '/', '\n']).find(|name| !name.is_empty()).unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else if name == "script" || name == "style" {
            let end = rest.find(&format!("</{name}>")).expect("it ends");
            rest = &rest[end + name.len() + 3..];
        } else if !tag.ends_with('/') && !tag.starts_with('!') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?} stay open");
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("<a b='c'>&\"\u{1}"), "&lt;a b=&#39;c&#39;&gt;&amp;&quot;\u{fffd}");
    }

    #[test]
    fn every_part_is_there_and_nothing_is_fetched() {
        let table = FigureTable {
            title: "Lengths".to_owned(),
            header: vec!["tokens".to_owned()],
            rows: vec![vec!["a < b".to_owned()]],
        };
        let listing = Block::Listing { title: "All".to_owned(), text: "</pre>".to_owned() };
        let page = Page {
            title: "t".to_owned(),
            heading: "<odd> & \"named\"".to_owned(),
            headline: vec![("requests".to_owned(), "1,234".to_owned())],
            notices: vec!["mind <this>".to_owned()],
            sections: vec![Section {
                title: "One".to_owned(),
                blocks: vec![Block::chart(Chart::default()), Block::Table(table), listing],
            }],
            ..Page::default()
        };
        let mut html = Vec::new();
        page.write(&mut html).unwrap();
        let html = String::from_utf8(html).unwrap();
        let text = text_of_well_formed(&html);
        for expected in [
            "&lt;odd&gt; &amp; &quot;named&quot;",
            "1,234",
            "mind &lt;this&gt;",
            "a &lt; b",
            "&lt;/pre&gt;",
        ] {
            assert!(text.contains(expected), "{expected} is not in {text}");
        }
        for fetching in ["src=", "href=", "@import", "url(", "fetch(", "XMLHttpRequest"] {
            assert!(!html.contains(fetching), "{fetching}");
        }
        assert!(html.len() < 100_000);
    }
}
