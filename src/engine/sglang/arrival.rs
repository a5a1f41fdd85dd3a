//! Arrivals: what a request is when it enters the queue (A1 to A5).

use super::Sglang;
use super::part::{Part, PolicyRank};
use crate::base::ids::SlotId;
use crate::base::record::Rejection;
use crate::base::time::SimTime;
use crate::engine::arena::{Arrival, Stage};
use crate::engine::outbox::Outbox;
use crate::kv::radix::ROOT;
use crate::workload::request::{Content, Piece, RequestSpec, Segment};

/// What stands in for a prompt that was refused: one token, the same for all of them.
const REFUSED: Piece = Piece { segment: Segment::Tail { name: u64::MAX, tokens: 1 }, tokens: 1 };

impl Sglang {
    /// A request arrives; it enters the queue when the next call begins.
    pub(super) fn arrive(&mut self, arrival: &Arrival) {
        let slot = self.arena.insert(arrival);
        let part = self.part_of(arrival);
        if self.parts.len() <= slot.index() {
            self.parts.push(part);
        } else {
            self.parts[slot.index()] = part;
        }
        if let Some(drafting) = &mut self.drafting {
            drafting.open(slot, arrival.spec.id, arrival.spec.drafts.clone());
        }
        self.inbox.push(slot);
        self.requests_touched += 1;
    }

    fn part_of(&self, arrival: &Arrival) -> Part {
        let RequestSpec { id, prompt_tokens, ref content, output, .. } = arrival.spec;
        let longest = self.limits.request_tokens_max;
        // The limit is clipped by the true prompt, then the prompt is refused (A2, A3).
        let limit_tokens = self.limits.clipped_output(prompt_tokens, arrival.max_tokens);
        let is_refused = prompt_tokens.saturating_add(5) >= longest;
        let mut pieces = match content {
            _ if is_refused => vec![REFUSED],
            Content::Private => vec![Piece { segment: Segment::Prompt(id), tokens: prompt_tokens }],
            Content::Pieces(pieces) => pieces.iter().copied().filter(|p| p.tokens > 0).collect(),
        };
        let prompt_tokens = if is_refused { 1 } else { prompt_tokens };
        pieces.push(Piece { segment: output, tokens: u32::MAX - prompt_tokens });
        let stops = !arrival.ignore_eos && arrival.spec.output_tokens <= arrival.max_tokens;
        let stops_at = match (is_refused, stops) {
            (true, _) => 1,
            (false, true) => arrival.spec.output_tokens,
            (false, false) => u32::MAX,
        };
        Part {
            pieces,
            prompt_tokens,
            is_refused,
            limit_tokens,
            stops_at,
            ignores_eos: arrival.ignore_eos,
            entry: 0,
            processed_before: 0,
            outputs: 0,
            flying_samples: 0,
            coming_tokens: 0,
            reserved_tokens: 0,
            node: ROOT,
            cached_tokens: 0,
            put_tokens: 0,
            limit_decode: 0,
            is_long: false,
            looked_up: (0, 0),
            rank: PolicyRank::default(),
        }
    }

    /// Everybody who has arrived enters the queue, in order (A1).
    pub(super) fn take_in(&mut self, now: SimTime, outbox: &mut Outbox) {
        for slot in std::mem::take(&mut self.inbox) {
            self.enter_queue(slot, now, outbox);
        }
    }

    /// A request enters the queue behind everybody, or somebody is turned away (A4, A5).
    pub(super) fn enter_queue(&mut self, slot: SlotId, now: SimTime, outbox: &mut Outbox) {
        let part = &mut self.parts[slot.index()];
        part.entry = self.entries;
        part.processed_before = self.processed_tokens;
        self.entries += 1;
        if self.queue.len() as u32 >= self.limits.queued_max {
            let worst = self.worst_waiting();
            let victim = worst.filter(|&place| self.is_better(slot, self.queue[place]));
            let Some(place) = victim else {
                self.turn_away(slot, Rejection::QueueFull, now, outbox);
                return;
            };
            let turned_away = self.queue.remove(place).expect("it is in the queue");
            self.turn_away(turned_away, Rejection::QueueFull, now, outbox);
        }
        self.queue.push_back(slot);
        self.is_sorted = false;
    }

    /// The place of the worst request of the queue: lowest priority, of those the latest.
    fn worst_waiting(&self) -> Option<usize> {
        if !self.limits.by_priority {
            return None;
        }
        (0..self.queue.len()).max_by_key(|&place| {
            let slot = self.queue[place];
            (self.priority_key(slot), self.parts[slot.index()].entry)
        })
    }

    fn is_better(&self, slot: SlotId, than: SlotId) -> bool {
        self.priority_key(slot) < self.priority_key(than)
    }

    /// Smaller for better priorities (P1).
    pub(super) fn priority_key(&self, slot: SlotId) -> i64 {
        let priority = i64::from(self.arena[slot].priority);
        if self.limits.low_first { priority } else { -priority }
    }

    /// A request that holds nothing is over, and was not served.
    pub(super) fn turn_away(
        &mut self,
        slot: SlotId,
        why: Rejection,
        now: SimTime,
        outbox: &mut Outbox,
    ) {
        if let Some(drafting) = &mut self.drafting {
            drafting.close(slot);
        }
        let request = &mut self.arena[slot];
        request.stage = Stage::Finished;
        outbox.turned_away.push((request.unserved(), why, now));
        self.ended.push(slot);
    }
}
