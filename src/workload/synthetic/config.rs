//! The `synthetic` part of a scenario's workload.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::config::ConfigError;
use crate::workload::arrivals::config::{ArrivalsConfig, Spread};
use crate::workload::lengths::config::{LengthConfig, PairsConfig};

/// Made-up load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SyntheticConfig {
    /// How many requests there are at most; at least 1.
    pub(crate) requests: u32,
    /// Tokens of a prompt, without a shared prefix; absent: 1024, unless lengths come in pairs.
    pub(crate) prompt_tokens: Option<LengthConfig>,
    /// Tokens of an output; absent: 256, unless lengths come in pairs.
    pub(crate) output_tokens: Option<LengthConfig>,
    /// How far long prompts have long outputs: the correlation of the normal draws behind the two
    /// lengths, from -1 to 1; absent: 0, unless lengths come in pairs.
    pub(crate) length_correlation: Option<f64>,
    /// Pairs of lengths that occurred, in the place of the three fields above.
    pub(crate) length_pairs: Option<PairsConfig>,
    /// Prefixes that prompts share; absent: none.
    pub(crate) prefixes: Option<PrefixesConfig>,
    /// Requests that follow each other; absent: each is by itself.
    pub(crate) sessions: Option<MadeSessionsConfig>,
    /// When requests come; of sessions, their first requests.
    pub(crate) arrivals: ArrivalsConfig,
    /// Requests that the client has under way at most; the others wait on its side.
    pub(crate) max_concurrency: Option<u32>,
    /// Kinds of clients, mixed; absent: one, without a name.
    pub(crate) classes: Option<Vec<ClassConfig>>,
}

/// Prefixes that prompts share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PrefixesConfig {
    /// How many prefixes there are; at least 1.
    pub(crate) groups: u32,
    /// How unequally popular they are: the k-th has a share in proportion to k^-exponent; 0 is
    /// equally.
    pub(crate) exponent: f64,
    /// Tokens of a prefix, which come before those of `prompt_tokens`.
    pub(crate) prefix_tokens: LengthConfig,
    /// Share of the requests that have one, from 0 to 1.
    pub(crate) share: f64,
}

/// Sessions: every turn has all that was said before it, and then something new.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MadeSessionsConfig {
    /// Requests of a session; 0 is as 1.
    pub(crate) turns: LengthConfig,
    /// Tokens that a later turn adds; absent: as `prompt_tokens`.
    pub(crate) added_tokens: Option<LengthConfig>,
    /// Seconds between the end of a turn and the next; the mean for `exponential` think times.
    pub(crate) think_s: f64,
    /// Whether think times are all alike.
    pub(crate) think: Spread,
    /// A session ends before a prompt of more tokens; absent: there is no such end.
    pub(crate) prompt_tokens_max: Option<u32>,
}

/// A kind of client. What it leaves out is as for the whole load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ClassConfig {
    /// What reports call it.
    pub(crate) name: String,
    /// Its share of the arrivals that classes without their own have in common; absent: 1.
    pub(crate) weight: Option<f64>,
    /// Arrivals of its own.
    pub(crate) arrivals: Option<ArrivalsConfig>,
    /// How many requests it sends at most, by arrivals of its own; absent: as many as all.
    pub(crate) requests: Option<u32>,
    /// Tokens of a prompt.
    pub(crate) prompt_tokens: Option<LengthConfig>,
    /// Tokens of an output.
    pub(crate) output_tokens: Option<LengthConfig>,
    /// The correlation of its lengths.
    pub(crate) length_correlation: Option<f64>,
    /// Pairs of lengths that occurred.
    pub(crate) length_pairs: Option<PairsConfig>,
    /// Prefixes that its prompts share with each other.
    pub(crate) prefixes: Option<PrefixesConfig>,
    /// Its sessions.
    pub(crate) sessions: Option<MadeSessionsConfig>,
    /// Smaller runs first under the priority policy.
    pub(crate) priority: i32,
}

/// Tokens of a prompt, where nothing else is said.
pub(super) const PROMPT_TOKENS: LengthConfig = LengthConfig::Fixed(1024);

/// Tokens of an output, where nothing else is said.
pub(super) const OUTPUT_TOKENS: LengthConfig = LengthConfig::Fixed(256);

impl Default for SyntheticConfig {
    fn default() -> Self {
        Self {
            requests: 1000,
            prompt_tokens: None,
            output_tokens: None,
            length_correlation: None,
            length_pairs: None,
            prefixes: None,
            sessions: None,
            arrivals: ArrivalsConfig::default(),
            max_concurrency: None,
            classes: None,
        }
    }
}

impl Default for MadeSessionsConfig {
    fn default() -> Self {
        Self {
            turns: LengthConfig::Fixed(4),
            added_tokens: None,
            think_s: 10.0,
            think: Spread::Exponential,
            prompt_tokens_max: None,
        }
    }
}

impl Default for PrefixesConfig {
    fn default() -> Self {
        let prefix_tokens = LengthConfig::Fixed(512);
        Self { groups: 16, exponent: 1.0, prefix_tokens, share: 1.0 }
    }
}

/// Shared prefixes that there may be: their lengths and shares are kept.
const GROUPS_MAX: u32 = 1 << 20;

/// Classes that there may be.
const CLASSES_MAX: usize = 1000;

fn check_requests(requests: u32) -> Result<(), ConfigError> {
    if requests == 0 || requests == u32::MAX {
        return Err(ConfigError::new("requests", requests, "an integer from 1 to 4294967294"));
    }
    Ok(())
}

fn check_correlation(correlation: f64) -> Result<(), ConfigError> {
    if (-1.0..=1.0).contains(&correlation) {
        return Ok(());
    }
    Err(ConfigError::new("length_correlation", correlation, "a number from -1 to 1"))
}

/// The fields that say how long requests are, of a load or a class.
struct LengthFields<'a> {
    prompt_tokens: &'a mut Option<LengthConfig>,
    output_tokens: &'a mut Option<LengthConfig>,
    correlation: Option<f64>,
    pairs: &'a mut Option<PairsConfig>,
}

impl LengthFields<'_> {
    /// Checks what the types leave open, and makes paths absolute.
    ///
    /// # Errors
    /// The first field that cannot be used: pairs say everything, so that nothing stands beside them.
    fn resolve(self, directory: &Path) -> Result<(), ConfigError> {
        let lengths =
            [("prompt_tokens", self.prompt_tokens), ("output_tokens", self.output_tokens)];
        if let Some(pairs) = self.pairs {
            let beside = lengths.iter().find(|(_, tokens)| tokens.is_some()).map(|(path, _)| *path);
            if let Some(path) = beside.or(self.correlation.map(|_| "length_correlation")) {
                return Err(ConfigError::new(path, "set", "none beside `length_pairs`"));
            }
            return pairs.resolve(directory).map_err(|e| e.within("length_pairs"));
        }
        for (path, tokens) in lengths {
            if let Some(tokens) = tokens {
                tokens.resolve(directory).map_err(|e| e.within(path))?;
            }
        }
        self.correlation.map_or(Ok(()), check_correlation)
    }
}

impl SyntheticConfig {
    /// The field by which arrivals follow the ends of requests, and what it is; `None` where none does.
    pub(crate) fn following_ends(&self) -> Option<(String, String)> {
        if let Some(concurrency) = self.max_concurrency {
            return Some(("max_concurrency".to_owned(), concurrency.to_string()));
        }
        let classes = self.classes.as_deref().unwrap_or_default();
        let of_classes = classes.iter().enumerate().filter_map(|(at, class)| {
            Some((format!("classes[{at}].arrivals"), class.arrivals.as_ref()?))
        });
        let is_session = |class: &ClassConfig| class.sessions.is_some();
        if self.sessions.is_some() || classes.iter().any(is_session) {
            return Some(("sessions".to_owned(), "set".to_owned()));
        }
        // Without a class that shares them, the common arrivals are not used.
        let are_shared = classes.is_empty() || classes.iter().any(|c| c.arrivals.is_none());
        let common = are_shared.then(|| ("arrivals".to_owned(), &self.arrivals));
        common
            .into_iter()
            .chain(of_classes)
            .find_map(|(field, arrivals)| Some((field, arrivals.following_ends()?.to_owned())))
    }

    fn lengths(&mut self) -> LengthFields<'_> {
        LengthFields {
            prompt_tokens: &mut self.prompt_tokens,
            output_tokens: &mut self.output_tokens,
            correlation: self.length_correlation,
            pairs: &mut self.length_pairs,
        }
    }

    /// Checks what the types leave open, and makes paths absolute, from `directory`.
    ///
    /// # Errors
    /// The first field that cannot be used.
    pub(crate) fn resolve(&mut self, directory: &Path) -> Result<(), ConfigError> {
        check_requests(self.requests)?;
        self.arrivals.validate(self.requests.into()).map_err(|e| e.within("arrivals"))?;
        if self.length_pairs.is_none() {
            self.prompt_tokens.get_or_insert(PROMPT_TOKENS);
            self.output_tokens.get_or_insert(OUTPUT_TOKENS);
            self.length_correlation.get_or_insert(0.0);
        }
        self.lengths().resolve(directory)?;
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.resolve(directory).map_err(|e| e.within("prefixes"))?;
        }
        if let Some(sessions) = &mut self.sessions {
            sessions.resolve(directory).map_err(|e| e.within("sessions"))?;
        }
        if self.max_concurrency == Some(0) {
            return Err(ConfigError::new("max_concurrency", 0, "an integer of at least 1"));
        }
        let (requests, has_pairs) = (self.requests, self.length_pairs.is_some());
        let Some(classes) = &mut self.classes else { return Ok(()) };
        if !(1..=CLASSES_MAX).contains(&classes.len()) {
            let found = format!("a list of {}", classes.len());
            let accepted = format!("a list of 1 to {CLASSES_MAX} classes");
            return Err(ConfigError::new("classes", found, accepted));
        }
        for at in 0..classes.len() {
            let (before, rest) = classes.split_at_mut(at);
            let within = |e: ConfigError| e.within(&format!("classes[{at}]"));
            let class = &mut rest[0];
            class.resolve(requests, has_pairs, directory).map_err(within)?;
            if before.iter().any(|other| other.name == class.name) {
                let accepted = "a name that no other class has";
                return Err(within(ConfigError::new("name", &class.name, accepted)));
            }
        }
        let shares = |class: &ClassConfig| class.arrivals.is_none();
        let weight: f64 = classes.iter().filter(|c| shares(c)).map(ClassConfig::weight).sum();
        if classes.iter().any(shares) && weight <= 0.0 {
            return Err(ConfigError::new("classes", "without weight", "a weight above 0"));
        }
        Ok(())
    }
}

impl MadeSessionsConfig {
    fn resolve(&mut self, directory: &Path) -> Result<(), ConfigError> {
        self.turns.resolve(directory).map_err(|e| e.within("turns"))?;
        if let Some(added) = &mut self.added_tokens {
            added.resolve(directory).map_err(|e| e.within("added_tokens"))?;
        }
        if !(0.0..=31_536_000.0).contains(&self.think_s) {
            let accepted = "a number of seconds from 0 to 31536000";
            return Err(ConfigError::new("think_s", self.think_s, accepted));
        }
        if self.prompt_tokens_max == Some(0) {
            let accepted = "an integer of at least 1, or none";
            return Err(ConfigError::new("prompt_tokens_max", 0, accepted));
        }
        Ok(())
    }
}

impl PrefixesConfig {
    fn resolve(&mut self, directory: &Path) -> Result<(), ConfigError> {
        if !(1..=GROUPS_MAX).contains(&self.groups) {
            let accepted = format!("an integer from 1 to {GROUPS_MAX}");
            return Err(ConfigError::new("groups", self.groups, accepted));
        }
        if !(0.0..=100.0).contains(&self.exponent) {
            return Err(ConfigError::new("exponent", self.exponent, "a number from 0 to 100"));
        }
        if !(0.0..=1.0).contains(&self.share) {
            return Err(ConfigError::new("share", self.share, "a number from 0 to 1"));
        }
        self.prefix_tokens.resolve(directory).map_err(|e| e.within("prefix_tokens"))
    }
}

impl ClassConfig {
    /// Its share of the common arrivals, against those of the others.
    pub(crate) fn weight(&self) -> f64 {
        self.weight.unwrap_or(1.0)
    }

    fn lengths(&mut self) -> LengthFields<'_> {
        LengthFields {
            prompt_tokens: &mut self.prompt_tokens,
            output_tokens: &mut self.output_tokens,
            correlation: self.length_correlation,
            pairs: &mut self.length_pairs,
        }
    }

    /// A class of a load with pairs has these, or both distributions of its own.
    fn check_beside_common_pairs(&self) -> Result<(), ConfigError> {
        let absent = match (&self.prompt_tokens, &self.output_tokens) {
            (None, Some(_)) => "prompt_tokens",
            (Some(_), None) => "output_tokens",
            (Some(_), Some(_)) => return Ok(()),
            (None, None) => {
                let Some(correlation) = self.length_correlation else { return Ok(()) };
                let accepted = "none, where lengths are the `length_pairs` of the load";
                return Err(ConfigError::new("length_correlation", correlation, accepted));
            }
        };
        let accepted =
            "a length, as for the other: the load has `length_pairs`, and no length for this";
        Err(ConfigError::new(absent, "absent", accepted))
    }

    fn resolve(
        &mut self,
        all_requests: u32,
        all_have_pairs: bool,
        directory: &Path,
    ) -> Result<(), ConfigError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.name.is_empty() || !self.name.chars().all(is_plain) {
            let accepted = "letters, digits, `-`, `_` and `.`";
            return Err(ConfigError::new("name", format!("{:?}", self.name), accepted));
        }
        if let Some(weight) = self.weight {
            if !(0.0..=1e9).contains(&weight) {
                return Err(ConfigError::new("weight", weight, "a number from 0 to 1000000000"));
            }
            if self.arrivals.is_some() {
                let accepted = "none beside arrivals of its own";
                return Err(ConfigError::new("weight", weight, accepted));
            }
        }
        if let Some(requests) = self.requests {
            check_requests(requests)?;
            if self.arrivals.is_none() {
                let accepted = "none without arrivals of its own";
                return Err(ConfigError::new("requests", requests, accepted));
            }
        }
        if let Some(arrivals) = &self.arrivals {
            let requests = self.requests.unwrap_or(all_requests);
            arrivals.validate(requests.into()).map_err(|e| e.within("arrivals"))?;
        }
        self.lengths().resolve(directory)?;
        if all_have_pairs {
            self.check_beside_common_pairs()?;
        }
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.resolve(directory).map_err(|e| e.within("prefixes"))?;
        }
        match &mut self.sessions {
            Some(sessions) => sessions.resolve(directory).map_err(|e| e.within("sessions")),
            None => Ok(()),
        }
    }
}
