//! Are the files of rows, and the end of the run as metrics, what the report says?

use crate::support::{Folder, request, servesim, trace};

/// Replays some requests with these flags into files of a folder, and gives the folder.
fn replayed(flags: &[&str]) -> Folder {
    let folder = Folder::new();
    let requests: Vec<_> =
        (0..40).map(|n| request(n * 7, 300 + 40 * (n % 5) as u32, 5 + n as u32)).collect();
    let path = folder.write("t.jsonl", trace(&requests));
    let flags = flags.iter().map(|flag| flag.replace("{}", folder.text("").trim_end_matches('/')));
    let out = folder.text("out");
    let decode = "timing.polynomial.decode.kv_token_ms=0.001";
    let prefill = "timing.polynomial.prefill.constant_ms=3";
    let args = ["replay", &path, "--quiet", "--out", &out, "--set", decode, "--set", prefill];
    let args = args.map(str::to_owned).into_iter().chain(flags);
    let ran = servesim(args.collect::<Vec<_>>());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    folder
}

fn report(folder: &Folder) -> serde_json::Value {
    serde_json::from_str(&folder.read("out/report.json")).unwrap()
}

/// Each pass has a row: their number, and their times together, are those of the report, and the parts of a price
/// are what the pass took.
#[test]
fn every_pass_has_a_row() {
    let folder = replayed(&["--passes", "{}/passes.csv"]);
    let report = report(&folder);
    let text = folder.read("passes.csv");
    let mut lines = text.lines();
    let columns: Vec<_> = lines.next().unwrap().split(',').collect();
    let column = |name: &str| columns.iter().position(|column| *column == name).unwrap();
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    let number = |row: &[&str], name: &str| row[column(name)].parse::<f64>().unwrap();
    for (kind, path) in [("prefill", "prefill_only"), ("decode", "decode_only"), ("mixed", "mixed")]
    {
        let of_kind: Vec<_> = rows.iter().filter(|row| row[column("kind")] == kind).collect();
        let expected = &report["passes"][path];
        assert_eq!(expected["count"], of_kind.len(), "{kind}");
        let took: f64 = of_kind.iter().map(|row| number(row, "pass_ms")).sum();
        let busy = expected["busy_ms"].as_f64().unwrap();
        assert!((took - busy).abs() < 1e-6, "{kind}: {took} is not {busy}");
        for row in of_kind {
            let parts = ["prefill_ms", "decode_ms", "draft_ms", "host_ms"];
            let parts: f64 = parts.iter().map(|part| number(row, part)).sum();
            assert!((parts - number(row, "pass_ms")).abs() < 1e-6, "{row:?}");
            assert_eq!(kind == "mixed", !row[column("decode_only_ms")].is_empty(), "{row:?}");
        }
    }
    // Unlike the report, rows know no merged passes.
    let starts: Vec<_> = rows.iter().map(|row| number(row, "start_ms")).collect();
    assert!(starts.windows(2).all(|pair| pair[0] < pair[1]));
}

/// Whatever the intervals, they hold all of the run: its requests, tokens and passes.
#[test]
fn the_run_over_time_adds_up_to_the_run() {
    let folder = replayed(&["--series", "{}/series.jsonl", "--set", "cluster.engines=2"]);
    let report = report(&folder);
    let text = folder.read("series.jsonl");
    let rows: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sum = |of_all: bool, column: &str| -> u64 {
        let rows = rows.iter().filter(|row| row["engine"].is_null() == of_all);
        rows.map(|row| row[column].as_u64().unwrap()).sum()
    };
    for (column, expected) in [
        ("arrivals", &report["requests"]["input"]),
        ("completions", &report["requests"]["completed"]),
        ("output_tokens", &report["tokens"]["output"]),
        ("decode_passes", &report["passes"]["decode_only"]["count"]),
        ("mixed_passes", &report["passes"]["mixed"]["count"]),
    ] {
        assert_eq!(
            (sum(true, column), sum(false, column)),
            (expected.as_u64().unwrap(), sum(true, column)),
            "{column}"
        );
    }
}

#[test]
fn the_end_of_a_run_is_there_for_tools_that_scrape() {
    let folder = replayed(&["--openmetrics", "{}/end.txt"]);
    let report = report(&folder);
    let text = folder.read("end.txt");
    let value = |name: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!((value("servesim_requests_total{outcome=\"completed\"}") - 40.0).abs() < 1e-12);
    let p99_ms = report["latency"]["ttft_ms"]["p99"].as_f64().unwrap();
    assert!((value("servesim_ttft_seconds{quantile=\"0.99\"}") * 1e3 - p99_ms).abs() < 1e-9);
}

#[test]
fn results_do_not_take_the_place_of_others() {
    let folder = Folder::new();
    let path = folder.write("t.jsonl", trace(&[request(0, 100, 3)]));
    let rows = folder.write("rows.csv", "mine");
    for (flags, of) in [
        (
            ["--requests", &rows, "--passes", &rows],
            format!("--passes {rows}: that is the place of --requests"),
        ),
        (
            ["--passes", "-", "--requests", "-"],
            "--passes -: that is the place of --requests".to_owned(),
        ),
        (
            ["--seed", "1", "--requests", &path],
            format!("--requests {path}: that is the place of the input"),
        ),
    ] {
        let ran = servesim([&["replay", &path][..], &flags].concat());
        let expected = format!("servesim: {of}, expected one of its own\n");
        assert_eq!((ran.code, ran.stderr), (Some(2), expected));
    }
    assert_eq!(folder.read("rows.csv"), "mine");
    assert!(folder.read("t.jsonl").starts_with('{'));
}

#[test]
fn rows_on_standard_output_send_the_report_to_the_other() {
    let folder = Folder::new();
    let path = folder.write("t.jsonl", trace(&[request(0, 100, 3)]));
    let ran = servesim(["replay", &path, "--passes", "-"]);
    assert!(ran.stdout.starts_with("{\"engine\":0,\"kind\":\"prefill\""), "{}", ran.stdout);
    // A prefill and two decodes.
    assert_eq!(ran.stdout.lines().count(), 3);
    assert!(ran.stderr.contains("Latency (ms)"), "{}", ran.stderr);
}
