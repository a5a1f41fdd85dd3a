//! Does a browser draw the pages that we write, all of them, without an error?

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Folder, repository, servesim};

/// Browsers that can do without a screen. `SERVESIM_CHROMIUM` names another.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

fn browser() -> Option<PathBuf> {
    let named = std::env::var_os("SERVESIM_CHROMIUM").map(PathBuf::from);
    let found = named.or_else(|| {
        let folders = std::env::var_os("PATH")?;
        let of = |name: &&str| {
            std::env::split_paths(&folders).map(|f| f.join(name)).find(|path| path.is_file())
        };
        BROWSERS.iter().find_map(of)
    });
    if found.is_none() {
        #[expect(clippy::print_stderr, reason = "a skipped test must say so")]
        {
            eprintln!("skipped: none of {} is there", BROWSERS.join(", "));
        }
    }
    found
}

/// The page as it is once its script has run.
fn opened(browser: &Path, page: &Path) -> String {
    // A profile of its own: nothing is shared with, or left behind for, other tests.
    let profile = Folder::new();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--no-first-run", "--window-size=1280,2000", "--virtual-time-budget=3000"])
        .arg(format!("--user-data-dir={}", profile.text("profile")))
        .arg("--dump-dom")
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let dom = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !dom.is_empty(), "{}: {stderr}", browser.display());
    dom
}

/// What the script of a page wrote down about it.
fn noted(dom: &str, what: &str) -> usize {
    let (_, rest) = dom.split_once(&format!("data-{what}=\"")).expect(what);
    rest.split_once('"').unwrap().0.parse().unwrap()
}

/// Writes a page, opens it, and checks that as many charts as it should have are drawn.
fn check(args: &[&str], charts: usize) {
    let Some(browser) = browser() else { return };
    let folder = Folder::new();
    let html = folder.text("page.html");
    let ran = servesim(args.iter().copied().chain(["--html", &html]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let dom = opened(&browser, &folder.path("page.html"));
    assert_eq!((noted(&dom, "errors"), noted(&dom, "charts")), (0, charts));
    assert_eq!((noted(&dom, "drawn"), dom.matches("<canvas").count()), (charts, charts));
}

fn trace() -> String {
    repository("traces/quickstart.jsonl").display().to_string()
}

#[test]
fn a_browser_draws_every_chart_of_a_run() {
    // Five latencies as curve and bars, six time lines, two charts of the TTFT, one of passes.
    check(&["replay", &trace(), "--limit", "300"], 19);
}

#[test]
fn classes_engines_and_objectives_have_charts_of_their_own() {
    let scenario = "
workload:
  synthetic:
    requests: 200
    arrivals: {poisson: {requests_per_s: 20}}
    classes:
      - {name: chat, weight: 3}
      - {name: code, prompt_tokens: {fixed: 3000}}
cluster: {engines: 2}
engine: {vllm: {num_gpu_blocks: 1000, speculative_config: {method: eagle, num_speculative_tokens: 3}}}
speculation: {acceptance: {conditional_rates: [0.8, 0.6, 0.4]}}
slo: {ttft_ms: 500, classes: {code: {e2e_ms: 9000}}}
";
    let folder = Folder::new();
    let path = folder.write("classes.yaml", scenario);
    // Beside those of any run: the emission gap as curve and bars, four by class, four by engine.
    check(&["run", &path], 19 + 2 + 4 + 4);
}

#[test]
fn a_run_without_requests_is_a_page_without_charts() {
    check(&["replay", &trace(), "--trace-window", "900000:"], 0);
}

#[test]
fn requests_that_are_all_turned_away_still_arrive() {
    check(&["replay", &trace(), "--limit", "50", "--set", "engine.vllm.max_model_len=16"], 1);
}

#[test]
fn a_browser_draws_the_page_of_a_trace() {
    check(&["trace", "stats", &trace()], 5);
}

#[test]
fn a_browser_draws_distributions_over_each_other() {
    let folder = Folder::new();
    let runs = ["a", "b"].map(|name| folder.text(name));
    for (out, seats) in runs.iter().zip([64, 4]) {
        let set = format!("engine.vllm.max_num_seqs={seats}");
        let limit = ["--limit", "200", "--quiet"];
        let ran =
            servesim([&["replay", &trace(), "--out", out, "--set", &set], &limit[..]].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    let rows = folder.text("rows.csv");
    let ran = servesim(["replay", &trace(), "--limit", "200", "--quiet", "--requests", &rows]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // Of five latencies curves and errors; the emission gap is that of tokens. Rows know no gaps.
    check(&["compare", &runs[0], &runs[1], &rows], 10);
    let ran = servesim(["compare", &runs[0], &rows, "--html", &rows]);
    let expected =
        "servesim: --html ROWS: that is the place of an input, expected one of its own\n";
    assert_eq!((ran.code, ran.stderr), (Some(2), expected.replace("ROWS", &rows)));
}

#[test]
fn equal_runs_give_equal_pages_and_one_goes_to_standard_output_alone() {
    let folder = Folder::new();
    let run = |html: &str| servesim(["replay", &trace(), "--limit", "50", "--html", html]);
    assert_eq!(run(&folder.text("a.html")).code, Some(0));
    let page = folder.read("a.html");
    let ran = run("-");
    assert_eq!(ran.stdout, page);
    assert!(ran.stderr.contains("TTFT"));
    assert!(page.len() < 6 << 20, "{} bytes", page.len());
}
