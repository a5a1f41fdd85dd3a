//! When requests come, without a record: rates, bursts, curves, users who wait for their answers.
//!
//! Each process draws from a stream of its own. Rates scale the draws and do not change their number,
//! so that the same seed gives the same pattern at another rate.

pub(crate) mod config;
mod curve;

use std::collections::VecDeque;

use crate::base::config::ConfigError;
use crate::base::rng::Stream;
use crate::base::time::{SimDuration, SimTime};

use config::{ArrivalsConfig, ClosedLoopConfig, RampUp, Spread, VllmBenchConfig};
use curve::{AlongCurve, Curve};

/// The latest arrival there may be, in seconds.
const LATEST_S: f64 = 100.0 * 365.0 * 86_400.0;

/// A process of arrivals, one known ahead.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals {
    process: Process,
    /// Arrivals that may still be taken.
    left: u64,
    next: Option<SimTime>,
}

/// How the next arrival follows.
#[derive(Clone, Debug)]
enum Process {
    /// A fixed time after one another, the first at 0.
    Every { gap: SimDuration, made: u64 },
    /// A drawn time after one another.
    Renewal { gaps: Gaps, draws: Stream, at_s: f64 },
    /// Poisson with a rate that changes.
    Curve(Box<AlongCurve>),
    /// All at one instant.
    At(SimTime),
    /// When an earlier one has ended.
    Users(Users),
}

/// The distribution of the time between two arrivals.
#[derive(Clone, Copy, Debug)]
enum Gaps {
    Exponential {
        mean_s: f64,
    },
    Gamma {
        shape: f64,
        scale_s: f64,
    },
    Weibull {
        shape: f64,
        scale_s: f64,
    },
    /// Gamma, with the rate of the n-th of so many requests, times a factor.
    Bench {
        config: VllmBenchConfig,
        requests: u64,
        made: u64,
        factor: f64,
    },
}

impl Gaps {
    fn next_s(&mut self, draws: &mut Stream) -> f64 {
        match self {
            Self::Exponential { mean_s } => *mean_s * draws.exponential(),
            Self::Gamma { shape, scale_s } => *scale_s * draws.gamma(*shape),
            Self::Weibull { shape, scale_s } => *scale_s * draws.weibull(*shape),
            Self::Bench { config, requests, made, factor } => {
                let scale_s = 1.0 / (bench_rate(config, *made, *requests) * config.burstiness);
                *made += 1;
                *factor * scale_s * draws.gamma(config.burstiness)
            }
        }
    }
}

/// Requests per second of `vllm bench serve` for the request of this number (its
/// `_get_current_request_rate`).
fn bench_rate(config: &VllmBenchConfig, number: u64, requests: u64) -> f64 {
    let ramp = config.ramp_up_strategy.zip(config.ramp_up_start_rps).zip(config.ramp_up_end_rps);
    let Some(((strategy, start), end)) = ramp else {
        return config.request_rate.expect("an infinite rate has no gaps");
    };
    let progress = number as f64 / requests.saturating_sub(1).max(1) as f64;
    match strategy {
        RampUp::Linear => start + (end - start) * progress,
        RampUp::Exponential => start * libm::pow(end / start, progress),
    }
}

/// A fixed number of users with one request each at a time.
#[derive(Clone, Debug)]
struct Users {
    config: ClosedLoopConfig,
    think: Stream,
    /// Users who have not sent their first request.
    to_begin: u32,
    /// When each of the others that are not waiting for an answer sends the next, earliest first.
    due: VecDeque<SimTime>,
}

impl Users {
    /// When the next user begins; `None` when all have.
    fn next_beginner(&self) -> Option<SimTime> {
        let begun = self.config.concurrency - self.to_begin;
        let at_s = self.config.ramp_up_s * f64::from(begun) / f64::from(self.config.concurrency);
        (self.to_begin > 0).then(|| time_of(at_s))
    }

    fn next(&self) -> Option<SimTime> {
        let due = self.due.front().copied();
        match (self.next_beginner(), due) {
            (Some(beginner), Some(due)) => Some(beginner.min(due)),
            (beginner, due) => beginner.or(due),
        }
    }

    fn take(&mut self) {
        // At one instant, whoever has been there goes after who begins.
        if self.next_beginner().is_some_and(|beginner| Some(beginner) == self.next()) {
            self.to_begin -= 1;
        } else {
            self.due.pop_front();
        }
    }

    fn ended(&mut self, at: SimTime) {
        let think_s = match self.config.think {
            _ if self.config.think_s <= 0.0 => 0.0,
            Spread::Fixed => self.config.think_s,
            Spread::Exponential => self.config.think_s * self.think.exponential(),
        };
        let think = SimDuration::from_ms(think_s * 1e3).unwrap_or_default();
        let due = at.checked_add(think).unwrap_or(SimTime::MAX);
        // A token is told of before it is visible, so that a refusal may come in between.
        let place = self.due.partition_point(|&other| other <= due);
        self.due.insert(place, due);
    }
}

/// An instant in seconds, rounded to the nearest nanosecond; past the latest one, that far at least.
fn time_of(s: f64) -> SimTime {
    let duration = SimDuration::from_ms(s * 1e3);
    duration.map_or(SimTime::MAX, |duration| SimTime::ZERO + duration)
}

impl Arrivals {
    /// The arrivals of a checked configuration for `requests` requests. Streams are called
    /// `prefix`.arrivals, .periods and .think.
    pub(crate) fn new(config: &ArrivalsConfig, requests: u64, seed: u64, prefix: &str) -> Self {
        let stream = |name: &str| Stream::new(seed, &format!("{prefix}.{name}"));
        let renewal = |gaps| Process::Renewal { gaps, draws: stream("arrivals"), at_s: 0.0 };
        let process = match config {
            ArrivalsConfig::Constant(constant) => {
                let gap = SimDuration::from_ms(1e3 / constant.requests_per_s);
                Process::Every { gap: gap.expect("checked when resolved"), made: 0 }
            }
            ArrivalsConfig::Poisson(poisson) => {
                renewal(Gaps::Exponential { mean_s: 1.0 / poisson.requests_per_s })
            }
            ArrivalsConfig::Gamma(gamma) => {
                let shape = gamma.burstiness;
                renewal(Gaps::Gamma { shape, scale_s: 1.0 / (gamma.requests_per_s * shape) })
            }
            ArrivalsConfig::Weibull(weibull) => {
                // The mean of a Weibull is scale Gamma(1 + 1 / shape).
                let mean = libm::tgamma(1.0 + 1.0 / weibull.shape);
                let scale_s = 1.0 / (weibull.requests_per_s * mean);
                renewal(Gaps::Weibull { shape: weibull.shape, scale_s })
            }
            ArrivalsConfig::OnOff(on_off) => {
                let curve = Curve::on_off(*on_off, stream("periods"));
                Process::Curve(Box::new(AlongCurve::new(curve, stream("arrivals"))))
            }
            ArrivalsConfig::Piecewise(lines) => {
                let curve = Curve::of_lines(lines);
                Process::Curve(Box::new(AlongCurve::new(curve, stream("arrivals"))))
            }
            ArrivalsConfig::AllAtOnce(instant) => Process::At(time_of(instant.at_s)),
            ArrivalsConfig::ClosedLoop(users) => Process::Users(Users {
                config: *users,
                think: stream("think"),
                to_begin: users.concurrency,
                due: VecDeque::new(),
            }),
            ArrivalsConfig::VllmBench(bench) => bench_process(bench, requests, &stream("arrivals")),
        };
        let mut arrivals = Self { process, left: requests, next: None };
        arrivals.follow();
        arrivals
    }

    /// When the next request comes; `None` behind the last, and while none comes before another one
    /// has ended.
    ///
    /// # Errors
    /// It would come after the latest instant there is.
    pub(crate) fn next(&self) -> Result<Option<SimTime>, ConfigError> {
        let next = match &self.process {
            _ if self.left == 0 => None,
            Process::Users(users) => users.next(),
            _ => self.next,
        };
        match next {
            Some(late) if late > SimTime::LATEST_INPUT => {
                let found = format!("such that a request arrives at {} s", late.as_s());
                Err(ConfigError::new("arrivals", found, "arrivals within 100 years"))
            }
            next => Ok(next),
        }
    }

    /// The next request has come.
    pub(crate) fn take(&mut self) {
        self.left -= 1;
        self.follow();
    }

    /// Whether arrivals depend on the end of earlier requests.
    pub(crate) fn follows_ends(&self) -> bool {
        matches!(self.process, Process::Users(_))
    }

    /// A request of this process has ended.
    pub(crate) fn ended(&mut self, at: SimTime) {
        if let Process::Users(users) = &mut self.process {
            users.ended(at);
        }
    }

    /// Finds the arrival that follows the one taken, or the first.
    fn follow(&mut self) {
        let first = self.next.is_none();
        match &mut self.process {
            Process::Every { gap, made } => {
                // Each at its multiple of the gap: nothing adds up.
                self.next = made.checked_mul(gap.as_ns()).map(SimTime::from_ns);
                *made += 1;
            }
            Process::Renewal { gaps, draws, at_s } => {
                *at_s += gaps.next_s(draws);
                self.next = Some(time_of(*at_s));
            }
            Process::Curve(curve) => self.next = curve.next().map(time_of),
            Process::At(instant) => self.next = Some(*instant),
            Process::Users(users) if !first => users.take(),
            Process::Users(_) => self.next = Some(SimTime::ZERO),
        }
    }
}

/// The rule of `vllm bench serve` (`get_request` in `vllm/benchmarks/serve.py` of release 0.23): gamma gaps, the first before the first request; without a ramp, all are then rescaled so
/// that the last of the N requests comes at N / rate.
fn bench_process(config: &VllmBenchConfig, requests: u64, draws: &Stream) -> Process {
    if config.request_rate.is_none() && config.ramp_up_strategy.is_none() {
        return Process::At(SimTime::ZERO);
    }
    let gaps = Gaps::Bench { config: *config, requests, made: 0, factor: 1.0 };
    let mut renewal = Process::Renewal { gaps, draws: draws.clone(), at_s: 0.0 };
    if let Some(rate) = config.request_rate
        && let Process::Renewal { gaps: Gaps::Bench { factor, .. }, .. } = &mut renewal
    {
        // The same draws once more, for their sum: time, but no memory.
        let (mut gaps, mut draws) = (gaps, draws.clone());
        let total_s: f64 = (0..requests).map(|_| gaps.next_s(&mut draws)).sum();
        if total_s > 0.0 {
            *factor = requests as f64 / rate / total_s;
        }
    }
    renewal
}

#[cfg(test)]
mod tests;
