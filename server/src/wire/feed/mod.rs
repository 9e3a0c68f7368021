//! The events of a tenant's sessions, translated once for all clients of the wire.
//!
//! A feed begins with the first client that asks for something live. It reads the engine's hub, keeps the state of the
//! sessions that it saw lately, and writes the wire's events into a ring of its own.

mod load;
mod reader;
mod ring;
mod task;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use playhouse_protocol::event::ChangeAuthor;
use playhouse_protocol::{ConsentId, QuestionId, SessionId};
use tokio::sync::watch;

use crate::app::App;
use crate::principal::Principal;
use crate::wire::shapes::{MessageWithParts, PermissionRequest, QuestionRequest, Status};
use crate::wire::translate::Live;

pub(crate) use load::place;
pub(crate) use reader::Reader;
use ring::Ring;
use task::Work;

/// The feeds of all tenants: of each one for those with keys, and one for those without.
#[derive(Clone, Debug, Default)]
pub(crate) struct Feeds(Arc<Mutex<HashMap<Readers, Arc<Feed>>>>);

/// Whose clients read a feed, and whether they read errors as they came.
type Readers = (Arc<str>, bool);

/// The feed of one tenant.
#[derive(Debug)]
pub(crate) struct Feed {
    ring: Ring,
    /// The sessions that were seen lately, those with work among them always.
    lives: Mutex<HashMap<SessionId, Live>>,
    /// The last change of files that was told in a directory, by whom it was made.
    batches: Mutex<HashMap<(Arc<str>, ChangeAuthor), u64>>,
    /// Whether the sessions that had work at its beginning are known.
    ready: watch::Receiver<bool>,
}

impl Feeds {
    /// The feed of `principal`'s tenant. It is there on return, and knows the sessions that have work.
    pub(crate) async fn of(&self, app: &App, principal: &Principal) -> Arc<Feed> {
        let feed = {
            let mut feeds = self.0.lock();
            let (tenant, reads_all) = (&principal.tenant, principal.reads_all());
            let feed = feeds.entry((Arc::clone(tenant), reads_all));
            Arc::clone(feed.or_insert_with(|| Feed::start(app, tenant, reads_all)))
        };
        let mut ready = feed.ready.clone();
        // A feed that ended is as ready as it will be.
        drop(ready.wait_for(|ready| *ready).await);
        feed
    }
}

impl Feed {
    fn start(app: &App, tenant: &Arc<str>, reads_all: bool) -> Arc<Self> {
        let hub = app.engine().hub();
        let (said, ready) = watch::channel(false);
        let feed = Arc::new(Self {
            ring: Ring::new(hub.generation()),
            lives: Mutex::default(),
            batches: Mutex::default(),
            ready,
        });
        let listener = hub.listen(tenant, None, |_| true);
        let work = Work { app: app.clone(), tenant: Arc::clone(tenant), feed: Arc::clone(&feed), reads_all };
        tokio::spawn(Box::pin(task::run(work, listener, said)));
        feed
    }

    /// What a session does, if it was seen lately.
    pub(crate) fn status(&self, session: SessionId) -> Option<Status> {
        self.lives.lock().get(&session).map(|live| live.status().clone())
    }

    /// The answer under way of a session, with the parts that stream.
    pub(crate) fn current(&self, session: SessionId) -> Option<MessageWithParts> {
        self.lives.lock().get(&session).and_then(Live::current)
    }

    /// The requests for consent that wait, of sessions in this directory, or of all.
    pub(crate) fn permissions(&self, directory: Option<&str>) -> Vec<PermissionRequest> {
        self.waiting(directory, Live::permissions, |request| request.id)
    }

    /// The requests with questions that wait, of sessions in this directory, or of all.
    pub(crate) fn questions(&self, directory: Option<&str>) -> Vec<QuestionRequest> {
        self.waiting(directory, Live::questions, |request| request.id)
    }

    fn waiting<T, I: Ord>(
        &self,
        directory: Option<&str>,
        of: impl Fn(&Live) -> Vec<T>,
        id: impl Fn(&T) -> I,
    ) -> Vec<T> {
        let lives = self.lives.lock();
        let lives = lives.values();
        let wanted =
            lives.filter(|live| directory.is_none_or(|directory| directory == &*live.place().directory));
        let mut waiting: Vec<T> = wanted.flat_map(of).collect();
        waiting.sort_by_key(id);
        waiting
    }

    /// The session whose request for consent this is.
    pub(crate) fn of_permission(&self, request: ConsentId) -> Option<SessionId> {
        self.find(|live| live.permissions().iter().any(|asked| asked.id == request))
    }

    /// The session whose request with questions this is.
    pub(crate) fn of_question(&self, request: QuestionId) -> Option<SessionId> {
        self.find(|live| live.questions().iter().any(|asked| asked.id == request))
    }

    fn find(&self, is_it: impl Fn(&Live) -> bool) -> Option<SessionId> {
        self.lives.lock().iter().find(|(_, live)| !live.is_idle() && is_it(live)).map(|(id, _)| *id)
    }
}
