//! Do the pages say what the program does?
//!
//! Commands in pages are run, output shown is compared, links are followed, and tables of fields,
//! flags, keys and defaults are held against the program. `SERVESIM_BLESS=1` writes the shown output
//! again.

#[cfg(unix)]
mod commands;
mod fields;
mod links;
mod reports;

use std::path::{Path, PathBuf};

/// A page of the repository.
struct Page {
    /// From the root of the repository.
    path: PathBuf,
    text: String,
}

/// A fenced block of a page.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    /// The index of its first line, behind the fence, in the page.
    start: usize,
    /// The first word behind the fence: what the block holds.
    kind: String,
    /// The other words behind the fence.
    words: Vec<String>,
    lines: Vec<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn page(path: &str) -> Page {
    let text = std::fs::read_to_string(root().join(path)).expect(path);
    Page { path: path.into(), text }
}

/// Every page, in order of name.
fn pages() -> Vec<Page> {
    let mut paths: Vec<String> =
        ["CHANGELOG.md", "CONTRIBUTING.md", "README.md", "traces/README.md"]
            .map(str::to_owned)
            .to_vec();
    for folder in ["docs", "docs/engines"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if Path::new(&name).extension().is_some_and(|extension| extension == "md") {
                paths.push(format!("{folder}/{name}"));
            }
        }
    }
    paths.sort();
    paths.iter().map(|path| page(path)).collect()
}

/// The fenced blocks of a page, in order.
fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in text.lines().enumerate() {
        match (open.take(), line.strip_prefix("```")) {
            (None, Some(info)) => {
                let mut words = info.split_whitespace().map(str::to_owned);
                let kind = words.next().unwrap_or_default();
                let words = words.collect();
                open = Some(Block { start: index + 1, kind, words, lines: Vec::new() });
            }
            (None, None) => {}
            (Some(block), Some(_)) => blocks.push(block),
            (Some(mut block), None) => {
                block.lines.push(line.to_owned());
                open = Some(block);
            }
        }
    }
    assert_eq!(open, None, "a block is never closed");
    blocks
}

/// The page without its fenced blocks.
fn prose(text: &str) -> String {
    let mut outside = true;
    let mut prose = String::new();
    for line in text.lines() {
        if line.starts_with("```") {
            outside = !outside;
        } else if outside {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    prose
}

/// The rows of the first table below a heading, without header and rule: their cells.
fn table<'a>(page: &'a Page, heading: &str) -> Vec<Vec<&'a str>> {
    let mut lines = page.text.lines();
    assert!(lines.any(|line| line == heading), "{}: no {heading}", page.path.display());
    let rows = lines.skip_while(|line| !line.starts_with('|'));
    rows.take_while(|line| line.starts_with('|')).skip(2).map(cells).collect()
}

/// The cells of a row of a table.
fn cells(row: &str) -> Vec<&str> {
    let inner = row.trim().trim_start_matches('|').trim_end_matches('|');
    inner.split('|').map(str::trim).collect()
}

/// What stands in backticks, in order.
fn spans(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The built command, to be given arguments.
fn servesim() -> std::process::Command {
    std::process::Command::new(env!("CARGO_BIN_EXE_servesim"))
}

/// What the command prints on standard output when it succeeds in the root of the repository.
fn output_of(args: &[&str]) -> String {
    let output = servesim().args(args).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn cited_rules_are_on_the_page() {
    let families = [
        (page("docs/engines/vllm.md"), "R"),
        (page("docs/engines/sglang.md"), "CASPEKXWQMDNRFOV"),
        (page("docs/engines/trtllm.md"), "FAKBCWO"),
    ];
    let mut cited = [0, 0, 0];
    for path in crate::layers::sources() {
        let text = std::fs::read_to_string(&path).unwrap();
        let shown = path.to_string_lossy().replace('\\', "/");
        let family = match shown.as_str() {
            path if path.contains("sglang") || path.contains("radix") => 1,
            path if path.contains("trtllm") => 2,
            _ => 0,
        };
        let (page, families) = &families[family];
        let comments = text.lines().filter_map(|line| line.split_once("//").map(|(_, text)| text));
        for rule in comments.flat_map(|comment| rules(comment, families)) {
            cited[family] += 1;
            let defined = page.text.contains(&format!("\n- **{rule}** "));
            assert!(defined, "{shown}: {rule} is not on the engine's page");
        }
    }
    assert!(cited.iter().all(|&cited| cited > 40), "{cited:?}");
}

/// The rules of `families` that a comment cites.
fn rules<'a>(comment: &'a str, families: &'a str) -> impl Iterator<Item = &'a str> {
    let words = comment.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter(move |word| {
        let number = word.strip_prefix(|c: char| families.contains(c));
        number.is_some_and(|number| number.parse::<u32>().is_ok_and(|number| number < 100))
    })
}

/// `path` and the names behind it in the last column: the file holds each of them.
#[test]
fn what_holds_an_invariant_is_there() {
    let page = page("docs/invariants.md");
    let rows = table(&page, "# Invariants");
    for (number, row) in (1..).zip(&rows) {
        let &[name, _, holders] = row.as_slice() else { panic!("{row:?}") };
        assert_eq!(name, format!("I{number}"));
        let mut file = None;
        for span in spans(holders) {
            if Path::new(span).extension().is_some_and(|e| e == "rs" || e == "toml") {
                file = Some((span, std::fs::read_to_string(root().join(span)).expect(span)));
                continue;
            }
            let (path, text) = file.as_ref().expect("a name stands behind its file");
            assert!(text.contains(span), "I{number}: {path} has no {span}");
        }
    }
    assert!(rows.len() > 15);
}

#[test]
fn the_checks_run_the_commands_of_the_readme() {
    let page = page("README.md");
    let checks = std::fs::read_to_string(root().join(".ci/run")).unwrap();
    let first = blocks(&page.text).swap_remove(0);
    assert_eq!((first.kind.as_str(), first.lines.len()), ("sh", 2));
    for command in first.lines {
        assert!(checks.lines().any(|line| line == command), ".ci/run does not run {command}");
    }
}

#[test]
fn the_changelog_knows_this_version() {
    let heading = format!("\n## [{}] - ", env!("CARGO_PKG_VERSION"));
    assert!(page("CHANGELOG.md").text.contains(&heading));
}
