//! A recorded case: the engine's configuration, the price of its passes, and the requests.

use serde::Deserialize;

use crate::base::ids::RequestId;
use crate::base::time::SimTime;
use crate::conform::timing::LinearTiming;
use crate::engine::vllm::config::{SchedulingPolicy, VllmConfig};
use crate::engine::vllm::speculative::SpeculativeConfig;
use crate::workload::request::{Content, Piece, RecordedDrafts, RequestSpec, Segment};

/// One case, as its file says it (format 1).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    format: u32,
    pub(crate) name: String,
    config: CaseConfig,
    #[serde(default)]
    pub(crate) timing: CaseTiming,
    requests: Vec<CaseRequest>,
    /// Stop once this many calls were made; for cases that never end.
    pub(crate) max_steps: Option<u64>,
    /// A real engine would have refused this case before its scheduler saw it. No case goes through
    /// a front end here.
    #[serde(default, rename = "bypass_frontend")]
    _bypass_frontend: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CaseConfig {
    block_size: u32,
    num_gpu_blocks: u32,
    max_num_seqs: u32,
    max_num_active_seqs: Option<u32>,
    max_num_batched_tokens: u32,
    max_num_scheduled_tokens: Option<u32>,
    max_model_len: u32,
    enable_chunked_prefill: bool,
    long_prefill_token_threshold: u32,
    long_prefill_token_threshold_adaptive: bool,
    scheduler_reserve_full_isl: bool,
    prefill_schedule_interval: u32,
    watermark: f64,
    enable_prefix_caching: bool,
    policy: CasePolicy,
    async_scheduling: bool,
    spec: Option<SpeculativeConfig>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CasePolicy {
    Fcfs,
    Priority,
}

impl Default for CaseConfig {
    fn default() -> Self {
        Self {
            block_size: 16,
            num_gpu_blocks: 1024,
            max_num_seqs: 128,
            max_num_active_seqs: None,
            max_num_batched_tokens: 2048,
            max_num_scheduled_tokens: None,
            max_model_len: 4096,
            enable_chunked_prefill: true,
            long_prefill_token_threshold: 0,
            long_prefill_token_threshold_adaptive: false,
            scheduler_reserve_full_isl: true,
            prefill_schedule_interval: 1,
            watermark: 0.0,
            enable_prefix_caching: true,
            policy: CasePolicy::Fcfs,
            async_scheduling: false,
            spec: None,
        }
    }
}

/// `a_us + b_us * prefill tokens + c_us * decoding requests`, in microseconds, for any pass.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CaseTiming {
    #[serde(rename = "a_us")]
    pass_us: u32,
    #[serde(rename = "b_us")]
    token_us: u32,
    #[serde(rename = "c_us")]
    decode_us: u32,
}

impl Default for CaseTiming {
    fn default() -> Self {
        Self { pass_us: 1000, token_us: 0, decode_us: 0 }
    }
}

impl CaseTiming {
    pub(super) const fn linear(self) -> LinearTiming {
        let Self { pass_us, token_us, decode_us } = self;
        LinearTiming { pass_us, token_us, decode_us }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseRequest {
    id: String,
    arrival_step: Option<u64>,
    arrival_us: Option<u64>,
    /// `[segment, length]` pieces.
    prompt: Option<Vec<(u64, u32)>>,
    hash_ids: Option<Vec<u64>>,
    input_length: Option<u32>,
    hash_block: Option<u32>,
    output_len: u32,
    max_tokens: Option<u32>,
    #[serde(default)]
    priority: i32,
    /// Drafts accepted, verifying pass by verifying pass, over and over; absent: none.
    accept: Option<Vec<u32>>,
    /// Drafts found, sampling pass by sampling pass, over and over; absent: all there may be.
    drafts: Option<Vec<u32>>,
    out_seg: Option<u64>,
}

/// The requests of a case in the order in which they are handed over. Their ids are their indices
/// in the case.
#[derive(Clone, Debug)]
pub(crate) enum Entrants {
    /// Their arrivals are numbers of calls.
    ByCall(Vec<RequestSpec>),
    /// Their arrivals are instants.
    ByTime(Vec<RequestSpec>),
}

impl Case {
    /// Reads a case from JSON.
    ///
    /// # Errors
    /// In words, what is not as the format says.
    pub(crate) fn from_json(json: &[u8]) -> Result<Self, String> {
        let case: Self = serde_json::from_slice(json).map_err(|e| e.to_string())?;
        if case.format != 1 {
            return Err(format!("format is {}, expected 1", case.format));
        }
        Ok(case)
    }

    /// How many requests there are.
    pub(crate) fn requests(&self) -> usize {
        self.requests.len()
    }

    /// The engine's configuration in our own terms.
    pub(crate) fn engine_config(&self) -> VllmConfig {
        let c = &self.config;
        VllmConfig {
            block_size: c.block_size,
            num_gpu_blocks: Some(c.num_gpu_blocks),
            max_model_len: Some(c.max_model_len),
            max_num_batched_tokens: Some(c.max_num_batched_tokens),
            max_num_scheduled_tokens: c.max_num_scheduled_tokens,
            max_num_seqs: Some(c.max_num_seqs),
            max_num_active_seqs: c.max_num_active_seqs,
            enable_chunked_prefill: c.enable_chunked_prefill,
            long_prefill_token_threshold: c.long_prefill_token_threshold,
            long_prefill_token_threshold_adaptive: c.long_prefill_token_threshold_adaptive,
            scheduler_reserve_full_isl: c.scheduler_reserve_full_isl,
            prefill_schedule_interval: c.prefill_schedule_interval,
            watermark: c.watermark,
            enable_prefix_caching: c.enable_prefix_caching,
            scheduling_policy: match c.policy {
                CasePolicy::Fcfs => SchedulingPolicy::Fcfs,
                CasePolicy::Priority => SchedulingPolicy::Priority,
            },
            async_scheduling: c.async_scheduling,
            speculative_config: c.spec,
            ..VllmConfig::default()
        }
    }

    /// The requests in the order in which they are handed over.
    ///
    /// # Errors
    /// In words, which request is not as the format says.
    pub(crate) fn entrants(&self) -> Result<Entrants, String> {
        // Ties of the priority policy go by id, compared as text; our ids are the indices.
        if let Some(index) = self.requests.windows(2).position(|pair| pair[0].id >= pair[1].id) {
            return Err(format!("the ids of requests {index} and {} are not in order", index + 1));
        }
        let by_time = self.requests.first().is_some_and(|r| r.arrival_us.is_some());
        let mut entrants = Vec::with_capacity(self.requests.len());
        for (index, request) in self.requests.iter().enumerate() {
            let arrival = match (by_time, request.arrival_us, request.arrival_step) {
                (true, Some(us), None) => us.checked_mul(1000),
                (false, None, Some(step)) => Some(step),
                _ => return Err(format!("request {index} mixes kinds of arrival")),
            };
            let arrival = arrival.ok_or_else(|| format!("request {index} arrives too late"))?;
            let (pieces, prompt_tokens) = request.pieces(index)?;
            entrants.push(RequestSpec {
                id: RequestId(index as u32),
                arrival: SimTime::from_ns(arrival),
                prompt_tokens,
                output_tokens: request.output_len,
                max_tokens: request.max_tokens.unwrap_or(request.output_len),
                priority: request.priority,
                class: 0,
                content: Content::Pieces(pieces),
                output: Segment::Named(request.out_seg.unwrap_or((1 << 30) + index as u64)),
                line: 0,
                turn: None,
                drafts: Some(Box::new(RecordedDrafts {
                    accepted: request.accept.clone().unwrap_or_default(),
                    found: request.drafts.clone().unwrap_or_default(),
                })),
            });
        }
        entrants.sort_by_key(|entrant| entrant.arrival);
        Ok(if by_time { Entrants::ByTime(entrants) } else { Entrants::ByCall(entrants) })
    }
}

impl CaseRequest {
    /// The prompt's pieces and their total.
    fn pieces(&self, index: usize) -> Result<(Vec<Piece>, u32), String> {
        let piece = |name, tokens| Piece { segment: Segment::Named(name), tokens };
        let mut pieces = Vec::new();
        match (self, &self.prompt, &self.hash_ids) {
            (_, Some(prompt), None) => {
                pieces.extend(prompt.iter().map(|&(segment, tokens)| piece(segment, tokens)));
            }
            (&Self { input_length: Some(input), hash_block: Some(block), .. }, None, Some(ids)) => {
                let mut left = input;
                for &id in ids {
                    let tokens = left.min(block);
                    pieces.push(piece(id, tokens));
                    left -= tokens;
                }
                if left > 0 {
                    return Err(format!("request {index} is longer than its hash ids"));
                }
            }
            _ => return Err(format!("request {index} has no prompt of a known form")),
        }
        pieces.retain(|piece| piece.tokens > 0);
        let total: u64 = pieces.iter().map(|piece| u64::from(piece.tokens)).sum();
        let total = u32::try_from(total).map_err(|_| format!("request {index} is too long"))?;
        Ok((pieces, total))
    }
}
