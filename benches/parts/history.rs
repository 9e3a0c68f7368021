//! What a long history costs: its fold, and requests made of it.

use std::hint::black_box;

use playhouse::protocol::chat::ChatMessage;
use playhouse::protocol::id::{AttemptId, IdGenerator, MessageId, PartId, SessionId};
use playhouse::protocol::message::{
    CallInput, CallOutcome, CallResult, FinishReason, Part as MessagePart, PromptKind, ToolSwitches,
};
use playhouse::protocol::record::{
    AttemptEnded, AttemptOutcome, AttemptStarted, CallIntended, CallProposed, Effect, PromptAdmitted,
    Recovery, SessionCreated, StepFinished, StepPart,
};
use playhouse::protocol::{Entry, ModelRef, Record, Seq, Timestamp, Tokens, Usage};
use playhouse::session::{Session, chat};
use playhouse_llm::{DialectKind, Head, ToolChoice, Transcript};
use serde_json::json;

use crate::Part;

/// Messages of the history, as a model sees them: a prompt, and two for each step.
const MESSAGES: usize = 2_000;
/// Requests of one run: each takes so little that what programs do by chance would be more.
const REQUESTS: usize = 1_000;

/// Makes the log of a turn, as the engine writes it.
struct Log {
    ids: IdGenerator,
    entries: Vec<Entry>,
}

impl Log {
    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn push(&mut self, record: Record) {
        let seq = Seq(self.entries.len() as u64 + 1);
        self.entries.push(Entry { seq, at: Self::NOW, record });
    }

    /// A log whose turn took so many steps.
    fn of(steps: u32) -> Vec<Entry> {
        let mut log = Self { ids: IdGenerator::new(|bytes| bytes.fill(7)), entries: Vec::new() };
        let model: ModelRef = "mock/walk".parse().expect("it is a model");
        let session: SessionId = log.ids.next(Self::NOW);
        log.push(Record::SessionCreated(SessionCreated {
            title: "Bench".into(),
            ..SessionCreated::new(session, "bench", "/", "build", model.clone())
        }));
        let turn: MessageId = log.ids.next(Self::NOW);
        let part = MessagePart::text(log.ids.next(Self::NOW), "Go.");
        log.push(Record::PromptAdmitted(PromptAdmitted {
            message: turn,
            parts: vec![part],
            agent: "build".into(),
            model: model.clone(),
            step_limit: None,
            steer: false,
            unattended: false,
            kind: PromptKind::Turn,
            system: None,
            tools: ToolSwitches::new(),
            output: None,
            handed: None,
            attribution: None,
        }));
        log.push(Record::TurnStarted { turn });
        for number in 1..=steps {
            log.step(turn, number, &model);
        }
        log.entries
    }

    fn step(&mut self, turn: MessageId, number: u32, model: &ModelRef) {
        let attempt: AttemptId = self.ids.next(Self::NOW);
        let step: MessageId = self.ids.next(Self::NOW);
        let (text, call): (PartId, PartId) = (self.ids.next(Self::NOW), self.ids.next(Self::NOW));
        self.push(Record::AttemptStarted(AttemptStarted {
            step_number: number,
            estimated_input: 1_000,
            ..AttemptStarted::new(attempt, turn, step, "build", model.clone())
        }));
        self.push(Record::AttemptEnded(AttemptEnded {
            attempt,
            outcome: AttemptOutcome::Finished,
            usage: Some(Usage::default()),
            cost: None,
            answered_by: Some("walk".into()),
            assumed: Vec::new(),
            calls: Vec::new(),
            costs: None,
            ended: None,
            inner: Vec::new(),
        }));
        let input = CallInput::from_model(&json!({"filePath": "notes.txt"}).to_string());
        let call_id = format!("call_{number}");
        self.push(Record::CallProposed(CallProposed::new(call, step, call_id, "read", input)));
        self.push(Record::StepFinished(StepFinished {
            step,
            parts: vec![
                StepPart::Text { id: text, text: "word ".repeat(40), opaque: None },
                StepPart::Call { id: call, opaque: None },
            ],
            finish: FinishReason::ToolCalls,
            error: None,
            tokens: Tokens::default(),
            cost: None,
        }));
        self.push(Record::CallIntended(CallIntended {
            call,
            effect: Effect::None,
            recovery: Recovery::Rerun,
            delegate: None,
            before: Vec::new(),
            tracked: false,
        }));
        let result = CallResult {
            outcome: CallOutcome::Done,
            title: "notes.txt".into(),
            output: "A line of a small file.\n".repeat(25),
            metadata: serde_json::Map::new(),
            attachments: Vec::new(),
            started: Self::NOW,
            ended: Self::NOW,
        };
        self.push(Record::CallSettled { call, result });
    }
}

/// The log of a turn whose history has so many messages.
fn entries() -> Vec<Entry> {
    Log::of(u32::try_from(MESSAGES / 2).expect("it is small"))
}

pub(crate) fn fold() -> Part {
    let entries = entries();
    Part::new(MESSAGES, "message", move || {
        black_box(Session::replay(black_box(&entries)).expect("the log fits"));
    })
}

/// The history as a model reads it.
fn messages() -> Vec<ChatMessage> {
    let session = Session::replay(&entries()).expect("the log fits");
    assert_eq!(session.messages.len(), MESSAGES / 2 + 1);
    let mut messages = Vec::new();
    for message in &session.messages {
        chat::translate(message, &session.summary.model, &mut messages);
    }
    assert_eq!(messages.len(), MESSAGES + 1);
    messages
}

fn transcript(dialect: DialectKind, messages: &[ChatMessage]) -> Transcript {
    let head = Head { model: "walk".into(), system: "Be brief.".into(), max_output: 100, ..Head::default() };
    let mut transcript = Transcript::new(dialect, &head);
    for message in messages {
        transcript.push(message, &|_| None);
    }
    transcript
}

fn serialize(dialect: DialectKind) -> Part {
    let messages = messages();
    Part::new(MESSAGES, "message", move || {
        black_box(transcript(dialect, &messages));
    })
}

pub(crate) fn serialize_anthropic() -> Part {
    serialize(DialectKind::Anthropic)
}

pub(crate) fn serialize_openai_chat() -> Part {
    serialize(DialectKind::OpenaiChat)
}

fn request(dialect: DialectKind) -> Part {
    let mut transcript = transcript(dialect, &messages());
    Part::new(REQUESTS, "request of 2,000 messages", move || {
        for _ in 0..REQUESTS {
            black_box(transcript.request(ToolChoice::Auto));
        }
    })
}

pub(crate) fn request_anthropic() -> Part {
    request(DialectKind::Anthropic)
}

pub(crate) fn request_openai_chat() -> Part {
    request(DialectKind::OpenaiChat)
}
