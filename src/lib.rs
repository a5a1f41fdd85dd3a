//! servesim rehearses an LLM deployment before anyone rents the GPUs.

pub(crate) mod base;
pub(crate) mod metrics;
pub(crate) mod report;
pub(crate) mod workload;
