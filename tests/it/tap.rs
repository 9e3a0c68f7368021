//! A wire that listens: it stands before a server and keeps what clients send.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Passes everything on to a server, and remembers what clients said.
pub(crate) struct Tap {
    address: String,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Tap {
    /// Before the server at `url` (as `http://127.0.0.1:1234`).
    pub(crate) fn before(url: &str) -> Self {
        let server = url.strip_prefix("http://").unwrap().to_owned();
        Self::serve(move |client, heard| {
            let upstream = TcpStream::connect(&server).unwrap();
            let (mut down, mut answer) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
            std::thread::spawn(move || {
                // Either side may go away at any time.
                drop(std::io::copy(&mut answer, &mut down));
                drop(down.shutdown(Shutdown::Both));
            });
            listen(client, heard, &upstream);
        })
    }

    /// That gives each request this answer, and then hangs up.
    pub(crate) fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::serve(move |mut client, heard| {
            let mut piece = [0; 4096];
            let mut said = Vec::new();
            while !said.windows(4).any(|end| end == b"\r\n\r\n") {
                match client.read(&mut piece) {
                    Ok(count) if count > 0 => said.extend_from_slice(&piece[..count]),
                    _ => return,
                }
            }
            // A client that is not heard out may not hear the answer.
            let end = said.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
            let head = String::from_utf8_lossy(&said[..end]).to_ascii_lowercase();
            let length = head.split_once("content-length:").and_then(|(_, rest)| rest.lines().next());
            let length: usize = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
            while said.len() < end + length {
                match client.read(&mut piece) {
                    Ok(count) if count > 0 => said.extend_from_slice(&piece[..count]),
                    _ => return,
                }
            }
            heard.lock().unwrap().extend_from_slice(&said);
            drop(client.write_all(&answer));
        })
    }

    /// That hears what it is asked, and never answers.
    pub(crate) fn silent() -> Self {
        Self::serve(|mut client, heard| {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = client.read(&mut piece) {
                heard.lock().unwrap().extend_from_slice(&piece[..count]);
            }
        })
    }

    fn serve(talk: impl Fn(TcpStream, &Mutex<Vec<u8>>) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (talk, ear) = (Arc::new(talk), Arc::clone(&heard));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (talk, ear) = (Arc::clone(&talk), Arc::clone(&ear));
                std::thread::spawn(move || talk(client, &ear));
            }
        });
        Self { address, heard }
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> &str {
        &self.address
    }

    /// What clients said so far.
    pub(crate) fn heard(&self) -> String {
        String::from_utf8_lossy(&self.heard.lock().unwrap()).into_owned()
    }

    /// The values of a header of all requests so far, in their order.
    pub(crate) fn header(&self, name: &str) -> Vec<String> {
        let value = |line: &str| {
            let (known, value) = line.split_once(": ")?;
            known.eq_ignore_ascii_case(name).then(|| value.to_owned())
        };
        self.heard().lines().filter_map(value).collect()
    }
}

/// Keeps what a client says, and passes it on.
fn listen(mut client: TcpStream, heard: &Mutex<Vec<u8>>, mut upstream: &TcpStream) {
    let mut piece = [0; 64 * 1024];
    while let Ok(count @ 1..) = client.read(&mut piece) {
        heard.lock().unwrap().extend_from_slice(&piece[..count]);
        if upstream.write_all(&piece[..count]).is_err() {
            return;
        }
    }
    drop(upstream.shutdown(Shutdown::Write));
}
