//! A workspace's own file: not trusted, it may choose among what there is.

use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};

use playhouse_policy::Action;
use playhouse_prompts::inside::read_inside;
use playhouse_prompts::{Origin, RulesFile};
use playhouse_protocol::ModelRef;
use playhouse_protocol::nearest::did_you_mean;

use super::document::{Document, Setting, Value};
use super::error::ConfigError;
use super::keys::{KEYS, KeyName, NAME};
use super::operator;
use super::permissions;
use super::settings::Settings;

/// The file, from the workspace's root.
const FILE: &str = ".playhouse/config.toml";

/// The most bytes that it may have.
const MAX_BYTES: u64 = 64 * 1024;

/// The most rules files that it may name.
const MAX_RULES: usize = 16;

/// Names that no key has yet, or has elsewhere, and that a workspace must not hope for.
const REFUSED: [(&str, &str); 13] = [
    ("permission", "they are called `permissions`"),
    ("moderate", "it would decide what runs without asking"),
    ("walls", "a workspace does not decide what holds it"),
    ("sandbox", "a workspace does not decide what holds it"),
    ("headers", "they are sent to servers together with keys"),
    ("api_key", "keys are the operator's, and never stand in a file"),
    ("keys", "keys are the operator's, and never stand in a file"),
    ("commands", "it would start programs of its own choice"),
    ("hooks", "it would start programs of its own choice"),
    ("mcp", "it would start programs of its own choice"),
    ("formatter", "it would start programs of its own choice"),
    ("lsp", "it would start programs of its own choice"),
    ("environment", "it would change what programs do"),
];

/// Why a key that there is elsewhere may not stand here.
const OPERATORS: &str = "servers, keys, limits and prices are the operator's";

/// Adds what the workspace `root` chose, and its rules, to `settings`.
pub(super) fn apply(root: &Path, settings: &mut Cow<'_, Settings>) -> Result<(), ConfigError> {
    // Nobody named it: one that cannot be used is left out, as those of other folders are.
    match RulesFile::of_workspace(root) {
        Ok(None) => {}
        Ok(Some(rules)) => settings.to_mut().rules.push(rules),
        Err(problem) => settings.to_mut().left_out.push(problem),
    }
    let file = root.join(FILE);
    let content = read_inside(root, Path::new(FILE), MAX_BYTES)
        .map_err(|error| ConfigError::file(&file, format!("cannot be used as configuration: {error}")))?;
    let Some(content) = content else { return Ok(()) };
    if content.size > MAX_BYTES {
        let message =
            format!("is {} bytes long; a workspace's configuration has at most {MAX_BYTES}", content.size);
        return Err(ConfigError::file(&file, message));
    }
    let text = operator::text(&file, content.bytes)?;
    let document = Document::parse(&file, &text, &permit)?;
    let settings = settings.to_mut();
    for setting in &document.settings {
        set(root, setting, settings).map_err(|message| ConfigError::line(&file, setting.line, message))?;
    }
    let permissions = permissions::read(&document, settings.home.as_deref(), &stricter)?;
    settings.workspace_permissions = permissions.rules;
    settings.permission_names.extend(permissions.names);
    Ok(())
}

/// Refuses what would make something looser.
fn stricter(action: Action) -> Result<(), String> {
    match action {
        Action::Ask | Action::Deny => Ok(()),
        Action::Allow => {
            Err("is \"allow\", and a workspace can only make permissions stricter, with \"ask\" or \"deny\""
                .to_owned())
        }
    }
}

/// Refuses everything but the keys that a workspace may set.
fn permit(key: &str) -> Result<(), String> {
    let top = |path: &'static str| path.split('.').next().unwrap_or(path);
    let allowed: Vec<&str> =
        KEYS.iter().filter(|known| known.workspace).map(|known| top(known.path)).collect();
    if allowed.contains(&key) {
        return Ok(());
    }
    let operators = KEYS.iter().any(|known| known.path.split('.').any(|part| part == key && part != NAME));
    let reason = REFUSED.iter().find(|(name, _)| *name == key).map(|(_, reason)| *reason);
    if let Some(reason) = reason.or(operators.then_some(OPERATORS)) {
        return Err(format!(
            "`{key}` may not be set by a workspace: {reason}; a workspace may set {}",
            allowed.join(", ")
        ));
    }
    let key: String = key.chars().take(64).collect();
    Err(format!(
        "unknown key `{}`; a workspace may set {}{}",
        key.escape_debug(),
        allowed.join(", "),
        did_you_mean(&key, allowed.iter().copied())
    ))
}

fn set(root: &Path, setting: &Setting, settings: &mut Settings) -> Result<(), String> {
    match (setting.key.name, &setting.value) {
        (KeyName::Model, Value::Text(text)) => {
            let model: ModelRef = text.parse().map_err(|error| format!("`model`: {error}"))?;
            settings.facts(&model).map_err(|error| {
                format!("`model`: {error} (a workspace may choose among the models that the operator has)")
            })?;
            settings.model = Some(model);
        }
        (KeyName::Agent, Value::Text(text)) => {
            let local = settings.agents_in(root, &|_| Ok(()));
            // It may choose one of its own; whether that can be used is told to whoever begins a session with it.
            let is_local = local.is_some_and(|agents| {
                matches!(agents.origin(text), Origin::Workspace(_))
                    || agents.refused().iter().any(|refused| refused.name == *text)
            });
            let known = settings.agents.get(text);
            if known.is_some_and(|agent| agent.hidden) {
                return Err(format!(
                    "`agent`: \"{text}\" works for the engine itself: choose one that answers people"
                ));
            }
            let is_known = known.is_some();
            settings.agent =
                Some(if is_local && !is_known { text.clone() } else { settings.known_agent(text)? });
        }
        (KeyName::Rules, Value::List(files)) => {
            if files.len() > MAX_RULES {
                return Err(format!("`rules` names {} files; a workspace may name {MAX_RULES}", files.len()));
            }
            for file in files {
                let rules = rules(root, file)?;
                // `AGENTS.md` is there without being named.
                if settings.rules.iter().all(|known| known.file != rules.file) {
                    settings.rules.push(rules);
                }
            }
        }
        // They are read together, in the order of the file.
        (KeyName::Permission, _) => {}
        _ => return Err(format!("`{}` may not be set by a workspace", setting.key.path)),
    }
    Ok(())
}

fn rules(root: &Path, file: &str) -> Result<RulesFile, String> {
    let written = Path::new(file);
    let inside = written.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let path: PathBuf = written.components().filter(|part| matches!(part, Component::Normal(_))).collect();
    if !inside || path.as_os_str().is_empty() {
        return Err(format!(
            "`rules`: \"{}\" is not a path inside of the workspace: write it relative to the workspace, without `..`",
            file.escape_debug()
        ));
    }
    RulesFile::inside(root, &path)
        .map_err(|error| error.to_string())?
        .ok_or_else(|| format!("`rules`: there is no file \"{}\" in the workspace", file.escape_debug()))
}
