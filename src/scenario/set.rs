//! `--set path.to.field=value`: one field, whatever the file says.

use serde_json::{Map, Value};

use super::load::{described, from_value, is_unknown};
use super::{Scenario, ScenarioError};

/// Fields that hold one of several choices, named by an outer key: assigning to another choice
/// replaces the one that was made.
const CHOICES: [&str; 16] = [
    "workload",
    "workload.trace.sessions",
    "workload.trace.reshape.arrivals",
    "workload.trace.reshape.prompt_tokens",
    "workload.trace.reshape.output_tokens",
    "workload.synthetic.prompt_tokens",
    "workload.synthetic.output_tokens",
    "workload.synthetic.length_pairs",
    "workload.synthetic.prefixes.prefix_tokens",
    "workload.synthetic.sessions.turns",
    "workload.synthetic.sessions.added_tokens",
    "workload.synthetic.arrivals",
    "engine",
    "timing",
    "speculation.acceptance",
    "metrics.warmup",
];

/// An assignment to one field of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    text: String,
    path: Vec<String>,
    value: Value,
    /// The value as it was written, if YAML takes it for a number or a truth value: a name may look
    /// like one.
    word: Option<String>,
    /// Whether it may make another choice than the one that was made, as from a synthetic workload to
    /// a trace.
    may_choose: bool,
    /// Whether it makes a choice whose other fields stay what they are, if it is the choice already.
    merges: bool,
}

impl Assignment {
    /// Reads `path.to.field=value`. The value is YAML, so `8`, `true`, `[1, 2]` and `null` (back
    /// to the default) mean what they say.
    ///
    /// # Errors
    /// There is no `=`, a part of the path is empty, or the value is no YAML.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let missing = || ScenarioError::NoAssignment { text: text.to_owned() };
        let (path, value) = text.split_once('=').ok_or_else(missing)?;
        let path: Vec<String> = path.trim().split('.').map(str::to_owned).collect();
        if path.iter().any(String::is_empty) {
            return Err(missing());
        }
        let word = value.trim();
        let value = if word.is_empty() {
            Value::Null
        } else {
            serde_saphyr::from_str(value).map_err(|error| ScenarioError::Assignment {
                text: format!("--set {text}"),
                field: path.join("."),
                what: described(&error),
            })?
        };
        let word = (value.is_number() || value.is_boolean()).then(|| word.to_owned());
        let text = format!("--set {text}");
        Ok(Self { text, path, value, word, may_choose: true, merges: false })
    }

    /// An assignment by a flag of its own, which errors call `flag`. It makes no choice.
    pub(crate) fn by_flag(flag: String, path: &str, value: impl Into<Value>) -> Self {
        let path = path.split('.').map(str::to_owned).collect();
        let value = value.into();
        Self { text: flag, path, value, word: None, may_choose: false, merges: false }
    }

    /// The same assignment of a choice and some of its fields; if the choice was made already, its other
    /// fields stay what they are.
    pub(crate) fn merging(self) -> Self {
        Self { merges: true, ..self }
    }

    /// Whether it is to the field `outer` or to one below it.
    pub(crate) fn is_within(&self, outer: &str) -> bool {
        let outer: Vec<&str> = outer.split('.').collect();
        self.path.len() >= outer.len() && self.path.iter().zip(outer).all(|(a, b)| a == b)
    }

    /// `scenario` with the assignment made; else the field and what is wrong with it.
    fn applied_to(&self, scenario: &Scenario) -> Result<Scenario, (String, String)> {
        let plain = serde_json::to_value(scenario).expect("a scenario is plain data");
        if let Some(what) = self.other_choice(&plain) {
            return Err((self.path.join("."), what));
        }
        let mut changed = plain.clone();
        self.put(&mut changed, &self.value).map_err(|what| (self.path.join("."), what))?;
        let made = from_value(changed);
        if self.value.is_null() {
            // There is nothing to go back to where there is no such field.
            if let Err((field, what)) = made
                && is_unknown(&what)
            {
                return Err((field, what));
            }
            let mut changed = plain;
            self.take(&mut changed);
            return from_value(changed);
        }
        made.or_else(|error| {
            let Some(word) = &self.word else { return Err(error) };
            let mut changed = plain;
            self.put(&mut changed, &Value::from(word.as_str())).map_err(|_| error.clone())?;
            from_value(changed).map_err(|_| error)
        })
    }

    /// What stands in the way of an assignment that may make no choice.
    fn other_choice(&self, root: &Value) -> Option<String> {
        if self.may_choose {
            return None;
        }
        let mut node = root;
        for (depth, name) in self.path.iter().enumerate() {
            let walked = self.path[..depth].join(".");
            if CHOICES.contains(&walked.as_str()) && node.get(name).is_none() {
                let made = node.as_object().and_then(|object| object.keys().next())?;
                return Some(format!("`{walked}` is `{made}`, not `{name}`"));
            }
            node = node.get(name)?;
        }
        None
    }

    /// Puts `value` into its place, and makes the way there.
    fn put(&self, root: &mut Value, value: &Value) -> Result<(), String> {
        let mut node = root;
        let mut walked = String::new();
        let (last, outer) = self.path.split_last().expect("a path has a part");
        for name in outer.iter().chain(std::iter::once(last)) {
            let is_last = std::ptr::eq(name, last);
            if node.is_null() {
                *node = Value::Object(Map::new());
            }
            let Some(object) = node.as_object_mut() else {
                return Err(format!("`{walked}` is a value, it has no `{name}`"));
            };
            if CHOICES.contains(&walked.as_str()) {
                object.retain(|choice, _| choice == name);
            }
            if is_last {
                let mut value = value.clone();
                if self.merges
                    && let Some(made) = object.get(name)
                {
                    merge(&mut value, made);
                }
                object.insert(name.clone(), value);
                return Ok(());
            }
            node = object.entry(name.clone()).or_insert(Value::Null);
            if !walked.is_empty() {
                walked.push('.');
            }
            walked.push_str(name);
        }
        Ok(())
    }

    /// Takes out what stands in the place, if there is anything.
    fn take(&self, root: &mut Value) {
        let (mut last, mut outer) = self.path.split_last().expect("a path has a part");
        // A field that holds one of several choices goes back to its default with the one it holds.
        if CHOICES.contains(&outer.join(".").as_str())
            && at(root, outer).is_some_and(|choice| choice.get(last).is_some())
        {
            (last, outer) = outer.split_last().expect("the name of a choice has a part");
        }
        if let Some(object) = at(root, outer).and_then(Value::as_object_mut) {
            object.remove(last);
        }
    }
}

/// Fills in what the choice in `value` leaves out, from `made` if that is the same choice.
fn merge(value: &mut Value, made: &Value) {
    for (name, fields) in value.as_object_mut().into_iter().flatten() {
        let known = made.get(name).and_then(Value::as_object);
        if let (Some(fields), Some(known)) = (fields.as_object_mut(), known) {
            for (field, value) in known {
                fields.entry(field.clone()).or_insert_with(|| value.clone());
            }
        }
    }
}

/// What stands at `path` below `root`.
fn at<'a>(root: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(root, |node, name| node.get_mut(name))
}

impl Scenario {
    /// The same scenario with `assignments` made, in order.
    ///
    /// # Errors
    /// The first assignment that names no field, or gives it a value it cannot have.
    pub fn with(&self, assignments: &[Assignment]) -> Result<Self, ScenarioError> {
        let mut scenario = self.clone();
        scenario.check_path()?;
        for assignment in assignments {
            scenario = assignment.applied_to(&scenario).map_err(|(field, what)| {
                ScenarioError::Assignment { text: assignment.text.clone(), field, what }
            })?;
        }
        Ok(scenario)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::sglang::config::SglangConfig;
    use crate::scenario::{EngineConfig, WarmupConfig, json_schema};
    use crate::timing::config::{FixedConfig, TimingConfig};

    fn set(text: &str) -> Result<Scenario, ScenarioError> {
        Scenario::default().with(&[Assignment::parse(text)?])
    }

    #[test]
    fn a_nested_field_is_set_and_unset() {
        let scenario = set("engine.vllm.max_num_seqs=64").unwrap();
        let EngineConfig::Vllm(vllm) = &scenario.engine else { panic!("it is vLLM") };
        assert_eq!(vllm.max_num_seqs, Some(64));
        let back = scenario.with(&[Assignment::parse("engine.vllm.max_num_seqs=null").unwrap()]);
        assert_eq!(back.unwrap(), Scenario::default());
    }

    #[test]
    fn assigning_to_another_choice_makes_it() {
        let expected = FixedConfig { decode_ms: 5.0, ..FixedConfig::default() };
        let timing = set("timing.fixed.decode_ms=5").unwrap().timing;
        assert_eq!(timing, Some(TimingConfig::Fixed(expected)));
        let EngineConfig::Sglang(sglang) = set("engine.sglang.page_size=16").unwrap().engine else {
            panic!("the family was chosen")
        };
        assert_eq!(sglang, SglangConfig { page_size: 16, ..SglangConfig::default() });
        let warmup = set("metrics.warmup.requests=100").unwrap().metrics.warmup;
        assert_eq!(warmup, Some(WarmupConfig::Requests(100)));
    }

    #[test]
    fn mistakes_name_the_field_and_what_is_meant() {
        for (text, expected) in [
            ("engine.vllm.max_num_seq=64", "did you mean `max_num_seqs`?"),
            ("engin.vllm.block_size=64", "did you mean `engine`?"),
            ("engine.vllm.block_size=many", "`engine.vllm.block_size`: invalid type"),
            ("engine.vllm.block_size.x=1", "`engine.vllm.block_size` is a value"),
            ("seed", "expected PATH=VALUE"),
            (".seed=1", "expected PATH=VALUE"),
        ] {
            let error = set(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    /// Every field of the schema can be assigned to, and every choice of it is listed.
    #[test]
    fn a_rule_that_is_made_again_keeps_its_other_fields() {
        let path = "workload.trace.sessions";
        let set = |text: &str| Assignment::parse(&format!("{path}.{text}")).unwrap();
        let flag = |value| Assignment::by_flag("--sessions".to_owned(), path, value).merging();
        let scenario = Scenario::replay(std::path::Path::new("t"));
        let made = |set: Assignment, value| {
            let scenario = scenario.with(&[set, flag(value)]).unwrap();
            serde_json::to_value(scenario).unwrap()["workload"]["trace"]["sessions"].clone()
        };
        let json = made(set("think.think_s_max=2"), serde_json::json!({"think": {}}));
        assert_eq!(json["think"]["think_s_max"], 2.0);
        let json = made(set("closed.counts=requests"), serde_json::json!({"closed": {"users": 8}}));
        assert_eq!(json["closed"]["counts"], "requests");
        assert_eq!(json["closed"]["users"], 8);
        // Another rule takes its place whole.
        let json = made(set("think.think_s_max=2"), serde_json::json!({"closed": {"users": 8}}));
        assert!(json.get("think").is_none() && json["closed"]["think_s_max"].is_null());
    }

    #[test]
    fn assignments_reach_every_field() {
        let schema = json_schema();
        let mut choices = Vec::new();
        let mut leaves = Vec::new();
        walk(&schema, &schema, String::new(), &mut choices, &mut leaves);
        choices.sort();
        let mut listed: Vec<String> = CHOICES.map(str::to_owned).to_vec();
        listed.sort();
        assert_eq!(choices, listed);
        assert!(leaves.len() > 40, "{leaves:?}");
        for path in leaves {
            // A value that no field takes: whatever is refused must be that field.
            let error = set(&format!("{path}=[[[]]]")).unwrap_err().to_string();
            // Of a list it is the first element, or what stands first in that.
            let refused = error.replace("[0]", "");
            assert!(refused.contains(&format!("`{path}`: invalid")), "{path}: {error}");
        }
    }

    fn walk(
        root: &Value,
        node: &Value,
        path: String,
        choices: &mut Vec<String>,
        leaves: &mut Vec<String>,
    ) {
        if let Some(reference) = node.get("$ref").and_then(Value::as_str) {
            let target = root.pointer(reference.trim_start_matches('#')).unwrap();
            return walk(root, target, path, choices, leaves);
        }
        for key in ["anyOf", "oneOf"] {
            let Some(options) = node.get(key).and_then(Value::as_array) else { continue };
            let is_choice = options.iter().any(|o| o.get("properties").is_some());
            let has_object = options.iter().any(|o| o.get("$ref").is_some());
            if is_choice || has_object {
                if is_choice {
                    choices.push(path.clone());
                }
                for option in options.iter().filter(|o| o["type"] != "null") {
                    walk(root, option, path.clone(), choices, leaves);
                }
                return;
            }
        }
        if let Some(properties) = node.get("properties").and_then(Value::as_object) {
            for (name, property) in properties {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                walk(root, property, path, choices, leaves);
            }
            return;
        }
        leaves.push(path);
    }
}
