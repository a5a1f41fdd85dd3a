//! Public models and accelerators by name, with where their figures come from.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::accelerator::Accelerator;
use super::shape::ModelShape;
use crate::base::config::ConfigError;
use crate::base::hint::nearest;

/// A public model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelPreset {
    /// Its shape, which carries its name.
    pub(crate) shape: ModelShape,
    /// Other names of it, such as that of its repository.
    pub(crate) aliases: Vec<String>,
    /// Weights, as the publisher counts them.
    pub(crate) published_parameters: u64,
    /// Where the figures stand.
    pub(crate) sources: Vec<Source>,
}

/// An accelerator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcceleratorPreset {
    /// Its data sheet, which carries its name.
    pub(crate) sheet: Accelerator,
    /// Other names of it.
    pub(crate) aliases: Vec<String>,
    /// Where the figures stand.
    pub(crate) sources: Vec<Source>,
}

/// Where figures stand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    /// Which.
    pub(crate) figures: String,
    /// In what.
    pub(crate) document: String,
}

/// Every model, in the order of its file.
pub(crate) fn models() -> &'static [ModelPreset] {
    static MODELS: LazyLock<Vec<ModelPreset>> = LazyLock::new(|| {
        serde_saphyr::from_str(include_str!("presets/models.yaml")).expect("tests read it")
    });
    &MODELS
}

/// Every accelerator, in the order of its file.
pub(crate) fn accelerators() -> &'static [AcceleratorPreset] {
    static ACCELERATORS: LazyLock<Vec<AcceleratorPreset>> = LazyLock::new(|| {
        serde_saphyr::from_str(include_str!("presets/accelerators.yaml")).expect("tests read it")
    });
    &ACCELERATORS
}

/// The model of a name or alias, upper or lower case.
///
/// # Errors
/// There is none; the message names the nearest.
pub(crate) fn model(name: &str) -> Result<&'static ModelPreset, ConfigError> {
    let names = models().iter().map(|m| (m, m.shape.name.as_str(), m.aliases.as_slice()));
    find("model", name, names)
}

/// The accelerator of a name or alias, upper or lower case.
///
/// # Errors
/// There is none; the message names the nearest.
pub(crate) fn accelerator(name: &str) -> Result<&'static AcceleratorPreset, ConfigError> {
    let names = accelerators().iter().map(|a| (a, a.sheet.name.as_str(), a.aliases.as_slice()));
    find("accelerator", name, names)
}

fn find<T>(
    path: &str,
    name: &str,
    presets: impl Iterator<Item = (&'static T, &'static str, &'static [String])> + Clone,
) -> Result<&'static T, ConfigError> {
    let names = |(_, name, aliases): (&'static T, &'static str, &'static [String])| {
        std::iter::once(name).chain(aliases.iter().map(String::as_str))
    };
    for preset in presets.clone() {
        if names(preset).any(|known| known.eq_ignore_ascii_case(name)) {
            return Ok(preset.0);
        }
    }
    let hint = nearest(name, presets.flat_map(names))
        .map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
    let accepted = format!("a name that `servesim presets` lists{hint}");
    Err(ConfigError::new(path, format!("{name:?}"), accepted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::shape::tests::llama_8b;

    #[test]
    fn every_preset_passes_its_checks_under_a_name_of_its_own() {
        let mut names = Vec::new();
        for preset in models() {
            assert_eq!(preset.shape.check(), Ok(()), "{}", preset.shape.name);
            assert!(preset.sources.len() >= 2, "{}", preset.shape.name);
            names.push(&preset.shape.name);
            names.extend(&preset.aliases);
        }
        for preset in accelerators() {
            assert_eq!(preset.sheet.check(), Ok(()), "{}", preset.sheet.name);
            assert!(preset.sources.len() >= 2, "{}", preset.sheet.name);
            names.push(&preset.sheet.name);
            names.extend(&preset.aliases);
        }
        let mut names: Vec<_> = names.iter().map(|name| name.to_lowercase()).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn every_model_has_its_published_number_of_weights() {
        for preset in models() {
            let (ours, published) = (preset.shape.parameters(), preset.published_parameters);
            assert!(
                ours.abs_diff(published) * 100 <= published,
                "{}: {ours}, published {published}",
                preset.shape.name
            );
        }
    }

    /// The counts of the publishers' safetensors files, less the weights that no field of a shape stands for.
    #[test]
    fn weights_are_counted_to_the_last() {
        let cases: [(&str, u64, u64); 12] = [
            ("llama-2-7b", 6_738_415_616, 0),
            ("codellama-34b", 33_743_970_304, 0),
            ("llama-3.1-8b", 8_030_261_248, 0),
            ("llama-3.1-70b", 70_553_706_496, 0),
            ("llama-3.1-405b", 405_853_388_800, 0),
            ("mistral-nemo", 12_247_782_400, 0),
            ("mixtral-8x7b", 46_702_792_704, 0),
            // A bias of queries, keys and values.
            ("qwen2.5-7b", 7_615_616_512, 28 * (3584 + 2 * 512)),
            // The norms of a query and of a key head.
            ("qwen3-8b", 8_190_735_360, 36 * 2 * 128),
            ("qwen3-32b", 32_762_123_264, 64 * 2 * 128),
            ("qwen3-30b-a3b", 30_532_122_624, 48 * 2 * 128),
            ("qwen3-235b-a22b", 235_093_634_560, 94 * 2 * 128),
        ];
        for (name, published, without_field) in cases {
            let shape = &model(name).unwrap().shape;
            assert_eq!(shape.parameters() + without_field, published, "{name}");
        }
        // The norms of the compressed query and key, and the routers' biases (published without the 62nd layer).
        let deepseek = model("deepseek-v3").unwrap().shape.parameters();
        assert_eq!(deepseek + 61 * (1536 + 512) + 58 * 256, 671_026_419_200);
    }

    #[test]
    fn names_are_found_in_any_case_and_slips_get_a_hint() {
        assert_eq!(model("LLAMA-3.1-8b").unwrap().shape, llama_8b());
        let by_repository = model("meta-llama/Llama-3.1-8B-Instruct").unwrap();
        assert_eq!(by_repository.shape.name, "llama-3.1-8b");
        assert_eq!(model("llama-3.3-70b").unwrap().shape.name, "llama-3.1-70b");
        assert_eq!(accelerator("H100").unwrap().sheet.name, "h100-sxm");
        assert_eq!(
            model("lama-3.1-8b").unwrap_err().to_string(),
            "`model` is \"lama-3.1-8b\", expected a name that `servesim presets` lists; \
             did you mean `llama-3.1-8b`?"
        );
        assert_eq!(
            accelerator("zebra").unwrap_err().to_string(),
            "`accelerator` is \"zebra\", expected a name that `servesim presets` lists"
        );
    }

    #[test]
    fn peaks_are_dense() {
        // The data sheet of the H100 SXM: 1,979 with sparsity for 16 bits, 3,958 for 8.
        let h100 = &accelerator("h100").unwrap().sheet;
        assert_eq!((h100.tflops.bf16 * 2.0, h100.tflops.fp8.unwrap() * 2.0), (1979.0, 3958.0));
    }
}
