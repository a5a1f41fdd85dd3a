//! What SGLang chooses by the device when it is not told: the size of a chunk, the decode batches it captures CUDA
//! graphs for, and the share of the memory for weights and KV. Its release 0.5.23 resolved the same for the figures in the
//! tests.

use crate::model::accelerator::Accelerator;
use crate::model::parallel::Parallel;
use crate::model::shape::ModelShape;

/// What the defaults look at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Device {
    /// Memory of one device, in MiB.
    pub(crate) memory_mib: f64,
    /// Devices that share every layer.
    pub(crate) tensor_parallel_size: u32,
    /// Stages of layers.
    pub(crate) pipeline_parallel_size: u32,
    /// Whether the model has multi-head latent attention.
    pub(crate) mla: bool,
}

/// Chunk and largest captured decode batch where the device is not known.
pub(super) const UNKNOWN: (i32, u32) = (4096, 160);

/// The share above which a device of this many MiB leaves at least [`RESERVE_MIN_MIB`] to everything else.
const LARGE_MIB: f64 = 60.0 * 1024.0;

/// What a large device leaves at least.
const RESERVE_MIN_MIB: f64 = 10_240.0;

impl Device {
    /// An accelerator, with the model that it serves if that is known.
    ///
    /// The engine asks the driver for the memory, which states about half a percent more than an accelerator has
    /// here.
    pub(crate) fn of(accelerator: &Accelerator, model: Option<&ModelShape>, on: &Parallel) -> Self {
        Self {
            memory_mib: accelerator.memory_gb * 1e9 / (1024.0 * 1024.0),
            tensor_parallel_size: on.tensor_parallel_size,
            pipeline_parallel_size: on.pipeline_parallel_size,
            mla: model.is_some_and(|model| model.mla.is_some()),
        }
    }

    /// Tokens of a chunk, and the largest decode batch that a graph is captured for.
    pub(super) fn chunk_and_graph_batch(&self) -> (i32, u32) {
        let wide = self.tensor_parallel_size >= 4;
        let by_width = |narrow: u32, other: u32| if wide { other } else { narrow };
        match self.memory_mib / 1024.0 {
            ..20.0 => (2048, 8),
            20.0..35.0 => (4096, by_width(48, 160)),
            35.0..60.0 => (4096, by_width(32, 160)),
            60.0..160.0 => (8192, by_width(256, 512)),
            _ => (16_384, 512),
        }
    }

    /// The share of the memory for weights and KV, in thousandths, as far as they are above 0.
    ///
    /// A chunk of `chunk_tokens` (not above 0: without chunks, `max_prefill_tokens` count) is reserved for, and
    /// graphs up to a decode batch of `graph_batch`, if there are any.
    pub(super) fn mem_fraction_static(
        &self,
        chunk_tokens: i32,
        max_prefill_tokens: u32,
        graph_batch: Option<u32>,
    ) -> f64 {
        let chunk = u32::try_from(chunk_tokens).ok().filter(|&tokens| tokens > 0);
        let prefill_tokens = chunk.unwrap_or(max_prefill_tokens).max(2048);
        let devices = f64::from(self.tensor_parallel_size) * f64::from(self.pipeline_parallel_size);
        let graphs = graph_batch.map_or(0.0, |batch| {
            let prefill = if self.mla {
                1536.0
            } else {
                8.0 * f64::from(captured_prefill_sizes(chunk.unwrap_or(0)))
            };
            2.0 * f64::from(batch) + prefill
        });
        let mut reserved_mib = 512.0 + 1.5 * f64::from(prefill_tokens) + devices * 128.0 + graphs;
        if self.memory_mib > LARGE_MIB {
            reserved_mib = reserved_mib.max(RESERVE_MIN_MIB);
        }
        // The whole memory is no share that a scenario may say.
        let share = ((self.memory_mib - reserved_mib) / self.memory_mib).min(0.999);
        // Rounded as Python rounds, from the exact value of the double.
        format!("{share:.3}").parse().expect("a number that was just written")
    }
}

/// How many sizes of a prefill up to `tokens` graphs are captured for: they lie 4 apart up to 32, then 16 up to 256,
/// 32 up to 512, 64 up to 1024, 256 up to 4096, and 512 from there.
fn captured_prefill_sizes(tokens: u32) -> u32 {
    let ranges = [(0, 32, 4), (32, 256, 16), (256, 512, 32), (512, 1024, 64), (1024, 4096, 256)];
    let up_to = |from: u32, to: u32, step: u32| tokens.min(to).saturating_sub(from) / step;
    let small: u32 = ranges.into_iter().map(|(from, to, step)| up_to(from, to, step)).sum();
    small + up_to(4096, u32::MAX, 512)
}

/// The decode batches that graphs are captured for, ascending: 1, 2, 4, 8, 12, every eighth from 16 up to 256, every
/// sixteenth up to 512, every 32nd from there; the largest wanted, `graph_batch`, in any case; none larger than the
/// requests that can run, which is the last one then. With speculation they lie closer: 1 apart up to 8, then 2 up to
/// 32, 4 from 40 up to 64, 8 up to 256, and 16 from there.
pub(super) fn captured_decode_batches(
    graph_batch: u32,
    running_max: u32,
    speculates: bool,
) -> Vec<u32> {
    let largest = graph_batch.min(running_max);
    let below_largest = |&size: &u32| size < largest;
    let mut sizes: Vec<u32> = if speculates {
        let ladder = (1..=8).chain((10..=32).step_by(2)).chain((40..=64).step_by(4));
        let ladder = ladder.chain((72..=256).step_by(8)).chain((272..=graph_batch).step_by(16));
        ladder.take_while(below_largest).collect()
    } else {
        let ladder = [1, 2, 4, 8, 12].into_iter().chain((16..=256).step_by(8));
        let ladder = ladder.chain((272..512).step_by(16)).chain((512..=graph_batch).step_by(32));
        ladder.take_while(below_largest).collect()
    };
    sizes.push(largest);
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFILL: u32 = 16_384;

    fn device(memory_mib: u32, tensor_parallel_size: u32) -> Device {
        let memory_mib = f64::from(memory_mib);
        Device { memory_mib, tensor_parallel_size, pipeline_parallel_size: 1, mla: false }
    }

    fn share(device: Device) -> f64 {
        let (chunk, graphs) = device.chunk_and_graph_batch();
        device.mem_fraction_static(chunk, PREFILL, Some(graphs))
    }

    /// The rows that were resolved by the release itself, with the memory that the driver states.
    #[test]
    fn the_release_resolved_the_same() {
        for (memory_mib, size, chunk, graphs, expected) in [
            (15_360, 1, 2048, 8, 0.735),
            (24_564, 1, 4096, 48, 0.704),
            (40_960, 1, 4096, 32, 0.823),
            (46_068, 1, 4096, 32, 0.843),
            (81_559, 1, 8192, 256, 0.830),
            (81_559, 4, 8192, 512, 0.819),
            (81_559, 8, 8192, 512, 0.812),
            (143_771, 1, 8192, 256, 0.903),
            (143_771, 8, 8192, 512, 0.893),
            (183_359, 1, 16_384, 512, 0.854),
            (183_359, 8, 16_384, 512, 0.849),
        ] {
            let device = device(memory_mib, size);
            assert_eq!(device.chunk_and_graph_batch(), (chunk, graphs), "{device:?}");
            let found = share(device);
            assert_eq!(found.to_bits(), f64::to_bits(expected), "{device:?}: {found}");
        }
        assert_eq!(device(24_564, 4).chunk_and_graph_batch(), (4096, 160));
        assert_eq!(device(46_068, 4).chunk_and_graph_batch(), (4096, 160));
    }

    #[test]
    fn classes_end_below_their_gib() {
        for (gib, below, from) in [
            (20, (2048, 8), (4096, 48)),
            (35, (4096, 48), (4096, 32)),
            (60, (4096, 32), (8192, 256)),
            (160, (8192, 256), (16_384, 512)),
        ] {
            assert_eq!(device(gib * 1024 - 1, 1).chunk_and_graph_batch(), below, "{gib}");
            assert_eq!(device(gib * 1024, 1).chunk_and_graph_batch(), from, "{gib}");
        }
    }

    /// Of 81,559 MiB, in MiB.
    #[test]
    fn what_is_reserved_follows_from_chunk_graphs_and_attention() {
        let h100 = device(81_559, 1);
        let share = |reserved: f64| ((81_559.0 - reserved) / 81_559.0 * 1000.0).round() / 1000.0;
        let close = |found: f64, reserved: f64| (found - share(reserved)).abs() < 1e-9;
        // 512 + 1.5 * 8192 + 128, and no graphs; with, 2 * 256 + 8 * 58 more.
        assert!(close(h100.mem_fraction_static(8192, PREFILL, None), 12_928.0));
        assert!(close(h100.mem_fraction_static(8192, PREFILL, Some(256)), 13_904.0));
        // Fewer running requests.
        assert!(close(h100.mem_fraction_static(8192, PREFILL, Some(16)), 13_424.0));
        // Latent attention: 1536 instead of 8 * 58.
        let mla = Device { mla: true, ..h100 };
        assert!(close(mla.mem_fraction_static(8192, PREFILL, Some(256)), 14_976.0));
        // Without chunks 1.5 * 16,384, and no prefill graph.
        assert!(close(h100.mem_fraction_static(-1, PREFILL, Some(256)), 25_728.0));
        // Never less than 10 GiB on a large device: 512 + 1.5 * 2048 + 128 + 2 * 8 + 8 * 42 is less.
        assert!(close(h100.mem_fraction_static(2048, PREFILL, Some(8)), 10_240.0));
        assert!(close(h100.mem_fraction_static(16, PREFILL, None), 10_240.0));
    }

    #[test]
    fn prefill_graphs_are_counted_as_the_release_does() {
        for (tokens, expected) in [
            (0, 0),
            (3, 0),
            (4, 1),
            (47, 8),
            (48, 9),
            (2048, 42),
            (4096, 50),
            (8192, 58),
            (16_384, 74),
        ] {
            assert_eq!(captured_prefill_sizes(tokens), expected, "{tokens}");
        }
    }

    #[test]
    fn decode_graphs_are_those_of_the_release() {
        // 5 + 31 up to 256, 16 more up to 512.
        for (batch, number) in
            [(8, 4), (24, 7), (32, 8), (160, 24), (256, 36), (512, 52), (2048, 100)]
        {
            let sizes = captured_decode_batches(batch, 4096, false);
            assert_eq!((sizes.len(), sizes.last()), (number, Some(&batch)));
            assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]), "{sizes:?}");
        }
        assert_eq!(captured_decode_batches(512, 4096, false)[34..38], [248, 256, 272, 288]);
        // What is no step of the ladder is there all the same, and nothing that cannot run.
        assert_eq!(captured_decode_batches(10, 4096, false), [1, 2, 4, 8, 10]);
        assert_eq!(captured_decode_batches(256, 2, false), [1, 2]);
        assert_eq!(captured_decode_batches(256, 1, false), [1]);
        // 8 up to 8, 12 more up to 32, 7 up to 64, 24 up to 256, 16 up to 512.
        for (batch, number) in [(8, 8), (32, 20), (64, 27), (256, 51), (512, 67)] {
            let sizes = captured_decode_batches(batch, 4096, true);
            assert_eq!((sizes.len(), sizes.last()), (number, Some(&batch)));
            assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]), "{sizes:?}");
        }
        assert_eq!(captured_decode_batches(160, 48, true)[18..], [30, 32, 40, 44, 48]);
    }
}
