//! Agents: profiles of a prompt, tools, a model and a step limit.
//!
//! An agent is a Markdown file. Its head knows these keys; its text, if there is any, takes the place of the usual
//! system prompt, and is never read as a template.
//!
//! | key | value |
//! |---|---|
//! | `name` | lower-case letters, digits, `-` and `_`; left out: the file's name |
//! | `description` | one line for people; needed |
//! | `mode` | `primary`, `subagent` or `all` (the default) |
//! | `model` | `PROVIDER/MODEL`; left out: the model of the session |
//! | `reasoning` | `low`, `medium`, `high` or the most tokens to think with; left out: the model's own |
//! | `temperature` | 0 to 2; left out: the server's own |
//! | `top_p` | above 0, up to 1; left out: the server's own |
//! | `steps` | most steps of a turn, from 1; left out: no limit |
//! | `tools` | list of the tools that it may call; left out: all |
//! | `permission` | map of permissions and actions (`allow`, `ask`, `deny`), or of patterns and actions; left out: no rules |

use std::collections::BTreeMap;

use playhouse_protocol::ModelRef;
use playhouse_protocol::consent::PermissionRule;
use playhouse_protocol::nearest::{did_you_mean, nearest};

use crate::PromptError;
use crate::front_matter::{self, Field, FieldValue};
use crate::permission;
use crate::reasoning::Reasoning;

/// The keys of an agent's head.
const KEYS: [&str; 10] = [
    "name",
    "description",
    "mode",
    "model",
    "reasoning",
    "temperature",
    "top_p",
    "steps",
    "tools",
    "permission",
];

/// Where an agent may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentMode {
    /// By people.
    Primary,
    /// By other agents.
    Subagent,
    /// By both.
    #[default]
    All,
}

/// Which tools an agent may call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolFilter {
    /// All that there are.
    #[default]
    All,
    /// These and no others.
    Only(Vec<String>),
}

impl ToolFilter {
    /// Whether `tool` may be called.
    pub fn allows(&self, tool: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(tools) => tools.iter().any(|name| name == tool),
        }
    }
}

/// A profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// One line for people.
    pub description: String,
    /// Where it may be used.
    pub mode: AgentMode,
    /// The most steps of a turn; `None` for no limit.
    pub steps: Option<u32>,
    /// The tools that it may call.
    pub tools: ToolFilter,
    /// The rules that it brings, in order. They stand before those of the configuration, but for what is denied there.
    pub permissions: Vec<PermissionRule>,
    /// The model that it wants.
    pub model: Option<ModelRef>,
    /// What takes the place of the usual system prompt.
    pub prompt: Option<String>,
    /// How much its model thinks.
    pub reasoning: Option<Reasoning>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling: the share of probability that is sampled from.
    pub top_p: Option<f64>,
}

impl Agent {
    /// Reads an agent's file: `file` is its path (for messages, and for the name where the head has none).
    ///
    /// # Errors
    /// Names file and line of what is wrong, and the nearest key for an unknown one.
    ///
    /// ```
    /// use playhouse_prompts::Agent;
    /// let agent = Agent::parse("agents/reviewer.md", "---\ndescription: Reviews\nsteps: 5\n---\nBe kind.").unwrap();
    /// assert_eq!((agent.name.as_str(), agent.steps), ("reviewer", Some(5)));
    /// assert_eq!(agent.prompt.as_deref(), Some("Be kind."));
    /// ```
    pub fn parse(file: &str, text: &str) -> Result<Self, PromptError> {
        let document = front_matter::parse(file, text)?;
        let stem = std::path::Path::new(file).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let mut agent = Self {
            name: stem.to_owned(),
            description: String::new(),
            mode: AgentMode::default(),
            steps: None,
            tools: ToolFilter::default(),
            permissions: Vec::new(),
            model: None,
            prompt: Some(document.body).filter(|body| !body.is_empty()).map(str::to_owned),
            reasoning: None,
            temperature: None,
            top_p: None,
        };
        let mut name_line = 1;
        for field in &document.fields {
            let set = match field.key {
                "permission" => permission::rules(field).map(|rules| agent.permissions = rules),
                _ => agent.set(field).map_err(|message| (field.line, message)),
            };
            set.map_err(|(line, message)| PromptError::at(file, line, message))?;
            if field.key == "name" {
                name_line = field.line;
            }
        }
        check_name(&agent.name).map_err(|message| PromptError::at(file, name_line, message))?;
        if agent.description.is_empty() {
            return Err(PromptError::at(
                file,
                1,
                "`description` is missing: say in one line what the agent is for",
            ));
        }
        Ok(agent)
    }

    fn set(&mut self, field: &Field<'_>) -> Result<(), String> {
        match field.key {
            "name" => self.name = text(field)?.to_owned(),
            "description" => self.description = text(field)?.to_owned(),
            "mode" => self.mode = mode(text(field)?)?,
            "model" => {
                self.model = Some(text(field)?.parse().map_err(|error| format!("`model`: {error}"))?);
            }
            "reasoning" => {
                self.reasoning = Some(text(field)?.parse().map_err(|error| format!("`reasoning` {error}"))?);
            }
            "temperature" => self.temperature = Some(temperature(text(field)?)?),
            "top_p" => self.top_p = Some(top_p(text(field)?)?),
            "steps" => self.steps = Some(steps(text(field)?)?),
            "tools" => self.tools = ToolFilter::Only(list(field)?),
            unknown => {
                return Err(format!(
                    "unknown key `{unknown}`; an agent has {}{}",
                    KEYS.join(", "),
                    did_you_mean(unknown, KEYS)
                ));
            }
        }
        Ok(())
    }
}

fn text<'a>(field: &Field<'a>) -> Result<&'a str, String> {
    match field.value {
        FieldValue::Text(text) if !text.is_empty() => Ok(text),
        FieldValue::Text(_) => Err(format!("`{}` has no value", field.key)),
        FieldValue::List(_) => Err(format!("`{}` is a list, expected one value", field.key)),
        FieldValue::Map(_) => Err(format!("`{}` is a map, expected one value", field.key)),
    }
}

fn list(field: &Field<'_>) -> Result<Vec<String>, String> {
    match &field.value {
        FieldValue::List(items) => Ok(items.iter().map(|item| (*item).to_owned()).collect()),
        FieldValue::Text(_) | FieldValue::Map(_) => {
            Err(format!("`{0}` must be a list: `{0}: [read, grep]`", field.key))
        }
    }
}

fn mode(text: &str) -> Result<AgentMode, String> {
    match text {
        "primary" => Ok(AgentMode::Primary),
        "subagent" => Ok(AgentMode::Subagent),
        "all" => Ok(AgentMode::All),
        _ => Err(format!("`mode` is \"{text}\", expected primary, subagent or all")),
    }
}

fn steps(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(steps) if steps > 0 => Ok(steps),
        _ => Err(format!("`steps` is \"{text}\", expected a whole number from 1; leave it out for no limit")),
    }
}

fn temperature(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(temperature) if (0.0..=2.0).contains(&temperature) => Ok(temperature),
        _ => Err(format!("`temperature` is \"{text}\", expected a number from 0 to 2")),
    }
}

fn top_p(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err(format!("`top_p` is \"{text}\", expected a number above 0, up to 1")),
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
        let name: String = name.chars().take(64).collect();
        return Err(format!(
            "\"{name}\" is not a name for an agent: use up to 64 lower-case letters, digits, `-` and `_`"
        ));
    }
    Ok(())
}

/// The agents that there are, by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Agents {
    agents: BTreeMap<String, Agent>,
    /// Files of the agents that an operator added, by name.
    files: BTreeMap<String, String>,
}

/// Path and text of each built-in agent.
const BUILTIN: [(&str, &str); 5] = [
    ("atlas.md", include_str!("../../../prompts/agents/atlas.md")),
    ("build.md", include_str!("../../../prompts/agents/build.md")),
    ("hephaestus.md", include_str!("../../../prompts/agents/hephaestus.md")),
    ("plan.md", include_str!("../../../prompts/agents/plan.md")),
    ("sisyphus.md", include_str!("../../../prompts/agents/sisyphus.md")),
];

impl Agents {
    /// The agent of sessions that name none.
    pub const DEFAULT: &'static str = "sisyphus";

    /// The agents that Playhouse has by itself: `sisyphus`, `hephaestus`, `atlas`, `build` and `plan`.
    pub fn builtin() -> Self {
        let parse = |(file, text)| {
            // These texts are part of the program and a test reads them.
            let agent = Agent::parse(file, text).expect("built-in agents are well formed");
            (agent.name.clone(), agent)
        };
        Self { agents: BUILTIN.into_iter().map(parse).collect(), files: BTreeMap::new() }
    }

    /// Adds an operator's agent, or puts it in the place of a built-in one of the same name.
    ///
    /// # Errors
    /// As [`Agent::parse`]; and when another file was added that has an agent of the same name.
    pub fn add(&mut self, file: &str, text: &str) -> Result<(), PromptError> {
        let agent = Agent::parse(file, text)?;
        if let Some(earlier) = self.files.get(&agent.name) {
            let message = format!("there is an agent \"{}\" already, in {earlier}", agent.name);
            return Err(PromptError::whole(file, message));
        }
        self.files.insert(agent.name.clone(), file.to_owned());
        self.agents.insert(agent.name.clone(), agent);
        Ok(())
    }

    /// The agent called `name`.
    pub fn get(&self, name: &str) -> Option<&Agent> {
        self.agents.get(name)
    }

    /// All agents, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Agent> {
        self.agents.values()
    }

    /// The file of an agent that an operator added; `None` for a built-in one.
    pub fn file(&self, name: &str) -> Option<&str> {
        self.files.get(name).map(String::as_str)
    }

    /// Up to three names that `name` was probably meant to be, the best first.
    pub fn nearest(&self, name: &str) -> Vec<String> {
        nearest(name, self.agents.keys().map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(head: &str) -> String {
        Agent::parse("a.md", &format!("---\ndescription: d\n{head}\n---\n")).unwrap_err().to_string()
    }

    #[test]
    fn the_builtin_agents_are_what_they_should_be() {
        let agents = Agents::builtin();
        let names: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
        assert_eq!(names, ["atlas", "build", "hephaestus", "plan", "sisyphus"]);
        let default = agents.get(Agents::DEFAULT).unwrap();
        assert_eq!((&default.tools, default.steps, &default.prompt), (&ToolFilter::All, None, &None));
        let builder = &agents.get("hephaestus").unwrap().tools;
        assert!(
            ["read", "write", "edit", "bash", "glob", "grep", "list"].iter().all(|tool| builder.allows(tool))
        );
        assert!(!builder.allows("task"));
        for name in ["atlas", "plan"] {
            let looking = &agents.get(name).unwrap().tools;
            assert!(
                ["read", "glob", "grep", "list", "batch"].iter().all(|tool| looking.allows(tool)),
                "{name}"
            );
            for changing in ["write", "edit", "multiedit", "apply_patch", "notebook_edit", "bash", "process"]
            {
                assert!(!looking.allows(changing), "{name} and {changing}");
            }
        }
        assert_eq!(agents.get("atlas").unwrap().steps, Some(20));
    }

    #[test]
    fn all_keys_are_read() {
        let text = "---\nname: review_2\ndescription: Reads\nmode: subagent\nmodel: openai/gpt-5\n\
                    temperature: 0.2\nreasoning: high\ntop_p: 0.9\nsteps: 3\ntools:\n  - read\n---\nText.\n";
        let agent = Agent::parse("other.md", text).unwrap();
        let expected = Agent {
            name: "review_2".to_owned(),
            description: "Reads".to_owned(),
            mode: AgentMode::Subagent,
            steps: Some(3),
            tools: ToolFilter::Only(vec!["read".to_owned()]),
            permissions: Vec::new(),
            model: Some(ModelRef::new("openai", "gpt-5")),
            prompt: Some("Text.".to_owned()),
            reasoning: Some(Reasoning::High),
            temperature: Some(0.2),
            top_p: Some(0.9),
        };
        assert_eq!(agent, expected);
    }

    #[test]
    fn no_tools_at_all_is_not_all_tools() {
        let agent = Agent::parse("a.md", "---\ndescription: d\ntools: []\n---").unwrap();
        assert!(!agent.tools.allows("read"));
    }

    #[test]
    fn rules_keep_their_order() {
        let text = "---\ndescription: d\npermission:\n  \"*\": ask\n  edit: { \"docs/*\": allow, \"*.lock\": deny }\n  \
                    bash:\n    git *: allow\n    git push *: deny\n  webfetch: allow\n---";
        let rules = Agent::parse("a.md", text).unwrap().permissions;
        let shown: Vec<String> = rules
            .iter()
            .map(|rule| format!("{} {} {}", rule.permission, rule.pattern, rule.action.name()))
            .collect();
        assert_eq!(
            shown,
            [
                "* * ask",
                "edit docs/* allow",
                "edit *.lock deny",
                "bash git * allow",
                "bash git push * deny",
                "webfetch * allow"
            ]
        );
    }

    #[test]
    fn mistakes_in_rules_name_their_line() {
        insta::assert_snapshot!(
            [
                "permissions:\n  edit: deny",
                "permission: deny",
                "permission:",
                "permission: [edit]",
                "permission:\n  edit: deny\n  bash: never",
                "permission:\n  bash:\n    \"git *\": alow",
                "permission:\n  bash:",
                "permission:\n  bash: [git]",
                "permission:\n  bash:\n    git *:\n    - x",
                "permission:\n  bash:\n    \"\": allow",
                "permission: { \"\": allow }",
                "model: { a: b }",
                "tools: { a: b }",
            ]
            .map(error)
            .join("\n"), @r#"
        a.md:3: unknown key `permissions`; an agent has name, description, mode, model, reasoning, temperature, top_p, steps, tools, permission; did you mean "permission"?
        a.md:3: `permission` must be a map of permissions and their actions: `permission: { edit: deny }`
        a.md:3: `permission` must be a map of permissions and their actions: `permission: { edit: deny }`
        a.md:3: `permission` must be a map of permissions and their actions: `permission: { edit: deny }`
        a.md:5: `permission.bash`: is "never", expected allow, ask or deny
        a.md:5: `permission.bash."git *"`: is "alow", expected allow, ask or deny; did you mean "allow"?
        a.md:4: `permission.bash`: is "", expected allow, ask or deny
        a.md:4: `permission.bash`: is a list, expected allow, ask or deny, or a map of patterns and their actions
        a.md:5: `permission.bash."git *"`: expected allow, ask or deny
        a.md:5: `permission.bash.""`: the pattern is empty, and so about nothing: use "*" for everything
        a.md:3: `permission.""`: the name of the permission is empty, and so about nothing: use "*" for everything
        a.md:3: `model` is a map, expected one value
        a.md:3: `tools` must be a list: `tools: [read, grep]`
        "#);
    }

    #[test]
    fn every_mistake_names_its_line() {
        insta::assert_snapshot!(
            [
                "step: 3",
                "colour: red",
                "mode: main",
                "model: gpt-5",
                "temperature: 3",
                "temperature: NaN",
                "reasoning: lots",
                "reasoning: 0",
                "top_p: 0",
                "top_p: 1.5",
                "steps: 0",
                "steps: [1]",
                "tools: read",
                "tools:",
                "name: Big Name",
                "mode:",
            ]
            .map(error)
            .join("\n"),
            @r#"
        a.md:3: unknown key `step`; an agent has name, description, mode, model, reasoning, temperature, top_p, steps, tools, permission; did you mean "steps"?
        a.md:3: unknown key `colour`; an agent has name, description, mode, model, reasoning, temperature, top_p, steps, tools, permission
        a.md:3: `mode` is "main", expected primary, subagent or all
        a.md:3: `model`: "gpt-5" is not a model: write PROVIDER/MODEL, as in "anthropic/claude-sonnet-4-5"
        a.md:3: `temperature` is "3", expected a number from 0 to 2
        a.md:3: `temperature` is "NaN", expected a number from 0 to 2
        a.md:3: `reasoning` is "lots", expected low, medium, high or a whole number of tokens from 1
        a.md:3: `reasoning` is "0", expected low, medium, high or a whole number of tokens from 1
        a.md:3: `top_p` is "0", expected a number above 0, up to 1
        a.md:3: `top_p` is "1.5", expected a number above 0, up to 1
        a.md:3: `steps` is "0", expected a whole number from 1; leave it out for no limit
        a.md:3: `steps` is a list, expected one value
        a.md:3: `tools` must be a list: `tools: [read, grep]`
        a.md:3: `tools` must be a list: `tools: [read, grep]`
        a.md:3: "Big Name" is not a name for an agent: use up to 64 lower-case letters, digits, `-` and `_`
        a.md:3: `mode` has no value
        "#);
        let missing = Agent::parse("a.md", "---\nsteps: 1\n---").unwrap_err();
        insta::assert_snapshot!(missing, @r"
        a.md:1: `description` is missing: say in one line what the agent is for
        ");
        let unnamed = Agent::parse("Ä.md", "---\ndescription: d\n---").unwrap_err();
        insta::assert_snapshot!(unnamed, @r#"
        Ä.md:1: "Ä" is not a name for an agent: use up to 64 lower-case letters, digits, `-` and `_`
        "#);
    }

    #[test]
    fn an_operator_replaces_a_builtin_agent_once() {
        let mut agents = Agents::builtin();
        agents.add("agents/plan.md", "---\ndescription: mine\n---").unwrap();
        assert_eq!(agents.get("plan").unwrap().description, "mine");
        assert_eq!((agents.file("plan"), agents.file("atlas")), (Some("agents/plan.md"), None));
        let error = agents.add("agents/b.md", "---\nname: plan\ndescription: d\n---").unwrap_err();
        insta::assert_snapshot!(error, @r#"
        agents/b.md: there is an agent "plan" already, in agents/plan.md
        "#);
    }

    #[test]
    fn nearest_names_are_found() {
        assert_eq!(Agents::builtin().nearest("hephaistos"), ["hephaestus"]);
    }
}
