//! KV memory: which blocks exist, who holds them, and what they contain.
//!
//! [`blocks::BlockKv`] is the paged memory of one vLLM engine. Without prefix caching blocks have
//! no identity and are only counted. With it, [`content::ContentTree`] names the content of every
//! block, and [`pool::BlockPool`] keeps the blocks themselves and the order in which they are
//! reused.

pub(crate) mod blocks;
pub(crate) mod content;
pub(crate) mod pool;
pub(crate) mod radix;
