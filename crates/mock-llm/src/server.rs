//! The mock over sockets: HTTP/1.1 and HTTP/2 in the clear, one task for each connection.

mod body;
mod pacer;
mod socket;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use self::body::StreamBody;
use self::pacer::Pacer;
use self::socket::{Socket, Wire};
use crate::answer::Said;
use crate::journal::Arrival;
use crate::mock::{Answer, Mock};
use crate::wire::foreign_error;

/// The largest request that is read, in bytes.
const LARGEST_REQUEST: usize = 64 << 20;
/// Connections that may wait to be accepted, as far as the system allows. Whoever finds that full tries again after a second.
const BACKLOG: i32 = 4_096;

/// How a mock is served.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServeOptions {
    /// The most streams that a connection of HTTP/2 may have at once; absent for 200. Clients that want more open another
    /// connection.
    pub http2_streams: Option<u32>,
}

/// A mock that listens. Dropping it closes its connections.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    /// Dropped to end the task.
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) fn start(mock: Mock, listener: TcpListener, options: ServeOptions) -> io::Result<Self> {
        let address = listener.local_addr()?;
        SockRef::from(&listener).listen(BACKLOG)?;
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(accept(mock, listener, options, stopped));
        Ok(Self { address, stop: Some(stop), task })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens, as `http://ADDRESS`. Wire formats add their paths, with or without `/v1` before them.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Closes the listener and all connections at once, answers under way too.
    pub async fn shutdown(mut self) {
        self.stop = None;
        // Fails only when the task panicked or the runtime ends; then the connections are closed too.
        let _ = (&mut self.task).await;
    }
}

async fn accept(
    mock: Mock,
    listener: TcpListener,
    options: ServeOptions,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut connections = JoinSet::new();
    let mut accepted_so_far: usize = 0;
    // One for each thread, so that all of them may write.
    let threads = tokio::runtime::Handle::current().metrics().num_workers().max(1);
    let pacers: Vec<Arc<Pacer>> = (0..threads).map(|_| Arc::default()).collect();
    let mut paced: JoinSet<()> = pacers.iter().map(|pacer| Arc::clone(pacer).run()).collect();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    accepted_so_far += 1;
                    let pacer = Arc::clone(&pacers[accepted_so_far % threads]);
                    connections.spawn(connection(mock.clone(), stream, accepted_so_far as u64, options, pacer));
                }
                // Out of descriptors, most likely: those that close soon make room.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            },
            Some(_) = connections.join_next() => {}
            _ = &mut stopped => break,
        }
    }
    drop(listener);
    connections.shutdown().await;
    paced.shutdown().await;
}

async fn connection(mock: Mock, stream: TcpStream, number: u64, options: ServeOptions, pacer: Arc<Pacer>) {
    // Without it a delta waits for the acknowledgement of the one before it.
    let _ = stream.set_nodelay(true);
    let wire = Wire::new(stream);
    let socket = TokioIo::new(Socket::new(Arc::clone(&wire)));
    let service = service_fn(move |request: Request<Incoming>| {
        // The error of a body resets its stream in HTTP/2; the connection goes on with the others.
        let http2 = request.version() == Version::HTTP_2;
        let carrier = Carrier {
            wire: (!http2).then(|| Arc::clone(&wire)),
            pacer: (request.version() == Version::HTTP_11).then(|| Arc::clone(&pacer)),
        };
        let mock = mock.clone();
        let came = carrier.wire.as_ref().and_then(|wire| wire.came());
        let at = came.unwrap_or_else(SystemTime::now);
        let arrival = Arrival { at, connection: Some(number), http2 };
        async move { Ok::<_, Infallible>(answer(&mock, arrival, request, carrier).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    if options.http2_streams.is_some() {
        builder.http2().max_concurrent_streams(options.http2_streams);
    }
    // An error here is a client that went away, or a fault that the script wants.
    let _ = builder.serve_connection(socket, service).await;
}

/// Who carries an answer.
struct Carrier {
    /// The connection, where it is that of this answer only.
    wire: Option<Arc<Wire>>,
    /// Who keeps its times, where it comes in chunks.
    pacer: Option<Arc<Pacer>>,
}

impl Carrier {
    fn carry(self, said: Said) -> StreamBody {
        match (said, self.wire, self.pacer) {
            (Said::Paced(paced), Some(wire), Some(pacer)) => StreamBody::paced(paced, wire, pacer),
            (said, wire, _) => StreamBody::new(said.into_body(), wire),
        }
    }
}

async fn answer(
    mock: &Mock,
    arrival: Arrival,
    request: Request<Incoming>,
    carrier: Carrier,
) -> Response<StreamBody> {
    let (head, body) = request.into_parts();
    if head.method != Method::POST {
        if let Some(wire) = &carrier.wire {
            wire.is_read();
        }
        let mut response = error(StatusCode::METHOD_NOT_ALLOWED, "only POST is answered");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return response;
    }
    let collected = Limited::new(body, LARGEST_REQUEST).collect().await;
    if let Some(wire) = &carrier.wire {
        wire.is_read();
    }
    let body = match collected {
        Ok(body) => body.to_bytes(),
        Err(reason) => {
            let message =
                format!("the request could not be read (at most {LARGEST_REQUEST} bytes): {reason}");
            return error(StatusCode::PAYLOAD_TOO_LARGE, &message);
        }
    };
    let headers: Vec<(String, String)> = head
        .headers
        .iter()
        .map(|(name, value)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        })
        .collect();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let Answer { status, headers, said } = mock.respond_to(arrival, path, &headers, body).await;
    match build(status, headers) {
        Ok(built) => built.map(|()| carrier.carry(said)),
        Err(reason) => error(StatusCode::INTERNAL_SERVER_ERROR, &reason),
    }
}

/// The head of a response; an error names what HTTP cannot carry (a script that was built, not read, may hold such).
fn build(status: u16, headers: Vec<(String, String)>) -> Result<Response<()>, String> {
    let mut response = Response::new(());
    *response.status_mut() =
        StatusCode::from_u16(status).map_err(|_| format!("{status} is not an HTTP status"))?;
    for (name, value) in headers {
        let pair = (HeaderName::try_from(&name), HeaderValue::try_from(&value));
        let (Ok(key), Ok(content)) = pair else {
            return Err(format!("{name:?}: {value:?} cannot be an HTTP header"));
        };
        response.headers_mut().append(key, content);
    }
    Ok(response)
}

fn error(status: StatusCode, message: &str) -> Response<StreamBody> {
    let body = Bytes::from(foreign_error(status.as_u16(), message));
    let length = HeaderValue::from(body.len());
    let mut response = Response::new(StreamBody::once(body));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response.headers_mut().insert(CONTENT_LENGTH, length);
    // What is left of the request is not to be taken for the beginning of the next one.
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
