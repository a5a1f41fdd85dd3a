//! A request as the workload describes it, before any engine has seen it.

use crate::base::ids::RequestId;
use crate::base::time::SimTime;

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
}

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
