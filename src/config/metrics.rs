//! What is configured of metrics.

use std::collections::BTreeMap;

use playhouse_protocol::metric::label_name;
use playhouse_protocol::nearest::did_you_mean;
use playhouse_server::{MetricsAccess, MetricsToken};

use super::document::{Document, Value};
use super::error::ConfigError;
use super::keys::KeyName;
use super::provider::variable_name;
use super::settings::{Settings, Variables};

/// What is configured of metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsSettings {
    /// Who may read them.
    pub access: MetricsAccess,
    /// The variable with the token by which they are read over the network.
    pub token_env: Option<String>,
    /// Whether they tell what is spent by tenant.
    pub by_tenant: bool,
    /// The labels of usage by which they tell what is spent.
    pub labels: Vec<String>,
}

impl MetricsSettings {
    /// The token that the variable holds now.
    ///
    /// # Errors
    /// The variable that is named is not set, or empty.
    pub fn token(&self, variables: Variables<'_>) -> Result<Option<MetricsToken>, String> {
        let Some(name) = &self.token_env else { return Ok(None) };
        match variables(name).filter(|value| !value.trim().is_empty()) {
            Some(value) => Ok(Some(MetricsToken::new(value.trim()))),
            None => Err(format!("`metrics.token_env` names {name}, which is not set or empty")),
        }
    }
}

/// Takes a setting over. A fragment says what is wrong with it.
pub(super) fn set(key: KeyName, value: &Value, settings: &mut Settings) -> Result<(), String> {
    let metrics = &mut settings.metrics;
    match (key, value) {
        (KeyName::MetricsAccess, Value::Text(text)) => metrics.access = access(text)?,
        (KeyName::MetricsToken, Value::Text(text)) => metrics.token_env = Some(variable_name(text)?),
        (KeyName::MetricsLabels, Value::List(list)) => metrics.labels.clone_from(list),
        (KeyName::MetricsTenants, Value::Boolean(by_tenant)) => metrics.by_tenant = *by_tenant,
        _ => return Err("does not belong here".to_owned()),
    }
    Ok(())
}

/// Whether the labels of metrics are labels of usage that metrics can tell apart.
///
/// # Errors
/// One is not, with the line of the key.
pub(super) fn check(document: &Document, settings: &Settings) -> Result<(), ConfigError> {
    let known = &settings.billing.labels;
    let mut called = BTreeMap::new();
    for name in &settings.metrics.labels {
        let wrong = if !known.contains(name) {
            let meant = did_you_mean(name, known.iter().map(String::as_str));
            format!("holds \"{}\", which is not in `billing.labels`{meant}", name.escape_debug())
        } else if let Some(other) = called.insert(label_name(name), name) {
            format!(
                "holds \"{other}\" and \"{name}\", which are both `{}` in metrics: leave one out",
                label_name(name)
            )
        } else {
            continue;
        };
        let line = document.settings.iter().find(|setting| setting.key.name == KeyName::MetricsLabels);
        let line = line.map_or(0, |setting| setting.line);
        return Err(ConfigError::line(&document.file, line, format!("`metrics.labels` {wrong}")));
    }
    Ok(())
}

fn access(text: &str) -> Result<MetricsAccess, String> {
    MetricsAccess::ALL.into_iter().find(|access| access.name() == text).ok_or_else(|| {
        let names = MetricsAccess::ALL.map(MetricsAccess::name);
        let meant = did_you_mean(text, names);
        format!("is \"{}\", expected operator, open or off{meant}", text.escape_debug())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Settings, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        fs_err::write(&file, text).unwrap();
        Settings::load(Some(&file), &|_| None).map_err(|error| error.to_string())
    }

    #[test]
    fn metrics_are_the_operators_unless_something_else_is_said() {
        assert_eq!(load("").unwrap().metrics, MetricsSettings::default());
        let text = "metrics.access = \"open\"\nmetrics.tenants = true\nmetrics.token_env = \"SCRAPE\"";
        let metrics = load(text).unwrap().metrics;
        let expected = MetricsSettings {
            access: MetricsAccess::Open,
            token_env: Some("SCRAPE".into()),
            by_tenant: true,
            labels: Vec::new(),
        };
        assert_eq!(metrics, expected);
        let error = load("metrics.access = \"opne\"").unwrap_err();
        assert!(
            error.contains("`metrics.access`: is \"opne\"") && error.contains("did you mean \"open\"?"),
            "{error}"
        );
    }

    #[test]
    fn labels_of_metrics_are_among_those_of_billing_and_told_apart() {
        let of = |labels: &str| {
            load(&format!(
                "[billing]\nlabels = [\"customer\", \"a-b\", \"a_b\"]\n[metrics]\nlabels = {labels}"
            ))
        };
        assert_eq!(of(r#"["a-b", "customer"]"#).unwrap().metrics.labels, ["a-b", "customer"]);
        for (labels, said) in [
            (
                r#"["custmer"]"#,
                "holds \"custmer\", which is not in `billing.labels`; did you mean \"customer\"?",
            ),
            (r#"["a-b", "a_b"]"#, "holds \"a-b\" and \"a_b\", which are both `label_a_b` in metrics"),
            (r#"["customer", "customer"]"#, "are both `label_customer`"),
        ] {
            let error = of(labels).unwrap_err();
            assert!(error.contains(":4: `metrics.labels`") && error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_token_that_is_named_must_be_there() {
        let named = MetricsSettings { token_env: Some("SCRAPE".into()), ..MetricsSettings::default() };
        assert_eq!(MetricsSettings::default().token(&|_| None), Ok(None));
        let set = named.token(&|name| (name == "SCRAPE").then(|| "abc\n".to_owned())).unwrap();
        assert_eq!(set, Some(MetricsToken::new("abc")));
        for value in [None, Some(String::new()), Some(" ".to_owned())] {
            let error = named.token(&|_| value.clone()).unwrap_err();
            assert!(error.contains("SCRAPE"), "{error}");
        }
    }
}
