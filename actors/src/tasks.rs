//! Work that a call hands over to a session of its own, a sub-session.
//!
//! The ids of sub-session and prompt stand in the call's intent, so that a call that runs again after a crash finds what it had
//! begun: the sub-session is made once, its prompt is admitted once. What is begun runs in a task of the runtime, which outlives
//! the call's actor: so an abort reaches the sub-session also when the call is killed before it is through.
//!
//! What no call waits for is told to the session above by the sub-session itself, with a prompt whose id stands in the intent as
//! well (`actors/src/session/reports.rs`). What was lost between the two is found when the session above is woken.

use std::sync::Arc;

use playhouse_protocol::command::MessagesQuery;
use playhouse_protocol::message::{Message, Part};
use playhouse_protocol::record::{TurnEnded, TurnOutcome};
use playhouse_protocol::summary::SessionState;
use playhouse_protocol::{
    Command, CommandError, Delegate, HandedOver, MessageId, ModelRef, NewSession, PermissionRule, Prompt,
    Record, Reply, SessionId, WallsAllowed, WhenBusy,
};
use playhouse_tools::{ToolError, Work, WorkEnd};
use tokio_util::sync::CancellationToken;

use crate::api::engine::{Engine, fold};
use crate::api::handle::SessionHandle;
use crate::directory::Directory;

/// Who hands work over, and on what terms.
pub(crate) struct Giver {
    pub(crate) engine: Engine,
    pub(crate) session: SessionId,
    pub(crate) tenant: String,
    pub(crate) workspace: String,
    /// The rules that the sub-session begins with: those of this one.
    pub(crate) permissions: Vec<PermissionRule>,
    pub(crate) walls: Option<WallsAllowed>,
    /// The only tools that there are here; `None` for all.
    pub(crate) tools: Option<Arc<[String]>>,
    /// What its system prompts end with, as those of this one do.
    pub(crate) system: Option<String>,
    /// Whether nobody answers requests for consent in the turn.
    pub(crate) unattended: bool,
    /// The step whose call it is.
    pub(crate) step: Option<MessageId>,
    /// The agents and models that there are.
    pub(crate) directory: Arc<dyn Directory>,
    /// The model that made the call.
    pub(crate) model: ModelRef,
    /// How the prompt is handed over.
    pub(crate) handed: HandedOver,
}

/// How the wait for work ended.
enum Wait {
    Over(Box<TurnEnded>),
    Cancelled,
    /// The engine stops: the call goes on when it is there again.
    Stopped,
}

impl Giver {
    /// Hands work over, and waits for its end unless it runs in the background.
    pub(crate) async fn hand_over(
        self: Arc<Self>,
        delegate: Delegate,
        work: Work,
        cancel: CancellationToken,
    ) -> Result<WorkEnd, ToolError> {
        let session = delegate.session;
        let background = delegate.report.is_some();
        // Not bound to whoever waits for it: a call that is killed must not leave a prompt behind that nobody aborts.
        let begun = tokio::spawn(async move {
            let child = self.child(&delegate, &work).await?;
            let ended = self.run(&child, &delegate, work, cancel).await?;
            Ok::<_, CommandError>((child, ended))
        });
        let (child, wait) = match begun.await {
            Ok(Ok(begun)) => begun,
            Ok(Err(CommandError::NotAccepted(_))) => return std::future::pending().await,
            Ok(Err(CommandError::Busy)) => {
                return Err(ToolError::Failed(format!(
                    "the task {session} is still at work: wait until you are told that it has ended"
                )));
            }
            // How servers are reached is told to the operator only.
            Ok(Err(CommandError::Unusable(error))) => {
                let error = error.for_tenant();
                return Err(ToolError::Failed(format!("the task could not be begun: {}", error.message)));
            }
            Ok(Err(error)) => return Err(ToolError::Failed(format!("the task could not be begun: {error}"))),
            // Its runtime is being shut down: nobody may write that down as how the task ended.
            Err(gone) if gone.is_cancelled() => return std::future::pending().await,
            Err(crashed) => {
                return Err(ToolError::Failed(format!(
                    "the task was lost by a bug in the engine: {crashed}"
                )));
            }
        };
        match wait {
            None if background => Ok(WorkEnd { session, outcome: None, text: String::new() }),
            None | Some(Wait::Cancelled) => {
                Err(ToolError::Cancelled(format!("the task {session} was aborted")))
            }
            // Whoever ends this ends the whole session, which goes on later.
            Some(Wait::Stopped) => std::future::pending().await,
            Some(Wait::Over(ended)) => {
                let said = last_said(&child, ended.turn).await;
                Ok(WorkEnd { session, outcome: Some(ended.outcome), text: report(&ended, &said) })
            }
        }
    }

    /// The sub-session, which is made unless it is there already.
    async fn child(&self, delegate: &Delegate, work: &Work) -> Result<SessionHandle, CommandError> {
        let id = delegate.session;
        match self.engine.summary(id).await {
            Ok(summary) if summary.tenant == self.tenant && summary.parent == Some(self.session) => {
                return match summary.state {
                    SessionState::Deleted => Err(no_task(id)),
                    _ => Ok(self.engine.handle(id)),
                };
            }
            Err(CommandError::NotFound(_)) if work.session.is_none() => {}
            // Sessions of others are none that there are.
            Ok(_) | Err(CommandError::NotFound(_)) => return Err(no_task(id)),
            Err(error) => return Err(error),
        }
        // The agent's own model, or else that of the call.
        let choice = self.directory.choose(Some(&work.agent), None, None, Some(&self.model))?;
        let new = NewSession {
            title: Some(work.title.clone()),
            agent: Some(work.agent.clone()),
            model: Some(choice.model),
            parent: Some(self.session),
            permissions: self.permissions.clone(),
            unattended: self.unattended,
            walls: self.walls.clone(),
            tools: self.tools.as_deref().map(<[String]>::to_vec),
            system: self.system.clone(),
            ..NewSession::new(self.tenant.clone(), self.workspace.clone())
        };
        self.engine.create_as(id, new, self.step).await
    }

    /// Has the prompt admitted, and waits for the end of its turn; `None` where nothing waits for it.
    async fn run(
        &self,
        child: &SessionHandle,
        delegate: &Delegate,
        work: Work,
        cancel: CancellationToken,
    ) -> Result<Option<Wait>, CommandError> {
        let prompt = Prompt {
            message: Some(delegate.prompt),
            text: work.prompt,
            agent: Some(work.agent),
            when_busy: WhenBusy::Reject,
            plain: true,
            unattended: self.unattended,
            handed: Some(Box::new(HandedOver { report: delegate.report, ..self.handed.clone() })),
            attribution: self.handed.attribution.clone(),
            ..Prompt::default()
        };
        if cancel.is_cancelled() {
            return Ok(Some(Wait::Cancelled));
        }
        let events = child.events(None).await?;
        let accepted = child.prompt(prompt).await?;
        if delegate.report.is_some() {
            if cancel.is_cancelled() {
                child.abort_turn(delegate.prompt).await?;
            }
            return Ok(None);
        }
        let ended = child.end_of(accepted, events);
        tokio::select! {
            biased;
            () = cancel.cancelled() => {
                child.abort_turn(delegate.prompt).await?;
                Ok(Some(Wait::Cancelled))
            }
            ended = ended => match ended {
                Ok(finished) => Ok(Some(Wait::Over(Box::new(finished.ended)))),
                Err(CommandError::NotAccepted(_)) => Ok(Some(Wait::Stopped)),
                Err(error) => Err(error),
            },
        }
    }
}

fn no_task(id: SessionId) -> CommandError {
    CommandError::Invalid(format!("there is no task {id} of this session: leave `task_id` out for a new one"))
}

/// What was said last in a turn of a session.
async fn last_said(session: &SessionHandle, turn: MessageId) -> String {
    let query = MessagesQuery { limit: 20, ..MessagesQuery::default() };
    match session.command(Command::Messages(query)).await {
        Ok(Reply::Messages(page)) => last_text(&page.messages, turn).to_owned(),
        // How it ended is known all the same.
        _ => String::new(),
    }
}

/// The last text of a turn that says something.
pub(crate) fn last_text(messages: &[Message], turn: MessageId) -> &str {
    let of_turn = messages.iter().rev().filter_map(|message| match message {
        Message::Assistant(message) if message.parent == turn => Some(message),
        _ => None,
    });
    let mut texts = of_turn.flat_map(|message| message.parts.iter().rev()).filter_map(|part| match part {
        Part::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.find(|text| !text.trim().is_empty()).unwrap_or_default()
}

/// What is told of a turn that is over: what was said last, and why it failed.
pub(crate) fn report(ended: &TurnEnded, said: &str) -> String {
    let said = said.trim();
    match (&ended.error, said) {
        (None, "") => "It said nothing.".to_owned(),
        (None, said) => said.to_owned(),
        (Some(error), "") => format!("Why: {}", error.for_tenant().message),
        (Some(error), said) => format!("Why: {}\n\nWhat it said last:\n{said}", error.for_tenant().message),
    }
}

/// What a session is told of work that ended in the background.
pub(crate) struct Told {
    /// The session that is told.
    pub(crate) to: SessionId,
    /// The prompt that tells it.
    pub(crate) report: MessageId,
    /// How the work was handed over.
    pub(crate) handed: HandedOver,
    /// The sub-session, and its title.
    pub(crate) task: SessionId,
    pub(crate) title: String,
    /// How it ended; `None` when it is gone.
    pub(crate) outcome: Option<TurnOutcome>,
    /// What it reports.
    pub(crate) text: String,
}

/// The most of a report that a session is told, in bytes.
const MOST_TOLD: usize = 50_000;

impl Told {
    /// The prompt. One that was aborted begins no turn: whoever aborted it wants rest.
    fn prompt(self) -> Prompt {
        let Self { report, mut handed, task, title, outcome, mut text, .. } = self;
        let how = match outcome {
            Some(TurnOutcome::Completed) => "is done",
            Some(TurnOutcome::MaxSteps) => "reached its limit of steps before it was done",
            Some(TurnOutcome::Failed) => "failed",
            Some(TurnOutcome::Aborted) => "was aborted before it was done",
            None => "is gone: its session was deleted",
        };
        if text.len() > MOST_TOLD {
            let end = (0..=MOST_TOLD).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
            text.truncate(end);
            text.push_str("\n(cut here: ask for the rest with its task_id)");
        }
        let separator = if text.is_empty() { "" } else { "\n\n" };
        let text = format!(
            "The task \"{title}\" that you began in the background {how} (task_id: {task}). What follows is its report, not a message of the user.{separator}{text}"
        );
        // This session is bound by what those above it may do, not by what it may do itself.
        handed.mandates.pop();
        let (agent, model) = (handed.agent.clone(), handed.model.clone());
        let attribution = handed.attribution.clone();
        let handed = (!handed.mandates.is_empty())
            .then(|| Box::new(HandedOver { from: task, report: None, ..handed }));
        Prompt {
            message: Some(report),
            text,
            agent: Some(agent),
            model: Some(model),
            when_busy: WhenBusy::Steer,
            plain: true,
            note: matches!(outcome, Some(TurnOutcome::Aborted) | None),
            handed,
            attribution,
            ..Prompt::default()
        }
    }

    /// Tells it. What fails is found when the session is woken the next time.
    pub(crate) async fn tell(self, engine: &Engine) {
        let (to, task) = (self.to, self.task);
        match engine.handle(to).prompt(self.prompt()).await {
            // It was told before, perhaps in other words.
            Ok(_) | Err(CommandError::Repeated(_) | CommandError::NotFound(_)) => {}
            Err(error) => {
                tracing::warn!(session = %to, %task, %error, "the end of a task could not be told yet");
            }
        }
    }
}

/// Looks after work in the background whose end was not told: tells it if it is over, and wakes it if it is not. `to` is the
/// session that began it.
pub(crate) async fn look_after(
    engine: &Engine,
    to: SessionId,
    delegate: Delegate,
    model: ModelRef,
    agent: String,
) {
    let (Some(report_by), task) = (delegate.report, delegate.session) else { return };
    let gone = || Told {
        to,
        report: report_by,
        handed: HandedOver {
            from: to,
            agent: agent.clone(),
            model: model.clone(),
            mandates: Vec::new(),
            report: None,
            attribution: None,
        },
        task,
        title: "in the background".to_owned(),
        outcome: None,
        text: String::new(),
    };
    let entries = match engine.read(task).await {
        Ok((entries, _)) => entries,
        Err(CommandError::NotFound(_)) => return gone().tell(engine).await,
        // Somebody asks again one day.
        Err(_) => return,
    };
    let handed = entries.iter().find_map(|entry| match &entry.record {
        Record::PromptAdmitted(prompt) if prompt.message == delegate.prompt => prompt.handed.clone(),
        _ => None,
    });
    let ended = entries.iter().find_map(|entry| match &entry.record {
        Record::TurnEnded(ended) if ended.turn == delegate.prompt => Some(ended.clone()),
        _ => None,
    });
    match (handed, ended) {
        (Some(handed), Some(ended)) => {
            let (session, _) = fold(&entries);
            let messages = session.as_ref().map_or(&[][..], |session| &session.messages);
            let title = session.as_ref().map_or_else(String::new, |session| session.summary.title.clone());
            let text = report(&ended, last_text(messages, ended.turn));
            let outcome = Some(ended.outcome);
            Told { to, report: report_by, handed: *handed, task, title, outcome, text }.tell(engine).await;
        }
        // It tells by itself, once it goes on.
        (Some(_), None) => drop(engine.handle(task).place().await),
        // It was never begun: the call that would have done it has its result.
        (None, _) => {}
    }
}
