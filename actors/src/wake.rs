//! Reading a session from its log, and finding the place where it works: its directory, its rules, its walls.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use playhouse_protocol::id::PartId;
use playhouse_protocol::message::{CallPart, CallState, Message, Part};
use playhouse_protocol::summary::SessionState;
use playhouse_protocol::{
    ChangeSet, CommandError, Damage, Entry, Sandbox, Seq, SessionId, SessionSummary, Timestamp, WallsAllowed,
};
use playhouse_sandbox::walls::WallsError;
use playhouse_sandbox::{Walls, WallsSpec};
use playhouse_session::{FoldError, Session};
use playhouse_store::{Log, StoreError};
use playhouse_tools::ToolScope;
use playhouse_tools::storage::SessionStorage;
use playhouse_workspace::tree::TreeIndex;
use playhouse_workspace::{FileTracker, Workspace, door};

use crate::bounds::{Bound, OUT_OF_BOUNDS};
use crate::context::EngineContext;
use crate::directory::{Directory, Ground};
use crate::journal::Images;
use crate::judge::Judge;
use crate::seen::Kept;
use crate::storage::for_looking;

/// Entries that are read from a log at once.
pub(crate) const PAGE: usize = 1_024;
/// The end of a log to which nothing was added since its session was made.
const NEW: Seq = Seq::START.next();
/// The most sessions above a sub-session.
pub(crate) const DEEPEST: usize = 8;
/// So many sessions whose records a fork shares may have saved outputs that it reads.
const SHARED_OUTPUTS: usize = 64;

/// A session that was read from its log.
pub(crate) struct Loaded {
    pub(crate) session: Session,
    /// Where it works, or why it cannot.
    pub(crate) place: Result<Place, String>,
    /// What may be done in it.
    pub(crate) judge: Arc<Judge>,
    /// The session at the top, for a sub-session.
    pub(crate) root: Option<SessionId>,
    /// What it has seen of files.
    pub(crate) files: Arc<FileTracker>,
    /// By call, in words: whether the file that it was writing when the engine stopped was put back.
    pub(crate) interrupted: BTreeMap<String, String>,
    /// What calls changed that ran when the engine stopped.
    pub(crate) recovered: BTreeMap<PartId, ChangeSet>,
    /// The store takes no writes: what is at the end of the log may be gone when it does.
    pub(crate) unsure: bool,
    /// A session above it is being removed, and it goes with that one.
    pub(crate) doomed: bool,
}

/// What was read of a log.
pub(crate) enum Read {
    Session(Box<Loaded>),
    /// Its last record says that the session is deleted, and what hangs on it is still there.
    Deleted,
}

/// Where a session works.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) workspace: Arc<Workspace>,
    /// Bounds of what is saved for it.
    pub(crate) storage: SessionStorage,
    /// What holds the programs that it starts.
    pub(crate) walls: Walls,
    /// What the walls were built from.
    pub(crate) spec: Arc<WallsSpec>,
    /// Walls in which nothing of the workspace can be changed, once a call needed them.
    looking: Arc<OnceLock<Walls>>,
    /// The index of the workspace, or why it has none.
    pub(crate) tree: Result<Arc<TreeIndex>, String>,
}

impl Place {
    /// Walls in which nothing of the workspace can be changed: for programs of agents that change nothing. What such a program
    /// leaves in its HOME is seen by its like only. They may hold nothing, where nothing can be built: see
    /// [`Walls::keep_the_workspace`].
    pub(crate) fn walls_for_looking(&self) -> Result<Walls, WallsError> {
        if let Some(walls) = self.looking.get() {
            return Ok(walls.clone());
        }
        let allowed = &self.spec.allowed;
        let read = allowed.read.iter().chain(&allowed.write).cloned().collect();
        let spec = WallsSpec {
            sandbox: Sandbox::BestEffort,
            allowed: WallsAllowed { read, write: Vec::new(), read_only: true, ..allowed.clone() },
            home: for_looking(&self.spec.home),
            ..WallsSpec::clone(&self.spec)
        };
        let walls = Walls::when_needed(&Arc::new(spec))?;
        Ok(self.looking.get_or_init(|| walls).clone())
    }
}

/// Reads a session from its log. Blocks.
pub(crate) fn load(shared: &Arc<EngineContext>, id: SessionId) -> Result<Read, CommandError> {
    let was_sure = shared.takes_writes().is_ok();
    let session = replay(shared, id)?;
    if session.is_deleted() {
        return Ok(Read::Deleted);
    }
    let unsure = !was_sure || shared.takes_writes().is_err();
    let summary = &session.summary;
    let mut kept = shared.seen.take(id);
    let placed = place(shared, summary, &session.shares_with, session.walls.as_ref(), &mut kept);
    let (place, ground, directory) = match placed {
        Ok((place, ground, directory)) => (Ok(place), ground, directory),
        // It can be read; nothing can be done in it.
        Err(reason) => (Err(reason), Ground::default(), Arc::clone(&shared.directory)),
    };
    if place.is_ok() {
        shared.tools.load(&ToolScope {
            tenant: summary.tenant.as_str().into(),
            workspace: Path::new(&summary.workspace).into(),
            session: summary.id,
        });
    }
    let interrupted =
        place.as_ref().map_or_else(|_| BTreeMap::new(), |place| door::restore(&place.workspace));
    let recovered = place.as_ref().map_or_else(|_| BTreeMap::new(), |place| recover(shared, &session, place));
    let book = shared.grants.book(&*shared.store.shelf, &summary.tenant, &summary.workspace);
    let bounds = Bound {
        bounds: shared.bounds.clone(),
        tenant: summary.tenant.as_str().into(),
        workspace: summary.workspace.as_str().into(),
    };
    let above = match summary.parent {
        Some(parent) => ancestors(&*shared.store.log, parent)?,
        None => Above::default(),
    };
    let judge = Judge::new(directory, ground, &session.permissions, book, shared.user_home.clone(), bounds)
        .below(above.sessions.len(), shared.limits.tasks.depth);
    let (root, doomed) = (above.sessions.last().copied(), above.is_removed);
    Ok(Read::Session(Box::new(Loaded {
        place,
        judge: Arc::new(judge),
        root,
        session,
        files: kept.files,
        interrupted,
        recovered,
        unsure,
        doomed,
    })))
}

/// What the calls changed that ran when the engine stopped, and are not run again. Files of which the log has the state before
/// are compared with what is there; of other calls it is known which files changed since. Blocks.
fn recover(shared: &Arc<EngineContext>, session: &Session, place: &Place) -> BTreeMap<PartId, ChangeSet> {
    let images = Images { shared: Arc::clone(shared), tenant: session.summary.tenant.as_str().into() };
    let cut_off = session.cut_off_calls();
    let recovered = cut_off.map(|call| {
        let set = if call.before.is_empty() {
            let began = session.call(call.id).and_then(|call| match &call.state {
                CallState::Running { started, .. } => Some(*started),
                _ => None,
            });
            let known = began.map(|began| told_since(session, began)).unwrap_or_default();
            images.recovered_since(place.workspace.root(), began, &known)
        } else {
            images.recovered(&place.workspace, &call.before)
        };
        (call.id, set)
    });
    recovered.collect()
}

/// Files that calls which go on when another one began say themselves: how change sets name them.
fn told_since(session: &Session, began: Timestamp) -> HashSet<&str> {
    let cut_off = session.cut_off_calls().flat_map(|call| &call.before).map(|file| &*file.path);
    let answers = session.messages.iter().rev().filter_map(|message| match message {
        Message::Assistant(answer) => Some(&answer.parts),
        Message::User(_) => None,
    });
    let ended = answers.flatten().filter_map(|part| match part {
        Part::Call(CallPart { state: CallState::Settled(result), changed, .. }) if result.ended >= began => {
            changed.as_ref()
        }
        _ => None,
    });
    cut_off.chain(ended.flat_map(|changed| &changed.0).map(|file| &*file.path)).collect()
}

fn replay(shared: &EngineContext, id: SessionId) -> Result<Session, CommandError> {
    let log = &shared.store.log;
    let Followed { session, ended } = fold(&**log, id, None, |session, entry| {
        match session {
            Some(session) => session.take(entry)?,
            None => *session = Some(Session::begin(&entry)?),
        }
        Ok(())
    })?;
    if let Some(damage) = ended {
        return Err(CommandError::Parked { session: id, reason: damage.to_string() });
    }
    let mut session = session.ok_or(CommandError::NotFound(id))?;
    // Most that are read are only looked at.
    session.shrink();
    Ok(session)
}

/// How far a log could be followed.
pub(crate) struct Followed {
    /// The session there; `None` when not even the first record can be trusted.
    pub(crate) session: Option<Session>,
    /// The record at which it ends there, when that is not its end.
    pub(crate) ended: Option<Damage>,
}

/// Folds the log of a session, up to `until` or to its end, and shows each entry with the session after it. Blocks.
///
/// # Errors
/// There is no such session, or the store failed.
pub(crate) fn follow(
    log: &dyn Log,
    id: SessionId,
    until: Option<Seq>,
    mut each: impl FnMut(&Entry, &Session),
) -> Result<Followed, CommandError> {
    fold(log, id, until, |session, entry| {
        match session {
            Some(session) => session.apply(&entry)?,
            None => *session = Some(Session::begin(&entry)?),
        }
        if let Some(session) = session {
            each(&entry, session);
        }
        Ok(())
    })
}

/// Reads the log of a session, up to `until` or to its end. `add` adds each entry to the session.
fn fold(
    log: &dyn Log,
    id: SessionId,
    until: Option<Seq>,
    mut add: impl FnMut(&mut Option<Session>, Entry) -> Result<(), FoldError>,
) -> Result<Followed, CommandError> {
    let mut session: Option<Session> = None;
    let mut after = Seq::START;
    loop {
        let left = until.map_or(u64::MAX, |until| until.0.saturating_sub(after.0));
        let limit = usize::try_from(left).unwrap_or(usize::MAX).min(PAGE);
        let read = log.read(id, after, limit)?;
        let count = read.entries.len();
        for entry in read.entries {
            after = entry.seq;
            if let Err(error) = add(&mut session, entry) {
                return Ok(Followed { session, ended: Some(error.into()) });
            }
        }
        if let Some(damage) = read.damage {
            return Ok(Followed { session, ended: Some(damage) });
        }
        if count < PAGE {
            return Ok(Followed { session, ended: None });
        }
    }
}

/// What stands above a session.
#[derive(Default)]
pub(crate) struct Above {
    /// From the one directly above it to the top, as far as they exist.
    pub(crate) sessions: Vec<SessionId>,
    /// One of them is being removed.
    pub(crate) is_removed: bool,
}

/// What stands above a session whose parent is `parent`.
pub(crate) fn ancestors(log: &dyn Log, parent: SessionId) -> Result<Above, StoreError> {
    let mut above = Above::default();
    let mut next = Some(parent);
    while let Some(id) = next.filter(|_| above.sessions.len() < DEEPEST) {
        let Some(summary) = log.summary(id)? else { break };
        above.sessions.push(id);
        above.is_removed |= summary.state == SessionState::Deleted;
        next = summary.parent;
    }
    Ok(above)
}

/// The workspace of a session: still the directory that it was, and where the operator lets its tenant work. Blocks.
pub(crate) fn reopen(shared: &EngineContext, summary: &SessionSummary) -> Result<Workspace, String> {
    let output = shared.outputs.join(summary.id.as_str());
    let opened = Workspace::reopen(summary.workspace.as_ref(), output).map_err(|error| error.to_string())?;
    if !shared.bounds.hold_workspace(&summary.tenant, opened.root()) {
        return Err(format!("the workspace {} {OUT_OF_BOUNDS}", summary.workspace));
    }
    Ok(opened)
}

/// Where a session works, what holds there, and the agents and models that it may use.
type Grounded = (Place, Ground, Arc<dyn Directory>);

/// Whether a session can work where it was made to, and why not. Blocks.
pub(crate) fn look(
    shared: &EngineContext,
    summary: &SessionSummary,
    shares_with: &[SessionId],
    walls: Option<&WallsAllowed>,
) -> Result<(), String> {
    place(shared, summary, shares_with, walls, &mut Kept::default()).map(drop)
}

fn place(
    shared: &EngineContext,
    summary: &SessionSummary,
    shares_with: &[SessionId],
    wanted: Option<&WallsAllowed>,
    kept: &mut Kept,
) -> Result<Grounded, String> {
    let opened = reopen(shared, summary)?;
    // What it reads of calls that it shares names outputs that were saved there.
    let nearest = shares_with.iter().rev().take(SHARED_OUTPUTS);
    let others: Vec<PathBuf> = nearest.map(|other| shared.outputs.join(other.as_str())).collect();
    let workspace = opened.hiding(shared.hidden.clone()).sharing(others.clone());
    let ground = shared.directory.ground(&summary.tenant, workspace.root())?;
    let directory = Arc::clone(&shared.directory).local(workspace.root())?;
    let spec = Arc::new(WallsSpec {
        sandbox: ground.sandbox,
        allowed: allowed(&ground.walls, wanted),
        workspace: workspace.root().to_owned(),
        output: workspace.output().to_owned(),
        shared: others,
        home: shared.home(summary),
        hidden: shared.hidden.clone(),
        roots: ground.roots.clone(),
    });
    let walls = match kept.walls_of(&spec) {
        // Programs find in `/tmp` what they had put there.
        Some(walls) => walls,
        // Most that wake are only looked at, or start no program.
        None => Walls::when_needed(&spec).map_err(|error| error.to_string())?,
    };
    if spec.sandbox == Sandbox::Required && summary.head == NEW {
        // Whoever made it is told that nothing can be done in it.
        walls.in_force().map_err(|error| error.to_string())?;
    }
    // What it holds was looked at.
    workspace.check().map_err(|error| error.to_string())?;
    let storage = shared.storage_of(summary, workspace.output());
    let tree = shared.trees.of(workspace.root());
    let place = Place { workspace: Arc::new(workspace), storage, walls, spec, looking: Arc::default(), tree };
    Ok((place, ground, directory))
}

/// What the walls of a session let through: what the operator lets through, and of that what the session wants.
///
/// Both are compared with their links resolved, so that no link leads out of what the operator named. A directory that
/// the session wants and that is not there is left out.
fn allowed(operator: &WallsAllowed, session: Option<&WallsAllowed>) -> WallsAllowed {
    let resolve = |directory: &String| {
        let resolved = fs_err::canonicalize(Path::new(directory)).ok()?;
        resolved.to_str().map(str::to_owned)
    };
    let all = |directories: &[String]| {
        directories.iter().map(|directory| resolve(directory).unwrap_or_else(|| directory.clone())).collect()
    };
    let operator =
        WallsAllowed { read: all(&operator.read), write: all(&operator.write), ..operator.clone() };
    let Some(session) = session else { return operator };
    let wanted = WallsAllowed {
        read: session.read.iter().filter_map(resolve).collect(),
        write: session.write.iter().filter_map(resolve).collect(),
        ..session.clone()
    };
    operator.narrowed(&wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_link_leads_out_of_what_the_operator_named() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs_err::canonicalize(folder.path()).unwrap();
        for name in ["sdk/lib", "secret"] {
            fs_err::create_dir_all(root.join(name)).unwrap();
        }
        fs_err::os::unix::fs::symlink(root.join("secret"), root.join("sdk/out")).unwrap();
        fs_err::os::unix::fs::symlink(root.join("sdk"), root.join("tools")).unwrap();
        let text = |name: &str| root.join(name).to_str().unwrap().to_owned();
        let operator = WallsAllowed { read: vec![text("tools")], network: true, ..WallsAllowed::default() };
        let read = ["tools/lib", "sdk/lib", "sdk/out", "secret", "sdk/missing"].map(text).to_vec();
        let wanted = WallsAllowed { read, write: vec![text("sdk")], ..WallsAllowed::default() };
        let through = allowed(&operator, Some(&wanted));
        assert_eq!(through.read, [text("sdk/lib"), text("sdk/lib")]);
        assert!(through.write.is_empty() && !through.network);
        assert_eq!(allowed(&operator, None).read, [text("sdk")]);
    }
}
