//! Typed errors of what providers say when they refuse or fail.

use playhouse_protocol::ErrorInfo;
use playhouse_protocol::error::ErrorCode;
use serde::Deserialize;
use serde_json::Value;

use crate::Endpoint;

/// The longest text of a provider that goes into an error, in characters.
const TEXT_LIMIT: usize = 500;

/// What a provider said.
#[derive(Debug, Default)]
struct Said {
    /// Type and code, whatever of these it gave.
    kind: String,
    /// The message; empty when there was none.
    message: String,
    /// A status in the body.
    status: Option<u16>,
}

impl Said {
    /// Reads the forms that providers use: `{"error": {"type", "code", "message"}}`, `{"error": "…"}`, the inner object
    /// alone, `{"message": "…"}` and `{"detail": …}`.
    fn from_json(value: &Value) -> Self {
        let inner = value.get("error").filter(|error| !error.is_null()).unwrap_or(value);
        let text = |field: &str| inner.get(field).and_then(Value::as_str).unwrap_or_default();
        let mut kind = [text("type"), text("code"), text("status")].join(" ").trim().to_owned();
        if kind == "error" {
            kind.clear();
        }
        let message = match inner {
            Value::String(message) => message.clone(),
            _ => match (text("message"), inner.get("detail")) {
                ("", Some(Value::String(detail))) => detail.clone(),
                ("", Some(detail)) => detail.to_string(),
                (message, _) => message.to_owned(),
            },
        };
        let status = inner.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
        Self { kind, message: one_line(&message), status }
    }

    fn from_body(body: &[u8]) -> Self {
        let value = serde_json::from_slice::<Value>(body).or_else(|_| {
            // Cut at the limit, or several values: the beginning may still be one.
            serde_json::Deserializer::from_slice(body).into_iter().next().unwrap_or(Ok(Value::Null))
        });
        match value {
            Ok(value @ (Value::Object(_) | Value::String(_))) => {
                let said = Self::from_json(&value);
                if said.message.is_empty() && said.kind.is_empty() {
                    Self { message: one_line(&value.to_string()), ..said }
                } else {
                    said
                }
            }
            _ => Self { message: describe_body(body), ..Self::default() },
        }
    }

    /// Type and message as one text.
    fn text(&self) -> String {
        match (self.kind.as_str(), self.message.as_str()) {
            ("", "") => "no more was said".to_owned(),
            (text, "") | ("", text) => text.to_owned(),
            (kind, message) => format!("{message} ({kind})"),
        }
    }

    fn mentions(&self, words: &[&str]) -> bool {
        let text = format!("{} {}", self.kind, self.message).to_ascii_lowercase();
        words.iter().any(|word| text.contains(word))
    }

    fn is_kind(&self, kinds: &[&str]) -> bool {
        let kind = self.kind.to_ascii_lowercase();
        kinds.iter().any(|known| kind.contains(known))
    }

    fn is_overflow(&self) -> bool {
        const WORDS: &[&str] = &[
            "context_length_exceeded",
            "context length",
            "context window",
            "context size",
            "context limit",
            "exceed_context",
            "prompt is too long",
            "input is too long",
            "prompt too long",
            "reduce the length of the messages",
            "reduce the length of your prompt",
            "maximum prompt length",
            "input token count",
        ];
        self.mentions(WORDS)
    }

    fn is_quota(&self) -> bool {
        const KINDS: &[&str] = &["insufficient_quota", "billing", "payment_required", "insufficient_credit"];
        const WORDS: &[&str] = &[
            "credit balance is too low",
            "exceeded your current quota",
            "insufficient credits",
            "insufficient balance",
        ];
        self.is_kind(KINDS) || self.mentions(WORDS)
    }

    fn code(&self, status: Option<u16>) -> Option<ErrorCode> {
        let by_kind = [
            (
                ErrorCode::RateLimited,
                &["overloaded", "rate_limit", "too_many_requests", "resource_exhausted"][..],
            ),
            (ErrorCode::Authentication, &["authentication", "permission", "invalid_api_key", "unauthorized"]),
            (ErrorCode::UnknownModel, &["model_not_found"]),
            (ErrorCode::ContentFilter, &["content_filter", "content_policy"]),
            (ErrorCode::BadRequest, &["invalid_request", "not_found", "request_too_large", "badrequest"]),
            (
                ErrorCode::ProviderUnavailable,
                &["api_error", "server_error", "internal", "timeout", "unavailable"],
            ),
        ];
        let limited = matches!(status, Some(401 | 403 | 429 | 529));
        if self.is_quota() {
            return Some(ErrorCode::BadRequest);
        }
        if !limited && self.is_overflow() {
            return Some(ErrorCode::ContextOverflow);
        }
        let by_status = match status {
            Some(401 | 403) => Some(ErrorCode::Authentication),
            Some(404) if self.mentions(&["model"]) => Some(ErrorCode::UnknownModel),
            Some(425 | 429 | 529) => Some(ErrorCode::RateLimited),
            Some(408 | 500..=599) => Some(ErrorCode::ProviderUnavailable),
            Some(300..=499) => Some(ErrorCode::BadRequest),
            _ => None,
        };
        let by_kind = by_kind.iter().find(|(_, kinds)| self.is_kind(kinds)).map(|(code, _)| *code);
        match (by_status, by_kind) {
            // A general refusal may be told apart by its type; the other classes of status are clear.
            (
                Some(ErrorCode::BadRequest),
                Some(code @ (ErrorCode::UnknownModel | ErrorCode::ContentFilter)),
            ) => Some(code),
            (Some(code), _) => Some(code),
            (None, code) => code,
        }
    }
}

/// The error of an event that reports one, in the middle of an answer: a fragment without the provider's name.
pub(crate) fn in_stream(value: &Value) -> ErrorInfo {
    let said = Said::from_json(value);
    let nothing = said.kind.is_empty() && said.message.is_empty() && said.status.is_none();
    let code = said.code(said.status).unwrap_or(if nothing {
        ErrorCode::BadAnswer
    } else {
        ErrorCode::ProviderUnavailable
    });
    let mut error =
        ErrorInfo::new(code, format!("an error came in the middle of the answer: {}", said.text()));
    error.status = said.status;
    error
}

/// The error that a body reports although its status says that all is well; `None` where it reports none.
pub(crate) fn in_good_body(body: &[u8]) -> Option<ErrorInfo> {
    let value: Value = serde_json::from_slice(body).ok()?;
    value.get("error").filter(|error| !error.is_null())?;
    let said = Said::from_json(&value);
    let code = said.code(said.status).unwrap_or(ErrorCode::BadAnswer);
    Some(ErrorInfo::new(code, format!("the answer is an error: {}", said.text())))
}

/// An answer whose status is not 2xx.
pub(crate) struct Refusal<'a> {
    /// Who answered.
    pub(crate) endpoint: &'a Endpoint,
    /// Where the request went, without what may be secret in it.
    pub(crate) address: &'a str,
    /// The status.
    pub(crate) status: u16,
    /// Names (lower case) and values.
    pub(crate) headers: &'a [(String, String)],
    /// The beginning of the body.
    pub(crate) body: &'a [u8],
    /// The body of the request.
    pub(crate) request: &'a [u8],
}

impl Refusal<'_> {
    /// The error, which names the provider and what to do.
    pub(crate) fn error(&self) -> ErrorInfo {
        let Self { endpoint, address, status, .. } = self;
        let provider = &endpoint.provider;
        let said = Said::from_body(self.body);
        let code = said.code(Some(*status)).unwrap_or(ErrorCode::BadAnswer);
        let wait = retry_after_ms(self.headers);
        let text = said.text();
        let message = match (code, status) {
            (ErrorCode::Authentication, _) => {
                format!("{provider} refused the key ({status}): {text}; {}", endpoint.key_advice())
            }
            (ErrorCode::UnknownModel, _) => {
                format!(
                    "{provider} does not know the model{} ({status}): {text}; check its name",
                    self.model()
                )
            }
            (ErrorCode::ContextOverflow, _) => {
                format!(
                    "{provider} cannot take this much ({status}): {text}; the conversation must become shorter"
                )
            }
            (ErrorCode::RateLimited, _) => {
                let advice = wait.map_or("try again later".to_owned(), |wait| {
                    format!("try again in {} s", wait.div_ceil(1000))
                });
                format!("{provider} asks for less traffic ({status}): {text}; {advice}")
            }
            (ErrorCode::ProviderUnavailable, _) => {
                format!("{provider} failed ({status}): {text}; try again later")
            }
            (_, 300..=399) => {
                let target = self.header("location").map_or("another address", one_origin);
                format!(
                    "{provider} redirects {address} to {target} ({status}): redirects are not followed; set its base_url to where it is"
                )
            }
            (_, 404 | 405) => {
                format!(
                    "{provider} has nothing at {address} ({status}): {text}; check its base_url and the model{}",
                    self.model()
                )
            }
            _ if said.is_quota() => {
                format!(
                    "{provider} does not serve this account any more ({status}): {text}; check its plan and credit"
                )
            }
            _ => format!("{provider} refused the request ({status}): {text}"),
        };
        let mut error = ErrorInfo::new(code, endpoint.without_key(message)).with_status(*status);
        error.retry_after_ms = wait;
        error
    }

    fn header(&self, name: &str) -> Option<&str> {
        header(self.headers, name)
    }

    /// ` "name"`, where the request names a model.
    fn model(&self) -> String {
        #[derive(Deserialize)]
        struct Request {
            model: String,
        }
        serde_json::from_slice::<Request>(self.request)
            .map_or(String::new(), |request| format!(" \"{}\"", request.model))
    }
}

/// The value of header `name` (lower case).
pub(crate) fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// How long the provider asks to wait. Dates are not read: they need a clock that agrees with the provider's.
fn retry_after_ms(headers: &[(String, String)]) -> Option<u64> {
    let number = |name| header(headers, name)?.trim().parse::<f64>().ok().filter(|number| *number >= 0.0);
    // A cast saturates, so that an absurd number becomes a long time.
    let millis = number("retry-after-ms").or_else(|| number("retry-after").map(|seconds| seconds * 1000.0));
    millis.map(|millis| millis.ceil() as u64)
}

/// An address without what may be secret in it: credentials, query and fragment.
fn one_origin(address: &str) -> &str {
    let address = address.split(['?', '#']).next().unwrap_or_default();
    if address.contains('@') { "another address" } else { address }
}

/// A body for people: what an HTML page is titled, or the beginning of a text.
pub(crate) fn describe_body(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(16 << 10)]);
    let lower = text.to_ascii_lowercase();
    let start = lower.trim_start();
    if start.starts_with("<!doctype html") || start.starts_with("<html") {
        let title = lower.find("<title").and_then(|tag| {
            let from = tag + lower[tag..].find('>')? + 1;
            let to = from + lower[from..].find("</title")?;
            Some(one_line(&text[from..to]))
        });
        return match title.filter(|title| !title.is_empty()) {
            Some(title) => format!("an HTML page titled \"{title}\""),
            None => format!("an HTML page: {}", cap(&one_line(&text), 120)),
        };
    }
    one_line(&text)
}

/// `text` on one line, without control characters, capped.
fn one_line(text: &str) -> String {
    let words = text.split(|character: char| character.is_whitespace() || character.is_control());
    let mut line = String::new();
    for word in words.filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        // The length in bytes is at least that in characters, and the cap is exact below.
        if line.len() > 4 * TEXT_LIMIT {
            break;
        }
    }
    cap(&line, TEXT_LIMIT)
}

fn cap(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
