//! The actor of an attempt beside the steps of turns: it asks a model for a title or a summary, and reports what it said.
//!
//! It is metered, reserves of the budget and waits for the provider's limits as a step does. Nobody sees its answer before
//! that is complete, so it has no part in the session's ring.

use std::sync::Arc;
use std::time::Instant;

use playhouse_llm::{Finding, Learned, SentTools, StreamEvent, ToolChoice, Toolset, Transcript};
use playhouse_protocol::chat::{ChatMessage, UserPart};
use playhouse_protocol::record::StepPart;
use playhouse_protocol::usage::Quality;
use playhouse_protocol::{ErrorCode, ErrorInfo, PartId, Usage};
use playhouse_session::{AsideOrder, AttemptReport, FailedAttempt, StepAnswer};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio_util::sync::CancellationToken;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use crate::base::{Child, Ids, begins, now};
use crate::budget::{Before, Purse};
use crate::context::EngineContext;
use crate::conversation::tell;
use crate::directory::{Directory, Profile, ProfileRequest};
use crate::mailbox::SessionMessage;
use crate::measure::gen_ai_provider;
use crate::step::{Progress, most_used, record, send, tell_limiter};

/// All that such an attempt needs.
pub(crate) struct AsideWork {
    pub(crate) order: AsideOrder,
    pub(crate) request: ProfileRequest,
    pub(crate) directory: Arc<dyn Directory>,
    pub(crate) cancel: CancellationToken,
    pub(crate) session: ActorRef<SessionMessage>,
    pub(crate) shared: Arc<EngineContext>,
    /// Counts this actor among those at work until it ends.
    pub(crate) child: Child,
    /// The span of the turn, where one runs.
    pub(crate) turn: Span,
    /// What it is charged to, where there is a budget, and what was used before.
    pub(crate) purse: Option<(Arc<Purse>, Before)>,
}

pub(crate) enum AsideMessage {
    Run(Box<AsideWork>),
}

pub(crate) struct AsideActor;

impl Actor for AsideActor {
    type Msg = AsideMessage;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<AsideMessage>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<AsideMessage>,
        AsideMessage::Run(work): AsideMessage,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        begins("aside", "run", Some(work.request.session));
        let span = span(&work);
        Box::pin(run(*work).instrument(span)).await;
        Ok(())
    }
}

fn span(work: &AsideWork) -> Span {
    let model = &work.order.model;
    tracing::info_span!(
        parent: &work.turn,
        "chat",
        otel.name = format_args!("{} {}", work.order.purpose.name(), model.model),
        otel.kind = "client",
        gen_ai.operation.name = "chat",
        gen_ai.conversation.id = %work.request.session,
        gen_ai.provider.name = %gen_ai_provider(&model.provider.as_str().into()),
        gen_ai.request.model = model.model,
        gen_ai.response.model = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        purpose = work.order.purpose.name(),
        attempt = %work.order.attempt,
        error.type = Empty,
    )
}

async fn run(work: AsideWork) {
    let AsideWork { order, request, directory, cancel, session, shared, child: _child, turn: _, purse } =
        work;
    let (attempt, purpose, of_session) = (order.attempt, order.purpose, request.session);
    let (mut progress, mut text) = (Progress::default(), String::new());
    let ended = {
        let asked = ask(&order, request, directory, &shared, purse, &mut progress, &mut text);
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(ErrorInfo::new(ErrorCode::Internal, "nobody waits for it any more")),
            ended = asked => ended,
        }
    };
    let report = match ended {
        Ok(answer) => {
            let id: PartId = Ids::after(now()).next();
            AttemptReport::Finished(StepAnswer {
                parts: vec![StepPart::Text { id, text, opaque: None }],
                calls: Vec::new(),
                finish: answer.finish,
                usage: answer.usage.or_else(|| {
                    progress.usage.take().map(|usage| Usage { quality: Quality::Estimated, ..usage })
                }),
                answered_by: answer.model,
            })
        }
        Err(error) => {
            let error = error.of_model(&order.model);
            if !cancel.is_cancelled() {
                let (model, code) = (&order.model, error.code.name());
                tracing::warn!(session = %of_session, %attempt, %model, %purpose, code, %error, "an attempt failed");
            }
            AttemptReport::Failed(FailedAttempt {
                may_have_used: progress.may_have_used(&error),
                error,
                parts: Vec::new(),
                usage: progress.usage,
                streamed_bytes: text.len() as u64,
                adjusted: false,
            })
        }
    };
    record(&report);
    shared.figures.name_unknown(&order.model.provider, &report);
    // A session that is gone needs no report: its log says that the attempt is open.
    drop(session.send_message(SessionMessage::Attempt(attempt, Box::new(report), None)));
}

/// So often a request is sent again at most without what was refused.
const MOST_ADJUSTED: u32 = 4;

/// Sends the request, and reads the answer into `text`.
async fn ask(
    order: &AsideOrder,
    mut request: ProfileRequest,
    directory: Arc<dyn Directory>,
    shared: &Arc<EngineContext>,
    purse: Option<(Arc<Purse>, Before)>,
    progress: &mut Progress,
    text: &mut String,
) -> Result<playhouse_llm::Answer, ErrorInfo> {
    let tenant = request.tenant.clone();
    let (purpose, model) = (order.purpose, order.model.clone());
    let profile = move || {
        // Nothing of the workspace is of use here: the agent's own text is all.
        request.settled = directory.aside(purpose, &model).map(|aside| aside.system);
        directory.profile(&request)
    };
    let made = shared.pool.run(profile).await?;
    let mut reserve = purse;
    let mut adjusted = 0;
    loop {
        let mut profile = made.clone();
        let head = &mut profile.head;
        head.tools = Toolset::default();
        // Its request shares nothing with those of the session.
        head.cache_key = None;
        let mut head = std::mem::take(head).adjusted(profile.findings.of(&order.model));
        head.max_output = head.max_output.min(order.most_output);
        profile.head = head;
        let mut transcript = Transcript::new(profile.endpoint.dialect, &profile.head);
        let parts = vec![UserPart::Text { text: order.text.clone() }];
        transcript.push(&ChatMessage::User { parts }, &|_| None);
        let body = transcript.request(ToolChoice::Auto);
        if let Some((purse, before)) = reserve.take() {
            let most = most_used(shared, &order.model, order.estimated_input, &body, &profile);
            let of = (order.attempt, &order.model, order.in_turn.then_some(order.turn));
            purse.reserve(shared.books(), of, before, most, |_| ()).await?;
        }
        let ended = {
            let _permit = profile.limiter.acquire(&tenant, order.estimated_input).await;
            exchange(&profile, body, order, progress, shared, text).await
        };
        tell_limiter(&profile.limiter, &ended, shared);
        let error = match ended {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        // A request that was refused used nothing: it is sent again without what was refused.
        let Profile { findings, endpoint, head, .. } = &profile;
        let learned = findings.learn(&order.model, endpoint.dialect, head, &SentTools::default(), &error);
        match learned {
            // The limit of this one is smaller than those of others.
            Some(Learned { finding: finding @ Finding::MostOutput(_), .. }) => {
                findings.forget(&order.model, [finding]);
            }
            Some(Learned { finding, is_new }) if adjusted < MOST_ADJUSTED => {
                adjusted += 1;
                if is_new {
                    tell(&order.model, &finding);
                }
                continue;
            }
            _ => {}
        }
        return Err(ErrorInfo { said: None, ..error.of_ended(profile.ended.clone()) });
    }
}

async fn exchange(
    profile: &Profile,
    body: bytes::Bytes,
    order: &AsideOrder,
    progress: &mut Progress,
    shared: &EngineContext,
    text: &mut String,
) -> Result<playhouse_llm::Answer, ErrorInfo> {
    let began = Instant::now();
    let mut is_first = true;
    let mut stream = send(profile, order.attempt, body, progress).await?;
    let mut events = Vec::new();
    loop {
        events.clear();
        let more = stream.next(&mut events).await;
        if !events.is_empty() && std::mem::take(&mut is_first) {
            shared.measures.first_token(&order.model, began.elapsed());
        }
        for event in events.drain(..) {
            if let StreamEvent::Text(piece) = event {
                text.push_str(&piece);
            }
        }
        if let Some(usage) = stream.new_usage() {
            progress.usage = Some(usage);
        }
        if !more? {
            break;
        }
        tokio::task::consume_budget().await;
    }
    stream.finish()
}
