//! servesim's own report.

use serde::Deserialize;

use crate::metrics::samples::{Curve, Method, Summary};
use crate::metrics::summary::RunSummary;
use crate::report::Report;

use super::distribution::Distribution;
use super::fields::{Node, ResultsError};
use super::model::{Measure, Percent, Quantity, Results, Rule, Statistic};

/// Reads it from its JSON.
pub(super) fn read(name: String, node: Node<'_>) -> Result<Results, ResultsError> {
    const ACCEPTED: &str = "what servesim.report/2 has there";
    let report: Report = Report::deserialize(node.value).map_err(|error| {
        // The figures of the run are part of the whole, which hides their places.
        let of_run = serde_path_to_error::deserialize::<_, RunSummary>(node.value).err();
        let field = of_run.as_ref().map(|error| error.path().to_string());
        let found = of_run.as_ref().map_or_else(|| error.to_string(), |e| e.inner().to_string());
        match field.filter(|field| field != ".") {
            Some(field) => node.error(&field, &found, ACCEPTED),
            None => ResultsError::Unknown { path: node.path.to_owned(), found, accepted: ACCEPTED },
        }
    })?;
    if report.run.requests.completed == 0 {
        return Err(node.error("requests.completed", "0", "at least one completed request"));
    }
    Ok(Results::of(name, report))
}

impl Results {
    /// A report as results.
    pub(crate) fn of(name: String, report: Report) -> Self {
        let title = &report.title;
        Self {
            name,
            title: format!("servesim | {} | {}", title.engine, title.workload),
            counted: "those completed, without a warm-up and in the window if there are such",
            clock: "a request's clock starts when it arrives; rates are from the first arrival to the last token",
            measures: measures(&report.run),
            report: Some(Box::new(report)),
        }
    }
}

fn measures(run: &RunSummary) -> Vec<Measure> {
    let (latency, curves) = (&run.latency, &run.curves);
    let parts = [
        (Quantity::Ttft, "latency.ttft_ms", &latency.ttft_ms, &curves.ttft_ms),
        (Quantity::Tpot, "latency.tpot_ms", &latency.tpot_ms, &curves.tpot_ms),
        (Quantity::Itl, "latency.itl_ms", &latency.itl_ms, &curves.itl_ms),
        (
            Quantity::EmissionGap,
            "latency.emission_gap_ms",
            &latency.emission_gap_ms,
            &curves.emission_gap_ms,
        ),
        (Quantity::E2e, "latency.e2e_ms", &latency.e2e_ms, &curves.e2e_ms),
        (Quantity::Queue, "latency.queue_ms", &latency.queue_ms, &curves.queue_ms),
    ];
    let latencies = parts
        .into_iter()
        .filter_map(|(quantity, field, of, curve)| summary(quantity, field, of, curve, run));
    let mut found: Vec<Measure> = latencies.collect();
    let rates = &run.throughput;
    let speculation = run.speculation.as_ref();
    let values = [
        (Quantity::RequestsPerSecond, "throughput.requests_per_s", rates.requests_per_s),
        (Quantity::InputTokensPerSecond, "throughput.input_tokens_per_s", rates.input_tokens_per_s),
        (
            Quantity::OutputTokensPerSecond,
            "throughput.output_tokens_per_s",
            rates.output_tokens_per_s,
        ),
        (Quantity::TotalTokensPerSecond, "throughput.total_tokens_per_s", rates.total_tokens_per_s),
        (Quantity::Span, "throughput.span_s", rates.span_s),
        (
            Quantity::MetRatio,
            "goodput.met_ratio",
            run.goodput.as_ref().and_then(|goodput| goodput.met_ratio),
        ),
        (Quantity::HitRatio, "prefix_cache.hit_ratio", run.prefix_cache.hit_ratio),
        (
            Quantity::TokensPerRound,
            "speculation.tokens_per_round_mean",
            speculation.and_then(|speculation| speculation.tokens_per_round_mean),
        ),
        (Quantity::Completed, "requests.completed", Some(run.requests.completed as f64)),
        (
            Quantity::Failed,
            "requests.rejected, requests.unfinished",
            Some((run.requests.rejected.total + run.requests.unfinished) as f64),
        ),
        (Quantity::InputTokens, "tokens.prompt", Some(run.tokens.prompt as f64)),
        (Quantity::OutputTokens, "tokens.output", Some(run.tokens.output as f64)),
        (Quantity::Preemptions, "preemptions.total", Some(run.preemptions.total as f64)),
    ];
    found.extend(
        values
            .into_iter()
            .filter_map(|(quantity, field, value)| Some(Measure::value(quantity, field, value?))),
    );
    found
}

fn summary(
    quantity: Quantity,
    field: &str,
    of: &Summary,
    curve: &Curve,
    run: &RunSummary,
) -> Option<Measure> {
    let percentiles =
        [of.p1, of.p5, of.p10, of.p25, of.p50, of.p75, of.p90, of.p95, of.p99, of.p99_9];
    let named = [(Statistic::Mean, of.mean), (Statistic::Std, of.std)].into_iter();
    let percentiles = Percent::USUAL.map(Statistic::Percentile).into_iter().zip(percentiles);
    let figures: Vec<_> = named
        .chain(percentiles)
        .filter_map(|(statistic, value)| Some((statistic, value?)))
        .collect();
    let shares = run.curves.percents.iter().map(|percent| percent / 100.0);
    let is_whole = curve.0.len() == run.curves.percents.len();
    let points = if is_whole { shares.zip(curve.0.iter().copied()).collect() } else { Vec::new() };
    (!figures.is_empty()).then(|| Measure {
        quantity,
        field: field.to_owned(),
        rule: match of.method {
            Method::Exact => Rule::Linear,
            Method::Hdr => Rule::Histogram,
        },
        figures,
        distribution: Distribution::points(points),
    })
}
