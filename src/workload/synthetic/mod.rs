//! Made-up load: requests by description instead of from a record.
//!
//! Arrivals come from one process, or one a class that has its own; the earliest is next. Whose
//! request it is decides lengths, prefixes and priority. Every class and every purpose has a stream
//! of its own, so that the k-th request of a class is the same whatever other classes there are.

mod class;
pub(crate) mod config;
#[cfg(test)]
mod tests;

use super::arrivals::Arrivals;
use super::lengths::Weighted;
use super::request::{RequestSpec, Segment};
use super::source::RequestSource;
use super::trace::TraceError;
use crate::base::ids::RequestId;
use crate::base::lookup::LookupMap;
use crate::base::rng::Stream;
use crate::base::time::SimTime;
use class::{Class, Made};
use config::{ClassConfig, SyntheticConfig};

/// Requests made up as a configuration says.
#[derive(Debug)]
pub(crate) struct SyntheticSource {
    requests: u32,
    made: u32,
    processes: Vec<Process>,
    classes: Vec<Class>,
    names: Vec<String>,
    /// The process of each request under way, where one wants to hear of its end.
    under_way: LookupMap<RequestId, usize>,
    follows_ends: bool,
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
        let follows_ends = processes.iter().any(|process| process.arrivals.follows_ends());
        Ok(Self {
            requests: config.requests,
            made: 0,
            processes,
            classes,
            names,
            under_way: LookupMap::new(),
            follows_ends,
        })
    }

    /// The process whose request comes next, and when; of several at one instant the first.
    fn next(&self) -> Result<Option<(usize, SimTime)>, TraceError> {
        let mut first: Option<(usize, SimTime)> = None;
        for (place, process) in self.processes.iter().enumerate() {
            let next = process.arrivals.next().map_err(|e| e.within(&process.field))?;
            if let Some(time) = next.filter(|&time| first.is_none_or(|(_, best)| time < best)) {
                first = Some((place, time));
            }
        }
        Ok(first.filter(|_| self.made < self.requests))
    }
}

impl RequestSource for SyntheticSource {
    fn next_arrival(&mut self) -> Result<Option<SimTime>, TraceError> {
        Ok(self.next()?.map(|(_, time)| time))
    }

    fn take(&mut self) -> RequestSpec {
        let (place, arrival) = self.next().ok().flatten().expect("the caller asks first");
        let process = &mut self.processes[place];
        process.arrivals.take();
        let class = match &mut process.whose {
            Whose::One(class) => *class,
            Whose::Drawn(drawn) => *drawn.0.at(drawn.1.uniform()),
        };
        let id = RequestId(self.made);
        self.made += 1;
        if self.follows_ends {
            self.under_way.insert(id, place);
        }
        let kind = &mut self.classes[usize::from(class)];
        let Made { prompt_tokens, output_tokens, content } = kind.make(id);
        RequestSpec {
            id,
            arrival,
            prompt_tokens,
            output_tokens,
            max_tokens: output_tokens,
            priority: kind.priority,
            class,
            content,
            output: Segment::Output(id),
            line: 0,
            turn: None,
        }
    }

    fn follows_ends(&self) -> bool {
        self.follows_ends
    }

    fn ended(&mut self, id: RequestId, at: SimTime) {
        if let Some(place) = self.under_way.remove(&id) {
            self.processes[place].arrivals.ended(at);
        }
    }

    fn class_names(&self) -> &[String] {
        &self.names
    }
}
