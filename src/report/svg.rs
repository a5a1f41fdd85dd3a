//! Charts as SVG, for pages that need nothing else: lines, steps and bars over one x axis.
//!
//! Colours are classes (`s1`, `s2`, ...) that the page's style sheet defines, see [`STYLE`]. Exact numbers
//! are in the tooltips of marks.

use std::fmt::Write;

use super::format::count;

/// What a page must put into its style sheet, light and dark.
pub(crate) const STYLE: &str = "\
:root{--grid:#e3e6ea;--axis:#8a929c;--soft:#59636e;--s1:#2f6fdb;--s2:#d9822b;--s3:#2a9d6f;--s4:#a04ecb}
@media (prefers-color-scheme:dark){:root{--grid:#2c333b;--axis:#6e7781;--soft:#9aa4af;--s1:#6ea8ff;\
--s2:#f0a75a;--s3:#5cc99a;--s4:#cb8df0}}
svg{display:block;width:100%;height:auto;font:11px system-ui,sans-serif}
svg text{fill:var(--soft)}
.s1{fill:var(--s1);stroke:var(--s1)}
.s2{fill:var(--s2);stroke:var(--s2)}
.s3{fill:var(--s3);stroke:var(--s3)}
.s4{fill:var(--s4);stroke:var(--s4)}
svg .grid{stroke:var(--grid)}
svg .axis{stroke:var(--axis)}
svg .line{fill:none;stroke-width:2;stroke-linejoin:round}
svg .area{fill-opacity:.16;stroke:none}
svg .hit{fill-opacity:0;stroke:none}
svg .dot{stroke:none}
svg .mark:hover .hit{fill-opacity:.14}
svg .bar:hover{fill-opacity:.7}
svg .bar{stroke:none}
";

/// A picture of numbers over numbers.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    /// What it shows; read out to those who do not see it.
    pub(crate) title: String,
    pub(crate) x: Axis,
    /// From 0 on.
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

/// An axis, which is as long as the marks need it.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    /// What it measures, with the unit: `time (s)`.
    pub(crate) label: String,
    pub(crate) scale: Scale,
}

/// How numbers lie on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    Linear,
    /// By powers of two; 0 lies half a step before 1. For x alone.
    Log2,
}

/// Marks that belong together.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// What the legend calls it, where there are several.
    pub(crate) name: String,
    pub(crate) form: Form,
    pub(crate) marks: Vec<Mark>,
}

/// How marks are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Points at `from` with straight lines between them.
    Line,
    /// A level from each `from` to its `to`, with the area below.
    Step,
    /// A bar each.
    Bars,
}

/// A number `y` that is true of x from `from` to `to`.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) y: f64,
    /// The exact numbers, in words.
    pub(crate) note: String,
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 280.0;
/// The place of the marks.
const LEFT: f64 = 58.0;
const RIGHT: f64 = 624.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 232.0;

/// Ticks that an axis has at most.
const TICKS_MAX: usize = 8;

impl Chart {
    /// The chart as an `svg` element.
    pub(crate) fn to_svg(&self) -> String {
        let marks = || self.series.iter().flat_map(|series| &series.marks);
        let x = Range::of(self.x.scale, marks().flat_map(|mark| [mark.from, mark.to]));
        let y = Range::of(Scale::Linear, marks().map(|mark| mark.y).chain([0.0]));
        let y = y.to_the_next_tick();
        let place = Place { x, y };
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
            escape(&self.title)
        );
        place.axes(self, &mut svg);
        for (number, series) in (1..).zip(&self.series) {
            place.series(series, number, &mut svg);
        }
        self.legend(&mut svg);
        svg + "</svg>\n"
    }

    fn legend(&self, svg: &mut String) {
        if self.series.len() < 2 {
            return;
        }
        let mut at = LEFT;
        for (number, series) in (1..).zip(&self.series) {
            put(
                svg,
                format_args!(
                    "<rect class=\"s{number} bar\" x=\"{at:.1}\" y=\"7\" width=\"10\" height=\"10\" rx=\"2\"/>\
                 <text x=\"{:.1}\" y=\"16\">{}</text>\n",
                    at + 15.0,
                    escape(&series.name)
                ),
            );
            at += 34.0 + 6.2 * series.name.chars().count() as f64;
        }
    }
}

/// A part of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Range {
    scale: Scale,
    from: f64,
    to: f64,
}

impl Range {
    /// The part in which all of `values` lie; some part where there are none.
    fn of(scale: Scale, values: impl Iterator<Item = f64>) -> Self {
        let values = values.filter(|value| value.is_finite());
        let all = values.fold(None, |all: Option<(f64, f64)>, value| {
            Some(all.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
        });
        let (from, to) = all.unwrap_or((0.0, 1.0));
        let to = if to > from { to } else { from + from.abs().max(1.0) };
        Self { scale, from, to }
    }

    /// The same up to the first tick that is not below its end.
    fn to_the_next_tick(self) -> Self {
        let step = self.step();
        Self { to: (self.to / step).ceil() * step, ..self }
    }

    /// Where `value` lies, from 0 to 1.
    fn share(self, value: f64) -> f64 {
        let on = |value: f64| match self.scale {
            Scale::Linear => value,
            Scale::Log2 => value.max(0.5).log2(),
        };
        let (from, to) = (on(self.from), on(self.to));
        if to > from { (on(value) - from) / (to - from) } else { 0.0 }
    }

    /// The distance of linear ticks: 1, 2 or 5 times a power of ten.
    fn step(self) -> f64 {
        let least = (self.to - self.from) / (TICKS_MAX - 2) as f64;
        let power = 10_f64.powi(least.log10().floor() as i32);
        [1.0, 2.0, 5.0, 10.0]
            .map(|n| n * power)
            .into_iter()
            .find(|&step| step >= least)
            .unwrap_or(least)
    }

    /// Values with a tick, and what it says.
    fn ticks(self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Linear => {
                let step = self.step();
                let first = (self.from / step).ceil();
                (0..TICKS_MAX)
                    .map(|n| (first + n as f64) * step)
                    .filter(|&value| value <= self.to + step * 1e-9)
                    .map(|value| (value, decimal(value, step, self.to)))
                    .collect()
            }
            Scale::Log2 => {
                let power = |value: f64| value.max(0.5).log2();
                let (from, to) = (power(self.from).ceil() as i32, power(self.to).floor() as i32);
                let every = ((to - from) as usize / TICKS_MAX + 1).max(1);
                (from..=to).step_by(every).map(|power| (2_f64.powi(power), binary(power))).collect()
            }
        }
    }
}

/// A tick as a number: `0.5`, `20`, `40k`, `3M`; alike on an axis that ends at `to`.
fn decimal(value: f64, step: f64, to: f64) -> String {
    let (unit, name) = match to.abs() {
        v if v >= 1e9 => (1e9, "G"),
        v if v >= 1e6 => (1e6, "M"),
        v if v >= 1e4 => (1e3, "k"),
        _ => (1.0, ""),
    };
    // As many decimals as the step has.
    let decimals = (-(step / unit).log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{:.decimals$}", value / unit);
    if value == 0.0 { "0".to_owned() } else { format!("{text}{name}") }
}

/// A power of two: `512`, `4 Ki`, `1 Mi`.
fn binary(power: i32) -> String {
    match power {
        i32::MIN..0 => "0".to_owned(),
        0..10 => count(1 << power),
        10..20 => format!("{} Ki", 1 << (power - 10)),
        20..30 => format!("{} Mi", 1 << (power - 20)),
        30..40 => format!("{} Gi", 1 << (power - 30)),
        _ => format!("2^{power}"),
    }
}

/// Where numbers lie in the picture.
struct Place {
    x: Range,
    y: Range,
}

impl Place {
    fn across(&self, x: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * self.x.share(x)
    }

    fn up(&self, y: f64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * self.y.share(y)
    }

    fn axes(&self, chart: &Chart, svg: &mut String) {
        for (value, text) in self.y.ticks() {
            let y = self.up(value);
            put(
                svg,
                format_args!(
                    "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>\n",
                    LEFT - 7.0,
                    y + 4.0
                ),
            );
        }
        for (value, text) in self.x.ticks() {
            let x = self.across(value);
            put(
                svg,
                format_args!(
                    "<line class=\"axis\" x1=\"{x:.1}\" y1=\"{BOTTOM}\" x2=\"{x:.1}\" y2=\"{:.1}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>\n",
                    BOTTOM + 5.0,
                    BOTTOM + 18.0
                ),
            );
        }
        let (middle_x, middle_y) = (f64::midpoint(LEFT, RIGHT), f64::midpoint(TOP, BOTTOM));
        put(
            svg,
            format_args!(
                "<line class=\"axis\" x1=\"{LEFT}\" y1=\"{BOTTOM}\" x2=\"{RIGHT}\" y2=\"{BOTTOM}\"/>\n\
             <text x=\"{middle_x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(13 {middle_y:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
                HEIGHT - 10.0,
                escape(&chart.x.label),
                escape(&chart.y.label)
            ),
        );
    }

    fn series(&self, series: &Series, number: u32, svg: &mut String) {
        match series.form {
            Form::Line => self.line(series, number, svg),
            Form::Step => self.step(series, number, svg),
            Form::Bars => self.bars(series, number, svg),
        }
    }

    fn line(&self, series: &Series, number: u32, svg: &mut String) {
        let points: Vec<_> = series
            .marks
            .iter()
            .map(|mark| format!("{:.1},{:.1}", self.across(mark.from), self.up(mark.y)))
            .collect();
        put(
            svg,
            format_args!("<polyline class=\"s{number} line\" points=\"{}\"/>\n", points.join(" ")),
        );
        for mark in &series.marks {
            let (x, y) = (self.across(mark.from), self.up(mark.y));
            put(
                svg,
                format_args!(
                    "<g class=\"mark\"><circle class=\"s{number} hit\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"11\"/>\
                 <circle class=\"s{number} dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>\
                 <title>{}</title></g>\n",
                    escape(&mark.note)
                ),
            );
        }
    }

    fn step(&self, series: &Series, number: u32, svg: &mut String) {
        let (Some(first), Some(last)) = (series.marks.first(), series.marks.last()) else { return };
        let mut points = String::new();
        for mark in &series.marks {
            let y = self.up(mark.y);
            put(&mut points, format_args!("{:.1},{y:.1} ", self.across(mark.from)));
            put(&mut points, format_args!("{:.1},{y:.1} ", self.across(mark.to)));
        }
        let points = points.trim_end();
        put(
            svg,
            format_args!(
                "<polygon class=\"s{number} area\" points=\"{:.1},{BOTTOM} {points} {:.1},{BOTTOM}\"/>\n\
             <polyline class=\"s{number} line\" points=\"{points}\"/>\n",
                self.across(first.from),
                self.across(last.to)
            ),
        );
        for mark in &series.marks {
            let (from, to) = (self.across(mark.from), self.across(mark.to));
            put(
                svg,
                format_args!(
                    "<g class=\"mark\"><rect class=\"s{number} hit\" x=\"{from:.1}\" y=\"{TOP}\" \
                 width=\"{:.1}\" height=\"{:.1}\"/><title>{}</title></g>\n",
                    to - from,
                    BOTTOM - TOP,
                    escape(&mark.note)
                ),
            );
        }
    }

    fn bars(&self, series: &Series, number: u32, svg: &mut String) {
        for mark in series.marks.iter().filter(|mark| mark.y > 0.0) {
            let (from, to, y) = (self.across(mark.from), self.across(mark.to), self.up(mark.y));
            // A little air between wide bars.
            let air = ((to - from) * 0.08).min(2.0);
            put(
                svg,
                format_args!(
                    "<rect class=\"s{number} bar\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\">\
                 <title>{}</title></rect>\n",
                    from + air,
                    (to - from - 2.0 * air).max(0.5),
                    BOTTOM - y,
                    escape(&mark.note)
                ),
            );
        }
    }
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("a string takes all");
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

/// Checks that every tag of a document is closed, and gives its text outside of tags.
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
            assert_eq!(open.pop(), Some(name), "in {document}");
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

    fn axis(label: &str, scale: Scale) -> Axis {
        Axis { label: label.to_owned(), scale }
    }

    fn mark(from: f64, to: f64, y: f64) -> Mark {
        Mark { from, to, y, note: format!("{y} <at> {from}") }
    }

    fn chart(scale: Scale, form: Form, marks: Vec<Mark>) -> Chart {
        let series = vec![Series { name: "a & b".to_owned(), form, marks }];
        let (x, y) = (axis("time (s)", scale), axis("requests", Scale::Linear));
        Chart { title: "\"all\"".to_owned(), x, y, series }
    }

    #[test]
    fn every_form_is_well_formed_and_has_its_numbers() {
        for form in [Form::Line, Form::Step, Form::Bars] {
            let svg = chart(Scale::Linear, form, vec![mark(0.0, 5.0, 3.0), mark(5.0, 9.0, 4.5)]);
            let svg = svg.to_svg();
            let text = text_of_well_formed(&svg);
            assert!(text.contains("3 &lt;at&gt; 0") && text.contains("4.5 &lt;at&gt; 5"), "{text}");
            assert!(text.contains("time (s)") && text.contains("requests"));
            assert!(svg.contains("aria-label=\"&quot;all&quot;\"") && !svg.contains("NaN"));
        }
    }

    #[test]
    fn a_bar_stands_where_its_numbers_are() {
        // Of 0 to 10 and 0 to 4: from the middle to the right, and half of the height.
        let marks = vec![mark(0.0, 5.0, 4.0), mark(5.0, 10.0, 2.0)];
        let svg = chart(Scale::Linear, Form::Bars, marks).to_svg();
        let (x, width) = (f64::midpoint(LEFT, RIGHT) + 2.0, (RIGHT - LEFT) / 2.0 - 4.0);
        let (y, height) = (f64::midpoint(TOP, BOTTOM), (BOTTOM - TOP) / 2.0);
        let bar = format!("x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"");
        assert!(svg.contains(&bar), "{bar} is not in {svg}");
    }

    #[test]
    fn several_series_have_a_legend() {
        let mut both = chart(Scale::Log2, Form::Line, vec![mark(1.0, 1.0, 0.0)]);
        assert!(!both.to_svg().contains("a &amp; b"));
        both.series.push(both.series[0].clone());
        assert!(text_of_well_formed(&both.to_svg()).contains("a &amp; b"));
        // Nothing at all is still a picture.
        assert!(!chart(Scale::Linear, Form::Step, vec![]).to_svg().contains("NaN"));
    }

    #[test]
    fn ticks_are_round() {
        let ticks = |scale, from, to| {
            let ticks = Range { scale, from, to }.ticks();
            ticks.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(ticks(Scale::Linear, 0.0, 600.0), "0 100 200 300 400 500 600");
        assert_eq!(ticks(Scale::Linear, 0.0, 1.0), "0 0.2 0.4 0.6 0.8 1.0");
        assert_eq!(ticks(Scale::Linear, 0.0, 250_000.0), "0 50k 100k 150k 200k 250k");
        assert_eq!(ticks(Scale::Linear, 95.0, 108.0), "95 100 105");
        assert_eq!(ticks(Scale::Linear, 0.0, 2e6), "0 0.5M 1.0M 1.5M 2.0M");
        assert_eq!(ticks(Scale::Log2, 0.0, 16.0), "0 1 2 4 8 16");
        assert_eq!(ticks(Scale::Log2, 16.0, 4_194_304.0), "16 128 1 Ki 8 Ki 64 Ki 512 Ki 4 Mi");
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("<a b='c'>&\"\u{1}"), "&lt;a b=&#39;c&#39;&gt;&amp;&quot;\u{fffd}");
    }
}
