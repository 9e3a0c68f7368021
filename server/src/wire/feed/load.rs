//! Sessions that are seen for the first time in the middle: their logs are read.

use std::sync::Arc;

use playhouse_actors::{Engine, try_blocking};
use playhouse_protocol::{CommandError, Seq, SessionId, SessionSummary};
use playhouse_session::Session;

use super::task::Work;
use crate::app::App;
use crate::discreet;
use crate::roots::Roots;
use crate::wire::place::Place;
use crate::wire::translate::Live;

/// The most sessions that are asked for their parent. Sub-sessions do not go so deep.
const DEEPEST: usize = 64;

/// A session as its log says it up to `until`, or as it stands; `None` when it is gone or cannot be read.
pub(super) async fn load(work: &Work, id: SessionId, until: Option<Seq>) -> Option<Live> {
    let (app, reads_all) = (&work.app, work.reads_all);
    let (mut entries, _) = app.engine().read(id).await.ok()?;
    let fold = move || {
        for entry in entries.iter_mut().filter(|_| !reads_all) {
            if let Some(told) = discreet::record(&entry.record) {
                entry.record = told;
            }
        }
        let known = entries.iter().take_while(|entry| until.is_none_or(|until| entry.seq <= until));
        let mut session: Option<Session> = None;
        for entry in known {
            match &mut session {
                // What does not fit parks the session; up to there it can be told.
                Some(session) => session.apply(entry).ok()?,
                None => session = Some(Session::begin(entry).ok()?),
            }
        }
        session
    };
    let session = try_blocking(fold).await.ok()??;
    live(app, session).await
}

/// A session that is known.
pub(super) async fn live(app: &App, session: Session) -> Option<Live> {
    let place = place(app.roots_of_tenant(&session.summary.tenant), &session.summary.workspace).await?;
    let shown_on = shown_on(app.engine(), &session.summary).await.ok()?;
    Some(Live::new(session, Arc::new(place), app.facts().version().into(), shown_on))
}

/// The place of a session's directory.
pub(crate) async fn place(roots: Arc<Roots>, directory: &str) -> Option<Place> {
    let directory = directory.to_owned();
    let find = move || Place::find(&directory, |path| roots.hold(path));
    try_blocking(find).await.ok()
}

/// The session on which clients show the requests of this one: itself, if it has no parent or one that has none; else the
/// ancestor for which that holds. The terminal client shows the requests of direct children only.
async fn shown_on(engine: &Engine, summary: &SessionSummary) -> Result<SessionId, CommandError> {
    let (mut shown, mut above) = (summary.id, summary.parent);
    for _ in 0..DEEPEST {
        let Some(parent) = above else { break };
        match engine.summary(parent).await {
            Ok(SessionSummary { parent: Some(next), .. }) => (shown, above) = (parent, Some(next)),
            Ok(_) | Err(CommandError::NotFound(_)) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(shown)
}
