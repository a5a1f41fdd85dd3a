//! The provider as a whole: files in, prices and evidence out.

use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

use super::super::config::TimingConfig;
use super::super::corrections::Corrections;
use super::super::pricer::{HostTime, MixedPasses, MixedRule, PassPricer, Pricing};
use super::config::{Duplicates, Selected};
use super::*;
use crate::base::testing;

const HEADER: &str =
    "kind,prefill_requests,prefill_tokens,decode_requests,decode_kv_tokens,latency_ms\n";

/// One prompt of 8 tokens in 10 ms; one decode at 4 KV tokens in 2 ms, at 12 in 4 ms.
const SMALL: &str = "kind,prefill_requests,prefill_tokens,decode_requests,decode_kv_tokens,latency_ms\n\
                     prefill,1,8,,,10\ndecode,,,1,4,2\ndecode,,,1,12,4\n";

/// A table of this content, under this name.
fn open(
    name: &str,
    content: impl AsRef<[u8]>,
    change: impl FnOnce(&mut TableConfig),
) -> Result<Table, String> {
    let folder = tempfile::tempdir().unwrap();
    let mut config = TableConfig { path: folder.path().join(name), ..TableConfig::default() };
    fs::write(&config.path, content).unwrap();
    change(&mut config);
    let before = format!("{}/", folder.path().display());
    Table::open(&config)
        // So that tables of different files can be equal.
        .map(|table| Table { path: PathBuf::from("t"), ..table })
        .map_err(|e| e.to_string().replace(&before, ""))
}

fn table(rows: &str) -> Table {
    open("t.csv", rows, |_| {}).unwrap()
}

fn refused(rows: &str) -> String {
    open("t.csv", rows, |_| {}).unwrap_err()
}

fn prefill(requests: u32, new: u32, past: u32) -> PrefillWork {
    let mut work = PrefillWork::default();
    (0..requests).for_each(|_| work.add(new, past));
    work
}

fn decode(requests: u32, query: u32, kv: u32) -> DecodeWork {
    let mut work = DecodeWork::default();
    (0..requests).for_each(|_| work.add(query, kv));
    work
}

fn none() -> (PrefillWork, DecodeWork) {
    (PrefillWork::default(), DecodeWork::default())
}

/// Prices one pass; its length in ns, and the evidence.
fn price(table: Table, pricing: Pricing, work: (PrefillWork, DecodeWork)) -> (u64, Value) {
    let pricer = PassPricer::new(Arc::new(table), HostTime::Added(0.0));
    let mut pricer = pricer.with_pricing(pricing).with_outliers();
    let ns = pricer.price(&work.0, &work.1).unwrap();
    (ns.as_ns(), pricer.evidence().to_json())
}

fn ns(table: &Table, work: (PrefillWork, DecodeWork)) -> u64 {
    price(table.clone(), Pricing::default(), work).0
}

/// How an answer for a part of a pass was found, and its ms: the only one.
fn noted(evidence: &Value, kind: &str, part: &str) -> (String, f64) {
    let origins = evidence[kind][part].as_object().unwrap();
    assert_eq!(origins.len(), 1, "{evidence}");
    let (origin, answers) = origins.iter().next().unwrap();
    assert_eq!(answers["count"], 1, "{evidence}");
    (origin.clone(), answers["ms"].as_f64().unwrap())
}

#[test]
fn a_mixed_pass_is_one_forward_priced_once() {
    let mixed = (prefill(1, 8, 0), decode(1, 1, 8));
    // Half way between 2 and 4 ms are 3; the least KV costs 2, which leaves 1 beside the 10.
    let (ns, evidence) = price(table(SMALL), Pricing::default(), mixed);
    assert_eq!(ns, 11_000_000);
    for (part, origin, ms) in [
        ("prefill", "exact", 10.0),
        ("decode", "interpolated", 3.0),
        ("decode_baseline", "exact", 2.0),
        ("mixed_overhead", "analytic", 0.0),
    ] {
        assert_eq!(noted(&evidence, "mixed", part), (origin.to_owned(), ms));
    }
    assert_eq!(evidence["mixed"].as_object().unwrap().len(), 4);

    let mut pricer = PassPricer::new(Arc::new(table(SMALL)), HostTime::Added(0.0));
    pricer.price(&mixed.0, &mixed.1).unwrap();
    assert_eq!(pricer.lookups(), 1);
    assert_eq!(pricer.mixed_passes(), MixedPasses { one_forward: 1, two_passes: 0 });
}

#[test]
fn rules_change_mixed_passes_only() {
    let (no_prefill, no_decode) = none();
    for (rule, mixed_ns) in [
        (MixedRule::Provider, 11_000_000),
        (MixedRule::Marginal, 11_000_000),
        (MixedRule::Sum, 13_000_000),
        (MixedRule::Max, 10_000_000),
    ] {
        let pricing = Pricing { mixed: rule, ..Pricing::default() };
        let ns = |work| price(table(SMALL), pricing.clone(), work).0;
        assert_eq!(ns((prefill(1, 8, 0), decode(1, 1, 8))), mixed_ns, "{rule:?}");
        assert_eq!(ns((prefill(1, 8, 0), no_decode)), 10_000_000);
        assert_eq!(ns((no_prefill, decode(1, 1, 8))), 3_000_000);
    }
}

#[test]
fn a_decode_without_share_stays_in_the_evidence() {
    let work = (prefill(1, 8, 0), decode(1, 1, 4));
    let (ns, evidence) = price(table(SMALL), Pricing::default(), work);
    assert_eq!(ns, 10_000_000);
    assert_eq!(noted(&evidence, "mixed", "decode"), ("exact".to_owned(), 2.0));
}

#[test]
fn a_mixed_pass_takes_the_mixed_factor_on_both_parts() {
    let corrections = Some(Arc::new(Corrections::constant(1.5, 1.0, 1.25)));
    let pricing = Pricing { corrections, ..Pricing::default() };
    // 10 * 1.5; 10 * 1.25 + 1 * 1.25.
    let alone = price(table(SMALL), pricing.clone(), (prefill(1, 8, 0), none().1));
    assert_eq!(alone.0, 15_000_000);
    let (ns, evidence) = price(table(SMALL), pricing, (prefill(1, 8, 0), decode(1, 1, 8)));
    assert_eq!(ns, 13_750_000);
    assert_eq!(noted(&evidence, "mixed", "prefill").1.to_bits(), 10.0_f64.to_bits());
}

#[test]
fn past_tokens_and_batches_are_axes_of_prefill() {
    // 1 request: 2 + 0.01 new + 0.001 past; 3 requests: 1 ms more.
    let mut rows =
        "kind,prefill_requests,prefill_tokens,prefill_past_tokens,latency_ms\n".to_owned();
    for (requests, new, past, ms) in [
        (1, 100, 0, 3),
        (1, 500, 0, 7),
        (1, 100, 1000, 4),
        (1, 500, 1000, 8),
        (3, 100, 0, 4),
        (3, 500, 1000, 9),
        (3, 500, 0, 8),
        (3, 100, 1000, 5),
    ] {
        writeln!(rows, "prefill,{requests},{new},{past},{ms}").unwrap();
    }
    let table = table(&rows);
    assert_eq!(ns(&table, (prefill(1, 200, 0), none().1)), 4_000_000);
    assert_eq!(ns(&table, (prefill(1, 200, 500), none().1)), 4_500_000);
    // 2 requests of 100 new and 250 past: 2 + 2 + 0.5 + 0.5.
    assert_eq!(ns(&table, (prefill(2, 100, 250), none().1)), 5_000_000);
}

#[test]
fn the_baseline_is_interpolated_over_the_same_rows() {
    // Batch 1: 2 ms at 10 KV, 4 at 30. Batch 3: 4 ms at 20 KV, 6 at 40.
    let rows = HEADER.to_owned()
        + "prefill,1,8,,,10\ndecode,,,1,10,2\ndecode,,,1,30,4\ndecode,,,3,20,4\ndecode,,,3,40,6\n";
    let work = (prefill(1, 8, 0), decode(2, 1, 15));
    let (ns, evidence) = price(table(&rows), Pricing::default(), work);
    // At 30 KV: 4 and 5, half way 4.5. The least KV of each: 2 and 4, half way 3.
    assert_eq!(noted(&evidence, "mixed", "decode"), ("interpolated".to_owned(), 4.5));
    assert_eq!(noted(&evidence, "mixed", "decode_baseline"), ("interpolated".to_owned(), 3.0));
    assert_eq!(ns, 11_500_000);
}

#[test]
fn overhead_comes_from_mixed_rows_or_from_the_scenario() {
    // The parts of this pass are 11 ms: 2 ms above.
    let rows = SMALL.to_owned() + "mixed,1,8,1,8,13\n";
    let work = (prefill(1, 8, 0), decode(1, 1, 8));
    assert_eq!(ns(&table(&rows), work), 13_000_000);
    let with = |ms| open("t.csv", &rows, |c| c.mixed_overhead_ms = Some(ms)).unwrap();
    assert_eq!(ns(&with(0.5), work), 11_500_000);
    let lonely = refused(&(HEADER.to_owned() + "prefill,1,8,,,10\nmixed,1,8,1,8,13\n"));
    assert!(lonely.starts_with("t.csv:3: a mixed pass in a table without decode rows"), "{lonely}");
}

#[test]
fn outside_is_refused_clamped_or_extrapolated_and_noted() {
    let none = none();
    let at = |outside, work| {
        let table = open("t.csv", SMALL, |c| c.outside = outside).unwrap();
        price(table, Pricing::default(), work)
    };
    // 0.25 ms a KV token: 4 ms at 12, 7 at 24.
    let (ns, evidence) = at(Outside::Extrapolate, (none.0, decode(1, 1, 24)));
    assert_eq!(noted(&evidence, "decode_only", "decode"), ("extrapolated".to_owned(), 7.0));
    assert_eq!(ns, 7_000_000);
    let (ns, evidence) = at(Outside::Clamp, (none.0, decode(1, 1, 24)));
    assert_eq!(noted(&evidence, "decode_only", "decode"), ("clamped".to_owned(), 4.0));
    assert_eq!(ns, 4_000_000);
    // One measured prompt has no trend.
    let (ns, evidence) = at(Outside::Extrapolate, (prefill(1, 16, 0), none.1));
    assert_eq!(noted(&evidence, "prefill_only", "prefill"), ("clamped".to_owned(), 10.0));
    assert_eq!(ns, 10_000_000);

    let table = open("t.csv", SMALL, |c| c.outside = Outside::Refuse).unwrap();
    let error = table.decode(&decode(1, 1, 13), &mut Evidence::default()).unwrap_err().to_string();
    assert_eq!(
        error,
        "t: no pass was measured near query_tokens_per_request=1 decode_requests=1 \
         decode_kv_tokens=13, expected query_tokens_per_request 1 to 1, decode_requests 1 to 1, \
         decode_kv_tokens 4 to 12; add such rows or set `timing.table.outside` to clamp or \
         extrapolate"
    );
    assert!(table.decode(&decode(1, 1, 12), &mut Evidence::default()).is_ok());
}

#[test]
fn outliers_say_how_far_outside_they_are() {
    let mut evidence = Evidence::with_outliers();
    let table = table(SMALL);
    for kv in [24, 36, 1234] {
        table.decode(&decode(1, 1, kv), &mut evidence).unwrap();
    }
    let kept = evidence.outliers();
    let outliers: Vec<_> = kept.iter().map(|o| (o.stretch, o.at.as_str())).collect();
    let at = |kv| format!("query_tokens_per_request=1 decode_requests=1 decode_kv_tokens={kv}");
    let expected = [(1234.0 / 12.0, at(1200)), (3.0, at(36)), (2.0, at(24))];
    assert_eq!(outliers, expected.each_ref().map(|(stretch, at)| (*stretch, at.as_str())));
}

#[test]
fn passes_that_verify_drafts_have_curves_of_their_own() {
    let mut rows = "kind,prefill_requests,prefill_tokens,decode_requests,decode_kv_tokens,\
                    query_tokens_per_request,latency_ms\nprefill,1,8,,,,10\n"
        .to_owned();
    rows += "decode,,,2,100,,4\ndecode,,,2,100,4,7\n";
    let table = table(&rows);
    let none = none();
    assert_eq!(ns(&table, (none.0, decode(2, 1, 50))), 4_000_000);
    assert_eq!(ns(&table, (none.0, decode(2, 4, 50))), 7_000_000);
    // 5 tokens of 2 requests are 2.5 each: half way between 1 and 4.
    let mut uneven = decode(1, 1, 50);
    uneven.add(4, 50);
    assert_eq!(ns(&table, (none.0, uneven)), 5_500_000);
    // A round is priced whole: it has no baseline, and its mixed pass costs the sum.
    assert_eq!(table.decode_baseline(&uneven, &mut Evidence::default()), Ok(None));
    assert_eq!(ns(&table, (prefill(1, 8, 0), uneven)), 15_500_000);
}

#[test]
fn a_phase_that_was_not_measured_is_named_when_it_is_needed() {
    let table = table(&(HEADER.to_owned() + "prefill,1,8,,,10\n"));
    assert_eq!(ns(&table, (prefill(1, 8, 0), none().1)), 10_000_000);
    let evidence = &mut Evidence::default();
    let expected = "t: no decode pass was measured, and the run needs one; add decode rows";
    let error = table.decode(&decode(1, 1, 8), evidence).unwrap_err();
    assert_eq!(error.to_string(), expected);
    let error = table.mixed(&prefill(1, 8, 0), &decode(1, 1, 8), evidence).unwrap_err();
    assert_eq!(error.to_string(), expected);
    assert!(refused(HEADER).starts_with("t.csv: has no rows, expected measured passes"));
}

#[test]
fn rows_that_are_no_measured_pass_are_refused() {
    for (row, expected) in [
        ("prefill,1,8,1,,10", "a prefill pass with decode work, expected none"),
        ("decode,,8,1,4,10", "a decode pass with prefill work, expected none"),
        ("prefill,0,8,,,10", "a pass with prefill of 0 requests, expected at least 1"),
        ("decode,,,0,4,10", "a pass with decode of 0 requests, expected at least 1"),
        ("mixed,1,8,0,4,10", "a pass with decode of 0 requests, expected at least 1"),
        ("prefill,9,8,,,10", "prefill of 9 requests with 8 new tokens, expected at least one"),
        ("prefill,1,-8,,,10", "`prefill_tokens` is \"-8\", expected an integer from 0 to 1e15"),
        ("prefill,1,8.5,,,10", "`prefill_tokens` is \"8.5\", expected an integer"),
        ("prefill,one,8,,,10", "`prefill_requests` is \"one\", expected an integer"),
        ("prefill,1,8,,,0", "`latency_ms` is \"0\", expected a number above 0"),
        ("prefill,1,8,,,-1", "`latency_ms` is \"-1\", expected a number above 0"),
        ("prefill,1,8,,,NaN", "`latency_ms` is \"NaN\", expected a number above 0"),
        ("prefill,1,8,,,inf", "`latency_ms` is \"inf\", expected a number above 0"),
        ("prefill,1,8,,,", "`latency_ms` is \"\", expected a number above 0"),
        ("prefil,1,8,,,1", "`kind` is \"prefil\", expected prefill, decode or mixed, did you mean"),
        ("prefill,1,8", "has 3 cells, expected 6 as in the first line"),
        ("decode,,,1,4,3", "the same pass as in line 3, expected one row each"),
    ] {
        let error = refused(&format!("{SMALL}# a remark\n{row}\n"));
        assert!(error.starts_with(&format!("t.csv:6: {expected}")), "{row}: {error}");
    }
}

#[test]
fn columns_are_known_or_identify() {
    let with = |column: &str| refused(&SMALL.replacen("prefill_requests", column, 1));
    let error = with("prefill_request");
    assert!(
        error.starts_with(
            "t.csv: unknown column `prefill_request`, did you mean `prefill_requests`?"
        ),
        "{error}"
    );
    assert_eq!(with("prefill_tokens"), "t.csv: has two columns `prefill_tokens`");
    let error = refused(&SMALL.replacen("kind", "kin", 1));
    assert!(error.starts_with("t.csv: has no column `kind`"), "{error}");
    assert!(error.ends_with("did you mean `kin`?"), "{error}");
    let error = refused(&SMALL.replacen("latency_ms", "latency", 1));
    assert_eq!(error, "t.csv: has no column `latency_ms`, did you mean `latency`?");
}

const TWO_GPUS: &str = "kind,gpu,tensor_parallel,rack,notes,prefill_requests,prefill_tokens,latency_ms\n\
                        prefill,a,2,x,one,1,8,10\nprefill,b,2,x,two,1,8,6\n";

fn select(pairs: &[(&str, Selected)]) -> Result<Table, String> {
    let select = pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    open("t.csv", TWO_GPUS, |c| c.select = select)
}

#[test]
fn a_selection_leaves_one_identity() {
    let text = |text: &str| Selected::Text(text.to_owned());
    let rack = || ("rack", text("x"));
    let b = select(&[("gpu", text("b")), ("tensor_parallel", Selected::Integer(2)), rack()]);
    assert_eq!(ns(&b.unwrap(), (prefill(1, 8, 0), none().1)), 6_000_000);
    assert_eq!(
        select(&[rack()]).unwrap_err(),
        "t.csv: holds passes of several `gpu`, expected one: add it to `select` with one of \
         \"a\", \"b\""
    );
    let error = select(&[]).unwrap_err();
    assert!(error.starts_with("t.csv: unknown column `rack`; a column of your own"), "{error}");
    assert_eq!(
        select(&[rack(), ("gpu", text("c"))]).unwrap_err(),
        "`timing.table.select.gpu` is \"c\", expected one of \"a\", \"b\""
    );
    let error = select(&[rack(), ("gpus", text("a"))]).unwrap_err();
    assert!(
        error.starts_with(
            "`timing.table.select.gpus` is a column that is not there, did you mean `gpu`?"
        ),
        "{error}"
    );
}

#[test]
fn a_scenario_selects_with_plain_values() {
    let text = "{table: {path: a.csv, select: {gpu: h100, tensor_parallel: 2, rate: 0.5, eager: true}, \
                outside: clamp, duplicates: median}}";
    let config: TimingConfig = serde_saphyr::from_str(text).unwrap();
    let TimingConfig::Table(table) = config.resolve(std::path::Path::new("")).unwrap() else {
        panic!("{config:?}")
    };
    assert_eq!((table.outside, table.duplicates), (Outside::Clamp, Duplicates::Median));
    let selected: Vec<_> = table.select.values().cloned().collect();
    let expected = [
        Selected::Bool(true),
        Selected::Text("h100".to_owned()),
        Selected::Number(0.5),
        Selected::Integer(2),
    ];
    assert_eq!(selected, expected);
    assert!(expected[3].matches("2.0") && expected[0].matches("True") && !expected[2].matches("5"));
    let json = serde_json::to_string(&TimingConfig::Table(table.clone())).unwrap();
    assert_eq!(serde_json::from_str::<TimingConfig>(&json).unwrap(), TimingConfig::Table(table));
    let without: TimingConfig = serde_saphyr::from_str("{table: {}}").unwrap();
    let error = without.resolve(std::path::Path::new("")).unwrap_err().to_string();
    assert_eq!(error, "`table.path` is empty, expected the path of a timing table");
}

#[test]
fn rows_that_repeat_may_be_made_one() {
    let rows = "kind,prefill_requests,prefill_tokens,samples,latency_ms\n\
                prefill,1,8,1,10\nprefill,1,8,1,11\nprefill,1,8,6,18\n";
    let with = |rule| open("t.csv", rows, |c| c.duplicates = rule).unwrap();
    let work = (prefill(1, 8, 0), none().1);
    assert_eq!(ns(&with(Duplicates::Median), work), 11_000_000);
    // (10 + 11 + 6 * 18) / 8.
    assert_eq!(ns(&with(Duplicates::Mean), work), 16_125_000);
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn every_format_gives_the_same_provider() {
    let expected = table(SMALL);
    let json = "{\"kind\": \"decode\", \"decode_requests\": 1, \"decode_kv_tokens\": 12, \"latency_ms\": 4}\n\n\
                {\"kind\": \"prefill\", \"prefill_requests\": 1, \"prefill_tokens\": 8, \"latency_ms\": 10.0}\n\
                {\"latency_ms\": 2, \"kind\": \"decode\", \"decode_requests\": 1, \"decode_kv_tokens\": 4}\n";
    let whole = "workload_kind,batch_size,total_prefill_tokens,total_kv_read_tokens,latency_ms,tp,run_id\n\
                 prefill,1,8,0,10,1,x\ndecode,1,0,4,2,1,y\ndecode,1,0,12,4,1,y\n";
    for (name, content) in [
        ("t.csv.gz", gzip(SMALL)),
        ("t.jsonl", json.into()),
        ("t.jsonl.gz", gzip(json)),
        ("t.csv", whole.into()),
    ] {
        assert_eq!(open(name, content, |_| {}).unwrap(), expected, "{name}");
    }
    let error = open("t.xls", SMALL, |_| {}).unwrap_err();
    assert!(
        error.starts_with("t.xls: unknown kind of file, expected a name that ends in"),
        "{error}"
    );
    let error = open("t.jsonl", "{\"kind\": [1]}", |_| {}).unwrap_err();
    assert_eq!(error, "t.jsonl:1: `kind` is [1], expected a number or a text");
    let error = open("t.jsonl", "\n{", |_| {}).unwrap_err();
    assert!(error.starts_with("t.jsonl:2: malformed JSON: EOF"), "{error}");
    let error = open("t.csv.gz", &gzip(SMALL)[..40], |_| {}).unwrap_err();
    assert!(error.starts_with("t.csv.gz: truncated or corrupt gzip"), "{error}");
}

#[test]
fn the_whole_forward_layout_has_the_past_of_its_prefill() {
    let whole = "workload_kind,batch_size,total_prefill_tokens,total_kv_read_tokens,latency_ms\n\
                 prefill,2,16,64,10\n";
    let mut own =
        "kind,prefill_requests,prefill_tokens,prefill_past_tokens,latency_ms\n".to_owned();
    own += "prefill,2,16,64,10\n";
    assert_eq!(table(whole), table(&own));
    let error = refused(&whole.replace("prefill,2,16", "decode,2,16"));
    assert!(error.starts_with("t.csv:2: a decode pass with prefill work"), "{error}");
}

/// An archive of arrays: name, shape and numbers.
fn npz(arrays: &[(&str, &[u64], &[f64])]) -> Vec<u8> {
    use npyz::WriterBuilder;
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, shape, numbers) in arrays {
        let options = zip::write::SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Deflated);
        zip.start_file(format!("{name}.npy"), options).unwrap();
        let mut bytes = Vec::new();
        let mut writer = npyz::WriteOptions::new()
            .default_dtype()
            .shape(shape)
            .writer(&mut bytes)
            .begin_nd()
            .unwrap();
        writer.extend(numbers.iter()).unwrap();
        writer.finish().unwrap();
        zip.write_all(&bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

#[test]
fn an_npz_profile_prices_as_its_rows_do() {
    // Batches are KV over context: 2 and 1 at 100 KV tokens, 4 and 2 at 200.
    let profile = open(
        "t.npz",
        npz(&[
            ("prefill_isl", &[2], &[8.0, 16.0]),
            ("prefill_ttft_ms", &[2], &[10.0, 14.0]),
            ("decode_active_kv_tokens", &[2], &[100.0, 200.0]),
            ("decode_context_length", &[2], &[50.0, 100.0]),
            ("decode_itl", &[2, 2], &[5.0, 4.0, 9.0, 7.0]),
        ]),
        |_| {},
    )
    .unwrap();
    let rows = table(
        &(HEADER.to_owned()
            + "prefill,1,8,,,10\nprefill,1,16,,,14\ndecode,,,2,100,5\ndecode,,,1,100,4\n\
               decode,,,4,200,9\ndecode,,,2,200,7\n"),
    );
    assert_eq!(profile.prefill, rows.prefill);
    for (requests, context) in [(2, 50), (1, 100), (4, 50), (2, 100)] {
        let work = (none().0, decode(requests, 1, context));
        let (of_profile, evidence) = price(profile.clone(), Pricing::default(), work);
        assert_eq!(of_profile, ns(&rows, work));
        assert_eq!(noted(&evidence, "decode_only", "decode").0, "exact");
    }
    // 2 requests of 75: half way between both contexts and both KV totals, (5 + 4 + 9 + 7) / 4.
    assert_eq!(ns(&profile, (none().0, decode(2, 1, 75))), 6_250_000);
    // Beside a prompt: above the same 2 requests at the shortest context, 5 ms.
    assert_eq!(ns(&profile, (prefill(1, 8, 0), decode(2, 1, 75))), 11_250_000);
}

#[test]
fn archives_that_are_no_profile_are_refused() {
    let itl: (&str, &[u64], &[f64]) = ("decode_itl", &[1, 2], &[5.0, 4.0]);
    let context: (&str, &[u64], &[f64]) = ("decode_context_length", &[2], &[50.0, 100.0]);
    let kv: (&str, &[u64], &[f64]) = ("decode_active_kv_tokens", &[1], &[100.0]);
    assert!(open("t.npz", npz(&[itl, context, kv]), |_| {}).is_ok());
    for (arrays, expected) in [
        (vec![itl, context], "t.npz: has no array `decode_active_kv_tokens`"),
        (vec![("other", itl.1, itl.2)], "t.npz: holds no arrays `prefill_isl`, `prefill_ttft_ms`"),
        (
            vec![("decode_itl", &[2, 1], itl.2), context, kv],
            "t.npz: array `decode_itl` has the shape [2, 1], expected [1, 2]",
        ),
        (
            vec![itl, (context.0, &[2], &[100.0, 50.0]), kv],
            "t.npz: array `decode_context_length` must be ascending numbers",
        ),
        (
            vec![("decode_itl", &[1, 2], &[5.0, f64::NAN]), context, kv],
            "t.npz: array `decode_itl` holds NaN, expected numbers above 0",
        ),
    ] {
        let error = open("t.npz", npz(&arrays), |_| {}).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
    let error = open("t.npz", "no zip", |_| {}).unwrap_err();
    assert!(error.starts_with("t.npz: cannot be read as NPZ: "), "{error}");
    let select = |c: &mut TableConfig| {
        c.select.insert("gpu".to_owned(), Selected::Bool(true));
    };
    let error = open("t.npz", npz(&[itl, context, kv]), select).unwrap_err();
    assert!(error.starts_with("`timing.table.select.gpu` is there, expected nothing"), "{error}");
}

#[cfg(not(feature = "parquet"))]
#[test]
fn parquet_needs_its_feature() {
    let error = open("t.parquet", "PAR1", |_| {}).unwrap_err();
    assert!(error.contains("feature `parquet` (cargo build --features parquet)"), "{error}");
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_gives_the_same_provider() {
    use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    let schema = "message t { required binary kind (UTF8); required int64 prefill_requests;
        required int64 prefill_tokens; required int64 decode_requests; required int64 decode_kv_tokens;
        required double latency_ms; }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let kinds = ["prefill", "decode", "decode"].map(ByteArray::from);
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&kinds, None, None).unwrap();
    column.close().unwrap();
    for counts in [[1, 0, 0], [8, 0, 0], [0, 1, 1], [0, 4, 12]] {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&counts, None, None).unwrap();
        column.close().unwrap();
    }
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<DoubleType>().write_batch(&[10.0, 2.0, 4.0], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    assert_eq!(open("t.parquet", bytes, |_| {}).unwrap(), table(SMALL));
    let error = open("t.parquet", "PAR1", |_| {}).unwrap_err();
    assert!(error.starts_with("t.parquet: cannot be read as Parquet: "), "{error}");
    // Published files can be read, whatever is in them.
    for name in ["gemm_perf", "custom_allreduce_perf", "generation_attention_perf"] {
        let name = format!("aiconfigurator-0.12-vllm-ops/h100_sxm/{name}.parquet");
        let Some(path) = published(&name) else { return };
        let error = Table::open(&TableConfig { path, ..TableConfig::default() }).unwrap_err();
        assert!(error.to_string().contains("has no column `kind`"), "{error}");
    }
}

/// A published profile, if it is at hand.
fn published(name: &str) -> Option<PathBuf> {
    testing::shared(&format!("profiles/{name}"))
}

/// Rows of the Splitwise performance model (whole passes of Llama 2 70B) as a table of ours.
fn splitwise() -> Option<String> {
    let path = published("splitwise-perf-model/perf_model.csv")?;
    let mut reader = csv::Reader::from_path(path).unwrap();
    let mut rows = "model,hardware,tensor_parallel,kind,prefill_requests,prefill_tokens,\
                    decode_requests,decode_kv_tokens,latency_ms\n"
        .to_owned();
    for record in reader.records() {
        let record = record.unwrap();
        let count = |at: usize| record[at].parse::<u64>().unwrap();
        let (prompt, batch, output) = (count(2), count(3), count(4));
        let identity = format!("{},{},{}", &record[0], &record[1], &record[10]);
        writeln!(rows, "{identity},prefill,{batch},{},,,{}", batch * prompt, &record[7]).unwrap();
        // The mean decode pass of a batch has half of its output behind it.
        let kv = batch * (prompt + output / 2);
        writeln!(rows, "{identity},decode,,,{batch},{kv},{}", &record[8]).unwrap();
    }
    Some(rows)
}

#[test]
fn published_measurements_make_a_table() {
    let Some(rows) = splitwise() else { return };
    let several = refused(&rows);
    assert!(several.starts_with("t.csv: holds passes of several `model`"), "{several}");
    for hardware in ["a100-80gb", "h100-80gb"] {
        let table = open("t.csv", &rows, |c| {
            c.duplicates = Duplicates::Median;
            for (name, value) in [("model", "llama2-70b"), ("hardware", hardware)] {
                c.select.insert(name.to_owned(), Selected::Text(value.to_owned()));
            }
            c.select.insert("tensor_parallel".to_owned(), Selected::Integer(8));
        })
        .unwrap();
        let at = |work| ns(&table, work);
        let mut before = 0;
        for tokens in (512..=8192).step_by(512) {
            let ns = at((prefill(1, tokens, 0), none().1));
            assert!(ns > before, "{hardware}: {tokens} tokens take {ns} ns, fewer {before}");
            before = ns;
        }
        // A full batch reads more KV than one request, and both more than nothing.
        let (one, full) = (at((none().0, decode(1, 1, 576))), at((none().0, decode(64, 1, 576))));
        assert!(0 < one && one < full, "{hardware}: {one} and {full}");
        let mixed = at((prefill(1, 2048, 0), decode(8, 1, 576)));
        let (alone, decodes) =
            (at((prefill(1, 2048, 0), none().1)), at((none().0, decode(8, 1, 576))));
        assert!(alone <= mixed && mixed <= alone + decodes);
    }
}
