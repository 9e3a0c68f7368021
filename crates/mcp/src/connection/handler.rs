//! What a server may ask of the client: the roots, questions to people, and notices that its lists changed.

#![expect(deprecated, reason = "servers of earlier protocol versions ask for roots")]

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use playhouse_protocol::SessionId;
use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, CustomRequest, CustomResult, ElicitRequestParams, ElicitResult,
    ElicitationAction, ElicitationCapability, ErrorCode, ErrorData, FormElicitationCapability,
    Implementation, ListRootsResult, MetaObject, ProgressNotificationParam, ProgressToken, ProtocolVersion,
    Root, RootsCapabilities, UrlElicitationCapability,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};
use serde_json::{Map, Value};
use tokio::sync::watch;

use super::asking::Asker;
use super::turns::Turns;

/// Number of progress notices that are kept for calls that are not known yet.
const EARLY: usize = 16;

/// A question of a server.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Elicitation {
    /// For values.
    Form {
        /// What is asked.
        message: String,
        /// Schema of the answer: an object with fields of plain types.
        schema: Value,
    },
    /// To open a page, which asks the rest.
    Url {
        /// Why.
        message: String,
        /// Its address, unchecked.
        url: String,
    },
}

/// What became of a question.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ElicitationAnswer {
    /// Answered; with the values of a form.
    Accept(Option<Value>),
    /// Not answered by choice; with a reason for the server.
    Decline(String),
    /// Not answered.
    Cancel,
}

/// How far a call is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// So much is done. Only comparable to `total`, and to what was told before.
    pub done: f64,
    /// How much there is to do, if known.
    pub total: Option<f64>,
    /// What is being done.
    pub message: Option<String>,
}

/// Where progress is told. Must not block.
pub type ProgressSink = Arc<dyn Fn(Progress) + Send + Sync>;

/// The client side of a connection.
pub(super) struct Handler {
    pub(super) server: String,
    pub(super) roots: Vec<PathBuf>,
    /// The calls that run, and the people behind them.
    pub(super) callers: Mutex<Callers>,
    pub(super) turns: Arc<Turns>,
    /// Counts notices that a list changed.
    pub(super) changed: watch::Sender<u64>,
    /// Number of questions that are open, by session.
    pub(super) asking: watch::Sender<HashMap<SessionId, usize>>,
    pub(super) progress: Mutex<Sinks>,
}

/// Where progress goes, by the tokens of calls.
#[derive(Default)]
pub(super) struct Sinks {
    sinks: HashMap<ProgressToken, ProgressSink>,
    /// Notices that came before their call was known.
    early: VecDeque<(ProgressToken, Progress)>,
}

/// The calls that run and that have people behind them.
#[derive(Default)]
pub(super) struct Callers {
    next: u64,
    running: Vec<(u64, SessionId, Arc<Asker>)>,
}

/// A call in [`Callers`], until this is dropped.
pub(super) struct Calling<'a> {
    handler: &'a Handler,
    number: u64,
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        self.handler.callers.lock().running.retain(|(number, ..)| *number != self.number);
    }
}

/// A question that is open, until this is dropped.
struct Asking<'a>(&'a Handler, SessionId);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.asking.send_modify(|asking| {
            if let Some(count) = asking.get_mut(&self.1) {
                *count -= 1;
                if *count == 0 {
                    asking.remove(&self.1);
                }
            }
        });
    }
}

impl Handler {
    /// Adds a call that runs: questions of the server may be put to the people behind it.
    pub(super) fn calling(&self, session: SessionId, asker: &Arc<Asker>) -> Calling<'_> {
        let mut callers = self.callers.lock();
        let number = callers.next;
        callers.next += 1;
        callers.running.push((number, session, Arc::clone(asker)));
        Calling { handler: self, number }
    }

    /// Tells progress of a call to a sink, also what came before.
    pub(super) fn watch(&self, token: ProgressToken, sink: ProgressSink) {
        let mut sinks = self.progress.lock();
        let (own, others) = sinks.early.drain(..).partition::<VecDeque<_>, _>(|(early, _)| *early == token);
        sinks.early = others;
        sinks.sinks.insert(token, Arc::clone(&sink));
        drop(sinks);
        own.into_iter().for_each(|(_, progress)| sink(progress));
    }

    pub(super) fn unwatch(&self, token: &ProgressToken) {
        self.progress.lock().sinks.remove(token);
    }

    /// Asks the people behind the session whose calls run, if they are all of one.
    async fn ask_whoever_calls(&self, question: Elicitation) -> ElicitationAnswer {
        let only = self.turns.only();
        // Whose the next question is has to be known.
        self.turns.keep_apart();
        let Some(session) = only else {
            return ElicitationAnswer::Decline(match self.turns.sessions() {
                0 => "questions are taken only while a call runs".to_owned(),
                _ => "calls of several sessions run, so nobody can tell whom the question is for: call again"
                    .to_owned(),
            });
        };
        // Which of several calls of a session it is about cannot be told: all have the same people behind them.
        let asker = self
            .callers
            .lock()
            .running
            .iter()
            .find(|(_, of, _)| *of == session)
            .map(|(.., asker)| Arc::clone(asker));
        match asker {
            Some(asker) => self.ask(session, &asker, question).await,
            None => nobody(),
        }
    }

    /// Asks the people behind a call, as long as calls of its session run.
    pub(super) async fn ask(
        &self,
        session: SessionId,
        asker: &Asker,
        question: Elicitation,
    ) -> ElicitationAnswer {
        self.asking.send_modify(|asking| *asking.entry(session).or_default() += 1);
        let _asking = Asking(self, session);
        tokio::select! {
            biased;
            () = self.turns.left(session) => ElicitationAnswer::Cancel,
            answer = asker.ask(&self.server, question) => answer,
        }
    }

    pub(super) fn roots(&self) -> ListRootsResult {
        let root = |path: &PathBuf| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            let root = Root::new(file_url(path));
            match name {
                Some(name) => root.with_name(name),
                None => root,
            }
        };
        ListRootsResult::new(self.roots.iter().map(root).collect())
    }
}

/// The address of a file.
fn file_url(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    let mut url = "file://".to_owned();
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
    }
    url
}

/// A question as the library has it; `None` for one of a kind that is not known.
pub(super) fn question(params: ElicitRequestParams) -> Option<Elicitation> {
    match params {
        ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
            let schema = serde_json::to_value(requested_schema).ok()?;
            Some(Elicitation::Form { message, schema })
        }
        ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
            Some(Elicitation::Url { message, url })
        }
        _ => None,
    }
}

/// A question whose schema the library does not know.
fn loose_question(params: &Value) -> Option<Elicitation> {
    let text = |name: &str| params.get(name).and_then(Value::as_str).map(str::to_owned);
    let schema = params.get("requestedSchema").filter(|schema| schema.is_object())?.clone();
    Some(Elicitation::Form { message: text("message")?, schema })
}

/// An answer as the library has it.
pub(super) fn answered(answer: ElicitationAnswer) -> ElicitResult {
    match answer {
        ElicitationAnswer::Accept(content) => {
            let result = ElicitResult::new(ElicitationAction::Accept);
            match content {
                Some(content) => result.with_content(content),
                None => result,
            }
        }
        ElicitationAnswer::Decline(reason) => {
            let reason = Map::from_iter([("reason".to_owned(), Value::from(reason))]);
            ElicitResult::new(ElicitationAction::Decline).with_meta(MetaObject(reason))
        }
        ElicitationAnswer::Cancel => ElicitResult::new(ElicitationAction::Cancel),
    }
}

pub(super) fn nobody() -> ElicitationAnswer {
    ElicitationAnswer::Decline("there is nobody to ask".to_owned())
}

fn unknown_question() -> ElicitationAnswer {
    ElicitationAnswer::Decline("questions of this kind are not known".to_owned())
}

impl ClientHandler for Handler {
    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Ok(self.roots())
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let Some(question) = question(params) else { return Ok(answered(unknown_question())) };
        let answer = tokio::select! {
            biased;
            () = context.ct.cancelled() => ElicitationAnswer::Cancel,
            answer = self.ask_whoever_calls(question) => answer,
        };
        Ok(answered(answer))
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        if request.method != "elicitation/create" {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None));
        }
        let question = request.params.as_ref().and_then(loose_question);
        let Some(question) = question else {
            return Err(ErrorData::invalid_params("the question has no message or no schema", None));
        };
        let answer = tokio::select! {
            biased;
            () = context.ct.cancelled() => ElicitationAnswer::Cancel,
            answer = self.ask_whoever_calls(question) => answer,
        };
        let answer = serde_json::to_value(answered(answer));
        answer.map(CustomResult).map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let ProgressNotificationParam { progress_token, progress, total, message, .. } = params;
        let progress = Progress { done: progress, total, message };
        let mut sinks = self.progress.lock();
        let Some(sink) = sinks.sinks.get(&progress_token).cloned() else {
            if sinks.early.len() == EARLY {
                sinks.early.pop_front();
            }
            return sinks.early.push_back((progress_token, progress));
        };
        drop(sinks);
        sink(progress);
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.send_modify(|changes| *changes += 1);
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.send_modify(|changes| *changes += 1);
    }

    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.roots = Some(RootsCapabilities::default());
        let elicitation = ElicitationCapability::new().with_form(FormElicitationCapability::new());
        capabilities.elicitation = Some(elicitation.with_url(UrlElicitationCapability::new()));
        let client = Implementation::new("playhouse", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(capabilities, client).with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_file_has_no_other_characters() {
        assert_eq!(file_url(Path::new("/a b/ü%#")), "file:///a%20b/%C3%BC%25%23");
    }

    #[test]
    fn a_reason_is_told_to_the_server() {
        let declined = serde_json::to_value(answered(ElicitationAnswer::Decline("no".into()))).unwrap();
        assert_eq!(declined, serde_json::json!({"action": "decline", "_meta": {"reason": "no"}}));
    }
}
