//! The integration tests: one binary, a module per question.

mod docs;
mod layers;
mod quickstart_trace;
