//! A recorded case: the engine's configuration, the price of its forwards, and the requests.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::base::ids::RequestId;
use crate::base::time::SimTime;
use crate::conform::timing::LinearTiming;
use crate::engine::arena::Arrival;
use crate::engine::sglang::config::{
    EvictionPolicy, Limits, RetractionPolicy, SchedulePolicy, SglangConfig,
};
use crate::workload::request::{Content, Piece, RequestSpec, Segment};

/// The first line of a block.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InputLine {
    input: Case,
}

/// One case.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) name: String,
    config: CaseConfig,
    requests: Vec<CaseRequest>,
}

/// Settings under the names of the server's, with defaults of their own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseConfig {
    max_total_tokens: u32,
    #[serde(default = "defaults::context_len")]
    context_len: u32,
    #[serde(default = "defaults::max_running_requests")]
    max_running_requests: u32,
    #[serde(default = "defaults::max_prefill_tokens")]
    max_prefill_tokens: u32,
    #[serde(default = "defaults::chunked_prefill_size")]
    chunked_prefill_size: i32,
    #[serde(default = "defaults::page_size")]
    page_size: u32,
    #[serde(default = "defaults::schedule_policy")]
    schedule_policy: SchedulePolicy,
    #[serde(default = "defaults::schedule_conservativeness")]
    schedule_conservativeness: f64,
    #[serde(default)]
    enable_mixed_chunk: bool,
    #[serde(default)]
    disable_radix_cache: bool,
    #[serde(default)]
    overlap: bool,
    #[serde(default)]
    enable_priority_scheduling: bool,
    #[serde(default)]
    schedule_low_priority_values_first: bool,
    #[serde(default)]
    disable_priority_preemption: bool,
    #[serde(default = "defaults::priority_scheduling_preemption_threshold")]
    priority_scheduling_preemption_threshold: i32,
    #[serde(default = "defaults::retraction_policy")]
    retraction_policy: RetractionPolicy,
    #[serde(default = "defaults::radix_eviction_policy")]
    radix_eviction_policy: EvictionPolicy,
    #[serde(default)]
    prefill_max_requests: Option<u32>,
    #[serde(default)]
    max_queued_requests: Option<u32>,
    #[serde(default)]
    timing_us: CaseTiming,
}

/// What a setting is that a case does not give.
mod defaults {
    use super::{EvictionPolicy, RetractionPolicy, SchedulePolicy};

    pub(super) const fn context_len() -> u32 {
        262_144
    }
    pub(super) const fn max_running_requests() -> u32 {
        256
    }
    pub(super) const fn max_prefill_tokens() -> u32 {
        16_384
    }
    pub(super) const fn chunked_prefill_size() -> i32 {
        2048
    }
    pub(super) const fn page_size() -> u32 {
        1
    }
    pub(super) const fn schedule_policy() -> SchedulePolicy {
        SchedulePolicy::Fcfs
    }
    pub(super) const fn schedule_conservativeness() -> f64 {
        1.0
    }
    pub(super) const fn priority_scheduling_preemption_threshold() -> i32 {
        10
    }
    pub(super) const fn retraction_policy() -> RetractionPolicy {
        RetractionPolicy::Length
    }
    pub(super) const fn radix_eviction_policy() -> EvictionPolicy {
        EvictionPolicy::Lru
    }
}

/// `base + per_extend_token * prefill tokens + per_decode_seq * decoding requests`, in microseconds,
/// for any forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CaseTiming {
    base: u32,
    per_extend_token: u32,
    per_decode_seq: u32,
}

impl Default for CaseTiming {
    fn default() -> Self {
        Self { base: 5000, per_extend_token: 20, per_decode_seq: 50 }
    }
}

impl CaseTiming {
    pub(super) const fn linear(self) -> LinearTiming {
        LinearTiming {
            pass_us: self.base,
            token_us: self.per_extend_token,
            decode_us: self.per_decode_seq,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseRequest {
    id: String,
    arrival_us: u64,
    /// `[stream, start, length]` pieces.
    prompt: Vec<(u64, u32, u32)>,
    out_stream: u64,
    max_new_tokens: u32,
    /// The output, from 1, that is the end token.
    eos_at: Option<u32>,
    ignore_eos: bool,
    #[serde(default)]
    priority: i32,
}

impl Case {
    /// Reads a case from its line.
    ///
    /// # Errors
    /// In words, what is not as the format says.
    pub(super) fn from_json(line: &[u8]) -> Result<Self, String> {
        let line: InputLine = serde_json::from_slice(line).map_err(|e| e.to_string())?;
        Ok(line.input)
    }

    /// What a request is called in the lines.
    pub(super) fn name_of(&self, request: RequestId) -> String {
        self.requests[request.index()].id.clone()
    }

    /// How many requests there are.
    pub(super) fn requests(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn timing(&self) -> LinearTiming {
        self.config.timing_us.linear()
    }

    /// The engine's configuration in our own terms.
    pub(super) fn engine_config(&self) -> SglangConfig {
        let c = &self.config;
        SglangConfig {
            context_length: Some(c.context_len),
            max_total_tokens: Some(c.max_total_tokens),
            max_running_requests: Some(c.max_running_requests),
            max_queued_requests: c.max_queued_requests,
            max_prefill_tokens: c.max_prefill_tokens,
            prefill_max_requests: c.prefill_max_requests,
            chunked_prefill_size: Some(c.chunked_prefill_size),
            page_size: c.page_size,
            schedule_policy: c.schedule_policy,
            schedule_conservativeness: c.schedule_conservativeness,
            enable_mixed_chunk: c.enable_mixed_chunk,
            disable_radix_cache: c.disable_radix_cache,
            radix_eviction_policy: c.radix_eviction_policy,
            disable_overlap_schedule: !c.overlap,
            enable_priority_scheduling: c.enable_priority_scheduling,
            schedule_low_priority_values_first: c.schedule_low_priority_values_first,
            priority_scheduling_preemption_threshold: c.priority_scheduling_preemption_threshold,
            disable_priority_preemption: c.disable_priority_preemption,
            retraction_policy: c.retraction_policy,
            ..SglangConfig::default()
        }
    }

    /// The requests in the order in which they arrive. Their ids are their indices in the case.
    ///
    /// # Errors
    /// In words, which request is not as the format says.
    pub(super) fn arrivals(&self) -> Result<Vec<Arrival>, String> {
        let mut names = BTreeSet::new();
        let mut arrivals = Vec::with_capacity(self.requests.len());
        for (index, request) in self.requests.iter().enumerate() {
            let arrival =
                request.arrival(index).map_err(|what| format!("request {}: {what}", request.id))?;
            if !names.insert(&request.id) {
                return Err(format!("two requests have the id {}", request.id));
            }
            arrivals.push(arrival);
        }
        arrivals.sort_by_key(|arrival| arrival.queued);
        Ok(arrivals)
    }

    /// The output limits of the requests once an engine with `limits` has clipped them.
    pub(super) fn output_limits(&self, limits: &Limits) -> impl Iterator<Item = u32> {
        self.requests.iter().map(|request| {
            let lengths = request.prompt.iter().map(|&(.., tokens)| tokens);
            let prompt_tokens = lengths.fold(0, u32::saturating_add);
            limits.clipped_output(prompt_tokens, request.max_new_tokens)
        })
    }
}

impl CaseRequest {
    fn arrival(&self, index: usize) -> Result<Arrival, String> {
        let arrival = self.arrival_us.checked_mul(1000).ok_or("`arrival_us` is too late")?;
        let arrival = SimTime::from_ns(arrival);
        let (pieces, prompt_tokens) = self.pieces()?;
        // A request that goes on to its limit never comes to its end token.
        let never = || self.max_new_tokens.checked_add(1).ok_or("`max_new_tokens` is too large");
        let output_tokens = match (self.eos_at, self.ignore_eos) {
            (Some(0), _) => return Err("`eos_at` is 0, expected null or a count from 1".to_owned()),
            (Some(_), true) => return Err("`eos_at` is given with `ignore_eos`".to_owned()),
            (Some(output), false) => output,
            (None, false) => never()?,
            (None, true) => self.max_new_tokens,
        };
        let spec = RequestSpec {
            id: RequestId(index as u32),
            arrival,
            prompt_tokens,
            output_tokens,
            max_tokens: self.max_new_tokens,
            priority: self.priority,
            class: 0,
            content: Content::Pieces(pieces),
            output: Segment::Named(self.out_stream),
            line: 0,
            turn: None,
            drafts: None,
        };
        let (max_tokens, ignore_eos) = (self.max_new_tokens, self.ignore_eos);
        Ok(Arrival { spec, max_tokens, ignore_eos, queued: arrival, counted: true })
    }

    /// The prompt's pieces and their total.
    fn pieces(&self) -> Result<(Vec<Piece>, u32), String> {
        let mut pieces = Vec::with_capacity(self.prompt.len());
        let mut total = 0_u32;
        for &(stream, start, tokens) in &self.prompt {
            if start != 0 {
                return Err(format!("a piece of its prompt starts at {start}, expected 0"));
            }
            total = total.checked_add(tokens).ok_or("its prompt is too long")?;
            if tokens > 0 {
                pieces.push(Piece { segment: Segment::Named(stream), tokens });
            }
        }
        if total == 0 {
            return Err("its prompt is empty".to_owned());
        }
        Ok((pieces, total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::SimDuration;
    use crate::timing::pricer::{HostTime, PassPricer};
    use crate::timing::work::{DecodeWork, PrefillWork};
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn request(id: &str, arrival_us: u64) -> Value {
        json!({
            "id": id, "arrival_us": arrival_us, "prompt": [[7, 0, 40], [8, 0, 2]], "out_stream": 9,
            "max_new_tokens": 20, "eos_at": 5, "ignore_eos": false,
        })
    }

    fn case(config: &Value, requests: &[Value]) -> Result<Case, String> {
        let input = json!({"name": "x", "config": config, "requests": requests});
        Case::from_json(json!({ "input": input }).to_string().as_bytes())
    }

    fn pool(tokens: u32) -> Value {
        json!({ "max_total_tokens": tokens })
    }

    fn arrivals(requests: &[Value]) -> Result<Vec<Arrival>, String> {
        case(&pool(4096), requests)?.arrivals()
    }

    #[test]
    fn what_a_case_does_not_say_has_the_defaults_of_the_format() {
        let config = case(&pool(4096), &[]).unwrap().engine_config();
        let expected = SglangConfig {
            context_length: Some(262_144),
            max_total_tokens: Some(4096),
            max_running_requests: Some(256),
            chunked_prefill_size: Some(2048),
            disable_overlap_schedule: true,
            ..SglangConfig::default()
        };
        assert_eq!(config, expected);
        let config = json!({
            "max_total_tokens": 4096, "overlap": true, "chunked_prefill_size": -1,
            "schedule_policy": "dfs-weight", "radix_eviction_policy": "slru",
            "max_queued_requests": null,
        });
        let config = case(&config, &[]).unwrap().engine_config();
        let expected = SglangConfig {
            chunked_prefill_size: Some(-1),
            disable_overlap_schedule: false,
            schedule_policy: SchedulePolicy::DfsWeight,
            radix_eviction_policy: EvictionPolicy::Slru,
            ..expected
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn requests_arrive_by_time_and_keep_their_numbers() {
        let arrivals = arrivals(&[request("a", 9), request("b", 2), request("c", 2)]).unwrap();
        let ids: Vec<_> = arrivals.iter().map(|a| (a.spec.id.0, a.queued.as_ns())).collect();
        assert_eq!(ids, [(1, 2000), (2, 2000), (0, 9000)]);
        let spec = &arrivals[0].spec;
        let piece = |name, tokens| Piece { segment: Segment::Named(name), tokens };
        assert_eq!(spec.content, Content::Pieces(vec![piece(7, 40), piece(8, 2)]));
        assert_eq!((spec.prompt_tokens, spec.output), (42, Segment::Named(9)));
    }

    #[test]
    fn a_stop_is_a_stop_at_the_limit_too() {
        let lengths = |eos_at: Value, ignore_eos: bool| {
            let mut request = request("a", 0);
            request["eos_at"] = eos_at;
            request["ignore_eos"] = json!(ignore_eos);
            let arrivals = arrivals(&[request])?;
            let Arrival { spec, max_tokens, ignore_eos, .. } = &arrivals[0];
            Ok::<_, String>((spec.output_tokens, *max_tokens, *ignore_eos))
        };
        assert_eq!(lengths(json!(5), false), Ok((5, 20, false)));
        assert_eq!(lengths(json!(20), false), Ok((20, 20, false)));
        // Without an end token, none comes within the limit.
        assert_eq!(lengths(Value::Null, false), Ok((21, 20, false)));
        assert_eq!(lengths(Value::Null, true), Ok((20, 20, true)));
        assert!(lengths(json!(5), true).unwrap_err().contains("`eos_at` is given"));
        assert!(lengths(json!(0), false).unwrap_err().contains("`eos_at` is 0"));
    }

    #[test]
    fn requests_that_cannot_be_are_refused_by_name() {
        let refused = |field: &str, value: Value, expected: &str| {
            let mut request = request("r7", 0);
            request[field] = value;
            let error = arrivals(&[request]).unwrap_err();
            assert!(error.contains("r7") && error.contains(expected), "{error}");
        };
        refused("prompt", json!([[1, 0, 4], [2, 16, 4]]), "starts at 16, expected 0");
        refused("prompt", json!([[1, 0, u32::MAX], [2, 0, 1]]), "too long");
        refused("prompt", json!([[1, 0, 0]]), "empty");
        refused("arrival_us", json!(u64::MAX / 1000 + 1), "too late");
        let twice = arrivals(&[request("r7", 0), request("r7", 1)]).unwrap_err();
        assert!(twice.contains("r7"), "{twice}");
        let unknown = case(&json!({"max_total_tokens": 64, "lora": 1}), &[]).unwrap_err();
        assert!(unknown.contains("unknown field `lora`"), "{unknown}");
    }

    #[test]
    fn output_limits_are_clipped_by_the_sequence_and_by_the_pool() {
        let config = json!({"max_total_tokens": 100, "context_len": 50, "page_size": 16,
            "chunked_prefill_size": -1});
        let of = |prompt: u32, asked: u32| {
            let mut request = request("a", 0);
            request["prompt"] = json!([[1, 0, prompt]]);
            request["max_new_tokens"] = json!(asked);
            let case = case(&config, &[request]).unwrap();
            let limits = Limits::of(&case.engine_config().resolve().unwrap());
            case.output_limits(&limits).collect::<Vec<_>>()[0]
        };
        // The pool has 96 tokens, a sequence 49. After 10: min(49 - 11, 96 - 16 - 16 - 1) = 38.
        assert_eq!((of(10, 37), of(10, 38), of(10, 39)), (37, 38, 38));
        // After 48: none, and not less than none after 60.
        assert_eq!((of(48, 5), of(60, 5)), (0, 0));
        // In a long context, after 64: 96 - 64 - 16 - 1 = 15; after 65, in 80: none.
        let config = json!({"max_total_tokens": 100, "page_size": 16, "chunked_prefill_size": -1});
        let case = case(&config, &[]).unwrap();
        let limits = Limits::of(&case.engine_config().resolve().unwrap());
        assert_eq!((limits.clipped_output(64, 99), limits.clipped_output(65, 99)), (15, 0));
    }

    #[test]
    fn a_mixed_forward_is_one_forward() {
        let timing: CaseTiming = serde_json::from_str("{\"base\": 1000}").unwrap();
        let mut pricer = PassPricer::new(Arc::new(timing.linear()), HostTime::Added(0.0));
        let (mut prefill, mut decode) = (PrefillWork::default(), DecodeWork::default());
        prefill.add(30, 0);
        decode.add(1, 7);
        decode.add(1, 8);
        let (no_prefill, no_decode) = (PrefillWork::default(), DecodeWork::default());
        let mut us = |prefill, decode| pricer.price(prefill, decode).map(SimDuration::as_ns);
        // 30 * 20 and 2 * 50 on top of 1000.
        assert_eq!(us(&prefill, &no_decode).unwrap(), 1_600_000);
        assert_eq!(us(&no_prefill, &decode).unwrap(), 1_100_000);
        assert_eq!(us(&prefill, &decode).unwrap(), 1_700_000);
    }
}
