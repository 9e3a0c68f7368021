//! Gemini: `streamGenerateContent` and `generateContent`.

mod request;
mod stream;

use playhouse_protocol::Tokens;
use serde_json::{Map, Value, json};

use self::stream::Stream;
use super::{About, Asked, Dialect, Encode, Ending, PartKind, Rejected, Wire};
use crate::conversation::Place;
use crate::fault::Rejection;
use crate::script::Finish;
use crate::usage;

/// The wire format.
pub(super) struct Gemini;

/// Where a model of this provider signs its thoughts: base64 of no meaning.
const SIGNATURE: &str = "bW9jay10aG91Z2h0LXNpZ25hdHVyZQ==";

/// The context of the models that a conversation is too long for, in tokens.
const CONTEXT: u64 = 1_048_576;
const NO_QUOTA: &str = "You exceeded your current quota, please check your plan and billing details. For more \
    information on this error, head to: https://ai.google.dev/gemini-api/docs/rate-limits.";

/// What is asked of a model, from the end of a path: its name, and whether the answer is to be a stream.
fn target(path: &str) -> Option<(&str, bool)> {
    let (_, target) = path.rsplit_once("/models/")?;
    let (model, method) = target.rsplit_once(':')?;
    let is_stream = match method {
        "streamGenerateContent" => true,
        "generateContent" => false,
        _ => return None,
    };
    (!model.is_empty()).then_some((model, is_stream))
}

impl Wire for Gemini {
    fn dialect(&self) -> Dialect {
        Dialect::Gemini
    }

    fn serves(&self, path: &str) -> bool {
        target(path).is_some()
    }

    fn read(&self, path: &str, query: &str, body: &[u8]) -> Result<Asked, String> {
        let (model, is_stream) = target(path).ok_or_else(|| format!("{path} names no model"))?;
        request::read(model, is_stream, query, body)
    }

    fn error(&self, status: u16, message: &str) -> Vec<u8> {
        error_value(status, word_of(status), message).to_string().into_bytes()
    }

    fn reject(&self, rejection: Rejection, about: &About, is_stream: bool) -> Rejected {
        if rejection == Rejection::ContentFilter {
            return blocked(about, is_stream);
        }
        let (status, error) = error_of(rejection, about);
        Rejected { status, body: error.to_string().into_bytes(), is_stream: false }
    }

    /// Calls need no ids here, and most models give none.
    fn call_id(&self, _place: Place, _number: usize) -> String {
        String::new()
    }

    fn stream(&self, about: About) -> Box<dyn Encode> {
        Box::new(Stream::new(about))
    }

    fn whole(&self, about: &About, parts: &[(PartKind, String)], ending: &Ending) -> Vec<u8> {
        let mut said = Vec::with_capacity(parts.len());
        let mut signature = None;
        let mut malformed = None;
        for (kind, text) in parts {
            match kind {
                PartKind::Text | PartKind::Refusal => said.push(json!({"text": text})),
                PartKind::Reasoning { .. } | PartKind::Redacted { .. } => {
                    if matches!(kind, PartKind::Reasoning { .. }) {
                        said.push(json!({"text": text, "thought": true}));
                    }
                    signature = Some(signature_of(kind).to_owned());
                }
                PartKind::Block { .. } => {}
                PartKind::Call { id, name } => match call_part(id, name, text, signature.take()) {
                    Some(part) => said.push(part),
                    None => malformed = Some(text.as_str()),
                },
            }
        }
        if let Some(signature) = signature {
            said.push(json!({"text": "", "thoughtSignature": signature}));
        }
        let candidate = last_candidate(said, &ending.finish, malformed);
        let usage = usage::whole(self, ending).map(|(usage, _)| usage);
        let answer = chunk(about, candidate, usage);
        let answer = if about.wants.chunk_list { json!([answer]) } else { answer };
        answer.to_string().into_bytes()
    }

    fn reported(&self, tokens: Tokens) -> Tokens {
        let Tokens { input, cache_read, output, reasoning, .. } = tokens;
        Tokens { input: input + tokens.cache_writes(), cache_read, output, reasoning, ..Tokens::default() }
    }

    /// Counts that are 0 are left out, but for the input's.
    fn usage(&self, tokens: Tokens, total: u64) -> Value {
        let input = tokens.all_input();
        let mut usage = json!({"promptTokenCount": input});
        let classes = [
            ("cachedContentTokenCount", tokens.cache_read),
            ("candidatesTokenCount", tokens.output),
            ("thoughtsTokenCount", tokens.reasoning),
        ];
        for (name, count) in classes.into_iter().filter(|(_, count)| *count > 0) {
            usage[name] = json!(count);
        }
        usage["totalTokenCount"] = json!(total);
        usage["promptTokensDetails"] = json!([{"modality": "TEXT", "tokenCount": input}]);
        usage
    }
}

fn signature_of(kind: &PartKind) -> &str {
    match kind {
        PartKind::Reasoning { signature: Some(signature) } => signature,
        PartKind::Redacted { data } => data,
        _ => SIGNATURE,
    }
}

/// A call; `None` when its arguments are not JSON, which this format cannot carry.
fn call_part(id: &str, name: &str, arguments: &str, signature: Option<String>) -> Option<Value> {
    let arguments: Value = serde_json::from_str(arguments).ok()?;
    let mut call = Map::new();
    if !id.is_empty() {
        call.insert("id".to_owned(), json!(id));
    }
    call.insert("name".to_owned(), json!(name));
    call.insert("args".to_owned(), arguments);
    let mut part = json!({"functionCall": call});
    if let Some(signature) = signature {
        part["thoughtSignature"] = json!(signature);
    }
    Some(part)
}

/// The candidate of an answer's last chunk. `malformed` are arguments that the format cannot carry.
fn last_candidate(parts: Vec<Value>, finish: &Finish, malformed: Option<&str>) -> Value {
    let mut content = json!({"role": "model"});
    if !parts.is_empty() {
        content = json!({"parts": parts, "role": "model"});
    }
    let reason = match finish {
        Finish::Stop | Finish::ToolCalls if malformed.is_some() => "MALFORMED_FUNCTION_CALL",
        Finish::Stop | Finish::ToolCalls => "STOP",
        Finish::Length => "MAX_TOKENS",
        Finish::ContentFilter => "SAFETY",
        Finish::Refusal => "PROHIBITED_CONTENT",
        Finish::Other(words) => words,
    };
    let mut candidate = json!({"content": content, "finishReason": reason, "index": 0});
    if let Some(arguments) = malformed {
        candidate["finishMessage"] = json!(format!("Malformed function call: {arguments}"));
    }
    candidate
}

fn response_id(about: &About) -> String {
    format!("mock-{}-{}", about.place.turn, about.place.step)
}

fn chunk(about: &About, candidate: Value, usage: Option<Value>) -> Value {
    let mut chunk = json!({"candidates": [candidate]});
    if let Some(usage) = usage {
        chunk["usageMetadata"] = usage;
    }
    chunk["modelVersion"] = json!(about.model);
    chunk["responseId"] = json!(response_id(about));
    chunk
}

/// The words for statuses.
const STATUSES: [(u16, &str); 10] = [
    (400, "INVALID_ARGUMENT"),
    (401, "UNAUTHENTICATED"),
    (403, "PERMISSION_DENIED"),
    (404, "NOT_FOUND"),
    (409, "ABORTED"),
    (429, "RESOURCE_EXHAUSTED"),
    (499, "CANCELLED"),
    (500, "INTERNAL"),
    (503, "UNAVAILABLE"),
    (504, "DEADLINE_EXCEEDED"),
];

fn word_of(status: u16) -> &'static str {
    let exact = STATUSES.iter().find(|(code, _)| *code == status).map(|(_, word)| *word);
    exact.unwrap_or(if status < 500 { "INVALID_ARGUMENT" } else { "UNAVAILABLE" })
}

fn status_of(word: &str) -> u16 {
    STATUSES.iter().find(|(_, known)| *known == word).map_or(500, |(code, _)| *code)
}

fn error_value(code: u16, word: &str, message: &str) -> Value {
    json!({"error": {"code": code, "message": message, "status": word}})
}

/// An answer without candidates: the request itself was blocked.
fn blocked(about: &About, is_stream: bool) -> Rejected {
    let tokens = Gemini.reported(about.input);
    let answer = json!({
        "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},
        "usageMetadata": Gemini.usage(tokens, tokens.all_input()),
        "modelVersion": about.model,
        "responseId": response_id(about),
    });
    let text = match (is_stream, about.wants.chunk_list) {
        (true, _) => format!("data: {answer}\r\n\r\n"),
        (false, true) => json!([answer]).to_string(),
        (false, false) => answer.to_string(),
    };
    Rejected { status: 200, body: text.into_bytes(), is_stream }
}

fn error_of(rejection: Rejection, about: &About) -> (u16, Value) {
    let model = &about.model;
    let detail = |kind: &str, fields: Value| {
        let mut detail = json!({"@type": format!("type.googleapis.com/google.rpc.{kind}")});
        if let (Value::Object(detail), Value::Object(fields)) = (&mut detail, fields) {
            detail.extend(fields);
        }
        detail
    };
    let quota = |id: &str| detail("QuotaFailure", json!({"violations": [{"quotaId": id}]}));
    let (status, message, details) = match rejection {
        Rejection::ContextOverflow => {
            let tokens = about.input.all_input().max(CONTEXT) + 1;
            let words = format!(
                "The input token count ({tokens}) exceeds the maximum number of tokens allowed ({CONTEXT})."
            );
            (400, words, vec![])
        }
        Rejection::QuotaUsedUp => {
            (429, NO_QUOTA.to_owned(), vec![quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier")])
        }
        Rejection::RateLimited => {
            let words = format!("{NO_QUOTA}\nPlease retry in 1.5s.");
            let retry = detail("RetryInfo", json!({"retryDelay": "1.5s"}));
            (429, words, vec![quota("GenerateRequestsPerMinutePerProjectPerModel"), retry])
        }
        Rejection::Overloaded => (503, "The model is overloaded. Please try again later.".to_owned(), vec![]),
        Rejection::BadKey => {
            let info = json!({"reason": "API_KEY_INVALID", "domain": "googleapis.com"});
            let words = "API key not valid. Please pass a valid API key.";
            (400, words.to_owned(), vec![detail("ErrorInfo", info)])
        }
        Rejection::Forbidden => (403, "The caller does not have permission".to_owned(), vec![]),
        Rejection::NoSuchModel => {
            let words = format!(
                "models/{model} is not found for API version v1beta, or is not supported for generateContent. Call \
                 ListModels to see the list of available models and their supported methods."
            );
            (404, words, vec![])
        }
        Rejection::TooLarge => {
            (400, "Request payload size exceeds the limit: 20971520 bytes.".to_owned(), vec![])
        }
        // Not an error here.
        Rejection::ContentFilter => (400, "The request was blocked.".to_owned(), vec![]),
    };
    let mut error = error_value(status, word_of(status), &message);
    if !details.is_empty() {
        error["error"]["details"] = json!(details);
    }
    (status, error)
}
