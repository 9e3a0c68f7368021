//! What a subscriber reads.
//!
//! An event made from a record is *durable*: its id is the record's place in the log, and it is published after the
//! record was flushed. The pieces of a step under way are *provisional*: their id adds a counter to the place of the
//! last durable event, and they belong to one generation of the engine. When the engine comes back with another
//! generation, what was provisional before is void.

mod json;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;

use crate::changes::ChangeKind;
use crate::error::ErrorInfo;
use crate::id::{AttemptId, MessageId, PartId, SessionId};
use crate::json::parse;
use crate::record::{Record, Seq};
use crate::time::Timestamp;

/// An event's place: `17` for the durable event of record 17, `17.3` for the third provisional one after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId {
    /// Place of the last durable event.
    pub seq: Seq,
    /// 0 for that event itself, else the count of provisional ones after it.
    pub provisional: u64,
}

impl EventId {
    /// The durable event of record `seq`.
    pub const fn durable(seq: Seq) -> Self {
        Self { seq, provisional: 0 }
    }

    /// Whether it was made from a record.
    pub const fn is_durable(self) -> bool {
        self.provisional == 0
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.provisional {
            0 => write!(f, "{}", self.seq),
            count => write!(f, "{}.{count}", self.seq),
        }
    }
}

impl FromStr for EventId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (seq, provisional) = text.split_once('.').unwrap_or((text, "0"));
        match (seq.parse(), provisional.parse()) {
            (Ok(seq), Ok(provisional)) => Ok(Self { seq: Seq(seq), provisional }),
            _ => Err(format!("\"{text}\" is not an event id: write a number, or two with a dot between")),
        }
    }
}

impl Serialize for EventId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EventId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// One event of a session.
///
/// As JSON: `{"id": "17.3", "generation": 5, "session": "ses_…", "at": 1795292879257, "type": "part.delta", "data": {…}}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// Its place.
    pub id: EventId,
    /// The run of the engine that made it. It grows with every start.
    pub generation: u64,
    /// The session.
    pub session: SessionId,
    /// When it was made.
    pub at: Timestamp,
    /// What happened.
    #[serde(flatten)]
    pub body: EventBody,
}

/// Deserializes from serde_json only, and not inside untagged or flattened types. The id decides the type of the body: a durable id
/// has a [`Record`], any other a [`Provisional`]. Unlike an untagged enum, this compiles no second reader for each type.
impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        read(json.get()).map_err(de::Error::custom)
    }
}

fn read(json: &str) -> serde_json::Result<Event> {
    #[derive(Deserialize)]
    struct Head {
        id: EventId,
        generation: u64,
        session: SessionId,
        at: Timestamp,
    }
    let Head { id, generation, session, at } = parse(json)?;
    let body = if id.is_durable() {
        EventBody::Durable(Arc::new(parse(json)?))
    } else {
        EventBody::Provisional(parse(json)?)
    };
    Ok(Event { id, generation, session, at, body })
}

/// What an event tells.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum EventBody {
    /// A record that is durable.
    Durable(Arc<Record>),
    /// A piece of something under way.
    Provisional(Provisional),
}

/// What kind of part is being streamed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum OpenPartKind {
    /// Text.
    Text,
    /// Reasoning.
    Reasoning,
    /// A call, whose arguments stream as JSON text.
    Call {
        /// The provider's id of the call.
        call_id: String,
        /// The tool.
        tool: String,
    },
}

/// Who changed files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeAuthor {
    /// Calls of a session.
    Session,
    /// Nobody whose calls are known: a person, or a program of theirs.
    Outside,
    /// Nobody can tell: commands of several sessions ran, or one that runs for so long that people work beside it.
    Unclear,
}

/// Files of a session's workspace that changed: `data` of the event `file.changed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FilesChanged {
    /// Grows with each batch: all sessions of the workspace are told the same ones under the same number.
    pub batch: u64,
    /// Who changed them.
    pub by: ChangeAuthor,
    /// The session whose calls changed them, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The files.
    pub files: Vec<ChangedPath>,
    /// Number of further files that changed, and are not named.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub more: u64,
}

/// A file that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedPath {
    /// From the workspace on, as in change sets.
    pub path: String,
    /// How it changed.
    pub kind: ChangeKind,
}

/// Pieces of something under way. Applying one twice is harmless: offsets say where each piece belongs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Provisional {
    /// A part begins. Comes before its first delta.
    #[serde(rename = "part.started")]
    PartStarted {
        /// The step.
        step: MessageId,
        /// The attempt that streams it; if this ends without success, the part is withdrawn.
        attempt: AttemptId,
        /// The part.
        part: PartId,
        /// What it is.
        #[serde(flatten)]
        kind: OpenPartKind,
    },
    /// More of a part.
    #[serde(rename = "part.delta")]
    PartDelta {
        /// The part.
        part: PartId,
        /// Bytes of the part before this piece.
        offset: u64,
        /// The piece.
        text: String,
    },
    /// An open part as it stands, for a subscriber that comes in the middle of it.
    #[serde(rename = "part.snapshot")]
    PartSnapshot {
        /// The step.
        step: MessageId,
        /// The attempt that streams it.
        attempt: AttemptId,
        /// The part.
        part: PartId,
        /// What it is.
        #[serde(flatten)]
        kind: OpenPartKind,
        /// All of it so far.
        text: String,
    },
    /// More output of a running call.
    #[serde(rename = "call.output")]
    CallOutput {
        /// The call.
        call: PartId,
        /// Bytes of output before this piece.
        offset: u64,
        /// The piece.
        text: String,
    },
    /// An attempt failed, and the step is attempted again.
    #[serde(rename = "step.retry")]
    StepRetry {
        /// The step.
        step: MessageId,
        /// Number of the next attempt within the step.
        attempt_number: u32,
        /// The most attempts of a step.
        attempts: u32,
        /// When it starts.
        at: Timestamp,
        /// Why the last one failed.
        error: ErrorInfo,
    },
    /// A request waits until the provider's limits allow it, or until others have settled what is reserved of a budget.
    #[serde(rename = "attempt.waiting")]
    AttemptWaiting {
        /// The step.
        step: MessageId,
        /// The attempt.
        attempt: AttemptId,
        /// Nothing is sent before this time, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
        /// Why it waits.
        reason: String,
    },
    /// A request of a sub-session, at any depth, was asked or settled: answer it through that session's handle.
    #[serde(rename = "descendant.request")]
    DescendantRequest {
        /// The sub-session.
        session: SessionId,
        /// What its log says: a request for consent or with questions, or the end of one.
        record: Box<Record>,
    },
    /// Files of the session's workspace changed. Changes within a moment are told together, and each author's on their own.
    #[serde(rename = "file.changed")]
    FileChanged(FilesChanged),
    /// The session is parked: nothing runs in it any more, and it takes nothing, until somebody resumes it.
    #[serde(rename = "session.parked")]
    SessionParked {
        /// Why.
        reason: String,
    },
    /// The subscriber fell behind, or has what is not in the log any more: what it knows up to `after` holds, and what
    /// comes next follows that.
    #[serde(rename = "resync")]
    Resync {
        /// The last durable event that the subscriber was given.
        after: Seq,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::CallInput;
    use crate::record::CallProposed;

    #[test]
    fn event_ids_read_back() {
        for text in ["0", "17", "17.3"] {
            let id: EventId = text.parse().unwrap();
            assert_eq!(id.to_string(), text);
        }
        for text in ["", "x", "1.", "1.2.3", "-1"] {
            assert!(text.parse::<EventId>().is_err(), "{text}");
        }
    }

    #[test]
    fn both_kinds_of_events_read_back() {
        let session = SessionId::parse("ses_00000000000012345678901234").unwrap();
        let part = PartId::parse("prt_00000000000012345678901234").unwrap();
        let turn = MessageId::parse("msg_00000000000012345678901234").unwrap();
        // As deep as a model's arguments may be.
        let input = CallInput::from_model(&format!(r#"{{"a":{}1{}}}"#, "[".repeat(126), "]".repeat(126)));
        assert!(matches!(input, CallInput::Object(_)), "{input:?}");
        let deep = Record::CallProposed(CallProposed::new(part, turn, "c", "edit", input));
        for (id, body) in [
            ("3", EventBody::Durable(Arc::new(deep))),
            ("4", EventBody::Durable(Arc::new(Record::TurnStarted { turn }))),
            ("4.1", EventBody::Provisional(Provisional::PartDelta { part, offset: 5, text: "né\n".into() })),
        ] {
            let event = Event {
                id: id.parse().unwrap(),
                generation: 2,
                session,
                at: Timestamp::from_millis(1),
                body,
            };
            let json = serde_json::to_string(&event).unwrap();
            assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), event, "{json}");
            let value = serde_json::to_value(&event).unwrap();
            assert_eq!(serde_json::from_value::<Event>(value).unwrap(), event, "{json}");
            // What is not of its id's kind.
            let other = if id == "4.1" { "4" } else { "4.1" };
            let json = json.replace(&format!(r#""id":"{id}""#), &format!(r#""id":"{other}""#));
            assert!(serde_json::from_str::<Event>(&json).is_err(), "{json}");
        }
    }
}
