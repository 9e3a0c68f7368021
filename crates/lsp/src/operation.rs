//! What a server is asked for: places, texts, and the edits of a rename.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout_at};

use crate::client::{Client, path_of, uri_of};
use crate::connection::RequestError;
use crate::position::{Position, Span, Spot};

/// The most places of an answer.
const MOST_PLACES: usize = 500;
/// The deepest symbols that are listed.
const DEEPEST: usize = 16;
/// The longest text of an answer.
const LONGEST_TEXT: usize = 16 * 1024;

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "they are named as the protocol names them")]
pub enum Operation {
    GoToDefinition,
    FindReferences,
    Hover,
    DocumentSymbol,
    WorkspaceSymbol,
    GoToImplementation,
    PrepareCallHierarchy,
    IncomingCalls,
    OutgoingCalls,
    Rename,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::GoToDefinition,
        Self::FindReferences,
        Self::Hover,
        Self::DocumentSymbol,
        Self::WorkspaceSymbol,
        Self::GoToImplementation,
        Self::PrepareCallHierarchy,
        Self::IncomingCalls,
        Self::OutgoingCalls,
        Self::Rename,
    ];

    /// As a model names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::GoToDefinition => "goToDefinition",
            Self::FindReferences => "findReferences",
            Self::Hover => "hover",
            Self::DocumentSymbol => "documentSymbol",
            Self::WorkspaceSymbol => "workspaceSymbol",
            Self::GoToImplementation => "goToImplementation",
            Self::PrepareCallHierarchy => "prepareCallHierarchy",
            Self::IncomingCalls => "incomingCalls",
            Self::OutgoingCalls => "outgoingCalls",
            Self::Rename => "rename",
        }
    }

    /// Whether it is about a place in the file; else about the file or the folder.
    pub const fn has_spot(self) -> bool {
        !matches!(self, Self::DocumentSymbol | Self::WorkspaceSymbol)
    }

    /// The request, and what a server has to be able to do for it.
    const fn method(self) -> (&'static str, &'static str) {
        match self {
            Self::GoToDefinition => ("textDocument/definition", "definitionProvider"),
            Self::FindReferences => ("textDocument/references", "referencesProvider"),
            Self::Hover => ("textDocument/hover", "hoverProvider"),
            Self::DocumentSymbol => ("textDocument/documentSymbol", "documentSymbolProvider"),
            Self::WorkspaceSymbol => ("workspace/symbol", "workspaceSymbolProvider"),
            Self::GoToImplementation => ("textDocument/implementation", "implementationProvider"),
            Self::PrepareCallHierarchy | Self::IncomingCalls | Self::OutgoingCalls => {
                ("textDocument/prepareCallHierarchy", "callHierarchyProvider")
            }
            Self::Rename => ("textDocument/rename", "renameProvider"),
        }
    }
}

/// A question.
#[derive(Clone, Debug)]
pub struct Query<'a> {
    /// What is asked.
    pub operation: Operation,
    /// The file, which the server was shown.
    pub path: &'a Path,
    /// The place in it.
    pub spot: Spot,
    /// The name that symbols of the folder have in them, or the new name of a rename.
    pub words: &'a str,
}

/// Where something is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// Where it begins, as the server counts: see [`Client::spot`].
    pub start: Position,
    /// Where it ends.
    pub end: Position,
    /// What it is, where the server says so.
    pub symbol: Option<Symbol>,
}

/// What stands at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// The number of its kind in the protocol; 0 where the server says none.
    pub kind: u64,
}

impl Symbol {
    /// Its kind and its name.
    pub fn shown(&self) -> String {
        kind(self.kind).map_or_else(|| self.name.clone(), |kind| format!("{kind} {}", self.name))
    }
}

/// The edits of one file.
#[derive(Clone, Debug, PartialEq)]
pub struct FileEdits {
    /// The file.
    pub path: PathBuf,
    /// What is replaced by what; for [`crate::apply`].
    pub edits: Vec<(Span, String)>,
}

/// What a server answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Places; none where there are none.
    Places(Vec<Place>),
    /// A text.
    Text(String),
    /// Edits of files, which nobody has applied.
    Edits(Vec<FileEdits>),
}

impl Answer {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Places(places) => places.is_empty(),
            Self::Text(text) => text.trim().is_empty(),
            Self::Edits(edits) => edits.is_empty(),
        }
    }
}

impl Client {
    /// Whether the server can be asked that.
    pub fn offers(&self, operation: Operation) -> bool {
        let offer = self.capabilities.get(operation.method().1);
        offer.is_some_and(|offer| *offer != Value::Null && *offer != Value::Bool(false))
    }

    /// In which units its places count.
    pub const fn encoding(&self) -> crate::Encoding {
        self.encoding
    }

    /// A place for people; `line` is the line of the file that it is on.
    pub fn spot(&self, start: Position, line: Option<&str>) -> Spot {
        Spot::heard(start, line, self.encoding)
    }

    /// Asks the server. Waits at most so long for each answer; one without anything in it is asked for again once the project is
    /// loaded, for which it waits as long.
    ///
    /// # Errors
    /// The server cannot be asked that, is late, ended, or refuses.
    pub async fn ask(&self, query: &Query<'_>, patience: Duration) -> Result<Answer, RequestError> {
        let until = Instant::now() + patience;
        let mut work = self.work();
        loop {
            work.mark_unchanged();
            let answer = self.ask_once(query, patience).await?;
            let may_be_early = self.is_busy() || work.has_changed().unwrap_or(false);
            if !answer.is_empty() || !may_be_early || Instant::now() >= until {
                return Ok(answer);
            }
            // Else it is asked once more, and what is told then says that it still loads.
            drop(timeout_at(until, work.wait_for(|work| !work.is_busy())).await);
        }
    }

    async fn ask_once(&self, query: &Query<'_>, patience: Duration) -> Result<Answer, RequestError> {
        let Query { operation, path, spot, words } = query;
        if !self.offers(*operation) {
            return Err(RequestError::Refused(format!("it has no {}", operation.name())));
        }
        let Some((text, version)) =
            self.text(path).or_else(|| (!operation.has_spot()).then(|| ("".into(), 0)))
        else {
            return Err(RequestError::Odd("the file was not shown to it".to_owned()));
        };
        let position = spot.told(&text, self.encoding);
        let document = json!({"uri": uri_of(path)});
        let mut params = match operation {
            Operation::WorkspaceSymbol => json!({"query": words}),
            Operation::DocumentSymbol => json!({"textDocument": document}),
            _ => json!({"textDocument": document, "position": position}),
        };
        match operation {
            Operation::FindReferences => params["context"] = json!({"includeDeclaration": true}),
            Operation::Rename => params["newName"] = json!(words),
            _ => {}
        }
        let answer = self.connection.request(operation.method().0, params, patience).await?;
        let calls = match operation {
            Operation::IncomingCalls => Some(("callHierarchy/incomingCalls", "from")),
            Operation::OutgoingCalls => Some(("callHierarchy/outgoingCalls", "to")),
            _ => None,
        };
        if let Some((method, end)) = calls {
            let item = answer.get(0).cloned();
            let Some(item) = item else { return Ok(Answer::Places(Vec::new())) };
            let calls = self.connection.request(method, json!({"item": item}), patience).await?;
            let ends = calls.as_array().into_iter().flatten().filter_map(|call| call.get(end));
            return Ok(Answer::Places(ends.take(MOST_PLACES).filter_map(|end| place(end, path)).collect()));
        }
        Ok(match operation {
            Operation::Hover => Answer::Text(text_of(&answer["contents"])),
            Operation::Rename if self.text(path).is_none_or(|(_, now)| now != version) => {
                return Err(RequestError::Odd("the file changed while it was asked: ask again".to_owned()));
            }
            Operation::Rename => Answer::Edits(edits(&answer)?),
            _ => Answer::Places(places(&answer, path)),
        })
    }
}

/// The places of a list, or of a single one.
fn places(answer: &Value, path: &Path) -> Vec<Place> {
    let mut found = Vec::new();
    match answer {
        Value::Array(items) => items.iter().for_each(|item| collect(item, path, DEEPEST, &mut found)),
        Value::Null => {}
        item => collect(item, path, DEEPEST, &mut found),
    }
    found
}

fn collect(item: &Value, path: &Path, depth: usize, found: &mut Vec<Place>) {
    if found.len() >= MOST_PLACES || depth == 0 {
        return;
    }
    found.extend(place(item, path));
    for child in item.get("children").and_then(Value::as_array).into_iter().flatten() {
        collect(child, path, depth - 1, found);
    }
}

/// A location, a link to one, a symbol with either, or one of the file at `path`.
fn place(item: &Value, path: &Path) -> Option<Place> {
    let location = item.get("location").unwrap_or(item);
    let uri = location.get("uri").or_else(|| location.get("targetUri")).and_then(Value::as_str);
    let path = match uri {
        Some(uri) => path_of(uri)?,
        None => path.to_owned(),
    };
    let ranges = ["selectionRange", "targetSelectionRange", "range", "targetRange"];
    let range = ranges.iter().find_map(|name| location.get(*name).or_else(|| item.get(*name)));
    let range = range.and_then(|range| serde_json::from_value::<Span>(range.clone()).ok());
    let Span { start, end } = range.unwrap_or_default();
    let name =
        item.get("name").and_then(Value::as_str).map(|name| name.chars().take(200).collect::<String>());
    let kind = item.get("kind").and_then(Value::as_u64).unwrap_or_default();
    Some(Place { path, start, end, symbol: name.map(|name| Symbol { name, kind }) })
}

/// What a symbol is, by its number in the protocol.
fn kind(number: u64) -> Option<&'static str> {
    const KINDS: [&str; 26] = [
        "file",
        "module",
        "namespace",
        "package",
        "class",
        "method",
        "property",
        "field",
        "constructor",
        "enum",
        "interface",
        "function",
        "variable",
        "constant",
        "string",
        "number",
        "boolean",
        "array",
        "object",
        "key",
        "null",
        "enum member",
        "struct",
        "event",
        "operator",
        "type parameter",
    ];
    KINDS.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
}

/// A text in any of the forms that the protocol has for one.
fn text_of(contents: &Value) -> String {
    let text = match contents {
        Value::String(text) => text.clone(),
        Value::Object(object) => object.get("value").and_then(Value::as_str).unwrap_or_default().to_owned(),
        Value::Array(parts) => {
            let parts: Vec<String> = parts.iter().take(100).map(text_of).collect();
            parts.join("\n\n")
        }
        _ => String::new(),
    };
    text.chars().take(LONGEST_TEXT).collect()
}

/// The edits of a rename. One that makes, moves or deletes files is refused: it is not only an edit.
fn edits(answer: &Value) -> Result<Vec<FileEdits>, RequestError> {
    let odd = || RequestError::Odd("edits that are none".to_owned());
    let mut files: Vec<FileEdits> = Vec::new();
    let mut take = |uri: &str, list: &Value| -> Result<(), RequestError> {
        let path = path_of(uri).ok_or_else(odd)?;
        let read = |edit: &Value| {
            let range = serde_json::from_value::<Span>(edit.get("range")?.clone()).ok()?;
            Some((range, edit.get("newText")?.as_str()?.to_owned()))
        };
        let list = list.as_array().ok_or_else(odd)?;
        let list: Option<Vec<_>> = list.iter().map(read).collect();
        let list = list.ok_or_else(odd)?;
        match files.iter().find(|file| file.path == path) {
            // They would be of the text after the first ones.
            Some(_) => return Err(RequestError::Odd("it edits a file twice".to_owned())),
            None => files.push(FileEdits { path, edits: list }),
        }
        Ok(())
    };
    if let Some(changes) = answer.get("documentChanges").and_then(Value::as_array) {
        for change in changes {
            if change.get("kind").is_some() {
                return Err(RequestError::Odd("it would make, move or delete files".to_owned()));
            }
            let uri =
                change.get("textDocument").and_then(|document| document.get("uri")).and_then(Value::as_str);
            take(uri.ok_or_else(odd)?, &change["edits"])?;
        }
    } else {
        let none = Map::new();
        for (uri, list) in answer.get("changes").and_then(Value::as_object).unwrap_or(&none) {
            take(uri, list)?;
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}
