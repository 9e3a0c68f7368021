//! What is configured of billing.

use std::collections::BTreeSet;

use playhouse_policy::Pattern;
use playhouse_protocol::ModelRef;
use playhouse_protocol::attribution::MOST_LABELS;
use playhouse_protocol::ledger::Tier;

use super::document::Value;
use super::keys::KeyName;
use super::settings::Settings;

/// The longest pattern, in bytes.
const LONGEST_PATTERN: usize = 256;
/// The longest name of a label, in bytes.
const LONGEST_LABEL_NAME: usize = 64;

/// What is configured of billing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BillingSettings {
    /// Patterns of the models whose use counts as light, as `provider/model`.
    pub light: Vec<Pattern>,
    /// The keys of a session's metadata that are labels of its usage.
    pub labels: Vec<String>,
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
        (KeyName::BillingLabels, Value::List(list)) => settings.billing.labels = labels(list)?,
        _ => return Err("does not belong here".to_owned()),
    }
    Ok(())
}

/// Names of labels: they stand in queries, between commas.
fn labels(list: &[String]) -> Result<Vec<String>, String> {
    if list.len() > MOST_LABELS {
        return Err(format!("names {} labels: name {MOST_LABELS} at most", list.len()));
    }
    let is_name = |text: &str| {
        (1..=LONGEST_LABEL_NAME).contains(&text.len())
            && !text.contains(|c: char| c == ',' || c.is_whitespace() || c.is_control())
    };
    if let Some(wrong) = list.iter().find(|name| !is_name(name)) {
        return Err(format!(
            "holds \"{}\": a label has 1 to {LONGEST_LABEL_NAME} bytes, without commas, spaces and control characters",
            wrong.escape_debug()
        ));
    }
    let mut seen = BTreeSet::new();
    match list.iter().find(|name| !seen.insert(*name)) {
        Some(twice) => Err(format!("names \"{twice}\" twice")),
        None => Ok(list.to_vec()),
    }
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
    fn labels_have_names_that_queries_can_say() {
        let of = |names: &[&str]| labels(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["customer", "cost-centre"]).unwrap().len(), 2);
        for wrong in
            [&["a,b"][..], &[""], &["a b"], &["a", "a"], &["1", "2", "3", "4", "5", "6", "7", "8", "9"]]
        {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_model_is_light_where_a_pattern_says_so() {
        let light = ["*/claude-haiku-*", "openai/*-mini"].map(|text| pattern(text).unwrap()).to_vec();
        let billing = BillingSettings { light, ..BillingSettings::default() };
        let tier = |model: &str| billing.tier(&model.parse().unwrap());
        assert_eq!(tier("anthropic/claude-haiku-4-5"), Tier::Light);
        assert_eq!(tier("openai/gpt-5-mini"), Tier::Light);
        assert_eq!(tier("google/gemini-2.5-pro"), Tier::Pro);
        assert_eq!(BillingSettings::default().tier(&ModelRef::new("openai", "gpt-5-mini")), Tier::Pro);
        assert!(pattern("").is_err() && pattern(&"x".repeat(257)).is_err());
    }
}
