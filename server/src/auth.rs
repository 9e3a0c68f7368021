//! Who asks, and for which tenant: the check of keys, and of the query `tenant`.

use std::sync::Arc;

use axum::extract::{Query, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use playhouse_actors::try_blocking;
use playhouse_protocol::SessionId;
use serde::Deserialize;

use crate::app::App;
use crate::connection::Carrier;
use crate::discreet;
use crate::keys::{self, Key};
use crate::metrics;
use crate::native::extract::misfit_query;
use crate::principal::Principal;
use crate::problem::{Kind, Problem};
use crate::roots::Roots;

/// What anyone may ask.
pub(crate) const OPEN: [&str; 2] = ["/healthz", "/readyz"];
/// Where the API of its own is, and its sessions.
const NATIVE: &str = "/v1/";
const SESSIONS: &str = "/v1/sessions/";

/// Puts the [`Principal`] into the request, and into the answer for the log.
pub(crate) async fn authenticate(State(app): State<App>, mut request: Request, next: Next) -> Response {
    // Who may read metrics is looked at there: no tenant may.
    let path = request.uri().path();
    if OPEN.contains(&path) || path == metrics::PATH {
        return next.run(request).await;
    }
    let is_native = path.starts_with(NATIVE);
    let is_operator = request.extensions().get() == Some(&Carrier::Unix);
    let principal = match principal(&app, request.headers(), is_operator).await {
        Ok(principal) if is_native => scoped(&app, principal, request.uri_mut()).await,
        other => other,
    };
    let principal = match principal {
        Ok(principal) => principal,
        Err(problem) => return problem.into_response(),
    };
    request.extensions_mut().insert(principal.clone());
    let mut response = discreet::answer(next.run(request).await, &principal);
    response.extensions_mut().insert(principal);
    response
}

/// The query that any operation takes.
#[derive(Deserialize)]
struct Scope {
    tenant: Option<String>,
}

/// Decides for which tenant a request is: the one that its query names, which is taken out of the query. The operator who names
/// none means all tenants, and in a path the tenant of that session.
async fn scoped(app: &App, mut principal: Principal, uri: &mut Uri) -> Result<Principal, Problem> {
    let Query(Scope { tenant }) = Query::try_from_uri(uri).map_err(|error| misfit_query(&error))?;
    let Some(tenant) = tenant else {
        if principal.is_operator {
            principal.all = true;
            let session = uri.path().strip_prefix(SESSIONS).and_then(|rest| rest.split('/').next());
            if let Some(Ok(session)) = session.map(SessionId::parse)
                && let Ok(summary) = app.engine().summary(session).await
            {
                principal.tenant = summary.tenant.into();
            }
        }
        return Ok(principal);
    };
    if *tenant != *principal.tenant {
        if !principal.is_operator {
            let detail = "what other tenants have is the operator's: ask on the Unix socket";
            return Err(Problem::new(Kind::Forbidden, detail));
        }
        keys::check_name("tenant", &tenant).map_err(|error| Problem::invalid(error.to_string()))?;
        principal.tenant = tenant.into();
    }
    let rest =
        uri.query().unwrap_or_default().split('&').filter(|pair| pair.split('=').next() != Some("tenant"));
    let rest = rest.collect::<Vec<_>>().join("&");
    let path = if rest.is_empty() { uri.path().to_owned() } else { format!("{}?{rest}", uri.path()) };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(
        PathAndQuery::try_from(path)
            .map_err(|error| Problem::invalid(format!("the query does not fit: {error}")))?,
    );
    *uri = Uri::from_parts(parts)
        .map_err(|error| Problem::invalid(format!("the query does not fit: {error}")))?;
    Ok(principal)
}

async fn principal(app: &App, headers: &HeaderMap, is_operator: bool) -> Result<Principal, Problem> {
    let has_key = headers.contains_key(AUTHORIZATION);
    // Where there are no keys, what a client sends as one is none.
    if !app.needs_key() || (is_operator && !has_key) {
        return Ok(Principal { is_operator, ..Principal::local() });
    }
    let refused = |detail| Problem::new(Kind::Unauthorized, detail);
    if !has_key {
        return Err(refused("send a key as `authorization: Bearer KEY`, or as the password of Basic"));
    }
    let token = token(headers).ok_or_else(|| {
        refused(
            "the `authorization` header holds no key: write `Bearer KEY`, or Basic with it as the password",
        )
    })?;
    match verified(app, token).await? {
        Some(key) => {
            let roots = Roots::of(&key).map(|own| Arc::new(own.within(app.roots())));
            let (tenant, key, key_name) = (key.tenant.into(), Some(key.id.into()), Some(key.name.into()));
            Ok(Principal { tenant, key, key_name, roots, is_operator: false, all: false })
        }
        None => Err(refused("the key is not valid, or was withdrawn")),
    }
}

/// The key in the one `authorization` header.
pub(crate) fn token(headers: &HeaderMap) -> Option<String> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, more) = (values.next()?, values.next());
    let (scheme, rest) = value.to_str().ok().filter(|_| more.is_none())?.split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(rest).ok()?).ok()?;
    decoded.split_once(':').map(|(_, password)| password.to_owned())
}

/// The key that `token` is. The store is read where that may block.
async fn verified(app: &App, token: String) -> Result<Option<Key>, Problem> {
    if let Some(known) = app.keys().remembered(&token) {
        return Ok(known);
    }
    let keys = Arc::clone(app.keys());
    let read = try_blocking(move || keys.verify(&token)).await;
    Ok(read??)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn header(text: &str) -> HeaderMap {
        [(AUTHORIZATION, HeaderValue::from_str(text).unwrap())].into_iter().collect()
    }

    #[test]
    fn a_key_comes_as_bearer_or_as_the_password_of_basic() {
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        for (text, key) in [
            ("Bearer abc".to_owned(), Some("abc")),
            ("bearer  abc ".to_owned(), Some("abc")),
            (basic("opencode:abc"), Some("abc")),
            (basic(":a:b"), Some("a:b")),
            (basic("abc"), None),
            ("Basic ???".to_owned(), None),
            ("Digest abc".to_owned(), None),
            ("abc".to_owned(), None),
        ] {
            assert_eq!(token(&header(&text)).as_deref(), key, "{text}");
        }
        let mut two = header("Bearer abc");
        two.append(AUTHORIZATION, HeaderValue::from_static("Bearer def"));
        assert_eq!(token(&two), None);
    }
}
