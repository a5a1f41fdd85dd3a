//! Commands of the pages are run, and output that pages show is what they print.
//!
//! The commands of a page run in order, in one temporary folder with a copy of `scenarios/` and
//! `traces/`. See CONTRIBUTING for the words behind a fence.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Block, Page, blocks, pages, root};

/// A command that a page shows.
struct Shown {
    /// The index of its line in the page.
    line: usize,
    text: String,
    /// The lines that follow it as its output; `None` where no output is shown.
    output: Option<Vec<String>>,
}

/// The prefix of commands that run the program from the sources.
const FROM_SOURCES: &str = "cargo run --release -- ";

/// The command as it is run here, if it is one of the program.
fn program_command(line: &str) -> Option<String> {
    if let Some(rest) = line.strip_prefix(FROM_SOURCES) {
        return Some(format!("servesim {rest}"));
    }
    (line == "servesim" || line.starts_with("servesim ")).then(|| line.to_owned())
}

/// The commands of a block. In `sh` blocks every line of the program is one; in `console` blocks
/// every line behind a `$`, with its output below it.
fn commands(block: &Block) -> Vec<Shown> {
    let numbered = (block.start..).zip(&block.lines);
    let mut shown: Vec<Shown> = Vec::new();
    match block.kind.as_str() {
        "sh" => shown.extend(numbered.filter_map(|(line, text)| {
            program_command(text).map(|text| Shown { line, text, output: None })
        })),
        "console" => {
            for (line, text) in numbered {
                if let Some(command) = text.strip_prefix("$ ") {
                    let text = program_command(command).expect("a console shows the program");
                    shown.push(Shown { line, text, output: Some(Vec::new()) });
                } else {
                    let last = shown.last_mut().expect("output follows a command");
                    last.output.get_or_insert_default().push(text.clone());
                }
            }
        }
        _ => {}
    }
    shown
}

/// Whether `found` is `expected`, in which `...` stands for any number of lines.
fn matches(expected: &[String], found: &[String]) -> bool {
    match expected.split_first() {
        None => found.is_empty(),
        Some((first, rest)) if first == "..." => {
            (0..=found.len()).any(|skipped| matches(rest, &found[skipped..]))
        }
        Some((first, rest)) => {
            found.first() == Some(first) && found.split_first().is_some_and(|f| matches(rest, f.1))
        }
    }
}

/// A folder to run the commands of a page in.
struct Sandbox {
    folder: tempfile::TempDir,
    /// A folder that holds the program under its name, to be searched for commands.
    programs: tempfile::TempDir,
}

impl Sandbox {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["scenarios", "traces"] {
            let copy = folder.path().join(name);
            fs::create_dir(&copy).unwrap();
            for entry in fs::read_dir(root().join(name)).unwrap() {
                let entry = entry.unwrap();
                if entry.path().is_dir() {
                    continue;
                }
                fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
            }
        }
        if let Some(recorded) = recorded_cases() {
            fs::create_dir(folder.path().join("tests")).unwrap();
            std::os::unix::fs::symlink(recorded, folder.path().join("tests/conformance")).unwrap();
        }
        let programs = tempfile::tempdir().unwrap();
        let program = programs.path().join("servesim");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_servesim"), program).unwrap();
        Self { folder, programs }
    }

    fn write(&self, name: &str, lines: &[String]) {
        fs::write(self.folder.path().join(name), lines.join("\n") + "\n").unwrap();
    }

    /// Runs a command as a terminal would show it: its exit code, and the lines it prints.
    fn run(&self, command: &str) -> (i32, Vec<String>) {
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new("sh")
            .arg("-c")
            .arg(format!("exec 2>&1\n{command}"))
            .current_dir(self.folder.path())
            .env("PATH", format!("{}:{path}", self.programs.path().display()))
            .output()
            .unwrap();
        let code = output.status.code().expect("a command ends by itself");
        (code, String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
    }
}

/// The recorded cases in the repository, if they are there.
fn recorded_cases() -> Option<PathBuf> {
    let path = root().join("tests/conformance");
    path.is_dir().then_some(path)
}

/// Whether a command needs what is not there; then it says so.
fn must_be_skipped(command: &str, page: &Path) -> bool {
    let missing = if command.contains("tests/conformance") && recorded_cases().is_none() {
        Some("recorded cases")
    } else if command.contains("python3") && Command::new("python3").arg("-V").output().is_err() {
        Some("Python")
    } else {
        None
    };
    if let Some(missing) = missing {
        #[expect(clippy::print_stderr, reason = "a skipped command must say so")]
        {
            eprintln!("skipped: {}: `{command}`: no {missing}", page.display());
        }
    }
    missing.is_some()
}

/// Runs the commands of a page; gives its lines with the output that the commands printed in the
/// place of what it shows.
fn run_page(page: &Page, commands_run: &mut u32) -> Vec<String> {
    let sandbox = Sandbox::new();
    let mut lines: Vec<String> = page.text.lines().map(str::to_owned).collect();
    let mut printed = Vec::new();
    for block in blocks(&page.text) {
        let word = |key: &str| block.words.iter().find_map(|word| word.strip_prefix(key));
        if let Some(name) = word("file=") {
            sandbox.write(name, &block.lines);
        }
        if word("not-run").is_some() {
            continue;
        }
        let code_expected = word("exit=").map_or(0, |code| code.parse().unwrap());
        for command in commands(&block) {
            let Shown { line, text, output } = command;
            if must_be_skipped(&text, &page.path) {
                continue;
            }
            *commands_run += 1;
            let (code, found) = sandbox.run(&text);
            let shown = found.join("\n");
            let place = format!("{}:{}: {text}", page.path.display(), line + 1);
            assert_eq!(code, code_expected, "{place}\n{shown}");
            if let Some(expected) = output
                && !matches(&expected, &found)
            {
                let is_cut = expected.iter().any(|line| line == "...");
                assert!(!is_cut, "{place} prints\n{shown}\nwhich is not\n{}", expected.join("\n"));
                printed.push((line + 1..line + 1 + expected.len(), found));
            }
        }
    }
    for (range, found) in printed.into_iter().rev() {
        lines.splice(range, found);
    }
    lines
}

#[test]
fn commands_run_and_print_what_the_pages_show() {
    let bless = std::env::var_os("SERVESIM_BLESS").is_some_and(|value| value == "1");
    let mut commands_run = 0;
    for page in pages() {
        let mut text = run_page(&page, &mut commands_run).join("\n");
        text.push('\n');
        if bless && text != page.text {
            fs::write(root().join(&page.path), &text).unwrap();
            continue;
        }
        for (number, (shown, printed)) in (1..).zip(page.text.lines().zip(text.lines())) {
            assert_eq!(shown, printed, "{}:{number}", page.path.display());
        }
        assert_eq!(page.text, text, "{}", page.path.display());
    }
    assert!(commands_run > 20, "{commands_run}");
}

#[test]
fn few_blocks_are_left_alone() {
    let pages = pages();
    let blocks = pages.iter().flat_map(|page| blocks(&page.text));
    let left = blocks.filter(|block| block.words.iter().any(|word| word == "not-run"));
    assert!(left.count() <= 2);
}

#[test]
fn dots_stand_for_any_lines() {
    let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let found = lines("a b c d");
    for (expected, same) in [
        ("a b c d", true),
        ("a ... d", true),
        ("... c d", true),
        ("a b c d ...", true),
        ("a ... b d", false),
        ("a b c", false),
        ("a b c d e", false),
    ] {
        assert_eq!(matches(&lines(expected), &found), same, "{expected}");
    }
}

#[test]
fn a_console_is_commands_and_what_they_print() {
    let text =
        "```console exit=2\n$ servesim a\none\n$ cargo run --release -- b\n```\n```sh\njq .\n```\n";
    let blocks = blocks(text);
    let shown = commands(&blocks[0]);
    let seen: Vec<_> = shown
        .iter()
        .map(|command| (command.line, command.text.as_str(), command.output.clone().unwrap().len()))
        .collect();
    assert_eq!(seen, [(1, "servesim a", 1), (3, "servesim b", 0)]);
    assert_eq!(blocks[0].words, ["exit=2"]);
    assert!(commands(&blocks[1]).is_empty());
}
