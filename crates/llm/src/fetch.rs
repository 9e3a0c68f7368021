//! Fetches a document that is no answer of a model, as a catalogue.

use std::time::Duration;

use futures::StreamExt as _;
use playhouse_tls::Trust;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url, redirect};
use secrecy::ExposeSecret as _;

use crate::connections::CONNECT_TIMEOUT;
use crate::dialect::DialectKind;
use crate::endpoint::Endpoint;
use crate::transport::address;

/// How many redirects are followed with https. A request that carries a key follows none.
const REDIRECTS: usize = 5;

/// The text at `url` (`http` or `https`), of at most `most` bytes, within `time`.
///
/// # Errors
/// Says what went wrong and where, in a fragment that names the address without credentials and query. A status other
/// than success is an error.
pub async fn fetch(url: &str, most: usize, time: Duration) -> Result<String, String> {
    read(url, HeaderMap::new(), most, time).await
}

/// The models that a provider lists, as it tells them (`GET /v1/models` of OpenAI's and Anthropic's APIs).
///
/// # Errors
/// As [`fetch`]; the key and the values of headers are in no message.
pub async fn fetch_models(endpoint: &Endpoint, most: usize, time: Duration) -> Result<String, String> {
    let base = endpoint.base_url.trim_end_matches('/');
    // Unlike OpenAI's, the addresses of this dialect end before the version; and its lists have pages.
    let url = match endpoint.dialect {
        DialectKind::Anthropic => {
            format!("{}/v1/models?limit=1000", base.strip_suffix("/v1").unwrap_or(base))
        }
        _ => format!("{base}/models"),
    };
    endpoint.check_key().map_err(|error| error.message)?;
    let own = endpoint.dialect.dialect().headers(endpoint.key.as_ref());
    let configured = endpoint.headers.iter().map(|(name, value)| (name.as_str(), value.clone()));
    let mut headers = HeaderMap::new();
    for (name, value) in own.into_iter().chain(configured) {
        let wrong = |_| format!("the header {name} cannot be sent");
        let mut value = HeaderValue::from_str(value.expose_secret()).map_err(wrong)?;
        value.set_sensitive(true);
        headers.insert(
            HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| format!("the header {name} cannot be sent"))?,
            value,
        );
    }
    read(&url, headers, most, time).await.map_err(|error| endpoint.without_secrets(error))
}

async fn read(url: &str, headers: HeaderMap, most: usize, time: Duration) -> Result<String, String> {
    let place = address(url);
    match tokio::time::timeout(time, exchange(url, headers, &place, most)).await {
        Ok(result) => result,
        Err(_) => Err(format!("{place} was not read within {} s", time.as_secs_f64())),
    }
}

async fn exchange(url: &str, headers: HeaderMap, place: &str, most: usize) -> Result<String, String> {
    let url = Url::parse(url).map_err(|error| format!("\"{place}\" is not an address: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("\"{place}\" begins with {}: use http or https", url.scheme()));
    }
    let secure = url.scheme() == "https";
    // Loading the machine's certificates takes milliseconds.
    let redirects = if headers.is_empty() { REDIRECTS } else { 0 };
    let client = tokio::task::spawn_blocking(move || client(secure, redirects)).await;
    let client = client
        .map_err(|error| error.to_string())
        .and_then(|client| client)
        .map_err(|error| format!("no HTTP client: {error}"))?;
    let answer = client.get(url).headers(headers).header("accept", "application/json").send().await;
    let answer =
        answer.map_err(|error| format!("{place} cannot be reached: {}", playhouse_tls::innermost(&error)))?;
    if answer.status().is_redirection() {
        return Err(format!("{place} leads elsewhere (status {}): try https", answer.status()));
    }
    if !answer.status().is_success() {
        return Err(format!("{place} answers with status {}", answer.status()));
    }
    let mut bytes = Vec::new();
    let mut body = answer.bytes_stream();
    while let Some(chunk) = body.next().await {
        let chunk =
            chunk.map_err(|error| format!("{place} broke off: {}", playhouse_tls::innermost(&error)))?;
        if bytes.len() + chunk.len() > most {
            return Err(format!("{place} gives more than {} MB", most >> 20));
        }
        bytes.extend_from_slice(&chunk);
    }
    String::from_utf8(bytes).map_err(|_| format!("{place} does not give text in UTF-8"))
}

/// With https no redirect leads out of it. Without it no certificates are needed, which a machine may lack; then a
/// redirect, which mostly leads to https, is not followed.
fn client(secure: bool, redirects: usize) -> Result<Client, String> {
    let trust = if secure { Trust::Machine } else { Trust::Nobody };
    let builder = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .tls_backend_preconfigured(playhouse_tls::client_config(trust)?)
        .user_agent(concat!("playhouse/", env!("CARGO_PKG_VERSION")));
    match secure {
        true => builder.redirect(redirect::Policy::limited(redirects)).https_only(true),
        false => builder.redirect(redirect::Policy::none()),
    }
    .build()
    .map_err(|error| playhouse_tls::innermost(&error))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers every connection with these bytes, and gives its address.
    async fn server(answer: Vec<u8>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let answer = answer.clone();
                tokio::spawn(async move {
                    let mut request = [0; 4096];
                    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                        if socket.read(&mut request).await.unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    // The client may have gone away.
                    drop(socket.write_all(&answer).await);
                });
            }
        });
        format!("http://{place}/api.json?token=secret")
    }

    fn answer(status: &str, body: &[u8]) -> Vec<u8> {
        let head =
            format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    }

    const TIME: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_document_comes_whole_or_not_at_all() {
        let url = server(answer("200 OK", b"{}")).await;
        assert_eq!(fetch(&url, 2, TIME).await.as_deref(), Ok("{}"));
        let error = fetch(&url, 1, TIME).await.unwrap_err();
        assert!(error.ends_with("gives more than 0 MB"), "{error}");
        let url = server(answer("404 Not Found", b"no")).await;
        let error = fetch(&url, 100, TIME).await.unwrap_err();
        assert!(error.ends_with("answers with status 404 Not Found") && !error.contains("secret"), "{error}");
        let mut cut = answer("200 OK", b"{\"a\": 1}");
        cut.truncate(cut.len() - 3);
        assert!(fetch(&server(cut).await, 100, TIME).await.unwrap_err().contains("broke off"));
        let url = server(answer("200 OK", b"\xff")).await;
        assert!(fetch(&url, 100, TIME).await.unwrap_err().contains("UTF-8"));
    }

    #[tokio::test]
    async fn what_does_not_answer_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/x", listener.local_addr().unwrap());
        let error = fetch(&url, 100, Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(error, format!("{url} was not read within 0.05 s"));
        drop(listener);
        assert!(fetch(&url, 100, TIME).await.unwrap_err().contains("cannot be reached"));
    }

    #[tokio::test]
    async fn only_web_addresses_are_fetched() {
        for url in ["file:///etc/passwd", "ftp://a/b", "nonsense"] {
            assert!(fetch(url, 100, TIME).await.is_err(), "{url}");
        }
    }
}
