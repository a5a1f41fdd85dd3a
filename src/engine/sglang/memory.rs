//! The KV pool of an engine: free pages, and those that the radix cache owns (M1, M2, R7).

use super::config::Limits;
use super::part::Part;
use crate::kv::radix::{Found, PutIn, ROOT, RadixCache};
use crate::workload::request::Piece;

/// The pool.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    page_tokens: u32,
    pool_tokens: u32,
    available_tokens: u32,
    /// Whether priorities count; else all are 0 (R9).
    by_priority: bool,
    cache: Option<RadixCache>,
}

impl Memory {
    /// An empty pool.
    pub(super) fn new(limits: &Limits) -> Self {
        let cache =
            limits.radix_cache.then(|| RadixCache::new(limits.page_tokens, limits.eviction));
        Self {
            page_tokens: limits.page_tokens,
            pool_tokens: limits.pool_tokens,
            available_tokens: limits.pool_tokens,
            by_priority: limits.by_priority,
            cache,
        }
    }

    /// `tokens` up to a whole page.
    pub(super) const fn ceil(&self, tokens: u32) -> u32 {
        tokens.next_multiple_of(self.page_tokens)
    }

    /// Free tokens.
    pub(super) const fn available_tokens(&self) -> u32 {
        self.available_tokens
    }

    /// Cached tokens that nobody holds.
    pub(super) fn evictable_tokens(&self) -> u32 {
        self.cache.as_ref().map_or(0, RadixCache::evictable_tokens)
    }

    /// Cached tokens that somebody holds.
    pub(super) fn protected_tokens(&self) -> u32 {
        self.cache.as_ref().map_or(0, RadixCache::protected_tokens)
    }

    /// Tokens that nobody holds, cached ones included.
    pub(super) fn idle_tokens(&self) -> u32 {
        self.available_tokens + self.evictable_tokens()
    }

    /// Tokens in the cache.
    pub(super) fn cached_tokens(&self) -> u32 {
        self.evictable_tokens() + self.protected_tokens()
    }

    /// Nodes of the cache that were walked over.
    pub(super) fn touched_nodes(&self) -> u64 {
        self.cache.as_ref().map_or(0, RadixCache::touched_nodes)
    }

    /// The cache, if there is one.
    pub(super) const fn cache(&self) -> Option<&RadixCache> {
        self.cache.as_ref()
    }

    /// Whether the pool is the sum of its parts, with `held_tokens` held outside of the cache.
    pub(super) fn is_whole(&self, held_tokens: u32) -> bool {
        self.idle_tokens() + self.protected_tokens() + held_tokens == self.pool_tokens
    }

    /// Makes room for `tokens` tokens, as far as there is something to evict (M2).
    pub(super) fn make_room(&mut self, tokens: u64) {
        let missing = tokens.saturating_sub(self.available_tokens.into());
        if missing > 0
            && let Some(cache) = &mut self.cache
        {
            let missing = u32::try_from(missing).unwrap_or(u32::MAX);
            self.available_tokens += cache.evict(missing);
        }
    }

    /// Takes `tokens` tokens, in whole pages, that are available.
    pub(super) fn take(&mut self, tokens: u32) {
        debug_assert_eq!(tokens % self.page_tokens, 0);
        self.available_tokens -= tokens;
    }

    /// How much of the first `tokens` tokens of a sequence is cached.
    pub(super) fn look_up(&mut self, pieces: &[Piece], tokens: u32) -> Found {
        let nothing = Found { node: ROOT, tokens: 0 };
        self.cache.as_mut().map_or(nothing, |cache| cache.look_up(pieces, tokens))
    }

    /// Holds `found` for the request of `part`.
    pub(super) fn hold(&mut self, part: &mut Part, found: Found) {
        debug_assert!(!part.holds());
        if let Some(cache) = &mut self.cache {
            cache.hold(found.node);
        }
        part.node = found.node;
        part.cached_tokens = found.tokens;
    }

    /// The request of `part` holds nothing of the cache any more.
    pub(super) fn let_go(&mut self, part: &mut Part) {
        if let Some(cache) = &mut self.cache {
            cache.let_go(part.node);
        }
        part.node = ROOT;
        part.cached_tokens = 0;
        part.put_tokens = 0;
    }

    /// Puts the first `tokens` tokens of a request into the cache; its hold moves to their end (R7).
    pub(super) fn keep(&mut self, part: &mut Part, tokens: u32, priority: i32) {
        let Some(cache) = &mut self.cache else { return };
        let found = put_in(cache, part, tokens, self.by_priority, priority);
        // What others have put in meanwhile was computed in vain.
        self.available_tokens += found.tokens - part.cached_tokens;
        cache.let_go(part.node);
        cache.hold(found.node);
        part.node = found.node;
        part.cached_tokens = tokens - tokens % self.page_tokens;
        part.put_tokens = part.cached_tokens;
    }

    /// Takes everything back from a request that has ended with `tokens` tokens allocated, of which the
    /// first `kept_tokens` go into the cache (F5).
    pub(super) fn end(&mut self, part: &mut Part, tokens: u32, kept_tokens: u32, priority: i32) {
        self.available_tokens += self.ceil(tokens) - part.cached_tokens;
        if let Some(cache) = &mut self.cache {
            let found = put_in(cache, part, kept_tokens, self.by_priority, priority);
            let kept_tokens = kept_tokens - kept_tokens % self.page_tokens;
            self.available_tokens -= kept_tokens - found.tokens;
        }
        self.let_go(part);
    }

    /// Takes everything back from a request that loses its KV with `tokens` tokens allocated, and
    /// nothing is kept (D6).
    pub(super) fn drop_all(&mut self, part: &mut Part, tokens: u32) {
        self.available_tokens += self.ceil(tokens) - part.cached_tokens;
        self.let_go(part);
    }

    /// The free tokens and the cache, as text.
    #[cfg(test)]
    pub(super) fn state(&self) -> String {
        format!("{} free, {:?}", self.available_tokens, self.cache)
    }
}

/// Puts the whole pages of the first `tokens` tokens of a request in.
fn put_in(
    cache: &mut RadixCache,
    part: &Part,
    tokens: u32,
    by_priority: bool,
    priority: i32,
) -> Found {
    let priority = if by_priority { i64::from(priority) } else { 0 };
    let known_tokens = part.put_tokens;
    let mut sequence = PutIn { pieces: &part.pieces, tokens, priority, known_tokens };
    let found = cache.put_in(sequence);
    if tokens > part.prompt_tokens {
        // So that the prompt can be found, and go, without the output.
        sequence.tokens = part.prompt_tokens;
        sequence.priority += 1;
        sequence.known_tokens = u32::MAX;
        cache.put_in(sequence);
    }
    found
}
