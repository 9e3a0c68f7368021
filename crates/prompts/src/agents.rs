//! The agents that there are: built in, an operator's, and those of a workspace.
//!
//! An operator's agent takes the place of a built-in one of the same name. A workspace is not trusted: its agents lie in
//! `.playhouse/agents/`, may not have the name of another one, and a file that cannot be used is put aside with the reason,
//! which is told to whoever asks for that agent.

use std::collections::BTreeMap;
use std::path::Path;

use playhouse_protocol::nearest::{did_you_mean, nearest};

use crate::front_matter::Field;
use crate::inside::{names_inside, read_inside};
use crate::{Agent, PromptError, front_matter, permission};

/// The folder of a workspace's agents, from its root.
const FOLDER: &str = ".playhouse/agents";
/// The most names in it that are looked at, and the most bytes of a file.
const MOST_NAMES: usize = 256;
const MOST_BYTES: u64 = 64 * 1024;

/// Path and text of each built-in agent.
const BUILTIN: [(&str, &str); 10] = [
    ("atlas.md", include_str!("../../../prompts/agents/atlas.md")),
    ("build.md", include_str!("../../../prompts/agents/build.md")),
    ("compaction.md", include_str!("../../../prompts/agents/compaction.md")),
    ("explore.md", include_str!("../../../prompts/agents/explore.md")),
    ("general.md", include_str!("../../../prompts/agents/general.md")),
    ("hephaestus.md", include_str!("../../../prompts/agents/hephaestus.md")),
    ("plan.md", include_str!("../../../prompts/agents/plan.md")),
    ("sisyphus.md", include_str!("../../../prompts/agents/sisyphus.md")),
    ("summary.md", include_str!("../../../prompts/agents/summary.md")),
    ("title.md", include_str!("../../../prompts/agents/title.md")),
];

/// Where an agent comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin<'a> {
    /// It comes with Playhouse.
    Builtin,
    /// An operator's file.
    Operator(&'a str),
    /// A file of the workspace, from its root: text of people who are not trusted.
    Workspace(&'a str),
}

/// A file of a workspace that cannot be used as an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedAgent {
    /// The name of its agent, as far as it is known.
    pub name: String,
    /// What is wrong, and where.
    pub error: PromptError,
}

/// A part of an agent's head in which something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentPart {
    /// The value of this key.
    Key(&'static str),
    /// This one of its rules.
    Rule(usize),
}

/// The agents that there are, by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Agents {
    agents: BTreeMap<String, Agent>,
    /// Files of the agents that an operator added, by name, with the line of each rule.
    files: BTreeMap<String, (String, Vec<usize>)>,
    /// The same of those that came from a workspace.
    local: BTreeMap<String, String>,
    refused: Vec<RefusedAgent>,
}

impl Agents {
    /// The agent of sessions that name none.
    pub const DEFAULT: &'static str = "sisyphus";

    /// The agents that Playhouse has by itself: `sisyphus`, `hephaestus`, `atlas`, `build` and `plan` for people, `general` and
    /// `explore` for other agents, and the hidden `title`, `summary` and `compaction`.
    pub fn builtin() -> Self {
        let parse = |(file, text)| {
            // These texts are part of the program and a test reads them.
            let agent = Agent::parse(file, text).expect("built-in agents are well formed");
            (agent.name.clone(), agent)
        };
        Self {
            agents: BUILTIN.into_iter().map(parse).collect(),
            files: BTreeMap::new(),
            local: BTreeMap::new(),
            refused: Vec::new(),
        }
    }

    /// Adds an operator's agent, or puts it in the place of a built-in one of the same name.
    ///
    /// # Errors
    /// As [`Agent::parse`]; and when another file was added that has an agent of the same name.
    pub fn add(&mut self, file: &str, text: &str) -> Result<(), PromptError> {
        let agent = Agent::parse(file, text)?;
        if let Some((earlier, _)) = self.files.get(&agent.name) {
            let message = format!("there is an agent \"{}\" already, in {earlier}", agent.name);
            return Err(PromptError::whole(file, message));
        }
        self.files.insert(agent.name.clone(), (file.to_owned(), lines_of_rules(file, text)));
        self.agents.insert(agent.name.clone(), agent);
        Ok(())
    }

    /// The same with the agents of the workspace `root`; `None` where it has no file for one. `check` says what is wrong with
    /// an agent beside its form, and in which part of its head. Reads files.
    pub fn with_workspace(
        &self,
        root: &Path,
        check: impl Fn(&Agent) -> Result<(), (AgentPart, String)>,
    ) -> Option<Self> {
        let names = match names_inside(root, Path::new(FOLDER), MOST_NAMES) {
            Ok(names) => names,
            Err(error) => {
                let error =
                    PromptError::whole(FOLDER, format!("cannot be used as a folder of agents: {error}"));
                let refused = vec![RefusedAgent { name: String::new(), error }];
                return Some(Self { refused, ..self.clone() });
            }
        };
        let mut all: Option<Self> = None;
        for name in names.iter().filter_map(|name| name.strip_suffix(".md")) {
            let all = all.get_or_insert_with(|| self.clone());
            if let Err(error) = all.add_local(root, name, &check) {
                all.refused.push(RefusedAgent { name: name.to_owned(), error });
            }
        }
        all
    }

    fn add_local(
        &mut self,
        root: &Path,
        stem: &str,
        check: impl Fn(&Agent) -> Result<(), (AgentPart, String)>,
    ) -> Result<(), PromptError> {
        let file = format!("{FOLDER}/{stem}.md");
        let wrong = |message: String| PromptError::whole(&file, message);
        let content = read_inside(root, Path::new(&file), MOST_BYTES)
            .map_err(|error| wrong(format!("cannot be used as an agent: {error}")))?
            .ok_or_else(|| wrong("cannot be used as an agent: there is no such file".to_owned()))?;
        if content.size > MOST_BYTES {
            let message =
                format!("is {} bytes long; an agent of a workspace has at most {MOST_BYTES}", content.size);
            return Err(wrong(message));
        }
        let text = String::from_utf8(content.bytes).map_err(|error| {
            let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
            PromptError::at(&file, line, "this line is not UTF-8")
        })?;
        let agent = Agent::parse(&file, &text)?;
        let at = |part: AgentPart, message: String| {
            let line = match part {
                AgentPart::Key(key) => line_of(&file, &text, key),
                AgentPart::Rule(index) => lines_of_rules(&file, &text).get(index).copied(),
            };
            PromptError { file: file.clone(), line, message }
        };
        if self.agents.contains_key(&agent.name) {
            let whose = match self.origin(&agent.name) {
                Origin::Builtin => "is built in".to_owned(),
                Origin::Operator(_) => "is the operator's".to_owned(),
                Origin::Workspace(other) => format!("is in {other}"),
            };
            let message = format!(
                "there is an agent \"{}\" already, which {whose}: a workspace's agents need names of their own",
                agent.name
            );
            return Err(at(AgentPart::Key("name"), message));
        }
        check(&agent).map_err(|(part, message)| at(part, message))?;
        self.local.insert(agent.name.clone(), file.clone());
        self.agents.insert(agent.name.clone(), agent);
        Ok(())
    }

    /// The agent called `name`.
    pub fn get(&self, name: &str) -> Option<&Agent> {
        self.agents.get(name)
    }

    /// The agent called `name`.
    ///
    /// # Errors
    /// Why it cannot be used, or which agents there are.
    pub fn find(&self, name: &str) -> Result<&Agent, String> {
        self.agents.get(name).ok_or_else(|| {
            if let Some(refused) = self.refused.iter().find(|refused| refused.name == name) {
                return format!("the agent \"{}\" cannot be used: {}", name.escape_debug(), refused.error);
            }
            let names: Vec<&str> =
                self.iter().filter(|agent| !agent.hidden).map(|agent| agent.name.as_str()).collect();
            let meant = did_you_mean(name, names.iter().copied());
            format!("unknown agent \"{}\"; there are {}{meant}", name.escape_debug(), names.join(", "))
        })
    }

    /// All agents, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Agent> {
        self.agents.values()
    }

    /// Where an agent that there is comes from.
    pub fn origin(&self, name: &str) -> Origin<'_> {
        match (self.local.get(name), self.files.get(name)) {
            (Some(file), _) => Origin::Workspace(file),
            (None, Some((file, _))) => Origin::Operator(file),
            (None, None) => Origin::Builtin,
        }
    }

    /// The file of an agent that an operator added; `None` for any other.
    pub fn file(&self, name: &str) -> Option<&str> {
        self.files.get(name).map(|(file, _)| file.as_str())
    }

    /// What is wrong with this one of an agent's rules, and where.
    pub fn wrong_rule(&self, name: &str, rule: usize, message: String) -> PromptError {
        match self.files.get(name) {
            Some((file, lines)) => {
                PromptError { file: file.clone(), line: lines.get(rule).copied(), message }
            }
            None => PromptError::whole(name, message),
        }
    }

    /// The files of the workspace that cannot be used.
    pub fn refused(&self) -> &[RefusedAgent] {
        &self.refused
    }

    /// Up to three names that `name` was probably meant to be, the best first.
    pub fn nearest(&self, name: &str) -> Vec<String> {
        nearest(name, self.agents.keys().map(String::as_str))
    }
}

/// The line of this key in the head of an agent's file. It may have another name.
fn line_of(file: &str, text: &str, key: &str) -> Option<usize> {
    let document = front_matter::parse(file, text).ok()?;
    let is_it = |field: &&Field<'_>| field.key == key || field.key.strip_suffix('s') == Some(key);
    document.fields.iter().find(is_it).map(|field| field.line)
}

/// The lines of the rules in the head of an agent's file, in their order.
fn lines_of_rules(file: &str, text: &str) -> Vec<usize> {
    let Ok(document) = front_matter::parse(file, text) else { return Vec::new() };
    let is_it = |field: &&Field<'_>| matches!(field.key, "permission" | "permissions");
    let rules = document.fields.iter().find(is_it).and_then(|field| permission::rules(field).ok());
    rules.unwrap_or_default().into_iter().map(|(line, _)| line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AgentMode, ToolFilter};

    #[test]
    fn the_builtin_agents_are_what_they_should_be() {
        let agents = Agents::builtin();
        let names = |is: fn(&Agent) -> bool| {
            agents.iter().filter(|agent| is(agent)).map(|agent| agent.name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(names(|agent| agent.hidden), ["compaction", "summary", "title"]);
        assert_eq!(
            names(|agent| agent.mode == AgentMode::Subagent),
            ["compaction", "explore", "general", "summary", "title"]
        );
        assert_eq!(
            names(|agent| agent.mode != AgentMode::Subagent),
            ["atlas", "build", "hephaestus", "plan", "sisyphus"]
        );
        let tools = |name: &str| match &agents.get(name).unwrap().tools {
            ToolFilter::All => vec!["all"],
            ToolFilter::Only(tools) => tools.iter().map(String::as_str).collect(),
        };
        for name in ["sisyphus", "build", "general"] {
            assert_eq!(tools(name), ["all"], "{name}");
        }
        let default = agents.get(Agents::DEFAULT).unwrap();
        assert_eq!((default.steps, &default.prompt), (None, &None));
        assert_eq!(
            tools("hephaestus"),
            ["read", "write", "edit", "bash", "glob", "grep", "list", "apply_patch"]
        );
        for name in ["atlas", "explore", "plan"] {
            let looking = agents.get(name).unwrap();
            assert!(looking.read_only, "{name}");
            assert!(["read", "glob", "grep", "list"].iter().all(|tool| looking.tools.allows(tool)), "{name}");
            for changing in ["write", "edit", "multiedit", "apply_patch", "notebook_edit", "process", "task"]
            {
                assert!(!looking.tools.allows(changing), "{name} and {changing}");
            }
        }
        assert_eq!(tools("atlas"), ["read", "glob", "grep", "list", "bash", "todoread", "todowrite"]);
        assert_eq!(agents.get("atlas").unwrap().steps, Some(20));
        for name in ["title", "summary", "compaction"] {
            assert!(tools(name).is_empty() && agents.get(name).unwrap().prompt.is_some(), "{name}");
        }
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
    fn a_rule_that_is_wrong_is_told_at_its_line() {
        let head = "---\ndescription: d\npermission:\n  edit: deny\n  # c\n  bash:\n    \"a\": ask\n    \"b\": ask\n---";
        let mut agents = Agents::builtin();
        agents.add("mine.md", head).unwrap();
        let told = |rule| agents.wrong_rule("mine", rule, "no".to_owned()).to_string();
        assert_eq!(
            [0, 1, 2, 3].map(told),
            ["mine.md:4: no", "mine.md:7: no", "mine.md:8: no", "mine.md: no"]
        );
        let root = tempfile::tempdir().unwrap();
        fs_err::create_dir_all(root.path().join(FOLDER)).unwrap();
        fs_err::write(root.path().join(FOLDER).join("theirs.md"), head).unwrap();
        let wrong = |_: &Agent| Err((AgentPart::Rule(2), "no".to_owned()));
        let all = agents.with_workspace(root.path(), wrong).unwrap();
        assert_eq!(all.refused()[0].error.to_string(), ".playhouse/agents/theirs.md:8: no");
    }

    #[test]
    fn nearest_names_are_found() {
        assert_eq!(Agents::builtin().nearest("hephaistos"), ["hephaestus"]);
    }

    #[test]
    fn agents_of_a_workspace_come_beside_the_others_and_take_no_place_of_theirs() {
        let root = tempfile::tempdir().unwrap();
        let mut agents = Agents::builtin();
        agents.add("agents/mine.md", "---\ndescription: the operator's\n---").unwrap();
        let check = |agent: &Agent| match &agent.model {
            Some(model) => Err((AgentPart::Key("model"), format!("{model} is not configured"))),
            None => Ok(()),
        };
        assert_eq!(agents.with_workspace(root.path(), check), None);

        let folder = root.path().join(FOLDER);
        fs_err::create_dir_all(&folder).unwrap();
        for (name, text) in [
            ("docs.md", "---\ndescription: writes\ntools: [read]\n---\nWrite."),
            ("again.md", "---\nname: docs\ndescription: d\n---"),
            ("plan.md", "---\ndescription: takes over\n---"),
            ("theirs.md", "---\nname: mine\ndescription: takes over\n---"),
            ("dear.md", "---\ndescription: d\nmodel: openai/gpt-5\n---"),
            ("broken.md", "---\ndescription: d\nstep: 3\n---"),
            ("notes.txt", "no agent"),
        ] {
            fs_err::write(folder.join(name), text).unwrap();
        }
        fs_err::write(folder.join("latin.md"), b"---\ndescription: \xe4\n---").unwrap();
        fs_err::write(folder.join("large.md"), "x".repeat(70_000)).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.join("out.md")).unwrap();
        let all = agents.with_workspace(root.path(), check).unwrap();
        let told: Vec<String> = all.refused().iter().map(|refused| refused.error.to_string()).collect();
        insta::assert_snapshot!(told.join("\n"), @r#"
        .playhouse/agents/broken.md:3: unknown key `step`; an agent has name, description, mode, hidden, color, model, reasoning, variant, temperature, top_p, steps, tools, read_only, permission, permissions, prompt; did you mean "steps"?
        .playhouse/agents/dear.md:3: openai/gpt-5 is not configured
        .playhouse/agents/docs.md: there is an agent "docs" already, which is in .playhouse/agents/again.md: a workspace's agents need names of their own
        .playhouse/agents/large.md: is 70000 bytes long; an agent of a workspace has at most 65536
        .playhouse/agents/latin.md:2: this line is not UTF-8
        .playhouse/agents/out.md: cannot be used as an agent: it leads outside of the workspace
        .playhouse/agents/plan.md: there is an agent "plan" already, which is built in: a workspace's agents need names of their own
        .playhouse/agents/theirs.md:2: there is an agent "mine" already, which is the operator's: a workspace's agents need names of their own
        "#);
        assert_eq!(all.origin("again"), Origin::Builtin, "nothing is called so");
        assert_eq!(all.origin("docs"), Origin::Workspace(".playhouse/agents/again.md"));
        assert_eq!(all.find("plan").unwrap(), agents.get("plan").unwrap());
        assert_eq!(all.get("mine").unwrap().description, "the operator's");
        insta::assert_snapshot!(all.find("dear").unwrap_err(), @r#"the agent "dear" cannot be used: .playhouse/agents/dear.md:3: openai/gpt-5 is not configured"#);
        insta::assert_snapshot!(all.find("dcos").unwrap_err(), @r#"unknown agent "dcos"; there are atlas, build, docs, explore, general, hephaestus, mine, plan, sisyphus; did you mean "docs"?"#);
    }

    #[test]
    fn a_folder_of_agents_that_leads_outside_is_named_and_nothing_is_read() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs_err::write(outside.path().join("spy.md"), "---\ndescription: d\n---").unwrap();
        fs_err::create_dir(root.path().join(".playhouse")).unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join(FOLDER)).unwrap();
        let all = Agents::builtin().with_workspace(root.path(), |_| Ok(())).unwrap();
        assert!(all.get("spy").is_none());
        assert_eq!(
            all.refused()[0].error.to_string(),
            ".playhouse/agents: cannot be used as a folder of agents: it leads outside of the workspace"
        );
    }
}
