//! Communication between devices.

use super::config::RooflineConfig;
use crate::model::accelerator::Accelerator;
use crate::model::parallel::Parallel;
use crate::model::shape::ModelShape;

/// Collectives of a pass, which none of its other work hides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Collectives {
    /// Moving the data of a token.
    token_ms: f64,
    /// What they take without data.
    pass_ms: f64,
}

impl Collectives {
    /// `None` if one device does it all.
    pub(super) fn new(
        model: &ModelShape,
        accelerator: &Accelerator,
        parallel: Parallel,
        config: &RooflineConfig,
    ) -> Option<Self> {
        let tensor = parallel.tensor_parallel_size;
        let (experts, latency_ms) = (parallel.expert_devices(), config.link_latency_us / 1e3);
        let byte_ms = |gb_per_s: f64| 1.0 / (gb_per_s * 1e6 * config.link_efficiency);
        let within_ms = byte_ms(accelerator.link_gb_per_s);
        let between_ms = byte_ms(config.inter_node_gb_per_s);
        // One device that is elsewhere makes all of them wait.
        let among_ms =
            |devices| if devices <= accelerator.devices_per_node { within_ms } else { between_ms };
        let row_bytes = f64::from(model.hidden_size) * model.activation_type.bytes();
        let mut total = Self { token_ms: 0.0, pass_ms: 0.0 };
        let mut add = |count: f64, token_ms: f64| {
            total.token_ms += count * token_ms;
            total.pass_ms += count * latency_ms;
        };
        // Engines whose experts are elsewhere send tokens there and back instead of adding up slices.
        let exchanges = match model.experts {
            Some(_) if experts > tensor => model.expert_layers(),
            _ => 0,
        };
        if tensor > 1 {
            let reductions = 2.0 * f64::from(model.num_hidden_layers) - f64::from(exchanges);
            let n = f64::from(tensor);
            add(reductions, 2.0 * (n - 1.0) / n * row_bytes * among_ms(tensor));
        }
        if let Some(shape) = model.experts
            && exchanges > 0
        {
            // The devices of an engine share its tokens; all but its own share of the rows leave a device.
            let n = f64::from(experts);
            let rows = f64::from(shape.num_experts_per_tok) / f64::from(tensor) * (n - 1.0) / n;
            add(2.0 * f64::from(exchanges), rows * row_bytes * among_ms(experts));
        }
        let hops = parallel.pipeline_parallel_size - 1;
        if hops > 0 {
            let nodes = parallel.devices().div_ceil(accelerator.devices_per_node);
            let between_nodes = hops.min(nodes - 1);
            // The residual stream travels beside the activations.
            add(f64::from(hops - between_nodes), 2.0 * row_bytes * within_ms);
            add(f64::from(between_nodes), 2.0 * row_bytes * between_ms);
        }
        (total.pass_ms > 0.0 || total.token_ms > 0.0).then_some(total)
    }

    #[inline]
    pub(super) fn ms(&self, tokens: f64) -> f64 {
        self.token_ms * tokens + self.pass_ms
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{h100, ideal, mixture};
    use super::*;
    use crate::model::shape::tests::llama_8b;

    fn parallel(tensor: u32, pipeline: u32, data: u32, experts: bool) -> Parallel {
        Parallel {
            tensor_parallel_size: tensor,
            pipeline_parallel_size: pipeline,
            data_parallel_size: data,
            enable_expert_parallel: experts,
        }
    }

    fn ms(model: &ModelShape, parallel: Parallel, tokens: f64) -> f64 {
        let config = RooflineConfig { link_latency_us: 10.0, inter_node_gb_per_s: 45.0, ..ideal() };
        Collectives::new(model, &h100(), parallel, &config).map_or(0.0, |c| c.ms(tokens))
    }

    #[track_caller]
    fn is(actual: f64, expected: f64) {
        assert!((actual - expected).abs() < 1e-9 * expected, "{actual} is not {expected}");
    }

    #[test]
    fn one_device_talks_to_nobody() {
        let alone = Collectives::new(&llama_8b(), &h100(), parallel(1, 1, 4, false), &ideal());
        assert_eq!(alone, None);
    }

    #[test]
    fn two_all_reduces_a_layer() {
        // 64 of 10 us, and 64 * 2 * 3/4 * 8192 B * 1000 at 450 GB/s: 0.64 + 1.7476267 ms.
        is(ms(&llama_8b(), parallel(4, 1, 1, false), 1000.0), 0.64 + 786.432 / 450.0);
        // 16 devices are two nodes: 64 * 2 * 15/16 * 8192 B * 1000 at 45 GB/s.
        is(ms(&llama_8b(), parallel(16, 1, 1, false), 1000.0), 0.64 + 983.04 / 45.0);
    }

    #[test]
    fn stages_hand_on_two_streams() {
        // 1 hop of 2 * 8192 B * 1000 within the node.
        is(ms(&llama_8b(), parallel(1, 2, 1, false), 1000.0), 0.01 + 16.384 / 450.0);
        // 16 stages: 15 hops, one of them between nodes.
        let expected = 0.15 + 14.0 * 16.384 / 450.0 + 16.384 / 45.0;
        is(ms(&llama_8b(), parallel(1, 16, 1, false), 1000.0), expected);
    }

    #[test]
    fn tokens_go_to_experts_of_other_engines_and_back() {
        let model = mixture();
        // One engine: slices and whole experts alike end in an all-reduce.
        let slices = ms(&model, parallel(4, 1, 1, false), 100.0);
        is(ms(&model, parallel(4, 1, 1, true), 100.0), slices);
        // 4 layers, 3 with experts: 5 all-reduces over 2, of 2 * 1/2 * 128 B * 100; 6 exchanges over 8, of
        // 2 / 2 * 7/8 * 128 B * 100.
        let expected = 0.11 + (5.0 * 12_800.0 + 6.0 * 11_200.0) / 450e6;
        is(ms(&model, parallel(2, 1, 4, true), 100.0), expected);
    }
}
