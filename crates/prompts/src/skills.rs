//! Skills: folders with instructions for one kind of work, in the form that the ecosystem has for them.
//!
//! A folder of skills holds one folder for each, and that a file `SKILL.md`: a head with `name` and `description`, and then
//! the instructions. Other keys of the head are let be. A workspace keeps skills in `.playhouse/skills`, `.claude/skills` and
//! `.agents/skills`; the first one of a name counts, and those of the operator stand before all of them. A skill that cannot
//! be read is left out, and why is kept for whoever asks for it.

mod files;
mod head;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::PromptError;
use crate::inside::{
    Content, Name, NameKind, leads_outside, list_inside, list_trusted, read_inside, read_trusted,
};

/// Where a workspace keeps its skills.
const WORKSPACE_FOLDERS: [&str; 3] = [".playhouse/skills", ".claude/skills", ".agents/skills"];
/// The file of a skill.
const FILE: &str = "SKILL.md";
/// The most bytes of such a file.
const MAX_BYTES: u64 = 256 * 1024;
/// The most folders that are looked at in a folder of skills.
const MOST: usize = 200;
/// What is no part of a skill: its folder may have been fetched with git.
const FOREIGN: &str = ".git";

/// Whose a skill is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkillOwner {
    /// The operator's: it is trusted, and lies where sessions cannot read by themselves.
    Operator,
    /// The workspace's.
    Workspace,
}

/// A skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// Its name.
    pub name: String,
    /// What it is for, and when.
    pub description: String,
    /// Whose it is.
    pub owner: SkillOwner,
    /// Its folder: absolute for an operator's, else from the workspace on.
    pub folder: PathBuf,
}

/// The skills that there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skills {
    skills: BTreeMap<String, Skill>,
    /// Why others cannot be used, with the names of their folders.
    problems: Vec<(String, PromptError)>,
    /// What those of the workspace lie in.
    workspace: PathBuf,
}

/// The instructions of a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instructions {
    /// The text, without the head.
    pub text: String,
    /// The other files of its folder, from there on, sorted; at most 1,000. Links are as what they lead to.
    pub files: Vec<String>,
    /// What else is there, and why it is not among them. It does not say where the operator keeps skills.
    pub left_out: Vec<String>,
}

impl Skills {
    /// The skills in the folder `operator` and in `workspace`. Reads files.
    pub fn find(operator: Option<&Path>, workspace: &Path) -> Self {
        let mut skills = Self { workspace: workspace.to_owned(), ..Self::default() };
        if let Some(folder) = operator {
            skills.add_folder(SkillOwner::Operator, folder);
        }
        for folder in WORKSPACE_FOLDERS {
            skills.add_folder(SkillOwner::Workspace, Path::new(folder));
        }
        skills
    }

    fn add_folder(&mut self, owner: SkillOwner, folder: &Path) {
        let names = match list(&self.workspace, owner, folder, MOST) {
            Ok(names) => names.unwrap_or_default(),
            Err(error) => {
                let problem =
                    self.problem(owner, folder, &format!("cannot be used as a folder of skills: {error}"));
                self.problems.push((String::new(), problem));
                return;
            }
        };
        for Name { name, kind } in names {
            if kind == NameKind::Other {
                continue;
            }
            let folder = folder.join(&name);
            match self.read(owner, &folder) {
                Ok(Some(skill)) => self.add(skill),
                Ok(None) => {}
                Err(error) => self.problems.push((name.to_string_lossy().into_owned(), error)),
            }
        }
    }

    fn add(&mut self, skill: Skill) {
        match self.skills.get(&skill.name) {
            None => {
                self.skills.insert(skill.name.clone(), skill);
            }
            Some(known) if known.owner == SkillOwner::Operator && skill.owner == SkillOwner::Workspace => {
                let message =
                    format!("the operator has a skill \"{}\": give this one another name", skill.name);
                let problem = self.problem(skill.owner, &skill.folder.join(FILE), &message);
                self.problems.push((skill.name, problem));
            }
            // The same skill is often there for several programs.
            Some(_) => {}
        }
    }

    /// The skill in `folder`, if there is one.
    fn read(&self, owner: SkillOwner, folder: &Path) -> Result<Option<Skill>, PromptError> {
        let Some(text) = self.text(owner, &folder.join(FILE))? else { return Ok(None) };
        let file = self.place(owner, &folder.join(FILE));
        let head = head::parse(&file, &text)?;
        let folder = folder.to_owned();
        Ok(Some(Skill { name: head.name, description: head.description, owner, folder }))
    }

    /// The skills, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Skill> {
        self.skills.values()
    }

    /// The skill called `name`.
    pub fn get(&self, name: &str) -> Option<&Skill> {
        self.skills.get(name)
    }

    /// Why skills cannot be used, file and line where they are known.
    pub fn problems(&self) -> impl Iterator<Item = &PromptError> {
        self.problems.iter().map(|(_, problem)| problem)
    }

    /// Why the skill in the folder called `name` cannot be used.
    pub fn problem_of(&self, name: &str) -> Option<&PromptError> {
        self.problems.iter().find(|(folder, _)| folder == name).map(|(_, problem)| problem)
    }

    /// The instructions of `skill`. Reads files.
    ///
    /// # Errors
    /// It is gone, or is not of the form any more.
    pub fn instructions(&self, skill: &Skill) -> Result<Instructions, PromptError> {
        let file = skill.folder.join(FILE);
        let gone = || self.problem(skill.owner, &file, "is not there any more");
        let text = self.text(skill.owner, &file)?.ok_or_else(gone)?;
        let body = head::parse(&self.place(skill.owner, &file), &text)?.body.to_owned();
        let files::Listing { files, left_out } = match skill.owner {
            SkillOwner::Operator => files::list(&skill.folder, Path::new("")),
            SkillOwner::Workspace => files::list(&self.workspace, &skill.folder),
        };
        Ok(Instructions { text: body, files, left_out })
    }

    /// Another file of a skill, as its [`Instructions`] name it: its first `limit` bytes. `None` when there is no such file.
    /// Reads files.
    ///
    /// # Errors
    /// It leads out of the skill's folder (out of the workspace, for a skill of one), is no file, or cannot be read.
    pub fn content(&self, skill: &Skill, file: &str, limit: u64) -> Result<Option<Content>, PromptError> {
        let content = match skill.owner {
            SkillOwner::Operator => read_inside(&skill.folder, Path::new(file), limit),
            SkillOwner::Workspace => read_inside(&self.workspace, &skill.folder.join(file), limit),
        };
        content.map_err(|error| {
            let outside = leads_outside(&error) && skill.owner == SkillOwner::Operator;
            let reason =
                if outside { "it leads out of the skill's folder".to_owned() } else { error.to_string() };
            PromptError::whole(file.escape_debug(), format!("cannot be read: {reason}"))
        })
    }

    /// The text of a skill's own file; `None` where there is none.
    fn text(&self, owner: SkillOwner, file: &Path) -> Result<Option<String>, PromptError> {
        let content = match owner {
            SkillOwner::Operator => match read_trusted(file, MAX_BYTES) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                content => content.map(Some),
            },
            SkillOwner::Workspace => read_inside(&self.workspace, file, MAX_BYTES),
        };
        self.checked(owner, file, content)
    }

    fn checked(
        &self,
        owner: SkillOwner,
        file: &Path,
        content: io::Result<Option<Content>>,
    ) -> Result<Option<String>, PromptError> {
        let content =
            content.map_err(|error| self.problem(owner, file, &format!("cannot be read: {error}")))?;
        let Some(content) = content else { return Ok(None) };
        if content.size > MAX_BYTES {
            let message =
                format!("is {} bytes long; a file of a skill has at most {MAX_BYTES}", content.size);
            return Err(self.problem(owner, file, &message));
        }
        let text = String::from_utf8(content.bytes).map_err(|error| {
            let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
            PromptError::at(&self.place(owner, file), line, "this line is not UTF-8")
        })?;
        Ok(Some(text))
    }

    fn problem(&self, owner: SkillOwner, file: &Path, message: &str) -> PromptError {
        PromptError::whole(self.place(owner, file), message)
    }

    /// What people know a file by: its whole path.
    fn place(&self, owner: SkillOwner, file: &Path) -> String {
        let path = match owner {
            SkillOwner::Operator => file.to_owned(),
            SkillOwner::Workspace => self.workspace.join(file),
        };
        path.to_string_lossy().into_owned()
    }
}

/// The names in a folder of skills, or of one; `None` when there is none.
fn list(workspace: &Path, owner: SkillOwner, folder: &Path, most: usize) -> io::Result<Option<Vec<Name>>> {
    match owner {
        SkillOwner::Operator => list_trusted(folder, most),
        SkillOwner::Workspace => list_inside(workspace, folder, most),
    }
}

#[cfg(test)]
impl Skill {
    pub(crate) fn of_text(name: &str, description: &str) -> Self {
        let (name, description) = (name.to_owned(), description.to_owned());
        Self { folder: name.clone().into(), name, description, owner: SkillOwner::Workspace }
    }
}

#[cfg(test)]
mod tests;
