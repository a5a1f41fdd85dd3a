//! Do modules use only what the module table of docs/architecture.md allows?

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Uses = BTreeMap<String, BTreeSet<String>>;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every source file, in order of name.
pub(crate) fn sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root().join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// The module table: names in its order, and what each may use.
fn allowed() -> (Vec<String>, Uses) {
    let text = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let (_, table) = text.split_once("\n| module | owns | may use |\n").unwrap();
    let mut order = Vec::new();
    let mut uses = Uses::new();
    for row in table.lines().skip(1).take_while(|line| line.starts_with('|')) {
        let cells: Vec<_> = row.trim_matches('|').split('|').collect();
        let spans = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        let name: Vec<String> = spans(cells[0]);
        order.push(name[0].clone());
        uses.insert(name[0].clone(), spans(cells[2]).into_iter().collect());
    }
    (order, uses)
}

/// The modules below the root of the crate that a text names, as `crate::module` or in braces.
fn named_modules(text: &str) -> BTreeSet<String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let word = |text: &str| -> String { text.chars().take_while(|&c| is_word(c)).collect() };
    let mut names = BTreeSet::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            None => names.extend([word(rest)]),
            Some(group) => {
                // The first word of each item at the outermost level of the braces.
                let (mut depth, mut starts) = (0, true);
                for (at, c) in group.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => starts = true,
                        _ if starts && is_word(c) => {
                            names.insert(word(&group[at..]));
                            starts = false;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    names
}

/// The code of a file, without comments.
fn code(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The module below the root of the crate that a file belongs to; `None` for the root itself.
fn module_of(path: &Path) -> Option<String> {
    let inside = path.strip_prefix(root().join("src")).unwrap();
    let first =
        inside.components().next()?.as_os_str().to_str()?.trim_end_matches(".rs").to_owned();
    (!["lib", "main"].contains(&first.as_str())).then_some(first)
}

/// What modules use, as the code says.
fn used() -> Uses {
    let mut uses = Uses::new();
    for path in sources() {
        let Some(module) = module_of(&path) else { continue };
        let code = code(&fs::read_to_string(&path).unwrap());
        // Only `crate::` leads out of a module: a chain of `super::` that did could not be seen.
        let depth = path.strip_prefix(root().join("src")).unwrap().components().count();
        let chain = "super::".repeat(depth + 1);
        assert!(!code.contains(&chain), "{}: name it from the root", path.display());
        let mut names = named_modules(&code);
        names.remove(&module);
        uses.entry(module).or_default().extend(names);
    }
    uses
}

#[test]
fn modules_use_what_the_table_allows() {
    let (order, allowed) = allowed();
    let used = used();
    assert_eq!(order.iter().collect::<BTreeSet<_>>(), used.keys().collect());
    for (module, used) in &used {
        let allowed = &allowed[module];
        let beyond: Vec<_> = used.difference(allowed).collect();
        assert!(beyond.is_empty(), "{module} uses {beyond:?}, which the table does not allow");
        let idle: Vec<_> = allowed.difference(used).collect();
        assert!(idle.is_empty(), "{module} does not use {idle:?}, which the table names");
    }
}

#[test]
fn arrows_never_point_back() {
    let (order, allowed) = allowed();
    for (place, module) in order.iter().enumerate() {
        for other in &allowed[module] {
            assert!(order[..place].contains(other), "{module} uses {other}, which is not above it");
        }
    }
}

#[test]
fn modules_are_found_in_every_form_of_use() {
    let names = |text| named_modules(text).into_iter().collect::<Vec<_>>();
    assert_eq!(names("use crate::base::time::SimTime;"), ["base"]);
    assert_eq!(names("fn f() -> crate::kv::Hit {}"), ["kv"]);
    assert_eq!(
        names("use crate::{base::{ids, time}, kv::Hit,\n metrics};"),
        ["base", "kv", "metrics"]
    );
    assert_eq!(names(&code("// crate::cli\nx(); // crate::cli")), Vec::<String>::new());
}
