//! The judgement: layers of rules, and what they say of what a call wants.

use serde::{Deserialize, Serialize};

use crate::rule::{Action, Rule, Rules};

/// How dangerous a tool is without a rule about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// It only reads the workspace or the session.
    Safe,
    /// It reaches out (web tools).
    Moderate,
    /// It changes the workspace or runs commands.
    Dangerous,
}

/// One thing that a call wants, in the words of rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Want {
    /// The permission that it falls under: `edit`, `bash`, `external_directory`.
    pub permission: String,
    /// What patterns are matched with: a path, a command, an address; `*` where there is nothing more to tell.
    pub subject: String,
    /// What it would be to always allow it: patterns under the same permission. Empty where that cannot be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub always: Vec<String>,
    /// Why `subject` may not be all there is: a variable in a command, for example. Then only rules about everything
    /// can allow it, and none about anything else may stand against it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
    /// Whether no rule can allow it, only a person.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_person: bool,
    /// How dangerous it is where no rule speaks.
    pub risk: Risk,
}

impl Want {
    /// Something that rules can be about.
    pub fn new(permission: impl Into<String>, subject: impl Into<String>, risk: Risk) -> Self {
        Self {
            permission: permission.into(),
            subject: subject.into(),
            always: Vec::new(),
            doubt: None,
            in_person: false,
            risk,
        }
    }

    /// The same with what "always" would allow.
    #[must_use]
    pub fn always(self, patterns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { always: patterns.into_iter().map(Into::into).collect(), ..self }
    }
}

/// What a judgement says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// The call may run.
    Allow,
    /// A person must agree first.
    Ask {
        /// Why.
        reason: String,
        /// What they would agree to: never empty.
        wants: Vec<Want>,
    },
    /// The call may not run.
    Deny {
        /// Why, for the model.
        reason: String,
    },
}

/// All rules that hold for a call, from the weakest layer to the strongest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What comes with the engine. A deny is final.
    pub builtin: Rules,
    /// The operator's. A deny is final.
    pub configuration: Rules,
    /// The agent's.
    pub agent: Rules,
    /// The session's own, with what people agreed to for always.
    pub session: Rules,
    /// Those that come from a workspace, its configuration and its agents: they can only make things stricter.
    pub workspace: Rules,
    /// What moderate risk means where no rule speaks.
    pub moderate: Action,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            builtin: builtin(),
            configuration: Rules::new(),
            agent: Rules::new(),
            session: Rules::new(),
            workspace: Rules::new(),
            moderate: Action::Ask,
        }
    }
}

/// The rules that come with the engine.
pub fn builtin() -> Rules {
    [
        Rule::new("read", "*.env", Action::Ask),
        Rule::new("read", "*.env.*", Action::Ask),
        Rule::new("read", "*.env.example", Action::Allow),
        Rule::new("external_directory", "*", Action::Ask),
        Rule::new("doom_loop", "*", Action::Ask),
    ]
    .into_iter()
    .collect()
}

/// What is said of one want, and by what.
struct Decision {
    action: Action,
    why: Why,
}

enum Why {
    Rule(&'static str, Rule),
    Risk(Risk),
    InPerson,
    Doubt(String),
}

impl Policy {
    /// Judges all that a call wants: the strictest decision counts.
    pub fn judge(&self, wants: &[Want]) -> Verdict {
        let mut asked: Vec<(&Want, Why)> = Vec::new();
        for want in wants {
            let Decision { action, why } = self.decide(want);
            match action {
                Action::Allow => {}
                Action::Ask => asked.push((want, why)),
                Action::Deny => return Verdict::Deny { reason: denial(want, &why) },
            }
        }
        match asked.first() {
            None => Verdict::Allow,
            Some((want, why)) => Verdict::Ask {
                reason: question(want, why),
                wants: asked.iter().map(|(want, _)| (*want).clone()).collect(),
            },
        }
    }

    /// Whether nothing under `permission` can ever run, so that the model need not know of it.
    pub fn is_hidden(&self, permission: &str) -> bool {
        let denies = |rules: &Rules| {
            rules.decide_all(permission).is_some_and(|all| {
                let later = rules.iter().rev().take_while(|rule| *rule != all);
                let mut later = later.filter(|rule| rule.permission.matches(permission));
                all.action == Action::Deny && later.all(|rule| rule.action == Action::Deny)
            })
        };
        if [&self.builtin, &self.configuration, &self.workspace].into_iter().any(denies) {
            return true;
        }
        denies(&self.session) || (self.session.strictest(permission).is_none() && denies(&self.agent))
    }

    fn decide(&self, want: &Want) -> Decision {
        let base = self.without_workspace(want);
        let stricter = ruled(&self.workspace, want).map(|rule| (rule.action, rule.clone()));
        match stricter {
            Some((action, rule)) if action > base.action => {
                Decision { action, why: Why::Rule("workspace", rule) }
            }
            _ => base,
        }
    }

    fn without_workspace(&self, want: &Want) -> Decision {
        let layers = [
            ("built-in", &self.builtin),
            ("configuration", &self.configuration),
            ("agent", &self.agent),
            ("session", &self.session),
        ];
        let mut decided: Option<Decision> = None;
        for (name, rules) in layers {
            let Some(rule) = ruled(rules, want) else { continue };
            let decision = Decision { action: rule.action, why: Why::Rule(name, rule.clone()) };
            if rule.action == Action::Deny && matches!(name, "built-in" | "configuration") {
                return decision;
            }
            decided = Some(decision);
        }
        let decision = decided.unwrap_or(Decision {
            action: match want.risk {
                Risk::Safe => Action::Allow,
                Risk::Moderate => self.moderate,
                Risk::Dangerous => Action::Ask,
            },
            why: Why::Risk(want.risk),
        });
        match &want.doubt {
            Some(doubt) if decision.action == Action::Allow && self.speaks_against(&want.permission) => {
                Decision { action: Action::Ask, why: Why::Doubt(doubt.clone()) }
            }
            _ if want.in_person && decision.action == Action::Allow => {
                Decision { action: Action::Ask, why: Why::InPerson }
            }
            _ => decision,
        }
    }

    /// Whether some rule does not allow something under `permission`.
    fn speaks_against(&self, permission: &str) -> bool {
        [&self.builtin, &self.configuration, &self.agent, &self.session, &self.workspace]
            .into_iter()
            .filter_map(|rules| rules.strictest(permission))
            .any(|rule| rule.action > Action::Allow)
    }
}

/// The rule that decides about `want`. One that is in doubt may be anything, so only what is said of everything counts
/// for it, and what is said against it.
fn ruled<'a>(rules: &'a Rules, want: &Want) -> Option<&'a Rule> {
    let rule = rules.decide(&want.permission, &want.subject);
    match (&want.doubt, rule) {
        (Some(_), Some(rule)) if rule.action == Action::Allow => rules.decide_all(&want.permission),
        _ => rule,
    }
}

fn denial(want: &Want, why: &Why) -> String {
    let Want { permission, subject, .. } = want;
    match why {
        Why::Rule(layer, rule) => format!(
            "denied by a rule of the {layer} ({} \"{}\" = \"deny\"): {permission} {subject}. Find another way, or ask the user",
            rule.permission, rule.pattern
        ),
        Why::Risk(_) | Why::InPerson | Why::Doubt(_) => {
            format!("denied: {permission} {subject}. Find another way, or ask the user")
        }
    }
}

fn question(want: &Want, why: &Why) -> String {
    let Want { permission, subject, .. } = want;
    match why {
        Why::Rule(layer, rule) => {
            format!(
                "{permission} {subject}: the {layer} says to ask for {} \"{}\"",
                rule.permission, rule.pattern
            )
        }
        Why::Risk(Risk::Dangerous) => {
            format!("{permission} {subject}: it can change things, and no rule allows it")
        }
        Why::Risk(_) => format!("{permission} {subject}: it reaches out, and no rule allows it"),
        Why::InPerson => format!("{permission} {subject}: no rule can allow this, only a person"),
        Why::Doubt(doubt) => {
            format!("{permission} {subject}: what it does cannot be told before it runs ({doubt})")
        }
    }
}

#[cfg(test)]
mod tests;
