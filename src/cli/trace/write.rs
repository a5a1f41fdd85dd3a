//! Workloads as files: `convert` and `synth`.

use std::io::{self, Write};
use std::path::Path;

use super::super::Outcome;
use super::super::args::{ConvertArgs, SynthArgs, ToFormat, WriteArgs};
use super::super::error::CliError;
use super::input;
use crate::base::time::SimTime;
use crate::scenario::{Scenario, WorkloadConfig};
use crate::workload::reshape::ReshapedTrace;
use crate::workload::source::RequestSource;
use crate::workload::synthetic::SyntheticSource;
use crate::workload::write::{WorkloadSink, WriteFormat};

/// Writes a trace in another format.
pub(super) fn convert(args: &ConvertArgs) -> Result<Outcome, CliError> {
    let (_, mut source) = input::open(&args.input, &args.part, args.seed)?;
    let usual = source.describe().hash_block_tokens;
    write(&mut source, usual, &args.write)
}

/// Writes the workload of a scenario.
pub(super) fn synth(args: &SynthArgs) -> Result<Outcome, CliError> {
    let accepted = "`seed` or a field of `workload`: nothing else changes what is written";
    let assignments = input::assignments(&args.set, &["workload", "seed"], accepted)?;
    let scenario = Scenario::load(&args.scenario)?;
    let directory = args.scenario.parent().unwrap_or(Path::new(""));
    let scenario = input::resolved(&scenario, &assignments, args.seed, &args.scenario, directory)?;
    input::refuse_following(&scenario.workload, &args.scenario)?;
    match &scenario.workload {
        WorkloadConfig::Trace(config) => {
            let mut source = ReshapedTrace::open(config, scenario.seed)?;
            input::refuse_follower(&source, &args.scenario)?;
            let usual = source.describe().hash_block_tokens;
            write(&mut source, usual, &args.write)
        }
        WorkloadConfig::Synthetic(config) => {
            let mut source = SyntheticSource::new(config, scenario.seed)?;
            input::refuse_follower(&source, &args.scenario)?;
            write(&mut source, None, &args.write)
        }
    }
}

/// Writes all requests of `source`, and tells what takes a setting to read back.
fn write(
    source: &mut dyn RequestSource,
    usual_block_tokens: Option<u32>,
    args: &WriteArgs,
) -> Result<Outcome, CliError> {
    let format = format(usual_block_tokens, args)?;
    let mut sink = WorkloadSink::create(&args.out, format)?;
    let mut first = None;
    let mut requests = 0_u64;
    while let Some(arrival) = source.next_arrival()? {
        first.get_or_insert(arrival);
        sink.write(&source.take())?;
        requests += 1;
    }
    sink.close()?;
    let mut needed = Vec::new();
    if first.is_some_and(|first| first > SimTime::ZERO) {
        needed.push("origin=zero".to_owned());
    }
    if let WriteFormat::Mooncake { block_tokens, .. } = format {
        needed.push("ties=file".to_owned());
        if block_tokens != 512 {
            needed.push(format!("hash_block_tokens={block_tokens}"));
        }
    }
    let mut told = format!("servesim: {requests} requests written");
    if !needed.is_empty() {
        let fields: Vec<_> =
            needed.iter().map(|field| format!("--set workload.trace.{field}")).collect();
        told = format!("{told}; to get the same requests, read with {}", fields.join(" "));
    }
    if !source.class_names().is_empty() {
        told = format!("{told}; the names of classes are not in the file");
    }
    writeln!(io::stderr(), "{told}")?;
    Ok(Outcome::Done)
}

fn format(usual_block_tokens: Option<u32>, args: &WriteArgs) -> Result<WriteFormat, CliError> {
    let refused = |flag| CliError::Flag {
        flag,
        found: "with `--to servesim`".to_owned(),
        accepted: "`--to mooncake`, whose ids name blocks",
    };
    match args.to {
        ToFormat::Servesim if args.whole_blocks => Err(refused("--whole-blocks")),
        ToFormat::Servesim if args.block_tokens.is_some() => Err(refused("--block-tokens")),
        ToFormat::Servesim => Ok(WriteFormat::Own),
        ToFormat::Mooncake => Ok(WriteFormat::Mooncake {
            block_tokens: args.block_tokens.or(usual_block_tokens).unwrap_or(512),
            whole_blocks: args.whole_blocks,
        }),
    }
}
