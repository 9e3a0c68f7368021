//! Requests and notifications over the pipes of a server.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::sync::mpsc::PermitIterator;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::frame;

/// Why nothing comes from a server that ended, or closed its output.
pub const CLOSED: &str = "it closed its output";
/// Messages that wait until the server reads.
const QUEUE: usize = 64;
/// How long a server may read nothing while messages wait.
const READS: Duration = Duration::from_secs(5);
/// How long a message may take to be written. A server that reads nothing holds nothing back for longer, also when nobody uses
/// it any more.
const WRITES: Duration = Duration::from_secs(30);
/// Errors of a server that gave up an answer, as the file changed or another request came: `ContentModified`,
/// `ServerCancelled`.
const GIVEN_UP: [i64; 2] = [-32_801, -32_802];
/// The longest name of a method or an id that is repeated in an answer.
const LONGEST_NAME: usize = 200;
/// The longest text of a server's error that is kept.
const LONGEST_ERROR: usize = 500;

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// The server did not answer in time; it was told that the answer is not wanted any more.
    #[error("the language server does not answer")]
    Late,
    /// The server is gone.
    #[error("the language server ended: {0}")]
    Ended(String),
    /// The server gave up what it began, and can be asked again.
    #[error("the language server gave up its answer: ask again")]
    Cancelled,
    /// The server answered with an error.
    #[error("the language server refuses: {0}")]
    Refused(String),
    /// What it answered is not what the protocol says.
    #[error("the language server answers with something else: {0}")]
    Odd(String),
}

/// What a server says on its own.
pub(crate) trait Hears: Send + Sync + 'static {
    /// A notification came.
    fn notified(&self, method: &str, params: Value);
    /// A request came: its result, `None` where there is no such method here.
    fn requested(&self, method: &str, params: Value) -> Option<Value>;
}

type Waiting = Arc<Mutex<HashMap<i64, oneshot::Sender<Result<Value, RequestError>>>>>;

/// The pipes of a server.
#[derive(Debug)]
pub(crate) struct Connection {
    out: mpsc::Sender<Vec<u8>>,
    waiting: Waiting,
    next: AtomicI64,
    ended: watch::Receiver<Option<String>>,
    reading: JoinHandle<()>,
}

impl Drop for Connection {
    /// What was told before is still written, as far as the server reads.
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl Connection {
    /// Reads and writes from now on, until a pipe ends or this is dropped.
    pub(crate) fn new(
        from: impl AsyncRead + Send + Unpin + 'static,
        mut to: impl AsyncWrite + Send + Unpin + 'static,
        hears: Arc<dyn Hears>,
    ) -> Self {
        let (out, mut queue) = mpsc::channel::<Vec<u8>>(QUEUE);
        let (end, ended) = watch::channel(None);
        let waiting = Waiting::default();
        tokio::spawn(async move {
            while let Some(body) = queue.recv().await {
                if !matches!(timeout(WRITES, frame::write(&mut to, &body)).await, Ok(Ok(()))) {
                    // The other pipe tells the end as well.
                    return;
                }
            }
        });
        let (answered, answers) = (Arc::clone(&waiting), out.downgrade());
        let reading = tokio::spawn(async move {
            let mut from = BufReader::new(from);
            let reason = loop {
                match frame::read(&mut from).await {
                    Ok(Some(body)) => {
                        if let Some(answer) = take(&body, &answered, &*hears) {
                            let Some(out) = answers.upgrade() else {
                                break "it is not used any more".to_owned();
                            };
                            if timeout(READS, out.send(answer)).await.is_err() {
                                break "it asks, and does not read the answers".to_owned();
                            }
                        }
                    }
                    Ok(None) => break CLOSED.to_owned(),
                    Err(error) => break error.to_string(),
                }
            };
            end.send_replace(Some(reason.clone()));
            for (_, waiter) in answered.lock().drain() {
                drop(waiter.send(Err(RequestError::Ended(reason.clone()))));
            }
        });
        Self { out, waiting, next: AtomicI64::new(1), ended, reading }
    }

    /// Why nothing is heard any more, if that is so.
    pub(crate) fn ended(&self) -> Option<String> {
        self.ended.borrow().clone()
    }

    /// Waits until nothing is heard any more, and says why.
    pub(crate) fn closed(&self) -> impl Future<Output = String> + Send + use<> {
        let mut ended = self.ended.clone();
        async move {
            let reason = ended.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
            reason.unwrap_or_else(|| "it is not used any more".to_owned())
        }
    }

    /// Tells the server something.
    pub(crate) async fn notify(&self, method: &str, params: &Value) -> Result<(), RequestError> {
        self.places(1).await?.tell(method, params);
        Ok(())
    }

    /// Room for so many messages, which are then sent at once and in order.
    pub(crate) async fn places(&self, count: usize) -> Result<Places<'_>, RequestError> {
        if self.ended().is_some() {
            return Err(self.gone());
        }
        match timeout(READS, self.out.reserve_many(count)).await {
            Ok(Ok(places)) => Ok(Places(places)),
            Ok(Err(_)) => Err(self.gone()),
            Err(_) => Err(RequestError::Late),
        }
    }

    /// Asks the server for something.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: Value,
        patience: Duration,
    ) -> Result<Value, RequestError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().insert(id, answer);
        let mut pending = Pending { connection: self, id, is_open: true };
        let mut message = json!({"jsonrpc": "2.0", "id": id, "method": method});
        if !params.is_null() {
            message["params"] = params;
        }
        let asked = async {
            self.send(message).await?;
            answered.await.unwrap_or_else(|_| Err(self.gone()))
        };
        let result = timeout(patience, asked).await.unwrap_or(Err(RequestError::Late));
        pending.is_open = result == Err(RequestError::Late);
        result
    }

    async fn send(&self, message: Value) -> Result<(), RequestError> {
        if self.ended().is_some() {
            return Err(self.gone());
        }
        self.out.send(message.to_string().into_bytes()).await.map_err(|_| self.gone())
    }

    fn gone(&self) -> RequestError {
        RequestError::Ended(self.ended().unwrap_or_else(|| "it reads nothing any more".to_owned()))
    }
}

/// Room for messages in the queue.
pub(crate) struct Places<'a>(PermitIterator<'a, Vec<u8>>);

impl Places<'_> {
    /// Tells the server something; nothing where there is no room left.
    pub(crate) fn tell(&mut self, method: &str, params: &Value) {
        if let Some(place) = self.0.next() {
            let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
            place.send(message.to_string().into_bytes());
        }
    }
}

/// A request that waits. When it is given up, the server is told.
struct Pending<'a> {
    connection: &'a Connection,
    id: i64,
    is_open: bool,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let waited = self.connection.waiting.lock().remove(&self.id).is_some();
        if self.is_open && waited {
            let cancel = json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": self.id}});
            drop(self.connection.out.try_send(cancel.to_string().into_bytes()));
        }
    }
}

/// Takes a message; what is to be answered.
fn take(body: &[u8], waiting: &Waiting, hears: &dyn Hears) -> Option<Vec<u8>> {
    let Ok(Value::Object(mut message)) = serde_json::from_slice::<Value>(body) else {
        tracing::debug!("a language server sent something that is no message");
        return None;
    };
    let params = message.remove("params").unwrap_or(Value::Null);
    let is_short = |name: &str| name.len() <= LONGEST_NAME;
    let method =
        message.get("method").and_then(Value::as_str).filter(|name| is_short(name)).map(str::to_owned);
    let id = message.get("id").filter(|id| id.as_str().is_none_or(is_short)).cloned();
    match (method, id) {
        (Some(method), Some(id)) => {
            let answer = match hears.requested(&method, params) {
                Some(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
                None => {
                    let error =
                        json!({"code": -32_601, "message": format!("there is no method {method} here")});
                    json!({"jsonrpc": "2.0", "id": id, "error": error})
                }
            };
            Some(answer.to_string().into_bytes())
        }
        (Some(method), None) => {
            hears.notified(&method, params);
            None
        }
        (None, id) => {
            let waiter = id.and_then(|id| waiting.lock().remove(&id.as_i64()?));
            if let Some(waiter) = waiter {
                drop(waiter.send(result(&mut message)));
            }
            None
        }
    }
}

fn result(message: &mut Map<String, Value>) -> Result<Value, RequestError> {
    match message.get("error") {
        None | Some(Value::Null) => Ok(message.remove("result").unwrap_or(Value::Null)),
        Some(error)
            if error.get("code").and_then(Value::as_i64).is_some_and(|code| GIVEN_UP.contains(&code)) =>
        {
            Err(RequestError::Cancelled)
        }
        Some(error) => {
            let text = error.get("message").and_then(Value::as_str).unwrap_or("it does not say why");
            Err(RequestError::Refused(text.chars().take(LONGEST_ERROR).collect()))
        }
    }
}
