//! Charts as the page's script reads them.

use std::io::{self, Write};

use serde::{Serialize, Serializer};

use super::escape;

/// Series that are told apart by colour.
pub(crate) const COLOURS: usize = 8;

/// A picture of numbers over numbers.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Chart {
    #[serde(skip)]
    pub(crate) title: String,
    /// A line below the title; empty: none.
    #[serde(skip)]
    pub(crate) note: String,
    /// Over the whole width of the page.
    #[serde(skip)]
    pub(crate) wide: bool,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// The x of all series; `None`: each has its own.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "rounded_some")]
    pub(crate) xs: Option<Vec<f64>>,
    pub(crate) series: Vec<Series>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) marks: Vec<Mark>,
    /// Series stand on top of each other, the first below.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) stacked: bool,
    /// Charts of one name show where the pointer is in any of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sync: Option<&'static str>,
}

/// An axis, as long as the numbers need it.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Axis {
    /// What it measures, with the unit: `time (s)`.
    pub(crate) label: String,
    /// What stands behind a number.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) unit: &'static str,
    /// By powers; for numbers above 0.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) log: bool,
    /// Where a y axis ends in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max: Option<f64>,
    /// What stands at 0, 1, ... instead of numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) categories: Option<Vec<String>>,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Form {
    /// A value holds until the next x.
    #[default]
    Step,
    /// The same, filled.
    Area,
    Line,
    Points,
    Bars,
}

/// Numbers that belong together.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) form: Form,
    /// From 1 to [`COLOURS`].
    pub(crate) colour: usize,
    /// Beside another of the same colour that matters more.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) soft: bool,
    /// Rising; empty where the chart has one for all.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "rounded")]
    pub(crate) x: Vec<f64>,
    #[serde(serialize_with = "rounded_each")]
    pub(crate) y: Vec<Option<f64>>,
}

/// A value of x with a name.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Mark {
    pub(crate) at: f64,
    pub(crate) label: String,
    /// Something to stay below.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) limit: bool,
}

impl Axis {
    pub(crate) fn of(label: &str, unit: &'static str) -> Self {
        Self { label: label.to_owned(), unit, ..Self::default() }
    }
}

impl Series {
    /// Numbers at the x of the chart.
    pub(crate) fn of(
        name: &str,
        form: Form,
        colour: usize,
        y: impl IntoIterator<Item = f64>,
    ) -> Self {
        let y = y.into_iter().map(Some).collect();
        Self { name: name.to_owned(), form, colour, y, ..Self::default() }
    }
}

/// Milliseconds from which on seconds read better.
const SECONDS_FROM_MS: f64 = 100_000.0;

impl Axis {
    /// Says seconds instead of milliseconds if `values` are large, and what to multiply them by.
    fn read_well<'a>(&mut self, values: impl Iterator<Item = &'a f64>) -> f64 {
        if self.unit != "ms"
            || values.fold(0.0_f64, |most, &value| most.max(value)) < SECONDS_FROM_MS
        {
            return 1.0;
        }
        self.unit = "s";
        self.label = self.label.replace("(ms)", "(s)");
        1e-3
    }
}

impl Chart {
    /// The same chart, with long times in seconds.
    #[must_use]
    pub(crate) fn in_readable_units(mut self) -> Self {
        let own = self.series.iter().flat_map(|series| &series.x);
        let by = self.x.read_well(self.xs.iter().flatten().chain(own));
        let own = self.series.iter_mut().flat_map(|series| &mut series.x);
        let at = self.marks.iter_mut().map(|mark| &mut mark.at);
        self.xs.iter_mut().flatten().chain(own).chain(at).for_each(|x| *x *= by);
        let by = self.y.read_well(self.series.iter().flat_map(|series| series.y.iter().flatten()));
        let ys = self.series.iter_mut().flat_map(|series| series.y.iter_mut().flatten());
        ys.for_each(|y| *y *= by);
        self
    }

    /// Whether all there is to see is 0.
    pub(crate) fn is_flat(&self) -> bool {
        self.series.iter().flat_map(|series| series.y.iter().flatten()).all(|&y| y <= 0.0)
    }

    /// Writes the chart as a card of a page.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let wide = if self.wide { " wide" } else { "" };
        let title = escape(&self.title);
        writeln!(out, "<section class=\"card{wide}\">\n<h3>{title}</h3>")?;
        if !self.note.is_empty() {
            writeln!(out, "<p class=\"note\">{}</p>", escape(&self.note))?;
        }
        writeln!(
            out,
            "<div class=\"chart\" role=\"img\" aria-label=\"{title}\"><script type=\"application/json\">{}\
             </script></div>\n</section>",
            embedded(self)?
        )
    }
}

/// `value` as JSON that may stand in a script of a page: nothing in it ends the script.
fn embedded(value: &impl Serialize) -> io::Result<String> {
    Ok(serde_json::to_string(value)?.replace('<', "\\u003c"))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// Six significant digits, more than a picture shows.
fn round(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// Rising numbers stay apart, so more digits are kept.
fn round_x(value: f64) -> f64 {
    format!("{value:.8e}").parse().unwrap_or(value)
}

fn rounded<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(|&value| round_x(value)))
}

#[expect(clippy::ref_option, reason = "serde passes it so")]
fn rounded_some<S: Serializer>(
    values: &Option<Vec<f64>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    rounded(values.as_deref().unwrap_or_default(), serializer)
}

fn rounded_each<S: Serializer>(values: &[Option<f64>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(|value| value.map(round)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_ends_the_script() {
        let chart = Chart {
            title: "<b>".to_owned(),
            series: vec![Series::of("</script><script>alert(1)", Form::Area, 1, [0.1])],
            xs: Some(vec![1.0 / 3.0]),
            ..Chart::default()
        };
        let mut html = Vec::new();
        chart.write(&mut html).unwrap();
        let html = String::from_utf8(html).unwrap();
        assert_eq!(html.matches("</script>").count(), 1);
        assert!(html.contains("<h3>&lt;b&gt;</h3>") && !html.contains("<script>"));
        let (_, json) = html.split_once("application/json\">").unwrap();
        let json: serde_json::Value =
            serde_json::from_str(json.split_once("</script>").unwrap().0).unwrap();
        assert_eq!(json["series"][0]["name"], "</script><script>alert(1)");
        assert_eq!(json["series"][0]["form"], "area");
        assert_eq!(json["xs"][0], 0.333_333_333);
        assert!(json.get("marks").is_none() && json.get("title").is_none());
    }

    #[test]
    fn a_number_has_the_digits_of_a_picture() {
        assert_eq!(
            [0.0, 123_456.789, 1.0 / 3.0].map(round).map(|n| n.to_string()),
            ["0", "123457", "0.333333"]
        );
    }
}
