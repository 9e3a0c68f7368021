//! The HTTP client of logins: every request goes through the guarded client of the engine.

use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use playhouse_tools::web::{Answer, Door, HeaderName, HeaderValue, Method, Request, Share, Url};
use rmcp::transport::auth::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRedirectPolicy, OAuthHttpRequest,
};
use tokio::time::timeout;

/// The largest answer that is read, in bytes.
const LARGEST: usize = 1024 * 1024;
/// Upper bound of a request that the library gives none.
const LONGEST: Duration = Duration::from_secs(30);
/// Headers of an answer that logins read.
const READ: [&str; 3] = ["content-type", "www-authenticate", "location"];

/// The client.
pub(super) struct DoorClient {
    door: Door,
    /// Why the last request failed: errors of the library do not always say.
    failure: Mutex<Option<String>>,
}

impl DoorClient {
    pub(super) fn new(door: Door) -> Self {
        Self { door, failure: Mutex::default() }
    }

    /// Why the last request that failed did.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().take()
    }

    async fn exchange(
        &self,
        request: OAuthHttpRequest,
    ) -> Result<http::Response<Vec<u8>>, OAuthHttpClientError> {
        let (head, body) = request.request.into_parts();
        let url = Url::parse(&head.uri.to_string())?;
        let is_get = head.method == Method::GET;
        // The library follows redirects of GET by itself, within an origin. Here they are followed the same way.
        let follow = is_get || request.redirect_policy == OAuthHttpRedirectPolicy::Follow;
        let body = (!body.is_empty()).then(|| Bytes::from(body));
        let request =
            Request { url, headers: head.headers, method: head.method, body, follow, share: Share::Fetch };
        let within = |from: &Url, to: &Url| match from.origin() == to.origin() {
            true => Ok(()),
            false => Err("it leads to another server".to_owned()),
        };
        let answer: Answer = self.door.send_where(request, &within).await?;
        let mut response = http::Response::builder().status(answer.status);
        for name in READ {
            let value = answer.header(name).and_then(|value| HeaderValue::from_str(value).ok());
            if let Some(value) = value {
                response = response.header(HeaderName::from_static(name), value);
            }
        }
        Ok(response.body(answer.body(LARGEST).await?)?)
    }
}

impl OAuthHttpClient for DoorClient {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let bound = request.timeout.unwrap_or(LONGEST);
            let exchanged = timeout(bound, self.exchange(request)).await;
            let exchanged =
                exchanged.unwrap_or_else(|_| Err(format!("no answer within {} s", bound.as_secs()).into()));
            if let Err(error) = &exchanged {
                *self.failure.lock() = Some(error.to_string());
            }
            exchanged
        })
    }
}
