//! The JSON Schema of scenarios, for editors and for people.

use serde_json::Value;

use super::Scenario;

/// The JSON Schema (draft 2020-12) of a scenario file.
#[must_use]
pub fn json_schema() -> Value {
    schemars::schema_for!(Scenario).to_value()
}
