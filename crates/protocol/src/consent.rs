//! What calls want, what rules say of it, and how people are asked.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{ConsentId, PartId};
use crate::nearest::did_you_mean;
use crate::walls::WallsInForce;

/// How dangerous a tool is without a rule about it; the greatest is the most dangerous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// It only reads the workspace or the session.
    Safe,
    /// It reaches out (web tools).
    Moderate,
    /// It changes the workspace or runs commands.
    #[default]
    Dangerous,
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Safe => "safe",
            Self::Moderate => "moderate",
            Self::Dangerous => "dangerous",
        })
    }
}

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It may be done.
    Allow,
    /// A person must agree first.
    Ask,
    /// It may not be done.
    Deny,
}

impl Action {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Allow, Self::Ask, Self::Deny];

    /// Its name in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

impl FromStr for Action {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|action| action.name() == text).ok_or_else(|| {
            let shown: String = text.chars().take(64).collect();
            let meant = did_you_mean(&shown, Self::ALL.map(Self::name));
            format!("is \"{}\", expected allow, ask or deny{meant}", shown.escape_debug())
        })
    }
}

/// A rule as it is written: patterns as text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct PermissionRule {
    /// The permissions that it is about: `edit`, `bash`, `*`.
    pub permission: String,
    /// What it is about among them: a path, a command, an address, with `*` and `?`.
    #[serde(default = "everything")]
    pub pattern: String,
    /// What it says.
    pub action: Action,
}

impl PermissionRule {
    /// The most characters of a pattern, and of a permission.
    pub const LONGEST: usize = 4_096;

    /// Whether it can be about anything.
    ///
    /// # Errors
    /// A fragment that says what is wrong with its permission or its pattern.
    pub fn check(&self) -> Result<(), String> {
        for (what, text) in [("name of the permission", &self.permission), ("pattern", &self.pattern)] {
            if text.trim().is_empty() {
                return Err(format!("the {what} is empty, and so about nothing: use \"*\" for everything"));
            }
            if text.contains('\0') {
                return Err(format!("the {what} holds a character that nothing it could be about has"));
            }
            if text.chars().count() > Self::LONGEST {
                return Err(format!("the {what} has more than {} characters", Self::LONGEST));
            }
        }
        Ok(())
    }
}

fn everything() -> String {
    "*".to_owned()
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
    /// Whether only a rule that names the permission can allow it, and none about all permissions: a change outside of
    /// the workspace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub named: bool,
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
            named: false,
            risk,
        }
    }

    /// The same with what "always" would allow.
    #[must_use]
    pub fn always(self, patterns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { always: patterns.into_iter().map(Into::into).collect(), ..self }
    }
}

/// A request for consent. See [`Record::ConsentAsked`](crate::Record::ConsentAsked).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConsentAsked {
    /// The request.
    pub consent: ConsentId,
    /// The call that waits; absent where it is about no call: a program that a workspace declares, before it is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<PartId>,
    /// The tool.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tool: String,
    /// How dangerous the tool is. Absent in JSON where it is dangerous.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub risk: Risk,
    /// Why it asks.
    pub reason: String,
    /// What it would do: a command, a diff, an address.
    pub preview: String,
    /// Whether the preview is a unified diff.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub diff: bool,
    /// What people would agree to. "Always" allows the `always` patterns of each from then on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wants: Vec<Want>,
    /// What holds the call if it runs; absent for tools that start no program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub walls: Option<WallsInForce>,
}

impl ConsentAsked {
    /// The rules that "always" would make; empty where "always" cannot be said.
    pub fn always(&self) -> Vec<PermissionRule> {
        if self.wants.iter().any(|want| want.always.is_empty() || want.in_person || want.named) {
            return Vec::new();
        }
        let mut rules: Vec<PermissionRule> = Vec::new();
        for want in &self.wants {
            for pattern in &want.always {
                let rule = PermissionRule {
                    permission: want.permission.clone(),
                    pattern: pattern.clone(),
                    action: Action::Allow,
                };
                if !rules.contains(&rule) {
                    rules.push(rule);
                }
            }
        }
        rules
    }
}

/// How a request for consent ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum ConsentAnswer {
    /// A person agreed: this call may run.
    Once,
    /// A person agreed, and to all like it from then on.
    Always,
    /// A person said "always" to another request, which covers this one.
    Covered {
        /// The other request, where it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<ConsentId>,
    },
    /// A person declined.
    Decline {
        /// What the model shall read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// Nobody answered in time.
    TimedOut,
    /// There was nobody to ask.
    Unattended,
    /// The turn was aborted before anyone answered.
    Withdrawn,
}

impl ConsentAnswer {
    /// Whether the call may run.
    pub fn agrees(&self) -> bool {
        matches!(self, Self::Once | Self::Always | Self::Covered { .. })
    }

    /// Whether it is one that a person gives; the others are the engine's.
    pub fn is_given(&self) -> bool {
        matches!(self, Self::Once | Self::Always | Self::Decline { .. })
    }
}

impl fmt::Display for ConsentAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Once => f.write_str("it was allowed once"),
            Self::Always => f.write_str("it was allowed for always"),
            Self::Covered { by: Some(by) } => write!(f, "it was allowed by the \"always\" said to {by}"),
            Self::Covered { by: None } => {
                f.write_str("it was allowed by an \"always\" said to another request")
            }
            Self::Decline { message: None } => f.write_str("it was declined"),
            Self::Decline { message: Some(message) } => write!(f, "it was declined: {message}"),
            Self::TimedOut => f.write_str("nobody answered in time"),
            Self::Unattended => f.write_str("nobody was there to be asked"),
            Self::Withdrawn => f.write_str("the turn was aborted"),
        }
    }
}

/// Something that was allowed for always.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Names it for withdrawal: 12 hexadecimal digits that follow from what it is.
    pub id: String,
    /// Whose sessions it holds for.
    pub tenant: String,
    /// The workspace in which it holds.
    pub workspace: String,
    /// What is allowed.
    pub rule: PermissionRule,
    /// When it was given.
    pub given: crate::Timestamp,
    /// The request to which "always" was said.
    pub consent: ConsentId,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(wants: Vec<Want>) -> ConsentAsked {
        ConsentAsked {
            consent: ConsentId::parse("per_000000000001Cons1234567890").unwrap(),
            call: Some(PartId::parse("prt_000000000001Part1234567890").unwrap()),
            tool: "bash".into(),
            risk: Risk::Dangerous,
            reason: "why".into(),
            preview: "make".into(),
            diff: false,
            wants,
            walls: None,
        }
    }

    #[test]
    fn always_allows_each_pattern_once_or_nothing() {
        let make = Want::new("bash", "make", Risk::Dangerous).always(["make *"]);
        let rules = asked(vec![make.clone(), make.clone()]).always();
        let rule =
            PermissionRule { permission: "bash".into(), pattern: "make *".into(), action: Action::Allow };
        assert_eq!(rules, [rule]);
        let never = Want::new("bash", "python", Risk::Dangerous);
        assert_eq!(asked(vec![make.clone(), never]).always(), []);
        let in_person = Want { in_person: true, ..make.clone() };
        assert_eq!(asked(vec![make.clone(), in_person]).always(), []);
        let named = Want { named: true, ..make.clone() };
        assert_eq!(asked(vec![make, named]).always(), []);
    }

    #[test]
    fn rules_about_nothing_are_told() {
        let rule = |permission: &str, pattern: &str| {
            let (permission, pattern) = (permission.to_owned(), pattern.to_owned());
            PermissionRule { permission, pattern, action: Action::Deny }.check()
        };
        assert_eq!(rule("bash", "rm *"), Ok(()));
        let error = "the pattern is empty, and so about nothing: use \"*\" for everything";
        assert_eq!(rule("bash", " "), Err(error.to_owned()));
        assert!(rule("", "*").unwrap_err().starts_with("the name of the permission is empty"));
        assert!(rule("bash", &"x".repeat(5_000)).is_err() && rule("bash", "a\0").is_err());
        assert_eq!("ask".parse(), Ok(Action::Ask));
        let error = "alow".parse::<Action>().unwrap_err();
        assert_eq!(error, "is \"alow\", expected allow, ask or deny; did you mean \"allow\"?");
    }

    #[test]
    fn a_request_of_an_older_log_reads_back() {
        let old = r#"{"consent":"per_000000000001Cons1234567890","call":"prt_000000000001Part1234567890","reason":"r","preview":"p"}"#;
        let asked: ConsentAsked = serde_json::from_str(old).unwrap();
        assert_eq!((asked.tool.as_str(), asked.wants.len(), asked.risk), ("", 0, Risk::Dangerous));
        assert_eq!(serde_json::to_string(&asked).unwrap(), old, "and is written as it was");
        let want: Want =
            serde_json::from_str(r#"{"permission":"bash","subject":"ls","risk":"safe"}"#).unwrap();
        assert!(!want.named && !serde_json::to_string(&want).unwrap().contains("named"));
        let named = Want { named: true, ..want };
        assert_eq!(serde_json::from_str::<Want>(&serde_json::to_string(&named).unwrap()).unwrap(), named);
    }
}
