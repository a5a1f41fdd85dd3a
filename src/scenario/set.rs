//! `--set path.to.field=value`: one field, whatever the file says.

use serde_json::{Map, Value};

use super::load::from_value;
use super::{Scenario, ScenarioError};

/// Fields that hold one of several choices, named by an outer key: assigning to another choice
/// replaces the one that was made.
const CHOICES: [&str; 7] = [
    "workload",
    "workload.synthetic.prompt_tokens",
    "workload.synthetic.output_tokens",
    "workload.synthetic.arrivals",
    "engine",
    "timing",
    "metrics.warmup",
];

/// An assignment to one field of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    text: String,
    path: Vec<String>,
    value: Value,
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
        let value = if value.trim().is_empty() {
            Value::Null
        } else {
            serde_saphyr::from_str(value).map_err(|error| ScenarioError::Assignment {
                text: format!("--set {text}"),
                field: path.join("."),
                what: error.without_snippet().to_string(),
            })?
        };
        Ok(Self { text: format!("--set {text}"), path, value })
    }

    /// An assignment by a flag of its own, which errors call `flag`.
    pub(crate) fn by_flag(flag: String, path: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        Self { text: flag, path: path.split('.').map(str::to_owned).collect(), value }
    }

    fn apply_to(&self, root: &mut Value) -> Result<(), String> {
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
                if self.value.is_null() {
                    object.remove(name);
                } else {
                    object.insert(name.clone(), self.value.clone());
                }
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
            let failed = |field: String, what: String| ScenarioError::Assignment {
                text: assignment.text.clone(),
                field,
                what,
            };
            let mut value = serde_json::to_value(&scenario).expect("a scenario is plain data");
            assignment
                .apply_to(&mut value)
                .map_err(|what| failed(assignment.path.join("."), what))?;
            scenario = from_value(value).map_err(|(field, what)| failed(field, what))?;
        }
        Ok(scenario)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{EngineConfig, WarmupConfig, json_schema};
    use crate::timing::config::{FixedConfig, TimingConfig};

    fn set(text: &str) -> Result<Scenario, ScenarioError> {
        Scenario::default().with(&[Assignment::parse(text)?])
    }

    #[test]
    fn a_nested_field_is_set_and_unset() {
        let scenario = set("engine.vllm.max_num_seqs=64").unwrap();
        let EngineConfig::Vllm(vllm) = &scenario.engine;
        assert_eq!(vllm.max_num_seqs, Some(64));
        let back = scenario.with(&[Assignment::parse("engine.vllm.max_num_seqs=null").unwrap()]);
        assert_eq!(back.unwrap(), Scenario::default());
    }

    #[test]
    fn assigning_to_another_choice_makes_it() {
        let expected = FixedConfig { decode_ms: 5.0, ..FixedConfig::default() };
        assert_eq!(set("timing.fixed.decode_ms=5").unwrap().timing, TimingConfig::Fixed(expected));
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
            assert!(error.contains(&format!("`{path}`: invalid")), "{path}: {error}");
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
