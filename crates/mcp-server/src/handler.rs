//! The server that clients talk with.

use std::sync::Arc;

use playhouse_protocol::SessionId;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, Implementation,
    ListToolsResult, PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::api::{Api, ApiError, SessionFacts, read};
use crate::native::{self, CallSession, NativeTools};
use crate::prompt::{Asking, Caller, Finished, begin, go_on};
use crate::status::status;
use crate::tools::{
    ABORT, AbortArguments, Aborted, CREATE, CreateArguments, Created, Outcome, PROMPT, PromptArguments,
    PromptResult, STATUS, StatusArguments, all,
};
use crate::turn::Ended;

const INSTRUCTIONS: &str = "Sessions of coding agents. Begin one with session_create, give it tasks with \
    session_prompt, which waits for the end of the turn; several sessions can work at once.";

/// An engine as an MCP server, for one client. Cheap to clone.
#[derive(Clone, Debug)]
pub struct McpServer {
    api: Arc<dyn Api>,
    /// Where sessions work that name no directory; `None` leaves that to the API.
    directory: Option<String>,
    /// Native tools that are offered as well.
    native: NativeTools,
    /// Where their calls run.
    calls: CallSession,
    /// The client is gone.
    gone: CancellationToken,
}

impl McpServer {
    /// Over this API.
    pub fn new(api: Arc<dyn Api>) -> Self {
        Self {
            api,
            directory: None,
            native: NativeTools::default(),
            calls: CallSession::default(),
            gone: CancellationToken::new(),
        }
    }

    /// Sessions that name no directory work in this one.
    #[must_use]
    pub fn in_directory(self, directory: String) -> Self {
        Self { directory: Some(directory), ..self }
    }

    /// Offers these native tools of the engine as well. Their calls run in a session of the client.
    ///
    /// # Errors
    /// The engine has no native tool of a name, or cannot list them.
    pub async fn offering(self, tools: &[String]) -> Result<Self, ApiError> {
        let native = NativeTools::chosen(&*self.api, tools).await?;
        Ok(self.with_tools(native))
    }

    /// The same with tools that were chosen before.
    #[must_use]
    pub fn with_tools(self, native: NativeTools) -> Self {
        Self { native, ..self }
    }

    /// Calls of native tools run in that session.
    pub(crate) fn calling_in(self, calls: CallSession) -> Self {
        Self { calls, ..self }
    }

    /// The same for a client that `gone` says to be gone.
    pub(crate) fn until(self, gone: CancellationToken) -> Self {
        Self { gone, ..self }
    }

    async fn create(&self, mut arguments: CreateArguments) -> Result<CallToolResult, ApiError> {
        if arguments.workspace.is_none() {
            arguments.workspace.clone_from(&self.directory);
        }
        let made: SessionFacts = read(self.api.post("/v1/sessions", &json!(arguments)).await?)?;
        let SessionFacts { id, workspace, title, agent, model, .. } = made;
        let text = format!("The session {id} works in {workspace}.");
        result(text, &Created { session: id, workspace, agent, model, title })
    }

    async fn status(&self, session: SessionId) -> Result<CallToolResult, ApiError> {
        let status = status(&*self.api, session).await?;
        let mut text = format!("The session is {}.", status.state);
        for wait in &status.waits {
            text.push_str(&format!("\n{} waits for an answer: {}", wait.tool, wait.asked));
        }
        if let Some(last) = status.last.as_ref().filter(|last| !last.text.is_empty()) {
            text.push_str(&format!("\nIt said last:\n{}", last.text));
        }
        result(text, &status)
    }

    async fn abort(&self, arguments: AbortArguments) -> Result<CallToolResult, ApiError> {
        let AbortArguments { session, turn } = arguments;
        let body = turn.map_or_else(|| json!({}), |turn| json!({"turn": turn}));
        let aborted: Aborted = read(self.api.post(&format!("/v1/sessions/{session}/abort"), &body).await?)?;
        let text = match aborted.turns {
            0 => "No turn was running or waiting.".to_owned(),
            1 => "One turn was ended.".to_owned(),
            turns => format!("{turns} turns were ended."),
        };
        result(text, &aborted)
    }

    async fn prompt(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let CallToolRequestParams { arguments, input_responses, request_state, .. } = request;
        let arguments: PromptArguments = match fit(arguments) {
            Ok(arguments) => arguments,
            Err(error) => return Ok(refused(&error).into()),
        };
        let caller = self.caller(&context);
        let finished = match request_state {
            Some(state) => {
                let answers = input_responses.unwrap_or_default();
                Box::pin(go_on(&*self.api, &caller, Some(arguments.session), &state, answers)).await
            }
            None => Box::pin(begin(&*self.api, &caller, arguments)).await,
        };
        match finished {
            Ok(finished) => answer(finished, |ended| ended_result(&ended.prompt)),
            Err(error) => Ok(refused(&error).into()),
        }
    }

    /// Calls a native tool.
    async fn call_native(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let CallToolRequestParams { name, arguments, input_responses, request_state, .. } = request;
        let caller = self.caller(&context);
        let finished = async {
            let Some(state) = request_state else {
                let session = self.calls.of(&*self.api, self.directory.as_deref()).await?;
                return Box::pin(native::begin(&*self.api, &caller, &session, &name, arguments)).await;
            };
            // The next call may have begun another session meanwhile.
            let answers = input_responses.unwrap_or_default();
            Box::pin(go_on(&*self.api, &caller, None, &state, answers)).await
        };
        match finished.await {
            Ok(finished) => answer(finished, native::ended_result),
            Err(error) => Ok(refused(&error).into()),
        }
    }

    fn caller(&self, context: &RequestContext<RoleServer>) -> Caller {
        Caller {
            asking: asking(context),
            progress: context.meta.get_progress_token(),
            cancelled: context.ct.clone(),
            gone: self.gone.clone(),
            peer: context.peer.clone(),
        }
    }
}

/// The answer to a request whose turn came so far.
fn answer(
    finished: Finished,
    ended: impl FnOnce(Ended) -> CallToolResult,
) -> Result<CallToolResponse, ErrorData> {
    match finished {
        Finished::Ended(of) => Ok(ended(*of).into()),
        Finished::Asks(asks) => Ok((*asks).into()),
        Finished::Cancelled => {
            Err(ErrorData::internal_error("the request was cancelled, and its turn aborted", None))
        }
    }
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("playhouse", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut tools = all();
        tools.extend_from_slice(self.native.all());
        Ok(ListToolsResult::with_all_items(tools))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        all().into_iter().find(|tool| tool.name == name).or_else(|| self.native.find(name).cloned())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let called = match &*request.name {
            PROMPT => return Box::pin(self.prompt(request, context)).await,
            CREATE => match fit(request.arguments) {
                Ok(arguments) => self.create(arguments).await,
                Err(error) => Err(error),
            },
            STATUS => match fit(request.arguments) {
                Ok(StatusArguments { session }) => self.status(session).await,
                Err(error) => Err(error),
            },
            ABORT => match fit(request.arguments) {
                Ok(arguments) => self.abort(arguments).await,
                Err(error) => Err(error),
            },
            other if self.native.find(other).is_some() => {
                return Box::pin(self.call_native(request, context)).await;
            }
            other => {
                let shown: String = other.escape_debug().take(64).collect();
                let text = format!("there is no tool \"{shown}\": tools/list has all of them");
                return Err(ErrorData::invalid_params(text, None));
            }
        };
        Ok(called.unwrap_or_else(|error| refused(&error)).into())
    }
}

/// How the people behind the client can be asked during this request.
fn asking(context: &RequestContext<RoleServer>) -> Asking {
    let elicitation = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
    // Neither form nor URL is how older clients say form.
    let has_forms = elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none());
    let version = context.protocol_version();
    match (has_forms, version) {
        (false, _) => Asking::Nobody,
        // Servers send no requests from this revision on.
        (true, Some(version)) if version.as_str() >= ProtocolVersion::V_2026_07_28.as_str() => Asking::Rounds,
        (true, _) => Asking::Peer,
    }
}

/// The arguments of a tool.
fn fit<T: DeserializeOwned>(arguments: Option<rmcp::model::JsonObject>) -> Result<T, ApiError> {
    serde_json::from_value(Value::Object(arguments.unwrap_or_default()))
        .map_err(|error| ApiError(format!("the arguments do not fit: {error}")))
}

fn refused(error: &ApiError) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(error.to_string())])
}

fn result(text: String, value: &impl Serialize) -> Result<CallToolResult, ApiError> {
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    let value = serde_json::to_value(value).map_err(|error| ApiError(error.to_string()))?;
    result.structured_content = Some(value);
    Ok(result)
}

/// What a client reads of a turn that is over: its text, then whatever else there is to say.
fn ended_result(ended: &PromptResult) -> CallToolResult {
    let mut text = ended.text.clone();
    let mut say = |line: String| {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(&line);
    };
    if let Some(output) = &ended.output {
        say(output.to_string());
    }
    match (ended.outcome, &ended.error) {
        (Outcome::Completed, _) => {}
        (Outcome::Aborted, _) => say("The turn was aborted.".to_owned()),
        (Outcome::MaxSteps, _) => say("The turn reached its step limit before it was done.".to_owned()),
        (Outcome::Failed, Some(error)) => say(format!("The turn failed: {error}")),
        (Outcome::Failed, None) => say("The turn failed.".to_owned()),
    }
    for declined in &ended.declined {
        say(format!("Declined: {}: {} ({})", declined.tool, declined.asked, declined.why));
    }
    match result(text, ended) {
        Ok(mut result) => {
            result.is_error = Some(matches!(ended.outcome, Outcome::Aborted | Outcome::Failed));
            result
        }
        Err(error) => refused(&error),
    }
}
