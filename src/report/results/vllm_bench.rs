//! What `vllm bench serve --save-result` writes, with the samples of `--save-detailed`.

use serde_json::Value;

use super::distribution::Distribution;
use super::each::{Names, Request, measures};
use super::fields::{Node, ResultsError};
use super::model::{Measure, Percent, Quantity, Results, Rule, Statistic};

/// Its names of the latencies, which stand between a statistic and `_ms`.
const LATENCIES: [(&str, Quantity); 4] = [
    ("ttft", Quantity::Ttft),
    ("tpot", Quantity::Tpot),
    // A sample for each chunk, of however many tokens.
    ("itl", Quantity::EmissionGap),
    ("e2el", Quantity::E2e),
];

const VALUES: [(&str, Quantity); 8] = [
    ("duration", Quantity::Span),
    ("completed", Quantity::Completed),
    ("failed", Quantity::Failed),
    ("total_input_tokens", Quantity::InputTokens),
    ("total_output_tokens", Quantity::OutputTokens),
    ("request_throughput", Quantity::RequestsPerSecond),
    ("output_throughput", Quantity::OutputTokensPerSecond),
    ("total_token_throughput", Quantity::TotalTokensPerSecond),
];

/// What its samples are called.
const NAMES: Names = Names { ttft: "ttfts", tpot: "ttfts, itls", e2e: "ttfts, itls", queue: "" };

/// Whether a document is one.
pub(super) fn is_one(value: &Value) -> bool {
    ["mean_ttft_ms", "request_throughput", "total_token_throughput"]
        .iter()
        .any(|name| value.get(name).is_some_and(|value| !value.is_object()))
}

/// Reads it.
pub(super) fn read(name: String, node: Node<'_>) -> Result<Results, ResultsError> {
    if node.get("mean_e2e_latency_ms").is_some() {
        return Err(node.error(
            "mean_e2e_latency_ms",
            "a name of sglang.bench_serving",
            "a result of vllm bench serve",
        ));
    }
    node.some_requests("completed")?;
    node.needed("duration")?;
    let mut found = Vec::new();
    for (latency, quantity) in LATENCIES {
        found.extend(summary(latency, quantity, node)?);
    }
    for sampled in samples(node)? {
        match found.iter_mut().find(|measure| measure.quantity == sampled.quantity) {
            Some(measure) => measure.distribution = sampled.distribution,
            None => found.push(sampled),
        }
    }
    if found.is_empty() {
        return Err(node.error("mean_ttft_ms", "missing", "the figures of one latency at least"));
    }
    for (field, quantity) in VALUES {
        found.extend(node.figure(field)?.map(|value| Measure::value(quantity, field, value)));
    }
    let goodput = "request_goodput";
    found.extend(
        node.figure(goodput)?.map(|value| Measure::value(Quantity::MetPerSecond, goodput, value)),
    );
    let model = node.get("model_id").and_then(Value::as_str).map(|id| format!(" | {id}"));
    Ok(Results {
        name,
        title: format!("vllm bench serve{}", model.unwrap_or_default()),
        counted: "those that succeeded",
        clock: if node.get("max_concurrency").is_some() {
            "a request's clock starts when max_concurrency lets it go; rates are over the benchmark's duration"
        } else {
            "a request's clock starts when it is sent; rates are over the benchmark's duration"
        },
        measures: found,
        report: None,
    })
}

/// The figures of a latency; `None` where the file has none.
fn summary(
    latency: &str,
    quantity: Quantity,
    node: Node<'_>,
) -> Result<Option<Measure>, ResultsError> {
    let suffix = format!("_{latency}_ms");
    let mut figures: Vec<(Statistic, f64)> = Vec::new();
    for (field, _) in node.value.as_object().into_iter().flatten() {
        let Some(statistic) = field.strip_suffix(&suffix) else { continue };
        let statistic = match statistic {
            "mean" => Statistic::Mean,
            "std" => Statistic::Std,
            "median" => Statistic::Percentile(Percent::MEDIAN),
            other => {
                let percent = other.strip_prefix('p').and_then(Percent::parse);
                let Some(percent) = percent else { continue };
                Statistic::Percentile(percent)
            }
        };
        if figures.iter().all(|(known, _)| *known != statistic) {
            figures.extend(node.figure(field)?.map(|value| (statistic, value)));
        }
    }
    figures.sort_by_key(|figure| figure.0);
    Ok((!figures.is_empty()).then(|| Measure {
        quantity,
        field: format!("*{suffix}"),
        rule: Rule::Linear,
        figures,
        distribution: None,
    }))
}

/// What the samples tell, where they were saved.
///
/// As in vLLM's `calculate_metrics`, a request that failed counts nowhere; it has an error, or no output.
fn samples(node: Node<'_>) -> Result<Vec<Measure>, ResultsError> {
    let Some(ttfts) = node.list("ttfts")? else { return Ok(Vec::new()) };
    let ttfts = node.figures("ttfts", ttfts)?;
    let same = |field: &str| -> Result<Option<&[Value]>, ResultsError> {
        let list = node.list(field)?;
        match list.filter(|list| list.len() != ttfts.len()) {
            Some(list) => {
                let found = format!("a list of {}", list.len());
                Err(node.error(field, &found, "a list as long as `ttfts`"))
            }
            None => Ok(list),
        }
    };
    let (gaps, errors) = (same("itls")?, same("errors")?);
    let lengths = same("output_lens")?.map(|list| node.figures("output_lens", list)).transpose()?;
    let mut requests = Vec::with_capacity(ttfts.len());
    let mut emissions = Vec::new();
    for (at, ttft) in ttfts.iter().enumerate() {
        let failed = |errors: &[Value]| errors[at].as_str().is_some_and(|error| !error.is_empty());
        let length = lengths.as_ref().map(|lengths| lengths[at] as u64);
        if errors.is_some_and(failed) || length == Some(0) {
            continue;
        }
        let mut request =
            Request { ttft: Some(ttft * 1e3), output_tokens: length, ..Request::default() };
        if gaps.is_some() {
            let field = format!("itls.{at}");
            let list = node.list(&field)?.unwrap_or_default();
            let gaps = node.figures(&field, list)?;
            // The last chunk ends both.
            request.e2e = Some((ttft + gaps.iter().sum::<f64>()) * 1e3);
            emissions.extend(gaps.iter().map(|gap| (gap * 1e3, 1)));
        }
        requests.push(request);
    }
    let mut found = measures(&requests, NAMES);
    found.extend(
        Distribution::samples(emissions)
            .map(|gaps| Measure::of(Quantity::EmissionGap, "itls", Rule::Linear, gaps)),
    );
    Ok(found)
}
