//! placeholder
/// placeholder
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {}
