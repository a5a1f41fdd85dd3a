//! The order of the queue (P1 to P9).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Sglang;
use super::config::SchedulePolicy;
use super::part::PolicyRank;
use crate::base::ids::SlotId;
use crate::kv::radix::{EvictionPolicy, PutIn, ROOT, RadixCache};

/// Waiting requests above which policies that look at the cache do not (P3).
const LOOK_UPS_MAX: usize = 128;
/// A hit up to this is short, and a look at other waiting requests is worth it (P4).
const SHORT_HIT_TOKENS: u32 = 32;
/// What a request has in common with an earlier one that makes it late (P4).
const COMMON_TOKENS: u32 = 32;
/// Sorts from one refreshing of the waiting prefixes to the next (P9).
const REFRESH_SORTS: u64 = 32;

impl Sglang {
    /// Brings the queue into the order of the policy.
    pub(super) fn sort_queue(&mut self) {
        if self.queue.is_empty() {
            return;
        }
        let refreshes = self.sorts.is_multiple_of(REFRESH_SORTS);
        self.sorts += 1;
        let is_long = self.queue.len() > LOOK_UPS_MAX;
        match self.limits.policy {
            SchedulePolicy::Lpm if !is_long => {
                self.look_everybody_up();
                self.sort_by_key(|scheduler, slot| {
                    let PolicyRank { hit_tokens, is_late, .. } = scheduler.parts[slot.index()].rank;
                    (is_late, Reverse(if is_late { 0 } else { hit_tokens }))
                });
                return;
            }
            SchedulePolicy::DfsWeight => {
                self.look_everybody_up();
                self.sort_by_subtree();
                return;
            }
            SchedulePolicy::Hrrn if !is_long => {
                self.look_everybody_up();
                self.sort_by_response_ratio();
                return;
            }
            SchedulePolicy::ShortestPrefillFirst => {
                self.look_everybody_up();
                self.sort_by_key(|scheduler, slot| {
                    let part = &scheduler.parts[slot.index()];
                    (part.rank.is_late, scheduler.uncached(slot).max(1), part.entry)
                });
                return;
            }
            SchedulePolicy::Lpm | SchedulePolicy::Hrrn => {}
            SchedulePolicy::Fcfs if self.limits.by_priority => self.sort_once(|scheduler, slot| {
                (scheduler.priority_key(slot), scheduler.parts[slot.index()].entry)
            }),
            SchedulePolicy::Fcfs => {}
            SchedulePolicy::Lof => self.sort_once(|scheduler, slot| {
                let limit = Reverse(scheduler.parts[slot.index()].limit_tokens);
                let by_priority = scheduler.limits.by_priority;
                (if by_priority { scheduler.priority_key(slot) } else { 0 }, limit)
            }),
        }
        if refreshes {
            self.refresh_prefixes();
        }
    }

    fn sort_by_key<K: Ord>(&mut self, key: impl Fn(&Self, SlotId) -> K) {
        let mut queue = std::mem::take(&mut self.queue);
        queue.make_contiguous().sort_by_cached_key(|&slot| key(self, slot));
        self.queue = queue;
    }

    /// Sorts by what does not change while a request waits, and so only if somebody has come.
    fn sort_once<K: Ord>(&mut self, key: impl Fn(&Self, SlotId) -> K) {
        if !self.is_sorted {
            self.sort_by_key(key);
            self.is_sorted = true;
        }
    }

    /// Tokens of a waiting request that the policy's look-up did not find.
    pub(super) fn uncached(&self, slot: SlotId) -> u32 {
        let part = &self.parts[slot.index()];
        part.length(part.outputs) - part.rank.hit_tokens
    }

    /// Looks every waiting request up, in the order of the queue (P4).
    fn look_everybody_up(&mut self) {
        // Of the earlier requests of this queue that hit little: pages of one token, whatever the
        // pool's are.
        let mut earlier = RadixCache::new(1, EvictionPolicy::Lru);
        for place in 0..self.queue.len() {
            let slot = self.queue[place];
            let part = &mut self.parts[slot.index()];
            let length = part.length(part.outputs);
            let found = self.memory.look_up(&part.pieces, length);
            let mut is_late = false;
            if found.tokens <= SHORT_HIT_TOKENS {
                is_late = earlier.look_up(&part.pieces, length).tokens >= COMMON_TOKENS;
                if !is_late {
                    earlier.put_in(PutIn {
                        pieces: &part.pieces,
                        tokens: length,
                        priority: 0,
                        known_tokens: 0,
                    });
                }
            }
            let hit_tokens = found.tokens.min(length - 1);
            part.rank = PolicyRank { hit_tokens, node: found.node, is_late };
            part.looked_up = (length, hit_tokens);
        }
        self.requests_touched += self.queue.len() as u64;
    }

    /// Walks the cache from the root, the child with the most waiting requests first (P5).
    fn sort_by_subtree(&mut self) {
        let cache = self.memory.cache().expect("without a cache the policy is another (P2)");
        let mut own: BTreeMap<u32, Vec<SlotId>> = BTreeMap::new();
        let mut weights: BTreeMap<u32, u32> = BTreeMap::new();
        for &slot in &self.queue {
            let mut node = self.parts[slot.index()].rank.node;
            own.entry(node).or_default().push(slot);
            *weights.entry(node).or_default() += 1;
            while node != ROOT {
                node = cache.parent(node);
                *weights.entry(node).or_default() += 1;
            }
        }
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for &node in weights.keys().filter(|&&node| node != ROOT) {
            children.entry(cache.parent(node)).or_default().push(node);
        }
        for siblings in children.values_mut() {
            siblings.sort_unstable_by_key(|&node| (Reverse(weights[&node]), cache.place(node)));
        }
        // A node's own requests come behind those of its subtree.
        let mut order = Vec::with_capacity(self.queue.len());
        let mut path = vec![(ROOT, 0)];
        while let Some((node, next)) = path.last_mut() {
            if let Some(&child) = children.get(node).and_then(|children| children.get(*next)) {
                *next += 1;
                path.push((child, 0));
            } else {
                order.extend(own.get(node).into_iter().flatten());
                path.pop();
            }
        }
        self.queue = order.into();
    }

    /// Sorts by the ratio of what was processed since a request came to what it still needs (P7).
    fn sort_by_response_ratio(&mut self) {
        let ratio = |scheduler: &Self, slot: SlotId| {
            let waited =
                scheduler.processed_tokens - scheduler.parts[slot.index()].processed_before;
            waited as f64 / f64::from(scheduler.uncached(slot))
        };
        // Ties, and the late among themselves, go by their ids as text.
        let mut queue = std::mem::take(&mut self.queue);
        queue.make_contiguous().sort_by(|&a, &b| {
            let late = |slot: SlotId| self.parts[slot.index()].rank.is_late;
            let id = |slot: SlotId| self.arena[slot].id.0.to_string();
            let by_ratio = || ratio(self, b).total_cmp(&ratio(self, a));
            let by_rank = match (late(a), late(b)) {
                (false, false) => by_ratio(),
                (is_late, is_other_late) => is_late.cmp(&is_other_late),
            };
            by_rank.then_with(|| id(a).cmp(&id(b)))
        });
        self.queue = queue;
    }

    /// Uses what the first waiting requests will hit, the head's last, so that it goes last (P9).
    fn refresh_prefixes(&mut self) {
        if self.limits.eviction != EvictionPolicy::Lru || self.memory.cache().is_none() {
            return;
        }
        let places = self.queue.len().min(LOOK_UPS_MAX);
        for place in (0..places).rev() {
            let part = &self.parts[self.queue[place].index()];
            self.memory.look_up(&part.pieces, part.length(part.outputs));
        }
        self.requests_touched += places as u64;
    }
}
