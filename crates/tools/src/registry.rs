//! The tools that there are.

use std::path::Path;
use std::sync::Arc;

use playhouse_protocol::chat::ToolSpec;
use thiserror::Error;

use crate::apply_patch::ApplyPatch;
use crate::bash::Bash;
use crate::batch::Batch;
use crate::edit::Edit;
use crate::glob::Glob;
use crate::grep::Grep;
use crate::list::List;
use crate::multiedit::MultiEdit;
use crate::names::nearest;
use crate::notebook::NotebookEdit;
use crate::process::Process;
use crate::question::Question;
use crate::read::Read;
use crate::skill::Skill;
use crate::task::Task;
use crate::todo::{TodoRead, TodoWrite};
use crate::undo::{UndoLast, UndoTo};
use crate::web::{CodeSearch, Door, WebFetch, WebSearch};
use crate::write::Write;
use crate::{NativeOptions, Tool, ToolError, Typed};

/// How many entries of a workspace are looked at for files that a tool is for.
const MOST_ENTRIES: usize = 1_000;

/// So many names stand in an answer to a call of a tool that there is not.
const MOST_NAMES: usize = 60;

/// The tools of an engine, in the order in which models are told of them.
#[derive(Clone, Default)]
pub struct Registry {
    tools: Vec<Arc<dyn Tool>>,
}

/// Why a tool cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RegistryError {
    /// There is one of this name.
    #[error("there is a tool named \"{0}\" already: give one of them another name")]
    Duplicate(String),
    /// Providers take no such name.
    #[error("\"{0}\" cannot be the name of a tool: use 1 to 64 of the characters a-z, A-Z, 0-9, _ and -")]
    BadName(String),
}

impl Registry {
    /// A registry without tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// All tools that come with Playhouse.
    pub fn native() -> Self {
        Self::native_with(NativeOptions::default())
    }

    /// The same, as an operator wants them.
    pub fn native_with(options: NativeOptions) -> Self {
        let NativeOptions { bash, web, skills } = options;
        let tools: Vec<Arc<dyn Tool>> = vec![
            Arc::new(Typed::new(Read)),
            Arc::new(Typed::new(Write)),
            Arc::new(Typed::new(Edit)),
            Arc::new(Typed::new(Bash::new(bash))),
            Arc::new(Typed::new(Glob)),
            Arc::new(Typed::new(Grep)),
            Arc::new(Typed::new(List)),
            Arc::new(Typed::new(MultiEdit)),
            Arc::new(Typed::new(TodoRead)),
            Arc::new(Typed::new(TodoWrite)),
            Arc::new(Typed::new(Question)),
            Arc::new(Typed::new(Batch)),
            Arc::new(Typed::new(ApplyPatch)),
            Arc::new(Typed::new(NotebookEdit)),
            Arc::new(Typed::new(WebFetch::new(Door::new(web.allow_private)))),
            Arc::new(Typed::new(WebSearch::new(web.search.clone()))),
            Arc::new(Typed::new(CodeSearch::new(web.search))),
            Arc::new(Typed::new(Process)),
            Arc::new(Typed::new(Skill::new(skills))),
            Arc::new(Typed::new(Task)),
            Arc::new(Typed::new(UndoLast)),
            Arc::new(Typed::new(UndoTo)),
        ];
        Self { tools }
    }

    /// Adds a tool after the others.
    ///
    /// # Errors
    /// When there is a tool of the same name, or providers would refuse the name.
    pub fn add(&mut self, tool: Arc<dyn Tool>) -> Result<(), RegistryError> {
        let name = &tool.spec().name;
        if !is_allowed_name(name) {
            return Err(RegistryError::BadName(name.clone()));
        }
        if self.get(name).is_some() {
            return Err(RegistryError::Duplicate(name.clone()));
        }
        self.tools.push(tool);
        Ok(())
    }

    /// The tool of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.iter().find(|tool| tool.spec().name == name)
    }

    /// The tool of this name, or an error for the model that says which ones there are.
    ///
    /// # Errors
    /// [`ToolError::Invalid`] when there is none.
    pub fn find(&self, name: &str) -> Result<&Arc<dyn Tool>, ToolError> {
        self.get(name).ok_or_else(|| ToolError::Invalid(self.unknown(name)))
    }

    /// All tools.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.tools.iter()
    }

    /// What a model is told of the tools whose name `allowed` lets through.
    pub fn specs(&self, allowed: impl Fn(&str) -> bool) -> Vec<ToolSpec> {
        self.tools.iter().map(|tool| tool.spec()).filter(|spec| allowed(&spec.name)).cloned().collect()
    }

    /// The names of those that models are not shown in `workspace`: they cannot work as configured, or are only for files of a kind
    /// that neither the prompt names (`is_named`) nor something on the first level of `workspace` is. Blocks.
    pub fn unneeded(&self, workspace: &Path, is_named: impl Fn(&str) -> bool) -> Vec<String> {
        let is_needed = |suffix: &str| is_named(suffix) || holds_one(workspace, suffix);
        let is_unneeded = |tool: &&Arc<dyn Tool>| {
            tool.unavailable().is_some() || tool.only_for().is_some_and(|suffix| !is_needed(suffix))
        };
        self.tools.iter().filter(is_unneeded).map(|tool| tool.spec().name.clone()).collect()
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(|tool| tool.spec().name.as_str())
    }

    fn unknown(&self, name: &str) -> String {
        let meant = nearest(name, self.names());
        let hint =
            if meant.is_empty() { ".".to_owned() } else { format!(". Did you mean {}?", meant.join(" or ")) };
        let mut all = self.names().take(MOST_NAMES).collect::<Vec<_>>().join(", ");
        if let Some(more) = self.tools.len().checked_sub(MOST_NAMES).filter(|more| *more > 0) {
            all.push_str(&format!(" and {more} others"));
        }
        let name: String = name.chars().take(64).collect();
        format!("there is no tool {name:?}{hint} The tools are: {all}")
    }
}

/// Takes the tools as they come: of two with one name the first is found.
impl FromIterator<Arc<dyn Tool>> for Registry {
    fn from_iter<I: IntoIterator<Item = Arc<dyn Tool>>>(tools: I) -> Self {
        Self { tools: tools.into_iter().collect() }
    }
}

/// Whether providers take `name` as that of a tool.
pub(crate) fn is_allowed_name(name: &str) -> bool {
    let is_allowed = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-');
    (1..=64).contains(&name.len()) && name.chars().all(is_allowed)
}

/// Whether the name of something in `folder` ends so. Blocks.
fn holds_one(folder: &Path, suffix: &str) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().take(MOST_ENTRIES).flatten();
    entries.map(|entry| entry.file_name()).any(|name| name.as_encoded_bytes().ends_with(suffix.as_bytes()))
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fake;

    /// What others do up to their first wait is not bounded by so little: sessions are not held up for it.
    #[test]
    fn few_tools_are_begun_where_sessions_run() {
        let registry = Registry::native();
        let brief = registry.iter().filter(|tool| tool.is_brief()).map(|tool| tool.spec().name.clone());
        assert_eq!(brief.collect::<Vec<_>>(), ["read", "todoread", "todowrite"]);
        assert!(!Fake::named("fake").is_brief(), "a tool says so by itself");
    }

    #[test]
    fn the_order_is_kept_and_names_are_unique() {
        let mut registry = Registry::new();
        for name in ["zebra", "ant", "mcp_server-tool"] {
            registry.add(Arc::new(Fake::named(name))).unwrap();
        }
        let names: Vec<_> = registry.specs(|name| name != "ant").into_iter().map(|spec| spec.name).collect();
        assert_eq!(names, ["zebra", "mcp_server-tool"]);
        let again = registry.add(Arc::new(Fake::named("ant")));
        assert_eq!(again, Err(RegistryError::Duplicate("ant".into())));
        for bad in ["", "a b", "ä", &"x".repeat(65)] {
            assert_eq!(registry.add(Arc::new(Fake::named(bad))), Err(RegistryError::BadName(bad.into())));
        }
    }

    #[test]
    fn an_unknown_tool_is_answered_with_those_there_are() {
        let mut registry = Registry::new();
        for name in ["read", "grep"] {
            registry.add(Arc::new(Fake::named(name))).unwrap();
        }
        let error = registry.find("raed").err().unwrap().to_string();
        assert_eq!(error, "there is no tool \"raed\". Did you mean read? The tools are: read, grep");
        let error = registry.find("frobnicate").err().unwrap().to_string();
        assert_eq!(error, "there is no tool \"frobnicate\". The tools are: read, grep");
    }

    #[test]
    fn the_native_tools_have_plain_schemas() {
        for tool in Registry::native().iter() {
            let spec = tool.spec();
            assert!(!spec.description.is_empty(), "{}", spec.name);
            assert_eq!(spec.parameters["type"], "object", "{}", spec.name);
            let text = spec.parameters.to_string();
            for noise in ["additionalProperties", "oneOf", "\"default\""] {
                assert!(!text.contains(noise), "{noise} in {text}");
            }
        }
    }

    /// A parameter is explained by its own description, by that of its tool, or by its name.
    #[test]
    fn every_parameter_of_the_native_tools_is_explained() {
        const PLAIN: [&str; 16] = [
            "command",
            "content",
            "edits",
            "editMode",
            "filePath",
            "limit",
            "name",
            "parameters",
            "patchText",
            "path",
            "query",
            "questions",
            "subagent_type",
            "todos",
            "tool_calls",
            "url",
        ];
        for tool in Registry::native().iter() {
            let spec = tool.spec();
            for (name, schema) in spec.parameters["properties"].as_object().unwrap() {
                let told = spec.description.contains(&format!("`{name}`"));
                let explained = told || schema["description"].is_string() || PLAIN.contains(&name.as_str());
                assert!(explained, "nothing says what {name} of {} is for", spec.name);
            }
        }
    }
}
