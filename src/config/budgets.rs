//! What is configured of budgets.

use std::collections::BTreeMap;

use playhouse_billing::budget::{Budgets, Limits, Per, TenantBudget};
use playhouse_protocol::Cost;
use playhouse_protocol::nearest::did_you_mean;

use super::document::{Document, Value, keyed};
use super::error::ConfigError;
use super::keys::KeyName;

/// The place of a tenant's own budget in a file.
pub(super) const PATH: &str = "budgets.tenants.NAME";

/// What is configured of budgets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BudgetSettings {
    turn: Limits,
    session: Limits,
    /// Of every tenant.
    tenant: OfTenant,
    /// What single tenants have instead.
    tenants: BTreeMap<String, OfTenant>,
}

/// What is set for one tenant, or for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OfTenant {
    limits: Limits,
    per: Option<Per>,
}

impl BudgetSettings {
    /// The budgets, in which each tenant has what is set for it and otherwise what is set for all.
    pub fn budgets(&self) -> Budgets {
        let all = self.tenant;
        let budget = |of: &OfTenant| TenantBudget {
            limits: Limits {
                cost: of.limits.cost.or(all.limits.cost),
                tokens: of.limits.tokens.or(all.limits.tokens),
            },
            per: of.per.or(all.per).unwrap_or_default(),
        };
        Budgets {
            turn: self.turn,
            session: self.session,
            tenant: budget(&all),
            tenants: self.tenants.iter().map(|(name, of)| (name.clone(), budget(of))).collect(),
        }
    }
}

/// Takes a setting over, of the tenant of this name for a key below [`PATH`]. A fragment says what is wrong with it.
pub(super) fn set(
    key: KeyName,
    tenant: Option<&str>,
    value: &Value,
    budgets: &mut BudgetSettings,
) -> Result<(), String> {
    use KeyName::{
        BudgetSessionCost, BudgetSessionTokens, BudgetTenantCost, BudgetTenantPer, BudgetTenantTokens,
        BudgetTurnCost, BudgetTurnTokens, TenantCost, TenantPer, TenantTokens,
    };
    if tenant.is_some_and(str::is_empty) {
        return Err("names no tenant".to_owned());
    }
    let of_tenant = match tenant {
        Some(name) => budgets.tenants.entry(name.to_owned()).or_default(),
        None => &mut budgets.tenant,
    };
    let limits = match key {
        BudgetTurnCost | BudgetTurnTokens => &mut budgets.turn,
        BudgetSessionCost | BudgetSessionTokens => &mut budgets.session,
        _ => &mut of_tenant.limits,
    };
    match (key, value) {
        (BudgetTurnCost | BudgetSessionCost | BudgetTenantCost | TenantCost, Value::Number(dollars)) => {
            limits.cost = Some(Cost(*dollars));
        }
        (BudgetTurnTokens | BudgetSessionTokens | BudgetTenantTokens | TenantTokens, Value::Whole(count)) => {
            limits.tokens = Some(*count);
        }
        (BudgetTenantPer | TenantPer, Value::Text(text)) => of_tenant.per = Some(per(text)?),
        _ => return Err("does not belong here".to_owned()),
    }
    Ok(())
}

/// Every period is that of some limit: one without is told, as nothing would be bounded by it.
pub(super) fn check(document: &Document, budgets: &BudgetSettings) -> Result<(), ConfigError> {
    let all = &budgets.tenant;
    for setting in &document.settings {
        let message = match (setting.key.name, setting.names.as_slice()) {
            (KeyName::BudgetTenantPer, _) => {
                let takes_it = |of: &OfTenant| of.per.is_none() && !of.limits.is_none();
                if !all.limits.is_none() || budgets.tenants.values().any(takes_it) {
                    continue;
                }
                "is the period of a limit, and there is none: set `cost` or `tokens` in [budgets.tenant]"
                    .to_owned()
            }
            (KeyName::TenantPer, [name]) => {
                let own = budgets.tenants.get(name).map(|of| of.limits).unwrap_or_default();
                if !all.limits.is_none() || !own.is_none() {
                    continue;
                }
                "is the period of a limit, and this tenant has none: set `cost` or `tokens` beside it, or in [budgets.tenant]"
                    .to_owned()
            }
            _ => continue,
        };
        return Err(ConfigError::line(&document.file, setting.line, keyed(setting, &message)));
    }
    Ok(())
}

fn per(text: &str) -> Result<Per, String> {
    Per::ALL.into_iter().find(|per| per.name() == text).ok_or_else(|| {
        let meant = did_you_mean(text, Per::ALL.map(Per::name));
        format!("is \"{}\", expected day, month or ever{meant}", text.escape_debug())
    })
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::*;

    fn load(text: &str) -> Result<Budgets, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        fs_err::write(&file, text).unwrap();
        let settings = Settings::load(Some(&file), &|_| None);
        settings.map(|settings| settings.budgets.budgets()).map_err(|error| error.to_string())
    }

    fn dollars(text: &str) -> Option<Cost> {
        Some(Cost(text.parse().unwrap()))
    }

    #[test]
    fn a_tenant_has_what_is_set_for_it_and_otherwise_what_is_set_for_all() {
        assert_eq!(load(""), Ok(Budgets::default()));
        let text = "
            [budgets.tenants.acme]
            tokens = 7
            [budgets.tenants.\"a.b c\"]
            cost = 1e2
            per = \"ever\"
            [budgets.turn]
            cost = 0.50
            tokens = 100_000
            [budgets.session]
            cost = 0
            tokens = 0
            [budgets.tenant]
            cost = 20
            per = \"day\"
        ";
        let budgets = load(text).unwrap();
        assert_eq!(budgets.turn, Limits { cost: dollars("0.5"), tokens: Some(100_000) });
        assert_eq!(budgets.session, Limits { cost: dollars("0"), tokens: Some(0) }, "nothing may be used");
        let of = |name: &str| {
            let TenantBudget { limits: Limits { cost, tokens }, per } = budgets.of(name);
            (cost, tokens, per)
        };
        assert_eq!(of("local"), (dollars("20"), None, Per::Day));
        assert_eq!(of("acme"), (dollars("20"), Some(7), Per::Day));
        assert_eq!(of("a.b c"), (dollars("100"), None, Per::Ever));
        assert_eq!(load("budgets.tenant.cost = 1").unwrap().tenant.per, Per::Month);
        for (text, per) in [
            ("budgets.tenant.cost = 1\nbudgets.tenants.a.per = \"day\"", Per::Day),
            ("budgets.tenant.per = \"day\"\nbudgets.tenants.a.tokens = 0", Per::Day),
            ("budgets.tenants.a.per = \"ever\"\nbudgets.tenants.a.cost = 1", Per::Ever),
        ] {
            assert_eq!(load(text).unwrap().of("a").per, per, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, said) in [
            (
                "[budgets.tenant]\nper = \"day\"",
                "config.toml:2: `budgets.tenant.per`: is the period of a limit, and there is none: set `cost` or `tokens`",
            ),
            (
                "budgets.tenant.per = \"day\"\nbudgets.tenants.a = { per = \"ever\", cost = 1 }",
                "config.toml:1: `budgets.tenant.per`: is the period of a limit",
            ),
            (
                "budgets.turn.cost = 1\nbudgets.tenants.acme.per = \"day\"",
                "config.toml:2: `budgets.tenants.acme.per`: is the period of a limit, and this tenant has none",
            ),
            ("budgets.turn.tokens = -1", "`budgets.turn.tokens`"),
            ("budgets.turn.cost = -1", "`budgets.turn.cost`"),
            ("budgets.session.cost = \"5\"", "`budgets.session.cost`"),
            ("budgets.turn.per = \"day\"", "unknown key `budgets.turn.per`; known here are cost, tokens"),
            (
                "budgets.tenant.per = \"moth\"",
                "is \"moth\", expected day, month or ever; did you mean \"month\"?",
            ),
            ("budgets.tenants.acme.per = \"year\"", "`budgets.tenants.acme.per`: is \"year\""),
            ("budgets.tenants.\"\".tokens = 1", "names no tenant"),
            ("budgets.tenants = 5", "`budgets.tenants`"),
            ("budget.turn.cost = 5", "did you mean \"budgets\"?"),
        ] {
            let error = load(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
