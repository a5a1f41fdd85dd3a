//! The scheduler of SGLang, release 0.5.23. Rule numbers (C1 ...) are those of docs/engines/sglang.md.

pub(crate) mod config;

use crate::base::record::Unserved;
use crate::base::time::{SimDuration, SimTime};
use crate::timing::work::DecodeWork;

use super::arena::Arrival;
use super::decode_clock::DecodeClock;
use super::error::EngineError;
use super::outbox::Outbox;
use super::plan::{PassPlan, PassSpan};
use super::{Advance, Effort, Levels, Scheduler};
use config::{Limits, SglangConfig};

/// One engine's scheduler, its requests and its KV.
#[derive(Clone, Debug)]
pub(crate) struct Sglang {
    limits: Limits,
}

impl Sglang {
    /// An idle scheduler. `config` has no absent values; a token becomes visible `detokenize`
    /// after its pass ends. `advance` chooses how passes are computed, not what comes out.
    pub(crate) fn new(config: &SglangConfig, _detokenize: SimDuration, _advance: Advance) -> Self {
        Self { limits: Limits::of(config) }
    }
}

impl Scheduler for Sglang {
    fn enqueue(&mut self, _arrival: Arrival) {
        unimplemented!()
    }
    fn schedule(&mut self, _now: SimTime, _plan: &mut PassPlan, _outbox: &mut Outbox) {
        unimplemented!()
    }
    fn complete(&mut self, _plan: &mut PassPlan, _span: PassSpan, _outbox: &mut Outbox) {
        unimplemented!()
    }
    fn run_decodes(&mut self, _clock: &mut DecodeClock<'_>) -> Result<(), EngineError> {
        Ok(())
    }
    fn restore_plan(&self, _plan: &mut PassPlan, _back: u64, _work: &DecodeWork) {
        unimplemented!()
    }
    fn depth(&self) -> usize {
        if self.limits.overlaps { 2 } else { 1 }
    }
    fn levels(&self) -> Levels {
        unimplemented!()
    }
    fn unfinished(&self) -> Vec<Unserved> {
        unimplemented!()
    }
    #[cfg(test)]
    fn kv_state(&self) -> String {
        unimplemented!()
    }
    fn effort(&self) -> Effort {
        Effort::default()
    }
}
