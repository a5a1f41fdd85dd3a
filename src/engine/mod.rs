//! Serving engines: who is in the next pass, how long it takes, and what it produced.
//!
//! A scheduler family (see [`vllm`]) plans and completes passes over the requests of an
//! [`arena`]; [`driver::Engine`] drives it on the clock: it keeps the passes in flight, asks the
//! pricer how long each takes, and advances by itself up to the moment at which somebody outside
//! has something to say.
//!
//! An engine does not know the kernel or the metrics: what happened goes into the [`outbox`] that
//! its caller passes in.

pub(crate) mod arena;
pub(crate) mod decode_clock;
pub(crate) mod drafting;
pub(crate) mod driver;
pub(crate) mod error;
pub(crate) mod frontend;
pub(crate) mod notation;
pub(crate) mod outbox;
pub(crate) mod plan;
pub(crate) mod sglang;
pub(crate) mod steady;
pub(crate) mod trtllm;
pub(crate) mod vllm;

use crate::base::ids::RequestId;
use crate::base::record::Unserved;
use crate::base::time::SimTime;
use crate::timing::work::DecodeWork;

use arena::Arrival;
use decode_clock::DecodeClock;
use error::EngineError;
use outbox::Outbox;
use plan::{PassPlan, PassSpan};

/// A scheduler family: the part of an engine that decides.
pub(crate) trait Scheduler: Send {
    /// Hands a request over; it waits from now on.
    fn enqueue(&mut self, arrival: Arrival);

    /// Plans the next pass into `plan`, which is empty when nothing can run now. Whoever is turned away
    /// goes into the outbox.
    fn schedule(&mut self, now: SimTime, plan: &mut PassPlan, outbox: &mut Outbox);

    /// Takes in what the pass of `plan` produced. Rows say afterwards what they emitted.
    fn complete(&mut self, plan: &mut PassPlan, span: PassSpan, outbox: &mut Outbox);

    /// Plans and completes passes in which everybody decodes and nothing else can happen, as long
    /// as that lasts and `clock` allows. It may be that there are none.
    ///
    /// # Errors
    /// What the clock reports.
    fn run_decodes(&mut self, clock: &mut DecodeClock<'_>) -> Result<(), EngineError>;

    /// Makes `plan` that of a pass of the latest [`Scheduler::run_decodes`] which is not completed:
    /// the last it planned (`back` is 0) or the one before.
    fn restore_plan(&self, plan: &mut PassPlan, back: u64, work: &DecodeWork);

    /// Passes that may be planned and not yet completed: 1, or 2 when asynchronous.
    fn depth(&self) -> usize;

    /// Where things stand between two calls.
    fn levels(&self) -> Levels;

    /// What a family without blocks has to say of its standing, for the log of decisions.
    fn radix_standing(&self) -> Option<RadixStanding> {
        None
    }

    /// Requests handed over that have not finished, by id.
    fn unfinished(&self) -> Vec<Unserved>;

    /// The blocks, their labels and their order in the free queue, as text.
    #[cfg(test)]
    fn kv_state(&self) -> String;

    /// What the scheduler looked at one by one so far.
    fn effort(&self) -> Effort;
}

/// How passes are computed. What comes out is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Advance {
    /// Requests that decode in step are not touched until one of them ends.
    #[default]
    InStep,
    /// Every request is planned and completed by itself in every pass: the reference.
    OneByOne,
}

/// Where an engine stands between two calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Levels {
    /// Requests in the running list.
    pub(crate) running: u32,
    /// Requests in the queue.
    pub(crate) waiting: u32,
    /// KV blocks nobody holds.
    pub(crate) free_blocks: u32,
    /// KV blocks there are to hold.
    pub(crate) usable_blocks: u32,
    /// Different block contents in the prefix cache.
    pub(crate) cached_contents: u32,
}

/// Where an engine with a radix cache stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RadixStanding {
    /// Free tokens of the pool.
    pub(crate) available_tokens: u32,
    /// Cached tokens that nobody holds.
    pub(crate) evictable_tokens: u32,
    /// Cached tokens that somebody holds.
    pub(crate) protected_tokens: u32,
    /// Requests in the running batch.
    pub(crate) running: u32,
    /// The queue, front first; those that arrived since the last call are not in it.
    pub(crate) queue: Vec<RequestId>,
    /// Whether the latch that stops admission is set.
    pub(crate) is_full: bool,
    /// The new-token ratio.
    pub(crate) new_token_ratio: f64,
    /// Who lost their place to a better priority since the last pass; the others of a plan were retracted.
    pub(crate) displaced: Vec<RequestId>,
}

/// How much was looked at one by one: what the cost of a run consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effort {
    /// Requests planned, completed or looked up, each time.
    pub(crate) requests_touched: u64,
    /// KV blocks taken, held, labelled or freed, each time.
    pub(crate) blocks_touched: u64,
}
