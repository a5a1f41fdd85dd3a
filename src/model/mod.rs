//! What is deployed: a model's shape, an accelerator's data sheet, how the one is spread over several of
//! the other, and what memory that leaves for KV.

pub(crate) mod accelerator;
pub(crate) mod parallel;
pub(crate) mod shape;
