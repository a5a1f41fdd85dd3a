//! The report as JSON: indented, keys in a fixed order, no figure rounded.

use std::io::{self, Write};
use std::path::Path;

use crate::base::output::{OutputError, ResultFile};

use super::Report;

/// Writes the report and a final line break.
pub(crate) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    out.write_all(b"\n")
}

/// Writes the report to `path` (`-` is standard output), complete or not at all.
///
/// # Errors
///
/// If no file can be made there, or the disk is full.
pub(crate) fn write_file(report: &Report, path: &Path) -> Result<(), OutputError> {
    ResultFile::create(path, false)?.put(|out| write(report, out))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::report::{SCHEMA, sample, scenario_of_report};

    fn text(report: &Report) -> String {
        let mut out = Vec::new();
        write(report, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn keys_stand_where_a_reader_looks_for_them() {
        let json: Value = serde_json::from_str(&text(&sample::report())).unwrap();
        let keys: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
        let expected = [
            "schema",
            "servesim_version",
            "title",
            "scenario",
            "workload",
            "measured",
            "requests",
            "tokens",
            "throughput",
            "goodput",
            "latency",
            "curves",
            "ttft_breakdown_ms",
            "queue_trend",
            "prefix_cache",
            "preemptions",
            "speculation",
            "passes",
            "engines",
            "classes",
            "timing",
            "warnings",
            "digest",
            "host",
        ];
        assert_eq!(keys, expected);
        let found = |pointer: &str| json.pointer(pointer).unwrap().clone();
        assert_eq!(found("/schema"), SCHEMA);
        assert_eq!(found("/latency/ttft_ms/p99"), 248.5);
        assert_eq!(found("/latency/ttft_ms/p99.9"), 249.85);
        assert_eq!(found("/latency/ttft_ms/method"), "exact");
        assert_eq!(found("/throughput/output_tokens_per_s"), 15.0);
        assert_eq!(found("/requests/rejected/prompt_too_long"), 1);
        assert_eq!(found("/requests/finish/length"), 1);
        assert_eq!(found("/ttft_breakdown_ms/queueing/mean"), 25.0);
        assert_eq!(found("/passes/mixed/pass_ms_mean"), 200.0);
        assert_eq!(found("/engines/0/kv/used_ratio/max"), 0.251);
        assert_eq!(found("/measured/warmup_ms"), Value::Null);
        assert_eq!(found("/digest"), "000000000000feed");
    }

    #[test]
    fn a_report_reads_back_the_same() {
        let report = sample::report();
        let text = text(&report);
        assert!(text.starts_with("{\n  \"schema\": \"servesim.report/2\",\n"));
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
        assert_eq!(scenario_of_report(&text), Some(Ok(report.scenario)));
    }

    #[test]
    fn what_is_no_report_has_no_scenario() {
        for text in ["", "{}", "name: x", r#"{"schema": "other/1", "scenario": {}}"#] {
            assert_eq!(scenario_of_report(text), None, "{text}");
        }
    }

    #[test]
    fn a_file_holds_what_a_writer_gets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        write_file(&sample::report(), &path).unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), text(&sample::report()));
        let error = write_file(&sample::report(), folder.path()).unwrap_err().to_string();
        assert!(error.contains(": cannot be written: "), "{error}");
    }
}
