//! An agent: a profile of a prompt, tools, a model and a step limit.
//!
//! An agent is a Markdown file. Its head knows these keys; its text, if there is any, takes the place of the usual
//! system prompt, and is never read as a template.
//!
//! | key | value |
//! |---|---|
//! | `name` | lower-case letters, digits, `-` and `_`; left out: the file's name |
//! | `description` | one line for people, and for the models that may hand work over to it, of up to 1,024 characters; needed |
//! | `mode` | `primary` (chosen by people), `subagent` (handed work by other agents) or `all` (the default) |
//! | `hidden` | `true`: lists for people leave it out; left out: `false` |
//! | `color` | a colour for it, as `#rrggbb` or `primary`, `secondary`, `accent`, `success`, `warning`, `error` or `info` |
//! | `model` | `PROVIDER/MODEL`; left out: the model of the session |
//! | `reasoning` or `variant` | `low`, `medium`, `high` or the most tokens to think with; left out: the model's own |
//! | `temperature` | 0 to 2; left out: the server's own |
//! | `top_p` | above 0, up to 1; left out: the server's own |
//! | `steps` | most steps of a turn, from 1; left out: no limit |
//! | `tools` | list of the tools that it may call; left out: all |
//! | `read_only` | `true`: it can change nothing in the workspace, and its commands run in walls that hold that; left out: `false` |
//! | `permission` or `permissions` | map of permissions and actions (`allow`, `ask`, `deny`), or of patterns and actions; left out: no rules |
//! | `prompt` | its text, where that is one line: then nothing follows the head |

use playhouse_protocol::ModelRef;
use playhouse_protocol::consent::PermissionRule;
use playhouse_protocol::nearest::did_you_mean;

use crate::PromptError;
use crate::front_matter::{self, Field, FieldValue};
use crate::permission;
use crate::reasoning::Reasoning;

/// The keys of an agent's head.
const KEYS: [&str; 16] = [
    "name",
    "description",
    "mode",
    "hidden",
    "color",
    "model",
    "reasoning",
    "variant",
    "temperature",
    "top_p",
    "steps",
    "tools",
    "read_only",
    "permission",
    "permissions",
    "prompt",
];

/// The longest description of an agent or a skill, in characters.
pub(crate) const MOST_OF_DESCRIPTION: usize = 1_024;

/// Keys of which one says the same as the other.
const SAME: [(&str, &str); 2] = [("reasoning", "variant"), ("permission", "permissions")];

/// The names of colours that clients know.
const COLORS: [&str; 7] = ["primary", "secondary", "accent", "success", "warning", "error", "info"];

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

impl AgentMode {
    /// Its name in agents' files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Subagent => "subagent",
            Self::All => "all",
        }
    }

    /// Whether other agents may hand work over to it.
    pub const fn takes_tasks(self) -> bool {
        matches!(self, Self::Subagent | Self::All)
    }
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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// One line for people.
    pub description: String,
    /// Where it may be used.
    pub mode: AgentMode,
    /// Whether lists for people leave it out. It can be named all the same.
    pub hidden: bool,
    /// A colour for it: `#rrggbb`, or a name that clients know.
    pub color: Option<String>,
    /// The most steps of a turn; `None` for no limit.
    pub steps: Option<u32>,
    /// The tools that it may call.
    pub tools: ToolFilter,
    /// Whether it can change nothing in the workspace, also with commands: those run in walls that hold that, or not at all.
    pub read_only: bool,
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
            prompt: Some(document.body).filter(|body| !body.is_empty()).map(str::to_owned),
            ..Self::default()
        };
        let mut name_line = 1;
        for field in &document.fields {
            if let Some(before) = said_before(field, &document.fields) {
                let message = format!(
                    "`{}` says what `{}` in line {} says already: leave one of them out",
                    field.key, before.key, before.line
                );
                return Err(PromptError::at(file, field.line, message));
            }
            let set = match field.key {
                "prompt" if agent.prompt.is_some() => Err((
                    field.line,
                    "the agent has a text behind its head as well: keep one of them".to_owned(),
                )),
                "permission" | "permissions" => {
                    let rules = permission::rules(field);
                    rules.map(|rules| agent.permissions = rules.into_iter().map(|(_, rule)| rule).collect())
                }
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
            "description" => self.description = description(text(field)?)?.to_owned(),
            "mode" => self.mode = mode(text(field)?)?,
            "model" => {
                self.model = Some(text(field)?.parse().map_err(|error| format!("`model`: {error}"))?);
            }
            "hidden" => self.hidden = yes_or_no(field)?,
            "color" => self.color = Some(color(text(field)?)?),
            "reasoning" | "variant" => {
                self.reasoning =
                    Some(text(field)?.parse().map_err(|error| format!("`{}` {error}", field.key))?);
            }
            "temperature" => self.temperature = Some(temperature(text(field)?)?),
            "top_p" => self.top_p = Some(top_p(text(field)?)?),
            "steps" => self.steps = Some(steps(text(field)?)?),
            "tools" => self.tools = ToolFilter::Only(list(field)?),
            "read_only" => self.read_only = yes_or_no(field)?,
            "prompt" => self.prompt = Some(text(field)?.to_owned()),
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

/// A field before this one that has the same key under its other name.
fn said_before<'f, 'a>(field: &Field<'_>, fields: &'f [Field<'a>]) -> Option<&'f Field<'a>> {
    let other = SAME.iter().find_map(|(one, other)| match field.key {
        key if key == *one => Some(*other),
        key if key == *other => Some(*one),
        _ => None,
    })?;
    fields.iter().find(|before| before.key == other && before.line < field.line)
}

fn text<'a>(field: &Field<'a>) -> Result<&'a str, String> {
    match field.value {
        FieldValue::Text(text) if !text.is_empty() => Ok(text),
        FieldValue::Text(_) => Err(format!("`{}` has no value", field.key)),
        FieldValue::List(_) => Err(format!("`{}` is a list, expected one value", field.key)),
        FieldValue::Map(_) => Err(format!("`{}` is a map, expected one value", field.key)),
    }
}

/// Every model that may hand work over reads it, in each of its requests.
fn description(text: &str) -> Result<&str, String> {
    let length = text.chars().count();
    if length > MOST_OF_DESCRIPTION {
        return Err(format!(
            "`description` has {length} characters, and {MOST_OF_DESCRIPTION} at most are read: say in one line what the agent is for, and the rest in its text"
        ));
    }
    Ok(text)
}

fn list(field: &Field<'_>) -> Result<Vec<String>, String> {
    match &field.value {
        FieldValue::List(items) => Ok(items.iter().map(|item| (*item).to_owned()).collect()),
        FieldValue::Text(_) | FieldValue::Map(_) => {
            Err(format!("`{0}` must be a list: `{0}: [read, grep]`", field.key))
        }
    }
}

fn yes_or_no(field: &Field<'_>) -> Result<bool, String> {
    match text(field)? {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(format!("`{}` is \"{}\", expected true or false", field.key, shown(other))),
    }
}

fn color(text: &str) -> Result<String, String> {
    let is_hex = text
        .strip_prefix('#')
        .is_some_and(|digits| digits.len() == 6 && digits.chars().all(|digit| digit.is_ascii_hexdigit()));
    if is_hex || COLORS.contains(&text) {
        return Ok(text.to_owned());
    }
    Err(format!("`color` is \"{}\", expected #rrggbb or one of {}", shown(text), COLORS.join(", ")))
}

/// A value that may be anything, in a message.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(64).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn error(head: &str) -> String {
        Agent::parse("a.md", &format!("---\ndescription: d\n{head}\n---\n")).unwrap_err().to_string()
    }

    #[test]
    fn all_keys_are_read() {
        let text = "---\nname: review_2\ndescription: Reads\nmode: subagent\nmodel: openai/gpt-5\n\
                    temperature: 0.2\nvariant: high\nhidden: true\ncolor: \"#aB12ef\"\nread_only: true\ntop_p: 0.9\nsteps: 3\ntools:\n  - read\n---\nText.\n";
        let agent = Agent::parse("other.md", text).unwrap();
        let expected = Agent {
            name: "review_2".to_owned(),
            description: "Reads".to_owned(),
            mode: AgentMode::Subagent,
            hidden: true,
            color: Some("#aB12ef".to_owned()),
            steps: Some(3),
            tools: ToolFilter::Only(vec!["read".to_owned()]),
            read_only: true,
            permissions: Vec::new(),
            model: Some(ModelRef::new("openai", "gpt-5")),
            prompt: Some("Text.".to_owned()),
            reasoning: Some(Reasoning::Effort(playhouse_protocol::capability::Effort::High)),
            temperature: Some(0.2),
            top_p: Some(0.9),
        };
        assert_eq!(agent, expected);
    }

    #[test]
    fn a_description_is_one_line_that_every_request_has_room_for() {
        let head = |length: usize| format!("---\nmode: all\ndescription: {}\n---\n", "é".repeat(length));
        assert_eq!(Agent::parse("a.md", &head(1_024)).unwrap().description.chars().count(), 1_024);
        let error = Agent::parse("a.md", &head(60_000)).unwrap_err().to_string();
        insta::assert_snapshot!(error, @"a.md:3: `description` has 60000 characters, and 1024 at most are read: say in one line what the agent is for, and the rest in its text");
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
                "permision:\n  edit: deny",
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
        a.md:3: unknown key `permision`; an agent has name, description, mode, hidden, color, model, reasoning, variant, temperature, top_p, steps, tools, read_only, permission, permissions, prompt; did you mean "permission", "permissions" or "description"?
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
                "hidden: yes",
                "read_only: [true]",
                "color: red",
                "color: 12345",
                "variant: lots",
                "reasoning: low\nvariant: low",
                "permissions: { edit: deny }\npermission: { edit: deny }",
            ]
            .map(error)
            .join("\n"),
            @r#"
        a.md:3: unknown key `step`; an agent has name, description, mode, hidden, color, model, reasoning, variant, temperature, top_p, steps, tools, read_only, permission, permissions, prompt; did you mean "steps"?
        a.md:3: unknown key `colour`; an agent has name, description, mode, hidden, color, model, reasoning, variant, temperature, top_p, steps, tools, read_only, permission, permissions, prompt; did you mean "color"?
        a.md:3: `mode` is "main", expected primary, subagent or all
        a.md:3: `model`: "gpt-5" is not a model: write PROVIDER/MODEL, as in "anthropic/claude-sonnet-4-5"
        a.md:3: `temperature` is "3", expected a number from 0 to 2
        a.md:3: `temperature` is "NaN", expected a number from 0 to 2
        a.md:3: `reasoning` is "lots", expected none, minimal, low, medium, high, xhigh, max or a whole number of tokens from 1
        a.md:3: `reasoning` is "0", expected none, minimal, low, medium, high, xhigh, max or a whole number of tokens from 1
        a.md:3: `top_p` is "0", expected a number above 0, up to 1
        a.md:3: `top_p` is "1.5", expected a number above 0, up to 1
        a.md:3: `steps` is "0", expected a whole number from 1; leave it out for no limit
        a.md:3: `steps` is a list, expected one value
        a.md:3: `tools` must be a list: `tools: [read, grep]`
        a.md:3: `tools` must be a list: `tools: [read, grep]`
        a.md:3: "Big Name" is not a name for an agent: use up to 64 lower-case letters, digits, `-` and `_`
        a.md:3: `mode` has no value
        a.md:3: `hidden` is "yes", expected true or false
        a.md:3: `read_only` is a list, expected one value
        a.md:3: `color` is "red", expected #rrggbb or one of primary, secondary, accent, success, warning, error, info
        a.md:3: `color` is "12345", expected #rrggbb or one of primary, secondary, accent, success, warning, error, info
        a.md:3: `variant` is "lots", expected none, minimal, low, medium, high, xhigh, max or a whole number of tokens from 1
        a.md:4: `variant` says what `reasoning` in line 3 says already: leave one of them out
        a.md:4: `permission` says what `permissions` in line 3 says already: leave one of them out
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
}
