//! Requests that follow others: turns of a session, calls of a graph.
//!
//! The workload is read twice: once for [who waits for whom](graph), once for the requests themselves.
//! The second reading is only as far ahead as it has to be, so that memory holds the requests of the
//! sessions under way, and a few numbers of each request.
//!
//! A request arrives when all that it waits for have ended, a pause later. A request that was rejected
//! has ended. Prompts that go on where an earlier one ended are [told apart](history) from what was
//! generated.

pub(crate) mod config;
pub(crate) mod graph;
mod history;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::path::{Path, PathBuf};

use serde::Serialize;

use self::config::{Counts, SessionsConfig};
use self::graph::Graph;
use self::history::Told;
use super::request::{Content, Piece, RequestSpec, Segment};
use super::source::RequestSource;
use super::trace::TraceError;
use crate::base::ids::RequestId;
use crate::base::lookup::LookupMap;
use crate::base::time::{SimDuration, SimTime};

/// A source whose requests follow each other, or not.
pub(crate) struct Sessions<S> {
    inner: S,
    following: Option<Box<Following>>,
}

/// What came of following.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct SessionCounts {
    /// Requests tied to each other are one; so is a request tied to none.
    pub(crate) sessions: u32,
    /// Requests that wait for others.
    pub(crate) followers: u32,
    /// Of those sent: prompts that go on where an earlier one and its output end.
    pub(crate) continued: u32,
    /// Of those sent: prompts that go another way, or share nothing with it.
    pub(crate) restarted: u32,
    /// Requests that were never sent, because what they wait for did not end.
    pub(crate) never_sent: u32,
}

impl<S: RequestSource> Sessions<S> {
    /// The requests of `inner`, each at its own time.
    pub(crate) fn ignored(inner: S) -> Self {
        Self { inner, following: None }
    }

    /// The requests of `open`, which is called twice, following each other as `config` says. Errors
    /// call the workload `path`.
    ///
    /// # Errors
    /// The workload cannot be read, or requests wait for each other in a circle.
    pub(crate) fn open(
        config: &SessionsConfig,
        path: &Path,
        open: impl Fn() -> Result<S, TraceError>,
    ) -> Result<Self, TraceError> {
        let graph = Graph::read(&mut open()?, path)?;
        let following = Following::new(config, path, graph);
        Ok(Self { inner: open()?, following: Some(Box::new(following)) })
    }

    /// The source behind.
    pub(crate) fn inner(&self) -> &S {
        &self.inner
    }

    /// What came of it so far; `None` where nothing is followed.
    pub(crate) fn counts(&self) -> Option<SessionCounts> {
        let following = self.following.as_ref()?;
        let never_sent = following.graph.len() - following.sent.len() as u32;
        Some(SessionCounts { never_sent, ..following.counts })
    }
}

/// Reads `source`, which errors call `path`, to see whether its requests can all begin.
///
/// # Errors
/// It cannot be read, or requests wait for each other in a circle.
pub(crate) fn find_circle(source: &mut dyn RequestSource, path: &Path) -> Result<(), TraceError> {
    Graph::read(source, path).map(drop)
}

/// When requests arrive.
#[derive(Clone, Copy, Debug)]
enum Rule {
    Stamps,
    Pauses { factor: f64, max: SimDuration },
}

/// A request that may go out at a time; of one instant, in the order of the workload.
type Due = Reverse<(SimTime, u32)>;

/// The state of requests that follow each other. Numbers are places in the order of reading.
struct Following {
    path: PathBuf,
    graph: Graph,
    rule: Rule,
    users: Option<Users>,
    /// How many requests were read.
    read: u32,
    is_spent: bool,
    /// Requests that were read and are not sent.
    held: LookupMap<u32, RequestSpec>,
    /// Of each request, how many that it waits for have not ended.
    waits: Vec<u32>,
    /// The latest end of those that each waits for.
    ready: Vec<SimTime>,
    /// Requests whose wait is over and that have no arrival yet.
    wanted: VecDeque<u32>,
    /// Requests that begin something, by recorded arrival; of a closed loop, one of each group that is
    /// not begun.
    starts: BinaryHeap<Due>,
    /// Others that may go out, by arrival.
    due: BinaryHeap<Due>,
    /// What sent requests consist of, while somebody may still continue them, and how many may.
    told: LookupMap<u32, (Told, u32)>,
    /// The number of each request by its id.
    sent: Vec<u32>,
    counts: SessionCounts,
}

/// The users of a closed loop.
struct Users {
    counts: Counts,
    /// When those who are free became so, earliest first.
    free: VecDeque<SimTime>,
    /// Groups begun: when, and the recorded arrival that this stands for.
    begun: LookupMap<u32, (SimTime, SimTime)>,
    /// Further starts of groups that are not begun, by recorded arrival.
    further: LookupMap<u32, Vec<(SimTime, u32)>>,
    /// Starts of groups begun that were not read.
    unread_starts: u32,
    /// Requests of each group that have not ended.
    left: Vec<u32>,
}

impl Users {
    fn new(users: u32, ramp_up_s: f64, counts: Counts, graph: &Graph) -> Self {
        let begins = (0..users).map(|user| {
            let ms = ramp_up_s * 1e3 * f64::from(user) / f64::from(users);
            SimTime::ZERO + SimDuration::from_ms(ms).expect("checked when resolved")
        });
        Self {
            counts,
            free: begins.collect(),
            begun: LookupMap::new(),
            further: LookupMap::new(),
            unread_starts: 0,
            left: (0..graph.groups()).map(|group| graph.size(group).0).collect(),
        }
    }

    fn is_free(&mut self, at: SimTime) {
        let place = self.free.partition_point(|&other| other <= at);
        self.free.insert(place, at);
    }
}

/// Which request goes out next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    Start,
    Due,
}

impl Following {
    fn new(config: &SessionsConfig, path: &Path, graph: Graph) -> Self {
        let pauses = |factor, max_s: Option<f64>| Rule::Pauses {
            factor,
            max: max_s
                .and_then(|s| SimDuration::from_ms(s * 1e3))
                .unwrap_or(SimDuration::from_ns(u64::MAX)),
        };
        let (rule, users) = match config {
            SessionsConfig::Open(_) => (Rule::Stamps, None),
            SessionsConfig::Think(think) => (pauses(think.think_factor, think.think_s_max), None),
            SessionsConfig::Closed(closed) => (
                pauses(closed.think_factor, closed.think_s_max),
                Some(Users::new(closed.users, closed.ramp_up_s, closed.counts, &graph)),
            ),
        };
        let n = graph.len();
        let waits: Vec<u32> = (0..n).map(|number| graph.before(number).len() as u32).collect();
        let followers = waits.iter().filter(|&&waits| waits > 0).count() as u32;
        Self {
            path: path.to_owned(),
            rule,
            users,
            read: 0,
            is_spent: false,
            held: LookupMap::new(),
            waits,
            ready: vec![SimTime::ZERO; n as usize],
            wanted: VecDeque::new(),
            starts: BinaryHeap::new(),
            due: BinaryHeap::new(),
            told: LookupMap::new(),
            sent: Vec::new(),
            counts: SessionCounts {
                sessions: graph.groups(),
                followers,
                ..SessionCounts::default()
            },
            graph,
        }
    }

    /// Reads the next request; answers whether there was one.
    fn read(&mut self, inner: &mut dyn RequestSource) -> Result<bool, TraceError> {
        if self.is_spent || inner.next_arrival()?.is_none() {
            self.is_spent = true;
            return Ok(false);
        }
        let request = inner.take();
        let number = self.read;
        if number == self.graph.len() {
            return Err(TraceError::Changed { path: self.path.clone() });
        }
        self.read += 1;
        let is_start = self.graph.before(number).is_empty();
        if is_start || matches!(self.rule, Rule::Stamps) {
            let lacks_arrival = request.turn.as_ref().is_some_and(|turn| turn.lacks_arrival);
            if lacks_arrival && self.users.is_none() {
                let (path, line) = (self.path.clone(), request.line);
                return Err(match self.rule {
                    Rule::Stamps => TraceError::NoStamp { path, line },
                    Rule::Pauses { .. } => TraceError::NoStart { path, line },
                });
            }
            self.add_start(number, request.arrival);
        }
        self.held.insert(number, request);
        Ok(true)
    }

    fn add_start(&mut self, number: u32, recorded: SimTime) {
        if let Some(users) = &mut self.users {
            let group = self.graph.group(number);
            if let Some(&(begun, stands_for)) = users.begun.get(&group) {
                users.unread_starts -= 1;
                self.due.push(Reverse((begun + recorded.since(stands_for), number)));
                return;
            }
            if let Some(further) = users.further.get_mut(&group) {
                further.push((recorded, number));
                return;
            }
            users.further.insert(group, Vec::new());
        }
        self.starts.push(Reverse((recorded, number)));
    }

    /// Reads as far as the next arrival needs.
    fn look_ahead(&mut self, inner: &mut dyn RequestSource) -> Result<(), TraceError> {
        while let Some(&number) = self.wanted.front() {
            let Some(request) = self.held.get(&number) else {
                if self.read(inner)? {
                    continue;
                }
                return Err(TraceError::Changed { path: self.path.clone() });
            };
            let pause = request.turn.as_ref().map_or(SimDuration::ZERO, |turn| turn.delay);
            let Rule::Pauses { factor, max } = self.rule else { unreachable!("nobody waits") };
            let arrival = self.ready[number as usize].checked_add(scaled(pause, factor).min(max));
            self.due.push(Reverse((arrival.unwrap_or(SimTime::MAX), number)));
            self.wanted.pop_front();
        }
        while self.users.as_ref().is_some_and(|users| users.unread_starts > 0) {
            if !self.read(inner)? {
                return Err(TraceError::Changed { path: self.path.clone() });
            }
        }
        while self.starts.is_empty() && self.read(inner)? {}
        Ok(())
    }

    /// What goes out next, and when.
    fn next(&self) -> Option<(SimTime, Choice)> {
        let start = self.starts.peek().map(|Reverse((time, _))| *time);
        let due = self.due.peek().map(|Reverse((time, _))| *time);
        let due_choice = due.map(|due| (due, Choice::Due));
        let Some(users) = &self.users else {
            let start_choice = start.map(|start| (start, Choice::Start));
            // Who has been there goes first.
            return due_choice
                .filter(|&(due, _)| start.is_none_or(|start| due <= start))
                .or(start_choice);
        };
        let free = users.free.front().copied();
        match users.counts {
            Counts::Sessions => {
                let begin = start.and(free).map(|free| (free, Choice::Start));
                due_choice.filter(|&(due, _)| begin.is_none_or(|(begin, _)| due <= begin)).or(begin)
            }
            Counts::Requests => {
                let free = free?;
                match (due, start) {
                    (Some(due), _) if due <= free => Some((free, Choice::Due)),
                    (_, Some(_)) => Some((free, Choice::Start)),
                    (due, None) => due.map(|due| (due, Choice::Due)),
                }
            }
        }
    }

    fn take(&mut self) -> RequestSpec {
        let (arrival, choice) = self.next().expect("the caller asks first");
        let heap = if choice == Choice::Start { &mut self.starts } else { &mut self.due };
        let Reverse((recorded, number)) = heap.pop().expect("it was chosen");
        if let Some(users) = &mut self.users {
            if choice == Choice::Start || users.counts == Counts::Requests {
                users.free.pop_front();
            }
            if choice == Choice::Start {
                let group = self.graph.group(number);
                let further = users.further.remove(&group).unwrap_or_default();
                users.unread_starts += self.graph.size(group).1 - 1 - further.len() as u32;
                for (other, number) in further {
                    self.due.push(Reverse((arrival + other.since(recorded), number)));
                }
                users.begun.insert(group, (arrival, recorded));
            }
        }
        self.send(number, arrival)
    }

    /// The request `number` as it goes out.
    fn send(&mut self, number: u32, arrival: SimTime) -> RequestSpec {
        let request = self.held.remove(&number).expect("it was read");
        let id = RequestId(self.sent.len() as u32);
        self.sent.push(number);
        // Its place in the order of reading names what is its own, whatever its id becomes.
        let own = Segment::Prompt(request.id);
        let (sent, prompt_tokens) = self.prompt(number, &request, own);
        let uses = self.graph.after(number).len() as u32;
        if uses > 0 {
            let told = Told {
                recorded: request.content,
                sent: sent.clone(),
                prompt_tokens,
                output: request.output,
                output_tokens: request.output_tokens,
            };
            self.told.insert(number, (told, uses));
        }
        for before in self.graph.before(number) {
            if let Some((_, uses)) = self.told.get_mut(before) {
                *uses -= 1;
                if *uses == 0 {
                    self.told.remove(before);
                }
            }
        }
        RequestSpec { id, arrival, prompt_tokens, content: Content::Pieces(sent), ..request }
    }

    /// What the prompt of `request` consists of, and its length.
    fn prompt(&mut self, number: u32, request: &RequestSpec, own: Segment) -> (Vec<Piece>, u32) {
        let as_recorded = || match &request.content {
            Content::Pieces(pieces) => pieces.clone(),
            Content::Private if request.prompt_tokens > 0 => {
                vec![Piece { segment: own, tokens: request.prompt_tokens }]
            }
            Content::Private => Vec::new(),
        };
        let before = self.graph.before(number);
        let mut told = before.iter().filter_map(|before| Some(&self.told.get(before)?.0));
        let made = if request.turn.as_ref().is_some_and(|turn| turn.continues) {
            told.next().map(|told| {
                // No engine takes a prompt that cannot be numbered.
                let too_long = || (vec![Piece { segment: own, tokens: u32::MAX }], u32::MAX);
                let (pieces, tokens) = told.with(as_recorded()).unwrap_or_else(too_long);
                (pieces, tokens, true)
            })
        } else {
            let tokens = request.prompt_tokens;
            let repeats = told.filter_map(|told| told.repeated(&request.content, tokens, own));
            let longest = repeats.max_by_key(|repeated| repeated.tokens);
            longest.map(|repeated| (repeated.pieces, tokens, repeated.goes_on))
        };
        let goes_on = made.as_ref().is_some_and(|&(_, _, goes_on)| goes_on);
        if !before.is_empty() {
            self.counts.continued += u32::from(goes_on);
            self.counts.restarted += u32::from(!goes_on);
        }
        let plain = || (as_recorded(), request.prompt_tokens);
        made.map_or_else(plain, |(pieces, tokens, _)| (pieces, tokens))
    }

    fn ended(&mut self, id: RequestId, at: SimTime) {
        let number = self.sent[id.index()];
        for &after in self.graph.after(number) {
            let (waits, ready) = (&mut self.waits[after as usize], &mut self.ready[after as usize]);
            *waits -= 1;
            *ready = at.max(*ready);
            if *waits == 0 {
                self.wanted.push_back(after);
            }
        }
        if let Some(users) = &mut self.users {
            let left = &mut users.left[self.graph.group(number) as usize];
            *left -= 1;
            if users.counts == Counts::Requests || *left == 0 {
                users.is_free(at);
            }
        }
    }
}

/// A pause times a factor.
fn scaled(pause: SimDuration, factor: f64) -> SimDuration {
    if factor.total_cmp(&1.0).is_eq() {
        return pause;
    }
    // The conversion saturates.
    SimDuration::from_ns((pause.as_ns() as f64 * factor).round() as u64)
}

impl<S: RequestSource> RequestSource for Sessions<S> {
    fn next_arrival(&mut self) -> Result<Option<SimTime>, TraceError> {
        let Some(following) = &mut self.following else { return self.inner.next_arrival() };
        following.look_ahead(&mut self.inner)?;
        match following.next() {
            Some((late, _)) if late > SimTime::LATEST_INPUT => {
                Err(TraceError::TooLate { path: following.path.clone(), s: late.as_s() })
            }
            next => Ok(next.map(|(arrival, _)| arrival)),
        }
    }

    fn take(&mut self) -> RequestSpec {
        match &mut self.following {
            Some(following) => following.take(),
            None => self.inner.take(),
        }
    }

    fn follows_ends(&self) -> bool {
        match &self.following {
            Some(following) => matches!(following.rule, Rule::Pauses { .. }),
            None => self.inner.follows_ends(),
        }
    }

    fn ended(&mut self, id: RequestId, at: SimTime) {
        match &mut self.following {
            Some(following) => following.ended(id, at),
            None => self.inner.ended(id, at),
        }
    }

    fn class_names(&self) -> &[String] {
        self.inner.class_names()
    }
}
