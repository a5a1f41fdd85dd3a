//! The tables of fields, flags and defaults agree with the program.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use servesim::{Assignment, Scenario};

use super::{Page, cells, output_of, page, spans, table};

/// A field that holds a value, as the schema says it.
#[derive(Debug, PartialEq, Eq)]
struct Field {
    kind: &'static str,
    /// The values of a choice or a boolean, as the page shows them.
    choices: Option<String>,
    /// As the page shows it.
    default: String,
}

/// Every field of a scenario, by path.
fn fields() -> BTreeMap<String, Field> {
    let schema = servesim::json_schema();
    let mut fields = BTreeMap::new();
    walk(&schema, &schema, "", None, &mut fields);
    fields
}

/// Types that stand at several places: how the page calls them in lists of their own, the type of a
/// field that holds one, and a place to try their fields at.
const SHARED: [(&str, &str, &str, &str); 7] = [
    ("MadeSessionsConfig", "SESSIONS", "sessions", "workload.synthetic.sessions"),
    ("LengthConfig", "LENGTH", "length", "workload.synthetic.prompt_tokens"),
    ("PairsConfig", "PAIRS", "pairs", "workload.synthetic.length_pairs"),
    ("ArrivalsConfig", "ARRIVALS", "arrivals", "workload.synthetic.arrivals"),
    ("PrefixesConfig", "PREFIXES", "prefixes", "workload.synthetic.prefixes"),
    ("ClassConfig", "CLASS", "list", "workload.synthetic.classes"),
    ("SegmentConfig", "SEGMENT", "list", "workload.synthetic.arrivals.piecewise.segments"),
];

/// Collects the fields below `node`, which stands at `path` and is `default` where it is absent.
fn walk(
    schema: &Value,
    node: &Value,
    path: &str,
    default: Option<&Value>,
    fields: &mut BTreeMap<String, Field>,
) {
    if let Some(reference) = node.get("$ref").and_then(Value::as_str) {
        let target = schema.pointer(reference.trim_start_matches('#')).unwrap();
        let name = reference.rsplit('/').next().unwrap();
        if let Some(&(_, root, kind, _)) = SHARED.iter().find(|shared| shared.0 == name) {
            // An element of a list has no place of its own.
            if !path.is_empty() {
                add(path, kind, None, default, fields);
            }
            if !fields.keys().any(|known| known.starts_with(&format!("{root}."))) {
                walk(schema, target, root, None, fields);
            }
            return;
        }
        return walk(schema, target, path, default, fields);
    }
    let options = ["anyOf", "oneOf"].iter().find_map(|key| node.get(key)?.as_array());
    if let Some(options) = options {
        let names: Vec<_> = options.iter().filter_map(|o| o["const"].as_str()).collect();
        if !names.is_empty() {
            let choices = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
            return add(path, "choice", Some(choices.join(", ")), default, fields);
        }
        for option in options.iter().filter(|option| option["type"] != "null") {
            // A shared type may be absent as well, and so may a choice; other options have no default.
            let default = match option.get("$ref") {
                Some(_) => default,
                None => default.filter(|default| default.is_null()),
            };
            walk(schema, option, path, default, fields);
        }
        return;
    }
    if let Some(properties) = node.get("properties").and_then(Value::as_object) {
        for (name, property) in properties {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            walk(schema, property, &path, property.get("default"), fields);
        }
        return;
    }
    let types = node["type"].as_array().cloned().unwrap_or_else(|| vec![node["type"].clone()]);
    let kind = match types.iter().find_map(|kind| kind.as_str().filter(|kind| *kind != "null")) {
        Some("string") => "text",
        Some("integer") => "integer",
        Some("number") => "number",
        Some("boolean") => "boolean",
        Some("array") => {
            if node["items"].get("$ref").is_some() {
                walk(schema, &node["items"], "", None, fields);
            }
            "list"
        }
        // A choice that has no fields.
        Some("object") if node.get("additionalProperties") == Some(&Value::Bool(false)) => return,
        Some("object") if node.get("additionalProperties").is_some() => "map",
        kind => panic!("{path} is a {kind:?}"),
    };
    let choices = (kind == "boolean").then(|| "`true`, `false`".to_owned());
    add(path, kind, choices, default, fields);
}

fn add(
    path: &str,
    kind: &'static str,
    choices: Option<String>,
    default: Option<&Value>,
    fields: &mut BTreeMap<String, Field>,
) {
    let defaults = serde_json::to_value(Scenario::default()).unwrap();
    let real = defaults.pointer(&format!("/{}", path.replace('.', "/")));
    if let (Some(default), Some(real)) = (default, real) {
        assert_eq!(default, real, "{path}: the schema's default is not the real one");
    }
    let default = default.or(real).map_or_else(|| "-".to_owned(), shown);
    let field = Field { kind, choices, default };
    assert_eq!(fields.insert(path.to_owned(), field), None, "{path} is there twice");
}

/// A default as the page shows it.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) if text.is_empty() => "required".to_owned(),
        Value::String(text) => format!("`{text}`"),
        Value::Bool(value) => format!("`{value}`"),
        Value::Object(map) if map.is_empty() => "none".to_owned(),
        Value::Array(list) if list.is_empty() => "required".to_owned(),
        Value::Number(number) => number.to_string().trim_end_matches(".0").to_owned(),
        // A choice in the flow style of YAML.
        Value::Object(_) => format!("`{}`", value.to_string().replace('"', "").replace(':', ": ")),
        Value::Array(_) => panic!("{value} is no value of a field"),
    }
}

/// The rows of the page's tables of fields: field, type, unit, accepted, default, meaning.
fn rows(page: &Page) -> Vec<Vec<&str>> {
    let rows = page.text.lines().filter(|line| line.starts_with("| `")).map(cells);
    rows.filter(|row| row.len() == 6).collect()
}

#[test]
fn the_scenario_page_agrees_with_the_schema() {
    let page = page("docs/scenario.md");
    let mut listed = BTreeMap::new();
    for row in rows(&page) {
        let &[name, kind, _unit, accepted, default, meaning] = row.as_slice() else { panic!() };
        let name = spans(name)[0];
        assert!(!meaning.is_empty(), "{name}");
        let shared = SHARED.iter().map(|shared| shared.2);
        let plain = ["text", "integer", "number", "boolean", "choice", "list", "map"].into_iter();
        let kind = plain.chain(shared).find(|k| *k == kind);
        let kind = kind.unwrap_or_else(|| panic!("{name}: no such type"));
        let choices = ["boolean", "choice"].contains(&kind).then(|| accepted.to_owned());
        let field = Field { kind, choices, default: default.to_owned() };
        assert_eq!(listed.insert(name.to_owned(), field), None, "{name} is listed twice");
    }
    let fields = fields();
    for name in listed.keys() {
        assert!(fields.contains_key(name), "there is no {name}");
    }
    for (name, field) in &fields {
        assert_eq!(listed.get(name), Some(field), "{name}");
    }
}

/// Fields that only stand together with others.
const WHOLES: [(&str, &str); 8] = [
    ("engine.vllm.speculative_config", "{method: eagle, num_speculative_tokens: 1}"),
    ("engine.trtllm.speculative_config", "{decoding_type: MTP, max_draft_len: 1}"),
    ("workload.servegen", "{path: folder}"),
    ("timing.external", "{command: [sh]}"),
    ("timing.operators", "{path: folder}"),
    ("timing.table", "{path: table.csv}"),
    (
        "model.shape",
        "{name: m, num_hidden_layers: 4, hidden_size: 64, num_attention_heads: 4, num_key_value_heads: 2, \
         head_dim: 16, intermediate_size: 128, vocab_size: 1000, max_position_embeddings: 4096, \
         experts: {num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 32}, \
         mla: {q_lora_rank: 8, kv_lora_rank: 8, qk_nope_head_dim: 8, qk_rope_head_dim: 8, v_head_dim: 8}, \
         sliding: {window_tokens: 128, layers: 2}, weight_type: bf16, activation_type: bf16, kv_type: bf16}",
    ),
    (
        "accelerator.data_sheet",
        "{name: a, memory_gb: 1000, memory_gb_per_s: 1000, tflops: {bf16: 100}, link_gb_per_s: 100}",
    ),
];

/// Whether a field takes a value; what follows from other fields is left out of account.
fn takes(field: &str, value: &str) -> bool {
    let mut scenario = Scenario::replay(Path::new("t.jsonl"));
    for (of, whole) in WHOLES {
        if field.starts_with(of) {
            let whole = Assignment::parse(&format!("{of}={whole}")).unwrap();
            scenario = scenario.with(&[whole]).unwrap();
        }
    }
    let (root, name) = field.split_once('.').unwrap_or(("", field));
    let shared = SHARED.iter().find(|shared| shared.1 == root);
    let (field, text) = match shared {
        Some((_, _, "list", place)) => {
            // Classes have names, and some fields are for arrivals of their own.
            let rest = match (root, name) {
                ("CLASS", "requests") => ", name: a, arrivals: {poisson: {requests_per_s: 1000}}",
                ("CLASS", _) => ", name: a",
                _ => "",
            };
            (format!("{place}[0].{name}"), format!("{place}=[{{{name}: {value}{rest}}}]"))
        }
        Some((_, _, _, place)) => (format!("{place}.{name}"), format!("{place}.{name}={value}")),
        None => (field.to_owned(), format!("{field}={value}")),
    };
    let assigned = Assignment::parse(&text).and_then(|a| scenario.with(&[a]));
    let Ok(scenario) = assigned else { return false };
    match scenario.resolve(Path::new("")) {
        Ok(_) => true,
        // That is how one field limits another.
        Err(error) => {
            error.path != field
                || error.accepted.starts_with("at most")
                || error.accepted.ends_with("as vLLM requires")
        }
    }
}

/// Values just inside and just outside of what the page says is accepted.
fn edges(accepted: &str, is_integer: bool) -> (Vec<String>, Vec<String>) {
    let step = |edge: &str, by: i128| match edge.parse::<i128>() {
        Ok(edge) if is_integer => (edge + by).to_string(),
        _ => (edge.parse::<f64>().unwrap() + by as f64 / 2.0).to_string(),
    };
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    if accepted == "finite" {
        return (vec!["-1e300".into(), "1e300".into()], vec![".inf".into(), ".nan".into()]);
    }
    let (low, high) = accepted.split_once("to ").unwrap_or((accepted, ""));
    let low = low.trim().trim_end_matches(',');
    if let Some(edge) = low.strip_prefix("above ") {
        // A window ends above its start, which is 0 where it is not set.
        outside.push(if edge.starts_with('`') { "0".to_owned() } else { edge.to_owned() });
        inside.push("0.001".to_owned());
    } else {
        let edge = low.trim_start_matches("at least ");
        inside.push(edge.to_owned());
        outside.push(step(edge, -1));
    }
    if let Some(edge) = high.strip_prefix("below ") {
        outside.push(edge.to_owned());
        inside.push("0.999".to_owned());
    } else if !high.is_empty() && !high.starts_with('`') {
        inside.push(high.to_owned());
        outside.push(step(high, 1));
    }
    (inside, outside)
}

#[test]
fn the_accepted_ranges_are_tight() {
    let page = page("docs/scenario.md");
    let mut checked = 0;
    for row in rows(&page) {
        let (field, kind, accepted) = (spans(row[0])[0], row[1], row[3]);
        if !["integer", "number"].contains(&kind) {
            continue;
        }
        let (inside, outside) = edges(accepted, kind == "integer");
        for value in inside {
            assert!(takes(field, &value), "{field} refuses {value}, the page says {accepted}");
        }
        for value in outside {
            assert!(!takes(field, &value), "{field} takes {value}, the page says {accepted}");
        }
        checked += 1;
    }
    assert!(checked > 25, "{checked}");
}

#[test]
fn the_page_of_traces_has_the_same_fields_and_defaults() {
    let page = page("docs/traces.md");
    let listed: BTreeMap<_, _> =
        table(&page, "## Fields").iter().map(|row| (spans(row[0])[0], row[1].to_owned())).collect();
    let fields = fields();
    let mut expected = BTreeMap::new();
    for (path, field) in &fields {
        let Some(name) = path.strip_prefix("workload.trace.") else { continue };
        match name.split_once('.') {
            Some((outer, _)) => expected.insert(outer, "none".to_owned()),
            None => expected.insert(name, field.default.clone()),
        };
    }
    assert_eq!(listed, expected);
}

/// Flags and values that change their field.
const FLAGS: [(&str, &str); 13] = [
    ("--engine", "sglang"),
    ("--warm-cache", "3"),
    ("--model", "qwen3-8b"),
    ("--gpu", "h200-sxm"),
    ("--tp", "2"),
    ("--seed", "5"),
    ("--warmup", "10"),
    ("--window", "1:2"),
    ("--speedup", "2"),
    ("--limit", "50"),
    ("--trace-window", "0:9"),
    ("--trace-format", "mooncake"),
    ("--sessions", "think"),
];

#[test]
fn the_flags_are_those_of_the_help_and_set_their_fields() {
    let page = page("docs/scenario.md");
    let rows = table(&page, "## Flags");
    let listed: BTreeSet<_> = rows.iter().map(|row| spans(row[0])[0].to_owned()).collect();
    for command in ["run", "replay"] {
        let help = output_of(&[command, "--help"]);
        let flag = |line: &str| {
            let line = line.trim_start();
            let line =
                line.strip_prefix("-q, ").or_else(|| line.strip_prefix("-h, ")).unwrap_or(line);
            let name = line.split([' ', '\n']).next()?;
            name.starts_with("--").then(|| name.to_owned())
        };
        let mut flags: BTreeSet<_> = help.lines().filter_map(flag).collect();
        assert!(flags.remove("--help"));
        let differing: Vec<_> = listed.symmetric_difference(&flags).collect();
        assert!(differing.is_empty(), "{command}: only in the page or the help: {differing:?}");
    }

    // Two flags set one field, so that they do not stand together.
    let report_without = |other: &str| -> Value {
        let mut args = vec!["replay", "traces/quickstart.jsonl", "--format", "json"];
        let flags = FLAGS.iter().filter(|&&(flag, _)| flag != other);
        args.extend(flags.flat_map(|&(flag, value)| [flag, value]));
        serde_json::from_str(&output_of(&args)).unwrap()
    };
    let (cold, warm) = (report_without("--warm-cache"), report_without("--warmup"));
    let defaults = serde_json::to_value(Scenario::default()).unwrap();
    for row in rows.iter().filter(|row| row[1].starts_with('`')) {
        let (flag, field) = (spans(row[0])[0], spans(row[1])[0]);
        assert!(FLAGS.iter().any(|&(name, _)| name == flag), "{flag} is not tried");
        let report = if flag == "--warm-cache" { &warm } else { &cold };
        let pointer = format!("/{}", field.replace('.', "/"));
        let (found, default) = (report["scenario"].pointer(&pointer), defaults.pointer(&pointer));
        assert!(found.is_some() && found != default, "{flag} does not change {field}");
    }
}

/// Chunks and graphs of SGLang by memory, on one accelerator and on four.
#[test]
fn chunks_and_graphs_follow_the_memory_as_the_page_says() {
    let page = page("docs/scenario.md");
    let resolved = |gib: Option<f64>, size: u32| {
        let mut settings = vec![
            "engine.sglang={allow_overcommit: true, max_total_tokens: 1000}".to_owned(),
            "timing.fixed={}".to_owned(),
            format!("parallel.tensor_parallel_size={size}"),
        ];
        if let Some(gib) = gib {
            let memory_gb = gib * 1.073_741_824;
            settings.push(format!(
                "accelerator.data_sheet={{name: a, memory_gb: {memory_gb}, memory_gb_per_s: 1, \
                 tflops: {{bf16: 1}}, link_gb_per_s: 1}}"
            ));
        }
        let settings: Vec<_> = settings.iter().map(|s| Assignment::parse(s).unwrap()).collect();
        let scenario = Scenario::replay(Path::new("t.jsonl")).with(&settings).unwrap();
        let scenario = serde_json::to_value(scenario.resolve(Path::new("")).unwrap()).unwrap();
        let sglang = &scenario["engine"]["sglang"];
        (sglang["chunked_prefill_size"].to_string(), sglang["cuda_graph_max_bs_decode"].to_string())
    };
    let rows = table(&page, "#### Defaults by memory");
    assert_eq!(rows.len(), 6);
    for row in rows {
        let gib = match row[0].split_whitespace().collect::<Vec<_>>()[..] {
            ["below", gib, "GiB"] => Some(gib.parse::<f64>().unwrap() - 0.01),
            ["more"] => Some(160.0),
            _ => None,
        };
        assert_eq!(resolved(gib, 1), (row[1].to_owned(), row[2].to_owned()), "{row:?}");
        assert_eq!(resolved(gib, 4), (row[1].to_owned(), row[3].to_owned()), "{row:?}");
    }
}

/// The table's device, server and offline figures, and the sentence on `engine`.
#[test]
fn budget_and_seats_follow_the_device_as_the_page_says() {
    let page = page("docs/engines/vllm.md");
    let resolved = |device: &str, usage: &str| {
        let assignments = ["device", "usage"].iter().zip([device, usage]);
        let assignments: Vec<_> = assignments
            .map(|(field, value)| Assignment::parse(&format!("engine.vllm.{field}={value}")))
            .map(Result::unwrap)
            .collect();
        let scenario = Scenario::replay(Path::new("t.jsonl")).with(&assignments).unwrap();
        let scenario = serde_json::to_value(scenario.resolve(Path::new("")).unwrap()).unwrap();
        let vllm = &scenario["engine"]["vllm"];
        format!("{}, {}", vllm["max_num_batched_tokens"], vllm["max_num_seqs"])
    };
    let rows = table(&page, "## Defaults");
    let devices: Vec<_> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(devices.join(", "), fields()["engine.vllm.device"].choices.clone().unwrap());
    for row in rows {
        let device = spans(row[0])[0];
        assert_eq!(resolved(device, "server"), row[2], "{device}, server");
        assert_eq!(resolved(device, "offline"), row[3], "{device}, offline");
        assert!(page.text.contains(&format!("`usage: engine` is {}", resolved(device, "engine"))));
    }
}

#[test]
fn edges_follow_the_words_of_the_page() {
    let pair = |inside: &[&str], outside: &[&str]| {
        let owned = |values: &[&str]| values.iter().map(|&v| v.to_owned()).collect::<Vec<_>>();
        (owned(inside), owned(outside))
    };
    assert_eq!(edges("1 to 9", true), pair(&["1", "9"], &["0", "10"]));
    assert_eq!(edges("0 to 60", false), pair(&["0", "60"], &["-0.5", "60.5"]));
    assert_eq!(edges("at least 0", false), pair(&["0"], &["-0.5"]));
    assert_eq!(edges("0 to below 1", false), pair(&["0", "0.999"], &["-0.5", "1"]));
    assert_eq!(edges("above `a`, to 9", false), pair(&["0.001", "9"], &["0", "9.5"]));
}
