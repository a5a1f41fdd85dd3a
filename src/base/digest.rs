//! A 64-bit digest of a sequence of numbers: equal runs have equal digests.
//!
//! It tells runs apart; it is no defence against someone who wants two to collide.

/// Odd multiplier of the mix (the fractional part of the golden ratio, as in Fibonacci hashing).
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// A running digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digest(u64);

impl Digest {
    /// The digest of nothing.
    pub(crate) const fn new() -> Self {
        Self(0)
    }

    /// Takes the next number of the sequence in.
    pub(crate) const fn add(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(23) ^ value).wrapping_mul(MULTIPLIER);
    }

    /// Two numbers as one, for numbers that belong together.
    pub(crate) const fn mix(a: u64, b: u64) -> u64 {
        a.wrapping_mul(MULTIPLIER) ^ b.wrapping_mul(MULTIPLIER.rotate_left(31) | 1)
    }

    /// The digest of everything added so far.
    pub(crate) const fn finish(self) -> u64 {
        // One more avalanche, so that the last number reaches every bit.
        let x = self.0 ^ (self.0 >> 32);
        let x = x.wrapping_mul(MULTIPLIER);
        x ^ (x >> 29)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(values: &[u64]) -> u64 {
        let mut digest = Digest::new();
        values.iter().for_each(|&v| digest.add(v));
        digest.finish()
    }

    #[test]
    fn order_and_value_both_matter() {
        assert_eq!(digest(&[1, 2, 3]), digest(&[1, 2, 3]));
        assert_ne!(digest(&[1, 2, 3]), digest(&[1, 3, 2]));
        assert_ne!(digest(&[1, 2, 3]), digest(&[1, 2, 4]));
        assert_ne!(digest(&[1, 2]), digest(&[1, 2, 1]));
    }
}
