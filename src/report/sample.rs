//! A small run to report on in tests.

use serde_json::json;

use crate::base::ids::{EngineId, RequestId};
use crate::base::time::{SimDuration, SimTime};
use crate::metrics::collector::{Metrics, MetricsOptions};
use crate::metrics::record::{Finish, PassRecord, Rejection, RequestRecord, TtftParts};
use crate::metrics::summary::RunSummary;

use super::warning::{EngineFields, Warning};
use super::{Host, Report, Subject, Timing, Title};

fn at(ms: u64) -> SimTime {
    SimTime::from_ns(ms * 1_000_000)
}

fn lasting(ms: u64) -> SimDuration {
    at(ms).since(SimTime::ZERO)
}

/// The first of [`run`].
pub(super) fn record() -> RequestRecord {
    RequestRecord {
        id: RequestId(0),
        line: 1,
        engine: EngineId(0),
        arrival: at(0),
        first_scheduled: at(0),
        first_token: at(100),
        last_token: at(350),
        prompt_tokens: 1000,
        output_tokens: 3,
        cached_tokens: 0,
        preemptions: 0,
        ttft: TtftParts { prefill: lasting(100), ..TtftParts::default() },
        finish: Finish::Stop,
        priority: 0,
        class: 0,
        rounds: crate::base::record::RequestRounds::default(),
    }
}

/// Two requests of 1,000 and 3,000 prompt tokens that arrive at 0 and 50 ms, one that is too
/// long and one that is cut off.
///
/// Pass 1, 0 to 100 ms, computes the first prompt. Pass 2, 100 to 300 ms, decodes the first
/// request and computes the second prompt, of which 1,000 tokens were cached. Pass 3, 50 ms,
/// decodes both and pass 4, 50 ms, the second. Then both have three tokens.
pub(super) fn run() -> RunSummary {
    let mut metrics = Metrics::new(MetricsOptions::default());
    metrics.kv_capacity(EngineId(0), BLOCKS);
    passes().iter().for_each(|pass| metrics.pass(pass));
    let [first, second] = requests();
    metrics.token_gap(lasting(200), 1);
    metrics.token_gap(lasting(50), 2);
    metrics.token_gap(lasting(50), 1);
    metrics.finished(&first);
    metrics.finished(&second);
    metrics.rejected(RequestId(2), 0, at(60), Rejection::PromptTooLong);
    metrics.unfinished(RequestId(3), 0, at(70));
    metrics.finish()
}

/// KV blocks of the engine.
pub(super) const BLOCKS: u32 = 1000;

/// The passes of [`run`].
pub(super) fn passes() -> [PassRecord; 4] {
    // Start, end, prefill, decode, blocks, waiting.
    [
        (0, 100, 1000, 0, 63, 0),
        (100, 300, 2000, 1, 251, 1),
        (300, 350, 0, 2, 251, 1),
        (350, 400, 0, 1, 188, 1),
    ]
    .map(|(start, end, prefill, decode, used_blocks, waiting)| PassRecord {
        engine: EngineId(0),
        passes: 1,
        start: at(start),
        last_start: at(start),
        end: at(end),
        prefill_requests: u32::from(prefill > 0),
        prefill_tokens: prefill,
        decode_requests: decode,
        decode_tokens: decode,
        used_blocks,
        used_blocks_max: used_blocks,
        used_block_ns: 0,
        running: u32::from(prefill > 0) + decode,
        waiting,
    })
}

/// The requests of [`run`] that finish.
pub(super) fn requests() -> [RequestRecord; 2] {
    let first = record();
    let second = RequestRecord {
        id: RequestId(1),
        line: 2,
        arrival: at(50),
        first_scheduled: at(100),
        first_token: at(300),
        last_token: at(400),
        prompt_tokens: 3000,
        cached_tokens: 1000,
        ttft: TtftParts { queueing: lasting(50), prefill: lasting(200), ..TtftParts::default() },
        finish: Finish::Length,
        ..first.clone()
    };
    [first, second]
}

/// Those of vLLM.
pub(super) const FIELDS: EngineFields = EngineFields {
    sequence: "engine.vllm.max_model_len",
    queue: None,
    pool: "engine.vllm.num_gpu_blocks",
    keeper: "engine.vllm.num_gpu_blocks",
    prefix_caching: "engine.vllm.enable_prefix_caching",
    speculation: "engine.vllm.speculative_config",
};

pub(super) fn report() -> Report {
    let subject = Subject {
        title: Title {
            scenario: "two prompts".to_owned(),
            engine: "vLLM 0.33.0, 1 engine".to_owned(),
            workload: "traces/two.jsonl".to_owned(),
        },
        scenario: json!({"name": "two prompts", "seed": 1}),
        workload: json!({"trace": "traces/two.jsonl"}),
        engine: FIELDS,
    };
    let timing = Timing {
        provider: "fixed".to_owned(),
        mixed_rule: "sum of the two parts".to_owned(),
        mixed_passes: json!({"one_forward": 0, "two_passes": 1}),
        evidence: json!({"shares": {"analytic": 0.996, "exact": 0.004}, "mixed": {"prefill": {"analytic": {"count": 1, "ms": 200.0}}}}),
    };
    let host = Host { wall_ms: 0.25, passes: 4, ..Host::default() };
    let run = run();
    let warnings = Warning::of_unfinished(&run, FIELDS.keeper).into_iter().collect();
    let report = Report::new(subject, run, timing, warnings, 0xfeed, host);
    Report { servesim_version: "1.2.3".to_owned(), ..report }
}
