//! What commands changed in a workspace: an index of it is compared before and after each call that does not name its writes.
//!
//! Calls of file tools are told to the index, so that their writes are no command's. See `docs/design/changes.md`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use playhouse_protocol::Timestamp;
use playhouse_tools::changed::{WriteLog, path_text};
use playhouse_tools::{CallContext, CallObserver, Intent, ObservedCall, ToolError, ToolOutput};
use playhouse_workspace::Pool;
use playhouse_workspace::tree::{HeldFiles, SeenChanges, Tracking, TreeIndex, TreeLimits, Watcher};

use crate::base::{spawn, spawn_on};

/// Files that are not covered and named in the answer of a call.
const NAMED: usize = 3;

/// The indexes of all workspaces in which something runs or ran lately: one for each, shared by all sessions.
#[derive(Debug)]
pub(crate) struct Trees {
    limits: TreeLimits,
    /// Where contents are kept meanwhile.
    folder: PathBuf,
    /// The directory of the user that the engine runs for: it gets no index.
    user_home: Option<PathBuf>,
    /// What is no file of a workspace, wherever it lies: the engine's own files.
    hidden: Vec<PathBuf>,
    known: Mutex<HashMap<PathBuf, Weak<TreeIndex>>>,
}

impl Trees {
    pub(crate) fn new(
        limits: TreeLimits,
        folder: PathBuf,
        user_home: Option<PathBuf>,
        hidden: Vec<PathBuf>,
    ) -> Self {
        // Workspaces are compared with it, and of these links are resolved.
        let user_home = user_home.map(|home| fs_err::canonicalize(&home).unwrap_or(home));
        Self { limits, folder, user_home, hidden, known: Mutex::default() }
    }

    /// The index of the workspace at `root`. Whoever holds it keeps it in memory.
    ///
    /// # Errors
    /// Why it has none.
    pub(crate) fn of(&self, root: &Path) -> Result<Arc<TreeIndex>, String> {
        self.may_have_one(root)?;
        let mut known = self.known.lock();
        if let Some(index) = known.get(root).and_then(Weak::upgrade) {
            return Ok(index);
        }
        known.retain(|_, index| index.strong_count() > 0);
        let index = Arc::new(self.new_index(root));
        known.insert(root.to_owned(), Arc::downgrade(&index));
        Ok(index)
    }

    fn may_have_one(&self, root: &Path) -> Result<(), String> {
        let is_home = self.user_home.as_deref().is_some_and(|home| home.starts_with(root));
        if is_home || root == Path::new("/") {
            let what =
                if root == Path::new("/") { "the root of the file system" } else { "a home directory" };
            return Err(format!("the workspace is {what}, so changes of commands are not covered by undo"));
        }
        Ok(())
    }

    /// Files of the workspace at `root` that changed since then, which nobody watched: what they were is not known. Blocks.
    pub(crate) fn changed_since(&self, root: &Path, since: Timestamp) -> Result<SeenChanges, String> {
        self.may_have_one(root)?;
        let index = self.new_index(root);
        index.changed_since(Duration::from_millis(since.as_millis()))
    }

    fn new_index(&self, root: &Path) -> TreeIndex {
        TreeIndex::new(root, &self.folder, self.limits.clone(), &self.hidden)
    }

    /// The indexes in use of all workspaces that `path` lies in.
    fn around(&self, path: &Path) -> Vec<Arc<TreeIndex>> {
        let around: Vec<_> = {
            let known = self.known.lock();
            path.ancestors().filter_map(|root| known.get(root)?.upgrade()).collect()
        };
        around.into_iter().filter(|index| index.is_used()).collect()
    }

    /// Says to all of them that a tool is about to write the file. Blocks.
    pub(crate) fn hold(&self, session: &Arc<str>, path: &Path) -> Vec<HeldFiles> {
        self.around(path).iter().map(|index| index.hold(session, [path])).collect()
    }
}

/// Watches one call.
pub(crate) struct Tracker {
    pub(crate) trees: Arc<Trees>,
    pub(crate) watcher: Watcher,
    /// The index of the session's workspace, or why there is none.
    pub(crate) index: Result<Arc<TreeIndex>, String>,
    pub(crate) state: Mutex<Watching>,
}

/// What is watched.
#[derive(Default)]
pub(crate) enum Watching {
    #[default]
    Nothing,
    /// Files that the call's tool writes.
    Files(Vec<HeldFiles>),
    /// The workspace.
    Workspace(Ending),
    /// Nothing, and why.
    Unknown(String),
}

/// A call whose changes are told when it ends, however it does.
pub(crate) struct Ending {
    tracking: Option<Tracking>,
    writes: WriteLog,
    pool: Pool,
}

impl Ending {
    /// What changed. Blocks.
    fn end(tracking: Tracking, writes: &WriteLog) -> SeenChanges {
        let mut seen = tracking.end();
        let SeenChanges { files, folders, ambiguous, .. } = &mut seen;
        writes.saw(std::mem::take(files), std::mem::take(folders), std::mem::take(ambiguous));
        seen.gaps.iter().for_each(|gap| writes.misses(gap.as_str()));
        seen
    }
}

impl Drop for Ending {
    /// The call was killed, or panicked.
    fn drop(&mut self) {
        if let Some(tracking) = self.tracking.take() {
            let (writes, pool) = (self.writes.clone(), self.pool.clone());
            // The log is open for as long as this runs.
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                spawn_on(&runtime, async move { drop(pool.run(move || Self::end(tracking, &writes)).await) });
            }
        }
    }
}

impl Tracker {
    fn take(&self) -> Watching {
        std::mem::take(&mut *self.state.lock())
    }

    fn put(&self, watching: Watching) {
        *self.state.lock() = watching;
    }
}

impl CallObserver for Tracker {
    fn intend<'a>(
        &'a self,
        call: ObservedCall<'a>,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<Intent, ToolError>> {
        let tracked = call.changes_unnamed_files();
        if tracked || call.names_all_it_writes() {
            context.writes.watch();
        }
        async move { Ok(Intent { tracked, ..Intent::default() }) }.boxed()
    }

    fn before<'a>(&'a self, call: ObservedCall<'a>, context: &'a CallContext) -> BoxFuture<'a, ()> {
        if call.names_all_it_writes() {
            let paths = call.written().map(Path::new);
            let around: Vec<_> = paths.map(|path| (path.to_owned(), self.trees.around(path))).collect();
            if around.iter().all(|(_, indexes)| indexes.is_empty()) {
                return futures::future::ready(()).boxed();
            }
            let pool = context.pool.clone();
            let session = Arc::clone(&self.watcher.session);
            return async move {
                let held = pool.run(move || {
                    let mut held = Vec::new();
                    for (path, indexes) in &around {
                        held.extend(indexes.iter().map(|index| index.hold(&session, [path.as_path()])));
                    }
                    held
                });
                self.put(Watching::Files(held.await));
            }
            .boxed();
        }
        if !call.changes_unnamed_files() {
            return futures::future::ready(()).boxed();
        }
        async move {
            let index = match &self.index {
                Ok(index) => Arc::clone(index),
                Err(why) => {
                    context.writes.misses(why.as_str());
                    return self.put(Watching::Unknown(why.clone()));
                }
            };
            index.ask_git().await;
            let (watcher, writes, pool) =
                (self.watcher.clone(), context.writes.clone(), context.pool.clone());
            let tracking = pool.run(move || index.begin(&watcher)).await;
            self.put(Watching::Workspace(Ending {
                tracking: Some(tracking),
                writes,
                pool: context.pool.clone(),
            }));
        }
        .boxed()
    }

    fn after<'a>(
        &'a self,
        ended: &'a mut Result<ToolOutput, ToolError>,
        context: &'a CallContext,
    ) -> BoxFuture<'a, ()> {
        let watching = self.take();
        if matches!(watching, Watching::Nothing) {
            return futures::future::ready(()).boxed();
        }
        async move {
            let mut ending = match watching {
                Watching::Nothing => return,
                Watching::Unknown(why) => return say(ended, &why),
                Watching::Files(held) => {
                    // One that was cut off may write on: then nobody can tell.
                    if matches!(ended, Err(ToolError::Cancelled(_))) {
                        return context.pool.run(move || drop(held)).await;
                    }
                    let (writes, folders) = (context.writes.files(), context.writes.folders());
                    let tell = move || held.into_iter().for_each(|held| held.wrote(&writes, &folders));
                    return context.pool.run(tell).await;
                }
                Watching::Workspace(ending) => ending,
            };
            let background = ended.as_ref().ok().and_then(|output| {
                output.metadata.get("background")?.as_bool()?.then_some(())?;
                output.metadata.get("processId")?.as_str()
            });
            if let Some(id) = background {
                match when_it_ends(ending, id, context).await {
                    Some(same) => ending = same,
                    None => return,
                }
            }
            let Some(tracking) = ending.tracking.take() else { return };
            let writes = ending.writes.clone();
            let seen = ending.pool.run(move || Ending::end(tracking, &writes)).await;
            for gap in &seen.gaps {
                say(ended, gap);
            }
            if let Some(text) = not_covered(context, &seen) {
                say(ended, &text);
            }
        }
        .boxed()
    }
}

/// Tells what a command that goes on in the background changed, once it ends. Gives back what is to be told now, if it is over
/// already.
async fn when_it_ends(mut ending: Ending, id: &str, context: &CallContext) -> Option<Ending> {
    let command = context.processes.find(id).ok().filter(playhouse_sandbox::BackgroundCommand::runs);
    let Some(command) = command else { return Some(ending) };
    ending.writes.goes_on();
    if let Some(tracking) = ending.tracking.take() {
        let tracking = ending.pool.run(move || {
            tracking.in_background();
            tracking
        });
        ending.tracking = Some(tracking.await);
    }
    spawn(async move {
        command.ended().await;
        if let Some(tracking) = ending.tracking.take() {
            let writes = ending.writes.clone();
            ending.pool.run(move || Ending::end(tracking, &writes)).await;
        }
    });
    None
}

/// Names files that an undo cannot bring back, as far as they may be read.
fn not_covered(context: &CallContext, seen: &SeenChanges) -> Option<String> {
    let showing = context.host.showing();
    let paths = seen.not_covered.iter().map(|(path, why)| (path_text(context.workspace.root(), path), why));
    let shown: Vec<String> =
        paths.filter(|(path, _)| showing.allows(path)).map(|(path, why)| format!("{path} ({why})")).collect();
    let named = &shown[..shown.len().min(NAMED)];
    let more = shown.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!named.is_empty())
        .then(|| format!("changes of these files are not covered by undo: {}{more}", named.join(", ")))
}

/// Adds a line to what the model reads.
fn say(ended: &mut Result<ToolOutput, ToolError>, text: &str) {
    match ended {
        Ok(output) => output.output.push_str(&format!("\n[{text}]")),
        Err(ToolError::Invalid(said) | ToolError::Failed(said) | ToolError::Cancelled(said)) => {
            said.push_str(&format!("\n[{text}]"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_directory_behind_a_link_gets_no_index() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs_err::canonicalize(folder.path()).unwrap();
        fs_err::create_dir_all(root.join("var/home/u/project")).unwrap();
        fs_err::os::unix::fs::symlink("var/home", root.join("home")).unwrap();
        let home = Some(root.join("home/u"));
        let trees = Trees::new(TreeLimits::default(), root.clone(), home, Vec::new());
        assert!(trees.of(&root.join("var/home/u")).unwrap_err().contains("a home directory"));
        assert!(trees.of(&root.join("var/home/u/project")).is_ok());
    }
}
