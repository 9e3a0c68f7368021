//! A session whose records are made one after the other, told as it is live.

use std::sync::Arc;

use playhouse_protocol::event::{OpenPartKind, Provisional};
use playhouse_protocol::ledger::Purpose;
use playhouse_protocol::message::CompactionKind;
use playhouse_protocol::message::{
    Attachment, BlobRef, CallInput, CallOutcome, CallResult, FinishReason, PromptKind, ToolSwitches,
};
use playhouse_protocol::record::{
    AttemptEnded, AttemptOutcome, AttemptStarted, CallIntended, CallProposed, ContextCompacted, Effect,
    PromptAdmitted, Recovery, SessionCreated, StepFinished, StepPart, TurnEnded, TurnOutcome,
};
use playhouse_protocol::usage::{Totals, Usage};
use playhouse_protocol::{
    AttemptId, Entry, ErrorInfo, Event, EventBody, EventId, IdGenerator, MessageId, ModelRef, Part, PartId,
    Prices, Record, Seq, SessionId, Timestamp, Tokens,
};
use playhouse_session::Session;
use serde_json::Value;

use crate::wire::place::Place;
use crate::wire::shapes::{Envelope, MessageWithParts, WireEvent};
use crate::wire::translate::{Live, Scene, history};

/// A session whose records are made one after the other, told as it is live.
pub(super) struct Stage {
    pub(super) ids: IdGenerator,
    pub(super) now: u64,
    pub(super) log: Vec<Entry>,
    pub(super) live: Live,
    pub(super) told: Vec<WireEvent>,
    pub(super) provisional: u64,
    pub(super) turn: MessageId,
    pub(super) step: MessageId,
    pub(super) attempt: AttemptId,
    pub(super) attempts: u32,
}

impl Stage {
    pub(super) fn new() -> Self {
        let mut ids = IdGenerator::new(|bytes| bytes.fill(77));
        let now = Timestamp::from_millis(1_800_000_000_000);
        let created = SessionCreated {
            session: ids.next(now),
            tenant: "local".into(),
            workspace: "/srv/demo/sub".into(),
            title: "New session".into(),
            agent: "build".into(),
            model: ModelRef::new("mock", "m1"),
            parent: None,
            root: None,
            parent_step: None,
            permissions: Vec::new(),
            unattended: false,
            walls: None,
            tools: None,
            system: None,
            metadata: serde_json::Map::new(),
        };
        let session = created.session;
        let first = Entry { seq: Seq(1), at: now, record: Record::SessionCreated(created) };
        let place = Arc::new(Place::new("/srv/demo/sub", "/srv/demo", true, 5));
        let live = Live::new(Session::begin(&first).unwrap(), place, "0.1.0".into(), session);
        let (turn, step, attempt) = (ids.next(now), ids.next(now), ids.next(now));
        Self {
            now: now.as_millis(),
            log: vec![first],
            live,
            told: Vec::new(),
            provisional: 0,
            turn,
            step,
            attempt,
            attempts: 0,
            ids,
        }
    }

    pub(super) fn at(&mut self) -> Timestamp {
        self.now += 10;
        Timestamp::from_millis(self.now)
    }

    pub(super) fn part(&mut self) -> PartId {
        let at = self.at();
        self.ids.next(at)
    }

    pub(super) fn event(&mut self, body: EventBody, id: EventId) {
        let at = self.at();
        let event = Event { id, generation: 1, session: self.session(), at, body };
        self.live.on(&event, &mut self.told).unwrap();
    }

    pub(super) fn session(&self) -> SessionId {
        self.live.summary().id
    }

    pub(super) fn record(&mut self, record: Record) {
        let seq = self.live.head().next();
        self.provisional = 0;
        let at = Timestamp::from_millis(self.now + 10);
        self.log.push(Entry { seq, at, record: record.clone() });
        self.event(EventBody::Durable(Arc::new(record)), EventId::durable(seq));
    }

    pub(super) fn provisional(&mut self, provisional: Provisional) {
        self.provisional += 1;
        let id = EventId { seq: self.live.head(), provisional: self.provisional };
        self.event(EventBody::Provisional(provisional), id);
    }

    pub(super) fn admit(&mut self, text: &str) -> MessageId {
        self.admit_as(PromptKind::Turn, text)
    }

    pub(super) fn admit_as(&mut self, kind: PromptKind, text: &str) -> MessageId {
        let at = self.at();
        let (message, id) = (self.ids.next(at), self.ids.next(at));
        self.record(Record::PromptAdmitted(PromptAdmitted {
            message,
            parts: vec![Part::text(id, text)],
            agent: "build".into(),
            model: ModelRef::new("mock", "m1"),
            step_limit: None,
            steer: false,
            unattended: false,
            kind,
            system: None,
            tools: ToolSwitches::new(),
            output: None,
            handed: None,
            attribution: None,
        }));
        message
    }

    pub(super) fn prompt(&mut self, text: &str) {
        self.turn = self.admit(text);
        let turn = self.turn;
        self.record(Record::TurnStarted { turn });
    }

    /// A new step, or a further attempt of it.
    pub(super) fn attempt(&mut self, again: bool) {
        self.attempt_for(Purpose::Turn, again);
    }

    pub(super) fn attempt_for(&mut self, purpose: Purpose, again: bool) {
        let at = self.at();
        self.attempt = self.ids.next(at);
        if !again {
            self.step = self.ids.next(at);
            self.attempts = 0;
        }
        self.attempts += 1;
        self.record(Record::AttemptStarted(AttemptStarted {
            attempt_number: self.attempts,
            purpose,
            estimated_input: 10,
            prices: Prices { input: Some(1.into()), output: Some(2.into()), ..Prices::default() },
            ..AttemptStarted::new(self.attempt, self.turn, self.step, "build", ModelRef::new("mock", "m1"))
        }));
    }

    pub(super) fn stream(&mut self, kind: OpenPartKind, pieces: &[&str]) -> PartId {
        let (part, step, attempt) = (self.part(), self.step, self.attempt);
        self.provisional(Provisional::PartStarted { step, attempt, part, kind });
        let mut offset = 0;
        for piece in pieces {
            self.provisional(Provisional::PartDelta { part, offset, text: (*piece).into() });
            offset += piece.len() as u64;
        }
        part
    }

    pub(super) fn ended(&mut self, outcome: AttemptOutcome) {
        let tokens = Tokens { input: 1_000, output: 20, cache_read: 200, ..Tokens::default() };
        let usage = Some(Usage { tokens, ..Usage::default() });
        let cost = Some("0.00104".parse().map(playhouse_protocol::Cost).unwrap());
        let attempt = self.attempt;
        self.record(Record::AttemptEnded(AttemptEnded {
            attempt,
            outcome,
            usage,
            cost,
            answered_by: None,
            assumed: Vec::new(),
            calls: Vec::new(),
            costs: None,
            ended: None,
            inner: Vec::new(),
        }));
    }

    pub(super) fn finished(&mut self, parts: Vec<StepPart>, finish: FinishReason, error: Option<ErrorInfo>) {
        let tokens = Tokens { input: 1_000, output: 20, cache_read: 200, ..Tokens::default() };
        let cost = Some("0.00104".parse().map(playhouse_protocol::Cost).unwrap());
        let step = self.step;
        self.record(Record::StepFinished(StepFinished { step, parts, finish, error, tokens, cost }));
    }

    /// A step that asks for one call.
    pub(super) fn call(&mut self, tool: &str, input: Value) -> PartId {
        self.attempt(false);
        let kind = OpenPartKind::Call { call_id: "call_1".into(), tool: tool.into() };
        let call = self.stream(kind, &["{\"comm", "and\":\"ls\"}"]);
        self.ended(AttemptOutcome::Finished);
        let Value::Object(input) = input else { panic!("arguments are an object") };
        self.record(Record::CallProposed(CallProposed::new(
            call,
            self.step,
            "call_1",
            tool,
            CallInput::Object(input),
        )));
        self.finished(vec![StepPart::Call { id: call, opaque: None }], FinishReason::ToolCalls, None);
        call
    }

    /// The call of a turn without a model, which is a step of its own.
    pub(super) fn command(&mut self, command: &str) -> PartId {
        let (at, call) = (self.at(), self.part());
        self.step = self.ids.next(at);
        self.record(Record::CallProposed(CallProposed::new(
            call,
            self.step,
            "call_1",
            "bash",
            CallInput::Object(serde_json::Map::from_iter([("command".to_owned(), command.into())])),
        )));
        self.finished(vec![StepPart::Call { id: call, opaque: None }], FinishReason::Stop, None);
        call
    }

    pub(super) fn intend(&mut self, call: PartId) {
        self.record(Record::CallIntended(CallIntended {
            call,
            effect: Effect::Workspace,
            recovery: Recovery::Interrupt,
            delegate: None,
            before: Vec::new(),
            tracked: false,
        }));
    }

    pub(super) fn settle(&mut self, call: PartId, outcome: CallOutcome, metadata: Value) {
        let at = self.at();
        let Value::Object(metadata) = metadata else { panic!("metadata are an object") };
        let blob = BlobRef { hash: "0".repeat(64), size: 3 };
        let attachments = vec![Attachment::new("image/png", "a.png", blob)];
        self.record(Record::CallSettled {
            call,
            result: CallResult {
                outcome,
                title: "ls".into(),
                output: "new.txt\n".into(),
                metadata,
                attachments,
                started: at,
                ended: at,
            },
        });
    }

    pub(super) fn end(&mut self, outcome: TurnOutcome, error: Option<ErrorInfo>) {
        let (turn, totals) = (self.turn, Totals::default());
        self.record(Record::TurnEnded(TurnEnded {
            changed: None,
            output: None,
            turn,
            outcome,
            error,
            steps: 1,
            totals,
        }));
    }

    /// A summary stands for all that was said.
    pub(super) fn compact(&mut self, text: &str) {
        let at = self.at();
        let (message, answer, part) = (self.ids.next(at), self.ids.next(at), self.ids.next(at));
        self.record(Record::ContextCompacted(ContextCompacted {
            how: CompactionKind::Summary,
            message,
            answer,
            part,
            text: text.into(),
            first: None,
            prompt: None,
            kept_from: None,
            attempt: None,
            by_hand: true,
            before: 100,
            after: 10,
        }));
    }

    /// The kinds of the events since the last time, with what makes them differ.
    pub(super) fn told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.told).iter().map(|event| kind(&value(event))).collect()
    }

    pub(super) fn taken(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.told).iter().map(value).collect()
    }

    /// The messages as they are read from the log.
    pub(super) fn messages(&self) -> Vec<MessageWithParts> {
        let session = Session::replay(&self.log).unwrap();
        let place = Place::new("/srv/demo/sub", "/srv/demo", true, 5);
        let scene = Scene { session: self.session(), place: &place };
        history(scene, &session.messages, &[], None).collect()
    }
}

pub(super) fn value(event: &WireEvent) -> Value {
    serde_json::to_value(Envelope { id: crate::wire::ids::event(1, 2, 3), event }).unwrap()
}

pub(super) fn kind(event: &Value) -> String {
    let (name, of) = (event["type"].as_str().unwrap(), &event["properties"]);
    let detail = match name {
        "message.updated" => {
            match (&of["info"]["role"], &of["info"]["time"]["completed"], &of["info"]["finish"]) {
                (role, Value::Null, Value::Null) => role.as_str().unwrap().to_owned(),
                (role, Value::Null, _) => format!("{} finish", role.as_str().unwrap()),
                (role, ..) => format!("{} completed", role.as_str().unwrap()),
            }
        }
        "message.part.updated" => {
            let part = &of["part"];
            let more = part["state"]["status"].as_str().or(part["text"].as_str()).or(part["reason"].as_str());
            format!("{} {}", part["type"].as_str().unwrap(), more.unwrap_or_default())
        }
        "message.part.delta" => of["delta"].as_str().unwrap().to_owned(),
        "session.status" => of["status"]["type"].as_str().unwrap().to_owned(),
        "permission.replied" => of["reply"].as_str().unwrap().to_owned(),
        "session.error" => of["error"]["name"].as_str().unwrap().to_owned(),
        _ => String::new(),
    };
    format!("{name} {detail}").trim_end().to_owned()
}
