//! What is asked of a session: commands are checked here, and become inputs of its machine.

use playhouse_protocol::command::Snapshot;
use playhouse_protocol::message::{CallInput, Message, Part, PromptKind, ToolSwitches};
use playhouse_protocol::record::{PromptAdmitted, SessionChanged};
use playhouse_protocol::{
    Command, CommandError, ModelRef, PartId, Prompt, PromptText, Reply, ShellBlock, ShellCommand,
    ToolCommand, WhenBusy,
};
use playhouse_session::{Input, NewPrompt};
use playhouse_tools::MCP_PREFIX;
use playhouse_tools::submit::SubmitOutput;
use ractor::ActorRef;

use super::SessionState;
use super::attach::attaches;
use crate::api::creation::{check_kept, check_metadata, check_rules};
use crate::base::spawn;
use crate::directory::Choice;
use crate::mailbox::{ReplyPort, SessionMessage};
use crate::wake::Place;

/// Largest text of a prompt, in bytes.
const PROMPT_LIMIT: usize = 5 * 1024 * 1024;
/// Most files of a prompt.
const FILES_LIMIT: usize = 100;
/// Longest command that a person runs, in bytes: a little less than what one argument of a program may have.
const COMMAND_LIMIT: usize = 100 * 1_024;
/// Largest arguments of a call that a client makes, in bytes of JSON.
const INPUT_LIMIT: usize = 1024 * 1_024;
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
        let works = matches!(
            command,
            Command::Prompt(_) | Command::Shell(_) | Command::Call(_) | Command::Compact { .. }
        );
        if let Err(refusal) = if works { self.shared.space.allows(&self.tenant) } else { Ok(()) } {
            drop(port.send(Err(refusal)));
            return None;
        }
        let refused = match command {
            Command::Prompt(prompt) if attaches(&prompt) => {
                self.attach(myself, prompt, port);
                return None;
            }
            Command::Prompt(prompt) => return self.attached(Ok(prompt), port),
            // Before it comes here it is made a prompt: see `templates`.
            Command::Template(_) => {
                Err(CommandError::Invalid("a command template is filled in before it is sent".into()))
            }
            Command::Shell(shell) => match self.admit_command(shell) {
                Ok(prompt) => return Some(Input::Prompt(self.ticket(port), prompt)),
                Err(error) => Err(error),
            },
            Command::Call(call) => match self.admit_call(call) {
                Ok(prompt) => return Some(Input::Prompt(self.ticket(port), prompt)),
                Err(error) => Err(error),
            },
            Command::Abort if !self.machine.session().background.is_empty() => {
                self.abort_all(myself, port);
                return None;
            }
            Command::Abort => return Some(Input::Abort(self.ticket(port))),
            Command::AbortTurn { turn } if self.began_background(turn) => {
                self.abort_turn_and_background(myself, turn, port);
                return None;
            }
            Command::AbortTurn { turn } => return Some(Input::AbortTurn(self.ticket(port), turn)),
            Command::Answer { consent, answer } => {
                let ticket = self.ticket(port);
                return self.answer(myself, ticket, consent, answer);
            }
            Command::AnswerQuestion { question, answers } => {
                return Some(Input::AnswerQuestion(self.ticket(port), question, answers));
            }
            Command::AnswerCall { call, answer } => {
                return Some(Input::AnswerCall(self.ticket(port), call, answer));
            }
            Command::Change(changed) => match self.check_change(&changed) {
                Ok(()) => return Some(Input::Change(self.ticket(port), changed)),
                Err(error) => Err(error),
            },
            Command::Compact { model } => match self.check_model(model.as_ref()) {
                Ok(()) => return Some(Input::Compact(self.ticket(port), model)),
                Err(error) => Err(error),
            },
            Command::Revert(request) => {
                self.revert(myself, request, port);
                return None;
            }
            Command::Unrevert(request) => {
                self.unrevert(myself, request, port);
                return None;
            }
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
        spawn(async move {
            let in_force = pool.run(move || walls.in_force().cloned()).await;
            if let Err(error) = &in_force {
                tracing::warn!(%error, "it is not known what holds commands");
            }
            answer(in_force.ok());
        });
    }

    /// Whether a model that is named can be asked.
    fn check_model(&self, model: Option<&ModelRef>) -> Result<(), CommandError> {
        let Some(model) = model else { return Ok(()) };
        let fallback = &self.machine.session().summary.agent;
        self.judge.directory().choose(None, Some(model), Some(fallback), None).map(drop)
    }

    fn check_change(&self, changed: &SessionChanged) -> Result<(), CommandError> {
        check_rules(changed.permissions.as_deref().unwrap_or_default())?;
        changed.metadata.as_ref().map_or(Ok(()), check_metadata)?;
        let (agent, model) = (changed.agent.as_deref(), changed.model.as_ref());
        let fallback = &self.machine.session().summary.model;
        self.judge.directory().choose(agent, model, None, Some(fallback)).map(drop)
    }

    /// The input that a prompt is, with all that is attached to it; `None` where it is refused.
    pub(super) fn attached(
        &mut self,
        prompt: Result<Prompt, CommandError>,
        port: ReplyPort,
    ) -> Option<Input> {
        match prompt.and_then(|prompt| self.admit(prompt)) {
            Ok(prompt) => Some(Input::Prompt(self.ticket(port), prompt)),
            Err(error) => {
                // A caller that went away needs no answer.
                drop(port.send(Err(error)));
                None
            }
        }
    }

    /// Makes all choices that a prompt leaves open.
    fn admit(&self, prompt: Prompt) -> Result<NewPrompt, CommandError> {
        let choice = self.check(&prompt)?;
        let Prompt {
            message,
            text,
            texts,
            files,
            steps,
            when_busy,
            unattended,
            note,
            system,
            tools,
            output,
            handed,
            attribution,
            ..
        } = prompt;
        let system = system.filter(|system| !system.trim().is_empty());
        let mut parts = Vec::with_capacity(1 + texts.len() + files.len());
        let given = |id: Option<PartId>| id.filter(|id| !self.has_part(*id));
        let id = |id: Option<PartId>| given(id).unwrap_or_else(|| self.ids.next());
        if !text.is_empty() {
            parts.push(Part::text(id(None), text));
        }
        for PromptText { part, text, marks } in texts {
            parts.push(Part::Text { id: id(part), text, marks, opaque: None });
        }
        for mut file in files {
            parts.push(Part::File { id: id(file.part.take()), file });
        }
        let message = message.unwrap_or_else(|| self.ids.next());
        let kind = if note { PromptKind::Note } else { PromptKind::Turn };
        let prompt = PromptAdmitted {
            step_limit: steps.or(choice.step_limit),
            unattended,
            system,
            tools,
            output,
            handed,
            attribution,
            ..PromptAdmitted::new(message, parts, choice.agent, choice.model, kind)
        };
        Ok(NewPrompt { prompt, when_busy })
    }

    /// Whether something in the session has this id: those that clients make may be repeated.
    fn has_part(&self, id: PartId) -> bool {
        let session = self.machine.session();
        let has = |parts: &[Part]| parts.iter().any(|part| part.id() == id);
        let queued = session.queue.iter().any(|queued| has(&queued.prompt.parts));
        queued
            || session.messages.iter().any(|message| match message {
                Message::User(message) => has(&message.parts),
                Message::Assistant(message) => has(&message.parts),
            })
    }

    /// Checks what a prompt chooses; who answers it.
    pub(super) fn check(&self, prompt: &Prompt) -> Result<Choice, CommandError> {
        let Prompt { text, texts, files, paths, agent, model, steps, system, tools, note, .. } = prompt;
        self.place()?;
        self.check_switches(tools)?;
        if let Some(wanted) = &prompt.output {
            let read = SubmitOutput::new(wanted);
            read.map_err(|error| CommandError::Invalid(format!("the schema of the output: {error}")))?;
        }
        // A note may be for people only.
        let says = |more: &PromptText| {
            let is_told = *note || !more.marks.as_ref().is_some_and(|marks| marks.ignored);
            is_told && !more.text.trim().is_empty()
        };
        let says_nothing = text.trim().is_empty() && !texts.iter().any(says);
        if says_nothing && files.is_empty() && paths.is_empty() {
            return Err(CommandError::Invalid("the prompt is empty: say what is to be done".into()));
        }
        let size = text.len() + system.as_ref().map_or(0, String::len);
        let size = texts.iter().map(|more| more.text.len()).sum::<usize>() + size;
        let given = files.iter().filter(|file| !file.mentioned).count();
        if size > PROMPT_LIMIT || given.max(paths.len()).max(texts.len()) > FILES_LIMIT {
            return Err(CommandError::Invalid(format!(
                "the prompt is too large: at most {PROMPT_LIMIT} bytes of text, and {FILES_LIMIT} files or pieces of text; put the rest into files of the workspace and name them"
            )));
        }
        check_kept(prompt)?;
        let ids = texts.iter().map(|more| more.part).chain(files.iter().map(|file| file.part));
        let mut ids: Vec<PartId> = ids.chain(paths.iter().map(|path| path.part)).flatten().collect();
        ids.sort_unstable();
        if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            let text =
                format!("two parts of the prompt have the id {}: give each its own, or none", twice[0]);
            return Err(CommandError::Invalid(text));
        }
        if *steps == Some(0) {
            return Err(CommandError::Invalid("a turn has at least one step: steps cannot be 0".into()));
        }
        let summary = &self.machine.session().summary;
        self.judge.directory().choose(
            agent.as_deref(),
            model.as_ref(),
            Some(&summary.agent),
            Some(&summary.model),
        )
    }

    /// Checks a command that a person runs.
    fn admit_command(&self, shell: ShellCommand) -> Result<NewPrompt, CommandError> {
        let ShellCommand { message, command, timeout, agent, model, block } = shell;
        self.place()?;
        let wrong = |what: &str| Err(CommandError::Invalid(format!("the command {what}")));
        if command.trim().is_empty() {
            return wrong("is empty: write what shall run");
        }
        if command.len() > COMMAND_LIMIT || command.contains('\0') {
            return wrong(&format!(
                "is longer than {COMMAND_LIMIT} bytes, or holds a NUL byte: write a script and run that"
            ));
        }
        let longest = self.shared.tools.native().find("bash").ok().and_then(|tool| tool.longest());
        let longest =
            longest.map_or(u64::MAX, |longest| u64::try_from(longest.as_millis()).unwrap_or(u64::MAX));
        if timeout.is_some_and(|timeout| timeout == 0 || timeout > longest) {
            return wrong(&format!("has a `timeout` that is not from 1 to {longest} milliseconds"));
        }
        let summary = &self.machine.session().summary;
        let choice = self.judge.directory().choose(
            agent.as_deref(),
            model.as_ref(),
            Some(&summary.agent),
            Some(&summary.model),
        )?;
        let (text, when_busy, unattended, kind) = match block {
            Some(ShellBlock { template, when_busy, unattended }) => {
                // People read it, and no model.
                let text = format!("The command /{template} runs this for its prompt");
                (text, when_busy, unattended, PromptKind::Block { command, template })
            }
            // Whoever types it wants it now, and sees that it cannot be.
            None => {
                let kind = PromptKind::Shell { command, timeout };
                (BY_HAND.trim_end().to_owned(), WhenBusy::Reject, false, kind)
            }
        };
        let message = message.unwrap_or_else(|| self.ids.next());
        let parts = vec![Part::text(self.ids.next(), text)];
        let prompt = PromptAdmitted::new(message, parts, choice.agent, choice.model, kind);
        Ok(NewPrompt { prompt: PromptAdmitted { unattended, ..prompt }, when_busy })
    }

    /// Checks a call that a client makes.
    fn admit_call(&self, call: ToolCommand) -> Result<NewPrompt, CommandError> {
        let ToolCommand { message, tool, input, agent, when_busy, unattended } = call;
        self.place()?;
        // One that was made already is known, whatever became of its tool.
        if !message.is_some_and(|message| self.machine.session().knows_prompt(message)) {
            let catalogue = self.catalogue();
            let found = catalogue.find(&tool).map_err(|error| CommandError::Invalid(error.to_string()))?;
            if found.delegation(&CallInput::Object(input.clone())).is_some() {
                let text = format!("{tool} hands work over, which only a model's turn can do");
                return Err(CommandError::Invalid(text));
            }
        }
        let bytes = serde_json::to_string(&input).map_or(usize::MAX, |input| input.len());
        if bytes > INPUT_LIMIT {
            let text = format!("the arguments of the call have {bytes} bytes, at most {INPUT_LIMIT}");
            return Err(CommandError::Invalid(text));
        }
        let summary = &self.machine.session().summary;
        let (agent_before, model) = (Some(summary.agent.as_str()), Some(&summary.model));
        let choice = self.judge.directory().choose(agent.as_deref(), None, agent_before, model)?;
        // A turn takes prompts over that steer it, and would not make the call.
        let when_busy = if when_busy == WhenBusy::Steer { WhenBusy::Queue } else { when_busy };
        let message = message.unwrap_or_else(|| self.ids.next());
        let parts = vec![Part::text(self.ids.next(), BY_HAND.trim_end())];
        let prompt =
            PromptAdmitted::new(message, parts, choice.agent, choice.model, PromptKind::Call { tool, input });
        Ok(NewPrompt { prompt: PromptAdmitted { unattended, ..prompt }, when_busy })
    }

    /// Where it works.
    pub(super) fn place(&self) -> Result<&Place, CommandError> {
        self.place.as_ref().map_err(|error| CommandError::Invalid(error.clone()))
    }

    /// Whether the tools that a prompt names exist.
    fn check_switches(&self, tools: &ToolSwitches) -> Result<(), CommandError> {
        // A server that has this tool may not have answered yet.
        let is_checked = |name: &&String| *name != "*" && !name.starts_with(MCP_PREFIX);
        for name in tools.keys().filter(is_checked) {
            self.catalogue().find(name).map_err(|error| CommandError::Invalid(error.to_string()))?;
        }
        Ok(())
    }
}
