//! What models read: the texts of the folder `prompts/`, agents, rules files, and the system prompt made of them.
//!
//! - [`Agent`], [`Agents`]: profiles, written as Markdown with a front matter of a [small form](front_matter).
//! - [`DeclaredCapture`]: tools of a workspace that keep what a model writes.
//! - [`Reasoning`]: how much a model thinks, as people write it.
//! - [`Template`]: texts with `{{variable}}` and `{{#if variable}}…{{/if}}`.
//! - [`Family`]: what models are told of their work, by how they behave.
//! - [`RulesFile`]: `AGENTS.md` and the like, capped, and never read from outside of the workspace by its own doing.
//! - [`Skills`]: folders with instructions for one kind of work, to be loaded when they are needed.
//! - [`system_prompt`]: puts them together, in one order, so that what changes most comes last.
//!
//! Built-in texts are part of the program. Files are read only in [`rules`], [`skills`], [`capture`] and [`inside`]; clock, platform and
//! version control arrive as data in [`Environment`].
//!
//! ```
//! use playhouse_prompts::{Additions, Agents, Environment, GitState, system_prompt};
//! use playhouse_protocol::ModelRef;
//!
//! let agents = Agents::builtin();
//! let atlas = agents.get("atlas").unwrap();
//! assert_eq!(atlas.steps, Some(20));
//! assert!(atlas.tools.allows("grep") && !atlas.tools.allows("edit") && atlas.read_only);
//!
//! let environment = Environment {
//!     workspace: "/home/ada/engine".to_owned(),
//!     platform: "linux x86_64".to_owned(),
//!     git: GitState::Branch("main".to_owned()),
//!     date: "2026-07-04".to_owned(),
//!     model: ModelRef::new("anthropic", "claude-sonnet-5"),
//! };
//! let prompt = system_prompt(atlas, &environment, &Additions::default());
//! assert!(prompt.contains("Workspace: /home/ada/engine"));
//! ```

pub mod agent;
pub mod agents;
pub mod capture;
pub mod command;
pub mod families;
pub mod front_matter;
pub mod inside;
mod permission;
pub mod reasoning;
pub mod rules;
pub mod skills;
pub mod system;
pub mod template;

use std::fmt;

pub use agent::{Agent, AgentMode, ToolFilter};
pub use agents::{AgentPart, Agents, Origin, RefusedAgent};
pub use capture::DeclaredCapture;
pub use command::{CommandTemplate, Commands};
pub use families::Family;
pub use reasoning::Reasoning;
pub use rules::RulesFile;
pub use skills::{Skill, SkillOwner, Skills};
pub use system::{Additions, Environment, GitState, list_of, lists_skills, system_prompt};
pub use template::Template;

/// A text that cannot be used: which file, where in it, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", Place(file, *line))]
pub struct PromptError {
    /// The file, as the caller named it.
    pub file: String,
    /// The line, from 1, where the error is in one.
    pub line: Option<usize>,
    /// What is wrong, and what to do.
    pub message: String,
}

impl PromptError {
    pub(crate) fn at(file: &str, line: usize, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line: Some(line), message: message.into() }
    }

    pub(crate) fn whole(file: impl fmt::Display, message: impl Into<String>) -> Self {
        Self { file: file.to_string(), line: None, message: message.into() }
    }
}

struct Place<'a>(&'a str, Option<usize>);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)?;
        self.1.map_or(Ok(()), |line| write!(f, ":{line}"))
    }
}
