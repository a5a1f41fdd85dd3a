//! How a trace is read: the `trace` part of a scenario.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::stamp::unit_of_seconds;
use crate::base::config::ConfigError;
use crate::base::time::SimTime;
use crate::workload::arrivals::config::ArrivalsConfig;
use crate::workload::reshape::config::ReshapeConfig;
use crate::workload::sessions::config::SessionsConfig;

/// Nanoseconds in a second.
const NS_PER_S: f64 = 1e9;

/// A recorded trace to replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TraceConfig {
    /// The file, plain or gzip (told by its first bytes, not its name), or a folder of such files,
    /// which are one trace; `-` is the standard input.
    pub(crate) path: PathBuf,
    /// The format of the trace.
    pub(crate) format: TraceFormat,
    /// Prompt tokens that one hash id names, for formats with hash ids; at least 1. Absent: what is
    /// usual in the format.
    #[schemars(range(min = 1))]
    pub(crate) hash_block_tokens: Option<u32>,
    /// How rows of the format `vllm_timed_trace` name their fields.
    pub(crate) labels: Option<Box<LabelsConfig>>,
    /// What the chat template adds to prompts of the format `multi_turn`, which counts tokens without it.
    pub(crate) chat_template: Option<Box<ChatTemplateConfig>>,
    /// The prompts of the format `llmservingsim`, whose rows say only how long they are: JSON lines with
    /// `input_tok_ids`; the request `bench-7` has those of the eighth line. Relative to the scenario's file.
    pub(crate) prompts: Option<PathBuf>,
    /// Divides the time between arrivals: 2 sends the same requests in half the time. Above 0.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub(crate) speedup: f64,
    /// Replay only the first so many requests by arrival (of those in the window); at least 1.
    #[schemars(range(min = 1))]
    pub(crate) limit: Option<u64>,
    /// Replay only the requests that arrive in this part of the trace.
    pub(crate) window: Option<TraceWindow>,
    /// What the stamps of the trace count from.
    pub(crate) origin: Origin,
    /// Seconds of trace time (before `speedup`) by which a row may stand too late in the file: such
    /// rows are sorted in, later ones are refused. The rows of so many seconds are held in memory;
    /// 0 is enough for a file that is in order. At least 0.
    #[schemars(range(min = 0.0))]
    pub(crate) sort_window_s: f64,
    /// The order of requests that arrive at the same instant.
    pub(crate) ties: Ties,
    /// Output tokens that every request asks for (`max_tokens` of the API); at least 1. A request
    /// whose recorded output is shorter ends by a stop token, a longer one is cut. Absent: each
    /// request asks for exactly its recorded output.
    #[schemars(range(min = 1))]
    pub(crate) max_tokens: Option<u32>,
    /// Who follows whom. Absent: every row arrives by its stamp.
    pub(crate) sessions: Option<SessionsConfig>,
    /// The field or column whose text is the class of a request; absent: `class` in servesim's own
    /// formats, none in others.
    pub(crate) class_field: Option<String>,
    /// Changes to the requests before they are replayed.
    pub(crate) reshape: Option<Box<ReshapeConfig>>,
    /// Whether each request has to say what its drafts came to, as nothing else in the scenario does.
    #[serde(skip)]
    pub(crate) needs_accepted_drafts: bool,
}

impl Default for TraceConfig {
    fn default() -> Self {
        Self {
            path: PathBuf::new(),
            format: TraceFormat::Auto,
            hash_block_tokens: None,
            labels: None,
            chat_template: None,
            prompts: None,
            speedup: 1.0,
            limit: None,
            window: None,
            origin: Origin::First,
            sort_window_s: 60.0,
            ties: Ties::Content,
            max_tokens: None,
            sessions: None,
            class_field: None,
            reshape: None,
            needs_accepted_drafts: false,
        }
    }
}

/// The format of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TraceFormat {
    /// Told by the first line that is not empty.
    #[default]
    Auto,
    /// JSON lines with `timestamp` (ms), `input_length`, `output_length` and `hash_ids`.
    Mooncake,
    /// As `mooncake`, but the rows of a session say only what they add to the prompt and output before;
    /// never told by its first line.
    MooncakeDelta,
    /// CSV with the columns `TIMESTAMP`, `ContextTokens` and `GeneratedTokens`.
    Azure,
    /// CSV with `Timestamp` (s), `Request tokens` and `Response tokens`.
    #[serde(rename = "burstgpt")]
    BurstGpt,
    /// JSON lines with `chat_id`, `timestamp` (s), lengths and `hash_ids` of 16 tokens.
    QwenBailian,
    /// CSV with `arrival_timestamp` (s), `prompt_size` and `token_size`.
    Splitwise,
    /// CSV with `timestamp` (s), `input_tokens` and `output_tokens`, as ServeGen writes it.
    ServegenCsv,
    /// CSV with `arrived_at` (s), `num_prefill_tokens` and `num_decode_tokens`.
    Vidur,
    /// The fields of Mooncake with seconds and `hash_ids` of 16 tokens; never told by its first line.
    VllmTimedTrace,
    /// The JSON document that `vllm bench serve --save-detailed` writes.
    VllmBench,
    /// JSON lines or CSV with `StartTimeOffset` (ns), `ContextTokens` and `GeneratedTokens`.
    Apex,
    /// JSON lines with `timestamp` (s, as text) and `hash_ids` by part of the prompt.
    #[serde(rename = "ragpulse")]
    RagPulse,
    /// JSON documents with the `requests` of one session each.
    Weka,
    /// JSON lines with `queued_ts` (s), `input_toks` and `output_toks`: what a vLLM served.
    #[serde(rename = "llmservingsim")]
    LlmServingSim,
    /// JSON lines of OpenTelemetry spans, as vLLM sends them.
    Otlp,
    /// CSV with `start_time_ms`, `input_num_tokens` and `output_num_tokens`, as `benchmark_serving_multi_turn.py` writes
    /// it.
    MultiTurn,
    /// servesim's own CSV.
    Csv,
    /// servesim's own JSON lines.
    Jsonl,
}

/// What a chat template adds to a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ChatTemplateConfig {
    /// Tokens before the first message, the same in all conversations.
    pub(crate) front_tokens: u32,
    /// Tokens around each message.
    pub(crate) message_tokens: u32,
}

/// The names and the unit of time that `vllm bench serve` takes as `--timed-trace-label-*` and
/// `--timed-trace-sec-multiplier`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LabelsConfig {
    /// The field of the arrival.
    pub(crate) timestamp: String,
    /// The field of the prompt tokens.
    pub(crate) input_length: String,
    /// The field of the output tokens.
    pub(crate) output_length: String,
    /// The field of the prompt's blocks, which rows may lack.
    pub(crate) hash_ids: String,
    /// Seconds that one step of a stamp stands for: 0.001 for milliseconds. A whole number of
    /// nanoseconds, up to 1000000 s.
    #[schemars(range(min = 1e-9, max = 1e6))]
    pub(crate) seconds_per_unit: f64,
}

impl Default for LabelsConfig {
    fn default() -> Self {
        Self {
            timestamp: "timestamp".to_owned(),
            input_length: "input_length".to_owned(),
            output_length: "output_length".to_owned(),
            hash_ids: "hash_ids".to_owned(),
            seconds_per_unit: 1.0,
        }
    }
}

impl LabelsConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        if unit_of_seconds(self.seconds_per_unit).is_none() {
            let accepted = "a whole number of nanoseconds, from 0.000000001 to 1000000";
            return Err(ConfigError::new("seconds_per_unit", self.seconds_per_unit, accepted));
        }
        let names = [
            ("timestamp", &self.timestamp),
            ("input_length", &self.input_length),
            ("output_length", &self.output_length),
            ("hash_ids", &self.hash_ids),
        ];
        for (at, (path, name)) in names.iter().enumerate() {
            if name.is_empty() || names[..at].iter().any(|(_, other)| other == name) {
                let accepted = "a name that no other label has";
                return Err(ConfigError::new(path, format!("{name:?}"), accepted));
            }
        }
        Ok(())
    }
}

/// A part of a trace: arrivals from `from_s` on, up to but not including `to_s`, in seconds of
/// trace time (before `speedup`) after the origin. The replay starts at `from_s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TraceWindow {
    /// Start, in seconds after the origin; at least 0.
    #[schemars(range(min = 0.0))]
    pub(crate) from_s: f64,
    /// End, in seconds after the origin; above `from_s`. Absent: the end of the trace.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub(crate) to_s: Option<f64>,
}

/// What the stamps of a trace count from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Origin {
    /// The earliest stamp is time 0.
    #[default]
    First,
    /// Stamps are kept: a trace whose first stamp is late starts idle. Not for stamps that are
    /// dates.
    Zero,
}

/// The order of requests that arrive at the same instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ties {
    /// By what the rows hold (last hash id, prompt tokens, output tokens, all hash ids, priority),
    /// so that shuffling the lines of one instant changes nothing. Ids that are numbered by first
    /// appearance give back the order of the file.
    #[default]
    Content,
    /// By their place in the file.
    File,
}

impl TraceConfig {
    /// Checks what the types leave open.
    ///
    /// # Errors
    /// The first field that cannot be used.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let refuse = |path, found: &dyn ToString, accepted: &str| {
            Err(ConfigError::new(path, found.to_string(), accepted))
        };
        if self.path.as_os_str().is_empty() {
            return refuse("path", &"empty", "a file, or `-` for the standard input");
        }
        if self.hash_block_tokens == Some(0) {
            return refuse("hash_block_tokens", &0, "an integer from 1 to 4294967295, or none");
        }
        if !(self.speedup > 0.0 && self.speedup.is_finite()) {
            return refuse("speedup", &self.speedup, "a number above 0");
        }
        if self.limit == Some(0) {
            return refuse("limit", &0, "an integer of at least 1, or no limit");
        }
        if ns_of_s(self.sort_window_s).is_none() {
            return refuse("sort_window_s", &self.sort_window_s, SECONDS);
        }
        if self.max_tokens == Some(0) {
            return refuse("max_tokens", &0, "an integer from 1 to 4294967295, or none");
        }
        if let Some(sessions) = &self.sessions {
            sessions.validate().map_err(|e| e.within("sessions"))?;
        }
        if self.class_field.as_deref() == Some("") {
            return refuse("class_field", &"empty", "the name of a field or column, or none");
        }
        if let Some(labels) = &self.labels {
            labels.validate().map_err(|e| e.within("labels"))?;
            if self.format != TraceFormat::VllmTimedTrace {
                let accepted = "none, unless `format` is vllm_timed_trace";
                return refuse("labels", &"set", accepted);
            }
        }
        if self.chat_template.is_some()
            && !matches!(self.format, TraceFormat::Auto | TraceFormat::MultiTurn)
        {
            return refuse("chat_template", &"set", "none, unless `format` is multi_turn");
        }
        if self.prompts.is_some()
            && !matches!(self.format, TraceFormat::Auto | TraceFormat::LlmServingSim)
        {
            return refuse("prompts", &"set", "none, unless `format` is llmservingsim");
        }
        self.window.map_or(Ok(()), |window| window.validate().map_err(|e| e.within("window")))
    }

    /// Checks what following sessions needs.
    ///
    /// # Errors
    /// The trace can be read only once, or its arrivals follow from ends already.
    pub(crate) fn check_sessions(&self) -> Result<(), ConfigError> {
        let Some(_) = &self.sessions else { return Ok(()) };
        if self.path.as_os_str() == "-" {
            let accepted = "none for the standard input, which can be read only once";
            return Err(ConfigError::new("sessions", "set", accepted));
        }
        let arrivals = self.reshape.as_ref().and_then(|reshape| reshape.arrivals.as_ref());
        let rate = self.reshape.as_ref().and_then(|reshape| reshape.requests_per_s);
        if matches!(self.sessions, Some(SessionsConfig::Closed(_))) {
            let accepted =
                "none beside `sessions.closed`: users begin sessions when they have time";
            if arrivals.is_some() {
                return Err(ConfigError::new("reshape.arrivals", "set", accepted));
            }
            if let Some(rate) = rate {
                return Err(ConfigError::new("reshape.requests_per_s", rate, accepted));
            }
        }
        if matches!(arrivals, Some(ArrivalsConfig::ClosedLoop(_))) {
            let accepted = "none beside `sessions`: `sessions.closed` has the users";
            return Err(ConfigError::new("reshape.arrivals.closed_loop", "set", accepted));
        }
        Ok(())
    }
}

impl TraceWindow {
    fn validate(&self) -> Result<(), ConfigError> {
        let Some(from) = ns_of_s(self.from_s) else {
            return Err(ConfigError::new("from_s", self.from_s, SECONDS));
        };
        match self.to_s.map(|to_s| (to_s, ns_of_s(to_s))) {
            Some((to_s, None)) => Err(ConfigError::new("to_s", to_s, SECONDS)),
            Some((to_s, Some(to))) if to <= from => {
                let accepted = format!("a number above `from_s`, which is {}", self.from_s);
                Err(ConfigError::new("to_s", to_s, accepted))
            }
            _ => Ok(()),
        }
    }
}

/// The durations that a trace may be cut by.
const SECONDS: &str = "a number from 0 to 3153600000 (100 years)";

/// `s` seconds in nanoseconds, rounded to the nearest; `None` outside 0 to 100 years.
pub(super) fn ns_of_s(s: f64) -> Option<i128> {
    let ns = (s * NS_PER_S).round();
    (0.0..=SimTime::LATEST_INPUT.as_ns() as f64).contains(&ns).then_some(ns as i128)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> TraceConfig {
        TraceConfig { path: "trace.jsonl".into(), ..TraceConfig::default() }
    }

    fn refused(change: impl FnOnce(&mut TraceConfig)) -> String {
        let mut config = config();
        change(&mut config);
        config.validate().expect_err("must be refused").to_string()
    }

    #[test]
    fn the_defaults_are_the_documented_ones() {
        let read: TraceConfig = serde_json::from_str(r#"{"path": "trace.jsonl"}"#).unwrap();
        assert_eq!(read, config());
        assert_eq!(read.validate(), Ok(()));
        let json = serde_json::to_value(&read).unwrap();
        assert_eq!(json["format"], "auto");
        assert_eq!(json["origin"], "first");
        assert_eq!(json["ties"], "content");
        assert_eq!(serde_json::from_value::<TraceConfig>(json).unwrap(), read);
    }

    #[test]
    fn unknown_fields_are_refused() {
        let error = serde_json::from_str::<TraceConfig>(r#"{"speed_up": 2}"#).unwrap_err();
        assert!(error.to_string().contains("unknown field `speed_up`"), "{error}");
    }

    #[test]
    fn each_unusable_value_names_its_field() {
        let window = |from_s, to_s| Some(TraceWindow { from_s, to_s });
        let labels = |change: fn(&mut LabelsConfig)| {
            let mut labels = LabelsConfig::default();
            change(&mut labels);
            Some(Box::new(labels))
        };
        for (error, expected) in [
            (refused(|c| c.path.clear()), "`path` is empty"),
            (refused(|c| c.hash_block_tokens = Some(0)), "`hash_block_tokens` is 0"),
            (
                refused(|c| c.labels = labels(|_| ())),
                "`labels` is set, expected none, unless `format` is vllm_timed_trace",
            ),
            (
                refused(|c| c.labels = labels(|l| l.seconds_per_unit = 1.5e-9)),
                "`labels.seconds_per_unit` is 0.0000000015, expected a whole number of nanoseconds",
            ),
            (
                refused(|c| c.labels = labels(|l| l.hash_ids = "timestamp".to_owned())),
                "`labels.hash_ids` is \"timestamp\", expected a name that no other label has",
            ),
            (
                refused(|c| c.labels = labels(|l| l.timestamp = String::new())),
                "`labels.timestamp` is \"\", expected a name",
            ),
            (refused(|c| c.speedup = 0.0), "`speedup` is 0, expected a number above 0"),
            (refused(|c| c.speedup = -1.0), "`speedup` is -1"),
            (refused(|c| c.speedup = f64::NAN), "`speedup` is NaN"),
            (refused(|c| c.speedup = f64::INFINITY), "`speedup` is inf"),
            (refused(|c| c.limit = Some(0)), "`limit` is 0"),
            (refused(|c| c.sort_window_s = -1.0), "`sort_window_s` is -1"),
            (refused(|c| c.sort_window_s = 4e9), "`sort_window_s` is 4000000000"),
            (refused(|c| c.max_tokens = Some(0)), "`max_tokens` is 0"),
            (refused(|c| c.window = window(-1.0, None)), "`window.from_s` is -1"),
            (refused(|c| c.window = window(0.0, Some(f64::NAN))), "`window.to_s` is NaN"),
            (
                refused(|c| c.window = window(5.0, Some(5.0))),
                "`window.to_s` is 5, expected a number above `from_s`, which is 5",
            ),
        ] {
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn the_schema_repeats_the_documentation() {
        let schema = serde_json::to_value(schemars::schema_for!(TraceConfig)).unwrap();
        let speedup = &schema["properties"]["speedup"];
        assert!(speedup["description"].as_str().unwrap().starts_with("Divides the time"));
        assert_eq!(speedup["default"], 1.0);
        assert_eq!(schema["additionalProperties"], false);
    }
}
