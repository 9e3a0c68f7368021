//! Sessions that hear of changes of their workspaces: by events, by the next result of a call where they read what changed, and
//! through language servers.
//!
//! A workspace is watched from the first call of a session there until no session that is in memory works in it. What changed is
//! told a moment after the first of several changes. See `docs/design/changes.md`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use playhouse_lsp::Touch;
use playhouse_protocol::SessionId;
use playhouse_protocol::changes::ChangeKind;
use playhouse_protocol::event::{ChangeAuthor, ChangedPath, FilesChanged, Provisional};
use playhouse_sandbox::folder::Folder;
use playhouse_tools::changed::path_text;
use playhouse_tools::{CallObserver, ToolError, ToolOutput};
use playhouse_workspace::tree::{ChangedBy, Ears, FileChange, News, TreeIndex};
use playhouse_workspace::{FileTracker, Pool, hash};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::base::{now, spawn};
use crate::events::ring::Ring;
use crate::shared::lsp::LspServers;

/// Time from the first change to the look that collects it and those after it.
const MERGED: Duration = Duration::from_millis(100);
/// Workspaces that are watched at once: a user may have 128 watches, and has other programs.
const MOST_WATCHED: usize = 64;
/// Bytes of a file that are read to see whether it differs from what a session read.
const LARGEST: u64 = 16 * 1024 * 1024;
/// Files that an event names.
const TOLD: usize = 500;
/// Files that a result names.
const NAMED: usize = 20;

/// The sessions that are told when files of their workspaces change.
pub(crate) struct Listeners {
    pool: Pool,
    lsp: Option<LspServers>,
    /// Permits for watches: each watched workspace holds one.
    room: Arc<Semaphore>,
    by_root: Mutex<HashMap<PathBuf, Listening>>,
}

/// Who listens in one workspace.
#[derive(Default)]
struct Listening {
    /// Number of the last batch of changes. It is never used again, also after the watch ended and began anew.
    batch: u64,
    listeners: Vec<ListeningSession>,
    /// The tenant of each session that ever listened.
    tenants: HashMap<Arc<str>, Arc<str>>,
}

/// A session that listens.
#[derive(Clone)]
pub(crate) struct ListeningSession {
    pub(crate) session: SessionId,
    pub(crate) tenant: Arc<str>,
    pub(crate) ring: Weak<Ring>,
    /// The files that it has read.
    pub(crate) files: Weak<FileTracker>,
}

impl Listeners {
    pub(crate) fn new(pool: Pool, lsp: Option<LspServers>) -> Self {
        let room = Arc::new(Semaphore::new(MOST_WATCHED));
        Self { pool, lsp, room, by_root: Mutex::default() }
    }

    /// A session listens from now on, for as long as it is in memory.
    pub(crate) fn listen(self: &Arc<Self>, index: &Arc<TreeIndex>, listener: ListeningSession) {
        {
            let mut by_root = self.by_root.lock();
            by_root.retain(|_, listening| listening.is_needed());
            let listening = by_root.entry(index.root().to_owned()).or_default();
            listening.listeners.retain(|other| other.session != listener.session);
            listening.tenants.insert(listener.session.as_str().into(), Arc::clone(&listener.tenant));
            listening.listeners.push(listener);
        }
        let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() else {
            tracing::debug!("as many workspaces are watched as may be");
            return;
        };
        if !index.expect_watch() {
            return;
        }
        let (this, index) = (Arc::clone(self), Arc::clone(index));
        spawn(async move {
            let root = index.root().to_owned();
            index.ask_git().await;
            let (watched, last) = (Arc::clone(&index), Arc::downgrade(&index));
            drop(index);
            match this.pool.run(move || watched.watch()).await {
                Ok(ears) => {
                    this.hear(&root, &last, ears).await;
                    if let Some(index) = last.upgrade() {
                        // A session that comes may try again.
                        this.pool.run(move || index.watch_failed()).await;
                    }
                }
                Err(why) => {
                    tracing::info!(root = %root.display(), why, "changes of a workspace are not heard of")
                }
            }
            drop(permit);
        });
    }

    /// Tells of changes until the index is gone.
    async fn hear(&self, root: &Path, index: &Weak<TreeIndex>, ears: Ears) {
        #[expect(
            deprecated,
            reason = "an owned descriptor stays what it is, so its number is safe to register"
        )]
        let events = AsyncFd::with_interest(ears.events, Interest::READABLE);
        let events = match events {
            Ok(events) => events,
            Err(error) => {
                tracing::warn!(%error, "changes of a workspace are not heard of");
                return;
            }
        };
        loop {
            tokio::select! {
                ready = events.readable() => match ready {
                    Ok(mut ready) => ready.clear_ready(),
                    Err(_) => return,
                },
                () = ears.told.notified() => {}
            }
            if index.strong_count() == 0 {
                return;
            }
            sleep(MERGED).await;
            let Some(index) = index.upgrade() else { return };
            match self.pool.run(move || index.news()).await {
                Some(news) if news.is_empty() => {}
                Some(news) => self.tell(root, news).await,
                None => return,
            }
        }
    }

    async fn tell(&self, root: &Path, news: News) {
        let (batch, listeners, tenants) = {
            let mut by_root = self.by_root.lock();
            let Some(listening) = by_root.get_mut(root) else { return };
            listening.batch = now().as_millis().max(listening.batch + 1);
            (listening.batch, listening.listeners.clone(), listening.tenants.clone())
        };
        let (readers, news) = (listeners.clone(), Arc::new(news));
        let changed = Arc::clone(&news);
        // Before the event: who reads that hears of it with the next call.
        self.pool.run(move || outdate(&readers, &changed.files)).await;
        for listener in &listeners {
            let Some(ring) = listener.ring.upgrade() else { continue };
            let mut by_author: BTreeMap<(ChangeAuthor, Option<SessionId>), Vec<&FileChange>> =
                BTreeMap::new();
            for file in news.files.iter().take(TOLD) {
                by_author.entry(author(&file.by, &listener.tenant, &tenants)).or_default().push(file);
            }
            let mut more = news.more + news.files.len().saturating_sub(TOLD) as u64;
            for ((by, session), files) in by_author {
                let told =
                    |file: &&FileChange| ChangedPath { path: path_text(root, &file.path), kind: file.kind };
                let files = files.iter().map(told).collect();
                let changed = FilesChanged { batch, by, session, files, more: std::mem::take(&mut more) };
                ring.write(|writer| writer.notice(Provisional::FileChanged(changed)));
            }
        }
        self.tell_servers(root, &listeners, &news).await;
    }

    /// Language servers hear of what no session told them.
    async fn tell_servers(&self, root: &Path, listeners: &[ListeningSession], news: &News) {
        let Some(servers) = &self.lsp else { return };
        let foreign = news.files.iter().filter(|file| !matches!(file.by, ChangedBy::Session(_)));
        let touch = |kind| match kind {
            ChangeKind::Added => Touch::Made,
            ChangeKind::Modified => Touch::Changed,
            ChangeKind::Deleted => Touch::Removed,
        };
        let changes: Vec<_> = foreign.map(|file| (file.path.clone(), touch(file.kind))).collect();
        if changes.is_empty() {
            return;
        }
        let tenants: HashSet<&str> = listeners.iter().map(|listener| &*listener.tenant).collect();
        for tenant in tenants {
            servers.hear(tenant, root, &changes).await;
        }
    }
}

impl Listening {
    fn is_needed(&self) -> bool {
        self.listeners.iter().any(|listener| listener.ring.strong_count() > 0)
    }
}

/// Who changed a file, as a tenant may know it: another one's session is somebody outside.
fn author(
    by: &ChangedBy,
    tenant: &str,
    tenants: &HashMap<Arc<str>, Arc<str>>,
) -> (ChangeAuthor, Option<SessionId>) {
    match by {
        ChangedBy::Outside => (ChangeAuthor::Outside, None),
        ChangedBy::Unclear => (ChangeAuthor::Unclear, None),
        ChangedBy::Session(session) => match (tenants.get(session), SessionId::parse(session)) {
            (Some(of), Ok(session)) if **of == *tenant => (ChangeAuthor::Session, Some(session)),
            (Some(_), _) => (ChangeAuthor::Outside, None),
            (None, _) => (ChangeAuthor::Unclear, None),
        },
    }
}

/// Marks files that sessions have read and others changed as out of date. Blocks.
fn outdate(listeners: &[ListeningSession], changed: &[FileChange]) {
    for change in changed {
        let knows = |listener: &&ListeningSession| {
            let files = listener.files.upgrade().filter(|files| files.known(&change.path).is_some());
            let is_own = matches!(&change.by, ChangedBy::Session(by) if **by == *listener.session.as_str());
            files.filter(|_| !is_own)
        };
        let knowing: Vec<_> = listeners.iter().filter_map(|listener| knows(&listener)).collect();
        if knowing.is_empty() {
            continue;
        }
        let content = change.content.or_else(|| {
            let folder = Folder::open(change.path.parent()?).ok()?;
            folder.bytes(change.path.file_name()?, LARGEST).map(|bytes| hash(&bytes))
        });
        knowing.iter().for_each(|files| files.outdate(&change.path, content));
    }
}

/// Tells a model with the next result which of the files that it has read others changed.
pub(crate) struct StaleReads {
    pub(crate) root: PathBuf,
    pub(crate) files: Arc<FileTracker>,
}

impl CallObserver for StaleReads {
    fn tell(&self, ended: &mut Result<ToolOutput, ToolError>) {
        let stale = self.files.take_outdated();
        if stale.is_empty() {
            return;
        }
        let named: Vec<String> = stale.iter().take(NAMED).map(|path| path_text(&self.root, path)).collect();
        let more = stale.len() - named.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let text = format!("[changed by others since you read it: {}{more}]", named.join(", "));
        match ended {
            Ok(output) => output.output.insert_str(0, &format!("{text}\n\n")),
            Err(ToolError::Invalid(said) | ToolError::Failed(said) | ToolError::Cancelled(said)) => {
                said.push_str(&format!("\n\n{text}"));
            }
        }
    }
}
