//! The handle of a session: the same commands, replies and events that a socket carries.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use playhouse_protocol::command::{Finished, Snapshot};
use playhouse_protocol::{
    Accepted, CallAnswer, Command, CommandError, ConsentAnswer, ConsentId, EventBody, Message, MessageId,
    ModelRef, PartId, Prompt, QuestionId, Record, Reply, RevertReport, RevertRequest, Seq, SessionId,
    ShellCommand, Timestamp, ToolCommand, UnrevertRequest,
};
use playhouse_tools::MCP_PREFIX;
use ractor::ActorRef;
use ractor::rpc::CallResult;

use crate::api::subscription::Subscription;
use crate::base::Ids;
use crate::base::gate::Caller;
use crate::context::EngineContext;
use crate::events::ring::Ring;
use crate::mailbox::{FindPort, Found, Live, SessionMessage, SupervisorMessage, appends, ask};
use crate::measure::Count;

/// How long a session may take to answer.
const REPLY_WAIT: Duration = Duration::from_secs(30);
/// How often a command is sent again when the session's actor went away before it answered.
const TRIES: u32 = 7;
/// How long it waits before that: twice this the first time, and twice as long each time.
const PAUSE: Duration = Duration::from_millis(2);

/// A session of an engine. Cheap to clone; the session may leave memory and come back behind it.
#[derive(Clone)]
pub struct SessionHandle {
    id: SessionId,
    pub(crate) shared: Arc<EngineContext>,
    supervisor: ActorRef<SupervisorMessage>,
    /// The session's actor, as it was last found.
    live: Arc<Mutex<Option<Live>>>,
}

impl std::fmt::Debug for SessionHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionHandle").field("id", &self.id).finish_non_exhaustive()
    }
}

impl SessionHandle {
    pub(crate) fn new(
        id: SessionId,
        shared: Arc<EngineContext>,
        supervisor: ActorRef<SupervisorMessage>,
    ) -> Self {
        Self { id, shared, supervisor, live: Arc::default() }
    }

    /// The session.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// The session's actor, which stays in memory as long as the caller is in. It is woken if it sleeps.
    async fn find(&self) -> Result<(Live, Caller), CommandError> {
        let known = self.live.lock().clone();
        if let Some(live) = known
            && let Some(caller) = live.gate.enter()
        {
            return Ok((live, caller));
        }
        let Found { live, caller, .. } = self.ask_for(SupervisorMessage::Find).await?;
        Ok((live, caller))
    }

    /// Wakes the session, and gives back its events.
    async fn ring(&self) -> Result<Arc<Ring>, CommandError> {
        // Not those that were found before: it may have left since, and come back with others.
        self.ask_for(SupervisorMessage::Find).await.map(|found| found.ring)
    }

    async fn ask_for(
        &self,
        message: impl FnOnce(SessionId, FindPort) -> SupervisorMessage,
    ) -> Result<Found, CommandError> {
        let id = self.id;
        self.shared.measures.census.enter(Count::Supervisor);
        let found = ask(&self.supervisor, |port| message(id, port)).await??;
        *self.live.lock() = Some(found.live.clone());
        Ok(found)
    }

    /// Wakes the session, if it sleeps.
    pub(crate) async fn wake(&self) -> Result<(), CommandError> {
        self.find().await.map(|_| ())
    }

    /// Wakes the session to go on with what is unfinished, also if it is parked.
    pub(crate) async fn resume(&self) -> Result<(), CommandError> {
        self.ask_for(SupervisorMessage::Resume).await.map(|_| ())
    }

    /// Wakes the session, and has it look for the place where it works: as it is told there, an unfinished turn of it goes on.
    ///
    /// # Errors
    /// Why nothing can be done there.
    pub(crate) async fn place(&self) -> Result<(), CommandError> {
        self.send(false, SessionMessage::Place).await.map(|_| ())
    }

    fn lose(&self) {
        *self.live.lock() = None;
    }

    /// Sends a command. A prompt without an id gets one here, so that it can be sent again without running twice.
    ///
    /// # Errors
    /// Why it was not carried out. After [`CommandError::NotAccepted`] the same command may be sent again.
    pub async fn command(&self, mut command: Command) -> Result<Reply, CommandError> {
        if let Command::Template(template) = command {
            return Box::pin(self.template(*template)).await.map(Reply::Accepted);
        }
        let message = match &mut command {
            Command::Prompt(prompt) => Some(&mut prompt.message),
            Command::Shell(shell) => Some(&mut shell.message),
            Command::Call(call) => Some(&mut call.message),
            _ => None,
        };
        if let Some(message) = message {
            // One that sorts before all that the session makes for it, its answers among them.
            message.get_or_insert_with(|| Ids::after(Timestamp::default()).next());
        }
        self.send(appends(&command), |port| SessionMessage::Command(Box::new(command.clone()), port)).await
    }

    pub(crate) async fn delete(&self) -> Result<(), CommandError> {
        self.send(true, SessionMessage::Delete).await.map(|_| ())
    }

    /// Asks the session. What `appends` is refused at once while nothing can be written: the session would only end with it.
    async fn send(
        &self,
        appends: bool,
        message: impl Fn(crate::mailbox::ReplyPort) -> SessionMessage,
    ) -> Result<Reply, CommandError> {
        for tried in 0..TRIES {
            if tried > 0 {
                // One that is on its way out may be met until the supervisor has heard of its end.
                tokio::time::sleep(PAUSE * (1 << tried)).await;
            }
            if appends {
                self.shared.takes_writes()?;
            }
            let (live, _caller) = self.find().await?;
            match live.actor.call(&message, Some(REPLY_WAIT)).await {
                Ok(CallResult::Success(reply)) => return reply,
                Ok(CallResult::Timeout) => {
                    let text = format!("session {} did not answer within {REPLY_WAIT:?}", self.id);
                    return Err(CommandError::NotAccepted(text));
                }
                // The actor is gone, or went away before it answered: it was not accepted.
                Ok(CallResult::SenderError) | Err(_) => self.lose(),
            }
        }
        Err(CommandError::NotAccepted(format!("session {} goes away again and again", self.id)))
    }

    /// Admits a prompt. On return it is durable.
    ///
    /// # Errors
    /// Why it was not admitted.
    pub async fn prompt(&self, prompt: Prompt) -> Result<Accepted, CommandError> {
        match self.command(Command::Prompt(prompt)).await? {
            Reply::Accepted(accepted) => {
                // In the span of the request that brought it: so a turn is found from a request, and the other way round.
                tracing::info!(session = %self.id, turn = %accepted.turn, repeated = accepted.repeated, "a prompt was admitted");
                Ok(accepted)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Runs a command by hand, as whoever types it. On return it is durable.
    ///
    /// # Errors
    /// The session is busy, or why else it was not admitted.
    pub async fn shell(&self, shell: ShellCommand) -> Result<Accepted, CommandError> {
        match self.command(Command::Shell(shell)).await? {
            Reply::Accepted(accepted) => Ok(accepted),
            other => Err(unexpected(&other)),
        }
    }

    /// Calls one tool, in a turn without a model. On return it is durable.
    ///
    /// # Errors
    /// The session has no such tool, or why else it was not admitted.
    pub async fn call_tool(&self, call: ToolCommand) -> Result<Accepted, CommandError> {
        if call.tool.starts_with(MCP_PREFIX) {
            self.servers_ready().await?;
        }
        match self.command(Command::Call(call)).await? {
            Reply::Accepted(accepted) => Ok(accepted),
            other => Err(unexpected(&other)),
        }
    }

    /// Ends the running turn and the queued ones, and says how many. On return nothing of them runs any more.
    ///
    /// # Errors
    /// Why that could not be done.
    pub async fn abort(&self) -> Result<u32, CommandError> {
        match self.command(Command::Abort).await? {
            Reply::Aborted { turns } => Ok(turns),
            other => Err(unexpected(&other)),
        }
    }

    /// Ends one turn only, whether it runs or waits, and says whether there was such a one. On return nothing of it runs any
    /// more.
    ///
    /// # Errors
    /// Why that could not be done.
    pub async fn abort_turn(&self, turn: MessageId) -> Result<bool, CommandError> {
        match self.command(Command::AbortTurn { turn }).await? {
            Reply::Aborted { turns } => Ok(turns > 0),
            other => Err(unexpected(&other)),
        }
    }

    /// Lets a summary stand for the conversation so far, where models are concerned; written by `model`, or by the one of the
    /// agent `compaction`. On return its request is durable, and events tell how it ends: `context.compacted`, or the failure of
    /// its attempt, which leaves the conversation as it was.
    ///
    /// # Errors
    /// The session is busy, or has nothing to summarize.
    pub async fn compact(&self, model: Option<ModelRef>) -> Result<(), CommandError> {
        match self.command(Command::Compact { model }).await? {
            Reply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Takes changes of files back, and says what came of it. On return that is durable. The messages stay until the next
    /// prompt.
    ///
    /// # Errors
    /// Something of the session runs, there is nothing to take back, or no such message or call.
    pub async fn revert(&self, request: RevertRequest) -> Result<RevertReport, CommandError> {
        self.reverted(Command::Revert(request)).await
    }

    /// Does again what was taken back since the last prompt.
    ///
    /// # Errors
    /// Something of the session runs, or nothing is taken back.
    pub async fn unrevert(&self, request: UnrevertRequest) -> Result<RevertReport, CommandError> {
        self.reverted(Command::Unrevert(request)).await
    }

    /// The prompt that a message answers; the message itself, if it is one, and if there is no such message.
    ///
    /// # Errors
    /// Why the session cannot be read.
    pub async fn prompt_of(&self, message: MessageId) -> Result<MessageId, CommandError> {
        let snapshot = self.snapshot().await?;
        let found = snapshot.messages.iter().find_map(|other| match other {
            Message::Assistant(answer) if answer.id == message => Some(answer.parent),
            _ => None,
        });
        Ok(found.unwrap_or(message))
    }

    async fn reverted(&self, command: Command) -> Result<RevertReport, CommandError> {
        match self.command(command).await? {
            Reply::Reverted(report) => Ok(*report),
            other => Err(unexpected(&other)),
        }
    }

    /// Answers a request for consent: once, always, or decline. On return it is durable, and with "always" also what was
    /// allowed.
    ///
    /// # Errors
    /// The request is settled already (with by what), or this cannot be allowed for always.
    pub async fn answer(&self, consent: ConsentId, answer: ConsentAnswer) -> Result<(), CommandError> {
        match self.command(Command::Answer { consent, answer }).await? {
            Reply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Answers a request with questions: one list for each question, in order, with the labels that were chosen or words
    /// of one's own; `None` says that nobody will answer. On return it is durable.
    ///
    /// # Errors
    /// The request is settled already, or the answers do not fit the questions.
    pub async fn answer_question(
        &self,
        question: QuestionId,
        answers: Option<Vec<Vec<String>>>,
    ) -> Result<(), CommandError> {
        match self.command(Command::AnswerQuestion { question, answers }).await? {
            Reply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Gives the result of a call that was offered to the platform. On return it is durable.
    ///
    /// # Errors
    /// The call is unknown, it takes no result from outside, or it already has a result.
    pub async fn answer_call(&self, call: PartId, answer: CallAnswer) -> Result<(), CommandError> {
        match self.command(Command::AnswerCall { call, answer }).await? {
            Reply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// The session as it stands.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub async fn snapshot(&self) -> Result<Snapshot, CommandError> {
        match self.command(Command::Snapshot).await? {
            Reply::Snapshot(snapshot) => Ok(*snapshot),
            other => Err(unexpected(&other)),
        }
    }

    /// The session's events: every durable one after `after`, then the parts that are open, then live ones. `None` leaves
    /// out the past. Where the log ends before `after`, a `resync` to its end comes first.
    ///
    /// # Errors
    /// Why the session cannot be read.
    pub async fn events(&self, after: Option<Seq>) -> Result<Subscription, CommandError> {
        let mut events = Subscription::new(Arc::clone(&self.shared), self.ring().await?, after);
        if let Some(after) = after.filter(|after| *after > events.place()) {
            // What is durable is told a moment later.
            let (log, session) = (Arc::clone(&self.shared.store.log), self.id);
            let summary = self.shared.pool.run(move || log.summary(session)).await?;
            if summary.is_none_or(|summary| after > summary.head) {
                events.begin_with_resync();
            }
        }
        Ok(events)
    }

    /// Admits a prompt and waits for the end of its turn.
    ///
    /// # Errors
    /// Why it was not admitted, or why its end was not seen. A note has no turn.
    pub async fn run(&self, prompt: Prompt) -> Result<Finished, CommandError> {
        if prompt.note {
            return Err(CommandError::Invalid("a note has no turn whose end could be waited for".into()));
        }
        let events = self.events(None).await?;
        let accepted = self.prompt(prompt).await?;
        self.end_of(accepted, events).await
    }

    /// Runs a command by hand and waits for its end.
    ///
    /// # Errors
    /// The session is busy, or why else it was not admitted, or why its end was not seen.
    pub async fn run_shell(&self, shell: ShellCommand) -> Result<Finished, CommandError> {
        let events = self.events(None).await?;
        let accepted = self.shell(shell).await?;
        self.end_of(accepted, events).await
    }

    /// Waits for the end of a turn. `events` are those since before it was accepted.
    pub(crate) async fn end_of(
        &self,
        accepted: Accepted,
        mut events: Subscription,
    ) -> Result<Finished, CommandError> {
        let Accepted { mut turn, repeated } = accepted;
        if repeated {
            // It was admitted before, so its turn may be over already.
            events = self.events(Some(Seq::START)).await?;
        }
        while let Some(event) = events.next().await? {
            let EventBody::Durable(record) = &event.event().body else { continue };
            match record.as_ref() {
                // A running turn took the prompt over: it ends with that one.
                Record::AttemptStarted(started) if started.steered.contains(&turn) => turn = started.turn,
                Record::TurnEnded(ended) if ended.turn == turn => {
                    return Ok(Finished { ended: ended.clone(), seq: event.event().id.seq });
                }
                _ => {}
            }
        }
        Err(CommandError::NotAccepted("the engine stopped before the turn ended".into()))
    }
}

pub(crate) fn unexpected(reply: &Reply) -> CommandError {
    CommandError::Invalid(format!("the session answered something else than was asked: {reply:?}"))
}
