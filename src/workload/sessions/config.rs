//! How requests that follow others are replayed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::config::ConfigError;

/// When a request that follows others arrives.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum SessionsConfig {
    /// By its stamp, whether or not what it follows has ended.
    Open(OpenConfig),
    /// Some time after the end of what it follows; sessions begin by their stamps.
    Think(ThinkConfig),
    /// As `think`, but with a fixed number of users who begin a session when they have time.
    Closed(ClosedConfig),
}

/// Recorded stamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OpenConfig {}

/// Recorded pauses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ThinkConfig {
    /// Multiplies the time from the end of what a request follows to its arrival; at least 0.
    pub(crate) think_factor: f64,
    /// The longest such time in seconds, after `think_factor`; absent: any.
    pub(crate) think_s_max: Option<f64>,
}

/// A fixed number of users.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ClosedConfig {
    /// Users; from 1 to 10,000,000.
    pub(crate) users: u32,
    /// What a user has one of at a time.
    pub(crate) counts: Counts,
    /// Seconds over which the users begin, evenly, the first at 0.
    pub(crate) ramp_up_s: f64,
    /// As for `think`.
    pub(crate) think_factor: f64,
    /// As for `think`.
    pub(crate) think_s_max: Option<f64>,
}

/// What a user of a closed loop has one of at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Counts {
    /// A session, from its first request to the end of its last, pauses included.
    #[default]
    Sessions,
    /// A request: while a session pauses, the user serves another one.
    Requests,
}

impl Default for ThinkConfig {
    fn default() -> Self {
        Self { think_factor: 1.0, think_s_max: None }
    }
}

impl Default for ClosedConfig {
    fn default() -> Self {
        Self {
            users: 64,
            counts: Counts::Sessions,
            ramp_up_s: 0.0,
            think_factor: 1.0,
            think_s_max: None,
        }
    }
}

impl SessionsConfig {
    /// Checks what the types leave open.
    ///
    /// # Errors
    /// The first field that cannot be used.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        match self {
            Self::Open(_) => Ok(()),
            Self::Think(think) => {
                check_think(think.think_factor, think.think_s_max).map_err(|e| e.within("think"))
            }
            Self::Closed(closed) => closed.validate().map_err(|e| e.within("closed")),
        }
    }
}

impl ClosedConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        if !(1..=USERS_MAX).contains(&self.users) {
            let accepted = format!("an integer from 1 to {USERS_MAX}");
            return Err(ConfigError::new("users", self.users, accepted));
        }
        if !(0.0..=YEAR_S).contains(&self.ramp_up_s) {
            return Err(ConfigError::new("ramp_up_s", self.ramp_up_s, SECONDS));
        }
        check_think(self.think_factor, self.think_s_max)
    }
}

/// Users of a closed loop.
const USERS_MAX: u32 = 10_000_000;

/// The longest pause of a configuration.
const YEAR_S: f64 = 31_536_000.0;
const SECONDS: &str = "a number of seconds from 0 to 31536000";

fn check_think(factor: f64, max_s: Option<f64>) -> Result<(), ConfigError> {
    if !(0.0..=1e6).contains(&factor) {
        return Err(ConfigError::new("think_factor", factor, "a number from 0 to 1000000"));
    }
    match max_s {
        Some(s) if !(0.0..=YEAR_S).contains(&s) => Err(ConfigError::new("think_s_max", s, SECONDS)),
        _ => Ok(()),
    }
}
