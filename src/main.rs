//! The `servesim` command.
fn main() {}
