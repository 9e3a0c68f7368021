//! `apply_patch`: changes of several files at once, all of them or none.
//!
//! Every path is resolved, and every hunk has its place, before any file changes. Then the files change one after the
//! other, and when one of them cannot, those before it go back to what they were.
//!
//! One file may have several `*** Update File:` sections; they are done one after the other. Every other way to name a
//! file twice is refused, since it is not clear what is meant.

mod commit;
mod plan;
mod report;
mod rewrite;

use std::collections::HashMap;
use std::iter;
use std::path::{Path, PathBuf};

use playhouse_policy::{Access, AccessKind, Zone};
use playhouse_protocol::record::{Effect, Recovery};
use playhouse_workspace::{FileTracker, Resolved, Workspace};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::files::change::Keeping;
use crate::files::{self, document};
use crate::patch::{self, Action, Effort, Hunk};
use crate::tool::{CallContext, Risk, ToolError, ToolOutput};
use crate::typed::{Ready, TypedTool};
pub use rewrite::{Rewrite, Rewrites};

/// What is carried out, as people are told of it.
const PATCH: &str = "the patch";

/// The longest patch, in bytes.
const LONGEST: usize = 4_000_000;

/// The most sections of a patch.
const SECTIONS: usize = 500;

/// The arguments of `apply_patch`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Arguments {
    patch_text: String,
}

/// The tool.
#[derive(Debug, Default)]
pub struct ApplyPatch;

/// What a call changes.
#[derive(Clone, Debug)]
pub struct Task {
    steps: Vec<Step>,
    /// What is known of their diffs from the preview.
    drafts: Vec<Option<report::Draft>>,
}

/// What is done with one file. No two steps of a task name the same place.
#[derive(Clone, Debug)]
struct Step {
    place: Resolved,
    deed: Deed,
}

#[derive(Clone, Debug)]
enum Deed {
    Add(String),
    Delete,
    Update {
        /// The hunks, one list for each section about this file.
        sections: Vec<Vec<Hunk>>,
        to: Option<Resolved>,
    },
}

impl Step {
    /// Where it changes something: its file, and where that is moved to.
    fn places(&self) -> impl Iterator<Item = &Resolved> {
        let target = match &self.deed {
            Deed::Update { to, .. } => to.as_ref(),
            Deed::Add(_) | Deed::Delete => None,
        };
        iter::once(&self.place).chain(target)
    }
}

impl TypedTool for ApplyPatch {
    const NAME: &'static str = "apply_patch";
    const DESCRIPTION: &'static str = include_str!("../../../prompts/tools/apply_patch.md");
    const RISK: Risk = Risk::Dangerous;
    const PERMISSION: &'static str = "edit";
    type Arguments = Arguments;
    type Task = Task;

    async fn prepare(&self, arguments: Arguments, context: &CallContext) -> Result<Ready<Task>, ToolError> {
        let (workspace, cancel) = (context.workspace.clone(), context.cancel.clone());
        let (task, preview) = files::reading(context, move || {
            let mut task = Task::read(&arguments.patch_text, &workspace)?;
            let preview = task.preview(&arguments.patch_text, &cancel);
            Ok((task, preview))
        })
        .await?;
        Ok(Ready {
            accesses: task.accesses(),
            effect: Effect::Workspace,
            recovery: Recovery::Interrupt,
            preview,
            title: task.title(),
            task,
        })
    }

    async fn execute(&self, task: Task, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let (known, cancel) = (context.files.clone(), context.cancel.clone());
        let keeping = Keeping::of(context);
        let paths: Vec<PathBuf> = task.places().map(|place| place.path.clone()).collect();
        files::changing_all(context, &paths, move || task.run(&known, &keeping, &cancel)).await
    }
}

/// Refuses a `path` whose last name is a link: what leads to `place` would stay, and what it leads to would go.
fn must_be_no_link(path: &str, place: &Resolved, workspace: &Workspace) -> Result<(), ToolError> {
    let (path, parent) = (Path::new(path), Path::new(path).parent());
    let Some(name) = path.file_name() else { return Ok(()) };
    let parent = parent.and_then(Path::to_str).filter(|parent| !parent.is_empty()).unwrap_or(".");
    let parent = workspace.resolve(parent).map_err(|error| ToolError::Invalid(error.to_string()))?;
    if parent.path.join(name) == place.path {
        return Ok(());
    }
    Err(ToolError::Invalid(format!(
        "{} is a link to {}: a patch neither deletes nor moves links, nor files through them. Name {} itself, or use bash (rm, mv) for the link",
        path.display(),
        place.shown,
        place.shown
    )))
}

impl Task {
    /// Reads `text`, and looks where its paths lead.
    fn read(text: &str, workspace: &Workspace) -> Result<Self, ToolError> {
        if text.len() > LONGEST {
            return Err(ToolError::Invalid(format!(
                "patchText has {}, and a patch may have {}: make several of it",
                files::size(text.len() as u64),
                files::size(LONGEST as u64)
            )));
        }
        let patch = patch::parse(text).map_err(ToolError::Invalid)?;
        if patch.sections.len() > SECTIONS {
            return Err(ToolError::Invalid(format!(
                "the patch has {}, and may have {SECTIONS}: make several of it",
                files::counted(patch.sections.len(), "section")
            )));
        }
        let resolve = |path: &str| {
            if path.ends_with('/') {
                return Err(ToolError::Invalid(format!("\"{path}\" names a directory: name a file in it")));
            }
            workspace.resolve(path).map_err(|error| ToolError::Invalid(error.to_string()))
        };
        let mut task = Self { steps: Vec::with_capacity(patch.sections.len()), drafts: Vec::new() };
        let mut known = HashMap::new();
        for section in patch.sections {
            let place = resolve(&section.path)?;
            if matches!(section.action, Action::Delete | Action::Update { to: Some(_), .. }) {
                must_be_no_link(&section.path, &place, workspace)?;
            }
            let deed = match section.action {
                Action::Add(content) => Deed::Add(content),
                Action::Delete => Deed::Delete,
                Action::Update { hunks, to } => {
                    let to = to.as_deref().map(resolve).transpose()?;
                    Deed::Update { sections: vec![hunks], to: to.filter(|to| to.path != place.path) }
                }
            };
            task.push(&mut known, Step { place, deed })?;
        }
        Ok(task)
    }

    /// Adds a step. `known` has the step that names each place.
    fn push(&mut self, known: &mut HashMap<PathBuf, usize>, step: Step) -> Result<(), ToolError> {
        let taken = step.places().find_map(|place| Some((*known.get(&place.path)?, place.shown.clone())));
        let Some((index, shown)) = taken else {
            known.extend(step.places().map(|place| (place.path.clone(), self.steps.len())));
            self.steps.push(step);
            return Ok(());
        };
        match (self.steps.get_mut(index).map(|step| &mut step.deed), step.deed) {
            (Some(Deed::Update { sections, to: None }), Deed::Update { sections: more, to: None }) => {
                sections.extend(more);
                Ok(())
            }
            _ => Err(ToolError::Invalid(format!(
                "the patch names {shown} twice: put all that happens to a file into one section. Only \"{}\" without \"{}\" may be there more than once",
                patch::UPDATE,
                patch::MOVE
            ))),
        }
    }

    /// All places that change.
    fn places(&self) -> impl Iterator<Item = &Resolved> {
        self.steps.iter().flat_map(Step::places)
    }

    fn accesses(&self) -> Vec<Access> {
        self.places().map(|place| place.access(AccessKind::Write)).collect()
    }

    fn title(&self) -> String {
        match &self.steps[..] {
            [only] => only.place.shown.clone(),
            all => files::counted(all.len(), "file"),
        }
    }

    /// The diff of all files, as far as they may be looked at before somebody agreed; else the patch.
    fn preview(&mut self, text: &str, cancel: &CancellationToken) -> String {
        let inside = self.places().all(|place| place.zone == Zone::Workspace);
        let planned = inside.then(|| self.plan(None, cancel));
        match planned {
            Some(Ok(planned)) => {
                let (preview, drafts) = report::preview(&planned);
                self.drafts = drafts;
                preview
            }
            // If the patch does not fit now, the call will say why, should that still be so.
            Some(Err(_)) | None => document::cut_characters(text, report::FOR_CONSENT).0.to_owned(),
        }
    }

    fn plan(
        &self,
        known: Option<&FileTracker>,
        cancel: &CancellationToken,
    ) -> Result<Vec<plan::Planned>, ToolError> {
        let cancelled = || cancel.is_cancelled();
        plan::plan(&self.steps, known, &Effort::new(&cancelled))
    }

    fn run(
        &self,
        known: &FileTracker,
        keeping: &Keeping,
        cancel: &CancellationToken,
    ) -> Result<ToolOutput, ToolError> {
        let planned = self.plan(Some(known), cancel)?;
        // From here on it is done as a whole, which takes a moment only.
        let notes = commit::commit(PATCH, &planned, known, keeping)?;
        Ok(report::output(PATCH, &planned, &self.drafts, &notes))
    }
}

#[cfg(test)]
mod tests;
