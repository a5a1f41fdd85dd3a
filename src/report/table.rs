//! The report as a person reads it in a terminal: about forty lines of at most 100 columns.

use std::io::{self, Write};

use serde_json::Value;

use anstyle::{AnsiColor, Style};
use comfy_table::{CellAlignment, ColumnConstraint, LineStyle, Table, TableStyle, Width};

use crate::metrics::rounds::SpeculationSummary;
use crate::metrics::samples::Summary;
use crate::metrics::slo::{Goodput, Objective};
use crate::metrics::summary::{
    ClassSummary, EngineSummary, Level, Measured, PassKindSummary, RunSummary,
};

use super::Report;
use super::bars::Histogram;
use super::format::{UNKNOWN, count, counted, figure, known, mean, percent, wrapped};

/// Engines that get a line of their own.
const ENGINES_MAX: usize = 8;

/// Classes that get a line of their own.
const CLASSES_MAX: usize = 12;

/// Columns of a terminal that the tables fit into.
pub(crate) const WIDTH_MAX: usize = 100;

/// Content width of the first column, the same in every table.
const LABEL_WIDTH: u16 = 12;

/// Least content width of the other columns.
const FIGURE_WIDTH: u16 = 7;

/// What a terminal can show beside plain text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Colours.
    pub colours: bool,
    /// Pictures made of block characters.
    pub pictures: bool,
}

/// A piece of the report, as people read it.
pub(super) enum Piece {
    /// What was simulated.
    Title(String),
    Table(Box<Table>),
    /// A sentence.
    Line(String),
    Warning(String),
    /// Something to look at, on a line of its own.
    Picture(String),
}

impl Piece {
    pub(super) fn table(table: Table) -> Self {
        Self::Table(Box::new(table))
    }
}

/// The pieces of a report, in groups that belong together. Figures are rounded, units stand in the headers.
pub(super) fn pieces(report: &Report) -> Vec<Vec<Piece>> {
    let run = &report.run;
    let title = &report.title;
    let version = &report.servesim_version;
    let what =
        format!("servesim {version} | {} | {} | {}", title.scenario, title.engine, title.workload);
    let mut groups = vec![vec![Piece::Title(what), Piece::Line(requests_line(run))]];
    groups.push(vec![Piece::table(latency(run))]);
    groups.push(pictures(run));
    let tables = [breakdown(run), throughput(run), passes(run), engines(run, ENGINES_MAX)];
    groups.extend(tables.map(|table| vec![Piece::table(table)]));
    if !run.classes.is_empty() {
        groups.push(vec![Piece::table(classes(run, CLASSES_MAX))]);
    }
    if let Some(goodput) = &run.goodput {
        groups.push(vec![Piece::table(objectives(run, goodput))]);
    }
    let mut lines = vec![Piece::Line(cache_line(run))];
    lines.extend(run.speculation.as_ref().map(speculation_line).map(Piece::Line));
    lines.extend(run.goodput.as_ref().map(|goodput| Piece::Line(goodput_line(run, goodput))));
    lines.push(Piece::Line(format!(
        "Timing: {}{}; mixed passes: {}",
        report.timing.provider,
        origins(&report.timing.evidence),
        report.timing.mixed_rule
    )));
    lines.extend(report.warnings.iter().map(|warning| Piece::Warning(warning.to_string())));
    groups.push(lines);
    groups
}

/// Writes the report for a terminal.
pub(crate) fn write(report: &Report, look: Look, out: &mut dyn Write) -> io::Result<()> {
    write_pieces(pieces(report), look, out)
}

/// Writes groups of pieces for a terminal.
pub(super) fn write_pieces(
    groups: Vec<Vec<Piece>>,
    look: Look,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (bold, alarm) = (Style::new().bold(), AnsiColor::Yellow.on_default().bold());
    let styled = |style: Style, text: &str| {
        if look.colours { format!("{style}{text}{style:#}") } else { text.to_owned() }
    };
    let mut is_first = true;
    for mut group in groups {
        group.retain(|piece| look.pictures || !matches!(piece, Piece::Picture(_)));
        if group.is_empty() {
            continue;
        }
        if !std::mem::take(&mut is_first) {
            writeln!(out)?;
        }
        for piece in group {
            match piece {
                Piece::Title(text) => writeln!(out, "{}", styled(bold, &text))?,
                Piece::Table(table) => write_table(&table, out)?,
                Piece::Line(text) => writeln!(out, "{}", wrapped(&text, WIDTH_MAX))?,
                Piece::Warning(text) => {
                    let text = wrapped(&format!("Warning: {text}"), WIDTH_MAX);
                    writeln!(out, "{}", styled(alarm, &text))?;
                }
                Piece::Picture(text) => writeln!(out, "{text}")?,
            }
        }
    }
    Ok(())
}

/// How the latencies lie between their extremes, as histograms of a line each.
fn pictures(run: &RunSummary) -> Vec<Piece> {
    let curves = [
        ("TTFT", &run.curves.ttft_ms),
        ("TPOT", &run.curves.tpot_ms),
        ("ITL", &run.curves.itl_ms),
        ("E2E", &run.curves.e2e_ms),
    ];
    let picture = |(label, curve)| {
        let Histogram { bars, from_ms, to_ms } = Histogram::of(curve, &run.curves.percents)?;
        let from = figure(from_ms);
        Some(format!("{label:<5}{from:>10} {bars} {} ms", figure(to_ms)))
    };
    let mut lines: Vec<_> = curves.into_iter().filter_map(picture).map(Piece::Picture).collect();
    if !lines.is_empty() {
        lines.insert(0, Piece::Picture("From p1 to p99 (logarithmic)".to_owned()));
    }
    lines
}

/// ` (exact 12 %, interpolated 88 %)`: what the priced time rests on.
pub(super) fn origins(evidence: &Value) -> String {
    let shares = evidence["shares"].as_object().into_iter().flatten();
    let shares = shares.filter_map(|(origin, share)| Some((origin, share.as_f64()?)));
    let some: Vec<_> = shares
        .filter(|&(_, share)| share > 0.0)
        .map(|(origin, share)| match share * 100.0 {
            percent if percent < 0.5 => format!("{origin} < 1 %"),
            percent => format!("{origin} {percent:.0} %"),
        })
        .collect();
    if some.is_empty() { String::new() } else { format!(" ({})", some.join(", ")) }
}

/// Where the requests of the workload went.
fn requests_line(run: &RunSummary) -> String {
    let requests = &run.requests;
    let reasons: Vec<_> = requests
        .rejected
        .by_reason
        .iter()
        .filter(|&(_, &rejected)| rejected > 0)
        .map(|(reason, &rejected)| format!("{} {reason}", count(rejected)))
        .collect();
    let reasons =
        if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
    format!(
        "{}: {} completed, {} rejected{reasons}, {} unfinished, {} excluded{}",
        counted(requests.input, "request"),
        count(requests.completed),
        count(requests.rejected.total),
        count(requests.unfinished),
        count(requests.excluded),
        exclusion(&run.measured),
    )
}

/// The rule that leaves requests out, in brackets; nothing where there is none.
fn exclusion(measured: &Measured) -> String {
    let seconds = |ms: f64| format!("{} s", figure(ms / 1e3));
    let mut rules = Vec::new();
    if let Some(requests) = measured.warmup_requests {
        rules.push(format!("warm-up of {}", counted(requests.into(), "request")));
    }
    if let Some(ms) = measured.warmup_ms {
        rules.push(format!("warm-up of {}", seconds(ms)));
    }
    if let Some(from) = measured.window_from_ms {
        let to = measured.window_to_ms.map_or_else(|| "the end".to_owned(), seconds);
        rules.push(format!("window from {} to {to}", seconds(from)));
    }
    if rules.is_empty() { String::new() } else { format!(" ({})", rules.join(", ")) }
}

fn cache_line(run: &RunSummary) -> String {
    let preemptions = match run.preemptions.total {
        0 => "none".to_owned(),
        total => format!("{} in {}", count(total), counted(run.preemptions.requests, "request")),
    };
    let hits = match run.prefix_cache.hit_ratio {
        Some(ratio) => {
            format!("{} % of {} prompt tokens", percent(ratio), count(run.tokens.prompt))
        }
        None => UNKNOWN.to_owned(),
    };
    format!("Prefix cache hits: {hits}; preemptions: {preemptions}")
}

fn speculation_line(speculation: &SpeculationSummary) -> String {
    let positions = speculation.position_acceptance_ratio.iter();
    let positions: Vec<_> = positions.map(|&ratio| known(ratio, percent)).collect();
    format!(
        "Speculation: {} tokens a round; {} % of {} accepted (by position {} %), {} wasted",
        known(speculation.tokens_per_round_mean, figure),
        known(speculation.acceptance_ratio, percent),
        counted(speculation.drafts, "draft"),
        positions.join(" "),
        count(speculation.wasted_drafts)
    )
}

/// The latency table; where its figures are too long for [`WIDTH_MAX`], with fewer columns.
pub(super) fn latency(run: &RunSummary) -> Table {
    let narrower: [&[&str]; 3] = [&[], &["p99.9"], &["p99.9", "std"]];
    let mut tables = narrower.into_iter().map(|without| latency_without(run, without));
    let widest = tables.next().expect("there are three");
    if width(&widest) <= WIDTH_MAX {
        return widest;
    }
    tables.find(|table| width(table) <= WIDTH_MAX).unwrap_or(widest)
}

fn latency_without(run: &RunSummary, without: &[&str]) -> Table {
    type Column = (&'static str, fn(&Summary) -> Option<f64>);
    const COLUMNS: [Column; 8] = [
        ("mean", |s| s.mean),
        ("std", |s| s.std),
        ("p50", |s| s.p50),
        ("p90", |s| s.p90),
        ("p95", |s| s.p95),
        ("p99", |s| s.p99),
        ("p99.9", |s| s.p99_9),
        ("max", |s| s.max),
    ];
    let columns = || COLUMNS.iter().filter(|(name, _)| !without.contains(name));
    let mut header = vec!["Latency (ms)"];
    header.extend(columns().map(|(name, _)| name));
    header.push("samples");
    let row = |label: &str, summary: &Summary| {
        let mut row = vec![label.to_owned()];
        row.extend(columns().map(|(_, value)| known(value(summary), figure)));
        row.push(count(summary.count));
        row
    };
    let latency = &run.latency;
    let mut rows = vec![
        row("TTFT", &latency.ttft_ms),
        row("TPOT", &latency.tpot_ms),
        row("ITL", &latency.itl_ms),
        row("E2E", &latency.e2e_ms),
        row("Queue time", &latency.queue_ms),
    ];
    // Without speculation these are the gaps between tokens.
    if run.speculation.is_some() {
        rows.insert(3, row("Emission gap", &latency.emission_gap_ms));
    }
    table(&header, rows)
}

fn width(table: &Table) -> usize {
    table.lines().map(|line| line.trim_end().chars().count()).max().unwrap_or(0)
}

pub(super) fn breakdown(run: &RunSummary) -> Table {
    let parts = &run.ttft_breakdown_ms;
    let parts = [
        &parts.frontend,
        &parts.queueing,
        &parts.prefill,
        &parts.chunk_wait,
        &parts.recompute,
        &parts.detokenize,
    ];
    let ttft = &run.latency.ttft_ms;
    let row = |label: &str, parts: [String; 6], whole: String| {
        [label.to_owned()].into_iter().chain(parts).chain([whole]).collect()
    };
    let whole = known(ttft.mean.filter(|&mean| mean > 0.0), |_| percent(1.0));
    table(
        &[
            "TTFT (ms)",
            "frontend",
            "queueing",
            "prefill",
            "chunk wait",
            "recompute",
            "detokenize",
            "TTFT",
        ],
        vec![
            row("mean", parts.map(|p| known(p.summary.mean, figure)), known(ttft.mean, figure)),
            row("share (%)", parts.map(|p| known(p.share_ratio, percent)), whole),
            row("p99", parts.map(|p| known(p.summary.p99, figure)), known(ttft.p99, figure)),
        ],
    )
}

pub(super) fn throughput(run: &RunSummary) -> Table {
    let (tokens, rates) = (&run.tokens, &run.throughput);
    let total =
        [run.requests.completed, tokens.prompt, tokens.output, tokens.prompt + tokens.output];
    let rate = [
        rates.requests_per_s,
        rates.input_tokens_per_s,
        rates.output_tokens_per_s,
        rates.total_tokens_per_s,
    ];
    let row = |label: &str, figures: [String; 4], span: String| {
        [label.to_owned()].into_iter().chain(figures).chain([span]).collect()
    };
    table(
        &["Throughput", "requests", "input tokens", "output tokens", "all tokens", "span (s)"],
        vec![
            row("total", total.map(count), known(rates.span_s, figure)),
            row("per second", rate.map(|rate| known(rate, figure)), String::new()),
        ],
    )
}

pub(super) fn passes(run: &RunSummary) -> Table {
    let passes = &run.passes;
    let row = |label: &str, kind: &PassKindSummary| {
        let busy = (passes.busy_ms > 0.0).then(|| kind.busy_ms / passes.busy_ms);
        vec![
            label.to_owned(),
            count(kind.count),
            figure(kind.busy_ms / 1e3),
            known(busy, percent),
            known(kind.pass_ms_mean, figure),
            known(kind.prefill_tokens_mean, mean),
            known(kind.decode_tokens_mean, mean),
        ]
    };
    let rows = vec![
        row("prefill only", &passes.prefill_only),
        row("decode only", &passes.decode_only),
        row("mixed", &passes.mixed),
    ];
    table(
        &[
            "Passes",
            "count",
            "busy (s)",
            "share (%)",
            "mean (ms)",
            "prefill tokens",
            "decode tokens",
        ],
        rows,
    )
}

/// The first `most` engines.
pub(super) fn engines(run: &RunSummary, most: usize) -> Table {
    let pair = |mean: String, max: String| format!("{mean} / {max}");
    let level = |level: &Level<u32>| {
        pair(known(level.mean, mean), known(level.max, |max| count(max.into())))
    };
    let row = |engine: &EngineSummary| {
        let kv = &engine.kv;
        vec![
            format!("engine {}", engine.engine),
            known(engine.busy_ratio, percent),
            known(kv.capacity_blocks, |blocks| count(blocks.into())),
            level(&kv.used_blocks),
            pair(known(kv.used_ratio.mean, percent), known(kv.used_ratio.max, percent)),
            level(&engine.running),
            level(&engine.waiting),
        ]
    };
    let mut rows: Vec<_> = run.engines.iter().take(most).map(row).collect();
    if let Some(more @ 1..) = run.engines.len().checked_sub(most) {
        rows.push(vec![format!("and {more} more")]);
    }
    table(&["Mean / max", "busy (%)", "KV blocks", "used", "used (%)", "running", "waiting"], rows)
}

/// Each limit, how many met it, and what is left to it.
fn objectives(run: &RunSummary, goodput: &Goodput) -> Table {
    let row = |of: &str, objective: &Objective| {
        let slack = &objective.slack_ms;
        let met = match objective.is_met_as_a_whole() {
            Some(is_met) => (if is_met { "yes" } else { "no" }).to_owned(),
            None => known(objective.met_ratio, percent),
        };
        let name = objective.metric.trim_end_matches("_p99").trim_end_matches("_ms");
        let name = name.to_uppercase();
        let mut row = vec![shortened(&format!("{name}{of}")), figure(objective.limit_ms), met];
        let slack = [slack.p50, slack.p90, slack.p95, slack.p99, slack.p99_9, slack.max];
        row.extend(slack.map(|slack| known(slack, figure)));
        row
    };
    let mut rows: Vec<_> = goodput.objectives.iter().map(|objective| row("", objective)).collect();
    for class in run.classes.iter().take(CLASSES_MAX) {
        let objectives = class.goodput.iter().flat_map(|goodput| &goodput.objectives);
        rows.extend(objectives.map(|objective| row(&format!(" {}", class.class), objective)));
    }
    let header = ["Slack (ms)", "limit", "met (%)", "p50", "p90", "p95", "p99", "p99.9", "max"];
    table(&header, rows)
}

/// How many requests met their objectives, and which of these the others missed.
fn goodput_line(run: &RunSummary, goodput: &Goodput) -> String {
    let percent = |goodput: &Goodput| known(goodput.met_ratio.map(|ratio| ratio * 100.0), figure);
    let line = format!(
        "Goodput: {} requests/s, {} output tokens/s, {} % of requests; TTFT missed by {}, TPOT by {}, E2E by {}",
        known(goodput.requests_per_s, figure),
        known(goodput.output_tokens_per_s, figure),
        percent(goodput),
        count(goodput.missed_ttft),
        count(goodput.missed_tpot),
        count(goodput.missed_e2e)
    );
    let of_class = |class: &ClassSummary| {
        let goodput = class.goodput.as_ref()?;
        Some(format!("{} {} %", class.class, percent(goodput)))
    };
    let classes = run.classes.iter().take(CLASSES_MAX).filter_map(of_class);
    std::iter::once(line).chain(classes).collect::<Vec<_>>().join("; ")
}

/// The first `most` classes.
pub(super) fn classes(run: &RunSummary, most: usize) -> Table {
    let row = |class: &ClassSummary| {
        let figures = [&class.ttft_ms, &class.tpot_ms, &class.e2e_ms];
        let figures = figures.into_iter().flat_map(|summary| [summary.p50, summary.p99]);
        let mut row = vec![shortened(&class.class), count(class.completed)];
        row.extend(figures.map(|value| known(value, figure)));
        row
    };
    let mut rows: Vec<_> = run.classes.iter().take(most).map(row).collect();
    if let Some(more @ 1..) = run.classes.len().checked_sub(most) {
        rows.push(vec![format!("and {more} more")]);
    }
    let header = ["Class (ms)", "done", "TTFT p50", "p99", "TPOT p50", "p99", "E2E p50", "p99"];
    table(&header, rows)
}

/// A name that fits the first column.
fn shortened(name: &str) -> String {
    let width = usize::from(LABEL_WIDTH);
    if name.chars().count() <= width {
        return name.to_owned();
    }
    name.chars().take(width - 1).chain(['…']).collect()
}

/// Writes a table, line by line.
pub(crate) fn write_table(table: &Table, out: &mut dyn Write) -> io::Result<()> {
    // Trailing blanks of the last column are of no use.
    table.lines().try_for_each(|line| writeln!(out, "{}", line.trim_end()))
}

/// A table with its first column to the left and the rest to the right, on a common grid.
pub(crate) fn table(header: &[&str], rows: Vec<Vec<String>>) -> Table {
    const STYLE: TableStyle =
        TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));
    let mut table = Table::new();
    table.load_style(STYLE).set_header(header.to_vec()).add_rows(rows);
    for (at, column) in table.column_iter_mut().enumerate() {
        let width = if at == 0 { LABEL_WIDTH } else { FIGURE_WIDTH };
        column.set_padding((0, 1));
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width + 1)));
        if at > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::collector::{Metrics, MetricsOptions};
    use crate::report::sample;

    fn rendered(report: &Report) -> String {
        let mut out = Vec::new();
        write(report, Look::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// The figures follow from the run that `sample` describes, for example:
    ///
    /// - TTFT 100 and 250 ms: p90 = 100 + 0.9 * 150; ITL 50 50 50 200: p90 at rank 2.7 = 155;
    /// - TPOT 250 / 2 and 100 / 2; parts of the mean TTFT 175: queueing 50 / 2, prefill 300 / 2;
    /// - blocks (63 * 100 + 251 * 250 + 188 * 50) / 400 = 196.1 of 1000.
    const TWO_PROMPTS: &str = "\
servesim 1.2.3 | two prompts | vLLM 0.33.0, 1 engine | traces/two.jsonl
4 requests: 2 completed, 1 rejected (1 prompt_too_long), 1 unfinished, 0 excluded

Latency (ms)     mean      std      p50      p90      p95      p99    p99.9      max  samples
──────────────────────────────────────────────────────────────────────────────────────────────
TTFT           175.00    75.00   175.00   235.00   242.50   248.50   249.85   250.00        2
TPOT            87.50    37.50    87.50   117.50   121.25   124.25   124.92   125.00        2
ITL             87.50    64.95    50.00   155.00   177.50   195.50   199.55   200.00        4
E2E            350.00        0   350.00   350.00   350.00   350.00   350.00   350.00        2
Queue time      25.00    25.00    25.00    45.00    47.50    49.50    49.95    50.00        2

TTFT (ms)     frontend  queueing  prefill  chunk wait  recompute  detokenize     TTFT
──────────────────────────────────────────────────────────────────────────────────────
mean                 0     25.00   150.00           0          0           0   175.00
share (%)          0.0      14.3     85.7         0.0        0.0         0.0    100.0
p99                  0     49.50   199.00           0          0           0   248.50

Throughput    requests  input tokens  output tokens  all tokens  span (s)
──────────────────────────────────────────────────────────────────────────
total                2         4,000              6       4,006     0.400
per second       5.000        10,000          15.00      10,015

Passes          count  busy (s)  share (%)  mean (ms)  prefill tokens  decode tokens
─────────────────────────────────────────────────────────────────────────────────────
prefill only        1     0.100       25.0     100.00         1,000.0            0.0
decode only         2     0.100       25.0      50.00             0.0            1.5
mixed               1     0.200       50.0     200.00         2,000.0            1.0

Mean / max    busy (%)  KV blocks         used     used (%)  running  waiting
──────────────────────────────────────────────────────────────────────────────
engine 0         100.0      1,000  196.1 / 251  19.6 / 25.1  1.6 / 2  0.8 / 1

Prefix cache hits: 25.0 % of 4,000 prompt tokens; preemptions: none
Timing: fixed (analytic 100 %, exact < 1 %); mixed passes: sum of the two parts
Warning: 1 request rejected (1 prompt_too_long); see `engine.vllm.max_model_len`
Warning: no latency includes the 1 request that never finished; see `engine.vllm.num_gpu_blocks`
";

    #[test]
    fn a_small_run_fits_a_terminal() {
        let text = rendered(&sample::report());
        assert_eq!(text, TWO_PROMPTS);
        assert!(text.lines().count() <= 42);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH_MAX));
    }

    #[test]
    fn hours_of_queueing_cost_a_column_and_not_a_line() {
        let mut report = sample::report();
        let e2e = &mut report.run.latency.e2e_ms;
        for figure in [&mut e2e.mean, &mut e2e.std, &mut e2e.p50, &mut e2e.p90, &mut e2e.p95] {
            *figure = Some(1_234_567.8);
        }
        (e2e.p99, e2e.p99_9, e2e.max) = (e2e.mean, e2e.mean, e2e.mean);
        let text = rendered(&report);
        assert!(!text.contains("p99.9") && text.contains("std"));
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH_MAX));
    }

    #[test]
    fn what_is_left_out_says_why() {
        let mut measured = Measured::default();
        assert_eq!(exclusion(&measured), "");
        measured.warmup_requests = Some(100);
        assert_eq!(exclusion(&measured), " (warm-up of 100 requests)");
        measured =
            Measured { warmup_ms: Some(5e3), window_from_ms: Some(6e4), ..Measured::default() };
        let expected = " (warm-up of 5.000 s, window from 60.00 s to the end)";
        assert_eq!(exclusion(&measured), expected);
    }

    #[test]
    fn many_engines_share_a_line() {
        let mut report = sample::report();
        report.run.engines = vec![report.run.engines[0]; 11];
        let text = rendered(&report);
        assert_eq!(text.matches("engine 0 ").count(), 8);
        assert!(text.contains("\nand 3 more\n"));
    }

    #[test]
    fn a_run_of_nothing_knows_nothing() {
        let mut report = sample::report();
        report.run = Metrics::new(MetricsOptions::default()).finish();
        let text = rendered(&report);
        assert!(text.contains("\n0 requests: 0 completed, 0 rejected, 0 unfinished, 0 excluded\n"));
        assert!(text.contains("\nTTFT                -        -"));
        assert!(text.contains("Prefix cache hits: -; preemptions: none"));
    }
}
