//! Making a fork: a session that goes on from a place in the log of another one.
//!
//! Nothing is asked of the other session's actor, and nothing is done to it: it may sleep, run or be parked. Its log is
//! read up to where it can be trusted, and the fork shares what stands there before the place of the cut.

use std::sync::Arc;

use playhouse_protocol::{CommandError, Damage, MessageId, SessionId};
use playhouse_session::{ForkOrder, ForkPoint, Stamp};
use playhouse_store::Append;

use crate::api::engine::Engine;
use crate::api::handle::SessionHandle;
use crate::api::reading::past;
use crate::base::{Ids, now};
use crate::context::EngineContext;
use crate::directory::DirectoryFacts;
use crate::events::hub::Owner;
use crate::wake::{Followed, follow, reopen};

/// Where a fork leaves the session that it is made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForkAt {
    /// Behind all that is settled by now.
    #[default]
    Now,
    /// Before this message.
    Before(MessageId),
    /// Behind all that is settled and can be read: what comes after a record that cannot be trusted is given up.
    Readable,
}

impl ForkAt {
    /// As a request says it: before a message, or else now, where all that can be `readable` is enough if the request says so.
    ///
    /// # Errors
    /// It says both: a fork that ends before a message ends there in any case.
    pub fn new(before: Option<MessageId>, readable: bool) -> Result<Self, CommandError> {
        match (before, readable) {
            (None, false) => Ok(Self::Now),
            (None, true) => Ok(Self::Readable),
            (Some(before), false) => Ok(Self::Before(before)),
            (Some(_), true) => Err(CommandError::Invalid(
                "a fork leaves the session before a message or behind all that can be read, not both".into(),
            )),
        }
    }
}

impl From<Option<MessageId>> for ForkAt {
    /// Before this message, or now.
    fn from(before: Option<MessageId>) -> Self {
        before.map_or(Self::Now, Self::Before)
    }
}

impl Engine {
    /// Makes a fork of a session, which leaves it there. On return it is durable.
    ///
    /// It shares the records of that session, at no cost, and has its agent, model, rules and list of things to do. What
    /// waits or runs there does not run in the fork. What the session used so far, the session has used.
    ///
    /// # Errors
    /// There is no such session or message, nothing of the session can be read, or not all that would have to be in the fork,
    /// its workspace is not the directory any more that it was, or the store failed.
    pub async fn fork(&self, from: SessionId, at: impl Into<ForkAt>) -> Result<SessionHandle, CommandError> {
        let id: SessionId = self.ids.next();
        let (shared, ids, at) = (Arc::clone(&self.shared), self.ids.clone(), at.into());
        let (owner, fork) = self.shared.pool.run(move || prepare(&shared, &ids, id, from, at)).await?;
        self.begin(owner, fork, |log, fork, done| log.fork(fork, done)).await
    }
}

/// Whose the fork is, and the records that it begins with. Blocks.
fn prepare(
    shared: &EngineContext,
    ids: &Ids,
    id: SessionId,
    from: SessionId,
    leaves: ForkAt,
) -> Result<(Owner, Append), CommandError> {
    let log = &*shared.store.log;
    let before = match leaves {
        ForkAt::Before(before) => Some(before),
        ForkAt::Now | ForkAt::Readable => None,
    };
    let mut point = ForkPoint::new(before);
    let Followed { session, ended } = follow(log, from, None, |entry, session| point.look(entry, session))?;
    let parked = || {
        let reason = ended.as_ref().map(Damage::to_string).unwrap_or_default();
        CommandError::Parked { session: from, reason }
    };
    let session = session.ok_or_else(parked)?;
    if session.is_deleted() {
        return Err(CommandError::NotFound(from));
    }
    // A fork works in the same place, and could do nothing there.
    reopen(shared, &session.summary).map_err(CommandError::Invalid)?;
    if let (ForkAt::Now, Some(damage)) = (leaves, &ended) {
        let reason = format!(
            "{damage}. what comes from there on would be missing in the fork: fork it before one of the messages that can be read, \
             or ask for a fork of all that is readable (`readable` in a request, `--fork --readable` of a command)"
        );
        return Err(CommandError::Parked { session: from, reason });
    }
    let at = point.place(&session).ok_or_else(|| match before {
        Some(before) => {
            let missing = format!("there is no message {before} in this session");
            CommandError::Invalid(past(missing, ended.as_ref()))
        }
        None => parked(),
    })?;
    let order = ForkOrder::new(id, from, &session);
    // A record that did not fit may have left half of what it says.
    let prefix = if at == session.summary.head && ended.is_none() {
        session
    } else {
        follow(log, from, Some(at), |_, _| {})?.session.ok_or_else(parked)?
    };
    let owner = Owner::of(&prefix.summary);
    let facts = DirectoryFacts(shared.directory.as_ref(), &|_, _| None);
    let mut ids = ids.lock();
    let mut stamp = Stamp { now: now(), ids: &mut ids, facts: &facts, jitter: 0.0 };
    let entries = playhouse_session::fork(prefix, order, &mut stamp)
        .map_err(|error| CommandError::NotAccepted(error.to_string()))?;
    let tenant = Arc::clone(&owner.tenant);
    Ok((owner, Append { session: id, tenant, expected: at, entries }))
}
