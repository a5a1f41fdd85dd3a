//! What is measured: samples, per-request records, time-weighted levels, counts.

pub(crate) mod blame;
mod class_gaps;
mod classes;
pub(crate) mod cloud;
pub(crate) mod collector;
pub(crate) mod distribution;
pub(crate) mod pass_rows;
pub(crate) mod passes;
pub(crate) mod ranks;
pub(crate) mod requests;
pub(crate) mod rounds;
pub(crate) mod samples;
pub(crate) mod series;
pub(crate) mod slo;
pub(crate) mod summary;
pub(crate) mod trend;

pub(crate) use crate::base::record;
