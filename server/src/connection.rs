//! Connections: accepted while there are seats, each with time limits of its own.
//!
//! A client may take so long for the head of a request, and so long without reading anything of what is written to it. No
//! more connections are accepted than there are seats; the others wait in the system's queue.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use playhouse_actors::try_blocking;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::UCred;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::problem::{Kind, Problem};
use crate::socket::SocketFile;

/// The most bytes of a request's head.
const LARGEST_HEAD: usize = 64 * 1024;
/// One of so many seats, and at most so many, are kept from the network for the socket in the file system.
const KEPT: (usize, usize) = (32, 64);
/// How long, and for how many bytes, a refused request is still read: clients look at the answer when they have written all.
const LINGERS: Duration = Duration::from_secs(3);
const LINGERS_FOR: usize = 64 * 1024 * 1024;
/// How long nothing is accepted after the system refused to.
const BREATHER: Duration = Duration::from_millis(100);
/// How long a connection may be silent before its peer is asked whether it is there.
#[cfg(target_os = "linux")]
const QUIET: Duration = Duration::from_secs(60);

/// Pieces that are this short together are written as one: the system does more for several than it takes to copy them.
const JOINED: usize = 1024;

/// By what a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// A socket of the network.
    Tcp,
    /// A socket in the file system. Who comes to a route by it is the operator: others are answered before.
    Unix,
}

/// Where connections come from.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// What a connection holds while it is open.
struct Seat {
    _outer: Option<OwnedSemaphorePermit>,
    _any: OwnedSemaphorePermit,
}

/// How many of so many connections may come from the network.
pub(crate) fn outer_seats(connections: usize) -> usize {
    connections - (connections / KEPT.0).min(KEPT.1)
}

/// What the connections of a server have in common.
#[derive(Clone)]
pub(crate) struct Connections {
    pub(crate) router: Router,
    /// One permit a connection.
    pub(crate) seats: Arc<Semaphore>,
    /// One more permit for each from the network, which are fewer: some seats are kept for the operator's own commands.
    pub(crate) outer_seats: Arc<Semaphore>,
    pub(crate) head_time: Duration,
    pub(crate) write_time: Duration,
    /// The tasks of the connections.
    pub(crate) tasks: TaskTracker,
    /// No new connection and no new request.
    pub(crate) closing: CancellationToken,
    /// At once.
    pub(crate) cut: CancellationToken,
}

impl Connections {
    /// Accepts connections until the server closes.
    pub(crate) async fn accept(self, listener: Listener) {
        let closing = self.closing.clone();
        tokio::select! {
            () = self.accept_all(&listener) => {}
            () = closing.cancelled() => {}
        }
    }

    /// The same at a socket, whose file is made again when somebody removed it.
    pub(crate) async fn accept_at(self, mut listener: UnixListener, mut file: SocketFile) {
        let closing = self.closing.clone();
        loop {
            tokio::select! {
                () = self.clone().accept(Listener::Unix(listener)) => return,
                () = file.gone() => {}
            }
            tokio::select! {
                made = file.renew() => (listener, file) = made,
                () = closing.cancelled() => return,
            }
            tracing::warn!(path = %file.path().display(), "the socket's file was removed, and is made again");
        }
    }

    /// A seat for the next connection. The semaphores are never closed.
    async fn seat(&self, listener: &Listener) -> Option<Seat> {
        let outer = match listener {
            Listener::Tcp(_) => Some(Arc::clone(&self.outer_seats).acquire_owned().await.ok()?),
            Listener::Unix(_) => None,
        };
        Some(Seat { _outer: outer, _any: Arc::clone(&self.seats).acquire_owned().await.ok()? })
    }

    async fn accept_all(self, listener: &Listener) {
        while let Some(seat) = self.seat(listener).await {
            let accepted = match listener {
                Listener::Tcp(listener) => listener.accept().await.map(|(stream, _)| self.tcp(stream, seat)),
                Listener::Unix(listener) => {
                    listener.accept().await.map(|(stream, _)| self.unix(stream, seat))
                }
            };
            match accepted {
                Ok(()) => {}
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "no connection can be accepted");
                    tokio::time::sleep(BREATHER).await;
                }
            }
        }
    }

    fn tcp(&self, stream: TcpStream, seat: Seat) {
        if let Err(error) = prepare(&stream, self.write_time) {
            tracing::debug!(%error, "an option of a connection cannot be set");
        }
        self.carry(stream, Carrier::Tcp, seat);
    }

    /// A connection over the Unix socket: of the operator, unless a command of a session made it.
    fn unix(&self, stream: UnixStream, seat: Seat) {
        let peer = stream.peer_cred();
        let connections = self.clone();
        self.tasks.spawn(async move {
            let is_operator = try_blocking(move || peer.is_ok_and(is_operator)).await;
            let router = match is_operator {
                Ok(true) => connections.router.clone(),
                _ => Router::new().fallback(barred),
            };
            Box::pin(Self { router, ..connections }.serve(stream, Carrier::Unix)).await;
            drop(seat);
        });
    }

    fn carry<S>(&self, stream: S, carrier: Carrier, seat: Seat)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let connections = self.clone();
        self.tasks.spawn(async move {
            Box::pin(connections.serve(stream, carrier)).await;
            drop(seat);
        });
    }

    async fn serve<S>(self, stream: S, carrier: Carrier)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let Self { router, head_time, write_time, closing, cut, .. } = self;
        let patient = Patient::new(stream, write_time);
        let lingers = Arc::clone(&patient.lingers);
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(carrier);
            let (has_body, lingers) = (!request.body().is_end_stream(), Arc::clone(&lingers));
            let answer = router.clone().oneshot(request.map(Body::new));
            async move {
                let answer = answer.await.unwrap_or_else(|never| match never {});
                lingers.store(has_body && !answer.status().is_success(), Ordering::Relaxed);
                Ok::<_, Infallible>(answer)
            }
        });
        let io = TokioIo::new(patient);
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(head_time).max_buf_size(LARGEST_HEAD);
        let mut connection = pin!(builder.serve_connection(io, service));
        let result = tokio::select! {
            result = connection.as_mut() => result,
            () = closing.cancelled() => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    result = connection => result,
                    () = cut.cancelled() => return,
                }
            }
        };
        if let Err(error) = result {
            // What clients do to their connections is no fault of the server.
            tracing::debug!(error = &error as &dyn std::error::Error, "a connection ended early");
        }
    }
}

/// Whether who connected to the Unix socket is the operator: the engine's own user or root, and no command or program that runs
/// for a session. Blocks for a moment.
fn is_operator(peer: UCred) -> bool {
    let by_user = peer.uid() == 0 || peer.uid() == rustix::process::geteuid().as_raw();
    // 0 is a process outside of this one's namespace: no command of it.
    let by_process = peer.pid().and_then(|id| u32::try_from(id).ok()).filter(|id| *id != 0);
    by_user && !by_process.is_some_and(playhouse_actors::is_of_a_command)
}

/// The answer to all that others ask at the Unix socket.
async fn barred() -> Problem {
    Problem::new(
        Kind::Forbidden,
        "this socket is the operator's: commands and programs that run for a session may not use it, nor may other users. \
         Ask over the network, with an API key",
    )
}

/// Whether accepting failed for one connection only, so that the next may come at once.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Small writes leave at once, and a peer that vanished is noticed.
fn prepare(stream: &TcpStream, write_time: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    #[cfg(target_os = "linux")]
    {
        use rustix::net::sockopt;
        let millis = u32::try_from(write_time.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(stream, millis)?;
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, QUIET)?;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = write_time;
    Ok(())
}

/// A stream whose writes fail when the peer reads nothing for some time.
struct Patient<S> {
    stream: S,
    patience: Duration,
    /// Made when a write has to wait for the first time.
    deadline: Option<Pin<Box<Sleep>>>,
    waits: bool,
    /// The last request was refused, perhaps before its body was read. Closed at once, the system would tell the peer that it was cut off
    /// while it writes, and it would never see why: so what still comes is read before that.
    lingers: Arc<AtomicBool>,
    /// What is written is told to be over: until when what comes is read, and how many bytes that may be.
    leaving: Option<(Pin<Box<Sleep>>, usize)>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Patient<S> {
    fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, deadline: None, waits: false, lingers: Arc::default(), leaving: None }
    }

    /// Reads what still comes, for a while.
    fn linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let leave = || (Box::pin(tokio::time::sleep(LINGERS)), LINGERS_FOR);
        let (end, left) = self.leaving.get_or_insert_with(leave);
        let mut room = [0; 16 * 1024];
        while *left > 0 {
            let mut buffer = ReadBuf::new(&mut room);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    *left = left.saturating_sub(buffer.filled().len());
                }
                Poll::Ready(_) => break,
                Poll::Pending => return end.as_mut().poll(cx),
            }
        }
        Poll::Ready(())
    }

    /// Fails what has to wait for longer than the peer may take.
    fn limit<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = false;
            return written;
        }
        let end = Instant::now() + self.patience;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end)));
        if !self.waits {
            deadline.as_mut().reset(end);
            self.waits = true;
        }
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.limit(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut joined = [0; JOINED];
        let written = match join(pieces, &mut joined) {
            Some(joined) => Pin::new(&mut self.stream).poll_write(cx, joined),
            None => Pin::new(&mut self.stream).poll_write_vectored(cx, pieces),
        };
        self.limit(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.limit(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.leaving.is_none() {
            let ended = Pin::new(&mut self.stream).poll_shutdown(cx);
            ready!(self.limit(cx, ended))?;
        }
        if self.lingers.load(Ordering::Relaxed) {
            ready!(self.linger(cx));
        }
        Poll::Ready(Ok(()))
    }
}

/// All pieces in `room`, if they fit.
fn join<'a>(pieces: &[io::IoSlice<'_>], room: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut length = 0;
    for piece in pieces {
        room.get_mut(length..length + piece.len())?.copy_from_slice(piece);
        length += piece.len();
    }
    room.get(..length)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[test]
    fn some_seats_are_kept_from_the_network() {
        assert_eq!([0, 1, 2, 31, 64, 4_096].map(outer_seats), [0, 1, 2, 31, 62, 4_032]);
    }

    #[test]
    fn short_pieces_are_one_and_long_ones_stay_as_they_are() {
        let pieces = [b"5\r\n".as_slice(), b"hello", b"", b"\r\n"].map(io::IoSlice::new);
        assert_eq!(join(&pieces, &mut [7; 10]), Some(b"5\r\nhello\r\n".as_slice()));
        assert_eq!(join(&pieces, &mut [7; 9]), None);
        assert_eq!(join(&[], &mut []), Some(b"".as_slice()));
    }

    #[tokio::test]
    async fn a_write_fails_when_the_peer_reads_nothing_and_only_then() {
        let patience = Duration::from_millis(60);
        let (stream, mut peer) = tokio::io::duplex(10);
        let mut patient = Patient::new(stream, patience);
        let mut piece = [0; 10];
        patient.write_all(&[7; 10]).await.unwrap();
        let began = Instant::now();
        for _ in 0..5 {
            // Together they wait for too long. The peer is polled first, so that it never comes too late.
            let (read, written) = tokio::join!(
                biased;
                async {
                    tokio::time::sleep(patience / 2).await;
                    peer.read_exact(&mut piece).await
                },
                patient.write_all(&[7; 10]),
            );
            written.unwrap();
            read.unwrap();
        }
        assert!(began.elapsed() >= patience * 2);
        let began = Instant::now();
        let written = tokio::time::timeout(Duration::from_secs(30), patient.write_all(&[7; 30])).await;
        let error = written.expect("it fails").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= patience);
    }
}
