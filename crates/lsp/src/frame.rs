//! Messages on a pipe: a head with the length of the body, then the body.

use std::io;

use thiserror::Error;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The longest body that is read.
pub const LONGEST_BODY: usize = 16 * 1024 * 1024;
/// The longest line of a head.
const LONGEST_LINE: u64 = 4 * 1024;
/// The most lines of a head.
const MOST_LINES: usize = 32;

/// Why no message can be read any more.
#[derive(Debug, Error)]
pub enum FrameError {
    /// The pipe broke, or ended within a message.
    #[error("what the server writes cannot be read: {0}")]
    Pipe(#[from] io::Error),
    /// The head is none.
    #[error("the server writes something that is no message: {0}")]
    Head(String),
    /// The body is longer than [`LONGEST_BODY`].
    #[error("the server sends a message of {0} bytes: at most {LONGEST_BODY} are read")]
    TooLong(u64),
}

/// The next body; `None` at the end of the pipe.
///
/// # Errors
/// The pipe broke, or what comes is no message. Nothing can be read after that.
pub async fn read(from: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<Vec<u8>>, FrameError> {
    let mut length = None;
    for number in 0..MOST_LINES {
        let mut line = Vec::new();
        (&mut *from).take(LONGEST_LINE).read_until(b'\n', &mut line).await?;
        if line.is_empty() && number == 0 {
            return Ok(None);
        }
        let shown =
            || String::from_utf8_lossy(&line).chars().take(80).collect::<String>().escape_debug().to_string();
        let Some(text) = line.strip_suffix(b"\n").and_then(|line| std::str::from_utf8(line).ok()) else {
            return Err(FrameError::Head(shown()));
        };
        let text = text.trim_end_matches('\r');
        if text.is_empty() {
            let Some(length) = length else {
                return Err(FrameError::Head("a head without `Content-Length`".to_owned()));
            };
            let size = usize::try_from(length).ok().filter(|size| *size <= LONGEST_BODY);
            let Some(size) = size else { return Err(FrameError::TooLong(length)) };
            let mut body = vec![0; size];
            from.read_exact(&mut body).await?;
            return Ok(Some(body));
        }
        let Some((name, value)) = text.split_once(':') else { return Err(FrameError::Head(shown())) };
        if name.trim().eq_ignore_ascii_case("content-length") {
            length = Some(value.trim().parse::<u64>().map_err(|_| FrameError::Head(shown()))?);
        }
    }
    Err(FrameError::Head(format!("a head of more than {MOST_LINES} lines")))
}

/// Writes a body, with its head.
///
/// # Errors
/// The pipe broke.
pub async fn write(to: &mut (impl AsyncWrite + Unpin), body: &[u8]) -> io::Result<()> {
    to.write_all(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes()).await?;
    to.write_all(body).await?;
    to.flush().await
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(bytes: &[u8]) -> (Vec<Vec<u8>>, Option<FrameError>) {
        let mut bodies = Vec::new();
        let mut from = bytes;
        futures::executor::block_on(async {
            loop {
                match read(&mut from).await {
                    Ok(Some(body)) => bodies.push(body),
                    Ok(None) => return (bodies, None),
                    Err(error) => return (bodies, Some(error)),
                }
            }
        })
    }

    #[test]
    fn heads_are_read_as_they_are_written_elsewhere() {
        let text = b"content-length:2\r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n{}Content-Length: 0\n\n";
        let (bodies, error) = all(text);
        assert_eq!((bodies, error.is_none()), (vec![b"{}".to_vec(), Vec::new()], true));
    }

    #[test]
    fn what_is_no_message_is_told() {
        for (text, told) in [
            ("hello, I am not a server\n", "no message: hello, I am not a server"),
            ("Content-Length: -1\r\n\r\n", "Content-Length: -1"),
            ("X: 1\r\n\r\n{}", "without `Content-Length`"),
            ("Content-Length: 9\r\n\r\n{}", "cannot be read"),
            ("Content-Length: 999999999999\r\n\r\n", "999999999999 bytes"),
        ] {
            let error = all(text.as_bytes()).1.unwrap().to_string();
            assert!(error.contains(told), "{text:?}: {error}");
        }
        assert!(all(&vec![b'x'; 10_000]).1.is_some());
        assert!(all("a: b\n".repeat(100).as_bytes()).1.is_some());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..5)) {
            let mut pipe = Vec::new();
            for body in &bodies {
                futures::executor::block_on(write(&mut pipe, body)).unwrap();
            }
            let (read, error) = all(&pipe);
            prop_assert!(error.is_none());
            prop_assert_eq!(read, bodies);
        }

        #[test]
        fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            all(&bytes);
        }
    }
}
