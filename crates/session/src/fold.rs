//! The fold of a log: what a session is after its records.

use std::collections::{HashSet, VecDeque};

use playhouse_protocol::error::ErrorInfo;
use playhouse_protocol::id::{AttemptId, ConsentId, MessageId, PartId, QuestionId};
use playhouse_protocol::message::{
    AssistantMessage, CallPart, CallState, FinishReason, Message, Part, UserMessage,
};
use playhouse_protocol::question::{Question, QuestionAnswer, QuestionAsked, Todo};
use playhouse_protocol::record::{
    AttemptEnded, AttemptOutcome, AttemptStarted, CallIntended, Effect, PromptAdmitted, Recovery,
    StepFinished, StepPart,
};
use playhouse_protocol::summary::SessionState;
use playhouse_protocol::usage::{PriceList, Tokens, Totals};
use playhouse_protocol::{Cost, Entry, ModelRef, Record, Seq, SessionSummary, Timestamp};
use thiserror::Error;

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

/// The state of a session: a function of its log.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// Facts and totals.
    pub summary: SessionSummary,
    /// The conversation, in the order in which a model reads it. Prompts that wait are not in it yet.
    pub messages: Vec<Message>,
    /// Prompts that wait for a turn of their own, or for a step that reads them.
    pub queue: VecDeque<QueuedPrompt>,
    /// The turn that runs.
    pub turn: Option<Turn>,
    /// Every prompt that was admitted.
    prompts: HashSet<MessageId>,
    /// Bytes of text in `messages`, from which the size of a request is estimated.
    pub conversation_bytes: u64,
    /// The session's list of things to do.
    pub todos: Vec<Todo>,
}

/// A prompt that waits.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedPrompt {
    /// The prompt.
    pub prompt: PromptAdmitted,
    /// When it was admitted.
    pub at: Timestamp,
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
    /// What its attempts used.
    pub totals: Totals,
    /// The step under way, or the last one.
    pub step: Option<Step>,
}

impl Turn {
    /// Steps begun so far.
    pub fn steps(&self) -> u32 {
        self.step.as_ref().map_or(0, |step| step.number)
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
    /// Prices when it started.
    pub prices: PriceList,
}

/// A call of the step under way.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenCall {
    /// The call.
    pub id: PartId,
    /// Where it stands.
    pub phase: CallPhase,
    /// Whether a person agreed to it.
    pub consented: bool,
    /// What it asked the people behind the session.
    pub question: Option<OpenQuestion>,
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
        let summary =
            SessionSummary::begin(first).ok_or_else(|| misfit("a log begins with session.created"))?;
        Ok(Self {
            summary,
            messages: Vec::new(),
            queue: VecDeque::new(),
            turn: None,
            prompts: HashSet::new(),
            conversation_bytes: 0,
            todos: Vec::new(),
        })
    }

    /// Whether nothing runs and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.turn.is_none() && self.queue.is_empty()
    }

    /// Whether it was removed.
    pub fn is_deleted(&self) -> bool {
        self.summary.state == SessionState::Deleted
    }

    /// Whether a prompt with this id was admitted.
    pub fn knows_prompt(&self, id: MessageId) -> bool {
        self.prompts.contains(&id)
    }

    /// The conversation, and behind it the prompts that wait.
    pub fn all_messages(&self) -> Vec<Message> {
        let waiting = self.queue.iter().map(|queued| Message::User(user_message(queued)));
        self.messages.iter().cloned().chain(waiting).collect()
    }

    /// The requests with questions that are still open, in the order of their calls.
    pub fn open_questions(&self) -> Vec<QuestionAsked> {
        let step = self.turn.as_ref().and_then(|turn| turn.step.as_ref());
        let Some(StepPhase::Finished { calls, .. }) = step.map(|step| &step.phase) else { return Vec::new() };
        let open = calls.iter().filter_map(|call| {
            let open = call.question.as_ref().filter(|open| open.answer.is_none())?;
            Some(QuestionAsked { question: open.id, call: call.id, questions: open.questions.clone() })
        });
        open.collect()
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

    /// Adds the next entry of the log.
    pub fn apply(&mut self, entry: &Entry) -> Result<(), FoldError> {
        self.fold(entry).map_err(|reason| FoldError { seq: entry.seq, kind: entry.record.kind(), reason })?;
        self.summary.apply(entry);
        Ok(())
    }

    fn fold(&mut self, entry: &Entry) -> Result<(), String> {
        if entry.seq != self.summary.head.next() {
            return Err(format!("it should be record {}", self.summary.head.next()));
        }
        if self.is_deleted() {
            return Err("the session was deleted before".into());
        }
        match &entry.record {
            Record::SessionCreated(_) => Err("the session was created before".into()),
            Record::SessionChanged(_) => Ok(()),
            Record::PromptAdmitted(prompt) => self.prompt_admitted(prompt, entry.at),
            Record::TurnStarted { turn } => self.turn_started(*turn),
            Record::AttemptStarted(started) => self.attempt_started(started, entry.at),
            Record::AttemptEnded(ended) => self.attempt_ended(ended),
            Record::CallProposed(proposed) => {
                let message = self.step_message(proposed.step)?;
                message.parts.push(Part::Call(CallPart {
                    id: proposed.call,
                    call_id: proposed.call_id.clone(),
                    tool: proposed.tool.clone(),
                    input: proposed.input.clone(),
                    state: CallState::Pending,
                }));
                Ok(())
            }
            Record::StepFinished(finished) => self.step_finished(finished, entry.at),
            Record::ConsentAsked(asked) => {
                self.open_call(asked.call)?.phase = CallPhase::Asking(asked.consent);
                self.call_part(asked.call)?.state = CallState::Asking;
                Ok(())
            }
            Record::ConsentSettled { consent, answer } => {
                let call = self.asking_call(*consent).ok_or("no call waits for it")?;
                call.phase = CallPhase::Proposed;
                call.consented = matches!(answer, playhouse_protocol::record::ConsentAnswer::Once);
                let id = call.id;
                self.call_part(id)?.state = CallState::Pending;
                Ok(())
            }
            Record::QuestionAsked(asked) => {
                let call = self.open_call(asked.call)?;
                if !matches!(call.phase, CallPhase::Intended { .. }) {
                    return Err(format!("call {} does not run", asked.call));
                }
                if let Some(OpenQuestion { id, answer: None, .. }) = &call.question {
                    return Err(format!("call {} waits for request {id} already", asked.call));
                }
                let questions = asked.questions.clone();
                call.question = Some(OpenQuestion { id: asked.question, questions, answer: None });
                Ok(())
            }
            Record::QuestionSettled { question, answer } => {
                let open = self.open_question_mut(*question).ok_or("no call waits for it")?;
                open.answer = Some(answer.clone());
                Ok(())
            }
            Record::TodosChanged { todos } => {
                self.todos.clone_from(todos);
                Ok(())
            }
            Record::CallIntended(intended) => self.call_intended(intended, entry.at),
            Record::CallSettled { call, result } => {
                let open = self.open_call(*call)?;
                if open.phase == CallPhase::Settled {
                    return Err(format!("call {call} has its result already"));
                }
                open.phase = CallPhase::Settled;
                self.conversation_bytes += result.output.len() as u64;
                self.conversation_bytes += result.attachments.len() as u64 * FILE_BYTES;
                self.call_part(*call)?.state = CallState::Settled(result.clone());
                Ok(())
            }
            Record::TurnEnded(ended) => self.turn_ended(ended.turn),
            Record::Deleted {} => match &self.turn {
                Some(turn) => Err(format!("turn {} still runs", turn.id)),
                None => Ok(()),
            },
        }
    }

    fn prompt_admitted(&mut self, prompt: &PromptAdmitted, at: Timestamp) -> Result<(), String> {
        if self.knows_prompt(prompt.message) {
            return Err(format!("prompt {} was admitted before", prompt.message));
        }
        self.prompts.insert(prompt.message);
        self.queue.push_back(QueuedPrompt { prompt: prompt.clone(), at });
        Ok(())
    }

    fn turn_started(&mut self, id: MessageId) -> Result<(), String> {
        if let Some(turn) = &self.turn {
            return Err(format!("turn {} still runs", turn.id));
        }
        let queued = self.take_queued(id)?;
        let prompt = &queued.prompt;
        self.turn = Some(Turn {
            id,
            agent: prompt.agent.clone(),
            model: prompt.model.clone(),
            step_limit: prompt.step_limit,
            totals: Totals::default(),
            step: None,
        });
        self.push_user(&queued);
        Ok(())
    }

    fn take_queued(&mut self, id: MessageId) -> Result<QueuedPrompt, String> {
        let place = self.queue.iter().position(|queued| queued.prompt.message == id);
        place.and_then(|place| self.queue.remove(place)).ok_or(format!("prompt {id} does not wait"))
    }

    fn push_user(&mut self, queued: &QueuedPrompt) {
        let message = user_message(queued);
        self.conversation_bytes += message.parts.iter().map(part_bytes).sum::<u64>();
        self.messages.push(Message::User(message));
    }

    fn attempt_started(&mut self, started: &AttemptStarted, at: Timestamp) -> Result<(), String> {
        for steered in &started.steered {
            let queued = self.take_queued(*steered)?;
            self.push_user(&queued);
        }
        let turn = self.turn.as_mut().ok_or("no turn runs")?;
        if turn.id != started.turn {
            return Err(format!("turn {} runs", turn.id));
        }
        let phase = StepPhase::Attempting(OpenAttempt {
            id: started.attempt,
            estimated_input: started.estimated_input,
            prices: started.price_list(),
        });
        match &mut turn.step {
            Some(step) if step.id == started.step => {
                if matches!(step.phase, StepPhase::Finished { .. }) {
                    return Err(format!("step {} is finished", step.id));
                }
                step.attempts = started.attempt_number;
                step.phase = phase;
                // Proposals of an answer whose end never reached the log are void.
                self.step_message(started.step)?.parts.clear();
            }
            _ => {
                if let Some(Step { phase: StepPhase::Attempting(_), id, .. }) = &turn.step {
                    return Err(format!("step {id} is under way"));
                }
                turn.step = Some(Step {
                    id: started.step,
                    number: started.step_number,
                    last: started.last,
                    attempts: started.attempt_number,
                    failures: 0,
                    totals: Totals::default(),
                    phase,
                });
                self.messages.push(Message::Assistant(AssistantMessage {
                    id: started.step,
                    parent: started.turn,
                    created: at,
                    completed: None,
                    agent: started.agent.clone(),
                    model: started.model.clone(),
                    tokens: Tokens::default(),
                    cost: Some(Cost::ZERO),
                    finish: None,
                    error: None,
                    parts: Vec::new(),
                }));
            }
        }
        Ok(())
    }

    fn attempt_ended(&mut self, ended: &AttemptEnded) -> Result<(), String> {
        let turn = self.turn.as_mut().ok_or("no turn runs")?;
        let step = turn.step.as_mut().ok_or("no step is under way")?;
        match &step.phase {
            StepPhase::Attempting(open) if open.id == ended.attempt => {}
            _ => return Err(format!("attempt {} is not under way", ended.attempt)),
        }
        step.phase = StepPhase::Unanswered;
        step.failures += u32::from(matches!(ended.outcome, AttemptOutcome::Failed { .. }));
        let Some(usage) = &ended.usage else { return Ok(()) };
        step.totals.add_attempt(usage, ended.cost);
        turn.totals.add_attempt(usage, ended.cost);
        let (id, totals) = (step.id, step.totals);
        let message = self.step_message(id)?;
        message.tokens = totals.tokens;
        message.cost = totals.known_cost();
        Ok(())
    }

    fn step_finished(&mut self, finished: &StepFinished, at: Timestamp) -> Result<(), String> {
        let step = self.turn.as_mut().and_then(|turn| turn.step.as_mut()).ok_or("no step is under way")?;
        if step.id != finished.step || step.phase != StepPhase::Unanswered {
            return Err(format!("step {} does not wait for it", step.id));
        }
        let message = self.step_message(finished.step)?;
        let mut proposed = std::mem::take(&mut message.parts);
        let mut calls = Vec::new();
        for part in &finished.parts {
            message.parts.push(match part {
                StepPart::Text { id, text } => Part::Text { id: *id, text: text.clone() },
                StepPart::Reasoning { id, text, opaque } => {
                    Part::Reasoning { id: *id, text: text.clone(), opaque: opaque.clone() }
                }
                StepPart::Call { id } => {
                    let place = proposed.iter().position(|part| part.id() == *id);
                    let place = place.ok_or(format!("call {id} was never proposed"))?;
                    calls.push(OpenCall {
                        id: *id,
                        phase: CallPhase::Proposed,
                        consented: false,
                        question: None,
                    });
                    proposed.swap_remove(place)
                }
            });
        }
        message.completed = Some(at);
        message.finish = Some(finished.finish);
        message.error.clone_from(&finished.error);
        let bytes: u64 = message.parts.iter().map(part_bytes).sum();
        self.conversation_bytes += bytes;
        if let Some(step) = self.turn.as_mut().and_then(|turn| turn.step.as_mut()) {
            step.phase =
                StepPhase::Finished { finish: finished.finish, error: finished.error.clone(), calls };
        }
        Ok(())
    }

    fn call_intended(&mut self, intended: &CallIntended, at: Timestamp) -> Result<(), String> {
        let call = self.open_call(intended.call)?;
        match call.phase {
            CallPhase::Proposed | CallPhase::Intended { .. } => {}
            CallPhase::Asking(consent) => return Err(format!("the call waits for consent {consent}")),
            CallPhase::Settled => return Err("the call has its result already".into()),
        }
        call.phase = CallPhase::Intended { effect: intended.effect, recovery: intended.recovery };
        self.call_part(intended.call)?.state = CallState::Running { started: at };
        Ok(())
    }

    fn turn_ended(&mut self, id: MessageId) -> Result<(), String> {
        match &self.turn {
            Some(turn) if turn.id == id => {
                match turn.step.as_ref().map(|step| &step.phase) {
                    Some(StepPhase::Attempting(open)) => {
                        return Err(format!("attempt {} is under way", open.id));
                    }
                    Some(StepPhase::Finished { calls, .. }) => {
                        if let Some(call) = calls.iter().find(|call| call.phase != CallPhase::Settled) {
                            return Err(format!("call {} has no result", call.id));
                        }
                    }
                    Some(StepPhase::Unanswered) | None => {}
                }
                self.turn = None;
                Ok(())
            }
            Some(turn) => Err(format!("turn {} still runs", turn.id)),
            None => {
                let queued = self.take_queued(id)?;
                self.messages.push(Message::User(UserMessage { withdrawn: true, ..user_message(&queued) }));
                Ok(())
            }
        }
    }

    fn step_message(&mut self, id: MessageId) -> Result<&mut AssistantMessage, String> {
        match self.messages.last_mut() {
            Some(Message::Assistant(message)) if message.id == id => Ok(message),
            _ => Err(format!("step {id} is not the last message")),
        }
    }

    fn call_part(&mut self, id: PartId) -> Result<&mut CallPart, String> {
        let Some(Message::Assistant(message)) = self.messages.last_mut() else {
            return Err("the last message is no answer".into());
        };
        let part = message.parts.iter_mut().find_map(|part| match part {
            Part::Call(call) if call.id == id => Some(call),
            _ => None,
        });
        part.ok_or(format!("there is no call {id} in the last step"))
    }

    fn open_call(&mut self, id: PartId) -> Result<&mut OpenCall, String> {
        let calls = self.open_calls().ok_or("no step with calls is under way")?;
        calls.iter_mut().find(|call| call.id == id).ok_or(format!("there is no open call {id}"))
    }

    fn asking_call(&mut self, consent: ConsentId) -> Option<&mut OpenCall> {
        self.open_calls()?.iter_mut().find(|call| call.phase == CallPhase::Asking(consent))
    }

    fn open_question_mut(&mut self, id: QuestionId) -> Option<&mut OpenQuestion> {
        let mut questions = self.open_calls()?.iter_mut().filter_map(|call| call.question.as_mut());
        questions.find(|question| question.id == id && question.answer.is_none())
    }

    fn open_calls(&mut self) -> Option<&mut Vec<OpenCall>> {
        match &mut self.turn.as_mut()?.step.as_mut()?.phase {
            StepPhase::Finished { calls, .. } => Some(calls),
            StepPhase::Attempting(_) | StepPhase::Unanswered => None,
        }
    }
}

fn user_message(queued: &QueuedPrompt) -> UserMessage {
    UserMessage {
        id: queued.prompt.message,
        created: queued.at,
        agent: queued.prompt.agent.clone(),
        model: queued.prompt.model.clone(),
        parts: queued.prompt.parts.clone(),
        withdrawn: false,
    }
}

/// What a file counts as: about what an image costs.
const FILE_BYTES: u64 = 6_000;

/// Bytes that a part adds to a request, roughly.
fn part_bytes(part: &Part) -> u64 {
    let bytes = match part {
        Part::Text { text, .. } | Part::Reasoning { text, .. } => text.len(),
        Part::File { .. } => return FILE_BYTES,
        Part::Call(call) => match &call.input {
            playhouse_protocol::message::CallInput::Object(object) => {
                call.tool.len()
                    + object.iter().map(|(key, value)| key.len() + value_bytes(value)).sum::<usize>()
            }
            playhouse_protocol::message::CallInput::Malformed(text) => text.len(),
        },
    };
    bytes as u64
}

fn value_bytes(value: &serde_json::Value) -> usize {
    use serde_json::Value;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 5,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(value_bytes).sum::<usize>() + 2,
        Value::Object(object) => {
            object.iter().map(|(key, value)| key.len() + 3 + value_bytes(value)).sum::<usize>() + 2
        }
    }
}
