//! A connection that can be reset in place of being closed, and on which a body may write past the HTTP library.

use std::io::{self, ErrorKind, IoSlice};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A TCP connection that several have.
pub(super) struct Wire {
    stream: TcpStream,
    /// Whether the other side shall see a reset, not an end, when it is closed.
    pub(super) reset: AtomicBool,
    /// Whether the HTTP library has written all that it was given.
    is_flushed: AtomicBool,
    /// When the first bytes of the request that is read could be read, in nanoseconds since the epoch; 0 before that.
    came: AtomicU64,
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> Arc<Self> {
        Arc::new(Self {
            stream,
            reset: AtomicBool::new(false),
            is_flushed: AtomicBool::new(false),
            came: AtomicU64::new(0),
        })
    }

    /// When the first bytes of the request that is read could be read: before as much of it was taken as was there.
    pub(super) fn came(&self) -> Option<SystemTime> {
        let came = self.came.load(Ordering::Relaxed);
        (came > 0).then(|| SystemTime::UNIX_EPOCH + Duration::from_nanos(came))
    }

    /// The request is read: what is read now is of the next one.
    pub(super) fn is_read(&self) {
        self.came.store(0, Ordering::Relaxed);
    }

    fn comes(&self, at: SystemTime) {
        if self.came.load(Ordering::Relaxed) == 0 {
            let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            self.came.store(u64::try_from(since.as_nanos()).unwrap_or_default(), Ordering::Relaxed);
        }
    }

    /// The HTTP library is given something to write.
    pub(super) fn is_given(&self) {
        self.is_flushed.store(false, Ordering::Release);
    }

    /// Whether the HTTP library has written all that it was given, so that what is written now comes behind it.
    pub(super) fn is_flushed(&self) -> bool {
        self.is_flushed.load(Ordering::Acquire)
    }

    /// Writes what can be written now; 0 for nothing.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.stream.try_write(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            written => written,
        }
    }

    /// Writes when that can be done.
    pub(super) fn poll_write(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_with(context, |stream| stream.try_write(bytes))
    }

    fn poll_with(
        &self,
        context: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(context))?;
            match write(&self.stream) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

/// The connection as the HTTP library has it.
pub(super) struct Socket(Arc<Wire>);

impl Socket {
    pub(super) fn new(wire: Arc<Wire>) -> Self {
        Self(wire)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.0.reset.load(Ordering::Relaxed) {
            // A close that does not linger discards what was not acknowledged and sends a reset.
            let _ = self.0.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.stream.poll_read_ready(context))?;
            let now = SystemTime::now();
            match self.0.stream.try_read_buf(buffer) {
                Ok(_) => {
                    self.0.comes(now);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // It is asked for when nothing is left to write; the socket itself keeps nothing back.
        self.0.is_flushed.store(true, Ordering::Release);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.0.reset.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(match SockRef::from(&self.0.stream).shutdown(Shutdown::Write) {
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(()),
            shut => shut,
        })
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_with(context, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}
