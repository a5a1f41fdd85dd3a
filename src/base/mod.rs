//! The small layer every module may use: time and the order of events, ids, the records that
//! engines state and metrics read, digests, lookups, random streams, configuration errors, result
//! files.

pub(crate) mod config;
pub(crate) mod detail;
pub(crate) mod digest;
pub(crate) mod hint;
pub(crate) mod ids;
pub(crate) mod lookup;
pub(crate) mod moment;
pub(crate) mod output;
pub(crate) mod path;
pub(crate) mod record;
pub(crate) mod rng;
pub(crate) mod rows;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod time;
