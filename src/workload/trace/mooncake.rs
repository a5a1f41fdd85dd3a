//! Mooncake JSON lines: one request a line, its prompt as hash ids of fixed-size blocks.
//!
//! Ids are prefix hashes: equal ids mean equal whole prefixes up to and including their block. The
//! last id may name a partial block. Fields have two public spellings each (see [`FIELDS`]).
//!
//! A line is parsed straight into numbers, into buffers that are used again. Only a line that this
//! refuses is parsed a second time, as a JSON value, to say what is wrong with it.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::config::TraceConfig;
use super::lines::{Line, Lines};
use super::{FormatFacts, IgnoredFields, Row, RowReader, RowTurn, TraceError};
use crate::base::config::ConfigError;
use crate::base::hint::nearest;
use crate::workload::request::{Content, Piece, Segment};

/// How a trace of this format starts, for people.
pub(super) const STARTS_WITH: &str = "`{` (Mooncake JSON lines)";

/// Whether `line` can be the first of a trace in this format.
pub(super) fn recognises(line: &str) -> bool {
    line.trim_start().starts_with('{')
}

/// The latest stamp: 100 years, which also holds a Unix time of today.
const STAMP_MS_MAX: u64 = 100 * 365 * 86_400 * 1000;

const NS_PER_MS: i128 = 1_000_000;

/// Prompt tokens that one id names in the published traces.
pub(super) const BLOCK_TOKENS: u32 = 512;

/// The fields of a row, in the order of [`FIELDS`].
#[derive(Clone, Copy)]
enum Key {
    Timestamp,
    InputLength,
    OutputLength,
    HashIds,
    Priority,
    SessionId,
    Delay,
    RequestId,
    WaitFor,
    ToolWait,
    Class,
    Unknown,
}

/// What a row may hold.
struct Field {
    key: Key,
    name: &'static str,
    /// Its other public spelling.
    alias: Option<&'static str>,
    is_required: bool,
    /// Whether it ties rows to each other, so that it is read only where that is wanted.
    is_tie: bool,
    accepted: &'static str,
    /// Whether a value can be used, judged by the code that reads it.
    accepts: fn(&Value) -> bool,
}

/// A field that ties rows to each other.
const fn tie(key: Key, name: &'static str, accepted: &'static str) -> Field {
    Field { key, name, alias: None, is_required: false, is_tie: true, accepted, accepts: |_| true }
}

const MILLISECONDS: &str = "a number of milliseconds from 0 to 3153600000000";
const TEXT: &str = "a text or an integer";

const FIELDS: [Field; 10] = [
    Field {
        key: Key::Timestamp,
        name: "timestamp",
        alias: Some("created_time"),
        is_required: true,
        is_tie: false,
        accepted: MILLISECONDS,
        accepts: |value| Stamp::deserialize(value).is_ok(),
    },
    Field {
        key: Key::InputLength,
        name: "input_length",
        alias: Some("input_tokens"),
        is_required: true,
        is_tie: false,
        accepted: "an integer from 0 to 4294967295",
        accepts: |value| u32::deserialize(value).is_ok(),
    },
    Field {
        key: Key::OutputLength,
        name: "output_length",
        alias: Some("output_tokens"),
        is_required: true,
        is_tie: false,
        accepted: "an integer from 0 to 4294967295",
        accepts: |value| u32::deserialize(value).is_ok(),
    },
    Field {
        key: Key::HashIds,
        name: "hash_ids",
        alias: None,
        is_required: false,
        is_tie: false,
        accepted: "an array of integers from 0 to 18446744073709551615",
        accepts: |value| IdsSeed(&mut Vec::new()).deserialize(value).is_ok(),
    },
    Field {
        key: Key::Priority,
        name: "priority",
        alias: None,
        is_required: false,
        is_tie: false,
        accepted: "an integer from -2147483648 to 2147483647",
        accepts: |value| Option::<i32>::deserialize(value).is_ok(),
    },
    Field {
        accepts: |value| Option::<Text>::deserialize(value).is_ok(),
        ..tie(Key::SessionId, "session_id", TEXT)
    },
    Field {
        alias: Some("delay_ms"),
        accepts: |value| Option::<Stamp>::deserialize(value).is_ok(),
        ..tie(Key::Delay, "delay", MILLISECONDS)
    },
    Field {
        accepts: |value| Option::<Text>::deserialize(value).is_ok(),
        ..tie(Key::RequestId, "request_id", TEXT)
    },
    Field {
        accepts: |value| Option::<Vec<Text>>::deserialize(value).is_ok(),
        ..tie(Key::WaitFor, "wait_for", "an array of texts or integers")
    },
    Field {
        accepts: |value| Option::<Stamp>::deserialize(value).is_ok(),
        ..tie(Key::ToolWait, "tool_wait_ms", MILLISECONDS)
    },
];

/// Where rows of the same shape hold a prompt as text, without its length.
const TEXT_FIELDS: [&str; 4] = ["text_input", "messages", "payload", "prompt"];

/// Reads a Mooncake trace.
pub(super) struct Mooncake {
    lines: Lines,
    uses: Uses,
    /// Whether rows of a session say only what they add to it.
    continues: bool,
    /// Prompt tokens that one id names.
    block_tokens: u32,
    /// The ids of the current row.
    ids: Vec<u64>,
    ignored: IgnoredFields,
}

impl Mooncake {
    /// Reads `lines`.
    pub(super) fn new(lines: Lines, config: &TraceConfig) -> Self {
        let block_tokens = config.hash_block_tokens.unwrap_or(BLOCK_TOKENS);
        Self {
            lines,
            uses: Uses { ties: config.sessions.is_some(), class: config.class_field.clone() },
            continues: false,
            block_tokens,
            ids: Vec::new(),
            ignored: IgnoredFields::default(),
        }
    }

    /// Reads `lines`, where the rows of a session say only what they add to it.
    ///
    /// # Errors
    /// Sessions are not to be followed.
    pub(super) fn of_additions(lines: Lines, config: &TraceConfig) -> Result<Self, TraceError> {
        if config.sessions.is_none() {
            let accepted =
                "`open`, `think` or `closed`: rows of `mooncake_delta` continue each other";
            return Err(ConfigError::new("workload.trace.sessions", "absent", accepted).into());
        }
        Ok(Self { continues: true, ..Self::new(lines, config) })
    }
}

/// What is read beside the usual fields.
struct Uses {
    /// Fields that tie rows to each other.
    ties: bool,
    /// The field of the class.
    class: Option<String>,
}

impl RowReader for Mooncake {
    fn next_row(&mut self) -> Result<Option<Row>, TraceError> {
        let Some(line) = self.lines.next_line()? else {
            return Ok(None);
        };
        let mut json = serde_json::Deserializer::from_str(line.text);
        let seed = RowSeed { ids: &mut self.ids, ignored: &mut self.ignored, uses: &self.uses };
        let mut fields = match seed.deserialize(&mut json).and_then(|row| json.end().map(|()| row))
        {
            Ok(fields) => fields,
            Err(error) => return Err(explain(&line, Some(&error), self.uses.ties)),
        };
        let turn = fields.turn(self.continues);
        let Fields {
            stamp,
            prompt_tokens: Some(prompt_tokens),
            output_tokens: Some(output_tokens),
            priority,
            has_ids,
            class,
            ..
        } = fields
        else {
            return Err(explain(&line, None, self.uses.ties));
        };
        let stamp = match (stamp, &turn) {
            (Some(Stamp(stamp)), _) => stamp,
            (None, Some(turn)) if turn.lacks_stamp => 0,
            _ => return Err(explain(&line, None, self.uses.ties)),
        };
        let content = if has_ids {
            content(&line, &self.ids, prompt_tokens, self.block_tokens)?
        } else {
            Content::Private
        };
        Ok(Some(Row {
            priority: priority.unwrap_or(0),
            content,
            turn: turn.map(Box::new),
            class: class.map(|Text(class)| class.into()),
            ..Row::new(stamp, line.number, prompt_tokens, output_tokens)
        }))
    }

    fn facts(&self) -> FormatFacts {
        FormatFacts {
            hash_block_tokens: Some(self.block_tokens),
            ..FormatFacts::new("timestamp", "ms")
        }
    }

    fn show_stamp(&self, stamp: i128) -> String {
        format!("{} ms", stamp as f64 / NS_PER_MS as f64)
    }

    fn ignored(&self) -> &IgnoredFields {
        &self.ignored
    }
}

/// The prompt that `ids` name: whole blocks, and a tail where the length ends inside a block.
pub(super) fn content(
    line: &Line<'_>,
    ids: &[u64],
    prompt_tokens: u32,
    block_tokens: u32,
) -> Result<Content, TraceError> {
    let blocks = prompt_tokens.div_ceil(block_tokens) as usize;
    if blocks > ids.len() {
        let capacity = ids.len() as u64 * u64::from(block_tokens);
        let accepted = format!(
            "at most {capacity}: {} hash ids of {block_tokens} tokens (`hash_block_tokens`)",
            ids.len()
        );
        return Err(line.refuse("input_length", prompt_tokens.to_string(), accepted));
    }
    if blocks < ids.len() {
        let accepted = format!(
            "{blocks}: a prompt of {prompt_tokens} tokens in blocks of {block_tokens} \
             (`hash_block_tokens`)"
        );
        return Err(line.refuse("hash_ids", format!("{} ids", ids.len()), accepted));
    }
    let whole = |&name| Piece { segment: Segment::Named(name), tokens: block_tokens };
    let mut pieces: Vec<Piece> = ids.iter().map(whole).collect();
    let tokens = prompt_tokens % block_tokens;
    if let (Some(last), Some(&name)) = (pieces.last_mut(), ids.last())
        && tokens > 0
    {
        *last = Piece { segment: Segment::Tail { name, tokens }, tokens };
    }
    Ok(Content::Pieces(pieces))
}

/// What a line that could not be read as a row has wrong; `error` is what the reader stumbled over.
fn explain(line: &Line<'_>, error: Option<&serde_json::Error>, ties: bool) -> TraceError {
    let malformed = |column, reason: String| TraceError::Json {
        path: line.path.to_owned(),
        line: line.number,
        column,
        reason,
    };
    let of_error = |error: &serde_json::Error| {
        let reason = error.to_string();
        let reason = reason.split(" at line ").next().unwrap_or_default().to_owned();
        malformed(error.column().max(1), reason)
    };
    let row = match serde_json::from_str::<Value>(line.text) {
        Ok(Value::Object(row)) => row,
        Ok(_) => return malformed(1, "expected an object".to_owned()),
        Err(error) => return of_error(&error),
    };
    let has = |name: &str| row.contains_key(name);
    let is_there = |field: &&Field| has(field.name) || field.alias.is_some_and(has);
    let uses = |field: &&Field| ties || !field.is_tie;
    // A value that is wrong may be why another one seems to be missing.
    let (there, missing): (Vec<_>, Vec<_>) = FIELDS.iter().filter(uses).partition(is_there);
    for field in there.into_iter().chain(missing) {
        let alias = field.alias.filter(|&alias| row.contains_key(alias));
        if let Some(alias) = alias
            && row.contains_key(field.name)
        {
            return TraceError::BothSpellings {
                path: line.path.to_owned(),
                line: line.number,
                field: field.name,
                alias,
            };
        }
        let name = alias.unwrap_or(field.name);
        let found = match row.get(name) {
            None if field.is_required => "missing".to_owned(),
            Some(value) if !(field.accepts)(value) => show(value),
            _ => continue,
        };
        let mut refused = line.refuse(name, found, field.accepted);
        if let TraceError::Field { hint, .. } = &mut refused
            && !row.contains_key(name)
        {
            *hint = hint_for(field, ties, row.keys());
        }
        return refused;
    }
    // What is left is a field that stands in the row twice.
    error.map_or_else(|| malformed(1, "not a row".to_owned()), of_error)
}

/// Where the value of a missing `field` may be, given the names in its row.
fn hint_for<'a>(field: &Field, ties: bool, names: impl Iterator<Item = &'a String>) -> String {
    let uses = |field: &&Field| ties || !field.is_tie;
    let is_known =
        |name: &str| FIELDS.iter().filter(uses).any(|f| f.name == name || f.alias == Some(name));
    let strangers: Vec<&str> = names.map(String::as_str).filter(|name| !is_known(name)).collect();
    if let Some(name) = nearest(field.name, strangers.iter().copied()) {
        format!(", did you mean `{name}`?")
    } else if matches!(field.key, Key::Timestamp)
        && strangers.iter().any(|n| n.starts_with("delay"))
    {
        "; to let turns follow the end of earlier ones, choose `sessions` (`--sessions think`)"
            .to_owned()
    } else if matches!(field.key, Key::InputLength)
        && let Some(text) = strangers.iter().find(|name| TEXT_FIELDS.contains(name))
    {
        format!(
            "; the row has the prompt itself in `{text}`: count its tokens with the model's tokenizer"
        )
    } else {
        String::new()
    }
}

/// `value` as written, cut to what fits a message; of an array, the first item that is no id.
pub(super) fn show(value: &Value) -> String {
    if let Value::Array(items) = value
        && let Some(at) = items.iter().position(|item| !item.is_u64())
    {
        return format!("{} at index {at}", show(&items[at]));
    }
    let text = value.to_string();
    let mut shown: String = text.chars().take(40).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// A stamp in nanoseconds. It is written in milliseconds, as an integer or with a fraction, which is
/// rounded to the nearest nanosecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp(i128);

impl<'de> Deserialize<'de> for Stamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Milliseconds;
        impl Visitor<'_> for Milliseconds {
            type Value = Stamp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(FIELDS[Key::Timestamp as usize].accepted)
            }

            fn visit_u64<E: de::Error>(self, ms: u64) -> Result<Stamp, E> {
                if ms > STAMP_MS_MAX {
                    return Err(E::invalid_value(de::Unexpected::Unsigned(ms), &self));
                }
                Ok(Stamp(i128::from(ms) * NS_PER_MS))
            }

            fn visit_f64<E: de::Error>(self, ms: f64) -> Result<Stamp, E> {
                if !(0.0..=STAMP_MS_MAX as f64).contains(&ms) {
                    return Err(E::invalid_value(de::Unexpected::Float(ms), &self));
                }
                // In two parts, each of which a double holds to the nanosecond.
                let fraction = (ms.fract() * NS_PER_MS as f64).round();
                Ok(Stamp(ms.trunc() as i128 * NS_PER_MS + fraction as i128))
            }
        }
        deserializer.deserialize_any(Milliseconds)
    }
}

/// The numbers of a row.
#[derive(Default)]
struct Fields {
    stamp: Option<Stamp>,
    prompt_tokens: Option<u32>,
    output_tokens: Option<u32>,
    priority: Option<i32>,
    /// Whether there are ids, be they none.
    has_ids: bool,
    session: Option<Text>,
    delay: Option<Stamp>,
    name: Option<Text>,
    wait_for: Option<Vec<Text>>,
    tool_wait: Option<Stamp>,
    class: Option<Text>,
}

impl Fields {
    /// What the row says of what it follows, if anything.
    fn turn(&mut self, continues: bool) -> Option<RowTurn> {
        let text = |Text(text)| text;
        let delay = match (self.delay, self.tool_wait) {
            (None, None) => None,
            (a, b) => Some(a.map_or(0, |Stamp(ns)| ns) + b.map_or(0, |Stamp(ns)| ns)),
        };
        let turn = RowTurn {
            session: self.session.take().map(text),
            name: self.name.take().map(text),
            wait_for: self.wait_for.take().map(|all| all.into_iter().map(text).collect()),
            delay,
            lacks_stamp: self.stamp.is_none(),
            continues,
            ..RowTurn::default()
        };
        let is_tied = turn.session.is_some() || turn.name.is_some() || turn.wait_for.is_some();
        is_tied.then_some(turn)
    }
}

/// A name, as text or as a number.
#[derive(Clone)]
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(TEXT)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }
        }
        deserializer.deserialize_any(Name)
    }
}

/// Reads a row: its ids into `ids`, the names of what it does not use into `ignored`.
struct RowSeed<'a> {
    ids: &'a mut Vec<u64>,
    ignored: &'a mut IgnoredFields,
    uses: &'a Uses,
}

impl<'de> DeserializeSeed<'de> for RowSeed<'_> {
    type Value = Fields;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Fields, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RowSeed<'_> {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Fields::default();
        let mut seen = [false; FIELDS.len()];
        while let Some((key, is_class)) = map.next_key_seed(KeySeed(self.ignored, self.uses))? {
            if let Some(seen) = seen.get_mut(key as usize)
                && std::mem::replace(seen, true)
            {
                return Err(de::Error::duplicate_field(FIELDS[key as usize].name));
            }
            match key {
                Key::Timestamp => fields.stamp = Some(map.next_value()?),
                Key::InputLength => fields.prompt_tokens = Some(map.next_value()?),
                Key::OutputLength => fields.output_tokens = Some(map.next_value()?),
                Key::HashIds => fields.has_ids = map.next_value_seed(IdsSeed(self.ids))?,
                Key::Priority => fields.priority = map.next_value()?,
                Key::SessionId => {
                    fields.session = map.next_value()?;
                    // Whose session it is may be the class as well.
                    if is_class {
                        fields.class.clone_from(&fields.session);
                    }
                }
                Key::Delay => fields.delay = map.next_value()?,
                Key::RequestId => fields.name = map.next_value()?,
                Key::WaitFor => fields.wait_for = map.next_value()?,
                Key::ToolWait => fields.tool_wait = map.next_value()?,
                Key::Class => fields.class = map.next_value()?,
                Key::Unknown => map.next_value::<IgnoredAny>().map(drop)?,
            }
        }
        Ok(fields)
    }
}

/// Tells the key of a field and whether it is the class, and notes the names of unknown ones.
struct KeySeed<'a>(&'a mut IgnoredFields, &'a Uses);

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = (Key, bool);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(Key, bool), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = (Key, bool);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<(Key, bool), E> {
        let Self(ignored, uses) = self;
        let is_class = uses.class.as_deref() == Some(name);
        let named = |field: &&Field| {
            (field.name == name || field.alias == Some(name)) && (uses.ties || !field.is_tie)
        };
        let key = match FIELDS.iter().find(named) {
            Some(field) => field.key,
            None if is_class => Key::Class,
            None => {
                ignored.add(name);
                Key::Unknown
            }
        };
        Ok((key, is_class))
    }
}

/// Reads ids into a buffer; answers whether there are any to read (an array, not `null`).
struct IdsSeed<'a>(&'a mut Vec<u64>);

impl<'de> DeserializeSeed<'de> for IdsSeed<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for IdsSeed<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of hash ids")
    }

    fn visit_unit<E: de::Error>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut ids: A) -> Result<bool, A::Error> {
        self.0.clear();
        while let Some(id) = ids.next_element()? {
            self.0.push(id);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn read_with(block_tokens: u32, text: &str) -> Result<Vec<Row>, TraceError> {
        let lines = Lines::new(Box::new(Cursor::new(text.to_owned())), "t".into(), 1 << 20)?;
        let config =
            TraceConfig { hash_block_tokens: Some(block_tokens), ..TraceConfig::default() };
        let mut reader = Mooncake::new(lines, &config);
        std::iter::from_fn(|| reader.next_row().transpose()).collect()
    }

    fn read(text: &str) -> Vec<Row> {
        read_with(512, text).unwrap()
    }

    fn refused(text: &str) -> String {
        read_with(512, text).expect_err("must be refused").to_string()
    }

    /// A row with one field put in another way, or left out if `value` is empty.
    fn refused_with(name: &str, value: &str) -> String {
        let usual = [("timestamp", "0"), ("input_length", "9"), ("output_length", "1")];
        let mut fields: Vec<String> = usual
            .iter()
            .filter(|&&(other, _)| other != name)
            .map(|(name, value)| format!("{name:?}: {value}"))
            .collect();
        if !value.is_empty() {
            fields.push(format!("{name:?}: {value}"));
        }
        refused(&format!("{{{}}}", fields.join(", ")))
    }

    fn named(name: u64) -> Piece {
        Piece { segment: Segment::Named(name), tokens: 512 }
    }

    fn tail(name: u64, tokens: u32) -> Piece {
        Piece { segment: Segment::Tail { name, tokens }, tokens }
    }

    #[test]
    fn a_row_is_whole_blocks_and_a_tail() {
        let text = r#"{"timestamp": 27482, "input_length": 1025, "output_length": 52, "hash_ids": [46, 47, 5]}"#;
        let expected = Row {
            content: Content::Pieces(vec![named(46), named(47), tail(5, 1)]),
            ..Row::new(27_482_000_000, 1, 1025, 52)
        };
        assert_eq!(read(text), [expected]);
    }

    #[test]
    fn a_full_last_block_is_no_tail() {
        let text = r#"{"timestamp":0,"input_length":1024,"output_length":1,"hash_ids":[1,2]}"#;
        assert_eq!(read(text)[0].content, Content::Pieces(vec![named(1), named(2)]));
    }

    #[test]
    fn both_spellings_of_the_fields_are_read() {
        let usual = r#"{"timestamp": 1, "input_length": 2, "output_length": 3, "priority": -4}"#;
        let other = r#"{"output_tokens": 3, "priority": -4, "input_tokens": 2, "created_time": 1}"#;
        let row = Row { priority: -4, ..Row::new(1_000_000, 1, 2, 3) };
        assert_eq!(read(usual), read(other));
        assert_eq!(read(usual), [row]);
    }

    #[test]
    fn one_field_in_both_spellings_is_refused() {
        let text = r#"{"timestamp": 1, "input_length": 2, "input_tokens": 2, "output_length": 3}"#;
        assert_eq!(
            refused(text),
            "t:1: `input_length` and `input_tokens` are both present, expected one of them"
        );
        let twice = refused(r#"{"timestamp": 1, "input_length": 2, "timestamp": 1}"#);
        // The row also lacks `output_length`, which is what it says first.
        assert!(twice.starts_with("t:1: `output_length` is missing"), "{twice}");
        let twice = refused_with("output_length", r#"1, "output_length": 1"#);
        assert!(twice.ends_with("malformed JSON: duplicate field `output_length`"), "{twice}");
    }

    #[test]
    fn stamps_are_exact_to_the_nanosecond() {
        let stamp = |ms: &str| {
            read(&format!(r#"{{"timestamp": {ms}, "input_length": 1, "output_length": 1}}"#))[0]
                .stamp
        };
        assert_eq!(stamp("0"), 0);
        assert_eq!(stamp("3000.0"), 3_000_000_000);
        assert_eq!(stamp("16.50142"), 16_501_420);
        assert_eq!(stamp("0.0000005"), 1);
        assert_eq!(stamp("1e3"), 1_000_000_000);
        // A Unix time with a fraction that a double can hold.
        assert_eq!(stamp("1764665640123.25"), 1_764_665_640_123_250_000);
        assert_eq!(stamp("3153600000000"), 3_153_600_000_000_000_000);
    }

    #[test]
    fn missing_fields_are_named_with_the_nearest_name_in_the_row() {
        assert_eq!(
            refused_with("output_length", ""),
            "t:1: `output_length` is missing, expected an integer from 0 to 4294967295"
        );
        assert_eq!(
            refused(r#"{"timestamp": 0, "input_lenght": 9, "output_length": 1}"#),
            "t:1: `input_length` is missing, expected an integer from 0 to 4294967295, \
             did you mean `input_lenght`?"
        );
        assert_eq!(
            refused(r#"{"session_id": "a", "delay": 5, "input_length": 9, "output_length": 1}"#),
            "t:1: `timestamp` is missing, expected a number of milliseconds from 0 to \
             3153600000000; to let turns follow the end of earlier ones, choose `sessions` \
             (`--sessions think`)"
        );
    }

    #[test]
    fn values_of_the_wrong_type_or_range_are_shown() {
        for (name, value, found) in [
            ("timestamp", "-1", "`timestamp` is -1, expected a number of milliseconds from 0 to"),
            ("timestamp", "-0.5", "`timestamp` is -0.5, expected"),
            ("timestamp", "3153600000001", "`timestamp` is 3153600000001, expected"),
            ("timestamp", "1e300", "`timestamp` is 1e+300, expected"),
            ("timestamp", r#""12""#, r#"`timestamp` is "12", expected"#),
            ("timestamp", "null", "`timestamp` is null, expected"),
            ("created_time", "true", "`created_time` is true, expected"),
            (
                "input_length",
                "-3",
                "`input_length` is -3, expected an integer from 0 to 4294967295",
            ),
            ("input_length", "4294967296", "`input_length` is 4294967296, expected"),
            ("output_length", "1.5", "`output_length` is 1.5, expected"),
            ("priority", "2147483648", "`priority` is 2147483648, expected an integer from -2147"),
            ("hash_ids", "[1, -2]", "`hash_ids` is -2 at index 1, expected an array of integers"),
            ("hash_ids", "[1, 2.0]", "`hash_ids` is 2.0 at index 1, expected"),
            ("hash_ids", r#"{"a": [1]}"#, r#"`hash_ids` is {"a":[1]}, expected"#),
            (
                "hash_ids",
                "[18446744073709551616]",
                "`hash_ids` is 1.8446744073709552e+19 at index 0",
            ),
        ] {
            let usual = if name == "created_time" { "timestamp" } else { name };
            let error = if usual == name {
                refused_with(name, value)
            } else {
                refused(&format!(r#"{{"{name}": {value}, "input_length": 9, "output_length": 1}}"#))
            };
            assert!(error.starts_with(&format!("t:1: {found}")), "{error}");
        }
        let long = refused_with("timestamp", &format!("\"{}\"", "é".repeat(99)));
        assert!(long.contains(&format!("is \"{}…, expected", "é".repeat(39))), "{long}");
    }

    #[test]
    fn lengths_and_ids_must_agree() {
        let row = |tokens: u32, ids: &str| {
            format!(
                r#"{{"timestamp": 0, "input_length": {tokens}, "output_length": 1, "hash_ids": {ids}}}"#
            )
        };
        assert_eq!(read(&row(1024, "[1, 2]")).len(), 1);
        assert_eq!(
            refused(&row(1025, "[1, 2]")),
            "t:1: `input_length` is 1025, expected at most 1024: 2 hash ids of 512 tokens \
             (`hash_block_tokens`)"
        );
        assert_eq!(
            refused(&row(512, "[1, 2]")),
            "t:1: `hash_ids` is 2 ids, expected 1: a prompt of 512 tokens in blocks of 512 \
             (`hash_block_tokens`)"
        );
        assert_eq!(read_with(16, &row(17, "[1, 2]")).unwrap().len(), 1);
        assert!(refused(&row(1, "[]")).starts_with("t:1: `input_length` is 1, expected at most 0"));
        // The front end rejects these and counts them.
        assert_eq!(read(&row(0, "[]"))[0].content, Content::Pieces(vec![]));
        assert_eq!(read(&row(9, "null"))[0].content, Content::Private);
        assert_eq!(read_with(u32::MAX, &row(u32::MAX, "[1]")).unwrap().len(), 1);
    }

    #[test]
    fn what_is_no_object_has_a_column() {
        assert!(refused("[1]").starts_with("t:1:1: malformed JSON: expected an object"));
        assert_eq!(refused(r#"{"timestamp": 1,}"#), "t:1:17: malformed JSON: trailing comma");
        assert!(refused(r#"{"timestamp": 1"#).starts_with("t:1:15: malformed JSON: EOF while"));
        let after = refused(r#"{"timestamp": 1, "input_length": 2, "output_length": 3} 4"#);
        assert_eq!(after, "t:1:57: malformed JSON: trailing characters");
    }

    #[test]
    fn errors_name_the_line_of_the_file() {
        let good = r#"{"timestamp": 1, "input_length": 2, "output_length": 3}"#;
        assert!(refused(&format!("{good}\n\n{good}\n{{}}\n")).starts_with("t:4: `timestamp`"));
    }

    #[test]
    fn unused_fields_are_noted() {
        let text = r#"{"timestamp": 1, "chat": {"a": [null]}, "input_length": 2, "output_length": 3, "delay_ms": 4}"#;
        let lines = Lines::new(Box::new(Cursor::new(text)), "t".into(), 1 << 20).unwrap();
        let mut reader = Mooncake::new(lines, &TraceConfig::default());
        assert!(reader.next_row().unwrap().is_some());
        assert!(reader.ignored.sessions);
        assert_eq!(reader.ignored.names.iter().collect::<Vec<_>>(), ["chat", "delay_ms"]);
    }

    #[test]
    fn the_table_of_fields_is_in_the_order_of_the_keys() {
        assert!(FIELDS.iter().enumerate().all(|(at, field)| field.key as usize == at));
    }
}
