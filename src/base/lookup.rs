//! Hashed maps that cannot be walked, so that no result depends on their order.

#![expect(clippy::disallowed_types, reason = "the one place that wraps the hashed map")]

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

use rustc_hash::FxBuildHasher;

/// A hashed map with lookups only: it has no iterator.
#[derive(Clone, Debug)]
pub(crate) struct LookupMap<K, V>(HashMap<K, V, FxBuildHasher>);

impl<K: Eq + Hash, V> LookupMap<K, V> {
    /// An empty map.
    pub(crate) fn new() -> Self {
        Self(HashMap::with_hasher(FxBuildHasher))
    }

    /// The value under `key`.
    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key)
    }

    /// The value under `key`, to be changed.
    pub(crate) fn get_mut<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.0.get_mut(key)
    }

    /// Puts `value` under `key` and returns what stood there.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    /// Takes the value under `key` out.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(key)
    }

    /// How many keys there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl<K: Eq + Hash, V> Default for LookupMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}
