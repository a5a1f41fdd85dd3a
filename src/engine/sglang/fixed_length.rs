//! Admission of requests whose length is fixed, without a cache (X1 to X4).

use super::Sglang;
use super::adder::{Adder, Candidate};
use crate::base::ids::SlotId;

/// What a request still takes, and what it gives back when it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reservation {
    /// Tokens that it may still generate; not rounded.
    left_tokens: f64,
    /// Tokens that it holds.
    held_tokens: u32,
}

impl Sglang {
    /// How many tokens of a candidate of fixed length are computed now, or why it is not admitted.
    pub(super) fn fit_fixed_length(
        &mut self,
        slot: SlotId,
        uncached: u32,
        adder: &mut Adder,
    ) -> Result<u32, Candidate> {
        let idle_tokens = self.memory.idle_tokens();
        let taken = i64::from(self.memory.ceil(uncached)) + i64::from(self.limits.page_tokens);
        let rem_now = adder.rem_now(idle_tokens);
        if taken > rem_now || self.compare_with_rem_total(taken as f64, adder).is_gt() {
            return Err(Candidate::NoMemory);
        }
        self.reserve(slot, adder);
        let reservations = adder.reservations.as_deref().unwrap_or_default();
        let room = (rem_now - taken) as f64;
        let mut freed = 0.0;
        for (index, reservation) in reservations.iter().enumerate() {
            let live = (reservations.len() - index) as f64;
            // The shortest end first; until then everybody who is left takes a token a pass.
            if room + freed - reservation.left_tokens * live <= live {
                return Err(Candidate::NoMemory);
            }
            freed += f64::from(reservation.held_tokens);
        }
        match adder.chunk_tokens {
            Some(chunk_tokens) if i64::from(uncached) > chunk_tokens => {
                if chunk_tokens <= 0 {
                    Err(Candidate::Stop)
                } else {
                    Ok(chunk_tokens as u32)
                }
            }
            _ => Ok(uncached),
        }
    }

    /// Puts a candidate on the list of reservations (X2).
    fn reserve(&mut self, slot: SlotId, adder: &mut Adder) {
        let own = self.reservation(slot);
        if let Some(reservations) = &mut adder.reservations {
            if let Some(own) = own {
                let place = reservations
                    .iter()
                    .position(|other| own.left_tokens <= other.left_tokens)
                    .unwrap_or(reservations.len().saturating_sub(1));
                reservations.insert(place, own);
            }
            return;
        }
        self.requests_touched += u64::from(self.steady.size);
        let mut reservations: Vec<Reservation> = own.into_iter().collect();
        reservations.extend(self.batch().into_iter().filter_map(|slot| self.reservation(slot)));
        reservations.extend(adder.admitted().filter_map(|slot| self.reservation(slot)));
        reservations.sort_by(|a, b| a.left_tokens.total_cmp(&b.left_tokens));
        adder.reservations = Some(reservations);
    }

    fn reservation(&self, slot: SlotId) -> Option<Reservation> {
        let part = &self.parts[slot.index()];
        let outputs = self.outputs(slot);
        let ratio = if part.ignores_eos { 1.0 } else { self.new_token_ratio };
        let left_tokens = f64::from(part.limit_tokens) * ratio - f64::from(outputs);
        let held_tokens = part.length(outputs);
        (left_tokens > 0.0).then_some(Reservation { left_tokens, held_tokens })
    }
}
