//! Reading a scenario from text.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use serde_path_to_error::Segment;
use serde_saphyr::{Error, MessageFormatter, UserMessageFormatter};

use super::{Scenario, ScenarioError};
use crate::base::hint::nearest;
use crate::report::{SCHEMA as REPORT_FORMAT, scenario_of_report};

impl Scenario {
    /// Reads a scenario file (YAML or JSON), or the scenario inside a report.
    ///
    /// # Errors
    /// The file cannot be read, or says what no scenario may say; with line and column.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let text = fs::read_to_string(path)
            .map_err(|source| ScenarioError::Io { path: path.to_owned(), source })?;
        Self::from_text(&text, path)
    }

    /// Reads a scenario from the text of the file at `path`.
    pub(crate) fn from_text(text: &str, path: &Path) -> Result<Self, ScenarioError> {
        if let Some(scenario) = scenario_of_report(text) {
            let in_report =
                |(field, what)| ScenarioError::InReport { path: path.to_owned(), field, what };
            let other = |found: String| {
                ("schema".to_owned(), format!("found `{found}`, expected `{REPORT_FORMAT}`"))
            };
            return scenario.map_err(other).and_then(from_value).map_err(in_report);
        }
        // An empty file says nothing, so everything keeps its default.
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(Self::default());
        }
        serde_saphyr::from_str(text).map_err(|error| in_text(&error, text, path.to_owned()))
    }
}

/// A scenario from a value; else the field and what is wrong with it.
pub(super) fn from_value(value: Value) -> Result<Scenario, (String, String)> {
    serde_path_to_error::deserialize(&value).map_err(|error| {
        let field = error.path().to_string();
        let names: Option<Vec<String>> = (error.path().iter())
            .map(|segment| match segment {
                Segment::Map { key } => Some(key.clone()),
                Segment::Seq { index } => Some(index.to_string()),
                Segment::Enum { variant } => Some(variant.clone()),
                Segment::Unknown => None,
            })
            .collect();
        let what = with_hint(&error.into_inner().to_string());
        let Some(found) = what.strip_suffix(", expected map with a single key") else {
            return (field, what);
        };
        let choices = names.and_then(|names| choices_at(value, &names));
        let accepted = choices.unwrap_or_else(|| "one choice".to_owned());
        (field, format!("{found}, expected {accepted} and its fields"))
    })
}

/// The choices that the field at `path` of a scenario has, for people: what is said of a wrong one.
fn choices_at(mut value: Value, path: &[String]) -> Option<String> {
    let pointer = format!("/{}", path.join("/"));
    *value.pointer_mut(&pointer)? = serde_json::json!({"": null});
    let error = serde_json::from_value::<Scenario>(value).err()?.to_string();
    Some(error.strip_prefix("unknown variant ``, expected ")?.to_owned())
}

/// What is wrong with `text`, where, and what may have been meant.
fn in_text(error: &serde_saphyr::Error, text: &str, path: PathBuf) -> ScenarioError {
    let (line, column) = error.location().map_or((1, 1), |l| (l.line(), l.column()));
    let cause = cause_of(error);
    let what = match cause {
        Error::SerdeUnknownField { field, expected, .. } => unknown("field", field, expected),
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            unknown("choice", variant, expected)
        }
        Error::DuplicateMappingKey { .. } => described(cause),
        _ => match word_at(text, line, column) {
            Some(word) => format!("{}, found `{word}`", described(cause)),
            None if described(cause) != in_its_words(cause) => described(cause),
            None => match serde_saphyr::from_str(text).ok().and_then(|v| from_value(v).err()) {
                // An empty list or object is no word, but it has a name.
                Some((field, what)) => format!("`{field}`: {what}"),
                None => described(cause),
            },
        },
    };
    ScenarioError::Text { path, line, column, what }
}

/// What is wrong, whether it stands there or is repeated by an alias.
fn cause_of(error: &Error) -> &Error {
    let mut cause = error.without_snippet();
    while let Error::AliasError { error, .. } = cause {
        cause = error.without_snippet();
    }
    cause
}

/// What is wrong, in the words of a scenario.
pub(super) fn described(error: &Error) -> String {
    let error = cause_of(error);
    match error {
        Error::Unexpected { expected: "mapping start", .. } => {
            "expected fields, or `{}` for the defaults".to_owned()
        }
        Error::ExternallyTaggedEnumExpectedScalarOrMapping { .. } => {
            "expected a choice and its fields".to_owned()
        }
        Error::ExpectedMappingEndAfterEnumVariantValue { .. } => {
            "expected one choice, and there are two".to_owned()
        }
        Error::MultipleDocuments { .. } => "expected one YAML document".to_owned(),
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            "an alias cannot stand inside what it repeats".to_owned()
        }
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("`{key}` is there twice"),
        _ => in_its_words(error),
    }
}

/// What is wrong, as the parser says it.
fn in_its_words(error: &Error) -> String {
    UserMessageFormatter.format_message(error).replace(char::is_control, " ")
}

/// What stands at a place of the text, up to the next thing that ends a YAML scalar.
fn word_at(text: &str, line: u64, column: u64) -> Option<String> {
    let line = text.lines().nth(usize::try_from(line).ok()?.checked_sub(1)?)?;
    let rest = line.chars().skip(usize::try_from(column).ok()?.checked_sub(1)?);
    let word: String = rest.take_while(|c| !",{}[]#".contains(*c)).take(40).collect();
    let word = word.trim();
    // Where a value is missing, the place is that of the colon before it.
    (!word.is_empty() && word != ":").then(|| word.to_owned())
}

/// A name that is not accepted, those that are, and the nearest of them.
fn unknown(kind: &str, found: &str, accepted: &[&str]) -> String {
    let hint = nearest(found, accepted.iter().copied())
        .map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
    let list: Vec<String> = accepted.iter().map(|name| format!("`{name}`")).collect();
    format!("unknown {kind} `{found}`{hint} (accepted: {})", list.join(", "))
}

/// Whether `what` is the message of [`unknown`].
pub(super) fn is_unknown(what: &str) -> bool {
    what.starts_with("unknown ")
}

/// Adds the nearest accepted name to a message of serde's, which puts names in backticks.
fn with_hint(message: &str) -> String {
    for (kind, ours) in [("field", "field"), ("variant", "choice")] {
        if let Some(rest) = message.strip_prefix(&format!("unknown {kind} ")) {
            let names: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
            if let [found, accepted @ ..] = names.as_slice() {
                return unknown(ours, found, accepted);
            }
        }
    }
    let (found, expected) = message.rsplit_once(", expected ").unwrap_or((message, ""));
    match expected {
        "f64" => format!("{found}, expected a number"),
        "u16" => format!("{found}, expected an integer from 0 to {}", u16::MAX),
        "u32" => format!("{found}, expected an integer from 0 to {}", u32::MAX),
        "u64" => format!("{found}, expected an integer from 0 to {}", u64::MAX),
        "i32" => format!("{found}, expected an integer from {} to {}", i32::MIN, i32::MAX),
        _ => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{EngineConfig, WorkloadConfig};

    fn error(text: &str) -> String {
        Scenario::from_text(text, Path::new("s.yaml")).unwrap_err().to_string()
    }

    #[test]
    fn a_misspelt_field_has_a_place_and_a_hint() {
        let error = error("name: x\nengine:\n  vllm:\n    blok_size: 3\n");
        assert!(
            error.starts_with("s.yaml:4:5: unknown field `blok_size`; did you mean `block_size`?"),
            "{error}"
        );
        assert!(error.contains("`num_gpu_blocks`"), "{error}");
    }

    #[test]
    fn a_wrong_value_is_shown() {
        let error = error("engine:\n  vllm:\n    block_size: -3 # tokens\n");
        assert!(error.starts_with("s.yaml:3:17: ") && error.ends_with("found `-3`"), "{error}");
    }

    #[test]
    fn an_empty_value_names_its_field_and_what_it_may_be() {
        let lengths = "`fixed`, `uniform`, `normal`, `lognormal`, `zipf`, `geometric`, `empirical`";
        assert_eq!(
            error("workload: {synthetic: {output_tokens: {}}}"),
            format!(
                "s.yaml:1:40: `workload.synthetic.output_tokens`: invalid value: map, expected one \
                 of {lengths} and its fields"
            )
        );
        let classes = "workload: {synthetic: {classes: [{name: a}, {name: b, prompt_tokens: {}}]}}";
        assert!(
            error(classes).contains("`workload.synthetic.classes[1].prompt_tokens`: invalid value"),
            "{}",
            error(classes)
        );
        let rate = "workload: {synthetic: {arrivals: {constant: {requests_per_s: []}}}}";
        assert!(
            error(rate).ends_with(
                "`workload.synthetic.arrivals.constant.requests_per_s`: invalid type: sequence, \
                 expected a number"
            ),
            "{}",
            error(rate)
        );
        assert!(
            error("workload: {}")
                .ends_with("expected one of `trace`, `synthetic`, `servegen` and its fields"),
            "{}",
            error("workload: {}")
        );
    }

    #[test]
    fn a_misspelt_choice_has_a_hint() {
        let error = error("engine:\n  vlm: {}\n");
        assert!(error.contains("unknown choice `vlm`; did you mean `vllm`?"), "{error}");
    }

    #[test]
    fn json_is_yaml_and_absent_fields_keep_their_defaults() {
        let text = r#"{"workload": {"trace": {"path": "t.jsonl"}}, "engine": {"vllm": {"block_size": 32}}}"#;
        let scenario = Scenario::from_text(text, Path::new("s.json")).unwrap();
        let EngineConfig::Vllm(vllm) = &scenario.engine else { panic!("it is vLLM") };
        let WorkloadConfig::Trace(trace) = &scenario.workload else { panic!("it is a trace") };
        assert_eq!((vllm.block_size, trace.path.to_str()), (32, Some("t.jsonl")));
        assert_eq!(scenario.timing, Scenario::default().timing);
    }

    #[test]
    fn a_report_holds_a_scenario() {
        let text = r#"{"schema": "servesim.report/2", "scenario": {"seed": 7}, "passes": {}}"#;
        assert_eq!(Scenario::from_text(text, Path::new("r.json")).unwrap().seed, 7);
        let text = r#"{"schema": "servesim.report/2", "scenario": {"host": {"frontent_ms": 7}}}"#;
        let error = error(text);
        assert!(
            error.contains("`host.frontent_ms`") && error.contains("`frontend_ms`?"),
            "{error}"
        );
    }
}
