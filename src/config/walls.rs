//! What is configured of the walls around programs.

use std::path::{Component, Path, PathBuf};

use playhouse_actors::Moderate;
use playhouse_policy::Pattern;
use playhouse_protocol::Sandbox;
use playhouse_protocol::nearest::did_you_mean;

use super::document::Value;
use super::keys::KeyName;
use super::settings::Settings;

/// Takes a setting over. A fragment says what is wrong with it.
pub(super) fn set(key: KeyName, value: &Value, settings: &mut Settings) -> Result<(), String> {
    let home = settings.home.as_deref();
    match (key, value) {
        (KeyName::Sandbox, Value::Text(text)) => {
            settings.sandbox = sandbox(text)?;
            settings.sandbox_is_set = true;
        }
        (KeyName::Moderate, Value::Text(text)) => settings.moderate = moderate(text)?,
        (KeyName::WallsRead, Value::List(list)) => settings.walls.read = directories(list, home)?,
        (KeyName::WallsWrite, Value::List(list)) => {
            let directories = directories(list, home)?;
            if directories.iter().any(|directory| directory == "/") {
                return Err(
                    "\"/\" would let everything be changed: set `sandbox = \"off\"` for that".to_owned()
                );
            }
            settings.walls.write = directories;
        }
        (KeyName::WallsNetwork, Value::Boolean(network)) => settings.walls.network = *network,
        (KeyName::WallsRoots, Value::List(list)) => {
            settings.roots = directories(list, home)?.into_iter().map(PathBuf::from).collect();
        }
        _ => return Err("does not belong here".to_owned()),
    }
    Ok(())
}

fn sandbox(text: &str) -> Result<Sandbox, String> {
    Sandbox::ALL.into_iter().find(|sandbox| sandbox.name() == text).ok_or_else(|| {
        let meant = did_you_mean(text, Sandbox::ALL.map(Sandbox::name));
        format!("is \"{}\", expected required, best-effort or off{meant}", text.escape_debug())
    })
}

fn moderate(text: &str) -> Result<Moderate, String> {
    match text {
        "allow" => Ok(Moderate::Allow),
        "ask" => Ok(Moderate::Ask),
        _ => Err(format!("is \"{}\", expected allow or ask", text.escape_debug())),
    }
}

pub(super) fn directories(list: &[String], home: Option<&str>) -> Result<Vec<String>, String> {
    list.iter().map(|text| directory(text, home)).collect()
}

/// The absolute path that `text` is. Those of sessions are compared with it by their names: it has no detours.
fn directory(text: &str, home: Option<&str>) -> Result<String, String> {
    let shown = text.escape_debug();
    let path = match home {
        Some(home) => Pattern::new(text).expanded(home).to_string(),
        None => text.to_owned(),
    };
    if !path.starts_with('/') {
        let home = if home.is_none() { " (HOME is not set)" } else { "" };
        return Err(format!("\"{shown}\" is not an absolute path: begin it with `/`, or with `~/`{home}"));
    }
    if path.contains(char::is_control) {
        return Err(format!("\"{shown}\" holds control characters"));
    }
    let mut clean = PathBuf::new();
    for part in Path::new(&path).components() {
        if part == Component::ParentDir {
            return Err(format!("\"{shown}\" holds `..`: write the path without it"));
        }
        clean.push(part);
    }
    Ok(clean.to_string_lossy().into_owned())
}
