//! Whom the usage of a session's turns is attributed to.

use std::collections::VecDeque;

use playhouse_protocol::attribution::MOST_LABELS;
use playhouse_protocol::record::PromptAdmitted;
use playhouse_protocol::{Attribution, Labels, MessageId, SessionId};

use crate::fold::Session;

/// So many turns are remembered: titles and summaries are written when their turn may be over.
const REMEMBERED: usize = 8;

/// What the prompts of the last turns said. Takes no memory as long as none said anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributions {
    turns: VecDeque<Said>,
    /// The labels of the last prompt that the session above sent.
    above: Labels,
}

/// What the prompt of a turn said.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    turn: MessageId,
    /// Whether the session above sent it.
    is_from_above: bool,
    attribution: Option<Box<Attribution>>,
}

impl Attributions {
    /// A turn begins with this prompt, in a session below `parent`.
    pub(crate) fn begin(&mut self, prompt: &PromptAdmitted, parent: Option<SessionId>) {
        let (is_from_above, attribution) = (is_from(prompt, parent), prompt.attribution.clone());
        if is_from_above {
            self.above = attribution.as_deref().map(|said| said.labels.clone()).unwrap_or_default();
        }
        if attribution.is_none() && !is_from_above && self.turns.is_empty() {
            return;
        }
        if self.turns.len() >= REMEMBERED {
            self.turns.pop_front();
        }
        self.turns.push_back(Said { turn: prompt.message, is_from_above, attribution });
    }
}

/// Whether the session above sent this prompt.
fn is_from(prompt: &PromptAdmitted, parent: Option<SessionId>) -> bool {
    parent.is_some() && prompt.handed.as_deref().map(|handed| handed.from) == parent
}

impl Session {
    /// Whom usage for `turn` is attributed to, where the session's own metadata has `labels`. A sub-session has those of the
    /// session above it as well: exactly as that one sent them with the prompt, none included. A prompt that somebody else
    /// sent has those that came with it, else as the session above sent them last.
    pub fn attribution(&self, turn: MessageId, labels: Labels) -> Option<Box<Attribution>> {
        let parent = self.summary.parent;
        let queued = self.queue.iter().map(|queued| &queued.prompt).find(|prompt| prompt.message == turn);
        let (said, is_from_above) = match queued {
            Some(prompt) => (prompt.attribution.as_deref(), is_from(prompt, parent)),
            None => {
                let said = self.attributions.turns.iter().rev().find(|said| said.turn == turn);
                said.map_or((None, false), |said| (said.attribution.as_deref(), said.is_from_above))
            }
        };
        let sent = said.map(|said| &said.labels).filter(|labels| !labels.is_empty());
        let last = (!is_from_above).then_some(&self.attributions.above);
        let above = parent.and(sent.or(last));
        let mut all = labels;
        for (name, label) in above.into_iter().flatten() {
            if all.len() < MOST_LABELS && !all.contains_key(name) {
                all.insert(name.clone(), label.clone());
            }
        }
        Attribution { labels: all, key: said.and_then(|said| said.key.clone()) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::record::SessionCreated;
    use playhouse_protocol::{Entry, IdGenerator, ModelRef, Record, Seq, Timestamp};
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_session_above_sends_is_taken_exactly() {
        let (mut number, at) = (0, Timestamp::from_millis(1));
        let mut ids = IdGenerator::new(move |bytes| {
            number += 1;
            bytes.fill(number);
        });
        let (above, other): (SessionId, SessionId) = (ids.next(at), ids.next(at));
        let created = SessionCreated::new(ids.next(at), "acme", "/w", "tester", ModelRef::new("p", "m"));
        let record = Record::SessionCreated(SessionCreated { parent: Some(above), ..created });
        let mut session = Session::begin(&Entry { seq: Seq::START.next(), at, record }).unwrap();
        let mut begin = |session: &mut Session, from: Option<SessionId>, customer: Option<&str>| {
            let turn: MessageId = ids.next(at);
            let mut prompt = json!({"message": turn, "parts": [], "agent": "tester", "model": "p/m"});
            if let Some(from) = from {
                prompt["handed"] = json!({"from": from, "agent": "tester", "model": "p/m"});
            }
            if let Some(customer) = customer {
                prompt["attribution"] = json!({"labels": {"customer": customer}});
            }
            let prompt: PromptAdmitted = serde_json::from_value(prompt).unwrap();
            session.attributions.begin(&prompt, Some(above));
            turn
        };
        let labels = |session: &Session, turn| {
            let all = session.attribution(turn, Labels::new()).map(|said| said.labels).unwrap_or_default();
            all.get("customer").cloned()
        };
        let first = begin(&mut session, Some(above), Some("c-1"));
        let direct = begin(&mut session, None, None);
        assert_eq!(labels(&session, direct).as_deref(), Some("c-1"), "as it was sent last");
        let report = begin(&mut session, Some(other), Some("c-0"));
        let cleared = begin(&mut session, Some(above), None);
        assert_eq!(labels(&session, cleared), None);
        let direct = begin(&mut session, None, None);
        assert_eq!(labels(&session, direct), None, "the session above has none any more");
        let last = begin(&mut session, Some(above), Some("c-2"));
        // Titles and summaries come later.
        let all = [first, report, cleared, last].map(|turn| labels(&session, turn));
        let expected = [Some("c-1"), Some("c-0"), None, Some("c-2")];
        assert_eq!(all.iter().map(Option::as_deref).collect::<Vec<_>>(), expected);
    }
}
