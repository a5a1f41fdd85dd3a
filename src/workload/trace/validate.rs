//! Everything that is wrong with a trace, and not only the first of it.
//!
//! Rows are read and dropped, so that memory does not depend on the length of the file.

use super::config::{Origin, TraceConfig, TraceFormat, ns_of_s};
use super::folder::Opened;
use super::turns::Links;
use super::{RowReader, TraceError, TraceSource};
use crate::base::time::SimTime;
use crate::workload::sessions::config::{SessionsConfig, ThinkConfig};
use crate::workload::sessions::find_circle;

/// What a trace is found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validation {
    /// The format, as given or as told by the first line; `None` if that is what is wrong.
    pub(crate) format: Option<TraceFormat>,
    /// Rows that can be used.
    pub(crate) rows: u64,
    /// Of these, rows that no engine serves: without a prompt, or without output.
    pub(crate) unservable: u64,
    /// What was found wrong.
    pub(crate) problems: u64,
    /// Whether the trace was read to its end.
    pub(crate) is_complete: bool,
}

/// Reads the whole trace that `config` describes, without its limit and window, and tells each thing
/// that is wrong with it, until there are `limit` of them.
///
/// # Errors
/// The configuration cannot be used, or `tell` fails.
pub(crate) fn validate<E: From<TraceError>>(
    config: &TraceConfig,
    limit: u64,
    mut tell: impl FnMut(&TraceError) -> Result<(), E>,
) -> Result<Validation, E> {
    config.validate().map_err(TraceError::from)?;
    // What ties rows to each other is checked, whether or not a replay follows it.
    let sessions = config.sessions.or(Some(SessionsConfig::Think(ThinkConfig::default())));
    let config = &TraceConfig { sessions, ..config.clone() };
    let mut found =
        Validation { format: None, rows: 0, unservable: 0, problems: 0, is_complete: false };
    let Opened { path, mut rows, .. } = match open(config) {
        Ok(opened) => {
            found.format = Some(opened.format);
            opened
        }
        Err(error) => {
            found.problems = 1;
            tell(&error)?;
            return Ok(found);
        }
    };
    let mut order = Order::new(config);
    let mut links = Links::default();
    while found.problems < limit {
        let problem = match rows.next_row() {
            Ok(None) => {
                found.is_complete = true;
                let ties = links.finish(&path).and_then(|()| circles(&links, config, found));
                if let Err(problem) = ties {
                    found.problems += 1;
                    tell(&problem)?;
                }
                break;
            }
            Ok(Some(mut row)) => {
                found.rows += 1;
                found.unservable += u64::from(row.prompt_tokens == 0 || row.output_tokens == 0);
                let lacks_stamp = row.turn.as_ref().is_some_and(|turn| turn.lacks_stamp);
                if lacks_stamp {
                    row.stamp = order.latest.unwrap_or(0);
                }
                let path = rows.file(row.file).unwrap_or(&path);
                let misplaced = order.problem_of(row.stamp);
                let misplaced = misplaced.map(|p| p.into_error(path, row.line, &*rows));
                misplaced.or_else(|| {
                    let misfit = links.add(&row).err()?;
                    Some(misfit.into_error(path, row.line, &*rows))
                })
            }
            Err(error) => Some(error),
        };
        if let Some(problem) = problem {
            found.problems += 1;
            tell(&problem)?;
            if !problem.is_of_one_line() {
                return Ok(found);
            }
        }
    }
    if found.is_complete && found.rows == 0 && found.problems == 0 {
        found.problems = 1;
        tell(&TraceError::Empty { path })?;
    }
    Ok(found)
}

/// Whether requests wait for each other in a circle. That takes one that waits for a later row; then the
/// trace is read again.
fn circles(links: &Links, config: &TraceConfig, found: Validation) -> Result<(), TraceError> {
    if !links.point_ahead() || found.problems > 0 || config.path.as_os_str() == "-" {
        return Ok(());
    }
    let whole = TraceConfig { limit: None, window: None, ..config.clone() };
    find_circle(&mut TraceSource::open(&whole)?, &config.path)
}

fn open(config: &TraceConfig) -> Result<Opened, TraceError> {
    let opened = Opened::new(config)?;
    if config.origin == Origin::Zero && opened.rows.facts().stamps_are_dates {
        return Err(TraceError::DatesFromZero { path: opened.path });
    }
    Ok(opened)
}

/// Follows the stamps.
struct Order {
    window: i128,
    window_s: f64,
    latest: Option<i128>,
    /// No row that counts from the earliest may be later than this after it.
    earliest: Option<i128>,
}

/// What is wrong with a stamp.
enum Misplaced {
    Behind { behind: i128, window_s: f64 },
    TooLate { after: i128 },
}

impl Order {
    fn new(config: &TraceConfig) -> Self {
        let window = ns_of_s(config.sort_window_s).unwrap_or(0);
        Self { window, window_s: config.sort_window_s, latest: None, earliest: None }
    }

    fn problem_of(&mut self, stamp: i128) -> Option<Misplaced> {
        let latest = self.latest.map_or(stamp, |latest| latest.max(stamp));
        let behind = latest - stamp;
        if behind > self.window {
            return Some(Misplaced::Behind { behind, window_s: self.window_s });
        }
        let earliest = self.earliest.map_or(stamp, |earliest| earliest.min(stamp));
        let after = stamp - earliest;
        if after > i128::from(SimTime::LATEST_INPUT.as_ns()) {
            return Some(Misplaced::TooLate { after });
        }
        self.latest = Some(latest);
        self.earliest = Some(earliest);
        None
    }
}

impl Misplaced {
    fn into_error(self, path: &std::path::Path, line: u64, rows: &dyn RowReader) -> TraceError {
        let (path, field) = (path.to_owned(), rows.facts().stamp_field.into_owned());
        match self {
            Self::Behind { behind, window_s } => TraceError::OutOfOrder {
                path,
                line,
                field,
                behind_s: behind as f64 / 1e9,
                window_s,
            },
            Self::TooLate { after } => TraceError::Field {
                path,
                line,
                field,
                found: format!("{} s after the first stamp", after as f64 / 1e9),
                accepted: "an arrival within 100 years".to_owned(),
                hint: String::new(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "{\"timestamp\": 0, \"input_length\": 5, \"output_length\": 1}\n";

    /// What is found, and what is told.
    fn check(
        text: &str,
        limit: u64,
        change: impl FnOnce(&mut TraceConfig),
    ) -> (Validation, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        std::fs::write(&path, text).unwrap();
        let mut config = TraceConfig { path, ..TraceConfig::default() };
        change(&mut config);
        let mut told = Vec::new();
        let found = validate::<TraceError>(&config, limit, |error| {
            let text = error.to_string();
            told.push(text.rsplit_once("/t:").map_or(text.clone(), |(_, what)| what.to_owned()));
            Ok(())
        });
        (found.unwrap(), told)
    }

    #[test]
    fn every_problem_has_its_line() {
        let late = GOOD.replace(": 0", ": 61500");
        let text = format!(
            "{GOOD}{{\"timestamp\": 1\n{GOOD}[]\n{}{late}{GOOD}{GOOD}",
            GOOD.replace('5', "-5")
        );
        let (found, told) = check(&text, 100, |_| ());
        assert_eq!(told.len(), 5, "{told:?}");
        assert!(told[0].starts_with("2:15: malformed JSON"), "{told:?}");
        assert!(told[1].starts_with("4:1: malformed JSON"));
        assert!(told[2].starts_with("5: `input_length` is -5"));
        // 61.5 s is more than the 60 s that are sorted over.
        assert!(told[3].starts_with("7: `timestamp` is 61.5 s before"));
        assert!(told[4].starts_with("8: `timestamp` is 61.5 s before"));
        assert_eq!(
            found,
            Validation {
                format: Some(TraceFormat::Mooncake),
                rows: 5,
                unservable: 0,
                problems: 5,
                is_complete: true
            }
        );
    }

    #[test]
    fn a_request_that_waits_for_itself_is_found() {
        let row = |waits: &str| {
            format!(
                "{{\"request_id\": \"r\", \"wait_for\": [{waits}], \"timestamp\": 0, \
                 \"input_length\": 5, \"output_length\": 1}}\n"
            )
        };
        let (found, told) = check(&row("\"r\""), 100, |_| ());
        assert_eq!(found.problems, 1);
        assert!(told[0].contains("the request waits for itself"), "{told:?}");
        assert_eq!(check(&row(""), 100, |_| ()).0.problems, 0);
    }

    #[test]
    fn the_limit_ends_it() {
        let (found, told) = check(&format!("{GOOD}[]\n[]\n[]\n"), 2, |_| ());
        assert_eq!((told.len(), found.problems, found.is_complete), (2, 2, false));
        let (found, told) = check(&format!("{GOOD}[]\n[]\n[]\n"), 4, |_| ());
        assert_eq!((told.len(), found.problems, found.is_complete), (3, 3, true));
    }

    #[test]
    fn lines_that_are_no_text_do_not_hide_those_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        std::fs::write(&path, [GOOD.as_bytes(), b"\xff\n", GOOD.as_bytes(), b"\xff"].concat())
            .unwrap();
        let config = TraceConfig { path, ..TraceConfig::default() };
        let found = validate::<TraceError>(&config, 100, |_| Ok(())).unwrap();
        assert_eq!((found.rows, found.problems), (2, 2));
    }

    #[test]
    fn a_good_trace_has_no_problems_and_says_what_no_engine_serves() {
        let text =
            format!("{GOOD}{}", GOOD.replace("\"output_length\": 1", "\"output_length\": 0"));
        let (found, told) = check(&text, 100, |c| c.limit = Some(1));
        assert_eq!((found.rows, found.unservable, found.problems), (2, 1, 0));
        assert!(found.is_complete && told.is_empty());
    }

    #[test]
    fn what_cannot_be_opened_is_one_problem() {
        let (found, told) = check("", 100, |_| ());
        assert_eq!((found.format, found.problems), (None, 1));
        assert!(told[0].ends_with("no rows, expected at least one request"), "{told:?}");
        let (found, _) = check("x,y\n", 100, |_| ());
        assert_eq!((found.format, found.problems), (None, 1));
        let header = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
        let (found, told) = check(header, 100, |_| ());
        assert_eq!((found.format, found.problems), (Some(TraceFormat::Azure), 1));
        assert!(told[0].ends_with("no rows, expected at least one request"), "{told:?}");
    }
}
