//! The history as a model reads it.

use playhouse_protocol::ModelRef;
use playhouse_protocol::chat::{AssistantPart, ChatMessage, ResultPart, UserPart};
use playhouse_protocol::message::{
    AssistantMessage, CallInput, CallOutcome, CallPart, CallState, FinishReason, Message, Part, UserMessage,
};
use serde_json::Map;

use crate::context::{Context, refused};

/// What a prompt says for its turn only, with a hole for it.
const TURN_SYSTEM: &str = include_str!("../../../prompts/turn-system.md");
/// The tools that a prompt turns off.
const TURN_TOOLS: &str = include_str!("../../../prompts/turn-tools.md");
/// What a model reads when it may call nothing more.
const STEP_LIMIT: &str = include_str!("../../../prompts/max-steps.md");
/// Follows reasoning after which an answer said nothing more.
const ENDED: &str = "(The answer ended here.)";
/// The hole.
const HOLE: &str = "{{text}}";

/// Adds what a model reads of `message` to `out`: nothing, one message, or an answer and the results of its calls.
///
/// The translation of a message does not depend on the others, so that a conversation only grows. The message must be
/// complete: all its calls have their results. What one model gave to be sent back unchanged is for that model only: a
/// `reader` that is another one is not shown it.
///
/// What a prompt says for its turn only follows its text, as a block that is marked as such: the system prompt, with which
/// every request begins, stays as it is, and so do the tools.
pub fn translate(message: &Message, reader: &ModelRef, out: &mut Vec<ChatMessage>) {
    translate_in(message, reader, &Context::default(), Thoughts::Fresh, out);
}

/// Whether the reasoning of an answer was made after what a reader of it is shown before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thoughts {
    Fresh,
    Stale,
}

/// The same, without what the context leaves out of outputs.
pub(crate) fn translate_in(
    message: &Message,
    reader: &ModelRef,
    context: &Context,
    thoughts: Thoughts,
    out: &mut Vec<ChatMessage>,
) {
    match message {
        Message::User(message) => translate_user(message, reader, context, out),
        Message::Assistant(message) => {
            let thoughts = (message.model == *reader).then_some(thoughts);
            translate_assistant(message, reader, thoughts, context, out);
        }
    }
}

/// Adds the text that an answer at the step limit is asked with to the last message: from then on it stands in the history,
/// since reasoning that was made after it holds only where it is.
pub(crate) fn remind(out: &mut Vec<ChatMessage>) {
    let text = STEP_LIMIT.trim_end();
    match out.last_mut() {
        Some(ChatMessage::Results { results }) if !results.is_empty() => {
            if let Some(result) = results.last_mut() {
                let before = if result.output.is_empty() { "" } else { "\n\n" };
                result.output.extend([before, text]);
            }
        }
        Some(ChatMessage::User { parts }) => parts.push(UserPart::Text { text: text.to_owned() }),
        _ => out.push(ChatMessage::User { parts: vec![UserPart::Text { text: text.to_owned() }] }),
    }
}

fn translate_user(message: &UserMessage, reader: &ModelRef, context: &Context, out: &mut Vec<ChatMessage>) {
    // What is told of a compaction is told to clients: models read it at the beginning.
    if message.withdrawn || message.kind.is_compaction() || message.kind.is_block() {
        return;
    }
    let mut parts: Vec<UserPart> = message
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::Text { .. } => {
                let text = part.told().filter(|text| !text.is_empty())?;
                Some(UserPart::Text { text: text.to_owned() })
            }
            Part::File { id, file } if context.is_refused(reader, *id) => {
                Some(UserPart::Text { text: refused(file) })
            }
            Part::File { file, .. } => Some(UserPart::File(file.clone())),
            Part::Reasoning { .. } | Part::Call(_) => None,
        })
        .collect();
    let blocks = [
        message.system.as_ref().map(|system| filled(TURN_SYSTEM, system.trim())),
        turned_off(message).map(|tools| filled(TURN_TOOLS, &tools)),
    ];
    let blocks = blocks.into_iter().flatten().collect::<Vec<_>>().join("\n\n");
    if !blocks.is_empty() {
        parts.push(UserPart::Text { text: blocks });
    }
    if !parts.is_empty() {
        out.push(ChatMessage::User { parts });
    }
}

fn filled(template: &str, text: &str) -> String {
    template.trim_end().replacen(HOLE, text, 1)
}

/// The tools that are turned off for the turn of a prompt, in words; `None` where all are as they were.
fn turned_off(message: &UserMessage) -> Option<String> {
    if !message.kind.is_turn() {
        return None;
    }
    let named = |on: bool| {
        let names = message.tools.iter().filter(move |(name, is)| **is == on && *name != "*");
        names.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let (off, on) = (named(false), named(true));
    match message.tools.get("*") {
        Some(false) if on.is_empty() => Some("all".to_owned()),
        Some(false) => Some(format!("all but {on}")),
        _ => Some(off).filter(|off| !off.is_empty()),
    }
}

/// `thoughts`: `None` for the answer of another model, whose reasoning is left out.
fn translate_assistant(
    message: &AssistantMessage,
    reader: &ModelRef,
    thoughts: Option<Thoughts>,
    context: &Context,
    out: &mut Vec<ChatMessage>,
) {
    if message.unread {
        return;
    }
    let mut parts: Vec<AssistantPart> =
        message.parts.iter().filter_map(|part| assistant_part(part, thoughts)).collect();
    let says_something =
        |parts: &[AssistantPart]| parts.iter().any(|part| !matches!(part, AssistantPart::Reasoning { .. }));
    let is_proof = |part: &AssistantPart| matches!(part, AssistantPart::Reasoning { opaque: Some(_), .. });
    let failed = message.finish == Some(FinishReason::Failed);
    if failed {
        // What a failed answer had begun to say is shown to people. A model would take it for an answer.
        parts.truncate(parts.iter().rposition(is_proof).map_or(0, |last| last + 1));
    }
    let stopped = failed || matches!(message.finish, Some(FinishReason::Aborted | FinishReason::Length));
    if (stopped || !says_something(&parts)) && parts.last().is_some_and(is_proof) {
        // Providers refuse reasoning that nothing follows.
        parts.push(AssistantPart::Text { text: ENDED.to_owned(), opaque: None });
    }
    if !says_something(&parts) {
        return;
    }
    out.push(ChatMessage::Assistant { parts });
    let calls = message.parts.iter().filter_map(|part| match part {
        Part::Call(call) => Some(result_part(call, reader, context)),
        _ => None,
    });
    let results: Vec<ResultPart> = calls.collect();
    if !results.is_empty() {
        out.push(ChatMessage::Results { results });
    }
}

fn assistant_part(part: &Part, thoughts: Option<Thoughts>) -> Option<AssistantPart> {
    let is_own = thoughts.is_some();
    match part {
        Part::Text { text, .. } if text.trim().is_empty() => None,
        Part::Text { text, opaque, .. } => {
            Some(AssistantPart::Text { text: text.clone(), opaque: opaque.clone().filter(|_| is_own) })
        }
        Part::Reasoning { text, opaque, .. } => Some(AssistantPart::Reasoning {
            text: text.clone(),
            opaque: opaque.clone(),
            stale: thoughts? == Thoughts::Stale,
        }),
        Part::Call(call) => Some(AssistantPart::Call {
            id: call.call_id.clone(),
            name: call.tool.clone(),
            input: match &call.input {
                CallInput::Object(object) => object.clone(),
                // What is no object cannot be sent back as one; the result quotes it.
                CallInput::Malformed(_) => Map::new(),
            },
            opaque: call.opaque.as_deref().cloned().filter(|_| is_own),
        }),
        Part::File { .. } => None,
    }
}

fn result_part(call: &CallPart, reader: &ModelRef, context: &Context) -> ResultPart {
    let (output, ok, attachments) = match &call.state {
        CallState::Settled(result) => {
            let (output, attachments) = context.output(reader, call.id, result);
            (output, result.outcome == CallOutcome::Done, attachments)
        }
        // Not reached for complete messages. A model must see a result all the same.
        CallState::Pending | CallState::Asking | CallState::Running { .. } => {
            ("no result: the call was not finished".to_owned(), false, Vec::new())
        }
    };
    ResultPart { id: call.call_id.clone(), name: call.tool.clone(), output, ok, attachments }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::message::{PromptKind, ToolSwitches};
    use playhouse_protocol::{IdGenerator, Timestamp};

    use super::*;

    fn prompt(system: Option<&str>, tools: &[(&str, bool)]) -> Vec<ChatMessage> {
        let mut ids = IdGenerator::new(|bytes| bytes.fill(1));
        let now = Timestamp::from_millis(5);
        let model = ModelRef::new("mock", "m");
        let message = UserMessage {
            summary: None,
            id: ids.next(now),
            created: now,
            agent: "build".into(),
            model: model.clone(),
            parts: vec![Part::text(ids.next(now), "Fix it.")],
            withdrawn: false,
            kind: PromptKind::Turn,
            system: system.map(str::to_owned),
            tools: tools.iter().map(|(name, on)| ((*name).to_owned(), *on)).collect::<ToolSwitches>(),
        };
        let mut out = Vec::new();
        translate(&Message::User(message), &model, &mut out);
        out
    }

    /// What follows the text of the prompt.
    fn block(system: Option<&str>, tools: &[(&str, bool)]) -> Option<String> {
        let messages = prompt(system, tools);
        let [ChatMessage::User { parts }] = messages.as_slice() else {
            panic!("it is one message of the user")
        };
        assert_eq!(parts[0], UserPart::Text { text: "Fix it.".into() });
        match &parts[1..] {
            [] => None,
            [UserPart::Text { text }] => Some(text.clone()),
            more => panic!("one block at most: {more:?}"),
        }
    }

    #[test]
    fn what_holds_for_a_turn_follows_the_text_of_its_prompt() {
        insta::assert_snapshot!(
            block(Some("Answer in verse.\n{{text}}\n"), &[("bash", false), ("read", true), ("write", false)]).unwrap(),
            @r"
        <system-for-this-turn>
        What follows comes from whoever runs this session and stands beside the system prompt. It holds until this prompt is answered, and not after that.

        Answer in verse.
        {{text}}
        </system-for-this-turn>

        <tools-for-this-turn>
        Until this prompt is answered these tools are turned off, and calls of them are refused: bash, write.
        </tools-for-this-turn>
        "
        );
        assert_eq!(block(None, &[]), None);
        assert_eq!(block(None, &[("read", true), ("*", true)]), None);
    }

    #[test]
    fn all_tools_can_be_turned_off_but_those_that_are_named() {
        let all = block(None, &[("*", false)]).unwrap();
        assert!(all.contains("refused: all.\n"), "{all}");
        let some = block(None, &[("*", false), ("bash", false), ("read", true), ("grep", true)]).unwrap();
        assert!(some.contains("refused: all but grep, read.\n"), "{some}");
    }
}
