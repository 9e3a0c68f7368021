//! What the engine asks about agents and models.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use playhouse_llm::{Endpoint, Findings, Head, Limiter, Limits, Transport};
use playhouse_policy::{Action, Rules};
use playhouse_protocol::capability::Modalities;
use playhouse_protocol::ledger::Purpose;
use playhouse_protocol::message::CallInput;
use playhouse_protocol::template::TemplateList;
use playhouse_protocol::tool::ToolOrigin;
use playhouse_protocol::{
    CommandError, EndOfLife, ErrorInfo, ModelRef, PermissionRule, Sandbox, SessionId, Timestamp, WallsAllowed,
};
use playhouse_session::{Facts, ModelDirectory, Session};

/// An agent and a model that exist, for a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The agent.
    pub agent: String,
    /// The model.
    pub model: ModelRef,
    /// The agent's step limit.
    pub step_limit: Option<u32>,
    /// What the model reads beside text.
    pub modalities: Modalities,
}

/// For what a profile is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileRequest {
    /// The session: what all of its requests have in common.
    pub session: SessionId,
    /// Who pays.
    pub tenant: String,
    /// The session's directory: absolute, links resolved.
    pub workspace: String,
    /// The agent.
    pub agent: String,
    /// The model.
    pub model: ModelRef,
    /// When the session was created: the date that the model is told.
    pub created: Timestamp,
    /// The session's own rules.
    pub permissions: Vec<PermissionRule>,
    /// What whoever made the session wants its system prompt to end with.
    pub system: Option<String>,
    /// The system prompt, where it is settled: it is used as it is.
    pub settled: Option<String>,
    /// Tools of which no call of the session's could ever run, whatever the agent may: they are not shown, nor what they are
    /// for.
    pub withheld: Vec<String>,
    /// Directories below which its tenant is kept, absolute, links resolved; `None` for a tenant that is free.
    pub kept_to: Option<Vec<PathBuf>>,
}

impl ProfileRequest {
    /// The request of a session for one of its agents and a model. It withholds no tool, and its system prompt is not settled.
    pub fn of(session: &Session, agent: &str, model: &ModelRef, kept_to: Option<Vec<PathBuf>>) -> Self {
        let summary = &session.summary;
        Self {
            session: summary.id,
            tenant: summary.tenant.clone(),
            workspace: summary.workspace.clone(),
            agent: agent.to_owned(),
            model: model.clone(),
            created: summary.created,
            permissions: session.permissions.clone(),
            system: session.system.clone(),
            settled: None,
            withheld: Vec::new(),
            kept_to,
        }
    }
}

/// Everything that a request to a model needs beside the conversation.
#[derive(Clone)]
pub struct Profile {
    /// The server.
    pub endpoint: Endpoint,
    /// How to reach it.
    pub transport: Arc<dyn Transport>,
    /// Who may send a request now: shared by all that use the same server and key.
    pub limiter: Limiter,
    /// How long the server may take. How much it may say follows from the head's limit of output.
    pub limits: Limits,
    /// System prompt, tools and limits.
    pub head: Head,
    /// Where it is kept what the model's server was found to refuse.
    pub findings: Arc<Findings>,
    /// When the model ended, where it is known that it has.
    pub ended: Option<EndOfLife>,
}

/// Who is asked for a title or a summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    /// The agent.
    pub agent: String,
    /// The model.
    pub model: ModelRef,
    /// All of the system prompt.
    pub system: String,
}

/// What holds for every session in a workspace, by configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ground {
    /// The operator's rules. What they deny stays denied.
    pub configuration: Rules,
    /// The workspace's own rules, which can only make things stricter.
    pub workspace: Rules,
    /// What holds for tools that reach out, where no rule speaks.
    pub moderate: Moderate,
    /// Whether there must be walls around programs.
    pub sandbox: Sandbox,
    /// What the walls let through.
    pub walls: WallsAllowed,
    /// Directories below which the git directory of a worktree or a submodule may lie.
    pub roots: Vec<PathBuf>,
}

/// What holds for tools that reach out, where no rule speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Moderate {
    /// They run.
    Allow,
    /// A person must agree first.
    #[default]
    Ask,
}

impl From<Moderate> for Action {
    fn from(moderate: Moderate) -> Self {
        match moderate {
            Moderate::Allow => Self::Allow,
            Moderate::Ask => Self::Ask,
        }
    }
}

/// A template with what was typed behind its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilledTemplate {
    /// The agent that answers; where it is a subtask, the one that is given the work.
    pub agent: Option<String>,
    /// The model that answers.
    pub model: Option<ModelRef>,
    /// Whether another agent is given the work.
    pub subtask: bool,
    /// Its pieces, in their order.
    pub pieces: Vec<TemplatePiece>,
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplatePiece {
    /// Text of the prompt.
    Text(String),
    /// A command of the shell, whose output stands here.
    Shell(String),
}

/// What an engine asks about workspaces, agents, models, templates and profiles.
pub trait Directory:
    WorkspaceDirectory + AgentDirectory + ModelDirectory + TemplateDirectory + ProfileDirectory
{
}

impl<T> Directory for T where
    T: WorkspaceDirectory + AgentDirectory + ModelDirectory + TemplateDirectory + ProfileDirectory
{
}

/// What configuration says about workspaces.
pub trait WorkspaceDirectory: Send + Sync {
    /// The same for sessions in `workspace`, with the agents that it has of its own. May read files: it is called where that
    /// may block, when a session is made and when one is woken. What is wrong with one of those agents is told to whoever asks
    /// for that one.
    ///
    /// # Errors
    /// What is wrong with the workspace's own configuration.
    fn local(self: Arc<Self>, workspace: &Path) -> Result<Arc<dyn Directory>, String>;

    /// The agent and the model that sessions in `workspace` begin with, as far as it or the configuration chooses them.
    /// May read files: it is called where that may block.
    ///
    /// # Errors
    /// What is wrong with the workspace's own configuration.
    fn defaults(&self, workspace: &Path) -> Result<(Option<String>, Option<ModelRef>), String>;

    /// What holds for every session of `tenant` in `workspace`, by configuration. May read files: it is called where that
    /// may block, once when a session is woken.
    ///
    /// # Errors
    /// What is wrong with the workspace's own configuration.
    fn ground(&self, tenant: &str, workspace: &Path) -> Result<Ground, String>;
}

/// Agents, and what they may do.
pub trait AgentDirectory: Send + Sync {
    /// The rules that `agent` brings. Fast, and without I/O.
    fn agent_rules(&self, agent: &str) -> Rules;

    /// The rules of `agent` that can only make things stricter, as it comes from a workspace. Fast, and without I/O.
    fn agent_restrictions(&self, _agent: &str) -> Rules {
        Rules::new()
    }

    /// Whether `agent` can change nothing in the workspace: calls that would are refused, and commands run in walls in which
    /// nothing can be written there, or not at all. Fast, and without I/O.
    fn is_read_only(&self, _agent: &str) -> bool {
        false
    }

    /// Whether other agents may hand work over to `agent`. Fast, and without I/O.
    ///
    /// # Errors
    /// There is no such agent, or it takes none: with those that do.
    fn takes_tasks(&self, _agent: &str) -> Result<(), String> {
        Ok(())
    }

    /// Whether `agent` may call `tool`. A call that it may not make is refused where calls run.
    fn allows(&self, agent: &str, tool: &str) -> bool;

    /// A first guess at the tokens of the system prompt and the tools of `agent`, until they are made and measured. Fast, and
    /// without I/O.
    fn overhead_tokens(&self, agent: &str) -> u64;
}

/// Command templates.
pub trait TemplateDirectory: Send + Sync {
    /// The command templates for sessions in `workspace`, and what is wrong with others: clients are told it, so it does not say
    /// where the operator keeps files. Reads files: it is called where that may block.
    fn templates(&self, _workspace: &Path) -> TemplateList {
        TemplateList::default()
    }

    /// The words of what was typed behind a name, as templates read them: `most` at most, where the last takes the rest.
    fn words(&self, typed: &str, _most: usize) -> Vec<String> {
        typed.split_whitespace().map(str::to_owned).collect()
    }

    /// The template `name` for a session in `workspace`, with what was typed behind it. Reads files: it is called where that may
    /// block.
    ///
    /// # Errors
    /// There is none of this name, its file cannot be used, or the arguments do not fit. Clients are told it.
    fn template(&self, _workspace: &Path, name: &str, _arguments: &str) -> Result<FilledTemplate, String> {
        Err(format!("unknown command \"{}\"; there are none", name.escape_debug()))
    }
}

/// What a request to a model is made with.
pub trait ProfileDirectory: Send + Sync {
    /// Fills in and checks what a prompt asks for. `agent` and `model` are the prompt's own wishes; `fallback_agent` and
    /// `fallback_model` are the session's. Fast, and without I/O.
    ///
    /// # Errors
    /// What is not known ([`CommandError::Invalid`]), or cannot be used as it is set up ([`CommandError::Unusable`]), with
    /// what to do.
    fn choose(
        &self,
        agent: Option<&str>,
        model: Option<&ModelRef>,
        fallback_agent: Option<&str>,
        fallback_model: Option<&ModelRef>,
    ) -> Result<Choice, CommandError>;

    /// Who is asked for a title or a summary in a session that uses `model`; `None` where nobody is asked. Fast, and without
    /// I/O.
    fn aside(&self, _purpose: Purpose, _model: &ModelRef) -> Option<Aside> {
        None
    }

    /// Makes a profile. May read files: it is called where that may block.
    ///
    /// # Errors
    /// Why there is none: a missing key, a model that is no longer configured, a rules file that cannot be read.
    fn profile(&self, request: &ProfileRequest) -> Result<Profile, ErrorInfo>;
}

/// What a turn machine asks a directory.
pub(crate) struct DirectoryFacts<'a>(pub(crate) &'a dyn Directory, pub(crate) Origin<'a>);

/// Where the tool comes from that a call reaches.
type Origin<'a> = &'a dyn Fn(&str, &CallInput) -> Option<ToolOrigin>;

impl Facts for DirectoryFacts<'_> {
    fn models(&self) -> &dyn ModelDirectory {
        self.0
    }

    fn overhead_tokens(&self, agent: &str, _: &ModelRef) -> u64 {
        self.0.overhead_tokens(agent)
    }

    fn origin(&self, tool: &str, input: &CallInput) -> Option<ToolOrigin> {
        (self.1)(tool, input)
    }

    fn aside(&self, purpose: Purpose, model: &ModelRef) -> Option<(String, ModelRef)> {
        self.0.aside(purpose, model).map(|aside| (aside.agent, aside.model))
    }
}
