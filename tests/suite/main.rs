//! The integration tests: one binary, a module per question.

mod quickstart_trace;
