//! The fold of a log: what a session is after its records.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use playhouse_protocol::changes::FileBefore;
use playhouse_protocol::consent::{ConsentAnswer, ConsentAsked, PermissionRule};
use playhouse_protocol::delegate::{Delegate, HandedOver};
use playhouse_protocol::error::ErrorInfo;
use playhouse_protocol::id::{AttemptId, ConsentId, MessageId, PartId, QuestionId, SessionId};
use playhouse_protocol::ledger::Purpose;
use playhouse_protocol::message::{
    Attachment, CallPart, CallResult, CallState, Changed, FinishReason, Message, Part, PromptKind,
    ToolSwitches, UserMessage, turns_off,
};
use playhouse_protocol::output::OutputState;
use playhouse_protocol::question::{Question, QuestionAnswer, QuestionAsked, Todo};
use playhouse_protocol::record::{Effect, PromptAdmitted, Recovery};
use playhouse_protocol::summary::SessionState;
use playhouse_protocol::usage::{PriceList, Totals};
use playhouse_protocol::{
    CallAnswer, Damage, Entry, ModelRef, Record, Seq, SessionSummary, Timestamp, WallsAllowed,
};
use thiserror::Error;

use crate::attribution::Attributions;
use crate::changes::Tally;
use crate::context::{Context, Shown};

mod asides;
mod changed;
mod pages;
mod records;
mod reverts;
mod size;

pub use reverts::OpenRevert;
pub(crate) use size::FILE_BYTES;

/// So many requests that are settled are remembered with how: whoever answers one late is told.
const REMEMBERED: usize = 256;
/// What a result says of the rules files that it shows, by their paths.
const RULES: &str = "rules";

/// A record that does not fit what came before it. The session cannot be trusted from there on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("record {seq} ({kind}) does not fit: {reason}")]
pub struct FoldError {
    /// Its place.
    pub seq: Seq,
    /// Its kind.
    pub kind: &'static str,
    /// What does not fit.
    pub reason: String,
}

impl From<FoldError> for Damage {
    fn from(FoldError { seq, kind, reason }: FoldError) -> Self {
        Self { seq, reason: format!("{kind} does not fit: {reason}") }
    }
}

/// The tools from outside that requests of an agent and a model begin with.
#[derive(Clone, Debug, PartialEq)]
struct ShownTools {
    agent: String,
    model: ModelRef,
    /// Where all that are shown stand in the log.
    seq: Seq,
    /// The names of those that are not native.
    outside: Vec<String>,
}

/// The state of a session: a function of its log.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// Facts and totals.
    pub summary: SessionSummary,
    /// The conversation, in the order in which a model reads it. Prompts that wait are not in it yet.
    pub messages: Vec<Message>,
    /// Prompts that wait for a turn of their own, or for a step that reads them.
    pub queue: VecDeque<QueuedPrompt>,
    /// Prompts that were withdrawn while they waited: they stand in the conversation once the running turn is over.
    pub withdrawn: Vec<QueuedPrompt>,
    /// The turn that runs.
    pub turn: Option<Turn>,
    /// Every prompt that was admitted.
    prompts: HashSet<MessageId>,
    /// Bytes of what models read of `messages`, from which the size of a request is estimated.
    pub conversation_bytes: u64,
    /// What models do not read of `messages`.
    pub(crate) context: Context,
    /// Attempts under way beside the steps of turns.
    pub asides: Vec<OpenAside>,
    /// Whom its turns said that their usage is attributed to.
    pub(crate) attributions: Attributions,
    /// What its system prompts end with.
    pub system: Option<String>,
    /// Where the system prompts stand that are settled, for each agent and model.
    systems: Vec<(String, ModelRef, Seq)>,
    /// Where the tools stand that are shown, for each agent and model.
    shown_tools: Vec<ShownTools>,
    /// The rules files that system prompts show.
    settled_rules: Vec<String>,
    /// What calls changed in files.
    pub(crate) tally: Tally,
    /// What was taken back, the last at the end, until the next prompt drops it.
    pub reverts: Vec<OpenRevert>,
    /// The session's list of things to do.
    pub todos: Vec<Todo>,
    /// The session's own rules.
    pub permissions: Vec<PermissionRule>,
    /// Whether nobody answers its requests for consent, whatever its prompts say.
    pub unattended: bool,
    /// What the walls around its programs let through; `None` for what the operator lets through.
    pub walls: Option<WallsAllowed>,
    /// The only tools that there are in it; `None` for all.
    pub tools: Option<Arc<[String]>>,
    /// Work that was handed over and that no call waits for: how it ended was not told yet.
    pub background: Vec<Delegate>,
    /// The newest requests for consent that are about no call, with how they ended.
    ahead: Vec<OpenConsent>,
    /// The requests that were settled last, the newest at the end.
    settled: VecDeque<SettledRequest>,
    /// The sessions whose records this one shares, as it is a fork; the nearest at the end.
    pub shares_with: Vec<SessionId>,
}

/// What a prompt says, without the ids of its parts, which are made each time it is sent, and without the files that the
/// engine read for it: they may have changed since.
fn says(parts: &[Part]) -> Vec<(Option<&str>, Option<&Attachment>)> {
    let said = parts.iter().filter_map(|part| match part {
        Part::Text { text, .. } => Some((Some(text.as_str()), None)),
        Part::File { file, .. } => (!file.mentioned).then_some((None, Some(file))),
        _ => Some((None, None)),
    });
    said.collect()
}

/// A request to the people behind a session that is over.
#[derive(Clone, Debug, PartialEq)]
enum SettledRequest {
    Consent(ConsentId, ConsentAnswer),
    Question(QuestionId, QuestionAnswer),
}

/// A prompt that waits.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedPrompt {
    /// The prompt.
    pub prompt: PromptAdmitted,
    /// When it was admitted.
    pub at: Timestamp,
}

impl QueuedPrompt {
    /// Whether a running turn takes it over, and goes on for it.
    pub(crate) fn steers(&self) -> bool {
        self.prompt.steer && self.prompt.kind.is_turn()
    }

    /// The message that it is.
    pub(crate) fn message(&self) -> UserMessage {
        self.prompt.to_message(self.at)
    }
}

/// A turn that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// Its prompt.
    pub id: MessageId,
    /// Who answers.
    pub agent: String,
    /// The model that answers.
    pub model: ModelRef,
    /// The most steps.
    pub step_limit: Option<u32>,
    /// Whether nobody answers requests for consent in it.
    pub unattended: bool,
    /// What it does: a note has no turn.
    pub kind: PromptKind,
    /// The tools that are turned off in it.
    pub tools: ToolSwitches,
    /// The answer that is wanted of it, and what came of that so far.
    pub output: Option<Box<OutputState>>,
    /// Where its prompt comes from, if another session sent it.
    pub handed: Option<Box<HandedOver>>,
    /// What its attempts used.
    pub totals: Totals,
    /// The prices of all its attempts: those of its first one.
    pub pricing: Option<Box<Pricing>>,
    /// Whether its calls changed files.
    pub changed: bool,
    /// Work that its calls handed over and that no call waits for.
    pub begun: Vec<Delegate>,
    /// The step under way, or the last one.
    pub step: Option<Step>,
}

/// What attempts cost, and which catalogue says so.
#[derive(Clone, Debug, PartialEq)]
pub struct Pricing {
    /// The prices.
    pub prices: PriceList,
    /// The version of the catalogue; `None` for what the operator wrote.
    pub catalogue: Option<String>,
}

impl Turn {
    /// Steps begun so far.
    pub fn steps(&self) -> u32 {
        self.step.as_ref().map_or(0, |step| step.number)
    }

    /// Whether it may take no step after the one of this number.
    pub(crate) fn is_over(&self, number: u32) -> bool {
        self.step_limit.is_some_and(|limit| number >= limit)
    }

    /// Whether its prompt, or one that it took over, turned this tool off.
    pub fn turns_off(&self, tool: &str) -> bool {
        turns_off(&self.tools, tool)
    }
}

/// A step of the running turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its assistant message.
    pub id: MessageId,
    /// Number within the turn, from 1.
    pub number: u32,
    /// Whether nothing may be called in it.
    pub last: bool,
    /// Attempts begun so far.
    pub attempts: u32,
    /// Attempts that failed. One that a crash cut off did not.
    pub failures: u32,
    /// Those of them whose answer could not be decoded.
    pub bad_answers: u32,
    /// Those of them whose answer was complete and held neither text nor a call.
    pub empty_answers: u32,
    /// Whether its last attempt was refused since it was too long, and no room was made since.
    pub overflowed: bool,
    /// What its attempts used.
    pub totals: Totals,
    /// Where it stands.
    pub phase: StepPhase,
}

/// Where a step stands.
#[derive(Clone, Debug, PartialEq)]
pub enum StepPhase {
    /// A request is under way.
    Attempting(OpenAttempt),
    /// The attempt is over, and what follows from it is not in the log.
    Unanswered,
    /// The answer is complete, or given up.
    Finished {
        /// Why it ended.
        finish: FinishReason,
        /// What went wrong.
        error: Option<ErrorInfo>,
        /// Its calls, in the model's order.
        calls: Vec<OpenCall>,
    },
}

/// An attempt under way.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenAttempt {
    /// The attempt.
    pub id: AttemptId,
    /// Estimated input, in tokens.
    pub estimated_input: u64,
    /// Bytes of the conversation in its request.
    pub conversation_bytes: u64,
}

/// An attempt beside the steps of turns: for a title, or for a summary.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenAside {
    /// The attempt.
    pub id: AttemptId,
    /// What it is for.
    pub purpose: Purpose,
    /// The turn that it is counted in.
    pub turn: MessageId,
    /// The model that is asked.
    pub model: ModelRef,
    /// Estimated input, in tokens.
    pub estimated_input: u64,
}

/// A call of the step under way.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenCall {
    /// The call.
    pub id: PartId,
    /// Where it stands.
    pub phase: CallPhase,
    /// The newest request for consent to it.
    pub consent: Option<Box<OpenConsent>>,
    /// What it asked the people behind the session.
    pub question: Option<OpenQuestion>,
    /// To whom it hands work over.
    pub delegate: Option<Delegate>,
    /// The files that it was about to change, as they were.
    pub before: Vec<FileBefore>,
    /// How it is offered to the platform.
    pub offer: Option<Box<Offer>>,
}

/// A call of the step under way that waits for its result from the platform.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// Deadline of the result.
    pub until: Timestamp,
    /// The result; `None` while it is awaited.
    pub answer: Option<CallAnswer>,
}

/// A request for consent to a call of the step under way.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenConsent {
    /// What was asked.
    pub asked: ConsentAsked,
    /// How it ended; `None` while it is open.
    pub answer: Option<ConsentAnswer>,
}

/// What a call of the step under way asked.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenQuestion {
    /// The request.
    pub id: QuestionId,
    /// The questions.
    pub questions: Vec<Question>,
    /// How it ended; `None` while it is open.
    pub answer: Option<QuestionAnswer>,
}

/// Where a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPhase {
    /// It has not started.
    Proposed,
    /// It waits for consent.
    Asking(ConsentId),
    /// It was about to run.
    Intended {
        /// What it may change.
        effect: Effect,
        /// What to do after a crash.
        recovery: Recovery,
    },
    /// It has its result.
    Settled,
}

/// The rules files that a system prompt shows: each stands in a block that begins with its name.
fn rules_in_prompt(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.strip_prefix("<rules file=\"")?.strip_suffix("\">"))
}

/// The rules files that a result shows.
pub fn rules_in(result: &CallResult) -> impl Iterator<Item = &str> {
    let files = result.metadata.get(RULES).and_then(|files| files.as_array());
    files.into_iter().flatten().filter_map(|file| file.as_str())
}

impl Session {
    /// The session of a log, from its first entry on.
    pub fn replay<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Result<Self, FoldError> {
        let mut entries = entries.into_iter();
        let Some(first) = entries.next() else {
            return Err(FoldError { seq: Seq(1), kind: "none", reason: "the log is empty".into() });
        };
        let mut session = Self::begin(first)?;
        for entry in entries {
            session.apply(entry)?;
        }
        Ok(session)
    }

    /// The session after its first entry.
    pub fn begin(first: &Entry) -> Result<Self, FoldError> {
        let misfit =
            |reason: &str| FoldError { seq: first.seq, kind: first.record.kind(), reason: reason.into() };
        if first.seq != Seq(1) {
            return Err(misfit("a log begins with record 1"));
        }
        let (Record::SessionCreated(created), Some(summary)) = (&first.record, SessionSummary::begin(first))
        else {
            return Err(misfit("a log begins with session.created"));
        };
        Ok(Self {
            summary,
            messages: Vec::new(),
            queue: VecDeque::new(),
            withdrawn: Vec::new(),
            turn: None,
            prompts: HashSet::new(),
            conversation_bytes: 0,
            context: Context::default(),
            asides: Vec::new(),
            attributions: Attributions::default(),
            system: created.system.clone(),
            systems: Vec::new(),
            shown_tools: Vec::new(),
            settled_rules: Vec::new(),
            tally: Tally::default(),
            reverts: Vec::new(),
            todos: Vec::new(),
            permissions: created.permissions.clone(),
            unattended: created.unattended,
            walls: created.walls.clone(),
            tools: created.tools.as_deref().map(Arc::from),
            background: Vec::new(),
            ahead: Vec::new(),
            settled: VecDeque::new(),
            shares_with: Vec::new(),
        })
    }

    /// Keeps no more memory for the conversation than it takes: to be called when nothing is added to it for a while.
    pub fn shrink(&mut self) {
        self.messages.shrink_to_fit();
    }

    /// Whether nothing runs and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.turn.is_none() && self.queue.is_empty()
    }

    /// Whether no request to a model is under way or waits to be made again: a fork may begin here without paying for one
    /// a second time.
    pub fn is_between_steps(&self) -> bool {
        let step = self.turn.as_ref().and_then(|turn| turn.step.as_ref());
        step.is_none_or(|step| matches!(step.phase, StepPhase::Finished { .. }))
    }

    /// The calls that may have changed the workspace when the engine stopped, and that are not run again.
    pub fn cut_off_calls(&self) -> impl Iterator<Item = &OpenCall> {
        self.calls().iter().filter(|call| {
            let phase = CallPhase::Intended { effect: Effect::Workspace, recovery: Recovery::Interrupt };
            call.phase == phase && call.offer.as_ref().is_none_or(|offer| offer.answer.is_none())
        })
    }

    /// What calls changed in files, all of them together.
    pub fn changed(&self) -> Changed {
        self.tally.total()
    }

    /// Whether it was removed.
    pub fn is_deleted(&self) -> bool {
        self.summary.state == SessionState::Deleted
    }

    /// Where the system prompt of this agent and model stands in the log; `None` before it is settled.
    pub fn system_at(&self, agent: &str, model: &ModelRef) -> Option<Seq> {
        let settled = self.systems.iter().find(|(of, with, _)| of == agent && with == model);
        settled.map(|(_, _, seq)| *seq)
    }

    /// Where the tools stand in the log that this agent and model are shown; `None` where that is not settled, or was before older
    /// messages were read differently.
    pub fn tools_at(&self, agent: &str, model: &ModelRef) -> Option<Seq> {
        self.shown_tools(agent, model).map(|shown| shown.seq)
    }

    /// The names of the tools from outside that requests of this agent and model begin with, and where that stands in the log: at
    /// [`Seq::START`] where there was none of them when the system prompt was settled. `None` where that is not settled, or was
    /// before older messages were read differently: then the next request decides.
    pub fn outside_tools(&self, agent: &str, model: &ModelRef) -> Option<(Seq, &[String])> {
        if let Some(shown) = self.shown_tools(agent, model) {
            return Some((shown.seq, &shown.outside));
        }
        let is_current = |seq: &Seq| *seq > self.context_revision();
        self.system_at(agent, model).filter(is_current).map(|_| (Seq::START, &[][..]))
    }

    fn shown_tools(&self, agent: &str, model: &ModelRef) -> Option<&ShownTools> {
        let is_it = |shown: &&ShownTools| shown.agent == agent && shown.model == *model;
        self.shown_tools.iter().find(is_it).filter(|shown| shown.seq > self.context_revision())
    }

    /// The rules files that system prompts show, and those of subdirectories that results of calls show, as far as models still
    /// read those results.
    pub fn shown_rules(&self) -> impl Iterator<Item = &str> {
        let read = self.messages.get(self.context.begins_at()..).unwrap_or_default();
        let answers = read.iter().filter_map(|message| match message {
            Message::Assistant(message) => Some(message),
            Message::User(_) => None,
        });
        let results = answers.flat_map(|message| &message.parts).filter_map(|part| match part {
            Part::Call(CallPart { id, state: CallState::Settled(result), .. }) => {
                (self.context.shown(*id) == Shown::Whole).then_some(result)
            }
            _ => None,
        });
        self.settled_rules.iter().map(String::as_str).chain(results.flat_map(rules_in))
    }

    /// Whether a prompt with this id was admitted.
    pub fn knows_prompt(&self, id: MessageId) -> bool {
        self.prompts.contains(&id)
    }

    /// Whether the prompt with this id says this and is of this kind. One of which nothing is left but the id may have.
    pub(crate) fn is_prompt(&self, id: MessageId, parts: &[Part], kind: &PromptKind) -> bool {
        let waiting = self.withdrawn.iter().chain(&self.queue);
        let waiting = waiting.map(|queued| &queued.prompt).find(|prompt| prompt.message == id);
        let known = match waiting {
            Some(prompt) => Some((&prompt.parts, &prompt.kind)),
            None => self.messages.iter().rev().find_map(|message| match message {
                Message::User(message) if message.id == id => Some((&message.parts, &message.kind)),
                _ => None,
            }),
        };
        known.is_none_or(|(known, of)| of == kind && says(known) == says(parts))
    }

    /// The conversation, and behind it the prompts that wait.
    pub fn all_messages(&self) -> Vec<Message> {
        let waiting = (0..self.waiting_ids().count()).map(|index| self.waiting_at(index));
        self.messages.iter().cloned().chain(waiting).collect()
    }

    /// What is not in the conversation yet: prompts that were withdrawn, and behind them those that wait.
    pub(crate) fn waiting_ids(&self) -> impl Iterator<Item = MessageId> {
        self.withdrawn.iter().chain(&self.queue).map(|queued| queued.prompt.message)
    }

    /// The message of one of these.
    fn waiting_at(&self, index: usize) -> Message {
        Message::User(match index.checked_sub(self.withdrawn.len()) {
            None => UserMessage { withdrawn: true, ..self.withdrawn[index].message() },
            Some(index) => self.queue[index].message(),
        })
    }

    /// The requests with questions that are still open, in the order of their calls.
    pub fn open_questions(&self) -> Vec<QuestionAsked> {
        let open = self.calls().iter().filter_map(|call| {
            let open = call.question.as_ref().filter(|open| open.answer.is_none())?;
            Some(QuestionAsked { question: open.id, call: call.id, questions: open.questions.clone() })
        });
        open.collect()
    }

    /// The requests for consent that are still open: those of calls in their order, then those that are about none.
    pub fn open_consents(&self) -> Vec<ConsentAsked> {
        let of_calls = self.calls().iter().filter_map(|call| call.consent.as_deref());
        let all = of_calls.chain(&self.ahead);
        all.filter(|consent| consent.answer.is_none()).map(|consent| consent.asked.clone()).collect()
    }

    /// The newest requests for consent that are about no call, open and settled ones.
    pub fn consents_ahead(&self) -> &[OpenConsent] {
        &self.ahead
    }

    /// How many requests of calls wait for people: for consent, and with questions.
    pub fn open_requests(&self) -> (usize, usize) {
        let calls = self.calls();
        let consents = calls.iter().filter_map(|call| call.consent.as_ref());
        let questions = calls.iter().filter_map(|call| call.question.as_ref());
        (
            consents.filter(|consent| consent.answer.is_none()).count(),
            questions.filter(|question| question.answer.is_none()).count(),
        )
    }

    /// Whether a call waits for its result from the platform.
    pub fn is_offering(&self) -> bool {
        let open = self.calls().iter().filter(|call| call.phase != CallPhase::Settled);
        open.filter_map(|call| call.offer.as_deref()).any(|offer| offer.answer.is_none())
    }

    /// How a request for consent was settled; `None` when it was not, or when 256 requests were settled since.
    pub fn settled_consent(&self, consent: ConsentId) -> Option<&ConsentAnswer> {
        self.settled.iter().rev().find_map(|settled| match settled {
            SettledRequest::Consent(id, answer) if *id == consent => Some(answer),
            _ => None,
        })
    }

    /// How a request with questions was settled; `None` when it was not, or when 256 requests were settled since.
    pub fn settled_question(&self, question: QuestionId) -> Option<&QuestionAnswer> {
        self.settled.iter().rev().find_map(|settled| match settled {
            SettledRequest::Question(id, answer) if *id == question => Some(answer),
            _ => None,
        })
    }

    /// To whom a call of the step under way hands work over.
    pub fn delegate(&self, call: PartId) -> Option<Delegate> {
        self.calls().iter().find(|open| open.id == call)?.delegate
    }

    /// The calls of the step under way, once its answer is complete.
    pub(crate) fn calls(&self) -> &[OpenCall] {
        match self.turn.as_ref().and_then(|turn| turn.step.as_ref()).map(|step| &step.phase) {
            Some(StepPhase::Finished { calls, .. }) => calls,
            _ => &[],
        }
    }

    /// The call part with this id, looked for in the newest messages first.
    pub fn call(&self, id: PartId) -> Option<&CallPart> {
        self.messages.iter().rev().find_map(|message| match message {
            Message::Assistant(message) => message.parts.iter().find_map(|part| match part {
                Part::Call(call) if call.id == id => Some(call),
                _ => None,
            }),
            Message::User(_) => None,
        })
    }

    /// Adds the next entry of a log that is read: the same as [`Session::apply`], but nothing is copied that it keeps.
    pub fn take(&mut self, entry: Entry) -> Result<(), FoldError> {
        let (seq, kind) = (entry.seq, entry.record.kind());
        match self.fold_large(entry) {
            Ok(None) => Ok(()),
            Ok(Some(entry)) => self.apply(&entry),
            Err(reason) => Err(FoldError { seq, kind, reason }),
        }
    }

    /// Adds the next entry of the log.
    pub fn apply(&mut self, entry: &Entry) -> Result<(), FoldError> {
        self.fold(entry).map_err(|reason| FoldError { seq: entry.seq, kind: entry.record.kind(), reason })?;
        self.summary.apply(entry);
        Ok(())
    }
}
