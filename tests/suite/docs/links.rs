//! Relative links lead somewhere, and paths that pages name exist.

use std::path::Path;

use super::{Page, pages, prose, root, spans};

/// The targets of the links in a text.
fn targets(text: &str) -> Vec<&str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect()
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|&c| c.is_alphanumeric() || " -_".contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

fn has_anchor(text: &str, wanted: &str) -> bool {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).any(|anchor| anchor == wanted)
}

/// Panics if a link of `page` leads nowhere.
fn follow(page: &Page, target: &str) {
    let shown = page.path.display();
    let (path, wanted) = target.split_once('#').unwrap_or((target, ""));
    let folder = page.path.parent().unwrap_or(Path::new(""));
    let found = if path.is_empty() { page.path.clone() } else { folder.join(path) };
    let found = root().join(found);
    assert!(found.exists(), "{shown}: {target} leads nowhere");
    if !wanted.is_empty() {
        let text = std::fs::read_to_string(&found).unwrap();
        assert!(has_anchor(&prose(&text), wanted), "{shown}: {target}: no such heading");
    }
}

#[test]
fn every_relative_link_resolves() {
    let mut followed = 0;
    for page in pages() {
        let prose = prose(&page.text);
        for target in targets(&prose).into_iter().filter(|target| !target.contains("://")) {
            follow(&page, target);
            followed += 1;
        }
    }
    assert!(followed > 60, "{followed}");
}

#[test]
fn named_paths_exist() {
    const FOLDERS: [&str; 5] = ["src/", "docs/", "scenarios/", "traces/", "tests/suite/"];
    for page in pages() {
        let prose = prose(&page.text);
        for span in spans(&prose) {
            let is_path = FOLDERS.iter().any(|folder| span.starts_with(folder));
            // NAME is for the reader to choose.
            if is_path && !span.contains(' ') && !span.contains("NAME") {
                assert!(root().join(span).exists(), "{}: no {span}", page.path.display());
            }
        }
    }
}

#[test]
fn every_page_can_be_reached_from_the_readme() {
    let mut reached = vec![Path::new("README.md").to_owned()];
    let pages = pages();
    let mut at = 0;
    while let Some(path) = reached.get(at).cloned() {
        at += 1;
        let page = pages.iter().find(|page| page.path == path).unwrap();
        let prose = prose(&page.text);
        for target in targets(&prose) {
            let target = target.split('#').next().unwrap_or_default();
            // In this repository no link goes up further than its page is deep.
            let mut found = path.parent().unwrap_or(Path::new("")).to_owned();
            for part in Path::new(target) {
                if part == ".." {
                    found.pop()
                } else {
                    found.push(part);
                    true
                };
            }
            if pages.iter().any(|page| page.path == found) && !reached.contains(&found) {
                reached.push(found);
            }
        }
    }
    for page in &pages {
        assert!(reached.contains(&page.path), "nothing leads to {}", page.path.display());
    }
}

#[test]
fn anchors_are_those_of_the_headings() {
    assert_eq!(anchor(" What the host adds"), "what-the-host-adds");
    assert_eq!(anchor(" engine.vllm"), "enginevllm");
    assert_eq!(targets("see [a](b.md#c) and [d](../e)"), ["b.md#c", "../e"]);
}
