//! One run of one resolved scenario, from its configuration to its report.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::base::ids::{EngineId, RequestId};
use crate::base::output::{MadeFolders, OutputError, ResultFile};
use crate::base::record::{Rejection, Unserved};
use crate::base::time::{SimDuration, SimTime};
use crate::engine::Advance;
use crate::engine::drafting::Drafting;
use crate::engine::drafting::config::SpeculationConfig;
use crate::engine::driver::Engine;
use crate::engine::outbox::Outbox;
use crate::kernel::error::RunError;
use crate::kernel::{Ending, Kernel, Observer};
use crate::metrics::collector::{Metrics, MetricsOptions, Warmup, Window};
use crate::metrics::pass_rows::PassRows;
use crate::metrics::requests::RequestSink;
use crate::metrics::slo::SloConfig;
use crate::report::export::{Deployed, Export, ExportSink};
use crate::report::openmetrics::OpenMetricsSink;
use crate::report::perfetto::PerfettoSink;
use crate::report::run_page::HtmlSink;
use crate::report::series_rows::SeriesSink;
use crate::report::sink::{JsonSink, Lent, Sink, Wants};
use crate::report::warning::Warning;
use crate::report::{Host, Report, Subject, Timing, Title};
use crate::scenario::{EngineFacts, MetricsConfig, Scenario, WarmupConfig, WorkloadConfig};
use crate::timing::config::{Deployment, TimingConfig};
use crate::timing::error::ProfileError;
use crate::timing::evidence::Evidence;
use crate::timing::pricer::{HostTime, MixedPasses, MixedRule, PassPricer};
use crate::workload::limit::Limited;
use crate::workload::request::RequestSpec;
use crate::workload::reshape::ReshapedTrace;
use crate::workload::servegen::ServeGenSource;
use crate::workload::sessions::Sessions;
use crate::workload::source::RequestSource;
use crate::workload::synthetic::SyntheticSource;

/// Hears how far a run has come.
pub trait Progress {
    /// `ended` requests are completed or rejected, and the clock stands at `simulated_s` seconds.
    /// Called every few thousand passes.
    fn update(&mut self, ended: u64, simulated_s: f64);
}

/// Progress that nobody follows.
impl Progress for () {
    fn update(&mut self, _ended: u64, _simulated_s: f64) {}
}

/// What a run is to leave behind beside its report.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// The folder of `report.json`, made if need be.
    pub out: Option<PathBuf>,
    /// The tools whose result files go into `out`; without it, none.
    pub exports: Vec<Export>,
    /// Whether these files tell of every request where the tool has a flag for it.
    pub exports_detailed: bool,
    /// Where one row per request goes: `.csv` or `.jsonl`, with `.gz` if it is to be compressed, or `.parquet`, if
    /// servesim was built with that feature.
    pub requests: Option<PathBuf>,
    /// Where one row per pass goes, in the same formats.
    pub passes: Option<PathBuf>,
    /// Where the run over time goes, in the same formats.
    pub series: Option<PathBuf>,
    /// Where the end of the run goes as `OpenMetrics` text.
    pub openmetrics: Option<PathBuf>,
    /// Where the evidence of the prices goes, as JSON, with the coordinates that lie worst outside of what was
    /// measured.
    pub evidence: Option<PathBuf>,
    /// The trace of the run for ui.perfetto.dev.
    pub perfetto: Option<RunTrace>,
    /// Where a page about the run goes, as HTML.
    pub html: Option<PathBuf>,
    /// Plan and complete every request by itself in every pass. The result is the same; it takes
    /// longer, and the log of passes needs it.
    pub stepwise: bool,
}

/// A trace of the run, and how much of it is drawn.
#[derive(Clone, Debug)]
pub struct RunTrace {
    /// Where it goes, compressed if that ends with `.gz`.
    pub path: PathBuf,
    /// The part of the run that is drawn, in seconds; to its end if the second is absent.
    pub window_s: (f64, Option<f64>),
    /// Of the requests, those whose place in the workload is a multiple of this; at least 1.
    pub every: u32,
}

impl RunTrace {
    /// The window on the clock of a run. What cannot be a time is beyond its end.
    fn window(&self) -> (SimTime, Option<SimTime>) {
        let at = |s: f64| {
            let since_start =
                SimDuration::from_ms(s * 1e3).unwrap_or(SimDuration::from_ns(u64::MAX));
            SimTime::from_ns(since_start.as_ns())
        };
        (at(self.window_s.0), self.window_s.1.map(at))
    }
}

impl Extras {
    /// How passes are computed where `every_share` of them is wanted, or not.
    fn advance(&self, every_share: bool) -> Advance {
        // The log names every request of a pass, so somebody has to look at them.
        let logs = tracing::enabled!(target: "servesim::pass", tracing::Level::TRACE);
        if self.stepwise || every_share || logs { Advance::OneByOne } else { Advance::InStep }
    }
}

/// A run that has ended. Its results are complete, and not in their place yet.
pub struct Simulated {
    /// The report. Its `host.wall_ms` is 0: the clock on the wall belongs to the caller.
    pub report: Report,
    sinks: Vec<Box<dyn Sink>>,
    files: Vec<ResultFile>,
    made: Option<MadeFolders>,
}

impl Simulated {
    /// Puts the results in their place: all of them, unless the disk fails in between.
    ///
    /// # Errors
    /// One cannot be written. Then none is in its place.
    pub fn put(self) -> Result<Report, OutputError> {
        let Self { report, sinks, files, made } = self;
        // What is declared first goes last: an empty folder, after what was on its way into it.
        let (_made, mut files) = (made, files);
        for sink in sinks {
            files.extend(sink.finish(&report)?);
        }
        files.into_iter().try_for_each(ResultFile::close)?;
        Ok(report)
    }
}

/// Runs a resolved scenario (see [`Scenario::resolve`]).
///
/// # Errors
/// The workload cannot be read, a pass cannot be priced, or a result cannot be written. Then there
/// is no result at all.
pub fn simulate(
    scenario: &Scenario,
    extras: &Extras,
    progress: &mut dyn Progress,
) -> Result<Simulated, RunError> {
    // Opened before anything runs, as every file is.
    let made = extras.out.as_deref().map(MadeFolders::make).transpose()?;
    let evidence_file = extras.evidence.as_deref().map(|path| ResultFile::create(path, false));
    let evidence_file = evidence_file.transpose()?;
    let sinks = sinks(scenario, extras)?;
    let (run, facts) = run(scenario, extras, sinks, progress)?;
    let evidence = evidence_of(&run.engines);
    let mut files = Vec::new();
    if let Some(mut file) = evidence_file {
        let provider = timing_of(scenario).provider_name();
        file.fill(|out| write_evidence(provider, &evidence, out))?;
        files.push(file);
    }
    let (report, sinks) = run.report(scenario, facts, &evidence);
    Ok(Simulated { report, sinks, files, made })
}

/// Runs a resolved scenario before the eyes of `observer`, which leaves no files: it is told everything that a sink is
/// but for the end.
///
/// # Errors
/// The workload cannot be read, or a pass cannot be priced.
pub(crate) fn observe(
    scenario: &Scenario,
    observer: &mut dyn Sink,
    progress: &mut dyn Progress,
) -> Result<Report, RunError> {
    let (run, facts) = run(scenario, &Extras::default(), vec![Box::new(Lent(observer))], progress)?;
    let evidence = evidence_of(&run.engines);
    Ok(run.report(scenario, facts, &evidence).0)
}

/// What makes results of the run besides its report. Their files are open.
fn sinks(scenario: &Scenario, extras: &Extras) -> Result<Vec<Box<dyn Sink>>, OutputError> {
    let speculates = scenario.engine.facts().speculation.is_some();
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    if let Some(path) = &extras.requests {
        sinks.push(Box::new(RequestSink::create(path)?.with_rounds(speculates)));
    }
    if let Some(path) = &extras.passes {
        sinks.push(Box::new(PassRows::create(path)?));
    }
    if let Some(path) = &extras.series {
        sinks.push(Box::new(SeriesSink::create(path)?));
    }
    if let Some(path) = &extras.openmetrics {
        sinks.push(Box::new(OpenMetricsSink(ResultFile::create(path, false)?)));
    }
    if let Some(trace) = &extras.perfetto {
        sinks.push(Box::new(PerfettoSink::create(&trace.path, trace.window(), trace.every)?));
    }
    if let Some(folder) = extras.out.as_deref().filter(|_| !extras.exports.is_empty()) {
        let (exports, detailed) = (&extras.exports, extras.exports_detailed);
        sinks.push(Box::new(ExportSink::create(folder, exports, detailed, exported(scenario))?));
    }
    if let Some(path) = &extras.html {
        let exact_limit = options(&scenario.metrics).exact_limit;
        sinks.push(Box::new(HtmlSink::create(path, scenario.slo.clone(), exact_limit)?));
    }
    if let Some(folder) = &extras.out {
        sinks.push(Box::new(JsonSink(ResultFile::create(&folder.join("report.json"), false)?)));
    }
    Ok(sinks)
}

/// What exports say of the deployment.
fn exported(scenario: &Scenario) -> Deployed {
    let model = scenario.model.as_ref().and_then(|model| model.shape.as_ref());
    let accelerator = scenario.accelerator.as_ref().and_then(|a| a.data_sheet.as_ref());
    let devices = u64::from(scenario.parallel.devices());
    Deployed {
        engine: scenario.engine_family(),
        model: model.map(|model| model.name.clone()),
        accelerator: accelerator.map(|accelerator| accelerator.name.clone()),
        tensor_parallel_size: scenario.parallel.tensor_parallel_size,
        accelerators: devices * u64::from(engines_of(scenario)),
        detokenize: scenario.host.detokenize(),
        slo: scenario.slo.clone(),
    }
}

/// Runs a resolved scenario to its end.
fn run<'s>(
    scenario: &Scenario,
    extras: &Extras,
    sinks: Vec<Box<dyn Sink + 's>>,
    progress: &mut dyn Progress,
) -> Result<(Run<'s>, WorkloadFacts), RunError> {
    let told = Told { sinks, progress };
    match &scenario.workload {
        WorkloadConfig::Trace(config) => {
            let open = || ReshapedTrace::open(config, scenario.seed);
            let source = match &config.sessions {
                Some(sessions) => Sessions::open(sessions, &config.path, open)?,
                None => Sessions::ignored(open()?),
            };
            let limit = config.reshape.as_ref().and_then(|reshape| reshape.max_concurrency);
            let mut source = Limited::new(source, limit);
            let run = Run::of(scenario, extras, told, &mut source)?;
            let trace = source.inner().inner();
            let counts = trace.counts();
            let name = match config.path.file_name() {
                Some(name) if name != "-" => name.to_string_lossy().into_owned(),
                _ => "standard input".to_owned(),
            };
            let facts = WorkloadFacts {
                name,
                description: json!({
                    "trace": config.path,
                    "reader": trace.describe(),
                    "rows": counts,
                    "reshape": trace.changes(),
                    "classes": source.class_names(),
                    "sessions": source.inner().counts(),
                    "client_queue": source.queue(),
                }),
                names_no_prefixes: counts.requests > 0
                    && counts.requests_with_content == 0
                    && source.inner().counts().is_none_or(|counts| counts.continued == 0),
            };
            Ok((run, facts))
        }
        WorkloadConfig::Synthetic(config) => {
            let source = SyntheticSource::new(config, scenario.seed)?;
            let mut source = Limited::new(source, config.max_concurrency);
            let run = Run::of(scenario, extras, told, &mut source)?;
            let facts = WorkloadFacts {
                name: "synthetic load".to_owned(),
                description: json!({
                    "synthetic": config,
                    "classes": source.class_names(),
                    "client_queue": source.queue(),
                }),
                names_no_prefixes: false,
            };
            Ok((run, facts))
        }
        WorkloadConfig::ServeGen(config) => {
            let source = ServeGenSource::open(config, scenario.seed)?;
            let mut source = Limited::new(source, config.max_concurrency);
            let run = Run::of(scenario, extras, told, &mut source)?;
            let name = config.path.file_name().unwrap_or_default().to_string_lossy();
            let facts = WorkloadFacts {
                name: format!("clients of {name}"),
                description: json!({
                    "servegen": config,
                    "pool": source.inner().describe(),
                    "client_queue": source.queue(),
                }),
                names_no_prefixes: run.ending.input > 0,
            };
            Ok((run, facts))
        }
    }
}

/// What a report says about the workload.
struct WorkloadFacts {
    name: String,
    description: Value,
    /// Its requests come from a record that does not say which prompts share what.
    names_no_prefixes: bool,
}

/// A run that has ended.
struct Run<'s> {
    engines: Vec<Engine>,
    ending: Ending,
    metrics: Metrics,
    sinks: Vec<Box<dyn Sink + 's>>,
}

/// Who is told of a run.
struct Told<'a, 's> {
    sinks: Vec<Box<dyn Sink + 's>>,
    progress: &'a mut dyn Progress,
}

impl<'s> Run<'s> {
    /// Runs the engines of `scenario` under the requests of `source`.
    fn of(
        scenario: &Scenario,
        extras: &Extras,
        told: Told<'_, 's>,
        source: &mut dyn RequestSource,
    ) -> Result<Self, RunError> {
        let facts = scenario.engine.facts();
        let pricer = pricers(scenario, &facts)?;
        let acceptance = facts.speculation.as_ref().map(|speculates| {
            let acceptance =
                scenario.speculation.acceptance(speculates.drafts, speculates.looks_up);
            Arc::new(acceptance.expect("checked when resolved"))
        });
        let by_class = scenario.slo.as_ref().is_some_and(SloConfig::needs_gaps_by_class);
        let own = Wants { details: by_class, every_share: by_class };
        let wants = told.sinks.iter().fold(own, |all, sink| all.and(sink.wants()));
        let advance = extras.advance(wants.every_share);
        let mut engines: Vec<Engine> = (0..engines_of(scenario))
            .map(EngineId)
            .map(|id| {
                let drafting = acceptance.clone().map(|a| Drafting::new(a, scenario.seed, id));
                let pricer = pricer();
                let pricer =
                    if extras.evidence.is_some() { pricer.with_outliers() } else { pricer };
                build_engine(scenario, id, drafting, advance, pricer)
            })
            .collect();
        let mut recorder = Recorder::new(scenario, told);
        let blocks: Vec<u32> = engines.iter().map(|engine| engine.levels().usable_blocks).collect();
        for (id, &blocks) in (0..).zip(&blocks) {
            recorder.metrics.kv_capacity(EngineId(id), blocks);
        }
        recorder.sinks.iter_mut().for_each(|sink| sink.engines(&blocks));
        let frontend_delay = scenario.host.frontend();
        let kernel = Kernel::new(source, &mut engines, facts.front_end, frontend_delay);
        let kernel = if wants.details { kernel.with_details() } else { kernel };
        let ending = kernel.run(&mut recorder)?;
        let (metrics, sinks) = recorder.end(&ending)?;
        Ok(Self { engines, ending, metrics, sinks })
    }

    /// What is to be told of it.
    fn report(
        self,
        scenario: &Scenario,
        workload: WorkloadFacts,
        evidence: &Evidence,
    ) -> (Report, Vec<Box<dyn Sink + 's>>) {
        let facts = scenario.engine.facts();
        let Self { engines, ending, metrics, sinks } = self;
        let mut warnings = Vec::new();
        if facts.prefix_caching && workload.names_no_prefixes {
            warnings.push(Warning::NoPrefixIdentity {
                input: ending.input,
                field: facts.fields.prefix_caching.to_owned(),
            });
        }
        if scenario.speculation != SpeculationConfig::default() && facts.speculation.is_none() {
            warnings.push(Warning::NoSpeculation { field: facts.fields.speculation.to_owned() });
        }
        let pricing = &scenario.pricing;
        let drafting_is_free = pricing.draft_ms <= 0.0 && pricing.draft_table.is_none();
        if facts.speculation.as_ref().is_some_and(|speculates| !speculates.looks_up)
            && drafting_is_free
        {
            warnings.push(Warning::FreeDrafting { field: "pricing.draft_ms".to_owned() });
        }
        if ending.ran_in_circles {
            warnings.push(Warning::RanInCircles { field: facts.fields.pool.to_owned() });
        }
        let summary = metrics.finish();
        warnings.extend(Warning::of_unfinished(&summary, facts.fields.keeper));
        let subject = Subject {
            title: title(scenario, &facts, engines.len(), workload.name),
            scenario: serde_json::to_value(scenario).expect("a scenario is plain data"),
            workload: workload.description,
            engine: facts.fields,
        };
        warnings.extend(evidence.shares().and_then(|shares| Warning::of_prices(&shares)));
        let host = host_facts(&engines, ending.events);
        let timing = timing_facts(scenario, &engines, evidence);
        (Report::new(subject, summary, timing, warnings, ending.digest, host), sinks)
    }
}

/// What makes the pricers of the engines of a resolved scenario, whose facts are `facts`.
///
/// # Errors
/// The timing provider cannot be made.
pub(crate) fn pricers(
    scenario: &Scenario,
    facts: &EngineFacts,
) -> Result<impl Fn() -> PassPricer + use<>, ProfileError> {
    let deployment = Deployment {
        model: scenario.model.as_ref().and_then(|model| model.shape.as_ref()),
        accelerator: scenario.accelerator.as_ref().and_then(|a| a.data_sheet.as_ref()),
        parallel: scenario.parallel,
        kv_capacity_tokens: facts.kv_tokens,
    };
    let provider = timing_of(scenario).provider(&deployment)?;
    let pricing = scenario.pricing.pricing()?;
    let per_pass_ms = scenario.host.per_pass_host_ms;
    let host = if facts.asynchronous {
        HostTime::Hidden(per_pass_ms)
    } else {
        HostTime::Added(per_pass_ms)
    };
    Ok(move || PassPricer::new(Arc::clone(&provider), host).with_pricing(pricing.clone()))
}

fn timing_of(scenario: &Scenario) -> &TimingConfig {
    scenario.timing.as_ref().expect("a resolved scenario has every value")
}

pub(crate) fn engines_of(scenario: &Scenario) -> u32 {
    scenario.cluster.engines.expect("a resolved scenario has every value")
}

fn build_engine(
    scenario: &Scenario,
    id: EngineId,
    drafting: Option<Drafting>,
    advance: Advance,
    pricer: PassPricer,
) -> Engine {
    let scheduler = scenario.engine.scheduler(drafting, scenario.host.detokenize(), advance);
    let warm = match scenario.metrics.warmup {
        Some(WarmupConfig::WarmCache(requests)) => requests.try_into().unwrap_or(u32::MAX),
        _ => 0,
    };
    Engine::new(id, scheduler, pricer).warmed_by(warm)
}

/// What is simulated, in words.
pub(crate) fn title(
    scenario: &Scenario,
    facts: &EngineFacts,
    engines: usize,
    workload: String,
) -> Title {
    let name = facts.name;
    let drafts = facts.speculation.as_ref().map_or_else(String::new, |speculates| {
        format!(", {} {} drafts", speculates.drafts, speculates.method)
    });
    let number = if engines == 1 { "1 engine".to_owned() } else { format!("{engines} engines") };
    Title {
        scenario: scenario.name.clone().unwrap_or_else(|| "unnamed".to_owned()),
        engine: format!("{}{name}{drafts}, {number}", deployed(scenario)),
        workload,
    }
}

/// `llama-3.1-8b on 2 h100-sxm, `, as far as the scenario says.
fn deployed(scenario: &Scenario) -> String {
    let model = scenario.model.as_ref().and_then(|model| model.shape.as_ref());
    let accelerator = scenario.accelerator.as_ref().and_then(|a| a.data_sheet.as_ref());
    let number = match scenario.parallel.devices() {
        1 => String::new(),
        devices => format!("{devices} "),
    };
    match (model, accelerator) {
        (Some(model), Some(on)) => format!("{} on {number}{}, ", model.name, on.name),
        (Some(model), None) => format!("{}, ", model.name),
        (None, Some(on)) => format!("{number}{}, ", on.name),
        (None, None) => String::new(),
    }
}

fn host_facts(engines: &[Engine], events: u64) -> Host {
    let mut host = Host { events, ..Host::default() };
    for engine in engines {
        let effort = engine.effort();
        host.passes += engine.passes();
        host.price_lookups += engine.price_lookups();
        host.requests_touched += effort.requests_touched;
        host.blocks_touched += effort.blocks_touched;
    }
    host
}

/// What the prices of all engines rest on.
fn evidence_of(engines: &[Engine]) -> Evidence {
    let mut all = Evidence::with_outliers();
    engines.iter().for_each(|engine| all.merge(engine.evidence()));
    all
}

/// Writes the evidence of a run's prices, as JSON.
fn write_evidence(provider: &str, evidence: &Evidence, out: &mut dyn Write) -> io::Result<()> {
    let content = json!({
        "schema": "servesim.evidence/1",
        "provider": provider,
        "evidence": evidence.to_json(),
        "outliers": evidence.outliers(),
    });
    serde_json::to_writer_pretty(&mut *out, &content)?;
    out.write_all(b"\n")
}

fn timing_facts(scenario: &Scenario, engines: &[Engine], evidence: &Evidence) -> Timing {
    let mut mixed = MixedPasses::default();
    for engine in engines {
        mixed.one_forward += engine.mixed_passes().one_forward;
        mixed.two_passes += engine.mixed_passes().two_passes;
    }
    let mixed_rule = match mixed {
        MixedPasses { one_forward: 0, two_passes: 0 } => "none occurred",
        MixedPasses { two_passes: 0, .. } => "one forward",
        _ if scenario.pricing.mixed == MixedRule::Max => "the longer of the two parts",
        _ => "sum of the two parts",
    };
    Timing {
        provider: provider_of(scenario),
        mixed_rule: mixed_rule.to_owned(),
        mixed_passes: serde_json::to_value(mixed).expect("plain numbers"),
        evidence: evidence.to_json(),
    }
}

/// What prices the passes of a resolved scenario, in words.
pub(crate) fn provider_of(scenario: &Scenario) -> String {
    let name = timing_of(scenario).provider_name();
    match &scenario.pricing.corrections {
        None => name.to_owned(),
        Some(path) => format!("{name}, corrected by {}", path.display()),
    }
}

/// Takes down what happens in a run.
struct Recorder<'a, 's> {
    metrics: Metrics,
    sinks: Vec<Box<dyn Sink + 's>>,
    progress: &'a mut dyn Progress,
}

impl<'a, 's> Recorder<'a, 's> {
    fn new(scenario: &Scenario, told: Told<'a, 's>) -> Self {
        let drafts = scenario.engine.facts().speculation.map(|speculates| speculates.drafts);
        let metrics = Metrics::new(options(&scenario.metrics))
            .with_slo(scenario.slo.clone())
            .with_rounds(drafts);
        Self { metrics, sinks: told.sinks, progress: told.progress }
    }

    fn is_counted(&self, id: RequestId, arrival: SimTime) -> bool {
        self.metrics.is_counted(id, arrival)
    }

    /// Takes down who is left.
    fn end(mut self, ending: &Ending) -> Result<(Metrics, Vec<Box<dyn Sink + 's>>), OutputError> {
        for request in &ending.unfinished {
            self.metrics.unfinished(request.id, request.class, request.arrival);
            let counted = self.is_counted(request.id, request.arrival);
            self.sinks.iter_mut().try_for_each(|sink| sink.unfinished(request, counted))?;
        }
        assert_eq!(self.metrics.outcomes().total(), ending.input, "no request is lost");
        Ok((self.metrics, self.sinks))
    }
}

impl Observer for Recorder<'_, '_> {
    fn is_counted(&self, request: &RequestSpec) -> bool {
        self.metrics.is_counted(request.id, request.arrival)
    }

    fn classes(&mut self, names: &[String]) {
        self.metrics.add_classes(names);
        self.sinks.iter_mut().for_each(|sink| sink.classes(names));
    }

    fn rejected(&mut self, request: &RequestSpec, why: Rejection) -> Result<(), RunError> {
        self.metrics.rejected(request.id, request.class, request.arrival, why);
        let counted = Observer::is_counted(self, request);
        let unserved = Unserved {
            id: request.id,
            line: request.line,
            engine: None,
            arrival: request.arrival,
            priority: request.priority,
            class: request.class,
            prompt_tokens: request.prompt_tokens,
        };
        self.sinks.iter_mut().try_for_each(|sink| sink.rejected(&unserved, why, counted))?;
        Ok(())
    }

    fn told(&mut self, outbox: &Outbox) -> Result<(), RunError> {
        take_down(&mut self.metrics, outbox);
        for sink in &mut self.sinks {
            tell(sink.as_mut(), &self.metrics, outbox)?;
        }
        Ok(())
    }

    fn reached(&mut self, now: SimTime) {
        let outcomes = self.metrics.outcomes();
        self.progress.update(outcomes.completed + outcomes.rejected, now.as_s());
    }
}

/// Takes what engines told into the statistics.
fn take_down(metrics: &mut Metrics, outbox: &Outbox) {
    outbox.passes.iter().for_each(|pass| metrics.pass(pass));
    outbox.details.iter().flatten().for_each(|pass| metrics.detail(pass));
    outbox.token_gaps.iter().for_each(|&(gap, count)| metrics.token_gap(gap, count));
    metrics.rounds(&outbox.rounds, outbox.burst_tokens);
    outbox.finished.iter().for_each(|record| metrics.finished(record));
    for &(request, why, _) in &outbox.turned_away {
        metrics.rejected(request.id, request.class, request.arrival, why);
    }
    for &(engine, since, waiting) in &outbox.idle {
        metrics.idle(engine, since, waiting);
    }
}

/// Tells a sink what engines told.
fn tell(sink: &mut dyn Sink, metrics: &Metrics, outbox: &Outbox) -> Result<(), OutputError> {
    outbox.passes.iter().for_each(|pass| sink.pass(pass));
    outbox.details.iter().flatten().try_for_each(|pass| sink.detail(pass))?;
    outbox.token_gaps.iter().for_each(|&(gap, count)| sink.emission_gap(gap, count));
    sink.burst_tokens(outbox.burst_tokens);
    for &(engine, since, waiting) in &outbox.idle {
        sink.idle(engine, since, waiting);
    }
    for (unserved, why, _) in &outbox.turned_away {
        sink.rejected(unserved, *why, metrics.is_counted(unserved.id, unserved.arrival))?;
    }
    for record in &outbox.finished {
        sink.finished(record, metrics.is_counted(record.id, record.arrival))?;
    }
    sink.told()
}

fn options(config: &MetricsConfig) -> MetricsOptions {
    let seconds = |s: f64| SimDuration::from_ms(s * 1e3).expect("checked when resolved");
    MetricsOptions {
        warmup: config.warmup.map(|warmup| match warmup {
            WarmupConfig::Requests(requests) | WarmupConfig::WarmCache(requests) => {
                Warmup::Requests(requests.try_into().unwrap_or(u32::MAX))
            }
            WarmupConfig::Seconds(s) => Warmup::Time(seconds(s)),
        }),
        window: config.window.map(|window| Window {
            from: SimTime::ZERO + seconds(window.from_s),
            to: window.to_s.map(|s| SimTime::ZERO + seconds(s)),
        }),
        exact_limit: config.exact_samples_max as usize,
    }
}

#[cfg(test)]
mod tests;
