//! A run as the files that measuring tools write: their names, their keys, their definitions, their percentiles.
//!
//! Only counted requests that completed are in the figures, as these tools have no warm-up among theirs. What a run
//! cannot know, as a date, is null or left out.

mod aiperf;
mod guidellm;
mod inferencex;
mod statistics;
mod vllm_bench;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::base::detail::PassDetail;
use crate::base::ids::RequestId;
use crate::base::lookup::LookupMap;
use crate::base::output::{OutputError, ResultFile};
use crate::base::time::{SimDuration, SimTime};
use crate::metrics::record::{Rejection, RequestRecord, Unserved};
use crate::metrics::slo::{SloConfig, SloLimits};

use super::Report;
use super::sink::{Sink, Wants};

use self::statistics::Sample;

/// A tool whose result files a run can write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Export {
    /// `vllm bench serve --save-result`.
    VllmBench,
    /// `AIPerf`.
    Aiperf,
    /// `GuideLLM`.
    Guidellm,
    /// `InferenceX`, which takes up what `vllm bench serve` measured.
    Inferencex,
}

impl Export {
    /// The names of its files.
    #[must_use]
    pub const fn files(self) -> &'static [&'static str] {
        match self {
            Self::VllmBench => &["vllm-bench.json"],
            Self::Aiperf => &aiperf::FILES,
            Self::Guidellm => &["benchmarks.json"],
            Self::Inferencex => &["inferencex.json"],
        }
    }

    /// Whether it tells of single emissions: O(tokens) in time and memory.
    const fn needs_emissions(self) -> bool {
        matches!(self, Self::VllmBench | Self::Aiperf)
    }
}

/// What the files say of the deployment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deployed {
    /// The family of the engine.
    pub(crate) engine: &'static str,
    /// The name of the model, if the scenario has one.
    pub(crate) model: Option<String>,
    /// The name of the accelerator, if the scenario has one.
    pub(crate) accelerator: Option<String>,
    /// Accelerators that share every layer.
    pub(crate) tensor_parallel_size: u32,
    /// Accelerators of all engines; at least 1.
    pub(crate) accelerators: u64,
    /// From the end of a pass to its visible tokens.
    pub(crate) detokenize: SimDuration,
    /// What latencies are to be met.
    pub(crate) slo: Option<SloConfig>,
}

/// Writes the files of the tools that were asked for.
pub(crate) struct ExportSink {
    /// The tools, with their open files in the order of [`Export::files`].
    tools: Vec<(Export, Vec<ResultFile>)>,
    /// With lists of every request in `vllm-bench.json`.
    detailed: bool,
    /// Whether a tool tells of single emissions.
    emissions: bool,
    seen: Seen,
    under_way: LookupMap<RequestId, Vec<Emission>>,
}

/// What is known of a run for exports.
#[derive(Debug, Default)]
struct Seen {
    deployed: Deployed,
    /// Counted requests that completed, in the order of the workload once the run has ended.
    served: Vec<Served>,
    /// Gaps between emissions of counted requests.
    gaps: BTreeMap<SimDuration, u64>,
    classes: Vec<String>,
    /// Counted requests that were turned away.
    rejected: u64,
    /// Counted requests that were under way when the run ended.
    unfinished: u64,
}

/// Tokens of a request that became visible together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Emission {
    at: SimTime,
    tokens: u32,
}

/// A request that completed.
#[derive(Clone, Debug)]
struct Served {
    record: RequestRecord,
    /// In order; empty where no tool tells of them.
    emissions: Vec<Emission>,
}

impl Served {
    fn tokens(&self) -> u32 {
        self.record.output_tokens
    }

    /// The tokens but for the first.
    fn later_tokens(&self) -> u64 {
        u64::from(self.record.output_tokens).saturating_sub(1)
    }

    fn ttft_ms(&self) -> f64 {
        self.record.ttft().as_ms()
    }

    fn e2e_ms(&self) -> f64 {
        self.record.e2e().as_ms()
    }

    /// (latency - TTFT) / (n - 1), not rounded; `None` for a single token.
    fn tpot_ms(&self) -> Option<f64> {
        let decoding = self.record.last_token.since(self.record.first_token);
        (self.later_tokens() > 0).then(|| decoding.as_ms() / self.later_tokens() as f64)
    }

    /// The gaps between its emissions.
    fn gaps(&self) -> impl Iterator<Item = SimDuration> {
        self.emissions.windows(2).map(|pair| pair[1].at.since(pair[0].at))
    }
}

impl Seen {
    fn prompt_tokens(&self) -> u64 {
        self.served.iter().map(|served| u64::from(served.record.prompt_tokens)).sum()
    }

    fn output_tokens(&self) -> u64 {
        self.served.iter().map(|served| u64::from(served.tokens())).sum()
    }

    fn first_arrival(&self) -> Option<SimTime> {
        self.served.iter().map(|served| served.record.arrival).min()
    }

    fn last_token(&self) -> Option<SimTime> {
        self.served.iter().map(|served| served.record.last_token).max()
    }

    fn ttft_ms(&self) -> Sample {
        Sample::of(self.served.iter().map(Served::ttft_ms))
    }

    fn tpot_ms(&self) -> Sample {
        Sample::of(self.served.iter().filter_map(Served::tpot_ms))
    }

    fn e2e_ms(&self) -> Sample {
        Sample::of(self.served.iter().map(Served::e2e_ms))
    }

    fn gap_ms(&self) -> Sample {
        Sample::weighted(self.gaps.iter().map(|(gap, &count)| (gap.as_ms(), count)))
    }

    /// How many requests met all limits of their class; `single` says whether a request of one token, which has no
    /// TPOT, meets a limit of it. `None` without limits.
    fn good(&self, single: bool) -> Option<u64> {
        let slo = self.deployed.slo.as_ref()?;
        let limits: Vec<SloLimits> = self.classes.iter().map(|name| slo.of_class(name)).collect();
        let is_good = |served: &&Served| {
            let class = limits.get(usize::from(served.record.class)).copied();
            let limits = class.unwrap_or(slo.of_all());
            let within = |limit: Option<f64>, ms: f64| limit.is_none_or(|limit| ms <= limit);
            within(limits.ttft_ms, served.ttft_ms())
                && within(limits.e2e_ms, served.e2e_ms())
                && served.tpot_ms().map_or(single || limits.tpot_ms.is_none(), |tpot_ms| {
                    within(limits.tpot_ms, tpot_ms)
                })
        };
        Some(self.served.iter().filter(is_good).count() as u64)
    }

    /// The most requests under way at once. One that arrives as another ends does not overlap it.
    fn concurrency_max(&self) -> u64 {
        let levels = self.concurrency();
        levels.iter().map(|&(_, level)| level).max().unwrap_or(0)
    }

    /// From which instant on how many requests are under way: the level after all that happens at that instant.
    fn concurrency(&self) -> Vec<(SimTime, u64)> {
        let arrivals = self.served.iter().map(|served| (served.record.arrival, 1_i64));
        let ends = self.served.iter().map(|served| (served.record.last_token, -1));
        let mut changes: Vec<_> = arrivals.chain(ends).collect();
        changes.sort_unstable();
        let mut level = 0_i64;
        let mut levels: Vec<(SimTime, u64)> = Vec::new();
        for together in changes.chunk_by(|one, other| one.0 == other.0) {
            level += together.iter().map(|change| change.1).sum::<i64>();
            let under_way = level.try_into().expect("who ends has arrived");
            levels.push((together[0].0, under_way));
        }
        levels
    }
}

impl ExportSink {
    /// Opens the files of `exports` in `folder`; one that is named twice counts once.
    ///
    /// # Errors
    /// No file can be made there.
    pub(crate) fn create(
        folder: &Path,
        exports: &[Export],
        detailed: bool,
        deployed: Deployed,
    ) -> Result<Self, OutputError> {
        let mut exports = exports.to_vec();
        exports.sort_unstable();
        exports.dedup();
        let emissions = exports.iter().any(|export| export.needs_emissions());
        let open = |export: Export| {
            let files = export.files().iter();
            let files = files.map(|name| ResultFile::create(&folder.join(name), false));
            Ok((export, files.collect::<Result<_, _>>()?))
        };
        let tools = exports.into_iter().map(open).collect::<Result<_, _>>()?;
        let seen = Seen { deployed, ..Seen::default() };
        Ok(Self { tools, detailed, emissions, seen, under_way: LookupMap::new() })
    }
}

impl Sink for ExportSink {
    fn wants(&self) -> Wants {
        Wants { details: self.emissions, every_share: self.emissions }
    }

    fn classes(&mut self, names: &[String]) {
        self.seen.classes = names.to_vec();
    }

    fn detail(&mut self, pass: &PassDetail) -> Result<(), OutputError> {
        if !self.emissions {
            return Ok(());
        }
        for share in pass.shares.iter().filter(|share| share.emitted_tokens > 0) {
            let emission = Emission {
                at: pass.end + self.seen.deployed.detokenize,
                tokens: share.emitted_tokens,
            };
            match self.under_way.get_mut(&share.request) {
                Some(emissions) => emissions.push(emission),
                None => {
                    self.under_way.insert(share.request, vec![emission]);
                }
            }
        }
        Ok(())
    }

    fn emission_gap(&mut self, gap: SimDuration, count: u64) {
        *self.seen.gaps.entry(gap).or_default() += count;
    }

    fn finished(&mut self, record: &RequestRecord, counted: bool) -> Result<(), OutputError> {
        let emissions = self.under_way.remove(&record.id).unwrap_or_default();
        if counted {
            self.seen.served.push(Served { record: record.clone(), emissions });
        }
        Ok(())
    }

    fn rejected(
        &mut self,
        _request: &Unserved,
        _why: Rejection,
        counted: bool,
    ) -> Result<(), OutputError> {
        self.seen.rejected += u64::from(counted);
        Ok(())
    }

    fn unfinished(&mut self, _request: &Unserved, counted: bool) -> Result<(), OutputError> {
        self.seen.unfinished += u64::from(counted);
        Ok(())
    }

    fn finish(mut self: Box<Self>, report: &Report) -> Result<Vec<ResultFile>, OutputError> {
        self.seen.served.sort_by_key(|served| served.record.id);
        let Self { tools, detailed, seen, .. } = *self;
        let mut complete = Vec::new();
        for (export, mut files) in tools {
            match (export, files.as_mut_slice()) {
                (Export::VllmBench, [file]) => {
                    file.fill(|out| vllm_bench::write(&seen, report, detailed, out))?;
                }
                (Export::Aiperf, [json, csv, records]) => {
                    let metrics = aiperf::Metrics::of(&seen);
                    json.fill(|out| metrics.write_json(out))?;
                    csv.fill(|out| metrics.write_csv(out))?;
                    records.fill(|out| aiperf::write_records(&seen, out))?;
                }
                (Export::Guidellm, [file]) => file.fill(|out| guidellm::write(&seen, out))?,
                (Export::Inferencex, [file]) => {
                    file.fill(|out| inferencex::write(&seen, report, out))?;
                }
                _ => unreachable!("each export has its files"),
            }
            complete.append(&mut files);
        }
        Ok(complete)
    }
}

/// Writes indented JSON and a final line break.
fn write_pretty(content: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, content)?;
    out.write_all(b"\n")
}

/// `amount` over a time; `None` where there is none.
fn per(amount: u64, seconds: Option<f64>) -> Option<f64> {
    seconds.filter(|&seconds| seconds > 0.0).map(|seconds| amount as f64 / seconds)
}

#[cfg(test)]
mod sample;
