//! A server that was introduced: the files that it is shown, and what it says of them.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use url::Url;

use crate::connection::{Connection, Hears, RequestError};
use crate::diagnostics::{Known, Problem, Told};
use crate::position::{Encoding, lines};

/// How long nothing may come after diagnostics that name no version, until they count.
const QUIET: Duration = Duration::from_millis(300);
/// How long a server may take to end by itself.
const FAREWELL: Duration = Duration::from_secs(2);
/// The most files whose diagnostics are kept that a server sends on its own.
const MOST_FILES: usize = 500;
/// The most work of a server that is followed at once.
const MOST_WORK: usize = 100;
/// The longest token of a work, as JSON.
const LONGEST_TOKEN: usize = 200;
/// How long it is waited before a server is asked again that gave up its answer.
const AGAIN: Duration = Duration::from_millis(100);

/// How a server is introduced to a workspace.
#[derive(Clone, Debug)]
pub struct Start {
    /// The folder that it is for, absolute.
    pub root: PathBuf,
    /// What `initializationOptions` and answers to `workspace/configuration` hold.
    pub initialization: Value,
    /// How long it may take until it knows the folder.
    pub patience: Duration,
}

/// A language server, of one folder. It lives as long as this.
#[derive(Debug)]
pub struct Client {
    pub(crate) connection: Connection,
    pub(crate) encoding: Encoding,
    pub(crate) capabilities: Value,
    ears: Arc<Ears>,
    files: Mutex<Files>,
    /// Held while a file is shown, so that versions reach the server in order.
    showing: tokio::sync::Mutex<()>,
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// It was made.
    Made,
    /// Its content changed.
    Changed,
    /// It was removed.
    Removed,
}

impl Touch {
    const fn number(self) -> u8 {
        match self {
            Self::Made => 1,
            Self::Changed => 2,
            Self::Removed => 3,
        }
    }
}

/// The files that a server was shown.
#[derive(Debug, Default)]
struct Files {
    shown: HashMap<PathBuf, Shown>,
    /// The version that was given last, to any file: none is given twice, so that nothing is taken for what was said of a
    /// file before it was closed.
    version: i32,
    /// When any of them changed last.
    changed: Option<Instant>,
}

/// A file as the server knows it.
#[derive(Clone, Debug)]
struct Shown {
    text: Arc<str>,
    version: i32,
    at: Instant,
}

/// Diagnostics that came without being asked for.
#[derive(Clone, Debug)]
struct Published {
    version: Option<i32>,
    at: Instant,
    /// Absent where they cannot be read.
    told: Option<Arc<[Told]>>,
}

#[derive(Debug)]
struct Ears {
    root: PathBuf,
    configuration: Value,
    published: watch::Sender<HashMap<PathBuf, Published>>,
    work: watch::Sender<Work>,
}

/// What a server says of its own work.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// What it does now, by token: loads the project, checks it.
    under_way: HashSet<String>,
    /// Whether it said that it is not ready, as rust-analyzer does: it may still do nothing between two works.
    is_unready: bool,
    /// How often it said that diagnostics have to be asked for again.
    refreshes: u64,
    /// Whether it registered, after it was introduced, that diagnostics can be asked for.
    pulls: bool,
}

impl Work {
    pub(crate) fn is_busy(&self) -> bool {
        self.is_unready || !self.under_way.is_empty()
    }
}

impl Ears {
    fn progress(&self, params: &Value) {
        let Some(token) = params.get("token").map(Value::to_string).filter(|it| it.len() <= LONGEST_TOKEN)
        else {
            return;
        };
        match params["value"].get("kind").and_then(Value::as_str) {
            Some("begin") => self.work.send_modify(|work| {
                // A server that never ends what it begins is not waited for.
                if work.under_way.len() < MOST_WORK {
                    work.under_way.insert(token);
                }
            }),
            Some("end") => self.work.send_modify(|work| {
                work.under_way.remove(&token);
            }),
            _ => {}
        }
    }

    /// What a server registers, or takes back, of asking for diagnostics.
    fn registered(&self, list: &Value, pulls: bool) {
        let is_it =
            |one: &Value| one.get("method").and_then(Value::as_str) == Some("textDocument/diagnostic");
        if list.as_array().is_some_and(|list| list.iter().any(is_it)) {
            self.work.send_modify(|work| work.pulls = pulls);
        }
    }

    /// The settings of one section, as `python.analysis`; all of them where none is named.
    fn settings(&self, item: &Value) -> Value {
        let Some(section) = item.get("section").and_then(Value::as_str).filter(|it| !it.is_empty()) else {
            return self.configuration.clone();
        };
        let found = section.split('.').try_fold(&self.configuration, |settings, name| settings.get(name));
        // Some have their settings under the whole name.
        found.or_else(|| self.configuration.get(section)).cloned().unwrap_or_default()
    }
}

impl Hears for Ears {
    fn notified(&self, method: &str, params: Value) {
        if method == "$/progress" {
            self.progress(&params);
            return;
        }
        if method == "experimental/serverStatus" {
            let is_unready = params.get("quiescent").and_then(Value::as_bool) == Some(false);
            self.work.send_modify(|work| work.is_unready = is_unready);
            return;
        }
        if method != "textDocument/publishDiagnostics" {
            return;
        }
        let Some(path) = params.get("uri").and_then(Value::as_str).and_then(path_of) else { return };
        let version =
            params.get("version").and_then(Value::as_i64).and_then(|version| i32::try_from(version).ok());
        let told = Told::all(&params["diagnostics"]).map(Arc::from);
        if told.is_none() {
            tracing::debug!("a language server published diagnostics that cannot be read");
        }
        self.published.send_if_modified(|published| {
            if published.len() >= MOST_FILES && !published.contains_key(&path) {
                // Files of which nothing is told make room.
                published.retain(|_, one| one.told.as_ref().is_none_or(|told| !told.is_empty()));
                if published.len() >= MOST_FILES {
                    return false;
                }
            }
            published.insert(path, Published { version, at: Instant::now(), told });
            true
        });
    }

    fn requested(&self, method: &str, params: Value) -> Option<Value> {
        match method {
            "workspace/configuration" => {
                let items = params.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                Some(Value::Array(items.iter().take(100).map(|item| self.settings(item)).collect()))
            }
            "workspace/workspaceFolders" => Some(json!([folder(&self.root)?])),
            "client/registerCapability" => {
                self.registered(&params["registrations"], true);
                Some(Value::Null)
            }
            "client/unregisterCapability" => {
                // The protocol spells it so.
                self.registered(&params["unregisterations"], false);
                Some(Value::Null)
            }
            "workspace/diagnostic/refresh" => {
                self.work.send_modify(|work| work.refreshes += 1);
                Some(Value::Null)
            }
            "window/workDoneProgress/create" | "window/showMessageRequest" => Some(Value::Null),
            // A server edits nothing itself.
            "workspace/applyEdit" => {
                Some(json!({"applied": false, "failureReason": "this client applies no edits"}))
            }
            _ => None,
        }
    }
}

/// The address of a file.
pub fn uri_of(path: &Path) -> Option<String> {
    Url::from_file_path(path).ok().map(String::from)
}

/// The file at an address.
pub(crate) fn path_of(uri: &str) -> Option<PathBuf> {
    Url::parse(uri).ok()?.to_file_path().ok()
}

fn folder(root: &Path) -> Option<Value> {
    let name = root.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Some(json!({"uri": uri_of(root)?, "name": name}))
}

/// What the protocol calls the language of a file, by its extension.
fn language(path: &Path) -> &'static str {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    match extension {
        "ts" | "mts" | "cts" => "typescript",
        "tsx" => "typescriptreact",
        "js" | "mjs" | "cjs" => "javascript",
        "jsx" => "javascriptreact",
        "py" | "pyi" => "python",
        "rs" => "rust",
        "go" => "go",
        "c" | "h" => "c",
        "cc" | "cpp" | "cxx" | "hh" | "hpp" | "hxx" => "cpp",
        "sh" | "bash" => "shellscript",
        "json" => "json",
        "css" => "css",
        "html" | "htm" => "html",
        "rb" => "ruby",
        "java" => "java",
        "lua" => "lua",
        "zig" => "zig",
        _ => "plaintext",
    }
}

/// What this client can do.
fn abilities() -> Value {
    let dynamic = json!({"dynamicRegistration": false});
    json!({
        "general": {"positionEncodings": ["utf-8", "utf-16"]},
        "workspace": {
            "configuration": true,
            "workspaceFolders": true,
            "symbol": {"dynamicRegistration": false},
            "workspaceEdit": {"documentChanges": true},
            "diagnostics": {"refreshSupport": true},
        },
        "textDocument": {
            "synchronization": {"dynamicRegistration": false, "didSave": true},
            "publishDiagnostics": {"versionSupport": true, "relatedInformation": false},
            "diagnostic": {"dynamicRegistration": true, "relatedDocumentSupport": false},
            "definition": {"dynamicRegistration": false, "linkSupport": true},
            "implementation": {"dynamicRegistration": false, "linkSupport": true},
            "references": dynamic,
            "hover": {"dynamicRegistration": false, "contentFormat": ["plaintext", "markdown"]},
            "documentSymbol": {"dynamicRegistration": false, "hierarchicalDocumentSymbolSupport": true},
            "callHierarchy": dynamic,
            "rename": {"dynamicRegistration": false, "prepareSupport": false},
        },
        "window": {"workDoneProgress": true},
        "experimental": {"serverStatusNotification": true},
    })
}

impl Client {
    /// Introduces itself to the server behind these pipes.
    ///
    /// # Errors
    /// The server ended, refused, or said nothing for too long.
    pub async fn start(
        from: impl AsyncRead + Send + Unpin + 'static,
        to: impl AsyncWrite + Send + Unpin + 'static,
        start: Start,
    ) -> Result<Self, RequestError> {
        let Start { root, initialization, patience } = start;
        let uri = uri_of(&root);
        let folders: Vec<Value> = folder(&root).into_iter().collect();
        let params = json!({
            "processId": null,
            "clientInfo": {"name": "playhouse", "version": env!("CARGO_PKG_VERSION")},
            "rootUri": uri,
            "workspaceFolders": folders,
            "capabilities": abilities(),
            "initializationOptions": initialization,
        });
        let published = watch::Sender::new(HashMap::new());
        let work = watch::Sender::new(Work::default());
        let ears = Arc::new(Ears { root, configuration: initialization, published, work });
        let hears: Arc<dyn Hears> = Arc::clone(&ears) as _;
        let connection = Connection::new(from, to, hears);
        let mut answer = connection.request("initialize", params, patience).await?;
        let capabilities = answer.get_mut("capabilities").map(Value::take).unwrap_or_default();
        let encoding = capabilities
            .get("positionEncoding")
            .and_then(Value::as_str)
            .map_or_else(Encoding::default, Encoding::named);
        connection.notify("initialized", &json!({})).await?;
        Ok(Self {
            connection,
            encoding,
            capabilities,
            ears,
            files: Mutex::default(),
            showing: tokio::sync::Mutex::default(),
        })
    }

    /// Why nothing comes from the server any more, if that is so.
    pub fn ended(&self) -> Option<String> {
        self.connection.ended()
    }

    /// Waits until nothing comes from the server any more, and says why.
    pub fn gone(&self) -> impl Future<Output = String> + Send + use<> {
        self.connection.closed()
    }

    /// Whether the server says that it loads or checks the project.
    pub fn is_busy(&self) -> bool {
        self.ears.work.borrow().is_busy()
    }

    /// What the server says of its own work.
    pub(crate) fn work(&self) -> watch::Receiver<Work> {
        self.ears.work.subscribe()
    }

    /// The folder that the server is for.
    pub fn root(&self) -> &Path {
        &self.ears.root
    }

    /// The text of a file as the server was shown it, and its version.
    pub fn text(&self, path: &Path) -> Option<(Arc<str>, i32)> {
        self.files.lock().shown.get(path).map(|shown| (Arc::clone(&shown.text), shown.version))
    }

    /// The version in which a file was shown last; none is given twice.
    pub fn version(&self, path: &Path) -> Option<i32> {
        self.text(path).map(|(_, version)| version)
    }

    /// The files that the server was shown.
    pub fn shown(&self) -> Vec<PathBuf> {
        self.files.lock().shown.keys().cloned().collect()
    }

    /// Tells the server what stands in a file now, which it may not have been shown before. Whether that is news.
    ///
    /// # Errors
    /// The server ended, or reads nothing.
    pub async fn show(&self, path: &Path, text: &str) -> Result<bool, RequestError> {
        let uri = uri_of(path).ok_or_else(|| RequestError::Odd("a path that is no address".to_owned()))?;
        let _showing = self.showing.lock().await;
        if self.files.lock().shown.get(path).is_some_and(|shown| *shown.text == *text) {
            return Ok(false);
        }
        let mut places = self.connection.places(2).await?;
        // From here on nothing is waited for: what is known as shown is on its way.
        let mut files = self.files.lock();
        files.version = files.version.wrapping_add(1);
        let (version, at) = (files.version, Instant::now());
        files.changed = Some(at);
        if files.shown.insert(path.to_owned(), Shown { text: text.into(), version, at }).is_none() {
            let document =
                json!({"uri": uri, "languageId": language(path), "version": version, "text": text});
            places.tell("textDocument/didOpen", &json!({"textDocument": document}));
        } else {
            let params = json!({
                "textDocument": {"uri": uri, "version": version},
                "contentChanges": [{"text": text}],
            });
            places.tell("textDocument/didChange", &params);
        }
        // Some check a file only when it is saved; it is on the disk by now.
        places.tell("textDocument/didSave", &json!({"textDocument": {"uri": uri}}));
        Ok(true)
    }

    /// Tells the server that a file is not of interest any more, or gone.
    ///
    /// # Errors
    /// The server ended, or reads nothing.
    pub async fn close(&self, path: &Path) -> Result<(), RequestError> {
        let _showing = self.showing.lock().await;
        let Some(uri) = uri_of(path).filter(|_| self.files.lock().shown.contains_key(path)) else {
            return Ok(());
        };
        let mut places = self.connection.places(1).await?;
        let mut files = self.files.lock();
        files.shown.remove(path);
        files.changed = Some(Instant::now());
        places.tell("textDocument/didClose", &json!({"textDocument": {"uri": uri}}));
        Ok(())
    }

    /// Tells the server which files were made, changed or removed on the disk, whether it was shown them or not.
    ///
    /// # Errors
    /// The server ended, or reads nothing.
    pub async fn touched(&self, files: &[(PathBuf, Touch)]) -> Result<(), RequestError> {
        let event =
            |(path, touch): &(PathBuf, Touch)| Some(json!({"uri": uri_of(path)?, "type": touch.number()}));
        let changes: Vec<Value> = files.iter().filter_map(event).collect();
        if changes.is_empty() {
            return Ok(());
        }
        self.connection.notify("workspace/didChangeWatchedFiles", &json!({"changes": changes})).await
    }

    /// What is wrong with a file that was shown, as it was shown last. Waits at most so long for the server.
    ///
    /// # Errors
    /// The server ended, or refuses to say it.
    pub async fn diagnose(&self, path: &Path, patience: Duration) -> Result<Known, RequestError> {
        let Some(shown) = self.files.lock().shown.get(path).cloned() else { return Ok(Known::NotYet) };
        let offers = self.capabilities.get("diagnosticProvider").is_some_and(|provider| !provider.is_null());
        let pulls = offers || self.ears.work.borrow().pulls;
        let known = match pulls {
            true => {
                timeout(patience, self.pull(path, &shown, patience)).await.unwrap_or(Ok(Known::NotYet))?
            }
            false => self.await_published(path, &shown, patience).await,
        };
        match known {
            // It may have ended while nothing came.
            Known::NotYet => match self.connection.ended() {
                Some(reason) => Err(RequestError::Ended(reason)),
                None => Ok(Known::NotYet),
            },
            known => Ok(known),
        }
    }

    /// Asks for diagnostics, again where the server gave up its answer. No problems count only once it has loaded and checked
    /// the project; what it published of this content beside its answers counts as well.
    async fn pull(&self, path: &Path, shown: &Shown, patience: Duration) -> Result<Known, RequestError> {
        let mut work = self.ears.work.subscribe();
        loop {
            let params = json!({"textDocument": {"uri": uri_of(path)}});
            let asked = Instant::now();
            work.mark_unchanged();
            let answer = match self.connection.request("textDocument/diagnostic", params, patience).await {
                Ok(answer) => answer,
                Err(RequestError::Cancelled) => {
                    sleep(AGAIN).await;
                    continue;
                }
                Err(RequestError::Late | RequestError::Refused(_)) => return Ok(Known::NotYet),
                Err(error) => return Err(error),
            };
            if self.text(path).is_none_or(|(_, version)| version != shown.version) {
                return Ok(Known::NotYet);
            }
            let Some(mut told) = answer.get("items").and_then(Told::all) else { return Ok(Known::NotYet) };
            let published = self.ears.published.borrow().get(path).filter(|it| it.at >= shown.at).cloned();
            let mut of_version = Some(asked);
            if let Some(Published { version, told: Some(beside), .. }) = published
                && version.is_none_or(|version| version == shown.version)
                && !beside.is_empty()
            {
                told.extend(beside.iter().filter(|one| !told.contains(one)).cloned().collect::<Vec<_>>());
                of_version = of_version.filter(|_| version.is_some());
            }
            let is_busy = work.borrow().is_busy();
            if told.is_empty() && (is_busy || work.has_changed().unwrap_or(false)) {
                // Until it is ready, or says that it has more to tell.
                if work.changed().await.is_err() {
                    return Ok(Known::NotYet);
                }
                continue;
            }
            return Ok(self.found(path, shown, &told, of_version));
        }
    }

    /// What the server published of files that it was not shown: it checks the whole project. Without their texts its units are
    /// taken for characters.
    pub fn beside(&self) -> HashMap<PathBuf, Vec<Problem>> {
        let published = self.ears.published.borrow().clone();
        let files = self.files.lock();
        let others = published.into_iter().filter(|(path, _)| !files.shown.contains_key(path));
        let problems = |(path, published): (PathBuf, Published)| {
            let told = published.told?;
            let problems = told.iter().map(|one| one.clone().problem(&path, &[], self.encoding)).collect();
            Some((path, problems))
        };
        others.filter_map(problems).collect()
    }

    /// Waits for diagnostics of this content. Those that name a version have to name its own; those that name none count when
    /// nothing came for a while after they came, which was after the content was shown.
    async fn await_published(&self, path: &Path, shown: &Shown, patience: Duration) -> Known {
        let mut published = self.ears.published.subscribe();
        let waiting = async {
            loop {
                let last =
                    published.borrow_and_update().get(path).filter(|last| last.at >= shown.at).cloned();
                let quiet = match last {
                    Some(Published { version: Some(version), at, told: Some(told) })
                        if version == shown.version =>
                    {
                        return self.found(path, shown, &told, Some(at));
                    }
                    Some(Published { version: None, at, told: Some(told) }) => Some((at + QUIET, told)),
                    _ => None,
                };
                match quiet {
                    Some((end, told)) => tokio::select! {
                        () = sleep_until(end) => return self.found(path, shown, &told, None),
                        changed = published.changed() => if changed.is_err() { return Known::NotYet },
                    },
                    None => {
                        if published.changed().await.is_err() {
                            return Known::NotYet;
                        }
                    }
                }
            }
        };
        timeout(patience, waiting).await.unwrap_or(Known::NotYet)
    }

    /// What was told of this content. It is verified if the server said it for this version, at a time since which no other
    /// file changed: that may have broken this one, or mended it.
    fn found(&self, path: &Path, shown: &Shown, told: &[Told], of_version: Option<Instant>) -> Known {
        let is_last = |at: Instant| self.files.lock().changed.is_none_or(|changed| changed <= at);
        let lines: Vec<&str> = lines(&shown.text).collect();
        let problem = |told: &Told| told.clone().problem(path, &lines, self.encoding);
        let problems: Vec<Problem> = told.iter().map(problem).collect();
        Known::Found { problems, is_verified: of_version.is_some_and(is_last) }
    }

    /// Asks the server to end. Whoever started it looks whether it does.
    pub async fn shut_down(&self) {
        if self.connection.request("shutdown", Value::Null, FAREWELL).await.is_ok() {
            drop(self.connection.notify("exit", &Value::Null).await);
        }
    }
}
