//! JSON traces with one object a line, read field by field.
//!
//! A line is parsed into a tree, which is fast enough where rows are short. Rows whose ids make up
//! most of a large trace have a reader of their own, see `mooncake`.

use serde_json::{Map, Value};

use super::config::{LabelsConfig, TraceConfig};
use super::lines::{Line, Lines};
use super::mooncake::{content, show};
use super::stamp::{SECONDS, Unit, unit_of_seconds};
use super::table::TOKENS;
use super::{FormatFacts, IgnoredFields, Row, RowReader, RowTurn, TraceError};
use crate::base::hint::nearest;

/// A trace of JSON objects, one a line.
pub(super) struct JsonRows {
    lines: Lines,
    /// The fields that the reader uses.
    known: Vec<String>,
    /// Those that tie rows to each other, where that is wanted.
    ties: &'static [&'static str],
    /// The field of the class.
    class: Option<String>,
    ignored: IgnoredFields,
}

impl JsonRows {
    /// Reads `lines`, of which the fields in `known` are used.
    pub(super) fn new(lines: Lines, known: &[&str], config: &TraceConfig) -> Self {
        let class = config.class_field.clone();
        let known = known.iter().map(|&name| name.to_owned()).collect();
        Self { lines, known, ties: &[], class, ignored: IgnoredFields::default() }
    }

    /// The same lines, of which these fields tie rows to each other. They are used where `config` wants
    /// that.
    #[must_use]
    pub(super) fn tied(self, ties: &'static [&'static str], config: &TraceConfig) -> Self {
        Self { ties: if config.sessions.is_some() { ties } else { &[] }, ..self }
    }

    /// The next row, or `None` at the end.
    ///
    /// # Errors
    /// The line cannot be read, or is no JSON object.
    pub(super) fn next_row(&mut self) -> Result<Option<JsonRow<'_>>, TraceError> {
        let Some(line) = self.lines.next_line()? else {
            return Ok(None);
        };
        let fields = object(&line)?;
        for name in fields.keys().map(String::as_str) {
            let is_class = self.class.as_deref() == Some(name);
            if !is_class
                && !self.known.iter().any(|known| known == name)
                && !self.ties.contains(&name)
            {
                self.ignored.add(name);
            }
        }
        let class = self.class.as_deref();
        Ok(Some(JsonRow {
            line,
            fields,
            known: &self.known,
            class,
            follows: !self.ties.is_empty(),
        }))
    }

    /// Fields that rows have had so far and that are not used.
    pub(super) fn ignored(&self) -> &IgnoredFields {
        &self.ignored
    }
}

/// One row.
pub(super) struct JsonRow<'a> {
    pub(super) line: Line<'a>,
    pub(super) fields: Map<String, Value>,
    known: &'a [String],
    class: Option<&'a str>,
    /// Whether it may say what it follows.
    pub(super) follows: bool,
}

impl JsonRow<'_> {
    /// What its class is called.
    pub(super) fn class(&self) -> Option<Box<str>> {
        self.text(self.class?).map(String::into_boxed_str)
    }

    /// The text of a field that may hold any single value; nothing where it is absent or `null`.
    pub(super) fn text(&self, field: &str) -> Option<String> {
        match self.fields.get(field)? {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            value => Some(value.to_string()),
        }
    }

    /// A number of tokens.
    ///
    /// # Errors
    /// There is no such field, or it is no count.
    pub(super) fn tokens(&self, field: &str) -> Result<u32, TraceError> {
        self.required(field, TOKENS, as_u32)
    }

    /// A stamp, in nanoseconds.
    ///
    /// # Errors
    /// There is no such field, or it is no stamp.
    pub(super) fn stamp(&self, field: &str, unit: Unit) -> Result<i128, TraceError> {
        self.required(field, unit.accepted, |value| unit.of_value(value))
    }

    /// An array of ids, or `None` where the field is absent or `null`.
    ///
    /// # Errors
    /// The field is something else.
    pub(super) fn ids(&self, field: &str) -> Result<Option<Vec<u64>>, TraceError> {
        self.optional(field, IDS, as_ids)
    }

    /// The field's value as `read` understands it.
    ///
    /// # Errors
    /// There is no such field, or `read` makes nothing of it.
    pub(super) fn required<T>(
        &self,
        field: &str,
        accepted: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T, TraceError> {
        match self.fields.get(field) {
            Some(value) => {
                read(value).ok_or_else(|| self.line.refuse(field, show(value), accepted))
            }
            None => Err(self.missing(field, accepted)),
        }
    }

    /// As [`JsonRow::required`], but `None` where the field is absent or `null`.
    pub(super) fn optional<T>(
        &self,
        field: &str,
        accepted: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, TraceError> {
        match self.fields.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(_) => self.required(field, accepted, read).map(Some),
        }
    }

    /// The error that `field` is not there.
    pub(super) fn missing(&self, field: &str, accepted: &str) -> TraceError {
        let strangers = self.fields.keys().filter(|name| !self.known.contains(name));
        let near = nearest(field, strangers.map(String::as_str));
        let mut refused = self.line.refuse(field, "missing", accepted);
        if let (TraceError::Field { hint, .. }, Some(name)) = (&mut refused, near) {
            *hint = format!(", did you mean `{name}`?");
        }
        refused
    }
}

/// What ids may be, for people.
pub(super) const IDS: &str = "an array of integers from 0 to 18446744073709551615";

/// An array of ids.
pub(super) fn as_ids(value: &Value) -> Option<Vec<u64>> {
    value.as_array()?.iter().map(Value::as_u64).collect()
}

/// A count that fits 32 bits.
pub(super) fn as_u32(value: &Value) -> Option<u32> {
    value.as_u64()?.try_into().ok()
}

/// The fields of a line's object.
///
/// # Errors
/// The line is not JSON, or not an object.
pub(super) fn object(line: &Line<'_>) -> Result<Map<String, Value>, TraceError> {
    let malformed = |column, reason: String| TraceError::Json {
        path: line.path.to_owned(),
        line: line.number,
        column,
        reason,
    };
    match serde_json::from_str(line.text) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(malformed(1, "expected an object".to_owned())),
        Err(error) => Err(malformed(error.column().max(1), reason_of(&error))),
    }
}

/// What a JSON error says, without the place.
pub(super) fn reason_of(error: &serde_json::Error) -> String {
    error.to_string().split(" at line ").next().unwrap_or_default().to_owned()
}

/// Whether `line` is a JSON object that has all of `names`; a line that is cut short has none.
pub(super) fn has_fields(line: &str, names: &[&str]) -> bool {
    // Cheaper than parsing, where most lines are of another format.
    if !names.iter().all(|name| line.contains(&format!("\"{name}\""))) {
        return false;
    }
    serde_json::from_str::<Map<String, Value>>(line)
        .is_ok_and(|fields| names.iter().all(|&name| fields.contains_key(name)))
}

/// Rows of stamps, lengths and ids, under the names of Mooncake's unless they are given others.
pub(super) struct HashedRows {
    rows: JsonRows,
    block_tokens: u32,
    turn: Turn,
    labels: LabelsConfig,
    unit: Unit,
}

/// What a row says of what it follows.
type Turn = fn(&JsonRow<'_>) -> Result<Option<RowTurn>, TraceError>;

impl HashedRows {
    /// Reads `lines`, with stamps in seconds, whose ids name so many tokens unless `config` says otherwise.
    pub(super) fn new(lines: Lines, block_tokens: u32, config: &TraceConfig) -> Self {
        Self::labelled(lines, block_tokens, LabelsConfig::default(), config)
    }

    /// Reads `lines`, whose fields and unit of time are those of `labels`.
    pub(super) fn labelled(
        lines: Lines,
        block_tokens: u32,
        labels: LabelsConfig,
        config: &TraceConfig,
    ) -> Self {
        let LabelsConfig { timestamp, input_length, output_length, hash_ids, .. } = &labels;
        let known = [timestamp, input_length, output_length, hash_ids].map(String::as_str);
        let rows = JsonRows::new(lines, &known, config);
        let unit = unit_of_seconds(labels.seconds_per_unit).unwrap_or(SECONDS);
        let block_tokens = config.hash_block_tokens.unwrap_or(block_tokens);
        Self { rows, block_tokens, turn: |_| Ok(None), labels, unit }
    }

    /// The same rows, which `ties` tie to each other.
    #[must_use]
    pub(super) fn with_turns(
        self,
        ties: &'static [&'static str],
        turn: Turn,
        config: &TraceConfig,
    ) -> Self {
        Self { rows: self.rows.tied(ties, config), turn, ..self }
    }
}

impl RowReader for HashedRows {
    fn next_row(&mut self) -> Result<Option<Row>, TraceError> {
        let LabelsConfig { timestamp, input_length, output_length, hash_ids, .. } = &self.labels;
        let Some(row) = self.rows.next_row()? else {
            return Ok(None);
        };
        let mut read = Row::new(
            row.stamp(timestamp, self.unit)?,
            row.line.number,
            row.tokens(input_length)?,
            row.tokens(output_length)?,
        );
        if let Some(ids) = row.ids(hash_ids)? {
            let content = content(&row.line, &ids, read.prompt_tokens, self.block_tokens);
            read.content = content.map_err(|mut error| {
                if let TraceError::Field { field, .. } = &mut error {
                    // Lengths and ids that disagree are named as the file names them.
                    field.clone_from(if field == "hash_ids" { hash_ids } else { input_length });
                }
                error
            })?;
        }
        read.class = row.class();
        if row.follows {
            read.turn = (self.turn)(&row)?.map(Box::new);
        }
        Ok(Some(read))
    }

    fn facts(&self) -> FormatFacts {
        FormatFacts {
            stamp_field: self.labels.timestamp.clone().into(),
            hash_block_tokens: Some(self.block_tokens),
            ..FormatFacts::new("", self.unit.name)
        }
    }

    fn show_stamp(&self, stamp: i128) -> String {
        self.unit.show(stamp)
    }

    fn ignored(&self) -> &IgnoredFields {
        self.rows.ignored()
    }
}
