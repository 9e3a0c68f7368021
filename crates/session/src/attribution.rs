//! Whom the usage of a session's turns is attributed to.

use std::collections::VecDeque;

use playhouse_protocol::attribution::MOST_LABELS;
use playhouse_protocol::{Attribution, Labels, MessageId};

use crate::fold::Session;

/// So many turns are remembered: titles and summaries are written when their turn may be over.
const REMEMBERED: usize = 8;

/// What the prompts of the last turns said. Takes no memory as long as none said anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributions(VecDeque<(MessageId, Option<Box<Attribution>>)>);

impl Attributions {
    /// A turn begins.
    pub(crate) fn begin(&mut self, turn: MessageId, said: Option<Box<Attribution>>) {
        if said.is_none() && self.0.is_empty() {
            return;
        }
        if self.0.len() >= REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((turn, said));
    }

    /// What the prompt of this turn said; nothing of one that is not remembered.
    fn of(&self, turn: MessageId) -> Option<&Attribution> {
        let found = self.0.iter().rev().find(|(begun, _)| *begun == turn);
        found.and_then(|(_, said)| said.as_deref())
    }
}

impl Session {
    /// Whom usage for `turn` is attributed to, where the session's own metadata has `labels`. A sub-session has those of the
    /// session that sent its prompt as well.
    pub fn attribution(&self, turn: MessageId, labels: Labels) -> Option<Box<Attribution>> {
        let queued = self.queue.iter().find(|queued| queued.prompt.message == turn);
        let said = match queued {
            Some(queued) => queued.prompt.attribution.as_deref(),
            None => self.attributions.of(turn),
        };
        let above = said.filter(|_| self.summary.parent.is_some()).map(|said| &said.labels);
        let mut all = labels;
        for (name, label) in above.into_iter().flatten() {
            if all.len() < MOST_LABELS && !all.contains_key(name) {
                all.insert(name.clone(), label.clone());
            }
        }
        Attribution { labels: all, key: said.and_then(|said| said.key.clone()) }.boxed()
    }
}
