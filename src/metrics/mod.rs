//! What is measured: samples, per-request records, time-weighted levels, counts.

pub(crate) use crate::base::record;
