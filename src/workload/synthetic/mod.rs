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
use super::arrivals::config::ArrivalsConfig;
use super::lengths::Weighted;
use super::request::{Content, Name, Piece, RequestSpec, Segment};
use super::sessions::config::Counts;
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
    /// A session whose turn waited for a user of the process.
    Waiting(usize),
}

/// Arrivals, and whose they are.
#[derive(Debug)]
struct Process {
    arrivals: Arrivals,
    whose: Whose,
    /// The field that says when they come, for errors.
    field: String,
    /// Whether its users have one request at a time, and not one session.
    counts_requests: bool,
    /// Its sessions that go on when a user has time: when their turns are due, and their numbers.
    waiting: BinaryHeap<Reverse<(SimTime, u64)>>,
}

impl Process {
    fn new(config: &ArrivalsConfig, arrivals: Arrivals, whose: Whose, field: String) -> Self {
        let counts_requests = match config {
            ArrivalsConfig::ClosedLoop(users) => users.counts == Counts::Requests,
            _ => false,
        };
        Self { arrivals, whose, field, counts_requests, waiting: BinaryHeap::new() }
    }

    /// Whether a user who has time at `now` has a turn to send.
    fn has_turn(&self, now: SimTime) -> bool {
        self.waiting.peek().is_some_and(|Reverse((due, _))| *due <= now)
    }
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
                let field = format!("workload.synthetic.classes[{number}]");
                let made = Arrivals::new(arrivals, requests, seed, &prefix);
                processes.push(Process::new(arrivals, made, Whose::One(number), field));
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
            let field = "workload.synthetic".to_owned();
            processes.push(Process::new(&config.arrivals, arrivals, whose, field));
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
                let has_turn = process.has_turn(time);
                first = Some((
                    if has_turn { Next::Waiting(place) } else { Next::Process(place) },
                    time,
                ));
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
        let plan = kind.plan(&made, self.requests);
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

    /// The next turn of the session `number`.
    fn go_on(&mut self, number: u64, arrival: SimTime, id: RequestId) -> RequestSpec {
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
        let turn = Some(Box::new(session.turn(delay, is_start)));
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
            drafts: None,
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
            Next::Session => {
                let Reverse((_, number)) = self.due.pop().expect("a session is due");
                self.go_on(number, arrival, id)
            }
            Next::Waiting(place) => {
                let process = &mut self.processes[place];
                process.arrivals.take();
                let Reverse((_, number)) = process.waiting.pop().expect("a session is due");
                self.go_on(number, arrival, id)
            }
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
                    let (number, place) = (session.name.0, session.process);
                    self.pausing.insert(number, *session);
                    if !self.processes[place].counts_requests {
                        self.due.push(Reverse((due, number)));
                        return;
                    }
                    self.processes[place].waiting.push(Reverse((due, number)));
                    place
                } else {
                    session.process
                }
            }
        };
        self.processes[place].arrivals.ended(at);
    }

    fn class_names(&self) -> &[String] {
        &self.names
    }
}
