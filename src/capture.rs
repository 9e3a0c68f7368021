//! The source of capture tools: those of the operator, the examples, and those that workspaces declare.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use playhouse_prompts::PromptError;
use playhouse_prompts::capture::{CaptureFile, DeclaredCapture, read};
use playhouse_tools::capture::{CaptureTool, EXAMPLES, example};
use playhouse_tools::{Registry, Tool, ToolScope, ToolSource};
use tokio::sync::watch;

/// So many workspaces are kept that declare tools. Of more, those go that were not asked about for the longest time, until a
/// session wakes in them.
const MOST_WORKSPACES: usize = 512;
/// So much is told models of all tools of a workspace, in bytes of names, descriptions and schemas.
const MOST_TOLD: usize = 64 * 1024;

/// Offers capture tools.
pub(crate) struct CaptureSource {
    /// The operator's, and the examples.
    everywhere: Arc<[Arc<dyn Tool>]>,
    /// Names that no workspace may take.
    taken: HashSet<String>,
    workspaces: Mutex<Workspaces>,
    changed: watch::Sender<u64>,
}

/// Workspaces that declare tools.
#[derive(Default)]
struct Workspaces {
    loaded: BTreeMap<Arc<Path>, Loaded>,
    /// Counts the questions.
    clock: u64,
}

struct Loaded {
    files: Vec<CaptureFile>,
    /// Those of the workspace, behind those that there are everywhere.
    tools: Arc<[Arc<dyn Tool>]>,
    /// When it was asked about last.
    asked: u64,
}

impl CaptureSource {
    /// Offers `tools` of the operator, and of the examples those `in_force` to all, the others by name. None takes the name of a
    /// `native` tool.
    pub(crate) fn new(native: &Registry, tools: Vec<Arc<CaptureTool>>, in_force: &[String]) -> Self {
        let mut taken: HashSet<String> = native.iter().map(|tool| tool.spec().name.clone()).collect();
        let examples = EXAMPLES.into_iter().filter_map(|name| {
            let tool = example(name)?.ok()?;
            Some(Arc::new(if in_force.iter().any(|wanted| wanted == name) {
                tool
            } else {
                tool.by_name_only()
            }))
        });
        let mut everywhere: Vec<Arc<dyn Tool>> = Vec::new();
        for tool in tools.into_iter().chain(examples) {
            let name = &tool.spec().name;
            if taken.insert(name.clone()) {
                everywhere.push(tool);
            } else if !EXAMPLES.contains(&name.as_str()) {
                tracing::warn!(tool = %name, "a capture tool is left out: there is a tool of its name");
            }
        }
        Self {
            everywhere: everywhere.into(),
            taken,
            workspaces: Mutex::default(),
            changed: watch::Sender::new(0),
        }
    }

    /// The names of the native tools, and of the capture tools that there are everywhere.
    pub(crate) fn taken(&self) -> &HashSet<String> {
        &self.taken
    }

    /// The tools that `files` declare, and why some cannot be used.
    fn declared(&self, files: &[CaptureFile]) -> (Vec<Arc<dyn Tool>>, Vec<PromptError>) {
        let (mut tools, mut refused) = (Vec::<Arc<dyn Tool>>::new(), Vec::new());
        let mut told = 0;
        for file in files {
            match self.tool(file, &tools, &mut told) {
                Ok(tool) => tools.push(tool),
                Err(error) => refused.push(error),
            }
        }
        (tools, refused)
    }

    fn tool(
        &self,
        file: &CaptureFile,
        others: &[Arc<dyn Tool>],
        told: &mut usize,
    ) -> Result<Arc<dyn Tool>, PromptError> {
        let text = file.text.as_ref().map_err(Clone::clone)?;
        let declared = DeclaredCapture::parse(&file.file, text)?;
        let name = &declared.name;
        if self.taken.contains(name) || others.iter().any(|other| other.spec().name == *name) {
            let message = format!("`name` is \"{}\", and there is such a tool already", name.escape_debug());
            return Err(declared.wrong(message));
        }
        let tool = CaptureTool::new(name, &declared.description, &declared.schema);
        let tool = tool.map_err(|error| declared.wrong(error.to_string()))?;
        let spec = tool.spec();
        let bytes = spec.name.len() + spec.description.len() + spec.parameters.to_string().len();
        if *told + bytes > MOST_TOLD {
            let message = format!(
                "`schema`: there is no room for it: the capture tools of a workspace have {MOST_TOLD} bytes of descriptions and schemas at most"
            );
            return Err(declared.wrong(message));
        }
        *told += bytes;
        Ok(Arc::new(tool))
    }
}

impl ToolSource for CaptureSource {
    fn tools(&self, scope: &ToolScope) -> Arc<[Arc<dyn Tool>]> {
        let mut workspaces = self.workspaces.lock();
        workspaces.clock += 1;
        let now = workspaces.clock;
        match workspaces.loaded.get_mut(&scope.workspace) {
            Some(loaded) => {
                loaded.asked = now;
                Arc::clone(&loaded.tools)
            }
            None => Arc::clone(&self.everywhere),
        }
    }

    fn load(&self, scope: &ToolScope) {
        let files = read(&scope.workspace);
        let known = match self.workspaces.lock().loaded.get(&scope.workspace) {
            Some(loaded) => loaded.files == files,
            None => files.is_empty(),
        };
        if known {
            return;
        }
        let (tools, refused) = self.declared(&files);
        for error in refused {
            tracing::warn!(workspace = %scope.workspace.display(), %error, "a capture tool is left out");
        }
        let mut workspaces = self.workspaces.lock();
        workspaces.clock += 1;
        let asked = workspaces.clock;
        if files.is_empty() {
            workspaces.loaded.remove(&scope.workspace);
        } else {
            let tools = self.everywhere.iter().cloned().chain(tools).collect();
            workspaces.loaded.insert(Arc::clone(&scope.workspace), Loaded { files, tools, asked });
        }
        while workspaces.loaded.len() > MOST_WORKSPACES {
            let oldest = workspaces.loaded.iter().min_by_key(|(_, loaded)| loaded.asked);
            let Some(oldest) = oldest.map(|(path, _)| Arc::clone(path)) else { break };
            workspaces.loaded.remove(&oldest);
        }
        drop(workspaces);
        self.changed.send_modify(|revision| *revision += 1);
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::SessionId;
    use playhouse_tools::ToolSources;

    use super::*;

    fn scope(root: &Path) -> ToolScope {
        let session = SessionId::parse("ses_000000000001Sess1234567890").unwrap();
        ToolScope { tenant: "a".into(), workspace: root.into(), session }
    }

    fn source(in_force: &[&str]) -> Arc<CaptureSource> {
        let in_force: Vec<String> = in_force.iter().map(|name| (*name).to_owned()).collect();
        let schema = serde_json::json!({"type": "object"});
        let tool = CaptureTool::new("verdict", "Says it.", &schema).unwrap();
        Arc::new(CaptureSource::new(&Registry::native(), vec![Arc::new(tool)], &in_force))
    }

    fn write(root: &Path, file: &str, name: &str) {
        let folder = root.join(playhouse_prompts::capture::FOLDER);
        fs_err::create_dir_all(&folder).unwrap();
        let text = format!("---\nname: {name}\ndescription: Keeps it.\nschema: {{type: object}}\n---\n");
        fs_err::write(folder.join(file), text).unwrap();
    }

    #[test]
    fn a_workspace_is_read_when_a_session_wakes_in_it() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(one.path(), "a.md", "save_note");
        for (file, taken) in
            [("b.md", "read"), ("c.md", "mcp_x"), ("d.md", "submit_output"), ("e.md", "verdict")]
        {
            write(one.path(), file, taken);
        }
        write(one.path(), "f.md", "save_note");
        let source = source(&["save_prd"]);
        let sources = ToolSources::new(Arc::new(Registry::new()), vec![source.clone()]);
        let names = |root: &Path| -> Vec<String> {
            sources.catalogue(&scope(root), None).iter().map(|tool| tool.spec().name.clone()).collect()
        };
        assert_eq!(names(one.path()), ["verdict", "save_prd"]);
        sources.load(&scope(one.path()));
        sources.load(&scope(other.path()));
        assert_eq!(names(one.path()), ["verdict", "save_prd", "save_note"]);
        assert_eq!(names(other.path()), ["verdict", "save_prd"]);
        let revision = sources.revision();
        sources.load(&scope(one.path()));
        assert_eq!(sources.revision(), revision, "nothing changed");
        write(one.path(), "a.md", "save_other");
        sources.load(&scope(one.path()));
        assert_eq!(names(one.path()), ["verdict", "save_prd", "save_other", "save_note"]);
        assert!(sources.revision() > revision);
        fs_err::remove_dir_all(one.path().join(".playhouse")).unwrap();
        sources.load(&scope(one.path()));
        assert_eq!(names(one.path()), ["verdict", "save_prd"]);
        assert!(source.workspaces.lock().loaded.is_empty());
    }

    #[test]
    fn what_is_left_out_names_file_line_and_key() {
        let file = |text: &str| CaptureFile { file: "x.md".to_owned(), text: Ok(text.to_owned()) };
        let files = [
            file("---\nname: read\nschema: {}\n---\nx"),
            file("---\nname: a\nschema:\n  type: objekt\n---\nx"),
            file("---\nname: a\nschema: {}\n---"),
        ];
        let (tools, refused) = source(&[]).declared(&files);
        assert!(tools.is_empty());
        let told: Vec<String> = refused.iter().map(ToString::to_string).collect();
        assert!(told[0].starts_with("x.md:2: `name` is \"read\", and there is"), "{told:?}");
        assert!(told[1].starts_with("x.md:3: `schema`: "), "{told:?}");
        assert!(told[2].starts_with("x.md: `description` is missing"), "{told:?}");
    }

    #[test]
    fn so_many_workspaces_are_kept() {
        let root = tempfile::tempdir().unwrap();
        let source = source(&[]);
        for number in 0..=MOST_WORKSPACES {
            let workspace = root.path().join(number.to_string());
            write(&workspace, "a.md", "save_note");
            source.load(&scope(&workspace));
        }
        assert_eq!(source.workspaces.lock().loaded.len(), MOST_WORKSPACES);
        assert_eq!(source.tools(&scope(&root.path().join("0"))).len(), 6);
        assert_eq!(source.tools(&scope(&root.path().join("1"))).len(), 7);
    }
}
