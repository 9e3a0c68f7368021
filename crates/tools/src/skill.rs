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
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use playhouse_protocol::walls::{Sandbox, WallsAllowed};
    use playhouse_workspace::{Walls, WallsSpec};
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;
    use crate::testing;
    use crate::{NativeOptions, Registry};

    struct Place {
        operator: TempDir,
        workspace: TempDir,
        /// Holds that of the session.
        outputs: TempDir,
    }

    fn mode(mode: u32) -> std::fs::Permissions {
        std::fs::Permissions::from_mode(mode)
    }

    impl Place {
        fn new() -> Self {
            let [operator, workspace, outputs] = [(); 3].map(|()| tempfile::tempdir().unwrap());
            let place = Self { operator, workspace, outputs };
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

        fn context(&self) -> CallContext {
            testing::context(self.workspace.path(), &self.outputs.path().join("o")).unwrap()
        }

        fn registry(&self) -> Registry {
            let skills = Some(self.operator.path().to_owned());
            Registry::native_with(NativeOptions { skills, ..NativeOptions::default() })
        }

        async fn call(&self, input: Value) -> Result<ToolOutput, String> {
            let called = testing::call(&self.registry(), "skill", &input, &self.context()).await;
            called.map_err(|error| error.to_string())
        }
    }

    #[tokio::test]
    async fn instructions_are_loaded_with_where_the_other_files_are() {
        let place = Place::new();
        let pdf = place.call(json!({"name": "pdf"})).await.unwrap();
        assert_eq!(
            pdf.output,
            "<skill name=\"pdf\">\nDo pdf.\n</skill>\n\nIts folder is .claude/skills/pdf. Its other files, for `read` and \
             `bash`, from there on:\n- scripts/run.sh"
        );
        assert_eq!((pdf.title.as_str(), &pdf.metadata["files"]), ("pdf", &json!(["scripts/run.sh"])));
        fs_err::remove_dir_all(place.workspace.path().join(".claude/skills/pdf/scripts")).unwrap();
        let pdf = place.call(json!({"name": "pdf"})).await.unwrap();
        assert!(
            pdf.output.ends_with("Its folder is .claude/skills/pdf. It has no other files."),
            "{}",
            pdf.output
        );
    }

    #[tokio::test]
    async fn the_files_of_an_operators_skill_are_copied_for_the_session() {
        let place = Place::new();
        let copy = place.outputs.path().join("o/skills/release");
        fs_err::set_permissions(place.operator.path().join("release/scripts/run.sh"), mode(0o755)).unwrap();
        let release = place.call(json!({"name": "release"})).await.unwrap();
        let told = format!(
            "Its folder is {}, a copy for this session: when it is gone, load the skill again. Its other files, for `read` \
             and `bash`, from there on:\n- scripts/run.sh",
            copy.display()
        );
        assert!(release.output.ends_with(&told), "{}", release.output);
        assert_eq!(release.metadata["folder"], json!(copy));
        assert_eq!(fs_err::read_to_string(copy.join("scripts/run.sh")).unwrap(), "echo");
        assert_eq!(
            fs_err::metadata(copy.join("scripts/run.sh")).unwrap().permissions().mode() & 0o777,
            0o700
        );
        // Where the operator keeps it is not told.
        let operator = place.operator.path().to_str().unwrap();
        assert!(!format!("{} {:?}", release.output, release.metadata).contains(operator));

        // It is as the skill is when it is loaded, and nothing else is left there.
        let skill = place.operator.path().join("release");
        fs_err::remove_dir_all(skill.join("scripts")).unwrap();
        fs_err::write(skill.join("notes.md"), "new").unwrap();
        place.call(json!({"name": "release"})).await.unwrap();
        assert!(!copy.join("scripts").exists());
        assert_eq!(fs_err::read_to_string(copy.join("notes.md")).unwrap(), "new");
        let names = |folder: &Path| {
            let names = fs_err::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
            names.collect::<Vec<_>>()
        };
        assert_eq!(
            (names(&place.outputs.path().join("o")), names(&copy)),
            (vec!["skills".into()], vec!["notes.md".into()])
        );
    }

    #[tokio::test]
    async fn a_session_reads_and_runs_what_it_loaded_within_walls_and_without() {
        let place = Place::new();
        let kept = fs_err::canonicalize(place.operator.path()).unwrap().join("release/scripts/run.sh");
        fs_err::write(&kept, "#!/bin/sh\necho \"ran $1\"\n").unwrap();
        fs_err::set_permissions(&kept, mode(0o755)).unwrap();
        let outputs = fs_err::canonicalize(place.outputs.path()).unwrap();
        let spec = WallsSpec {
            sandbox: Sandbox::Required,
            allowed: WallsAllowed::default(),
            workspace: fs_err::canonicalize(place.workspace.path()).unwrap(),
            output: outputs.join("o"),
            home: outputs.join("home"),
            hidden: vec![place.operator.path().to_owned()],
            roots: Vec::new(),
        };
        let copy = outputs.join("o/skills/release/scripts/run.sh").display().to_string();
        for (walls, held) in [(Walls::open(), false), (Walls::build(&spec).unwrap(), true)] {
            let mut context = place.context();
            context.walls = walls;
            let call = async |tool: &str, input: Value| {
                let called = testing::call(&place.registry(), tool, &input, &context).await;
                called.map(|output| output.output).map_err(|error| error.to_string())
            };
            call("skill", json!({"name": "release"})).await.unwrap();
            assert_eq!(call("bash", json!({"command": format!("{copy} well")})).await.unwrap(), "ran well\n");
            let read = call("read", json!({"filePath": copy})).await.unwrap();
            assert!(read.contains("echo \"ran $1\""), "{read}");
            // Rules see what is named; what they cannot tell is for the walls.
            let error = call("bash", json!({"command": format!("echo '#' > {copy}")})).await.unwrap_err();
            assert!(error.contains("which can only be read"), "{error}");
            let works = async |command: String| {
                call("bash", json!({"command": format!("{command} && echo works")}))
                    .await
                    .unwrap()
                    .contains("works")
            };
            assert_eq!(works(format!("cat \"$(printf %s '{}')\"", kept.display())).await, !held);
            assert_eq!(works(format!("touch \"$(printf %s '{copy}')\"")).await, !held);
        }
    }

    #[tokio::test]
    async fn what_cannot_be_copied_is_named() {
        let place = Place::new();
        let skill = place.operator.path().join("release");
        fs_err::write(place.operator.path().join("key"), "secret").unwrap();
        std::os::unix::fs::symlink("../key", skill.join("out")).unwrap();
        fs_err::File::create(skill.join("huge")).unwrap().file().set_len(17 * 1024 * 1024).unwrap();
        let release = place.call(json!({"name": "release"})).await.unwrap();
        let said = "\n- huge\n- out\n- scripts/run.sh\n\nNot copied:\n- huge: it has 17825792 bytes, and 16777216 are copied \
                    at most\n- out: cannot be read: it leads out of the skill's folder";
        assert!(release.output.ends_with(said), "{}", release.output);
        let copy = place.outputs.path().join("o/skills/release");
        assert!(copy.join("scripts/run.sh").exists() && !copy.join("out").exists());

        // Where nothing can be written, the instructions come all the same.
        fs_err::remove_dir_all(place.outputs.path().join("o")).unwrap();
        fs_err::write(place.outputs.path().join("o"), "in the way").unwrap();
        let release = place.call(json!({"name": "release"})).await.unwrap();
        assert!(
            release.output.contains("Do release.\n</skill>\n\nIts other files could not be copied"),
            "{}",
            release.output
        );
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
