//! A request as the workload describes it, before any engine has seen it.

use crate::base::ids::RequestId;
use crate::base::time::{SimDuration, SimTime};

/// One request of the workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestSpec {
    /// Its place in the workload, in order of arrival.
    pub(crate) id: RequestId,
    /// When it reaches the deployment.
    pub(crate) arrival: SimTime,
    /// Prompt tokens; 0 is possible in a trace and rejected by the front end.
    pub(crate) prompt_tokens: u32,
    /// Output tokens after which it ends by itself; 0 is rejected by the front end.
    pub(crate) output_tokens: u32,
    /// The limit it asks for; above `output_tokens`, the last output token is a stop token.
    pub(crate) max_tokens: u32,
    /// Smaller runs first under the priority policy.
    pub(crate) priority: i32,
    /// The class of its client, an index into the names of its source; 0 where there are none.
    pub(crate) class: u16,
    /// What the prompt consists of.
    pub(crate) content: Content,
    /// Names what it generates, so that a later prompt can continue it.
    pub(crate) output: Segment,
    /// The line of the trace it came from, from 1; 0 where there is no trace.
    pub(crate) line: u64,
    /// What it follows, where that is known and wanted.
    pub(crate) turn: Option<Box<Turn>>,
    /// What its drafts came to, where that was recorded.
    pub(crate) drafts: Option<Box<RecordedDrafts>>,
}

/// What the drafts of a request came to, round by round; each list starts over at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordedDrafts {
    /// Drafts accepted in its first round that verified any, in its second, and so on; never empty.
    pub(crate) accepted: Vec<u32>,
    /// Drafts found after its first pass that sampled, its second, and so on; empty: always as many as may be.
    pub(crate) found: Vec<u32>,
}

/// What a request of a session, or of a graph of calls, follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Its session: it follows the request before it in the same one, unless `wait_for` says otherwise.
    pub(crate) session: Option<Name>,
    /// What requests that wait for it call it.
    pub(crate) name: Option<Name>,
    /// The requests that it waits for, in the place of the one before it in its session.
    pub(crate) wait_for: Option<Vec<Name>>,
    /// From the last of their ends to its arrival.
    pub(crate) delay: SimDuration,
    /// Whether its prompt is that of the request before it in its session, the output, and only then
    /// what `prompt_tokens` and `content` say.
    pub(crate) continues: bool,
    /// Whether nothing has to end before it: then its arrival is when it comes.
    pub(crate) is_start: bool,
    /// Whether its arrival is not recorded.
    pub(crate) lacks_arrival: bool,
}

/// The name of a session or a request, numbered by first appearance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name(pub(crate) u64);

/// The identity of a prompt's tokens. Only equality matters: two prompts share a prefix as far
/// as their pieces agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Shares nothing with any other request.
    Private,
    /// The pieces in order; their lengths add up to `prompt_tokens`.
    Pieces(Vec<Piece>),
}

/// The first `tokens` tokens of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Piece {
    /// Which segment.
    pub(crate) segment: Segment,
    /// How many of its tokens, from its start; at least 1.
    pub(crate) tokens: u32,
}

/// Names a sequence of tokens of any length; equal names mean equal tokens at equal offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Segment {
    /// Named by the workload, for example by a hash id.
    Named(u64),
    /// The partial last block of a prompt: it matches a tail of the same name and length only.
    Tail {
        /// The hash id of the partial block.
        name: u64,
        /// Its length in tokens.
        tokens: u32,
    },
    /// The whole prompt of a request that shares nothing.
    Prompt(RequestId),
    /// What a request generates.
    Output(RequestId),
}
