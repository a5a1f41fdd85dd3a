//! Names that rows give to sessions, requests and classes, and what one row of a session says about
//! the next.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Row, RowReader, RowTurn, TraceError};
use crate::base::lookup::LookupMap;
use crate::base::time::SimDuration;
use crate::workload::request::{Name, Turn};

/// The sessions and names met so far; memory grows with their number.
#[derive(Default)]
pub(super) struct Turns {
    sessions: LookupMap<Box<str>, Met>,
    names: LookupMap<Box<str>, Met>,
    sessions_met: u64,
    names_met: u64,
}

/// A session, or a request with a name.
#[derive(Clone, Copy)]
struct Met {
    name: Name,
    /// The stamp of its latest row, plus what the recorded service took for it; `None` if none was read.
    end: Option<i128>,
}

impl Turns {
    /// Whether what the row follows is replayed, as far as its session or what it waits for tells.
    pub(super) fn follows_known(&self, row: &RowTurn) -> bool {
        let session = row.session.as_deref().filter(|_| row.wait_for.is_none());
        session.is_some_and(|session| self.sessions.get(session).is_some())
            || row.wait_for.iter().flatten().any(|name| self.names.get(name.as_str()).is_some())
    }

    /// What the row at `stamp` follows. Rows come by stamp, those of a session in their order.
    ///
    /// Where no delay is recorded, it is the time from the recorded end of what it follows: the stamp
    /// and, where the trace has it, the service time, so that service is counted once, as the simulated
    /// one.
    pub(super) fn turn(&mut self, row: &RowTurn, stamp: i128) -> Turn {
        let end = Some(stamp + row.service.unwrap_or(0));
        let mut before = None;
        let session = row.session.as_deref().map(|session| {
            let met = met(&mut self.sessions, &mut self.sessions_met, session);
            before = std::mem::replace(&mut met.end, end);
            met.name
        });
        let follows_session = before.is_some();
        let wait_for = row.wait_for.as_ref().map(|all| {
            before = None;
            let known = |name: &&String| !row.may_dangle || self.names.get(name.as_str()).is_some();
            let all: Vec<_> = all.iter().filter(known).collect();
            let names = all.into_iter().map(|name| {
                let met = met(&mut self.names, &mut self.names_met, name);
                before = before.max(met.end);
                met.name
            });
            names.collect::<Vec<_>>()
        });
        let name = row.name.as_deref().map(|name| {
            let met = met(&mut self.names, &mut self.names_met, name);
            met.end = end;
            met.name
        });
        let waits = wait_for.as_ref().map_or(follows_session, |all| !all.is_empty());
        let gap = before.filter(|_| !row.lacks_stamp).map_or(0, |before| stamp - before);
        let delay = row.delay.unwrap_or(gap).max(0);
        Turn {
            session,
            name,
            wait_for,
            delay: SimDuration::from_ns(u64::try_from(delay).unwrap_or(u64::MAX)),
            continues: row.continues,
            is_start: !waits,
            lacks_arrival: row.lacks_stamp,
        }
    }
}

/// What is known under `name`, which is numbered if it is new.
fn met<'a>(all: &'a mut LookupMap<Box<str>, Met>, count: &mut u64, name: &str) -> &'a mut Met {
    if all.get(name).is_none() {
        all.insert(name.into(), Met { name: Name(*count), end: None });
        *count += 1;
    }
    all.get_mut(name).expect("it is there now")
}

/// Whether what rows say of each other fits together, in the order of the file. Memory grows with the
/// number of sessions and names.
#[derive(Default)]
pub(super) struct Links {
    /// The latest stamp of each session.
    sessions: LookupMap<Box<str>, i128>,
    names: LookupMap<Box<str>, ()>,
    /// Names that rows wait for and that no row has had, by the first such line.
    missing: BTreeMap<u64, Vec<Box<str>>>,
    /// Whether a row waits for itself.
    has_loop: bool,
}

/// What is wrong with what a row says.
pub(super) enum Misfit {
    /// Its stamp is so many nanoseconds before that of the row before it in its session.
    Backwards(i128),
    /// Another row has its name.
    Twice(String),
}

impl Links {
    /// Takes the next row of the file in.
    pub(super) fn add(&mut self, row: &Row) -> Result<(), Misfit> {
        let Some(turn) = &row.turn else { return Ok(()) };
        let is_by_file = !turn.lacks_stamp && !turn.is_by_stamp;
        if let (Some(session), None, true) = (&turn.session, &turn.wait_for, is_by_file) {
            match self.sessions.get_mut(session.as_str()) {
                Some(latest) if *latest > row.stamp => {
                    return Err(Misfit::Backwards(*latest - row.stamp));
                }
                Some(latest) => *latest = row.stamp,
                None => drop(self.sessions.insert(session.as_str().into(), row.stamp)),
            }
        }
        if let Some(name) = &turn.name
            && self.names.insert(name.as_str().into(), ()).is_some()
        {
            return Err(Misfit::Twice(name.clone()));
        }
        let waits = turn.wait_for.iter().flatten().filter(|_| !turn.may_dangle);
        self.has_loop |= waits.clone().any(|name| turn.name.as_ref() == Some(name));
        for name in waits.filter(|name| self.names.get(name.as_str()).is_none()) {
            self.missing.entry(row.line).or_default().push(name.as_str().into());
        }
        Ok(())
    }

    /// Whether a row waits for itself, or for what was not there yet.
    pub(super) fn point_ahead(&self) -> bool {
        self.has_loop || !self.missing.is_empty()
    }

    /// At the end of the file.
    ///
    /// # Errors
    /// A row waits for what no row is called.
    pub(super) fn finish(&self, path: &Path) -> Result<(), TraceError> {
        let missing = self
            .missing
            .iter()
            .flat_map(|(&line, names)| names.iter().map(move |name| (line, &**name)));
        let mut missing = missing.filter(|(_, name)| self.names.get(*name).is_none());
        missing.next().map_or(Ok(()), |(line, name)| {
            let accepted = "what a request of the trace is called".to_owned();
            Err(refused(path, line, "wait_for", format!("{name:?}"), accepted))
        })
    }
}

impl Misfit {
    /// The error that the row in `line` has this.
    pub(super) fn into_error(self, path: &Path, line: u64, rows: &dyn RowReader) -> TraceError {
        let facts = rows.facts();
        match self {
            Self::Backwards(ns) => {
                let found = format!("{} s before that of the row before it", ns as f64 / 1e9);
                let accepted = "the turns of a session in their order".to_owned();
                refused(path, line, &facts.stamp_field, found, accepted)
            }
            Self::Twice(name) => {
                let accepted = "a name that no other request has".to_owned();
                refused(path, line, facts.name_field, format!("{name:?}"), accepted)
            }
        }
    }
}

fn refused(path: &Path, line: u64, field: &str, found: String, accepted: String) -> TraceError {
    let (path, field, hint) = (path.to_owned(), field.to_owned(), String::new());
    TraceError::Field { path, line, field, found, accepted, hint }
}

/// Classes that a trace may name.
pub(super) const CLASSES_MAX: usize = 1000;

/// The classes met so far.
#[derive(Default)]
pub(super) struct Classes {
    numbers: LookupMap<Box<str>, u16>,
    names: Vec<String>,
}

impl Classes {
    /// The number of a class; `None` where there are too many.
    pub(super) fn number(&mut self, name: &str) -> Option<u16> {
        if let Some(&number) = self.numbers.get(name) {
            return Some(number);
        }
        if self.names.len() == CLASSES_MAX {
            return None;
        }
        let number = self.names.len() as u16;
        self.numbers.insert(name.into(), number);
        self.names.push(name.to_owned());
        Some(number)
    }

    /// Their names, by number.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(session: &str) -> RowTurn {
        RowTurn { session: Some(session.to_owned()), ..RowTurn::default() }
    }

    #[test]
    fn the_recorded_service_is_no_pause() {
        let mut turns = Turns::default();
        // 10 to 25 of 40: 15 are left. Another session does not matter.
        let first = turns.turn(&RowTurn { service: Some(15), ..row("a") }, 10);
        let other = turns.turn(&row("b"), 30);
        let second = turns.turn(&row("a"), 40);
        assert!(first.is_start && other.is_start && !second.is_start);
        assert_eq!(second.delay, SimDuration::from_ns(15));
        assert_eq!((first.session, other.session), (Some(Name(0)), Some(Name(1))));
        // Without a record of the service, all of the time between stamps is a pause.
        assert_eq!(turns.turn(&row("a"), 47).delay, SimDuration::from_ns(7));
        let recorded = RowTurn { delay: Some(3), ..row("a") };
        assert_eq!(turns.turn(&recorded, 90).delay, SimDuration::from_ns(3));
        // The service may have lasted beyond the next stamp.
        turns.turn(&RowTurn { service: Some(50), ..row("a") }, 100);
        assert_eq!(turns.turn(&row("a"), 120).delay, SimDuration::ZERO);
    }

    #[test]
    fn what_is_waited_for_takes_the_place_of_the_session() {
        let mut turns = Turns::default();
        let named = |name: &str, waits: &[&str]| RowTurn {
            name: Some(name.to_owned()),
            wait_for: Some(waits.iter().map(|&name| name.to_owned()).collect()),
            ..row("a")
        };
        assert!(turns.turn(&named("x", &[]), 10).is_start);
        assert!(turns.turn(&named("y", &[]), 20).is_start);
        let both = turns.turn(&named("z", &["x", "y"]), 50);
        // The later of the two began at 20.
        assert_eq!((both.delay, both.is_start), (SimDuration::from_ns(30), false));
        assert_eq!(both.wait_for, Some(vec![Name(0), Name(1)]));
        let gone = RowTurn { may_dangle: true, ..named("w", &["before the trace"]) };
        assert!(turns.turn(&gone, 60).is_start);
    }
}
