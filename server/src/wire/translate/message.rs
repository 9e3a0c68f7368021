//! Messages and their parts.

use std::collections::HashMap;

use playhouse_protocol::message::{
    AssistantMessage, Attachment, CallInput, CallOutcome, CallPart, CallState, FinishReason, Message,
    PromptKind, UserMessage,
};
use playhouse_protocol::output::{OUTPUT, SUBMIT_OUTPUT};
use playhouse_protocol::{
    Damage, ErrorCode, ErrorInfo, IdGenerator, MessageId, Part, PartId, SessionId, SessionSummary, Timestamp,
    Tokens,
};
use playhouse_session::Changes;
use serde_json::{Map, Value};

use super::{Scene, dollars, error};
use crate::wire::shapes::{self, MessageWithParts, PartHead, PartTime, Span, Start, StepTokens, ToolState};
use crate::wire::{ids, inline};

/// The most bytes of patches that a prompt tells of what was changed for it.
pub(super) const TURN_PATCHES: usize = 256 * 1024;

/// What is known of a message's calls while its session is live.
pub(super) trait Progress {
    /// When consent to a call was asked for, whether or not it was given since.
    fn asked(&self, call: PartId) -> Option<Timestamp>;

    /// The end of what a running call has written.
    fn output(&self, call: PartId) -> Option<&str>;
}

/// Nothing is known.
pub(super) struct Unwatched;

impl Progress for Unwatched {
    fn asked(&self, _: PartId) -> Option<Timestamp> {
        None
    }

    fn output(&self, _: PartId) -> Option<&str> {
        None
    }
}

/// Messages as they are read from a log. Prompts that were taken back are left out, and a step that an abort left without an
/// end has one, unless it is the one that runs: a client would wait for their answers for ever. `behind`: messages behind these
/// that belong to the last turn here, whose prompt tells what it changed.
pub(crate) fn history<'a>(
    scene: Scene<'a>,
    messages: &'a [Message],
    behind: &[Message],
    running: Option<MessageId>,
) -> impl DoubleEndedIterator<Item = MessageWithParts> + 'a {
    let changes = by_turn(messages.iter().chain(behind));
    let shown = messages.iter().filter(|message| !matches!(message, Message::User(user) if user.withdrawn));
    shown.flat_map(move |message| match message {
        Message::User(message) if message.kind.is_compaction() => compaction(scene, message),
        Message::User(message) => vec![user(scene, message, changes.get(&message.id))],
        Message::Assistant(message) if message.completed.is_none() && running != Some(message.id) => {
            vec![assistant(scene, &given_up(message.clone(), message.created), &Unwatched)]
        }
        Message::Assistant(message) => vec![assistant(scene, message, &Unwatched)],
    })
}

/// What stands for messages that models do not read any more, as the wire has it: a message of the user that says so, and an
/// answer that holds the text.
pub(super) fn compaction(scene: Scene<'_>, message: &UserMessage) -> Vec<MessageWithParts> {
    let PromptKind::Compaction { by_hand, answer, .. } = message.kind else { return Vec::new() };
    let info = shapes::Message::User(Box::new(prompt(scene, message, None)));
    let head = head(scene, message.id, ids::step_start(message.id));
    let tells = MessageWithParts { info, parts: vec![shapes::Part::Compaction { head, auto: !by_hand }] };
    let written = AssistantMessage {
        id: answer,
        parent: message.id,
        created: message.created,
        completed: Some(message.created),
        agent: "compaction".to_owned(),
        model: message.model.clone(),
        tokens: Tokens::default(),
        cost: None,
        finish: Some(FinishReason::Stop),
        error: None,
        unread: false,
        parts: message.parts.clone(),
    };
    let mut written = assistant(scene, &written, &Unwatched);
    if let shapes::Message::Assistant(info) = &mut written.info {
        info.summary = true;
    }
    vec![tells, written]
}

/// Stands behind the last message of a session that can be read, and says why nothing comes after it. `last`: the message before
/// it, and the prompt that it belongs to.
pub(crate) fn cut_off(
    scene: Scene<'_>,
    summary: &SessionSummary,
    last: Option<(MessageId, MessageId)>,
    damage: &Damage,
) -> MessageWithParts {
    let (last, parent) = last.unwrap_or_else(|| {
        // Nothing else is there that it could be taken for.
        let id = IdGenerator::new(|bytes| bytes.fill(0)).next(summary.created);
        (id, id)
    });
    let text = format!(
        "this session is parked: {damage}. what comes from there on cannot be read, and it does not go on; fork it before one of \
         the messages above to go on from there"
    );
    let message = AssistantMessage {
        id: ids::behind(last),
        parent,
        created: summary.updated,
        completed: Some(summary.updated),
        agent: summary.agent.clone(),
        model: summary.model.clone(),
        tokens: Tokens::default(),
        cost: None,
        finish: Some(FinishReason::Failed),
        error: Some(ErrorInfo::new(ErrorCode::Parked, text)),
        unread: false,
        parts: Vec::new(),
    };
    assistant(scene, &message, &Unwatched)
}

/// An answer that was given up without a word of it.
pub(super) fn given_up(message: AssistantMessage, at: Timestamp) -> AssistantMessage {
    AssistantMessage { completed: Some(at), finish: Some(FinishReason::Aborted), ..message }
}

/// What the calls of each turn changed.
fn by_turn<'a>(messages: impl Iterator<Item = &'a Message>) -> HashMap<MessageId, Changes> {
    let mut changes: HashMap<MessageId, Changes> = HashMap::new();
    for message in messages {
        let Message::Assistant(answer) = message else { continue };
        let calls = answer.parts.iter().filter_map(|part| match part {
            Part::Call(call) => Some(call),
            _ => None,
        });
        let of_turn = changes.entry(answer.parent).or_insert_with(|| Changes::new(TURN_PATCHES));
        calls.for_each(|call| of_turn.add(call));
    }
    changes
}

/// A prompt without its parts, with what was changed for it.
pub(super) fn prompt(
    scene: Scene<'_>,
    message: &UserMessage,
    changes: Option<&Changes>,
) -> shapes::UserMessage {
    let changes = changes.filter(|changes| !changes.is_empty());
    let summary = (changes.is_some() || message.summary.is_some()).then(|| shapes::TurnSummary {
        body: message.summary.clone(),
        diffs: changes.map(|changes| diffs(scene, changes)).unwrap_or_default(),
    });
    shapes::UserMessage {
        id: message.id,
        session: scene.session,
        time: shapes::Created { created: message.created.as_millis() },
        agent: message.agent.clone(),
        model: shapes::MessageModel {
            provider: message.model.provider.clone(),
            model: message.model.model.clone(),
        },
        system: message.system.clone(),
        tools: message.tools.clone(),
        summary,
    }
}

/// The files that were changed.
pub(super) fn diffs(scene: Scene<'_>, changes: &Changes) -> Vec<shapes::FileDiff> {
    changes.files(&scene.place.directory).into_iter().map(shapes::FileDiff::from).collect()
}

/// A prompt, with what was changed for it.
pub(super) fn user(scene: Scene<'_>, message: &UserMessage, changes: Option<&Changes>) -> MessageWithParts {
    let info = prompt(scene, message, changes);
    // Who runs a command by hand wrote that, and no text.
    let synthetic = message.kind.is_one_call();
    let parts = message.parts.iter().map(|part| match part {
        Part::Text { id, text, marks, .. } => {
            let marks = marks.as_deref().cloned().unwrap_or_default();
            shapes::Part::Text {
                head: head(scene, message.id, *id),
                text: text.clone(),
                synthetic: synthetic || marks.synthetic,
                ignored: marks.ignored,
                metadata: Some(Box::new(marks.metadata)).filter(|metadata| !metadata.is_empty()),
                time: None,
            }
        }
        Part::Reasoning { id, text, .. } => {
            let head = head(scene, message.id, *id);
            shapes::Part::Text {
                head,
                text: text.clone(),
                synthetic,
                ignored: false,
                metadata: None,
                time: None,
            }
        }
        Part::File { id, file } => attachment(head(scene, message.id, *id), file),
        Part::Call(call) => tool(scene, message.id, message.created, call, &Unwatched),
    });
    MessageWithParts { info: shapes::Message::User(Box::new(info)), parts: parts.collect() }
}

/// The answer of a step, with the parts that begin and end it.
pub(super) fn assistant(
    scene: Scene<'_>,
    message: &AssistantMessage,
    progress: &impl Progress,
) -> MessageWithParts {
    let mut parts = vec![step_start(scene, message.id)];
    parts.extend(message.parts.iter().map(|part| self::part(scene, message, part, progress)));
    parts.extend(step_finish(scene, message));
    parts.extend(patch(scene, message));
    MessageWithParts { info: shapes::Message::Assistant(Box::new(info(scene, message, true))), parts }
}

/// An answer without its parts; `ended` tells when it was over, if it is.
pub(super) fn info(scene: Scene<'_>, message: &AssistantMessage, ended: bool) -> shapes::AssistantMessage {
    let over = over(message);
    let tokens = (message.finish.is_some(), &message.tokens);
    let aborted = over.is_some() && was_aborted(message);
    let error = message.error.as_ref().map(|info| error::error(info, &message.model.provider));
    shapes::AssistantMessage {
        id: message.id,
        session: scene.session,
        time: shapes::AssistantTime {
            created: message.created.as_millis(),
            completed: over.filter(|_| ended).map(Timestamp::as_millis),
        },
        parent: message.parent,
        model: message.model.model.clone(),
        provider: message.model.provider.clone(),
        mode: message.agent.clone(),
        agent: message.agent.clone(),
        path: shapes::Roots {
            cwd: scene.place.directory.to_string(),
            root: scene.place.worktree.to_string(),
        },
        cost: message.cost.map_or(0.0, |cost| dollars(cost.0)),
        tokens: shapes::Tokens {
            total: tokens.0.then(|| tokens.1.total()),
            input: message.tokens.input,
            output: message.tokens.output,
            reasoning: message.tokens.reasoning,
            cache: cache(&message.tokens),
        },
        error: error.or_else(|| aborted.then(error::aborted)),
        summary: false,
        finish: message.finish.and_then(reason).filter(|_| over.is_some()).map(str::to_owned),
        structured: structured(message),
    }
}

/// The answer that a message gives, where the prompt wanted one with a schema.
fn structured(message: &AssistantMessage) -> Option<Value> {
    message.parts.iter().find_map(|part| match part {
        Part::Call(CallPart { tool, state: CallState::Settled(result), .. })
            if tool == SUBMIT_OUTPUT && result.outcome == CallOutcome::Done =>
        {
            result.metadata.get(OUTPUT).cloned()
        }
        _ => None,
    })
}

/// When an answer and all of its calls were over.
pub(super) fn over(message: &AssistantMessage) -> Option<Timestamp> {
    let mut last = message.completed?;
    for part in &message.parts {
        let Part::Call(call) = part else { continue };
        let CallState::Settled(result) = &call.state else { return None };
        last = last.max(result.ended);
    }
    Some(last)
}

fn was_aborted(message: &AssistantMessage) -> bool {
    let cancelled = |part: &Part| {
        matches!(part, Part::Call(CallPart { state: CallState::Settled(result), .. })
            if result.outcome == CallOutcome::Cancelled)
    };
    message.finish == Some(FinishReason::Aborted) || message.parts.iter().any(cancelled)
}

/// The wire's word for why an answer ended; `None` for one that was given up.
fn reason(finish: FinishReason) -> Option<&'static str> {
    match finish {
        FinishReason::Stop => Some("stop"),
        FinishReason::ToolCalls => Some("tool-calls"),
        FinishReason::Length => Some("length"),
        FinishReason::ContentFilter => Some("content-filter"),
        FinishReason::Other => Some("other"),
        FinishReason::Aborted | FinishReason::Failed => None,
    }
}

/// The files that the calls of a step changed, once it is over; `None` where they changed none.
pub(super) fn patch(scene: Scene<'_>, message: &AssistantMessage) -> Option<shapes::Part> {
    over(message)?;
    let calls = message.parts.iter().filter_map(|part| match part {
        Part::Call(CallPart { id, changed: Some(changed), .. }) if !changed.0.is_empty() => {
            Some((id, &changed.0))
        }
        _ => None,
    });
    let (mut last, mut files) = (None, Vec::new());
    for (call, changed) in calls {
        last = Some(call);
        for file in changed {
            if !files.contains(&file.path) {
                files.push(file.path.clone());
            }
        }
    }
    let hash = last?.to_string();
    let end = message.parts.iter().map(Part::id).max()?;
    let end = ids::step_finish(message.id, end);
    Some(shapes::Part::Patch {
        head: head(scene, message.id, ids::step_finish(message.id, end)),
        hash,
        files,
    })
}

pub(super) fn step_start(scene: Scene<'_>, message: MessageId) -> shapes::Part {
    shapes::Part::StepStart { head: head(scene, message, ids::step_start(message)) }
}

/// The end of a step; `None` while it is not over, and for one that was given up.
pub(super) fn step_finish(scene: Scene<'_>, message: &AssistantMessage) -> Option<shapes::Part> {
    over(message)?;
    let reason = reason(message.finish?)?.to_owned();
    let last = message.parts.iter().map(Part::id).max().unwrap_or_else(|| ids::step_start(message.id));
    let head = head(scene, message.id, ids::step_finish(message.id, last));
    let tokens = StepTokens {
        total: message.tokens.total(),
        input: message.tokens.input,
        output: message.tokens.output,
        reasoning: message.tokens.reasoning,
        cache: cache(&message.tokens),
    };
    Some(shapes::Part::StepFinish {
        head,
        reason,
        cost: message.cost.map_or(0.0, |cost| dollars(cost.0)),
        tokens,
    })
}

/// A part of an answer.
pub(super) fn part(
    scene: Scene<'_>,
    message: &AssistantMessage,
    part: &Part,
    progress: &impl Progress,
) -> shapes::Part {
    let time =
        PartTime { start: message.created.as_millis(), end: message.completed.map(Timestamp::as_millis) };
    match part {
        Part::Text { id, text, .. } => said(head(scene, message.id, *id), text.clone(), time),
        Part::Reasoning { id, text, .. } => {
            shapes::Part::Reasoning { head: head(scene, message.id, *id), text: text.clone(), time }
        }
        Part::File { id, file } => attachment(head(scene, message.id, *id), file),
        Part::Call(call) => {
            let made = message.completed.unwrap_or(message.created);
            tool(scene, message.id, made, call, progress)
        }
    }
}

/// What a model says.
pub(super) fn said(head: PartHead, text: String, time: PartTime) -> shapes::Part {
    let (synthetic, ignored, metadata) = (false, false, None);
    shapes::Part::Text { head, text, synthetic, ignored, metadata, time: Some(time) }
}

/// A call. `made` is when the model had asked for it.
fn tool(
    scene: Scene<'_>,
    message: MessageId,
    made: Timestamp,
    call: &CallPart,
    progress: &impl Progress,
) -> shapes::Part {
    let (input, raw) = match &call.input {
        CallInput::Object(object) => (object.clone(), String::new()),
        CallInput::Malformed(text) => (Map::new(), text.clone()),
    };
    let running = |input, start: Timestamp, session: Option<SessionId>| {
        let output = progress.output(call.id).map(|output| ("output".to_owned(), output.into()));
        // Clients lead to the sub-session by it.
        let session = session.map(|session| ("sessionId".to_owned(), session.to_string().into()));
        let metadata: Map<String, Value> = output.into_iter().chain(session).collect();
        let metadata = Some(metadata).filter(|metadata| !metadata.is_empty());
        ToolState::Running { input, metadata, time: Start { start: start.as_millis() } }
    };
    let state = match &call.state {
        // The arguments of a request's call are shown only where the call runs.
        CallState::Pending => match progress.asked(call.id) {
            Some(asked) => running(input, asked, None),
            None => ToolState::Pending { input, raw },
        },
        CallState::Asking => running(input, progress.asked(call.id).unwrap_or(made), None),
        CallState::Running { started, session } => running(input, *started, *session),
        CallState::Settled(result) => {
            let time = Span { start: result.started.as_millis(), end: result.ended.as_millis() };
            match result.outcome {
                CallOutcome::Done => ToolState::Completed {
                    input,
                    output: result.output.clone(),
                    title: result.title.clone(),
                    metadata: metadata(&call.tool, &result.metadata),
                    time,
                    attachments: result
                        .attachments
                        .iter()
                        .enumerate()
                        .map(|(index, file)| {
                            attachment(head(scene, message, ids::attachment(call.id, index)), file)
                        })
                        .collect(),
                },
                CallOutcome::Failed
                | CallOutcome::Declined
                | CallOutcome::Cancelled
                | CallOutcome::Interrupted
                | CallOutcome::Crashed => ToolState::Error {
                    input,
                    error: result.output.clone(),
                    metadata: Some(result.metadata.clone()).filter(|metadata| !metadata.is_empty()),
                    time,
                },
            }
        }
    };
    let head = head(scene, message, call.id);
    shapes::Part::Tool { head, call: call.call_id.clone(), tool: call.tool.clone(), state }
}

/// What the wire is told beside the output of a call. Clients show what `write` and `edit` did only beside diagnostics, of which
/// there are none: no language server looks at files.
fn metadata(tool: &str, told: &Map<String, Value>) -> Map<String, Value> {
    let mut metadata = told.clone();
    if matches!(tool, "write" | "edit") {
        metadata.entry("diagnostics").or_insert_with(|| Map::new().into());
    }
    metadata
}

/// A file. Its address is a path of this server.
fn attachment(head: PartHead, file: &Attachment) -> shapes::Part {
    shapes::Part::File {
        mime: file.mime.clone(),
        filename: file.filename.clone(),
        url: inline::address(head.session, &file.blob.hash),
        source: file.source.clone(),
        blob: Some(file.blob.clone()),
        head,
    }
}

pub(super) fn head(scene: Scene<'_>, message: MessageId, id: PartId) -> PartHead {
    PartHead { id, session: scene.session, message }
}

pub(super) fn cache(tokens: &Tokens) -> shapes::CacheTokens {
    shapes::CacheTokens { read: tokens.cache_read, write: tokens.cache_writes() }
}
