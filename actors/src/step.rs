//! The step actor: carries one request to a model and streams the answer into the session's ring.
//!
//! Its one handler waits for the work and for the cancellation token; whoever owns it reads its report from the mailbox. Then it
//! takes the next step of its session, until the session rests and stops it. An end before its report is a crash.

pub(crate) mod aside;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use playhouse_billing::budget::Wait;
use playhouse_llm::{AnswerStream, Limiter, Permit, Repair};
use playhouse_protocol::chat::ChatMessage;
use playhouse_protocol::event::{OpenPartKind, Provisional};
use playhouse_protocol::id::{AttemptId, PartId};
use playhouse_protocol::message::CallInput;
use playhouse_protocol::record::StepPart;
use playhouse_protocol::usage::Quality;
use playhouse_protocol::{ErrorCode, ErrorInfo, ModelRef, Seq, SessionId, Timestamp, Usage};
use playhouse_session::{AttemptOrder, AttemptReport, FailedAttempt, ProposedCall, StepAnswer};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use crate::base::durable::Durable;
use crate::base::{Child, Ids, begins, now};
use crate::budget::{Before, Most, Purse};
use crate::context::EngineContext;
use crate::conversation::{Conversation, MADE_UNDER, Offered, Settled};
use crate::directory::{Profile, ProfileRequest};
use crate::events::ring::{OpenPart, Ring};
use crate::events::telling::Telling;
use crate::judge::Judge;
use crate::mailbox::SessionMessage;
use crate::measure::{Count, gen_ai_provider};

/// How long nothing is sent to a server that asked for less traffic and did not say how long.
const COOL_DOWN: Duration = Duration::from_secs(1);

/// All that an attempt needs.
pub(crate) struct StepWork {
    pub(crate) order: AttemptOrder,
    pub(crate) conversation: Box<Conversation>,
    /// Messages that the conversation does not hold yet.
    pub(crate) new: Vec<ChatMessage>,
    pub(crate) request: ProfileRequest,
    pub(crate) offered: Offered,
    pub(crate) settled: Settled,
    /// The record of the attempt: nothing leaves before the log is durable up to there, and is told after that.
    pub(crate) until: Seq,
    pub(crate) durable: Arc<Durable>,
    pub(crate) judge: Arc<Judge>,
    pub(crate) ring: Arc<Ring>,
    pub(crate) ids: Ids,
    pub(crate) cancel: CancellationToken,
    pub(crate) session: ActorRef<SessionMessage>,
    pub(crate) shared: Arc<EngineContext>,
    /// Counts this actor among those at work until it ends.
    pub(crate) child: Child,
    /// The span of the turn.
    pub(crate) turn: Span,
    /// What it is charged to, where there is a budget, and what was used before.
    pub(crate) purse: Option<(Arc<Purse>, Before)>,
}

pub(crate) enum StepMessage {
    Run(Box<StepWork>),
}

pub(crate) struct StepActor;

impl Actor for StepActor {
    type Msg = StepMessage;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<StepMessage>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<StepMessage>,
        StepMessage::Run(work): StepMessage,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        begins("step", "run", Some(work.request.session));
        let span = span(&work);
        Box::pin(run(*work).instrument(span)).await;
        Ok(())
    }
}

/// The span of an attempt, within that of its turn. How it ended is recorded at the end.
fn span(work: &StepWork) -> Span {
    let model = &work.order.model;
    tracing::info_span!(
        parent: &work.turn,
        "chat",
        otel.name = format_args!("chat {}", model.model),
        otel.kind = "client",
        gen_ai.operation.name = "chat",
        gen_ai.conversation.id = %work.request.session,
        gen_ai.provider.name = %gen_ai_provider(&model.provider.as_str().into()),
        gen_ai.request.model = model.model,
        gen_ai.response.model = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        step = %work.order.step,
        attempt = %work.order.attempt,
        error.type = Empty,
    )
}

/// Tells the span of an attempt how it ended.
pub(crate) fn record(report: &AttemptReport) {
    let span = Span::current();
    let usage = match report {
        AttemptReport::Finished(answer) => {
            if let Some(model) = &answer.answered_by {
                span.record("gen_ai.response.model", &**model);
            }
            answer.usage.as_ref()
        }
        AttemptReport::Failed(failed) => {
            span.record("error.type", failed.error.code.name());
            failed.usage.as_ref()
        }
    };
    if let Some(tokens) = usage.map(|usage| usage.tokens) {
        span.record("gen_ai.usage.input_tokens", tokens.all_input());
        span.record("gen_ai.usage.output_tokens", tokens.all_output());
    }
    tracing::debug!("an attempt ended");
}

async fn run(mut work: StepWork) {
    let mut progress = Progress::default();
    let cancel = work.cancel.clone();
    let ended = tokio::select! {
        biased;
        () = cancel.cancelled() => Err(ErrorInfo::new(ErrorCode::Internal, "the turn was aborted")),
        ended = attempt(&mut work, &mut progress) => ended,
    };
    let StepWork { order, conversation, request, ring, session, shared, child: _child, .. } = work;
    let of_session = request.session;
    let open = ring.take(order.attempt);
    let report = match ended {
        Ok(mut answer) => {
            let (parts, calls) = assemble(open, progress.opaque_of(conversation.head()));
            for call in &calls {
                if matches!(call.input, CallInput::Malformed(_)) {
                    answer.repairs.note(Repair::ArgumentsNotAnObject);
                }
            }
            log(&answer, of_session, &order);
            AttemptReport::Finished(StepAnswer {
                parts,
                calls,
                finish: answer.finish,
                // Without final figures, those up to there are the beginning of an estimate.
                usage: answer.usage.or_else(|| {
                    progress.usage.take().map(|usage| Usage { quality: Quality::Estimated, ..usage })
                }),
                answered_by: answer.model,
            })
        }
        Err(error) => {
            let error = error.of_model(&order.model);
            // Tenants are not told what the provider said: here it stands for the operator.
            if !cancel.is_cancelled() && error.code != ErrorCode::PromptTooLong {
                let (model, attempt, code) = (&order.model, order.attempt, error.code.name());
                tracing::warn!(session = %of_session, %attempt, %model, code, %error, "an attempt failed");
            }
            let streamed_bytes = open.iter().map(|part| part.text.len() as u64).sum();
            let (mut parts, _) = assemble(open, progress.opaque_of(conversation.head()));
            // No call of an incomplete answer is complete.
            parts.retain(|part| !matches!(part, StepPart::Call { .. }));
            AttemptReport::Failed(FailedAttempt {
                may_have_used: progress.may_have_used(&error),
                error,
                parts,
                usage: progress.usage,
                streamed_bytes,
                adjusted: progress.adjusted,
            })
        }
    };
    record(&report);
    shared.figures.name_unknown(&order.model.provider, &report);
    let message = SessionMessage::Attempt(order.attempt, Box::new(report), Some(conversation));
    // A session that is gone needs no report: its log says that the attempt is open.
    drop(session.send_message(message));
}

/// An answer that had to be repaired is one that the provider's people should hear of; and what a provider leaves out of a
/// request, this engine should have left out itself.
fn log(answer: &playhouse_llm::Answer, session: SessionId, order: &AttemptOrder) {
    let (model, attempt) = (&order.model, order.attempt);
    for (repair, times) in answer.repairs.iter() {
        tracing::warn!(%session, %attempt, %model, times, %repair, "an answer was repaired");
    }
    if !answer.removals.is_empty() {
        let removals = &answer.removals;
        tracing::warn!(%session, %attempt, %model, %removals, "the provider left reasoning out of a request");
    }
}

/// What is known of an attempt while it runs, and when it is cut.
#[derive(Default)]
pub(crate) struct Progress {
    /// When the request was sent.
    pub(crate) sent: Option<Instant>,
    /// The answer began.
    pub(crate) answering: bool,
    pub(crate) usage: Option<Usage>,
    /// What belongs to reasoning parts.
    opaque: HashMap<PartId, Value>,
    /// An optional parameter was refused, and the next request goes without it.
    adjusted: bool,
}

impl Progress {
    /// Takes what belongs to reasoning parts, which were made after the system prompt and the tools of this `head`.
    fn opaque_of(&mut self, head: &str) -> HashMap<PartId, Value> {
        let mut opaque = std::mem::take(&mut self.opaque);
        for members in opaque.values_mut().filter_map(Value::as_object_mut) {
            members.insert(MADE_UNDER.to_owned(), head.into());
        }
        opaque
    }

    /// A server that could not be reached or refused the request used nothing, nor did one that was given up before it might leave.
    pub(crate) fn may_have_used(&self, error: &ErrorInfo) -> bool {
        let unsent = matches!(
            error.code,
            ErrorCode::Connection | ErrorCode::Misconfigured | ErrorCode::Authentication
        );
        // A page that came in place of an answer.
        if error.is_page {
            return false;
        }
        self.answering
            || self.sent.is_some()
                && match error.status {
                    // A gateway lost patience with whoever worked on it, or what was answered is not what was asked for.
                    Some(status) => matches!(status, 200..=299 | 504 | 524),
                    None => !unsent,
                }
    }
}

/// Makes the request and exchanges it for an answer. What came before it ended otherwise is in `progress` and the ring.
async fn attempt(work: &mut StepWork, progress: &mut Progress) -> Result<playhouse_llm::Answer, ErrorInfo> {
    let StepWork { order, conversation, request, durable, ring, ids, session, shared, .. } = work;
    let (settled, until, offered) = (work.settled, work.until, &work.offered);
    if let Some(last) = settled.system.max(settled.tools) {
        // They are read there.
        durable.wait(last).await;
    }
    let (judge, new) = (Arc::clone(&work.judge), std::mem::take(&mut work.new));
    // A session that is gone settles nothing.
    let settles = |made| drop(session.send_message(SessionMessage::SystemMade(Box::new(made))));
    conversation.extend(shared, request, offered, settled, settles, judge, new, order.messages).await?;
    let preceding = conversation.preceding();
    if let Some(fit) = order.fit.filter(|fit| !fit.is_within(preceding)) {
        tracing::debug!(attempt = %order.attempt, preceding, ?fit, "a request has no room");
        return Err(ErrorInfo::new(ErrorCode::PromptTooLong, "the request has no room and is not sent"));
    }
    let Some((profile, body)) = conversation.request(order.last) else {
        return Err(ErrorInfo::new(ErrorCode::Internal, "the request could not be made"));
    };
    // All of the above needs no record of the attempt, and was done while that was written.
    durable.wait(until).await;
    // Before the provider's limits: whoever waits here holds up nobody there.
    if let Some((purse, before)) = work.purse.take() {
        // What was used before is settled then, and where it waits clients are told.
        ring.has_published(until).await;
        let most = most_used(shared, &order.model, order.estimated_input, &body, &profile);
        let waits = |wait: &Wait| tell_waiting(order, ring, None, wait.to_string());
        let attempt = (order.attempt, &order.model, Some(order.turn));
        purse.reserve(shared.books(), attempt, before, most, waits).await?;
    }
    let of = (&*order, until);
    let _permit = admitted(&profile.limiter, &request.tenant, of, ring, shared).await;
    let ended = exchange(&profile, body, of, ring, ids, progress, shared).await;
    tell_limiter(&profile.limiter, &ended, shared);
    match ended {
        Ok(answer) => {
            conversation.answered();
            Ok(answer)
        }
        Err(error) => {
            let known = shared.directory.window(&order.model).unwrap_or(u64::MAX);
            progress.adjusted = conversation.learn(&error, known);
            Err(error.of_ended(profile.ended.clone()))
        }
    }
}

/// Tells those who wait for the same server and key how a request ended.
pub(crate) fn tell_limiter<T>(limiter: &Limiter, ended: &Result<T, ErrorInfo>, shared: &EngineContext) {
    match ended {
        Ok(_) => limiter.succeeded(),
        // Whether it was said at the head of the answer or in the middle of it.
        Err(error) if error.code == ErrorCode::RateLimited => {
            let wait = error.retry_after_ms.map_or(COOL_DOWN, Duration::from_millis);
            // A step does not wait longer than this; sessions that have not asked the server need not, either.
            limiter.cool_down(wait.min(Duration::from_millis(shared.limits.retry.longest_ms)));
        }
        Err(_) => {}
    }
}

/// Sends the request of an attempt; on return the answer begins.
pub(crate) async fn send(
    profile: &Profile,
    attempt: AttemptId,
    body: Bytes,
    progress: &mut Progress,
) -> Result<AnswerStream, ErrorInfo> {
    let Profile { transport, endpoint, limits, head, .. } = profile;
    let limits = limits.for_output(head.max_output);
    progress.sent = Some(Instant::now());
    let stream =
        playhouse_llm::send(transport.as_ref(), endpoint, &head.model, attempt, body, limits).await?;
    progress.answering = true;
    Ok(stream)
}

/// Sends a request and streams its answer.
async fn exchange(
    profile: &Profile,
    body: Bytes,
    (order, until): (&AttemptOrder, Seq),
    ring: &Ring,
    ids: &Ids,
    progress: &mut Progress,
    shared: &EngineContext,
) -> Result<playhouse_llm::Answer, ErrorInfo> {
    let sent = send(profile, order.attempt, body, progress).await;
    // An error is told as well.
    ring.has_published(until).await;
    let mut stream = sent?;
    let Progress { sent, usage, opaque, .. } = progress;
    let mut telling = Telling::new((order.step, order.attempt), ids, ring, &shared.pace, opaque);
    let mut is_first = true;
    loop {
        let more = telling.read(&mut stream).await;
        if is_first && telling.has_begun() {
            is_first = false;
            shared.measures.first_token(&order.model, sent.map(|sent| sent.elapsed()).unwrap_or_default());
        }
        if let Some(reported) = stream.new_usage() {
            *usage = Some(reported);
        }
        if !more? {
            break;
        }
        // One session at full speed leaves the worker to the others now and then.
        tokio::task::consume_budget().await;
    }
    drop(telling);
    stream.finish()
}

/// Waits until the provider's limits allow the request; clients are told when it does not leave at once.
async fn admitted(
    limiter: &Limiter,
    tenant: &str,
    (order, until): (&AttemptOrder, Seq),
    ring: &Ring,
    shared: &EngineContext,
) -> Permit {
    let tokens = order.estimated_input;
    if let Some(permit) = limiter.try_acquire(tokens) {
        return permit;
    }
    ring.has_published(until).await;
    let (cool, waiting) = limiter.outlook();
    let cools = !cool.is_zero();
    let until = limiter.least_wait(tokens).map(|wait| {
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_millis(now().as_millis().saturating_add(millis))
    });
    let provider = &order.model.provider;
    let why = match (cools, until) {
        (true, _) => "asked for less traffic",
        (false, Some(_)) => "is used to its limit a minute",
        (false, None) => "is used to its limit",
    };
    let others = match waiting {
        0 => String::new(),
        1 => "; 1 request waits before".to_owned(),
        count => format!("; {count} requests wait before"),
    };
    let reason = format!("{provider} {why}{others}");
    tell_waiting(order, ring, until, reason);
    let _waits = shared.measures.census.counted(Count::ProviderWaiting);
    limiter.acquire(tenant, tokens).await
}

/// Tells clients that a request does not leave at once.
fn tell_waiting(order: &AttemptOrder, ring: &Ring, until: Option<Timestamp>, reason: String) {
    let (step, attempt) = (order.step, order.attempt);
    ring.write(|writer| writer.notice(Provisional::AttemptWaiting { step, attempt, until, reason }));
}

/// The most that a request and its answer can use. A token of text has a byte at least, so there are no more of them than
/// bytes, and a request that does not fit its model is refused by the provider. What it answers at most it was told.
pub(crate) fn most_used(
    shared: &EngineContext,
    model: &ModelRef,
    estimated_input: u64,
    body: &Bytes,
    profile: &Profile,
) -> Most {
    let bytes = (body.len() as u64).max(estimated_input);
    let window = shared.directory.window(model).unwrap_or(u64::MAX);
    Most { input: bytes.min(window), output: profile.head.max_output, region: profile.endpoint.region() }
}

/// The parts and calls of what was streamed. Every call gets an id of its own, whatever the provider sent.
fn assemble(open: Vec<OpenPart>, mut opaque: HashMap<PartId, Value>) -> (Vec<StepPart>, Vec<ProposedCall>) {
    let mut parts = Vec::with_capacity(open.len());
    let mut calls: Vec<ProposedCall> = Vec::new();
    for OpenPart { part: id, kind, text, .. } in open {
        match kind {
            OpenPartKind::Text if text.is_empty() => {}
            OpenPartKind::Text => parts.push(StepPart::Text { id, text, opaque: opaque.remove(&id) }),
            OpenPartKind::Reasoning => {
                parts.push(StepPart::Reasoning { id, text, opaque: opaque.remove(&id) });
            }
            OpenPartKind::Call { call_id, tool } => {
                let taken = calls.iter().any(|call| call.call_id == call_id);
                let call_id = if call_id.is_empty() || taken { id.to_string() } else { call_id };
                calls.push(ProposedCall { id, call_id, tool, input: CallInput::from_model(&text) });
                parts.push(StepPart::Call { id, opaque: opaque.remove(&id) });
            }
        }
    }
    (parts, calls)
}
