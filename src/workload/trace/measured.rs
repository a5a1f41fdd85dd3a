//! What was measured of the requests of a trace, for those formats that say it.

use super::config::TraceConfig;
use super::{Opened, TraceError};
use crate::base::time::SimDuration;

/// What was measured of a request; one of both at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Measured {
    /// From its arrival to its first token.
    pub(crate) ttft: Option<SimDuration>,
    /// From its arrival to its last token.
    pub(crate) e2e: Option<SimDuration>,
}

impl Measured {
    /// From nanoseconds that are not negative; `None` where nothing is known.
    pub(super) fn new(ttft_ns: Option<i128>, e2e_ns: Option<i128>) -> Option<Self> {
        let duration = |ns: i128| u64::try_from(ns).ok().map(SimDuration::from_ns);
        let (ttft, e2e) = (ttft_ns.and_then(duration), e2e_ns.and_then(duration));
        (ttft.is_some() || e2e.is_some()).then_some(Self { ttft, e2e })
    }
}

/// A row of which something was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MeasuredRow {
    /// Its line in the trace, from 1.
    pub(crate) line: u64,
    /// Nanoseconds on the trace's own clock.
    pub(crate) stamp_ns: i128,
    /// Tokens it generated.
    pub(crate) output_tokens: u32,
    /// What was measured.
    pub(crate) measured: Measured,
}

/// The measured rows of a trace, by their stamps, then by their lines.
///
/// # Errors
/// The trace cannot be read.
pub(crate) fn measured(config: &TraceConfig) -> Result<Vec<MeasuredRow>, TraceError> {
    let mut reader = Opened::new(config)?.rows;
    let mut rows = Vec::new();
    while let Some(row) = reader.next_row()? {
        if let Some(measured) = row.measured {
            let (line, stamp_ns, output_tokens) = (row.line, row.stamp, row.output_tokens);
            rows.push(MeasuredRow { line, stamp_ns, output_tokens, measured });
        }
    }
    rows.sort_by_key(|row| (row.stamp_ns, row.line));
    Ok(rows)
}
