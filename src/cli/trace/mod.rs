//! `servesim trace`: what is in a trace, what is wrong with it, and the same in another format.

mod input;
mod stats;
mod write;

use std::io::{self, BufWriter, Write};

use super::Outcome;
use super::args::{HeadArgs, SeedArg, TraceCommand, TracePart, ValidateArgs};
use super::error::CliError;
use crate::workload::source::RequestSource;
use crate::workload::trace::own::write_pieces;
use crate::workload::trace::validate::validate as check;

/// Runs one of the commands on traces.
pub(super) fn trace(command: &TraceCommand) -> Result<Outcome, CliError> {
    match command {
        TraceCommand::Stats(args) => stats::stats(args),
        TraceCommand::Validate(args) => validate(args),
        TraceCommand::Convert(args) => write::convert(args),
        TraceCommand::Synth(args) => write::synth(args),
        TraceCommand::Head(args) => head(args),
    }
}

fn validate(args: &ValidateArgs) -> Result<Outcome, CliError> {
    let (config, _) = input::trace(&args.input, &TracePart::default(), SeedArg { seed: None })?;
    input::refuse_changes(&args.input, &config)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let found = check::<CliError>(&config, args.limit, |problem| Ok(writeln!(out, "{problem}")?));
    let found = match found {
        // Whoever reads our output has seen enough, of a trace that has problems.
        Err(error) if error.is_broken_pipe() => return Ok(Outcome::BadInput),
        found => found?,
    };
    let plural = |n: u64, noun: &str| format!("{n} {noun}{}", if n == 1 { "" } else { "s" });
    let stopped =
        if found.is_complete || found.problems == 0 { "" } else { "; not read to the end" };
    let unserved = match found.unservable {
        0 => String::new(),
        n => format!(" ({n} without a prompt or without output, which engines reject)"),
    };
    let summary = writeln!(
        out,
        "{}{unserved}, {}{stopped}",
        plural(found.rows, "row"),
        plural(found.problems, "problem")
    );
    match summary.and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        told => told?,
    }
    Ok(if found.problems > 0 { Outcome::BadInput } else { Outcome::Done })
}

fn head(args: &HeadArgs) -> Result<Outcome, CliError> {
    let (_, mut source) = input::open(&args.input, &TracePart::default(), args.seed)?;
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "      id      line       arrival_s    prompt    output       max  priority  content"
    )?;
    for _ in 0..args.requests {
        if source.next_arrival()?.is_none() {
            break;
        }
        let request = source.take();
        let mut content = String::new();
        write_pieces(&request, &mut content);
        let shown: String = content.chars().take(40).collect();
        let more = if shown.len() < content.len() { "..." } else { "" };
        writeln!(
            out,
            "{:>8}{:>10}{:>16.6}{:>10}{:>10}{:>10}{:>10}  {shown}{more}",
            request.id.0,
            request.line,
            request.arrival.as_s(),
            request.prompt_tokens,
            request.output_tokens,
            request.max_tokens,
            request.priority
        )?;
    }
    Ok(Outcome::Done)
}
