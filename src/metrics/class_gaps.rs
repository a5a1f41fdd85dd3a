//! Gaps between tokens by class, for objectives that classes have of them. Every emission of every request is
//! looked at: O(tokens).

use crate::base::detail::PassDetail;
use crate::base::ids::RequestId;
use crate::base::lookup::LookupMap;
use crate::base::time::{SimDuration, SimTime};

use super::samples::Samples;

/// The gaps of the requests under way, and by class those of the others.
#[derive(Clone, Debug, Default)]
pub(super) struct ClassGaps {
    under_way: LookupMap<RequestId, Gaps>,
    exact_limit: usize,
    classes: Vec<Samples>,
}

/// The gaps of one request.
#[derive(Clone, Debug)]
struct Gaps {
    /// When the latest token came.
    latest: SimTime,
    gaps: Vec<(SimDuration, u64)>,
}

impl ClassGaps {
    pub(super) fn new(exact_limit: usize) -> Self {
        Self { exact_limit, ..Self::default() }
    }

    /// A pass ended, with all of its shares.
    pub(super) fn detail(&mut self, pass: &PassDetail) {
        for share in pass.shares.iter().filter(|share| share.emitted_tokens > 0) {
            let more = u64::from(share.emitted_tokens) - 1;
            let burst = (more > 0).then_some((SimDuration::ZERO, more));
            if let Some(request) = self.under_way.get_mut(&share.request) {
                request.gaps.push((pass.end.since(request.latest), 1));
                request.gaps.extend(burst);
                request.latest = pass.end;
            } else {
                let gaps = Gaps { latest: pass.end, gaps: burst.into_iter().collect() };
                self.under_way.insert(share.request, gaps);
            }
        }
    }

    /// A request ended, or is left.
    pub(super) fn ended(&mut self, id: RequestId, class: u16, counted: bool) {
        let Some(request) = self.under_way.remove(&id).filter(|_| counted) else { return };
        let class = usize::from(class);
        if self.classes.len() <= class {
            let limit = self.exact_limit;
            self.classes.resize_with(class + 1, || Samples::new(limit));
        }
        for (gap, count) in request.gaps {
            self.classes[class].record(gap, count);
        }
    }

    /// The gaps of the class of this number.
    pub(super) fn of_class(&mut self, class: usize) -> Option<&mut Samples> {
        self.classes.get_mut(class)
    }
}
