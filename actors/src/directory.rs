//! What the engine asks about agents and models.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use playhouse_llm::{Endpoint, Head, Limiter, Limits, Transport};
use playhouse_policy::{Action, Rules};
use playhouse_protocol::capability::Modalities;
use playhouse_protocol::ledger::Tier;
use playhouse_protocol::usage::PriceList;
use playhouse_protocol::{
    CommandError, ErrorInfo, ModelRef, PermissionRule, Sandbox, SessionId, Timestamp, WallsAllowed,
};

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
    /// Whether the model goes on with the beginning of an answer that it is given.
    pub prefill: bool,
    /// What the model reads at the step limit.
    pub max_steps: String,
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

/// The agents and models that an engine may use.
pub trait Directory: Send + Sync {
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

    /// The rules that `agent` brings. Fast, and without I/O.
    fn agent_rules(&self, agent: &str) -> Rules;

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

    /// Whether `agent` may call `tool`. A call that it may not make is refused where calls run.
    fn allows(&self, agent: &str, tool: &str) -> bool;

    /// What `model` costs now.
    fn prices(&self, model: &ModelRef) -> PriceList;

    /// How the platform charges for `model`.
    fn tier(&self, _model: &ModelRef) -> Tier {
        Tier::default()
    }

    /// The version of the catalogue that the prices of `model` are from; `None` for prices that the operator wrote.
    fn catalogue(&self, _model: &ModelRef) -> Option<String> {
        None
    }

    /// The most input tokens that a request to `model` may have, where that is known. Fast, and without I/O.
    fn window(&self, _model: &ModelRef) -> Option<u64> {
        None
    }

    /// Estimated tokens of the system prompt and the tools of `agent`.
    fn overhead_tokens(&self, agent: &str) -> u64;

    /// Makes a profile. May read files: it is called where that may block.
    ///
    /// # Errors
    /// Why there is none: a missing key, a model that is no longer configured, a rules file that cannot be read.
    fn profile(&self, request: &ProfileRequest) -> Result<Profile, ErrorInfo>;
}
