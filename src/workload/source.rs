//! Where requests come from, one at a time, in order of arrival.

use serde::Serialize;

use super::request::RequestSpec;
use super::trace::TraceError;
use super::trace::config::{Ties, TraceFormat};
use crate::base::ids::RequestId;
use crate::base::time::SimTime;

/// A stream of requests by arrival, with dense ids from 0.
pub(crate) trait RequestSource {
    /// When the next request arrives, or `None` when there is none left, or none until one of
    /// those under way has ended.
    ///
    /// # Errors
    /// The workload cannot be read. After an error there is no next request.
    fn next_arrival(&mut self) -> Result<Option<SimTime>, TraceError>;

    /// The request whose arrival [`RequestSource::next_arrival`] has just told.
    ///
    /// # Panics
    /// If there is none.
    fn take(&mut self) -> RequestSpec;

    /// Whether later arrivals depend on the end of earlier requests.
    fn follows_ends(&self) -> bool {
        false
    }

    /// A request was completed, or rejected, at `at`. Told only to sources that follow ends.
    fn ended(&mut self, _id: RequestId, _at: SimTime) {}

    /// What the classes of its requests are called, by number: of those handed out so far at least.
    /// Empty where there are none.
    fn class_names(&self) -> &[String] {
        &[]
    }
}

/// What became of the rows of a trace. Once the source is spent,
/// `rows_read = requests + skipped_by_window + skipped_by_limit`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct TraceCounts {
    /// Rows read. Rows after the last one needed are not read, see `read_to_end`.
    pub(crate) rows_read: u64,
    /// Rows handed out as requests.
    pub(crate) requests: u64,
    /// Of these, the ones whose prompts have an identity, so that they can share a prefix.
    pub(crate) requests_with_content: u64,
    /// Rows read that arrive outside the time window.
    pub(crate) skipped_by_window: u64,
    /// Rows read that arrive after the last request of the limit.
    pub(crate) skipped_by_limit: u64,
    /// Whether the whole trace was read; a limit or the end of a window stops earlier.
    pub(crate) read_to_end: bool,
}

/// How a workload was read: what a report must say for its arrivals to be understood.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct SourceDescription {
    /// The format, as given or as detected; never `auto`.
    pub(crate) format: TraceFormat,
    /// Whether the bytes were compressed.
    pub(crate) gzip: bool,
    /// What one step of the trace's own time stamps means.
    pub(crate) time_unit: &'static str,
    /// The stamp that time 0 (or the start of the window, less `window.from_s`) stands for, as the
    /// format writes stamps; absent before the first row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<String>,
    /// Prompt tokens that one hash id names; absent where the format has no ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hash_block_tokens: Option<u32>,
    /// Whether any request has a prompt that another one can share a prefix with.
    pub(crate) content_identity: bool,
    /// The order of requests that arrive at the same instant.
    pub(crate) ties: Ties,
    /// Fields or columns that the trace has and the reader does not use, in alphabetical order;
    /// at most 32.
    pub(crate) ignored_fields: Vec<String>,
    /// Whether rows name sessions or delays, which are not followed: each row arrives by its stamp.
    pub(crate) sessions_ignored: bool,
}
