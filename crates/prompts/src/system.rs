//! The system prompt, and what else the engine says to a model.

use std::borrow::Cow;
use std::sync::LazyLock;

use playhouse_protocol::ModelRef;

use crate::agent::{Agent, ToolFilter};
use crate::families::Family;
use crate::rules::RulesFile;
use crate::skills::Skill;
use crate::template::Template;

/// The most of a list of what there is and what it is for, in bytes. Those after it are named without what they are for.
const MOST_OF_LIST: usize = 16 * 1024;
/// The most bytes of those names.
const MOST_OF_NAMES: usize = 4 * 1024;

const ENVIRONMENT_VARIABLES: [&str; 6] = ["workspace", "git", "branch", "platform", "date", "model"];
const SKILLS_VARIABLES: [&str; 1] = ["list"];
const INSTRUCTIONS_VARIABLES: [&str; 2] = ["from", "text"];

/// A text that is part of the program, and that tests read.
macro_rules! own {
    ($file:literal, $variables:expr) => {
        LazyLock::new(|| {
            let text = include_str!(concat!("../../../prompts/", $file));
            Template::parse($file, text, &$variables).expect(concat!($file, " is well formed"))
        })
    };
}

static ENVIRONMENT: LazyLock<Template> = own!("environment.md", ENVIRONMENT_VARIABLES);
static SKILLS: LazyLock<Template> = own!("skills.md", SKILLS_VARIABLES);
static INSTRUCTIONS: LazyLock<Template> = own!("instructions.md", INSTRUCTIONS_VARIABLES);

/// What a model is told of where it works.
///
/// It is settled once for each session: a system prompt that changed in between would cost the provider's prompt cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The directory, absolute.
    pub workspace: String,
    /// Operating system and architecture, as in `linux x86_64`.
    pub platform: String,
    /// What git says of the workspace.
    pub git: GitState,
    /// The day, as in `2026-07-04`.
    pub date: String,
    /// The model.
    pub model: ModelRef,
}

/// What git says of a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GitState {
    /// It is in no repository.
    None,
    /// It is in one, where no branch is checked out, or none can be told.
    NoBranch,
    /// It is in one, with this branch checked out.
    Branch(String),
}

/// What a system prompt holds beside what the agent is and where it works, in this order: what changes most comes last.
#[derive(Clone, Copy, Debug, Default)]
pub struct Additions<'a> {
    /// Rules files, the most general ones first.
    pub rules: &'a [RulesFile],
    /// The skills that may be loaded.
    pub skills: &'a [Skill],
    /// What whoever runs the engine wants every session to know.
    pub operator: Option<&'a str>,
    /// What whoever made the session wants it to know.
    pub session: Option<&'a str>,
}

/// Whether this system prompt lists skills, so that they can be loaded.
pub fn lists_skills(prompt: &str) -> bool {
    prompt.contains("\n\n<skills>\n")
}

/// The system prompt: the agent's own text or that of the model's family, the environment, and then the additions. A hidden agent
/// that can do nothing, as one that writes titles, reads its own text only.
pub fn system_prompt(agent: &Agent, environment: &Environment, additions: &Additions<'_>) -> String {
    let family = || Family::of(&environment.model).prompt();
    let own = agent.prompt.as_deref().unwrap_or_else(family);
    if agent.hidden && agent.tools == ToolFilter::Only(Vec::new()) {
        return own.trim().to_owned() + "\n";
    }
    let mut sections = vec![Cow::Borrowed(own.trim()), Cow::Owned(environment.render())];
    sections.extend(additions.rules.iter().map(RulesFile::render).map(Cow::Owned));
    if !additions.skills.is_empty() {
        let skills = additions.skills.iter();
        let skills = skills.map(|skill| (skill.name.as_str(), skill.description.as_str()));
        let list = list_of(skills, "further ones, load them to learn what they are for");
        sections.push(Cow::Owned(SKILLS.render(&[&list]).trim_end().to_owned()));
    }
    let instructions =
        [("the operator", additions.operator), ("whoever began this session", additions.session)];
    for (from, text) in instructions {
        if let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) {
            sections.push(Cow::Owned(INSTRUCTIONS.render(&[from, text]).trim_end().to_owned()));
        }
    }
    // Added to what is joined, it would move all of that.
    if let Some(last) = sections.last_mut() {
        last.to_mut().push('\n');
    }
    sections.join("\n\n")
}

impl Environment {
    fn render(&self) -> String {
        let (git, branch) = match &self.git {
            GitState::None => ("", String::new()),
            GitState::NoBranch => ("yes", String::new()),
            GitState::Branch(branch) => ("yes", one_line(branch)),
        };
        let values = [
            &one_line(&self.workspace),
            git,
            &branch,
            &one_line(&self.platform),
            &one_line(&self.date),
            &one_line(&self.model.to_string()),
        ];
        ENVIRONMENT.render(&values).trim_end().to_owned()
    }
}

/// One line for each of these names with what it is for, as long as there is room for that; then the names of the others, behind
/// the words `others`. It has 20 KB at most.
///
/// ```
/// let list = playhouse_prompts::list_of([("explore", "looks around"), ("general", "does the rest")], "further ones");
/// assert_eq!(list, "- explore: looks around\n- general: does the rest");
/// ```
pub fn list_of<'a>(items: impl IntoIterator<Item = (&'a str, &'a str)>, others: &str) -> String {
    let mut lines = String::new();
    let (mut names, mut untold) = (String::new(), 0);
    for (name, what_for) in items {
        let words: Vec<&str> = what_for.split_whitespace().collect();
        let line = format!("- {name}: {}\n", one_line(&words.join(" ")));
        if names.is_empty() && lines.len() + line.len() <= MOST_OF_LIST {
            lines.push_str(&line);
        } else if untold == 0 && names.len() + name.len() + 2 <= MOST_OF_NAMES {
            names.push_str(if names.is_empty() { "" } else { ", " });
            names.push_str(name);
        } else {
            untold += 1;
        }
    }
    if !names.is_empty() {
        let more = if untold > 0 { format!(", and {untold} more") } else { String::new() };
        lines.push_str(&format!("- {others}: {names}{more}\n"));
    }
    lines.truncate(lines.trim_end().len());
    lines
}

/// A folder's name may hold line breaks; it must not be able to add lines to the prompt.
pub(crate) fn one_line(value: &str) -> String {
    value.replace(|c: char| c.is_control(), "\u{fffd}")
}

#[cfg(test)]
mod tests;
