//! The rules that an agent brings.

use playhouse_protocol::consent::PermissionRule;

use crate::front_matter::{Field, FieldValue};

/// The rules of `field`, each with its line: a map of permissions, each with an action or with a map of patterns and their actions.
///
/// # Errors
/// The line of what is wrong, and why.
pub(crate) fn rules(field: &Field<'_>) -> Result<Vec<(usize, PermissionRule)>, (usize, String)> {
    let FieldValue::Map(permissions) = &field.value else {
        let message = "must be a map of permissions and their actions: `permission: { edit: deny }`";
        return Err((field.line, format!("`{}` {message}", field.key)));
    };
    let mut rules = Vec::new();
    for Field { key: permission, line, value } in permissions {
        let place = [field.key, *permission];
        match value {
            FieldValue::Text(action) => {
                let rule = rule(permission, "*", action).map_err(|error| (*line, wrong(&place, &error)))?;
                rules.push((*line, rule));
            }
            FieldValue::Map(patterns) => {
                for Field { key: pattern, line, value } in patterns {
                    let place = [field.key, *permission, *pattern];
                    let one = match value {
                        FieldValue::Text(action) => rule(permission, pattern, action),
                        FieldValue::List(_) | FieldValue::Map(_) => {
                            Err("expected allow, ask or deny".to_owned())
                        }
                    };
                    rules.push((*line, one.map_err(|error| (*line, wrong(&place, &error)))?));
                }
            }
            FieldValue::List(_) => {
                let error = "is a list, expected allow, ask or deny, or a map of patterns and their actions";
                return Err((*line, wrong(&place, error)));
            }
        }
    }
    Ok(rules)
}

fn rule(permission: &str, pattern: &str, action: &str) -> Result<PermissionRule, String> {
    let (permission, pattern) = (permission.to_owned(), pattern.to_owned());
    let rule = PermissionRule { permission, pattern, action: action.parse()? };
    rule.check().map(|()| rule)
}

/// A message that begins with where it is about.
fn wrong(place: &[&str], error: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let shown = |part: &&str| {
        let part: String = part.chars().filter(|c| !c.is_control()).take(64).collect();
        if !part.is_empty() && part.chars().all(bare) { part } else { format!("\"{part}\"") }
    };
    format!("`{}`: {error}", place.iter().map(shown).collect::<Vec<_>>().join("."))
}
