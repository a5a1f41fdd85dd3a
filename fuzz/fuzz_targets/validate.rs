//! The bytes of a trace, checked.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| servesim::fuzzing::validate_trace(bytes));
