//! Workloads as files: `convert` and `synth`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};
use std::path::Path;

use super::super::Outcome;
use super::super::args::{ConvertArgs, SynthArgs, ToFormat, WriteArgs};
use super::super::error::CliError;
use super::input;
use crate::base::time::{SimDuration, SimTime};
use crate::scenario::{Scenario, WorkloadConfig};
use crate::workload::limit::Limited;
use crate::workload::request::RequestSpec;
use crate::workload::reshape::ReshapedTrace;
use crate::workload::servegen::ServeGenSource;
use crate::workload::source::RequestSource;
use crate::workload::synthetic::SyntheticSource;
use crate::workload::write::{WorkloadSink, WriteFormat};

/// Writes a trace in another format.
pub(super) fn convert(args: &ConvertArgs) -> Result<Outcome, CliError> {
    let (_, mut source) = input::open(&args.input, &args.part, args.seed)?;
    let usual = source.describe().hash_block_tokens;
    write(&mut source, usual, &args.write, None)
}

/// Writes the workload of a scenario.
pub(super) fn synth(args: &SynthArgs) -> Result<Outcome, CliError> {
    let accepted = "`seed` or a field of `workload`: nothing else changes what is written";
    let assignments = input::assignments(&args.set, &["workload", "seed"], accepted)?;
    let answers = args.answer_ms.as_deref().map(Answers::parse).transpose()?;
    let scenario = Scenario::load(&args.scenario)?;
    let directory = args.scenario.parent().unwrap_or(Path::new(""));
    let scenario = input::resolved(&scenario, &assignments, args.seed, &args.scenario, directory)?;
    if answers.is_none() {
        input::refuse_following(&scenario.workload, &args.scenario)?;
    }
    let seed = scenario.seed;
    match &scenario.workload {
        WorkloadConfig::Trace(config) => {
            let source = ReshapedTrace::open(config, seed)?;
            let usual = source.describe().hash_block_tokens;
            let limit = config.reshape.as_ref().and_then(|reshape| reshape.max_concurrency);
            write(&mut Limited::new(source, limit), usual, &args.write, answers)
        }
        WorkloadConfig::Synthetic(config) => {
            let source = SyntheticSource::new(config, seed)?;
            let mut source = Limited::new(source, config.max_concurrency);
            write(&mut source, None, &args.write, answers)
        }
        WorkloadConfig::ServeGen(config) => {
            let source = ServeGenSource::open(config, seed)?;
            let mut source = Limited::new(source, config.max_concurrency);
            write(&mut source, None, &args.write, answers)
        }
    }
}

/// How long answers take, without an engine.
#[derive(Clone, Copy)]
struct Answers {
    first: SimDuration,
    token: SimDuration,
}

impl Answers {
    fn parse(text: &str) -> Result<Self, CliError> {
        let ms = |text: &str| {
            let ms = text.trim().parse().ok().filter(|ms| (0.0..=3.6e6).contains(ms))?;
            SimDuration::from_ms(ms)
        };
        let parts = text.split_once(':').and_then(|(first, token)| Some((ms(first)?, ms(token)?)));
        parts.map(|(first, token)| Self { first, token }).ok_or_else(|| CliError::Flag {
            flag: "--answer-ms",
            found: text.to_owned(),
            accepted: "FIRST:TOKEN, each a number of milliseconds from 0 to 3600000",
        })
    }

    /// When a request has its last token.
    fn end(self, request: &RequestSpec) -> SimTime {
        let others = u64::from(request.output_tokens.saturating_sub(1));
        let token_ns = self.token.as_ns().saturating_mul(others);
        let duration = self.first.as_ns().saturating_add(token_ns);
        request.arrival.checked_add(SimDuration::from_ns(duration)).unwrap_or(SimTime::MAX)
    }
}

/// Writes all requests of `source`, and tells what takes a setting to read back.
fn write(
    source: &mut dyn RequestSource,
    usual_block_tokens: Option<u32>,
    args: &WriteArgs,
    answers: Option<Answers>,
) -> Result<Outcome, CliError> {
    let format = format(usual_block_tokens, args)?;
    let mut sink = WorkloadSink::create(&args.out, format)?;
    let mut under_way = BinaryHeap::new();
    let mut first = None;
    let (mut requests, mut are_tied) = (0_u64, false);
    loop {
        let arrival = source.next_arrival()?;
        if let Some(&Reverse((end, id))) = under_way.peek()
            && arrival.is_none_or(|arrival| end <= arrival)
        {
            under_way.pop();
            source.ended(id, end);
            continue;
        }
        let Some(arrival) = arrival else { break };
        first.get_or_insert(arrival);
        let request = source.take();
        if let Some(answers) = answers.filter(|_| source.follows_ends()) {
            under_way.push(Reverse((answers.end(&request), request.id)));
        }
        let request = if args.whole_ms { in_whole_ms(request) } else { request };
        sink.write(&request, source.class_names())?;
        requests += 1;
        are_tied |= request.turn.is_some();
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
    if are_tied {
        told = format!("{told}; some follow others (`--sessions`)");
    }
    writeln!(io::stderr(), "{told}")?;
    Ok(Outcome::Done)
}

/// `request` with its arrival and its pause rounded to milliseconds, halves up.
fn in_whole_ms(request: RequestSpec) -> RequestSpec {
    let rounded = |ns: u64| ns.saturating_add(500_000) / 1_000_000 * 1_000_000;
    let arrival = SimTime::from_ns(rounded(request.arrival.as_ns()));
    let turn = request.turn.map(|mut turn| {
        turn.delay = SimDuration::from_ns(rounded(turn.delay.as_ns()));
        turn
    });
    RequestSpec { arrival, turn, ..request }
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
