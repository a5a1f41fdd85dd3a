//! The main loop: whose event comes next, and who hears of it.
//!
//! Engines advance by themselves up to the next event of anybody else, so the queue sees one
//! entry per source and not one per pass. The one loop of the program is in sight here: requests
//! leave the source, engines serve them, the observer hears what happened.

pub(crate) mod error;
pub(crate) mod queue;

use crate::base::digest::Digest;
use crate::base::ids::{EngineId, RequestId};
use crate::base::moment::{Moment, Phase};
use crate::base::record::{Rejection, Unserved};
use crate::base::time::{SimDuration, SimTime};
use crate::engine::arena::Arrival;
use crate::engine::driver::Engine;
use crate::engine::outbox::Outbox;
use crate::workload::request::RequestSpec;
use crate::workload::source::RequestSource;
use error::RunError;
use queue::{EventQueue, Source};

pub(crate) use crate::engine::frontend::FrontEnd;

/// Who hears what happens during a run.
pub(crate) trait Observer {
    /// Whether the token gaps of this request belong to the statistics.
    fn is_counted(&self, request: &RequestSpec) -> bool;

    /// From now on, requests may be of these classes, by number.
    fn classes(&mut self, _names: &[String]) {}

    /// A request was refused by the front end.
    ///
    /// # Errors
    /// It cannot be noted, and the run is to stop.
    fn rejected(&mut self, request: &RequestSpec, why: Rejection) -> Result<(), RunError>;

    /// What engines told since the last time.
    ///
    /// # Errors
    /// It cannot be noted, and the run is to stop.
    fn told(&mut self, outbox: &Outbox) -> Result<(), RunError>;

    /// The run has come as far as `now`.
    fn reached(&mut self, _now: SimTime) {}
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ending {
    /// Requests of the input.
    pub(crate) input: u64,
    /// Requests that finished.
    pub(crate) completed: u64,
    /// Requests the front end or an engine refused.
    pub(crate) rejected: u64,
    /// Requests that entered an engine and cannot finish, by id.
    pub(crate) unfinished: Vec<Unserved>,
    /// Whether an engine stopped because its requests preempt each other for ever.
    pub(crate) ran_in_circles: bool,
    /// When the last event happened.
    pub(crate) end: SimTime,
    /// Digest of every pass, and of what became of every request.
    pub(crate) digest: u64,
    /// Events taken from the queue.
    pub(crate) events: u64,
}

/// A run: a source of requests, engines, and the queue of events between them.
pub(crate) struct Kernel<'a> {
    source: &'a mut dyn RequestSource,
    engines: &'a mut [Engine],
    front_end: FrontEnd,
    /// Tokenising and HTTP, before a request enters an engine's queue.
    frontend_delay: SimDuration,
    queue: EventQueue,
    /// When the next request arrives; never if none is known.
    next_arrival: Moment,
    outbox: Outbox,
    next_engine: usize,
    /// How many classes the observer knows.
    classes: usize,
    ending: Ending,
    /// Digest of who was refused and why.
    refused: Digest,
}

impl<'a> Kernel<'a> {
    /// A run of `engines` under the requests of `source`.
    ///
    /// # Panics
    /// Without engines.
    pub(crate) fn new(
        source: &'a mut dyn RequestSource,
        engines: &'a mut [Engine],
        front_end: FrontEnd,
        frontend_delay: SimDuration,
    ) -> Self {
        assert!(!engines.is_empty(), "a deployment has engines");
        Self {
            source,
            engines,
            front_end,
            frontend_delay,
            queue: EventQueue::default(),
            next_arrival: Moment::NEVER,
            outbox: Outbox::default(),
            next_engine: 0,
            classes: 0,
            ending: Ending::default(),
            refused: Digest::new(),
        }
    }

    /// Keeps a log of every decision for the observer.
    pub(crate) fn with_log(mut self) -> Self {
        self.outbox = Outbox::with_log();
        self
    }

    /// Tells the observer of every pass in full.
    pub(crate) fn with_details(mut self) -> Self {
        self.outbox.details = Some(Vec::new());
        self
    }

    /// Runs until nothing can happen any more.
    ///
    /// # Errors
    /// What the source or an engine reports. Nothing that was counted by then is a result.
    ///
    /// # Panics
    /// If a request of the input is neither completed, nor rejected, nor unfinished.
    pub(crate) fn run(mut self, observer: &mut dyn Observer) -> Result<Ending, RunError> {
        self.outbox.returns_ends = self.source.follows_ends();
        self.announce()?;
        while let Some((source, moment)) = self.queue.pop() {
            self.ending.events += 1;
            self.ending.end = self.ending.end.max(moment.time);
            match source {
                Source::Arrivals => self.deliver(moment.time, observer)?,
                Source::Engine(id) => {
                    let until = self.horizon();
                    let engine = &mut self.engines[id.index()];
                    engine.advance(until, &mut self.outbox)?;
                    self.rekey(id);
                    self.tell(observer)?;
                    observer.reached(moment.time);
                }
            }
        }
        let mut digest = self.refused;
        for engine in self.engines.iter() {
            digest.add(engine.digest());
            self.ending.unfinished.extend(engine.unfinished());
            self.ending.ran_in_circles |= engine.runs_in_circles();
        }
        self.ending.unfinished.sort_unstable_by_key(|request| request.id);
        self.ending.unfinished.iter().for_each(|request| digest.add(request.id.0.into()));
        self.ending.digest = digest.finish();
        let Ending { input, completed, rejected, ref unfinished, .. } = self.ending;
        assert_eq!(
            completed + rejected + unfinished.len() as u64,
            input,
            "every request of the input is completed, rejected or unfinished"
        );
        Ok(self.ending)
    }

    /// How far an engine may go by itself: to the next arrival, which is all that one engine hears
    /// of another. Where arrivals follow from ends, to the next event of anybody.
    fn horizon(&self) -> Moment {
        if self.source.follows_ends() { self.queue.next_moment() } else { self.next_arrival }
    }

    /// Puts the next arrival of the source into the queue.
    fn announce(&mut self) -> Result<(), RunError> {
        if let Some(arrival) = self.source.next_arrival()? {
            let time = arrival + self.frontend_delay;
            self.next_arrival = Moment { time, phase: Phase::Arrival, source: 0 };
            self.queue.set(Source::Arrivals, self.next_arrival);
        } else {
            self.next_arrival = Moment::NEVER;
        }
        Ok(())
    }

    /// The next request enters the deployment.
    fn deliver(&mut self, now: SimTime, observer: &mut dyn Observer) -> Result<(), RunError> {
        let request = self.source.take();
        let classes = self.source.class_names();
        if classes.len() > self.classes {
            self.classes = classes.len();
            observer.classes(classes);
        }
        self.ending.input += 1;
        match self.front_end.admit(&request) {
            Err(why) => {
                self.note_refused(request.id, why);
                observer.rejected(&request, why)?;
                if self.source.follows_ends() {
                    self.source.ended(request.id, now);
                }
            }
            Ok(max_tokens) => {
                let id = EngineId(self.next_engine as u32);
                self.next_engine = (self.next_engine + 1) % self.engines.len();
                let counted = observer.is_counted(&request);
                let arrival = Arrival::new(request, max_tokens, now, counted);
                self.engines[id.index()].enqueue(arrival, now, &mut self.outbox);
                self.rekey(id);
            }
        }
        self.announce()
    }

    fn note_refused(&mut self, request: RequestId, why: Rejection) {
        self.ending.rejected += 1;
        self.refused.add(u64::from(request.0) << 32 | why as u64);
    }

    fn rekey(&mut self, id: EngineId) {
        match self.engines[id.index()].next_moment() {
            Some(moment) => self.queue.set(Source::Engine(id), moment),
            None => self.queue.remove(Source::Engine(id)),
        }
    }

    /// Passes on what the engines told.
    fn tell(&mut self, observer: &mut dyn Observer) -> Result<(), RunError> {
        for pass in &self.outbox.passes {
            self.ending.end = self.ending.end.max(pass.end);
        }
        self.ending.completed += self.outbox.finished.len() as u64;
        for place in 0..self.outbox.turned_away.len() {
            let (request, why, _) = self.outbox.turned_away[place];
            self.note_refused(request.id, why);
        }
        observer.told(&self.outbox)?;
        let Outbox { finished, turned_away, .. } = &self.outbox;
        if self.source.follows_ends() && !(finished.is_empty() && turned_away.is_empty()) {
            for record in finished {
                self.source.ended(record.id, record.last_token);
            }
            for &(request, _, at) in turned_away {
                self.source.ended(request.id, at);
            }
            self.announce()?;
        }
        self.outbox.clear();
        Ok(())
    }
}
