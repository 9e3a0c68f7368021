//! A server of this machine that writes down what it is asked for, and sends on whom it is asked to.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;

/// Nobody takes longer to ask.
const PATIENCE: Duration = Duration::from_secs(5);

/// The server, at several addresses with one port.
pub(super) struct Listener {
    pub(super) port: u16,
    asked: Mutex<Vec<String>>,
}

impl Listener {
    /// The one of this process.
    pub(super) fn get() -> &'static Self {
        static LISTENER: OnceLock<&Listener> = OnceLock::new();
        LISTENER.get_or_init(|| {
            let (port, sockets) = bind();
            let listener: &'static Self = Box::leak(Box::new(Self { port, asked: Mutex::default() }));
            for socket in sockets {
                std::thread::spawn(move || {
                    for stream in socket.incoming().flatten() {
                        std::thread::spawn(move || listener.answer(stream));
                    }
                });
            }
            listener
        })
    }

    /// Whether `mark` was asked for, and not only named on the way to something else.
    pub(super) fn was_reached(&self, mark: &str) -> bool {
        let asked = self.asked.lock();
        asked.iter().any(|line| {
            line == mark || line.split(' ').nth(1).is_some_and(|path| path.trim_start_matches('/') == mark)
        })
    }

    fn answer(&self, mut stream: TcpStream) {
        // A client that goes away is none of our business.
        let _ = stream.set_read_timeout(Some(PATIENCE));
        let mut lines = BufReader::new(&stream).lines();
        let Some(Ok(first)) = lines.next() else { return };
        self.asked.lock().push(first.trim().to_owned());
        // What is left unread would cut the connection off.
        let _ = lines.take_while(|line| line.as_ref().is_ok_and(|line| !line.is_empty())).count();
        let path = first.split(' ').nth(1).unwrap_or_default();
        let answer = match path.strip_prefix("/redirect/") {
            Some(target) => {
                format!(
                    "HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                )
            }
            None => "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 4\r\nconnection: close\r\n\r\nhit\n"
                .to_owned(),
        };
        let _ = stream.write_all(answer.as_bytes());
    }
}

/// Sockets at 127.0.0.1, 127.0.0.2 and, where there is IPv6, ::1.
fn bind() -> (u16, Vec<TcpListener>) {
    for _ in 0..100 {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        let Ok(second) = TcpListener::bind(("127.0.0.2", port)) else { continue };
        let sixth = TcpListener::bind(("::1", port));
        return (port, [first, second].into_iter().chain(sixth).collect());
    }
    panic!(
        "no port is free at 127.0.0.1 and 127.0.0.2: `ip address add 127.0.0.2/8 dev lo` where it is missing"
    );
}
