//! The closed-form answer for a steady batch, and a run of the same batch beside it.
//!
//! The engine is set up for the batch ([`Scenario::under_steady_load`]) and its passes are counted ([`schedule`]); each kind
//! of pass is priced once, as a run would price it; and the figures are sums over the passes. The formulas are in
//! docs/estimate.md.

mod check;
mod rounds;
mod schedule;

use std::path::Path;

use crate::base::config::ConfigError;
use crate::base::time::SimDuration;
use crate::kernel::error::RunError;
use crate::model::memory::{KvMemory, MemoryOptions};
use crate::report::Title;
use crate::report::estimate::{
    Batch, Estimate, Figures, Memory, PassGroup, Point, PriceBasis, RefusedPoint,
};
use crate::scenario::{EngineFacts, Scenario, SteadyLoad};
use crate::simulate::{Progress, engines_of, pricers, provider_of, title};
use crate::timing::error::{ProfileError, TimingError};
use crate::timing::pricer::PassPricer;

pub(crate) use schedule::SteadyBatch;
use schedule::{Passes, Rounds, Schedule};

/// Tokens of a pass beyond which no limit of an engine may lie.
const PASS_TOKENS_MAX: u64 = 1 << 27;

/// Why there is no estimate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EstimateError {
    /// A flag that asks for what cannot be.
    #[error("{flag} {found}: expected {accepted}")]
    Flag {
        /// The flag.
        flag: &'static str,
        /// What was asked for.
        found: String,
        /// What may be.
        accepted: String,
    },
    /// Nothing of a prompt is left to compute.
    #[error("--prefix {prefix}: prefix ({prefix}) must be smaller than the effective isl ({isl})")]
    Prefix {
        /// Tokens found in the cache.
        prefix: u32,
        /// Tokens of the prompt.
        isl: u32,
    },
    /// The engine cannot be set up for the batch.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The timing provider cannot be made.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A pass cannot be priced.
    #[error(transparent)]
    Timing(#[from] TimingError),
    /// The batch cannot be run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The run did not serve the batch.
    #[error(
        "--check: {served} of {requests} requests were served, so that there is nothing to compare"
    )]
    Unserved {
        /// Requests that finished.
        served: u64,
        /// Requests that were to.
        requests: u64,
    },
}

impl EstimateError {
    fn flag(
        flag: &'static str,
        found: impl std::fmt::Display,
        accepted: impl Into<String>,
    ) -> Self {
        Self::Flag { flag, found: found.to_string(), accepted: accepted.into() }
    }
}

/// How many new tokens a pass may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Budgets {
    /// Those of one prompt.
    Prompt,
    /// Each of these.
    Given(Vec<u64>),
    /// Those of 1, 2, 4 ... prompts, and of the whole batch.
    Multiples,
}

impl Budgets {
    fn of(&self, batch: &SteadyBatch) -> Vec<u64> {
        let prompt = u64::from(batch.new_tokens());
        match self {
            Self::Prompt => vec![prompt.max(1)],
            Self::Given(tokens) => tokens.clone(),
            Self::Multiples => {
                let doubled = |&prompts: &u64| prompts.checked_mul(2);
                let batch = u64::from(batch.requests);
                let powers = std::iter::successors(Some(1), doubled);
                let prompts = powers.take_while(|&prompts| prompts < batch).chain([batch]);
                prompts.map(|prompts| prompts * prompt).collect()
            }
        }
    }
}

/// Estimates `batch` on a deployment that is not resolved yet, under each of the budgets, and runs it too if it `checks`.
/// Relative paths count from `directory`.
///
/// # Errors
/// There is no such batch, or no budget under which it can be had.
pub(crate) fn estimate(
    scenario: &Scenario,
    directory: &Path,
    (batch, budgets): (&SteadyBatch, &Budgets),
    checks: bool,
    progress: &mut dyn Progress,
) -> Result<Estimate, EstimateError> {
    batch.check()?;
    let mut points = Vec::new();
    let mut refused = Vec::new();
    let mut first_error = None;
    let mut named = None;
    for ctx_tokens in budgets.of(batch) {
        if ctx_tokens == 0 {
            return Err(EstimateError::flag("--ctx-tokens", 0, "an integer of at least 1"));
        }
        let found = Deployed::new(scenario, directory, batch, ctx_tokens).and_then(|deployed| {
            let point = deployed.point(progress, checks)?;
            Ok((deployed, point))
        });
        match found {
            Ok((deployed, point)) => {
                named.get_or_insert_with(|| deployed.title());
                points.push(point);
            }
            Err(error) => {
                refused.push(RefusedPoint { ctx_tokens, why: error.to_string() });
                first_error.get_or_insert(error);
            }
        }
    }
    match (named, first_error) {
        (Some(title), _) => {
            let batch = Batch {
                batch: batch.requests,
                isl: batch.isl,
                osl: batch.osl,
                prefix: batch.prefix,
                isl_new: batch.new_tokens(),
            };
            Ok(Estimate::new(title, batch, points, refused))
        }
        (None, Some(error)) => Err(error),
        (None, None) => {
            Err(EstimateError::flag("--ctx-tokens", "nothing", "at least one number of tokens"))
        }
    }
}

/// A deployment that is set up for a steady batch under one budget.
struct Deployed<'a> {
    batch: &'a SteadyBatch,
    ctx_tokens: u64,
    load: SteadyLoad,
    /// Resolved.
    scenario: Scenario,
    facts: EngineFacts,
}

impl<'a> Deployed<'a> {
    fn new(
        scenario: &Scenario,
        directory: &Path,
        batch: &'a SteadyBatch,
        ctx_tokens: u64,
    ) -> Result<Self, EstimateError> {
        let set_up = |round_tokens: u32| {
            let load = load(batch, ctx_tokens, round_tokens)?;
            let scenario = scenario.under_steady_load(&load).ok_or_else(|| {
                let accepted = "fewer requests: those of all engines over a run cannot be counted";
                EstimateError::flag("--batch", batch.requests, accepted)
            })?;
            let scenario = scenario.resolve(directory)?;
            let facts = scenario.engine.facts();
            Ok::<_, EstimateError>(Self { batch, ctx_tokens, load, scenario, facts })
        };
        let deployed = set_up(1)?;
        let deployed = match &deployed.facts.speculation {
            None => deployed,
            // A pass has to have room for the drafts, which only a resolved engine knows.
            Some(speculates) => set_up(speculates.verified_tokens)?,
        };
        deployed.check_length()?;
        Ok(deployed)
    }

    fn title(&self) -> Title {
        let batch = self.batch;
        let cached = match batch.prefix {
            0 => String::new(),
            prefix => format!(" ({prefix} cached)"),
        };
        let workload = format!(
            "batch of {}: {} prompt tokens{cached}, {} output tokens",
            batch.requests, batch.isl, batch.osl
        );
        title(&self.scenario, &self.facts, engines_of(&self.scenario) as usize, workload)
    }

    /// # Errors
    /// A sequence that the engine does not serve.
    fn check_length(&self) -> Result<(), EstimateError> {
        let (SteadyBatch { isl, osl, .. }, longest) = (self.batch, self.facts.sequence_tokens);
        let Some(left) = longest.checked_sub(*osl).filter(|&left| left > 0) else {
            let accepted = format!("less than {longest}, the longest sequence of the engine");
            return Err(EstimateError::flag("--osl", osl, accepted));
        };
        if *isl > left {
            let accepted = format!(
                "at most {left}: the longest sequence of the engine is {longest} tokens, and an output has {osl}"
            );
            return Err(EstimateError::flag("--isl", isl, accepted));
        }
        Ok(())
    }

    fn point(&self, progress: &mut dyn Progress, checks: bool) -> Result<Point, EstimateError> {
        let memory = self.memory()?;
        let rounds = self.rounds();
        let schedule = self.batch.schedule(self.ctx_tokens, &rounds);
        let mut pricer = pricers(&self.scenario, &self.facts)?();
        let groups = priced(&schedule, &mut pricer)?;
        let figures = self.figures(&schedule, &groups, &rounds);
        let check = checks.then(|| check::check(self, &figures, &schedule, progress));
        Ok(Point {
            ctx_tokens: self.ctx_tokens,
            ctx_budget: schedule.budget,
            pass_tokens: self.load.pass_tokens,
            mixed_passes: schedule.prompt_passes,
            ttft_chunks: schedule.chunks,
            rounds_per_request: rounds.per_request,
            schedule: groups,
            figures,
            memory,
            timing: PriceBasis {
                provider: provider_of(&self.scenario),
                evidence: pricer.evidence().to_json(),
            },
            check: check.transpose()?,
        })
    }

    /// The rounds that decode an output.
    fn rounds(&self) -> Rounds {
        let later = self.batch.osl - 1;
        let Some(speculates) = &self.facts.speculation else { return Rounds::plain(later) };
        let acceptance =
            self.scenario.speculation.acceptance(speculates.drafts, speculates.looks_up);
        Rounds::speculative(later, speculates, &acceptance.expect("checked when resolved"))
    }

    /// The figures of a generation whose passes cost what `groups` says.
    fn figures(&self, schedule: &Schedule, groups: &[PassGroup], rounds: &Rounds) -> Figures {
        let generation_ms: f64 =
            groups.iter().map(|group| group.passes as f64 * group.pass_ms).sum();
        // A prompt begins with a pass.
        let mut chunks = schedule.chunks;
        let mut prefill_ms = 0.0;
        for group in groups {
            let passes = group.passes.min(chunks);
            prefill_ms += passes as f64 * group.pass_ms;
            chunks -= passes;
        }
        // Each decode waits for the pass that it is in.
        let (mut decodes, mut waited_ms) = (0.0, 0.0);
        for group in groups {
            let of_group = group.passes as f64 * f64::from(group.decode_requests);
            decodes += of_group;
            waited_ms += of_group * group.pass_ms;
        }
        let decoding_ms =
            if decodes > 0.0 { waited_ms / decodes * rounds.per_request } else { 0.0 };
        let host = &self.scenario.host;
        let around = host.frontend() + host.detokenize();
        let engines = engines_of(&self.scenario);
        let accelerators = f64::from(self.scenario.parallel.devices()) * f64::from(engines);
        let per_s = |tokens: u32| {
            let all = f64::from(self.batch.requests) * f64::from(engines) * f64::from(tokens);
            (generation_ms > 0.0).then(|| all * 1e3 / generation_ms)
        };
        let later = self.batch.osl - 1;
        let tpot_ms = (later > 0).then(|| decoding_ms / f64::from(later));
        let output_tokens_per_s = per_s(self.batch.osl);
        Figures {
            ttft_ms: ms(around) + prefill_ms,
            queue_ms: (generation_ms - prefill_ms - decoding_ms)
                .max(self.ahead_ms(schedule, groups)),
            tpot_ms,
            generation_ms,
            passes: groups.iter().map(|group| group.passes).sum(),
            requests_per_s: per_s(1),
            input_tokens_per_s: per_s(self.batch.isl),
            output_tokens_per_s,
            output_tokens_per_s_per_accelerator: output_tokens_per_s.map(|all| all / accelerators),
            output_tokens_per_s_per_user: tpot_ms.filter(|&ms| ms > 0.0).map(|ms| 1e3 / ms),
        }
    }

    /// The pass that is planned already when a request takes the place of one that has ended, on average: one with
    /// prompts, but for the first such pass of a generation. Nothing without asynchronous scheduling, or if nobody else
    /// runs then.
    fn ahead_ms(&self, schedule: &Schedule, groups: &[PassGroup]) -> f64 {
        if !self.facts.asynchronous || self.batch.decoding(schedule.budget) == 0 {
            return 0.0;
        }
        let (mut passes, mut ms) = (0.0, 0.0);
        for group in groups.iter().filter(|group| group.prefill_requests > 0) {
            passes += group.passes as f64;
            ms += group.passes as f64 * group.pass_ms;
        }
        let mean_ms = ms / passes;
        let before = groups.iter().rfind(|group| group.prefill_requests == 0);
        (ms - mean_ms + before.map_or(mean_ms, |group| group.pass_ms)) / passes
    }

    /// What the batch holds when all of it is complete.
    ///
    /// # Errors
    /// It is more than the engine has room for.
    fn memory(&self) -> Result<Memory, EstimateError> {
        let (batch, facts) = (self.batch, &self.facts);
        let block = u64::from(facts.block_tokens.max(1));
        // Only whole blocks are found again. The last token of an output has no KV; drafts have, until they are
        // rejected.
        let shared = u64::from(batch.prefix) / block * block;
        let drafts = facts.speculation.as_ref().map_or(0, |s| s.verified_tokens - 1);
        let longest = u64::from(batch.isl) + u64::from(batch.osl - 1) + u64::from(drafts);
        let own = (longest - shared).next_multiple_of(block);
        let needed = shared + u64::from(batch.requests) * own;
        let requests_max = facts.kv_tokens.saturating_sub(shared) / own;
        if needed > facts.kv_tokens {
            let accepted = format!(
                "at most {requests_max}: KV of the batch is {needed} tokens in blocks of {block}, and the pool beside the weights is {} tokens",
                facts.kv_tokens
            );
            return Err(EstimateError::flag("--batch", batch.requests, accepted));
        }
        let derived = self.derived(longest);
        let of_token = derived
            .as_ref()
            .map(|memory| memory.sequence_bytes as f64 / f64::from(memory.options.max_model_len));
        Ok(Memory {
            batch_kv_tokens_max: needed,
            pool_kv_tokens: facts.kv_tokens,
            requests_max,
            weight_bytes: derived.as_ref().map(KvMemory::weight_bytes),
            batch_kv_bytes_max: of_token.map(|bytes| bytes * needed as f64),
        })
    }

    /// The memory of a device whose longest sequence is `longest` tokens, as far as it can be derived.
    fn derived(&self, longest: u64) -> Option<KvMemory> {
        let model = self.scenario.model.as_ref()?.shape.as_ref()?;
        let accelerator = self.scenario.accelerator.as_ref()?.data_sheet.as_ref()?;
        let options = MemoryOptions {
            gpu_memory_utilization: 1.0,
            block_size: 1,
            max_model_len: u32::try_from(longest).ok()?,
            max_num_batched_tokens: self.load.pass_tokens,
            max_num_seqs: self.batch.requests,
            cuda_graphs: false,
        };
        KvMemory::derive(model, accelerator, &self.scenario.parallel, &options).ok()
    }
}

/// The load of `batch` on an engine whose passes have room for `ctx_tokens` new tokens and for a round of
/// `round_tokens` tokens of everybody who decodes beside them.
fn load(
    batch: &SteadyBatch,
    ctx_tokens: u64,
    round_tokens: u32,
) -> Result<SteadyLoad, EstimateError> {
    if u64::from(batch.requests) > PASS_TOKENS_MAX {
        let accepted = format!("at most {PASS_TOKENS_MAX}: no engine has more tokens in a pass");
        return Err(EstimateError::flag("--batch", batch.requests, accepted));
    }
    let budget = batch.budget(ctx_tokens);
    let decodes = u64::from(batch.decoding(budget)) * u64::from(round_tokens);
    let pass_tokens = budget + decodes;
    if pass_tokens > PASS_TOKENS_MAX {
        let accepted = format!(
            "fewer: with the decodes these are passes of {pass_tokens} tokens, and no engine has more than {PASS_TOKENS_MAX}"
        );
        return Err(EstimateError::flag("--ctx-tokens", ctx_tokens, accepted));
    }
    Ok(SteadyLoad {
        batch: batch.requests,
        new_tokens: batch.new_tokens(),
        prefix_tokens: batch.prefix,
        output_tokens: batch.osl,
        pass_tokens: pass_tokens as u32,
        generations: check::GENERATIONS,
    })
}

/// What each kind of pass costs.
///
/// # Errors
/// What the provider says.
fn priced(schedule: &Schedule, pricer: &mut PassPricer) -> Result<Vec<PassGroup>, TimingError> {
    let price = |&Passes { count, prefill, decode }: &Passes| {
        let duration = pricer.price(&prefill, &decode)?;
        let parts = pricer.last_in_full(&prefill, &decode)?;
        Ok(PassGroup {
            kind: match (prefill.requests, decode.requests) {
                (0, _) => "decode",
                (_, 0) => "prefill",
                (_, _) => "mixed",
            },
            passes: count,
            prefill_requests: prefill.requests,
            prefill_tokens: prefill.new_tokens,
            prefill_past_tokens: prefill.past_tokens,
            decode_requests: decode.requests,
            decode_tokens: decode.query_tokens,
            decode_kv_tokens: decode.kv_tokens,
            prefill_ms: parts.prefill_ms,
            decode_ms: parts.decode_ms,
            draft_ms: parts.draft_ms,
            host_ms: parts.host_ms,
            pass_ms: ms(duration),
        })
    };
    schedule.passes.iter().map(price).collect()
}

fn ms(duration: SimDuration) -> f64 {
    duration.as_ms()
}

#[cfg(test)]
mod tests;
