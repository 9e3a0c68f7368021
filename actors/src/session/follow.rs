//! What a session's records tell of turns, steps, attempts and calls, for metrics and traces.
//!
//! Records are followed when they are durable, so each is counted once, also over a crash. Durations are between the times
//! of records; of what began before this actor they are not known, and only the end is counted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use playhouse_protocol::id::{AttemptId, ConsentId, MessageId, PartId};
use playhouse_protocol::message::CallPart;
use playhouse_protocol::operator::BY_HAND_TENANT;
use playhouse_protocol::record::{
    AttemptEnded, AttemptOutcome, AttemptStarted, CallProposed, TurnEnded, TurnOutcome,
};
use playhouse_protocol::tool::ToolOrigin;
use playhouse_protocol::{
    Attribution, ConsentAnswer, Entry, ErrorCode, Labels, Metric, ModelRef, Record, Seq, SessionId, Timestamp,
};
use playhouse_session::{CallPhase, Session, StepPhase};
use tracing::Span;
use tracing::field::Empty;

use crate::context::EngineContext;
use crate::measure::{self, Doing, Measures, RequestEnd, Standing, Used};

/// Follows one session.
pub(super) struct Following {
    session: SessionId,
    tenant: Arc<str>,
    standing: Standing,
    /// Appends that are not durable yet, by their last place, and when they were given to the store.
    appended: VecDeque<(Seq, Instant)>,
    turn: Option<LiveTurn>,
    /// Attempts under way.
    attempts: Vec<(AttemptId, ModelRef, Timestamp)>,
    /// Labels of attempts under way that have some.
    labels: Vec<(AttemptId, Labels)>,
    /// Calls under way, and their tools.
    calls: Vec<(PartId, ToolLabel)>,
    /// Requests for consent that are open.
    consents: Vec<(ConsentId, Timestamp)>,
    /// Ends that are not told yet: to tell one takes longer than all else that is done about it.
    untold: Vec<EndedAttempt>,
}

/// What metrics tell of an attempt that ended.
struct EndedAttempt {
    model: ModelRef,
    end: RequestEnd,
    took: Option<Duration>,
    labels: Labels,
    /// By itself, and by the calls inside of its answer that bill at a model of their own.
    used: Vec<Used>,
}

/// A turn that this actor saw the start of, or found in the log.
struct LiveTurn {
    id: MessageId,
    began: Option<Timestamp>,
    /// The step under way, and when its first attempt began.
    step: Option<(MessageId, Timestamp)>,
    span: Span,
    /// What the span says of who answers.
    described: Option<(String, ModelRef)>,
}

impl LiveTurn {
    fn new(session: SessionId, id: MessageId, began: Option<Timestamp>) -> Self {
        Self { id, began, step: None, span: turn_span(session, id), described: None }
    }

    /// Says who answers, once: a log keeps every value that a span is told.
    fn describe(&mut self, agent: &str, model: &ModelRef) {
        let is_known = self.described.as_ref().is_some_and(|(of, by)| of == agent && by == model);
        if is_known || self.span.is_disabled() {
            return;
        }
        self.span.record("otel.name", format!("invoke_agent {agent}"));
        self.span.record("gen_ai.agent.name", agent);
        self.span.record("gen_ai.provider.name", &*measure::gen_ai_provider(&model.provider.as_str().into()));
        self.span.record("gen_ai.request.model", &*model.model);
        self.described = Some((agent.to_owned(), model.clone()));
    }
}

impl Following {
    /// Begins with what the log says is unfinished.
    pub(super) fn new(session: &Session, tenant: Arc<str>, measures: &Measures) -> Self {
        let summary = &session.summary;
        let mut following = Self {
            session: summary.id,
            tenant,
            standing: measures.census.standing(Doing::Idle),
            appended: VecDeque::new(),
            turn: None,
            attempts: Vec::new(),
            labels: summary
                .open_attempts
                .iter()
                .filter_map(|(id, open)| labels_of(id.parse().ok()?, open.attribution.as_deref()))
                .collect(),
            calls: Vec::new(),
            consents: Vec::new(),
            untold: Vec::new(),
        };
        if let Some(turn) = &session.turn {
            let mut live = LiveTurn::new(summary.id, turn.id, None);
            live.describe(&turn.agent, &turn.model);
            following.turn = Some(live);
            if let Some(StepPhase::Finished { calls, .. }) = turn.step.as_ref().map(|step| &step.phase) {
                let open = calls.iter().filter(|call| call.phase != CallPhase::Settled);
                following.calls = open
                    .filter_map(|call| {
                        let CallPart { tool, source, .. } = session.call(call.id)?;
                        Some((call.id, label(tool, source.as_deref())))
                    })
                    .collect();
            }
        }
        following.stands(session);
        following
    }

    /// What the session does, after an input.
    pub(super) fn stands(&mut self, session: &Session) {
        let (consents, questions) = session.open_requests();
        let doing = match &session.turn {
            None => Doing::Idle,
            Some(_) if consents + questions > 0 => Doing::Asking,
            Some(_) => Doing::Running,
        };
        self.standing.set(doing, consents, questions);
    }

    /// Whether the turn under way is known here: its start is durable.
    pub(super) fn follows(&self, session: &Session) -> bool {
        let turn = session.turn.as_ref().map(|turn| turn.id);
        turn.is_some() && turn == self.turn.as_ref().map(|turn| turn.id)
    }

    /// The span of the turn under way, as the parent of those of its steps and calls.
    pub(super) fn span(&self) -> Span {
        self.turn.as_ref().map_or_else(Span::none, |turn| turn.span.clone())
    }

    /// An append up to `last` was given to the store.
    pub(super) fn appended(&mut self, last: Seq) {
        self.appended.push_back((last, Instant::now()));
    }

    /// Everything up to `seq` is published.
    pub(super) fn published(&mut self, seq: Seq) {
        while let Some((_, since)) = self.appended.front().filter(|(last, _)| *last <= seq) {
            measure::took(Metric::EventLag, since.elapsed());
            self.appended.pop_front();
        }
    }

    /// A record that is durable. What is to be told of attempts follows with [`Self::tell`], or with the end of their turn.
    pub(super) fn note(&mut self, entry: &Entry, model: Option<&ModelRef>, shared: &EngineContext) {
        let at = entry.at;
        match &entry.record {
            Record::TurnStarted { turn } => {
                self.turn = Some(LiveTurn::new(self.session, *turn, Some(at)));
            }
            Record::AttemptStarted(started) => self.attempt_started(started, at),
            Record::AttemptEnded(ended) => self.attempt_ended(ended, at, model),
            Record::StepFinished(finished) => {
                let began = self.turn.as_mut().and_then(|turn| turn.step.take());
                if let Some((_, began)) = began.filter(|(step, _)| *step == finished.step) {
                    measure::took(Metric::StepDuration, between(began, at));
                }
            }
            Record::CallProposed(proposed) => {
                let CallProposed { call, tool, source, .. } = proposed;
                self.calls.push((*call, label(tool, source.as_deref())));
            }
            Record::CallSettled { call, result } => {
                let label = take(&mut self.calls, |(id, _)| id == call).map(|(_, label)| label);
                let is_known = |tool: &&str| shared.tools.native().get(tool).is_some();
                let label = label.as_ref().and_then(|label| match label {
                    ToolLabel::Outside(kind) => Some(*kind),
                    ToolLabel::Named(tool) => Some(tool.as_str()).filter(is_known),
                });
                measure::tool_call(label, measure::outcome(result.outcome));
            }
            Record::ConsentAsked(asked) => self.consents.push((asked.consent, at)),
            Record::ConsentSettled { consent, answer } => {
                let asked = take(&mut self.consents, |(id, _)| id == consent);
                measure::consent(answered(answer), asked.map(|(_, asked)| between(asked, at)));
            }
            Record::TurnEnded(ended) => {
                self.tell(&shared.measures);
                self.turn_ended(ended, at, &shared.measures);
            }
            _ => {}
        }
    }

    fn attempt_started(&mut self, started: &AttemptStarted, at: Timestamp) {
        self.attempts.push((started.attempt, started.model.clone(), at));
        self.labels.extend(labels_of(started.attempt, started.attribution.as_deref()));
        if started.purpose.is_aside() {
            return;
        }
        let Some(turn) = &mut self.turn else { return };
        turn.describe(&started.agent, &started.model);
        if started.attempt_number == 1 {
            turn.step = Some((started.step, at));
        }
    }

    /// `model` is known also of an attempt that began before this actor.
    fn attempt_ended(&mut self, ended: &AttemptEnded, at: Timestamp, model: Option<&ModelRef>) {
        let began = take(&mut self.attempts, |(id, ..)| *id == ended.attempt);
        let took = began.as_ref().map(|(.., began)| between(*began, at));
        let labels = take(&mut self.labels, |(id, _)| *id == ended.attempt);
        let Some(model) = began.map(|(_, model, _)| model).or_else(|| model.cloned()) else { return };
        let end = match &ended.outcome {
            AttemptOutcome::Finished => RequestEnd::Finished,
            AttemptOutcome::Failed { error } => RequestEnd::Failed(error.code),
            AttemptOutcome::Aborted => RequestEnd::Aborted,
            AttemptOutcome::Lost => RequestEnd::Lost,
        };
        let own = ended.usage.as_ref().map(|usage| (&model, usage, ended.cost, &ended.assumed));
        let inner = ended.inner.iter().map(|call| (&call.model, &call.usage, call.cost, &call.assumed));
        let used = own.into_iter().chain(inner).map(|(model, usage, cost, assumed)| Used {
            model: model.clone(),
            tokens: usage.tokens,
            cost,
            quality: usage.quality,
            assumed: !assumed.is_empty(),
        });
        let (labels, used) = (labels.map(|(_, labels)| labels).unwrap_or_default(), used.collect());
        self.untold.push(EndedAttempt { model, end, took, labels, used });
    }

    /// Tells of the attempts that ended.
    pub(super) fn tell(&mut self, measures: &Measures) {
        for EndedAttempt { model, end, took, labels, used } in self.untold.drain(..) {
            // What no budget covered was never sent.
            if end != RequestEnd::Failed(ErrorCode::Budget) {
                measures.request(&model, end, took);
            }
            if *self.tenant != *BY_HAND_TENANT {
                used.iter().for_each(|used| measures.usage(&self.tenant, &labels, used));
            }
        }
    }

    fn turn_ended(&mut self, ended: &TurnEnded, at: Timestamp, measures: &Measures) {
        let outcome = match ended.outcome {
            TurnOutcome::Completed => "completed",
            TurnOutcome::Aborted => "aborted",
            TurnOutcome::MaxSteps => "max-steps",
            TurnOutcome::Failed => "failed",
        };
        // A prompt that was withdrawn while it waited ends without having begun.
        let turn = self.turn.take_if(|turn| turn.id == ended.turn);
        let began = turn.as_ref().and_then(|turn| turn.began);
        measures.turn(&self.tenant, outcome, began.map(|began| between(began, at)));
        let Some(LiveTurn { span, .. }) = turn else { return };
        span.record("outcome", outcome);
        span.record("steps", ended.steps);
        let tokens = &ended.totals.tokens;
        span.record("gen_ai.usage.input_tokens", tokens.all_input());
        span.record("gen_ai.usage.output_tokens", tokens.all_output());
        if let Some(error) = &ended.error {
            span.record("error.type", error.code.name());
        }
        span.in_scope(|| tracing::info!("a turn ended"));
        // Calls of a turn that is over have their results; what is left is of no turn.
        self.calls.clear();
    }
}

/// The labels of an attempt, if it has some.
fn labels_of(attempt: AttemptId, attribution: Option<&Attribution>) -> Option<(AttemptId, Labels)> {
    let labels = &attribution.filter(|attribution| !attribution.labels.is_empty())?.labels;
    Some((attempt, labels.clone()))
}

/// The span of a turn. What is known later is recorded later.
fn turn_span(session: SessionId, turn: MessageId) -> Span {
    tracing::info_span!(
        "invoke_agent",
        otel.name = Empty,
        otel.kind = "internal",
        gen_ai.operation.name = "invoke_agent",
        gen_ai.conversation.id = %session,
        turn = %turn,
        gen_ai.agent.name = Empty,
        gen_ai.provider.name = Empty,
        gen_ai.request.model = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        outcome = Empty,
        steps = Empty,
        error.type = Empty,
    )
}

/// What metrics call a tool. Models invent names, and servers have many tools.
enum ToolLabel {
    Outside(&'static str),
    Named(String),
}

fn label(tool: &str, source: Option<&ToolOrigin>) -> ToolLabel {
    match source {
        Some(origin) => ToolLabel::Outside(origin.label()),
        None => ToolLabel::Named(tool.to_owned()),
    }
}

/// How long it is from one record to another.
fn between(began: Timestamp, ended: Timestamp) -> Duration {
    Duration::from_millis(ended.as_millis().saturating_sub(began.as_millis()))
}

/// Takes the first that fits out of a list that is short.
fn take<T>(list: &mut Vec<T>, fits: impl Fn(&T) -> bool) -> Option<T> {
    let place = list.iter().position(fits)?;
    Some(list.swap_remove(place))
}

const fn answered(answer: &ConsentAnswer) -> &'static str {
    match answer {
        ConsentAnswer::Once => "once",
        ConsentAnswer::Always => "always",
        ConsentAnswer::Covered { .. } => "covered",
        ConsentAnswer::Decline { .. } => "declined",
        ConsentAnswer::TimedOut => "timed_out",
        ConsentAnswer::Unattended => "unattended",
        ConsentAnswer::Withdrawn => "withdrawn",
    }
}

/// Why an attempt failed that is made again.
pub(super) fn retried(session: &Session, code: ErrorCode, measures: &Measures) {
    if let Some(turn) = &session.turn {
        measures.retry(&turn.model, code);
    }
}
