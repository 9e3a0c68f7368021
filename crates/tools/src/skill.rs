//! `skill`: the instructions of a skill, and the files of those that lie where sessions do not read.

use std::path::{Path, PathBuf};

use playhouse_policy::{Access, AccessKind, Zone};
use playhouse_prompts::{PromptError, Skill as Found, SkillOwner, Skills};
use playhouse_protocol::record::{Effect, Recovery};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::files;
use crate::names::nearest;
use crate::tool::{CallContext, Risk, ToolError, ToolOutput};
use crate::typed::{Ready, TypedTool};

/// The arguments of `skill`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Arguments {
    /// The skill, by its name.
    name: String,
    /// A file of the skill instead of its instructions, as the instructions' result lists it. Only where that says so.
    #[serde(default)]
    file: Option<String>,
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
    file: Option<String>,
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
        let Arguments { name, file } = arguments;
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
        let title = match &file {
            Some(file) => format!("{name}: {file}"),
            None => name,
        };
        Ok(Ready {
            accesses: vec![access],
            effect: Effect::None,
            recovery: Recovery::Rerun,
            preview: title.clone(),
            title,
            task: Task { skills, skill, file, operator: self.operator.clone() },
        })
    }

    async fn execute(&self, task: Task, context: &CallContext) -> Result<ToolOutput, ToolError> {
        files::reading(context, move || task.run()).await
    }
}

impl Task {
    fn run(&self) -> Result<ToolOutput, ToolError> {
        let Self { skills, skill, file, operator } = self;
        let failed = |error: PromptError| ToolError::Failed(told(&error, operator.as_deref()));
        let folder = skill.folder.to_string_lossy().into_owned();
        let mut metadata = Map::new();
        metadata.insert("name".into(), skill.name.as_str().into());
        if skill.owner == SkillOwner::Workspace {
            metadata.insert("folder".into(), folder.as_str().into());
        }
        let (title, output) = match file {
            Some(file) => {
                let text = self.file(file)?;
                metadata.insert("file".into(), file.as_str().into());
                (format!("{}: {file}", skill.name), text)
            }
            None => {
                let instructions = skills.instructions(skill).map_err(failed)?;
                let files: Vec<Value> = instructions.files.iter().map(|file| file.as_str().into()).collect();
                metadata.insert("files".into(), files.into());
                (skill.name.clone(), shown(skill, &folder, &instructions.text, &instructions.files))
            }
        };
        Ok(ToolOutput { title, output, metadata, ..ToolOutput::default() })
    }

    fn file(&self, file: &str) -> Result<String, ToolError> {
        let Self { skills, skill, operator, .. } = self;
        if skill.owner == SkillOwner::Workspace {
            let path = skill.folder.join(Path::new(file));
            return Err(ToolError::Invalid(format!(
                "the skill {} lies in the workspace: read {} with the tool read",
                skill.name,
                path.display()
            )));
        }
        let text = skills.file(skill, file);
        let text = text.map_err(|error| ToolError::Failed(told(&error, operator.as_deref())))?;
        text.ok_or_else(|| {
            ToolError::Failed(format!(
                "the skill {} has no file {file:?}: load it without `file` to see which ones it has",
                skill.name
            ))
        })
    }
}

/// What the model reads of a skill.
fn shown(skill: &Found, folder: &str, text: &str, files: &[String]) -> String {
    let how = match skill.owner {
        SkillOwner::Workspace => {
            format!("Its folder is {folder}. Its other files, to be read with `read` from there on")
        }
        SkillOwner::Operator => {
            "It lies outside of the workspace. Its other files, to be read with `skill` and `file`".to_owned()
        }
    };
    let list = match files {
        [] => " none".to_owned(),
        files => files.iter().map(|file| format!("\n- {file}")).collect(),
    };
    format!("<skill name=\"{}\">\n{text}\n</skill>\n\n{how}:{list}", skill.name)
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
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use tempfile::TempDir;

    use super::*;
    use crate::testing;
    use crate::{Registry, Typed};

    struct Place {
        operator: TempDir,
        workspace: TempDir,
    }

    impl Place {
        fn new() -> Self {
            let place =
                Self { operator: tempfile::tempdir().unwrap(), workspace: tempfile::tempdir().unwrap() };
            place.skill(place.operator.path(), "release");
            place.skill(&place.workspace.path().join(".claude/skills"), "pdf");
            place
        }

        fn skill(&self, folder: &Path, name: &str) {
            let folder = folder.join(name);
            fs_err::create_dir_all(folder.join("scripts")).unwrap();
            let text = format!("---\nname: {name}\ndescription: d\n---\nDo {name}.\n");
            fs_err::write(folder.join("SKILL.md"), text).unwrap();
            fs_err::write(folder.join("scripts/run.sh"), "echo").unwrap();
        }

        async fn call(&self, input: Value) -> Result<ToolOutput, String> {
            let outputs = tempfile::tempdir().unwrap();
            let context = testing::context(self.workspace.path(), &outputs.path().join("o")).unwrap();
            let mut registry = Registry::new();
            let operator = Some(self.operator.path().to_owned());
            registry.add(Arc::new(Typed::new(Skill::new(operator)))).unwrap();
            testing::call(&registry, "skill", &input, &context).await.map_err(|error| error.to_string())
        }
    }

    #[tokio::test]
    async fn instructions_are_loaded_with_where_the_other_files_are() {
        let place = Place::new();
        let pdf = place.call(json!({"name": "pdf"})).await.unwrap();
        assert_eq!(
            pdf.output,
            "<skill name=\"pdf\">\nDo pdf.\n</skill>\n\nIts folder is .claude/skills/pdf. Its other files, to be read \
             with `read` from there on:\n- scripts/run.sh"
        );
        assert_eq!((pdf.title.as_str(), &pdf.metadata["files"]), ("pdf", &json!(["scripts/run.sh"])));
        let release = place.call(json!({"name": "release"})).await.unwrap();
        assert!(release.output.contains("to be read with `skill` and `file`:\n- scripts/run.sh"));
    }

    #[tokio::test]
    async fn only_the_files_of_an_operators_skill_are_read_by_it() {
        let place = Place::new();
        let script = place.call(json!({"name": "release", "file": "scripts/run.sh"})).await.unwrap();
        assert_eq!(script.output, "echo");
        let error = place.call(json!({"name": "pdf", "file": "scripts/run.sh"})).await.unwrap_err();
        assert!(error.ends_with("read .claude/skills/pdf/scripts/run.sh with the tool read"), "{error}");
        let error = place.call(json!({"name": "release", "file": "../x"})).await.unwrap_err();
        assert!(error.contains("is not a path inside of the skill's folder"), "{error}");
        let error = place.call(json!({"name": "release", "file": "x"})).await.unwrap_err();
        assert!(error.contains("has no file \"x\""), "{error}");
    }

    #[tokio::test]
    async fn what_there_is_not_is_answered_with_what_there_is() {
        let place = Place::new();
        let error = place.call(json!({"name": "pfd"})).await.unwrap_err();
        assert_eq!(error, "there is no skill \"pfd\": there are pdf, release; did you mean pdf?");
        fs_err::create_dir_all(place.workspace.path().join(".agents/skills/bad")).unwrap();
        fs_err::write(place.workspace.path().join(".agents/skills/bad/SKILL.md"), "---\nname: bad\n")
            .unwrap();
        let error = place.call(json!({"name": "bad"})).await.unwrap_err();
        assert!(error.contains("bad/SKILL.md:1: the head that begins here has no closing `---`"), "{error}");
    }
}
