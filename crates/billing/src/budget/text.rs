//! What people are told of budgets.

use std::fmt;

use playhouse_protocol::limit::{Amount, Limit, LimitScope, LimitUnit};
use playhouse_protocol::{Cost, Day};

use super::{Limits, Per, Refusal, Wait};

/// A limit that is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Short {
    /// Of money.
    Cost {
        /// The limit.
        limit: Cost,
        /// What is used of it.
        used: Cost,
        /// What the step may need.
        needed: Cost,
    },
    /// Of tokens.
    Tokens {
        /// The limit.
        limit: u64,
        /// What is used of it.
        used: u64,
        /// What the step may need.
        needed: u64,
    },
    /// Of money, and the model has no price.
    Unpriced {
        /// The limit.
        limit: Cost,
    },
}

impl Short {
    /// The limit with its unit.
    fn limit(&self) -> String {
        match self {
            Self::Cost { limit, .. } | Self::Unpriced { limit } => dollars(*limit),
            Self::Tokens { limit, .. } => format!("{limit} tokens"),
        }
    }

    /// The key that sets it.
    const fn key(&self) -> &'static str {
        match self {
            Self::Cost { .. } | Self::Unpriced { .. } => "cost",
            Self::Tokens { .. } => "tokens",
        }
    }
}

/// As much as is needed to tell small amounts apart: `$0.5`, `$0.000125`, `$0.00000012`.
fn dollars(cost: Cost) -> String {
    format!("${}", cost.rounded(6).normalize())
}

const fn name(scope: LimitScope) -> &'static str {
    match scope {
        LimitScope::Turn => "turn",
        LimitScope::Session => "session",
        LimitScope::Tenant => "tenant",
    }
}

/// "the turn's budget of $0.5", "the tenant's budget of $20 a month".
fn budget(scope: LimitScope, short: &Short, per: Per) -> String {
    let period = match (scope, per) {
        (LimitScope::Tenant, Per::Day) => " a day",
        (LimitScope::Tenant, Per::Month) => " a month",
        _ => "",
    };
    format!("the {}'s budget of {}{period}", name(scope), short.limit())
}

impl Refusal {
    /// The same as data, for something that was refused on this day.
    pub fn limit(&self, day: Day) -> Limit {
        let is_tenants = self.scope == LimitScope::Tenant;
        let renews_at = self.per.end(day).filter(|_| is_tenants);
        let money = |max| Limit::of_money(Limits::NAME, self.scope, max);
        let usd = |cost: Cost| Some(Amount::Usd(cost.normalized()));
        let limit = match self.short {
            Short::Cost { limit, used, needed } => {
                Limit { used: usd(used), needed: usd(needed), ..money(limit) }
            }
            Short::Tokens { limit, used, needed } => Limit {
                used: Some(Amount::Count(used)),
                needed: Some(Amount::Count(needed)),
                ..Limit::of_count(Limits::NAME, self.scope, LimitUnit::Tokens, limit)
            },
            Short::Unpriced { limit } => return money(limit),
        };
        Limit { renews_at, ..limit }
    }

    /// What the operator can do: it names the key that sets the limit.
    pub fn hint(&self) -> String {
        let (key, scope) = (self.short.key(), name(self.scope));
        let own = if self.scope == LimitScope::Tenant { " or the tenant's own section" } else { "" };
        format!("`{key}` in [budgets.{scope}]{own} sets it")
    }

    /// The name of what it is a budget of, as metrics have it.
    pub const fn scope_name(&self) -> &'static str {
        name(self.scope)
    }
}

impl fmt::Display for Refusal {
    /// For the tenant: it names no key of the operator's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scope, short, per } = self;
        let budget = budget(*scope, short, *per);
        match short {
            Short::Unpriced { .. } => {
                return write!(f, "{budget} needs to know what a step may cost, and the model has no price");
            }
            Short::Cost { used, needed, .. } => {
                let (used, needed) = (dollars(*used), dollars(*needed));
                write!(
                    f,
                    "{budget} does not cover the next step: {used} is used, and the step may need {needed}"
                )?;
            }
            Short::Tokens { used, needed, .. } => {
                write!(
                    f,
                    "{budget} does not cover the next step: {used} are used, and the step may need {needed}"
                )?;
            }
        }
        match (scope, per) {
            (LimitScope::Turn, _) => f.write_str("; go on with a new prompt"),
            (LimitScope::Session, _) => f.write_str("; go on in a new session"),
            (LimitScope::Tenant, Per::Ever) => f.write_str("; ask the operator"),
            (LimitScope::Tenant, Per::Day | Per::Month) => {
                write!(f, "; wait for the next {} (UTC), or ask the operator", per.name())
            }
        }
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let budget = budget(self.scope, &self.short, self.per);
        let others = match self.others {
            1 => "1 other step".to_owned(),
            count => format!("{count} other steps"),
        };
        write!(f, "{budget} is reserved: this step goes on when enough of {others} is over")
    }
}
