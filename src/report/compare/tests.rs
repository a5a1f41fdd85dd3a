use serde_json::json;

use super::limit::Limit;
use super::*;
use crate::report::results::distribution::Distribution;
use crate::report::results::model::{Measure, Rule};
use crate::report::sample;

/// Results of a few measures.
fn results(name: &str, measures: Vec<Measure>) -> Results {
    Results {
        name: name.to_owned(),
        title: "a tool".to_owned(),
        counted: "all",
        clock: "it starts",
        measures,
        report: None,
    }
}

fn summary(quantity: Quantity, field: &str, figures: &[(Statistic, f64)]) -> Measure {
    Measure {
        quantity,
        field: field.to_owned(),
        rule: Rule::Linear,
        figures: figures.to_vec(),
        distribution: None,
    }
}

fn samples(quantity: Quantity, values: &[f64]) -> Measure {
    let values = values.iter().map(|&value| (value, 1)).collect();
    Measure::of(quantity, "x", Rule::Linear, Distribution::samples(values).unwrap())
}

/// What a comparison shows in a format.
fn shown(
    comparison: &Comparison,
    write: fn(&Comparison, &mut dyn Write) -> io::Result<()>,
) -> String {
    let mut out = Vec::new();
    write(comparison, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

const P90: Statistic = Statistic::Percentile(Percent::USUAL[6]);

#[test]
fn each_figure_has_its_distance_from_the_first() {
    let a =
        results("a", vec![summary(Quantity::Ttft, "t", &[(Statistic::Mean, 80.0), (P90, 0.0)])]);
    let b =
        results("b", vec![summary(Quantity::Ttft, "t", &[(Statistic::Mean, 60.0), (P90, 5.0)])]);
    let c = results("c", vec![summary(Quantity::Ttft, "t", &[(Statistic::Mean, 90.0)])]);
    let comparison = Comparison::of(&[a, b, c]);
    let [mean, p90] = comparison.figures.as_slice() else { panic!("two figures are shared") };
    assert_eq!((mean.name.as_str(), p90.name.as_str()), ("ttft_mean", "ttft_p90"));
    assert_eq!(mean.differences, [0.0, -20.0, 10.0].map(Some));
    assert_eq!(mean.relative_errors, [0.0, -0.25, 0.125].map(Some));
    assert_eq!(p90.differences, [Some(0.0), Some(5.0), None]);
    assert_eq!(p90.relative_errors, [None; 3]);
}

#[test]
fn what_only_one_side_knows_is_no_figure() {
    let a = results("a", vec![summary(Quantity::Queue, "q", &[(Statistic::Mean, 80.0)])]);
    let b = results("b", vec![summary(Quantity::Ttft, "t", &[(Statistic::Mean, 60.0)])]);
    let comparison = Comparison::of(&[a, b]);
    assert!(comparison.figures.is_empty() && comparison.not_compared.is_empty());
    assert!(shown(&comparison, Comparison::write_table).contains("no figure in common"));
}

#[test]
fn distances_are_of_distributions_that_both_know() {
    // 1 3 against 2 4: the shares differ by 1/2 on [1, 2) and [3, 4); A's mean is 2.
    let a = results("a", vec![samples(Quantity::E2e, &[1.0, 3.0])]);
    let b = results("b", vec![samples(Quantity::E2e, &[2.0, 4.0])]);
    let c = results("c", vec![summary(Quantity::E2e, "e", &[(Statistic::Mean, 1.0)])]);
    let comparison = Comparison::of(&[a, b, c]);
    let [apart] = comparison.distances.as_slice() else { panic!("one pair is known") };
    assert_eq!((apart.quantity, apart.file), (Quantity::E2e, 1));
    assert_eq!((apart.ks, apart.w1_ms, apart.w1_ratio), (0.5, 1.0, Some(0.5)));
    let table = shown(&comparison, Comparison::write_table);
    assert!(table.contains("Distance") && table.contains("Error (%)"), "{table}");
    let csv = shown(&comparison, Comparison::write_csv);
    assert!(csv.contains("\nb,e2e_p50,ms,2,3,1,0.5\n"), "{csv}");
    assert!(csv.contains("\nc,e2e_mean,ms,2,1,-1,-0.5\n"), "{csv}");
    assert!(csv.contains("\nb,e2e_w1,ms,,1,,0.5\n"), "{csv}");
    let markdown = shown(&comparison, Comparison::write_markdown);
    assert!(
        markdown.contains("\n| E2E mean (ms) | 2.000 | 3.000 | +1.000 | +50.0 |"),
        "{markdown}"
    );
}

/// n = 100, TTFT 500 ms, 10 ms for each other token: TPOT is 10, with the first token it is (500 + 99 * 10) / 100.
#[test]
fn a_tpot_with_the_first_token_is_refused_against_one_without() {
    let mean = |quantity, field, value| summary(quantity, field, &[(Statistic::Mean, value)]);
    let a = results("a", vec![mean(Quantity::Tpot, "tpot_ms", 10.0)]);
    let b = results("b", vec![mean(Quantity::TpotWithFirst, "time_per_output_token_ms", 14.9)]);
    for pair in [[a.clone(), b.clone()], [b, a]] {
        let comparison = Comparison::of(&pair);
        assert!(comparison.figures.is_empty());
        let [refusal] = comparison.not_compared.as_slice() else { panic!("one pair is refused") };
        assert!(refusal.reason.contains("the first and its wait included"), "{}", refusal.reason);
        let error = Limit::parse("tpot_mean=50%").unwrap().exceeded(&pair).unwrap_err();
        assert!(error.to_string().contains("the first and its wait included"), "{error}");
    }
}

#[test]
fn gaps_of_tokens_are_not_those_of_chunks() {
    let mean = |quantity, field| summary(quantity, field, &[(Statistic::Mean, 1.0)]);
    let a =
        results("a", vec![mean(Quantity::Itl, "itl_ms"), mean(Quantity::EmissionGap, "gap_ms")]);
    let b = results("b", vec![mean(Quantity::EmissionGap, "*_itl_ms")]);
    let comparison = Comparison::of(&[a, b]);
    let [refusal] = comparison.not_compared.as_slice() else { panic!("one pair is refused") };
    assert_eq!((refusal.a.as_str(), refusal.b.as_str()), ("itl_ms", "*_itl_ms"));
    assert_eq!(comparison.definitions, ["emission gap: `gap_ms` in A, `*_itl_ms` in B"]);
}

#[test]
fn differing_rules_are_named() {
    let a = results("a", vec![summary(Quantity::Ttft, "t", &[(P90, 1.0)])]);
    let mut b = results("b", vec![summary(Quantity::Ttft, "u", &[(P90, 1.0)])]);
    assert_eq!(Comparison::of(&[a.clone(), b.clone()]).definitions, Vec::<String>::new());
    b.measures[0].rule = Rule::NearestRank;
    b.counted = "some";
    b.clock = "it stops";
    let comparison = Comparison::of(&[a, b]);
    let [rule, counted, clock] = comparison.definitions.as_slice() else { panic!("three differ") };
    assert!(rule.contains("linear between ranks in A, the nearest rank in B"), "{rule}");
    assert_eq!(counted, "requests: A counts all; B some");
    assert_eq!(clock, "time: in A it starts; in B it stops");
}

#[test]
fn a_limit_holds_in_both_directions() {
    let of = |value| {
        let span = Measure::value(Quantity::Failed, "failed", 0.0);
        results("r", vec![summary(Quantity::Ttft, "t", &[(P90, value)]), span])
    };
    let exceeded = |flag: &str, values: &[f64]| {
        let files: Vec<_> = values.iter().map(|&value| of(value)).collect();
        Limit::parse(flag).unwrap().exceeded(&files)
    };
    assert_eq!(exceeded("ttft_p90=10%", &[100.0, 110.0, 90.0]), Ok(Vec::new()));
    assert_eq!(
        exceeded("ttft_p90=10%", &[100.0, 80.0, 100.0, 111.0]),
        Ok(vec![
            "ttft_p90 of B is 20.00 ms (20.00%) below A, more than 10.00%".to_owned(),
            "ttft_p90 of D is 11.00 ms (11.00%) above A, more than 10.00%".to_owned(),
        ])
    );
    assert_eq!(exceeded("ttft_p90=5ms", &[0.0, 5.0]), Ok(Vec::new()));
    assert_eq!(
        exceeded("ttft_p90=5ms", &[0.0, 5.5]),
        Ok(vec!["ttft_p90 of B is 5.500 ms above A, more than 5.000 ms".to_owned()])
    );
    for (flag, expected) in [
        ("ttft_p99=1%", "r has no such figure"),
        ("failed=1%", "it is 0 in r, expected a limit in ms"),
    ] {
        let error = exceeded(flag, &[1.0, 1.0]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn reports_name_the_fields_in_which_they_differ() {
    let plain = sample::report();
    let mut other = plain.clone();
    other.scenario = json!({"name": "other", "seed": 1, "x": 2});
    let pair = [plain, other].map(|report| Results::of("r".to_owned(), report));
    let comparison = Comparison::of(&pair);
    assert_eq!(comparison.differing_fields, ["name", "x"]);
    assert!(comparison.distances.iter().all(|apart| apart.ks < 1e-12 && apart.w1_ms < 1e-12));
    assert_eq!(comparison.definitions, Vec::<String>::new());
    assert_eq!(comparison.not_compared, []);
    let json: serde_json::Value =
        serde_json::from_str(&shown(&comparison, Comparison::write_json)).unwrap();
    assert_eq!(json["schema"], "servesim.comparison/2");
    let table = shown(&comparison, Comparison::write_table);
    assert!(!table.contains("emission gap") && table.contains("ITL mean (ms)"), "{table}");
}
