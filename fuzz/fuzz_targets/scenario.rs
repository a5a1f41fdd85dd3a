//! The text of a scenario, read and resolved.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| servesim::fuzzing::read_scenario(bytes));
