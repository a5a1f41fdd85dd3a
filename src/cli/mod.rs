//! The command line: arguments, progress, logs, exit codes.
//!
//! Results go to standard output or a file, everything else to standard error. The exit code is 0
//! when done, 1 when a run could not finish or a check failed, 2 for bad input; it is decided here
//! and nowhere else.

mod accuracy;
mod args;
mod calibrate;
mod compare;
mod conform;
mod deployment;
mod error;
mod estimate;
mod explain;
mod log;
mod presets;
mod progress;
mod run;
mod trace;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use error::CliError;

/// What a command that ran to its end came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// All is well.
    Done,
    /// A run left requests behind, or a requested check failed; why was said.
    Failed,
    /// The input that was to be checked is at fault; why was said.
    BadInput,
}

/// Runs the command that the arguments of this process describe.
#[must_use]
pub fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = log::init(args.log.as_deref()).and_then(|()| dispatch(args.command));
    match outcome {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::from(1),
        Ok(Outcome::BadInput) => ExitCode::from(2),
        // Whoever reads our output has seen enough.
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to be done about a standard error that is closed.
            let _ = writeln!(io::stderr(), "servesim: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn dispatch(command: Command) -> Result<Outcome, CliError> {
    match command {
        Command::Run(run) => run::run(&run),
        Command::Replay(replay) => run::replay(&replay),
        Command::Conform(conform) => conform::conform(&conform),
        Command::Compare(args) => compare::compare(&args),
        Command::Estimate(args) => estimate::estimate(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Presets(args) => presets::presets(&args),
        Command::Accuracy(args) => accuracy::accuracy(&args),
        Command::Calibrate(args) => calibrate::calibrate(&args),
        Command::Trace(command) => trace::trace(&command),
        Command::Schema => {
            let schema = crate::scenario::json_schema();
            let text = serde_json::to_string_pretty(&schema).expect("a schema is plain data");
            writeln!(io::stdout(), "{text}")?;
            Ok(Outcome::Done)
        }
    }
}
