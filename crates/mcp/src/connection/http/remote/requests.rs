//! Requests to a server, and what their answers say by their status.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use playhouse_tools::web::{Answer, DoorError, HeaderName, HeaderValue, Method, Request, Share, Url};
use rmcp::model::{ErrorCode, ErrorData};
use serde_json::Value;

use super::{Outgoing, Rejected, Remote, SESSION, Session, is_good};
use crate::connection::CallError;
use crate::oauth::{Refused, wants_scopes};
use crate::text::line;

/// Of the body of an error, this much is read and this much is shown, in bytes.
const ERROR_READ: usize = 64 * 1024;
const ERROR_SHOWN: usize = 500;
/// The shortest value of a header that is removed from texts of the server, in bytes.
const SECRET: usize = 6;
/// From this version of the protocol on, requests are named in headers.
const NAMED: &str = "2026-07-28";

const AUTHORIZATION: HeaderName = HeaderName::from_static("authorization");
const ACCEPT: HeaderName = HeaderName::from_static("accept");
const CONTENT_TYPE: HeaderName = HeaderName::from_static("content-type");
const PROTOCOL: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

impl Remote {
    pub(super) async fn get(&self, last: Option<&str>) -> Result<Answer, CallError> {
        let session = self.session.lock().clone();
        let mut request = self.request_with(&session, Method::GET, Share::Stream);
        request.headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(last) = last.and_then(|last| HeaderValue::from_str(last).ok()) {
            request.headers.insert(LAST_EVENT, last);
        }
        self.send(request).await
    }

    pub(super) async fn post(&self, session: &Session, outgoing: &Outgoing) -> Result<Answer, CallError> {
        let mut request = self.request_with(session, Method::POST, outgoing.share);
        request.body = Some(outgoing.body.clone());
        let headers = &mut request.headers;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        if outgoing.greets {
            headers.remove(PROTOCOL);
            headers.remove(SESSION);
        }
        let version = outgoing.version.as_deref().or(session.version.as_deref()).unwrap_or_default();
        if let Some(version) = outgoing.version.as_deref().and_then(|said| HeaderValue::from_str(said).ok()) {
            headers.insert(PROTOCOL, version);
        }
        if version >= NAMED {
            for (name, value) in [(METHOD, &outgoing.method), (NAME, &outgoing.name)] {
                if let Some(value) = value.as_deref().and_then(header_text) {
                    headers.insert(name, value);
                }
            }
            headers.extend(outgoing.mirrored.iter().cloned());
        }
        self.send(request).await
    }

    pub(super) fn request_with(&self, session: &Session, method: Method, share: Share) -> Request {
        let mut headers = self.headers.clone();
        if let Some(id) = &session.id {
            headers.insert(SESSION, id.clone());
        }
        if let Some(version) = session.version.as_deref().and_then(|text| HeaderValue::from_str(text).ok()) {
            headers.insert(PROTOCOL, version);
        }
        Request { headers, method, share, ..Request::get(self.url.clone()) }
    }

    /// Sends a request, with the token of the login if there is one. One that the server refuses is renewed once, and one with too
    /// few scopes is widened once, where that needs no person.
    pub(super) async fn send(&self, request: Request) -> Result<Answer, CallError> {
        let Some(authorizer) = &self.authorizer else { return self.send_once(request).await };
        let failed = |refused| match refused {
            Refused::Need(reason) => CallError::Login(reason),
            Refused::Failed(reason) => CallError::Failed(reason),
        };
        let mut token = authorizer.token().await.map_err(failed)?;
        let (mut may_renew, mut may_widen) = (true, true);
        loop {
            let mut sent = request.clone();
            if let Some(token) = &token {
                sent.headers.insert(AUTHORIZATION, token.header().clone());
            }
            let answer = self.send_once(sent).await?;
            let challenge = answer.header("www-authenticate");
            let next = match (answer.status, challenge) {
                (401, challenge) if may_renew => {
                    may_renew = false;
                    authorizer.refused(token, challenge).await
                }
                (401, _) => return Err(CallError::Login(authorizer.still_refused())),
                (403, Some(challenge)) if wants_scopes(challenge) && may_widen => {
                    may_widen = false;
                    authorizer.widened(token, challenge).await
                }
                _ => return Ok(answer),
            };
            token = Some(next.map_err(failed)?);
        }
    }

    async fn send_once(&self, request: Request) -> Result<Answer, CallError> {
        let within = |from: &Url, to: &Url| match from.origin() == to.origin() {
            true => Ok(()),
            false => Err("configure the address that it leads to".to_owned()),
        };
        self.door.send_where(request, &within).await.map_err(|error| self.failed(error))
    }

    pub(super) fn failed(&self, error: DoorError) -> CallError {
        match error {
            DoorError::Address { .. } | DoorError::Refused { .. } | DoorError::Redirect { .. } => {
                CallError::Blocked(error.to_string())
            }
            _ => CallError::Failed(error.to_string()),
        }
    }

    /// An answer that is no error.
    pub(super) async fn accepted(&self, answer: Answer) -> Result<Answer, Rejected> {
        if is_good(&answer) {
            return Ok(answer);
        }
        let status = answer.status;
        if status == 401 {
            let challenge = answer.header("www-authenticate");
            let challenge = challenge.map(|text| line(&self.without_secrets(text), ERROR_SHOWN));
            return Err(Rejected::Failure(CallError::Unauthorized { challenge }));
        }
        let body = answer.beginning(ERROR_READ).await;
        let body = self.without_secrets(&String::from_utf8_lossy(&body));
        let said = serde_json::from_str::<Value>(&body)
            .ok()
            .and_then(|mut body| serde_json::from_value::<ErrorData>(body.get_mut("error")?.take()).ok());
        if let Some(said) = said {
            return Err(Rejected::Answer(said));
        }
        let text = format!("it answers {status}: {}", line(&body, ERROR_SHOWN));
        Err(match status {
            // It does not understand what is asked.
            400 | 405 | 406 | 415 | 422 => {
                Rejected::Answer(ErrorData::new(ErrorCode::INVALID_REQUEST, text, None))
            }
            _ => Rejected::Failure(CallError::Failed(text)),
        })
    }

    /// A text of the server in which no value of a header stands.
    fn without_secrets(&self, text: &str) -> String {
        let values = self.headers.values().filter_map(|value| value.to_str().ok());
        // The first of several words names a scheme.
        let words = values.flat_map(|value| std::iter::once(value).chain(value.split_whitespace().skip(1)));
        let text = words
            .filter(|word| word.len() >= SECRET)
            .fold(text.to_owned(), |text, word| text.replace(word, "…"));
        self.authorizer.as_ref().map_or_else(|| text.clone(), |authorizer| authorizer.without_token(&text))
    }
}

/// A text as the value of a header, encoded where it has to be.
pub(in crate::connection::http) fn header_text(text: &str) -> Option<HeaderValue> {
    let is_plain = text.bytes().all(|byte| (0x20..0x7f).contains(&byte))
        && text.trim() == text
        && !(text.starts_with("=?base64?") && text.ends_with("?="));
    if is_plain {
        return HeaderValue::from_str(text).ok();
    }
    HeaderValue::from_str(&format!("=?base64?{}?=", BASE64_STANDARD.encode(text))).ok()
}
