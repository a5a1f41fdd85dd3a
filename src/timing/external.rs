//! Prices from a program of the user's own: a child process that speaks JSON lines.
//!
//! A question is one line on its standard input, the answer one line on its standard output. A line
//! holds several queries: a decode pass is nearly always followed by the same batch with one token
//! more each, so those are asked ahead, and wait for their pass among the answers that are kept.
//! Answers are kept by exact coordinates, so the program is asked once for each, and a program that
//! draws lots still gives one run one price.

mod child;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::child::Child;
use super::config::Deployment;
use super::error::{ProfileError, TimingError};
use super::evidence::{Evidence, Origin, Part};
use super::work::{DecodeWork, PrefillWork};
use super::{MixedPrice, TimingProvider};
use crate::base::config::ConfigError;
use crate::base::lookup::LookupMap;
use crate::base::path::absolute;

/// A program that prices passes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ExternalConfig {
    /// The program and its arguments; it is started in the folder of the scenario.
    pub(crate) command: Vec<String>,
    /// How long one answer may take, in ms; from 1 to 3,600,000.
    pub(crate) timeout_ms: u64,
    /// Decode passes asked ahead, one line holding them all; from 0 to 256.
    pub(crate) ahead_passes: u32,
    /// The folder the program is started in; absent: that of the scenario.
    pub(crate) directory: Option<PathBuf>,
}

impl Default for ExternalConfig {
    fn default() -> Self {
        Self { command: Vec::new(), timeout_ms: 30_000, ahead_passes: 64, directory: None }
    }
}

impl ExternalConfig {
    /// # Errors
    /// There is no program, or a figure is out of range.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.command.first().is_none_or(String::is_empty) {
            return Err(ConfigError::new("command", "empty", "a program and its arguments"));
        }
        if !(1..=3_600_000).contains(&self.timeout_ms) {
            let accepted = "an integer from 1 to 3600000";
            return Err(ConfigError::new("timeout_ms", self.timeout_ms, accepted));
        }
        if self.ahead_passes > 256 {
            let accepted = "an integer from 0 to 256";
            return Err(ConfigError::new("ahead_passes", self.ahead_passes, accepted));
        }
        Ok(())
    }

    /// The program is started in `directory` unless the configuration says where.
    pub(crate) fn absolutise(&mut self, directory: &Path) {
        let folder =
            self.directory.take().map_or_else(|| directory.to_owned(), |d| directory.join(d));
        // The current folder has no name.
        self.directory = Some(absolute(Path::new("."), &folder));
    }
}

/// One question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Query {
    prefill: PrefillWork,
    decode: DecodeWork,
}

impl Query {
    fn part(&self) -> Part {
        if self.decode.is_empty() { Part::Prefill } else { Part::Decode }
    }

    fn to_json(self) -> Value {
        let mut query = serde_json::Map::new();
        if !self.prefill.is_empty() {
            query.insert("prefill".to_owned(), json!(self.prefill));
        }
        if !self.decode.is_empty() {
            query.insert("decode".to_owned(), json!(self.decode));
        }
        Value::Object(query)
    }

    /// The same batch `passes` passes of one token each later; `None` past the largest number.
    fn later(&self, passes: u32) -> Option<Self> {
        let mut later = *self;
        let tokens = u64::from(self.decode.requests).checked_mul(passes.into())?;
        later.decode.kv_tokens = self.decode.kv_tokens.checked_add(tokens)?;
        later.decode.longest_kv_tokens = self.decode.longest_kv_tokens.checked_add(passes)?;
        Some(later)
    }
}

/// One answer.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Answer {
    /// No answer: to a mixed pass, that it costs the sum of its parts.
    None(()),
    /// The pass in ms.
    Ms(f64),
    /// The pass in ms and where that comes from.
    Found { ms: f64, origin: AnswerOrigin },
    /// Both parts of a mixed pass.
    Parts { prefill_ms: f64, decode_ms: f64 },
}

/// Where an answer comes from, as the program says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AnswerOrigin {
    Exact,
    Interpolated,
    Clamped,
    Extrapolated,
    Analytic,
}

impl From<AnswerOrigin> for Origin {
    fn from(origin: AnswerOrigin) -> Self {
        match origin {
            AnswerOrigin::Exact => Self::Exact,
            AnswerOrigin::Interpolated => Self::Interpolated,
            AnswerOrigin::Clamped => Self::Clamped,
            AnswerOrigin::Extrapolated => Self::Extrapolated,
            AnswerOrigin::Analytic => Self::Analytic,
        }
    }
}

/// A line of the program.
#[derive(Deserialize)]
struct Reply {
    id: u64,
    #[serde(default)]
    answers: Vec<Answer>,
    #[serde(default)]
    error: Option<String>,
}

/// Answers that are kept at once, about 100 MB of them; then they are all dropped.
const KEPT_MAX: usize = 1 << 20;

struct Conversation {
    child: Child,
    kept: LookupMap<Query, Answer>,
    kept_count: usize,
    questions: u64,
    /// Once the program has failed, it has failed for every engine.
    failed: Option<TimingError>,
}

/// Prices from a child process.
pub(crate) struct External {
    conversation: Mutex<Conversation>,
    ahead_passes: u32,
}

impl External {
    /// Starts the program of a checked configuration.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(
        config: &ExternalConfig,
        deployment: &Deployment<'_>,
    ) -> Result<Arc<Self>, ProfileError> {
        let about = json!({
            "model": deployment.model,
            "accelerator": deployment.accelerator,
            "parallel": deployment.parallel,
            "kv_capacity_tokens": deployment.kv_capacity_tokens,
        });
        let directory = config.directory.as_deref().unwrap_or(Path::new("."));
        let timeout = Duration::from_millis(config.timeout_ms);
        let child = Child::start(&config.command, directory, &about.to_string(), timeout).map_err(
            |error| {
                let found = format!("{:?}", config.command);
                let accepted = format!("a program that can be started ({error})");
                ConfigError::new("timing.external.command", found, accepted)
            },
        )?;
        let conversation = Conversation {
            child,
            kept: LookupMap::new(),
            kept_count: 0,
            questions: 0,
            failed: None,
        };
        Ok(Arc::new(Self {
            conversation: Mutex::new(conversation),
            ahead_passes: config.ahead_passes,
        }))
    }

    fn answer(&self, query: Query) -> Result<Answer, TimingError> {
        // A panic elsewhere leaves nothing half done here.
        let mut conversation = self.conversation.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&answer) = conversation.kept.get(&query) {
            return Ok(answer);
        }
        if let Some(failed) = &conversation.failed {
            return Err(failed.clone());
        }
        let mut queries = vec![query];
        if query.prefill.is_empty() {
            queries.extend((1..=self.ahead_passes).map_while(|passes| query.later(passes)));
        }
        match conversation.ask(&queries) {
            Ok(answer) => Ok(answer),
            Err(what) => {
                let told = conversation.child.last_words();
                let error = TimingError::External { what, told };
                conversation.failed = Some(error.clone());
                Err(error)
            }
        }
    }
}

impl Conversation {
    /// Asks all of `queries`, keeps the answers, and gives the first.
    fn ask(&mut self, queries: &[Query]) -> Result<Answer, String> {
        self.questions += 1;
        let id = self.questions;
        let texts: Vec<Value> = queries.iter().map(|query| query.to_json()).collect();
        let line = self.child.ask(&json!({ "id": id, "queries": texts }).to_string())?;
        let shown = || shortened(&line);
        let reply: Reply = serde_json::from_str(&line).map_err(|error| {
            format!("said {}, expected {{\"id\": {id}, \"answers\": [...]}} ({error})", shown())
        })?;
        if let Some(error) = reply.error {
            return Err(format!("says: {error}"));
        }
        if reply.id != id || reply.answers.len() != queries.len() {
            return Err(format!(
                "said {}, expected id {id} and {} answers",
                shown(),
                queries.len()
            ));
        }
        if self.kept_count + queries.len() > KEPT_MAX {
            self.kept = LookupMap::new();
            self.kept_count = 0;
        }
        for (&query, &answer) in queries.iter().zip(&reply.answers) {
            self.kept_count += usize::from(self.kept.insert(query, answer).is_none());
        }
        Ok(reply.answers[0])
    }
}

fn shortened(line: &str) -> String {
    let mut short: String = line.chars().take(200).collect();
    if short.len() < line.len() {
        short.push_str("...");
    }
    format!("{:?}", short.trim_end())
}

/// The price of a pass with one kind of work.
fn single(query: &Query, answer: Answer, evidence: &mut Evidence) -> Result<f64, TimingError> {
    let (ms, origin) = match answer {
        Answer::Ms(ms) => (ms, Origin::Analytic),
        Answer::Found { ms, origin } => (ms, origin.into()),
        Answer::None(()) | Answer::Parts { .. } => {
            let what = format!("gave no number for {}", query.to_json());
            return Err(TimingError::External { what, told: String::new() });
        }
    };
    evidence.note(query.part(), origin, ms);
    Ok(ms)
}

impl TimingProvider for External {
    fn prefill(&self, work: &PrefillWork, evidence: &mut Evidence) -> Result<f64, TimingError> {
        let query = Query { prefill: *work, decode: DecodeWork::default() };
        single(&query, self.answer(query)?, evidence)
    }

    fn decode(&self, work: &DecodeWork, evidence: &mut Evidence) -> Result<f64, TimingError> {
        let query = Query { prefill: PrefillWork::default(), decode: *work };
        single(&query, self.answer(query)?, evidence)
    }

    fn mixed(
        &self,
        prefill: &PrefillWork,
        decode: &DecodeWork,
        evidence: &mut Evidence,
    ) -> Result<Option<MixedPrice>, TimingError> {
        let query = Query { prefill: *prefill, decode: *decode };
        let (price, origin) = match self.answer(query)? {
            Answer::None(()) => return Ok(None),
            // Whose share the whole is, the program does not say.
            Answer::Ms(ms) => (MixedPrice { prefill_ms: ms, decode_ms: 0.0 }, Origin::Analytic),
            Answer::Found { ms, origin } => {
                (MixedPrice { prefill_ms: ms, decode_ms: 0.0 }, origin.into())
            }
            Answer::Parts { prefill_ms, decode_ms } => {
                (MixedPrice { prefill_ms, decode_ms }, Origin::Analytic)
            }
        };
        evidence.note(Part::Prefill, origin, price.prefill_ms);
        evidence.note(Part::Decode, origin, price.decode_ms);
        Ok(Some(price))
    }
}

#[cfg(test)]
mod tests;
