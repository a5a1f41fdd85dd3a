//! Measures out of single requests, for files that have them.

use super::distribution::Distribution;
use super::model::{Measure, Quantity, Rule};

/// One completed request, as far as it is known; times in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Request {
    pub(super) ttft: Option<f64>,
    /// Absent: from the others.
    pub(super) tpot: Option<f64>,
    pub(super) e2e: Option<f64>,
    pub(super) queue: Option<f64>,
    pub(super) output_tokens: Option<u64>,
}

impl Request {
    fn tpot(&self) -> Option<f64> {
        let derived = || {
            let others = self.output_tokens?.checked_sub(1).filter(|&others| others > 0)?;
            // What comes in one piece has no time between.
            Some(((self.e2e? - self.ttft?) / others as f64).max(0.0))
        };
        self.tpot.or_else(derived)
    }

    /// The value, weighing as much as there are tokens but for the first `less`.
    fn weighted(&self, value: Option<f64>, less: u64) -> Option<(f64, u64)> {
        Some((value?, self.output_tokens?.saturating_sub(less)))
    }
}

/// The names a file has for what its requests tell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    pub(super) ttft: &'static str,
    pub(super) tpot: &'static str,
    pub(super) e2e: &'static str,
    pub(super) queue: &'static str,
}

/// What a request adds to a distribution: a value and its weight.
type Value<'a> = &'a dyn Fn(&Request) -> Option<(f64, u64)>;

/// Everything that requests tell, the quantities of GuideLLM included, those by its percentile rule.
pub(super) fn measures(requests: &[Request], names: Names) -> Vec<Measure> {
    let one = |value: Option<f64>| value.map(|value| (value, 1));
    let with_first = |request: &Request| {
        let e2e_per_token = Some(request.e2e? / request.output_tokens.filter(|&n| n > 0)? as f64);
        request.weighted(e2e_per_token, 0)
    };
    let parts: [(Quantity, &str, Rule, Value<'_>); 6] = [
        (Quantity::Ttft, names.ttft, Rule::Linear, &|request| one(request.ttft)),
        (Quantity::Tpot, names.tpot, Rule::Linear, &|request| one(request.tpot())),
        (Quantity::E2e, names.e2e, Rule::Linear, &|request| one(request.e2e)),
        (Quantity::Queue, names.queue, Rule::Linear, &|request| one(request.queue)),
        (Quantity::TpotWeighted, names.tpot, Rule::NearestRank, &|request| {
            request.weighted(request.tpot(), 1)
        }),
        (Quantity::TpotWithFirst, names.e2e, Rule::NearestRank, &with_first),
    ];
    let measures = parts.into_iter().filter_map(|(quantity, field, rule, value)| {
        let distribution = Distribution::samples(requests.iter().filter_map(value).collect())?;
        Some(Measure::of(quantity, field, rule, distribution))
    });
    measures.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::results::model::Statistic;

    const NAMES: Names = Names { ttft: "t", tpot: "p", e2e: "e", queue: "q" };

    /// n = 100, TTFT 500 ms, 10 ms for each other token: TPOT 10, and (500 + 990) / 100 = 14.9 with the first. A
    /// second one with n = 2 and 110 ms for its other token ends at 210 ms.
    #[test]
    fn each_quantity_by_its_formula() {
        let request = |ttft, e2e, n| Request {
            ttft: Some(ttft),
            e2e: Some(e2e),
            output_tokens: Some(n),
            ..Request::default()
        };
        let found = measures(
            &[request(500.0, 1490.0, 100), request(100.0, 210.0, 2), request(5.0, 5.0, 1)],
            NAMES,
        );
        let mean = |quantity: Quantity| {
            let measure = found.iter().find(|measure| measure.quantity == quantity).unwrap();
            measure.figure(Statistic::Mean).unwrap()
        };
        for (quantity, expected) in [
            (Quantity::Ttft, 605.0 / 3.0),
            // (10 + 110) / 2: the third has no other token.
            (Quantity::Tpot, 60.0),
            (Quantity::TpotWeighted, (10.0 * 99.0 + 110.0) / 100.0),
            (Quantity::TpotWithFirst, (1490.0 + 210.0 + 5.0) / 103.0),
            (Quantity::E2e, 1705.0 / 3.0),
        ] {
            assert!((mean(quantity) - expected).abs() < 1e-9, "{quantity:?}");
        }
        assert!(found.iter().all(|measure| measure.quantity != Quantity::Queue));
    }
}
