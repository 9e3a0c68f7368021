//! Forks: where a log is cut for one, and what a fork's own records begin with.
//!
//! A fork shares the records of another session up to a place, and goes on from there by itself. The place is one at
//! which no attempt is under way, so that every attempt is paid for once, by the session that made it. What else is open
//! there (a turn, its calls, requests to people) the fork ends with records of its own; it executes nothing.

use std::str::FromStr as _;

use playhouse_protocol::consent::PermissionRule;
use playhouse_protocol::id::{MessageId, SessionId};
use playhouse_protocol::record::Forked;
use playhouse_protocol::summary::UNTITLED;
use playhouse_protocol::{Entry, ModelRef, Seq};
use serde_json::{Map, Value};

use crate::effect::Stamp;
use crate::fold::{FoldError, Session};
use crate::machine::Machine;

/// Finds the place at which a log is cut for a fork. It is shown every entry of the log, in order.
#[derive(Debug)]
pub struct ForkPoint {
    /// The message before which it is cut.
    before: Option<MessageId>,
    /// The last place that is fit for a cut.
    fit: Seq,
    /// How many messages the conversation had there.
    messages: usize,
    /// The place before the message.
    found: Option<Seq>,
}

impl ForkPoint {
    /// The place before this message: all that was settled when the message came into the conversation. Without a message,
    /// the last place that is fit.
    pub fn new(before: Option<MessageId>) -> Self {
        Self { before, fit: Seq::START, messages: 0, found: None }
    }

    /// Looks at an entry, with the session as it is after it.
    pub fn look(&mut self, entry: &Entry, session: &Session) {
        let new = session.messages.get(self.messages..).unwrap_or_default();
        if self.found.is_none() && new.iter().any(|message| Some(message.id()) == self.before) {
            self.found = Some(self.fit);
        }
        if session.is_between_steps() {
            self.fit = entry.seq;
            self.messages = session.messages.len();
        }
    }

    /// The last place that the fork shares, with the session as it is after the last entry; `None` when it has no such
    /// message.
    pub fn place(&self, session: &Session) -> Option<Seq> {
        match (self.before, self.found) {
            (_, Some(found)) => Some(found),
            (None, None) => Some(self.fit),
            // One that still waits stands behind all that is in the conversation.
            (Some(before), None) => {
                let waits = session.waiting_ids().any(|waiting| waiting == before);
                waits.then_some(self.fit)
            }
        }
    }
}

/// What a fork is called and how it goes on: as the session that it is made from stands now.
#[derive(Clone, Debug, PartialEq)]
pub struct ForkOrder {
    /// The fork.
    pub session: SessionId,
    /// The session that it is made from.
    pub from: SessionId,
    /// Its title.
    pub title: String,
    /// Its agent.
    pub agent: String,
    /// Its model.
    pub model: ModelRef,
    /// Its own rules.
    pub permissions: Vec<PermissionRule>,
    /// What its clients keep with it.
    pub metadata: Map<String, Value>,
}

impl ForkOrder {
    /// The fork `session` of `from`, titled after what that is now.
    pub fn new(session: SessionId, from: SessionId, now: &Session) -> Self {
        let summary = &now.summary;
        Self {
            session,
            from,
            title: fork_title(&summary.title),
            agent: summary.agent.clone(),
            model: summary.model.clone(),
            permissions: now.permissions.clone(),
            metadata: summary.metadata.clone(),
        }
    }
}

/// The records with which a fork's own part begins, behind `prefix`, the session at the place of the cut: that it is a
/// fork, and the end of what was open there.
///
/// # Errors
/// The place is not fit for a cut: see [`Session::is_between_steps`].
pub fn fork(prefix: Session, order: ForkOrder, stamp: &mut Stamp<'_>) -> Result<Vec<Entry>, FoldError> {
    let summary = &prefix.summary;
    let forked = Forked {
        session: order.session,
        from: order.from,
        at: summary.head,
        tenant: summary.tenant.clone(),
        workspace: summary.workspace.clone(),
        title: order.title,
        agent: order.agent,
        model: order.model,
        permissions: order.permissions,
        metadata: order.metadata,
        turn: prefix.turn.as_ref().map(|turn| turn.id),
        changed: summary.changed,
    };
    Machine::fork(prefix, forked, stamp)
}

/// The title of a fork of a session with this title: `… (fork #1)`, and `… (fork #2)` for a fork of that.
pub fn fork_title(title: &str) -> String {
    // It gets one from its first prompt.
    if title == UNTITLED {
        return title.to_owned();
    }
    let numbered = title.strip_suffix(')').and_then(|rest| {
        let (base, number) = rest.rsplit_once(" (fork #")?;
        let is_number = !base.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        Some((base, u64::from_str(number).ok().filter(|_| is_number)?.checked_add(1)?))
    });
    let (base, number) = numbered.unwrap_or((title, 1));
    format!("{base} (fork #{number})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forks_are_counted_in_their_titles() {
        for (title, expected) in [
            ("Fix it", "Fix it (fork #1)"),
            ("Fix it (fork #1)", "Fix it (fork #2)"),
            ("Fix it (fork #9)", "Fix it (fork #10)"),
            ("Fix it (fork #x)", "Fix it (fork #x) (fork #1)"),
            ("Fix it (fork #+1)", "Fix it (fork #+1) (fork #1)"),
            (" (fork #1)", " (fork #1) (fork #1)"),
            ("a (fork #18446744073709551615)", "a (fork #18446744073709551615) (fork #1)"),
            (UNTITLED, UNTITLED),
        ] {
            assert_eq!(fork_title(title), expected);
        }
    }
}
