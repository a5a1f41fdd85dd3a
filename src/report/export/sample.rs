//! A small run to export in tests.

use crate::base::time::SimTime;
use crate::metrics::slo::SloConfig;
use crate::report::{Report, sample};

use super::{Deployed, Emission, Seen, Served};

fn at(ms: u64) -> SimTime {
    SimTime::from_ns(ms * 1_000_000)
}

/// Three requests that complete, on two engines of two accelerators:
///
/// | prompt | arrives (ms) | emissions (ms) | tokens |
/// |---|---|---|---|
/// | 1,000 | 0 | 100, 300, 350 | 1, 1, 1 |
/// | 3,000 | 50 | 300, 450, 600 | 1, 1, 2 |
/// | 100 | 1,050 | 2,050 | 1 |
///
/// One is turned away and one does not finish. TTFT is to be at most 300 ms and TPOT at most 110 ms.
pub(super) fn seen() -> Seen {
    let deployed = Deployed {
        engine: "vllm",
        model: Some("llama-3.1-8b".to_owned()),
        accelerator: Some("h100-sxm".to_owned()),
        tensor_parallel_size: 2,
        accelerators: 4,
        slo: Some(SloConfig { ttft_ms: Some(300.0), tpot_ms: Some(110.0), ..SloConfig::default() }),
        ..Deployed::default()
    };
    let served = vec![
        served(0, 1000, 0, &[(100, 1), (300, 1), (350, 1)]),
        served(1, 3000, 50, &[(300, 1), (450, 1), (600, 2)]),
        served(2, 100, 1050, &[(2050, 1)]),
    ];
    let mut seen = Seen { deployed, served, rejected: 1, unfinished: 1, ..Seen::default() };
    for gap in seen.served.iter().flat_map(Served::gaps) {
        *seen.gaps.entry(gap).or_default() += 1;
    }
    seen
}

fn served(id: u32, prompt_tokens: u32, arrival: u64, emissions: &[(u64, u32)]) -> Served {
    let emissions: Vec<_> =
        emissions.iter().map(|&(ms, tokens)| Emission { at: at(ms), tokens }).collect();
    let record = crate::metrics::record::RequestRecord {
        id: crate::base::ids::RequestId(id),
        arrival: at(arrival),
        first_scheduled: at(arrival),
        first_token: emissions[0].at,
        last_token: emissions[emissions.len() - 1].at,
        prompt_tokens,
        output_tokens: emissions.iter().map(|emission| emission.tokens).sum(),
        ..sample::record()
    };
    Served { record, emissions }
}

/// The report of that run, as far as exports read it.
pub(super) fn report() -> Report {
    let mut report = sample::report();
    report.run.throughput.span_s = Some(2.05);
    report
}
