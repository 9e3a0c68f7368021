//! The judgement: layers of rules, and what they say of what a call wants.

use playhouse_protocol::consent::{Action, Risk, Want};

use crate::access::{BASH, DOOM_LOOP, EDIT, EXTERNAL_DIRECTORY, READ};
use crate::rule::{Rule, Rules};

/// What a judgement says.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    Unnamed,
    Doubt(String),
}

impl Policy {
    /// Judges all that a call wants: the strictest decision counts.
    pub fn judge(&self, wants: &[Want]) -> Verdict {
        let mut asked: Vec<(&Want, Why)> = Vec::new();
        let of_commands = wants.iter().any(|want| want.permission == BASH);
        for want in wants {
            let mut decision = self.decide(want);
            // To ask about all permissions is no rule about files: what a command does to them was asked about with it.
            if of_commands && decision.action == Action::Ask && is_general(want, &decision.why) {
                decision = self.by_name().decide(want);
            }
            let Decision { action, why } = decision;
            match action {
                Action::Allow => {}
                // Who allows any command allows what they write, as long as no rule about files speaks.
                Action::Ask
                    if want.permission == EDIT
                        && matches!(why, Why::Risk(_))
                        && self.allows_any_of(wants) => {}
                Action::Ask => asked.push((want, why)),
                Action::Deny => {
                    let advice = advice(want, of_commands);
                    return Verdict::Deny { reason: denial(want, &why) + advice };
                }
            }
        }
        match asked.first() {
            None => Verdict::Allow,
            Some((want, why)) => Verdict::Ask {
                reason: question(want, why) + advice(want, of_commands),
                wants: asked.iter().map(|(want, _)| (*want).clone()).collect(),
            },
        }
    }

    /// The rules that name a permission.
    fn by_name(&self) -> Self {
        let named = |rules: &Rules| rules.iter().filter(|rule| rule.names_permission()).cloned().collect();
        Self {
            builtin: named(&self.builtin),
            configuration: named(&self.configuration),
            agent: named(&self.agent),
            session: named(&self.session),
            workspace: named(&self.workspace),
            moderate: self.moderate,
        }
    }

    /// Whether `wants` are those of commands, and rules allow commands of which they say nothing in particular.
    fn allows_any_of(&self, wants: &[Want]) -> bool {
        let any = Want::new(BASH, "", Risk::Dangerous);
        wants.iter().any(|want| want.permission == BASH) && self.decide(&any).action == Action::Allow
    }

    /// Whether there may be a file whose content may not be shown without asking.
    pub fn may_hide(&self) -> bool {
        self.may_speak_against(READ)
    }

    /// Whether the content of the file that rules call `shown` may be shown without asking.
    pub fn shows(&self, shown: &str) -> bool {
        self.judge(&[Want::new(READ, shown, Risk::Safe)]) == Verdict::Allow
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
            Some(doubt) if decision.action == Action::Allow && self.may_speak_against(&want.permission) => {
                Decision { action: Action::Ask, why: Why::Doubt(doubt.clone()) }
            }
            _ if want.in_person && decision.action == Action::Allow => {
                Decision { action: Action::Ask, why: Why::InPerson }
            }
            _ if want.named && matches!(decision, Decision { action: Action::Allow, why: Why::Risk(_) }) => {
                Decision { action: Action::Ask, why: Why::Unnamed }
            }
            _ => decision,
        }
    }

    /// Whether there is something under `permission` that is not allowed.
    fn may_speak_against(&self, permission: &str) -> bool {
        let strictest = |rules: &Rules| rules.last_words(permission).map(|rule| rule.action).max();
        let denies = |rules: &Rules| strictest(rules) == Some(Action::Deny);
        if denies(&self.builtin)
            || denies(&self.configuration)
            || strictest(&self.workspace) > Some(Action::Allow)
        {
            return true;
        }
        for rules in [&self.session, &self.agent, &self.configuration, &self.builtin] {
            if strictest(rules) > Some(Action::Allow) {
                return true;
            }
            // Of what a stronger layer decides as a whole, weaker ones are not asked.
            if rules.decide_all(permission).is_some() {
                return false;
            }
        }
        false
    }
}

/// The rule that decides about `want`. One that is in doubt may be anything, so only what is said of everything counts
/// for it, and what is said against it. One that must be named is not allowed by what is said of all permissions.
fn ruled<'a>(rules: &'a Rules, want: &Want) -> Option<&'a Rule> {
    let counts = |rule: &&Rule| !want.named || rule.action != Action::Allow || rule.names_permission();
    let about = || rules.iter().rev().filter(counts).filter(|rule| rule.permission.matches(&want.permission));
    let rule = about().find(|rule| rule.pattern.matches(&want.subject));
    match (&want.doubt, rule) {
        (Some(_), Some(rule)) if rule.action == Action::Allow => {
            about().find(|rule| rule.pattern.is_universal())
        }
        _ => rule,
    }
}

/// Whether `want` is about a file, and asked about because of a rule about all permissions.
fn is_general(want: &Want, why: &Why) -> bool {
    let is_file = matches!(want.permission.as_str(), READ | EDIT);
    is_file && matches!(why, Why::Rule(_, rule) if !rule.names_permission())
}

/// What is wanted, in words.
fn told(want: &Want) -> String {
    let Want { permission, subject, .. } = want;
    match (permission.as_str(), &want.doubt) {
        (EXTERNAL_DIRECTORY, None) => format!("{subject} is outside the workspace"),
        (EXTERNAL_DIRECTORY, Some(_)) => format!("{subject} may lead outside the workspace"),
        (DOOM_LOOP, _) => format!("the same calls of {subject} are made again and again"),
        _ => format!("{permission} {subject}"),
    }
}

/// What a model may do instead, where a command would read a file.
fn advice(want: &Want, of_commands: bool) -> &'static str {
    match of_commands && want.permission == READ {
        true => ". The tool grep leaves out what may not be read",
        false => "",
    }
}

fn denial(want: &Want, why: &Why) -> String {
    let told = told(want);
    match why {
        Why::Rule(layer, rule) => format!(
            "denied by a rule of the {layer} ({} \"{}\" = \"deny\"): {told}. Find another way, or ask the user",
            rule.permission, rule.pattern
        ),
        Why::Risk(_) | Why::InPerson | Why::Unnamed | Why::Doubt(_) => {
            format!("denied: {told}. Find another way, or ask the user")
        }
    }
}

fn unnamed(want: &Want) -> String {
    format!("{}, and would be changed: only a rule for {} allows that", told(want), want.permission)
}

fn question(want: &Want, why: &Why) -> String {
    let told = told(want);
    match why {
        Why::Unnamed => unnamed(want),
        // The rule that comes with the engine says nothing to those who allowed everything.
        Why::Rule("built-in", _) if want.named => unnamed(want),
        Why::Rule(layer, rule) => {
            format!("{told}: the {layer} says to ask for {} \"{}\"", rule.permission, rule.pattern)
        }
        Why::Risk(Risk::Dangerous) => format!("{told}: it can change things, and no rule allows it"),
        Why::Risk(_) => format!("{told}: it reaches out, and no rule allows it"),
        Why::InPerson => format!("{told}: no rule can allow this, only a person"),
        Why::Doubt(doubt) => format!("{told}: what it does cannot be told before it runs ({doubt})"),
    }
}

#[cfg(test)]
mod tests;
