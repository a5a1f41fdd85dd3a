//! Which figures must not be compared, and what to know about those that are.

use serde::Serialize;

use super::letter;
use crate::report::results::model::{Family, Measure, Quantity, Results};

/// Two figures that look alike and mean different things.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Refusal {
    /// Which file is meant by `b`, from 0; `a` is of the first.
    pub(super) file: usize,
    /// What the first file calls its figure.
    pub(super) a: String,
    /// What the other calls its own.
    pub(super) b: String,
    /// What either is.
    pub(super) reason: String,
}

/// What of a family only the first or only another has, beside the likest that the other side has.
pub(super) fn refusals(results: &[Results]) -> Vec<Refusal> {
    let mut found = Vec::new();
    let Some((first, others)) = results.split_first() else { return found };
    for (file, other) in (1..).zip(others) {
        let mut refuse = |a: &Measure, b: &Measure| {
            let reason =
                format!("the one is {}, the other {}", a.quantity.meaning(), b.quantity.meaning());
            found.push(Refusal { file, a: a.field.clone(), b: b.field.clone(), reason });
        };
        let mut named: Vec<Quantity> = Vec::new();
        for b in only_in(other, first) {
            if let Some(a) = likest(b.quantity, first) {
                named.push(a.quantity);
                refuse(a, b);
            }
        }
        for a in only_in(first, other).filter(|a| !named.contains(&a.quantity)) {
            if let Some(b) = likest(a.quantity, other) {
                refuse(a, b);
            }
        }
    }
    found
}

/// What of a family one has and the other has not. What is derived from a field that is compared under another name
/// already needs no word.
fn only_in<'a>(one: &'a Results, other: &'a Results) -> impl Iterator<Item = &'a Measure> {
    one.measures.iter().enumerate().filter_map(|(at, measure)| {
        let is_derived = one.measures[..at].iter().any(|of| of.field == measure.field);
        let is_like_others = measure.quantity.family() != Family::Alone;
        let is_alone = other.measure(measure.quantity).is_none();
        (is_like_others && is_alone && !is_derived).then_some(measure)
    })
}

/// What is most easily taken for a quantity.
fn likest(quantity: Quantity, of: &Results) -> Option<&Measure> {
    let order = match quantity {
        Quantity::TpotWeighted | Quantity::TpotWithFirst => [
            Quantity::Tpot,
            Quantity::TpotWeighted,
            Quantity::TpotWithFirst,
            Quantity::Itl,
            Quantity::EmissionGap,
        ],
        Quantity::Tpot => [
            Quantity::TpotWithFirst,
            Quantity::TpotWeighted,
            Quantity::Itl,
            Quantity::EmissionGap,
            Quantity::Tpot,
        ],
        _ => [
            Quantity::EmissionGap,
            Quantity::Itl,
            Quantity::Tpot,
            Quantity::TpotWeighted,
            Quantity::TpotWithFirst,
        ],
    };
    order.into_iter().filter(|&other| other != quantity).find_map(|other| of.measure(other))
}

/// What is compared although it is not defined quite the same, and what it is called where.
pub(super) fn definitions(results: &[Results]) -> Vec<String> {
    let mut found = Vec::new();
    let Some((first, others)) = results.split_first() else { return found };
    for (file, other) in (1..).zip(others) {
        let b = letter(file);
        let shared: Vec<(&Measure, &Measure)> = first
            .measures
            .iter()
            .filter(|measure| measure.quantity.is_latency())
            .filter_map(|measure| Some((measure, other.measure(measure.quantity)?)))
            .collect();
        for (one, two) in &shared {
            if one.quantity.family() == Family::TokenTime && one.field != two.field {
                let label = one.quantity.label();
                found.push(format!("{label}: `{}` in A, `{}` in {b}", one.field, two.field));
            }
        }
        if let Some((one, two)) = shared.iter().find(|(one, two)| one.rule != two.rule) {
            found.push(format!(
                "percentiles: {} in A, {} in {b}; they come apart where samples are few",
                one.rule.text(),
                two.rule.text()
            ));
        }
        if first.counted != other.counted {
            found.push(format!("requests: A counts {}; {b} {}", first.counted, other.counted));
        }
        if first.clock != other.clock {
            found.push(format!("time: in A {}; in {b} {}", first.clock, other.clock));
        }
    }
    found
}
