//! What goes wrong, as the wire says it.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use playhouse_protocol::id::IdError;
use playhouse_protocol::{CommandError, SessionId};
use serde_json::{Value, json};

use crate::problem::{InFull, Kind, Problem};

/// Something that went wrong, in the form that most routes of the wire have for it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    problem: Problem,
    /// What the wire has a name of its own for: that, and which field names what it is about.
    tagged: Option<(&'static str, &'static str, Box<str>)>,
}

/// The same in the form that the routes have which only read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Named(Failure);

impl Failure {
    /// The request does not fit.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Problem::invalid(detail).into()
    }

    /// What is asked for is not built.
    pub(crate) fn not_built(detail: impl Into<String>) -> Self {
        Problem::new(Kind::NotBuilt, detail).into()
    }

    /// There is no such request for consent.
    pub(crate) fn no_permission(request: &str) -> Self {
        Self::no_request("PermissionNotFoundError", request)
    }

    /// There is no such request with questions.
    pub(crate) fn no_question(request: &str) -> Self {
        Self::no_request("QuestionNotFoundError", request)
    }

    /// There is no such server of tools.
    pub(crate) fn no_mcp_server(name: &str) -> Self {
        let detail = format!("there is no server of tools \"{}\"", name.escape_debug());
        let tagged = Some(("McpServerNotFoundError", "name", name.into()));
        Self { problem: Problem::not_found(detail), tagged }
    }

    /// A command cannot be run now.
    pub(crate) fn busy(session: SessionId) -> Self {
        let detail = format!(
            "session {session} is busy: a command is run when nothing else runs in it. wait for the end of what runs, or abort it"
        );
        let tagged = Some(("SessionBusyError", "sessionID", session.to_string().into()));
        Self { problem: Problem::new(Kind::Busy, detail), tagged }
    }

    fn no_request(name: &'static str, request: &str) -> Self {
        let request: String = request.chars().take(64).collect();
        let detail = format!("there is no request \"{}\" that waits for an answer", request.escape_debug());
        Self { problem: Problem::not_found(detail), tagged: Some((name, "requestID", request.into())) }
    }

    fn respond(self, named: bool) -> Response {
        let mut response = (self.problem.kind.status(), self.body(named)).into_response();
        if let Some(problem) = self.problem.in_full() {
            let in_full = Self { problem, tagged: self.tagged.clone() };
            response.extensions_mut().insert(InFull(in_full.body(named)));
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(wait) = self.problem.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
        }
        response
    }

    /// All that the wire knows of are these; the rest is told in the form of what it does not know.
    fn body(&self, named: bool) -> String {
        let message = &*self.problem.detail;
        let body = match (self.problem.kind.status(), &self.tagged) {
            (_, Some((name, field, what))) => json!({"_tag": name, (*field): what, "message": message}),
            (StatusCode::NOT_FOUND, None) => error("NotFoundError", message),
            (StatusCode::BAD_REQUEST, None) if named => error("BadRequest", message),
            (StatusCode::BAD_REQUEST, None) => json!({"_tag": "InvalidRequestError", "message": message}),
            _ => error("UnknownError", message),
        };
        body.to_string()
    }
}

fn error(name: &str, message: &str) -> Value {
    json!({"name": name, "data": {"message": message}})
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        // The wire has no status of its own for a directory that is not allowed.
        let problem = match problem.kind {
            Kind::Forbidden => Problem { kind: Kind::Invalid, ..problem },
            _ => problem,
        };
        Self { problem, tagged: None }
    }
}

impl From<CommandError> for Failure {
    fn from(error: CommandError) -> Self {
        Problem::from(error).into()
    }
}

impl From<IdError> for Failure {
    fn from(error: IdError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl<E: Into<Failure>> From<E> for Named {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        self.respond(false)
    }
}

impl IntoResponse for Named {
    fn into_response(self) -> Response {
        self.0.respond(true)
    }
}
