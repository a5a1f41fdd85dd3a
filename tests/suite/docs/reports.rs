//! The page of the report names every key, column, reason and warning there is, in their order.

use serde_json::Value;

use super::{Page, output_of, page, root, spans, table};

fn report() -> Value {
    let args = ["replay", "traces/quickstart.jsonl", "--limit", "20", "--format", "json"];
    serde_json::from_str(&output_of(&args)).unwrap()
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// The spans of the first sentence of the page that starts with `start`.
fn sentence<'a>(page: &'a Page, start: &str) -> Vec<&'a str> {
    let (_, rest) = page.text.split_once(start).unwrap_or_else(|| panic!("no {start}"));
    let end = [". ", ".\n", "; means"];
    let end = end.iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
    spans(&rest[..end])
}

#[test]
fn keys_come_as_the_page_says() {
    let (page, report) = (page("docs/report.md"), report());
    let rows = table(&page, "## report.json");
    let listed: Vec<_> = rows.iter().map(|row| spans(row[0])[0]).collect();
    assert_eq!(keys(&report), listed);
    for row in &rows {
        let (name, value) = (spans(row[0])[0], &report[spans(row[0])[0]]);
        let value = value.as_array().map_or(value, |list| list.first().unwrap_or(&Value::Null));
        // The resolved scenario and the reader's facts have pages of their own.
        if let Some(object) = value.as_object()
            && !["scenario", "workload"].contains(&name)
        {
            let named = spans(row[1]);
            for key in object.keys() {
                assert!(named.contains(&key.as_str()), "{name}.{key} is not on the page");
            }
        }
    }
    assert_eq!(keys(&report["latency"]["ttft_ms"]), sentence(&page, "\nA summary holds "));
    assert_eq!(keys(&report["passes"]["mixed"]), sentence(&page, "\nA kind of pass holds "));
}

#[test]
fn reasons_are_those_of_the_page() {
    let (page, report) = (page("docs/report.md"), report());
    let sorted = |mut names: Vec<&str>| {
        names.sort_unstable();
        names.join(" ")
    };
    let rejected = keys(&report["requests"]["rejected"]);
    let rejected = rejected.into_iter().filter(|&key| key != "total").collect();
    assert_eq!(sorted(rejected), sorted(sentence(&page, "\nReasons of `rejected`: ")));
    let finish = keys(&report["requests"]["finish"]);
    assert_eq!(sorted(finish), sorted(sentence(&page, "Reasons of `finish`: ")));
}

#[test]
fn columns_come_as_the_page_says() {
    let page = page("docs/report.md");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.csv");
    let file = file.to_str().unwrap();
    output_of(&["replay", "traces/quickstart.jsonl", "--limit", "1", "--requests", file]);
    let rows = std::fs::read_to_string(file).unwrap();
    let listed = table(&page, "## The requests file");
    let listed: Vec<_> = listed.iter().flat_map(|row| spans(row[0])).collect();
    assert_eq!(rows.lines().next().unwrap(), listed.join(","));
}

/// Warnings cannot all be provoked in a short run, so that the enum is read.
#[test]
fn warnings_are_those_of_the_page() {
    let page = page("docs/report.md");
    let source = std::fs::read_to_string(root().join("src/report/warning.rs")).unwrap();
    let (_, list) = source.split_once("pub(crate) enum Warning {").unwrap();
    let (list, _) = list.split_once("\n}\n").unwrap();
    let variants = list.lines().filter_map(|line| {
        let name = line.strip_prefix("    ")?.strip_suffix(" {")?;
        name.starts_with(char::is_uppercase).then(|| snake_case(name))
    });
    let mut variants: Vec<_> = variants.collect();
    let rows = table(&page, "### Warnings");
    let mut listed: Vec<_> = rows.iter().map(|row| spans(row[0])[0].to_owned()).collect();
    variants.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, variants);
}

fn snake_case(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}
