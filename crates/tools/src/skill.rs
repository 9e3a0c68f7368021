//! `skill`: the instructions of a skill, and where its other files are. Those of an operator's skill are copied for the session.

mod copy;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use playhouse_policy::{Access, AccessKind, Zone};
use playhouse_prompts::skills::Instructions;
use playhouse_prompts::{PromptError, Skill as Found, SkillOwner, Skills};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::files;
use crate::names::nearest;
use crate::tool::{CallContext, Risk, ToolError, ToolOutput};
use crate::typed::{Ready, TypedTool};

/// The most other files that a model is told of.
const MOST_TOLD: usize = 100;
/// The most things that are left out of which the log tells.
const MOST_LOGGED: usize = 10;

/// The arguments of `skill`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Arguments {
    name: String,
}

/// The tool.
#[derive(Debug, Default)]
pub struct Skill {
    /// The operator's folder of skills.
    operator: Option<PathBuf>,
    /// The operator's skills of which the log says already what is left out.
    logged: Mutex<BTreeSet<String>>,
}

/// What a call loads.
#[derive(Debug)]
pub struct Task {
    skills: Skills,
    skill: Found,
    /// The operator's folder of skills: where that is, is not told.
    operator: Option<PathBuf>,
}

impl Skill {
    /// With the operator's folder of skills, where there is one.
    pub fn new(operator: Option<PathBuf>) -> Self {
        Self { operator, logged: Mutex::default() }
    }
}

impl TypedTool for Skill {
    const NAME: &'static str = "skill";
    const DESCRIPTION: &'static str = include_str!("../../../prompts/tools/skill.md");
    const RISK: Risk = Risk::Safe;
    type Arguments = Arguments;
    type Task = Task;

    async fn prepare(&self, arguments: Arguments, context: &CallContext) -> Result<Ready<Task>, ToolError> {
        let Arguments { name } = arguments;
        let (operator, workspace) = (self.operator.clone(), context.workspace.clone());
        let skills = context.pool.run(move || Skills::find(operator.as_deref(), workspace.root())).await;
        let skill =
            skills.get(&name).cloned().ok_or_else(|| unknown(&skills, &name, self.operator.as_deref()))?;
        let place = match skill.owner {
            SkillOwner::Operator => skill.folder.clone(),
            SkillOwner::Workspace => context.workspace.root().join(&skill.folder),
        };
        // Rules name skills by their names. It is the operator who keeps skills elsewhere, for sessions to load.
        let access =
            Access::path(AccessKind::Read, place.to_string_lossy(), Zone::Workspace).shown(&skill.name);
        Ok(Ready::looking(vec![access], name, Task { skills, skill, operator: self.operator.clone() }))
    }

    async fn execute(&self, task: Task, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let output = context.workspace.output().to_owned();
        // Named like the call: no other one uses it.
        let scratch = context.output_file.with_extension("skill");
        let cancel = context.cancel.clone();
        let loaded = files::reading(context, move || task.run(&output, &scratch, &cancel)).await?;
        self.log(&loaded);
        Ok(loaded.output())
    }
}

impl Skill {
    /// Tells the operator once what of a skill of theirs no session gets.
    fn log(&self, loaded: &Loaded) {
        let Loaded { skill, left_out, .. } = loaded;
        if skill.owner == SkillOwner::Workspace || left_out.is_empty() {
            return;
        }
        let mut logged = self.logged.lock();
        if logged.insert(skill.name.clone()) {
            let (folder, count) = (skill.folder.display(), left_out.len());
            let first = left_out.iter().take(MOST_LOGGED).cloned().collect::<Vec<_>>().join("; ");
            tracing::warn!(skill = skill.name, %folder, count, first, "what a skill brings is not all copied");
        }
    }
}

impl Task {
    fn run(&self, output: &Path, scratch: &Path, cancel: &CancellationToken) -> Result<Loaded, ToolError> {
        let Self { skills, skill, operator } = self;
        let instructions = skills.instructions(skill);
        let Instructions { text, files, mut left_out } =
            instructions.map_err(|error| ToolError::Failed(told(&error, operator.as_deref())))?;
        let skill = skill.clone();
        let (place, files) = match skill.owner {
            SkillOwner::Workspace => (Place::Workspace(skill.folder.to_string_lossy().into_owned()), files),
            SkillOwner::Operator => match copy::copy(skills, &skill, &files, output, scratch, cancel) {
                Ok(copied) => {
                    left_out.extend(copied.left_out);
                    let folder = copied.folder.to_string_lossy().into_owned();
                    let place = if copied.files.is_empty() { Place::Nowhere } else { Place::Copy(folder) };
                    (place, copied.files)
                }
                Err(error) => {
                    // Where the engine keeps things is for the operator.
                    tracing::warn!(skill = skill.name, %error, "the files of a skill could not be copied");
                    (Place::Failed(error.kind()), Vec::new())
                }
            },
        };
        Ok(Loaded { skill, text, place, files, left_out })
    }
}

/// Where a session has the other files of a skill.
#[derive(Debug)]
enum Place {
    /// In the workspace, from there on.
    Workspace(String),
    /// In a copy of its own.
    Copy(String),
    /// It has none, since they could not be copied.
    Failed(io::ErrorKind),
    /// There are none.
    Nowhere,
}

/// A skill that was loaded.
#[derive(Debug)]
struct Loaded {
    skill: Found,
    text: String,
    place: Place,
    /// The files that are there.
    files: Vec<String>,
    /// What is not, and why.
    left_out: Vec<String>,
}

impl Loaded {
    fn output(self) -> ToolOutput {
        let mut metadata = Map::new();
        metadata.insert("name".into(), self.skill.name.as_str().into());
        if let Place::Workspace(folder) | Place::Copy(folder) = &self.place {
            metadata.insert("folder".into(), folder.as_str().into());
        }
        let told: Vec<Value> = self.files.iter().take(MOST_TOLD).map(|file| visible(file).into()).collect();
        metadata.insert("files".into(), told.into());
        let output = self.shown();
        ToolOutput { title: self.skill.name, output, metadata, ..ToolOutput::default() }
    }

    /// What the model reads of it.
    fn shown(&self) -> String {
        let Self { skill, text, place, files, left_out } = self;
        let mut shown = format!("<skill name=\"{}\">\n{text}\n</skill>\n\n", skill.name);
        let (there, missing) = match place {
            Place::Workspace(folder) => (format!("Its folder is {folder}. "), "Not listed"),
            Place::Copy(folder) => {
                let gone = "when it is gone, load the skill again";
                (format!("Its folder is {folder}, a copy for this session: {gone}. "), "Not copied")
            }
            Place::Failed(kind) => {
                let why = format!("Its other files could not be copied for this session: {kind}");
                return shown + &why;
            }
            Place::Nowhere => (String::new(), "Not copied"),
        };
        shown.push_str(&there);
        if !files.is_empty() {
            shown.push_str("Its other files, for `read` and `bash`, from there on:");
            list(&mut shown, files);
        } else if left_out.is_empty() {
            shown.push_str("It has no other files.");
        }
        if !left_out.is_empty() {
            shown.truncate(shown.trim_end().len());
            // Writing to a String cannot fail.
            let _ = write!(shown, "\n\n{missing}:");
            list(&mut shown, left_out);
        }
        shown
    }
}

fn list(shown: &mut String, lines: &[String]) {
    for line in lines.iter().take(MOST_TOLD) {
        let _ = write!(shown, "\n- {}", visible(line));
    }
    if let Some(more) = lines.len().checked_sub(MOST_TOLD).filter(|more| *more > 0) {
        let _ = write!(shown, "\n- and {more} more");
    }
}

/// A name as one line, which says nothing to a terminal.
fn visible(name: &str) -> String {
    let mut visible = String::with_capacity(name.len());
    for character in name.chars() {
        match character.is_control() {
            true => visible.extend(character.escape_default()),
            false => visible.push(character),
        }
    }
    visible
}

/// What is wrong, without where the operator keeps skills.
fn told(error: &PromptError, operator: Option<&Path>) -> String {
    match operator.and_then(Path::to_str) {
        Some(folder) if !folder.is_empty() => error.to_string().replace(folder, "the operator's skills"),
        _ => error.to_string(),
    }
}

fn unknown(skills: &Skills, name: &str, operator: Option<&Path>) -> ToolError {
    if let Some(problem) = skills.problem_of(name) {
        return ToolError::Failed(format!("the skill {name:?} cannot be used: {}", told(problem, operator)));
    }
    let names: Vec<&str> = skills.iter().map(|skill| skill.name.as_str()).collect();
    let name: String = name.chars().take(64).collect();
    let there_are = match names.as_slice() {
        [] => "there are none here".to_owned(),
        names => format!("there are {}", names.join(", ")),
    };
    let meant = nearest(&name, names.iter().copied());
    let hint =
        if meant.is_empty() { String::new() } else { format!("; did you mean {}?", meant.join(" or ")) };
    ToolError::Invalid(format!("there is no skill {name:?}: {there_are}{hint}"))
}

#[cfg(test)]
mod tests;
