//! Made-up load: requests by description instead of from a record.

pub(crate) mod config;

use std::collections::VecDeque;

use super::request::{Content, RequestSpec, Segment};
use super::source::RequestSource;
use super::trace::TraceError;
use crate::base::ids::RequestId;
use crate::base::time::{SimDuration, SimTime};
use config::{ArrivalsConfig, LengthConfig, SyntheticConfig};

/// Requests made up as a configuration says. They share nothing.
#[derive(Clone, Debug)]
pub(crate) struct SyntheticSource {
    requests: u32,
    made: u32,
    prompt_tokens: u32,
    output_tokens: u32,
    arrivals: Arrivals,
}

/// When requests come.
#[derive(Clone, Debug)]
enum Arrivals {
    /// A fixed time after one another.
    Every(SimDuration),
    /// When an earlier one has ended; so many are under way at any time.
    ClosedLoop {
        /// Requests that are still to come at time 0.
        at_start: u32,
        /// When each of the others that are due comes, earliest first.
        due: VecDeque<SimTime>,
    },
}

impl SyntheticSource {
    /// The load that a checked configuration describes.
    pub(crate) fn new(config: &SyntheticConfig) -> Self {
        let LengthConfig::Fixed(prompt_tokens) = config.prompt_tokens;
        let LengthConfig::Fixed(output_tokens) = config.output_tokens;
        let arrivals = match config.arrivals {
            ArrivalsConfig::Constant(rate) => {
                let gap = SimDuration::from_ms(1e3 / rate.requests_per_s);
                Arrivals::Every(gap.expect("checked when resolved"))
            }
            ArrivalsConfig::ClosedLoop(users) => {
                Arrivals::ClosedLoop { at_start: users.concurrency, due: VecDeque::new() }
            }
        };
        Self { requests: config.requests, made: 0, prompt_tokens, output_tokens, arrivals }
    }
}

impl RequestSource for SyntheticSource {
    fn next_arrival(&mut self) -> Result<Option<SimTime>, TraceError> {
        if self.made == self.requests {
            return Ok(None);
        }
        Ok(match &self.arrivals {
            Arrivals::Every(gap) => Some(SimTime::from_ns(u64::from(self.made) * gap.as_ns())),
            Arrivals::ClosedLoop { at_start: 1.., .. } => Some(SimTime::ZERO),
            Arrivals::ClosedLoop { due, .. } => due.front().copied(),
        })
    }

    fn take(&mut self) -> RequestSpec {
        let arrival = self.next_arrival().ok().flatten().expect("the caller asks first");
        let id = RequestId(self.made);
        self.made += 1;
        if let Arrivals::ClosedLoop { at_start, due } = &mut self.arrivals {
            match at_start.checked_sub(1) {
                Some(left) => *at_start = left,
                None => _ = due.pop_front(),
            }
        }
        RequestSpec {
            id,
            arrival,
            prompt_tokens: self.prompt_tokens,
            output_tokens: self.output_tokens,
            max_tokens: self.output_tokens,
            priority: 0,
            content: Content::Private,
            output: Segment::Output(id),
            line: 0,
        }
    }

    fn follows_ends(&self) -> bool {
        matches!(self.arrivals, Arrivals::ClosedLoop { .. })
    }

    fn ended(&mut self, _id: RequestId, at: SimTime) {
        if let Arrivals::ClosedLoop { due, .. } = &mut self.arrivals {
            // A token is told of before it is visible, so that a refusal may come in between.
            let place = due.partition_point(|&other| other <= at);
            due.insert(place, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::config::{ClosedLoopConfig, ConstantConfig};
    use super::*;

    fn source(arrivals: ArrivalsConfig) -> SyntheticSource {
        SyntheticSource::new(&SyntheticConfig { requests: 3, arrivals, ..Default::default() })
    }

    #[test]
    fn a_constant_rate_spaces_arrivals_evenly() {
        let rate = ConstantConfig { requests_per_s: 4.0 };
        let mut source = source(ArrivalsConfig::Constant(rate));
        let mut arrivals = Vec::new();
        while let Some(arrival) = source.next_arrival().unwrap() {
            assert_eq!(source.take().arrival, arrival);
            arrivals.push(arrival.as_ms());
        }
        assert_eq!(arrivals, [0.0, 250.0, 500.0]);
    }

    #[test]
    fn a_closed_loop_replaces_what_has_ended() {
        let users = ClosedLoopConfig { concurrency: 2 };
        let mut source = source(ArrivalsConfig::ClosedLoop(users));
        source.take();
        source.take();
        assert_eq!(source.next_arrival().unwrap(), None);
        let end = SimTime::from_ns(70);
        source.ended(RequestId(1), end);
        assert_eq!(source.next_arrival().unwrap(), Some(end));
        assert_eq!(source.take().id, RequestId(2));
        source.ended(RequestId(0), end);
        assert_eq!(source.next_arrival().unwrap(), None, "all requests were made");
    }

    #[test]
    fn each_end_has_its_own_arrival() {
        let users = ClosedLoopConfig { concurrency: 2 };
        let mut source = source(ArrivalsConfig::ClosedLoop(users));
        source.requests = 5;
        source.take();
        source.take();
        let at = SimTime::from_ns;
        for end in [70, 90, 80] {
            source.ended(RequestId(0), at(end));
        }
        let arrivals = [source.take(), source.take(), source.take()].map(|r| r.arrival);
        assert_eq!(arrivals, [at(70), at(80), at(90)]);
    }
}
