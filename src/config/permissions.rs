//! The table `[permissions]`, of an operator or of a workspace: rules in the order in which they stand in the file.

use playhouse_policy::{Action, Pattern, Rule, Rules};
use playhouse_protocol::consent::PermissionRule;

use super::document::{Document, Setting, Value, shown};
use super::error::ConfigError;
use super::keys::KeyName;
use super::permission_names::PermissionName;

/// The rules of one file.
#[derive(Default)]
pub(super) struct Permissions {
    pub(super) rules: Rules,
    pub(super) names: Vec<PermissionName>,
}

/// One rule, as it is written.
struct Written<'a> {
    offset: usize,
    line: usize,
    permission: &'a str,
    /// `None` for a permission that has an action itself.
    pattern: Option<&'a str>,
    action: &'a str,
}

impl Written<'_> {
    fn rule(
        &self,
        home: Option<&str>,
        permit: &dyn Fn(Action) -> Result<(), String>,
    ) -> Result<Rule, String> {
        let action = self.action.parse()?;
        permit(action)?;
        let pattern = self.pattern.unwrap_or("*").to_owned();
        let rule = PermissionRule { permission: self.permission.to_owned(), pattern, action };
        rule.check()?;
        expanded(&rule, home)
    }

    /// `permissions.bash."git *"`
    fn place(&self) -> String {
        let pattern = self.pattern.map(|pattern| format!(".{}", shown(pattern))).unwrap_or_default();
        format!("permissions.{}{pattern}", shown(self.permission))
    }
}

/// The rules of `document`. `permit` says which actions may stand there.
pub(super) fn read(
    document: &Document,
    home: Option<&str>,
    permit: &dyn Fn(Action) -> Result<(), String>,
) -> Result<Permissions, ConfigError> {
    let mut written: Vec<Written<'_>> = document.settings.iter().flat_map(written).collect();
    // A table may be continued further down (`bash."git *" = …`), and the order of the file is the one that people see.
    written.sort_by_key(|rule| rule.offset);
    let mut permissions = Permissions::default();
    for one in &written {
        let wrong = |message: String| {
            ConfigError::line(&document.file, one.line, format!("`{}`: {message}", one.place()))
        };
        permissions.rules.push(one.rule(home, permit).map_err(wrong)?);
        if permissions.names.iter().all(|known| known.name != one.permission) {
            let (name, file) = (one.permission.to_owned(), document.file.clone());
            permissions.names.push(PermissionName { name, file, line: one.line });
        }
    }
    Ok(permissions)
}

fn written(setting: &Setting) -> Vec<Written<'_>> {
    let (KeyName::Permission, [permission]) = (setting.key.name, setting.names.as_slice()) else {
        return Vec::new();
    };
    match &setting.value {
        Value::Text(action) => {
            let Setting { offset, line, .. } = *setting;
            vec![Written { offset, line, permission, pattern: None, action }]
        }
        Value::Texts(patterns) => patterns
            .iter()
            .map(|entry| Written {
                offset: entry.offset,
                line: entry.line,
                permission,
                pattern: Some(&entry.key),
                action: &entry.text,
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// `rule` with `~` and `$HOME` at the beginning of its pattern replaced by `home`.
///
/// # Errors
/// There is no home, and so the rule would be about nothing.
pub(super) fn expanded(rule: &PermissionRule, home: Option<&str>) -> Result<Rule, String> {
    let pattern = Pattern::new(rule.pattern.as_str());
    let pattern = match home {
        Some(home) => pattern.expanded(home),
        None if pattern.expanded("/") == pattern => pattern,
        None => return Err("the pattern begins with the home directory, and HOME is not set".to_owned()),
    };
    Ok(Rule { pattern, ..Rule::from(rule) })
}
