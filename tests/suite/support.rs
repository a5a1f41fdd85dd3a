//! Running servesim as its users do: the command in a process of its own, or the library in this
//! one.

use std::ffi::OsStr;
use std::fmt::{Display, Write as _};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use servesim::{Assignment, Extras, Scenario};
use tempfile::TempDir;

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Its exit code; `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// The report on its standard output.
    pub(crate) fn report(&self) -> Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        serde_json::from_str(&self.stdout).unwrap()
    }
}

/// The command, with nothing on its standard input.
pub(crate) fn command<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_servesim"));
    command.args(args).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// Runs the command to its end.
pub(crate) fn servesim<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Ran {
    ran(&mut command(args))
}

/// Runs the command with `input` on its standard input.
pub(crate) fn servesim_with<A: AsRef<OsStr>>(
    args: impl IntoIterator<Item = A>,
    input: &[u8],
) -> Ran {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut command = command(args);
    command.stdin(reader);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // Whoever does not read to the end has seen enough.
            let _ = writer.write_all(input);
        });
        let ran = ran(&mut command);
        // Its reading end goes with it, so that the writer never waits for nobody.
        drop(command);
        ran
    })
}

fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// An empty folder of a test, gone with it.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The path of `name` in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The same as text, for arguments and messages.
    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Writes a file and gives its path as text.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), bytes).unwrap();
        self.text(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// What is in it, in order, hidden files included.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

pub(crate) fn gzip(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes.as_ref()).unwrap();
    encoder.finish().unwrap()
}

/// The folder with real traces and recordings, if it is at hand: `$SERVESIM_SHARED`, else
/// `../shared` beside the crate.
pub(crate) fn shared(name: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared");
    let folder = std::env::var_os("SERVESIM_SHARED").map_or_else(beside, PathBuf::from);
    let path = folder.join(name);
    let is_there = path.exists();
    if !is_there {
        #[expect(clippy::print_stderr, reason = "a skipped test must say so")]
        {
            eprintln!("skipped: {} is not there", path.display());
        }
    }
    is_there.then_some(path)
}

/// A file or folder of the repository.
pub(crate) fn repository(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// One row of a trace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) ms: u64,
    pub(crate) prompt: u32,
    pub(crate) output: u32,
    pub(crate) ids: Option<Vec<u64>>,
    pub(crate) priority: i32,
}

/// A request whose prompt shares nothing.
pub(crate) const fn request(ms: u64, prompt: u32, output: u32) -> Request {
    Request { ms, prompt, output, ids: None, priority: 0 }
}

impl Request {
    pub(crate) fn ids(mut self, ids: impl IntoIterator<Item = u64>) -> Self {
        self.ids = Some(ids.into_iter().collect());
        self
    }

    pub(crate) const fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }
}

/// A trace of these rows, in the Mooncake format.
pub(crate) fn trace(requests: &[Request]) -> String {
    let mut text = String::new();
    for Request { ms, prompt, output, ids, priority } in requests {
        let ids = ids.as_ref().map_or_else(String::new, |ids| format!(", \"hash_ids\": {ids:?}"));
        writeln!(
            text,
            "{{\"timestamp\": {ms}, \"input_length\": {prompt}, \"output_length\": {output}{ids}, \
             \"priority\": {priority}}}"
        )
        .unwrap();
    }
    text
}

/// Lines as a text.
pub(crate) fn lines_of<T: Display>(lines: impl IntoIterator<Item = T>) -> String {
    let mut text = String::new();
    lines.into_iter().for_each(|line| writeln!(text, "{line}").unwrap());
    text
}

/// A run's report and the rows of its requests, by id.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Run {
    pub(crate) report: Value,
    pub(crate) rows: Vec<Value>,
}

/// Replays `requests` through the library under these `path=value` settings.
pub(crate) fn simulate(requests: &[Request], settings: &[&str]) -> Run {
    replay(requests, settings, false)
}

/// The same, looking at every request in every pass.
pub(crate) fn simulate_stepwise(requests: &[Request], settings: &[&str]) -> Run {
    replay(requests, settings, true)
}

fn replay(requests: &[Request], settings: &[&str], stepwise: bool) -> Run {
    let folder = Folder::new();
    folder.write("trace.jsonl", trace(requests));
    run(&Scenario::replay(&folder.path("trace.jsonl")), settings, stepwise)
}

/// Replays the trace at `path` through the library under these `path=value` settings.
pub(crate) fn simulate_trace(path: &Path, settings: &[&str]) -> Run {
    run(&Scenario::replay(path), settings, false)
}

/// Runs the synthetic workload that these settings describe.
pub(crate) fn simulate_synthetic(settings: &[&str]) -> Run {
    run(&Scenario::default(), settings, false)
}

fn run(scenario: &Scenario, settings: &[&str], stepwise: bool) -> Run {
    let assignments: Vec<Assignment> =
        settings.iter().map(|text| Assignment::parse(text).unwrap()).collect();
    let scenario = scenario.with(&assignments).unwrap();
    let scenario = scenario.resolve(Path::new("")).unwrap_or_else(|e| panic!("{settings:?}: {e}"));
    let folder = Folder::new();
    let rows = folder.path("rows.jsonl");
    let extras = Extras { requests: Some(rows.clone()), stepwise, ..Extras::default() };
    let report = servesim::simulate(&scenario, &extras, &mut ()).unwrap().put().unwrap();
    let mut json = Vec::new();
    report.write_json(&mut json).unwrap();
    Run { report: serde_json::from_slice(&json).unwrap(), rows: rows_of(&rows) }
}

/// The rows of a requests file (JSON lines), by id.
pub(crate) fn rows_of(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let mut rows: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    rows.sort_by_key(|row| row["id"].as_u64());
    rows
}

/// A time in ms as the whole nanoseconds that it stands for.
pub(crate) fn ns(ms: &Value) -> u64 {
    let ms = ms.as_f64().unwrap_or_else(|| panic!("{ms} is no time"));
    (ms * 1e6).round() as u64
}

impl Run {
    /// The number at a JSON pointer of the report.
    pub(crate) fn count(&self, pointer: &str) -> u64 {
        let value = self.report.pointer(pointer).unwrap_or_else(|| panic!("no {pointer}"));
        value.as_u64().unwrap_or_else(|| panic!("{pointer} is {value}"))
    }

    /// The float at a JSON pointer of the report.
    pub(crate) fn float(&self, pointer: &str) -> f64 {
        let value = self.report.pointer(pointer).unwrap_or_else(|| panic!("no {pointer}"));
        value.as_f64().unwrap_or_else(|| panic!("{pointer} is {value}"))
    }

    /// A time of a request, in µs; it has to be whole.
    pub(crate) fn us(&self, id: usize, field: &str) -> u64 {
        let ns = ns(&self.rows[id][field]);
        assert_eq!(ns % 1000, 0, "{field} of request {id} is {ns} ns");
        ns / 1000
    }

    /// An integer of a request.
    pub(crate) fn of(&self, id: usize, field: &str) -> u64 {
        let value = &self.rows[id][field];
        value.as_u64().unwrap_or_else(|| panic!("{field} of request {id} is {value}"))
    }

    pub(crate) fn digest(&self) -> &str {
        self.report["digest"].as_str().unwrap()
    }
}

/// The report without the facts of its execution.
pub(crate) fn without_host(report: &Value) -> Value {
    let mut report = report.clone();
    assert!(report.as_object_mut().unwrap().remove("host").is_some());
    report
}
