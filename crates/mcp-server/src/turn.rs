//! A turn as its session's events tell it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use playhouse_protocol::event::Provisional;
use playhouse_protocol::message::CallResult;
use playhouse_protocol::question::QuestionAnswer;
use playhouse_protocol::record::{StepPart, TurnEnded};
use playhouse_protocol::{ConsentAnswer, Event, EventBody, MessageId, PartId, Record, Seq, SessionId};
use serde::{Deserialize, Serialize};

use crate::ask::{Asked, Key, Request};
use crate::tools::{Declined, Outcome, PromptResult};

/// What an event says of the turn.
#[derive(Debug, PartialEq)]
pub(crate) enum Told {
    /// Nothing that somebody waits for.
    Nothing,
    /// What it is at.
    Progress(String),
    /// It asks something, itself or a session below it.
    Asks(Request),
    /// A request is over.
    Settled(Key),
    /// It is over.
    Ended(Box<TurnEnded>),
    /// Its session cannot go on.
    Parked(String),
}

/// A turn that is over.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) prompt: PromptResult,
    /// The result of its last call.
    pub(crate) call: Option<CallResult>,
}

/// A turn, as far as its events were read. As JSON it holds what a client needs to go on waiting for it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Turn {
    pub(crate) session: SessionId,
    pub(crate) turn: MessageId,
    /// The last durable event that was read.
    pub(crate) after: Seq,
    /// Whether it has begun.
    runs: bool,
    /// The sub-sessions that its calls hand work to.
    pub(crate) children: BTreeSet<SessionId>,
    /// Its requests that nobody answered yet.
    pub(crate) open: BTreeSet<Key>,
    /// What it asked and was not granted.
    declined: Vec<Declined>,
    /// The text of its last answer that had some.
    #[serde(skip)]
    text: String,
    /// Its calls, by the names of their tools.
    #[serde(skip)]
    calls: HashMap<PartId, String>,
    /// The result of its last call.
    #[serde(skip)]
    call: Option<CallResult>,
    /// What its open requests ask.
    #[serde(skip)]
    pub(crate) requests: BTreeMap<Key, Request>,
}

impl Turn {
    /// The turn of a prompt that was accepted, in a session of which everything up to `after` is known.
    pub(crate) fn new(session: SessionId, turn: MessageId, after: Seq) -> Self {
        Self {
            session,
            turn,
            after,
            runs: false,
            children: BTreeSet::new(),
            open: BTreeSet::new(),
            declined: Vec::new(),
            text: String::new(),
            calls: HashMap::new(),
            call: None,
            requests: BTreeMap::new(),
        }
    }

    pub(crate) fn on(&mut self, event: &Event) -> Told {
        match &event.body {
            EventBody::Durable(record) => {
                if event.id.seq <= self.after {
                    return Told::Nothing;
                }
                self.after = event.id.seq;
                self.record(record)
            }
            EventBody::Provisional(Provisional::DescendantRequest { session, record }) if self.runs => {
                self.request(*session, record)
            }
            EventBody::Provisional(Provisional::SessionParked { reason }) => Told::Parked(reason.clone()),
            EventBody::Provisional(_) => Told::Nothing,
        }
    }

    fn record(&mut self, record: &Record) -> Told {
        match record {
            Record::TurnStarted { turn } if *turn == self.turn => {
                self.runs = true;
                Told::Progress("the turn has begun".to_owned())
            }
            Record::TurnEnded(ended) if ended.turn == self.turn => Told::Ended(Box::new(ended.clone())),
            // One turn of a session runs at a time.
            _ if !self.runs => Told::Nothing,
            Record::AttemptStarted(started) if !started.purpose.is_aside() => match started.attempt_number {
                1 => Told::Progress(format!("step {}", started.step_number)),
                attempt => Told::Progress(format!("step {}, attempt {attempt}", started.step_number)),
            },
            Record::StepFinished(finished) => {
                let texts = finished.parts.iter().filter_map(|part| match part {
                    StepPart::Text { text, .. } => Some(text.as_str()),
                    _ => None,
                });
                let text: Vec<&str> = texts.collect();
                if !text.is_empty() {
                    self.text = text.join("\n");
                }
                Told::Nothing
            }
            Record::CallProposed(proposed) => {
                self.calls.insert(proposed.call, proposed.tool.clone());
                Told::Nothing
            }
            Record::CallSettled { result, .. } => {
                self.call = Some(result.clone());
                Told::Nothing
            }
            Record::CallIntended(intended) => {
                self.children.extend(intended.delegate.as_ref().map(|delegate| delegate.session));
                match self.calls.get(&intended.call) {
                    Some(tool) => Told::Progress(format!("the tool {tool} runs")),
                    None => Told::Nothing,
                }
            }
            Record::ConsentAsked(_)
            | Record::ConsentSettled { .. }
            | Record::QuestionAsked(_)
            | Record::QuestionSettled { .. } => self.request(self.session, record),
            _ => Told::Nothing,
        }
    }

    /// A request of `session`, or the end of one.
    fn request(&mut self, session: SessionId, record: &Record) -> Told {
        let asked = match record {
            Record::ConsentAsked(asked) => Asked::Consent(Box::new(asked.clone())),
            Record::QuestionAsked(asked) => Asked::Questions(asked.clone()),
            Record::ConsentSettled { consent, answer } => {
                let why =
                    (!answer.agrees() && *answer != ConsentAnswer::Withdrawn).then(|| answer.to_string());
                return self.settled(Key { session, id: consent.to_string() }, why);
            }
            Record::QuestionSettled { question, answer } => {
                let refused = matches!(answer, QuestionAnswer::Rejected | QuestionAnswer::TimedOut);
                let why = refused.then(|| answer.to_string());
                return self.settled(Key { session, id: question.to_string() }, why);
            }
            _ => return Told::Nothing,
        };
        let request = Request { session, asked };
        let key = request.key();
        if self.requests.insert(key.clone(), request.clone()).is_some() {
            // A client that reads again is shown what waits once more.
            return Told::Nothing;
        }
        self.open.insert(key);
        Told::Asks(request)
    }

    fn settled(&mut self, key: Key, why: Option<String>) -> Told {
        self.open.remove(&key);
        let request = self.requests.remove(&key);
        if let (Some(request), Some(why)) = (request, why) {
            self.declined.push(Declined { tool: request.tool(), asked: request.line(), why });
        }
        Told::Settled(key)
    }

    /// The request is none of this turn's.
    pub(crate) fn forget(&mut self, key: &Key) {
        self.open.remove(key);
        self.requests.remove(key);
    }

    /// The result of the turn that ended so.
    pub(crate) fn result(self, ended: TurnEnded) -> Ended {
        let prompt = PromptResult {
            session: self.session,
            turn: self.turn,
            outcome: Outcome::from(ended.outcome),
            text: self.text,
            output: ended.output,
            error: ended.error.map(|error| error.message),
            steps: ended.steps,
            totals: ended.totals,
            declined: self.declined,
        };
        Ended { prompt, call: self.call }
    }
}
