//! What `InferenceX` makes of a result of `vllm bench serve`: rates per GPU, times in seconds, and beside each TPOT
//! the rate at which a user gets tokens.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use crate::report::Report;

use super::{Seen, vllm_bench, write_pretty};

/// Writes the file.
pub(super) fn write(seen: &Seen, report: &Report, out: &mut dyn Write) -> io::Result<()> {
    write_pretty(&content(seen, report), out)
}

fn content(seen: &Seen, report: &Report) -> Map<String, Value> {
    let measured = vllm_bench::totals(seen, report);
    let number = |key: &str| measured.get(key).and_then(Value::as_f64);
    let deployed = &seen.deployed;
    let per_gpu = |rate: Option<f64>| json!(rate.map(|rate| rate / deployed.accelerators as f64));
    let total = number("total_token_throughput");
    let output = number("output_throughput");
    let mut all = Map::new();
    let mut put = |key: &str, value: Value| {
        all.insert(key.to_owned(), value);
    };
    put("hw", json!(deployed.accelerator));
    put("model", json!(deployed.model));
    put("framework", json!(deployed.engine));
    put("conc", measured.get("max_concurrency").cloned().unwrap_or_default());
    put("tp", json!(deployed.tensor_parallel_size));
    put("num_gpus", json!(deployed.accelerators));
    put("tput_per_gpu", per_gpu(total));
    put("output_tput_per_gpu", per_gpu(output));
    put("input_tput_per_gpu", per_gpu(total.zip(output).map(|(total, output)| total - output)));
    for (key, value) in &measured {
        let Some(name) = key.strip_suffix("_ms") else { continue };
        let ms = value.as_f64();
        put(name, json!(ms.map(|ms| ms / 1000.0)));
        if let Some(statistic) = name.strip_suffix("_tpot") {
            let rate = ms.filter(|&ms| ms > 0.0).map(|ms| 1000.0 / ms);
            put(&format!("{statistic}_intvty"), json!(rate));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    /// 8 output and 4,100 prompt tokens in 2.05 s on 4 accelerators; TPOT 125 and 100 ms, of which p90 is 122.5 ms.
    #[test]
    fn rates_are_per_gpu_and_times_in_seconds() {
        let content = content(&sample::seen(), &sample::report());
        for (key, expected) in [
            ("output_tput_per_gpu", 8.0 / 2.05 / 4.0),
            ("input_tput_per_gpu", 4100.0 / 2.05 / 4.0),
            ("tput_per_gpu", 4108.0 / 2.05 / 4.0),
            ("median_ttft", 0.25),
            ("mean_e2el", 1.9 / 3.0),
            ("mean_itl", 0.1375),
            ("p90_tpot", 0.1225),
            // The slow tail.
            ("p90_intvty", 1000.0 / 122.5),
        ] {
            let found = content[key].as_f64().unwrap();
            assert!((found - expected).abs() < 1e-9, "{key}: {found} is not {expected}");
        }
        assert!(content.keys().all(|key| !key.ends_with("_ms")));
    }
}
