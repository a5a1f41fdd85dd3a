//! JSON documents, one a line or each over several lines, whose fields are looked at one by one.
//!
//! One document is in memory at a time. Its parts are kept as text until they are asked for, so that what
//! is wrong with one is told as it stands there, with its line.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::TraceError;
use super::json_rows::{IDS, reason_of};
use super::lines::Lines;
use super::stamp::Unit;
use crate::base::hint::nearest;

/// The longest document over several lines.
const DOCUMENT_BYTES_MAX: usize = 256 << 20;

/// Documents, one after the other.
pub(super) struct Documents {
    lines: Lines,
    text: String,
    /// Where each line of `text` begins, and its number.
    starts: Vec<(usize, u64)>,
    /// Whether a document has been one line, so that all are.
    are_lines: bool,
    bytes_max: usize,
}

impl Documents {
    /// The documents in `lines`.
    pub(super) fn new(lines: Lines) -> Self {
        let (text, starts) = (String::new(), Vec::new());
        Self { lines, text, starts, are_lines: false, bytes_max: DOCUMENT_BYTES_MAX }
    }

    /// The next document, or `None` at the end.
    ///
    /// # Errors
    /// A line cannot be read, or the document is too long. The next call begins at the line after it.
    pub(super) fn next(&mut self) -> Result<Option<Document<'_>>, TraceError> {
        self.text.clear();
        self.starts.clear();
        let mut nesting = Nesting::default();
        while let Some(line) = self.lines.next_line()? {
            if self.text.len() + line.text.len() > self.bytes_max {
                return Err(TraceError::Json {
                    path: line.path.to_owned(),
                    line: line.number,
                    column: 1,
                    reason: format!("a document of more than {} bytes", self.bytes_max),
                });
            }
            self.starts.push((self.text.len(), line.number));
            self.text.push_str(line.text);
            self.text.push('\n');
            nesting.add(line.text);
            if self.are_lines || nesting.is_closed() {
                self.are_lines |= self.starts.len() == 1;
                break;
            }
        }
        let (text, starts) = (self.text.as_str(), self.starts.as_slice());
        let document = Document { text, starts, path: self.lines.path() };
        Ok((!starts.is_empty()).then_some(document))
    }
}

/// How deep inside brackets a text is.
#[derive(Default)]
struct Nesting {
    depth: u64,
    is_text: bool,
    is_escaped: bool,
}

impl Nesting {
    fn add(&mut self, line: &str) {
        for byte in line.bytes() {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = self.is_text,
                b'"' => self.is_text = !self.is_text,
                _ if self.is_text => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }

    /// Whether the next line begins another document. No text of JSON has a line break in it.
    fn is_closed(&self) -> bool {
        self.depth == 0 || self.is_text
    }
}

/// One document.
#[derive(Clone, Copy)]
pub(super) struct Document<'a> {
    text: &'a str,
    starts: &'a [(usize, u64)],
    path: &'a Path,
}

impl<'a> Document<'a> {
    /// The object that the document is.
    ///
    /// # Errors
    /// It is malformed, or something else.
    pub(super) fn object(self) -> Result<Object<'a>, TraceError> {
        Object::parse(self, self.text)
    }

    /// The error that `part` is malformed.
    fn malformed(self, part: &str, error: &serde_json::Error) -> TraceError {
        // The place in the document of the line of the part at which the parser stopped.
        let (at, line) = (self.offset(part), error.line().max(1));
        let above = part.split_inclusive('\n').take(line - 1).map(str::len).sum::<usize>();
        let place = (at + above + error.column().max(1) - 1).min(self.text.len());
        let (start, line) = self.line_at(place);
        TraceError::Json {
            path: self.path.to_owned(),
            line,
            column: place - start + 1,
            reason: reason_of(error),
        }
    }

    /// Where a part of the document begins in it.
    fn offset(self, part: &str) -> usize {
        part.as_ptr().addr().saturating_sub(self.text.as_ptr().addr())
    }

    /// The line at a place: where it begins, and its number.
    fn line_at(self, place: usize) -> (usize, u64) {
        let after = self.starts.partition_point(|&(start, _)| start <= place);
        self.starts[after.saturating_sub(1)]
    }
}

/// One object of a document.
pub(super) struct Object<'a> {
    document: Document<'a>,
    /// The line it begins in.
    pub(super) line: u64,
    fields: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'a> Object<'a> {
    /// `value` as an object, which belongs to `self`.
    ///
    /// # Errors
    /// It is something else.
    pub(super) fn part(&self, value: &'a RawValue) -> Result<Self, TraceError> {
        Self::parse(self.document, value.get())
    }

    fn parse(document: Document<'a>, text: &'a str) -> Result<Self, TraceError> {
        let (_, line) = document.line_at(document.offset(text));
        match serde_json::from_str(text) {
            Ok(Fields(fields)) => Ok(Self { document, line, fields }),
            Err(error) => Err(document.malformed(text, &error)),
        }
    }

    /// What the fields are called.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|(name, _)| &**name)
    }

    /// The field's value as it is written; `None` where it is absent or `null`.
    ///
    /// # Errors
    /// The field is there twice.
    pub(super) fn raw(&self, field: &'static str) -> Result<Option<&'a RawValue>, TraceError> {
        let mut found = self.fields.iter().filter(|(name, _)| name == field);
        let first = found.next().map(|&(_, value)| value);
        if found.next().is_some() {
            return Err(self.refuse(field, "there twice", "one value"));
        }
        Ok(first.filter(|value| value.get() != "null"))
    }

    /// The field's value, where it is there.
    ///
    /// # Errors
    /// It is something else than `accepted`.
    pub(super) fn optional<T: Deserialize<'a>>(
        &self,
        field: &'static str,
        accepted: &str,
    ) -> Result<Option<T>, TraceError> {
        let Some(raw) = self.raw(field)? else { return Ok(None) };
        let value = serde_json::from_str(raw.get());
        value.map(Some).map_err(|_| self.refuse_at(raw, field, show(raw), accepted))
    }

    /// As [`Object::optional`], but the field must be there.
    ///
    /// # Errors
    /// It is not, or it is something else than `accepted`.
    pub(super) fn required<T: Deserialize<'a>>(
        &self,
        field: &'static str,
        accepted: &str,
        known: &[&str],
    ) -> Result<T, TraceError> {
        self.optional(field, accepted)?.ok_or_else(|| self.missing(field, accepted, known))
    }

    /// An array of ids, where it is there.
    ///
    /// # Errors
    /// It is something else.
    pub(super) fn ids(&self, field: &'static str) -> Result<Option<Vec<u64>>, TraceError> {
        let Some(raw) = self.raw(field)? else { return Ok(None) };
        if let Ok(ids) = serde_json::from_str(raw.get()) {
            return Ok(Some(ids));
        }
        let items: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
        let is_id = |item: &&RawValue| serde_json::from_str::<u64>(item.get()).is_ok();
        let found = match items.iter().position(|item| !is_id(item)) {
            Some(at) => format!("{} at index {at}", show(items[at])),
            None => show(raw),
        };
        Err(self.refuse_at(raw, field, found, IDS))
    }

    /// A time in nanoseconds, where it is there.
    ///
    /// # Errors
    /// It is no time.
    pub(super) fn time(&self, field: &'static str, unit: Unit) -> Result<Option<i128>, TraceError> {
        let Some(raw) = self.raw(field)? else { return Ok(None) };
        let ns = unit.of_text(raw.get());
        ns.map(Some).ok_or_else(|| self.refuse_at(raw, field, show(raw), unit.accepted))
    }

    /// The text of a field that may hold any single value, where it is there.
    pub(super) fn text(&self, field: &str) -> Option<String> {
        let &(_, raw) = self.fields.iter().find(|(name, _)| name == field)?;
        let text = || serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().to_owned());
        (raw.get() != "null").then(text)
    }

    /// The error that `field` is not there; `known` are the fields that are used.
    pub(super) fn missing(
        &self,
        field: &'static str,
        accepted: &str,
        known: &[&str],
    ) -> TraceError {
        let near = nearest(field, self.names().filter(|name| !known.contains(name)));
        let mut refused = self.refuse(field, "missing", accepted);
        if let (TraceError::Field { hint, .. }, Some(name)) = (&mut refused, near) {
            *hint = format!(", did you mean `{name}`?");
        }
        refused
    }

    /// The error that `field` holds `found`, where `accepted` is expected.
    pub(super) fn refuse(
        &self,
        field: &'static str,
        found: impl Into<String>,
        accepted: impl Into<String>,
    ) -> TraceError {
        self.refuse_in(self.line, field, found.into(), accepted.into())
    }

    fn refuse_at(
        &self,
        value: &RawValue,
        field: &'static str,
        found: String,
        accepted: &str,
    ) -> TraceError {
        let (_, line) = self.document.line_at(self.document.offset(value.get()));
        self.refuse_in(line, field, found, accepted.to_owned())
    }

    fn refuse_in(
        &self,
        line: u64,
        field: &'static str,
        found: String,
        accepted: String,
    ) -> TraceError {
        let (path, hint) = (self.document.path.to_owned(), String::new());
        TraceError::Field { path, line, field: field.to_owned(), found, accepted, hint }
    }
}

/// A value as written, cut to what fits a message.
fn show(value: &RawValue) -> String {
    let mut shown: String = value.get().chars().take(40).collect();
    if shown.len() < value.get().len() {
        shown.push('…');
    }
    shown
}

/// The fields of an object, in their order.
struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(Name(name)) = map.next_key()? {
                    fields.push((name, map.next_value()?));
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Map).map(Fields)
    }
}

/// The name of a field; it is copied only where it is written with escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Cow<'de, str>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Cow::Borrowed(text))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Cow::Owned(text.to_owned()))
            }
        }
        deserializer.deserialize_str(Text).map(Name)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn documents(text: &str) -> Documents {
        let input = Box::new(Cursor::new(text.to_owned()));
        Documents::new(Lines::new(input, "t".into(), 1 << 20).unwrap())
    }

    /// Where each document begins, and the value of its field `a`, or what is wrong.
    fn all(text: &str) -> Vec<String> {
        let mut documents = documents(text);
        let mut all = Vec::new();
        loop {
            let read = match documents.next() {
                Ok(None) => return all,
                Ok(Some(document)) => document.object(),
                Err(error) => Err(error),
            };
            let field = read.and_then(|object| {
                Ok(format!("{}:{}", object.line, object.optional::<u32>("a", "a count")?.unwrap()))
            });
            all.push(field.unwrap_or_else(|error| error.to_string()));
        }
    }

    #[test]
    fn documents_are_lines_or_go_over_lines() {
        assert_eq!(all("{\"a\": 1}\n\n{\"a\": 2}\n"), ["1:1", "3:2"]);
        // Brackets in a text do not count.
        assert_eq!(all("{\n\"b\": \"}\\\"]\",\n\n\"a\": 1}\n{\n\"\\u0061\": 2\n}"), ["1:1", "5:2"]);
    }

    #[test]
    fn what_is_wrong_has_its_own_line() {
        let found = all("{\"b\": [{}],\n\n\"a\": -1\n}\n{\"a\": 2,}\n{\"a\": 3}\n");
        assert_eq!(
            found,
            ["t:3: `a` is -1, expected a count", "t:5:9: malformed JSON: trailing comma", "6:3"]
        );
        assert_eq!(all("{\"a\": 1, \"a\": 2}"), ["t:1: `a` is there twice, expected one value"]);
        assert_eq!(
            all("[1]"),
            ["t:1:1: malformed JSON: invalid type: sequence, expected an object"]
        );
        assert_eq!(all("{\n\"a\": 1,\n\n  x\n}"), ["t:4:3: malformed JSON: key must be a string"]);
    }

    #[test]
    fn a_line_that_is_cut_short_does_not_swallow_the_next() {
        let found = all("{\"a\": 1}\n{\"a\": [2\n{\"a\": 3}\n");
        assert_eq!((found[0].as_str(), found[2].as_str()), ("1:1", "3:3"));
        assert!(found[1].starts_with("t:2:") && found[1].contains("EOF"), "{found:?}");
    }

    #[test]
    fn the_bound_of_a_document_is_tight() {
        // Two lines with their ends, and `2}`.
        for (bytes_max, is_read) in [(6, true), (5, false)] {
            let mut documents = Documents { bytes_max, ..documents("{\n1\n\n2}\n") };
            assert_eq!(documents.next().is_ok(), is_read);
        }
    }
}
