//! Delivery of calls by webhook: signed as Standard Webhooks, through the guarded way to the network.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_billing::export::signature::{key_bytes, sign};
use playhouse_mcp::VaultFile;
use playhouse_protocol::{CallAnswer, PartId, SessionId};
use playhouse_tools::CallContext;
use playhouse_tools::host_tool::Delivery;
use playhouse_tools::web::{
    Door, DoorError, HeaderMap, HeaderName, HeaderValue, Method, Request, Share, Url, shown_url,
};
use secrecy::{ExposeSecret as _, SecretSlice, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::{sleep, timeout};

use crate::base::now;

/// The longest wait for an answer. A platform that needs longer answers 202 and gives the result later.
const ATTEMPT: Duration = Duration::from_secs(60);
/// The wait before the second delivery, which doubles before each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest wait between deliveries.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The largest answer, in bytes.
const LARGEST_ANSWER: usize = 64 * 1024;

/// Where calls of a new tool are sent.
#[derive(Debug)]
pub struct NewWebhook {
    /// The address.
    pub url: String,
    /// The key that signs: `whsec_` and base64.
    pub secret: SecretString,
}

impl NewWebhook {
    /// A webhook at an address, with the key that signs.
    pub fn new(url: impl Into<String>, secret: impl Into<String>) -> Self {
        Self { url: url.into(), secret: secret.into().into() }
    }

    pub(super) fn seal(&self, file: &VaultFile) -> std::io::Result<()> {
        file.save(self.secret.expose_secret().as_bytes())
    }
}

/// Where calls of a tool are sent.
pub(super) struct Webhook {
    url: Url,
    key: SecretSlice<u8>,
    door: Door,
}

/// The body of a delivery.
#[derive(Serialize)]
struct Body<'a> {
    r#type: &'static str,
    session: SessionId,
    call: PartId,
    tool: &'a str,
    arguments: &'a Map<String, Value>,
}

/// The body of an answer: one of the two.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answered {
    #[serde(default, deserialize_with = "playhouse_protocol::record::also_null")]
    output: Option<Value>,
    #[serde(default)]
    error: Option<String>,
}

/// What came of a delivery.
enum Outcome {
    Answer(CallAnswer),
    /// The result comes later.
    Later,
    /// It may be delivered again, with why it was not.
    Again(String),
}

impl Webhook {
    /// Sends to `url`, signed with `secret`.
    ///
    /// # Errors
    /// What is wrong with the address or the secret, without repeating the secret.
    pub(super) fn new(url: &str, secret: &SecretString, door: Door) -> Result<Self, String> {
        let url: Url = url.parse().map_err(|error| format!("`webhook.url` is no address: {error}"))?;
        if url.scheme() != "https" {
            return Err("`webhook.url` must begin with https://".to_owned());
        }
        door.check(&url).map_err(|error| format!("`webhook.url`: {error}"))?;
        let key = key_bytes(secret.expose_secret()).map_err(|error| format!("`webhook.secret` {error}"))?;
        Ok(Self { url, key: key.into(), door })
    }

    /// Delivers until an answer came; `None` says that the result comes later.
    async fn send_until_it_arrives(&self, body: Body<'_>) -> Option<CallAnswer> {
        let call = body.call;
        let body = serde_json::to_vec(&body).ok()?;
        let mut pause = FIRST_PAUSE;
        loop {
            let outcome = timeout(ATTEMPT, self.send(call, &body)).await;
            match outcome.unwrap_or_else(|_| Outcome::Again("it did not answer in time".to_owned())) {
                Outcome::Answer(answer) => return Some(answer),
                Outcome::Later => return None,
                Outcome::Again(why) => {
                    let url = shown_url(&self.url);
                    tracing::warn!(url, %call, why, "a call was not delivered, and is delivered again");
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// One delivery. The call's id is the same each time.
    async fn send(&self, call: PartId, body: &[u8]) -> Outcome {
        let seconds = now().as_millis() / 1_000;
        let signature = sign(self.key.expose_secret(), call.as_str(), seconds, body);
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("content-type", "application/json".to_owned()),
            ("webhook-id", call.to_string()),
            ("webhook-timestamp", seconds.to_string()),
            ("webhook-signature", signature),
        ] {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        let request = Request {
            url: self.url.clone(),
            headers,
            method: Method::POST,
            body: Some(body.to_vec().into()),
            follow: false,
            share: Share::Exchange,
        };
        let answer = match self.door.send(request).await {
            Ok(answer) => answer,
            Err(error @ DoorError::Unreachable { .. }) => return Outcome::Again(error.to_string()),
            Err(error) => {
                tracing::warn!(url = shown_url(&self.url), %error, "a call cannot be delivered");
                return failed("its address may not be reached, or leads elsewhere");
            }
        };
        match answer.status {
            202 => Outcome::Later,
            200 => match answer.body(LARGEST_ANSWER).await {
                Ok(body) => read(&body),
                Err(error @ DoorError::TooLarge { .. }) => {
                    tracing::warn!(url = shown_url(&self.url), %error, "the answer to a call cannot be read");
                    failed(&format!("its answer has more than {LARGEST_ANSWER} bytes"))
                }
                Err(error) => Outcome::Again(error.to_string()),
            },
            status @ (408 | 425 | 429 | 500..) => Outcome::Again(format!("it answered {status}")),
            status => failed(&format!("it answered {status}")),
        }
    }
}

fn failed(why: &str) -> Outcome {
    Outcome::Answer(CallAnswer::Error { error: format!("the call could not be delivered: {why}") })
}

fn read(body: &[u8]) -> Outcome {
    match serde_json::from_slice(body) {
        Ok(Answered { output: Some(output), error: None }) => Outcome::Answer(CallAnswer::output(output)),
        Ok(Answered { output: None, error: Some(error) }) => Outcome::Answer(CallAnswer::Error { error }),
        _ => failed("its answer has neither an output nor an error"),
    }
}

impl Delivery for Webhook {
    fn deliver<'a>(
        &'a self,
        tool: &'a str,
        arguments: &'a Map<String, Value>,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Option<CallAnswer>> {
        async move {
            let (session, call) = context.host.place()?;
            self.send_until_it_arrives(Body { r#type: "tool.call", session, call, tool, arguments }).await
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests;
