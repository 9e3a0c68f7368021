//! What is configured of budgets.

use std::collections::BTreeMap;

use playhouse_billing::budget::{Budgets, Limits, Per, TenantBudget};
use playhouse_protocol::Cost;
use playhouse_protocol::nearest::did_you_mean;

use super::document::Value;
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
            limits.tokens = Some(tokens(*count)?);
        }
        (BudgetTenantPer | TenantPer, Value::Text(text)) => of_tenant.per = Some(per(text)?),
        _ => return Err("does not belong here".to_owned()),
    }
    Ok(())
}

/// Money may be 0: then only what is free can be used.
fn tokens(count: u64) -> Result<u64, String> {
    match count {
        0 => Err("is 0, so that no step could be made: leave it out for no limit".to_owned()),
        _ => Ok(count),
    }
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
            [budgets.tenant]
            cost = 20
            per = \"day\"
        ";
        let budgets = load(text).unwrap();
        assert_eq!(budgets.turn, Limits { cost: dollars("0.5"), tokens: Some(100_000) });
        assert_eq!(budgets.session, Limits { cost: dollars("0"), tokens: None });
        let of = |name: &str| {
            let TenantBudget { limits: Limits { cost, tokens }, per } = budgets.of(name);
            (cost, tokens, per)
        };
        assert_eq!(of("local"), (dollars("20"), None, Per::Day));
        assert_eq!(of("acme"), (dollars("20"), Some(7), Per::Day));
        assert_eq!(of("a.b c"), (dollars("100"), None, Per::Ever));
        assert_eq!(load("budgets.tenant.cost = 1").unwrap().tenant.per, Per::Month);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, said) in [
            (
                "budgets.turn.tokens = 0",
                "config.toml:1: `budgets.turn.tokens`: is 0, so that no step could be made",
            ),
            ("budgets.turn.cost = -1", "`budgets.turn.cost`"),
            ("budgets.session.cost = \"5\"", "`budgets.session.cost`"),
            ("budgets.turn.per = \"day\"", "unknown key `budgets.turn.per`; known here are cost, tokens"),
            (
                "budgets.tenant.per = \"moth\"",
                "is \"moth\", expected day, month or ever; did you mean \"month\"?",
            ),
            ("budgets.tenants.acme.per = \"year\"", "`budgets.tenants.acme.per`: is \"year\""),
            ("budgets.tenants.acme.tokens = 0", "`budgets.tenants.acme.tokens`: is 0"),
            ("budgets.tenants.\"\".tokens = 1", "names no tenant"),
            ("budgets.tenants = 5", "`budgets.tenants`"),
            ("budget.turn.cost = 5", "did you mean \"budgets\"?"),
        ] {
            let error = load(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
