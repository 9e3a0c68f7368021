//! The refusal of a request.

use serde_json::Value;

/// An error with which a provider refuses a request, in the parts that wire formats write it from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The message.
    pub(crate) message: String,
    /// The parameter at fault; OpenAI's formats only.
    pub(crate) param: Option<String>,
    /// The code; OpenAI's formats only.
    pub(crate) code: Option<&'static str>,
}

impl Refusal {
    /// A refusal with status 400 that names no parameter.
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { status: 400, message: message.into(), param: None, code: None }
    }

    /// Sets the parameter at fault.
    pub(super) fn param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// A parameter that the model does not have, in OpenAI's words; `hint` follows them.
    pub(super) fn unsupported_parameter(param: &str, hint: &str) -> Self {
        let message = format!("Unsupported parameter: '{param}' is not supported with this model.{hint}");
        Self { code: Some("unsupported_parameter"), ..Self::new(message).param(param) }
    }

    /// A value that the parameter does not have for this model, in OpenAI's words.
    pub(super) fn unsupported_value(param: &str, value: &Value, model: &str, known: &[&str]) -> Self {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let known = known.join("', '");
        let message = format!(
            "Unsupported value: '{value}' is not supported with the '{model}' model. Supported values are: '{known}'."
        );
        Self { code: Some("unsupported_value"), ..Self::new(message).param(param) }
    }
}

/// The parameter `name` of `object`, unless it is absent or null.
pub(super) fn given<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    object.get(name).filter(|value| !value.is_null())
}

/// The elements of the list `name` of `object`; empty where that is no list.
pub(super) fn list<'a>(object: &'a Value, name: &str) -> &'a [Value] {
    object.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
