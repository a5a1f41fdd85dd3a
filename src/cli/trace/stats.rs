//! `servesim trace stats`: what a trace is like, for people, programs and browsers.

use std::io::{self, Write};
use std::path::Path;

use serde_json::json;

use super::super::Outcome;
use super::super::args::{Format, StatsArgs};
use super::super::error::CliError;
use super::input;
use crate::base::output::ResultFile;
use crate::report::format::{count, figure, known};
use crate::report::page::FigureTable;
use crate::report::trace_page::{Bin, TracePage};
use crate::workload::source::{RequestSource, SourceDescription};
use crate::workload::stats::{
    CacheHits, LengthBin, Lengths, Pauses, StatsCollector, WorkloadStats,
};

/// Rows that time has in the table.
const TIME_ROWS: usize = 10;

/// Prints the statistics of a trace, and writes their page.
pub(super) fn stats(args: &StatsArgs) -> Result<Outcome, CliError> {
    let (config, mut source) = input::open(&args.input, &args.part, args.seed)?;
    // Opened before the trace is read.
    let page = args.html.as_deref().map(|path| ResultFile::create(path, false)).transpose()?;
    let usual = source.describe().hash_block_tokens.unwrap_or(16);
    let mut collector = StatsCollector::new(args.block_tokens.unwrap_or(usual), &args.cache_tokens);
    while source.next_arrival()?.is_some() {
        collector.add(&source.take());
    }
    let (stats, described) = (collector.finish(), source.describe());
    let text = TraceText { stats: &stats, described: &described };
    if let Some(file) = page {
        let page = text.page(&args.input.trace);
        file.put(|out| page.write(out))?;
        if args.html.as_deref() == Some(Path::new("-")) {
            return Ok(Outcome::Done);
        }
    }
    let mut out = io::stdout().lock();
    match args.format {
        Format::Json => {
            let value = json!({
                "schema": "servesim.trace_stats/1",
                "trace": config.path,
                "reader": described,
                "rows": source.counts(),
                "reshape": source.changes(),
                "stats": stats,
            });
            writeln!(out, "{value:#}")?;
        }
        Format::Table => text.print(&mut out)?,
    }
    Ok(Outcome::Done)
}

/// The statistics in words.
struct TraceText<'a> {
    stats: &'a WorkloadStats,
    described: &'a SourceDescription,
}

impl TraceText<'_> {
    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let pairs = |section: Vec<(String, String)>, out: &mut dyn Write| {
            section.iter().try_for_each(|(what, value)| writeln!(out, "{what:<24}{value}"))
        };
        pairs(self.reader(), out)?;
        pairs(self.load(), out)?;
        writeln!(out)?;
        print_columns(&self.lengths(), out)?;
        writeln!(out)?;
        pairs(self.sharing(), out)?;
        for table in [self.sessions(), self.caches(), self.over_time(), self.magnitudes()] {
            if !table.rows.is_empty() {
                writeln!(out)?;
                print_columns(&table, out)?;
            }
        }
        Ok(())
    }

    fn page(&self, trace: &Path) -> TracePage {
        let stats = self.stats;
        let pairs = |title: &str, rows: Vec<(String, String)>| FigureTable {
            title: title.to_owned(),
            header: Vec::new(),
            rows: rows.into_iter().map(|(what, value)| vec![what, value]).collect(),
        };
        let bins = |lengths: Option<&Lengths>| {
            lengths.map_or(Vec::new(), |lengths| lengths.histogram.iter().map(bin).collect())
        };
        let ratio = |cache: &CacheHits| Some((cache.cache_tokens, cache.hit_ratio?));
        TracePage {
            name: trace.display().to_string(),
            headline: self.headline(),
            from_s: stats.timeline.from_s,
            bin_s: stats.timeline.bin_s,
            arrivals: stats.timeline.arrivals.clone(),
            working_set_tokens: stats.timeline.working_set_tokens.clone(),
            prompt_lengths: bins(stats.prompt_tokens.as_ref()),
            output_lengths: bins(stats.output_tokens.as_ref()),
            hit_ratios: stats.prefix.curve.iter().filter_map(ratio).collect(),
            ideal_hit_ratio: stats.prefix.ideal_hit_ratio,
            tables: vec![
                self.lengths(),
                pairs("Load", self.load()),
                pairs("Prompts in common", self.sharing()),
                self.sessions(),
                self.caches(),
                pairs("How it was read", self.reader()),
            ],
        }
    }

    /// What a page says first.
    fn headline(&self) -> Vec<(String, String)> {
        let stats = self.stats;
        let mean = |lengths: &Option<Lengths>| {
            known(lengths.as_ref(), |lengths| count(lengths.mean.round() as u64))
        };
        let text = |(what, value): (&str, String)| (what.to_owned(), value);
        [
            ("requests", count(stats.requests)),
            ("span", format!("{} s", figure(stats.span_s))),
            ("requests per s", known(stats.requests_per_s, figure)),
            ("mean prompt, tokens", mean(&stats.prompt_tokens)),
            ("mean output, tokens", mean(&stats.output_tokens)),
            ("shared prefixes", with_unit(percent(stats.prefix.ideal_hit_ratio), "%")),
        ]
        .map(text)
        .into()
    }

    /// How the trace was read.
    fn reader(&self) -> Vec<(String, String)> {
        let described = self.described;
        let value = json!(described);
        let text = |field: &str| value[field].as_str().unwrap_or("-").to_owned();
        let mut rows = vec![
            ("format", text("format")),
            ("time unit", described.time_unit.to_owned()),
            ("origin", text("origin")),
        ];
        if let Some(tokens) = described.hash_block_tokens {
            rows.push(("tokens of a hash id", tokens.to_string()));
        }
        rows.push(("order of ties", text("ties")));
        if !described.ignored_fields.is_empty() {
            rows.push(("not used", described.ignored_fields.join(", ")));
        }
        if described.sessions_ignored {
            rows.push(("sessions", "not followed: rows arrive by their stamps".to_owned()));
        }
        owned(rows)
    }

    fn load(&self) -> Vec<(String, String)> {
        let stats = self.stats;
        let mut rows = vec![
            ("requests", stats.requests.to_string()),
            ("span (s)", format!("{:.3}", stats.span_s)),
            ("requests per s", decimals(stats.requests_per_s, 3)),
            ("CV of intervals", decimals(stats.interarrival_cv, 2)),
            ("lag-1 correlation", decimals(stats.interarrival_lag1, 2)),
        ];
        if let Some(sessions) = &stats.sessions {
            rows.push(("sessions", sessions.sessions.to_string()));
            rows.push(("of one turn (%)", percent(Some(sessions.one_turn_ratio))));
            rows.push(("turns that follow", sessions.followers.to_string()));
        }
        owned(rows)
    }

    fn sharing(&self) -> Vec<(String, String)> {
        let prefix = &self.stats.prefix;
        let mut rows = vec![
            ("shared prefixes (%)", percent(prefix.ideal_hit_ratio)),
            ("working set (tokens)", prefix.working_set_tokens.to_string()),
        ];
        let asked_for = prefix.caches.iter().map(|cache| {
            let (hits, tokens) = (percent(cache.hit_ratio), cache.cache_tokens);
            (
                "hits (%)",
                format!("{hits} with {tokens} tokens in blocks of {}", prefix.block_tokens),
            )
        });
        rows.extend(asked_for);
        owned(rows)
    }

    fn lengths(&self) -> FigureTable {
        let stats = self.stats;
        let of = |(name, lengths): (&str, &Option<Lengths>)| {
            let Lengths { mean, min, p50, p90, p95, p99, max, .. } = lengths.as_ref()?;
            let mut row = vec![name.to_owned(), format!("{mean:.1}"), min.to_string()];
            row.extend([p50, p90, p95, p99].map(|value| format!("{value:.0}")));
            row.push(max.to_string());
            Some(row)
        };
        let rows = [("prompt", &stats.prompt_tokens), ("output", &stats.output_tokens)];
        FigureTable {
            title: "Lengths".to_owned(),
            header: header(&["tokens", "mean", "min", "p50", "p90", "p95", "p99", "max"]),
            rows: rows.into_iter().filter_map(of).collect(),
        }
    }

    /// Sessions and their pauses; no rows where there are none.
    fn sessions(&self) -> FigureTable {
        let mut rows = Vec::new();
        if let Some(sessions) = &self.stats.sessions {
            let Lengths { mean, min, p50, p90, p95, p99, max, .. } = &sessions.turns;
            let mut row = vec!["turns".to_owned(), format!("{mean:.1}"), min.to_string()];
            row.extend([p50, p90, p95, p99].map(|value| format!("{value:.0}")));
            row.push(max.to_string());
            rows.push(row);
            if let Some(Pauses { mean, min, p50, p90, p95, p99, max }) = sessions.pause_s {
                let figures = [mean, min, p50, p90, p95, p99, max];
                let figures = figures.map(|value| format!("{value:.1}"));
                rows.push(["pause (s)".to_owned()].into_iter().chain(figures).collect());
            }
        }
        FigureTable {
            title: "Sessions".to_owned(),
            header: header(&["sessions", "mean", "min", "p50", "p90", "p95", "p99", "max"]),
            rows,
        }
    }

    fn caches(&self) -> FigureTable {
        let known = self.stats.prefix.curve.iter().filter(|cache| cache.hit_ratio.is_some());
        FigureTable {
            title: format!("Caches in blocks of {} tokens", self.stats.prefix.block_tokens),
            header: header(&["cache (tokens)", "hits (%)"]),
            rows: known
                .map(|cache| vec![cache.cache_tokens.to_string(), percent(cache.hit_ratio)])
                .collect(),
        }
    }

    /// The timeline in few rows.
    fn over_time(&self) -> FigureTable {
        let timeline = &self.stats.timeline;
        let bins = timeline.arrivals.len().div_ceil(TIME_ROWS).max(1);
        let chunks = timeline.arrivals.chunks(bins).zip(timeline.working_set_tokens.chunks(bins));
        let rows = chunks.enumerate().map(|(number, (arrivals, working_set))| {
            let from_s = timeline.from_s + timeline.bin_s * (number * bins) as f64;
            vec![
                figure(from_s),
                arrivals.iter().sum::<u64>().to_string(),
                working_set.last().expect("a chunk has one").to_string(),
            ]
        });
        FigureTable {
            title: "Over time".to_owned(),
            header: header(&["from (s)", "requests", "working set (tokens)"]),
            rows: rows.collect(),
        }
    }

    /// Lengths by powers of two.
    fn magnitudes(&self) -> FigureTable {
        let bins = |lengths: &Option<Lengths>| {
            lengths.as_ref().map_or(Vec::new(), |lengths| lengths.histogram.clone())
        };
        let (prompts, outputs) = (bins(&self.stats.prompt_tokens), bins(&self.stats.output_tokens));
        let mut magnitudes: Vec<_> =
            prompts.iter().chain(&outputs).map(|bin| (bin.from, bin.to)).collect();
        magnitudes.sort_unstable();
        magnitudes.dedup();
        let of = |bins: &[LengthBin], from: u64| {
            let found = bins.iter().find(|bin| bin.from == from);
            found.map_or(0, |bin| bin.requests).to_string()
        };
        let rows = magnitudes.into_iter().map(|(from, to)| {
            vec![format!("{from} to {}", to - 1), of(&prompts, from), of(&outputs, from)]
        });
        FigureTable {
            title: "Lengths by magnitude".to_owned(),
            header: header(&["tokens", "prompts", "outputs"]),
            rows: rows.collect(),
        }
    }
}

fn bin(bin: &LengthBin) -> Bin {
    Bin { from: bin.from, to: bin.to, requests: bin.requests }
}

/// A table as columns of a terminal.
fn print_columns(table: &FigureTable, out: &mut dyn Write) -> io::Result<()> {
    let all = || std::iter::once(&table.header).chain(&table.rows);
    let columns = table.header.len();
    let width = |column: usize| all().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns).map(|column| width(column).max(6)).collect();
    for row in all() {
        let first = widths[0].max(22);
        write!(out, "{:<first$}", row[0])?;
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            write!(out, "  {cell:>width$}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn header(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn owned(rows: Vec<(&str, String)>) -> Vec<(String, String)> {
    rows.into_iter().map(|(what, value)| (what.to_owned(), value)).collect()
}

fn decimals(value: Option<f64>, decimals: usize) -> String {
    known(value, |value| format!("{value:.decimals$}"))
}

fn percent(ratio: Option<f64>) -> String {
    decimals(ratio.map(|ratio| ratio * 100.0), 2)
}

fn with_unit(value: String, unit: &str) -> String {
    if value == "-" { value } else { format!("{value} {unit}") }
}
