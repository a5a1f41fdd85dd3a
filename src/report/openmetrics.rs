//! The end of a run as `OpenMetrics` text, for tools that read what servers export.
//!
//! Names end in their unit, which is seconds for times, as the format has it; latencies are summaries.

use std::fmt::{Display, Write as _};
use std::io::{self, Write};

use crate::base::output::{OutputError, ResultFile};
use crate::metrics::samples::Summary;
use crate::metrics::summary::RunSummary;

use super::Report;
use super::sink::Sink;

/// `--openmetrics`.
pub(crate) struct OpenMetricsSink(pub(crate) ResultFile);

impl Sink for OpenMetricsSink {
    fn finish(mut self: Box<Self>, report: &Report) -> Result<Vec<ResultFile>, OutputError> {
        self.0.fill(|out| write(report, out))?;
        Ok(vec![self.0])
    }
}

/// Writes the text and its closing line.
fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let mut text = Text::default();
    let run = &report.run;
    text.family("servesim_run", "info", "What was simulated.");
    let title = &report.title;
    let labels = [
        ("version", report.servesim_version.as_str()),
        ("scenario", &title.scenario),
        ("engine", &title.engine),
        ("workload", &title.workload),
    ];
    text.sample("servesim_run_info", &labels, 1);
    requests(run, &mut text);
    latencies(run, &mut text);
    passes(run, &mut text);
    engines(run, &mut text);
    text.0.push_str("# EOF\n");
    out.write_all(text.0.as_bytes())
}

fn requests(run: &RunSummary, text: &mut Text) {
    let requests = &run.requests;
    text.family("servesim_requests", "counter", "Requests by what became of them.");
    for (outcome, number) in [
        ("completed", requests.completed),
        ("rejected", requests.rejected.total),
        ("unfinished", requests.unfinished),
        ("excluded", requests.excluded),
    ] {
        text.sample("servesim_requests_total", &[("outcome", outcome)], number);
    }
    for (name, help, number) in [
        ("servesim_prompt_tokens", "Prompt tokens of completed requests.", run.tokens.prompt),
        ("servesim_cached_tokens", "Prompt tokens found in the prefix cache.", run.tokens.cached),
        ("servesim_output_tokens", "Generated tokens.", run.tokens.output),
        ("servesim_preemptions", "Preemptions of completed requests.", run.preemptions.total),
    ] {
        text.family(name, "counter", help);
        text.sample(&format!("{name}_total"), &[], number);
    }
    if let Some(goodput) = &run.goodput {
        text.family(
            "servesim_good_requests",
            "counter",
            "Completed requests that met every objective.",
        );
        text.sample("servesim_good_requests_total", &[], goodput.met);
    }
    if let Some(span_s) = run.throughput.span_s {
        text.unit_family("servesim_span_seconds", "From the first arrival to the last token.");
        text.sample("servesim_span_seconds", &[], span_s);
    }
    if let Some(trend) = run.queue_trend {
        let name = "servesim_queue_growth_requests_per_second";
        text.family(name, "gauge", "How many more wait each second.");
        text.sample(name, &[], trend.slope_per_s);
    }
}

fn latencies(run: &RunSummary, text: &mut Text) {
    let latency = &run.latency;
    for (name, help, summary) in [
        ("servesim_ttft_seconds", "Arrival to first token.", &latency.ttft_ms),
        ("servesim_tpot_seconds", "Time per output token after the first.", &latency.tpot_ms),
        ("servesim_itl_seconds", "Gaps between tokens.", &latency.itl_ms),
        ("servesim_emission_gap_seconds", "Gaps between emissions.", &latency.emission_gap_ms),
        ("servesim_e2e_seconds", "Arrival to last token.", &latency.e2e_ms),
        ("servesim_queue_seconds", "Arrival to first pass.", &latency.queue_ms),
    ] {
        text.summary(name, help, summary);
    }
}

fn passes(run: &RunSummary, text: &mut Text) {
    let passes = &run.passes;
    let kinds = [
        ("prefill_only", &passes.prefill_only),
        ("decode_only", &passes.decode_only),
        ("mixed", &passes.mixed),
    ];
    text.family("servesim_passes", "counter", "Forward passes by their work.");
    for (kind, passes) in kinds {
        text.sample("servesim_passes_total", &[("kind", kind)], passes.count);
    }
    text.family("servesim_pass_time_seconds", "counter", "Time in passes by their work.");
    text.0.push_str("# UNIT servesim_pass_time_seconds seconds\n");
    for (kind, passes) in kinds {
        let seconds = passes.busy_ms / 1e3;
        text.sample("servesim_pass_time_seconds_total", &[("kind", kind)], seconds);
    }
}

fn engines(run: &RunSummary, text: &mut Text) {
    type Gauge =
        (&'static str, &'static str, fn(&crate::metrics::summary::EngineSummary) -> Option<f64>);
    const GAUGES: [Gauge; 8] = [
        ("servesim_engine_busy_ratio", "Busy time over the span of the run.", |e| e.busy_ratio),
        ("servesim_kv_blocks", "KV blocks of the pool.", |e| e.kv.capacity_blocks.map(f64::from)),
        ("servesim_kv_used_ratio_mean", "Held by requests, over time.", |e| e.kv.used_ratio.mean),
        ("servesim_kv_used_ratio_max", "The most held by requests.", |e| e.kv.used_ratio.max),
        ("servesim_running_requests_mean", "Running, over time.", |e| e.running.mean),
        ("servesim_running_requests_max", "The most that ran.", |e| e.running.max.map(f64::from)),
        ("servesim_waiting_requests_mean", "Waiting, over time.", |e| e.waiting.mean),
        ("servesim_waiting_requests_max", "The most that waited.", |e| {
            e.waiting.max.map(f64::from)
        }),
    ];
    for (name, help, value) in GAUGES {
        let known: Vec<_> = run
            .engines
            .iter()
            .filter_map(|engine| Some((engine.engine.to_string(), value(engine)?)))
            .collect();
        if known.is_empty() {
            continue;
        }
        text.family(name, "gauge", help);
        for (engine, value) in known {
            text.sample(name, &[("engine", &engine)], value);
        }
    }
}

/// `OpenMetrics` text that is being put together.
#[derive(Default)]
struct Text(String);

impl Text {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        self.0.write_fmt(line).expect("a string takes everything");
        self.0.push('\n');
    }

    /// The samples that follow belong to this metric.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# TYPE {name} {kind}"));
        self.line(format_args!("# HELP {name} {help}"));
    }

    /// The same for a gauge in seconds.
    fn unit_family(&mut self, name: &str, help: &str) {
        self.line(format_args!("# TYPE {name} gauge"));
        self.line(format_args!("# UNIT {name} seconds"));
        self.line(format_args!("# HELP {name} {help}"));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<_> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        self.line(format_args!("{name}{labels} {value}"));
    }

    /// A latency in seconds; without samples there are no quantiles.
    fn summary(&mut self, name: &str, help: &str, summary: &Summary) {
        self.line(format_args!("# TYPE {name} summary"));
        self.line(format_args!("# UNIT {name} seconds"));
        self.line(format_args!("# HELP {name} {help}"));
        let quantiles = [
            ("0.5", summary.p50),
            ("0.9", summary.p90),
            ("0.95", summary.p95),
            ("0.99", summary.p99),
            ("0.999", summary.p99_9),
        ];
        for (quantile, ms) in quantiles {
            if let Some(ms) = ms {
                self.sample(name, &[("quantile", quantile)], ms / 1e3);
            }
        }
        let sum_ms = summary.mean.map_or(0.0, |mean| mean * summary.count as f64);
        self.sample(&format!("{name}_sum"), &[], sum_ms / 1e3);
        self.sample(&format!("{name}_count"), &[], summary.count);
    }
}

/// The value of a label: backslashes, quotes and line breaks are escaped.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn written(report: &Report) -> String {
        let mut out = Vec::new();
        write(report, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_sample_belongs_to_the_family_above_it() {
        let text = written(&sample::report());
        assert!(text.ends_with("\n# EOF\n"));
        let mut family = String::new();
        let mut families = Vec::new();
        for line in text.lines().filter(|line| *line != "# EOF") {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                rest.split(' ').next().unwrap().clone_into(&mut family);
                assert!(!families.contains(&family), "{family} stands twice");
                families.push(family.clone());
            } else if let Some(unit) = line.strip_prefix("# UNIT ") {
                let (name, unit) = unit.split_once(' ').unwrap();
                assert!(name == family && name.ends_with(&format!("_{unit}")), "{line}");
            } else if !line.starts_with("# HELP ") {
                assert!(line.starts_with(&family), "{line} is not of {family}");
                let value = line.rsplit(' ').next().unwrap();
                assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
            }
        }
    }

    #[test]
    fn figures_are_those_of_the_report() {
        let text = written(&sample::report());
        for line in [
            "servesim_requests_total{outcome=\"completed\"} 2",
            "servesim_ttft_seconds{quantile=\"0.99\"} 0.2485",
            // Two of 175 ms on average.
            "servesim_ttft_seconds_sum 0.35",
            "servesim_ttft_seconds_count 2",
            "servesim_passes_total{kind=\"mixed\"} 1",
            "servesim_pass_time_seconds_total{kind=\"mixed\"} 0.2",
            "servesim_kv_blocks{engine=\"0\"} 1000",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
    }

    #[test]
    fn labels_hold_any_name() {
        let mut report = sample::report();
        report.title.scenario = "a \"b\" \\ c\nd".to_owned();
        assert!(written(&report).contains(r#"scenario="a \"b\" \\ c\nd""#));
    }
}
