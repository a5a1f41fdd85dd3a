//! The requests of a trace, spread, sampled and repeated.

use std::collections::VecDeque;

use super::config::ReshapeConfig;
use crate::base::config::ConfigError;
use crate::base::digest::Digest;
use crate::base::ids::RequestId;
use crate::base::lookup::LookupMap;
use crate::base::rng::Stream;
use crate::base::time::{SimDuration, SimTime};
use crate::workload::renumber::Renumbering;
use crate::workload::request::{Content, Name, RequestSpec, Segment};
use crate::workload::source::RequestSource;
use crate::workload::trace::config::TraceConfig;
use crate::workload::trace::{TraceError, TraceSource};

/// Tells requests that a sample left out from rows that a window did.
const SALT: u64 = 2;

/// The requests of all copies of a trace, in order. One copy is read after the other; the requests
/// of one instant are held.
pub(super) struct Copies {
    trace: TraceConfig,
    repeat: u32,
    /// The quantum of stamps, after the trace's speed-up.
    quantum: SimDuration,
    source: TraceSource,
    /// Requests of one stamp, with their new arrivals.
    spread: VecDeque<RequestSpec>,
    ratio: f64,
    sample: Stream,
    /// Whether the sample has what a session or a request of this copy is tied to.
    kept: LookupMap<(Tie, Name), bool>,
    /// The copy being read, from 0, and by how much it is later than the first.
    copy: u32,
    shift: SimDuration,
    /// Requests of the first copy, and their arrivals, before sampling.
    rows: u64,
    first: Option<SimTime>,
    last: SimTime,
    /// The new ids of the requests of this copy.
    ids: Renumbering,
    made: u64,
    left_out: u64,
}

/// What ties requests to each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Tie {
    Session,
    Request,
}

/// Names of one copy are numbered below this power of two; a trace has at most as many as requests.
const NAME_BITS: u32 = 40;

impl Copies {
    pub(super) fn open(
        trace: &TraceConfig,
        config: &ReshapeConfig,
        seed: u64,
    ) -> Result<Self, TraceError> {
        let source = TraceSource::open(trace)?;
        let quantum_ms = config.spread_ties_ms.unwrap_or(0.0) / trace.speedup;
        Ok(Self {
            trace: trace.clone(),
            repeat: config.repeat,
            quantum: SimDuration::from_ms(quantum_ms).unwrap_or_default(),
            source,
            spread: VecDeque::new(),
            ratio: config.sample_ratio,
            sample: Stream::new(seed, "trace.sample"),
            kept: LookupMap::new(),
            copy: 0,
            shift: SimDuration::ZERO,
            rows: 0,
            first: None,
            last: SimTime::ZERO,
            ids: Renumbering::new(SALT),
            made: 0,
            left_out: 0,
        })
    }

    /// The reader of the copy that is being read.
    pub(super) fn source(&self) -> &TraceSource {
        &self.source
    }

    /// Requests handed out so far, and left out.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.made, self.left_out)
    }

    /// The next request, under its new id.
    pub(super) fn next(&mut self) -> Result<Option<RequestSpec>, TraceError> {
        loop {
            let Some(request) = self.next_of_copy()? else {
                if self.copy + 1 == self.repeat {
                    return Ok(None);
                }
                self.begin_copy()?;
                continue;
            };
            let keeps = self.ratio >= 1.0 || self.keeps(&request);
            let id = u32::try_from(self.made).ok().filter(|&id| id < u32::MAX);
            let Some(id) = id.map(RequestId) else {
                let path = self.trace.path.clone();
                return Err(TraceError::TooManyRequests { path, line: request.line });
            };
            if keeps {
                self.made += 1;
                self.ids.push(request.id.0, id);
                return self.renamed(request, id).map(Some);
            }
            self.left_out += 1;
        }
    }

    /// Whether the sample has `request`: what is tied to each other stays together.
    fn keeps(&mut self, request: &RequestSpec) -> bool {
        let Some(turn) = &request.turn else { return self.sample.uniform() < self.ratio };
        let session = turn.session.map(|name| (Tie::Session, name));
        let waits = turn.wait_for.iter().flatten().map(|&name| (Tie::Request, name));
        let known = session.into_iter().chain(waits).find_map(|tie| self.kept.get(&tie).copied());
        let keeps = known.unwrap_or_else(|| self.sample.uniform() < self.ratio);
        for tie in session.into_iter().chain(turn.name.map(|name| (Tie::Request, name))) {
            self.kept.insert(tie, keeps);
        }
        keeps
    }

    /// The next request of this copy, as the trace has it but for spreading.
    fn next_of_copy(&mut self) -> Result<Option<RequestSpec>, TraceError> {
        if self.spread.is_empty() {
            let Some(instant) = self.source.next_arrival()? else { return Ok(None) };
            self.spread.push_back(self.source.take());
            if self.quantum > SimDuration::ZERO {
                self.spread_instant(instant)?;
            }
        }
        let request = self.spread.pop_front();
        if self.copy == 0
            && let Some(request) = &request
        {
            self.rows += 1;
            self.first.get_or_insert(request.arrival);
            self.last = request.arrival;
        }
        Ok(request)
    }

    /// Reads the other requests of `instant` and spreads all: the j-th of n by j n-ths of the quantum,
    /// or of the time to the next stamp if that is less.
    fn spread_instant(&mut self, instant: SimTime) -> Result<(), TraceError> {
        let next = loop {
            match self.source.next_arrival()? {
                Some(arrival) if arrival == instant => self.spread.push_back(self.source.take()),
                next => break next,
            }
        };
        let width = next.map_or(self.quantum, |next| self.quantum.min(next.since(instant)));
        let n = self.spread.len() as u128;
        for (j, request) in (0..).zip(&mut self.spread) {
            let late = u128::from(width.as_ns()) * j / n;
            request.arrival = instant + SimDuration::from_ns(late as u64);
        }
        Ok(())
    }

    /// Starts the next copy a mean gap behind the last request of the one before.
    fn begin_copy(&mut self) -> Result<(), TraceError> {
        let span = self.first.map_or(SimDuration::ZERO, |first| self.last.since(first));
        let gap = span.as_ns() / self.rows.saturating_sub(1).max(1);
        self.copy += 1;
        let shift = (u128::from(span.as_ns()) + u128::from(gap)) * u128::from(self.copy);
        if shift > u128::from(SimTime::LATEST_INPUT.as_ns()) {
            return Err(too_late(shift as f64 / 1e9));
        }
        self.shift = SimDuration::from_ns(shift as u64);
        self.ids.clear();
        self.kept = LookupMap::new();
        self.source = TraceSource::open(&self.trace)?;
        Ok(())
    }

    /// `request` of this copy as the request `id` of all.
    fn renamed(&self, request: RequestSpec, id: RequestId) -> Result<RequestSpec, TraceError> {
        let arrival = request.arrival + self.shift;
        if arrival > SimTime::LATEST_INPUT {
            return Err(too_late(arrival.as_s()));
        }
        let content = match request.content {
            Content::Private => Content::Private,
            Content::Pieces(mut pieces) => {
                pieces.iter_mut().for_each(|piece| piece.segment = self.segment(piece.segment));
                Content::Pieces(pieces)
            }
        };
        let output = self.segment(request.output);
        let copy = u64::from(self.copy) << NAME_BITS;
        let turn = request.turn.map(|mut turn| {
            let again = |name: &mut Name| name.0 |= copy;
            turn.session.iter_mut().for_each(again);
            turn.name.iter_mut().for_each(again);
            turn.wait_for.iter_mut().flatten().for_each(again);
            turn
        });
        Ok(RequestSpec { id, arrival, content, output, turn, ..request })
    }

    /// What a segment of the trace is called in this copy.
    fn segment(&self, segment: Segment) -> Segment {
        match self.ids.segment(segment) {
            Segment::Named(name) => Segment::Named(self.name(name)),
            Segment::Tail { name, tokens } => Segment::Tail { name: self.name(name), tokens },
            of_request => of_request,
        }
    }

    /// A name of the trace in this copy: another one in each, the given one in the first. Numbered
    /// ids of two copies never meet, since the masks differ in their upper bits; of names that are
    /// hashes themselves, two meet as rarely as any two hashes.
    fn name(&self, name: u64) -> u64 {
        if self.copy == 0 {
            return name;
        }
        let mut mask = Digest::new();
        mask.add(self.copy.into());
        name ^ mask.finish()
    }
}

fn too_late(s: f64) -> TraceError {
    let found = format!("such that a request arrives at {s} s");
    ConfigError::new("workload.trace.reshape", found, "arrivals within 100 years").into()
}
