//! `servesim trace`: what is in a trace, what is wrong with it, and the same in another format.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde_json::json;

use super::Outcome;
use super::args::{
    ConvertArgs, Format, HeadArgs, StatsArgs, ToFormat, TraceCommand, TraceInput, TracePart,
    ValidateArgs,
};
use super::error::CliError;
use super::run::window_value;
use crate::base::time::SimTime;
use crate::scenario::{Assignment, Scenario, WorkloadConfig};
use crate::workload::sessions::config::{SessionsConfig, ThinkConfig};
use crate::workload::source::{RequestSource, SourceDescription};
use crate::workload::stats::{Lengths, Pauses, SessionStats, StatsCollector, WorkloadStats};
use crate::workload::trace::TraceSource;
use crate::workload::trace::config::TraceConfig;
use crate::workload::trace::own::write_pieces;
use crate::workload::trace::validate::validate as check;
use crate::workload::write::{WorkloadSink, WriteFormat};

/// Runs one of the commands on traces.
pub(super) fn trace(command: &TraceCommand) -> Result<Outcome, CliError> {
    match command {
        TraceCommand::Stats(args) => stats(args),
        TraceCommand::Validate(args) => validate(args),
        TraceCommand::Convert(args) => convert(args),
        TraceCommand::Head(args) => head(args),
    }
}

/// How the trace is to be read.
fn config(input: &TraceInput, part: &TracePart) -> Result<TraceConfig, CliError> {
    let mut all = Vec::new();
    for text in &input.set {
        all.push(Assignment::parse(text)?);
    }
    let mut by_flag = |flag: &str, text: &str, field: &str, value: serde_json::Value| {
        let path = format!("workload.trace.{field}");
        all.push(Assignment::by_flag(format!("{flag} {text}"), &path, value));
    };
    if let Some(limit) = part.limit {
        by_flag("--limit", &limit.to_string(), "limit", limit.into());
    }
    if let Some(window) = &part.trace_window {
        by_flag("--trace-window", window, "window", window_value("--trace-window", window)?);
    }
    if let Some(format) = &input.trace_format {
        by_flag("--trace-format", format, "format", format.as_str().into());
    }
    let scenario = Scenario::replay(&input.trace).with(&all)?;
    let scenario = scenario
        .resolve(Path::new(""))
        .map_err(|cause| CliError::Config { path: input.trace.clone(), cause })?;
    match scenario.workload {
        WorkloadConfig::Trace(config) => Ok(config),
        WorkloadConfig::Synthetic(_) => Err(CliError::Flag {
            flag: "--set",
            found: "a synthetic workload".to_owned(),
            accepted: "fields of `workload.trace`",
        }),
    }
}

fn stats(args: &StatsArgs) -> Result<Outcome, CliError> {
    let mut config = config(&args.input, &args.part)?;
    // Who follows whom is read, whatever a replay makes of it.
    config.sessions.get_or_insert(SessionsConfig::Think(ThinkConfig::default()));
    let mut source = TraceSource::open(&config)?;
    let usual = source.describe().hash_block_tokens.unwrap_or(16);
    let mut collector = StatsCollector::new(args.block_tokens.unwrap_or(usual), &args.cache_tokens);
    while source.next_arrival()?.is_some() {
        collector.add(&source.take());
    }
    let (stats, described) = (collector.finish(), source.describe());
    let mut out = io::stdout().lock();
    match args.format {
        Format::Json => {
            let value = json!({
                "schema": "servesim.trace_stats/1",
                "trace": config.path,
                "reader": described,
                "rows": source.counts(),
                "stats": stats,
            });
            writeln!(out, "{value:#}")?;
        }
        Format::Table => print_stats(&stats, &described, &mut out)?,
    }
    Ok(Outcome::Done)
}

fn print_stats(
    stats: &WorkloadStats,
    described: &SourceDescription,
    out: &mut dyn Write,
) -> io::Result<()> {
    print_reader(described, out)?;
    writeln!(out, "requests                {}", stats.requests)?;
    writeln!(out, "span (s)                {:.3}", stats.span_s)?;
    let known = |value: Option<f64>, digits: usize| {
        value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
    };
    writeln!(out, "requests per s          {}", known(stats.requests_per_s, 3))?;
    writeln!(out, "CV of intervals         {}", known(stats.interarrival_cv, 2))?;
    writeln!(
        out,
        "\ntokens                  mean     min     p50     p90     p95     p99     max"
    )?;
    for (name, lengths) in [("prompt", stats.prompt_tokens), ("output", stats.output_tokens)] {
        let Some(Lengths { mean, min, p50, p90, p95, p99, max, .. }) = lengths else { continue };
        writeln!(
            out,
            "{name:<18}{mean:>10.1}{min:>8}{p50:>8.0}{p90:>8.0}{p95:>8.0}{p99:>8.0}{max:>8}"
        )?;
    }
    let prefix = &stats.prefix;
    let percent = |ratio: Option<f64>| known(ratio.map(|ratio| ratio * 100.0), 2);
    writeln!(out, "\nshared prefixes (%)     {}", percent(prefix.ideal_hit_ratio))?;
    writeln!(out, "working set (tokens)    {}", prefix.working_set_tokens)?;
    for cache in &prefix.caches {
        writeln!(
            out,
            "hits (%)                {} with {} tokens in blocks of {}",
            percent(cache.hit_ratio),
            cache.cache_tokens,
            prefix.block_tokens
        )?;
    }
    stats.sessions.map_or(Ok(()), |sessions| print_sessions(&sessions, out))
}

fn print_sessions(sessions: &SessionStats, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nsessions                {}", sessions.sessions)?;
    writeln!(out, "of one turn (%)         {:.2}", sessions.one_turn_ratio * 100.0)?;
    writeln!(out, "turns that follow       {}", sessions.followers)?;
    writeln!(out, "                        mean     min     p50     p90     p95     p99     max")?;
    let Lengths { mean, min, p50, p90, p95, p99, max, .. } = sessions.turns;
    writeln!(
        out,
        "{:<18}{mean:>10.1}{min:>8}{p50:>8.0}{p90:>8.0}{p95:>8.0}{p99:>8.0}{max:>8}",
        "turns"
    )?;
    let Some(Pauses { mean, min, p50, p90, p95, p99, max }) = sessions.pause_s else {
        return Ok(());
    };
    writeln!(
        out,
        "{:<18}{mean:>10.1}{min:>8.1}{p50:>8.1}{p90:>8.1}{p95:>8.1}{p99:>8.1}{max:>8.1}",
        "pause (s)"
    )
}

/// How the trace was read.
fn print_reader(described: &SourceDescription, out: &mut dyn Write) -> io::Result<()> {
    let value = json!(described);
    let text = |field: &str| value[field].as_str().unwrap_or("-").to_owned();
    writeln!(out, "format                  {}", text("format"))?;
    writeln!(out, "time unit               {}", described.time_unit)?;
    writeln!(out, "origin                  {}", text("origin"))?;
    if let Some(tokens) = described.hash_block_tokens {
        writeln!(out, "tokens of a hash id     {tokens}")?;
    }
    writeln!(out, "order of ties           {}", text("ties"))?;
    if !described.ignored_fields.is_empty() {
        writeln!(out, "not used                {}", described.ignored_fields.join(", "))?;
    }
    if described.sessions_ignored {
        writeln!(out, "sessions                not followed: rows arrive by their stamps")?;
    }
    Ok(())
}

fn validate(args: &ValidateArgs) -> Result<Outcome, CliError> {
    let config = config(&args.input, &TracePart::default())?;
    let mut out = BufWriter::new(io::stdout().lock());
    let found = check::<CliError>(&config, args.limit, |problem| Ok(writeln!(out, "{problem}")?))?;
    let plural = |n: u64, noun: &str| format!("{n} {noun}{}", if n == 1 { "" } else { "s" });
    let stopped =
        if found.is_complete || found.problems == 0 { "" } else { "; not read to the end" };
    let unserved = match found.unservable {
        0 => String::new(),
        n => format!(" ({n} without a prompt or without output, which engines reject)"),
    };
    writeln!(
        out,
        "{}{unserved}, {}{stopped}",
        plural(found.rows, "row"),
        plural(found.problems, "problem")
    )?;
    out.flush()?;
    Ok(if found.problems > 0 { Outcome::BadInput } else { Outcome::Done })
}

fn convert(args: &ConvertArgs) -> Result<Outcome, CliError> {
    let config = config(&args.input, &args.part)?;
    let mut source = TraceSource::open(&config)?;
    let usual = source.describe().hash_block_tokens.unwrap_or(512);
    let format = match args.to {
        ToFormat::Servesim => WriteFormat::Own,
        ToFormat::Mooncake => {
            WriteFormat::Mooncake { block_tokens: args.block_tokens.unwrap_or(usual) }
        }
    };
    let mut sink = WorkloadSink::create(&args.out, format)?;
    let mut first = None;
    while let Some(arrival) = source.next_arrival()? {
        first.get_or_insert(arrival);
        sink.write(&source.take())?;
    }
    sink.close()?;
    let mut needed = Vec::new();
    if first.is_some_and(|first| first > SimTime::ZERO) {
        needed.push("origin=zero".to_owned());
    }
    if let WriteFormat::Mooncake { block_tokens } = format {
        needed.push("ties=file".to_owned());
        if block_tokens != 512 {
            needed.push(format!("hash_block_tokens={block_tokens}"));
        }
    }
    let mut told = format!("servesim: {} requests written", source.counts().requests);
    if !needed.is_empty() {
        let fields: Vec<_> =
            needed.iter().map(|field| format!("--set workload.trace.{field}")).collect();
        told = format!("{told}; to get the same requests, read with {}", fields.join(" "));
    }
    writeln!(io::stderr(), "{told}")?;
    Ok(Outcome::Done)
}

fn head(args: &HeadArgs) -> Result<Outcome, CliError> {
    let mut config = config(&args.input, &TracePart::default())?;
    config.limit = Some(config.limit.map_or(args.requests, |limit| limit.min(args.requests)));
    let mut source = TraceSource::open(&config)?;
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "      id      line       arrival_s    prompt    output       max  priority  content"
    )?;
    while source.next_arrival()?.is_some() {
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
