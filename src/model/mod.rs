//! What is deployed: a model's shape, an accelerator's data sheet, how the one is spread over several of
//! the other, and what memory that leaves for KV.

pub(crate) mod accelerator;
pub(crate) mod engine_log;
pub(crate) mod hugging_face;
pub(crate) mod memory;
pub(crate) mod parallel;
pub(crate) mod presets;
pub(crate) mod shape;
