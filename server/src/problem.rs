//! What goes wrong, as problem documents of RFC 9457: each kind has a `type` that never changes.

use std::fmt;
use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use playhouse_protocol::{CommandError, Limit};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinError;

use crate::keys::KeyError;
use crate::metrics::refused;

/// The kinds of problems, with the status and the title of each.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $slug:literal, $status:ident, $title:literal;)*) => {
        /// A kind of problem.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Kind {
            $($(#[$doc])* $name,)*
        }

        impl Kind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The last part of its `type`, which never changes.
            pub const fn slug(self) -> &'static str {
                match self { $(Self::$name => $slug,)* }
            }

            /// Its `type`.
            fn urn(self) -> String {
                format!("urn:playhouse:problem:{}", self.slug())
            }

            /// The status of answers with it.
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status,)* }
            }

            /// What it is called.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

kinds! {
    /// The request cannot be understood, or asks for what does not fit.
    Invalid = "invalid", BAD_REQUEST, "The request does not fit";
    /// No key, or one that is not valid.
    Unauthorized = "unauthorized", UNAUTHORIZED, "A key is needed";
    /// The key is valid, and may not do this.
    Forbidden = "forbidden", FORBIDDEN, "Not allowed";
    /// There is no such thing for this tenant.
    NotFound = "not-found", NOT_FOUND, "Not found";
    /// There was such a session, which was lost when the store was damaged.
    Lost = "lost", GONE, "Lost when the store was damaged";
    /// The path is known, and not with this method.
    Method = "method-not-allowed", METHOD_NOT_ALLOWED, "Method not allowed";
    /// The session is busy, and the prompt said `reject`.
    Busy = "busy", CONFLICT, "The session is busy";
    /// The id of a prompt is that of another one.
    Repeated = "repeated", CONFLICT, "Sent before with other content";
    /// There is something of this name.
    Taken = "taken", CONFLICT, "The name is taken";
    /// The request was settled before.
    Settled = "settled", CONFLICT, "Settled already";
    /// The body is larger than the server takes, or than the storage that its tenant has left.
    TooLarge = "too-large", PAYLOAD_TOO_LARGE, "Too large";
    /// The session's log cannot be trusted, or its actor crashes again and again.
    Parked = "parked", LOCKED, "The session is parked";
    /// A limit of the tenant is reached.
    Limited = "limited", TOO_MANY_REQUESTS, "A limit is reached";
    /// The server has too much to do, or stops.
    Overloaded = "overloaded", SERVICE_UNAVAILABLE, "Not now";
    /// Nothing can be written just now, as the disk is full, for example. It goes on by itself.
    Suspended = "suspended", SERVICE_UNAVAILABLE, "Nothing can be written just now";
    /// The store failed.
    Store = "store", INTERNAL_SERVER_ERROR, "The store failed";
    /// Something failed that should not.
    Internal = "internal", INTERNAL_SERVER_ERROR, "Something failed";
    /// It is known, and not built.
    NotBuilt = "not-built", NOT_IMPLEMENTED, "Not built";
}

/// When to come back to a store that takes no writes: somebody has to tend to its disk.
pub(crate) const SUSPENDED: Duration = Duration::from_secs(5);

/// Something that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What kind.
    pub kind: Kind,
    /// What, where, and what to do.
    pub detail: String,
    /// When to come back.
    pub retry_after: Option<Duration>,
    /// The limit that was reached, where one was.
    pub limit: Option<Box<Limit>>,
    /// What those read instead of `detail` who may read how the operator's providers are reached.
    pub(crate) in_full: Option<Box<str>>,
}

/// Put into an answer: its body for those who may read all. See [`crate::discreet::answer`].
#[derive(Clone, Debug)]
pub(crate) struct InFull(pub(crate) String);

impl Problem {
    /// A problem of this kind.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), retry_after: None, limit: None, in_full: None }
    }

    /// The request does not fit.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, detail)
    }

    /// There is no such thing.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, detail)
    }

    /// The same, to be tried again after this time.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    /// The same, with the limit that was reached.
    #[must_use]
    pub(crate) fn of_limit(self, limit: Limit) -> Self {
        Self { limit: Some(Box::new(limit)), ..self }
    }

    /// The same for those who may read all, where that is more.
    pub(crate) fn in_full(&self) -> Option<Self> {
        let detail = self.in_full.as_deref()?.to_owned();
        Some(Self { detail, in_full: None, ..self.clone() })
    }
}

/// What went wrong, as RFC 9457 says it. The type of a kind of problem never changes; kinds are added.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(extend("additionalProperties" = true))]
pub(crate) struct ProblemDocument<'a> {
    /// The kind.
    #[schemars(regex(pattern = "^urn:playhouse:problem:[a-z-]+$"), extend("examples" = urns()))]
    r#type: String,
    /// What the kind is called.
    title: &'static str,
    /// The status of the answer.
    #[schemars(range(min = 400, max = 599))]
    status: u16,
    /// What, where, and what to do.
    detail: &'a str,
    /// The limit that was reached, where one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<&'a Limit>,
}

/// The `type` of every kind.
fn urns() -> Vec<String> {
    Kind::ALL.iter().map(|kind| kind.urn()).collect()
}

impl Problem {
    /// The document of RFC 9457.
    pub(crate) fn document(&self) -> Value {
        let kind = self.kind;
        json!(ProblemDocument {
            r#type: kind.urn(),
            title: kind.title(),
            status: kind.status().as_u16(),
            detail: &self.detail,
            limit: self.limit.as_deref(),
        })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl From<CommandError> for Problem {
    fn from(error: CommandError) -> Self {
        let kind = match &error {
            CommandError::Lost { .. } => Kind::Lost,
            CommandError::NotFound(_)
            | CommandError::NotFoundSince { .. }
            | CommandError::NoSuchTurn { .. }
            | CommandError::NoSuchConsent(_)
            | CommandError::NoSuchQuestion(_)
            | CommandError::NoSuchCall(_) => Kind::NotFound,
            CommandError::ConsentSettled { .. }
            | CommandError::QuestionSettled { .. }
            | CommandError::CallSettled(_) => Kind::Settled,
            CommandError::Busy | CommandError::StillRunning(_) => Kind::Busy,
            CommandError::Repeated(_) => Kind::Repeated,
            CommandError::Parked { .. } => Kind::Parked,
            CommandError::Invalid(_) | CommandError::Unusable(_) => Kind::Invalid,
            CommandError::Store(_) => Kind::Store,
            CommandError::Suspended(_) => Kind::Suspended,
            CommandError::AtLimit { passes: true, .. } => Kind::Limited,
            CommandError::AtLimit { passes: false, .. } => Kind::Invalid,
            CommandError::OutOfStorage { .. } => {
                refused("storage");
                Kind::TooLarge
            }
            CommandError::NotAccepted(_) => Kind::Overloaded,
            CommandError::Overloaded(_) => Kind::Limited,
        };
        let problem = match &error {
            CommandError::Unusable(info) => {
                tracing::warn!(reason = %info.message, "what a client chose cannot be used");
                Self {
                    in_full: Some(info.message.as_str().into()),
                    ..Self::new(kind, info.for_tenant().message)
                }
            }
            // The command that the error names is the operator's.
            CommandError::NotFound(session) => {
                let told =
                    format!("there is no session {session}; the list of sessions has those that there are");
                Self { in_full: Some(error.to_string().into()), ..Self::new(kind, told) }
            }
            CommandError::NotFoundSince { session, salvaged } => {
                let told = format!(
                    "there is no session {session}; the list of sessions has those that there are. The store was damaged and \
                     salvaged at {salvaged}: a session from before may have been lost then"
                );
                Self { in_full: Some(error.to_string().into()), ..Self::new(kind, told) }
            }
            // Where the rest is kept is the operator's.
            CommandError::Lost { reason, .. } => {
                Self { in_full: Some(error.to_string().into()), ..Self::new(kind, reason.as_str()) }
            }
            CommandError::OutOfStorage { told, limit } | CommandError::AtLimit { told, limit, .. } => {
                Self::new(kind, told.as_str()).of_limit((**limit).clone())
            }
            _ => Self::new(kind, error.to_string()),
        };
        match kind {
            Kind::Overloaded | Kind::Limited => problem.after(Duration::from_secs(1)),
            Kind::Suspended => problem.after(SUSPENDED),
            _ => problem,
        }
    }
}

impl From<JoinError> for Problem {
    fn from(error: JoinError) -> Self {
        // What waits is given up when the process ends.
        if error.is_cancelled() {
            return CommandError::NotAccepted("the server stops".into()).into();
        }
        Self::new(Kind::Internal, "the work crashed: the server's log says where")
    }
}

impl From<KeyError> for Problem {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Store(error) => CommandError::from(error).into(),
            error => Self::new(Kind::Store, error.to_string()),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.kind.status(), self.document().to_string()).into_response();
        if let Some(in_full) = self.in_full() {
            response.extensions_mut().insert(InFull(in_full.document().to_string()));
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(wait) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
        }
        if self.kind == Kind::Unauthorized {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer, Basic realm=\"playhouse\""));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::upkeep::SessionLoss;
    use playhouse_protocol::{SessionId, Timestamp};
    use playhouse_store::{StoreError, SuspensionReason};

    use super::*;

    /// A process that ends, and a store that takes no writes, are no faults of the engine: whoever asks comes back.
    #[tokio::test]
    async fn what_passes_is_told_so() {
        let work = tokio::spawn(std::future::pending::<()>());
        work.abort();
        let full = StoreError::Suspended { reason: SuspensionReason::Full };
        for problem in [
            Problem::from(work.await.unwrap_err()),
            Problem::from(KeyError::from(full)),
            Problem::from(CommandError::from(StoreError::Closed)),
        ] {
            assert_eq!(problem.kind.status(), StatusCode::SERVICE_UNAVAILABLE, "{problem}");
            assert!(problem.retry_after.is_some(), "{problem}");
        }
        let crashed = tokio::spawn(async { panic!("it is on fire") }).await.unwrap_err();
        let problem = Problem::from(crashed);
        assert!(problem.kind == Kind::Internal && !problem.detail.contains("fire"), "{problem}");
    }

    #[test]
    fn clients_are_sent_to_no_command_of_the_operator() {
        let session = SessionId::parse("ses_00000000000012345678901234").unwrap();
        let problem = Problem::from(CommandError::NotFound(session));
        assert!(
            problem.detail.contains(session.as_str()) && !problem.detail.contains("playhouse"),
            "{problem}"
        );
        assert!(problem.in_full().unwrap().detail.contains("`playhouse sessions list`"));
        let salvaged = Timestamp::from_millis(1_800_000_000_000);
        let problem = Problem::from(CommandError::NotFoundSince { session, salvaged });
        assert!(
            problem.detail.contains("salvaged at 2027-01-15T08:00:00Z")
                && !problem.detail.contains("playhouse")
        );
        let (at, kept, reason) = (salvaged, "/data/damaged-1".to_owned(), "it is lost".to_owned());
        let loss = Box::new(SessionLoss {
            at,
            kept,
            had: None,
            left: 0,
            turns: None,
            tenant: None,
            workspace: None,
        });
        let problem = Problem::from(CommandError::Lost { session, reason, loss });
        assert_eq!((problem.kind.status(), &*problem.detail), (StatusCode::GONE, "it is lost"));
        assert!(problem.in_full().unwrap().detail.ends_with("is kept in /data/damaged-1"));
    }
}
