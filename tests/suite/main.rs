//! The integration tests: one binary, a module per question.
