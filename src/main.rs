//! The `servesim` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    servesim::cli::main()
}
