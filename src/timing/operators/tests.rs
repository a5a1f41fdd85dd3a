use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::base::testing;
use crate::model::parallel::Parallel;
use crate::model::shape::ModelShape;
use crate::model::shape::tests::llama_8b;
use crate::timing::evidence::PassKind;

const YAML: &str = "
name: by hand
num_hidden_layers: 10
operators:
  - {name: embedding, part: dense, per: pass}
  - {name: linear, part: dense, per: layer, count: 2}
  - {name: sampler, part: per_request, per: pass}
experts: {per: layer}
collectives: {per: layer, count: 2, bytes_per_token: 10}
uneven_kv: 0.25
";

/// linear: 100 us + 1 us a token, but 5,000 us at 576 tokens alone.
const DENSE: &str = "operator,tokens,time_us
embedding,1,3
embedding,1000,3
linear,1,101
linear,575,675
linear,576,5000
linear,577,677
linear,1000,1100
";

/// Prefill new + new * past / 100, decode requests * (10 + kv / 10), mixed 1 us above their sum.
const ATTENTION: &str =
    "prefill_tokens,prefill_past_tokens,decode_requests,decode_kv_tokens_mean,time_us
100,0,0,0,100
100,200,0,0,300
500,0,0,0,500
500,200,0,0,1500
0,0,1,100,20
0,0,1,300,40
0,0,5,100,100
0,0,5,300,200
100,0,1,100,121
";

const OTHERS: [(&str, &str); 3] = [
    ("per_request.csv", "operator,requests,time_us\nsampler,1,50\nsampler,11,150\n"),
    ("experts.csv", "tokens,time_us\n0,7\n1000,1007\n"),
    ("collectives.csv", "bytes,time_us\n0,2\n10000,1002\n"),
];

/// A folder of our own layout, `without_mixed` measurements or with the one above.
fn folder(without_mixed: bool) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let attention =
        if without_mixed { ATTENTION.rsplit_once("100,0,1,100").unwrap().0 } else { ATTENTION };
    let files = [("operators.yaml", YAML), ("dense.csv", DENSE), ("attention.csv", attention)];
    for (name, text) in files.into_iter().chain(OTHERS) {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn config(path: &Path) -> OperatorsConfig {
    OperatorsConfig { path: path.to_owned(), ..OperatorsConfig::default() }
}

fn deployment(model: Option<&ModelShape>, tensor_parallel_size: u32) -> Deployment<'_> {
    let parallel = Parallel { tensor_parallel_size, ..Parallel::default() };
    Deployment { model, accelerator: None, parallel, kv_capacity_tokens: 100_000 }
}

fn provider(config: &OperatorsConfig) -> Operators {
    Operators::new(config, &deployment(None, 1)).unwrap_or_else(|e| panic!("{e}"))
}

fn prompts(requests: &[(u32, u32)]) -> PrefillWork {
    let mut work = PrefillWork::default();
    requests.iter().for_each(|&(new, past)| work.add(new, past));
    work
}

fn decodes(requests: u32, kv: u32) -> DecodeWork {
    let mut work = DecodeWork::default();
    (0..requests).for_each(|_| work.add(1, kv));
    work
}

#[track_caller]
fn assert_near(ms: f64, expected: f64) {
    assert!((ms - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{ms}, expected {expected}");
}

/// Dense, per-request, experts and collectives of a pass of the folder above, in ms.
fn others(tokens: f64, sampled: f64) -> f64 {
    let linear = 20.0 * (100.0 + tokens);
    let experts = 10.0 * (7.0 + tokens);
    // 10 bytes a token, 2 us and a tenth of a us a byte.
    let collectives = 20.0 * (2.0 + tokens);
    let per_request = 40.0 + 10.0 * sampled;
    (3.0 + linear + experts + collectives + per_request) / 1000.0
}

#[test]
fn each_kind_of_pass_costs_what_the_tables_say() {
    let folder = folder(true);
    let provider = provider(&config(folder.path()));
    let evidence = &mut Evidence::default();
    // 300 + 300 * 100 / 100 = 600 us in each of 10 layers.
    let prefill = provider.prefill(&prompts(&[(300, 100)]), evidence).unwrap();
    assert_near(prefill, others(300.0, 1.0) + 6.0);
    // 3 * (10 + 200 / 10) = 90 us.
    let decode = provider.decode(&decodes(3, 200), evidence).unwrap();
    assert_near(decode, others(3.0, 3.0) + 0.9);
    // All tokens share the dense work; attention adds up.
    let mixed =
        provider.mixed(&prompts(&[(300, 100)]), &decodes(3, 200), evidence).unwrap().unwrap();
    assert_near(mixed.prefill_ms + mixed.decode_ms, others(303.0, 4.0) + 6.9);
    assert_near(mixed.prefill_ms, prefill);
    assert_eq!(evidence.total(Origin::Extrapolated).count, 0);
}

#[test]
fn a_mixed_pass_looks_the_dense_tables_up_once_over_all_its_tokens() {
    let folder = folder(true);
    let provider = provider(&config(folder.path()));
    let mut evidence = Evidence::default();
    evidence.begin(PassKind::Mixed);
    let price =
        provider.mixed(&prompts(&[(512, 0)]), &decodes(64, 100), &mut evidence).unwrap().unwrap();
    let json = evidence.to_json();
    // At 512 + 64 = 576 tokens: 3 us of embedding and 20 times the odd 5,000 us. Nowhere else is
    // it as much.
    let dense = &json["mixed"]["dense"];
    assert_eq!(dense["interpolated"]["count"], 1, "the embedding was not measured there: {dense}");
    assert_near(dense["interpolated"]["ms"].as_f64().unwrap(), 100.003);
    assert_eq!(dense.as_object().unwrap().len(), 1);
    for part in ["prefill_attention", "decode_attention", "per_request", "experts", "collectives"] {
        let answers = json["mixed"][part].as_object().unwrap().values();
        assert_eq!(answers.map(|a| a["count"].as_u64().unwrap()).sum::<u64>(), 1, "{part}");
    }
    let noted: f64 = Origin::ALL.into_iter().map(|origin| evidence.total(origin).ms).sum();
    assert_near(price.prefill_ms + price.decode_ms, noted);
}

#[test]
fn measured_mixed_attention_replaces_the_sum() {
    let folder = folder(false);
    let provider = provider(&config(folder.path()));
    let mut evidence = Evidence::default();
    evidence.begin(PassKind::Mixed);
    let price =
        provider.mixed(&prompts(&[(100, 0)]), &decodes(1, 100), &mut evidence).unwrap().unwrap();
    assert_near(price.prefill_ms + price.decode_ms, others(101.0, 2.0) + 1.21);
    let json = evidence.to_json();
    assert_eq!(json["mixed"]["mixed_attention"]["exact"]["count"], 1);
    assert_eq!(json["mixed"].get("prefill_attention"), None);
}

#[test]
fn a_mixed_pass_below_its_prefill_alone_is_all_prefill() {
    let folder = folder(true);
    let provider = provider(&config(folder.path()));
    let evidence = &mut Evidence::default();
    let prefill = provider.prefill(&prompts(&[(576, 0)]), evidence).unwrap();
    // The dent behind 576 tokens makes one more token cheaper.
    let mixed = provider.mixed(&prompts(&[(576, 0)]), &decodes(1, 100), evidence).unwrap().unwrap();
    assert!(mixed.prefill_ms < prefill, "{mixed:?}");
    assert!(mixed.decode_ms.abs() < 1e-12, "{mixed:?}");
}

#[test]
fn what_lies_outside_is_counted_held_or_refused() {
    let folder = folder(true);
    let mut config = config(folder.path());
    let mut evidence = Evidence::with_outliers();
    // 5 requests at twice the longest KV: 5 * (10 + 60) = 350 us.
    let decode = decodes(5, 600);
    let ms = provider(&config).decode(&decode, &mut evidence).unwrap();
    assert_near(ms, others(5.0, 5.0) + 3.5);
    let outlier = &evidence.outliers()[0];
    assert_eq!((outlier.part, outlier.origin), ("decode_attention", "extrapolated"));
    assert_eq!((outlier.at.as_str(), outlier.stretch), ("requests=5 kv_mean=600", 2.0));

    config.outside = Outside::Clamp;
    let ms = provider(&config).decode(&decode, &mut evidence).unwrap();
    assert_near(ms, others(5.0, 5.0) + 2.0);
    assert_eq!(evidence.total(Origin::Clamped).count, 1);

    config.outside = Outside::Refuse;
    let error = provider(&config).decode(&decode, &mut evidence).unwrap_err().to_string();
    assert!(error.starts_with("decode_attention at requests=5 kv_mean=600 is outside"), "{error}");
    assert!(provider(&config).decode(&decodes(5, 300), &mut evidence).is_ok());
}

#[test]
fn uneven_lengths_count_on_request() {
    let folder = folder(true);
    let mut config = config(folder.path());
    let mut decode = decodes(4, 100);
    decode.add(1, 300);
    let evidence = &mut Evidence::default();
    // The mean is 140: 5 * (10 + 14) = 120 us.
    assert_near(provider(&config).decode(&decode, evidence).unwrap(), others(5.0, 5.0) + 1.2);
    config.uneven_kv = true;
    // A quarter of the way to 300 is 180: 5 * (10 + 18) = 140 us.
    assert_near(provider(&config).decode(&decode, evidence).unwrap(), others(5.0, 5.0) + 1.4);
}

#[test]
fn scale_is_for_what_was_measured_and_overhead_is_added() {
    let folder = folder(true);
    let config = OperatorsConfig { scale: 2.0, pass_overhead_ms: 1.5, ..config(folder.path()) };
    let mut evidence = Evidence::default();
    let ms = provider(&config).decode(&decodes(1, 100), &mut evidence).unwrap();
    assert_near(ms, 2.0 * (others(1.0, 1.0) + 0.2) + 1.5);
    assert_eq!(evidence.to_json()["prefill_only"]["overhead"]["analytic"]["ms"], 1.5);
}

#[test]
fn several_prompts_attend_as_one_with_as_much_work() {
    assert_eq!(
        as_one_request(&prompts(&[(777, 4321)])).map(f64::to_bits),
        [777.0, 4321.0].map(f64::to_bits)
    );
    let work = prompts(&[(512, 100), (512, 300), (1, 5000)]);
    let [new, past] = as_one_request(&work);
    // 2 * 512 * 513 / 2 + 1 and 512 * 400 + 5,000.
    assert_near(new * (new + 1.0) / 2.0, 262_657.0);
    assert_near(new * past, 209_800.0);
    // The formula itself leaves one request alone.
    let mut single = prompts(&[(777, 4321)]);
    single.requests = 2;
    assert_eq!(as_one_request(&single).map(f64::to_bits), [777.0, 4321.0].map(f64::to_bits));
}

#[test]
fn errors_name_the_file_the_row_and_the_field() {
    let error = |name: &str, text: &str| -> String {
        let folder = folder(false);
        match text {
            "" => fs::remove_file(folder.path().join(name)).unwrap(),
            _ => fs::write(folder.path().join(name), text).unwrap(),
        }
        let made = Operators::new(&config(folder.path()), &deployment(None, 1));
        let error = made.err().unwrap_or_else(|| panic!("{name} was taken")).to_string();
        error.replace(folder.path().to_str().unwrap(), "")
    };
    let starts = |name: &str, text: &str, expected: &str| {
        let error = error(name, text);
        assert!(error.starts_with(expected), "{error}");
    };
    starts("dense.csv", "", "/dense.csv: is not there");
    starts("attention.csv", "", "/attention.csv: is not there");
    starts("operators.yaml", "", ": holds no measured operators; expected operators.yaml");
    starts("operators.yaml", "name: x\noperator: []\n", "/operators.yaml: ");
    let unknown = "/dense.csv:2: `operator` is \"liner\" (did you mean `linear`?)";
    starts("dense.csv", "operator,tokens,time_us\nliner,1,1\n", unknown);
    starts(
        "dense.csv",
        "operator,tokens,time_us\nlinear,1,1\n",
        "/dense.csv: holds no measurement of `embedding`",
    );
    starts("experts.csv", "tokens,time_us\n1,-2\n", "/experts.csv:2: `time_us` is \"-2\"");
    starts("experts.csv", "tokens,time_us\n1,2\n1,3\n", "/experts.csv:3: the same place as line 2");
    let header = ATTENTION.lines().next().unwrap();
    let of = |row: &str| format!("{header}\n{row}\n");
    starts("attention.csv", &of("0,0,0,0,1"), "/attention.csv:2: there is neither a new token");
    starts("attention.csv", &of("0,5,1,9,1"), "/attention.csv:2: there is past KV, but no new");
    starts("attention.csv", &of("5,5,0,9,1"), "/attention.csv:2: there is decode KV, but no");
    starts("attention.csv", &of("5,5,0,0,1"), "/attention.csv: no measurement of decode alone");

    let folder = folder(false);
    let made = Operators::new(&config(folder.path()), &deployment(None, 2)).err().unwrap();
    let expected = "`parallel.tensor_parallel_size` is 2, expected 1, as measured";
    assert!(made.to_string().starts_with(expected), "{made}");
}

/// A published profile, if it is at hand.
fn shared(name: &str) -> Option<PathBuf> {
    testing::shared(&format!("profiles/{name}"))
}

/// The rows of a CSV file without its header.
fn raw(path: &Path) -> Vec<Vec<String>> {
    use std::io::Read as _;
    let mut text = String::new();
    let mut file = fs::File::open(path).unwrap();
    if path.extension().unwrap() == "gz" {
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    } else {
        file.read_to_string(&mut text).unwrap();
    }
    text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

#[test]
fn the_rtx_pro_6000_set_follows_its_formula() {
    let Some(profile) = shared("llmservingsim-rtxpro6000-llama31-8b/profile") else { return };
    let mut config = config(&profile);
    let error = Operators::new(&config, &deployment(None, 1)).err().unwrap().to_string();
    assert!(error.contains("`timing.operators.num_hidden_layers` is absent"), "{error}");
    let error = Operators::new(&config, &deployment(None, 4)).err().unwrap().to_string();
    assert!(error.contains("tensor_parallel_size` is 4") && error.ends_with(": 1"), "{error}");
    config.num_hidden_layers = Some(32);
    let provider = provider(&config);

    let folder = profile.join("tp1");
    let (dense, per_sequence) =
        (raw(&folder.join("dense.csv")), raw(&folder.join("per_sequence.csv")));
    let attention = raw(&folder.join("attention.csv.gz"));
    let time = |rows: &[Vec<String>], key: &[&str]| -> f64 {
        let row =
            rows.iter().find(|row| row[..key.len()] == *key).unwrap_or_else(|| panic!("{key:?}"));
        row[key.len()].parse().unwrap()
    };
    // [new, past, requests, mean KV], T, S; all of them on the grid.
    for (at, tokens, sampled) in [
        (["512", "0", "0", "0"], "512", "1"),
        (["2048", "4096", "0", "0"], "2048", "1"),
        (["0", "0", "64", "1024"], "64", "64"),
        (["0", "0", "1", "16"], "1", "1"),
        (["64", "512", "16", "2048"], "80", "17"),
        (["128", "0", "128", "512"], "256", "129"),
    ] {
        let of = |name: &str| time(&dense, &[name, tokens]);
        let per_layer = 2.0 * of("layernorm")
            + of("qkv_proj")
            + of("rotary_emb")
            + time(&attention, &at)
            + of("o_proj")
            + of("gate_up_proj")
            + of("act_fn")
            + of("down_proj");
        // 17 and 129 lie between 16 and 20, 128 and 144.
        let of = |name: &str| match sampled {
            "17" => {
                0.75 * time(&per_sequence, &[name, "16"])
                    + 0.25 * time(&per_sequence, &[name, "20"])
            }
            "129" => {
                (15.0 * time(&per_sequence, &[name, "128"]) + time(&per_sequence, &[name, "144"]))
                    / 16.0
            }
            _ => time(&per_sequence, &[name, sampled]),
        };
        let expected_us = time(&dense, &["embedding", tokens])
            + 32.0 * per_layer
            + time(&dense, &["final_layernorm", tokens])
            + of("lm_head")
            + of("sampler");
        let [new, past, requests, kv] = at.map(|text| text.parse::<u32>().unwrap());
        let mut evidence = Evidence::default();
        let (prefill, decode) = (prompts(&[(new, past)]), decodes(requests, kv));
        let ms = match (new, requests) {
            (_, 0) => provider.prefill(&prefill, &mut evidence).unwrap(),
            (0, _) => provider.decode(&decode, &mut evidence).unwrap(),
            _ => {
                let mixed = provider.mixed(&prefill, &decode, &mut evidence).unwrap().unwrap();
                mixed.prefill_ms + mixed.decode_ms
            }
        };
        assert_near(ms, expected_us / 1000.0);
        let parts: Vec<Value> = Vec::from([evidence.to_json()["prefill_only"].clone()]);
        assert!(parts[0].to_string().contains("attention\":{\"exact\""), "{parts:?}");
    }
}

/// Prices of growing prompts and growing batches, each above the one before.
fn assert_grows(provider: &Operators) {
    let evidence = &mut Evidence::default();
    let of_prompts =
        [32, 128, 512, 2000].map(|new| provider.prefill(&prompts(&[(new, 0)]), evidence).unwrap());
    assert!(of_prompts.is_sorted_by(|a, b| a < b), "{of_prompts:?}");
    // In some of the sets a kernel does worse on one request than on eight.
    let of_batches =
        [8, 64, 128].map(|batch| provider.decode(&decodes(batch, 1000), evidence).unwrap());
    assert!(of_batches.is_sorted_by(|a, b| a < b), "{of_batches:?}");
    let of_kv = [100, 1000, 1900].map(|kv| provider.decode(&decodes(64, kv), evidence).unwrap());
    assert!(of_kv.is_sorted_by(|a, b| a < b), "{of_kv:?}");
}

#[test]
fn the_a6000_set_loads_and_grows() {
    let Some(profile) = shared("llmservingsim-a6000-v0/profile/Llama-3.1-8B") else { return };
    let model = llama_8b();
    let made = Operators::new(&config(&profile), &deployment(Some(&model), 1)).unwrap();
    assert_grows(&made);
    // One token of one request behind 1,024: all weights but the embedding, 15 GB at 768 GB/s, take
    // 20 ms; attention is predicted to take 32 * 0.178 ms.
    let ms = made.decode(&decodes(1, 1024), &mut Evidence::default()).unwrap();
    assert!((25.0..32.0).contains(&ms), "{ms}");
    let error = Operators::new(&config(&profile), &deployment(Some(&model), 2)).err().unwrap();
    assert!(error.to_string().contains("tensor_parallel_size` is 2"), "{error}");
}

/// Llama 2 7B (its `config.json`).
#[cfg(feature = "parquet")]
fn llama_2_7b() -> ModelShape {
    ModelShape {
        name: "llama-2-7b".to_owned(),
        num_key_value_heads: 32,
        intermediate_size: 11008,
        vocab_size: 32_000,
        max_position_embeddings: 4096,
        ..llama_8b()
    }
}

#[cfg(feature = "parquet")]
#[test]
fn the_h100_set_prices_a_model_by_its_shape_and_below_what_was_measured() {
    let Some(profile) = shared("aiconfigurator-0.12-vllm-ops/h100_sxm") else { return };
    let model = llama_2_7b();
    let made = Operators::new(&config(&profile), &deployment(Some(&model), 1)).unwrap();
    assert_grows(&made);
    let evidence = &mut Evidence::default();
    // What vLLM 0.11.0 took, fitted: 6.32 + 1.66e-4 KV; 5.05 + 0.0195 n + 5.19e-7 n^2.
    let decode = made.decode(&decodes(1, 1000), evidence).unwrap() / 6.486;
    let prefill = |n: u32| made.prefill(&prompts(&[(n, 0)]), &mut Evidence::default()).unwrap();
    let slope = (prefill(3072) - prefill(1024)) / 2048.0 / (0.0195 + 5.19e-7 * 4096.0);
    let whole = prefill(1024) / (5.05 + 0.0195 * 1024.0 + 5.19e-7 * 1024.0 * 1024.0);
    assert!((0.6..1.0).contains(&whole), "{whole}");
    assert!((0.6..1.0).contains(&decode), "{decode}");
    assert!((0.6..1.1).contains(&slope), "{slope}");

    let two = Operators::new(&config(&profile), &deployment(Some(&model), 2)).unwrap();
    let mut evidence = Evidence::default();
    let of_two = two.prefill(&prompts(&[(2048, 0)]), &mut evidence).unwrap();
    assert!((0.5..0.8).contains(&(of_two / prefill(2048))), "{of_two}");
    assert!(evidence.to_json()["prefill_only"]["collectives"].is_object());
    let error = Operators::new(&config(&profile), &deployment(None, 1)).err().unwrap().to_string();
    assert!(error.starts_with("`model` is absent"), "{error}");
}

#[cfg(feature = "parquet")]
#[test]
fn the_b200_set_is_faster_than_the_h100_one() {
    let Some(profiles) = shared("aiconfigurator-0.12-vllm-ops") else { return };
    let model = llama_8b();
    let of = |name: &str| {
        Operators::new(&config(&profiles.join(name)), &deployment(Some(&model), 1)).unwrap()
    };
    let (h100, b200) = (of("h100_sxm"), of("b200_sxm"));
    assert_grows(&b200);
    let price =
        |made: &Operators| made.prefill(&prompts(&[(2048, 0)]), &mut Evidence::default()).unwrap();
    assert!(price(&b200) < price(&h100));
}

#[cfg(not(feature = "parquet"))]
#[test]
fn parquet_needs_its_feature() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("gemm_perf.parquet"), "").unwrap();
    let made = Operators::new(&config(folder.path()), &deployment(None, 1));
    let error = made.err().unwrap().to_string();
    assert!(error.contains("--features parquet"), "{error}");
}
