//! Rules, and lists of them.

use playhouse_protocol::consent::{Action, PermissionRule};

use crate::Pattern;

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The permissions that it is about.
    pub permission: Pattern,
    /// What it is about among them: paths, commands, addresses.
    pub pattern: Pattern,
    /// What it says.
    pub action: Action,
}

impl Rule {
    /// A rule.
    pub fn new(permission: &str, pattern: &str, action: Action) -> Self {
        Self { permission: Pattern::new(permission), pattern: Pattern::new(pattern), action }
    }

    /// Whether it says which permission it is about, and not that it is about all.
    pub(crate) fn names_permission(&self) -> bool {
        self.permission.as_str().contains(|character| !matches!(character, '*' | '?'))
    }

    fn matches(&self, permission: &str, subject: &str) -> bool {
        self.permission.matches(permission) && self.pattern.matches(subject)
    }
}

/// Rules of one layer, in order: the last one that matches wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

impl Rules {
    /// No rules.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The same with `~` and `$HOME` at the beginning of patterns replaced by `home`.
    #[must_use]
    pub fn expanded(mut self, home: &str) -> Self {
        for rule in &mut self.0 {
            rule.pattern = rule.pattern.expanded(home);
        }
        self
    }

    /// Adds a rule after the others.
    pub fn push(&mut self, rule: Rule) {
        self.0.push(rule);
    }

    /// All rules, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Rule> {
        self.0.iter()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rule that decides about `subject`.
    pub fn decide(&self, permission: &str, subject: &str) -> Option<&Rule> {
        self.0.iter().rev().find(|rule| rule.matches(permission, subject))
    }

    /// The rule that decides about everything under `permission`, whatever it is.
    pub fn decide_all(&self, permission: &str) -> Option<&Rule> {
        self.0.iter().rev().find(|rule| rule.permission.matches(permission) && rule.pattern.is_universal())
    }

    /// The rules that decide about something under `permission`: those that no later rule about everything overrules.
    pub fn last_words<'a>(&'a self, permission: &'a str) -> impl Iterator<Item = &'a Rule> {
        let about = self.0.iter().rev().filter(move |rule| rule.permission.matches(permission));
        let mut is_over = false;
        about.take_while(move |rule| !std::mem::replace(&mut is_over, rule.pattern.is_universal()))
    }

    /// The strictest of the rules that could be about something under `permission`.
    pub fn strictest(&self, permission: &str) -> Option<&Rule> {
        self.0.iter().filter(|rule| rule.permission.matches(permission)).max_by_key(|rule| rule.action)
    }
}

impl From<&PermissionRule> for Rule {
    fn from(rule: &PermissionRule) -> Self {
        Self::new(&rule.permission, &rule.pattern, rule.action)
    }
}

impl<'a> FromIterator<&'a PermissionRule> for Rules {
    fn from_iter<I: IntoIterator<Item = &'a PermissionRule>>(rules: I) -> Self {
        Self(rules.into_iter().map(Rule::from).collect())
    }
}

impl FromIterator<Rule> for Rules {
    fn from_iter<I: IntoIterator<Item = Rule>>(rules: I) -> Self {
        Self(rules.into_iter().collect())
    }
}

impl Extend<Rule> for Rules {
    fn extend<I: IntoIterator<Item = Rule>>(&mut self, rules: I) {
        self.0.extend(rules);
    }
}
