//! The figures of the report: the headline, its tables, what was run, and what the prices rest on.

use serde_json::Value;

use crate::report::Report;
use crate::report::format::{UNKNOWN, count, figure, known, percent};
use crate::report::page::{Block, FigureTable};
use crate::report::table;

use super::pretty;

/// Milliseconds from which on the headline says seconds.
const SECONDS_FROM_MS: f64 = 10_000.0;

/// The figures that matter most.
pub(super) fn headline(report: &Report) -> Vec<(String, String)> {
    let run = &report.run;
    let (rates, latency, requests) = (&run.throughput, &run.latency, &run.requests);
    let unit = |value: String, unit: &str| {
        if value == UNKNOWN { value } else { format!("{value} {unit}") }
    };
    let ms = |value: Option<f64>| match value {
        Some(ms) if ms >= SECONDS_FROM_MS => format!("{} s", figure(ms / 1e3)),
        _ => unit(known(value, figure), "ms"),
    };
    let share = |value: Option<f64>| unit(known(value, percent), "%");
    let kv = run.engines.iter().filter_map(|engine| engine.kv.used_ratio.max);
    let kv = kv.fold(None, |most: Option<f64>, ratio| Some(most.map_or(ratio, |m| m.max(ratio))));
    let mut tiles = vec![
        ("requests/s", known(rates.requests_per_s, figure)),
        ("output tokens/s", known(rates.output_tokens_per_s, figure)),
    ];
    if let Some(goodput) = &run.goodput {
        let met = share(goodput.met_ratio);
        tiles.push(("good requests/s", known(goodput.requests_per_s, figure)));
        tiles.push(("met their objectives", met));
    }
    tiles.extend([
        ("TTFT p50", ms(latency.ttft_ms.p50)),
        ("TTFT p99", ms(latency.ttft_ms.p99)),
        ("TPOT p50", ms(latency.tpot_ms.p50)),
        ("TPOT p99", ms(latency.tpot_ms.p99)),
        ("E2E p99", ms(latency.e2e_ms.p99)),
        ("busy", share(run.passes.busy_ratio)),
        ("KV held at most", share(kv)),
        ("prefix cache hits", share(run.prefix_cache.hit_ratio)),
        ("preemptions", count(run.preemptions.total)),
        ("completed", count(requests.completed)),
        ("rejected", count(requests.rejected.total)),
        ("unfinished", count(requests.unfinished)),
    ]);
    if requests.excluded > 0 {
        tiles.push(("left out (warm-up, window)", count(requests.excluded)));
    }
    tiles.into_iter().map(|(what, value)| (what.to_owned(), value)).collect()
}

/// Tables and listings of what was run.
pub(super) fn blocks(report: &Report) -> Vec<Block> {
    let run = &report.run;
    let mut blocks =
        vec![Block::Table(FigureTable::of(&table::throughput(run))), Block::Table(timing(report))];
    let evidence = evidence(&report.timing.evidence);
    if !evidence.rows.is_empty() {
        blocks.push(Block::Table(evidence));
    }
    for (title, value) in
        [("The resolved scenario", &report.scenario), ("The workload", &report.workload)]
    {
        blocks.push(Block::Listing { title: title.to_owned(), text: pretty(value) });
    }
    blocks
}

fn timing(report: &Report) -> FigureTable {
    let timing = &report.timing;
    let pair = |what: &str, value: String| vec![what.to_owned(), value];
    let mut rows = vec![
        pair("provider", timing.provider.clone()),
        pair("mixed passes", timing.mixed_rule.clone()),
    ];
    for (origin, share) in timing.evidence["shares"].as_object().into_iter().flatten() {
        let share = known(share.as_f64(), percent);
        rows.push(pair(&format!("{origin}, of the priced time"), format!("{share} %")));
    }
    FigureTable { title: "How passes were priced".to_owned(), header: Vec::new(), rows }
}

/// Every answer's origin: by kind of pass and part of it.
fn evidence(evidence: &Value) -> FigureTable {
    let mut rows = Vec::new();
    let entries = |value: &Value| value.as_object().cloned().unwrap_or_default();
    for (kind, parts) in entries(evidence) {
        if kind == "shares" {
            continue;
        }
        for (part, origins) in entries(&parts) {
            for (origin, answers) in entries(&origins) {
                rows.push(vec![
                    kind.replace('_', " "),
                    part.replace('_', " "),
                    origin.clone(),
                    known(answers["count"].as_u64(), count),
                    known(answers["ms"].as_f64(), figure),
                ]);
            }
        }
    }
    let header = ["passes", "part", "origin", "answers", "time (ms)"];
    FigureTable {
        title: "What the prices rest on".to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows,
    }
}
