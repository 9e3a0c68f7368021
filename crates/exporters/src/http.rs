//! Sends requests to a server, and reads what it says of them.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use playhouse_billing::export::{Answer, Answers, Item, Request, Shape};
use playhouse_tls::Trust;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url, redirect};

use crate::exporters::Surroundings;
use crate::keys::Keys;
use crate::retry_after::retry_after_ms;

/// The longest wait for a connection, names and TLS included.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a connection is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(60);
/// Bytes of an answer that are read.
const ANSWER: usize = 4_096;
/// Characters of an answer that are quoted.
const QUOTED: usize = 500;

/// A server, and how it is spoken to.
pub(crate) struct Server {
    pub(crate) url: Url,
    pub(crate) keys: Keys,
    pub(crate) timeout: Duration,
    pub(crate) shape: Arc<dyn Shape>,
    /// Each entry goes in a request of its own, all at once.
    pub(crate) each: bool,
}

/// A client for `url`.
///
/// # Errors
/// TLS cannot be set up. A fragment with the reason.
pub(crate) fn client(url: &Url) -> Result<Client, String> {
    let builder = Client::builder()
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT)
        .pool_idle_timeout(IDLE)
        .user_agent(concat!("playhouse/", env!("CARGO_PKG_VERSION")));
    // Certificates are loaded for addresses with TLS only: it takes a while, and a machine may have none.
    let trust = if url.scheme() == "https" { Trust::Machine } else { Trust::Nobody };
    let builder = builder.tls_backend_preconfigured(playhouse_tls::client_config(trust)?);
    builder.build().map_err(|error| playhouse_tls::innermost(&error))
}

/// `url` for people: without what may be secret in it.
pub(crate) fn address(url: &Url) -> String {
    let mut url = url.clone();
    // Fails for addresses that cannot have credentials.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

impl Server {
    /// Sends a batch, and says what became of it.
    pub(crate) async fn deliver(
        &self,
        client: &Client,
        batch: &[&Item],
        surroundings: &Surroundings,
    ) -> Answers {
        let requests = self.shape.requests(batch);
        if self.each {
            let sent = requests.into_iter().map(|request| self.send(client, request, surroundings));
            return Answers::Each(join_all(sent).await);
        }
        for request in requests {
            let answer = self.send(client, request, surroundings).await;
            if answer != Answer::Accepted {
                return Answers::All(answer);
            }
        }
        Answers::All(Answer::Accepted)
    }

    async fn send(&self, client: &Client, request: Request, surroundings: &Surroundings) -> Answer {
        let headers = self.headers(&request, surroundings);
        let sent =
            client.post(self.url.clone()).timeout(self.timeout).headers(headers).body(request.body).send();
        match sent.await {
            Ok(response) => self.judge(response, surroundings).await,
            Err(error) => {
                let what = if error.is_timeout() { "did not answer in time" } else { "cannot be reached" };
                let reason = format!("{} {what} ({})", address(&self.url), playhouse_tls::innermost(&error));
                Answer::Busy { reason: self.keys.hide(reason), retry_after_ms: None }
            }
        }
    }

    fn headers(&self, request: &Request, surroundings: &Surroundings) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(request.content_type));
        for (name, value) in &request.headers {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        self.keys.authorize(&mut headers);
        if let Some(id) = &request.signed_as {
            let seconds = (surroundings.clock)().as_millis() / 1_000;
            self.keys.sign(&mut headers, id, seconds, &request.body);
        }
        headers
    }

    async fn judge(&self, mut response: Response, surroundings: &Surroundings) -> Answer {
        let status = response.status().as_u16();
        let retry_after = retry_after_ms(response.headers(), (surroundings.clock)());
        let mut body = Vec::new();
        // What does not arrive is not needed: the status says it all.
        while let Ok(Some(chunk)) = response.chunk().await {
            body.extend_from_slice(&chunk[..chunk.len().min(ANSWER - body.len())]);
            if body.len() == ANSWER {
                break;
            }
        }
        let body = String::from_utf8_lossy(&body);
        let verdict = self.shape.verdict(status, &body);
        Answer::of(verdict, status, self.reason(status, &body), retry_after)
    }

    fn reason(&self, status: u16, body: &str) -> String {
        let words: Vec<&str> = body.split(|c: char| c.is_whitespace() || c.is_control()).collect();
        let text = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        // Before it is cut, so that no half of a key is left.
        let text: String = self.keys.hide(text).chars().take(QUOTED).collect();
        let colon = if text.is_empty() { "" } else { ": " };
        format!("{} answered with status {status}{colon}{text}", address(&self.url))
    }
}
