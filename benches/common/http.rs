//! As much of HTTP as the clients here need.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Result;

/// A connection that is kept.
pub(crate) struct Connection {
    stream: TcpStream,
    address: String,
    /// Lines of the head of each request, beside the usual ones.
    headers: String,
    buffer: Vec<u8>,
}

/// An answer whose head was read.
struct Head {
    status: u16,
    /// Of its body, where it says so.
    length: Option<usize>,
    /// Whether its body comes in chunks.
    is_chunked: bool,
}

impl Connection {
    /// A connection to `address` (host and port).
    pub(crate) async fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, address: address.to_owned(), headers: String::new(), buffer: Vec::new() })
    }

    /// Whose requests all have this header.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers += &format!("{name}: {value}\r\n");
        self
    }

    /// Asks, and gives the whole answer: its status and its body, which must have an end.
    pub(crate) async fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Vec<u8>)> {
        self.send(method, path, body).await?;
        let Head { status, length, is_chunked } = self.head().await?;
        if is_chunked {
            return Ok((status, self.chunks().await?));
        }
        let length = match status {
            204 | 304 => 0,
            _ => length.ok_or_else(|| format!("the answer to {method} {path} has no length"))?,
        };
        Ok((status, self.take(length).await?))
    }

    /// A body in chunks.
    async fn chunks(&mut self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = loop {
                if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                    break self.take(end + 1).await?;
                }
                self.read().await?;
            };
            let size = std::str::from_utf8(&line)?.trim().split(';').next().unwrap_or_default();
            let size = usize::from_str_radix(size, 16)?;
            // With the end of its line.
            let chunk = self.take(size + 2).await?;
            if size == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }

    /// The next so many bytes.
    async fn take(&mut self, length: usize) -> Result<Vec<u8>> {
        while self.buffer.len() < length {
            self.read().await?;
        }
        let rest = self.buffer.split_off(length);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    /// The same, of an answer that is JSON and no refusal.
    pub(crate) async fn json(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let (status, answer) = self.ask(method, path, body).await?;
        if !(200..300).contains(&status) {
            let answer = String::from_utf8_lossy(&answer);
            return Err(format!("{method} {path} was answered {status}: {answer}").into());
        }
        Ok(serde_json::from_slice(&answer)?)
    }

    /// Asks for something without end: the connection, with what was read of the body already.
    pub(crate) async fn stream(
        mut self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(TcpStream, Vec<u8>)> {
        self.send(method, path, body).await?;
        let Head { status, .. } = self.head().await?;
        if status != 200 {
            return Err(format!("{method} {path} was answered {status}").into());
        }
        Ok((self.stream, self.buffer))
    }

    async fn send(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<()> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n{}content-length: {}\r\n\r\n{body}",
            self.address,
            self.headers,
            body.len()
        );
        Ok(self.stream.write_all(request.as_bytes()).await?)
    }

    async fn head(&mut self) -> Result<Head> {
        let end = loop {
            if let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            self.read().await?;
        };
        let rest = self.buffer.split_off(end);
        let head = String::from_utf8(std::mem::replace(&mut self.buffer, rest))?.to_lowercase();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        let is_chunked = head.lines().any(|line| line == "transfer-encoding: chunked");
        Ok(Head { status: status.ok_or("the answer has no status")?, length, is_chunked })
    }

    async fn read(&mut self) -> Result<()> {
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err("the connection ended early".into()),
            _ => Ok(()),
        }
    }
}
