//! The limits of a whole scenario, and whether its load follows from what is served.

use serde_json::json;

use super::engine::Lift;
use super::{Scenario, WorkloadConfig};
use crate::workload::arrivals::config::ArrivalsConfig;
use crate::workload::sessions::config::SessionsConfig;

impl Scenario {
    /// Its limits, each with what lifts it. Only for a resolved scenario.
    pub(crate) fn lifts(&self) -> Vec<Lift> {
        let mut lifts = self.engine.lifts();
        let ranks = self.parallel.data_parallel_size;
        if let Some(engines) = self.cluster.engines {
            let more = u64::from(engines) + u64::from(ranks);
            let what = if ranks == 1 { "one more engine" } else { "as many more engines as ranks" };
            lifts.push(Lift::of(what, &[("cluster.engines", json!(more))]));
        }
        if self.host.per_pass_host_ms > 0.0 {
            let set = [("host.per_pass_host_ms", json!(0.0))];
            lifts.push(Lift::of("no time of the host in passes", &set));
        }
        if self.host.frontend_ms > 0.0 {
            lifts.push(Lift::of("no time before the queue", &[("host.frontend_ms", json!(0.0))]));
        }
        lifts
    }

    /// Whether requests come as others end, so that a faster deployment has more to do.
    pub(crate) fn has_closed_loop(&self) -> bool {
        match &self.workload {
            WorkloadConfig::Trace(trace) => {
                let follows = matches!(
                    trace.sessions,
                    Some(SessionsConfig::Think(_) | SessionsConfig::Closed(_))
                );
                let reshape = trace.reshape.as_ref();
                follows || reshape.is_some_and(|reshape| reshape.max_concurrency.is_some())
            }
            WorkloadConfig::Synthetic(load) => {
                let mut classes = load.classes.iter().flatten();
                let is_closed =
                    |arrivals: &ArrivalsConfig| matches!(arrivals, ArrivalsConfig::ClosedLoop(_));
                load.max_concurrency.is_some()
                    || load.sessions.is_some()
                    || is_closed(&load.arrivals)
                    || classes.any(|class| {
                        class.sessions.is_some() || class.arrivals.as_ref().is_some_and(is_closed)
                    })
            }
            WorkloadConfig::ServeGen(pool) => pool.max_concurrency.is_some(),
        }
    }
}
