//! Which events of a session are those of one's own turn: an engine may run turns of others in it.

use playhouse_protocol::event::Provisional;
use playhouse_protocol::{EventBody, MessageId, Record};

/// What becomes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Shown,
    Hidden,
    /// Hidden, and the first of a turn that runs before one's own.
    AnotherFirst,
}

/// Tells one's own turn, and those of the shell blocks in its template, from others.
pub(super) struct Focus {
    /// Whether there can be others.
    shared: bool,
    /// One's own prompt.
    prompt: MessageId,
    /// The turn that answers it: another one where it steers.
    turn: MessageId,
    /// The turn that runs, where its beginning was seen.
    running: Option<MessageId>,
    told: bool,
}

impl Focus {
    /// `shared`: whether others may use the session as well.
    pub(super) fn new(shared: bool, prompt: MessageId) -> Self {
        Self { shared, prompt, turn: prompt, running: None, told: false }
    }

    /// The turn that answers one's own prompt, as far as is known.
    pub(super) fn turn(&self) -> MessageId {
        self.turn
    }

    /// The running turn reads one's own prompt, and is one's own from here on.
    pub(super) fn joins(&mut self, turn: MessageId) {
        self.turn = turn;
        self.running = Some(turn);
    }

    /// Whether `turn` runs a shell block of this client's own prompt.
    pub(super) fn is_block(&self, turn: MessageId) -> bool {
        turn.is_earlier_of(self.prompt)
    }

    fn is_own(&self, turn: MessageId) -> bool {
        turn == self.prompt || turn == self.turn || self.is_block(turn)
    }

    /// Looks at the next event. What came before the own prompt and its blocks was not seen.
    pub(super) fn look(&mut self, body: &EventBody) -> Look {
        if !self.shared {
            return Look::Shown;
        }
        if let EventBody::Durable(record) = body
            && let Record::TurnStarted { turn } = record.as_ref()
        {
            self.running = Some(*turn);
        }
        let own_runs = self.running.is_some_and(|running| self.is_own(running));
        let is_shown = match body {
            EventBody::Durable(record) => match record.as_ref() {
                Record::TurnEnded(ended) => {
                    // One that was withdrawn while it waited says nothing of the one that runs.
                    self.running.take_if(|running| *running == ended.turn);
                    self.is_own(ended.turn)
                }
                Record::PromptAdmitted(prompt) => self.is_own(prompt.message),
                Record::SessionCreated(_)
                | Record::SessionChanged(_)
                | Record::Forked(_)
                | Record::Deleted {} => true,
                _ => own_runs,
            },
            EventBody::Provisional(Provisional::SessionParked { .. }) => true,
            EventBody::Provisional(_) => own_runs,
        };
        if is_shown {
            Look::Shown
        } else if !self.told && is_work(body) {
            self.told = true;
            Look::AnotherFirst
        } else {
            Look::Hidden
        }
    }
}

/// Whether only a turn does this: what is asked for a title or a server, and what changes in the workspace, comes without one too.
fn is_work(body: &EventBody) -> bool {
    match body {
        EventBody::Durable(record) => match record.as_ref() {
            Record::TurnStarted { .. }
            | Record::StepFinished(_)
            | Record::CallIntended(_)
            | Record::CallSettled { .. } => true,
            Record::AttemptStarted(started) => !started.purpose.is_aside(),
            _ => false,
        },
        EventBody::Provisional(event) => {
            matches!(event, Provisional::PartDelta { .. } | Provisional::CallOutput { .. })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const OWN: &str = "msg_00000000010012345678901234";
    const OTHER: &str = "msg_00000000010098765432109876";

    fn id(text: &str) -> MessageId {
        MessageId::parse(text).unwrap()
    }

    fn record(kind: &str, data: &Value) -> EventBody {
        EventBody::Durable(serde_json::from_value(json!({"type": kind, "data": data})).unwrap())
    }

    fn admitted(message: MessageId) -> EventBody {
        let data = json!({"message": message, "parts": [], "agent": "build", "model": "local/m"});
        record("prompt.admitted", &data)
    }

    fn started(turn: MessageId) -> EventBody {
        record("turn.started", &json!({"turn": turn}))
    }

    fn ended(turn: MessageId) -> EventBody {
        record("turn.ended", &json!({"turn": turn, "outcome": "completed", "steps": 0, "totals": {}}))
    }

    fn provisional(kind: &str, data: &Value) -> EventBody {
        EventBody::Provisional(serde_json::from_value(json!({"type": kind, "data": data})).unwrap())
    }

    /// Of the turn that runs.
    fn output() -> EventBody {
        let call = "prt_00000000010012345678901234";
        provisional("call.output", &json!({"call": call, "offset": 0, "text": "x"}))
    }

    fn changed() -> EventBody {
        provisional("file.changed", &json!({"batch": 1, "by": "outside", "files": []}))
    }

    /// What becomes of these events, by the first letters of the looks.
    fn looks(shared: bool, events: &[EventBody]) -> String {
        let mut focus = Focus::new(shared, id(OWN));
        let letter = |look| match look {
            Look::Shown => 'S',
            Look::Hidden => 'h',
            Look::AnotherFirst => 'A',
        };
        events.iter().map(|event| letter(focus.look(event))).collect()
    }

    #[test]
    fn the_own_turn_and_its_blocks_are_shown() {
        let (own, first, second) = (id(OWN), id(OWN).earlier(2), id(OWN).earlier(1));
        let blocks = [first, second].map(|turn| [admitted(turn), started(turn), output(), ended(turn)]);
        let turn = [admitted(own), started(own), output(), ended(own)];
        let events: Vec<EventBody> = blocks.into_iter().flatten().chain(turn).collect();
        assert_eq!(looks(true, &events), "SSSSSSSSSSSS");
    }

    #[test]
    fn turns_of_others_are_hidden_and_told_once() {
        let (own, block) = (id(OWN), id(OWN).earlier(1));
        let (other, of_other) = (id(OTHER), id(OTHER).earlier(1));
        let before = [admitted(other), started(other), output(), ended(other), started(of_other), output()];
        assert_eq!(looks(true, &before), "hAhhhh");
        assert_eq!(looks(false, &before), "SSSSSS", "nobody else is there");
        // A block of another client's command is admitted while one's own runs, and runs before one's own turn.
        let between = [
            admitted(block),
            started(block),
            admitted(of_other),
            output(),
            ended(block),
            started(of_other),
            output(),
            ended(of_other),
            admitted(own),
            started(own),
            output(),
        ];
        assert_eq!(looks(true, &between), "SShSSAhhSSS");
    }

    #[test]
    fn what_happens_between_turns_is_no_turn_of_another() {
        let block = id(OWN).earlier(1);
        let parked = provisional("session.parked", &json!({"reason": "it crashed"}));
        let events = [changed(), admitted(block), started(block), changed(), ended(block), changed(), parked];
        assert_eq!(looks(true, &events), "hSSSShS");
        // Its beginning was not seen.
        assert_eq!(looks(true, &[changed(), output(), ended(id(OTHER)), started(block)]), "hAhS");
        // One that waited is withdrawn while the own one runs.
        let events = [started(block), ended(id(OTHER)), output(), ended(block), output()];
        assert_eq!(looks(true, &events), "ShSSA");
    }

    #[test]
    fn a_turn_that_reads_the_own_prompt_is_the_own_one() {
        let other = id(OTHER);
        let mut focus = Focus::new(true, id(OWN));
        assert_eq!(focus.look(&started(other)), Look::AnotherFirst);
        assert_eq!(focus.look(&output()), Look::Hidden);
        focus.joins(other);
        assert_eq!((focus.turn(), focus.look(&output())), (other, Look::Shown));
        assert_eq!(focus.look(&admitted(id(OWN))), Look::Shown);
        assert_eq!(focus.look(&ended(other)), Look::Shown);
    }
}
