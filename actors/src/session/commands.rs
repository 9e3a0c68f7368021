//! What is asked of a session: commands are checked here, and become inputs of its machine.

use playhouse_protocol::command::Snapshot;
use playhouse_protocol::message::{Attachment, Part, PromptKind, ToolSwitches};
use playhouse_protocol::record::SessionChanged;
use playhouse_protocol::{Command, CommandError, Prompt, Reply, ShellCommand, WhenBusy};
use playhouse_session::{Input, NewPrompt};
use ractor::ActorRef;

use super::{ReplyPort, SessionMessage, SessionState};
use crate::creation::{check_metadata, check_rules};
use crate::directory::Choice;

/// Largest text of a prompt, in bytes.
const PROMPT_LIMIT: usize = 5 * 1024 * 1024;
/// Most files of a prompt.
const FILES_LIMIT: usize = 100;
/// Longest command that a person runs, in bytes: a little less than what one argument of a program may have.
const COMMAND_LIMIT: usize = 100 * 1_024;
/// What a model reads before such a command and its output.
const BY_HAND: &str = include_str!("../../../prompts/shell.md");

impl SessionState {
    /// The input that a command stands for; `None` when it is answered already.
    pub(super) fn command(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        command: Command,
        port: ReplyPort,
    ) -> Option<Input> {
        let refused = match command {
            Command::Prompt(prompt) => match self.admit(prompt) {
                Ok(prompt) => return Some(Input::Prompt(self.ticket(port), prompt)),
                Err(error) => Err(error),
            },
            Command::Shell(shell) => match self.admit_command(shell) {
                Ok(prompt) => return Some(Input::Prompt(self.ticket(port), prompt)),
                Err(error) => Err(error),
            },
            Command::Abort => return Some(Input::Abort(self.ticket(port))),
            Command::AbortTurn { turn } => return Some(Input::AbortTurn(self.ticket(port), turn)),
            Command::Answer { consent, answer } => {
                let ticket = self.ticket(port);
                return self.answer(myself, ticket, consent, answer);
            }
            Command::AnswerQuestion { question, answers } => {
                return Some(Input::AnswerQuestion(self.ticket(port), question, answers));
            }
            Command::Change(changed) => match self.check_change(&changed) {
                Ok(()) => return Some(Input::Change(self.ticket(port), changed)),
                Err(error) => Err(error),
            },
            Command::Snapshot => {
                self.show(true, port);
                return None;
            }
            Command::Outline => {
                self.show(false, port);
                return None;
            }
            Command::Messages(query) => {
                self.machine.session().page(&query).map(Reply::Messages).map_err(CommandError::Invalid)
            }
        };
        // A caller that went away needs no answer.
        drop(port.send(refused));
        None
    }

    /// Answers with the session as it stands. Where nothing needed its walls yet, they are built to say what holds: the
    /// answer waits for that, the session does not.
    fn show(&self, with_messages: bool, port: ReplyPort) {
        let session = self.machine.session();
        let messages = if with_messages { session.all_messages() } else { Vec::new() };
        let snapshot = Snapshot { messages, ..session.outline() };
        let answer = |walls| {
            // A caller that went away needs no answer.
            drop(port.send(Ok(Reply::Snapshot(Box::new(Snapshot { walls, ..snapshot })))));
        };
        let Ok(place) = &self.place else { return answer(None) };
        if let Some(known) = place.walls.known() {
            return answer(Some(known.clone()));
        }
        let (walls, pool) = (place.walls.clone(), self.shared.pool.clone());
        tokio::spawn(async move {
            let in_force = pool.run(move || walls.in_force().cloned()).await;
            if let Err(error) = &in_force {
                tracing::warn!(%error, "it is not known what holds commands");
            }
            answer(in_force.ok());
        });
    }

    fn check_change(&self, changed: &SessionChanged) -> Result<(), CommandError> {
        check_rules(changed.permissions.as_deref().unwrap_or_default())?;
        changed.metadata.as_ref().map_or(Ok(()), check_metadata)?;
        let (agent, model) = (changed.agent.as_deref(), changed.model.as_ref());
        let fallback = &self.machine.session().summary.model;
        self.shared.directory.choose(agent, model, None, Some(fallback)).map(drop)
    }

    /// Makes all choices that a prompt leaves open, and checks those that it makes.
    fn admit(&self, prompt: Prompt) -> Result<NewPrompt, CommandError> {
        let Prompt { message, text, files, agent, model, steps, when_busy, unattended, note, system, tools } =
            prompt;
        let system = system.filter(|system| !system.trim().is_empty());
        self.check_place()?;
        self.check_switches(&tools)?;
        if text.trim().is_empty() && files.is_empty() {
            return Err(CommandError::Invalid("the prompt is empty: say what is to be done".into()));
        }
        let texts = text.len() + system.as_ref().map_or(0, String::len);
        if texts > PROMPT_LIMIT || files.len() > FILES_LIMIT {
            return Err(CommandError::Invalid(format!(
                "the prompt is too large: at most {PROMPT_LIMIT} bytes of text and {FILES_LIMIT} files; put the rest into files of the workspace and name them"
            )));
        }
        if steps == Some(0) {
            return Err(CommandError::Invalid("a turn has at least one step: steps cannot be 0".into()));
        }
        let summary = &self.machine.session().summary;
        let choice = self.shared.directory.choose(
            agent.as_deref(),
            model.as_ref(),
            Some(&summary.agent),
            Some(&summary.model),
        )?;
        if let Some(file) = files.iter().find(|file| !choice.modalities.accepts(&file.mime)) {
            return Err(CommandError::Invalid(unread(file, &choice)));
        }
        let mut parts = Vec::with_capacity(files.len() + 1);
        if !text.is_empty() {
            parts.push(Part::Text { id: self.ids.next(), text });
        }
        parts.extend(files.into_iter().map(|file| Part::File { id: self.ids.next(), file }));
        Ok(NewPrompt {
            message: message.unwrap_or_else(|| self.ids.next()),
            parts,
            agent: choice.agent,
            model: choice.model,
            step_limit: steps.or(choice.step_limit),
            when_busy,
            unattended,
            kind: if note { PromptKind::Note } else { PromptKind::Turn },
            system,
            tools,
        })
    }

    /// Checks a command that a person runs.
    fn admit_command(&self, shell: ShellCommand) -> Result<NewPrompt, CommandError> {
        let ShellCommand { message, command, timeout, agent, model } = shell;
        self.check_place()?;
        let wrong = |what: &str| Err(CommandError::Invalid(format!("the command {what}")));
        if command.trim().is_empty() {
            return wrong("is empty: write what shall run");
        }
        if command.len() > COMMAND_LIMIT || command.contains('\0') {
            return wrong(&format!(
                "is longer than {COMMAND_LIMIT} bytes, or holds a NUL byte: write a script and run that"
            ));
        }
        let longest = self.shared.tools.find("bash").ok().and_then(|tool| tool.longest());
        let longest =
            longest.map_or(u64::MAX, |longest| u64::try_from(longest.as_millis()).unwrap_or(u64::MAX));
        if timeout.is_some_and(|timeout| timeout == 0 || timeout > longest) {
            return wrong(&format!("has a `timeout` that is not from 1 to {longest} milliseconds"));
        }
        let summary = &self.machine.session().summary;
        let choice = self.shared.directory.choose(
            agent.as_deref(),
            model.as_ref(),
            Some(&summary.agent),
            Some(&summary.model),
        )?;
        Ok(NewPrompt {
            message: message.unwrap_or_else(|| self.ids.next()),
            parts: vec![Part::Text { id: self.ids.next(), text: BY_HAND.trim_end().to_owned() }],
            agent: choice.agent,
            model: choice.model,
            step_limit: None,
            // Whoever types it wants it now, and sees that it cannot be.
            when_busy: WhenBusy::Reject,
            unattended: false,
            kind: PromptKind::Shell { command, timeout },
            system: None,
            tools: ToolSwitches::new(),
        })
    }

    fn check_place(&self) -> Result<(), CommandError> {
        self.place.as_ref().map(|_| ()).map_err(|error| CommandError::Invalid(error.clone()))
    }

    /// Whether the tools that a prompt names exist.
    fn check_switches(&self, tools: &ToolSwitches) -> Result<(), CommandError> {
        for name in tools.keys().filter(|name| *name != "*") {
            self.shared.tools.find(name).map_err(|error| CommandError::Invalid(error.to_string()))?;
        }
        Ok(())
    }
}

/// Why a prompt with `file` is refused.
fn unread(file: &Attachment, choice: &Choice) -> String {
    let reads: Vec<&str> = std::iter::once("text").chain(choice.modalities.names()).collect();
    format!(
        "\"{}\" is {}, which {} does not read (it reads {}): leave the file out, or choose another model",
        file.filename.escape_debug(),
        file.mime.escape_debug(),
        choice.model,
        reads.join(", ")
    )
}
