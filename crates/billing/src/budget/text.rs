//! What people are told of budgets.

use std::fmt;

use playhouse_protocol::Cost;

use super::{Per, Refusal, Scope, Wait};

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

/// "the turn's budget of $0.5", "the tenant's budget of $20 a month".
fn budget(scope: Scope, short: &Short, per: Per) -> String {
    let period = match (scope, per) {
        (Scope::Tenant, Per::Day) => " a day",
        (Scope::Tenant, Per::Month) => " a month",
        _ => "",
    };
    format!("the {}'s budget of {}{period}", scope.name(), short.limit())
}

impl fmt::Display for Refusal {
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
        let key = short.key();
        match (scope, per) {
            (Scope::Turn, _) => write!(f, "; go on with a new prompt, or raise `{key}` in [budgets.turn]"),
            (Scope::Session, _) => {
                write!(f, "; go on in a new session, or raise `{key}` in [budgets.session]")
            }
            (Scope::Tenant, Per::Ever) => {
                write!(f, "; raise `{key}` in [budgets.tenant], or in the tenant's own section")
            }
            (Scope::Tenant, Per::Day | Per::Month) => {
                let period = per.name();
                write!(
                    f,
                    "; wait for the next {period} (UTC), or raise `{key}` in [budgets.tenant] or the tenant's own section"
                )
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
