//! What is asked of the deployment: requests, and where they come from.

pub(crate) mod arrivals;
pub(crate) mod lengths;
pub(crate) mod limit;
pub(crate) mod prompts;
pub(crate) mod renumber;
pub(crate) mod request;
pub(crate) mod reshape;
pub(crate) mod servegen;
pub(crate) mod sessions;
pub(crate) mod source;
pub(crate) mod stats;
pub(crate) mod synthetic;
pub(crate) mod trace;
pub(crate) mod write;
