//! Names of models.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A model of a provider, written `provider/model`; the model's own name may hold further slashes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ModelRef {
    /// The provider's name in the configuration.
    pub provider: String,
    /// The model's name as the provider knows it.
    pub model: String,
}

/// A text that is not `provider/model`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("\"{0}\" is not a model: write PROVIDER/MODEL, as in \"anthropic/claude-sonnet-4-5\"")]
pub struct ModelRefError(String);

impl ModelRef {
    /// The model `model` of `provider`.
    pub fn new(provider: impl Into<String>, model: impl Into<String>) -> Self {
        Self { provider: provider.into(), model: model.into() }
    }
}

impl JsonSchema for ModelRef {
    fn schema_name() -> Cow<'static, str> {
        "ModelRef".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^[^/]+/.+$",
            "description": "A model of a provider, as in `anthropic/claude-sonnet-4-5`.",
        })
    }
}

impl FromStr for ModelRef {
    type Err = ModelRefError;

    fn from_str(text: &str) -> Result<Self, ModelRefError> {
        match text.split_once('/') {
            Some((provider, model)) if !provider.is_empty() && !model.is_empty() => {
                Ok(Self::new(provider, model))
            }
            _ => Err(ModelRefError(text.chars().take(128).collect())),
        }
    }
}

crate::as_text!(ModelRef);

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_may_hold_slashes() {
        let model: ModelRef = "openrouter/qwen/qwen3-coder".parse().unwrap();
        assert_eq!(model, ModelRef::new("openrouter", "qwen/qwen3-coder"));
        assert_eq!(model.to_string(), "openrouter/qwen/qwen3-coder");
    }

    #[test]
    fn a_provider_or_a_model_alone_is_refused() {
        for text in ["", "/", "anthropic", "anthropic/", "/claude"] {
            assert!(text.parse::<ModelRef>().is_err(), "{text}");
        }
    }
}
