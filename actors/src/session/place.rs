//! A session whose workspace was not there when it was read: it looks again when somebody wants work done there, so that one whose
//! volume is mounted late works as soon as it is, in memory or not.

use std::sync::Arc;
use std::time::Duration;

use playhouse_protocol::CommandError;
use ractor::ActorRef;

use super::SessionState;
use crate::base::spawn;
use crate::listening::ListeningSession;
use crate::mailbox::{SessionMessage, UNSURE};
use crate::wake::{self, Place};

/// How long one that is about to be read again waits for what is under way in it.
const UNDER_WAY: Duration = Duration::from_millis(5);

impl SessionState {
    /// Hears of changes of its workspace from now on.
    pub(super) fn listen(&mut self) {
        let Ok(Place { tree: Ok(tree), .. }) = &self.place else { return };
        if std::mem::replace(&mut self.listens, true) {
            return;
        }
        let listener = ListeningSession {
            session: self.id,
            tenant: Arc::clone(&self.tenant),
            ring: Arc::downgrade(&self.ring),
            files: Arc::downgrade(&self.files),
        };
        self.shared.listeners.listen(tree, listener);
    }

    /// Looks again for the place where it works, away from this actor, or waits for who looks already: what needs it waits.
    pub(super) fn look_again(&mut self, myself: &ActorRef<SessionMessage>, message: SessionMessage) {
        self.looking.push(message);
        if self.looking.len() > 1 {
            return;
        }
        let session = self.machine.session();
        let (summary, shares_with) = (session.summary.clone(), session.shares_with.clone());
        let (walls, shared, myself) = (session.walls.clone(), self.shared.clone(), myself.clone());
        spawn(async move {
            let pool = shared.pool.clone();
            let look = move || wake::look(&shared, &summary, &shares_with, walls.as_ref());
            // One that is gone meanwhile accepted nothing: callers ask the one after it.
            drop(myself.send_message(SessionMessage::Looked(pool.run(look).await)));
        });
    }

    /// It was looked for. Where it is there the session is read again, as the rules that hold there belong to it as well: those
    /// who wait are told nothing, and ask the one that is read then.
    pub(super) fn looked(&mut self, myself: &ActorRef<SessionMessage>, found: Result<(), String>) {
        match found {
            Err(missing) => {
                for port in std::mem::take(&mut self.looking).into_iter().filter_map(SessionMessage::port) {
                    // A caller that went away needs no answer.
                    drop(port.send(Err(CommandError::Invalid(missing.clone()))));
                }
            }
            Ok(()) if self.rests() => {
                self.keep_seen();
                myself.stop(Some(UNSURE.to_owned()));
            }
            Ok(()) => drop(myself.send_after(UNDER_WAY, || SessionMessage::Looked(Ok(())))),
        }
    }
}
