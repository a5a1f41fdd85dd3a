//! The `model` and `accelerator` parts of a scenario: a name, or the figures.

use std::fmt;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::accelerator::Accelerator;
use super::shape::{DataType, ModelShape};
use super::{hugging_face, presets};
use crate::base::config::ConfigError;

/// The model that is served: one of `preset`, `config` and `shape`. A name alone is a preset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields, default)]
#[schemars(extend("type" = ["object", "string"]))]
pub(crate) struct ModelConfig {
    /// A model of `servesim presets`, by its name or its Hugging Face id.
    pub(crate) preset: Option<String>,
    /// A Hugging Face `config.json`, or the folder it is in.
    pub(crate) config: Option<PathBuf>,
    /// The figures themselves.
    pub(crate) shape: Option<ModelShape>,
    /// How weights are stored; absent: as the preset, `config.json` or shape says.
    pub(crate) weight_type: Option<DataType>,
    /// How keys and values are stored; absent: as the preset, `config.json` or shape says.
    pub(crate) kv_type: Option<DataType>,
}

/// What it is served on: one of `preset` and `data_sheet`. A name alone is a preset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields, default)]
#[schemars(extend("type" = ["object", "string"]))]
pub(crate) struct AcceleratorConfig {
    /// An accelerator of `servesim presets`, by its name.
    pub(crate) preset: Option<String>,
    /// The figures themselves.
    pub(crate) data_sheet: Option<Accelerator>,
}

impl ModelConfig {
    /// A preset by its name.
    pub(crate) fn named(name: &str) -> Self {
        Self { preset: Some(name.to_owned()), ..Self::default() }
    }

    /// The same model by its figures. A relative path counts from `directory`.
    ///
    /// # Errors
    /// There is no such preset, the file cannot be read, or a figure is out of range.
    pub(crate) fn resolve(&self, directory: &Path) -> Result<(Self, ModelShape), ConfigError> {
        let mut shape = match (&self.preset, &self.config, &self.shape) {
            (Some(name), None, None) => presets::model(name)
                .map_err(|e| ConfigError { path: "preset".to_owned(), ..e })?
                .shape
                .clone(),
            (None, Some(path), None) => {
                let path = directory.join(path);
                hugging_face::read(&path).map_err(|error| ConfigError {
                    path: "config".to_owned(),
                    found: path.display().to_string(),
                    accepted: format!("a model's config.json ({error})"),
                })?
            }
            (None, None, Some(shape)) => shape.clone(),
            (None, None, None) => {
                return Err(ConfigError::new(
                    "preset",
                    "absent",
                    "one of preset, config and shape",
                ));
            }
            _ => {
                let found = "given beside another of preset, config and shape";
                return Err(ConfigError::new("preset", found, "one of the three"));
            }
        };
        if let Some(weight_type) = self.weight_type {
            shape.weight_type = weight_type;
            // Experts that are narrower than that stay as they are.
            shape.expert_weight_type =
                shape.expert_weight_type.filter(|t| t.bytes() < weight_type.bytes());
        }
        if let Some(kv_type) = self.kv_type {
            shape.kv_type = kv_type;
        }
        shape.check().map_err(|e| e.within("shape"))?;
        Ok((Self { shape: Some(shape.clone()), ..Self::default() }, shape))
    }
}

impl AcceleratorConfig {
    /// A preset by its name.
    pub(crate) fn named(name: &str) -> Self {
        Self { preset: Some(name.to_owned()), ..Self::default() }
    }

    /// The same accelerator by its figures.
    ///
    /// # Errors
    /// There is no such preset, or a figure is out of range.
    pub(crate) fn resolve(&self) -> Result<(Self, Accelerator), ConfigError> {
        let data_sheet = match (&self.preset, &self.data_sheet) {
            (Some(name), None) => presets::accelerator(name)
                .map_err(|e| ConfigError { path: "preset".to_owned(), ..e })?
                .sheet
                .clone(),
            (None, Some(data_sheet)) => data_sheet.clone(),
            (None, None) => {
                return Err(ConfigError::new("preset", "absent", "one of preset and data_sheet"));
            }
            (Some(_), Some(_)) => {
                let found = "given beside data_sheet";
                return Err(ConfigError::new("preset", found, "one of the two"));
            }
        };
        data_sheet.check().map_err(|e| e.within("data_sheet"))?;
        Ok((Self { data_sheet: Some(data_sheet.clone()), ..Self::default() }, data_sheet))
    }
}

/// Something that may be given by its name alone.
trait Named: Sized {
    fn of_name(name: &str) -> Self;
    fn of_fields<'de, D: Deserializer<'de>>(fields: D) -> Result<Self, D::Error>;
}

impl Named for ModelConfig {
    fn of_name(name: &str) -> Self {
        Self::named(name)
    }
    fn of_fields<'de, D: Deserializer<'de>>(fields: D) -> Result<Self, D::Error> {
        Self::deserialize(fields)
    }
}

impl Named for AcceleratorConfig {
    fn of_name(name: &str) -> Self {
        Self::named(name)
    }
    fn of_fields<'de, D: Deserializer<'de>>(fields: D) -> Result<Self, D::Error> {
        Self::deserialize(fields)
    }
}

struct NameOrFields<T>(PhantomData<T>);

impl<'de, T: Named> Visitor<'de> for NameOrFields<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a preset, or fields")
    }

    fn visit_str<E>(self, name: &str) -> Result<T, E> {
        Ok(T::of_name(name))
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        T::of_fields(MapAccessDeserializer::new(fields))
    }
}

impl<'de> Deserialize<'de> for ModelConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NameOrFields(PhantomData))
    }
}

impl<'de> Deserialize<'de> for AcceleratorConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NameOrFields(PhantomData))
    }
}

impl Serialize for ModelConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl Serialize for AcceleratorConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}
