//! Prompts that wait although they could be computed, so that passes with prompts are fuller (W1 to W5).

use super::config::Limits;

/// What a pass would hold: of one device, or what holds for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    /// Prompts, or parts of them.
    pub(super) contexts: u32,
    /// Tokens of these prompts from their starts on.
    pub(super) context_tokens: u64,
    /// Requests that decode.
    pub(super) generations: u32,
    /// Their tokens, drafts included (S1).
    pub(super) generation_tokens: u32,
}

/// The counters of both waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    batch: Option<BatchWait>,
    balance: Option<Balance>,
    active_max: u32,
}

impl Waits {
    pub(super) fn new(limits: &Limits) -> Self {
        let batches = limits.batch_wait_passes > 0 || limits.batch_wait_tokens > 0.0;
        let batch = (batches && !limits.attention_dp).then_some(BatchWait {
            passes: limits.batch_wait_passes,
            tokens: limits.batch_wait_tokens,
            waited: 0,
        });
        let balance = limits.balance.map(|(timeout, batching)| Balance {
            timeout,
            batching,
            waited: 0,
            batched: 0,
        });
        Self { batch, balance, active_max: limits.active_max }
    }

    /// Whether the prompts of `offer` are computed in this pass. Once a pass.
    pub(super) fn let_through(&mut self, offer: &Offer) -> bool {
        if let Some(balance) = &mut self.balance {
            return balance.let_through(Ranks {
                have_seats: offer.generations < self.active_max,
                have_contexts: offer.contexts > 0,
                have_generations: offer.generations > 0,
            });
        }
        // Without somebody who decodes there is nothing to wait beside (W2).
        let waits = offer.contexts > 0 && offer.generations > 0;
        self.batch.as_mut().is_none_or(|batch| !waits || batch.let_through(offer))
    }
}

/// Waits for a pass to be full enough (W1).
#[derive(Clone, Copy, Debug)]
struct BatchWait {
    /// Passes to wait, at most.
    passes: u32,
    /// Tokens that are enough.
    tokens: f64,
    waited: u32,
}

impl BatchWait {
    fn let_through(&mut self, offer: &Offer) -> bool {
        let tokens = offer.context_tokens + u64::from(offer.generation_tokens);
        let is_over = self.waited >= self.passes || tokens as f64 >= self.tokens;
        self.waited = if is_over { 0 } else { self.waited + 1 };
        is_over
    }
}

/// What holds for every device of those that wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ranks {
    have_seats: bool,
    have_contexts: bool,
    have_generations: bool,
}

/// Waits for all devices to have prompts, and then for more of them (W3, W4).
#[derive(Clone, Copy, Debug)]
struct Balance {
    /// Passes to wait for prompts everywhere.
    timeout: u32,
    /// Passes to wait for more prompts.
    batching: u32,
    waited: u32,
    batched: u32,
}

impl Balance {
    fn let_through(&mut self, ranks: Ranks) -> bool {
        if ranks.have_seats && ranks.have_contexts {
            self.waited = 0;
            if !ranks.have_generations {
                return true;
            }
            let is_over = self.batched >= self.batching;
            self.batched = if is_over { 0 } else { self.batched + 1 };
            return is_over;
        }
        self.waited += 1;
        let is_over = self.waited >= self.timeout || !ranks.have_generations;
        if is_over {
            self.waited = 0;
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many passes a prompt waits that is offered again and again.
    fn passes_waited(waits: &mut Waits, offer: Offer) -> u32 {
        (0..100).find(|_| waits.let_through(&offer)).expect("waits end")
    }

    fn waits(batch: Option<(u32, f64)>, balance: Option<(u32, u32)>) -> Waits {
        Waits {
            batch: batch.map(|(passes, tokens)| BatchWait { passes, tokens, waited: 0 }),
            balance: balance.map(|(timeout, batching)| Balance {
                timeout,
                batching,
                waited: 0,
                batched: 0,
            }),
            active_max: 8,
        }
    }

    fn offer(context_tokens: u64, generations: u32) -> Offer {
        Offer { contexts: 1, context_tokens, generations, generation_tokens: generations }
    }

    #[test]
    fn a_batch_wait_ends_at_its_limit_again_and_again() {
        let mut waits = waits(Some((3, 100.0)), None);
        for _ in 0..3 {
            assert_eq!(passes_waited(&mut waits, offer(97, 2)), 3);
        }
        // 98 prompt tokens and 2 that decode are the 100 that are enough.
        assert_eq!(passes_waited(&mut waits, offer(98, 2)), 0);
        // Nobody decodes.
        assert_eq!(passes_waited(&mut waits, offer(1, 0)), 0);
    }

    #[test]
    fn a_batch_waits_only_with_both_limits() {
        assert_eq!(passes_waited(&mut waits(Some((3, 0.0)), None), offer(1, 1)), 0);
        assert_eq!(passes_waited(&mut waits(Some((0, 100.0)), None), offer(1, 1)), 0);
    }

    #[test]
    fn a_wait_that_was_cut_short_starts_anew() {
        let mut waits = waits(Some((3, 100.0)), None);
        assert!(!waits.let_through(&offer(5, 1)));
        assert!(waits.let_through(&offer(99, 1)));
        assert_eq!(passes_waited(&mut waits, offer(5, 1)), 3);
        // A pass without prompts leaves the count as it is.
        assert!(!waits.let_through(&offer(5, 1)));
        assert!(waits.let_through(&Offer { contexts: 0, ..offer(0, 1) }));
        assert_eq!(passes_waited(&mut waits, offer(5, 1)), 2);
    }

    #[test]
    fn a_balanced_device_waits_for_more_prompts() {
        let mut waits = waits(None, Some((50, 4)));
        for _ in 0..3 {
            assert_eq!(passes_waited(&mut waits, offer(1, 1)), 4);
        }
        assert_eq!(passes_waited(&mut waits, offer(1, 0)), 0);
    }

    #[test]
    fn devices_wait_for_prompts_everywhere_up_to_the_timeout() {
        let ranks = Ranks { have_seats: true, have_contexts: false, have_generations: true };
        let mut balance = Balance { timeout: 5, batching: 4, waited: 0, batched: 0 };
        for _ in 0..3 {
            // The fifth pass is the one that does not wait.
            let waited = (0..100).find(|_| balance.let_through(ranks));
            assert_eq!(waited, Some(4));
        }
        assert!(!balance.let_through(ranks));
        assert!(balance.let_through(Ranks { have_generations: false, ..ranks }));
        assert_eq!((0..100).find(|_| balance.let_through(ranks)), Some(4));
    }
}
