//! One session while it is live: the engine's events of it, in the wire's words.
//!
//! It folds the session's records as the engine does, and forgets the messages that cannot change any more. Beside the
//! fold it knows what is provisional: the parts that stream, and what running calls have written.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use playhouse_actors::path_of;
use playhouse_protocol::changes::ChangeKind;
use playhouse_protocol::event::{ChangeAuthor, FilesChanged, OpenPartKind, Provisional};
use playhouse_protocol::message::{AssistantMessage, Message, UserMessage};
use playhouse_protocol::{Event, EventBody, MessageId, PartId, Seq, SessionId, SessionSummary, Timestamp};
use playhouse_session::{Changes, Session};

mod records;

use super::output::Tail;
use super::{Scene, error, message, request};
use crate::wire::place::Place;
use crate::wire::shapes::{
    self, MessageWithParts, PartTime, PermissionRequest, QuestionRequest, Status, ToolOf, ToolState,
    WireEvent,
};

/// Messages that are kept: the one under way, and the one before it.
const KEPT: usize = 2;
/// The most bytes of patches that are kept of what a session changed.
const SESSION_PATCHES: usize = 128 * 1024;

/// How long a command has between a shell block and what follows, in milliseconds. Afterwards it goes on with nothing: it was refused.
const LONGEST_BETWEEN: u64 = 2_000;

/// A session while it is live.
#[derive(Debug)]
pub(crate) struct Live {
    session: Session,
    place: Arc<Place>,
    version: Arc<str>,
    /// The session on which clients show its requests.
    shown_on: SessionId,
    status: Status,
    /// The parts that stream.
    open: Vec<Open>,
    /// When consent to calls of the step under way was asked for.
    asked: HashMap<PartId, Timestamp>,
    /// What the running calls have written.
    outputs: HashMap<PartId, Tail>,
    /// What its calls changed in files.
    changes: Changes,
    /// The turns whose prompts may still be told anew, the newest at the end.
    turns: VecDeque<ToldTurn>,
    /// When a shell block of a command ended, behind which its prompt is to come: until then it is as busy as with both.
    between: Option<Timestamp>,
}

/// A turn, as far as its prompt tells of it.
#[derive(Debug)]
struct ToldTurn {
    /// Without its parts.
    prompt: UserMessage,
    changes: Changes,
}

/// A part that streams.
#[derive(Debug)]
struct Open {
    step: MessageId,
    part: PartId,
    kind: OpenPartKind,
    text: String,
    started: Timestamp,
}

/// An event does not fit what is known of its session: the log has to be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost;

impl message::Progress for Live {
    fn asked(&self, call: PartId) -> Option<Timestamp> {
        self.asked.get(&call).copied()
    }

    fn output(&self, call: PartId) -> Option<&str> {
        self.outputs.get(&call).map(Tail::text)
    }
}

impl Live {
    /// A session as it stands. Clients show its requests on `shown_on`.
    pub(crate) fn new(
        mut session: Session,
        place: Arc<Place>,
        version: Arc<str>,
        shown_on: SessionId,
    ) -> Self {
        let status = if session.turn.is_some() { Status::Busy } else { Status::Idle };
        let since = session.summary.updated;
        let asked = session.open_consents().iter().filter_map(|asked| Some((asked.call?, since))).collect();
        let changes = Changes::of(&session, None, SESSION_PATCHES);
        let prompts = session.messages.iter().rev().filter_map(|message| match message {
            Message::User(prompt) if prompt.kind.is_turn() && !prompt.withdrawn => Some(prompt),
            _ => None,
        });
        let told = prompts.take(KEPT).map(|prompt| ToldTurn {
            prompt: without_parts(prompt),
            changes: Changes::of(&session, Some(prompt.id), message::TURN_PATCHES),
        });
        let mut turns: VecDeque<ToldTurn> = told.collect();
        turns.make_contiguous().reverse();
        trim(&mut session);
        let (open, outputs) = (Vec::new(), HashMap::new());
        Self {
            session,
            place,
            version,
            shown_on,
            status,
            open,
            asked,
            outputs,
            changes,
            turns,
            between: None,
        }
    }

    /// Facts and totals.
    pub(crate) fn summary(&self) -> &SessionSummary {
        &self.session.summary
    }

    /// The last record that it knows.
    pub(crate) fn head(&self) -> Seq {
        self.session.summary.head
    }

    /// What it does.
    pub(crate) fn status(&self) -> &Status {
        &self.status
    }

    /// Whether nothing runs and nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.session.is_idle() && self.between.is_none()
    }

    /// The place where it works.
    pub(crate) fn place(&self) -> &Arc<Place> {
        &self.place
    }

    /// The session as the wire has it.
    pub(crate) fn info(&self) -> shapes::Session {
        super::session(&self.session.summary, &self.place, &self.version, Some(&self.session.permissions))
    }

    /// The requests for consent that wait.
    pub(crate) fn permissions(&self) -> Vec<PermissionRequest> {
        self.session.open_consents().iter().map(|asked| self.permission(asked)).collect()
    }

    /// The requests with questions that wait.
    pub(crate) fn questions(&self) -> Vec<QuestionRequest> {
        let open = self.session.open_questions();
        open.iter().map(|asked| super::questions(asked, self.shown_on, self.tool_of(asked.call))).collect()
    }

    /// The answer under way, with the parts that stream.
    pub(crate) fn current(&self) -> Option<MessageWithParts> {
        self.session.turn.as_ref()?;
        let current = self.answer()?;
        let mut shown = message::assistant(self.scene(), current, self);
        shown.parts.extend(self.open.iter().map(|open| self.open_part(open)));
        Some(shown)
    }

    /// Tells what changes while a session streams, for clients that did not see it from the beginning.
    pub(crate) fn announce(&self, out: &mut Vec<WireEvent>) {
        self.updated(out);
        self.tell_status(out);
        let Some(current) = self.current() else { return };
        out.push(self.message(current.info));
        let time = self.session.summary.updated.as_millis();
        out.extend(current.parts.into_iter().map(|part| self.part_updated(part, time)));
    }

    /// Takes an event, and tells it in the wire's words. One that is known already changes nothing.
    ///
    /// # Errors
    /// It does not fit: records were missed.
    pub(crate) fn on(&mut self, event: &Event, out: &mut Vec<WireEvent>) -> Result<(), Lost> {
        match &event.body {
            EventBody::Durable(_) if event.id.seq <= self.head() => Ok(()),
            EventBody::Durable(record) => self.durable(event.id.seq, event.at, record, out),
            EventBody::Provisional(provisional) => {
                self.provisional(provisional, event.at, out);
                Ok(())
            }
        }
    }

    /// Tells what waited long enough: what running calls have written and nobody saw, and that a command goes on with no prompt.
    pub(crate) fn tick(&mut self, now: Timestamp, out: &mut Vec<WireEvent>) {
        let is_over = |since: Timestamp| now.millis_since(since) >= LONGEST_BETWEEN;
        if self.session.is_idle() && self.between.is_some_and(is_over) {
            self.rests(out);
        }
        let due: Vec<PartId> =
            self.outputs.iter_mut().filter_map(|(call, tail)| tail.is_due(now).then_some(*call)).collect();
        for call in due {
            self.tell_call(call, now, out);
        }
    }

    /// Whether a later [`Self::tick`] may have something to tell.
    pub(crate) fn waits(&self) -> bool {
        !self.outputs.is_empty() || self.between.is_some()
    }

    fn provisional(&mut self, provisional: &Provisional, at: Timestamp, out: &mut Vec<WireEvent>) {
        match provisional {
            Provisional::PartStarted { step, part, kind, .. } => {
                self.part_started(*step, *part, kind, "", at, out)
            }
            Provisional::PartSnapshot { step, part, kind, text, .. } => {
                self.part_started(*step, *part, kind, text, at, out);
            }
            Provisional::PartDelta { part, offset, text } => self.part_delta(*part, *offset, text, out),
            Provisional::CallOutput { call, offset, text } => {
                if self.outputs.entry(*call).or_default().add(*offset, text, at) {
                    self.tell_call(*call, at, out);
                }
            }
            Provisional::StepRetry { attempt_number, at, error, .. } => {
                self.withdraw_open(|_| true, out);
                let status = Status::Retry {
                    attempt: attempt_number.saturating_sub(1),
                    message: error.message.clone(),
                    next: at.as_millis(),
                };
                self.set_status(status, out);
            }
            Provisional::AttemptWaiting { until, reason, .. } => {
                let next = until.unwrap_or(at).as_millis();
                self.set_status(Status::Retry { attempt: 0, message: reason.clone(), next }, out);
            }
            // The sub-session tells its requests itself.
            Provisional::SessionParked { reason } => {
                let error = error::parked(reason);
                out.push(WireEvent::SessionError { session: self.id(), error });
                // Clients wait for the end of what ran.
                self.status = Status::Idle;
                self.tell_status(out);
                out.push(WireEvent::SessionIdle { session: self.id() });
            }
            Provisional::FileChanged(FilesChanged { by, session, files, .. }) => {
                let is_own = *session == Some(self.id());
                if *by == ChangeAuthor::Session && !is_own {
                    // That session tells it.
                    return;
                }
                for changed in files {
                    let Some(path) = path_of(Path::new(&*self.place.directory), &changed.path) else {
                        continue;
                    };
                    let file = path.to_string_lossy().into_owned();
                    if is_own && changed.kind != ChangeKind::Deleted {
                        out.push(WireEvent::FileEdited { file: file.clone() });
                    }
                    out.push(WireEvent::FileWatcherUpdated { file, event: changed.kind.into() });
                }
            }
            Provisional::DescendantRequest { .. } | Provisional::Resync { .. } => {}
        }
    }

    fn part_started(
        &mut self,
        step: MessageId,
        part: PartId,
        kind: &OpenPartKind,
        text: &str,
        at: Timestamp,
        out: &mut Vec<WireEvent>,
    ) {
        let is_current = self.answer().is_some_and(|answer| answer.id == step && answer.completed.is_none());
        if !is_current || self.open.iter().any(|open| open.part == part) {
            return;
        }
        if matches!(self.status, Status::Retry { .. }) {
            self.set_status(Status::Busy, out);
        }
        let open = Open { step, part, kind: kind.clone(), text: text.to_owned(), started: at };
        out.push(self.part_updated(self.open_part(&open), at.as_millis()));
        self.open.push(open);
    }

    fn part_delta(&mut self, part: PartId, offset: u64, text: &str, out: &mut Vec<WireEvent>) {
        let session = self.id();
        let Some(open) = self.open.iter_mut().rev().find(|open| open.part == part) else { return };
        // What a snapshot held already is not told twice.
        let known = (open.text.len() as u64).saturating_sub(offset);
        let Some(new) = usize::try_from(known).ok().and_then(|known| text.get(known..)) else { return };
        if new.is_empty() {
            return;
        }
        open.text.push_str(new);
        if !matches!(open.kind, OpenPartKind::Call { .. }) {
            out.push(WireEvent::PartDelta {
                session,
                message: open.step,
                part,
                field: "text".to_owned(),
                delta: new.to_owned(),
            });
        }
    }

    /// Takes back the streamed parts that do not stay.
    fn withdraw_open(&mut self, goes: impl Fn(PartId) -> bool, out: &mut Vec<WireEvent>) {
        let session = self.id();
        self.open.retain(|open| {
            let goes = goes(open.part);
            if goes {
                out.push(WireEvent::PartRemoved { session, message: open.step, part: open.part });
            }
            !goes
        });
    }

    fn open_part(&self, open: &Open) -> shapes::Part {
        let head = message::head(self.scene(), open.step, open.part);
        let time = PartTime { start: open.started.as_millis(), end: None };
        match &open.kind {
            OpenPartKind::Text => message::said(head, open.text.clone(), time),
            OpenPartKind::Reasoning => shapes::Part::Reasoning { head, text: open.text.clone(), time },
            OpenPartKind::Call { call_id, tool } => shapes::Part::Tool {
                head,
                call: if call_id.is_empty() { open.part.to_string() } else { call_id.clone() },
                tool: tool.clone(),
                state: ToolState::Pending { input: serde_json::Map::new(), raw: String::new() },
            },
        }
    }

    fn permission(&self, asked: &playhouse_protocol::ConsentAsked) -> PermissionRequest {
        let input = asked.call.and_then(|call| self.session.call(call)).map(|call| &call.input);
        let tool = asked.call.and_then(|call| self.tool_of(call));
        request::permission(asked, &self.place.directory, self.shown_on, tool, input)
    }

    fn tool_of(&self, call: PartId) -> Option<ToolOf> {
        let part = self.session.call(call)?;
        Some(ToolOf { message: self.answer()?.id, call: part.call_id.clone() })
    }

    fn tell_call(&self, call: PartId, at: Timestamp, out: &mut Vec<WireEvent>) {
        let Some(answer) = self.answer() else { return };
        if let Some(part) = answer.parts.iter().find(|part| part.id() == call) {
            out.push(self.part_updated(message::part(self.scene(), answer, part, self), at.as_millis()));
        }
    }

    fn tell_answer(&self, ended: bool, out: &mut Vec<WireEvent>) {
        let Some(answer) = self.answer() else { return };
        out.push(self.message(shapes::Message::Assistant(Box::new(message::info(
            self.scene(),
            answer,
            ended,
        )))));
    }

    fn set_status(&mut self, status: Status, out: &mut Vec<WireEvent>) {
        if self.status != status {
            self.status = status;
            self.tell_status(out);
        }
    }

    fn tell_status(&self, out: &mut Vec<WireEvent>) {
        out.push(WireEvent::SessionStatus { session: self.id(), status: self.status.clone() });
    }

    fn updated(&self, out: &mut Vec<WireEvent>) {
        out.push(WireEvent::SessionUpdated { session: self.id(), info: Box::new(self.info()) });
    }

    fn message(&self, info: shapes::Message) -> WireEvent {
        WireEvent::MessageUpdated { session: self.id(), info: Box::new(info) }
    }

    fn part_updated(&self, part: shapes::Part, time: u64) -> WireEvent {
        WireEvent::PartUpdated { session: self.id(), part: Box::new(part), time }
    }

    /// The newest answer.
    fn answer(&self) -> Option<&AssistantMessage> {
        self.session.messages.iter().rev().find_map(|message| match message {
            Message::Assistant(answer) => Some(answer),
            Message::User(_) => None,
        })
    }

    fn id(&self) -> SessionId {
        self.session.summary.id
    }

    fn scene(&self) -> Scene<'_> {
        Scene { session: self.id(), place: &self.place }
    }
}

/// A prompt as far as it is told anew.
fn without_parts(prompt: &UserMessage) -> UserMessage {
    UserMessage {
        id: prompt.id,
        created: prompt.created,
        agent: prompt.agent.clone(),
        model: prompt.model.clone(),
        parts: Vec::new(),
        withdrawn: prompt.withdrawn,
        kind: prompt.kind.clone(),
        system: prompt.system.clone(),
        tools: prompt.tools.clone(),
        summary: prompt.summary.clone(),
    }
}

/// Forgets the messages that cannot change any more.
fn trim(session: &mut Session) {
    let old = session.messages.len().saturating_sub(KEPT);
    session.messages.drain(..old);
}
