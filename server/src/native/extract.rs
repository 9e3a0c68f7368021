//! What handlers take out of requests: body, query and ids, with problem documents for those that do not fit.

use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse as _;
use playhouse_protocol::nearest::did_you_mean;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::options::USUAL_BODY;
use crate::problem::{Kind, Problem};

/// What is said of a body that is too large.
pub(crate) fn too_large() -> Problem {
    let detail = format!(
        "the body is larger than this server takes, usually {} MB: send less at once, files in several prompts for example",
        USUAL_BODY >> 20
    );
    Problem::new(Kind::TooLarge, detail)
}

/// A body of JSON.
pub(crate) struct Body<T>(pub(crate) T);

/// The query of the address.
pub(crate) struct Search<T>(pub(crate) T);

/// The ids in the path, in order.
pub(crate) struct Ids<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        check_type(request.headers())?;
        let bytes = match Bytes::from_request(request, state).await {
            Ok(bytes) => bytes,
            Err(rejection) => {
                let detail = rejection.body_text();
                let status = rejection.into_response().status();
                return Err(match status {
                    StatusCode::PAYLOAD_TOO_LARGE => too_large(),
                    _ => Problem::invalid(format!("the body cannot be read: {detail}")),
                });
            }
        };
        parse(&bytes).map(Self)
    }
}

/// A page of another origin can send some types of bodies without asking; JSON is not among them.
fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(written) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let written = written.to_str().unwrap_or("?");
    let essence = written.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json")) {
        return Ok(());
    }
    let shown: String = written.chars().take(64).collect();
    Err(Problem::invalid(format!(
        "the body is said to be \"{}\": send JSON, with the header \"content-type: application/json\"",
        shown.escape_debug()
    )))
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    if bytes.trim_ascii().is_empty() {
        // From bytes, as below: `from_str` would compile a second reader of each type.
        return serde_json::from_slice(b"{}")
            .map_err(|error| Problem::invalid(format!("the body is empty: {}", plain(&error))));
    }
    // A list would be read as the fields of a body in their order.
    if !bytes.trim_ascii_start().starts_with(b"{") && serde_json::from_slice::<IgnoredAny>(bytes).is_ok() {
        return Err(Problem::invalid(
            "the body does not fit: it has to be a JSON object, as in {\"title\": \"…\"}",
        ));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        let text = plain(&error);
        let meant = meant(&text);
        let (line, column) = (error.line(), error.column());
        Problem::invalid(format!("the body does not fit, at line {line}, column {column}: {text}{meant}"))
    })
}

/// The message without the place at its end.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&place).unwrap_or(&text).to_owned()
}

/// The name that was probably meant, for a message of serde about a name that it does not know.
fn meant(text: &str) -> String {
    if !text.contains("unknown field") && !text.contains("unknown variant") {
        return String::new();
    }
    // The names stand between backticks: first the wrong one, then those that are known.
    let mut names = text.split('`').skip(1).step_by(2);
    names.next().map(|wrong| did_you_mean(wrong, names)).unwrap_or_default()
}

impl<T: DeserializeOwned + 'static, S: Send + Sync> FromRequestParts<S> for Search<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(query)) => Ok(Self(query)),
            Err(rejection) => Err(misfit_query(&rejection)),
        }
    }
}

pub(crate) fn misfit_query(rejection: &QueryRejection) -> Problem {
    let text = rejection.body_text();
    let text = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
    Problem::invalid(format!("the query does not fit: {text}{}", meant(text)))
}

impl<T: DeserializeOwned + Send + 'static, S: Send + Sync> FromRequestParts<S> for Ids<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(ids)) => Ok(Self(ids)),
            Err(rejection) => Err(misfit_path(&rejection)),
        }
    }
}

fn misfit_path(rejection: &PathRejection) -> Problem {
    let text = rejection.body_text();
    let text = text.strip_prefix("Invalid URL: ").unwrap_or(&text);
    Problem::invalid(format!("the path does not fit: {text}"))
}

/// Tells what is `null` from what is absent.
pub(crate) fn given<'de, T: serde::Deserialize<'de>, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        #[allow(dead_code, reason = "only read by serde")]
        title: Option<String>,
        #[allow(dead_code, reason = "only read by serde")]
        agent: Option<String>,
    }

    #[test]
    fn what_is_wrong_with_a_body_is_told_with_its_place() {
        for (body, said) in [
            (
                "{\n  \"titel\": 1}",
                "at line 2, column 9: unknown field `titel`, expected `title` or `agent`; did you mean \"title\"?",
            ),
            ("{\"title\": 1}", "at line 1, column 11: invalid type: integer `1`, expected a string"),
            ("{\"title\"", "at line 1, column 8: EOF while parsing an object"),
            ("{}x", "at line 1, column 3: trailing characters"),
        ] {
            let problem = parse::<Sample>(body.as_bytes()).unwrap_err();
            assert_eq!(problem.kind, Kind::Invalid);
            assert!(problem.detail.ends_with(said), "{body}: {}", problem.detail);
        }
        for body in ["[\"a\", \"b\"]", " []", "1", "null", "\"a\""] {
            let problem = parse::<Sample>(body.as_bytes()).unwrap_err();
            assert!(problem.detail.contains("has to be a JSON object"), "{body}: {}", problem.detail);
        }
        assert!(parse::<Sample>(b" \n").is_ok(), "no body is one without fields");
        let problem = parse::<Vec<u8>>(b"").unwrap_err();
        assert!(problem.detail.starts_with("the body is empty: "), "{}", problem.detail);
    }

    #[test]
    fn only_json_is_taken_for_json() {
        let check = |written: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, written.parse().unwrap());
            check_type(&headers).is_ok()
        };
        assert!(check("application/json") && check("Application/JSON; charset=utf-8"));
        assert!(check("application/merge-patch+json") && check_type(&HeaderMap::new()).is_ok());
        for written in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "json"] {
            assert!(!check(written), "{written}");
        }
    }
}
