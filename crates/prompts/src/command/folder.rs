//! The commands that there are: an operator's, and those of a workspace.
//!
//! A workspace is not trusted: its commands lie in `.playhouse/commands/` and may not have the name of an operator's one. A file
//! that cannot be used is put aside with the reason; the others are there all the same.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;

use playhouse_protocol::nearest::did_you_mean;

use super::CommandTemplate;
use crate::PromptError;
use crate::inside::{Content, list_trusted, names_inside, read_inside, read_trusted};

/// The folder of a workspace's commands, from its root.
const FOLDER: &str = ".playhouse/commands";
/// The most names in a folder that are looked at, and the most bytes of a file.
const MOST_NAMES: usize = 256;
const MOST_BYTES: u64 = 64 * 1024;

/// Whose a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// An operator's.
    Operator,
    /// The workspace's: text of people who are not trusted.
    Workspace,
}

/// Why a command cannot be run. As text it says everything, for the operator; [`told`](Self::told) is for others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandFault {
    /// There is none of this name, or what was typed behind it does not fit.
    #[error("{0}")]
    Typed(String),
    /// Its file is wrong.
    #[error("{error}")]
    File {
        /// Whose it is.
        owner: Owner,
        /// The command's name; `None` where it is the whole folder that cannot be used.
        name: Option<String>,
        /// What is wrong, and where.
        error: PromptError,
    },
}

impl CommandFault {
    /// What is wrong, without where the operator keeps commands.
    pub fn told(&self) -> String {
        let Self::File { owner: Owner::Operator, name, error } = self else { return self.to_string() };
        let name =
            name.as_ref().map_or_else(|| "the operator's commands".to_owned(), |name| format!("/{name}"));
        match error.line {
            Some(line) => format!("{name}: line {line}: {}", error.message),
            None => format!("{name}: {}", error.message),
        }
    }

    /// Whether [`told`](Self::told) leaves out where the operator keeps the file.
    pub fn is_operators(&self) -> bool {
        matches!(self, Self::File { owner: Owner::Operator, .. })
    }
}

/// The commands that there are, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Commands {
    commands: BTreeMap<String, (Owner, CommandTemplate)>,
    refused: Vec<CommandFault>,
}

impl Commands {
    /// Reads the commands in an operator's folder `operator` and those of the workspace `root`.
    pub fn read(operator: Option<&Path>, root: Option<&Path>) -> Self {
        let mut commands = Self::default();
        if let Some(folder) = operator {
            commands.read_operator(folder);
        }
        if let Some(root) = root {
            commands.read_workspace(root);
        }
        commands
    }

    /// The commands, by name.
    pub fn iter(&self) -> impl Iterator<Item = (Owner, &CommandTemplate)> {
        self.commands.values().map(|(owner, command)| (*owner, command))
    }

    /// What cannot be used, and why.
    pub fn refused(&self) -> &[CommandFault] {
        &self.refused
    }

    /// Whether there is a file for a command of this name, if only one that cannot be used.
    pub fn knows(&self, name: &str) -> bool {
        self.commands.contains_key(name) || self.refused_as(name).is_some()
    }

    /// What is wrong with the file of this command.
    fn refused_as(&self, wanted: &str) -> Option<&CommandFault> {
        let of = |fault: &&CommandFault| matches!(fault, CommandFault::File { name: Some(name), .. } if name == wanted);
        self.refused.iter().find(of)
    }

    /// The command of this name.
    ///
    /// # Errors
    /// There is none, or its file cannot be used: with the reason.
    pub fn find(&self, name: &str) -> Result<&CommandTemplate, CommandFault> {
        if let Some((_, command)) = self.commands.get(name) {
            return Ok(command);
        }
        if let Some(fault) = self.refused_as(name) {
            return Err(fault.clone());
        }
        let names = || self.commands.keys().map(String::as_str);
        let shown = match names().next() {
            Some(_) => format!("there are {}", names().collect::<Vec<_>>().join(", ")),
            None => "there are none".to_owned(),
        };
        let meant = did_you_mean(name, names());
        Err(CommandFault::Typed(format!("unknown command \"{}\"; {shown}{meant}", name.escape_debug())))
    }

    /// What is wrong with the value of a key of this command, as far as that is known only where it is run.
    pub fn wrong(&self, command: &CommandTemplate, key: &str, message: impl Into<String>) -> CommandFault {
        let owner = self.commands.get(&command.name).map_or(Owner::Workspace, |(owner, _)| *owner);
        CommandFault::File { owner, name: Some(command.name.clone()), error: command.wrong(key, message) }
    }

    fn read_operator(&mut self, folder: &Path) {
        let names = match list_trusted(folder, MOST_NAMES) {
            Ok(names) => names.unwrap_or_default(),
            Err(error) => return self.refuse(Owner::Operator, None, folder.display(), &error),
        };
        for path in names.iter().map(|name| folder.join(&name.name)) {
            if path.extension().is_some_and(|extension| extension == "md") {
                let file = path.to_string_lossy();
                self.add(Owner::Operator, &file, read_trusted(&path, MOST_BYTES).map(Some));
            }
        }
    }

    fn read_workspace(&mut self, root: &Path) {
        let names = match names_inside(root, Path::new(FOLDER), MOST_NAMES) {
            Ok(names) => names,
            Err(error) => return self.refuse(Owner::Workspace, None, FOLDER, &error),
        };
        for name in names.iter().filter(|name| name.ends_with(".md")) {
            let file = format!("{FOLDER}/{name}");
            let content = read_inside(root, Path::new(&file), MOST_BYTES);
            self.add(Owner::Workspace, &file, content);
        }
    }

    fn refuse(&mut self, owner: Owner, name: Option<String>, file: impl fmt::Display, error: &io::Error) {
        let error = PromptError::whole(file, format!("cannot be used for commands: {error}"));
        self.refused.push(CommandFault::File { owner, name, error });
    }

    fn add(&mut self, owner: Owner, file: &str, content: io::Result<Option<Content>>) {
        let stem = Path::new(file).file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let content = match content {
            // It was removed meanwhile.
            Ok(None) => return,
            Ok(Some(content)) => content,
            Err(error) => return self.refuse(owner, stem, file, &error),
        };
        match self.command(owner, file, content) {
            Ok(command) => drop(self.commands.insert(command.name.clone(), (owner, command))),
            Err(error) => self.refused.push(CommandFault::File { owner, name: stem, error }),
        }
    }

    fn command(&self, owner: Owner, file: &str, content: Content) -> Result<CommandTemplate, PromptError> {
        if content.size > MOST_BYTES {
            let message = format!("is {} bytes long; a command has at most {MOST_BYTES}", content.size);
            return Err(PromptError::whole(file, message));
        }
        let text = String::from_utf8(content.bytes).map_err(|error| {
            let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
            PromptError::at(file, line, "this line is not UTF-8")
        })?;
        let command = CommandTemplate::parse(file, &text)?;
        match self.commands.get(&command.name) {
            Some((Owner::Operator, _)) if owner == Owner::Workspace => Err(PromptError::whole(
                file,
                format!(
                    "the operator has a command \"{}\" already: give this one another name",
                    command.name
                ),
            )),
            _ => Ok(command),
        }
    }
}
