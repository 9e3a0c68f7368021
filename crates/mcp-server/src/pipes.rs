//! One client, over its pipes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use rmcp::serve_server;
use rmcp::service::ServerInitializeError;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::handler::McpServer;

/// The stream from which messages of the client are read.
pub type Input = Box<dyn AsyncRead + Send + Unpin>;
/// The stream to which messages for the client are written.
pub type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// Why a client was not served to its end.
#[derive(Debug, Error)]
#[error("the client cannot be served: {0}")]
pub struct PipeError(String);

/// Serves a client until its input ends. Turns that it waits for then are aborted.
///
/// # Errors
/// It does not begin as the protocol has it.
pub fn over_pipes(
    server: McpServer,
    input: Input,
    output: Output,
) -> LocalBoxFuture<'static, Result<(), PipeError>> {
    // Not `Send`: the compiler cannot show it of what rmcp holds meanwhile.
    serve(server, input, output).boxed_local()
}

async fn serve(server: McpServer, input: Input, output: Output) -> Result<(), PipeError> {
    let gone = CancellationToken::new();
    let input = Watched { input, gone: Some(gone.clone().drop_guard()) };
    let served = match serve_server(server.until(gone), (input, output)).await {
        Ok(served) => served,
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(PipeError(error.to_string())),
    };
    served.waiting().await.map(drop).map_err(|error| PipeError(error.to_string()))
}

/// An input whose end is told at once, while requests are still answered.
struct Watched {
    input: Input,
    /// Cancelled when it is dropped.
    gone: Option<DropGuard>,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.input).poll_read(cx, buffer);
        let has_ended = match &polled {
            Poll::Ready(Ok(())) => buffer.filled().len() == before && buffer.remaining() > 0,
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        };
        if has_ended {
            drop(self.gone.take());
        }
        polled
    }
}
