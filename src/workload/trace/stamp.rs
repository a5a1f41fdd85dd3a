//! Time stamps that are numbers, as nanoseconds.

use serde_json::Value;

/// The latest stamp, in seconds: 100 years, which also holds a Unix time of today.
const SECONDS_MAX: i128 = 100 * 365 * 86_400;

const NS_PER_S: i128 = 1_000_000_000;

/// What one step of a numeric stamp means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) name: &'static str,
    ns: i128,
    /// What a stamp may be, for people.
    pub(super) accepted: &'static str,
}

/// Seconds.
pub(super) const SECONDS: Unit =
    Unit { name: "s", ns: NS_PER_S, accepted: "a number of seconds from 0 to 3153600000" };

/// Milliseconds.
pub(super) const MILLISECONDS: Unit = Unit {
    name: "ms",
    ns: 1_000_000,
    accepted: "a number of milliseconds from 0 to 3153600000000",
};

/// Nanoseconds.
pub(super) const NANOSECONDS: Unit =
    Unit { name: "ns", ns: 1, accepted: "a number of nanoseconds from 0 to 3153600000000000000" };

/// A step of so many seconds, if that is a whole number of nanoseconds, at least 1 and at most a
/// million seconds.
pub(super) fn unit_of_seconds(s: f64) -> Option<Unit> {
    let known = [SECONDS, MILLISECONDS, NANOSECONDS];
    // A decimal such as 0.001 is a double near it.
    let ns = (s * NS_PER_S as f64).round();
    let is_whole = (s * NS_PER_S as f64 - ns).abs() <= ns * 1e-12;
    if !(is_whole && (1.0..=1e15).contains(&ns)) {
        return None;
    }
    let ns = ns as i128;
    Some(known.into_iter().find(|unit| unit.ns == ns).unwrap_or(Unit {
        name: "x seconds_per_unit",
        ns,
        accepted: "a number of `seconds_per_unit` within 100 years",
    }))
}

impl Unit {
    /// The nanoseconds of a decimal number such as `12.5`, exact, with halves of a nanosecond rounded
    /// up; `None` if it is no number or out of range.
    pub(super) fn of_text(self, text: &str) -> Option<i128> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let are_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || whole.len() > 20 || !are_digits(whole) || !are_digits(fraction) {
            // An exponent or a sign: as good as a double.
            return self.of_double(text.parse().ok()?);
        }
        let mut ns = whole.parse::<i128>().ok()? * self.ns;
        let mut place = self.ns;
        for digit in fraction.bytes() {
            let digit = i128::from(digit - b'0');
            if place == 1 {
                // The first digit below a nanosecond decides.
                ns += i128::from(digit >= 5);
                break;
            }
            place /= 10;
            ns += digit * place;
        }
        Self::in_range(ns)
    }

    /// The nanoseconds of a JSON number; `None` if it is no number or out of range.
    pub(super) fn of_value(self, value: &Value) -> Option<i128> {
        match value.as_u64() {
            Some(whole) => Self::in_range(i128::from(whole) * self.ns),
            None => self.of_double(value.as_f64()?),
        }
    }

    /// The nanoseconds of a double, rounded to the nearest; `None` if it is out of range.
    pub(super) fn of_double(self, number: f64) -> Option<i128> {
        if !(0.0..=(SECONDS_MAX * NS_PER_S / self.ns) as f64).contains(&number) {
            return None;
        }
        // In two parts, each of which a double holds to the nanosecond.
        let fraction = (number.fract() * self.ns as f64).round();
        Self::in_range(number.trunc() as i128 * self.ns + fraction as i128)
    }

    /// A stamp as a format with this unit writes it.
    pub(super) fn show(self, stamp: i128) -> String {
        format!("{} {}", stamp as f64 / self.ns as f64, self.name)
    }

    fn in_range(ns: i128) -> Option<i128> {
        (0..=SECONDS_MAX * NS_PER_S).contains(&ns).then_some(ns)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn decimals_are_exact() {
        assert_eq!(SECONDS.of_text("5"), Some(5_000_000_000));
        assert_eq!(SECONDS.of_text("61.114"), Some(61_114_000_000));
        assert_eq!(SECONDS.of_text("1764665640.123456789"), Some(1_764_665_640_123_456_789));
        assert_eq!(SECONDS.of_text("0.0000000004"), Some(0));
        assert_eq!(SECONDS.of_text("0.0000000005"), Some(1));
        assert_eq!(MILLISECONDS.of_text("16.50142"), Some(16_501_420));
        assert_eq!(NANOSECONDS.of_text("7.5"), Some(8));
        assert_eq!(SECONDS.of_text("1e3"), Some(1_000_000_000_000));
    }

    #[test]
    fn doubles_are_exact_to_the_nanosecond() {
        assert_eq!(SECONDS.of_value(&json!(61.114)), Some(61_114_000_000));
        assert_eq!(MILLISECONDS.of_value(&json!(27_482)), Some(27_482_000_000));
        assert_eq!(NANOSECONDS.of_value(&json!(123_456_789)), Some(123_456_789));
    }

    #[test]
    fn units_are_whole_nanoseconds() {
        let ns = |s| unit_of_seconds(s).map(|unit| unit.ns);
        assert_eq!(
            (unit_of_seconds(1.0), unit_of_seconds(0.001)),
            (Some(SECONDS), Some(MILLISECONDS))
        );
        assert_eq!(
            (ns(1e-6), ns(1e-9), ns(3600.0)),
            (Some(1000), Some(1), Some(3_600_000_000_000))
        );
        assert_eq!(ns(1e6), Some(1_000_000_000_000_000));
        for s in [0.0, 1e-10, 1.5e-9, -1.0, 1.1e6, f64::NAN, f64::INFINITY, 1.0 / 3.0] {
            assert_eq!(ns(s), None, "{s}");
        }
    }

    #[test]
    fn what_is_no_stamp_is_none() {
        for text in
            ["", ".", "-1", "-0.5", "nan", "NaN", "inf", "x", "1.2.3", "3153600001", "1e300"]
        {
            assert_eq!(SECONDS.of_text(text), None, "{text}");
        }
        assert_eq!(SECONDS.of_text("3153600000"), Some(3_153_600_000_000_000_000));
        assert_eq!(NANOSECONDS.of_text("99999999999999999999999999999999999999999"), None);
        for value in [json!(-1), json!("5"), json!(null), json!(3_153_600_001_u64)] {
            assert_eq!(SECONDS.of_value(&value), None, "{value}");
        }
    }
}
