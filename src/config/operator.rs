//! The operator's file: trusted, it may set every key.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use playhouse_prompts::RulesFile;

use super::catalogue::CATALOGUE_FILE;
use super::document::Document;
use super::error::ConfigError;
use super::permissions;
use super::reader::Reader;
use super::settings::{Settings, Variables};
use super::written;

/// The folder of agents, beside the file.
const AGENTS: &str = "agents";

/// The folder of commands, beside the file.
const COMMANDS: &str = "commands";

/// The folder of skills, beside the file.
const SKILLS: &str = "skills";

/// The most bytes of an agent's file.
const MAX_AGENT_BYTES: u64 = 256 * 1024;

/// The most bytes of the operator's file.
const LARGEST: u64 = 4 * 1024 * 1024;

/// Where the operator's file is.
pub(super) struct Location {
    pub(super) file: PathBuf,
    /// Whether somebody named it, so that it must exist.
    pub(super) named: bool,
}

impl Location {
    /// What belongs to the operator there, whether it is there or not: absolute.
    pub(super) fn own(&self) -> Vec<PathBuf> {
        let file = std::path::absolute(&self.file).unwrap_or_else(|_| self.file.clone());
        let folder = file.parent().unwrap_or(Path::new("/"));
        let mut own = vec![file.clone(), folder.join(CATALOGUE_FILE)];
        own.extend([AGENTS, COMMANDS, SKILLS].map(|name| folder.join(name)));
        // A folder that somebody named may hold everything else as well.
        if !self.named {
            own.push(folder.to_owned());
        }
        own
    }
}

/// `--config FILE`, else `$PLAYHOUSE_CONFIG`, else the user's own; `None` for a user without a home.
pub(super) fn locate(flag: Option<&Path>, variables: Variables<'_>) -> Option<Location> {
    let variable = |name: &str| variables(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(file) = flag.map(Path::to_owned).or_else(|| variable("PLAYHOUSE_CONFIG")) {
        return Some(Location { file, named: true });
    }
    // A relative XDG_CONFIG_HOME counts as absent, as its specification says.
    let folder = variable("XDG_CONFIG_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| variable("HOME").map(|home| home.join(".config")))?;
    Some(Location { file: folder.join("playhouse/config.toml"), named: false })
}

/// Applies the file at `location`, and the agents beside it, to `settings`.
pub(super) fn apply(
    location: &Location,
    variables: Variables<'_>,
    settings: &mut Settings,
) -> Result<(), ConfigError> {
    let folder = location.file.parent().unwrap_or(Path::new(""));
    add_agents(&folder.join(AGENTS), settings)?;
    // Nobody named it: one that cannot be used is left out, as those of workspaces are.
    match RulesFile::of_user(folder) {
        Ok(rules) => settings.rules.extend(rules),
        Err(problem) => settings.left_out.push(problem),
    }
    settings.tools.skills = std::path::absolute(folder.join(SKILLS)).ok();
    settings.commands = std::path::absolute(folder.join(COMMANDS)).ok();
    let mut bytes = Vec::new();
    let read = |file: fs_err::File| file.take(LARGEST + 1).read_to_end(&mut bytes);
    match fs_err::File::open(&location.file).and_then(read) {
        // The size of a device or a pipe is not known before it is read.
        Ok(size) if size as u64 > LARGEST => {
            let text = format!("has more than {} MB, the most of a configuration", LARGEST >> 20);
            return Err(ConfigError::file(&location.file, text));
        }
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !location.named => return Ok(()),
        Err(error) => return Err(ConfigError::file(&location.file, unreadable(&error))),
    }
    let text = text(&location.file, bytes)?;
    let document = Document::parse(&location.file, &text, &|_| Ok(()))?;
    settings.file = Some(location.file.clone());
    settings.written = written::written(&document).into();
    Reader { document: &document, folder, variables, settings }.read()
}

/// The reason why a file cannot be read, without its path.
pub(super) fn unreadable(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        _ => format!("cannot be read: {}", error.kind()),
    }
}

/// The text of a file, or the line that is not UTF-8.
pub(super) fn text(file: &Path, bytes: Vec<u8>) -> Result<String, ConfigError> {
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
        ConfigError::line(file, line, "this line is not UTF-8")
    })
}

fn add_agents(folder: &Path, settings: &mut Settings) -> Result<(), ConfigError> {
    let entries = match fs_err::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(ConfigError::file(folder, unreadable(&error))),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| ConfigError::file(folder, unreadable(&error)))?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
    files.sort();
    for file in files {
        let content = playhouse_prompts::inside::read_trusted(&file, MAX_AGENT_BYTES)
            .map_err(|error| ConfigError::file(&file, format!("cannot be used as an agent: {error}")))?;
        if content.size > MAX_AGENT_BYTES {
            let message = format!("is {} bytes long; an agent has at most {MAX_AGENT_BYTES}", content.size);
            return Err(ConfigError::file(&file, message));
        }
        Arc::make_mut(&mut settings.agents).add(&file.to_string_lossy(), &text(&file, content.bytes)?)?;
    }
    for agent in settings.agents.iter() {
        for (index, rule) in agent.permissions.iter().enumerate() {
            permissions::expanded(rule, settings.home.as_deref()).map_err(|message| {
                let message = format!("`permission`, \"{}\": {message}", rule.pattern.escape_debug());
                settings.agents.wrong_rule(&agent.name, index, message)
            })?;
        }
    }
    Ok(())
}
