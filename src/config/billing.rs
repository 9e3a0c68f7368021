//! What is configured of billing.

use playhouse_policy::Pattern;
use playhouse_protocol::ModelRef;
use playhouse_protocol::ledger::Tier;

use super::document::Value;
use super::keys::KeyName;
use super::settings::Settings;

/// The longest pattern, in bytes.
const LONGEST_PATTERN: usize = 256;

/// What is configured of billing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BillingSettings {
    /// Patterns of the models whose use counts as light, as `provider/model`.
    pub light: Vec<Pattern>,
}

impl BillingSettings {
    /// How the platform charges for `model`.
    pub fn tier(&self, model: &ModelRef) -> Tier {
        let name = model.to_string();
        match self.light.iter().any(|pattern| pattern.matches(&name)) {
            true => Tier::Light,
            false => Tier::Pro,
        }
    }
}

/// Takes a setting over. A fragment says what is wrong with it.
pub(super) fn set(key: KeyName, value: &Value, settings: &mut Settings) -> Result<(), String> {
    match (key, value) {
        (KeyName::BillingLight, Value::List(list)) => {
            settings.billing.light = list.iter().map(|text| pattern(text)).collect::<Result<_, _>>()?;
        }
        _ => return Err("does not belong here".to_owned()),
    }
    Ok(())
}

fn pattern(text: &str) -> Result<Pattern, String> {
    match text.len() {
        1..=LONGEST_PATTERN => Ok(Pattern::new(text)),
        0 => Err("holds an empty pattern: write `*` for all models".to_owned()),
        _ => Err(format!("holds a pattern of more than {LONGEST_PATTERN} bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_light_where_a_pattern_says_so() {
        let light = ["*/claude-haiku-*", "openai/*-mini"].map(|text| pattern(text).unwrap()).to_vec();
        let billing = BillingSettings { light };
        let tier = |model: &str| billing.tier(&model.parse().unwrap());
        assert_eq!(tier("anthropic/claude-haiku-4-5"), Tier::Light);
        assert_eq!(tier("openai/gpt-5-mini"), Tier::Light);
        assert_eq!(tier("google/gemini-2.5-pro"), Tier::Pro);
        assert_eq!(BillingSettings::default().tier(&ModelRef::new("openai", "gpt-5-mini")), Tier::Pro);
        assert!(pattern("").is_err() && pattern(&"x".repeat(257)).is_err());
    }
}
