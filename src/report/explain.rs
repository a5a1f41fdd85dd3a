//! What an explanation says: where the time of some requests went, beside that of others, and what would change it.

use std::io::{self, Write};

use serde::Serialize;

use crate::metrics::blame::{Account, Ahead, Metric, Part, Step};

use super::Title;
use super::format::{count, counted, figure, percent, wrapped};
use super::table::{WIDTH_MAX, table, write_table};

/// The name and number of the format.
const SCHEMA: &str = "servesim.explanation/1";

/// Lines of the steps of a request that a terminal gets.
const STEPS_MAX: usize = 12;

/// Where the time went.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Explanation {
    schema: &'static str,
    pub(crate) title: Title,
    /// The latency, as reports call it.
    metric: &'static str,
    #[serde(skip)]
    pub(crate) latency: Metric,
    /// What is explained: `p99`, or `request 17`.
    pub(crate) subject: String,
    /// Its value.
    pub(crate) value_ms: f64,
    /// Requests with such a latency.
    pub(crate) samples: u64,
    /// Those that are explained; then those around the median, unless that is what is explained.
    pub(crate) groups: Vec<Group>,
    /// One of them.
    pub(crate) example: Example,
    /// What lifting one limit would do; absent if it was not tried.
    pub(crate) what_if: Option<WhatIf>,
    /// Whether requests come as others end.
    pub(crate) load_follows: bool,
    /// The digest of the run.
    pub(crate) digest: String,
    /// That of the report that was to be explained, if there is one and it is another.
    pub(crate) other_digest: Option<String>,
}

/// Requests, and what the mean of their latency consists of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Group {
    /// What they stand for.
    pub(crate) name: String,
    requests: u64,
    from_ms: f64,
    to_ms: f64,
    mean_ms: f64,
    /// The parts of the mean; it is their sum.
    pub(crate) parts: Vec<PartOf>,
    prompt_tokens_mean: f64,
    cached_tokens_mean: f64,
    output_tokens_mean: f64,
    /// Passes that computed new tokens of the prompt.
    chunks_mean: f64,
    preemptions_mean: f64,
    recomputed_tokens_mean: f64,
}

/// A part of a mean latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct PartOf {
    pub(crate) part: &'static str,
    #[serde(skip)]
    of: Part,
    pub(crate) ms: f64,
    share_ratio: f64,
}

/// One request.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Example {
    request: u32,
    line: Option<u64>,
    engine: u32,
    arrival_ms: f64,
    value_ms: f64,
    prompt_tokens: u32,
    cached_tokens: u32,
    output_tokens: u32,
    preemptions: u32,
    ahead: AheadOf,
    /// Its passes; only of a request that was asked for.
    steps: Vec<StepOf>,
}

/// Who was served while it waited.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct AheadOf {
    requests: u64,
    prompt_tokens: u64,
    output_tokens: u64,
    top: Vec<TopAhead>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct TopAhead {
    request: u32,
    line: Option<u64>,
    prompt_tokens: u32,
    output_tokens: u32,
    beside_ms: f64,
}

/// Passes of a request.
#[derive(Clone, Debug, Serialize)]
struct StepOf {
    start_ms: f64,
    ms: f64,
    passes: u32,
    /// In pass notation: `P 17[0..512]`, `D 17`.
    what: String,
    other_prefills: u32,
    other_decodes: u32,
}

/// What lifting one limit does, best first.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WhatIf {
    pub(crate) lifted: Vec<Lifted>,
    /// Limits that cannot be lifted.
    pub(crate) refused: Vec<Refused>,
}

/// A limit that was lifted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Lifted {
    pub(crate) what: &'static str,
    /// The assignments that lifted it, as `--set` takes them.
    pub(crate) set: Vec<String>,
    /// The latency then; absent if no request has one.
    pub(crate) value_ms: Option<f64>,
    /// That over the latency now, less 1.
    pub(crate) change_ratio: Option<f64>,
    /// Requests that finished.
    pub(crate) completed: u64,
}

/// A limit that was not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Refused {
    pub(crate) what: &'static str,
    pub(crate) set: Vec<String>,
    pub(crate) why: String,
}

/// A change that is worth a sentence.
const NOTABLE_RATIO: f64 = 0.01;

impl Metric {
    /// What reports call it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ttft => "ttft_ms",
            Self::Tpot => "tpot_ms",
            Self::E2e => "e2e_ms",
            Self::Queue => "queue_ms",
        }
    }

    /// What people call it.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Ttft => "TTFT",
            Self::Tpot => "TPOT",
            Self::E2e => "E2E",
            Self::Queue => "queue time",
        }
    }
}

impl Part {
    /// What a table calls it.
    const fn words(self) -> &'static str {
        match self {
            Self::Frontend => "front end",
            Self::RunningPass => "queue: for the running pass",
            Self::Budget => "queue: for tokens of a pass",
            Self::Seats => "queue: for a seat",
            Self::KvBlocks => "queue: for KV blocks",
            Self::Preempting => "queue: behind preemptions",
            Self::Held => "queue: prompts held back",
            Self::StaticBatch => "queue: for the batch to end",
            Self::Content => "queue: for content of others",
            Self::Prompts => "queue: for a prompt's place",
            Self::Other => "queue: other",
            Self::PrefillAlone => "prefill, alone in the pass",
            Self::PrefillShared => "prefill, beside others",
            Self::ChunkWait => "between its chunks",
            Self::Preempted => "preempted",
            Self::Recompute => "computing again",
            Self::Decode => "decode",
            Self::Slowed => "slowed by others' prefill",
            Self::DecodeWait => "passes without its decode",
            Self::Detokenize => "detokenising",
        }
    }

    /// What a sentence says of it.
    const fn sentence(self) -> &'static str {
        match self {
            Self::Frontend => "is spent before the engine's queue",
            Self::RunningPass => "is waiting for passes under way to end",
            Self::Budget => "is waiting in the queue for tokens of a pass",
            Self::Seats => "is waiting in the queue for a seat",
            Self::KvBlocks => "is waiting in the queue for KV blocks",
            Self::Preempting => "is waiting in the queue while running requests are preempted",
            Self::Held => "is waiting in the queue while prompts are held back",
            Self::StaticBatch => "is waiting in the queue for the static batch to end",
            Self::Content => "is waiting for content that others bring into the cache",
            Self::Prompts => "is waiting in the queue for one of the places for prompts of a pass",
            Self::Other => "is waiting in the queue",
            Self::PrefillAlone => "is computing the prompt, alone in the pass",
            Self::PrefillShared => "is computing the prompt in passes shared with others",
            Self::ChunkWait => "passes between the chunks of the prompt",
            Self::Preempted => "is waiting to come back after a preemption",
            Self::Recompute => "is computing again what preemptions dropped",
            Self::Decode => "is decoding",
            Self::Slowed => "is what the prefill of others adds to passes that decode",
            Self::DecodeWait => "passes between tokens, in passes without it",
            Self::Detokenize => "is detokenising",
        }
    }
}

impl Group {
    /// The mean of `accounts`, of which there is one at least, all with this latency.
    pub(crate) fn of(name: String, accounts: &[&Account], metric: Metric) -> Self {
        let number = accounts.len() as f64;
        let mean = |of: &dyn Fn(&Account) -> f64| {
            accounts.iter().map(|account| of(account)).sum::<f64>() / number
        };
        let values = || accounts.iter().filter_map(|account| account.value_ms(metric));
        let mean_ms = mean(&|account| account.value_ms(metric).unwrap_or_default());
        let part = |&of: &Part| {
            let ms = mean(&|account| {
                account.spent(metric).on(of).as_ms() / f64::from(account.gaps(metric))
            });
            let share_ratio = if mean_ms > 0.0 { ms / mean_ms } else { 0.0 };
            PartOf { part: of.name(), of, ms, share_ratio }
        };
        Self {
            name,
            requests: accounts.len() as u64,
            from_ms: values().fold(f64::INFINITY, f64::min),
            to_ms: values().fold(0.0, f64::max),
            mean_ms,
            parts: Part::ALL.iter().map(part).filter(|part| part.ms > 0.0).collect(),
            prompt_tokens_mean: mean(&|a| a.record.prompt_tokens.into()),
            cached_tokens_mean: mean(&|a| a.record.cached_tokens.into()),
            output_tokens_mean: mean(&|a| a.record.output_tokens.into()),
            chunks_mean: mean(&|a| a.chunks.into()),
            preemptions_mean: mean(&|a| a.record.preemptions.into()),
            recomputed_tokens_mean: mean(&|a| a.recomputed_tokens as f64),
        }
    }

    /// The time of a part of the mean.
    pub(crate) fn ms_of(&self, part: Part) -> f64 {
        self.parts.iter().find(|p| p.of == part).map_or(0.0, |p| p.ms)
    }
}

/// A line of a trace, if there is one.
fn trace_line(line: u64) -> Option<u64> {
    (line > 0).then_some(line)
}

impl Example {
    /// This request, behind those who were served before it.
    pub(crate) fn of(account: &Account, metric: Metric, ahead: &Ahead, steps: &[Step]) -> Self {
        let record = &account.record;
        let id = record.id;
        let step = |step: &Step| StepOf {
            start_ms: step.start.as_ms(),
            ms: step.end.since(step.start).as_ms(),
            passes: step.passes,
            what: if step.is_decode {
                format!("D {id}")
            } else {
                format!("P {id}[{}..{}]", step.from, step.to)
            },
            other_prefills: step.other_prefills,
            other_decodes: step.other_decodes,
        };
        let top = ahead.top.iter().map(|&(id, line, prompt_tokens, output_tokens, beside)| {
            let (line, beside_ms) = (trace_line(line), beside.as_ms());
            TopAhead { request: id.0, line, prompt_tokens, output_tokens, beside_ms }
        });
        Self {
            request: id.0,
            line: trace_line(record.line),
            engine: record.engine.0,
            arrival_ms: record.arrival.as_ms(),
            value_ms: account.value_ms(metric).unwrap_or_default(),
            prompt_tokens: record.prompt_tokens,
            cached_tokens: record.cached_tokens,
            output_tokens: record.output_tokens,
            preemptions: record.preemptions,
            ahead: AheadOf {
                requests: ahead.requests,
                prompt_tokens: ahead.prompt_tokens,
                output_tokens: ahead.output_tokens,
                top: top.collect(),
            },
            steps: steps.iter().map(step).collect(),
        }
    }

    /// `request 17 (line 18, engine 0, 512+64 tokens)`.
    fn words(&self) -> String {
        let line = self.line.map_or_else(String::new, |line| format!("line {line}, "));
        let Self { request, engine, prompt_tokens, output_tokens, .. } = self;
        format!("Request {request} ({line}engine {engine}, {prompt_tokens}+{output_tokens} tokens)")
    }

    fn ahead(&self) -> String {
        let AheadOf { requests, prompt_tokens, output_tokens, ref top } = self.ahead;
        if requests == 0 {
            return "It waited behind nobody.".to_owned();
        }
        let top: Vec<String> = (top.iter())
            .map(|t| {
                let tokens = format!("{}+{} tokens", t.prompt_tokens, t.output_tokens);
                format!("request {} ({tokens}, {} ms)", t.request, figure(t.beside_ms))
            })
            .collect();
        format!(
            "While it waited, {} that finished ran on its engine, with {} prompt and {} output tokens. Most was held by {}.",
            counted(requests, "other"),
            count(prompt_tokens),
            count(output_tokens),
            top.join(", ")
        )
    }
}

impl Explanation {
    /// An explanation of a latency.
    pub(crate) fn new(
        title: Title,
        latency: Metric,
        (subject, value_ms, samples): (String, f64, u64),
        groups: Vec<Group>,
        example: Example,
    ) -> Self {
        Self {
            schema: SCHEMA,
            title,
            metric: latency.name(),
            latency,
            subject,
            value_ms,
            samples,
            groups,
            example,
            what_if: None,
            load_follows: false,
            digest: String::new(),
            other_digest: None,
        }
    }

    /// Writes it as indented JSON and a final line break.
    pub(crate) fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        out.write_all(b"\n")
    }

    /// Writes it as sentences and tables for a terminal.
    pub(crate) fn write_table(&self, out: &mut dyn Write) -> io::Result<()> {
        let say = |out: &mut dyn Write, text: &str| writeln!(out, "{}", wrapped(text, WIDTH_MAX));
        let Title { scenario, engine, workload } = &self.title;
        say(out, &format!("{scenario} | {engine} | {workload}"))?;
        if let Some(other) = &self.other_digest {
            let text = format!(
                "The run cannot be repeated: its digest is {}, that of the report is {other}. What follows is said of the run as it is now.",
                self.digest
            );
            say(out, &text)?;
        }
        say(out, &self.verdict())?;
        writeln!(out)?;
        write_table(&self.parts_table(), out)?;
        writeln!(out)?;
        write_table(&self.facts_table(), out)?;
        writeln!(out)?;
        let value = figure(self.example.value_ms);
        let metric = self.latency.words();
        let text =
            format!("{}: {metric} {value} ms. {}", self.example.words(), self.example.ahead());
        say(out, &text)?;
        self.write_steps(out)?;
        if let Some(what_if) = &self.what_if {
            writeln!(out)?;
            write_table(&self.what_if_table(what_if), out)?;
            writeln!(out)?;
            say(out, &Self::best(what_if))?;
            for refused in &what_if.refused {
                let Refused { what, set, why } = refused;
                say(out, &format!("Not tried: {what} ({}): {why}", set.join(", ")))?;
            }
            if self.load_follows {
                say(
                    out,
                    "Requests come as others end: with a limit lifted, the load is another one.",
                )?;
            }
        }
        Ok(())
    }

    fn verdict(&self) -> String {
        let metric = self.latency.words();
        let first = &self.groups[0];
        let most = first.parts.iter().max_by(|a, b| a.ms.total_cmp(&b.ms));
        let most = most.map_or_else(String::new, |part| {
            let share = percent(part.share_ratio);
            format!(" The largest part, {share} %, {}.", part.of.sentence())
        });
        let of = match self.groups.get(1) {
            Some(median) => format!("; around the median it is {} ms", figure(median.mean_ms)),
            None => String::new(),
        };
        format!(
            "{} of {metric}: {} ms{of} ({}).{most}",
            self.subject,
            figure(self.value_ms),
            counted(self.samples, "request")
        )
    }

    fn header(&self, label: String, with_shares: bool) -> Vec<String> {
        let mut header = vec![label];
        for group in &self.groups {
            header.push(group.name.clone());
            if with_shares {
                header.push("share (%)".to_owned());
            }
        }
        header
    }

    fn parts_table(&self) -> comfy_table::Table {
        let unit = if self.latency == Metric::Tpot { "ms per token" } else { "ms" };
        let header = self.header(format!("{} (mean, {unit})", self.latency.words()), true);
        let is_there = |part: &&Part| self.groups.iter().any(|group| group.ms_of(**part) > 0.0);
        let mut rows: Vec<Vec<String>> = (Part::ALL.iter().filter(is_there))
            .map(|&part| {
                let mut row = vec![part.words().to_owned()];
                for group in &self.groups {
                    let ms = group.ms_of(part);
                    let ratio = if group.mean_ms > 0.0 { ms / group.mean_ms } else { 0.0 };
                    row.extend([figure(ms), percent(ratio)]);
                }
                row
            })
            .collect();
        let mut total = vec!["together".to_owned()];
        for group in &self.groups {
            total.extend([figure(group.mean_ms), String::new()]);
        }
        rows.push(total);
        table(&header.iter().map(String::as_str).collect::<Vec<_>>(), rows)
    }

    fn facts_table(&self) -> comfy_table::Table {
        let header = self.header("Mean of a request".to_owned(), false);
        let row = |name: &str, of: &dyn Fn(&Group) -> String| {
            std::iter::once(name.to_owned()).chain(self.groups.iter().map(of)).collect()
        };
        let rows = vec![
            row("requests, from", &|g| format!("{}, {} ms", count(g.requests), figure(g.from_ms))),
            row("to", &|g| format!("{} ms", figure(g.to_ms))),
            row("prompt tokens", &|g| figure(g.prompt_tokens_mean)),
            row("of them cached", &|g| figure(g.cached_tokens_mean)),
            row("output tokens", &|g| figure(g.output_tokens_mean)),
            row("chunks", &|g| figure(g.chunks_mean)),
            row("preemptions", &|g| figure(g.preemptions_mean)),
            row("tokens computed again", &|g| figure(g.recomputed_tokens_mean)),
        ];
        table(&header.iter().map(String::as_str).collect::<Vec<_>>(), rows)
    }

    fn write_steps(&self, out: &mut dyn Write) -> io::Result<()> {
        let steps = &self.example.steps;
        if steps.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        let row = |step: &StepOf| {
            vec![
                step.what.clone(),
                figure(step.start_ms),
                figure(step.ms),
                count(step.passes.into()),
                count(step.other_prefills.into()),
                count(step.other_decodes.into()),
            ]
        };
        let header =
            ["Its passes", "start (ms)", "ms", "passes", "prefills beside", "decodes beside"];
        let rows = steps.iter().take(STEPS_MAX).map(row).collect();
        write_table(&table(&header, rows), out)?;
        if steps.len() > STEPS_MAX {
            writeln!(out, "and {} more", count((steps.len() - STEPS_MAX) as u64))?;
        }
        Ok(())
    }

    fn what_if_table(&self, what_if: &WhatIf) -> comfy_table::Table {
        let value = format!("{} of {} (ms)", self.subject, self.latency.words());
        let header = ["One limit lifted", &value, "change (%)"];
        let row = |lifted: &Lifted| {
            vec![
                lifted.what.to_owned(),
                lifted.value_ms.map_or_else(|| "-".to_owned(), figure),
                lifted
                    .change_ratio
                    .map_or_else(|| "-".to_owned(), |r| format!("{:+.1}", r * 100.0)),
            ]
        };
        table(&header, what_if.lifted.iter().map(row).collect())
    }

    fn best(what_if: &WhatIf) -> String {
        let best = what_if.lifted.first();
        match best.and_then(|lifted| Some((lifted, lifted.change_ratio?))) {
            Some((lifted, change)) if change <= -NOTABLE_RATIO => format!(
                "What helps most: {} ({}), {} % less.",
                lifted.what,
                lifted.set.join(", "),
                percent(-change)
            ),
            _ => "No single limit that was lifted helps by 1 % or more.".to_owned(),
        }
    }
}
