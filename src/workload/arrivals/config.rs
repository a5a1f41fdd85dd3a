//! When requests come: the `arrivals` of made-up load, and those that replace a trace's own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::config::ConfigError;
use crate::base::time::SimTime;
use crate::workload::sessions::config::Counts;

/// When requests come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum ArrivalsConfig {
    /// At a constant rate, from time 0 on.
    Constant(ConstantConfig),
    /// Independent of each other: exponential gaps.
    Poisson(PoissonConfig),
    /// Gamma-distributed gaps.
    Gamma(GammaConfig),
    /// Weibull-distributed gaps.
    Weibull(WeibullConfig),
    /// Poisson arrivals of two rates that take turns.
    OnOff(OnOffConfig),
    /// Poisson arrivals whose rate follows a curve of straight lines.
    Piecewise(PiecewiseConfig),
    /// All at one instant.
    AllAtOnce(AllAtOnceConfig),
    /// So many users, each of whom sends the next request some time after the last has ended.
    ClosedLoop(ClosedLoopConfig),
    /// As `vllm bench serve` sends them.
    VllmBench(VllmBenchConfig),
}

/// A constant rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ConstantConfig {
    /// Requests per second, from 0.001 on.
    pub(crate) requests_per_s: f64,
}

/// A Poisson process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PoissonConfig {
    /// Mean requests per second, from 0.001 on.
    pub(crate) requests_per_s: f64,
}

/// A renewal process of gamma gaps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct GammaConfig {
    /// Mean requests per second, from 0.001 on.
    pub(crate) requests_per_s: f64,
    /// The shape: the gaps vary by 1 / sqrt(burstiness) of their mean. 1 is Poisson, less comes in
    /// bursts, more is more even.
    pub(crate) burstiness: f64,
}

/// A renewal process of Weibull gaps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WeibullConfig {
    /// Mean requests per second, from 0.001 on.
    pub(crate) requests_per_s: f64,
    /// The shape: 1 is Poisson, less comes in bursts with a longer tail than gamma's, more is more
    /// even.
    pub(crate) shape: f64,
}

/// Two rates that take turns, the first one first.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OnOffConfig {
    /// Mean requests per second while on, from 0.001 on.
    pub(crate) on_requests_per_s: f64,
    /// Mean requests per second while off; 0 is silence.
    pub(crate) off_requests_per_s: f64,
    /// How long on lasts, in seconds; its mean for `exponential` periods.
    pub(crate) on_s: f64,
    /// How long off lasts, in seconds; its mean for `exponential` periods.
    pub(crate) off_s: f64,
    /// Whether periods are all alike.
    pub(crate) periods: Spread,
}

/// Whether durations are all alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Spread {
    /// Each is the mean.
    #[default]
    Fixed,
    /// Exponential with the mean.
    Exponential,
}

/// A rate that follows a curve.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PiecewiseConfig {
    /// The lines of the curve, one after the other from time 0 on.
    pub(crate) segments: Option<Vec<SegmentConfig>>,
    /// Whether the curve starts again behind its last line; otherwise no request comes then.
    pub(crate) repeat: bool,
}

/// A line of a rate curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SegmentConfig {
    /// How long it lasts, in seconds.
    pub(crate) duration_s: f64,
    /// Requests per second at its start.
    pub(crate) from_per_s: f64,
    /// Requests per second at its end; absent: as at its start.
    pub(crate) to_per_s: Option<f64>,
}

/// One instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AllAtOnceConfig {
    /// When, in seconds.
    pub(crate) at_s: f64,
}

/// A fixed number of users.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ClosedLoopConfig {
    /// Users, each with one request at a time; at least 1.
    pub(crate) concurrency: u32,
    /// Seconds between the end of a user's request and their next one; the mean for
    /// `exponential` think times.
    pub(crate) think_s: f64,
    /// Whether think times are all alike.
    pub(crate) think: Spread,
    /// Seconds over which the users begin, evenly, the first at 0.
    pub(crate) ramp_up_s: f64,
    /// What a user has one of at a time, where requests make up sessions.
    pub(crate) counts: Counts,
}

/// The load of `vllm bench serve`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct VllmBenchConfig {
    /// `--request-rate`; absent: infinite, all at time 0.
    pub(crate) request_rate: Option<f64>,
    /// `--burstiness`: the shape of the gamma-distributed gaps.
    pub(crate) burstiness: f64,
    /// `--ramp-up-strategy`; needs the two rates, and takes the place of `request_rate`.
    pub(crate) ramp_up_strategy: Option<RampUp>,
    /// `--ramp-up-start-rps`.
    pub(crate) ramp_up_start_rps: Option<f64>,
    /// `--ramp-up-end-rps`.
    pub(crate) ramp_up_end_rps: Option<f64>,
}

/// How the rate of `vllm bench serve` grows, by the number of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RampUp {
    /// By equal steps.
    Linear,
    /// By equal factors.
    Exponential,
}

impl Default for ArrivalsConfig {
    fn default() -> Self {
        Self::Constant(ConstantConfig::default())
    }
}

impl Default for ConstantConfig {
    fn default() -> Self {
        Self { requests_per_s: 1.0 }
    }
}

impl Default for PoissonConfig {
    fn default() -> Self {
        Self { requests_per_s: 1.0 }
    }
}

impl Default for GammaConfig {
    fn default() -> Self {
        Self { requests_per_s: 1.0, burstiness: 1.0 }
    }
}

impl Default for WeibullConfig {
    fn default() -> Self {
        Self { requests_per_s: 1.0, shape: 1.0 }
    }
}

impl Default for OnOffConfig {
    fn default() -> Self {
        Self {
            on_requests_per_s: 1.0,
            off_requests_per_s: 0.0,
            on_s: 10.0,
            off_s: 10.0,
            periods: Spread::Fixed,
        }
    }
}

impl Default for SegmentConfig {
    fn default() -> Self {
        Self { duration_s: 60.0, from_per_s: 1.0, to_per_s: None }
    }
}

impl Default for ClosedLoopConfig {
    fn default() -> Self {
        let counts = Counts::Sessions;
        Self { concurrency: 64, think_s: 0.0, think: Spread::Fixed, ramp_up_s: 0.0, counts }
    }
}

impl Default for VllmBenchConfig {
    fn default() -> Self {
        Self {
            request_rate: None,
            burstiness: 1.0,
            ramp_up_strategy: None,
            ramp_up_start_rps: None,
            ramp_up_end_rps: None,
        }
    }
}

/// The longest part of a run that can be named, in seconds: a hundred years.
const SECONDS_MAX: f64 = 3_153_600_000.0;

/// Refuses `value` at `path` outside `from..=to`.
fn check(path: &str, value: f64, from: f64, to: f64) -> Result<(), ConfigError> {
    if (from..=to).contains(&value) {
        return Ok(());
    }
    Err(ConfigError::new(path, value, format!("a number from {from} to {to}")))
}

fn check_rate(path: &str, rate: f64) -> Result<(), ConfigError> {
    check(path, rate, 1e-3, 1e9)
}

fn check_shape(path: &str, shape: f64) -> Result<(), ConfigError> {
    check(path, shape, 1e-3, 1e6)
}

fn check_seconds(path: &str, s: f64) -> Result<(), ConfigError> {
    check(path, s, 0.0, SECONDS_MAX)
}

fn check_duration(path: &str, s: f64) -> Result<(), ConfigError> {
    check(path, s, 1e-3, SECONDS_MAX)
}

/// Refuses a rate at which `requests` take longer than a run may last.
fn check_span(path: &str, rate: f64, requests: u64) -> Result<(), ConfigError> {
    // What a run adds to the last arrival still fits the clock.
    if requests as f64 / rate <= SimTime::LATEST_INPUT.as_s() {
        return Ok(());
    }
    let accepted = "a rate at which the last request arrives within 100 years";
    Err(ConfigError::new(path, rate, accepted))
}

impl ArrivalsConfig {
    /// The process by which arrivals follow the ends of requests, if this is one.
    pub(crate) const fn following_ends(&self) -> Option<&'static str> {
        match self {
            Self::ClosedLoop(_) => Some("closed_loop"),
            _ => None,
        }
    }

    /// Checks what the types leave open, for so many requests.
    ///
    /// # Errors
    /// The first field that cannot be used.
    pub(crate) fn validate(&self, requests: u64) -> Result<(), ConfigError> {
        match self {
            Self::Constant(constant) => {
                let path = "constant.requests_per_s";
                check_rate(path, constant.requests_per_s)?;
                check_span(path, constant.requests_per_s, requests)
            }
            Self::Poisson(poisson) => {
                let path = "poisson.requests_per_s";
                check_rate(path, poisson.requests_per_s)?;
                check_span(path, poisson.requests_per_s, requests)
            }
            Self::Gamma(gamma) => {
                let path = "gamma.requests_per_s";
                check_rate(path, gamma.requests_per_s)?;
                check_span(path, gamma.requests_per_s, requests)?;
                check_shape("gamma.burstiness", gamma.burstiness)
            }
            Self::Weibull(weibull) => {
                let path = "weibull.requests_per_s";
                check_rate(path, weibull.requests_per_s)?;
                check_span(path, weibull.requests_per_s, requests)?;
                // Below it, a gap in many millions makes up the mean: no run has the rate.
                check("weibull.shape", weibull.shape, 0.1, 1e6)
            }
            Self::OnOff(on_off) => on_off.validate().map_err(|e| e.within("on_off")),
            Self::Piecewise(curve) => curve.validate().map_err(|e| e.within("piecewise")),
            Self::AllAtOnce(instant) => check_seconds("all_at_once.at_s", instant.at_s),
            Self::ClosedLoop(users) => users.validate().map_err(|e| e.within("closed_loop")),
            Self::VllmBench(bench) => bench.validate(requests).map_err(|e| e.within("vllm_bench")),
        }
    }
}

impl OnOffConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        check_rate("on_requests_per_s", self.on_requests_per_s)?;
        check("off_requests_per_s", self.off_requests_per_s, 0.0, 1e9)?;
        check_duration("on_s", self.on_s)?;
        check_duration("off_s", self.off_s)?;
        let requests = self.on_requests_per_s * self.on_s + self.off_requests_per_s * self.off_s;
        if requests < TURN_REQUESTS_MIN {
            let accepted = "at least 0.001 requests each time it is on and off";
            return Err(ConfigError::new("on_s", self.on_s, accepted));
        }
        Ok(())
    }
}

/// Mean requests of one turn of a curve that repeats: one of next to nothing would be followed for
/// ever.
const TURN_REQUESTS_MIN: f64 = 1e-3;

/// Lines that a rate curve may have.
const SEGMENTS_MAX: usize = 100_000;

impl PiecewiseConfig {
    /// The lines of the curve.
    pub(crate) fn segments(&self) -> &[SegmentConfig] {
        self.segments.as_deref().unwrap_or_default()
    }

    fn validate(&self) -> Result<(), ConfigError> {
        let segments = self.segments();
        if !(1..=SEGMENTS_MAX).contains(&segments.len()) {
            let found = format!("a list of {}", segments.len());
            let accepted = format!("a list of 1 to {SEGMENTS_MAX} segments");
            return Err(ConfigError::new("segments", found, accepted));
        }
        let mut requests = 0.0;
        for (at, segment) in segments.iter().enumerate() {
            requests += segment.validate().map_err(|e| e.within(&format!("segments[{at}]")))?;
        }
        if self.repeat && requests < TURN_REQUESTS_MIN {
            let accepted = "rates and durations that make at least 0.001 requests a turn";
            return Err(ConfigError::new("segments", format!("{requests} requests"), accepted));
        }
        Ok(())
    }
}

impl SegmentConfig {
    /// Requests per second at its end.
    pub(crate) fn end_per_s(self) -> f64 {
        self.to_per_s.unwrap_or(self.from_per_s)
    }

    /// Checks the fields and returns the mean number of requests.
    fn validate(self) -> Result<f64, ConfigError> {
        check_duration("duration_s", self.duration_s)?;
        check("from_per_s", self.from_per_s, 0.0, 1e9)?;
        check("to_per_s", self.end_per_s(), 0.0, 1e9)?;
        Ok(self.duration_s * f64::midpoint(self.from_per_s, self.end_per_s()))
    }
}

impl ClosedLoopConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        if self.concurrency == 0 {
            return Err(ConfigError::new("concurrency", 0, "an integer of at least 1"));
        }
        // A chain of thinking is followed as it comes; a single pause is within a year.
        check("think_s", self.think_s, 0.0, 31_536_000.0)?;
        check("ramp_up_s", self.ramp_up_s, 0.0, 31_536_000.0)
    }
}

impl VllmBenchConfig {
    fn validate(&self, requests: u64) -> Result<(), ConfigError> {
        if let Some(rate) = self.request_rate {
            check_rate("request_rate", rate)?;
            check_span("request_rate", rate, requests)?;
        }
        check_shape("burstiness", self.burstiness)?;
        let ends = [
            ("ramp_up_start_rps", self.ramp_up_start_rps),
            ("ramp_up_end_rps", self.ramp_up_end_rps),
        ];
        for (path, rate) in ends {
            if let Some(rate) = rate {
                check_rate(path, rate)?;
                check_span(path, rate, requests)?;
                if self.ramp_up_strategy.is_none() {
                    let accepted = format!("linear or exponential, where `{path}` is set");
                    return Err(ConfigError::new("ramp_up_strategy", "absent", accepted));
                }
            } else if self.ramp_up_strategy.is_some() {
                return Err(ConfigError::new(path, "absent", "a rate, to which it ramps up"));
            }
        }
        // The tool refuses a rate beside a ramp, which would have no effect.
        if self.ramp_up_strategy.is_some() && self.request_rate.is_some() {
            let accepted = "none beside a ramp-up, which says the rates";
            return Err(ConfigError::new("request_rate", "set", accepted));
        }
        Ok(())
    }
}
