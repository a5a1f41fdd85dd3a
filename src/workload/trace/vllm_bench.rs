//! What `vllm bench serve --save-detailed` writes: one JSON document with an array per quantity and an
//! element per request. It replays what was measured: each request is sent when it was sent then.
//!
//! The document is read as a stream. Only the numbers of the requests are kept, 16 bytes each; texts
//! and latencies are skipped. Prompts have no identity. Requests that failed have no output, and are
//! rows like all others. The "line" of a request is its place in the arrays.

use std::fmt;
use std::io::BufReader;
use std::path::PathBuf;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::json_rows::reason_of;
use super::lines::{Line, Lines};
use super::stamp::SECONDS;
use super::table::TOKENS;
use super::{FormatFacts, IgnoredFields, Row, RowReader, TraceError};

/// How a trace of this format starts, for people.
pub(super) const STARTS_WITH: &str =
    "a JSON document with `input_lens` (`vllm bench serve --save-detailed`)";

const STAMPS: &str = "start_times";
const PROMPTS: &str = "input_lens";
const OUTPUTS: &str = "output_lens";

/// What is known of single requests and not used. The rest of the document is about the whole run.
const IGNORED: [&str; 7] =
    ["ttfts", "itls", "latencies", "generated_texts", "errors", "client_queue_times", "e2els"];

/// Whether `line` can be the first of a document in this format: the whole of it, or its start where it
/// is laid out over lines.
pub(super) fn recognises(line: &str) -> bool {
    let line = line.trim();
    let has = |name| line.contains(&format!("\"{name}\""));
    // The tool writes the date first.
    line == "{" || line.starts_with("{\"date\"") || has(PROMPTS) || has("endpoint_type")
}

/// Reads the result of a benchmark.
pub(super) struct VllmBench {
    path: PathBuf,
    arrays: Arrays,
    next: usize,
}

/// What is used of the document.
#[derive(Default)]
struct Arrays {
    stamps: Option<Vec<f64>>,
    prompts: Option<Vec<i64>>,
    outputs: Option<Vec<i64>>,
    ignored: IgnoredFields,
}

impl VllmBench {
    /// Reads the document.
    ///
    /// # Errors
    /// It is malformed, lacks an array, or its arrays are of several lengths.
    pub(super) fn new(lines: Lines) -> Result<Self, TraceError> {
        let path = lines.path().to_owned();
        let (document, before) = lines.into_document();
        let mut json = serde_json::Deserializer::from_reader(BufReader::new(document));
        let read = json.deserialize_map(Document).and_then(|read| json.end().map(|()| read));
        let arrays = read.map_err(|error| match error.io_error_kind() {
            Some(kind) => TraceError::Unreadable { path: path.clone(), source: kind.into() },
            None => TraceError::Json {
                path: path.clone(),
                line: before + error.line() as u64,
                column: error.column().max(1),
                reason: reason_of(&error),
            },
        })?;
        let line = Line { text: "", number: before + 1, path: &path };
        let Some(stamps) = &arrays.stamps else {
            let accepted = "an array with the time at which each request was sent (written by newer \
                            releases with `--save-detailed`)";
            return Err(line.refuse(STAMPS, "missing", accepted));
        };
        for (field, array) in [(PROMPTS, &arrays.prompts), (OUTPUTS, &arrays.outputs)] {
            let Some(array) = array else {
                return Err(line.refuse(field, "missing", "an array with an element per request"));
            };
            if array.len() != stamps.len() {
                let accepted = format!("{}, as of `{STAMPS}`", stamps.len());
                return Err(line.refuse(field, format!("{} elements", array.len()), accepted));
            }
        }
        Ok(Self { path, arrays, next: 0 })
    }
}

impl RowReader for VllmBench {
    fn next_row(&mut self) -> Result<Option<Row>, TraceError> {
        let at = self.next;
        let of = |array: &Option<Vec<i64>>| Some(*array.as_ref()?.get(at)?);
        let stamp = self.arrays.stamps.as_ref().and_then(|stamps| stamps.get(at));
        let (Some(&stamp), Some(prompt), Some(output)) =
            (stamp, of(&self.arrays.prompts), of(&self.arrays.outputs))
        else {
            return Ok(None);
        };
        self.next += 1;
        let line = Line { text: "", number: self.next as u64, path: &self.path };
        let tokens = |field, value: i64| {
            u32::try_from(value).map_err(|_| line.refuse(field, value.to_string(), TOKENS))
        };
        Ok(Some(Row::new(
            SECONDS
                .of_double(stamp)
                .ok_or_else(|| line.refuse(STAMPS, stamp.to_string(), SECONDS.accepted))?,
            line.number,
            tokens(PROMPTS, prompt)?,
            tokens(OUTPUTS, output)?,
        )))
    }

    fn facts(&self) -> FormatFacts {
        FormatFacts::new(STAMPS, SECONDS.name)
    }

    fn show_stamp(&self, stamp: i128) -> String {
        SECONDS.show(stamp)
    }

    fn ignored(&self) -> &IgnoredFields {
        &self.arrays.ignored
    }
}

/// Reads the document's fields.
struct Document;

impl<'de> Visitor<'de> for Document {
    type Value = Arrays;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Arrays, A::Error> {
        let mut arrays = Arrays::default();
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                STAMPS => arrays.stamps = Some(map.next_value()?),
                PROMPTS => arrays.prompts = Some(map.next_value()?),
                OUTPUTS => arrays.outputs = Some(map.next_value()?),
                name => {
                    if IGNORED.contains(&name) {
                        arrays.ignored.add(name);
                    }
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(arrays)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ignored, refused, rows};
    use super::*;
    use crate::workload::trace::TraceFormat::{Auto, VllmBench as FORMAT};

    const DOCUMENT: &str = r#"{"date": "20260101-000000", "endpoint_type": "vllm", "num_prompts": 3,
        "duration": 3.5, "input_lens": [10, 20, 30], "output_lens": [5, 0, 7],
        "ttfts": [0.1, 0.0, 0.2], "itls": [[0.1], [], [0.1, 0.2]],
        "start_times": [353399.725848632, 353400.5, 353400.25],
        "generated_texts": ["a", "", "b"], "errors": ["", "boom", ""]}"#;

    #[test]
    fn requests_are_sent_when_they_were_sent() {
        // A double holds 353,399.725848632 to 6e-11.
        assert_eq!(
            rows(FORMAT, DOCUMENT),
            [
                Row::new(353_399_725_848_632, 1, 10, 5),
                Row::new(353_400_500_000_000, 2, 20, 0),
                Row::new(353_400_250_000_000, 3, 30, 7),
            ]
        );
        let (names, sessions) = ignored(FORMAT, DOCUMENT);
        assert_eq!(names, ["errors", "generated_texts", "itls", "ttfts"]);
        assert!(!sessions);
    }

    #[test]
    fn documents_of_one_line_and_of_many_are_told() {
        assert_eq!(rows(Auto, DOCUMENT).len(), 3);
        assert_eq!(rows(Auto, &DOCUMENT.replace('\n', "")).len(), 3);
        assert_eq!(rows(Auto, &DOCUMENT.replacen('{', "{\n", 1)).len(), 3);
        assert_eq!(rows(Auto, &format!("\n{}", DOCUMENT.replace(", ", ",\n"))).len(), 3);
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = refused(FORMAT, &DOCUMENT.replace("start_times", "begin_times"));
        assert!(error.starts_with("t:1: `start_times` is missing, expected an array"), "{error}");
        let error = refused(FORMAT, &DOCUMENT.replace("[5, 0, 7]", "[5, 0]"));
        assert_eq!(error, "t:1: `output_lens` is 2 elements, expected 3, as of `start_times`");
        let error = refused(FORMAT, &DOCUMENT.replace("[5, 0, 7]", "[5, -1, 7]"));
        assert!(error.starts_with("t:2: `output_lens` is -1, expected an integer"), "{error}");
        let error = refused(FORMAT, &DOCUMENT.replace("[5, 0, 7]", "[5, null, 7]"));
        assert!(error.starts_with("t:2:") && error.contains("malformed JSON: invalid type: null"));
        let error = refused(FORMAT, "{\"input_lens\": [1],\n");
        assert!(error.contains("malformed JSON: EOF"), "{error}");
    }
}
