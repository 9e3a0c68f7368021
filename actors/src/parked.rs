//! The sessions that are parked, and why: so that lists tell it without a look into any log.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use playhouse_protocol::{CommandError, SessionId};

use crate::measure::Standing;

/// The sessions that are parked at the moment, with the reason of each.
#[derive(Debug, Default)]
pub(crate) struct ParkedSessions(Arc<Mutex<HashMap<SessionId, Arc<str>>>>);

/// A session is parked, until this is dropped.
#[derive(Debug)]
pub(crate) struct Parking {
    sessions: Arc<Mutex<HashMap<SessionId, Arc<str>>>>,
    session: SessionId,
    reason: Arc<str>,
    #[allow(dead_code, reason = "held for its count")]
    standing: Standing,
}

impl ParkedSessions {
    /// Parks a session, which counts as `standing`.
    pub(crate) fn park(&self, session: SessionId, reason: &str, standing: Standing) -> Parking {
        let reason: Arc<str> = reason.into();
        self.0.lock().insert(session, Arc::clone(&reason));
        Parking { sessions: Arc::clone(&self.0), session, reason, standing }
    }

    /// Why a session is parked, if it is.
    pub(crate) fn reason(&self, session: SessionId) -> Option<Arc<str>> {
        self.0.lock().get(&session).cloned()
    }
}

impl Parking {
    /// What those are told who want something of it.
    pub(crate) fn error(&self) -> CommandError {
        CommandError::Parked { session: self.session, reason: self.reason.to_string() }
    }
}

impl Drop for Parking {
    fn drop(&mut self) {
        let mut sessions = self.sessions.lock();
        // It may be parked anew by now.
        if sessions.get(&self.session).is_some_and(|reason| Arc::ptr_eq(reason, &self.reason)) {
            sessions.remove(&self.session);
        }
    }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::IdGenerator;

    use super::*;
    use crate::base::now;
    use crate::measure::{Census, Doing};

    #[test]
    fn a_session_is_parked_as_long_as_somebody_holds_it_so() {
        let census = Arc::<Census>::default();
        let sessions = ParkedSessions::default();
        let session = IdGenerator::new(|_| {}).next(now());
        let first = sessions.park(session, "one", census.standing(Doing::Parked));
        assert_eq!(sessions.reason(session).as_deref(), Some("one"));
        let second = sessions.park(session, "two", census.standing(Doing::Parked));
        drop(first);
        assert_eq!(sessions.reason(session).as_deref(), Some("two"));
        assert!(matches!(second.error(), CommandError::Parked { reason, .. } if reason == "two"));
        drop(second);
        assert_eq!((sessions.reason(session), census.doing(Doing::Parked)), (None, 0));
    }
}
