//! What a steady batch comes to in closed form, and beside a run of the same batch.

use std::io::{self, Write};

use comfy_table::Table;
use serde::Serialize;
use serde_json::Value;

use super::Title;
use super::format::{count, counted, figure, known, percent, signed_percent};
use super::plain;
use super::table::{Look, Piece, origins, table, write_pieces};

/// The name and number of the format.
const SCHEMA: &str = "servesim.estimate/1";

/// Fields that are no figures.
const NO_FIGURES: [&str; 2] = ["title", "refused"];

/// A steady batch under one budget or several.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Estimate {
    schema: &'static str,
    servesim_version: &'static str,
    title: Title,
    /// What is asked of it.
    batch: Batch,
    /// One a budget.
    points: Vec<Point>,
    /// Budgets that cannot be had.
    refused: Vec<RefusedPoint>,
}

/// Requests that are all alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Batch {
    pub(crate) batch: u32,
    pub(crate) isl: u32,
    pub(crate) osl: u32,
    pub(crate) prefix: u32,
    /// Tokens of a prompt that are not in the cache.
    pub(crate) isl_new: u32,
}

/// A budget that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RefusedPoint {
    pub(crate) ctx_tokens: u64,
    pub(crate) why: String,
}

/// A steady batch under one budget.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Point {
    /// New tokens of a pass that were asked for.
    pub(crate) ctx_tokens: u64,
    /// New tokens of a pass, at most those of the batch.
    pub(crate) ctx_budget: u64,
    /// Tokens of a pass of the engine, decodes included.
    pub(crate) pass_tokens: u32,
    /// Passes with prompts.
    pub(crate) mixed_passes: u64,
    /// Passes that a prompt is spread over.
    pub(crate) ttft_chunks: u64,
    /// Rounds that decode an output.
    pub(crate) rounds_per_request: f64,
    /// One generation of the batch: every request is prefilled and decoded once.
    pub(crate) schedule: Vec<PassGroup>,
    pub(crate) figures: Figures,
    pub(crate) memory: Memory,
    pub(crate) timing: PriceBasis,
    /// Beside a run; absent if none was asked for.
    pub(crate) check: Option<Check>,
}

/// Passes that are all alike.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct PassGroup {
    /// `prefill`, `mixed` or `decode`.
    pub(crate) kind: &'static str,
    pub(crate) passes: u64,
    pub(crate) prefill_requests: u32,
    pub(crate) prefill_tokens: u64,
    pub(crate) prefill_past_tokens: u64,
    pub(crate) decode_requests: u32,
    pub(crate) decode_tokens: u64,
    pub(crate) decode_kv_tokens: u64,
    /// The parts of the price of one.
    pub(crate) prefill_ms: f64,
    pub(crate) decode_ms: f64,
    pub(crate) draft_ms: f64,
    pub(crate) host_ms: f64,
    /// How long one takes.
    pub(crate) pass_ms: f64,
}

/// What users and operators see.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// From the start of the first pass of a prompt to its first token.
    pub(crate) ttft_ms: f64,
    /// Before that, until other prompts have had their passes.
    pub(crate) queue_ms: f64,
    /// Of the tokens behind the first; absent if there are none.
    pub(crate) tpot_ms: Option<f64>,
    /// One generation.
    pub(crate) generation_ms: f64,
    pub(crate) passes: u64,
    pub(crate) requests_per_s: Option<f64>,
    pub(crate) input_tokens_per_s: Option<f64>,
    pub(crate) output_tokens_per_s: Option<f64>,
    pub(crate) output_tokens_per_s_per_accelerator: Option<f64>,
    /// After the first token.
    pub(crate) output_tokens_per_s_per_user: Option<f64>,
}

/// What the batch holds, on one engine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Memory {
    /// KV of the whole batch when all outputs are complete, in whole blocks, the prefix once.
    pub(crate) batch_kv_tokens_max: u64,
    /// KV that the engine has room for.
    pub(crate) pool_kv_tokens: u64,
    /// Requests that it has room for.
    pub(crate) requests_max: u64,
    /// On the fullest device; absent without a model and an accelerator.
    pub(crate) weight_bytes: Option<u64>,
    pub(crate) batch_kv_bytes_max: Option<f64>,
}

/// What the prices rest on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PriceBasis {
    pub(crate) provider: String,
    pub(crate) evidence: Value,
}

/// The estimate beside a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Check {
    /// Requests that are measured, and generations of the batch that these are.
    pub(crate) requests: u64,
    pub(crate) generations: u32,
    /// Those among them that lost their KV.
    pub(crate) preempted: u64,
    pub(crate) figures: Vec<Checked>,
}

/// One figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Checked {
    pub(crate) figure: &'static str,
    #[serde(skip)]
    label: &'static str,
    pub(crate) estimate: Option<f64>,
    pub(crate) replay: Option<f64>,
    /// The estimate over the replay, less 1.
    pub(crate) difference_ratio: Option<f64>,
}

impl Checked {
    /// The figure that the JSON calls `name` and tables `label`.
    pub(crate) fn of(
        (figure, label): (&'static str, &'static str),
        estimate: Option<f64>,
        replay: Option<f64>,
    ) -> Self {
        let ratio = |(estimate, replay): (f64, f64)| {
            if replay > 0.0 { Some(estimate / replay - 1.0) } else { None }
        };
        let difference_ratio = estimate.zip(replay).and_then(ratio);
        Self { figure, label, estimate, replay, difference_ratio }
    }
}

impl PassGroup {
    fn all_ms(&self) -> f64 {
        self.passes as f64 * self.pass_ms
    }
}

impl Estimate {
    /// At least one point.
    pub(crate) fn new(
        title: Title,
        batch: Batch,
        points: Vec<Point>,
        refused: Vec<RefusedPoint>,
    ) -> Self {
        let servesim_version = env!("CARGO_PKG_VERSION");
        Self { schema: SCHEMA, servesim_version, title, batch, points, refused }
    }

    /// Writes it as indented JSON and a final line break.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub(crate) fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        out.write_all(b"\n")
    }

    /// Writes it as tables for a terminal.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub(crate) fn write_table(&self, out: &mut dyn Write) -> io::Result<()> {
        write_pieces(self.pieces(), Look::default(), out)
    }

    /// Writes the same tables as Markdown.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub(crate) fn write_markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        plain::write_pieces(self.pieces(), out)
    }

    /// Writes every figure with its place in the JSON, not rounded.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub(crate) fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        plain::write_fields(&serde_json::to_value(self)?, &NO_FIGURES, out)
    }

    fn pieces(&self) -> Vec<Vec<Piece>> {
        let (version, title) = (self.servesim_version, &self.title);
        let what = format!(
            "servesim {version} | estimate of {} | {} | {}",
            title.scenario, title.engine, title.workload
        );
        let mut groups = vec![vec![Piece::Title(what)]];
        match self.points.as_slice() {
            [point] => groups.extend(point.pieces(&self.batch)),
            points => {
                groups.push(vec![Piece::table(budgets(points))]);
                if points.iter().any(|point| point.check.is_some()) {
                    groups.push(vec![Piece::table(checks(points))]);
                }
            }
        }
        let refused = |point: &RefusedPoint| {
            Piece::Warning(format!("--ctx-tokens {}: {}", point.ctx_tokens, point.why))
        };
        groups.push(self.refused.iter().map(refused).collect());
        groups
    }
}

impl Point {
    fn pieces(&self, batch: &Batch) -> Vec<Vec<Piece>> {
        let passes = |number: u64| match number {
            1 => "1 pass".to_owned(),
            _ => format!("{} passes", count(number)),
        };
        let budget = format!(
            "{} new tokens a prompt, at most {} a pass: {} with prompts, {} for each; the engine's passes have {}",
            count(batch.isl_new.into()),
            count(self.ctx_budget),
            passes(self.mixed_passes),
            passes(self.ttft_chunks),
            counted(self.pass_tokens.into(), "token"),
        );
        let mut groups = vec![
            vec![Piece::Line(budget)],
            vec![Piece::table(self.work())],
            vec![Piece::table(self.prices())],
            vec![Piece::table(self.outcome())],
        ];
        groups.extend(self.check.as_ref().map(|check| vec![Piece::table(check.table())]));
        let mut lines = vec![Piece::Line(self.memory.line()), Piece::Line(self.basis())];
        if let Some(check) = &self.check {
            lines.push(Piece::Line(format!(
                "Replay: {} of {} measured, {} preempted",
                counted(check.requests, "request"),
                counted(check.generations.into(), "generation"),
                count(check.preempted)
            )));
        }
        groups.push(lines);
        groups
    }

    fn basis(&self) -> String {
        format!("Timing: {}{}", self.timing.provider, origins(&self.timing.evidence))
    }

    /// What is in the passes.
    fn work(&self) -> Table {
        let row = |group: &PassGroup| {
            let mut row = vec![group.kind.to_owned()];
            row.extend(
                [
                    group.passes,
                    group.prefill_requests.into(),
                    group.prefill_tokens,
                    group.prefill_past_tokens,
                    group.decode_requests.into(),
                    group.decode_tokens,
                    group.decode_kv_tokens,
                ]
                .map(count),
            );
            row
        };
        let header = [
            "Passes",
            "count",
            "prompts",
            "new tokens",
            "past tokens",
            "decodes",
            "decode tokens",
            "decode KV",
        ];
        table(&header, self.schedule.iter().map(row).collect())
    }

    /// What the passes cost.
    fn prices(&self) -> Table {
        let all_ms: f64 = self.schedule.iter().map(PassGroup::all_ms).sum();
        let row = |group: &PassGroup| {
            let parts = [
                group.prefill_ms,
                group.decode_ms,
                group.draft_ms,
                group.host_ms,
                group.pass_ms,
                group.all_ms(),
            ];
            let mut row = vec![group.kind.to_owned()];
            row.extend(parts.map(figure));
            row.push(known((all_ms > 0.0).then(|| group.all_ms() / all_ms), percent));
            row
        };
        let header =
            ["Price (ms)", "prefill", "decode", "drafts", "host", "pass", "all", "share (%)"];
        table(&header, self.schedule.iter().map(row).collect())
    }

    fn outcome(&self) -> Table {
        let figures = &self.figures;
        let latency = [
            ("TTFT (ms)", Some(figures.ttft_ms)),
            ("Queue (ms)", Some(figures.queue_ms)),
            ("TPOT (ms)", figures.tpot_ms),
            ("Requests/s", figures.requests_per_s),
            ("Input tokens/s", figures.input_tokens_per_s),
            ("Output tokens/s", figures.output_tokens_per_s),
            ("  of an accelerator", figures.output_tokens_per_s_per_accelerator),
            ("  of a user", figures.output_tokens_per_s_per_user),
        ];
        let rows = latency.map(|(label, value)| vec![label.to_owned(), known(value, figure)]);
        table(&["Steady batch", "estimate"], rows.to_vec())
    }
}

impl Memory {
    fn line(&self) -> String {
        const GIB: f64 = 1_073_741_824.0;
        let bytes = self.weight_bytes.zip(self.batch_kv_bytes_max);
        let bytes = bytes.map_or_else(String::new, |(weights, kv)| {
            let [weights, kv] = [weights as f64, kv].map(|bytes| figure(bytes / GIB));
            format!(" (GiB a device: weights {weights}, KV of the batch {kv})")
        });
        format!(
            "Memory: KV of at most {} of {} tokens, room for {}{bytes}",
            count(self.batch_kv_tokens_max),
            count(self.pool_kv_tokens),
            counted(self.requests_max, "such request"),
        )
    }
}

impl Check {
    fn table(&self) -> Table {
        let row = |checked: &Checked| {
            vec![
                checked.label.to_owned(),
                known(checked.estimate, figure),
                known(checked.replay, figure),
                known(checked.difference_ratio, signed_percent),
            ]
        };
        let header = ["Check", "estimate", "replay", "difference (%)"];
        table(&header, self.figures.iter().map(row).collect())
    }

    fn difference(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|checked| checked.figure == name)?.difference_ratio
    }
}

/// A row for each budget.
fn budgets(points: &[Point]) -> Table {
    let row = |point: &Point| {
        let figures = &point.figures;
        vec![
            count(point.ctx_tokens),
            count(point.mixed_passes),
            count(figures.passes - point.mixed_passes),
            count(point.ttft_chunks),
            figure(figures.ttft_ms),
            figure(figures.queue_ms),
            known(figures.tpot_ms, figure),
            known(figures.requests_per_s, figure),
            known(figures.output_tokens_per_s, figure),
        ]
    };
    let header = [
        "ctx_tokens",
        "mixed",
        "decode",
        "chunks",
        "TTFT (ms)",
        "queue (ms)",
        "TPOT (ms)",
        "requests/s",
        "output/s",
    ];
    table(&header, points.iter().map(row).collect())
}

/// How far each is from the run.
fn checks(points: &[Point]) -> Table {
    const FIGURES: [&str; 5] = ["passes", "ttft_ms", "queue_ms", "tpot_ms", "output_tokens_per_s"];
    let row = |point: &Point| {
        let difference = |name| {
            let check = point.check.as_ref()?;
            check.difference(name)
        };
        let mut row = vec![count(point.ctx_tokens)];
        row.extend(FIGURES.map(|name| known(difference(name), signed_percent)));
        row
    };
    let header = ["Difference (%)", "passes", "TTFT", "queue", "TPOT", "output/s"];
    table(&header, points.iter().map(row).collect())
}
