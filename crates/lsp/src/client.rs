//! A server that was introduced: the files that it is shown, and what it says of them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gen_lsp_types::{Diagnostic, PublishDiagnosticsParams};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use url::Url;

use crate::connection::{Connection, Hears, RequestError};
use crate::diagnostics::{Known, MOST_PROBLEMS, Problem};
use crate::position::Encoding;

/// How long nothing may come after diagnostics that name no version, until they count.
const QUIET: Duration = Duration::from_millis(300);
/// How long a server may take to end by itself.
const FAREWELL: Duration = Duration::from_secs(2);
/// The most files whose diagnostics are kept that a server sends on its own.
const MOST_FILES: usize = 2_000;

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
    files: Mutex<HashMap<PathBuf, Shown>>,
    /// Held while a file is shown, so that versions reach the server in order.
    showing: tokio::sync::Mutex<()>,
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
    diagnostics: Vec<Diagnostic>,
}

#[derive(Debug)]
struct Ears {
    root: PathBuf,
    configuration: Value,
    published: watch::Sender<HashMap<PathBuf, Published>>,
}

impl Hears for Ears {
    fn notified(&self, method: &str, params: Value) {
        if method != "textDocument/publishDiagnostics" {
            return;
        }
        let Ok(PublishDiagnosticsParams { uri, version, mut diagnostics }) = serde_json::from_value(params)
        else {
            tracing::debug!("a language server published diagnostics that are none");
            return;
        };
        let Some(path) = path_of(&uri.0) else { return };
        diagnostics.truncate(MOST_PROBLEMS);
        self.published.send_if_modified(|published| {
            if published.len() >= MOST_FILES && !published.contains_key(&path) {
                return false;
            }
            published.insert(path, Published { version, at: Instant::now(), diagnostics });
            true
        });
    }

    fn requested(&self, method: &str, params: Value) -> Option<Value> {
        match method {
            "workspace/configuration" => {
                let items = params.get("items").and_then(Value::as_array).map_or(0, Vec::len);
                Some(Value::Array(vec![self.configuration.clone(); items.min(100)]))
            }
            "workspace/workspaceFolders" => Some(json!([folder(&self.root)?])),
            "client/registerCapability"
            | "client/unregisterCapability"
            | "window/workDoneProgress/create"
            | "workspace/diagnostic/refresh"
            | "window/showMessageRequest" => Some(Value::Null),
            // A server edits nothing itself.
            "workspace/applyEdit" => {
                Some(json!({"applied": false, "failureReason": "this client applies no edits"}))
            }
            _ => None,
        }
    }
}

/// The address of a file.
pub(crate) fn uri_of(path: &Path) -> Option<String> {
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
        },
        "textDocument": {
            "synchronization": {"dynamicRegistration": false, "didSave": true},
            "publishDiagnostics": {"versionSupport": true, "relatedInformation": false},
            "diagnostic": {"dynamicRegistration": false, "relatedDocumentSupport": true},
            "definition": {"dynamicRegistration": false, "linkSupport": true},
            "implementation": {"dynamicRegistration": false, "linkSupport": true},
            "references": dynamic,
            "hover": {"dynamicRegistration": false, "contentFormat": ["plaintext", "markdown"]},
            "documentSymbol": {"dynamicRegistration": false, "hierarchicalDocumentSymbolSupport": true},
            "callHierarchy": dynamic,
            "rename": {"dynamicRegistration": false, "prepareSupport": false},
        },
        "window": {"workDoneProgress": true},
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
        let ears = Arc::new(Ears { root, configuration: initialization, published });
        let hears: Arc<dyn Hears> = Arc::clone(&ears) as _;
        let connection = Connection::new(from, to, hears);
        let mut answer = connection.request("initialize", params, patience).await?;
        let capabilities = answer.get_mut("capabilities").map(Value::take).unwrap_or_default();
        let encoding = capabilities
            .get("positionEncoding")
            .and_then(Value::as_str)
            .map_or_else(Encoding::default, Encoding::named);
        connection.notify("initialized", json!({})).await?;
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

    /// The folder that the server is for.
    pub fn root(&self) -> &Path {
        &self.ears.root
    }

    fn files(&self) -> MutexGuard<'_, HashMap<PathBuf, Shown>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The text of a file as the server was shown it.
    pub(crate) fn text(&self, path: &Path) -> Option<Arc<str>> {
        self.files().get(path).map(|shown| Arc::clone(&shown.text))
    }

    /// The files that the server was shown.
    pub fn shown(&self) -> Vec<PathBuf> {
        self.files().keys().cloned().collect()
    }

    /// Tells the server what stands in a file now, which it may not have been shown before.
    ///
    /// # Errors
    /// The server ended.
    pub async fn show(&self, path: &Path, text: &str) -> Result<(), RequestError> {
        let uri = uri_of(path).ok_or_else(|| RequestError::Odd("a path that is no address".to_owned()))?;
        let _showing = self.showing.lock().await;
        let known = self.files().get(path).map(|shown| (shown.version, *shown.text == *text));
        let version = match known {
            Some((_, true)) => return Ok(()),
            Some((version, false)) => version.wrapping_add(1),
            None => 1,
        };
        let shown = Shown { text: text.into(), version, at: Instant::now() };
        self.files().insert(path.to_owned(), shown);
        match known {
            None => {
                let document =
                    json!({"uri": uri, "languageId": language(path), "version": version, "text": text});
                self.connection.notify("textDocument/didOpen", json!({"textDocument": document})).await
            }
            Some(_) => {
                let params = json!({
                    "textDocument": {"uri": uri, "version": version},
                    "contentChanges": [{"text": text}],
                });
                self.connection.notify("textDocument/didChange", params).await?;
                // Some check a file only when it is saved; it is on the disk by now.
                self.connection.notify("textDocument/didSave", json!({"textDocument": {"uri": uri}})).await
            }
        }
    }

    /// Tells the server that a file is not of interest any more, or gone.
    ///
    /// # Errors
    /// The server ended.
    pub async fn close(&self, path: &Path) -> Result<(), RequestError> {
        let _showing = self.showing.lock().await;
        let was_shown = self.files().remove(path).is_some();
        let Some(uri) = uri_of(path).filter(|_| was_shown) else { return Ok(()) };
        self.connection.notify("textDocument/didClose", json!({"textDocument": {"uri": uri}})).await
    }

    /// What is wrong with a file that was shown, as it was shown last. Waits at most so long for the server.
    ///
    /// # Errors
    /// The server ended, or refuses to say it.
    pub async fn diagnose(&self, path: &Path, patience: Duration) -> Result<Known, RequestError> {
        let Some(shown) = self.files().get(path).cloned() else { return Ok(Known::NotYet) };
        let known = match self.capabilities.get("diagnosticProvider") {
            Some(provider) if !provider.is_null() => self.pull(path, &shown, patience).await?,
            _ => self.await_published(path, &shown, patience).await,
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

    async fn pull(&self, path: &Path, shown: &Shown, patience: Duration) -> Result<Known, RequestError> {
        let params = json!({"textDocument": {"uri": uri_of(path)}});
        let answer = match self.connection.request("textDocument/diagnostic", params, patience).await {
            Ok(answer) => answer,
            // A server may take back what it began, and asks to come again.
            Err(RequestError::Late | RequestError::Refused(_)) => return Ok(Known::NotYet),
            Err(error) => return Err(error),
        };
        let is_current = self.files().get(path).is_some_and(|now| now.version == shown.version);
        let items = answer.get("items").and_then(Value::as_array);
        Ok(match items.filter(|_| is_current) {
            Some(items) => {
                let read = |item: &Value| serde_json::from_value::<Diagnostic>(item.clone()).ok();
                self.found(path, shown, items.iter().take(MOST_PROBLEMS).filter_map(read).collect(), true)
            }
            None => Known::NotYet,
        })
    }

    /// Waits for diagnostics of this content. Those that name a version have to name its own; those that name none count when
    /// nothing came for a while after they came, which was after the content was shown.
    async fn await_published(&self, path: &Path, shown: &Shown, patience: Duration) -> Known {
        let mut published = self.ears.published.subscribe();
        let waiting = async {
            loop {
                let last = published.borrow_and_update().get(path).cloned();
                let quiet = match last.filter(|last| last.at >= shown.at) {
                    Some(last) => match last.version {
                        Some(version) if version == shown.version => {
                            return self.found(path, shown, last.diagnostics, true);
                        }
                        Some(_) => None,
                        None => Some((last.at + QUIET, last.diagnostics)),
                    },
                    None => None,
                };
                match quiet {
                    Some((end, diagnostics)) => tokio::select! {
                        () = sleep_until(end) => return self.found(path, shown, diagnostics, false),
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

    fn found(&self, path: &Path, shown: &Shown, diagnostics: Vec<Diagnostic>, is_verified: bool) -> Known {
        let read = |diagnostic| Problem::new(path, diagnostic, Some(&shown.text), self.encoding);
        let mut problems: Vec<Problem> = diagnostics.into_iter().map(read).collect();
        problems.sort_by_key(|problem| (problem.severity, problem.spot));
        Known::Found { problems, is_verified }
    }

    /// Asks the server to end. Whoever started it looks whether it does.
    pub async fn shut_down(&self) {
        if self.connection.request("shutdown", Value::Null, FAREWELL).await.is_ok() {
            drop(self.connection.notify("exit", Value::Null).await);
        }
    }
}
