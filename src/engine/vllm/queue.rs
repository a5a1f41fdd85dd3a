//! The waiting queue, in either policy.

use std::collections::{BTreeSet, VecDeque};

use crate::base::ids::{RequestId, SlotId};
use crate::base::time::SimTime;
use crate::engine::arena::Request;

/// A place in the order of the priority policy (R5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PriorityKey {
    priority: i32,
    arrival: SimTime,
    id: RequestId,
    slot: SlotId,
}

impl PriorityKey {
    fn of(slot: SlotId, request: &Request) -> Self {
        let &Request { priority, arrival, id, .. } = request;
        Self { priority, arrival, id, slot }
    }
}

/// Requests that wait for admission.
#[derive(Clone, Debug)]
pub(crate) enum WaitingQueue {
    /// First come, first served; the preempted come first of all (R4).
    Fcfs(VecDeque<SlotId>),
    /// Smallest priority first, then earliest arrival (R5).
    Priority(BTreeSet<PriorityKey>),
}

impl WaitingQueue {
    /// An empty queue.
    pub(crate) fn new(by_priority: bool) -> Self {
        if by_priority { Self::Priority(BTreeSet::new()) } else { Self::Fcfs(VecDeque::new()) }
    }

    /// A request arrives.
    pub(crate) fn push(&mut self, slot: SlotId, request: &Request) {
        match self {
            Self::Fcfs(queue) => queue.push_back(slot),
            Self::Priority(queue) => {
                queue.insert(PriorityKey::of(slot, request));
            }
        }
    }

    /// A preempted request comes back.
    pub(crate) fn push_preempted(&mut self, slot: SlotId, request: &Request) {
        match self {
            Self::Fcfs(queue) => queue.push_front(slot),
            Self::Priority(_) => self.push(slot, request),
        }
    }

    /// Who is next.
    pub(crate) fn head(&self) -> Option<SlotId> {
        match self {
            Self::Fcfs(queue) => queue.front().copied(),
            Self::Priority(queue) => queue.first().map(|key| key.slot),
        }
    }

    /// The head leaves.
    pub(crate) fn pop(&mut self) {
        match self {
            Self::Fcfs(queue) => {
                queue.pop_front();
            }
            Self::Priority(queue) => {
                queue.pop_first();
            }
        }
    }

    /// A request leaves from wherever it stands.
    pub(crate) fn remove(&mut self, slot: SlotId, request: &Request) {
        match self {
            Self::Fcfs(queue) => queue.retain(|&other| other != slot),
            Self::Priority(queue) => {
                queue.remove(&PriorityKey::of(slot, request));
            }
        }
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Fcfs(queue) => queue.len(),
            Self::Priority(queue) => queue.len(),
        }
    }

    /// Who waits, in order.
    pub(crate) fn slots(&self) -> Vec<SlotId> {
        match self {
            Self::Fcfs(queue) => queue.iter().copied().collect(),
            Self::Priority(queue) => queue.iter().map(|key| key.slot).collect(),
        }
    }
}
