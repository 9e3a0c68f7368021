//! A session whose workspace was not there when it was read: it looks again for each who wants work done there, so that one whose
//! volume is mounted late works as soon as it is, in memory or not.

use std::time::Duration;

use playhouse_protocol::CommandError;
use ractor::ActorRef;

use super::{SessionMessage, SessionState};
use crate::supervisor::UNSURE;
use crate::wake;

/// How long one that is about to be read again waits for what is under way in it.
const UNDER_WAY: Duration = Duration::from_millis(5);

impl SessionState {
    /// Looks again for the place where it works, away from this actor. What is found comes back with the message that needs it.
    pub(super) fn look_again(&self, myself: &ActorRef<SessionMessage>, message: SessionMessage) {
        let session = self.machine.session();
        let (summary, shares_with) = (session.summary.clone(), session.shares_with.clone());
        let (walls, shared, myself) = (session.walls.clone(), self.shared.clone(), myself.clone());
        tokio::spawn(async move {
            let pool = shared.pool.clone();
            let look = move || wake::look(&shared, &summary, &shares_with, walls.as_ref());
            let looked = pool.run(look).await;
            // One that is gone meanwhile accepted nothing: its caller asks the one after it.
            drop(myself.send_message(SessionMessage::Looked(looked, Box::new(message))));
        });
    }

    /// It was looked for. Where it is there the session is read again, as the rules that hold there belong to it as well: its
    /// caller is told nothing, and asks the one that is read then.
    pub(super) fn looked(
        &self,
        myself: &ActorRef<SessionMessage>,
        found: Result<(), String>,
        message: Box<SessionMessage>,
    ) {
        match found {
            Err(missing) => {
                if let Some(port) = message.port() {
                    // A caller that went away needs no answer.
                    drop(port.send(Err(CommandError::Invalid(missing))));
                }
            }
            Ok(()) if self.rests() => {
                self.keep_seen();
                myself.stop(Some(UNSURE.to_owned()));
            }
            Ok(()) => {
                let later = SessionMessage::Looked(Ok(()), message);
                drop(myself.send_after(UNDER_WAY, || later));
            }
        }
    }
}
