//! Named random streams of one seed: a new consumer never shifts another's draws.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::digest::Digest;

/// The stream called `name` of `seed`.
pub(crate) fn stream(seed: u64, name: &str) -> ChaCha8Rng {
    let mut digest = Digest::new();
    for byte in name.bytes() {
        digest.add(u64::from(byte));
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(digest.finish());
    rng
}
