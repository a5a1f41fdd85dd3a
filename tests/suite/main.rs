//! The integration tests: one binary, a module per question.

mod analytic;
mod cli;
mod conformance;
mod determinism;
mod docs;
mod exports;
mod families;
mod fuzzing;
mod gates;
mod layers;
mod measured;
mod page;
mod properties;
mod quickstart_trace;
mod regressions;
mod rows;
mod scenarios;
mod speculation;
mod support;
mod traces;
