//! `chunk-K-trace.csv`: how often a client sends a request, window by window.
//!
//! Six cells a line, no header: where the window begins (s), requests per second, the coefficient of
//! variation of the gaps, their law, and the two parameters of the law, shape and scale, as fitted.

use std::path::Path;

use super::config::{RATE_MAX, ns_of_s};
use crate::base::hint::nearest;
use crate::workload::trace::TraceError;

/// The law of the gaps between two requests of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Law {
    /// Gamma of this shape.
    Gamma(f64),
    /// Weibull of this shape.
    Weibull(f64),
}

/// What a client sends in a part of the day.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Window {
    /// Where it begins, in nanoseconds of the day.
    pub(super) start_ns: u64,
    /// Where it ends: where the next begins, and the last is as long as the one before.
    pub(super) end_ns: u64,
    /// Mean requests per second; above 0.
    pub(super) requests_per_s: f64,
    /// Coefficient of variation of the gaps, as measured.
    pub(super) cv: f64,
    pub(super) law: Law,
    /// Which of the client's lengths it has.
    pub(super) lengths: usize,
}

/// The windows of a client.
#[derive(Clone, Debug, Default)]
pub(super) struct Windows {
    /// Those in which it sends anything, in order.
    pub(super) sending: Vec<Window>,
    /// How many there are with those in which it is silent.
    pub(super) number: u64,
    /// Where the first begins and the last ends, in nanoseconds of the day.
    pub(super) span_ns: (u64, u64),
}

/// The length of a window that has no other beside it, in nanoseconds: that of the published pools.
const LONE_WINDOW_NS: u64 = 600_000_000_000;

const COLUMNS: [&str; 6] = ["window_start_s", "requests_per_s", "cv", "law", "shape", "scale"];
const LAWS: [&str; 2] = ["Gamma", "Weibull"];

/// Reads the file `path`, which holds `bytes`.
///
/// # Errors
/// A line lacks a cell, or one of them cannot be used; the windows are not in order; there is none.
pub(super) fn read(path: &Path, bytes: &[u8]) -> Result<Windows, TraceError> {
    let mut windows = Windows::default();
    let mut starts: Vec<u64> = Vec::new();
    // The windows in which it sends, and the place of each among all.
    let mut places = Vec::new();
    for (line, bytes) in (1..).zip(bytes.split(|&byte| byte == b'\n')) {
        let row = Row::new(path, line, bytes)?;
        if row.cells == [""] {
            continue;
        }
        let start_ns = row.start()?;
        if starts.last().is_some_and(|&before| start_ns <= before) {
            return Err(row.refuse(0, "a window behind that of the line before", String::new()));
        }
        if let Some((requests_per_s, cv, law)) = row.sends()? {
            places.push(starts.len());
            windows.sending.push(Window {
                start_ns,
                end_ns: start_ns,
                requests_per_s,
                cv,
                law,
                lengths: 0,
            });
        }
        starts.push(start_ns);
    }
    let (Some(&first), Some(&last)) = (starts.first(), starts.last()) else {
        return Err(TraceError::Empty { path: path.to_owned() });
    };
    let before = starts.len().checked_sub(2).map(|place| starts[place]);
    let end_ns = last + before.map_or(LONE_WINDOW_NS, |before| last - before);
    for (window, place) in windows.sending.iter_mut().zip(places) {
        window.end_ns = starts.get(place + 1).copied().unwrap_or(end_ns);
    }
    windows.number = starts.len() as u64;
    windows.span_ns = (first, end_ns);
    Ok(windows)
}

/// A line of the file.
struct Row<'a> {
    path: &'a Path,
    line: u64,
    cells: Vec<&'a str>,
}

impl<'a> Row<'a> {
    fn new(path: &'a Path, line: u64, bytes: &'a [u8]) -> Result<Self, TraceError> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let column = error.valid_up_to() + 1;
            TraceError::InvalidUtf8 { path: path.to_owned(), line, column }
        })?;
        // Nothing is quoted in these files.
        Ok(Self { path, line, cells: text.split(',').map(str::trim).collect() })
    }

    fn start(&self) -> Result<u64, TraceError> {
        if self.cells.len() != COLUMNS.len() {
            let what = format!(
                "{} cells, expected 6: {}",
                self.cells.len(),
                COLUMNS.map(quoted).join(", ")
            );
            return Err(TraceError::Table { path: self.path.to_owned(), line: self.line, what });
        }
        let start = self.cells[0].parse().ok().and_then(ns_of_s);
        start.ok_or_else(|| self.refuse(0, "a number from 0 to 3153600000", String::new()))
    }

    /// The rate, the variation and the law of the gaps; `None` where the client is silent.
    fn sends(&self) -> Result<Option<(f64, f64, Law)>, TraceError> {
        let rate = self.number(1, 0.0, RATE_MAX, "a number from 0 to 1000000")?;
        let cv = self.number(2, 0.0, 1e9, "a number from 0 to 1000000000")?;
        let law = self.cells[3];
        if !(law.is_empty() || LAWS.contains(&law)) {
            let hint = nearest(law, LAWS)
                .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            return Err(self.refuse(3, "`Gamma`, `Weibull`, or nothing where the rate is 0", hint));
        }
        // A rate of 0 comes without a law, and with parameters of 0.
        self.number(4, 0.0, f64::MAX, "a number from 0 on")?;
        self.number(5, 0.0, f64::MAX, "a number from 0 on")?;
        if rate <= 0.0 {
            return Ok(None);
        }
        if law.is_empty() {
            return Err(self.refuse(
                3,
                "`Gamma` or `Weibull`, as the rate is above 0",
                String::new(),
            ));
        }
        let shape = self.number(4, 1e-3, 1e6, "a number from 0.001 to 1000000")?;
        let law = if law == LAWS[0] { Law::Gamma(shape) } else { Law::Weibull(shape) };
        Ok(Some((rate, cv, law)))
    }

    fn number(&self, column: usize, from: f64, to: f64, accepted: &str) -> Result<f64, TraceError> {
        let number = self.cells[column].parse().ok().filter(|n| (from..=to).contains(n));
        number.ok_or_else(|| self.refuse(column, accepted, String::new()))
    }

    fn refuse(&self, column: usize, accepted: &str, hint: String) -> TraceError {
        let shown: String = self.cells[column].chars().take(40).collect();
        TraceError::Field {
            path: self.path.to_owned(),
            line: self.line,
            field: COLUMNS[column].to_owned(),
            found: format!("{shown:?}"),
            accepted: accepted.to_owned(),
            hint,
        }
    }
}

fn quoted(name: &str) -> String {
    format!("`{name}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(text: &str) -> Result<Windows, TraceError> {
        read(Path::new("chunk-0-trace.csv"), text.as_bytes())
    }

    const S: u64 = 1_000_000_000;

    #[test]
    fn windows_last_until_the_next() {
        let text = "0,0.5,1.5,Gamma,0.25,8\n600,0,0,,0,0\n1800,2,0.9,Weibull,1.2,0.5\n";
        let windows = windows(text).unwrap();
        assert_eq!((windows.number, windows.span_ns), (3, (0, 3000 * S)));
        let [first, second] = &windows.sending[..] else { panic!("{windows:?}") };
        assert_eq!((first.start_ns, first.end_ns, first.law), (0, 600 * S, Law::Gamma(0.25)));
        assert_eq!((first.requests_per_s, first.cv), (0.5, 1.5));
        assert_eq!((second.start_ns, second.end_ns), (1800 * S, 3000 * S));
        assert_eq!(second.law, Law::Weibull(1.2));
    }

    #[test]
    fn a_lone_window_has_the_usual_length() {
        assert_eq!(windows("60,1,1,Gamma,1,1\r\n").unwrap().span_ns, (60 * S, 660 * S));
    }

    #[test]
    fn each_unusable_line_says_what_is_wrong() {
        for (text, expected) in [
            ("", "chunk-0-trace.csv: no rows"),
            ("0,1,1,Gamma,1\n", "chunk-0-trace.csv:1: 5 cells, expected 6: `window_start_s`, "),
            ("0,1,1,Gamma,1,1\n\n600,1\n", "chunk-0-trace.csv:3: 2 cells"),
            (
                "start,rate,cv,law,a,b\n",
                "1: `window_start_s` is \"start\", expected a number from 0",
            ),
            ("-600,1,1,Gamma,1,1\n", "1: `window_start_s` is \"-600\""),
            ("0,-1,1,Gamma,1,1\n", "1: `requests_per_s` is \"-1\", expected a number from 0"),
            ("0,nan,1,Gamma,1,1\n", "1: `requests_per_s` is \"nan\""),
            ("0,inf,1,Gamma,1,1\n", "1: `requests_per_s` is \"inf\""),
            ("0,1,,Gamma,1,1\n", "1: `cv` is \"\""),
            ("0,1,1,gama,1,1\n", "; did you mean `Gamma`?"),
            ("0,0,0,Pareto,0,0\n", "1: `law` is \"Pareto\", expected `Gamma`, `Weibull`, or"),
            ("0,1,1,,0,0\n", "1: `law` is \"\", expected `Gamma` or `Weibull`, as the rate is"),
            ("0,1,1,Gamma,0,1\n", "1: `shape` is \"0\", expected a number from 0.001"),
            ("0,1,1,Gamma,1,-1\n", "1: `scale` is \"-1\""),
            (
                "0,1,1,Gamma,1,1\n0,1,1,Gamma,1,1\n",
                "2: `window_start_s` is \"0\", expected a window",
            ),
            ("600,1,1,Gamma,1,1\n0,1,1,Gamma,1,1\n", "2: `window_start_s` is \"0\""),
        ] {
            let error = windows(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
        let error = read(Path::new("t"), b"0,1,1,Gamma,1,1\n600,\xff,1,Gamma,1,1\n").unwrap_err();
        assert_eq!(error.to_string(), "t:2:5: invalid UTF-8");
    }
}
