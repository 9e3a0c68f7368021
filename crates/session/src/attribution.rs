//! Whom the usage of a session's turns is attributed to.

use std::collections::VecDeque;

use playhouse_protocol::attribution::MOST_LABELS;
use playhouse_protocol::{Attribution, Labels, MessageId};

use crate::fold::Session;

/// So many turns are remembered: titles and summaries are written when their turn may be over.
const REMEMBERED: usize = 8;

/// What the prompts of the last turns said. Takes no memory as long as none said anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributions {
    turns: VecDeque<(MessageId, Option<Box<Attribution>>)>,
    /// The labels of the last prompt that had some: those of the session above, which sent it.
    above: Labels,
}

impl Attributions {
    /// A turn begins.
    pub(crate) fn begin(&mut self, turn: MessageId, said: Option<Box<Attribution>>) {
        if let Some(said) = said.as_deref().filter(|said| !said.labels.is_empty()) {
            self.above.clone_from(&said.labels);
        }
        if said.is_none() && self.turns.is_empty() {
            return;
        }
        if self.turns.len() >= REMEMBERED {
            self.turns.pop_front();
        }
        self.turns.push_back((turn, said));
    }

    /// What the prompt of this turn said; nothing of one that is not remembered.
    fn of(&self, turn: MessageId) -> Option<&Attribution> {
        let found = self.turns.iter().rev().find(|(begun, _)| *begun == turn);
        found.and_then(|(_, said)| said.as_deref())
    }
}

impl Session {
    /// Whom usage for `turn` is attributed to, where the session's own metadata has `labels`. A sub-session has those of the
    /// session above it as well: as that one sent them with the prompt, else as it sent them last.
    pub fn attribution(&self, turn: MessageId, labels: Labels) -> Option<Box<Attribution>> {
        let queued = self.queue.iter().find(|queued| queued.prompt.message == turn);
        let said = match queued {
            Some(queued) => queued.prompt.attribution.as_deref(),
            None => self.attributions.of(turn),
        };
        let sent = said.map(|said| &said.labels).filter(|labels| !labels.is_empty());
        let above = self.summary.parent.map(|_| sent.unwrap_or(&self.attributions.above));
        let mut all = labels;
        for (name, label) in above.into_iter().flatten() {
            if all.len() < MOST_LABELS && !all.contains_key(name) {
                all.insert(name.clone(), label.clone());
            }
        }
        Attribution { labels: all, key: said.and_then(|said| said.key.clone()) }.boxed()
    }
}
