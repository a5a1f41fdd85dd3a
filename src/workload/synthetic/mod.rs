//! Made-up load: requests by description instead of from a record.
//!
//! Arrivals come from one process, or one a class that has its own; the earliest is next. Whose
//! request it is decides lengths, prefixes and priority. Every class and every purpose has a stream
//! of its own, so that the k-th request of a class is the same whatever other classes there are; with
//! sessions, the k-th session.

mod class;
pub(crate) mod config;
mod sessions;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::arrivals::Arrivals;
use super::lengths::Weighted;
use super::request::{Content, Name, Piece, RequestSpec, Segment};
use super::source::RequestSource;
use super::trace::TraceError;
use crate::base::config::ConfigError;
use crate::base::ids::RequestId;
use crate::base::lookup::LookupMap;
use crate::base::rng::Stream;
use crate::base::time::{SimDuration, SimTime};
use class::{Class, Made};
use config::{ClassConfig, SyntheticConfig};
use sessions::Session;

/// Requests made up as a configuration says.
#[derive(Debug)]
pub(crate) struct SyntheticSource {
    requests: u32,
    made: u32,
    processes: Vec<Process>,
    classes: Vec<Class>,
    names: Vec<String>,
    /// What follows the end of each request under way, where something does.
    under_way: LookupMap<RequestId, UnderWay>,
    /// Sessions whose next turn may come, by its arrival and by their number.
    due: BinaryHeap<Reverse<(SimTime, u64)>>,
    /// The sessions that are due.
    pausing: LookupMap<u64, Session>,
    sessions_made: u64,
    follows_ends: bool,
}

/// Who wants to hear of the end of a request.
#[derive(Debug)]
enum UnderWay {
    /// The process it came from.
    Alone(usize),
    /// Its session, and what it generates.
    Turn(Box<Session>, Piece),
}

/// Who makes the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Process(usize),
    Session,
}

/// Arrivals, and whose they are.
#[derive(Debug)]
struct Process {
    arrivals: Arrivals,
    whose: Whose,
    /// The field that says when they come, for errors.
    field: String,
}

#[derive(Debug)]
enum Whose {
    /// All of one class.
    One(u16),
    /// Of several, by weight.
    Drawn(Box<(Weighted<u16>, Stream)>),
}

impl SyntheticSource {
    /// The load that a resolved configuration describes.
    ///
    /// # Errors
    /// A file of lengths cannot be used.
    pub(crate) fn new(config: &SyntheticConfig, seed: u64) -> Result<Self, TraceError> {
        let requests = u64::from(config.requests);
        let mut processes = Vec::new();
        let mut classes = Vec::new();
        let mut names = Vec::new();
        let mut shared = Vec::new();
        for (number, class) in (0..).zip(config.classes.as_deref().unwrap_or_default()) {
            let prefix = format!("workload.class.{}", class.name);
            names.push(class.name.clone());
            classes.push(Class::new(config, class, number, seed, &prefix)?);
            if let Some(arrivals) = &class.arrivals {
                let requests = class.requests.map_or(requests, u64::from);
                processes.push(Process {
                    arrivals: Arrivals::new(arrivals, requests, seed, &prefix),
                    whose: Whose::One(number),
                    field: format!("workload.synthetic.classes[{number}]"),
                });
            } else {
                shared.push((number, class.weight()));
            }
        }
        let whose = if names.is_empty() {
            let nameless = ClassConfig::default();
            classes.push(Class::new(config, &nameless, 0, seed, "workload")?);
            Some(Whose::One(0))
        } else if shared.is_empty() {
            None
        } else {
            let draws = Stream::new(seed, "workload.classes");
            Some(Whose::Drawn(Box::new((Weighted::new(shared.into_iter()), draws))))
        };
        if let Some(whose) = whose {
            let arrivals = Arrivals::new(&config.arrivals, requests, seed, "workload");
            processes.push(Process { arrivals, whose, field: "workload.synthetic".to_owned() });
        }
        let follows_ends = processes.iter().any(|process| process.arrivals.follows_ends())
            || classes.iter().any(Class::has_sessions);
        Ok(Self {
            requests: config.requests,
            made: 0,
            processes,
            classes,
            names,
            under_way: LookupMap::new(),
            due: BinaryHeap::new(),
            pausing: LookupMap::new(),
            sessions_made: 0,
            follows_ends,
        })
    }

    /// Whose request comes next, and when; of several at one instant a session, and then the first process.
    fn next(&self) -> Result<Option<(Next, SimTime)>, TraceError> {
        let mut first = self.due.peek().map(|&Reverse((time, _))| (Next::Session, time));
        for (place, process) in self.processes.iter().enumerate() {
            let next = process.arrivals.next().map_err(|e| e.within(&process.field))?;
            if let Some(time) = next.filter(|&time| first.is_none_or(|(_, best)| time < best)) {
                first = Some((Next::Process(place), time));
            }
        }
        Ok(first.filter(|_| self.made < self.requests))
    }

    /// The next request of a process.
    fn begin(&mut self, place: usize, arrival: SimTime, id: RequestId) -> RequestSpec {
        let process = &mut self.processes[place];
        process.arrivals.take();
        let class = match &mut process.whose {
            Whose::One(class) => *class,
            Whose::Drawn(drawn) => *drawn.0.at(drawn.1.uniform()),
        };
        let kind = &mut self.classes[usize::from(class)];
        let made = kind.make(id);
        let plan = kind.plan(&made);
        let request = self.request(id, arrival, class, made);
        let Some(planned) = plan else {
            if self.follows_ends {
                self.under_way.insert(id, UnderWay::Alone(place));
            }
            return request;
        };
        let name = Name(self.sessions_made);
        self.sessions_made += 1;
        let session = Session { name, process: place, class, told: Vec::new(), tokens: 0, planned };
        self.say(Box::new(session), request, SimDuration::ZERO, true)
    }

    /// The next turn of the session that is due.
    fn go_on(&mut self, arrival: SimTime, id: RequestId) -> RequestSpec {
        let Reverse((_, number)) = self.due.pop().expect("a session is due");
        let mut session = self.pausing.remove(&number).expect("it is due");
        let turn = session.planned.pop_front().expect("it has a turn to come");
        let own = Piece { segment: Segment::Prompt(id), tokens: turn.added_tokens };
        session.tell(own);
        let made = Made {
            prompt_tokens: session.tokens,
            output_tokens: turn.output_tokens,
            content: Content::Pieces(std::mem::take(&mut session.told)),
        };
        let request = self.request(id, arrival, session.class, made);
        self.say(Box::new(session), request, turn.think, false)
    }

    /// `request` as the coming turn of `session`.
    fn say(
        &mut self,
        mut session: Box<Session>,
        request: RequestSpec,
        delay: SimDuration,
        is_start: bool,
    ) -> RequestSpec {
        session.tokens = request.prompt_tokens;
        session.told = match &request.content {
            Content::Pieces(pieces) => pieces.clone(),
            Content::Private => {
                let own =
                    Piece { segment: Segment::Prompt(request.id), tokens: request.prompt_tokens };
                [own].into_iter().filter(|piece| piece.tokens > 0).collect()
            }
        };
        let turn = Some(session.turn(delay, is_start));
        let output = Piece { segment: request.output, tokens: request.output_tokens };
        self.under_way.insert(request.id, UnderWay::Turn(session, output));
        RequestSpec { turn, ..request }
    }

    fn request(&self, id: RequestId, arrival: SimTime, class: u16, made: Made) -> RequestSpec {
        RequestSpec {
            id,
            arrival,
            prompt_tokens: made.prompt_tokens,
            output_tokens: made.output_tokens,
            max_tokens: made.output_tokens,
            priority: self.classes[usize::from(class)].priority,
            class,
            content: made.content,
            output: Segment::Output(id),
            line: 0,
            turn: None,
        }
    }
}

impl RequestSource for SyntheticSource {
    fn next_arrival(&mut self) -> Result<Option<SimTime>, TraceError> {
        match self.next()? {
            Some((_, late)) if late > SimTime::LATEST_INPUT => {
                let found = format!("such that a turn comes at {} s", late.as_s());
                let accepted = "arrivals within 100 years";
                Err(ConfigError::new("workload.synthetic.sessions", found, accepted).into())
            }
            next => Ok(next.map(|(_, time)| time)),
        }
    }

    fn take(&mut self) -> RequestSpec {
        let (next, arrival) = self.next().ok().flatten().expect("the caller asks first");
        let id = RequestId(self.made);
        self.made += 1;
        match next {
            Next::Process(place) => self.begin(place, arrival, id),
            Next::Session => self.go_on(arrival, id),
        }
    }

    fn follows_ends(&self) -> bool {
        self.follows_ends
    }

    fn ended(&mut self, id: RequestId, at: SimTime) {
        let place = match self.under_way.remove(&id) {
            None => return,
            Some(UnderWay::Alone(place)) => place,
            Some(UnderWay::Turn(mut session, output)) => {
                session.tell(output);
                if let Some(turn) = session.planned.front() {
                    let due = at.checked_add(turn.think).unwrap_or(SimTime::MAX);
                    let number = session.name.0;
                    self.due.push(Reverse((due, number)));
                    self.pausing.insert(number, *session);
                    return;
                }
                session.process
            }
        };
        self.processes[place].arrivals.ended(at);
    }

    fn class_names(&self) -> &[String] {
        &self.names
    }
}
