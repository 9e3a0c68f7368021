//! What a model is told of errors after its edits.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use metrics::histogram;
use parking_lot::Mutex;
use playhouse_lsp::{Known, Problem, RequestError, Touch};
use playhouse_protocol::metric::Metric;
use playhouse_tools::changed::{FileWrite, path_text};
use playhouse_tools::{CallContext, CallObserver, ObservedCall, Showing, ToolError, ToolOutput, ToolScope};
use playhouse_workspace::Workspace;
use tokio::time::{Instant, timeout, timeout_at};

use super::kind::{ServerKey, Servers};
use super::report::{self, Checked};
use super::running::Running;
use super::{Inner, Job, Lease, Standing};
use crate::base::spawn_on;

/// How long a call waits for a server that runs, before and after its edit together.
const WAIT: Duration = Duration::from_millis(1_500);
/// How much of that it may wait before its edit, for what is wrong by then.
const BEFORE: Duration = Duration::from_millis(500);
/// How long it is waited for what is told with a later result.
const LATE: Duration = Duration::from_secs(60);
/// How long the reason is waited for why a server ended.
const REASON: Duration = Duration::from_secs(3);
/// Files that the session has read which a server is shown, so that it says what an edit breaks there.
const MOST_READ: usize = 20;
/// Files of a command that a server hears of.
const MOST_PASSED: usize = 200;

/// Sees one call.
pub(crate) struct LspObserver {
    servers: Arc<Inner>,
    scope: ToolScope,
    before: Mutex<Before>,
}

/// What was known before the call.
#[derive(Default)]
struct Before {
    /// Whether its result tells of errors.
    is_edit: bool,
    /// For how long it waited.
    waited: Duration,
    /// What was wrong with files, and how many of them a server was shown.
    known: HashMap<PathBuf, Option<Arc<[Problem]>>>,
    /// What servers had published of files that they were not shown.
    beside: HashMap<ServerKey, Beside>,
}

/// Problems of files that a server was not shown.
type Beside = HashMap<PathBuf, Vec<Problem>>;

/// What is asked of a server about one edit.
struct Question {
    job: Job,
    /// The files of the job that were written, and are there.
    edited: Vec<PathBuf>,
    touched: Vec<(PathBuf, Touch)>,
    known: HashMap<PathBuf, Option<Arc<[Problem]>>>,
    /// Absent where the server did not run before.
    beside: Option<Beside>,
    workspace: Arc<Workspace>,
    showing: Showing,
    scope: ToolScope,
}

impl LspObserver {
    pub(super) fn new(servers: Arc<Inner>, scope: ToolScope) -> Self {
        Self { servers, scope, before: Mutex::default() }
    }

    /// Shows a server that runs the files of an edit, and those that the session has read, as they are.
    async fn prepare(&self, job: &Job, context: &CallContext, until: Instant) -> Option<()> {
        if !matches!(self.servers.standing(&job.key), Standing::Warm) {
            return None;
        }
        let lease = self.servers.lease(&job.key, self.scope.session).await.ok()?;
        let running = lease.child();
        let is_read = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            path.starts_with(&job.key.root)
                && name.is_some_and(|name| job.server.entry.takes(name))
                && !job.paths.contains(path)
        };
        let read = context.files.paths().into_iter().filter(is_read).take(MOST_READ);
        let paths: Vec<PathBuf> = job.paths.iter().cloned().chain(read).collect();
        // One that ends here is told after the edit.
        running.show(&context.workspace, &paths).await.ok()?;
        let unknown: Vec<PathBuf> =
            paths.iter().filter(|path| running.shows(path) && !running.is_current(path)).cloned().collect();
        running.diagnose(&unknown, until).await;
        // What was said before something else changed may not hold any more.
        let said = |path: &PathBuf| running.said(path).filter(|_| running.is_current(path));
        let known: Vec<_> = paths.into_iter().map(|path| (path.clone(), said(&path))).collect();
        let mut before = self.before.lock();
        before.known.extend(known);
        before.beside.insert(job.key.clone(), running.client.beside());
        drop(before);
        Some(())
    }
}

impl CallObserver for LspObserver {
    fn before<'a>(&'a self, call: ObservedCall<'a>, context: &'a CallContext) -> BoxFuture<'a, ()> {
        async move {
            if !call.names_all_it_writes() {
                return;
            }
            let begun = Instant::now();
            self.before.lock().is_edit = true;
            let written = call.written().map(PathBuf::from);
            for job in self.servers.jobs(&self.scope, written).await {
                let until = begun + BEFORE;
                // What is not known in time is asked for after the edit.
                drop(timeout_at(until, self.prepare(&job, context, until)).await);
            }
            self.before.lock().waited = begun.elapsed();
        }
        .boxed()
    }

    fn after<'a>(
        &'a self,
        ended: &'a mut Result<ToolOutput, ToolError>,
        context: &'a CallContext,
    ) -> BoxFuture<'a, ()> {
        async move {
            let mut writes = context.writes.files();
            if !self.before.lock().is_edit {
                // Of a command that wrote many a server hears when it is asked for them.
                writes.truncate(MOST_PASSED);
            }
            let all = writes.iter().map(|write| (write.path.clone(), touch(write))).collect();
            self.servers.tell_other_workspaces(&self.scope, all);
            let paths = writes.iter().map(|write| write.path.clone());
            let jobs = self.servers.jobs(&self.scope, paths).await;
            if jobs.is_empty() {
                return;
            }
            let Before { is_edit, waited, known, mut beside } = std::mem::take(&mut *self.before.lock());
            let until = Instant::now() + WAIT.saturating_sub(waited);
            for job in jobs {
                let of_job = |write: &&FileWrite| job.paths.contains(&write.path);
                let touched = writes.iter().filter(of_job).map(|write| (write.path.clone(), touch(write)));
                let there = writes.iter().filter(of_job).filter(|write| write.after.is_some());
                let made = writes.iter().filter(of_job).filter(|write| write.before.is_none());
                let mut known = known.clone();
                known.extend(made.map(|write| (write.path.clone(), Some(Arc::from([])))));
                let question = Question {
                    edited: there.map(|write| write.path.clone()).collect(),
                    touched: touched.collect(),
                    known,
                    beside: beside.remove(&job.key),
                    workspace: Arc::clone(&context.workspace),
                    showing: context.host.showing(),
                    scope: self.scope.clone(),
                    job,
                };
                if !is_edit {
                    // The result of a command tells nothing, but a server that runs hears of what it changed.
                    if matches!(self.servers.standing(&question.job.key), Standing::Warm) {
                        let servers = Arc::clone(&self.servers);
                        spawn_on(&self.servers.runtime, async move { question.pass_on(&servers).await });
                    }
                    continue;
                }
                let (server, begun) = (question.job.key.name.to_string(), Instant::now());
                let text = tokio::select! {
                    biased;
                    () = context.cancel.cancelled() => None,
                    text = question.answer(&self.servers, until) => text,
                };
                let waited = waited.saturating_add(begun.elapsed());
                histogram!(Metric::LspWait.name(), "server" => server).record(waited.as_secs_f64());
                if let (Some(text), Ok(output)) = (text, &mut *ended) {
                    output.output.push_str(&format!("\n\n{text}"));
                }
            }
        }
        .boxed()
    }

    fn tell(&self, ended: &mut Result<ToolOutput, ToolError>) {
        let Some(notes) = self.servers.notes.lock().remove(&self.scope.session) else { return };
        let notes = notes.join("\n");
        match ended {
            Ok(output) => output.output.insert_str(0, &format!("{notes}\n\n")),
            Err(ToolError::Invalid(text) | ToolError::Failed(text) | ToolError::Cancelled(text)) => {
                text.push_str(&format!("\n\n{notes}"));
            }
        }
    }
}

fn touch(write: &FileWrite) -> Touch {
    match (&write.before, &write.after) {
        (_, None) => Touch::Removed,
        (None, Some(_)) => Touch::Made,
        (Some(_), Some(_)) => Touch::Changed,
    }
}

impl Question {
    /// What the model is told with the result of its edit.
    async fn answer(self, servers: &Arc<Inner>, until: Instant) -> Option<String> {
        let key = &self.job.key;
        if let Standing::Cold = servers.standing(key) {
            let text = (!self.edited.is_empty()).then(|| {
                let names: Vec<String> = self.edited.iter().map(|path| self.shown(path)).collect();
                format!(
                    "Language server {key}: errors in {}: not known yet, the server starts; what it says stands at the start of a later result",
                    names.join(", ")
                )
            });
            self.later(servers);
            return text;
        }
        let lease = match timeout_at(until, servers.lease(key, self.scope.session)).await {
            Ok(Ok(lease)) => lease,
            Ok(Err(error)) => return Some(error),
            Err(_) => {
                let text = format!("Language server {key}: not known yet, the server does not answer");
                self.later(servers);
                return Some(text);
            }
        };
        match timeout_at(until, self.show(lease.child())).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Some(self.ended_by(&lease, &error, until, servers).await),
            Err(_) => {
                let text = format!(
                    "Language server {key}: not known yet, the server is busy; what it says stands at the start of a later result"
                );
                self.later(servers);
                return Some(text);
            }
        }
        if self.edited.is_empty() {
            return None;
        }
        match self.check(lease.child(), until).await {
            Ok((edited, _)) if edited.is_empty() => None,
            Ok((edited, others)) => {
                let text = report::text(&key.name, &edited, &others);
                if edited.iter().any(|file| file.now == Known::NotYet) {
                    self.later(servers);
                }
                Some(text)
            }
            Err(error) => Some(self.ended_by(&lease, &error, until, servers).await),
        }
    }

    /// The text for a server that ended, as far as it is known within the wait. The reason may come with a later result.
    async fn ended_by(
        &self,
        lease: &Lease<Servers>,
        error: &RequestError,
        until: Instant,
        servers: &Arc<Inner>,
    ) -> String {
        let key = &self.job.key;
        if let Ok(reason) = timeout_at(until, lease.gone()).await {
            return format!("Language server {key}: errors are not known, it died: {reason}");
        }
        let text = format!("Language server {key}: errors are not known: {error}");
        let (key, session, gone) = (key.clone(), self.scope.session, lease.gone());
        let weak = Arc::downgrade(servers);
        spawn_on(&servers.runtime, async move {
            if let (Ok(reason), Some(servers)) = (timeout(REASON, gone).await, weak.upgrade()) {
                servers.note(session, format!("(of an edit before) Language server {key} died: {reason}"));
            }
        });
        text
    }

    /// Tells of the edit with a later result, once the server said something of it.
    fn later(self, servers: &Arc<Inner>) {
        let session = self.scope.session;
        let servers = Arc::downgrade(servers);
        let Some(runtime) = servers.upgrade().map(|servers| servers.runtime.clone()) else { return };
        spawn_on(&runtime, async move {
            let Some(inner) = servers.upgrade() else { return };
            let key = self.job.key.clone();
            let about = format!("(of an edit before) Language server {key}");
            let lease = match inner.lease(&key, session).await {
                Ok(lease) => lease,
                Err(error) => return inner.note(session, format!("(of an edit before) {error}")),
            };
            drop(inner);
            let running = Arc::clone(lease.child());
            let checked = match self.show(&running).await {
                Ok(()) => {
                    let versions = || -> Vec<_> {
                        self.edited.iter().map(|path| running.client.version(path)).collect()
                    };
                    let asked = versions();
                    let checked = self.check(&running, Instant::now() + LATE).await;
                    // What was edited again is told with that edit.
                    if versions() != asked {
                        return;
                    }
                    checked
                }
                Err(error) => Err(error),
            };
            let text = match checked {
                Ok((edited, _)) if edited.is_empty() => return,
                Ok((edited, others)) if edited.iter().any(|file| file.now != Known::NotYet) => {
                    format!("(of an edit before) {}", report::text(&key.name, &edited, &others))
                }
                Ok(_) => format!("{about}: it said nothing of it within {} s", LATE.as_secs()),
                Err(error) => self.ended(&lease, &error).await,
            };
            if let Some(inner) = servers.upgrade() {
                inner.note(session, text);
            }
        });
    }

    /// Shows a server what a command changed.
    async fn pass_on(self, servers: &Arc<Inner>) {
        if let Ok(lease) = servers.lease(&self.job.key, self.scope.session).await
            && let Err(error) = self.show(lease.child()).await
        {
            tracing::debug!(server = %self.job.key, %error, "a language server does not hear of changes");
        }
    }

    async fn show(&self, running: &Running) -> Result<(), RequestError> {
        running.show(&self.workspace, &self.edited).await?;
        running.client.touched(&self.touched).await
    }

    /// What is wrong with the edited files, and with the others that the server was shown before.
    async fn check(
        &self,
        running: &Running,
        until: Instant,
    ) -> Result<(Vec<Checked>, Vec<Checked>), RequestError> {
        let others = self.known.keys().filter(|path| !self.edited.contains(path) && running.shows(path));
        // What is no text, or too large, is not shown.
        let edited: Vec<&PathBuf> = self.edited.iter().filter(|path| running.shows(path)).collect();
        let count = edited.len();
        let paths: Vec<PathBuf> = edited.into_iter().chain(others).cloned().collect();
        let answers = running.diagnose(&paths, until).await;
        let mut checked = Vec::new();
        for (path, now) in paths.iter().zip(answers) {
            let before = self.known.get(path).cloned().flatten();
            checked.push(Checked { shown: self.shown(path), before, now: now? });
        }
        let mut others = checked.split_off(count);
        if let Some(before) = &self.beside {
            let beside =
                running.client.beside().into_iter().filter(|(path, _)| {
                    path.starts_with(&self.scope.workspace) && !self.edited.contains(path)
                });
            others.extend(beside.map(|(path, problems)| Checked {
                shown: self.shown(&path),
                before: Some(before.get(&path).map_or(&[][..], Vec::as_slice).into()),
                now: Known::Found { problems, is_verified: false },
            }));
            others.sort_by(|one, other| one.shown.cmp(&other.shown));
        }
        others.retain(|file| self.showing.allows(&file.shown));
        Ok((checked, others))
    }

    fn shown(&self, path: &Path) -> String {
        path_text(self.workspace.root(), path)
    }

    /// What is told where a server cannot be asked any more.
    async fn ended(&self, lease: &Lease<Servers>, error: &RequestError) -> String {
        let key = &self.job.key;
        match timeout(REASON, lease.gone()).await {
            Ok(reason) => format!("Language server {key}: errors are not known, it died: {reason}"),
            Err(_) => format!("Language server {key}: errors are not known: {error}"),
        }
    }
}
