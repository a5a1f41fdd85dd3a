//! The arguments. Flags only override fields of the scenario.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use crate::report::Export;

/// Rehearse an LLM deployment before anyone rents the GPUs.
#[derive(Debug, Parser)]
#[command(name = "servesim", version, max_term_width = 100)]
pub(super) struct Args {
    /// Log to standard error: a level (info, debug), a filter such as `servesim::pass=trace`, or `pass` for one
    /// line per forward pass.
    #[arg(long, global = true, value_name = "FILTER")]
    pub(super) log: Option<String>,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run a scenario and report latencies, throughput and what they are made of.
    Run(RunArgs),
    /// Replay a trace with defaults for everything else.
    Replay(ReplayArgs),
    /// Show results side by side, simulated or measured, with their distance from the first.
    Compare(CompareArgs),
    /// Estimate a steady batch in closed form: passes, latencies, throughput and memory.
    Estimate(EstimateArgs),
    /// Say where the time of the slowest requests went, or of one, and which limit, if lifted, would change that.
    Explain(ExplainArgs),
    /// Replay recorded schedules of real engines and compare every line.
    Conform(ConformArgs),
    /// List known models and accelerators, describe one, or derive the KV memory of a deployment.
    Presets(PresetsArgs),
    /// Replay measured deployments and show how far the simulation is off.
    Accuracy(AccuracyArgs),
    /// Learn from measurements: fields of a scenario from served requests, corrections from observed passes.
    Calibrate(CalibrateArgs),
    /// Look into a trace, check it, or write it in another format.
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Print the JSON Schema of scenario files.
    Schema,
}

#[derive(Debug, Subcommand)]
pub(super) enum TraceCommand {
    /// Rates, lengths and shared prefixes of a trace.
    Stats(StatsArgs),
    /// Everything that is wrong with a trace, line by line.
    Validate(ValidateArgs),
    /// Write a trace in another format, from which the same requests are read.
    Convert(ConvertArgs),
    /// Write the workload that a scenario describes to a file.
    Synth(SynthArgs),
    /// The first requests of a trace, as a run sees them.
    Head(HeadArgs),
}

/// Which trace, and how it is read.
#[derive(Debug, clap::Args)]
pub(super) struct TraceInput {
    /// The trace, plain or gzip; `-` is standard input.
    pub(super) trace: PathBuf,
    /// Set `seed` or a field of `workload.trace`, for example `workload.trace.ties=file`; may be repeated.
    #[arg(long, value_name = "PATH=VALUE")]
    pub(super) set: Vec<String>,
    /// The format of the trace instead of the one its first line shows.
    #[arg(long, value_name = "FORMAT")]
    pub(super) trace_format: Option<String>,
}

/// How much of the trace.
#[derive(Debug, Default, clap::Args)]
pub(super) struct TracePart {
    /// Only the first N requests.
    #[arg(long, value_name = "N")]
    pub(super) limit: Option<u64>,
    /// Only the requests that arrive in this part of the trace, in seconds.
    #[arg(long, value_name = "FROM:TO")]
    pub(super) trace_window: Option<String>,
}

/// What draws the changes that are drawn.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct SeedArg {
    /// The seed of every random stream.
    #[arg(long)]
    pub(super) seed: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(super) struct StatsArgs {
    #[command(flatten)]
    pub(super) input: TraceInput,
    #[command(flatten)]
    pub(super) part: TracePart,
    #[command(flatten)]
    pub(super) seed: SeedArg,
    /// How the statistics are printed.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
    /// Also the hits of caches of these many tokens, separated by commas.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub(super) cache_tokens: Vec<u64>,
    /// Tokens of a block of these caches; as a rule those of a hash id, or 16.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) block_tokens: Option<u32>,
    /// Also write a page with pictures of them.
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(super) struct ValidateArgs {
    #[command(flatten)]
    pub(super) input: TraceInput,
    /// Stop after so many problems.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) limit: u64,
}

#[derive(Debug, clap::Args)]
pub(super) struct ConvertArgs {
    #[command(flatten)]
    pub(super) input: TraceInput,
    #[command(flatten)]
    pub(super) write: WriteArgs,
    #[command(flatten)]
    pub(super) part: TracePart,
    #[command(flatten)]
    pub(super) seed: SeedArg,
}

#[derive(Debug, clap::Args)]
pub(super) struct SynthArgs {
    /// The scenario (YAML or JSON), or a report whose workload is to be written.
    pub(super) scenario: PathBuf,
    #[command(flatten)]
    pub(super) write: WriteArgs,
    /// How long answers take, where arrivals follow them: milliseconds to the first token, and for each of the
    /// others.
    #[arg(long, value_name = "FIRST:TOKEN")]
    pub(super) answer_ms: Option<String>,
    /// Set a field of `workload`, for example `workload.synthetic.requests=100`; may be repeated.
    #[arg(long, value_name = "PATH=VALUE")]
    pub(super) set: Vec<String>,
    #[command(flatten)]
    pub(super) seed: SeedArg,
}

/// Where a workload goes, and how.
#[derive(Debug, clap::Args)]
pub(super) struct WriteArgs {
    /// The file to write: .csv or .jsonl, with .gz if compressed; `-` is standard output.
    pub(super) out: PathBuf,
    /// The format to write.
    #[arg(long, value_enum, default_value_t = ToFormat::Servesim)]
    pub(super) to: ToFormat,
    /// Prompt tokens of a hash id to write; as a rule those of one read, or 512.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) block_tokens: Option<u32>,
    /// Write ids even where prompts differ within a block, and give up what they share of it.
    #[arg(long)]
    pub(super) whole_blocks: bool,
    /// Round arrivals and pauses to whole milliseconds.
    #[arg(long)]
    pub(super) whole_ms: bool,
}

/// What a trace can be written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ToFormat {
    /// servesim's own, with every field, as CSV or JSON lines by the name of the file.
    Servesim,
    /// Mooncake JSON lines, where they can hold the workload exactly.
    Mooncake,
}

#[derive(Debug, clap::Args)]
pub(super) struct HeadArgs {
    #[command(flatten)]
    pub(super) input: TraceInput,
    #[command(flatten)]
    pub(super) seed: SeedArg,
    /// How many.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) requests: u64,
}

#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
    /// The scenario (YAML or JSON), or a report whose scenario is to be run again.
    pub(super) scenario: PathBuf,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct ReplayArgs {
    /// The trace, plain or gzip; `-` is standard input.
    pub(super) trace: PathBuf,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

/// What is deployed, on top of what a scenario says.
#[derive(Debug, clap::Args)]
pub(super) struct DeploymentArgs {
    /// The model that is served: a name of `servesim presets`, or a `config.json`. Timing, KV pool and defaults of
    /// the engine follow from it.
    #[arg(long, value_name = "NAME")]
    pub(super) model: Option<String>,
    /// The accelerator it is served on: a name of `servesim presets`.
    #[arg(long, value_name = "NAME")]
    pub(super) gpu: Option<String>,
    /// Accelerators that share every layer (`parallel.tensor_parallel_size`).
    #[arg(long, value_name = "N")]
    pub(super) tp: Option<u32>,
    /// The engine: `vllm`, `sglang` or `trtllm`. One that the scenario does not have comes with its defaults.
    #[arg(long, value_name = "FAMILY")]
    pub(super) engine: Option<String>,
    /// Set a field of the scenario, for example `engine.vllm.max_num_seqs=64`; may be repeated.
    #[arg(long, value_name = "PATH=VALUE")]
    pub(super) set: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(super) struct CommonArgs {
    #[command(flatten)]
    pub(super) deployment: DeploymentArgs,
    /// Also write report.json into this folder, which is made if need be.
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Also write the result files of this tool into the folder of `--out`, by its definitions; may be repeated.
    #[arg(long, value_name = "TOOL", value_enum, requires = "out")]
    pub(super) export: Vec<Export>,
    /// With lists of every request in the file of `vllm-bench`, as its `--save-detailed` has them.
    #[arg(long, requires = "export")]
    pub(super) export_detailed: bool,
    /// How the report is printed.
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    pub(super) format: ReportFormat,
    /// The seed of every random stream.
    #[arg(long)]
    pub(super) seed: Option<u64>,
    /// Write one row per request (.csv or .jsonl, with .gz if compressed; .parquet in builds with that feature). `-`
    /// is JSON lines on standard output; the report then goes to standard error.
    #[arg(long, value_name = "FILE")]
    pub(super) requests: Option<PathBuf>,
    /// Write one row per pass, in the same formats.
    #[arg(long, value_name = "FILE")]
    pub(super) passes: Option<PathBuf>,
    /// Write the run over time, one row per interval and engine, in the same formats.
    #[arg(long, value_name = "FILE")]
    pub(super) series: Option<PathBuf>,
    /// Write the end of the run as `OpenMetrics` text.
    #[arg(long, value_name = "FILE")]
    pub(super) openmetrics: Option<PathBuf>,
    /// Write what the prices rest on (JSON), with the coordinates furthest outside of what was measured.
    #[arg(long, value_name = "FILE")]
    pub(super) evidence: Option<PathBuf>,
    /// Write a page about the run: one HTML file with charts and tables that needs nothing else. `-` is standard
    /// output; the report then goes to standard error.
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Write a trace of the run for ui.perfetto.dev: passes, requests, and counters of each engine (JSON, with .gz if
    /// compressed).
    #[arg(long, value_name = "FILE")]
    pub(super) perfetto: Option<PathBuf>,
    /// Of that trace, only what lies in this part of the run, in seconds.
    #[arg(long, value_name = "FROM:TO", requires = "perfetto")]
    pub(super) perfetto_window: Option<String>,
    /// Of that trace, only every Nth request, and all passes.
    #[arg(long, value_name = "N", requires = "perfetto", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) perfetto_sample: Option<u32>,
    /// Simulate, but do not count, the first N requests, or those that arrive within N seconds.
    #[arg(long, value_name = "N|Ns")]
    pub(super) warmup: Option<String>,
    /// Let the first N requests fill the cache: they are not counted, and their passes take no time.
    #[arg(long, value_name = "N", conflicts_with = "warmup")]
    pub(super) warm_cache: Option<u64>,
    /// Count only requests that arrive in this part of the run, in seconds.
    #[arg(long, value_name = "FROM:TO")]
    pub(super) window: Option<String>,
    /// Divide the time between arrivals by this.
    #[arg(long, value_name = "FACTOR")]
    pub(super) speedup: Option<f64>,
    /// Replay only the first N requests.
    #[arg(long, value_name = "N")]
    pub(super) limit: Option<u64>,
    /// Replay only the requests that arrive in this part of the trace, in seconds.
    #[arg(long, value_name = "FROM:TO")]
    pub(super) trace_window: Option<String>,
    /// The format of the trace instead of the one its first line shows.
    #[arg(long, value_name = "FORMAT")]
    pub(super) trace_format: Option<String>,
    /// How turns of a session and calls that wait for others arrive: `open` (by their stamps), `think` (a pause
    /// after the end of what they follow), or `closed:N` (as `think`, with N users who begin sessions).
    #[arg(long, value_name = "RULE")]
    pub(super) sessions: Option<String>,
    /// Plan and complete every request by itself in every pass: the same result, more slowly.
    #[arg(long)]
    pub(super) stepwise: bool,
    /// No progress on standard error.
    #[arg(long, short)]
    pub(super) quiet: bool,
}

/// Which results.
#[derive(Debug, clap::Args)]
pub(super) struct CompareArgs {
    /// Results of servesim, vllm bench serve, AIPerf, genai-perf or GuideLLM, rows of requests, or folders with a
    /// report.json; the first is what the others are measured by.
    #[arg(required = true, num_args = 2.., value_name = "RESULTS")]
    pub(super) results: Vec<PathBuf>,
    /// Fail if a figure is further from the first one's than this, for example `ttft_p90=10%` or `e2e_mean=5ms`; may
    /// be repeated.
    #[arg(long, value_name = "FIGURE=LIMIT")]
    pub(super) fail_above: Vec<String>,
    /// Write a page with the distributions over each other. `-` is standard output; the tables then go to standard
    /// error.
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// How the comparison is printed.
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    pub(super) format: ReportFormat,
}

#[derive(Debug, clap::Args)]
pub(super) struct EstimateArgs {
    /// The scenario (YAML or JSON), or a report, whose deployment is used; absent: the defaults of `replay`.
    pub(super) scenario: Option<PathBuf>,
    /// Requests that an engine runs at once.
    #[arg(long, value_name = "N")]
    pub(super) batch: u32,
    /// Tokens of a prompt.
    #[arg(long, value_name = "N")]
    pub(super) isl: u32,
    /// Tokens of an output.
    #[arg(long, value_name = "N")]
    pub(super) osl: u32,
    /// Tokens of a prompt, at its begin, that are in the cache.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) prefix: u32,
    /// Tokens of prompts that a pass may compute, those in the cache not counted: a number, several (`1024,2048`), or
    /// `sweep` for 1, 2, 4 ... whole prompts. Absent: one whole prompt.
    #[arg(long, value_name = "N,..|sweep")]
    pub(super) ctx_tokens: Option<String>,
    /// Also run the same batch, and show how far the estimate is from that.
    #[arg(long)]
    pub(super) check: bool,
    #[command(flatten)]
    pub(super) deployment: DeploymentArgs,
    /// How the estimate is printed.
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    pub(super) format: ReportFormat,
    /// No progress on standard error.
    #[arg(long, short)]
    pub(super) quiet: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct ExplainArgs {
    /// A report, a folder with a report.json, or a scenario (YAML or JSON). It runs again, once for each limit.
    #[arg(value_name = "REPORT|SCENARIO")]
    pub(super) input: PathBuf,
    /// The latency; absent: ttft, or e2e of a single request.
    #[arg(long, value_enum)]
    pub(super) metric: Option<MetricArg>,
    /// The quantile of it that is explained.
    #[arg(long, value_name = "Q", default_value_t = 0.99)]
    pub(super) quantile: f64,
    /// The request that is explained, by its place in the workload, from 0.
    #[arg(long, value_name = "ID", conflicts_with = "quantile")]
    pub(super) request: Option<u32>,
    /// Set a field of the scenario, for example `engine.vllm.max_num_seqs=64`; may be repeated.
    #[arg(long, value_name = "PATH=VALUE")]
    pub(super) set: Vec<String>,
    /// Lift no limits: only one run.
    #[arg(long)]
    pub(super) no_what_if: bool,
    /// How the explanation is printed.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
    /// No progress on standard error.
    #[arg(long, short)]
    pub(super) quiet: bool,
}

/// A latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum MetricArg {
    /// Arrival to the first token.
    Ttft,
    /// Time per output token after the first.
    Tpot,
    /// Arrival to the last token.
    E2e,
    /// Arrival to the first pass.
    Queue,
}

/// How a run's report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ReportFormat {
    /// Tables for a terminal.
    Table,
    /// The whole report.
    Json,
    /// The tables, as Markdown.
    Markdown,
    /// Every figure, with its place in the JSON.
    Csv,
}

/// How something is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Tables for a terminal.
    Table,
    /// The whole report.
    Json,
}

#[derive(Debug, clap::Args)]
pub(super) struct ConformArgs {
    /// Recorded cases, or folders that hold them.
    #[arg(required = true, value_name = "PATH")]
    pub(super) paths: Vec<PathBuf>,
    /// Print only what differs, and the total.
    #[arg(long, short)]
    pub(super) quiet: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct AccuracyArgs {
    /// Cases: their files, their folders, or folders of such folders.
    #[arg(required = true, value_name = "CASES")]
    pub(super) cases: Vec<PathBuf>,
    /// The folder that holds the measurements of the cases; absent: each case's own.
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
    /// Fit nothing: score the scenarios as they are.
    #[arg(long)]
    pub(super) no_fit: bool,
    /// Fail if a part that is not fitted is off by more than this, for example `ttft_p90=10%`; may be repeated.
    #[arg(long, value_name = "FIGURE=PERCENT")]
    pub(super) max_error: Vec<String>,
    /// How the scores are printed.
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    pub(super) format: ReportFormat,
    /// No progress on standard error.
    #[arg(long, short)]
    pub(super) quiet: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct CalibrateArgs {
    /// A case (YAML, or its folder), whose parameters are fitted to served requests; or observed passes, as CSV or JSON
    /// lines: kind, tokens or requests, `observed_ms`, `predicted_ms`.
    #[arg(value_name = "CASE|PASSES")]
    pub(super) observations: PathBuf,
    /// Where the scenario with the fitted values goes, or the corrections, as JSON; `-` is standard output, which is
    /// the default for corrections.
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
    /// The folder that holds the measurements of the case; absent: its own.
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
    /// Fail if a part that is not fitted is off by more than this, for example `ttft_p90=10%`; may be repeated.
    #[arg(long, value_name = "FIGURE=PERCENT")]
    pub(super) max_error: Vec<String>,
    /// How the scores of a case are printed.
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    pub(super) format: ReportFormat,
    /// No progress on standard error.
    #[arg(long, short)]
    pub(super) quiet: bool,
    /// Observations that make a factor of their own.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(super) observations_min: u64,
    /// The smallest factor.
    #[arg(long, value_name = "FACTOR", default_value_t = 0.5)]
    pub(super) factor_min: f64,
    /// The largest factor.
    #[arg(long, value_name = "FACTOR", default_value_t = 2.0)]
    pub(super) factor_max: f64,
}

#[derive(Debug, clap::Args)]
pub(super) struct PresetsArgs {
    /// A model or an accelerator to describe, with the sources of its figures; absent: list all.
    #[arg(conflicts_with = "memory")]
    pub(super) name: Option<String>,
    /// How presets are printed.
    #[arg(long, value_enum, default_value_t = Format::Table, conflicts_with = "memory")]
    pub(super) format: Format,
    /// Derive what memory a model leaves for KV on a GPU, for vLLM and for SGLang. MODEL is a name, or the path of a `config.json` or of a
    /// folder that holds one.
    #[arg(long, num_args = 2, value_names = ["MODEL", "GPU"])]
    pub(super) memory: Option<Vec<String>>,
    #[command(flatten)]
    pub(super) derivation: MemoryArgs,
}

/// What `--memory` derives with; names and defaults are vLLM's, but for `mem_fraction_static`.
#[derive(Debug, clap::Args)]
pub(super) struct MemoryArgs {
    /// Without CUDA graphs, as vLLM before 0.21.0 reckons too.
    #[arg(long, requires = "memory")]
    pub(super) enforce_eager: bool,
    /// Devices that share every layer.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "memory")]
    pub(super) tp: u32,
    /// Stages of consecutive layers.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "memory")]
    pub(super) pp: u32,
    /// Share of the memory that the engine may use.
    #[arg(long, value_name = "SHARE", default_value_t = 0.92, requires = "memory")]
    pub(super) gpu_memory_utilization: f64,
    /// The same share for SGLang; absent: its own choice.
    #[arg(long, value_name = "SHARE", requires = "memory")]
    pub(super) mem_fraction_static: Option<f64>,
    /// Longest sequence; absent: the model's, or what fits if that is less.
    #[arg(long, value_name = "N", requires = "memory")]
    pub(super) max_model_len: Option<u32>,
    /// Tokens of a KV block.
    #[arg(long, value_name = "N", default_value_t = 16, requires = "memory")]
    pub(super) block_size: u32,
    /// How keys and values are stored; absent: as activations are.
    #[arg(long, value_name = "TYPE", requires = "memory")]
    pub(super) kv_type: Option<String>,
    /// How weights are stored, those of experts too; absent: as the model's are.
    #[arg(long, value_name = "TYPE", requires = "memory")]
    pub(super) weight_type: Option<String>,
    /// Tokens of a pass; absent: by the GPU's memory.
    #[arg(long, value_name = "N", requires = "memory")]
    pub(super) max_num_batched_tokens: Option<u32>,
    /// Running requests; absent: by the GPU's memory.
    #[arg(long, value_name = "N", requires = "memory")]
    pub(super) max_num_seqs: Option<u32>,
}
