//! Messages over the standard input and output of a server, one a line.

use std::io;
use std::sync::Arc;

use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::service::RoleClient;
use rmcp::transport::Transport;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use super::lines::{Line, Lines};
use super::messages::{Messages, Noise};

/// The messages of a server that reads `W` and writes `R`.
pub(super) struct Pipe<R, W> {
    lines: Lines<R>,
    input: Arc<tokio::sync::Mutex<Option<W>>>,
    messages: Messages,
}

impl<R: AsyncRead + Unpin, W> Pipe<R, W> {
    pub(super) fn new(output: R, input: W, noise: Arc<Noise>) -> Self {
        let input = Arc::new(tokio::sync::Mutex::new(Some(input)));
        Self { lines: Lines::new(output), input, messages: Messages::new(noise) }
    }
}

impl<R, W> Transport<RoleClient> for Pipe<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.messages.sent(&message);
        let input = Arc::clone(&self.input);
        async move {
            let mut text = serde_json::to_vec(&message)?;
            text.push(b'\n');
            let mut input = input.lock().await;
            let closed = || io::Error::new(io::ErrorKind::BrokenPipe, "the connection was closed");
            let input = input.as_mut().ok_or_else(closed)?;
            input.write_all(&text).await?;
            input.flush().await
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if let Some(message) = self.messages.next() {
                return Some(message);
            }
            // An error of a pipe is its end.
            match self.lines.next().await.ok().flatten()? {
                Line::Whole(text) => self.messages.read(&text),
                Line::TooLong { bytes, answers } => self.messages.drop_long(bytes, answers.as_ref()),
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        // One that writes ends when its task does, or when nobody reads any more.
        if let Ok(mut input) = self.input.try_lock() {
            input.take();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use rmcp::model::{
        ClientRequest, InitializeRequest, InitializeRequestParams, JsonRpcMessage, RequestId, ServerResult,
    };

    use super::super::messages::{Diagnosis, KEPT, LONGEST};
    use super::*;

    /// What a server that writes this is understood to say, by the names of messages.
    fn said(text: &str, typed: &[i64]) -> (Vec<String>, Diagnosis) {
        let noise = Arc::new(Noise::default());
        let mut pipe = Pipe::new(text.as_bytes(), Vec::new(), Arc::clone(&noise));
        pipe.messages.typed.extend(typed.iter().map(|&id| RequestId::Number(id)));
        let mut said = Vec::new();
        while let Some(message) = block_on(pipe.receive()) {
            said.push(match message {
                JsonRpcMessage::Request(request) => format!("{:?}", request.request),
                JsonRpcMessage::Response(answer) => match answer.result {
                    ServerResult::CustomResult(result) => format!("{} {}", answer.id, result.0),
                    ServerResult::InitializeResult(_) => format!("{} initialized", answer.id),
                    other => format!("{other:?}"),
                },
                JsonRpcMessage::Notification(_) => "notification".to_owned(),
                JsonRpcMessage::Error(error) => format!("{:?} error {}", error.id, error.error.message),
            });
        }
        (said, noise.known())
    }

    #[test]
    fn answers_are_handed_on_as_they_are_written() {
        // The library would take the one for a list of tools, and the other for nothing at all.
        let text = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[],"content":[]}}
            {"jsonrpc":"2.0","id":"2","result":null}
            [{"jsonrpc":"2.0","id":3,"result":1},{"jsonrpc":"2.0","id":4,"result":2}]"#
            .replace("\n            ", "\n");
        let (said, noise) = said(&text, &[]);
        assert_eq!(said, [r#"1 {"tools":[],"content":[]}"#, "2 null", "3 1", "4 2"]);
        assert_eq!(noise, Diagnosis::default());
    }

    #[test]
    fn the_handshake_is_read_by_the_library() {
        let text = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"a","version":"1"}}}"#;
        assert_eq!(said(text, &[0]).0, ["0 initialized"]);
    }

    #[test]
    fn noise_is_skipped_and_counted() {
        let text = "hello\n{\n{}\n[1]\n{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":1}}\n1\n2\n";
        let (said, noise) = said(text, &[]);
        assert_eq!(said, ["notification"]);
        assert_eq!((noise.skipped, noise.first.len()), (6, KEPT));
        assert_eq!(noise.first[..2], ["hello", "{"]);
    }

    #[test]
    fn a_malformed_answer_fails_its_request() {
        let text =
            "{\"jsonrpc\":\"2.0\",\"id\":5,\"error\":\"oh no\"}\n{\"id\":6,\"result\":{},\"error\":{}}";
        let (said, _) = said(text, &[]);
        assert_eq!(said[0], "Some(Number(5)) error the answer is malformed: \"oh no\"");
        assert!(said[1].starts_with("Some(Number(6)) error"), "{said:?}");
        // Deeper than is read, not text, and cut off.
        let deep = format!("{{\"id\":7,\"result\":{}{}}}\n", "[".repeat(1000), "]".repeat(1000));
        assert_eq!(self::said(&deep, &[]).0, ["Some(Number(7)) error the answer is no valid JSON"]);
        for text in [r#"{"id":8,"result":"\ud800"}"#, r#"{"id":8,"result":{"a":"#] {
            assert_eq!(self::said(text, &[]).0, ["Some(Number(8)) error the answer is no valid JSON"]);
        }
    }

    #[test]
    fn an_answer_that_is_too_long_fails_its_request() {
        let text = format!(
            "{{\"result\":\"{}\",\"id\":7}}\n{{\"jsonrpc\":\"2.0\",\"id\":8,\"result\":1}}",
            "x".repeat(LONGEST)
        );
        let (said, noise) = said(&text, &[]);
        assert_eq!(
            said[0],
            "Some(Number(7)) error the answer of 16777236 bytes is longer than 16 MB and was dropped"
        );
        assert_eq!((said[1].as_str(), noise.too_long, noise.skipped), ("8 1", 1, 0));
    }

    #[test]
    fn a_message_is_one_line() {
        let mut pipe = Pipe::new(&b""[..], Vec::new(), Arc::default());
        let request = InitializeRequest::new(InitializeRequestParams::default());
        let message =
            JsonRpcMessage::request(ClientRequest::InitializeRequest(request), RequestId::Number(0));
        block_on(pipe.send(message)).unwrap();
        let written = block_on(pipe.input.lock()).take().unwrap();
        assert_eq!(written.iter().filter(|&&byte| byte == b'\n').count(), 1);
        assert!(written.ends_with(b"\n") && pipe.messages.typed.contains(&RequestId::Number(0)));
    }
}
