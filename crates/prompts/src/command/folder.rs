//! The commands that there are: an operator's, and those of a workspace.
//!
//! A workspace is not trusted: its commands lie in `.playhouse/commands/` and may not have the name of an operator's one. A file
//! that cannot be used is put aside with the reason; the others are there all the same.

use std::collections::BTreeMap;
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

/// The commands that there are, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Commands {
    commands: BTreeMap<String, (Owner, CommandTemplate)>,
    refused: Vec<PromptError>,
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
    pub fn refused(&self) -> &[PromptError] {
        &self.refused
    }

    /// Whether there is a file for a command of this name, if only one that cannot be used.
    pub fn knows(&self, name: &str) -> bool {
        self.commands.contains_key(name) || self.refused_as(name).is_some()
    }

    /// What is wrong with the file of this command.
    fn refused_as(&self, name: &str) -> Option<&PromptError> {
        let of = |error: &&PromptError| Path::new(&error.file).file_stem().is_some_and(|stem| stem == name);
        self.refused.iter().find(of)
    }

    /// The command of this name.
    ///
    /// # Errors
    /// There is none, or its file cannot be used: with the reason.
    pub fn find(&self, name: &str) -> Result<&CommandTemplate, String> {
        if let Some((_, command)) = self.commands.get(name) {
            return Ok(command);
        }
        if let Some(error) = self.refused_as(name) {
            return Err(error.to_string());
        }
        let names = || self.commands.keys().map(String::as_str);
        let shown = match names().next() {
            Some(_) => format!("there are {}", names().collect::<Vec<_>>().join(", ")),
            None => "there are none".to_owned(),
        };
        Err(format!("unknown command \"{}\"; {shown}{}", name.escape_debug(), did_you_mean(name, names())))
    }

    fn read_operator(&mut self, folder: &Path) {
        let names = match list_trusted(folder, MOST_NAMES) {
            Ok(names) => names.unwrap_or_default(),
            Err(error) => return self.refuse(folder.display(), &error),
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
            Err(error) => return self.refuse(FOLDER, &error),
        };
        for name in names.iter().filter(|name| name.ends_with(".md")) {
            let file = format!("{FOLDER}/{name}");
            let content = read_inside(root, Path::new(&file), MOST_BYTES);
            self.add(Owner::Workspace, &file, content);
        }
    }

    fn refuse(&mut self, file: impl std::fmt::Display, error: &io::Error) {
        self.refused.push(PromptError::whole(file, format!("cannot be used for commands: {error}")));
    }

    fn add(&mut self, owner: Owner, file: &str, content: io::Result<Option<Content>>) {
        let content = match content {
            // It was removed meanwhile.
            Ok(None) => return,
            Ok(Some(content)) => content,
            Err(error) => return self.refuse(file, &error),
        };
        match self.command(owner, file, content) {
            Ok(command) => drop(self.commands.insert(command.name.clone(), (owner, command))),
            Err(error) => self.refused.push(error),
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
