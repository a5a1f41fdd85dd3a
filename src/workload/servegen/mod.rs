//! Load from a pool of clients, as ServeGen publishes them: how often each client of a production day
//! sent requests, in which bursts, and how long they were.
//!
//! Requests are drawn, not replayed. A client's window has the number of requests of its rate, spread by
//! its law (see [`gaps`]); the lengths of each come from the distributions of the part of the day (see
//! [`dataset`]), independent of when it comes. All clients are merged by time.
//!
//! Every client, window and purpose has a stream of its own: leaving out clients, or generating another
//! part of the day, shifts no draw of what stays.

pub(crate) mod config;
mod dataset;
mod dictionary;
mod files;
mod gaps;
mod pool;
#[cfg(test)]
mod shared_pools;
#[cfg(test)]
mod tests;
mod trace;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::Serialize;

use super::request::{Content, RequestSpec, Segment};
use super::source::RequestSource;
use super::trace::TraceError;
use crate::base::config::ConfigError;
use crate::base::ids::RequestId;
use crate::base::rng::Stream;
use crate::base::time::SimTime;
use config::{RATE_MAX, ServeGenConfig, ns_of_s};
use dataset::LengthDraws;
use gaps::Arrivals;
use pool::{Client, Pool};

/// Requests drawn from a pool of clients.
#[derive(Debug)]
pub(crate) struct ServeGenSource {
    clients: Vec<Sender>,
    /// The next request of each client that has one: when, and the place of the client.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    draw: Draw,
    made: u32,
    requests_max: u32,
    prompt_tokens_max: Option<u32>,
    max_tokens: Option<u32>,
    description: ServeGenDescription,
}

/// What is generated: what a report must say for the load to be understood.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ServeGenDescription {
    /// Clients of the pool.
    pub(crate) pool_clients: usize,
    /// Windows of the client that has most.
    pub(crate) pool_windows: u64,
    /// Clients that send requests in the part of the day, of those chosen.
    pub(crate) clients: usize,
    /// The part of the day that is generated, in the seconds of the pool; time 0 is `from_s`.
    pub(crate) from_s: f64,
    /// Where it ends.
    pub(crate) to_s: f64,
    /// Mean rate of the chosen clients in it, as in the pool.
    pub(crate) pool_requests_per_s: f64,
    /// What their rates are multiplied by.
    pub(crate) rate_factor: f64,
    /// Mean rate that is generated.
    pub(crate) requests_per_s: f64,
    /// Coefficient of variation of the gaps as measured, weighted by rate, of the chosen clients.
    pub(crate) interarrival_cv: f64,
    /// Whether any request has a prompt that another one can share a prefix with: a pool does not say.
    pub(crate) content_identity: bool,
    /// Fields of the pool that are not used, in alphabetical order; at most 32.
    pub(crate) ignored_fields: Vec<String>,
}

/// What the draws of all clients have in common.
#[derive(Clone, Copy, Debug)]
struct Draw {
    seed: u64,
    rate_factor: f64,
    length_correlation: f64,
    /// The part of the day, in nanoseconds.
    part_ns: (u64, u64),
}

/// A client with its next request.
#[derive(Debug)]
struct Sender {
    client: Client,
    /// The window that comes after the current one.
    following: usize,
    current: Option<Current>,
    prompt_tokens: u32,
    output_tokens: u32,
}

/// A window that is being generated.
#[derive(Debug)]
struct Current {
    arrivals: Arrivals,
    draws: LengthDraws,
    /// Which of the client's lengths it has.
    lengths: usize,
}

impl Sender {
    /// Goes on to the next request in the part of the day: when it comes.
    fn advance(&mut self, draw: &Draw) -> Option<u64> {
        loop {
            if let Some(current) = &mut self.current {
                while let Some(at_ns) = current.arrivals.next() {
                    let lengths = &self.client.lengths[current.lengths];
                    // Of a window that begins before the part, the first requests are drawn in vain.
                    let drawn = lengths.draw(draw.length_correlation, &mut current.draws);
                    (self.prompt_tokens, self.output_tokens) = drawn;
                    if (draw.part_ns.0..draw.part_ns.1).contains(&at_ns) {
                        return Some(at_ns);
                    }
                }
            }
            let window = self.client.windows.get(self.following)?;
            self.following += 1;
            if window.end_ns <= draw.part_ns.0 || window.start_ns >= draw.part_ns.1 {
                self.current = None;
                continue;
            }
            let start_s = window.start_ns as f64 / 1e9;
            let prefix = format!("workload.servegen.{}.{start_s}", self.client.number);
            let stream = Stream::new(draw.seed, &format!("{prefix}.arrivals"));
            self.current = Some(Current {
                arrivals: Arrivals::new(window, draw.rate_factor, stream),
                draws: LengthDraws::new(draw.seed, &prefix),
                lengths: window.lengths,
            });
        }
    }
}

impl ServeGenSource {
    /// The load that a resolved configuration describes.
    ///
    /// # Errors
    /// The pool cannot be read, has nothing in the window, or would send more requests than a run can
    /// number.
    pub(crate) fn open(config: &ServeGenConfig, seed: u64) -> Result<Self, TraceError> {
        let pool = Pool::read(&config.path)?;
        let within = |error: ConfigError| TraceError::from(error.within("workload.servegen"));
        let part_ns = part_of_day(config, &pool).map_err(within)?;
        let (pool_clients, pool_windows) = (pool.clients.len(), pool.windows);
        let clients = busiest(pool.clients, config.clients, part_ns);
        let seconds = (part_ns.1 - part_ns.0) as f64 / 1e9;
        let requests: f64 = clients.iter().map(|client| client.requests_within(part_ns)).sum();
        let pool_requests_per_s = requests / seconds;
        if clients.is_empty() {
            let accepted = "a part of the day in which a client sends a request";
            let found = format!("{} to {} s", s_of(part_ns.0), s_of(part_ns.1));
            return Err(within(ConfigError::new("window", found, accepted)));
        }
        let rate_factor = match (config.requests_per_s, config.rate_factor) {
            (Some(rate), _) => rate / pool_requests_per_s,
            (None, factor) => factor.unwrap_or(1.0),
        };
        let description = ServeGenDescription {
            pool_clients,
            pool_windows,
            clients: clients.len(),
            from_s: s_of(part_ns.0),
            to_s: s_of(part_ns.1),
            pool_requests_per_s,
            rate_factor,
            requests_per_s: pool_requests_per_s * rate_factor,
            interarrival_cv: weighted_cv(&clients, part_ns),
            content_identity: false,
            ignored_fields: pool.ignored,
        };
        check_rates(config, &description, &clients, requests * rate_factor).map_err(within)?;
        let length_correlation = config.length_correlation;
        let draw = Draw { seed, rate_factor, length_correlation, part_ns };
        let mut source = Self {
            clients: Vec::with_capacity(clients.len()),
            next: BinaryHeap::with_capacity(clients.len()),
            draw,
            made: 0,
            requests_max: config.requests.unwrap_or(u32::MAX),
            prompt_tokens_max: config.prompt_tokens_max,
            max_tokens: config.max_tokens,
            description,
        };
        for (place, client) in clients.into_iter().enumerate() {
            let current = None;
            let mut sender =
                Sender { client, following: 0, current, prompt_tokens: 0, output_tokens: 0 };
            source.next.extend(sender.advance(&draw).map(|at_ns| Reverse((at_ns, place))));
            source.clients.push(sender);
        }
        Ok(source)
    }

    /// What is generated.
    pub(crate) fn describe(&self) -> &ServeGenDescription {
        &self.description
    }
}

/// The part of the day that is generated, in nanoseconds of the day.
fn part_of_day(config: &ServeGenConfig, pool: &Pool) -> Result<(u64, u64), ConfigError> {
    // Arrivals later than that fit no clock.
    let (first, last) = (pool.span_ns.0, pool.span_ns.1.min(SimTime::LATEST_INPUT.as_ns()));
    let Some(window) = config.window else { return Ok((first, last)) };
    let accepted = || format!("a part of the pool's {} to {} s", s_of(first), s_of(last));
    let ns = |path, s: f64| {
        let ns = ns_of_s(s).filter(|ns| (first..=last).contains(ns));
        ns.ok_or_else(|| ConfigError::new(path, s, accepted()))
    };
    let from = ns("window.from_s", window.from_s)?;
    let to = window.to_s.map_or(Ok(last), |to_s| ns("window.to_s", to_s))?;
    if from >= to {
        return Err(ConfigError::new("window.from_s", window.from_s, accepted()));
    }
    Ok((from, to))
}

/// The clients that send something in a part of the day, at most so many, the busiest; by number.
fn busiest(mut clients: Vec<Client>, number: Option<u32>, part_ns: (u64, u64)) -> Vec<Client> {
    clients.retain(|client| client.requests_within(part_ns) > 0.0);
    if let Some(number) = number {
        let requests = |client: &Client| client.requests_within(part_ns);
        // Of equally busy ones the first numbers stay: the sort is stable.
        clients.sort_by(|a, b| requests(b).total_cmp(&requests(a)));
        clients.truncate(number as usize);
        clients.sort_by_key(|client| client.number);
    }
    clients
}

/// The measured variation of the gaps, weighted by the requests of each window in a part of the day.
fn weighted_cv(clients: &[Client], (from_ns, to_ns): (u64, u64)) -> f64 {
    let (mut sum, mut weights) = (0.0, 0.0);
    for window in clients.iter().flat_map(|client| &client.windows) {
        let (from, to) = (window.start_ns.max(from_ns), window.end_ns.min(to_ns));
        let weight = window.requests_per_s * to.saturating_sub(from) as f64;
        sum += weight * window.cv;
        weights += weight;
    }
    sum / weights
}

/// Refuses what cannot be generated: more requests than have a number.
fn check_rates(
    config: &ServeGenConfig,
    description: &ServeGenDescription,
    clients: &[Client],
    requests: f64,
) -> Result<(), ConfigError> {
    let field = if config.requests_per_s.is_some() { "requests_per_s" } else { "rate_factor" };
    let windows = clients.iter().flat_map(|client| &client.windows);
    let numbers = windows.map(|window| gaps::mean_number(window, description.rate_factor));
    let number_max = numbers.fold(0.0, f64::max);
    if description.requests_per_s > RATE_MAX || number_max >= f64::from(u32::MAX) {
        let found = format!("such that there are {} requests/s", description.requests_per_s);
        let accepted = "at most 1000000, and at most 4294967294 requests of a client in a window";
        return Err(ConfigError::new(field, found, accepted));
    }
    // The number may be off by one request a window of a client.
    if config.requests.is_none() && requests > 4e9 {
        let found = format!("absent, and the window holds {requests:.0}");
        let accepted = "an integer from 1 to 4294967294, or a window of at most 4000000000";
        return Err(ConfigError::new("requests", found, accepted));
    }
    Ok(())
}

fn s_of(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl RequestSource for ServeGenSource {
    fn next_arrival(&mut self) -> Result<Option<SimTime>, TraceError> {
        let next = self.next.peek().filter(|_| self.made < self.requests_max);
        let from_ns = self.draw.part_ns.0;
        Ok(next.map(|Reverse((at_ns, _))| SimTime::from_ns(at_ns - from_ns)))
    }

    fn take(&mut self) -> RequestSpec {
        let Reverse((at_ns, place)) = self.next.pop().expect("the caller asks first");
        let sender = &mut self.clients[place];
        let prompt_tokens = sender.prompt_tokens.min(self.prompt_tokens_max.unwrap_or(u32::MAX));
        let output_tokens = sender.output_tokens.min(self.max_tokens.unwrap_or(u32::MAX));
        self.next.extend(sender.advance(&self.draw).map(|at_ns| Reverse((at_ns, place))));
        let id = RequestId(self.made);
        self.made += 1;
        RequestSpec {
            id,
            arrival: SimTime::from_ns(at_ns - self.draw.part_ns.0),
            prompt_tokens,
            output_tokens,
            max_tokens: self.max_tokens.unwrap_or(output_tokens),
            priority: 0,
            class: 0,
            content: Content::Private,
            output: Segment::Output(id),
            line: 0,
            turn: None,
            drafts: None,
        }
    }
}
