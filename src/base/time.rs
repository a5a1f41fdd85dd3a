//! Simulated time: integer nanoseconds, so that equal inputs meet at equal instants.
//!
//! Milliseconds (`f64`) exist only where numbers enter or leave.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// Nanoseconds in a day.
const DAY_NS: u64 = 86_400_000_000_000;

/// Nanoseconds in a millisecond.
const NS_PER_MS: f64 = 1e6;

/// An instant of simulated time, in nanoseconds since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SimTime(u64);

/// A length of simulated time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SimDuration(u64);

impl SimTime {
    /// The start of the run.
    pub(crate) const ZERO: Self = Self(0);
    /// An instant no run reaches (584 years).
    pub(crate) const MAX: Self = Self(u64::MAX);
    /// The latest instant a workload may name: 100 years. What a run adds to it still fits.
    pub(crate) const LATEST_INPUT: Self = Self(100 * 365 * 86_400 * 1_000_000_000);

    /// The instant `ns` nanoseconds after the start.
    pub(crate) const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the start.
    pub(crate) const fn as_ns(self) -> u64 {
        self.0
    }

    /// Milliseconds since the start.
    pub(crate) fn as_ms(self) -> f64 {
        self.0 as f64 / NS_PER_MS
    }

    /// Seconds since the start.
    pub(crate) fn as_s(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time from `earlier` to here; zero if `earlier` is later.
    pub(crate) const fn since(self, earlier: Self) -> SimDuration {
        SimDuration(self.0.saturating_sub(earlier.0))
    }

    /// This instant plus `duration`, or `None` in the last day of representable time: what is added
    /// to the end of a pass still fits.
    pub(crate) const fn checked_add(self, duration: SimDuration) -> Option<Self> {
        match self.0.checked_add(duration.0) {
            Some(ns) if ns < u64::MAX - DAY_NS => Some(Self(ns)),
            _ => None,
        }
    }
}

impl SimDuration {
    /// No time at all.
    pub(crate) const ZERO: Self = Self(0);

    /// A duration of `ns` nanoseconds.
    pub(crate) const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// A duration of `ms` milliseconds, rounded to the nearest nanosecond, or `None` if `ms` is
    /// negative, not finite, or longer than representable time.
    pub(crate) fn from_ms(ms: f64) -> Option<Self> {
        let ns = ms * NS_PER_MS;
        if !(ns >= 0.0 && ns < u64::MAX as f64) {
            return None;
        }
        // `f64::round` without the call: the conversion drops what is behind the point.
        let whole = ns as u64;
        Some(Self(whole + u64::from(ns - whole as f64 >= 0.5)))
    }

    /// Nanoseconds.
    pub(crate) const fn as_ns(self) -> u64 {
        self.0
    }

    /// Milliseconds.
    pub(crate) fn as_ms(self) -> f64 {
        self.0 as f64 / NS_PER_MS
    }

    /// Seconds.
    pub(crate) fn as_s(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add<SimDuration> for SimTime {
    type Output = Self;
    fn add(self, duration: SimDuration) -> Self {
        Self(self.0 + duration.0)
    }
}

impl Add for SimDuration {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for SimDuration {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for SimDuration {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl fmt::Display for SimTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6} s", self.as_s())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_round_to_the_nearest_nanosecond() {
        // 16.50142 ms = 16,501,420 ns; 0.0000004 ms = 0.4 ns rounds down, 0.0000005 ms up.
        assert_eq!(SimDuration::from_ms(16.50142), Some(SimDuration::from_ns(16_501_420)));
        assert_eq!(SimDuration::from_ms(4e-7), Some(SimDuration::ZERO));
        assert_eq!(SimDuration::from_ms(5e-7), Some(SimDuration::from_ns(1)));
    }

    #[test]
    fn impossible_milliseconds_are_refused() {
        for ms in [-1.0, f64::NAN, f64::INFINITY, 1e14] {
            assert_eq!(SimDuration::from_ms(ms), None, "{ms}");
        }
    }
}
