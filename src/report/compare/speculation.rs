//! What two scenarios differ in, and what speculation makes of it.

use serde::Serialize;
use serde_json::Value;

use crate::metrics::summary::RunSummary;
use crate::report::format::{figure, known};

/// Fields that a sentence names before it only counts them.
const NAMED_MAX: usize = 4;

/// How much faster it goes with speculation: the figure without over that with, or the other way round for rates.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct SpeedUp {
    pub(super) tpot_mean: Option<f64>,
    e2e_mean: Option<f64>,
    output_tokens_per_s: Option<f64>,
    tokens_per_round_mean: Option<f64>,
    /// Fields besides those of speculation in which the two differ.
    pub(super) other_differing_fields: Vec<String>,
}

/// `a, b and 3 more`.
pub(super) fn named(fields: &[String]) -> String {
    let shown = fields.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match fields.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// `part` over `whole`, if both are known and that is a number.
fn over(part: Option<f64>, whole: Option<f64>) -> Option<f64> {
    part.zip(whole.filter(|&whole| whole != 0.0)).map(|(part, whole)| part / whole)
}

impl SpeedUp {
    /// The speed-up between two runs of which exactly one speculates.
    pub(super) fn of(runs: &[&RunSummary], differing_fields: &[String]) -> Option<Self> {
        let &[a, b] = runs else { return None };
        let (with, without) = match (a.speculation.is_some(), b.speculation.is_some()) {
            (true, false) => (a, b),
            (false, true) => (b, a),
            _ => return None,
        };
        let is_other = |field: &&String| {
            !(field.as_str() == "name"
                || field.starts_with("speculation")
                || field.starts_with("pricing.draft")
                || field.split('.').any(|part| part.starts_with("speculative")))
        };
        Some(Self {
            tpot_mean: over(without.latency.tpot_ms.mean, with.latency.tpot_ms.mean),
            e2e_mean: over(without.latency.e2e_ms.mean, with.latency.e2e_ms.mean),
            output_tokens_per_s: over(
                with.throughput.output_tokens_per_s,
                without.throughput.output_tokens_per_s,
            ),
            tokens_per_round_mean: with.speculation.as_ref()?.tokens_per_round_mean,
            other_differing_fields: differing_fields.iter().filter(is_other).cloned().collect(),
        })
    }

    pub(super) fn sentence(&self) -> String {
        let times = |ratio: Option<f64>| known(ratio, |ratio| format!("{} times", figure(ratio)));
        let others = match self.other_differing_fields.as_slice() {
            [] => String::new(),
            fields => format!("; besides speculation they differ in {}", named(fields)),
        };
        format!(
            "With speculation tokens come {} as fast (TPOT), requests end {} as fast (E2E), output throughput is {}; \
             {} tokens a round{others}",
            times(self.tpot_mean),
            times(self.e2e_mean),
            times(self.output_tokens_per_s),
            known(self.tokens_per_round_mean, figure)
        )
    }
}

/// The fields in which two values differ, as `outer.inner`. What only one has, or has as `null`, is named whole.
pub(super) fn differences(a: &Value, b: &Value, path: &str, fields: &mut Vec<String>) {
    let (Value::Object(a), Value::Object(b)) = (a, b) else {
        if a != b {
            fields.push(path.to_owned());
        }
        return;
    };
    let mut names: Vec<&String> = a.keys().chain(b.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let of = |object: &serde_json::Map<String, Value>| {
            object.get(name).cloned().unwrap_or(Value::Null)
        };
        differences(&of(a), &of(b), &inner, fields);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::sample;

    /// The sample, and the same with every latency halved, and as if it had speculated.
    fn pair() -> [RunSummary; 2] {
        let plain = sample::report().run;
        let mut fast = plain.clone();
        for summary in [&mut fast.latency.tpot_ms, &mut fast.latency.e2e_ms] {
            summary.mean = summary.mean.map(|mean| mean / 2.0);
        }
        let mut rounds = crate::metrics::rounds::RoundStatistics::new(3);
        let mut some = crate::base::record::Rounds::default();
        some.add(2, 3, 1, 2);
        rounds.add(&some);
        fast.speculation = Some(rounds.summary());
        [plain, fast]
    }

    #[test]
    fn speculation_is_measured_by_the_run_without_it() {
        let [plain, fast] = pair();
        let fields = ["engine", "name", "speculation.k"].map(str::to_owned);
        for runs in [[&plain, &fast], [&fast, &plain]] {
            let speed_up = SpeedUp::of(&runs, &fields).unwrap();
            assert_eq!((speed_up.tpot_mean, speed_up.e2e_mean), (Some(2.0), Some(2.0)));
            assert_eq!(speed_up.output_tokens_per_s, Some(1.0));
            assert_eq!(speed_up.other_differing_fields, ["engine"]);
        }
        assert_eq!(SpeedUp::of(&[&plain, &plain], &fields), None);
        assert_eq!(SpeedUp::of(&[&fast, &fast], &fields), None);
    }

    #[test]
    fn differences_are_named_by_field() {
        let mut fields = Vec::new();
        let a = json!({"x": {"y": 1, "z": [1]}, "same": 1, "gone": 2});
        let b = json!({"x": {"y": 2, "z": [1, 2]}, "same": 1, "null": null});
        differences(&a, &b, "", &mut fields);
        assert_eq!(fields, ["gone", "x.y", "x.z"]);
    }
}
