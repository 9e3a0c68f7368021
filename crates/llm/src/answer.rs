//! Sends a request, and reads its answer as it arrives.

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, poll};
use playhouse_protocol::error::ErrorCode;
use playhouse_protocol::usage::Quality;
use playhouse_protocol::{AttemptId, ErrorInfo, Usage};
use secrecy::SecretString;
use tokio::time::{Instant, Sleep, sleep_until, timeout, timeout_at};

use crate::decode::{Answer, Batch, Decode, StreamEvent, bad};
use crate::endpoint::Endpoint;
use crate::failure::{self, Refusal, describe_body, header, is_page};
use crate::halves::Halves;
use crate::repair::Repair;
use crate::sse::{EVENT_LIMIT, EventReader};
use crate::transport::{HttpRequest, HttpResponse, Transport, address};

/// How much of the body of an error is read, in bytes.
const ERROR_BODY_LIMIT: usize = 64 << 10;
/// How much of a body is kept until its first event, to be quoted if none comes, in bytes.
const BEGINNING_LIMIT: usize = 512;
/// How many bytes that are there already are taken as one batch.
const BATCH_LIMIT: usize = 64 << 10;
/// How long a connection is read on after the end of an answer, so that it can serve the next request.
const DRAIN_TIME: Duration = Duration::from_secs(1);
/// How often it is read at once for that.
const DRAIN_AT_ONCE: usize = 4;

/// What is allowed for each token of the limit of an answer, in bytes. Few tokens are longer than half of it.
const BYTES_PER_TOKEN: u64 = 32;
/// What every answer may hold, in bytes: one event may be this large, and servers do not keep small limits exactly.
const LEAST_ANSWER: u64 = EVENT_LIMIT as u64;

/// How long a server may be silent and talk, and how much it may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the request to the head of its answer. A local model may read the whole prompt before it sends this.
    pub head: Duration,
    /// Between two chunks of the body. Comments that keep a stream alive count.
    pub silence: Duration,
    /// From the request to the end of the answer, whatever comes.
    pub attempt: Duration,
    /// The whole body of an error: what came until then says what it can.
    pub error_body: Duration,
    /// From the last word of an answer to the figures or the marker that some servers send after it.
    pub trailer: Duration,
    /// Size of the body, in bytes.
    pub size: u64,
    /// Size of what the body says: text, reasoning, calls and their arguments, in bytes.
    pub answer: u64,
}

impl Limits {
    /// The same for an answer of at most `tokens` tokens, which a server may ignore. Every answer may hold 16 MB.
    #[must_use]
    pub fn for_output(self, tokens: u64) -> Self {
        Self { answer: tokens.saturating_mul(BYTES_PER_TOKEN).max(LEAST_ANSWER), ..self }
    }
}

impl Default for Limits {
    /// 300 s to the head, 300 s of silence (models that think are silent on some wires), an hour in all, 5 s for
    /// the body of an error, 3 s for what follows a whole answer, 256 MB of which 64 MB say something.
    fn default() -> Self {
        Self {
            head: Duration::from_secs(300),
            silence: Duration::from_secs(300),
            attempt: Duration::from_secs(3_600),
            error_body: Duration::from_secs(5),
            trailer: Duration::from_secs(3),
            size: 256 << 20,
            answer: 64 << 20,
        }
    }
}

/// Sends `body` (made by a [`Transcript`](crate::Transcript) of the same dialect and for the same `model`) to `endpoint`,
/// and returns when the head of a good answer has arrived. The attempt's id goes out as the header `x-playhouse-attempt`.
///
/// # Errors
///
/// Everything that keeps an answer from beginning: the connection, the status (with what the provider said about it), a
/// body that is not a stream of events.
pub async fn send(
    transport: &dyn Transport,
    endpoint: &Endpoint,
    model: &str,
    attempt: AttemptId,
    body: Bytes,
    limits: Limits,
) -> Result<AnswerStream, ErrorInfo> {
    endpoint.check_key()?;
    let dialect = endpoint.dialect.dialect();
    let url = dialect.url(&endpoint.base_url, model);
    let headers = headers(endpoint, attempt);
    let named = |mut error: ErrorInfo| {
        error.message = endpoint.without_secrets(format!("{}: {}", endpoint.provider, error.message));
        error
    };
    let request = HttpRequest { url: url.clone(), headers, body, connections: endpoint.connections };
    let head = limits.head.min(limits.attempt);
    let began = Instant::now();
    let response = match timeout_at(after(began, head), transport.send(request)).await {
        Ok(response) => response.map_err(named)?,
        Err(_) => {
            let what = format!(
                "{} did not begin to answer within {} s: is it overloaded, or is {} the wrong address?",
                endpoint.provider,
                head.as_secs_f64(),
                address(&url)
            );
            return Err(ErrorInfo::new(ErrorCode::NoAnswer, what));
        }
    };
    let end = after(began, limits.attempt);
    if !(200..300).contains(&response.status) {
        let HttpResponse { status, headers, body: answer } = response;
        let answer = read_beginning(answer, limits.silence.min(limits.error_body)).await;
        let address = address(&url);
        let refusal =
            Refusal { endpoint, model, address: &address, status, headers: &headers, body: &answer };
        return Err(refusal.error());
    }
    let kind = header(&response.headers, "content-type").unwrap_or("text/event-stream").to_owned();
    if !kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream") {
        let status = response.status;
        let answer = read_beginning(response.body, limits.silence.min(limits.error_body)).await;
        let error = failure::in_good_body(&answer).unwrap_or_else(|| {
            bad(format!(
                "the answer is {kind}, not a stream of events: {}; check base_url ({})",
                describe_body(&answer),
                address(&url)
            ))
        });
        // What the body says of itself is nearer to the fault.
        let status = error.status.unwrap_or(status);
        return Err(named(ErrorInfo { is_page: is_page(&answer), ..error.with_status(status) }));
    }
    Ok(AnswerStream {
        endpoint: endpoint.clone(),
        body: Some(response.body),
        events: EventReader::new(EVENT_LIMIT),
        halves: Halves::default(),
        decoder: dialect.decoder(endpoint.usage),
        limits,
        end,
        patience: Box::pin(sleep_until(end)),
        trailing_since: None,
        received: 0,
        said: 0,
        beginning: Some(Vec::new()),
        usage_reports: 0,
    })
}

/// The headers of a request. What is configured stands instead of a header of the same name.
fn headers(endpoint: &Endpoint, attempt: AttemptId) -> Vec<(String, SecretString)> {
    let own = endpoint.dialect.dialect().headers(endpoint.key.as_ref());
    let common = [
        ("content-type", SecretString::from("application/json")),
        ("accept", SecretString::from("text/event-stream")),
        // What compresses a stream holds events back. A server that does it unasked is understood all the same.
        ("accept-encoding", SecretString::from("identity")),
        ("x-playhouse-attempt", SecretString::from(attempt.as_str())),
    ];
    let configured =
        || endpoint.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
    own.into_iter()
        .chain(common)
        .filter(|(name, _)| configured().all(|(other, _)| other != *name))
        .map(|(name, value)| (name.to_owned(), value))
        .chain(configured())
        .collect()
}

/// The time `wait` after `now`; a wait that no clock reaches is a year.
fn after(now: Instant, wait: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);
    now + wait.min(YEAR)
}

/// What a body has next, if it comes before `deadline`. Setting a timer for each piece of it would cost more than some
/// pieces: `patience` may ring early, and is set again then.
async fn before(
    deadline: Instant,
    patience: &mut Pin<Box<Sleep>>,
    body: &mut Body,
) -> Option<Option<Result<Bytes, ErrorInfo>>> {
    if patience.is_elapsed() || patience.deadline() > deadline {
        patience.as_mut().reset(deadline);
    }
    loop {
        tokio::select! {
            biased;
            next = body.next() => return Some(next),
            () = patience.as_mut() => {
                if Instant::now() >= deadline {
                    return None;
                }
                patience.as_mut().reset(deadline);
            }
        }
    }
}

type Body = futures::stream::BoxStream<'static, Result<Bytes, ErrorInfo>>;

/// The beginning of a body, as far as it arrives within `time`.
async fn read_beginning(mut body: Body, time: Duration) -> Vec<u8> {
    let end = after(Instant::now(), time);
    let mut beginning = Vec::new();
    while beginning.len() < ERROR_BODY_LIMIT {
        match timeout_at(end, body.next()).await {
            Ok(Some(Ok(chunk))) => {
                let rest = ERROR_BODY_LIMIT - beginning.len();
                beginning.extend_from_slice(&chunk[..chunk.len().min(rest)]);
            }
            _ => break,
        }
    }
    beginning
}

/// An answer under way.
pub struct AnswerStream {
    /// Who answers.
    endpoint: Endpoint,
    /// The body; `None` when it was read to its end.
    body: Option<Body>,
    /// Cuts the body into events.
    events: EventReader,
    /// Puts characters together that were cut in two.
    halves: Halves,
    /// Reads the events.
    decoder: Box<dyn Decode>,
    /// What the server may do.
    limits: Limits,
    /// When the attempt is given up, whatever comes.
    end: Instant,
    /// Rings when the server is silent for too long, or earlier.
    patience: Pin<Box<Sleep>>,
    /// Since when nothing of use came although the answer is whole, and only what may follow is waited for.
    trailing_since: Option<Instant>,
    /// Bytes of the body so far.
    received: u64,
    /// Bytes of what it said so far.
    said: u64,
    /// The beginning of the body, until its first event.
    beginning: Option<Vec<u8>>,
    /// Reports of usage that were handed out.
    usage_reports: u64,
}

impl std::fmt::Debug for AnswerStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AnswerStream")
            .field("provider", &self.endpoint.provider)
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}

impl AnswerStream {
    /// Waits for more of the answer, and appends everything that has arrived to `out` (which may be nothing). Returns
    /// whether more may come. What was appended is complete also where an error is returned. May be dropped while it
    /// waits; nothing is lost.
    ///
    /// # Errors
    ///
    /// The stream broke or was silent for too long, the provider reported an error, or the answer is not what the dialect
    /// says. The answer cannot be read on after an error.
    pub async fn next(&mut self, out: &mut Vec<StreamEvent>) -> Result<bool, ErrorInfo> {
        let Some(body) = &mut self.body else { return Ok(false) };
        let now = Instant::now();
        let mut deadline = after(now, self.limits.silence).min(self.end);
        if self.decoder.is_whole() {
            // Slow figures put the deadline off; comments and whatever else comes do not.
            if self.events.is_inside_data() {
                self.trailing_since = Some(now);
            }
            deadline = deadline.min(*self.trailing_since.get_or_insert(now) + self.limits.trailer);
        }
        // A server that always has something to say is asked for the time first.
        let arrived = match now >= deadline {
            true => None,
            false => before(deadline, &mut self.patience, body).await,
        };
        let before = out.len();
        let mut result = self.take_batch(arrived, out).await;
        if out.len() > before {
            // It goes on behind its reason: what may follow is waited for anew.
            self.trailing_since = None;
        }
        self.said += out[before..].iter().map(StreamEvent::size).sum::<u64>();
        if self.said > self.limits.answer && !self.decoder.is_complete() {
            let what = format!(
                "the answer is larger than {} bytes, far more than its limit of output allows: the server does not keep it",
                self.limits.answer
            );
            result = Err(ErrorInfo::new(ErrorCode::OutputLimit, what));
        }
        if !matches!(result, Ok(true)) {
            self.close();
        }
        result.map_err(|error| self.named(error))
    }

    /// Takes what arrived, and whatever else is there already, without waiting. `None` stands for silence.
    async fn take_batch(
        &mut self,
        mut arrived: Option<Option<Result<Bytes, ErrorInfo>>>,
        out: &mut Vec<StreamEvent>,
    ) -> Result<bool, ErrorInfo> {
        let mut batch = Batch::new(out);
        let mut size = 0;
        loop {
            let chunk = match arrived {
                Some(Some(Ok(chunk))) => chunk,
                // What could still have come is no part of the answer.
                Some(Some(Err(_))) | None if self.decoder.is_whole() => {
                    self.decoder.end(&mut batch)?;
                    return Ok(false);
                }
                Some(Some(Err(error))) => return Err(error),
                Some(None) => {
                    self.body = None;
                    self.end(&mut batch)?;
                    return Ok(false);
                }
                None => {
                    let what = match Instant::now() >= self.end {
                        true => {
                            format!("the answer was not whole after {} s", self.limits.attempt.as_secs_f64())
                        }
                        false => format!("nothing came for {} s", self.limits.silence.as_secs_f64()),
                    };
                    return Err(ErrorInfo::new(ErrorCode::StreamCut, what));
                }
            };
            size += chunk.len();
            self.decode(&chunk, &mut batch)?;
            // Its connection may read on into the same buffer only once nobody holds a part of it.
            drop(chunk);
            if self.decoder.is_complete() {
                return Ok(false);
            }
            if size >= BATCH_LIMIT {
                return Ok(true);
            }
            let Some(body) = &mut self.body else { return Ok(true) };
            // Asked with the waker of this task, as it is when it is waited for.
            match poll!(body.next()) {
                Poll::Ready(next) => arrived = Some(next),
                Poll::Pending => return Ok(true),
            }
        }
    }

    fn decode(&mut self, chunk: &[u8], batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        self.received += chunk.len() as u64;
        if self.received > self.limits.size {
            return Err(bad(format!(
                "the answer is larger than {} bytes: nothing this large is read",
                self.limits.size
            )));
        }
        if let Some(beginning) = &mut self.beginning {
            let rest = BEGINNING_LIMIT - beginning.len();
            beginning.extend_from_slice(&chunk[..chunk.len().min(rest)]);
        }
        let Self { events, halves, decoder, beginning, .. } = self;
        let taken = events.push(chunk, |name, data| {
            *beginning = None;
            if decoder.is_complete() { Ok(()) } else { decoder.event(name, &halves.mend(data), batch) }
        });
        // What follows the end is of no interest, and no reason to fail.
        if decoder.is_complete() { Ok(()) } else { taken }
    }

    /// Takes the end of the body.
    fn end(&mut self, batch: &mut Batch<'_>) -> Result<(), ErrorInfo> {
        let Self { events, halves, decoder, beginning, .. } = self;
        let rest = events.end(|name, data| {
            *beginning = None;
            decoder.event(name, &halves.mend(data), batch)
        });
        match rest {
            // Half an event: that it is malformed says no more than that the stream was cut.
            Err(error) if error.code != ErrorCode::BadAnswer => return Err(error),
            _ => {}
        }
        if decoder.is_complete() { Ok(()) } else { decoder.end(batch) }
    }

    /// Gives up the body. Where the answer is complete, its connection is read to the end, so that it can be used again.
    fn close(&mut self) {
        let Some(mut body) = self.body.take().filter(|_| self.decoder.is_complete()) else { return };
        // Its end is nearly always there. What a server says on and on does not hold up others that run here.
        for _ in 0..DRAIN_AT_ONCE {
            match body.next().now_or_never() {
                Some(Some(Ok(_))) => {}
                Some(_) => return,
                None => break,
            }
        }
        let drain = async move {
            while let Some(Ok(_)) = body.next().await {
                tokio::task::consume_budget().await;
            }
        };
        tokio::spawn(timeout(DRAIN_TIME, drain));
    }

    /// What the provider reported so far. Its quality is that of the figures; whether the answer was cut is known to the
    /// caller.
    pub fn usage_so_far(&self) -> Option<Usage> {
        self.decoder.usage().map(|usage| self.located(usage))
    }

    /// With the region of the server among the ways in which the answer was served.
    fn located(&self, mut usage: Usage) -> Usage {
        if let Some(region) = self.endpoint.region()
            && usage.served.iter().all(|name| name != region)
        {
            usage.served.push(region.to_owned());
        }
        usage
    }

    /// What the provider reported so far, where it reported something since this was called last. Costs nothing where it
    /// did not: meant to be called after every [`next`](Self::next).
    pub fn new_usage(&mut self) -> Option<Usage> {
        let reports = self.decoder.usage_reports();
        if std::mem::replace(&mut self.usage_reports, reports) == reports {
            return None;
        }
        self.usage_so_far()
    }

    /// What is known now that [`next`](Self::next) returned `false`.
    ///
    /// # Errors
    ///
    /// The stream ended before the answer did; the answer is empty; its end contradicts what it holds.
    pub fn finish(&mut self) -> Result<Answer, ErrorInfo> {
        let beginning = self.beginning.as_deref().map(|bytes| bytes.trim_ascii_start());
        match beginning {
            // A page or JSON from a server that does not say what it sends.
            Some(beginning @ [b'<' | b'{', ..]) => {
                let error = bad(format!("the answer holds no events: {}", describe_body(beginning)));
                Err(self.named(ErrorInfo { is_page: is_page(beginning), ..error }))
            }
            _ => {
                let mut answer = self.decoder.finish().map_err(|error| self.named(error))?;
                answer.usage = answer.usage.map(|usage| self.located(usage));
                match answer.usage.as_ref().map(|usage| usage.quality) {
                    None => answer.repairs.note(Repair::NoUsage),
                    Some(Quality::Unreconciled) => answer.repairs.note(Repair::UnreconciledUsage),
                    Some(Quality::Reported | Quality::Estimated) => {}
                }
                Ok(answer)
            }
        }
    }

    /// The error with the provider's name.
    fn named(&self, mut error: ErrorInfo) -> ErrorInfo {
        error.message =
            self.endpoint.without_secrets(format!("{}: {}", self.endpoint.provider, error.message));
        error
    }
}
