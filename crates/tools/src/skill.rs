//! `skill`: the instructions of a skill, and where its other files are. Those of an operator's skill are copied for the session.

mod copy;

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use playhouse_policy::{Access, AccessKind, Zone};
use playhouse_prompts::skills::Instructions;
use playhouse_prompts::{PromptError, Skill as Found, SkillOwner, Skills};
use playhouse_protocol::record::{Effect, Recovery};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::files;
use crate::names::nearest;
use crate::tool::{CallContext, Risk, ToolError, ToolOutput};
use crate::typed::{Ready, TypedTool};
use copy::Copied;

/// The most other files that a model is told of.
const MOST_TOLD: usize = 100;

/// The arguments of `skill`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Arguments {
    /// The skill, by its name.
    name: String,
}

/// The tool.
#[derive(Debug, Default)]
pub struct Skill {
    /// The operator's folder of skills.
    operator: Option<PathBuf>,
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
        Self { operator }
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
        Ok(Ready {
            accesses: vec![access],
            effect: Effect::None,
            recovery: Recovery::Rerun,
            preview: name.clone(),
            title: name,
            task: Task { skills, skill, operator: self.operator.clone() },
        })
    }

    async fn execute(&self, task: Task, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let output = context.workspace.output().to_owned();
        // Named like the call: no other one uses it.
        let scratch = context.output_file.with_extension("skill");
        let cancel = context.cancel.clone();
        files::reading(context, move || task.run(&output, &scratch, &cancel)).await
    }
}

impl Task {
    fn run(
        &self,
        output: &Path,
        scratch: &Path,
        cancel: &CancellationToken,
    ) -> Result<ToolOutput, ToolError> {
        let Self { skills, skill, operator } = self;
        let instructions = skills.instructions(skill);
        let instructions =
            instructions.map_err(|error| ToolError::Failed(told(&error, operator.as_deref())))?;
        let files = &instructions.files;
        let place = match skill.owner {
            SkillOwner::Workspace => Place::Workspace(skill.folder.to_string_lossy().into_owned()),
            SkillOwner::Operator if files.is_empty() => Place::Nowhere,
            SkillOwner::Operator => Place::Copy(copy::copy(skills, skill, files, output, scratch, cancel)),
        };
        let mut metadata = Map::new();
        metadata.insert("name".into(), skill.name.as_str().into());
        let folder = match &place {
            Place::Workspace(folder) => Some(folder.clone()),
            Place::Copy(Ok(copied)) => Some(copied.folder.to_string_lossy().into_owned()),
            Place::Copy(Err(_)) | Place::Nowhere => None,
        };
        metadata.extend(folder.map(|folder| ("folder".to_owned(), Value::from(folder))));
        let told: Vec<Value> = files.iter().take(MOST_TOLD).map(|file| file.as_str().into()).collect();
        metadata.insert("files".into(), told.into());
        let output = shown(skill, &instructions, &place);
        Ok(ToolOutput { title: skill.name.clone(), output, metadata, ..ToolOutput::default() })
    }
}

/// Where a session has the other files of a skill.
enum Place {
    /// In the workspace, from there on.
    Workspace(String),
    /// In a copy of its own.
    Copy(io::Result<Copied>),
    /// There are none.
    Nowhere,
}

/// What the model reads of a skill.
fn shown(skill: &Found, instructions: &Instructions, place: &Place) -> String {
    let Instructions { text, files } = instructions;
    let mut shown = format!("<skill name=\"{}\">\n{text}\n</skill>\n\n", skill.name);
    // Writing to a String cannot fail.
    let _ = match place {
        Place::Workspace(folder) => write!(shown, "Its folder is {folder}."),
        Place::Copy(Ok(copied)) => write!(
            shown,
            "Its folder is {}, a copy for this session: when it is gone, load the skill again.",
            copied.folder.display()
        ),
        Place::Copy(Err(error)) => {
            let _ = write!(shown, "Its other files could not be copied for this session: {error}");
            return shown;
        }
        Place::Nowhere => Ok(()),
    };
    if files.is_empty() {
        shown.push_str(" It has no other files.");
        return shown.trim_end().to_owned();
    }
    shown.push_str(" Its other files, for `read` and `bash`, from there on:");
    list(&mut shown, files);
    if let Place::Copy(Ok(Copied { left_out, .. })) = place
        && !left_out.is_empty()
    {
        shown.push_str("\n\nNot copied:");
        list(&mut shown, left_out);
    }
    shown
}

fn list(shown: &mut String, lines: &[String]) {
    for line in lines.iter().take(MOST_TOLD) {
        let _ = write!(shown, "\n- {line}");
    }
    if let Some(more) = lines.len().checked_sub(MOST_TOLD).filter(|more| *more > 0) {
        let _ = write!(shown, "\n- and {more} more");
    }
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
