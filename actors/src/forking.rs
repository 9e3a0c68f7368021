//! Making a fork: a session that goes on from a place in the log of another one.
//!
//! Nothing is asked of the other session's actor, and nothing is done to it: it may sleep, run or be parked. Its log is
//! read up to where it can be trusted, and the fork shares what stands there before the place of the cut.

use std::sync::Arc;

use playhouse_protocol::{CommandError, MessageId, SessionId};
use playhouse_session::{ForkOrder, ForkPoint, Stamp};
use playhouse_store::Append;

use crate::engine::Engine;
use crate::handle::SessionHandle;
use crate::hub::Owner;
use crate::session::DirectoryFacts;
use crate::shared::{Ids, Shared, now};
use crate::supervisor::owner;
use crate::wake::{Followed, follow, reopen};

impl Engine {
    /// Makes a fork of a session: what came before this message, or all that is settled by now. On return it is durable.
    ///
    /// It shares the records of that session, at no cost, and has its agent, model, rules and list of things to do. What
    /// waits or runs there does not run in the fork. What the session used so far, the session has used.
    ///
    /// # Errors
    /// There is no such session or message, nothing of the session can be read, its workspace is not the directory any more that
    /// it was, or the store failed.
    pub async fn fork(
        &self,
        from: SessionId,
        before: Option<MessageId>,
    ) -> Result<SessionHandle, CommandError> {
        let id: SessionId = self.ids.next();
        let (shared, ids) = (Arc::clone(&self.shared), self.ids.clone());
        let (owner, fork) = self.shared.pool.run(move || prepare(&shared, &ids, id, from, before)).await?;
        self.begin(owner, fork, |log, fork, done| log.fork(fork, done)).await
    }
}

/// Whose the fork is, and the records that it begins with. Blocks.
fn prepare(
    shared: &Shared,
    ids: &Ids,
    id: SessionId,
    from: SessionId,
    before: Option<MessageId>,
) -> Result<(Owner, Append), CommandError> {
    let log = &*shared.store.log;
    let mut point = ForkPoint::new(before);
    let Followed { session, ended } = follow(log, from, None, |entry, session| point.look(entry, session))?;
    let parked = || CommandError::Parked { session: from, reason: ended.clone().unwrap_or_default() };
    let session = session.ok_or_else(parked)?;
    if session.is_deleted() {
        return Err(CommandError::NotFound(from));
    }
    // A fork works in the same place, and could do nothing there.
    reopen(shared, &session.summary).map_err(CommandError::Invalid)?;
    let at = point.place(&session).ok_or_else(|| match before {
        Some(before) => CommandError::Invalid(format!("there is no message {before} in this session")),
        None => parked(),
    })?;
    let order = ForkOrder::new(id, from, &session);
    // A record that did not fit may have left half of what it says.
    let prefix = if at == session.summary.head && ended.is_none() {
        session
    } else {
        follow(log, from, Some(at), |_, _| {})?.session.ok_or_else(parked)?
    };
    let owner = owner(&prefix.summary);
    let facts = DirectoryFacts(shared.directory.as_ref());
    let mut ids = ids.lock();
    let mut stamp = Stamp { now: now(), ids: &mut ids, facts: &facts, jitter: 0.0 };
    let entries = playhouse_session::fork(prefix, order, &mut stamp)
        .map_err(|error| CommandError::NotAccepted(error.to_string()))?;
    let tenant = Arc::clone(&owner.tenant);
    Ok((owner, Append { session: id, tenant, expected: at, entries }))
}
