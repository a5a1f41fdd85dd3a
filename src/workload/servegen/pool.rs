//! A pool of clients, read and checked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::dataset::{self, Dataset, Lengths};
use super::files::{self, Kind};
use super::trace::{self, Window, Windows};
use crate::workload::trace::TraceError;

/// Names of ignored fields that are kept.
const IGNORED_MAX: usize = 32;

/// What a pool holds.
#[derive(Debug)]
pub(super) struct Pool {
    /// In order of number.
    pub(super) clients: Vec<Client>,
    /// Windows of the client that has most.
    pub(super) windows: u64,
    /// The part of the day that any client has windows for, in nanoseconds.
    pub(super) span_ns: (u64, u64),
    /// Fields of datasets that were not used.
    pub(super) ignored: Vec<String>,
}

/// One client.
#[derive(Clone, Debug)]
pub(super) struct Client {
    /// K of its files.
    pub(super) number: u32,
    /// Windows in which it sends, in order.
    pub(super) windows: Vec<Window>,
    /// What its windows' `lengths` count.
    pub(super) lengths: Vec<Lengths>,
}

/// The two files of a client.
#[derive(Default)]
struct Files {
    trace: Option<(PathBuf, Windows)>,
    dataset: Option<(PathBuf, Dataset)>,
}

impl Pool {
    /// Reads the pool at `path`, a folder or an archive.
    ///
    /// # Errors
    /// It holds no client, a client lacks one of its files or has one twice, or a file cannot be used.
    pub(super) fn read(path: &Path) -> Result<Self, TraceError> {
        let mut found: BTreeMap<u32, Files> = BTreeMap::new();
        files::each(path, &mut |file| {
            let files = found.entry(file.client).or_default();
            let place = file.path.clone();
            let earlier = match file.kind {
                Kind::Trace => {
                    let windows = trace::read(&file.path, &file.bytes)?;
                    files.trace.replace((place, windows)).map(|(path, _)| path)
                }
                Kind::Dataset => {
                    let dataset = dataset::read(&file.path, &file.bytes)?;
                    files.dataset.replace((place, dataset)).map(|(path, _)| path)
                }
            };
            match earlier {
                None => Ok(()),
                Some(other) => Err(TraceError::TwoPools { path: file.path, other }),
            }
        })?;
        if found.is_empty() {
            return Err(TraceError::NoClients { path: path.to_owned() });
        }
        let mut pool =
            Self { clients: Vec::new(), windows: 0, span_ns: (u64::MAX, 0), ignored: Vec::new() };
        let mut ignored = BTreeSet::new();
        for (number, files) in found {
            let (windows, dataset) = files.both(path, number)?;
            pool.windows = pool.windows.max(windows.number);
            pool.span_ns.0 = pool.span_ns.0.min(windows.span_ns.0);
            pool.span_ns.1 = pool.span_ns.1.max(windows.span_ns.1);
            ignored.extend(dataset.1.ignored.iter().cloned());
            pool.clients.push(Client::new(number, windows, dataset)?);
        }
        pool.ignored = ignored.into_iter().take(IGNORED_MAX).collect();
        Ok(pool)
    }
}

impl Files {
    /// Both files of the client `number` of the pool at `pool`; errors need to know where the lengths are.
    fn both(self, pool: &Path, number: u32) -> Result<(Windows, (PathBuf, Dataset)), TraceError> {
        let (there, missing) = match (self.trace, self.dataset) {
            (Some((_, windows)), Some(dataset)) => return Ok((windows, dataset)),
            (trace, dataset) => {
                let missing = if trace.is_none() { Kind::Trace } else { Kind::Dataset };
                (trace.map(|file| file.0).or(dataset.map(|file| file.0)), missing)
            }
        };
        let there = there.unwrap_or_else(|| pool.to_owned());
        Err(TraceError::NotFound { path: there.with_file_name(files::name_of(number, missing)) })
    }
}

impl Client {
    fn new(
        number: u32,
        windows: Windows,
        (path, dataset): (PathBuf, Dataset),
    ) -> Result<Self, TraceError> {
        let mut windows = windows.sending;
        for window in &mut windows {
            let Some(part) = dataset.part_at(window.start_ns) else {
                let start_s = window.start_ns as f64 / 1e9;
                return Err(TraceError::NoLengths { path, start_s });
            };
            window.lengths = part;
        }
        let lengths = dataset.parts.into_iter().map(|(_, lengths)| lengths).collect();
        Ok(Self { number, windows, lengths })
    }

    /// Requests that it sends on average within a part of the day, in nanoseconds.
    pub(super) fn requests_within(&self, (from_ns, to_ns): (u64, u64)) -> f64 {
        let requests = self.windows.iter().map(|window| {
            let (from, to) = (window.start_ns.max(from_ns), window.end_ns.min(to_ns));
            window.requests_per_s * (to.saturating_sub(from) as f64 / 1e9)
        });
        requests.sum()
    }
}
