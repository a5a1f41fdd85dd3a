//! The bytes of a trace, replayed with instant answers.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| servesim::fuzzing::read_trace(bytes));
