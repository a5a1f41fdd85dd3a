//! Where requests come from.

use super::request::RequestSpec;
use super::trace::error::TraceError;

/// A stream of requests in order of arrival.
pub(crate) trait RequestSource {
    /// The next request, or `None` at the end.
    fn next_request(&mut self) -> Result<Option<RequestSpec>, TraceError>;
}
