//! The address of this machine to which a browser comes back.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use playhouse_tools::web::Url;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::text::line;

/// Where a browser comes back.
const PATH: &str = "/callback";
/// The longest head of a request, in bytes, and how long it may take.
const LONGEST_HEAD: usize = 16 * 1024;
const HEAD: Duration = Duration::from_secs(10);
/// The longest part of what an authorization server says, in bytes.
const SAID: usize = 300;

/// What a browser brings back from a login.
#[derive(Clone, PartialEq, Eq)]
pub struct Redirected {
    /// The code that is exchanged for a token.
    pub code: String,
    /// Which login it belongs to.
    pub state: String,
    /// The authorization server, as it calls itself.
    pub issuer: Option<String>,
}

impl std::fmt::Debug for Redirected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redirected").finish_non_exhaustive()
    }
}

impl Redirected {
    /// Reads the address to which a browser was sent back.
    ///
    /// # Errors
    /// It is no such address, or it says that the login failed.
    pub fn read(address: &str) -> Result<Self, String> {
        let url = Url::parse(address.trim()).map_err(|_| "this is not an address".to_owned())?;
        let of =
            |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
        if let Some(error) = of("error") {
            let more = of("error_description").map(|text| format!(": {text}")).unwrap_or_default();
            return Err(format!(
                "the authorization server refuses: {}",
                line(&format!("{error}{more}"), SAID)
            ));
        }
        match (of("code"), of("state")) {
            (Some(code), Some(state)) => Ok(Self { code, state, issuer: of("iss") }),
            _ => Err("the address has no `code` and `state`: paste the whole address to which the browser was sent".to_owned()),
        }
    }

    /// The state in an address, whatever else it says.
    fn state_of(url: &Url) -> Option<String> {
        url.query_pairs().find(|(key, _)| key == "state").map(|(_, value)| value.into_owned())
    }
}

/// A port of this machine that waits for a browser.
#[derive(Debug)]
pub struct Loopback {
    listener: TcpListener,
    redirect: String,
}

impl Loopback {
    /// Opens a port that is free.
    ///
    /// # Errors
    /// None can be opened.
    pub async fn open() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let redirect = format!("http://127.0.0.1:{}{PATH}", listener.local_addr()?.port());
        Ok(Self { listener, redirect })
    }

    /// The address to which a browser shall be sent.
    pub fn redirect(&self) -> &str {
        &self.redirect
    }

    /// Waits for the browser of the login with this state. What others send is turned away.
    ///
    /// # Errors
    /// The login failed, or the port is gone.
    pub async fn wait(&self, state: &str) -> Result<Redirected, String> {
        let (sender, mut came) = mpsc::channel(1);
        loop {
            let stream = tokio::select! {
                biased;
                Some(redirected) = came.recv() => return redirected,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => return Err(format!("the port for the browser is gone: {error}")),
                },
            };
            // A browser may open connections that it does not use.
            let (sender, state, redirect) = (sender.clone(), state.to_owned(), self.redirect.clone());
            tokio::spawn(async move {
                let answered = timeout(HEAD, answer(stream, &redirect, &state)).await;
                if let Ok(Some(redirected)) = answered {
                    drop(sender.send(redirected).await);
                }
            });
        }
    }
}

/// Answers a request. `None` for one that does not come back from the login.
async fn answer(mut stream: TcpStream, redirect: &str, state: &str) -> Option<Result<Redirected, String>> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < LONGEST_HEAD {
        if stream.read_buf(&mut head).await.ok()? == 0 {
            break;
        }
    }
    let first = String::from_utf8_lossy(head.split(|&byte| byte == b'\r').next()?).into_owned();
    let mut words = first.split(' ');
    let target = words.next().filter(|method| *method == "GET").and(words.next());
    let url = target.and_then(|target| Url::parse(redirect).ok()?.join(target).ok());
    let url = url.filter(|url| url.path() == PATH && Redirected::state_of(url).as_deref() == Some(state));
    let Some(url) = url else {
        let text = "This address waits for a login that was begun elsewhere.";
        say(&mut stream, "404 Not Found", text).await;
        return None;
    };
    let redirected = Redirected::read(url.as_str());
    let text = match &redirected {
        Ok(_) => "The browser is done here. Go back to where the login was begun.",
        Err(_) => "The login failed. Go back to where it was begun.",
    };
    say(&mut stream, "200 OK", text).await;
    Some(redirected)
}

async fn say(stream: &mut TcpStream, status: &str, text: &str) {
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\ncache-control: no-store\r\nconnection: close\r\n\r\n{text}",
        text.len()
    );
    // A browser that has gone away needs none.
    drop(stream.write_all(answer.as_bytes()).await);
    drop(stream.shutdown().await);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_or_says_what_is_wrong() {
        let read =
            Redirected::read(" http://127.0.0.1:1/callback?code=a%20b&state=s&iss=https://x ").unwrap();
        assert_eq!(
            (read.code.as_str(), read.state.as_str(), read.issuer.as_deref()),
            ("a b", "s", Some("https://x"))
        );
        assert!(!format!("{read:?}").contains("a b"));
        for (address, says) in [
            ("code", "not an address"),
            ("http://x/?code=a", "no `code` and `state`"),
            ("http://x/?error=access_denied&error_description=no&state=s", "access_denied: no"),
        ] {
            assert!(Redirected::read(address).unwrap_err().contains(says), "{address}");
        }
    }

    #[tokio::test]
    async fn only_the_browser_of_the_login_is_heard() {
        let loopback = Loopback::open().await.unwrap();
        let port = loopback.listener.local_addr().unwrap().port();
        let ask = |target: &'static str| async move {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
            stream.write_all(format!("GET {target} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let asking = async {
            // One that says nothing holds nobody up.
            let _silent = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
            assert!(ask("/callback?code=a&state=other").await.starts_with("HTTP/1.1 404"));
            assert!(ask("/favicon.ico?state=mine").await.starts_with("HTTP/1.1 404"));
            assert!(ask("/callback?code=a&state=mine").await.starts_with("HTTP/1.1 200"));
        };
        let (redirected, ()) = tokio::join!(loopback.wait("mine"), asking);
        assert_eq!(redirected.unwrap().code, "a");
    }
}
