//! All streams of events of the clients, read by one task: it asks once which of them have something, and reads those.
//!
//! A task for each stream would be woken for each event, which costs as much as reading it.

use std::cell::RefCell;
use std::io::{ErrorKind, Read};
use std::rc::Rc;
use std::time::Duration;

use mio::event::Event;
use mio::{Events, Interest, Poll, Registry, Token};
use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;

use crate::Result;
use crate::body::Body;
use crate::watch::{Feed, Reader, Shared, Watch};

/// What is read at once at most, in bytes.
const READ: usize = 64 * 1024;
/// Streams that are read before others of the thread have their turn.
const TOGETHER: usize = 512;

/// The streams of a [`Watch`].
pub(crate) struct Streams {
    registry: Registry,
    open: RefCell<Open>,
}

/// By their tokens.
#[derive(Default)]
struct Open {
    streams: Vec<Option<Stream>>,
    free: Vec<usize>,
}

struct Stream {
    socket: mio::net::TcpStream,
    body: Body,
    reader: Reader,
}

/// A client that can be ended.
pub(crate) struct Client {
    streams: Rc<Streams>,
    token: usize,
}

impl Client {
    /// Its connection is closed.
    pub(crate) fn close(self) {
        self.streams.remove(self.token);
    }
}

/// Counts from here on what a stream brings, of whose body `begun` was read already.
pub(crate) fn follow(stream: TcpStream, begun: &[u8], feed: Feed, watch: &Shared) -> Result<Client> {
    let known = watch.borrow().streams.clone();
    let streams = match known {
        Some(streams) => streams,
        None => {
            let poll = Poll::new()?;
            let registry = poll.registry().try_clone()?;
            let streams = Rc::new(Streams { registry, open: RefCell::default() });
            watch.borrow_mut().streams = Some(Rc::clone(&streams));
            tokio::task::spawn_local(read_all(poll, Rc::clone(&streams), Rc::clone(watch)));
            streams
        }
    };
    let mut stream = Stream {
        socket: mio::net::TcpStream::from_std(stream.into_std()?),
        body: Body::default(),
        reader: Reader::of(feed),
    };
    let goes_on = watch.borrow_mut().take(&mut stream.body, &mut stream.reader, begun);
    let token = streams.add(stream, goes_on)?;
    Ok(Client { streams, token })
}

impl Streams {
    fn add(&self, mut stream: Stream, goes_on: bool) -> Result<usize> {
        let mut open = self.open.borrow_mut();
        let token = open.free.pop().unwrap_or(open.streams.len());
        if goes_on {
            self.registry.register(&mut stream.socket, Token(token), Interest::READABLE)?;
        }
        let stream = goes_on.then_some(stream);
        match open.streams.get_mut(token) {
            Some(place) => *place = stream,
            None => open.streams.push(stream),
        }
        Ok(token)
    }

    fn remove(&self, token: usize) {
        let mut open = self.open.borrow_mut();
        // Closing it takes it off the list of what is asked for.
        if open.streams.get_mut(token).and_then(Option::take).is_some() {
            open.free.push(token);
        }
    }
}

/// Reads what comes, until the thread's tasks end.
async fn read_all(poll: Poll, streams: Rc<Streams>, watch: Shared) {
    if let Err(error) = try_read_all(poll, &streams, &watch).await {
        watch.borrow_mut().fail(format!("the clients cannot read: {error}"));
    }
}

async fn try_read_all(poll: Poll, streams: &Streams, watch: &Shared) -> Result<()> {
    #[expect(
        deprecated,
        reason = "the other way is unsafe, and this one is sound: the list owns what is asked"
    )]
    let mut poll = AsyncFd::with_interest(poll, tokio::io::Interest::READABLE)?;
    let mut events = Events::with_capacity(TOGETHER);
    let mut buffer = vec![0; READ];
    loop {
        let mut ready = poll.readable_mut().await?;
        ready.get_inner_mut().poll(&mut events, Some(Duration::ZERO))?;
        let mut count = 0;
        {
            let (mut watch, mut open) = (watch.borrow_mut(), streams.open.borrow_mut());
            for event in &events {
                count += 1;
                open.read(event, &mut buffer, &mut watch);
            }
        }
        // A list that was not full had all of them, and what comes later makes it ready again.
        if count < TOGETHER {
            ready.clear_ready();
        }
        tokio::task::yield_now().await;
    }
}

impl Open {
    fn read(&mut self, event: &Event, buffer: &mut [u8], watch: &mut Watch) {
        let Token(token) = event.token();
        let Some(Some(stream)) = self.streams.get_mut(token) else { return };
        let end = stream.read(event.is_read_closed() || event.is_error(), buffer, watch);
        let why = match end {
            End::None => return,
            End::OfBody => None,
            End::Early(why) => Some(why),
        };
        self.streams[token] = None;
        self.free.push(token);
        why.into_iter().for_each(|why| watch.fail(why));
    }
}

/// Whether a stream is at its end.
enum End {
    None,
    OfBody,
    Early(String),
}

impl Stream {
    /// Reads all that is there; where `is_closed`, to the end of the connection.
    fn read(&mut self, is_closed: bool, buffer: &mut [u8], watch: &mut Watch) -> End {
        loop {
            match self.socket.read(buffer) {
                Ok(0) => return End::Early("a stream ended early".to_owned()),
                Ok(count) => {
                    if !watch.take(&mut self.body, &mut self.reader, &buffer[..count]) {
                        return End::OfBody;
                    }
                    // One that was not filled had all of it.
                    if count < buffer.len() && !is_closed {
                        return End::None;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return End::None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return End::Early(error.to_string()),
            }
        }
    }
}
