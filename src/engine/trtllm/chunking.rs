//! How prompts share the tokens of a pass when not all of them fit (C1 to C4).

use super::config::ContextChunkingPolicy;
use crate::base::ids::SlotId;

/// A prompt in a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// Whose it is.
    pub(super) slot: SlotId,
    /// Tokens that are still to be computed.
    pub(super) wanted: u32,
    /// Those of them that this pass computes, in whole units unless they are all.
    pub(super) tokens: u32,
}

/// Shares `room` tokens out, in units of `unit` tokens; somebody may come away with nothing.
pub(super) fn divide(
    policy: ContextChunkingPolicy,
    shares: &mut [Share],
    mut room: u32,
    unit: u32,
) {
    match policy {
        ContextChunkingPolicy::FirstComeFirstServed => {
            for share in shares {
                share.tokens = first_chunk(share.wanted, room, unit);
                room -= share.tokens;
            }
        }
        ContextChunkingPolicy::EqualProgress => divide_equally(shares, room, unit),
    }
}

/// The part of `wanted` tokens that fits into `room`: all of them, or whole units.
pub(super) const fn first_chunk(wanted: u32, room: u32, unit: u32) -> u32 {
    if wanted <= room { wanted } else { room - room % unit }
}

/// Rounds in which everybody gets another unit, or the rest of its prompt, until a round gives nothing to anybody.
/// Who finds no room for its step is passed over; a smaller step behind it may still fit.
fn divide_equally(shares: &mut [Share], mut room: u32, unit: u32) {
    shares.iter_mut().for_each(|share| share.tokens = 0);
    loop {
        let before = room;
        for share in shares.iter_mut() {
            let step = unit.min(share.wanted - share.tokens);
            if step <= room {
                share.tokens += step;
                room -= step;
            }
        }
        if room == before || room == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divided(policy: ContextChunkingPolicy, wanted: &[u32], room: u32) -> Vec<u32> {
        let share = |&wanted| Share { slot: SlotId(0), wanted, tokens: wanted };
        let mut shares: Vec<Share> = wanted.iter().map(share).collect();
        divide(policy, &mut shares, room, 8);
        shares.iter().map(|share| share.tokens).collect()
    }

    #[test]
    fn the_first_is_served_first() {
        let policy = ContextChunkingPolicy::FirstComeFirstServed;
        // 20 leave 12 of 32; that is one unit of 8, and 4 are left: nothing for 30, everything for 4.
        assert_eq!(divided(policy, &[20, 30, 30, 4], 32), [20, 8, 0, 4]);
        // 33 do not fit into 33 less 1.
        assert_eq!(divided(policy, &[33], 32), [32]);
        assert_eq!(divided(policy, &[33], 33), [33]);
        assert_eq!(divided(policy, &[20], 7), [0]);
    }

    #[test]
    fn everybody_makes_equal_progress() {
        let policy = ContextChunkingPolicy::EqualProgress;
        // Two rounds of 8 for each of two.
        assert_eq!(divided(policy, &[100, 100], 32), [16, 16]);
        // 8, 8 and 5 leave 11: 8 more for the first, and 3 for nobody.
        assert_eq!(divided(policy, &[100, 100, 5], 32), [16, 8, 5]);
        // 30 - 8 - 8 - 8 = 6: no unit fits, but the rest of 4 does.
        assert_eq!(divided(policy, &[100, 100, 12], 30), [8, 8, 12]);
        assert_eq!(divided(policy, &[100], 7), [0]);
    }
}
