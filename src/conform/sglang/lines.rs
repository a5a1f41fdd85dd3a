//! The lines of a recording: what happened, forward by forward. A forward is a pass.

use serde::{Deserialize, Serialize};

use crate::base::hint;
use crate::engine::RadixStanding;
use crate::engine::sglang::config::SchedulePolicy;

/// One line. Its first key says which it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Line {
    /// What the configuration came to.
    Head(HeadLine),
    /// A forward.
    Forward(Box<ForwardLine>),
    /// What became of a request.
    Request(RequestLine),
    /// The end.
    End(EndLine),
}

/// The head line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeadLine {
    pub(crate) case: String,
    /// The release that was recorded.
    pub(crate) sglang: String,
    /// The part of it that kept the prefix cache.
    pub(crate) tree_core: String,
    /// The pool, in whole pages.
    pub(crate) max_total_tokens: u32,
    pub(crate) max_running_requests: u32,
    pub(crate) max_req_len: u32,
    /// The policy in force.
    pub(crate) policy: SchedulePolicy,
    /// Whether mixing is on.
    pub(crate) mixed: bool,
    /// New-token ratio: initial, minimum, decay.
    pub(crate) ratio: [f64; 3],
}

/// What a forward computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Prompts.
    Extend,
    /// One token of each request.
    #[default]
    Decode,
    /// Prompts, then one token of each other request.
    Mixed,
}

/// A forward. Clocks are in microseconds, requests are named.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForwardLine {
    pub(crate) f: u64,
    pub(crate) kind: Kind,
    /// When it was planned.
    pub(crate) sched: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) ids: Vec<String>,
    /// Tokens computed, unless it is a decode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ext: Option<Vec<u32>>,
    /// Tokens before them, unless it is a decode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pre: Option<Vec<u32>>,
    /// Decode rows of a mixed forward.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ndec: Option<usize>,
    /// The request whose prompt goes on in the next forward.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) chunked: Option<String>,
    /// Tokens of all sequences of a decode, those computed now included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ctx: Option<u64>,
    /// Who was retracted since the forward before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) retracted: Vec<String>,
    /// Who lost their place to a better priority.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) preempted: Vec<String>,
    /// Whom the queue did not take.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) aborted: Vec<String>,
    /// Where things stood once it was planned.
    pub(crate) at: StandingLine,
    /// The front of the queue then.
    pub(crate) queue: Vec<String>,
    pub(crate) finished: Vec<String>,
    /// When its result was taken in.
    pub(crate) done: u64,
    /// Free, evictable and protected tokens then.
    pub(crate) after: [u32; 3],
}

/// Where an engine stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StandingLine {
    pub(crate) avail: u32,
    pub(crate) evict: u32,
    pub(crate) prot: u32,
    pub(crate) wait: usize,
    pub(crate) run: u32,
    pub(crate) full: u8,
    pub(crate) ratio: f64,
}

impl From<&RadixStanding> for StandingLine {
    fn from(standing: &RadixStanding) -> Self {
        Self {
            avail: standing.available_tokens,
            evict: standing.evictable_tokens,
            prot: standing.protected_tokens,
            wait: standing.queue.len(),
            run: standing.running,
            full: standing.is_full.into(),
            ratio: standing.new_token_ratio,
        }
    }
}

/// What became of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestLine {
    pub(crate) req: String,
    /// When its first token was known.
    pub(crate) first: Option<u64>,
    /// When its end was known.
    pub(crate) finish: Option<u64>,
    pub(crate) cached: u32,
    pub(crate) out: u32,
    /// Its output limit, as clipped on arrival.
    pub(crate) max_new: u32,
    pub(crate) retractions: u32,
    pub(crate) reason: Reason,
}

/// Why a request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reason {
    /// A limit of length.
    Length,
    /// A stop token.
    Stop,
    /// Its prompt was refused, or the queue was full.
    Abort,
    /// It did not.
    #[default]
    None,
}

/// The last line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndLine {
    pub(crate) end: bool,
    pub(crate) forwards: u64,
    pub(crate) clock: u64,
    /// Who waits for ever.
    pub(crate) stuck: Vec<String>,
    /// Whom the queue did not take after the last forward was planned.
    pub(crate) late_aborts: Vec<String>,
    #[serde(rename = "final")]
    pub(crate) standing: StandingLine,
}

/// The first key of a JSON object, as far as the text goes.
pub(super) fn first_key(text: &[u8]) -> Option<&str> {
    let object = text.trim_ascii_start().strip_prefix(b"{")?;
    let key = object.trim_ascii_start().strip_prefix(b"\"")?;
    let end = key.iter().position(|&byte| byte == b'"')?;
    std::str::from_utf8(&key[..end]).ok()
}

impl Line {
    /// Reads a line.
    ///
    /// # Errors
    /// In words, what is not as the format says.
    pub(super) fn from_json(text: &[u8]) -> Result<Self, String> {
        let key = first_key(text).ok_or("expected a JSON object")?;
        let read = match key {
            "case" => serde_json::from_slice(text).map(Self::Head),
            "f" => serde_json::from_slice(text).map(Self::Forward),
            "req" => serde_json::from_slice(text).map(Self::Request),
            "end" => serde_json::from_slice(text).map(Self::End),
            other => {
                let near = hint::nearest(other, ["case", "f", "req", "end"]);
                let near = near.map_or_else(String::new, |key| format!("; did you mean `{key}`?"));
                return Err(format!(
                    "the line begins with `{other}`, expected `case`, `f`, `req` or `end`{near}"
                ));
            }
        };
        read.map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// One of each, with every key.
    fn all_kinds() -> [Value; 5] {
        let standing = json!({"avail": 1, "evict": 2, "prot": 3, "wait": 4, "run": 5, "full": 1,
            "ratio": 0.100_333_333_333_333_33});
        [
            json!({"case": "x", "sglang": "0.5.23", "tree_core": "y", "max_total_tokens": 1,
                "max_running_requests": 2, "max_req_len": 3, "policy": "dfs-weight", "mixed": true,
                "ratio": [0.7, 0.098, 0.001]}),
            json!({"f": 1, "kind": "mixed", "sched": 2, "start": 3, "end": 4, "ids": ["a", "b"],
                "ext": [5, 1], "pre": [0, 6], "ndec": 1, "chunked": "a", "preempted": ["c"],
                "at": standing, "queue": ["c"], "finished": ["b"], "done": 4, "after": [7, 8, 9]}),
            json!({"f": 2, "kind": "decode", "sched": 2, "start": 3, "end": 4, "ids": ["b"], "ctx": 10,
                "retracted": ["d"], "aborted": ["e"], "at": standing, "queue": [], "finished": [],
                "done": 4, "after": [7, 8, 9]}),
            json!({"req": "a", "first": null, "finish": 1, "cached": 2, "out": 3, "max_new": 4,
                "retractions": 5, "reason": "abort"}),
            json!({"end": true, "forwards": 1, "clock": 2, "stuck": ["a"], "late_aborts": ["b"],
                "final": standing}),
        ]
    }

    #[test]
    fn every_kind_of_line_is_read_and_written_whole() {
        for line in all_kinds() {
            let read = Line::from_json(line.to_string().as_bytes()).unwrap();
            assert_eq!(serde_json::to_value(&read).unwrap(), line);
        }
    }

    #[test]
    fn a_line_without_a_key_or_with_another_is_none() {
        for line in all_kinds() {
            let absent_at_will = [
                "chunked",
                "preempted",
                "retracted",
                "aborted",
                "ext",
                "pre",
                "ndec",
                "ctx",
                "first",
                "finish",
            ];
            for key in line.as_object().unwrap().keys() {
                let mut line = line.clone();
                line.as_object_mut().unwrap().shift_remove(key);
                let read = Line::from_json(line.to_string().as_bytes());
                let may_be = absent_at_will.contains(&key.as_str());
                assert_eq!(read.is_ok(), may_be, "{key}: {read:?}");
            }
            let mut line = line;
            line["lora"] = json!(1);
            let refused = Line::from_json(line.to_string().as_bytes()).unwrap_err();
            assert!(refused.contains("unknown field `lora`"), "{refused}");
        }
    }

    #[test]
    fn what_is_no_line_says_what_would_be() {
        let refused = |text: &str| Line::from_json(text.as_bytes()).unwrap_err();
        assert_eq!(refused("[1]"), "expected a JSON object");
        assert_eq!(
            refused("{\"reqs\": 1}"),
            "the line begins with `reqs`, expected `case`, `f`, `req` or `end`; did you mean `req`?"
        );
        assert!(refused("{\"f\": 1").contains("EOF"));
    }

    #[test]
    fn the_first_key_is_read_through_spaces() {
        assert_eq!(first_key(b" { \"input\": {"), Some("input"));
        assert_eq!(first_key(b"{\"inp"), None);
        assert_eq!(first_key(b"{}"), None);
        assert_eq!(first_key(b"\xff"), None);
    }
}
