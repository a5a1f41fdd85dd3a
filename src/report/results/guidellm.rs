//! What GuideLLM writes as JSON: benchmarks, each with the statistics of its successful requests.

use serde_json::Value;

use super::fields::{Node, ResultsError};
use super::model::{Measure, Percent, Quantity, Results, Rule, Statistic};

/// Its metrics that are distributions, and what makes milliseconds of them.
const LATENCIES: [(&str, Quantity, f64); 4] = [
    ("time_to_first_token_ms", Quantity::Ttft, 1.0),
    ("inter_token_latency_ms", Quantity::TpotWeighted, 1.0),
    ("time_per_output_token_ms", Quantity::TpotWithFirst, 1.0),
    ("request_latency", Quantity::E2e, 1e3),
];

/// Its metrics of which the mean is the figure.
const RATES: [(&str, Quantity); 4] = [
    ("requests_per_second", Quantity::RequestsPerSecond),
    ("prompt_tokens_per_second", Quantity::InputTokensPerSecond),
    ("output_tokens_per_second", Quantity::OutputTokensPerSecond),
    ("tokens_per_second", Quantity::TotalTokensPerSecond),
];

/// Its names of percentiles: `p001` is the 0.1th, `p999` the 99.9th.
const PERCENTILES: [(&str, f64); 11] = [
    ("p001", 0.1),
    ("p01", 1.0),
    ("p05", 5.0),
    ("p10", 10.0),
    ("p25", 25.0),
    ("p50", 50.0),
    ("p75", 75.0),
    ("p90", 90.0),
    ("p95", 95.0),
    ("p99", 99.0),
    ("p999", 99.9),
];

/// Whether a document is one.
pub(super) fn is_one(value: &Value) -> bool {
    value.get("benchmarks").is_some_and(Value::is_array)
}

/// Reads a benchmark: the one of this number, from 1, or the only one.
pub(super) fn read(
    name: String,
    node: Node<'_>,
    number: Option<usize>,
) -> Result<Results, ResultsError> {
    let benchmarks = node.list("benchmarks")?.unwrap_or_default().len();
    let at = match number {
        Some(number) if (1..=benchmarks).contains(&number) => number - 1,
        None if benchmarks == 1 => 0,
        _ => {
            let found = format!("a list of {benchmarks}");
            let accepted = "one, or its number behind the path (FILE#1)";
            return Err(node.error("benchmarks", &found, accepted));
        }
    };
    let metrics = format!("benchmarks.{at}.metrics");
    let of = |metric: &str| format!("{metrics}.{metric}.successful");
    let mut found = Vec::new();
    for (metric, quantity, factor) in LATENCIES {
        let base = of(metric);
        if node.get(&base).is_none() || node.figure(&format!("{base}.count"))? == Some(0.0) {
            continue;
        }
        found.push(Measure {
            quantity,
            field: metric.to_owned(),
            rule: Rule::NearestRank,
            figures: summary(&base, factor, node)?,
            distribution: None,
        });
    }
    if found.is_empty() {
        let field = of("request_latency");
        return Err(node.error(&field, "empty or missing", "at least one completed request"));
    }
    // Weighted by n - 1, the mean over requests is that over all gaps between tokens.
    let gaps = found.iter().find(|measure| measure.quantity == Quantity::TpotWeighted).cloned();
    found.extend(gaps.map(|mut gaps| {
        gaps.quantity = Quantity::Itl;
        gaps.figures.retain(|(statistic, _)| *statistic == Statistic::Mean);
        gaps
    }));
    for (metric, quantity) in RATES {
        let value = node.figure(&format!("{}.mean", of(metric)))?;
        found.extend(value.map(|value| Measure::value(quantity, metric, value)));
    }
    for (metric, quantity) in [
        ("prompt_token_count", Quantity::InputTokens),
        ("output_token_count", Quantity::OutputTokens),
    ] {
        let value = node.figure(&format!("{}.total_sum", of(metric)))?;
        found.extend(value.map(|value| Measure::value(quantity, metric, value)));
    }
    let counts = [
        (of("request_latency") + ".count", Quantity::Completed),
        (format!("{metrics}.request_latency.errored.count"), Quantity::Failed),
    ];
    for (field, quantity) in counts {
        let value = node.figure(&field)?;
        found.extend(value.map(|value| Measure::value(quantity, "request_latency", value)));
    }
    Ok(Results {
        name,
        title: format!("GuideLLM | benchmark {} of {benchmarks}", at + 1),
        counted: "those that succeeded, in its window without warm-up and cool-down",
        clock: "a request's clock starts when it is sent; rates are weighted by time over its window",
        measures: found,
        report: None,
    })
}

fn summary(base: &str, factor: f64, node: Node<'_>) -> Result<Vec<(Statistic, f64)>, ResultsError> {
    let mut figures = vec![(Statistic::Mean, node.needed(&format!("{base}.mean"))? * factor)];
    let std = node.figure(&format!("{base}.std_dev"))?;
    figures.extend(std.map(|value| (Statistic::Std, value * factor)));
    for (field, percent) in PERCENTILES {
        let value = node.figure(&format!("{base}.percentiles.{field}"))?;
        let statistic = Statistic::Percentile(Percent::of(percent));
        figures.extend(value.map(|value| (statistic, value * factor)));
    }
    Ok(figures)
}
