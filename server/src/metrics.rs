//! `/metrics`: who may read it, and what the server itself measures.
//!
//! What is measured of all tenants together is the operator's. So over the network it needs the operator's token, where the
//! server needs keys of its clients; a key of a tenant does not open it. On the Unix socket only the operator asks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use metrics::{counter, gauge, histogram};
use playhouse_actors::try_blocking;
use playhouse_protocol::metric::{Metric, OTHER};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::app::App;
use crate::auth::token;
use crate::connection::Carrier;
use crate::problem::{Kind, Problem};

/// Where metrics are read.
pub(crate) const PATH: &str = "/metrics";
/// The text format of Prometheus.
const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Gives everything that was recorded as Prometheus reads it. The product, which installs the recorder, has it.
pub trait MetricsSource: Send + Sync {
    /// The text. May take milliseconds.
    fn render(&self) -> String;
}

/// Who may read `/metrics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsAccess {
    /// The operator: on the Unix socket, and over the network with the token. Without a token everyone who reaches a
    /// server that needs no keys, and nobody who reaches one that does.
    #[default]
    Operator,
    /// Everyone who reaches the server.
    Open,
    /// Nobody.
    Off,
}

impl MetricsAccess {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Operator, Self::Open, Self::Off];

    /// Its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Open => "open",
            Self::Off => "off",
        }
    }
}

/// The token with which Prometheus reads metrics. Only its hash is kept.
#[derive(Clone, PartialEq, Eq)]
pub struct MetricsToken([u8; 32]);

impl MetricsToken {
    /// This token.
    pub fn new(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    fn is(&self, token: &str) -> bool {
        // Hashes of one length, compared in constant time.
        self.0.ct_eq(&Self::new(token).0).into()
    }
}

impl fmt::Debug for MetricsToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MetricsToken(…)")
    }
}

/// What a server tells of metrics, and to whom.
#[derive(Clone, Default)]
pub struct MetricsOptions {
    /// Who may read them.
    pub access: MetricsAccess,
    /// With which token.
    pub token: Option<MetricsToken>,
    /// Where they come from; without it there are none.
    pub source: Option<Arc<dyn MetricsSource>>,
}

impl fmt::Debug for MetricsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsOptions")
            .field("access", &self.access)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

/// Answers with everything that was recorded.
pub(crate) async fn show(State(app): State<App>, request: Request) -> Result<Response, Problem> {
    let MetricsOptions { access, token, source } = &app.options().metrics;
    let is_operator = request.extensions().get() == Some(&Carrier::Unix);
    let may = match access {
        MetricsAccess::Off => true,
        MetricsAccess::Open => true,
        MetricsAccess::Operator => is_operator || may(token.as_ref(), request.headers(), app.needs_key()),
    };
    if !may {
        let detail = "metrics are the operator's: send the token that `metrics.token_env` names as \
                      `authorization: Bearer TOKEN`, or ask on the Unix socket";
        return Err(Problem::new(Kind::Unauthorized, detail));
    }
    let source = source.clone().filter(|_| *access != MetricsAccess::Off);
    let source = source.ok_or_else(|| Problem::not_found("there are no metrics here: they are off"))?;
    let render = move || {
        app.engine().observe();
        observe(&app);
        source.render()
    };
    let text = try_blocking(render).await;
    let text = text.map_err(|error| Problem::new(Kind::Internal, error.to_string()))?;
    Ok(([(CONTENT_TYPE, FORMAT)], text).into_response())
}

/// Whether somebody in the network may read them.
fn may(expected: Option<&MetricsToken>, headers: &HeaderMap, needs_key: bool) -> bool {
    match expected {
        Some(expected) => token(headers).is_some_and(|token| expected.is(&token)),
        None => !needs_key,
    }
}

/// Tells the recorder what is open.
#[allow(clippy::cast_precision_loss, reason = "a count may be off by one in 2^53")]
fn observe(app: &App) {
    gauge!(Metric::Streams.name()).set(app.limits().subscribers() as f64);
    let seats = app.options().connections.saturating_sub(app.seats().available_permits());
    gauge!(Metric::Connections.name()).set(seats as f64);
    if let Some(operator) = app.operator() {
        operator.observe();
    }
}

/// A request was refused because its tenant has reached this limit.
pub(crate) fn refused(limit: &'static str) {
    counter!(Metric::Refused.name(), "limit" => limit).increment(1);
}

/// What is known of a request before it is answered.
pub(crate) struct Asked {
    route: Option<MatchedPath>,
    method: &'static str,
}

impl Asked {
    /// Of this request, which has its route already.
    pub(crate) fn of(request: &Request) -> Self {
        Self { route: request.extensions().get().cloned(), method: method(request.method()) }
    }

    /// The head of its answer is there.
    pub(crate) fn answered(&self, status: StatusCode, took: Duration) {
        // Paths that there are not are no names of series.
        let route = self.route.as_ref().map_or(OTHER, MatchedPath::as_str);
        let labels = [("route", route.to_owned()), ("method", self.method.to_owned())];
        histogram!(Metric::HttpDuration.name(), &labels).record(took);
        let [route, method] = labels;
        let labels = [route, method, ("status", status.as_str().to_owned())];
        counter!(Metric::HttpRequests.name(), &labels).increment(1);
    }
}

/// A method that clients may use; they may write any other word.
fn method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => OTHER,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use axum::http::header::AUTHORIZATION;

    use super::*;

    #[test]
    fn a_token_opens_and_no_other_does() {
        let bearer = |text: &str| -> HeaderMap {
            [(AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {text}")).unwrap())].into_iter().collect()
        };
        let expected = MetricsToken::new("secret");
        assert!(may(Some(&expected), &bearer("secret"), true));
        for other in ["Secret", "secret2", ""] {
            assert!(!may(Some(&expected), &bearer(other), true), "{other}");
            assert!(!may(Some(&expected), &bearer(other), false), "{other}");
        }
        assert!(!may(Some(&expected), &HeaderMap::new(), false), "where there is a token it is needed");
        assert!(may(None, &HeaderMap::new(), false) && !may(None, &bearer("secret"), true));
        assert!(!format!("{expected:?}").contains("secret"));
    }

    #[test]
    fn methods_are_bounded() {
        assert_eq!(method(&Method::PATCH), "PATCH");
        assert_eq!(method(&Method::from_bytes(b"BREW").unwrap()), OTHER);
    }
}
