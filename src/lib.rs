//! servesim rehearses an LLM deployment before anyone rents the GPUs.

pub(crate) mod base;
pub(crate) mod conform;
pub(crate) mod engine;
pub(crate) mod kernel;
pub(crate) mod kv;
pub(crate) mod metrics;
pub(crate) mod report;
pub mod scenario;
pub(crate) mod timing;
pub(crate) mod workload;
