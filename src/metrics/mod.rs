//! What is measured: samples, per-request records, time-weighted levels, counts.

pub(crate) mod record;
pub(crate) mod samples;
