//! The integration tests: one binary, a module per question.

mod layers;
mod quickstart_trace;
