use std::io::Write;
use std::path::Path;

use super::config::*;
use super::*;
use crate::base::rng::tests::moments;
use crate::base::testing;

const N: usize = 40_000;

fn config(yaml: &str) -> LengthConfig {
    let mut config: LengthConfig = serde_saphyr::from_str(yaml).unwrap();
    config.resolve(Path::new("/")).unwrap();
    config
}

/// Lengths of so many prompts and outputs.
fn pairs(prompt: &str, output: &str, correlation: f64) -> Vec<(f64, f64)> {
    let draws = Stream::new(1, "test");
    let lengths = Lengths::new(&config(prompt), &config(output), correlation, draws);
    let mut lengths = lengths.unwrap();
    (0..N).map(|_| lengths.next()).map(|(p, o)| (f64::from(p), f64::from(o))).collect()
}

fn sample(yaml: &str) -> Vec<f64> {
    pairs(yaml, "{fixed: 1}", 0.0).into_iter().map(|(prompt, _)| prompt).collect()
}

/// The mean within four standard errors, the deviation within `tolerance`.
fn assert_moments(sample: &[f64], mean: f64, sd: f64, tolerance: f64) {
    let (found_mean, found_sd) = moments(sample);
    assert!((found_mean - mean).abs() < 4.0 * sd / (N as f64).sqrt(), "{found_mean} {mean}");
    assert!((found_sd / sd - 1.0).abs() < tolerance, "{found_sd} {sd}");
}

#[test]
fn distributions_have_their_moments() {
    assert!(sample("{fixed: 7}").iter().all(|&tokens| (tokens - 7.0).abs() < 0.5));
    // Discrete uniform on 100 to 199: mean 149.5, variance (100^2 - 1) / 12.
    let uniform = sample("{uniform: {min: 100, max: 199}}");
    assert_moments(&uniform, 149.5, (9999.0_f64 / 12.0).sqrt(), 0.02);
    assert!(uniform.contains(&100.0) && uniform.contains(&199.0));
    // Rounding adds a variance of 1 / 12 to 10,000.
    let normal = sample("{normal: {mean: 1000, std: 100}}");
    assert_moments(&normal, 1000.0, 100.0, 0.02);
    // sigma^2 = ln(1 + 1/4) = 0.223; the kurtosis is e^4s + 2 e^3s + 3 e^2s - 3 with s = sigma^2, which
    // is 8.0: four standard errors of the deviation are 4 sqrt(7 / 4 / N) = 2.7 %.
    let lognormal = sample("{lognormal: {mean: 1000, std: 500}}");
    assert_moments(&lognormal, 1000.0, 500.0, 0.03);
    // One more with probability 3/4: mean 2 + 3, variance q / p^2 = 12.
    let geometric = sample("{geometric: {mean: 5, min: 2}}");
    assert_moments(&geometric, 5.0, 12.0_f64.sqrt(), 0.03);
    let shortest = geometric.iter().filter(|&&tokens| tokens < 2.5).count() as f64 / N as f64;
    assert!((shortest - 0.25).abs() < 4.0 * (0.25_f64 * 0.75 / N as f64).sqrt(), "{shortest}");
    assert!(sample("{geometric: {mean: 3, min: 3}}").iter().all(|&tokens| tokens < 3.5));
    // Zipf on 1 to 3 of exponent 1: weights 6, 3, 2 of 11; mean 18 / 11, mean square 36 / 11.
    let zipf = sample("{zipf: {exponent: 1, min: 1, max: 3}}");
    assert_moments(&zipf, 18.0 / 11.0, (36.0_f64 / 11.0 - 324.0 / 121.0).sqrt(), 0.02);
    let last = zipf.iter().filter(|&&tokens| tokens > 2.5).count() as f64 / N as f64;
    // A share of 2 / 11 has a standard error of sqrt(2 x 9) / 11 / sqrt(N).
    assert!((last - 2.0 / 11.0).abs() < 4.0 * 18.0_f64.sqrt() / 11.0 / (N as f64).sqrt());
}

#[test]
fn clamps_move_the_tails_to_the_ends() {
    let clamped = sample("{normal: {mean: 100, std: 50, min: 100, max: 120}}");
    assert!(clamped.iter().all(|tokens| (100.0..=120.0).contains(tokens)));
    // Half and a little (what rounds to 100) is below, 1 - Phi(0.4) = 0.345 above.
    let low = clamped.iter().filter(|&&tokens| tokens < 100.5).count() as f64 / N as f64;
    assert!((low - 0.504).abs() < 0.01, "{low}");
    let huge = sample("{lognormal: {mean: 4e9, std: 4e9}}");
    assert!(huge.iter().all(|&tokens| tokens <= f64::from(u32::MAX)));
}

#[test]
fn correlation_is_that_of_the_draws() {
    let correlation = |pairs: &[(f64, f64)]| {
        let (first, second): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
        let ((a, sa), (b, sb)) = (moments(&first), moments(&second));
        pairs.iter().map(|(x, y)| (x - a) * (y - b)).sum::<f64>() / N as f64 / sa / sb
    };
    let normal = "{normal: {mean: 10000, std: 1000}}";
    for rho in [-1.0, 0.0, 0.6, 1.0] {
        // The standard error of a correlation is (1 - rho^2) / sqrt(N); rounding costs 1e-7.
        let found = correlation(&pairs(normal, normal, rho));
        assert!(
            (found - rho).abs() < 4.0 * (1.0 - rho * rho) / (N as f64).sqrt() + 1e-5,
            "{found}"
        );
    }
    // Uniform margins: rho becomes 6 / pi asin(rho / 2) = 0.5819 for 0.6.
    let uniform = "{uniform: {min: 0, max: 1000000}}";
    let found = correlation(&pairs(uniform, uniform, 0.6));
    assert!((found - 0.5819).abs() < 0.02, "{found}");
    // The prompts are the same whatever the correlation is.
    let prompts =
        |rho| pairs(normal, normal, rho).into_iter().map(|p| p.0 as u32).collect::<Vec<_>>();
    assert_eq!(prompts(0.0), prompts(0.9));
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn empirical(text: &str, fields: &str) -> Result<Vec<u32>, String> {
    let file = file(text);
    let yaml = format!("{{empirical: {{path: {:?}, {fields}}}}}", file.path());
    let length = Length::new(&config(&yaml))
        .map_err(|error| error.to_string().replace(&file.path().display().to_string(), "t.csv"))?;
    let mut draws = Stream::new(3, "test");
    Ok((0..N).map(|_| length.at(draws.normal())).collect())
}

#[test]
fn a_column_is_drawn_from_by_weight() {
    let tokens = empirical("w,n\n1,10\n0,20\n 3,30\n", "column: n, weight_column: w").unwrap();
    let share = |n| tokens.iter().filter(|&&t| t == n).count() as f64 / N as f64;
    // 3 / 4, with a standard error of sqrt(3) / 4 / sqrt(N).
    assert!((share(30) - 0.75).abs() < 4.0 * 3.0_f64.sqrt() / 4.0 / (N as f64).sqrt());
    assert!((share(10) + share(30) - 1.0).abs() < 1e-9, "a weight of 0 is never drawn");
    let clamped = empirical("tokens\n5\n", "min: 8").unwrap();
    assert_eq!(clamped[0], 8);
}

#[test]
fn a_file_that_cannot_be_used_says_where() {
    for (text, fields, expected) in [
        (
            "token,x\n1,2\n",
            "",
            "t.csv:1: column `tokens` is missing, found `token`, `x`; did you mean `token`?",
        ),
        (
            "tokens\n1\n-3\n",
            "",
            "t.csv:3: `tokens` is \"-3\", expected an integer from 0 to 4294967295",
        ),
        (
            "tokens,w\n1,NaN\n",
            "weight_column: w",
            "t.csv:2: `w` is \"NaN\", expected a number from 0 to 1e15",
        ),
        (
            "tokens,w\n1,0\n",
            "weight_column: w",
            "t.csv:1: `w` is 0 in every row, expected a weight above 0",
        ),
        ("tokens\n", "", "t.csv:1: no rows behind the header, expected at least one"),
        ("", "", "t.csv: no rows"),
        ("tokens,b\n1\n", "", "t.csv:2: malformed CSV: 1 cells, expected 2"),
    ] {
        let error = empirical(text, fields).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
    let missing = config("{empirical: {path: none.csv}}");
    assert_eq!(Length::new(&missing).unwrap_err().to_string(), "/none.csv: no such file");
}

#[test]
fn pairs_stay_together() {
    let csv = file("num_prefill_tokens,num_decode_tokens\n10,1\n20,2\n");
    let trace = file(
        "{\"timestamp\": 0, \"input_length\": 10, \"output_length\": 1, \"hash_ids\": [1]}\n\
         {\"timestamp\": 5, \"input_length\": 20, \"output_length\": 2, \"hash_ids\": [2]}\n",
    );
    for (kind, file) in [("csv", &csv), ("trace", &trace)] {
        let yaml = format!("{{{kind}: {{path: {:?}}}}}", file.path());
        let config: PairsConfig = serde_saphyr::from_str(&yaml).unwrap();
        let mut lengths = Lengths::of_pairs(&config, Stream::new(1, "test")).unwrap();
        let drawn: Vec<_> = (0..100).map(|_| lengths.next()).collect();
        assert!(drawn.contains(&(10, 1)) && drawn.contains(&(20, 2)));
        assert!(drawn.iter().all(|(prompt, output)| *prompt == output * 10), "{kind}");
    }
}

#[test]
fn each_unusable_value_names_its_field() {
    for (yaml, expected) in [
        ("{uniform: {min: 5, max: 4}}", "`uniform.min` is 5, expected at most `max` (4)"),
        ("{normal: {mean: -1}}", "`normal.mean` is -1"),
        ("{lognormal: {mean: 0}}", "`lognormal.mean` is 0"),
        ("{lognormal: {std: .inf}}", "`lognormal.std` is inf"),
        ("{zipf: {min: 0}}", "`zipf.min` is 0"),
        ("{zipf: {max: 2000000}}", "`zipf.max` is 2000000, expected at most min + 1048575"),
        ("{zipf: {exponent: -1}}", "`zipf.exponent` is -1"),
        ("{empirical: {}}", "`empirical.path` is empty"),
    ] {
        let mut config: LengthConfig = serde_saphyr::from_str(yaml).unwrap();
        let error = config.resolve(Path::new("/")).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn the_lengths_of_arxiv_summaries_are_read_whole() {
    let path = testing::shared(
        "traces/arxiv-summarization-lengths/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv",
    );
    let Some(path) = path else { return };
    let config = PairsConfig::Csv(CsvPairsConfig { path, ..CsvPairsConfig::default() });
    let pairs = table::read_pairs(&config).unwrap();
    // Rows, and the filter, as its description states them.
    assert_eq!(pairs.values().len(), 28_257);
    assert!(pairs.values().iter().all(|(prompt, output)| prompt + output <= 4096));
    // The first row of the file.
    assert_eq!(pairs.values()[0], (3772, 54));
}
