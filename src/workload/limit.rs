//! A client that has only so many requests under way, as `--max-concurrency` of load generators.
//!
//! Requests go out in order, each at its own time or when one of those before it has ended, whichever
//! is later. A request arrives when it goes out: what it waits on the client's side is in no latency,
//! as with those tools, and is told here.

use std::collections::VecDeque;

use serde::Serialize;

use super::request::RequestSpec;
use super::source::RequestSource;
use super::trace::TraceError;
use crate::base::ids::RequestId;
use crate::base::time::{SimDuration, SimTime};

/// A source behind a limit of requests under way.
pub(crate) struct Limited<S> {
    inner: S,
    /// When each free place became free, earliest first; `None`: there is no limit.
    free: Option<Places>,
    queue: ClientQueue,
}

#[derive(Debug)]
struct Places {
    /// Places that nobody has had.
    fresh: u32,
    /// When others were given back, earliest first.
    back: VecDeque<SimTime>,
}

/// How long requests waited on the client's side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct ClientQueue {
    /// Requests that waited.
    pub(crate) requests: u64,
    /// Mean wait over all requests.
    pub(crate) mean_ms: Option<f64>,
    /// The longest wait.
    pub(crate) max_ms: f64,
    #[serde(skip)]
    sum_ns: u128,
    #[serde(skip)]
    all: u64,
}

impl ClientQueue {
    fn add(&mut self, wait: SimDuration) {
        self.requests += u64::from(wait > SimDuration::ZERO);
        self.all += 1;
        self.sum_ns += u128::from(wait.as_ns());
        self.max_ms = self.max_ms.max(wait.as_ms());
    }
}

impl<S: RequestSource> Limited<S> {
    /// `inner` with at most `concurrency` requests under way, at least 1; `None` is no limit.
    pub(crate) fn new(inner: S, concurrency: Option<u32>) -> Self {
        let free = concurrency.map(|fresh| Places { fresh, back: VecDeque::new() });
        Self { inner, free, queue: ClientQueue::default() }
    }

    /// The source behind the limit.
    pub(crate) fn inner(&self) -> &S {
        &self.inner
    }

    /// How long requests waited so far; `None` without a limit.
    pub(crate) fn queue(&self) -> Option<ClientQueue> {
        let mean_ns = self.queue.sum_ns as f64 / self.queue.all as f64;
        let mean = (self.queue.all > 0).then_some(mean_ns / 1e6);
        self.free.as_ref().map(|_| ClientQueue { mean_ms: mean, ..self.queue })
    }
}

impl<S: RequestSource> RequestSource for Limited<S> {
    fn next_arrival(&mut self) -> Result<Option<SimTime>, TraceError> {
        let planned = self.inner.next_arrival()?;
        let Some(places) = &self.free else { return Ok(planned) };
        Ok(planned.and_then(|planned| match places.fresh {
            0 => places.back.front().map(|&back| planned.max(back)),
            _ => Some(planned),
        }))
    }

    fn take(&mut self) -> RequestSpec {
        let Some(places) = &mut self.free else { return self.inner.take() };
        let mut request = self.inner.take();
        if let Some(left) = places.fresh.checked_sub(1) {
            places.fresh = left;
        } else {
            let back = places.back.pop_front().expect("the caller asks first");
            let planned = request.arrival;
            request.arrival = planned.max(back);
            self.queue.add(request.arrival.since(planned));
            return request;
        }
        self.queue.add(SimDuration::ZERO);
        request
    }

    fn follows_ends(&self) -> bool {
        self.free.is_some() || self.inner.follows_ends()
    }

    fn ended(&mut self, id: RequestId, at: SimTime) {
        if let Some(places) = &mut self.free {
            // A token is told of before it is visible, so that a refusal may come in between.
            let place = places.back.partition_point(|&other| other <= at);
            places.back.insert(place, at);
        }
        if self.inner.follows_ends() {
            self.inner.ended(id, at);
        }
    }

    fn class_names(&self) -> &[String] {
        self.inner.class_names()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::synthetic::SyntheticSource;
    use crate::workload::synthetic::config::SyntheticConfig;

    fn limited(concurrency: Option<u32>) -> Limited<SyntheticSource> {
        let yaml = "{requests: 4, arrivals: {constant: {requests_per_s: 1}}}";
        let config: SyntheticConfig = serde_saphyr::from_str(yaml).unwrap();
        Limited::new(SyntheticSource::new(&config, 0).unwrap(), concurrency)
    }

    fn at(s: u64) -> SimTime {
        SimTime::from_ns(s * 1_000_000_000)
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let mut source = limited(None);
        assert!(!source.follows_ends() && source.queue().is_none());
        let arrivals = [(); 4].map(|()| source.take().arrival);
        assert_eq!(arrivals, [at(0), at(1), at(2), at(3)]);
    }

    #[test]
    fn requests_wait_for_a_place_in_their_order() {
        // Planned at 0, 1, 2 and 3 s, two at a time.
        let mut source = limited(Some(2));
        assert!(source.follows_ends());
        assert_eq!([source.take().arrival, source.take().arrival], [at(0), at(1)]);
        assert_eq!(source.next_arrival().unwrap(), None);
        // One goes at 7 s in the place of the second, 5 s late; the other in that of the first, 6.
        source.ended(RequestId(0), at(9));
        source.ended(RequestId(1), at(7));
        assert_eq!(source.next_arrival().unwrap(), Some(at(7)));
        assert_eq!([source.take().arrival, source.take().arrival], [at(7), at(9)]);
        source.ended(RequestId(2), at(20));
        assert_eq!(source.next_arrival().unwrap(), None, "all were sent");
        let queue = source.queue().unwrap();
        assert_eq!((queue.requests, queue.mean_ms, queue.max_ms), (2, Some(2750.0), 6000.0));
    }

    #[test]
    fn a_free_place_is_used_at_the_planned_time() {
        let mut source = limited(Some(1));
        source.take();
        source.ended(RequestId(0), SimTime::from_ns(5));
        assert_eq!(source.next_arrival().unwrap(), Some(at(1)));
    }
}
