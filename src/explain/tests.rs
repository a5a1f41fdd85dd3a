use std::fmt::Write;

use super::*;
use crate::metrics::blame::{Part, Spent};

/// A scenario that replays rows of (arrival in ms, prompt, output) on an engine with synchronous scheduling.
fn scenario(rows: &[(u64, u32, u32)], sets: &[&str]) -> (tempfile::TempDir, Scenario) {
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for (at, prompt, output) in rows {
        writeln!(
            text,
            "{{\"timestamp\": {at}, \"input_length\": {prompt}, \"output_length\": {output}}}"
        )
        .unwrap();
    }
    std::fs::write(folder.path().join("t.jsonl"), text).unwrap();
    let sets = std::iter::once(&"workload.trace.ties=file").chain(sets);
    let sets: Vec<_> = sets.map(|text| Assignment::parse(text).unwrap()).collect();
    let scenario = Scenario::replay(&folder.path().join("t.jsonl")).with(&sets).unwrap();
    (folder, scenario.resolve(Path::new("")).unwrap())
}

/// Prefill takes 10 ms, a decode 4, and both together 14.
const TIMING: &str = "timing={fixed: {prefill_ms: 10, decode_ms: 4, mixed_ms: 14}}";

fn vllm(limits: &str) -> String {
    format!(
        "engine={{vllm: {{async_scheduling: false, max_model_len: 400, enable_prefix_caching: false, {limits}}}}}"
    )
}

fn watched(scenario: &Scenario) -> Blame {
    let mut watching = Watching(Blame::watching(None));
    observe(scenario, &mut watching, &mut ()).unwrap();
    watching.0.accounts.sort_by_key(|account| account.record.id);
    watching.0
}

/// What is spent, in ms, of the parts that are not nothing.
fn parts(spent: &Spent) -> Vec<(Part, f64)> {
    let parts = Part::ALL.iter().map(|&part| (part, spent.on(part).as_ms()));
    parts.filter(|&(_, ms)| ms > 0.0).collect()
}

/// What helps the last of the requests most, by the field that is set.
fn best(scenario: &Scenario, request: u32) -> String {
    let subject = Subject::Request(RequestId(request));
    let explanation = explain(scenario, (Metric::Ttft, subject), None, true, &mut ()).unwrap();
    let what_if = explanation.what_if.unwrap();
    // One more engine helps anybody who waits.
    let engine = |lifted: &&Lifted| !lifted.set[0].starts_with("cluster");
    let best = what_if.lifted.iter().find(engine).unwrap();
    assert!(best.change_ratio.unwrap() < -0.1, "{what_if:?}");
    best.set[0].clone()
}

#[test]
fn who_finds_no_seat_waits_for_one() {
    // Two requests, one seat: the first has 10 ms of prefill and two decodes of 4 ms.
    let engine = vllm("max_num_seqs: 1, max_num_batched_tokens: 512, num_gpu_blocks: 200");
    let (_folder, scenario) = scenario(&[(0, 64, 3), (0, 64, 3)], &[&engine, TIMING]);
    let blame = watched(&scenario);
    let second = &blame.accounts[1];
    assert_eq!(parts(&second.before), [(Part::Seats, 18.0), (Part::PrefillAlone, 10.0)]);
    assert_eq!(parts(&second.after), [(Part::Decode, 8.0)]);
    let ahead = blame.ahead_of(second);
    assert_eq!((ahead.requests, ahead.prompt_tokens, ahead.output_tokens), (1, 64, 3));
    assert_eq!(ahead.top[0].4.as_ns(), 18_000_000);
    assert_eq!(best(&scenario, 1), "engine.vllm.max_num_seqs=2");
}

#[test]
fn who_finds_no_blocks_waits_for_them() {
    // 26 blocks of 16 tokens are to be had, of which a prompt of 300 tokens takes 19.
    let engine = vllm("max_num_seqs: 8, max_num_batched_tokens: 800, num_gpu_blocks: 27");
    let (_folder, scenario) = scenario(&[(0, 300, 3), (0, 300, 3)], &[&engine, TIMING]);
    let blame = watched(&scenario);
    let expected = [(Part::KvBlocks, 18.0), (Part::PrefillAlone, 10.0)];
    assert_eq!(parts(&blame.accounts[1].before), expected);
    assert_eq!(best(&scenario, 1), "engine.vllm.num_gpu_blocks=53");
}

#[test]
fn who_finds_no_tokens_waits_for_them() {
    // A prompt of 300 tokens fills three passes of 100, and the second waits for those, 3 times 10 ms. Then the decodes
    // of the first share the passes of the second.
    let engine = vllm("max_num_seqs: 8, max_num_batched_tokens: 100, num_gpu_blocks: 200");
    let (_folder, scenario) = scenario(&[(0, 300, 3), (0, 300, 1)], &[&engine, TIMING]);
    let blame = watched(&scenario);
    let [first, second] = &blame.accounts[..] else { panic!("there are two") };
    assert_eq!(parts(&first.before), [(Part::PrefillAlone, 30.0)]);
    // Of 14 ms with a decode and prefill, the decode alone takes 4.
    assert_eq!(parts(&first.after), [(Part::Decode, 8.0), (Part::Slowed, 20.0)]);
    // 99 + 99 beside decodes, then 100, then the last 2.
    let expected = [(Part::Budget, 30.0), (Part::PrefillAlone, 20.0), (Part::PrefillShared, 28.0)];
    assert_eq!(parts(&second.before), expected);
    assert_eq!(second.chunks, 4);
    assert_eq!(best(&scenario, 1), "engine.vllm.max_num_batched_tokens=200");
}

#[test]
fn who_comes_within_a_pass_waits_for_its_end() {
    let engine = vllm("max_num_seqs: 8, max_num_batched_tokens: 512, num_gpu_blocks: 200");
    let host = ["host.frontend_ms=1", "host.detokenize_ms=2"];
    let (_folder, scenario) =
        scenario(&[(0, 64, 2), (5, 64, 1)], &[&engine, TIMING, host[0], host[1]]);
    let blame = watched(&scenario);
    // In the queue at 6 ms; the pass of the first ends at 11. Then 14 ms beside its decode.
    let expected = [
        (Part::Frontend, 1.0),
        (Part::RunningPass, 5.0),
        (Part::PrefillShared, 14.0),
        (Part::Detokenize, 2.0),
    ];
    assert_eq!(parts(&blame.accounts[1].before), expected);
}

/// Thirty requests in bursts.
fn bursts() -> Vec<(u64, u32, u32)> {
    let row = |i: u32| (u64::from(i / 6 * 40 + i % 6), 20 + i * 37 % 150, 1 + i * 29 % 90);
    (0..30).map(row).collect()
}

#[test]
fn parts_add_up_to_every_latency_of_every_request() {
    let families = [
        "engine={vllm: {num_gpu_blocks: 40, max_model_len: 300, max_num_batched_tokens: 128, max_num_seqs: 8}}",
        "engine={vllm: {num_gpu_blocks: 25, max_model_len: 300, max_num_batched_tokens: 64, max_num_seqs: 8, async_scheduling: false}}",
        "engine={sglang: {max_total_tokens: 400, context_length: 300, chunked_prefill_size: 64, schedule_conservativeness: 0.3}}",
        "engine={trtllm: {max_num_tokens: 128, enable_chunked_prefill: true, max_batch_size: 8, max_seq_len: 300, \
         kv_cache_config: {max_tokens: 640}, scheduler_config: {capacity_scheduler_policy: MAX_UTILIZATION}}}",
    ];
    let mut preempted = 0;
    for family in families {
        let host = ["host.frontend_ms=0.3", "host.detokenize_ms=0.7", "cluster.engines=2"];
        let (_folder, scenario) = scenario(&bursts(), &[family, TIMING, host[0], host[1], host[2]]);
        let blame = watched(&scenario);
        assert_eq!(blame.accounts.len(), 30, "{family}");
        for account in &blame.accounts {
            let record = &account.record;
            let total = |metric| account.spent(metric).total();
            assert_eq!(total(Metric::Ttft), record.ttft(), "{family} {account:?}");
            assert_eq!(total(Metric::E2e), record.e2e(), "{family} {account:?}");
            assert_eq!(total(Metric::Queue), record.queue(), "{family} {account:?}");
            let decoding = record.last_token.since(record.first_token);
            assert_eq!(total(Metric::Tpot), decoding, "{family} {account:?}");
            assert_eq!(account.before.on(Part::Other).as_ns(), 0, "{family} {account:?}");
            preempted += u32::from(account.spent(Metric::E2e).on(Part::Preempted).as_ns() > 0);
        }
    }
    assert!(preempted > 10, "{preempted} were preempted");
}

#[test]
fn ranks_around_a_quantile_are_a_hundredth_of_all() {
    assert_eq!(around(5000, 0.5), (2475..2525, 2500));
    // At the end they lie to one side.
    assert_eq!(around(1000, 0.99), (984..994, 989));
    assert_eq!(around(100, 0.999), (90..100, 99));
    // No more than a quarter.
    assert_eq!(around(8, 0.99), (6..8, 7));
    assert_eq!(around(1, 0.5), (0..1, 0));
}

#[test]
fn quantiles_lie_between_ranks() {
    let values = [1.0, 2.0, 4.0];
    assert_eq!(quantile_of(&values, 0.75), Some(3.0));
    assert_eq!(quantile_of(&values, 0.5), Some(2.0));
    assert_eq!(quantile_of(&[], 0.5), None);
    assert_eq!(Subject::Quantile(0.99).words(), "p99");
    assert_eq!(Subject::Quantile(0.999).words(), "p99.9");
}

#[test]
fn an_explanation_fits_a_terminal_and_is_json() {
    let engine = vllm("max_num_seqs: 2, max_num_batched_tokens: 128, num_gpu_blocks: 40");
    let (_folder, scenario) = scenario(&bursts(), &[&engine, TIMING]);
    for (metric, subject) in [
        (Metric::Ttft, Subject::Quantile(0.99)),
        (Metric::Tpot, Subject::Quantile(0.9)),
        (Metric::E2e, Subject::Request(RequestId(7))),
    ] {
        let explanation = explain(&scenario, (metric, subject), Some("x"), true, &mut ()).unwrap();
        assert_eq!(explanation.other_digest.as_deref(), Some("x"));
        let mean: f64 = explanation.groups[0].parts.iter().map(|part| part.ms).sum();
        let (mut text, mut json) = (Vec::new(), Vec::new());
        explanation.write_table(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.lines().count() <= 60, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        explanation.write_json(&mut json).unwrap();
        let json: Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(json["schema"], "servesim.explanation/1");
        assert_eq!(json["metric"], metric.name());
        let told = json["groups"][0]["mean_ms"].as_f64().unwrap();
        assert!((mean - told).abs() < 1e-6, "{mean} {told}");
    }
}

#[test]
fn what_cannot_be_explained_says_why() {
    let engine = vllm("max_num_seqs: 2, max_num_batched_tokens: 512, num_gpu_blocks: 40");
    let (_folder, scenario) = scenario(&[(0, 64, 1), (0, 500, 1)], &[&engine, TIMING]);
    let error = |metric, subject| {
        explain(&scenario, (metric, subject), None, false, &mut ()).unwrap_err().to_string()
    };
    let request = |id| Subject::Request(RequestId(id));
    assert_eq!(
        error(Metric::Ttft, request(2)),
        "--request 2: expected a request of the run, from 0 to 1"
    );
    assert_eq!(
        error(Metric::Ttft, request(1)),
        "request 1 has no latencies: it was rejected (prompt_too_long)"
    );
    assert_eq!(
        error(Metric::Tpot, request(0)),
        "request 0 has no latencies: a single token has no TPOT"
    );
    assert!(
        error(Metric::Tpot, Subject::Quantile(0.5)).starts_with("no request of the run has a TPOT")
    );
}
