//! The small layer every module may use: time, ids, random streams, digests, lookups.

pub(crate) mod config;
pub(crate) mod digest;
pub(crate) mod hint;
pub(crate) mod ids;
pub(crate) mod lookup;
pub(crate) mod moment;
pub(crate) mod output;
pub(crate) mod record;
pub(crate) mod time;
