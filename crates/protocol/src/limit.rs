//! Limits as data: what is limited, whose it is, how much is used, and when it renews.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::time::Timestamp;
use crate::usage::Cost;

/// What a limit is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum LimitScope {
    /// One turn.
    Turn,
    /// A session, with the sessions below it.
    Session,
    /// A tenant.
    Tenant,
}

/// What the amounts of a limit count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum LimitUnit {
    /// US dollars, as exact texts.
    Usd,
    /// Tokens of all classes.
    Tokens,
    /// Things.
    Count,
    /// Bytes.
    Bytes,
}

/// An amount of what a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Amount {
    /// Tokens, things or bytes: a number.
    Count(u64),
    /// US dollars: a text.
    Usd(Cost),
}

impl Amount {
    /// Whether it is as much as `max`, which is of the same kind.
    pub fn reaches(self, max: Self) -> bool {
        match (self, max) {
            (Self::Usd(used), Self::Usd(max)) => used >= max,
            (Self::Count(used), Self::Count(max)) => used >= max,
            _ => false,
        }
    }

    /// What is left of this when so much is used: never less than nothing.
    #[must_use]
    pub fn less(self, used: Self) -> Self {
        match (self, used) {
            (Self::Usd(max), Self::Usd(used)) => {
                Self::Usd(Cost(max.0.saturating_sub(used.0).max(Cost::ZERO.0)).normalized())
            }
            (Self::Count(max), Self::Count(used)) => Self::Count(max.saturating_sub(used)),
            (max, _) => max,
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Usd(cost) => write!(f, "${}", cost.rounded(6).normalize()),
        }
    }
}

impl JsonSchema for Amount {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["integer", "string"],
            "minimum": 0,
            "pattern": r"^-?[0-9]+(\.[0-9]+)?$",
            "description": "A number of tokens, things or bytes; US dollars as an exact text.",
        })
    }
}

/// A limit, and how much of it is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Limit {
    /// What is limited: `budget`, or as metrics name it (`sessions`, `running_turns`, `spend_per_day`).
    pub name: String,
    /// Whose it is.
    pub scope: LimitScope,
    /// What the amounts count.
    pub unit: LimitUnit,
    /// The most that may be used.
    pub max: Amount,
    /// What is used. Not known of a limit of each turn or session, as long as none is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Amount>,
    /// What was wanted, where that was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed: Option<Amount>,
    /// What may still be used, where limits are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Amount>,
    /// When nothing is used any more, or enough less, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renews_at: Option<Timestamp>,
}

impl Limit {
    /// A limit in US dollars.
    pub fn of_money(name: &str, scope: LimitScope, max: Cost) -> Self {
        Self::new(name, scope, LimitUnit::Usd, Amount::Usd(max.normalized()))
    }

    /// A limit of something that is counted in `unit`, which is not money.
    pub fn of_count(name: &str, scope: LimitScope, unit: LimitUnit, max: u64) -> Self {
        Self::new(name, scope, unit, Amount::Count(max))
    }

    fn new(name: &str, scope: LimitScope, unit: LimitUnit, max: Amount) -> Self {
        Self {
            name: name.to_owned(),
            scope,
            unit,
            max,
            used: None,
            needed: None,
            left: None,
            renews_at: None,
        }
    }

    /// The same, of which so much is used, in the unit of its maximum.
    #[must_use]
    pub fn used(self, used: Amount) -> Self {
        Self { used: Some(used), ..self }
    }

    /// The same, with what is left.
    #[must_use]
    pub fn with_left(self) -> Self {
        Self { left: self.used.map(|used| self.max.less(used)), ..self }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn money_is_text_and_counts_are_numbers() {
        let money = Limit::of_money("budget", LimitScope::Tenant, Cost("1.50".parse().unwrap()));
        let money = money.used(Amount::Usd(Cost("2".parse().unwrap()))).with_left();
        let shown = json!({"name": "budget", "scope": "tenant", "unit": "usd", "max": "1.5", "used": "2", "left": "0"});
        assert_eq!(serde_json::to_value(&money).unwrap(), shown);
        assert_eq!(serde_json::from_value::<Limit>(shown).unwrap(), money);
        let count =
            Limit::of_count("sessions", LimitScope::Tenant, LimitUnit::Count, 2).used(Amount::Count(1));
        let shown =
            json!({"name": "sessions", "scope": "tenant", "unit": "count", "max": 2, "used": 1, "left": 1});
        assert_eq!(serde_json::to_value(count.with_left()).unwrap(), shown);
    }
}
